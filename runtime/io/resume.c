/*
 * resume.c - in: --resume DIR; out: the checkpoint to go on from, which is of this model and was
 * written with these options, or why not.
 */
#include "checkpoint.h"

#include "base/file/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

PpStatus resume_refuse(const Index *x, const char *fmt, ...)
{
    char why[8000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return pp_fail(PP_ERR_MODEL, "--resume %s: %s", x->path, why);
}

/* ---- the model ---- */

static void tensor_text(char *to, size_t n, int dtype, int rank, const int64_t *dim)
{
    const char *type = st_dtype_name(dtype);
    const int at = snprintf(to, n, "%s", type ? type : "?");
    dims_text(to + at, n - (size_t)at, rank, dim, -1);
}

static int is_parameter(const PpPlan *p, const char *name)
{
    for (ParamName i = {0}; param_next(p, &i);)
        if (!strcmp(i.name, name))
            return 1;
    return 0;
}

static PpStatus same_parameter(const Index *x, const PpParam *p, const char *name)
{
    char want[400], have[400];
    int64_t dim[PP_MAX_RANK];
    const IndexTensor *c = index_find(x, name);
    if (!c)
        return resume_refuse(x, "checkpoint of another model: it has no parameter '%s'", name);
    param_shape(p, dim);
    tensor_text(want, sizeof want, p->t.dtype, p->t.rank, dim);
    tensor_text(have, sizeof have, c->dtype, c->rank, c->dim);
    if (strcmp(want, have) != 0)
        return resume_refuse(x, "checkpoint of another model: its parameter '%s' is %s, here %s",
                             name, have, want);
    return PP_OK;
}

/* The first difference between its parameters and the program's. */
static PpStatus same_model(const Index *x, const PpPlan *p)
{
    for (ParamName i = {0}; param_next(p, &i);)
        TRY(same_parameter(x, i.p, i.name));
    for (int i = 0; i < x->n_tensor; i++)
        if (strncmp(x->tensor[i].name, "optimizer/", 10) != 0 &&
            !is_parameter(p, x->tensor[i].name))
            return resume_refuse(x,
                                 "checkpoint of another model: its parameter '%s' is not one here",
                                 x->tensor[i].name);
    if (x->model_hash != p->program.model_hash)
        return resume_refuse(
            x,
            "checkpoint of another model: the parameters are alike, but it was made "
            "from another '%s' than '%s'; use --params to start a new run with its parameters",
            x->model, p->model);
    return PP_OK;
}

/* Nothing in the folder: x->path is NULL, and PP_OK. */
static PpStatus open_newest(Index *x, const char *option, const char *folder, int64_t below)
{
    char note[INDEX_ERR];
    if (index_newest(x, folder, below, note, sizeof note))
        memcpy(x->note, note, sizeof note);
    else if (note[0])
        return pp_fail(PP_ERR_MODEL, "%s %s", option, note);
    return PP_OK;
}

PpStatus resume_open(Index *x, const PpPlan *model, const Options *o, int64_t below)
{
    TRY(open_newest(x, "--resume", o->save.resume, below));
    if (x->path)
        return same_model(x, model);
    return o->save.checkpoint && (!strcmp(o->save.resume, o->save.checkpoint) ||
                                  files_same(o->save.resume, o->save.checkpoint))
               ? PP_OK
               : pp_fail(PP_ERR_IO,
                         "--resume %s: no checkpoint there: neither index.json nor a folder "
                         "step_N; with --checkpoint for the same folder a new run starts",
                         o->save.resume);
}

PpStatus params_open(Index *x, const Options *o, int64_t below)
{
    char stage[PATH_MAX];
    if (params_is_file(o->save.params))
        return PP_OK;
    TRY(open_newest(x, "--params", o->save.params, below));
    if (x->path)
        return PP_OK;
    if (params_stage_file(stage, o->save.params, 0) >= 0)
        return PP_OK;
    return pp_fail(
        PP_ERR_IO,
        "--params %s: no parameters there: neither a checkpoint (index.json, or folders step_N), "
        "nor a folder with stageN.safetensors as out/params, nor a .safetensors file",
        o->save.params);
}

/* ---- the options ---- */

static PpStatus same_option(const Index *x, const NumberOption *n, const Options *o)
{
    const char *was = index_option(x, n->name), *optimizer = index_option(x, "optimizer");
    if (!was || n->given || !strcmp(was, n->value))
        return PP_OK;
    if (!strcmp(was, "yes"))
        return resume_refuse(x, "it was written with --%s: give it again", n->name);
    if (!strcmp(was, "none"))
        return resume_refuse(x,
                             "it was written without --%s, which is %s here: give --%s %s "
                             "to go on with that",
                             n->name, n->value, n->name, n->value);
    if (optimizer && strcmp(n->name, "optimizer") != 0 &&
        strcmp(optimizer, optimizers[o->train.optimizer].name) != 0)
        return resume_refuse(x,
                             "it was written with --optimizer %s and --%s %s, which is %s "
                             "here, with --optimizer %s: give --%s, that one or another",
                             optimizer, n->name, was, n->value, optimizers[o->train.optimizer].name,
                             n->name);
    return resume_refuse(x,
                         "it was written with --%s %s, which is %s here: give --%s, that "
                         "one or another",
                         n->name, was, n->value, n->name);
}

/* What ppsplit was told cannot be given again here: another value has to be accepted by name. */
static PpStatus same_program(const Index *x, const PpPlan *p, const Options *o)
{
    for (int i = 0; i < p->program.n_made; i++) {
        char key[80];
        int accepted = 0;
        snprintf(key, sizeof key, "made.%s", p->program.made[i].option);
        const char *was = index_option(x, key), *is = p->program.made[i].value;
        for (int k = 0; k < o->save.accept.n; k++)
            accepted |= !strcmp(o->save.accept.at[k], p->program.made[i].option);
        if (was && strcmp(was, is) != 0 && !accepted)
            return resume_refuse(x,
                                 "its program was made with --%s: %s, this one with: %s; "
                                 "make this one like it, or continue with --accept %s",
                                 p->program.made[i].option, was, is, p->program.made[i].option);
    }
    return PP_OK;
}

PpStatus resume_options(const Index *x, const PpPlan *p, const Options *o)
{
    NumberOption n;
    POOL(pool);
    TRY(same_program(x, p, o));
    for (int i = 0; options_next_number(o, &i, &n, &pool);)
        TRY(n.value ? same_option(x, &n, o) : pp_no_memory());
    return PP_OK;
}

/* Older ones have as many groups as replicas. */
PpStatus resume_groups(const Index *x, Options *o)
{
    const char *text = index_option(x, "groups");
    char *end = NULL;
    text = text ? text : index_option(x, "dp");
    long n = text ? strtol(text, &end, 10) : 1;
    if (text && (end == text || *end || n < 1 || n > INT_MAX))
        return resume_refuse(x,
                             "it was written with --groups %s, which is no "
                             "number of groups",
                             text);
    if (n % o->machine.dp)
        return resume_refuse(
            x,
            "its gradients are sums over %ld group%s of rows, which --dp %d cannot "
            "divide evenly: use another --dp, or --groups to continue with other sums",
            n, n == 1 ? "" : "s", o->machine.dp);
    o->machine.groups = (int)n;
    return PP_OK;
}

PpStatus resume_number(const Index *x, const char *key, int64_t *value)
{
    const char *text = index_state(x, key);
    char *end = NULL;
    errno = 0;
    *value = text ? strtoll(text, &end, 10) : -1;
    return text && end != text && !*end && !errno && *value >= 0
               ? PP_OK
               : resume_refuse(x, "its state has no '%s'", key);
}

PpStatus resume_real(const Index *x, const char *key, double *value)
{
    const char *text = index_state(x, key);
    char *end = NULL;
    *value = text ? strtod(text, &end) : 0;
    return text && end != text && !*end && *value > 0
               ? PP_OK
               : resume_refuse(x, "its state has no '%s'", key);
}

/* ---- where the run writes ---- */

PpStatus resume_place(const Index *x, const Options *o, int64_t below)
{
    int n;
    Index newest;
    char from[PATH_MAX] = "", err[INDEX_ERR];
    int64_t *step = index_steps(o->save.checkpoint, 0, &n), last = step && n ? step[n - 1] : -1;
    free(step);
    if (last < 0)
        return PP_OK;
    snprintf(from, sizeof from, "%s", x->path ? x->path : "");
    folder_above(from);
    if (!x->path || !files_same(from, o->save.checkpoint))
        return pp_fail(PP_ERR_MODEL,
                       "--checkpoint %s: it holds step_%" PRId64
                       " of another run: continue it with --resume %s, or name another folder",
                       o->save.checkpoint, last, o->save.checkpoint);
    /* Damaged ones may be newer: they are replaced */
    if (!index_newest(&newest, o->save.checkpoint, below, err, sizeof err))
        return PP_OK;
    last = newest.step;
    index_close(&newest);
    return last <= x->step ? PP_OK
                           : pp_fail(PP_ERR_MODEL,
                                     "--checkpoint %s: it holds step_%" PRId64
                                     ", newer than the one to resume: "
                                     "name another folder",
                                     o->save.checkpoint, last);
}

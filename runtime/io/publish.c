/*
 * publish.c - the folder of a checkpoint, on rank 0.  In: the records of all ranks, whose files lie
 * in step_N.tmp.  Out: step_N.  The index is written when all files are durable, and the folder
 * gets its name when the index is, and loses it before its files go: a folder step_N is whole.
 */
#include "checkpoint.h"

#include "base/file/json.h"
#include "base/file/memory.h"
#include "base/file/replace.h"
#include "base/file/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

PpStatus checkpoint_failed(const Options *o, int64_t step, const char *why)
{
    return pp_fail(PP_ERR_IO, "--checkpoint %s: step_%" PRId64 ": %s", o->save.checkpoint, step,
                   why);
}

PpStatus checkpoint_folder(char *path, size_t n, const Options *o, int64_t step, const char *end)
{
    return snprintf(path, n, "%s/step_%" PRId64 "%s", o->save.checkpoint, step, end) < (int)n
               ? PP_OK
               : pp_fail(PP_ERR_IO, "%s: name too long", o->save.checkpoint);
}

/* ---- removing ---- */

/* Renamed it is none, and a run that is killed here leaves what the next one removes.  Of a link to
 * one only the link goes; a file of its name stays. */
static PpStatus remove_checkpoint(const Options *o, int64_t step)
{
    char path[PATH_MAX], old[PATH_MAX];
    struct stat sb;
    TRY(checkpoint_folder(path, sizeof path, o, step, ""));
    TRY(checkpoint_folder(old, sizeof old, o, step, ".old.tmp"));
    if (lstat(path, &sb) || S_ISREG(sb.st_mode))
        return PP_OK;
    folder_clear(old);
    if (rename(path, old))
        return checkpoint_failed(o, step, strerror(errno));
    folder_clear(old);
    return PP_OK;
}

/* step_N.tmp of runs that were interrupted. */
static void remove_unfinished(const char *folder)
{
    char path[PATH_MAX];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);
        if (!strncmp(e->d_name, "step_", 5) && n > 9 && !strcmp(e->d_name + n - 4, ".tmp") &&
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path)
            folder_clear(path);
    }
    if (d)
        closedir(d);
}

PpStatus checkpoint_claim(const Options *o)
{
    static int held = -1; /* until the process ends, however it does */
    if (held < 0)
        held = open(o->save.checkpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (held >= 0 && flock(held, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return pp_fail(PP_ERR_IO, "--checkpoint %s: another run is writing there",
                       o->save.checkpoint);
    remove_unfinished(o->save.checkpoint);
    return PP_OK;
}

void checkpoint_unfinished(const Options *o, const char *noted)
{
    int n;
    int64_t *step = index_steps(o->save.checkpoint, 1, &n);
    char path[PATH_MAX];
    for (int i = 0; step && i < n; i++) {
        if (checkpoint_folder(path, sizeof path, o, step[i], "") != PP_OK || index_there(path))
            continue;
        const size_t length = strlen(path);
        if (strncmp(noted, path, length) != 0 || noted[length] != ':')
            fprintf(stderr,
                    "pipeline: warning: %s: without index.json, so it is no checkpoint, and "
                    "nothing removes it\n",
                    path);
    }
    free(step);
}

static PpStatus keep_newest(const Options *o)
{
    int n;
    int64_t *step = o->save.keep ? index_steps(o->save.checkpoint, 0, &n) : NULL;
    PpStatus s = PP_OK;
    for (int i = 0; step && i + o->save.keep < n && s == PP_OK; i++)
        s = remove_checkpoint(o, step[i]);
    free(step);
    return s;
}

PpStatus checkpoint_prepare(const Options *o, int64_t step)
{
    char path[PATH_MAX];
    TRY(checkpoint_folder(path, sizeof path, o, step, ".tmp"));
    struct stat sb;
    TRY(folder_make("--checkpoint", o->save.checkpoint));
    TRY(checkpoint_claim(o)); /* it may be new */
    return mkdir(path, 0777) && (errno != EEXIST || lstat(path, &sb) || !S_ISDIR(sb.st_mode))
               ? checkpoint_failed(o, step, strerror(errno))
               : PP_OK;
}

/* ---- the index ---- */

const PpParam *record_param(const PpPlan *model, const Record *r)
{
    return &model->stage[r->stage]->param[r->param];
}

const char *record_name(Pool *p, const PpPlan *model, const Options *o, const Record *r)
{
    const char *name = param_name(model, record_param(model, r), r->member);
    return r->state < 0 ? name
                        : pool_print(p, "optimizer/%s/%s",
                                     optimizers[o->train.optimizer].state[r->state], name);
}

void record_file(const Record *r, char *to, size_t n)
{
    snprintf(to, n, "rank%d.safetensors", r->rank);
}

/* A part of a tensor, or a piece of one */
typedef struct {
    const char *name;
    const Record *r;
    const PpParam *p;
    int64_t at; /* where the part begins along the axis that is divided */
} Entry;

static int compare(int64_t x, int64_t y) { return (x > y) - (x < y); }

/* The tensors by name, each one's parts and their pieces in order. */
static int by_name(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    c = c ? c : compare(x->at, y->at);
    return c ? c : compare(x->r->first, y->r->first);
}

static int part_of(const PpPlan *model, const Entry *e)
{
    return plan_own_part(model, e->p, e->r->member);
}

static PpStatus entries(const Publication *p, Pool *pool, Entry **list, int *n)
{
    for (const Record *r = p->record; r < p->record + p->n; r++) {
        if (r->param < 0)
            continue;
        Entry e = {record_name(pool, p->model, p->opt, r), r, record_param(p->model, r), 0};
        if (!e.name)
            return pp_no_memory();
        if (param_divided(e.p))
            e.at = param_from(e.p, part_of(p->model, &e));
        TRY(pp_add(pool, list, n, &e, sizeof e));
    }
    if (*n)
        qsort(*list, (size_t)*n, sizeof **list, by_name);
    return PP_OK;
}

/* The dimensions in which the parts of a tensor are boxes, and that along which it is divided;
 * those of the tensor, or where the axis has several runs what lies before it, a run, what lies
 * behind. */
static int view_of(const PpParam *p, int64_t dim[PP_MAX_RANK], int *axis)
{
    int64_t outer = p->groups, inner = 1;
    param_shape(p, dim);
    *axis = p->axis;
    if (p->groups <= 1)
        return p->t.rank;
    for (int i = 0; i < p->t.rank; i++)
        *(i < p->axis ? &outer : &inner) *= i == p->axis ? 1 : dim[i];
    dim[1] = dim[p->axis] / p->groups;
    dim[0] = outer;
    dim[2] = inner;
    *axis = 1;
    return 3;
}

static void begin_tensor(JsonOut *o, const Entry *e)
{
    int64_t dim[PP_MAX_RANK];
    int axis, divided = param_divided(e->p) && e->p->groups > 1;
    json_begin(o, e->name, '{');
    json_put_text(o, "dtype", st_dtype_name(e->p->t.dtype));
    param_shape(e->p, dim);
    json_put_integers(o, "shape", dim, e->p->t.rank);
    if (divided)
        json_put_integers(o, "view", dim, view_of(e->p, dim, &axis));
    json_begin(o, "pieces", '[');
}

static void put_piece(JsonOut *o, const PpPlan *model, const Entry *e)
{
    char file[40];
    int64_t start[PP_MAX_RANK] = {0}, size[PP_MAX_RANK];
    int axis, rank;
    record_file(e->r, file, sizeof file);
    json_begin(o, NULL, '{');
    json_put_text(o, "file", file);
    json_put(o, "offset", "%" PRId64, e->r->offset);
    json_put(o, "bytes", "%" PRId64, e->r->bytes);
    if (param_divided(e->p)) {
        rank = view_of(e->p, size, &axis);
        start[axis] = e->at;
        size[axis] = param_many(e->p, part_of(model, e));
        json_put_integers(o, "start", start, rank);
        json_put_integers(o, "size", size, rank);
    }
    json_put_text(o, "sha256", e->r->sha256);
    json_end(o, "}");
}

static PpStatus put_tensors(JsonOut *o, const Publication *p)
{
    int n = 0;
    Entry *e = NULL;
    POOL(room);
    TRY(entries(p, &room, &e, &n));
    json_begin(o, "tensors", '{');
    for (int i = 0; i < n; i++) {
        if (!i || strcmp(e[i - 1].name, e[i].name) != 0)
            begin_tensor(o, &e[i]);
        put_piece(o, p->model, &e[i]);
        if (i + 1 == n || strcmp(e[i + 1].name, e[i].name) != 0)
            json_end(o, "]}");
    }
    json_end(o, "}");
    return PP_OK;
}

static void put_files(JsonOut *o, const Publication *p)
{
    char name[40];
    json_begin(o, "files", '{');
    for (const Record *r = p->record; r < p->record + p->n; r++) {
        if (r->param >= 0)
            continue;
        record_file(r, name, sizeof name);
        json_begin(o, name, '{');
        json_put(o, "bytes", "%" PRId64, r->bytes);
        json_put(o, "header", "%" PRId64, r->offset);
        json_put_text(o, "sha256", r->sha256);
        json_end(o, "}");
    }
    json_end(o, "}");
}

/* Of the run, and of ppsplit's as "made.NAME". */
static PpStatus put_options(JsonOut *j, const PpPlan *model, const Options *o)
{
    json_begin(j, "options", '{');
    TRY(options_put_numbers(o, j));
    for (int i = 0; i < model->program.n_made; i++) {
        char made[80];
        snprintf(made, sizeof made, "made.%s", model->program.made[i].option);
        json_put_text(j, made, model->program.made[i].value);
    }
    json_end(j, "}");
    return PP_OK;
}

/* Of the files that the run is trained on. */
static void put_data(JsonOut *o, const Data *d)
{
    char key[1000], digest[SHA256_TEXT];
    json_begin(o, "data", '{');
    for (int i = 0; i < d->model->n_input; i++)
        for (int k = 0; data_digest_key(d, i, k, key, sizeof key); k++)
            json_put_text(o, key, d->input[i].file[k].sha256);
    for (int v = 0; v < d->model->n_length; v++) {
        lengths_digest(d, v, key, sizeof key, digest);
        json_put_text(o, key, digest);
    }
    json_end(o, "}");
}

/* All but its checksum and its end */
static PpStatus put_index(FILE *f, const Publication *p)
{
    JsonOut o = {.f = f, .lines = 2};
    json_begin(&o, NULL, '{');
    json_put_text(&o, "format", "ppsplit checkpoint 2");
    json_put_text(&o, "model", p->model->model);
    json_put(&o, "model_hash", "\"%016" PRIx64 "\"", p->model->program.model_hash);
    json_put(&o, "step", "%" PRId64, p->moment.step);
    json_begin(&o, "state", '{');
    for (int i = 0; i < p->moment.n; i++)
        json_put_text(&o, p->moment.fact[i].key, p->moment.fact[i].value);
    json_end(&o, "}");
    TRY(put_options(&o, p->model, p->opt));
    put_data(&o, p->data);
    put_files(&o, p);
    return put_tensors(&o, p);
}

static PpStatus write_index(const Publication *p, const char *folder)
{
    char path[PATH_MAX + 16], sha[SHA256_TEXT];
    Memory text;
    FileWhole out;
    snprintf(path, sizeof path, "%s/index.json", folder);
    FILE *m = memory_open(&text);
    PpStatus s = m ? put_index(m, p) : pp_no_memory();
    if (memory_close(m, &text) && s == PP_OK)
        s = pp_no_memory();
    if (s == PP_OK && file_begin(&out, path)) {
        sha256_of(text.at, text.n, sha);
        fwrite(text.at, 1, text.n, out.f);
        fprintf(out.f, ",\n  \"index_sha256\": \"%s\"\n}\n", sha);
    }
    free(text.at);
    TRY(s);
    return !out.f || file_end(&out) ? checkpoint_failed(p->opt, p->moment.step, out.why) : PP_OK;
}

PpStatus checkpoint_publish(const Publication *p)
{
    const Options *o = p->opt;
    const int64_t step = p->moment.step;
    char tmp[PATH_MAX], final[PATH_MAX];
    TRY(checkpoint_folder(tmp, sizeof tmp, o, step, ".tmp"));
    TRY(checkpoint_folder(final, sizeof final, o, step, ""));
    TRY(write_index(p, tmp));
    if (folder_sync(tmp))
        return checkpoint_failed(o, step, strerror(errno));
    TRY(remove_checkpoint(o, step)); /* a damaged one: a whole one would have been resumed from */
    if (rename(tmp, final) || folder_sync(o->save.checkpoint))
        return checkpoint_failed(o, step, strerror(errno));
    return keep_newest(o);
}

/*
 * grads.c - --dump-grads: the gradients of the first step, a file for each stage of the rank, under
 * the model's parameter names.  What members divide (PpParam.axis) member 0 puts together, one
 * parameter after the other: the others send it their parts.  The files of all ranks appear whole
 * or not at all: they are written under other names, which they lose when all ranks have written
 * theirs.
 */
#include "files.h"

#include "base/file/safetensors.h"
#include "core/number.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* tmp: the name until all ranks have written theirs */
static PpStatus name_of(char *path, size_t n, const char *folder, const StagePlan *rs,
                        const char *tmp)
{
    return snprintf(path, n, "%s/stage%d.safetensors%s", folder, rs->st->index, tmp) < (int)n
               ? PP_OK
               : pp_fail(PP_ERR_IO, "%s: name too long", folder);
}

/* One stage's on this rank. */
typedef struct {
    Pool *pool;
    const Plan *plan;
    const StagePlan *rs;
    const char *folder;
    HostCopy *h;
    Group *members;
    double scale;
    char *whole, *part; /* room for a gradient that is put together or divided, for a part of one */
} Dump;

/* Up to where the parameters from k on are parts of one. */
static int parts_end(const StagePlan *rs, int k)
{
    const RankParam *q = rs->rp;
    int end = k + 1;
    while (param_in_parts(q[k].p) && end < rs->st->n_param && param_in_parts(q[end].p) &&
           !strcmp(q[k].p->t.name, q[end].p->t.name))
        end++;
    return end;
}

static PpStatus make_room(Dump *d)
{
    int64_t whole = 0, part = 0;
    for (int k = 0; k < d->rs->st->n_param; k++) {
        const PpParam *p = d->rs->rp[k].p;
        int64_t bytes = d->rs->rp[k].update ? param_bytes(p) : 0;
        if (param_in_parts(p) && p->t.bytes > part)
            part = p->t.bytes;
        if ((param_in_parts(p) || d->scale != 1) && bytes > whole)
            whole = bytes;
    }
    TRY(pp_take(d->pool, &d->whole, whole, 1));
    return pp_take(d->pool, &d->part, part, 1);
}

/* The whole gradient of which the parameters [k, end) are this member's parts; nth: of those that
 * they may be. */
static PpStatus put_together(Dump *d, int k, int end, int nth)
{
    const Box all = box_whole(param_bytes(d->rs->rp[k].p));
    for (int i = k; i < end; i++)
        for (int m = 0; m < plan_members(d->plan->model); m++) {
            const RankParam *q = &d->rs->rp[i];
            const Box box = param_box(d->plan->model, q->p, m);
            if (plan_is_twin(d->plan->model, q->p, m) ||
                (q->p->each.n && param_each(d->plan->model, q->p, m) != nth))
                continue;
            if (m && box.bytes)
                TRY(group_recv(d->members, m, d->part, box.bytes));
            box_copy(&all, d->whole, &box, m ? d->part : host_copy(d->h, q->grad, box.bytes));
        }
    return PP_OK;
}

static PpStatus write_gradient(Dump *d, StWriter *w, int k, int end, int nth)
{
    const PpParam *p = d->rs->rp[k].p;
    const int64_t bytes = param_bytes(p);
    const void *from = d->whole;
    if (param_in_parts(p))
        TRY(put_together(d, k, end, nth));
    else
        from = host_copy(d->h, d->rs->rp[k].grad, bytes);
    for (int64_t i = 0; d->scale != 1 && i < bytes / st_dtype_size(p->t.dtype); i++)
        number_put(d->whole, i, p->t.dtype, number_at(from, i, p->t.dtype) / d->scale);
    from = d->scale != 1 ? d->whole : from;
    stw_write(w, from, bytes);
    return PP_OK;
}

static PpStatus failed(const char *folder, const StagePlan *rs)
{
    return pp_fail(PP_ERR_IO, "--dump-grads %s: stage%d.safetensors: %s", folder, rs->st->index,
                   strerror(errno));
}

static PpStatus begin_file(Dump *d, StWriter *w, const char *tmp)
{
    int64_t dim[PP_MAX_RANK];
    stw_init(w);
    stw_meta(w, "format", "pt");
    for (int k = 0; k < d->rs->st->n_param; k = parts_end(d->rs, k)) {
        const RankParam *q = &d->rs->rp[k];
        param_shape(q->p, dim);
        for (int i = 0; q->update && i < param_names(q->p); i++)
            stw_declare(w, param_nth(q->p, i), q->p->t.dtype, q->p->t.rank, dim);
    }
    return stw_begin(w, tmp) ? failed(d->folder, d->rs) : PP_OK;
}

/* s: what was before */
static PpStatus write_file(Dump *d, const char *tmp, PpStatus s)
{
    StWriter w;
    s = s == PP_OK ? make_room(d) : s;
    int open = s == PP_OK && (s = begin_file(d, &w, tmp)) == PP_OK;
    if (plan_members(d->plan->model) > 1)
        s = group_agree(d->members, s);
    for (int k = 0, end; k < d->rs->st->n_param && s == PP_OK; k = end) {
        end = parts_end(d->rs, k);
        for (int i = 0; d->rs->rp[k].update && i < param_names(d->rs->rp[k].p) && s == PP_OK; i++)
            s = write_gradient(d, &w, k, end, i);
    }
    if (!open)
        return s;
    PpStatus ended = stw_end(&w, 0) && s == PP_OK ? failed(d->folder, d->rs) : PP_OK;
    TRY(s);
    TRY(device_check(d->h->dev, d->plan->ask.rank, "copying gradients"));
    return ended;
}

/* What put_together() of member 0 waits for. */
static PpStatus send_parts(const Dump *d)
{
    TRY(group_agree(d->members, PP_OK));
    for (int k = 0; k < d->rs->st->n_param; k++) {
        const RankParam *q = &d->rs->rp[k];
        if (q->update && param_in_parts(q->p) && q->p->t.bytes &&
            !plan_is_twin(d->plan->model, q->p, d->plan->ask.member))
            TRY(group_send(d->members, 0, host_copy(d->h, q->grad, q->p->t.bytes), q->p->t.bytes));
    }
    return device_check(d->h->dev, d->plan->ask.rank, "copying gradients");
}

PpStatus grads_write(const Plan *p, HostCopy *h, Group *members, const char *folder, double scale)
{
    char tmp[PATH_MAX];
    PpStatus s = p->ask.member ? PP_OK : folder_make("--dump-grads", folder);
    for (int l = 0; l < p->n_stage; l++) {
        POOL(pool);
        Dump d = {&pool, p, &p->stage[l], folder, h, members, scale, NULL, NULL};
        if (s == PP_OK)
            s = name_of(tmp, sizeof tmp, folder, d.rs, "");
        if (s == PP_OK && file_was_read(tmp))
            s = pp_fail(PP_ERR_MODEL, "--dump-grads would overwrite %s, which the run reads", tmp);
        if (s == PP_OK)
            s = name_of(tmp, sizeof tmp, folder, d.rs, ".tmp");
        TRY(s = p->ask.member ? send_parts(&d) : write_file(&d, tmp, s));
    }
    return s;
}

PpStatus grads_settle(const Plan *p, const char *folder, PpStatus written)
{
    char tmp[PATH_MAX], path[PATH_MAX];
    for (int l = 0; l < p->n_stage; l++) {
        if (name_of(tmp, sizeof tmp, folder, &p->stage[l], ".tmp") ||
            name_of(path, sizeof path, folder, &p->stage[l], ""))
            return PP_ERR_IO;
        if (written != PP_OK)
            unlink(tmp);
        else if (rename(tmp, path))
            return failed(folder, &p->stage[l]);
    }
    if (written != PP_OK)
        rmdir(folder); /* where nothing is in it */
    return PP_OK;
}

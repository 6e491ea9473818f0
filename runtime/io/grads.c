/*
 * grads.c - --dump-grads: the gradients of the first step, a file for each stage of the rank, under
 * the model's parameter names.  A file appears whole or not at all.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "files.h"

#include "base/file/safetensors.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

static PpStatus grads_file(HostCopy *h, int rank, const StagePlan *rs, const char *path)
{
    char err[ST_ERR], tmp[PATH_MAX];
    StWriter w;
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return pp_fail(PP_ERR_IO, "%s: name too long", path);
    stw_init(&w);
    stw_meta(&w, "format", "pt");
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->rp[k].update)
            stw_declare(&w, rs->rp[k].p->t.name, rs->rp[k].p->t.dtype, rs->rp[k].p->t.rank,
                        rs->rp[k].p->t.dim);
    if (stw_begin(&w, tmp, err, sizeof err))
        return pp_fail(PP_ERR_IO, "--dump-grads: %s", err);
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->rp[k].update)
            stw_write(&w, host_copy(h, rs->rp[k].grad, rs->rp[k].p->t.bytes), rs->rp[k].p->t.bytes);
    int bad = stw_end(&w, 0, err, sizeof err);
    TRY(device_check(h->dev, rank, "copying gradients"));
    if (bad || rename(tmp, path))
        return pp_fail(PP_ERR_IO, "--dump-grads %s: %s", path, strerror(errno));
    return PP_OK;
}

PpStatus grads_dump(const Plan *p, HostCopy *h, const char *folder)
{
    char path[PATH_MAX];
    TRY(folder_make(folder));
    for (int l = 0; l < p->n_stage; l++) {
        if (snprintf(path, sizeof path, "%s/stage%d.safetensors", folder, p->stage[l].st->index) >=
            (int)sizeof path)
            return pp_fail(PP_ERR_IO, "%s: name too long", folder);
        TRY(grads_file(h, p->ask.rank, &p->stage[l], path));
    }
    return PP_OK;
}

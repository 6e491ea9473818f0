/*
 * grads.c - --dump-grads: the gradients of the first step, a file for each stage of the rank, under
 * the model's parameter names.  The files of all ranks appear whole or not at all: they are written
 * under other names, which they lose when all ranks have written theirs.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "files.h"

#include "base/file/safetensors.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* `n` bytes of gradients divided by the scale, to `to`. */
static void divide(void *to, const void *from, int64_t n, int dtype, double scale)
{
    if (dtype == PP_F64)
        for (int64_t i = 0; i < n / 8; i++)
            ((double *)to)[i] = ((const double *)from)[i] / scale;
    else
        for (int64_t i = 0; i < n / 4; i++)
            ((float *)to)[i] = ((const float *)from)[i] / (float)scale;
}

static int write_gradient(StWriter *w, const void *from, const PpTensor *t, double scale)
{
    if (scale == 1) {
        stw_write(w, from, t->bytes);
        return 1;
    }
    void *some = malloc((size_t)t->bytes + 1);
    if (some) {
        divide(some, from, t->bytes, t->dtype, scale);
        stw_write(w, some, t->bytes);
    }
    free(some);
    return some != NULL;
}

/* tmp: the name until all ranks have written theirs */
static PpStatus name_of(char *path, size_t n, const char *folder, const StagePlan *rs,
                        const char *tmp)
{
    return snprintf(path, n, "%s/stage%d.safetensors%s", folder, rs->st->index, tmp) < (int)n
               ? PP_OK
               : pp_fail(PP_ERR_IO, "%s: name too long", folder);
}

static PpStatus grads_file(HostCopy *h, int rank, const StagePlan *rs, const char *tmp,
                           double scale)
{
    int memory = 1;
    char err[ST_ERR];
    StWriter w;
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
            memory &= write_gradient(&w, host_copy(h, rs->rp[k].grad, rs->rp[k].p->t.bytes),
                                     &rs->rp[k].p->t, scale);
    int bad = stw_end(&w, 0, err, sizeof err);
    TRY(device_check(h->dev, rank, "copying gradients"));
    if (!memory)
        return pp_no_memory();
    return bad ? pp_fail(PP_ERR_IO, "--dump-grads %s: %s", tmp, err) : PP_OK;
}

PpStatus grads_write(const Plan *p, HostCopy *h, const char *folder, double scale)
{
    char tmp[PATH_MAX];
    TRY(folder_make(folder));
    for (int l = 0; l < p->n_stage; l++) {
        TRY(name_of(tmp, sizeof tmp, folder, &p->stage[l], ".tmp"));
        TRY(grads_file(h, p->ask.rank, &p->stage[l], tmp, scale));
    }
    return PP_OK;
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
            return pp_fail(PP_ERR_IO, "--dump-grads %s: %s", path, strerror(errno));
    }
    if (written != PP_OK)
        rmdir(folder);                                  /* where nothing is in it */
    return PP_OK;
}

/*
 * params.c - in: params/stageN.safetensors, or stageN.link.json that points into the model's own
 * files; out: the parameters, statistics and long constants of this rank's stages, in place.  A
 * rank reads the files of its own stages only. Names, dtypes and shapes must be the plan's exactly;
 * bytes from a checkpoint have its manifest's checksums.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "files.h"

#include "base/file/manifest.h"
#include "base/file/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    StFile f;
    int link;
    char *manifest; /* of the checkpoint that it is part of; NULL: of none */
    char path[PATH_MAX];
} Source;

static void close_source(Source *s)
{
    st_close(&s->f);
    free(s->manifest);
    s->manifest = NULL;
}

static PpStatus open_source(Source *s, const char *folder, int stage)
{
    char err[ST_ERR];
    struct stat sb;
    memset(s, 0, sizeof *s);
    int n = snprintf(s->path, sizeof s->path, "%s/stage%d.safetensors", folder, stage);
    if (n >= (int)sizeof s->path - 8)
        return pp_fail(PP_ERR_IO, "%s: name too long", folder);
    s->link = stat(s->path, &sb) != 0;
    if (s->link) {
        char with_link[PATH_MAX + 32];
        snprintf(with_link, sizeof with_link, "%s/stage%d.link.json", folder, stage);
        if (stat(with_link, &sb))
            return pp_fail(PP_ERR_IO, "%s: %s", s->path, strerror(errno));
        memcpy(s->path, with_link,
               (size_t)n + 1 < sizeof s->path ? strlen(with_link) + 1 : sizeof s->path);
    }
    if (s->link ? st_open_link(&s->f, s->path, err, sizeof err)
                : st_open(&s->f, s->path, err, sizeof err))
        return pp_fail(PP_ERR_IO, "%s", err);
    char manifest[PATH_MAX + 32];
    snprintf(manifest, sizeof manifest, "%s/manifest.json", folder);
    s->manifest = manifest_read(manifest);
    if (!s->manifest && errno != ENOENT) {
        st_close(&s->f);
        return pp_fail(PP_ERR_IO, "%s: %s", manifest, strerror(errno));
    }
    return PP_OK;
}

static void transpose(char *to, const char *from, int64_t rows, int64_t columns, int64_t size)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            memcpy(to + (i * columns + j) * size, from + (j * rows + i) * size, (size_t)size);
}

/* Bytes of a linked tensor, straight into its place (through a copy when it is stored transposed).
 */
static PpStatus read_linked(const Source *s, const StTensor *t, char *to)
{
    char path[2 * PATH_MAX];
    const char *slash = strrchr(s->path, '/');
    if (t->file[0] == '/')
        snprintf(path, sizeof path, "%s", t->file);
    else
        snprintf(path, sizeof path, "%.*s/%s", slash ? (int)(slash - s->path) : 1,
                 slash ? s->path : ".", t->file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pp_fail(PP_ERR_IO, "%s, which holds '%s': %s", path, t->name, strerror(errno));
    char *room = t->transposed ? malloc((size_t)t->bytes + 1) : to;
    int64_t at = 0;
    while (room && at < t->bytes) {
        ssize_t n = pread(fd, room + at, (size_t)(t->bytes - at), t->offset + at);
        if (n <= 0)
            break;
        at += n;
    }
    close(fd);
    if (room && at == t->bytes && t->transposed)
        transpose(to, room, t->dim[0], t->dim[1], st_dtype_size(t->dtype));
    if (t->transposed)
        free(room);
    return room && at == t->bytes
               ? PP_OK
               : pp_fail(PP_ERR_IO, "%s, which holds '%s': cut short", path, t->name);
}

static PpStatus load(const Source *s, const PpTensor *want, char *to)
{
    const StTensor *t = st_find(&s->f, want->name);
    if (!t)
        return pp_fail(PP_ERR_MODEL, "%s: no tensor '%s'", s->path, want->name);
    int same = t->dtype == want->dtype && t->rank == want->rank;
    for (int i = 0; i < t->rank && same; i++)
        same = t->dim[i] == want->dim[i];
    if (!same || t->bytes != want->bytes || (t->transposed && t->rank != 2))
        return pp_fail(PP_ERR_MODEL, "%s: '%s' has another dtype or shape than in the plan",
                       s->path, want->name);
    if (s->link)
        return read_linked(s, t, to);
    int known = s->manifest ? manifest_confirms(s->manifest, want->name, t->data, t->bytes) : 1;
    if (known <= 0)
        return known < 0
                   ? pp_no_memory()
                   : pp_fail(PP_ERR_MODEL,
                             "%s: damaged: the bytes of '%s' do not have the manifest's checksum",
                             s->path, want->name);
    memcpy(to, t->data, (size_t)t->bytes);
    return PP_OK;
}

/* A tensor to its place, through the host where that is on a device. */
static PpStatus place(HostCopy *h, const Source *s, const PpTensor *want, char *to)
{
    if (!h->room)
        return load(s, want, to);
    char *room = malloc((size_t)want->bytes + 1);
    PpStatus status = room ? load(s, want, room) : pp_no_memory();
    if (status == PP_OK)
        host_upload(h, to, room, want->bytes);
    free(room);
    return status;
}

static PpStatus load_stage(HostCopy *h, const StagePlan *rs, const char *own, const char *given)
{
    const PpStage *st = rs->st;
    Source s = {0};
    PpStatus status = PP_OK;
    int wanted = 0;
    for (int k = 0; k < st->n_param; k++)
        wanted |= st->param[k].use != PP_TRANSMIT;
    int constants = 0; /* in a file */
    for (int k = 0; k < st->n_const; k++)
        constants |= !st->constants[k].data;
    if (wanted || (constants && !given)) {
        status = open_source(&s, given ? given : own, st->index);
        for (int k = 0; k < st->n_param && status == PP_OK; k++)
            if (st->param[k].use != PP_TRANSMIT)
                status = place(h, &s, &st->param[k].t, rs->param + st->param[k].offset);
    }
    /* Constants are never trained: they are where they always were */
    if (given && constants && status == PP_OK) {
        close_source(&s);
        status = open_source(&s, own, st->index);
    }
    for (int k = 0; k < st->n_const && status == PP_OK; k++) {
        const PpConst *c = &st->constants[k];
        if (c->data)
            host_upload(h, rs->constants + c->offset, c->data, c->t.bytes);
        else
            status = place(h, &s, &c->t, rs->constants + c->offset);
    }
    close_source(&s);
    return status;
}

PpStatus params_load(const Plan *p, HostCopy *h, const char *own, const char *given)
{
    for (int l = 0; l < p->n_stage; l++)
        TRY(load_stage(h, &p->stage[l], own, given));
    return device_check(h->dev, p->ask.rank, "loading its parameters");
}

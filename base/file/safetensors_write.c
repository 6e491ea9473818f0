/*
 * safetensors_write.c - a .safetensors file: a header, then the bytes of each tensor as the caller
 * hands them over.
 */
#include "safetensors.h"

#include "replace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void stw_init(StWriter *w) { memset(w, 0, sizeof *w); }

static char *copy_text(StWriter *w, const char *s)
{
    char *c = pool_text(&w->pool, s, strlen(s));
    if (!c)
        w->failed = ENOMEM;
    return c;
}

void stw_meta(StWriter *w, const char *key, const char *value)
{
    StMeta *m = pool_added(&w->pool, &w->meta, &w->n_meta, sizeof *m);
    if (m)
        *m = (StMeta){copy_text(w, key), copy_text(w, value)};
    else
        w->failed = ENOMEM;
}

void stw_declare(StWriter *w, const char *name, int dtype, int rank, const int64_t *dim)
{
    StTensor *t = pool_added(&w->pool, &w->tensor, &w->n, sizeof *t);
    if (!t) {
        w->failed = ENOMEM;
        return;
    }
    *t = (StTensor){.name = copy_text(w, name), .dtype = dtype, .rank = rank, .offset = w->total};
    t->bytes = st_dtype_size(dtype);
    for (int i = 0; i < rank && i < ST_MAX_RANK; i++) {
        t->dim[i] = dim[i];
        t->bytes *= dim[i];
    }
    w->total += t->bytes;
}

int stw_header(const StWriter *w, size_t align, Memory *to)
{
    *to = (Memory){0};
    FILE *f = w->failed ? NULL : memory_open(to);
    JsonOut o = {.f = f, .compact = 1};
    if (!f)
        return -1;
    fwrite((char[8]){0}, 1, 8, f); /* the length of what follows */
    json_begin(&o, NULL, '{');
    if (w->n_meta)
        json_begin(&o, "__metadata__", '{');
    for (int i = 0; i < w->n_meta; i++)
        json_put_text(&o, w->meta[i].key, w->meta[i].value);
    if (w->n_meta)
        json_end(&o, "}");
    for (int i = 0; i < w->n; i++) {
        const StTensor *t = &w->tensor[i];
        json_begin(&o, t->name, '{');
        json_put_text(&o, "dtype", st_dtype_name(t->dtype));
        json_put_integers(&o, "shape", t->dim, t->rank);
        json_put_integers(&o, "data_offsets", (int64_t[]){t->offset, t->offset + t->bytes}, 2);
        json_end(&o, "}");
    }
    json_end(&o, "}");
    while (!fflush(f) && to->n % align)
        putc(' ', f);
    if (memory_close(f, to))
        return -1;
    for (int i = 0; i < 8; i++)
        to->at[i] = (char)((uint64_t)(to->n - 8) >> (8 * i));
    return 0;
}

int stw_begin(StWriter *w, const char *path)
{
    enum { ALIGN = 64 };
    Memory header;
    errno = ENOMEM;
    w->f = stw_header(w, ALIGN, &header) ? NULL : file_new(path);
    if (w->f && fwrite(header.at, 1, header.n, w->f) != header.n)
        w->failed = errno ? errno : EIO;
    if (w->f)
        sha256_of(header.at, header.n, w->header_sha256);
    w->header = (int64_t)header.n;
    free(header.at);
    if (w->f)
        return 0;
    const int e = errno;
    stw_abandon(w);
    errno = e;
    return -1;
}

void stw_write(StWriter *w, const void *data, int64_t bytes)
{
    if (!w->failed && file_put(data, (size_t)bytes, w->f) != (size_t)bytes)
        w->failed = errno ? errno : EIO;
    w->written += bytes;
}

void stw_abandon(StWriter *w)
{
    if (w->f)
        fclose(w->f);
    pool_free(&w->pool);
    memset(w, 0, sizeof *w);
}

int stw_end(StWriter *w, int sync)
{
    int e = w->failed;
    if (!e && w->written != w->total)
        e = EINVAL;
    if (!e && (fflush(w->f) || (sync && fsync(fileno(w->f)))))
        e = errno;
    if (fclose(w->f) && !e)
        e = errno;
    w->f = NULL;
    stw_abandon(w);
    errno = e;
    return e ? -1 : 0;
}

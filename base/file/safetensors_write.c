/*
 * safetensors_write.c - a .safetensors file: a header, then the bytes of each tensor as the caller
 * hands them over.
 */
#include "safetensors.h"

#include "json.h"
#include "replace.h"

#include <errno.h>
#include <inttypes.h>
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

static void write_header(StWriter *w, FILE *f)
{
    const char *comma = "";
    putc('{', f);
    if (w->n_meta) {
        fputs("\"__metadata__\":{", f);
        for (int i = 0; i < w->n_meta; i++) {
            fputs(i ? "," : "", f);
            json_write_string(f, w->meta[i].key);
            putc(':', f);
            json_write_string(f, w->meta[i].value);
        }
        putc('}', f);
        comma = ",";
    }
    for (int i = 0; i < w->n; i++, comma = ",") {
        const StTensor *t = &w->tensor[i];
        fputs(comma, f);
        json_write_string(f, t->name);
        fprintf(f, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_name(t->dtype));
        for (int d = 0; d < t->rank; d++)
            fprintf(f, "%s%" PRId64, d ? "," : "", t->dim[d]);
        fprintf(f, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", t->offset,
                t->offset + t->bytes);
    }
    putc('}', f);
}

int stw_begin(StWriter *w, const char *path, char *err, size_t nerr)
{
    Memory header;
    FILE *m = w->failed ? NULL : memory_open(&header);
    if (!m) {
        stw_abandon(w);
        return st_fail(err, nerr, path, "out of memory");
    }
    write_header(w, m);
    /* the data start at a multiple of 64 bytes */
    if (!fflush(m) && (header.n + 8) % 64)
        fprintf(m, "%*s", (int)(64 - (header.n + 8) % 64), "");
    int bad = memory_close(m, &header);
    const size_t n = header.n;
    char *text = header.at;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)n >> (8 * i));
    w->f = bad ? NULL : file_new(path);
    if (!w->f) {
        int e = errno;
        free(text);
        stw_abandon(w);
        return st_fail(err, nerr, path, bad ? "out of memory" : strerror(e));
    }
    if (fwrite(length, 1, 8, w->f) != 8 || fwrite(text, 1, n, w->f) != n)
        w->failed = errno ? errno : EIO;
    Sha256 sha;
    sha256_start(&sha);
    sha256_add(&sha, length, 8);
    sha256_add(&sha, text, n);
    sha256_end(&sha, w->header_sha256);
    w->header = 8 + (int64_t)n;
    free(text);
    return 0;
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

int stw_end(StWriter *w, int sync, char *err, size_t nerr)
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
    if (!e)
        return 0;
    snprintf(err, nerr, "cannot write tensors: %s", strerror(e));
    return -1;
}

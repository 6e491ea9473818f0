/*
 * safetensors.c - in: a .safetensors file (or our link index); out: its tensors, as a view of the
 * mapped file.
 *
 * The header is JSON from an untrusted file.  Everything is checked before a
 * byte is used: lengths, products, ranges, that the tensors tile the data without holes or
 * overlaps, that no name occurs twice.
 */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_MAX = 100 << 20 }; /* the format's own limit */

static const struct {
    const char *name; /* NULL: the format has no such type */
    int dtype, size;
} dtypes[] = {
#define DTYPE(name, number, text, bits, kind, stored, field, held, safetensors, npy, code)        \
    {safetensors, number, bits / 8},
#include "dtype.def"
#undef DTYPE
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

int64_t st_dtype_size(int dtype)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].name && dtypes[i].dtype == dtype)
            return dtypes[i].size;
    return 0;
}

const char *st_dtype_name(int dtype)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

/* ---- Reading ---- */

int st_read_dtype(Json *j, int *dtype)
{
    const char *d = json_text(j);
    for (int i = 0; d && i < N_DTYPES; i++)
        if (dtypes[i].name && !strcmp(d, dtypes[i].name))
            *dtype = dtypes[i].dtype;
    if (d && !*dtype)
        json_bad(j, "unknown dtype '%.40s'", d);
    return j->bad ? -1 : 0;
}

int st_read_bytes(Json *j, const char *name, int dtype, int rank, const int64_t *dim,
                  int64_t *bytes)
{
    *bytes = st_dtype_size(dtype);
    if (!*bytes)
        return json_bad(j, "tensor '%.80s' has no dtype", name);
    for (int i = 0; i < rank; i++)
        if (__builtin_mul_overflow(*bytes, dim[i], bytes))
            return json_bad(j, "tensor '%.80s' is too large", name);
    return 0;
}

/* A header as it is read. */
typedef struct {
    StFile *f;
    int link;
    int64_t data_bytes, sum; /* behind the header; of the tensors so far */
    int64_t offsets[2];
    int n_offsets, has_bytes; /* of the tensor that is being read */
} Header;

static int tensor_field(void *of, Json *j, const char *key)
{
    Header *h = of;
    StTensor *t = &h->f->tensor[h->f->n - 1];
    if (!strcmp(key, "dtype"))
        return st_read_dtype(j, &t->dtype);
    if (!strcmp(key, "shape"))
        return json_integers(j, t->dim, ST_MAX_RANK, &t->rank);
    if (!h->link && !strcmp(key, "data_offsets"))
        return json_integers(j, h->offsets, 2, &h->n_offsets);
    if (h->link && !strcmp(key, "file"))
        return (t->file = json_text(j)) ? 0 : -1;
    if (h->link && !strcmp(key, "offset"))
        return json_int(j, &t->offset);
    if (h->link && !strcmp(key, "bytes"))
        return h->has_bytes = 1, json_int(j, &t->bytes);
    if (h->link && !strcmp(key, "transposed"))
        return json_bool(j, &t->transposed);
    return json_bad(j, "unknown key '%.40s'", key);
}

static int read_tensor(Header *h, Json *j, StTensor *t)
{
    h->n_offsets = h->has_bytes = 0;
    int64_t bytes;
    if (json_members(j, tensor_field, h) ||
        st_read_bytes(j, t->name, t->dtype, t->rank, t->dim, &bytes))
        return -1;
    const int64_t begin = h->offsets[0], end = h->offsets[1];
    if (h->link) {
        if (!t->file || !h->has_bytes || t->bytes != bytes)
            return json_bad(j, "tensor '%.80s': file, offset and %" PRId64 " bytes expected",
                            t->name, bytes);
        return 0;
    }
    if (h->n_offsets != 2 || begin > end || end > h->data_bytes || end - begin != bytes)
        return json_bad(j, "tensor '%.80s': data_offsets do not fit its %" PRId64 " bytes", t->name,
                        bytes);
    t->bytes = bytes;
    t->offset = begin;
    h->sum += bytes;
    return 0;
}

/* Metadata tells nothing that is needed here: it is looked at, texts for texts, and forgotten. */
static int meta_field(void *of, Json *j, const char *key)
{
    (void)of, (void)key;
    return json_text(j) ? 0 : -1;
}

static int top_field(void *of, Json *j, const char *key)
{
    Header *h = of;
    StFile *f = h->f;
    if (!strcmp(key, "__metadata__"))
        return json_members(j, meta_field, h);
    StTensor *t = pool_added(&f->pool, &f->tensor, &f->n, sizeof *t);
    if (!t)
        return json_bad(j, "out of memory");
    t->name = key;
    return read_tensor(h, j, t);
}

static int read_header(Header *h, Json *j)
{
    if (json_members(j, top_field, h))
        return -1;
    json_space(j);
    return j->p == j->end ? 0 : json_bad(j, "text after the end");
}

static int by_name(const void *a, const void *b, void *tensors)
{
    const StTensor *t = tensors;
    return strcmp(t[*(const int *)a].name, t[*(const int *)b].name);
}

static int by_offset(const void *a, const void *b, void *tensors)
{
    const StTensor *t = tensors;
    const StTensor *x = &t[*(const int *)a], *y = &t[*(const int *)b];
    return x->offset != y->offset ? (x->offset > y->offset) - (x->offset < y->offset)
                                  : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Sorted by name (for st_find; twins are neighbours), and once by offset to see that the tensors
 * tile the data. */
static int index_names(Json *j, StFile *f, int link)
{
    f->by_name = pool_take(&f->pool, f->n, sizeof *f->by_name);
    if (!f->by_name)
        return json_bad(j, "out of memory");
    for (int i = 0; i < f->n; i++)
        f->by_name[i] = i;
    if (!link) {
        qsort_r(f->by_name, (size_t)f->n, sizeof *f->by_name, by_offset, f->tensor);
        int64_t at = 0;
        for (int i = 0; i < f->n; i++) {
            const StTensor *t = &f->tensor[f->by_name[i]];
            if (t->offset != at)
                return json_bad(j, "tensor '%.80s' leaves a hole or overlaps another", t->name);
            at += t->bytes;
        }
    }
    qsort_r(f->by_name, (size_t)f->n, sizeof *f->by_name, by_name, f->tensor);
    for (int i = 1; i < f->n; i++)
        if (!strcmp(f->tensor[f->by_name[i - 1]].name, f->tensor[f->by_name[i]].name))
            return json_bad(j, "two tensors named '%.80s'", f->tensor[f->by_name[i]].name);
    return 0;
}

int st_fail(char *err, size_t nerr, const char *path, const char *what)
{
    snprintf(err, nerr, "%s: %s", path, what);
    return -1;
}

static int open_any(StFile *f, const char *path, int link, char *err, size_t nerr)
{
    char text[ST_ERR], why[FILE_WHY];
    memset(f, 0, sizeof *f);
    f->map = file_map(path, why);
    if (!f->map)
        return st_fail(err, nerr, path, why);
    const char *base = f->map->at;
    const uint64_t all = f->map->bytes;
    uint64_t n = all, lead = 0;
    const char *bad = NULL;
    if (!link && all >= 8)
        memcpy(&n, base, lead = sizeof n);
    if (!link && all < 8)
        bad = "shorter than a safetensors header";
    else if (n > all - lead || n > HEADER_MAX)
        bad = "header longer than the file";
    n = bad ? 0 : n;
    Json j = {base + lead, base + lead + n, base + lead, text, sizeof text, 0, 0,
              &f->pool};
    Header h = {.f = f, .link = link, .data_bytes = (int64_t)(all - lead - n)};
    if (!bad && (read_header(&h, &j) || index_names(&j, f, link)))
        bad = text;
    else if (!bad && !link && h.sum != h.data_bytes)
        bad = "length of the file does not match its header";
    for (int i = 0; i < f->n && !link && !bad; i++)
        f->tensor[i].data = base + lead + n + f->tensor[i].offset;
    if (!bad)
        return 0;
    st_close(f);
    return st_fail(err, nerr, path, bad);
}

int st_open(StFile *f, const char *path, char *err, size_t nerr)
{
    return open_any(f, path, 0, err, nerr);
}

int st_open_link(StFile *f, const char *path, char *err, size_t nerr)
{
    return open_any(f, path, 1, err, nerr);
}

const char *st_linked(Pool *p, const StFile *f, const StTensor *t)
{
    const char *path = f->map->path, *slash = strrchr(path, '/');
    const int folder = t->file[0] == '/' || !slash ? 0 : (int)(slash - path) + 1;
    return pool_print(p, "%.*s%s", folder, path, t->file);
}

const StTensor *st_find(const StFile *f, const char *name)
{
    int lo = 0, hi = f->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2, c = strcmp(name, f->tensor[f->by_name[mid]].name);
        if (c == 0)
            return &f->tensor[f->by_name[mid]];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

void st_close(StFile *f)
{
    pool_free(&f->pool);
    file_unmap(f->map);
    memset(f, 0, sizeof *f);
}

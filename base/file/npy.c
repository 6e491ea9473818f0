/*
 * npy.c - in: a .npy file or a TensorProto .pb; out: dtype, shape, bytes (mapped, or decoded for
 * repeated fields). And tensors written as .npy version 1.  Both formats are read strictly;
 * little-endian machines only.
 */
#include "npy.h"
#include "kind.h"
#include "memory.h"
#include "proto.h"
#include "replace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *descr; /* NULL: the format has no such type */
    int dtype, size, field; /* field: of a TensorProto, with its elements */
} kinds[] = {
#define DTYPE(name, number, text, bits, kind, stored, field, held, safetensors, npy, code)        \
    {npy, number, bits / 8, field},
#include "dtype.def"
#undef DTYPE
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int64_t dtype_size(int dtype)
{
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i].descr && kinds[i].dtype == dtype)
            return kinds[i].size;
    return 0;
}

static int field_of(int dtype)
{
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i].dtype == dtype)
            return kinds[i].field;
    return 0;
}

static int fail(NpyFile *f, const char *path, const char *what, char *err, size_t nerr)
{
    snprintf(err, nerr, "%s: %s", path, what);
    npy_close(f);
    return -1;
}

static int product(NpyFile *f)
{
    f->bytes = dtype_size(f->dtype);
    for (int i = 0; i < f->rank; i++)
        if (f->dim[i] < 0 || __builtin_mul_overflow(f->bytes, f->dim[i], &f->bytes))
            return -1;
    return f->bytes || f->rank ? 0 : -1;
}

/* ---- .npy ---- */

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t'))
        p++;
    return p;
}

/* 'text' or "text": start and length, p moved behind it. */
static int quoted(const char **p, const char *end, const char **s, size_t *n)
{
    char q = *p < end ? **p : 0;
    if (q != '\'' && q != '"')
        return -1;
    *s = ++*p;
    while (*p < end && **p != q)
        ++*p;
    if (*p == end)
        return -1;
    *n = (size_t)(*p - *s);
    ++*p;
    return 0;
}

static int npy_shape(NpyFile *f, const char **p, const char *end)
{
    if (*p == end || *(*p)++ != '(')
        return -1;
    for (;;) {
        *p = skip_space(*p, end);
        if (*p < end && **p == ')')
            return ++*p, 0;
        if (f->rank == NPY_MAX_RANK || *p == end || **p < '0' || **p > '9')
            return -1;
        int64_t v = 0;
        while (*p < end && **p >= '0' && **p <= '9')
            if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *(*p)++ - '0', &v))
                return -1;
        f->dim[f->rank++] = v;
        *p = skip_space(*p, end);
        if (*p < end && **p == ',')
            ++*p;
        else if (*p == end || **p != ')')
            return -1;
    }
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } in any order of keys. */
static const char *npy_header(NpyFile *f, const char *p, const char *end)
{
    int seen = 0, fortran = 0;
    p = skip_space(p, end);
    if (p == end || *p++ != '{')
        return "not a .npy header";
    for (;;) {
        const char *key, *d;
        size_t n, nd;
        p = skip_space(p, end);
        if (p < end && *p == '}')
            break;
        if (quoted(&p, end, &key, &n))
            return "not a .npy header";
        p = skip_space(p, end);
        if (p == end || *p++ != ':')
            return "not a .npy header";
        p = skip_space(p, end);
        if (n == 5 && !memcmp(key, "descr", 5)) {
            if (quoted(&p, end, &d, &nd))
                return "dtype is not a plain one";
            for (int i = 0; i < N_KINDS && nd == 3 && (*d == '<' || *d == '|' || *d == '='); i++)
                if (kinds[i].descr && !memcmp(d + 1, kinds[i].descr, 2))
                    f->dtype = kinds[i].dtype;
            if (!f->dtype)
                return "dtype is not a little-endian number or bool";
            seen |= 1;
        } else if (n == 13 && !memcmp(key, "fortran_order", 13)) {
            fortran = end - p >= 4 && !memcmp(p, "True", 4);
            p += fortran ? 4 : 5;
            if (p > end)
                return "not a .npy header";
            seen |= 2;
        } else if (n == 5 && !memcmp(key, "shape", 5)) {
            if (npy_shape(f, &p, end))
                return "bad shape";
            seen |= 4;
        } else {
            return "unknown key in the .npy header";
        }
        p = skip_space(p, end);
        if (p < end && *p == ',')
            p++;
    }
    if (seen != 7)
        return "incomplete .npy header";
    if (fortran && f->rank > 1)
        return "Fortran order: save it with numpy.ascontiguousarray";
    return NULL;
}

static const char *npy_parse(NpyFile *f)
{
    const char *b = f->map->at;
    size_t all = f->map->bytes, lead = b[6] == 1 ? 10 : 12,
           n = (unsigned char)b[8] | (size_t)(unsigned char)b[9] << 8;
    if (b[6] < 1 || b[6] > 3)
        return "unknown .npy version";
    if (all < lead)
        return "cut short";
    if (lead == 12)
        n |= (size_t)(unsigned char)b[10] << 16 | (size_t)(unsigned char)b[11] << 24;
    if (n > all - lead)
        return "cut short";
    const char *bad = npy_header(f, b + lead, b + lead + n);
    if (bad)
        return bad;
    if (product(f))
        return "too large";
    if ((uint64_t)f->bytes > all - lead - n)
        return "cut short: fewer bytes than its shape says";
    f->data = b + lead + n;
    return NULL;
}

/* ---- TensorProto: dims 1, data_type 2, float 4, int32 5, int64 7, name 8, raw 9, double 10,
 * uint64 11 ---- */

/* Numbers in the width of the tensor's type, of which these are the low bytes first. */
static int repeated(const PbField *e, int dtype, FILE *out)
{
    const size_t size = (size_t)dtype_size(dtype),
                 fixed = e->number == 4 ? 4 : e->number == 10 ? 8 : 0;
    for (const uint8_t *p = e->body.at; p < e->body.end;) {
        uint64_t v;
        size_t n = fixed ? fixed : pb_varint(p, e->body.end, PB_VARINT_MAX, &v);
        if (n == 0 || n > (size_t)(e->body.end - p))
            return -1;
        fwrite(fixed ? (const void *)p : &v, fixed ? fixed : size, 1, out);
        p += n;
    }
    return 0;
}

static int read_dims(NpyFile *f, const PbField *e)
{
    for (const uint8_t *p = e->body.at; p < e->body.end;) {
        uint64_t v;
        size_t n = pb_varint(p, e->body.end, PB_VARINT_MAX, &v);
        if (n == 0 || f->rank == NPY_MAX_RANK || v > INT64_MAX)
            return -1;
        f->dim[f->rank++] = (int64_t)v;
        p += n;
    }
    return 0;
}

/* Walks the message; pass 0 finds dims and data_type (they may stand after the data), pass 1 the
 * data. */
static const char *pb_pass(NpyFile *f, FILE *out, int pass)
{
    static const char nothing[] = "neither a .npy file nor a TensorProto";
    const uint8_t *at = (const uint8_t *)f->map->at;
    PbSpan all = {at, at + f->map->bytes, false};
    for (PbField e; pb_next(&all, &e);) {
        const uint32_t field = e.number;
        if (field == 0 || field > 100)
            return nothing;
        if (pass == 0 && field == 1 && read_dims(f, &e))
            return "bad dims in a TensorProto";
        if (pass == 0 && field == 2 && e.kind == PB_VARINT)
            f->dtype = e.value < 32 ? (int)e.value : 0;
        if (pass == 1 && field == 9 && e.kind == PB_BYTES) {
            f->data = (const char *)e.body.at;
            if (e.body.end - e.body.at != f->bytes)
                return "raw_data of a TensorProto does not fit its shape";
        }
        if (pass == 1 && (field == 4 || field == 5 || field == 7 || field == 10 || field == 11)) {
            if ((int)field != field_of(f->dtype))
                return "a TensorProto whose data are of another type than it says";
            if (repeated(&e, f->dtype, out))
                return "bad data in a TensorProto";
        }
        if (field == 13 || field == 14)
            return "a TensorProto with external data: give the tensor itself";
    }
    return all.broken ? nothing : NULL;
}

static const char *pb_parse(NpyFile *f)
{
    Memory out;
    const char *bad = pb_pass(f, NULL, 0);
    if (bad)
        return bad;
    if (!dtype_size(f->dtype) || product(f))
        return "neither a .npy file nor a TensorProto of numbers";
    FILE *to = memory_open(&out);
    bad = to ? pb_pass(f, to, 1) : NULL;
    if (memory_close(to, &out))
        return bad ? bad : "out of memory";
    f->own = out.at;
    if (bad || f->data)
        return bad;
    f->data = f->own;
    return (int64_t)out.n == f->bytes ? NULL : "data of a TensorProto does not fit its shape";
}

static int is_npy(const NpyFile *f)
{
    return f->map->bytes >= 10 && !memcmp(f->map->at, "\x93NUMPY", 6);
}

static int map_file(NpyFile *f, const char *path, char *err, size_t nerr)
{
    char why[FILE_WHY];
    memset(f, 0, sizeof *f);
    f->map = file_map(path, why);
    if (!f->map)
        return fail(f, path, why, err, nerr);
    return f->map->bytes ? 0 : fail(f, path, "an empty file, without a tensor", err, nerr);
}

int npy_open(NpyFile *f, const char *path, char *err, size_t nerr)
{
    if (map_file(f, path, err, nerr))
        return -1;
    const FileKind *kind = is_npy(f) ? NULL : file_kind(f->map->at, f->map->bytes);
    if (kind) {
        char what[256];
        snprintf(what, sizeof what, "is %s: %s", kind->is, kind->as_array);
        return fail(f, path, what, err, nerr);
    }
    const char *bad = is_npy(f) ? npy_parse(f) : pb_parse(f);
    return bad ? fail(f, path, bad, err, nerr) : 0;
}

int npy_open_raw(NpyFile *f, const char *path, int dtype, char *err, size_t nerr)
{
    if (map_file(f, path, err, nerr))
        return -1;
    if (is_npy(f))
        return fail(f, path, "a .npy file, which says its type itself", err, nerr);
    if (!dtype_size(dtype))
        return fail(f, path, "no type of which a file of numbers can be", err, nerr);
    if (f->map->bytes % (size_t)dtype_size(dtype))
        return fail(f, path, "not a whole number of elements of this type", err, nerr);
    f->dtype = dtype;
    f->rank = 1;
    f->bytes = (int64_t)f->map->bytes;
    f->dim[0] = f->bytes / dtype_size(dtype);
    f->data = f->map->at;
    return 0;
}

void npy_close(NpyFile *f)
{
    file_unmap(f->map);
    free(f->own);
    memset(f, 0, sizeof *f);
}

void dims_text(char *to, size_t n, int rank, const int64_t *dim, int rows)
{
    size_t at = (size_t)snprintf(to, n, "[");
    for (int i = 0; i < rank && at < n; i++)
        at += (size_t)(i == rows
                           ? snprintf(to + at, n - at, "%srows", i ? ", " : "")
                           : snprintf(to + at, n - at, "%s%" PRId64, i ? ", " : "", dim[i]));
    if (at < n)
        snprintf(to + at, n - at, "]");
}

int npy_write(const char *path, int dtype, int rank, const int64_t *dim, const void *data,
              char *err, size_t nerr)
{
    char shape[NPY_MAX_RANK * 22 + 4] = "", header[1024];
    const char *descr = NULL;
    int64_t bytes = dtype_size(dtype);
    size_t at = 0;
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i].dtype == dtype)
            descr = kinds[i].descr;
    if (!descr) {
        snprintf(err, nerr, "%s: .npy has no such dtype", path);
        return -1;
    }
    for (int i = 0; i < rank; i++) {
        at += (size_t)snprintf(shape + at, sizeof shape - at,
                               i + 1 < rank ? "%" PRId64 ", "
                               : rank == 1  ? "%" PRId64 ","
                                            : "%" PRId64,
                               dim[i]);
        bytes *= dim[i];
    }
    int n = snprintf(header + 10, sizeof header - 10,
                     "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s), }",
                     dtype_size(dtype) == 1 ? '|' : '<', descr, shape);
    while ((10 + n + 1) % 64)
        header[10 + n++] = ' ';
    header[10 + n++] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(n & 255);
    header[9] = (char)(n >> 8);

    FileWhole out;
    if (!file_begin(&out, path) ||
        (fwrite(header, 1, (size_t)(10 + n), out.f),
         bytes ? fwrite(data, 1, (size_t)bytes, out.f) : 0, file_end(&out))) {
        snprintf(err, nerr, "%s: %s", path, out.why);
        return -1;
    }
    return 0;
}

/* ---- whole numbers ---- */

int npy_is_integer(int dtype)
{
    return dtype >= NPY_U8 && dtype <= NPY_I64;
}

void npy_integers(const char *at, int dtype, int64_t stride, int64_t n, int64_t *to)
{
#define READ(name, T)                                                                              \
    case NPY_##name:                                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T v;                                                                                   \
            memcpy(&v, at + i * stride, sizeof v);                                                 \
            to[i] = (int64_t)v;                                                                    \
        }                                                                                          \
        break;
    switch (dtype) {
        READ(U8, uint8_t)
        READ(I8, int8_t)
        READ(U16, uint16_t)
        READ(I16, int16_t)
        READ(U32, uint32_t)
        READ(I32, int32_t)
        READ(U64, uint64_t)
        READ(I64, int64_t)
    }
#undef READ
}

/* Little-endian: the low bytes come first. */
int npy_holds(int dtype, int64_t v) { return npy_integer((const char *)&v, dtype) == v; }

int64_t npy_integer(const char *at, int dtype)
{
    int64_t v = 0;
    npy_integers(at, dtype, 0, 1, &v);
    return v;
}

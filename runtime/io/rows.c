/*
 * rows.c - in: a row's number in the data; out: its bytes, from whichever of the input's files they
 * lie in.  Files are mapped: what is copied here is what is read.
 */
#include "data.h"

#include "base/file/safetensors.h"
#include "core/core.h"

#include <string.h>

/* The last file that begins at this row or before: those without rows are passed over. */
static const DataFile *file_of(const DataInput *in, int64_t row)
{
    int low = 0, high = in->n - 1;
    while (low < high) {
        int mid = low + (high - low + 1) / 2;
        if (in->file[mid].first <= row)
            low = mid;
        else
            high = mid - 1;
    }
    return &in->file[low];
}

static const char *piece_in(const DataInput *in, const DataFile *f, int64_t row, int64_t o)
{
    int64_t at = in->tokens ? ((row - f->first) * in->outer + o) * in->inner + in->shift
                            : (o * f->rows + row - f->first) * in->inner;
    return f->npy.data + at * st_dtype_size(f->npy.dtype);
}

const char *data_piece(const Data *d, int input, int64_t row, int64_t o, int *dtype)
{
    const DataInput *in = &d->input[input];
    const DataFile *f = file_of(in, row);
    *dtype = f->npy.dtype;
    return piece_in(in, f, row, o);
}

int data_file(const Data *d, int input, int64_t row)
{
    return (int)(file_of(&d->input[input], row) - d->input[input].file);
}

PpStatus data_whole(const Data *d, int input, int file)
{
    const DataInput *in = &d->input[input];
    char err[4600];
    return file_whole(in->file[file].npy.map, err, sizeof err)
               ? pp_fail(PP_ERR_IO, "--%s %s=%s", data_option(d, in->tokens),
                         d->model->input[input].name, err)
               : PP_OK;
}

/* n elements, integers where the types differ */
static void copy(char *dst, int dst_type, const char *src, int src_type, int64_t n)
{
    int64_t size = st_dtype_size(dst_type), step = st_dtype_size(src_type);
    if (dst_type == src_type) {
        memcpy(dst, src, (size_t)(n * size));
        return;
    }
    for (int64_t i = 0; i < n; i++) { /* little-endian: the low bytes come first */
        int64_t v = data_integer(src + i * step, src_type);
        memcpy(dst + i * size, &v, (size_t)size);
    }
}

/* A piece of fewer places than its file has. */
static void copy_places(const DataInput *in, int64_t longest, int64_t length, char *dst,
                        int dst_type, const char *src, int src_type)
{
    int64_t bytes = length * in->place * st_dtype_size(dst_type),
            line = longest * in->place * st_dtype_size(src_type);
    for (int64_t i = 0; i < in->lines; i++)
        copy(dst + i * bytes, dst_type, src + i * line, src_type, length * in->place);
}

/* --pad: a row's piece, of this length, from its own end on. */
static void pad(const Data *d, const DataInput *in, int64_t row, int64_t length, char *dst,
                int64_t size)
{
    int64_t there = data_there(d, row, length) * in->place, all = length * in->place;
    for (int64_t l = 0; l < in->lines; l++)
        for (int64_t i = there; i < all; i++)
            memcpy(dst + (l * all + i) * size, in->pad, (size_t)size);
}

void data_read(const Data *d, int input, const int64_t *order, int64_t first, int64_t rows,
               int64_t length, char *dst)
{
    const DataInput *in = &d->input[input];
    int shorter = in->place && length < d->longest;
    int dtype = d->model->input[input].dtype,
        apart = order || shorter || in->padded || (in->tokens && in->outer > 1);
    int64_t size = st_dtype_size(dtype), bytes = in->inner * size;
    if (shorter)
        bytes = bytes / d->longest * length;
    for (int64_t o = 0; o < in->outer; o++)
        for (int64_t i = 0, run; i < rows; i += run) {
            int64_t row = order ? order[first + i] : first + i;
            const DataFile *f = file_of(in, row);
            int64_t left = f->first + f->rows - row;
            run = apart ? 1 : left < rows - i ? left : rows - i; /* these follow one another */
            if (shorter)
                copy_places(in, d->longest, length, dst, dtype, piece_in(in, f, row, o),
                            f->npy.dtype);
            else
                copy(dst, dtype, piece_in(in, f, row, o), f->npy.dtype, run * in->inner);
            if (in->padded)
                pad(d, in, row, length, dst, size);
            dst += run * bytes;
        }
}

int data_is_integer(int dtype)
{
    return dtype == DATA_U8 || dtype == DATA_I8 || dtype == TOKEN_U16 || dtype == DATA_I16 ||
           dtype == PP_I32 || dtype == PP_I64;
}

int64_t data_integer(const char *at, int dtype)
{
    uint8_t byte;
    uint16_t token;
    int32_t narrow;
    int64_t wide;
    switch (st_dtype_size(dtype)) {
    case 1: memcpy(&byte, at, sizeof byte); return dtype == DATA_I8 ? (int8_t)byte : byte;
    case 2: memcpy(&token, at, sizeof token); return dtype == DATA_I16 ? (int16_t)token : token;
    case 4: memcpy(&narrow, at, sizeof narrow); return narrow;
    default: memcpy(&wide, at, sizeof wide); return wide;
    }
}

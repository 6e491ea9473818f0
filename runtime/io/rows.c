/*
 * rows.c - in: a row's number in the data; out: its bytes, from whichever of the input's files they
 * lie in.  Files are mapped: what is copied here is what is read.
 */
#include "data.h"

#include "base/file/safetensors.h"

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
    int64_t at = (o * f->rows + row - f->first) * in->inner;
    return f->npy.data + at * st_dtype_size(f->npy.dtype);
}

const char *data_piece(const Data *d, int input, int64_t row, int64_t o)
{
    const DataInput *in = &d->input[input];
    return piece_in(in, file_of(in, row), row, o);
}

void data_read(const Data *d, int input, const int64_t *order, int64_t first, int64_t rows,
               char *dst)
{
    const DataInput *in = &d->input[input];
    int64_t bytes = in->inner * st_dtype_size(d->model->input[input].dtype);
    for (int64_t o = 0; o < in->outer; o++)
        for (int64_t i = 0, run; i < rows; i += run) {
            int64_t row = order ? order[first + i] : first + i;
            const DataFile *f = file_of(in, row);
            int64_t left = f->first + f->rows - row; /* these follow one another */
            run = order ? 1 : left < rows - i ? left : rows - i;
            memcpy(dst, piece_in(in, f, row, o), (size_t)(run * bytes));
            dst += run * bytes;
        }
}

int64_t data_integer(const char *at, int dtype)
{
    int32_t narrow;
    int64_t wide;
    if (dtype == PP_I32) {
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

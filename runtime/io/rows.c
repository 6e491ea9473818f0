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

/* Of a row whose file has its own places alone */
static const int64_t *row_start(const Data *d, int input, int64_t row)
{
    int64_t of;
    return &d->row_start[tensor_varies(&d->model->input[input], 1, &of)][row];
}

int64_t data_piece_size(const Data *d, int input, int64_t row)
{
    const DataInput *in = &d->input[input];
    const int64_t *start = in->ragged ? row_start(d, input, row) : NULL;
    return start ? (start[1] - start[0]) * in->place - in->shift : in->inner;
}

static const char *piece_in(const Data *d, int input, const DataFile *f, int64_t row, int64_t o)
{
    const DataInput *in = &d->input[input];
    int64_t at =
        in->ragged
            ? (*row_start(d, input, row) - *row_start(d, input, f->first)) * in->place + in->shift
        : in->tokens ? ((row - f->first) * in->outer + o) * in->inner + in->shift
                     : (o * f->rows + row - f->first) * in->inner;
    return f->npy.data + at * st_dtype_size(f->npy.dtype);
}

const char *data_piece(const Data *d, int input, int64_t row, int64_t o, int *dtype)
{
    const DataInput *in = &d->input[input];
    const DataFile *f = file_of(in, row);
    *dtype = f->npy.dtype;
    return piece_in(d, input, f, row, o);
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
        int64_t v = npy_integer(src + i * step, src_type);
        memcpy(dst + i * size, &v, (size_t)size);
    }
}

/* ---- where lengths vary ---- */

PpLength data_there(const Data *d, int64_t row, PpLength length)
{
    for (int v = 0; v < d->model->n_length; v++)
        if (d->row_length[v] && d->row_length[v][row] < length.of[v])
            length.of[v] = d->row_length[v][row];
    return length;
}

RowPiece data_piece_of(const Data *d, int input, int64_t row, PpLength length)
{
    const PpTensor *t = &d->model->input[input];
    const PpLength own = data_there(d, row, length);
    RowPiece p = {.rank = 1, .file = {1}, .here = {1}, .own = {1}};
    for (int i = t->batch_dim < 0 ? 0 : t->batch_dim; i < t->rank; i++) {
        const int64_t parts = i == t->batch_dim ? d->model->rows : 1;
        int64_t file = tensor_dim(t, i, d->longest) / parts, of;
        if (tensor_varies(t, i, &of) >= 0) {
            p.file[p.rank] = file;
            p.here[p.rank] = tensor_dim(t, i, length);
            p.own[p.rank++] = tensor_dim(t, i, own);
            continue;
        }
        p.file[p.rank - 1] *= file;
        p.here[p.rank - 1] *= file;
        p.own[p.rank - 1] *= file;
    }
    if (d->input[input].ragged) /* its microbatch is as long as it or longer */
        p.file[1] = p.own[1] = data_piece_size(d, input, row);
    return p;
}

void data_lines(const RowPiece *p, RowLine *line, void *of)
{
    int64_t n = 1, last = p->rank - 1;
    for (int i = 0; i < last; i++)
        n *= p->here[i];
    for (int64_t l = 0; l < n; l++) {
        int64_t file = 0, own = p->own[last], rest = l, step = p->file[last];
        for (int64_t i = last; i-- > 0; step *= p->file[i], rest /= p->here[i]) {
            file += rest % p->here[i] * step;
            own = rest % p->here[i] < p->own[i] ? own : 0;
        }
        line(of, file, l * p->here[last], own);
    }
}

typedef struct {
    const DataInput *in;
    char *dst;
    const char *src;
    int dst_type, src_type;
    int64_t n;
} Copying;

static void copy_line(void *of, int64_t file, int64_t here, int64_t own)
{
    const Copying *c = of;
    int64_t size = st_dtype_size(c->dst_type);
    char *to = c->dst + here * size;
    const int64_t read = c->in->padded ? own : c->n;
    copy(to, c->dst_type, c->src + file * st_dtype_size(c->src_type), c->src_type, read);
    for (int64_t i = read; i < c->n; i++)
        memcpy(to + i * size, c->in->pad, (size_t)size);
}

/* A piece of fewer places than its file has, or padded. */
static void copy_piece(const Data *d, int input, int64_t row, PpLength length, char *dst,
                       const char *src, int src_type)
{
    const RowPiece p = data_piece_of(d, input, row, length);
    data_lines(&p, copy_line,
               &(Copying){&d->input[input], dst, src, d->model->input[input].dtype, src_type,
                          p.here[p.rank - 1]});
}

/* ---- all ---- */

/* Is a microbatch's tensor of these lengths a part of what the files have? */
static int is_shorter(const Data *d, int input, PpLength length)
{
    int any = 0;
    for (int v = 0; v < d->model->n_length; v++)
        any |= length.of[v] < d->longest.of[v] && tensor_any_varies(&d->model->input[input], v);
    return any;
}

void data_read(const Data *d, int input, const int64_t *order, int64_t first, int64_t rows,
               PpLength length, char *dst)
{
    const DataInput *in = &d->input[input];
    const PpTensor *t = &d->model->input[input];
    int by_piece = in->padded || is_shorter(d, input, length), dtype = t->dtype,
        apart = order || by_piece || (in->tokens && in->outer > 1);
    int64_t bytes = in->inner * st_dtype_size(dtype);
    for (int i = 0; i < t->rank && by_piece; i++)
        bytes = bytes / tensor_dim(t, i, d->longest) * tensor_dim(t, i, length);
    for (int64_t o = 0; o < in->outer; o++)
        for (int64_t i = 0, run; i < rows; i += run) {
            int64_t row = order ? order[first + i] : first + i;
            const DataFile *f = file_of(in, row);
            int64_t left = f->first + f->rows - row;
            run = apart ? 1 : left < rows - i ? left : rows - i; /* these follow one another */
            if (by_piece)
                copy_piece(d, input, row, length, dst, piece_in(d, input, f, row, o), f->npy.dtype);
            else
                copy(dst, dtype, piece_in(d, input, f, row, o), f->npy.dtype, run * in->inner);
            dst += run * bytes;
        }
}

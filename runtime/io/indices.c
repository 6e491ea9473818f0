/*
 * indices.c - in: the files of integer inputs, and what their elements may be (PpPlan.index); out:
 * PP_OK, or the first element that would choose a row that its table does not have, which a gather
 * would read from beyond its end.
 *
 * All rows are looked at before the first step, however many steps there are: mapped files are read
 * from one end to the other, once for each bound, by all processes together.
 */
#include "data.h"

#include "base/file/safetensors.h"
#include "core/core.h"
#include "core/signals.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* elements that are judged together, and after which it is asked whether a signal came */
enum { BLOCK = 4096, HEED = 1 << 24 };

static int is_wrong(int64_t v, const PpIndex *b)
{
    return (v < b->least || v > b->most) && !(b->has_other && v == b->other);
}

/* The first of n elements, `step` of them from one to the next, that is neither from least to most
 * nor the other one; -1: none. */
static int64_t first_wrong(const char *at, int dtype, int64_t n, int64_t step, const PpIndex *b)
{
    int64_t v[BLOCK], stride = step * st_dtype_size(dtype);
    for (int64_t from = 0; from < n; from += BLOCK) {
        const int64_t many = n - from < BLOCK ? n - from : BLOCK;
        int wrong = 0;
        npy_integers(at + from * stride, dtype, stride, many, v);
        for (int64_t i = 0; i < many; i++)
            wrong |= is_wrong(v[i], b);
        for (int64_t i = 0; wrong && i < many; i++)
            if (is_wrong(v[i], b))
                return from + i;
    }
    return -1;
}

/* ---- what is said ---- */

/* Where an element of a row lies: its number, or its indices where a row has several dimensions. */
static void place_text(char *to, size_t n, const Data *d, const PpTensor *t, int64_t element)
{
    const PpPlan *p = d->model;
    int64_t dim[PP_MAX_RANK], index[PP_MAX_RANK];
    int rank = 0;
    size_t at = 0;
    for (int i = 0; i < t->rank; i++) {
        dim[rank] = tensor_dim(t, i, d->longest) / (i == t->batch_dim ? p->rows : 1);
        rank += i != t->batch_dim || dim[rank] > 1;
    }
    for (int i = rank; i-- > 0; element /= dim[i])
        index[i] = element % dim[i];
    to[0] = 0;
    for (int i = 0; i < rank && at < n; i++)
        at += (size_t)snprintf(to + at, n - at, "%s%" PRId64,
                               i          ? ", "
                               : rank > 1 ? "["
                                          : "",
                               index[i]);
    if (rank > 1 && at < n)
        snprintf(to + at, n - at, "]");
}

static void may_text(char *to, size_t n, const PpIndex *b)
{
    char other[80] = "";
    if (b->has_other)
        snprintf(other, sizeof other, ", or %" PRId64 "%s", b->other,
                 b->table ? "" : ", which is ignored");
    snprintf(to, n, "%" PRId64 " to %" PRId64 "%s", b->least, b->most, other);
}

static PpStatus refuse(const Data *d, const PpIndex *b, const DataFile *f, int64_t row,
                       int64_t element)
{
    const PpTensor *t = &d->model->input[b->input];
    const DataInput *in = &d->input[b->input];
    char place[200], where[280] = "", token[60] = "", may[200];
    const char *counted = "";
    int dtype;
    const char *at = data_piece(d, b->input, f->first + row, element / in->inner, &dtype);
    int64_t value = npy_integer(at + element % in->inner * st_dtype_size(dtype), dtype);
    place_text(place, sizeof place, d, t, element);
    if (place[0])
        snprintf(where, sizeof where, ", position %s", place);
    if (in->tokens || in->ragged)
        snprintf(token, sizeof token, " (%s %" PRId64 " of the file)",
                 in->tokens ? "token" : "number",
                 (at - f->npy.data) / st_dtype_size(dtype) + element % in->inner);
    if (value < b->least && value >= b->most - 2 * b->rows + 1)
        counted = "; --negative-ids counts it from the end";
    may_text(may, sizeof may, b);
    if (!b->table)
        return pp_fail(PP_ERR_MODEL,
                       "--%s %s=%s: row %" PRId64 "%s%s is class %" PRId64
                       ", the model has %" PRId64 " classes: %s",
                       data_option(d, in->tokens), t->name, f->path, row, where, token, value,
                       b->rows, may);
    return pp_fail(PP_ERR_MODEL,
                   "--%s %s=%s: row %" PRId64 "%s%s is %" PRId64
                   ", an index into '%s', which has %" PRId64 " rows: allowed are %s%s",
                   data_option(d, in->tokens), t->name, f->path, row, where, token, value, b->table,
                   b->rows, may, counted);
}

/* ---- what is read ---- */

/* 0: element i of a piece is the row's; else so many are padded over, up to the end of its line. */
static int64_t padded_over(const RowPiece *p, int64_t i)
{
    int64_t last = p->rank - 1, left = p->file[last] - i % p->file[last];
    int own = 1;
    for (int64_t k = last; k >= 0; i /= p->file[k--])
        own &= i % p->file[k] < p->own[k];
    return own ? 0 : left;
}

/* Pieces of a row that are bounded one by one: what of the progression lies in each. */
static PpStatus check_row(const Data *d, const PpIndex *b, const DataFile *f, int64_t row)
{
    const DataInput *in = &d->input[b->input];
    const RowPiece piece = data_piece_of(d, b->input, f->first + row, d->longest);
    const int64_t size = data_piece_size(d, b->input, f->first + row);
    for (int64_t k = 0, run; k < b->count; k += run) {
        int dtype;
        int64_t element = b->first + k * b->step, o = element / in->inner, i = element % in->inner;
        run = (size - i + b->step - 1) / b->step;
        run = run < b->count - k ? run : b->count - k;
        if (run < 1) /* the rest is padded */
            return PP_OK;
        const char *at = data_piece(d, b->input, f->first + row, o, &dtype);
        int64_t bad = first_wrong(at + i * st_dtype_size(dtype), dtype, run, b->step, b), over = 0;
        if (bad >= 0 && in->padded)
            over = padded_over(&piece, i + bad * b->step);
        if (bad >= 0 && !over)
            return refuse(d, b, f, row, element + bad * b->step);
        run = bad < 0 ? run : bad + (over + b->step - 1) / b->step;
    }
    return PP_OK;
}

/* Rows whose elements are all bounded lie behind one another. */
static PpStatus check_rows(const Data *d, const PpIndex *b, const DataFile *f, int64_t from,
                           int64_t end)
{
    const DataInput *in = &d->input[b->input];
    int64_t pieces = in->tokens ? 1 : in->outer, length = in->outer * in->inner / pieces;
    for (int64_t o = 0; o < pieces && from < end; o++) {
        int dtype;
        const char *at = data_piece(d, b->input, f->first + from, o, &dtype);
        int64_t bad = first_wrong(at, dtype, (end - from) * length, 1, b);
        if (bad >= 0)
            return refuse(d, b, f, from + bad / length, o * length + bad % length);
    }
    return PP_OK;
}

static PpStatus check_file(const Data *d, const PpIndex *b, const DataFile *f, int part, int parts)
{
    const DataInput *in = &d->input[b->input];
    int64_t each = f->rows / parts, rest = f->rows % parts, from = part * each, end = from + each;
    from += part < rest ? part : rest;
    end += part < rest ? part + 1 : rest;
    int whole = b->step == 1 && b->count == in->outer * in->inner && !in->padded;
    int64_t slice = b->count < HEED ? HEED / b->count : 1;
    for (int64_t row = from; row < end; row += slice) {
        int64_t next = row + slice < end ? row + slice : end;
        TRY(signals_heed());
        if (whole)
            TRY(check_rows(d, b, f, row, next));
        for (int64_t k = row; k < next && !whole; k++)
            TRY(check_row(d, b, f, k));
    }
    return PP_OK;
}

/* ONNX counts a negative index from the end of its table, PyTorch's embedding has none. */
static PpIndex asked_of(const Data *d, int k)
{
    PpIndex b = d->model->index[k];
    const PpTensor *t = &d->model->input[b.input];
    for (int i = 0; i < t->rank && t->n_term; i++) /* so many of the greatest lengths' */
        b.count = t->dim[i] ? b.count * tensor_dim(t, i, d->longest) / t->dim[i] : b.count;
    const int64_t left = d->input[b.input].outer * d->input[b.input].inner - b.first,
                  most = left > 0 ? (left + b.step - 1) / b.step : 0;
    b.count = b.count < most ? b.count : most;
    int64_t first = b.most - b.rows + 1; /* the one that chooses row 0 */
    if (b.table && !d->opt->data.negative_ids && b.least < first)
        b.least = first;
    return b;
}

/* What stands behind a row's places. */
static PpStatus check_pad(const Data *d, const PpIndex *b)
{
    const DataInput *in = &d->input[b->input];
    const PpTensor *t = &d->model->input[b->input];
    char may[200];
    if (!in->padded || b->step != 1 || b->count != in->outer * in->inner ||
        first_wrong(in->pad, t->dtype, 1, 1, b) < 0)
        return PP_OK;
    may_text(may, sizeof may, b);
    return pp_fail(PP_ERR_MODEL, "--pad %s=%" PRId64 ": it is %s%s%s: allowed are %s", t->name,
                   in->pad_number, b->table ? "an index into '" : "a class",
                   b->table ? b->table : "", b->table ? "'" : "", may);
}

PpStatus data_check(const Data *d, int part, int parts)
{
    for (int k = 0; k < d->model->n_index; k++) {
        const PpIndex asked = asked_of(d, k), *b = &asked;
        const DataInput *in = &d->input[b->input];
        TRY(check_pad(d, b));
        for (int i = 0; i < in->n && in->inner && in->outer; i++) {
            const FileMap *m = in->file[i].npy.map;
            file_advise(m, MADV_SEQUENTIAL);
            PpStatus s = check_file(d, b, &in->file[i], part, parts);
            file_advise(m, MADV_NORMAL);
            TRY(s);
        }
    }
    return PP_OK;
}

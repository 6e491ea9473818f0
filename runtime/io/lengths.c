/*
 * lengths.c - programs whose microbatches differ in length.  In: --lengths NAME=FILE, for each row
 * how many of its places are there; without it all are that the inputs' files have; --pad, what
 * stands behind them.  Out: the lengths of a microbatch, which are those of its longest rows, and
 * so what of the files it is; where rows are in files that have no other places.
 *
 * Each rank has the files and the order of the rows, so all find the same.
 */
#include "data.h"

#include "base/file/hash.h"
#include "base/file/row_order.h"
#include "base/file/safetensors.h"
#include "core/number.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A value of the input's type. */
static PpStatus read_pad(Data *d, const NameFile *nf)
{
    int at;
    char *end;
    TRY(data_find(d->model, "pad", nf->name, &at));
    const PpTensor *t = &d->model->input[at];
    DataInput *in = &d->input[at];
    double real = strtod(nf->file, &end);
    int whole = npy_is_integer(t->dtype);
    errno = 0;
    if (whole)
        in->pad_number = strtoll(nf->file, &end, 10);
    const int held = whole ? !errno && npy_holds(t->dtype, in->pad_number)
                           : t->dtype == PP_F32 || t->dtype == PP_F64;
    if (!t->n_term)
        return pp_fail(PP_ERR_USAGE, "--pad %s=%s: it has no dimension '%s'", nf->name, nf->file,
                       d->model->length[0].name);
    if (*end || end == nf->file || !held)
        return pp_fail(PP_ERR_USAGE, "--pad %s=%s: that is no value of %s", nf->name, nf->file,
                       data_dtype_text(t->dtype));
    if (whole) /* little-endian: the low bytes come first */
        memcpy(in->pad, &in->pad_number, (size_t)st_dtype_size(t->dtype));
    else
        number_put(in->pad, 0, t->dtype, real);
    in->padded = 1;
    return PP_OK;
}

/* Options that are about rows of different lengths. */
static PpStatus check_options(const Options *o, const PpPlan *p)
{
    const char *option = o->data.lengths.n   ? "lengths"
                         : o->data.by_length ? "by-length"
                         : o->data.pads.n    ? "pad"
                                             : NULL;
    if (option && !p->n_length)
        return pp_fail(
            PP_ERR_USAGE,
            "--%s: this program has one length: ppsplit --bind NAME=1..N makes one of any", option);
    if (option && !o->data.lengths.n && !o->eval.on && (o->data.by_length || !o->eval.lengths.n))
        return pp_fail(PP_ERR_USAGE, "--%s: without --lengths %s=FILE.npy all rows have one length",
                       option, p->length[0].name);
    return PP_OK;
}

/* An input whose rows are windows of a text, of all places along this dimension; -1: none */
static int windows_along(const Data *d, int v)
{
    int i = d->model->n_input - 1;
    while (i >= 0 && !(d->input[i].tokens && !d->input[i].ragged &&
                       tensor_any_varies(&d->model->input[i], v)))
        i--;
    return i;
}

/* The longest that the files have. */
static PpStatus check_longest(Data *d, int v)
{
    const PpRange *range = &d->model->length[v];
    const int windows = windows_along(d, v);
    int64_t *longest = &d->longest.of[v];
    if (!*longest) /* no input is given that has places for all */
        *longest = d->row_length[v] && windows < 0
                       ? row_longest(d->row_length[v], NULL, 0, d->length_rows)
                       : range->most;
    if (*longest < range->least)
        return pp_fail(PP_ERR_MODEL,
                       "the inputs have %" PRId64 " places of '%s', this program takes %" PRId64
                       " to %" PRId64,
                       *longest, range->name, range->least, range->most);
    if (windows >= 0 && *longest != range->most)
        return pp_fail(PP_ERR_MODEL,
                       "--%s %s: windows of %" PRId64 " tokens, the other inputs have %" PRId64
                       " places of '%s'",
                       data_option(d, 1), d->model->input[windows].name, range->most, *longest,
                       range->name);
    return PP_OK;
}

/* ---- --lengths ---- */

const char *lengths_option(const Data *d) { return d->opt->eval.on ? "eval-lengths" : "lengths"; }

static PpStatus read_one(Data *d, const NameFile *nf)
{
    const PpPlan *p = d->model;
    char err[600], all[400] = "";
    int64_t rows;
    int v = 0, documents;
    for (int i = 0; i < p->n_length; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s'%.100s'", i ? ", " : "",
                 p->length[i].name);
    while (v < p->n_length && strcmp(nf->name, p->length[v].name) != 0)
        v++;
    if (v == p->n_length || d->row_length[v])
        return pp_fail(PP_ERR_USAGE, "--%s %s: what varies is %s", lengths_option(d), nf->name,
                       all);
    d->row_length[v] = row_lengths(nf->file, &rows, &documents, p->length[v].least,
                                   p->length[v].most, err, sizeof err);
    if (!d->row_length[v] && rows < 0)
        return pp_fail(PP_ERR_IO, "--%s %s: %s", lengths_option(d), nf->name, err);
    if (!d->row_length[v])
        return pp_fail(PP_ERR_MODEL, "--%s %s=%s: %s", lengths_option(d), nf->name, nf->file,
                       err);
    if (d->length_rows && rows != d->length_rows)
        return pp_fail(PP_ERR_MODEL,
                       "--%s %s=%s: it is of %" PRId64 " rows, the one before it of %" PRId64,
                       lengths_option(d), nf->name, nf->file, rows, d->length_rows);
    d->length_rows = rows;
    d->documents |= documents;
    TRY(pp_take(&d->pool, &d->row_start[v], rows + 1, sizeof *d->row_start[v]));
    for (int64_t i = 0; i < rows; i++)
        d->row_start[v][i + 1] = d->row_start[v][i] + d->row_length[v][i];
    return PP_OK;
}

PpStatus lengths_read(Data *d)
{
    TRY(check_options(d->opt, d->model));
    for (int i = 0; i < d->opt->data.lengths.n; i++)
        TRY(read_one(d, &d->opt->data.lengths.at[i]));
    return PP_OK;
}

void lengths_digest(const Data *d, int v, char *key, size_t n, char digest[SHA256_TEXT])
{
    const int64_t *length = d->row_length[v], all = d->longest.of[v];
    uint64_t h = hash_value(HASH_START, (uint64_t)all);
    for (int64_t i = 0; i < d->rows; i++)
        h = hash_value(h, (uint64_t)(length ? length[i] : all));
    snprintf(key, n, "--lengths %s", d->model->length[v].name);
    snprintf(digest, SHA256_TEXT, "%016" PRIx64, h);
}

/* ---- rows one behind the other ---- */

/* The dimension behind the rows, if it alone varies and --lengths is given for it; else -1. */
static int varies_alone(const Data *d, int input, int64_t *of)
{
    const PpTensor *t = &d->model->input[input];
    const int apart = t->rank > 1 && t->batch_dim == 0 && t->dim[0] == d->model->rows;
    int64_t other;
    int v = apart ? tensor_varies(t, 1, of) : -1;
    for (int i = 2; i < t->rank; i++)
        v = tensor_varies(t, i, &other) < 0 ? v : -1;
    return v >= 0 && d->row_start[v] ? v : -1;
}

int ragged_is(const Data *d, int input, const NpyFile *f)
{
    const PpTensor *t = &d->model->input[input];
    int64_t of;
    int is = f->rank == t->rank - 1 && varies_alone(d, input, &of) >= 0;
    for (int i = 1; i < f->rank && is; i++)
        is = f->dim[i] == t->dim[i + 1];
    return is;
}

PpStatus ragged_rows(const Data *d, int input, DataFile *f)
{
    DataInput *in = &d->input[input];
    const char *name = d->model->input[input].name;
    int64_t of, row = f->first;
    const int v = varies_alone(d, input, &of);
    const int64_t *start = d->row_start[v], all = d->length_rows;
    in->place = of;
    for (int i = 2; i < d->model->input[input].rank; i++)
        in->place *= d->model->input[input].dim[i];
    if (!ragged_is(d, input, &f->npy))
        return pp_fail(PP_ERR_MODEL,
                       "--%s %s=%s: its rows do not lie one behind the other, as "
                       "those of %s do",
                       data_option(d, in->tokens), name, f->path, in->file[0].path);
    if (f->npy.dim[0] == 0)
        return pp_fail(PP_ERR_MODEL, "--%s %s=%s: it is empty", data_option(d, in->tokens), name,
                       f->path);
    while (row < all && (start[row] - start[f->first]) * of < f->npy.dim[0])
        row++;
    f->rows = row - f->first;
    if (row > f->first && (start[row] - start[f->first]) * of == f->npy.dim[0])
        return PP_OK;
    row -= row > f->first && (start[row] - start[f->first]) * of > f->npy.dim[0];
    return pp_fail(PP_ERR_MODEL,
                   "--%s %s=%s: it has %" PRId64 " places, and by --%s %s no row ends there: "
                   "%" PRId64 " row%s take%s %" PRId64 "%s",
                   data_option(d, in->tokens), name, f->path, f->npy.dim[0], lengths_option(d),
                   d->model->length[v].name, row - f->first, row - f->first == 1 ? "" : "s",
                   row - f->first == 1 ? "s" : "", (start[row] - start[f->first]) * of,
                   row == all ? ", and there are no more" : "");
}

/* ---- all ---- */

/* Those of --lengths, if the files fit them. */
static PpStatus check_lengths(const Data *d, int v)
{
    const PpRange *range = &d->model->length[v];
    const int64_t *length = d->row_length[v];
    if (length && d->length_rows != d->rows)
        return pp_fail(PP_ERR_MODEL,
                       "--%s %s: it says how long %" PRId64 " rows are, there are %" PRId64,
                       lengths_option(d), range->name, d->length_rows, d->rows);
    for (int64_t i = 0; length && i < d->rows; i++)
        if (length[i] > d->longest.of[v])
            return pp_fail(PP_ERR_MODEL,
                           "--%s %s: row %" PRId64 " has length %" PRId64 ", and may have %" PRId64
                           " to %" PRId64,
                           lengths_option(d), range->name, i, length[i], range->least,
                           d->longest.of[v]);
    return PP_OK;
}

PpStatus lengths_open(Data *d)
{
    const PpPlan *p = d->model;
    const Options *o = d->opt;
    if (p->n_length && o->data.mask)
        return pp_fail(PP_ERR_USAGE, "--debug-mask-minibatches: microbatches differ in length");
    for (int v = 0; v < p->n_length; v++) {
        TRY(check_longest(d, v));
        TRY(check_lengths(d, v));
    }
    for (int i = 0; i < o->data.pads.n; i++)
        TRY(read_pad(d, &o->data.pads.at[i]));
    for (int i = 0; i < p->n_input; i++)
        if (d->input[i].ragged && !d->input[i].padded)
            return pp_fail(PP_ERR_USAGE,
                           "--%s %s: its rows have places of their own alone: --pad %s=VALUE says "
                           "what stands behind shorter ones%s",
                           data_option(d, d->input[i].tokens), p->input[i].name, p->input[i].name,
                           i == p->loss.target ? ", -100 for what does not count" : "");
    return PP_OK;
}

PpLength data_length(const Data *d, const int64_t *order, int64_t first, int64_t end)
{
    PpLength most = {{0}};
    for (int v = 0; v < d->model->n_length; v++) {
        const int64_t n = d->row_length[v] ? row_longest(d->row_length[v], order, first, end) : 0;
        most.of[v] = n ? n : d->longest.of[v];
    }
    return most;
}

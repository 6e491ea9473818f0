/*
 * lengths.c - programs whose microbatches differ in length.  In: --lengths NAME=FILE, for each row
 * how many of its places are there; without it all are that the inputs' files have; --pad, what
 * stands behind them.  Out: the lengths of a microbatch, which are those of its longest rows, and
 * so what of the files it is.
 *
 * Each rank has the files and the order of the rows, so all find the same.
 */
#include "data.h"

#include "base/file/row_order.h"
#include "base/file/safetensors.h"
#include "core/core.h"

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
    float single = (float)real;
    int whole = npy_is_integer(t->dtype);
    if (whole)
        in->pad_number = strtoll(nf->file, &end, 10);
    if (!t->n_term)
        return pp_fail(PP_ERR_USAGE, "--pad %s=%s: it has no dimension '%s'", nf->name, nf->file,
                       d->model->length[0].name);
    if (*end || end == nf->file || !(whole || t->dtype == PP_F32 || t->dtype == PP_F64))
        return pp_fail(PP_ERR_USAGE, "--pad %s=%s: that is no value of %s", nf->name, nf->file,
                       data_dtype_text(t->dtype));
    memcpy(in->pad,
           whole                ? (const void *)&in->pad_number
           : t->dtype == PP_F64 ? (const void *)&real
                                : (const void *)&single,
           (size_t)st_dtype_size(t->dtype)); /* little-endian: the low bytes come first */
    in->padded = 1;
    return PP_OK;
}

/* Options that are about rows of different lengths. */
static PpStatus check_options(const Options *o, const PpPlan *p)
{
    const char *option = o->n_lengths   ? "lengths"
                         : o->n_pads    ? "pad"
                         : o->by_length ? "by-length"
                                        : NULL;
    if (option && !p->n_length)
        return pp_fail(
            PP_ERR_USAGE,
            "--%s: this program has one length: ppsplit --bind NAME=1..N makes one of any", option);
    if (option && !o->n_lengths && !o->evaluates)
        return pp_fail(PP_ERR_USAGE, "--%s: without --lengths %s=FILE.npy all rows have one length",
                       option, p->length[0].name);
    return PP_OK;
}

/* The longest that the files have. */
static PpStatus check_longest(Data *d, int v)
{
    const PpRange *range = &d->model->length[v];
    int64_t *longest = &d->longest.of[v];
    if (!*longest) /* no input is given that has it */
        *longest = range->most;
    if (*longest < range->least)
        return pp_fail(PP_ERR_MODEL,
                       "the inputs have %" PRId64 " places of '%s', this program takes %" PRId64
                       " to %" PRId64,
                       *longest, range->name, range->least, range->most);
    for (int i = 0; i < d->model->n_input; i++)
        if (d->input[i].tokens && tensor_any_varies(&d->model->input[i], v) &&
            *longest != range->most)
            return pp_fail(PP_ERR_MODEL,
                           "--%s %s: windows of %" PRId64 " tokens, the other inputs have %" PRId64
                           " places of '%s'",
                           data_option(d, 1), d->model->input[i].name, range->most, *longest,
                           range->name);
    return PP_OK;
}

static PpStatus open_lengths(Data *d, const NameFile *nf)
{
    const PpPlan *p = d->model;
    char err[600], all[400] = "";
    int v = 0;
    for (int i = 0; i < p->n_length; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s'%.100s'", i ? ", " : "",
                 p->length[i].name);
    while (v < p->n_length && strcmp(nf->name, p->length[v].name) != 0)
        v++;
    if (v == p->n_length || d->row_length[v])
        return pp_fail(PP_ERR_USAGE, "--lengths %s: what varies is %s", nf->name, all);
    int64_t rows = d->rows;
    d->row_length[v] =
        row_lengths(nf->file, &rows, p->length[v].least, d->longest.of[v], err, sizeof err);
    if (d->row_length[v])
        return PP_OK;
    return rows < 0 ? pp_fail(PP_ERR_IO, "--lengths %s: %s", nf->name, err)
                    : pp_fail(PP_ERR_MODEL, "--lengths %s=%s: %s", nf->name, nf->file, err);
}

PpStatus lengths_open(Data *d)
{
    const PpPlan *p = d->model;
    const Options *o = d->opt;
    TRY(check_options(o, p));
    if (!p->n_length)
        return PP_OK;
    if (o->mask)
        return pp_fail(PP_ERR_USAGE, "--debug-mask-minibatches: microbatches differ in length");
    for (int v = 0; v < p->n_length; v++)
        TRY(check_longest(d, v));
    for (int i = 0; i < o->n_lengths; i++)
        TRY(open_lengths(d, &o->lengths[i]));
    for (int i = 0; i < o->n_pads; i++)
        TRY(read_pad(d, &o->pads[i]));
    return PP_OK;
}

PpLength data_length(const Data *d, const int64_t *order, int64_t first, int64_t end)
{
    PpLength most = {{0}};
    for (int v = 0; v < d->model->n_length; v++) {
        const int64_t n =
            d->row_length[v] ? row_longest(d->row_length[v], order, first, end) : 0;
        most.of[v] = n ? n : d->longest.of[v];
    }
    return most;
}

/*
 * lengths.c - programs whose microbatches differ in length.  In: --lengths NAME=FILE, for each row
 * how many of its places are there; without it all are that the inputs' files have; --pad, what
 * stands behind them.  Out: the length of a microbatch, which is that of its longest row, and so
 * what of the files it is.
 *
 * Each rank has the files and the order of the rows, so all find the same.
 */
#include "data.h"

#include "base/file/safetensors.h"
#include "core/core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static PpStatus wrong(const NameFile *nf, const char *why)
{
    return pp_fail(PP_ERR_MODEL, "--lengths %s=%s: %s", nf->name, nf->file, why);
}

static PpStatus take(Data *d, const NameFile *nf, const NpyFile *f)
{
    const PpPlan *p = d->model;
    char why[200];
    if (f->rank != 1 || !data_is_integer(f->dtype) || f->dim[0] != d->rows) {
        snprintf(why, sizeof why, "one whole number for each of %" PRId64 " rows", d->rows);
        return wrong(nf, why);
    }
    d->row_length = malloc((size_t)(d->rows + 1) * sizeof *d->row_length);
    if (!d->row_length)
        return pp_no_memory();
    for (int64_t i = 0; i < d->rows; i++) {
        int64_t n = data_integer(f->data + i * st_dtype_size(f->dtype), f->dtype);
        d->row_length[i] = n;
        if (n >= p->length_least && n <= d->longest)
            continue;
        snprintf(why, sizeof why,
                 "row %" PRId64 " has length %" PRId64 ", and may have %" PRId64 " to %" PRId64, i,
                 n, p->length_least, d->longest);
        return wrong(nf, why);
    }
    return PP_OK;
}

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
    int whole = data_is_integer(t->dtype);
    if (whole)
        in->pad_number = strtoll(nf->file, &end, 10);
    if (!in->place)
        return pp_fail(PP_ERR_USAGE, "--pad %s=%s: it has no dimension '%s'", nf->name, nf->file,
                       d->model->length_name);
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
static PpStatus check_options(const Options *o, const char *length_name)
{
    const char *option = o->n_lengths   ? "lengths"
                         : o->n_pads    ? "pad"
                         : o->by_length ? "by-length"
                                        : NULL;
    if (option && !length_name)
        return pp_fail(
            PP_ERR_USAGE,
            "--%s: this program has one length: ppsplit --bind NAME=1..N makes one of any", option);
    if (option && !o->n_lengths && !o->evaluates)
        return pp_fail(PP_ERR_USAGE, "--%s: without --lengths %s=FILE.npy all rows have one length",
                       option, length_name);
    return PP_OK;
}

PpStatus lengths_open(Data *d)
{
    const PpPlan *p = d->model;
    const Options *o = d->opt;
    char err[600];
    TRY(check_options(o, p->length_name));
    if (!p->length_name)
        return PP_OK;
    if (o->mask)
        return pp_fail(PP_ERR_USAGE, "--debug-mask-minibatches: microbatches differ in length");
    if (!d->longest) /* no input is given that has it */
        d->longest = p->length;
    if (d->longest < p->length_least)
        return pp_fail(PP_ERR_MODEL,
                       "the inputs have %" PRId64 " places of '%s', this program takes %" PRId64
                       " to %" PRId64,
                       d->longest, p->length_name, p->length_least, p->length);
    for (int i = 0; i < p->n_input; i++)
        if (d->input[i].tokens && d->input[i].place && d->longest != p->length)
            return pp_fail(PP_ERR_MODEL,
                           "--%s %s: windows of %" PRId64 " tokens, the other inputs have %" PRId64
                           " places of '%s'",
                           data_option(d, 1), p->input[i].name, p->length, d->longest,
                           p->length_name);
    if (!o->n_lengths)
        return PP_OK;
    const NameFile *nf = &o->lengths[0];
    if (o->n_lengths > 1 || strcmp(nf->name, p->length_name) != 0)
        return pp_fail(PP_ERR_USAGE, "--lengths %s: what varies is '%s', once",
                       o->lengths[o->n_lengths - 1].name, p->length_name);
    NpyFile f;
    if (npy_open(&f, nf->file, err, sizeof err))
        return pp_fail(PP_ERR_IO, "--lengths %s: %s", nf->name, err);
    PpStatus s = take(d, nf, &f);
    npy_close(&f);
    for (int i = 0; i < o->n_pads && s == PP_OK; i++)
        s = read_pad(d, &o->pads[i]);
    return s;
}

int64_t data_length(const Data *d, const int64_t *order, int64_t first, int64_t end)
{
    int64_t most = 0;
    for (int64_t i = first; i < end && d->row_length; i++) {
        int64_t n = d->row_length[order ? order[i] : i];
        most = n > most ? n : most;
    }
    return most ? most : d->longest;
}

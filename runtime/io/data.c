/*
 * data.c - in: the files of --data; out: what they hold, checked against the plan.  Files are
 * mapped; every process checks all of them, so that all come to the same verdict.
 */
#include "data.h"

#include "base/file/safetensors.h"
#include "base/file/token_file.h"
#include "core/core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a row of each input is: pieces that lie apart where its batch dimension is not the first. */
static void lay_out(const Data *d, int input)
{
    const PpTensor *t = &d->model->input[input];
    DataInput *in = &d->input[input];
    PpLength length = length_most(d->model);
    for (int v = 0; v < PP_LENGTHS; v++)
        length.of[v] = d->longest.of[v] ? d->longest.of[v] : length.of[v];
    in->outer = in->inner = 1;
    for (int i = 0; i < t->rank; i++)
        *(i < t->batch_dim ? &in->outer : &in->inner) *= tensor_dim(t, i, length);
    if (t->batch_dim >= 0)
        in->inner /= d->model->rows;
}

/* The one dimension in which the file has another size than a microbatch, where that could hold the
 * rows; -1: there is none. */
static int rows_elsewhere(const PpPlan *p, const PpTensor *t, const NpyFile *f)
{
    int at = -1, n = 0;
    for (int i = 0; i < t->rank && f->rank == t->rank; i++)
        if (f->dim[i] != t->dim[i] && n++ == 0)
            at = i;
    return n == 1 && at != t->batch_dim && t->dim[at] % p->rows == 0 ? at : -1;
}

/* The files' sizes of dimensions that vary: any up to the program's, the same in all. */
static PpStatus check_length(Data *d, const PpTensor *t, const DataFile *file)
{
    const PpPlan *p = d->model;
    for (int i = 0; i < t->rank && file->npy.rank == t->rank; i++) {
        int64_t n = file->npy.dim[i], of;
        int v = tensor_varies(t, i, &of);
        if (v < 0)
            continue;
        if (n % of != 0)
            return pp_fail(PP_ERR_MODEL,
                           "--%s %s=%s: its dimension %d is %" PRId64 ", no multiple of %" PRId64,
                           data_option(d, 0), t->name, file->path, i, n, of);
        n /= of;
        const PpRange *range = &p->length[v];
        if (n < 1 || n > range->most)
            return pp_fail(PP_ERR_MODEL,
                           "--%s %s=%s: it has %" PRId64
                           " places of '%s', this program takes %" PRId64 " to %" PRId64,
                           data_option(d, 0), t->name, file->path, n, range->name, range->least,
                           range->most);
        if (d->longest.of[v] && n != d->longest.of[v])
            return pp_fail(PP_ERR_MODEL,
                           "--%s %s=%s: it has %" PRId64
                           " places of '%s', the files before it %" PRId64
                           "; --%s %s=FILE says how many of a row's are there",
                           data_option(d, 0), t->name, file->path, n, range->name,
                           d->longest.of[v], lengths_option(d), range->name);
        d->longest.of[v] = n;
    }
    return PP_OK;
}

static PpStatus check_shape(const Data *d, const PpTensor *t, DataFile *file)
{
    char want[400], have[400], remedy[200] = "";
    int64_t of;
    const NpyFile *f = &file->npy;
    int bad = f->rank != t->rank;
    file->rows = 1;
    for (int i = 0; i < t->rank && !bad; i++) {
        if (i != t->batch_dim) {
            bad = f->dim[i] != tensor_dim(t, i, d->longest);
            continue;
        }
        /* Several entries of the dimension may make one row */
        int64_t k = t->dim[i] / d->model->rows;
        bad = f->dim[i] % k != 0;
        file->rows = f->dim[i] / k;
    }
    if (!bad)
        return PP_OK;
    dims_text(want, sizeof want, t->rank, t->dim, t->batch_dim);
    dims_text(have, sizeof have, f->rank, f->dim, -1);
    const int at = rows_elsewhere(d->model, t, f);
    const int v = f->rank == t->rank - 1 && t->batch_dim == 0 ? tensor_varies(t, 1, &of) : -1;
    if (at >= 0)
        snprintf(remedy, sizeof remedy,
                 "; ppsplit --chunk %.100s=%d, if the rows are in dimension %d", t->name, at, at);
    if (v >= 0 && !d->row_length[v])
        snprintf(remedy, sizeof remedy,
                 "; if its rows lie one behind the other: --%s %.100s=FILE says how long they are",
                 lengths_option(d), d->model->length[v].name);
    return pp_fail(PP_ERR_MODEL, "--%s %s=%s: shape %s, the model wants %s%s", data_option(d, 0),
                   t->name, file->path, have, want, remedy);
}

/* Every integer of the file's type is one of the input's. */
static int widens(int from, int to)
{
    return npy_is_integer(from) && npy_is_integer(to) && st_dtype_size(from) < st_dtype_size(to);
}

/* What numpy makes without being asked is float64. */
static PpStatus wrong_type(const Data *d, const NameFile *nf, int is, int wanted)
{
    const char *want = data_dtype_text(wanted);
    char remedy[80] = "";
    if (strcmp(want, "bfloat16") != 0)
        snprintf(remedy, sizeof remedy, "; in numpy array.astype(\"%s\") is of that type", want);
    return pp_fail(PP_ERR_MODEL, "--%s %s=%s: %s, the model wants %s%s", data_option(d, 0),
                   nf->name, nf->file, data_dtype_text(is), want, remedy);
}

static PpStatus open_one(Data *d, const NameFile *nf)
{
    char err[600];
    int at;
    DataFile *f = NULL;
    TRY(data_find(d->model, data_option(d, 0), nf->name, &at));
    const PpTensor *t = &d->model->input[at];
    DataInput *in = &d->input[at];
    if (in->n && t->batch_dim < 0)
        return pp_fail(PP_ERR_MODEL,
                       "--%s %s=%s: a second file, but this input has no rows that could follow "
                       "those of %s",
                       data_option(d, 0), nf->name, nf->file, in->file[0].path);
    in->sets++;
    TRY(data_add(d, at, nf->file, &f));
    if (token_file_open(&f->npy, nf->file, 0, err, sizeof err))
        return pp_fail(PP_ERR_IO, "--%s %s: %s", data_option(d, 0), nf->name, err);
    if (f->npy.dtype != t->dtype && !widens(f->npy.dtype, t->dtype))
        return wrong_type(d, nf, f->npy.dtype, t->dtype);
    if (in->n == 1)
        in->ragged = ragged_is(d, at, &f->npy);
    if (!in->ragged) {
        TRY(check_length(d, t, f));
        TRY(check_shape(d, t, f));
    }
    lay_out(d, at);
    if (in->ragged)
        TRY(ragged_rows(d, at, f));
    data_place(in, f);
    return data_count(in, f, nf->name);
}

static int optional(const Data *d, int input)
{
    return (d->opt->mode == MODE_INFER && input == d->model->loss.target) ||
           data_total(d->model, input) >= 0;
}

/* Inputs with a batch dimension have the same number of rows in all. */
static PpStatus check_rows(Data *d, int *have_rows)
{
    const PpPlan *p = d->model;
    int of = -1;
    for (int i = 0; i < p->n_input; i++) {
        const DataInput *in = &d->input[i];
        const char *option = data_option(d, in->tokens);
        if (!in->n && !optional(d, i))
            return pp_fail(PP_ERR_USAGE, "input '%s' is missing: --%s %s=FILE.npy",
                           p->input[i].name, data_option(d, 0), p->input[i].name);
        if (!in->n || p->input[i].batch_dim < 0)
            continue;
        if (of >= 0 && in->rows != d->rows)
            return in->n == 1
                       ? pp_fail(PP_ERR_MODEL,
                                 "--%s %s=%s has %" PRId64 " rows, but %s has %" PRId64 "%s",
                                 option, p->input[i].name, in->file[0].path, in->rows,
                                 p->input[of].name, d->rows,
                                 in->rows == p->rows && i != p->loss.target
                                     ? "; ppsplit --chunk INPUT=replicate makes one the same for "
                                       "all rows"
                                     : "")
                       : pp_fail(PP_ERR_MODEL,
                                 "--%s %s: its %d files have %" PRId64 " rows, but %s has %" PRId64,
                                 option, p->input[i].name, in->n, in->rows, p->input[of].name,
                                 d->rows);
        of = i;
        d->rows = in->rows;
    }
    *have_rows = of >= 0;
    return PP_OK;
}

static PpStatus begin(Data *d, const PpPlan *p, const Options *o)
{
    *d = (Data){.model = p, .opt = o};
    TRY(pp_take(&d->pool, &d->input, p->n_input, sizeof *d->input));
    for (int i = 0; i < p->n_input; i++)
        lay_out(d, i);
    return PP_OK;
}

PpStatus data_open_tokens(Data *d, const PpPlan *p, const Options *o)
{
    TRY(begin(d, p, o));
    d->longest = length_most(p);
    return tokens_open(d);
}

PpStatus data_open(Data *d, const PpPlan *p, const Options *o)
{
    int have_rows = 0;
    TRY(begin(d, p, o));
    TRY(lengths_read(d));
    for (int i = 0; i < o->data.files.n; i++)
        TRY(open_one(d, &o->data.files.at[i]));
    TRY(tokens_open(d));
    TRY(prompt_open(d));
    TRY(check_rows(d, &have_rows));
    if (!have_rows)
        d->rows = o->data.batch
                      ? o->data.batch
                      : p->rows * (o->schedule.microbatches ? o->schedule.microbatches : 1);
    TRY(mix_open(d));
    TRY(lengths_open(d));
    for (int i = 0; i < p->n_input; i++)
        lay_out(d, i);
    return data_cut(d);
}

void data_close(Data *d)
{
    for (int i = 0; d->input && i < d->model->n_input; i++)
        for (int k = 0; k < d->input[i].n; k++)
            npy_close(&d->input[i].file[k].npy);
    for (int v = 0; v < PP_LENGTHS; v++)
        free(d->row_length[v]);
    pool_free(&d->pool);
}

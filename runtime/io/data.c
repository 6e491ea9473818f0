/*
 * data.c - in: the files of --data; out: what they hold, checked against the plan.  Files are
 * mapped; every process checks all of them, so that all come to the same verdict.
 */
#include "data.h"

#include "base/cli/nearest.h"
#include "base/file/safetensors.h"
#include "core/core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *dtype_text(int dtype)
{
    switch (dtype) {
    case 1: return "float32";
    case 2: return "uint8";
    case 3: return "int8";
    case 6: return "int32";
    case 7: return "int64";
    case 9: return "bool";
    case 10: return "float16";
    case 11: return "float64";
    case 16: return "bfloat16";
    default: return "another type";
    }
}

static void shape_text(char *out, size_t n, int rank, const int64_t *dim, int batch_dim)
{
    size_t at = (size_t)snprintf(out, n, "[");
    for (int i = 0; i < rank && at < n; i++) {
        if (i == batch_dim)
            at += (size_t)snprintf(out + at, n - at, "%srows", i ? ", " : "");
        else
            at += (size_t)snprintf(out + at, n - at, "%s%" PRId64, i ? ", " : "", dim[i]);
    }
    if (at < n)
        snprintf(out + at, n - at, "]");
}

static PpStatus check_shape(Data *d, const PpTensor *t, const NpyFile *f, const char *file,
                            const char **rows_of)
{
    char want[400], have[400];
    int64_t rows = -1;
    int bad = f->rank != t->rank;
    for (int i = 0; i < t->rank && !bad; i++) {
        if (i != t->batch_dim) {
            bad = f->dim[i] != t->dim[i];
            continue;
        }
        /* Several entries of the dimension may make one row */
        int64_t k = t->dim[i] / d->model->rows;
        bad = f->dim[i] % k != 0;
        rows = f->dim[i] / k;
    }
    if (bad) {
        shape_text(want, sizeof want, t->rank, t->dim, t->batch_dim);
        shape_text(have, sizeof have, f->rank, f->dim, -1);
        return pp_fail(PP_ERR_MODEL, "--data %s=%s: shape %s, the model wants %s", t->name, file,
                       have, want);
    }
    if (rows < 0)
        return PP_OK;
    if (!*rows_of) {
        *rows_of = t->name;
        d->rows = rows;
    } else if (rows != d->rows) {
        return pp_fail(PP_ERR_MODEL, "--data %s=%s has %" PRId64 " rows, but %s has %" PRId64,
                       t->name, file, rows, *rows_of, d->rows);
    }
    return PP_OK;
}

static PpStatus open_one(Data *d, const NameFile *nf, const char **rows_of)
{
    const PpPlan *p = d->model;
    char err[600];
    const char **names = calloc((size_t)p->n_input + 1, sizeof *names);
    int at = -1;
    for (int i = 0; i < p->n_input && names; i++) {
        names[i] = p->input[i].name;
        if (!strcmp(names[i], nf->name))
            at = i;
    }
    const char *meant = names ? nearest_name(nf->name, names, (size_t)p->n_input) : NULL;
    free(names);
    if (at < 0)
        return meant
                   ? pp_fail(PP_ERR_MODEL,
                             "--data %s: the model has no such input; did you mean '%s'?", nf->name,
                             meant)
                   : pp_fail(PP_ERR_MODEL,
                             "--data %s: the model has no such input; --help lists them", nf->name);
    const PpTensor *t = &p->input[at];
    NpyFile *f = &d->file[at];
    if (npy_open(f, nf->file, err, sizeof err))
        return pp_fail(PP_ERR_IO, "--data %s: %s", nf->name, err);
    if (f->dtype != t->dtype)
        return pp_fail(PP_ERR_MODEL, "--data %s=%s: %s, the model wants %s", nf->name, nf->file,
                       dtype_text(f->dtype), dtype_text(t->dtype));
    return check_shape(d, t, f, nf->file, rows_of);
}

static int optional(const Data *d, int input)
{
    return d->opt->mode == MODE_INFER && input == d->model->loss_target;
}

/* A class that the model does not have would be read beyond the end of its row. */
static PpStatus check_classes(const Data *d)
{
    const PpPlan *p = d->model;
    const NpyFile *f = p->loss_target < 0 ? NULL : &d->file[p->loss_target];
    if (!f || !p->loss_classes || (f->dtype != PP_I64 && f->dtype != PP_I32))
        return PP_OK;
    int64_t n = f->bytes / st_dtype_size(f->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = f->dtype == PP_I64 ? ((const int64_t *)(const void *)f->data)[i]
                                       : ((const int32_t *)(const void *)f->data)[i];
        if (c != p->loss_ignore && (c < 0 || c >= p->loss_classes))
            return pp_fail(PP_ERR_MODEL,
                           "--data %s: element %" PRId64 " is class %" PRId64
                           ", the model has classes 0 to %" PRId64 " (%" PRId64 " is ignored)",
                           p->input[p->loss_target].name, i, c, p->loss_classes - 1,
                           p->loss_ignore);
    }
    return PP_OK;
}

PpStatus data_open(Data *d, const PpPlan *p, const Options *o)
{
    const char *rows_of = NULL;
    *d = (Data){.model = p, .opt = o};
    d->file = calloc((size_t)p->n_input + 1, sizeof *d->file);
    if (!d->file)
        return pp_no_memory();
    for (int i = 0; i < o->n_data; i++)
        TRY(open_one(d, &o->data[i], &rows_of));
    for (int i = 0; i < p->n_input; i++)
        if (!d->file[i].dtype && !optional(d, i))
            return pp_fail(PP_ERR_MODEL, "input '%s' is missing: --data %s=FILE.npy",
                           p->input[i].name, p->input[i].name);
    TRY(check_classes(d));
    if (!rows_of)
        d->rows = o->batch ? o->batch : p->rows * (o->microbatches ? o->microbatches : 1);
    return data_cut(d);
}

void data_close(Data *d)
{
    for (int i = 0; d->file && i < d->model->n_input; i++)
        npy_close(&d->file[i]);
    free(d->file);
    free(d->row0);
    free(d->row0_rest);
}

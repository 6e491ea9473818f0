/*
 * data.c - in: the files of --data; out: the rows of each step, microbatch by microbatch, in planned buffers.
 *
 * Files are mapped; every process checks all of them against the plan, so that all come to the same verdict.  A step
 * takes `batch` rows, cut as torch.tensor_split does (the first rows % M chunks are one longer); each chunk starts
 * aligned. Steps go round the data; an epoch's left-over rows are skipped.  --shuffle: a Fisher-Yates permutation per
 * epoch, drawn from a counter-based generator (splitmix64 of seed, epoch, position), so it depends on nothing else.
 */
#include "base/cli/nearest.h"
#include "internal.h"

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

static PpStatus check_shape(Run *run, const PpTensor *t, const NpyFile *f, const char *file, const char **rows_of)
{
    char want[400], have[400];
    int64_t rows = -1;
    int bad = f->rank != t->rank;
    for (int i = 0; i < t->rank && !bad; i++) {
        if (i != t->batch_dim) {
            bad = f->dim[i] != t->dim[i];
            continue;
        }
        int64_t k = t->dim[i] / run->plan->rows; /* several entries of the dimension may make one row */
        bad = f->dim[i] % k != 0;
        rows = f->dim[i] / k;
    }
    if (bad) {
        shape_text(want, sizeof want, t->rank, t->dim, t->batch_dim);
        shape_text(have, sizeof have, f->rank, f->dim, -1);
        return pp_fail(PP_ERR_MODEL, "--data %s=%s: shape %s, the model wants %s", t->name, file, have, want);
    }
    if (rows < 0)
        return PP_OK;
    if (!*rows_of) {
        *rows_of = t->name;
        run->data.rows = rows;
    } else if (rows != run->data.rows) {
        return pp_fail(PP_ERR_MODEL, "--data %s=%s has %" PRId64 " rows, but %s has %" PRId64, t->name, file, rows,
                       *rows_of, run->data.rows);
    }
    return PP_OK;
}

static PpStatus open_one(Run *run, const NameFile *nf, const char **rows_of)
{
    const PpPlan *p = run->plan;
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
        return meant ? pp_fail(PP_ERR_MODEL, "--data %s: the model has no such input; did you mean '%s'?", nf->name,
                               meant)
                     : pp_fail(PP_ERR_MODEL, "--data %s: the model has no such input; --help lists them", nf->name);
    const PpTensor *t = &p->input[at];
    NpyFile *f = &run->data.file[at];
    if (npy_open(f, nf->file, err, sizeof err))
        return pp_fail(PP_ERR_IO, "--data %s: %s", nf->name, err);
    if (f->dtype != t->dtype)
        return pp_fail(PP_ERR_MODEL, "--data %s=%s: %s, the model wants %s", nf->name, nf->file, dtype_text(f->dtype),
                       dtype_text(t->dtype));
    return check_shape(run, t, f, nf->file, rows_of);
}

static int optional(const Run *run, int input)
{
    return run->opt->mode == MODE_INFER && input == run->plan->loss_target;
}

/* The rows left over at the end of a pass fill microbatches one after the other; those that stay empty do nothing. */
static PpStatus cut_rest(Run *run, int64_t rest)
{
    const PpPlan *p = run->plan;
    if (rest % p->rows && !p->uneven_ok)
        return pp_fail(PP_ERR_MODEL,
                       "%" PRId64 " rows in steps of %" PRId64 " leave %" PRId64
                       " for the last one, but this model runs with exactly %" PRId64 " rows a microbatch: %s",
                       run->data.rows, run->batch, rest, p->rows,
                       p->uneven_why ? p->uneven_why : "its shapes are fixed");
    run->row0_rest = malloc((size_t)(run->m + 1) * sizeof *run->row0_rest);
    if (!run->row0_rest)
        return pp_fail(PP_ERR_IO, "out of memory");
    for (int64_t i = 0; i <= run->m; i++)
        run->row0_rest[i] = run->row0[i] < rest ? run->row0[i] : rest;
    run->steps_per_epoch++;
    return PP_OK;
}

const int64_t *data_rows(const Run *run, int64_t step)
{
    int last = run->row0_rest && step % run->steps_per_epoch == run->steps_per_epoch - 1;
    return last ? run->row0_rest : run->row0;
}

int64_t data_rows_before(const Run *run, int64_t step)
{
    int64_t pass = run->row0_rest ? run->data.rows : run->steps_per_epoch * run->batch;
    return step / run->steps_per_epoch * pass + step % run->steps_per_epoch * run->batch;
}

/* What several microbatches yield has to meet in each output that is asked for; each needs a target of its own. */
static PpStatus check_meeting(const Run *run)
{
    const PpPlan *p = run->plan;
    const Options *o = run->opt;
    int64_t calls = o->mode == MODE_TRAIN ? run->m : run->m * run->steps;
    if (run->m > 1 && p->target_why && o->mode != MODE_INFER)
        return pp_fail(PP_ERR_MODEL,
                       "which rows of the target belong to a microbatch is not known: %s; --microbatches 1 runs, and ppsplit "
                       "--merge OUTPUT=DIM, of the output it is compared with, or --chunk target=DIM says where they are",
                       p->target_why);
    for (int i = 0; i < p->n_output && p->output_merge; i++)
        for (int k = 0; k < o->n_output && calls > 1; k++)
            if (p->output_merge[i] == PP_MERGE_NONE && !strcmp(o->output[k].name, p->output[i].name))
                return pp_fail(PP_ERR_MODEL,
                               "--output %s: it has no batch dimension, and what %" PRId64
                               " microbatches yield cannot be put together: %s; ppsplit --merge %s=DIM|sum|mean says how, or "
                               "make one microbatch of the batch: export the model for it, or ppsplit --bind its dimension",
                               p->output[i].name, calls, p->output_why[i], p->output[i].name);
    return PP_OK;
}

/* Rows of each microbatch, and whether the model takes them. */
static PpStatus cut(Run *run)
{
    const PpPlan *p = run->plan;
    const Options *o = run->opt;
    int64_t rows = run->data.rows;
    run->batch = o->batch ? o->batch : rows;
    if (run->batch > rows || rows == 0)
        return pp_fail(PP_ERR_MODEL, "too few rows: a step takes %" PRId64 ", the data have %" PRId64, run->batch,
                       rows);
    int64_t m = o->microbatches ? o->microbatches : (run->batch + p->rows - 1) / p->rows;
    if (m > run->batch)
        return pp_fail(PP_ERR_MODEL, "--microbatches %" PRId64 ": a step has only %" PRId64 " rows", m, run->batch);
    if (m > INT32_MAX / 4)
        return pp_fail(PP_ERR_MODEL, "%" PRId64 " microbatches are too many", m);
    int64_t most = (run->batch + m - 1) / m, least = run->batch / m;
    if (most > p->rows)
        return pp_fail(PP_ERR_MODEL,
                       "%" PRId64 " rows in %" PRId64 " microbatches make %" PRId64
                       " rows each, the model's shapes are those of %" PRId64 ": give --microbatches %" PRId64
                       " or more",
                       run->batch, m, most, p->rows, (run->batch + p->rows - 1) / p->rows);
    if (least != p->rows && !p->uneven_ok)
        return pp_fail(PP_ERR_MODEL,
                       "%" PRId64 " rows in %" PRId64 " microbatches make microbatches of %" PRId64
                       " rows, but this model runs with exactly %" PRId64 ": %s",
                       run->batch, m, least, p->rows, p->uneven_why ? p->uneven_why : "its shapes are fixed");
    run->m = (int)m;
    run->row0 = malloc((size_t)(m + 1) * sizeof *run->row0);
    if (!run->row0)
        return pp_fail(PP_ERR_IO, "out of memory");
    run->row0[0] = 0;
    for (int64_t i = 0; i < m; i++)
        run->row0[i + 1] = run->row0[i] + least + (i < run->batch % m);
    run->steps_per_epoch = rows / run->batch;
    if (o->mode != MODE_TRAIN && rows % run->batch)
        TRY(cut_rest(run, rows % run->batch));
    run->steps = o->steps ? o->steps : o->mode == MODE_TRAIN ? 1 : run->steps_per_epoch;
    return check_meeting(run);
}

/* A class that the model does not have would be read beyond the end of its row. */
static PpStatus check_classes(const Run *run)
{
    const PpPlan *p = run->plan;
    const NpyFile *f = p->loss_target < 0 ? NULL : &run->data.file[p->loss_target];
    if (!f || !p->loss_classes || (f->dtype != PP_I64 && f->dtype != PP_I32))
        return PP_OK;
    int64_t n = f->bytes / st_dtype_size(f->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = f->dtype == PP_I64 ? ((const int64_t *)(const void *)f->data)[i]
                                       : ((const int32_t *)(const void *)f->data)[i];
        if (c != p->loss_ignore && (c < 0 || c >= p->loss_classes))
            return pp_fail(PP_ERR_MODEL,
                           "--data %s: element %" PRId64 " is class %" PRId64 ", the model has classes 0 to %" PRId64
                           " (%" PRId64 " is ignored)",
                           p->input[p->loss_target].name, i, c, p->loss_classes - 1, p->loss_ignore);
    }
    return PP_OK;
}

PpStatus data_open(Run *run)
{
    const PpPlan *p = run->plan;
    const Options *o = run->opt;
    const char *rows_of = NULL;
    run->data.file = calloc((size_t)p->n_input + 1, sizeof *run->data.file);
    run->data.rows = 0;
    if (!run->data.file)
        return pp_fail(PP_ERR_IO, "out of memory");
    for (int i = 0; i < o->n_data; i++)
        TRY(open_one(run, &o->data[i], &rows_of));
    for (int i = 0; i < p->n_input; i++)
        if (!run->data.file[i].dtype && !optional(run, i))
            return pp_fail(PP_ERR_MODEL, "input '%s' is missing: --data %s=FILE.npy", p->input[i].name,
                           p->input[i].name);
    TRY(check_classes(run));
    if (!rows_of)
        run->data.rows = o->batch ? o->batch : p->rows * (o->microbatches ? o->microbatches : 1);
    return cut(run);
}

void data_close(Run *run)
{
    for (int i = 0; i < run->plan->n_input && run->data.file; i++)
        npy_close(&run->data.file[i]);
    free(run->data.file);
    free(run->row0);
    free(run->row0_rest);
}

/* A token is an entry of the integer target, else of the first integer input; else a row counts. */
int64_t data_tokens(const Run *run)
{
    const PpPlan *p = run->plan;
    for (int k = -1; k < p->n_input; k++) {
        int i = k < 0 ? p->loss_target : k;
        const PpTensor *t = i < 0 ? NULL : &p->input[i];
        if (!t || t->batch_dim < 0 || (t->dtype != PP_I64 && t->dtype != PP_I32))
            continue;
        int64_t n = 1;
        for (int d = 0; d < t->rank; d++)
            n *= t->dim[d];
        return n / p->rows * run->batch;
    }
    return run->batch;
}

/* ---- filling a step's buffers ---- */

static uint64_t splitmix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void permute(Rank *r, int64_t epoch)
{
    const Run *run = r->run;
    int64_t n = run->data.rows;
    uint64_t key = splitmix(splitmix(run->opt->shuffle_seed) ^ (uint64_t)epoch);
    for (int64_t i = 0; i < n; i++)
        r->order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        /* a number below i + 1: the high half of a 64 x 64 bit product */
        uint64_t x = splitmix(key + (uint64_t)i), b = (uint64_t)i + 1;
        uint64_t lo = (x & 0xffffffffu) * b, hi = (x >> 32) * b + (lo >> 32);
        int64_t j = (int64_t)(hi >> 32), t = r->order[i];
        r->order[i] = r->order[j];
        r->order[j] = t;
    }
    r->epoch = epoch;
}

/* One row of a tensor whose batch dimension is not the first lies in `outer` pieces of `inner` bytes. */
static void copy_rows(const PpTensor *t, int64_t plan_rows, const char *src, int64_t src_rows, char *dst,
                      int64_t dst_rows, const int64_t *order, int64_t first)
{
    int64_t outer = 1, inner = st_dtype_size(t->dtype);
    for (int d = 0; d < t->batch_dim; d++)
        outer *= t->dim[d];
    for (int d = t->batch_dim + 1; d < t->rank; d++)
        inner *= t->dim[d];
    inner *= t->dim[t->batch_dim] / plan_rows;
    for (int64_t o = 0; o < outer; o++) {
        const char *from = src + o * src_rows * inner;
        char *to = dst + o * dst_rows * inner;
        if (!order) {
            memcpy(to, from + first * inner, (size_t)(dst_rows * inner));
            continue;
        }
        for (int64_t i = 0; i < dst_rows; i++)
            memcpy(to + i * inner, from + order[first + i] * inner, (size_t)inner);
    }
}

static void fill_input(Rank *r, int input, int64_t first, const int64_t *row0)
{
    const Run *run = r->run;
    const PpTensor *t = &run->plan->input[input];
    const NpyFile *f = &run->data.file[input];
    if (!f->dtype)
        return; /* a target that inference does without: zeros */
    if (t->batch_dim < 0) {
        memcpy(r->chunk_host[input], f->data, (size_t)f->bytes);
        return;
    }
    for (int m = 0; m < run->m; m++)
        copy_rows(t, run->plan->rows, f->data, run->data.rows, r->chunk_host[input] + m * r->chunk_stride[input],
                  row0[m + 1] - row0[m], r->order, first + row0[m]);
}

/* Targets of the minibatch that count, for PP_LOSS_MEAN_TARGETS. */
static int64_t count_targets(const Rank *r, const int64_t *row0)
{
    const Run *run = r->run;
    const PpPlan *p = run->plan;
    const PpTensor *t = &p->input[p->loss_target];
    int64_t n = 0;
    for (int m = 0; m < run->m; m++) {
        const char *at = r->chunk_host[p->loss_target] + m * r->chunk_stride[p->loss_target];
        int64_t count = tensor_bytes(t, row0[m + 1] - row0[m], p->rows) / st_dtype_size(t->dtype);
        for (int64_t i = 0; i < count; i++)
            n += t->dtype == PP_I32 ? ((const int32_t *)(const void *)at)[i] != p->loss_ignore
                                    : ((const int64_t *)(const void *)at)[i] != p->loss_ignore;
    }
    return n;
}

static void fill_scale(Rank *r, const int64_t *row0)
{
    const Run *run = r->run;
    const PpPlan *p = run->plan;
    int64_t batch = row0[run->m];
    double mean = 1;
    if (p->loss_kind == PP_LOSS_MEAN_ELEMENTS)
        mean = 1.0 / ((double)batch * (double)p->loss_per_row);
    else if (p->loss_kind == PP_LOSS_MEAN_TARGETS)
        mean = 1.0 / (double)(p->loss_target < 0 ? batch * p->loss_per_row : count_targets(r, row0));
    for (int m = 0; m < run->m; m++) {
        double scale = mean;
        if (p->loss_kind == PP_LOSS_MEAN_ROWS)
            scale = (double)(row0[m + 1] - row0[m]) / (double)batch;
        char *at = r->scale_host + (int64_t)m * PP_ALIGN;
        float single = (float)scale;
        if (r->uses_scale == PP_F64)
            memcpy(at, &scale, sizeof scale);
        else
            memcpy(at, &single, sizeof single);
    }
}

int data_stays(const Rank *r, int64_t step) { return step > 0 && r->run->steps_per_epoch == 1 && !r->order; }

void data_fill(Rank *r, int64_t step)
{
    const Run *run = r->run;
    const int64_t *row0 = data_rows(run, step);
    int64_t epoch = step / run->steps_per_epoch, first = step % run->steps_per_epoch * run->batch;
    if (r->filled && data_stays(r, step))
        return; /* every step sees the same rows */
    if (r->order && (!r->filled || epoch != r->epoch))
        permute(r, epoch);
    r->filled = 1;
    for (int i = 0; i < run->plan->n_input; i++)
        if (r->chunk[i])
            fill_input(r, i, first, row0);
    if (r->uses_scale)
        fill_scale(r, row0);
}

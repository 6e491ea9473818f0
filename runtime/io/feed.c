/*
 * feed.c - in: the files of --data; out: the rows of each step, microbatch by microbatch, in
 * planned places on the host.
 */
#include "feed.h"

#include "base/file/safetensors.h"
#include "core/number.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

PpStatus feed_open(Feed *f, Pool *pool, const Data *d, const Plan *p)
{
    *f = (Feed){.data = d, .plan = p, .scale = p->at.scale, .loss_scale = 1};
    TRY(pp_take(pool, &f->host, d->model->n_input, sizeof *f->host));
    if (order_is_own(d))
        TRY(pp_take(pool, &f->order, d->rows, sizeof *f->order));
    int files = 0;
    for (int i = 0; i < d->model->n_input; i++)
        files = d->input[i].n > files ? d->input[i].n : files;
    TRY(pp_take(pool, &f->seen, files, 1));
    TRY(pp_take(pool, &f->length, d->microbatches, sizeof *f->length));
    memcpy(f->host, p->data.input, (size_t)d->model->n_input * sizeof *f->host);
    return totals_open(&f->totals, pool, d, p);
}

/* Class targets that count nowhere; else zeros. */
static void mask_elements(const Feed *f, int input, char *at, int64_t n)
{
    const PpPlan *p = f->data->model;
    int dtype = p->input[input].dtype;
    int64_t size = st_dtype_size(dtype);
    if (input != p->loss.target || (dtype != PP_I64 && dtype != PP_I32)) {
        memset(at, 0, (size_t)(n * size));
        return;
    }
    for (int64_t i = 0; i < n; i++) /* little-endian: the low bytes come first */
        memcpy(at + i * size, &p->loss.ignore, (size_t)size);
}

/* --debug-mask-minibatches: all rows, and then not those of other microbatches. */
static void fill_masked(Feed *f, int input, int64_t first, const int64_t *row0)
{
    const Data *d = f->data;
    const DataInput *in = &d->input[input];
    int64_t all = row0[d->microbatches], inner = in->inner;
    int64_t bytes = inner * st_dtype_size(d->model->input[input].dtype);
    for (int m = 0; m < d->microbatches; m++) {
        char *to = f->host[input] + m * f->plan->data.stride[input];
        data_read(d, input, f->order, first, all, d->longest, to);
        for (int64_t o = 0; o < in->outer; o++, to += all * bytes) {
            mask_elements(f, input, to, row0[m] * inner);
            mask_elements(f, input, to + row0[m + 1] * bytes, (all - row0[m + 1]) * inner);
        }
    }
}

static void fill_input(Feed *f, int input, int64_t first, const int64_t *row0)
{
    const Data *d = f->data;
    if (!d->input[input].n) { /* a target that inference does without: zeros */
        totals_put(&f->totals, input, f->host[input]);
        return;
    }
    if (d->model->input[input].batch_dim < 0) {
        data_read(d, input, NULL, 0, 1, d->longest, f->host[input]);
        return;
    }
    if (d->opt->data.mask) {
        fill_masked(f, input, first, row0);
        return;
    }
    for (int m = 0; m < d->microbatches; m++)
        data_read(d, input, f->order, first + row0[m], row0[m + 1] - row0[m], f->length[m],
                  f->host[input] + m * f->plan->data.stride[input]);
}

/* The files of what was just read: the end of one that was cut short reads as zeros up to the end
 * of its page. */
static PpStatus check_files(const Feed *f, int input, int64_t first, int64_t end)
{
    const Data *d = f->data;
    const DataInput *in = &d->input[input];
    int whole = d->model->input[input].batch_dim < 0;
    const int64_t *order = whole ? NULL : f->order;
    memset(f->seen, 0, (size_t)in->n);
    for (int64_t row = whole ? 0 : first; in->n && row < (whole ? 1 : end);) {
        int k = data_file(d, input, order ? order[row] : row);
        row = order ? row + 1 : in->file[k].first + in->file[k].rows;
        if (!f->seen[k]++)
            TRY(data_whole(d, input, k));
    }
    return PP_OK;
}

typedef struct {
    const Feed *f;
    const char *at;
    int dtype;
    int64_t here, n;
} Counting;

static void count_line(void *of, int64_t file, int64_t here, int64_t own)
{
    Counting *c = of;
    const PpPlan *p = c->f->data->model;
    const DataInput *in = &c->f->data->input[p->loss.target];
    int64_t read = in->padded ? own : c->here;
    (void)here;
    c->n += in->pad_number != p->loss.ignore ? c->here - read : 0;
    for (int64_t i = file; i < file + read; i++)
        c->n += npy_integer(c->at + i * st_dtype_size(c->dtype), c->dtype) != p->loss.ignore;
}

/* Targets of a row that count, of a microbatch of these lengths: of classes those that are not
 * ignored. */
static int64_t count_row(const Feed *f, int64_t row, PpLength length)
{
    const Data *d = f->data;
    const PpPlan *p = d->model;
    const DataInput *in = &d->input[p->loss.target];
    const RowPiece piece = data_piece_of(d, p->loss.target, row, length);
    Counting c = {.f = f, .here = piece.here[piece.rank - 1]};
    int64_t all = in->outer;
    for (int i = 0; i < piece.rank; i++)
        all *= piece.here[i];
    if (p->loss.kind == PP_LOSS_MEAN_ELEMENTS)
        return all;
    for (int64_t o = 0; o < in->outer; o++) {
        c.at = data_piece(d, p->loss.target, row, o, &c.dtype);
        data_lines(&piece, count_line, &c);
    }
    return c.n;
}

/* Targets of the minibatch that count. */
static int64_t count_targets(const Feed *f, int64_t first, int64_t step)
{
    const Data *d = f->data;
    const PpPlan *p = d->model;
    const DataInput *in = &d->input[p->loss.target];
    int64_t n = 0, chunks;
    int whole = p->input[p->loss.target].batch_dim < 0;
    if (!in->n) /* inference does without: zeros */
        return in->outer * in->inner * (whole ? 1 : data_step_rows(d, step));
    if (whole)
        return count_row(f, 0, d->longest);
    const int64_t *row0 = data_step(d, step, &chunks);
    for (int64_t m = 0; m < chunks; m++) {
        PpLength length = data_length(d, f->order, first + row0[m], first + row0[m + 1]);
        for (int64_t r = first + row0[m]; r < first + row0[m + 1]; r++)
            n += count_row(f, f->order ? f->order[r] : r, length);
    }
    return n;
}

/* row0: of the pass; batch: rows of the step */
static void fill_scale(Feed *f, const int64_t *row0, int64_t batch)
{
    const Data *d = f->data;
    const PpPlan *p = d->model;
    double mean = 1;
    if (p->loss.kind == PP_LOSS_MEAN_ELEMENTS || p->loss.kind == PP_LOSS_MEAN_TARGETS)
        mean = 1.0 / (double)f->targets;
    for (int m = 0; m < d->microbatches; m++) {
        double scale = mean;
        if (p->loss.kind == PP_LOSS_MEAN_ROWS && !p->minibatch.rows)
            scale = (double)(row0[m + 1] - row0[m]) / (double)batch;
        number_put(f->scale + (int64_t)m * PP_ALIGN, 0,
                   f->plan->data.scale_type == PP_F64 ? PP_F64 : PP_F32, scale * f->loss_scale);
    }
}

int feed_stays(const Feed *f, int64_t step)
{
    return step > 0 && f->data->steps_per_pass == 1 && !f->order && data_passes(f->data) == 1 &&
           !f->data->opt->sample.on;
}

void feed_scale(Feed *f, int64_t step)
{
    const Data *d = f->data;
    if (!f->plan->data.scale_type || f->laid_scale == f->loss_scale)
        return;
    fill_scale(f, data_pass(d, step, f->pass), data_step_rows(d, step));
    f->laid_scale = f->loss_scale;
}

static void will_read(const Data *d, int input, int64_t row)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int dtype;
    const char *at = data_piece(d, input, row, 0, &dtype);
    const size_t bytes = (size_t)(data_piece_size(d, input, row) * st_dtype_size(dtype)),
                 before = (uintptr_t)at % page;
    union {
        const char *at;
        void *p;
    } begin = {at - before};
    madvise(begin.p, bytes + before, MADV_WILLNEED);
}

/* The system begins to read the replica's rows of the step, while this one runs, as far as their
 * order is known: not those of the next epoch.  Where a row is in many pieces, it is left alone. */
static void read_ahead(const Feed *f, int64_t step)
{
    const Data *d = f->data;
    int64_t epoch, first, part[2];
    data_position(d, step, &epoch, &first);
    if (d->steps_per_pass < 2 || step >= d->steps || (f->order && epoch != f->epoch))
        return;
    for (int round = 0; round < data_rounds(d); round++) {
        data_round(d, step, round, part);
        for (int i = 0; i < d->model->n_input; i++)
            for (int64_t row = first + part[0];
                 f->plan->data.has_input[i] && d->input[i].n && d->input[i].outer == 1 &&
                 d->model->input[i].batch_dim == 0 && row < first + part[1];
                 row++)
                will_read(d, i, f->order ? f->order[row] : row);
    }
}

void feed_fill(Feed *f, int64_t step, int pass)
{
    const Data *d = f->data;
    const PpPlan *p = d->model;
    const int64_t *row0 = data_pass(d, step, pass);
    int64_t epoch, first;
    data_position(d, step, &epoch, &first);
    if (f->filled && feed_stays(f, step)) { /* every step sees the same rows */
        feed_scale(f, step);
        return;
    }
    if (f->order && (!f->filled || epoch != f->epoch))
        f->status = order_rows(d, epoch, f->order);
    f->epoch = epoch;
    if (pass == 0 || !f->filled)
        totals_make(&f->totals, f->order, first, data_step_rows(d, step));
    for (int m = 0; m < d->microbatches; m++)
        f->length[m] = data_length(d, f->order, first + row0[m], first + row0[m + 1]);
    for (int i = 0; i < p->n_input; i++)
        if (f->plan->data.has_input[i])
            fill_input(f, i, first, row0);
    for (int i = 0; i < p->n_input && f->status == PP_OK; i++)
        if (f->plan->data.has_input[i])
            f->status = check_files(f, i, first + row0[0], first + row0[d->microbatches]);
    if (f->plan->data.scale_type && p->loss.target >= 0 && (pass == 0 || !f->filled))
        f->targets = count_targets(f, first, step);
    f->filled = 1;
    f->pass = pass;
    f->laid_scale = 0; /* it depends on the rows */
    feed_scale(f, step);
    if (pass == 0)
        read_ahead(f, step + 1);
}

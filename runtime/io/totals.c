/*
 * totals.c - in: the rows of a step, of all replicas; out: what its data alone decide.
 *
 * The rows are taken in order, as many at a time as the model's shapes have, so the sums depend
 * neither on microbatches nor on replicas; each rank makes those that it reads by itself, of the
 * files that it has mapped.  Whole numbers are added as they are, others in double.  Totals that
 * are made of totals come a level later.
 */
#include "totals.h"

#include "base/file/safetensors.h"

#include <string.h>

static const PpTensor *tensor(const PpPlan *p, int k) { return &p->input[p->totals.of[k].input]; }
static int64_t elements(const PpTensor *t) { return t->bytes / st_dtype_size(t->dtype); }

static char *next(char **at, int64_t bytes)
{
    char *here = *at;
    *at += align_up(bytes);
    return here;
}

/* Where each lies, as totals_bytes() counts them. */
static void lay_out(Totals *t, char *at)
{
    const PpPlan *p = t->data->model;
    const PpStage *st = p->totals.stage;
    t->out = t->in + st->n_input;
    t->value = (char **)(t->out + st->n_output);
    t->sum = t->value + p->totals.n;
    t->work = next(&at, st->bytes.work[PP_WORK_INFER]);
    for (int k = 0; k < p->totals.n; k++) {
        t->value[k] = next(&at, tensor(p, k)->bytes);
        t->sum[k] = next(&at, elements(tensor(p, k)) * (int64_t)sizeof(double));
    }
    for (int o = 0; o < st->n_output; o++)
        t->out[o] = next(&at, st->output[o].t.bytes);
    for (int i = 0; i < st->n_input; i++) {
        int k = data_total(p, st->input[i].from_output);
        t->in[i] = k < 0 ? next(&at, st->input[i].t.bytes) : t->value[k];
    }
}

/* On the CPU they lie in the plan's memory. */
PpStatus totals_open(Totals *t, Pool *pool, const Data *d, const Plan *plan)
{
    const PpPlan *p = d->model;
    int64_t bytes = totals_bytes(p, plan->data.has_input);
    char *at = plan->at.totals;
    *t = (Totals){.data = d};
    if (!bytes)
        return PP_OK;
    TRY(pp_take(pool, &t->in,
                p->totals.stage->n_input + p->totals.stage->n_output + 2 * (int64_t)p->totals.n,
                sizeof *t->in));
    if (!at)
        TRY(pp_take(pool, &at, bytes + PP_ALIGN, 1));
    lay_out(t, at + (PP_ALIGN - (uintptr_t)at % PP_ALIGN) % PP_ALIGN);
    return PP_OK;
}

/* Whole numbers, or doubles. */
static void add(char *sum, const char *from, const PpTensor *t, double weight)
{
    int64_t n = elements(t), *whole = (int64_t *)(void *)sum;
    double *real = (double *)(void *)sum;
    const void *x = from;
    for (int64_t i = 0; i < n; i++)
        switch (t->dtype) {
        case PP_I32: whole[i] += ((const int32_t *)x)[i]; break;
        case PP_I64: whole[i] += ((const int64_t *)x)[i]; break;
        case PP_F32: real[i] += weight * (double)((const float *)x)[i]; break;
        default: real[i] += weight * ((const double *)x)[i];
        }
}

static void settle(char *to, const char *sum, const PpTensor *t, double weight)
{
    const int64_t *whole = (const int64_t *)(const void *)sum;
    const double *real = (const double *)(const void *)sum;
    void *y = to;
    for (int64_t i = 0; i < elements(t); i++)
        switch (t->dtype) {
        case PP_I32: ((int32_t *)y)[i] = (int32_t)whole[i]; break;
        case PP_I64: ((int64_t *)y)[i] = whole[i]; break;
        case PP_F32: ((float *)y)[i] = (float)(real[i] * weight); break;
        default: ((double *)y)[i] = real[i] * weight;
        }
}

/* Some rows: what they add to the totals of a level. */
static void add_rows(Totals *t, int level, const int64_t *order, int64_t first, int64_t rows)
{
    const PpPlan *p = t->data->model;
    const PpStage *st = p->totals.stage;
    for (int i = 0; i < st->n_input; i++) {
        int input = st->input[i].from_output;
        int by_rows = p->input[input].batch_dim >= 0;
        if (data_total(p, input) < 0)
            data_read(t->data, input, by_rows ? order : NULL, by_rows ? first : 0,
                      by_rows ? rows : 1, t->data->longest, t->in[i]);
    }
    PpCtx c = {.rows = rows, .stage = st->index, .work = t->work, .in = t->in, .out = t->out};
    st->call.infer(&c);
    for (int o = 0; o < st->n_output; o++) {
        int k = st->output[o].model_output;
        if (p->totals.of[k].level == level)
            add(t->sum[k], t->out[o], tensor(p, k), p->totals.of[k].mean ? (double)rows : 1);
    }
}

/* Without a loss's target, as inference may be, nobody asks for what is made of it. */
static int is_given(const Totals *t)
{
    const PpPlan *p = t->data->model;
    int all = 1;
    for (int i = 0; i < p->totals.stage->n_input; i++) {
        int input = p->totals.stage->input[i].from_output;
        all &= t->data->input[input].n > 0 || data_total(p, input) >= 0;
    }
    return all;
}

static void make_level(Totals *t, int level, const int64_t *order, int64_t first, int64_t rows)
{
    const PpPlan *p = t->data->model;
    for (int k = 0; k < p->totals.n; k++)
        if (p->totals.of[k].level == level)
            memset(t->sum[k], 0, (size_t)elements(tensor(p, k)) * sizeof(double));
    for (int64_t at = 0; at < rows; at += p->rows)
        add_rows(t, level, order, first + at, rows - at < p->rows ? rows - at : p->rows);
    for (int k = 0; k < p->totals.n; k++)
        if (p->totals.of[k].level == level)
            settle(t->value[k], t->sum[k], tensor(p, k),
                   p->totals.of[k].mean ? 1 / (double)rows : 1);
}

void totals_make(Totals *t, const int64_t *order, int64_t first, int64_t rows)
{
    const PpPlan *p = t->data->model;
    int levels = 0;
    for (int k = 0; t->in && k < p->totals.n; k++) {
        levels = p->totals.of[k].level > levels ? p->totals.of[k].level : levels;
        memset(t->value[k], 0, (size_t)tensor(p, k)->bytes);
    }
    for (int level = 1; level <= levels && is_given(t); level++)
        make_level(t, level, order, first, rows);
}

void totals_put(const Totals *t, int input, char *dst)
{
    int k = data_total(t->data->model, input);
    if (k >= 0 && t->in)
        memcpy(dst, t->value[k], (size_t)tensor(t->data->model, k)->bytes);
}

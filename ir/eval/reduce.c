/*
 * reduce.c - reductions, arguments of extrema, running sums, the greatest k, softmax.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval.h"

/* Strides of the result over the operand's indices: 0 along the reduced axes. */
static void result_strides(const Eval *e, int64_t *stride)
{
    eval_strides(&e->out[0].shape, stride);
    for (int i = 0; i < e->at->n; i++)
        stride[e->at->axes[i]] = 0;
}

static int64_t offset(const Shape *s, const int64_t *index, const int64_t *stride)
{
    int64_t at = 0;
    for (int i = 0; i < s->rank; i++)
        at += index[i] * stride[i];
    return at;
}

static void reduce_doubles(Eval *e, int64_t n, int64_t count)
{
    const Shape *s = &e->in[0].shape;
    const double *x = eval_doubles(e, &e->in[0]);
    double *r = eval_scratch(e, (size_t)n, sizeof *r);
    double start = e->op == OP_ReduceProd ? 1 : e->op == OP_ReduceMax ? -(double)INFINITY :
                   e->op == OP_ReduceMin ? (double)INFINITY : 0;
    int64_t stride[MAX_RANK], index[MAX_RANK] = {0}, i = 0;
    result_strides(e, stride);
    for (int64_t k = 0; k < n; k++)
        r[k] = start;
    if (count > 0)
        do {
            double *to = &r[offset(s, index, stride)], v = x[i++];
            switch (e->op) {
            case OP_ReduceProd: *to *= v; break;
            case OP_ReduceMax: *to = eval_max(*to, v); break;
            case OP_ReduceMin: *to = eval_min(*to, v); break;
            default: *to += v;
            }
        } while (eval_next(s, index));
    if (e->op == OP_ReduceMean)
        for (int64_t k = 0; k < n; k++)
            r[k] /= (double)count;
    eval_store_doubles(&e->out[0], r);
}

static void reduce_wides(Eval *e, int64_t n, int64_t count)
{
    const Shape *s = &e->in[0].shape;
    const Wide *x = eval_wides(e, &e->in[0]), far = (Wide)1 << 100;
    Wide *r = eval_scratch(e, (size_t)n, sizeof *r);
    Wide start = e->op == OP_ReduceProd  ? 1
                 : e->op == OP_ReduceMax ? -far
                 : e->op == OP_ReduceMin ? far
                                         : 0;
    int64_t stride[MAX_RANK], index[MAX_RANK] = {0}, i = 0;
    result_strides(e, stride);
    for (int64_t k = 0; k < n; k++)
        r[k] = start;
    if (count > 0)
        do {
            Wide *to = &r[offset(s, index, stride)], v = x[i++];
            switch (e->op) {
            case OP_ReduceProd: *to = (int64_t)(*to * v); break;
            case OP_ReduceMax: *to = v > *to ? v : *to; break;
            case OP_ReduceMin: *to = v < *to ? v : *to; break;
            default: *to += v;
            }
        } while (eval_next(s, index));
    if (e->op == OP_ReduceMean && count > 0)
        for (int64_t k = 0; k < n; k++)
            r[k] /= count;
    eval_store_wides(&e->out[0], r);
}

void eval_reduce(Eval *e)
{
    int64_t n = shape_elements(&e->out[0].shape), count = shape_elements(&e->in[0].shape) / n;
    if (dtype_is_float(e->in[0].dtype))
        reduce_doubles(e, n, count);
    else
        reduce_wides(e, n, count);
}

void eval_count(Eval *e)
{
    double n = 1;
    for (int i = 0; i < e->at->n; i++)
        n *= (double)e->in[0].shape.d[e->at->axes[i]];
    eval_set_double(&e->out[0], 0, n);
}

/* ---- lines along one axis: element i of a line lies at base + i * step ---- */

typedef struct { int64_t outer, n, step; } Lines;

static Lines lines(const Shape *s, int64_t axis)
{
    return (Lines){shape_between(s, 0, (int)axis), s->d[axis],
                   shape_between(s, (int)axis + 1, s->rank)};
}

/* Integers are compared as they are, floats with NaN as the greatest. */
static int compare(const Tensor *t, int64_t i, int64_t k)
{
    if (!dtype_is_float(t->dtype)) {
        Wide a = eval_wide_at(t, i), b = eval_wide_at(t, k);
        return (a > b) - (a < b);
    }
    double a = eval_double_at(t, i), b = eval_double_at(t, k);
    if (isnan(a) || isnan(b))
        return (isnan(a) != 0) - (isnan(b) != 0);
    return (a > b) - (a < b);
}

void eval_arg(Eval *e)
{
    const Tensor *x = &e->in[0];
    Lines l = lines(&x->shape, e->at->axis);
    int sign = e->op == OP_ArgMax ? 1 : -1;
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t j = 0; j < l.step; j++) {
            int64_t base = o * l.n * l.step + j, best = 0;
            for (int64_t i = 1; i < l.n; i++) {
                int c = sign * compare(x, base + i * l.step, base + best * l.step);
                if (c > 0 || (c == 0 && e->at->select_last))
                    best = i;
            }
            eval_set_wide(&e->out[0], o * l.step + j, best);
        }
}

void eval_cumsum(Eval *e)
{
    const Tensor *x = &e->in[0];
    Lines l = lines(&x->shape, e->at->axis);
    bool reverse = e->at->scan & CUMSUM_REVERSE, exclusive = e->at->scan & CUMSUM_EXCLUSIVE;
    bool floats = dtype_is_float(x->dtype);
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t j = 0; j < l.step; j++) {
            double sum = 0;
            Wide total = 0;
            for (int64_t i = 0; i < l.n; i++) {
                int64_t at = (o * l.n + (reverse ? l.n - 1 - i : i)) * l.step + j;
                double before = sum;
                Wide prior = total;
                if (floats) {
                    sum += eval_double_at(x, at);
                    eval_set_double(&e->out[0], at, exclusive ? before : sum);
                } else {
                    total += eval_wide_at(x, at);
                    eval_set_wide(&e->out[0], at, exclusive ? prior : total);
                }
            }
        }
}

/* Merge sort of a line's positions: best first, equals in order of position. */
static void sort_line(const Tensor *x, int64_t base, int64_t step, int sign, int64_t *at,
                      int64_t *other, int64_t n)
{
    if (n < 2)
        return;
    int64_t half = n / 2, i = 0, j = half, k = 0;
    sort_line(x, base, step, sign, at, other, half);
    sort_line(x, base, step, sign, at + half, other, n - half);
    while (i < half && j < n)
        other[k++] =
            sign * compare(x, base + at[j] * step, base + at[i] * step) > 0 ? at[j++] : at[i++];
    while (i < half)
        other[k++] = at[i++];
    while (j < n)
        other[k++] = at[j++];
    memcpy(at, other, (size_t)n * sizeof *at);
}

void eval_topk(Eval *e)
{
    const Tensor *x = &e->in[0];
    Lines l = lines(&x->shape, e->at->axis);
    size_t size = dtype_size(x->dtype);
    int64_t *at = eval_scratch(e, (size_t)l.n, sizeof *at),
            *other = eval_scratch(e, (size_t)l.n, sizeof *at);
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t j = 0; j < l.step; j++) {
            int64_t base = o * l.n * l.step + j;
            for (int64_t i = 0; i < l.n; i++)
                at[i] = i;
            sort_line(x, base, l.step, e->at->largest ? 1 : -1, at, other, l.n);
            for (int64_t i = 0; i < e->at->k; i++) {
                int64_t to = (o * e->at->k + i) * l.step + j;
                memcpy((char *)e->out[0].data + (size_t)to * size,
                       (const char *)x->data + (size_t)(base + at[i] * l.step) * size, size);
                eval_set_wide(&e->out[1], to, at[i]);
            }
        }
}

void eval_softmax(Eval *e)
{
    const double *x = eval_doubles(e, &e->in[0]);
    Lines l = lines(&e->in[0].shape, e->at->axis);
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t j = 0; j < l.step; j++) {
            int64_t base = o * l.n * l.step + j;
            double top = -(double)INFINITY, sum = 0;
            for (int64_t i = 0; i < l.n; i++)
                top = eval_max(top, x[base + i * l.step]);
            for (int64_t i = 0; i < l.n; i++)
                sum += exp(x[base + i * l.step] - top);
            for (int64_t i = 0; i < l.n; i++) {
                double v = x[base + i * l.step] - top;
                eval_set_double(&e->out[0], base + i * l.step,
                                e->op == OP_Softmax ? exp(v) / sum : v - log(sum));
            }
        }
}

/*
 * share.c - what the evaluators share: scratch memory, whole tensors as doubles or wide integers,
 * walks over indices.
 */
#include <math.h>
#include <string.h>

#include "eval.h"

void *eval_scratch(Eval *e, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        BUG("scratch of %zu times %zu bytes", n, size);
    if (bytes <= sizeof e->small - e->used) {
        void *p = e->small.byte + e->used;
        e->used += (bytes + 15) & ~(size_t)15;
        e->used = e->used > sizeof e->small ? sizeof e->small : e->used;
        memset(p, 0, bytes);
        return p;
    }
    if (!e->scratch)
        e->scratch = arena_within(e->arena);
    return arena_alloc(e->scratch, bytes);
}

/* ---- elements ---- */

const double *eval_doubles(Eval *e, const Tensor *t)
{
    if (t->dtype == DT_F64)
        return t->data;
    int64_t n = shape_elements(&t->shape);
    double *v = eval_scratch(e, (size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = eval_double_at(t, i);
    return v;
}

const Wide *eval_wides(Eval *e, const Tensor *t)
{
    int64_t n = shape_elements(&t->shape);
    Wide *v = eval_scratch(e, (size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = eval_wide_at(t, i);
    return v;
}

const int64_t *eval_ints(Eval *e, const Tensor *t)
{
    if (t->dtype == DT_I64)
        return t->data;
    int64_t n = shape_elements(&t->shape);
    int64_t *v = eval_scratch(e, (size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = (int64_t)eval_wide_at(t, i);
    return v;
}

void eval_store_doubles(Tensor *t, const double *v)
{
    int64_t n = shape_elements(&t->shape);
    for (int64_t i = 0; i < n; i++)
        eval_set_double(t, i, v[i]);
}

void eval_store_wides(Tensor *t, const Wide *v)
{
    int64_t n = shape_elements(&t->shape);
    for (int64_t i = 0; i < n; i++)
        eval_set_wide(t, i, v[i]);
}

/* ---- indices ---- */

void eval_strides(const Shape *s, int64_t *stride)
{
    int64_t n = 1;
    for (int i = s->rank - 1; i >= 0; i--) {
        stride[i] = n;
        n *= s->d[i];
    }
}

bool eval_next(const Shape *s, int64_t *index)
{
    for (int i = s->rank - 1; i >= 0; i--) {
        if (++index[i] < s->d[i])
            return true;
        index[i] = 0;
    }
    return false;
}

int64_t eval_index(int64_t i, int64_t d)
{
    int64_t k = i < 0 ? i + d : i;
    if (k < 0 || k >= d)
        diag_fatal(EXIT_MODEL, WHERE_NONE, "index %lld is out of range for a dimension of %lld",
                   (long long)i, (long long)d);
    return k;
}

double eval_max(double a, double b) { return isnan(a) || a > b ? a : b; }
double eval_min(double a, double b) { return isnan(a) || a < b ? a : b; }

/*
 * constant.c - the elements of constants as numbers.
 */
#include "ir.h"

static bool has_numbers(const Value *x)
{
    return x->kind == V_CONST && dtype_held(x->dtype) != DT_NONE;
}

bool g_const_ints(const Graph *g, ValueId v, Arena *a, int64_t **at, int64_t *n)
{
    const Value *x = val(g, v);
    if (!has_numbers(x))
        return false;
    *n = shape_elements(&x->shape);
    *at = arena_array(a, int64_t, *n);
    for (int64_t i = 0; i < *n; i++)
        (*at)[i] = element_int(x->dtype, x->data, i);
    return true;
}

bool const_slices_equal(const Value *v, int dim)
{
    const Shape *s = &v->shape;
    const int64_t inner = shape_between(s, dim + 1, s->rank);
    return v->data && blocks_equal(v->data, shape_between(s, 0, dim), s->d[dim],
                                   (size_t)inner * dtype_size(v->dtype));
}

bool g_const_double(const Graph *g, ValueId v, double *d)
{
    const Value *x = val(g, v);
    if (!has_numbers(x) || shape_elements(&x->shape) != 1)
        return false;
    *d = element_double(x->dtype, x->data, 0);
    return true;
}

/*
 * constant.c - the constants that a stage's functions read: their numbers, and their places in the
 * stage's block.  Those that are short stand in the source.
 */
#include "plan.h"

double cg_element(const Value *v, int64_t i, int64_t *as_int)
{
    *as_int = dtype_is_float(v->dtype) ? 0 : element_int(v->dtype, v->data, i);
    return element_double(v->dtype, v->data, i);
}

bool cg_iota(const Value *v, int64_t *first, int64_t *step)
{
    if (v->kind != V_CONST || !v->data || (v->dtype != DT_I64 && v->dtype != DT_I32))
        return false;
    int64_t n = shape_elements(&v->shape), a, b;
    if (n < 3)
        return false;
    cg_element(v, 0, first);
    cg_element(v, 1, &b);
    if (*first < -(1 << 30) || *first > 1 << 30 || b < -(1 << 30) || b > 1 << 30)
        return false;
    *step = b - *first;
    for (int64_t i = 2; i < n; i++) {
        cg_element(v, i, &a);
        if (a != *first + *step * i)
            return false;
    }
    return true;
}

uint32_t cg_constant(StageGen *sg, ValueId v)
{
    uint32_t *number = idmap_at(sg->a, &sg->position.constants, v);
    if (*number != NONE)
        return *number;
    enum { LONGEST_INLINE = 64 };
    /* a stage that has no number has no file of parameters */
    int64_t n = cg_most_constant(sg, shape_elements(&val(sg->g, v)->shape));
    StageConst c = {.value = v, .inlined = sg->pipe->alone || n <= LONGEST_INLINE};
    int64_t bytes = align_up(n * (int64_t)dtype_size(val(sg->g, v)->dtype));
    int64_t *total = c.inlined ? &sg->bytes_inlined : &sg->bytes_const;
    c.offset = *total;
    *total += bytes;
    vec_push(sg->a, &sg->constants, c);
    return *number = sg->constants.n - 1;
}

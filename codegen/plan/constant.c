/*
 * constant.c - the constants that a stage's functions read: their numbers, and their places in the
 * stage's block.  Those that are short stand in the source.
 */
#include "plan.h"

uint32_t cg_constant(StageGen *sg, ValueId v)
{
    uint32_t *number = idmap_at(sg->a, &sg->position.constants, v);
    if (*number != NONE)
        return *number;
    enum { LONGEST_INLINE = 64 };
    /* a stage that has no number has no file of parameters */
    int64_t n = cg_most_constant(sg, shape_elements(&val(sg->g, v)->shape));
    StageConst c = {.value = v, .inlined = sg->pipe->alone || n <= LONGEST_INLINE};
    int64_t bytes = cg_align(n * (int64_t)dtype_size(val(sg->g, v)->dtype));
    int64_t *total = c.inlined ? &sg->bytes_inlined : &sg->bytes_const;
    c.offset = *total;
    *total += bytes;
    vec_push(sg->a, &sg->constants, c);
    return *number = sg->constants.n - 1;
}

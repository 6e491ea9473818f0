/*
 * most.c - sizes of memory where lengths vary.  In: a size, as it is with the length that the stage
 * is planned for.  Out: what it is with the greatest length, once that is known.
 *
 * The stage is planned once more each time more of them are known (write/lengths.c): programs of
 * several lengths ask for the same sizes in the same order.
 */
#include "plan.h"

static int64_t most(const StageGen *sg, int64_t size, bool constant)
{
    SizesMet *s = sg->sizes;
    if (!s)
        return size;
    uint32_t i = s->met.n;
    vec_push(sg->a, &s->met, size);
    vec_push(sg->a, &s->constant, constant);
    return i < s->n && s->known[i] ? s->most[i] : size;
}

int64_t cg_most(const StageGen *sg, int64_t size) { return most(sg, size, false); }

int64_t cg_most_constant(const StageGen *sg, int64_t size) { return most(sg, size, true); }

/*
 * most.c - sizes where lengths vary.  In: a size, as it is with the length that the stage is planned
 * or printed for.  Out: what it is with the greatest length, whether it varies, and what divides it
 * with any length, once that is known.
 *
 * The stage is planned once more each time more of them are known (write/lengths.c): programs of
 * several lengths ask for the same sizes in the same order.
 */
#include "plan.h"

static SizeKnown ask(const StageGen *sg, int64_t size, bool constant)
{
    SizesMet *s = sg->sizes;
    if (!s)
        return (SizeKnown){true, false, size, size};
    uint32_t i = s->met.n;
    vec_push(sg->a, &s->met, size);
    vec_push(sg->a, &s->constant, constant);
    return i < s->n && s->at[i].known ? s->at[i] : (SizeKnown){false, true, size, 1};
}

int64_t cg_most(const StageGen *sg, int64_t size) { return ask(sg, size, false).most; }

int64_t cg_most_constant(const StageGen *sg, int64_t size) { return ask(sg, size, true).most; }

bool cg_varies(const StageGen *sg, int64_t size) { return ask(sg, size, false).varies; }

bool cg_divides(const StageGen *sg, int64_t by, int64_t size)
{
    /* what is known may be of another size, until all are */
    return ask(sg, size, false).divisor % by == 0 && size % by == 0;
}

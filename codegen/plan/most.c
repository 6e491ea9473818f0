/*
 * most.c - sizes where lengths vary.  In: a size, as it is with the length that the stage is
 * planned or printed for.  Out: what it is with the greatest length, whether it varies, and what divides it
 * with any length, once that is known.
 *
 * The stage is planned once more each time more of them are known (write/lengths.c): programs of
 * several lengths ask for the same sizes in the same order.  What is known of one decides which are
 * asked for next: parts, such as a step in print, keep that from moving all that come behind.
 */
#include "plan.h"

uint32_t cg_sizes_end(const SizesMet *s, uint32_t part)
{
    return part + 1 < s->from.n ? s->from.at[part + 1] : s->met.n;
}

void cg_sizes_part(const StageGen *sg)
{
    SizesMet *s = sg->sizes;
    if (!s)
        return;
    vec_push(sg->a, &s->from, s->met.n);
    if (s->before && s->from.n <= s->before->from.n)
        s->next = s->before->from.at[s->from.n - 1];
}

/* What was learnt of this size: of the next one that was the same, among a few. */
static SizeKnown recall(SizesMet *s, int64_t size)
{
    enum { FEW = 16 };
    const uint32_t part = s->from.n - 1;
    if (s->before && part < s->before->from.n)
        for (uint32_t i = s->next; i < cg_sizes_end(s->before, part) && i < s->next + FEW; i++)
            if (s->before->met.at[i] == size && s->learnt[i].known) {
                s->next = i + 1;
                return s->learnt[i];
            }
    return (SizeKnown){false, true, size, 1};
}

static SizeKnown ask(const StageGen *sg, int64_t size, bool constant)
{
    if (!sg || !sg->sizes)
        return (SizeKnown){true, false, size, size};
    SizesMet *s = sg->sizes;
    const SizeKnown known = recall(s, size);
    vec_push(sg->a, &s->met, size);
    vec_push(sg->a, &s->constant, constant);
    vec_push(sg->a, &s->said, known);
    return known;
}

int64_t cg_most(const StageGen *sg, int64_t size) { return ask(sg, size, false).most; }

int64_t cg_most_constant(const StageGen *sg, int64_t size) { return ask(sg, size, true).most; }

bool cg_varies(const StageGen *sg, int64_t size) { return ask(sg, size, false).varies; }

int64_t cg_divisor(const StageGen *sg, int64_t size)
{
    const int64_t divisor = ask(sg, size, false).divisor;
    /* what is known may be of another size, until all are */
    return (divisor == 0 ? size : size % divisor) == 0 ? divisor : 1;
}

int64_t cg_divisor_lin(const StageGen *sg, Lin x)
{
    const int64_t rows = cg_divisor(sg, x.b);
    return cg_gcd(cg_divisor(sg, x.c), rows);
}

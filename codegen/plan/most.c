/*
 * most.c - sizes where lengths vary.  In: a size, as it is with the length that the stage is
 * planned or printed for.  Out: what it is with the greatest length, whether it varies, and what
 * divides it with any length, once that is known.
 *
 * The stage is planned once more each time more of them are known (write/lengths.c): programs of
 * several lengths ask for the same sizes in the same order.  What is known of a number is so
 * wherever it is asked for, so that a pass never has two answers; where it is several sizes with
 * this length, the order tells them apart.  What is known of one decides which are asked for next:
 * parts, such as a step in print, keep that from moving all that come behind.
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

static bool same_known(const SizeKnown *x, const SizeKnown *y)
{
    return x->known == y->known && x->varies == y->varies && x->most == y->most &&
           x->divisor == y->divisor;
}

static const uint32_t SEVERAL = NONE - 1;
static uint64_t key_of(int64_t size, bool constant) { return (uint64_t)size * 2 + constant; }

void cg_sizes_anew(Arena *a, SizesMet *s, const SizesMet *before)
{
    *s = (SizesMet){.before = before, .learnt = before->said.at};
    for (uint32_t i = 0; i < before->met.n; i++) {
        if (!s->learnt[i].known)
            continue;
        uint32_t *of = idmap_at(a, &s->of, key_of(before->met.at[i], before->constant.at[i]));
        if (*of == NONE)
            *of = i;
        else if (*of != SEVERAL && !same_known(&s->learnt[*of], &s->learnt[i]))
            *of = SEVERAL;
    }
}

/* What was learnt of this size; of several that are this number of the next one, among a few. */
static SizeKnown recall(SizesMet *s, int64_t size, bool constant)
{
    enum { FEW = 16 };
    const uint32_t part = s->from.n - 1, only = idmap_get(&s->of, key_of(size, constant));
    SizeKnown known = {false, true, size, 1};
    if (s->before && part < s->before->from.n)
        for (uint32_t i = s->next; i < cg_sizes_end(s->before, part) && i < s->next + FEW; i++)
            if (s->before->met.at[i] == size && s->before->constant.at[i] == constant &&
                s->learnt[i].known) {
                s->next = i + 1;
                known = s->learnt[i];
                break;
            }
    return only == NONE || only == SEVERAL ? known : s->learnt[only];
}

static SizeKnown ask(const StageGen *sg, int64_t size, bool constant)
{
    if (!sg || !sg->sizes)
        return (SizeKnown){true, false, size, size};
    SizesMet *s = sg->sizes;
    const SizeKnown known = recall(s, size, constant);
    vec_push(sg->a, &s->met, size);
    vec_push(sg->a, &s->constant, constant);
    vec_push(sg->a, &s->said, known);
    return known;
}

int64_t cg_most(const StageGen *sg, int64_t size) { return ask(sg, size, false).most; }

int64_t cg_most_constant(const StageGen *sg, int64_t size) { return ask(sg, size, true).most; }

bool cg_varies(const StageGen *sg, int64_t size) { return ask(sg, size, false).varies; }

bool cg_stays(const StageGen *sg, int64_t size)
{
    const SizeKnown known = ask(sg, size, false);
    return !known.known || !known.varies;
}

int64_t cg_divisor(const StageGen *sg, int64_t size)
{
    const int64_t divisor = ask(sg, size, false).divisor;
    /* what is known may be of another size, until all are */
    return (divisor == 0 ? size : size % divisor) == 0 ? divisor : 1;
}

int64_t cg_divisor_lin(const StageGen *sg, Lin x)
{
    const int64_t rows = cg_divisor(sg, x.b);
    return size_gcd(cg_divisor(sg, x.c), rows);
}

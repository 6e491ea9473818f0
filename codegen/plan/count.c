/*
 * count.c - how many rows the data leave, where the host must know it: a device's library of
 * products takes sizes from there.  In: the steps of a device's function.  Out: the products that
 * ask, each for all masks that stand when it runs and that nobody has asked for, and for each
 * product of packed rows the number that it has for a size.
 *
 * The host waits where it asks.  So order.c makes masks as early as can be: before the first
 * product over rows of one of them come all that depend on no such product, which are those of a
 * layer, and in a backward, whose forward has chosen, all of them.
 */
#include "plan.h"

static Lin length_of(const Product *p)
{
    return p->packed == PACKED_M ? p->m : p->packed == PACKED_N ? p->n : p->k;
}

static bool packs(const Step *s)
{
    return s->kind == STEP_PRODUCT && !s->empty && s->product->packed != PACKED_NONE;
}

/* By buffer: the last step that writes it, plus one. */
static uint32_t *last_writers(const Func *f, Arena *a)
{
    uint32_t *last = arena_array(a, uint32_t, f->buf.n + 1);
    for (uint32_t i = 0; i < f->step.n; i++)
        for (uint32_t j = 0; j < f->step.at[i].arg.n; j++)
            if (f->step.at[i].arg.at[j].written)
                last[f->step.at[i].arg.at[j].buf] = i + 1;
    return last;
}

/* A mask that has a number: the same elements, as many of them. */
typedef struct { StepArg mask; Lin length; uint32_t buf; } Counted;
typedef VEC(Counted) CountedMasks;

static uint32_t find(const CountedMasks *all, const StepArg *mask, Lin length)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->at[i].mask.buf == mask->buf && lin_eq(all->at[i].mask.offset, mask->offset) &&
            lin_eq(all->at[i].length, length))
            return i;
    return NONE;
}

/* Memory of the host: the function's own. */
static uint32_t number_of(Func *f, ValueId mask)
{
    Buffer b = {.cls = BUF_COUNT,
                .index = f->counted.n,
                .value = mask,
                .type = DT_I64,
                .bytes = (int64_t)dtype_size(DT_I64),
                .first = -1,
                .last = -1,
                .used = true,
                .written = true,
                .over = NONE};
    vec_push(f->a, &f->counted, mask);
    vec_push(f->a, &f->buf, b);
    return f->buf.n - 1;
}

/* Step i asks for what it and later ones need and can have. */
static void ask(Func *f, uint32_t i, const uint32_t *written, CountedMasks *all)
{
    Step *s = &f->step.at[i];
    uint32_t first = all->n;
    for (uint32_t j = i; j < f->step.n; j++) {
        if (!packs(&f->step.at[j]))
            continue;
        const Product *p = f->step.at[j].product;
        const StepArg *mask = &f->step.at[j].arg.at[p->mask];
        if (written[mask->buf] > i || find(all, mask, length_of(p)) != NONE)
            continue;
        vec_push(f->scratch, all, ((Counted){*mask, length_of(p), number_of(f, mask->value)}));
    }
    uint32_t n = all->n - first;
    Lin *length = arena_array(f->a, Lin, n);
    Product *p = arena_new_of(f->a, Product);
    *p = *s->product;
    p->known = s->arg.n;
    p->n_known = n;
    p->length = length;
    for (uint32_t k = 0; k < n; k++) {
        const Counted *x = &all->at[first + k];
        length[k] = x->length;
        vec_push(f->a, &s->arg, x->mask);
        vec_push(f->a, &s->arg,
                 ((StepArg){x->buf, lin(0), true, x->mask.role, NULL, x->mask.value}));
    }
    s->product = p;
}

void cg_counts(Func *f)
{
    const uint32_t *written = last_writers(f, f->scratch);
    CountedMasks all = {0};
    for (uint32_t i = 0; i < f->step.n; i++) {
        if (!packs(&f->step.at[i]))
            continue;
        const StepArg *mask = &f->step.at[i].arg.at[f->step.at[i].product->mask];
        Lin length = length_of(f->step.at[i].product);
        if (find(&all, mask, length) == NONE)
            ask(f, i, written, &all);
        Step *s = &f->step.at[i];
        uint32_t k = find(&all, &s->arg.at[s->product->mask], length);
        INSIST(k != NONE);
        Product *p = arena_new_of(f->a, Product);
        *p = *s->product;
        p->taken = s->arg.n;
        vec_push(f->a, &s->arg,
                 ((StepArg){all.at[k].buf, lin(0), false, s->arg.at[p->mask].role, NULL,
                            all.at[k].mask.value}));
        s->product = p;
    }
}

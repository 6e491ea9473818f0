/*
 * function.c - one function of a stage, from its list of nodes to its steps: the passes in order.
 */
#include "plan.h"

/* In a workspace may be values of the same steps that each function has for itself, such as copies.
 */
static bool same_place(const Buffer *x, const Buffer *y)
{
    if (x->cls == BUF_WORK)
        return y->cls == BUF_WORK && x->offset == y->offset;
    return x->cls == y->cls && x->value == y->value && x->index == y->index;
}

static bool same_steps(const Func *f, const Func *g)
{
    if (f->step.n != g->step.n || f->bytes.work != g->bytes.work)
        return false;
    for (uint32_t i = 0; i < f->step.n; i++) {
        const Step *x = &f->step.at[i], *y = &g->step.at[i];
        if (x->signature != y->signature || x->key != y->key)
            return false;
        for (uint32_t j = 0; j < x->arg.n; j++)
            if (!same_place(&f->buf.at[x->arg.at[j].buf], &g->buf.at[y->arg.at[j].buf]))
                return false;
    }
    return true;
}

FuncKind cg_function_like(const StageGen *sg, FuncKind kind)
{
    for (int k = 0; k < (int)kind; k++)
        if (sg->func[k] && same_steps(sg->func[k], sg->func[kind]))
            return (FuncKind)k;
    return kind;
}

const char *cg_function_kind(Arena *a, FuncKind kind)
{
    static const char *const name[] = {"forward", "infer", "backward", "backward_input",
                                       "backward_weight"};
    return kind < F_AGAIN ? name[kind] : arena_printf(a, "again%d", kind - F_AGAIN);
}

/* Constants have their numbers and places before anything is printed. */
static void number_constants(Func *f)
{
    for (uint32_t i = 0; i < f->buf.n; i++)
        if (f->buf.at[i].cls == BUF_CONST && f->buf.at[i].used)
            cg_constant(f->sg, f->buf.at[i].value);
}

Func *cg_function_new(StageGen *sg, FuncKind kind, Arena *a, Arena *scratch)
{
    Func *f = arena_new_of(a, Func);
    f->sg = sg;
    f->g = sg->g;
    f->a = a;
    f->scratch = scratch;
    f->kind = kind;
    return f;
}

Func *cg_function(StageGen *sg, FuncKind kind)
{
    const Stage *s = sg->stage;
    const Ids *list[F_COUNT] = {&s->forward, &s->infer, &s->backward, &s->backward_input,
                                &s->backward_weight};
    for (uint32_t k = 0; k < sg->stash.again.n; k++)
        list[F_AGAIN + k] = &s->again.at[sg->stash.again.at[k].from].node;
    Func *f = cg_function_new(sg, kind, sg->a, arena_within(sg->a));
    cg_lower(f, list[kind]);
    cg_place(f);
    cg_fuse(f);
    cg_build(f);
    cg_then(f);
    if (graph_members(f->g) > 1)
        cg_overlap(f);
    cg_memory(f);
    cg_steps(f);
    if (sg->device)
        cg_counts(f);
    if (!sg->loops.within)
        cg_optional(f);
    number_constants(f);
    cg_repeat(f);
    sg->func[kind] = f;
    arena_free(f->scratch);
    f->scratch = NULL;
    return f;
}

/*
 * function.c - one function of a stage, from its list of nodes to its steps: the passes in order.
 */
#include "codegen/cg.h"

uint32_t cg_constant(StageGen *sg, ValueId v)
{
    uint32_t *number = idmap_at(sg->a, &sg->position.konst, v);
    if (*number != NONE)
        return *number;
    enum { LONGEST_INLINE = 64 };
    StageConst c = {.value = v, .inlined = shape_elements(&val(sg->g, v)->shape) <= LONGEST_INLINE};
    int64_t bytes = cg_align(shape_elements(&val(sg->g, v)->shape) * (int64_t)dtype_size(val(sg->g, v)->dtype));
    int64_t *total = c.inlined ? &sg->bytes_inlined : &sg->bytes_const;
    c.offset = *total;
    *total += bytes;
    vec_push(sg->a, &sg->konst, c);
    return *number = sg->konst.n - 1;
}

/* Made by a backward function, not computed again from the forward. */
bool cg_is_gradient(const Func *f, ValueId v)
{
    if (f->kind < F_BACKWARD || v >= f->def.n)
        return false;
    if (f->def.at[v] == NONE)
        return f->kind == F_WEIGHT && idmap_get(&f->sg->position.saved, v) != NONE;
    return idmap_get(&f->sg->position.recomputed, v) == NONE;
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
    f->training = kind != F_INFER;
    return f;
}

Func *cg_function(StageGen *sg, FuncKind kind)
{
    const Stage *s = sg->stage;
    const Ids *list[F_COUNT] = {&s->forward, &s->infer, &s->backward, &s->backward_input, &s->backward_weight};
    Func *f = cg_function_new(sg, kind, sg->a, arena_within(sg->a));
    cg_lower(f, list[kind]);
    cg_place(f);
    cg_fuse(f);
    cg_build(f);
    cg_memory(f);
    cg_steps(f);
    number_constants(f);
    sg->func[kind] = f;
    arena_free(f->scratch);
    f->scratch = NULL;
    return f;
}

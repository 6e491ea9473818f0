/*
 * outside.c - what a function finds when it is called.  In: a value it does not make.  Out: the
 * buffer that holds it: a parameter, a constant, an input or output of the stage, a slot of the
 * stash or of what I saved, a gradient that came in.
 */
#include "plan.h"

uint32_t cg_buffer(Func *f, BufClass cls, uint32_t index, ValueId v)
{
    uint32_t *known =
        cls == BUF_WORK ? NULL : idmap_at(f->a, &f->buffer_of, (uint64_t)index << 8 | cls);
    if (known && *known != NONE)
        return *known;
    Buffer b = {.cls = cls,
                .index = index,
                .value = v,
                .type = val(f->g, v)->dtype,
                .bytes = cg_most(f->sg, value_bytes(f->g, v)),
                .first = -1,
                .last = -1};
    vec_push(f->a, &f->buf, b);
    if (known)
        *known = f->buf.n - 1;
    return f->buf.n - 1;
}

void cg_position(StageGen *sg, IdMap *m, uint64_t key, uint32_t at)
{
    uint32_t *known = idmap_at(sg->a, m, key);
    if (*known == NONE)
        *known = at;
}

void cg_position_stage(StageGen *sg)
{
    const Stage *s = sg->stage;
    uint32_t dy = 0;
    for (uint32_t i = 0; i < s->param.n; i++)
        cg_position(sg, &sg->position.param, s->param.at[i].param, i);
    for (uint32_t i = 0; i < s->input.n; i++)
        cg_position(sg, &sg->position.input, s->input.at[i].value, i);
    for (uint32_t o = 0; o < s->output.n; o++) {
        cg_position(sg, &sg->position.output, s->output.at[o].value, o);
        for (uint32_t j = 0; j < s->output.at[o].dys.n; j++, dy++)
            cg_position(sg, &sg->position.dy, s->output.at[o].dys.at[j], dy);
    }
    for (uint32_t i = 0; i < s->recompute.n; i++) {
        const Node *n = &sg->g->node.at[s->recompute.at[i]];
        for (uint32_t o = 0; o < n->nout; o++)
            cg_position(sg, &sg->position.recomputed, n->out[o], i);
    }
}

ValueId cg_copied(const StageGen *sg, NodeId n)
{
    const Node *x = &sg->g->node.at[n];
    const Value *p = x->op == OP_Cast ? val(sg->g, x->in[0]) : NULL;
    bool copied = p && p->kind == V_PARAM && p->dtype == DT_F32 &&
                  sg->params.half_type != DT_NONE && x->attr.to == sg->params.half_type &&
                  !sg->g->param.at[p->param].stat;
    return copied ? x->in[0] : NONE;
}

/* The stage's position of a parameter that it reads. */
static uint32_t position_of(const Func *f, ValueId v)
{
    uint32_t i = idmap_get(&f->sg->position.param, val(f->g, v)->param);
    if (i == NONE)
        BUG("stage %u does not hold the parameter it reads", f->sg->stage->index);
    return i;
}

/* Its layout is not known while these are being chosen. */
static uint32_t kept_buffer(Func *f, BufClass cls, uint32_t index, ValueId v)
{
    const StageGen *sg = f->sg;
    const Refs *layout = cls == BUF_STASH   ? &sg->stash.layout
                         : cls == BUF_SAVED ? &sg->saved.layout
                                            : NULL;
    Standing at = {cls, index};
    if (cls == BUF_SAVED && index < sg->saved.in.n)
        at = sg->saved.in.at[index];
    uint32_t buf = cg_buffer(f, at.cls, at.index, v);
    if (layout && index < layout->n) {
        f->buf.at[buf].layout = layout->at[index];
        f->buf.at[buf].bytes = cg_ref_bytes(f, layout->at[index], v);
    }
    return buf;
}

uint32_t cg_outside(Func *f, ValueId v)
{
    const Positions *position = &f->sg->position;
    const struct { BufClass cls; const IdMap *of; bool here; } place[] = {
        {BUF_IN, &position->input, true},
        {BUF_STASH, &f->sg->stash.position, f->kind >= F_BACKWARD},
        {BUF_OUT, &position->output, f->kind >= F_BACKWARD},
        {BUF_OUT, &position->shown, f->kind >= F_BACKWARD},
        {BUF_SAVED, &f->sg->saved.position, f->kind == F_WEIGHT},
        {BUF_DY, &position->dy, f->kind >= F_BACKWARD},
    };
    const Value *x = val(f->g, v);
    if (x->kind == V_PARAM)
        return cg_buffer(f, BUF_PARAM, position_of(f, v), v);
    if (x->kind == V_NODE && cg_copied(f->sg, x->node) != NONE)
        return cg_buffer(f, BUF_HALF, position_of(f, cg_copied(f->sg, x->node)), v);
    if (x->kind == V_CONST)
        return cg_buffer(f, BUF_CONST, v, v);
    for (size_t k = 0; k < sizeof place / sizeof *place; k++) {
        uint32_t i = place[k].here ? idmap_get(place[k].of, v) : NONE;
        if (i != NONE)
            return kept_buffer(f, place[k].cls, i, v);
    }
    return NONE;
}

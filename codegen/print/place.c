/*
 * place.c - where a buffer stands, as an expression of the function's context: "c->stash +
 * offset.stash.t33", "c->in[0]".
 */
#include <inttypes.h>

#include "target.h"

static const char *const block_name[] = {
    [BUF_PARAM] = "param", [BUF_GRAD] = "grad", [BUF_CONST] = "constants", [BUF_STASH] = "stash",
    [BUF_SAVED] = "saved", [BUF_IN] = "in",     [BUF_OUT] = "out",     [BUF_DY] = "dy",
    [BUF_DX] = "dx",       [BUF_WORK] = "work",   [BUF_HALF] = "half",
    [BUF_COUNT] = "counted",
};

const char *place_block(BufClass c) { return block_name[c]; }

uint32_t place_part(const Func *f, const Buffer *b)
{
    return b->cls == BUF_STASH ? f->sg->stash_part.at[b->index] : NONE;
}

bool place_is_pointer(BufClass c)
{
    return c == BUF_IN || c == BUF_OUT || c == BUF_DY || c == BUF_DX;
}

bool place_in_source(const Out *o, uint32_t buf)
{
    const Buffer *b = &o->f->buf.at[buf];
    return b->cls == BUF_CONST && !o->target->device &&
           o->f->sg->constants.at[cg_constant(o->f->sg, b->value)].inlined;
}

int64_t place_at(const Func *f, uint32_t buf)
{
    const StageGen *sg = f->sg;
    const Buffer *b = &f->buf.at[buf];
    switch (b->cls) {
    case BUF_PARAM: return sg->param_at.at[b->index];
    case BUF_GRAD: return cg_grad_at(sg, b->index);
    case BUF_HALF: return sg->half_at.at[b->index];
    case BUF_CONST: {
        const StageConst *c = &sg->constants.at[cg_constant(f->sg, b->value)];
        return c->offset + (c->inlined ? sg->bytes_const : 0);
    }
    case BUF_STASH: {
        uint32_t part = place_part(f, b);
        return sg->stash_at.at[b->index] - (part == NONE ? 0 : sg->again.at[part].at);
    }
    case BUF_SAVED: return sg->saved_at.at[b->index];
    case BUF_WORK: return b->offset;
    case BUF_COUNT: return b->index * (int64_t)dtype_size(DT_I64);
    default: return b->index;
    }
}

/* The name of what the stage's memory holds there in the end: a value of the workspace may stand in
 * its place before. */
static const char *name_there(const Out *o, const Buffer *b)
{
    const StageGen *sg = o->f->sg;
    if (b->cls == BUF_STASH)
        return arena_printf(o->a, "t%u", sg->stash.at[b->index]);
    if (b->cls == BUF_SAVED)
        return arena_printf(o->a, "t%u", sg->saved.at[b->index]);
    return NULL;
}

static const char *note(const Out *o, const Buffer *b)
{
    const char *bytes = arena_printf(o->a, "%" PRId64 " bytes", b->bytes);
    return b->cls == BUF_WORK ? arena_printf(o->a, "%s, steps %d..%d", bytes, b->first, b->last)
                              : bytes;
}

const char *place_text(Out *o, uint32_t buf)
{
    static const char *const title[] = {
        [BUF_PARAM] = "parameters",
        [BUF_GRAD] = "gradients",
        [BUF_HALF] = "parameters, rounded once a step",
        [BUF_CONST] = "constants",
        [BUF_STASH] = "what forward keeps for backward, one slot for each microbatch",
        [BUF_SAVED] = "what backward_input keeps for backward_weight",
    };
    const Buffer *b = &o->f->buf.at[buf];
    if (b->cls == BUF_COUNT)
        return arena_printf(o->a, "counted + %u", b->index);
    const char *block = block_name[b->cls], *pointer = block, *about = title[b->cls];
    uint32_t part = place_part(o->f, b);
    if (part != NONE) {
        block = "again";
        pointer = arena_printf(o->a, "again[%u]", part);
        about = "parts of it that can be computed again by themselves, each from its own begin";
    }
    if (place_is_pointer(b->cls))
        return arena_printf(o->a, "c->%s[%u]", block, b->index);
    int64_t *at = arena_array(o->a, int64_t, 1);
    at[0] = place_at(o->f, buf);
    const char *name = name_there(o, b), *offset;
    if (b->cls == BUF_WORK)
        offset = offset_of(o, o->name,
                           arena_printf(o->a, "workspace, %" PRId64 " bytes", o->f->bytes_work),
                           out_name(o->f, buf), at, 1, note(o, b));
    else
        offset = offset_of(o, block, about, name ? name : out_name(o->f, buf), at, 1,
                           note(o, b));
    return arena_printf(o->a, "c->%s + %s", pointer, offset);
}

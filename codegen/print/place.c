/*
 * place.c - where a buffer stands, as an expression of the function's context: "(float *)
 * (c->stash + 4096)", "c->in[0]".
 */
#include <string.h>

#include "target.h"

static const char *const block_name[] = {
    [BUF_PARAM] = "param", [BUF_GRAD] = "grad", [BUF_CONST] = "constants", [BUF_STASH] = "stash",
    [BUF_SAVED] = "saved", [BUF_IN] = "in",     [BUF_OUT] = "out",     [BUF_DY] = "dy",
    [BUF_DX] = "dx",       [BUF_WORK] = "work",   [BUF_HALF] = "half",
    [BUF_COUNT] = "counted",
};

uint32_t place_part(const Func *f, const Buffer *b)
{
    return b->cls == BUF_STASH ? f->sg->stash.part.at[b->index] : NONE;
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
    case BUF_PARAM: return sg->params.at.at[b->index];
    case BUF_GRAD: return cg_grad_at(sg, b->index);
    case BUF_HALF: return sg->params.half_at.at[b->index];
    case BUF_CONST: {
        const StageConst *c = &sg->constants.at[cg_constant(f->sg, b->value)];
        return c->offset + c->shift + (c->inlined ? sg->bytes_const : 0);
    }
    case BUF_STASH: {
        uint32_t part = place_part(f, b);
        return sg->stash.at.at[b->index] - (part == NONE ? 0 : sg->stash.again.at[part].at);
    }
    case BUF_SAVED: return sg->saved.at.at[b->index];
    case BUF_WORK: return b->offset;
    default: return b->index;
    }
}

const char *place_text(const Out *o, uint32_t buf, const char *type, const char *at)
{
    const Buffer *b = &o->f->buf.at[buf];
    const uint32_t part = place_part(o->f, b);
    const char *block = part == NONE ? block_name[b->cls]
                                     : arena_printf(o->a, "again[%u]", part);
    if (b->cls == BUF_COUNT)
        return arena_printf(o->a, "counted + %s", at);
    if (place_is_pointer(b->cls))
        return arena_printf(o->a, "%sc->%s[%s]",
                            o->target->cplusplus ? arena_printf(o->a, "(%s)", type) : "", block,
                            at);
    return strcmp(at, "0") == 0 ? arena_printf(o->a, "(%s)c->%s", type, block)
                                : arena_printf(o->a, "(%s)(c->%s + %s)", type, block, at);
}

const char *place_whole(const Out *o, uint32_t buf, const char *type)
{
    if (place_in_source(o, buf))
        return out_name(o->f, buf);
    return place_text(o, buf, type, cg_size(o->a, o->f->sg, place_at(o->f, buf)));
}

/* " transformer.h.2.ln_1.weight", " gradient of .." */
static const char *about(const Out *o, const Buffer *b)
{
    if (b->guest || (b->cls != BUF_PARAM && b->cls != BUF_GRAD && b->cls != BUF_HALF))
        return out_value_text(o->a, o->f->g, b->value);
    return arena_printf(o->a, "%s%s", b->cls == BUF_GRAD ? " gradient of " : " ",
                        cg_comment(o->a, names_param(o->f, b)));
}

void place_declare(const Out *o, uint32_t buf, Text *t)
{
    const Buffer *b = &o->f->buf.at[buf];
    const char *type = arena_printf(o->a, "%s%s *", b->written ? "" : "const ", cg_ctype(b->type));
    const Value *v = val(o->f->g, b->value);
    const char *what = b->over != NONE
                           ? arena_printf(o->a, " in place of %s", out_name(o->f, b->over))
                           : about(o, b);
    text_noted(t, 64,
               arena_printf(o->a, "%s%s = %s;", type, out_name(o->f, buf),
                            place_whole(o, buf, type)),
               arena_printf(o->a, "%s%s%s", cg_shape(o->a, o->f->sg, v->dtype, &v->shape), what,
                            b->optional ? "; NULL: not asked for" : ""));
}

/*
 * out.c - what the printers of steps share: names of pointers and arguments, kernels that are printed once, launches.
 */
#include <string.h>

#include "target.h"

const char *out_lin(Out *o, Lin x)
{
    o->rows |= x.b != 0;
    return lin_text(o->a, x);
}

/* ---- pointers ----------------------------------------------------------------------------------------- */

const char *out_name(const Func *f, uint32_t buf)
{
    const Buffer *b = &f->buf.at[buf];
    switch (b->guest ? BUF_WORK : b->cls) {
    case BUF_PARAM: return arena_printf(f->a, "w%u", b->index);
    case BUF_GRAD: return arena_printf(f->a, "dw%u", b->index);
    case BUF_CONST: return arena_printf(f->a, "c%u", cg_constant(f->sg, b->value));
    case BUF_IN: return arena_printf(f->a, "x%u", b->index);
    case BUF_OUT: return arena_printf(f->a, "y%u", b->index);
    case BUF_DY: return arena_printf(f->a, "dy%u", b->index);
    case BUF_DX: return arena_printf(f->a, "dx%u", b->index);
    case BUF_STASH:
    case BUF_SAVED:
    case BUF_WORK: return arena_printf(f->a, cg_is_gradient(f, b->value) ? "dt%u" : "t%u", b->value);
    }
    BUG("a buffer of class %d", (int)b->cls);
}

const char *out_pointer(Out *o, const StepArg *x)
{
    o->named[x->buf] = true;
    const char *name = out_name(o->f, x->buf);
    return lin_is(x->offset, 0) ? name : arena_printf(o->a, "%s + %s", name, out_lin(o, x->offset));
}

const char *out_arg(Out *o, const Step *s, ValueId v)
{
    for (uint32_t i = 0; i < s->arg.n; i++)
        if (s->arg.at[i].value == v)
            return out_pointer(o, &s->arg.at[i]);
    BUG("value %u is no argument of the step", v);
}

const char **out_argument_names(Out *o, const Nest *n)
{
    const char **name = arena_array(o->a, const char *, n->arg.n + 1);
    const char **base = arena_array(o->a, const char *, n->arg.n + 1);
    for (uint32_t i = 0; i < n->arg.n; i++) {
        const NestArg *x = &n->arg.at[i];
        BufClass c = o->f->buf.at[x->buf].cls;
        bool gradient = c == BUF_DY || c == BUF_DX || cg_is_gradient(o->f, x->value);
        base[i] = c == BUF_GRAD ? "dw" : c == BUF_PARAM ? "w" : x->written ? (gradient ? "dx" : "y") : gradient ? "dy" : "x";
    }
    for (uint32_t i = 0; i < n->arg.n; i++) {
        uint32_t same = 0, before = 0;
        for (uint32_t j = 0; j < n->arg.n; j++) {
            same += strcmp(base[i], base[j]) == 0;
            before += j < i && strcmp(base[i], base[j]) == 0;
        }
        name[i] = same > 1 ? arena_printf(o->a, "%s%u", base[i], before) : base[i];
    }
    return name;
}

/* ---- kernels -------------------------------------------------------------------------------------------- */

/* head: up to the name; tail: the parameters. */
static const char *kernel(Out *o, const char *comment, const char *head, const char *tail, const char *body)
{
    KernelList *k = &o->f->sg->kernels[o->f->sg->target];
    uint32_t *slot = strmap_at(&k->of, arena_printf(o->a, "%s|%s|%s", head, tail, body));
    if (*slot != NONE)
        return k->name.at[*slot];
    *slot = k->name.n;
    const char *name = arena_printf(o->a, "k%u", k->name.n);
    vec_push(o->a, &k->name, name);
    text_add(&k->text, "// %s\n%s %s(%s)\n{\n%s}\n\n", comment, head, name, *tail ? tail : "void", body);
    return name;
}

const char *out_kernel(Out *o, const char *comment, const char *params, const char *body)
{
    return kernel(o, comment, "static void", params, body);
}

const char *out_device_kernel(Out *o, const char *comment, int threads, int blocks, const char *params, const char *body)
{
    const char *bounds = blocks ? arena_printf(o->a, "%d, %d", threads, blocks) : arena_printf(o->a, "%d", threads);
    return kernel(o, comment, arena_printf(o->a, "static __global__ void __launch_bounds__(%s)", bounds), params, body);
}

void out_launch(Out *o, const char *name, const char *grid, const char *block, const char *args)
{
    enum { LONGEST = 120 };
    const char *head = arena_printf(o->a, "PP_LAUNCH(%s, %s, %s, 0, stream,", name, grid, block);
    o->stream = true;
    if (strlen(head) + strlen(args) < LONGEST) {
        text_line(&o->text, "%s %s);", head, args);
        return;
    }
    text_line(&o->text, "%s", head);
    text_line(&o->text, "          %s);", args);
}

/*
 * program.c - one function of a stage as text.  In: its steps.  Out: the pointers that they use, and the list of kernel and library calls,
 * each with the names of the nodes it comes from.
 */
#include <inttypes.h>

#include "target.h"

/* ---- pointers --------------------------------------------------------------------------------------- */

static void print_pointer(const Func *f, const TargetRow *target, uint32_t i, Text *t)
{
    const Buffer *b = &f->buf.at[i];
    const char *from = NULL, *type = cg_ctype(b->type);
    StageGen *sg = f->sg;
    switch (b->cls) {
    case BUF_PARAM: from = arena_printf(f->a, "c->param + %" PRId64, sg->param_at.at[b->index]); break;
    case BUF_GRAD: from = arena_printf(f->a, "c->grad + %" PRId64, sg->grad_at.at[b->index]); break;
    case BUF_CONST: {
        const StageConst *c = &sg->konst.at[cg_constant(sg, b->value)];
        if (c->inlined && !target->device)
            return;
        from = arena_printf(f->a, "c->konst + %" PRId64, c->offset + (c->inlined ? sg->bytes_const : 0));
        break;
    }
    case BUF_STASH: from = arena_printf(f->a, "c->stash + %" PRId64, sg->stash_at.at[b->index]); break;
    case BUF_SAVED: from = arena_printf(f->a, "c->saved + %" PRId64, sg->saved_at.at[b->index]); break;
    case BUF_WORK: from = arena_printf(f->a, "c->work + %" PRId64, b->offset); break;
    case BUF_IN: from = arena_printf(f->a, "c->in[%u]", b->index); break;
    case BUF_OUT: from = arena_printf(f->a, "c->out[%u]", b->index); break;
    case BUF_DY: from = arena_printf(f->a, "c->dy[%u]", b->index); break;
    case BUF_DX: from = arena_printf(f->a, "c->dx[%u]", b->index); break;
    }
    const char *paren = b->cls >= BUF_IN && b->cls <= BUF_DX ? "" : "(", *close = *paren ? ")" : "";
    const char *konst = b->written ? "" : "const ";
    const Value *v = val(f->g, b->value);
    const char *cast = *paren || target->cplusplus ? arena_printf(f->a, "(%s%s *)", konst, type) : "";
    char *what = arena_printf(f->a, "%s%s *%s = %s%s%s%s;", konst, type, out_name(f, i), cast, paren, from, close);
    text_line(t, "%-64s // %s %s", what, shape_print(f->a, v->dtype, &v->shape), cg_comment(f->a, v->name));
}

/* ---- steps ---------------------------------------------------------------------------------------------- */

/* "LayerNormalization /ln_1, Add /add": the model's nodes behind a group, each once. */
static const char *group_text(const Func *f, const Group *k)
{
    enum { MOST = 8 };
    const char *s = NULL, *ops = NULL;
    uint32_t seen[MOST], n = 0, more = 0, n_ops = 0;
    for (uint32_t i = 0; i < k->member.n; i++) {
        const Node *node = &f->g->node.at[k->member.at[i].node];
        bool live = k->kind != G_NEST || node->op != OP_Identity || cg_is_copy(node);
        if (!live)
            continue;
        if (n_ops++ < MOST) {
            const char *op = cg_is_copy(node) ? "copy" : op_name(node->op);
            ops = ops ? arena_printf(f->a, "%s, %s", ops, op) : op;
        }
        if (node->origin >= f->g->origin.n)
            continue;
        bool again = false;
        for (uint32_t j = 0; j < n; j++)
            again |= seen[j] == node->origin;
        if (again)
            continue;
        if (n == MOST) {
            more++;
            continue;
        }
        seen[n++] = node->origin;
        const Origin *o = &f->g->origin.at[node->origin];
        const char *name = o->name ? o->name : "", *type = o->type ? o->type : "";
        const char *one = arena_printf(f->a, "%s %s", cg_comment(f->a, type), cg_comment(f->a, name));
        s = s ? arena_printf(f->a, "%s; %s", s, one) : one;
    }
    if (!s)
        s = "";
    if (more)
        s = arena_printf(f->a, "%s; ..", s);
    if (n_ops > MOST)
        ops = arena_printf(f->a, "%s, ..", ops);
    return arena_printf(f->a, "%s%s%s", *s ? s : "", *s ? ":  " : "", ops ? ops : "");
}

static void print_step(Out *o, const Step *s)
{
    const Func *f = o->f;
    const char *comment = group_text(f, &f->group.at[s->group]);
    const Value *y = s->result == NONE ? NULL : val(f->g, s->result);
    text_line(&o->text, "// %s  %s", comment, y ? shape_print(o->a, y->dtype, &y->shape) : "");
    if (s->empty)
        return;
    switch (s->kind) {
    case STEP_NEST: o->target->nest(o, s, comment); break;
    case STEP_PRODUCT: print_product(o, s); break;
    case STEP_CONVOLUTION: print_convolution(o, s); break;
    case STEP_KERNEL: print_kernel(o, s); break;
    }
}

/* ---- the function --------------------------------------------------------------------------------------- */

static const char *const func_name[F_COUNT] = {"forward", "infer", "backward", "backward_input", "backward_weight"};
static const char *const func_title[F_COUNT] = {
    "training forward", "forward for eval and inference: keeps nothing", "backward: B = I and W together",
    "I: the gradients of the stage's inputs", "W: the gradients of the stage's parameters",
};

static void print_workspace(const Func *f, int64_t bytes_scratch, Text *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->buf.n; i++)
        n += f->buf.at[i].cls == BUF_WORK && f->buf.at[i].used;
    text_add(t, "// %s\n// workspace: %" PRId64 " bytes; %u buffers: name, offset, bytes, alive from step to step\n",
             func_title[f->kind], f->bytes_work, n);
    if (bytes_scratch)
        text_add(t, "// behind it %" PRId64 " bytes in which one kernel leaves partial sums for the next\n", bytes_scratch);
    for (uint32_t i = 0; i < f->buf.n; i++) {
        const Buffer *b = &f->buf.at[i];
        if (b->cls == BUF_WORK && b->used)
            text_add(t, "//   %-8s %10" PRId64 " %10" PRId64 "  %d..%d\n", out_name(f, i), b->offset, b->bytes, b->first, b->last);
    }
}

static bool has_convolutions(const Func *f)
{
    for (uint32_t i = 0; i < f->step.n; i++)
        if (f->step.at[i].kind == STEP_CONVOLUTION && !f->step.at[i].empty)
            return true;
    return false;
}

void cg_function_print(Func *f)
{
    const TargetRow *target = target_row(f->sg->target);
    Out o = {.f = f, .a = f->a, .target = target, .text = {.a = f->a, .indent = 1}, .named = arena_array(f->a, bool, f->buf.n + 1)};
    Text *t = &f->body[f->sg->target];
    *t = (Text){.a = f->a};
    for (uint32_t i = 0; i < f->step.n; i++)
        print_step(&o, &f->step.at[i]);
    f->bytes_scratch[f->sg->target] = o.bytes_scratch;
    print_workspace(f, o.bytes_scratch, t);
    text_line(t, "static void stage%u_%s(const PpCtx *c)", f->sg->stage->index, func_name[f->kind]);
    text_line(t, "{");
    t->indent = 1;
    if (o.rows)
        text_line(t, "const int64_t rows = c->rows;");
    if (o.stream)
        text_line(t, "const cudaStream_t stream = (cudaStream_t)c->stream;");
    if (has_convolutions(f)) {
        const char *type = target->convolution, *cast = target->cplusplus ? arena_printf(f->a, "(%s *const *)", type) : "";
        text_line(t, "%s *const *conv = %sc->state;", type, cast);
    }
    bool none = true;
    for (uint32_t i = 0; i < f->buf.n; i++)
        if (o.named[i]) {
            print_pointer(f, target, i, t);
            none = false;
        }
    if (none)
        text_line(t, "(void)c;");
    t->indent = 0;
    text_add(t, "\n%s}\n\n", o.text.at ? o.text.at : "");
}

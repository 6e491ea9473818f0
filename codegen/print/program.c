/*
 * program.c - one function of a stage, from its node list to C or CUDA C text: the passes in order, then the pointers and the list
 * of kernel and library calls, each with the names of the nodes it comes from.
 */
#include <inttypes.h>
#include <string.h>

#include "print.h"

static bool letter(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool cg_names(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)) != NULL; p += n)
        if (!(p > text && (letter(p[-1]) || p[-1] == '.')) && !letter(p[n]))      /* threadIdx.x is no x */
            return true;
    return false;
}

/* ---- pointers --------------------------------------------------------------------------------------- */

uint32_t cg_constant(StageGen *sg, ValueId v)
{
    for (uint32_t i = 0; i < sg->konst.n; i++)
        if (sg->konst.at[i].value == v)
            return i;
    enum { LONGEST_INLINE = 64 };
    StageConst c = {.value = v, .inlined = shape_elements(&val(sg->g, v)->shape) <= LONGEST_INLINE};
    int64_t bytes = cg_align(shape_elements(&val(sg->g, v)->shape) * (int64_t)dtype_size(val(sg->g, v)->dtype));
    int64_t *total = c.inlined ? &sg->bytes_inlined : &sg->bytes_const;
    c.offset = *total;
    *total += bytes;
    vec_push(sg->a, &sg->konst, c);
    return sg->konst.n - 1;
}

static const char *pointer_name(Func *f, uint32_t buf)
{
    Buffer *b = &f->buf.at[buf];
    if (b->name)
        return b->name;
    const char *name = NULL;
    switch (b->guest ? BUF_WORK : b->cls) {
    case BUF_PARAM: name = arena_printf(f->a, "w%u", b->index); break;
    case BUF_GRAD: name = arena_printf(f->a, "dw%u", b->index); break;
    case BUF_CONST: name = arena_printf(f->a, "c%u", cg_constant(f->sg, b->value)); break;
    case BUF_IN: name = arena_printf(f->a, "x%u", b->index); break;
    case BUF_OUT: name = arena_printf(f->a, "y%u", b->index); break;
    case BUF_DY: name = arena_printf(f->a, "dy%u", b->index); break;
    case BUF_DX: name = arena_printf(f->a, "dx%u", b->index); break;
    case BUF_STASH:
    case BUF_SAVED:
    case BUF_WORK: name = arena_printf(f->a, cg_is_gradient(f, b->value) ? "dt%u" : "t%u", b->value); break;
    }
    b->name = name;
    return name;
}

const char *cg_pointer(Func *f, uint32_t buf, Lin offset, bool write)
{
    (void)write;
    const char *name = pointer_name(f, buf);
    return lin_is(offset, 0) ? name : arena_printf(f->a, "%s + %s", name, lin_text(f->a, offset));
}

/* Made by a backward function, not computed again from the forward. */
bool cg_is_gradient(const Func *f, ValueId v)
{
    if (f->kind < F_BACKWARD || v >= f->def.n)
        return false;
    NodeId def = f->def.at[v];
    if (def == NONE) {
        for (uint32_t i = 0; i < f->sg->saved.n; i++)
            if (f->sg->saved.at[i] == v && f->kind == F_WEIGHT)
                return true;
        return false;
    }
    for (uint32_t i = 0; i < f->sg->stage->recompute.n; i++) {
        const Node *n = &f->g->node.at[f->sg->stage->recompute.at[i]];
        for (uint32_t j = 0; j < n->nout; j++)
            if (n->out[j] == v)
                return false;
    }
    return true;
}

static void print_pointer(Func *f, uint32_t i, Text *t)
{
    const Buffer *b = &f->buf.at[i];
    const char *from = NULL, *type = cg_ctype(b->type);
    StageGen *sg = f->sg;
    switch (b->cls) {
    case BUF_PARAM: from = arena_printf(f->a, "c->param + %" PRId64, sg->param_at.at[b->index]); break;
    case BUF_GRAD: from = arena_printf(f->a, "c->grad + %" PRId64, sg->grad_at.at[b->index]); break;
    case BUF_CONST: {
        const StageConst *c = &sg->konst.at[cg_constant(sg, b->value)];
        if (c->inlined && sg->target == TARGET_C)
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
    const char *cast = *paren || sg->target == TARGET_CUDA ? arena_printf(f->a, "(%s%s *)", konst, type) : "";
    char *what = arena_printf(f->a, "%s%s *%s = %s%s%s%s;", konst, type, b->name, cast, paren, from, close);
    text_line(t, "%-64s // %s %s", what, shape_print(f->a, v->dtype, &v->shape), cg_comment(f->a, v->name));
}

/* ---- kernels ------------------------------------------------------------------------------------------ */

/* head: up to the name; tail: the parameters. */
static const char *kernel(StageGen *sg, const char *comment, const char *head, const char *tail, const char *body)
{
    KernelList *k = &sg->kernels[sg->target];
    uint32_t *slot = strmap_at(&k->of, arena_printf(sg->a, "%s|%s|%s", head, tail, body));
    if (*slot != NONE)
        return k->name.at[*slot];
    *slot = k->name.n;
    const char *name = arena_printf(sg->a, "k%u", k->name.n);
    vec_push(sg->a, &k->name, name);
    text_add(&k->text, "// %s\n%s %s(%s)\n{\n%s}\n\n", comment, head, name, *tail ? tail : "void", body);
    return name;
}

const char *cg_kernel(StageGen *sg, const char *comment, const char *params, const char *body)
{
    return kernel(sg, comment, "static void", params, body);
}

const char *cg_cuda_kernel(StageGen *sg, const char *comment, int threads, int blocks, const char *params, const char *body)
{
    const char *bounds = blocks ? arena_printf(sg->a, "%d, %d", threads, blocks) : arena_printf(sg->a, "%d", threads);
    return kernel(sg, comment, arena_printf(sg->a, "static __global__ void __launch_bounds__(%s)", bounds), params, body);
}

void cg_launch(Func *f, Text *t, const char *name, const char *grid, const char *block, const char *args)
{
    enum { LONGEST = 120 };
    const char *head = arena_printf(f->a, "PP_LAUNCH(%s, %s, %s, 0, stream,", name, grid, block);
    if (strlen(head) + strlen(args) < LONGEST) {
        text_line(t, "%s %s);", head, args);
        return;
    }
    text_line(t, "%s", head);
    text_line(t, "          %s);", args);
}

/* Names that say what an argument is: x, y; dx, dy for gradients; w, dw for parameters. */
static const char **argument_names(Func *f, const Nest *n)
{
    const char **name = arena_array(f->a, const char *, n->arg.n + 1);
    const char **base = arena_array(f->a, const char *, n->arg.n + 1);
    for (uint32_t i = 0; i < n->arg.n; i++) {
        const NestArg *x = &n->arg.at[i];
        BufClass c = f->buf.at[x->buf].cls;
        bool gradient = c == BUF_DY || c == BUF_DX || cg_is_gradient(f, x->value);
        base[i] = c == BUF_GRAD ? "dw" : c == BUF_PARAM ? "w" : x->written ? (gradient ? "dx" : "y") : gradient ? "dy" : "x";
    }
    for (uint32_t i = 0; i < n->arg.n; i++) {
        uint32_t same = 0, before = 0;
        for (uint32_t j = 0; j < n->arg.n; j++) {
            same += strcmp(base[i], base[j]) == 0;
            before += j < i && strcmp(base[i], base[j]) == 0;
        }
        name[i] = same > 1 ? arena_printf(f->a, "%s%u", base[i], before) : base[i];
    }
    return name;
}

/* "LayerNormalization /ln_1, Add /add": the model's nodes behind a group, each once. */
static const char *group_text(Func *f, const Group *k)
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

static void print_nest(Func *f, const Group *k, const char *comment, Text *t)
{
    const Nest *n = k->nest;
    const char **name = argument_names(f, n);
    Text body = {.a = f->a, .indent = 1};
    nest_print_c(f->a, n, name, &body);
    const char *text = body.at ? body.at : "";
    bool rows = cg_names(text, "rows");
    const char *params = rows ? "int64_t rows" : "", *args = rows ? "rows" : "";
    for (uint32_t i = 0; i < n->arg.n; i++) {
        const NestArg *x = &n->arg.at[i];
        const char *sep = *params ? ", " : "";
        params = arena_printf(f->a, "%s%s%s%s *%s", params, sep, x->written ? "" : "const ", cg_ctype(x->type), name[i]);
        args = arena_printf(f->a, "%s%s%s", args, sep, cg_pointer(f, x->buf, x->offset, x->written));
    }
    text_line(t, "%s(%s);", cg_kernel(f->sg, comment, params, text), args);
}

/* ---- kernels of the device ------------------------------------------------------------------------------ */

/* Which arguments share memory with another one, and one of the two is written: a result in its operand's place, or in part of the
   same buffer. */
static bool *shared_arguments(const Func *f, const Nest *n)
{
    bool *alias = arena_array(f->a, bool, n->arg.n + 1);
    for (uint32_t i = 0; i < n->arg.n; i++)
        for (uint32_t j = 0; j < i; j++) {
            const NestArg *x = &n->arg.at[i], *y = &n->arg.at[j];
            const Buffer *b = &f->buf.at[x->buf], *c = &f->buf.at[y->buf];
            bool work = b->cls == BUF_WORK && c->cls == BUF_WORK && b->offset < c->offset + c->bytes && c->offset < b->offset + b->bytes;
            bool outside = b->cls == c->cls && b->cls != BUF_WORK && b->index == c->index;
            if ((x->written || y->written) && (outside || work))
                alias[i] = alias[j] = true;
        }
    return alias;
}

static void print_cuda_nest(Func *f, const Group *k, const char *comment, Text *t)
{
    const Nest *n = k->nest;
    const char **name = argument_names(f, n);
    bool *alias = shared_arguments(f, n);
    CudaNest out;
    nest_print_cuda(f->a, n, f->g->batch > 1 ? f->g->batch : 1, name, alias, &out);
    if (out.bytes_scratch > f->bytes_scratch)
        f->bytes_scratch = out.bytes_scratch;
    for (int i = 0; i < out.n; i++) {
        const CudaKernel *x = &out.kernel[i];
        const char *text = x->body.at ? x->body.at : "", *params = "", *args = "";
        if (cg_names(text, "rows")) {
            params = arena_printf(f->a, "%s rows", out.index);
            args = arena_printf(f->a, strcmp(out.index, "int") == 0 ? "(int)rows" : "rows");
        }
        for (uint32_t j = 0; j < n->arg.n; j++) {
            const NestArg *y = &n->arg.at[j];
            const char *sep = *params ? ", " : "", *only = alias[j] ? "" : "__restrict__ ";
            if (!cg_names(text, name[j]))
                continue;
            params = arena_printf(f->a, "%s%s%s%s *%s%s", params, sep, y->written ? "" : "const ", cg_ctype(y->type), only, name[j]);
            args = arena_printf(f->a, "%s%s%s", args, sep, cg_pointer(f, y->buf, y->offset, y->written));
        }
        for (uint32_t j = 0; j < out.parts; j++) {
            const char *type = cg_ctype(out.part[j].type), *sep = *params ? ", " : "";
            params = arena_printf(f->a, "%s%s%s%s *__restrict__ part%u", params, sep, i ? "const " : "", type, out.part[j].stmt);
            args = arena_printf(f->a, "%s%s(%s *)(c->work + %" PRId64 ")", args, sep, type, f->bytes_work + out.part[j].offset);
        }
        const char *what = out.n == 1 ? comment : arena_printf(f->a, "%s (%s)", comment, i == 0 ? "in parts" : "of the parts");
        text_line(t, "PP_WORK(\"%s\", 0, %s);", nest_kind(n), i == 0 ? lin_text(f->a, nest_bytes(n)) : "0");
        cg_launch(f, t, cg_cuda_kernel(f->sg, what, x->threads, x->blocks, params, text), x->grid, x->block, args);
    }
}

/* Nothing to compute: what it makes has no elements. */
static bool makes_nothing(const Func *f, const Group *k)
{
    if (k->kind == G_NEST)
        return nest_makes_nothing(k->nest);
    const Node *n = &f->g->node.at[k->member.at[0].node];
    for (uint32_t o = 0; o < n->nout; o++)
        if (shape_elements(&val(f->g, n->out[o])->shape) > 0)
            return false;
    return true;
}

static void print_step(Func *f, uint32_t g, Text *t)
{
    const Group *k = &f->group.at[g];
    if (k->kind == G_NONE || (k->kind == G_NEST && !k->nest))
        return;
    const char *comment = group_text(f, k);
    const Node *first = &f->g->node.at[k->member.at[0].node];
    if (k->kind == G_CALL) {
        const Value *y = val(f->g, first->out[0]);
        text_line(t, "// %s  %s", comment, shape_print(f->a, y->dtype, &y->shape));
        if (makes_nothing(f, k))
            f->skips = true;
        else
            cg_print_call(f, k->member.at[0].node, t);
    } else {
        const Nest *n = k->nest;
        const char *shape = "";
        for (uint32_t i = 0; i < n->arg.n && !*shape; i++)
            if (n->arg.at[i].written) {
                const Value *y = val(f->g, n->arg.at[i].value);
                shape = shape_print(f->a, y->dtype, &y->shape);
            }
        text_line(t, "// %s  %s", comment, shape);
        if (makes_nothing(f, k)) {
            f->skips = true;
            return;
        }
        if (f->sg->target == TARGET_CUDA)
            print_cuda_nest(f, k, comment, t);
        else
            print_nest(f, k, comment, t);
    }
}

/* ---- the function --------------------------------------------------------------------------------------- */

static const char *const func_name[F_COUNT] = {"forward", "infer", "backward", "backward_input", "backward_weight"};
static const char *const func_title[F_COUNT] = {
    "training forward", "forward for eval and inference: keeps nothing", "backward: B = I and W together",
    "I: the gradients of the stage's inputs", "W: the gradients of the stage's parameters",
};

static void print_workspace(Func *f, Text *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->buf.n; i++)
        n += f->buf.at[i].cls == BUF_WORK && f->buf.at[i].used;
    text_add(t, "// %s\n// workspace: %" PRId64 " bytes; %u buffers: name, offset, bytes, alive from step to step\n",
             func_title[f->kind], f->bytes_work, n);
    if (f->bytes_scratch)
        text_add(t, "// behind it %" PRId64 " bytes in which one kernel leaves partial sums for the next\n", f->bytes_scratch);
    for (uint32_t i = 0; i < f->buf.n; i++) {
        const Buffer *b = &f->buf.at[i];
        if (b->cls == BUF_WORK && b->used)
            text_add(t, "//   %-8s %10" PRId64 " %10" PRId64 "  %d..%d\n", pointer_name(f, i), b->offset, b->bytes, b->first, b->last);
    }
}

void cg_function_print(Func *f)
{
    Target target = f->sg->target;
    Text calls = {.a = f->a, .indent = 1}, *t = &f->body[target];
    *t = (Text){.a = f->a};
    f->bytes_scratch = 0;
    for (uint32_t o = 0; o < f->order.n; o++)
        print_step(f, f->order.at[o], &calls);
    print_workspace(f, t);
    text_line(t, "static void stage%u_%s(const PpCtx *c)", f->sg->stage->index, func_name[f->kind]);
    text_line(t, "{");
    t->indent = 1;
    const char *body = calls.at ? calls.at : "";
    if (cg_names(body, "rows"))
        text_line(t, "const int64_t rows = c->rows;");
    if (cg_names(body, "stream"))
        text_line(t, "const cudaStream_t stream = (cudaStream_t)c->stream;");
    if (f->uses_conv)
        text_line(t, target == TARGET_CUDA ? "PpCudaConv *const *conv = (PpCudaConv *const *)c->state;" : "PpConv *const *conv = c->state;");
    bool none = true;
    for (uint32_t i = 0; i < f->buf.n; i++)
        if (f->buf.at[i].name && f->buf.at[i].used && (!f->skips || cg_names(body, f->buf.at[i].name))) {
            print_pointer(f, i, t);
            none = false;
        }
    if (none)
        text_line(t, "(void)c;");
    t->indent = 0;
    text_add(t, "\n%s}\n\n", body);
}

/* Constants have their numbers and places before anything is printed. */
static void number_constants(Func *f)
{
    for (uint32_t i = 0; i < f->buf.n; i++)
        if (f->buf.at[i].cls == BUF_CONST && f->buf.at[i].used)
            cg_constant(f->sg, f->buf.at[i].value);
}

Func *cg_function(StageGen *sg, FuncKind kind)
{
    const Stage *s = sg->stage;
    const Ids *list[F_COUNT] = {&s->forward, &s->infer, &s->backward, &s->backward_input, &s->backward_weight};
    Func *f = arena_new_of(sg->a, Func);
    f->sg = sg;
    f->g = sg->g;
    f->a = sg->a;
    f->kind = kind;
    f->training = kind != F_INFER;
    cg_lower(f, list[kind]);
    cg_place(f);
    cg_fuse(f);
    cg_build(f);
    cg_memory(f);
    number_constants(f);
    sg->func[kind] = f;
    return f;
}

/*
 * stage.c - one stage as a C file.  In: a Stage of the Pipe.  Out: its blocks laid out (parameters, gradients, constants, stash,
 * saved values), its functions generated, and stageN.c printed: kernels, functions, tables.
 */
#include <inttypes.h>
#include <string.h>

#include "cg.h"

/* ---- blocks ------------------------------------------------------------------------------------------ */

static bool trained_anywhere(const Pipe *p, uint32_t param)
{
    for (uint32_t s = 0; s < p->stage.n; s++)
        for (uint32_t i = 0; i < p->stage.at[s].param.n; i++)
            if (p->stage.at[s].param.at[i].param == param && p->stage.at[s].param.at[i].grads.n > 0)
                return true;
    return false;
}

static void lay_out_params(StageGen *sg)
{
    for (uint32_t i = 0; i < sg->stage->param.n; i++) {
        const Param *p = &sg->g->param.at[sg->stage->param.at[i].param];
        int64_t bytes = cg_align(shape_elements(&p->shape) * (int64_t)dtype_size(p->dtype));
        vec_push(sg->a, &sg->param_at, sg->bytes_param);
        sg->bytes_param += bytes;
        if (trained_anywhere(sg->pipe, sg->stage->param.at[i].param)) {
            vec_push(sg->a, &sg->grad_at, sg->bytes_grad);
            sg->bytes_grad += bytes;
        } else {
            vec_push(sg->a, &sg->grad_at, -1);
        }
    }
}

static bool holds(const Ids *list, ValueId v)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] == v)
            return true;
    return false;
}

static int64_t bytes_of(const StageGen *sg, ValueId v)
{
    const Value *x = val(sg->g, v);
    return shape_elements(&x->shape) * (int64_t)dtype_size(x->dtype);
}

static void keep(StageGen *sg, Ids *list, ValueId v)
{
    if (!holds(list, v))
        vec_push(sg->a, list, v);
}

/* A value of this list whose elements are exactly an output's: read there. */
static bool is_an_output(StageGen *sg, Func *f, ValueId v)
{
    for (uint32_t o = 0; o < sg->stage->output.n; o++) {
        Ref r;
        ValueId y = sg->stage->output.at[o].value;
        if (!cg_ref_try(f, y, &r) || r.root != v || bytes_of(sg, y) != bytes_of(sg, v) || !cg_is_dense(&r) ||
            !lin_is(r.off, 0))
            continue;
        if (y != v) {
            vec_push(sg->a, &sg->also_output, v);
            vec_push(sg->a, &sg->also_output, o);
        }
        return true;
    }
    return false;
}

/* The place of v's elements for which u, a view of it, stands at *want. */
static bool place_below(Func *f, ValueId u, const Wide *want, ValueId v, Ref *out)
{
    const Value *x = val(f->g, u);
    Wide r;
    if (u == v)
        return cg_narrow(f, want, v, out);
    if (x->kind != V_NODE || !cg_is_view(f, x->node) || !cg_view_invert(f, &f->g->node.at[x->node], want, &r))
        return false;
    return place_below(f, cg_view_operand(f, &f->g->node.at[x->node]), &r, v, out);
}

static bool read_plainly(const Func *f, const Ids *list, int n, ValueId v)
{
    for (int l = 0; l < n; l++)
        for (uint32_t i = 0; i < list[l].n; i++) {
            const Node *x = &f->g->node.at[list[l].at[i]];
            for (uint32_t j = 0; j < x->nin; j++)
                if (x->in[j] == v && !cg_is_view(f, list[l].at[i]))
                    return true;
        }
    return false;
}

/* Row-major, unless a Reshape of the lists could then not be a view: the layout in which it is one. */
static Ref *layout_of(StageGen *sg, Func *f, ValueId v, const Ids *list, int n)
{
    Ref *at = arena_new_of(sg->a, Ref), r;
    *at = cg_dense(f, v);
    NodeId def = f->def.at[v];
    for (int l = 0; def != NONE && l < n; l++)
        for (uint32_t i = 0; i < list[l].n; i++) {
            const Node *node = &sg->g->node.at[list[l].at[i]];
            if (node->op != OP_Reshape && node->op != OP_Transpose)
                continue;
            Ref dense = cg_dense(f, node->out[0]);
            Wide want = cg_widen(&dense);
            if (!place_below(f, node->out[0], &want, v, &r))
                continue;
            const Node *maker = &sg->g->node.at[def];
            Ref now;
            if (!cg_ref_try(f, node->out[0], &now) && cg_keeps_inner(&r) && read_plainly(f, list, n, node->out[0]) && (cg_fusable(maker) || cg_call_writes(f, maker, 0, &r))) {
                *at = r;
                return at;
            }
        }
    return at;
}

/* May a later function read v through the memory of its root?  Not when strides cannot say it and others than products read it. */
static bool shown_by_root(const StageGen *sg, Func *f, ValueId v)
{
    const Stage *s = sg->stage;
    const Ids later[] = {s->backward, s->backward_input, s->backward_weight};
    Ref r;
    return cg_ref_try(f, v, &r) || !read_plainly(f, later, 3, v);
}

/*
 * What a later function reads of `list`, as memory: views are read through the value they show, unless that is larger
 * than all that is read of it.
 */
static Func *choose_kept(StageGen *sg, FuncKind kind, const Ids *nodes, const Ids *read, Ids *kept)
{
    Func *f = arena_new_of(sg->a, Func);
    f->sg = sg;
    f->g = sg->g;
    f->a = sg->a;
    f->kind = kind;
    f->training = true;
    cg_lower(f, nodes);
    ValueId *root = arena_array(sg->a, ValueId, read->n + 1);
    for (uint32_t i = 0; i < read->n; i++) {
        Ref r;
        root[i] = shown_by_root(sg, f, read->at[i]) ? cg_root(f, read->at[i]) : read->at[i];
        const Buffer *b = f->def.at[root[i]] == NONE && cg_ref_try(f, root[i], &r) && r.buf != NONE ? &f->buf.at[r.buf] : NULL;
        if (b && b->cls != BUF_DY)
            root[i] = NONE;                             /* lives on by itself */
    }
    for (uint32_t i = 0; i < read->n; i++) {
        int64_t sum = 0;
        if (root[i] == NONE)
            continue;
        for (uint32_t j = 0; j < read->n; j++)
            sum += root[j] == root[i] ? bytes_of(sg, read->at[j]) : 0;
        ValueId v = sum >= bytes_of(sg, root[i]) ? root[i] : read->at[i];
        if (kind == F_FORWARD && is_an_output(sg, f, v))
            continue;
        keep(sg, kept, v);
    }
    return f;
}

static void lay_out_stash(StageGen *sg)
{
    Stage *s = sg->stage;
    const Ids first[] = {s->forward, s->backward}, second[] = {s->backward_input, s->backward_weight};
    Func *f = choose_kept(sg, F_FORWARD, &s->forward, &s->stash, &sg->stash);
    for (uint32_t i = 0; i < sg->stash.n; i++) {
        vec_push(sg->a, &sg->stash_layout, layout_of(sg, f, sg->stash.at[i], first, 2));
        vec_push(sg->a, &sg->stash_at, sg->bytes_stash);
        sg->bytes_stash += cg_align(bytes_of(sg, sg->stash.at[i]));
    }
    f = choose_kept(sg, F_INPUT, &s->backward_input, &s->saved, &sg->saved);
    for (uint32_t i = 0; i < sg->saved.n; i++) {
        vec_push(sg->a, &sg->saved_layout, layout_of(sg, f, sg->saved.at[i], second, 2));
        vec_push(sg->a, &sg->saved_at, sg->bytes_saved);
        sg->bytes_saved += cg_align(bytes_of(sg, sg->saved.at[i]));
    }
}

/* A value that is a model output twice leaves the stage twice. */
static void split_outputs(StageGen *sg)
{
    Stage *s = sg->stage;
    for (uint32_t o = 0, n = s->output.n; o < n; o++)
        while (s->output.at[o].outputs.n > 1) {
            StageOutput twin = {.value = s->output.at[o].value};
            vec_push(sg->a, &twin.outputs, s->output.at[o].outputs.at[--s->output.at[o].outputs.n]);
            vec_push(sg->a, &s->output, twin);
        }
}

static bool has_backward(const Stage *s)
{
    for (uint32_t i = 0; i < s->input.n; i++)
        if (s->input.at[i].grads.n > 0)
            return true;
    for (uint32_t i = 0; i < s->param.n; i++)
        if (s->param.at[i].grads.n > 0)
            return true;
    return false;
}

static bool same_forward(const StageGen *sg)
{
    const Stage *s = sg->stage;
    if (sg->stash.n > 0 || s->forward.n != s->infer.n)
        return false;
    for (uint32_t i = 0; i < s->forward.n; i++)
        if (s->forward.at[i] != s->infer.at[i] || sg->g->node.at[s->forward.at[i]].op == OP_Phase)
            return false;
    return sg->g->update.n == 0;
}

StageGen *cg_stage(Pipe *p, uint32_t index)
{
    StageGen *sg = arena_new_of(p->graph->arena, StageGen);
    sg->pipe = p;
    sg->g = p->graph;
    sg->a = p->graph->arena;
    sg->stage = &p->stage.at[index];
    sg->fixed = p->uneven.n > 0;
    sg->konst_of.arena = sg->kernel_of.arena = sg->conv_of.arena = sg->a;
    sg->kernels.a = sg->a;
    split_outputs(sg);
    sg->in_read = arena_array(sg->a, uint8_t, sg->stage->input.n + 1);
    sg->out_read = arena_array(sg->a, uint8_t, sg->stage->output.n + 1);
    lay_out_params(sg);
    lay_out_stash(sg);
    cg_function(sg, F_FORWARD);
    if (!same_forward(sg))
        cg_function(sg, F_INFER);
    for (int k = F_BACKWARD; k <= F_WEIGHT && has_backward(sg->stage); k++)
        cg_function(sg, (FuncKind)k);
    return sg;
}

/* ---- printing ------------------------------------------------------------------------------------------- */

const char *cg_tensor(Arena *a, const Graph *g, const char *name, Dtype t, const Shape *s, int batch)
{
    const char *dim = "";
    for (int i = 0; i < s->rank; i++)
        dim = arena_printf(a, "%s%s%" PRId64, dim, i ? ", " : "", s->d[i]);
    if (batch >= 0 && (batch >= s->rank || g->batch <= 0 || s->d[batch] % g->batch != 0))
        batch = -1;
    return arena_printf(a, "{.name = %s, .dtype = %d, .rank = %d, .dim = {%s}, .batch_dim = %d, .bytes = %" PRId64 "}",
                        cg_string(a, name), (int)t, s->rank, *dim ? dim : "0", batch < 0 ? -1 : batch,
                        shape_elements(s) * (int64_t)dtype_size(t));
}

static const char *value_tensor(const StageGen *sg, ValueId v)
{
    const Value *x = val(sg->g, v);
    return cg_tensor(sg->a, sg->g, x->name, x->dtype, &x->shape, x->batch);
}

static int kept_until(uint8_t bits) { return bits & 2 ? 2 : bits & 1 ? 1 : 0; }

static uint32_t data_input(const Pipe *p, ValueId v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->graph->input.n; i++) {
        if (p->graph->input.at[i] == v)
            return n;
        n += p->graph->input.at[i] != p->loss_scale;
    }
    BUG("stage input '%s' is no model input", val(p->graph, v)->name);
}

static uint32_t output_of(const Stage *s, ValueId v)
{
    for (uint32_t i = 0; i < s->output.n; i++)
        if (s->output.at[i].value == v)
            return i;
    BUG("stage %u does not put out value %u", s->index, v);
}

static void print_inputs(const StageGen *sg, Text *t)
{
    const Pipe *p = sg->pipe;
    const Stage *s = sg->stage;
    if (s->input.n == 0)
        return;
    text_line(t, "static const PpInput inputs[] = {");
    for (uint32_t i = 0; i < s->input.n; i++) {
        const StageInput *in = &s->input.at[i];
        bool scale = in->value == p->loss_scale;
        int64_t from = scale ? -2 : in->from == NONE ? -1 : (int64_t)in->from;
        uint32_t which = scale ? 0 : in->from == NONE ? data_input(p, in->value) : output_of(&p->stage.at[in->from], in->value);
        text_line(t, "    {.t = %s,\n     .from = %" PRId64 ", .from_output = %u, .stashed = %d, .grads = %u},",
                  value_tensor(sg, in->value), from, which, kept_until(sg->in_read[i]), in->grads.n);
    }
    text_line(t, "};\n");
}

static void print_outputs(const StageGen *sg, Text *t)
{
    const Stage *s = sg->stage;
    if (s->output.n == 0)
        return;
    text_line(t, "static const PpOutput outputs[] = {");
    for (uint32_t i = 0; i < s->output.n; i++) {
        const StageOutput *out = &s->output.at[i];
        int64_t model = out->outputs.n > 0 ? (int64_t)out->outputs.at[0] : -1;
        text_line(t, "    {.t = %s,\n     .model_output = %" PRId64 ", .stashed = %d, .dys = %u},", value_tensor(sg, out->value),
                  model, kept_until(sg->out_read[i]), out->dys.n);
    }
    text_line(t, "};\n");
}

/* Consumers by descending stage, each one's contributions in its order: as autodiff filled StageOutput.dys. */
static uint32_t print_dys(const StageGen *sg, Text *t)
{
    const Pipe *p = sg->pipe;
    const Stage *s = sg->stage;
    uint32_t n = 0;
    for (uint32_t o = 0; o < s->output.n; o++) {
        uint32_t k = 0;
        for (uint32_t c = p->stage.n; s->output.at[o].dys.n > 0 && c-- > s->index + 1;)
            for (uint32_t i = 0; i < p->stage.at[c].input.n; i++) {
                const StageInput *in = &p->stage.at[c].input.at[i];
                for (uint32_t j = 0; in->value == s->output.at[o].value && in->from == s->index && j < in->grads.n; j++, k++) {
                    INSIST(k < s->output.at[o].dys.n && s->output.at[o].dys.at[k] == in->grads.at[j]);
                    if (n++ == 0)
                        text_line(t, "static const PpDy dys[] = {");
                    text_line(t, "    {.output = %u, .from = %u, .input = %u, .index = %u},", o, c, i, j);
                }
            }
        INSIST(k == s->output.at[o].dys.n);
    }
    if (n)
        text_line(t, "};\n");
    return n;
}

static void print_params(const StageGen *sg, Text *t)
{
    const Stage *s = sg->stage;
    static const char *const use[] = {"PP_OWN", "PP_TRANSMIT", "PP_REPLICATE"};
    if (s->param.n == 0)
        return;
    text_line(t, "static const PpParam params[] = {");
    for (uint32_t i = 0; i < s->param.n; i++) {
        const ParamUse *u = &s->param.at[i];
        const Param *q = &sg->g->param.at[u->param];
        text_line(t, "    {.t = %s,\n     .param = %u, .use = %s, .from = %u, .trainable = %d, .stat = %d, .offset = %" PRId64
                  ", .grad_offset = %" PRId64 "},", cg_tensor(sg->a, sg->g, q->name, q->dtype, &q->shape, -1), u->param,
                  use[u->use], u->use == USE_OWN ? s->index : u->from, q->trainable, q->stat, sg->param_at.at[i], sg->grad_at.at[i]);
    }
    text_line(t, "};\n");
}

const char *cg_const_name(const StageGen *sg, uint32_t i)
{
    return arena_printf(sg->a, "%%const.%u", i);
}

static uint32_t print_consts(const StageGen *sg, Text *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sg->konst.n; i++) {
        const StageConst *c = &sg->konst.at[i];
        const Value *v = val(sg->g, c->value);
        if (c->inlined)
            continue;
        if (n++ == 0)
            text_line(t, "static const PpConst consts[] = {");
        text_line(t, "    {.t = %s, .offset = %" PRId64 "},", cg_tensor(sg->a, sg->g, cg_const_name(sg, i), v->dtype, &v->shape, -1),
                  c->offset);
    }
    if (n)
        text_line(t, "};\n");
    return n;
}

static void print_inline_consts(const StageGen *sg, Text *t)
{
    for (uint32_t i = 0; i < sg->konst.n; i++) {
        const StageConst *c = &sg->konst.at[i];
        const Value *v = val(sg->g, c->value);
        if (!c->inlined)
            continue;
        int64_t n = shape_elements(&v->shape);
        text_add(t, "// %s %s\nstatic const %s c%u[] = {", shape_print(sg->a, v->dtype, &v->shape), cg_comment(sg->a, v->name),
                 cg_ctype(v->dtype), i);
        for (int64_t j = 0; j < n; j++) {
            int64_t whole;
            double x = cg_element(v, j, &whole);
            text_add(t, "%s%s", j ? ", " : "", cg_number(sg->a, v->dtype, x, whole));
        }
        text_add(t, n ? "};\n\n" : "0};\n\n");
    }
}

static void print_convs(const StageGen *sg, Text *t)
{
    uint32_t n = sg->conv.n;
    if (n == 0)
        return;
    text_line(t, "static const PpConvShape conv_shape[%u] = {", n);
    for (uint32_t i = 0; i < n; i++)
        text_line(t, "    %s,", sg->conv.at[i]);
    text_line(t, "};\n");
    text_line(t, "static void *stage%u_open(int threads)\n{", sg->stage->index);
    text_line(t, "    PpConv **conv = calloc(%u, sizeof *conv);", n);
    text_line(t, "    for (int i = 0; conv && i < %u; i++)", n);
    text_line(t, "        conv[i] = pp_conv_open(&conv_shape[i], threads);");
    text_line(t, "    return conv;\n}\n");
    text_line(t, "static void stage%u_close(void *state)\n{", sg->stage->index);
    text_line(t, "    PpConv **conv = state;");
    text_line(t, "    for (int i = 0; conv && i < %u; i++)", n);
    text_line(t, "        pp_conv_close(conv[i]);");
    text_line(t, "    free(conv);\n}\n");
}

static void print_kept(const StageGen *sg, const char *what, const Ids *list, const int64_t *at, int64_t total, Text *t)
{
    if (list->n == 0)
        return;
    text_add(t, "// %s: %" PRId64 " bytes a microbatch\n", what, total);
    for (uint32_t i = 0; i < list->n; i++) {
        const Value *v = val(sg->g, list->at[i]);
        text_add(t, "//   t%-6u %10" PRId64 " %10" PRId64 "  %s %s\n", list->at[i], at[i], bytes_of(sg, list->at[i]),
                 shape_print(sg->a, v->dtype, &v->shape), cg_comment(sg->a, v->name));
    }
    text_add(t, "//\n");
}

static int64_t flops(const StageGen *sg, const Ids *list)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        n += cost_flops(sg->g, list->at[i]);
    return n;
}

static uint32_t dx_count(const Stage *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->input.n; i++)
        n += s->input.at[i].grads.n;
    return n;
}

static void print_stage_table(const StageGen *sg, uint32_t dys, uint32_t consts, int64_t work, Text *t)
{
    const Stage *s = sg->stage;
    const char *index = arena_printf(sg->a, "stage%u", s->index);
    bool back = has_backward(s);
    text_line(t, "const PpStage pp_stage%u = {", s->index);
    t->indent = 1;
    text_line(t, ".index = %u, .label = %s,", s->index, cg_string(sg->a, s->label ? s->label : ""));
    text_line(t, ".n_input = %u, .n_output = %u, .n_dy = %u, .n_dx = %u, .n_param = %u, .n_const = %u,", s->input.n, s->output.n,
              dys, dx_count(s), s->param.n, consts);
    text_line(t, ".input = %s, .output = %s, .dy = %s, .param = %s, .konst = %s,", s->input.n ? "inputs" : "NULL",
              s->output.n ? "outputs" : "NULL", dys ? "dys" : "NULL", s->param.n ? "params" : "NULL", consts ? "consts" : "NULL");
    text_line(t, ".bytes_param = %" PRId64 ", .bytes_grad = %" PRId64 ", .bytes_const = %" PRId64 ",", sg->bytes_param, sg->bytes_grad,
              sg->bytes_const);
    text_line(t, ".bytes_stash = %" PRId64 ", .bytes_saved = %" PRId64 ", .bytes_work = %" PRId64 ",", sg->bytes_stash,
              sg->bytes_saved, work);
    text_line(t, ".flops_forward = %" PRId64 ", .flops_input = %" PRId64 ", .flops_weight = %" PRId64 ",", flops(sg, &s->forward),
              flops(sg, &s->backward_input), flops(sg, &s->backward_weight));
    text_line(t, ".has_backward = %d,", back);
    if (sg->conv.n)
        text_line(t, ".open = %s_open, .close = %s_close,", index, index);
    text_line(t, ".forward = %s_forward, .infer = %s_%s,", index, index, sg->func[F_INFER] ? "infer" : "forward");
    if (back)
        text_line(t, ".backward = %s_backward, .backward_input = %s_backward_input, .backward_weight = %s_backward_weight,", index,
                  index, index);
    t->indent = 0;
    text_line(t, "};");
}

void cg_stage_print(StageGen *sg, Text *t)
{
    const Stage *s = sg->stage;
    int64_t work = 0;
    for (int k = 0; k < F_COUNT; k++)
        if (sg->func[k] && sg->func[k]->bytes_work > work)
            work = sg->func[k]->bytes_work;
    text_add(t, "// stage%u.c - stage %u of %u: %s\n// Written by ppsplit from the model's graph.  rows: the samples of this microbatch, at most %"
             PRId64 ".\n//\n", s->index, s->index, sg->pipe->stage.n, cg_comment(sg->a, s->label ? s->label : ""), sg->g->batch);
    text_add(t, "// parameters: %" PRId64 " bytes, gradients: %" PRId64 ", constants: %" PRId64 ", workspace: %" PRId64 "\n//\n",
             sg->bytes_param, sg->bytes_grad, sg->bytes_const, work);
    print_kept(sg, "stash (forward writes, backward reads)", &sg->stash, sg->stash_at.at, sg->bytes_stash, t);
    print_kept(sg, "saved (I writes, W reads)", &sg->saved, sg->saved_at.at, sg->bytes_saved, t);
    text_add(t, "#include \"pp_kernel.h\"\n\n");
    print_inline_consts(sg, t);
    text_add(t, "// ---- kernels ----\n\n%s", sg->kernels.at ? sg->kernels.at : "");
    text_add(t, "// ---- functions ----\n\n");
    for (int k = 0; k < F_COUNT; k++)
        if (sg->func[k])
            text_add(t, "%s", sg->func[k]->body.at);
    text_add(t, "// ---- tables ----\n\n");
    print_inputs(sg, t);
    print_outputs(sg, t);
    uint32_t dys = print_dys(sg, t);
    print_params(sg, t);
    uint32_t consts = print_consts(sg, t);
    print_convs(sg, t);
    print_stage_table(sg, dys, consts, work, t);
}

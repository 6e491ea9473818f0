/*
 * tables.c - what a stage tells the runtime about itself: PpStage and all it points to.  In: a stage whose functions are printed.  Out: tables,
 * in C with designated initialisers, in CUDA C (C++17 has none) with the fields' names as comments, in their order.
 */
#include <inttypes.h>
#include <stdio.h>

#include "codegen/print/target.h"

/* ---- one field -------------------------------------------------------------------------------------------- */

/* ".rank = 2", or where names cannot stand: "rank 2" with the name as a comment. */
static const char *field(Arena *a, const TargetRow *target, const char *name, const char *fmt, ...) PRINTF_LIKE(4, 5);

static const char *field(Arena *a, const TargetRow *target, const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    INSIST(n >= 0);
    char *value = arena_alloc(a, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(value, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return arena_printf(a, target->cplusplus ? "/* %s */ %s" : ".%s = %s", name, value);
}

/* Fields of a table, one after the other, and the label of each. */
#define F(name, ...) field(sg->a, target_row(sg->target), name, __VA_ARGS__)

const char *cg_tensor(Arena *a, const Graph *g, Target number, const char *name, Dtype t, const Shape *s, int batch)
{
    const TargetRow *target = target_row(number);
    const char *dim = "";
    for (int i = 0; i < s->rank; i++)
        dim = arena_printf(a, "%s%s%" PRId64, dim, i ? ", " : "", s->d[i]);
    if (batch >= 0 && (batch >= s->rank || g->batch <= 0 || s->d[batch] % g->batch != 0))
        batch = -1;
    return arena_printf(a, "{%s, %s, %s, %s, %s, %s}", field(a, target, "name", "%s", cg_string(a, name)), field(a, target, "dtype", "%d", (int)t),
                        field(a, target, "rank", "%d", s->rank), field(a, target, "dim", "{%s}", *dim ? dim : "0"),
                        field(a, target, "batch_dim", "%d", batch < 0 ? -1 : batch),
                        field(a, target, "bytes", "%" PRId64, shape_elements(s) * (int64_t)dtype_size(t)));
}

static const char *tensor(const StageGen *sg, const char *name, Dtype t, const Shape *s, int batch)
{
    return cg_tensor(sg->a, sg->g, sg->target, name, t, s, batch);
}

static const char *value_tensor(const StageGen *sg, ValueId v)
{
    const Value *x = val(sg->g, v);
    return tensor(sg, x->name, x->dtype, &x->shape, x->batch);
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
        text_line(t, "    {%s,\n     %s, %s, %s, %s},", F("t", "%s", value_tensor(sg, in->value)), F("from", "%" PRId64, from),
                  F("from_output", "%u", which), F("stashed", "%d", kept_until(sg->in_read[i])), F("grads", "%u", in->grads.n));
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
        text_line(t, "    {%s,\n     %s, %s, %s},", F("t", "%s", value_tensor(sg, out->value)), F("model_output", "%" PRId64, model),
                  F("stashed", "%d", kept_until(sg->out_read[i])), F("dys", "%u", out->dys.n));
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
                    text_line(t, "    {%s, %s, %s, %s, %s},", F("output", "%u", o), F("from", "%u", c), F("input", "%u", i), F("index", "%u", j),
                              F("stashed", "%d", kept_until(sg->dy_read[n - 1])));
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
        text_line(t, "    {%s,\n     %s, %s, %s, %s, %s, %s, %s},", F("t", "%s", tensor(sg, q->name, q->dtype, &q->shape, -1)),
                  F("param", "%u", u->param), F("use", "%s", use[u->use]), F("from", "%u", u->use == USE_OWN ? s->index : u->from),
                  F("trainable", "%d", q->trainable), F("stat", "%d", q->stat), F("offset", "%" PRId64, sg->param_at.at[i]),
                  F("grad_offset", "%" PRId64, sg->grad_at.at[i]));
    }
    text_line(t, "};\n");
}

const char *cg_const_name(const StageGen *sg, uint32_t i)
{
    return arena_printf(sg->a, "%%const.%u", i);
}

/* Inlined ones stand in the C file itself; the device reads all of them in its memory. */
static uint32_t print_consts(const StageGen *sg, Text *t)
{
    bool device = target_row(sg->target)->device;
    uint32_t n = 0;
    for (int inlined = 0; inlined <= device; inlined++)
        for (uint32_t i = 0; i < sg->konst.n; i++) {
            const StageConst *c = &sg->konst.at[i];
            const Value *v = val(sg->g, c->value);
            if (c->inlined != inlined)
                continue;
            if (n++ == 0)
                text_line(t, "static const PpConst consts[] = {");
            const char *data = !device ? "" : arena_printf(sg->a, ", %s", F("data", "%s", inlined ? arena_printf(sg->a, "c%u", i) : "NULL"));
            text_line(t, "    {%s, %s%s},", F("t", "%s", tensor(sg, cg_const_name(sg, i), v->dtype, &v->shape, -1)),
                      F("offset", "%" PRId64, c->offset + (inlined ? sg->bytes_const : 0)), data);
        }
    if (n)
        text_line(t, "};\n");
    return n;
}

/* ---- convolutions ------------------------------------------------------------------------------------------- */

static const char *dims(const StageGen *sg, const char *name, const int64_t *d, int n)
{
    const char *s = "";
    for (int i = 0; i < n; i++)
        s = arena_printf(sg->a, "%s%s%" PRId64, s, i ? ", " : "", d[i]);
    return F(name, "{%s}", s);
}

static void print_conv_shapes(const StageGen *sg, Text *t)
{
    text_line(t, "static const PpConvShape conv_shape[%u] = {", sg->conv.n);
    for (uint32_t i = 0; i < sg->conv.n; i++) {
        const StageConv *c = &sg->conv.at[i];
        text_line(t, "    {%s, %s, %s, %s, %s, %s, %s,\n     %s, %s, %s, %s, %s},", F("dtype", "%s", type_runtime(c->type)),
                  F("spatial", "%d", c->spatial), F("group", "%" PRId64, c->group), F("c", "%" PRId64, c->c), F("m", "%" PRId64, c->m),
                  dims(sg, "in", c->in, c->spatial), dims(sg, "out", c->out, c->spatial), dims(sg, "kernel", c->kernel, c->spatial),
                  dims(sg, "stride", c->stride, c->spatial), dims(sg, "dilation", c->dilation, c->spatial),
                  dims(sg, "pad_begin", c->pad_begin, c->spatial), dims(sg, "pad_end", c->pad_end, c->spatial));
    }
    text_line(t, "};\n");
}

static void print_convs(const StageGen *sg, Text *t)
{
    const TargetRow *target = target_row(sg->target);
    uint32_t n = sg->conv.n;
    const char *type = target->convolution, *cast = target->cplusplus ? arena_printf(sg->a, "(%s **)", type) : "";
    if (n == 0)
        return;
    print_conv_shapes(sg, t);
    if (target->device) {
        text_add(t, "static const int64_t conv_rows[%u] = {", n);
        for (uint32_t i = 0; i < n; i++)
            text_add(t, "%s%" PRId64, i ? ", " : "", sg->conv.at[i].rows);
        text_line(t, "};\n");
    }
    text_line(t, "static void *stage%u_open(int threads)\n{", sg->stage->index);
    if (target->device)
        text_line(t, "    (void)threads;\n    %sconv_separate();", target->call);
    text_line(t, "    %s **conv = %scalloc(%u, sizeof *conv);", type, cast, n);
    text_line(t, "    for (int i = 0; conv && i < %u; i++)", n);
    text_line(t, "        conv[i] = %sconv_open(&conv_shape[i], %s);", target->call, target->device ? "conv_rows[i]" : "threads");
    text_line(t, "    return conv;\n}\n");
    text_line(t, "static void stage%u_close(void *state)\n{", sg->stage->index);
    text_line(t, "    %s **conv = %sstate;", type, cast);
    text_line(t, "    for (int i = 0; conv && i < %u; i++)", n);
    text_line(t, "        %sconv_close(conv[i]);", target->call);
    text_line(t, "    free(conv);\n}\n");
}

/* ---- the stage ------------------------------------------------------------------------------------------------ */

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

/* A function of the stage, or NULL. */
static const char *function(const StageGen *sg, const char *name, bool there)
{
    return there ? arena_printf(sg->a, "stage%u_%s", sg->stage->index, name) : "NULL";
}

static void print_sizes(const StageGen *sg, Text *t)
{
    const Stage *s = sg->stage;
    bool device = target_row(sg->target)->device;
    text_line(t, "%s, %s, %s,", F("bytes_param", "%" PRId64, sg->bytes_param), F("bytes_grad", "%" PRId64, sg->bytes_grad),
              F("bytes_const", "%" PRId64, sg->bytes_const + (device ? sg->bytes_inlined : 0)));
    text_line(t, "%s, %s, %s,", F("bytes_stash", "%" PRId64, sg->bytes_stash), F("bytes_saved", "%" PRId64, sg->bytes_saved),
              F("bytes_work", "%" PRId64, cg_bytes_work(sg, sg->target)));
    if (device)
        text_line(t, "%s,", F("bytes_state", "0"));
    text_line(t, "%s, %s, %s,", F("flops_forward", "%" PRId64, flops(sg, &s->forward)), F("flops_input", "%" PRId64, flops(sg, &s->backward_input)),
              F("flops_weight", "%" PRId64, flops(sg, &s->backward_weight)));
}

static void print_functions(const StageGen *sg, Text *t)
{
    bool cuda = target_row(sg->target)->cplusplus, back = cg_has_backward(sg->stage), conv = sg->conv.n > 0;
    text_line(t, "%s,", F("has_backward", "%d", back));
    if (conv || cuda)
        text_line(t, "%s, %s,", F("open", "%s", function(sg, "open", conv)), F("close", "%s", function(sg, "close", conv)));
    text_line(t, "%s, %s,", F("forward", "%s", function(sg, "forward", true)),
              F("infer", "%s", function(sg, sg->func[F_INFER] ? "infer" : "forward", true)));
    if (back || cuda)
        text_line(t, "%s, %s, %s,", F("backward", "%s", function(sg, "backward", back)),
                  F("backward_input", "%s", function(sg, "backward_input", back)),
                  F("backward_weight", "%s", function(sg, "backward_weight", back)));
}

static void print_stage_table(const StageGen *sg, uint32_t dys, uint32_t consts, Text *t)
{
    const Stage *s = sg->stage;
    const TargetRow *target = target_row(sg->target);
    if (target->cplusplus)                              /* a const of C++ is seen by others only when declared so before */
        text_line(t, "extern \"C\" {\nextern const PpStage pp_stage%u%s;\n}\n", s->index, target->table);
    text_line(t, "const PpStage pp_stage%u%s = {", s->index, target->table);
    t->indent = 1;
    text_line(t, "%s, %s,", F("index", "%u", s->index), F("label", "%s", cg_string(sg->a, s->label ? s->label : "")));
    text_line(t, "%s, %s, %s, %s, %s, %s,", F("n_input", "%u", s->input.n), F("n_output", "%u", s->output.n), F("n_dy", "%u", dys),
              F("n_dx", "%u", dx_count(s)), F("n_param", "%u", s->param.n), F("n_const", "%u", consts));
    text_line(t, "%s, %s, %s, %s, %s,", F("input", "%s", s->input.n ? "inputs" : "NULL"), F("output", "%s", s->output.n ? "outputs" : "NULL"),
              F("dy", "%s", dys ? "dys" : "NULL"), F("param", "%s", s->param.n ? "params" : "NULL"), F("konst", "%s", consts ? "consts" : "NULL"));
    print_sizes(sg, t);
    print_functions(sg, t);
    t->indent = 0;
    text_line(t, "};");
}

void cg_tables_print(StageGen *sg, Target target, Text *t)
{
    sg->target = target;
    print_inputs(sg, t);
    print_outputs(sg, t);
    uint32_t dys = print_dys(sg, t);
    print_params(sg, t);
    uint32_t consts = print_consts(sg, t);
    print_convs(sg, t);
    print_stage_table(sg, dys, consts, t);
}

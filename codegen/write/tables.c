/*
 * tables.c - what the stages tell the runtime about themselves: a PpStage for each target and all
 * it points to, in C, for pipeline.c.
 */
#include <inttypes.h>
#include <string.h>

#include "write.h"

const char *cg_tensor(Arena *a, const Graph *g, const char *name, Dtype t, const Shape *s,
                      int batch)
{
    const char *dim = "";
    for (int i = 0; i < s->rank; i++)
        dim = arena_printf(a, "%s%s%" PRId64, dim, i ? ", " : "", s->d[i]);
    if (batch >= 0 && (batch >= s->rank || g->batch <= 0 || s->d[batch] % g->batch != 0))
        batch = -1;
    return arena_printf(
        a,
        "{.name = %s, .dtype = %d, .rank = %d, .dim = {%s}, .batch_dim = %d, .bytes = %" PRId64 "}",
        cg_string(a, name), (int)t, s->rank, *dim ? dim : "0", batch < 0 ? -1 : batch,
        shape_elements(s) * (int64_t)dtype_size(t));
}

static const char *tensor(const StageGen *sg, const char *name, Dtype t, const Shape *s, int batch)
{
    return cg_tensor(sg->a, sg->g, name, t, s, batch);
}

static const char *graph_tensor(Arena *a, const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    return cg_tensor(a, g, x->name, x->dtype, &x->shape, x->batch);
}

static const char *value_tensor(const StageGen *sg, ValueId v)
{
    return graph_tensor(sg->a, sg->g, v);
}

const char *cg_table_name(const StageGen *sg)
{
    return arena_printf(sg->a, "stage%u%s", sg->stage->index,
                        sg->beside ? target_row(TARGET_CUDA)->table : "");
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

/* rows: NULL, or the Pipe whose shapes they are given in, those of a microbatch, of which nothing
   is kept. */
static void print_inputs(const StageGen *sg, const Pipe *rows, Text *t)
{
    const Pipe *p = sg->pipe;
    const Stage *s = sg->stage;
    if (s->input.n == 0)
        return;
    text_line(t, "static const PpInput %s_%s[] = {", cg_table_name(sg), rows ? "rows" : "inputs");
    for (uint32_t i = 0; i < s->input.n; i++) {
        const StageInput *in = &s->input.at[i];
        bool scale = in->value == p->loss_scale;
        int64_t from = scale ? -2 : in->from == NONE ? -1 : (int64_t)in->from;
        uint32_t which = scale              ? 0
                         : in->from == NONE ? data_input(p, in->value)
                                            : output_of(&p->stage.at[in->from], in->value);
        text_line(t,
                  "    {.t = %s,\n     .from = %" PRId64
                  ", .from_output = %u, .stashed = %d, .grads = %u, .again = %d},",
                  graph_tensor(sg->a, (rows ? rows : p)->graph, in->value), from, which,
                  rows ? 0 : kept_until(sg->in_read[i]), in->grads.n, rows ? 0 : sg->in_again[i]);
    }
    text_line(t, "};\n");
}

static void print_outputs(const StageGen *sg, Text *t)
{
    const Stage *s = sg->stage;
    if (s->output.n == 0)
        return;
    text_line(t, "static const PpOutput %s_outputs[] = {", cg_table_name(sg));
    for (uint32_t i = 0; i < s->output.n; i++) {
        const StageOutput *out = &s->output.at[i];
        int64_t model = out->outputs.n > 0 ? (int64_t)out->outputs.at[0] : -1;
        text_line(t,
                  "    {.t = %s,\n     .model_output = %" PRId64
                  ", .stashed = %d, .dys = %u, .again = %d},",
                  value_tensor(sg, out->value), model, kept_until(sg->out_read[i]), out->dys.n,
                  sg->out_again[i]);
    }
    text_line(t, "};\n");
}

/* Consumers by descending stage, each one's contributions in its order: as autodiff filled
 * StageOutput.dys. */
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
                for (uint32_t j = 0;
                     in->value == s->output.at[o].value && in->from == s->index && j < in->grads.n;
                     j++, k++) {
                    INSIST(k < s->output.at[o].dys.n &&
                           s->output.at[o].dys.at[k] == in->grads.at[j]);
                    if (n++ == 0)
                        text_line(t, "static const PpDy %s_dys[] = {", cg_table_name(sg));
                    text_line(
                        t,
                        "    {.output = %u, .from = %u, .input = %u, .index = %u, .stashed = %d},",
                        o, c, i, j, kept_until(sg->dy_read[n - 1]));
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
    text_line(t, "static const PpParam %s_params[] = {", cg_table_name(sg));
    for (uint32_t i = 0; i < s->param.n; i++) {
        const ParamUse *u = &s->param.at[i];
        const Param *q = &sg->g->param.at[u->param];
        const char *half = "";
        if (sg->bytes_half > 0)
            half = arena_printf(sg->a, ", .half_offset = %" PRId64, sg->half_at.at[i]);
        text_line(t,
                  "    {.t = %s,\n     .param = %u, .use = %s, .from = %u, .trainable = %d, .stat "
                  "= %d, .offset = %" PRId64 ", .grad_offset = %" PRId64 "%s%s},",
                  tensor(sg, q->name, q->dtype, &q->shape, -1), u->param, use[u->use],
                  u->use == USE_OWN ? s->index : u->from, q->trainable, q->stat, sg->param_at.at[i],
                  sg->grad_at.at[i], half,
                  u->uses > 1 ? arena_printf(sg->a, ", .more = %u, .more_offset = %" PRId64,
                                             u->uses - 1, sg->more_at.at[i])
                              : "");
    }
    text_line(t, "};\n");
}

/* Which constant of the stage beside has the same bytes; its number of constants: none. */
static uint32_t beside(const StageGen *sg, uint32_t i)
{
    uint32_t k = 0;
    while (k < sg->beside->constants.n &&
           (sg->beside->constants.at[k].inlined ||
            val(sg->beside->g, sg->beside->constants.at[k].value)->data !=
                val(sg->g, sg->constants.at[i].value)->data))
        k++;
    return k;
}

bool cg_const_is_beside(const StageGen *sg, uint32_t i)
{
    return sg->beside && beside(sg, i) < sg->beside->constants.n;
}

const char *cg_const_name(const StageGen *sg, uint32_t i)
{
    if (cg_const_is_beside(sg, i))
        return cg_const_name(sg->beside, beside(sg, i));
    return arena_printf(sg->a, "%%const%s.%u", sg->beside ? ".cuda" : "", i);
}

void cg_short_constants(const StageGen *sg, const char *prefix, Text *t)
{
    enum { LINE = 112 };                                /* of numbers, indented and with a comma */
    for (uint32_t i = 0; i < sg->constants.n; i++) {
        const StageConst *c = &sg->constants.at[i];
        const Value *v = val(sg->g, c->value);
        int64_t n = shape_elements(&v->shape);
        if (!c->inlined)
            continue;
        text_add(t, "// %s%s\nstatic const %s %sc%u[] = {", shape_print(sg->a, v->dtype, &v->shape),
                 out_value_name(sg->a, v->name), cg_ctype(v->dtype), prefix, i);
        size_t line = t->n;
        for (int64_t j = 0; j < n; j++) {
            int64_t whole;
            double x = cg_element(v, j, &whole);
            const char *number = cg_stored_number(sg->a, v->dtype, x, whole);
            if (j == 0 || t->n - line + strlen(number) > LINE) {
                text_add(t, j ? ",\n    " : "\n    ");
                line = t->n;
            } else {
                text_add(t, ", ");
            }
            text_add(t, "%s", number);
        }
        text_add(t, n ? "\n};\n\n" : "0};\n\n");
    }
}

/* Short ones stand in the source of the CPU's functions; a device reads all of them in its memory,
   the short ones behind the others. Returns how many are not short. */
static uint32_t print_consts(const StageGen *sg, bool device, Text *t)
{
    uint32_t n[2] = {0, 0};
    for (uint32_t i = 0; i < sg->constants.n; i++)
        n[sg->constants.at[i].inlined]++;
    if (n[0] + (device ? n[1] : 0) == 0)
        return n[0];
    const char *prefix = arena_printf(sg->a, "%s_", cg_table_name(sg));
    if (device)
        cg_short_constants(sg, prefix, t);
    text_line(t, "static const PpConst %s_consts[] = {", cg_table_name(sg));
    for (int inlined = 0; inlined <= device; inlined++)
        for (uint32_t i = 0; i < sg->constants.n; i++) {
            const StageConst *c = &sg->constants.at[i];
            const Value *v = val(sg->g, c->value);
            if (c->inlined == inlined)
                text_line(t, "    {.t = %s, .offset = %" PRId64 ", .data = %s},",
                          tensor(sg, cg_const_name(sg, i), v->dtype, &v->shape, -1),
                          c->offset + (inlined ? sg->bytes_const : 0),
                          inlined ? arena_printf(sg->a, "%sc%u", prefix, i) : "NULL");
        }
    text_line(t, "};\n");
    return n[0];
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static const char *dims(const StageGen *sg, const int64_t *d, int n)
{
    const char *s = "";
    for (int i = 0; i < n; i++)
        s = arena_printf(sg->a, "%s%s%" PRId64, s, i ? ", " : "", d[i]);
    return s;
}

/* The stages' open functions read them. */
static void print_convs(const StageGen *sg, Text *t)
{
    const char *name = cg_table_name(sg);
    uint32_t n = sg->conv.n;
    if (n == 0)
        return;
    text_line(t, "extern const PpConvShape %s_conv[%u];\nconst PpConvShape %s_conv[%u] = {", name,
              n, name, n);
    for (uint32_t i = 0; i < n; i++) {
        const StageConv *c = &sg->conv.at[i];
        text_line(t,
                  "    {.dtype = %s, .spatial = %d, .group = %" PRId64 ", .c = %" PRId64
                  ", .m = %" PRId64 ", .in = {%s}, .out = {%s},\n"
                  "     .kernel = {%s}, .stride = {%s}, .dilation = {%s}, .pad_begin = {%s}, "
                  ".pad_end = {%s}},",
                  type_runtime(c->type), c->spatial, c->group, c->c, c->m,
                  dims(sg, c->in, c->spatial), dims(sg, c->out, c->spatial),
                  dims(sg, c->kernel, c->spatial), dims(sg, c->stride, c->spatial),
                  dims(sg, c->dilation, c->spatial), dims(sg, c->pad_begin, c->spatial),
                  dims(sg, c->pad_end, c->spatial));
    }
    text_line(t, "};\n");
}

/* ---- the stage ------------------------------------------------------------------------------- */

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

static const char *list(const StageGen *sg, const char *name, bool any)
{
    return any ? arena_printf(sg->a, "%s_%s", cg_table_name(sg), name) : "NULL";
}

static const char *function(const StageGen *sg, FuncKind kind, Target target)
{
    if (kind == F_INFER && !sg->func[F_INFER])
        kind = F_FORWARD;
    return sg->func[kind] ? cg_function_name(sg, cg_function_like(sg, kind), target) : "NULL";
}

/* What the stage's file defines for others. */
static void print_prototypes(const StageGen *sg, Target target, Text *t)
{
    for (int k = 0; k < F_COUNT; k++)
        if (sg->func[k] && cg_function_like(sg, (FuncKind)k) == (FuncKind)k)
            text_line(t, "void %s(const PpCtx *c);", cg_function_name(sg, (FuncKind)k, target));
    if (cg_own_weight(sg))
        text_line(t, "extern void (*const stage%u%s_own_weight)(const PpCtx *c);",
                  sg->stage->index, target_row(target)->table);
    if (sg->conv.n)
        text_line(t, "void *stage%u%s_open(int threads);\nvoid stage%u%s_close(void *state);",
                  sg->stage->index, target_row(target)->table, sg->stage->index,
                  target_row(target)->table);
}

static void print_functions(const StageGen *sg, Target target, Text *t)
{
    const char *suffix = target_row(target)->table;
    uint32_t i = sg->stage->index;
    text_line(t, ".has_backward = %d,", cg_has_backward(sg->stage));
    if (sg->conv.n)
        text_line(t, ".open = stage%u%s_open, .close = stage%u%s_close,", i, suffix, i, suffix);
    text_line(t, ".forward = %s, .infer = %s,", function(sg, F_FORWARD, target),
              function(sg, F_INFER, target));
    if (cg_has_backward(sg->stage))
        text_line(t, ".backward = %s, .backward_input = %s, .backward_weight = %s,",
                  function(sg, F_BACKWARD, target), function(sg, F_INPUT, target),
                  function(sg, F_WEIGHT, target));
    if (cg_own_weight(sg))
        text_line(t, ".own_weight = &stage%u%s_own_weight,", i, suffix);
}

/* A loss over the whole minibatch has no weight gradient of a microbatch. */
bool cg_own_weight(const StageGen *sg)
{
    bool any = false;
    for (uint32_t i = 0; i < sg->stage->param.n; i++)
        any |= sg->stage->param.at[i].grads.n > 0;
    return any && sg->func[F_WEIGHT] && !sg->microbatches;
}

/* R: parts of the stash. */
static void print_again(const StageGen *sg, Target target, Text *t)
{
    if (sg->again.n == 0)
        return;
    text_line(t, "static const PpAgain stage%u%s_again[] = {", sg->stage->index,
              target_row(target)->table);
    for (uint32_t k = 0; k < sg->again.n; k++)
        text_line(t, "    {.bytes = %" PRId64 ", .flops = %" PRId64 ", .make = %s},",
                  sg->again.at[k].bytes,
                  flops(sg, &sg->stage->again.at[sg->again.at[k].from].node),
                  function(sg, (FuncKind)(F_AGAIN + k), target));
    text_line(t, "};");
}

typedef struct { uint32_t dys, consts, kept; } Lists;

/* inputs: the name of their list.  Of a loss over the whole minibatch a microbatch keeps nothing,
 * and the stage as it runs once a step stands in a table of its own. */
static void print_fields(const StageGen *sg, Target target, Lists lists, const char *inputs,
                         bool gathers, Text *t)
{
    const Stage *s = sg->stage;
    const TargetRow *row = target_row(target);
    uint32_t n = row->device ? sg->constants.n : lists.consts, dys = lists.dys;
    t->indent = 1;
    text_line(t, ".index = %u, .label = %s,", s->index, cg_string(sg->a, s->label ? s->label : ""));
    text_line(
        t, ".n_input = %u, .n_output = %u, .n_dy = %u, .n_dx = %u, .n_param = %u, .n_const = %u,",
        s->input.n, s->output.n, dys, dx_count(s), s->param.n, n);
    text_line(t, ".input = %s, .output = %s, .dy = %s, .param = %s, .constants = %s,",
              list(sg, inputs, s->input.n), list(sg, "outputs", s->output.n),
              list(sg, "dys", dys), list(sg, "params", s->param.n), list(sg, "consts", n));
    text_line(
        t, ".bytes_param = %" PRId64 ", .bytes_grad = %" PRId64 ", .bytes_const = %" PRId64 ",",
        sg->bytes_param, sg->bytes_grad, sg->bytes_const + (row->device ? sg->bytes_inlined : 0));
    if (sg->bytes_half > 0)
        text_line(t, ".bytes_half = %" PRId64 ", .half_type = %s,", sg->bytes_half,
                  type_runtime(sg->half_type));
    text_line(t,
              ".bytes_stash = %" PRId64 ", .bytes_saved = %" PRId64 ", .bytes_work = %" PRId64 ",",
              gathers ? 0 : sg->bytes_stash, gathers ? 0 : sg->bytes_saved,
              cg_bytes_work(sg, target));
    text_line(
        t, ".flops_forward = %" PRId64 ", .flops_input = %" PRId64 ", .flops_weight = %" PRId64 ",",
        flops(sg, &s->forward), flops(sg, &s->backward_input), flops(sg, &s->backward_weight));
    if (sg->again.n && !gathers)
        text_line(t, ".n_again = %u, .again = stage%u%s_again,", sg->again.n, s->index, row->table);
    if (gathers)
        text_line(t, ".minibatch = &stage%u%s_minibatch,", s->index, row->table);
    if (lists.kept)
        text_line(t, ".n_kept = %u, .kept = stage%u%s_kept,", lists.kept, s->index, row->table);
    print_functions(sg, target, t);
    t->indent = 0;
    text_line(t, "};\n");
}

static void print_stage(const StageGen *sg, Target target, Lists lists, Text *t)
{
    uint32_t index = sg->stage->index;
    const char *table = target_row(target)->table;
    print_prototypes(sg, target, t);
    print_again(sg, target, t);
    lists.kept =
        sg->microbatches || sg->pipe->loss == NONE ? 0 : cg_kept_print(sg, table, t);
    if (sg->microbatches) {
        text_line(t, "// as it runs: once a step, over the rows of all microbatches");
        text_line(t, "static const PpStage stage%u%s_minibatch = {", index, table);
        print_fields(sg, target, lists, "inputs", false, t);
        text_line(t, "// as schedules see it: F brings a microbatch's rows, B takes those of the "
                     "gradients");
    }
    text_line(t, "extern const PpStage pp_stage%u%s;\nconst PpStage pp_stage%u%s = {", index, table,
              index, table);
    print_fields(sg, target, lists, sg->microbatches ? "rows" : "inputs", sg->microbatches != NULL,
                 t);
}

/* What a stage's PpStage points to. */
static Lists print_lists(const StageGen *sg, bool device, Text *t)
{
    Lists n = {0};
    print_inputs(sg, NULL, t);
    if (sg->microbatches)
        print_inputs(sg, sg->microbatches, t);
    print_outputs(sg, t);
    n.dys = print_dys(sg, t);
    print_params(sg, t);
    n.consts = print_consts(sg, device, t);
    print_convs(sg, t);
    return n;
}

void cg_tables_print(const StageGen *sg, bool cpu, const StageGen *cuda, Text *t)
{
    text_add(t, "// ---- stage %u ----\n\n", sg->stage->index);
    Lists n = print_lists(sg, sg == cuda, t);
    if (cpu)
        print_stage(sg, TARGET_C, n, t);
    /* the goal `pipeline` builds without CUDA */
    if (cuda) {
        text_add(t, "#ifdef PP_WITH_CUDA\n");
        if (cuda != sg)
            n = print_lists(cuda, true, t);
        print_stage(cuda, TARGET_CUDA, n, t);
        text_add(t, "#endif\n\n");
    }
}

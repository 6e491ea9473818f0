/*
 * tables.c - what the stages tell the runtime about themselves, as C, for pipeline.c: a PpStage for
 * each target and all it points to, as codegen/tables.h has them, with the names of functions and
 * of constants' elements.
 */
#include <inttypes.h>
#include <string.h>

#include "write.h"

const char *cg_tensor_text(Arena *a, const PpTensor *t)
{
    enum { LONG_NAME = 24 }; /* it has a line of its own */
    const char *dim = text_numbers(a, t->dim, t->rank), *terms = "";
    for (int i = 0; i < t->n_term; i++) {
        const PpTerm *x = &t->term[i];
        terms = arena_printf(a, "%s%s{%d, %" PRId64 ", {%d, %d, %d}}", terms, i ? ", " : "", x->dim,
                             x->c, x->power[0], x->power[1], x->power[2]);
    }
    return arena_printf(
        a,
        "{.name = %s,%s.dtype = %s, .rank = %d, .dim = {%s}, .batch_dim = %d, .bytes = %" PRId64
        "%s}",
        cg_string(a, t->name), strlen(t->name) > LONG_NAME ? "\n      " : " ",
        type_runtime((Dtype)t->dtype), t->rank, *dim ? dim : "0", t->batch_dim, t->bytes,
        t->n_term
            ? arena_printf(a, ", .n_term = %d, .term = (const PpTerm[]){%s}", t->n_term, terms)
            : "");
}

const char *cg_table_name(const StageGen *sg)
{
    return arena_printf(sg->a, "%s%s", sg->name,
                        sg->beside ? target_row(TARGET_CUDA)->table : "");
}

/* A list of the stage's: its type and name, and a line for each element, or several. */
typedef const char *Row(const StageGen *sg, const PpStage *st, int i);
static void print_rows(const StageGen *sg, const PpStage *st, const char *list, int n, Row *row,
                       Text *t)
{
    if (n == 0)
        return;
    text_line(t, "static const %s[] = {", list);
    for (int i = 0; i < n; i++)
        text_line(t, "    {%s},", row(sg, st, i));
    text_line(t, "};\n");
}

static const char *input_row(const StageGen *sg, const PpStage *st, int i)
{
    const PpInput *in = &st->input[i];
    return arena_printf(
        sg->a,
        ".t = %s,\n     .from = %d, .from_output = %d, .stashed = %d, .grads = %d, .again = %d",
        cg_tensor_text(sg->a, &in->t), in->from, in->from_output, in->stashed, in->grads,
        in->again);
}

static const char *output_row(const StageGen *sg, const PpStage *st, int i)
{
    const PpOutput *out = &st->output[i];
    return arena_printf(sg->a,
                        ".t = %s,\n     .model_output = %d, .stashed = %d, .dys = %d, .again = %d, "
                        ".optional = %d",
                        cg_tensor_text(sg->a, &out->t), out->model_output, out->stashed, out->dys,
                        out->again, out->optional);
}

static const char *dy_row(const StageGen *sg, const PpStage *st, int i)
{
    const PpDy *dy = &st->dy[i];
    return arena_printf(sg->a, ".output = %d, .from = %d, .input = %d, .index = %d, .stashed = %d",
                        dy->output, dy->from, dy->input, dy->index, dy->stashed);
}

/* The names of those that are one of several. */
static void print_param_names(const StageGen *sg, const PpStage *st, Text *t)
{
    for (int i = 0; i < st->n_param; i++) {
        if (!st->param[i].each.n)
            continue;
        text_add(t, "static const char *const %s_param%d[] = {", cg_table_name(sg), i);
        for (int k = 0; k < st->param[i].each.n; k++)
            text_add(t, "%s\n    %s", k ? "," : "", cg_string(sg->a, st->param[i].each.name[k]));
        text_line(t, "};");
    }
}

static const char *param_row(const StageGen *sg, const PpStage *st, int i)
{
    static const char *const use[] = {"PP_OWN", "PP_TRANSMIT", "PP_REPLICATE"};
    const PpParam *q = &st->param[i];
    Text t = {.a = sg->a};
    text_add(&t,
             ".t = %s,\n     .param = %d, .use = %s, .from = %d, .trainable = %d, .stat = %d, "
             ".offset = %" PRId64 ", .grad_offset = %" PRId64,
             cg_tensor_text(sg->a, &q->t), q->param, use[q->use], q->from, q->trainable, q->stat,
             q->offset, q->grad_offset);
    if (st->bytes.half > 0)
        text_add(&t, ", .half_offset = %" PRId64, q->half_offset);
    if (q->more > 0)
        text_add(&t, ", .more = %d, .more_offset = %" PRId64, q->more, q->more_offset);
    if (q->axis >= 0)
        text_add(&t,
                 ",\n     .mesh = %s, .axis = %d, .groups = %d, .whole = %" PRId64
                 ", .first = %" PRId64 ", .step = %" PRId64,
                 cg_mesh_name(q->mesh), q->axis, q->groups, q->whole, q->first, q->step);
    if (q->outer.whole)
        text_add(&t, ",\n     .outer = {%s, %d, %" PRId64 ", %" PRId64 ", %" PRId64 "}",
                 cg_mesh_name(q->outer.mesh), q->outer.dim, q->outer.whole, q->outer.first,
                 q->outer.step);
    if (q->each.n)
        text_add(&t, ",\n     .each = {%s, %d, %d, %d, %s_param%d}", cg_mesh_name(q->each.mesh),
                 q->each.n, q->each.first, q->each.step, cg_table_name(sg), i);
    return text_all(&t);
}

void cg_short_constants(const StageGen *sg, const char *prefix, Text *t)
{
    enum { LINE = 112 }; /* of numbers, indented and with a comma */
    for (uint32_t i = 0; i < sg->constants.n; i++) {
        const StageConst *c = &sg->constants.at[i];
        const Value *v = cg_constant_value(sg, i);
        int64_t n = shape_elements(&v->shape);
        if (!c->inlined)
            continue;
        text_add(t, "// %s%s\nstatic const %s %sc%u[] = {", shape_print(sg->a, v->dtype, &v->shape),
                 out_value_text(sg->a, sg->g, c->value), cg_ctype(v->dtype), prefix, i);
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
   the short ones behind the others. */
static void print_consts(const StageGen *sg, bool device, const PpStage *st, OutsideFile *outside,
                         Text *t)
{
    Ids order = cg_table_constants(sg, device, sg->a);
    if (st->n_const == 0)
        return;
    const char *prefix = arena_printf(sg->a, "%s_", cg_table_name(sg));
    if (device)
        cg_short_constants(sg, prefix, t);
    text_line(t, "static const PpConst %s_consts[] = {", cg_table_name(sg));
    for (int k = 0; k < st->n_const; k++) {
        uint32_t i = order.at[k];
        const PpConst *c = &st->constants[k];
        text_add(t, "    {.t = %s, .offset = %" PRId64 ", ", cg_tensor_text(sg->a, &c->t),
                 c->offset);
        if (sg->constants.at[i].inlined) {
            text_add(t, ".data = %sc%u},\n", prefix, i);
            continue;
        }
        OutsidePlace at = {0};
        if (outside)
            at = outside_place(outside, cg_constant_value(sg, i)->data, (size_t)c->t.bytes);
        text_add(t, "\n     .at = %" PRId64 ", .sha256 = \"%s\"},\n", at.offset, at.sha256);
    }
    text_line(t, "};\n");
}

/* ---- convolutions ---------------------------------------------------------------------------- */

static void conv_print(const StageGen *sg, const PpConvShape *c, const char *more, Text *t)
{
    text_line(
        t,
        "    {.dtype = %s, .spatial = %d, .group = %" PRId64 ", .c = %" PRId64 ", .m = %" PRId64
        ", .in = {%s}, .out = {%s},\n"
        "     .kernel = {%s}, .stride = {%s}, .dilation = {%s}, .pad_begin = {%s}, "
        ".pad_end = {%s}%s},",
        type_runtime((Dtype)c->dtype), c->spatial, c->group, c->c, c->m,
        text_numbers(sg->a, c->in, c->spatial), text_numbers(sg->a, c->out, c->spatial),
        text_numbers(sg->a, c->kernel, c->spatial), text_numbers(sg->a, c->stride, c->spatial),
        text_numbers(sg->a, c->dilation, c->spatial), text_numbers(sg->a, c->pad_begin, c->spatial),
        text_numbers(sg->a, c->pad_end, c->spatial), more);
}

/* The stages' open functions read them; where lengths vary, the stages' functions as they are with
 * that of a microbatch. */
static void print_convs(const StageGen *sg, const PpStage *st, Text *t)
{
    const char *name = cg_table_name(sg);
    int n = st->conv.n;
    if (n == 0)
        return;
    text_line(t, "extern const PpConvShape %s_conv[%d];\nconst PpConvShape %s_conv[%d] = {", name,
              n, name, n);
    for (int i = 0; i < n; i++)
        conv_print(sg, &st->conv.shape[i], "", t);
    text_line(t, "};\n");
    if (!sg->lengths)
        return;
    text_line(t, "PpConvShape %s_conv_shape(const PpCtx *c, int i);", name);
    text_line(t, "PpConvShape %s_conv_shape(const PpCtx *c, int i)\n{", name);
    text_line(t, "    const PpConvShape shape[] = {");
    for (int i = 0; i < n; i++)
        conv_print(sg, &st->conv.shape[i], ", .length = c->length", t);
    text_line(t, "    };\n    return shape[i];\n}\n");
}

/* ---- between members ------------------------------------------------------------------------- */

static const char *collective_row(const StageGen *sg, const PpStage *st, int i)
{
    const PpCollective *c = &st->mesh.collective[i];
    Text t = {.a = sg->a};
    text_add(&t, ".kind = %s, .mesh = %s, .name = %s, .dtype = %s, .bytes = %" PRId64,
             cg_collective_kind[c->kind].name, cg_mesh_name(c->mesh), cg_string(sg->a, c->name),
             type_runtime((Dtype)c->dtype), c->bytes);
    if (c->half)
        text_add(&t, ", .half = %s", type_runtime((Dtype)c->half));
    if (c->part)
        text_add(&t, ", .part = '%c'", c->part);
    return text_all(&t);
}

static const char *partial_row(const StageGen *sg, const PpStage *st, int i)
{
    const PpPartial *q = &st->mesh.partial[i];
    Text along = {.a = sg->a}, row = {.a = sg->a};
    for (int x = 0; x < PP_AXES; x++) {
        text_item(&along, "%d", q->along[x]);
        text_item(&row, "%d", q->row[x]);
    }
    return arena_printf(sg->a,
                        ".param = %d, .use = %d, .offset = %" PRId64 ", .along = {%s}, .row = {%s}",
                        q->param, q->use, q->offset, text_all(&along), text_all(&row));
}

/* ---- the stage ------------------------------------------------------------------------------- */

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

void cg_stage_prototypes(const StageGen *sg, Target target, Text *t)
{
    const TargetRow *row = target_row(target);
    uint32_t stage = sg->stage->index;
    for (int i = 0; i < F_COUNT; i++)
        if (sg->func[i] && cg_function_like(sg, (FuncKind)i) == (FuncKind)i)
            text_line(t, "void %s(const PpCtx *c);", cg_function_name(sg, (FuncKind)i, target));
    if (cg_own_weight(sg))
        text_line(t, "extern void (*const stage%u%s_own_weight)(const PpCtx *c);", stage,
                  row->table);
    if (sg->conv.n)
        text_line(t, "void *stage%u%s_open(int threads);\nvoid stage%u%s_close(void *state);",
                  stage, row->table, stage, row->table);
}

static void print_functions(const StageGen *sg, Target target, const PpStage *st, Text *t)
{
    const char *suffix = target_row(target)->table, *name = cg_table_name(sg);
    uint32_t i = sg->stage->index;
    text_line(t, ".has_backward = %d,", cg_has_backward(sg->stage));
    if (st->mesh.n_collective || st->mesh.n_partial)
        text_line(t, ".mesh = {.n_collective = %d, .at_once = %d, .n_partial = %d,",
                  st->mesh.n_collective, st->mesh.at_once, st->mesh.n_partial);
    if (st->mesh.n_collective || st->mesh.n_partial)
        text_line(t, "         .collective = %s, .partial = %s},",
                  list(sg, "collectives", st->mesh.n_collective),
                  list(sg, "partials", st->mesh.n_partial));
    if (sg->conv.n)
        text_line(t, ".conv = {.n = %u, .shape = %s_conv%s},", sg->conv.n, name,
                  sg->lengths ? arena_printf(sg->a, ", .of = %s_conv_shape", name) : "");
    text_line(t, ".call = {.open = %s, .close = %s,",
              sg->conv.n ? arena_printf(sg->a, "stage%u%s_open", i, suffix) : "NULL",
              sg->conv.n ? arena_printf(sg->a, "stage%u%s_close", i, suffix) : "NULL");
    text_line(t, "         .forward = %s, .infer = %s,", function(sg, F_FORWARD, target),
              function(sg, F_INFER, target));
    if (cg_has_backward(sg->stage))
        text_line(t, "         .backward = %s, .backward_input = %s, .backward_weight = %s,",
                  function(sg, F_BACKWARD, target), function(sg, F_INPUT, target),
                  function(sg, F_WEIGHT, target));
    text_line(t, "         .own_weight = %s},",
              cg_own_weight(sg) ? arena_printf(sg->a, "&stage%u%s_own_weight", i, suffix) : "NULL");
}

static const char *kept_row(const StageGen *sg, const PpStage *st, int i)
{
    const PpKept *k = &st->look.kept[i];
    return arena_printf(
        sg->a,
        ".name = %s,\n     .dtype = %s, .part = %d, .output = %d, .offset = %" PRId64
        ", .bytes = %" PRId64,
        cg_string(sg->a, k->name), type_runtime((Dtype)k->dtype), k->part, k->output, k->offset,
        k->bytes);
}

/* R: parts of the stash. */
static void print_again(const StageGen *sg, Target target, const PpStage *st, Text *t)
{
    if (st->n_again == 0)
        return;
    text_line(t, "static const PpAgain stage%u%s_again[] = {", sg->stage->index,
              target_row(target)->table);
    for (int k = 0; k < st->n_again; k++)
        text_line(t, "    {.bytes = %" PRId64 ", .flops = %" PRId64 ", .make = %s},",
                  st->again[k].bytes, st->again[k].flops,
                  function(sg, (FuncKind)(F_AGAIN + k), target));
    text_line(t, "};");
}

/* --profile */
static void print_step_lists(const StageGen *sg, const PpStage *st, Text *t)
{
    if (!st->look.steps)
        return;
    for (int k = 0; k < PP_TIMED; k++) {
        if (st->look.steps[k].n == 0)
            continue;
        text_line(t, "static const PpStep stage%d_steps%d[] = {", st->index, k);
        for (int i = 0; i < st->look.steps[k].n; i++)
            text_line(t, "    {'%c', %s},", st->look.steps[k].step[i].part,
                      cg_string(sg->a, st->look.steps[k].step[i].nodes));
        text_line(t, "};");
    }
    text_line(t, "// what pp_time_step() times: steps of forward, backward, its I and its W");
    text_line(t, "static const PpSteps stage%d_steps[PP_TIMED] = {", st->index);
    for (int k = 0; k < PP_TIMED; k++)
        text_line(t, "    {%d, %s},", st->look.steps[k].n,
                  st->look.steps[k].n ? arena_printf(sg->a, "stage%d_steps%d", st->index, k)
                                      : "NULL");
    text_line(t, "};");
}

/* inputs: the name of their list */
static void print_fields(const StageGen *sg, Target target, const PpStage *st, const char *inputs,
                         Text *t)
{
    const char *table = target_row(target)->table;
    t->indent = 1;
    text_line(t, ".index = %d, .label = %s,", st->index, cg_string(sg->a, st->label));
    text_line(
        t, ".n_input = %d, .n_output = %d, .n_dy = %d, .n_dx = %d, .n_param = %d, .n_const = %d,",
        st->n_input, st->n_output, st->n_dy, st->n_dx, st->n_param, st->n_const);
    text_line(t, ".input = %s, .output = %s, .dy = %s, .param = %s, .constants = %s,",
              list(sg, inputs, st->n_input), list(sg, "outputs", st->n_output),
              list(sg, "dys", st->n_dy), list(sg, "params", st->n_param),
              list(sg, "consts", st->n_const));
    if (st->half_type)
        text_line(t, ".half_type = %s,", type_runtime((Dtype)st->half_type));
    text_line(t, ".bytes = {.param = %" PRId64 ", .grad = %" PRId64 ", .constants = %" PRId64 ",",
              st->bytes.param, st->bytes.grad, st->bytes.constants);
    text_line(t, "          .half = %" PRId64 ", .stash = %" PRId64 ", .saved = %" PRId64 ",",
              st->bytes.half, st->bytes.stash, st->bytes.saved);
    text_add(t, "              .work = {");
    for (int k = 0; k < PP_WORKS; k++)
        text_add(t, "%s%" PRId64, k ? ", " : "", st->bytes.work[k]);
    text_add(t, "}},\n");
    text_line(t, ".flops = {.forward = %" PRId64 ", .input = %" PRId64 ", .weight = %" PRId64 "},",
              st->flops.forward, st->flops.input, st->flops.weight);
    if (st->twice.quick || st->twice.functions)
        text_line(
            t, ".twice = {.quick = %" PRId64 ", .functions = %" PRId64 ", .bytes = %" PRId64 "},",
            st->twice.quick, st->twice.functions, st->twice.bytes);
    if (st->n_again)
        text_line(t, ".n_again = %d, .again = stage%d%s_again,", st->n_again, st->index, table);
    if (st->look.n_kept || st->look.steps)
        text_line(t, ".look = {.n_kept = %d, .kept = %s, .steps = %s},", st->look.n_kept,
                  st->look.n_kept ? arena_printf(sg->a, "stage%d%s_kept", st->index, table)
                                  : "NULL",
                  st->look.steps ? arena_printf(sg->a, "stage%d_steps", st->index) : "NULL");
    print_functions(sg, target, st, t);
    if (st->minibatch)
        text_line(t, ".minibatch = &stage%d%s_minibatch,", st->index, table);
    t->indent = 0;
    text_line(t, "};\n");
}

static void print_stage(const StageGen *sg, Target target, const PpStage *st, Text *t)
{
    const char *table = target_row(target)->table;
    cg_stage_prototypes(sg, target, t);
    print_again(sg, target, st->minibatch ? st->minibatch : st, t);
    print_rows(sg, st, arena_printf(sg->a, "PpKept stage%u%s_kept", st->index, table),
               st->look.n_kept, kept_row, t);
    print_step_lists(sg, st, t);
    if (st->minibatch) {
        text_line(t, "// as it runs: once a step, over the rows of all microbatches");
        text_line(t, "static const PpStage stage%d%s_minibatch = {", st->index, table);
        print_fields(sg, target, st->minibatch, "inputs", t);
        text_line(t, "// as schedules see it: F brings a microbatch's rows, B takes those of the "
                     "gradients");
    }
    text_line(t, "extern const PpStage pp_%s%s;\nconst PpStage pp_%s%s = {", sg->name, table,
              sg->name, table);
    print_fields(sg, target, st, st->minibatch ? "rows" : "inputs", t);
}

/* What a stage's PpStage points to, for all its targets. */
static void print_lists(const StageGen *sg, bool device, const PpStage *st, OutsideFile *outside,
                        Text *t)
{
    const PpStage *runs = st->minibatch ? st->minibatch : st;
    const char *name = cg_table_name(sg);
    print_rows(sg, runs, arena_printf(sg->a, "PpInput %s_inputs", name), st->n_input, input_row, t);
    if (st->minibatch)
        print_rows(sg, st, arena_printf(sg->a, "PpInput %s_rows", name), st->n_input, input_row, t);
    print_rows(sg, st, arena_printf(sg->a, "PpOutput %s_outputs", name), st->n_output, output_row,
               t);
    print_rows(sg, st, arena_printf(sg->a, "PpDy %s_dys", name), st->n_dy, dy_row, t);
    print_param_names(sg, st, t);
    print_rows(sg, st, arena_printf(sg->a, "PpParam %s_params", name), st->n_param, param_row, t);
    print_consts(sg, device, st, outside, t);
    print_convs(sg, st, t);
    print_rows(sg, st, arena_printf(sg->a, "PpCollective %s_collectives", name),
               st->mesh.n_collective, collective_row, t);
    print_rows(sg, st, arena_printf(sg->a, "PpPartial %s_partials", name), st->mesh.n_partial,
               partial_row, t);
}

void cg_tables_print(const StageGen *sg, bool cpu, const StageGen *cuda, OutsideFile *outside,
                     Text *t)
{
    const PpStage *on_cpu = cpu ? cg_stage_table(sg, TARGET_C, sg->a) : NULL;
    const PpStage *on_cuda = cuda ? cg_stage_table(cuda, TARGET_CUDA, cuda->a) : NULL;
    if (sg->pipe->alone)
        text_add(t, "// ---- %s ----\n\n", sg->name);
    else
        text_add(t, "// ---- stage %u ----\n\n", sg->stage->index);
    print_lists(sg, sg == cuda, sg == cuda ? on_cuda : on_cpu, outside, t);
    if (cpu)
        print_stage(sg, TARGET_C, on_cpu, t);
    /* the goal `pipeline` builds without CUDA */
    if (cuda) {
        text_add(t, "#ifdef PP_WITH_CUDA\n");
        if (cuda != sg)
            print_lists(cuda, true, on_cuda, outside, t);
        print_stage(cuda, TARGET_CUDA, on_cuda, t);
        text_add(t, "#endif\n\n");
    }
}

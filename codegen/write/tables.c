/*
 * tables.c - what a stage tells the runtime about itself, as C, for pipeline.c: a PpStage and all it
 * points to, as codegen/tables.h has them, with the names of functions and of constants' elements.
 */
#include <inttypes.h>
#include <string.h>

#include "fields.h"
#include "write.h"

const char *cg_table_name(const StageGen *sg)
{
    return arena_printf(sg->a, "%s%s", sg->name, target_row(sg->target)->table);
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

static FieldSizes outside_of(const StageGen *sg) { return (FieldSizes){sg->sizes, false}; }

/* Short ones stand in the source of the CPU's functions; a device reads all of them in its memory,
   the short ones behind the others. */
static void print_constants(const StageGen *sg, const PpStage *st, OutsideFile *outside, Text *t)
{
    const char *name = cg_table_name(sg), *prefix = arena_printf(sg->a, "%s_", name);
    const Ids order = cg_table_constants(sg, sg->a);
    if (st->n_const == 0)
        return;
    if (sg->device)
        cg_short_constants(sg, prefix, t);
    text_line(t, "static const PpConst %s_constants[] = {", name);
    for (int k = 0; k < st->n_const; k++) {
        const uint32_t i = order.at[k];
        const PpConst *c = &st->constants[k];
        OutsidePlace at = {0};
        text_add(t, "    {%s,\n     ", fields_text(&fields_const, name, c, outside_of(sg), t));
        if (sg->constants.at[i].inlined) {
            text_add(t, ".data = %sc%u},\n", prefix, i);
            continue;
        }
        if (outside)
            at = outside_place(outside, cg_constant_value(sg, i)->data, (size_t)c->t.bytes);
        text_add(t, ".at = %" PRId64 ", .sha256 = \"%s\"},\n", at.offset, at.sha256);
    }
    text_line(t, "};\n");
}

/* The stages' open functions read them; where lengths vary, the stages' functions as they are with
 * that of a microbatch. */
static void print_convs(const StageGen *sg, const PpStage *st, Text *t)
{
    const char *name = cg_table_name(sg);
    const int n = st->conv.n;
    if (n == 0)
        return;
    text_line(t, "extern const PpConvShape %s_conv[%d];\nconst PpConvShape %s_conv[%d] = {", name,
              n, name, n);
    for (int i = 0; i < n; i++)
        text_add(t, "    {%s},\n",
                 fields_text(&fields_conv, name, &st->conv.shape[i], outside_of(sg), t));
    text_line(t, "};\n");
    if (!sg->lengths)
        return;
    text_line(t, "PpConvShape %s_conv_shape(const PpCtx *c, int i);", name);
    text_line(t, "PpConvShape %s_conv_shape(const PpCtx *c, int i)\n{", name);
    Text shapes = {.a = t->a};
    for (int i = 0; i < n; i++)
        text_add(&shapes, "    {%s, .length = c->length},\n",
                 fields_text(&fields_conv, name, &st->conv.shape[i],
                             (FieldSizes){sg->sizes, true}, t));
    t->indent = 1;
    out_symbols(t, text_all(&shapes), "c");
    t->indent = 0;
    text_add(t, "    const PpConvShape shape[] = {\n%s", text_all(&shapes));
    text_line(t, "    };\n    return shape[i];\n}\n");
}

/* ---- the stage ------------------------------------------------------------------------------- */

static const char *function(const StageGen *sg, FuncKind kind)
{
    if (kind == F_INFER && !sg->func[F_INFER])
        kind = F_FORWARD;
    return sg->func[kind] ? cg_function_name(sg, cg_function_like(sg, kind)) : "NULL";
}

void cg_stage_prototypes(const StageGen *sg, Text *t)
{
    const TargetRow *row = target_row(sg->target);
    uint32_t stage = sg->stage->index;
    for (int i = 0; i < F_COUNT; i++)
        if (sg->func[i] && cg_function_like(sg, (FuncKind)i) == (FuncKind)i)
            text_line(t, "void %s(const PpCtx *c);", cg_function_name(sg, (FuncKind)i));
    if (cg_own_weight(sg))
        text_line(t, "extern void (*const stage%u%s_own_weight)(const PpCtx *c);", stage,
                  row->table);
    if (sg->conv.n)
        text_line(t, "void *stage%u%s_open(int threads);\nvoid stage%u%s_close(void *state);",
                  stage, row->table, stage, row->table);
}

/* R: parts of the stash. */
static void print_again(const StageGen *sg, const PpStage *st, Text *t)
{
    if (st->n_again == 0)
        return;
    text_line(t, "static const PpAgain %s_again[] = {", cg_table_name(sg));
    for (int k = 0; k < st->n_again; k++)
        text_line(t, "    {%s, .make = %s},",
                  fields_text(&fields_again, "", &st->again[k], outside_of(sg), t),
                  function(sg, (FuncKind)(F_AGAIN + k)));
    text_line(t, "};\n");
}

/* What the stage's file defines. */
static void print_functions(const StageGen *sg, const PpStage *st, Text *t)
{
    const char *name = cg_table_name(sg);
    if (st->conv.n)
        text_line(t, ".conv = {.n = %d, .shape = %s_conv%s},", st->conv.n, name,
                  sg->lengths ? arena_printf(sg->a, ", .of = %s_conv_shape", name) : "");
    text_line(t, ".call = {");
    if (st->conv.n)
        text_line(t, "    .open = %s_open, .close = %s_close,", name, name);
    text_line(t, "    .forward = %s, .infer = %s,", function(sg, F_FORWARD), function(sg, F_INFER));
    if (st->has_backward)
        text_line(t, "    .backward = %s, .backward_input = %s, .backward_weight = %s,",
                  function(sg, F_BACKWARD), function(sg, F_INPUT), function(sg, F_WEIGHT));
    if (cg_own_weight(sg))
        text_line(t, "    .own_weight = &%s_own_weight,", name);
    text_line(t, "},");
    if (st->minibatch)
        text_line(t, ".minibatch = &%s_minibatch,", name);
}

/* name: of its lists */
static void print_stage(const StageGen *sg, const PpStage *st, const char *name, const char *head,
                        Text *t)
{
    const char *all = fields_text(&fields_stage, name, st, outside_of(sg), t);
    text_line(t, "%s = {", head);
    text_add(t, "    %s,\n", all);
    t->indent = 1;
    print_functions(sg, st, t);
    t->indent = 0;
    text_line(t, "};\n");
}

void cg_tables_print(const StageGen *sg, OutsideFile *outside, Text *t)
{
    const PpStage *st = cg_stage_table(sg, sg->a);
    const char *name = cg_table_name(sg);
    text_add(t, "// ---- %s ----\n\n", name);
    if (sg->device) /* the goal `pipeline` builds without CUDA */
        text_add(t, "#ifdef PP_WITH_CUDA\n");
    cg_stage_prototypes(sg, t);
    print_constants(sg, st, outside, t);
    print_convs(sg, st, t);
    print_again(sg, st->minibatch ? st->minibatch : st, t);
    if (st->minibatch) {
        text_line(t, "// as it runs: once a step, over the rows of all microbatches");
        print_stage(sg, st->minibatch, name,
                    arena_printf(sg->a, "static const PpStage %s_minibatch", name), t);
        text_line(t, "// as schedules see it: F brings a microbatch's rows, B takes those of the "
                     "gradients");
    }
    print_stage(sg, st, st->minibatch ? arena_printf(sg->a, "%s_rows", name) : name,
                arena_printf(sg->a, "extern const PpStage pp_%s;\nconst PpStage pp_%s", name, name),
                t);
    if (sg->device)
        text_add(t, "#endif\n\n");
}

/*
 * stage.c - one stage as a file of C or of CUDA C: its kernels, its functions.  Its tables:
 * tables.c.
 */
#include <inttypes.h>

#include "base/file/hash.h"
#include "write.h"

/* Where lengths vary: the convolutions as they are with that of a microbatch. */
static void print_sizes(const StageGen *sg, const TargetRow *target, Text *t)
{
    const char *name = cg_table_name(sg);
    text_line(t, "static %s *const *convolutions(const PpCtx *c)\n{", target->convolution);
    text_line(t, "    %s *const *conv = (%s *const *)c->state;", target->convolution,
              target->convolution);
    text_line(t, "    for (int i = 0; i < %u; i++) {", sg->conv.n);
    text_line(t, "        const PpConvShape shape = %s_conv_shape(c, i);", name);
    text_line(t, "        %sconv_size(%sconv[i], &shape);\n    }\n    return conv;\n}\n",
              target->call, target->context);
}

/* All memory is taken before the first microbatch: with any length; on a device with the greatest,
 * which the convolution was opened with, and one that varies is told so by the least. */
static void print_reserve(const StageGen *sg, const TargetRow *target, Text *t)
{
    text_line(t, target->cplusplus ? "    PpCtx c = {};" : "    PpCtx c = {0};");
    text_line(t, "    c.rows = 1;");
    for (int v = 0; v < sg->lengths->symbols; v++) {
        const Symbol *s = &sg->lengths->symbol[v];
        if (target->device)
            text_line(t, "    c.length.of[%d] = %" PRId64 ";", v, s->least);
        else
            text_line(t,
                      "    for (c.length.of[%d] = %" PRId64 "; conv && c.length.of[%d] <= %" PRId64
                      "; c.length.of[%d]++)",
                      v, s->least, v, s->most, v);
    }
    text_line(t, "        for (int i = 0; conv && i < %u && conv[i]; i++) {", sg->conv.n);
    text_line(t, "            const PpConvShape shape = %s_conv_shape(&c, i);", cg_table_name(sg));
    text_line(t, "            %sconv_size(%sconv[i], &shape);\n        }", target->call,
              target->device ? "&c, " : "");
}

/* The library primitives of the stage, made once. */
static void print_open(const StageGen *sg, const TargetRow *target, Text *t)
{
    uint32_t n = sg->conv.n, stage = sg->stage->index;
    const char *type = target->convolution,
               *cast = target->cplusplus ? arena_printf(sg->a, "(%s **)", type) : "";
    text_line(t, "void *stage%u%s_open(int threads)\n{", stage, target->table);
    if (target->device) {
        text_line(t, "    static const int64_t rows[%u] = {", n);
        for (uint32_t i = 0; i < n; i++)
            text_line(t, "        %" PRId64 ",", sg->conv.at[i].rows);
        text_line(t, "    };\n    (void)threads;\n    %sconv_separate();", target->call);
    }
    text_line(t, "    %s **conv = %scalloc(%u, sizeof *conv);", type, cast, n);
    text_line(t, "    for (int i = 0; conv && i < %u; i++)", n);
    text_line(t, "        conv[i] = %sconv_open(&%s_conv[i], %s);", target->call, cg_table_name(sg),
              target->device ? "rows[i]" : "threads");
    if (sg->lengths)
        print_reserve(sg, target, t);
    text_line(t, "    return conv;\n}\n");
    text_line(t, "void stage%u%s_close(void *state)\n{", stage, target->table);
    text_line(t, "    %s **conv = %sstate;", type, cast);
    text_line(t, "    for (int i = 0; conv && i < %u; i++)", n);
    text_line(t, "        %sconv_close(conv[i]);", target->call);
    text_line(t, "    free(conv);\n}\n");
}

/* What pipeline.c calls, and what of it is read here. */
static void print_prototypes(const StageGen *sg, const TargetRow *row, Text *t)
{
    text_line(t, row->cplusplus ? "extern \"C\" {" : "// called by pipeline.c");
    cg_stage_prototypes(sg, t);
    if (sg->conv.n)
        text_line(t, "extern const PpConvShape %s_conv[%u];", cg_table_name(sg), sg->conv.n);
    if (sg->conv.n && sg->lengths)
        text_line(t, "PpConvShape %s_conv_shape(const PpCtx *c, int i);", cg_table_name(sg));
    text_line(t, row->cplusplus ? "}\n" : "");
}

/* The place of a user's own weight gradient, which sees all that the file defines. */
static void print_own_weight(const StageGen *sg, const TargetRow *row, Text *t)
{
    uint32_t n = sg->stage->index;
    const char *table = row->table;
    text_add(t,
             "// ---- a weight gradient of your own ----\n\n"
             "// stage%u_weight.%s beside this file: its stage%u%s_weight() takes the place of "
             "%s()\n",
             n, row->ending, n, table,
             cg_function_name(sg, cg_function_like(sg, F_WEIGHT)));
    text_add(t, "#ifdef OWN_WEIGHT // make says so where the file is\n");
    text_add(t, "#define STAGE_HASH 0x%016" PRIx64 "u // of this stage: another one has another\n",
             hash_bytes(HASH_START, t->at, t->n));
    text_add(t, "%svoid stage%u%s_weight(const PpCtx *c);\n", row->cplusplus ? "extern \"C\" " : "",
             n, table);
    text_add(t, "#include \"stage%u_weight.%s\"\n", n, row->ending);
    text_add(t, "void (*const stage%u%s_own_weight)(const PpCtx *c) = stage%u%s_weight;\n", n,
             table, n, table);
    text_add(t, "#else\nvoid (*const stage%u%s_own_weight)(const PpCtx *c) = NULL;\n#endif\n", n,
             table);
}

/* Inference comes last: a kernel has its name from training, where both have it. */
void cg_stage_functions(StageGen *sg)
{
    for (int i = 0; i < F_COUNT; i++) {
        const FuncKind k = i == F_FORWARD ? F_FORWARD : (FuncKind)(i % (F_COUNT - 1) + 1);
        if (sg->func[k] && cg_function_like(sg, k) == k)
            cg_function_print(sg->func[k]);
    }
    cg_kernels_print(sg);
}

static bool has_custom(const StageGen *sg)
{
    bool any = false;
    for (int i = 0; i < F_COUNT; i++)
        for (uint32_t k = 0; sg->func[i] && k < sg->func[i]->step.n; k++)
            any |= sg->func[i]->step.at[k].kind == STEP_CUSTOM;
    return any;
}

void cg_stage_print(StageGen *sg, Text *t)
{
    const Stage *s = sg->stage;
    const TargetRow *row = target_row(sg->target);
    const KernelList *k = sg->print.kernels;
    if (sg->profiled)
        sg->print.probe = sg->print.probe_end = "pp_time_step();";
    cg_stage_functions(sg);
    const char *what = sg->pipe->alone
                           ? "what the data of a step alone decide, added up before it begins"
                           : arena_printf(sg->a, "stage %u of %u: %s", s->index, sg->pipe->stage.n,
                                          cg_comment(sg->a, s->label ? s->label : ""));
    text_add(t,
             "// %s.%s - %s\n// Written by ppsplit from the model's graph.  "
             "rows: the samples of this %s, at most %" PRId64 ".\n//\n",
             sg->name, row->ending, what, sg->microbatches ? "step" : "microbatch", sg->g->batch);
    for (int v = 0; sg->lengths && v < sg->lengths->symbols; v++) {
        const Symbol *x = &sg->lengths->symbol[v];
        text_add(t,
                 "// length%s: the size of a dimension of its inputs, of this one, %" PRId64
                 " to %" PRId64 ": %s\n//\n",
                 v ? arena_printf(sg->a, "%d", v) : "", x->least, x->most,
                 cg_comment(sg->a, x->name));
    }
    text_add(t,
             "// bytes: parameters %" PRId64 ", gradients %" PRId64 ", constants %" PRId64
             ", workspace %" PRId64 "; %s stash %" PRId64 ", saved %" PRId64 "\n",
             sg->params.bytes, sg->params.bytes_grad,
             sg->bytes_const + (row->device ? sg->bytes_inlined : 0), cg_bytes_work(sg),
             sg->microbatches ? "once a step" : "for each microbatch", sg->stash.bytes,
             sg->saved.bytes);
    for (uint32_t i = 0; i < sg->stash.again.n; i++)
        text_add(t, "// %s: %" PRId64 " bytes of stash that %s can compute again\n",
                 arena_printf(sg->a, "part %u", i), sg->stash.again.at[i].bytes,
                 cg_function_name(sg, (FuncKind)(F_AGAIN + i)));
    text_add(t, "#include \"%s\"\n%s\n", row->header,
             has_custom(sg) ? "#include \"pp_custom.h\"\n" : "");
    print_prototypes(sg, row, t);
    if (!row->device)
        cg_short_constants(sg, "", t);
    if (sg->conv.n && sg->lengths)
        print_sizes(sg, row, t);
    text_add(t, "// ---- kernels ----\n\n%s", k->text.at ? k->text.at : "");
    text_add(t, "// ---- functions ----\n\n");
    for (int i = 0; i < F_COUNT; i++)
        if (sg->func[i] && sg->func[i]->body.at)
            text_add(t, "%s", sg->func[i]->body.at);
    if (sg->conv.n)
        print_open(sg, row, t);
    if (cg_own_weight(sg))
        print_own_weight(sg, row, t);
}

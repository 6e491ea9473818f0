/*
 * pipeline.c - the program around the stages.  In: the Pipe and its generated stages.  Out:
 * pipeline.c with the plan: the model's inputs and outputs, how the loss follows from the
 * microbatches, and main().
 */
#include <inttypes.h>
#include <string.h>

#include "base/cli/version.h"
#include "base/file/hash.h"
#include "write.h"

static uint32_t print_inputs(Pipe *p, Text *t)
{
    const Graph *g = p->graph;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->input.n; i++) {
        const Value *v = val(g, g->input.at[i]);
        if (g->input.at[i] == p->loss_scale)
            continue;
        if (n++ == 0)
            text_line(t, "static const PpTensor inputs[] = {");
        text_line(t, "    %s,", cg_tensor(g->arena, g, v->name, v->dtype, &v->shape, v->batch));
    }
    if (n)
        text_line(t, "};\n");
    return n;
}

/* Says whether there are outputs in which microbatches cannot meet. */
static bool print_outputs(Pipe *p, Text *t)
{
    static const char *const how[] = {"PP_MERGE_LAST", "PP_MERGE_SUM", "PP_MERGE_MEAN",
                                      "PP_MERGE_LAST", "PP_MERGE_NONE"};
    const Graph *g = p->graph;
    bool any = false;
    if (g->output.n == 0)
        return any;
    text_line(t, "static const PpTensor outputs[] = {");
    for (uint32_t i = 0; i < g->output.n; i++) {
        const Value *v = val(g, g->output.at[i]);
        const char *name = i < g->output_name.n ? g->output_name.at[i] : v->name;
        text_line(t, "    %s,", cg_tensor(g->arena, g, name, v->dtype, &v->shape, v->batch));
    }
    text_line(t, "};\n");
    text_line(t, "// how microbatches meet in an output without rows");
    text_line(t, "static const int output_merge[] = {");
    for (uint32_t i = 0; i < p->merge.n; i++)
        text_line(t, "    %s,", how[p->merge.at[i].how]);
    text_line(t, "};\n");
    for (uint32_t i = 0; i < p->merge.n; i++)
        any |= p->merge.at[i].how == MERGE_NONE;
    if (!any)
        return any;
    text_line(t, "// why they do not meet");
    text_line(t, "static const char *const output_why[] = {");
    for (uint32_t i = 0; i < p->merge.n; i++)
        text_line(t, "    %s,",
                  p->merge.at[i].how == MERGE_NONE ? cg_string(g->arena, p->merge.at[i].why)
                                                   : "NULL");
    text_line(t, "};\n");
    return any;
}

static int64_t target_index(const Pipe *p)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->graph->input.n; i++) {
        if (p->graph->input.at[i] == p->target)
            return p->target == NONE ? -1 : n;
        n += p->graph->input.at[i] != p->loss_scale;
    }
    return -1;
}

static int64_t loss_output(const Pipe *p)
{
    const Stage *s = &p->stage.at[p->stage.n - 1];
    for (uint32_t i = 0; p->loss != NONE && i < s->output.n; i++)
        if (s->output.at[i].value == p->loss)
            return i;
    return -1;
}

/* The number of an input in the plan, where loss_scale has none. */
static uint32_t input_number(const Pipe *p, ValueId v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; p->graph->input.at[i] != v; i++)
        n += p->graph->input.at[i] != p->loss_scale;
    return n;
}

static void print_index(const Pipe *p, const IndexBound *b, const char *table, Text *t)
{
    text_line(t,
              "    {%u, %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
              ", %d, %" PRId64 ", %s, %" PRId64 "},",
              input_number(p, b->input), b->first, b->step, b->count, b->least, b->most,
              b->replaced, b->other, table, b->rows);
}

static IndexBounds bounds_of(const Pipe *p)
{
    const Graph *g = p->graph;
    Ids nodes = {0};
    for (uint32_t i = 0; i < p->stage.n; i++) {
        const Stage *s = &p->stage.at[i];
        for (uint32_t k = 0; k < s->forward.n + s->infer.n; k++)
            vec_push(g->arena, &nodes,
                     k < s->forward.n ? s->forward.at[k] : s->infer.at[k - s->forward.n]);
    }
    return index_bounds(g, g->arena, &nodes);
}

/* What integer inputs may hold: rows of the tables that they choose from, classes of the loss. */
static uint32_t print_indices(const Pipe *p, Text *t)
{
    const Graph *g = p->graph;
    IndexBounds all = bounds_of(p), whole = {0};
    if (p->whole)
        whole = bounds_of(p->whole);
    for (uint32_t i = 0; i < whole.n; i++)
        vec_push(g->arena, &all, whole.at[i]);
    bool classes = p->loss_classes && p->target != NONE;
    if (all.n + classes == 0)
        return 0;
    text_line(
        t, "// what elements of an input's rows may be: input, first, step, count, least, most,");
    text_line(t, "// or this other one, of which table, its rows");
    text_line(t, "static const PpIndex indices[] = {");
    for (uint32_t i = 0; i < all.n; i++) {
        const Value *of = val(g, all.at[i].table);
        const char *name = of->kind == V_PARAM ? g->param.at[of->param].name : of->name;
        print_index(p, &all.at[i], cg_string(g->arena, name), t);
    }
    const Value *target = classes ? val(g, p->target) : NULL;
    if (classes)
        print_index(p,
                    &(IndexBound){.input = p->target,
                                  .step = 1,
                                  .count = shape_elements(&target->shape) /
                                           (target->batch >= 0 ? g->batch : 1),
                                  .most = p->loss_classes - 1,
                                  .replaced = true,
                                  .other = p->loss_ignore,
                                  .rows = p->loss_classes},
                    "NULL", t);
    text_line(t, "};\n");
    return all.n + classes;
}

/* The stages of one device. */
static void print_stages(const Pipe *p, const char *name, const char *suffix, Text *t)
{
    text_add(t, "static const PpStage *const %s[] = {", name);
    for (uint32_t i = 0; i < p->stage.n; i++)
        text_add(t, "%s&pp_stage%u%s", i ? ", " : "", i, suffix);
    text_add(t, "};\n");
}

/* The inputs as they are for any number of rows: what --bind and --chunk have made of them. */
static const char *inputs_text(const Pipe *p)
{
    const Graph *g = p->graph;
    int64_t batch = g->batch > 0 ? g->batch : 1;
    const char *all = "";
    for (uint32_t i = 0; i < g->input.n; i++) {
        const Value *v = val(g, g->input.at[i]);
        Shape row = v->shape;
        if (g->input.at[i] == p->loss_scale || g->input.at[i] == p->target)
            continue;
        if (v->batch >= 0)
            row.d[v->batch] /= batch;
        all = arena_printf(g->arena, "%s%s%s %s", all, *all ? ", " : "", v->name,
                           shape_print(g->arena, v->dtype, &row));
        if (v->batch >= 0)
            all = arena_printf(g->arena, "%s a row, along %d", all, v->batch);
    }
    return all;
}

/* What of ppsplit's options changes the numbers of a run. */
static void print_made(const Pipe *p, const CodegenOptions *opt, Text *t)
{
    Arena *a = p->graph->arena;
    text_line(t, "// what changes numbers, as ppsplit was told");
    text_line(t, "static const PpMade made[] = {");
    for (uint32_t i = 0; i < opt->made.n; i++)
        text_line(t, "    {%s, %s},", cg_string(a, opt->made.at[i].option),
                  cg_string(a, opt->made.at[i].value));
    text_line(t, "    {\"bind\", %s},", cg_string(a, inputs_text(p)));
    text_line(t, "};\n");
}

void cg_pipeline_print(Pipe *p, const CodegenOptions *opt, uint64_t hash, const Text *tables,
                       Text *out)
{
    bool cpu = opt->cpu, cuda = opt->cuda;
    static const char *const kind[] = {"PP_LOSS_NONE", "PP_LOSS_SUM", "PP_LOSS_MEAN_ELEMENTS",
                                       "PP_LOSS_MEAN_TARGETS", "PP_LOSS_MEAN_ROWS"};
    const Graph *g = p->graph;
    Text body = {.a = g->arena}, *t = &body;
    int64_t loss = loss_output(p);
    if (p->loss != NONE && loss < 0)
        BUG("the last stage does not put out the loss");
    text_add(t, "%s#include \"pp.h\"\n\n%s", cuda ? "#include <math.h>\n\n" : "",
             tables->at ? tables->at : "");
    if (cpu)
        print_stages(p, "cpu_stages", "", t);
    /* the goal `pipeline` builds without CUDA */
    if (cuda) {
        text_add(t, "#ifdef PP_WITH_CUDA\n");
        print_stages(p, "cuda_stages", "_cuda", t);
        text_add(t, "#else\n#define cuda_stages NULL\n#endif\n");
    }
    text_add(t, "\n");
    uint32_t inputs = print_inputs(p, t);
    bool meets = !print_outputs(p, t);
    uint32_t indices = print_indices(p, t);
    print_made(p, opt, t);
    const char *why = p->uneven.n ? cg_string(g->arena, p->uneven.at[0]) : "NULL";
    uint32_t params = g->param.n;
    if (p->split.n > 0)
        text_line(t, "static const char *const split_points[] = {");
    for (uint32_t i = 0; i < p->split.n; i++)
        text_line(t, "    %s,", cg_string(g->arena, p->split.at[i]));
    if (p->split.n > 0)
        text_line(t, "};\n");
    text_line(t, "const PpPlan pp_plan = {");
    t->indent = 1;
    text_line(t, ".model = %s,", cg_string(g->arena, p->model_name ? p->model_name : ""));
    text_line(t, ".hash = 0x%016" PRIx64 "u, .model_hash = 0x%016" PRIx64 "u,", hash,
              g->model_hash);
    if (p->split.n > 0)
        text_line(t, ".n_split = %u, .split = split_points,", p->split.n);
    text_line(t, ".rows = %" PRId64 ", .uneven_ok = %d, .uneven_why = %s,",
              g->batch > 0 ? g->batch : 1, p->uneven.n == 0, why);
    text_line(t, ".n_stage = %u, .n_input = %u, .n_output = %u, .n_param = %u,", p->stage.n, inputs,
              g->output.n, params);
    text_line(t, ".stage = %s,", cpu ? "cpu_stages" : "cuda_stages");
    text_line(t, ".cpu_stage = %s, .cuda_stage = %s,", cpu ? "cpu_stages" : "NULL",
              cuda ? "cuda_stages" : "NULL");
    text_line(t, ".input = %s, .output = %s, .output_merge = %s,", inputs ? "inputs" : "NULL",
              g->output.n ? "outputs" : "NULL", g->output.n ? "output_merge" : "NULL");
    text_line(t, ".output_why = %s, .target_why = %s,", meets ? "NULL" : "output_why",
              p->target_why ? cg_string(g->arena, p->target_why) : "NULL");
    text_line(t,
              ".loss_stage = %" PRId64 ", .loss_output = %" PRId64
              ", .loss_kind = %s, .loss_per_row = %" PRId64 ", .loss_ignore = %" PRId64 ",",
              loss < 0 ? (int64_t)-1 : (int64_t)p->stage.n - 1, loss,
              kind[p->loss == NONE ? 0 : p->scale], p->loss_per_row, p->loss_ignore);
    if (p->whole)
        text_line(t, ".minibatch_rows = %" PRId64 ", .minibatch_why = %s,", p->whole->graph->batch,
                  p->uneven_loss.n ? cg_string(g->arena, p->uneven_loss.at[0]) : "NULL");
    text_line(t, ".loss_target = %" PRId64 ", .n_index = %u, .index = %s, .device = %s,",
              target_index(p), indices, indices ? "indices" : "NULL", cpu ? "PP_CPU" : "PP_CUDA");
    text_line(t, ".n_made = %u, .made = made,", opt->made.n + 1);
    uint64_t written = hash_bytes(hash, body.at, body.n);
    text_line(t, ".written = 0x%016" PRIx64 "u,", written);
    t->indent = 0;
    text_line(t, "};\n");
    text_line(t,
              "int main(int argc, char **argv)\n{\n    return pp_main(argc, argv, &pp_plan);\n}");
    text_add(out,
             "// pipeline.c - the program: its stages, inputs and outputs.  Written by ppsplit.\n"
             PPSPLIT_WRITTEN "0x%016" PRIx64 "\n\n%s",
             written, body.at);
}

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

static void print_tensors(const char *name, const PpTensor *list, int n, Text *t)
{
    if (n == 0)
        return;
    text_line(t, "static const PpTensor %s[] = {", name);
    for (int i = 0; i < n; i++)
        text_line(t, "    %s,", cg_tensor_text(t->a, &list[i]));
    text_line(t, "};\n");
}

static void print_outputs(const PpPlan *plan, Text *t)
{
    static const char *const how[] = {[PP_MERGE_LAST] = "PP_MERGE_LAST",
                                      [PP_MERGE_SUM] = "PP_MERGE_SUM",
                                      [PP_MERGE_MEAN] = "PP_MERGE_MEAN",
                                      [PP_MERGE_NONE] = "PP_MERGE_NONE"};
    print_tensors("outputs", plan->output, plan->n_output, t);
    if (plan->n_output == 0)
        return;
    text_line(t, "// how microbatches meet in an output without rows");
    text_line(t, "static const int output_merge[] = {");
    for (int i = 0; i < plan->n_output; i++)
        text_line(t, "    %s,", how[plan->output_merge[i]]);
    text_line(t, "};\n");
    if (!plan->output_why)
        return;
    text_line(t, "// why they do not meet");
    text_line(t, "static const char *const output_why[] = {");
    for (int i = 0; i < plan->n_output; i++)
        text_line(t, "    %s,",
                  plan->output_why[i] ? cg_string(t->a, plan->output_why[i]) : "NULL");
    text_line(t, "};\n");
}

static void print_indices(const PpPlan *plan, Text *t)
{
    if (plan->n_index == 0)
        return;
    text_line(t, "// what elements of an input's rows may be: rows of a table, or classes");
    text_line(t, "static const PpIndex indices[] = {");
    for (int i = 0; i < plan->n_index; i++) {
        const PpIndex *x = &plan->index[i];
        text_line(t,
                  "    {.input = %d, .first = %" PRId64 ", .step = %" PRId64 ", .count = %" PRId64
                  ", .least = %" PRId64 ", .most = %" PRId64 ",",
                  x->input, x->first, x->step, x->count, x->least, x->most);
        text_line(t,
                  "     .has_other = %d, .other = %" PRId64 ", .table = %s, .rows = %" PRId64 "},",
                  x->has_other, x->other, x->table ? cg_string(t->a, x->table) : "NULL", x->rows);
    }
    text_line(t, "};\n");
}

/* The stages of one device. */
static void print_stages(const Pipe *p, const char *name, const char *suffix, Text *t)
{
    text_add(t, "static const PpStage *const %s[] = {", name);
    for (uint32_t i = 0; i < p->stage.n; i++)
        text_add(t, "%s&pp_stage%u%s", i ? ", " : "", i, suffix);
    text_add(t, "};\n");
}

/* The inputs as they are for any number of rows, and those that have a value: what --bind and
 * --chunk have made of them. */
static const char *inputs_text(const Pipe *p)
{
    const Graph *g = p->graph;
    int64_t batch = g->batch > 0 ? g->batch : 1;
    Text all = {.a = g->arena};
    for (uint32_t i = 0; i < g->input.n; i++) {
        const Value *v = val(g, g->input.at[i]);
        Shape row = v->shape;
        if (g->input.at[i] == p->loss_scale || g->input.at[i] == p->target ||
            graph_is_total(g, g->input.at[i]))
            continue;
        if (v->batch >= 0)
            row.d[v->batch] /= batch;
        text_add(&all, "%s%s %s", all.n ? ", " : "", v->name,
                 shape_print(g->arena, v->dtype, &row));
        if (v->batch >= 0)
            text_add(&all, " a row, along %d", v->batch);
    }
    for (uint32_t i = 0; i < g->files.bound.n; i++)
        text_add(&all, "%s%s", all.n ? ", " : "", g->files.bound.at[i]);
    return text_all(&all);
}

static void print_totals(const PpPlan *plan, Text *t)
{
    if (plan->totals.n == 0)
        return;
    text_line(t, "// what the data of a step alone decide: stage totals, added up over its rows");
    text_line(t, "static const PpTotal total[] = {");
    for (int i = 0; i < plan->totals.n; i++)
        text_line(t, "    {.input = %d, .mean = %d, .level = %d},", plan->totals.of[i].input,
                  plan->totals.of[i].mean, plan->totals.of[i].level);
    text_line(t, "};\n");
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

static void print_split(const PpPlan *plan, Text *t)
{
    if (plan->program.n_split == 0)
        return;
    text_line(t, "static const char *const split_points[] = {");
    for (int i = 0; i < plan->program.n_split; i++)
        text_line(t, "    %s,", cg_string(t->a, plan->program.split[i]));
    text_line(t, "};\n");
}

static const char *text_or_null(Arena *a, const char *s) { return s ? cg_string(a, s) : "NULL"; }

/* Fills in plan->program.written: of all text before it. */
static void print_plan(PpPlan *plan, const CodegenOptions *opt, Text *t)
{
    static const char *const kind[] = {"PP_LOSS_NONE", "PP_LOSS_SUM", "PP_LOSS_MEAN_ELEMENTS",
                                       "PP_LOSS_MEAN_TARGETS", "PP_LOSS_MEAN_ROWS"};
    bool cpu = opt->cpu, cuda = opt->cuda;
    text_line(t, "const PpPlan pp_plan = {");
    t->indent = 1;
    text_line(t, ".model = %s,", cg_string(t->a, plan->model));
    text_line(t, ".program.hash = 0x%016" PRIx64 "u, .program.model_hash = 0x%016" PRIx64 "u,",
              plan->program.hash, plan->program.model_hash);
    for (int x = 0; x < PP_AXES; x++)
        if (plan->chunks[x] > 1)
            text_line(t, ".members[%s] = %d, .chunks[%s] = %d,", cg_mesh_name(x), plan->members[x],
                      cg_mesh_name(x), plan->chunks[x]);
    if (plan->program.n_split > 0)
        text_line(t, ".program.n_split = %d, .program.split = split_points,",
                  plan->program.n_split);
    text_line(t, ".rows = %" PRId64 ", .uneven.ok = %d, .uneven.why = %s,", plan->rows,
              plan->uneven.ok, text_or_null(t->a, plan->uneven.why));
    for (int v = 0; v < plan->n_length; v++)
        text_line(t, ".n_length = %d, .length[%d] = {%s, %" PRId64 ", %" PRId64 "},",
                  plan->n_length, v, cg_string(t->a, plan->length[v].name), plan->length[v].least,
                  plan->length[v].most);
    text_line(t, ".n_stage = %d, .n_input = %d, .n_output = %d, .n_param = %d,", plan->n_stage,
              plan->n_input, plan->n_output, plan->n_param);
    text_line(t, ".stage = %s,", cpu ? "cpu_stages" : "cuda_stages");
    text_line(t, ".cpu_stage = %s, .cuda_stage = %s,", cpu ? "cpu_stages" : "NULL",
              cuda ? "cuda_stages" : "NULL");
    text_line(t, ".input = %s, .output = %s, .output_merge = %s,",
              plan->n_input ? "inputs" : "NULL", plan->n_output ? "outputs" : "NULL",
              plan->n_output ? "output_merge" : "NULL");
    text_line(t, ".output_why = %s, .loss.target_why = %s,",
              plan->output_why ? "output_why" : "NULL", text_or_null(t->a, plan->loss.target_why));
    text_line(t,
              ".loss.stage = %d, .loss.output = %d, .loss.kind = %s, .loss.ignore = %" PRId64 ",",
              plan->loss.stage, plan->loss.output, kind[plan->loss.kind], plan->loss.ignore);
    if (plan->loss.why)
        text_line(t, ".loss.why = %s,", cg_string(t->a, plan->loss.why));
    if (plan->totals.n)
        text_line(t, ".totals.stage = &pp_totals, .totals.n = %d, .totals.of = total,",
                  plan->totals.n);
    if (plan->minibatch.rows)
        text_line(t, ".minibatch.rows = %" PRId64 ", .minibatch.why = %s,", plan->minibatch.rows,
                  text_or_null(t->a, plan->minibatch.why));
    text_line(t, ".loss.target = %d, .n_index = %d, .index = %s, .device = %s,", plan->loss.target,
              plan->n_index, plan->n_index ? "indices" : "NULL", cpu ? "PP_CPU" : "PP_CUDA");
    text_line(t, ".program.n_made = %u, .program.made = made,", opt->made.n + 1);
    plan->program.written = hash_bytes(plan->program.hash, t->at, t->n);
    text_line(t, ".program.written = 0x%016" PRIx64 "u,", plan->program.written);
    t->indent = 0;
    text_line(t, "};\n");
}

void cg_pipeline_print(Pipe *p, const CodegenOptions *opt, uint64_t hash, const Text *tables,
                       Text *out)
{
    bool cpu = opt->cpu, cuda = opt->cuda;
    Text body = {.a = p->graph->arena}, *t = &body;
    PpPlan plan = cg_program_table(p, opt->lengths, t->a);
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
    print_tensors("inputs", plan.input, plan.n_input, t);
    print_outputs(&plan, t);
    print_indices(&plan, t);
    print_made(p, opt, t);
    print_split(&plan, t);
    print_totals(&plan, t);
    plan.program.hash = hash;
    print_plan(&plan, opt, t);
    text_line(t,
              "int main(int argc, char **argv)\n{\n    return pp_main(argc, argv, &pp_plan);\n}");
    text_add(out,
             "// pipeline.c - the program: its stages, inputs and outputs.  Written by ppsplit.\n"
             PPSPLIT_WRITTEN "0x%016" PRIx64 "\n\n%s",
             plan.program.written, body.at);
}

/*
 * pipeline.c - the program around the stages.  In: the Pipe and its generated stages.  Out:
 * pipeline.c with the plan: the model's inputs and outputs, how the loss follows from the
 * microbatches, and main().
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cli/version.h"
#include "base/file/hash.h"
#include "fields.h"
#include "write.h"

/* The stages of one device. */
static void print_stages(const Pipe *p, const char *name, const char *suffix, Text *t)
{
    text_add(t, "static const PpStage *const %s[] = {", name);
    for (uint32_t i = 0; i < p->stage.n; i++)
        text_add(t, "%s&pp_stage%u%s", i ? ", " : "", i, suffix);
    text_add(t, "};\n");
}

/* "n i64 = 48": a value may be a length. */
static const char *bound_text(Arena *a, const char *bound, SizesMet *sizes)
{
    const char *value = strrchr(bound, ' ') + 1;
    char *end;
    const int64_t n = strtoll(value, &end, 10);
    if (!sizes || *end || end == value)
        return bound;
    return arena_printf(a, "%.*s%" PRId64, (int)(value - bound), bound, cg_size_outside(sizes, n));
}

/* The inputs as they are for any number of rows, and those that have a value: what --bind and
 * --chunk have made of them. */
static const char *inputs_text(const Pipe *p, SizesMet *sizes)
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
        for (int d = 0; d < row.rank; d++)
            row.d[d] = cg_size_outside(sizes, row.d[d]);
        text_add(&all, "%s%s %s", all.n ? ", " : "", v->name,
                 shape_print(g->arena, v->dtype, &row));
        if (v->batch >= 0)
            text_add(&all, " a row, along %d", v->batch);
    }
    for (uint32_t i = 0; i < g->files.bound.n; i++)
        text_add(&all, "%s%s", all.n ? ", " : "",
                 bound_text(g->arena, g->files.bound.at[i], sizes));
    return text_all(&all);
}

/* What of ppsplit's options changes the numbers of a run. */
static void add_made(PpPlan *plan, const Pipe *p, const CodegenOptions *opt, SizesMet *sizes)
{
    PpMade *made = arena_array(p->graph->arena, PpMade, opt->made.n + 1);
    for (uint32_t i = 0; i < opt->made.n; i++)
        made[i] = (PpMade){opt->made.at[i].option, opt->made.at[i].value};
    made[opt->made.n] = (PpMade){"bind", inputs_text(p, sizes)};
    plan->program.made = made;
    plan->program.n_made = (int)opt->made.n + 1;
}

/* Fills in what it says of all the text, as it is without that. */
static void print_plan(PpPlan *plan, const CodegenOptions *opt, SizesMet *sizes, Text *t)
{
    const FieldSizes how = {sizes, false};
    Text lists = {.a = t->a};
    const char *all = fields_text(&fields_plan, "plan", plan, how, &lists);
    plan->program.written = hash_bytes(plan->program.hash, t->at, t->n);
    plan->program.written = hash_bytes(plan->program.written, all, strlen(all));
    if (lists.n)
        plan->program.written = hash_bytes(plan->program.written, lists.at, lists.n);
    all = fields_text(&fields_plan, "plan", plan, how, t);
    if (plan->totals.n)
        fields_list(&fields_total, "plan_totals", plan->totals.of, plan->totals.n, how, t);
    text_add(t, "const PpPlan pp_plan = {\n    %s,\n", all);
    t->indent = 1;
    if (plan->totals.n)
        text_line(t, ".totals = {.stage = &pp_totals, .n = %d, .of = plan_totals},",
                  plan->totals.n);
    text_line(t, ".stage = %s, .cpu_stage = %s, .cuda_stage = %s,",
              opt->cpu ? "cpu_stages" : "cuda_stages", opt->cpu ? "cpu_stages" : "NULL",
              opt->cuda ? "cuda_stages" : "NULL");
    t->indent = 0;
    text_line(t, "};\n");
}

void cg_pipeline_print(Pipe *p, const CodegenOptions *opt, uint64_t hash, const Text *tables,
                       SizesMet *sizes, Text *out)
{
    bool cpu = opt->cpu, cuda = opt->cuda;
    Text body = {.a = p->graph->arena}, *t = &body;
    PpPlan plan = cg_program_table(p, opt->lengths, t->a);
    plan.program.hash = hash;
    plan.device = cpu ? PP_CPU : PP_CUDA;
    add_made(&plan, p, opt, sizes);
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
    print_plan(&plan, opt, sizes, t);
    text_line(t,
              "int main(int argc, char **argv)\n{\n    return pp_main(argc, argv, &pp_plan);\n}");
    text_add(out,
             "// pipeline.c - the program: its stages, inputs and outputs.  Written by ppsplit.\n"
             PPSPLIT_WRITTEN "0x%016" PRIx64 "\n\n%s",
             plan.program.written, body.at);
}

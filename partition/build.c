/*
 * build.c - the Pipe of a graph, and the one of its totals (loss_terms.c): what the data of a step
 * alone decide is computed by a stage of its own, before the others run.
 */
#include "partition.h"

/* No cut, whatever the model says. */
static void leave_cuts(Graph *g)
{
    for (uint32_t i = 0; i < g->origin.n; i++) {
        g->origin.at[i].split_marker = false;
        g->origin.at[i].pipeline_stage = -1;
    }
}

/* The graph once more, of the same inputs; its outputs are what a microbatch adds to the totals. */
static Graph *graph_of_totals(const Graph *from)
{
    Graph *g = graph_twin(from, from->arena);
    leave_cuts(g);
    g->output.n = g->output_name.n = 0;
    for (uint32_t i = 0; i < g->total.n; i++) {
        const StepTotal *t = &g->total.at[i];
        vec_push(g->arena, &g->output, t->value);
        vec_push(g->arena, &g->output_name, val(g, t->input)->name);
    }
    return g;
}

static Pipe *totals_pipe(Graph *g, const PartitionOptions *opt, ValueId loss_scale)
{
    PartitionOptions own = {.batch.chunk = opt->batch.chunk, .alone = "totals"};
    Loss none = {.loss = NONE, .loss_scale = NONE, .target = NONE, .origin = NONE};
    BatchNotes notes = {0};
    pipe_prepare(g, &own, &none, &notes);
    Pipe *p = pipe_cut(g, &own, &none, &notes);
    p->loss_scale = loss_scale;     /* an input that is none of the data's */
    return p;
}

Pipe *pipe_build(Graph *g, const PartitionOptions *opt, const Loss *l)
{
    BatchNotes notes = {0};
    Loss own = l ? *l : (Loss){.loss = NONE, .loss_scale = NONE, .target = NONE, .origin = NONE};
    pipe_prepare(g, opt, &own, &notes);
    Graph *totals = g->total.n > 0 ? graph_of_totals(g) : NULL;
    Pipe *p = pipe_cut(g, opt, &own, &notes);
    p->totals = totals ? totals_pipe(totals, opt, p->loss_scale) : NULL;
    return p;
}

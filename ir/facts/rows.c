/*
 * rows.c - which of the dimensions that may hold the rows of the inputs does.
 *
 * In: a graph with Graph.rows.at, the likeliest first.  Out: Graph.rows.by and the graph's rows.
 * Each is tried: along the rows a model computes every sample by itself, so that its outputs have
 * their rows, or sums and means over them, and no sample influences another.  The first of which
 * that holds is it; along a sequence attention and recurrence do not.  Where it holds of none, the
 * one with the fewest outputs that it fails for.
 */
#include "facts.h"

/* Outputs that have neither rows nor are a number for all of them; of none of those, the places
 * where samples influence each other. */
static uint32_t against(Graph *g, uint32_t by, const BatchOptions *opt)
{
    enum { OUTPUT = 1 << 16 };
    BatchNotes notes = {.target = NONE, .loss = NONE};
    uint32_t n = 0;
    g->rows.by = by;
    g->batch = g->rows.at.at[by].rows;
    batch_analyse(g, 0, opt, &notes);
    for (uint32_t i = 0; i < notes.output.n; i++) {
        OutputMerge how = notes.output.at[i].how;
        bool number = val(g, g->output.at[i])->shape.rank == 0;
        n += how == MERGE_NONE || (how != MERGE_ROWS && !number);
    }
    return n ? n * OUTPUT : notes.mixes.n < OUTPUT ? notes.mixes.n : OUTPUT - 1;
}

void graph_choose_rows(Graph *g, const BatchOptions *opt)
{
    uint32_t best = 0, least = UINT32_MAX;
    for (uint32_t i = 0; i < g->rows.at.n && g->rows.at.n > 1 && least > 0; i++) {
        uint32_t n = against(g, i, opt);
        if (n < least)
            least = n, best = i;
    }
    if (g->rows.at.n == 0)
        return;
    g->rows.by = best;
    g->batch = g->rows.at.at[best].rows;
}

/*
 * split.c - from split points to a stage number for every node.
 *
 * In: the graph, --split options, in-graph markers, pipeline_stage annotations.  Out: stage_of[node
 * id]. Every kind of split point becomes a cut: a node id before which a new stage begins.  Only
 * nodes that depend on a data input count for "first" and "last": masks, tables and views of
 * weights may stand anywhere.  Those that do not are placed with their first consumer.
 */
#include <stdlib.h>

#include "split_int.h"

/* Its gradient begins in the last stage: what a model computes after its loss cannot stand alone.
 */
static void check_loss(const Split *s, ValueId loss, const uint32_t *stage_of)
{
    const Value *v = loss == NONE ? NULL : val(s->g, loss);
    if (!v || v->kind != V_NODE || stage_of[v->node] == s->cut.n)
        return;
    diag_hint("split before the loss");
    diag_fatal(EXIT_USAGE, WHERE_FILE(s->g->file),
               "the loss would be in stage %u of %u, but it must be in the last: no part of it is "
               "computed after %s",
               stage_of[v->node], s->cut.n + 1, s->cut.at[s->cut.n - 1].text);
}

Split split_open(Graph *g, ValueId loss, const PartitionOptions *opt)
{
    Split s = {.g = g, .a = g->arena, .data = flow_of_data(g, g->arena)};
    s.live = graph_needed(s.g, s.a, loss);
    s.inside = arena_array(s.a, bool, g->node.n + 1);
    for (uint32_t i = 0; i < g->undivided.n; i++)
        for (NodeId n = g->undivided.at[i].first + 1; n <= g->undivided.at[i].last; n++)
            s.inside[n] = true;
    for (uint32_t i = 0; opt && i < opt->split.n; i++)
        split_cut_points(&s, opt->split.at[i]);
    split_cut_model(&s);
    return s;
}

uint32_t *split_assign(Pipe *p, Arena *a, const PartitionOptions *opt, uint32_t *stages)
{
    Split s = split_open(p->graph, p->loss, opt);
    if (opt && opt->automatic.stages > 0)
        p->automatic = split_automatically(&s, opt, p->loss, a);
    uint32_t *stage_of = split_stages(&s, a);
    check_loss(&s, p->loss, stage_of);
    split_name_cuts(&s, p);
    *stages = s.cut.n + 1;
    return stage_of;
}

/*
 * stages.c - the stage of each node of a model's file.
 *
 * In: the graph, the stage of each of its nodes.  Out: by node of the file its stage.  A node from
 * which nodes come that depend on the data is in their stage.  The others (constants, shapes, views
 * of weights, what was simplified away) stand with their first reader, else with what they read.
 */

#include "annotate.h"
#include "frontend/onnx/onnx.h"

static const uint32_t several = NONE - 1; /* of a node whose parts are in several stages */

static void from_graph(const Graph *g, const Model *m, const uint32_t *stage_of, uint32_t loss,
                       uint32_t *stage)
{
    const bool *data = flow_of_data(g, g->arena);
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        uint32_t at = x->origin > 0 && x->origin < loss ? g->origin.at[x->origin].index : NONE;
        if (at >= m->graph->n_node || !x->nout || !data[x->out[0]])
            continue;
        stage[at] = stage[at] == NONE || stage[at] == stage_of[n] ? stage_of[n] : several;
    }
}

/* ---- by name of a tensor ---- */

static void lower(StrMap *first, const char *name, uint32_t stage)
{
    if (!name || !*name)
        return;
    uint32_t *at = strmap_at(first, name);
    *at = stage < *at ? stage : *at;
}

/* What a node reads, its bodies included. */
static void reads(StrMap *first, const Onnx__NodeProto *n, uint32_t stage)
{
    for (size_t i = 0; i < n->n_input; i++)
        lower(first, n->input[i], stage);
    for (size_t k = 0; k < n->n_attribute; k++) {
        const Onnx__AttributeProto *a = n->attribute[k];
        for (size_t i = 0; a->g && i < a->g->n_node; i++)
            reads(first, a->g->node[i], stage);
    }
}

static bool to_readers(const Model *m, uint32_t *stage)
{
    const Onnx__GraphProto *g = m->graph;
    StrMap first = {.arena = m->arena};
    bool changed = false;
    for (size_t i = 0; i < g->n_node; i++)
        if (stage[i] < several)
            reads(&first, g->node[i], stage[i]);
    for (size_t i = g->n_node; i-- > 0;) {
        uint32_t least = NONE;
        for (size_t k = 0; stage[i] == NONE && k < g->node[i]->n_output; k++) {
            uint32_t s = strmap_get(&first, g->node[i]->output[k]);
            least = s < least ? s : least;
        }
        if (least == NONE)
            continue;
        stage[i] = least;
        reads(&first, g->node[i], least);
        changed = true;
    }
    return changed;
}

/* The last stage that makes one of its inputs; NONE: none is known. */
static uint32_t latest(const StrMap *by, const Onnx__NodeProto *n)
{
    uint32_t last = NONE;
    for (size_t k = 0; k < n->n_input; k++) {
        uint32_t s = n->input[k] ? strmap_get(by, n->input[k]) : NONE;
        if (s != NONE && (last == NONE || s > last))
            last = s;
    }
    return last;
}

static void to_makers(const Model *m, uint32_t *stage)
{
    const Onnx__GraphProto *g = m->graph;
    StrMap by = {.arena = m->arena};
    for (size_t i = 0; i < g->n_node; i++) {
        if (stage[i] == NONE)
            stage[i] = latest(&by, g->node[i]);
        for (size_t k = 0; stage[i] < several && k < g->node[i]->n_output; k++)
            if (g->node[i]->output[k])
                *strmap_at(&by, g->node[i]->output[k]) = stage[i];
    }
}

/* Nodes whose parts are in several stages, and stages in which no node is. */
static void leave_out(const Model *m, uint32_t stages, uint32_t *stage)
{
    bool *used = arena_array(m->arena, bool, stages + 1);
    for (uint32_t i = 0; i < m->graph->n_node; i++) {
        const Onnx__NodeProto *n = m->graph->node[i];
        if (stage[i] < stages)
            used[stage[i]] = true;
        if (stage[i] != several)
            continue;
        diag_hint("an annotation gives a node one stage; when the file is read, the cut is after "
                  "this node");
        diag_warn((Where){m->path, "node", i, n->name, n->op_type, -1},
                  "parts of it are in several stages: it is not annotated");
        stage[i] = NONE;
    }
    for (uint32_t s = 0; s < stages; s++)
        if (!used[s])
            diag_warn(WHERE_FILE(m->path),
                      "stage %u has no whole node of the model (it is inside a node, or the loss): "
                      "the annotations leave it out",
                      s);
}

void annotate_stages(const Graph *g, const uint32_t *stage_of, uint32_t stages, uint32_t loss,
                     Annotations *to)
{
    const Model *m = g->files.model.at[0];
    uint32_t *stage = arena_none(g->arena, m->graph->n_node);
    from_graph(g, m, stage_of, loss, stage);
    while (to_readers(m, stage))
        ;
    to_makers(m, stage);
    leave_out(m, stages, stage);
    to->stages = stages;
    to->stage = stage;
}

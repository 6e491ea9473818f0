/*
 * loss_part.c - --loss-over minibatch: which nodes are the loss over all rows of a minibatch.
 *
 * In: the graph with its loss, and where the rows are.  Out: the nodes that are computed once, when
 * the outputs of all microbatches are there.  Of a loss that ppsplit appended they are known.  Of
 * one that the model computes (output:NAME) they are the tail of the graph in which no value has
 * rows any more, or rows that influence each other: what it reads has rows of its own, so that the
 * microbatches' follow one another.  In CLIP the tail begins with the product that compares every
 * image with every text, of a variance over the rows with their mean.
 */
#include <string.h>

#include "partition.h"

/* Rows each of which is a sample's alone. */
static bool has_rows(const Graph *g, const BatchNotes *notes, const Node *n)
{
    bool any = false;
    for (uint32_t i = 0; i < n->nout; i++)
        any |= val(g, n->out[i])->batch >= 0 && !notes->fate[n->out[i]].mixed;
    return any;
}

/* From the last node to the first: no rows, and nothing before reads it. */
static void find_tail(const Graph *g, const BatchNotes *notes, const bool *live,
                      const bool *varies, bool *part)
{
    bool *read_before = arena_array(g->arena, bool, g->value.n + 1);
    for (uint32_t i = 0; i < g->update.n; i++)
        read_before[g->update.at[i].value] = true;
    for (NodeId n = g->node.n; n-- > 0;) {
        const Node *x = &g->node.at[n];
        part[n] = live[n] && varies[x->out[0]] && !has_rows(g, notes, x);
        for (uint32_t i = 0; i < x->nout; i++)
            part[n] &= !read_before[x->out[i]];
        for (uint32_t i = 0; i < x->nin && live[n] && !part[n]; i++)
            read_before[x->in[i]] = true;
    }
}

static _Noreturn void refuse(const Graph *g, ValueId v, const char *what)
{
    const Value *x = val(g, v);
    uint32_t origin = x->kind == V_NODE ? g->node.at[x->node].origin : g->origin.n;
    diag_hint("let the model output what has rows, and give the rest as --loss model:FILE.onnx");
    diag_fatal(EXIT_MODEL, origin < g->origin.n ? graph_where(g, origin, -1) : WHERE_FILE(g->file),
               "--loss-over minibatch: the loss reads %s, which %s", diag_escape(g->arena, x->name),
               what);
}

/* What comes in is gathered from the microbatches row by row, or is the same in all of them. */
static void check_gathered(const Graph *g, const BatchNotes *notes, const bool *varies,
                           const bool *part)
{
    for (NodeId n = 0; n < g->node.n; n++)
        for (uint32_t i = 0; i < g->node.at[n].nin && part[n]; i++) {
            ValueId v = g->node.at[n].in[i];
            const Value *x = val(g, v);
            if (!varies[v] || (x->kind == V_NODE && part[x->node]))
                continue;
            if (x->batch < 0)
                refuse(g, v,
                       "mixes all rows of a microbatch, so several microbatches cannot be put "
                       "together");
            if (notes->outer[v] != 1)
                refuse(g, v, "does not have its rows outermost in their dimension");
        }
}

static _Noreturn void refuse_mixed(const Graph *g, NodeId n, const char *why)
{
    diag_note("%s", why);
    diag_hint(
        "let the model output what comes before, and give the rest as --loss model:FILE.onnx");
    diag_fatal(EXIT_MODEL, graph_where(g, g->node.at[n].origin, -1),
               "--loss-over minibatch: after this the model has a row for each sample again, so "
               "this cannot be part of the loss over the minibatch");
}

/* A model's own loss: what lets rows influence each other before the tail does so among the rows of
   a microbatch only; and outputs of microbatches are none of the tail.  Of BatchNormalization that
   is known and meant. */
static void check_mixes(const Graph *g, const BatchNotes *notes, const bool *part)
{
    for (uint32_t i = 0; i < notes->mixes_at.n; i++) {
        NodeId n = notes->mixes_at.at[i];
        const Origin *o = &g->origin.at[g->node.at[n].origin];
        if (!part[n] && !(o->type && strcmp(o->type, "BatchNormalization") == 0))
            refuse_mixed(g, n, notes->mixes.at[i]);
    }
    for (uint32_t i = 0; i < g->output.n; i++) {
        const Value *v = val(g, g->output.at[i]);
        if (v->kind == V_NODE && part[v->node] && v->batch >= 0)
            refuse_mixed(g, v->node, notes->fate[g->output.at[i]].mixed);
    }
}

bool *loss_part(Graph *g, const Loss *l, const BatchNotes *notes)
{
    bool *part = arena_array(g->arena, bool, g->node.n + 1);
    const bool *live = graph_needed(g, g->arena, l->loss), *varies = flow_of_rows(g, g->arena);
    if (l->origin == NONE) {
        find_tail(g, notes, live, varies, part);
        check_mixes(g, notes, part);
    }
    for (NodeId n = 0; n < g->node.n && l->origin != NONE; n++)
        part[n] = live[n] && g->node.at[n].origin != NONE && g->node.at[n].origin >= l->origin;
    check_gathered(g, notes, varies, part);
    return part;
}

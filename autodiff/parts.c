/*
 * parts.c - LogSoftmax becomes elementwise operations and reductions: before the stash is chosen in
 * a stage that trains, before code is generated in any other.  Its backward reads its result; in
 * parts, the stash may instead be its operand, which a product has written to memory anyway, and
 * two numbers a row, and forward never writes a value for every class (50,000 a token in a language
 * model).  Softmax stays whole until codegen/plan/lower.c: attention reads its result in any case.
 */
#include <string.h>

#include "autodiff.h"

typedef struct { NodeId first, end; } Parts;            /* new nodes; none: the node stays whole */

/* y = (x - max) - log sum e^(x - max).  The node itself becomes the last subtraction: y stays its
 * value. */
static Parts take_apart(Graph *g, NodeId id)
{
    const Node n = g->node.at[id];
    Parts parts = {.first = g->node.n};
    g->cur_origin = n.origin;
    ValueId in[2] = {g_sub(g, n.in[0], g_reduce(g, OP_ReduceMax, n.in[0], 1, &n.attr.axis)), NONE};
    in[1] =
        g_unary(g, OP_Log, g_reduce(g, OP_ReduceSum, g_unary(g, OP_Exp, in[0]), 1, &n.attr.axis));
    parts.end = g->node.n;
    Node *last = &g->node.at[id];
    *last = (Node){.op = OP_Sub,
                   .nin = 2,
                   .nout = 1,
                   .in = arena_array(g->arena, ValueId, 2),
                   .out = n.out,
                   .origin = n.origin};
    memcpy(last->in, in, sizeof in);
    const Value *y = val(g, n.out[0]);
    for (NodeId k = parts.first; k < parts.end; k++) {
        Value *v = &g->value.at[g->node.at[k].out[0]];
        v->batch =
            y->batch >= 0 && v->shape.d[y->batch] != y->shape.d[y->batch] ? BATCH_NONE : y->batch;
    }
    return parts;
}

/* The parts before what their nodes have become. */
static void spread(Graph *g, Ids *list, const Parts *parts)
{
    Ids all = {0};
    for (uint32_t i = 0; i < list->n; i++) {
        const Parts *p = &parts[list->at[i]];
        for (NodeId k = p->first; k < p->end; k++)
            vec_push(g->arena, &all, k);
        vec_push(g->arena, &all, list->at[i]);
    }
    *list = all;
}

void stage_parts(Graph *g, Stage *s)
{
    const Ids *list[2] = {&s->forward, &s->infer};
    Arena *a = arena_within(g->arena);
    Parts *parts = NULL;
    uint32_t origin = g->cur_origin, n = g->node.n;
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < list[k]->n; i++) {
            NodeId id = list[k]->at[i];
            if (g->node.at[id].op != OP_LogSoftmax)
                continue;
            if (!parts)
                parts = arena_array(a, Parts, n);
            parts[id] = take_apart(g, id);
        }
    if (parts) {
        spread(g, &s->forward, parts);
        spread(g, &s->infer, parts);
    }
    g->cur_origin = origin;
    arena_free(a);
}

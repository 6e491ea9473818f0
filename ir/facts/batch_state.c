/*
 * batch_state.c - what the rules for the rows share: the state of the analysis, reasons, and the
 * rows through a reshape.
 */
#include <string.h>

#include "batch.h"

int batch_fail(Batch *b, const char *why)
{
    b->why = why;
    return BATCH_MIXED;
}

int batch_fixed(Batch *b)
{
    if (b->lacks == NONE)
        return batch_fail(b, "an operand has the batch's size but is fixed in the model");
    Arena *a = b->g->arena;
    int rows = val(b->g, b->lacks)->batch;
    const char *name = diag_escape(a, val(b->g, b->lacks)->name),
               *but = rows < 0 ? "which the file does not call the batch"
                               : arena_printf(a, "whose rows are in dimension %d", rows);
    return batch_fail(b,
                      arena_printf(a,
                                   "it meets the rows with dimension %d of input '%s', %s (--chunk "
                                   "%s=%d, if these are its rows)",
                                   b->lacks_at, name, but, name, b->lacks_at));
}

int batch_brought(Batch *b, const char *why, ValueId by)
{
    ValueKind kind = val(b->g, by)->kind;
    if (kind == V_CONST || kind == V_PARAM)
        return batch_fail(b, why);
    return batch_fail(b, arena_printf(b->g->arena,
                                      "%s that the data hold, as a graph's edges say which nodes "
                                      "influence each other (--microbatches 1 computes all nodes; "
                                      "for a graph a microbatch, the inputs need a dimension of "
                                      "graphs before that of nodes)",
                                      why));
}

/* Every sample meets every sample: what a microbatch yields is no part of what the minibatch
 * yields. */
int batch_crossed(Batch *b, const char *why)
{
    b->mixing = true;
    return batch_fail(b, why);
}

int batch_want(const Batch *b, ValueId v) { return v < b->want.n ? b->want.at[v] : BATCH_NONE; }

int64_t batch_rows(const Batch *b, ValueId v, int dim)
{
    const int64_t n = dim < 0 ? b->rows : val(b->g, v)->shape.d[dim];
    return b->g->rows.divided && n < b->rows ? n : b->rows;
}

const char batch_handed_on[] = "members divide the rows";

bool batch_hands_on(const Batch *b, const Node *n, int dim)
{
    const bool cuts = n->op == OP_Split || n->op == OP_Concat || op_is_collective(n->op);
    return b->g->rows.divided && dim >= 0 && cuts && n->op != OP_AllReduce &&
           (n->attr.axis == dim || (n->op == OP_AllToAll && n->attr.to_axis == dim));
}

int64_t batch_outer(const Batch *b, ValueId v) { return v < b->outer.n ? b->outer.at[v] : 1; }

void batch_set_outer(Batch *b, ValueId v, int64_t outer)
{
    while (b->outer.n <= v)
        vec_push(b->scratch, &b->outer, 1);
    b->outer.at[v] = outer;
}

const char *batch_node_text(const Graph *g, NodeId n)
{
    const Node *x = &g->node.at[n];
    if (x->origin >= g->origin.n)
        return arena_printf(g->arena, "node %u (%s)", n, op_name(x->op));
    if (g->origin.at[x->origin].index == NONE)
        return arena_printf(g->arena, "%s (%s)",
                            diag_escape(g->arena, g->origin.at[x->origin].name), op_name(x->op));
    const Origin *o = &g->origin.at[x->origin];
    const char *type = o->type && *o->type ? o->type : op_name(x->op);
    if (!o->name || !*o->name)
        return arena_printf(g->arena, "node %u (%s)", o->index, diag_escape(g->arena, type));
    return arena_printf(g->arena, "node %u '%s' (%s)", o->index, diag_escape(g->arena, o->name),
                        diag_escape(g->arena, type));
}

const char *batch_mixed_text(const Batch *b, NodeId from, NodeId id)
{
    const char *node = batch_node_text(b->g, from);
    if (from != id || !b->why)
        return arena_printf(
            b->g->arena, "%s computes over all samples of a microbatch: they influence each other",
            node);
    return arena_printf(
        b->g->arena,
        b->mixing ? "%s: %s: what it yields for a microbatch is no part of what it yields for the "
                    "minibatch"
                  : "%s: %s: whether samples influence each other is not known from here on",
        node, b->why);
}

/* The integer at element i of a constant; false for types that hold no index. */
bool batch_const_int(const Value *v, int64_t i, int64_t *x)
{
    if (v->dtype != DT_I64 && v->dtype != DT_I32)
        return false;
    *x = element_int(v->dtype, v->data, i);
    return true;
}

/* ---- the rows through a reshape -------------------------------------------------------------- */

/* The place number `choice` in `out` for the row of dimension dim of `in`, with *outer before it,
   in row-major order; *outer becomes what is before it there.  -1: there are not so many. */
int batch_place(const Shape *in, const Shape *out, int dim, int64_t *outer, int choice)
{
    const int64_t before = *outer * shape_between(in, 0, dim);
    int64_t at = 1;
    bool one = false; /* a dimension of 1 is there for it: then it is one of these */
    for (int j = 0; j < out->rank && at <= before; at *= out->d[j], j++)
        one |= at == before && out->d[j] == 1;
    at = 1;
    for (int j = 0; j < out->rank && at <= before; at *= out->d[j], j++)
        if (at == before && (out->d[j] == 1 || !one) && choice-- == 0) {
            *outer = 1;
            return j;
        }
    if (one)
        return -1;
    at = 1;
    for (int j = 0; j < out->rank && at > 0 && at < before; at *= out->d[j], j++)
        if (before % at == 0 && out->d[j] % (before / at) == 0 && choice-- == 0) {
            *outer = before / at;
            return j;
        }
    return -1;
}

int batch_one_place(const Batch *b, const Node *n, int64_t *outer)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    return batch_place(&x->shape, &y->shape, x->batch, outer,
                       b->choice && y->node < b->nodes ? b->choice[y->node] : 0);
}

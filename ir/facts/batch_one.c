/*
 * batch_one.c - shapes of one row: which dimension holds the rows where sizes do not say it.
 *
 * In: the graph, with inputs tagged.  Out: for each Reshape that could have put the row in several
 * dimensions, which one. [S, 1, E] as [S, E] is [S * rows, E] or [S, rows * E]; [1, E] as [1, 1, E]
 * has the row first or second.  What follows tells: in a model that takes batches nothing widens,
 * cuts or reduces the rows, or looks along them, or has them elsewhere than the file names them in
 * an output.  So the first choice stands until a node does; then the nearest Reshape before it
 * tries its next one (depth first, chronological backtracking). What no choice explains, the model
 * does.
 */
#include <string.h>

#include "batch.h"

enum { MOST_TRIES = 500 };

static bool has_next(const Batch *b, NodeId id)
{
    const Node *n = &b->g->node.at[id];
    const Value *x = val(b->g, n->in[0]);
    int64_t outer = batch_outer(b, n->in[0]);
    return n->op == OP_Reshape && x->batch >= 0 &&
           batch_place(&x->shape, &val(b->g, n->out[0])->shape, x->batch, &outer,
                       b->choice[id] + 1) >= 0;
}

/* Are the rows of an output not where the file has them? */
static bool is_elsewhere(const Batch *b, const Node *n)
{
    bool is = false;
    for (uint32_t i = 0; i < n->nout; i++) {
        ValueId v = n->out[i];
        int told = v < b->values ? b->told[v] : BATCH_NONE, found = val(b->g, v)->batch;
        is |= told >= 0 && found >= 0 && found != told;
    }
    return is;
}

/* Would a batch of several rows be widened, cut, reduced with what is beside it, or looked along
 * here? */
static bool is_odd(const Batch *b, const Node *n)
{
    const Value *y = val(b->g, n->out[0]);
    bool aligned = op_is_map(n->op) || n->op == OP_Expand, odd = b->mixing;
    int found = BATCH_NONE;
    odd |= is_elsewhere(b, n);
    for (uint32_t i = 0; i < n->nin && n->op != OP_Count; i++) {
        const Value *x = val(b->g, n->in[i]);
        if (x->batch < 0)
            continue;
        int at = x->batch + y->shape.rank - x->shape.rank;
        bool stacked = n->op == OP_MatMul && x->batch < x->shape.rank - 2;
        /* 1: BatchNormalization */
        odd |=
            y->batch < 0 && shape_elements(&y->shape) > 1 && (b->why || x->shape.d[x->batch] > 1);
        if ((aligned || stacked) && x->shape.d[x->batch] == 1 && y->shape.d[at] > 1)
            return true;
        if (aligned && found != BATCH_NONE && at != found)
            return true;
        if ((n->op == OP_Slice || n->op == OP_Split) &&
            x->shape.d[x->batch] != y->shape.d[x->batch])
            return true;
        found = at;
    }
    return odd;
}

/* The nearest Reshape before the node (or itself, where an output is elsewhere) on the way of the
 * rows takes its next place; those after it begin again. */
static bool try_next(const Batch *b, NodeId id, bool *reach)
{
    const Graph *g = b->g;
    memset(reach, 0, b->values * sizeof *reach);
    for (NodeId k = id + 1; k-- > 0;) {
        const Node *n = &g->node.at[k];
        bool on = k == id;
        for (uint32_t i = 0; i < n->nout; i++)
            on |= n->out[i] < b->values && reach[n->out[i]];
        if (on && (k != id || is_elsewhere(b, n)) && has_next(b, k)) {
            b->choice[k]++;
            return true;
        }
        if (on)
            b->choice[k] = 0;
        for (uint32_t i = 0; i < n->nin && on; i++)
            if (n->in[i] < b->values && val(g, n->in[i])->batch >= 0)
                reach[n->in[i]] = true;
    }
    return false;
}

/* The first node from the begin that is odd and not known to be; NONE: there is none. */
static NodeId first_odd(Batch *b, const bool *known)
{
    for (NodeId n = 0; n < b->nodes; n++) {
        if (b->g->node.at[n].nout == 0)
            continue;
        (void)batch_sweep_node(b, n);
        if (!known[n] && is_odd(b, &b->g->node.at[n]))
            return n;
    }
    return NONE;
}

void batch_one(Batch *b)
{
    b->nodes = b->g->node.n;
    b->choice = arena_array(b->scratch, uint8_t, b->nodes + 1);
    uint8_t *first = arena_array(b->scratch, uint8_t, b->nodes + 1);
    bool *known = arena_array(b->scratch, bool, b->nodes + 1),
         *reach = arena_array(b->scratch, bool, b->values + 1);
    NodeId front = 0, odd;
    for (int tries = 0; (odd = first_odd(b, known)) != NONE; tries++) {
        if (odd >= front) { /* all before is explained */
            front = odd + 1;
            memcpy(first, b->choice, b->nodes);
        }
        if (tries < MOST_TRIES && try_next(b, odd, reach))
            continue;
        memcpy(b->choice, first, b->nodes);
        known[front - 1] = true;
    }
}

/*
 * batch_rules.c - the rows through one node.
 *
 * In: a node whose operands are tagged.  Out: the dimension that holds the rows of its results, or
 * BATCH_MIXED and the reason.  Rows are an axis of as many chunks as there are rows, each computed
 * alone, and an operand's tag is its place there: ops.def's SPREAD says where the other operands
 * have to be, of which it is demanded, and where the results are.  A way may hold of as many rows
 * as there are only, since attributes of the node (a Slice's begin, a convolution's groups) count
 * them: then microbatches run, but only with all their rows.
 */
#include "batch.h"

static bool is_tagged(const Batch *b, ValueId v) { return val(b->g, v)->batch >= 0; }

static Place place_of(const Batch *b, ValueId v)
{
    return place_s(val(b->g, v)->batch, batch_outer(b, v));
}

static bool is_one(const Batch *b, ValueId v)
{
    return is_tagged(b, v) && val(b->g, v)->shape.d[val(b->g, v)->batch] == 1;
}

/* Are operands that have rows where the way has them?  Of shapes of one row all is that row's, but
   not where two of 1 would be each other's, and what is to be divided has to be known. */
static bool agrees(const Batch *b, const Node *n, const SpreadWay *w)
{
    for (uint32_t i = 0; i < n->nin; i++) {
        ValueId v = n->in[i];
        bool whole = w->in[i].dim < 0,
             free = b->rows == 1 && whole && !(w->crossed && is_one(b, v));
        if (is_tagged(b, v) ? !free && !place_is(w->in[i], place_of(b, v))
                            : b->rows == 1 && !whole && w->lacks)
            return false;
    }
    return true;
}

/* The first operand that cannot be where the way has it, or nin. */
static uint32_t demand_all(Batch *b, Node *n, const SpreadWay *w)
{
    for (uint32_t i = 0; i < n->nin; i++)
        if (w->in[i].dim >= 0 && !batch_demand(b, &n->in[i], w->in[i]))
            return i;
    return n->nin;
}

/* Why the ways of the first operand that has rows are none. */
static void refuse(Batch *b, const Node *n, const SpreadWays *ways, uint32_t lacks)
{
    const SpreadWay *w = ways->n ? ways->at : NULL;
    if (w && lacks == n->nin)
        batch_crossed(b, w->crossed ? w->crossed : "it brings together different samples");
    else if (w && w->lacks)
        batch_brought(b, w->lacks, n->in[lacks]);
    else if (!w && ways->crosses)
        batch_crossed(b, ways->why);
    else if (!w && ways->why && ways->by != NONE)
        batch_brought(b, ways->why, n->in[ways->by]);
    else if (!w && ways->why)
        batch_fail(b, ways->why);
    else
        batch_fixed(b);
}

/* Shapes of one row leave much to guess, but a target's rows are the prediction's, and two of 1
   whose ways exclude each other are the samples'. */
static bool is_strict(const Batch *b, const Node *n, const SpreadWay *w)
{
    bool strict = b->rows > 1, ones = w->crossed != NULL;
    for (uint32_t i = 0; i < n->nin; i++) {
        strict |= n->in[i] < b->values && b->labels[n->in[i]];
        ones &= !is_tagged(b, n->in[i]) || is_one(b, n->in[i]);
    }
    return strict || ones;
}

/* The ways of the first operand with rows of which there is anything to say. */
static SpreadWays ways_of_rows(const Batch *b, NodeId id, Arena *a)
{
    SpreadOf of = {.g = b->g, .chunks = b->rows, .alone = true};
    const Node *n = &b->g->node.at[id];
    SpreadWays ways = {0};
    for (uint32_t i = 0; i < n->nin && ways.n == 0 && !ways.why; i++)
        if (is_tagged(b, n->in[i]))
            spread_ways_at(&of, id, i, place_of(b, n->in[i]), a, &ways);
    return ways;
}

/* The way in which operands are where they have their rows, and the others can be; NULL: there is
   none. */
static const SpreadWay *find_way(Batch *b, NodeId id, Arena *a)
{
    Node *n = &b->g->node.at[id];
    SpreadWays ways = ways_of_rows(b, id, a);
    uint32_t lacks = n->nin;
    for (uint32_t k = 0; k < ways.n; k++) {
        uint32_t at = agrees(b, n, &ways.at[k]) ? demand_all(b, n, &ways.at[k]) : NONE;
        if (at == n->nin)
            return ways.at + k;
        lacks = at != NONE && lacks == n->nin ? at : lacks;
    }
    if (ways.n > 0 && !is_strict(b, n, ways.at))
        return ways.at;
    if (ways.n > 0 || ways.why || b->rows > 1)
        refuse(b, n, &ways, lacks);
    return NULL;
}

/* Where the results are by that way. */
static void take_way(Batch *b, const Node *n, const SpreadWay *w, Place *is)
{
    for (uint32_t i = 0; i < n->nout; i++)
        is[i] = w->out[i].dim >= 0 ? w->out[i] : place_s(BATCH_NONE, 1);
    b->partial = w->out[0].dim == PLACE_P;
    b->sums = b->partial || (w->meets && is[0].dim < 0);
    b->mixing = w->meets && is[0].dim >= 0;
    if (w->sized && b->rows > 1)
        b->why = w->sized;
}

static void put_all(const Node *n, Place *is, int dim, int64_t groups)
{
    for (uint32_t i = 0; i < n->nout; i++)
        is[i] = place_s(dim, groups);
}

static void follow(Batch *b, NodeId id, Arena *a, Place *is)
{
    const Node *n = &b->g->node.at[id];
    if (b->rows == 1 && n->op == OP_Reshape) {
        int64_t outer = batch_outer(b, n->in[0]);
        int dim = batch_one_place(b, n, &outer);
        put_all(n, is,
                dim >= 0 ? dim : batch_fail(b, "the rows are spread over several dimensions"),
                outer);
        return;
    }
    const SpreadWay *w = find_way(b, id, a);
    put_all(n, is, b->why && !w ? BATCH_MIXED : BATCH_NONE, 1);
    if (w)
        take_way(b, n, w, is);
    int want = batch_want(b, n->out[0]);
    if (n->op == OP_Expand && is[0].dim >= 0 && want != BATCH_NONE && want != is[0].dim)
        put_all(n, is, batch_crossed(b, "it brings every sample together with every sample"), 1);
}

/* ---- single rows ---- */

static int64_t row_of(const Batch *b, ValueId v)
{
    return v < b->values && val(b->g, v)->batch < 0 ? b->row[v] : -1;
}

/* which single row the output is made of, or -1 */
static int64_t batch_row(const Batch *b, const Node *n, uint32_t out)
{
    const Value *x = n->nin ? val(b->g, n->in[0]) : NULL; /* Random reads nothing */
    bool split = n->op == OP_Split && x->batch == (int)n->attr.axis;
    int64_t row = -1;
    if (b->rows == 1)
        return -1;
    if ((n->op == OP_Slice || split) && x->batch >= 0 && batch_outer(b, n->in[0]) == 1) {
        int64_t each = x->shape.d[x->batch] / b->rows,
                count = val(b->g, n->out[out])->shape.d[x->batch];
        int64_t at = split ? out * each : n->attr.start[x->batch]; /* of parts of equal sizes */
        bool whole = split ? count == each && n->nout == b->rows
                           : n->attr.step[x->batch] == 1 && count == each && at % each == 0;
        return whole ? at / each : -1;
    }
    for (uint32_t i = 0; i < n->nin; i++) {
        int64_t own = row_of(b, n->in[i]);
        if (val(b->g, n->in[i])->batch >= 0 ||
            (own < 0 && val(b->g, n->in[i])->batch == BATCH_MIXED) ||
            (row >= 0 && own >= 0 && own != row))
            return -1;
        row = own >= 0 ? own : row;
    }
    return row;
}

/* Operands that are not followed: what each is made of may still be known. */
static int mixed_dim(Batch *b, const Node *n)
{
    int axis = (int)n->attr.axis;
    bool single = false, unknown = false, ordered = n->op == OP_Concat && n->nin == b->rows;
    for (uint32_t i = 0; i < n->nin; i++) {
        int64_t row = row_of(b, n->in[i]);
        const Value *v = val(b->g, n->in[i]);
        single |= row >= 0;
        unknown |= row < 0 && v->batch == BATCH_MIXED;
        ordered &= row == (int64_t)i && v->shape.d[axis] == val(b->g, n->in[0])->shape.d[axis];
    }
    if (ordered && b->rows > 1) {
        b->why = "it joins single rows";
        return axis;
    }
    if (single && !unknown && batch_row(b, n, 0) < 0)
        return batch_crossed(b, "it brings together different samples");
    return shape_elements(&val(b->g, n->out[0])->shape) == 1 ? BATCH_NONE : BATCH_MIXED;
}

static void place_results(Batch *b, NodeId id, Arena *a, Place *is)
{
    const Node *n = &b->g->node.at[id];
    if (n->nin && batch_hands_on(b, n, val(b->g, n->in[0])->batch)) {
        b->why = batch_handed_on;
        put_all(n, is, val(b->g, n->in[0])->batch, 1);
        return;
    }
    bool tagged = false, mixed = false;
    for (uint32_t i = 0; i < n->nin; i++) {
        tagged |= is_tagged(b, n->in[i]);
        mixed |= val(b->g, n->in[i])->batch == BATCH_MIXED || row_of(b, n->in[i]) >= 0;
    }
    if (mixed && n->op != OP_Count)
        put_all(n, is, mixed_dim(b, n), 1);
    else if (tagged)
        follow(b, id, a, is);
    else /* what widens may be asked for rows that its operand has not */
        put_all(n, is, n->op == OP_Expand ? batch_want(b, n->out[0]) : BATCH_NONE, 1);
}

/* Places the results of node n and writes their tags; says whether one of them changed. */
bool batch_sweep_node(Batch *b, NodeId id)
{
    Node *n = &b->g->node.at[id];
    Arena *a = arena_within(b->scratch);
    Place *place = arena_array(a, Place, n->nout);
    b->why = NULL;
    b->mixing = b->sums = b->partial = false;
    b->lacks = NONE;
    const int64_t all = b->rows;
    for (uint32_t i = 0; i < n->nin; i++)
        b->rows = batch_rows(b, n->in[i], val(b->g, n->in[i])->batch);
    place_results(b, id, a, place);
    b->rows = all;
    bool changed = false;
    for (uint32_t i = 0; i < n->nout; i++) {
        Value *v = &b->g->value.at[n->out[i]];
        Place is = place[i];
        if (is.dim == BATCH_MIXED && n->out[i] < b->values && b->said[n->out[i]] != BATCH_NONE)
            is = place_s(b->said[n->out[i]], 1);
        if (is.dim < 0 && b->known && n->out[i] < b->values && b->known[n->out[i]] != BATCH_NONE)
            is = place_s(b->known[n->out[i]], 1);
        int64_t outer = is.dim >= 0 ? is.groups : 1, row = is.dim >= 0 ? -1 : batch_row(b, n, i);
        if (n->out[i] < b->values && b->row[n->out[i]] != row) {
            b->row[n->out[i]] = row;
            changed = true;
        }
        if (n->out[i] < b->from) { /* known already, but for outer */
            batch_set_outer(b, n->out[i], is.dim == v->batch ? outer : 1);
            continue;
        }
        changed |= v->batch != is.dim || batch_outer(b, n->out[i]) != outer;
        v->batch = is.dim;
        batch_set_outer(b, n->out[i], outer);
    }
    arena_free(a);
    return changed;
}

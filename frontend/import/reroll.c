/*
 * reroll.c - what a loop computes in the same way for each of its trips is computed at once.  In:
 * one value of each trip.  Out: all of them along a new dim 0, made of the same operations with one
 * dim more; or none, where the trips differ.
 *
 * A loop over the samples of a batch (torch.nn.EmbeddingBag as TorchScript exports it) so becomes
 * operations over the batch, which may be cut into microbatches.  Every element is computed by the
 * same operations in the same order as in the loop.  Slices that move on by the trip are one slice,
 * reshaped; a value that no trip changes has a dim of 1.
 */
#include <string.h>

#include "driver.h"

/* Deeper or larger bodies stay as they are. */
enum { DEEPEST = 200, MOST_KNOWN = 4096 };

typedef struct {
    Graph *g;
    uint32_t n;
    bool build; /* else only whether it can be done */
    int depth;
    struct {
        const ValueId *y;
        ValueId all;
    } known[MOST_KNOWN];
    int n_known;
} Reroll;

/* The trips' values stacked, [n or 1, ...]; NONE: they differ.  Any value where nothing is built.
 */
static ValueId stacked(Reroll *r, const ValueId *y);

/* The node that makes v; a copy, for more nodes may move it. */
static Node maker_of(const Graph *g, ValueId v)
{
    INSIST(val(g, v)->kind == V_NODE);
    return g->node.at[val(g, v)->node];
}

static ValueId *operands(Reroll *r, const ValueId *y, uint32_t i)
{
    ValueId *x = arena_array(r->g->arena, ValueId, r->n);
    for (uint32_t k = 0; k < r->n; k++)
        x[k] = maker_of(r->g, y[k]).in[i];
    return x;
}

static bool all_same(const Reroll *r, const ValueId *y)
{
    for (uint32_t k = 1; k < r->n; k++)
        if (y[k] != y[0])
            return false;
    return true;
}

/* attr: with the same attributes, too */
static bool all_alike(const Reroll *r, const ValueId *y, bool attr)
{
    for (uint32_t k = 1; k < r->n; k++)
        if (!value_alike(r->g, y[0], y[k], attr))
            return false;
    return true;
}

/* ---- leaves ---- */

static ValueId constants(const Reroll *r, const ValueId *y)
{
    Graph *g = r->g;
    Shape s = low_shape(g, y[0]);
    size_t bytes = (size_t)shape_elements(&s) * dtype_size(low_dtype(g, y[0]));
    if (s.rank == MAX_RANK)
        return NONE;
    char *data = arena_alloc(g->arena, bytes * r->n + 1);
    bool alike = true;
    for (uint32_t k = 0; k < r->n && bytes; k++) {
        memcpy(data + k * bytes, val(g, y[k])->data, bytes);
        alike = alike && !memcmp(data, data + k * bytes, bytes);
    }
    s = shape_with(&s, 0, alike ? 1 : r->n);
    return r->build ? low_const(g, low_dtype(g, y[0]), s, data) : y[0];
}

/* Slices of one value that differ in where they start along one dim: a slice of all of it, or a
   selection of its elements, split into trip and rest. */
static ValueId moving_slices(const Reroll *r, const ValueId *y)
{
    Graph *g = r->g;
    Node first = maker_of(g, y[0]);
    Shape s = low_shape(g, y[0]), x = low_shape(g, first.in[0]);
    int axis = -1;
    for (uint32_t k = 0; k < r->n; k++) {
        Node b = maker_of(g, y[k]);
        for (int d = 0; d < x.rank; d++) {
            if (b.attr.step[d] != first.attr.step[d])
                return NONE;
            if (b.attr.start[d] == first.attr.start[d])
                continue;
            if (axis >= 0 && axis != d)
                return NONE;
            axis = d;
        }
    }
    if (axis < 0 || s.rank == MAX_RANK)
        return NONE;
    if (!r->build)
        return y[0];
    int64_t width = s.d[axis], *at = arena_array(g->arena, int64_t, r->n * width), start[MAX_RANK];
    for (uint32_t k = 0; k < r->n; k++)
        for (int64_t i = 0; i < width; i++)
            at[k * width + i] = maker_of(g, y[k]).attr.start[axis] + i * first.attr.step[axis];
    /* the dims that stay, then those of the trips */
    Shape rest = s, step = s;
    const Shape split = shape_with(&s, axis, r->n);
    memcpy(start, first.attr.start, (size_t)x.rank * sizeof *start);
    memcpy(step.d, first.attr.step, (size_t)x.rank * sizeof *step.d);
    start[axis] = 0, step.d[axis] = 1, rest.d[axis] = x.d[axis];
    ValueId v = g_slice(g, first.in[0], start, rest.d, step.d);
    v = low_take(g, v, axis, r->n * width, at);
    return low_move_dim(g, g_reshape(g, v, &split), axis, 0);
}

/* ---- operations with one dim more ---- */

static int64_t lead(const Reroll *r, ValueId v) { return low_shape(r->g, v).d[0]; }

/* [lead, ...] with dims of 1 after the lead, so that the rest lines up with `rank` dims. */
static ValueId lined_up(const Reroll *r, ValueId v, int rank)
{
    Shape s = low_shape(r->g, v), to = {.rank = rank + 1};
    int more = to.rank - s.rank;
    to.d[0] = s.d[0];
    for (int d = 1; d < to.rank; d++)
        to.d[d] = d <= more ? 1 : s.d[d - more];
    return g_reshape(r->g, v, &to);
}

static ValueId with_lead(const Reroll *r, ValueId v)
{
    Shape s = low_shape(r->g, v);
    if (s.d[0] == r->n)
        return v;
    s.d[0] = r->n;
    return g_expand(r->g, v, &s);
}

/* Rows that each trip picks from one table. */
static ValueId gathers(Reroll *r, const ValueId *y)
{
    Graph *g = r->g;
    Node first = maker_of(g, y[0]);
    if (!all_same(r, operands(r, y, 0)))
        return NONE;
    ValueId in[2] = {first.in[0], stacked(r, operands(r, y, 1))};
    if (in[1] == NONE || !r->build)
        return in[1];
    ValueId v = graph_node(g, OP_Gather, 2, in, first.attr);
    return low_move_dim(g, v, (int)first.attr.axis, 0);
}

/* The same operation with the trips in front of its operands; those of maps and products
 * broadcast. */
static ValueId lifted(Reroll *r, const ValueId *y)
{
    Node first = maker_of(r->g, y[0]);
    const bool broadcasts = op_is_map(first.op) || first.op == OP_MatMul || first.op == OP_Expand;
    ValueId *x = arena_array(r->g->arena, ValueId, first.nin);
    for (uint32_t i = 0; i < first.nin; i++) {
        x[i] = stacked(r, operands(r, y, i));
        if (x[i] == NONE || !op_lifts(first.op) || first.nout != 1)
            return NONE;
        if (r->build && broadcasts)
            x[i] = lined_up(r, x[i], low_shape(r->g, y[0]).rank);
        else if (r->build && first.nin > 1)
            x[i] = with_lead(r, x[i]);
    }
    return r->build ? graph_node(r->g, first.op, first.nin, x,
                                 attr_lifted(r->g->arena, first.op, &first.attr, lead(r, x[0])))
                    : y[0];
}

static ValueId computed(Reroll *r, const ValueId *y)
{
    Node first = maker_of(r->g, y[0]);
    if (first.op == OP_Slice && all_same(r, operands(r, y, 0)))
        return moving_slices(r, y);
    if (!all_alike(r, y, true) || low_shape(r->g, y[0]).rank == MAX_RANK)
        return NONE;
    return first.op == OP_Gather ? gathers(r, y) : lifted(r, y);
}

static ValueId stacked(Reroll *r, const ValueId *y)
{
    for (int i = 0; i < r->n_known; i++)
        if (!memcmp(r->known[i].y, y, r->n * sizeof *y))
            return r->known[i].all;
    if (r->depth == DEEPEST || r->n_known == MOST_KNOWN)
        return NONE;
    r->depth++;
    ValueId all = NONE;
    if (all_same(r, y))
        all = low_shape(r->g, y[0]).rank == MAX_RANK ? NONE
              : r->build                             ? low_unsqueeze(r->g, y[0], 0)
                                                     : y[0];
    else if (all_alike(r, y, false) && val(r->g, y[0])->kind == V_CONST)
        all = constants(r, y);
    else if (all_alike(r, y, false) && val(r->g, y[0])->kind == V_NODE)
        all = computed(r, y);
    r->depth--;
    if (r->n_known < MOST_KNOWN) {
        r->known[r->n_known].y = y;
        r->known[r->n_known++].all = all;
    }
    return all;
}

ValueId reroll(Graph *g, uint32_t n, const ValueId *y)
{
    Reroll *r = arena_new_of(g->arena, Reroll);
    *r = (Reroll){.g = g, .n = n};
    if (n < 2 || stacked(r, y) == NONE)
        return NONE;
    *r = (Reroll){.g = g, .n = n, .build = true};
    return with_lead(r, stacked(r, y));
}

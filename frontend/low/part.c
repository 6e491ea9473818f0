/*
 * part.c - a part of values that were joined.  In: a value and a range of each of its dimensions.
 * Out: the value that a Slice of it would repeat, made of the one joined operand that the range lies
 * in, where nothing stands between, or that is something widened and only elementwise operations
 * stand between; or the Slice.
 *
 * (cat(cls.expand(n, 1, d), patches) + positions)[:m, 0] is the class token and its position m
 * times, whatever the patches are: TimeSformer takes the first m of the rows of all frames, and of
 * no frame of another video is there anything in them.
 */
#include "low.h"

enum { DEEPEST = 8 };

typedef struct { int64_t start[MAX_RANK], size[MAX_RANK]; } Range;

static bool is_leaf(const Value *v) { return v->kind == V_PARAM || v->kind == V_CONST; }

static bool has_unit_steps(const Attr *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->step[i] != 1)
            return false;
    return true;
}

/* The range as an operand sees it that is broadcast to `rank` dimensions. */
static Range aligned(const Shape *s, int rank, const Range *r)
{
    Range own = {0};
    for (int i = 0; i < s->rank; i++) {
        bool whole = s->d[i] == 1;
        own.start[i] = whole ? 0 : r->start[i + rank - s->rank];
        own.size[i] = whole ? 1 : r->size[i + rank - s->rank];
    }
    return own;
}

/* The operand of a Concat that has all of the range, which then counts in it; or NONE. */
static ValueId joined(const Graph *g, const Node *n, Range *r)
{
    int axis = (int)n->attr.axis;
    for (uint32_t i = 0; i < n->nin; i++) {
        int64_t size = val(g, n->in[i])->shape.d[axis];
        if (r->start[axis] < size)
            return r->start[axis] + r->size[axis] <= size ? n->in[i] : NONE;
        r->start[axis] -= size;
    }
    return NONE;
}

static Range shifted(const Node *slice, Range r)
{
    for (int i = 0; i < slice->attr.n; i++)
        r.start[i] += slice->attr.start[i];
    return r;
}

/* Does make() know it?  behind: a Concat stood before it. */
static bool is_known(const Graph *g, ValueId v, Range r, bool behind, int depth)
{
    const Node *n = graph_maker(g, v);
    if (!n || depth == DEEPEST)
        return false;
    if (n->op == OP_Expand)
        return behind;
    if (n->op == OP_Slice)
        return has_unit_steps(&n->attr) &&
               is_known(g, n->in[0], shifted(n, r), behind, depth + 1);
    if (n->op == OP_Concat) {
        ValueId one = joined(g, n, &r);
        return one != NONE && is_known(g, one, r, true, depth + 1);
    }
    bool all = op_is_map(n->op), some = false;
    for (uint32_t i = 0; all && i < n->nin; i++) {
        const Value *in = val(g, n->in[i]);
        Range own = aligned(&in->shape, val(g, v)->shape.rank, &r);
        bool known = is_known(g, n->in[i], own, behind, depth + 1);
        all = known || is_leaf(in);
        some |= known;
    }
    return all && some;
}

static ValueId cut(Graph *g, ValueId v, const Range *r)
{
    return g_slice(g, v, r->start, r->size, NULL);
}

static ValueId make(Graph *g, ValueId v, Range r)
{
    const Value x = *val(g, v);
    if (is_leaf(&x))
        return cut(g, v, &r);
    const Node n = g->node.at[x.node];
    if (n.op == OP_Slice)
        return make(g, n.in[0], shifted(&n, r));
    if (n.op == OP_Concat)
        return make(g, joined(g, &n, &r), r);
    ValueId *in = arena_array(g->arena, ValueId, n.nin);
    for (uint32_t i = 0; i < n.nin; i++) {
        Shape s = val(g, n.in[i])->shape;
        Range own = aligned(&s, x.shape.rank, &r);
        in[i] = n.op == OP_Expand ? cut(g, n.in[i], &own) : make(g, n.in[i], own);
    }
    Shape to = {.rank = x.shape.rank};
    for (int i = 0; i < to.rank; i++)
        to.d[i] = r.size[i];
    return n.op == OP_Expand ? g_expand(g, in[0], &to) : graph_node(g, n.op, n.nin, in, n.attr);
}

/* The operand of Concats that has all of the range, which then counts in it; or v itself. */
static ValueId inside(const Graph *g, ValueId v, Range *r)
{
    for (;;) {
        const Node *n = graph_made_by(g, v, OP_Concat);
        Range own = *r;
        ValueId one = n ? joined(g, n, &own) : NONE;
        if (one == NONE)
            return v;
        v = one;
        *r = own;
    }
}

ValueId low_part(Graph *g, ValueId v, const int64_t *start, const int64_t *size,
                 const int64_t *step)
{
    Range r = {0};
    bool unit = true;
    for (int i = 0; i < low_shape(g, v).rank; i++) {
        r.start[i] = start[i];
        r.size[i] = size[i];
        unit &= !step || step[i] == 1;
    }
    if (unit && is_known(g, v, r, false, 0))
        return make(g, v, r);
    v = unit ? inside(g, v, &r) : v;
    return unit ? cut(g, v, &r) : g_slice(g, v, start, size, step);
}

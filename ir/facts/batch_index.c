/*
 * batch_index.c - of which chunks numbers of places tell.
 *
 * In: the index of a node that reads or writes by number, of chunks each computed alone.  Out: how
 * it is divided so that each chunk provably names itself (0, 1, 2, ... along the batch, row *
 * length + place in a flattened value), or that the places are those that MaxPool found.
 */
#include "batch.h"
#include "spread_rules.h"

/*
 * What is known of integers: row r has slope * r * each + (lo to hi), and what the data say where
 * they do.  Slope 0: no row is told from another.
 */
typedef struct {
    int slope; /* 0 or 1; -1: nothing of use is known */
    int64_t lo, hi;
    bool data;
} Span;

static const Span useless = {-1, 0, 0, false}, of_data = {0, 0, 0, true};

/* Of whose integers: entry comp of the last dimension (comp < 0: the value itself), with the rows
 * in each of the groups of dim (dim < 0: none). */
typedef struct {
    int comp, dim;
    int64_t groups, rows, each;
    int *budget; /* values that may be looked at: sums of sums branch */
} Entry;

static Span span_value(const Graph *g, ValueId v, Entry w, int depth);

/* Both ways to read a constant; the narrower one holds.  As wide as a chunk it is of no use. */
static Span span_const(const Value *x, Entry w)
{
    const Shape *s = &x->shape;
    const int64_t inner = shape_between(s, w.dim + 1, s->rank), n = shape_elements(s),
                  last = w.comp >= 0 ? s->d[s->rank - 1] : 1;
    int64_t entries = w.dim < 0 ? 1 : s->d[w.dim] / w.groups / w.rows; /* of a row */
    Span same = {0, INT64_MAX, INT64_MIN, false}, rising = {1, INT64_MAX, INT64_MIN, false};
    for (int64_t i = w.comp >= 0 ? w.comp : 0; i < n; i += last) {
        int64_t is;
        if (!batch_const_int(x, i, &is) || is > INT32_MAX || is < INT32_MIN)
            return useless;
        int64_t up = is - (w.dim < 0 ? 0 : i / inner / entries % w.rows * w.each);
        same.lo = is < same.lo ? is : same.lo;
        same.hi = is > same.hi ? is : same.hi;
        rising.lo = up < rising.lo ? up : rising.lo;
        rising.hi = up > rising.hi ? up : rising.hi;
        if (same.hi - same.lo >= w.each && rising.hi - rising.lo >= w.each)
            return useless;
    }
    return n == 0                                                    ? useless
           : w.dim < 0 || same.hi - same.lo <= rising.hi - rising.lo ? same
                                                                     : rising;
}

/* An operand that is broadcast to the node's result. */
static Span span_aligned(const Graph *g, const Node *n, uint32_t i, Entry w, int depth)
{
    const Shape *s = &val(g, n->in[i])->shape;
    w.dim -= val(g, n->out[0])->shape.rank - s->rank;
    if (w.comp >= 0 && s->d[s->rank - 1] == 1)
        w.comp = 0;
    if (w.dim < 0 || s->d[w.dim] == 1)
        w.dim = -1;
    return span_value(g, n->in[i], w, depth + 1);
}

static Span span_sum(Span x, Span y, int sign)
{
    int slope = x.slope + sign * y.slope;
    /* what is added to a place of the data makes another such place */
    x = x.data && x.slope == 0 ? of_data : x;
    y = y.data && y.slope == 0 ? of_data : y;
    if (x.slope < 0 || y.slope < 0 || slope < 0 || slope > 1)
        return useless;
    return (Span){slope, x.lo + (sign > 0 ? y.lo : -y.hi), x.hi + (sign > 0 ? y.hi : -y.lo),
                  x.data || y.data};
}

static Span span_concat(const Graph *g, const Node *n, Entry w, int depth)
{
    const Shape *s = &val(g, n->out[0])->shape;
    if (w.comp < 0 || n->attr.axis != s->rank - 1)
        return useless;
    for (uint32_t i = 0; i < n->nin; i++) {
        int64_t part = val(g, n->in[i])->shape.d[s->rank - 1];
        if (w.comp < part)
            return span_value(g, n->in[i], w, depth + 1);
        w.comp -= (int)part;
    }
    return useless;
}

static Span span_reshape(const Graph *g, const Node *n, Entry w, int depth)
{
    const Shape *s = &val(g, n->out[0])->shape, *in = &val(g, n->in[0])->shape;
    int64_t entries = w.comp < 0 ? 1 : s->d[s->rank - 1];
    Place is;
    if (entries == 1)
        w.comp = -1;
    else if (in->rank == 0 || in->d[in->rank - 1] != entries)
        return useless;
    if (w.dim >= 0) {
        if (!place_reshaped(s, in, place_s(w.dim, w.groups), w.rows, &is))
            return useless;
        w.dim = is.dim;
        w.groups = is.groups;
    }
    return span_value(g, n->in[0], w, depth + 1);
}

/* x < 0 ? x + n : x, where no x is below 0. */
static Span span_wrapped(const Graph *g, const Node *n, Entry w, int depth)
{
    const Node *less = graph_maker(g, n->in[0]);
    Span x = span_aligned(g, n, 2, w, depth);
    bool wraps = less && less->op == OP_Less && less->in[0] == n->in[2] &&
                 val(g, less->in[1])->kind == V_CONST;
    return wraps && x.lo >= 0 &&
                   span_const(val(g, less->in[1]), (Entry){-1, -1, 1, w.rows, w.each, w.budget})
                           .hi == 0
               ? x
               : of_data;
}

static Span span_same(const Graph *g, const Node *n, Entry w, int depth)
{
    return span_value(g, n->in[0], w, depth + 1);
}

static Span span_cast(const Graph *g, const Node *n, Entry w, int depth)
{
    return dtype_is_float(val(g, n->in[0])->dtype) ? of_data : span_same(g, n, w, depth);
}

static Span span_expand(const Graph *g, const Node *n, Entry w, int depth)
{
    return span_aligned(g, n, 0, w, depth);
}

static Span span_add(const Graph *g, const Node *n, Entry w, int depth)
{
    return span_sum(span_aligned(g, n, 0, w, depth), span_aligned(g, n, 1, w, depth),
                    n->op == OP_Add ? 1 : -1);
}

static Span span_arg(const Graph *g, const Node *n, Entry w, int depth)
{
    (void)w, (void)depth;
    return (Span){0, 0, val(g, n->in[0])->shape.d[n->attr.axis] - 1, false};
}

/* Of what is not here: what the data say, or what is computed from them in another way. */
static Span (*const span_of[OP_COUNT])(const Graph *, const Node *, Entry, int) = {
    [OP_Identity] = span_same, [OP_StopGradient] = span_same, [OP_Vary] = span_same,
    [OP_Cast] = span_cast,     [OP_Reshape] = span_reshape,   [OP_Expand] = span_expand,
    [OP_Concat] = span_concat, [OP_Where] = span_wrapped,     [OP_Add] = span_add,
    [OP_Sub] = span_add,       [OP_ArgMax] = span_arg,        [OP_ArgMin] = span_arg,
};

static Span span_value(const Graph *g, ValueId v, Entry w, int depth)
{
    const Value *x = val(g, v);
    const Shape *s = &x->shape;
    if (depth > 32 || --*w.budget < 0 || w.dim >= s->rank - (w.comp >= 0) ||
        (w.dim >= 0 && s->d[w.dim] % (w.groups * w.rows) != 0))
        return useless;
    if (x->kind == V_CONST)
        return span_const(x, w);
    if (x->kind != V_NODE)
        return of_data;
    const Node *n = &g->node.at[x->node];
    return span_of[n->op] ? span_of[n->op](g, n, w, depth) : of_data;
}

/*
 * Chunk c has `each` places.  One that the data say is taken to be within its chunk, as it was
 * before c * each, or the begin of a plane of that chunk, was added to it: torch.onnx writes
 * x[rows, place] and max_unpool2d so.
 */
Place index_own(const Graph *g, int64_t chunks, ValueId index, int comp, int64_t each)
{
    const Shape *s = &val(g, index)->shape;
    for (int i = 0; i < s->rank - (comp >= 0); i++)
        for (int64_t groups = 1; groups * chunks <= s->d[i]; groups++) {
            int budget = 1000;
            Span is = span_value(g, index, (Entry){comp, i, groups, chunks, each, &budget}, 0);
            if (is.slope == 1 && is.lo >= 0 && is.hi < each && (!is.data || each > 1))
                return place_s(i, groups);
        }
    return place_r();
}

bool index_points_home(const Graph *g, ValueId v)
{
    for (int depth = 0; depth < 32 && val(g, v)->kind == V_NODE; depth++) {
        const Node *n = &g->node.at[val(g, v)->node];
        if (n->op == OP_MaxPool)
            return val(g, v)->out == 1;
        if (n->op != OP_Reshape && n->op != OP_Cast && n->op != OP_Identity &&
            n->op != OP_StopGradient)
            return false;
        v = n->in[0];
    }
    return false;
}

/*
 * spread_uneven.c - a dimension that C does not divide: what is behind its end in the last chunk.
 *
 * There are zeros there, in every value that is so divided, and in every gradient: then they count
 * nowhere in sums and products, and a parameter's stay zeros.  A node that is linear in all that is
 * divided keeps them.  Any other gets its operands by a choice, so that no gradient comes back to
 * those places (elementwise ones with ones there, for what divides; Softmax chooses itself), and
 * zeros are chosen in its results.  All chunks do so, since all run one code.
 */
#include "spread_rules.h"

bool spread_is_uneven(const Spread *s, ValueId whole, Place at)
{
    return at.dim >= 0 && !place_fits(&val(s->whole, whole)->shape, at, s->chunks);
}

ValueId spread_filled(const Spread *s, ValueId x, int dim, int64_t n, double fill)
{
    Graph *g = s->g;
    Shape own = val(g, x)->shape;
    ValueId part = g_scalar(g, DT_I64, (double)own.d[dim]),
            first = g_mul(g, g_reshape(g, s->number, &(Shape){0}), part),
            left = g_sub(g, g_scalar(g, DT_I64, (double)n), first),
            at = g_iota(g, DT_I64, own.rank - dim, 0, own.d[dim]);
    return g_where(g, g_binary(g, OP_Less, at, left), x, g_like(g, x, fill));
}

static bool is_zero(const Spread *s, uint32_t i)
{
    double x;
    return s->way->in[i].dim >= 0 || (g_const_double(s->whole, spread_of(s)->in[i], &x) && x == 0);
}

static bool keeps_zeros(const Spread *s)
{
    const Node *n = spread_of(s);
    const Place *in = s->way->in;
    bool all = true, some = false;
    for (uint32_t i = 0; i < n->nin; i++) {
        all = all && in[i].dim >= 0;
        some |= in[i].dim >= 0;
    }
    switch (n->op) {
    case OP_Gather:
    case OP_GatherElements:
    case OP_GatherND: return in[0].dim >= 0;
    case OP_Mul: return some;
    case OP_Where: return is_zero(s, 1) && is_zero(s, 2);
    default:
        if (op_is_map(n->op) && op_is_linear(n->op))
            return all;
        return op_is_product(n->op) || ((op_is_view(n->op) || op_is_collective(n->op)) && all);
    }
}

static ValueId filled(const Spread *s, ValueId whole, Place at, ValueId x, double fill)
{
    return spread_filled(s, x, at.dim, val(s->whole, whole)->shape.d[at.dim], fill);
}

void spread_zeros(const Spread *s, void build(const Spread *))
{
    const Node *n = spread_of(s);
    const SpreadWay *w = s->way;
    ValueId *in = arena_array(s->g->arena, ValueId, n->nin + 1);
    bool keeps = keeps_zeros(s), chooses = !keeps && n->op != OP_Softmax && n->op != OP_LogSoftmax;
    Spread own = *s;
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = chooses && spread_is_uneven(s, n->in[i], w->in[i])
                    ? filled(s, n->in[i], w->in[i], s->in[i], op_is_map(n->op))
                    : s->in[i];
    own.in = in;
    build(&own);
    for (uint32_t o = 0; o < n->nout && !keeps; o++)
        if (spread_is_uneven(s, n->out[o], w->out[o]))
            s->out[o] = filled(s, n->out[o], w->out[o], s->out[o], 0);
}

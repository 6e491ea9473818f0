/*
 * root.c - roots to core ops.  In: a Sqrt, or a Pow with an exponent between 0 and 1.  Out: the
 * same, whose gradient at 0 is 0 where it is the root of a sum of squares: a distance, a norm.
 *
 * Exporters write torch.cdist, nn.PairwiseDistance, vector norms and std as sums and roots, whose
 * gradient at 0 is then infinity x 0; PyTorch's own backward of these has 0.  A root of anything
 * else keeps its infinite slope.
 */
#include "frontend/low/low.h"

#include <math.h>

static bool is_square(const Graph *g, ValueId v)
{
    const Node *n = graph_made_by(g, v, OP_Mul);
    return n && n->in[0] == n->in[1];
}

/* x x, and of |x| any power */
static bool is_power(const Graph *g, ValueId v)
{
    const Node *n = graph_maker(g, v);
    double c;
    if (!n || (n->op != OP_Mul && n->op != OP_Pow))
        return false;
    if (n->op == OP_Pow)
        return g_const_double(g, n->in[1], &c) && c > 0 &&
               (graph_made_by(g, n->in[0], OP_Abs) || fmod(c, 2) == 0);
    return n->in[0] == n->in[1] || (is_square(g, n->in[0]) && graph_made_by(g, n->in[1], OP_Abs));
}

/* max(x, 0), as low_clip() has it: x is a sum of squares that was computed in another way */
static bool is_clamped(const Graph *g, const Node *n)
{
    double c;
    const Node *below = n->op == OP_Where ? graph_maker(g, n->in[0]) : NULL;
    return below && below->op == OP_LessOrEqual && below->in[0] == n->in[2] &&
           below->in[1] == n->in[1] && g_const_double(g, n->in[1], &c) && c == 0;
}

static bool is_positive(const Graph *g, ValueId v)
{
    double c;
    return low_uniform(g, v, &c) && c > 0;
}

/* Of squares, sums and means; depth: a bound, sums of sums branch. */
static bool is_sum_of_squares(const Graph *g, ValueId v, int depth)
{
    const Node *n = graph_maker(g, v);
    if (!n || depth == 0)
        return false;
    if (is_power(g, v) || is_clamped(g, n))
        return true;
    bool sums = op_is_view(n->op) || n->op == OP_ReduceSum || n->op == OP_ReduceMean ||
                n->op == OP_Cast,
         scales = n->op == OP_Mul || n->op == OP_Div;
    if (n->op == OP_Mul && is_positive(g, n->in[0]))
        return is_sum_of_squares(g, n->in[1], depth - 1);
    if (n->op == OP_Add && !is_sum_of_squares(g, n->in[1], depth - 1))
        return false;
    return (sums || n->op == OP_Add || (scales && is_positive(g, n->in[1]))) &&
           is_sum_of_squares(g, n->in[0], depth - 1);
}

static ValueId root(Graph *g, ValueId s, double p)
{
    return p == 0.5 ? g_unary(g, OP_Sqrt, s) : g_binary(g, OP_Pow, s, g_like(g, s, p));
}

ValueId low_root(const Import *im, ValueId s, double p)
{
    enum { DEEPEST = 12 };
    Graph *g = im->g;
    if (!im->training || !is_sum_of_squares(g, s, DEEPEST))
        return root(g, s, p);
    ValueId zero = g_formula(g, "s: s == 0", s);
    ValueId some = g_formula(g, "zero, s: zero ? 1 : s", zero, s);
    return g_formula(g, "zero, y: zero ? 0 : y", zero, root(g, some, p));
}

void import_sqrt(Import *im) { im->out[0] = low_root(im, low_need(im, 0), 0.5); }

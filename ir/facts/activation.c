/*
 * activation.c - GELU and Swish that the file writes as several nodes are called so.  In: a Graph
 * as it is imported.  Out: the same, but for the type of the node of Erf, Tanh or Sigmoid: kernels
 * and buffers have their names by it (codegen/print/title.c).
 *
 *     x Sigmoid(a)    Swish, also called SiLU       x (1 + Erf(a)), x (1 + Tanh(a))    GELU
 *
 * times constants, where a is made of x by sums, products and powers with constants.
 */
#include "ir/facts/facts.h"

/* Behind Casts, rows that are left out, and behind products and, if they are counted, sums with a
 * constant: what is there
 */
static ValueId behind(const Graph *g, ValueId v, int *sums)
{
    const Node *n;
    while ((n = graph_maker(g, v))) {
        double constant;
        bool sum = n->op == OP_Add && sums, product = n->op == OP_Mul || n->op == OP_Div;
        if (n->op == OP_Cast || ((sum || product) && g_const_double(g, n->in[1], &constant)))
            v = n->in[0];
        else if (((sum || n->op == OP_Mul) && g_const_double(g, n->in[0], &constant)) ||
                 (n->op == OP_Where && g_const_double(g, n->in[2], &constant)))
            v = n->in[1];
        else
            break;
        if (sums)
            *sums += sum;
    }
    return v;
}

static bool made_of(const Graph *g, ValueId v, ValueId x, int depth)
{
    const Node *n = graph_maker(g, v);
    bool all = n && depth > 0 &&
               (n->op == OP_Cast || n->op == OP_Add || n->op == OP_Mul || n->op == OP_Div ||
                n->op == OP_Pow);
    for (uint32_t i = 0; all && i < n->nin; i++)
        all = made_of(g, n->in[i], x, depth - 1);
    return v == x || val(g, v)->kind == V_CONST || all;
}

/* Is x times f an activation of x? */
static void look_at(Graph *g, ValueId x, ValueId f)
{
    enum { DEPTH = 8 };
    int sums = 0;
    const Node *n = graph_maker(g, behind(g, f, &sums));
    const bool swish = n && n->op == OP_Sigmoid && sums == 0,
               gelu = n && (n->op == OP_Erf || n->op == OP_Tanh) && sums == 1;
    if ((!swish && !gelu) || op_find(g->origin.at[n->origin].type) != n->op ||
        !made_of(g, n->in[0], behind(g, x, NULL), DEPTH))
        return;
    g->origin.at[n->origin].type = swish ? "Swish" : "Gelu";
}

void graph_activations(Graph *g)
{
    for (NodeId n = 0; n < g->node.n; n++)
        if (g->node.at[n].op == OP_Mul) {
            look_at(g, g->node.at[n].in[0], g->node.at[n].in[1]);
            look_at(g, g->node.at[n].in[1], g->node.at[n].in[0]);
        }
}

/*
 * rows.c - the rows of a microbatch along an axis of the mesh.
 *
 * In: what the analysis of the rows says (facts/batch.c).  Out: where values hold rows, which
 * members do not divide; and the values of which they may.  First convolutions of a net make much
 * out of few weights: there it takes less to give each member some of the images, and all weights
 * whose gradients are added up once a step, than some of the channels (Krizhevsky 2014, 1404.5997).
 * From then on a microbatch has all its rows.
 */
#include "search.h"

const Place *rows_places(const Graph *g, Arena *a, const int64_t *outer)
{
    Place *at = arena_array(a, Place, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++) {
        int batch = val(g, v)->batch;
        at[v] = batch < 0 ? place_r() : place_s(batch, outer[v] * g->batch);
    }
    return at;
}

bool is_convolution(Op op) { return op == OP_Conv || op == OP_ConvTranspose; }

/* Images: what a convolution reads and makes, and what is made of that, or meets it, in the same
 * layout.  Where other products read it, or places become rows of those, a model is no CNN. */
const bool *rows_of_images(const Graph *g, Arena *a, const BatchNotes *notes, int chunks)
{
    bool *is = arena_array(a, bool, g->value.n + 1), some = false;
    if (g->lengths.left || notes->uneven.n || g->batch % chunks || !notes->outer)
        return NULL;
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        bool image = is_convolution(n->op);
        for (uint32_t i = 0; i < n->nin && n->op != OP_Transpose && !op_is_product(n->op); i++)
            image |= is[n->in[i]];
        some |= image;
        for (uint32_t i = 0; i < n->nin + n->nout && image; i++) {
            const ValueId v = node_slot(n, i);
            const Value *x = val(g, v);
            is[v] |= x->batch >= 0 && x->shape.d[x->batch] == g->batch;
        }
    }
    return some ? is : NULL;
}

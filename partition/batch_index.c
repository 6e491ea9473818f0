/*
 * batch_index.c - the rows through Gather and Scatter.
 *
 * In: a node that reads or writes by number.  Out: the dimension that holds the rows of its result.  Picking
 * rows by number is followed where each row provably names itself (0, 1, 2, ... along the batch, or the places
 * that MaxPool found); adding rows into a table leaves none.
 */
#include "batch_int.h"

/* Is entry comp of the last dimension (comp < 0: the value itself) the row's number along dim? */
static bool is_row_number(const Graph *g, ValueId v, int comp, int dim, int64_t rows, int depth)
{
    const Value *x = val(g, v);
    const Shape *s = &x->shape;
    if (depth > 32 || dim < 0 || dim >= s->rank - (comp >= 0) || s->d[dim] != rows)
        return false;
    if (x->kind == V_CONST) {
        int64_t inner = 1, n = shape_elements(s), last = comp >= 0 ? s->d[s->rank - 1] : 1, i;
        for (int k = dim + 1; k < s->rank; k++)
            inner *= s->d[k];
        for (i = comp >= 0 ? comp : 0; i < n; i += last) {
            int64_t is;
            if (!batch_const_int(x, i, &is) || is != i / inner % rows)
                return false;
        }
        return true;
    }
    if (x->kind != V_NODE)
        return false;
    const Node *n = &g->node.at[x->node];
    const Shape *in = n->nin > 0 && n->in[0] != NONE ? &val(g, n->in[0])->shape : s;
    switch (n->op) {
    case OP_Cast:
    case OP_StopGradient:
    case OP_Identity: return is_row_number(g, n->in[0], comp, dim, rows, depth + 1);
    case OP_Concat:
        if (comp < 0 || n->attr.axis != s->rank - 1)
            return false;
        for (uint32_t i = 0; i < n->nin; i++) {
            int64_t part = val(g, n->in[i])->shape.d[s->rank - 1];
            if (comp < part)
                return is_row_number(g, n->in[i], comp, dim, rows, depth + 1);
            comp -= (int)part;
        }
        return false;
    case OP_Expand: {
        bool spread = comp >= 0 && in->rank > 0 && in->d[in->rank - 1] == 1;
        return is_row_number(g, n->in[0], spread ? 0 : comp, dim - (s->rank - in->rank), rows, depth + 1);
    }
    case OP_Reshape: {
        int64_t outer = 1;
        if (comp == 0 && s->d[s->rank - 1] == 1) {
            int j = batch_reshape(s, in, dim, rows, &outer);
            return j >= 0 && outer == 1 && is_row_number(g, n->in[0], -1, j, rows, depth + 1);
        }
        dim = batch_reshape(s, in, dim, rows, &outer);
        return comp < 0 && outer == 1 && is_row_number(g, n->in[0], -1, dim, rows, depth + 1);
    }
    default: return false;
    }
}

/* The dimension of index along which entry comp counts the rows; -1: none. */
static int row_dim(const Batch *b, ValueId index, int comp)
{
    const Shape *s = &val(b->g, index)->shape;
    for (int i = 0; i < s->rank - (comp >= 0); i++)
        if (is_row_number(b->g, index, comp, i, b->rows, 0))
            return i;
    return -1;
}

int batch_gather(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *index = val(b->g, n->in[1]);
    int axis = (int)n->attr.axis, ri = index->shape.rank, td = x->batch, ti = index->batch;
    if (b->rows == 1 && td >= 0 && td == axis)
        return ti >= 0 ? axis + ti : BATCH_NONE;
    if (td >= 0 && td == axis) {
        int i = b->cur == 1 ? row_dim(b, n->in[1], -1) : -1;
        return i >= 0 && batch_demand(b, &n->in[1], i) ? axis + i : batch_fail(b, "it picks rows by number");
    }
    if (td >= 0 && ti >= 0 && b->rows > 1)
        return batch_fail(b, "it takes from every row what every row names");
    if (ti >= 0)
        return axis + ti;
    return td < axis ? td : td + ri - 1;
}

int batch_gather_nd(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *index = val(b->g, n->in[1]);
    int bd = (int)n->attr.axis, ri = index->shape.rank, q = (int)index->shape.d[ri - 1];
    int td = x->batch, ti = index->batch;
    if (td >= bd && td < bd + q && b->rows > 1) {
        int i = b->cur == 1 ? row_dim(b, n->in[1], td - bd) : -1;
        if (i >= 0 && (ti == i || batch_demand(b, &n->in[1], i)))
            return i;
        return batch_fail(b, "it picks rows by number");
    }
    if (td >= bd + q) {
        if (ti >= 0 && b->rows > 1)
            return batch_fail(b, "it takes from every row what every row names");
        return ri - 1 + td - (bd + q);
    }
    int dim = ti >= 0 ? ti : td;
    if (dim < bd && (!batch_demand(b, &n->in[0], dim) || !batch_demand(b, &n->in[1], dim)))
        return batch_fail(b, "an operand has the batch's size but is fixed in the model");
    return dim;
}

/* Does every index point into its own row?  So do the places MaxPool found, which count over its whole operand. */
static bool points_home(const Graph *g, ValueId v)
{
    for (int depth = 0; depth < 32 && val(g, v)->kind == V_NODE; depth++) {
        const Node *n = &g->node.at[val(g, v)->node];
        if (n->op == OP_MaxPool)
            return val(g, v)->out == 1;
        if (n->op != OP_Reshape && n->op != OP_Cast && n->op != OP_Identity && n->op != OP_StopGradient)
            return false;
        v = n->in[0];
    }
    return false;
}

/* GatherElements (data, index) and ScatterElements (data, index, updates): all of one rank. */
int batch_elements(Batch *b, Node *n)
{
    int axis = (int)n->attr.axis, td = val(b->g, n->in[0])->batch, ti = val(b->g, n->in[1])->batch;
    int tu = n->nin > 2 ? val(b->g, n->in[2])->batch : ti;
    bool scatter = n->op == OP_ScatterElements;
    int dim = td >= 0 ? td : ti >= 0 ? ti : tu;
    if (b->rows == 1)
        return dim;
    if (dim != axis) {
        for (uint32_t i = 0; i < n->nin; i++)
            if (!batch_demand(b, &n->in[i], dim))
                return batch_fail(b, "an operand has the batch's size but is fixed in the model");
        return dim;
    }
    if (b->cur == 1 && points_home(b->g, n->in[1])) {
        int64_t size = val(b->g, n->in[0])->shape.d[axis];
        if (size % b->rows == 0 && batch_demand(b, &n->in[0], axis) && batch_demand(b, &n->in[1], axis) &&
            (!scatter || batch_demand(b, &n->in[2], axis)))
            return axis;
    }
    if (td >= 0)
        return batch_fail(b, "it picks rows by number");
    if (!scatter)
        return dim; /* every index along the axis takes from a fixed table */
    b->sums = true;
    if (batch_demand(b, &n->in[1], axis) && batch_demand(b, &n->in[2], axis))
        return BATCH_NONE; /* all rows are added into a table: an embedding's gradient */
    return batch_fail(b, "an operand has the batch's size but is fixed in the model");
}

int batch_scatter_nd(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *index = val(b->g, n->in[1]), *up = val(b->g, n->in[2]);
    int ri = index->shape.rank, q = (int)index->shape.d[ri - 1], td = x->batch, ti = index->batch, tu = up->batch;
    if (b->rows == 1)
        return td;
    if (tu >= ri - 1 || td >= q) { /* the batch is in the slices that are moved whole */
        int dim = td >= q ? td : q + tu - (ri - 1);
        if (ti < 0 && batch_demand(b, &n->in[0], dim) && batch_demand(b, &n->in[2], ri - 1 + dim - q))
            return dim;
        return batch_fail(b, "an operand has the batch's size but is fixed in the model");
    }
    int rows_at = ti >= 0 ? ti : tu;
    for (int c = 0; c < q; c++) { /* each row writes into itself */
        int64_t size = val(b->g, n->in[0])->shape.d[c];
        int i = b->cur != 1 || (td >= 0 && td != c) ? -1 : size == b->rows ? row_dim(b, n->in[1], c) : -1;
        if (i >= 0 && (rows_at < 0 || rows_at == i) && batch_demand(b, &n->in[0], c) && batch_demand(b, &n->in[1], i) &&
            batch_demand(b, &n->in[2], i))
            return c;
    }
    if (td >= 0)
        return batch_fail(b, "it writes to rows by number");
    b->sums = true;
    if (batch_demand(b, &n->in[1], rows_at) && batch_demand(b, &n->in[2], rows_at))
        return BATCH_NONE;
    return batch_fail(b, "an operand has the batch's size but is fixed in the model");
}

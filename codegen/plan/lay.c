/*
 * lay.c - spaces of nodes, and how one is laid onto another.  In: a node, and a group's dimensions
 * with a value known to stand at given strides over them.  Out: the pieces into which both spaces
 * are cut so that equal strides mean equal points.
 */
#include "fuse.h"

typedef struct { int id; Lin ext, stride, mult; } Dim;

bool lay_in_axes(const Attr *at, int d)
{
    for (int i = 0; i < at->n; i++)
        if (at->axes[i] == d)
            return true;
    return false;
}

/* ---- what nodes are and read ----------------------------------------------------------------- */

bool cg_is_reduce(Op op) { return op_reduces(op); }

bool cg_fusable(const Node *n)
{
    if (n->op == OP_Pad)
        return n->attr.mode == PAD_CONSTANT;
    return op_picks(n->op) || op_is_map(n->op) || cg_is_reduce(n->op) || cg_is_copy(n);
}

static bool is_number(Func *f, ValueId v)
{
    const Value *x = val(f->g, v);
    double c;
    if (shape_elements(&x->shape) != 1 || g_const_double(f->g, v, &c))
        return shape_elements(&x->shape) == 1;
    ValueId root = cg_ref(f, v)->root;
    return val(f->g, root)->kind == V_INPUT ? shape_elements(&val(f->g, root)->shape) == 1
                                            : cg_inline_leaf(f, root);
}

bool cg_inline_leaf(Func *f, ValueId root)
{
    NodeId def = f->def.at[root];
    const Node *n = def == NONE ? NULL : &f->g->node.at[def];
    if (!n || n->op == OP_Count)
        return n != NULL;
    bool number = op_is_map(n->op) && shape_elements(&val(f->g, root)->shape) == 1;
    for (uint32_t i = 0; number && i < n->nin; i++)
        number = is_number(f, n->in[i]);
    return number;
}

int cg_space(const Func *f, const Node *n, Lin *ext)
{
    ValueId v = cg_is_reduce(n->op) ? n->in[0] : n->out[0];
    int rank = val(f->g, v)->shape.rank;
    for (int d = 0; d < rank; d++)
        ext[d] = cg_ext(f, v, d);
    return rank;
}

bool cg_reads_table(const Node *n, uint32_t i)
{
    return i == 0 && (n->op == OP_Gather || n->op == OP_GatherElements || n->op == OP_GatherND ||
                      n->op == OP_Pad);
}

bool cg_operand(Func *f, const Node *n, uint32_t i, Ref *r, Lin *stride)
{
    Lin ext[MAX_RANK];
    int rank = cg_space(f, n, ext);
    if (n->op == OP_Count)
        return false;
    *r = *cg_ref(f, n->in[i]);
    for (int d = 0; d < rank; d++)
        stride[d] = lin(0);
    if (n->op == OP_Gather) {
        int axis = (int)n->attr.axis, q = val(f->g, n->in[1])->shape.rank;
        if (i == 1)
            for (int d = 0; d < q; d++)
                stride[axis + d] = r->stride[d];
        else
            for (int d = 0; d < r->rank; d++)
                if (d != axis)
                    stride[d < axis ? d : d + q - 1] = r->stride[d];
    } else if (n->op == OP_GatherElements) {
        for (int d = 0; d < rank; d++)
            if (i == 1 || d != n->attr.axis)
                stride[d] = r->stride[d];
    } else if (n->op == OP_GatherND) {
        const Shape *s = &val(f->g, n->in[1])->shape;
        int batch = (int)n->attr.batch_dims, q = (int)s->d[s->rank - 1];
        if (i == 1)
            for (int d = 0; d + 1 < s->rank; d++)
                stride[d] = r->stride[d];
        for (int d = 0; i == 0 && d < batch; d++)
            stride[d] = r->stride[d];
        for (int d = batch + q; i == 0 && d < r->rank; d++)
            stride[s->rank - 1 + d - batch - q] = r->stride[d];
    } else {                                            /* NumPy broadcasting */
        for (int d = rank - 1, j = r->rank - 1; j >= 0; d--, j--)
            stride[d] = lin_is(r->ext[j], 1) ? lin(0) : r->stride[j];
    }
    for (int d = 0; d < rank; d++)
        if (lin_is(ext[d], 1))
            stride[d] = lin(0);
    return true;
}

/* The result's strides over the node's space: a reduction's stands still along what is reduced. */
void lay_result(Func *f, const Node *n, int rank, const Lin *ext, Ref *r, Lin *stride)
{
    *r = *cg_ref(f, n->out[0]);
    for (int d = 0; d < rank; d++)
        stride[d] = lin_is(ext[d], 1) || (cg_is_reduce(n->op) && lay_in_axes(&n->attr, d))
                        ? lin(0)
                        : r->stride[d];
}

/* By the logical shape alone: is the innermost dimension kept? */
bool cg_reduces_columns(const Func *f, const Node *n)
{
    Lin ext[MAX_RANK];
    int rank = cg_space(f, n, ext);
    for (int d = rank - 1; d >= 0; d--)
        if (!lin_is(ext[d], 1))
            return !lay_in_axes(&n->attr, d);
    return false;
}

/* ---- laying one space onto another ----------------------------------------------------------- */

/* Outermost first, by stride. */
static void sort_dims(Dim *d, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && lin_far(d[j].stride) > lin_far(d[j - 1].stride); j--) {
            Dim t = d[j];
            d[j] = d[j - 1];
            d[j - 1] = t;
        }
}

/* The last of n dimensions behind a piece of it; at its end it is none of them any more. */
static bool past(Dim *x, Lin piece, int *n)
{
    if (!lin_past(&x->ext, &x->stride, piece))
        return false;
    *n -= lin_is(x->ext, 1);
    return lin_is(x->ext, 1) || lin_mul(x->mult, piece, &x->mult);
}

/* Cuts both lists into common pieces from the innermost on; strides must agree when they are asked
 * to. */
static bool peel(Dim *a, int na, Dim *b, int nb, bool strides, Match *m)
{
    while (na > 0 && nb > 0) {
        Dim *x = &a[na - 1], *y = &b[nb - 1];
        RDim r = {.k = x->id, .e = y->id, .kmult = x->mult, .emult = y->mult};
        if (strides && !lin_eq(x->stride, y->stride))
            return false;
        if (m->n == NEST_DIMS || !lin_piece(x->ext, y->ext, &r.ext) || !past(x, r.ext, &na) ||
            !past(y, r.ext, &nb))
            return false;
        m->d[m->n++] = r;
    }
    return na == 0 && nb == 0;
}

bool lay_match(const Group *k, const Known *known, int rank, const Lin *ext, const Lin *stride,
               Match *m)
{
    Dim a[NEST_DIMS], b[MAX_RANK], az[NEST_DIMS], bz[MAX_RANK];
    int na = 0, nb = 0, naz = 0, nbz = 0;
    Match found = {0};
    for (int d = 0; d < k->nd; d++) {
        Dim x = {d, k->ext[d], known->stride[d], lin(1)};
        if (lin_is(x.stride, 0))
            az[naz++] = x;
        else
            a[na++] = x;
    }
    for (int d = 0; d < rank; d++) {
        Dim x = {d, ext[d], stride[d], lin(1)};
        if (lin_is(x.ext, 1))
            continue;
        if (lin_is(x.stride, 0))
            bz[nbz++] = x;
        else
            b[nb++] = x;
    }
    sort_dims(a, na);
    sort_dims(b, nb);
    if (!peel(a, na, b, nb, true, &found))
        return false;
    if (naz > 0 && nbz > 0 && !peel(az, naz, bz, nbz, false, &found))
        return false;
    /* in the order of the group's dimensions; pieces of one were found from the inside out */
    m->n = 0;
    m->extends = false;
    for (int d = 0; d < k->nd; d++) {
        bool any = false;
        for (int i = found.n; i-- > 0;)
            if (found.d[i].k == d) {
                m->d[m->n++] = found.d[i];
                any = true;
            }
        if (!any) {
            if (m->n == NEST_DIMS)
                return false;
            m->d[m->n++] = (RDim){d, -1, k->ext[d], lin(1), lin(1)};
        }
    }
    for (int i = 0; naz == 0 && i < nbz; i++) {         /* the group gets these dimensions */
        if (m->n == NEST_DIMS)
            return false;
        m->d[m->n++] = (RDim){-1, bz[i].id, bz[i].ext, lin(1), lin(1)};
        m->extends = true;
    }
    return true;
}

/* Strides given over the node's dims, or over the group's old dims, as strides over the pieces. */
bool lay_over(const Match *m, const Lin *e_stride, const Lin *k_stride, Lin *out)
{
    for (int i = 0; i < m->n; i++) {
        const RDim *d = &m->d[i];
        out[i] = lin(0);
        if (e_stride && d->e >= 0 && !lin_mul(e_stride[d->e], d->emult, &out[i]))
            return false;
        if (k_stride && d->k >= 0 && !lin_mul(k_stride[d->k], d->kmult, &out[i]))
            return false;
    }
    return true;
}

int64_t lay_points(const Func *f, const Lin *ext, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= lin_at(ext[d], f->g->batch);
    return n;
}

bool lay_full(const Lin *stride, const Lin *ext, int n)
{
    for (int d = 0; d < n; d++)
        if (!lin_is(ext[d], 1) && lin_is(stride[d], 0))
            return false;
    return n > 0;
}

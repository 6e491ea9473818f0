/*
 * batch_rules.c - the rows through one node: a rule per core op (rule_f of ops.def).
 *
 * In: a node whose operands are tagged.  Out: the dimension that holds the rows of its results, or
 * BATCH_MIXED and the reason.  A rule may also follow the rows and name a reason: then microbatches
 * run, but only with all their rows, since the node's own attributes (a Slice's begin, a
 * convolution's groups) count the rows.
 */
#include "batch.h"
#include "spread.h"

static bool shape_is_one(const Shape *s)
{
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] != 1)
            return false;
    return true;
}

/* Followed, but only with all rows. */
static int full(Batch *b, int dim, const char *why)
{
    if (b->rows > 1)
        b->why = why;
    return dim;
}

/* All operands broadcast against each other; `skip` is a dimension that is not compared (Concat's
 * axis), or -1. */
static int aligned(Batch *b, Node *n, int rank)
{
    int dim = BATCH_NONE;
    /* shapes of one row leave much to guess, but a target's rows are the prediction's */
    bool strict = b->rows > 1;
    for (uint32_t i = 0; i < n->nin; i++)
        strict |= n->in[i] != NONE && n->in[i] < b->values && b->labels[n->in[i]];
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE)
            continue;
        const Value *v = val(b->g, n->in[i]);
        if (v->batch < 0)
            continue;
        int at = v->batch + rank - v->shape.rank;
        if (dim == BATCH_NONE)
            dim = at;
        else if ((dim != at || batch_outer(b, n->in[i]) != b->cur) && strict)
            return batch_crossed(b, "it brings together different samples");
    }
    if (dim != BATCH_NONE && !batch_demand_all(b, n, dim, rank))
        return batch_fixed(b);
    return dim;
}

int rule_expand(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    int want = batch_want(b, n->out[0]),
        dim = x->batch < 0 ? BATCH_NONE : x->batch + y->shape.rank - x->shape.rank;
    if (dim == BATCH_NONE)
        return want;
    return want == BATCH_NONE || want == dim
               ? dim
               : batch_crossed(b, "it brings every sample together with every sample");
}

int rule_reshape(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    Place at = {x->batch, b->cur}, is;
    if (b->rows == 1)
        is.dim = batch_one_place(b, n, &b->cur);
    else if (!place_reshaped(&x->shape, &y->shape, at, b->rows, &is))
        is.dim = BATCH_NONE;
    else
        b->cur = is.groups;
    return is.dim >= 0 ? is.dim : batch_fail(b, "the rows are spread over several dimensions");
}

int rule_matmul(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->in[1]);
    int ra = x->shape.rank, rb = y->shape.rank, rank = ra > rb ? ra : rb;
    int ta = x->batch, tb = y->batch;
    if ((ta >= 0 && ta == ra - 1) || (tb >= 0 && tb == rb - 2)) {
        b->sums = true;
        if (batch_demand(b, &n->in[0], ra - 1) && batch_demand(b, &n->in[1], rb - 2))
            return BATCH_NONE;
        return batch_brought(b, "it multiplies along the batch with numbers of fixed size",
                             n->in[tb >= 0 && tb == rb - 2 ? 0 : 1]);
    }
    if (ta == ra - 2 || tb == rb - 1) {
        if (ta >= 0 && tb >= 0 && (b->rows > 1 || (x->shape.d[ta] == 1 && y->shape.d[tb] == 1)))
            return batch_crossed(
                b, "it compares every sample with every sample, as a contrastive head does");
        return ta == ra - 2 ? rank - 2 : rank - 1;
    }
    return aligned(b, n, rank);
}

/* Its results have a matrix for each of y's, or of the samples'. */
int rule_attention(Batch *b, Node *n)
{
    ValueId y = n->op == OP_FlashAttention ? n->out[0] : n->in[3];
    return val(b->g, y)->batch;
}

/* Samples as groups: the channels of all of them in dimension 1, the weights' first dimension is
 * each one's own filters. */
static int conv_groups(Batch *b, Node *n)
{
    static const char why[] = "its groups are the samples, and their number is fixed";
    /* where the weights, or the gradient of the result, hold the rows */
    int x = n->op == OP_ConvWeightGrad ? 1 : 0;
    if (n->attr.group % b->rows != 0 || b->cur != 1)
        return batch_fail(b, "its groups are no multiple of the rows");
    if (!batch_demand(b, &n->in[0], 1) || !batch_demand(b, &n->in[1], x))
        return batch_fixed(b);
    return full(b, 1 - x, why);
}

static bool are_groups(const Node *n, const Value *x, const Value *y, int channels)
{
    return n->attr.group > 1 && x->batch != 0 && (x->batch == 1 || y->batch == channels);
}

int rule_conv_weight(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->in[1]);
    if (are_groups(n, x, y, 1))
        return conv_groups(b, n);
    b->sums = true;
    if (x->batch > 0 || y->batch > 0 || !batch_demand(b, &n->in[0], 0) ||
        !batch_demand(b, &n->in[1], 0))
        return batch_fail(b, "it convolves along the batch");
    return BATCH_NONE;
}

/* Of one row, samples as groups are no other shape than samples. */
static bool is_one_row(const Batch *b, const Value *x)
{
    return b->rows == 1 && x->shape.d[0] == 1;
}

int rule_conv(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->in[1]);
    if (are_groups(n, x, y, 0))
        return conv_groups(b, n);
    if ((x->batch == 0 && y->batch == BATCH_NONE) || is_one_row(b, x))
        return 0;
    return batch_fail(b, "it convolves along the batch");
}

int rule_pool(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]);
    if (x->batch == 0 || is_one_row(b, x))
        return 0;
    return x->batch == 1 ? 1 : batch_fail(b, "it convolves along the batch");
}

/* One operand, dimensions kept; along the batch the samples influence each other. */
int rule_softmax(Batch *b, Node *n)
{
    int dim = val(b->g, n->in[0])->batch;
    if (dim == n->attr.axis)
        b->mixing = true;
    return dim;
}

/*
 * Elements at, at + step, ... (count of them) of the batch dimension.  All rows of some of the
 * blocks outside, or the same few elements of every row, are rows again.
 */
static int part(Batch *b, int dim, int64_t size, int64_t at, int64_t step, int64_t count)
{
    int64_t block = size / b->cur, each = block / b->rows; /* elements of all rows, of one */
    if (b->rows == 1 && (b->cur == 1 || step != 1 || at % block != 0 || count % block != 0)) {
        b->cur = 1;
        return dim;
    }
    if (step == 1 && at % block == 0 && count % block == 0 && count > 0) {
        b->cur = count / block;
        return full(b, dim, "it takes a part whose place depends on the number of rows");
    }
    if (step > 1 && at < step && each % step == 0 && count * step == size)
        return full(b, dim, "it takes a part of every row");
    if (step < 0)
        return batch_crossed(b, "it reverses the order of the samples");
    return batch_fail(b, count == each && at % each == 0 && step == 1 && b->cur == 1
                             ? "it takes a single row"
                             : "it takes some of the rows, or adds to them");
}

int rule_slice(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    int dim = x->batch;
    int64_t size = x->shape.d[dim], count = y->shape.d[dim], step = n->attr.step[dim];
    return size == count && step == 1 ? dim : part(b, dim, size, n->attr.start[dim], step, count);
}

int rule_pad(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    int dim = x->batch;
    bool same = x->shape.d[dim] == y->shape.d[dim] || b->rows == 1;
    return same ? dim : batch_fail(b, "it takes some of the rows, or adds to them");
}

int rule_split(Batch *b, Node *n)
{
    int axis = (int)n->attr.axis;
    if (val(b->g, n->in[0])->batch != axis)
        return val(b->g, n->in[0])->batch;
    int64_t first = val(b->g, n->out[0])->shape.d[axis], size = val(b->g, n->in[0])->shape.d[axis];
    for (uint32_t i = 1; i < n->nout; i++)
        if (val(b->g, n->out[i])->shape.d[axis] != first)
            return batch_fail(b, "it divides the rows into unequal parts");
    return part(b, axis, size, 0, 1, first);
}

/* Blocks of rows one after the other: each operand has all rows, once or more. */
int rule_concat(Batch *b, Node *n)
{
    int rank = val(b->g, n->out[0])->shape.rank, axis = (int)n->attr.axis;
    int64_t outer = 0, each = 0;
    bool along = false;
    for (uint32_t i = 0; i < n->nin; i++)
        along |= val(b->g, n->in[i])->batch == axis;
    if (!along)
        return aligned(b, n, rank);
    for (uint32_t i = 0; i < n->nin; i++) {
        const Value *v = val(b->g, n->in[i]);
        int64_t own = batch_outer(b, n->in[i]);
        b->cur = 1;
        if (v->batch != axis && (b->rows == 1 || !batch_demand(b, &n->in[i], axis)))
            return b->rows == 1 ? aligned(b, n, rank)
                                : batch_fail(b, "it joins rows with what is none");
        if (each == 0)
            each = v->shape.d[axis] / own;
        if (v->shape.d[axis] / own != each || (b->rows == 1 && each != 1))
            return b->rows == 1 ? aligned(b, n, rank)
                                : batch_fail(b, "it joins rows of several sizes");
        outer += own;
    }
    b->cur = outer;
    return n->nin == 1 ? axis : full(b, axis, "it joins all rows with all rows");
}

static int reduced(Batch *b, Node *n, bool over)
{
    int dim = val(b->g, n->in[0])->batch;
    if (!over)
        return dim;
    b->sums = true;
    return BATCH_NONE;
}

int rule_reduce(Batch *b, Node *n)
{
    return reduced(b, n, batch_in_axes(&n->attr, val(b->g, n->in[0])->batch));
}

int rule_arg(Batch *b, Node *n)
{
    return reduced(b, n, val(b->g, n->in[0])->batch == n->attr.axis);
}

/* Each member has a part of the axis, of all rows. */
int rule_divided(Batch *b, Node *n)
{
    int dim = val(b->g, n->in[0])->batch;
    bool along = dim == n->attr.axis || (n->op == OP_AllToAll && dim == n->attr.to_axis);
    return along ? batch_fail(b, "the rows are divided among the members") : dim;
}

int rule_topk(Batch *b, Node *n)
{
    int dim = val(b->g, n->in[0])->batch;
    return dim != n->attr.axis || b->rows == 1 ? dim : batch_fail(b, "it chooses among the rows");
}

int rule_aligned(Batch *b, Node *n) { return aligned(b, n, val(b->g, n->out[0])->shape.rank); }

int rule_transpose(Batch *b, Node *n)
{
    int dim = val(b->g, n->in[0])->batch;
    for (int i = 0; i < n->attr.n; i++)
        if (n->attr.perm[i] == dim)
            return i;
    BUG("Transpose without dimension %d", dim);
}

/* Which of the rows' places are packed together is the data's; all of them are the rows'. */
int rule_pack(Batch *b, Node *n)
{
    int axis = (int)n->attr.axis, dim = val(b->g, n->in[0])->batch;
    if (dim == BATCH_NONE && b->rows > 1 && !batch_demand(b, &n->in[0], axis))
        return batch_fixed(b);
    if (dim != BATCH_NONE && dim != axis && val(b->g, n->in[1])->batch == BATCH_NONE)
        return dim; /* the trips of a loop */
    if (dim != BATCH_NONE && dim != axis && b->rows > 1)
        return batch_crossed(b, "it takes from every sample what every sample names");
    if (b->rows > 1 && !batch_demand(b, &n->in[1], 0))
        return batch_fixed(b);
    return axis;
}

/* Boxes of a sample are compared among themselves. */
int rule_suppress(Batch *b, Node *n)
{
    for (uint32_t i = 0; i < n->nin && b->rows > 1; i++)
        if (val(b->g, n->in[0])->batch == 0 && !batch_demand(b, &n->in[i], 0))
            return batch_fixed(b);
    int dim = val(b->g, n->in[0])->batch;
    return dim <= 0 || b->rows == 1 ? dim : batch_fail(b, "it chooses among the rows");
}

/* How many elements there are is the same in every microbatch, up to its number of rows. */
int rule_count(Batch *b, Node *n) { return (void)b, (void)n, BATCH_NONE; }

/* ---- what tells single rows apart ---- */

static int inner(Batch *b)
{
    return batch_fail(b, "the rows are not outermost in their dimension");
}

int rule_dropout(Batch *b, Node *n) { return b->cur != 1 ? inner(b) : val(b->g, n->in[0])->batch; }

int rule_cumsum(Batch *b, Node *n) { return b->cur != 1 ? inner(b) : rule_softmax(b, n); }

int rule_max_pool(Batch *b, Node *n) { return b->cur != 1 ? inner(b) : rule_pool(b, n); }

/* ---- single rows, and the table ---- */

static int64_t row_of(const Batch *b, ValueId v)
{
    return v < b->values && val(b->g, v)->batch < 0 ? b->row[v] : -1;
}

int64_t batch_row(const Batch *b, const Node *n, uint32_t out)
{
    const Value *x = n->nin > 0 && n->in[0] != NONE ? val(b->g, n->in[0]) : NULL;
    bool split = n->op == OP_Split && x && x->batch == (int)n->attr.axis;
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
        if (n->in[i] == NONE)
            continue;
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
static int rule_mixed(Batch *b, const Node *n)
{
    int axis = (int)n->attr.axis;
    bool single = false, unknown = false, ordered = n->op == OP_Concat && n->nin == b->rows;
    for (uint32_t i = 0; i < n->nin; i++) {
        int64_t row = n->in[i] == NONE ? -1 : row_of(b, n->in[i]);
        const Value *v = n->in[i] == NONE ? NULL : val(b->g, n->in[i]);
        single |= row >= 0;
        unknown |= v && row < 0 && v->batch == BATCH_MIXED;
        ordered &= row == (int64_t)i && v->shape.d[axis] == val(b->g, n->in[0])->shape.d[axis];
    }
    if (ordered && b->rows > 1)
        return full(b, axis, "it joins single rows");
    if (single && !unknown && batch_row(b, n, 0) < 0)
        return batch_crossed(b, "it brings together different samples");
    return shape_is_one(&val(b->g, n->out[0])->shape) ? BATCH_NONE : BATCH_MIXED;
}

static int (*const rule_of[OP_COUNT])(Batch *, Node *) = {
#define BATCH(rule, merge, span) rule_##rule
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, batch, ...)           \
    [OP_##name] = batch,
#include "ir/ops.def"
};

static int rule_of_node(Batch *b, Node *n)
{
    bool tagged = false, mixed = false;
    b->cur = 1;
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE) {
            if (!tagged && val(b->g, n->in[i])->batch >= 0) {
                tagged = true;
                b->cur = batch_outer(b, n->in[i]);
            }
            mixed |= val(b->g, n->in[i])->batch == BATCH_MIXED || row_of(b, n->in[i]) >= 0;
        }
    if (mixed && n->op != OP_Count)
        return rule_mixed(b, n);
    /* what widens may be asked for rows that its operand has not */
    if (!tagged && n->op != OP_Expand)
        return BATCH_NONE;
    return rule_of[n->op](b, n);
}

/* Runs the rule of node n and writes its results' tags; says whether one of them changed. */
bool batch_sweep_node(Batch *b, NodeId id)
{
    Node *n = &b->g->node.at[id];
    b->why = NULL;
    b->mixing = b->sums = false;
    b->lacks = NONE;
    int dim = rule_of_node(b, n);
    bool changed = false;
    for (uint32_t i = 0; i < n->nout; i++) {
        Value *v = &b->g->value.at[n->out[i]];
        int is = dim >= v->shape.rank ? BATCH_NONE : dim;
        if (is == BATCH_MIXED && n->out[i] < b->values && b->said[n->out[i]] != BATCH_NONE) {
            is = b->said[n->out[i]];
            b->cur = 1;
        }
        if (is < 0 && b->known && n->out[i] < b->values && b->known[n->out[i]] != BATCH_NONE) {
            is = b->known[n->out[i]];
            b->cur = 1;
        }
        int64_t outer = is >= 0 ? b->cur : 1, row = is >= 0 ? -1 : batch_row(b, n, i);
        if (n->out[i] < b->values && b->row[n->out[i]] != row) {
            b->row[n->out[i]] = row;
            changed = true;
        }
        if (n->out[i] < b->from) { /* known already, but for outer */
            batch_set_outer(b, n->out[i], is == v->batch ? outer : 1);
            continue;
        }
        changed |= v->batch != is || batch_outer(b, n->out[i]) != outer;
        v->batch = is;
        batch_set_outer(b, n->out[i], outer);
    }
    return changed;
}

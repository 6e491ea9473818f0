/*
 * batch_rules.c - the rows through one node: a rule per core op.
 *
 * In: a node whose operands are tagged.  Out: the dimension that holds the rows of its results, or BATCH_MIXED and the
 * reason.  A rule may also follow the rows and name a reason: then microbatches run, but only with all their rows, since
 * the node's own attributes (a Slice's begin, a convolution's groups) count the rows.
 */
#include "batch.h"

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

/* Every sample meets every sample: what a microbatch yields is no part of what the minibatch yields. */
int batch_crossed(Batch *b, const char *why)
{
    b->mixing = true;
    return batch_fail(b, why);
}

/* All operands broadcast against each other; `skip` is a dimension that is not compared (Concat's axis), or -1. */
static int rule_aligned(Batch *b, Node *n, int rank)
{
    int dim = BATCH_NONE;
    bool strict = b->rows > 1; /* shapes of one row leave much to guess, but a target's rows are the prediction's */
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
        return batch_fail(b, "an operand has the batch's size but is fixed in the model");
    return dim;
}

static int rule_expand(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    int want = batch_want(b, n->out[0]), dim = x->batch < 0 ? BATCH_NONE : x->batch + y->shape.rank - x->shape.rank;
    if (dim == BATCH_NONE)
        return want;
    return want == BATCH_NONE || want == dim ? dim : batch_crossed(b, "it brings every sample together with every sample");
}

static int rule_reshape(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    int j = b->rows == 1 ? batch_one_place(b, n, &b->cur) : batch_reshape(&x->shape, &y->shape, x->batch, b->rows, &b->cur);
    return j >= 0 ? j : batch_fail(b, "the rows are spread over several dimensions");
}

static int rule_matmul(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->in[1]);
    int ra = x->shape.rank, rb = y->shape.rank, rank = ra > rb ? ra : rb;
    int ta = x->batch, tb = y->batch;
    if ((ta >= 0 && ta == ra - 1) || (tb >= 0 && tb == rb - 2)) {
        b->sums = true;
        if (batch_demand(b, &n->in[0], ra - 1) && batch_demand(b, &n->in[1], rb - 2))
            return BATCH_NONE;
        return batch_fail(b, "it multiplies along the batch with an operand of fixed size");
    }
    if (ta == ra - 2 || tb == rb - 1) {
        if (ta >= 0 && tb >= 0 && (b->rows > 1 || (x->shape.d[ta] == 1 && y->shape.d[tb] == 1)))
            return batch_crossed(b, "it compares every sample with every sample, as a contrastive head does");
        return ta == ra - 2 ? rank - 2 : rank - 1;
    }
    return rule_aligned(b, n, rank);
}

/* Samples as groups: the channels of all of them in dimension 1, the weights' first dimension is each one's own filters. */
static int rule_conv_groups(Batch *b, Node *n)
{
    static const char why[] = "its groups are the samples, and their number is fixed";
    int x = n->op == OP_ConvWeightGrad ? 1 : 0; /* where the weights, or the gradient of the result, hold the rows */
    if (n->attr.group % b->rows != 0 || b->cur != 1)
        return batch_fail(b, "its groups are no multiple of the rows");
    if (!batch_demand(b, &n->in[0], 1) || !batch_demand(b, &n->in[1], x))
        return batch_fail(b, "an operand has the batch's size but is fixed in the model");
    return full(b, 1 - x, why);
}

static int rule_conv(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = n->nin > 1 ? val(b->g, n->in[1]) : NULL;
    bool pool = n->op == OP_MaxPool || n->op == OP_AveragePool;
    bool groups = !pool && n->attr.group > 1 && (x->batch == 1 || y->batch == (n->op == OP_ConvWeightGrad ? 1 : 0));
    if (groups && x->batch != 0)
        return rule_conv_groups(b, n);
    if (n->op == OP_ConvWeightGrad) {
        b->sums = true;
        if (x->batch > 0 || y->batch > 0 || !batch_demand(b, &n->in[0], 0) || !batch_demand(b, &n->in[1], 0))
            return batch_fail(b, "it convolves along the batch");
        return BATCH_NONE;
    }
    if ((x->batch == 0 && (pool || y->batch == BATCH_NONE)) || (b->rows == 1 && x->shape.d[0] == 1))
        return 0; /* of one row: samples as groups are no other shape than samples */
    return pool && x->batch == 1 ? 1 : batch_fail(b, "it convolves along the batch");
}

/* One operand, dimensions kept; along the batch the samples influence each other. */
static int rule_along(Batch *b, Node *n, int axis)
{
    int dim = val(b->g, n->in[0])->batch;
    if (dim == axis)
        b->mixing = true;
    return dim;
}

/*
 * Elements at, at + step, ... (count of them) of the batch dimension.  All rows of some of the blocks outside, or the same
 * few elements of every row, are rows again.
 */
static int rule_part(Batch *b, int dim, int64_t size, int64_t at, int64_t step, int64_t count)
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
    return batch_fail(b, count == each && at % each == 0 && step == 1 && b->cur == 1 ? "it takes a single row"
                                                                                    : "it takes some of the rows, or adds to them");
}

static int rule_slice(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    int dim = x->batch;
    int64_t size = x->shape.d[dim], count = y->shape.d[dim];
    if (n->op == OP_Slice)
        return size == count && n->attr.step[dim] == 1 ? dim
                                                    : rule_part(b, dim, size, n->attr.start[dim], n->attr.step[dim], count);
    return size == count || b->rows == 1 ? dim : batch_fail(b, "it takes some of the rows, or adds to them");
}

static int rule_split(Batch *b, Node *n, int axis)
{
    int64_t first = val(b->g, n->out[0])->shape.d[axis], size = val(b->g, n->in[0])->shape.d[axis];
    for (uint32_t i = 1; i < n->nout; i++)
        if (val(b->g, n->out[i])->shape.d[axis] != first)
            return batch_fail(b, "it divides the rows into unequal parts");
    return rule_part(b, axis, size, 0, 1, first);
}

/* Blocks of rows one after the other: each operand has all rows, once or more. */
static int rule_concat(Batch *b, Node *n, int rank, int axis)
{
    int64_t outer = 0, each = 0;
    bool along = false;
    for (uint32_t i = 0; i < n->nin; i++)
        along |= val(b->g, n->in[i])->batch == axis;
    if (!along)
        return rule_aligned(b, n, rank);
    for (uint32_t i = 0; i < n->nin; i++) {
        const Value *v = val(b->g, n->in[i]);
        int64_t own = batch_outer(b, n->in[i]);
        b->cur = 1;
        if (v->batch != axis && (b->rows == 1 || !batch_demand(b, &n->in[i], axis)))
            return b->rows == 1 ? rule_aligned(b, n, rank) : batch_fail(b, "it joins rows with what is none");
        if (each == 0)
            each = v->shape.d[axis] / own;
        if (v->shape.d[axis] / own != each || (b->rows == 1 && each != 1))
            return b->rows == 1 ? rule_aligned(b, n, rank) : batch_fail(b, "it joins rows of several sizes");
        outer += own;
    }
    b->cur = outer;
    return n->nin == 1 ? axis : full(b, axis, "it joins all rows with all rows");
}

static int rule_reduce(Batch *b, Node *n, bool over)
{
    int dim = val(b->g, n->in[0])->batch;
    if (!over)
        return dim;
    b->sums = true;
    return BATCH_NONE;
}

static int64_t row_of(const Batch *b, ValueId v) { return v < b->values && val(b->g, v)->batch < 0 ? b->row[v] : -1; }

int64_t batch_row(const Batch *b, const Node *n, uint32_t out)
{
    const Value *x = n->nin > 0 && n->in[0] != NONE ? val(b->g, n->in[0]) : NULL;
    bool split = n->op == OP_Split && x && x->batch == (int)n->attr.axis;
    int64_t row = -1;
    if (b->rows == 1)
        return -1;
    if ((n->op == OP_Slice || split) && x->batch >= 0 && batch_outer(b, n->in[0]) == 1) {
        int64_t each = x->shape.d[x->batch] / b->rows, count = val(b->g, n->out[out])->shape.d[x->batch];
        int64_t at = split ? out * each : n->attr.start[x->batch]; /* of parts of equal sizes */
        bool whole = split ? count == each && n->nout == b->rows : n->attr.step[x->batch] == 1 && count == each && at % each == 0;
        return whole ? at / each : -1;
    }
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE)
            continue;
        int64_t own = row_of(b, n->in[i]);
        if (val(b->g, n->in[i])->batch >= 0 || (own < 0 && val(b->g, n->in[i])->batch == BATCH_MIXED) || (row >= 0 && own >= 0 && own != row))
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

int batch_rule(Batch *b, Node *n)
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
    if (n->op == OP_Count)
        return BATCH_NONE;
    if (mixed)
        return rule_mixed(b, n);
    if (n->op == OP_Expand)
        return rule_expand(b, n);
    if (!tagged)
        return BATCH_NONE;
    const Value *x = val(b->g, n->in[0]);
    int rank = val(b->g, n->out[0])->shape.rank, axis = (int)n->attr.axis;
    if (op_is_map(n->op) || n->op == OP_Phase || n->op == OP_Identity || n->op == OP_StopGradient)
        return rule_aligned(b, n, rank);
    if (b->cur != 1 && (n->op == OP_Dropout || n->op == OP_CumSum || n->op == OP_MaxPool))
        return batch_fail(b, "the rows are not outermost in their dimension");
    switch (n->op) {
    case OP_Dropout: return x->batch;
    case OP_Reshape: return rule_reshape(b, n);
    case OP_Transpose:
        for (int i = 0; i < rank; i++)
            if (n->attr.perm[i] == x->batch)
                return i;
        BUG("Transpose without dimension %d", x->batch);
    case OP_Slice:
    case OP_Pad: return rule_slice(b, n);
    case OP_Split: return x->batch == axis ? rule_split(b, n, axis) : x->batch;
    case OP_Concat: return rule_concat(b, n, rank, axis);
    case OP_ReduceSum:
    case OP_ReduceMean:
    case OP_ReduceMax:
    case OP_ReduceMin:
    case OP_ReduceProd: return rule_reduce(b, n, batch_in_axes(&n->attr, x->batch));
    case OP_ArgMax:
    case OP_ArgMin: return rule_reduce(b, n, x->batch == axis);
    case OP_TopK: return x->batch != axis || b->rows == 1 ? x->batch : batch_fail(b, "it chooses among the rows");
    case OP_Softmax:
    case OP_LogSoftmax:
    case OP_CumSum: return rule_along(b, n, axis);
    case OP_MatMul: return rule_matmul(b, n);
    case OP_Conv:
    case OP_ConvTranspose:
    case OP_ConvWeightGrad:
    case OP_MaxPool:
    case OP_AveragePool: return rule_conv(b, n);
    case OP_Gather: return batch_gather(b, n);
    case OP_GatherND: return batch_gather_nd(b, n);
    case OP_GatherElements:
    case OP_ScatterElements: return batch_elements(b, n);
    case OP_ScatterND: return batch_scatter_nd(b, n);
    default: return batch_fail(b, "this operation is not followed along the batch");
    }
}

/*
 * batch.c - which dimension of every value holds the rows of the microbatch.
 *
 * In: a shaped graph.  Out: Value.batch of every value from `from` on, and in words what forbids smaller
 * chunks (uneven) and what lets samples influence each other (mixes).
 * A forward dataflow over the nodes in order, one rule per core op.  A value that does not depend on the
 * data but has the batch's size where it meets the batch (an Expand, a constant) is tagged on demand: the
 * demand walks back to its source, and the sweep is repeated until nothing changes.  A dimension may hold
 * outer * rows * k elements (torch's MultiheadAttention flattens [S, B, E] to [S * B, E] for a while): inside a
 * stage only its size matters; where rows are told apart (outputs, constants, Dropout) outer has to be 1.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "batch_int.h"

static bool shape_is_one(const Shape *s)
{
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] != 1)
            return false;
    return true;
}

int batch_fail(Batch *b, const char *why)
{
    b->why = why;
    return BATCH_MIXED;
}

static int want_of(const Batch *b, ValueId v) { return v < b->want.n ? b->want.at[v] : BATCH_NONE; }

static int64_t outer_of(const Batch *b, ValueId v) { return v < b->outer.n ? b->outer.at[v] : 1; }

static void set_outer(Batch *b, ValueId v, int64_t outer)
{
    while (b->outer.n <= v)
        vec_push(b->scratch, &b->outer, 1);
    b->outer.at[v] = outer;
}

static void set_want(Batch *b, ValueId v, int dim)
{
    while (b->want.n <= v)
        vec_push(b->scratch, &b->want, BATCH_NONE);
    b->want.at[v] = dim;
    b->g->value.at[v].batch = dim;
    set_outer(b, v, b->cur);
    b->changed = true;
}

/*
 * Where the rows in dimension dim of `in` (with *outer before them) are in `out`, when both are the same
 * elements in row-major order; *outer becomes what is before them there.  -1: nowhere.
 */
int batch_reshape(const Shape *in, const Shape *out, int dim, int64_t rows, int64_t *outer)
{
    int64_t before = *outer, at = 1;
    for (int i = 0; i < dim; i++)
        before *= in->d[i];
    for (int j = 0; j < out->rank && at <= before; at *= out->d[j], j++)
        if (at == before && out->d[j] % rows == 0 && (out->d[j] != 1 || rows == 1)) {
            *outer = 1;
            return j;
        }
    at = 1;
    for (int j = 0; j < out->rank && at != 0 && at <= before && rows > 1; at *= out->d[j], j++)
        if (before % at == 0 && out->d[j] % (before / at * rows) == 0 && out->d[j] > 0) {
            *outer = before / at;
            return j;
        }
    return -1;
}

/* The integer at element i of a constant; false for types that hold no index. */
bool batch_const_int(const Value *v, int64_t i, int64_t *x)
{
    switch (v->dtype) {
    case DT_I64: *x = ((const int64_t *)v->data)[i]; return true;
    case DT_I32: *x = ((const int32_t *)v->data)[i]; return true;
    default: return false;
    }
}

/*
 * A constant may be tagged when its rows are all equal, or integers each of which grows by its own step from
 * row to row (positions, row numbers): then the constant of a smaller batch is a prefix of it.
 */
static bool rows_regular(const Value *v, int dim, int64_t rows)
{
    int64_t inner = 1, outer = 1;
    for (int i = 0; i < dim; i++)
        outer *= v->shape.d[i];
    for (int i = dim + 1; i < v->shape.rank; i++)
        inner *= v->shape.d[i];
    int64_t block = v->shape.d[dim] / rows * inner, whole = block * rows;
    size_t size = dtype_size(v->dtype);
    if (rows == 1 || outer * whole == 0)
        return true;
    if (size == 0)
        return false;
    const char *at = v->data;
    bool equal = true;
    for (int64_t o = 0; o < outer && equal; o++)
        for (int64_t r = 1; r < rows && equal; r++)
            equal = memcmp(at + (size_t)(o * whole) * size, at + (size_t)(o * whole + r * block) * size,
                           (size_t)block * size) == 0;
    if (equal)
        return true;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < whole; i++) {
            int64_t x, base, next, grown;
            int64_t in = o * whole + i % block;
            if (!batch_const_int(v, o * whole + i, &x) || !batch_const_int(v, in, &base) ||
                !batch_const_int(v, in + block, &next) || __builtin_sub_overflow(next, base, &grown) ||
                __builtin_mul_overflow(grown, i / block, &grown) || __builtin_add_overflow(grown, base, &grown) ||
                x != grown)
                return false;
        }
    return true;
}

static ValueId tagged_copy(Batch *b, ValueId v, int dim)
{
    for (uint32_t i = 0; i < b->copies.n; i++)
        if (b->copies.at[i].from == v && b->copies.at[i].dim == dim)
            return b->copies.at[i].to;
    Value was = *val(b->g, v);
    Shape shape = was.shape;
    ValueId to = graph_value(b->g, V_CONST, NULL, was.dtype, &shape);
    b->g->value.at[to].data = was.data;
    b->g->value.at[to].batch = dim;
    Retagged r = {v, to, dim};
    vec_push(b->scratch, &b->copies, r);
    return to;
}

/* Demands dimension dim of an operand aligned to the right with a result of rank `rank`; broadcast dims are fine. */
static bool demand_aligned(Batch *b, ValueId *slot, int dim, int rank)
{
    const Value *v = val(b->g, *slot);
    int own = dim - (rank - v->shape.rank);
    if (own < 0 || (v->shape.d[own] == 1 && v->batch == BATCH_NONE))
        return true;
    return batch_demand(b, slot, own);
}

static bool demand_all(Batch *b, Node *n, int dim, int rank)
{
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && !demand_aligned(b, &n->in[i], dim, rank))
            return false;
    return true;
}

static bool in_axes(const Attr *a, int dim)
{
    for (int i = 0; i < a->n; i++)
        if (a->a[i] == dim)
            return true;
    return false;
}

/* Can node's result carry the batch in dimension dim?  Passes the demand on to its operands. */
static bool demand_node(Batch *b, Node *n, ValueId out, int dim)
{
    Shape os = val(b->g, out)->shape;
    Shape is = n->nin > 0 && n->in[0] != NONE ? val(b->g, n->in[0])->shape : os;
    int axis = (int)n->attr.axis;
    if (op_is_map(n->op) || n->op == OP_Phase || n->op == OP_Identity || n->op == OP_StopGradient || n->op == OP_Dropout)
        return demand_all(b, n, dim, os.rank);
    switch (n->op) {
    case OP_Expand: return demand_aligned(b, &n->in[0], dim, os.rank);
    case OP_Reshape: {
        int64_t outer = b->cur;
        int j = batch_reshape(&os, &is, dim, b->rows, &b->cur);
        bool good = j >= 0 && batch_demand(b, &n->in[0], j);
        b->cur = outer;
        return good;
    }
    case OP_Transpose: return batch_demand(b, &n->in[0], (int)n->attr.a[dim]);
    case OP_Slice: return os.d[dim] == is.d[dim] && n->attr.c[dim] == 1 && batch_demand(b, &n->in[0], dim);
    case OP_Pad: return os.d[dim] == is.d[dim] && batch_demand(b, &n->in[0], dim);
    case OP_Split:
    case OP_Softmax:
    case OP_LogSoftmax:
    case OP_CumSum:
    case OP_TopK: return dim != axis && batch_demand(b, &n->in[0], dim);
    case OP_Concat: return dim != axis && demand_all(b, n, dim, os.rank);
    case OP_ReduceSum:
    case OP_ReduceMean:
    case OP_ReduceMax:
    case OP_ReduceMin:
    case OP_ReduceProd: return !in_axes(&n->attr, dim) && batch_demand(b, &n->in[0], dim);
    case OP_ArgMax:
    case OP_ArgMin: return dim != axis && batch_demand(b, &n->in[0], dim);
    case OP_Gather: {
        int ri = val(b->g, n->in[1])->shape.rank;
        if (dim < axis)
            return batch_demand(b, &n->in[0], dim);
        return dim < axis + ri ? batch_demand(b, &n->in[1], dim - axis) : batch_demand(b, &n->in[0], dim - ri + 1);
    }
    case OP_GatherElements:
    case OP_ScatterElements: return dim != axis && demand_all(b, n, dim, os.rank);
    case OP_MatMul: {
        int ra = is.rank, rb = val(b->g, n->in[1])->shape.rank;
        if (dim == os.rank - 2)
            return batch_demand(b, &n->in[0], ra - 2);
        if (dim == os.rank - 1)
            return batch_demand(b, &n->in[1], rb - 1);
        return demand_all(b, n, dim, os.rank);
    }
    default: return false;
    }
}

bool batch_demand(Batch *b, ValueId *slot, int dim)
{
    ValueId v = *slot;
    Value x = *val(b->g, v);
    if ((x.batch == dim && outer_of(b, v) == b->cur) || b->rows == 1)
        return true;
    if (x.batch != BATCH_NONE || x.shape.d[dim] % b->rows != 0)
        return false;
    if (x.kind == V_CONST) {
        if (b->cur != 1 || !rows_regular(&x, dim, b->rows))
            return false;
        *slot = tagged_copy(b, v, dim);
        return true;
    }
    if (x.kind != V_NODE || v < b->from || !demand_node(b, &b->g->node.at[x.node], v, dim))
        return false;
    set_want(b, v, dim);
    return true;
}

/* ---- rules ---------------------------------------------------------------------------------- */

/* All operands broadcast against each other; `skip` is a dimension that is not compared (Concat's axis), or -1. */
static int rule_aligned(Batch *b, Node *n, int rank)
{
    int dim = BATCH_NONE;
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE)
            continue;
        const Value *v = val(b->g, n->in[i]);
        if (v->batch < 0)
            continue;
        int at = v->batch + rank - v->shape.rank;
        if (dim == BATCH_NONE)
            dim = at;
        else if ((dim != at || outer_of(b, n->in[i]) != b->cur) && b->rows > 1)
            return batch_fail(b, "its operands hold the batch in different dimensions");
    }
    if (dim != BATCH_NONE && !demand_all(b, n, dim, rank))
        return batch_fail(b, "an operand has the batch's size but is fixed in the model");
    return dim;
}

static int rule_expand(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    int want = want_of(b, n->out[0]), dim = x->batch < 0 ? BATCH_NONE : x->batch + y->shape.rank - x->shape.rank;
    if (dim == BATCH_NONE)
        return want;
    return want == BATCH_NONE || want == dim ? dim : batch_fail(b, "it repeats every row once per row");
}

static int rule_reshape(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    int j = batch_reshape(&x->shape, &y->shape, x->batch, b->rows, &b->cur);
    if (j < 0 && b->rows == 1)
        return BATCH_NONE;
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
        if (ta >= 0 && tb >= 0 && b->rows > 1)
            return batch_fail(b, "it multiplies every row with every row");
        return ta == ra - 2 ? rank - 2 : rank - 1;
    }
    return rule_aligned(b, n, rank);
}

static int rule_conv(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = n->nin > 1 ? val(b->g, n->in[1]) : NULL;
    if (n->op == OP_ConvWeightGrad) {
        b->sums = true;
        if (x->batch > 0 || y->batch > 0 || !batch_demand(b, &n->in[0], 0) || !batch_demand(b, &n->in[1], 0))
            return batch_fail(b, "it convolves along the batch");
        return BATCH_NONE;
    }
    bool pool = n->op == OP_MaxPool || n->op == OP_AveragePool;
    if (x->batch == 0 && (pool || y->batch == BATCH_NONE))
        return 0;
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

static int rule_slice(Batch *b, Node *n)
{
    const Value *x = val(b->g, n->in[0]), *y = val(b->g, n->out[0]);
    int dim = x->batch;
    bool whole = x->shape.d[dim] == y->shape.d[dim];
    if (n->op == OP_Slice)
        whole = whole && n->attr.c[dim] == 1;
    return whole || b->rows == 1 ? dim : batch_fail(b, "it takes some of the rows, or adds to them");
}

static int rule_reduce(Batch *b, Node *n, bool over)
{
    int dim = val(b->g, n->in[0])->batch;
    if (!over)
        return dim;
    b->sums = true;
    return BATCH_NONE;
}

static int rule(Batch *b, Node *n)
{
    bool tagged = false, mixed = false;
    b->cur = 1;
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE) {
            if (!tagged && val(b->g, n->in[i])->batch >= 0) {
                tagged = true;
                b->cur = outer_of(b, n->in[i]);
            }
            mixed |= val(b->g, n->in[i])->batch == BATCH_MIXED;
        }
    if (n->op == OP_Count)
        return BATCH_NONE;
    if (mixed)
        return shape_is_one(&val(b->g, n->out[0])->shape) ? BATCH_NONE : BATCH_MIXED;
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
            if (n->attr.a[i] == x->batch)
                return i;
        BUG("Transpose without dimension %d", x->batch);
    case OP_Slice:
    case OP_Pad: return rule_slice(b, n);
    case OP_Split: return x->batch != axis || b->rows == 1 ? x->batch : batch_fail(b, "it divides the rows");
    case OP_Concat: {
        int dim = rule_aligned(b, n, rank);
        return dim != axis || b->rows == 1 ? dim : batch_fail(b, "it joins along the batch");
    }
    case OP_ReduceSum:
    case OP_ReduceMean:
    case OP_ReduceMax:
    case OP_ReduceMin:
    case OP_ReduceProd: return rule_reduce(b, n, in_axes(&n->attr, x->batch));
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

/* ---- inputs and reasons ----------------------------------------------------------------------- */

static void tag_inputs(Batch *b)
{
    Graph *g = b->g;
    for (uint32_t i = 0; i < g->input.n; i++) {
        Value *v = &g->value.at[g->input.at[i]];
        bool target = strcmp(v->name, "target") == 0;
        v->batch = v->shape.rank > 0 && (v->shape.d[0] == b->rows || (target && v->shape.d[0] % b->rows == 0))
                       ? 0
                       : BATCH_NONE;
    }
}

static void tag_option(Batch *b, const char *text)
{
    Graph *g = b->g;
    const char *eq = strrchr(text, '=');
    if (!eq)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--chunk '%s': expected INPUT=DIM or INPUT=replicate", text);
    const char *name = arena_strndup(b->scratch, text, (size_t)(eq - text));
    const char **names = arena_array(b->scratch, const char *, g->input.n + 1);
    Value *v = NULL;
    for (uint32_t i = 0; i < g->input.n; i++) {
        names[i] = val(g, g->input.at[i])->name;
        if (strcmp(names[i], name) == 0)
            v = &g->value.at[g->input.at[i]];
    }
    if (!v) {
        const char *near = diag_nearest(name, names, g->input.n);
        if (near)
            diag_hint("did you mean '%s'?", near);
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--chunk: the model has no input '%s'", name);
    }
    if (strcmp(eq + 1, "replicate") == 0) {
        v->batch = BATCH_NONE;
        return;
    }
    char *end;
    errno = 0;
    long dim = strtol(eq + 1, &end, 10);
    if (*end || end == eq + 1 || errno || dim < -v->shape.rank || dim >= v->shape.rank)
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--chunk '%s': %s has no dimension '%s'", text,
                   shape_print(b->scratch, v->dtype, &v->shape), eq + 1);
    dim += dim < 0 ? v->shape.rank : 0;
    if (v->shape.d[dim] % b->rows != 0)
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "--chunk '%s': dimension %ld of %s is no multiple of the %lld rows of a microbatch", text, dim,
                   shape_print(b->scratch, v->dtype, &v->shape), (long long)b->rows);
    v->batch = (int)dim;
}

static const char *node_text(const Graph *g, NodeId n)
{
    const Node *x = &g->node.at[n];
    if (x->origin >= g->origin.n)
        return arena_printf(g->arena, "node %u (%s)", n, op_name(x->op));
    const Origin *o = &g->origin.at[x->origin];
    const char *type = o->type && *o->type ? o->type : op_name(x->op);
    if (!o->name || !*o->name)
        return arena_printf(g->arena, "node %u (%s)", o->index, diag_escape(g->arena, type));
    return arena_printf(g->arena, "node %u '%s' (%s)", o->index, diag_escape(g->arena, o->name),
                        diag_escape(g->arena, type));
}

/* Runs the rule of node n and writes its results' tags; says whether one of them changed. */
static bool sweep_node(Batch *b, NodeId id)
{
    Node *n = &b->g->node.at[id];
    b->why = NULL;
    b->mixing = b->sums = false;
    int dim = rule(b, n);
    bool changed = false;
    for (uint32_t i = 0; i < n->nout; i++) {
        Value *v = &b->g->value.at[n->out[i]];
        int is = dim >= v->shape.rank ? BATCH_NONE : dim;
        int64_t outer = is >= 0 ? b->cur : 1;
        if (n->out[i] < b->from) { /* known already, but for outer */
            set_outer(b, n->out[i], is == v->batch ? outer : 1);
            continue;
        }
        changed |= v->batch != is || outer_of(b, n->out[i]) != outer;
        v->batch = is;
        set_outer(b, n->out[i], outer);
    }
    return changed;
}

static void reset(Batch *b)
{
    Graph *g = b->g;
    for (ValueId v = b->from; v < g->value.n; v++)
        g->value.at[v].batch = BATCH_NONE;
    if (b->from == 0)
        tag_inputs(b);
    for (NodeId n = 0; n < g->node.n && b->from > 0; n++)
        if (g->node.at[n].out[0] < b->from)
            (void)sweep_node(b, n);
}

/* Microbatches' outputs are put one after the other: their rows have to be outermost. */
static void check_outputs(Batch *b, Reasons *uneven)
{
    Graph *g = b->g;
    for (uint32_t i = 0; i < g->output.n; i++) {
        Value *v = &g->value.at[g->output.at[i]];
        if (v->batch < 0 || outer_of(b, g->output.at[i]) == 1)
            continue;
        v->batch = BATCH_MIXED;
        const char *text = arena_printf(g->arena, "output '%s': the rows are not outermost in their dimension",
                                        diag_escape(g->arena, v->name));
        if (uneven)
            vec_push(g->arena, uneven, text);
    }
}

/*
 * What sums over the batch and then goes back into single samples mixes them; a sum that only ends in the
 * loss does not.  at[v]: the node that mixed what v holds.
 */
static void find_mixes(Batch *b, NodeId id, NodeId *at, bool *said, Reasons *mixes)
{
    Graph *g = b->g;
    const Node *n = &g->node.at[id];
    NodeId from = b->mixing || b->sums ? id : NONE;
    for (uint32_t i = 0; i < n->nin && from == NONE; i++)
        if (n->in[i] != NONE)
            from = at[n->in[i]];
    if (from == NONE || n->op == OP_Count)
        return;
    bool back = b->mixing;
    for (uint32_t i = 0; i < n->nout; i++)
        back |= g->value.at[n->out[i]].batch >= 0;
    uint32_t origin = g->node.at[from].origin < g->origin.n ? g->node.at[from].origin : g->origin.n;
    if (!back) {
        for (uint32_t i = 0; i < n->nout; i++)
            at[n->out[i]] = from;
    } else if (!said[origin]) {
        said[origin] = true;
        const char *text = arena_printf(
            g->arena, "%s computes over all samples of a microbatch: they influence each other", node_text(g, from));
        vec_push(g->arena, mixes, text);
    }
}

void batch_analyse(Graph *g, ValueId from, const PartitionOptions *opt, Reasons *uneven, Reasons *mixes)
{
    Batch b = {.g = g, .scratch = g->arena, .from = from, .rows = g->batch > 0 ? g->batch : 1};
    reset(&b);
    for (uint32_t i = 0; from == 0 && opt && i < opt->chunk.n; i++)
        tag_option(&b, opt->chunk.at[i]);
    for (int round = 0; round < 100; round++) {
        bool changed = false;
        b.changed = false;
        for (NodeId n = 0; n < g->node.n; n++)
            if (g->node.at[n].nout > 0 && g->node.at[n].out[0] >= from)
                changed |= sweep_node(&b, n);
        if (!changed && !b.changed)
            break;
    }
    NodeId *at = arena_array(b.scratch, NodeId, g->value.n + 1);
    bool *said = arena_array(b.scratch, bool, g->origin.n + 1);
    bool *told = arena_array(b.scratch, bool, g->origin.n + 1);
    memset(at, 0xff, (g->value.n + 1) * sizeof *at);
    for (NodeId n = 0; n < g->node.n; n++) {
        if (g->node.at[n].nout == 0 || g->node.at[n].out[0] < from)
            continue;
        sweep_node(&b, n);
        uint32_t origin = g->node.at[n].origin < g->origin.n ? g->node.at[n].origin : g->origin.n;
        if (b.why && uneven && !told[origin]) {
            told[origin] = true;
            const char *text = arena_printf(g->arena, "%s: %s", node_text(g, n), b.why);
            vec_push(g->arena, uneven, text);
        }
        if (mixes && from == 0)
            find_mixes(&b, n, at, said, mixes);
    }
    if (from == 0)
        check_outputs(&b, uneven);
}

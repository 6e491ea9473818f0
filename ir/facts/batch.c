/*
 * batch.c - which dimension of every value holds the rows of the microbatch.
 *
 * In: a shaped graph.  Out: Value.batch of every value from `from` on, and in words what forbids smaller
 * chunks (uneven), what lets samples influence each other (mixes), and how microbatches meet in each output.
 * A forward dataflow over the nodes in order, one rule per core op (batch_rules.c).  A value that does not depend on the
 * data but has the batch's size where it meets the batch (an Expand, a constant) is tagged on demand: the
 * demand walks back to its source, and the sweep is repeated until nothing changes.  A dimension may hold
 * outer * rows * k elements (torch's MultiheadAttention flattens [S, B, E] to [S * B, E] for a while): inside a
 * stage only its size matters; where rows are told apart (outputs, Dropout) outer has to be 1.  The target of a loss is cut
 * where the demand of what it is compared with finds it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"

int batch_fail(Batch *b, const char *why)
{
    b->why = why;
    return BATCH_MIXED;
}

int batch_want(const Batch *b, ValueId v) { return v < b->want.n ? b->want.at[v] : BATCH_NONE; }

int64_t batch_outer(const Batch *b, ValueId v) { return v < b->outer.n ? b->outer.at[v] : 1; }

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
    if (v->dtype != DT_I64 && v->dtype != DT_I32)
        return false;
    *x = element_int(v->dtype, v->data, i);
    return true;
}

/*
 * A constant may be tagged when its rows are all equal, or integers each of which grows by its own step from
 * row to row (positions, row numbers): then the constant of a smaller batch is a prefix of it.
 */
static bool rows_regular(const Value *v, int dim, int64_t outer, int64_t rows)
{
    int64_t inner = 1, each = v->shape.d[dim] / (outer * rows);
    for (int i = 0; i < dim; i++)
        outer *= v->shape.d[i];
    for (int i = dim + 1; i < v->shape.rank; i++)
        inner *= v->shape.d[i];
    int64_t block = each * inner, whole = block * rows;
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
        if (b->copies.at[i].from == v && b->copies.at[i].dim == dim && batch_outer(b, b->copies.at[i].to) == b->cur)
            return b->copies.at[i].to;
    Value was = *val(b->g, v);
    Shape shape = was.shape;
    ValueId to = graph_value(b->g, V_CONST, NULL, was.dtype, &shape);
    b->g->value.at[to].data = was.data;
    b->g->value.at[to].batch = dim;
    set_outer(b, to, b->cur);
    Retagged r = {v, to, dim};
    vec_push(b->scratch, &b->copies, r);
    return to;
}

/* Demands dimension dim of an operand aligned to the right with a result of rank `rank`; broadcast dims are fine. */
static bool demand_aligned(Batch *b, ValueId *slot, int dim, int rank)
{
    const Value *v = val(b->g, *slot);
    int own = dim - (rank - v->shape.rank);
    bool labels = b->rows == 1 && *slot < b->values && b->labels[*slot];
    if (own < 0 || (v->shape.d[own] == 1 && v->batch == BATCH_NONE && !labels))
        return true;
    return batch_demand(b, slot, own);
}

bool batch_demand_all(Batch *b, Node *n, int dim, int rank)
{
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && !demand_aligned(b, &n->in[i], dim, rank))
            return false;
    return true;
}

bool batch_in_axes(const Attr *a, int dim)
{
    for (int i = 0; i < a->n; i++)
        if (a->axes[i] == dim)
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
        return batch_demand_all(b, n, dim, os.rank);
    switch (n->op) {
    case OP_Expand: return demand_aligned(b, &n->in[0], dim, os.rank);
    case OP_Reshape: {
        int64_t outer = b->cur;
        int j = batch_reshape(&os, &is, dim, b->rows, &b->cur);
        bool good = j >= 0 && batch_demand(b, &n->in[0], j);
        b->cur = outer;
        return good;
    }
    case OP_Transpose: return batch_demand(b, &n->in[0], (int)n->attr.perm[dim]);
    case OP_Slice: return os.d[dim] == is.d[dim] && n->attr.step[dim] == 1 && batch_demand(b, &n->in[0], dim);
    case OP_Pad: return os.d[dim] == is.d[dim] && batch_demand(b, &n->in[0], dim);
    case OP_Split:
    case OP_Softmax:
    case OP_LogSoftmax:
    case OP_CumSum:
    case OP_TopK: return dim != axis && batch_demand(b, &n->in[0], dim);
    case OP_Concat: return dim != axis && batch_demand_all(b, n, dim, os.rank);
    case OP_ReduceSum:
    case OP_ReduceMean:
    case OP_ReduceMax:
    case OP_ReduceMin:
    case OP_ReduceProd: return !batch_in_axes(&n->attr, dim) && batch_demand(b, &n->in[0], dim);
    case OP_ArgMax:
    case OP_ArgMin: return dim != axis && batch_demand(b, &n->in[0], dim);
    case OP_Gather: {
        int ri = val(b->g, n->in[1])->shape.rank;
        if (dim < axis)
            return batch_demand(b, &n->in[0], dim);
        return dim < axis + ri ? batch_demand(b, &n->in[1], dim - axis) : batch_demand(b, &n->in[0], dim - ri + 1);
    }
    case OP_Conv:
    case OP_ConvTranspose:
    case OP_MaxPool:
    case OP_AveragePool: return dim == 0 && batch_demand(b, &n->in[0], 0);
    case OP_GatherElements:
    case OP_ScatterElements: return dim != axis && batch_demand_all(b, n, dim, os.rank);
    case OP_MatMul: {
        int ra = is.rank, rb = val(b->g, n->in[1])->shape.rank;
        if (dim == os.rank - 2)
            return batch_demand(b, &n->in[0], ra - 2);
        if (dim == os.rank - 1)
            return batch_demand(b, &n->in[1], rb - 1);
        return batch_demand_all(b, n, dim, os.rank);
    }
    default: return false;
    }
}

/* A constant's rows are put one after the other as they are, so behind something outside them there must be all. */
static bool demand_const(Batch *b, ValueId *slot, const Value *x, int dim)
{
    if (x->shape.d[dim] % (b->cur * b->rows) != 0 || !rows_regular(x, dim, b->cur, b->rows))
        return false;
    *slot = tagged_copy(b, *slot, dim);
    if (b->cur != 1)
        b->why = "a constant of the model repeats in it for every row";
    return true;
}

bool batch_demand(Batch *b, ValueId *slot, int dim)
{
    ValueId v = *slot;
    Value x = *val(b->g, v);
    bool labels = v < b->values && b->labels[v], one = b->rows == 1;
    if (x.batch == dim && batch_outer(b, v) == b->cur) {
        if (x.kind == V_CONST && b->cur != 1)
            b->why = "a constant of the model repeats in it for every row";
        return true;
    }
    if (x.batch != BATCH_NONE || x.shape.d[dim] % b->rows != 0 || (one && !labels))
        return one;
    if (x.kind == V_CONST)
        return demand_const(b, slot, &x, dim);
    if (v == b->target && b->cur == 1) {
        set_want(b, v, dim);
        return true;
    }
    if (x.kind != V_NODE || v < b->from || !demand_node(b, &b->g->node.at[x.node], v, dim))
        return one;
    set_want(b, v, dim);
    return true;
}

/* ---- inputs and reasons ----------------------------------------------------------------------- */

static void tag_inputs(Batch *b)
{
    Graph *g = b->g;
    for (uint32_t i = 0; i < g->input.n; i++) {
        Value *v = &g->value.at[g->input.at[i]];
        bool target = g->input.at[i] == b->target;      /* found by what it is compared with */
        v->batch = !target && v->shape.rank > 0 && v->shape.d[0] == b->rows ? 0 : BATCH_NONE;
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
        const char *near = nearest_name(name, names, g->input.n);
        if (near)
            diag_hint("did you mean '%s'?", near);
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--chunk: the model has no input '%s'", name);
    }
    if (b->target != NONE && v == &g->value.at[b->target])
        b->target = NONE; /* said */
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

const char *batch_node_text(const Graph *g, NodeId n)
{
    const Node *x = &g->node.at[n];
    if (x->origin >= g->origin.n)
        return arena_printf(g->arena, "node %u (%s)", n, op_name(x->op));
    if (g->origin.at[x->origin].index == NONE)
        return arena_printf(g->arena, "%s (%s)", diag_escape(g->arena, g->origin.at[x->origin].name), op_name(x->op));
    const Origin *o = &g->origin.at[x->origin];
    const char *type = o->type && *o->type ? o->type : op_name(x->op);
    if (!o->name || !*o->name)
        return arena_printf(g->arena, "node %u (%s)", o->index, diag_escape(g->arena, type));
    return arena_printf(g->arena, "node %u '%s' (%s)", o->index, diag_escape(g->arena, o->name),
                        diag_escape(g->arena, type));
}

/* Runs the rule of node n and writes its results' tags; says whether one of them changed. */
bool batch_sweep_node(Batch *b, NodeId id)
{
    Node *n = &b->g->node.at[id];
    b->why = NULL;
    b->mixing = b->sums = false;
    int dim = batch_rule(b, n);
    bool changed = false;
    for (uint32_t i = 0; i < n->nout; i++) {
        Value *v = &b->g->value.at[n->out[i]];
        int is = dim >= v->shape.rank ? BATCH_NONE : dim;
        if (is == BATCH_MIXED && n->out[i] < b->values && b->said[n->out[i]] != BATCH_NONE) {
            is = b->said[n->out[i]];
            b->cur = 1;
        }
        int64_t outer = is >= 0 ? b->cur : 1, row = is >= 0 ? -1 : batch_row(b, n, i);
        if (n->out[i] < b->values && b->row[n->out[i]] != row) {
            b->row[n->out[i]] = row;
            changed = true;
        }
        if (n->out[i] < b->from) { /* known already, but for outer */
            set_outer(b, n->out[i], is == v->batch ? outer : 1);
            continue;
        }
        changed |= v->batch != is || batch_outer(b, n->out[i]) != outer;
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
            (void)batch_sweep_node(b, n);
}

/* What the user knows of an output: --merge OUTPUT=DIM, where the rows are. */
static void read_merges(Batch *b, const BatchOptions *opt)
{
    const Graph *g = b->g;
    for (uint32_t i = 0; opt && i < opt->merge.n; i++) {
        const char *text = opt->merge.at[i], *eq = strrchr(text, '=');
        for (uint32_t k = 0; eq && k < g->output.n && k < g->output_name.n; k++) {
            const Value *v = val(g, g->output.at[k]);
            const char *name = g->output_name.at[k];
            if (strlen(name) != (size_t)(eq - text) || strncmp(name, text, (size_t)(eq - text)) != 0)
                continue;
            char *end;
            long dim = strtol(eq + 1, &end, 10);
            if (end != eq + 1 && !*end && dim >= 0 && dim < v->shape.rank && v->shape.d[dim] % b->rows == 0)
                b->said[g->output.at[k]] = (int)dim;
        }
    }
}

/* What is made of the target and constants alone is cut as the target is. */
static void find_labels(Batch *b)
{
    const Graph *g = b->g;
    if (b->target == NONE)
        return;
    b->labels[b->target] = true;
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        bool some = false, other = false;
        for (uint32_t i = 0; i < n->nin; i++) {
            bool of_target = n->in[i] != NONE && b->labels[n->in[i]];
            some |= of_target;
            other |= n->in[i] != NONE && !of_target && val(g, n->in[i])->kind != V_CONST;
        }
        for (uint32_t i = 0; i < n->nout && some && !other; i++)
            b->labels[n->out[i]] = true;
    }
}

/* A target that nothing of known rows was compared with is cut along its first dimension. */
static bool settle_target(Batch *b)
{
    Value *v = b->target == NONE ? NULL : &b->g->value.at[b->target];
    if (!v || v->batch != BATCH_NONE || v->shape.rank == 0 || v->shape.d[0] % b->rows != 0)
        return false;
    v->batch = 0;
    return true;
}

/* What node `from` does to the samples, said where it meets them: at once, or at node id. */
static const char *mixed_text(const Batch *b, NodeId from, NodeId id)
{
    const char *node = batch_node_text(b->g, from);
    if (from != id || !b->why)
        return arena_printf(b->g->arena, "%s computes over all samples of a microbatch: they influence each other", node);
    return arena_printf(b->g->arena,
                        b->mixing ? "%s: %s: what it yields for a microbatch is no part of what it yields for the minibatch"
                                  : "%s: %s: whether samples influence each other is not known from here on",
                        node, b->why);
}

/*
 * What sums over the batch and then goes back into single samples mixes them; a sum that only ends in the
 * loss does not.  at[v]: the node that mixed what v holds.
 */
static void find_mixes(Batch *b, NodeId id, NodeId *at, bool *said, Reasons *mixes)
{
    Graph *g = b->g;
    const Node *n = &g->node.at[id];
    bool lost = b->why && g->value.at[n->out[0]].batch == BATCH_MIXED && b->row[n->out[0]] < 0;
    NodeId from = b->mixing || b->sums || lost ? id : NONE;
    for (uint32_t i = 0; i < n->nin && from == NONE; i++)
        if (n->in[i] != NONE)
            from = at[n->in[i]];
    if (from == NONE || n->op == OP_Count)
        return;
    bool back = b->mixing || lost;
    for (uint32_t i = 0; i < n->nout; i++)
        back |= g->value.at[n->out[i]].batch >= 0;
    uint32_t origin = g->node.at[from].origin < g->origin.n ? g->node.at[from].origin : g->origin.n;
    if (!back) {
        for (uint32_t i = 0; i < n->nout; i++)
            at[n->out[i]] = from;
    } else if (!said[origin]) {
        said[origin] = true;
        vec_push(g->arena, mixes, mixed_text(b, from, id));
    }
}

/* Rounds until no tag changes. */
static void sweep(Batch *b)
{
    for (int round = 0; round < 100; round++) {
        bool changed = false;
        b->changed = false;
        for (NodeId n = 0; n < b->g->node.n; n++)
            if (b->g->node.at[n].nout > 0 && b->g->node.at[n].out[0] >= b->from)
                changed |= batch_sweep_node(b, n);
        if (!changed && !b->changed && !settle_target(b))
            break;
    }
}

void batch_analyse(Graph *g, ValueId from, const BatchOptions *opt, BatchNotes *notes)
{
    Batch b = {.g = g, .scratch = g->arena, .from = from, .rows = g->batch > 0 ? g->batch : 1, .values = g->value.n};
    b.target = notes && from == 0 ? notes->target : NONE;
    b.labels = arena_array(b.scratch, bool, b.values + 1);
    b.said = arena_array(b.scratch, int, b.values + 1);
    b.row = arena_array(b.scratch, int64_t, b.values + 1);
    for (ValueId v = 0; v < b.values; v++) {
        b.said[v] = BATCH_NONE;
        b.row[v] = -1;
    }
    reset(&b);
    for (uint32_t i = 0; from == 0 && opt && i < opt->chunk.n; i++)
        tag_option(&b, opt->chunk.at[i]);
    if (from == 0) {
        read_merges(&b, opt);
        find_labels(&b);
    }
    if (from == 0 && b.rows == 1)
        batch_one(&b);
    sweep(&b);
    if (!notes)
        return;
    NodeId *at = arena_array(b.scratch, NodeId, g->value.n + 1);
    bool *said = arena_array(b.scratch, bool, g->origin.n + 1);
    bool *told = arena_array(b.scratch, bool, g->origin.n + 1);
    memset(at, 0xff, (g->value.n + 1) * sizeof *at);
    b.fate = batch_fates(&b);
    for (NodeId n = 0; n < g->node.n; n++) {
        if (g->node.at[n].nout == 0 || g->node.at[n].out[0] < from)
            continue;
        batch_sweep_node(&b, n);
        uint32_t origin = g->node.at[n].origin < g->origin.n ? g->node.at[n].origin : g->origin.n;
        if (b.why && !told[origin]) {
            told[origin] = true;
            const char *text = arena_printf(g->arena, "%s: %s", batch_node_text(g, n), b.why);
            vec_push(g->arena, &notes->uneven, text);
        }
        if (from == 0) {
            find_mixes(&b, n, at, said, &notes->mixes);
            batch_fate(&b, n, notes);
        }
    }
    if (from == 0)
        batch_meet(&b, notes);
}

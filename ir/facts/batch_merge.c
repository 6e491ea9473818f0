/*
 * batch_merge.c - what the microbatches' results are to the minibatch's: rows of it, terms of a sum, parts of a mean, the same.
 *
 * In: tagged values, node by node.  Out: how microbatches meet in each output, or the node that leaves no way and why;
 * and whether a microbatch of the target belongs to the same microbatch of what it is compared with.
 * A sum over the samples stays one through linear operations, a mean even through affine ones; nothing else adds up.  A sum
 * that is divided by a constant may be meant as a mean (x.sum() / x.shape[0] is exported so): that is for the user to say.
 */
#include <math.h>
#include <string.h>

#include "batch.h"

static Fate fate_of(const Batch *b, ValueId v)
{
    if (val(b->g, v)->batch >= 0)
        return (Fate){.kind = FATE_ROWS};
    return v < b->values ? b->fate[v] : (Fate){.kind = FATE_FIXED};
}

Fate *batch_fates(Batch *b) { return arena_array(b->scratch, Fate, b->values + 1); }

static double element(const Value *v, int64_t i)
{
    return element_double(v->dtype, v->data, i);
}

/* Could the factor (or divisor) be 1 / (a number of elements of the microbatch)? */
static bool may_average(const Batch *b, ValueId v, bool divisor)
{
    const Value *x = val(b->g, v);
    if (x->kind != V_CONST || !dtype_is_float(x->dtype))
        return false;
    for (int64_t i = 0, n = shape_elements(&x->shape); i < n; i++) {
        double by = divisor ? element(x, i) : 1 / element(x, i), rows = (double)b->rows, parts = round(by / rows);
        if (parts >= 1 && fabs(by - parts * rows) <= 1e-6 * by)
            return true;
    }
    return false;
}

static bool keeps(const Node *n)
{
    switch (n->op) {
    case OP_Neg:
    case OP_Identity:
    case OP_StopGradient:
    case OP_Phase:
    case OP_Reshape:
    case OP_Transpose:
    case OP_Expand:
    case OP_Slice:
    case OP_Split:
    case OP_ReduceSum:
    case OP_ReduceMean: return true;
    case OP_Cast: return dtype_is_float((Dtype)n->attr.to);
    default: return false;
    }
}

static Fate lost(const Batch *b, NodeId id, const char *why)
{
    bool crossed = b->mixing && why == b->why;
    return (Fate){FATE_LOST, arena_printf(b->g->arena, "%s: %s", batch_node_text(b->g, id), why), crossed};
}

/* Of rows no rows are left. */
static Fate reduced(const Batch *b, NodeId id)
{
    const Node *n = &b->g->node.at[id];
    if (b->why && val(b->g, n->out[0])->batch == BATCH_MIXED)
        return lost(b, id, b->why);
    bool all = shape_elements(&val(b->g, n->out[0])->shape) == 1;
    if (n->op == OP_ReduceMean && (b->rows > 1 || all)) /* of shapes of one row only what leaves nothing is sure to be over it */
        return (Fate){.kind = FATE_MEAN};
    if (n->op != OP_ReduceMean && n->op != OP_ReduceSum && n->op != OP_MatMul)
        return lost(b, id, "what it makes of all samples is neither their sum nor their mean");
    if (b->rows == 1)
        return lost(b, id, "the model's shapes have one row: whether it is taken over the samples, and if it is their sum or their mean, does not show");
    return (Fate){.kind = FATE_SUM};
}

static bool is(Fate f, int kind) { return f.kind == (unsigned)kind; }

/* Two operands, neither with rows, not both fixed. */
static Fate combined(const Batch *b, NodeId id, Fate x, Fate y)
{
    const Node *n = &b->g->node.at[id];
    bool sum = is(x, FATE_SUM) || is(y, FATE_SUM), fixed = is(x, FATE_FIXED) || is(y, FATE_FIXED);
    Fate f = is(x, FATE_FIXED) ? y : x;
    switch (n->op) {
    case OP_Add:
    case OP_Sub:
        if (x.kind == y.kind || (fixed && is(f, FATE_MEAN)))
            return f;
        break;
    case OP_Gather:
        if (is(y, FATE_FIXED))
            return f;
        break;
    case OP_Div:
        if (is(x, FATE_SUM) && is(y, FATE_COUNT))
            return (Fate){.kind = FATE_MEAN};
        if (!is(y, FATE_FIXED))
            break;
        if (sum && may_average(b, n->in[1], true))
            return lost(b, id, "it may make a mean of a sum over the samples, or only scale it");
        return f;
    case OP_Mul:
        if (!fixed)
            break;
        if (sum && may_average(b, n->in[is(x, FATE_FIXED) ? 0 : 1], false))
            return lost(b, id, "it may make a mean of a sum over the samples, or only scale it");
        return f;
    case OP_MatMul:
        if (fixed)
            return f;
        break;
    default: break;
    }
    return lost(b, id, "what it makes of all samples does not add up over microbatches");
}

static Fate joined(const Batch *b, NodeId id)
{
    const Node *n = &b->g->node.at[id];
    Fate all = fate_of(b, n->in[0]);
    for (uint32_t i = 1; i < n->nin; i++) {
        Fate one = fate_of(b, n->in[i]);
        if (one.kind != all.kind && !((is(one, FATE_FIXED) || is(all, FATE_FIXED)) && (is(one, FATE_MEAN) || is(all, FATE_MEAN))))
            return lost(b, id, "it joins what adds up over microbatches with what does not");
        all = is(all, FATE_FIXED) ? one : all;
    }
    return all;
}

static Fate fate_of_node(const Batch *b, NodeId id)
{
    const Node *n = &b->g->node.at[id];
    bool rows = false, varies = false;
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE)
            continue;
        Fate f = fate_of(b, n->in[i]);
        if (is(f, FATE_LOST) && n->op != OP_Count)
            return f;
        rows |= is(f, FATE_ROWS);
        varies |= !is(f, FATE_FIXED);
    }
    if (n->op == OP_Count) {
        const Value *x = val(b->g, n->in[0]);
        for (int i = 0; i < n->attr.n; i++)
            if (x->batch == (int)n->attr.axes[i])
                return (Fate){.kind = FATE_COUNT};
        return x->batch == BATCH_MIXED ? lost(b, id, "it counts elements of what is not followed") : (Fate){.kind = FATE_FIXED};
    }
    if (!varies)
        return (Fate){.kind = FATE_FIXED};
    if (rows)
        return reduced(b, id);
    if (n->nin == 1 || n->op == OP_Phase)
        return keeps(n) ? fate_of(b, n->in[0]) : lost(b, id, "what it makes of all samples does not add up over microbatches");
    if (n->op == OP_Concat)
        return joined(b, id);
    if (n->nin == 2)
        return combined(b, id, fate_of(b, n->in[0]), fate_of(b, n->in[1]));
    return lost(b, id, "what it makes of all samples does not add up over microbatches");
}

/* Where the target is compared with what has no rows, or has them elsewhere, a microbatch of it is a guess. */
static void compare_target(const Batch *b, NodeId id, BatchNotes *notes)
{
    const Node *n = &b->g->node.at[id];
    bool target = false, other = false;
    const char *why = NULL;
    if (b->target == NONE || notes->target_why)
        return;
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE || val(b->g, n->in[i])->kind == V_CONST)
            continue;
        bool labels = n->in[i] < b->values && b->labels[n->in[i]];
        Fate f = fate_of(b, n->in[i]);
        target |= labels;
        other |= !labels;
        if (!labels && is(f, FATE_LOST))
            why = f.why;
    }
    const Value *t = val(b->g, b->target); /* of one row, which dimension of 1 is the rows' is plain in most models */
    bool guess = why && b->rows == 1 && t->batch >= 0 && t->shape.d[t->batch] != 1;
    if (target && other && (guess || is(fate_of(b, n->out[0]), FATE_LOST)))
        notes->target_why = why ? why : fate_of(b, n->out[0]).why;
}

void batch_fate(Batch *b, NodeId id, BatchNotes *notes)
{
    const Node *n = &b->g->node.at[id];
    Fate f = fate_of_node(b, id);
    for (uint32_t i = 0; i < n->nout; i++)
        if (n->out[i] < b->values)
            b->fate[n->out[i]] = f;
    compare_target(b, id, notes);
}

void batch_meet(Batch *b, BatchNotes *notes)
{
    static const OutputMerge how[] = {MERGE_LAST, MERGE_ROWS, MERGE_NONE, MERGE_SUM, MERGE_MEAN, MERGE_NONE};
    Graph *g = b->g;
    if (notes->loss != NONE && fate_of(b, notes->loss).crossed)
        notes->loss_why = fate_of(b, notes->loss).why;
    for (uint32_t i = 0; i < g->output.n; i++) {
        ValueId v = g->output.at[i];
        Fate f = fate_of(b, v);
        OutputMeeting m = {.how = how[f.kind], .why = f.why};
        if (is(f, FATE_ROWS) && batch_outer(b, v) != 1) {
            m.how = MERGE_NONE;
            m.why = "its rows are not outermost in their dimension";
            const char *text = arena_printf(g->arena, "output '%s': %s", diag_escape(g->arena, val(g, v)->name), m.why);
            vec_push(g->arena, &notes->uneven, text);
            g->value.at[v].batch = BATCH_MIXED;
        } else if (m.how == MERGE_NONE && !m.why) {
            m.why = "it grows with the rows";
        } else if ((m.how == MERGE_SUM || m.how == MERGE_MEAN) && !dtype_is_float(val(g, v)->dtype)) {
            m.how = MERGE_NONE;
            m.why = "only sums and means of floats are put together";
        }
        vec_push(g->arena, &notes->output, m);
    }
}

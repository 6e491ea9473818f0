/*
 * batch_merge.c - what the microbatches' results are to the minibatch's: rows of it, terms of a
 * sum, parts of a mean, the same.
 *
 * In: tagged values, node by node.  Out: how microbatches meet in each output, or the node that
 * leaves no way and why; and whether a microbatch of the target belongs to the same microbatch of
 * what it is compared with. A sum over the samples stays one through linear operations, a mean even
 * through affine ones, and both added to one another add up term by term, as a loss has them
 * (partition/loss_terms.c); nothing else adds up.  A sum that is divided by a constant may be meant
 * as a mean (x.sum() / x.shape[0] is exported so): that is for the user to say.
 */
#include <math.h>
#include <string.h>

#include "batch.h"

static Fate fate_of(const Batch *b, ValueId v)
{
    if (val(b->g, v)->batch >= 0)
        return (Fate){.kind = FATE_ROWS, .mixed = v < b->values ? b->fate[v].mixed : NULL};
    return v < b->values ? b->fate[v] : (Fate){.kind = FATE_FIXED};
}

Fate *batch_fates(Batch *b) { return arena_array(b->scratch, Fate, b->values + 1); }

/* Could the divisor be a number of elements of the microbatch?  And the factor 1 / that of its rows
 * or of the elements that were added: other factors are as they were written. */
static bool may_average(const Batch *b, ValueId v, bool divisor, int64_t added)
{
    const Value *x = val(b->g, v);
    if (x->kind != V_CONST || !dtype_is_float(x->dtype))
        return false;
    for (int64_t i = 0, n = shape_elements(&x->shape); i < n; i++) {
        double factor = fabs(element_double(x->dtype, x->data, i)),
               by = divisor ? factor : 1 / factor, rows = (double)b->rows,
               parts = round(by / rows);
        bool likely = divisor || fabs(by - rows) <= 1e-6 * by ||
                      fabs(by - (double)added) <= 1e-6 * by;
        if (parts >= 1 && likely && fabs(by - parts * rows) <= 1e-6 * by)
            return true;
    }
    return false;
}

static Fate lost(const Batch *b, NodeId id, const char *why)
{
    bool crossed = b->mixing && why == b->why;
    return (Fate){.kind = FATE_LOST,
                  .why = arena_printf(b->g->arena, "%s: %s", batch_node_text(b->g, id), why),
                  .crossed = crossed};
}

static bool is(Fate f, int kind) { return f.kind == (unsigned)kind; }

/* ---- one function per merge of ops.def.  rows: of operands' rows none are left; else no operand
 * has rows, and not all are fixed ---- */

static Fate neither(const Batch *b, NodeId id)
{
    return lost(b, id, "what it makes of all samples is neither their sum nor their mean");
}

static Fate scattered(const Batch *b, NodeId id)
{
    return lost(b, id, "what it makes of all samples does not add up over microbatches");
}

/* all: nothing is left, so that it is over the rows whatever the shapes show */
static Fate summed(const Batch *b, NodeId id, bool all)
{
    const Node *n = &b->g->node.at[id];
    if (b->rows == 1 && !all)
        return lost(b, id,
                    "the model's shapes have one row: whether it is taken over the samples, and if "
                    "it is their sum or their mean, does not show");
    int64_t in = shape_elements(&val(b->g, n->in[0])->shape),
            out = shape_elements(&val(b->g, n->out[0])->shape);
    return (Fate){.kind = FATE_SUM, .added = out > 0 && in % out == 0 ? in / out : 0};
}

static Fate operand(const Batch *b, NodeId id, uint32_t i)
{
    return fate_of(b, b->g->node.at[id].in[i]);
}

static bool is_fixed(const Batch *b, NodeId id, uint32_t i)
{
    return is(operand(b, id, i), FATE_FIXED);
}

/* Of two operands of which one is fixed, the other. */
static Fate other(const Batch *b, NodeId id) { return operand(b, id, is_fixed(b, id, 0)); }

static Fate merge_lose(const Batch *b, NodeId id, bool rows)
{
    return rows ? neither(b, id) : scattered(b, id);
}

static Fate merge_keep(const Batch *b, NodeId id, bool rows)
{
    return rows ? neither(b, id) : operand(b, id, 0);
}

static Fate merge_keep_float(const Batch *b, NodeId id, bool rows)
{
    bool to_float = dtype_is_float(b->g->node.at[id].attr.to);
    return to_float ? merge_keep(b, id, rows) : merge_lose(b, id, rows);
}

/* One element is left. */
static bool is_all(const Batch *b, NodeId id)
{
    return shape_elements(&val(b->g, b->g->node.at[id].out[0])->shape) == 1;
}

static Fate merge_sum(const Batch *b, NodeId id, bool rows)
{
    return rows ? summed(b, id, is_all(b, id)) : operand(b, id, 0);
}

static Fate merge_mean(const Batch *b, NodeId id, bool rows)
{
    if (!rows)
        return operand(b, id, 0);
    /* of shapes of one row only what leaves nothing is sure to be over it */
    if (b->rows > 1 || is_all(b, id))
        return (Fate){.kind = FATE_MEAN};
    return summed(b, id, false);
}

static Fate merge_product(const Batch *b, NodeId id, bool rows)
{
    if (rows)
        return summed(b, id, false);
    return is_fixed(b, id, 0) || is_fixed(b, id, 1) ? other(b, id) : scattered(b, id);
}

static bool is_term(Fate f)
{
    return is(f, FATE_FIXED) || is(f, FATE_SUM) || is(f, FATE_MEAN) || is(f, FATE_TERMS);
}

/* x + y, or what holds both of them */
static Fate added(const Batch *b, NodeId id, Fate x, Fate y)
{
    bool fixed = is(x, FATE_FIXED) || is(y, FATE_FIXED);
    Fate f = is(x, FATE_FIXED) ? y : x, no = scattered(b, id);
    if (x.kind == y.kind || (fixed && is(f, FATE_MEAN)))
        return f;
    if (is_term(x) && is_term(y))
        no.kind = FATE_TERMS;
    return no;
}

static Fate merge_add(const Batch *b, NodeId id, bool rows)
{
    return rows ? neither(b, id) : added(b, id, operand(b, id, 0), operand(b, id, 1));
}

/* x scaled by a fixed factor or divisor, in[by]. */
static Fate scaled(const Batch *b, NodeId id, Fate x, uint32_t by, bool divisor)
{
    if ((is(x, FATE_SUM) || is(x, FATE_TERMS)) &&
        may_average(b, b->g->node.at[id].in[by], divisor, x.added))
        return lost(b, id, "it may make a mean of a sum over the samples, or only scale it");
    return x;
}

static Fate merge_multiply(const Batch *b, NodeId id, bool rows)
{
    bool first = is_fixed(b, id, 0);
    if (rows)
        return neither(b, id);
    return first || is_fixed(b, id, 1) ? scaled(b, id, other(b, id), !first, false)
                                       : scattered(b, id);
}

static Fate merge_divide(const Batch *b, NodeId id, bool rows)
{
    if (rows)
        return neither(b, id);
    if (is(operand(b, id, 0), FATE_SUM) && is(operand(b, id, 1), FATE_COUNT))
        return (Fate){.kind = FATE_MEAN};
    return is_fixed(b, id, 1) ? scaled(b, id, operand(b, id, 0), 1, true) : scattered(b, id);
}

static Fate merge_pick(const Batch *b, NodeId id, bool rows)
{
    if (rows)
        return neither(b, id);
    return is_fixed(b, id, 1) ? operand(b, id, 0) : scattered(b, id);
}

static Fate merge_join(const Batch *b, NodeId id, bool rows)
{
    const Node *n = &b->g->node.at[id];
    Fate all = fate_of(b, n->in[0]);
    if (rows)
        return neither(b, id);
    for (uint32_t i = 1; i < n->nin && !is(all, FATE_LOST); i++)
        all = added(b, id, all, fate_of(b, n->in[i]));
    if (is(all, FATE_LOST))
        return lost(b, id, "it joins what adds up over microbatches with what does not");
    return all;
}

/* Asked of every Count: also of what has no rows, and of what is lost. */
static Fate merge_count(const Batch *b, NodeId id, bool rows)
{
    const Node *n = &b->g->node.at[id];
    const Value *x = val(b->g, n->in[0]);
    (void)rows;
    if (batch_in_axes(&n->attr, x->batch))
        return (Fate){.kind = FATE_COUNT};
    return x->batch == BATCH_MIXED ? lost(b, id, "it counts elements of what is not followed")
                                   : (Fate){.kind = FATE_FIXED};
}

static Fate (*const merge_of[OP_COUNT])(const Batch *, NodeId, bool) = {
#define BATCH(rule, merge, span) merge_##merge
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, batch, ...)           \
    [OP_##name] = batch,
#include "ir/ops.def"
};

bool batch_adds(Op op)
{
    return merge_of[op] == merge_add || merge_of[op] == merge_join;
}

/* Where the rows of what node id makes were mixed, be it before. */
static const char *mixed_of(const Batch *b, NodeId id)
{
    const Node *n = &b->g->node.at[id];
    const Origin *o = n->origin < b->g->origin.n ? &b->g->origin.at[n->origin] : NULL;
    const char *before = NULL;
    bool meets = b->mixing, rows = false;
    for (uint32_t i = 0; i < n->nin && n->op != OP_Count; i++) {
        if (n->in[i] == NONE)
            continue;
        Fate f = fate_of(b, n->in[i]);
        bool single = n->in[i] < b->values && b->row[n->in[i]] >= 0;
        before = before ? before : f.mixed;
        meets |= !is(f, FATE_FIXED) && !is(f, FATE_ROWS) && !single;
    }
    for (uint32_t i = 0; i < n->nout; i++)
        rows |= val(b->g, n->out[i])->batch >= 0;
    bool meant = o && o->type && strcmp(o->type, "BatchNormalization") == 0;
    return before ? before : meets && rows && !meant ? batch_mixed_text(b, id, id) : NULL;
}

static Fate fate_of_node(const Batch *b, NodeId id)
{
    const Node *n = &b->g->node.at[id];
    bool rows = false, varies = n->op == OP_Count;
    for (uint32_t i = 0; i < n->nin && n->op != OP_Count; i++) {
        if (n->in[i] == NONE)
            continue;
        Fate f = fate_of(b, n->in[i]);
        if (is(f, FATE_LOST))
            return f;
        rows |= is(f, FATE_ROWS);
        varies |= !is(f, FATE_FIXED);
    }
    if (!varies)
        return (Fate){.kind = FATE_FIXED};
    if (rows && b->why && val(b->g, n->out[0])->batch == BATCH_MIXED)
        return lost(b, id, b->why);
    return merge_of[n->op](b, id, rows);
}

/* Where the target is compared with what has no rows, or has them elsewhere, a microbatch of it is
 * a guess. */
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
    /* of one row, which dimension of 1 is the rows' is plain in most models */
    const Value *t = val(b->g, b->target);
    bool guess = why && b->rows == 1 && t->batch >= 0 && t->shape.d[t->batch] != 1;
    if (target && other && (guess || is(fate_of(b, n->out[0]), FATE_LOST)))
        notes->target_why = why ? why : fate_of(b, n->out[0]).why;
}

void batch_fate(Batch *b, NodeId id, BatchNotes *notes)
{
    const Node *n = &b->g->node.at[id];
    Fate f = fate_of_node(b, id);
    f.mixed = mixed_of(b, id);
    for (uint32_t i = 0; i < n->nout; i++)
        if (n->out[i] < b->values)
            b->fate[n->out[i]] = f;
    compare_target(b, id, notes);
}

void batch_meet(Batch *b, BatchNotes *notes)
{
    static const OutputMerge how[] = {MERGE_LAST, MERGE_ROWS, MERGE_NONE,
                                      MERGE_SUM,  MERGE_MEAN, MERGE_NONE, MERGE_NONE};
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
            const char *text = arena_printf(g->arena, "output '%s': %s",
                                            diag_escape(g->arena, val(g, v)->name), m.why);
            vec_push(g->arena, &notes->uneven, text);
            vec_push(g->arena, &notes->uneven_at, val(g, v)->node);
            g->value.at[v].batch = BATCH_MIXED;
        } else if (m.how == MERGE_NONE && !m.why) {
            m.why = "it grows with the rows";
        } else if ((m.how == MERGE_SUM || m.how == MERGE_MEAN) &&
                   !dtype_is_float(val(g, v)->dtype)) {
            m.how = MERGE_NONE;
            m.why = "only sums and means of floats are put together";
        }
        vec_push(g->arena, &notes->output, m);
    }
}

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

/* ---- of rows of which none are left, and of what none of the operands has rows of ---- */

static Fate scattered(const Batch *b, NodeId id)
{
    return lost(b, id, "what it makes of all samples does not add up over microbatches");
}

/* Of rows: what adds up, or is a mean.  Of shapes of one row only what leaves nothing is sure to be
   over it. */
static Fate gathered(const Batch *b, NodeId id)
{
    const Node *n = &b->g->node.at[id];
    int64_t in = shape_elements(&val(b->g, n->in[0])->shape),
            out = shape_elements(&val(b->g, n->out[0])->shape);
    if (!b->partial)
        return lost(b, id, "what it makes of all samples is neither their sum nor their mean");
    if (b->rows == 1 && (n->nin > 1 || out > 1))
        return lost(b, id,
                    "the model's shapes have one row: whether it is taken over the samples, and if "
                    "it is their sum or their mean, does not show");
    if (n->op == OP_ReduceMean)
        return (Fate){.kind = FATE_MEAN};
    const int64_t parts = b->rows / batch_rows(b, n->in[0], val(b->g, n->in[0])->batch);
    return (Fate){.kind = FATE_SUM, .added = out > 0 && in % out == 0 ? in / out * parts : 0};
}

static bool is_term(Fate f)
{
    return is(f, FATE_FIXED) || is(f, FATE_SUM) || is(f, FATE_MEAN) || is(f, FATE_TERMS);
}

bool batch_adds(Op op) { return op == OP_Add || op == OP_Sub || op == OP_Concat; }

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

/* By a way of ops.def's SPREAD with operands that are partial sums: the rest have to be fixed. */
static Fate by_way(const Batch *b, NodeId id, const SpreadWay *w)
{
    const Node *n = &b->g->node.at[id];
    Fate all = {.kind = FATE_FIXED};
    bool some = false, fixed = false;
    for (uint32_t i = 0; i < node_reads_training(n); i++) {
        Fate f = fate_of(b, n->in[i]);
        if (w->in[i].dim != PLACE_P && !is(f, FATE_FIXED))
            return scattered(b, id);
        if (w->in[i].dim != PLACE_P)
            continue;
        fixed |= is(f, FATE_FIXED);
        all = some ? added(b, id, all, f) : f;
        some = true;
    }
    return fixed && !batch_adds(n->op) ? scattered(b, id) : all;
}

/* A factor or divisor that may make a mean of a sum? */
static bool may_scale(const Batch *b, const Node *n, Fate f)
{
    bool first = is(fate_of(b, n->in[0]), FATE_FIXED);
    return (n->op == OP_Mul || n->op == OP_Div) && (is(f, FATE_SUM) || is(f, FATE_TERMS)) &&
           may_average(b, n->in[first ? 0 : 1], n->op == OP_Div, f.added);
}

static Fate kept(const Batch *b, NodeId id, uint32_t varies)
{
    const Node *n = &b->g->node.at[id];
    Arena *a = arena_within(b->scratch);
    SpreadOf of = {.g = b->g, .chunks = b->rows, .alone = true};
    SpreadWays ways = {0};
    spread_ways_at(&of, id, varies, place_p(), a, &ways);
    Fate f = ways.n > 0 ? by_way(b, id, ways.at) : scattered(b, id);
    arena_free(a);
    if (n->op == OP_Div && is(fate_of(b, n->in[0]), FATE_SUM) &&
        is(fate_of(b, n->in[1]), FATE_COUNT))
        return (Fate){.kind = FATE_MEAN};
    if (n->op == OP_Concat && is(f, FATE_LOST))
        return lost(b, id, "it joins what adds up over microbatches with what does not");
    return may_scale(b, n, f)
               ? lost(b, id, "it may make a mean of a sum over the samples, or only scale it")
               : f;
}

/* A number of elements, of rows or of what has none. */
static Fate counted(const Batch *b, NodeId id)
{
    const Node *n = &b->g->node.at[id];
    int dim = val(b->g, n->in[0])->batch;
    bool over = false;
    for (int i = 0; i < n->attr.n; i++)
        over |= n->attr.axes[i] == dim;
    if (over)
        return (Fate){.kind = FATE_COUNT};
    return dim == BATCH_MIXED ? lost(b, id, "it counts elements of what is not followed")
                              : (Fate){.kind = FATE_FIXED};
}

/* Where the rows of what node id makes were mixed, be it before. */
static const char *mixed_of(const Batch *b, NodeId id)
{
    const Node *n = &b->g->node.at[id];
    const Origin *o = n->origin < b->g->origin.n ? &b->g->origin.at[n->origin] : NULL;
    const char *before = NULL;
    bool meets = b->mixing, rows = false;
    for (uint32_t i = 0; i < n->nin && n->op != OP_Count; i++) {
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
    bool rows = false;
    uint32_t varies = NONE;
    if (n->op == OP_Count)
        return counted(b, id);
    for (uint32_t i = 0; i < n->nin; i++) {
        Fate f = fate_of(b, n->in[i]);
        if (is(f, FATE_LOST))
            return f;
        rows |= is(f, FATE_ROWS);
        varies = varies == NONE && !is(f, FATE_FIXED) ? i : varies;
    }
    if (varies == NONE)
        return (Fate){.kind = FATE_FIXED};
    if (rows && b->why && val(b->g, n->out[0])->batch == BATCH_MIXED)
        return lost(b, id, b->why);
    return rows ? gathered(b, id) : kept(b, id, varies);
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
        if (val(b->g, n->in[i])->kind == V_CONST)
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

/*
 * ragged.c - values whose size depends on the data.  In: NonZero of a value that is not known when
 * the model is read (or Compress, NonMaxSuppression), and what is computed with it: how the layers
 * of a mixture of experts pick each expert's rows.  Out: operations of static shape.
 *
 * Such a value has the size that it can at most have.  Indices have all places, those that NonZero
 * would leave out beside the others, with a mask that tells them apart; they are constants, and the
 * order of the places is free: the dimension that the samples are in is outermost, so that
 * microbatches have their rows together.  What is taken from the data by them is packed (Pack): the
 * places that are there first, zeros behind.  Products of it (PackedMatMul) take the places that
 * are there; what else is computed of it is kept zero behind them (Where), which loop nests leave
 * out.  A scatter unpacks it and leaves out what the mask does, and anything that would count or
 * mix places is refused.  So an expert costs by the rows that it gets.
 *
 * A node of the file is imported as any other.  Of the core nodes that this makes, each whose
 * places are computed by themselves keeps the mask: column SPREAD of ops.def says so, as of the
 * rows of a microbatch.  Others have a rule each (sizes.c, scatter.c), by which a node of other
 * operands may take their place.  Attention makes a number of each place with each: a value whose
 * places are along two dims, which sums and softmaxes along either of them bring back to one.
 */
#include <string.h>

#include "ir/facts/facts.h"
#include "ir/facts/spread.h"
#include "ragged.h"

#define refuse ragged_refuse

/* Core nodes as they are made: by value of the importer's, what stands for it. */
typedef struct {
    ImportState *s;
    Import *im;
    IdMap now;
    bool ended; /* Core.ended */
} Walk;

static ValueId now(const Walk *w, ValueId v)
{
    uint32_t at = v == NONE ? NONE : idmap_get(&w->now, v);
    return at == NONE ? v : at;
}

/* ---- each place by itself ---- */

/* The way in which every place of operand `slot` makes one of each result; NULL: there is none. */
static const SpreadWay *way_of(const Core *c, uint32_t slot, const Ragged *was)
{
    const int64_t places = low_shape(c->s->g, was->mask).d[0];
    const SpreadOf of = {.g = c->s->g, .chunks = places, .alone = true};
    SpreadWays ways = {0};
    spread_ways_at(&of, c->id, slot, place_s(was->dim, 1), c->im->arena, &ways);
    for (uint32_t i = 0; i < ways.n; i++) {
        const SpreadWay *w = &ways.at[i];
        bool apart = !w->meets;
        for (uint32_t o = 0; o < c->n.nout && apart; o++) {
            const Shape y = low_shape(c->s->g, c->n.out[o]);
            apart = w->out[o].dim >= 0 && y.d[w->out[o].dim] == places;
        }
        if (apart)
            return w;
    }
    return NULL;
}

/* Does the operand, of known size along the dim, stand for itself there? */
static bool is_any_size(const Core *c, uint32_t i, int dim)
{
    double number;
    return dim < 0 || low_shape(c->s->g, c->in[i]).d[dim] == 1 ||
           (!ragged_find(c->s, c->in[i]) && low_uniform(c->s->g, c->in[i], &number));
}

/* The mask that all operands share, each where the ways have it; also: of the other dim, or NULL */
static void agree(Core *c, const SpreadWay *way, const SpreadWay *also, Ragged *was)
{
    was->packed = false, was->dirty = false;
    for (uint32_t i = 0; i < c->n.nin; i++) {
        const Ragged *r = ragged_find(c->s, c->in[i]);
        const int dim = way->in[i].dim, other = also ? also->in[i].dim : PLACE_R;
        if (!r) {
            if (!is_any_size(c, i, dim) || !is_any_size(c, i, other))
                refuse(c->im, -1, " of such a value and one of known size");
            continue;
        }
        ValueId mask = ragged_common(c->s, was->mask, r->mask);
        const bool one = !r->also && ((dim == r->dim && is_any_size(c, i, other)) ||
                                      (other == r->dim && is_any_size(c, i, dim))),
                   both = r->also && ((dim == r->dim && other == r->also - 1) ||
                                      (other == r->dim && dim == r->also - 1));
        if ((!one && !both) || mask == NONE)
            refuse(c->im, -1, " of two such values");
        was->packed |= r->packed || mask != r->mask || mask != was->mask;
        was->dirty |= r->dirty;
        was->mask = mask;
    }
}

/* Do zeros stay zeros? */
static bool keeps_zeros(const Core *c)
{
    Op op = c->n.op;
    return op_is_view(op) || op == OP_Concat || op == OP_Dropout ||
           (op_picks(op) && ragged_find(c->s, c->in[0]));
}

/* v, which is of such a size: what all places of a table are is the table itself. */
static ValueId result(const Core *c, ValueId v, Ragged r)
{
    ImportState *s = c->s;
    const Value x = *val(s->g, v);
    if (!r.packed && x.kind != V_CONST) {
        v = ragged_pack(s, OP_Pack, v, r.mask, r.dim);
        r.packed = true, r.dirty = false;
    }
    void *same;
    memcpy(&same, &x.data, sizeof same);
    for (uint32_t i = 0; i < c->n.nin; i++)
        if (v == c->in[i] && !ragged_find(s, v))
            v = x.kind == V_CONST ? low_const(s->g, x.dtype, x.shape, same)
                                  : g_unary(s->g, OP_Identity, v);
    ragged_mark(s, v, r);
    return v;
}

/* May v be 0 behind the places that are there?  Not what a norm divides by. */
static bool may_vanish(const Graph *g, ValueId v)
{
    Intervals ranges = {.g = g, .arena = arena_within(g->arena)};
    const Interval r = range_of(&ranges, v);
    arena_free(ranges.arena);
    return !(r.lo > 0 || r.hi < 0);
}

static ValueId by_place(Core *c, Ragged was)
{
    ImportState *s = c->s;
    uint32_t slot = 0;
    for (const Ragged *r; !(r = ragged_find(s, c->in[slot])) || r->also != was.also;)
        slot++;
    Ragged other = was;
    other.dim = was.also - 1;
    const SpreadWay *way = way_of(c, slot, &was), *also = was.also ? way_of(c, slot, &other) : NULL;
    if (!way || !also != !was.also)
        refuse(c->im, -1, " along such a dim");
    agree(c, way, also, &was);
    was.dirty |= !keeps_zeros(c);
    for (uint32_t i = 0; i < c->n.nin && was.packed; i++) {
        const Ragged *r = ragged_find(s, c->in[i]);
        if (!r)
            continue;
        const Ragged is = *r;
        c->in[i] = ragged_in_order(s, c->in[i]);
        if (op_is_singular(c->n.op, i) && dtype_is_float(low_dtype(s->g, c->in[i])) &&
            may_vanish(s->g, c->in[i]))
            c->in[i] = ragged_only_there(s, &is, c->in[i], 1);
    }
    ValueId y = ragged_node(c);
    for (uint32_t o = 0; o < c->n.nout; o++) {
        was.dim = way->out[o].dim;
        was.also = also ? also->out[o].dim + 1 : 0;
        c->out[o] = result(c, graph_out(s->g, y, o), was);
    }
    return c->out[0];
}

/* ---- the rules of core operations ---- */

static ValueId of_places(Core *c, Ragged was)
{
    /* two: it knows of values that have all places along two dims */
    static const struct { CoreRule *apply; bool two; } rules[OP_COUNT] = {
#define REDUCED(op) [OP_##op] = {ragged_reduce, true}
        REDUCED(ReduceSum),
        REDUCED(ReduceMean),
        REDUCED(ReduceMax),
        REDUCED(ReduceMin),
        REDUCED(ReduceProd),
        [OP_ArgMax] = {ragged_reduce, false},
        [OP_ArgMin] = {ragged_reduce, false},
        [OP_Softmax] = {ragged_softmax, true},
        [OP_LogSoftmax] = {ragged_softmax, true},
        [OP_Concat] = {ragged_concat, false},
        [OP_Slice] = {ragged_part, false},
        [OP_Reshape] = {ragged_reshape, true},
        [OP_Gather] = {ragged_gather, false},
        [OP_GatherND] = {ragged_gather, false},
        [OP_ScatterElements] = {ragged_scatter, false},
        [OP_ScatterND] = {ragged_scatter, false},
        [OP_MatMul] = {ragged_matmul, true},
    };
    CoreRule *rule = was.also && !rules[c->n.op].two ? NULL : rules[c->n.op].apply;
    ValueId y = rule ? rule(c, was) : NONE;
    return y == NONE ? by_place(c, was) : y;
}

static void take_node(Walk *w, NodeId id)
{
    ImportState *s = w->s;
    Core c = {.s = s, .im = w->im, .id = id, .n = s->g->node.at[id], .ended = &w->ended};
    bool counts = false, known = true;
    const Ragged *was = NULL;
    c.in = arena_array(w->im->arena, ValueId, c.n.nin + 1);
    c.out = arena_none(w->im->arena, c.n.nout);
    for (uint32_t i = 0; i < c.n.nin; i++) {
        c.in[i] = now(w, c.n.in[i]);
        const Ragged *r = ragged_find(s, c.in[i]);
        counts |= r && r->dim == COUNT;
        known &= val(s->g, c.in[i])->kind == V_CONST;
        if (r && r->dim != COUNT && (!was || r->also > was->also))
            was = r;
    }
    if (was && ragged_find(s, c.n.out[0])) /* of another size already */
        refuse(w->im, -1, " of such a value");
    for (uint32_t i = 0; i < c.n.nin && counts && (was || !known); i++)
        c.in[i] = ragged_actual(s, c.in[i]);
    w->ended |= counts;
    ValueId y = was ? of_places(&c, *was) : counts && known ? ragged_counted(&c) : ragged_node(&c);
    for (uint32_t o = 0; o < c.n.nout && y != c.n.out[0]; o++)
        *idmap_at(w->im->arena, &w->now, c.n.out[o]) =
            c.out[o] == NONE ? graph_out(s->g, y, o) : c.out[o];
}

/* ---- nodes of the file ---- */

/* Is operand i read when it is imported, as a size? */
static bool is_size(Op op, uint32_t i)
{
    return i > 0 && (op == OP_Reshape || op == OP_Slice || op == OP_Expand);
}

/* Operands of known size beside others are made as long; broadcast, dims are counted from behind.
 */
static void fit_operands(ImportState *s, const Import *im, ValueId *in)
{
    int behind = 0;
    ValueId mask = NONE;
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        if (!r || r->dim == COUNT)
            continue;
        behind = low_shape(im->g, im->in[i]).rank - r->dim;
        mask = mask == NONE ? r->mask : ragged_common(s, mask, r->mask);
        if (mask == NONE)
            return;
    }
    for (uint32_t i = 0; i < im->nin && mask != NONE; i++) {
        if (im->in[i] == NONE || ragged_find(s, im->in[i]))
            continue;
        const Shape x = low_shape(im->g, im->in[i]);
        if (x.rank >= behind && x.d[x.rank - behind] != 1)
            in[i] = ragged_fitted(s, im, (int)i, x.rank - behind, mask);
    }
}

/* Constants of such sizes are not shown to the importer, which would take all places for those that
 * there are: it computes with values. */
static void lowered(ImportState *s, Import *im, Importer *fn)
{
    Walk w = {.s = s, .im = im};
    const ValueId *operands = im->in;
    ValueId *in = arena_array(im->arena, ValueId, im->nin + 1);
    bool any = false;
    for (uint32_t i = 0; i < im->nin; i++)
        in[i] = operands[i];
    if (op_is_map(im->op) || im->op == OP_Sum)
        fit_operands(s, im, in);
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, in[i]);
        any |= r && (i == 0 || im->op != OP_CastLike);
        if (!r || is_size(im->op, i) || val(s->g, in[i])->kind != V_CONST)
            continue;
        ValueId hidden = g_unary(s->g, OP_Identity, in[i]);
        ragged_mark(s, hidden, *r);
        *idmap_at(im->arena, &w.now, hidden) = in[i];
        in[i] = hidden;
    }
    NodeId from = s->g->node.n;
    im->in = in;
    fn(im);
    im->in = operands;
    /* elements of a sequence are no operands; a Gradient's nodes are of nodes that have been taken
     */
    bool takes = s->ragged && (any || im->op != OP_NONE);
    for (NodeId id = from, to = s->g->node.n; takes && id < to; id++)
        take_node(&w, id);
    for (uint32_t i = 0; i < im->nout; i++) {
        ValueId y = im->out[i] = now(&w, im->out[i]);
        const Ragged *r = y == NONE ? NULL : ragged_find(s, y);
        if (any && y != NONE && !r && !w.ended)
            refuse(im, -1, " of such a value");
        if (r && r->dim != COUNT)
            im->out[i] = ragged_settled(s, y, *r);
    }
}

/* A Split of places that are known, each its own trip of a loop. */
static bool divided(ImportState *s, Import *im, Importer *fn)
{
    (void)fn;
    const Ragged *r = ragged_find(s, im->in[0]);
    int axis = low_axis(im, im_int(im, "axis", 0), low_shape(im->g, im->in[0]).rank);
    const bool trips = r && axis == r->dim && val(im->g, im->in[0])->kind == V_CONST;
    if (trips)
        trips_split(s, im, axis, r->mask);
    return trips;
}

/* What reads sizes, or makes them; two: also of values that have all places along two dims. */
static const struct { Rule *apply; bool two; } rules[OP_COUNT] = {
    [OP_NonZero] = {ragged_non_zero, false},
    [OP_NonMaxSuppression] = {ragged_suppress, false},
    [OP_TopK] = {ragged_topk, false},
    [OP_Split] = {divided, false},
    [OP_Slice] = {ragged_slice, true},
    [OP_Shape] = {ragged_measure, true},
    [OP_Size] = {ragged_measure, true},
    [OP_ConstantOfShape] = {ragged_fill, true},
    [OP_Range] = {ragged_fill, true},
    [OP_Expand] = {ragged_fill, true},
};

/* Operand i as it is when the model is read: how many elements of a mask are true, computed of the
 * data themselves, is a size like others. */
static void read_size(ImportState *s, Import *im, uint32_t i)
{
    ValueId size = i < im->nin ? ragged_size_of_true(s, im, im->in[i]) : NONE;
    if (size == NONE)
        return;
    ValueId *in = arena_array(im->arena, ValueId, im->nin + 1);
    for (uint32_t k = 0; k < im->nin; k++)
        in[k] = k == i ? size : im->in[k];
    im->in = in;
}

void ragged_import(ImportState *s, Import *im, Importer *fn)
{
    bool any = im->op == OP_NonZero && im->in[0] != NONE && val(im->g, im->in[0])->kind != V_CONST;
    if (ragged_is_split(s, im)) {
        ragged_split(s, im);
        return;
    }
    if (im->op == OP_Expand || im->op == OP_Reshape || im->op == OP_Range)
        read_size(s, im, 1);
    else if (im->op == OP_ConstantOfShape)
        read_size(s, im, 0);
    bool two = false;
    for (uint32_t i = 0; i < im->nin; i++) {
        const Ragged *r = ragged_find(s, im->in[i]);
        any |= r != NULL;
        two |= r && r->also;
    }
    Rule *rule = two && !rules[im->op].two ? NULL : rules[im->op].apply;
    if (!any || !rule || !rule(s, im, fn))
        lowered(s, im, fn);
    ragged_note_true(s, im);
}

/*
 * band.c - which matrices count only in a band.  In: a Pipe with its backward.  Out: for each value
 * [.., m, n] whether its elements (i, j) outside below <= j - i <= above are zeros, or read by
 * nobody.  Products and rows then leave out the tiles that lie outside whole (pp.h: PP_TILE).
 *
 * It begins with a constant mask: Where(mask, s, -inf), or s + mask with -inf or finfo.min, as
 * exporters write causal attention and sliding windows.  What a softmax makes of that is zero
 * outside, and so is what is multiplied by it; sums leave zeros out.  The scores themselves, and
 * the gradient of the softmax's result, are read only where they are masked or meet such zeros:
 * outside they are not even computed, and memory keeps what it held.
 *
 * Operations, constants and shapes alone decide, over the lists of all stages: bits do not depend
 * on the cut.  What is left out of a sum are zeros times numbers.  Where such a number is a NaN or
 * infinite, hidden by the mask, its tile's rows get the NaN and the others do not; the rows that
 * may see it get it in any case, and with them the loss.
 */
#include "ir/facts/mask.h"
#include "plan.h"

typedef enum { OUT_UNKNOWN, OUT_ZERO, OUT_LOW, OUT_MINUS_INF } Outside;
typedef struct { Outside is; Band band; } Rest;
typedef struct { bool yes; Band band; } Wanted;

struct Bands {
    Masks masks;
    const Graph *g;
    uint32_t values;                /* so many there were before codegen made its own */
    Rest *known;                    /* by value; NULL: no softmax is masked */
    Wanted *wanted;
};

static bool same_band(Band x, Band y) { return x.below == y.below && x.above == y.above; }
static Band turned(Band b) { return (Band){-b.above, -b.below}; }

/* Matrices of floats of several tiles, the samples beside them. */
static bool may_have_band(const Value *x)
{
    int r = x->shape.rank;
    return dtype_is_float(x->dtype) && r >= 2 && x->batch < r - 2 &&
           x->shape.d[r - 1] > NEST_TILE && x->shape.d[r - 2] > NEST_TILE;
}

static bool same_matrix(const Graph *g, ValueId x, ValueId y)
{
    const Shape *s = &val(g, x)->shape, *t = &val(g, y)->shape;
    return s->rank >= 2 && t->rank >= 2 && s->d[s->rank - 1] == t->d[t->rank - 1] &&
           s->d[s->rank - 2] == t->d[t->rank - 2];
}

/* ---- what is outside ------------------------------------------------------------------------- */

static Rest outside(struct Bands *b, const Node *n);

/* Of an operand whose matrix is that of v. */
static Rest known(struct Bands *b, ValueId x, ValueId v)
{
    const Value *own = val(b->g, x);
    if (!b->known || !may_have_band(own) || !same_matrix(b->g, x, v))
        return (Rest){0};
    if (x < b->values)
        return b->known[x];
    return own->kind == V_NODE && own->out == 0 ? outside(b, &b->g->node.at[own->node])
                                                : (Rest){0};
}

static bool is_low(Rest k) { return k.is == OUT_LOW || k.is == OUT_MINUS_INF; }

/* x less its own maximum. */
static bool less_maximum(const Graph *g, const Node *n)
{
    const Value *y = val(g, n->in[1]);
    return y->kind == V_NODE && g->node.at[y->node].op == OP_ReduceMax &&
           g->node.at[y->node].in[0] == n->in[0];
}

/* A low value stays so under what is added; or the addend is the mask. */
static Rest sum(struct Bands *b, const Node *n)
{
    ValueId v = n->out[0];
    for (int i = 0; i < (n->op == OP_Sub ? 1 : 2); i++) {
        ValueId x = n->in[i], y = n->in[1 - i];
        Rest k = known(b, x, v);
        if (k.is == OUT_MINUS_INF ||
            (k.is == OUT_LOW &&
             (mask_is_moderate(b->g, y) || (n->op == OP_Sub && less_maximum(b->g, n)))))
            return k;
        Mask m = n->op == OP_Add && same_matrix(b->g, y, v) ? mask_of(&b->masks, y, MASK_HIGH)
                                                            : (Mask){0};
        if (m.yes && m.minus_inf)
            return (Rest){OUT_MINUS_INF, m.band};
        if (m.yes && m.constant && mask_is_moderate(b->g, x))
            return (Rest){OUT_LOW, m.band};
    }
    Rest x = known(b, n->in[0], v), y = known(b, n->in[1], v);
    return x.is == OUT_ZERO && y.is == OUT_ZERO && same_band(x.band, y.band) ? x : (Rest){0};
}

/* Where(c, x, fill) or Where(c, fill, x). */
static Rest choice(struct Bands *b, const Node *n)
{
    ValueId v = n->out[0];
    for (int i = 1; i <= 2; i++) {
        ValueId x = n->in[i], fill = n->in[3 - i];
        Mask m = same_matrix(b->g, n->in[0], v)
                     ? mask_of(&b->masks, n->in[0], i == 1 ? MASK_TRUE : MASK_FALSE)
                     : (Mask){0};
        bool minus_inf = false, low = mask_is_low(b->g, fill, &minus_inf);
        if (m.yes && mask_is_zero(b->g, fill))
            return (Rest){OUT_ZERO, m.band};
        if (m.yes && minus_inf)
            return (Rest){OUT_MINUS_INF, m.band};
        if (m.yes && low && m.constant && mask_is_moderate(b->g, x))
            return (Rest){OUT_LOW, m.band};
        Rest k = known(b, x, v);
        if (k.is == OUT_MINUS_INF && minus_inf)
            return k;
    }
    Rest x = known(b, n->in[1], v), y = known(b, n->in[2], v);
    return x.is == OUT_ZERO && y.is == OUT_ZERO && same_band(x.band, y.band) ? x : (Rest){0};
}

/* How a Transpose leaves the last two dimensions: 1 as they are, -1 exchanged, 0 mixed. */
static int turns(const Graph *g, const Node *n)
{
    int r = val(g, n->out[0])->shape.rank;
    const int64_t *p = n->attr.perm;
    return p[r - 1] == r - 1 && p[r - 2] == r - 2   ? 1
           : p[r - 1] == r - 2 && p[r - 2] == r - 1 ? -1
                                                    : 0;
}

static Rest outside(struct Bands *b, const Node *n)
{
    ValueId v = n->out[0];
    Rest k = {0}, x = n->nin > 0 && n->op != OP_Count ? known(b, n->in[0], v) : k;
    if (!may_have_band(val(b->g, v)))
        return k;
    switch (n->op) {
    case OP_Softmax:
        return is_low(x) && n->attr.axis == val(b->g, v)->shape.rank - 1 ? (Rest){OUT_ZERO, x.band}
                                                                          : k;
    case OP_Exp: return is_low(x) ? (Rest){OUT_ZERO, x.band} : k;
    case OP_Add:
    case OP_Sub: return sum(b, n);
    case OP_Where: return choice(b, n);
    case OP_Mul:
        if (x.is != OUT_ZERO)
            x = known(b, n->in[1], v);
        return x.is == OUT_ZERO ? x : k;
    case OP_Div:
    case OP_Neg:
    case OP_Dropout: return x.is == OUT_ZERO ? x : k;
    case OP_Cast:
    case OP_Identity:
    case OP_StopGradient:
    case OP_Expand:
    case OP_Reshape: return x;
    case OP_Phase: {
        Rest y = known(b, n->in[1], v);
        return x.is == y.is && same_band(x.band, y.band) ? x : k;
    }
    case OP_Transpose:
        if (turns(b->g, n) >= 0)
            return turns(b->g, n) ? x : k;
        /* the operand's matrix is the other one */
        x = known(b, n->in[0], n->in[0]);
        x.band = turned(x.band);
        return x.is == OUT_ZERO ? x : k;
    default: return k;
    }
}

/* ---- who reads what -------------------------------------------------------------------------- */

/* A product leaves out the zeros of one factor. */
static int banded_factor(struct Bands *b, const Node *n)
{
    for (int i = 0; i < 2; i++)
        if (known(b, n->in[i], n->in[i]).is == OUT_ZERO)
            return i;
    return -1;
}

static Wanted by_reader(struct Bands *b, const Node *n, ValueId v)
{
    const Graph *g = b->g;
    Wanted no = {0};
    Rest own = b->known[v];
    ValueId y = n->out[0];
    if (n->op == OP_MatMul) {
        int i = banded_factor(b, n);
        return i >= 0 && n->in[i] == v && n->in[1 - i] != v ? (Wanted){true, own.band} : no;
    }
    if (n->op == OP_Softmax)
        return b->known[y].is == OUT_ZERO ? (Wanted){true, own.band} : no;
    if (n->op == OP_ReduceSum && n->attr.n == 1 &&
        n->attr.axes[0] == val(g, v)->shape.rank - 1 && own.is == OUT_ZERO)
        return (Wanted){true, own.band};
    if (n->op == OP_Where && n->in[1] != n->in[2] && n->in[0] != v && same_matrix(g, v, y) &&
        same_matrix(g, n->in[0], y)) {
        Mask m = mask_of(&b->masks, n->in[0], n->in[1] == v ? MASK_TRUE : MASK_FALSE);
        if (m.yes)
            return (Wanted){true, m.band};
    }
    if (n->op == OP_Transpose && turns(g, n) < 0) {
        Wanted w = b->wanted[y];
        w.band = turned(w.band);
        return w;
    }
    bool follows = op_is_map(n->op) || n->op == OP_Identity || n->op == OP_StopGradient ||
                   n->op == OP_Reshape || n->op == OP_Phase ||
                   (n->op == OP_Transpose && turns(g, n) > 0);
    return follows && same_matrix(g, v, y) ? b->wanted[y] : no;
}

/* Who reads a value, over the lists of all stages. */
typedef struct { uint32_t *first; NodeId *node; bool *leaves; } All;

static void each_reader(const Pipe *p, All *r, bool fill)
{
    for (uint32_t s = 0; s < p->stage.n; s++) {
        const Stage *t = &p->stage.at[s];
        const Ids *list[] = {&t->forward, &t->infer, &t->backward, &t->backward_input,
                             &t->backward_weight};
        for (size_t l = 0; l < sizeof list / sizeof *list; l++)
            for (uint32_t i = 0; i < list[l]->n; i++) {
                const Node *n = &p->graph->node.at[list[l]->at[i]];
                for (uint32_t j = 0; j < n->nin; j++) {
                    if (n->in[j] == NONE)
                        continue;
                    if (fill)
                        r->node[r->first[n->in[j] + 1]++] = list[l]->at[i];
                    else
                        r->first[n->in[j] + 2]++;
                }
            }
    }
}

static void leaves(const Pipe *p, bool *is)
{
    const Graph *g = p->graph;
    for (uint32_t i = 0; i < g->output.n; i++)
        is[g->output.at[i]] = true;
    for (uint32_t i = 0; i < g->update.n; i++)
        is[g->update.at[i].value] = true;
    for (uint32_t s = 0; s < p->stage.n; s++)
        for (uint32_t i = 0; i < p->stage.at[s].param.n; i++)
            for (uint32_t j = 0; j < p->stage.at[s].param.at[i].grads.n; j++)
                is[p->stage.at[s].param.at[i].grads.at[j]] = true;
}

static All readers(const Pipe *p, Arena *a)
{
    uint32_t n = p->graph->value.n;
    All r = {arena_array(a, uint32_t, n + 2), NULL, arena_array(a, bool, n + 1)};
    each_reader(p, &r, false);
    for (uint32_t v = 2; v < n + 2; v++)
        r.first[v] += r.first[v - 1];
    r.node = arena_array(a, NodeId, r.first[n + 1] + 1);
    each_reader(p, &r, true);                           /* first[v + 1] moves behind v's last */
    leaves(p, r.leaves);
    return r;
}

static Wanted wanted(struct Bands *b, const All *r, ValueId v)
{
    Wanted w = {0};
    if (!may_have_band(val(b->g, v)) || r->leaves[v])
        return w;
    for (uint32_t i = r->first[v]; i < r->first[v + 1]; i++) {
        Wanted x = by_reader(b, &b->g->node.at[r->node[i]], v);
        if (!x.yes || (w.yes && !same_band(x.band, w.band)))
            return (Wanted){0};
        w = x;
    }
    return w;
}

/* ---- the pass -------------------------------------------------------------------------------- */

/* All nodes, each behind those that make its operands: what the stash computes again is younger
   than its readers.  In order of creation otherwise. */
static NodeId *in_order(const Graph *g, Arena *a)
{
    NodeId *order = arena_array(a, NodeId, g->node.n + 1),
           *path = arena_array(a, NodeId, g->node.n + 1);
    uint32_t *next = arena_array(a, uint32_t, g->node.n + 1), done = 0; /* 0: not seen */
    for (uint32_t i = 0; i < g->node.n; i++) {
        uint32_t depth = 0;
        if (next[i] == 0)
            path[depth++] = i;
        while (depth > 0) {
            NodeId at = path[depth - 1];
            const Node *n = &g->node.at[at];
            if (next[at] == n->nin) {
                order[done++] = at;
                next[at]++;
                depth--;
                continue;
            }
            ValueId x = n->in[next[at]++];
            if (x != NONE && val(g, x)->kind == V_NODE && next[val(g, x)->node] == 0)
                path[depth++] = val(g, x)->node;
        }
    }
    return order;
}

void cg_bands(Pipe *p)
{
    Graph *g = p->graph;
    if (p->bands)
        return;
    struct Bands *b = arena_new_of(g->arena, struct Bands);
    *b = (struct Bands){.masks = {.g = g, .a = g->arena}, .g = g, .values = g->value.n};
    p->bands = b;
    Rest *known_of = arena_array(g->arena, Rest, g->value.n + 1);
    bool any = false;
    b->known = known_of;
    Arena *scratch = arena_within(g->arena);
    const NodeId *order = in_order(g, scratch);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const Node *n = &g->node.at[order[i]];
        if (n->nout == 0)
            continue;
        known_of[n->out[0]] = outside(b, n);
        any |= n->op == OP_Softmax && known_of[n->out[0]].is == OUT_ZERO;
    }
    if (!any) {
        b->known = NULL;
        arena_free(scratch);
        return;
    }
    All r = readers(p, scratch);
    b->wanted = arena_array(g->arena, Wanted, g->value.n + 1);
    for (uint32_t i = g->node.n; i-- > 0;) {
        const Node *n = &g->node.at[order[i]];
        for (uint32_t o = 0; o < n->nout; o++)
            b->wanted[n->out[o]] = wanted(b, &r, n->out[o]);
    }
    arena_free(scratch);
}

bool cg_band_zero(const StageGen *sg, ValueId v, Band *band)
{
    Rest k = known(sg->pipe->bands, v, v);
    *band = k.band;
    return k.is == OUT_ZERO;
}

bool cg_band_low(const StageGen *sg, ValueId v, Band *band)
{
    Rest k = known(sg->pipe->bands, v, v);
    *band = k.band;
    return is_low(k);
}

bool cg_band_only(const StageGen *sg, ValueId v, Band *band)
{
    struct Bands *b = sg->pipe->bands;
    const Graph *g = b->g;
    if (!b->wanted)
        return false;
    /* a copy that codegen made has the elements of its operand */
    while (v >= b->values && val(g, v)->kind == V_NODE &&
           (g->node.at[val(g, v)->node].op == OP_Identity ||
            g->node.at[val(g, v)->node].op == OP_Reshape) &&
           same_matrix(g, v, g->node.at[val(g, v)->node].in[0]))
        v = g->node.at[val(g, v)->node].in[0];
    *band = v < b->values ? b->wanted[v].band : (Band){0, 0};
    return v < b->values && b->wanted[v].yes;
}

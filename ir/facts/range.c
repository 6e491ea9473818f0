/*
 * range.c - between which numbers all elements of a value are.  In: a value of a graph.  Out: an
 * interval, as far as it follows from the graph: from constants, from what comparisons, sigmoids
 * and arg-maxima can give, from the size of what is summed.  Interval arithmetic (Moore, 1966),
 * from the operands to the results, rounded outwards where floats are rounded.
 *
 * A loop whose number of trips the data decides has its bound from here.  What is said holds of a
 * microbatch of fewer rows, too: a sum may be of fewer elements.  Of a NaN nothing is said but that
 * it is below no number.
 */
#include <math.h>

#include "facts.h"

enum { DEEPEST = 3000 }; /* nodes one behind the other that are asked at once */

static const Interval anything = {-(double)INFINITY, (double)INFINITY}, truth = {0, 1};

static Interval join(Interval a, Interval b)
{
    return (Interval){fmin(a.lo, b.lo), fmax(a.hi, b.hi)};
}

/* Of two operands, at whose ends the extremes are. */
static Interval corners(double a, double b, double c, double d)
{
    if (isnan(a) || isnan(b) || isnan(c) || isnan(d))
        return anything;
    return (Interval){fmin(fmin(a, b), fmin(c, d)), fmax(fmax(a, b), fmax(c, d))};
}

/* Does it compute numbers that may be beyond its operands'? */
static bool computes(Op op)
{
    return op == OP_Add || op == OP_Sub || op == OP_Mul || op == OP_Div || op == OP_Neg ||
           op == OP_Abs || op == OP_Cast || op == OP_ReduceSum || op == OP_CumSum;
}

/* As the type has it: whole numbers that may wrap around are any, floats are rounded away from the
 * middle. */
static Interval settled(Op op, Dtype t, Interval r)
{
    if (t == DT_BOOL)
        return (Interval){fmax(r.lo, 0), fmin(r.hi, 1)};
    if (isnan(r.lo) || isnan(r.hi))
        return anything;
    double most = t == DT_I32 ? 0x1p31 : 0x1p53;
    if (!dtype_is_float(t))
        return computes(op) && (r.lo < -most || r.hi >= most) ? anything : r;
    if (op_is_exact(op))
        return r;
    double part = t == DT_F64 ? 0x1p-40 : t == DT_F32 ? 0x1p-20 : 0x1p-6;
    return (Interval){r.lo - part * fabs(r.lo), r.hi + part * fabs(r.hi)};
}

static Interval of_constant(const Value *v)
{
    int64_t n = shape_elements(&v->shape);
    Interval r = {(double)INFINITY, -(double)INFINITY};
    if (n == 0 || !v->data || !dtype_is_computable(v->dtype))
        return anything;
    for (int64_t i = 0; i < n; i++) {
        double x = element_double(v->dtype, v->data, i);
        if (isnan(x))
            return anything;
        r = join(r, (Interval){x, x});
    }
    return r;
}

/* ---- one node: the functions of ops.def's RANGE ---- */

/* in: of its operands, of which the first has type t; out: which result */
typedef struct {
    const Graph *g;
    const Node *n;
    const Interval *in;
    Dtype t;
    uint32_t out;
} Of;

static bool is_whole(const Of *o) { return !dtype_is_float(o->t); }

static Interval range_any(const Of *o) { return (void)o, anything; }
static Interval range_truth(const Of *o) { return (void)o, truth; }
static Interval range_unit(const Of *o) { return (void)o, (Interval){-1, 1}; }
static Interval range_same(const Of *o) { return o->in[0]; }
static Interval range_or_zero(const Of *o) { return join(o->in[0], (Interval){0, 0}); }

/* a < b of all elements, or of none; a NaN is below nothing. */
static Interval below(const Of *o, const Interval *a, const Interval *b, bool or_equal)
{
    bool never = or_equal ? a->lo > b->hi : a->lo >= b->hi,
         always = is_whole(o) && (or_equal ? a->hi <= b->lo : a->hi < b->lo);
    return never ? (Interval){0, 0} : always ? (Interval){1, 1} : truth;
}
static Interval range_less(const Of *o) { return below(o, &o->in[0], &o->in[1], false); }
static Interval range_less_equal(const Of *o) { return below(o, &o->in[0], &o->in[1], true); }
static Interval range_more(const Of *o) { return below(o, &o->in[1], &o->in[0], false); }
static Interval range_more_equal(const Of *o) { return below(o, &o->in[1], &o->in[0], true); }

static Interval range_equal(const Of *o)
{
    Interval a = o->in[0], b = o->in[1];
    if (a.lo > b.hi || b.lo > a.hi)
        return (Interval){0, 0};
    return is_whole(o) && a.lo == a.hi && b.lo == b.hi && a.lo == b.lo ? (Interval){1, 1} : truth;
}

static Interval range_not(const Of *o) { return (Interval){1 - o->in[0].hi, 1 - o->in[0].lo}; }

static Interval range_sum(const Of *o)
{
    return (Interval){o->in[0].lo + o->in[1].lo, o->in[0].hi + o->in[1].hi};
}
static Interval range_difference(const Of *o)
{
    return (Interval){o->in[0].lo - o->in[1].hi, o->in[0].hi - o->in[1].lo};
}
static Interval range_magnitude(const Of *o)
{
    Interval a = o->in[0];
    return a.lo >= 0 ? a : a.hi <= 0 ? (Interval){-a.hi, -a.lo} : (Interval){0, fmax(-a.lo, a.hi)};
}
/* A square is not negative. */
static Interval range_product(const Of *o)
{
    Interval a = o->in[0], b = o->in[1];
    if (o->n->in[0] == o->n->in[1]) {
        a = range_magnitude(o);
        return (Interval){a.lo * a.lo, a.hi * a.hi};
    }
    return corners(a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi);
}
static Interval range_quotient(const Of *o)
{
    Interval a = o->in[0], b = o->in[1];
    if (b.lo <= 0 && b.hi >= 0)
        return anything;
    Interval r = corners(a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi);
    return is_whole(o) ? (Interval){floor(r.lo), ceil(r.hi)} : r;
}

/* With the divisor's sign. */
static Interval range_remainder(const Of *o)
{
    Interval a = o->in[0], b = o->in[1];
    double part = is_whole(o) ? 1 : 0;
    if (b.lo > 0)
        return a.lo >= 0 && a.hi < b.lo ? a : (Interval){0, b.hi - part};
    return b.hi < 0 ? (Interval){b.lo + part, 0} : anything;
}

static Interval range_negative(const Of *o) { return (Interval){-o->in[0].hi, -o->in[0].lo}; }
static Interval range_lesser(const Of *o)
{
    return (Interval){fmin(o->in[0].lo, o->in[1].lo), fmin(o->in[0].hi, o->in[1].hi)};
}
static Interval range_greater(const Of *o)
{
    return (Interval){fmax(o->in[0].lo, o->in[1].lo), fmax(o->in[0].hi, o->in[1].hi)};
}
static Interval range_positive(const Of *o)
{
    return (Interval){fmax(o->in[0].lo, 0), fmax(o->in[0].hi, 0)};
}
static Interval range_not_negative(const Of *o) { return (void)o, (Interval){0, (double)INFINITY}; }
static Interval range_root(const Of *o)
{
    Interval a = range_positive(o);
    return (Interval){sqrt(a.lo), sqrt(a.hi)};
}
static Interval range_floor(const Of *o)
{
    return (Interval){floor(o->in[0].lo), floor(o->in[0].hi)};
}
static Interval range_ceil(const Of *o) { return (Interval){ceil(o->in[0].lo), ceil(o->in[0].hi)}; }
static Interval range_rounded(const Of *o)
{
    return (Interval){floor(o->in[0].lo), ceil(o->in[0].hi)};
}
static Interval range_sign(const Of *o)
{
    Interval a = o->in[0];
    return (Interval){a.lo > 0 ? 1 : a.lo >= 0 ? 0 : -1, a.hi < 0 ? -1 : a.hi > 0};
}

/* To whole numbers: towards 0. */
static Interval range_cast(const Of *o)
{
    Dtype to = o->n->attr.to;
    if (to == DT_BOOL)
        return truth;
    return is_whole(o) || dtype_is_float(to)
               ? o->in[0]
               : (Interval){trunc(o->in[0].lo), trunc(o->in[0].hi)};
}

/* Of 1 to n elements, which are rounded on the way, to no other sign. */
static Interval sum_of(const Of *o, Interval a, int64_t n)
{
    double k = (double)n,
           part = o->t == DT_F64 ? 0x1p-50
                  : is_whole(o)  ? 0
                                 : 0x1p-22,
           off = part > 0 ? part * k * k * fmax(fabs(a.lo), fabs(a.hi)) : 0;
    Interval r = {fmin(a.lo, k * a.lo) - off, fmax(a.hi, k * a.hi) + off};
    return (Interval){a.lo >= 0 ? fmax(r.lo, 0) : r.lo, a.hi <= 0 ? fmin(r.hi, 0) : r.hi};
}

static int64_t reduced(const Of *o)
{
    int64_t count = 1;
    for (int i = 0; i < o->n->attr.n; i++)
        count *= val(o->g, o->n->in[0])->shape.d[o->n->attr.axes[i]];
    return count;
}

static int64_t along_axis(const Of *o)
{
    return val(o->g, o->n->in[0])->shape.d[o->n->attr.axis];
}

static Interval range_reduced_sum(const Of *o) { return sum_of(o, o->in[0], reduced(o)); }
static Interval range_running_sum(const Of *o)
{
    return sum_of(o, range_or_zero(o), along_axis(o));
}
static Interval range_mean(const Of *o)
{
    Interval a = o->in[0], sum = range_reduced_sum(o);
    double k = (double)reduced(o);
    return (Interval){fmin(a.lo, sum.lo / k), fmax(a.hi, sum.hi / k)};
}

static Interval range_pad(const Of *o)
{
    double v = o->n->attr.value;
    return o->n->attr.mode == PAD_CONSTANT ? join(o->in[0], (Interval){v, v}) : o->in[0];
}

static Interval range_concat(const Of *o)
{
    Interval all = o->in[0];
    for (uint32_t i = 1; i < o->n->nin; i++)
        all = join(all, o->in[i]);
    return all;
}

static Interval range_scatter(const Of *o)
{
    return o->n->attr.reduction == SCATTER_NONE ? join(o->in[0], o->in[2]) : anything;
}

/* Places along its axis; of TopK what it finds there, too. */
static Interval range_position(const Of *o) { return (Interval){0, (double)(along_axis(o) - 1)}; }
static Interval range_found(const Of *o) { return o->out ? range_position(o) : anything; }

static Interval (*const rule[OP_COUNT])(const Of *) = {
#define RANGE(f) range_##f
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, flops, range, \
           ...)                                                                                    \
    [OP_##name] = range,
#include "ir/ops.def"
#undef RANGE
};

static const Interval *find(Intervals *r, ValueId v, int depth);

/* v, given that a comparison holds, or does not: where it compares v itself. */
static Interval given(Intervals *r, ValueId test, bool holds, ValueId v, int depth)
{
    const Node *n = graph_maker(r->g, test);
    Interval of = *find(r, v, depth);
    bool below = n && (n->op == OP_Less || n->op == OP_LessOrEqual),
         above = n && (n->op == OP_Greater || n->op == OP_GreaterOrEqual);
    if ((!below && !above) || (n->in[0] != v && n->in[1] != v))
        return of;
    bool first = n->in[0] == v;
    Interval other = *find(r, n->in[first], depth);
    if ((below == first) == holds)
        of.hi = fmin(of.hi, other.hi);
    else
        of.lo = fmax(of.lo, other.lo);
    return of.lo <= of.hi ? of : other;
}

static Interval of_node(Intervals *r, ValueId v, int depth)
{
    const Graph *g = r->g;
    const Value *x = val(g, v);
    const Node *n = &g->node.at[x->node];
    Interval *in = arena_array(r->arena, Interval, n->nin + 1);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = *find(r, n->in[i], depth);
    if (n->op != OP_Where)
        return rule[n->op](&(Of){g, n, in, val(g, n->in[0])->dtype, x->out});
    in[1] = given(r, n->in[0], true, n->in[1], depth);
    in[2] = given(r, n->in[0], false, n->in[2], depth);
    return in[0].lo > 0 ? in[1] : in[0].hi < 1 ? in[2] : join(in[1], in[2]);
}

static const Interval *find(Intervals *r, ValueId v, int depth)
{
    const Value *x = val(r->g, v);
    uint32_t at = idmap_get(&r->of, v);
    if (at != NONE)
        return &r->at.at[at];
    Interval of = x->dtype == DT_BOOL ? truth : anything;
    if (x->kind == V_CONST)
        of = of_constant(x);
    else if (x->kind == V_NODE && depth < DEEPEST)
        of = settled(r->g->node.at[x->node].op, x->dtype, of_node(r, v, depth + 1));
    *idmap_at(r->arena, &r->of, v) = r->at.n;
    vec_push(r->arena, &r->at, of);
    return &r->at.at[r->at.n - 1];
}

Interval range_of(Intervals *r, ValueId v) { return *find(r, v, 0); }

void range_suppose(Intervals *r, ValueId v)
{
    while (v != NONE) {
        const Value *x = val(r->g, v);
        const Node *n = graph_maker(r->g, v);
        uint32_t known = idmap_get(&r->of, v);
        if (x->kind == V_CONST || (known != NONE && r->at.at[known].lo > 0))
            return; /* and so is what makes it */
        *idmap_at(r->arena, &r->of, v) = r->at.n;
        vec_push(r->arena, &r->at, ((Interval){1, 1}));
        bool one = shape_elements(&x->shape) == 1, both = n && n->op == OP_And && one;
        if (both && shape_elements(&val(r->g, n->in[1])->shape) == 1)
            range_suppose(r, n->in[1]);
        v = both || (n && n->op == OP_Reshape && one) ? n->in[0] : NONE;
        if (v != NONE && shape_elements(&val(r->g, v)->shape) != 1)
            v = NONE;
    }
}

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

/* ---- comparisons ---- */

/* a < b of all elements, or of none; a NaN is below nothing. */
static Interval less(const Interval *a, const Interval *b, bool or_equal, bool whole)
{
    bool never = or_equal ? a->lo > b->hi : a->lo >= b->hi,
         always = whole && (or_equal ? a->hi <= b->lo : a->hi < b->lo);
    return never ? (Interval){0, 0} : always ? (Interval){1, 1} : truth;
}

static Interval equal(const Interval *a, const Interval *b, bool whole)
{
    if (a->lo > b->hi || b->lo > a->hi)
        return (Interval){0, 0};
    return whole && a->lo == a->hi && b->lo == b->hi && a->lo == b->lo ? (Interval){1, 1} : truth;
}

/* ---- arithmetic ---- */

static Interval product(Interval a, Interval b)
{
    return corners(a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi);
}

static Interval quotient(Interval a, Interval b, bool whole)
{
    if (b.lo <= 0 && b.hi >= 0)
        return anything;
    Interval r = corners(a.lo / b.lo, a.lo / b.hi, a.hi / b.lo, a.hi / b.hi);
    return whole ? (Interval){floor(r.lo), ceil(r.hi)} : r;
}

/* With the divisor's sign. */
static Interval remainder_of(Interval a, Interval b, bool whole)
{
    double part = whole ? 1 : 0;
    if (b.lo > 0)
        return a.lo >= 0 && a.hi < b.lo ? a : (Interval){0, b.hi - part};
    return b.hi < 0 ? (Interval){b.lo + part, 0} : anything;
}

/* Of 1 to n elements, which are rounded on the way. */
static Interval sum_of(Interval a, int64_t n, Dtype t)
{
    double k = (double)n,
           part = t == DT_F64         ? 0x1p-50
                  : dtype_is_float(t) ? 0x1p-22
                                      : 0,
           off = part > 0 ? part * k * k * fmax(fabs(a.lo), fabs(a.hi)) : 0;
    return (Interval){fmin(a.lo, k * a.lo) - off, fmax(a.hi, k * a.hi) + off};
}

static Interval mean_of(Interval a, int64_t n, Dtype t)
{
    Interval sum = sum_of(a, n, t);
    double k = (double)n, low = fmin(a.lo, sum.lo / k), high = fmax(a.hi, sum.hi / k);
    return (Interval){low, high};
}

static int64_t elements_along(const Graph *g, const Node *n)
{
    const Shape *s = &val(g, n->in[0])->shape;
    int64_t count = 1;
    if (n->op == OP_CumSum)
        return s->d[n->attr.axis];
    for (int i = 0; i < n->attr.n; i++)
        count *= s->d[n->attr.axes[i]];
    return count;
}

/* ---- one node ---- */

static Interval magnitude(Interval a)
{
    return a.lo >= 0 ? a : a.hi <= 0 ? (Interval){-a.hi, -a.lo} : (Interval){0, fmax(-a.lo, a.hi)};
}

/* in: of its operands; t: the type of the first */
static Interval of_operator(const Graph *g, const Node *n, const Interval *in, Dtype t)
{
    bool whole = !dtype_is_float(t);
    Interval a = in[0], b = n->nin > 1 ? in[1] : a;
    switch (n->op) {
    case OP_Add: return (Interval){a.lo + b.lo, a.hi + b.hi};
    case OP_Sub: return (Interval){a.lo - b.hi, a.hi - b.lo};
    case OP_Mul: return product(a, b);
    case OP_Div: return quotient(a, b, whole);
    case OP_Mod: return remainder_of(a, b, whole);
    case OP_Neg: return (Interval){-a.hi, -a.lo};
    case OP_Abs: return magnitude(a);
    case OP_Min: return (Interval){fmin(a.lo, b.lo), fmin(a.hi, b.hi)};
    case OP_Max: return (Interval){fmax(a.lo, b.lo), fmax(a.hi, b.hi)};
    case OP_Relu: return (Interval){fmax(a.lo, 0), fmax(a.hi, 0)};
    case OP_Floor: return (Interval){floor(a.lo), floor(a.hi)};
    case OP_Ceil: return (Interval){ceil(a.lo), ceil(a.hi)};
    case OP_Round: return (Interval){floor(a.lo), ceil(a.hi)};
    case OP_Cast: /* to whole numbers: towards 0 */
        return n->attr.to == DT_BOOL                 ? truth
               : whole || dtype_is_float(n->attr.to) ? a
                                                     : (Interval){trunc(a.lo), trunc(a.hi)};
    case OP_Less: return less(&a, &b, false, whole);
    case OP_LessOrEqual: return less(&a, &b, true, whole);
    case OP_Greater: return less(&b, &a, false, whole);
    case OP_GreaterOrEqual: return less(&b, &a, true, whole);
    case OP_Equal: return equal(&a, &b, whole);
    case OP_Not: return (Interval){1 - a.hi, 1 - a.lo};
    case OP_And: return (Interval){fmin(a.lo, b.lo), fmin(a.hi, b.hi)};
    case OP_Or: return (Interval){fmax(a.lo, b.lo), fmax(a.hi, b.hi)};
    case OP_Sign: return (Interval){a.lo > 0 ? 1 : a.lo >= 0 ? 0 : -1, a.hi < 0 ? -1 : a.hi > 0};
    case OP_Sin:
    case OP_Cos:
    case OP_Tanh:
    case OP_Erf: return (Interval){-1, 1};
    case OP_Sigmoid:
    case OP_Softmax:
    case OP_Random: return truth;
    case OP_ReduceSum:
    case OP_CumSum:
        return sum_of(n->op == OP_CumSum ? join(a, (Interval){0, 0}) : a, elements_along(g, n), t);
    case OP_ReduceMean: return mean_of(a, elements_along(g, n), t);
    case OP_Pad:
        return join(a, n->attr.mode == PAD_CONSTANT ? (Interval){n->attr.value, n->attr.value} : a);
    case OP_Pack:
    case OP_Unpack: return join(a, (Interval){0, 0});
    case OP_Concat:
        for (uint32_t i = 1; i < n->nin; i++)
            a = join(a, in[i]);
        return a;
    case OP_ScatterElements:
    case OP_ScatterND: return n->attr.reduction == SCATTER_NONE ? join(a, in[2]) : anything;
    case OP_Gather:
    case OP_GatherElements:
    case OP_GatherND:
    case OP_ReduceMax:
    case OP_ReduceMin: return a;
    default: return op_is_view(n->op) ? a : anything;
    }
}

/* Positions along its axis. */
static bool is_position(const Node *n, const Value *v)
{
    return n->op == OP_ArgMax || n->op == OP_ArgMin || (n->op == OP_TopK && v->out == 1);
}

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
    if (is_position(n, x))
        return (Interval){0, (double)(val(g, n->in[0])->shape.d[n->attr.axis] - 1)};
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = *find(r, n->in[i], depth);
    if (n->op != OP_Where)
        return of_operator(g, n, in, val(g, n->in[0])->dtype);
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

/*
 * test_range.c - between which numbers values are (ir/facts/range.c): bounds that are known by
 * hand, and random graphs, of which no element may be outside of what is said of it.
 */
#include <math.h>

#include "ir/facts/facts.h"
#include "oracle/oracle.h"
#include "tap.h"
#include "uniform.h"

static Arena *arena;
static Graph *g;
static Intervals known;

static void fresh(void)
{
    g = graph_new(arena, "test.onnx");
    g->batch = 1;
    known = (Intervals){.g = g, .arena = arena};
}

static Shape line(int64_t n) { return shape_of(1, n); }

static ValueId input(Dtype t, const char *name)
{
    Shape s = line(4);
    return graph_input(g, name, t, &s);
}

static ValueId less(ValueId x, ValueId y) { return g_binary(g, OP_Less, x, y); }
static ValueId total(Op op, ValueId x) { return g_reduce(g, op, x, 1, (const int64_t[]){0}); }

static void is(ValueId v, double lo, double hi, const char *what)
{
    Interval r = range_of(&known, v);
    if (!ok(r.lo == lo && r.hi == hi, "%s", what))
        printf("# %g to %g\n", r.lo, r.hi);
}

/* min(max(v, lo), hi), as Clip is imported */
static ValueId clipped(ValueId v, double lo, double hi)
{
    ValueId a = g_like(g, v, lo), b = g_like(g, v, hi);
    v = g_where(g, g_binary(g, OP_LessOrEqual, v, a), a, v);
    return g_where(g, g_binary(g, OP_GreaterOrEqual, v, b), b, v);
}

static void by_hand(void)
{
    const double inf = (double)INFINITY;
    fresh();
    ValueId n = input(DT_I64, "n"), b = input(DT_BOOL, "b"), small = input(DT_I32, "small"),
            f = input(DT_F32, "f"), count = total(OP_ReduceSum, g_cast(g, b, DT_I64));
    is(n, -inf, inf, "an input may be anything");
    is(clipped(n, -2, 5), -2, 5, "a Clip's bounds");
    is(g_binary(g, OP_Max, n, g_like(g, n, 3)), 3, inf, "of a maximum one bound is known");
    is(count, 0, 4, "as many trues as there are elements");
    is(g_add(g, g_binary(g, OP_Max, n, g_like(g, n, 3)), g_like(g, n, 1)), -inf, inf,
       "a sum that may wrap around may be anything");
    is(g_mul(g, clipped(small, 0, 70000), clipped(small, 0, 70000)), -inf, inf,
       "so may a product of 32 bits");
    is(graph_node(g, OP_ArgMax, 1, &f, (Attr){0}), 0, 3, "the position of a maximum");
    is(g_unary(g, OP_Ceil, g_mul(g, g_unary(g, OP_Sigmoid, f), g_like(g, f, 3))), 0, 4,
       "3 sigmoid(x), rounded up, may be 4 in float32: bounds are rounded outwards");
    ValueId squares = total(OP_ReduceMean, g_mul(g, f, f));
    is(squares, 0, inf, "a mean of squares");
    is(less(g_unary(g, OP_Sqrt, g_add(g, squares, g_like(g, f, 4))), g_like(g, f, 1)), 0, 0,
       "what a norm divides by is not small");
    is(less(count, g_like(g, count, 5)), 1, 1, "less than 5 it is always");
    is(less(g_like(g, count, 4), count), 0, 0, "more than 4 never");
    is(less(g_unary(g, OP_Sigmoid, f), g_like(g, f, 2)), 0, 1, "of a NaN no comparison is true");
    is(g_where(g, less(n, g_like(g, n, 0)), g_like(g, n, 0), n), 0, inf, "where it is not below 0");
    is(g_binary(g, OP_Mod, n, g_like(g, n, 7)), 0, 6, "a remainder");
    ValueId k = clipped(n, 0, 3), one = g_slice_axis(g, k, 0, 0, 1),
            goes = less(g_like(g, one, 0), one), after = g_sub(g, one, g_like(g, one, 1)),
            both = g_binary(g, OP_And, goes, less(one, g_like(g, one, 9))),
            next = g_where(g, g_reshape(g, goes, &(Shape){1, {1}}), after, one);
    range_suppose(&known, both);
    is(next, -1, 2, "where the loop goes on it is the next one's number");
    is(goes, 1, 1, "what makes a condition true is true");
}

/* ---- random graphs ---- */

static uint32_t below(uint32_t n) { return (uint32_t)((uniform() + 1) / 2 * (float)n) % n; }

typedef struct {
    Ids whole, real, truth;
} Pool;

static ValueId any(const Ids *from) { return from->at[below(from->n)]; }

/* One dim of 4 again. */
static ValueId spread(ValueId v)
{
    Shape s = line(4);
    return g_expand(g, v, &s);
}

static void grow(Pool *p)
{
    static const Op two[] = {OP_Add, OP_Sub, OP_Mul, OP_Min, OP_Max},
                    one[] = {OP_Neg, OP_Abs, OP_Relu, OP_Sign},
                    real[] = {OP_Floor, OP_Ceil, OP_Round, OP_Sigmoid, OP_Tanh, OP_Sin},
                    compare[] = {OP_Less, OP_LessOrEqual, OP_Greater, OP_GreaterOrEqual, OP_Equal},
                    logic[] = {OP_And, OP_Or},
                    reduce[] = {OP_ReduceSum, OP_ReduceMax, OP_ReduceMin, OP_ReduceMean};
    bool float_ = below(2);
    Ids *numbers = float_ ? &p->real : &p->whole;
    ValueId x = any(numbers), y = any(numbers), v = NONE;
    switch (below(11)) {
    case 0: v = g_binary(g, two[below(5)], x, y); break;
    case 1: v = g_unary(g, one[below(4)], x); break;
    case 2:
        v = float_ ? g_unary(g, real[below(6)], x) : g_binary(g, OP_Mod, x, g_like(g, x, 3));
        break;
    case 3: vec_push(arena, &p->truth, g_binary(g, compare[below(5)], x, y)); return;
    case 4:
        vec_push(arena, &p->truth, g_binary(g, logic[below(2)], any(&p->truth), any(&p->truth)));
        return;
    case 5: vec_push(arena, &p->truth, g_unary(g, OP_Not, any(&p->truth))); return;
    case 6: v = g_where(g, any(&p->truth), x, y); break;
    case 7: v = g_where(g, g_binary(g, compare[below(4)], x, y), x, y); break;
    case 8: v = spread(total(reduce[below(float_ ? 4 : 3)], x)); break;
    case 9:
        v = g_cast(g, below(3) ? x : any(&p->truth), float_ ? DT_I64 : DT_F32);
        numbers = float_ ? &p->whole : &p->real;
        break;
    default: v = clipped(x, -(double)below(5) - 2, below(9)); break;
    }
    vec_push(arena, numbers, v);
}

/* Draws the inputs; is each element of each value where it is said to be?  Counts what is known. */
static bool holds(const Pool *p, int *finite)
{
    Tensor *at = arena_array(arena, Tensor, g->value.n);
    int64_t *n = arena_array(arena, int64_t, 4);
    float *f = arena_array(arena, float, 4);
    bool *b = arena_array(arena, bool, 4), good = true;
    for (int i = 0; i < 4; i++) {
        n[i] = (int64_t)(uniform() * 30);
        f[i] = uniform() * 10;
        b[i] = below(2);
    }
    at[p->whole.at[0]] = (Tensor){DT_I64, line(4), n};
    at[p->real.at[0]] = (Tensor){DT_F32, line(4), f};
    at[p->truth.at[0]] = (Tensor){DT_BOOL, line(4), b};
    Ids all = {0};
    for (NodeId i = 0; i < g->node.n; i++)
        vec_push(arena, &all, i);
    oracle_nodes(g, arena, all.at, all.n, at);
    for (ValueId v = 0; v < g->value.n && good; v++) {
        Interval r = range_of(&known, v);
        *finite += val(g, v)->dtype != DT_BOOL && r.lo > -1e9 && r.hi < 1e9;
        for (int64_t i = 0; at[v].data && i < shape_elements(&at[v].shape) && good; i++) {
            double x = element_double(at[v].dtype, at[v].data, i);
            good = isnan(x) || (x >= r.lo && x <= r.hi);
            if (!good)
                printf("# value %u is %g, not in %g to %g\n", v, x, r.lo, r.hi);
        }
    }
    return good;
}

static void random_graphs(void)
{
    enum { GRAPHS = 2000, NODES = 14, DRAWS = 4 };
    bool good = true;
    int finite = 0;
    for (int k = 0; k < GRAPHS && good; k++) {
        Arena *outer = arena;
        arena = arena_new();
        fresh();
        Pool p = {0};
        vec_push(arena, &p.whole, input(DT_I64, "n"));
        vec_push(arena, &p.real, input(DT_F32, "f"));
        vec_push(arena, &p.truth, input(DT_BOOL, "b"));
        for (int i = 0; i < NODES; i++)
            grow(&p);
        for (int i = 0; i < DRAWS && good; i++)
            good = holds(&p, &finite);
        if (!good)
            printf("# graph %d\n", k);
        arena_free(arena);
        arena = outer;
    }
    ok(good, "of %d random graphs no element is outside of its bounds", GRAPHS);
    ok(finite > GRAPHS * DRAWS * 3, "bounds are found: %d", finite);
}

int main(void)
{
    arena = arena_new();
    by_hand();
    random_graphs();
    arena_free(arena);
    return tap_done();
}

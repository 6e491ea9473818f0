/*
 * draw.h - what all operations of a random graph share: numbers drawn from the step's own,
 * parameters, integers, and operands brought where functions are smooth.
 */
#ifndef FUZZ_DRAW_H
#define FUZZ_DRAW_H

#include <math.h>

#include "autodiff/autodiff.h"
#include "recipe.h"

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})
#define I(...) ((const int64_t[]){__VA_ARGS__})

enum { MOST_ELEMENTS = 3000, MOST_DIMS = 6 };

typedef struct {
    Graph *g;
    const Recipe *r;
    Dtype real;
    uint64_t seed;                  /* of the step */
    /* that widths are multiples of, for members to divide; 0: any */
    int64_t grain;
    uint32_t weights, inputs;
} Fuzz;

static int64_t below(Fuzz *f, int64_t n) { return fuzz_below(&f->seed, n); }
static bool chance(Fuzz *f, int percent) { return below(f, 100) < percent; }
/* Does a step mix the rows of a batch?  Not where microbatches are to be cut out of it. */
static bool mixes(Fuzz *f, int percent) { return chance(f, percent) && !f->grain; }
static Shape shape(const Fuzz *f, ValueId x) { return val(f->g, x)->shape; }
static int64_t wide_as(const Fuzz *f, int64_t n)
{
    return f->grain ? f->grain * (1 + n % 4) : n;
}
static ValueId number(Fuzz *f, double v) { return g_scalar(f->g, f->real, v); }
static ValueId op1(Fuzz *f, Op op, ValueId x, Attr a) { return graph_node(f->g, op, 1, &x, a); }
static ValueId op2(Fuzz *f, Op op, ValueId x, ValueId y, Attr a)
{
    return graph_node(f->g, op, 2, (ValueId[]){x, y}, a);
}
static ValueId op3(Fuzz *f, Op op, ValueId x, ValueId y, ValueId z, Attr a)
{
    return graph_node(f->g, op, 3, (ValueId[]){x, y, z}, a);
}
static ValueId scaled(Fuzz *f, ValueId x, double k) { return g_mul(f->g, x, number(f, k)); }
static ValueId bounded(Fuzz *f, ValueId x) { return g_unary(f->g, OP_Tanh, x); }
static ValueId positive(Fuzz *f, ValueId x)
{
    return g_add(f->g, g_mul(f->g, bounded(f, x), bounded(f, x)), number(f, 0.5));
}

static int64_t *ints(Fuzz *f) { return arena_array(f->g->arena, int64_t, MAX_RANK); }

/* A dimension; the rows of a batch are taken less often: what mixes them is a case of its own. */
static int axis_of(Fuzz *f, ValueId x)
{
    int rank = shape(f, x).rank;
    if (rank > 1 && f->r->rows && !mixes(f, 10))
        return 1 + (int)below(f, rank - 1);
    return (int)below(f, rank);
}

static ValueId weight(Fuzz *f, Shape s)
{
    int64_t n = shape_elements(&s);
    Payload bytes = {.at = arena_alloc(f->g->arena, (size_t)n * 8 + 8),
                     .length = (size_t)n * dtype_size(f->real)};
    for (int64_t i = 0; i < n; i++) {
        double v = (double)below(f, 20001) / 10000 - 1;
        if (f->real == DT_F32)
            ((float *)(uintptr_t)bytes.at)[i] = (float)v;
        else
            ((double *)(uintptr_t)bytes.at)[i] = v;
    }
    Param p = {.name = arena_printf(f->g->arena, "w%u", f->weights++),
               .dtype = f->real,
               .shape = s,
               .trainable = true,
               .bytes = bytes};
    return graph_param(f->g, p);
}

/* A parameter that broadcasts with x: some dimensions are 1, some are left out in front. */
static ValueId fitting(Fuzz *f, ValueId x)
{
    Shape s = shape(f, x), t = {0};
    for (int d = s.rank ? (int)below(f, s.rank + 1) : 0; d < s.rank; d++)
        t.d[t.rank++] = chance(f, 30) || (f->r->rows && d == 0) ? 1 : s.d[d];
    return weight(f, t);
}

/* y where it broadcasts with x to no more than is reasonable, else a parameter that does. */
static ValueId other(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x), t = shape(f, y);
    int64_t n = 1;
    int rank = s.rank > t.rank ? s.rank : t.rank;
    for (int i = 1; i <= rank; i++) {
        int64_t a = i <= s.rank ? s.d[s.rank - i] : 1, b = i <= t.rank ? t.d[t.rank - i] : 1;
        if (a != b && a != 1 && b != 1)
            return fitting(f, x);
        n *= a > b ? a : b;
    }
    /* the rows must meet the rows */
    bool rows = f->r->rows && rank != (s.rank < t.rank ? s.rank : t.rank);
    return n <= MOST_ELEMENTS && !rows ? y : fitting(f, x);
}

static ValueId int_const(Fuzz *f, Shape s, int64_t from, int64_t n)
{
    int64_t *v = arena_array(f->g->arena, int64_t, shape_elements(&s) + 1);
    for (int64_t i = 0; i < shape_elements(&s); i++)
        v[i] = from + below(f, n);
    return g_ints(f->g, s.rank, s.d, v);
}

/* Integers that come in with the data, brought below n: i mod n, some counted from the end. */
static ValueId int_input(Fuzz *f, Shape s, int64_t n)
{
    Graph *g = f->g;
    if (f->r->rows && s.rank)
        s.d[0] = f->r->rows;
    ValueId x = graph_input(g, arena_printf(g->arena, "i%u", f->inputs++), DT_I64, &s);
    x = g_binary(g, OP_Mod, x, g_scalar(g, DT_I64, (double)n));
    return chance(f, 25) ? g_sub(g, x, g_scalar(g, DT_I64, (double)n)) : x;
}

#endif

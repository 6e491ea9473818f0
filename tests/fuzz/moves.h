/*
 * moves.h - views, copies, what is found and put by index.
 */
#ifndef FUZZ_MOVES_H
#define FUZZ_MOVES_H

#include "draw.h"

/* ---- views and moves ------------------------------------------------------------------------- */

static ValueId do_reshape(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x), t = {0};
    int from = f->r->rows && !mixes(f, 25) ? 1 : 0;
    (void)y;
    for (int d = 0; d < from && d < s.rank; d++)
        t.d[t.rank++] = s.d[d];
    for (int d = from; d < s.rank; d++) {
        int64_t k = s.d[d], p = k % 2 == 0 && k > 2   ? 2
                                : k % 3 == 0 && k > 3 ? 3
                                : k % 5 == 0 && k > 5 ? 5
                                                      : 1;
        if (t.rank > from && chance(f, 40)) {
            t.d[t.rank - 1] *= k;
        } else if (p > 1 && t.rank < MOST_DIMS - 1 && chance(f, 40)) {
            t.d[t.rank++] = p;
            t.d[t.rank++] = k / p;
        } else {
            t.d[t.rank++] = k;
        }
        if (t.rank < MOST_DIMS - 1 && chance(f, 10))
            t.d[t.rank++] = 1;
    }
    return t.rank <= MOST_DIMS ? g_reshape(f->g, x, &t) : x;
}

/* All dimensions of 1 away, but the first. */
static ValueId do_squeeze(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x), t = {0};
    (void)y;
    for (int d = 0; d < s.rank; d++)
        if (d == 0 || s.d[d] != 1)
            t.d[t.rank++] = s.d[d];
    return g_reshape(f->g, x, &t);
}

static ValueId do_transpose(Fuzz *f, ValueId x, ValueId y)
{
    int64_t *perm = ints(f);
    int rank = shape(f, x).rank, low = f->r->rows && !mixes(f, 30) ? 1 : 0;
    (void)y;
    for (int d = 0; d < rank; d++)
        perm[d] = d;
    for (int d = rank - 1; d > low; d--) {
        int e = low + (int)below(f, d - low + 1);
        int64_t t = perm[d];
        perm[d] = perm[e];
        perm[e] = t;
    }
    return g_transpose(f->g, x, perm);
}

static ValueId do_slice(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    int64_t *start = ints(f), *size = ints(f), *step = ints(f);
    (void)y;
    for (int d = 0; d < s.rank; d++) {
        start[d] = 0, size[d] = s.d[d], step[d] = 1;
        if (s.d[d] < 2 || (d == 0 && f->r->rows && !mixes(f, 5)) || chance(f, 40))
            continue;
        step[d] = 1 + below(f, 3);
        start[d] = below(f, s.d[d]);
        size[d] = 1 + below(f, (s.d[d] - 1 - start[d]) / step[d] + 1);
        if (chance(f, 30)) {
            start[d] = s.d[d] - 1 - start[d];
            step[d] = -step[d];
        }
    }
    return g_slice(f->g, x, start, size, step);
}

static ValueId do_expand(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x), t = s;
    (void)y;
    for (int d = f->r->rows ? 1 : 0; d < s.rank; d++)
        if (s.d[d] == 1 && chance(f, 60))
            t.d[d] = 2 + below(f, 4);
    /* a new dimension somewhere */
    if (t.rank < MOST_DIMS && (chance(f, 30) || shape_equal(&s, &t))) {
        int at = (f->r->rows ? 1 : 0) + (int)below(f, s.rank);
        at = at > s.rank ? s.rank : at;
        Shape u = s;
        for (int d = s.rank; d > at; d--) {
            u.d[d] = u.d[d - 1];
            t.d[d] = t.d[d - 1];
        }
        u.rank = t.rank = s.rank + 1;
        u.d[at] = 1;
        t.d[at] = 2 + below(f, 3);
        if (shape_elements(&t) > MOST_ELEMENTS)
            return x;
        x = g_reshape(f->g, x, &u);
    }
    return shape_elements(&t) <= MOST_ELEMENTS ? g_expand(f->g, x, &t) : x;
}

static ValueId do_split(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    int axis = s.rank ? axis_of(f, x) : 0;
    (void)y;
    if (s.rank == 0 || s.d[axis] < 2)
        return x;
    int64_t *part = ints(f);
    int n = 0;
    for (int64_t left = s.d[axis]; left > 0 && n < 5; left -= part[n++])
        part[n] = n == 4 ? left : 1 + below(f, left);
    ValueId p = g_split(g, x, axis, n, part), piece[5];
    for (int i = 0; i < n; i++)
        piece[i] = graph_out(g, p, (uint32_t)i);
    switch (below(f, 3)) {
    case 0: return piece[below(f, n)];
    case 1: return g_concat(g, 2, (ValueId[]){piece[n - 1], bounded(f, piece[0])}, axis);
    default:
        for (int i = 0; i + 1 < n; i += 2) {
            ValueId t = piece[i];
            piece[i] = piece[i + 1];
            piece[i + 1] = t;
        }
        return g_concat(g, (uint32_t)n, piece, axis);
    }
}

static ValueId do_concat(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x), t = shape(f, y);
    if (s.rank == 0 || shape_elements(&s) > MOST_ELEMENTS / 2)
        return x;
    int axis = axis_of(f, x);
    bool fits = s.rank == t.rank;
    for (int d = 0; d < s.rank && fits; d++)
        fits = d == axis || s.d[d] == t.d[d];
    if (!fits || shape_elements(&t) > MOST_ELEMENTS / 2)
        y = chance(f, 50) ? x : g_add(g, g_mul(g, x, number(f, 0)), fitting(f, x));
    return g_concat(g, chance(f, 30) ? 3 : 2, (ValueId[]){x, y, x}, axis);
}

static ValueId do_pad(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    int64_t *begin = ints(f), *end = ints(f);
    int mode = chance(f, 50) ? PAD_CONSTANT : (int)below(f, 4);
    (void)y;
    if (s.rank == 0)
        return x;
    for (int d = f->r->rows ? 1 : 0; d < s.rank; d++)
        if (chance(f, 50)) {
            int64_t most =
                mode == PAD_CONSTANT || mode == PAD_EDGE ? 3 : s.d[d] - (mode == PAD_REFLECT);
            begin[d] = below(f, most < 3 ? most + 1 : 3);
            end[d] = below(f, most < 3 ? most + 1 : 3);
        }
    if (mode == PAD_CONSTANT && chance(f, 20)) {        /* a negative pad crops */
        int d = axis_of(f, x);
        begin[d] = s.d[d] > 1 && !(f->r->rows && d == 0) ? -1 : begin[d];
    }
    ValueId z = g_pad(f->g, x, begin, end, mode, chance(f, 50) ? 0 : 0.25);
    Shape t = shape(f, z);
    return shape_elements(&t) <= MOST_ELEMENTS ? z : x;
}

static ValueId do_gather(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    Shape t = {.rank = (int)below(f, 3), .d = {1 + below(f, 4), 1 + below(f, 3)}};
    if (s.rank + t.rank - 1 > MOST_DIMS ||
        shape_elements(&s) * shape_elements(&t) > MOST_ELEMENTS * s.d[axis])
        return x;
    bool data = !f->r->rows && chance(f, 40);           /* by what comes in with the data */
    return g_gather(f->g, x,
                    data ? int_input(f, t, s.d[axis]) : int_const(f, t, -s.d[axis], 2 * s.d[axis]),
                    axis);
}

/* Indices of x's rank, not longer than x but along the axis. */
static Shape index_shape(Fuzz *f, ValueId x, int axis)
{
    Shape s = shape(f, x);
    for (int d = f->r->rows ? 1 : 0; d < s.rank; d++)
        s.d[d] = d == axis ? 1 + below(f, 5) : chance(f, 70) ? s.d[d] : 1 + below(f, s.d[d]);
    return s;
}

static ValueId do_gather_elements(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    (void)y;
    if (s.rank == 0)
        return x;
    int axis = axis_of(f, x);
    Shape t = index_shape(f, x, axis);
    if (f->r->rows && axis == 0)
        return x;
    bool data = chance(f, 60);
    return op2(f, OP_GatherElements, x,
               data ? int_input(f, t, s.d[axis]) : int_const(f, t, -s.d[axis], 2 * s.d[axis]),
               (Attr){.axis = axis});
}

static ValueId do_gather_nd(Fuzz *f, ValueId x, ValueId y)
{
    Shape s = shape(f, x);
    int batch = f->r->rows ? 1 : 0;
    (void)y;
    if (s.rank <= batch)
        return x;
    if (batch) {                                        /* one index for each row */
        ValueId i = int_input(f, S(f->r->rows, 1 + below(f, 4), 1), s.d[1]);
        return op2(f, OP_GatherND, x, i, (Attr){.batch_dims = 1});
    }
    int64_t n = 1 + below(f, 4), k = 1 + below(f, s.rank);
    int64_t *v = arena_array(f->g->arena, int64_t, n * k);
    for (int64_t i = 0; i < n * k; i++)
        v[i] = below(f, 2 * s.d[i % k]) - s.d[i % k];
    return op2(f, OP_GatherND, x, g_ints(f->g, 2, I(n, k), v), (Attr){.batch_dims = 0});
}

/* Without a reduction no place is written twice: which update stays is nobody's promise. */
static ValueId do_scatter_elements(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    int mode = chance(f, 50) ? SCATTER_ADD : (int)below(f, 5), axis = s.rank ? axis_of(f, x) : 0;
    (void)y;
    if (s.rank == 0 || (f->r->rows && axis == 0))
        return x;
    Shape t = index_shape(f, x, axis);
    ValueId i = NONE;
    if (mode == SCATTER_NONE) {
        t.d[axis] = 1 + below(f, s.d[axis]);
        ValueId at = g_sub(g, g_scalar(g, DT_I64, (double)s.d[axis] - 1),
                           g_iota(g, DT_I64, s.rank, axis, t.d[axis]));
        i = g_expand(g, at, &t);
    } else {
        i = chance(f, 60) ? int_input(f, t, s.d[axis]) : int_const(f, t, -s.d[axis], 2 * s.d[axis]);
    }
    int64_t *zero = ints(f), *size = ints(f);
    for (int d = 0; d < s.rank; d++)
        size[d] = t.d[d] < s.d[d] ? t.d[d] : s.d[d];
    ValueId u = g_mul(g, g_slice(g, x, zero, size, NULL), number(f, 0.7));     /* as long as x is */
    for (int d = 0; d < s.rank; d++)
        size[d] = t.d[d] - size[d];
    u = g_pad(g, u, zero, size, PAD_CONSTANT, 0.3);
    if (mode == SCATTER_MAX || mode == SCATTER_MIN || mode == SCATTER_MUL)
        u = g_add(g, u, fitting(f, u));
    return op3(f, OP_ScatterElements, chance(f, 25) ? g_full(g, f->real, &s, 0) : x, i, u,
               (Attr){.axis = axis, .reduction = mode});
}

static ValueId do_scatter_nd(Fuzz *f, ValueId x, ValueId y)
{
    Graph *g = f->g;
    Shape s = shape(f, x);
    int mode = chance(f, 50) ? SCATTER_ADD : (int)below(f, 5);
    (void)y;
    if (f->r->rows || s.rank == 0)
        return x;
    int64_t n = mode == SCATTER_NONE ? 1 : 1 + below(f, 4), k = 1 + below(f, s.rank),
            *v = arena_array(g->arena, int64_t, n * k);
    for (int64_t i = 0; i < n * k; i++)
        v[i] = below(f, 2 * s.d[i % k]) - s.d[i % k];
    Shape t = {.rank = 1, .d = {n}};
    for (int d = (int)k; d < s.rank; d++)
        t.d[t.rank++] = s.d[d];
    return op3(f, OP_ScatterND, x, g_ints(g, 2, I(n, k), v), weight(f, t),
               (Attr){.reduction = mode});
}

#endif

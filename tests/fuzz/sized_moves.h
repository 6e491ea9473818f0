/*
 * sized_moves.h - operations of a model of several lengths: elementwise ones, products of weights,
 * and what moves elements.
 */
#ifndef FUZZ_SIZED_MOVES_H
#define FUZZ_SIZED_MOVES_H

#include "sized.h"

/* ---- operations: what does not apply gives x ------------------------------------------------- */

typedef Val Make(const Val *x, const Val *y);

static Val do_unary(const Val *x, const Val *y)
{
    static const char *const op[] = {"Tanh", "Sigmoid", "Relu",     "Erf", "Softplus", "Sin",
                                     "Abs",  "Neg",     "Identity", "Elu", "Mish",     "HardSwish"};
    (void)y;
    return unary(op[below(COUNT(op))], x);
}

static bool all_same(const Val *x, const Val *y)
{
    bool is = x->rank == y->rank;
    for (int d = 0; d < x->rank && is; d++)
        is = same(x->d[d], y->d[d]);
    return is;
}

static Val do_binary(const Val *x, const Val *y)
{
    static const char *const op[] = {"Add", "Mul", "Sub", "Max", "Min"};
    return made(emit2(op[below(COUNT(op))], x->name, all_same(x, y) ? y->name : fitting(x)), x);
}

static Val do_linear(const Val *x, const Val *y)
{
    Val v = *x;
    const Dim last = x->d[x->rank - 1];
    const long width = 3 + below(6);
    (void)y;
    if (!fixed(last))
        return *x;
    v.d[x->rank - 1] = of((int)width);
    v = made(emit2("MatMul", x->name, weights_of(2, (long[]){last.c[0], width})), &v);
    return chance(50) ? made(emit2("Add", v.name, weights_of(1, &width)), &v) : v;
}

static void swap(Val *v, int i, int j)
{
    const Dim d = v->d[i];
    v->d[i] = v->d[j];
    v->d[j] = d;
}

static Val transposed(const Val *x, int i, int j)
{
    Val v = *x;
    long perm[MOST_RANK];
    for (int d = 0; d < x->rank; d++)
        perm[d] = d == i ? j : d == j ? i : d;
    swap(&v, i, j);
    attr_ints("perm", x->rank, perm);
    return made(emit("Transpose", x->name), &v);
}

static Val do_transpose(const Val *x, const Val *y)
{
    (void)y;
    return x->rank < 3 ? *x : transposed(x, axis_of(x), axis_of(x));
}

static Val reshaped(const Val *x, int rank, const Dim *d)
{
    Val v = *x;
    v.rank = rank;
    memcpy(v.d, d, (size_t)rank * sizeof *d);
    return fits(&v) ? made(emit2("Reshape", x->name, shape_text(rank, d, true)), &v) : *x;
}

/* Two dimensions become one, or one two; the batch may be one of them. */
static Val do_reshape(const Val *x, const Val *y)
{
    Dim d[MOST_RANK + 1];
    int rank = 0, i = below(x->rank);
    const bool merge = chance(50);
    (void)y;
    for (int k = 0; k < x->rank; k++) {
        d[rank] = x->d[k];
        if (merge && k == i && k + 1 < x->rank && times(x->d[k], x->d[k + 1], &d[rank]))
            k++;
        else if (!merge && k == i && rank + 1 < MOST_RANK) {
            const int by = divides(4, d[rank]) ? 4 : divides(2, d[rank]) ? 2 : 1;
            const bool before = chance(50) && k > 0;
            d[rank + !before] = of(by);
            d[rank + before] = quotient(x->d[k], by);
            rank++;
        }
        rank++;
    }
    return rank > 1 ? reshaped(x, rank, d) : *x;
}

/* [b, s, ...] as [b * s, ...], something of each row, and back */
static Val do_flat(const Val *x, const Val *y)
{
    Dim d[MOST_RANK];
    if (x->rank < 3 || !times(x->d[0], x->d[1], &d[0]))
        return *x;
    memcpy(d + 1, x->d + 2, (size_t)(x->rank - 2) * sizeof *d);
    Val v = reshaped(x, x->rank - 1, d);
    v = do_linear(&v, y);
    memcpy(d, x->d, sizeof(Dim) * 2);
    memcpy(d + 2, v.d + 1, (size_t)(v.rank - 1) * sizeof *d);
    return reshaped(&v, v.rank + 1, d);
}

static const char *sliced(const char *x, const char *begin, const char *end, int axis, long step)
{
    char in[256];
    snprintf(in, sizeof in, "%s %s %s %s %s", x, begin, end, integer(axis), integer(step));
    return emit("Slice", in);
}

static Val do_slice(const Val *x, const Val *y)
{
    Val v = *x;
    const int d = varied(x), by = 1 + below(2);
    (void)y;
    const char *begin = integer(0), *end = integer(1L << 40);
    long step = 1;
    switch (below(6)) {
    case 0: v.d[d] = plus(x->d[d], -1, of(by)), begin = integer(by); break;
    case 1: v.d[d] = plus(x->d[d], -1, of(by)), end = integer(-by); break;
    case 2: /* an end that is computed */
        v.d[d] = plus(x->d[d], -1, of(by));
        end = emit2("Sub", size(x->d[d]), integer(by));
        break;
    case 3: begin = integer(-1), end = integer(-(1L << 40)), step = -1; break;
    case 4:
        if (!divides(2, x->d[d]))
            return *x;
        v.d[d] = quotient(x->d[d], 2), step = 2, begin = integer(below(2));
        break;
    default:
        if (!divides(2, x->d[d]))
            return *x;
        v.d[d] = quotient(x->d[d], 2);
        if (chance(50))
            end = emit2("Div", size(x->d[d]), integer(2));
        else
            begin = emit2("Div", size(x->d[d]), integer(2));
    }
    return fits(&v) ? made(sliced(x->name, begin, end, d, step), &v) : *x;
}

static Val do_concat(const Val *x, const Val *y)
{
    Val v = *x, other = *x;
    const int d = axis_of(x);
    bool alike = x->rank == y->rank;
    for (int k = 0; k < x->rank && alike; k++)
        alike = k == d || same(x->d[k], y->d[k]);
    other = alike ? *y : chance(50) ? bounded(x) : *x;
    if (!alike && chance(50)) { /* something of one place, expanded */
        long one[MOST_RANK];
        for (int k = 0; k < x->rank; k++)
            one[k] = k != d && fixed(x->d[k]) ? x->d[k].c[0] : 1;
        other.d[d] = of(1);
        other = made(emit2("Expand", weights_of(x->rank, one), shape_text(x->rank, other.d, false)),
                     &other);
    }
    v.d[d] = plus(x->d[d], 1, other.d[d]);
    if (!fits(&v))
        return *x;
    attr_int("axis", chance(30) ? d - x->rank : d);
    return made(chance(50) ? emit2("Concat", x->name, other.name)
                           : emit2("Concat", other.name, x->name),
                &v);
}

static Val do_pad(const Val *x, const Val *y)
{
    static const char *const mode[] = {"constant", "reflect", "edge"};
    const char *how = mode[below(3)];
    long pads[2 * MOST_RANK] = {0};
    Val v = *x;
    const int d = varied(x);
    const long low = least_of(x->d[d]), can = !strcmp(how, "reflect") ? low - 1 : 2;
    (void)y;
    pads[d] = below((int)(can < 2 ? can : 2) + 1);
    pads[x->rank + d] = below((int)(can < 2 ? can : 2) + 1);
    v.d[d] = plus(x->d[d], 1, of((int)(pads[d] + pads[x->rank + d])));
    if (!fits(&v))
        return *x;
    Buf a = {0};
    put_string(&a, 1, "mode");
    put_string(&a, 4, how);
    put_int(&a, 20, 3);
    put_message(&attributes, 5, &a);
    return made(emit2("Pad", x->name, integers(2 * x->rank, pads)), &v);
}

/* So much behind it that it is as long as another dimension */
static Val do_pad_to(const Val *x, const Val *y)
{
    const int d = varied(x), e = varied(y);
    const Dim by = plus(y->d[e], -1, x->d[d]);
    Val v = *x;
    char all[512] = "";
    if (least_of(by) < 0)
        return *x;
    v.d[d] = y->d[e];
    if (!fits(&v))
        return *x;
    const char *amount = emit2("Sub", size_of(y, e), size(x->d[d]));
    for (int k = 0; k < 2 * x->rank; k++)
        strcat(strcat(all, " "), k == x->rank + d ? amount : integer(0));
    attr_int("axis", 0);
    const char *pads = emit("Concat", all);
    return made(emit2("Pad", x->name, pads), &v);
}

static Val do_tile(const Val *x, const Val *y)
{
    long by[MOST_RANK];
    Val v = *x;
    const int d = axis_of(x);
    (void)y;
    for (int k = 0; k < x->rank; k++)
        by[k] = k == d ? 2 : 1;
    v.d[d] = plus(x->d[d], 1, x->d[d]);
    return fits(&v) ? made(emit2("Tile", x->name, integers(x->rank, by)), &v) : *x;
}

#endif

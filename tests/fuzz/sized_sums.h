/*
 * sized_sums.h - operations of a model of several lengths: what adds up along a dimension, looks up
 * or chooses.
 */
#ifndef FUZZ_SIZED_SUMS_H
#define FUZZ_SIZED_SUMS_H

#include "sized_moves.h"

/* A sum over something, and it over all places once more */
static Val do_expand(const Val *x, const Val *y)
{
    Val v = *x;
    const int d = varied(x);
    attr_int("keepdims", 1);
    const char *one = emit2(chance(50) ? "ReduceMax" : "ReduceMean", x->name, integer(d));
    if (least_of(y->d[varied(y)]) >= 1 && chance(40))
        v.d[d] = y->d[varied(y)];
    if (!fits(&v))
        return *x;
    const char *to = shape_text(x->rank, v.d, false);
    return made(emit2("Expand", one, to), &v);
}

static void reduce_attrs(int d, int keeps)
{
    attr_ints("axes", 1, (long[]){d});
    attr_int("keepdims", keeps);
}

static Val do_reduce(const Val *x, const Val *y)
{
    static const char *const op[] = {"ReduceMean",      "ReduceMax",       "ReduceMin", "ReduceL2",
                                     "ReduceLogSumExp", "ReduceSumSquare", "ReduceL1"};
    Val v = *x;
    const int d = axis_of(x), keeps = x->rank < 3 || chance(40);
    const char *name = op[below(COUNT(op))];
    (void)y;
    if (keeps)
        v.d[d] = of(1);
    else
        memmove(v.d + d, v.d + d + 1, (size_t)(--v.rank - d) * sizeof *v.d);
    if (chance(30)) {
        attr_int("keepdims", keeps);
        return made(emit2("ReduceSum", x->name, integer(d)), &v);
    }
    Val in =
        !strcmp(name, "ReduceL2") ? made(emit2("Add", unary("Abs", x).name, real(0.1)), x) : *x;
    reduce_attrs(d, keeps);
    return made(emit(name, in.name), &v);
}

static Val do_softmax(const Val *x, const Val *y)
{
    static const char *const op[] = {"Softmax", "LogSoftmax", "Softmax"};
    const char *in = chance(30) ? emit2("Div", x->name, real(0.7)) : x->name;
    (void)y;
    attr_int("axis", axis_of(x));
    return made(emit(op[below(3)], in), x);
}

static Val do_norm(const Val *x, const Val *y)
{
    const int d = x->rank - 1;
    (void)y;
    if (fixed(x->d[d]) && chance(50)) {
        const long n = x->d[d].c[0];
        attr_int("axis", -1);
        return made(emit3("LayerNormalization", x->name, weights_of(1, &n), weights_of(1, &n)), x);
    }
    const int e = axis_of(x);
    reduce_attrs(e, 1);
    const char *mean = emit("ReduceMean", x->name), *left = emit2("Sub", x->name, mean),
               *square = emit2("Mul", left, left);
    reduce_attrs(e, 1);
    const char *var = emit("ReduceMean", square),
               *root = emit("Sqrt", emit2("Add", var, real(0.01)));
    return made(emit2("Div", left, root), x);
}

static Val do_group_norm(const Val *x, const Val *y)
{
    (void)y;
    if (x->rank < 3 || !fixed(x->d[1]))
        return *x;
    const long n = x->d[1].c[0];
    return made(emit3("InstanceNormalization", x->name, weights_of(1, &n), weights_of(1, &n)), x);
}

static Val causal(const Val *scores)
{
    const Dim *q = &scores->d[scores->rank - 2];
    const char *shape = shape_text(2, q, false), *all, *mask;
    if (chance(50)) {
        all = emit2("Expand", real(1), shape);
        attr_int("upper", 0);
        mask = emit("Trilu", all);
        mask = emit2("Greater", mask, real(0.5));
    } else {
        const char *rows = emit3("Range", emit("Squeeze", integer(0)), emit("Squeeze", size(q[0])),
                                 emit("Squeeze", integer(1))),
                   *cols = emit3("Range", emit("Squeeze", integer(0)), emit("Squeeze", size(q[1])),
                                 emit("Squeeze", integer(1)));
        mask = emit2("LessOrEqual", emit2("Unsqueeze", cols, integer(0)),
                     emit2("Unsqueeze", rows, integer(1)));
    }
    return made(emit3("Where", mask, scores->name, real(-1e30)), scores);
}

/* Softmax(q k^T) v of [b, n, w]; k and v are of y where it fits */
static Val do_attention(const Val *x, const Val *y)
{
    const int last = x->rank - 1;
    if (x->rank != 3 || !fixed(x->d[last]))
        return *x;
    const bool cross = y->rank == 3 && fixed(y->d[2]) && chance(60);
    const Val *m = cross ? y : x;
    const int heads = 1 + below(2);
    const long w = x->d[last].c[0], u = m->d[last].c[0], h = heads * 4;
    Val q = made(emit2("MatMul", x->name, weights_of(2, (long[]){w, h})), x),
        k = made(emit2("MatMul", m->name, weights_of(2, (long[]){u, h})), m),
        v = made(emit2("MatMul", m->name, weights_of(2, (long[]){u, h})), m);
    q.d[2] = k.d[2] = v.d[2] = of((int)h);
    if (heads > 1) {
        q = reshaped(&q, 4, (Dim[]){q.d[0], q.d[1], of(heads), of(4)});
        k = reshaped(&k, 4, (Dim[]){k.d[0], k.d[1], of(heads), of(4)});
        v = reshaped(&v, 4, (Dim[]){v.d[0], v.d[1], of(heads), of(4)});
        if (q.rank != 4 || k.rank != 4 || v.rank != 4)
            return *x;
        q = transposed(&q, 1, 2), k = transposed(&k, 1, 2), v = transposed(&v, 1, 2);
    }
    k = transposed(&k, k.rank - 2, k.rank - 1);
    Val scores = q;
    scores.d[q.rank - 1] = k.d[k.rank - 1];
    if (!fits(&scores))
        return *x;
    scores = made(emit2("MatMul", q.name, k.name), &scores);
    scores = made(emit2("Mul", scores.name, real(0.5)), &scores);
    if (!cross && chance(60))
        scores = causal(&scores);
    attr_int("axis", -1);
    const char *p = emit("Softmax", scores.name);
    q = made(emit2("MatMul", p, v.name), &q);
    if (heads > 1) {
        q = transposed(&q, 1, 2);
        q = reshaped(&q, 3, (Dim[]){q.d[0], q.d[1], of((int)h)});
    }
    return q;
}

/* x x^T, or of x and y: dimensions of both */
static Val do_product(const Val *x, const Val *y)
{
    const int last = x->rank - 1;
    if (x->rank != 3)
        return *x;
    const bool other = y->rank == 3 && same(x->d[2], y->d[2]);
    const Val *m = other ? y : x;
    Val v = *x;
    v.d[2] = m->d[1];
    if (!fits(&v))
        return *x;
    if (chance(40)) {
        Buf a = {0};
        put_string(&a, 1, "equation");
        put_string(&a, 4, "bsd,btd->bst");
        put_int(&a, 20, 3);
        put_message(&attributes, 5, &a);
        v = made(emit2("Einsum", x->name, m->name), &v);
    } else
        v = made(emit2("MatMul", x->name, transposed(m, 1, 2).name), &v);
    (void)last;
    return bounded(&v);
}

static void conv_attrs(long kernel, long stride, long dilation, long pad0, long pad1)
{
    attr_ints("kernel_shape", 1, &kernel);
    attr_ints("strides", 1, &stride);
    attr_ints("dilations", 1, &dilation);
    attr_ints("pads", 2, (long[]){pad0, pad1});
}

/* Along the last dimension of [b, channels, n] */
static Val do_conv(const Val *x, const Val *y)
{
    if (x->rank != 3)
        return *x;
    Val v = fixed(x->d[1]) ? *x : transposed(x, 1, 2);
    (void)y;
    if (!fixed(v.d[1]))
        return *x;
    const long c = v.d[1].c[0], out = 2 * (1 + below(3)), kernel = 1 + below(4),
               groups = c % 2 == 0 && chance(30) ? 2 : 1;
    const bool half = divides(2, v.d[2]) && chance(50) && kernel > 1;
    const long dilation = half ? 1 : 1 + below(2), reach = dilation * (kernel - 1),
               pad = half ? (kernel - 2) / 2 : below((int)reach + 1),
               rest = half ? kernel - 2 - pad : below((int)reach + 1);
    Val z = v;
    z.d[1] = of((int)out);
    z.d[2] = half ? quotient(v.d[2], 2) : plus(v.d[2], 1, of((int)(pad + rest - reach)));
    if (!fits(&z))
        return *x;
    const char *w = weights_of(3, (long[]){out, c / groups, kernel});
    conv_attrs(kernel, half ? 2 : 1, dilation, pad, rest);
    attr_int("group", groups);
    return made(
        chance(50) ? emit2("Conv", v.name, w) : emit3("Conv", v.name, w, weights_of(1, &out)), &z);
}

static Val do_conv_transpose(const Val *x, const Val *y)
{
    (void)y;
    if (x->rank != 3 || !fixed(x->d[1]))
        return *x;
    const long c = x->d[1].c[0], out = 1 + below(5), kernel = 2 + below(2);
    Val z = *x;
    z.d[1] = of((int)out);
    z.d[2] = plus(plus(x->d[2], 1, x->d[2]), 1, of((int)kernel - 2));
    if (!fits(&z))
        return *x;
    const char *w = weights_of(3, (long[]){c, out, kernel});
    conv_attrs(kernel, 2, 1, 0, 0);
    return made(emit2("ConvTranspose", x->name, w), &z);
}

static Val do_pool(const Val *x, const Val *y)
{
    Val v = *x;
    (void)y;
    if (x->rank != 3)
        return *x;
    const bool half = divides(2, x->d[2]) && chance(60);
    const long kernel = 2 + below(2), pad = half ? 0 : below(2);
    if (half && kernel == 3)
        return *x;
    v.d[2] = half ? quotient(x->d[2], 2) : plus(x->d[2], 1, of((int)(2 * pad + 1 - kernel)));
    if (!fits(&v))
        return *x;
    attr_ints("kernel_shape", 1, &kernel);
    attr_ints("strides", 1, (long[]){half ? 2 : 1});
    attr_ints("pads", 2, (long[]){pad, pad});
    const bool largest = chance(50);
    if (!largest && chance(50))
        attr_int("count_include_pad", 1);
    return made(emit(largest ? "MaxPool" : "AveragePool", x->name), &v);
}

static Val do_resize(const Val *x, const Val *y)
{
    static const char *const how[][2] = {{"nearest", "asymmetric"},
                                         {"linear", "half_pixel"},
                                         {"linear", "align_corners"},
                                         {"nearest", "half_pixel"}};
    const int k = below(4);
    Val v = *x;
    (void)y;
    if (x->rank != 3)
        return *x;
    v.d[2] = plus(x->d[2], 1, x->d[2]);
    if (!fits(&v))
        return *x;
    const bool sizes = chance(50);
    static const float scale[3] = {1, 1, 2};
    const char *to = sizes ? shape_text(3, v.d, false) : name_of('k', n_name++);
    if (!sizes)
        initializer(to, F32, 1, (long[]){3}, scale, sizeof scale);
    Buf n = {0};
    const char *out = fresh();
    put_string(&n, 1, x->name), put_string(&n, 1, ""), put_string(&n, 1, sizes ? "" : to);
    if (sizes)
        put_string(&n, 1, to);
    put_string(&n, 2, out), put_string(&n, 4, "Resize");
    for (int i = 0; i < 2; i++) {
        Buf a = {0};
        put_string(&a, 1, i ? "coordinate_transformation_mode" : "mode");
        put_string(&a, 4, how[k][i]);
        put_int(&a, 20, 3);
        put_message(&n, 5, &a);
    }
    put_message(&graph, 1, &n);
    return made(out, &v);
}

static Val do_cumsum(const Val *x, const Val *y)
{
    (void)y;
    const Val in = bounded(x);
    attr_int("exclusive", below(2));
    attr_int("reverse", below(2));
    return made(emit2("CumSum", in.name, integer(axis_of(x))), x);
}

static Val do_topk(const Val *x, const Val *y)
{
    const int d = axis_of(x);
    Val v = *x;
    const char *values = fresh(), *index = fresh();
    (void)y;
    const long low = least_of(x->d[d]), k = 1 + below((int)(low < 3 ? low : 3));
    const bool all = chance(30);
    v.d[d] = all ? x->d[d] : of((int)k);
    const char *many = all ? size(x->d[d]) : integer(k);
    attr_int("axis", d);
    node("", f("_%d", n_name), "TopK", join(values, index, ""), join(x->name, many, ""));
    if (chance(50))
        return made(values, &v);
    attr_int("axis", d);
    return made(emit2("GatherElements", x->name, index), &v);
}

static Val do_where(const Val *x, const Val *y)
{
    const char *mask = emit2("Greater", all_same(x, y) ? y->name : x->name, real(0.1));
    return made(emit3("Where", mask, x->name, chance(50) ? real(-0.5) : fitting(x)), x);
}

static const char *positions(Dim n)
{
    const char *zero = emit("Squeeze", integer(0)), *one = emit("Squeeze", integer(1));
    return emit3("Range", zero, emit("Squeeze", size(n)), one);
}

/* A number for each place, from where it is or from how many there are */
static Val do_positions(const Val *x, const Val *y)
{
    const int d = varied(x);
    (void)y;
    const char *n = as_float(chance(70) ? positions(x->d[d]) : size(x->d[d]));
    if (chance(40))
        n = emit2("Div", n, as_float(size(x->d[d])));
    else if (chance(50))
        n = emit("Sin", n);
    long axes[MOST_RANK];
    for (int k = d + 1; k < x->rank; k++)
        axes[k - d - 1] = k - d;
    const char *wide = d + 1 < x->rank ? emit2("Unsqueeze", n, integers(x->rank - d - 1, axes)) : n;
    return made(emit2(chance(50) ? "Mul" : "Add", x->name, wide), x);
}

/* A table of positions, as long as the greatest length, looked up or cut off */
static Val do_table(const Val *x, const Val *y)
{
    const int d = x->rank - 2;
    (void)y;
    if (x->rank < 2 || d < 1 || !fixed(x->d[d + 1]) || fixed(x->d[d]))
        return *x;
    const long all = at_lengths(x->d[d], (long[]){ROWS, most[S], most[T]}) + below(3);
    const char *table = weights_of(2, (long[]){all, x->d[d + 1].c[0]});
    const char *part = chance(50) ? emit2("Gather", table, positions(x->d[d]))
                                  : sliced(table, integer(0), size(x->d[d]), 0, 1);
    return made(emit2("Add", x->name, part), x);
}

/* One place, counted from the end or the beginning */
static Val do_gather(const Val *x, const Val *y)
{
    const int d = varied(x);
    Val v = *x;
    (void)y;
    const char *one = chance(50)
                          ? emit2("Sub", size(x->d[d]), integer(1))
                          : integer(-below((int)(least_of(x->d[d]) < 3 ? least_of(x->d[d]) : 3)));
    v.d[d] = of(1);
    attr_int("axis", d);
    return made(emit2("Gather", x->name, one), &v);
}

/* The places in another order: reversed, or those of the greatest elements */
static Val do_gather_elements(const Val *x, const Val *y)
{
    const int d = varied(x);
    (void)y;
    if (chance(50)) {
        const char *back =
            emit2("Sub", emit2("Sub", size(x->d[d]), integer(1)), positions(x->d[d]));
        attr_int("axis", d);
        return made(emit2("Gather", x->name, back), x);
    }
    attr_int("axis", d), attr_int("keepdims", 1);
    const char *best = emit("ArgMax", x->name);
    Val v = *x;
    v.d[d] = of(1);
    attr_int("axis", d);
    return made(emit2("GatherElements", x->name, best), &v);
}

static Val do_scatter(const Val *x, const Val *y)
{
    const int d = varied(x);
    (void)y;
    attr_int("axis", d), attr_int("keepdims", 1);
    const char *at = emit("ArgMax", x->name);
    const Val small = bounded(x);
    attr_int("keepdims", 1);
    const char *update = emit2("ReduceMax", small.name, integer(d));
    Buf a = {0};
    put_string(&a, 1, "reduction");
    put_string(&a, 4, "add");
    put_int(&a, 20, 3);
    attr_int("axis", d);
    put_message(&attributes, 5, &a);
    return made(emit3("ScatterElements", x->name, at, update), x);
}

/* The first place of each row is set: as an exporter writes x[:, 0] = u, or x[:, -1] */
static Val do_scatter_nd(const Val *x, const Val *y)
{
    (void)y;
    if (x->rank < 3)
        return *x;
    Val t = transposed(x, 0, 1);
    const char *at = chance(50) ? emit2("Sub", size(x->d[1]), integer(1)) : integer(0);
    const char *index = emit2("Unsqueeze", at, integer(1));
    const char *one = sliced(bounded(&t).name, integer(0), integer(1), 0, 1);
    t = made(emit3("ScatterND", t.name, index, one), &t);
    return transposed(&t, 0, 1);
}

static Val do_one_hot(const Val *x, const Val *y)
{
    const int d = varied(x);
    Val v = *x;
    (void)y;
    static const float off_on[2] = {0, 1};
    const char *values = name_of('o', n_name++);
    const bool all = chance(50);
    initializer(values, F32, 1, (long[]){2}, off_on, sizeof off_on);
    attr_int("axis", d), attr_int("keepdims", 0);
    const char *best = emit("ArgMax", x->name);
    v.d[d] = all ? x->d[d] : of(3);
    const char *depth = all ? size(x->d[d]) : integer(3);
    attr_int("axis", d);
    v = made(emit3("OneHot", best, depth, values), &v);
    return all ? made(emit2("Mul", v.name, x->name), &v)
               : made(emit2("Mul", v.name, fitting(&v)), &v);
}

static Val do_split(const Val *x, const Val *y)
{
    const int d = varied(x);
    Val v = *x;
    const char *first = fresh(), *second = fresh();
    const bool halves = divides(2, x->d[d]) && chance(60);
    (void)y;
    Dim part[2] = {halves ? quotient(x->d[d], 2) : of(1),
                   halves ? quotient(x->d[d], 2) : plus(x->d[d], -1, of(1))};
    if (least_of(part[1]) < 1)
        return *x;
    const char *sizes = shape_text(2, part, false);
    attr_int("axis", d);
    node("", f("_%d", n_name), "Split", join(first, second, ""), join(x->name, sizes, ""));
    v.d[d] = part[1];
    if (halves) {
        Val a = made(first, &v), b = made(second, &v);
        return chance(50) ? made(emit2("Mul", a.name, bounded(&b).name), &v) : b;
    }
    return made(second, &v);
}

static Val do_unsqueeze(const Val *x, const Val *y)
{
    Val v = *x;
    const int d = axis_of(x);
    (void)y;
    if (x->rank >= 4)
        return *x;
    memmove(v.d + d + 1, v.d + d, (size_t)(v.rank - d) * sizeof *v.d);
    v.d[d] = of(1), v.rank++;
    return made(emit2("Unsqueeze", x->name, integer(d)), &v);
}

static Val do_squeeze(const Val *x, const Val *y)
{
    Val v = *x;
    (void)y;
    for (int d = 1; d < x->rank && x->rank > 2; d++)
        if (same(x->d[d], of(1))) {
            memmove(v.d + d, v.d + d + 1, (size_t)(--v.rank - d) * sizeof *v.d);
            return made(emit2("Squeeze", x->name, integer(d)), &v);
        }
    return *x;
}

#endif

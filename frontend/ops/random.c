/*
 * random.c - random numbers to core ops: uniform and normal ones, Bernoulli's and those of a
 * multinomial distribution.  All are made of Random, numbers in (0, 1) that depend on the run's
 * seed, the step, the row of the minibatch and the place alone (runtime/api/pp_random.h): the same
 * ones in every split, schedule and recomputation.  A node with a seed of its own draws by that
 * instead of the run's, two with the same seed the same numbers.  Nothing of it has a gradient;
 * what is computed with it, as noise that is scaled and added, has.
 */
#include "frontend/low/low.h"

#include <string.h>

/* The node's own seed plus 1; 0: it has none. */
static int64_t seed_of(const Import *im)
{
    float seed = (float)im_float(im, "seed", 0);
    uint32_t bits;
    memcpy(&bits, &seed, sizeof bits);
    return im_has(im, "seed") ? (int64_t)bits + 1 : 0;
}

/* The number-th draw of the node, of like's shape, in f32 or f64. */
static ValueId draw(const Import *im, ValueId like, Dtype t, int number)
{
    Graph *g = im->g;
    int64_t seed = seed_of(im);
    Attr at = {.to = t, .key = seed ? number : g->numbers.draws++, .seed = seed};
    return graph_node(g, OP_Random, 1, &like, at);
}

/* What gives the shape: operand 0, or attribute `shape`. */
static ValueId like_of(const Import *im)
{
    int64_t *at;
    int n;
    if (im->nin > 0)
        return low_need(im, 0);
    if (!im_ints(im, "shape", &at, &n))
        low_fatal(im, -1, "attribute 'shape' is missing");
    const Shape s = low_dims(im, -1, at, n, 0);
    return g_full(im->g, DT_F32, &s, 0);
}

/* Type of the result, as the file says it. */
static Dtype type_of(Import *im)
{
    Dtype like = im->nin > 0 ? im_declared(im, 0) : DT_F32;
    if (like == DT_NONE)
        like = low_dtype(im->g, low_need(im, 0));
    im->declared = im_dtype(im, "dtype", like);
    Dtype t = dtype_held(im->declared);
    if (t == DT_NONE)
        low_fatal(im, -1, "the type is not supported");
    return t;
}

static Dtype drawn_type(const Import *im, Dtype t)
{
    if (!dtype_is_float(t))
        low_fatal(im, -1, "numbers of %s", dtype_name(t));
    return t == DT_F64 ? DT_F64 : DT_F32;
}

/* x * scale + shift */
static ValueId moved(Graph *g, ValueId x, double scale, double shift)
{
    return g_formula(g, shift == 0 ? "x, double k: x * k" : "x, double k, double d: x * k + d", x,
                     scale, shift);
}

void import_random_uniform(Import *im)
{
    double low = im_float(im, "low", 0), high = im_float(im, "high", 1);
    Dtype t = type_of(im);
    ValueId u = draw(im, like_of(im), drawn_type(im, t), 0);
    im->out[0] = g_cast(im->g, moved(im->g, u, high - low, low), t);
}

/* sqrt(-2 log u) cos(2 pi v)  (Box, Muller, "A note on the generation of random normal deviates",
 * 1958) */
void import_random_normal(Import *im)
{
    Graph *g = im->g;
    Dtype t = type_of(im), drawn = drawn_type(im, t);
    ValueId like = like_of(im), u = draw(im, like, drawn, 0), v = draw(im, like, drawn, 1);
    ValueId z = g_formula(g, "u, v: Sqrt(Log(u) * -2) * Cos(v * 6.283185307179586)", u, v);
    im->out[0] = g_cast(g, moved(g, z, im_float(im, "scale", 1), im_float(im, "mean", 0)), t);
}

void import_bernoulli(Import *im)
{
    Graph *g = im->g;
    ValueId p = low_need_float(im, 0);
    Dtype t = type_of(im), drawn = low_dtype(g, p) == DT_F64 ? DT_F64 : DT_F32;
    ValueId u = draw(im, p, drawn, 0);
    im->out[0] = g_cast(g, g_binary(g, OP_Less, u, g_cast(g, p, drawn)), t);
}

/* Of each row of logarithms of probabilities, sample_size times: how many classes end below u, of
 * the sums of probabilities from the first class on. */
void import_multinomial(Import *im)
{
    Graph *g = im->g;
    Shape s = low_need_rank(im, 0, 2, 2);
    ValueId x = low_need_float(im, 0);
    int64_t samples = im_int(im, "sample_size", 1), to = im_int(im, "dtype", DT_I32);
    if (samples < 1 || s.d[1] < 1 || (to != DT_I32 && to != DT_I64))
        low_fatal(im, -1, "%lld samples of %lld classes as %s", (long long)samples,
                  (long long)s.d[1], dtype_name((Dtype)to));
    Dtype t = low_dtype(g, x) == DT_F64 ? DT_F64 : DT_F32;
    ValueId p = g_softmax(g, g_cast(g, x, t), 1);
    ValueId ends = graph_node(g, OP_CumSum, 1, &p, (Attr){.axis = 1});
    ValueId total = g_slice_axis(g, ends, 1, s.d[1] - 1, 1);
    ValueId like = g_expand(g, total, &(Shape){2, {s.d[0], samples}});
    ValueId at = g_mul(g, draw(im, like, t, 0), total);
    ends = g_reshape(g, ends, &(Shape){3, {s.d[0], 1, s.d[1]}});
    at = g_reshape(g, at, &(Shape){3, {s.d[0], samples, 1}});
    ValueId below = g_cast(g, g_binary(g, OP_LessOrEqual, ends, at), DT_I64),
            count = g_reduce_last(g, OP_ReduceSum, below);
    im->out[0] = g_cast(g, g_reshape(g, count, &(Shape){2, {s.d[0], samples}}), (Dtype)to);
    im->declared = (Dtype)to;
}

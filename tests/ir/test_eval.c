/*
 * test_eval.c - the evaluator against PyTorch.  Operands are filled with ((i * 7 + 3) % m) - m / 2;
 * a result is compared with PyTorch's by shape and by the sum of x[i] * (i % 13 + 1), which for
 * these operands is exact.
 */
#include <math.h>
#include <string.h>

#include "frontend/frontend.h"
#include "oracle/oracle.h"
#include "tap.h"

static Arena *arena;

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})
#define I(...) ((const int64_t[]){__VA_ARGS__})

static Tensor tensor(Dtype t, Shape s)
{
    return (Tensor){t, s, arena_calloc(arena, (size_t)shape_elements(&s), dtype_size(t))};
}

static Tensor fill_mod(Shape s, int m)
{
    Tensor t = tensor(DT_F64, s);
    for (int64_t i = 0; i < shape_elements(&s); i++)
        ((double *)t.data)[i] = (double)((i * 7 + 3) % m - m / 2);
    return t;
}

static Tensor fill(Shape s) { return fill_mod(s, 11); }

static Tensor ints(Shape s, const int64_t *v)
{
    Tensor t = tensor(DT_I64, s);
    memcpy(t.data, v, (size_t)shape_elements(&s) * 8);
    return t;
}

static Tensor doubles(int n, const double *v)
{
    Tensor t = tensor(DT_F64, S(n));
    memcpy(t.data, v, (size_t)n * 8);
    return t;
}

static Tensor cast(Tensor x, Dtype to)
{
    Tensor out = {.dtype = to, .shape = x.shape};
    eval_node(arena, OP_Cast, 1, &x, &(Attr){.to = to}, 1, &out);
    return out;
}

static double digest(Tensor t)
{
    double sum = 0;
    const double *v = cast(t, DT_F64).data;
    for (int64_t i = 0; i < shape_elements(&t.shape); i++)
        sum += v[i] * (double)(i % 13 + 1);
    return sum;
}

/* Runs the op through the graph's shape inference on inputs, so that nothing folds. */
static Tensor run(Op op, uint32_t n, const Tensor *in, Attr attr, uint32_t output)
{
    Graph *g = graph_new(arena, "test");
    ValueId v[4];
    for (uint32_t i = 0; i < n; i++)
        v[i] = graph_input(g, arena_printf(arena, "x%u", i), in[i].dtype, &in[i].shape);
    ValueId r = graph_node(g, op, n, v, attr);
    Tensor *at = arena_array(arena, Tensor, g->value.n);
    for (uint32_t i = 0; i < n; i++)
        at[v[i]] = in[i];
    NodeId node = val(g, r)->node;
    oracle_nodes(g, arena, &node, 1, at);
    return at[graph_out(g, r, output)];
}

static void is(Tensor t, Shape s, double want, const char *what)
{
    double got = digest(t);
    if (!ok(shape_equal(&t.shape, &s) && fabs(got - want) <= 1e-11 * (1 + fabs(want)), "%s", what))
        printf("# %s, sum %.17g, should be %.17g\n", shape_print(arena, t.dtype, &t.shape), got,
               want);
}

#define IN(...) (sizeof((Tensor[]){__VA_ARGS__}) / sizeof(Tensor)), (Tensor[]){__VA_ARGS__}

static void test_conv(void)
{
    Tensor x = fill(S(2, 4, 7, 6)), w = fill(S(6, 2, 3, 2)), x3 = fill(S(1, 2, 4, 5, 4)),
           x1 = fill(S(2, 3, 9));
    Attr c2 = {.group = 2,
               .n = 2,
               .stride = I(2, 1),
               .dilation = I(1, 2),
               .pad = I(1, 0, 2, 1),
               .weight_dims = I(6, 2, 3, 2)};
    is(run(OP_Conv, IN(x, w), c2, 0), S(2, 6, 4, 5), -2752,
       "2-d convolution, groups, strides, dilations, uneven pads");
    is(run(OP_ConvWeightGrad, IN(x, fill(S(2, 6, 4, 5))), c2, 0), S(6, 2, 3, 2), -911,
       "its weight gradient");
    is(run(OP_Conv, IN(x1, fill(S(4, 3, 3))), (Attr){.n = 1, .dilation = I(2), .pad = I(2, 2)}, 0),
       S(2, 4, 9), 651, "1-d convolution");
    is(run(OP_Conv, IN(x3, fill(S(3, 2, 2, 3, 2))),
           (Attr){.n = 3, .stride = I(2, 2, 2), .pad = I(1, 1, 1, 1, 1, 1)}, 0),
       S(1, 3, 3, 3, 3), -668, "3-d convolution");
    Attr ct = {.group = 2,
               .n = 2,
               .stride = I(2, 3),
               .dilation = I(1, 2),
               .pad = I(1, 0, 1, 0),
               .out_dims = I(6, 12)};
    is(run(OP_ConvTranspose, IN(fill(S(2, 4, 3, 4)), fill(S(4, 3, 3, 2))), ct, 0), S(2, 6, 6, 12),
       1409, "transposed convolution");
    Attr pool = {
        .n = 2, .stride = I(2, 2), .pad = I(1, 0, 1, 0), .kernel = I(3, 2), .ceil_mode = 1};
    is(run(OP_MaxPool, IN(x), pool, 0), S(2, 4, 4, 3), 2572, "max pool with ceil mode");
    is(run(OP_MaxPool, IN(x), pool, 1), S(2, 4, 4, 3), 109570,
       "its indices count over the whole operand");
    is(run(OP_MaxPool, IN(x1), (Attr){.n = 1, .stride = I(2), .dilation = I(2), .kernel = I(3)}, 0),
       S(2, 3, 3), 302, "dilated 1-d max pool");
    Attr average = {
        .n = 2, .stride = I(2, 1), .pad = I(1, 1, 1, 1), .kernel = I(3, 2), .ceil_mode = 1};
    is(run(OP_AveragePool, IN(x), average, 0), S(2, 4, 4, 7), -29.416666666666657,
       "average pool without its padding");
    average.count_include_pad = 1;
    is(run(OP_AveragePool, IN(x), average, 0), S(2, 4, 4, 7), -29.5,
       "average pool with its padding");
    is(run(OP_AveragePool, IN(x3), (Attr){.n = 3, .stride = I(2, 2, 2), .kernel = I(2, 2, 2)}, 0),
       S(1, 2, 2, 2, 2), 3.625, "3-d average pool");
    is(run(OP_MatMul, IN(fill(S(2, 1, 3, 4)), fill(S(5, 4, 2))), (Attr){0}, 0), S(2, 5, 3, 2), -351,
       "broadcast matrix product");
    is(run(OP_MatMul, IN(cast(fill(S(2, 1, 3, 4)), DT_I64), cast(fill(S(5, 4, 2)), DT_I64)),
           (Attr){0}, 0),
       S(2, 5, 3, 2), -351, "the same of integers");
}

static void test_move(void)
{
    Tensor a = fill(S(2, 3, 4)), a4 = ints(S(1, 1, 4), I(2, 0, 2, 1)),
           index = {.dtype = DT_I64, .shape = S(2, 2, 4)};
    eval_node(arena, OP_Expand, 1, &a4, &(Attr){.n = 3, .dims = I(2, 2, 4)}, 1, &index);
    Attr pad = {.n = 3, .begin = I(0, 0, 2), .end = I(0, 0, 1)};
    pad.mode = PAD_REFLECT;
    is(run(OP_Pad, IN(a), pad, 0), S(2, 3, 7), -24, "pad by reflection");
    pad.mode = PAD_EDGE;
    is(run(OP_Pad, IN(a), pad, 0), S(2, 3, 7), 23, "pad by the edge");
    pad.mode = PAD_WRAP;
    is(run(OP_Pad, IN(a), pad, 0), S(2, 3, 7), 14, "pad by wrapping");
    is(run(OP_Pad, IN(a), (Attr){.n = 3, .begin = I(0, 0, 2), .end = I(0, 3, 1), .value = 1.5}, 0),
       S(2, 6, 7), 659, "pad by a constant");
    is(run(OP_Slice, IN(a),
           (Attr){.n = 3, .start = I(0, 2, 1), .size = I(2, 3, 2), .step = I(1, -1, 2)}, 0),
       S(2, 3, 2), 77, "slice backwards");
    is(run(OP_Transpose, IN(a), (Attr){.n = 3, .perm = I(2, 0, 1)}, 0), S(4, 2, 3), 47,
       "transpose");
    is(run(OP_GatherElements, IN(a, index), (Attr){.axis = 1}, 0), S(2, 2, 4), -50,
       "gather of elements");
    is(run(OP_GatherND, IN(a, ints(S(2, 2), I(1, 2, 0, -3))), (Attr){0}, 0), S(2, 4), 16,
       "gather by tuples, one from the end");
    is(run(OP_GatherND, IN(a, ints(S(2, 1, 1), I(2, 0))), (Attr){.axis = 1}, 0), S(2, 1, 4), 29,
       "gather by tuples in batches");
    Tensor five = fill_mod(S(2, 2, 4), 5),
           fifteen = run(OP_Mul, IN(five, doubles(1, (double[]){3})), (Attr){0}, 0);
    is(run(OP_ScatterElements, IN(a, index, five), (Attr){.axis = 1, .reduction = SCATTER_ADD}, 0),
       S(2, 3, 4), 32, "scatter adds");
    is(run(OP_ScatterElements, IN(a, index, five), (Attr){.axis = 1, .reduction = SCATTER_MUL}, 0),
       S(2, 3, 4), 70, "scatter multiplies");
    is(run(OP_ScatterElements, IN(a, index, fifteen), (Attr){.axis = 1, .reduction = SCATTER_MAX},
           0),
       S(2, 3, 4), 261, "scatter of maxima");
    is(run(OP_ScatterND, IN(a, ints(S(3, 2), I(1, 2, 0, 1, 1, 2)), fill_mod(S(3, 4), 7)),
           (Attr){.reduction = SCATTER_ADD}, 0),
       S(2, 3, 4), 30, "scatter by tuples adds where two meet");
    Attr parts = {.axis = 2, .n = 2, .sizes = I(1, 3)};
    Tensor p0 = run(OP_Split, IN(a), parts, 0), p1 = run(OP_Split, IN(a), parts, 1);
    is(run(OP_Concat, IN(p0, p1), (Attr){.axis = 2}, 0), S(2, 3, 4), digest(a),
       "concat undoes split");
    is(run(OP_Gather, IN(a, ints(S(2), I(-1, 0))), (Attr){.axis = 2}, 0), S(2, 3, 2),
       digest(run(OP_Slice, IN(a),
                  (Attr){.n = 3, .start = I(0, 0, 3), .size = I(2, 3, 2), .step = I(1, 1, -3)}, 0)),
       "gather is a slice");
}

static void test_reduce(void)
{
    Tensor a = fill(S(2, 3, 4)), b = fill(S(2, 3, 5)),
           quarter = run(OP_Div, IN(a, doubles(1, (double[]){4})), (Attr){0}, 0);
    is(run(OP_ReduceSum, IN(a), (Attr){.n = 2, .axes = I(0, 2)}, 0), S(1, 3, 1), -8, "sum");
    is(run(OP_ReduceMean, IN(a), (Attr){.n = 2, .axes = I(0, 2)}, 0), S(1, 3, 1), -1, "mean");
    is(run(OP_ReduceMax, IN(a), (Attr){.n = 1, .axes = I(1)}, 0), S(2, 1, 4), 130, "maximum");
    is(run(OP_ReduceMin, IN(cast(a, DT_I32)), (Attr){.n = 2, .axes = I(1, 2)}, 0), S(2, 1, 1), -15,
       "minimum of integers");
    is(run(OP_ReduceProd, IN(a), (Attr){.n = 1, .axes = I(2)}, 0), S(2, 3, 1), 330, "product");
    is(run(OP_ReduceProd, IN(cast(a, DT_I64)), (Attr){.n = 1, .axes = I(2)}, 0), S(2, 3, 1), 330,
       "product of integers");
    is(run(OP_ArgMax, IN(fill_mod(S(2, 3, 5), 3)), (Attr){.axis = 2}, 0), S(2, 3, 1), 19,
       "position of the maximum, first of equals");
    is(run(OP_CumSum, IN(a), (Attr){.axis = 1}, 0), S(2, 3, 4), 149, "running sum");
    is(run(OP_CumSum, IN(cast(a, DT_I64)), (Attr){.axis = 2, .scan = CUMSUM_REVERSE}, 0),
       S(2, 3, 4), 111, "from the end, integers");
    is(run(OP_CumSum, IN(a), (Attr){.axis = 2, .scan = CUMSUM_EXCLUSIVE}, 0), S(2, 3, 4), -186,
       "exclusive");
    Attr top = {.axis = 1, .k = 2, .largest = 1}, bottom = {.axis = 2, .k = 3};
    is(run(OP_TopK, IN(b), (Attr){.axis = 1, .k = 3, .largest = 1}, 0), S(2, 3, 5), -39,
       "sorted downwards");
    is(run(OP_TopK, IN(b), top, 1), S(2, 2, 5), 150, "where the two greatest were");
    is(run(OP_TopK, IN(b), bottom, 1), S(2, 3, 3), 216, "where the three least were");
    is(run(OP_Softmax, IN(quarter), (Attr){.axis = 1}, 0), S(2, 3, 4), 53.962894458154786,
       "softmax");
    is(run(OP_LogSoftmax, IN(quarter), (Attr){.axis = 2}, 0), S(2, 3, 4), -247.6457627100082,
       "log-softmax");
    is(run(OP_LogSoftmax, IN(quarter), (Attr){.axis = 0}, 0), S(2, 3, 4), -134.05123212227068,
       "log-softmax along the first axis");
    is(run(OP_Count, IN(a), (Attr){.n = 2, .axes = I(0, 2), .to = DT_F32}, 0), (Shape){0}, 8,
       "count");
}

typedef struct { Op op; double want[5]; } Row;

static void check_rows(const Row *row, size_t n, const double *x, const double *y)
{
    for (size_t k = 0; k < n; k++) {
        Tensor t = y ? run(row[k].op, IN(doubles(5, x), doubles(5, y)), (Attr){0}, 0)
                     : run(row[k].op, IN(doubles(5, x)), (Attr){0}, 0);
        bool good = true;
        for (int i = 0; i < 5; i++)
            good = good && fabs(((double *)t.data)[i] - row[k].want[i]) <=
                               4e-16 * fabs(row[k].want[i]) + 1e-300;
        ok(good, "%s", op_name(row[k].op));
    }
}

static void test_map(void)
{
    static const double x[5] = {-2.5, -0.75, 0.0, 0.3, 1.25}, u[5] = {-0.9, -0.5, 0, 0.25, 0.75},
                        q[5] = {3.5, 1.75, 1, 1.3, 2.25};
    static const double r[5] = {2, -2, 0.5, -1.5, 3};
    static const Row any[] =
        {
            {OP_Neg, {2.5, 0.75, -0.0, -0.3, -1.25}},
            {OP_Abs, {2.5, 0.75, 0.0, 0.3, 1.25}},
            {OP_Sign, {-1, -1, 0, 1, 1}},
            {OP_Exp,
             {0.0820849986238988, 0.4723665527410147, 1.0, 1.3498588075760032, 3.4903429574618414}},
            {OP_Sin,
             {-0.5984721441039565, -0.6816387600233341, 0.0, 0.29552020666133955,
              0.9489846193555862}},
            {OP_Cos,
             {-0.8011436155469337, 0.7316888688738209, 1.0, 0.955336489125606, 0.3153223623952687}},
            {OP_Tan,
             {0.7470222972386603, -0.9315964599440725, 0.0, 0.3093362496096232,
              3.0095696738628313}},
            {OP_Sinh,
             {-6.0502044810397875, -0.82231673193583, 0.0, 0.3045202934471426, 1.6019190803008256}},
            {OP_Cosh,
             {6.132289479663686, 1.2946832846768448, 1.0, 1.0453385141288605, 1.8884238771610158}},
            {OP_Tanh,
             {-0.9866142981514303, -0.6351489523872873, 0.0, 0.2913126124515909,
              0.8482836399575129}},
            {OP_Asinh,
             {-1.6472311463710958, -0.6931471805599453, 0.0, 0.29567304756342244,
              1.0475930126492587}},
            {OP_Erf,
             {-0.999593047982555, -0.7111556336535151, 0.0, 0.3286267594591274,
              0.9229001282564583}},
            {OP_Sigmoid,
             {0.07585818002124355, 0.320821300824607, 0.5, 0.574442516811659, 0.7772998611746911}},
            {OP_Softplus,
             {0.07888973429254963, 0.38687100611489994, 0.6931471805599453, 0.8543552444685272,
              1.501929081345373}},
            {OP_Relu, {0, 0, 0, 0.3, 1.25}},
            {OP_Floor, {-3, -1, 0, 0, 1}},
            {OP_Ceil, {-2, 0, 0, 1, 2}},
            {OP_Round, {-2, -1, 0, 0, 1}},
            {OP_Atan,
             {-1.1902899496825317, -0.6435011087932844, 0.0, 0.2914567944778671,
              0.8960553845713439}},
        },
                     unit[] =
                         {
                             {OP_Asin,
                              {-1.1197695149986342, -0.5235987755982989, 0.0, 0.25268025514207865,
                               0.848062078981481}},
                             {OP_Acos,
                              {2.6905658417935308, 2.0943951023931957, 1.5707963267948966,
                               1.318116071652818, 0.7227342478134156}},
                             {OP_Atan,
                              {-0.7328151017865066, -0.4636476090008061, 0.0, 0.24497866312686414,
                               0.6435011087932844}},
                             {OP_Atanh,
                              {-1.4722194895832204, -0.5493061443340548, 0.0, 0.25541281188299536,
                               0.9729550745276566}},
                         },
                     positive[] =
                         {
                             {OP_Log,
                              {1.252762968495368, 0.5596157879354227, 0.0, 0.26236426446749106,
                               0.8109302162163288}},
                             {OP_Sqrt,
                              {1.8708286933869707, 1.3228756555322954, 1.0, 1.140175425099138,
                               1.5}},
                             {OP_Reciprocal,
                              {0.2857142857142857, 0.5714285714285714, 1.0, 0.7692307692307692,
                               0.4444444444444444}},
                             {OP_Acosh,
                              {1.9248473002384139, 1.158810360429947, 0.0, 0.7564329108569596,
                               1.45057451382258}},
                         },
                     binary[] =
                         {
                             {OP_Mod, {1.5, -0.75, 0.0, -1.2, 1.25}},
                             {OP_Fmod, {-0.5, -0.75, 0.0, 0.3, 1.25}},
                             {OP_Add, {-0.5, -2.75, 0.5, -1.2, 4.25}},
                             {OP_Sub, {-4.5, 1.25, -0.5, 1.8, -1.75}},
                             {OP_Mul, {-5, 1.5, 0, -0.3 * 1.5, 3.75}},
                             {OP_Min, {-2.5, -2, 0, -1.5, 1.25}},
                             {OP_Max, {2, -0.75, 0.5, 0.3, 3}},
                         },
                     power[] = {
                         {OP_Pow, {12.25, 0.32653061224489793, 1.0, 0.6746600148515609, 11.390625}},
                         {OP_Div, {1.75, -0.875, 2, -0.8666666666666667, 0.75}},
                     };
    check_rows(any, sizeof any / sizeof *any, x, NULL);
    check_rows(unit, sizeof unit / sizeof *unit, u, NULL);
    check_rows(positive, sizeof positive / sizeof *positive, q, NULL);
    check_rows(binary, sizeof binary / sizeof *binary, x, r);
    check_rows(power, sizeof power / sizeof *power, q, r);
}

static bool has_ints(Tensor t, int n, const int64_t *want)
{
    const int64_t *v = cast(t, DT_I64).data;
    return !memcmp(v, want, (size_t)n * 8);
}

static bool has_doubles(Tensor t, int n, const double *want)
{
    const double *v = cast(t, DT_F64).data;
    return !memcmp(v, want, (size_t)n * 8);
}

static void test_types(void)
{
    Tensor x = doubles(5, (double[]){2.5, -2.5, 1e10, (double)NAN, 300});
    ok(has_ints(cast(x, DT_I32), 5, I(2, -2, INT32_MIN, INT32_MIN, 300)), "floats to i32");
    ok(has_ints(cast(doubles(4, (double[]){0.0, -0.0, (double)NAN, 0.5}), DT_BOOL), 4,
                I(0, 0, 1, 1)),
       "floats to bool");
    ok(has_ints(cast(ints(S(3), I(300, -1, 200)), DT_I8), 3, I(44, -1, -56)), "i64 to i8 wraps");
    ok(has_ints(cast(ints(S(3), I(300, -1, 200)), DT_U8), 3, I(44, 255, 200)), "i64 to u8 wraps");
    ok(has_doubles(cast(ints(S(2), I(16777217, -16777219)), DT_F32), 2,
                   (double[]){16777216, -16777220}),
       "i64 to f32 rounds");
    Tensor half =
        cast(doubles(5, (double[]){1.0009765625 + 0x1p-12, 65519, 65520, 1e-7, -6.1e-5}), DT_F16);
    ok(has_doubles(half, 5,
                   (double[]){1.0009765625, 65504, (double)INFINITY, 1.1920928955078125e-07,
                              -6.097555160522461e-05}),
       "f16, its limits and its subnormals");
    Tensor brain = cast(doubles(3, (double[]){1.00390625 + 0x1p-9, 3.4e38, -1}), DT_BF16);
    ok(has_doubles(brain, 3, (double[]){1.0078125, (double)INFINITY, -1}), "bf16");
    enum { ONES = 300 };                                /* one by one in bf16 they stop at 256 */
    double one[ONES];
    for (int i = 0; i < ONES; i++)
        one[i] = 1;
    Tensor zero = cast(doubles(1, (double[]){0}), DT_BF16),
           ones = cast(doubles(ONES, one), DT_BF16), nowhere = tensor(DT_I64, S(ONES));
    ok(has_doubles(run(OP_ScatterElements, IN(zero, nowhere, ones),
                       (Attr){.reduction = SCATTER_ADD}, 0),
                   1, (double[]){ONES}),
       "a scatter of halves is rounded once");
    ok(has_doubles(run(OP_ReduceSum, IN(ones), (Attr){.n = 1, .axes = I(0)}, 0), 1,
                   (double[]){ONES}),
       "so is a sum of halves");
    Tensor a = ints(S(2, 1), I(1, INT64_MAX)), b = ints(S(3), I(0, 1, 2));
    ok(has_ints(run(OP_Add, IN(a, b), (Attr){0}, 0), 6,
                I(1, 2, 3, INT64_MAX, INT64_MIN, INT64_MIN + 1)),
       "i64 wraps as in C, broadcast");
    ok(has_ints(run(OP_BitwiseXor, IN(b, ints(S(1), I(-1))), (Attr){0}, 0), 3, I(-1, -2, -3)),
       "bits");
    Tensor cond = run(OP_Less, IN(b, ints(S(1), I(1))), (Attr){0}, 0);
    ok(has_ints(run(OP_Not, IN(cond), (Attr){0}, 0), 3, I(0, 1, 1)), "not");
    ok(has_ints(run(OP_Where, IN(cond, b, a), (Attr){0}, 0), 6,
                I(0, 1, 1, 0, INT64_MAX, INT64_MAX)),
       "where, three ways broadcast");
    ok(has_doubles(run(OP_Where,
                       IN(cond, doubles(1, (double[]){(double)NAN}), doubles(1, (double[]){7})),
                       (Attr){0}, 0),
                   3, (double[]){(double)NAN, 7, 7}),
       "where of floats");
    Tensor nan = run(
        OP_Max, IN(doubles(2, (double[]){(double)NAN, 1}), doubles(2, (double[]){1, (double)NAN})),
        (Attr){0}, 0);
    ok(isnan(((double *)nan.data)[0]) && isnan(((double *)nan.data)[1]), "NaN wins a maximum");
    Tensor f = cast(doubles(1, (double[]){0.1}), DT_F32);
    float sum = ((float *)f.data)[0] + ((float *)f.data)[0] * 2;
    Tensor twice = run(OP_Add, IN(f, run(OP_Add, IN(f, f), (Attr){0}, 0)), (Attr){0}, 0);
    ok(!memcmp(twice.data, &sum, 4), "f32 rounds after every op");
}

/* f32 in the graph, doubles in memory: the whole list computes in double. */
static void test_wide(void)
{
    Graph *g = graph_new(arena, "wide");
    Shape s = S(1);
    ValueId x = graph_input(g, "x", DT_F32, &s),
            y = g_add(g, g_cast(g, g_cast(g, x, DT_F64), DT_F32), g_like(g, x, 1));
    Tensor *at = arena_array(arena, Tensor, g->value.n);
    at[x] = doubles(1, (double[]){0x1p-40});
    NodeId list[8];
    for (NodeId n = 0; n < g->node.n; n++)
        list[n] = n;
    oracle_nodes(g, arena, list, g->node.n, at);
    double want = 1 + 0x1p-40;
    ok(at[y].dtype == DT_F64 && !memcmp(at[y].data, &want, 8),
       "the oracle keeps what f32 would lose");
}

int main(void)
{
    arena = arena_new();
    test_conv();
    test_move();
    test_reduce();
    test_map();
    test_types();
    test_wide();
    arena_free(arena);
    return tap_done();
}

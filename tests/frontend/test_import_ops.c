/*
 * test_import_ops.c - the importers one by one: an ONNX node made in memory, lowered, evaluated and
 * differentiated in float64, against PyTorch's numbers: above all the gradients at kinks, bounds
 * and zeros, and far out where a branch that is not taken would overflow.  Values alone are the
 * conformance suite's matter (onnx_node.t).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "frontend/import/import.h"
#include "frontend/names/param.h"
#include "tap.h"

enum { MOST = 8, OUTPUTS = 8 };

typedef struct {
    Arena *arena;
    Graph *g;
    uint32_t nin;
    ValueId in[MOST], out[OUTPUTS];
    Tensor data[MOST]; /* of the inputs */
} T;

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})
#define V(...) ((const double[]){__VA_ARGS__})

/* "alpha=0.1f axis=1i axes=[0] mode=linear": floats end in f, integers in i. */
static Onnx__AttributeProto *attribute(Arena *a, char *text)
{
    Onnx__AttributeProto *p = arena_new_of(a, Onnx__AttributeProto);
    onnx__attribute_proto__init(p);
    char *v = strchr(text, '='), *end = v + strlen(v) - 1;
    *v++ = 0;
    p->name = text;
    p->has_type = 1;
    if (*v == '[') {
        p->type = 7;
        p->ints = arena_array(a, int64_t, strlen(v));
        for (v++; *v && *v != ']'; v += *v == ',')
            p->ints[p->n_ints++] = strtoll(v, &v, 10);
    } else if (*end == 'f' && strchr("0123456789-", *v)) {
        p->type = 1;
        p->has_f = 1;
        p->f = strtof(v, NULL);
    } else if (*end == 'i' && strchr("0123456789-", *v)) {
        p->type = 2;
        p->has_i = 1;
        p->i = strtoll(v, NULL, 10);
    } else {
        p->type = 3;
        p->has_s = 1;
        p->s = (ProtobufCBinaryData){strlen(v), (uint8_t *)v};
    }
    return p;
}

static T *begin(void)
{
    Arena *a = arena_new();
    T *t = arena_new_of(a, T);
    t->arena = a;
    t->g = graph_new(a, "test");
    return t;
}

static ValueId input(T *t, Shape s, const double *v)
{
    char name[16];
    snprintf(name, sizeof name, "x%u", t->nin);
    int64_t n = shape_elements(&s);
    double *d = arena_array(t->arena, double, n + 1);
    memcpy(d, v, (size_t)n * sizeof *d);
    t->data[t->nin] = (Tensor){DT_F64, s, d};
    return t->in[t->nin++] = graph_input(t->g, name, DT_F64, &s);
}

static void lower(T *t, Op op, int opset, const char *attrs, uint32_t nin, const ValueId *in,
                  uint32_t nout)
{
    static void (*const fn[OP_COUNT])(Import *) = {
#define IMPORT(f) import_##f
#define NOIMPORT NULL
#define OP(name, lo, hi, since, import, ...) [OP_##name] = import,
#define COMPOSITE(name, lo, hi, since, f) [OP_##name] = import_##f,
#include "ir/ops.def"
    };
    RawNode raw = {.name = "n",
                   .op_type = op_name(op),
                   .domain = "",
                   .opset = opset,
                   .nin = nin,
                   .nout = nout};
    const char *names[OUTPUTS] = {"y0", "y1", "y2", "y3", "y4", "y5", "y6", "y7"};
    raw.in = raw.out = names;
    raw.attr = arena_array(t->arena, Onnx__AttributeProto *, strlen(attrs) + 1);
    char *save, *list = arena_strdup(t->arena, attrs);
    for (char *word = strtok_r(list, " ", &save); word; word = strtok_r(NULL, " ", &save))
        raw.attr[raw.nattr++] = attribute(t->arena, word);
    for (uint32_t i = 0; i < OUTPUTS; i++)
        t->out[i] = NONE;
    Import im = {.g = t->g,
                 .arena = t->arena,
                 .op = op,
                 .op_type = raw.op_type,
                 .opset = opset,
                 .nin = nin,
                 .nout = nout,
                 .in = in,
                 .out = t->out,
                 .training = true,
                 .node = &raw};
    fn[op](&im);
}

static Tensor *evaluate(const T *t)
{
    const Graph *g = t->g;
    Tensor *at = arena_array(t->arena, Tensor, g->value.n);
    NodeId *list = arena_array(t->arena, NodeId, g->node.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        if (val(g, v)->kind == V_CONST) {
            size_t n = (size_t)shape_elements(&val(g, v)->shape) * dtype_size(val(g, v)->dtype);
            at[v] = (Tensor){val(g, v)->dtype, val(g, v)->shape, arena_alloc(t->arena, n + 8)};
            if (n)
                memcpy(at[v].data, val(g, v)->data, n);
        }
    for (uint32_t i = 0; i < t->nin; i++)
        at[t->in[i]] = t->data[i];
    for (NodeId n = 0; n < g->node.n; n++)
        list[n] = n;
    eval_nodes(g, t->arena, list, g->node.n, at);
    return at;
}

static bool close_to(const Tensor *got, const double *want)
{
    for (int64_t i = 0; i < shape_elements(&got->shape); i++) {
        double x = ((const double *)got->data)[i];
        if (fabs(x - want[i]) <= 1e-9 + 2e-7 * fabs(want[i]) ||
            (isinf(x) && x > 0 && isinf(want[i])))
            continue;
        printf("# element %lld: %.12g, not %.12g\n", (long long)i, x, want[i]);
        return false;
    }
    return true;
}

/* d sum(r * y) / d in[i] for all inputs; r NULL: 1. */
static void differentiate(T *t, ValueId y, ValueId r, ValueId *dx)
{
    Graph *g = t->g;
    int64_t axes[MAX_RANK];
    Shape s = val(g, y)->shape, scalar = {0};
    for (int d = 0; d < s.rank; d++)
        axes[d] = d;
    if (r != NONE)
        y = g_mul(g, y, r);
    if (s.rank)
        y = g_reshape(g, g_reduce(g, OP_ReduceSum, y, s.rank, axes), &scalar);
    NodeId *list = arena_array(t->arena, NodeId, g->node.n + 1);
    for (NodeId n = 0; n < g->node.n; n++)
        list[n] = n;
    grad_nodes(g, list, g->node.n, y, t->nin, t->in, dx);
}

/* ---- functions of one operand, at ten points: values and gradients of the sum, from PyTorch ----
 */

enum { POINTS = 10 };
static const double points[POINTS] = {-200, -3, -1, -0.5, 0, 0.5, 1, 3, 6, 200};

static const struct {
    Op op;
    int opset;
    const char *attrs;
    double y[POINTS], dx[POINTS];
} unary[] = {
    {OP_LeakyRelu,
     16,
     "alpha=0.1f",
     {-20, -0.30000000000000004, -0.10000000000000001, -0.050000000000000003, 0, 0.5, 1, 3, 6, 200},
     {0.10000000000000001, 0.10000000000000001, 0.10000000000000001, 0.10000000000000001,
      0.10000000000000001, 1, 1, 1, 1, 1}},
    {OP_Elu,
     6,
     "alpha=1.5f",
     {-1.5, -1.4253193974482041, -0.9481808382428365, -0.59020401043104986, 0, 0.5, 1, 3, 6, 200},
     {2.0758447901051066e-87, 0.074680602551795913, 0.5518191617571635, 0.90979598956895014, 1.5, 1,
      1, 1, 1, 1}},
    {OP_Selu,
     6,
     "",
     {-1.7580993408473766, -1.6705687287671118, -1.1113307378125625, -0.69175818780287135, 0,
      0.52535049367774023, 1.0507009873554805, 3.1521029620664414, 6.3042059241328827,
      210.14019747109609},
     {2.4330275714568323e-87, 0.087530612080264872, 0.64676860303481398, 1.0663411530445053,
      1.7580993408473766, 1.0507009873554805, 1.0507009873554805, 1.0507009873554805,
      1.0507009873554805, 1.0507009873554805}},
    {OP_Celu,
     12,
     "alpha=2f",
     {-2, -1.5537396797031404, -0.78693868057473315, -0.44239843385719024, 0, 0.5, 1, 3, 6, 200},
     {3.7200759760208361e-44, 0.22313016014842982, 0.60653065971263342, 0.77880078307140488, 1, 1,
      1, 1, 1, 1}},
    {OP_Gelu,
     20,
     "",
     {-0, -0.0040496940948903104, -0.15865525393145702, -0.15426876936299344, 0,
      0.34573123063700656, 0.84134474606854304, 2.9959503059051098, 5.9999999940804738, 200},
     {0, -0.01194564720418392, -0.083315470587686347, 0.13250487534383712, 0.5, 0.86749512465616285,
      1.0833154705876864, 1.0119456472041839, 1.0000000354687093, 1}},
    {OP_Gelu,
     20,
     "approximate=tanh",
     {-0, -0.0036373920817729943, -0.15880800939172324, -0.15428599017485606, 0,
      0.34571400982514394, 0.84119199060827676, 2.9963626079182268, 5.9999999999156035, 200},
     {0, -0.011584166630969648, -0.082964083845782521, 0.13263009646535764, 0.5,
      0.86736990353464238, 1.0829640838457826, 1.0115841666309695, 1.0000000007709977, 1}},
    {OP_HardSigmoid,
     6,
     "alpha=0.16666666666666666f beta=0.5f",
     {0, 0, 0.33333333333333331, 0.41666666666666669, 0.5, 0.58333333333333337, 0.66666666666666663,
      1, 1, 1},
     {0, 0, 0.1666666716337204, 0.1666666716337204, 0.1666666716337204, 0.1666666716337204,
      0.1666666716337204, 0, 0, 0}},
    {OP_HardSwish,
     14,
     "",
     {-0, -0, -0.33333333333333331, -0.20833333333333334, 0, 0.29166666666666669,
      0.66666666666666663, 3, 6, 200},
     {0, 0, 0.16666666666666669, 0.33333333333333337, 0.5, 0.66666666666666663, 0.83333333333333326,
      1, 1, 1}},
    {OP_Mish,
     18,
     "",
     {-2.7677930534734749e-85, -0.14564746127562461, -0.30340146137410895, -0.22074377465173001, 0,
      0.37524521130489508, 0.86509838826731034, 2.9865350049679575, 5.9999266340652522, 200},
     {-2.7539540882061076e-85, -0.093393114532320839, 0.059216755877395014, 0.28951067791351226,
      0.59999999999999998, 0.88642437535772722, 1.0490362200997922, 1.0211069109294435,
      1.0001341405062101, 1}},
    {OP_Softsign,
     1,
     "",
     {-0.99502487562189057, -0.75, -0.5, -0.33333333333333331, 0, 0.33333333333333331, 0.5, 0.75,
      0.8571428571428571, 0.99502487562189057},
     {2.4751862577658545e-05, 0.0625, 0.25, 0.44444444444444442, 1, 0.44444444444444442, 0.25,
      0.0625, 0.020408163265306117, 2.4751862577658545e-05}},
    {OP_Swish,
     24,
     "",
     {-2.7677930534734749e-85, -0.14227761953270035, -0.2689414213699951, -0.1887703343990727, 0,
      0.3112296656009273, 0.7310585786300049, 2.8577223804672998, 5.9851642610601923, 200},
     {-2.7539540882061076e-85, -0.088104106015169617, 0.072329488128513253, 0.26003881269734819,
      0.5, 0.73996118730265192, 0.92767051187148686, 1.0881041060151693, 1.0123264325915249, 1}},
    {OP_ThresholdedRelu,
     10,
     "alpha=1f",
     {0, 0, 0, 0, 0, 0, 0, 3, 6, 200},
     {0, 0, 0, 0, 0, 0, 0, 1, 1, 1}},
    {OP_Shrink,
     9,
     "lambd=0.5f bias=0.5f",
     {-199.5, -2.5, -0.5, 0, 0, 0, 0.5, 2.5, 5.5, 199.5},
     {1, 1, 1, 0, 0, 0, 1, 1, 1, 1}},
    {OP_Shrink,
     9,
     "lambd=0.5f",
     {-200, -3, -1, 0, 0, 0, 1, 3, 6, 200},
     {1, 1, 1, 0, 0, 0, 1, 1, 1, 1}},
    {OP_Clip,
     7,
     "min=-1f max=3f",
     {-1, -1, -1, -0.5, 0, 0.5, 1, 3, 3, 3},
     {0, 0, 0, 1, 1, 1, 1, 0, 0, 0}},
    {OP_Softplus,
     1,
     "",
     {1.3838965267367376e-87, 0.048587351573742062, 0.31326168751822286, 0.47407698418010669,
      0.69314718055994529, 0.97407698418010669, 1.3132616875182228, 3.0485873515737421,
      6.0024756851377301, 200},
     {1.3838965267367376e-87, 0.047425873177566781, 0.2689414213699951, 0.37754066879814541, 0.5,
      0.62245933120185459, 0.7310585786300049, 0.95257412682243336, 0.99752737684336534, 1}},
    {OP_Relu, 7, "", {0, 0, 0, 0, 0, 0.5, 1, 3, 6, 200}, {0, 0, 0, 0, 0, 1, 1, 1, 1, 1}},
    {OP_Abs, 6, "", {200, 3, 1, 0.5, 0, 0.5, 1, 3, 6, 200}, {-1, -1, -1, -1, 0, 1, 1, 1, 1, 1}},
    {OP_Softmax,
     13,
     "axis=0i",
     {1.9151695967140057e-174, 6.8900150990691407e-89, 5.0910708089501103e-88,
      8.3937567333565548e-88, 1.3838965267367376e-87, 2.2816596400788878e-87,
      3.7618207810960609e-87, 2.7796304785641911e-86, 5.5830370610018863e-85, 1},
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
    {OP_LogSoftmax,
     13,
     "axis=0i",
     {-400, -203, -201, -200.5, -200, -199.5, -199, -197, -194, 0},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, -9}},
};

static void test_unary(void)
{
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) {
        T *t = begin();
        ValueId x = input(t, S(POINTS), points), dx;
        lower(t, unary[i].op, unary[i].opset, unary[i].attrs, 1, &x, 1);
        differentiate(t, t->out[0], NONE, &dx);
        Tensor *at = evaluate(t);
        ok(close_to(&at[t->out[0]], unary[i].y), "%s %s", op_name(unary[i].op), unary[i].attrs);
        ok(dx != NONE && close_to(&at[dx], unary[i].dx), "%s %s: gradient", op_name(unary[i].op),
           unary[i].attrs);
        arena_free(t->arena);
    }
}

static void test_prelu(void)
{
    T *t = begin();
    ValueId in[2] = {input(t, S(3), V(-2, 0, 2)), input(t, S(1), V(0.25))}, dx[2];
    lower(t, OP_PRelu, 16, "", 2, in, 1);
    differentiate(t, t->out[0], NONE, dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]], V(-0.5, 0, 2)), "PRelu");
    ok(close_to(&at[dx[0]], V(0.25, 0.25, 1)) && close_to(&at[dx[1]], V(-2)), "PRelu: gradients");
    arena_free(t->arena);
}

/* torch.linalg.vector_norm has gradient 0 at 0. */
static void test_norm_at_zero(void)
{
    T *t = begin();
    ValueId x = input(t, S(2, 3), V(0, 0, 0, 3, 0, 4)), dx;
    lower(t, OP_ReduceL2, 11, "axes=[1] keepdims=0i", 1, &x, 1);
    differentiate(t, t->out[0], NONE, &dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]], V(0, 5)) && at[t->out[0]].shape.rank == 1, "ReduceL2");
    ok(close_to(&at[dx], V(0, 0, 0, 0.6, 0, 0.8)), "ReduceL2: gradient 0 at 0");
    arena_free(t->arena);
}

static void test_log_sum_exp_of_infinities(void)
{
    T *t = begin();
    double inf = (double)INFINITY;
    ValueId x = input(t, S(1, 3), V(-inf, 0, 0)), dx;
    lower(t, OP_ReduceLogSumExp, 13, "axes=[1]", 1, &x, 1);
    differentiate(t, t->out[0], NONE, &dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]], V(0.69314718055994531)), "ReduceLogSumExp with -inf");
    ok(close_to(&at[dx], V(0, 0.5, 0.5)), "ReduceLogSumExp with -inf: gradient");
    arena_free(t->arena);
}

/* torch.nn.BatchNorm1d in training, running statistics included (the unbiased variance). */
static void test_batch_norm(void)
{
    T *t = begin();
    Graph *g = t->g;
    ValueId in[5] = {input(t, S(4, 2), V(1, -2, 0.5, 3, -1.5, 0.25, 2, 2)),
                     input(t, S(2), V(1.5, -0.5)), input(t, S(2), V(0.25, 1))};
    ValueId r = input(t, S(4, 2), V(1, 2, -1, 0.5, 3, -2, 0.25, 1)), dx[4];
    for (int i = 3; i < 5; i++) {
        Param p = {.name = i == 3 ? "mean" : "var", .dtype = DT_F64, .shape = S(2)};
        in[i] = graph_param(g, p);
        t->in[t->nin] = in[i];
        double *d = arena_array(t->arena, double, 2);
        d[0] = i == 3 ? 0.5 : 2, d[1] = i == 3 ? -1 : 3;
        t->data[t->nin++] = (Tensor){DT_F64, S(2), d};
    }
    lower(t, OP_BatchNormalization, 15, "training_mode=1i", 5, in, 3);
    t->nin = 4;
    differentiate(t, t->out[0], r, dx);
    t->nin = 6;
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]],
                V(0.83834659512012133, 1.7405954939672525, 0.25, 0.42398128246991473,
                  -2.1033863804804853, 1.1481190987934506, 2.0150397853603641, 0.6873041247693823)),
       "BatchNormalization");
    ok(close_to(&at[dx[0]], V(0.68451578002517599, -0.31396216644684932, -2.1327564073104397,
                              -0.12153337373504439, 0.71847312623000958, 0.64817924091919255,
                              0.72976750105525445, -0.21268370073729886)) &&
           close_to(&at[dx[1]], V(-4.020368399987496, -1.1684951127038874)) &&
           close_to(&at[dx[2]], V(3.25, 1.5)),
       "BatchNormalization: gradients");
    ok(g->update.n == 2 && g->update.at[0].param == 0 &&
           close_to(&at[g->update.at[0].value], V(0.5, -0.81875)),
       "BatchNormalization: running mean");
    ok(g->update.n == 2 && g->update.at[1].param == 1 &&
           close_to(&at[g->update.at[1].value], V(2.0166666666666666, 3.1807291666666671)),
       "BatchNormalization: running variance");
    ok(g->param.at[0].stat && !g->param.at[1].trainable,
       "BatchNormalization: statistics do not train");
    arena_free(t->arena);
}

/* F.cross_entropy with class weights and an ignored row. */
static void test_cross_entropy(void)
{
    T *t = begin();
    int64_t *target = arena_array(t->arena, int64_t, 4);
    target[0] = 2, target[1] = 0, target[2] = -100, target[3] = 1;
    ValueId in[3] = {input(t, S(4, 3), V(1, -2, 0.5, 0.5, 3, -1, -1.5, 0.25, 2, 2, 2, -3)),
                     graph_const(t->g, NULL, (Tensor){DT_I64, S(4), target}),
                     input(t, S(3), V(0.5, 2, 1.5))};
    ValueId dx[2];
    lower(t, OP_SoftmaxCrossEntropyLoss, 13, "ignore_index=-100i", 3, in, 1);
    differentiate(t, t->out[0], NONE, dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]], V(1.0494383754461933)), "SoftmaxCrossEntropyLoss");
    ok(close_to(&at[dx[0]],
                V(0.22640583605573467, 0.011272082838590259, -0.23767791889432494,
                  -0.11567555535847319, 0.11359499053231416, 0.0020805648261590431, 0, 0, 0,
                  0.24916058459337434, -0.25083941540662569, 0.0016788308132513069)),
       "SoftmaxCrossEntropyLoss: gradient");
    arena_free(t->arena);
}

/* F.scaled_dot_product_attention, causal. */
static void test_attention(void)
{
    T *t = begin();
    ValueId in[3] = {input(t, S(1, 1, 3, 2), V(1, 0.5, -0.5, 2, 0.25, -1)),
                     input(t, S(1, 1, 3, 2), V(0.5, -1, 1, 1, 2, 0)),
                     input(t, S(1, 1, 3, 2), V(1, 2, 3, -1, 0.5, 0.25))};
    ValueId dx[3];
    lower(t, OP_Attention, 23, "is_causal=1i", 3, in, 1);
    differentiate(t, t->out[0], NONE, dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]], V(1, 2, 2.8682252820021708, -0.80233792300325657,
                                  1.1099230134633702, 0.99305285776750896)),
       "Attention");
    ok(close_to(&at[dx[0]], V(0, 0, -0.021759872964230934, -0.087039491856924403,
                              -0.48842673080920262, -0.34250697438284244)) &&
           close_to(&at[dx[1]],
                    V(0.061333497554973304, -0.24533399021989322, 0.019226499887724881,
                      -0.076905999550899523, -0.080559997442698358, 0.32223998977079343)) &&
           close_to(&at[dx[2]], V(1.5898945412485115, 1.5898945412485115, 1.0732804099365143,
                                  1.0732804099365143, 0.33682504881497449, 0.33682504881497449)),
       "Attention: gradients");
    arena_free(t->arena);
}

/* A query that may attend nothing gives 0, and so does its gradient: never NaN. */
static void test_attention_without_keys(void)
{
    T *t = begin();
    uint8_t *mask = arena_array(t->arena, uint8_t, 4);
    mask[2] = 1;
    ValueId x = input(t, S(1, 1, 2, 1), V(1, 2)), dx;
    ValueId in[4] = {x, x, x, graph_const(t->g, NULL, (Tensor){DT_BOOL, S(2, 2), mask})};
    lower(t, OP_Attention, 23, "", 4, in, 1);
    differentiate(t, t->out[0], NONE, &dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]], V(0, 1)) && close_to(&at[dx], V(1, 0)),
       "Attention: a row without keys");
    arena_free(t->arena);
}

/* ---- recurrence: three steps of one sample, torch.nn.RNN, GRU, LSTM; gates in ONNX's order ---- */

// clang-format off
static const struct { Op op; int gates; const char *attrs; double y[6], dx[6], dw[16], dr[16]; } recurrent[] = {
    {OP_RNN, 1, "",
     {0.95993047785727403, 0.9718398109731069, 0.99726230667148985, 0.99983390933216998,
      0.97575279435091788, 0.99564012124322132},
     {0.071411283973512291, 0.10325188946017656, 0.0014584018044035373, 0.0046398698683201714,
      0.018214588177764165, 0.044014632168018326},
     {0.024895990352295595, 0.039770890663589666, 0.0079991500284702782, 0.036460394864898389},
     {0.053143723696261025, 0.053333522854041075, 0.0090105005895894392, 0.0090370138994489996}},
    {OP_GRU, 3, "linear_before_reset=1i",
     {0.26134117314416161, 0.19092193726010204, 0.21667186514308467, 0.26614651960860092,
      0.29918714150756653, 0.16482204227406516},
     {-0.30375584921308524, 0.10059925287863643, -0.30688448380897809, 0.036862979405575896,
      0.00799994994047931, 0.37873806441153962},
     {0.0096273384937753514, -0.10721985716301367, -0.13986425302712813, -0.36139990946510536,
      0.147935128686042, 0.13366687030749191, 0.059183630994242079, 0.055223185139817353,
      0.71290111773039011, 0.59623027546212182, 0.21422474433838676, 0.28184103034044705},
     {0.0035488976160679758, -0.00052971423969023698, -0.018812196035855426,
      -0.007298557172292771, 0.052243366808620392, 0.050020993068019742, 0.031468366686051574,
      0.036708711571964245, 0.16348784198463795, 0.16215284825655682, 0.063885746525466094,
      0.076604699582231178}},
    {OP_LSTM, 4, "",
     {-0.44353718467643699, -0.48288415496363435, -0.5913199962147232, -0.58277911410336092,
      -0.60150742673888791, -0.39024129101295779},
     {0.11237159365579175, -0.008657544448130031, 0.13354083303907588, -0.04463002034309526,
      -0.30129638573517148, -0.53607793739566179},
     {-0.16640956142974137, -0.19408514272315805, -0.044320024752499479, 0.0010336702503038486,
      -0.071896413335142281, -0.085355471672358921, -0.10391925674282626, -0.15857138291953987,
      -0.11698192736623081, -0.026641806864786399, -0.059040219447086692, 0.01576577435397733,
      0.13232274449216425, 0.17136174678654245, 0.080348967305466479, -0.12838359325782145},
     {0.11691884194827698, 0.12077580940835009, 0.06765220698003524, 0.067372171381707202,
      0.050693395520123752, 0.052336359029653959, 0.050483229376106102, 0.053651758327516563,
      0.10396256330081041, 0.10665117885269962, 0.074727464483318781, 0.075259215193033857,
      -0.059488855510090026, -0.064056878783551333, -0.18684511455355071, -0.18436554326811713}},
};
// clang-format on

/* sin(0.7 k + phase): what the numbers were made with. */
static ValueId wave(T *t, Shape s, double phase)
{
    double v[64];
    for (int64_t k = 0; k < shape_elements(&s); k++)
        v[k] = sin(0.7 * (double)k + phase);
    return input(t, s, v);
}

static void test_recurrent(void)
{
    for (size_t i = 0; i < sizeof recurrent / sizeof *recurrent; i++) {
        T *t = begin();
        int g = recurrent[i].gates;
        ValueId in[4] = {wave(t, S(3, 1, 2), 0.1), wave(t, S(1, 2 * g, 2), 0.2),
                         wave(t, S(1, 2 * g, 2), 0.3), wave(t, S(1, 4 * g), 0.4)};
        ValueId dx[4];
        lower(t, recurrent[i].op, 14, recurrent[i].attrs, 4, in, 1);
        differentiate(t, t->out[0], NONE, dx);
        Tensor *at = evaluate(t);
        ok(close_to(&at[t->out[0]], recurrent[i].y), "%s", op_name(recurrent[i].op));
        ok(close_to(&at[dx[0]], recurrent[i].dx) && close_to(&at[dx[1]], recurrent[i].dw) &&
               close_to(&at[dx[2]], recurrent[i].dr),
           "%s: gradients", op_name(recurrent[i].op));
        arena_free(t->arena);
    }
}

int main(void)
{
    test_unary();
    test_prelu();
    test_norm_at_zero();
    test_log_sum_exp_of_infinities();
    test_batch_norm();
    test_cross_entropy();
    test_attention();
    test_attention_without_keys();
    test_recurrent();
    return tap_done();
}

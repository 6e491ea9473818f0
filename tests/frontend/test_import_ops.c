/*
 * test_import_ops.c - the importers one by one: an ONNX node made in memory, lowered, evaluated and
 * differentiated in float64, against PyTorch's numbers: above all the gradients at kinks, bounds
 * and zeros, and far out where a branch that is not taken would overflow.  Values alone are the
 * conformance suite's matter (onnx_node.t).
 */
#include "import_one.h"

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
    t->biased = true;
    lower(t, OP_BatchNormalization, 15, "training_mode=1i", 5, in, 1);
    ok(g->update.n == 4 && close_to(&evaluate(t)[g->update.at[3].value], V(1.9625, 3.060546875)),
       "BatchNormalization: running variance of a file that notes it as biased");
    lower(t, OP_BatchNormalization, 17, "", 5, in, 3);
    ok(t->out[0] != NONE && t->out[1] == in[3] && t->out[2] == in[4],
       "BatchNormalization: statistics that a file names but nothing moves");
    arena_free(t->arena);
}

/* F.cross_entropy with class weights and an ignored row, or of probabilities; with label smoothing,
 * which the metadata alone has. */
static void cross_entropy(const double *probabilities, const char *fx_node, double loss,
                          const double *gradient, const char *what)
{
    T *t = begin();
    t->fx_node = fx_node;
    int64_t *target = arena_array(t->arena, int64_t, 4);
    target[0] = 2, target[1] = 0, target[2] = -100, target[3] = 1;
    ValueId in[3] = {input(t, S(4, 3), V(1, -2, 0.5, 0.5, 3, -1, -1.5, 0.25, 2, 2, 2, -3)),
                     probabilities ? input(t, S(4, 3), probabilities)
                                   : graph_const(t->g, NULL, (Tensor){DT_I64, S(4), target}),
                     input(t, S(3), V(0.5, 2, 1.5))};
    ValueId dx[2];
    lower(t, OP_SoftmaxCrossEntropyLoss, 13, "ignore_index=-100i", 3, in, 1);
    differentiate(t, t->out[0], NONE, dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]], &loss), "%s", what);
    ok(close_to(&at[dx[0]], gradient), "%s: gradient", what);
    arena_free(t->arena);
}

static void test_cross_entropy(void)
{
    static const char node[] =
        "%loss : [num_users=1] = call_function["
        "target=torch.ops.aten.cross_entropy_loss.default](args = (%x, %t, %w, 1, -100, 0.2), "
        "kwargs = {})";
    const double *p = V(0.2, 0.3, 0.5, 1, 0, 0, 0.25, 0.25, 0.5, 0.6, 0.1, 0.3);
    cross_entropy(NULL, NULL, 1.0494383754461933,
                  V(0.22640583605573467, 0.011272082838590259, -0.23767791889432494,
                    -0.11567555535847319, 0.11359499053231416, 0.0020805648261590431, 0, 0, 0,
                    0.24916058459337434, -0.25083941540662569, 0.0016788308132513069),
                  "SoftmaxCrossEntropyLoss");
    cross_entropy(NULL, node, 1.284336148592871,
                  V(0.21304126192116285, -0.02231174122448952, -0.1907295206966733,
                    -0.09590074047796426, 0.11812665404308553, -0.022225913565121276, 0, 0, 0,
                    0.22421654562048274, -0.20078345437951728, -0.02343309124096545),
                  "SoftmaxCrossEntropyLoss: PyTorch's label smoothing");
    cross_entropy(p, NULL, 2.170980686600573,
                  V(0.19385897485387685, -0.1391036532560294, -0.05475532159784743,
                    -0.1156755553584732, 0.11359499053231416, 0.002080564826159043,
                    -0.022628241059623685, -0.07538520292983412, 0.0980134439894578,
                    0.04335127768185281, 0.0683512776818528, -0.11170255536370562),
                  "SoftmaxCrossEntropyLoss of probabilities");
    cross_entropy(p, node, 2.281445032963929,
                  V(0.18700377295967652, -0.14261233010018526, -0.04439144285949126,
                    -0.09590074047796426, 0.11812665404308553, -0.022225913565121276,
                    -0.024763827477444145, -0.08401923200298664, 0.1087830594804308,
                    0.059569100091265495, 0.05456910009126549, -0.11413820018253099),
                  "SoftmaxCrossEntropyLoss of probabilities, smoothed");
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

/* A score that overflows where a later key is hidden, as those of float16 do. */
static void test_attention_overflow(void)
{
    T *t = begin();
    ValueId in[3] = {input(t, S(1, 1, 2, 1), V(1e200, 0)),
                     input(t, S(1, 1, 2, 1), V(0, 1e200)), input(t, S(1, 1, 2, 1), V(2, 4))};
    ValueId dx[3];
    lower(t, OP_Attention, 23, "is_causal=1i", 3, in, 1);
    differentiate(t, t->out[0], NONE, dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[t->out[0]], V(2, 3)) && close_to(&at[dx[0]], V(0, 5e199)) &&
           close_to(&at[dx[1]], V(0, 0)) && close_to(&at[dx[2]], V(1.5, 0.5)),
       "Attention: what is hidden may overflow");
    arena_free(t->arena);
}

/* To bool: whatever is not 0; and a narrow integer wraps. */
static void test_cast(void)
{
    T *t = begin();
    ValueId x = input(t, S(6), V(0, 1, 2, -3, 0.25, 256)), y[3];
    lower(t, OP_Cast, 13, "to=9i", 1, &x, 1);
    y[0] = g_cast(t->g, t->out[0], DT_F64);
    ValueId whole = g_cast(t->g, x, DT_I64);
    lower(t, OP_Cast, 13, "to=9i", 1, &whole, 1);
    y[1] = g_cast(t->g, t->out[0], DT_F64);
    lower(t, OP_Cast, 13, "to=2i", 1, &whole, 1);
    y[2] = g_cast(t->g, t->out[0], DT_F64);
    Tensor *at = evaluate(t);
    ok(close_to(&at[y[0]], V(0, 1, 1, 1, 1, 1)), "Cast of floats to bool");
    ok(close_to(&at[y[1]], V(0, 1, 1, 1, 0, 1)), "Cast of integers to bool");
    ok(close_to(&at[y[2]], V(0, 1, 2, 253, 0, 0)), "Cast of integers to uint8");
    t->from_pytorch = true;
    lower(t, OP_Cast, 13, "to=15i", 1, &x, 1);
    ok(val(t->g, t->out[0])->dtype == DT_BF16, "Cast to PyTorch's own number of bfloat16");
    arena_free(t->arena);
}

/* A cast to eight bits passes the gradient; what QuantizeLinear clamps has none. */
static void test_cast_to_mini(void)
{
    T *t = begin();
    ValueId x = g_mul(t->g, input(t, S(6), V(0.3, -0.017578125, 300, 500, -1000, 1e-9)),
                      g_scalar(t->g, DT_F64, 1)),
            dx;
    lower(t, OP_Cast, 28, "to=17i", 1, &x, 1);
    ValueId y = g_cast(t->g, t->out[0], DT_F64);
    differentiate(t, y, NONE, &dx);
    Tensor *at = evaluate(t);
    ok(close_to(&at[y], V(0.3125, -0.017578125, 288, 448, -448, 0)), "Cast to f8e4m3fn");
    ok(close_to(&at[dx], V(1, 1, 1, 1, 1, 1)), "Cast to f8e4m3fn: gradient");
    arena_free(t->arena);
}

/* The evaluator draws 0.5 everywhere; tests/runtime/test_math.c has the numbers' distribution, the
 * random graphs of fuzz_nets what programs draw. */
static void test_random(void)
{
    T *t = begin();
    ValueId x = input(t, S(3), V(0.25, 0.5, 0.75)),
            logits = input(t, S(3, 2), V(0, 0.1, 2, -1, -HUGE_VAL, 3));
    lower(t, OP_RandomUniformLike, 22, "low=-3.0f high=1.0f", 1, &x, 1);
    ValueId u = t->out[0];
    lower(t, OP_RandomNormalLike, 22, "mean=2.0f scale=3.0f", 1, &x, 1);
    ValueId z = t->out[0];
    lower(t, OP_Bernoulli, 22, "seed=1.0f", 1, &x, 1);
    ValueId b = t->out[0];
    lower(t, OP_RandomNormal, 22, "shape=[3] dtype=11i seed=1.0f", 0, NULL, 1);
    ValueId n = t->out[0];
    lower(t, OP_RandomUniform, 22, "shape=[2,3] dtype=10i", 0, NULL, 1);
    Shape s = val(t->g, t->out[0])->shape;
    ok(s.rank == 2 && s.d[1] == 3 && val(t->g, t->out[0])->dtype == DT_F16, "RandomUniform");
    lower(t, OP_Multinomial, 22, "sample_size=2i dtype=7i", 1, &logits, 1);
    ValueId m = g_cast(t->g, t->out[0], DT_F64);
    Tensor *at = evaluate(t);
    double normal = sqrt(-2 * log(0.5)) * cos(acos(-1.0));
    ok(close_to(&at[u], V(-1, -1, -1)), "RandomUniformLike");
    ok(close_to(&at[z], V(2 + 3 * normal, 2 + 3 * normal, 2 + 3 * normal)), "RandomNormalLike");
    ok(close_to(&at[b], V(0, 0, 1)), "Bernoulli");
    ok(close_to(&at[n], V(normal, normal, normal)), "RandomNormal");
    ok(close_to(&at[m], V(1, 1, 0, 0, 1, 1)), "Multinomial");
    arena_free(t->arena);
}

/* bf16 has 8 bits: 1 + 2^-8 is 1 when it is rounded before 2^-9 is added, and after it 1 + 2^-7, as
 * in torch.addmm. */
static void test_gemm_of_halves(void)
{
    T *t = begin();
    ValueId in[3];
    const double a[] = {1, 1, -1, -1}, b[] = {1, 0x1p-8}, c[] = {0x1p-9};
    in[0] = g_cast(t->g, input(t, S(2, 2), a), DT_BF16);
    in[1] = g_cast(t->g, input(t, S(2, 1), b), DT_BF16);
    in[2] = g_cast(t->g, input(t, S(1), c), DT_BF16);
    lower(t, OP_Gemm, 13, "", 3, in, 1);
    ValueId y = g_cast(t->g, t->out[0], DT_F64);
    bool half = val(t->g, t->out[0])->dtype == DT_BF16;
    ok(half && close_to(&evaluate(t)[y], V(1 + 0x1p-7, -1)), "Gemm of halves is rounded once");
    in[0] = g_reshape(t->g, in[0], &S(1, 2, 2));
    in[1] = g_cast(t->g, input(t, S(1, 2, 1), V(2, 1 + 0x1p-10)), DT_F32);
    in[2] = g_cast(t->g, in[2], DT_F32);
    lower(t, OP_Conv, 13, "", 3, in, 1);
    y = g_cast(t->g, t->out[0], DT_F64);
    half = val(t->g, t->out[0])->dtype == DT_BF16;
    ok(half && close_to(&evaluate(t)[y], V(1, 1)), "Conv of halves and of weights that are not");
    arena_free(t->arena);
}

static void test_einsum_of_nothing(void)
{
    T *t = begin();
    ValueId in[2] = {input(t, S(0, 2), V(0)), input(t, S(2, 3), V(1, 2, 3, 4, 5, 6))};
    lower(t, OP_Einsum, 12, "equation=ij,jk->ik", 2, in, 1);
    ok(shape_equal(&val(t->g, t->out[0])->shape, &S(0, 3)), "a product of no rows has none");
    arena_free(t->arena);
}

/* PyTorch's activations of bf16, which round their result and nothing before it. */
static void test_activations_of_halves(void)
{
    const double x[6] = {-2, -1, -0.30078125, 0.69921875, 1.296875, 2.59375};
    const struct { Op op; const char *attrs; double y[6]; } row[] = {
        {OP_HardSwish, "",
         {-0.333984375, -0.333984375, -0.1357421875, 0.431640625, 0.9296875, 2.421875}},
        {OP_HardSigmoid, "alpha=0.16666667f beta=0.5f",
         {0.1669921875, 0.333984375, 0.44921875, 0.6171875, 0.71484375, 0.93359375}},
        {OP_Gelu, "",
         {-0.04541015625, -0.158203125, -0.11474609375, 0.53125, 1.171875, 2.578125}},
        {OP_Gelu, "approximate=tanh",
         {-0.04541015625, -0.1591796875, -0.11474609375, 0.53125, 1.171875, 2.578125}},
        {OP_Mish, "",
         {-0.251953125, -0.302734375, -0.1513671875, 0.55859375, 1.1796875, 2.5625}},
        {OP_Elu, "alpha=1f",
         {-0.86328125, -0.6328125, -0.259765625, 0.69921875, 1.296875, 2.59375}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        T *t = begin();
        ValueId in = g_cast(t->g, input(t, S(6), x), DT_BF16);
        lower(t, row[i].op, 22, row[i].attrs, 1, &in, 1);
        bool half = val(t->g, t->out[0])->dtype == DT_BF16;
        ValueId y = g_cast(t->g, t->out[0], DT_F64);
        ok(half && close_to(&evaluate(t)[y], row[i].y), "%s(%s) of bf16 is rounded once",
           op_name(row[i].op), row[i].attrs);
        arena_free(t->arena);
    }
}

int main(void)
{
    test_random();
    test_gemm_of_halves();
    test_einsum_of_nothing();
    test_activations_of_halves();
    test_cast_to_mini();
    test_cast();
    test_unary();
    test_prelu();
    test_norm_at_zero();
    test_log_sum_exp_of_infinities();
    test_batch_norm();
    test_cross_entropy();
    test_attention();
    test_attention_without_keys();
    test_attention_overflow();
    return tap_done();
}

/*
 * test_import_kinks.c - gradients where there is none by the formula, as PyTorch chooses them:
 * bounds of clamps, equal elements, distances of 0.
 */
#include "import_one.h"

enum { N = 5 };
static const double at[N] = {-1, 0, 0.5, 1, 2};

static ValueId number(T *t, double v) { return g_scalar(t->g, DT_F64, v); }

static void check(T *t, ValueId y, const double *value, const double *slope, const char *what)
{
    ValueId dx[MOST];
    differentiate(t, y, NONE, dx);
    Tensor *now = evaluate(t);
    ok(close_to(&now[y], value), "%s", what);
    ok(dx[0] != NONE && close_to(&now[dx[0]], slope), "%s: gradient", what);
    arena_free(t->arena);
}

static const char *aten(const char *call, const char *args)
{
    static char text[256];
    snprintf(text, sizeof text,
             "%%y : [num_users=1] = call_function[target=torch.ops.aten.%s]"
             "(args = (%s), kwargs = {})",
             call, args);
    return text;
}

/* torch.clamp by a number has no gradient at its bound, of whatever operator it is made; a clamp by
 * a tensor and torch.maximum share it. */
static void test_bounds(void)
{
    static const struct {
        Op op;
        bool number_first;
        const char *call, *args;
        double tie;
        const char *what;
    } rows[] = {
        {OP_Max, false, NULL, NULL, 0, "Max with a number"},
        {OP_Max, true, NULL, NULL, 0, "Max of a number"},
        {OP_Max, false, "clamp.Tensor", "%x, %scalar_tensor_default", 0, "clamp by a number"},
        {OP_Max, false, "clamp.Tensor", "%x, %clone", 0.5, "clamp by a tensor"},
        {OP_Max, false, "maximum.default", "%x, %clone", 0.5, "torch.maximum"},
        {OP_Clip, false, NULL, NULL, 0, "Clip from below"},
        {OP_Clip, false, "clamp_min.Tensor", "%x, %b_least", 0.5, "Clip by a tensor"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        T *t = begin();
        ValueId x = input(t, S(N), at), c = number(t, 0);
        ValueId in[2] = {rows[i].number_first ? c : x, rows[i].number_first ? x : c};
        t->fx_node = rows[i].call ? aten(rows[i].call, rows[i].args) : NULL;
        lower(t, rows[i].op, 13, "", 2, in, 1);
        check(t, t->out[0], V(0, 0, 0.5, 1, 2), V(0, rows[i].tie, 1, 1, 1), rows[i].what);
    }
    T *t = begin();
    ValueId in[2] = {input(t, S(N), at), number(t, 1)};
    lower(t, OP_Min, 13, "", 2, in, 1);
    check(t, t->out[0], V(-1, 0, 0.5, 1, 1), V(1, 1, 1, 0, 0), "Min with a number");
    t = begin();
    double ones[N] = {1, 1, 1, 1, 1};
    in[0] = input(t, S(N), at);
    in[1] = graph_const(t->g, NULL, (Tensor){DT_F64, S(N), ones});
    lower(t, OP_Min, 13, "", 2, in, 1);
    check(t, t->out[0], V(-1, 0, 0.5, 1, 1), V(1, 1, 1, 0.5, 0), "Min with numbers of its shape");
}

/* A NaN stays one, and a number that is none is no bound. */
static void test_nan(void)
{
    T *t = begin();
    double nan = (double)NAN;
    ValueId x = input(t, S(2), V(nan, 1)), in[2] = {x, number(t, 0)}, y[2];
    lower(t, OP_Max, 13, "", 2, in, 1);
    y[0] = t->out[0];
    in[1] = number(t, nan);
    lower(t, OP_Max, 13, "", 2, in, 1);
    y[1] = t->out[0];
    Tensor *now = evaluate(t);
    const double *a = now[y[0]].data, *b = now[y[1]].data;
    ok(isnan(a[0]) && a[1] == 1 && isnan(b[0]) && isnan(b[1]), "Max with NaN");
    arena_free(t->arena);
}

static ValueId one(T *t, Op op, int opset, const char *attrs, ValueId a, ValueId b)
{
    ValueId in[2] = {a, b};
    lower(t, op, opset, attrs, b == NONE ? 1 : 2, in, 1);
    return t->out[0];
}

/* Rows (0, 0) and (3, 4): their lengths, made as exporters make them, and the slopes. */
static void test_distances(void)
{
    static const char *const names[] = {
        "Sqrt of a sum of squares",   "Pow of a sum of squares",
        "Sqrt of a clamped product",  "Pow, an exponent near a half, as cdist has it",
        "Sqrt of a mean, scaled",     "a cube root of cubes"};
    for (int k = 0; k < 6; k++) {
        T *t = begin();
        ValueId x = input(t, S(2, 2), V(0, 0, 3, 4)), s, y;
        ValueId squares = one(t, OP_Pow, 13, "", x, number(t, 2));
        s = one(t, OP_ReduceSum, 11, "axes=[1] keepdims=0i", squares, NONE);
        double p = 0.5, length = 5, slope[4] = {0, 0, 0.6, 0.8};
        if (k == 2)
            s = one(t, OP_Max, 13, "", s, number(t, 0));
        if (k == 3) {
            p = 1 / 2.000001;
            length = pow(25, p);
            for (int i = 2; i < 4; i++)
                slope[i] = p * pow(25, p - 1) * 2 * (i + 1);
        }
        if (k == 4) {
            s = one(t, OP_ReduceMean, 11, "axes=[1] keepdims=0i", squares, NONE);
            s = one(t, OP_Mul, 13, "", s, number(t, 2));
        }
        if (k == 5) {
            s = one(t, OP_Pow, 13, "", one(t, OP_Abs, 13, "", x, NONE), number(t, 3));
            s = one(t, OP_ReduceSum, 11, "axes=[1] keepdims=0i", s, NONE);
            p = 1.0 / 3;
            length = pow(91, p);
            slope[2] = 9 / (length * length), slope[3] = 16 / (length * length);
        }
        y = k == 0 || k == 2 || k == 4 ? one(t, OP_Sqrt, 13, "", s, NONE)
                                       : one(t, OP_Pow, 13, "", s, number(t, p));
        check(t, y, V(0, length), slope, names[k]);
    }
    T *t = begin();
    ValueId y = one(t, OP_Sqrt, 13, "", input(t, S(2), V(0, 4)), NONE);
    check(t, y, V(0, 2), V((double)INFINITY, 0.25), "Sqrt of what is no such sum");
}

/* Of equal elements, where a file of TorchScript has the index too. */
static void test_index(void)
{
    static const char dim[] = "%y : [num_users=1] = call_function[target=torch.ops.aten.max.dim]"
                              "(args = (%x, 1), kwargs = {})";
    for (int k = 0; k < 2; k++) {
        T *t = begin();
        ValueId x = input(t, S(1, 3), V(2, 2, 1));
        t->fx_node = k ? dim : NULL;
        lower(t, OP_ReduceMax, 13, "axes=[1]", 1, &x, 1);
        check(t, t->out[0], V(2), k ? V(1, 0, 0) : V(0.5, 0.5, 0),
              k ? "ReduceMax, max(dim)" : "ReduceMax, amax");
    }
}

int main(void)
{
    test_bounds();
    test_nan();
    test_distances();
    test_index();
    return tap_done();
}

/*
 * test_import_composed.c - importers whose node becomes many operations (attention by chunks,
 * regions of images, deformed convolutions): in float64, the gradients of their results against
 * differences of their values.
 */
#include "import_one.h"

static double sum_of(const T *t, ValueId y)
{
    Tensor x = evaluate(t)[y];
    double sum = 0;
    for (int64_t i = 0; i < shape_elements(&x.shape); i++)
        sum += ((const double *)x.data)[i] * (1 + 0.25 * (double)(i % 7));
    return sum;
}

/* Of result `of`, its elements weighted differently; skipped: a bit for each input without one. */
static void check_gradient(T *t, uint32_t of, unsigned skipped, const char *what)
{
    ValueId y = t->out[of], dx[MOST];
    Shape s = val(t->g, y)->shape;
    int64_t n = shape_elements(&s);
    double *w = arena_array(t->arena, double, n + 1), worst = 0;
    for (int64_t i = 0; i < n; i++)
        w[i] = 1 + 0.25 * (double)(i % 7);
    differentiate(t, y, graph_const(t->g, NULL, (Tensor){DT_F64, s, w}), dx);
    Tensor *at = evaluate(t);
    for (uint32_t k = 0; k < t->nin; k++) {
        double *x = t->data[k].data;
        if (skipped >> k & 1)
            continue;
        for (int64_t i = 0; i < shape_elements(&t->data[k].shape); i += 3) {
            double was = x[i], h = 1e-5, high, low;
            x[i] = was + h, high = sum_of(t, y);
            x[i] = was - h, low = sum_of(t, y);
            x[i] = was;
            double got = dx[k] == NONE ? 0 : ((const double *)at[dx[k]].data)[i],
                   want = (high - low) / (2 * h);
            worst = fmax(worst, fabs(got - want) / (1 + fabs(want)));
        }
    }
    ok(worst < 1e-7, "%s: gradients (off by %.1e)", what, worst);
}

/* Numbers without a pattern between lo and hi. */
static ValueId any(T *t, Shape s, double lo, double hi)
{
    int64_t n = shape_elements(&s);
    double *v = arena_array(t->arena, double, n + 1);
    for (int64_t i = 0; i < n; i++)
        v[i] = lo + (hi - lo) * fmod(0.6180339887498949 * (double)(i + 1 + 17 * t->nin), 1);
    return input(t, s, v);
}

/* Two chunks of the sequence, the second shorter; grouped heads; every rule. */
static void test_linear_attention(void)
{
    static const struct { const char *attrs; int decay, beta; } rules[] = {
        {"update_rule=linear q_num_heads=4i kv_num_heads=2i chunk_size=4i", 0, 0},
        {"update_rule=gated q_num_heads=4i kv_num_heads=2i chunk_size=4i", 2, 0},
        {"update_rule=delta q_num_heads=2i kv_num_heads=2i chunk_size=4i", 0, 2},
        {"update_rule=gated_delta q_num_heads=4i kv_num_heads=2i chunk_size=4i", 6, 1},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        T *t = begin();
        int64_t heads = strstr(rules[i].attrs, "q_num_heads=4") ? 4 : 2;
        ValueId in[6] = {any(t, S(1, 6, heads * 3), -1, 1), any(t, S(1, 6, 6), -0.7, 0.7),
                         any(t, S(1, 6, 4), -1, 1), any(t, S(1, 2, 3, 2), -1, 1), NONE, NONE};
        if (rules[i].decay)
            in[4] = any(t, S(1, 6, rules[i].decay), -1, -0.1);
        if (rules[i].beta)
            in[5] = any(t, S(1, 6, rules[i].beta), 0.2, 0.9);
        lower(t, OP_LinearAttention, 27, rules[i].attrs, 6, in, 2);
        check_gradient(t, 0, 0, "LinearAttention");
        arena_free(t->arena);
    }
}

static void test_regions(void)
{
    T *t = begin();
    int64_t *image = arena_array(t->arena, int64_t, 2);
    image[0] = 1;
    ValueId in[3] = {any(t, S(2, 2, 5, 6), -1, 1),
                     input(t, S(2, 4), V(0.5, 0.25, 4.1, 3.3, -2, 1.5, 5.2, 9)),
                     graph_const(t->g, NULL, (Tensor){DT_I64, S(2), image})};
    lower(t, OP_RoiAlign, 22, "output_height=2i output_width=3i sampling_ratio=2i", 3, in, 1);
    check_gradient(t, 0, 2, "RoiAlign");
    ValueId roi = input(t, S(2, 5), V(1, 0, 0, 4, 4, 0, 2, 1, 3, 3));
    lower(t, OP_MaxRoiPool, 22, "pooled_shape=[2,2]", 2, (ValueId[]){in[0], roi}, 1);
    Tensor y = evaluate(t)[t->out[0]], x = t->data[0];
    double most = -HUGE_VAL;                            /* of rows 0 .. 2, columns 0 .. 2 */
    for (int i = 0; i < 9; i++)
        most = fmax(most, ((const double *)x.data)[60 + i / 3 * 6 + i % 3]);
    ok(((const double *)y.data)[0] == most, "MaxRoiPool");
    check_gradient(t, 0, 6, "MaxRoiPool");
    arena_free(t->arena);
}

static void test_deform_conv(void)
{
    T *t = begin();
    ValueId in[5] = {any(t, S(2, 4, 4, 5), -1, 1), any(t, S(2, 2, 2, 2), -1, 1),
                     any(t, S(2, 16, 3, 4), -0.45, 0.45), any(t, S(2), -1, 1),
                     any(t, S(2, 8, 3, 4), 0, 1)};
    lower(t, OP_DeformConv, 22, "group=2i offset_group=2i", 5, in, 1);
    check_gradient(t, 0, 0, "DeformConv");
    arena_free(t->arena);
}

static void test_causal_conv(void)
{
    T *t = begin();
    ValueId in[4] = {any(t, S(2, 3, 4), -1, 1), any(t, S(3, 1, 3), -1, 1), any(t, S(3), -1, 1),
                     any(t, S(2, 3, 2), -1, 1)};
    lower(t, OP_CausalConvWithState, 27, "activation=silu", 4, in, 2);
    check_gradient(t, 0, 0, "CausalConvWithState");
    arena_free(t->arena);
}

/* Of more than five rows: by elimination.  The values are numpy's.  Two are singular: of rank 5, in
   which a column is another one, and of rank 4. */
static void test_det(void)
{
    T *t = begin();
    double v[144];
    for (int i = 0; i < 144; i++)
        v[i] = 2 * fmod(0.6180339887498949 * (i + 1) * (i + 1), 1) - 1;
    for (int row = 0; row < 6; row++) {
        v[72 + 6 * row + 1] = v[72 + 6 * row];
        v[108 + 6 * row] = v[108 + 6 * row + 3] = 0;
    }
    ValueId x = input(t, S(4, 6, 6), v);
    lower(t, OP_Det, 22, "", 1, &x, 1);
    const double *y = evaluate(t)[t->out[0]].data;
    ok(fabs(y[0] + 0.7785140365705316) < 1e-12 && fabs(y[1] + 0.9885515924707378) < 1e-12,
       "Det: %.17g and %.17g", y[0], y[1]);
    ok(fabs(y[2]) < 1e-12 && y[3] == 0, "Det of singular ones: %.17g and %.17g", y[2], y[3]);
    check_gradient(t, 0, 0, "Det");
    arena_free(t->arena);
}

int main(void)
{
    test_det();
    test_linear_attention();
    test_causal_conv();
    test_deform_conv();
    test_regions();
    return tap_done();
}

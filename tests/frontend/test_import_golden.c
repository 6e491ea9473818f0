/*
 * test_import_golden.c - what becomes many operations: values and gradients of each operator against
 * those of PyTorch and torchvision in float64, which goldens.py wrote down.
 */
#include "import_one.h"

typedef enum { NOTHING, WAVE, DATA, WHOLE } Kind; /* DATA: a wave that has no gradient */
typedef struct {
    Kind kind;
    Shape shape;
    double phase, high, offset; /* of a wave */
    int64_t at[16];             /* of WHOLE numbers */
} Operand;
typedef struct {
    Op op;
    int opset;
    const char *attrs;
    uint32_t n;
    Operand operand[MOST];
    int first; /* in numbers: the values, then the gradient of each wave */
} Golden;

#include "goldens.h"

static double *wave(Arena *a, const Operand *o)
{
    int64_t n = shape_elements(&o->shape);
    double *v = arena_array(a, double, n + 1);
    for (int64_t k = 0; k < n; k++)
        v[k] = o->offset + o->high * sin(0.7 * (double)k + o->phase);
    return v;
}

static ValueId operand(T *t, const Operand *o)
{
    if (o->kind == NOTHING)
        return NONE;
    if (o->kind == WAVE)
        return input(t, o->shape, wave(t->arena, o));
    if (o->kind == DATA)
        return graph_const(t->g, NULL, (Tensor){DT_F64, o->shape, wave(t->arena, o)});
    int64_t n = shape_elements(&o->shape), *v = arena_array(t->arena, int64_t, n + 1);
    memcpy(v, o->at, (size_t)n * sizeof *v);
    ValueId x = graph_const(t->g, NULL, (Tensor){DT_I64, o->shape, v});
    return o->shape.rank == 2 ? g_cast(t->g, x, DT_F64) : x; /* regions */
}

static bool all_zero(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

static void check(const Golden *want)
{
    T *t = begin();
    ValueId in[MOST], dx[MOST];
    for (uint32_t i = 0; i < want->n; i++)
        in[i] = operand(t, &want->operand[i]);
    lower(t, want->op, want->opset, want->attrs, want->n, in, 1);
    Operand weight = {WAVE, val(t->g, t->out[0])->shape, .phase = 0.9, .high = 1};
    ValueId r = graph_const(t->g, NULL, (Tensor){DT_F64, weight.shape, wave(t->arena, &weight)});
    differentiate(t, t->out[0], r, dx);
    Tensor *at = evaluate(t);
    const double *x = numbers + want->first;
    ok(close_to(&at[t->out[0]], x), "%s %s", op_name(want->op), want->attrs);
    x += shape_elements(&weight.shape);
    bool agree = true;
    for (uint32_t k = 0; k < t->nin; k++) {
        int64_t n = shape_elements(&t->data[k].shape);
        agree = agree && (dx[k] == NONE ? all_zero(x, n) : close_to(&at[dx[k]], x));
        x += n;
    }
    ok(agree, "%s %s: gradients", op_name(want->op), want->attrs);
    arena_free(t->arena);
}

int main(void)
{
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++)
        check(&golden[i]);
    return tap_done();
}

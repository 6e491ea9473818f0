/*
 * map.c - elementwise ops by the MAP column of ops.def: the very text the generated code computes,
 * expanded once over double and once over wide integers.  Operands are broadcast row by row.
 */
#include <math.h>
#include <string.h>

#include "eval.h"

static double sign_d(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }

/* The sign of the divisor, as in Python. */
static double mod_d(double x, double y)
{
    double r = fmod(x, y);
    return (r < 0 && y > 0) || (r > 0 && y < 0) ? r + y : r;
}

static Wide abs_w(Wide x) { return x < 0 ? -x : x; }
static Wide sign_w(Wide x) { return (x > 0) - (x < 0); }
static Wide min_w(Wide x, Wide y) { return x < y ? x : y; }
static Wide max_w(Wide x, Wide y) { return x > y ? x : y; }
static Wide div_w(Wide x, Wide y) { return y == 0 ? 0 : x / y; }        /* no trap */
static Wide fmod_w(Wide x, Wide y) { return y == 0 ? 0 : x % y; }

static Wide mod_w(Wide x, Wide y)
{
    Wide r = fmod_w(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* Modulo 2^64; a negative power of anything but 1 and -1 is 0. */
static Wide pow_w(Wide x, Wide y)
{
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
    uint64_t r = 1, b = (uint64_t)x;
    for (; y > 0; y >>= 1, b *= b)
        if (y & 1)
            r *= b;
    return (int64_t)r;
}

/* Expands a row's MAP column; other columns never run. */
#define RUN_MAP(text) (text)
#define RUN_KERNEL(kind) 0
#define RUN_VIEW 0
#define RUN_CODE_LOWER(f) 0
#define RUN_VIA_LOWERING 0

/* Operands of a row in the double domain are doubles, but for a condition; rows on bits and truth
 * values never run there. */
#define BITS_BitwiseNot ~, int64_t
#define BITS_BitwiseAnd ~, int64_t
#define BITS_BitwiseOr ~, int64_t
#define BITS_BitwiseXor ~, int64_t
#define BITS_Not ~, int64_t
#define BITS_And ~, int64_t
#define BITS_Or ~, int64_t
#define BITS_Xor ~, int64_t
#define CONDITION_Where ~, int64_t
#define SECOND(probe, type, ...) type
#define SECOND_OF(...) SECOND(__VA_ARGS__)
#define TYPE_A(name) SECOND_OF(CONDITION_##name, TYPE(name), 0)
#define TYPE(name) SECOND_OF_(BITS_##name, double, 0)
#define SECOND_OF_(...) SECOND(__VA_ARGS__)

#define pp_abs(x) fabs(x)
#define pp_sign(x) sign_d(x)
#define pp_exp(x) exp((double)(x))
#define pp_log(x) log((double)(x))
#define pp_sqrt(x) sqrt((double)(x))
#define pp_sin(x) sin((double)(x))
#define pp_cos(x) cos((double)(x))
#define pp_tan(x) tan((double)(x))
#define pp_asin(x) asin((double)(x))
#define pp_acos(x) acos((double)(x))
#define pp_atan(x) atan((double)(x))
#define pp_sinh(x) sinh((double)(x))
#define pp_cosh(x) cosh((double)(x))
#define pp_tanh(x) tanh((double)(x))
#define pp_asinh(x) asinh((double)(x))
#define pp_acosh(x) acosh((double)(x))
#define pp_atanh(x) atanh((double)(x))
#define pp_erf(x) erf((double)(x))
#define pp_sigmoid(x) sigmoid((double)(x))
#define pp_softplus(x) softplus((double)(x))
#define pp_floor(x) floor(x)
#define pp_ceil(x) ceil(x)
#define pp_round(x) rint(x)
#define pp_isinf(x) (isinf(x) != 0)
#define pp_bitcast(x) (x) /* never: eval_bit_cast */
#define pp_pow(x, y) pow(x, y)
#define pp_mod(x, y) mod_d(x, y)
#define pp_fmod(x, y) fmod(x, y)
#define pp_min(x, y) eval_min(x, y)
#define pp_max(x, y) eval_max(x, y)

void eval_map_row(Op op, const double *x, const double *y, const double *z, double *r, int n)
{
    switch (op) {
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, flops, range, \
           cast, onnx, flags, code)                                                                \
    case OP_##name:                                                                                \
        for (int i = 0; i < n; i++) {                                                              \
            const TYPE_A(name) a = (TYPE_A(name))x[i];                                             \
            const TYPE(name) b = (TYPE(name))y[i], c = (TYPE(name))z[i];                           \
            (void)a, (void)b, (void)c;                                                             \
            r[i] = (double)(RUN_##code);                                                           \
        }                                                                                          \
        break;
#include "ir/ops.def"
    default:
        break;
    }
}

#undef pp_abs
#undef pp_sign
#undef pp_floor
#undef pp_ceil
#undef pp_round
#undef pp_isinf
#undef pp_pow
#undef pp_mod
#undef pp_fmod
#undef pp_min
#undef pp_max
#define pp_abs(x) abs_w(x)
#define pp_sign(x) sign_w(x)
#define pp_floor(x) (x)
#define pp_ceil(x) (x)
#define pp_round(x) (x)
#define pp_isinf(x) 0
#define pp_pow(x, y) pow_w(x, y)
#define pp_mod(x, y) mod_w(x, y)
#define pp_fmod(x, y) fmod_w(x, y)
#define pp_min(x, y) min_w(x, y)
#define pp_max(x, y) max_w(x, y)

static void map_wides(Op op, const Wide *x, const Wide *y, const Wide *z, Wide *r, int n)
{
    if (op == OP_Div) {
        for (int i = 0; i < n; i++)
            r[i] = div_w(x[i], y[i]);
        return;
    }
    switch (op) {
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, flops, range, \
           cast, onnx, flags, code)                                                                \
    case OP_##name:                                                                                \
        for (int i = 0; i < n; i++) {                                                              \
            const Wide a = x[i], b = y[i], c = z[i];                                               \
            (void)a, (void)b, (void)c;                                                             \
            r[i] = (Wide)(RUN_##code);                                                             \
        }                                                                                          \
        break;
#include "ir/ops.def"
    default:
        break;
    }
}

/* ---- rows ---- */

enum { CHUNK = 256, OPERANDS = 3 };

typedef struct {
    Shape lead;                                         /* the rows of the result */
    int64_t row;                                        /* elements of one */
    int64_t stride[OPERANDS][MAX_RANK];                 /* of an operand over lead; 0: broadcast */
    bool along[OPERANDS];                               /* whether it moves along the row */
} Plan;

/* One row where every operand has the result's shape or one element, else rows of the last
 * dimension. */
static Plan plan_rows(const Eval *e)
{
    const Shape *r = &e->out[0].shape;
    int64_t n = shape_elements(r);
    Plan p = {.row = n};
    bool flat = true;
    for (uint32_t i = 0; i < e->nin; i++) {
        int64_t k = shape_elements(&e->in[i].shape);
        p.along[i] = k != 1;
        flat = flat && (k == n || k == 1);
    }
    if (flat || r->rank == 0)
        return p;
    p.lead = *r;
    p.lead.rank--;
    p.row = r->d[r->rank - 1];
    for (uint32_t i = 0; i < e->nin; i++) {
        const Shape *s = &e->in[i].shape;
        int64_t dense[MAX_RANK];
        int shift = r->rank - s->rank;
        eval_strides(s, dense);
        p.along[i] = s->rank > 0 && s->d[s->rank - 1] != 1;
        for (int k = 0; k < p.lead.rank; k++)
            p.stride[i][k] = k < shift || s->d[k - shift] == 1 ? 0 : dense[k - shift];
    }
    return p;
}

static int64_t row_offset(const Plan *p, uint32_t operand, const int64_t *index)
{
    int64_t at = 0;
    for (int k = 0; k < p->lead.rank; k++)
        at += index[k] * p->stride[operand][k];
    return at;
}

static void run_rows(Eval *e, const Plan *p, bool floats)
{
    double x[OPERANDS][CHUNK], r[CHUNK];
    Wide u[OPERANDS][CHUNK], w[CHUNK];
    int64_t index[MAX_RANK] = {0}, done = 0;
    for (int i = 0; i < OPERANDS; i++)
        for (int k = 0; k < CHUNK && (k == 0 || k < p->row); k++)
            u[i][k] = 0, x[i][k] = 0;
    do {
        int64_t base[OPERANDS];
        for (uint32_t i = 0; i < e->nin; i++)
            base[i] = row_offset(p, i, index);
        for (int64_t from = 0; from < p->row; from += CHUNK) {
            int n = p->row - from < CHUNK ? (int)(p->row - from) : CHUNK;
            for (uint32_t i = 0; i < e->nin; i++)
                for (int k = 0; k < n; k++) {
                    const int64_t at = base[i] + (p->along[i] ? from + k : 0);
                    if (floats)
                        x[i][k] = eval_double_at(&e->in[i], at);
                    else
                        u[i][k] = eval_wide_at(&e->in[i], at);
                }
            if (floats)
                eval_map_row(e->op, x[0], x[1], x[2], r, n);
            else
                map_wides(e->op, u[0], u[1], u[2], w, n);
            for (int k = 0; k < n; k++, done++)
                if (floats)
                    eval_set_double(&e->out[0], done, r[k]);
                else
                    eval_set_wide(&e->out[0], done, w[k]);
        }
    } while (eval_next(&p->lead, index));
}

void eval_map(Eval *e)
{
    bool floats = false;
    INSIST(e->nin <= OPERANDS);
    for (uint32_t i = 0; i < e->nin; i++)
        floats = floats || dtype_is_float(e->in[i].dtype);
    Plan p = plan_rows(e);
    run_rows(e, &p, floats);
}

void eval_bit_cast(Eval *e)
{
    size_t n = (size_t)shape_elements(&e->in[0].shape) * dtype_size(e->in[0].dtype);
    if (n)
        memcpy(e->out[0].data, e->in[0].data, n);
}

/* Truncates towards zero, wraps between integers, and is != 0 for bool. */
void eval_cast(Eval *e)
{
    const Tensor *x = &e->in[0], *y = &e->out[0];
    for (int64_t i = 0, n = shape_elements(&x->shape); i < n; i++)
        element_copy(y->dtype, y->data, x->dtype, x->data, i);
}

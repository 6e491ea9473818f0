/*
 * after.c - what follows a convolution, where the runtime's library knows the formula.  In: the
 * nest over its images (then.c).  Out: Step.after.
 *
 *     s = conv + bias[channel] + sum[element]         either may be missing; or conv + number
 *     y = s bounded from below, then from above       Relu, Clip; neither
 *       or s (s scale + shift within 0 and 1)         HardSwish
 *
 * The library then need not call the nest for a part that is complete (PpAfter in pp.h): it
 * computes this before the sums leave the registers, in the same order, so the bits are the nest's.
 */
#include <math.h>

#include "plan.h"

typedef struct {
    const Nest *n;
    uint32_t conv;                  /* the buffer of the convolution's result */
    Lin dense[NEST_DIMS], channel[NEST_DIMS];   /* strides: an element each, a number a channel */
    After *after;
} Formula;

static const Stmt *operand(const Formula *f, const Stmt *s, int i)
{
    return &f->n->stmt.at[s->in[i]];
}

static bool is_number(const Stmt *s, double k)
{
    return s->kind == S_CONST && !(s->k < k) && !(s->k > k) && signbit(s->k) == signbit(k);
}

static bool lies(const Formula *f, const Stmt *s, const Lin *stride)
{
    for (int d = 0; d < f->n->nd; d++)
        if (!lin_is(f->n->ext[d], 1) && !lin_eq(s->stride[d], stride[d]))
            return false;
    return s->type == DT_F32 && lin_is(s->base, 0) && !s->nindex && !s->nguard;
}

static bool is_conv(const Formula *f, const Stmt *s)
{
    return s->kind == S_LOAD && lies(f, s, f->dense) && f->n->arg.at[s->arg].buf == f->conv;
}

/* conv, or conv + bias; nothing is added by -0. */
static bool biased(const Formula *f, const Stmt *s)
{
    After *a = f->after;
    a->plus = -0.0;
    if (is_conv(f, s))
        return true;
    for (int i = 0; stmt_is(s, OP_Add) && i < 2; i++) {
        const Stmt *bias = operand(f, s, 1 - i);
        if (!is_conv(f, operand(f, s, i)))
            continue;
        if (bias->kind == S_CONST)
            a->plus = bias->k;
        else if (bias->kind == S_LOAD && lies(f, bias, f->channel))
            a->bias = bias->arg;
        else
            continue;
        return true;
    }
    return false;
}

/* That, or that + sum */
static bool summed(const Formula *f, const Stmt *s)
{
    if (biased(f, s))
        return true;
    for (int i = 0; stmt_is(s, OP_Add) && i < 2; i++) {
        const Stmt *sum = operand(f, s, 1 - i);
        if (biased(f, operand(f, s, i)) && sum->kind == S_LOAD && lies(f, sum, f->dense) &&
            !is_conv(f, sum)) {
            f->after->sum = sum->arg;
            return true;
        }
    }
    return false;
}

/* What x is in `x compare k ? k : rest`; NULL: it is no such choice. */
static const Stmt *chosen(const Formula *f, const Stmt *s, Op compare, double *k)
{
    if (!stmt_is(s, OP_Where) || !stmt_is(operand(f, s, 0), compare))
        return NULL;
    const Stmt *test = operand(f, s, 0), *bound = operand(f, s, 1);
    if (bound->kind != S_CONST || bound->type != DT_F32 ||
        !is_number(operand(f, test, 1), bound->k))
        return NULL;
    *k = bound->k;
    return operand(f, test, 0);
}

static const Stmt *bounded(const Formula *f, const Stmt *s, Op compare, double *k)
{
    const Stmt *x = chosen(f, s, compare, k);
    return x && x == operand(f, s, 2) ? x : NULL;
}

/* What the bounds are for.  One that is 0 has to make 0 of -0: of the upper ones, and of -0, the
   library would not. */
static const Stmt *within_bounds(const Formula *f, const Stmt *s)
{
    double k;
    const Stmt *x = bounded(f, s, OP_GreaterOrEqual, &k);
    if (x && (k < 0 || k > 0)) {
        f->after->high = k;
        s = x;
    }
    if (stmt_is(s, OP_Relu)) {
        f->after->low = 0;
        return operand(f, s, 0);
    }
    x = bounded(f, s, OP_LessOrEqual, &k);
    if (x && !is_number(&(Stmt){.kind = S_CONST, .k = k}, -0.0)) {
        f->after->low = k;
        return x;
    }
    return s;
}

/* x + k or x * k */
static const Stmt *with_number(const Formula *f, const Stmt *s, Op op, double *k)
{
    for (int i = 0; stmt_is(s, op) && i < 2; i++)
        if (operand(f, s, 1 - i)->kind == S_CONST) {
            *k = operand(f, s, 1 - i)->k;
            return operand(f, s, i);
        }
    return NULL;
}

/* x in x (x scale + shift within 0 and 1), whose sum is never -0; NULL: it is none. */
static const Stmt *swished(const Formula *f, const Stmt *s)
{
    After *a = f->after;
    for (int i = 0; stmt_is(s, OP_Mul) && i < 2; i++) {
        double zero = 1, one = 0;
        const Stmt *x = operand(f, s, i), *gate = operand(f, s, 1 - i),
                   *low = chosen(f, gate, OP_LessOrEqual, &zero);
        if (!low || bounded(f, operand(f, gate, 2), OP_GreaterOrEqual, &one) != low || zero != 0 ||
            signbit(zero) || one != 1)
            continue;
        const Stmt *scaled = with_number(f, low, OP_Add, &a->shift);
        if (scaled && a->shift > 0 && with_number(f, scaled, OP_Mul, &a->scale) == x) {
            a->swish = true;
            return x;
        }
    }
    return NULL;
}

/* The only store, and nothing added to what is there. */
static const Stmt *only_store(const Nest *n)
{
    const Stmt *store = NULL;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_STORE) {
            if (store || n->stmt.at[i].acc)
                return NULL;
            store = &n->stmt.at[i];
        }
    return store;
}

const After *cg_after(Func *f, const Nest *image, uint32_t conv)
{
    Lin line = image->ext[1];
    if (!lin_mul(line, image->ext[2], &line))
        return NULL;
    After *a = arena_new_of(f->a, After);
    *a = (After){.bias = NONE,
                 .sum = NONE,
                 .low = -(double)INFINITY,
                 .high = (double)INFINITY};
    const Formula x = {
        image, conv, {line, image->ext[2], lin(1)}, {lin(0), lin(1), lin(0)}, a};
    const Stmt *store = only_store(image);
    if (!store || !lies(&x, store, x.dense))
        return NULL;
    a->out = store->arg;
    const Stmt *y = operand(&x, store, 0), *of = swished(&x, y);
    return summed(&x, of ? of : within_bounds(&x, y)) ? a : NULL;
}

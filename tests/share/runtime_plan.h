/*
 * runtime_plan.h - a pipeline written by hand, as the compiler would write it: three or four stages
 * of plain arithmetic with a skip, a parameter used in two stages, a stash, values saved between I
 * and W, a batch dimension that is not the first.
 *
 *   h0 = x a w          s0 = x + a         (stage 0)
 *   h1 = h0^2 b                            (stage 1)      h1' = h1 c (stage 2, when there are four)
 *   y  = h1 w + s0      loss = sum (y - target)^2 * loss_scale
 */
#ifndef RUNTIME_PLAN_H
#define RUNTIME_PLAN_H

#include "runtime/api/pp.h"

#ifndef COLUMNS
#define COLUMNS 3
#endif
enum { D = COLUMNS, ROWS = 4, ONE = (D * 4 + 63) / 64 * 64 }; /* ONE: bytes of a vector's room */

static void first_forward(const PpCtx *c)
{
    const float *x = c->in[0], *a = (const float *)(void *)c->param,
                *w = (const float *)(void *)(c->param + ONE);
    float *h = c->out[0], *s = c->out[1];
    for (int64_t i = 0; i < c->rows * D; i++) {
        h[i] = x[i] * a[i % D] * w[i % D];
        s[i] = x[i] + a[i % D];
    }
}

/* dy: gradients of h0, of s0.  Saved for W: both. */
static void first_input(const PpCtx *c)
{
    float *saved = (float *)(void *)c->saved;
    const float *dh = c->dy[0], *ds = c->dy[1];
    for (int64_t i = 0; i < c->rows * D; i++) {
        saved[i] = dh[i];
        saved[ROWS * D + i] = ds[i];
    }
}

static void first_weight_from(const PpCtx *c, const float *dh, const float *ds)
{
    const float *x = c->in[0], *a = (const float *)(void *)c->param,
                *w = (const float *)(void *)(c->param + ONE);
    float *da = (float *)(void *)c->grad, *dw = (float *)(void *)(c->grad + ONE);
    for (int64_t i = 0; i < c->rows * D; i++) {
        da[i % D] += dh[i] * x[i] * w[i % D] + ds[i];
        dw[i % D] += dh[i] * x[i] * a[i % D];
    }
}

static void first_weight(const PpCtx *c)
{
    first_weight_from(c, (const float *)(void *)c->saved,
                      (const float *)(void *)c->saved + ROWS * D);
}

static void first_backward(const PpCtx *c) { first_weight_from(c, c->dy[0], c->dy[1]); }

static void second_infer(const PpCtx *c)
{
    const float *h = c->in[0], *b = (const float *)(void *)c->param;
    float *o = c->out[0];
    for (int64_t i = 0; i < c->rows * D; i++)
        o[i] = h[i] * h[i] * b[i % D];
}

static void second_forward(const PpCtx *c)
{
    const float *h = c->in[0];
    float *stash = (float *)(void *)c->stash;
    second_infer(c);
    for (int64_t i = 0; i < c->rows * D; i++)
        stash[i] = h[i] * h[i];
}

static void second_input(const PpCtx *c)
{
    const float *h = c->in[0], *b = (const float *)(void *)c->param, *dy = c->dy[0];
    float *dx = c->dx[0];
    for (int64_t i = 0; i < c->rows * D; i++)
        dx[i] = dy[i] * 2 * h[i] * b[i % D];
}

static void second_weight(const PpCtx *c)
{
    const float *stash = (const float *)(void *)c->stash, *dy = c->dy[0];
    float *db = (float *)(void *)c->grad;
    for (int64_t i = 0; i < c->rows * D; i++)
        db[i % D] += dy[i] * stash[i];
}

static void second_backward(const PpCtx *c)
{
    second_input(c);
    second_weight(c);
}

/* target is [D, rows]: its batch dimension is the second. */
static void last_forward(const PpCtx *c)
{
    const float *h = c->in[0], *s = c->in[1], *t = c->in[2], *scale = c->in[3],
                *w = (const float *)(void *)c->param;
    float *y = c->out[0], *loss = c->out[1], sum = 0;
    for (int64_t i = 0; i < c->rows * D; i++) {
        y[i] = h[i] * w[i % D] + s[i];
        float e = y[i] - t[i % D * c->rows + i / D];
        sum += e * e;
    }
    *loss = sum * *scale;
}

static void last_input(const PpCtx *c)
{
    const float *t = c->in[2], *scale = c->in[3], *w = (const float *)(void *)c->param,
                *y = c->out[0];
    float *dh = c->dx[0], *ds = c->dx[1], *saved = (float *)(void *)c->saved;
    for (int64_t i = 0; i < c->rows * D; i++) {
        float e = 2 * (y[i] - t[i % D * c->rows + i / D]) * *scale;
        dh[i] = e * w[i % D];
        ds[i] = e;
        saved[i] = e;
    }
}

static void last_weight(const PpCtx *c)
{
    const float *h = c->in[0], *e = (const float *)(void *)c->saved;
    float *dw = (float *)(void *)c->grad;
    for (int64_t i = 0; i < c->rows * D; i++)
        dw[i % D] += e[i] * h[i];
}

static void last_backward(const PpCtx *c)
{
    const float *h = c->in[0], *t = c->in[2], *scale = c->in[3],
                *w = (const float *)(void *)c->param, *y = c->out[0];
    float *dh = c->dx[0], *ds = c->dx[1], *dw = (float *)(void *)c->grad;
    for (int64_t i = 0; i < c->rows * D; i++) {
        float e = 2 * (y[i] - t[i % D * c->rows + i / D]) * *scale;
        dh[i] = e * w[i % D];
        ds[i] = e;
        dw[i % D] += e * h[i];
    }
}

// clang-format off
#define ROW_TENSOR(n) {.name = n, .dtype = PP_F32, .rank = 2, .dim = {ROWS, D}, .batch_dim = 0, .bytes = ROWS * D * 4}
#define WEIGHT(n, NUMBER, USE, FROM, AT) {.t = VECTOR(n), .param = NUMBER, .use = USE, .from = FROM, .trainable = 1, .offset = AT, .grad_offset = AT, .half_offset = -1}
#define VECTOR(n) {.name = n, .dtype = PP_F32, .rank = 1, .dim = {D}, .batch_dim = -1, .bytes = D * 4}
#define SCALAR(n) {.name = n, .dtype = PP_F32, .rank = 0, .batch_dim = -1, .bytes = 4}
#define TARGET {.name = "target", .dtype = PP_F32, .rank = 2, .dim = {D, ROWS}, .batch_dim = 1, .bytes = ROWS * D * 4}

static const PpTensor plan_inputs[] = {ROW_TENSOR("x"), TARGET};
static const PpTensor plan_outputs[] = {ROW_TENSOR("y")};

static const PpInput first_in[] = {{ROW_TENSOR("x"), -1, 0, 2, 0, 0}};
static const PpOutput first_out[] = {{ROW_TENSOR("h0"), -1, 0, 1, 0, 0}, {ROW_TENSOR("s0"), -1, 0, 1, 0, 0}};
static const PpParam first_param[] = {WEIGHT("a", 0, PP_OWN, 0, 0), WEIGHT("w", 1, PP_OWN, 0, ONE)};
static const PpInput second_in[] = {{ROW_TENSOR("h0"), 0, 0, 1, 1, 0}};
static const PpOutput second_out[] = {{ROW_TENSOR("h1"), -1, 0, 1, 0, 0}};
static const PpParam second_param[] = {WEIGHT("b", 2, PP_OWN, 1, 0)};

/* LAST: the number of the last stage; WUSE: how it holds w. */
#define LAST_TABLES(LAST, USE)                                                                                         \
    {{ROW_TENSOR("h1"), LAST - 1, 0, 2, 1, 0}, {ROW_TENSOR("s0"), 0, 1, 0, 1, 0}, {TARGET, -1, 1, 1, 0, 0}, \
     {SCALAR("loss_scale"), -2, 0, 1, 0, 0}}
static const PpInput last_in_3[] = LAST_TABLES(2, 0), last_in_4[] = LAST_TABLES(3, 0);
static const PpOutput last_out[] = {{ROW_TENSOR("y"), 0, 1, 0, 0, 0}, {SCALAR("loss"), -1, 0, 0, 0, 0}};
static const PpParam last_transmit[] = {WEIGHT("w", 1, PP_TRANSMIT, 0, 0)};
static const PpParam last_replicate[] = {WEIGHT("w", 1, PP_REPLICATE, 0, 0)};
static const PpParam first_replicate[] = {WEIGHT("a", 0, PP_OWN, 0, 0), WEIGHT("w", 1, PP_REPLICATE, 0, ONE)};
static const PpDy first_dy_3[] = {{0, 1, 0, 0, 1}, {1, 2, 1, 0, 1}}, first_dy_4[] = {{0, 1, 0, 0, 1}, {1, 3, 1, 0, 1}};
static const PpDy second_dy[] = {{0, 2, 0, 0, 2}};
static const PpInput third_in[] = {{ROW_TENSOR("h1"), 1, 0, 1, 1, 0}};
static const PpOutput third_out[] = {{ROW_TENSOR("h1b"), -1, 0, 1, 0, 0}};
static const PpParam third_param[] = {WEIGHT("c", 3, PP_OWN, 2, 0)};
static const PpDy third_dy[] = {{0, 3, 0, 0, 2}};

#define FIRST(DY, PARAM) {.index = 0, .label = "first", .n_input = 1, .n_output = 2, .n_dy = 2, .n_param = 2, .input = first_in, .output = first_out, \
    .dy = DY, .param = PARAM, .bytes.param = 2 * ONE, .bytes.grad = 2 * ONE, .bytes.saved = 2 * ROWS * D * 4, .has_backward = 1, .call.forward = first_forward, \
    .call.infer = first_forward, .call.backward = first_backward, .call.backward_input = first_input, .call.backward_weight = first_weight}
#define SECOND(I, IN, OUT, DY, PARAM) {.index = I, .label = "middle", .n_input = 1, .n_output = 1, .n_dy = 1, .n_dx = 1, .n_param = 1, .input = IN, .output = OUT, \
    .dy = DY, .param = PARAM, .bytes.param = ONE, .bytes.grad = ONE, .bytes.stash = ROWS * D * 4, .has_backward = 1, .call.forward = second_forward, \
    .call.infer = second_infer, .call.backward = second_backward, .call.backward_input = second_input, .call.backward_weight = second_weight}
#define LAST_STAGE(I, IN, PARAM) {.index = I, .label = "last", .n_input = 4, .n_output = 2, .n_dx = 2, .n_param = 1, .input = IN, .output = last_out, \
    .param = PARAM, .bytes.param = ONE, .bytes.grad = ONE, .bytes.saved = ROWS * D * 4, .bytes.work = {64, 64, 64, 64, 64, 64}, .has_backward = 1, .call.forward = last_forward, \
    .call.infer = last_forward, .call.backward = last_backward, .call.backward_input = last_input, .call.backward_weight = last_weight}

static const PpStage t0_3 = FIRST(first_dy_3, first_param), t1_3 = SECOND(1, second_in, second_out, second_dy, second_param), t2_3 = LAST_STAGE(2, last_in_3, last_transmit);
static const PpStage r0_3 = FIRST(first_dy_3, first_replicate), r2_3 = LAST_STAGE(2, last_in_3, last_replicate);
static const PpStage t0_4 = FIRST(first_dy_4, first_param), t1_4 = SECOND(1, second_in, second_out, second_dy, second_param),
    t2_4 = SECOND(2, third_in, third_out, third_dy, third_param), t3_4 = LAST_STAGE(3, last_in_4, last_transmit);
static const PpStage r0_4 = FIRST(first_dy_4, first_replicate), r3_4 = LAST_STAGE(3, last_in_4, last_replicate);

static const PpStage *const stages_t3[] = {&t0_3, &t1_3, &t2_3}, *const stages_r3[] = {&r0_3, &t1_3, &r2_3};
static const PpStage *const stages_t4[] = {&t0_4, &t1_4, &t2_4, &t3_4}, *const stages_r4[] = {&r0_4, &t1_4, &t2_4, &r3_4};

#define PLAN(N, STAGES) {.model = "by hand", .program.hash = 1, .program.model_hash = 2, .rows = ROWS, .uneven.ok = 1, .n_stage = N, .n_input = 2, .n_output = 1, .n_param = N, \
    .stage = STAGES, .input = plan_inputs, .output = plan_outputs, .loss.stage = N - 1, .loss.output = 1, .loss.kind = PP_LOSS_MEAN_ELEMENTS, \
    .loss.ignore = -100, .loss.target = 1}
// clang-format on
static const PpPlan plans[4] = {PLAN(3, stages_t3), PLAN(3, stages_r3), PLAN(4, stages_t4),
                                PLAN(4, stages_r4)};

#endif

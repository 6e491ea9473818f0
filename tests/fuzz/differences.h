/*
 * differences.h - the numbers of a random graph, and its gradients by the evaluator against central
 * differences of its own loss, along a random direction.  In: a StageRun of a Pipe in float64.
 */
#ifndef FUZZ_DIFFERENCES_H
#define FUZZ_DIFFERENCES_H

#include <math.h>

#include "draw.h"
#include "stage_compare.h"

static void set_number(Dtype t, void *data, int64_t i, double v)
{
    switch (t) {
    case DT_F32: ((float *)data)[i] = (float)v; break;
    case DT_F64: ((double *)data)[i] = v; break;
    case DT_I64: ((int64_t *)data)[i] = (int64_t)floor(20 * v); break;
    default: BUG("an input of type %s", dtype_name(t));
    }
}

/* Inputs and parameters from a number of their own, the same whatever the cut; `shift` times a
 * direction is added to what trains. */
static void set_all(StageRun *r, uint64_t seed, double scale, double shift)
{
    Graph *g = r->g;
    uint64_t s = seed, direction = seed + 77;
    for (uint32_t i = 0; i < g->input.n; i++) {
        const Value *x = val(g, g->input.at[i]);
        int64_t n = shape_elements(&x->shape);
        void *data = arena_calloc(r->a, (size_t)n + 1, dtype_size(x->dtype));
        for (int64_t k = 0; k < n; k++)
            set_number(x->dtype, data, k,
                       g->input.at[i] == r->p->loss_scale
                           ? scale
                           : (double)fuzz_below(&s, 2000001) / 1000000 - 1);
        run_set(r, g->input.at[i], data);
    }
    for (uint32_t i = 0; i < g->param.n; i++) {
        Param *p = &g->param.at[i];
        int64_t n = shape_elements(&p->shape);
        void *data = arena_calloc(r->a, (size_t)n + 1, dtype_size(p->dtype));
        param_bytes(p, data);
        for (int64_t k = 0; k < n; k++) {
            double v =
                run_number(p->dtype, data, k) + 0.3 * ((double)fuzz_below(&s, 2001) / 1000 - 1);
            set_number(p->dtype, data, k,
                       v + shift * ((double)fuzz_below(&direction, 2001) / 1000 - 1));
        }
        run_set(r, p->value, data);
    }
}

static void evaluate(StageRun *r, bool backward)
{
    run_forget_evaluated(r);
    r->training = true;
    for (uint32_t i = 0; i < r->p->stage.n; i++)
        run_list(r, &r->p->stage.at[i].forward);
    for (uint32_t i = r->p->stage.n; backward && i-- > 0;)
        run_list(r, &r->p->stage.at[i].backward);
}

static double loss_at(StageRun *r, uint64_t seed, double shift)
{
    set_all(r, seed, 1, shift);
    evaluate(r, false);
    Tensor t = run_operand(r, r->p->loss);
    return run_number(t.dtype, t.data, 0);
}

/* Sum of gradient times direction over all that trains; *size: of the absolute values. */
static double slope(StageRun *r, uint64_t seed, double *size)
{
    uint64_t direction = seed + 77;
    double sum = 0;
    set_all(r, seed, 1, 0);
    evaluate(r, true);
    *size = 0;
    for (uint32_t i = 0; i < r->g->param.n; i++) {
        const Param *p = &r->g->param.at[i];
        int64_t n = shape_elements(&p->shape);
        double *total = arena_array(r->a, double, n + 1);
        for (uint32_t s = 0; s < r->p->stage.n; s++)
            for (uint32_t u = 0; u < r->p->stage.at[s].param.n; u++) {
                const ParamUse *use = &r->p->stage.at[s].param.at[u];
                for (uint32_t k = 0; use->param == i && k < use->grads.n; k++) {
                    Tensor t = run_operand(r, use->grads.at[k]);
                    INSIST(shape_elements(&t.shape) == n);
                    for (int64_t e = 0; e < n; e++)
                        total[e] += run_number(t.dtype, t.data, e);
                }
            }
        for (int64_t e = 0; e < n; e++) {
            double part = total[e] * ((double)fuzz_below(&direction, 2001) / 1000 - 1);
            sum += part;
            *size += fabs(part);
        }
    }
    return sum;
}

/* A kink or a step between the two points is bad luck once: a gradient is wrong when it is so at
 * every one of several places.  Whether they were compared, and agree. */
static bool differences_agree(StageRun *r, uint64_t seed)
{
    enum { PLACES = 4 };
    double worst[2] = {0, 0};
    int steps = 0;
    for (int place = 0; place < PLACES; place++) {
        double size, g = slope(r, seed + 1000 * (uint64_t)place, &size), h = 1e-5;
        if (!isfinite(g))
            return false;
        for (int k = 0; k < 3; k++, h *= 0.1) {
            double d = (loss_at(r, seed + 1000 * (uint64_t)place, h) -
                        loss_at(r, seed + 1000 * (uint64_t)place, -h)) /
                       (2 * h);
            if (fabs(d - g) <= 1e-4 * (size + fabs(d)) + 1e-7)
                return true;
            worst[0] = g;
            worst[1] = d;
        }
        /* where two numbers are as good as equal, their order is one */
        steps += fabs(worst[1]) * h > 1e-4 * (size + 1);
    }
    if (steps < PLACES)
        run_wrong(r, "the slope by the gradients is %.9g, by differences of the loss %.9g",
                  worst[0], worst[1]);
    return false;
}

#endif

/*
 * training.c - one step of an optimizer as a node: Adagrad, Adam and Momentum of domain
 * ai.onnx.preview.training (version 1).  In: the rate R, the step's number T, then all tensors X,
 * all their gradients, all of each state.  Out: the new tensors, then the new states.  A model that
 * holds such nodes is computed; it is not what trains it (runtime/optim/).
 */
#include "frontend/low/low.h"

#include <string.h>

enum { STATES = 2 };

typedef struct {
    Import *im;
    Graph *g;
    uint32_t n;                 /* tensors */
    ValueId x, grad, state[STATES], out[STATES];
} Update;

/* R or T as a number of x's type. */
static ValueId scalar(const Update *u, uint32_t i)
{
    ValueId v = low_need(u->im, i);
    Shape s = low_shape(u->g, v);
    if (shape_elements(&s) != 1)
        low_fatal(u->im, (int)i, "one number is needed");
    return g_cast(u->g, g_reshape(u->g, v, &(Shape){0}), low_dtype(u->g, u->x));
}

/* k x + y */
static ValueId axpy(Graph *g, double k, ValueId x, ValueId y)
{
    return g_add(g, low_scale(g, x, k), y);
}

/* The gradient with that of norm_coefficient |x|^2 / 2. */
static ValueId regularised(const Update *u)
{
    return axpy(u->g, im_float(u->im, "norm_coefficient", 0), u->x, u->grad);
}

typedef ValueId Rule(Update *u); /* gives the new x, fills out */

/* h += g^2, x -= R / (1 + T decay) g / (sqrt(h) + epsilon)  (Duchi et al., 2011) */
static ValueId adagrad(Update *u)
{
    Graph *g = u->g;
    ValueId grad = regularised(u), t = scalar(u, 1);
    ValueId decayed = axpy(g, im_float(u->im, "decay_factor", 0), t, g_like(g, t, 1));
    u->out[0] = g_add(g, u->state[0], low_square(g, grad));
    ValueId divisor = g_unary(g, OP_Sqrt, u->out[0]);
    divisor = g_add(g, divisor, g_like(g, divisor, im_float(u->im, "epsilon", (double)1e-6f)));
    ValueId rate = g_div(g, scalar(u, 0), decayed);
    return g_sub(g, u->x, g_div(g, g_mul(g, rate, grad), divisor));
}

/* 1 - base^t */
static ValueId bias(Graph *g, double base, ValueId t)
{
    ValueId power = g_binary(g, OP_Pow, g_like(g, t, base), t);
    return g_sub(g, g_like(g, t, 1), power);
}

/* Kingma & Ba, 1412.6980, with the bias taken out of the rate from T = 1 on */
static ValueId adam(Update *u)
{
    Graph *g = u->g;
    double alpha = im_float(u->im, "alpha", (double)0.9f),
           beta = im_float(u->im, "beta", (double)0.999f),
           post = im_float(u->im, "norm_coefficient_post", 0);
    ValueId grad = regularised(u), t = scalar(u, 1), rate = scalar(u, 0), zero = g_like(g, t, 0);
    u->out[0] = axpy(g, alpha, u->state[0], low_scale(g, grad, 1 - alpha));
    u->out[1] = axpy(g, beta, u->state[1], low_scale(g, low_square(g, grad), 1 - beta));
    ValueId root = g_unary(g, OP_Sqrt, u->out[1]),
            divisor = g_add(g, root, g_like(g, root, im_float(u->im, "epsilon", (double)1e-6f)));
    ValueId began = g_binary(g, OP_Greater, t, zero), age = g_where(g, began, t, g_like(g, t, 1));
    ValueId freed = g_div(g, g_mul(g, rate, g_unary(g, OP_Sqrt, bias(g, beta, age))),
                          bias(g, alpha, age));
    rate = g_where(g, began, freed, rate);
    ValueId y = g_sub(g, u->x, g_mul(g, rate, g_div(g, u->out[0], divisor)));
    return low_scale(g, y, 1 - post);
}

/* v = alpha v + beta g, with 1 for beta when T = 0; x -= R v, or R (g + alpha v) (Nesterov) */
static ValueId momentum(Update *u)
{
    Graph *g = u->g;
    bool nesterov = low_choice(u->im, "mode", "standard", "standard nesterov");
    double alpha = im_float(u->im, "alpha", 0);
    ValueId grad = regularised(u), t = scalar(u, 1);
    ValueId began = g_binary(g, OP_Greater, t, g_like(g, t, 0)),
            beta = g_where(g, began, g_like(g, t, im_float(u->im, "beta", 0)), g_like(g, t, 1));
    u->out[0] = axpy(g, alpha, u->state[0], g_mul(g, beta, grad));
    ValueId step = nesterov ? axpy(g, alpha, u->out[0], grad) : u->out[0];
    return g_sub(g, u->x, g_mul(g, scalar(u, 0), step));
}

static void each_tensor(Import *im, uint32_t states, Rule *rule)
{
    uint32_t kinds = 2 + states;
    if ((im->nin - 2) % kinds)
        low_fatal(im, -1, "%u operands: R, T and %u for each tensor are needed", im->nin, kinds);
    Update u = {.im = im, .g = im->g, .n = (im->nin - 2) / kinds};
    for (uint32_t i = 0; i < u.n; i++) {
        u.x = low_need_float(im, 2 + i), u.grad = low_need_float(im, 2 + u.n + i);
        for (uint32_t k = 0; k < states; k++)
            u.state[k] = low_need_float(im, 2 + (2 + k) * u.n + i);
        ValueId y = rule(&u);
        for (uint32_t k = 0; k <= states; k++)
            if (k * u.n + i < im->nout)
                im->out[k * u.n + i] = k ? u.out[k - 1] : y;
    }
}

void import_adagrad(Import *im) { each_tensor(im, 1, adagrad); }
void import_adam(Import *im) { each_tensor(im, 2, adam); }
void import_momentum(Import *im) { each_tensor(im, 1, momentum); }

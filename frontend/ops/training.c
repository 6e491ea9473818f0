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
    uint32_t n; /* tensors */
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

static double number(const Update *u, const char *name, double dflt)
{
    return im_float(u->im, name, dflt);
}

/* The gradient with that of norm_coefficient |x|^2 / 2. */
static ValueId regularised(const Update *u)
{
    return g_formula(u->g, "x, grad, double norm: x * norm + grad", u->x, u->grad,
                     number(u, "norm_coefficient", 0));
}

typedef ValueId Rule(Update *u); /* gives the new x, fills out */

/* Duchi et al., 2011 */
static ValueId adagrad(Update *u)
{
    ValueId grad = regularised(u);
    u->out[0] = g_formula(u->g, "h, grad: h + grad * grad", u->state[0], grad);
    return g_formula(u->g,
                     "x, grad, h, R, T, double decay, double epsilon:"
                     "rate = R / (T * decay + 1); x - rate * grad / (Sqrt(h) + epsilon)",
                     u->x, grad, u->out[0], scalar(u, 0), scalar(u, 1),
                     number(u, "decay_factor", 0), number(u, "epsilon", (double)1e-6f));
}

/* Kingma & Ba, 1412.6980, with the bias taken out of the rate from T = 1 on */
static ValueId adam(Update *u)
{
    double alpha = number(u, "alpha", (double)0.9f), beta = number(u, "beta", (double)0.999f);
    ValueId grad = regularised(u);
    u->out[0] =
        g_formula(u->g, "m, grad, double a: m * a + grad * (1 - a)", u->state[0], grad, alpha);
    u->out[1] = g_formula(u->g, "v, grad, double b: v * b + grad * grad * (1 - b)", u->state[1],
                          grad, beta);
    return g_formula(u->g,
                     "x, m, v, R, T, double a, double b, double epsilon, double post:"
                     "began = T > 0; age = began ? T : 1;"
                     "freed = R * Sqrt(1 - Pow(b, age)) / (1 - Pow(a, age));"
                     "(x - (began ? freed : R) * (m / (Sqrt(v) + epsilon))) * (1 - post)",
                     u->x, u->out[0], u->out[1], scalar(u, 0), scalar(u, 1), alpha, beta,
                     number(u, "epsilon", (double)1e-6f), number(u, "norm_coefficient_post", 0));
}

/* With 1 for beta when T = 0 */
static ValueId momentum(Update *u)
{
    bool nesterov = low_choice(u->im, "mode", "standard", "standard nesterov");
    double alpha = number(u, "alpha", 0);
    ValueId grad = regularised(u);
    u->out[0] = g_formula(u->g,
                          "v, grad, T, double alpha, double beta:"
                          "v * alpha + (T > 0 ? beta * grad : grad)",
                          u->state[0], grad, scalar(u, 1), alpha, number(u, "beta", 0));
    return g_formula(u->g,
                     nesterov ? "x, v, grad, R, double alpha: x - R * (v * alpha + grad)"
                              : "x, v, grad, R: x - R * v",
                     u->x, u->out[0], grad, scalar(u, 0), alpha);
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

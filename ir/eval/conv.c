/*
 * conv.c - matrix products, convolutions and pools.  A convolution, its transpose and its weight
 * gradient are one loop nest over (x, w, y): which of the three is written is all that differs.
 */
#include <math.h>
#include <string.h>

#include "eval.h"

static void product_doubles(const double *a, const double *b, double *c, int64_t m, int64_t k,
                            int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}

static void product_wides(const Wide *a, const Wide *b, Wide *c, int64_t m, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++)
                c[i * n + j] += a[i * k + p] * b[p * n + j];
}

/* Number of the operand's matrix for a matrix of the result: leading dimensions broadcast. */
static int64_t matrix_of(const Shape *s, const Shape *lead, const int64_t *index)
{
    int64_t at = 0;
    for (int i = 0; i < s->rank - 2; i++)
        at = at * s->d[i] + (s->d[i] == 1 ? 0 : index[i + lead->rank - (s->rank - 2)]);
    return at;
}

void eval_matmul(Eval *e)
{
    const Shape *a = &e->in[0].shape, *b = &e->in[1].shape, *r = &e->out[0].shape;
    int64_t m = r->d[r->rank - 2], n = r->d[r->rank - 1], k = a->d[a->rank - 1],
            index[MAX_RANK] = {0}, i = 0;
    size_t count = (size_t)shape_elements(r);
    bool floats = dtype_is_float(e->in[0].dtype);
    const double *x = floats ? eval_doubles(e, &e->in[0]) : NULL,
                 *y = floats ? eval_doubles(e, &e->in[1]) : NULL;
    const Wide *u = floats ? NULL : eval_wides(e, &e->in[0]),
               *v = floats ? NULL : eval_wides(e, &e->in[1]);
    double *z = floats ? eval_scratch(e, count, sizeof *z) : NULL;
    Wide *w = floats ? NULL : eval_scratch(e, count, sizeof *w);
    Shape lead = *r;
    lead.rank -= 2;
    do {
        int64_t p = matrix_of(a, &lead, index) * m * k, q = matrix_of(b, &lead, index) * k * n;
        if (floats)
            product_doubles(x + p, y + q, z + i, m, k, n);
        else
            product_wides(u + p, v + q, w + i, m, k, n);
        i += m * n;
    } while (eval_next(&lead, index));
    for (size_t j = 0; e->nin > 2 && j < count; j++)    /* MatMulBias */
        z[j] += eval_double_at(&e->in[2], (int64_t)j % n);
    if (floats)
        eval_store_doubles(&e->out[0], z);
    else
        eval_store_wides(&e->out[0], w);
}

/* ---- windows: one to three spatial dimensions, always treated as three ---- */

typedef struct {
    /* x: [batch, xc, X], y: [batch, yc, Y], w: [yc, xc / group, K] */
    int64_t batch, xc, yc, group;
    int64_t x[3], y[3], k[3], stride[3], dilation[3], pad[3], pad_end[3];
} Window;

static Window window(const Eval *e, const Shape *x, const Shape *y, const int64_t *kernel)
{
    const Attr *t = e->at;
    Window w = {x->d[0],   x->d[1],   y->d[1],   t->group ? t->group : 1,
                {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1},
                {1, 1, 1}, {0},       {0}};
    for (int i = 0; i < t->n; i++) {
        int to = 3 - t->n + i;
        w.x[to] = x->d[i + 2];
        w.y[to] = y->d[i + 2];
        w.k[to] = kernel[i];
        w.stride[to] = t->stride ? t->stride[i] : 1;
        w.dilation[to] = t->dilation ? t->dilation[i] : 1;
        w.pad[to] = t->pad ? t->pad[i] : 0;
        w.pad_end[to] = t->pad ? t->pad[i + t->n] : 0;
    }
    return w;
}

/* Outputs o, first <= o < last, whose window has its kernel position k inside dimension i of x. */
static void valid(const Window *w, int i, int64_t k, int64_t *first, int64_t *last)
{
    int64_t shift = k * w->dilation[i] - w->pad[i];     /* position in x is o * stride + shift */
    *first = shift >= 0 ? 0 : (-shift + w->stride[i] - 1) / w->stride[i];
    *last = w->x[i] - shift <= 0 ? 0 : (w->x[i] - shift + w->stride[i] - 1) / w->stride[i];
    *last = *last > w->y[i] ? w->y[i] : *last;
}

typedef struct { double *x, *w, *y; Op op; } Planes;

/* All products of one kernel position for one pair of channels. */
static void plane(const Window *w, Planes p, const int64_t *k)
{
    int64_t lo[3], hi[3], shift[3];
    for (int i = 0; i < 3; i++) {
        valid(w, i, k[i], &lo[i], &hi[i]);
        shift[i] = k[i] * w->dilation[i] - w->pad[i];
    }
    for (int64_t a = lo[0]; a < hi[0]; a++)
        for (int64_t b = lo[1]; b < hi[1]; b++) {
            double *x =
                p.x +
                ((a * w->stride[0] + shift[0]) * w->x[1] + b * w->stride[1] + shift[1]) * w->x[2] +
                shift[2];
            double *y = p.y + (a * w->y[1] + b) * w->y[2];
            int64_t s = w->stride[2];
            if (p.op == OP_Conv)
                for (int64_t c = lo[2]; c < hi[2]; c++)
                    y[c] += x[c * s] * *p.w;
            else if (p.op == OP_ConvTranspose)
                for (int64_t c = lo[2]; c < hi[2]; c++)
                    x[c * s] += y[c] * *p.w;
            else
                for (int64_t c = lo[2]; c < hi[2]; c++)
                    *p.w += x[c * s] * y[c];
        }
}

static void convolve(const Window *w, double *x, double *k, double *y, Op op)
{
    int64_t xs = w->x[0] * w->x[1] * w->x[2], ys = w->y[0] * w->y[1] * w->y[2],
            ks = w->k[0] * w->k[1] * w->k[2];
    int64_t xg = w->xc / w->group, yg = w->yc / w->group;
    for (int64_t n = 0; n < w->batch; n++)
        for (int64_t o = 0; o < w->yc; o++)
            for (int64_t i = 0; i < xg; i++)
                for (int64_t q = 0; q < ks; q++) {
                    int64_t at[3] = {q / (w->k[1] * w->k[2]), q / w->k[2] % w->k[1], q % w->k[2]};
                    Planes p = {x + (n * w->xc + o / yg * xg + i) * xs, k + (o * xg + i) * ks + q,
                                y + (n * w->yc + o) * ys, op};
                    plane(w, p, at);
                }
}

static double *own(Eval *e, const Tensor *t)
{
    int64_t n = shape_elements(&t->shape);
    double *v = eval_scratch(e, (size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = eval_double_at(t, i);
    return v;
}

void eval_conv(Eval *e)
{
    double *a = own(e, &e->in[0]), *b = own(e, &e->in[1]);
    double *r = eval_scratch(e, (size_t)shape_elements(&e->out[0].shape), sizeof *r);
    const Shape *in = &e->in[0].shape, *other = &e->in[1].shape, *out = &e->out[0].shape;
    Window w;
    if (e->op == OP_Conv) {
        w = window(e, in, out, other->d + 2);
        convolve(&w, a, b, r, e->op);
    } else if (e->op == OP_ConvTranspose) {             /* the operand is y, the result x */
        w = window(e, out, in, other->d + 2);
        convolve(&w, r, b, a, e->op);
    } else {
        w = window(e, in, other, out->d + 2);
        convolve(&w, a, r, b, e->op);
    }
    eval_store_doubles(&e->out[0], r);
}

/* One window of a pool over one plane of x. */
typedef struct { double max, sum; int64_t at, inside, padded; } Pooled;

static Pooled pool_window(const Window *w, const double *x, const int64_t *o)
{
    Pooled r = {.max = -(double)INFINITY, .at = -1};
    for (int64_t q = 0; q < w->k[0] * w->k[1] * w->k[2]; q++) {
        int64_t k[3] = {q / (w->k[1] * w->k[2]), q / w->k[2] % w->k[1], q % w->k[2]}, at = 0;
        bool inside = true, padded = true;
        for (int i = 0; i < 3; i++) {
            int64_t p = o[i] * w->stride[i] + k[i] * w->dilation[i] - w->pad[i];
            inside = inside && p >= 0 && p < w->x[i];
            padded = padded && p < w->x[i] + w->pad_end[i];
            at = at * w->x[i] + p;
        }
        r.padded += padded;
        if (!inside)
            continue;
        r.inside++;
        r.sum += x[at];
        if (r.at < 0 || x[at] > r.max || (isnan(x[at]) && !isnan(r.max))) {
            r.max = x[at];
            r.at = at;
        }
    }
    return r;
}

void eval_pool(Eval *e)
{
    const Shape *s = &e->in[0].shape;
    const double *x = eval_doubles(e, &e->in[0]);
    Window w = window(e, s, &e->out[0].shape, e->at->kernel);
    int64_t xs = w.x[0] * w.x[1] * w.x[2], i = 0;
    Shape spatial = {3, {w.y[0], w.y[1], w.y[2]}};
    for (int64_t p = 0; p < w.batch * w.xc; p++) {
        int64_t o[MAX_RANK] = {0};
        do {
            Pooled r = pool_window(&w, x + p * xs, o);
            if (e->op == OP_MaxPool) {
                eval_set_double(&e->out[0], i, r.max);
                eval_set_wide(&e->out[1], i, p * xs + r.at);
            } else {
                int64_t n = e->at->count_include_pad ? r.padded : r.inside;
                eval_set_double(&e->out[0], i, n ? r.sum / (double)n : 0);
            }
            i++;
        } while (eval_next(&spatial, o));
    }
}

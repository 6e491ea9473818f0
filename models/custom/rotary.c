/*
 * rotary.c - an operation of one's own on the CPU: rotary positions and their gradient (ops.txt).
 *
 * With h half of the last dimension:
 *     y[j]     = x[j] cos[j] - x[j + h] sin[j]              dx[j]     = dy[j] cos[j] + dy[j + h] sin[j + h]
 *     y[j + h] = x[j + h] cos[j + h] + x[j] sin[j + h]      dx[j + h] = dy[j + h] cos[j + h] - dy[j] sin[j]
 */
#include "pp_custom.h"

/* sign 1: forward, with the angle of the place itself; -1: back, with that of where it went. */
static void turn(const float *x, const float *cos, const float *sin, float *y, int64_t h, int back)
{
    for (int64_t j = 0; j < h; j++) {
        float low = x[j], high = x[j + h];
        y[j] = low * cos[j] + high * (back ? sin[j + h] : -sin[j]);
        y[j + h] = high * cos[j + h] + low * (back ? -sin[j] : sin[j + h]);
    }
}

static void rotate(const PpCustom *c, const PpCustomTensor *x, int back)
{
    const int64_t size = x->dim[x->rank - 1], places = x->dim[x->rank - 2],
                  lines = pp_custom_elements(x) / (size ? size : 1);
    const float *from = x->data, *cos = c->in[1].data, *sin = c->in[2].data;
    float *to = c->out[0].data;
#pragma omp parallel for
    for (int64_t i = 0; i < lines; i++)
        turn(from + i * size, cos + i % places * size, sin + i % places * size, to + i * size,
             size / 2, back);
}

void rotary(const PpCustom *c);
void rotary(const PpCustom *c) { rotate(c, &c->in[0], 0); }

/* in: x, cos, sin, y, dy */
void rotary_gradient(const PpCustom *c);
void rotary_gradient(const PpCustom *c) { rotate(c, &c->in[4], 1); }

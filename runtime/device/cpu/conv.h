/*
 * conv.h - an opened convolution, as conv.c and the bodies of its element types see it: the shape
 * in three dimensions, and where a channel stands when it is spread into planes (conv_direct.h).
 */
#ifndef PP_CONV_H
#define PP_CONV_H

#include "api/pp.h"
#include "device/cpu/after.h"
#include "device/library.h"

#include <stdint.h>
#include <stdlib.h>

enum { DIRECT_LANES = 16, DIRECT_BLOCK = 4 * DIRECT_LANES };

/* A channel in planes, one for each phase of the strides: element p of a padded line lies in phase
 * p mod stride, at p / stride.  Sizes in elements. */
typedef struct {
    int64_t phases, ext[3], plane;  /* a plane's dimensions, and how many elements it has */
    int64_t pitch;                  /* from one to the next: blocks may read behind it */
    int64_t run;                    /* from a channel's first output to its last */
    int64_t margin, wide;           /* zeros before a run that is read backwards, and all of it */
    int64_t room;                   /* scratch of a sample */
    int covers;                     /* every element of the input has a place in the planes */
    /* at: by channel of a group and tap, where the input of output 0 stands.  For the gradient of
     * the data, by phase: first[q] taps come before; term and back: output channel and tap, and
     * where its dy of input 0 stands */
    int64_t *at, *first, *term, *back;
} Direct;

struct PpConv {
    int dtype, threads;
    struct { /* how it is computed */
        int pointwise, direct, winograd;
        int depthwise; /* of those that are direct: conv_depthwise.h */
        /* the forward, and with a stride of 1 the gradient of the data: conv_narrow.h */
        int narrow;
    } way;
    int64_t group, c, m, cg, mg, taps, in_size, out_size;
    struct {
        int64_t all, at_once;
    } lines; /* of an output; those gathered together */
    int64_t merged; /* samples in a product (conv_merged.h); 1: each by itself */
    struct { /* of a thread: gathered lines or planes, and from room_at on sums of another type */
        int64_t room_at, bytes;
    } scratch;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    struct {
        int64_t *lo, *hi; /* per tap of the last dimension: outputs [lo, hi) that read inside */
        uint32_t *masks;  /* conv_depthwise.h */
        int64_t mask_room;
    } edge;
    Direct planes;
    PpLibrary *library, own; /* own: opened without one */
    PpConvShape shape;
};

/* The lines of phase q that lie in the input: indices of its plane, [first, end) a dimension;
 * start: where index 0 is in the input. */
typedef struct { int64_t first[3], end[3], start[3]; } PhaseLines;

/* What follows the forward, on a part of its result; of.then == NULL: nothing. */
typedef struct {
    PpFollow of;
    PpLength length; /* PpConvShape's */
} Then;

/* y = x convolved with w, of so many samples; data: the gradient of the data, x = dy and y = dx. */
typedef struct {
    int data;
    int64_t rows;
    const void *x, *w;
    void *y;
    Then then;
} ConvUse;

static inline void run_then(const Then *t, int64_t sample, int64_t samples, int64_t channel,
                            int64_t channels, int64_t first, int64_t elements)
{
    const PpPart part = {sample,  sample + samples, channel, channel + channels,
                         first,   first + elements,  t->length};
    if (t->of.then)
        t->of.then(&part, t->of.in, t->of.out);
}

/* The formula from element `first` of a channel of a sample on, where a channel is a row. */
static inline After after_from(const PpConv *v, const Then *t, int64_t sample, int64_t channel,
                               int64_t first)
{
    const PpAfter *after = t->of.after;
    return after ? after_at(after, channel, (sample * v->m + channel) * v->out_size + first)
                 : (After){.out = NULL};
}

static inline PhaseLines phase_lines(const PpConv *v, int64_t q)
{
    PhaseLines l;
    for (int i = 2; i >= 0; i--) {
        int64_t s = v->stride[i], start = q % s - v->pad[i], end = (v->in[i] - start + s - 1) / s;
        q /= s;
        l.start[i] = start;
        l.first[i] = start >= 0 ? 0 : (-start + s - 1) / s;
        l.end[i] = end < v->planes.ext[i] ? end : v->planes.ext[i];
        if (l.end[i] < l.first[i])
            l.end[i] = l.first[i];
    }
    return l;
}

static inline int64_t plane_at(const Direct *d, int64_t i, int64_t j, int64_t k)
{
    return (i * d->ext[1] + j) * d->ext[2] + k;
}

static inline int64_t channel_at(const PpConv *v, const PhaseLines *l, int64_t i, int64_t j,
                                 int64_t k)
{
    return ((i * v->stride[0] + l->start[0]) * v->in[1] + j * v->stride[1] + l->start[1]) *
               v->in[2] +
           k * v->stride[2] + l->start[2];
}

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Where each tap reads; 0: no memory. */
static inline int list_taps(PpConv *v)
{
    Direct *d = &v->planes;
    int64_t back = 0, n[2] = {v->cg * v->taps, v->mg * v->taps};
    if (!d->at) /* sizes of images change nothing of it */
        d->at = calloc((size_t)(n[0] + 2 * n[1] + d->phases + 1), sizeof *d->at);
    if (!d->at)
        return 0;
    d->back = d->at + n[0];
    d->term = d->back + n[1];
    d->first = d->term + n[1];
    for (int64_t i = 0; i < n[0]; i++) {
        int64_t rest = i % v->taps, q = 0, z[3], phase = 1;
        for (int k = 2; k >= 0; k--) {
            int64_t p = rest % v->kernel[k] * v->dilation[k];
            rest /= v->kernel[k];
            z[k] = p / v->stride[k];
            q += p % v->stride[k] * phase;
            phase *= v->stride[k];
        }
        d->at[i] = (i / v->taps * d->phases + q) * d->pitch + plane_at(d, z[0], z[1], z[2]);
    }
    for (int64_t q = 0; q < d->phases; q++) {
        d->first[q] = back / v->mg;
        for (int64_t m = 0; m < v->mg; m++)
            for (int64_t t = 0; t < v->taps; t++)
                if (d->at[t] / d->pitch == q) {
                    d->term[back] = m * v->taps + t;
                    d->back[back++] = m * d->wide + d->margin - d->at[t] % d->pitch;
                }
    }
    d->first[d->phases] = back / v->mg;
    return 1;
}

/* conv_shape.c: the shape in three dimensions, which way it is computed, what scratch it takes; and
 * that of so many threads. */
void conv_of_shape(PpConv *v, const PpConvShape *s);
int64_t conv_scratch(const PpConv *v, int threads);

/* conv_winograd.c: scratch is for the convolution, not for each thread.  The weights' gradient is
 * added to dw. */
void winograd_image(const PpConv *v, const ConvUse *of, float *scratch);
void winograd_weight(const PpConv *v, int64_t rows, const float *x, const float *dy, float *dw,
                     float *scratch);

#endif

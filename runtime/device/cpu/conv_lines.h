/*
 * conv_lines.h - which line of an image each line of a row of gathered columns is read from;
 * conv_body.h's alone.
 */
#ifndef PP_CONV_LINES_H
#define PP_CONV_LINES_H

#include "device/cpu/conv.h"

/* A tap, and output lines [line, line + lines). */
typedef struct {
    int64_t kd, kh, kw, line, lines;
} TapLines;

static inline TapLines tap_lines(const PpConv *v, int64_t k, int64_t line, int64_t lines)
{
    return (TapLines){k / (v->kernel[1] * v->kernel[2]), k / v->kernel[2] % v->kernel[1],
                      k % v->kernel[2], line, lines};
}

/* Output lines one after the other: no division for each. */
typedef struct {
    int64_t d, h;
} LineAt;
static inline LineAt first_line(const PpConv *v, const TapLines *t)
{
    return (LineAt){t->line / v->out[1], t->line % v->out[1]};
}

/* Where the tap reads for the output line, and on to the next: an input's line, from its column 0
 * on; -1: outside of it. */
static inline int64_t next_line(const PpConv *v, const TapLines *t, LineAt *at)
{
    int64_t id = at->d * v->stride[0] + t->kd * v->dilation[0] - v->pad[0],
            ih = at->h * v->stride[1] + t->kh * v->dilation[1] - v->pad[1];
    if (++at->h == v->out[1])
        at->h = 0, at->d++;
    return id < 0 || id >= v->in[0] || ih < 0 || ih >= v->in[1] ? -1
                                                                : (id * v->in[1] + ih) * v->in[2];
}

/* The input's column of output 0. */
static inline int64_t tap_column(const PpConv *v, const TapLines *t)
{
    return t->kw * v->dilation[2] - v->pad[2];
}

#endif

/*
 * conv_winograd.h - what conv_winograd.c makes blocks of, and how large they are: conv_shape.c
 * takes its scratch by it.
 */
#ifndef PP_CONV_WINOGRAD_H
#define PP_CONV_WINOGRAD_H

#include "device/cpu/conv.h"

enum { PLACES = 16, LANES = 16, BLOCK_ELEMENTS = 1 << 16 };

/* One use of a convolution: what it reads is c x h x w, what it writes m x oh x ow, in tiles. */
typedef struct {
    int64_t c, m, h, w, oh, ow, pad_h, pad_w, across, down;
} Use;

static inline Use use_of(const PpConv *v, int data)
{
    Use u = {v->cg, v->mg, v->in[1], v->in[2], v->out[1], v->out[2], v->pad[1], v->pad[2], 0, 0};
    if (data)
        u = (Use){v->mg,    v->cg,         v->out[1],     v->out[2], v->in[1],
                  v->in[2], 2 - v->pad[1], 2 - v->pad[2], 0,         0};
    u.across = (u.ow + 1) / 2;
    u.down = (u.oh + 1) / 2;
    return u;
}

/* Rows of tiles in a block, for both directions alike. */
static inline int64_t block_rows(const PpConv *v, const Use *u)
{
    int64_t tiles = BLOCK_ELEMENTS / (v->cg + v->mg);
    if (tiles < 64)
        tiles = 64;
    return tiles > u->across ? tiles / u->across : 1;
}

/* From a channel to the next; a last vector of tiles may write beyond them. */
static inline int64_t pitch_of(const PpConv *v, const Use *u)
{
    return round_up(block_rows(v, u) * u->across + LANES, LANES);
}

#endif

/*
 * conv_gather.h - where a term of a gather (conv_cuda.h) reads and where its sum goes: device
 * functions of conv_tiled.cu and conv_direct.cu.
 */
#ifndef PP_CONV_GATHER_H
#define PP_CONV_GATHER_H

#include "conv_cuda.h"
#include "element.h"
#include "multiply_add.h"

/* A position's own place in the source, possibly outside of it; and where it stands in the
 * destination, channels apart. */
struct ConvPlace {
    int64_t at, to;
    int d, h, w;
};

/* A place at which no tap is inside. */
static __device__ __forceinline__ ConvPlace conv_nowhere()
{
    return ConvPlace{0, 0, -(1 << 30), 0, 0};
}

/* Position `p` of a class in sample `sample`; the group's channels begin at source_group. */
static __device__ __forceinline__ ConvPlace conv_place(const ConvGather &g, const ConvClass &c,
                                                       int sample, int group, int p)
{
    int w = p % c.count[2], rest = p / c.count[2], h = rest % c.count[1], d = rest / c.count[1];
    ConvPlace at;
    at.d = d * g.step[0] - g.pad[0];
    at.h = h * g.step[1] - g.pad[1];
    at.w = w * g.step[2] - g.pad[2];
    at.at = sample * g.source_sample + group * g.source_group +
            (static_cast<int64_t>(at.d) * g.source[1] + at.h) * g.source[2] + at.w;
    d = c.first[0] + d * g.spread[0];
    h = c.first[1] + h * g.spread[1];
    w = c.first[2] + w * g.spread[2];
    at.to = sample * g.dest_sample + (static_cast<int64_t>(d) * g.dest[1] + h) * g.dest[2] + w;
    return at;
}

template <class Kind>
static __device__ __forceinline__ typename Kind::Sum
conv_read(const ConvGather &g, const typename Kind::In *__restrict__ source, const ConvPlace &p,
          const ConvTap &t)
{
    bool inside = static_cast<unsigned>(p.d + t.d) < static_cast<unsigned>(g.source[0]) &&
                  static_cast<unsigned>(p.h + t.h) < static_cast<unsigned>(g.source[1]) &&
                  static_cast<unsigned>(p.w + t.w) < static_cast<unsigned>(g.source[2]);
    return inside ? Kind::load(source[p.at + t.at]) : static_cast<typename Kind::Sum>(0);
}

/* Launches count positions in int: so many samples go into one. */
static inline int64_t conv_samples_at_once(int64_t positions) {
    int64_t n = (static_cast<int64_t>(1) << 30) / (positions > 0 ? positions : 1);
    return n > 0 ? n : 1;
}

#endif

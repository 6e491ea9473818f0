/*
 * number.h - an element of a tensor on the host, of any floating type, as a double and back; and
 * 16-bit ones, many at a time, as float.
 */
#ifndef PP_NUMBER_H
#define PP_NUMBER_H

#include "api/pp.h"
#include "api/pp_half.h"

#include <string.h>

/* Of another type: 0. */
static inline double number_at(const void *from, int64_t i, int dtype)
{
    const char *at = from;
    double real = 0;
    float single = 0;
    uint16_t half;
    if (dtype == PP_F64) {
        memcpy(&real, at + 8 * i, sizeof real);
        return real;
    }
    if (dtype == PP_F32) {
        memcpy(&single, at + 4 * i, sizeof single);
    } else if (dtype == PP_BF16 || dtype == PP_F16) {
        memcpy(&half, at + 2 * i, sizeof half);
        single = dtype == PP_BF16 ? pp_from_bf16(half) : pp_from_f16(half);
    }
    return (double)single;
}

/* To the nearest of the type. */
static inline void number_put(void *to, int64_t i, int dtype, double v)
{
    char *at = to;
    const float single = (float)v;
    const uint16_t half = dtype == PP_BF16 ? pp_to_bf16(single) : pp_to_f16(single);
    if (dtype == PP_F64)
        memcpy(at + 8 * i, &v, sizeof v);
    else if (dtype == PP_F32)
        memcpy(at + 4 * i, &single, sizeof single);
    else
        memcpy(at + 2 * i, &half, sizeof half);
}

static inline void half_widen(int dtype, const uint16_t *from, int64_t n, float *to)
{
    if (dtype == PP_BF16)
        for (int64_t i = 0; i < n; i++)
            to[i] = pp_from_bf16(from[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = pp_from_f16(from[i]);
}

static inline void half_round(int dtype, const float *from, int64_t n, uint16_t *to)
{
    if (dtype == PP_BF16)
        for (int64_t i = 0; i < n; i++)
            to[i] = pp_to_bf16(from[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = pp_to_f16(from[i]);
}

#endif

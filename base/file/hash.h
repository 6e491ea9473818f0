/*
 * hash.h - Fowler, Noll and Vo's hash FNV-1a in 64 bits: no defence against a chosen collision.
 */
#ifndef PP_HASH_H
#define PP_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_value(uint64_t h, uint64_t v)
{
    return (h ^ v) * UINT64_C(0x100000001b3);
}

static inline uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = (const unsigned char *)p;
    for (size_t i = 0; i < n; i++)
        h = hash_value(h, b[i]);
    return h;
}

#endif

/*
 * pack.h - one block of memory for what is alive at different times.
 */
#ifndef PP_PACK_H
#define PP_PACK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PACK_ALIGN = 64 }; /* every tensor begins at a multiple of so many bytes */
static inline int64_t align_up(int64_t bytes)
{
    return (bytes + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN;
}

/* Bytes that are alive from step `first` (-1: never) to step `last`. */
typedef struct {
    int64_t bytes, offset;
    int first, last;
} Packed;

/* An order in which places are given: by these keys, then by number.  The largest, the largest
   product of size and lifetime, the longest, the first to begin, the last to end come first. */
typedef enum { PACK_NUMBER, PACK_SIZE, PACK_AREA, PACK_LENGTH, PACK_FIRST, PACK_LAST } PackKey;
enum { PACK_ORDERS = 4, PACK_KEYS = 3 };
typedef struct {
    PackKey order[PACK_ORDERS][PACK_KEYS];
    int orders, rounds, draws; /* rounds of a climb; then orders drawn at random */
    int64_t work;              /* comparisons that a climb may take */
} PackSearch;

/* Gives all of them offsets, *bytes: the length of the block.  0: no memory. */
int pack_place(Packed *of, int64_t n, int steps, const PackSearch *how, int64_t *bytes);
/* The most bytes alive at one of so many steps: no block is shorter.  live [steps]: to which those
   alive at each are added, or NULL.  0: no memory. */
int pack_most(const Packed *of, int64_t n, int steps, int64_t *most, int64_t *live);

#ifdef __cplusplus
}
#endif
#endif

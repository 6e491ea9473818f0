/*
 * card.h - the model of a GPU: what each launch takes at the least.
 *
 *     const Card *c = card_find("h100");
 *     card_seconds(c, &work, rows)        // of one launch, or of one library call
 *
 * A launch waits for memory or for the unit that computes, whichever takes longer; a product's
 * tiles run in waves over the multiprocessors, and the last wave leaves some idle.  Knows no model:
 * what launches there are codegen says (codegen/tables.h), in its Work.
 *
 * The CPU launches them one by one, without waiting; a function of a stage takes what its launches
 * take, or what the CPU takes to launch them.  `ppsplit forecast' and `ppsplit plan' have all their
 * seconds from card_launched().
 */
#ifndef PPSPLIT_CARD_H
#define PPSPLIT_CARD_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What computes: NONE: it only moves; LINK: bytes to other members, on their way; SCALAR:
   instructions of loops; the others: FLOP. */
// clang-format off
#define UNITS(X)                                                                                   \
    X(NONE,      "memory")                                                                         \
    X(LINK,      "link")                                                                           \
    X(SCALAR,    "scalar")                                                                         \
    X(TENSOR16,  "tensor16")                                                                       \
    X(PRODUCT32, "product32")                                                                      \
    X(PRODUCT64, "product64")                                                                      \
    X(MMA16,     "mma16")
// clang-format on
typedef enum {
#define UNIT(id, name) UNIT_##id,
    UNITS(UNIT)
#undef UNIT
        UNIT_COUNT
} Unit;
extern const char *const unit_name[UNIT_COUNT];

typedef struct {
    const char *name, *title;
    double cores;
    double memory;   /* bytes */
    double traffic;  /* bytes a second */
    double cache;    /* the same of the second-level cache */
    double tensor32; /* FLOP/s of PRODUCT32 where TF32 is allowed */
    double rate[UNIT_COUNT];
    double link;   /* bytes a second */
    double launch, host; /* seconds of a launch, beside what it computes; of the CPU */
} Card;

const Card *card_find(const char *name); /* NULL: none is called so */
const char *card_name(int i);            /* number i; NULL: past the last */

/* c + b * rows of a microbatch. */
typedef struct {
    double c, b;
} PerRows;
static inline double per_rows(PerRows x, double rows) { return x.c + x.b * rows; }

/* m > 0: a library's product, or `count' of them; odd: rows of a factor or of the result begin
   elsewhere than at multiples of 16 bytes.  near: of the bytes those that launches just before have
   left in the second-level cache. */
typedef struct {
    Unit unit;
    int launches;
    PerRows operations, bytes, near;
    PerRows m, n, k, count;
    bool odd;
} Work;

typedef enum { BOUND_LAUNCH, BOUND_MEMORY, BOUND_UNIT } Bound;

/* bound: what takes most; NULL: not asked for. */
double card_seconds(const Card *c, const Work *w, double rows, Bound *bound);
/* What one function launches: the sum of card_seconds(), and how many. */
typedef struct {
    double floors, launches;
} Launched;
double card_launched(const Card *c, Launched x); /* seconds of the function */
/* The same card with TF32 for products in float32. */
Card card_tf32(const Card *c);

#ifdef __cplusplus
}
#endif
#endif

/*
 * card.c - the floor of a launch on a card of cards.def.
 */
#include <math.h>
#include <string.h>

#include "card.h"

const char *const unit_name[UNIT_COUNT] = {
#define UNIT(id, name) name,
    UNITS(UNIT)
#undef UNIT
};

static const Card cards[] = {
#define CARD(name, title, cores, memory, traffic, cache, tensor16, tensor32, product32, product64, \
             mma16, scalar, link, launch, host)                                                           \
    {#name,                                                                                        \
     title,                                                                                        \
     cores,                                                                                        \
     memory * 1e9,                                                                                 \
     traffic * 1e9,                                                                                \
     cache * 1e9,                                                                                  \
     tensor32 * 1e12,                                                                              \
     {[UNIT_LINK] = link * 1e9,                                                                    \
      [UNIT_SCALAR] = scalar * 1e12,                                                              \
      [UNIT_TENSOR16] = tensor16 * 1e12,                                                           \
      [UNIT_PRODUCT32] = product32 * 1e12,                                                         \
      [UNIT_PRODUCT64] = product64 * 1e12,                                                         \
      [UNIT_MMA16] = mma16 * 1e12},                                                                \
     link * 1e9,                                                                                   \
     launch * 1e-6,                                                                                \
     host * 1e-6},
#include "cards.def"
#undef CARD
};
enum { CARDS = sizeof cards / sizeof *cards };

const char *card_name(int i) { return i < CARDS ? cards[i].name : NULL; }

const Card *card_find(const char *name)
{
    for (int i = 0; i < CARDS; i++)
        if (strcmp(cards[i].name, name) == 0)
            return &cards[i];
    return NULL;
}

Card card_tf32(const Card *c)
{
    Card own = *c;
    own.rate[UNIT_PRODUCT32] = c->tensor32;
    return own;
}

/* How many times longer than at its full rate a product takes: tiles of 128 x 128, or of 64 x 64 at
   three quarters of the rate, each of which begins with two steps of 64 along k that nothing hides;
   as many at once as there are multiprocessors; a long sum may be cut into parts.  The best. */
static double waste(const Card *c, double m, double n, double k, double count)
{
    enum { PARTS = 8, LEAST = 512, BEGIN = 128 };
    double best = 1e300;
    for (double side = 128; side >= 64; side /= 2) {
        double tiles = count * ceil(m / side) * ceil(n / side), padded = tiles * side * side;
        for (int parts = 1; parts <= PARTS && (parts == 1 || k / parts >= LEAST); parts++) {
            double waves = ceil(tiles * parts / c->cores) * c->cores / (tiles * parts),
                   more = padded / (count * m * n) * waves * (1 + BEGIN * parts / k);
            best = fmin(best, side < 128 ? more / 0.75 : more);
        }
    }
    return best;
}

/* Tensor cores are fed by 16 bytes.  nanoGPT gained a quarter of its step when its vocabulary went
   from 50257 to 50304 (A. Karpathy, 2023), of which the head has a third of the operations. */
enum { ODD = 2 };

double card_seconds(const Card *c, const Work *w, double rows, Bound *bound)
{
    const double bytes = per_rows(w->bytes, rows), far = bytes - per_rows(w->near, rows);
    double memory = fmax(far / c->traffic, bytes / c->cache), begin = w->launches * c->launch,
           unit = 0;
    if (c->rate[w->unit] > 0)
        unit = per_rows(w->operations, rows) / c->rate[w->unit];
    double m = per_rows(w->m, rows), n = per_rows(w->n, rows), k = per_rows(w->k, rows),
           count = per_rows(w->count, rows);
    if (m > 0 && n > 0 && k > 0 && count > 0)
        unit *= waste(c, m, n, k, count) * (w->odd && w->unit == UNIT_TENSOR16 ? ODD : 1);
    double most = fmax(memory, unit);
    if (bound)
        *bound = begin > most ? BOUND_LAUNCH : memory > unit ? BOUND_MEMORY : BOUND_UNIT;
    return begin + most;
}

double card_launched(const Card *c, Launched x) { return fmax(x.floors, x.launches * c->host); }

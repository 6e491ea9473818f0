/*
 * draw.c - in: V logits; out: a token, drawn with the probabilities softmax(logits / temperature)
 * among the K likeliest (Fan, Lewis, Dauphin, "Hierarchical neural story generation", 2018).
 *
 * Sums are float64 in the order of tokens, and the random number is a function of seed, step and
 * row alone: equal logits give equal texts.
 */
#include "draw.h"

#include "api/pp_random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAW_NODE = 0x64726177 }; /* a stream of its own beside those of dropout */

static int falling(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x < y) - (x > y);
}

/* The least logit that is drawn from, and how many that are equal to it. */
static double least(const Draw *d, const double *logit, double *room, int64_t n, int64_t *equal)
{
    *equal = n;
    if (!d->top_k || d->top_k >= n)
        return -(double)INFINITY;
    memcpy(room, logit, (size_t)n * sizeof *room);
    qsort(room, (size_t)n, sizeof *room, falling);
    double bound = room[d->top_k - 1];
    for (*equal = 0; *equal < d->top_k && room[d->top_k - 1 - *equal] == bound;)
        ++*equal;
    return bound;
}

int64_t draw_token(const Draw *d, const double *logit, double *room, int64_t n, uint64_t row,
                   uint64_t step)
{
    int64_t best = 0, equal;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(logit[i]))
            return -1;
        best = logit[i] > logit[best] ? i : best;
    }
    if (n < 1 || !isfinite(logit[best]))
        return -1;
    if (d->temperature == 0)
        return best;
    double bound = least(d, logit, room, n, &equal), sum = 0, below = 0;
    for (int64_t i = 0; i < n; i++) {
        int drawn = logit[i] > bound || (logit[i] == bound && equal-- > 0);
        room[i] = drawn ? exp((logit[i] - logit[best]) / d->temperature) : 0;
        sum += room[i];
    }
    uint32_t bits[4];
    pp_philox(d->seed, step, row, 0, DRAW_NODE, bits);
    double at = pp_uniform(bits[0], bits[1]) * sum;
    for (int64_t i = 0; i < n; i++)
        if (room[i] > 0 && (below += room[i]) >= at)
            return i;
    return best;
}

/*
 * test_draw.c - tokens are drawn with the probabilities that softmax, temperature and top-k have on
 * paper, of equal logits the first, and never where a logit is not finite.
 */
#include "io/draw.h"

#include <math.h>
#include <stdlib.h>

#include "tests/share/tap.h"

enum { DRAWS = 40000 };

/* How often each of n tokens is drawn, beside its probability: at most 5 standard deviations away.
 */
static int agrees(const Draw *d, const double *logit, int n, const double *want)
{
    double room[8];
    int count[8] = {0}, good = 1;
    for (int i = 0; i < DRAWS; i++) {
        int64_t token = draw_token(d, logit, room, n, (uint64_t)(i % 7), (uint64_t)(i / 7));
        if (token < 0 || token >= n)
            return 0;
        count[token]++;
    }
    for (int i = 0; i < n; i++) {
        double p = want[i], away = 5 * sqrt(p * (1 - p) * DRAWS);
        good &= fabs(count[i] - p * DRAWS) <= away;
    }
    return good;
}

static void probabilities(void)
{
    const double logit[4] = {log(1), log(2), log(3), log(4)};
    Draw d = {1, 0, 5};
    ok(agrees(&d, logit, 4, (const double[]){0.1, 0.2, 0.3, 0.4}), "softmax");
    d.temperature = 0.5; /* squares: 1 4 9 16 */
    ok(agrees(&d, logit, 4, (const double[]){1 / 30.0, 4 / 30.0, 9 / 30.0, 16 / 30.0}),
       "temperature 0.5 squares the odds");
    d = (Draw){1, 2, 5};
    ok(agrees(&d, logit, 4, (const double[]){0, 0, 3 / 7.0, 4 / 7.0}), "the two likeliest");
    const double equal[4] = {1, 2, 2, 2};
    ok(agrees(&d, equal, 4, (const double[]){0, 0.5, 0.5, 0}), "of equal ones the first");
    d.top_k = 1;
    ok(agrees(&d, equal, 4, (const double[]){0, 1, 0, 0}), "the likeliest");
    d = (Draw){0, 0, 5};
    ok(agrees(&d, equal, 4, (const double[]){0, 1, 0, 0}), "temperature 0");
    const double masked[4] = {-(double)INFINITY, 0, -(double)INFINITY, 0};
    d = (Draw){1, 3, 5};
    ok(agrees(&d, masked, 4, (const double[]){0, 0.5, 0, 0.5}), "none that is masked");
    const double far[3] = {1e300, -1e300, 1e300};
    d = (Draw){1e-3, 0, 5};
    ok(agrees(&d, far, 3, (const double[]){0.5, 0, 0.5}), "large logits, small temperature");
}

static void refusals(void)
{
    double room[3];
    Draw d = {1, 0, 0};
    ok(draw_token(&d, (const double[]){0, (double)NAN, 0}, room, 3, 0, 0) == -1, "a NaN");
    ok(draw_token(&d, (const double[]){0, (double)INFINITY, 0}, room, 3, 0, 0) == -1, "infinity");
    ok(draw_token(&d, (const double[]){-(double)INFINITY, -(double)INFINITY}, room, 2, 0, 0) == -1,
       "nothing at all");
}

/* Seed, row and step are in it, and nothing else. */
static void independent(void)
{
    double logit[64], room[64];
    int same = 0, other[3] = {0};
    for (int i = 0; i < 64; i++)
        logit[i] = 0;
    for (uint64_t i = 0; i < 200; i++) {
        Draw d = {1, 0, 1}, e = {1, 0, 2};
        int64_t a = draw_token(&d, logit, room, 64, 3, i);
        same += a == draw_token(&d, logit, room, 64, 3, i);
        other[0] += a == draw_token(&e, logit, room, 64, 3, i);
        other[1] += a == draw_token(&d, logit, room, 64, 4, i);
        other[2] += a == draw_token(&d, logit, room, 64, 3, i + 1000);
    }
    ok(same == 200, "the same again");
    ok(other[0] < 20 && other[1] < 20 && other[2] < 20, "another seed, row, step: another token");
}

int main(void)
{
    probabilities();
    refusals();
    independent();
    return tap_done();
}

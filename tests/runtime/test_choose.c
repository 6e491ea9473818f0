/*
 * test_choose.c - the knapsack of --recompute auto against all combinations, where nothing is
 * rounded; and that what it chooses frees what was asked for, where bytes are.
 */
#include "plan/choose.h"

#include <math.h>

#include "tests/share/tap.h"

enum { ITEMS = 6, CHOICES = 4 };

static uint32_t state = 7;

static int64_t below(int64_t n)
{
    state = state * 1664525 + 1013904223;
    return (int64_t)(state >> 8) % n;
}

static Choice choice[ITEMS][CHOICES];
static ChoiceItem item[ITEMS];

static void draw(int n, int64_t unit)
{
    for (int i = 0; i < n; i++) {
        item[i] = (ChoiceItem){1 + (int)below(CHOICES), choice[i]};
        for (int k = 1; k < item[i].n; k++)
            choice[i][k] = (Choice){unit * below(50), (double)(1 + below(1000))};
    }
}

static void sum(const int *chosen, int n, int64_t *freed, double *cost)
{
    *freed = 0;
    *cost = 0;
    for (int i = 0; i < n; i++) {
        *freed += choice[i][chosen[i]].freed;
        *cost += choice[i][chosen[i]].cost;
    }
}

/* The least cost of all combinations; HUGE_VAL: none frees enough. */
static double brute_force(int n, int64_t need)
{
    int chosen[ITEMS] = {0}, i = 0;
    double least = HUGE_VAL, cost;
    int64_t freed;
    while (i < n) {
        sum(chosen, n, &freed, &cost);
        if (freed >= need && cost < least)
            least = cost;
        for (i = 0; i < n && ++chosen[i] == item[i].n; i++)
            chosen[i] = 0;
    }
    return least;
}

int main(void)
{
    int exact = 0, freeing = 0, runs = 500;
    for (int run = 0; run < runs; run++) {
        int n = 1 + (int)below(ITEMS), chosen[ITEMS];
        int64_t unit = run % 2 ? PP_ALIGN : 1234567, need = unit * below(120), freed;
        double cost, told;
        draw(n, unit);
        double least = brute_force(n, need);
        if (choose_least(item, n, need, chosen, &told) != PP_OK)
            continue;
        sum(chosen, n, &freed, &cost);
        freeing += told == HUGE_VAL || freed >= need;
        exact += unit != PP_ALIGN ||
                 (told < HUGE_VAL ? told == cost && cost == least : least == HUGE_VAL);
    }
    ok(exact == runs, "the cost of the best of all combinations (%d of %d)", exact, runs);
    ok(freeing == runs, "no less is freed than asked for (%d of %d)", freeing, runs);
    return tap_done();
}

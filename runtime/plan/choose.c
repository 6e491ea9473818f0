/*
 * choose.c - the multiple-choice knapsack by dynamic programming over slots of bytes: least[u] is
 * the least cost at which the items so far free u slots or more.  What a choice frees is rounded
 * down, so what is chosen frees what was asked for; where no more than CHOOSE_SLOTS units of
 * PP_ALIGN bytes are needed nothing is rounded, and the result is exact.
 */
#include "choose.h"

#include <math.h>
#include <string.h>

static void most(const ChoiceItem *item, int n, int *chosen)
{
    for (int i = 0; i < n; i++) {
        chosen[i] = 0;
        for (int k = 1; k < item[i].n; k++)
            if (item[i].choice[k].freed > item[i].choice[chosen[i]].freed)
                chosen[i] = k;
    }
}

/* One more item: from `least` without it to `with`, and by[u], what it does there. */
static void add_item(const ChoiceItem *it, int64_t slot, int slots, const double *least,
                     double *with, int16_t *by)
{
    for (int u = 0; u <= slots; u++) {
        with[u] = HUGE_VAL;
        for (int k = 0; k < it->n; k++) {
            int64_t free = it->choice[k].freed / slot, before = u - free;
            double cost = least[before > 0 ? before : 0] + it->choice[k].cost;
            if (cost < with[u]) {
                with[u] = cost;
                by[u] = (int16_t)k;
            }
        }
    }
}

PpStatus choose_least(const ChoiceItem *item, int n, int64_t need, int *chosen, double *cost)
{
    int64_t units = (need + PP_ALIGN - 1) / PP_ALIGN,
            slot = PP_ALIGN * ((units + CHOOSE_SLOTS - 1) / CHOOSE_SLOTS);
    slot = slot > 0 ? slot : PP_ALIGN;
    int slots = need > 0 ? (int)((need + slot - 1) / slot) : 0;
    double *least, *with;
    int16_t *by;
    POOL(pool);
    TRY(pp_take(&pool, &least, slots + 1, sizeof *least));
    TRY(pp_take(&pool, &with, slots + 1, sizeof *with));
    TRY(pp_take(&pool, &by, (int64_t)n * (slots + 1), sizeof *by));
    for (int u = 1; u <= slots; u++)
        least[u] = HUGE_VAL;
    for (int i = 0; i < n; i++) {
        add_item(&item[i], slot, slots, least, with, by + (ptrdiff_t)i * (slots + 1));
        double *swap = least;
        least = with;
        with = swap;
    }
    *cost = least[slots];
    int64_t u = slots;
    for (int i = n; *cost < HUGE_VAL && i-- > 0;) {
        chosen[i] = by[(ptrdiff_t)i * (slots + 1) + u];
        u -= item[i].choice[chosen[i]].freed / slot;
        u = u > 0 ? u : 0;
    }
    if (*cost == HUGE_VAL)
        most(item, n, chosen);
    return PP_OK;
}

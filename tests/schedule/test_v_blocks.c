/*
 * test_v_blocks.c - for which ranks and memory the V family has a building block at all: every
 * block that repeats each six slots, gone through.
 *
 * Two chunks a rank, placed as a V, F = I = W = 1, messages at once.  A block says in which slot a
 * microbatch goes there, back, there again and home on each rank; repeated every six slots it
 * leaves each rank two, in which W comes as early as can be.  From rank 0 inwards: what the legs
 * wait between two ranks is bounded by what the memory leaves of rank 0's chunks' lives.
 */
#include "tap.h"

#include <string.h>

enum { THERE, BACK, AGAIN, HOME, LEGS, INTERVAL = 6, ROUNDS = 40 };

/* The leg of a slot of the block's pace, -1: none of them. */
static int leg_at(const int *at, int t)
{
    for (int leg = 0; leg < LEGS; leg++)
        if (t >= at[leg] && (t - at[leg]) % INTERVAL == 0)
            return leg;
    return -1;
}

static int distinct(const int *at)
{
    unsigned used = 0;
    for (int leg = 0; leg < LEGS; leg++)
        used |= 1u << at[leg] % INTERVAL;
    return __builtin_popcount(used) == LEGS;
}

/* Are at most k chunks alive on a rank?  A W frees its chunk's memory when its slot is over. */
static int fits(const int *at, int k)
{
    int last = at[HOME] + ROUNDS * INTERVAL, alive = 0, w = 0, most = 0;
    if (!distinct(at))
        return 0;
    for (int t = at[THERE]; t < last; t++) {
        int leg = leg_at(at, t % INTERVAL + at[HOME] / INTERVAL * INTERVAL + INTERVAL),
            there = leg_at(at, t);
        if (there == THERE || there == BACK)
            alive++;
        most = alive > most ? alive : most;
        if (there == AGAIN || there == HOME)
            w++;
        if (leg < 0 && w > 0)
            w--, alive--;
    }
    return most <= k;
}

/* The ranks from r on, of which the one before is at[] and what lies within it may wait so much on
   its way to the last rank, and from there home. */
static int inwards(int p, int k, int r, const int *at, int there, int home)
{
    if (r == p)
        return 1;
    for (int a = 0; a <= there; a++)
        for (int b = 0; a + b <= there; b++)
            for (int c = 0; c <= home; c++)
                for (int d = 0; c + d <= home; d++) {
                    int next[LEGS] = {at[THERE] + 1 + a, at[BACK] - 1 - b, at[AGAIN] + 1 + c,
                                      at[HOME] - 1 - d};
                    if (fits(next, k) && inwards(p, k, r + 1, next, there - a - b, home - c - d))
                        return 1;
                }
    return 0;
}

/* The lives of rank 0's two chunks add up to 4 p + 4 slots when nothing waits, and to 6 k at most:
   what waits between its BACK and its AGAIN is in both. */
static int block(int p, int k)
{
    int room = INTERVAL * k - 4 * p - 4;
    for (int there = 0; there <= room; there++)
        for (int turn = 0; there + 2 * turn <= room; turn++)
            for (int home = 0; there + 2 * turn + home <= room; home++) {
                int back = 2 * p - 1 + there, again = back + 1 + turn;
                int at[LEGS] = {0, back, again, again + 2 * p - 1 + home};
                if (fits(at, k) && inwards(p, k, 1, at, there, home))
                    return 1;
            }
    return 0;
}

int main(void)
{
    char least[64] = "";
    for (int p = 2; p <= 9; p++) {
        int k = 1;
        while (!block(p, k))
            k++;
        snprintf(least + strlen(least), sizeof least - strlen(least), " %d", k);
    }
    ok(!strcmp(least, " 3 4 4 6 6 6 8 8"),
       "the least chunks alive of a block of 2 to 9 ranks:%s; 7 do not do for 8 ranks", least);
    return tap_done();
}

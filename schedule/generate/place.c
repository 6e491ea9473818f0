/*
 * place.c - which rank holds which stage, and the actions that generators append.
 *
 * In: ranks, stages, a placement.  Out: rank_of and its inverse.  LOOP: stage s on rank s mod p. V:
 * ranks 0..p-1, p-1..0, 0..p-1, and so on.  BLOCK: neighbours; the first S mod p ranks hold one
 * more, as torch.tensor_split does.
 */
#include "generate.h"

#include <string.h>

int sched_placed(int placement, int p, int S, int stage)
{
    int at = stage % p, q = S / p, larger = S % p;
    switch (placement) {
    case SCHED_PLACE_BLOCK:
        return stage < larger * (q + 1) ? stage / (q + 1) : larger + (stage - larger * (q + 1)) / q;
    case SCHED_PLACE_V: return stage / p % 2 ? p - 1 - at : at;
    default: return at;
    }
}

void sched_gen_place(SchedGen *g)
{
    for (int s = 0; s < g->s->stages; s++)
        g->chunks[g->s->rank_of[s] = sched_placed(g->placement, g->p, g->s->stages, s)]++;
}

int sched_gen_stage(const SchedGen *g, int r, int chunk)
{
    int p = g->p, S = g->s->stages;
    if (g->placement == SCHED_PLACE_BLOCK)
        return r * (S / p) + (r < S % p ? r : S % p) + chunk;
    return chunk * p + (g->placement == SCHED_PLACE_V && chunk % 2 ? p - 1 - r : r);
}

void sched_gen_one(SchedGen *g, int r, int type, int stage, int microbatch)
{
    sched_push(&g->s->row[r], sched_act(type, stage, microbatch));
}

void sched_gen_idle(SchedGen *g, int r, int n)
{
    for (int i = 0; i < n; i++)
        sched_push(&g->s->row[r], sched_act(SA_IDLE, -1, -1));
}

/* Forwards upwards, backwards downwards. */
void sched_gen_all(SchedGen *g, int r, int type, int microbatch)
{
    int v = g->chunks[r];
    for (int i = 0; i < v; i++)
        sched_gen_one(g, r, type, sched_gen_stage(g, r, type == SA_F ? i : v - 1 - i), microbatch);
}

static const char *const placement[] = {"loop", "v", "block"};

int sched_placement(const char *name)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(name, placement[i]) == 0)
            return i;
    return SCHED_PLACE_DEFAULT;
}

const char *sched_placement_name(int p) { return p >= 0 && p < 3 ? placement[p] : "own"; }

/*
 * counted.c - what sums over replicas take, without a list of their messages: a rank that has 100 GB
 * of gradients sends each of 256 replicas 25,000 of them.
 *
 * In: buckets, those of one parameter that are alike as one of `times`.  The j-th of these gives
 * replica k the share (k + turn + j) % d, so of d in a row it has each share once.  Out: bytes as
 * replicas.c and the pieces have them, of ask.replica, or where that is -1 of the one that takes
 * most.
 */
#include "planner.h"

#include <stdlib.h>
#include <string.h>

/* By replica: room of a stage, and all that the rank takes. */
typedef struct {
    int64_t *room, *all, *state, *sums;
    int64_t *share, *of_state; /* of one bucket, by share */
    int64_t *sum, *most, *next;
} Count;

/* By share: the sum of `times` in a row from that one on. */
static void sums_in_a_row(const int64_t *share, int64_t d, int64_t times, int64_t *sum)
{
    int64_t all = 0, rest = 0;
    for (int64_t n = 0; n < d; n++) {
        all += share[n];
        rest += n < times % d ? share[n] : 0;
    }
    for (int64_t n = 0; n < d; n++) {
        sum[n] = times / d * all + rest;
        rest += share[(n + times % d) % d] - share[n];
    }
}

/* The largest of these: of so many as a power of two, of twice as many, and of two that overlap. */
static void most_in_a_row(const int64_t *share, int64_t d, int64_t times, int64_t *most,
                          int64_t *next)
{
    int64_t n = times < d ? times : d;
    memcpy(most, share, (size_t)d * sizeof *most);
    for (int64_t have = 1, more; have < n; have += more) {
        more = have < n - have ? have : n - have;
        for (int64_t k = 0; k < d; k++) {
            int64_t other = most[(k + more) % d];
            next[k] = most[k] > other ? most[k] : other;
        }
        memcpy(most, next, (size_t)d * sizeof *most);
    }
}

static void count_bucket(const Planner *p, int l, const Bucket *b, int summed, Count *c)
{
    const PlanRequest *ask = &p->plan->ask;
    int64_t d = ask->replicas;
    for (int k = 0; k < d; k++) {
        int64_t bytes, n = (k + b->turn) % d;
        bucket_share(p, l, b, k, &bytes);
        c->share[n] = align_up(bytes);
        c->of_state[n] = ask->divided ? bucket_state(p, l, b, k) : 0;
    }
    if (summed) {
        most_in_a_row(c->share, d, b->times, c->most, c->next);
        sums_in_a_row(c->share, d, b->times, c->sum);
        for (int k = 0; k < d; k++) {
            int64_t from = (k + b->turn) % d, room = (d - 1) * c->most[from];
            c->room[k] = room > c->room[k] ? room : c->room[k];
            c->sums[k] += ask->rounds > 1 ? c->sum[from] : 0;
        }
    }
    if (ask->divided) {
        sums_in_a_row(c->of_state, d, b->times, c->sum);
        for (int k = 0; k < d; k++)
            c->state[k] += ask->states * c->sum[(k + b->turn) % d];
    }
}

/* rooms: how many buckets are under way. */
static void count_stage(const Planner *p, int l, int *rooms, Count *c)
{
    const Reduction *r = &p->reduction[l];
    int64_t d = p->plan->ask.replicas, buckets = 0;
    for (int i = 0; i < r->n; i++) {
        count_bucket(p, l, &r->bucket[i], i < r->summed, c);
        buckets += i < r->summed ? r->bucket[i].times : 0;
    }
    *rooms = buckets < ROOMS ? (int)buckets : ROOMS;
    for (int k = 0; k < d; k++) {
        c->all[k] += *rooms * c->room[k];
        c->room[k] = 0;
    }
}

PpStatus replicas_count(Planner *p)
{
    Plan *plan = p->plan;
    int d = plan->ask.replicas, rooms, most = 0;
    int64_t *at = zeroed(9 * d, sizeof *at);
    if (!at)
        return pp_no_memory();
    Count c = {at,         at + d,     at + 2 * d, at + 3 * d, at + 4 * d,
               at + 5 * d, at + 6 * d, at + 7 * d, at + 8 * d};
    for (int l = 0; l < plan->n_stage; l++)
        count_stage(p, l, &rooms, &c);
    for (int k = 1; k < d; k++)
        if (c.all[k] + c.state[k] + c.sums[k] > c.all[most] + c.state[most] + c.sums[most])
            most = k;
    int k = plan->ask.replica < 0 ? most : plan->ask.replica;
    plan->ask.replica = k;
    p->bytes_reduction = c.all[k];
    p->bytes_sums = c.sums[k];
    plan->bytes.optimizer += c.state[k];
    plan->bytes.comm += p->bytes_reduction;
    plan->bytes.grad += p->bytes_sums;
    free(at);
    return PP_OK;
}

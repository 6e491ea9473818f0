/*
 * counted.c - what sums over replicas take, without a list of their messages: a rank that has 100
 * GB of gradients sends each of 256 replicas 25,000 of them.
 *
 * In: buckets, those of one parameter that are alike as one of `times`.  The j-th of these gives
 * replica k the share (k + turn + j) % d, so of d in a row it has each share once.  Out: bytes as
 * replicas.c and the pieces have them, of ask.replica, or where that is -1 of the one that takes
 * most.
 */
#include "planner.h"

#include <string.h>

/* By replica: room for one bucket, of each stage, and all that the rank takes. */
typedef struct {
    int64_t *room, *all, *state, *sums, *values;
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

static void count_bucket(const Planner *p, int l, int i, Count *c)
{
    const Bucket *b = &p->reduction[l].bucket[i];
    const PlanRequest *ask = &p->plan->ask;
    int64_t d = ask->replicas;
    for (int k = 0; k < d; k++) {
        int64_t bytes, n = (k + b->turn) % d;
        bucket_share(p, l, b, k, &bytes);
        c->share[n] = align_up(bytes);
        c->of_state[n] = ask->zero ? bucket_state(p, l, b, k) : 0;
    }
    sums_in_a_row(c->share, d, b->times, c->sum);
    for (int k = 0; k < d; k++) {
        int64_t own = c->sum[(k + b->turn) % d];
        c->sums[k] += bucket_keeps(p, l, i) ? own : 0;
        c->values[k] += b->whole ? 0 : own;
    }
    if (i < p->reduction[l].summed) {
        most_in_a_row(c->share, d, b->times, c->most, c->next);
        for (int k = 0; k < d; k++) {
            int64_t room = (d - 1) * c->most[(k + b->turn) % d];
            int64_t *of = &c->room[(int64_t)l * d + k];
            *of = room > *of ? room : *of;
        }
    }
    if (ask->zero && i < p->reduction[l].grads) {
        sums_in_a_row(c->of_state, d, b->times, c->sum);
        for (int k = 0; k < d; k++)
            c->state[k] += ask->states * c->sum[(k + b->turn) % d];
    }
}

static void count_stage(const Planner *p, int l, Count *c)
{
    Reduction *r = &p->reduction[l];
    int64_t buckets = 0;
    for (int i = 0; i < r->n; i++) {
        count_bucket(p, l, i, c);
        buckets += i < r->summed ? r->bucket[i].times : 0;
    }
    r->rooms = buckets < ROOMS ? (int)buckets : ROOMS;
}

/* What a replica's buckets under way take. */
static PpStatus rooms_of(Planner *p, const Count *c, int k, int64_t *bytes)
{
    for (int l = 0; l < p->plan->n_stage; l++)
        p->reduction[l].room = c->room[(int64_t)l * p->plan->ask.replicas + k];
    return sharded_rooms(p, bytes);
}

PpStatus replicas_count(Planner *p)
{
    Plan *plan = p->plan;
    int d = plan->ask.replicas, most = 0, stages = plan->n_stage;
    int64_t *at;
    POOL(room);
    TRY(pp_take(&room, &at, (9 + stages) * (int64_t)d, sizeof *at));
    Count c = {at + 9 * d, at,         at + d,     at + 2 * d, at + 3 * d,
               at + 4 * d, at + 5 * d, at + 6 * d, at + 7 * d, at + 8 * d};
    for (int l = 0; l < stages; l++)
        count_stage(p, l, &c);
    for (int k = 0; k < d; k++) {
        TRY(rooms_of(p, &c, k, &c.all[k]));
        c.next[k] = c.all[k] + c.state[k] + c.sums[k] + c.values[k];
        most = c.next[k] > c.next[most] ? k : most;
    }
    int k = plan->ask.replica < 0 ? most : plan->ask.replica;
    plan->ask.replica = k;
    p->bytes_reduction = c.all[k];
    p->bytes_sums = c.sums[k];
    plan->bytes.optimizer += c.state[k];
    plan->bytes.param += c.values[k];
    plan->bytes.comm += p->bytes_reduction;
    plan->bytes.grad += p->bytes_sums;
    return PP_OK;
}

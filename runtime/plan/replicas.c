/*
 * replicas.c - gradients are summed over the replicas of the pipeline.  In: a stage whose gradients
 * are whole in this replica, in buckets with a share for each (buckets.c).  Out: messages between
 * the ranks of the same number in all replicas, what the stage's reducing actions do with them, and
 * what comes in between.
 *
 * A replica gets its share of a bucket from all others, adds them in the order of replicas, its own
 * among them, and sends the sum to all: 2 (d-1)/d of the bytes travel, and no bit depends on when
 * what arrives.  Under --zero it keeps the sum and updates its share of the parameters with it,
 * which travel (unshard.c): as many bytes.  At 2 the sum goes where it stays, and the stage's
 * gradients are needed no more.
 *
 * REDUCE_GRAD starts the first buckets, as many as there is room for what others send, up to
 * WAIT_REDUCE_GRAD: stages whose sums are not under way together share it.  Then they
 * are taken in turn: one is added up and the next one started.  A turn is taken after any action by
 * which what it needs has arrived, or else while WAIT_REDUCE_GRAD waits.  Where copies of a
 * parameter lie in several stages, their sum is known only while the owner waits: then it is summed
 * over replicas too, before it goes back to the copies, so that both groups are summed in one go.
 *
 * A step may have more groups of microbatches than replicas (--groups): replica k runs the groups
 * k, k + d, ..., one after the other, so that a round of them is d groups in order.  The sum over
 * the rounds before begins that of a round: a replica keeps it, of its share alone, until the last
 * round, in which sums travel.
 *
 * All replicas run the same rows and so come to these actions in the same order: a rank waits only
 * for what its peers started before they waited for anything later.
 */
#include "planner.h"

#include <inttypes.h>

static int64_t own_bytes(const Planner *p, int l, const Bucket *b)
{
    int64_t bytes;
    bucket_share(p, l, b, p->plan->ask.replica, &bytes);
    return bytes;
}

PpStatus replicas_plan(Planner *p)
{
    Plan *plan = p->plan;
    if (!plan->ask.train)
        return PP_OK;
    if (plan->ask.counted)
        return replicas_count(p);
    for (int l = 0; l < plan->n_stage; l++) {
        Reduction *r = &p->reduction[l];
        for (int i = 0; i < r->summed; i++) {
            int64_t bytes = (plan->ask.replicas - 1) * align_up(own_bytes(p, l, &r->bucket[i]));
            r->room = bytes > r->room ? bytes : r->room;
        }
        r->rooms = r->summed < ROOMS ? r->summed : ROOMS;
    }
    TRY(sharded_rooms(p, &p->bytes_reduction));
    plan->bytes.comm += p->bytes_reduction;
    plan->bytes.grad += p->bytes_sums;
    return PP_OK;
}

/* ---- messages ---- */

static Spot in_gradient(int l, int64_t offset)
{
    return (Spot){.kind = SPOT_GRADIENT, .local = l, .offset = offset};
}

/* Where replica k's gradients of this replica's share come to. */
static Spot in_room(const Planner *p, int l, int bucket, int k)
{
    const Reduction *r = &p->reduction[l];
    int own = p->plan->ask.replica;
    return (Spot){.kind = SPOT_REDUCTION,
                  .offset = r->at + bucket % r->rooms * r->room +
                            (k - (k > own)) * align_up(own_bytes(p, l, &r->bucket[bucket]))};
}

/* Shares of this bucket between this replica and all others: what travels is the receiver's share
 * (to be summed) or the sender's (the sum). */
static PpStatus exchange(Planner *p, int l, int bucket, int sums, int sent)
{
    Plan *plan = p->plan;
    const Bucket *b = &p->reduction[l].bucket[bucket];
    int own = plan->ask.replica, first = plan->n_msg;
    for (int k = 0; k < plan->ask.replicas; k++) {
        int64_t bytes, at = bucket_share(p, l, b, sent == sums ? own : k, &bytes);
        if (k == own || !bytes)
            continue;
        TRY(peer_message(p, l, k, sent, bytes,
                         !sums && !sent ? in_room(p, l, bucket, k)
                                        : in_gradient(l, b->offset + at)));
    }
    return start_messages(p, sent ? DO_SEND : DO_RECV, first);
}

static PpStatus both_ways(Planner *p, int l, int bucket, int sums)
{
    Bucket *b = &p->reduction[l].bucket[bucket];
    b->first = p->plan->n_msg;
    TRY(exchange(p, l, bucket, sums, 0));
    TRY(exchange(p, l, bucket, sums, 1));
    b->count = p->plan->n_msg - b->first;
    p->peer_tag++;
    return PP_OK;
}

static PpStatus finish(Planner *p, const Bucket *b)
{
    return b->count ? add_transfer(p, (Transfer){.kind = DO_FINISH,
                                                 .first = b->first,
                                                 .count = b->count})
                    : PP_OK;
}

/* ---- sums ---- */

static PpStatus add(Planner *p, int l, const Bucket *b, Spot to, Spot from)
{
    return add_transfer(p, (Transfer){.kind = DO_ADD,
                                      .to_spot = to,
                                      .from_spot = from,
                                      .bytes = own_bytes(p, l, b),
                                      .dtype = b->dtype});
}

/* To or from the sum over the rounds before; grads_go: over all, which stays there. */
static PpStatus with_sum(Planner *p, int l, const Bucket *b, TransferKind kind, Spot at)
{
    Spot sum = {.kind = SPOT_SUM, .offset = b->sum};
    int several = p->plan->ask.rounds > 1, stays = p->plan->grads_go && kind == DO_COPY;
    if (!several && !stays)
        return PP_OK;
    p->rounds = stays ? ROUND_ANY : kind == DO_ADD ? ROUND_LATER : ROUND_NOT_LAST;
    PpStatus s = add_transfer(p, (Transfer){.kind = kind,
                                            .to_spot = kind == DO_ADD ? at : sum,
                                            .from_spot = kind == DO_ADD ? sum : at,
                                            .bytes = own_bytes(p, l, b),
                                            .dtype = b->dtype});
    p->rounds = ROUND_ANY;
    return s;
}

/* (((sum + 0) + 1) + 2) + ..: this replica's own are where the sum comes to. */
static PpStatus add_up(Planner *p, int l, int bucket)
{
    const Plan *plan = p->plan;
    const Bucket *b = &p->reduction[l].bucket[bucket];
    int own = plan->ask.replica;
    int64_t bytes, at = bucket_share(p, l, b, own, &bytes);
    Spot mine = in_gradient(l, b->offset + at);
    if (!bytes)
        return PP_OK;
    TRY(with_sum(p, l, b, DO_ADD, own ? in_room(p, l, bucket, 0) : mine));
    for (int k = 1; k < own; k++)
        TRY(add(p, l, b, in_room(p, l, bucket, 0), in_room(p, l, bucket, k)));
    if (own)
        TRY(add(p, l, b, mine, in_room(p, l, bucket, 0)));
    for (int k = own + 1; k < plan->ask.replicas; k++)
        TRY(add(p, l, b, mine, in_room(p, l, bucket, k)));
    return with_sum(p, l, b, DO_COPY, mine);
}

/* The shares sent are dead when the sums of others come there. */
static PpStatus take(Planner *p, int l, int bucket)
{
    Bucket *b = &p->reduction[l].bucket[bucket];
    TRY(finish(p, b));
    TRY(add_up(p, l, bucket));
    b->count = 0;
    if (p->plan->ask.zero && !p->plan->ask.whole_grads)
        return PP_OK;
    p->rounds = ROUND_LAST;
    PpStatus s = both_ways(p, l, bucket, 1);
    p->rounds = ROUND_ANY;
    return s;
}

/* Their sums are there. */
static PpStatus finish_sums(Planner *p, int l, int first, int end)
{
    PpStatus s = PP_OK;
    p->rounds = ROUND_LAST;
    for (int i = first; i < end && s == PP_OK; i++)
        s = finish(p, &p->reduction[l].bucket[i]);
    p->rounds = ROUND_ANY;
    return s;
}

/* Of the buckets up to `end`: this one is taken, the one that comes to its room is started. */
static PpStatus take_turn(Planner *p, int l, int bucket, int end)
{
    int next = bucket + p->reduction[l].rooms;
    TRY(take(p, l, bucket));
    return next < end ? both_ways(p, l, next, 0) : PP_OK;
}

/* ---- the two actions ---- */

PpStatus replicas_begin(Planner *p, int l)
{
    Reduction *r = &p->reduction[l];
    for (int i = 0; i < r->rooms && i < r->early && !p->plan->ask.counted; i++)
        TRY(both_ways(p, l, i, 0));
    return PP_OK;
}

/* What comes now is another turn, or behind the last one. */
static PpStatus mark_turn(Plan *plan)
{
    return pp_add(&plan->pool, &plan->turns.at, &plan->turns.n, &plan->n_transfer, sizeof(int));
}

/* In the last turn the sums of others are there. */
PpStatus replicas_wait(Planner *p, int l)
{
    Reduction *r = &p->reduction[l];
    StagePlan *rs = &p->plan->stage[l];
    if (!r->early || p->plan->ask.counted)
        return PP_OK;
    rs->turn = p->plan->turns.n;
    for (int i = 0; i < r->early; i++) {
        TRY(mark_turn(p->plan));
        TRY(take_turn(p, l, i, r->early));
    }
    TRY(mark_turn(p->plan));
    TRY(finish_sums(p, l, 0, r->early));
    rs->n_turn = p->plan->turns.n - rs->turn;
    return mark_turn(p->plan);
}

PpStatus replicas_late(Planner *p, int l)
{
    Reduction *r = &p->reduction[l];
    if (p->plan->ask.counted)
        return PP_OK;
    for (int i = r->early; i < r->summed && i < r->early + r->rooms; i++)
        TRY(both_ways(p, l, i, 0));
    for (int i = r->early; i < r->summed; i++)
        TRY(take_turn(p, l, i, r->summed));
    return finish_sums(p, l, r->early, r->summed);
}

PpStatus replicas_keep(Planner *p, int l, int param)
{
    const Reduction *r = &p->reduction[l];
    PpStatus s = PP_OK;
    for (int i = r->summed; i < r->grads && p->plan->grads_go && s == PP_OK; i++) {
        const Bucket *b = &r->bucket[i];
        int64_t bytes, at = bucket_share(p, l, b, p->plan->ask.replica, &bytes);
        if (b->param == param && bytes && !p->plan->ask.counted)
            s = with_sum(p, l, b, DO_COPY, in_gradient(l, b->offset + at));
    }
    return s;
}

PpStatus replicas_check(const Planner *p)
{
    return p->peer_tag < p->plan->ask.tags
               ? PP_OK
               : pp_fail(PP_ERR_MODEL,
                         "--bucket %" PRId64 ": %" PRId64 " messages between two replicas in a "
                         "step are more than the transport has names for (%" PRId64
                         "): take larger buckets",
                         p->plan->ask.bucket, p->peer_tag, p->plan->ask.tags);
}

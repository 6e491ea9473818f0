/*
 * replicas.c - gradients are summed over the replicas of the pipeline.  In: a stage whose gradients
 * are whole in this replica, in buckets with a share for each (buckets.c).  Out: messages between
 * the ranks of the same number in all replicas, what the stage's reducing actions do with them, and
 * what comes in between.
 *
 * A replica gets its share of a bucket from all others, adds them in the order of replicas, its own
 * among them, and sends the sum to all: 2 (d-1)/d of the bytes travel, and no bit depends on when
 * what arrives.  Divided, it keeps the sum, updates its share of the parameters with it, and sends
 * these: as many bytes.
 *
 * REDUCE_GRAD starts the first buckets, as many as there is room for what others send.  Then they
 * are taken in turn: one is added up and the next one started.  A turn is taken after any action by
 * which what it needs has arrived, or else while WAIT_REDUCE_GRAD waits.  Where copies of a
 * parameter lie in several stages, their sum is known only while the owner waits: then it is summed
 * over replicas too, before it goes back to the copies, so that both groups are summed in one go.
 *
 * A step may have more groups of microbatches than replicas (--groups): replica k runs the groups k,
 * k + d, ..., one after the other, so that a round of them is d groups in order.  The sum over the
 * rounds before begins that of a round: a replica keeps it, of its share alone, until the last
 * round, in which sums travel.
 *
 * All replicas run the same rows and so come to these actions in the same order: a rank waits only
 * for what its peers started before they waited for anything later.
 */
#include "planner.h"

#include <inttypes.h>
#include <stdlib.h>

static int64_t own_bytes(const Planner *p, int l, const Bucket *b)
{
    int64_t bytes;
    bucket_share(p, l, b, p->plan->ask.replica, &bytes);
    return bytes;
}

PpStatus replicas_plan(Planner *p)
{
    Plan *plan = p->plan;
    if (plan->ask.counted)
        return replicas_count(p);
    for (int l = 0; l < plan->n_stage; l++) {
        Reduction *r = &p->reduction[l];
        for (int i = 0; i < r->summed; i++) {
            int64_t own = align_up(own_bytes(p, l, &r->bucket[i])),
                    bytes = (plan->ask.replicas - 1) * own;
            r->room = bytes > r->room ? bytes : r->room;
            r->bucket[i].sum = p->bytes_sums;
            p->bytes_sums += plan->ask.rounds > 1 ? own : 0;
        }
        r->rooms = r->summed < ROOMS ? r->summed : ROOMS;
        r->at = p->bytes_reduction;
        p->bytes_reduction += r->rooms * r->room;
    }
    plan->bytes.comm += p->bytes_reduction;
    plan->bytes.grad += p->bytes_sums;
    return PP_OK;
}

/* ---- messages ---- */

static PpStatus message(Planner *p, int l, int peer, int sent, int64_t bytes, Spot at)
{
    int k = new_peer_message(p, AXIS_PEERS, peer, sent, p->peer_tag, bytes);
    at.local = l;
    return k < 0 ? pp_no_memory() : fix_message(p, k, at);
}

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

/* The messages since there were `first`. */
static PpStatus transfer_all(Planner *p, TransferKind kind, int first)
{
    int count = p->plan->n_msg - first;
    return count ? add_transfer(p, (Transfer){.kind = kind, .first = first, .count = count})
                 : PP_OK;
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
        TRY(message(p, l, k, sent, bytes,
                    !sums && !sent ? in_room(p, l, bucket, k) : in_gradient(l, b->offset + at)));
    }
    return transfer_all(p, sent ? DO_SEND : DO_RECV, first);
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

/* To or from the sum over the rounds before. */
static PpStatus with_sum(Planner *p, int l, const Bucket *b, TransferKind kind, Spot at)
{
    Spot sum = {.kind = SPOT_SUM, .offset = b->sum};
    if (p->plan->ask.rounds <= 1)
        return PP_OK;
    p->rounds = kind == DO_ADD ? ROUND_LATER : ROUND_NOT_LAST;
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
    if (p->plan->ask.divided && !p->plan->ask.whole_grads)
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
    int *grown = realloc(plan->turn, (size_t)(plan->n_turn + 1) * sizeof *grown);
    if (!grown)
        return pp_no_memory();
    plan->turn = grown;
    plan->turn[plan->n_turn++] = plan->n_transfer;
    return PP_OK;
}

/* In the last turn the sums of others are there. */
PpStatus replicas_wait(Planner *p, int l)
{
    Reduction *r = &p->reduction[l];
    StagePlan *rs = &p->plan->stage[l];
    if (!r->early || p->plan->ask.counted)
        return PP_OK;
    rs->turn = p->plan->n_turn;
    for (int i = 0; i < r->early; i++) {
        TRY(mark_turn(p->plan));
        TRY(take_turn(p, l, i, r->early));
    }
    TRY(mark_turn(p->plan));
    TRY(finish_sums(p, l, 0, r->early));
    rs->n_turn = p->plan->n_turn - rs->turn;
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

/* ---- divided: the parameters, after the update ---- */

/* Runs of a share that lie beside one another among the parameters as among the gradients. */
static PpStatus exchange_values(Planner *p, int l, const Bucket *b, int peer, int sent)
{
    const PpParam *q = p->plan->stage[l].st->param;
    int64_t bytes, from = b->offset + bucket_share(p, l, b, sent ? p->plan->ask.replica : peer,
                                                   &bytes);
    int64_t to = from + bytes;
    for (int k = b->param, end; k < b->end && from < to; k = end) {
        int64_t stop = q[k].grad_offset + align_up(q[k].t.bytes);
        end = k + 1;
        if (stop <= from)
            continue;
        for (; end < b->end && stop < to &&
               q[end].offset - q[end].grad_offset == q[k].offset - q[k].grad_offset;
             end++)
            stop = q[end].grad_offset + align_up(q[end].t.bytes);
        stop = stop < to ? stop : to;
        TRY(message(p, l, peer, sent, stop - from,
                    (Spot){.kind = SPOT_PARAMETERS,
                           .offset = q[k].offset + from - q[k].grad_offset}));
        from = stop;
    }
    return PP_OK;
}

static PpStatus gather_stage(Planner *p, int l)
{
    const Reduction *r = &p->reduction[l];
    for (int sent = 0; sent < 2; sent++) {
        int first = p->plan->n_msg;
        for (int k = 0; k < p->plan->ask.replicas; k++)
            for (int i = 0; i < r->n && k != p->plan->ask.replica; i++)
                TRY(exchange_values(p, l, &r->bucket[i], k, sent));
        TRY(transfer_all(p, sent ? DO_SEND : DO_RECV, first));
    }
    p->peer_tag++;
    return PP_OK;
}

static PpStatus round_stage(Planner *p, int l)
{
    const StagePlan *rs = &p->plan->stage[l];
    for (int k = 0; k < rs->st->n_param && rs->st->half_type; k++)
        if (rs->rp[k].update && rs->st->param[k].half_offset >= 0)
            TRY(add_transfer(p, (Transfer){.kind = DO_ROUND, .local = l, .param = k}));
    return PP_OK;
}

/* Parameters that are elsewhere come and go by stages. */
static PpStatus gather_one_by_one(Planner *p)
{
    for (int l = 0; l < p->plan->n_stage; l++) {
        int first = p->plan->n_msg;
        TRY(gather_stage(p, l));
        TRY(transfer_all(p, DO_FINISH, first));
        TRY(round_stage(p, l));
        TRY(add_transfer(p, (Transfer){.kind = DO_LEAVE, .local = l}));
    }
    return PP_OK;
}

static PpStatus gather_all(Planner *p)
{
    int first = p->plan->n_msg;
    for (int l = 0; l < p->plan->n_stage; l++)
        TRY(gather_stage(p, l));
    TRY(transfer_all(p, DO_FINISH, first));
    for (int l = 0; l < p->plan->n_stage; l++)
        TRY(round_stage(p, l));
    return PP_OK;
}

PpStatus replicas_gather(Planner *p)
{
    Plan *plan = p->plan;
    plan->gather = plan->n_transfer;
    if (plan->ask.divided && !plan->ask.counted)
        TRY(plan->ask.page ? gather_one_by_one(p) : gather_all(p));
    plan->n_gather = plan->n_transfer - plan->gather;
    return PP_OK;
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

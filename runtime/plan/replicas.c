/*
 * replicas.c - gradients are summed over the replicas of the pipeline.  In: a stage whose gradients
 * are whole in this replica.  Out: messages between the ranks of the same number in all replicas,
 * and what the stage's reducing actions do with them.
 *
 * The gradients of a stage are cut into buckets, and each bucket into a share for every replica.  A
 * replica gets its share from all others, adds them in the order of replicas, its own among them,
 * and sends the sum to all: 2 (d-1)/d of the bytes travel, and no bit depends on when what arrives.
 * REDUCE_GRAD starts the first buckets, as many as there is room for what others send;
 * WAIT_REDUCE_GRAD takes them in turn.  Where copies of a parameter lie in several stages, their
 * sum is known only while the owner waits: there all of it happens then, before the sum goes back
 * to the copies, so that both groups are summed in one go.
 *
 * All replicas run the same rows and so come to these actions in the same order: a rank waits only
 * for what its peers started before they waited for anything later.
 */
#include "planner.h"

#include <stdlib.h>

/* How many buckets are under way */
enum { ROOMS = 4 };

/* Where replica k's share of so many bytes begins; of as many as there are: the end. */
static int64_t share(const Plan *plan, int64_t bytes, int k)
{
    int d = plan->ask.replicas;
    int64_t units = align_up(bytes) / PP_ALIGN, at = (units * k + d - 1) / d * PP_ALIGN;
    return at < bytes ? at : bytes;
}

static int64_t share_bytes(const Plan *plan, const Bucket *b, int k)
{
    return share(plan, b->bytes, k + 1) - share(plan, b->bytes, k);
}

/* ---- buckets ---- */

static PpStatus cut(Reduction *r, int64_t most, int64_t offset, int64_t bytes, int dtype)
{
    for (int64_t at = 0; at < bytes; at += most) {
        Bucket *grown = realloc(r->bucket, (size_t)(r->n + 1) * sizeof *grown);
        if (!grown)
            return pp_no_memory();
        r->bucket = grown;
        r->bucket[r->n++] = (Bucket){.offset = offset + at,
                                     .bytes = bytes - at < most ? bytes - at : most,
                                     .dtype = dtype};
    }
    return PP_OK;
}

/* Runs of gradients of one type that this stage owns. */
static PpStatus find_buckets(const StagePlan *rs, int64_t most, Reduction *r)
{
    int64_t from = 0, end = 0;
    int dtype = 0;
    for (int k = 0; k < rs->st->n_param; k++) {
        const PpParam *q = rs->rp[k].p;
        if (!rs->rp[k].counts)
            continue;
        if (q->grad_offset != end || q->t.dtype != dtype) {
            TRY(cut(r, most, from, end - from, dtype));
            from = q->grad_offset;
        }
        end = q->grad_offset + align_up(q->t.bytes);
        dtype = q->t.dtype;
    }
    return cut(r, most, from, end - from, dtype);
}

PpStatus replicas_plan(Planner *p)
{
    Plan *plan = p->plan;
    int d = plan->ask.replicas, own = plan->ask.replica;
    p->reduction = zeroed(plan->n_stage, sizeof *p->reduction);
    if (!p->reduction)
        return pp_no_memory();
    for (int l = 0; l < plan->n_stage && d > 1 && plan->ask.train; l++) {
        Reduction *r = &p->reduction[l];
        TRY(find_buckets(&plan->stage[l], align_up(plan->ask.bucket), r));
        r->rooms = r->n < ROOMS ? r->n : ROOMS;
        for (int i = 0; i < r->n; i++) {
            int64_t bytes = (d - 1) * align_up(share_bytes(plan, &r->bucket[i], own));
            r->room = bytes > r->room ? bytes : r->room;
        }
        r->at = p->bytes_reduction;
        p->bytes_reduction += r->rooms * r->room;
        for (int k = 0; k < plan->stage[l].st->n_param; k++)
            r->late |= plan->stage[l].st->param[k].use == PP_REPLICATE;
    }
    plan->bytes.comm += p->bytes_reduction;
    return PP_OK;
}

/* ---- messages ---- */

static PpStatus message(Planner *p, int l, int peer, int sent, int64_t bytes, Spot at)
{
    int k = new_peer_message(p, peer, sent, p->peer_tag, bytes);
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
    int64_t bytes = align_up(share_bytes(p->plan, &r->bucket[bucket], own));
    return (Spot){.kind = SPOT_REDUCTION,
                  .offset = r->at + bucket % r->rooms * r->room + (k - (k > own)) * bytes};
}

/* Shares of this bucket between this replica and all others: what travels is the receiver's share
 * (to be summed) or the sender's (the sum). */
static PpStatus exchange(Planner *p, int l, int bucket, int sums, int sent)
{
    Plan *plan = p->plan;
    const Bucket *b = &p->reduction[l].bucket[bucket];
    int own = plan->ask.replica, first = plan->n_msg;
    for (int k = 0; k < plan->ask.replicas; k++) {
        int whose = sent == sums ? own : k;
        int64_t bytes = share_bytes(plan, b, whose);
        if (k == own || !bytes)
            continue;
        Spot at = !sums && !sent ? in_room(p, l, bucket, k)
                                 : in_gradient(l, b->offset + share(plan, b->bytes, whose));
        TRY(message(p, l, k, sent, bytes, at));
    }
    int count = plan->n_msg - first;
    return count ? add_transfer(p, (Transfer){.kind = sent ? DO_SEND : DO_RECV,
                                              .first = first,
                                              .count = count})
                 : PP_OK;
}

static PpStatus start(Planner *p, int l, int bucket)
{
    Bucket *b = &p->reduction[l].bucket[bucket];
    b->first = p->plan->n_msg;
    TRY(exchange(p, l, bucket, 0, 0));
    TRY(exchange(p, l, bucket, 0, 1));
    b->count = p->plan->n_msg - b->first;
    p->peer_tag++;
    return PP_OK;
}

static PpStatus add(Planner *p, const Bucket *b, Spot to, Spot from)
{
    return add_transfer(p, (Transfer){.kind = DO_ADD,
                                      .to_spot = to,
                                      .from_spot = from,
                                      .bytes = share_bytes(p->plan, b, p->plan->ask.replica),
                                      .dtype = b->dtype});
}

/* ((0 + 1) + 2) + ..: this replica's own are where the sum comes to. */
static PpStatus add_up(Planner *p, int l, int bucket)
{
    const Plan *plan = p->plan;
    const Bucket *b = &p->reduction[l].bucket[bucket];
    int own = plan->ask.replica;
    Spot mine = in_gradient(l, b->offset + share(plan, b->bytes, own));
    if (!share_bytes(plan, b, own))
        return PP_OK;
    for (int k = 1; k < own; k++)
        TRY(add(p, b, in_room(p, l, bucket, 0), in_room(p, l, bucket, k)));
    if (own)
        TRY(add(p, b, mine, in_room(p, l, bucket, 0)));
    for (int k = own + 1; k < plan->ask.replicas; k++)
        TRY(add(p, b, mine, in_room(p, l, bucket, k)));
    return PP_OK;
}

static PpStatus finish(Planner *p, int first, int count)
{
    return count ? add_transfer(p, (Transfer){.kind = DO_FINISH, .first = first, .count = count})
                 : PP_OK;
}

/* The shares sent are dead when the sums of others come there. */
static PpStatus take(Planner *p, int l, int bucket)
{
    Bucket *b = &p->reduction[l].bucket[bucket];
    TRY(finish(p, b->first, b->count));
    TRY(add_up(p, l, bucket));
    b->first = p->plan->n_msg;
    TRY(exchange(p, l, bucket, 1, 0));
    TRY(exchange(p, l, bucket, 1, 1));
    b->count = p->plan->n_msg - b->first;
    p->peer_tag++;
    return PP_OK;
}

/* ---- the two actions ---- */

PpStatus replicas_begin(Planner *p, int l, int waits)
{
    Reduction *r = &p->reduction[l];
    for (int i = 0; i < r->rooms && r->late == waits; i++)
        TRY(start(p, l, i));
    return PP_OK;
}

PpStatus replicas_end(Planner *p, int l)
{
    Reduction *r = &p->reduction[l];
    for (int i = 0; i < r->n; i++) {
        TRY(take(p, l, i));
        if (i + r->rooms < r->n)
            TRY(start(p, l, i + r->rooms));
    }
    for (int i = 0; i < r->n; i++)
        TRY(finish(p, r->bucket[i].first, r->bucket[i].count));
    return PP_OK;
}

/*
 * unshard.c - parameters that come from other replicas.  In: the shares of buckets (buckets.c).
 * Out: messages, and what actions do with them.
 *
 * --zero 3: a replica has its shares of a stage's parameters, and whole what is in no share.
 * UNSHARD starts the messages that bring the shares of all others to their places in a block as the
 * stage's functions see it, and copies its own there; the stage's next computation waits for them,
 * copies what is whole and makes half copies; RESHARD gives the block up.  Only running statistics
 * go back: nothing else changes in a pass.  All replicas run the same rows and come to these
 * actions in the same order.
 *
 * --zero 1 and 2: after the update all get all parameters.
 */
#include "planner.h"

/* A run of a replica's share that lies together among the parameters as in the bucket. */
typedef struct {
    const PpParam *q;
    const Bucket *b;
    int64_t share, next, end; /* as Bucket.offset */
    int k;
    int64_t at, bytes, value; /* in the share; among the parameters */
} Runs;

static Runs runs_of(const Planner *p, int l, const Bucket *b, int replica)
{
    int64_t bytes, at = b->offset + bucket_share(p, l, b, replica, &bytes);
    return (Runs){.q = p->plan->stage[l].st->param,
                  .b = b,
                  .share = at,
                  .next = at,
                  .end = at + bytes,
                  .k = b->param};
}

static int next_run(Runs *r)
{
    const PpParam *q = r->q;
    while (r->k < r->b->end && r->next < r->end) {
        int first = r->k++;
        int64_t stop = bucket_place(&q[first]) + align_up(q[first].t.bytes);
        if (stop <= r->next)
            continue;
        for (; r->k < r->b->end && stop < r->end &&
               q[r->k].offset - bucket_place(&q[r->k]) == q[first].offset - bucket_place(&q[first]);
             r->k++)
            stop = bucket_place(&q[r->k]) + align_up(q[r->k].t.bytes);
        stop = stop < r->end ? stop : r->end;
        r->at = r->next - r->share;
        r->bytes = stop - r->next;
        r->value = q[first].offset + r->next - bucket_place(&q[first]);
        r->next = stop;
        return 1;
    }
    return 0;
}

static Spot at_home(const Planner *p, int l, const Runs *r)
{
    const PpParam *q = &r->q[r->b->param]; /* zero 3: alone in its bucket where it is whole */
    int64_t whole = p->plan->ask.zero == 3
                        ? p->plan->stage[l].rp[r->b->param].home + r->value - q->offset
                        : r->value;
    return (Spot){
        .kind = SPOT_PARAMETERS, .local = l, .offset = r->b->whole ? whole : r->b->home + r->at};
}

static Spot in_window(const Planner *p, int l, int64_t offset)
{
    return (Spot){.kind = SPOT_WINDOW, .local = l, .op = p->at, .offset = offset};
}

/* Shares of the buckets whose parameters are whole, or are not, from and to another replica. */
static PpStatus exchange(Planner *p, int l, int whole, int peer, int sent)
{
    const Reduction *red = &p->reduction[l];
    for (int i = 0; i < red->n; i++) {
        Runs r = runs_of(p, l, &red->bucket[i], sent ? p->plan->ask.replica : peer);
        while (red->bucket[i].whole == whole && next_run(&r)) {
            Spot at = whole || sent ? at_home(p, l, &r) : in_window(p, l, r.value);
            TRY(peer_message(p, l, peer, sent, r.bytes, at));
            p->plan->bytes.travels.gathered_in += !whole && !sent ? r.bytes : 0;
            p->plan->bytes.travels.gathered_out += !whole && sent ? r.bytes : 0;
        }
    }
    return PP_OK;
}

static PpStatus gather(Planner *p, int l, int whole)
{
    for (int sent = 0; sent < 2; sent++) {
        int first = p->plan->n_msg;
        for (int k = 0; k < p->plan->ask.replicas; k++)
            if (k != p->plan->ask.replica)
                TRY(exchange(p, l, whole, k, sent));
        TRY(start_messages(p, sent ? DO_SEND : DO_RECV, first));
    }
    p->peer_tag++;
    return PP_OK;
}

/* ---- --zero 3: with the actions ---- */

static PpStatus copy_own(Planner *p, int l)
{
    const Reduction *red = &p->reduction[l];
    for (int i = 0; i < red->n; i++) {
        Runs r = runs_of(p, l, &red->bucket[i], p->plan->ask.replica);
        while (!red->bucket[i].whole && next_run(&r))
            TRY(add_transfer(p, (Transfer){.kind = DO_COPY,
                                           .to_spot = in_window(p, l, r.value),
                                           .from_spot = at_home(p, l, &r),
                                           .bytes = r.bytes}));
    }
    return PP_OK;
}

PpStatus unshard_begin(Planner *p, int l)
{
    if (p->plan->ask.zero < 3)
        return PP_OK;
    p->coming[l] = p->at;
    p->plan->bytes.gathers++;
    if (p->plan->ask.counted)
        return PP_OK;
    TRY(gather(p, l, 0));
    return copy_own(p, l);
}

/* Between the whole parameters at home and in the block that UNSHARD number `op` has made. */
static PpStatus copy_whole(Planner *p, int l, int op, int back)
{
    const StagePlan *rs = &p->plan->stage[l];
    for (int k = 0; k < rs->st->n_param; k++) {
        Spot home = {.kind = SPOT_VALUE, .local = l, .param = k},
             here = in_window(p, l, rs->st->param[k].offset);
        here.op = op;
        if (rs->rp[k].home >= 0 && rs->st->param[k].t.bytes && (!back || rs->st->param[k].stat))
            TRY(add_transfer(p, (Transfer){.kind = DO_COPY,
                                           .to_spot = back ? home : here,
                                           .from_spot = back ? here : home,
                                           .bytes = rs->st->param[k].t.bytes}));
    }
    return PP_OK;
}

static PpStatus round_stage(Planner *p, int l)
{
    const StagePlan *rs = &p->plan->stage[l];
    int all = p->plan->ask.zero == 3;
    for (int k = 0; k < rs->st->n_param && rs->st->half_type; k++)
        if ((all || rs->rp[k].update) && rs->st->param[k].half_offset >= 0)
            TRY(add_transfer(p, (Transfer){.kind = DO_ROUND, .local = l, .param = k}));
    return PP_OK;
}

PpStatus unshard_end(Planner *p, int l)
{
    int op = p->coming[l];
    p->coming[l] = -1;
    if (op < 0 || p->plan->ask.counted)
        return PP_OK;
    const Op *begun = &p->plan->op[op];
    for (int i = begun->first; i < begun->first + begun->count; i++) {
        Transfer t = p->plan->transfer[i];
        t.kind = DO_FINISH;
        if (p->plan->transfer[i].kind == DO_RECV)
            TRY(add_transfer(p, t));
    }
    TRY(copy_whole(p, l, op, 0));
    return round_stage(p, l);
}

PpStatus unshard_drop(Planner *p, int l)
{
    const Plan *plan = p->plan;
    int op = p->at;
    if (plan->ask.zero < 3 || plan->ask.counted)
        return PP_OK;
    TRY(unshard_end(p, l));
    while (op > 0 && !(plan->op[op].a.type == SA_UNSHARD && plan->op[op].local == l))
        op--;
    return plan->ask.train ? copy_whole(p, l, op, 1) : PP_OK;
}

/* ---- after the update ---- */

static PpStatus gather_all(Planner *p)
{
    int first = p->plan->n_msg;
    for (int l = 0; l < p->plan->n_stage; l++)
        TRY(gather(p, l, 1));
    TRY(start_messages(p, DO_FINISH, first));
    for (int l = 0; l < p->plan->n_stage && p->plan->ask.zero < 3; l++)
        TRY(round_stage(p, l));
    return PP_OK;
}

PpStatus unshard_updated(Planner *p)
{
    Plan *plan = p->plan;
    plan->gather.first = plan->n_transfer;
    if (plan->ask.zero && plan->ask.train && !plan->ask.counted)
        TRY(gather_all(p));
    plan->gather.n = plan->n_transfer - plan->gather.first;
    return PP_OK;
}

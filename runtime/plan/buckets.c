/*
 * buckets.c - what replicas divide among them.  In: the generated tables, the number of replicas
 * (one, where it adds up several groups).
 * Out: a stage's gradients in buckets, which are summed one by one; the share of each replica in
 * each bucket, which it adds up; with --zero (1910.02054) also updates: the pieces of parameters
 * that this rank's optimizer changes and has the state of, at 2 the sum of gradients of, at 3 the
 * values of, and of what does not train.  What is not in pieces, running statistics and values that
 * go to other stages in every step, then lies whole beside these.
 *
 * Buckets and shares begin and end at blocks of a parameter's norm, so that every sum of squares is
 * one replica's and the norm is added up in the order of one that has it all.  Shares differ by
 * less than two blocks; which replica has which changes from bucket to bucket, for many are small.
 * A replicated parameter is in buckets of its own: they follow from it alone, so all of its stages
 * divide it alike.
 */
#include "planner.h"

#include <stdlib.h>

/* ---- blocks ---- */

static int64_t block_bytes(const PpParam *q)
{
    return OPTIM_BLOCK * (q->t.dtype == PP_F64 ? 8 : 4);
}

/* The first block at or after a byte of the stage's gradients, or of its parameters that have none,
 * of those [k, end) that follow one another there; or their end. */
static int64_t next_block(const PpStage *st, int k, int end, int64_t at)
{
    int64_t stop = at;
    for (; k < end; k++) {
        const PpParam *q = &st->param[k];
        int64_t first = bucket_place(q), block = block_bytes(q);
        stop = first + align_up(q->t.bytes);
        if (at >= stop)
            continue;
        if (at <= first)
            return first;
        int64_t next = first + (at - first + block - 1) / block * block;
        return next < first + q->t.bytes ? next : stop;
    }
    return stop;
}

int64_t bucket_share(const Planner *p, int local, const Bucket *b, int k, int64_t *bytes)
{
    const PpStage *st = p->plan->stage[local].st;
    int64_t d = p->plan->ask.replicas, edge[2];
    for (int i = 0; i < 2; i++) {
        int64_t n = (k + b->turn) % d + i;
        edge[i] = n == d ? b->bytes
                         : next_block(st, b->param, b->end, b->offset + b->bytes / d * n) -
                               b->offset;
    }
    *bytes = edge[1] - edge[0];
    return edge[0];
}

/* ---- buckets ---- */

/* From one that begins at `at` and ends at `next`, in parameter q: how many are like it. */
static int64_t alike(const PpParam *q, int64_t at, int64_t next)
{
    int64_t stop = bucket_place(q) + q->t.bytes, times = (stop - 1 - at) / (next - at);
    return at >= bucket_place(q) && next < stop && times > 0 ? times : 1;
}

/* The parameters [k, end) in buckets of about the size that is asked for; counted: those that are
 * alike as one. */
static PpStatus cut(Plan *plan, const PpStage *st, int k, int end, Reduction *r)
{
    const PpParam *q = st->param;
    const int64_t most = align_up(plan->ask.bucket);
    int64_t at = bucket_place(&q[k]),
            stop = bucket_place(&q[end - 1]) + align_up(q[end - 1].t.bytes);
    int turn = q[k].param;
    while (at < stop) {
        int64_t next = next_block(st, k, end, at + most);
        int last = k + 1;
        while (last < end && bucket_place(&q[last]) < next)
            last++;
        int64_t times = plan->ask.counted && last == k + 1 ? alike(&q[k], at, next) : 1;
        const Bucket b = {.offset = at,
                          .bytes = next - at,
                          .dtype = q[k].t.dtype,
                          .param = k,
                          .end = last,
                          .turn = turn,
                          .times = times};
        TRY(pp_add(&plan->planner->pool, &r->bucket, &r->n, &b, sizeof b));
        turn += (int)times;
        next = at + times * (next - at);
        k = bucket_place(&q[last - 1]) + align_up(q[last - 1].t.bytes) > next ? last - 1 : last;
        at = next;
    }
    return PP_OK;
}

/* Does parameter k come right behind the one before it, among gradients or those without? */
static int follows(const StagePlan *rs, int k)
{
    const PpParam *q = &rs->st->param[k], *before = q - 1;
    return before->t.dtype == q->t.dtype &&
           bucket_place(before) + align_up(before->t.bytes) == bucket_place(q);
}

/* zero 3: SENT: its values go to other stages in every step; FIXED: it does not train. */
typedef enum { OWN, SENT, OWN_COPY, COPY, FIXED, NONE } Kind;

static int is_sent(const PpPlan *model, const PpStage *st, int k)
{
    int at, sent = 0;
    for (int s = 0; s < model->n_stage; s++) {
        const PpParam *q =
            s == st->index ? NULL : shared_param(model->stage[s], st->param[k].param, &at);
        sent |= q && q->use == PP_TRANSMIT;
    }
    return sent;
}

static Kind kind_of(const Plan *plan, const StagePlan *rs, int k)
{
    const RankParam *q = &rs->rp[k];
    int divides = plan->ask.zero == 3, sent = divides && is_sent(plan->model, rs->st, k);
    int fixed = divides && q->p->grad_offset < 0 && !q->p->stat && q->p->use != PP_TRANSMIT;
    if (!q->p->t.bytes || !(q->update || fixed))
        return NONE;
    if (!q->update)
        return sent ? NONE : FIXED;
    if (q->p->use != PP_OWN)
        return q->counts ? OWN_COPY : COPY;
    return sent ? SENT : OWN;
}

static PpStatus find_of_kind(Plan *plan, const StagePlan *rs, Kind kind, Reduction *r)
{
    int first = r->n;
    for (int k = 0, end; k < rs->st->n_param; k = end) {
        end = k + 1;
        if (kind_of(plan, rs, k) != kind)
            continue;
        while (end < rs->st->n_param && (kind == OWN || kind == FIXED) &&
               kind_of(plan, rs, end) == kind && follows(rs, end))
            end++;
        TRY(cut(plan, rs->st, k, end, r));
    }
    for (; first < r->n; first++)
        r->bucket[first].whole = plan->ask.zero < 3 || kind == SENT;
    return PP_OK;
}

static PpStatus find_buckets(Plan *plan, const StagePlan *rs, Reduction *r)
{
    TRY(find_of_kind(plan, rs, OWN, r));
    TRY(find_of_kind(plan, rs, SENT, r));
    r->early = r->n;
    TRY(find_of_kind(plan, rs, OWN_COPY, r));
    r->summed = r->n;
    if (plan->ask.zero)
        TRY(find_of_kind(plan, rs, COPY, r));
    r->grads = r->n;
    return find_of_kind(plan, rs, FIXED, r);
}

int bucket_keeps(const Planner *p, int local, int i)
{
    const Plan *plan = p->plan;
    const Reduction *r = &p->reduction[local];
    return plan->grads_go ? i < r->grads : plan->ask.train && i < r->summed && plan->ask.rounds > 1;
}

/* Where this replica's share of a bucket stays. */
static void place_share(Planner *p, int l, int i)
{
    StagePlan *rs = &p->plan->stage[l];
    Bucket *b = &p->reduction[l].bucket[i];
    int64_t bytes;
    bucket_share(p, l, b, p->plan->ask.replica, &bytes);
    b->sum = p->bytes_sums;
    p->bytes_sums += bucket_keeps(p, l, i) ? align_up(bytes) : 0;
    b->home = rs->home;
    rs->home += b->whole ? 0 : align_up(bytes);
}

/* zero 3: what is not in pieces, behind them. */
static void place_whole(const Plan *plan, StagePlan *rs)
{
    for (int k = 0; k < rs->st->n_param; k++) {
        Kind kind = kind_of(plan, rs, k);
        rs->rp[k].home = kind == NONE || kind == SENT ? rs->home : -1;
        rs->home += rs->rp[k].home < 0 ? 0 : align_up(rs->st->param[k].t.bytes);
    }
}

/* ---- pieces ---- */

static PpStatus push_piece(Plan *plan, Piece piece)
{
    TRY(pp_add(&plan->pool, &plan->pieces.at, &plan->pieces.n, &piece, sizeof piece));
    if (!plan->stage[piece.local].rp[piece.param].update)
        return PP_OK;
    plan->bytes.replicas.updated += piece.bytes;
    plan->bytes.replicas.stays += ((piece.home >= 0) + (plan->grads_go != 0)) * piece.bytes;
    plan->bytes.optimizer += plan->ask.states * align_up(piece.bytes);
    return PP_OK;
}

static PpStatus pieces_of_share(Planner *p, int l, const Bucket *b)
{
    Plan *plan = p->plan;
    int64_t bytes, from = b->offset + bucket_share(p, l, b, plan->ask.replica, &bytes);
    int64_t to = from + bytes;
    for (int k = b->param; k < b->end; k++) {
        const PpParam *q = &plan->stage[l].st->param[k];
        int64_t first = from > bucket_place(q) ? from - bucket_place(q) : 0,
                end = to - bucket_place(q) < q->t.bytes ? to - bucket_place(q) : q->t.bytes;
        int64_t at = bucket_place(q) + first - from; /* in the share */
        if (first < end)
            TRY(push_piece(plan, (Piece){.local = l,
                                         .param = k,
                                         .first = first,
                                         .bytes = end - first,
                                         .home = b->whole ? -1 : b->home + at,
                                         .kept = b->sum + at}));
    }
    return PP_OK;
}

int64_t bucket_state(const Planner *p, int l, const Bucket *b, int k)
{
    int64_t bytes, from = b->offset + bucket_share(p, l, b, k, &bytes), sum = 0;
    for (int i = b->param; i < b->end; i++) {
        const PpParam *q = &p->plan->stage[l].st->param[i];
        int64_t first = from > bucket_place(q) ? from - bucket_place(q) : 0,
                end = from + bytes - bucket_place(q);
        end = end < q->t.bytes ? end : q->t.bytes;
        sum += first < end ? align_up(end - first) : 0;
    }
    return sum;
}

static PpStatus whole_pieces(Plan *plan, int l)
{
    const StagePlan *rs = &plan->stage[l];
    for (int k = 0; k < rs->st->n_param; k++)
        if (rs->rp[k].update && rs->rp[k].p->t.bytes)
            TRY(push_piece(
                plan, (Piece){.local = l, .param = k, .bytes = rs->rp[k].p->t.bytes, .home = -1}));
    return PP_OK;
}

static int by_place(const void *a, const void *b)
{
    const Piece *x = a, *y = b;
    return x->local != y->local   ? x->local - y->local
           : x->param != y->param ? x->param - y->param
                                  : (x->first > y->first) - (x->first < y->first);
}

static void sort_pieces(Plan *plan)
{
    if (plan->pieces.n)
        qsort(plan->pieces.at, (size_t)plan->pieces.n, sizeof *plan->pieces.at, by_place);
    for (int i = plan->pieces.n; i-- > 0;) {
        RankParam *q = &plan->stage[plan->pieces.at[i].local].rp[plan->pieces.at[i].param];
        q->piece = i;
        q->n_piece++;
    }
}

static void number_blocks(Plan *plan, StagePlan *rs)
{
    for (int k = 0; k < rs->st->n_param; k++) {
        RankParam *q = &rs->rp[k];
        q->block = -1;
        if (!plan->ask.zero || q->norm < 0)
            continue;
        q->block = plan->norm.blocks;
        plan->norm.blocks += (q->p->t.bytes + block_bytes(q->p) - 1) / block_bytes(q->p);
    }
}

static void count_whole(Plan *plan, const StagePlan *rs)
{
    int pieces = plan->ask.zero == 3;
    for (int k = 0; k < rs->st->n_param; k++) {
        const PpTensor *t = &rs->st->param[k].t;
        if (!rs->rp[k].update)
            continue;
        plan->bytes.replicas.optimizer += plan->ask.states * align_up(t->bytes);
        plan->bytes.replicas.trained += t->bytes;
        plan->bytes.replicas.stays +=
            (pieces && rs->rp[k].home < 0 ? 0 : t->bytes) + (plan->grads_go ? 0 : t->bytes);
        plan->bytes.replicas.elements += t->bytes / (t->dtype == PP_F64 ? 8 : 4);
    }
}

PpStatus buckets_plan(Planner *p)
{
    Plan *plan = p->plan;
    TRY(pp_take(&p->pool, &p->reduction, plan->n_stage, sizeof *p->reduction));
    for (int l = 0; l < plan->n_stage; l++) {
        StagePlan *rs = &plan->stage[l];
        Reduction *r = &p->reduction[l];
        if (plan->ask.replicas > 1 || plan->ask.rounds > 1)
            TRY(find_buckets(plan, rs, r));
        number_blocks(plan, rs);
        for (int i = 0; i < r->n && !plan->ask.counted; i++) {
            place_share(p, l, i);
            if (plan->ask.zero)
                TRY(pieces_of_share(p, l, &r->bucket[i]));
        }
        if (plan->ask.zero == 3)
            place_whole(plan, rs);
        if (!plan->ask.zero)
            TRY(whole_pieces(plan, l));
        count_whole(plan, rs);
    }
    sort_pieces(plan);
    return PP_OK;
}

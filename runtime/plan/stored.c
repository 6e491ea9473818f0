/*
 * stored.c - stashes that are not on the device between F and backward.  In: OFFLOAD, WAIT_OFFLOAD
 * and FETCH of the row, in the order that the verifier has proven.  Out: which op waits for which
 * copy; places in the store, of which several stashes use one, one after the other.
 *
 * In the arena such a stash is two instances: from F until its copy has left, and from the
 * beginning of its copy back until its last reader.  Its parts go with it, but for those that an R
 * makes again.
 */
#include "planner.h"

int64_t plan_stored_bytes(const PpStage *st, int32_t again)
{
    int64_t bytes = align_up(st->bytes.stash);
    for (int k = 0; k < st->n_again; k++)
        bytes += again >> k & 1 ? 0 : align_up(st->again[k].bytes);
    return bytes;
}

PpStatus stored_find(Planner *p)
{
    Plan *plan = p->plan;
    int64_t n = (int64_t)plan->n_stage * p->m;
    TRY(pp_take(&p->pool, &p->store.moved, n, 1));
    TRY(pp_take(&p->pool, &p->store.away, n, sizeof *p->store.away));
    TRY(pp_take(&p->pool, &p->store.copy, n, sizeof *p->store.copy));
    for (int64_t k = 0; k < n; k++) {
        p->store.away[k] = (Packed){.first = -1};
        p->store.copy[k] = -1;
    }
    for (int k = 0; k < plan->n_op; k++)
        if (plan->op[k].a.type == SA_OFFLOAD)
            p->store.moved[(int64_t)plan->op[k].local * p->m + plan->op[k].a.microbatch] = 1;
    return PP_OK;
}

/* What is copied: as F has written it, or as the backward will read it. */
static void touch_stored(Planner *p, int l, int m, int back)
{
    const PpStage *st = p->plan->stage[l].st;
    plan_touch(p, back ? plan_kept_stash(p, l, m) : plan_stash(p, l, m));
    for (int k = 0; k < st->n_again; k++)
        if (!(plan_again(p, l, m) >> k & 1))
            plan_touch(p, back ? plan_kept_part(p, l, k, m) : plan_part(p, l, k, m));
}

void stored_op(Planner *p, Op *op)
{
    int l = op->local, m = op->a.microbatch;
    int64_t at = (int64_t)l * p->m + m;
    op->again = plan_again(p, l, m);
    if (op->a.type == SA_WAIT_OFFLOAD) {
        op->copy = p->store.copy[at];
        p->store.copy[at] = -1;
    } else {
        p->store.copy[at] = p->at;
    }
    if (op->a.type == SA_OFFLOAD) {
        p->store.away[at].bytes = plan_stored_bytes(p->plan->stage[l].st, op->again);
        p->store.away[at].first = p->begin;
        p->plan->bytes.moved += p->store.away[at].bytes;
        p->plan->work.offloaded++;
    }
    touch_stored(p, l, m, op->a.type == SA_FETCH);
}

void stored_reader(Planner *p, Op *op)
{
    int64_t at = (int64_t)op->local * p->m + op->a.microbatch;
    op->copy = p->store.copy[at];
    p->store.copy[at] = -1;
    if (op->copy >= 0)
        p->store.away[at].last = p->end;
}

PpStatus stored_place(Planner *p)
{
    return slots_place(p->store.away, (int64_t)p->plan->n_stage * p->m, p->plan->n_op,
                       &p->plan->bytes.store);
}

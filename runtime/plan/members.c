/*
 * members.c - the messages of collectives.  In: of each stage of the rank its table of them.  Out:
 * entries of Plan.msg along AXIS_MEMBERS, 2 (T - 1) for each collective that may be under way at
 * the same time, that all of the stage's use one after the other: each of them says what a message
 * holds when it is sent (net/collective.c).  Stages have their own, as two of them may run at the
 * same time.
 */
#include "planner.h"

#include "base/file/safetensors.h"

const PpStage *plan_as_run(const PpStage *st) { return st->minibatch ? st->minibatch : st; }

/* The largest message of any of them, of a full microbatch. */
static int64_t most_bytes(const PpStage *st, int members)
{
    int64_t most = 0;
    for (int k = 0; k < st->n_collective; k++) {
        const PpCollective *c = &st->collective[k];
        int64_t size = st_dtype_size(c->dtype), bytes = c->bytes / members;
        if (c->kind == PP_ALL_REDUCE)
            bytes = pp_collective_piece(c->bytes / size, members) * size;
        else if (c->kind == PP_ALL_GATHER)
            bytes = c->bytes;
        if (c->kind != PP_SHARD && bytes > most)
            most = bytes;
    }
    return most;
}

static int at_once(const PpStage *st) { return st->at_once > 1 ? st->at_once : 1; }

PpStatus members_plan(Planner *p)
{
    Plan *plan = p->plan;
    int members = plan_members(plan->model);
    for (int l = 0; l < plan->n_stage; l++) {
        const PpStage *st = plan_as_run(plan->stage[l].st);
        int64_t most = members > 1 ? most_bytes(st, members) : 0;
        plan->stage[l].members = most > 0 ? plan->n_msg : -1;
        for (int sent = 0; sent < 2 * at_once(st) && most > 0; sent++)
            for (int k = 0; k < members; k++)
                if (k != plan->ask.member &&
                    new_peer_message(p, AXIS_MEMBERS, k, sent % 2, 0, align_up(most)) < 0)
                    return pp_no_memory();
    }
    return PP_OK;
}

/* Where NCCL connects by a byte, before the first step. */
void members_point(Plan *plan)
{
    for (int k = 0; k < plan->n_msg; k++)
        if (plan->msg[k].axis == AXIS_MEMBERS)
            plan->msg[k].buf = plan->slots;
}

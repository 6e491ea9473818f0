/*
 * members.c - the messages of collectives.  In: of each stage of the rank its table of them.  Out:
 * entries of Plan.msg along AXIS_MEMBERS, for each axis of the mesh 2 (T - 1) for each collective
 * that may be under way at the same time, that all of the stage's use one after the other: each of
 * them says what a message holds when it is sent (net/collective.c).  Stages have their own, as two
 * of them may run at the same time.
 */
#include "planner.h"

#include "base/file/safetensors.h"

const PpStage *plan_as_run(const PpStage *st) { return st->minibatch ? st->minibatch : st; }

/* The largest message of any of them along an axis, of a full microbatch. */
static int64_t most_bytes(const PpStage *st, int x, int members)
{
    int64_t most = 0;
    for (int k = 0; k < st->mesh.n_collective && members > 1; k++) {
        const PpCollective *c = &st->mesh.collective[k];
        int64_t size = st_dtype_size(c->dtype), bytes = c->bytes / members;
        if (c->kind == PP_ALL_REDUCE)
            bytes = pp_collective_piece(c->bytes / size, members) * size;
        else if (c->kind == PP_ALL_GATHER)
            bytes = c->bytes;
        if (c->mesh == x && c->kind != PP_SHARD && bytes > most)
            most = bytes;
    }
    return most;
}

static int at_once(const PpStage *st) { return st->mesh.at_once > 1 ? st->mesh.at_once : 1; }

/* Those of a stage along an axis. */
static PpStatus plan_along(Planner *p, StagePlan *rs, int x)
{
    Plan *plan = p->plan;
    const PpPlan *model = plan->model;
    const PpStage *st = plan_as_run(rs->st);
    int members = plan_members_along(model, x), stride = plan_stride(model, x),
        own = plan_member_along(model, plan->ask.member, x);
    int64_t most = most_bytes(st, x, members);
    rs->members[x] = most > 0 ? plan->n_msg : -1;
    for (int sent = 0; sent < 2 * at_once(st) && most > 0; sent++)
        for (int k = 0; k < members; k++)
            if (k != own)
                TRY(new_message(p, (Message){.axis = AXIS_MEMBERS,
                                             .peer = plan->ask.member + (k - own) * stride,
                                             .sent = sent % 2,
                                             .bytes = align_up(most)}));
    return PP_OK;
}

PpStatus members_plan(Planner *p)
{
    for (int l = 0; l < p->plan->n_stage; l++)
        for (int x = 0; x < PP_AXES; x++)
            TRY(plan_along(p, &p->plan->stage[l], x));
    return PP_OK;
}

/* Where NCCL connects by a byte, before the first step. */
void members_point(Plan *plan)
{
    for (int k = 0; k < plan->n_msg; k++)
        if (plan->msg[k].axis == AXIS_MEMBERS)
            plan->msg[k].buf = plan->at.slots;
}

/*
 * members.c - members of a rank, who each have a part of its stages (ppsplit --tensor).  In: the
 * tables of collectives, the links of the rank; out: what its stages' functions are handed to reach
 * the other members, and what they have sent.
 */
#include "exec.h"

#include "base/file/safetensors.h"

static void note(void *of, int k)
{
    const Rank *r = of;
    watchdog_collective(r->watchdog, k);
}

void meshes_open(Rank *r)
{
    const PpPlan *model = r->run->model;
    int64_t tag = 0; /* a number for each row of all stages */
    for (int s = 0; s < model->n_stage; s++) {
        const PpStage *st = plan_as_run(model->stage[s]);
        int l = r->plan.local_of[s], first = l >= 0 ? r->plan.stage[l].members : -1;
        if (first >= 0)
            r->stage[l].mesh = (PpMesh){.links = &r->links[AXIS_MEMBERS],
                                        .st = st,
                                        .msg = &r->plan.msg[first],
                                        .first = first,
                                        .tag = tag,
                                        .note = note,
                                        .of = r};
        tag += st->n_collective;
    }
}

PpStatus members_sum(Rank *r, const Transfer *t, char *work)
{
    PpMesh *mesh = &r->stage[t->local].mesh;
    const PpCtx c = {.stage = mesh->st->index, .member = r->member, .mesh = mesh};
    pp_all_reduce(&c, t->row, t->to, t->to, work, t->bytes / st_dtype_size(t->dtype));
    return mesh->status;
}

PpStatus members_log(Rank *r)
{
    int64_t calls = 0, sent = 0, steps = r->log.done - r->log.first;
    for (int l = 0; l < r->plan.n_stage; l++) {
        calls += r->stage[l].mesh.calls;
        sent += r->stage[l].mesh.sent;
    }
    return r->run->members > 1 && steps > 0
               ? log_collectives(&r->log, &r->group, calls / steps, sent / steps)
               : PP_OK;
}

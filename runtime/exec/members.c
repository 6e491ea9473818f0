/*
 * members.c - members of a rank, who each have a part of its stages (ppsplit --tensor and so on).
 * In: the tables of collectives, the links of the rank; out: what its stages' functions are handed
 * to reach the other members, and what they have sent.
 */
#include "exec.h"

#include "base/file/safetensors.h"

#include <string.h>

static void note(void *of, int k)
{
    const Rank *r = of;
    watchdog_collective(r->watch.dog, k);
}

void meshes_open(Rank *r)
{
    const PpPlan *model = r->run->model;
    int64_t tag = 0; /* a number for each row of all stages */
    for (int s = 0; s < model->n_stage; s++) {
        const PpStage *st = plan_as_run(model->stage[s]);
        int l = r->plan.local_of[s];
        if (l >= 0 && st->mesh.n_collective) {
            r->stage[l].mesh = (PpMesh){.links = &r->links[AXIS_MEMBERS],
                                        .model = model,
                                        .st = st,
                                        .msg = r->plan.msg,
                                        .tag = tag,
                                        .note = note,
                                        .of = r};
            memcpy(r->stage[l].mesh.first, r->plan.stage[l].members,
                   sizeof r->stage[l].mesh.first);
        }
        tag += st->mesh.n_collective;
    }
}

static void members_number(const Rank *r, PpCtx *c)
{
    for (int x = 0; x < PP_AXES; x++)
        c->member[x] = plan_member_along(r->run->model, r->member, x);
}

PpCtx stage_context(Rank *r, const Op *op, int64_t step)
{
    const StagePlan *rs = &r->plan.stage[op->local];
    StageRun *own = &r->stage[op->local];
    const ParamBlock here = param_block(r, op->local);
    PpCtx c = {
        .stage = rs->st->index,
        .param = here.param,
        .grad = here.grad,
        .constants = rs->constants,
        .half = here.half,
        .work = r->plan.at.slots + op->work,
        .seed = r->run->opt->data.seed,
        .step = (uint64_t)step,
        .stream = own->handles.stream,
        .blas = own->handles.blas,
        .state = own->state,
        .mesh = &own->mesh,
    };
    members_number(r, &c);
    return c;
}

PpStatus members_sum(Rank *r, const Transfer *t, char *work)
{
    PpMesh *mesh = &r->stage[t->local].mesh;
    PpCtx c = {.stage = mesh->st->index, .mesh = mesh};
    members_number(r, &c);
    pp_all_reduce(&c, t->row, t->to, t->to, work, t->bytes / st_dtype_size(t->dtype));
    return mesh->status;
}

void members_count(const Rank *r, int64_t *calls, int64_t *sent)
{
    const int64_t steps = r->report.log.done - r->report.log.first;
    *calls = *sent = 0;
    for (int l = 0; l < r->plan.n_stage && steps > 0; l++) {
        *calls += r->stage[l].mesh.calls;
        *sent += r->stage[l].mesh.sent;
    }
    *calls /= steps > 0 ? steps : 1;
    *sent /= steps > 0 ? steps : 1;
}

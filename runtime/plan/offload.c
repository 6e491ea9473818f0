/*
 * offload.c - which stashes leave the device between F and backward.  In: the generated tables; a
 * schedule of computations; --offload-time.  Out: the verified rows, with their copies.
 *
 * The pass (schedule/simulate/offload.c) wants times.  Those of computations go by their
 * operations, if the tables have them, those of copies by their bytes; --offload-time says what all
 * copies one way take beside all forwards.
 */
#include "plan.h"

#include "schedule/simulate/simulate.h"

/* time: [stage][SA_TYPES]; stays: per stage, nothing of it goes */
static void stage_times(const PpPlan *p, double share, double *time, unsigned char *stays)
{
    double flops = 0, bytes = 0;
    int known = 1;
    for (int s = 0; s < p->n_stage; s++) {
        known &= p->stage[s]->flops.forward > 0;
        flops += (double)p->stage[s]->flops.forward;
        bytes += (double)plan_stored_bytes(p->stage[s], 0);
    }
    for (int s = 0; s < p->n_stage; s++) {
        const PpStage *st = p->stage[s];
        double *t = time + (ptrdiff_t)s * SA_TYPES;
        t[SA_F] = t[SA_R] = known ? (double)st->flops.forward : 1;
        t[SA_I] = known ? (double)st->flops.input : 1;
        t[SA_W] = known ? (double)st->flops.weight : 1;
        t[SA_B] = t[SA_I] + t[SA_W];
        t[SA_OFFLOAD] = t[SA_FETCH] = (double)plan_stored_bytes(st, 0) / (bytes > 0 ? bytes : 1) *
                                      (known ? flops : p->n_stage) * share;
        stays[s] = plan_stored_bytes(st, 0) == 0;
    }
}

PpStatus plan_offload(const PpPlan *model, const Schedule *computations, const SchedNeeds *needs,
                      double share, Schedule **out, SchedError *e)
{
    SchedNeeds with = *needs;
    SchedCosts costs;
    unsigned char *stays;
    POOL(pool);
    *out = NULL;
    e->text[0] = 0;
    sched_costs_default(&costs);
    costs.stages = model->n_stage;
    TRY(pp_take(&pool, &costs.stage_time, (int64_t)model->n_stage * SA_TYPES, sizeof(double)));
    TRY(pp_take(&pool, &stays, model->n_stage, 1));
    stage_times(model, share, costs.stage_time, stays);
    with.offload = &(SchedOffload){.costs = &costs, .stays = stays};
    *out = sched_clone(computations);
    if (!*out)
        return pp_no_memory();
    if (!sched_lower_for(*out, &with, e))
        return PP_OK;
    sched_free(*out);
    *out = NULL;
    return PP_ERR_MODEL;
}

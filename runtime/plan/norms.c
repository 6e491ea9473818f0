/*
 * norms.c - the order in which sums of squares of gradients are added up to their norm: that of the
 * parameters' numbers, of a parameter that members divide (PpParam.axis) that of its parts in the
 * whole.  So it is the same however many members have them.  What several members have counts
 * once, of the first.
 *
 * In: the model's tables.  Out: of each parameter, by its number, where its sums come.
 */
#include "planner.h"

#include <string.h>

/* Up to where the parameters from number k on are parts of one. */
static int parts_end(const PpParam *const *by_number, int n, int k)
{
    int end = k + 1;
    while (by_number[k] && param_in_parts(by_number[k]) && end < n && by_number[end] &&
           !strcmp(by_number[k]->t.name, by_number[end]->t.name))
        end++;
    return end;
}

/* Chunks of each of those that it may be */
static int chunks_of(const PpPlan *model, const PpParam *q)
{
    return (param_divided(q) ? model->chunks[q->mesh] : 1) *
           (q->outer.whole ? model->chunks[q->outer.mesh] : 1);
}

PpStatus norms_plan(Plan *plan)
{
    const PpPlan *model = plan->model;
    int n = model->n_param;
    const PpParam **by_number;
    POOL(room);
    TRY(pp_take(&room, &by_number, n, sizeof *by_number));
    TRY(pp_take(&plan->pool, &plan->norm.of, n, sizeof *plan->norm.of));
    for (int s = 0; s < model->n_stage; s++)
        for (int k = 0; k < model->stage[s]->n_param; k++)
            by_number[model->stage[s]->param[k].param] = &model->stage[s]->param[k];
    for (int k = 0, end; k < n; k = end) {
        end = parts_end(by_number, n, k);
        const PpParam *q = by_number[k];
        for (int i = k; i < end; i++)
            plan->norm.of[i] = plan->norm.n;
        plan->norm.n += q ? param_names(q) * chunks_of(model, q) : 1;
    }
    return PP_OK;
}

int norm_of(const Plan *plan, const PpParam *q, int member)
{
    const PpPlan *model = plan->model;
    int64_t chunk = 0, outer = 0, groups = q->groups > 1 ? q->groups : 1;
    if (plan_is_twin(model, q, member))
        return -1;
    if (param_divided(q) && q->t.dim[q->axis])
        chunk = (q->first + plan_own_part(model, q, member) * q->step) /
                (q->t.dim[q->axis] / groups);
    if (q->outer.whole)
        outer = (q->outer.first + plan_member_along(model, member, q->outer.mesh) * q->outer.step) /
                q->t.dim[q->outer.dim] * model->chunks[q->mesh];
    if (q->each.n)
        outer += (int64_t)param_each(model, q, member) * chunks_of(model, q);
    return plan->norm.of[q->param] + (int)(outer + chunk);
}

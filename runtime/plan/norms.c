/*
 * norms.c - the order in which sums of squares of gradients are added up to their norm: that of the
 * parameters' numbers, of a parameter that members divide (PpParam.axis) that of its parts in the
 * whole.  So it is the same however many members have them.  What several members have counts
 * once, of the first.
 *
 * In: the model's tables.  Out: of each parameter, by its number, where its sums come.
 */
#include "planner.h"

#include <stdlib.h>
#include <string.h>

/* Up to where the parameters from number k on are parts of one. */
static int parts_end(const PpParam *const *by_number, int n, int k)
{
    int end = k + 1;
    while (by_number[k] && param_divided(by_number[k]) && end < n && by_number[end] &&
           !strcmp(by_number[k]->t.name, by_number[end]->t.name))
        end++;
    return end;
}

PpStatus norms_plan(Plan *plan)
{
    const PpPlan *model = plan->model;
    int n = model->n_param;
    const PpParam **by_number = zeroed(n, sizeof *by_number);
    plan->norm = zeroed(n, sizeof *plan->norm);
    if (!by_number || !plan->norm) {
        free(by_number);
        return pp_no_memory();
    }
    for (int s = 0; s < model->n_stage; s++)
        for (int k = 0; k < model->stage[s]->n_param; k++)
            by_number[model->stage[s]->param[k].param] = &model->stage[s]->param[k];
    for (int k = 0, end; k < n; k = end) {
        end = parts_end(by_number, n, k);
        int divided = by_number[k] && param_divided(by_number[k]);
        for (int i = k; i < end; i++)
            plan->norm[i] = (NormPlace){.first = plan->n_norm + i - k, .step = end - k};
        plan->n_norm += (end - k) * (divided ? plan_members_along(model, by_number[k]->mesh) : 1);
    }
    free(by_number);
    return PP_OK;
}

int norm_of(const Plan *plan, const PpParam *q, int member)
{
    const NormPlace *at = &plan->norm[q->param];
    return plan_is_twin(plan->model, q, member)
               ? -1
               : at->first + plan_member_along(plan->model, member, q->mesh) * at->step;
}

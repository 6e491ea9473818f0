/*
 * contributions.c - gradients of parameters that several stages use.  In: the generated tables.
 * Out: which gradients are added to the owner's, their messages, and what each reducing action does
 * with them.
 *
 * A transmitted parameter's gradients are added by the owner at REDUCE_GRAD.  Those of a replicated
 * one travel at REDUCE_GRAD and are added at the owner's WAIT_REDUCE_GRAD, which sends the sum
 * back, so that every copy has the same bits.  All additions come in the order of the list: users
 * by descending stage.
 */
#include "planner.h"

#include <stdlib.h>

static PpStatus add_contribution(Planner *p, int user_stage, int k, int64_t tag)
{
    Plan *plan = p->plan;
    const PpPlan *model = p->model;
    const PpParam *q = &model->stage[user_stage]->param[k];
    Contribution c = {.owner_stage = q->from,
                      .user_stage = user_stage,
                      .user_param = k,
                      .replicate = q->use == PP_REPLICATE,
                      .message = -1,
                      .back = -1};
    c.owner = plan->local_of[q->from];
    c.user = plan->local_of[user_stage];
    if (c.owner < 0 && c.user < 0)
        return PP_OK;
    const PpParam *o = shared_param(model->stage[q->from], q->param, &c.owner_param);
    if (!o || o->grad_offset < 0)
        return pp_fail(PP_ERR_BUG, "stage %d owns '%s' but has no gradient of it", q->from,
                       q->t.name);
    int n_param = model->stage[user_stage]->n_param;
    if ((c.owner < 0 && c.replicate) || c.user < 0)
        if ((c.message = new_message(p, user_stage, q->from, 1, tag + n_param, q->t.bytes)) < 0)
            return pp_no_memory();
    if (c.replicate && (c.owner < 0 || c.user < 0))
        if ((c.back = new_message(p, q->from, user_stage, 1, tag + 2 * (int64_t)n_param,
                                  q->t.bytes)) < 0)
            return pp_no_memory();
    if (c.user < 0)
        plan->bytes.comm += align_up(q->t.bytes);
    Contribution *grown = realloc(plan->contrib, (size_t)(plan->n_contrib + 1) * sizeof *grown);
    if (!grown)
        return pp_no_memory();
    plan->contrib = grown;
    plan->contrib[plan->n_contrib++] = c;
    return PP_OK;
}

/* In the order in which they are added: users by descending stage. */
PpStatus plan_contributions(Planner *p)
{
    const PpPlan *model = p->model;
    for (int s = model->n_stage - 1; s >= 0 && p->plan->ask.train; s--)
        for (int k = 0; k < model->stage[s]->n_param; k++) {
            const PpParam *q = &model->stage[s]->param[k];
            if (q->use != PP_OWN && q->from != s && q->grad_offset >= 0)
                TRY(add_contribution(p, s, k, p->wire_p[s] + k));
        }
    return PP_OK;
}

/* ---- what actions do with them ---- */

static PpStatus one(Planner *p, TransferKind kind, int message)
{
    return add_transfer(p, (Transfer){.kind = kind, .first = message, .count = 1});
}

/* The owner's gradient += the user's. */
static PpStatus add_to_owner(Planner *p, int i)
{
    const Contribution *c = &p->plan->contrib[i];
    if (c->user < 0)
        TRY(one(p, DO_FINISH, c->message));
    return add_transfer(p, (Transfer){.kind = DO_ADD, .contribution = i});
}

static PpStatus reduce_begin(Planner *p, int stage)
{
    for (int i = 0; i < p->plan->n_contrib; i++) {
        const Contribution *c = &p->plan->contrib[i];
        if (!c->replicate && c->owner_stage == stage && c->owner >= 0)
            TRY(add_to_owner(p, i));
        else if (c->replicate && c->owner_stage == stage && c->user < 0)
            TRY(one(p, DO_RECV, c->message));
        else if (c->replicate && c->user_stage == stage && c->owner < 0)
            TRY(one(p, DO_SEND, c->message));
    }
    return PP_OK;
}

/* As owner first: add everything, then hand the sums back; as user then: the sum replaces the own
 * gradient. */
static PpStatus reduce_end(Planner *p, int stage)
{
    const Plan *plan = p->plan;
    for (int i = 0; i < plan->n_contrib; i++)
        if (plan->contrib[i].replicate && plan->contrib[i].owner_stage == stage &&
            plan->contrib[i].owner >= 0)
            TRY(add_to_owner(p, i));
    for (int i = 0; i < plan->n_contrib; i++) {
        const Contribution *c = &plan->contrib[i];
        if (!c->replicate || c->owner_stage != stage || c->owner < 0)
            continue;
        if (c->user >= 0)
            TRY(add_transfer(p, (Transfer){.kind = DO_COPY, .contribution = i}));
        else
            TRY(one(p, DO_SEND, c->back));
    }
    for (int i = 0; i < plan->n_contrib; i++) {
        const Contribution *c = &plan->contrib[i];
        if (!c->replicate || c->user_stage != stage || c->owner >= 0)
            continue;
        TRY(one(p, DO_FINISH, c->message)); /* it is sent from the buffer that the sum comes to */
        TRY(one(p, DO_RECV, c->back));
        TRY(one(p, DO_FINISH, c->back));
    }
    return PP_OK;
}

static PpStatus receive_gradients(Planner *p, const SchedAction *a)
{
    for (int i = 0; i < p->plan->n_contrib; i++) {
        const Contribution *c = &p->plan->contrib[i];
        if (!c->replicate && c->owner_stage == a->stage && c->user_stage == a->peer && c->user < 0)
            TRY(one(p, DO_RECV, c->message));
    }
    return PP_OK;
}

PpStatus plan_reduction(Planner *p, const SchedAction *a)
{
    return a->type == SA_RECV_GP       ? receive_gradients(p, a)
           : a->type == SA_REDUCE_GRAD ? reduce_begin(p, a->stage)
                                       : reduce_end(p, a->stage);
}

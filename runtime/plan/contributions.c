/*
 * contributions.c - gradients of parameters with several uses, in one stage or in several.  In: the
 * generated tables.  Out: which sums are added, their messages, and what each reducing action does
 * with them.
 *
 * Each use of a parameter adds up its own gradient over the microbatches.  At the end of a step the
 * sums are added in one order, the model's from its last use to its first, S0 + (S1 + (S2 + ..)),
 * so that the gradient does not depend on where the cuts fell.  A stage adds its own uses'; of
 * uses in other stages the owner, the first of them, does: of a transmitted parameter at
 * REDUCE_GRAD, of a replicated one, whose sums travel at REDUCE_GRAD, at WAIT_REDUCE_GRAD, and it
 * sends the gradient back, so that every copy has the same bits.  The last stage that uses a
 * parameter adds its own up before it sends them: they come first.
 */
#include "planner.h"

/* ---- the list ---- */

static Spot of_user(int contribution)
{
    return (Spot){.kind = SPOT_CONTRIBUTION, .contribution = contribution};
}

/* One sum of a user. */
static PpStatus add_contribution(Planner *p, Contribution c)
{
    Plan *plan = p->plan;
    const PpStage *user = p->model->stage[c.user_stage];
    const int64_t bytes = user->param[c.user_param].t.bytes;
    if ((c.owner < 0 && c.replicate) || c.user < 0) {
        c.message = plan->n_msg;
        TRY(new_message(p, (Message){.from = c.user_stage,
                                     .to = c.owner_stage,
                                     .shared = 1,
                                     .tag = gradient_tag(p, c.user_stage, c.user_param, c.use),
                                     .bytes = bytes,
                                     .at = of_user(p->n_contrib)}));
    }
    if (c.replicate && (c.owner < 0 || c.user < 0) && c.use == 0) {
        c.back = plan->n_msg;
        TRY(new_message(p, (Message){.from = c.owner_stage,
                                     .to = c.user_stage,
                                     .shared = 1,
                                     .tag = p->wire.p[c.user_stage] + user->n_param + c.user_param,
                                     .bytes = bytes,
                                     .at = c.owner >= 0 ? spot_use(c.owner, c.owner_param, 0)
                                                        : spot_use(c.user, c.user_param, 0)}));
    }
    plan->bytes.comm += c.user < 0 ? align_up(bytes) : 0;
    return pp_add(&plan->pool, &p->contrib, &p->n_contrib, &c, sizeof c);
}

static PpStatus add_user(Planner *p, int user_stage, int k)
{
    const Plan *plan = p->plan;
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
    c.use = (c.owner < 0 || c.user < 0) && last_user(model, user_stage, q->param) ? 0 : q->more;
    for (; c.use >= 0; c.use--)
        TRY(add_contribution(p, c));
    return PP_OK;
}

/* In the order in which they are added: users by descending stage, each one's uses likewise. */
PpStatus plan_contributions(Planner *p)
{
    const PpPlan *model = p->model;
    for (int s = model->n_stage - 1; s >= 0 && p->plan->ask.train; s--)
        for (int k = 0; k < model->stage[s]->n_param; k++) {
            const PpParam *q = &model->stage[s]->param[k];
            if (q->use != PP_OWN && q->from != s && q->grad_offset >= 0)
                TRY(add_user(p, s, k));
        }
    return PP_OK;
}

/* ---- what actions do with them ---- */

static PpStatus one(Planner *p, TransferKind kind, int message)
{
    return add_transfer(p, (Transfer){.kind = kind, .first = message, .count = 1});
}

static PpStatus put(Planner *p, TransferKind kind, const PpTensor *t, Spot to, Spot from)
{
    return add_transfer(p, (Transfer){.kind = kind,
                                      .to_spot = to,
                                      .from_spot = from,
                                      .bytes = t->bytes,
                                      .dtype = t->dtype});
}

/* Those of the stage's parameters that others use too, from the last use on; to each its own uses
 * then. */
static PpStatus add_to_owner(Planner *p, int stage, int replicate)
{
    const Plan *plan = p->plan;
    int l = plan->local_of[stage];
    const PpStage *st = plan->stage[l].st;
    for (int k = 0; k < st->n_param; k++) {
        const PpTensor *t = &st->param[k].t;
        int last = -1;
        if (st->param[k].grad_offset < 0 || (st->param[k].use == PP_REPLICATE) != replicate)
            continue;
        for (int i = 0; i < p->n_contrib; i++) {
            const Contribution *c = &p->contrib[i];
            if (c->owner != l || c->owner_param != k)
                continue;
            if (c->user < 0)
                TRY(one(p, DO_FINISH, c->message));
            else if (c->use == plan->stage[c->user].st->param[c->user_param].more)
                TRY(add_parts(p, c->user, c->user_param));
            if (last >= 0)
                TRY(put(p, DO_ADD, t, of_user(i), of_user(last)));
            last = i;
        }
        if (st->param[k].use == PP_OWN || st->param[k].from == stage)
            TRY(add_parts(p, l, k));
        if (last >= 0)
            TRY(put(p, DO_ADD, t, spot_use(l, k, st->param[k].more), of_user(last)));
        if (st->param[k].use == PP_OWN || st->param[k].from == stage)
            TRY(add_own_uses(p, l, k));
    }
    return PP_OK;
}

/* A user's sums are sent: the last user's are one. */
static PpStatus send_copies(Planner *p, int stage)
{
    const Plan *plan = p->plan;
    for (int i = 0; i < p->n_contrib; i++) {
        const Contribution *c = &p->contrib[i];
        if (c->replicate && c->user_stage == stage && c->owner < 0) {
            const PpParam *q = &plan->stage[c->user].st->param[c->user_param];
            int last = last_user(p->model, stage, q->param);
            if (last || c->use == q->more)
                TRY(add_parts(p, c->user, c->user_param));
            if (last)
                TRY(add_own_uses(p, c->user, c->user_param));
            TRY(one(p, DO_SEND, c->message));
        }
    }
    return PP_OK;
}

static PpStatus reduce_begin(Planner *p, int stage)
{
    TRY(add_to_owner(p, stage, 0));
    for (int i = 0; i < p->n_contrib; i++) {
        const Contribution *c = &p->contrib[i];
        if (c->replicate && c->owner_stage == stage && c->user < 0)
            TRY(one(p, DO_RECV, c->message));
    }
    TRY(send_copies(p, stage));
    return replicas_begin(p, p->plan->local_of[stage]);
}

/* As owner: the sums over all groups go back. */
static PpStatus hand_back(Planner *p, int stage)
{
    const Plan *plan = p->plan;
    for (int i = 0; i < p->n_contrib; i++) {
        const Contribution *c = &p->contrib[i];
        if (!c->replicate || c->owner_stage != stage || c->owner < 0 || c->use > 0)
            continue;
        if (c->user < 0) {
            TRY(one(p, DO_SEND, c->back));
            continue;
        }
        TRY(put(p, DO_COPY, &plan->stage[c->owner].st->param[c->owner_param].t,
                spot_use(c->user, c->user_param, 0), spot_use(c->owner, c->owner_param, 0)));
        TRY(replicas_keep(p, c->user, c->user_param));
    }
    return PP_OK;
}

/* As user: the sum replaces the own gradient. */
static PpStatus take_back(Planner *p, const Contribution *c)
{
    if (c->use > 0)
        return PP_OK;
    TRY(one(p, DO_RECV, c->back));
    TRY(one(p, DO_FINISH, c->back));
    return replicas_keep(p, c->user, c->user_param);
}

/* As owner first: add everything, then hand the sums back. */
static PpStatus reduce_end(Planner *p, int stage)
{
    const Plan *plan = p->plan;
    TRY(replicas_wait(p, plan->local_of[stage]));
    TRY(add_to_owner(p, stage, 1));
    TRY(replicas_late(p, plan->local_of[stage]));
    p->rounds = ROUND_LAST;
    PpStatus s = hand_back(p, stage);
    p->rounds = ROUND_ANY;
    for (int i = 0; i < p->n_contrib && s == PP_OK; i++) {
        const Contribution *c = &p->contrib[i];
        if (!c->replicate || c->user_stage != stage || c->owner >= 0)
            continue;
        TRY(one(p, DO_FINISH, c->message)); /* it is sent from the buffer that the sum comes to */
        p->rounds = ROUND_LAST;
        s = take_back(p, c);
        p->rounds = ROUND_ANY;
    }
    return s;
}

static PpStatus receive_gradients(Planner *p, const SchedAction *a)
{
    for (int i = 0; i < p->n_contrib; i++) {
        const Contribution *c = &p->contrib[i];
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

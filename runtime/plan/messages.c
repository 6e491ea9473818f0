/*
 * messages.c - the messages of a rank's step: tensors that cross an edge of stages, values and gradients of shared
 * parameters.  In: an action (the walk), or the plan's parameters.  Out: entries of Rank.msg with peer, tag and size;
 * place.c gives them their buffers.
 */
#include "plan.h"

#include <stdlib.h>

/* Of an edge of stages, one of which is here; shared: it carries a parameter. */
static int new_message(Rank *r, int from, int to, int shared, int64_t tag, int64_t bytes)
{
    int peer = r->run->sched->rank_of[r->local_of[from] >= 0 ? to : from];
    if (r->n_msg == r->cap_msg) {
        int cap = r->cap_msg ? 2 * r->cap_msg : 256;
        Message *grown = realloc(r->msg, (size_t)cap * sizeof *grown);
        if (!grown)
            return -1;
        r->msg = grown;
        r->cap_msg = cap;
    }
    r->msg[r->n_msg] = (Message){.bytes = bytes, .tag = tag, .peer = peer, .from = from, .to = to, .shared = shared};
    return r->n_msg++;
}

/* One tensor of a SEND or RECV: `wire` names it, `id` is its buffer here. */
static PpStatus tensor_message(Planner *p, const PpTensor *t, int own_stage, int peer_stage, int64_t wire, int m,
                               int64_t id, int receive)
{
    Rank *r = p->r;
    const int64_t *row0 = r->run->row0;
    int from = receive ? peer_stage : own_stage, to = receive ? own_stage : peer_stage;
    int k = new_message(r, from, to, 0, wire * p->m + m, tensor_bytes(t, row0[m + 1] - row0[m], p->plan->rows));
    if (k < 0)
        return plan_no_memory();
    int64_t *sent = realloc(p->sent, (size_t)r->cap_msg * sizeof *sent);
    if (!sent)
        return plan_no_memory();
    p->sent = sent;
    p->sent[k] = id;
    if (receive)
        p->inst[id].msg = k;
    plan_touch(p, id);
    return PP_OK;
}

PpStatus plan_edge(Planner *p, const SchedAction *a, int l)
{
    const PpStage *own = p->r->stage[l].st, *peer = p->plan->stage[a->peer];
    int forward = a->type == SA_SEND_F || a->type == SA_RECV_F, receive = a->type == SA_RECV_F || a->type == SA_RECV_B;
    /* the edge is named by its consumer's inputs; the consumer receives F and sends B */
    const PpStage *consumer = forward == receive ? own : peer, *maker = forward == receive ? peer : own;
    for (int i = 0; i < consumer->n_input; i++) {
        const PpInput *in = &consumer->input[i];
        if (in->from != maker->index)
            continue;
        if (forward)
            TRY(tensor_message(p, &in->t, a->stage, a->peer, p->wire_f[consumer->index] + i, a->microbatch,
                               receive ? plan_in(p, l, i, a->microbatch) : plan_out(p, l, in->from_output, a->microbatch),
                               receive));
        for (int g = 0; g < in->grads && !forward && !receive; g++)
            TRY(tensor_message(p, &in->t, a->stage, a->peer, p->wire_b[consumer->index] + plan_dx_number(consumer, i, g),
                               a->microbatch, plan_dx(p, l, plan_dx_number(consumer, i, g), a->microbatch), 0));
    }
    for (int j = 0; j < own->n_dy && !forward && receive; j++)
        if (own->dy[j].from == a->peer) {
            const PpDy *dy = &own->dy[j];
            TRY(tensor_message(p, &own->output[dy->output].t, a->stage, a->peer,
                               p->wire_b[a->peer] + plan_dx_number(peer, dy->input, dy->index), a->microbatch,
                               plan_dy(p, l, j, a->microbatch), 1));
        }
    return PP_OK;
}

static const PpParam *shared_param(const PpStage *st, int param, int *at)
{
    for (int k = 0; k < st->n_param; k++)
        if (st->param[k].param == param) {
            *at = k;
            return &st->param[k];
        }
    return NULL;
}

/* SEND_P, RECV_P: values of transmitted parameters; SEND_GP: their gradients. Buffers are parameters', not instances.
 */
PpStatus plan_params(Planner *p, const SchedAction *a)
{
    Rank *r = p->r;
    int to_user = a->type == SA_SEND_P || a->type == SA_RECV_P;
    int user = a->type == SA_SEND_P || a->type == SA_RECV_GP ? a->peer : a->stage,
        owner = user == a->stage ? a->peer : a->stage;
    if (a->type == SA_RECV_GP) /* made with the contributions; here they are only started */
        return PP_OK;
    const PpStage *us = p->plan->stage[user];
    for (int k = 0; k < us->n_param; k++) {
        const PpParam *q = &us->param[k];
        if (q->use != PP_TRANSMIT || q->from != owner || (!to_user && q->grad_offset < 0))
            continue;
        struct Fix f = {.local = r->local_of[a->stage], .param = k, .grad = !to_user};
        if (a->type == SA_SEND_P && !shared_param(p->plan->stage[owner], q->param, &f.param))
            return pp_fail(PP_ERR_BUG, "stage %d does not hold '%s', which stage %d gets from it", owner, q->t.name,
                           user);
        f.msg = new_message(r, to_user ? owner : user, to_user ? user : owner, 1,
                            p->wire_p[user] + (to_user ? 0 : us->n_param) + k, q->t.bytes);
        struct Fix *grown = realloc(p->fix, (size_t)(p->n_fix + 1) * sizeof *grown);
        if (f.msg < 0 || !grown)
            return plan_no_memory();
        p->fix = grown;
        p->fix[p->n_fix++] = f;
    }
    return PP_OK;
}

static PpStatus add_contribution(Rank *r, int user_stage, int k, int64_t tag)
{
    const PpPlan *plan = r->run->plan;
    const PpParam *q = &plan->stage[user_stage]->param[k];
    Contribution c = {.owner_stage = q->from,
                      .user_stage = user_stage,
                      .user_param = k,
                      .replicate = q->use == PP_REPLICATE,
                      .message = -1,
                      .back = -1};
    c.owner = r->local_of[q->from];
    c.user = r->local_of[user_stage];
    if (c.owner < 0 && c.user < 0)
        return PP_OK;
    const PpParam *o = shared_param(plan->stage[q->from], q->param, &c.owner_param);
    if (!o || o->grad_offset < 0)
        return pp_fail(PP_ERR_BUG, "stage %d owns '%s' but has no gradient of it", q->from, q->t.name);
    int n_param = plan->stage[user_stage]->n_param;
    if ((c.owner < 0 && c.replicate) || c.user < 0)
        if ((c.message = new_message(r, user_stage, q->from, 1, tag + n_param, q->t.bytes)) < 0)
            return plan_no_memory();
    if (c.replicate && (c.owner < 0 || c.user < 0))
        if ((c.back = new_message(r, q->from, user_stage, 1, tag + 2 * (int64_t)n_param, q->t.bytes)) < 0)
            return plan_no_memory();
    if (c.user < 0)
        r->mem.comm += align_up(q->t.bytes);
    Contribution *grown = realloc(r->contrib, (size_t)(r->n_contrib + 1) * sizeof *grown);
    if (!grown)
        return plan_no_memory();
    r->contrib = grown;
    r->contrib[r->n_contrib++] = c;
    return PP_OK;
}

/* In the order in which they are added: users by descending stage. */
PpStatus plan_contributions(Planner *p)
{
    const PpPlan *plan = p->plan;
    for (int s = plan->n_stage - 1; s >= 0 && p->r->run->opt->mode == MODE_TRAIN; s--)
        for (int k = 0; k < plan->stage[s]->n_param; k++) {
            const PpParam *q = &plan->stage[s]->param[k];
            if (q->use != PP_OWN && q->from != s && q->grad_offset >= 0)
                TRY(add_contribution(p->r, s, k, p->wire_p[s] + k));
        }
    return PP_OK;
}

/*
 * messages.c - the messages of a rank's step: tensors that cross an edge of stages, values and
 * gradients of transmitted parameters.  In: an action of the row.  Out: entries of Plan.msg with
 * peer, tag and size, and what the action does with them; place.c gives them their buffers.
 */
#include "planner.h"

PpStatus new_message(Planner *p, Message m)
{
    Plan *plan = p->plan;
    const int own = m.axis == AXIS_PEERS ? plan->ask.replica : plan->ask.member;
    if (m.axis == AXIS_PIPE) {
        m.sent = plan->local_of[m.from] >= 0;
        m.peer = plan->ask.schedule->rank_of[m.sent ? m.to : m.from];
    } else {
        m.from = m.sent ? own : m.peer;
        m.to = m.sent ? m.peer : own;
        m.shared = 1;
    }
    return pp_add(&plan->pool, &plan->msg, &plan->n_msg, &m, sizeof m);
}

PpStatus add_transfer(Planner *p, Transfer t)
{
    Plan *plan = p->plan;
    t.rounds = p->rounds;
    return pp_add(&plan->pool, &plan->transfer, &plan->n_transfer, &t, sizeof t);
}

PpStatus start_messages(Planner *p, TransferKind kind, int first)
{
    int count = p->plan->n_msg - first;
    return count ? add_transfer(p, (Transfer){.kind = kind, .first = first, .count = count})
                 : PP_OK;
}

PpStatus peer_message(Planner *p, int l, int peer, int sent, int64_t bytes, Spot at)
{
    at.local = l;
    return new_message(p, (Message){.axis = AXIS_PEERS,
                                    .peer = peer,
                                    .sent = sent,
                                    .tag = p->peer_tag,
                                    .bytes = bytes,
                                    .at = at});
}

/* One tensor of a SEND or RECV: `wire` names it, `id` is its buffer here. */
static PpStatus tensor_message(Planner *p, const SchedAction *a, const PpTensor *t, int64_t wire,
                               int64_t id)
{
    const int receive = a->type == SA_RECV_F || a->type == SA_RECV_B, m = a->microbatch;
    const PlanRequest *ask = &p->plan->ask;
    const int64_t *row0 = ask->row0;
    int64_t rows = ask->masked ? row0[p->m] - row0[0] : row0[m + 1] - row0[m];
    if (receive)
        p->brought[id] = p->plan->n_msg;
    TRY(new_message(p, (Message){.from = receive ? a->peer : a->stage,
                                 .to = receive ? a->stage : a->peer,
                                 .tag = wire * p->m + m,
                                 .bytes = tensor_bytes(p->model, t, rows, length_most(p->model)),
                                 .t = t,
                                 .rows = rows,
                                 .microbatch = m,
                                 .at = {.kind = SPOT_INSTANCE, .offset = id}}));
    plan_touch(p, id);
    return PP_OK;
}

PpStatus plan_edge(Planner *p, const SchedAction *a, int l)
{
    int first = p->plan->n_msg;
    const PpStage *own = p->plan->stage[l].st, *peer = p->model->stage[a->peer];
    int forward = a->type == SA_SEND_F || a->type == SA_RECV_F,
        receive = a->type == SA_RECV_F || a->type == SA_RECV_B;
    /* the edge is named by its consumer's inputs; the consumer receives F and sends B */
    const PpStage *consumer = forward == receive ? own : peer,
                  *maker = forward == receive ? peer : own;
    for (int i = 0; i < consumer->n_input; i++) {
        const PpInput *in = &consumer->input[i];
        if (in->from != maker->index)
            continue;
        if (forward)
            TRY(tensor_message(p, a, &in->t, p->wire.f[consumer->index] + i,
                               receive ? plan_in(p, l, i, a->microbatch)
                                       : plan_out(p, l, in->from_output, a->microbatch)));
        for (int g = 0; g < in->grads && !forward && !receive; g++)
            TRY(tensor_message(p, a, &in->t,
                               p->wire.b[consumer->index] + plan_dx_number(consumer, i, g),
                               plan_dx(p, l, plan_dx_number(consumer, i, g), a->microbatch)));
    }
    for (int j = 0; j < own->n_dy && !forward && receive; j++)
        if (own->dy[j].from == a->peer) {
            const PpDy *dy = &own->dy[j];
            TRY(tensor_message(p, a, &own->output[dy->output].t,
                               p->wire.b[a->peer] + plan_dx_number(peer, dy->input, dy->index),
                               plan_dy(p, l, j, a->microbatch)));
        }
    return start_messages(p, receive ? DO_RECV : DO_SEND, first);
}

/* What stage `us` has received from the owner is copied in half where products read it so. */
static PpStatus round_received(Planner *p, const PpStage *us, int local, int owner)
{
    for (int k = 0; k < us->n_param && us->half_type && p->plan->ask.zero < 3; k++)
        if (us->param[k].use == PP_TRANSMIT && us->param[k].from == owner &&
            us->param[k].half_offset >= 0)
            TRY(add_transfer(p, (Transfer){.kind = DO_ROUND, .local = local, .param = k}));
    return PP_OK;
}

Spot spot_use(int local, int param, int use)
{
    return (Spot){.kind = SPOT_USE, .local = local, .param = param, .use = use};
}

static Spot part_at(const Planner *p, int l, const PpPartial *q, int64_t chunk)
{
    int64_t bytes = align_up(p->plan->stage[l].st->param[q->param].t.bytes);
    return chunk ? (Spot){.kind = SPOT_GRADIENT,
                          .local = l,
                          .offset = q->offset + (chunk - 1) * bytes}
                 : spot_use(l, q->param, q->use);
}

/* A tree over the member's chunks from `first` on, so far apart, then over the members along the
 * axis: one order for any number of members. */
static PpStatus add_along(Planner *p, int l, const PpPartial *q, int x, int64_t first,
                          int64_t apart)
{
    const PpTensor *t = &p->plan->stage[l].st->param[q->param].t;
    Transfer add = {.kind = DO_ADD_OWN, .bytes = t->bytes, .dtype = t->dtype, .local = l};
    int64_t chunks = plan_pieces_along(p->model, x);
    for (int64_t of = 1; of < chunks; of *= 2)
        for (int64_t i = 0; i + of < chunks; i += 2 * of) {
            add.to_spot = part_at(p, l, q, first + i * apart);
            add.from_spot = part_at(p, l, q, first + (i + of) * apart);
            TRY(add_transfer(p, add));
        }
    if (q->row[x] < 0)
        return PP_OK;
    add.kind = DO_MEMBERS;
    add.row = q->row[x];
    add.to_spot = add.from_spot = part_at(p, l, q, first);
    return add_transfer(p, add);
}

/* Axis by axis, what is added up along one for each chunk of those after it. */
static PpStatus add_chunks(Planner *p, int l, const PpPartial *q)
{
    int64_t apart = 1;
    for (int x = 0; x < PP_AXES; x++) {
        int64_t next = apart * plan_pieces_along(p->model, x);
        if (!q->along[x])
            continue;
        for (int64_t first = 0; first < plan_pieces(p->model, q); first += next)
            TRY(add_along(p, l, q, x, first, apart));
        apart = next;
    }
    return PP_OK;
}

PpStatus add_parts(Planner *p, int l, int k)
{
    const PpStage *st = p->plan->stage[l].st;
    for (int i = 0; i < st->mesh.n_partial; i++)
        if (st->mesh.partial[i].param == k)
            TRY(add_chunks(p, l, &st->mesh.partial[i]));
    return PP_OK;
}

PpStatus add_own_uses(Planner *p, int l, int k)
{
    const PpParam *q = &p->plan->stage[l].st->param[k];
    for (int use = q->more; use > 0; use--)
        TRY(add_transfer(p, (Transfer){.kind = DO_ADD_OWN,
                                       .to_spot = spot_use(l, k, use - 1),
                                       .from_spot = spot_use(l, k, use),
                                       .bytes = q->t.bytes,
                                       .dtype = q->t.dtype}));
    return PP_OK;
}

/* One message of a parameter, whose buffer is the parameter's or a gradient, no instance. */
static PpStatus param_message(Planner *p, int from, int to, int64_t tag, Spot at)
{
    const PpParam *q = &p->plan->stage[at.local].st->param[at.param];
    return new_message(p, (Message){.from = from,
                                    .to = to,
                                    .shared = 1,
                                    .tag = tag,
                                    .bytes = q->t.bytes,
                                    .at = at});
}

/* A user's sums, one by one, or one for all where no later ones come between them. */
static PpStatus gradient_messages(Planner *p, const SchedAction *a, int k)
{
    int l = p->plan->local_of[a->stage];
    const PpParam *q = &p->plan->stage[l].st->param[k];
    int use = q->more;
    TRY(add_parts(p, l, k));
    if (last_user(p->model, a->stage, q->param)) {
        TRY(add_own_uses(p, l, k));
        use = 0;
    }
    for (; use >= 0; use--)
        TRY(param_message(p, a->stage, a->peer, gradient_tag(p, a->stage, k, use),
                          spot_use(l, k, use)));
    return PP_OK;
}

/* Values of transmitted parameters and their gradients. */
PpStatus plan_params(Planner *p, const SchedAction *a)
{
    const Plan *plan = p->plan;
    int first = plan->n_msg, to_user = a->type != SA_SEND_GP;
    int user = a->type == SA_SEND_P ? a->peer : a->stage,
        owner = user == a->stage ? a->peer : a->stage;
    const PpStage *us = p->model->stage[user];
    for (int k = 0; k < us->n_param; k++) {
        const PpParam *q = &us->param[k];
        if (q->use != PP_TRANSMIT || q->from != owner || (!to_user && q->grad_offset < 0))
            continue;
        Spot f = {.kind = SPOT_VALUE, .local = plan->local_of[a->stage], .param = k};
        if (!to_user) {
            TRY(gradient_messages(p, a, k));
            continue;
        }
        if (a->type == SA_SEND_P && !shared_param(p->model->stage[owner], q->param, &f.param))
            return pp_fail(PP_ERR_BUG, "stage %d does not hold '%s', which stage %d gets from it",
                           owner, q->t.name, user);
        TRY(param_message(p, owner, user, p->wire.p[user] + k, f));
    }
    int count = plan->n_msg - first;
    TRY(start_messages(p, a->type == SA_RECV_P ? DO_RECV : DO_SEND, first));
    if (!count || a->type != SA_RECV_P)
        return PP_OK;
    TRY(add_transfer(p, (Transfer){.kind = DO_FINISH, .first = first, .count = count}));
    return round_received(p, us, plan->local_of[user], owner);
}

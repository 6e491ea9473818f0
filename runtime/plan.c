/*
 * plan.c - in: a rank's row of the schedule; out: every buffer and message of a step, all in one arena whose size is
 * known before anything runs.
 *
 * Each tensor of each (stage, microbatch) is an Instance with a birth and a death, found by walking the row once: an
 * input that comes over the wire is born at its RECV, an output at F, a gradient at I or B; it dies with the last
 * action that reads it, as pp.h's `stashed` says, or with the wait of its last send.  What one stage hands to another
 * on the same rank is one instance: the consumer's input is the producer's output.  slots.c gives instances their
 * offsets.  Messages, their buffers and tags are made here too, so a step allocates nothing.
 *
 * A microbatch whose row has an R keeps nothing of its forward: what F writes dies with F (and its sends), R writes
 * outputs and stash again, elsewhere, and needs the inputs until then.
 */
#include "internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int64_t align_up(int64_t n) { return (n + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN; }

int64_t tensor_bytes(const PpTensor *t, int64_t rows, int64_t full_rows)
{
    return t->batch_dim < 0 ? t->bytes : t->bytes / full_rows * rows;
}

typedef struct {
    Rank *r;
    const PpPlan *plan;
    int m, at, begin, end; /* microbatches; the op being walked; the ops that run at the same time */
    unsigned char *again;  /* per (local stage, microbatch): recomputed by an R */
    Instance *inst;
    int64_t n_inst, *base;                     /* per local stage: its first instance */
    int64_t *wire_f, *wire_b, *wire_p, n_wire; /* per stage: numbers of its inputs, dx, params on the wire */
    int64_t *sent;                             /* per message of an op: the instance it carries, -1 */
    struct Fix {
        int msg, local, param, grad;
    } * fix; /* messages whose buffer is a parameter or its gradient */
    int n_fix;
    int64_t work, stats; /* bytes of one workspace, of the running statistics of the largest recomputed stage */
    int *last_send[2];   /* per (local stage, microbatch): the last SEND_F, SEND_B op; then a chain */
    int *next_send;      /* per op */
    int *held;           /* per local stage: the microbatch whose outputs are on their way to the host, -1 */
} Planner;

static PpStatus no_memory(void) { return pp_fail(PP_ERR_IO, "out of memory while planning"); }

static void *zeroed(int64_t n, size_t size) { return calloc((size_t)(n > 0 ? n : 1), size); }

/* ---- numbering ---- */

static int dx_number(const PpStage *st, int input, int index)
{
    int n = index;
    for (int i = 0; i < input; i++)
        n += st->input[i].grads;
    return n;
}

static int64_t per_microbatch(const PpStage *st)
{
    return (int64_t)st->n_input + 2 * (int64_t)st->n_output + st->n_dy + st->n_dx + 3;
}

static int64_t out_id(const Planner *p, int l, int o, int m)
{
    const PpStage *st = p->r->stage[l].st;
    return p->base[l] + m * per_microbatch(st) + st->n_input + o;
}

static int64_t dx_id(const Planner *p, int l, int k, int m)
{
    const PpStage *st = p->r->stage[l].st;
    return p->base[l] + m * per_microbatch(st) + st->n_input + st->n_output + st->n_dy + k;
}

/* -1: not an instance but data or the loss scale. */
static int64_t in_id(const Planner *p, int l, int i, int m)
{
    const PpStage *st = p->r->stage[l].st;
    const PpInput *in = &st->input[i];
    if (in->from < 0)
        return -1;
    int source = p->r->local_of[in->from];
    return source >= 0 ? out_id(p, source, in->from_output, m) : p->base[l] + m * per_microbatch(st) + i;
}

static int64_t dy_id(const Planner *p, int l, int j, int m)
{
    const PpStage *st = p->r->stage[l].st;
    const PpDy *dy = &st->dy[j];
    int source = p->r->local_of[dy->from];
    if (source >= 0)
        return dx_id(p, source, dx_number(p->r->stage[source].st, dy->input, dy->index), m);
    return p->base[l] + m * per_microbatch(st) + st->n_input + st->n_output + j;
}

static int64_t stash_id(const Planner *p, int l, int m)
{
    const PpStage *st = p->r->stage[l].st;
    return p->base[l] + m * per_microbatch(st) + per_microbatch(st) - 3;
}

static int64_t saved_id(const Planner *p, int l, int m) { return stash_id(p, l, m) + 1; }

static int recomputed(const Planner *p, int l, int m) { return p->again[(int64_t)l * p->m + m]; }

/* What the backward reads: of the forward, or of its repetition. */
static int64_t kept_stash_id(const Planner *p, int l, int m) { return stash_id(p, l, m) + 2 * recomputed(p, l, m); }

static int64_t kept_out_id(const Planner *p, int l, int o, int m)
{
    const PpStage *st = p->r->stage[l].st;
    return recomputed(p, l, m) ? stash_id(p, l, m) - st->n_output + o : out_id(p, l, o, m);
}

static PpStatus number(Planner *p)
{
    const Rank *r = p->r;
    int64_t n = 0, wire = 0;
    p->base = zeroed(r->n_stage, sizeof *p->base);
    p->wire_f = zeroed(p->plan->n_stage, sizeof *p->wire_f);
    p->wire_b = zeroed(p->plan->n_stage, sizeof *p->wire_b);
    p->wire_p = zeroed(p->plan->n_stage, sizeof *p->wire_p);
    if (!p->base || !p->wire_f || !p->wire_b || !p->wire_p)
        return no_memory();
    for (int l = 0; l < r->n_stage; l++) {
        p->base[l] = n;
        n += p->m * per_microbatch(r->stage[l].st);
    }
    for (int s = 0; s < p->plan->n_stage; s++) {
        const PpStage *st = p->plan->stage[s];
        p->wire_f[s] = wire;
        p->wire_b[s] = wire + st->n_input;
        wire += st->n_input + st->n_dx;
    }
    p->n_wire = wire * p->m;
    for (int s = 0; s < p->plan->n_stage; s++) {
        p->wire_p[s] = p->n_wire;
        p->n_wire += 3 * (int64_t)p->plan->stage[s]->n_param;
    }
    if (p->n_wire >= r->t.tag_max)
        return pp_fail(PP_ERR_MODEL,
                       "%" PRId64 " messages a step are more than the transport has names for (%" PRId64 ")", p->n_wire,
                       r->t.tag_max);
    p->n_inst = n;
    p->inst = zeroed(n, sizeof *p->inst);
    if (!p->inst)
        return no_memory();
    for (int64_t i = 0; i < n; i++)
        p->inst[i] = (Instance){.birth = -1, .msg = -1};
    for (int l = 0; l < r->n_stage; l++) {
        const PpStage *st = r->stage[l].st;
        for (int m = 0; m < p->m; m++) {
            Instance *at = p->inst + p->base[l] + m * per_microbatch(st);
            for (int i = 0; i < st->n_input; i++)
                at++->bytes = st->input[i].t.bytes;
            for (int o = 0; o < st->n_output; o++)
                at++->bytes = st->output[o].t.bytes;
            for (int j = 0; j < st->n_dy; j++)
                at++->bytes = st->output[st->dy[j].output].t.bytes;
            for (int i = 0; i < st->n_input; i++)
                for (int g = 0; g < st->input[i].grads; g++)
                    at++->bytes = st->input[i].t.bytes;
            for (int o = 0; o < st->n_output; o++)
                at++->bytes = st->output[o].t.bytes;
            at++->bytes = st->bytes_stash;
            at++->bytes = st->bytes_saved;
            at++->bytes = st->bytes_stash;
        }
    }
    return PP_OK;
}

/* ---- messages ---- */

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

static void touch(Planner *p, int64_t id)
{
    if (id < 0)
        return;
    Instance *i = &p->inst[id];
    if (i->birth < 0)
        i->birth = p->begin;
    if (i->death < p->end)
        i->death = p->end;
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
        return no_memory();
    int64_t *sent = realloc(p->sent, (size_t)r->cap_msg * sizeof *sent);
    if (!sent)
        return no_memory();
    p->sent = sent;
    p->sent[k] = id;
    if (receive)
        p->inst[id].msg = k;
    touch(p, id);
    return PP_OK;
}

static PpStatus edge_messages(Planner *p, const SchedAction *a, int l)
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
                               receive ? in_id(p, l, i, a->microbatch) : out_id(p, l, in->from_output, a->microbatch),
                               receive));
        for (int g = 0; g < in->grads && !forward && !receive; g++)
            TRY(tensor_message(p, &in->t, a->stage, a->peer, p->wire_b[consumer->index] + dx_number(consumer, i, g),
                               a->microbatch, dx_id(p, l, dx_number(consumer, i, g), a->microbatch), 0));
    }
    for (int j = 0; j < own->n_dy && !forward && receive; j++)
        if (own->dy[j].from == a->peer) {
            const PpDy *dy = &own->dy[j];
            TRY(tensor_message(p, &own->output[dy->output].t, a->stage, a->peer,
                               p->wire_b[a->peer] + dx_number(peer, dy->input, dy->index), a->microbatch,
                               dy_id(p, l, j, a->microbatch), 1));
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
static PpStatus param_messages(Planner *p, const SchedAction *a)
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
            return no_memory();
        p->fix = grown;
        p->fix[p->n_fix++] = f;
    }
    return PP_OK;
}

/* ---- the walk ---- */

static void touch_inputs(Planner *p, int l, int m, int least)
{
    const PpStage *st = p->r->stage[l].st;
    for (int i = 0; i < st->n_input; i++)
        if (st->input[i].stashed >= least)
            touch(p, in_id(p, l, i, m));
}

static void touch_forward(Planner *p, int l, int m, int type)
{
    touch_inputs(p, l, m, 0);
    for (int o = 0; o < p->r->stage[l].st->n_output; o++)
        touch(p, type == SA_R ? kept_out_id(p, l, o, m) : out_id(p, l, o, m));
    if (p->r->run->opt->mode == MODE_TRAIN)
        touch(p, type == SA_R ? kept_stash_id(p, l, m) : stash_id(p, l, m));
}

static void touch_backward(Planner *p, int l, int m, int least)
{
    const PpStage *st = p->r->stage[l].st;
    touch_inputs(p, l, m, least);
    for (int o = 0; o < st->n_output; o++)
        if (st->output[o].stashed >= least)
            touch(p, kept_out_id(p, l, o, m));
    touch(p, kept_stash_id(p, l, m));
}

static void touch_gradients(Planner *p, int l, int m, int type)
{
    const PpStage *st = p->r->stage[l].st;
    for (int j = 0; j < st->n_dy; j++)
        touch(p, dy_id(p, l, j, m)); /* W may read what came in, so it lives as long */
    for (int k = 0; k < st->n_dx && type != SA_W; k++)
        touch(p, dx_id(p, l, k, m));
    if (type != SA_B)
        touch(p, saved_id(p, l, m));
}

/* A device's outputs go to the host while it computes on: until the stage's next forward, or the end of the step. */
static void touch_held(Planner *p, int l)
{
    const PpStage *st = p->r->stage[l].st;
    for (int o = 0; o < st->n_output && p->held[l] >= 0; o++)
        if (stream_takes(p->r, st, o))
            touch(p, out_id(p, l, o, p->held[l]));
}

static PpStatus await(Planner *p, Op *op, int64_t id)
{
    Rank *r = p->r;
    if (id < 0 || p->inst[id].msg < 0)
        return PP_OK;
    int *grown = realloc(r->await, (size_t)(r->n_await + 1) * sizeof *grown);
    if (!grown)
        return no_memory();
    r->await = grown;
    r->await[r->n_await++] = p->inst[id].msg;
    op->await_count++;
    return PP_OK;
}

static void touch_sent(Planner *p, const Op *op)
{
    for (int k = op->first; k < op->first + op->count; k++)
        touch(p, p->sent[k]);
}

static PpStatus walk_wait(Planner *p, Op *op)
{
    int64_t at = (int64_t)op->local * p->m + op->a.microbatch;
    for (int *s = &p->last_send[op->a.type == SA_WAIT_SEND_B][at]; *s >= 0; s = &p->next_send[*s]) {
        const Op *send = &p->r->op[*s];
        if (send->a.peer != op->a.peer)
            continue;
        op->first = send->first;
        op->count = send->count;
        touch_sent(p, send);
        *s = p->next_send[*s]; /* waited for: no longer open */
        return PP_OK;
    }
    return PP_OK; /* a wait for nothing, on an edge without tensors */
}

static PpStatus walk_op(Planner *p, Op *op)
{
    Rank *r = p->r;
    const SchedAction *a = &op->a;
    int l = op->local, m = a->microbatch, type = a->type;
    const PpStage *st = l >= 0 ? r->stage[l].st : NULL;
    op->first = r->n_msg;
    op->await_first = r->n_await;
    if (!st)
        return PP_OK;
    switch (type) {
    case SA_R:
        op->again = 1;
        if (st->has_backward)
            touch_forward(p, l, m, type);
        break;
    case SA_F:
        touch_forward(p, l, m, type);
        touch_held(p, l);
        p->held[l] = r->on_device ? m : -1;
        for (int i = 0; i < st->n_input; i++)
            TRY(await(p, op, in_id(p, l, i, m)));
        break;
    case SA_B:
    case SA_I:
    case SA_W:
        if (!st->has_backward)
            break;
        op->again = recomputed(p, l, m);
        touch_backward(p, l, m, type == SA_W ? 2 : 1);
        touch_gradients(p, l, m, type);
        for (int j = 0; j < st->n_dy && type != SA_W; j++)
            TRY(await(p, op, dy_id(p, l, j, m)));
        break;
    case SA_SEND_F:
    case SA_SEND_B: {
        int64_t at = (int64_t)l * p->m + m;
        TRY(edge_messages(p, a, l));
        p->next_send[p->at] = p->last_send[type == SA_SEND_B][at];
        p->last_send[type == SA_SEND_B][at] = p->at;
        break;
    }
    case SA_RECV_F:
    case SA_RECV_B: TRY(edge_messages(p, a, l)); break;
    case SA_WAIT_SEND_F:
    case SA_WAIT_SEND_B: return walk_wait(p, op);
    case SA_SEND_P:
    case SA_RECV_P:
    case SA_SEND_GP:
    case SA_RECV_GP:
        TRY(param_messages(p, a));
        p->sent = realloc(p->sent, (size_t)(r->cap_msg + 1) * sizeof *p->sent);
        if (!p->sent)
            return no_memory();
        for (int k = op->first; k < r->n_msg; k++)
            p->sent[k] = -1;
        break;
    default: break;
    }
    op->count = r->n_msg - op->first;
    return PP_OK;
}

static PpStatus walk(Planner *p)
{
    Rank *r = p->r;
    int64_t n = (int64_t)r->n_stage * p->m;
    p->last_send[0] = zeroed(n, sizeof(int));
    p->last_send[1] = zeroed(n, sizeof(int));
    p->next_send = zeroed(r->n_op, sizeof(int));
    p->held = zeroed(r->n_stage, sizeof(int));
    if (!p->last_send[0] || !p->last_send[1] || !p->next_send || !p->held)
        return no_memory();
    for (int l = 0; l < r->n_stage; l++)
        p->held[l] = -1;
    for (int64_t i = 0; i < n; i++)
        p->last_send[0][i] = p->last_send[1][i] = -1;
    for (p->at = 0; p->at < r->n_op; p->at++) {
        p->begin = p->at - (p->at > 0 && r->op[p->at - 1].together);
        p->end = p->at + r->op[p->at].together;
        TRY(walk_op(p, &r->op[p->at]));
    }
    p->begin = p->end = r->n_op;
    /* sends that no action waits for are waited for at the end of the step */
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < n; i++)
            for (int s = p->last_send[k][i]; s >= 0; s = p->next_send[s])
                touch_sent(p, &r->op[s]);
    for (int l = 0; l < r->n_stage; l++)
        touch_held(p, l);
    return PP_OK;
}

/* ---- parameters, gradients, contributions ---- */

static PpStatus rank_params(Rank *r, RankStage *rs)
{
    const PpStage *st = rs->st;
    rs->rp = zeroed(st->n_param, sizeof *rs->rp);
    if (!rs->rp)
        return no_memory();
    for (int k = 0; k < st->n_param; k++) {
        RankParam *q = &rs->rp[k];
        const PpParam *pp = &st->param[k];
        int train = r->run->opt->mode == MODE_TRAIN && pp->trainable && !pp->stat && pp->grad_offset >= 0;
        q->p = pp;
        q->update = train && pp->use != PP_TRANSMIT;
        q->counts = q->update && (pp->use == PP_OWN || pp->from == st->index);
        q->dump_grad = q->update;
        if (q->update)
            r->mem.optimizer += optim_states(r->run->opt) * align_up(pp->t.bytes);
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
            return no_memory();
    if (c.replicate && (c.owner < 0 || c.user < 0))
        if ((c.back = new_message(r, q->from, user_stage, 1, tag + 2 * (int64_t)n_param, q->t.bytes)) < 0)
            return no_memory();
    if (c.user < 0)
        r->mem.comm += align_up(q->t.bytes);
    Contribution *grown = realloc(r->contrib, (size_t)(r->n_contrib + 1) * sizeof *grown);
    if (!grown)
        return no_memory();
    r->contrib = grown;
    r->contrib[r->n_contrib++] = c;
    return PP_OK;
}

/* In the order in which they are added: users by descending stage. */
static PpStatus contributions(Planner *p)
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

/* ---- the arena ---- */

int64_t stats_bytes(const PpStage *st)
{
    int64_t n = 0;
    for (int k = 0; k < st->n_param; k++)
        n += st->param[k].stat ? align_up(st->param[k].t.bytes) : 0;
    return n;
}

static void sizes(Planner *p)
{
    Rank *r = p->r;
    MemoryPlan *m = &r->mem;
    int train = r->run->opt->mode == MODE_TRAIN;
    for (int l = 0; l < r->n_stage; l++) {
        const PpStage *st = r->stage[l].st;
        m->param += align_up(st->bytes_param);
        m->konst += align_up(st->bytes_const);
        m->grad += train ? align_up(st->bytes_grad) : 0;
        if (align_up(st->bytes_work) > m->work)
            m->work = align_up(st->bytes_work);
    }
    p->work = m->work;
    if (aside_wanted(r))
        m->work += p->work;
    for (int k = 0; k < r->n_op; k++)
        if (r->op[k].a.type == SA_R && stats_bytes(r->stage[r->op[k].local].st) > p->stats)
            p->stats = stats_bytes(r->stage[r->op[k].local].st);
    m->work += p->stats;
}

static char *carve(char **at, int64_t bytes)
{
    char *p = *at;
    *at += align_up(bytes);
    return p;
}

static void carve_params(Rank *r, char **at)
{
    int train = r->run->opt->mode == MODE_TRAIN;
    for (int l = 0; l < r->n_stage; l++) {
        RankStage *rs = &r->stage[l];
        rs->param = carve(at, rs->st->bytes_param);
        rs->grad = train ? carve(at, rs->st->bytes_grad) : NULL;
        rs->konst = carve(at, rs->st->bytes_const);
        for (int k = 0; k < rs->st->n_param; k++) {
            RankParam *q = &rs->rp[k];
            q->value = rs->param + q->p->offset;
            q->grad = train && q->p->grad_offset >= 0 ? rs->grad + q->p->grad_offset : NULL;
            for (int j = 0; j < optim_states(r->run->opt) && q->update; j++)
                q->state[j] = carve(at, q->p->t.bytes);
        }
    }
}

static void carve_rest(Planner *p, char **at, char *slots)
{
    Rank *r = p->r;
    const PpPlan *plan = p->plan;
    r->work = carve(at, p->work);
    r->work_aside = aside_wanted(r) ? carve(at, p->work) : NULL;
    r->stat_copy = carve(at, p->stats);
    for (int i = 0; i < plan->n_input; i++)
        if (r->chunk[i])
            r->chunk[i] = carve(at, r->chunk_stride[i] ? r->chunk_stride[i] * p->m : align_up(plan->input[i].bytes));
    if (r->uses_scale)
        r->scale = carve(at, (int64_t)PP_ALIGN * p->m);
    r->scale_host = r->scale; /* on a device stream.c has other places */
    memcpy(r->chunk_host, r->chunk, (size_t)plan->n_input * sizeof *r->chunk);
    for (int i = 0; i < plan->n_output && !r->on_device; i++)
        if (r->collect[i])
            r->collect[i] = carve(at, tensor_bytes(&plan->output[i], r->collect_rows, plan->rows));
    for (int i = 0; i < r->n_contrib; i++) {
        Contribution *c = &r->contrib[i];
        const PpParam *q = &plan->stage[c->user_stage]->param[c->user_param];
        if (c->user < 0)
            c->buf = carve(at, q->t.bytes);
        char *mine =
            c->owner >= 0 ? r->stage[c->owner].rp[c->owner_param].grad : r->stage[c->user].rp[c->user_param].grad;
        if (c->message >= 0)
            r->msg[c->message].buf = c->user < 0 ? c->buf : mine;
        if (c->back >= 0)
            r->msg[c->back].buf = mine;
    }
    for (int k = 0; k < r->n_op; k++)
        if (r->op[k].a.type >= SA_SEND_F && r->op[k].a.type <= SA_RECV_B)
            for (int j = r->op[k].first; j < r->op[k].first + r->op[k].count; j++)
                r->msg[j].buf = slots + p->inst[p->sent[j]].offset;
    for (int i = 0; i < p->n_fix; i++) {
        const RankParam *q = &r->stage[p->fix[i].local].rp[p->fix[i].param];
        r->msg[p->fix[i].msg].buf = p->fix[i].grad ? q->grad : q->value;
    }
}

static PpStatus point(Planner *p, char *slots)
{
    Rank *r = p->r;
    for (int l = 0; l < r->n_stage; l++) {
        RankStage *rs = &r->stage[l];
        const PpStage *st = rs->st;
        int64_t m = p->m;
        rs->in = zeroed(m * st->n_input, sizeof(void *));
        rs->out = zeroed(m * st->n_output, sizeof(void *));
        rs->dy = zeroed(m * st->n_dy, sizeof(void *));
        rs->dx = zeroed(m * st->n_dx, sizeof(void *));
        rs->out_again = zeroed(m * st->n_output, sizeof(void *));
        rs->stash = zeroed(m, sizeof(char *));
        rs->stash_again = zeroed(m, sizeof(char *));
        rs->saved = zeroed(m, sizeof(char *));
        if (!rs->in || !rs->out || !rs->dy || !rs->dx || !rs->stash || !rs->saved || !rs->out_again || !rs->stash_again)
            return no_memory();
        for (int k = 0; k < p->m; k++) {
            for (int i = 0; i < st->n_input; i++) {
                const PpInput *in = &st->input[i];
                rs->in[k * st->n_input + i] = in->from == -1
                                                  ? r->chunk[in->from_output] + k * r->chunk_stride[in->from_output]
                                              : in->from == -2 ? r->scale + (int64_t)k * PP_ALIGN
                                                               : slots + p->inst[in_id(p, l, i, k)].offset;
            }
            for (int o = 0; o < st->n_output; o++) {
                rs->out[k * st->n_output + o] = slots + p->inst[out_id(p, l, o, k)].offset;
                rs->out_again[k * st->n_output + o] = slots + p->inst[kept_out_id(p, l, o, k)].offset;
            }
            for (int j = 0; j < st->n_dy; j++)
                rs->dy[k * st->n_dy + j] = slots + p->inst[dy_id(p, l, j, k)].offset;
            for (int j = 0; j < st->n_dx; j++)
                rs->dx[k * st->n_dx + j] = slots + p->inst[dx_id(p, l, j, k)].offset;
            rs->stash[k] = slots + p->inst[stash_id(p, l, k)].offset;
            rs->stash_again[k] = slots + p->inst[kept_stash_id(p, l, k)].offset;
            rs->saved[k] = slots + p->inst[saved_id(p, l, k)].offset;
        }
    }
    return PP_OK;
}

static void plan_data(Rank *r)
{
    const Run *run = r->run;
    const PpPlan *plan = run->plan;
    static char wanted; /* marks what gets a place in the arena */
    for (int l = 0; l < r->n_stage; l++) {
        const PpStage *st = r->stage[l].st;
        for (int i = 0; i < st->n_input; i++) {
            if (st->input[i].from == -1)
                r->chunk[st->input[i].from_output] = &wanted;
            if (st->input[i].from == -2)
                r->uses_scale = st->input[i].t.dtype;
        }
        for (int o = 0; o < st->n_output; o++)
            if (st->output[o].model_output >= 0 && run->output_wanted[st->output[o].model_output] >= 0)
                r->collect[st->output[o].model_output] = &wanted;
    }
    if (r->uses_scale && plan->loss_kind == PP_LOSS_MEAN_TARGETS && plan->loss_target >= 0)
        r->chunk[plan->loss_target] = &wanted;
    r->collect_rows = run->opt->mode == MODE_TRAIN ? run->batch : data_rows_before(run, run->steps);
    for (int i = 0; i < plan->n_input; i++)
        if (r->chunk[i]) {
            r->chunk_stride[i] = plan->input[i].batch_dim < 0 ? 0 : align_up(plan->input[i].bytes);
            r->mem.data += plan->input[i].batch_dim < 0 ? align_up(plan->input[i].bytes) : r->chunk_stride[i] * run->m;
        }
    r->mem.data += r->uses_scale ? (int64_t)PP_ALIGN * run->m : 0;
    for (int i = 0; i < plan->n_output && !r->on_device; i++)
        if (r->collect[i])
            r->mem.output += align_up(tensor_bytes(&plan->output[i], r->collect_rows, plan->rows));
}

static PpStatus stages(Rank *r)
{
    const Run *run = r->run;
    const PpPlan *plan = run->plan;
    const SchedRow *row = &run->sched->row[r->rank];
    r->local_of = zeroed(plan->n_stage, sizeof *r->local_of);
    r->stage = zeroed(plan->n_stage, sizeof *r->stage);
    r->op = zeroed(row->n, sizeof *r->op);
    r->chunk = zeroed(plan->n_input, sizeof *r->chunk);
    r->chunk_host = zeroed(plan->n_input, sizeof *r->chunk_host);
    r->chunk_stride = zeroed(plan->n_input, sizeof *r->chunk_stride);
    r->collect = zeroed(plan->n_output, sizeof *r->collect);
    r->loss = zeroed(run->m, sizeof *r->loss);
    r->norm = zeroed(plan->n_param + 1, sizeof *r->norm);
    if (run->opt->shuffle)
        r->order = zeroed(run->data.rows, sizeof *r->order);
    if (!r->local_of || !r->stage || !r->op || !r->chunk || !r->chunk_host || !r->chunk_stride || !r->collect ||
        !r->loss || !r->norm || (run->opt->shuffle && !r->order))
        return no_memory();
    for (int s = 0; s < plan->n_stage; s++) {
        r->local_of[s] = run->sched->rank_of[s] == r->rank ? r->n_stage : -1;
        if (r->local_of[s] >= 0)
            r->stage[r->n_stage++].st = plan->stage[s];
    }
    for (int i = 0; i < row->n; i++) {
        r->op[i].a = row->a[i];
        r->op[i].local = row->a[i].stage >= 0 ? r->local_of[row->a[i].stage] : -1;
    }
    r->n_op = row->n;
    if (aside_wanted(r))
        for (int i = 0; i < row->n; i++)
            r->op[i].together = aside_pair(row, i);
    for (int l = 0; l < r->n_stage; l++)
        TRY(rank_params(r, &r->stage[l]));
    if (run->opt->trace) {
        r->trace_steps = run->steps < 20 ? (int)run->steps : 20;
        r->span = zeroed((int64_t)r->trace_steps * (r->n_op + AROUND) * 3, sizeof *r->span);
        if (!r->span)
            return no_memory();
    }
    return PP_OK;
}

static PpStatus build(Planner *p)
{
    Rank *r = p->r;
    TRY(stages(r));
    plan_data(r);
    p->again = zeroed((int64_t)r->n_stage * p->m, 1);
    if (!p->again)
        return no_memory();
    for (int k = 0; k < r->n_op; k++)
        if (r->op[k].a.type == SA_R)
            p->again[(int64_t)r->op[k].local * p->m + r->op[k].a.microbatch] = 1;
    TRY(number(p));
    TRY(contributions(p));
    TRY(walk(p));
    sizes(p);
    MemoryPlan *m = &r->mem;
    TRY(slots_place(p->inst, p->n_inst, r->n_op, &m->slots, &m->slots_bound));
    m->total = m->param + m->grad + m->optimizer + m->konst + m->slots + m->work + m->data + m->output + m->comm;
    m->live = sched_live_rank(r->run->sched, r->rank);
    m->live_bound = sched_peak_formula(r->run->sched->name, r->run->ranks, p->plan->n_stage, p->m, r->rank);
    r->arena = m->total ? r->dev.op->alloc(&r->dev, m->total) : NULL;
    if (m->total && !r->arena)
        return pp_fail(PP_ERR_IO, "rank %d: no memory for %" PRId64 " bytes of tensors%s%s", r->rank, m->total,
                       r->on_device ? " on the device: " : "", r->dev.op->error());
    return PP_OK;
}

/* A device's slots and work are written before they are read, unless --until sends what was never computed. */
static void clear(Rank *r, char *slots)
{
    if (r->on_device && !r->run->until) {
        r->dev.op->zero(&r->dev, r->at, r->arena, slots - r->arena);
        r->dev.op->zero(&r->dev, r->at, r->stat_copy, r->arena + r->mem.total - r->stat_copy);
    } else {
        r->dev.op->zero(&r->dev, r->at, r->arena, r->mem.total);
    }
}

static PpStatus list_params(Rank *r)
{
    int n = optim_count(r);
    r->params = zeroed(n, sizeof *r->params);
    if (!r->params)
        return no_memory();
    optim_list(r, r->params);
    if (!r->dev.op->params(&r->dev, r->params, n))
        return pp_fail(PP_ERR_IO, "rank %d: no memory for the optimizer: %s", r->rank, r->dev.op->error());
    return PP_OK;
}

PpStatus plan_rank(Rank *r)
{
    Planner p = {.r = r, .plan = r->run->plan, .m = r->run->m};
    PpStatus s = build(&p);
    if (s == PP_OK && r->arena) {
        char *at = r->arena, *slots;
        carve_params(r, &at);
        slots = carve(&at, r->mem.slots);
        carve_rest(&p, &at, slots);
        clear(r, slots);
        s = point(&p, slots);
    }
    if (s == PP_OK)
        s = list_params(r);
    free(p.again), free(p.inst), free(p.base), free(p.wire_f), free(p.wire_b), free(p.wire_p), free(p.sent),
        free(p.fix);
    free(p.last_send[0]), free(p.last_send[1]), free(p.next_send), free(p.held);
    return s;
}

void plan_free(Rank *r)
{
    for (int l = 0; l < r->n_stage; l++) {
        RankStage *rs = &r->stage[l];
        if (rs->state && rs->st->close)
            rs->st->close(rs->state);
        free(rs->rp), free(rs->in), free(rs->out), free(rs->dy), free(rs->dx), free(rs->stash), free(rs->saved);
        free(rs->out_again), free(rs->stash_again);
    }
    if (r->arena)
        r->dev.op->release(&r->dev, r->arena);
    free(r->stage), free(r->local_of), free(r->op), free(r->msg), free(r->await), free(r->contrib), free(r->params);
    free(r->chunk), free(r->chunk_host), free(r->chunk_stride), free(r->order), free(r->collect), free(r->loss),
        free(r->norm), free(r->span);
}

/*
 * rows.c - the part of verification that needs no other rank: in every row each action comes
 * after what it needs.
 *
 * In: a complete schedule, its graph.  Out: ok, or the first action that lacks something: a forward
 * without its input, a message sent twice, a reduction before the last gradient, a computation
 * whose parameters are not on the device. That all messages arrive is proven by verify.c.
 */
#include "verify.h"

enum { SENT = 1, RECEIVED = 2, WAITED = 4 };                     /* per message */
enum { HAS_F = 1, HAS_BACK = 2, LEAVES = 4 };                     /* per (stage, microbatch) */
enum { SHARDS = 1, ACTIVE = 2, REDUCED = 4, REDUCE_WAITED = 8 }; /* per stage */

typedef struct {
    const Schedule *s;
    const SchedGraph *g;
    unsigned char *message, *done, *stage;
    int *backwards;
} Check;

static unsigned char *msg(const Check *c, int lane, int mb)
{
    return &c->message[sched_graph_message(c->g, c->s->microbatches, lane, mb)];
}

static unsigned char *done(const Check *c, int stage, int mb)
{
    return &c->done[sched_pair(c->s, stage, mb)];
}

static const char *input_lacks(const Check *c, const SchedAction *a)
{
    const SchedGraph *g = c->g;
    for (SchedNeed n = sched_needs(g, a->type, a->stage); sched_next(g, &n);)
        if (c->s->rank_of[n.stage] == c->s->rank_of[a->stage]) {
            if (!(*done(c, n.stage, a->microbatch) & (n.back ? HAS_BACK : HAS_F)))
                return n.back ? "the backward of a later stage on this rank, which it needs, comes "
                                "later"
                              : "the forward of an earlier stage on this rank, which it needs, "
                                "comes later";
        } else if (!(*msg(c, n.lane, a->microbatch) & RECEIVED)) {
            return n.back ? "its gradient has not been received before it (a RECV_B is missing or "
                            "comes later)"
                          : "its input has not been received before it (a RECV_F is missing or "
                            "comes later)";
        }
    for (int k = 0; k < g->n_param && a->type == SA_F; k++) {
        const SchedParam *q = &g->param[k];
        if (q->to == a->stage && !q->replicate && c->s->rank_of[q->from] != c->s->rank_of[q->to] &&
            !(*msg(c, 2 * (g->n + k), 0) & RECEIVED))
            return "a parameter of another stage has not been received before it (a RECV_P is "
                   "missing or comes later)";
    }
    return NULL;
}

static const char *send_lacks(const Check *c, const SchedAction *a, int lane)
{
    unsigned char *m = msg(c, lane, a->microbatch);
    if (*m & SENT)
        return "this message is sent twice";
    if (a->type == SA_SEND_F && !(*done(c, a->stage, a->microbatch) & HAS_F))
        return "the forward whose output it sends comes later";
    if (a->type == SA_SEND_B && !(*done(c, a->stage, a->microbatch) & HAS_BACK))
        return "the backward whose gradient it sends comes later";
    if (a->type == SA_SEND_GP && c->backwards[a->stage] < c->s->microbatches)
        return "the gradients of its stage are not complete";
    *m |= SENT;
    return NULL;
}

static const char *comm_lacks(const Check *c, const SchedAction *a)
{
    int lane = sched_graph_lane(c->g, a);
    unsigned char *m;
    if (lane < 0)
        return "nothing goes between these two stages";
    if (c->s->rank_of[a->stage] == c->s->rank_of[a->peer])
        return "both stages are on this rank: a hand-over needs no message";
    if (lane < 2 * c->g->n && lane % 2 == 1 && !c->g->edge[lane / 2].gradient)
        return "no gradient goes back along this edge";
    m = msg(c, lane, a->microbatch);
    if (sched_is_wait_send(a->type)) {
        if (!(*m & SENT))
            return "it waits for a send that has not begun";
        if (*m & WAITED)
            return "this send is waited for twice";
        *m |= WAITED;
        return NULL;
    }
    if (sched_is_send(a->type) || a->type == SA_SEND_P || a->type == SA_SEND_GP)
        return send_lacks(c, a, lane);
    if (*m & RECEIVED)
        return "this message is received twice";
    *m |= RECEIVED;
    return NULL;
}

static const char *reduce_lacks(const Check *c, const SchedAction *a)
{
    const SchedGraph *g = c->g;
    if (c->stage[a->stage] & REDUCED)
        return "this reduction is in the schedule twice";
    if (c->backwards[a->stage] < c->s->microbatches)
        return "the gradients of its stage are not complete";
    for (int k = 0; k < g->n_param; k++) {
        const SchedParam *q = &g->param[k];
        if (q->from != a->stage || q->replicate || !q->gradient)
            continue;
        if (c->s->rank_of[q->from] == c->s->rank_of[q->to]
                ? c->backwards[q->to] < c->s->microbatches
                : !(*msg(c, 2 * (g->n + k) + 1, 0) & RECEIVED))
            return "the gradient of a parameter that another stage uses is not here yet";
    }
    c->stage[a->stage] |= REDUCED;
    return NULL;
}

static const char *stage_lacks(const Check *c, const SchedAction *a)
{
    unsigned char *f = &c->stage[a->stage];
    switch (a->type) {
    case SA_UNSHARD:
        if (*f & ACTIVE)
            return "the parameters are on the device already";
        *f |= ACTIVE;
        return NULL;
    case SA_RESHARD:
        if (!(*f & ACTIVE))
            return "the parameters are not on the device";
        *f &= (unsigned char)~ACTIVE;
        return NULL;
    case SA_REDUCE_GRAD: return reduce_lacks(c, a);
    case SA_WAIT_REDUCE_GRAD:
        if (!(*f & REDUCED) || (*f & REDUCE_WAITED))
            return *f & REDUCED ? "this reduction is waited for twice"
                                : "it waits for a reduction that has not begun";
        *f |= REDUCE_WAITED;
        return NULL;
    default: return NULL;
    }
}

/* validate.c has seen that the copies of a slot come in order; a slot whose copy is under way is
   not free, and what is not whole on the host cannot come back. */
static const char *copy_lacks(const Check *c, const SchedAction *a)
{
    unsigned char *d = done(c, a->stage, a->microbatch);
    if (a->type == SA_FETCH && (*d & LEAVES))
        return "this stash is still on its way to the host (a WAIT_OFFLOAD is missing or comes "
               "later)";
    if (a->type == SA_OFFLOAD)
        *d |= LEAVES;
    else
        *d &= (unsigned char)~LEAVES;
    return NULL;
}

static const char *lacks(const Check *c, const SchedAction *a)
{
    if (sched_has_peer(a->type))
        return comm_lacks(c, a);
    if (sched_copies(a->type) || a->type == SA_WAIT_OFFLOAD)
        return copy_lacks(c, a);
    if (!sched_is_compute(a->type))
        return stage_lacks(c, a);
    if ((c->stage[a->stage] & (SHARDS | ACTIVE)) == SHARDS)
        return "the parameters of its stage are not on the device (an UNSHARD is missing or comes "
               "later)";
    const char *why = input_lacks(c, a);
    if (why)
        return why;
    if (a->type == SA_F)
        *done(c, a->stage, a->microbatch) |= HAS_F;
    if (a->type == SA_B || a->type == SA_I)
        *done(c, a->stage, a->microbatch) |= HAS_BACK;
    if (a->type == SA_B || a->type == SA_W)
        c->backwards[a->stage]++;
    return NULL;
}

static int check_row(const Check *c, int r, SchedError *e)
{
    const SchedRow *row = &c->s->row[r];
    for (int i = 0; i < row->n; i++) {
        const char *why = row->a[i].type == SA_IDLE ? NULL : lacks(c, &row->a[i]);
        if (why)
            return sched_refuse(e, c->s, r, i, "%s", why);
    }
    return SCHED_OK;
}

int sched_check_rows(const Schedule *s, const SchedGraph *g, SchedError *e)
{
    Pool room = {0};
    const size_t stages = (size_t)s->stages;
    Check c = {s,
               g,
               sched_room(&room, sched_graph_messages(g, s->microbatches), 1),
               sched_room(&room, sched_pairs(s), 1),
               sched_room(&room, stages, 1),
               sched_room(&room, stages, sizeof(int))};
    int st = room.lost ? sched_nomem(e) : SCHED_OK;
    for (int k = 0; !st && k < s->stages && sched_has_type(s, SA_UNSHARD); k++)
        c.stage[k] |= SHARDS;
    for (int r = 0; !st && r < s->ranks; r++)
        st = check_row(&c, r, e);
    for (int k = 0; !st && k < s->stages; k++)
        if (c.stage[k] & ACTIVE)
            st = sched_fail(e, SCHED_EREFUSED, s->rank_of[k], -1,
                            "rank %d: %dUNSHARD has no RESHARD after it", s->rank_of[k], k);
    for (int k = 0; !st && k < s->stages; k++)
        if ((c.stage[k] & (REDUCED | REDUCE_WAITED)) == REDUCED)
            st = sched_fail(e, SCHED_EREFUSED, s->rank_of[k], -1,
                            "rank %d: %dREDUCE_GRAD has no WAIT_REDUCE_GRAD", s->rank_of[k], k);
    pool_free(&room);
    return st;
}

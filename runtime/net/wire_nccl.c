/*
 * wire_nccl.c - tensors between devices by NCCL: one communicator of two for every directed edge of stages, each with a
 * stream of its own on either side; what is posted together is one group.  Nothing passes through the host.
 *
 * A communicator is a FIFO: its messages must be received in the order in which they are sent.  Schedules keep that
 * order on every edge (schedule.h); the two sides compare it once more before the first step.  They also send a byte
 * then: NCCL connects at the first message, and both sides of an edge wait for that, which in a step might be too early
 * for one.
 *
 * A message's kernel begins when its side has come to it and waits on the device for the other one.  Meanwhile it holds
 * blocks and memory: dozens, were NCCL to choose, on every edge.  All edges of a rank share BLOCKS, so that whatever waits, there
 * is room for the kernels that make what it waits for.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 64, EDGE_BLOCKS = 8 }; /* of a rank; the most of one edge: enough for most of NVLink */

typedef struct {
    int from, to, shared;  /* stages; carries parameters */
    int peer, send, first; /* its first message */
    void *comm;
} Edge;

typedef struct {
    Edge *edge;
    int n;
    DeviceEvent *event; /* two a message: the stream's work before it, its end */
} Nccl;

/* ---- edges ---- */

static int by_name(const void *a, const void *b)
{
    const Edge *x = a, *y = b;
    return x->shared != y->shared ? x->shared - y->shared : x->from != y->from ? x->from - y->from : x->to - y->to;
}

static Edge *edge_of(const Rank *r, const Message *m)
{
    const Nccl *c = r->wire_state;
    Edge key = {.from = m->from, .to = m->to, .shared = m->shared};
    return bsearch(&key, c->edge, (size_t)c->n, sizeof key, by_name);
}

static void find_edges(Rank *r, Nccl *c)
{
    for (int k = 0; k < r->n_msg; k++) {
        const Message *m = &r->msg[k];
        int known = 0;
        for (int i = 0; i < c->n && !known; i++)
            known = c->edge[i].from == m->from && c->edge[i].to == m->to && c->edge[i].shared == m->shared;
        if (!known)
            c->edge[c->n++] = (Edge){m->from, m->to, m->shared, m->peer, r->local_of[m->from] >= 0, k, NULL};
    }
    qsort(c->edge, (size_t)c->n, sizeof *c->edge, by_name);
}

/* ---- are its messages received in the order of sending ---- */

typedef struct {
    const Rank *r;
    const Edge *e;
    uint64_t hash;
} Order;

static void note(Order *o, int k)
{
    const Message *m = &o->r->msg[k];
    if (m->from != o->e->from || m->to != o->e->to || m->shared != o->e->shared)
        return;
    o->hash = (o->hash ^ (uint64_t)m->tag) * 0x100000001b3u;
    o->hash = (o->hash ^ (uint64_t)m->bytes) * 0x100000001b3u;
}

/* As exec.c posts them. */
static uint64_t order_of(const Rank *r, const Edge *e)
{
    Order o = {r, e, 0xcbf29ce484222325u};
    for (int i = 0; i < r->n_op; i++) {
        const SchedAction *a = &r->op[i].a;
        if ((a->type >= SA_SEND_F && a->type <= SA_RECV_B) || a->type == SA_SEND_P || a->type == SA_RECV_P ||
            a->type == SA_SEND_GP)
            for (int k = r->op[i].first; k < r->op[i].first + r->op[i].count; k++)
                note(&o, k);
        for (int j = 0; j < r->n_contrib; j++) {
            const Contribution *c = &r->contrib[j];
            int transmitted = a->type == SA_RECV_GP && !c->replicate && c->owner_stage == a->stage &&
                              c->user_stage == a->peer && c->user < 0;
            int summed = a->type == SA_REDUCE_GRAD && c->replicate &&
                         ((c->owner_stage == a->stage && c->user < 0) || (c->user_stage == a->stage && c->owner < 0));
            int back = a->type == SA_WAIT_REDUCE_GRAD && c->replicate && c->back >= 0 &&
                       ((c->owner_stage == a->stage && c->owner >= 0) || (c->user_stage == a->stage && c->owner < 0));
            if (transmitted || summed)
                note(&o, c->message);
            if (back)
                note(&o, c->back);
        }
    }
    return o.hash;
}

/* The host's own messages, edge by edge in the order that all ranks share. */
static PpStatus tell(Rank *r, const Edge *e, void *what, int64_t bytes)
{
    PpRequest q;
    TRY(e->send ? r->t.op->send(&r->t, e->peer, r->t.tag_max, what, bytes, &q)
                : r->t.op->recv(&r->t, e->peer, r->t.tag_max, what, bytes, &q));
    return r->t.op->wait(&r->t, &q);
}

static PpStatus same_order(Rank *r, const Nccl *c)
{
    PpStatus s = PP_OK;
    for (int i = 0; i < c->n; i++) {
        const Edge *e = &c->edge[i];
        uint64_t mine = order_of(r, e), theirs = mine;
        TRY(tell(r, e, &theirs, sizeof theirs));
        if (theirs != mine)
            s = pp_fail(
                PP_ERR_MODEL,
                "--transport nccl: messages from stage %d to stage %d are not received in the order in which they are "
                "sent: use another transport for this schedule",
                e->from, e->to);
    }
    return s;
}

/* ---- communicators ---- */

/* The same number on both sides: by the rank with the most edges. */
static PpStatus share_blocks(Rank *r, const Nccl *c, int *blocks)
{
    int *edges = calloc((size_t)r->t.ranks, sizeof *edges), most = 1;
    if (!edges)
        return pp_fail(PP_ERR_IO, "out of memory");
    PpStatus s = r->t.op->gather(&r->t, &c->n, sizeof *edges, edges);
    for (int k = 0; k < r->t.ranks; k++)
        most = edges[k] > most ? edges[k] : most;
    free(edges);
    *blocks = BLOCKS / most > EDGE_BLOCKS ? EDGE_BLOCKS : BLOCKS / most > 0 ? BLOCKS / most : 1;
    return s;
}

static PpStatus join(Rank *r, Edge *e, int blocks)
{
    const NcclOps *op = device_nccl();
    char id[NCCL_ID] = {0};
    int made = !e->send || op->id(id);
    TRY(tell(r, e, id, sizeof id));
    if (!made || !id[0]) /* an id of zeros: the other side could make none */
        return pp_fail(PP_ERR_IO, "rank %d, an id for the edge from stage %d to stage %d: %s", r->rank, e->from, e->to,
                       *r->dev.op->error() ? r->dev.op->error() : "the other side made none");
    e->comm = op->join(&r->dev, id, e->send ? 0 : 1, blocks);
    if (!e->comm)
        return pp_fail(PP_ERR_IO, "rank %d, a communicator for the edge from stage %d to stage %d: %s", r->rank,
                       e->from, e->to, r->dev.op->error());
    const Message *m = &r->msg[e->first];
    if (m->bytes && !m->shared) /* parameters have their values, other buffers none yet */
        r->dev.op->zero(&r->dev, r->at, m->buf, 1);
    r->dev.op->record(&r->dev, r->at, m->ready);
    op->after(e->comm, m->ready);
    if (m->bytes)
        op->post(e->comm, e->send, m->buf, 1);
    op->record(e->comm, m->done);
    r->dev.op->sync(&r->dev, m->done);
    return device_check(r, "connecting by NCCL");
}

static PpStatus open_nccl(Rank *r)
{
    Nccl *c = r->wire_state = calloc(1, sizeof *c);
    if (!c)
        return pp_fail(PP_ERR_IO, "out of memory");
    c->edge = calloc((size_t)r->n_msg + 1, sizeof *c->edge);
    c->event = calloc(2 * (size_t)r->n_msg + 1, sizeof *c->event);
    PpStatus s = c->edge && c->event ? PP_OK : pp_fail(PP_ERR_IO, "out of memory");
    TRY(ranks_agree(r, s));
    find_edges(r, c);
    TRY(ranks_agree(r, same_order(r, c)));
    int blocks = 1;
    TRY(ranks_agree(r, share_blocks(r, c, &blocks)));
    for (int k = 0; k < r->n_msg; k++) {
        r->msg[k].ready = c->event[2 * k] = r->dev.op->event(&r->dev, 0);
        r->msg[k].done = c->event[2 * k + 1] = r->dev.op->event(&r->dev, 0);
        r->msg[k].wire = edge_of(r, &r->msg[k]);
    }
    TRY(ranks_agree(r, device_check(r, "events of its messages")));
    for (int i = 0; i < c->n; i++)
        if ((s = join(r, &c->edge[i], blocks)) == PP_ERR_PEER) {
            return s;
        } else if (s != PP_OK) { /* nobody can be asked: the other side waits for this communicator, inside NCCL */
            if (pp_failure_first())
                pp_failure_print();
            r->t.op->fail(&r->t, s);
            fflush(NULL);
            _exit((int)s);
        }
    return PP_OK;
}

static void close_nccl(Rank *r, int broken)
{
    Nccl *c = r->wire_state;
    if (!c)
        return;
    for (int i = 0; i < c->n; i++)
        if (c->edge[i].comm)
            device_nccl()->leave(c->edge[i].comm, broken);
    for (int k = 0; c->event && k < 2 * r->n_msg; k++)
        r->dev.op->event_free(&r->dev, c->event[k]);
    free(c->edge), free(c->event), free(c);
    r->wire_state = NULL;
}

/* ---- messages ---- */

/* All of one edge: those of an action are. */
static PpStatus post_nccl(Rank *r, int first, int count, int receive)
{
    const NcclOps *op = device_nccl();
    const Edge *e = r->msg[first].wire;
    r->dev.op->record(&r->dev, r->at, r->msg[first].ready);
    op->after(e->comm, r->msg[first].ready);
    op->begin();
    for (Message *m = &r->msg[first]; m < &r->msg[first + count]; m++)
        op->post(e->comm, !receive, m->buf, m->bytes);
    op->end();
    for (Message *m = &r->msg[first]; m < &r->msg[first + count]; m++)
        op->record(e->comm, m->done);
    return PP_OK;
}

static PpStatus finish_nccl(Rank *r, Message *m)
{
    r->dev.op->wait(&r->dev, r->at, m->done);
    return PP_OK;
}

static PpStatus poll_nccl(Rank *r) { return r->t.op->failed(&r->t) ? PP_ERR_PEER : PP_OK; }

static int alive_nccl(Rank *r)
{
    const Nccl *c = r->wire_state;
    if (r->t.op->failed(&r->t))
        return 0;
    for (int i = 0; i < c->n; i++)
        if (!device_nccl()->alive(c->edge[i].comm))
            return 0;
    return 1;
}

const Wire wire_nccl = {"nccl", open_nccl, close_nccl, post_nccl, finish_nccl, poll_nccl, alive_nccl};

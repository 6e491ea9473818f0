/*
 * wire_nccl.c - tensors between devices by NCCL: one communicator of two for every directed edge of
 * stages, or of replicas, each with a stream of its own on either side; what is posted together is
 * one group. Nothing passes through the host.
 *
 * A communicator is a FIFO: its messages must be received in the order in which they are sent.
 * Schedules keep that order on every edge (schedule.h); the two sides compare their plans' once
 * more before the first step.  They also send a byte then: NCCL connects at the first message, and
 * both sides of an edge wait for that, which in a step might be too early for one.
 *
 * A message's kernel begins when its side has come to it and waits on the device for the other one.
 * Meanwhile it holds blocks and memory: dozens, were NCCL to choose, on every edge.  All edges of a
 * rank share BLOCKS, so that whatever waits, there is room for the kernels that make what it waits
 * for.
 */
#include "base/file/hash.h"
#include "wires.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of a rank; the most of one edge: enough for most of NVLink */
enum { BLOCKS = 64, EDGE_BLOCKS = 8 };

typedef struct {
    int from, to, shared;  /* stages; carries parameters */
    int peer, send, first; /* its first message */
    void *comm;
} Edge;

typedef struct {
    DeviceEvent ready, done; /* the stream's work before the message; its end */
} Stamp;

typedef struct {
    Edge *edge;
    int n;
    Stamp *stamp; /* per message */
} Nccl;

/* What the ends of its edges are. */
static const char *axis_word(const Links *l)
{
    return l->axis == AXIS_PIPE ? "stage" : "replica";
}

/* ---- edges ---- */

static int by_name(const void *a, const void *b)
{
    const Edge *x = a, *y = b;
    return x->shared != y->shared ? x->shared - y->shared
           : x->from != y->from   ? x->from - y->from
                                  : x->to - y->to;
}

static Edge *edge_of(const Nccl *c, const Message *m)
{
    Edge key = {.from = m->from, .to = m->to, .shared = m->shared};
    return bsearch(&key, c->edge, (size_t)c->n, sizeof key, by_name);
}

static void find_edges(Links *l, Nccl *c)
{
    for (int k = 0; k < l->plan->n_msg; k++) {
        const Message *m = &l->plan->msg[k];
        int known = !links_carry(l, k);
        for (int i = 0; i < c->n && !known; i++)
            known = c->edge[i].from == m->from && c->edge[i].to == m->to &&
                    c->edge[i].shared == m->shared;
        if (!known)
            c->edge[c->n++] = (Edge){
                m->from, m->to, m->shared, m->peer, m->sent, k, NULL};
    }
    qsort(c->edge, (size_t)c->n, sizeof *c->edge, by_name);
}

/* ---- are its messages received in the order of sending ---- */

/* Of the edge's messages as the plan posts them. */
static uint64_t order_of(const Plan *p, const Edge *e)
{
    uint64_t hash = HASH_START;
    for (const Transfer *t = p->transfer; t < p->transfer + p->n_transfer; t++)
        for (int k = t->first; k < t->first + t->count && t->kind != DO_FINISH; k++) {
            const Message *m = &p->msg[k];
            if (m->axis == p->msg[e->first].axis && m->from == e->from && m->to == e->to &&
                m->shared == e->shared)
                hash = hash_value(hash_value(hash, (uint64_t)m->tag), (uint64_t)m->bytes);
        }
    return hash;
}

/* By the group itself, edge by edge in the order that all ranks share. */
static PpStatus tell(Links *l, const Edge *e, void *what, int64_t bytes)
{
    return e->send ? group_send(l->group, e->peer, what, bytes)
                   : group_recv(l->group, e->peer, what, bytes);
}

static PpStatus same_order(Links *l, const Nccl *c)
{
    PpStatus s = PP_OK;
    for (int i = 0; i < c->n; i++) {
        const Edge *e = &c->edge[i];
        uint64_t mine = order_of(l->plan, e), theirs = mine;
        TRY(tell(l, e, &theirs, sizeof theirs));
        if (theirs != mine)
            s = pp_fail(PP_ERR_MODEL,
                        "--transport nccl: messages from %s %d to %d are not received in "
                        "the order in which they are "
                        "sent: use another transport for this schedule",
                        axis_word(l), e->from, e->to);
    }
    return s;
}

/* ---- communicators ---- */

/* The same number on both sides: by the rank with the most edges. */
static PpStatus share_blocks(Links *l, const Nccl *c, int *blocks)
{
    int *edges = calloc((size_t)l->group->ranks, sizeof *edges), most = 1;
    if (!edges)
        return pp_no_memory();
    PpStatus s = l->group->op->gather(l->group, &c->n, sizeof *edges, edges);
    for (int k = 0; k < l->group->ranks; k++)
        most = edges[k] > most ? edges[k] : most;
    free(edges);
    *blocks = BLOCKS / most > EDGE_BLOCKS ? EDGE_BLOCKS : BLOCKS / most > 0 ? BLOCKS / most : 1;
    return s;
}

static PpStatus join(Links *l, const Nccl *c, Edge *e, int blocks)
{
    const NcclOps *op = device_nccl();
    char id[NCCL_ID + 1] = {0}; /* and whether the sender could make one: its bytes are random */
    id[NCCL_ID] = e->send && op->id(id);
    TRY(tell(l, e, id, sizeof id));
    if (!id[NCCL_ID])
        return pp_fail(PP_ERR_IO, "rank %d, an id for the edge from %s %d to %d: %s",
                       l->world->rank, axis_word(l), e->from, e->to,
                       *l->dev->op->error() ? l->dev->op->error() : "the other side made none");
    e->comm = op->join(l->dev, id, e->send ? 0 : 1, blocks);
    if (!e->comm)
        return pp_fail(PP_ERR_IO,
                       "rank %d, a communicator for the edge from %s %d to %d: %s",
                       l->world->rank, axis_word(l), e->from, e->to, l->dev->op->error());
    const Message *m = &l->plan->msg[e->first];
    const Stamp *at = &c->stamp[e->first];
    if (m->bytes && !m->shared) /* parameters have their values, other buffers none yet */
        l->dev->op->zero(l->dev, l->dev->current, m->buf, 1);
    l->dev->op->record(l->dev, l->dev->current, at->ready);
    op->after(e->comm, at->ready);
    if (m->bytes)
        op->post(e->comm, e->send, m->buf, 1);
    op->record(e->comm, at->done);
    l->dev->op->sync(l->dev, at->done);
    return device_check(l->dev, l->world->rank, "connecting by NCCL");
}

static PpStatus open_nccl(Links *l)
{
    Nccl *c = l->state = calloc(1, sizeof *c);
    if (!c)
        return pp_no_memory();
    c->edge = calloc((size_t)l->plan->n_msg + 1, sizeof *c->edge);
    c->stamp = calloc((size_t)l->plan->n_msg + 1, sizeof *c->stamp);
    PpStatus s = c->edge && c->stamp ? PP_OK : pp_no_memory();
    TRY(group_agree(l->group, s));
    find_edges(l, c);
    TRY(group_agree(l->group, same_order(l, c)));
    int blocks = 1;
    TRY(group_agree(l->group, share_blocks(l, c, &blocks)));
    for (int k = 0; k < l->plan->n_msg; k++) {
        if (!links_carry(l, k))
            continue;
        c->stamp[k] = (Stamp){l->dev->op->event(l->dev, 0), l->dev->op->event(l->dev, 0)};
        l->link[k].wire = edge_of(c, &l->plan->msg[k]);
    }
    TRY(group_agree(l->group, device_check(l->dev, l->world->rank, "events of its messages")));
    for (int i = 0; i < c->n; i++)
        if ((s = join(l, c, &c->edge[i], blocks)) == PP_ERR_PEER) {
            return s;
            /* Nobody can be asked: the other side waits for this communicator, inside NCCL */
        } else if (s != PP_OK) {
            if (pp_failure_first())
                pp_failure_print();
            l->group->op->fail(l->group, s);
            fflush(NULL);
            _exit((int)s);
        }
    return PP_OK;
}

static void close_nccl(Links *l, int broken)
{
    Nccl *c = l->state;
    if (!c)
        return;
    for (int i = 0; i < c->n; i++)
        if (c->edge[i].comm)
            device_nccl()->leave(c->edge[i].comm, broken);
    for (int k = 0; c->stamp && k < l->plan->n_msg; k++) {
        if (!links_carry(l, k))
            continue;
        l->dev->op->event_free(l->dev, c->stamp[k].ready);
        l->dev->op->event_free(l->dev, c->stamp[k].done);
    }
    free(c->edge), free(c->stamp), free(c);
    l->state = NULL;
}

/* ---- messages ---- */

static Edge *edge_at(const Links *l, int message) { return l->link[message].wire; }

/* Those of a stage are of one edge, those of replicas one edge after the other. */
static PpStatus post_nccl(Links *l, int first, int count, int receive)
{
    const NcclOps *op = device_nccl();
    const Nccl *c = l->state;
    l->dev->op->record(l->dev, l->dev->current, c->stamp[first].ready);
    for (int k = first; k < first + count; k++)
        if (k == first || edge_at(l, k) != edge_at(l, k - 1))
            op->after(edge_at(l, k)->comm, c->stamp[first].ready);
    op->begin();
    for (int k = first; k < first + count; k++)
        op->post(edge_at(l, k)->comm, !receive, l->plan->msg[k].buf, l->plan->msg[k].bytes);
    op->end();
    for (int k = first; k < first + count; k++)
        op->record(edge_at(l, k)->comm, c->stamp[k].done);
    return PP_OK;
}

static PpStatus finish_nccl(Links *l, int message)
{
    const Nccl *c = l->state;
    l->dev->op->wait(l->dev, l->dev->current, c->stamp[message].done);
    return PP_OK;
}

static PpStatus poll_nccl(Links *l) { return l->group->op->failed(l->group) ? PP_ERR_PEER : PP_OK; }

static int alive_nccl(Links *l)
{
    const Nccl *c = l->state;
    if (l->group->op->failed(l->group))
        return 0;
    for (int i = 0; i < c->n; i++)
        if (!device_nccl()->alive(c->edge[i].comm))
            return 0;
    return 1;
}

const WireOps wire_nccl = {open_nccl, close_nccl, post_nccl, finish_nccl,
                           NULL,      poll_nccl,  alive_nccl};

/*
 * wire_nccl.c - tensors between devices by NCCL. Nothing passes through the host.  Stages have a
 * communicator of two for every directed edge; replicas, who exchange their shares all with all and
 * in one order, have one for all, and so have the members of a rank.  Each has a stream of its own
 * on either side; what is posted together is one group.
 *
 * A communicator is a FIFO: its messages must be received in the order in which they are sent, as
 * the verifier has proven of the rows (schedule/verify).  Both sides send a byte before the first
 * step: NCCL connects at the first message, and both sides of an edge wait for that, which in a
 * step might be too early for one.
 *
 * A message's kernel begins when its side has come to it and waits on the device for the other one.
 * Meanwhile it holds blocks and memory: dozens, were NCCL to choose, in every communicator.  All of
 * a rank, evaluation's too, share the half of the device's multiprocessors, so that whatever waits,
 * there is room for the kernels that make what it waits for.
 */
#include "wires.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMM_BLOCKS = 8 }; /* the most of one: enough for most of NVLink */

typedef struct {
    int from, to, shared;  /* stages, replicas or members; carries parameters */
    int peer, send, first; /* its first message */
    void *comm;
    int other; /* the other side's rank in it */
} Edge;

typedef struct {
    Edge *edge;
    int n;
    void **comm;
    int n_comm;
    /* Replicas, members: what is received and not yet posted, since it goes with what is sent for
     * it */
    int held, n_held;
} Nccl;

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
                m->from, m->to, m->shared, m->peer, m->sent, k, NULL, 0};
    }
    qsort(c->edge, (size_t)c->n, sizeof *c->edge, by_name);
}

/* ---- communicators ---- */

/* By the group itself, edge by edge in the order that all ranks share. */
static PpStatus tell(Links *l, const Edge *e, void *what, int64_t bytes)
{
    return e->send ? group_send(l->group, e->peer, what, bytes)
                   : group_recv(l->group, e->peer, what, bytes);
}

/* How many blocks for each: the least that any rank has.  Training opens its edges of stages, the
 * members' communicator and the replicas'; evaluation once more the edges that go forward, and the
 * members'. */
static PpStatus share_blocks(Links *l, int *blocks)
{
    Links pipe = *l;
    Nccl count = {.edge = NULL};
    POOL(room);
    int processors = device_nccl()->processors(l->dev), mine = 0, *all = NULL;
    PpStatus s = pp_take(&room, &count.edge, l->plan->n_msg, sizeof *count.edge);
    if (s == PP_OK) {
        pipe.axis = AXIS_PIPE;
        find_edges(&pipe, &count);
        mine = processors / 2 / (2 * (count.n + (plan_members(l->plan->model) > 1)) + 1);
        if (mine < 1)
            s = pp_fail(PP_ERR_MODEL,
                        "--transport nccl: %s has %d edges to other stages, whose messages "
                        "would fill a device of %d multiprocessors while they wait: use another "
                        "transport, or fewer stages a rank",
                        pp_rank(l->world->rank).text, count.n, processors);
    }
    *blocks = COMM_BLOCKS;
    TRY(group_agree(l->group, s));
    TRY(group_gather(l->group, &mine, sizeof mine, &room, &all));
    for (int k = 0; k < l->group->ranks; k++)
        *blocks = all[k] < *blocks ? all[k] : *blocks;
    return PP_OK;
}

/* An id, and whether one could be made: its bytes are random. */
typedef struct {
    char bytes[NCCL_ID], made;
} Id;

static PpStatus join(Links *l, Nccl *c, const Id *id, int rank, int ranks, int blocks,
                     const char *what)
{
    const char *why = l->dev->op->error();
    if (!id->made)
        return pp_fail(PP_ERR_IO, "%s, an id for %s: %s", pp_rank(l->world->rank).text, what,
                       *why ? why : "the other side made none");
    void *comm = device_nccl()->join(l->dev, id->bytes, rank, ranks, blocks);
    if (!comm)
        return pp_fail(PP_ERR_IO, "%s, a communicator for %s: %s",
                       pp_rank(l->world->rank).text, what, l->dev->op->error());
    c->comm[c->n_comm++] = comm;
    return PP_OK;
}

/* A byte over each of these edges, all of one communicator. */
static PpStatus connect(Links *l, const Edge *e, int n)
{
    const NcclOps *op = device_nccl();
    const Link *at = &l->link[e->first];
    for (int i = 0; i < n; i++) { /* parameters have their values, other buffers none yet */
        const Message *m = &l->plan->msg[e[i].first];
        if (m->bytes && (!m->shared || m->axis == AXIS_MEMBERS))
            l->dev->op->zero(l->dev, l->dev->current, m->buf, 1);
    }
    l->dev->op->record(l->dev, l->dev->current, at->ready);
    op->after(e->comm, at->ready);
    op->begin();
    for (int i = 0; i < n; i++)
        if (l->plan->msg[e[i].first].bytes)
            op->post(e->comm, e[i].other, e[i].send, l->plan->msg[e[i].first].buf, 1);
    op->end();
    op->record(e->comm, at->done);
    l->dev->op->sync(l->dev, at->done);
    return device_check(l->dev, l->world->rank, "connecting by NCCL");
}

static PpStatus join_stages(Links *l, Nccl *c, int blocks)
{
    for (Edge *e = c->edge; e < c->edge + c->n; e++) {
        Id id = {.made = 0};
        char what[64];
        id.made = (char)(e->send && device_nccl()->id(id.bytes));
        TRY(tell(l, e, &id, sizeof id));
        snprintf(what, sizeof what, "the edge from stage %d to %d", e->from, e->to);
        TRY(join(l, c, &id, !e->send, 2, blocks, what));
        e->comm = c->comm[c->n_comm - 1];
        e->other = e->send;
        TRY(connect(l, e, 1));
    }
    return PP_OK;
}

static PpStatus join_all(Links *l, Nccl *c, int blocks)
{
    const Group *g = l->group;
    Id mine = {.made = 0};
    mine.made = (char)(!g->rank && device_nccl()->id(mine.bytes));
    Id *all;
    POOL(room);
    TRY(group_gather(l->group, &mine, sizeof mine, &room, &all));
    TRY(join(l, c, &all[0], g->rank, g->ranks, blocks,
             l->axis == AXIS_PEERS ? "the replicas" : "the members"));
    for (int i = 0; i < c->n; i++) {
        c->edge[i].comm = c->comm[0];
        c->edge[i].other = c->edge[i].peer;
    }
    return c->n ? connect(l, c->edge, c->n) : PP_OK;
}

static PpStatus make_tables(Links *l)
{
    TRY(pp_take(&l->pool, &l->state, 1, sizeof(Nccl)));
    Nccl *c = l->state;
    TRY(pp_take(&l->pool, &c->edge, l->plan->n_msg, sizeof *c->edge));
    return pp_take(&l->pool, &c->comm, l->plan->n_msg, sizeof *c->comm);
}

static PpStatus open_nccl(Links *l)
{
    TRY(group_agree(l->group, make_tables(l)));
    Nccl *c = l->state;
    find_edges(l, c);
    int blocks = 1;
    TRY(group_agree(l->group, share_blocks(l, &blocks)));
    for (int k = 0; k < l->plan->n_msg; k++)
        if (links_carry(l, k))
            l->link[k].wire = edge_of(c, &l->plan->msg[k]);
    PpStatus s = l->axis == AXIS_PIPE ? join_stages(l, c, blocks) : join_all(l, c, blocks);
    if (s == PP_OK || s == PP_ERR_PEER)
        return s;
    /* Nobody can be asked: the others wait for this communicator, inside NCCL */
    if (pp_failure_first())
        pp_failure_print();
    l->group->op->fail(l->group, s);
    fflush(NULL);
    _exit((int)s);
}

static void close_nccl(Links *l, int broken)
{
    Nccl *c = l->state;
    for (int i = 0; c && i < c->n_comm; i++)
        device_nccl()->leave(c->comm[i], broken);
}

/* ---- messages ---- */

static Edge *edge_at(const Links *l, int message) { return l->link[message].wire; }

/* These, all of one communicator, as one group. */
static void post_group(Links *l, int first, int count)
{
    const NcclOps *op = device_nccl();
    if (!count)
        return;
    void *comm = edge_at(l, first)->comm;
    l->dev->op->record(l->dev, l->dev->current, l->link[first].ready);
    op->after(comm, l->link[first].ready);
    op->begin();
    for (int k = first; k < first + count; k++) {
        const Message *m = &l->plan->msg[k];
        op->post(comm, edge_at(l, k)->other, m->sent, m->buf, m->bytes);
    }
    op->end();
    for (int k = first; k < first + count; k++)
        op->record(comm, l->link[k].done);
}

static void post_held(Links *l)
{
    Nccl *c = l->state;
    int n = c->n_held;
    c->n_held = 0;
    post_group(l, c->held, n);
}

/* Replicas and members first say what they receive and then what they send, under the next numbers.
 */
static PpStatus post_nccl(Links *l, int first, int count, int receive)
{
    Nccl *c = l->state;
    int goes_with = !receive && c->n_held && c->held + c->n_held == first;
    if (!goes_with)
        post_held(l);
    if (l->axis != AXIS_PIPE && receive) {
        c->held = first;
        c->n_held = count;
        return PP_OK;
    }
    int held = c->n_held;
    c->n_held = 0;
    post_group(l, first - held, count + held);
    return PP_OK;
}

static PpStatus finish_nccl(Links *l, int message)
{
    const Nccl *c = l->state;
    if (c->n_held && message >= c->held && message < c->held + c->n_held)
        post_held(l);
    l->dev->op->wait(l->dev, l->dev->current, l->link[message].done);
    return PP_OK;
}

static PpStatus poll_nccl(Links *l) { return l->group->op->failed(l->group) ? PP_ERR_PEER : PP_OK; }

static int alive_nccl(Links *l)
{
    const Nccl *c = l->state;
    if (l->group->op->failed(l->group))
        return 0;
    for (int i = 0; i < c->n_comm; i++)
        if (!device_nccl()->alive(c->comm[i]))
            return 0;
    return 1;
}

const WireOps wire_nccl = {.open = open_nccl,
                           .close = close_nccl,
                           .post = post_nccl,
                           .finish = finish_nccl,
                           .poll = poll_nccl,
                           .alive = alive_nccl,
                           .enqueues = 1};

/*
 * wire_staged.c - tensors on devices, messages of the host: through pinned memory planned
 * beforehand, or by their device pointers where the transport takes those (CUDA-aware MPI).
 *
 * A send: STREAM_OUT copies the tensor to its place in pinned memory; when that is over the message
 * is sent.  A receive: the message is received into pinned memory; when it is there STREAM_IN
 * copies it to the tensor.
 *
 * The host notices both in poll(), after each action, and while it waits in finish().  With device
 * pointers there is no copy: a message is sent, or its receive posted, once what the stream did
 * before is over.
 *
 * Places are shared by messages of one row that are not under way at the same time; a place is
 * taken again only after the copy out of it, which the host has to wait for before a receive and
 * the stream before a send.
 */
#include "wires.h"

#include <sched.h>

/* Actions for which a place rests, so that the copy out of it is over when it is taken again */
enum { LINGER = 8 };
/* COPYING: `gate` has to come before the transport may have the buffer */
enum { IDLE, COPYING, FLYING, LANDED };

typedef struct {
    char *at;
    int64_t bytes;
    DeviceEvent left; /* the copy from here to the device, the last one there was */
    int free_from;    /* planning: the op after which it is free */
} Room;

typedef struct {
    int state, receive, room; /* room -1: device pointers */
    DeviceEvent gate;         /* the tensor is in pinned memory; its buffer may be used */
} Staged;

typedef struct {
    Staged *msg; /* as Plan.msg */
    Room *room;
    int n_room, *open, n_open; /* messages under way, as they were posted */
    char *pinned;
} Staging;

/* ---- planning ---- */

/* First and last op of each message; of parameters the whole step. */
static void lifetimes(const Plan *plan, int *birth, int *death)
{
    for (int k = 0; k < plan->n_msg; k++) {
        birth[k] = plan->msg[k].shared ? 0 : -1; /* not yet known */
        death[k] = plan->n_op;
    }
    for (int i = 0; i < plan->n_op; i++) {
        const Op *op = &plan->op[i];
        for (const Transfer *t = &plan->transfer[op->first];
             t < &plan->transfer[op->first + op->count]; t++)
            for (int k = t->first; k < t->first + t->count; k++) {
                if (plan->msg[k].shared)
                    continue;
                if (t->kind == DO_FINISH)
                    death[k] = i;
                else if (birth[k] < 0)
                    birth[k] = i;
            }
        for (int k = op->await_first; k < op->await_first + op->await_count; k++)
            death[plan->await[k]] = i;
    }
}

/* The smallest room that is free and large enough, or a new one.  Messages come by birth. */
static int take_room(Staging *g, int64_t bytes, int birth, int death)
{
    int best = -1;
    for (int i = 0; i < g->n_room; i++)
        if (g->room[i].free_from + LINGER < birth && g->room[i].bytes >= bytes &&
            (best < 0 || g->room[i].bytes < g->room[best].bytes))
            best = i;
    if (best < 0) {
        best = g->n_room++;
        g->room[best] = (Room){.bytes = align_up(bytes)};
    }
    g->room[best].free_from = death;
    return best;
}

static PpStatus plan_rooms(Links *l, Staging *g)
{
    const int n = l->plan->n_msg;
    int *birth, *death;
    POOL(room);
    TRY(pp_take(&room, &birth, n, sizeof *birth));
    TRY(pp_take(&room, &death, n, sizeof *death));
    TRY(pp_take(&l->pool, &g->room, n, sizeof *g->room));
    lifetimes(l->plan, birth, death);
    for (int shared = 1; shared >= 0; shared--) /* the others are numbered as their ops come */
        for (int k = 0; k < n; k++)
            if (links_carry(l, k) && l->plan->msg[k].shared == shared)
                g->msg[k].room = take_room(g, l->plan->msg[k].bytes, birth[k], death[k]);
    int64_t bytes = 0;
    for (int i = 0; i < g->n_room; i++)
        bytes += g->room[i].bytes;
    g->pinned = bytes ? l->dev->op->memory.alloc_host(l->dev, bytes) : NULL;
    l->pinned += bytes;
    if (bytes && !g->pinned)
        return pp_fail(PP_ERR_IO, "%s, pinned memory for messages: %s",
                       pp_rank(l->world->rank).text, l->dev->op->error());
    char *at = g->pinned;
    for (int i = 0; i < g->n_room; i++) {
        g->room[i].at = at;
        g->room[i].left = l->dev->op->event(l->dev, 0);
        at += g->room[i].bytes;
    }
    return PP_OK;
}

static PpStatus open_staged(Links *l)
{
    TRY(pp_take(&l->pool, &l->state, 1, sizeof(Staging)));
    Staging *g = l->state;
    TRY(pp_take(&l->pool, &g->msg, l->plan->n_msg, sizeof *g->msg));
    TRY(pp_take(&l->pool, &g->open, l->plan->n_msg, sizeof *g->open));
    for (int k = 0; k < l->plan->n_msg; k++) {
        if (!links_carry(l, k))
            continue;
        g->msg[k].room = -1;
        l->link[k].wire = &g->msg[k];
    }
    if (!mpi_device_pointers())
        TRY(plan_rooms(l, g));
    return device_check(l->dev, l->world->rank, "events of its messages");
}

static void close_staged(Links *l, int broken)
{
    Staging *g = l->state;
    (void)broken;
    if (!g)
        return;
    for (int i = 0; i < g->n_room; i++)
        l->dev->op->event_free(l->dev, g->room[i].left);
    if (g->pinned)
        l->dev->op->memory.release_host(l->dev, g->pinned);
}

/* ---- a message's way ---- */

static void *place(const Links *l, const Message *m, const Staged *s)
{
    const Staging *g = l->state;
    return s->room >= 0 ? g->room[s->room].at : m->buf;
}

/* The transport may have the buffer. */
static PpStatus fly(Links *l, int message, Staged *s)
{
    const Message *m = &l->plan->msg[message];
    Request *q = &l->link[message].req;
    s->state = FLYING;
    return s->receive ? l->group->op->recv(l->group, m->peer, m->tag, place(l, m, s), m->bytes, q)
                      : l->group->op->send(l->group, m->peer, m->tag, place(l, m, s), m->bytes, q);
}

/* A message has arrived on the host: on to the device. */
static void unload(Links *l, int message, const Staged *s)
{
    Staging *g = l->state;
    const Message *m = &l->plan->msg[message];
    const Link *k = &l->link[message];
    if (s->room < 0)
        return;
    l->dev->op->wait(l->dev, STREAM_IN, k->ready);
    l->dev->op->copy(l->dev, STREAM_IN, m->buf, g->room[s->room].at, m->bytes);
    l->dev->op->record(l->dev, STREAM_IN, k->done);
    l->dev->op->record(l->dev, STREAM_IN, g->room[s->room].left);
}

static PpStatus advance(Links *l, int message, Staged *s)
{
    int done = 0;
    if (s->state == COPYING && l->dev->op->done(l->dev, s->gate))
        TRY(fly(l, message, s));
    if (s->state == FLYING) {
        TRY(l->group->op->test(l->group, &l->link[message].req, &done));
        if (done && s->receive)
            unload(l, message, s);
        if (done)
            s->state = LANDED;
    }
    return PP_OK;
}

static PpStatus poll_staged(Links *l)
{
    Staging *g = l->state;
    int left = 0;
    l->group->op->poll(l->group);
    for (int i = 0; i < g->n_open; i++) {
        int k = g->open[i];
        TRY(advance(l, k, &g->msg[k]));
        if (g->msg[k].state != LANDED)
            g->open[left++] = k;
    }
    g->n_open = left;
    return PP_OK;
}

static PpStatus post_one(Links *l, int message, int receive)
{
    Staging *g = l->state;
    const Message *m = &l->plan->msg[message];
    const Link *k = &l->link[message];
    Staged *s = k->wire;
    Device *d = l->dev;
    Room *room = s->room >= 0 ? &g->room[s->room] : NULL;
    s->receive = receive;
    d->op->record(d, d->current, k->ready);
    if (!room) {
        s->gate = k->ready;
        s->state = COPYING;
    } else if (receive) {
        while (!d->op->done(d, room->left)) {
            TRY(poll_staged(l));
            sched_yield();
        }
        TRY(fly(l, message, s));
    } else {
        d->op->wait(d, STREAM_OUT, k->ready);
        d->op->wait(d, STREAM_OUT, room->left);
        d->op->copy(d, STREAM_OUT, room->at, m->buf, m->bytes);
        d->op->record(d, STREAM_OUT, k->done);
        s->gate = k->done;
        s->state = COPYING;
    }
    g->open[g->n_open++] = message;
    return PP_OK;
}

static PpStatus post_staged(Links *l, int first, int count, int receive)
{
    for (int k = first; k < first + count; k++)
        TRY(post_one(l, k, receive));
    return PP_OK;
}

static PpStatus finish_staged(Links *l, int message)
{
    Staged *s = l->link[message].wire;
    for (int i = 0; s->state != LANDED; i++) {
        TRY(poll_staged(l));
        if (*l->dev->op->error())
            return PP_ERR_IO;
        if (s->state != LANDED && i > 100)
            sched_yield();
    }
    if (s->room >= 0)
        l->dev->op->wait(l->dev, l->dev->current, l->link[message].done);
    return PP_OK;
}

const WireOps wire_staged = {.open = open_staged,
                             .close = close_staged,
                             .post = post_staged,
                             .finish = finish_staged,
                             .poll = poll_staged};

/*
 * wire_staged.c - tensors on devices, messages of the host: through pinned memory planned beforehand, or by their
 * device pointers where the transport takes those (CUDA-aware MPI).
 *
 *     send   stream STREAM_OUT copies the tensor to its place in pinned memory; when that is over the message is sent
 *     recv   the message is received into pinned memory; when it is there STREAM_IN copies it to the tensor
 *
 * The host notices both in poll(), after each action, and while it waits in finish().  With device pointers there is no
 * copy: a message is sent, or its receive posted, once what the stream did before is over.
 *
 * Places are shared by messages of one row that are not under way at the same time; a place is taken again only after
 * the copy out of it, which the host has to wait for before a receive and the stream before a send.
 */
#include "internal.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { LINGER = 8 }; /* actions for which a place rests, so that the copy out of it is over when it is taken again */
enum { IDLE, COPYING, FLYING, LANDED }; /* COPYING: `gate` has to come before the transport may have the buffer */

typedef struct {
    char *at;
    int64_t bytes;
    DeviceEvent left; /* the copy from here to the device, the last one there was */
    int free_from;    /* planning: the op after which it is free */
} Room;

typedef struct {
    int state, receive, room; /* room -1: device pointers */
    DeviceEvent gate;         /* the tensor is in pinned memory; its buffer may be used */
    DeviceEvent ready, over;  /* the stream's work before the message; the tensor has arrived */
} Staged;

typedef struct {
    Staged *msg; /* as Rank.msg */
    Room *room;
    int n_room, *open, n_open; /* messages under way, as they were posted */
    char *pinned;
} Staging;

/* ---- planning ---- */

/* First and last op of each message; of parameters the whole step. */
static void lifetimes(const Rank *r, int *birth, int *death)
{
    for (int k = 0; k < r->n_msg; k++) {
        birth[k] = r->msg[k].shared ? 0 : -1; /* not yet known */
        death[k] = r->n_op;
    }
    for (int i = 0; i < r->n_op; i++) {
        const Op *op = &r->op[i];
        int type = op->a.type, wait = type == SA_WAIT_SEND_F || type == SA_WAIT_SEND_B;
        for (int k = op->first; k < op->first + op->count; k++)
            if (wait)
                death[k] = i;
            else if (birth[k] < 0)
                birth[k] = i;
        for (int k = op->await_first; k < op->await_first + op->await_count; k++)
            death[r->await[k]] = i;
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

static PpStatus plan_rooms(Rank *r, Staging *g)
{
    size_t n = (size_t)r->n_msg + 1;
    int *birth = malloc(n * sizeof *birth), *death = malloc(n * sizeof *death);
    g->room = calloc(n, sizeof *g->room);
    PpStatus s = birth && death && g->room ? PP_OK : pp_fail(PP_ERR_IO, "out of memory");
    if (s == PP_OK)
        lifetimes(r, birth, death);
    for (int shared = 1; shared >= 0; shared--) /* the others are numbered as their ops come */
        for (int k = 0; k < r->n_msg && s == PP_OK; k++)
            if (r->msg[k].shared == shared)
                g->msg[k].room = take_room(g, r->msg[k].bytes, birth[k], death[k]);
    free(birth), free(death);
    TRY(s);
    int64_t bytes = 0;
    for (int i = 0; i < g->n_room; i++)
        bytes += g->room[i].bytes;
    g->pinned = bytes ? r->dev.op->alloc_host(&r->dev, bytes) : NULL;
    r->mem.host += bytes;
    if (bytes && !g->pinned)
        return pp_fail(PP_ERR_IO, "rank %d, pinned memory for messages: %s", r->rank, r->dev.op->error());
    char *at = g->pinned;
    for (int i = 0; i < g->n_room; i++) {
        g->room[i].at = at;
        g->room[i].left = r->dev.op->event(&r->dev, 0);
        at += g->room[i].bytes;
    }
    return PP_OK;
}

static PpStatus open_staged(Rank *r)
{
    Staging *g = r->wire_state = calloc(1, sizeof *g);
    if (!g)
        return pp_fail(PP_ERR_IO, "out of memory");
    g->msg = calloc((size_t)r->n_msg + 1, sizeof *g->msg);
    g->open = calloc((size_t)r->n_msg + 1, sizeof *g->open);
    if (!g->msg || !g->open)
        return pp_fail(PP_ERR_IO, "out of memory");
    for (int k = 0; k < r->n_msg; k++) {
        g->msg[k] = (Staged){.room = -1, .ready = r->dev.op->event(&r->dev, 0), .over = r->dev.op->event(&r->dev, 0)};
        r->msg[k].wire = &g->msg[k];
    }
    if (!mpi_device_pointers())
        TRY(plan_rooms(r, g));
    return device_check(r, "events of its messages");
}

static void close_staged(Rank *r, int broken)
{
    Staging *g = r->wire_state;
    (void)broken;
    if (!g)
        return;
    for (int k = 0; g->msg && k < r->n_msg; k++) {
        r->dev.op->event_free(&r->dev, g->msg[k].ready);
        r->dev.op->event_free(&r->dev, g->msg[k].over);
    }
    for (int i = 0; i < g->n_room; i++)
        r->dev.op->event_free(&r->dev, g->room[i].left);
    if (g->pinned)
        r->dev.op->release_host(&r->dev, g->pinned);
    free(g->msg), free(g->room), free(g->open), free(g);
    r->wire_state = NULL;
}

/* ---- a message's way ---- */

static void *place(const Rank *r, const Message *m, const Staged *s)
{
    const Staging *g = r->wire_state;
    return s->room >= 0 ? g->room[s->room].at : m->buf;
}

/* The transport may have the buffer. */
static PpStatus fly(Rank *r, Message *m, Staged *s)
{
    s->state = FLYING;
    return s->receive ? r->t.op->recv(&r->t, m->peer, m->tag, place(r, m, s), m->bytes, &m->req)
                      : r->t.op->send(&r->t, m->peer, m->tag, place(r, m, s), m->bytes, &m->req);
}

/* A message has arrived on the host: on to the device. */
static void unload(Rank *r, const Message *m, Staged *s)
{
    Staging *g = r->wire_state;
    if (s->room < 0)
        return;
    r->dev.op->wait(&r->dev, STREAM_IN, s->ready);
    r->dev.op->copy(&r->dev, STREAM_IN, m->buf, g->room[s->room].at, m->bytes);
    r->dev.op->record(&r->dev, STREAM_IN, s->over);
    r->dev.op->record(&r->dev, STREAM_IN, g->room[s->room].left);
}

static PpStatus advance(Rank *r, Message *m, Staged *s)
{
    int done = 0;
    if (s->state == COPYING && r->dev.op->done(&r->dev, s->gate))
        TRY(fly(r, m, s));
    if (s->state == FLYING) {
        TRY(r->t.op->test(&r->t, &m->req, &done));
        if (done && s->receive)
            unload(r, m, s);
        if (done)
            s->state = LANDED;
    }
    return PP_OK;
}

static PpStatus poll_staged(Rank *r)
{
    Staging *g = r->wire_state;
    int left = 0;
    r->t.op->poll(&r->t);
    for (int i = 0; i < g->n_open; i++) {
        int k = g->open[i];
        TRY(advance(r, &r->msg[k], &g->msg[k]));
        if (g->msg[k].state != LANDED)
            g->open[left++] = k;
    }
    g->n_open = left;
    return PP_OK;
}

static PpStatus post_one(Rank *r, Message *m, int receive)
{
    Staging *g = r->wire_state;
    Staged *s = m->wire;
    Device *d = &r->dev;
    Room *room = s->room >= 0 ? &g->room[s->room] : NULL;
    s->receive = receive;
    d->op->record(d, r->at, s->ready);
    if (!room) {
        s->gate = s->ready;
        s->state = COPYING;
    } else if (receive) {
        while (!d->op->done(d, room->left)) {
            TRY(poll_staged(r));
            sched_yield();
        }
        TRY(fly(r, m, s));
    } else {
        d->op->wait(d, STREAM_OUT, s->ready);
        d->op->wait(d, STREAM_OUT, room->left);
        d->op->copy(d, STREAM_OUT, room->at, m->buf, m->bytes);
        d->op->record(d, STREAM_OUT, s->over);
        s->gate = s->over;
        s->state = COPYING;
    }
    g->open[g->n_open++] = (int)(m - r->msg);
    return PP_OK;
}

static PpStatus post_staged(Rank *r, int first, int count, int receive)
{
    for (int k = first; k < first + count; k++)
        TRY(post_one(r, &r->msg[k], receive));
    return PP_OK;
}

static PpStatus finish_staged(Rank *r, Message *m)
{
    Staged *s = m->wire;
    for (int i = 0; s->state != LANDED; i++) {
        TRY(poll_staged(r));
        if (*r->dev.op->error())
            return PP_ERR_IO;
        if (s->state != LANDED && i > 100)
            sched_yield();
    }
    if (s->room >= 0)
        r->dev.op->wait(&r->dev, r->at, s->over);
    return PP_OK;
}

const Wire wire_staged = {"mpi", open_staged, close_staged, post_staged, finish_staged, poll_staged, NULL};

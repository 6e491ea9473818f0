/*
 * wire_local.c - tensors between devices of one process.  A message is matched by the local transport, as on the CPU;
 * the rank that posts second enqueues the copy, in the sender's outgoing stream, after what both sides had enqueued
 * when they posted.  Everything a copy waits for is in its stream before the copy is, so no order of streams can block.
 */
#include "internal.h"

#include <stdlib.h>

typedef struct {
    Device *dev;
    DeviceEvent ready, done;
    DeviceEvent before; /* ready, of the first message that was posted with this one */
    DeviceEvent over;   /* done, of whoever recorded it: the sender */
} Side;

/* Runs on the thread of either rank, for the sender's device; post_local() goes back to its own. */
static void carry(PpRequest *send, PpRequest *recv)
{
    Side *s = send->side, *r = recv->side;
    Device *d = s->dev;
    d->op->enter(d);
    d->op->wait(d, STREAM_OUT, s->before);
    d->op->wait(d, STREAM_OUT, r->before);
    d->op->copy_to(d, STREAM_OUT, r->dev, recv->buf, send->buf, send->bytes);
    d->op->record(d, STREAM_OUT, s->done);
    s->over = r->over = s->done;
}

static PpStatus open_local(Rank *r)
{
    Side *side = calloc((size_t)r->n_msg + 1, sizeof *side);
    if (!side)
        return pp_fail(PP_ERR_IO, "out of memory");
    r->wire_state = side;
    for (int k = 0; k < r->n_msg; k++) {
        side[k] = (Side){.dev = &r->dev, .ready = r->dev.op->event(&r->dev, 0), .done = r->dev.op->event(&r->dev, 0)};
        r->msg[k].wire = &side[k];
        r->dev.op->meet(&r->dev, device_number(r->dev.op, r->msg[k].peer));
    }
    return device_check(r, "events of its messages");
}

static void close_local(Rank *r, int broken)
{
    Side *side = r->wire_state;
    (void)broken;
    for (int k = 0; side && k < r->n_msg; k++) {
        r->dev.op->event_free(&r->dev, side[k].ready);
        r->dev.op->event_free(&r->dev, side[k].done);
    }
    free(side);
    r->wire_state = NULL;
}

static PpStatus post_local(Rank *r, int first, int count, int receive)
{
    const Side *group = r->msg[first].wire;
    r->dev.op->record(&r->dev, r->at, group->ready);
    for (Message *m = &r->msg[first]; m < &r->msg[first + count]; m++) {
        Side *side = m->wire;
        side->before = group->ready;
        PpStatus s = local_carry(&r->t, !receive, m->peer, m->tag, m->buf, m->bytes, &m->req, carry, side);
        r->dev.op->enter(&r->dev);
        TRY(s);
    }
    return PP_OK;
}

static PpStatus finish_local(Rank *r, Message *m)
{
    const Side *side = m->wire;
    TRY(r->t.op->wait(&r->t, &m->req));
    r->dev.op->wait(&r->dev, r->at, side->over);
    return PP_OK;
}

static PpStatus poll_local(Rank *r)
{
    r->t.op->poll(&r->t);
    return PP_OK;
}

const Wire wire_local = {"local", open_local, close_local, post_local, finish_local, poll_local, NULL};

/*
 * wire_local.c - tensors between devices of one process.  A message is matched by the local
 * transport, as on the CPU; the rank that posts second enqueues the copy, in the sender's outgoing
 * stream, after what both sides had enqueued when they posted.  Everything a copy waits for is in
 * its stream before the copy is, so no order of streams can block.
 */
#include "wires.h"

typedef struct {
    Device *dev;
    DeviceEvent done;   /* the link's */
    DeviceEvent before; /* ready, of the first message that was posted with this one */
    DeviceEvent over;   /* done, of whoever recorded it: the sender */
} Side;

/* Runs on the thread of either rank, for the sender's device; post_local() goes back to its own. */
static void carry(Request *send, Request *recv)
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

static PpStatus open_local(Links *l)
{
    TRY(pp_take(&l->pool, &l->state, l->plan->n_msg, sizeof(Side)));
    Side *side = l->state;
    for (int k = 0; k < l->plan->n_msg; k++) {
        if (!links_carry(l, k))
            continue;
        side[k] = (Side){.dev = l->dev, .done = l->link[k].done};
        l->link[k].wire = &side[k];
        l->dev->op->enable_peer(l->dev, device_number(l->dev->op,
                                                     l->group->first +
                                                         l->plan->msg[k].peer * l->group->stride));
    }
    return PP_OK;
}

static PpStatus post_local(Links *l, int first, int count, int receive)
{
    const DeviceEvent ready = l->link[first].ready;
    l->dev->op->record(l->dev, l->dev->current, ready);
    for (int k = first; k < first + count; k++) {
        const Message *m = &l->plan->msg[k];
        Side *side = l->link[k].wire;
        side->before = ready;
        l->link[k].req = (Request){
            .tag = m->tag, .buf = m->buf, .bytes = m->bytes, .carry = carry, .side = side};
        PpStatus s = local_carry(l->group, !receive, m->peer, &l->link[k].req);
        l->dev->op->enter(l->dev);
        TRY(s);
    }
    return PP_OK;
}

static PpStatus finish_local(Links *l, int message)
{
    const Side *side = l->link[message].wire;
    TRY(l->group->op->wait(l->group, &l->link[message].req));
    l->dev->op->wait(l->dev, l->dev->current, side->over);
    return PP_OK;
}

const WireOps wire_local = {.open = open_local, .post = post_local, .finish = finish_local};

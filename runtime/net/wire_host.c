/*
 * wire_host.c - tensors in memory of the host: messages of the group itself.
 */
#include "wires.h"

static PpStatus open_host(Links *l)
{
    (void)l;
    return PP_OK;
}

static void close_host(Links *l, int broken) { (void)l, (void)broken; }

static PpStatus post_host(Links *l, int first, int count, int receive)
{
    Group *g = l->group;
    for (int k = first; k < first + count; k++) {
        const Message *m = &l->plan->msg[k];
        Request *q = &l->link[k].req;
        TRY(receive ? g->op->recv(g, m->peer, m->tag, m->buf, m->bytes, q)
                    : g->op->send(g, m->peer, m->tag, m->buf, m->bytes, q));
    }
    return PP_OK;
}

static PpStatus finish_host(Links *l, int message)
{
    return l->group->op->wait(l->group, &l->link[message].req);
}

static PpStatus test_host(Links *l, int message, int *done)
{
    return l->group->op->test(l->group, &l->link[message].req, done);
}

static PpStatus poll_host(Links *l)
{
    l->group->op->poll(l->group);
    return PP_OK;
}

const WireOps wire_host = {open_host, close_host, post_host, finish_host,
                           test_host, poll_host,  NULL, 0};

/*
 * wire_host.c - tensors in memory of the host: messages of the group itself.
 */
#include "wires.h"

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

const WireOps wire_host = {.post = post_host, .finish = finish_host, .test = test_host};

/*
 * group.c - what ranks of a group do together, in terms of the group's own functions.
 */
#include "group.h"

#include "core/core.h"

#include <string.h>

PpStatus group_gather(Group *g, const void *mine, size_t bytes, Pool *pool, void *all)
{
    void *to;
    PpStatus s = pp_take(pool, &to, g->ranks, bytes);
    if (s != PP_OK) { /* the others wait in theirs */
        if (pp_failure_first())
            pp_failure_print();
        g->op->fail(g, s);
        return s;
    }
    memcpy(all, &to, sizeof to);
    return g->op->gather(g, mine, (int64_t)bytes, to);
}

PpStatus group_agree(Group *g, PpStatus s)
{
    int mine = (int)s, *all, first = -1;
    POOL(room);
    TRY(group_gather(g, &mine, sizeof mine, &room, &all));
    for (int k = 0; k < g->ranks && first < 0; k++)
        if (all[k] != PP_OK)
            first = k;
    if (first == g->rank)
        pp_failure_print();
    if (first >= 0)
        pp_failure_tell();
    return first < 0 ? PP_OK : (PpStatus)all[first];
}

PpStatus group_send(Group *g, int peer, const void *buf, int64_t bytes)
{
    Request q;
    TRY(g->op->send(g, peer, g->tag_max, buf, bytes, &q));
    return g->op->wait(g, &q);
}

PpStatus group_recv(Group *g, int peer, void *buf, int64_t bytes)
{
    Request q;
    TRY(g->op->recv(g, peer, g->tag_max, buf, bytes, &q));
    return g->op->wait(g, &q);
}

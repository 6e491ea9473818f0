/*
 * group.c - what ranks of a group do together, in terms of the group's own functions.
 */
#include "group.h"

#include "core/core.h"

#include <stdlib.h>

void *group_gather(Group *g, const void *mine, size_t bytes, PpStatus *s)
{
    void *all = calloc((size_t)g->ranks, bytes);
    *s = all ? g->op->gather(g, mine, (int64_t)bytes, all) : pp_no_memory();
    if (!all) { /* the others wait in theirs */
        if (pp_failure_first())
            pp_failure_print();
        g->op->fail(g, *s);
    }
    if (*s == PP_OK)
        return all;
    free(all);
    return NULL;
}

PpStatus group_agree(Group *g, PpStatus s)
{
    PpStatus sent;
    int mine = (int)s, *all = group_gather(g, &mine, sizeof mine, &sent), first = -1;
    for (int k = 0; all && k < g->ranks && first < 0; k++)
        if (all[k] != PP_OK)
            first = k;
    if (first == g->rank)
        pp_failure_print();
    if (first >= 0)
        pp_failure_tell();
    PpStatus verdict = first < 0 ? sent : (PpStatus)all[first];
    free(all);
    return verdict;
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

/*
 * group.c - what ranks of a group do together, in terms of the group's own functions.
 */
#include "group.h"

#include "core/core.h"

#include <stdlib.h>

PpStatus group_agree(Group *g, PpStatus s)
{
    int mine = (int)s, *all = malloc((size_t)g->ranks * sizeof *all);
    if (!all)
        return pp_no_memory();
    PpStatus sent = g->op->gather(g, &mine, sizeof mine, all);
    int first = -1;
    for (int k = 0; k < g->ranks && sent == PP_OK && first < 0; k++)
        if (all[k] != PP_OK)
            first = k;
    if (first == g->rank)
        pp_failure_print();
    if (first >= 0)
        pp_failure_tell();
    PpStatus verdict = sent != PP_OK ? sent : first < 0 ? PP_OK : (PpStatus)all[first];
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

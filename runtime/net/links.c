/*
 * links.c - messages of a rank's step: which are under way.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "links.h"

#include <stdlib.h>
#include <unistd.h>

PpStatus links_start(Links *l, int first, int count, int receive)
{
    for (int k = first; k < first + count; k++)
        l->link[k].pending = 1;
    return l->op->post(l, first, count, receive);
}

PpStatus links_finish(Links *l, int first, int count)
{
    for (int k = first; k < first + count; k++) {
        if (!l->link[k].pending)
            continue;
        l->link[k].pending = 0;
        TRY(l->op->finish(l, k));
    }
    return PP_OK;
}

PpStatus links_over(Links *l, int first, int count, int *over)
{
    *over = l->op->test != NULL;
    for (int k = first; k < first + count && *over; k++) {
        if (!l->link[k].pending)
            continue;
        TRY(l->op->test(l, k, over));
        l->link[k].pending = !*over;
    }
    return PP_OK;
}

PpStatus links_finish_all(Links *l) { return links_finish(l, 0, l->plan->n_msg); }

void links_close(Links *l, int broken)
{
    if (l->op)
        l->op->close(l, broken);
    free(l->link);
    l->link = NULL;
    l->op = NULL;
}

PpStatus links_await(Links *l, DeviceEvent e)
{
    enum { SPINS = 2000, NAP = 20 };
    for (int i = 0; l->op && l->op->alive; i++) {
        if (l->dev->op->done(l->dev, e))
            return PP_OK;
        if (!l->op->alive(l))
            return PP_ERR_PEER;
        if (i > SPINS)
            usleep(NAP);
    }
    l->dev->op->sync(l->dev, e);
    return PP_OK;
}

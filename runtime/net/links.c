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

PpStatus links_await(Links all[AXES], DeviceEvent e)
{
    enum { SPINS = 2000, NAP = 20 };
    Device *d = all[0].dev;
    int asked = 1; /* some wire can tell */
    for (int i = 0; asked; i++) {
        if (d->op->done(d, e))
            return PP_OK;
        asked = 0;
        for (int x = 0; x < AXES; x++) {
            Links *l = &all[x];
            if (!l->op || !l->op->alive)
                continue;
            if (!l->op->alive(l))
                return PP_ERR_PEER;
            asked = 1;
        }
        if (i > SPINS)
            usleep(NAP);
    }
    d->op->sync(d, e);
    return PP_OK;
}

/*
 * links.c - messages of a rank's step: which are under way, and whether both ends have found the
 * same lengths of their microbatch.
 */
#include "links.h"

#include "core/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- headers ---- */

static PpStatus post_header(Links *l, int message, int receive)
{
    const Message *m = &l->plan->msg[message];
    Link *k = &l->link[message];
    const GroupOps *op = l->group->op;
    if (!m->t || !m->t->n_term)
        return PP_OK;
    k->heading = 1;
    return receive ? op->recv(l->group, m->peer, m->tag, &k->said, sizeof k->said, &k->header)
                   : op->send(l->group, m->peer, m->tag, &m->length, sizeof m->length, &k->header);
}

/* "17 of 'seq'": of each dimension that varies */
static void lengths_text(char *to, size_t n, const PpPlan *p, PpLength length)
{
    size_t at = 0;
    for (int v = 0; v < p->n_length && at < n; v++)
        at += (size_t)snprintf(to + at, n - at, "%s%" PRId64 " of '%.40s'", v ? ", " : "",
                               length.of[v], p->length[v].name);
}

/* Is over, once it is. */
static PpStatus check_header(Links *l, int message)
{
    const Message *m = &l->plan->msg[message];
    Link *k = &l->link[message];
    char own[300] = "", other[300] = "";
    k->heading = 0;
    if (m->sent || !memcmp(&k->said, &m->length, sizeof k->said))
        return PP_OK;
    lengths_text(own, sizeof own, l->plan->ask.model, m->length);
    lengths_text(other, sizeof other, l->plan->ask.model, k->said);
    return pp_fail(PP_ERR_MODEL,
                   "microbatch %d: %s has %s, %s has %s: all ranks are to see the same "
                   "lengths",
                   m->microbatch, pp_rank(l->world->rank).text, own,
                   pp_rank(l->group->first + m->peer * l->group->stride).text, other);
}

/* ---- messages ---- */

PpStatus links_start(Links *l, int first, int count, int receive)
{
    for (int k = first; k < first + count; k++) {
        l->link[k].pending = 1;
        TRY(post_header(l, k, receive));
    }
    return l->op->post(l, first, count, receive);
}

PpStatus links_finish(Links *l, int first, int count)
{
    for (int k = first; k < first + count; k++) {
        if (!l->link[k].pending)
            continue;
        l->link[k].pending = 0;
        if (l->link[k].heading) {
            TRY(l->group->op->wait(l->group, &l->link[k].header));
            TRY(check_header(l, k));
        }
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
        if (l->link[k].heading) {
            TRY(l->group->op->test(l->group, &l->link[k].header, over));
            if (!*over)
                break;
            TRY(check_header(l, k));
        }
        TRY(l->op->test(l, k, over));
        l->link[k].pending = !*over;
    }
    return PP_OK;
}

PpStatus links_finish_all(Links *l) { return links_finish(l, 0, l->plan->n_msg); }

PpStatus links_poll(Links *l)
{
    if (l->op && l->op->poll)
        return l->op->poll(l);
    if (l->op)
        l->group->op->poll(l->group);
    return PP_OK;
}

void links_close(Links *l, int broken)
{
    if (l->op && l->op->close)
        l->op->close(l, broken);
    for (int k = 0; l->op && k < l->plan->n_msg; k++) {
        l->dev->op->event_free(l->dev, l->link[k].ready);
        l->dev->op->event_free(l->dev, l->link[k].done);
    }
    pool_free(&l->pool);
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

/*
 * validate.c - is every computation in the rows, once, and each after what it needs of its own
 * (stage, microbatch)? Nothing here looks across ranks; that is verify.c.
 */
#include "schedule/rows.h"

#include <stdlib.h>

enum { DONE_F = 1, DONE_B = 2, DONE_I = 4, DONE_W = 8, DONE_R = 16, LEAVES = 32, AWAY = 64 };
enum { WAS_AWAY = 128 };

static int refuse(SchedError *e, const Schedule *s, int r, int i, const char *why)
{
    char text[64];
    int cell = sched_cell(&s->row[r], i);
    sched_action_text(text, sizeof text, &s->row[r].a[i]);
    return sched_fail(e, SCHED_EREFUSED, r, cell, "rank %d, cell %d (%s): %s", r, cell, text, why);
}

/* NULL, or why this action cannot come now; updates the state of its (stage, microbatch). */
static const char *step(const SchedAction *a, unsigned char *d)
{
    switch (a->type) {
    case SA_F:
        if (*d & DONE_F)
            return "this forward is in the schedule twice";
        *d |= DONE_F;
        return NULL;
    case SA_R:
        if (!(*d & DONE_F) || (*d & (DONE_B | DONE_I)))
            return "a recompute comes between the forward and the backward";
        if (*d & (LEAVES | AWAY))
            return "the stash is on the host: a FETCH is missing";
        if ((*d & WAS_AWAY) && a->peer == SCHED_WHOLE)
            return "its stash was offloaded: there is nothing to recompute";
        if (*d & DONE_R)
            return "this recompute is in the schedule twice";
        *d |= DONE_R;
        return NULL;
    case SA_B:
    case SA_I:
        if (!(*d & DONE_F))
            return "the backward comes before its forward";
        if (*d & (LEAVES | AWAY))
            return "the stash is on the host: a FETCH is missing";
        if (*d & DONE_B)
            return a->type == SA_B ? "this backward is in the schedule twice"
                                   : "there is a B for this microbatch already";
        if (*d & DONE_I)
            return a->type == SA_I ? "this backward is in the schedule twice"
                                   : "there is an I for this microbatch already";
        *d |= a->type == SA_B ? DONE_B : DONE_I;
        return NULL;
    case SA_W:
        if (*d & DONE_B)
            return "there is a B for this microbatch already";
        if (!(*d & DONE_I))
            return "W comes before its I";
        if (*d & DONE_W)
            return "this W is in the schedule twice";
        *d |= DONE_W;
        return NULL;
    case SA_OFFLOAD:
        if (*d != DONE_F)
            return *d & WAS_AWAY || *d & (LEAVES | AWAY)
                       ? "this stash is offloaded twice"
                       : "there is no stash to offload: it is kept from F to B or I";
        *d |= LEAVES;
        return NULL;
    case SA_WAIT_OFFLOAD:
        if (!(*d & LEAVES))
            return *d & (AWAY | WAS_AWAY) ? "this offload is waited for twice"
                                          : "it waits for an offload that has not begun";
        *d ^= LEAVES | AWAY;
        return NULL;
    case SA_FETCH: /* of complete rows verify.c asks for the wait too */
        if (!(*d & (LEAVES | AWAY)))
            return "this stash is not on the host";
        *d = (unsigned char)((*d & ~(LEAVES | AWAY)) | WAS_AWAY);
        return NULL;
    default: return NULL;
    }
}

static int check_done(const Schedule *s, const unsigned char *done, SchedError *e)
{
    for (int st = 0; st < s->stages; st++)
        for (int mb = 0; mb < s->microbatches; mb++) {
            unsigned char d = done[(size_t)st * (size_t)s->microbatches + (size_t)mb];
            const char *what = !(d & DONE_F)                         ? "forward"
                               : s->infer || (d & (DONE_B | DONE_W)) ? NULL
                               : d & DONE_I                          ? "W"
                                                                     : "backward";
            if (what)
                return sched_fail(e, SCHED_EREFUSED, s->rank_of[st], -1,
                                  "rank %d: stage %d has no %s for microbatch %d", s->rank_of[st],
                                  st, what, mb);
        }
    return SCHED_OK;
}

int sched_validate(const Schedule *s, SchedError *e)
{
    unsigned char *done = calloc((size_t)s->stages * (size_t)s->microbatches, 1);
    int st = SCHED_OK;
    if (!done)
        return sched_nomem(e);
    for (int r = 0; !st && r < s->ranks; r++)
        for (int i = 0; !st && i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            const char *why = NULL;
            if (a->type == SA_IDLE)
                continue;
            if (a->stage < 0 || a->stage >= s->stages || a->microbatch >= s->microbatches)
                why = "no such stage or microbatch";
            else if (s->rank_of[a->stage] != r)
                why = "this stage is on another rank as well";
            else if (s->infer && (a->type == SA_B || a->type == SA_I || a->type == SA_W))
                why = "a backward in a schedule of forwards";
            else if (a->microbatch >= 0)
                why = step(
                    a, &done[(size_t)a->stage * (size_t)s->microbatches + (size_t)a->microbatch]);
            if (why)
                st = refuse(e, s, r, i, why);
        }
    if (!st)
        st = check_done(s, done, e);
    free(done);
    return st;
}

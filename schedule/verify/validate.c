/*
 * validate.c - is every computation in the rows, once, and each after what it needs of its own
 * (stage, microbatch)? Nothing here looks across ranks; that is verify.c.
 */
#include "schedule/rows.h"

#include <stdlib.h>

enum { DONE_F = 1, DONE_B = 2, DONE_I = 4, DONE_W = 8, DONE_R = 16, LEAVES = 32, AWAY = 64 };
enum { WAS_AWAY = 128 };

/* NULL, or why this action cannot come now; d: the state of its (stage, microbatch). */
static const char *refused(const SchedAction *a, unsigned d)
{
    const int away = d & (LEAVES | AWAY), back = a->type == SA_B || a->type == SA_I;
    if ((back || a->type == SA_R) && away)
        return "the stash is on the host: a FETCH is missing";
    switch (a->type) {
    case SA_F: return d & DONE_F ? "this forward is in the schedule twice" : NULL;
    case SA_R:
        return !(d & DONE_F) || d & (DONE_B | DONE_I)
                   ? "a recompute comes between the forward and the backward"
               : d & WAS_AWAY && a->peer == SCHED_WHOLE
                   ? "its stash was offloaded: there is nothing to recompute"
               : d & DONE_R ? "this recompute is in the schedule twice"
                            : NULL;
    case SA_B:
    case SA_I:
        return !(d & DONE_F)                          ? "the backward comes before its forward"
               : d & (a->type == SA_B ? DONE_B : DONE_I) ? "this backward is in the schedule twice"
               : d & DONE_B ? "there is a B for this microbatch already"
               : d & DONE_I ? "there is an I for this microbatch already"
                            : NULL;
    case SA_W:
        return d & DONE_B      ? "there is a B for this microbatch already"
               : !(d & DONE_I) ? "W comes before its I"
               : d & DONE_W    ? "this W is in the schedule twice"
                               : NULL;
    case SA_OFFLOAD:
        return d == DONE_F            ? NULL
               : d & WAS_AWAY || away ? "this stash is offloaded twice"
                                      : "there is no stash to offload: it is kept from F to B or I";
    case SA_WAIT_OFFLOAD:
        return d & LEAVES              ? NULL
               : d & (AWAY | WAS_AWAY) ? "this offload is waited for twice"
                                       : "it waits for an offload that has not begun";
    /* of complete rows verify.c asks for the wait too */
    case SA_FETCH: return away ? NULL : "this stash is not on the host";
    default: return NULL;
    }
}

/* The state behind it. */
static unsigned char after(int type, unsigned char d)
{
    static const unsigned char done[SA_TYPES] = {
        [SA_F] = DONE_F, [SA_R] = DONE_R, [SA_B] = DONE_B,        [SA_I] = DONE_I,
        [SA_W] = DONE_W, [SA_OFFLOAD] = LEAVES, [SA_FETCH] = WAS_AWAY};
    if (type == SA_WAIT_OFFLOAD)
        return d ^ (LEAVES | AWAY);
    return (unsigned char)((type == SA_FETCH ? d & ~(LEAVES | AWAY) : d) | done[type]);
}

static int check_done(const Schedule *s, const unsigned char *done, SchedError *e)
{
    for (int st = 0; st < s->stages; st++)
        for (int mb = 0; mb < s->microbatches; mb++) {
            unsigned char d = done[sched_pair(s, st, mb)];
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
    unsigned char *done = calloc(sched_pairs(s), 1);
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
            else if (a->microbatch >= 0) {
                unsigned char *d = &done[sched_pair(s, a->stage, a->microbatch)];
                why = refused(a, *d);
                *d = after(a->type, *d);
            }
            if (why)
                st = sched_refuse(e, s, r, i, "%s", why);
        }
    if (!st)
        st = check_done(s, done, e);
    free(done);
    return st;
}

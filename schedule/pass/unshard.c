/*
 * unshard.c - UNSHARD and RESHARD: the parameters of the stages that come next are on the
 * device, no others.
 *
 * In: rows; for each rank a window and a look-ahead, both in distinct stages (a compound as a
 * whole).  Out: the same rows; before every computation what is active and not among the stages of
 * the window is resharded, in the order in which it came, and what is among those of the look-ahead
 * and not active is unsharded, in the order of their first use.
 */
#include "schedule/rows.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The stages of a rank are kept in a list ordered by their next use; the first ones of it are those
   that a look-ahead would find (a compound as a whole).  A used stage goes back into the list at
   its next use. */

typedef struct {
    int stage, next, since;
} Soon; /* next: index of the next action of the stage; INT_MAX: none.  since: 0: not active */

typedef struct {
    int window, ahead; /* of a rank */
} Reach;

typedef struct {
    SchedRow *row, *out;
    int *next; /* per action: the next action of the same stage */
    Soon *soon;
    int n, unshards;
    Reach reach;
} Unshard;

/* ---- the text: WINDOWS[:AHEADS] ---- */

enum { USUAL = 3 };

/* The rank's number of a list, or the only one; 0: there is none. */
static int number_of(const char *list, size_t len, int rank)
{
    const char *at = list, *end = list + len, *comma = memchr(list, ',', len);
    for (int k = 0; comma && k < rank; k++) {
        if (!(at = memchr(at, ',', (size_t)(end - at))))
            return 0;
        at++;
    }
    int n = 0;
    for (; at < end && *at >= '0' && *at <= '9' && n < SCHED_MAX_CELLS / 10; at++)
        n = 10 * n + *at - '0';
    return at == end || *at == ',' ? n : 0;
}

static int length_of(const char *list, size_t len)
{
    int n = 1;
    for (size_t i = 0; i < len; i++)
        n += list[i] == ',';
    return n;
}

static int bad_list(const char *list, size_t len, int ranks, const char *text, SchedError *e)
{
    int n = length_of(list, len);
    if (n > 1 && n != ranks)
        return sched_fail(
            e, SCHED_EUSAGE, -1, -1,
            "--unshard %.60s: %d numbers for %d ranks: give one for all, or one for each", text, n,
            ranks);
    for (int r = 0; r < n; r++)
        if (number_of(list, len, r) < 1)
            return sched_fail(e, SCHED_EUSAGE, -1, -1,
                              "--unshard %.60s is not a window: expected N or N,N,... stages, with "
                              ":A for how many of them come ahead, or auto",
                              text);
    return SCHED_OK;
}

/* `auto`: the first rank begins at once and looks a stage ahead; a later one, which waits for its
   first input, one more each. */
static int reach_of(const char *text, int ranks, Reach *reach, SchedError *e)
{
    const char *colon = strchr(text, ':'), *ahead = colon ? colon + 1 : text;
    size_t n = colon ? (size_t)(colon - text) : strlen(text), n_ahead = strlen(ahead);
    int grows = !strcmp(ahead, "auto"), given = colon || !grows, st = SCHED_OK;
    if (given)
        st = bad_list(text, n, ranks, text, e);
    if (!st && !grows)
        st = bad_list(ahead, n_ahead, ranks, text, e);
    for (int r = 0; !st && r < ranks; r++) {
        int window = given ? number_of(text, n, r) : USUAL,
            far = grows ? r + 2 < window ? r + 2 : window : number_of(ahead, n_ahead, r);
        if (far > window)
            st = sched_fail(e, SCHED_EUSAGE, r, -1,
                            "--unshard %.60s: rank %d looks %d stages ahead, but has room for %d",
                            text, r, far, window);
        reach[r] = (Reach){window, far};
    }
    return st;
}

/* ---- a row ---- */

/* How many entries of the list the next `most` stages are. */
static int within(const Unshard *u, int most)
{
    int n = 0;
    while (n < u->n && u->soon[n].next != INT_MAX && n < most)
        n++;
    if (n == 0 || n < most)
        return n;
    /* The rest of the compound where the count was reached belongs to them too. */
    int end = sched_cell_end(u->row, u->soon[n - 1].next);
    while (n < u->n && u->soon[n].next < end)
        n++;
    return n;
}

/* What has come first goes first. */
static void reshard(Unshard *u, int keep)
{
    for (;;) {
        Soon *first = NULL;
        for (int k = keep; k < u->n; k++)
            if (u->soon[k].since && (!first || u->soon[k].since < first->since))
                first = &u->soon[k];
        if (!first)
            return;
        first->since = 0;
        sched_push(u->out, sched_act(SA_RESHARD, first->stage, -1));
    }
}

static void reinsert_used(Unshard *u, int i)
{
    Soon used = u->soon[0];
    int k = 0;
    used.next = u->next[i];
    for (; k + 1 < u->n && u->soon[k + 1].next < used.next; k++)
        u->soon[k] = u->soon[k + 1];
    u->soon[k] = used;
}

static int unshard_row(Unshard *u, int r, SchedError *e)
{
    for (int i = 0; i < u->row->n; i = sched_cell_end(u->row, i)) {
        if (!sched_is_compute(u->row->a[i].type)) { /* a copy of a stash */
            sched_push(u->out, u->row->a[i]);
            continue;
        }
        int end = sched_cell_end(u->row, i), used = 0;
        while (used < u->n && u->soon[used].next < end)
            used++;
        if (used > u->reach.window)
            return sched_fail(e, SCHED_EREFUSED, r, sched_cell(u->row, i),
                              "rank %d, cell %d needs %d stages at once, but the window is %d", r,
                              sched_cell(u->row, i), used, u->reach.window);
        reshard(u, within(u, u->reach.window));
        for (int k = 0, n = within(u, u->reach.ahead); k < n; k++)
            if (!u->soon[k].since) {
                u->soon[k].since = ++u->unshards;
                sched_push(u->out, sched_act(SA_UNSHARD, u->soon[k].stage, -1));
            }
        for (int j = i; j < end; j++) {
            sched_push(u->out, u->row->a[j]);
            if (u->soon[0].next == j)
                reinsert_used(u, j);
        }
    }
    reshard(u, 0);
    return SCHED_OK;
}

int sched_unshard(Schedule *s, const char *windows, SchedError *e)
{
    size_t most = 0;
    for (int r = 0; r < s->ranks; r++)
        most = (size_t)s->row[r].n > most ? (size_t)s->row[r].n : most;
    SchedRoom room = {0};
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    int *where = sched_room(&room, (size_t)s->stages, sizeof *where),
        *next = sched_room(&room, most, sizeof *next), st;
    Soon *soon = sched_room(&room, (size_t)s->stages, sizeof *soon);
    Reach *reach = sched_room(&room, (size_t)s->ranks, sizeof *reach);
    if (!rows || room.lost)
        st = sched_nomem(e);
    else if (sched_has_type(s, SA_UNSHARD) || sched_has_type(s, SA_RESHARD))
        st = sched_fail(e, SCHED_EREFUSED, -1, -1, "the rows have UNSHARD and RESHARD already");
    else
        st = reach_of(windows, s->ranks, reach, e);
    sched_drop_idle(s);
    for (int r = 0; !st && r < s->ranks; r++) {
        SchedRow *row = &s->row[r];
        Unshard u = {row, &rows[r], next, soon, 0, 0, reach[r]};
        for (int i = 0; i < row->n; i++)
            where[row->a[i].stage] = INT_MAX;
        for (int i = row->n; i-- > 0;) {
            u.next[i] = where[row->a[i].stage];
            if (sched_is_compute(row->a[i].type))
                where[row->a[i].stage] = i;
        }
        for (int i = 0; i < row->n; i++) /* first uses, in the order of their positions */
            if (where[row->a[i].stage] == i)
                soon[u.n++] = (Soon){row->a[i].stage, i, 0};
        st = unshard_row(&u, r, e);
    }
    sched_room_free(&room);
    return sched_take_rows(s, rows, st, e);
}

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
    SchedRow *row, *out;
    int *next; /* per action: the next action of the same stage */
    Soon *soon;
    int n, unshards;
    int window, ahead; /* of the rank */
} Unshard;

/* ---- the text: WINDOWS[:AHEADS] ---- */

enum { USUAL = 3 };

/* N, or N,N,... with one for each rank, up to a colon or the end; how many there are, 0: that is no
   such list. */
static int read_list(const char **at, int ranks, int *to)
{
    int n = 0, more = 1;
    for (char *end = NULL; more; *at = end + more) {
        const long v = **at >= '0' && **at <= '9' ? strtol(*at, &end, 10) : 0;
        if (v < 1 || v >= SCHED_MAX_CELLS || (*end && *end != ',' && *end != ':'))
            return 0;
        if (n < ranks)
            to[n] = (int)v;
        n++;
        more = *end == ',';
    }
    for (int r = 1; r < ranks && n == 1; r++)
        to[r] = to[0];
    return n;
}

/* `auto`: the first rank begins at once and looks a stage ahead; a later one, which waits for its
   first input, one more each. */
static int reach_of(const char *text, int ranks, int *window, int *ahead, SchedError *e)
{
    const char *at = text;
    const int given = strcmp(text, "auto") != 0;
    int n = given ? read_list(&at, ranks, window) : 1, m = n; /* numbers of each list */
    const int grows = !given || (n && !strcmp(at, ":auto"));
    memcpy(ahead, window, (size_t)ranks * sizeof *ahead);
    if (n && !grows && *at == ':')
        at++, m = read_list(&at, ranks, ahead);
    if (!n || !m || (!grows && *at))
        return sched_fail(
            e, SCHED_EUSAGE, -1, -1,
            "--unshard %.60s is not a window: expected N or N,N,... stages, with :A for "
            "how many of them come ahead, or auto",
            text);
    n = n > 1 && n != ranks ? n : m;
    if (n > 1 && n != ranks)
        return sched_fail(
            e, SCHED_EUSAGE, -1, -1,
            "--unshard %.60s: %d numbers for %d ranks: give one for all, or one for each", text, n,
            ranks);
    for (int r = 0; r < ranks; r++) {
        window[r] = given ? window[r] : USUAL;
        if (grows)
            ahead[r] = r + 2 < window[r] ? r + 2 : window[r];
        if (ahead[r] > window[r])
            return sched_fail(e, SCHED_EUSAGE, r, -1,
                              "--unshard %.60s: rank %d looks %d stages ahead, but has room for %d",
                              text, r, ahead[r], window[r]);
    }
    return SCHED_OK;
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
        if (used > u->window)
            return sched_fail(e, SCHED_EREFUSED, r, sched_cell(u->row, i),
                              "rank %d, cell %d needs %d stages at once, but the window is %d", r,
                              sched_cell(u->row, i), used, u->window);
        reshard(u, within(u, u->window));
        for (int k = 0, n = within(u, u->ahead); k < n; k++)
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
    Pool room = {0};
    SchedRow *rows = calloc((size_t)s->ranks, sizeof *rows);
    int *where = sched_room(&room, (size_t)s->stages, sizeof *where),
        *next = sched_room(&room, most, sizeof *next), st;
    Soon *soon = sched_room(&room, (size_t)s->stages, sizeof *soon);
    int *window = sched_room(&room, (size_t)s->ranks, sizeof *window),
        *ahead = sched_room(&room, (size_t)s->ranks, sizeof *ahead);
    if (!rows || room.lost)
        st = sched_nomem(e);
    else if (sched_has_type(s, SA_UNSHARD) || sched_has_type(s, SA_RESHARD))
        st = sched_fail(e, SCHED_EREFUSED, -1, -1, "the rows have UNSHARD and RESHARD already");
    else
        st = reach_of(windows, s->ranks, window, ahead, e);
    sched_drop_idle(s);
    for (int r = 0; !st && r < s->ranks; r++) {
        SchedRow *row = &s->row[r];
        Unshard u = {row, &rows[r], next, soon, 0, 0, window[r], ahead[r]};
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
    pool_free(&room);
    return sched_take_rows(s, rows, st, e);
}

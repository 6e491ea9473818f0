/*
 * rows.h - helpers for all of schedule/: looking at actions, building rows.
 */
#ifndef PP_SCHEDULE_ROWS_H
#define PP_SCHEDULE_ROWS_H

#include "base/file/memory.h"
#include "base/file/replace.h"
#include "schedule.h"

enum { SCHED_MAX_CELLS = 1 << 30 };

int sched_fail(SchedError *e, int status, int rank, int cell, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
int sched_nomem(SchedError *e);
/* Of the action at `index` of a row: behind where it is and its text. */
int sched_refuse(SchedError *e, const Schedule *s, int rank, int index, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* An array of a pass, of one more than n zeros; NULL: m is lost. */
static inline void *sched_room(Pool *m, size_t n, size_t size)
{
    return pool_take(m, (int64_t)n + 1, size);
}
static inline double *sched_room_unknown(Pool *m, size_t n) /* all -1 */
{
    double *p = sched_room(m, n, sizeof *p);
    for (size_t i = 0; p && i < n; i++)
        p[i] = -1;
    return p;
}

/* All of a file, a pipe too, to be freed; NULL: e says why. */
char *sched_read(const char *path, size_t *n, SchedError *e);

/* Where a list of all (stage, microbatch)s has this one; how many there are. */
static inline size_t sched_pair(const Schedule *s, int stage, int microbatch)
{
    return (size_t)stage * (size_t)s->microbatches + (size_t)microbatch;
}
static inline size_t sched_pairs(const Schedule *s) { return sched_pair(s, s->stages, 0); }

/* Writes the rows as a file, and over no file but one of rows.  0; -1: w->why */
int sched_put(const Schedule *s, FileWhole *w, const char *path);

/* Ranks that may go on, of which each has its turn, in a ring. */
typedef struct SchedTurns {
    int ranks, *cursor; /* per rank: its next action, from 0 */
    int *queue, head, waiting;
    unsigned char *queued;
} SchedTurns;
void sched_turns(SchedTurns *t, int ranks, Pool *m); /* nobody may; where m is lost, no more */
void sched_wake(SchedTurns *t, int rank);
/* All rows, each rank as far as it comes: step() does its next action, and wakes the ranks that may
   have waited for it; 0: not yet.  A rank that cannot come to the end of its row; -1: all do. */
int sched_run(SchedTurns *t, const Schedule *s, int (*step)(void *of, int rank), void *of);

Schedule *sched_new(const char *name, int ranks, int stages, int microbatches);
/* Appends.  When memory runs out, the row becomes invalid (cap -1) and stays so, so that one check
 * at the end of a pass is enough. */
void sched_push(SchedRow *r, SchedAction a);
int sched_rows_ok(const Schedule *s, SchedError *e);
/* Cells are numbered once, when rows are read or made, from 0 and with idle ones: passes that drop
   and insert actions leave their numbers alone.  The cell of action `index`; of an inserted one
   that before which it stands. */
void sched_number(Schedule *s);
int sched_cell(const SchedRow *r, int index);
void sched_free_rows(SchedRow *rows, int n);
/* The end of a pass, whose status is st: its rows, NULL where there was no memory for them, in the
   place of the old ones; or, not SCHED_OK, they go.  The status. */
int sched_take_rows(Schedule *s, SchedRow *rows, int st, SchedError *e);
int sched_has_type(const Schedule *s, int type);
/* Whether the forward at i is recomputed as a whole, so that nothing is kept of it until then. */
int sched_comes_again(const SchedRow *r, int i);

/* live.c: the most that a rank holds at once.  Of a microbatch a stage has `stash' from F, or what
   brings it back, to B or I, of that `late' until W, and `saved' from I to W. */
typedef struct SchedBytes {
    double stash, late, saved;
} SchedBytes;
typedef SchedBytes SchedHeld(const void *of, int stage);
double sched_most_held(const Schedule *s, int rank, SchedHeld *held, const void *of);

static inline SchedAction sched_act(int type, int stage, int microbatch)
{
    SchedAction a = {stage, microbatch, -1, (uint8_t)type, 0, 0, 0};
    return a;
}

static inline SchedAction sched_comm(int type, int stage, int microbatch, int peer)
{
    SchedAction a = {stage, microbatch, peer, (uint8_t)type, 0, 0, 0};
    return a;
}

static inline int sched_is_send(int type) { return type == SA_SEND_F || type == SA_SEND_B; }
static inline int sched_is_recv(int type) { return type == SA_RECV_F || type == SA_RECV_B; }
static inline int sched_is_wait_send(int type)
{
    return type == SA_WAIT_SEND_F || type == SA_WAIT_SEND_B;
}
/* 1: `peer` is a later stage, to which an activation goes and from which a gradient comes; -1: an
   earlier one; 0: of parameters, and of what has none. */
static inline int sched_toward(int type)
{
    return (type == SA_SEND_F || type == SA_RECV_B || type == SA_WAIT_SEND_F) -
           (type == SA_RECV_F || type == SA_SEND_B || type == SA_WAIT_SEND_B);
}
static inline int sched_is_param(int type) { return type >= SA_SEND_P && type <= SA_RECV_GP; }
/* Of a stash, beside the computations. */
static inline int sched_copies(int type) { return type == SA_OFFLOAD || type == SA_FETCH; }
/* Sends and receives of every kind, those of parameters too. */
static inline int sched_sends(int type)
{
    return sched_is_send(type) || type == SA_SEND_P || type == SA_SEND_GP;
}
static inline int sched_receives(int type)
{
    return sched_is_recv(type) || type == SA_RECV_P || type == SA_RECV_GP;
}
static inline int sched_has_peer(int type)
{
    return (type >= SA_SEND_F && type <= SA_WAIT_SEND_B) || sched_is_param(type);
}
static inline int sched_has_microbatch(int type)
{
    return (type >= SA_F && type <= SA_WAIT_SEND_B) || sched_copies(type) ||
           type == SA_WAIT_OFFLOAD;
}
/* The type of the wait for a send. */
static inline SchedAction sched_wait_of(const SchedAction *send)
{
    return sched_comm(send->type == SA_SEND_F ? SA_WAIT_SEND_F : SA_WAIT_SEND_B, send->stage,
                      send->microbatch, send->peer);
}
/* One message of two ranks: the send on the row of `stage`, the receive on that of `peer`. */
void sched_push_message(SchedRow *rows, const Schedule *s, int send, int stage, int peer, int mb);
/* The end of the cell that begins at action i. */
static inline int sched_cell_end(const SchedRow *r, int i)
{
    while ((r->a[i].overlap & SCHED_PART) && !(r->a[i].overlap & SCHED_LAST) && i + 1 < r->n)
        i++;
    return i + 1;
}

#endif

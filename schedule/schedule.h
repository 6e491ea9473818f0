/*
 * schedule.h - pipeline schedules: the intermediate representation, generators, passes, verifier.
 *
 * A Schedule is one row of actions per rank.  It comes from a CSV file (sched_load) or a generator
 * (sched_generate) and holds computations only at first; passes insert communication, parameter
 * residency and gradient reductions until the rows are complete, and the verifier proves that they
 * run to the end.  sched_lower_for() does all of it for an executor.  The simulator is in
 * simulate.h, the choice among all in auto.h, drawings are in tool/tool.h; docs/schedules.md
 * describes the text form.
 *
 * C11 or C++, and libc.  No globals, no exit: a function that can fail returns 0 or a SCHED_E*
 * status and fills the SchedError.  Memory belongs to the Schedule; sched_free() releases it.
 */
#ifndef PP_SCHEDULE_H
#define PP_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// clang-format off
enum SchedType {
    SA_IDLE,                                    /* an empty cell */
    SA_F, SA_B, SA_I, SA_W, SA_R,               /* compute; B = I + W; R: F again */
    SA_SEND_F, SA_RECV_F, SA_SEND_B, SA_RECV_B, /* activation to, gradient back to `peer` */
    SA_WAIT_SEND_F, SA_WAIT_SEND_B,             /* that send's buffer is free again */
    SA_UNSHARD, SA_RESHARD, SA_REDUCE_GRAD, SA_WAIT_REDUCE_GRAD, /* per stage, no microbatch */
    SA_OFFLOAD, SA_FETCH,                       /* a microbatch's stash to and from the host */
    SA_SEND_P, SA_RECV_P, SA_SEND_GP, SA_RECV_GP, /* shared parameters, once a step */
    SA_WAIT_OFFLOAD,                            /* the slot of that stash is free again */
    SA_TYPES
};
// clang-format on
static inline int sched_is_compute(int type) { return type >= SA_F && type <= SA_R; }

/* `(0F7;7B3)OVERLAP_F_B` is one cell with several actions: all have PART, the last one also
   LAST. */
enum { SCHED_PART = 1, SCHED_LAST = 2 };

/* What an R recomputes: the whole forward, or single parts of its stash, one bit for each in the
   stage's numbering (pp.h, PpAgain); bits of parts that a stage lacks are ignored.
   Text: `0R1`, and `0R1@5` for parts 0 and 2. */
enum { SCHED_WHOLE = -1, SCHED_CHEAP = 0xff };

typedef struct SchedAction {
    int32_t stage;      /* -1 for SA_IDLE */
    int32_t microbatch; /* -1: none */
    /* messages and their waits: the other stage, always filled in; R: what it computes again;
       else -1 */
    int32_t peer;
    uint8_t type, overlap;
    uint16_t mark; /* for passes; 0 between them */
    int32_t cell;  /* in the file or from the generator, from 1; 0: inserted by a pass */
} SchedAction;

typedef struct SchedRow {
    SchedAction *a;
    int32_t n, cap;
} SchedRow;

typedef struct Schedule {
    char name[40]; /* the generator's, or "file" */
    int ranks, stages, microbatches;
    SchedRow *row; /* one per rank */
    int *rank_of;  /* stage -> rank */
    int infer;     /* forwards only */
    int complete;  /* communication is in the rows (read so, or inserted) */
    /* the last stage is a loss over the whole minibatch: it keeps nothing of a microbatch */
    int minibatch;
} Schedule;

enum { SCHED_OK, SCHED_EREFUSED = 1, SCHED_EUSAGE = 2, SCHED_ERESOURCE = 3 };

typedef struct SchedError {
    int status, rank, cell; /* cell: from 0, as sched_cell() has it; -1: none */
    char text[8192];        /* one sentence, or a report of several lines (the blocked state) */
} SchedError;

/* Stage `from` feeds stage `to`.  gradient: a SEND_B comes back.  Bytes are for one microbatch. */
typedef struct SchedEdge {
    int from, to, gradient;
    double bytes_f, bytes_b;
} SchedEdge;
/* A shared parameter: its owner `from` transmits it to its user `to` once a step and gets a
   gradient back, or both hold a copy whose gradients are summed (replicate).  Several parameters of
   one pair travel in one action. */
typedef struct SchedParam {
    int from, to, replicate, gradient;
} SchedParam;

/* ---- rows.c, csv.c: in memory, and as text ---- */
void sched_free(Schedule *s); /* NULL is fine */
Schedule *sched_clone(const Schedule *s);
void sched_drop_idle(Schedule *s);
int sched_parse(const char *text, size_t len, const char *origin, Schedule **out, SchedError *e);
int sched_load(const char *path, Schedule **out, SchedError *e);
void sched_write(const Schedule *s, FILE *f);     /* rows ended by '\n' */
char *sched_text(const Schedule *s, size_t *len); /* without the last newline; to be freed */
int sched_action_text(char *buf, size_t size, const SchedAction *a); /* `0SEND_F3@2` */
int sched_action_parse(const char *text, SchedAction *a); /* 1: the text is one simple action */
const char *sched_type_name(int type);

/* ---- generate/registry.c: the generators by name; a row's fields are explained there ---- */
enum { SCHED_PLACE_DEFAULT = -1, SCHED_PLACE_LOOP, SCHED_PLACE_V, SCHED_PLACE_BLOCK };
struct SchedGen;
typedef struct SchedKind {
    const char *name, *pytorch;
    int placement, chunks, movable, least, rounds;
    int (*generate)(struct SchedGen *g);
    const char *about;
} SchedKind;
const SchedKind *sched_kind(int i);            /* row i of the registry, NULL past its end */
const SchedKind *sched_find(const char *name); /* any spelling, any case; NULL: unknown */
int sched_generate(const char *name, int ranks, int stages, int microbatches, int placement,
                   Schedule **out, SchedError *e);
int sched_placement(const char *name); /* DEFAULT: unknown */
const char *sched_placement_name(int placement);
int sched_placed(int placement, int ranks, int stages, int stage); /* the stage's rank */

/* ---- verify/validate.c and pass/: in place; edge NULL: the chain of stages ---- */
int sched_validate(const Schedule *s, SchedError *e);
int sched_merge(Schedule *s, SchedError *e);
/* WINDOWS[:AHEADS] or auto; each is N, or N,N,... with one number per rank.  A stage stays on the
   device while it is among its rank's next WINDOW stages, and is fetched when it is among the next
   AHEAD */
int sched_unshard(Schedule *s, const char *windows, SchedError *e);
/* inserts R's; parts: per [stage * microbatches + microbatch] 0 (none), SCHED_WHOLE or bits */
int sched_recompute(Schedule *s, const int32_t *parts, SchedError *e);
/* fills parts from `never|except-last|always|cheap|STAGE,...` */
int sched_recompute_parse(const char *text, int stages, int microbatches, int32_t *parts,
                          SchedError *e);
/* adds a stage for a loss over the whole minibatch, which needs all F's before the first B */
int sched_minibatch(Schedule *s, SchedError *e);
int sched_reduce_grad(Schedule *s, int deferred, SchedError *e);
/* For rows of an older PyTorch, whose REDUCE_GRAD was the whole sum: inserts its wait right after
   it. Rows with any wait stay as they are. */
int sched_wait_reduce(Schedule *s, SchedError *e);
int sched_budget(Schedule *s, int sends, SchedError *e);
int sched_defer(Schedule *s, SchedError *e); /* may need buffers: verify afterwards */

/* ---- simulate/offload.c: stashes on the host between F and backward ---- */
typedef struct SchedOffload {
    const struct SchedCosts *costs; /* simulate.h: of actions, copies of a slot too */
    const unsigned char *stays;     /* NULL, or per stage: its stashes stay on the device */
    const int *most;                /* NULL: all that fit; per rank: at most so many */
} SchedOffload;

/* ---- pass/lower.c: rows for an executor; it says what they guarantee ---- */
typedef struct SchedNeeds {
    const SchedEdge *edge; /* NULL: the chain of stages */
    int n_edge;
    const SchedParam *param;
    int n_param;
    const char *unshard; /* as sched_unshard() reads it; NULL: no UNSHARD and RESHARD at all */
    int deferred_reduce, defer;
    int send_budget; /* 0: none */
    int buffers;     /* what to verify against; 0: rendezvous, the strictest */
    const SchedOffload *offload; /* NULL: no stash leaves the device, but those of the rows */
} SchedNeeds;
int sched_lower_for(Schedule *s, const SchedNeeds *needs, SchedError *e);
int sched_lower(Schedule *s, int window, SchedError *e); /* for the chain; not verified */

/* ---- verify/verify.c: do the rows run to their end; edge NULL: the edges they use ---- */
int sched_verify(const Schedule *s, const SchedEdge *edge, int n_edge, const SchedParam *param,
                 int n_param, int buffers, SchedError *e);

/* ---- live.c: the most microbatches alive at once ---- */
int sched_live(const Schedule *s, int stage);       /* from F to B or W: stash slots of a run */
int sched_live_rank(const Schedule *s, int rank);   /* of all stages of a rank: microbatch-chunks */
int sched_live_saved(const Schedule *s, int stage); /* from I to W: slots of PpCtx.saved */

#ifdef __cplusplus
}
#endif
#endif

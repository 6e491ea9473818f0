/*
 * schedule.h - pipeline schedules: the IR, its generators and passes, the verifier and the simulator.
 *
 * A Schedule is one row of actions per rank.  It comes from a CSV file (sched_load) or a generator (sched_generate),
 * "compute only" at first; the passes insert communication, parameter residency and gradient reductions until the rows
 * are complete, and the verifier proves that they run to the end.  sched_lower_for() does all of it for an executor.
 *
 * Plain C11 and libc.  No globals, no exit: every function that can fail returns 0 or a SCHED_E* status and fills
 * the SchedError.  Memory belongs to the Schedule; sched_free() releases it.
 */
#ifndef PP_SCHEDULE_H
#define PP_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The IR ---- */

enum SchedType {
    SA_IDLE,                                            /* an empty cell */
    SA_F, SA_B, SA_I, SA_W, SA_R,                       /* compute; B = I + W; R recomputes F before a backward */
    SA_SEND_F, SA_RECV_F, SA_SEND_B, SA_RECV_B,         /* activation to / gradient back to `peer` */
    SA_WAIT_SEND_F, SA_WAIT_SEND_B,                     /* the buffer of that send (same stage, microbatch, peer) is free again */
    SA_UNSHARD, SA_RESHARD, SA_REDUCE_GRAD, SA_WAIT_REDUCE_GRAD,    /* per stage, no microbatch */
    SA_OFFLOAD, SA_FETCH,                               /* a microbatch's stash to and from the host */
    SA_SEND_P, SA_RECV_P, SA_SEND_GP, SA_RECV_GP,       /* transmitted parameters of (stage, peer), once a step, no microbatch */
    SA_TYPES
};

/* An OVERLAP compound `(0F7;7B3)OVERLAP_F_B` is one cell made of several actions in sequence: all carry SCHED_PART, the
   last one also SCHED_LAST. */
enum { SCHED_PART = 1, SCHED_LAST = 2 };

typedef struct SchedAction {
    int32_t stage;                                      /* -1 for SA_IDLE */
    int32_t microbatch;                                 /* -1: none */
    int32_t peer;                                       /* sends, receives and their waits: the other stage, always filled in; else -1 */
    uint8_t type, overlap;
    uint16_t unused;
} SchedAction;

typedef struct SchedRow {
    SchedAction *a;
    int32_t n, cap;
} SchedRow;

typedef struct Schedule {
    char name[40];                                      /* the generator's, or "file" */
    int ranks, stages, microbatches;
    SchedRow *row;                                      /* one per rank */
    int *rank_of;                                       /* stage -> rank */
    int infer;                                          /* forwards only */
    int complete;                                       /* communication is in the rows (parsed so, or inserted) */
} Schedule;

enum { SCHED_OK, SCHED_EREFUSED = 1, SCHED_EUSAGE = 2, SCHED_ERESOURCE = 3 };

typedef struct SchedError {
    int status, rank, cell;                             /* cell: 0-based position in the row; -1 where there is none */
    char text[8192];                                    /* one sentence, or a report of several lines (the blocked state) */
} SchedError;

void sched_free(Schedule *s);                           /* NULL is fine */
Schedule *sched_clone(const Schedule *s);

int sched_parse(const char *text, size_t len, const char *origin, Schedule **out, SchedError *e);
int sched_load(const char *path, Schedule **out, SchedError *e);
void sched_write(const Schedule *s, FILE *f);           /* CSV, rows ended by '\n' */
char *sched_text(const Schedule *s, size_t *len);       /* the same without the last newline, malloc'ed: what fingerprints are of */
int sched_action_text(char *buf, size_t size, const SchedAction *a);        /* `0SEND_F3@2`; one action, no compound */
int sched_action_parse(const char *text, SchedAction *a);                   /* 1 if the whole text is one simple action */
const char *sched_type_name(int type);
void sched_drop_idle(Schedule *s);

/* ---- Generators ---- */

enum { SCHED_PLACE_DEFAULT = -1, SCHED_PLACE_LOOP, SCHED_PLACE_V };

/* Names: gpipe 1f1b interleaved1f1b loopedbfs interleavedzerobubble zbvzerobubble dualpipev zb-h1 zb-h2 forward-only, any case. */
int sched_generate(const char *name, int ranks, int stages, int microbatches, int placement, Schedule **out, SchedError *e);
int sched_is_name(const char *name);                    /* a generator's name (not a file) */
const char *sched_name(int i);                          /* i-th name, NULL past the end */

/* ---- Passes: each changes the schedule in place ---- */

/* Stage `from` feeds stage `to`.  gradient: a SEND_B comes back along it.  Bytes are of one microbatch, for the simulator. */
typedef struct SchedEdge { int from, to, gradient; double bytes_f, bytes_b; } SchedEdge;
/* A shared parameter: owner `from` transmits it to user `to` once a step and gets a gradient back (transmit), or both
   hold a copy whose gradients are summed (replicate).  Several parameters of one pair travel in one action. */
typedef struct SchedParam { int from, to, replicate, gradient; } SchedParam;

int sched_validate(const Schedule *s, SchedError *e);
int sched_runnable(const Schedule *s, SchedError *e);   /* a run has an act for every action: none of OFFLOAD, FETCH */
int sched_merge(Schedule *s, SchedError *e);
int sched_unshard(Schedule *s, int window, SchedError *e);
int sched_reduce_grad(Schedule *s, int deferred, SchedError *e);
int sched_comms(Schedule *s, const SchedEdge *edge, int n_edge, const SchedParam *param, int n_param, SchedError *e);
int sched_wait_send(Schedule *s, SchedError *e);        /* edge NULL above: the chain of adjacent stages */
int sched_budget(Schedule *s, int sends, SchedError *e);
int sched_defer(Schedule *s, SchedError *e);            /* PyTorch's rule; may need buffers: verify afterwards */
int sched_lower(Schedule *s, int window, SchedError *e);        /* unshard, reduce_grad, comms, wait_send; adjacent edges */

typedef struct SchedNeeds {
    const SchedEdge *edge;
    int n_edge;                                         /* edge NULL: the chain of adjacent stages */
    const SchedParam *param;
    int n_param;
    int window;                                         /* UNSHARD look-ahead in stages; 0: no UNSHARD and RESHARD at all */
    int deferred_reduce, defer, send_budget;            /* send_budget 0: none */
    int buffers;                                        /* what to verify against; 0: rendezvous, the strictest */
} SchedNeeds;

/* From compute-only rows (or complete ones, which are only checked) to the verified rows a rank executes: idle slots gone,
   every receive, send, wait, UNSHARD, REDUCE_GRAD in place.  Guarantees to the executor, per row:
   - for every edge across ranks: SEND_F follows its F (or SEND_B its B/I) and RECV precedes its consumer; messages of one directed
     edge are received in the order in which they are sent; an edge inside a rank has no actions (a hand-over);
   - each SEND has one WAIT_SEND with the same stage, microbatch and peer;
   - SEND_P comes after the owner's UNSHARD and before anything of the user; RECV_GP of an owner comes before its REDUCE_GRAD;
     pairs on one rank have no such actions: the executor adds the gradients itself at REDUCE_GRAD;
   - REDUCE_GRAD and WAIT_REDUCE_GRAD of stages that share parameters (owner or replica) stand at the row's end: all the
     REDUCE_GRADs, then all the WAITs, ascending. */
int sched_lower_for(Schedule *s, const SchedNeeds *needs, SchedError *e);

/* ---- Verifier ---- */

/* Semantics: a rank executes its row in order.  With buffers = 0 a SEND and its RECV are a rendezvous: both ranks wait until each
   is at the head.  With k > 0 a SEND waits while k messages of its directed edge (stage to stage) are not yet received, and a
   RECV waits for its message.  Messages of a directed edge are one FIFO, a communicator: a RECV that meets another message at its
   head is refused.  WAIT_SEND waits until that message is received; WAIT_REDUCE_GRAD until all REDUCE_GRADs of its replica set have
   begun.  Whatever finishes here finishes with any more asynchronous transport that keeps each edge's order.
   Also checked: every computation once and after what it needs, every message sent and received once.
   edge NULL: the edges that the rows themselves use. */
int sched_verify(const Schedule *s, const SchedEdge *edge, int n_edge, const SchedParam *param, int n_param, int buffers,
                 SchedError *e);

/* The largest number of microbatches of `stage` alive at once (F begun, last of B or W not ended): stash slots needed. */
int sched_live(const Schedule *s, int stage);
/* The same over all stages of a rank: microbatch-chunks. */
int sched_live_rank(const Schedule *s, int rank);
/* Microbatches of `stage` between I and W at once: slots of PpCtx.saved. */
int sched_live_saved(const Schedule *s, int stage);
/* What SCHEDULES.md 4 gives as the peak of live microbatch-chunks on a rank for a generator; -1: no closed form. */
int sched_peak_formula(const char *name, int ranks, int stages, int microbatches, int rank);

/* ---- Simulator ---- */

typedef struct SchedCosts {
    double time[SA_TYPES];                              /* F=1 I=1 W=1 B=2 R=1, the others 0 (sched_costs_default) */
    double *stage_time;                                 /* NULL, or [stage * SA_TYPES + type]; negative: time[type] */
    int stages;                                         /* of stage_time and the arrays below */
    double latency, per_byte;                           /* of a message between ranks */
    const SchedEdge *edge;                              /* bytes of edges; NULL: none */
    int n_edge;
    double *bytes_stash, *bytes_saved;                  /* NULL, or per stage: held from F to I/B (stash), from I to W (saved) */
    double *bytes_late;                                 /* NULL, or per stage: what of the stash is held until W */
    double overlap;                                     /* a compound begins and ends as one and costs max + overlap * (sum - max);
                                                           negative (default): its parts run one after the other */
    double around;                                      /* from a run's trace: what its step took beside the actions, the slowest rank; else 0 */
    int buffers;                                        /* -1: sends never wait (default); 0: rendezvous; k: as the verifier */
} SchedCosts;

typedef struct SchedSim {
    double makespan, span, bubble, bubble_span;         /* bubble = 1 - busy / (ranks * makespan); bubble_span: the papers' rate, by span */
    double *busy, *rank_span;                           /* per rank */
    int *peak;                                          /* live microbatch-chunks per rank */
    double *peak_bytes;
    double **start, **end;                              /* per rank, per action */
} SchedSim;

void sched_costs_default(SchedCosts *c);
void sched_costs_free(SchedCosts *c);
int sched_costs_set(SchedCosts *c, const char *list, SchedError *e);    /* `F=1,I=1,W=1,B=2,c=0`, of one stage `3F=2` */
int sched_costs_load(SchedCosts *c, const char *path, int stages, SchedError *e);   /* a run's Chrome trace */
int sched_simulate(const Schedule *s, const SchedCosts *c, SchedSim *out, SchedError *e);
void sched_sim_free(SchedSim *sim, int ranks);
/* Length of a lock-step run of computations, sends and receives, every one a step; -1 if it stands still or memory runs out. */
int64_t sched_steps(const Schedule *s, SchedError *e);

/* ---- Drawing, Chrome trace ---- */

void sched_draw_grid(const Schedule *s, const SchedSim *sim, FILE *f, int columns);
void sched_draw_svg(const Schedule *s, const SchedSim *sim, FILE *f);

/* The Chrome trace both of the simulator and of a run: complete events ("ph":"X"), `name` the action's IR text, `cat` its
   type, pid 0, tid the rank, ts and dur in microseconds, args {"step":N,"stage":S,"microbatch":M}.  Time a rank waits is its own
   event named "wait", cat "wait", so that the duration of an action is the action's alone.  The reader averages per
   (stage, type) over all steps after the first, where there are several.  Call open, any number of events, close. */
void sched_trace_open(FILE *f, const char *title, int ranks);
/* A second line for a rank, tid ranks + rank: events of the thread that runs halves of OVERLAP_F_B. */
void sched_trace_aside(FILE *f, int rank, int ranks);
void sched_trace_event(FILE *f, int rank, const SchedAction *a, int step, double ts, double dur);
/* What a rank does before and after the actions of a step: begin, norm, update. */
void sched_trace_around(FILE *f, int rank, const char *name, int step, double ts, double dur);
void sched_trace_wait(FILE *f, int rank, const SchedAction *a, int step, double ts, double dur);    /* waiting for a */
void sched_trace_close(FILE *f);
void sched_draw_trace(const Schedule *s, const SchedSim *sim, FILE *f);

/* ---- The command `ppsplit schedule ...`: exit status ---- */
int schedule_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif

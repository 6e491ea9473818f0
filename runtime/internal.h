/*
 * internal.h - what the runtime's own files share: the options, the run (one per process), the rank (one per thread
 * or process).  Generated code sees pp.h only.
 */
#ifndef PP_INTERNAL_H
#define PP_INTERNAL_H

#include "device/device.h"
#include "base/file/npy.h"
#include "api/pp.h"
#include "base/file/safetensors.h"
#include "schedule/schedule.h"
#include "status.h"
#include "net/transport.h"

#include <stdio.h>

/* ---- options.c ---- */

typedef enum { MODE_TRAIN, MODE_EVAL, MODE_INFER } Mode;
typedef struct {
    const char *name, *file;
} NameFile;

typedef struct {
    Mode mode;
    int ranks;   /* 0: one per stage */
    int threads; /* of a rank; 0: cores / ranks of the machine */
    const char *schedule;
    int placement; /* SCHED_PLACE_* */
    int buffers, send_budget, defer;
    int microbatches;     /* 0: as many as the model's rows ask for */
    int64_t batch, steps; /* 0: all rows; 0: one pass (eval, infer), 1 (train) */
    NameFile *data, *output;
    int n_data, n_output;
    int shuffle;
    uint64_t shuffle_seed, seed;
    OptimKind optimizer;
    OptimOptions optim;
    double clip_norm; /* 0: none */
    const char *params, *dump_grads, *checkpoint, *log_json, *trace, *until;
    const char *device, *transport; /* NULL: what there is */
    int tf32;
    int quiet, verbose;
    char folder[4096]; /* where the program lies: params/ is there */
} Options;

PpStatus options_parse(Options *o, int argc, char **argv,
                       const PpPlan *plan); /* PP_ERR_USAGE after a message; exits for --help */
void options_free(Options *o);

/* ---- machine.c ---- */

void pp_machine_check(void); /* ends the program where the CPU lacks instructions that it was compiled for */

/* ---- log.c ---- */

/* Records a failure of this rank (the first one stays) and returns its status. */
__attribute__((format(printf, 2, 3))) PpStatus pp_fail(PpStatus s, const char *fmt, ...);
void pp_failure_print(void); /* the recorded message, to stderr, once */
void pp_failure_tell(void);  /* all ranks know that one has printed it */
int pp_failure_told(void);
int pp_failure_first(void); /* of the ranks of this process that fail on their own */
double pp_now(void);        /* seconds, monotonic */

typedef struct Run Run;
typedef struct Rank Rank;
typedef struct Aside Aside;
typedef struct Stream Stream;

typedef struct {
    double loss, grad_norm, seconds;
    int64_t step;
} StepLog;
PpStatus log_open(Rank *r);
PpStatus log_step(Rank *r, const StepLog *s);
PpStatus log_close(Rank *r);
double *trace_of(const Rank *r, int64_t step);                                         /* its numbers, or NULL */
void trace_around(const Rank *r, int64_t step, int what, double waits, double starts); /* until now */
PpStatus trace_write(Rank *r); /* all ranks call it; rank 0 writes */
PpStatus log_memory(Rank *r);  /* all ranks call it; rank 0 prints */
PpStatus log_live(Rank *r);    /* --verbose, after the steps: microbatches that were alive at once */

/* ---- data.c: one per process ---- */

typedef struct {
    NpyFile *file; /* per model input; dtype 0: not given */
    int64_t rows;  /* samples in the files */
} Data;

struct Run {
    const Options *opt;
    const PpPlan *plan;
    Schedule *sched;
    Data data;
    int ranks;
    int m;      /* microbatches of a step */
    int *until; /* --until: per rank, actions to run; NULL */
    int64_t batch, steps, steps_per_epoch;
    int64_t *row0;      /* [m + 1]: first row of each microbatch in the minibatch */
    int64_t *row0_rest; /* eval, infer: of the last step of a pass when the rows do not divide, or NULL */
    uint64_t hash;      /* of everything ranks must agree on */
    int cores;          /* of this process */
    LocalHub *hub;      /* NULL under MPI */
    int mpi;            /* ranks are processes */
    int *output_wanted; /* per model output: index into opt->output, or -1 */
};

PpStatus data_open(Run *run); /* files, shapes, rows, microbatches */
void data_close(Run *run);
int64_t data_tokens(const Run *run);                    /* tokens of a step */
void data_fill(Rank *r, int64_t step);                  /* 0-based */
int data_stays(const Rank *r, int64_t step);            /* the step sees the rows that are there */
const int64_t *data_rows(const Run *run, int64_t step); /* row0 of that step */
int64_t data_rows_before(const Run *run, int64_t step); /* rows of all steps before it */

/* ---- plan/: what a rank holds ---- */

typedef struct {
    void *buf;
    int64_t bytes, tag;
    int peer;
    int pending;
    int from, to, shared; /* stages; of a shared parameter: an edge of its own */
    PpRequest req;
    DeviceEvent ready, done; /* device: buf may be read (sent) or written; the transport has done so */
    void *wire;              /* what the rank's wire keeps of it */
} Message;

/* How tensors travel between ranks.  Buffers are the device's; all is in the order of the stream Rank.at: a message
   that is posted comes after what was enqueued before, and what is enqueued after finish() comes after the message. */
typedef struct {
    const char *name;
    PpStatus (*open)(Rank *r); /* when messages have their buffers; all ranks call it */
    void (*close)(Rank *r, int broken);
    PpStatus (*post)(Rank *r, int first, int count, int receive); /* of Rank.msg */
    PpStatus (*finish)(Rank *r, Message *m);
    PpStatus (*poll)(Rank *r);
    int (*alive)(Rank *r); /* device: 0 when what was enqueued may never end, another rank having failed */
} Wire;

/* One parameter of one stage on this rank, with its optimizer state. */
typedef struct {
    const PpParam *p;
    char *value, *grad;
    char *state[OPTIM_STATES]; /* as its row of optimizers.h names them; NULL */
    int counts;     /* in the gradient norm: trainable, and this stage owns it */
    int update;     /* the optimizer changes it (owner and replicas) */
    int dump_grad;
} RankParam;

/* A gradient that is added to the owner's: in memory, or in a message. */
typedef struct {
    int owner, user; /* local stages; user -1: elsewhere */
    int owner_stage, user_stage;
    int owner_param, user_param; /* indices into the stages' params */
    int replicate;
    char *buf;         /* what is added, when the user is elsewhere */
    int message, back; /* numbers of messages: the contribution, the sum sent back; -1 */
} Contribution;

typedef struct {
    const PpStage *st;
    char *param, *grad, *konst;
    RankParam *rp;
    void **in, **out, **dy, **dx;    /* [microbatch][n] */
    char **stash, **saved;           /* [microbatch] */
    PpCtx handles;                   /* device: stream, blas */
    DeviceEvent out_ready, out_done; /* device: outputs of a microbatch may be copied to the host; have been */
    void **out_again; /* of a recomputed forward: R writes them and the backward reads them; else as out */
    char **stash_again;
    void *state;
} RankStage;

typedef struct {
    SchedAction a;
    int local;                    /* its stage here */
    int first, count;             /* messages it starts, or ends (WAIT_SEND_*) */
    int await_first, await_count; /* in Rank.await: messages it needs */
    int again;                    /* the microbatch's forward is recomputed by an R */
    int together;                 /* first half of a compound: runs beside the next op, on a thread of its own */
} Op;

typedef struct {
    int64_t param, grad, optimizer, konst, slots, work, data, output, comm, library, total;
    int64_t slots_bound;  /* activations: what no placement can go below */
    int live, live_bound; /* microbatches: planned, closed form of the schedule */
    int messages, threads, aside;
    int64_t host; /* device: pinned memory of the host */
    char where[80], wire[24];
} MemoryPlan;

/* What a step does beside its actions, traced behind them. */
enum { AROUND_BEGIN, AROUND_NORM, AROUND_UPDATE, AROUND };

struct Rank {
    Run *run;
    int rank;
    Transport t;
    int n_stage;
    RankStage *stage;
    int *local_of; /* per stage: index here, or -1 */
    Op *op;
    int n_op;
    Message *msg;
    int n_msg, cap_msg;
    int *await;
    int n_await;
    Contribution *contrib;
    int n_contrib;
    char *arena, *work, *work_aside; /* work_aside: of the thread that runs beside */
    char *stat_copy;                 /* running statistics, kept while an R runs */
    int threads;                     /* of OpenMP */
    Aside *aside;                    /* NULL: compounds run one half after the other */
    int live, live_most;             /* microbatch-chunks alive: now, and the most there were */
    int stopped;                     /* --until: computations are over, messages still flow */
    MemoryPlan mem;
    /* device */
    Device dev;
    int on_device; /* PpPlan.device is not the CPU */
    DeviceParam *params;
    int at;           /* the stream after whose last work the next comes */
    DeviceEvent turn; /* from one stream to the next */
    const Wire *wire;
    void *wire_state;
    Stream *stream; /* stream.c; NULL on the CPU */
    /* data */
    char **chunk;          /* per model input: first microbatch's place, NULL: not needed here */
    char **chunk_host;     /* where the host fills them: the same places on the CPU */
    int64_t *chunk_stride; /* bytes from one microbatch's to the next; 0: one for all */
    int64_t *order;        /* --shuffle: rows of the epoch */
    int64_t epoch;
    int filled;
    char *scale, *scale_host; /* loss_scale, PP_ALIGN bytes a microbatch */
    int uses_scale;
    /* outputs */
    char **collect; /* per model output: room for all rows, or NULL */
    int64_t collect_rows;
    double *loss; /* per microbatch */
    double *norm; /* [1 + n_param]: loss, then sums of squares by parameter */
    FILE *json;
    int *held; /* files without a name, while destinations are tried */
    int n_held;
    int64_t tokens;
    double *span; /* --trace: wait, start, end per op and for AROUND, for trace_steps steps */
    int trace_steps;
    double trace_zero;
};

/* A tensor of one (stage, microbatch): alive from action `birth` (-1: never) to action `death`. */
typedef struct {
    int64_t bytes, offset;
    int birth, death, msg; /* msg: the message that brings it, -1 */
} Instance;
/* slots.c; bound: what no placement can go below */
PpStatus slots_place(Instance *inst, int64_t n_inst, int n_op, int64_t *bytes, int64_t *bound);

PpStatus plan_rank(Rank *r);
void plan_free(Rank *r);
int64_t align_up(int64_t n);
int64_t stats_bytes(const PpStage *st); /* of its running statistics */
int64_t tensor_bytes(const PpTensor *t, int64_t rows, int64_t full_rows);

/* ---- conv.c: bytes of tensors that open() functions of this thread took ---- */

extern _Thread_local int64_t pp_library_bytes;
void conv_separate(void); /* the next stage opened has a scratch of its own */

/* ---- params.c ---- */

PpStatus params_load(Rank *r);

/* ---- exec.c ---- */

void exec_begin(Rank *r); /* gradients 0, copies of parameters */
PpStatus exec_step(Rank *r, int64_t step);
void exec_outputs(Rank *r, const PpOutput *o, const char *src, int m, int64_t step); /* rows to their place */
void exec_loss(Rank *r, const void *loss, int m);

/* ---- stream.c: a rank on a device: pinned memory, events, the end of a step ---- */

PpStatus stream_open(Rank *r);
void stream_close(Rank *r);
void stream_go(Rank *r, int stream);              /* Rank.at becomes `stream` */
void stream_fork(Rank *r, int first, int second); /* both come after Rank.at, which becomes `first` */
void stream_join(Rank *r, int first, int second); /* Rank.at becomes `second`, after both */
void stream_feed(Rank *r, int64_t step);          /* the step's rows and loss scales */
void stream_fed(Rank *r, int m);                  /* Rank.at after microbatch m's rows are there */
void stream_held(Rank *r, const RankStage *rs);   /* Rank.at after the last outputs of the stage are on their way */
void stream_take(Rank *r, RankStage *rs, int m, int64_t step);  /* outputs and loss of a microbatch, to the host */
int stream_takes(const Rank *r, const PpStage *st, int output); /* does the host want it */
double *stream_norms(Rank *r);                                  /* where the device writes them */
PpStatus stream_settle(Rank *r, int64_t step); /* the host waits for the step: losses, norms and outputs are there */
void stream_mark(Rank *r, int64_t step, int k, int what);       /* --trace: op k waits, starts, ends */
const void *stream_host(Rank *r, const void *p, int64_t bytes); /* a tensor's bytes on the host, until the next call */
void stream_upload(Rank *r, void *to, const void *from, int64_t bytes);

/* ---- devices.c: which device, which transport ---- */

PpStatus devices_choose(const Options *o, const PpPlan *plan, PpPlan *chosen);
PpStatus devices_check(const Run *run); /* --transport against what this program is */
int device_number(const DeviceOps *op, int host_rank);
PpStatus devices_open(Rank *r); /* on the rank's thread */
PpStatus devices_wire(Rank *r); /* all ranks call it */
extern const Wire wire_host, wire_local, wire_staged, wire_nccl;
PpStatus device_check(Rank *r, const char *what); /* has anything failed on this thread */

/* ---- aside.c: a second thread of a rank, for the halves of OVERLAP_F_B ---- */

int aside_pair(const SchedRow *row, int i); /* do the actions i and i + 1 make a compound of two stages */
int aside_wanted(const Rank *r); /* has the row compounds of two stages, and the rank a place for each half */
PpStatus aside_open(Rank *r);
void aside_close(Rank *r);
void aside_start(Aside *a, void (*work)(void *), void *arg);
void aside_join(Aside *a);

/* ---- until.c: --until ACTION ---- */

PpStatus until_plan(Run *run); /* finds what must run before the action, on every rank */
void until_print(const Rank *r);

/* ---- destinations.c: what is written, before the first step ---- */

PpStatus destinations_apart(const Run *run); /* nothing is written over what is read */
PpStatus destinations_try(Rank *r);          /* the places are there and have room */
void destinations_release(Rank *r);          /* when all ranks have tried */

/* ---- finite.c ---- */

PpStatus finite_stop(Rank *r, const StepLog *s); /* all ranks call it: says why, returns PP_ERR_FINITE */
PpStatus finite_parameters(Rank *r);             /* all ranks call it, before a checkpoint */

/* ---- optim.c ---- */

PpStatus optim_options(OptimKind *kind, OptimOptions *o); /* defaults where none is given; PP_ERR_USAGE */
int optim_states(const Options *o);                       /* state tensors per parameter */
int optim_count(const Rank *r);     /* parameters of the rank's stages */
void optim_list(const Rank *r, DeviceParam *list);
void optim_update(Rank *r, int64_t step, double scale);

/* ---- checkpoint.c ---- */

PpStatus grads_dump(Rank *r);
PpStatus checkpoint_write(Rank *r, int64_t step);
PpStatus outputs_write(Rank *r);
PpStatus make_folder(const char *path);
/* Every rank hands in its status; if any failed, the first one's message is printed once and all get a failure. */
PpStatus ranks_agree(Rank *r, PpStatus s);

#endif

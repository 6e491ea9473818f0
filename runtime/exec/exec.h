/*
 * exec.h - the program: a run (one per process), its ranks (one per thread or process), and how a
 * step is carried out.
 */
#ifndef PP_EXEC_H
#define PP_EXEC_H

#include "device/library.h"
#include "io/checkpoint.h"
#include "io/feed.h"
#include "io/files.h"
#include "io/log.h"
#include "io/results.h"
#include "io/store.h"
#include "io/trace.h"
#include "net/mesh.h"
#include "watchdog.h"
#include "optim/loss_scale.h"

/* What the ranks of a process share; ranks of different processes must agree on it. */
typedef struct Run {
    Pool pool; /* what lasts as long as the process */
    const Options *opt;
    const PpPlan *model;
    Schedule *sched;
    Data data;
    Index from;  /* --resume: the checkpoint; path NULL: none */
    Index given; /* --params: the checkpoint; path NULL: files of stages, or none */
    int64_t updates; /* of the optimizer, before this run */
    LossScale scale; /* of the first step */
    int ranks, cores;   /* of a pipeline; of this process */
    int threads; /* of a rank; on machines that differ the most of any, so that all plan alike */
    int64_t process_bytes; /* resident before anything was planned; 0: not known */
    int replicas;       /* of the pipeline: --dp */
    int members;        /* of each of its ranks: ppsplit --tensor, --sequence, --expert */
    int *until;         /* --until: per rank, actions to run; NULL */
    char arithmetic[200]; /* what bits depend on beside options: instructions, libraries */
    char chosen[400];   /* --schedule auto: what it chose and why; "" */
    int *output_wanted; /* per model output: index into opt->data.output, or -1 */
    struct Run *evaluation; /* --eval-data; NULL: none */
} Run;

/* All there are. */
static inline int run_ranks(const Run *run) { return run->replicas * run->ranks * run->members; }

typedef struct HostSide HostSide;
typedef struct Sampler Sampler;

/* A stage beside its plan. */
typedef struct {
    PpCtx handles; /* device: stream and blas */
    void *state;   /* what its open() returned */
    PpMesh mesh;   /* its collectives */
    /* device: outputs of a microbatch may be copied to the host; have been */
    DeviceEvent out_ready, out_done;
    int summing, turns; /* its sums over replicas are under way; turns that are taken */
    int bad; /* Seek: a gradient of its parameters is not finite, or was made of such */
    /* --trace: when; seconds of them that were taken between actions */
    double began, beside;
    char *window; /* the stage's block while it is there; NULL: at home */
    /* --offload params: it is on its way there, its gradients on their way back; they have changed
     * since they came */
    int coming, going, changed;
    const Op *late; /* an UNSHARD whose copy waits for the stage's next computation */
} StageRun;

/* What is not finite and made a loss or a gradient so, as a rank sees it.  The first kind counts, and
 * of it the first in order.  GRADIENT: of a parameter, or one that is sent back, although what its
 * backward was given is finite; MASKED: minus infinity, which may be meant; LOSS: of a microbatch. */
typedef struct {
    enum {
        BAD_PARAM,
        BAD_INPUT,
        BAD_GRADIENT,
        BAD_VALUE,
        BAD_MASKED,
        BAD_LOSS,
        BAD_NOTHING
    } kind;
    int64_t order[2];
    int stage, microbatch, replica;
    char name[200];
} Finding;

/* In a step that runs once more, which microbatch of it is looked at; -1: all backwards are */
typedef struct {
    int on, microbatch;
    Finding found;
    /* of all ranks' norms, before it runs once more; param NULL: all are finite */
    const PpParam *param;
    int stage;
} Seek;

typedef struct Rank {
    const Run *run;
    Pool pool; /* what it has taken, but for its plan's */
    /* All ranks; those along each axis of it: its pipeline; the ranks of the same number in all
     * replicas of the pipeline; its members.  Of the first two those of the same member */
    Group group, along[AXES];
    int replica, member;
    int threads; /* of OpenMP */
    Data data;   /* run->data with the microbatches of its replica */
    Device dev;
    Plan plan;
    Links links[AXES];
    Feed feed;
    Results results;
    struct {
        Log log;
        Trace trace;
        MemoryReport memory;
        double busy, passes; /* of a step: as WORD_BUSY and WORD_PASSES */
    } report;
    HostCopy files; /* tensors from and to files */
    struct {
        Watchdog *dog; /* NULL: none */
        int first;     /* the number that its first op has there */
    } watch;
    struct Rank *evaluation; /* of run->evaluation; NULL: none */
    struct {
        Saver *saver;    /* NULL: no checkpoints */
        Held held;       /* until all ranks have tried where they will write */
        int64_t updates; /* of the optimizer */
        int64_t step;    /* of the newest checkpoint */
        int ends;        /* asked by a signal: not all steps run */
    } save;
    Sampler *sampler; /* NULL: no tokens are drawn */
    HostSide *host;   /* NULL on the CPU */
    struct {
        Store *stash; /* what is not on the device all the time; NULL: all is */
        Store *home;  /* --offload params: parameters, gradients, optimizer state */
        ShardCount count;
    } away;
    StageRun *stage;
    /* Per stage; the first one's serves all, unless two run at the same time */
    PpLibrary *library;
    struct {
        DeviceParam *at;
        int n;
    } params;
    struct {
        int pass;            /* of the step, from 0: --accumulate, for each of its groups */
        int live, live_most; /* microbatch-chunks alive: now, and the most there were */
        LossScale scale;     /* of the loss */
        int gathered, taken; /* microbatches that came to a loss over all of them, and left it */
        Seek seek;           /* on: the step runs once more */
        char *statistics;    /* running ones before the step; NULL: not kept */
        int stopped;         /* --until: computations are over, messages still flow */
    } now;                   /* of the step that runs */
} Rank;

/* A pass's number in the run, for --trace. */
static inline int64_t exec_turn(const Rank *r, int64_t step)
{
    return (step - r->run->data.start.step) * data_passes(&r->run->data) + r->now.pass;
}

/* Of the replica's groups of a step the one that runs, from 0 (--groups). */
static inline int exec_round(const Rank *r) { return r->now.pass / r->run->data.passes; }

/* A microbatch's number in the step, of whose passes the rank runs one. */
static inline int exec_in_step(const Rank *r, int m)
{
    return r->now.pass * r->run->data.microbatches + m;
}

/* Whether this rank prints and writes what all replicas and members have alike. */
static inline int speaks(const Rank *r) { return r->replica == 0 && r->member == 0; }

static inline int on_device(const Rank *r) { return r->plan.ask.on_device; }

/* Where a stage's functions find its parameters, their half copies, and its gradients */
typedef struct {
    char *param, *half, *grad;
} ParamBlock;
static inline ParamBlock param_block(const Rank *r, int local)
{
    const StagePlan *rs = &r->plan.stage[local];
    char *at = r->stage[local].window;
    if (!at)
        return (ParamBlock){rs->param, rs->half, rs->grad};
    return (ParamBlock){at, rs->st->bytes.half ? at + align_up(rs->st->bytes.param) : NULL,
                        r->away.home ? at + values_bytes(rs->st) : rs->grad};
}

/* Sets gradients to zero, in a group's first pass. */
static inline int shards_fresh(const Rank *r, const Op *op)
{
    return (op->shard & SHARD_FRESH) && r->now.pass % r->run->data.passes == 0;
}

/* machine.c */
/* Ends the program if the CPU lacks instructions that it was compiled for */
void pp_machine_check(void);

/* schedule.c */
/* A file says itself how many ranks and microbatches there are */
PpStatus schedule_read(Run *run, Options *o);
PpStatus schedule_make(Run *run); /* verified rows */
int schedule_is_auto(const Options *o);

/* schedule_auto.c: --schedule auto; rows of computations.  e: why not, "" where pp_fail() has said
 * it */
PpStatus schedule_choose(Run *run, const SchedNeeds *needs, SchedError *e);

/* recompute.c: --recompute; R's in the rows, before they are lowered */
PpStatus recompute_insert(Run *run);
int recompute_is_auto(const Options *o);

/* recompute_auto.c: the least R's with which each rank fits --memory; e: why not, "" where
 * pp_fail() has said it */
PpStatus recompute_choose(Run *run, const SchedNeeds *needs, SchedError *e);

/* offload.c */
/* --offload stash: verified rows with copies in the place of the schedule; e: why not, "" where
 * pp_fail() has said it */
PpStatus offload_lower(Run *run, const SchedNeeds *needs, SchedError *e);
/* what a rank's planned step takes by these rows, and how many stashes leave; not placed: what no
 * placement of its activations could go below, at a small part of the time */
PpStatus schedule_bytes(const Run *run, const Schedule *s, int rank, int placed, int64_t *bytes,
                        int *moved);

/* measure.c: `pipeline measure`; world: the processes of mpirun; NULL: ranks are threads */
PpStatus measure_machine(const Options *o, const PpPlan *model, Group *world, int cores);

/* begin.c: the checkpoint of --resume or --params, of which every byte is what was written; all
 * processes call it, world NULL: there is one */
PpStatus begin_from(Run *run, Options *o, Group *world, PpStatus s); /* s: what was before */
/* Warnings of it: a newer one is damaged, or it was computed with another arithmetic */
void begin_said(const Rank *r);

/* same.c; all ranks call them */
/* The program and the options, before anything is read */
PpStatus same_start(Run *run, Group *world);
/* run->arithmetic, which is one, unless --accept cpu; world NULL: there is one process */
PpStatus same_arithmetic(Run *run, Group *world);
/* Plan, data and parameters, once they are known */
PpStatus same_everywhere(Rank *r);
/* current.c: refuses if the folder's pipeline.c is not the one that the program was built from */
PpStatus program_current(const PpPlan *model, const char *folder);

/* save.c: when checkpoints are written, and where a resumed run begins */
/* These two need no other rank: the checkpoint, and what of it says how data are cut; then, with
 * the data, where the run begins; first: of the ranks, whose the digests of the data are */
PpStatus save_find(Run *run, Options *o, int64_t below);
PpStatus save_resume(Run *run, int first);
PpStatus save_open(Rank *r);
/* whether checkpoints are written; then signals are caught */
int save_wanted(const Options *o);
void save_say(const Rank *r);                  /* what a signal will do */
void save_tell(Rank *r);                       /* before the sum that ends a step */
PpStatus save_step(Rank *r, int64_t done);     /* all ranks call it, after that sum */
PpStatus save_end(Rank *r);                    /* all ranks call it, after the last step */

/* until.c: --until ACTION */
PpStatus until_plan(Run *run); /* finds what must run before the action, on every rank */
void until_print(const Run *run);

/* devices.c: what the stages run on */
PpStatus devices_choose(const Options *o, const PpPlan *model, PpPlan *chosen);
/* On the rank's thread; overlap: two stages may run at the same time */
PpStatus devices_open(Rank *r, int overlap);

/* groups.c */
/* its links along one; like: whose device and options they go by */
PpStatus rank_links(Rank *r, const Rank *like, int axis);
PpStatus groups_open(Rank *r); /* all ranks call it */
void groups_close(Rank *r);

/* replicas.c: what replicas have to say to one another beside gradients; all ranks call these */
/* results.norm[0] becomes the sum over all groups, on replica 0 */
PpStatus replicas_loss(Rank *r);
PpStatus replicas_statistics(Rank *r); /* all have replica 0's running statistics */
PpStatus replicas_norms(Rank *r);   /* divided: results.norm, of blocks of all replicas */
PpStatus replicas_outputs(Rank *r); /* rows and sums come to replica 0 */

/* setup.c: everything that a rank allocates */
int rank_threads(const Run *run, int host_ranks); /* of OpenMP */
PlanRequest plan_request(const Run *run, int rank, int64_t tags);
PpStatus rank_open(Rank *r);
void rank_close(Rank *r);

/* ranks.c */
PpStatus run_threads(Run *run);
PpStatus run_process(Run *run, const Group *world, PpStatus prepared);

/* train.c */
PpStatus steps_run(Rank *r);
PpStatus steps_finish(Rank *r); /* outputs, checkpoint, trace */

/* evaluate.c: --eval-data; without it all of these do nothing */
/* Needs no other rank: run->evaluation, once run->sched is there; part, parts: as of data_check()
 */
PpStatus evaluation_prepare(Run *run, int part, int parts);
void evaluation_free(Run *run);
PpStatus evaluation_open(Rank *r);                /* after rank_open() */
PpStatus evaluation_links(Rank *r);               /* all ranks call it, after the training's */
void evaluation_close_links(Rank *r, int broken); /* with the training's */
void evaluation_close(Rank *r);                   /* before rank_close() */

/* sample.c: without `pipeline sample` all of these do nothing */
PpStatus sample_output(Run *run); /* once the data are open: which output is the logits */
PpStatus sample_open(Rank *r);
PpStatus sample_step(Rank *r, int64_t step); /* all ranks call it: the next token of every row */

/* exec.c: one step */
PpStatus exec_gather(Rank *r); /* divided: after the update, all parameters on all replicas */
/* Of a group: gradients 0; of a step's first one: copies of parameters */
void exec_begin(Rank *r);
PpStatus exec_pass(Rank *r,
                   int64_t step); /* the schedule once, for the microbatches of r->now.pass */
/* A parameter rounded into its half copy, where it has one, in the current stream */
void half_copy(Rank *r, int local, int param);

/* optimizer.c */
int optim_states(const Options *o); /* state tensors per parameter */
int optim_count(const Plan *p);     /* pieces of parameters, and those that have none */
PpStatus optim_patterns(const Options *o, const PpPlan *model); /* each of them matches something */
void optim_list(const Plan *p, const Options *o, DeviceParam *list);
double optim_rate(const Options *o, int64_t step, int64_t steps); /* of a step from 0 */
/* updates: so many there were before */
void optim_update(Rank *r, int64_t updates, double lr, double scale);

/* shards.c: --offload params, --zero 3 */
PpStatus home_open(Rank *r);
/* UNSHARD, RESHARD, and computations before they run */
void shards_op(Rank *r, const Op *op);
/* A computation's block is there */
PpStatus home_await(Rank *r, const Op *op);
/* zero 3: `run` of an UNSHARD's, from the first on, beside computations */
PpStatus home_transfers(Rank *r, const Op *op, PpStatus (*run)(Rank *r, const Op *op, int from));
/* Before this op the gradients that are complete are at home */
PpStatus home_settle(Rank *r, const Op *op);

/* members.c: what members of a rank do together */
/* What a stage's function is handed whatever the rows: its blocks, handles, members, the step */
PpCtx stage_context(Rank *r, const Op *op, int64_t step);
void meshes_open(Rank *r); /* of its stages */
PpStatus members_sum(Rank *r, const Transfer *t, char *work); /* DO_MEMBERS */
/* Its collectives in a step, and the bytes that they have sent */
void members_count(const Rank *r, int64_t *calls, int64_t *sent);

/* compute.c */
PpStatus compute(Rank *r, const Op *op, int64_t step);

/* forward_done.c: outputs and loss of the pass's microbatch m to the host */
void forward_done(Rank *r, int stage, int m, int64_t step);

/* minibatch.c: F and B of a loss over the whole minibatch */
PpStatus minibatch_compute(Rank *r, const Op *op, int64_t step);

/* seek.c: around a forward of the microbatch that is looked at */
void seek_begin(Rank *r, const PpStage *st, const PpCtx *c);
void seek_end(Rank *r, const PpStage *st, const PpCtx *c);
/* After a B, I or W, where backwards are looked at; row: the microbatch's first in the step */
void seek_backward(Rank *r, const Op *op, const PpCtx *c, int64_t row);

/* host_side.c: a rank on a device: pinned memory, events, the end of a step */
PpStatus host_open(Rank *r);
void host_close(Rank *r);
/* Of a pass: this rank's messages go on while the host waits in an action */
void host_begin(Rank *r);
void host_feed(Rank *r, int64_t step); /* the pass's rows and loss scales */
/* The current stream after microbatch m's rows are there */
void host_fed(Rank *r, int m);
/* The current stream after the stage's last outputs are on their way */
void host_held(Rank *r, int stage);
/* Outputs and loss of a microbatch, to the host */
void host_take(Rank *r, int stage, int m, int64_t step);
int64_t host_room(const Rank *r); /* bytes that go through files.room at once; the CPU: any */
double *host_norms(Rank *r);                            /* where the device writes them */
void host_mark(Rank *r, int64_t step, int k, int what); /* --trace: op k waits, starts, ends */
/* Waits for the pass: losses, norms and outputs are there */
PpStatus host_settle(Rank *r, int64_t step);

/* finite.c: after a step whose loss or gradient is not finite */
/* One more thing that is not; name: its own, or its value's */
void finite_found(Finding *first, Finding one, const char *name);
/* With --on-nonfinite skip, running statistics: kept before a step, back: as they were before it */
PpStatus finite_statistics(Rank *r, int back);
/* All ranks call it: should the step run once more, to find the first value that is not finite?
 * Then r->now.seek is on, and *again 1, on all ranks. */
PpStatus finite_again(Rank *r, const StepLog *s, int *again);
/* All ranks call it: says why and returns PP_ERR_FINITE, or with --on-nonfinite skip says it and
 * lets the run go on, unless parameters are what is not finite */
PpStatus finite_stop(Rank *r, const StepLog *s);
PpStatus finite_parameters(Rank *r, int64_t done); /* all ranks call it, before a checkpoint */

#endif

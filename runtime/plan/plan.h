/*
 * plan.h - the plan of a rank's step, made before anything runs: its actions, every tensor with its
 * place in one arena, every message with peer, name and buffer, and for each action its messages in
 * order.
 *
 * In: the generated tables, a verified schedule, rows of the microbatches.  Nothing here knows
 * options or files, devices (except by number), or how messages travel.
 */
#ifndef PP_PLAN_H
#define PP_PLAN_H

#include "core/core.h"
#include "divided.h"
#include "optim/optim.h"
#include "schedule/schedule.h"

typedef struct {
    const PpPlan *model;
    const Schedule *schedule;
    int rank, microbatches;
    /* of the pipeline; replica -1: the one whose shares take most, which `counted` finds */
    int replica, replicas;
    int member; /* of the rank, which has plan_members() of them */
    /* Groups of microbatches that each replica runs in a step, one after the other; gradients are
     * summed over all groups in order.  0: one */
    int rounds;
    int64_t bucket;        /* bytes of gradients that they sum at a time */
    /* What replicas divide (--zero): 1: the optimizer's state, so that each updates its share of
     * the parameters; 2: gradients too; 3: parameters too.  0: nothing */
    int zero;
    int passes;      /* of the schedule over which gradients are added up before anything else */
    int whole_grads; /* divided: sums go to all replicas all the same, for --dump-grads */
    const int64_t *row0; /* [microbatches + 1]: first row of each */
    int masked;          /* --debug-mask-minibatches: each computes with all of these rows */
    int train;
    int on_device;            /* outputs are copied to the host while the device computes on */
    int overlap;              /* the halves of a compound run at the same time */
    int threads;              /* of the rank, each of which wants scratch for convolutions */
    int states;               /* tensors of optimizer state per parameter */
    struct {
        const int *wanted; /* per model output: >= 0 it is to be kept */
        int64_t rows;      /* so many rows of it */
        PpLength length;   /* where lengths vary, the longest */
    } output;
    int64_t tags;             /* names that messages may have */
    int away; /* parameters, gradients and optimizer state are not in the arena (sharded.c) */
    /* sums over replicas have their bytes, but no messages: for who compares */
    int counted;
    int unplaced; /* activations are counted, as slots_most, and have no places: for who compares
                   */
    /* Parameters, their half copies and constants are that plan's, of the same rank, which has its
     * places; NULL: its own */
    const struct Plan *lender;
} PlanRequest;

/* Ranks of one pipeline; ranks of the same number in all replicas of it; members of a rank, whose
 * messages are those of collectives (net/collective.c), in no transfer. */
enum { AXIS_PIPE, AXIS_PEERS, AXIS_MEMBERS, AXES };

/* While planning, a place in the arena: a parameter of a stage here, a use's gradient of it, summed
 * over the microbatches; a contribution; bytes of a stage's parameters or gradients; bytes of what
 * an UNSHARD has brought; room for gradients of other replicas; sums over earlier groups, or of all
 * of them what stays of a share. */
typedef struct {
    enum {
        SPOT_NONE,
        SPOT_INSTANCE, /* its number is `offset' */
        SPOT_VALUE,
        SPOT_USE,
        SPOT_CONTRIBUTION,
        SPOT_PARAMETERS,
        SPOT_GRADIENT,
        SPOT_WINDOW,
        SPOT_REDUCTION,
        SPOT_SUM
    } kind;
    int local, param, use, contribution, op;
    int64_t offset;
} Spot;
/* A tensor that another rank sends or gets once a step. */
typedef struct {
    void *buf;
    int64_t bytes, tag;
    int peer, sent; /* its number along the axis; it gets it from here */
    int axis;
    /* stages, or replicas; of a shared parameter: an edge of its own */
    int from, to, shared;
    /* of an edge of stages: the tensor, of which microbatch, and its rows; else NULL */
    const PpTensor *t;
    int microbatch;
    int64_t rows;
    PpLength length; /* of its microbatch in this pass, as this rank found it */
    Spot at;         /* planning: its buffer */
} Message;

/* What an action does with messages and parameters' gradients, one after the other.
 * ADD_OWN: of two uses in one stage; also where computations are over and the rest is not added.
 * MEMBERS: `to` becomes the sum over the members, row `row` of the stage's collectives. */
typedef enum {
    DO_SEND,
    DO_RECV,
    DO_FINISH,
    DO_ADD,
    DO_ADD_OWN,
    DO_MEMBERS,
    DO_COPY,
    DO_ROUND
} TransferKind;
typedef enum { ROUND_ANY, ROUND_LATER, ROUND_NOT_LAST, ROUND_LAST } RoundKind;

typedef struct {
    TransferKind kind;
    /* messages: SEND and RECV start them together, FINISH waits for them */
    int first, count;
    char *to; /* ADD: to += from; COPY: to = from */
    const char *from;
    /* ROUND: this parameter of this stage, into its half copy; MEMBERS: stage */
    int local, param;
    int row;
    int64_t bytes;
    int dtype;
    RoundKind rounds; /* in which of a step's */
    Spot to_spot, from_spot; /* planning: of ADD, ADD_OWN, MEMBERS, COPY */
} Transfer;

/* What an UNSHARD fetches and a RESHARD writes back besides the parameters.  FRESH: gradients are
 * not fetched, they begin with zeros.  STATS: running statistics are written back, because a
 * forward has changed them. */
enum { SHARD_GRADS = 1, SHARD_FRESH = 2, SHARD_STATS = 4 };

typedef struct {
    SchedAction a;
    int local;                    /* its stage among the rank's own; -1: none */
    int first, count;             /* in Plan.transfer: what it does beside computing */
    int await_first, await_count; /* in Plan.await: messages it needs before */
    /* computations: what of the microbatch's stash an R computes again, as SchedAction.peer of an
       R; 0: nothing */
    int32_t again;
    int shard; /* SHARD_*; of the stage's first backward: FRESH */
    int64_t window; /* UNSHARD: where in Plan.at.window the block is until RESHARD */
    int64_t work; /* computations: where in the block their workspace is */
    int copy; /* the op whose copy to or from the store it waits for, -1 */
    int together;                 /* first half of a compound: runs beside the next op */
} Op;

/* One parameter of one stage on this rank. */
typedef struct {
    const PpParam *p;
    char *value, *grad;
    char *half; /* the copy that products read, in PpStage.half_type; NULL: none */
    /* trainable and owned by this stage: part of the gradient's norm and of sums over replicas */
    int counts;
    int update;         /* the optimizer changes it (owner and replicas) */
    int piece, n_piece; /* what of it this rank's optimizer changes, in Plan.pieces */
    int64_t lowest;     /* how many elements here are -inf from the beginning; they stay -inf */
    int norm; /* where its sum of squares comes, among all; -1: of no norm, or another's */
    int64_t block;      /* divided: the first of its norm's blocks among the rank's; -1: none */
    int64_t home;       /* zero 3: where all of it lies in StagePlan.param; -1: in pieces */
} RankParam;


/* The part of a parameter that this rank's optimizer changes, with its state: all of it, or a
 * share. It begins at a block of the norm (OPTIM_BLOCK), and ends at one or with the parameter. */
typedef struct {
    int local, param;
    int64_t first, bytes;      /* bytes of the parameter before it; its own */
    /* zero 3: in StagePlan.param, -1: the parameter is whole; grads_go: in Plan.at.sums */
    int64_t home, kept;
    char *value, *grad;
    char *state[OPTIM_STATES]; /* as the optimizer's row names them; NULL: none */
} Piece;

/* The sum of a user stage's uses, which is added to the owner's: in memory, or by a message. */
typedef struct {
    int owner, user; /* local stages; -1: elsewhere */
    int owner_stage, user_stage;
    int owner_param, user_param; /* indices into the stages' params */
    int use;                     /* of the user's: one alone, or from there on */
    int replicate;
    char *buf; /* what is added, when the user is elsewhere */
    /* numbers of messages: the contribution; of use 0, the sum sent back; -1 */
    int message, back;
} Contribution;

typedef struct {
    const PpStage *st;
    /* Laid out as its functions see them; param, zero 3: shares of buckets, then what is whole, in
     * `home` bytes; grad, grads_go: in Plan.at.window, from its first backward until they are
     * summed
     */
    char *param, *grad, *constants, *half;
    int64_t home, grad_at;
    RankParam *rp;
    void **in, **out, **dy, **dx; /* [microbatch][n] */
    char **stash, **saved;        /* [microbatch] */
    /* What the backward reads: written by the forward, by the R that recomputed it, or by FETCH */
    void **out_kept;
    char **stash_kept;
    /* [microbatch][n_again]: parts of the stash, as F writes them, and as the backward reads them
     */
    char **part, **part_kept;
    int64_t *stored; /* [microbatch]: where in the store its stash goes */
    struct Gathered *whole; /* PpStage.minibatch: what it runs on once a step; else NULL */
    /* Messages of its collectives along each axis of the mesh: a receive from each other member
     * there, then a send to each; from there on, -1: none */
    int members[PP_AXES];
    /* Its sums over replicas: turns of its WAIT_REDUCE_GRAD's transfers, which may be taken sooner;
     * turn k is [Plan.turns.at[turn + k], Plan.turns.at[turn + k + 1]) of Plan.transfer, and begins
     * with what it waits for */
    int turn, n_turn;
} StagePlan;

/* The tensors of a loss over the whole minibatch, with all rows of a step. */
typedef struct Gathered {
    void **in, **out, **dx;
    char *stash, *part[PP_AGAIN];
} Gathered;

typedef struct {
    int64_t param, half, grad, optimizer, constants, slots, work, data, output, comm, total;
    /* Among replicas: the optimizer's of one alone; of the parameters that it changes the bytes, of
     * all replicas and of this one, of values and gradients what stays here, and the elements of
     * all */
    struct {
        int64_t optimizer, trained, updated, stays, elements;
    } replicas;
    /* Activations and workspaces share a block.  work: the most of it that is workspace at once,
     * and running statistics that an R keeps; slots: the rest of the block; bound: what no
     * placement can go below */
    int64_t block, slots_bound;
    /* Scratch of convolutions on the CPU, which stages take when they open; not in total.  What a
     * device's library takes is known then only */
    int64_t library;
    int64_t store;       /* kept beside the device, not in total */
    int64_t moved;       /* that go there and come back in a step */
    /* ask.away: param, half, grad and optimizer are not in total but `home` bytes elsewhere; the
     * arena has a window onto them; what comes in and goes out in a step's actions.  grads_go: the
     * window has whole gradients; zero 3: parameters that come from other replicas, in so many
     * gathers a pass, with so many bytes */
    int64_t home, window, gathers;
    struct {
        int64_t in, out, gathered_in, gathered_out;
    } travels;
    int64_t values,
        brought; /* zero 3: all parameters of its stages; the most that are whole at once */
} PlanBytes;

typedef struct Plan {
    PlanRequest ask;
    Pool pool; /* of what these point to */
    const PpPlan *model;
    StagePlan *stage;
    int n_stage;
    int *local_of; /* per stage: index here, or -1 */
    Op *op;
    int n_op;
    /* [n_op + 1]: bytes of the arena that hold something while it runs; last: between steps */
    int64_t *live;
    Message *msg;
    int n_msg;
    Transfer *transfer;
    int n_transfer;
    int *await;
    int n_await;
    struct {
        int *at, n;
    } turns; /* as StagePlan says */
    /* zero 2: only a share of a stage's gradients stays when they are summed; where that takes less
     */
    int grads_go;
    struct {
        Piece *at; /* by stage, parameter, place in it */
        int n;
    } pieces;
    struct {
        int *of; /* by PpParam.param: where the sum of squares of the whole's first chunk comes */
        int n;   /* sums, of all ranks */
        int64_t blocks; /* divided: of the norms of the rank's parameters */
    } norm;
    /* divided: transfers after the update, by which all replicas get all parameters */
    struct {
        int first, n;
    } gather;
    PlanBytes bytes;
    struct Planner *planner; /* between plan_build() and plan_place() */
    struct {
        char *arena, *slots; /* slots: the block of activations and workspaces */
        char *window;        /* what is here for a while of the stages' parameters and gradients */
        char *reduction;     /* what comes of other replicas' gradients */
        char *sums; /* gradients of earlier groups; grads_go: shares of them that are summed */
        char *statistics; /* running ones, kept while an R runs */
        char *scale;      /* loss_scale, PP_ALIGN bytes a microbatch */
        char *totals;     /* PpPlan.totals' memory, on the CPU; NULL: none */
    } at;                 /* places in the arena, once there is one */
    struct {
        char **input;    /* per model input: first microbatch's place; NULL: not needed here */
        int64_t *stride; /* bytes from one microbatch's to the next; 0: one for all */
        char **output;   /* per model output: room for all rows, on the CPU */
        unsigned char *has_input, *has_output; /* the rank needs it; makes it, and it is wanted */
        int scale_type;                        /* of loss_scale; 0: not needed here */
    } data;
    struct {
        int offloaded;                 /* stashes that go to the store in a step */
        double operations, recomputed; /* floating-point, at full rows; those of its R's */
    } work;
} Plan;

/* plan.c */
/* Everything but addresses; bytes.total is the arena's */
PpStatus plan_build(Plan *p, const PlanRequest *ask);
/* Addresses; elsewhere: where ask.away has them, or NULL */
PpStatus plan_place(Plan *p, char *arena, char *elsewhere);
void plan_free(Plan *p);                   /* not the arena */
/* What of an R's parts the stage has; nothing of one that only goes forward, or once a step */
int32_t plan_parts(const PpStage *st, int32_t parts);

/* norms.c */
/* Where a member's sum of squares of it comes; -1: it counts as another's */
int norm_of(const Plan *plan, const PpParam *q, int member);

/* stored.c */
/* What of a stash goes to the store, parts that are computed again left out */
int64_t plan_stored_bytes(const PpStage *st, int32_t again);

/* members.c: the stage's table as it runs: for a loss over the whole minibatch, that of the
   minibatch */
const PpStage *plan_as_run(const PpStage *st);

/* offload.c: verified rows with copies of these computations; share: --offload-time; e: why not, ""
 * where pp_failure_text() says it */
PpStatus plan_offload(const PpPlan *model, const Schedule *computations, const SchedNeeds *needs,
                      double share, Schedule **out, SchedError *e);

/* facts.c */
/* What a member does for the collectives of an action of a microbatch ('F', 'I', 'W'; 0: of the
 * step's end), of full rows */
typedef struct {
    double calls, messages, bytes; /* bytes: that it sends */
} Exchanges;
Exchanges plan_exchanges(const PpPlan *model, const PpStage *st, int part);
/* Those that schedules know: without the loss over the whole minibatch */
int schedule_stages(const PpPlan *model);
/* Whether it is a part of the model's parameter: a different one for each member. */
static inline int param_divided(const PpParam *p) { return p->whole > 0 && p->axis >= 0; }
/* Members of a rank that differ along an axis of the mesh, and chunks of each; from the number of
 * one to that of the next; which one a member is */
static inline int plan_members_along(const PpPlan *model, int x)
{
    return model->members[x] > 1 ? model->members[x] : 1;
}
static inline int plan_pieces_along(const PpPlan *model, int x)
{
    return model->chunks[x] > 1 ? model->chunks[x] / plan_members_along(model, x) : 1;
}
static inline int plan_stride(const PpPlan *model, int x)
{
    int n = 1;
    for (int y = 0; y < x; y++)
        n *= plan_members_along(model, y);
    return n;
}
static inline int plan_member_along(const PpPlan *model, int member, int x)
{
    return member / plan_stride(model, x) % plan_members_along(model, x);
}
static inline int plan_members(const PpPlan *model) { return plan_stride(model, PP_AXES); }
/* Sums of a use that each member has (PpPartial) */
static inline int64_t plan_pieces(const PpPlan *model, const PpPartial *q)
{
    int64_t n = 1;
    for (int x = 0; x < PP_AXES; x++)
        n *= q->along[x] ? plan_pieces_along(model, x) : 1;
    return n;
}
/* Which of the members that divide a parameter one of the rank is */
static inline int plan_own_part(const PpPlan *model, const PpParam *p, int member)
{
    return plan_member_along(model, member, p->mesh);
}
/* The parameters of the rank's stages: for (RankWalk i = {0}; plan_next(p, &i);) */
typedef struct {
    int local, param, next; /* its stage here, its number there; where the next one is looked for */
    const StagePlan *rs;
    RankParam *q;
} RankWalk;
static inline int plan_next(const Plan *p, RankWalk *i)
{
    while (i->local < p->n_stage && i->next == p->stage[i->local].st->n_param)
        i->local++, i->next = 0;
    if (i->local == p->n_stage)
        return 0;
    i->rs = &p->stage[i->local];
    i->param = i->next++;
    i->q = &i->rs->rp[i->param];
    return 1;
}
static inline int param_in_parts(const PpParam *p) { return param_divided(p) || p->each.n; }
/* Those of the model that it may be, by member: how many, their names; which one a member has */
static inline int param_names(const PpParam *p) { return p->each.n ? p->each.n : 1; }
static inline const char *param_nth(const PpParam *p, int i)
{
    return p->each.n ? p->each.name[i] : p->t.name;
}
static inline int param_each(const PpPlan *model, const PpParam *p, int member)
{
    return p->each.first + plan_member_along(model, member, p->each.mesh) * p->each.step;
}
static inline const char *param_name(const PpPlan *model, const PpParam *p, int member)
{
    return param_nth(p, param_each(model, p, member));
}
/* Whether an earlier member has the same part of a parameter. */
static inline int plan_is_twin(const PpPlan *model, const PpParam *p, int member)
{
    for (int x = 0; x < PP_AXES; x++)
        if (plan_member_along(model, member, x) && !(param_divided(p) && p->mesh == x) &&
            !(p->outer.whole && p->outer.mesh == x) && !(p->each.n && p->each.mesh == x))
            return 1;
    return 0;
}
/* zero 3: whether this rank keeps only pieces of it (maybe none) */
static inline int param_in_pieces(const Plan *p, const RankParam *q)
{
    return p->ask.zero == 3 && q->home < 0;
}
/* Edges and shared parameters as the schedule's passes want them, how many; room: stages squared,
 * and twice that */
int plan_edges(const PpPlan *model, SchedEdge *edge);
int plan_shared(const PpPlan *model, SchedParam *list, int train);
int64_t stats_bytes(const PpStage *st);  /* of its running statistics */
int64_t plan_library_bytes(const Plan *p); /* as PlanBytes.library */
/* All that is planned of a rank's memory: the arena and scratch */
int64_t plan_total(const Plan *p);
/* What making the totals takes, where one of them is read; 0: none is */
int64_t totals_bytes(const PpPlan *p, const unsigned char *has_input);
int64_t values_bytes(const PpStage *st); /* of its parameters and their half copies, as they lie */
/* zero 3: of what this replica has of them */
int64_t kept_bytes(const Plan *p, const StagePlan *rs);
/* Whether the stage's W is a user's own function. */
int plan_own_weight(const PpStage *st);
int64_t plan_work_bytes(const Plan *plan, const Op *op); /* block.c: of an action's workspace */
int plan_overlaps(const SchedRow *row); /* has it compounds whose halves may run at the same time */
int plan_pair(const SchedRow *row, int i); /* do the actions i and i + 1 make one, of two stages */
/* Whether the host wants it from every microbatch */
int plan_host_takes(const Plan *p, const PpStage *st, int output);
/* Whether it has no place because nobody asks for it */
int plan_skips(const Plan *p, const PpStage *st, int output);

#endif

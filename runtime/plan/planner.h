/*
 * planner.h - shared by the files of plan/ while they plan a rank's step.
 */
#ifndef PP_PLANNER_H
#define PP_PLANNER_H

#include "plan.h"

typedef struct Planner {
    Plan *plan;
    Pool pool; /* of what is planned with */
    const PpPlan *model;
    /* Microbatches; the op being walked; the ops that run at the same time */
    int m, at, begin, end;
    int32_t *again; /* per (local stage, microbatch): what an R computes again; 0: nothing */
    struct {
        unsigned char *moved; /* its stash goes to the store and comes back */
        Packed *away;         /* its place there: from OFFLOAD to the backward */
        int *copy;            /* the last OFFLOAD or FETCH of it that is not waited for, -1 */
    } store;
    /* Instances: tensors of one (stage, microbatch), alive from action to action; behind those of
     * stages one for the workspace of each op */
    Packed *inst;
    int *brought; /* per instance of a stage: the message that brings it, -1 */
    int64_t n_inst, *base; /* of stages; per local stage: its first instance */
    /* Per stage: numbers of its inputs, dx, params on the wire */
    struct {
        int64_t *f, *b, *p, n;
    } wire;
    Contribution *contrib;
    int n_contrib;
    struct Reduction *reduction; /* per local stage */
    int64_t bytes_reduction, bytes_sums, peer_tag;
    RoundKind rounds; /* of the transfers that are added */
    int64_t stats; /* bytes of the running statistics of the largest recomputed stage */
    /* Per (local stage, microbatch): the last SEND_F, SEND_B op; then a chain */
    int *last_send[2];
    int *next_send; /* per op */
    /* Per local stage: the microbatch whose outputs are on their way to the host, -1 */
    int *held;
    int *coming; /* per local stage: its UNSHARD, whose parameters are on their way; -1 */
} Planner;

/* instances.c: instances by number.  l: local stage; m: microbatch. */
PpStatus instances_number(Planner *p);
/* -1: data or the loss scale, which are no instances */
int64_t plan_in(const Planner *p, int l, int i, int m);
int64_t plan_out(const Planner *p, int l, int o, int m);
int64_t plan_dy(const Planner *p, int l, int j, int m);
int64_t plan_dx(const Planner *p, int l, int k, int m);
int64_t plan_stash(const Planner *p, int l, int m);
int64_t plan_saved(const Planner *p, int l, int m);
/* Part k of the stash, as F writes it */
int64_t plan_part(const Planner *p, int l, int k, int m);
int32_t plan_again(const Planner *p, int l, int m);
int plan_moved(const Planner *p, int l, int m);
/* What the backward reads: written by the forward or by R */
int64_t plan_kept_stash(const Planner *p, int l, int m);
int64_t plan_kept_part(const Planner *p, int l, int k, int m);
int64_t plan_kept_out(const Planner *p, int l, int o, int m);
int plan_dx_number(const PpStage *st, int input, int index);
/* The rows of all microbatches for a loss over them, one instance; -1: no such stage */
int64_t plan_whole(const Planner *p, int l);
void plan_touch(Planner *p, int64_t id); /* the instance lives at this moment; -1: none */

/* facts.c */
/* The stage's copy of it, and where */
const PpParam *shared_param(const PpStage *st, int param, int *at);
int last_user(const PpPlan *model, int stage, int param); /* no stage after this one uses it */
int64_t gradient_tag(const Planner *p, int stage, int param, int use); /* of a use's sum */

PpStatus norms_plan(Plan *plan); /* norms.c */

/* gathered.c: that instance */
void gathered_walk(Planner *p, int l, int m, int type); /* F, B */
PpStatus gathered_point(Planner *p, int l);

/* block.c */
void block_walk(Planner *p, const Op *op); /* its workspace */
PpStatus block_place(Planner *p); /* after the walk: offsets of all instances and workspaces */

/* walk.c */
PpStatus plan_walk(Planner *p);

/* buckets.c: what replicas divide among them */
typedef struct {
    int64_t offset, bytes; /* among the stage's gradients; of what has none, its parameters */
    int dtype;
    int param, end; /* the stage's parameters that it is of */
    int turn;       /* replica k has share (k + turn) % replicas */
    /* ask.counted: so many buckets, one behind the other with a turn more, whose shares are alike;
     * else 1 */
    int64_t times;
    int first, count; /* its messages under way */
    /* In Plan.at.sums: of this replica's share the sum over earlier groups, grads_go: over all */
    int64_t sum;
    int whole;    /* the parameters are, on every replica */
    int64_t home; /* else where this replica's share of them is in StagePlan.param */
} Bucket;
enum { ROOMS = 4 }; /* for so many buckets under way */
typedef struct Reduction {
    Bucket *bucket;
    /* Buckets of parameters of this stage alone, which are summed from REDUCE_GRAD on, end at
     * `early`; of replicated ones that it owns, whose sum over stages comes first, at `summed`; and
     * divided, of those that another stage owns, at `grads`; zero 3: of what does not train, at n
     */
    int early, summed, grads, n;
    int rooms;    /* buckets under way at the same time */
    int64_t room; /* bytes for what comes of one */
    int64_t at;   /* where the rooms are */
} Reduction;
PpStatus buckets_plan(Planner *p); /* and the pieces */
/* Where a parameter is among those of its bucket */
static inline int64_t bucket_place(const PpParam *q)
{
    return q->grad_offset >= 0 ? q->grad_offset : q->offset;
}
/* Does this replica's share of bucket i have a place in Plan.at.sums? */
int bucket_keeps(const Planner *p, int local, int i);
/* Bytes of the optimizer's state for replica k's share of a bucket, of one state */
int64_t bucket_state(const Planner *p, int local, const Bucket *b, int k);
/* counted.c: of ask.counted, instead of pieces and messages; chooses ask.replica where it is -1 */
PpStatus replicas_count(Planner *p);
/* Of a bucket of a local stage, bytes from its beginning: where replica k's share begins, and how
 * long it is */
int64_t bucket_share(const Planner *p, int local, const Bucket *b, int k, int64_t *bytes);

/* replicas.c: sums over replicas, and over the groups of a step that they run one after another */
PpStatus replicas_plan(Planner *p);
/* grads_go: the gradients of a replicated parameter, which its owner has summed, are here */
PpStatus replicas_keep(Planner *p, int local, int param);

PpStatus replicas_check(const Planner *p); /* after all: are there names for all messages */
/* Of REDUCE_GRAD; of WAIT_REDUCE_GRAD, before and after the sums over stages */
PpStatus replicas_begin(Planner *p, int local);
PpStatus replicas_wait(Planner *p, int local);
PpStatus replicas_late(Planner *p, int local);

/* unshard.c: parameters that come from other replicas */
PpStatus unshard_begin(Planner *p, int local); /* UNSHARD */
PpStatus unshard_end(Planner *p,
                     int local); /* a computation, RESHARD: what is on its way is there */
PpStatus unshard_drop(Planner *p, int local); /* RESHARD */
PpStatus
unshard_updated(Planner *p); /* after the walk: whole parameters of which each updates a share */

/* members.c: messages of collectives */
PpStatus members_plan(Planner *p);
void members_point(Plan *plan);

/* messages.c */
/* The messages added after the first `first` ones */
PpStatus start_messages(Planner *p, TransferKind kind, int first);
PpStatus peer_message(Planner *p, int local, int peer, int sent, int64_t bytes, Spot at);
/* The next of Plan.msg.  Between stages `from' and `to' say where it is sent; of replicas and of
 * members `peer' and `sent' do; what follows from these is filled in */
PpStatus new_message(Planner *p, Message m);
PpStatus add_transfer(Planner *p, Transfer t);               /* to the op being walked */
PpStatus plan_edge(Planner *p, const SchedAction *a, int l); /* SEND_F, RECV_F, SEND_B, RECV_B */
PpStatus plan_params(Planner *p, const SchedAction *a);      /* SEND_P, RECV_P, SEND_GP */
Spot spot_use(int local, int param, int use);
/* What chunks of members have of the gradient (PpStage.partial) is added up: before the next */
PpStatus add_parts(Planner *p, int local, int param);
/* Adds the other uses of a stage on this rank to its first one */
PpStatus add_own_uses(Planner *p, int local, int param);

/* contributions.c */
PpStatus plan_contributions(Planner *p);
/* RECV_GP, REDUCE_GRAD, WAIT_REDUCE_GRAD */
PpStatus plan_reduction(Planner *p, const SchedAction *a);

/* stored.c: stashes that leave the device */
PpStatus stored_find(Planner *p);
void stored_op(Planner *p, Op *op);       /* OFFLOAD, WAIT_OFFLOAD, FETCH */
void stored_reader(Planner *p, Op *op); /* the first computation after a FETCH */
PpStatus stored_place(Planner *p);

/* sharded.c: parameters and gradients that are elsewhere, or here for a while */
PpStatus sharded_begin(Plan *plan); /* Plan.grads_go */
PpStatus sharded_sizes(Planner *p);
int64_t window_bytes(const Plan *plan); /* that it has of its own */
/* Places for what comes of the gradients of other replicas, and what they take */
PpStatus sharded_rooms(Planner *p, int64_t *bytes);

/* place.c */
void plan_sizes(Planner *p);
void plan_carve(Planner *p, char *arena, char *elsewhere);
PpStatus plan_point(Planner *p);

/* slots.c: the most bytes alive at one action, below which no block can go; live [n_op]: to which
 * those alive at each are added, or NULL */
PpStatus slots_most(const Packed *of, int64_t n, int n_op, int64_t *bytes, int64_t *live);
PpStatus slots_place(Packed *of, int64_t n, int n_op, int64_t *bytes);

#endif

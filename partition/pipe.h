/*
 * pipe.h - the Pipe: stages as lists of a Graph's nodes, what crosses from one to another, where
 * parameters live; the loss.  partition/ makes it, autodiff/ fills in the backward fields.
 */
#ifndef PPSPLIT_PIPE_H
#define PPSPLIT_PIPE_H

#include "ir/facts/facts.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { USE_OWN, USE_TRANSMIT, USE_REPLICATE } Use;

/* A use of a parameter to which each chunk along some axes of the mesh (bit x: axis x) contributes
 * a part; the first chunk has the sum. */
typedef struct { uint32_t use, along; } Partial;

/* A parameter (or running statistic) that a stage reads. */
typedef struct {
    /* index into graph.param; its value id is the same in every stage */
    uint32_t param;
    Use use;
    /* USE_TRANSMIT: the owner (the first stage that uses it); USE_REPLICATE: the first of the
       set; else own */
    uint32_t from;
    /* autodiff: this stage's contributions to the parameter's gradient; empty: none.  A use of the
       parameter is a node that reads it, or that reads a value made of parameters alone.  The
       contributions of one use are added up over the microbatches; then the sums of the uses are
       added, the last use first.  The list is ordered by descending use, and within a use in the
       order of addition. */
    Ids grads;
    /* per entry of grads: where it is added up, numbered in this stage from 0: the sums of its
       `uses`, then those of what chunks make of it beside the first (of each entry of `partial` as
       many as a member has along its axes, less one) */
    Ids of_use;
    uint32_t uses;
    VEC(Partial) partial;           /* ascending */
} ParamUse;

/* A value that enters a stage: a model input, or what an earlier stage made. */
typedef struct {
    ValueId value;
    uint32_t from;                  /* the stage that makes it, NONE: a model input (data) */
    bool gradient;                  /* autodiff: some gradient goes back along this edge */
    Ids grads; /* autodiff: values of this stage's backward that are sent back to `from`, in the
                  order of addition.  There is one, since relay.c passes a value that several stages
                  read from stage to stage.  In a Pipe without relay.c there are several where a
                  later stage also reads the value from `from`: the contributions travel one by one,
                  so that the sum has the same bits whatever the cut. */
} StageInput;

typedef struct {
    ValueId value;
    /* consumer stages, ascending; may be empty for a model output */
    Ids to;
    Ids outputs;                    /* positions among the model's outputs; may be empty */
    Ids dys; /* autodiff: gradients that come in from the consumers, in the order of addition: by
                descending stage, and within a stage in the order of its StageInput.grads */
} StageOutput;

typedef struct {
    int64_t parameters, bytes_param, bytes_activation, bytes_stash, flops_forward, flops_backward;
    int64_t sent[2]; /* by a member to the others of its stage: forward, backward */
} StageCost;

/* autodiff: values of the stash that can be computed again, and the nodes of forward that compute
 * them, in order, from the rest of the stash, the model's inputs and parameters */
enum { AGAIN_MOST = 8 };
typedef struct { Ids value, node; } StageAgain;

typedef struct {
    uint32_t index;
    const char *label;              /* for people: "emb, layers.0" */
    /* every forward node of the stage (training and inference variants), in order */
    Ids nodes;
    VEC(StageInput) input;
    VEC(StageOutput) output;
    VEC(ParamUse) param;

    /* programs: lists of nodes in the order in which they run.  Each of the two forwards has only
     * the nodes that it needs; Phase nodes stay, as aliases */
    Ids forward;                    /* training forward (equals infer when nothing trains) */
    Ids infer;                      /* eval and inference forward */
    /* autodiff (all empty when there is no loss or the stage needs no backward) */
    /* forward nodes computed again at the start of backward (cloned: new value ids) */
    Ids recompute;
    Ids backward;                   /* whole backward B, recompute included, in order */
    Ids backward_input;             /* I */
    Ids backward_weight;            /* W: backward minus I */
    /* values of forward (stage inputs included) that backward reads; params and constants are
       not listed */
    Ids stash;
    /* parts of the stash that can be computed again: at most AGAIN_MOST, the cheapest per byte
       first */
    VEC(StageAgain) again;
    /* what W reads and does not make: results of I, gradients that came in */
    Ids saved;
    StageCost cost;
    /* the programs stand in the same stage of another Pipe (Pipe.whole), and the lists here are
       empty */
    bool elsewhere;
} Stage;
/* the gradients of input i; from input.n on, of a parameter */
static inline const Ids *stage_grads(const Stage *s, uint32_t i)
{
    return i < s->input.n ? &s->input.at[i].grads : &s->param.at[i - s->input.n].grads;
}

typedef enum { EDGE_ACTIVATION, EDGE_PARAMETER, EDGE_CONSTANT } EdgeKind;
typedef struct {
    uint32_t from, to;
    ValueId value;
    EdgeKind kind;
    int64_t bytes;                  /* per microbatch at full rows; parameters: per step */
    bool gradient;
} Edge;

/* How the loss of a minibatch follows from its microbatches: each microbatch's loss is a plain sum
 * times loss_scale. */
typedef enum {
    LOSS_NONE,
    LOSS_SUM,                       /* loss_scale = 1 */
    LOSS_MEAN_ELEMENTS,             /* loss_scale = 1 / (elements of the minibatch's target) */
    /* loss_scale = 1 / (number of targets of the minibatch that are not loss_ignore) */
    LOSS_MEAN_TARGETS,
    /* the model computes a mean over rows (output:NAME): loss_scale = rows of the microbatch / rows
       of the minibatch */
    LOSS_MEAN_ROWS,
} LossScale;

/* The loss as autodiff/loss.c appended it to the graph before partition; loss == NONE: the program
 * only infers. */
typedef struct {
    ValueId loss, loss_scale, target;
    LossScale scale;
    /* classes: the target holds numbers below `classes`, or `ignore`; 0: it holds no classes */
    int64_t ignore, classes;
    const char *text;
    const char *why;                /* why there is no loss of several microbatches, or NULL */
    /* --loss-over minibatch: the loss is computed once, over the rows of all microbatches.  The
       nodes of the loss are those with this origin or a later one, also after passes have rewritten
       them.  origin NONE: the model itself computes the loss, and loss_part() finds its nodes */
    bool whole;
    uint32_t origin;
} Loss;

typedef struct Pipe {
    Graph *graph;
    VEC(Stage) stage;
    VEC(Edge) edge;
    const char *model_name;         /* base name of the file */
    /* the loss; value NONE: the program only infers */
    /* scalar f32/f64 of the last stage: sum over the microbatch * loss_scale */
    ValueId loss;
    ValueId loss_scale;             /* V_INPUT scalar, set by the runtime for each microbatch */
    ValueId target;                 /* V_INPUT `target`, or NONE (output:NAME) */
    LossScale scale;
    int64_t loss_ignore, loss_classes;
    const char *loss_text;          /* the option as given, for reports */
    /* per output of the model, how the results of microbatches become one: rows are put one after
     * the other; what has no rows is merged as OutputMeeting says */
    VEC(OutputMeeting) merge;
    /* --loss-over minibatch: the last stage is the loss over all rows of a minibatch.  `whole` has
       the programs of that stage, with the shapes of a minibatch; the lists of its other stages are
       empty.  NULL: each microbatch has a loss of its own */
    struct Pipe *whole;
    bool loss_whole;
    /* why a minibatch may not have fewer rows than the shapes of `whole`; empty: it may */
    VEC(const char *) uneven_loss;
    /* why microbatches cannot have targets, or losses, of their own; NULL: they can */
    const char *target_why, *loss_why;
    /* one stage that computes the graph's totals from its inputs; NULL: there are none */
    struct Pipe *totals;
    const char *alone;              /* the name of a Pipe's only stage; NULL: stages have numbers */
    /* what forbids chunks of unequal rows: reasons, one line each, naming the node; empty: allowed
     */
    VEC(const char *) uneven;
    /* the split points of this cut, without those that the model itself gives */
    VEC(const char *) split;
    /* partition/auto/: what --stages chose; NULL: not asked for */
    struct AutoCut *automatic;
    /* what mixes the samples of a microbatch (BatchNormalization in training): allowed, and shown
     * in reports */
    VEC(const char *) mixes;
} Pipe;

#ifdef __cplusplus
}
#endif

#endif

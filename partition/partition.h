/*
 * partition.h - where to cut, what crosses a cut, the Pipe, analysis and reports.
 *
 * The Graph stays one: value and node ids are unique over all stages.  A stage is a list of its
 * nodes; what crosses a cut is a list of value ids.  Partition assigns core nodes, in graph order,
 * to stages (monotone: stage numbers never fall along the order), clones what is cheaper to
 * recompute than to send, and places the parameters.  Autodiff then fills the backward fields of
 * the same structures.
 */
#ifndef PPSPLIT_PARTITION_H
#define PPSPLIT_PARTITION_H

#include "ir/facts/facts.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { USE_OWN, USE_TRANSMIT, USE_REPLICATE } Use;

/* A parameter (or running statistic) that a stage reads. */
typedef struct {
    /* index into graph.param; its value id is the same in every stage */
    uint32_t param;
    Use use;
    /* USE_TRANSMIT: the owner (the first stage that uses it); USE_REPLICATE: the first of the
       set; else own */
    uint32_t from;
    /* autodiff: this stage's contributions to its gradient in the order they are added; empty:
       none */
    Ids grads;
} ParamUse;

/* A value that enters a stage: a model input, or what an earlier stage made. */
typedef struct {
    ValueId value;
    uint32_t from;                  /* the stage that makes it, NONE: a model input (data) */
    bool gradient;                  /* autodiff: some gradient goes back along this edge */
    Ids grads; /* autodiff: values of this stage's backward sent back to `from`, in the order of
                  addition. One for most.  Several when another, later stage also uses the value:
                  then the contributions travel one by one, so that the sum has the same bits
                  whatever the cut. */
} StageInput;

typedef struct {
    ValueId value;
    /* consumer stages, ascending; may be empty for a model output */
    Ids to;
    Ids outputs;                    /* positions among the model's outputs; may be empty */
    Ids dys; /* autodiff: gradients that come in from the consumers (their StageInput.grads), in
                order of addition: consumers by descending stage, each one's contributions in its
                order */
} StageOutput;

typedef struct {
    int64_t parameters, bytes_param, bytes_activation, bytes_stash, flops_forward, flops_backward;
} StageCost;

typedef struct {
    uint32_t index;
    const char *label;              /* for people: "emb, layers.0" */
    /* every forward node of the stage (training and inference variants), in order */
    Ids nodes;
    VEC(StageInput) input;
    VEC(StageOutput) output;
    VEC(ParamUse) param;

    /* programs: node lists in execution order; dead code of the other variant removed; Phase nodes
     * stay (aliases) */
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
    /* what W reads and does not make: results of I, gradients that came in */
    Ids saved;
    StageCost cost;
} Stage;

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
    LOSS_MEAN_ELEMENTS,             /* loss_scale = 1 / (rows of the minibatch * loss_per_row) */
    /* loss_scale = 1 / (number of targets of the minibatch that are not loss_ignore) */
    LOSS_MEAN_TARGETS,
    /* the model's own mean (output:NAME): loss_scale = rows of the microbatch / rows of the
       minibatch */
    LOSS_MEAN_ROWS,
} LossScale;

/* The loss as autodiff/loss.c appended it to the graph before partition; loss == NONE: the program
 * only infers. */
typedef struct {
    ValueId loss, loss_scale, target;
    LossScale scale;
    /* classes: the target holds numbers below it, or ignore; 0: no classes */
    int64_t per_row, ignore, classes;
    const char *text;
} Loss;

typedef struct {
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
    int64_t loss_per_row, loss_ignore, loss_classes;
    const char *loss_text;          /* as given, for reports */
    /* per output of the model, how microbatches meet: its rows one after the other, or, without
     * rows, as said */
    VEC(OutputMeeting) merge;
    /* several microbatches have no target each: the reason, or NULL */
    const char *target_why;
    /* what forbids chunks of unequal rows: reasons, one line each, naming the node; empty: allowed
     */
    VEC(const char *) uneven;
    /* what mixes the samples of a microbatch (BatchNormalization in training): said in the report,
     * allowed */
    VEC(const char *) mixes;
} Pipe;

typedef struct {
    VEC(const char *) split;        /* "PATH:begin", "PATH:end", a node or a value name */
    VEC(const char *)
    multi_use; /* "transmit", "replicate", "NAME=transmit" ... in order, the last one that fits wins
                */
    BatchOptions batch;
} PartitionOptions;

/* split.c: resolves split points; stage_of[node id]. */
uint32_t *split_assign(Graph *g, Arena *a, const PartitionOptions *opt, uint32_t *stages);

/* pipe.c: assigns stages and builds the Pipe. The loss falls into the last stage (its input target
   too), is a scalar output of that stage (StageOutput without consumers) and its fields are copied
   into the Pipe; l NULL or l->loss NONE: inference only. Calls batch_analyse(g, 0, ...) itself. */
Pipe *pipe_build(Graph *g, const PartitionOptions *opt, const Loss *l);
void pipe_verify(const Pipe *p);                        /* BUG() on any broken invariant */
void pipe_dump(const Pipe *p, FILE *f);

/* label.c: names every stage after the modules that lie in it whole. */
void label_stages(Pipe *p);

/* cost.c */
void pipe_costs(Pipe *p);

/* reports: each writes one file into an open stream */
/* PiPPy's text form, forward and backward */
void report_pipe_txt(const Pipe *p, FILE *f);
void report_pipe_xml(const Pipe *p, FILE *f);           /* libxml2; schema pipe.xsd */
void report_pipe_xsd(FILE *f);
void report_pipe_dot(const Pipe *p, FILE *f);
void report_pipe_html(const Pipe *p, FILE *f);
void report_ls(Graph *g, FILE *f);                      /* the module tree */
void report_summary(const Pipe *p, FILE *f);            /* what ppsplit prints after a split */

#ifdef __cplusplus
}
#endif
#endif

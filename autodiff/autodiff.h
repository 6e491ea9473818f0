/*
 * autodiff.h - symbolic differentiation of every stage; the loss; the stages written as ONNX.
 */
#ifndef PPSPLIT_AUTODIFF_H
#define PPSPLIT_AUTODIFF_H

#include "base/file/sha256.h"
#include "frontend/frontend.h"
#include "partition/partition.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *loss;               /* as on the command line, NULL: inference only */
    bool sum;                       /* --loss-reduction sum */
    bool whole;                     /* --loss-over minibatch */
} LossOptions;

/* loss.c: appends the loss to the graph (before partition): inputs target and loss_scale, the
   scalar loss as a sum times loss_scale (all NONE when opt->loss is NULL). */
Loss loss_append(Graph *g, const LossOptions *opt, const ImportOptions *import);

/* reverse.c: the gradients of values wrt[i] over a plain node list, from those of values y[i]: NONE
 * where unreached */
typedef void GradValues(Graph *g, const NodeId *list, uint32_t n, const Ids *y, const Ids *dy,
                        const Ids *wrt, ValueId *dwrt);
GradValues grad_values;

/* vjp/: one rule per primitive, built from the same ops. dy[i] may be NONE (no gradient for that
   output); din[i] is set to the gradient of operand i, or left NONE. Called only for operands with
   want[i].  The gradient of a value has its type; but wide[i]: operand i is a half of which an f32
   gradient is wanted, as a copy of a parameter is, for the sums over rows and microbatches. */
typedef struct {
    Graph *g;
    NodeId node;
    const ValueId *in, *out, *dy;
    const bool *want, *wide;
    ValueId *din;
    GradValues *within;             /* grad_values, for a body */
} Vjp;
bool vjp_apply(Vjp *v);             /* false: the op has no gradient */

/* reverse.c: the reverse walk over each stage, stages in reverse order; fills Stage.backward,
   grads, dys, and finds the batch dimension of the new values.  Every value sent back
   (StageInput.grads) is a node of that stage's own backward, and none is listed twice.  Without a
   loss these passes change nothing. */
void reverse_stages(Pipe *p);
/* scatter.c: in the nodes from `first` on (the backwards), turns an AllReduce of which members read
   only their part into a ReduceScatter. */
void scatter_sums(Pipe *p, NodeId first);
/* unreached.c: after reverse.c, before which the graph had `end` nodes: warns of parameters that no
   gradient reaches; refuses a Pipe in which nothing trains, unless parameters were frozen. */
void reverse_unreached(const Pipe *p, NodeId end, bool frozen);
/* reverse_stages(), stash_minimize(), divide_backward(), stash_again(): after it the Pipe is
   complete */
void autodiff(Pipe *p);
/* The graph, which is not yet cut, differentiated on its own, as the costs of cuts read it
   (PartitionOptions.joint): a copy in its arena, in one stage or as the model itself says. */
Pipe *autodiff_joint(const Graph *g, const PartitionOptions *opt, const Loss *l);
/* gradient of one scalar over a plain node list (ImportOptions, tests): returns d y / d wrt[i],
 * NONE where unreached. */
void grad_nodes(Graph *g, const NodeId *list, uint32_t n, ValueId y, uint32_t nwrt,
                const ValueId *wrt, ValueId *dwrt);

/* uses.c: a node that reads a parameter, or what is made of parameters alone (of_params, by value:
   partition.h), uses it; what those numbers say and which share one stands there.  at: the node's
   place in the list. */
typedef struct Uses Uses;
Uses *uses_find(Graph *g, const bool *of_params, const NodeId *list, uint32_t n);
uint32_t uses_number(const Uses *u, ValueId v, uint32_t at);
void uses_free(Uses *u);

/* parts.c: writes LogSoftmax of a stage's forward and infer lists as several nodes, once. */
void stage_parts(Graph *g, Stage *s);
/* stash.c: min-cut of what forward keeps against what backward recomputes (recompute: elementwise
 * and views only). */
void stash_minimize(Pipe *p);
/* again.c: finds the parts of the stash that can be recomputed at little cost (Stage.again) */
void stash_again(Pipe *p);
/* divide.c: I and W by reachability, saved values between them. */
void divide_backward(Pipe *p);

/* onnx_write.c: stageN.onnx and stageN.backward.onnx, standard ops only (opset 18).  A stage's
   parameters are initializers: inside the file up to 64 MiB together, beyond that external data at
   weight[param] (its file relative to the ONNX file); with weight NULL or no file there, inputs of
   the file: nothing that large is written twice. Constants of 1 MiB and more go to `outside`;
   inside with NULL. */
typedef struct { const char *file; int64_t offset; } OnnxWeight;
typedef struct OutsideFile OutsideFile;
void onnx_write_forward(const Pipe *p, uint32_t stage, const OnnxWeight *weight,
                        OutsideFile *outside, FILE *f);
void onnx_write_backward(const Pipe *p, uint32_t stage, const OnnxWeight *weight,
                         OutsideFile *outside, FILE *f);

/* export/outside.c: writes long constants of an output folder into its file `name`, which exists
   only if there are any. */
typedef struct { int64_t offset; char sha256[SHA256_TEXT]; } OutsidePlace;
OutsideFile *outside_new(Arena *a, const char *folder, const char *name);
/* The offset of these bytes in the file; they must stay in memory until outside_end(). */
OutsidePlace outside_place(OutsideFile *o, const void *at, size_t n);
void outside_end(OutsideFile *o);

/* export/skeleton.c: writes model m (one of g->model) without its trainable bytes and its long
   constants, as the file `name`. */
void skeleton_write(const Graph *g, Model *m, const char *name, OutsideFile *outside, FILE *f);

/* export/merge.c: the weights of a checkpoint of the program in folder `out`, put back into the
   model, at target; of several models in sequence at target, target1, ...  Or, where the target
   ends in .safetensors, as the model's state_dict.  The files appear when all are whole. */
typedef struct {
    const char *out, *checkpoint, *target;
    const char *module;                                 /* the state_dict of this one; NULL: all */
    const char *states;                                 /* a file for the optimizer's; NULL: none */
    uint64_t shard_bytes;                               /* of a file of parameters; 0: one file */
} MergeAsk;
typedef struct { uint32_t parameters; VEC(const char *) file; } Merged;
bool merge_is_tensors(const char *target);
Merged merge_weights(Arena *a, const MergeAsk *ask);

#ifdef __cplusplus
}
#endif
#endif

/*
 * partition.h - where to cut, what crosses a cut, the Pipe, its analysis and its printed forms.
 *
 * The Graph stays one: value and node ids are unique over all stages.  A stage is a list of its
 * nodes; what crosses a cut is a list of value ids.  Partition assigns core nodes, in graph order,
 * to stages (monotone: stage numbers never fall along the order), clones what is cheaper to
 * recompute than to send, and places the parameters.  Autodiff then fills the backward fields of
 * the same structures.
 */
#ifndef PPSPLIT_PARTITION_H
#define PPSPLIT_PARTITION_H

#include "auto/auto.h"
#include "pipe.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Strings split;        /* split points; points.c has their forms */
    /* "transmit", "replicate", "NAME=transmit" ... in order, the last one that fits wins */
    Strings multi_use;
    BatchOptions batch;
    AutoOptions automatic;
    const Pipe *joint;              /* the model before it is cut, differentiated, for --stages */
    const char *alone;              /* Pipe.alone: of the Pipe of totals (build.c) */
} PartitionOptions;

/* pipe.c: whether --stages would find a cut within --memory; true if neither is given. */
bool pipe_fits(const Graph *g, const PartitionOptions *opt, const Loss *l);
/* split_search.c: cuts one graph in many ways, to compare them; after pipe_prepare(). */
typedef struct SplitSearch SplitSearch;
SplitSearch *split_search(Graph *g, ValueId loss, const Pipe *joint, const PartitionOptions *opt,
                          Arena *a);
const AutoSearch *split_search_cuts(const SplitSearch *s);
/* options that give this cut, without the points that the model itself gives */
Strings split_search_points(SplitSearch *s, const StageCut *c);

/* split.c: resolves split points of p's graph with its loss; stage_of[node id]; fills p->split and
   p->automatic. */
uint32_t *split_assign(Pipe *p, Arena *a, const PartitionOptions *opt, uint32_t *stages);

/* build.c: assigns stages and builds the Pipe. The loss falls into the last stage (its input target
   too), is a scalar output of that stage (StageOutput without consumers) and its fields are copied
   into the Pipe; l NULL or l->loss NONE: inference only. Calls batch_analyse(g, 0, ...) itself. */
Pipe *pipe_build(Graph *g, const PartitionOptions *opt, const Loss *l);
/* pipe.c: the two halves of pipe_build().  pipe_prepare() changes the graph and the loss into what
   will be cut, and fills in the notes of batch_analyse(); pipe_cut() makes the Pipe, without
   totals. */
void pipe_prepare(Graph *g, const PartitionOptions *opt, Loss *loss, BatchNotes *notes);
Pipe *pipe_cut(Graph *g, const PartitionOptions *opt, const Loss *l, const BatchNotes *notes);
/* The stage of each node, as pipe_build() cuts, before anything is left out or computed twice. */
uint32_t *pipe_stages(Graph *g, const PartitionOptions *opt, const Loss *l, uint32_t *stages);
/* loss_terms.c: for a loss that the model computes, how the losses of microbatches make that of the
   minibatch.  Sets g->total, loss->loss, scale and why; computes *notes again where it changed the
   graph. */
void loss_terms(Graph *g, const PartitionOptions *opt, Loss *loss, BatchNotes *notes);
void loss_warn(const Pipe *p);                          /* prints p->loss_why and the remedies */
/* loss_part.c: --loss-over minibatch.  By node: does it belong to the loss over the whole
   minibatch?  Refuses a loss for which the rows of microbatches cannot be gathered. */
bool *loss_part(Graph *g, const Loss *l, const BatchNotes *notes);
/* whole.c: fills p->whole; after that the other stages have the shapes of `rows` rows a microbatch.
   Called after reverse_stages() and before the stash is chosen; does nothing where loss_whole is
   not set. */
void pipe_whole(Pipe *p, int64_t rows);
/* stage t of the Pipe that has its programs: p, or p->whole */
const Stage *pipe_programs(const Pipe *p, uint32_t t);
/* twin.c: a copy of the Pipe with lists and a graph of its own; before the stash is chosen. */
Pipe *pipe_twin(const Pipe *p);
void pipe_verify(const Pipe *p);                        /* BUG() on any broken invariant */
void pipe_dump(const Pipe *p, FILE *f);

/* label.c: names every stage after the modules that are completely in it. */
void label_stages(Pipe *p);

/* cost.c */
void pipe_costs(Pipe *p);
/* Does the stage send back a gradient of what it is sent, or has it one of its parameter? */
bool pipe_has_gradient(const Pipe *p, uint32_t stage, ValueId v);

/* ---- print/: each writes one text into an open stream ---- */
/* txt.c: PiPPy's text form, forward and backward; what ppsplit prints after a split */
void print_pipe_txt(const Pipe *p, FILE *f);
void print_summary(const Pipe *p, FILE *f);
/* automatic.c: and after --stages */
void print_automatic(const AutoCut *c, Arena *a, FILE *f);
/* xml.c; its schema is pipe.xsd */
void print_pipe_xml(const Pipe *p, FILE *f);
/* dot.c: for Graphviz */
void print_pipe_dot(const Pipe *p, FILE *f);
/* ls.c: the module tree, joint: a member's, differentiated, for what members send (autodiff_joint);
   a line for each entry of Graph.files.array */
void print_ls(Graph *g, ValueId loss, const Pipe *joint, FILE *f);
void print_parameters(const Graph *g, FILE *f);

#ifdef __cplusplus
}
#endif
#endif

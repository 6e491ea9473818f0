/*
 * plan.h - the passes that decide what a stage's functions do, in their order; they know neither
 * text nor targets.
 */
#ifndef PPSPLIT_PLAN_H
#define PPSPLIT_PLAN_H

#include "codegen/cg.h"

/* ---- rows.c ---------------------------------------------------------------------------------- */

Lin cg_ext(const Func *f, ValueId v, int d);            /* extent of dimension d */
Lin cg_span(const Func *f, ValueId v, int from, int to); /* elements of dimensions [from, to) */
/* Strides of dimensions in that order, outermost first (NULL: as they are), where one step of the
   last but one is `row`; false: they are not affine. */
bool cg_stand(Ref *r, const int *order, Lin row);
Ref cg_dense(const Func *f, ValueId v);                 /* row-major, offset 0, no buffer */
bool cg_is_dense(const Ref *r);
bool cg_ref_alike(const Ref *x, const Ref *y);          /* same offset and strides */
bool cg_ref_same(const Ref *x, const Ref *y);           /* ... of the same buffer */
/* at full rows, from the first element to the last */
int64_t cg_ref_bytes(const Func *f, const Ref *r, ValueId v);
/* how far rows of a product's are apart, that are so long; of the one row of a vector */
Lin cg_row_apart(const StageGen *sg, bool device, Lin row, Dtype t);
Lin cg_row(const StageGen *sg, Lin ext, Dtype t);
/* do products take rows so far apart? */
bool cg_rows_fit(const StageGen *sg, bool device, Lin ld, Dtype t);
/* row-major, or with the last two dimensions exchanged, with rows that far apart; false:
   impossible */
bool cg_padded(const Func *f, ValueId v, bool turned, Ref *at);

/* ---- size.c ---------------------------------------------------------------------------------- */

/* A size that memory is planned with, as it is with the greatest length; where none varies itself.
 */
int64_t cg_most(const StageGen *sg, int64_t size);
/* ... of what has strides that are those of the longest sample, as a constant */
int64_t cg_most_constant(const StageGen *sg, int64_t size);
uint32_t cg_sizes_end(const SizesMet *s, uint32_t part);
/* to be asked for once more, with what was learnt before; NULL: nothing was */
SizesMet *cg_sizes_anew(Arena *a, const SizesMet *before);
SizesMet *cg_sizes_like(Arena *a, const SizesMet *first); /* another sample's, which comes behind */
void cg_sizes_part(SizesMet *s);                        /* here begins another part of the stage */
bool cg_size_same(const SizeKnown *x, const SizeKnown *y);
/* Is it another one with other lengths?  What divides it with any?  sg: the stage; NULL,
   where no length varies. */
bool cg_varies(const StageGen *sg, int64_t size);
bool cg_stays(const StageGen *sg, int64_t size);        /* ... or is that not known yet? */
int64_t cg_divisor(const StageGen *sg, int64_t size);
int64_t cg_divisor_lin(const StageGen *sg, Lin x);
/* As text, in C and in CUDA C: of one that varies an expression of the lengths.  All sizes are
   printed by these, so that programs of several lengths have one text. */
const char *cg_size(Arena *a, const StageGen *sg, int64_t size);
const char *cg_size_text(Arena *a, SizesMet *s, int64_t size);
int64_t cg_size_outside(SizesMet *s, int64_t size);     /* outside functions: with the greatest */
const char *lin_text(Arena *a, const StageGen *sg, Lin x);      /* "rows * 128", "512" */
/* the same, in parentheses where a product needs them */
const char *lin_factor(Arena *a, const StageGen *sg, Lin x);
const char *cg_shape(Arena *a, const StageGen *sg, Dtype t, const Shape *s); /* "f32[2,length]" */
/* cg_number(), which may be a length, or 1 divided by it */
const char *cg_literal(Arena *a, const StageGen *sg, Dtype t, double f, int64_t i);

/* ---- view.c ---------------------------------------------------------------------------------- */

bool cg_in_order(const Func *f, const Wide *w);         /* row-major, maybe with gaps */
/* BUG() when no view can be expressed: place.c sees to it */
const Ref *cg_ref(Func *f, ValueId v);
bool cg_wide(Func *f, ValueId v, Wide *w);
bool cg_ref_try(Func *f, ValueId v, Ref *r);
/* where the operand must be for that output */
bool cg_view_invert(Func *f, const Node *n, const Wide *out, Wide *r);
NodeId cg_maker(const Func *f, ValueId v);
/* below all views, whether strides can express them or not */
ValueId cg_root(Func *f, ValueId v);
ValueId cg_below(const Func *f, ValueId v);             /* the same, of the graph's views alone */
/* where a root stands by itself: row-major, on a device with rows apart where products are to
   (Func.apart); or what a view shows */
Ref cg_own(const Func *f, ValueId v);
Wide cg_widen(const Ref *r);
bool cg_recuts(const Func *f, const Node *n);
/* where an output of a view stands */
bool cg_view_apply(Func *f, const Node *n, uint32_t out, const Wide *in, Wide *r);
bool cg_narrow(const Func *f, const Wide *w, ValueId v, Ref *r);
bool cg_is_view(const Func *f, NodeId n);
/* an Identity of ours that moves elements */
bool cg_is_copy(const Node *n);
ValueId cg_view_operand(const Func *f, const Node *n);

/* one more argument of the step: v, where it stands; which one it is */
uint32_t cg_step_arg(Func *f, Step *s, ValueId v, bool written);

/* ---- edge.c: layouts of values that cross a cut ---------------------------------------------- */

void cg_edges(StageGen *sg);                            /* before all that asks for places */
/* no buffer; of values that no view makes, row-major */
const Ref *cg_edge(StageGen *sg, ValueId v);
/* on a device: does a product read it as it is when the root below its views has rows apart? */
bool cg_apart_over_root(Func *f, ValueId v, Wide *w);

/* ---- outside.c ------------------------------------------------------------------------------- */

/* each place outside the workspace once */
uint32_t cg_buffer(Func *f, BufClass cls, uint32_t index, ValueId v);
void cg_position_stage(StageGen *sg);                     /* all of Positions that the Stage says */
void cg_position(StageGen *sg, IdMap *m, uint64_t key, uint32_t at);      /* unless it has one */
/* The parameter of which the node makes a copy in the stage's half type, which the runtime keeps:
   no function computes it.  NONE: it is no such node. */
ValueId cg_copied(const StageGen *sg, NodeId n);
/* the buffer of a value that f does not make; NONE: a view of another */
uint32_t cg_outside(Func *f, ValueId v);

/* ---- lower.c: CODE_LOWER ops and a few others into core ops ---------------------------------- */

void cg_lower(Func *f, const Ids *list);                /* fills f->node, f->def */
ValueId cg_new_value(Func *f, Dtype t, const Shape *s, int batch);
NodeId cg_new_node(Func *f, Node like);                 /* with lists of its own */
void cg_track(Func *f);                                 /* per-value arrays follow the graph */
/* a constant of zero bytes, through Expand and Reshape */
bool cg_zeros(const Graph *g, ValueId v);

/* ---- bias.c: products whose bias the library adds -------------------------------------------- */

void cg_chains(StageGen *sg);                           /* fills sg->chain */

/* ---- place.c: where values live; copies that are needed -------------------------------------- */

void cg_place(Func *f);
bool cg_keeps_inner(const Ref *r);

/* ---- pad.c: how far rows are apart ----------------------------------------------------------- */

/* The nodes of some lists that read a value, in their order: node[first[v]] up to node[first[v +
 * 1]]; once per operand. */
typedef struct { uint32_t *first; NodeId *node; } Readers;
Readers cg_readers(Func *f, const Ids *list, int n);
/* On CPUs a padded place for v (no buffer yet) that all its readers can take, when it pays. */
bool cg_pad(Func *f, ValueId v, const Readers *readers, Ref *at);
/* On a device: marks the values of which products of these lists read or write rows (Func.apart).
 */
void cg_apart(Func *f, const Ids *list, int n);
/* The place of a copy of operand i of a device's product. */
bool cg_factor_place(Func *f, const Node *n, uint32_t i, Ref *at);

/* ---- fuse.c ---------------------------------------------------------------------------------- */

void cg_fuse(Func *f);

/* ---- lay.c: spaces of nodes ------------------------------------------------------------------ */

bool cg_is_reduce(Op op);
/* one number, of how many rows there are and of constants and inputs: computed where it is used */
bool cg_inline_leaf(Func *f, ValueId root);
bool cg_fusable(const Node *n);
/* the node's own space: its output's dims, a reduction's input's */
int cg_space(const Func *f, const Node *n, Lin *ext);
/* strides over the node's space; false: not read there */
bool cg_operand(Func *f, const Node *n, uint32_t i, Ref *r, Lin *stride);
/* operand i is read by index: never from the same nest */
bool cg_reads_table(const Node *n, uint32_t i);
bool cg_reduces_columns(const Func *f, const Node *n);

/* ---- build.c: groups to nests ---------------------------------------------------------------- */

void cg_build(Func *f);
/* a constant with equal elements */
bool cg_uniform(const Func *f, ValueId root, double *x, int64_t *i);

/* ---- product.c: matrix products of the library ----------------------------------------------- */

/* The batch dimensions of `like`, cut where any operand's are: dimension d of it holds the parts of
 * the operands that have it. */
enum { BATCH_OPERANDS = 16 };
typedef struct { int n; Lin count[PRODUCT_BATCH], stride[BATCH_OPERANDS][PRODUCT_BATCH]; } Batches;
bool cg_batches(const Func *f, const Wide *const *w, int operands, ValueId like, Batches *out);
/* dimensions that are one walk through every operand become one */
void cg_batches_fold(Batches *b, int operands);
bool cg_is_product(const Func *f, const Node *n);
/* ... and operand i is one of its matrices: not its bias, nor the mask of a packed one */
bool cg_is_factor(const Func *f, const Node *n, uint32_t i);
bool cg_product_takes(const Func *f, ValueId v, const Wide *w);  /* as an operand, standing there */
bool cg_product_reads(Func *f, ValueId v);              /* as an operand, where it stands */
bool cg_product_folds(Func *f, const Node *n);          /* A stands as one matrix? */
bool cg_product_writes(const Func *f, const Node *n, const Ref *r);
bool cg_product_stands(const Func *f, const Ref *r, Dtype t);   /* a matrix of the library */
bool cg_batches_fit(Func *f, const Node *n);
void cg_product(Func *f, const Node *n, Step *s);       /* fills in product and arguments */

/* ---- attention.c: FlashAttention and its gradient -------------------------------------------- */

bool cg_is_attention(const Node *n);
bool cg_is_attended(const Node *n, uint32_t i); /* ... and operand i a factor of a product */
bool cg_attention_fits(Func *f, const Node *n);         /* on its operands where they stand? */
/* operand i where it stands; a result there: on CPUs one stride of a matrix is 1 */
bool cg_attention_reads(Func *f, const Node *n, uint32_t i);
bool cg_attention_writes(const Func *f, const Node *n, const Ref *r);
void cg_attention(Func *f, const Node *n, Step *s);

/* ---- collective.c: collectives of members ------------------------------------------- */

/* elements of its operand's type that come in beside the result */
int64_t cg_collective_work(const Func *f, const Node *n);
void cg_collective(Func *f, const Node *n, Step *s, CollectivePart when);

/* ---- overlap.c: collectives beside computation ----------------------------------------------- */

void cg_overlap(Func *f);                               /* fills in Group.until */

/* ---- demand.c: what is not a nest, and where it finds its operands --------------------------- */

bool cg_is_convolution(const Node *n);
bool cg_call_reads(Func *f, const Node *n, uint32_t i); /* may the operand be read as it is? */
bool cg_call_writes(const Func *f, const Node *n, const Ref *r);
bool cg_call_adds(const Func *f, const Node *n);        /* can accumulate into its output */
bool cg_kernel_reads(const Func *f, const Node *n, uint32_t i);        /* through a pointer */
bool cg_kernel_writes(const Func *f, const Node *n, uint32_t out);
/* what group o of the order reads and writes, once nests are built; what is read comes first */
const Accesses *cg_accesses(Func *f, uint32_t o);

/* ---- loop.c: Recurrences --------------------------------------------------------------------- */

void cg_loop(Func *f, const Node *n, Step *s);          /* its arguments are there */

/* ---- then.c: nests that follow a convolution part by part ------------------------------------ */

void cg_then(Func *f);
bool cg_has_then(const Func *f, uint32_t o); /* group o of the order, by the one behind it */

/* ---- after.c: what such a nest computes, where the library knows it -------------------------- */

const After *cg_after(Func *f, const Nest *image, uint32_t conv); /* conv: the buffer it reads */

/* ---- step.c: groups to steps ----------------------------------------------------------------- */

void cg_steps(Func *f);
/* made by a backward function, not computed again from the forward */
bool cg_is_gradient(const Func *f, ValueId v);

/* ---- optional.c: outputs that need no place ------------------------------------------------- */
void cg_optional(Func *f);

/* ---- count.c: on a device, how many rows the data leave ------------------------------------- */

void cg_counts(Func *f);

/* ---- signature.c, repeat.c: what comes several times ----------------------------------------- */

uint32_t cg_signature(Func *f, const Step *s);
void cg_repeat(Func *f);

/* ---- role.c: what scalars of a row are ------------------------------------------------------- */

const char *role_of(const Nest *n, uint32_t i); /* "max", "mean", "rstd"; NULL: nothing known */
/* of all statements, "sum2" of the second one; NULL where nothing is known */
const char **role_names(Arena *a, const Nest *n);
void role_learn(StageGen *sg, const Nest *n);           /* the values that it writes */
const char *role_known(
    const StageGen *sg,
    ValueId v); /* "means": so is an argument called that is this value; NULL: nothing known */
/* "mean" of "means", "rstd2" of "rstds2"; NULL: it is no such name */
const char *role_one(Arena *a, const char *name);

/* ---- memory.c -------------------------------------------------------------------------------- */

void cg_memory(Func *f);
void cg_lifetimes(Func *f);                             /* of buffers, in steps */
int64_t cg_most_alive(const Func *f, const Packed *l, uint32_t n); /* bytes, at one step */

/* ---- again.c: parts of the stash ---- */

/* root_of: by value of Stage.stash; all roots stand one behind the other */
void cg_again(StageGen *sg, const uint32_t *root_of);

/* ---- work.c: what a nest is to a device ------------------------------------------------------ */

/* Bytes that it reads and writes at the least; "elementwise", "copy", "row" or "column". */
Lin nest_bytes(const Nest *n);
const char *nest_kind(const Nest *n);
/* Instructions of its operations, loads and stores, at all its points, in all its passes. */
Lin nest_instructions(const Nest *n);

/* ---- constant.c ------------------------------------------------------------------------------ */

uint32_t cg_constant(StageGen *sg, ValueId v);          /* its number */
double cg_element(const Value *v, int64_t i, int64_t *as_int);          /* of a constant */
/* whole numbers that rise evenly, one element after the other */
bool cg_iota(const Value *v, int64_t *first, int64_t *step);

/* ---- function.c: all passes over a function -------------------------------------------------- */

const char *cg_function_kind(Arena *a, FuncKind kind);  /* "backward_input" */
/* before any pass */
Func *cg_function_new(StageGen *sg, FuncKind kind, Arena *a, Arena *scratch);
Func *cg_function(StageGen *sg, FuncKind kind);
/* the first function of the stage with the same steps on the same memory */
FuncKind cg_function_like(const StageGen *sg, FuncKind kind);

/* ---- stage.c: all functions of a stage ------------------------------------------------------- */

/* All functions, not yet printed */
StageGen *cg_stage(Arena *a, Pipe *p, uint32_t index, Target target);
/* the same where lengths vary */
StageGen *cg_stage_sized(Arena *a, Pipe *p, uint32_t index, Target target, const Lengths *lengths,
                         SizesMet *sizes);
bool cg_has_backward(const Stage *s);
int64_t cg_bytes_work(const StageGen *sg); /* the largest of all functions */
/* print/program.c: for who plans a device's stage and does not print it: what its functions need
   behind the workspace (FuncBytes.scratch), which printing finds.  Sizes are known */
void cg_scratch(StageGen *sg);
int64_t cg_bytes_work_of(const StageGen *sg, FuncKind kind);

#endif

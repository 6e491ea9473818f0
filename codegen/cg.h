/*
 * cg.h - what the passes of codegen share: text, views, the program of one function of a stage.
 *
 * A Func is one of a stage's functions (forward, infer, backward, backward_input, backward_weight).  Its way:
 * lower -> place (where values live) -> fuse (groups) -> build (nests and calls) -> memory (lifetimes, offsets) -> print.
 */
#ifndef PPSPLIT_CG_H
#define PPSPLIT_CG_H

#include "codegen.h"
#include "codegen/step.h"

/* ---- emit.c: text ---------------------------------------------------------------------------- */

typedef struct Text { Arena *a; char *at; size_t n, cap; int indent; } Text;
void text_add(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);         /* as it is */
void text_line(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);        /* indented, with a newline */
void text_noted(Text *t, int column, const char *code, const char *note);      /* code, and from the column on a comment, cut at 120 columns */
const char *cg_comment(Arena *a, const char *s);        /* a model's string inside a comment: printable, no end of comment */
const char *cg_string(Arena *a, const char *s);         /* a C string literal, quotes included */
const char *cg_node_text(const Graph *g, NodeId n);     /* "Softmax /h.0/attn/Softmax" for comments, escaped */

/* ---- type.c: element types in generated code; a type that is not computed with is an internal error ------------ */

const char *cg_ctype(Dtype t);                          /* of elements: "float", "uint8_t" for bool */
const char *type_local(Dtype t);                        /* of variables: a bool is an int */
const char *type_narrowing(Dtype t);                    /* the cast with which a variable is stored; "" */
const char *type_suffix(Dtype t);                       /* of pp_math.h's functions */
const char *type_lowest(Dtype t);
const char *type_highest(Dtype t);
const char *type_sum(Dtype t);                          /* the C type in which elements are added up */
const char *type_library(Dtype t);                      /* "s", "d": BLAS's letter; NULL: none */
const char *type_runtime(Dtype t);                      /* "PP_F32" */
const char *cg_number(Arena *a, Dtype t, double f, int64_t i);  /* a literal that reads back to the same value in any locale */

/* ---- the function ---------------------------------------------------------------------------- */

typedef enum {
    BUF_PARAM, BUF_GRAD, BUF_CONST, BUF_STASH, BUF_SAVED, BUF_IN, BUF_OUT, BUF_DY, BUF_DX, BUF_WORK
} BufClass;

typedef struct {
    BufClass cls;
    uint32_t index;                 /* IN, OUT, DY, DX: which; PARAM, GRAD: position in stage.param; CONST: in StageGen.konst */
    ValueId value;
    Dtype type;
    int64_t bytes;                  /* at full rows */
    int64_t offset;                 /* in its block */
    int first, last;                /* steps (WORK) */
    bool used, written;
    uint32_t over;                  /* the buffer in whose place this one comes to stand; NONE: none */
    bool guest;                     /* a value of the workspace in a place where another one comes to stand */
} Buffer;

/* Where element (i0, i1, ..) of a value stands: in buffer buf at off + sum of stride[d] * i_d.  ext: its dims. */
typedef struct {
    ValueId root;                   /* the value whose memory this is */
    uint32_t buf;
    int rank;
    bool wide;                      /* a dimension has several strides: only views and products read it */
    Lin off, ext[MAX_RANK], stride[MAX_RANK];
} Ref;

/* The same with dimensions of several parts: dimension d is the parts first[d] .. first[d + 1] - 1, outermost first. */
enum { WIDE_PARTS = 40 };
typedef struct {
    ValueId root;
    uint32_t buf;
    int rank, n, first[MAX_RANK + 1];
    Lin off, ext[WIDE_PARTS], stride[WIDE_PARTS];
} Wide;

typedef enum { TARGET_C, TARGET_CUDA, TARGETS } Target;

typedef enum { F_FORWARD, F_INFER, F_BACKWARD, F_INPUT, F_WEIGHT, F_COUNT } FuncKind;

/* One piece of a group's dimension k that is dimension e of a node's space, times mult. */
typedef struct { int k, e; Lin mult; } Piece;
typedef struct { NodeId node; int np; const Piece *piece; } Member;
/* A value whose element at each point of the group's space is known to be at these strides. */
typedef struct { ValueId root; Lin off; const Lin *stride; bool internal, hidden; } Known;

typedef VEC(Member) Members;
typedef VEC(Known) Knowns;

typedef enum { G_NEST, G_CALL, G_NONE } GroupKind;
typedef struct {
    GroupKind kind;
    NestKind mode;
    int nd, nouter, nrun;
    bool reduces;
    Lin ext[NEST_DIMS];
    Members member;
    Knowns known;                   /* these and the rest while groups grow: fuse.h */
    Ids dep;                        /* groups it needs */
    uint32_t mark;                  /* the last search that came here */
    uint32_t place;                 /* in the row of groups */
    uint32_t into;                  /* the group it became part of, NONE: it stands */
    Nest *nest;
} Group;

typedef struct StageGen StageGen;

typedef struct {
    StageGen *sg;
    Graph *g;
    Arena *a;
    Arena *scratch;                 /* while the passes run */
    FuncKind kind;
    bool training;                  /* which operand of Phase */
    Ids node;                       /* in order, lowered and rewritten */
    VEC(Buffer) buf;
    IdMap buffer_of;                /* those outside the workspace */
    /* by value id, grown with the graph */
    VEC(NodeId) def;                /* the node of this function that makes it, NONE: comes from outside */
    VEC(Ref *) home;                /* where a root value lives, once decided */
    VEC(Ref *) ref;                 /* resolved views */
    VEC(uint32_t) group_of;         /* the group whose memory or registers hold it */
    VEC(uint8_t) acc;               /* stores to it add */
    VEC(Group) group;
    Ids order;                      /* groups in final order */
    VEC(NodeId) after;              /* extra order: node after[2i+1] comes after node after[2i] */
    struct Fuse *fuse;              /* while groups grow */
    bool *needed;                   /* by root value: read from memory by others than its group */
    int64_t bytes_work;
    int64_t bytes_scratch[TARGETS]; /* behind the workspace, for kernels that hand results to the next one: known once printed */
    VEC(Step) step;
    VEC(Repeat) repeat;             /* in their order, apart from one another */
    Text body[TARGETS];             /* the printed function */
} Func;

/* A constant the stage reads through a pointer.  inlined: its elements stand in the source; on the device it lies in PpCtx.konst all
   the same, behind the others. */
typedef struct { ValueId value; bool inlined; int64_t offset; } StageConst;

/* The kernels of a stage for one target, each distinct text once. */
typedef struct {
    VEC(const char *) name;
    StrMap of;                      /* text -> index */
    StrMap titles;                  /* operation and direction -> how many */
    Text text;
} KernelList;

/* A convolution that open() prepares. */
typedef struct {
    Dtype type;
    int spatial;
    int64_t group, c, m, in[3], out[3], kernel[3], stride[3], dilation[3], pad_begin[3], pad_end[3];
    int64_t rows;                   /* the most */
} StageConv;

/* What steps compute, each once: a table by hash. */
typedef struct { uint64_t hash; const uint8_t *bytes; uint32_t n, number; } Signature;
typedef struct { Signature *slot; uint32_t n, cap; VEC(uint8_t) room; } Signatures;     /* room: for a step's bytes until they are known */

/* The table of offsets of a stage: sections of rows of one number or several. */
typedef struct { const char *name, *note; uint32_t n; const int64_t *at; bool step; } OffsetRow;     /* step: from one turn to the next, of the row before */
typedef struct { const char *name, *title; VEC(OffsetRow) row; StrMap of; } OffsetSection;
typedef struct { VEC(OffsetSection) section; } Offsets;

/* Positions in the stage's lists, by value; of parameters by parameter. */
typedef struct {
    IdMap param, input, output, dy, stash, saved, konst;
    IdMap shown;                    /* of a value that is read again, the output that holds its elements */
    IdMap known;                    /* values that are scalars of rows: what they are (role.c) */
    IdMap recomputed;               /* values of the forward that the backward computes again */
} Positions;

typedef VEC(int64_t) Bytes;
typedef VEC(Ref *) Refs;

struct StageGen {
    Pipe *pipe;
    Graph *g;
    Stage *stage;
    Arena *a;
    bool fixed;                     /* rows never change: every extent is a plain number */
    VEC(StageConst) konst;
    Target target;                  /* of what is being printed */
    KernelList kernels[TARGETS], turns[TARGETS];        /* turns: functions of repeated sequences */
    Offsets offsets[TARGETS];
    const char *probe, *probe_end;  /* a statement before each step and at the end of each function, for tests; NULL: none */
    VEC(StageConv) conv;
    Signatures signatures;
    /* stash and saved: roots with their offsets */
    Ids stash, saved;
    Bytes stash_at, saved_at;
    Refs stash_layout, saved_layout;        /* their strides */
    Positions position;
    int64_t bytes_stash, bytes_saved, bytes_param, bytes_grad;
    int64_t bytes_const, bytes_inlined;
    VEC(int64_t) param_at;
    VEC(int64_t) grad_at;           /* -1: none */
    IdMap lowered;                  /* by original node: index into lowered_list */
    VEC(Ids) lowered_list;
    /* which stage inputs, outputs and gradients that come in B / I reads (bit 0), W (bit 1), forward (bit 2) */
    uint8_t *in_read, *out_read, *dy_read;
    Func *func[F_COUNT];
};

/* ---- view.c ----------------------------------------------------------------------------------- */

Lin cg_ext(const Func *f, ValueId v, int d);            /* extent of dimension d */
Ref cg_dense(const Func *f, ValueId v);                 /* row-major, offset 0, no buffer */
bool cg_is_dense(const Ref *r);
bool cg_ref_same(const Ref *x, const Ref *y);           /* same buffer, offset, strides */
const Ref *cg_ref(Func *f, ValueId v);                  /* BUG() when no view can be expressed: place.c sees to it */
bool cg_wide(Func *f, ValueId v, Wide *w);
bool cg_ref_try(Func *f, ValueId v, Ref *r);
bool cg_view_invert(Func *f, const Node *n, const Wide *out, Wide *r);      /* where the operand must be for that output */
NodeId cg_maker(const Func *f, ValueId v);
ValueId cg_root(Func *f, ValueId v);                    /* below all views, whether strides can express them or not */
Wide cg_widen(const Ref *r);
bool cg_view_apply(Func *f, const Node *n, uint32_t out, const Wide *in, Wide *r);    /* where an output of a view stands */
bool cg_narrow(const Func *f, const Wide *w, ValueId v, Ref *r);
bool cg_is_view(const Func *f, NodeId n);
bool cg_is_copy(const Node *n);                         /* an Identity of ours that moves elements */
ValueId cg_view_operand(const Func *f, const Node *n);

/* ---- outside.c -------------------------------------------------------------------------------- */

int64_t cg_bytes(const Func *f, ValueId v);             /* of the value in its type */
uint32_t cg_buffer(Func *f, BufClass cls, uint32_t index, ValueId v);   /* each place outside the workspace once */
void cg_position_stage(StageGen *sg);                     /* all of Positions that the Stage says */
void cg_position(StageGen *sg, IdMap *m, uint64_t key, uint32_t at);      /* unless it has one */
uint32_t cg_outside(Func *f, ValueId v);                /* the buffer of a value that f does not make; NONE: a view of another */

/* ---- lower.c: CODE_LOWER ops and a few others into core ops --------------------------------------- */

void cg_lower(Func *f, const Ids *list);                /* fills f->node, f->def */
ValueId cg_new_value(Func *f, Dtype t, const Shape *s, int batch);
NodeId cg_new_node(Func *f, Op op, uint32_t nin, const ValueId *in, uint32_t nout, const ValueId *out, Attr attr, uint32_t origin);
void cg_track(Func *f);                                 /* per-value arrays follow the graph */
bool cg_zeros(const Graph *g, ValueId v);                /* a constant of zero bytes, through Expand and Reshape */

/* ---- place.c: where values live; copies that are needed ------------------------------------------- */

void cg_place(Func *f);
bool cg_keeps_inner(const Ref *r);

/* ---- pad.c: rows a little further apart ------------------------------------------------------------- */

/* The nodes of some lists that read a value, in their order: node[first[v]] up to node[first[v + 1]]; once per operand. */
typedef struct { uint32_t *first; NodeId *node; } Readers;
Readers cg_readers(Func *f, const Ids *list, int n);
/* A padded place for v (no buffer yet) that all its readers can take, when it pays. */
bool cg_pad(Func *f, ValueId v, const Readers *readers, Ref *at);
int64_t cg_ref_bytes(const Func *f, const Ref *r, ValueId v);   /* at full rows, from the first element to the last */

/* ---- fuse.c ---------------------------------------------------------------------------------------- */

void cg_fuse(Func *f);
bool cg_is_reduce(Op op);
bool cg_inline_leaf(const Func *f, ValueId root);       /* Count: a number of the rows, computed where it is used */
bool cg_fusable(const Node *n);
int cg_space(const Func *f, const Node *n, Lin *ext);   /* the node's own space: its output's dims, a reduction's input's */
bool cg_operand(Func *f, const Node *n, uint32_t i, Ref *r, Lin *stride);   /* strides over the node's space; false: not read there */
bool cg_reads_table(const Node *n, uint32_t i);         /* operand i is read by index: never from the same nest */
bool cg_reduces_columns(const Func *f, const Node *n);
bool cg_uniform(const Func *f, ValueId root, double *x, int64_t *i);        /* a constant with equal elements */
bool cg_iota(const Func *f, ValueId root, int64_t *first, int64_t *step);

/* ---- build.c: groups to nests ------------------------------------------------------------------------ */

void cg_build(Func *f);

/* ---- product.c: matrix products of the library -------------------------------------------------------- */

bool cg_is_product(const Func *f, const Node *n);
bool cg_product_takes(const Func *f, ValueId v, const Wide *w);  /* as an operand, standing there */
bool cg_product_reads(Func *f, ValueId v);              /* as an operand, where it stands */
bool cg_product_writes(const Func *f, const Ref *r);
bool cg_batches_fit(Func *f, const Node *n);
void cg_product(Func *f, const Node *n, Step *s);       /* fills in product and arguments */

/* ---- demand.c: what is not a nest, and where it finds its operands ---------------------------------------- */

bool cg_is_convolution(const Node *n);
bool cg_call_reads(Func *f, const Node *n, uint32_t i); /* may the operand be read as it is? */
bool cg_call_writes(const Func *f, const Node *n, const Ref *r);
bool cg_call_adds(const Func *f, const Node *n);        /* can accumulate into its output */
bool cg_kernel_reads(const Func *f, const Node *n, uint32_t i);        /* through a pointer */
bool cg_kernel_writes(const Func *f, const Node *n, uint32_t out);

/* ---- step.c: groups to steps -------------------------------------------------------------------------------- */

void cg_steps(Func *f);
uint32_t cg_signature(Func *f, const Step *s);          /* signature.c */
void cg_repeat(Func *f);                                /* repeat.c: signatures, and what comes several times */

/* ---- role.c: what scalars of a row are ------------------------------------------------------------------------ */

const char *role_of(const Nest *n, uint32_t i);         /* "max", "mean", "rstd"; NULL: nothing known */
const char **role_names(Arena *a, const Nest *n);       /* of all statements, "r7" where nothing is known */
void role_learn(StageGen *sg, const Nest *n);           /* the values that it writes */
const char *role_known(const StageGen *sg, ValueId v);  /* "means": so is an argument called that is this value; NULL: nothing known */

/* ---- memory.c ------------------------------------------------------------------------------------------ */

void cg_memory(Func *f);
typedef struct { int64_t bytes; int first, last; int64_t offset; } Lifetime;
int64_t cg_pack(Arena *a, Lifetime *l, uint32_t n);     /* greedy by size; returns the total */

/* ---- function.c, stage.c: all passes ---------------------------------------------------------------------- */

Func *cg_function_new(StageGen *sg, FuncKind kind, Arena *a, Arena *scratch);   /* before any pass */
Func *cg_function(StageGen *sg, FuncKind kind);         /* for no target in particular */
FuncKind cg_function_like(const StageGen *sg, FuncKind kind);   /* the first function of the stage with the same steps on the same memory */
uint32_t cg_constant(StageGen *sg, ValueId v);          /* its number */
bool cg_is_gradient(const Func *f, ValueId v);          /* made by a backward function, not computed again from the forward */
StageGen *cg_stage(Arena *a, Pipe *p, uint32_t index);  /* all functions, not yet printed */
bool cg_has_backward(const Stage *s);
uint64_t cg_stage_hash(const StageGen *sg, uint64_t h); /* signature.c: of what the stage computes, where, and what it exchanges */
int64_t cg_bytes_work(const StageGen *sg, Target target);
double cg_element(const Value *v, int64_t i, int64_t *as_int);          /* of a constant */

/* ---- print/program.c, write/ ----------------------------------------------------------------------------------- */

const char *cg_function_name(const StageGen *sg, FuncKind kind, Target target);
void cg_function_print(Func *f);                        /* into f->body[target] */
void cg_stage_functions(StageGen *sg, Target target);   /* prints them */
void cg_stage_print(StageGen *sg, Target target, Text *t);      /* stageN.c, stageN.cu */
const char *cg_tensor(Arena *a, const Graph *g, const char *name, Dtype t, const Shape *s, int batch);      /* a PpTensor */
void cg_short_constants(const StageGen *sg, const char *prefix, Text *t);       /* those that stand in the source */
void cg_tables_print(const StageGen *sg, bool cpu, bool cuda, Text *t); /* after the stage's functions */
const char *cg_const_name(const StageGen *sg, uint32_t i);                                                  /* in params/ */
void cg_pipeline_print(Pipe *p, uint64_t hash, bool cpu, bool cuda, const Text *tables, Text *t);
/* dir: where to write; final_dir: where that will lie in the end, absolute. */
void cg_params_write(StageGen *sg, const char *dir, const char *final_dir, bool link, OnnxWeight *weight);     /* where each parameter's bytes went */

static inline int64_t cg_align(int64_t n) { return (n + 63) / 64 * 64; }

#endif

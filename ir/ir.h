/*
 * ir.h - the Graph of core operations: types, values, nodes, builders, shapes, evaluation, the op table as data.
 *
 * ops.def has one row per operation.  Nodes are in topological order; ids are never reused.
 */
#ifndef PPSPLIT_IR_H
#define PPSPLIT_IR_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t ValueId;
typedef uint32_t NodeId;

/* ---- types --------------------------------------------------------------------------------- */

/* TensorProto.DataType: DT_F32 = 1, ...; one row each in dtype.def. */
typedef enum {
    DT_NONE = 0,
#define DTYPE(name, number, ...) DT_##name = number,
#include "base/file/dtype.def"
#undef DTYPE
    DT_LAST = 26                                        /* the greatest that ONNX has; some have no row */
} Dtype;

enum { MAX_RANK = 16 };
typedef struct { int rank; int64_t d[MAX_RANK]; } Shape;

/* dtype.c */
size_t dtype_size(Dtype t);                             /* bytes of an element; 0 for strings and types without a row */
const char *dtype_name(Dtype t);                        /* "f32", "i64", "bool", ... */
uint32_t dtype_onnx_field(Dtype t);                     /* the repeated field of TensorProto with such elements; 0: none */
bool dtype_is_float(Dtype t);
bool dtype_is_signed(Dtype t);                          /* a whole number that may be negative */
bool dtype_is_computable(Dtype t);                      /* f32 f64 i32 i64 bool */
Dtype dtype_held(Dtype t);                              /* the computable type that stands for t; DT_NONE: none */
double dtype_round(Dtype t, double v);                  /* the nearest value of a computable float type */
int64_t shape_elements(const Shape *s);                 /* checked: overflow is a fatal error of the model */
bool shape_equal(const Shape *a, const Shape *b);
Shape shape_of(int rank, ...);                          /* int64_t each */
char *shape_print(Arena *a, Dtype t, const Shape *s);   /* "f32[4,8,128,64]" */

/* Dense row-major bytes in memory: constants, and what the evaluator computes with. */
typedef struct { Dtype dtype; Shape shape; void *data; } Tensor;

/* element.c: element i of an array in memory, of any type with numbers and at any alignment.  Real numbers become whole
   ones by dropping the fraction, and what 64 bits cannot hold becomes the least; halves are rounded to nearest even. */
double element_double(Dtype t, const void *data, int64_t i);
int64_t element_int(Dtype t, const void *data, int64_t i);
void element_set_double(Dtype t, void *data, int64_t i, double v);
void element_set_int(Dtype t, void *data, int64_t i, int64_t v);
void element_copy(Dtype to, void *out, Dtype from, const void *in, int64_t i);  /* element i, whole numbers exactly */

/* ---- the graph ----------------------------------------------------------------------------- */

/* One enumerator per row of ops.def: OP_Add, OP_Softmax, ...  (composites never occur in a Graph). */
typedef enum {
    OP_NONE,
#define OP(name, ...) OP_##name,
#define COMPOSITE(name, ...) OP_##name,
#include "ir/ops.def"
    OP_COUNT
} Op;

/*
 * Attributes in canonical form; ops.def names beside each op those that it has.  Whatever ONNX lets one pass as an
 * input but must be static here (axes, shapes, pads, ...) is an attribute.  Axes are non-negative.  The arrays are
 * the arena's and never written after the node is made.  Names that no op has together share their storage.
 */
typedef struct {
    int n;                                              /* length of the arrays, where not stated: spatial dims of a window */
    int64_t group;
    union {
        int64_t axis;
        int64_t batch_dims;                             /* GatherND */
        int64_t key;                                    /* Dropout: of its random numbers */
    };
    union {
        int64_t k;                                      /* TopK: how many */
        int64_t ceil_mode;                              /* pools: the output's size is rounded up */
        int64_t padding_row;                            /* Gather: the row that gets no gradient, from 1; 0: none */
        int64_t alone;                                  /* a copy of codegen's: fused with nothing */
    };
    union { const int64_t *dims, *perm, *axes, *start, *sizes, *begin, *stride; };
    union { const int64_t *size, *end, *dilation; };
    union { const int64_t *step, *pad; };               /* pad: 2n, begins and then ends */
    union { const int64_t *kernel, *out_dims, *weight_dims; };  /* weight_dims: n + 2 */
    union { double value, ratio; };
    union {
        int mode;                                       /* Pad: PAD_ */
        int reduction;                                  /* Scatter: SCATTER_ */
        int scan;                                       /* CumSum: CUMSUM_ flags */
        int largest;                                    /* TopK */
        int select_last;                                /* ArgMax, ArgMin: the last of equals */
        int count_include_pad;                          /* AveragePool */
        int copy;                                       /* Identity of codegen's: elements are moved */
    };
    Dtype to;                                           /* Cast, Count */
} Attr;

enum { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };
enum { SCATTER_NONE, SCATTER_ADD, SCATTER_MUL, SCATTER_MAX, SCATTER_MIN };
enum { CUMSUM_EXCLUSIVE = 1, CUMSUM_REVERSE = 2 };

typedef enum {
    V_INPUT,       /* a model input (data), `target`, or the runtime scalar loss_scale */
    V_PARAM,       /* a parameter or running statistic; in PyTorch's shape; Value.param */
    V_CONST,       /* Value.data holds the bytes */
    V_NODE,        /* made by Value.node */
} ValueKind;

enum { BATCH_NONE = -1, BATCH_MIXED = -2 };

typedef struct {
    const char *name;                                   /* the model's, unique; made-up ones contain a '%' */
    ValueKind kind;
    Dtype dtype;
    Shape shape;                                        /* with the largest chunk's rows, graph.batch */
    int batch;            /* the dimension that is k * rows (k = d / graph.batch), rows outermost in it;
                             BATCH_NONE: does not depend on the rows; BATCH_MIXED: depends in an untracked way */
    NodeId node;                                        /* V_NODE */
    uint32_t out;                                       /* which output of it */
    uint32_t param;                                     /* V_PARAM: index into graph.param */
    const void *data;                                   /* V_CONST: dense bytes */
} Value;

typedef struct {
    Op op;
    uint32_t nin, nout;
    ValueId *in, *out;
    Attr attr;
    uint32_t origin;                                    /* index into graph.origin */
} Node;

/* The ONNX node a core node comes from. */
typedef struct {
    const char *name, *type;                            /* may be "" */
    const char *scope;                                  /* "transformer.h.0.attn"; "" = the model itself */
    uint32_t index;                                     /* in its file */
    int pipeline_stage;                                 /* annotation, -1: none */
    bool split_marker;                                  /* made by a ppsplit::Split node: a cut comes after it */
    uint32_t call;                                      /* numbers calls of a module: 0 for the first */
} Origin;

/* Bytes of a tensor still in its file (mapped, not copied). */
typedef struct {
    const uint8_t *at;                                  /* NULL: all zeros (a restored bias) */
    size_t length;
    const char *file;                                   /* the path it was mapped from */
    uint64_t offset;                                    /* in that file, for --params link */
    bool converted;                                     /* typed data arrays were unpacked into the arena: no offset */
} Payload;

typedef struct {
    const char *name;                                   /* PyTorch's: "h.0.attn.c_attn.weight" */
    const char *initializer;                            /* the initializer's name in the file; NULL: restored */
    Dtype dtype;
    Shape shape;                                        /* as PyTorch shapes it */
    bool transposed;                                    /* the file holds it with its two dims exchanged */
    bool trainable;
    bool stat;                                          /* a running statistic of BatchNormalization */
    Payload bytes;
    ValueId value;
} Param;

/* BatchNormalization in training: after a forward, param takes the value. */
typedef struct { uint32_t param; ValueId value; } StatUpdate;

typedef struct Graph {
    Arena *arena;
    const char *file;                                   /* for diagnostics */
    VEC(Value) value;
    VEC(Node) node;                                     /* creation order is a topological order */
    VEC(Origin) origin;
    VEC(Param) param;
    VEC(StatUpdate) update;
    Ids input;                                          /* model inputs, in order (target/loss_scale appended later) */
    Ids output;                                         /* model outputs, in order */
    VEC(const char *) output_name;                      /* their names (a value may be an output twice) */
    StrMap by_name;                                     /* value name -> ValueId */
    int64_t batch;                                      /* rows of the model's shapes (1 if unknown) */
    uint32_t cur_origin;                                /* given to nodes that builders make */
    uint32_t made_names;
    int dropout_count;                                  /* Dropout nodes so far: their key in the generator */
    bool scheduled;                                     /* stash_minimize ran: the stages' lists give the order, ids no longer do */
    uint64_t model_hash;                                /* of the file's bytes of structure */
    VEC(struct Model *) model;                          /* the files, in order; import.c pushes them */
} Graph;

static inline const Value *val(const Graph *g, ValueId v) { return &g->value.at[v]; }

/* ---- graph.c: making values and nodes ------------------------------------------------------- */

Graph *graph_new(Arena *a, const char *file);
ValueId graph_value(Graph *g, ValueKind kind, const char *name, Dtype t, const Shape *s);  /* name NULL: made up */
ValueId graph_input(Graph *g, const char *name, Dtype t, const Shape *s);     /* appended to g->input */
ValueId graph_param(Graph *g, Param p);                                       /* sets p.value */
ValueId graph_const(Graph *g, const char *name, Tensor t);                    /* keeps t.data */
void graph_rename(Graph *g, ValueId v, const char *name);                     /* fatal if another has it */
/*
 * Makes a core node: checks operands, infers its shapes (shape.c), folds it when it is pure and every
 * operand is constant (eval.c; not when the result is larger than 1 Mi elements and larger than its operands),
 * removes what is an identity.  Returns output 0; the other outputs are node->out[i]: graph_out(g, r, i).
 * in[] may hold NONE for an absent optional operand.
 */
ValueId graph_node(Graph *g, Op op, uint32_t nin, const ValueId *in, Attr attr);
ValueId graph_out(const Graph *g, ValueId first, uint32_t i);                 /* i-th output of first's node */
Where graph_where(const Graph *g, uint32_t origin, int input);
void graph_verify(const Graph *g);                      /* BUG() on any broken invariant */
void graph_dump(const Graph *g, FILE *f);               /* one line a node, stable */
/* users[v] = node ids that read v, in order; index by value id. Arena array of g->value.n lists. */
Ids *graph_users(const Graph *g, Arena *scratch);

/* ---- build.c: builders, one line each; shapes follow NumPy broadcasting ---------------------- */

ValueId g_unary(Graph *g, Op op, ValueId x);
ValueId g_binary(Graph *g, Op op, ValueId x, ValueId y);
ValueId g_add(Graph *g, ValueId x, ValueId y);
ValueId g_sub(Graph *g, ValueId x, ValueId y);
ValueId g_mul(Graph *g, ValueId x, ValueId y);
ValueId g_div(Graph *g, ValueId x, ValueId y);
ValueId g_neg(Graph *g, ValueId x);
ValueId g_where(Graph *g, ValueId cond, ValueId x, ValueId y);
ValueId g_cast(Graph *g, ValueId x, Dtype to);
ValueId g_full(Graph *g, Dtype t, const Shape *s, double v);     /* a scalar constant, expanded (a view) */
ValueId g_scalar(Graph *g, Dtype t, double v);                   /* rank 0 */
ValueId g_like(Graph *g, ValueId x, double v);                   /* scalar constant of x's dtype (broadcasts) */
ValueId g_ints(Graph *g, int rank, const int64_t *dims, const int64_t *v);
ValueId g_reshape(Graph *g, ValueId x, const Shape *s);
ValueId g_transpose(Graph *g, ValueId x, const int64_t *perm);
ValueId g_swap_last(Graph *g, ValueId x);                        /* transpose of the last two dims */
ValueId g_expand(Graph *g, ValueId x, const Shape *s);
ValueId g_reduce(Graph *g, Op op, ValueId x, int n, const int64_t *axes);     /* keeps the dims, as 1 */
ValueId g_reduce_last(Graph *g, Op op, ValueId x);
ValueId g_sum_to(Graph *g, ValueId x, const Shape *s);           /* undo a broadcast: sum to shape s */
ValueId g_slice(Graph *g, ValueId x, const int64_t *start, const int64_t *size, const int64_t *step);  /* all dims; step NULL = 1 */
ValueId g_slice_axis(Graph *g, ValueId x, int axis, int64_t start, int64_t size);
ValueId g_concat(Graph *g, uint32_t n, const ValueId *x, int axis);
ValueId g_split(Graph *g, ValueId x, int axis, int n, const int64_t *sizes);  /* first output; graph_out for the rest */
ValueId g_pad(Graph *g, ValueId x, const int64_t *begin, const int64_t *end, int mode, double v);
ValueId g_matmul(Graph *g, ValueId x, ValueId y);                /* ONNX/NumPy matmul, ranks 1.. (canonicalised to >= 2) */
ValueId g_gather(Graph *g, ValueId x, ValueId index, int axis);
ValueId g_softmax(Graph *g, ValueId x, int axis);
ValueId g_log_softmax(Graph *g, ValueId x, int axis);
ValueId g_mean(Graph *g, ValueId x, int n, const int64_t *axes); /* ReduceMean */
ValueId g_iota(Graph *g, Dtype t, int rank, int axis, int64_t n);/* constant 0..n-1 along axis, other dims 1 */
/* The constant's elements; false when v is not constant. */
bool g_const_ints(const Graph *g, ValueId v, Arena *a, int64_t **at, int64_t *n);
bool g_const_double(const Graph *g, ValueId v, double *x);       /* a constant with one element */

/* ---- shape.c -------------------------------------------------------------------------------- */

/* Output types of a core node from its operands and attributes; a mistake is a diag_fatal at the origin. */
void shape_infer(Graph *g, Op op, uint32_t nin, const ValueId *in, const Attr *attr, uint32_t nout,
                 Dtype *dtype, Shape *shape);

/* ---- eval.c: computes any core node on dense tensors; folds constants, and is the tests' oracle ---- */

/*
 * out[i].shape/dtype are set by the caller; data is allocated from a.  f32 results are rounded to f32
 * unless wide is set, in which case f32 tensors hold doubles in memory (dtype DT_F64): the float64 oracle.
 * Dropout is the identity with an all-true mask here; Phase takes operand 0.
 */
void eval_node(Arena *a, Op op, uint32_t nin, const Tensor *in, const Attr *attr, uint32_t nout, Tensor *out);
/* Evaluates nodes in order. at[] is indexed by value id; inputs, params and constants are filled by the caller. */
void eval_nodes(const Graph *g, Arena *a, const NodeId *list, uint32_t n, Tensor *at);

/* ---- ops.c: the table as data --------------------------------------------------------------- */

const char *op_name(Op op);
Op op_find(const char *name);                           /* OP_NONE when there is no such row */
bool op_is_map(Op op);                                  /* elementwise */
const char *op_map_text(Op op);                         /* the MAP expression over a, b, c; NULL otherwise */
bool op_is_core(Op op);                                 /* may stand in a Graph */
bool op_is_view(Op op);                                 /* its result is its operand's memory, where strides can say it */
bool op_is_pure(Op op);                                 /* equal operands give equal results */
bool op_folds(Op op);                                   /* computed at once where operands are constant */
bool op_is_cheap(Op op);                                /* computed again in backward rather than kept */
bool op_stands_alone(Op op);                            /* a call of its own, fused with nothing */
bool op_takes(Op op, uint32_t nin);                     /* so many operands in its core form */
uint32_t op_results(Op op, const Attr *attr);
bool op_differentiable(Op op);
void ops_print(FILE *f);                                /* ppsplit ops */

#ifdef __cplusplus
}
#endif
#endif

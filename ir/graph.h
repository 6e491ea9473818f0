/*
 * graph.h - the Graph of core operations: nodes and their attributes, values, parameters, and where
 * each came from. Ids are never reused; they are in topological order until the stash is chosen,
 * from then on the stages' lists of nodes are.
 */
#ifndef PPSPLIT_GRAPH_H
#define PPSPLIT_GRAPH_H

#include "op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t ValueId;
typedef uint32_t NodeId;

typedef enum {
    V_INPUT,       /* a model input (data), `target`, or the runtime scalar loss_scale */
    V_PARAM,       /* a parameter or running statistic; in PyTorch's shape; Value.param */
    V_CONST,       /* Value.data holds the bytes */
    V_NODE,        /* made by Value.node */
} ValueKind;

enum { BATCH_NONE = -1, BATCH_MIXED = -2 };

typedef struct {
    /* unique; the model's, or made up: "%12", "%grad/NAME", "NAME%bf16" */
    const char *name;
    bool made;
    ValueKind kind;
    Dtype dtype;
    /* with the largest chunk's rows, graph.batch */
    Shape shape;
    int batch; /* the dimension that is k * rows (k = d / graph.batch), rows outermost in it;
                  BATCH_NONE: does not depend on the rows; BATCH_MIXED: depends in an untracked way
                */
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
    const char *scope; /* "transformer.h.0.attn"; "" = the model itself */
    uint32_t index;                                     /* in its file */
    int pipeline_stage;                                 /* annotation, -1: none */
    /* made by a ppsplit::Split node: a cut comes after it */
    bool split_marker;
    /* numbers calls of a module: 0 for the first */
    uint32_t call;
} Origin;

typedef struct {
    const char *name;                                   /* PyTorch's: "h.0.attn.c_attn.weight" */
    /* the initializer's name in the file; NULL: restored */
    const char *initializer;
    Dtype dtype;
    Shape shape;                                        /* as PyTorch shapes it */
    /* the file holds it with its two dims exchanged */
    bool transposed;
    bool trainable;
    /* a running statistic of BatchNormalization */
    bool stat;
    Payload bytes;
    /* of a parameter that is divided: which part of it `shape` is, and the whole, whose the name and
       the bytes are; the parts stand one behind the other, where the whole did.  divided: else it
       is the whole itself (graph_param) */
    bool divided;
    Chunks box;
    Shape whole;
    ValueId value;
} Param;

/* An array of floats that a file holds, and why it trains or does not; param: what it is, or what it
 * is made of, or NONE; as: the parameter's name, where that is another one. */
typedef struct {
    const char *name, *as, *why;
    uint32_t param;
    Dtype dtype;
    Shape shape;
    bool trains;
} ArrayNote;

/* BatchNormalization in training: after a forward, param takes the value. */
typedef struct { uint32_t param; ValueId value; } StatUpdate;

/* A loop was unrolled on the ground that v is at most so much where the given bools are true
   (facts/range.c), with the rows that the graph had. */
typedef struct {
    ValueId v, *given;
    uint32_t n, origin;
    double most;
} TripBound;

/* Nodes of which the last has become one operation: no stage begins behind the first. */
typedef struct { NodeId first, last; } NodeSpan;

/* What is found by looking at all elements of a constant: in an arena that the graph keeps. */
typedef struct Looked Looked;
typedef const void *LookAt(Arena *a, Dtype t, const Shape *shape, const void *data, int what);

/* A dimension of the model's inputs that may hold the rows: by input, which of its dimensions, or
   BATCH_NONE.  name: as the file calls it; NULL: it only has a size.  open: of these inputs the file
   does not say it.  out: outputs in which a dimension has the name. */
typedef struct { const char *name; int dim; } RowsOut;
typedef struct {
    const char *name;
    int64_t rows;
    int *dim;
    bool *open;
    uint32_t n;
    VEC(RowsOut) out;
} RowsAt;

/* What the data of a step alone decide, added up over its rows before the step begins: how many
   targets count, the weights of their classes.  input: the V_INPUT that stands for it, the same in
   all microbatches; value: what a microbatch adds to it, or, of a mean, adds by its rows.  level: 1,
   or one more than that of the totals that it is made of. */
typedef struct {
    ValueId input, value;
    bool mean;
    int level;
} StepTotal;

typedef struct Graph {
    Arena *arena;
    Looked *looked;                                     /* looked.c; of its twins, too */
    const char *file;                                   /* for diagnostics */
    VEC(Value) value;
    VEC(Node) node;                                     /* in topological order, unless scheduled */
    VEC(Origin) origin;
    VEC(Param) param;
    VEC(ArrayNote) array;                               /* of all files, in their order */
    VEC(StatUpdate) update;
    VEC(TripBound) trip_bound;
    VEC(NodeSpan) undivided;                            /* of each attention (facts/attention.h) */
    VEC(StepTotal) total;                               /* partition/loss_terms.c finds them */
    /* model inputs, in order (target/loss_scale appended later) */
    Ids input;
    Ids output;                                         /* model outputs, in order */
    /* their names (a value may be an output twice) */
    VEC(const char *) output_name;
    StrMap by_name;                                     /* value name -> ValueId */
    /* rows of the model's shapes (1 if unknown) */
    int64_t batch;
    /* by axis of the mesh: this is the graph of one of so many members, and of so many chunks in all
       that what is divided has; 1 and 1: the model's own */
    struct { int members, chunks; } mesh[MESH_AXES];
    /* where lengths vary, the same model with those of the first sample: what is kept, sent or computed
       again is decided with its sizes (graph_sized).  NULL: this is it */
    const struct Graph *other;
    /* a dimension varies: --bind NAME=LEAST..MOST */
    bool varies;
    /* memory is short: what members have gathered is gathered again in backward rather than kept */
    bool gathers_again;
    /* where the rows of the inputs may be, the likeliest first, and which of them is taken to be so
       (facts/rows.c); none: dimension 0 of those that have so many there */
    VEC(RowsAt) rows_at;
    uint32_t rows_by;
    /* inputs that are constants, by --bind: "sr i64[] = 16000" */
    VEC(const char *) bound;
    uint32_t cur_origin;                                /* given to nodes that builders make */
    MeshAxis cur_mesh;                                  /* given to collectives, and Vary */
    uint32_t made_names;
    /* nodes so far that draw random numbers: their key in the generator */
    int draw_count;
    /* stash_minimize ran: the stages' lists give the order; what it computes again in backward has
       ids younger than its readers' */
    bool scheduled;
    uint64_t model_hash;                                /* of the file's bytes of structure */
    /* the files, in order; import.c pushes them */
    VEC(struct Model *) model;
} Graph;

/* the shape of what the file holds of it */
static inline const Shape *param_whole(const Param *p)
{
    return p->divided ? &p->whole : &p->shape;
}

/* Members of a rank; what each of them computes of chunks along an axis */
static inline int graph_members(const Graph *g)
{
    int n = 1;
    for (int x = 0; x < MESH_AXES; x++)
        n *= g->mesh[x].members;
    return n;
}
static inline int graph_pieces(const Graph *g, MeshAxis x)
{
    return g->mesh[x].chunks / g->mesh[x].members;
}
/* ... along several, bit x: axis x */
static inline uint32_t graph_pieces_along(const Graph *g, uint32_t along)
{
    uint32_t n = 1;
    for (int x = 0; x < MESH_AXES; x++)
        n *= along >> x & 1 ? (uint32_t)graph_pieces(g, (MeshAxis)x) : 1;
    return n;
}

/* the graph by whose sizes it is decided what costs more */
static inline const Graph *graph_sized(const Graph *g)
{
    return g->other && g->other->value.n >= g->value.n && g->other->node.n >= g->node.n ? g->other
                                                                                       : g;
}

static inline const Value *val(const Graph *g, ValueId v) { return &g->value.at[v]; }

#ifdef __cplusplus
}
#endif
#endif

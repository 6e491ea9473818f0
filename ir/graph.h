/*
 * graph.h - the Graph of core operations: nodes and their attributes, values, parameters, and where
 * each came from. Ids are never reused. They are in topological order until the stash is chosen;
 * after that only the stages' lists of nodes are.
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
    /* of a node of a norm: the last of its nodes, of which all its core nodes are; else 0 */
    uint32_t norm;
} Origin;

typedef struct Param {
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
    /* For a divided parameter: `box` is which part of `whole` has this `shape`; name and bytes are
       those of the whole.  Its parts follow one another in Graph.param, in place of the whole. */
    bool divided;
    Chunks box;
    Shape whole;
    /* several of the model's, one behind another along dimension 0, of which each chunk along
       MESH_EXPERT has one (mesh/stack.c): which ones; `name' is the first's.  0: one */
    const struct Param *each;
    int n_each;
    uint32_t number;                                    /* of one of `each': among the model's */
    ValueId value;
} Param;

/* An array of floats in a file, and why it trains or not.  param: the parameter that it is, or is
 * made from, or NONE; as: that parameter's name, if it differs. */
typedef struct {
    const char *name, *as, *why;
    uint32_t param;
    Dtype dtype;
    Shape shape;
    bool trains;
} ArrayNote;

/* BatchNormalization in training: after a forward, param takes the value. */
typedef struct { uint32_t param; ValueId value; } StatUpdate;
typedef struct { uint32_t origin; int64_t by; } Apart;

/* A loop was unrolled because v is at most `most` when the bools `given` are true (facts/range.c),
   for the graph's rows at that time. */
typedef struct {
    ValueId v, *given;
    uint32_t n, origin;
    double most;
} TripBound;

/* Nodes that have become one operation, the last: no stage may begin after the first. */
typedef struct { NodeId first, last; } NodeSpan;

/* Results of looking at all elements of a constant, kept in an arena of the graph. */
typedef struct Looked Looked;
typedef const void *LookAt(Arena *a, Dtype t, const Shape *shape, const void *data, int what);

/* A dimension of the model's inputs that may hold the rows.  dim: by input, the number of that
   dimension, or BATCH_NONE.  name: its name in the file; NULL: it only has a size.  open: by input,
   whether the file does not say so.  out: outputs that have a dimension with this name. */
typedef struct { const char *name; int dim; } RowsOut;
typedef struct {
    const char *name;
    int64_t rows;
    int *dim;
    bool *open;
    uint32_t n;
    VEC(RowsOut) out;
} RowsAt;

/* A total that depends only on the data of a step, for example how many targets count.  It is added
   up over the step's rows before the step begins.  input: the V_INPUT that holds it, the same in
   all microbatches; value: what a microbatch adds to it (for a mean: weighted by its rows).  level:
   1, or one more than the totals that it is computed from. */
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
    /* by axis of the mesh: the number of members, of which this is one's graph, and of chunks that
       divided values have; 1 and 1: not divided */
    struct { int members, chunks; } mesh[MESH_AXES];
    struct {
        /* where lengths vary, the same model with those of the first sample: what is kept, sent or
           computed again is decided with its sizes (graph_sized).  NULL: this is it */
        const struct Graph *other;
        /* a dimension varies: --bind NAME=LEAST..MOST.  What is not folded, for it is too large, of
           all graphs with other lengths (fold.c); NULL: none varies */
        struct GraphLeft { Arena *arena; IdMap of; } *left;
        /* ... and what was folded of Equal: the node's origin, how far apart its two numbers are */
        VEC(Apart) apart;
    } lengths;
    struct {
        /* candidates for their dimension, the likeliest first, and the one chosen (facts/rows.c);
           if there are none: dimension 0 of inputs that have this many rows there */
        VEC(RowsAt) at;
        uint32_t by;
        /* members divide rows of a microbatch: a dimension of rows that is less than `batch' is a
           part */
        bool divided;
    } rows;
    /* memory is short: gathered values are gathered again in backward instead of kept */
    bool gathers_again;
    struct {
        uint64_t hash;                                  /* of their bytes of structure */
        VEC(struct Model *) model;                      /* in order; import.c pushes them */
        VEC(ArrayNote) array;                           /* of all of them, in their order */
        VEC(const char *) bound; /* inputs that --bind makes constants: "sr i64[] = 16000" */
    } files;
    uint32_t cur_origin;                                /* given to nodes that builders make */
    MeshAxis cur_mesh;                                  /* given to collectives, and Vary */
    struct {
        uint32_t names;                                 /* made up so far */
        int draws; /* nodes that draw random numbers; a node's number is its key in the generator */
    } numbers;
    /* stash_minimize has run: the stages' lists give the order; recomputed nodes have larger ids
       than their readers */
    bool scheduled;
} Graph;

/* the shape of the parameter in the file */
static inline const Shape *param_whole(const Param *p)
{
    return p->divided ? &p->whole : &p->shape;
}

/* Members of a rank; how many chunks along an axis each of them computes */
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

/* the graph whose sizes decide what costs more */
static inline const Graph *graph_sized(const Graph *g)
{
    const Graph *x = g->lengths.other;
    return x && x->value.n >= g->value.n && x->node.n >= g->node.n ? x : g;
}

static inline const Value *val(const Graph *g, ValueId v) { return &g->value.at[v]; }
/* an operand, or from nin on a result: a slot of the node */
static inline ValueId node_slot(const Node *n, uint32_t slot)
{
    return slot < n->nin ? n->in[slot] : n->out[slot - n->nin];
}
/* The node that makes v; NULL: none does (an input, a parameter, a constant), or for graph_made_by
   one of another op */
static inline const Node *graph_maker(const Graph *g, ValueId v)
{
    return val(g, v)->kind == V_NODE ? &g->node.at[val(g, v)->node] : NULL;
}
static inline const Node *graph_made_by(const Graph *g, ValueId v, Op op)
{
    const Node *n = graph_maker(g, v);
    return n && n->op == op ? n : NULL;
}

#ifdef __cplusplus
}
#endif
#endif

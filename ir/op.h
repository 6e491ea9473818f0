/*
 * op.h - the operations of a Graph, a number for each row of ops.def, and their attributes.
 */
#ifndef PPSPLIT_OP_H
#define PPSPLIT_OP_H

#include "type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the importer column of ops.def, OPS_FN(f, "slots", ~) or OPS_FN(f, ~): the function; the
 * slots,
 * "" where there are none. */
#define OPS_FN(f, ...) import_##f
#define OPS_SLOTS(f, slots, ...) slots

/* One enumerator per row of ops.def: OP_Add, OP_Softmax, ...  (composites never occur in a Graph).
 */
typedef enum {
    OP_NONE,
#define OP(name, ...) OP_##name,
#define COMPOSITE(name, ...) OP_##name,
#include "ir/ops.def"
    OP_COUNT
} Op;

/* Axes of the mesh along which the members of a rank differ; of a member's number the first axis is
 * the fastest. */
typedef enum { MESH_TENSOR, MESH_SEQUENCE, MESH_EXPERT, MESH_AXES } MeshAxis;

/*
 * What is between the two products of an attention: s = scale q k + bias, or fill at forbidden
 * positions; y = dropout(softmax(s)) v.
 */
typedef struct {
    double scale, fill, ratio;
    /* of Dropout's random numbers */
    int64_t key;
    /* causal: query i may use key j only if j <= i + diagonal, where diagonal >= 0 and
     * e^(fill - x) is 0 for every score x; with a window, only the last `window` (0: all) of these
     * keys, at least one in each row.  A mask operand forbids more.  If the queries are chunk c of
     * several along axis `by` of the mesh (Attr.piece), the diagonal is larger by c * step. */
    bool causal;
    int64_t diagonal, window, step;
    MeshAxis by;
    /* whether more operands follow: a bias; a mask of bytes that allow a position, or forbid it */
    bool bias, mask, forbids;
} AttentionAttr;

/*
 * An operation of the user's own, or its gradient: a row of the table of --ops
 * (frontend/low/custom.c).  The user's C functions compute it; the compiler never calls them.
 */
typedef struct {
    uint32_t like;              /* the operand whose type it has */
    int rank;                   /* -1: that operand's shape, too */
    struct {
        int operand;            /* -1: the size itself */
        int64_t dim;            /* of the operand, or the size */
    } size[MAX_RANK];
} CustomShape;

typedef struct CustomAttr {
    const char *domain, *name;  /* of the node */
    const char *function;       /* NAME on a CPU, NAME_cuda on a GPU */
    uint32_t nin, nout, n_number;
    const CustomShape *shape;   /* by result */
    /* by operand, then by result: whether dimension 0 holds independent samples */
    const bool *rows;
    const char *const *number_name;
    const double *number;       /* attributes of the node that the functions are given */
    const bool *whole;          /* the file has it as a whole number */
    /* Operands: its own, its results, their gradients.  Results: the gradients of operands `of`. */
    const struct CustomAttr *gradient;
    const uint32_t *of;
} CustomAttr;

/*
 * A body that is computed once for each step of a sequence, on what the step before has left.
 * Inputs of the body, and operands of the node, in this order: `states', which are carried from
 * step to step, `sequences', and what each step reads whole.  Outputs of the body, and results of
 * the node: the next states, in their order and of their types and shapes, and then sequences.  A
 * sequence has the steps as dimension 0, and the body one step's part of it.  Nodes of the body
 * neither draw random numbers nor choose rows by index, and its constants are single numbers
 * (recurrence.c).
 */
typedef struct {
    const struct Graph *body;
    uint32_t states, sequences;
    /* steps are taken from the last to the first */
    bool reverse;
    /* by input, then by output of the body: the dimension that holds independent samples; -1: none,
       and an output is the same for all of them or a sum over them */
    const int *rows;
} Recurrence;
static inline bool recurrence_is_sequence(const Recurrence *r, uint32_t input)
{
    return input >= r->states && input < r->states + r->sequences;
}

/*
 * One part of a tensor.  Dimension `axis` consists of `groups` (0: 1) equal groups, each divided
 * into `chunks` chunks.  A member along an axis of the mesh holds `pieces` neighbouring chunks;
 * this one is number member * pieces + piece.  axis -1: the whole tensor.
 */
typedef struct { int axis, piece, pieces, chunks, groups; } Chunk;

/* By axis of the mesh.  If several axes divide one dimension, a chunk of an earlier axis is divided
 * again along a later one. */
typedef struct { Chunk along[MESH_AXES]; } Chunks;
Chunks chunks_none(void);                                 /* all of a tensor */
int chunks_number(const Chunks *p);                       /* among a member's pieces of it */
/* "w[0][1]": the whole's name, then the piece's number along each axis that has several */
const char *chunks_name(Arena *a, const char *whole, const Chunks *p);

/*
 * Attributes in canonical form; ops.def lists those of each op.  Inputs of ONNX that must be static
 * here (axes, shapes, pads, ...) are attributes.  Axes are non-negative.  The arrays are in the
 * arena and never change after the node is made.  Attributes that no op has together share storage.
 */
typedef struct {
    /* length of the arrays, where not stated: spatial dims of a window; Vary: how many results */
    int n;
    int64_t group;
    union {
        int64_t axis;
        int64_t batch_dims;                             /* GatherND */
        int64_t key;                                    /* Dropout, Random: of its numbers */
    };
    union {
        int64_t k;                                      /* TopK: how many */
        int64_t ceil_mode;                              /* pools: the output's size is rounded up */
        /* Gather: the row that gets no gradient, from 1; 0: none */
        int64_t padding_row;
        /* Random: the model's own seed plus 1; 0: the run's */
        int64_t seed;
        /* a copy of codegen's: fused with nothing */
        int64_t alone;
        int64_t to_axis;                                /* AllToAll: divided along it then */
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
        /* ReduceMax, ReduceMin over one axis: the first of equals alone has the gradient */
        int to_first;
        int count_include_pad;                          /* AveragePool */
        /* Identity of codegen's: elements are moved */
        int copy;
    };
    Dtype to;                                           /* Cast, Count */
    const AttentionAttr *attention;                       /* FlashAttention, FlashAttentionGrad */
    const CustomAttr *custom;                             /* Custom */
    const Recurrence *recurrence;                         /* Recurrence */
    /* Dropout, Random, the scores of FlashAttention: which part of the whole tensor this is,
     * because random numbers are drawn by the position in the whole; NULL: all of it */
    const Chunks *piece;
    int mesh; /* Vary, collectives: the axis of the mesh */
} Attr;

enum { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };
enum { SCATTER_NONE, SCATTER_ADD, SCATTER_MUL, SCATTER_MAX, SCATTER_MIN };
enum { CUMSUM_EXCLUSIVE = 1, CUMSUM_REVERSE = 2 };

#ifdef __cplusplus
}
#endif

#endif

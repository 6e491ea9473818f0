/*
 * step.h - Steps: all that codegen decides before a character is printed.
 *
 * A function of a stage is a list of Steps, in the order of execution: what is computed, on which
 * buffers, for which nodes of the model.  The passes of plan/ make them and know neither text nor
 * targets; the files of print/ turn them into C or CUDA C and decide nothing but how that is
 * written.
 */
#ifndef PPSPLIT_STEP_H
#define PPSPLIT_STEP_H

#include "codegen/plan/nest.h"

/* the most dimensions of a batch of products */
enum { PRODUCT_BATCH = 32 };

/* What an argument is in the formula of its step: a parameter, its gradient, a gradient that comes
 * in or is made, any other value. */
typedef enum { ROLE_X, ROLE_Y, ROLE_DX, ROLE_DY, ROLE_W, ROLE_DW } Role;

/* A place that the step reads or writes: element `offset` of a buffer of its function. */
typedef struct {
    uint32_t buf;
    Lin offset;
    bool written;
    Role role;
    /* what it is called, when it is known to be a mean or the like; NULL: nothing known */
    const char *known;
    ValueId value;
} StepArg;

/* One factor, or the result: the step's argument, its leading dimension, and a stride for each
 * dimension of the batch. */
typedef struct { uint32_t arg; Lin ld, stride[PRODUCT_BATCH]; } ProductSide;

/* The side that has only its first rows or columns: as many as the mask has true elements. */
typedef enum { PACKED_NONE, PACKED_M, PACKED_N, PACKED_K } ProductPacked;

/* C = op(A) op(B), C += op(A) op(B), or C = op(A) op(B) + a row of biases; row-major, over a
 * batch. */
typedef struct {
    Dtype type;                     /* of A and B */
    Dtype result;                   /* of C: theirs, or f32 where they are halves */
    bool adds, biased, transposed_a, transposed_b;
    uint32_t bias;                  /* biased: the step's argument */
    ProductPacked packed;
    /* of a packed one: the step's argument that is the mask; on a device (count.c) that which is
       how many of it are true */
    uint32_t mask, taken;
    /* Before the product n_known masks of these lengths are counted; their arguments are from
       `known` on, each followed by the one that takes the number. */
    uint32_t n_known, known;
    const Lin *length;
    Lin m, n, k;
    ProductSide a, b, c;
    int nb;
    Lin count[PRODUCT_BATCH];
} Product;

/* Arguments in the order x, w, y (or x, dy, dw). */
typedef struct {
    Op op;                          /* Conv, ConvTranspose, ConvWeightGrad */
    uint32_t shape;                 /* among StageGen.conv */
    Lin rows;
    bool adds;
} Convolution;

/* What follows a convolution, by a formula (after.c): arguments of its nest, NONE where there is
 * none. */
typedef struct {
    uint32_t bias, sum, out;
    bool swish;
    double plus, low, high, scale, shift;       /* plus: where there is no bias */
} After;

/* One matrix of an attention, or as many as the batch counts: the step's argument, NONE where there
 * is none, and strides. */
enum { ATTENTION_DIMS = 8 };
typedef struct { uint32_t arg; Lin row, col, batch[ATTENTION_DIMS]; } AttentionSide;

/* k, dk by rows of keys, as v and dv; stats: maximum and 1 / sum of each row of scores. */
enum {
    SIDE_Q, SIDE_K, SIDE_V, SIDE_Y, SIDE_STATS, SIDE_DY, SIDE_BIAS, SIDE_MASK, SIDE_DQ, SIDE_DK,
    SIDE_DV, SIDES
};
typedef struct {
    const AttentionAttr *attr;
    Dtype type, bias_type;
    bool back;
    double ratio;                   /* 0: nothing is dropped here */
    Lin rows, keys;
    int64_t width, width_v;
    int nb;
    Lin count[ATTENTION_DIMS], random_row[ATTENTION_DIMS], random_element[ATTENTION_DIMS];
    /* scores that are a chunk of more: which one, and from chunk to chunk, of Dropout's elements */
    const Chunks *chunk;
    int64_t random_chunk[MESH_AXES];
    uint32_t room;                  /* the step's argument; NONE: it needs none */
    AttentionSide side[SIDES];
} AttentionStep;

/* A collective of the members along an axis of the mesh.  kind: PP_ALL_REDUCE and so on (pp.h);
 * size: the sizes that the call takes, in its order.  Arguments: operand, result and, if the call
 * needs it, memory for incoming data.  The step's key is its row in the stage's list.  A collective
 * that is only begun has another step without arguments where it ends. */
enum { COLLECTIVE_SIZES = 5 };
typedef enum { AT_ONCE, BEGINS, ENDS } CollectivePart;
typedef struct {
    CollectivePart part;
    int kind, n_size;
    Lin size[COLLECTIVE_SIZES];
    bool first;
} Collective;

/* An operation of the user's own: by argument its type, rank and sizes. */
typedef struct {
    const CustomAttr *of;
    Dtype *type;
    int *rank;
    Lin (*size)[MAX_RANK];
} Custom;

/* An input or output of a Recurrence's body: which state it is (NONE: none), the step's argument
 * (NONE: nobody reads the last state), and how many bytes of that are between one step's and the
 * next one's: 0: each step has the same. */
typedef struct { uint32_t state, arg; Lin apart; } LoopPort;

/* A body, computed for each step of a sequence.  in, out: as its function has them.  Behind the
 * workspace: at `room', two places for each state that a step has left, which take turns (the last
 * state is at its argument, where it has one); at body_room, the workspace of a step. */
typedef struct {
    struct StageGen *body;
    int64_t steps;
    bool reverse;
    uint32_t nin, nout;
    const LoopPort *in, *out;
    const int64_t (*room)[2];
    int64_t body_room;
} Loop;

typedef enum {
    STEP_NEST,                      /* a fused loop nest */
    STEP_PRODUCT,                   /* a matrix product of the library */
    STEP_CONVOLUTION,
    STEP_ATTENTION,
    STEP_KERNEL,                    /* an operation with a kernel of its own kind: `node` */
    STEP_COLLECTIVE,                /* of all members: `node` */
    STEP_CUSTOM,                    /* of the user's own: `node` */
    STEP_LOOP,                      /* a Recurrence: `node` */
} StepKind;

enum { THEN_ARGS = 3 };

typedef struct Step {
    StepKind kind;
    bool empty;                     /* what it makes has no elements: nothing is computed */
    VEC(StepArg) arg;
    /* NEST, by argument: another one has the same memory and one of the two is written */
    const bool *shared;
    const Nest *nest;
    const Product *product;
    const Convolution *convolution;
    const AttentionStep *attention;
    const Collective *collective;
    const Custom *custom;
    const Loop *loop;
    /* CONVOLUTION: the NEST that follows it, and the same nest over images; its arguments stand in
       arg as well, from THEN_ARGS on.  NULL: none. */
    const struct Step *then;
    const Nest *image;
    const After *after;             /* what that nest computes; NULL: nothing that has a name */
    NodeId node;                    /* not of a NEST */
    bool keyed;                     /* it has a number of its own: of Dropout's generator, a row */
    uint32_t key;
    uint32_t group;                 /* of the function: the nodes that it computes */
    ValueId result;                 /* the first one that is written */
    /* the same for steps that differ in nothing but their buffers */
    uint32_t signature;
} Step;

/* A buffer that each turn of a repeated sequence uses for the same purpose. */
typedef struct {
    /* by turn; NONE: a last turn that ends before it would be used */
    uint32_t *buf;
    bool written;
} RepeatField;

/* Steps from `first` on that are the same sequence of `length` steps with other buffers, turn after
 * turn. */
typedef struct {
    uint32_t first, length, turns;
    uint32_t tail;                  /* the last turn has only so many steps; 0: all */
    VEC(RepeatField) field;
    Ids keyed;                      /* its steps that have a key */
    Ids arg_of, arg_field;          /* argument i of step j is field arg_field[arg_of[j] + i] */
} Repeat;

static inline uint32_t repeat_steps(const Repeat *r)
{
    return r->length * r->turns - (r->tail ? r->length - r->tail : 0);
}
/* How many turns have the field: the last one may end before. */
static inline uint32_t repeat_turns(const Repeat *r, const RepeatField *x)
{
    return x->buf[r->turns - 1] == NONE ? r->turns - 1 : r->turns;
}
/* Do all turns have the same buffer? */
static inline bool repeat_constant(const Repeat *r, const RepeatField *x)
{
    bool constant = true;
    for (uint32_t t = 1; t < repeat_turns(r, x); t++)
        constant &= x->buf[t] == x->buf[0];
    return constant;
}
/* Does that turn have that step? */
static inline bool repeat_has(const Repeat *r, uint32_t turn, uint32_t step)
{
    return turn + 1 < r->turns || !r->tail || step < r->tail;
}

#endif

/*
 * pp.h - the contract between a generated pipeline (stageN.c, stageN.cu, pipeline.c) and the
 * runtime.
 *
 * A stage is a table (PpStage) and a few functions that run one action for one microbatch on
 * buffers the runtime hands them (PpCtx).  Generated code allocates nothing, knows no rank, no
 * schedule and no transport. Everything here is plain C11 and C++17.
 */
#ifndef PP_H
#define PP_H

#include <stddef.h>
#include <stdint.h>

#include "pp_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* every tensor starts at a multiple of PP_ALIGN bytes */
enum { PP_MAX_RANK = 16, PP_ALIGN = 64 };

/* TensorProto.DataType numbers. */
enum { PP_F32 = 1, PP_I32 = 6, PP_I64 = 7, PP_BOOL = 9, PP_F16 = 10, PP_F64 = 11, PP_BF16 = 16 };

/* Dimensions of the model that have a size of their own in each microbatch, its lengths, are so
   many at most; those that there are not have 0. */
enum { PP_LENGTHS = 3 };
typedef struct { int64_t of[PP_LENGTHS]; } PpLength;

/* A part of the size of dimension `dim`: c times the lengths, each to its power. */
typedef struct { int dim; int64_t c; int power[PP_LENGTHS]; } PpTerm;

typedef struct {
    const char *name;                                   /* the model's */
    int dtype, rank;
    int64_t dim[PP_MAX_RANK];                           /* at full rows (PpPlan.rows) */
    /* dimension that is dim / rows * (actual rows); -1: independent of the rows */
    int batch_dim;
    int64_t bytes;                                      /* at full rows */
    /* Where lengths vary (PpPlan.length), dim and bytes are those of the greatest, and a dimension
       with terms is their sum. */
    int n_term;
    const PpTerm *term;
} PpTensor;

/* What enters a stage. */
typedef struct {
    PpTensor t;
    /* stage that makes it; -1: a model input; -2: the runtime scalar loss_scale */
    int from;
    /* index into that stage's outputs; or index into PpPlan.input */
    int from_output;
    /* 0: free after F; 1: after I (or B); 2: after W (or B) */
    int stashed;
    /* how many gradient tensors go back for it (0: none); each has t's shape */
    int grads;
    /* a bit for each part of the stash whose make() reads it */
    int again;
} PpInput;

typedef struct {
    PpTensor t;
    int model_output;                                   /* index into PpPlan.output, or -1 */
    /* as in PpInput, when the backward reads it; 0: only until it is sent */
    int stashed;
    /* how many gradient tensors come in for it, in order of addition */
    int dys;
    int again;                                          /* as in PpInput */
    int optional; /* NULL where it is not asked for: it is not written */
} PpOutput;

/* A gradient that comes in for `output`: of stage `from`, the gradient number `index` of that
 * stage's input `input`. */
typedef struct {
    int output, from, input, index;
    /* as in PpInput: 2 when W reads it where it came in */
    int stashed;
} PpDy;

/* Axes along which the members of a rank differ; of a member's number the first is the fastest. */
enum { PP_TENSOR, PP_SEQUENCE, PP_EXPERT, PP_AXES };

enum { PP_OWN, PP_TRANSMIT, PP_REPLICATE };
typedef struct {
    PpTensor t;                                         /* PyTorch's name and shape; batch_dim -1 */
    /* number of the parameter in the whole model */
    int param;
    /* PP_OWN...; from: the owner's (first user's) stage */
    int use, from;
    /* stat: a running statistic, saved but not optimised */
    int trainable, stat;
    int64_t offset;                                     /* in PpCtx.param */
    int64_t grad_offset;                                /* in PpCtx.grad; -1: none */
    /* of its copy in PpCtx.half; -1: none.  Only where PpStage.half_type is not 0 */
    int64_t half_offset;
    /* A stage adds up each use of a parameter by itself: the first one, in the model's order, at
       grad_offset, `more` others behind one another at more_offset, each at a multiple of PP_ALIGN.
       At the end of a step they are added, the last one first. */
    int more;
    int64_t more_offset;
    /* A part of the model's parameter, one for each member along axis `mesh`: dimension `axis` has
       `whole` elements, in `groups` equal runs (0: 1), and of each run t.dim[axis] / groups of them
       are here, from first + member * step of the run on; where the run ends before, then zeros.
       whole 0, or axis -1: all of it.  A stage may have several parts of one, of the same name. */
    int mesh, axis, groups;
    int64_t whole, first, step;
    /* Its outermost dimension of more than one element, before `axis`, is divided along another
       axis of the mesh: `whole` elements, of which those from first + member * step on are here;
       whole 0: it is not */
    struct {
        int mesh, dim;
        int64_t whole, first, step;
    } outer;
    /* One of n parameters of the model, another one for each member along axis `mesh`: number first
       + member * step; t.name is the first's.  0: it is the same for all */
    struct {
        int mesh, n, first, step;
        const char *const *name;
    } each;
} PpParam;

/* A constant that functions read through PpCtx.constants, at `offset`.  data: its elements as
   written in the source; NULL: too long for that, they stand in params/constants.bin from byte `at`
   on. */
typedef struct {
    PpTensor t;
    int64_t offset;
    const void *data;
    int64_t at;
    const char *sha256;
} PpConst;

/* A place of the program where the members of a rank that differ along axis `mesh` alone tell one
   another something, by pp_all_reduce() and the like.  bytes: of the operand, at full rows. */
enum { PP_ALL_REDUCE, PP_ALL_GATHER, PP_REDUCE_SCATTER, PP_ALL_TO_ALL, PP_SHARD };
typedef struct {
    int kind, mesh;
    const char *name; /* the value's */
    int dtype;        /* of the operand */
    int64_t bytes;
    /* of an all_reduce of float32 the type of the sum, PP_BF16 or PP_F16, which is rounded before
       it travels; 0: the operand's */
    int half;
    /* which of a microbatch's actions has it, 'F', 'I' or 'W'; 0: the step's end */
    int part;
} PpCollective;

/* A use's gradient (PpParam.more) of a parameter that all members have and chunks of theirs read,
   along those axes where along[x] is 1.  In the use's place is what the member's first chunk adds
   up, at `offset` are those of its others, the first of the axes the fastest, one behind another,
   each at a multiple of PP_ALIGN.  Once a step, axis by axis, they are added as a tree, and then
   over the members, which is row row[x] of PpStage.mesh.collective; -1: there is one member. */
typedef struct {
    int param, use; /* PpStage.param's number */
    int64_t offset;
    int along[PP_AXES], row[PP_AXES];
} PpPartial;

struct PpCtx;
/* A part of the stash that R computes again by itself, from what else forward keeps: what costs
   little per byte (softmax and dropout of attention, pools, copies).  forward writes it and the
   backward reads it, at PpCtx.again; make() writes it again, the same bits.  R of a whole forward
   is `forward`, with every slot in another place. */
enum { PP_AGAIN = 8 };                                  /* parts of a stage */
typedef struct {
    int64_t bytes;                                      /* one slot */
    int64_t flops;                                      /* of make() */
    void (*make)(const struct PpCtx *c);
} PpAgain;

/* A value of a float type that forward leaves in memory, in the model's order: with a number that
   is not finite the first of them is looked for.  part: in PpCtx.again[part], -1: in PpCtx.stash;
   output: it is PpCtx.out[output], -1: it is not.  offset, bytes: in stash or part, padding
   included. */
typedef struct {
    const char *name; /* 'NAME', or of which node it is a part */
    int dtype, part, output;
    int64_t offset, bytes;
} PpKept;

/* --profile: what a step of a stage's function computes.  part: 'F', or which part of the backward,
   'I', 'W', or 'B': both; nodes: the model's, a line each; "": none of it. */
typedef struct { int part; const char *nodes; } PpStep;
enum { PP_TIMED_FORWARD, PP_TIMED_BACKWARD, PP_TIMED_INPUT, PP_TIMED_WEIGHT, PP_TIMED };
typedef struct { int n; const PpStep *step; } PpSteps;
/* Stands before each step, and at the function's end: the one before is over. */
void pp_time_step(void);

/* Everything one action on one microbatch reads and writes. All pointers are set by the runtime
   before the call; buffers hold `rows` rows (contiguous, the batch dimension of each tensor
   scaled), capacity is that of full rows. */
typedef struct PpCtx {
    int64_t rows;                                       /* of this microbatch */
    PpLength length;                                    /* the same, where lengths vary */
    int stage, microbatch;
    /* the stage's blocks; grad accumulates: += */
    char *param, *grad, *constants;
    /* copies of parameters, rounded to PpStage.half_type: made of `param` before the first action
       that reads them, and again after every update; NULL where the stage has none */
    char *half;
    /* F writes, B/I/W read: one slot per microbatch in flight.  What a backward reads for the last
       time, outputs that stay in the stage included, it may overwrite: it runs once a forward */
    char *stash;
    /* parts of the stash apart from it, as PpStage.again: F and make() write, B/I/W read */
    char *again[PP_AGAIN];
    /* I writes, W reads: one slot per microbatch between I and W */
    char *saved;
    /* PpStage.bytes.work; dead at the end of the call */
    char *work;
    void *const *in;                                    /* PpStage.input order */
    void *const *out;                                   /* PpStage.output order */
    void *const *dy;                                    /* PpStage.dy order */
    /* gradients to send back: inputs in order, each one's grads in order */
    void *const *dx;
    /* for random numbers: Philox key and counter; row0: first row of the microbatch in the
     * minibatch */
    uint64_t seed, step, row0;
    /* device handles: cudaStream_t, PpBlas; NULL on the CPU */
    void *stream, *blas;
    void *state;                                        /* what PpStage.call.open returned */
    int member[PP_AXES];                                /* its number along each axis */
    struct PpMesh *mesh;                                /* how it reaches the others */
} PpCtx;

/* Functions of a stage that have a workspace; of all PpAgain.make() the largest. */
enum {
    PP_WORK_FORWARD,
    PP_WORK_INFER,
    PP_WORK_BACKWARD,
    PP_WORK_INPUT,
    PP_WORK_WEIGHT,
    PP_WORK_AGAIN,
    PP_WORKS
};

typedef struct PpStage {
    int index;
    const char *label;
    int n_input, n_output, n_dy, n_dx, n_param, n_const;
    const PpInput *input;
    const PpOutput *output;
    const PpDy *dy;
    const PpParam *param;
    const PpConst *constants;
    int half_type; /* of all copies in PpCtx.half, PP_F16 or PP_BF16; 0: there are none */
    struct {
        int64_t param, grad, constants, half;           /* blocks, aligned */
        int64_t stash, saved;                           /* one slot */
        int64_t work[PP_WORKS];                         /* of PpCtx.work, aligned */
    } bytes;
    struct { int64_t forward, input, weight; } flops;
    /* elements that W makes again because I alone has them: additions and the like; others; bytes
       that are read for it */
    struct { int64_t quick, functions, bytes; } twice;
    /* R: the parts of the stash that can be computed again one by one; bytes_stash is the rest */
    int n_again;
    const PpAgain *again;
    /* For who looks into its functions.  steps: of those that are timed, PP_TIMED; NULL: without
       --profile */
    struct {
        int n_kept;
        const PpKept *kept;
        const PpSteps *steps;
    } look;
    int has_backward;
    /* at_once: so many of its collectives are under way at the same time (0: 1) */
    struct {
        int n_collective, at_once, n_partial;
        const PpCollective *collective;
        const PpPartial *partial;
    } mesh;
    /* shape: that open() prepares; of: where lengths vary, number i with these; NULL: as there */
    struct {
        int n;
        const struct PpConvShape *shape;
        struct PpConvShape (*of)(const PpCtx *c, int i);
    } conv;
    struct {
        /* convolutions with their scratch, once, on the rank's thread; NULL: none */
        void *(*open)(int threads);
        void (*close)(void *state);
        void (*forward)(const PpCtx *c);                /* training forward */
        void (*infer)(const PpCtx *c);                  /* eval and inference: no stash written */
        void (*backward)(const PpCtx *c);               /* B */
        void (*backward_input)(const PpCtx *c);         /* I */
        void (*backward_weight)(const PpCtx *c);        /* W */
        /* What stageN_weight.c beside the stage puts in the place of backward_weight; it holds NULL
           without that file.  B is then backward_input and it, one after the other.  NULL: the
           stage has no gradients of parameters */
        void (*const *own_weight)(const PpCtx *c);
    } call;
    /* --loss-over minibatch: the last stage as it runs, once a step over all rows.  This table then
       says what F and B of a microbatch bring and take: rows of inputs, and of their gradients.
       NULL: each microbatch is computed by itself */
    const struct PpStage *minibatch;
} PpStage;

/* mean: weighted by rows; none: only a single one may run */
enum { PP_MERGE_LAST, PP_MERGE_SUM, PP_MERGE_MEAN, PP_MERGE_NONE };
enum { PP_LOSS_NONE, PP_LOSS_SUM, PP_LOSS_MEAN_ELEMENTS, PP_LOSS_MEAN_TARGETS, PP_LOSS_MEAN_ROWS };

/* What elements of an input may be, because they choose a row of a table, or name a class.  Of each
   row of the input these are first, first + step, ...: `count` of them, a row's elements taken one
   after the other. */
typedef struct {
    int input; /* index into PpPlan.input */
    int64_t first, step, count;
    int64_t least, most;
    /* 1: or this one, which chooses none */
    int has_other;
    int64_t other;
    const char *table; /* NULL: the classes of the loss */
    int64_t rows;      /* of the table, or classes */
} PpIndex;

/* What the data of a step alone decide, as the stage PpPlan.totals.stage makes it of some of its
   rows: added up over all of them, of a mean by their number, it is the model input `input` in the
   whole step.  level: 1, or one more than that of the totals that it is made of. */
typedef struct {
    int input; /* index into PpPlan.input */
    int mean, level;
} PpTotal;

/* An option of ppsplit that changes the numbers of a run, whatever the split, and what it was: a
   run is resumed by a program that was made with the same.  Of `bind`, the inputs' shapes that
   follow. */
typedef struct {
    const char *option, *value;
} PpMade;

typedef struct { const char *name; int64_t least, most; } PpRange;

enum { PP_CPU, PP_CUDA };

typedef struct PpPlan {
    const char *model;
    /* By axis: members of a rank, who each have a part of every stage, and parts of which sums are
     * added up in a tree, however many members there are; 1, 1 without (0: 1) */
    int members[PP_AXES], chunks[PP_AXES];
    struct {
        uint64_t hash; /* of the plan: same on every rank, in checkpoints */
        uint64_t model_hash;
        /* of all of pipeline.c, which says it in its second line: a program that was built of
           another one is told; 0: not known */
        uint64_t written;
        /* how it was cut, as --split has it, where the model does not say so itself */
        int n_split, n_made;
        const char *const *split;
        const PpMade *made;
    } program;
    int64_t rows;                                       /* rows of a microbatch at full size */
    /* ok: microbatches with fewer rows may run; when not: the reason */
    struct { int ok; const char *why; } uneven;
    /* --bind NAME=LEAST..MOST: dimensions of the inputs whose sizes are each microbatch's own, its
       lengths, in these bounds */
    int n_length;
    PpRange length[PP_LENGTHS];
    int n_stage, n_input, n_output, n_param;
    /* of the device that runs: main sets it to one of the next two */
    const PpStage *const *stage;
    const PpStage *const *cpu_stage, *const *cuda_stage;        /* NULL: not in this program */
    /* the model's data inputs, `target` included, and the totals */
    const PpTensor *input;
    const PpTensor *output;                             /* the model's outputs */
    /* per output, how microbatches meet in one without rows: PP_MERGE_*; NULL: the last */
    const int *output_merge;
    /* per output, why PP_MERGE_NONE; NULL: there is none */
    const char *const *output_why;
    /* stage: on the CPU; its outputs' model_output is the index into `of`; NULL: there are none */
    struct {
        const PpStage *stage;
        int n;
        const PpTotal *of;
    } totals;
    struct {
        int stage, output; /* which output of which stage is the scalar loss; -1: none */
        int kind;
        int target; /* index into PpPlan.input, or -1 */
        int64_t ignore;
        /* why the rows of the target are not known, or the loss of several microbatches does not
           follow from theirs: only a single microbatch trains; or NULL */
        const char *target_why, *why;
    } loss;
    /* --loss-over minibatch, else 0: rows of PpStage.minibatch of the last stage.  why: why it runs
       with exactly so many; NULL: with fewer too */
    struct { int64_t rows; const char *why; } minibatch;
    /* what is checked of integer inputs before the first step */
    int n_index;
    const PpIndex *index;
    /* PP_CPU or PP_CUDA: set by main with `stage` */
    int device;
} PpPlan;

/* Defined by the generated pipeline.c. */
extern const PpPlan pp_plan;
/* exec/main.c: the command `out/pipeline`. */
int pp_main(int argc, char **argv, const PpPlan *plan);

/* net/collective.c: what members of a rank do together, each with its own operand; k: the row of
   PpStage.mesh.collective, whose dtype elements are of.  work: of pp_collective_work() bytes.  `in`
   and `out` may be one, of pp_all_reduce() alone.  With T members a member sends so many elements:
     all_reduce      2 (T-1)/T n          sums of all members' operands, added in a tree: neighbours
                                          in pairs, level by level, an odd one passes up; then, half
                                          of the elements, of PpCollective.half
     all_gather      (T-1) outer block    in [outer, block] -> out [outer, T, block]; out NULL, for
                                          all of them: nothing is done
     reduce_scatter  (T-1) outer block    in [outer, T, block] -> out [outer, block], added likewise
     all_to_all      (T-1)/T^2 a d b e f  of a tensor [a, d, b, e, f]; to_e: from in, divided along
                                          d, to out, divided along e, else the other way round
     shard           0                    in [outer, T, block] -> out [outer, block]: its own part
   Of row PP_BEGIN + k any but shard is only begun: `in`, `out` and `work` stand until pp_end(),
   after which the result is there.
   What goes wrong ends the run once the stage's function returns. */
enum { PP_AT_ONCE = 4, PP_BEGIN = 1 << 24 };            /* the most of PpStage.mesh.at_once */
void pp_end(const PpCtx *c, int k);
void pp_all_reduce(const PpCtx *c, int k, const void *in, void *out, void *work, int64_t n);
void pp_all_gather(const PpCtx *c, int k, const void *in, void *out, void *work, int64_t outer,
                   int64_t block);
void pp_reduce_scatter(const PpCtx *c, int k, const void *in, void *out, void *work, int64_t outer,
                       int64_t block);
typedef struct {
    int64_t a, d, b, e, f;
    int to_e;
} PpAcross;
void pp_all_to_all(const PpCtx *c, int k, const void *in, void *out, void *work, PpAcross across);
void pp_shard(const PpCtx *c, int k, const void *in, void *out, int64_t outer, int64_t block);

/* Elements of an operand of n that one member owns in an all_reduce; the last ones own less. */
static inline int64_t pp_collective_piece(int64_t n, int members)
{
    return ((n + members - 1) / members + 15) / 16 * 16;
}

/* Bytes of `work` for an operand of n elements, `size` bytes each.  It grows with n. */
static inline int64_t pp_collective_work(int kind, int members, int size, int64_t n)
{
    int64_t others = members - 1, part = (n / members * size + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN,
            whole = (n * size + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
    return kind == PP_ALL_REDUCE   ? others * pp_collective_piece(n, members) * size
           : kind == PP_ALL_GATHER ? others * whole
           : kind == PP_SHARD      ? 0
                                   : 2 * others * part;
}

/* conv.c: convolutions, 1-d to 3-d, each sample by itself as a matrix product of its gathered input
   (im2col, in blocks of lines) or, for few channels, directly (conv_direct.h, and where the
   processor has AVX-512 conv_depthwise.h); those of 3 x 3 taps, stride 1, 16
   channels and more, float32, by tiles of 2 x 2 outputs in 16 products instead of 36
   (conv_winograd.c), and those of small images and large weights with several samples to a product
   (conv_merged.h).  The shape decides which; bits do not depend on the threads.  All tensors dense
   NC[D][H]W; weights [M, C/group, k...].  Of dtype PP_BF16 and PP_F16 sums are float32 and rounded
   once; dw is float32.  open() takes the scratch memory; NULL when there is none. */
typedef struct PpConvShape {
    int dtype, spatial;                                 /* 1, 2 or 3 */
    /* input and output channels of the (direct) convolution */
    int64_t group, c, m;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_begin[3], pad_end[3];
    PpLength length;                                    /* PpCtx.length, for PpPart */
} PpConvShape;
typedef struct PpConv PpConv;
PpConv *pp_conv_open(const PpConvShape *s, int threads);
/* The same with other sizes of in, out and pads from now on; 0: no memory.  It takes more memory
   only for a shape that needs more than all before. */
int pp_conv_size(PpConv *c, const PpConvShape *s);
void pp_conv_close(PpConv *c);
void pp_conv_forward(PpConv *c, int64_t rows, const void *x, const void *w, void *y);
/*
 * The same, and what follows: then() is called for parts of y as they are complete, and lie in the
 * caches; each element of y is in one part.  It may change these elements of y and reads no others;
 * threads may run it at the same time, on different parts.  in, out: what it is given.
 */
typedef struct {
    int64_t sample, sample_end, channel, channel_end;
    int64_t first, end;                                 /* elements of each channel's image */
    PpLength length;                                    /* PpConvShape.length */
} PpPart;
typedef void PpThen(const PpPart *part, const void *const *in, void *const *out);
/*
 * Of float32, what then() does as a formula: to each element, in this order,
 *     s = y + bias[channel] + sum;   out = s at least low, then at most high
 * or, where scale is not 0, out = s (s scale + shift, at most 1, then at least 0).  It may be
 * computed so instead, and y left as it is; then() is called for the other parts.  bias, sum: NULL:
 * none, of bias plus instead of it; sum, out: as y.  low is not -0, high is neither 0, shift is
 * above 0.
 */
typedef struct {
    const float *bias, *sum;
    float *out;
    float plus, low, high, scale, shift;
} PpAfter;
/* after NULL: it has no formula */
typedef struct {
    PpThen *then;
    const void *const *in;
    void *const *out;
    const PpAfter *after;
} PpFollow;
void pp_conv_forward_then(PpConv *c, int64_t rows, const void *x, const void *w, void *y,
                          const PpFollow *of);
/* also ConvTranspose's forward */
void pp_conv_backward_data(PpConv *c, int64_t rows, const void *dy, const void *w, void *dx);
void pp_conv_backward_weight(PpConv *c, int64_t rows, const void *x, const void *dy, void *dw,
                             int accumulate);

#ifdef __cplusplus
}
#endif
#endif

/*
 * cg.h - what the parts of codegen share: a stage while its code is made, and its functions.
 *
 * A Func is one of a stage's functions (forward, infer, backward, backward_input, backward_weight).
 * Its way: lower -> place (where values live) -> fuse (groups) -> build (nests) -> memory
 * (lifetimes, offsets) -> steps -> repeats -> print. The passes: plan/plan.h.  What prints steps:
 * print/target.h.  What writes the output folder: write/write.h.
 */
#ifndef PPSPLIT_CG_H
#define PPSPLIT_CG_H

#include "base/file/pack.h"
#include "codegen.h"
#include "codegen/func.h"
#include "runtime/api/pp.h"

/* A constant the stage reads through a pointer.  inlined: its elements are in the source; on a
   device it is in PpCtx.constants as well, after the others. */
typedef struct {
    ValueId value;
    bool inlined;
    int64_t offset;
    const Value *most; /* as it is with the greatest length, or with all; NULL: as `value` */
    int64_t shift;     /* bytes behind `offset` where it is with this length */
} StageConst;

/* A kernel; head: up to its name.  Of a nest: what its callers have in common of each argument, and
 * those that its text names. */
typedef struct {
    const char *name, *comment, *formula, *head, *params, *body;
    struct Argument *arg;           /* of the first caller's nest; NULL: it is no nest's */
    uint32_t args;
    Ids named;
} StageKernel;

/* The kernels of a stage, each distinct text once. */
typedef struct {
    VEC(StageKernel) all;
    StrMap of;                      /* text -> index */
    StrMap titles;                  /* operation and direction -> how many */
    Text text;
} KernelList;

/* A convolution that open() prepares. */
typedef struct {
    PpConvShape shape;
    int64_t rows;                   /* the most */
} StageConv;

/* What steps compute, each once, found by its hash; room: for a step's bytes until they are known
 */
typedef struct { const uint8_t *bytes; uint32_t n; } Signature;
typedef struct { VEC(Signature) list; IdMap of; VEC(uint8_t) room; } Signatures;

/* Nodes that become one MatMulBias: a product, the Add of a bias, a Cast to half or the Add again;
   bias: as the library reads it. */
typedef struct { NodeId product, add, last; ValueId bias; } Chain;
typedef VEC(Chain) Chains;

/* A part of the stash that can be computed again by itself.  from: its number in Stage.again */
typedef struct { uint32_t from; int64_t at, bytes; } StagePart;

typedef VEC(int64_t) Bytes;
typedef VEC(Ref *) Refs;

/* Positions in the stage's lists, by value; of parameters by parameter.  And lists that have no
 * other use: */
typedef struct {
    IdMap param, input, output, dy, constants;
    /* of a value that is read again, the output that holds its elements */
    IdMap shown;
    IdMap known;                    /* values that are scalars of rows: what they are (role.c) */
    IdMap recomputed;               /* values of the forward that the backward computes again */
    IdMap collective;               /* by result of a collective: its row */
    Ids collectives;                /* those results, in the order of their rows */
    IdMap edge;                     /* of a value that crosses a cut: its layout (plan/edge.c) */
    Refs edges;
    IdMap chain;                    /* by node of a chain which one (plan/bias.c) */
    IdMap lowered;                  /* by node as it was what it is now (plan/lower.c) */
    VEC(Ids) lowered_as;
} Positions;

/* The parameters of a stage in memory, by parameter. */
typedef struct {
    int64_t bytes, bytes_grad, bytes_half;
    Bytes at;
    /* where its gradient is, which is its first use's sum, and its other uses'; -1: none; then of
     * each of ParamUse.partial the sums of a member's chunks but the first */
    Bytes grad_at, more_at, chunks_at;
    Bytes half_at;      /* of the copy in half_type; -1: none */
    Dtype half_type;    /* DT_NONE: no copies */
} StageParams;

/* Which stage inputs, outputs and gradients that come in B / I reads (bit 0), W (bit 1), forward
 * (bit 2); a bit for each part of the stash whose function reads it. */
typedef struct {
    uint8_t *in, *out, *dy, *in_again, *out_again;
    bool *optional;     /* forward need not write that output */
} StageReads;

/* A block outside the workspace, or one of its places. */
typedef struct {
    BufClass cls;
    uint32_t index;
} Standing;

/* What one function leaves for another: root values, where they stand and how, by value which. */
typedef struct {
    Ids value;
    Bytes at;
    Refs layout;
    IdMap position;
    int64_t bytes;
    /* of what I saves: where it is; it has no place of its own if I leaves it in that of a value
       that nobody reads any more (memory.c) */
    VEC(Standing) in;
    /* of the stash: its part of Stage.again, or NONE.  At run time a part is a block of its own;
       `at` counts from the beginning of the stash. */
    Ids part;
    VEC(StagePart) again;
} KeptBlock;

/* Of a stage while it is printed. */
typedef struct {
    KernelList *kernels;            /* of a body those of the stage */
    struct StageNames *names;       /* of its buffers, once one is asked for (print/names.c) */
    Signatures signatures;
    /* a statement before each step and at the end of each function: --profile, tests; NULL: none */
    const char *probe, *probe_end;
} StagePrint;

/* The bodies of Recurrences, which are stages with one function. */
typedef struct {
    StageGen *within;               /* of a body: the stage; NULL: it is one */
    VEC(StageGen *) body;           /* of its Recurrences, which plan() makes */
    StageGen *(*plan)(StageGen *of, Pipe *p);
} StageLoops;

/* A size where lengths vary: what it is with the greatest; what divides it with any; its text,
   "(2 * length)", NULL: it does not vary; what no length makes it greater than, nor less than its
   negative. */
typedef struct {
    bool known;
    int64_t most, divisor;
    const char *text;
    double bound;
} SizeKnown;

/* Sizes with one length, in the order in which a stage asks for them, by parts of it
   (plan/size.c). */
typedef struct SizesMet SizesMet;
struct SizesMet {
    Arena *a;
    VEC(int64_t) met;
    VEC(bool) constant;                                 /* those of a constant */
    VEC(SizeKnown) said;                                /* the answers */
    VEC(uint32_t) from;                                 /* part i's are from here on */
    const SizesMet *first;                              /* the first sample's; NULL: this is it */
    /* the time before, and what was learnt of it; its next one; NULL: nothing */
    const SizesMet *before;
    const SizeKnown *learnt;
    IdMap of;                                           /* by number: which was learnt of it */
    uint32_t next;
};

/* The sum of c[k] times the lengths, each to its power, of all powers below DEGREES in sum: length
   v has the power k / DEGREES^v % DEGREES. */
enum { TERMS = DEGREES * DEGREES * DEGREES };
typedef struct {
    int64_t c[TERMS];
    int degree;
} Polynomial;

/* plan/polynomial.c */
int cg_power(int term, int symbol);
/* The polynomial of whole coefficients that has v[k] with lengths l->at[k], each of them; false:
   there is none. */
bool cg_fit(const Lengths *l, const int64_t *v, Polynomial *p);
int64_t cg_value(const Lengths *l, const Polynomial *p, const int64_t *length);
/* with the greatest lengths; samples: of all that are sampled, which constants are laid out for */
int64_t cg_value_most(const Lengths *l, const Polynomial *p, bool samples);
/* A range that has all its values, of lengths from `above` more than the least ones on. */
void cg_bounds(const Lengths *l, const Polynomial *p, int above, double *low, double *high);
/* "length", "(2 * length * length1 - 1)"; wide: of 64 bits, where lengths have 32 */
const char *cg_polynomial_text(Arena *a, const Polynomial *p, bool wide);
/* With the greatest lengths, has it a part that is no int? */
bool cg_is_large(const Lengths *l, const Polynomial *p);

struct StageGen {
    Pipe *pipe;
    /* of a loss over the whole minibatch: the Pipe of a microbatch's shapes; else NULL */
    const Pipe *microbatches;
    Graph *g;
    Stage *stage;
    const char *name;               /* "stage3": of its file, its functions, its tables */
    Arena *a;
    Target target;
    bool device; /* its library of products adds biases, and takes sizes from the host */
    bool fixed;                     /* rows never change: every extent is a plain number */
    bool profiled;                  /* --profile: the probe of the CPU's program is a timer */
    SizesMet *sizes;                /* where lengths vary; NULL: they do not */
    const Lengths *lengths;         /* the same; NULL */
    Positions position;
    StageParams params;
    StageReads reads;
    KeptBlock stash, saved;
    VEC(StageConst) constants;
    int64_t bytes_const, bytes_inlined;
    VEC(StageConv) conv;
    Chains chain;                   /* products whose bias the library adds; see plan/bias.c */
    StageLoops loops;
    StagePrint print;
    Func *func[F_COUNT];
};

/* plan/stage.c: the place of a BUF_GRAD, the sum of one use of a parameter; index: the parameter's,
   plus the stage's number of parameters times the use's. */
int64_t cg_grad_at(const StageGen *sg, uint32_t index);

/* a constant as its program has it, with the greatest length */
static inline const Value *cg_constant_value(const StageGen *sg, uint32_t i)
{
    const StageConst *c = &sg->constants.at[i];
    return c->most ? c->most : val(sg->g, c->value);
}

#endif

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

#include "codegen.h"
#include "codegen/step.h"
#include "codegen/text.h"

/* ---- the function ---------------------------------------------------------------------------- */

typedef enum {
    BUF_PARAM, BUF_GRAD, BUF_CONST, BUF_STASH, BUF_SAVED, BUF_IN, BUF_OUT, BUF_DY, BUF_DX, BUF_WORK
} BufClass;

typedef struct {
    BufClass cls;
    /* IN, OUT, DY, DX: which; PARAM, GRAD: position in stage.param; CONST: in StageGen.constants */
    uint32_t index;
    ValueId value;
    Dtype type;
    int64_t bytes;                  /* at full rows */
    int64_t offset;                 /* in its block */
    int first, last;                /* steps (WORK) */
    bool used, written;
    /* the buffer in whose place this one comes to stand; NONE: none */
    uint32_t over;
    /* a value of the workspace in a place where another one comes to stand */
    bool guest;
} Buffer;

/* Where element (i0, i1, ..) of a value stands: in buffer buf at off + sum of stride[d] * i_d. ext:
 * its dims. */
typedef struct {
    ValueId root;                   /* the value whose memory this is */
    uint32_t buf;
    int rank;
    /* a dimension has several strides: only views and products read it */
    bool wide;
    Lin off, ext[MAX_RANK], stride[MAX_RANK];
} Ref;

/* The same with dimensions of several parts: dimension d is the parts first[d] .. first[d + 1] - 1,
 * outermost first. */
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
    /* the node of this function that makes it, NONE: comes from outside */
    VEC(NodeId) def;
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
    /* behind the workspace, for kernels that hand results to the next one: known once printed */
    int64_t bytes_scratch[TARGETS];
    VEC(Step) step;
    VEC(Repeat) repeat;             /* in their order, apart from one another */
    Text body[TARGETS];             /* the printed function */
} Func;

/* A constant the stage reads through a pointer.  inlined: its elements stand in the source; on the
   device it lies in PpCtx.constants all the same, behind the others. */
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
/* room: for a step's bytes until they are known */
typedef struct { Signature *slot; uint32_t n, cap; VEC(uint8_t) room; } Signatures;

/* The table of offsets of a stage: sections of rows of one number or several. */
/* step: from one turn to the next, of the row before */
typedef struct { const char *name, *note; uint32_t n; const int64_t *at; bool step; } OffsetRow;
typedef struct { const char *name, *title; VEC(OffsetRow) row; StrMap of; } OffsetSection;
typedef struct { VEC(OffsetSection) section; } Offsets;

/* Positions in the stage's lists, by value; of parameters by parameter. */
typedef struct {
    IdMap param, input, output, dy, stash, saved, constants;
    /* of a value that is read again, the output that holds its elements */
    IdMap shown;
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
    VEC(StageConst) constants;
    Target target;                  /* of what is being printed */
    KernelList kernels[TARGETS], turns[TARGETS];        /* turns: functions of repeated sequences */
    Offsets offsets[TARGETS];
    /* a statement before each step and at the end of each function, for tests; NULL: none */
    const char *probe, *probe_end;
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
    /* which stage inputs, outputs and gradients that come in B / I reads (bit 0), W (bit 1),
     * forward (bit 2) */
    uint8_t *in_read, *out_read, *dy_read;
    Func *func[F_COUNT];
};

/* every tensor begins at a multiple */
static inline int64_t cg_align(int64_t n) { return (n + 63) / 64 * 64; }

#endif

/*
 * func.h - one function of a stage while it is planned: where values stand in memory, and the
 * groups of nodes that become one kernel.
 */
#ifndef PPSPLIT_FUNC_H
#define PPSPLIT_FUNC_H

#include "codegen/step.h"
#include "codegen/text.h"

/* ---- the function ---------------------------------------------------------------------------- */

typedef enum {
    BUF_PARAM, BUF_GRAD, BUF_CONST, BUF_STASH, BUF_SAVED, BUF_IN, BUF_OUT, BUF_DY, BUF_DX, BUF_WORK,
    BUF_HALF,                       /* copies of parameters, in half precision */
    BUF_COUNT                       /* on the host: how many rows the data leave (count.c) */
} BufClass;

typedef struct {
    BufClass cls;
    /* IN, OUT, DY, DX: which; PARAM, GRAD, HALF: position in stage.param; CONST: in
       StageGen.constants; COUNT: in Func.counted */
    uint32_t index;
    ValueId value;
    Dtype type;
    int64_t bytes;                  /* at full rows */
    int64_t offset;                 /* in its block */
    int first, last;                /* steps (WORK) */
    bool used, written;
    bool optional;                  /* OUT: NULL where nobody asks for it (optional.c) */
    /* the buffer whose place this one takes; NONE: none */
    uint32_t over;
    /* a value of the workspace, or saved by I, that shares its place with an earlier or later
       one */
    bool guest;
    const struct Ref *layout;       /* STASH, SAVED: as the value stands there */
} Buffer;

/* Where element (i0, i1, ..) of a value stands: in buffer buf at off + sum of stride[d] * i_d. ext:
 * its dims. */
typedef struct Ref {
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

/* F_AGAIN + k: part k of the stash once more */
typedef enum {
    F_FORWARD, F_INFER, F_BACKWARD, F_INPUT, F_WEIGHT, F_AGAIN, F_COUNT = F_AGAIN + AGAIN_MOST
} FuncKind;

/* One piece of a group's dimension k that is dimension e of a node's space, times mult. */
typedef struct { int k, e; Lin mult; } Piece;
typedef struct { NodeId node; int np; const Piece *piece; } Member;
/* A value whose element at each point of the group's space is known to be at these strides. */
typedef struct { ValueId root; Lin off; const Lin *stride; bool internal, hidden; } Known;

typedef VEC(Member) Members;
typedef VEC(Known) Knowns;

/* Memory that a group reads or writes. */
typedef struct { uint32_t buf; bool written; } Access;
typedef VEC(Access) Accesses;

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
    Accesses access;                /* once it is asked for (demand.c) */
    /* the nest over samples, channels and elements of images, where it follows the convolution
       that is the group before it (then.c); NULL: it is a step of its own */
    const Nest *image;
    /* a collective: it is begun here and ended before this group of the order; 0: it is done at
       once */
    uint32_t until;
} Group;

typedef struct StageGen StageGen;

/* The workspace of a function: all; the most that is alive at one step; and what is behind it, for
   loops, and for kernels that hand results to the next one: of those it is known once printed. */
typedef struct { int64_t work, live, scratch; } FuncBytes;

typedef struct {
    StageGen *sg;
    Graph *g;
    Arena *a;
    Arena *scratch;                 /* while the passes run */
    FuncKind kind;
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
    VEC(uint8_t) apart;             /* on a device: rows of it are a product's (pad.c) */
    VEC(Group) group;
    Ids order;                      /* groups in final order */
    VEC(NodeId) after;              /* extra order: node after[2i+1] comes after node after[2i] */
    struct Fuse *fuse;              /* while groups grow */
    bool *needed;                   /* by root value: read from memory by others than its group */
    uint32_t at_once;               /* how many collectives may be under way besides another one */
    FuncBytes bytes;
    VEC(Step) step;
    Ids counted;                    /* masks of which the host is told how many are true */
    VEC(Repeat) repeat;             /* in their order, apart from one another */
    Text body;                      /* the printed function */
} Func;

/* Which operand of a Phase is read. */
static inline bool func_trains(const Func *f) { return f->kind != F_INFER; }

#endif

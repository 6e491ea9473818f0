/*
 * nest.h - the loop-nest IR: what a fused group computes, for no target in particular.
 *
 * A Nest is a space of dimensions and scalar statements in SSA form over its points.  Kinds:
 *   NEST_POINT   every point by itself
 *   NEST_ROW     outer dimensions (rows, independent) x inner dimensions (the row); reductions run
 *                over the inner ones, their results are scalars of the row that later passes use
 *   NEST_COLUMN  outer dimensions are kept, the inner ones are summed over; a result for each point
 *                of the outer space
 *
 * Orders of addition depend on the logical extents of the reduced dimensions only, never on fusion:
 *   ROW          16 partial results, element j of the innermost reduced run into lane j mod 16,
 *                then a halving tree
 *   COLUMN       blocks of 64 consecutive elements of the reduced space, each summed in order, then
 *                the blocks in order
 *
 * Extents, strides and offsets are affine in the rows of the microbatch: Lin.
 */
#ifndef PPSPLIT_NEST_H
#define PPSPLIT_NEST_H

#include "ir/facts/mask.h"
#include "ir/ir.h"

/* c + b * rows */
typedef struct { int64_t c, b; } Lin;

static inline Lin lin(int64_t c) { return (Lin){c, 0}; }
static inline bool lin_eq(Lin x, Lin y) { return x.c == y.c && x.b == y.b; }
static inline bool lin_is(Lin x, int64_t c) { return x.c == c && x.b == 0; }
static inline int64_t lin_at(Lin x, int64_t rows) { return x.c + x.b * rows; }
static inline Lin lin_add(Lin x, Lin y) { return (Lin){x.c + y.c, x.b + y.b}; }
static inline Lin lin_times(Lin x, int64_t k) { return (Lin){x.c * k, x.b * k}; }
bool lin_mul(Lin x, Lin y, Lin *z);                     /* false: not affine */
Lin lin_product(Lin x, Lin y);                          /* of sizes, which is affine */
/* Is one step of the outer stride all of the inner dimension? */
bool lin_chains(Lin outer, Lin inner, Lin ext);
int64_t lin_far(Lin x);                                 /* for comparing strides */
/* false: not exact for every number of rows */
bool lin_div(Lin x, Lin y, Lin *z);
/* the one that divides the other: the next piece of two dimensions walked together, from the
   inside; false: neither does */
bool lin_piece(Lin x, Lin y, Lin *piece);
/* behind a piece of a dimension: what is left of it, and how far apart that is */
bool lin_past(Lin *ext, Lin *stride, Lin piece);

enum { NEST_DIMS = 24, NEST_LANES = 16, NEST_BLOCK = 64 };

typedef enum { NEST_POINT, NEST_ROW, NEST_COLUMN } NestKind;

typedef enum {
    S_CONST,                        /* k */
    S_LIN,                          /* base, as a number of this type */
    S_INDEX,                        /* base + sum of stride[d] * index d */
    /* arg[base + sum of stride[d] * index d + sum of the index operands]; guarded */
    S_LOAD,
    S_OP,                           /* an elementwise op of ops.def over in[] */
    S_REDUCE,                       /* over the inner dimensions: op is one of the Reduce ops */
    S_STORE,                        /* in[0] to arg[...]; acc: adds */
} StmtKind;

/* A load by indices: element + in * stride, in wrapped and checked against extent; within: it is
 * known to be there as it is. */
typedef struct { uint32_t in; Lin extent, stride; bool within; } NestIndex;
/* lo <= sum of coef[d] * index d < hi, else the load gives fill */
typedef struct { Lin coef[NEST_DIMS]; int64_t lo; Lin hi; } NestGuard;

typedef struct {
    StmtKind kind;
    Op op;
    Dtype type;                     /* of the result */
    uint32_t nin, in[3];
    uint32_t arg;
    Lin base, stride[NEST_DIMS];
    uint32_t nindex, nguard;
    NestIndex *index;
    NestGuard *guard;
    double k;                       /* S_CONST, fill */
    int64_t ki;                     /* S_CONST of integer type */
    bool acc;
    bool row;                       /* does not vary along the inner dimensions */
    int pass, last;                 /* the first pass that can compute it, the last one that does */
    bool keep;                      /* kept in a row buffer for later passes */
} Stmt;

typedef VEC(Stmt) Stmts;

/* What a statement is computed from: its operands, behind them those of its indices. */
static inline uint32_t stmt_reads(const Stmt *s) { return s->nin + s->nindex; }
static inline uint32_t stmt_read(const Stmt *s, uint32_t j)
{
    return j < s->nin ? s->in[j] : s->index[j - s->nin].in;
}
static inline bool stmt_is(const Stmt *s, Op op) { return s->kind == S_OP && s->op == op; }
void stmt_rename(Stmt *s, const uint32_t *to);          /* of each that it reads, the new number */

typedef struct {
    Dtype type;
    bool written, acc;
    bool optional;                  /* written only if there is a place */
    uint32_t buf;                   /* what the caller passes: a buffer of the function ... */
    Lin offset;                     /* ... and where in it, in elements */
    /* By how many elements the buffer's beginning moves from call to call, from a multiple of
       PP_ALIGN bytes: in a Recurrence's body. */
    Lin moves;
    ValueId value;                  /* for its comment */
} NestArg;

typedef struct {
    NestKind kind;
    /* dims[nouter..nd) is the row (ROW), or what is summed over (COLUMN) */
    int nd, nouter;
    /* the innermost reduced run is the last nrun dims (lanes count along it) */
    int nrun;
    Lin ext[NEST_DIMS];
    Stmts stmt;
    VEC(NestArg) arg;
    int passes;
    /* Three dimensions, of which a part is run over at a time: PpPart in pp.h. */
    bool in_parts;
    /* Rows where this load is false are zero, and the statements are of the others: on CPUs, by
       nest_present(); NULL: of all rows. */
    const Stmt *there;
    int64_t cost;                   /* points at full rows */
    /* the stage, where lengths vary: the text has the form of sizes that are large, and are
       multiples of what divides them with any length (size.c); NULL: they do not */
    const struct StageGen *sized;
    Arena *arena;
} Nest;

/* nest.c */
Lin nest_span(const Nest *n, int from, int to);         /* points of these dimensions */
Nest *nest_copy(Arena *a, const Nest *n);               /* with statements of its own */
/* drops statements that no store reaches; and arguments */
void nest_sweep_statements(Nest *n);
void nest_sweep(Nest *n);
void nest_mark_rows(Nest *n);                           /* Stmt.row, by strides and operands */
void nest_schedule(Nest *n);                            /* passes, row buffers */
enum { LONGEST_KEPT = 4096 };                           /* elements of a row */
/* 0: there are no rows, or they are as long as the batch has rows */
int64_t nest_row_length(const Nest *n);
/* What an operation or a load is worth, of quick operations. */
int nest_worth(const Stmt *s);
/* in_pass[i]: pass p computes statement i */
void nest_marks(const Nest *n, int p, uint8_t *in_pass);
/* no point, or no row: not for the printers */
bool nest_makes_nothing(const Nest *n);

/* simplify.c: nothing that nest_sweep() leaves is computed in a longer way; to the bit */
void nest_simplify(Nest *n);

/* absent.c: the nest of the rows that are there, where the data leave rows out that are zero: it
   says which (Nest.there).  n itself where there are none. */
const Nest *nest_present(Arena *a, const Nest *n);

/* pick.c */
bool stmt_same(const Stmt *x, const Stmt *y);           /* the same value; without guards */
/* One element of a row, found by an index that is known to be within. */
static inline bool nest_is_picked(const Stmt *s)
{
    return s->kind == S_LOAD && s->row && s->nindex == 1 && s->index[0].within;
}
/* Sums over a one-hot row become the element they pick, to the bit; rows are marked before and
 * after.  false: there were none. */
bool nest_pick(Nest *n);

#endif

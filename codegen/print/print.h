/*
 * print.h - what the printers of nests share (expr.c): a statement as an expression that is C and
 * CUDA C alike.  How a statement is called where it is used (a variable, an element of a row
 * buffer, a component of a vector) is each printer's own affair: name().
 */
#ifndef PPSPLIT_PRINT_H
#define PPSPLIT_PRINT_H

#include "target.h"

/* formula.c: what a nest computes, as lines of a comment, "dx = w * dy - mean(w * dy)", and what
   its statements are called in the kernel: as there, "x_j" of an element of x, "x_i" where it is
   one for a row; the others have letters once they are asked for. */
typedef struct {
    const char *formula;
    const char **of;                                    /* by statement; NULL: not yet */
    uint32_t letters;
} PrintNames;
const char *print_letter(Arena *a, uint32_t i); /* "a", "b", none that kernels have */
PrintNames formula_names(Arena *a, const Nest *n, const char *const *arg_name);

/* out.c: parameters and arguments of a kernel of the step's nest, those that its body names:
   which they are. */
typedef struct { Text params, args; Ids named; } Parameters;
Parameters out_parameters(Out *o, const Step *s, const char *const *name, const char *body);

/* rounding.c: what is done to a value where it is made: nothing; a half is rounded, or, where a NaN
   in the lower half is out of the question, by the shorter way. */
typedef enum { PRINT_AS_IT_IS, PRINT_ROUNDED, PRINT_NEAREST } PrintRounding;
PrintRounding *print_roundings(Arena *a, const Nest *n); /* by statement */

/* How tightly an expression binds, from the loosest on. */
typedef enum {
    BINDS_CHOICE, BINDS_LOGIC, BINDS_COMPARE, BINDS_SUM, BINDS_PRODUCT, BINDS_UNARY, BINDS_ATOM
} PrintBinds;
/* "+" of what ops.def writes "(a) + (b)"; false: the operation is written otherwise */
typedef struct { char text[3]; PrintBinds binds; } PrintSign;
bool print_sign(Op op, PrintSign *sign);

typedef struct Print Print;
struct Print {
    Arena *a;
    const Nest *n;
    int64_t divisor[NEST_DIMS];                         /* it divides ext[d] with any length */
    const char *const *arg;                             /* names of the arguments */
    PrintNames names;
    const PrintRounding *rounding;                      /* by statement */
    bool *inlined;                                      /* by statement: it has no variable here */
    Text *t;
    /* the index of each dimension as an expression */
    const char *dim[NEST_DIMS];
    /* what holds statement i at this place: a variable, an element of a buffer, a number */
    const char *(*name)(Print *p, uint32_t i);
    int pass;
    uint8_t *in_pass;                                   /* what this pass computes */
};

const char *print_lin(const Print *p, Lin x); /* "rows * 128", "512" */
/* in parentheses where a product needs them */
const char *print_factor(const Print *p, Lin x);
/* what an S_CONST is, or a guarded load elsewhere */
const char *print_constant(const Print *p, const Stmt *s);
const char *print_called(Print *p, uint32_t i);         /* a statement's name */
const char *print_row_name(Print *p, uint32_t i);       /* of the buffer that has it for a row */
const char *print_term(Print *p, Lin c, const char *index);                    /* index * c */
/* base + sum of coef[d] * index d */
const char *print_affine(Print *p, Lin base, const Lin *coef);
/* of a load: strides and index operands */
const char *print_address(Print *p, const Stmt *s);
const char *print_guard(Print *p, const Stmt *s);                               /* NULL: none */
const char *print_load(Print *p, const Stmt *s);
const char *print_expression(Print *p, uint32_t i);
/* statement i as an operand: its name, or itself written out, in parentheses where it binds less
   tightly than that */
const char *print_operand(Print *p, uint32_t i, PrintBinds least);
/* const float v3 = ..; nothing where it is written out */
void print_value(Print *p, uint32_t i);
/* "if (y0)" on a line of its own, where y0 is an output that may have no place, and by what the
 * store below it is indented; else "". */
const char *print_if_asked(Print *p, const Stmt *s);
void print_store(Print *p, const Stmt *s);
const char *print_neutral(Print *p, const Stmt *s);                             /* of a reduction */
/* an array of n sums of a reduction, cleared */
void print_cleared(Print *p, const char *array, int n, const Stmt *s);
/* sum, prod, max, min */
const char *print_fold_name(Op op);
void print_accumulate(Print *p, const char *into, const Stmt *s, const char *x);
/* computed at each point of this pass */
bool print_in_pass(const Print *p, uint32_t i);
/* Does an address or a number of these depend on the dimension?  Inside a row: one of this pass. */
bool print_depends(const Print *p, int d, bool loads, bool stores);
/* values of the row that are ready before the pass */
void print_row_values(Print *p, int pass);
void print_open_loop(Print *p, const char *type, const char *index, const char *from,
                     const char *to, int step);

/* inline.c: chooses what is written out where it is used in this pass (Print.inlined); threads:
   several share a row. */
void print_inlined(Print *p, bool threads);

/* c.c: the body of a C function with the nest's arguments; its formula is returned. */
const char *nest_print_c(Arena *a, const Nest *n, const char *const *arg_name, Text *t);

/* c_column.c: the same of sums over rows; parallel: by several threads where there are several
   blocks of columns. */
void print_c_column(Print *p, bool parallel);

/* cuda.c: the kernels of a nest, launched one after the other with the nest's arguments (those that
   the body names). full: rows of a full microbatch; alias[i]: argument i shares memory
   with another one and one of them is written. */
enum { CUDA_KERNELS = 6, CUDA_FORMS = 4 };              /* of a nest, at most; ways to compute it */
typedef enum { PART_UNUSED, PART_READ, PART_WRITTEN } PartUse;
typedef struct {
    Text body;
    int threads;                                        /* of a block */
    /* of the grid, for each multiprocessor of a large device; 0: not told */
    int blocks;
    const char *grid, *block;                           /* of the launch, in terms of rows */
    /* Where lengths decide which form of the nest is launched: whether this one is; NULL: it is.
       first: of its form. */
    const char *when;
    bool first;
    PartUse part[NEST_DIMS];                            /* partial results of the nest */
} CudaKernel;
typedef struct {
    const char *formula;
    int n;
    CudaKernel kernel[CUDA_KERNELS + CUDA_FORMS];
    /* Where lengths decide it: what launches, and kernels that name it, have as `order', and the
       call that makes it; NULL: nothing. */
    const char *order_type, *order;
    const char *index;                                  /* the type of rows in the kernels */
    /* partial results, from one kernel to later ones: float *sum_parts, by statement */
    uint32_t parts;
    struct { uint32_t stmt; const char *name; Dtype type; int64_t offset; } part[NEST_DIMS];
    int64_t bytes_scratch;
} CudaNest;
void nest_print_cuda(Arena *a, const Nest *n, int64_t full, const char *const *arg_name,
                      const bool *alias, CudaNest *out);
/* Its bytes_scratch alone, of one whose sizes are known. */
int64_t nest_scratch_cuda(const Nest *n, int64_t full, const bool *alias);

#endif

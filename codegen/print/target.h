/*
 * target.h - what code is generated for: a row of properties and functions for each target, in a file of its own (target_NAME.c).
 *
 * Out is a function of a stage while its text is made.  Steps are printed into it one after the other; it notes what the text uses, so
 * that only that is declared before it.
 */
#ifndef PPSPLIT_TARGET_H
#define PPSPLIT_TARGET_H

#include "codegen/cg.h"

typedef struct TargetRow TargetRow;

typedef struct {
    Func *f;
    Arena *a;
    const TargetRow *target;
    Text text;
    bool rows, stream;              /* names that the text uses */
    bool *named;                    /* by buffer: its pointer's name */
    int64_t bytes_scratch;          /* behind the workspace: partial results that one kernel leaves for the next */
} Out;

struct TargetRow {
    const char *ending;             /* of a stage's file */
    const char *header;             /* that it includes */
    const char *table;              /* ending of the name of a stage's table */
    const char *call, *context;     /* beginning of the name of the runtime's library calls, and what each is given first */
    const char *convolution;        /* the runtime's type of a prepared convolution */
    bool cplusplus;                 /* no designated initialisers, no void * as any pointer */
    bool device;                    /* a kernel is launched on a grid of threads; constants lie in the device's memory, also short ones */
    void (*nest)(Out *o, const Step *s, const char *comment);
    /* Memory that a kernel is to find filled, with the bytes of `from` or with zeros (NULL); a device only. */
    const char *(*fill)(Out *o, const char *to, const char *from, const char *bytes);
    /* head: the arguments up to the batch */
    void (*batch)(Out *o, const char *function, const char *head, const Product *p);
};

extern const TargetRow target_cpu, target_cuda;

/* target.c */
const TargetRow *target_row(Target t);

/* out.c */
const char *out_lin(Out *o, Lin x);                     /* of the function's rows */
const char *out_name(const Func *f, uint32_t buf);      /* of a buffer's pointer */
const char *out_pointer(Out *o, const StepArg *x);      /* "t42 + 128" */
const char *out_arg(Out *o, const Step *s, ValueId v);  /* the argument that is this value */
/* Prints a kernel once per distinct text; returns its name. */
const char *out_kernel(Out *o, const char *comment, const char *params, const char *body);
/* The same for the device; threads: of a block at most; blocks: a multiprocessor need not hold more of them (0: the compiler chooses). */
const char *out_device_kernel(Out *o, const char *comment, int threads, int blocks, const char *params, const char *body);
/* PP_LAUNCH(name, grid, block, 0, stream, args); cut where it is long. */
void out_launch(Out *o, const char *name, const char *grid, const char *block, const char *args);
const char **out_argument_names(Out *o, const Nest *n); /* x, y; dx, dy for gradients; w, dw for parameters */

/* call.c, kernels.c: library calls, and kernels of their own kind */
void print_product(Out *o, const Step *s);
void print_convolution(Out *o, const Step *s);
void print_kernel(Out *o, const Step *s);

#endif

/*
 * step.h - what codegen has decided before a character is printed.
 *
 * A function of a stage is a list of Steps, in the order of execution: what is computed, on which buffers, for which nodes of the
 * model.  The passes of plan/ make them and know neither text nor targets; the files of print/ turn them into C or CUDA C and
 * decide nothing but how that is written.
 */
#ifndef PPSPLIT_STEP_H
#define PPSPLIT_STEP_H

#include "codegen/plan/nest.h"

enum { PRODUCT_BATCH = 32 };                            /* the most dimensions of a batch of products */

/* A place that the step reads or writes: element `offset` of a buffer of its function. */
typedef struct {
    uint32_t buf;
    Lin offset;
    bool written;
    ValueId value;
} StepArg;

/* One factor, or the result: the step's argument, its leading dimension, and a stride for each dimension of the batch. */
typedef struct { uint32_t arg; Lin ld, stride[PRODUCT_BATCH]; } ProductSide;

/* C = op(A) op(B), or C += op(A) op(B), row-major, over a batch. */
typedef struct {
    Dtype type;
    bool adds, transposed_a, transposed_b;
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

typedef enum {
    STEP_NEST,                      /* a fused loop nest */
    STEP_PRODUCT,                   /* a matrix product of the library */
    STEP_CONVOLUTION,
    STEP_KERNEL,                    /* an operation with a kernel of its own kind: `node` */
} StepKind;

typedef struct {
    StepKind kind;
    bool empty;                     /* what it makes has no elements: nothing is computed */
    VEC(StepArg) arg;
    const bool *shared;             /* NEST, by argument: another one has the same memory and one of the two is written */
    const Nest *nest;
    const Product *product;
    const Convolution *convolution;
    NodeId node;                    /* not of a NEST */
    uint32_t group;                 /* of the function: the nodes that it computes */
    ValueId result;                 /* the first one that is written */
} Step;

#endif

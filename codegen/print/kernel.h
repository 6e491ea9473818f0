/*
 * kernel.h - what kernels.c and scatter.c share: a kernel of its own kind while its text is being made, for C or for the device.
 */
#ifndef PPSPLIT_KERNEL_H
#define PPSPLIT_KERNEL_H

#include "codegen/cg.h"

typedef struct {
    Func *f;
    const Node *n;
    Arena *a;
    bool cuda;
    Text body;
    const char *params, *args;      /* of the kernel and of the call */
    const char *index;              /* the type of indices: int64_t; on the device int below 2^31 elements */
    int opened;                     /* blocks of kernel_parallel */
    /* of the launch */
    Text before;                    /* calls that come first */
    Lin work;                       /* threads; grid: blocks as an expression instead */
    const char *grid;
    const char *shape, *call;       /* a library call that may do it, and the constant it is given; NULL: none */
    int threads;
} Kernel;

#define line(...) text_line(&k->body, __VA_ARGS__)

static inline const char *num(const Kernel *k, Lin x) { return lin_text(k->a, x); }

Lin kernel_span(const Kernel *k, ValueId v, int from, int to);
const char *kernel_pointer(Kernel *k, ValueId v, bool written);
void kernel_param(Kernel *k, ValueId v, const char *name, bool written);
void kernel_open(Kernel *k);
void kernel_close(Kernel *k);
void kernel_loop(Kernel *k, const char *i, Lin n);
/* Loops whose turns are independent: nested ones in C (threads: shared by OpenMP's), the threads of a grid on the device. */
void kernel_parallel(Kernel *k, int n, const char *const *name, const Lin *extent, bool threads);
void kernel_close_parallel(Kernel *k);

/* scatter.c */
void scatter_elements(Kernel *k);
void scatter_nd(Kernel *k);

#endif

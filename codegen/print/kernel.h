/*
 * kernel.h - what kernels.c, pool.c and scatter.c share: a kernel of its own kind while its text is
 * being made, for the CPU or for a device.
 */
#ifndef PPSPLIT_KERNEL_H
#define PPSPLIT_KERNEL_H

#include "target.h"

typedef struct {
    Out *o;
    const Step *s;
    const Func *f;
    const Node *n;
    Arena *a;
    bool device;
    Text body;
    Text params, args;              /* of the kernel and of the call */
    /* the type of indices: int64_t; on the device int below 2^31 elements */
    const char *index;
    int opened;                     /* blocks of kernel_parallel */
    /* of the launch */
    const char *before;             /* what comes first; NULL: nothing */
    Lin work;                       /* threads; grid: blocks as an expression instead */
    const char *grid;
    int threads;
} Kernel;

#define line(...) text_line(&k->body, __VA_ARGS__)
#define open_block(...) text_open(&k->body, __VA_ARGS__)
#define close_block() text_close(&k->body)

/* kernel.c: numbers of the body, and what stands around it */
const char *kernel_lin(const Kernel *k, Lin x);
/* in parentheses where a product needs them */
const char *kernel_factor(const Kernel *k, Lin x);
void kernel_param(Kernel *k, ValueId v, const char *name, bool written);
void kernel_loop(Kernel *k, const char *i, Lin n);
/* Loops whose turns are independent: nested ones in C (threads: shared by OpenMP's), the threads of
 * a grid on the device. */
void kernel_parallel(Kernel *k, int n, const char *const *name, const Lin *extent, bool threads);
void kernel_close_parallel(Kernel *k);
bool kernel_wants(const Kernel *k, uint32_t out);       /* somebody reads that result */

/* pool.c */
void kernel_pool(Kernel *k, bool max);

/* scatter.c */
void kernel_scatter_elements(Kernel *k);
void kernel_scatter_nd(Kernel *k);

#endif

/*
 * cpu.h - what the CPU's files share.
 */
#ifndef PP_CPU_H
#define PP_CPU_H

#include "core/team.h"

#include <stddef.h>

/* gemm.c: the first product that a library refused; "": none.  Of the process: products return
   nothing to generated code, and the threads they run on are OpenMP's.  The runtime asks after each
   action, as it does on a device. */
const char *gemm_error(void);

/* gemm.c: before the first product and any thread; threads are the runtime's, not a library's. */
void gemm_prepare(void);

/* gemm.c: the libraries of products, "oneDNN and OpenBLAS"; "": none. */
const char *gemm_library(void);

/* gemm_arithmetic.c: the instructions that the program was compiled for, and the libraries with the
   version and the code that they take on this CPU. */
void gemm_arithmetic(char *to, size_t n);

/* gemm_half.c: how this machine multiplies matrices of that type, PP_BF16 or PP_F16, for a run's
   first lines: "by oneDNN with AMX". */
const char *gemm_half_text(int dtype);

#endif

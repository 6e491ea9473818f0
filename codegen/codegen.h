/*
 * codegen.h - from a differentiated Pipe to the output folder: lowering, fusion, loop nests,
 * memory, C and CUDA C.
 */
#ifndef PPSPLIT_CODEGEN_H
#define PPSPLIT_CODEGEN_H

#include "autodiff/autodiff.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An option of ppsplit that changes the numbers of the program, with its value as text. */
typedef struct {
    const char *option, *value;
} MadeWith;

/*
 * --bind NAME=LEAST..MOST: a dimension of the model whose size, a microbatch's length, a run knows.
 * pipe: the model with some lengths, which have nothing to do with its other sizes (primes); what
 * their programs have in common is the program of any length (write/lengths.c).
 */
enum { LENGTHS = 8 };
typedef struct {
    const char *name;
    int64_t least, most;
    int64_t at[LENGTHS];
    Pipe *pipe[LENGTHS];
} Lengths;

typedef struct {
    const char *dir;                /* -o */
    bool cpu, cuda;                 /* targets */
    bool link;                      /* --params link */
    bool bare;                      /* --params none */
    bool profile;                   /* steps are timed; of the CPU's program */
    /* Where this machine has the runtime compiled, PREFIX/lib/libppruntime.a, for the output's
       Makefile to link; NULL: it looks for itself. */
    const char *runtime;
    VEC(const char *) source;       /* of the user's own operations: .c and .cu, with their paths */
    const char *page;               /* the text of pipe.html (report/); NULL: there is none */
    VEC(MadeWith) made;
    const Lengths *lengths; /* NULL: none vary */
} CodegenOptions;

/* write/output.c: writes the whole output folder, opt->dir, or nothing (a temporary folder beside
 * it, then rename). */
void codegen_write(Pipe *p, const CodegenOptions *opt);

#ifdef __cplusplus
}
#endif
#endif

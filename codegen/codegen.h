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
 * --bind NAME=LEAST..MOST: dimensions of the model whose sizes, a microbatch's lengths, a run
 * knows. pipe: the model with n samples of them, at[]: lengths that have nothing to do with its
 * other sizes (primes); what their programs have in common is the program of any (write/lengths.c).
 * The first samples are a lattice on which a polynomial is known (plan/polynomial.c), the last ones
 * are those that it is checked with.  Behind them are lengths with which the model as it is read
 * has to be what follows from the samples (write/others.c), and at last more than all, of whose
 * constants those of the others are a part.
 */
enum {
    SYMBOLS = 3,
    DEGREES = 5,
    NODES = 8,
    CHECKS = NODES - DEGREES,
    SAMPLES = 35 + CHECKS,
    OTHERS = 2 * SYMBOLS + 2
};
typedef struct {
    const char *name;
    int64_t least, most;
    uint32_t bind;       /* its number among all --bind */
    int64_t only;        /* the program is of this length alone; 0: of any */
    int64_t node[NODES]; /* its lengths in samples, falling */
} Symbol;
typedef struct {
    Symbol symbol[SYMBOLS];
    int symbols, n, all; /* samples; with the others */
    int64_t at[SAMPLES + OTHERS][SYMBOLS];
    const Graph *imported[SAMPLES + OTHERS]; /* as the files have it */
    Pipe *pipe[SAMPLES];
    Pipe *most; /* with the greatest lengths: those that may be, or those of the samples */
    const Pipe *(*with)(void *of, const int64_t *length); /* the model with any other lengths */
    void *of;
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

/* plan/polynomial.c */
void cg_sample(Lengths *l); /* l->at, the samples, from its symbols and their nodes */
/* The greatest lengths; samples: more than those that are sampled too. */
void cg_longest(const Lengths *l, bool samples, int64_t *length);
/* what programs call them: "length", "length1", .. */
extern const char *const cg_length_name[SYMBOLS];
/* "seq of 2048, width of 7" */
const char *cg_lengths_text(Arena *a, const Lengths *l, const int64_t *length);

/* write/output.c: writes the whole output folder, opt->dir, or nothing (a temporary folder beside
 * it, then rename). */
void codegen_write(Pipe *p, const CodegenOptions *opt);

#ifdef __cplusplus
}
#endif
#endif

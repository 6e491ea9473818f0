/*
 * codegen.h - lowering, fusion, loop nests, the C (and later CUDA) printer, the memory plan, the output folder.
 */
#ifndef PPSPLIT_CODEGEN_H
#define PPSPLIT_CODEGEN_H

#include "autodiff/autodiff.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *dir;                /* -o */
    bool cpu, cuda;                 /* targets */
    bool link;                      /* --params link */
    const char *command;            /* how ppsplit was called, for out/README (no paths) */
} CodegenOptions;

/* output.c: writes everything of DESIGN.md 3's out/ into opt->dir; whole or not at all (a temporary folder beside it, then rename). */
void codegen_write(Pipe *p, const CodegenOptions *opt);

#ifdef __cplusplus
}
#endif
#endif

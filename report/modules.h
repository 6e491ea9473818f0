/*
 * modules.h - the modules of each stage, as many as a page has room for, and what stages send one
 * another of them.  Private to report/.
 */
#ifndef PPSPLIT_REPORT_MODULES_H
#define PPSPLIT_REPORT_MODULES_H

#include "partition/print/print.h"

/* A module, or a run of numbered siblings; or, by their kinds, nodes of a module that lie in none
 * of the modules inside it. */
typedef struct {
    const char *name;          /* "h.0.attn", "h.1 ... h.3", "h.0: Add"; the model's, untrusted */
    uint32_t stage, nodes;     /* nodes of the training forward */
    int64_t parameters, flops; /* elements that it is the first of its stage to read; forward */
} ModuleBox;
/* All that a box sends into another stage, activations or shared parameters. */
typedef struct {
    uint32_t from, stage; /* the box; the stage that it enters */
    bool shared;
    uint32_t values;
    int64_t bytes;    /* per microbatch at full rows; of parameters, once a step */
    const char *name; /* of the only value */
} ModuleFlow;
typedef struct {
    VEC(ModuleBox) box; /* stage by stage */
    VEC(ModuleFlow) flow;
} ModuleGraph;

ModuleGraph module_graph(const Pipe *p, Arena *a); /* modules.c */

#endif

/*
 * program.h - a Pipe's program as the runtime sees it: the tables of codegen/tables.h, never
 * printed.
 */
#ifndef PPSPLIT_PLANNER_PROGRAM_H
#define PPSPLIT_PLANNER_PROGRAM_H

#include "base/base.h"
#include "runtime/api/pp.h"

struct StageLaunches; /* codegen/tables.h */
typedef struct {
    PpPlan plan;
    const struct StageLaunches **launches; /* by stage; of a device only, else NULL */
} Program;

struct Pipe;
/* One stage of it. */
const PpStage *program_stage(struct Pipe *p, uint32_t stage, bool device, Arena *a);
/* device: as CUDA computes it */
Program *program_of(struct Pipe *p, bool device, Arena *a);
/* The same for microbatches of so many rows: what has rows is that much larger, workspaces too. */
Program *program_resized(const Program *p, int64_t rows, Arena *a);

#endif

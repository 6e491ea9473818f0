/*
 * tables.h - the tables that describe a program to the runtime (runtime/api/pp.h), filled in
 * memory.  write/ prints them as pipeline.c; planner/ plans with them before anything is printed.
 *
 * Functions, and the `data' of constants in the source, are NULL here: they exist only in the
 * printed program.  Texts and lists are in the given arena.
 */
#ifndef PPSPLIT_TABLES_H
#define PPSPLIT_TABLES_H

#include "codegen/cg.h"
#include "partition/auto/card.h"
#include "runtime/api/pp.h"

/* ---- plan/table.c ---------------------------------------------------------------------------- */

/* As schedules see it; of a loss over the whole minibatch `minibatch' is the stage as it runs. */
const PpStage *cg_stage_table(const StageGen *sg, Arena *a);
/* The number of an input in the plan, where loss_scale has none. */
int cg_input_number(const Pipe *p, ValueId v);
/* name: NULL: the value's */
const char *cg_mesh_name(int mesh);                     /* "PP_TENSOR", ... */
/* l: where lengths vary; NULL: they do not */
PpTensor cg_tensor(const Graph *g, ValueId v, const char *name, const Lengths *l, Arena *a);
/* The constants in their order, as numbers in StageGen.constants: those in params/, then, for a
   device, which reads all in its memory, those that stand in the source. */
Ids cg_table_constants(const StageGen *sg, Arena *a);
/* May the user's own function make the stage's weight gradients? */
bool cg_own_weight(const StageGen *sg);

/* ---- plan/kept.c ----------------------------------------------------------------------------- */

/* PpStage.kept, and how many there are */
const PpKept *cg_kept(const StageGen *sg, Arena *a, int *n);

/* A value's name in messages: the model's name, or the node that it belongs to */
const char *cg_called(const StageGen *sg, ValueId value, Arena *a);

/* ---- plan/collective.c ----------------------------------------------------------------------- */

/* by PP_ALL_REDUCE and so on: the operation, and its name in calls */
typedef struct { Op op; const char *call; } CollectiveKind;
extern const CollectiveKind cg_collective_kind[];
/* PpStage.collective; once the functions have their steps */
const PpCollective *cg_collectives(const StageGen *sg, Arena *a, int *n);
const PpPartial *cg_partials(const StageGen *sg, Arena *a, int *n);
const PpConvShape *cg_convolutions(const StageGen *sg, Arena *a); /* that open() prepares */

/* ---- plan/steps_table.c ---------------------------------------------------------------------- */

/* PpStage.steps */
const PpSteps *cg_steps_table(const StageGen *sg, Arena *a);
/* 'F'; in a backward 'W' if it goes into gradients of parameters, in whatever function, 'I' if it
   goes elsewhere, 'B' if both */
int cg_step_part(const Func *f, const Step *s);
const char *cg_step_nodes(const Func *f, const Step *s, Arena *a); /* their names, a line each */
/* adds the model's nodes behind a group, by Graph.origin, but those that are there */
void cg_origins(const Func *f, uint32_t group, Ids *to);

/* ---- plan/launches.c ------------------------------------------------------------------------- */

/* What a step launches on a device, a kernel or a call of a library: kind, as a profile has it. */
typedef struct {
    Work work;
    const char *kind;
    int part;
    const char *nodes;
} Launch;
typedef struct Launches {
    uint32_t n;
    Launch *at;
} Launches;

/* By FuncKind; then at the end of a step: the norm of gradients, the update without states and the
   zeros; and what each state of an optimizer adds. */
enum { LAUNCHES_UPDATE = F_COUNT, LAUNCHES_STATE, LAUNCHES };
typedef struct StageLaunches {
    Launches of[LAUNCHES];
    bool once; /* its functions run once a step, over all microbatches */
} StageLaunches;

const StageLaunches *cg_launches(const StageGen *sg, Arena *a);
const char *cg_launches_name(int list, Arena *a); /* "backward", "update" */

/* ---- write/constants.c ----------------------------------------------------------------------- */

/* How many bytes the stage's constants take of which a program has one for each length, beside
   those of bytes.constants; as far as two lengths tell: the greatest, and that of a sample. */
int64_t lengths_tables(const Lengths *l, const StageGen *most, const StageGen *sample);
/* Has the sample's graph a constant that such a one may be made of? */
bool lengths_tabulates(const Graph *most, const Graph *sample);

/* ---- plan/program.c -------------------------------------------------------------------------- */

/* Of the Pipe: all but its stages, the device, and what is known when it is written (hash, made,
   written). */
PpPlan cg_program_table(const Pipe *p, const Lengths *l, Arena *a);

#endif

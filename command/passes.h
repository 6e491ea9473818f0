/*
 * passes.h - the passes of the compiler, and the compiler as planner/ and lengths that vary ask for
 * it: a Graph of other rows or members, a Pipe of other cuts or lengths.
 */
#ifndef PPSPLIT_PASSES_H
#define PPSPLIT_PASSES_H

#include "command/command.h"

/* What the passes hand on: the Graph, then the Pipe, which owns it. */
typedef struct {
    Options *o;
    Graph *graph;
    Loss loss;
    Pipe *pipe;
} State;

/* ---- passes.c: in their order ---- */

void pass_import(State *s);
void pass_rows(State *s);
void pass_loss(State *s);
void pass_autocast(State *s);
void pass_attention(State *s);
void pass_mesh(State *s);
void pass_partition(State *s);
void pass_reverse(State *s);
void pass_whole(State *s);
void pass_stash(State *s);
void pass_divide(State *s);
void pass_again(State *s);
void pass_costs(State *s);
void pass_output(State *s);
void pass_summary(State *s);

/* Of pass_partition: the model as --stages costs it. */
void find_joint(State *s);
/* Of pass_import: the model alone. */
void read_model(State *s);
/* Of pass_mesh: --tensor, --sequence, --expert, or the file's sharding specs: the graph becomes
 * that of one member; false: there are none.  Where members do not fit in --memory, what they keep
 * for backward is made dearer. */
bool divide_mesh(State *s, MeshPlans *plans);

/* ---- made_with.c ---- */

/* What of the options changes numbers: checkpoints hold it. */
void note_options(Options *o);

/* ---- reader.c ---- */

void pass_sizes(State *s);
void pass_lengths(State *s);
/* The model as plan_search() asks for it; read once for each number of rows and each mesh. */
PlanModel plan_model(Options *o);

#endif

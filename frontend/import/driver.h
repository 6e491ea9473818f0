/*
 * driver.h - the files that import one model: the walk over its nodes, nodes with bodies, where no
 * gradient passes, loops that an exporter has unrolled.
 */
#ifndef PPSPLIT_IMPORT_DRIVER_H
#define PPSPLIT_IMPORT_DRIVER_H

#include "frontend/low/low.h"
#include "frontend/low/state.h"
#include "frontend/ragged/ragged.h"
#include "stop.h"

/* control.c, loop.c: If, Loop, Scan, SequenceMap.  in: the operands that are no sequences; body
 * imports the nodes of one, in order. */
typedef void ImportBody(ImportState *s, const RawNodes *list);
bool control_is(const RawNode *n);
void control_import(ImportState *s, RawNode *n, const ValueId *in, ImportBody *body);

/* trips.c: is a node of a trip of a loop whose nodes have begun?  With its last one the loop is
 * imported */
bool trips_take(ImportState *s, const RawNode *n);

/* reroll.c: n values of one shape, stacked along a new dim 0: computed at once where they were
   computed alike, else NONE. */
ValueId reroll(Graph *g, uint32_t n, const ValueId *y);

/* through.c: an Add whose operands are known, of which one gets no gradient: straight-through
 * estimators; what is to be said of them */
void through_mark(ImportState *s, const RawNode *n, ValueId *in);
void through_report(const ImportState *s);
/* through.c: its result carries a gradient, and PyTorch's may have none */
void through_block(ImportState *s, const RawNode *n, ValueId out);

/* does a gradient reach a parameter from it? */
bool import_carries(ImportState *s, ValueId v);

/* ties.c, padding.c */
void ties_report(const ImportState *s);
void padding_report(const ImportState *s);

/* live.c: fills RawNode.dead of a list that yields n names */
void import_mark_live(Model *m, RawNodes *list, uint32_t n, const char *const *root);

/* A dimension that has no size in the file is times * name: "batch", "8*batch", or "x.2", dimension
   2 of input x, where the file has no name for it.  name NULL: it has a size. */
typedef struct { const char *name; int64_t times; } DimName;
typedef struct { VEC(const char *) name; StrMap seen; } Symbols;
/* What --bind may name: dimensions, and inputs of one element; input: its dimensions, by input of
 * the graph. */
typedef struct { Symbols dimension, value; VEC(DimName *) input; } Binds;

/* inputs.c.  fed: what the inputs read instead of data, by position; NONE: the target of a loss
 * model, made here and put there. */
void import_bind_inputs(ImportState *s, Ids *fed, Binds *all);
/* rows.c: Graph.rows_at, and the first of them */
void import_find_rows(ImportState *s, const Binds *all);

#endif

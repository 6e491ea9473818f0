/*
 * driver.h - the files that import one model: the walk over its nodes, nodes with bodies, where no
 * gradient passes, loops that an exporter has unrolled.
 */
#ifndef PPSPLIT_IMPORT_DRIVER_H
#define PPSPLIT_IMPORT_DRIVER_H

#include "frontend/low/low.h"
#include "frontend/low/state.h"
#include "frontend/ragged/ragged.h"

/* ---- stop.c: where no gradient passes -------------------------------------------------------- */

typedef struct Stops {
    const ImportOptions *opt;
    /* per pattern of --stop-gradient: it matches something */
    bool *used;
} Stops;

Stops *stop_begin(Arena *a, const ImportOptions *opt);
/* a pattern matches, and is used from then on */
bool stop_named(const Stops *t, const char *name);
bool stop_marker(const RawNode *n); /* ppsplit::StopGradient */
bool stop_is_detach(const RawNode *n); /* what is left of detach() */
/* of a block under no_grad() or autocast, by dynamo's metadata */
bool stop_is_block(const RawNode *n);
/* Fills RawNode.stop_out of the nodes of one list; after param_assign. */
void stop_assign(Stops *t, const Model *m, const RawNodes *list);
/* a pattern that matches nothing is a mistake */
void stop_check(const Stops *t, const Graph *g);
/* no gradient passes result i */
static inline void stop_result(Arena *a, RawNode *n, uint32_t i)
{
    if (!n->stop_out)
        n->stop_out = arena_array(a, bool, n->nout);
    n->stop_out[i] = true;
}

/* ---- bodies, loops ---- */

/* control.c, loop.c: If, Loop, Scan, SequenceMap.  in: the operands that are no sequences */
bool control_is(const RawNode *n);
void control_import(ImportState *s, RawNode *n, const ValueId *in);

/* trips.c: is a node of a trip of a loop whose nodes have begun?  With its last one the loop is
 * imported */
bool trips_take(ImportState *s, const RawNode *n);

/* reroll.c: n values of one shape, stacked along a new dim 0: computed at once where they were
   computed alike, else NONE. */
ValueId reroll(Graph *g, uint32_t n, const ValueId *y);

/* untold.c: an Add whose operands are known, of which one gets no gradient: straight-through
 * estimators */
void untold_sum(ImportState *s, const RawNode *n, ValueId *in);
/* its result carries a gradient, and PyTorch's may have none */
void untold_block(ImportState *s, const RawNode *n, ValueId out);
void untold_report(const ImportState *s);
/* does a gradient reach a parameter from it? */
bool import_carries(ImportState *s, ValueId v);

/* detach.c: refuses a node of which an operand was detached, no one knows which; warns of lines of
 * source that detach */
void detach_check(ImportState *s, const RawNode *n, const ValueId *in);
void detach_report(const ImportState *s);

/* body.c: fills RawNode.dead of a list that yields n names */
void import_mark_live(Model *m, RawNodes *list, uint32_t n, const char *const *root);

/* A dimension that has no size in the file is times * name: "batch", "8*batch", or "x.2", dimension
   2 of input x, where the file has no name for it.  name NULL: it has a size. */
typedef struct { const char *name; int64_t times; } DimName;
typedef struct { VEC(const char *) name; StrMap seen; } Symbols;
/* What --bind may name: dimensions, and inputs of one element; input: its dimensions, by input of
 * the graph; used: options that name something. */
typedef struct Binds { Symbols dimension, value; VEC(DimName *) input; StrMap used; } Binds;

/* bind.c: what --bind says: sizes of the dimensions that a file names, values of inputs of one
 * element. */

/* The text after the last '=' of "NAME=text", where NAME is this name. */
bool bind_option(const char *option, const char *name, const char **text);

/* What the file calls a dimension of an input: see DimName. */
DimName bind_name(const ImportState *s, const Onnx__TensorShapeProto__Dimension *d,
                  const char *input, int i);
int64_t bind_size(const ImportState *s, DimName d);     /* -1: unbound */
/* Adds the names by which the size may be given: its own and, of a formula, its symbols'; unbound:
 * those that are to be given, of a formula not its own. */
void bind_add_names(const ImportState *s, Symbols *to, DimName d, bool unbound);
int64_t bind_count(const ImportState *s, const char *name); /* of a sequence; -1: unbound */

void bind_add(Symbols *s, Arena *a, const char *name); /* once */
/* The value that --bind gives an input, as a constant; NONE: none.  declared: its type in the file;
 * a dimension of the same name is meant before it. */
ValueId bind_value(ImportState *s, const char *name, Dtype declared, const Shape *shape, Where w);
void bind_refuse_unbound(const ImportState *s, const Symbols *unbound);

/* A --bind that no model asks for is a mistake. */
void bind_check(const ImportState *s);

/* inputs.c.  fed: what the inputs read instead of data, by position; NONE: the target of a loss
 * model, made here and put there. */
void import_bind_inputs(ImportState *s, Ids *fed);
/* rows.c: Graph.rows.at, and the first of them */
void import_find_rows(ImportState *s);

#endif

/*
 * state.h - what is known while one model is imported; shared by the driver, import.c, and the
 * files it stands on.  The importers of operations (frontend/ops/) see import.h only.
 */
#ifndef PPSPLIT_IMPORT_STATE_H
#define PPSPLIT_IMPORT_STATE_H

#include "import.h"
#include "frontend/params/params.h"
#include "stop.h"

/* What a name of the model stands for. */
typedef struct {
    ValueId v;
    bool is_sequence;
    Ids sequence;
    /* of its elements those that the data decide: a bool each, NONE: it is there; empty: all are */
    Ids there;
    Dtype declared; /* its type in the file, where the graph holds it in another; else DT_NONE */
} Slot;

/* drops.c: Dropouts of the model. */
typedef struct {
    bool any;       /* some have a training mode that is set, or PyTorch's metadata says so */
    StrMap dropout; /* the fx nodes that a Dropout of the file is of */
    uint32_t n_lost, n_left; /* without a mode: those that drop, those that do not */
    const char *first_lost, *first_left;
} Drops;

typedef struct ImportState {
    Graph *g;
    Model *m;
    Params *params; /* NULL: every initializer is a constant (a loss model) */
    Stops *stops;
    const ImportOptions *opt;
    int stage; /* position of the file when there are several, or -1 */
    StrMap env;                                         /* name -> index into slot */
    VEC(Slot) slot;
    VEC(ValueId) half;           /* by parameter: its copy of a half type, or the parameter */
    struct RaggedValues *ragged; /* ragged/values.c; NULL: there are none */
    void (*body)(struct ImportState *s, const RawNodes *list); /* import.c: its nodes, in order */
    void (*node)(struct ImportState *s, RawNode *n);           /* import.c: one of them */
    const RawNodes *list;                                      /* that is being imported */
    Ids alive; /* bools that are true wherever what is imported now counts: the loops around */
    VEC(bool) carries; /* by value, through.c: a gradient of it reaches a parameter */
    const char *through, *untold; /* through.c: the first nodes it is said of, or NULL */
    uint32_t n_block;    /* through.c: nodes of blocks that may be under no_grad() */
    const char *first_block;
    Drops drops;
    uint32_t n_ties;     /* ties.c: nodes of which nothing tells who has the gradient */
    const char *first_tie;
    struct Trips *trips; /* trips.c: loops whose nodes have begun; NULL: none */
} ImportState;

/* env.c */
void import_define(ImportState *s, const char *name, Slot slot);
void import_name_value(ImportState *s, ValueId v,
                       const char *name); /* with a number when an earlier model has the name */
const Slot *import_lookup(ImportState *s, const char *name,
                          Where w); /* fatal when nothing makes it */
const Slot *import_slot(ImportState *s, const RawNode *n, uint32_t input);     /* NULL: absent */

/* control.c, loop.c: If, Loop, Scan, SequenceMap.  in: the operands that are no sequences; body
 * imports the nodes of one, in order. */
typedef void ImportBody(ImportState *s, const RawNodes *list);
bool control_is(const RawNode *n);
void control_import(ImportState *s, RawNode *n, const ValueId *in, ImportBody *body);

/* ragged.c: fn(im), where sizes may depend on the data */
void ragged_import(ImportState *s, Import *im, void (*fn)(Import *));
/* y, made of v by what the graph adds to an operand or a result, is of v's size.  kept: zeros stay
 * zeros */
ValueId ragged_passed(ImportState *s, ValueId v, ValueId y, bool kept);
/* the same, no gradient passes; v itself where none would anyway */
ValueId import_stopped(ImportState *s, ValueId v);
/* An output: v packed, and how many of its places are there; NONE: its size is known */
ValueId ragged_output(ImportState *s, ValueId *v, Where w);
/* A number computed of such a size as it is in this run; v itself where it is none */
ValueId ragged_actual(ImportState *s, ValueId v);
/* condition ? x : y, of which at least one is of such a size; false: neither is, or they differ */
bool ragged_choose(ImportState *s, ValueId condition, ValueId x, ValueId y, ValueId *out);

/* trips.c: a Split of the places that NonZero found, along their axis; is a node of a trip of such
   a loop?  With its last one the loop is imported */
void trips_split(ImportState *s, Import *im, int axis, ValueId hit);
bool trips_take(ImportState *s, const RawNode *n);

/* alike.c: do the same nodes make x and y?  known: pairs that are; other_parameters: some of theirs
   differ, which is no difference */
typedef struct { IdMap known; bool other_parameters; } Alike;
bool import_alike(const Graph *g, Alike *a, ValueId x, ValueId y);

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

/* ties.c */
void ties_report(const ImportState *s);

/* drops.c: Dropouts of a list that is about to be imported; what is to be said of them */
void drops_find(ImportState *s, const RawNodes *list);
void drops_report(const ImportState *s);

/* live.c: fills RawNode.dead of a list that yields n names */
void import_mark_live(Model *m, RawNodes *list, uint32_t n, const char *const *root);

/* A dimension that has no size in the file is times * name: "batch", "8*batch", or "x.2", dimension
   2 of input x, where the file has no name for it.  name NULL: it has a size. */
typedef struct { const char *name; int64_t times; } DimName;
typedef struct { VEC(const char *) name; StrMap seen; } Symbols;
/* What --bind may name: dimensions, and inputs of one element; by input of the graph, its dimensions. */
typedef struct { Symbols dimension, value; VEC(DimName *) input; } Binds;

/* inputs.c.  fed: what the inputs read instead of data, by position; NONE: the target of a loss model,
 * made here and put there. */
void import_bind_inputs(ImportState *s, Ids *fed, Binds *all);
/* rows.c: Graph.rows_at, and the first of them */
void import_find_rows(ImportState *s, const Binds *all);

#endif

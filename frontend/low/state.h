/*
 * state.h - what is known while one model is imported: for the driver (import/), for ragged/, and
 * for those files of low/ that answer an importer's questions.  The importers of operations (ops/)
 * see import.h only.
 */
#ifndef PPSPLIT_IMPORT_STATE_H
#define PPSPLIT_IMPORT_STATE_H

#include "import.h"
#include "frontend/params/params.h"

/* What a name of the model stands for. */
typedef struct {
    ValueId v;
    bool is_sequence;
    Ids sequence;
    /* of its elements those that the data decide: a bool each, NONE: it is there; empty: all are */
    Ids there;
    Dtype declared; /* its type in the file, where the graph holds it in another; else DT_NONE */
} Slot;

/* What a file does not say of training, in the order in which it is reported; import/untold.c has
 * the words. */
typedef enum {
    UNTOLD_BLOCK,    /* which of its blocks are under no_grad() */
    UNTOLD_STRAIGHT, /* sums that are taken for straight-through estimators */
    UNTOLD_SUM,      /* sums that may be some */
    UNTOLD_DROPS,    /* Dropouts without a mode that drop */
    UNTOLD_STAYS,    /* those that do not */
    UNTOLD_TIES,     /* who of equal elements has the gradient */
    UNTOLD_PADDING,  /* embeddings whose padding row the numbers tell */
    UNTOLD_ROWS,     /* those whose numbers are absent */
    UNTOLDS
} Untold;

/* drops.c: Dropouts of the model. */
typedef struct {
    bool any;       /* some have a training mode that is set, or PyTorch's metadata says so */
    StrMap dropout; /* the fx nodes that a Dropout of the file is of */
} Drops;

typedef struct ImportState {
    Graph *g;
    Model *m;
    Params *params; /* NULL: every initializer is a constant (a loss model) */
    struct Stops *stops;                                /* import/stop.c */
    const ImportOptions *opt;
    struct Binds *binds; /* import/bind.c */
    int stage; /* position of the file when there are several, or -1 */
    StrMap env;                                         /* name -> index into slot */
    VEC(Slot) slot;
    VEC(ValueId) half;           /* by parameter: its copy of a half type, or the parameter */
    struct RaggedValues *ragged; /* ragged/values.c; NULL: there are none */
    void (*body)(struct ImportState *s, const RawNodes *list); /* import.c: its nodes, in order */
    void (*node)(struct ImportState *s, RawNode *n);           /* import.c: one of them */
    const RawNodes *list;                                      /* that is being imported */
    Ids alive; /* bools that are true wherever what is imported now counts: the loops around */
    VEC(bool) carries; /* by value, untold.c: a gradient of it reaches a parameter */
    Drops drops;
    Strings untold[UNTOLDS]; /* names of nodes and parameters */
    struct Trips *trips; /* trips.c: loops whose nodes have begun; NULL: none */
} ImportState;

/* env.c */
void import_note(ImportState *s, Untold what, const RawNode *n);
void import_note_name(ImportState *s, Untold what, const char *name); /* once */
void import_define(ImportState *s, const char *name, Slot slot);
void import_name_value(ImportState *s, ValueId v,
                       const char *name); /* with a number when an earlier model has the name */
const Slot *import_lookup(ImportState *s, const char *name,
                          Where w); /* fatal when nothing makes it */
const Slot *import_slot(ImportState *s, const RawNode *n, uint32_t input);     /* NULL: absent */

/* alike.c: do the same nodes make x and y?  known: pairs that are; other_parameters: some of theirs
   differ, which is no difference */
typedef struct { IdMap known; bool other_parameters; } Alike;
bool import_alike(const Graph *g, Alike *a, ValueId x, ValueId y);

/* drops.c: Dropouts of a list that is about to be imported */
void drops_find(ImportState *s, const RawNodes *list);

/* import/trips.c: a Split of the places that NonZero found, along their axis, which may begin a
 * trip of a loop.  ragged/ asks the driver. */
void trips_split(ImportState *s, Import *im, int axis, ValueId hit);

#endif

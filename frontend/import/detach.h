/*
 * detach.h - what detach.c and detach_text.c share.  Private to them.
 */
#ifndef PPSPLIT_IMPORT_DETACH_H
#define PPSPLIT_IMPORT_DETACH_H

#include "stop.h"

typedef VEC(const char *) Names;

/* The ONNX nodes of one fx node. */
typedef struct { FxNode fx; RawNodes node; } Group;

typedef struct {
    Arena *a;
    const Model *m;
    const Params *params;
    const Stops *stops;
    VEC(Group) group;
    StrMap index, maker;                                /* fx node, value -> its group */
    /* values computed from something read detached */
    StrMap tainted;
    /* names that are gone: their values were merged with others */
    VEC(const char *) merged;
    VEC(const char *) into;                             /* with these */
    Ids reader;                                         /* the groups whose arguments name them */
    StrMap explained;                                   /* lines that detach what is known */
    VEC(bool) doubted;                                  /* by merged: where it is read says so */
} Detach;

/* ---- detach_text.c ---- */
bool detach_is(const FxNode *fx);
/* One that the exporter's optimizer removed: the argument's name, which no node, initializer or
 * input has. */
bool detach_is_lost(const Detach *d, const char *arg);
/* That, or one whose result was folded. */
bool detach_is_gone(const Detach *d, const char *arg);

void detach_explain(Detach *d, const RawNodes *list);   /* once operands are known as detached */
bool detach_is_unseen(Detach *d, const Group *g);
void detach_warn_untold(Detach *d, const RawNodes *list);

#endif

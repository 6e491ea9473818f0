/*
 * stop.h - where no gradient passes: --stop-gradient, markers, what exporters leave of `detach`.
 */
#ifndef PPSPLIT_IMPORT_STOP_H
#define PPSPLIT_IMPORT_STOP_H

#include "frontend/params/params.h"

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

/* ---- detach.c: what the dynamo exporter leaves of detach() ----------------------------------- */

/* The same for nodes of which some detach, in a model that is to train; named: values that the user
 * names. */
void stop_detached(const StrMap *named, const Model *m, const RawNodes *list);

#endif

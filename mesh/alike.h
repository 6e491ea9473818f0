/*
 * alike.h - which values of a graph are computed alike.  In: a graph and a number C.  Out: sums and
 * Concats of E results, of which every C become one (stack.c).  Private to mesh/.
 */
#ifndef PPSPLIT_ALIKE_H
#define PPSPLIT_ALIKE_H

#include "renew.h"

/* C values, one of each chunk: one value; parameters; slices of one value, each as far behind the
 * one before as C parts of it are; such as are put side by side as they are; results of nodes that
 * differ in their operands alone. */
typedef enum { SAME, PARAMS, CUTS, JOINED, NODES } Kind;
typedef struct {
    Kind kind;
    const ValueId *v;
    bool own, product;  /* made of parameters of its own; in a product */
    const uint32_t *in; /* NODES: of the operands */
    int along;          /* CUTS: the dimension */
    ValueId made;       /* stack.c: what they became; NONE: nothing yet */
} Alike;

/* A node that adds up, or joins, E results that are alike. */
typedef struct {
    NodeId root;
    bool joins;
    Ids leaf, other;   /* those that are alike, by chunk; the rest */
    Ids slot;          /* of their Alikes, E / C */
    bool reached, off; /* its result is read; it stays as it is */
} Family;

typedef struct {
    uint32_t chunks;
    VEC(Alike) alike;
    VEC(Family) family;
    uint32_t *of_root; /* by node, its family; NONE */
    bool *needed;      /* by value: it is read as it was */
    uint32_t *stacked; /* by parameter: the Alike whose it is; NONE */
} Families;

static inline bool is_made(const Graph *g, ValueId v) { return val(g, v)->kind == V_NODE; }
static inline const Node *maker(const Graph *g, ValueId v) { return &g->node.at[val(g, v)->node]; }

/* alike.c; NULL: there are none */
Families *alike_find(const Graph *g, Arena *a, int chunks, const Ids *results);

#endif

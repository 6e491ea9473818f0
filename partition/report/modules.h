/*
 * modules.h - what modules.c and flows.c share while the model's boxes are made: nodes as items of
 * boxes.  Private to the two.
 */
#ifndef PPSPLIT_REPORT_MODULES_H
#define PPSPLIT_REPORT_MODULES_H

#include "report.h"

typedef struct {
    NodeId node;
    uint32_t stage, scope, key, level, box;
    int64_t flops;
} Item;

/* What becomes a box, or several: a module, a run of numbered siblings, nodes that lie in no child,
 * the loss. */
typedef enum { KEY_MODULE, KEY_RUN, KEY_OWN, KEY_LOSS } KeyKind;
typedef struct {
    KeyKind kind;
    const char *path, *open; /* open: what is to be opened for more boxes; NULL: nothing */
} Key;

typedef struct {
    const Pipe *p;
    Arena *a, *once; /* once: given up at the next division */
    VEC(Item) item;
    Ids *reader; /* per item: items of its stage that read it */
    IdMap maker; /* (stage, value) -> item */
    Names scope;
    StrMap scope_of, children, opened; /* patterns; opened: 1: it is, 0: tried in vain */
    StrMap key_of;
    IdMap key_memo;
    VEC(Key) key;
    uint32_t boxes, layers;
} Modules;

static inline uint64_t pair(uint32_t x, uint32_t y) { return (uint64_t)x << 32 | y; }

static inline const Graph *graph_of(const Pipe *p, uint32_t stage)
{
    return p->stage.at[stage].elsewhere && p->whole ? p->whole->graph : p->graph;
}

static inline const Node *node_of(const Modules *m, const Item *it)
{
    return &graph_of(m->p, it->stage)->node.at[it->node];
}

/* flows.c: what goes from one of the boxes in `out` to another; inputs and outputs get boxes. */
void module_flows(const Modules *m, Arena *a, ModuleGraph *out);

#endif

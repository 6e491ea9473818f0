/*
 * modules.h - the model as boxes that a page has room for, each in one stage, and what goes from
 * one box to another.  Private to report/.
 */
#ifndef PPSPLIT_REPORT_MODULES_H
#define PPSPLIT_REPORT_MODULES_H

#include "partition/print/print.h"

/* ---- modules.c ---- */

/* BOX_OPERATIONS: nodes of a module that lie in none of the modules inside it, named by their
 * kinds */
typedef enum { BOX_MODULE, BOX_OPERATIONS, BOX_INPUT, BOX_OUTPUT } BoxKind;
typedef struct {
    BoxKind kind;
    const char *name;          /* "h.0.attn", "h.1 ... h.3", "Add"; the model's, untrusted */
    uint32_t stage, nodes;     /* nodes of the training forward */
    int64_t parameters, flops; /* elements that it is the first of its stage to read; forward */
} ModuleBox;
/* From box to box.  A value that several boxes of another stage read counts at the first of them,
 * so that values and bytes are those that cross. */
typedef struct {
    uint32_t from, to;
    EdgeKind kind;
    uint32_t values;
    int64_t bytes;    /* per microbatch at full rows; of parameters, once a step */
    const char *name; /* of the one value; NULL: none, or several */
} ModuleFlow;
typedef struct {
    VEC(ModuleBox) box;
    VEC(ModuleFlow) flow; /* never in a circle */
} ModuleGraph;
ModuleGraph module_graph(const Pipe *p, Arena *a);

/* ---- what modules.c and flows.c share while boxes are made: nodes as items of boxes ---- */

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

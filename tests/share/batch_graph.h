/*
 * batch_graph.h - small graphs of B rows, and which dimension of a value holds them.
 */
#ifndef BATCH_GRAPH_H
#define BATCH_GRAPH_H

#include "partition/partition.h"
#include "tap.h"

enum { B = 4 };

static Arena *arena[256];
static int arenas;

static inline Graph *fresh(void)
{
    Graph *g = graph_new(arena[arenas++] = arena_new(), "test.onnx");
    g->batch = B;
    return g;
}

static inline ValueId input(Graph *g, const char *name, Shape s)
{
    return graph_input(g, name, DT_F32, &s);
}

static inline ValueId index_input(Graph *g, const char *name, Shape s)
{
    return graph_input(g, name, DT_I64, &s);
}

static inline ValueId param(Graph *g, const char *name, Shape s)
{
    return graph_param(
        g,
        (Param){.name = name, .initializer = name, .dtype = DT_F32, .shape = s, .trainable = true});
}

static inline int batch(const Graph *g, ValueId v) { return val(g, v)->batch; }

static Reasons uneven, mixes;
static BatchNotes notes;

static inline void analyse(Graph *g)
{
    BatchOptions opt = {0};
    notes = (BatchNotes){.target = NONE, .loss = NONE};
    batch_analyse(g, 0, &opt, &notes);
    uneven = notes.uneven;
    mixes = notes.mixes;
}

#endif

/* split_int.h - what the files share that make stages of split points: split.c, split_stages.c,
   split_search.c, split_auto.c, split_point.c, split_find.c; each calls those after it. */
#ifndef PPSPLIT_SPLIT_INT_H
#define PPSPLIT_SPLIT_INT_H

#include "points.h"

typedef struct {
    NodeId at;
    const char *text;
    bool of_pattern; /* goes where it would leave the first or the last stage empty */
    bool of_model;   /* a marker or an annotation says so */
} Cut;
typedef struct {
    NodeId first, last;
} Span;
typedef VEC(Span) Spans;

typedef struct {
    Graph *g;
    Arena *a;
    bool *data; /* by value id: depends on a data input */
    bool *live; /* by node id: something reads what it makes, in the end */
    /* by node id: a cut before it would divide an attention, which is one operation */
    bool *inside;
    bool of_pattern; /* the point that is being resolved */
    VEC(Cut) cut;
    bool of_run; /* the points are those of the program of --costs */
} Split;

static inline bool split_on_data(const Split *s, NodeId n)
{
    return s->data[s->g->node.at[n].out[0]];
}

/* ---- split.c ---- */
/* The cuts that options and model say */
Split split_open(Graph *g, ValueId loss, const PartitionOptions *opt);

/* ---- split_stages.c ---- */
/* The cuts of markers and annotations */
void split_cut_model(Split *s);
/* A stage for every node, by the cuts so far; refuses those that leave a stage empty */
uint32_t *split_stages(Split *s, Arena *a);

/* ---- split_find.c: modules by their paths ---- */
const char *split_scope(const Graph *g, NodeId n); /* of a node; "": none */
/* Is it in this module, or is it this one? */
bool split_under(const char *scope, const char *module);
/* So much of the scope as the path matches, from its beginning; 0: it does not */
size_t split_match(const char *scope, const char *path);
Ids split_nodes_under(const Split *s, const char *module);
Spans split_calls(const Split *s, const Ids *nodes); /* one for each time that they are called */
/* The spans of the module that the path names; false: none is called so */
bool split_find(Split *s, const char *path, const char *text, Spans *spans);

/* ---- split_point.c: --split ---- */
/* A stage begins at this node; text: who says so, as a diagnostic names it */
void split_cut(Split *s, NodeId at, const char *text);
void split_cut_points(Split *s, const char *text); /* all points of an option */
/* The first node on data behind that node of the file, or the end */
NodeId split_after(const Split *s, uint32_t origin);

/* ---- split_auto.c: --stages ---- */
/* Where a cut may be, where one is anyway, and what a measured run's stages were. */
AutoPlaces split_places(Split *s, const PartitionOptions *opt);
/* What says that a stage begins at node n, however it was said; NULL: no name does. */
const char *split_point_at(const Split *s, const char *const *name, NodeId n);
/* Adds the cuts that --stages asks for to those there are. */
AutoCut *split_automatically(Split *s, const PartitionOptions *opt, ValueId loss, Arena *a);
/* The options that say the same for a model that says the rest itself; none where a name lacks. */
void split_name_cuts(const Split *s, Pipe *p);

#endif

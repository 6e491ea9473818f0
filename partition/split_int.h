/* split_int.h - shared by the files that turn split points into stages: split.c, split_stages.c,
   split_search.c, split_auto.c, split_point.c, split_find.c; each calls only files after it. */
#ifndef PPSPLIT_SPLIT_INT_H
#define PPSPLIT_SPLIT_INT_H

#include "partition.h"

typedef struct {
    NodeId at;
    const char *text;
    bool of_pattern; /* left out where the first or the last stage would be empty */
    bool of_model;   /* a marker or an annotation in the model gave it */
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
    bool of_run; /* the points are those of the program whose trace --costs reads */
} Split;

static inline bool split_on_data(const Split *s, NodeId n)
{
    return s->data[s->g->node.at[n].out[0]];
}

/* ---- split.c ---- */
/* The cuts that the options and the model give */
Split split_open(Graph *g, ValueId loss, const PartitionOptions *opt);

/* ---- split_stages.c ---- */
/* The cuts of markers and annotations */
void split_cut_model(Split *s);
/* By node, its stage, from the cuts so far; refuses cuts that leave a stage empty */
uint32_t *split_stages(Split *s, Arena *a);

/* ---- split_find.c: modules by their paths ---- */
/* Is the scope this module, or a module inside it? */
bool split_under(const char *scope, const char *module);
/* How many bytes at the beginning of the scope the path matches, whose components may have *, ? and
 * [...]; 0: none */
size_t split_match(Arena *a, const char *scope, const char *path);
Strings split_modules(const Split *s, const char *path); /* all that the path matches */
Ids split_nodes_under(const Split *s, const char *module);
Spans split_calls(const Split *s, const Ids *nodes); /* a span for each call of the module */
/* The spans of the module that the path names; false: there is no such module */
bool split_find(Split *s, const char *path, const char *text, Spans *spans);

/* ---- split_point.c: --split ---- */
/* Lets a stage begin at this node; text: the split point, as diagnostics name it */
void split_cut(Split *s, NodeId at, const char *text);
void split_cut_points(Split *s, const char *text); /* all points of an option */
/* The first node that depends on data after that node of the file, or the end */
NodeId split_after(const Split *s, uint32_t origin);

/* ---- split_auto.c: --stages ---- */
/* Where a cut may be, where a cut is given already, and the stages of a measured run. */
AutoPlaces split_places(Split *s, const PartitionOptions *opt);
/* A split point that lets a stage begin at node n; NULL: no name can say it. */
const char *split_point_at(const Split *s, const char *const *name, NodeId n);
/* Adds the cuts that --stages asks for to the given ones. */
AutoCut *split_automatically(Split *s, const PartitionOptions *opt, ValueId loss, Arena *a);
/* Fills in p->split: the options that give the same cut, beside what the model itself gives; empty
 * where a name is missing. */
void split_name_cuts(const Split *s, Pipe *p);

#endif

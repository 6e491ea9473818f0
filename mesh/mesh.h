/*
 * mesh.h - axes of the mesh: a model's graph becomes that of one member of a rank.
 *
 * Along an axis every value lies in one of three ways (ir/facts/spread.h): R, all members have the
 * same; S(d), a dimension divided among them; P, what they have adds up to it.  search.c chooses
 * for each node one of the ways of ops.def's column SPREAD, the whole graph together, so that few
 * bytes travel and products are divided; member.c then writes the graph anew, and where a value is
 * read otherwise than it is made, a collective.
 *
 * Members divide layers (MESH_TENSOR), whose parameters each has a part of; the sequences that
 * layers work on, with whole parameters (MESH_SEQUENCE); or these and experts, of which each has
 * some (MESH_EXPERT).  One axis is divided after the other: the graph of one member is a graph,
 * which has collectives of the axes before.  Along an axis it is divided in C chunks, whatever the
 * number of members T, as if there were C members; at the end pieces.c gives each of T members C /
 * T of them. So the numbers of a run do not depend on T.
 */
#ifndef PPSPLIT_MESH_H
#define PPSPLIT_MESH_H

#include "ir/facts/batch.h"
#include "ir/facts/facts.h"
#include "ir/facts/spread.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MESH_MOST = 1024 }; /* members */

extern const char *const mesh_option[MESH_AXES]; /* asked.c: "--tensor", ... */

/* Where the model's file wants a parameter to lie, or, param NONE, a value as it is made. */
typedef struct {
    uint32_t param;
    ValueId value;
    Place at;
} MeshAsked;

typedef struct {
    int members[MESH_AXES]; /* T: --tensor, --sequence, --expert; all 0: as the model's file has it
                               (annotate_read()) */
    int chunks[MESH_AXES];  /* C: --chunks, T times a power of two; 1: nothing is divided */
    VEC(const char *)
    shard; /* --shard, "PATTERN=DIM" or "PATTERN=replicate", the last that fits wins */
    VEC(MeshAsked) asked;
    /* what a byte that is kept for backward costs, in bytes sent; 0: only where they are the same
       is less kept */
    double keep;
    bool parts; /* --keep-parts: as if memory were short */
} MeshOptions;

static inline bool mesh_has(const MeshOptions *opt, MeshAxis x) { return opt->chunks[x] > 1; }

/* How the graph lies along an axis.  By node the way, NULL: all its operands and results are R; by
 * parameter, and by value, where it lies as it is made. */
typedef struct {
    MeshAxis axis;
    int members, chunks;
    const SpreadWay *const *way;
    const Place *param, *made;
    bool gathers_again; /* Graph.gathers_again */
} MeshPlan;

/* mesh.c: the graph becomes that of one member along all axes.  The values that `keep` points to,
 * the loss first, then loss_scale and target (NONE where there is none), are given what they are in
 * it, and are R.  What is returned is the plan of the first axis, of the graph as it was. */
MeshPlan mesh_divide(Graph *g, const MeshOptions *opt, const BatchOptions *batch, uint32_t n,
                     ValueId *const *keep);

/* search.c: the plan of fewest bytes and least work along an axis.  loss: NONE where nothing
 * trains; outer: by value, as BatchNotes has it. */
MeshPlan mesh_search(const Graph *g, Arena *a, const MeshOptions *opt, MeshAxis axis, ValueId loss,
                     const int64_t *outer);
const bool *mesh_active(const Graph *g, Arena *a, ValueId loss); /* values with a gradient */
/* May a value be made of its parameters again by who reads it?  Then the gradients of its uses are
 * the parameters', which are added up once a step. */
bool mesh_made_again(const Graph *g, const bool *of_params, ValueId v);
/* asked.c: where --shard, or else the model's file, says that a parameter lies; false: neither
 * does. */
bool mesh_asked(const Graph *g, const MeshOptions *opt, uint32_t param, Place *at);
/* Fatal where a --shard is about no parameter. */
void mesh_check(const Graph *g, const MeshOptions *opt);
/* Says how many values lie otherwise than the file says. */
void mesh_compare(const Graph *g, const MeshOptions *opt, const MeshPlan *plan);

/* member.c: the graph of a plan becomes that of one of as many members as there are chunks; n,
 * keep: as of mesh_divide(). */
void mesh_member(Graph *g, const MeshPlan *plan, uint32_t n, ValueId *const *keep);
/* pieces.c: ... of one of as many members as the options say. */
void mesh_pieces(Graph *g, const MeshOptions *opt, uint32_t n, ValueId *const *keep);

#ifdef __cplusplus
}
#endif
#endif

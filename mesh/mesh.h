/*
 * mesh.h - axes of the mesh: a model's graph becomes that of one member of a rank.
 *
 * Along an axis every value is in one of three states (ir/facts/spread.h): R, all members have the
 * same; S(d), dimension d is divided among them; P, their values add up to it.  search.c chooses
 * for each node one of the ways of ops.def's column SPREAD, for the whole graph at once, so that
 * few bytes are sent and products are divided.  member.c then rewrites the graph, with a collective
 * where a value is read in another state than it is made.
 *
 * Members divide layers, and each has a part of the parameters (MESH_TENSOR); or sequences, and
 * each has all parameters (MESH_SEQUENCE); or sequences and experts (MESH_EXPERT).  The axes are
 * divided one after the other: the graph of one member is again a graph, with the collectives of
 * earlier axes.  Along an axis the graph is divided into C chunks as if there were C members; at
 * the end pieces.c gives each of the T members C / T chunks.  So the numbers of a run do not depend
 * on T.
 */
#ifndef PPSPLIT_MESH_H
#define PPSPLIT_MESH_H

#include "ir/facts/batch.h"
#include "ir/facts/facts.h"
#include "ir/facts/spread.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MESH_MOST = 1024 };   /* members */
enum { MESH_DEAREST = 16 }; /* what `keep' is at most */

extern const char *const mesh_option[MESH_AXES]; /* asked.c: "--tensor", ... */

/* How the model's file wants a value to be divided along the tensor axis: a parameter always; what
 * else node number `node' of the file reads or makes (param NONE) wherever that can be. */
typedef struct {
    uint32_t param, node;
    ValueId v;
    Place at;
} MeshAsked;

struct MeshLengths;
typedef struct {
    int members[MESH_AXES]; /* T: --tensor, --sequence, --expert; all 0: as the model's file has it
                               (annotate_read()) */
    int chunks[MESH_AXES];  /* C: --chunks, T times a power of two; 1: nothing is divided */
    Strings shard; /* --shard, "PATTERN=DIM" or "PATTERN=replicate", the last that fits wins */
    VEC(MeshAsked) asked; /* in the order of `node' */
    /* the cost of a byte kept for backward, in bytes sent; 0: it only decides between equal ways */
    double keep;
    bool parts; /* --keep-parts: as if memory were short */
    struct MeshLengths *lengths; /* NULL: the model has one length */
} MeshOptions;

static inline bool mesh_has(const MeshOptions *opt, MeshAxis x) { return opt->chunks[x] > 1; }

/* How the graph `of` is divided along an axis.  way: by node, NULL: all its operands and results
 * are R; param, made: by parameter and by value, its place when it is made. */
typedef struct {
    MeshAxis axis;
    int members, chunks;
    const Graph *of;
    const SpreadWay *const *way;
    /* by node: has it as many elements as its first operand, or more? */
    const bool *grows;
    const Place *param, *made;
    bool gathers_again; /* Graph.gathers_again */
    double price;
    /* mesh_member(): in its graph, the values as they are made; by node, its operands as it reads
       them (NULL: it is not there), and the first node of those that it has become, which end at
       the next one's */
    ValueId *became;
    const ValueId **read;
    NodeId *first;
} MeshPlan;
typedef VEC(MeshPlan) MeshPlans;

/*
 * Where lengths vary, the graph with a few of them; all are divided as at[0] is, whose sizes
 * decide, where that can be done in all of them, and so with any length.  At least one length
 * differs by 1: what divides a size in all of them divides it always.
 */
enum { MESH_LENGTHS = 4, MESH_KEPT = 3 };
typedef struct MeshLengths {
    int n;
    Graph *at[MESH_LENGTHS];
    ValueId kept[MESH_LENGTHS][MESH_KEPT]; /* as `keep' of mesh_divide() */
    /* divided along one more axis with these options, by this plan: what was asked for so far */
    struct MeshLengths *then, *next;
    MeshOptions with;
    MeshPlan plan;
} MeshLengths;

/* mesh.c: turns the graph into that of one member along all axes.  `keep` points to values (the
 * loss first, then loss_scale and target, or NONE) that stay R and are updated to the new graph.
 * Returns the plans, one for each axis, each of the graph that the one before it has made. */
MeshPlans mesh_divide(Graph *g, const MeshOptions *opt, const BatchOptions *batch, uint32_t n,
                      ValueId *const *keep);

/* search.c: the plan with the fewest bytes and the least work along an axis.  notes: of g, whose
 * .loss is NONE if nothing trains; front: what is divided in dimension 0 and not otherwise, as of
 * mesh_stack(). */
MeshPlan mesh_search(const Graph *g, Arena *a, const MeshOptions *opt, MeshAxis axis,
                     const BatchNotes *notes, const bool *front);
/* Whether each reader may compute a value from its parameters again.  Then the gradients of its
 * uses are those of the parameters, which are added up once a step. */
bool mesh_made_again(const Graph *g, const bool *of_params, ValueId v);
/* asked.c: how --shard, or else the model's file, divides a parameter; false: neither says so. */
bool mesh_asked(const Graph *g, const MeshOptions *opt, uint32_t param, Place *at);
/* Fatal if a --shard matches no parameter. */
void mesh_check(const Graph *g, const MeshOptions *opt);

/* lengths.c: is it the same computation, value by value, with other sizes? */
bool mesh_alike(const Graph *g, const Graph *from);
/* By node the one that it is in the other graph, which may have more; NULL: it has others.  Then as
 * the other one is divided. */
const NodeId *mesh_like(const Graph *g, const Graph *from, Arena *a);
MeshPlan mesh_again(const MeshPlan *decided, const NodeId *like, const Graph *g, Arena *a,
                    const BatchNotes *notes);

/* stack.c: experts with parameters of their own become one of `chunks` with a dimension for them.
 * By value, whether it has that dimension in front; NULL if there are none.  n, keep: as in
 * mesh_divide(); before: the plan that made the graph, or NULL. */
const bool *mesh_stack(Graph *g, int chunks, uint32_t n, ValueId *const *keep, MeshPlan *before);
/* member.c: turns the graph of a plan into that of one of C members, one per chunk, and notes in
 * the plan what became of it; n, keep: as in mesh_divide(). */
void mesh_member(Graph *g, MeshPlan *plan, uint32_t n, ValueId *const *keep);
/* pieces.c: ... into that of one of T members, as the options say. */
void mesh_pieces(Graph *g, const MeshOptions *opt, uint32_t n, ValueId *const *keep);

#ifdef __cplusplus
}
#endif
#endif

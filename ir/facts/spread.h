/*
 * spread.h - where a node's results lie along an axis, of the mesh or of a microbatch's rows, given
 * where its operands lie, and the node computed chunk by chunk: the column SPREAD of ops.def.
 *
 * Along an axis of C chunks a value is
 *   R        the same for all of them;
 *   P        partial: what the chunks hold adds up to it (g_tree_sum, by number).  f32 or f64: of a
 *            half the partials are f32, and who adds them up casts the sum to the half;
 *   S(d, g)  divided: dimension d is g groups of the same size, one behind the other, and each
 * group is C equal parts: chunk c has part c of every group, joined.  S(d, 1) is one box of the
 *            whole, S(d, g) is g boxes.  Mirrored, of an even number of groups: of every second
 *            one chunk c has part C - 1 - c.
 * S(d, 1) need not be even: then a chunk has the C-th part rounded up, the last one what is left
 * and, behind the dimension's end, zeros (spread_uneven.c): all chunks have one shape.
 *
 * Groups are what packed projections need: a weight [in, 3 h] of which Split makes q, k and v is
 * S(1, 3), its products S(2, 3), and each of the three S(2, 1); Reshape of S(1, 1) of [B, S, h] to
 * [B * S, h] is S(0, B).  Mirrored are the places of a sequence of which each attends to those
 * before it: then all chunks have as much to do.
 */
#ifndef PPSPLIT_SPREAD_H
#define PPSPLIT_SPREAD_H

#include "facts.h"

enum { PLACE_R = -1, PLACE_P = -2 };
typedef struct {
    int dim;        /* S: the dimension, from 0 */
    int64_t groups; /* S: of equal size; 1 for R and P */
    bool mirrored;
} Place;
typedef VEC(Place) Places;

static inline Place place_s(int dim, int64_t groups) { return (Place){dim, groups, false}; }
static inline Place place_r(void) { return (Place){PLACE_R, 1, false}; }
static inline Place place_p(void) { return (Place){PLACE_P, 1, false}; }

static inline bool place_is(Place a, Place b)
{
    return a.dim == b.dim && a.groups == b.groups && a.mirrored == b.mirrored;
}
/* Mirrored, a dimension becomes pairs of groups, a pair, chunks and their parts. */
enum { MIRROR_DIMS = 3 };
/* May a value of this shape lie there?  Every group has parts of at least one element. */
bool place_fits(const Shape *s, Place at, int64_t chunks);
/* Or with zeros behind the end of the last chunk's part, few beside what there is? */
bool place_fits_uneven(const Shape *s, Place at, int64_t chunks);
/* the shape of a chunk */
Shape place_shape(const Shape *s, Place at, int64_t chunks);

/* Where the elements of a place in `from` are in `to`, both in row-major order; false: nowhere. */
bool place_reshaped(const Shape *from, const Shape *to, Place at, int64_t chunks, Place *is);

/* One way to compute a node chunk by chunk: where its operands have to be, and where its results
   are then.  At least one of its operands or results is not R. */
typedef struct {
    const Place *in, *out;
    /* elements that a member sends for sums and maxima inside the node, in the forward and for its
       gradient, over (T - 1) / T: 2 n for a sum of n, the elements of the result for a gather */
    double moved, moved_back;
    /* how many times as much as their mean the chunk computes that has most to do; 0: once */
    double most;
    /* of chunks that are alone: what a chunk makes is its own, not its part of the whole's */
    bool meets;
    /* why it holds of chunks of one size only: the node's attributes count them; NULL: of any */
    const char *sized;
    /* why rows are lost where an operand is divided that has to be whole, or divided elsewhere, and
       where one that has to be divided cannot be; NULL: as is said of all operations */
    const char *crossed, *lacks;
} SpreadWay;
typedef struct {
    SpreadWay *at;
    uint32_t n, cap;
    /* where there is none: why rows are lost, NULL: they end here; the operand that brings them
       together, or NONE; does each meet the others? */
    const char *why;
    uint32_t by;
    bool crosses;
} SpreadWays;

typedef struct {
    const Graph *g;
    int64_t chunks;
    /* By value: the dimension that holds rows, which is divided inside its groups alone (a multiple
       of .groups groups: what stands outside the rows times the rows), or, where .groups is 0, not
       at all; dim PLACE_R: it holds none.  NULL: no value does. */
    const Place *barred;
    /* by value: the places S of several groups that spread_places() found; NULL: none */
    const Places *known;
    bool uneven;  /* places may be uneven */
    bool mirrors; /* spread_places() finds those, too, of which each attends to those before it */
    /* Each chunk is computed by itself, as a row is: nobody adds up what they hold, numbers of
       places count from the chunk's first, and what one makes may be its own (SpreadWay.meets). */
    bool alone;
} SpreadOf;

/* All ways of a node, in which every place of an operand or a result is of one group, or known.
   What a rule does not know is no way: then the operands have to be R. */
void spread_ways(const SpreadOf *of, NodeId n, Arena *a, SpreadWays *out);
/* Those in which a slot, an operand or (from nin on) a result, is there. */
void spread_ways_at(const SpreadOf *of, NodeId n, uint32_t slot, Place at, Arena *a,
                    SpreadWays *out);
/* By value: the places S of several groups that the graph's Split, Slice, Concat and Reshape nodes
   ask for, carried on as far as the rules carry them. */
Places *spread_places(const SpreadOf *of, Arena *a);

/* The node as one chunk of it is computed, by one of as many members as there are chunks (g->mesh,
   along g->cur_mesh).  in[i] has the chunk's shape (place_shape); of an operand that is R it is the
   value for the use of the chunk, the result of one Vary for all users of the value, so that its
   gradient is added up once. */
typedef struct {
    const Graph *whole;
    NodeId node;
    const SpreadWay *way;
    int chunks;
    Graph *g; /* where the nodes go: one member's */
    const ValueId *in;
    ValueId *out;   /* to fill */
    ValueId number; /* i64[1], of the chunk */
} Spread;
void spread_node(const Spread *s);

#endif

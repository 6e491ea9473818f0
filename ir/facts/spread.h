/*
 * spread.h - how a node's results are divided along an axis (of the mesh, or a microbatch's rows),
 * given how its operands are divided, and the node computed chunk by chunk: column SPREAD of
 * ops.def.
 *
 * Along an axis of C chunks a value is
 *   R        the same in all chunks;
 *   P        partial: the chunks' values add up to it (g_tree_sum, in their order).  Partials are
 * f32            or f64: for a half they are f32, and the reader casts the sum to the half;
 *   S(d, g)  divided: dimension d consists of g equal groups, and each group of C equal parts.
 *            Chunk c has part c of every group, joined.  S(d, 1) is one box of the whole, S(d, g)
 *            is g boxes.  Mirrored (g is even): in every second group chunk c has part C - 1 - c.
 * S(d, 1) need not be even: then a chunk has 1/C of the dimension, rounded up, and the last one has
 * the rest followed by zeros (spread_uneven.c), so that all chunks have one shape.
 *
 * Groups are what packed projections need: a weight [in, 3 h] of which Split makes q, k and v is
 * S(1, 3), its products S(2, 3), and each of the three S(2, 1); Reshape of S(1, 1) of [B, S, h] to
 * [B * S, h] is S(0, B).  Mirrored is for the positions of a causal sequence, where each attends to
 * those before it: then all chunks have the same amount of work.
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
/* Are the parts of one division those of the other after one message to each member? */
static inline bool place_exchanges(Place from, Place to)
{
    return !from.mirrored && !to.mirrored && from.dim != to.dim;
}
/* Mirrored, a dimension becomes pairs of groups, a pair, chunks and their parts. */
enum { MIRROR_DIMS = 3 };
/* May a value of this shape be divided so?  Every part needs at least one element. */
bool place_fits(const Shape *s, Place at, int64_t chunks);
/* Or with zeros at the end of the last chunk's part, few compared with the rest? */
bool place_fits_uneven(const Shape *s, Place at, int64_t chunks);
/* the shape of a chunk */
Shape place_shape(const Shape *s, Place at, int64_t chunks);

/* How a value divided so in shape `from` is divided in shape `to`, both row-major; false: it is
   not. */
bool place_reshaped(const Shape *from, const Shape *to, Place at, int64_t chunks, Place *is);

/* One way to compute a node chunk by chunk: how its operands must be divided, and how its results
   are then.  At least one operand or result is not R. */
typedef struct {
    const Place *in, *out;
    /* elements that a member sends for sums and maxima inside the node, in the forward and for its
       gradient, over (T - 1) / T: 2 n for a sum of n, the elements of the result for a gather */
    double moved, moved_back;
    /* the work of the busiest chunk relative to the mean; 0: all are equal */
    double most;
    /* for independent chunks: a chunk's result is its own, not its part of the whole's */
    bool meets;
    /* why it needs chunks of one size (the node's attributes depend on it); NULL: it does not */
    const char *sized;
    /* why rows are lost if an operand is divided that must be whole or divided elsewhere, and if
       one that must be divided cannot be; NULL: the reason common to all operations */
    const char *crossed, *lacks;
} SpreadWay;
static inline Place way_slot(const SpreadWay *w, const Node *n, uint32_t slot)
{
    return slot < n->nin ? w->in[slot] : w->out[slot - n->nin];
}
typedef struct {
    SpreadWay *at;
    uint32_t n, cap;
    /* if there is no way: why rows are lost (NULL: they end here); the operand that brings them
       together, or NONE; whether each row meets the others */
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
    const bool *rows; /* ... or divided nevertheless, in parts of all rows; NULL: of no value */
    /* by value: the places S of several groups that spread_places() found; NULL: none */
    const Places *known;
    bool uneven;  /* places may be uneven */
    /* the graph with other lengths, all of which are to be divided alike; n_others 0: none */
    Graph *const *others;
    int n_others;
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

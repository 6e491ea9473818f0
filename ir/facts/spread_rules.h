/*
 * spread_rules.h - what the files spread*.c share.  Private to them.
 */
#ifndef PPSPLIT_SPREAD_RULES_H
#define PPSPLIT_SPREAD_RULES_H

#include "spread.h"

/* The ways of one node.  A rule gets a slot (an operand, or nin and more: a result) and its place,
   S or P, and keeps the ways in which that slot is there. */
typedef struct {
    const SpreadOf *of;
    const Node *n;
    Arena *arena;
    SpreadWays *out;
    Place *at; /* by slot: the way that is being made; all R when the rule begins, and once kept */
    SpreadWay way; /* the rest of it; nothing when the rule begins, and once kept */
    bool mirrored; /* the place asked about: a rule says of which groups the others are */
} Ways;

/* spread_share.c */
ValueId ways_value(const Ways *w, uint32_t slot);
const Shape *ways_shape(const Ways *w, uint32_t slot);
static inline uint32_t ways_slots(const Ways *w) { return w->n->nin + w->n->nout; }
/* Is it an S that divides the slot's shape and no rows, or a P of numbers that are added up? */
bool ways_may_be(const Ways *w, uint32_t slot, Place at);
/* What was written to w->at becomes a way, if every value may be where it says; twice is once. */
void ways_keep(Ways *w);
void ways_all(Ways *w, Place at); /* keeps the way in which all slots are there */
bool ways_is_even(const Ways *w, uint32_t slot, Place at);
/* Are the elements of dimension `dim` numbered as those of a part of it already? */
bool ways_is_numbered(const Ways *w, int dim);
/* There is none, because of operand `by`, or NONE. */
void ways_refuse(Ways *w, const char *why, uint32_t by);
/* There is none of several chunks: it chooses among them.  What it takes of a single one is in the
   same dimension. */
void ways_choose(Ways *w, uint32_t slot, Place at, const char *why, uint32_t by);
/* Reasons that several rules have */
extern const char ways_inner[], ways_named[];
/* Of one chunk every place holds all; which one a reader takes for the rows' is for the rules. */
static inline bool ways_single(const Ways *w) { return w->of->chunks == 1; }

/* Every SPREAD(ways, build) of ops.def is a function ways_f, and a function build_f that makes the
   nodes of such a way. */
#define SPREAD(ways, build) void ways_##ways(Ways *w, uint32_t slot, Place at);
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, ...) spread
#include "ir/ops.def"
#undef SPREAD
#define SPREAD(ways, build) void build_##build(const Spread *s);
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, ...) spread
#include "ir/ops.def"
#undef SPREAD

/* batch_index.c: how an index is divided if chunks name (comp >= 0: by that entry of its last
   dimension) places of their own, of which each has `each`; R: they do not */
Place index_own(const Graph *g, int64_t chunks, ValueId index, int comp, int64_t each);
/* Does it count such places in all of an operand, as MaxPool does? */
bool index_points_home(const Graph *g, ValueId index);

/* spread_share.c */
static inline const Node *spread_of(const Spread *s) { return &s->whole->node.at[s->node]; }
/* the chunk's shape of result o, and the whole's of operand i */
Shape spread_result(const Spread *s, uint32_t o);
const Shape *spread_whole(const Spread *s, uint32_t i);
/* spread_uneven.c: x, along a dimension that has `n` elements in the whole: but `fill`
   behind its end.  A chunk's results have zeros there, if those that it is given have. */
ValueId spread_filled(const Spread *s, ValueId x, int dim, int64_t n, double fill);
/* The node by `build`, with zeros there. */
void spread_zeros(const Spread *s, void build(const Spread *));
bool spread_is_uneven(const Spread *s, ValueId whole, Place at);
/* What the node's own part of the whole becomes where it is divided so. */
const Chunks *spread_parts(const Spread *s, Place at);
/* the node, with these attributes */
void spread_same(const Spread *s, Attr attr);

#endif

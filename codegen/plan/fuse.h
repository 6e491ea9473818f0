/*
 * fuse.h - what lay.c, join.c, order.c, merge.c and fuse.c share: how one space is laid onto
 * another, and groups that grow. Each file knows those before it in this list.
 */
#ifndef PPSPLIT_FUSE_H
#define PPSPLIT_FUSE_H

#include "plan.h"

enum { MOST_MEMBERS = 48, MOST_KNOWN = 64 };            /* of a group */

/* A common piece of the group's dimension k (-1: a new one) and the node's dimension e (-1: the
 * node stands still). */
typedef struct { int k, e; Lin ext, kmult, emult; } RDim;
typedef struct { int n; RDim d[NEST_DIMS]; bool extends; } Match;

/* A node that comes before another one, and the next such pair of that other one. */
typedef struct { NodeId node; uint32_t next; } Earlier;

/* While groups grow. */
typedef struct Fuse {
    Arena *a;                       /* given up when the groups stand */
    Group spare[2];                 /* lists for groups that are tried */
    /* order.c: groups, each behind what it needs; those that others pass */
    Ids row, passed;
    uint32_t search;                /* the number of this search */
    IdMap earlier, tied;            /* by node: its first pair in earlier_of; those of both sides */
    VEC(Earlier) earlier_of;
} Fuse;

/* lay.c */
bool lay_in_axes(const Attr *at, int d);
/* The result's strides over the node's space: a reduction's stands still along what is reduced. */
void lay_result(Func *f, const Node *n, int rank, const Lin *ext, Ref *r, Lin *stride);
bool lay_match(const Group *k, const Known *known, int rank, const Lin *ext, const Lin *stride,
               Match *m);
/* Strides given over the node's dims, or over the group's old dims, as strides over the pieces. */
bool lay_over(const Match *m, const Lin *e_stride, const Lin *k_stride, Lin *out);

int64_t lay_points(const Func *f, const Lin *ext, int from, int to);    /* at full rows */
/* another element at every point */
bool lay_full(const Lin *stride, const Lin *ext, int n);

/* join.c */
bool join_makes(const Group *k, ValueId root);
Group join_new(Func *f, NodeId id);                     /* of this node alone */
/* Joins by an operand that the group makes, or, among siblings, reads as well. */
bool join_node(Func *f, Group *k, NodeId id, bool siblings);
/* Joins by the anchor `known` against strides over the node's space; front: before the members that
   read it.  On success *k is replaced; its lists are then lent until the next trial, and
   join_keep() makes it the group's state. */
bool join_by(Func *f, Group *k, NodeId id, const Known *known, const Lin *stride, bool front);
void join_keep(Func *f, uint32_t g, const Group *k);

/* order.c */
void order_begin(Func *f);
void order_open(Func *f, uint32_t g);                   /* behind all others */
/* The groups a node needs; the group `self` is left out, and what `inside` makes.  False when an
 * order edge starts in self. */
bool order_needs(Func *f, NodeId id, uint32_t self, const Group *inside, Ids *out);
bool order_acyclic(Func *f, uint32_t g, const Ids *need);       /* does none of these need g? */
void order_add(Func *f, uint32_t k, const Ids *on);     /* k needs these, which do not need it */
void order_list(Func *f, uint32_t k, Ids *out);         /* what k needs */
bool order_is_tied(const Func *f, NodeId id);           /* is it in f->after? */
bool order_may_merge(Func *f, uint32_t x, uint32_t y);
void order_merge(Func *f, uint32_t into, uint32_t from);
void order_sort(Func *f);                               /* fills f->order */

/* merge.c */
void fuse_merge(Func *f);                               /* fills f->order and f->needed */

#endif

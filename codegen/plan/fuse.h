/*
 * fuse.h - what lay.c, fuse.c and merge.c share: how one space is laid onto another, and groups that grow.
 */
#ifndef PPSPLIT_FUSE_H
#define PPSPLIT_FUSE_H

#include "codegen/cg.h"

enum { MOST_MEMBERS = 48, MOST_KNOWN = 64 };            /* of a group */

/* A common piece of the group's dimension k (-1: a new one) and the node's dimension e (-1: the node stands still). */
typedef struct { int k, e; Lin ext, kmult, emult; } RDim;
typedef struct { int n; RDim d[NEST_DIMS]; bool extends; } Match;

/* lay.c */
bool lay_in_axes(const Attr *at, int d);
/* The result's strides over the node's space: a reduction's stands still along what is reduced. */
void lay_result(Func *f, const Node *n, int rank, const Lin *ext, Ref *r, Lin *stride);
int64_t lay_size(Lin x);                                /* for comparing strides */
bool lay_match(const Group *k, const Known *known, int rank, const Lin *ext, const Lin *stride, Match *m);
/* Strides given over the node's dims, or over the group's old dims, as strides over the pieces. */
bool lay_over(const Match *m, const Lin *e_stride, const Lin *k_stride, Lin *out);

/* fuse.c */
bool fuse_makes(const Group *k, ValueId root);
bool fuse_reaches(Func *f, uint32_t from, uint32_t to); /* marks groups with f->search, which the caller raises */
void fuse_add_dep(Func *f, uint32_t k, uint32_t on);
bool fuse_needs(Func *f, NodeId id, uint32_t self, const Group *inside, Ids *out);
bool fuse_acyclic(Func *f, uint32_t g, const Ids *need);
int64_t fuse_total(const Func *f, const Lin *ext, int from, int to);
bool fuse_full(const Lin *stride, const Lin *ext, int n);
bool fuse_join(Func *f, Group *k, NodeId id, bool siblings);
bool fuse_join_by(Func *f, Group *k, NodeId id, const Known *known, const Lin *stride, bool front);

/* merge.c */
void fuse_merge(Func *f);                               /* fills f->order and f->needed */

#endif

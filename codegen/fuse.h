/* fuse.h - how one space is laid onto another (fuse.c). */
#ifndef PPSPLIT_FUSE_H
#define PPSPLIT_FUSE_H

#include "cg.h"

/* A common piece of the group's dimension k (-1: a new one) and the node's dimension e (-1: the node stands still). */
typedef struct { int k, e; Lin ext, kmult, emult; } RDim;
typedef struct { int n; RDim d[NEST_DIMS]; bool extends; } Match;

#endif

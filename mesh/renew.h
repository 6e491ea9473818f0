/*
 * renew.h - what member.c and pieces.c share.  Private to mesh/.
 */
#ifndef PPSPLIT_RENEW_H
#define PPSPLIT_RENEW_H

#include "mesh.h"

/* What the graph is for: its results, and the values that `keep` points to. */
Ids mesh_results(const Graph *g, uint32_t n, ValueId *const *keep);
/* Takes nodes, values and parameters out of the graph; what is returned has them. */
Graph mesh_renew(Graph *g);
/* An input or a constant of `from` in g; NONE: v is neither. */
ValueId mesh_leaf(Graph *g, const Graph *from, ValueId v);
/* What else of the graph speaks of values and parameters, and `keep`.  is: by value of `from`, what
 * it is in g; param: by parameter, the first that has a part of it. */
void mesh_renewed(Graph *g, const Graph *from, const ValueId *is, const uint32_t *param, uint32_t n,
                  ValueId *const *keep);

#endif

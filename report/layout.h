/*
 * layout.h - where boxes of a layered drawing stand side by side.
 *
 * In: boxes with their widths, each in a layer, and edges from one layer to the next; what leads
 * over several layers passes a box of no width (`bend`) in each between.  Out: x of each, so that
 * boxes of a layer are `gap` apart, few edges cross and most are straight.
 */
#ifndef PPSPLIT_REPORT_LAYOUT_H
#define PPSPLIT_REPORT_LAYOUT_H

#include "base/base.h"

typedef struct {
    uint32_t layer;
    double width, x; /* x: of its middle; out */
    bool bend;
} LayoutBox;
typedef struct {
    uint32_t from, to;
} LayoutEdge; /* layer of to == layer of from + 1 */
typedef struct {
    VEC(LayoutBox) box;
    VEC(LayoutEdge) edge;
    uint32_t layers;
    double gap;
} Layout;

/* ---- layout.c ---- */
void layout_place(Arena *a, Layout *l);

#endif

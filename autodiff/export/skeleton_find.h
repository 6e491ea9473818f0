/* skeleton_find.h - the contract between skeleton_find.c, which decides, and skeleton.c, which
 * writes. */
#ifndef PPSPLIT_SKELETON_FIND_H
#define PPSPLIT_SKELETON_FIND_H

#include "frontend/params/params.h"
#include "outside.h"

typedef struct {
    Model *m;
    const Graph *g;
    Arena *arena;
    OutsideFile *outside;                                   /* for long constants */
    VEC(Param) param;                                       /* as the files number them */
    /* per parameter: its initializer's name in the skeleton; NULL: of another file */
    const char **name;
    /* per parameter: its type in the skeleton, which is the file's */
    Dtype *type;
    /* per top-level node: the raw node whose operands change, or NULL */
    RawNode **edit;
    uint32_t n_edit;
    /* per initializer: a node reads it as a constant; or made of parameters; others name it */
    bool *kept, *made, *named;
    uint32_t *held; /* per initializer: the parameter, or NONE */
    StrMap home;                                        /* RawTensor.home, as text -> initializer */
    bool any_inside;                                    /* bodies or functions hold parameters */
} Skeleton;

/* Fills all but m, g, arena and outside, which are given. */
void skeleton_find(Skeleton *s);
Dtype skeleton_type(const Skeleton *s, uint32_t p);     /* of parameter p, in the file */
/* Is operand k the parameter itself, as the new file holds it? */
bool skeleton_is_parameter(const Skeleton *s, const RawNode *n, uint32_t k);
/* Does parameter p stand in a body or a local function? */
bool skeleton_is_inside(const Skeleton *s, uint32_t p);

#endif

/* check.h - shared by the files of the checker: check.c, shapes.c, spec.c, loops.c, compose.c. */
#ifndef PPSPLIT_ANNOTATE_CHECK_H
#define PPSPLIT_ANNOTATE_CHECK_H

#include "annotate.h"
#include "frontend/onnx/onnx.h"

/* A size that is not known is -1; name: of a symbolic dimension, or NULL. */
typedef struct {
    int64_t size;
    const char *name;
} Size;
typedef struct {
    int rank;
    Size d[MAX_RANK];
} Sizes; /* rank -1: not known */

/* A dimension is one part or several, the outermost first, each in `shards` equal shards; size 0:
   not said. */
typedef struct {
    int64_t size, shards;
} Part;
typedef VEC(Part) Parts;

/* How a tensor is divided. */
typedef struct {
    Parts axis[MAX_RANK]; /* n 0: not divided */
    int order[MAX_RANK],
        n;              /* the divided axes; of the last the number of the shard counts fastest */
    const Ids **holder; /* by shard its devices, in rising order; NULL: wherever it is needed */
} Layout;

/* What is known of a tensor. */
typedef struct {
    const Layout *layout; /* as it is made; NULL: not known */
    int stage;            /* that makes it, or -1 */
    uint32_t node;
} Made;

typedef struct {
    Arena *a;
    Model *m;
    const Graph *g;
    bool verbose;
    bool quiet; /* a broken spec is none, without a word */
    const Onnx__DeviceConfigurationProto *configuration;
    StrMap shape_of, made_of; /* a tensor's name -> its entry in shape, in made */
    VEC(Sizes) shape;
    VEC(Made) made;
    uint32_t violations, annotated, specs, by_rule, uneven;
    StrMap unchecked; /* "Softmax, no formal rule" -> how many nodes */
    VEC(const char *) unchecked_name;
} Check;

#define VIOLATION(c, w, ...)                                                                       \
    ((c)->violations++, (c)->quiet ? (void)0 : diag_error((w), __VA_ARGS__))

static inline const char *check_text(const char *s) { return s ? s : ""; }
static inline int64_t layout_shards(const Parts *p)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < p->n; i++)
        if (__builtin_mul_overflow(n, p->at[i].shards, &n))
            return INT64_MAX;
    return n;
}
static inline int64_t layout_count(const Layout *l)
{
    int64_t n = 1;
    for (int k = 0; k < l->n; k++)
        n *= layout_shards(&l->axis[l->order[k]]);
    return n;
}

/* ---- shapes.c ---- */
void shapes_read(Check *c);
Sizes shape_of_tensor(const Check *c, const char *name);

/* ---- spec.c: what: the tensor, as diagnostics name it; NULL where the spec is broken, which is
   said, or the tensor's rank is not known ---- */
const Layout *spec_read(Check *c, Where w, const char *what, const Onnx__ShardingSpecProto *s,
                        const Sizes *sizes);

/* ---- loops.c: a node as loops over its axes ---- */

/* Axes of operands that one loop runs over have its number, from 1; a loop that no axis of the
   result has is a reduction. */
typedef struct {
    int of[MAX_RANK];
} AxisLoops;
typedef struct {
    uint32_t operands, n;
    const uint32_t *operand; /* which inputs they are */
    AxisLoops *loop;         /* by operand and axis; 0: the axis is of size 1, or not there */
    int rank, out[MAX_RANK]; /* by axis of the result; 0: it is of size 1 */
} Loops;
/* NULL: they are found; else why not */
const char *loops_find(const Check *c, const Onnx__NodeProto *n, Loops *out);

/* ---- compose.c ---- */
/* The layout of the result; NULL: not known.  in: by operand, NULL: not known.  say: violations are
   said; else they leave the result unknown. */
const Layout *compose(Check *c, Where w, const Onnx__NodeProto *n, const Loops *l,
                      const Layout *const *in, bool say);

#endif

/*
 * low.h - what the importers of ops/map.c, ops/move.c, ... share: checking operands and axes, and
 * small pieces of graph that many lowerings use.
 */
#ifndef PPSPLIT_LOW_H
#define PPSPLIT_LOW_H

#include "import.h"

static inline Shape low_shape(const Graph *g, ValueId v) { return val(g, v)->shape; }
static inline Dtype low_dtype(const Graph *g, ValueId v) { return val(g, v)->dtype; }
static inline int64_t low_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t low_max(int64_t a, int64_t b) { return a > b ? a : b; }

_Noreturn void low_fatal(const Import *im, int input, const char *fmt, ...) PRINTF_LIKE(3, 4);
ValueId low_need(const Import *im, uint32_t i);       /* operand i, which must be present */
ValueId low_need_float(const Import *im, uint32_t i); /* ... and of a float type */
/* ... a half operand as f32: a node's result is rounded once, by low_narrow() at its end, to the
 * type of operand 0 */
ValueId low_need_wide(const Import *im, uint32_t i);
ValueId low_narrow(const Import *im, ValueId y);
Shape low_need_rank(const Import *im, uint32_t i, int lo, int hi);
/* An axis in [-rank, rank) made non-negative; anything else is fatal. */
int low_axis(const Import *im, int64_t axis, int rank);
/* Axes made non-negative, ascending, without doubles. */
int64_t *low_axes(const Import *im, const int64_t *axes, int64_t n, int rank);
/* Of n axes, NULL: those from 0 on, each non-negative, at most `rank', none twice. */
int *low_which(const Import *im, const int64_t *axes, int64_t n, int rank);
/* Attribute `name`, or operand i if that is given instead; false if neither is. */
bool low_ints_either(const Import *im, const char *name, int i, int64_t **at, int64_t *n);
void low_ints_needed(const Import *im, const char *name, int i, int64_t **at, int64_t *n);

/* A string attribute that must be one of the words: the place of its value among them. */
int low_choice(const Import *im, const char *name, const char *dflt, const char *words);
/* A list attribute of n numbers in [least, 2^31); absent or empty: all dflt. */
int64_t *low_numbers(const Import *im, const char *name, int n, int64_t dflt, int64_t least);
/* n dims that operand i says (-1: an attribute): none less than `least'. */
Shape low_dims(const Import *im, int i, const int64_t *at, int64_t n, int64_t least);
/* Operand i, which must have this shape. */
ValueId low_expect(const Import *im, uint32_t i, Shape want);

/* Operand i, if there is one, must broadcast to this shape. */
void low_fits(const Import *im, uint32_t i, Shape s);

/* An index in operand 1 is beyond what operand 0 has along its axis. */
_Noreturn void low_no_place(const Import *im, int64_t index, int64_t size);
/* Refuses `count` times `each` nodes if --limit=nodes forbids so many. */
void low_limit_nodes(const Import *im, int64_t count, int64_t each, const char *what);
/* Refuses too large a table that an importer would make itself. */
void low_limit_table(const Import *im, int64_t count, int64_t each, const char *what);

double low_const_at(const Value *v, int64_t i); /* element i of a constant */
/* Whether all elements are one known number; looks through views of constants. */
bool low_uniform(const Graph *g, ValueId v, double *x);
ValueId low_const(Graph *g, Dtype t, Shape s, void *data);
ValueId low_const_doubles(Graph *g, Dtype t, Shape s, const double *at);

ValueId low_zeros_like(Graph *g, ValueId x);                          /* zeros of x's shape */
/* axes ascending, dims of 1 */
ValueId low_squeeze(Graph *g, ValueId x, int n, const int64_t *axes);
/* Dim `from` becomes dim `to`; the others keep their order. */
ValueId low_move_dim(Graph *g, ValueId x, int from, int to);
/* one new dim, at axis of the result */
ValueId low_unsqueeze(Graph *g, ValueId x, int axis);
ValueId low_at(Graph *g, ValueId x, int axis, int64_t i); /* element i along an axis, which goes */
/* reduced along an axis, which goes */
ValueId low_reduce(Graph *g, Op op, ValueId x, int axis);
/* x's n elements along one axis of `rank', the others of 1 */
ValueId low_line(Graph *g, ValueId x, int axis, int rank);
ValueId low_stopped(Graph *g, ValueId x); /* no gradient passes; NONE stays */
ValueId low_channels(const Import *im, uint32_t i, int64_t c,
                     int rank);             /* operand [c] -> [c, 1, ...] against rank dims */
ValueId low_safe_sqrt(Graph *g, ValueId s); /* Sqrt with gradient 0, not NaN, at s = 0 */
/* ops/root.c: s^p, 0 < p < 1; in training, if s is a sum of squares, with gradient 0 at s = 0 */
ValueId low_root(const Import *im, ValueId s, double p);
ValueId low_not_zero(Graph *g, ValueId x);  /* 1 where x is 0: a divisor */
ValueId low_square(Graph *g, ValueId x);
ValueId low_plus(Graph *g, ValueId x, ValueId y); /* x + y, of which one may be NONE, or both */
ValueId low_scale(Graph *g, ValueId x, double k); /* x * k; x itself when k is 1 */
ValueId low_drop(const Import *im, ValueId x, double ratio); /* ops/norm.c: in training */
/* ops/map.c: activations, no gradient at the bounds of a clamp */
/* lo, hi: NONE: none */
ValueId low_clip(Graph *g, ValueId x, ValueId lo, ValueId hi);
ValueId low_gelu(Graph *g, ValueId x, bool by_tanh);
/* x an activation, and the numbers that its text takes behind x, by the names of attributes and
 * their defaults */
enum { ACTIVATION_NUMBERS = 2 };
typedef struct {
    const char *name;
    struct { const char *name; double dflt; } number[ACTIVATION_NUMBERS];
    const char *text;
    bool of_cells; /* recurrent layers may name it */
} Activation;
const Activation *low_activation(const char *name); /* in any case; NULL: there is no such one */
/* ops/type.c: x as a float of 8 bits or fewer, which f32 holds, by the node's round_mode; stops:
   no gradient where it was clamped */
ValueId low_to_mini(const Import *im, ValueId x, Dtype to, bool saturate, bool stops);
/* a Gather of these attributes, with constant indices as low_take() */
ValueId low_gather(const Import *im, ValueId x, ValueId index, const Attr *t);
/* x[idx] along an axis, idx in range: a slice, a repetition or a Gather, whichever is cheapest. */
ValueId low_take(Graph *g, ValueId x, int axis, int64_t n, const int64_t *idx);

#endif

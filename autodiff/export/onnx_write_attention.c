/*
 * onnx_write_attention.c - attention and its gradients as standard operators: two products with a
 * softmax between them, whose maximum and 1 / sum of each row are what backward makes it of again.
 *
 * Dropout is one of ones, with the node's key as its seed, in both: a runtime that draws the same
 * numbers for the same seed drops the same places.
 */
#include <string.h>

#include "onnx_emit.h"

static const Shape *shape_at(const Emit *e, ValueId v) { return &val(e->w->g, v)->shape; }
static ValueId y_of(const Emit *e)
{
    return e->n->op == OP_FlashAttention ? e->n->out[0] : e->n->in[3];
}

static const char *along_keys(Emit *e, const char *op, const char *x)
{
    return emit_op2(e, op, x, emit_list(e, 1, (const int64_t[]){-1}), NULL);
}

static const char *turned(Emit *e, const char *x, int rank)
{
    int64_t perm[MAX_RANK];
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    perm[rank - 1] = rank - 2;
    perm[rank - 2] = rank - 1;
    return emit_transpose(e, x, rank, perm, NULL);
}

/* Where an operand has one matrix for several of y's in a row, dimension d of y is two: its own,
   and how many.  one: with 1 for the latter; many: as many; axes: those; n of them. */
typedef struct {
    Shape one, many;
    int64_t axis[MAX_RANK];
    int n;
} Several;

static Several several(const Emit *e, const Shape *s)
{
    const Shape *y = shape_at(e, y_of(e));
    Several t = {0};
    for (int d = 0; d < s->rank; d++) {
        const int at = d + y->rank - s->rank;
        t.one.d[t.one.rank++] = t.many.d[t.many.rank++] = s->d[d];
        if (d >= s->rank - 2 || at < 0 || s->d[d] == y->d[at])
            continue;
        t.axis[t.n++] = t.one.rank;
        t.one.d[t.one.rank++] = 1;
        t.many.d[t.many.rank++] = y->d[at] / s->d[d];
    }
    return t;
}

/* The operand with a matrix for each of y's. */
static const char *repeated(Emit *e, uint32_t operand)
{
    Shape all = *shape_at(e, e->n->in[operand]);
    const Shape *y = shape_at(e, y_of(e));
    const Several t = several(e, &all);
    if (t.n == 0)
        return e->in[operand];
    for (int d = 0; d < all.rank - 2; d++)
        all.d[d] = y->d[d + y->rank - all.rank];
    const char *one = emit_reshape(e, e->in[operand], &t.one, NULL);
    const char *many = emit_op2(e, "Expand", one, emit_list(e, t.many.rank, t.many.d), NULL);
    return emit_reshape(e, many, &all, NULL);
}

/* Its gradient, added up over these. */
static void add_up(Emit *e, const char *x, uint32_t result)
{
    const Shape *s = shape_at(e, e->n->out[result]);
    const Several t = several(e, s);
    if (t.n > 0) {
        x = emit_reshape(e, x, &t.many, NULL);
        x = emit_op2(e, "ReduceSum", x, emit_list(e, t.n, t.axis), NULL);
    }
    emit_reshape(e, x, s, e->out[result]);
}

static const char *count_up(Emit *e, int64_t n, bool down)
{
    const char *x = emit_range(e, ow_number(e->w, DT_I64, (double)n));
    return down ? emit_reshape(e, x, &(Shape){.rank = 2, .d = {n, 1}}, NULL) : x;
}

/* Which key the first query meets last; of a member's chunk by its number among all chunks. */
static const char *diagonal(Emit *e)
{
    const AttentionAttr *t = e->n->attr.attention;
    const Chunk *part = t->step ? &e->n->attr.piece->along[t->by] : NULL;
    const int64_t members = e->w->g->mesh[t->by].members;
    const int64_t own = t->diagonal + (t->step ? t->step * part->piece : 0);
    const char *first = ow_number(e->w, DT_I64, (double)own);
    if (!t->step || members == 1)
        return first;
    const char *step = ow_number(e->w, DT_I64, (double)(t->step * part->pieces)),
               *all = count_up(e, members, false),
               *member = emit_collective(e, OP_Shard, all, &(Attr){.mesh = (int)t->by}, NULL);
    return emit_op2(e, "Add", first, emit_op2(e, "Mul", member, step, NULL), NULL);
}

/* True where a place is left out; NULL: all are allowed. */
static const char *masked(Emit *e, const char *given)
{
    const AttentionAttr *t = e->n->attr.attention;
    const Shape *y = shape_at(e, y_of(e)), *k = shape_at(e, e->n->in[1]);
    const char *out = NULL;
    if (t->mask)
        out = t->forbids ? given : emit_op2(e, "Not", given, NULL, NULL);
    if (!t->causal)
        return out;
    const char *last = emit_op2(e, "Add", count_up(e, y->d[y->rank - 2], true), diagonal(e), NULL),
               *j = count_up(e, k->d[k->rank - 1], false),
               *no = emit_op2(e, "Greater", j, last, NULL);
    if (t->window) {
        const char *window = ow_number(e->w, DT_I64, (double)t->window),
                   *before = emit_op2(e, "Sub", last, window, NULL);
        no = emit_op2(e, "Or", no, emit_op2(e, "LessOrEqual", j, before, NULL), NULL);
    }
    return out ? emit_op2(e, "Or", out, no, NULL) : no;
}

/* What was made on the way to the probabilities. */
typedef struct {
    const char *scores, *masked, *scale;
} Scores;

/* others: operands before the bias */
static Scores scores(Emit *e, uint32_t others)
{
    const AttentionAttr *t = e->n->attr.attention;
    Scores s = {.scale = ow_number(e->w, DT_F32, t->scale)};
    const char *x = emit_op2(e, "MatMul", e->in[0], repeated(e, 1), NULL);
    x = emit_op2(e, "Mul", x, s.scale, NULL);
    if (t->bias)
        x = emit_op2(e, "Add", x, e->in[others], NULL);
    s.masked = masked(e, t->mask ? e->in[others + t->bias] : NULL);
    s.scores =
        s.masked ? emit_op3(e, "Where", s.masked, ow_number(e->w, DT_F32, t->fill), x, NULL) : x;
    return s;
}

/* What dropout makes of ones of p's shape; NULL: it drops nothing. */
static const char *kept(Emit *e, const char *p)
{
    const AttentionAttr *t = e->n->attr.attention;
    if (t->ratio <= 0)
        return NULL;
    const char *ones = emit_op2(e, "Expand", ow_number(e->w, DT_F32, 1),
                                emit_op2(e, "Shape", p, NULL, NULL), NULL),
               *out = ow_made(e->w);
    OnnxNode n = ow_begin(
        e->w, "Dropout", 3,
        (const char *[]){ones, ow_number(e->w, DT_F32, t->ratio), ow_number(e->w, DT_BOOL, 1)}, 1,
        &out);
    ow_int(&n, "seed", t->key);
    ow_end(e->w, &n);
    return out;
}

void onnx_flash_attention(Emit *e)
{
    const Scores s = scores(e, 3);
    const char *top = along_keys(e, "ReduceMax", s.scores),
               *power = emit_op2(e, "Exp", emit_op2(e, "Sub", s.scores, top, NULL), NULL, NULL),
               *inverse = emit_op2(e, "Reciprocal", along_keys(e, "ReduceSum", power), NULL, NULL),
               *p = emit_op2(e, "Mul", power, inverse, NULL), *drop = kept(e, p);
    OnnxNode n = ow_begin(e->w, "Concat", 2, (const char *[]){top, inverse}, 1, &e->out[1]);
    ow_int(&n, "axis", -1);
    ow_end(e->w, &n);
    emit_op2(e, "MatMul", drop ? emit_op2(e, "Mul", p, drop, NULL) : p, repeated(e, 2), e->out[0]);
}

/* Number i of a row's maximum and 1 / sum. */
static const char *of_row(Emit *e, int64_t i)
{
    Shape size = *shape_at(e, e->n->in[4]);
    int64_t start[MAX_RANK] = {0};
    start[size.rank - 1] = i;
    size.d[size.rank - 1] = 1;
    return emit_slice(e, e->in[4], size.rank, start, size.d, NULL, NULL);
}

/* dv = dropout(p)' dy; ds = scale p (g - sum(p g)) with g = dropout'(dy v'); dq = ds k; dk = q' ds
 */
void onnx_flash_attention_grad(Emit *e)
{
    const int rank = shape_at(e, y_of(e))->rank;
    const Scores s = scores(e, 6);
    const char *power =
                   emit_op2(e, "Exp", emit_op2(e, "Sub", s.scores, of_row(e, 0), NULL), NULL, NULL),
               *p = emit_op2(e, "Mul", power, of_row(e, 1), NULL), *drop = kept(e, p),
               *dropped = drop ? emit_op2(e, "Mul", p, drop, NULL) : p,
               *v = turned(e, repeated(e, 2), shape_at(e, e->n->in[2])->rank),
               *g = emit_op2(e, "MatMul", e->in[5], v, NULL);
    g = drop ? emit_op2(e, "Mul", g, drop, NULL) : g;
    const char *sum = along_keys(e, "ReduceSum", emit_op2(e, "Mul", p, g, NULL)),
               *ds = emit_op2(e, "Mul", p, emit_op2(e, "Sub", g, sum, NULL), NULL);
    if (s.masked)
        ds = emit_op3(e, "Where", s.masked, ow_number(e->w, DT_F32, 0), ds, NULL);
    ds = emit_op2(e, "Mul", ds, s.scale, NULL);
    const char *k = turned(e, repeated(e, 1), shape_at(e, e->n->in[1])->rank),
               *q = turned(e, e->in[0], shape_at(e, e->n->in[0])->rank);
    add_up(e, emit_op2(e, "MatMul", ds, k, NULL), 0);
    add_up(e, emit_op2(e, "MatMul", q, ds, NULL), 1);
    add_up(e, emit_op2(e, "MatMul", turned(e, dropped, rank), e->in[5], NULL), 2);
}

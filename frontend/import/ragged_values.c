/*
 * ragged_values.c - which values have a size that depends on the data, and how; masks and counts
 * that are made of others, each once.
 *
 * A number that was computed of such a size is a constant, that of the largest size, since shapes
 * are made of it.  Where the size itself is asked for, the same nodes are imported once more for
 * what it is in this run.
 */
#include "ragged.h"

#include <stdarg.h>

#include "low.h"

typedef struct Counted {
    Import im;
    Importer *fn; /* NULL: Shape or Size of im.in[0] */
    uint32_t out;
    ValueId actual; /* NONE: not asked for yet */
} Counted;

typedef struct RaggedValues {
    IdMap of;       /* by ValueId */
    StrMap made;    /* masks and counts, by how they are made */
    IdMap shuffled; /* masks */
    VEC(Ragged) at;
} RaggedValues;

static RaggedValues *values_of(ImportState *s)
{
    if (!s->ragged) {
        s->ragged = arena_new_of(s->g->arena, RaggedValues);
        s->ragged->made.arena = s->g->arena;
    }
    return s->ragged;
}

const Ragged *ragged_find(const ImportState *s, ValueId v)
{
    uint32_t i = s->ragged && v != NONE ? idmap_get(&s->ragged->of, v) : NONE;
    return i == NONE ? NULL : &s->ragged->at.at[i];
}

void ragged_mark(ImportState *s, ValueId v, Ragged r)
{
    RaggedValues *all = values_of(s);
    if (v == NONE)
        return;
    *idmap_at(s->g->arena, &all->of, v) = all->at.n;
    vec_push(s->g->arena, &all->at, r);
}

uint32_t *ragged_made(ImportState *s, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    const char *key = arena_vprintf(s->g->arena, fmt, list);
    va_end(list);
    return strmap_at(&values_of(s)->made, key);
}

/* ---- masks ---- */

ValueId ragged_pack(ImportState *s, Op op, ValueId x, ValueId mask, int dim)
{
    return graph_node(s->g, op, 2, (ValueId[]){x, mask}, (Attr){.axis = dim});
}

ValueId ragged_packed(ImportState *s, ValueId mask)
{
    uint32_t *packed = ragged_made(s, "packed %u", mask);
    if (*packed == NONE)
        *packed = ragged_pack(s, OP_Pack, mask, mask, 0);
    return *packed;
}

ValueId ragged_in_order(ImportState *s, ValueId v)
{
    const Ragged *r = ragged_find(s, v);
    return r && r->dim != COUNT && !r->packed ? ragged_pack(s, OP_Pack, v, r->mask, r->dim) : v;
}

ValueId ragged_only_there(ImportState *s, const Ragged *r, ValueId x, double otherwise)
{
    Graph *g = s->g;
    Shape line = {.rank = low_shape(g, x).rank};
    for (int d = 0; d < line.rank; d++)
        line.d[d] = d == r->dim ? low_shape(g, r->mask).d[0] : 1;
    ValueId is = g_reshape(g, ragged_packed(s, r->mask), &line);
    return g_where(g, is, x, g_like(g, x, otherwise));
}

ValueId ragged_count(ImportState *s, ValueId mask)
{
    uint32_t *count = ragged_made(s, "count %u", mask);
    int64_t along = 0;
    if (*count == NONE)
        *count = g_reduce(s->g, OP_ReduceSum, g_cast(s->g, mask, DT_I64), 1, &along);
    return *count;
}

ValueId ragged_first(ImportState *s, ValueId count, int64_t n)
{
    Graph *g = s->g;
    uint32_t *mask = ragged_made(s, "first %u %lld", count, (long long)n);
    if (*mask == NONE) {
        ValueId number = g_reshape(g, g_cast(g, count, DT_I64), &(Shape){1, {1}});
        *mask = g_binary(g, OP_Less, g_iota(g, DT_I64, 1, 0, n), number);
        *ragged_made(s, "packed %u", *mask) = *mask;
    }
    return *mask;
}

void ragged_shuffle(ImportState *s, ValueId mask)
{
    *idmap_at(s->g->arena, &values_of(s)->shuffled, mask) = 1;
}

bool ragged_shuffled(const ImportState *s, ValueId mask)
{
    return idmap_get(&s->ragged->shuffled, mask) != NONE;
}

/* ---- results ---- */

_Noreturn void ragged_refuse(const Import *im, int input, const char *why)
{
    diag_hint("the size of its operand depends on the data: it may be picked from, computed with "
              "element by element and scattered");
    low_fatal(im, input, "%s%s", im->op_type, why);
}

void ragged_settle(ImportState *s, Import *im, uint32_t out, Ragged r, bool kept)
{
    Graph *g = im->g;
    ValueId v = im->out[out];
    if (v == NONE)
        return;
    if (val(g, v)->kind != V_CONST && !r.packed) {
        v = ragged_pack(s, OP_Pack, v, r.mask, r.dim);
        r.packed = true;
    } else if (r.packed && !kept && dtype_is_float(low_dtype(g, v))) {
        v = ragged_only_there(s, &r, v, 0);
    }
    im->out[out] = v;
    ragged_mark(s, v, r);
}

void ragged_settle_sized(ImportState *s, Import *im, uint32_t out)
{
    Sized z = im->sized[out];
    if (z.mask != NONE)
        ragged_settle(s, im, out, (Ragged){z.mask, z.dim, z.packed, ANY, false, NULL}, true);
}

ValueId ragged_of_trips(ImportState *s, ValueId x, const Ids *there, int dim)
{
    Graph *g = s->g;
    int64_t each = low_shape(g, x).d[dim] / there->n;
    ValueId *flag = arena_array(g->arena, ValueId, there->n);
    for (uint32_t i = 0; i < there->n; i++) {
        ValueId is = there->at[i] == NONE ? g_scalar(g, DT_BOOL, 1) : there->at[i];
        flag[i] = g_expand(g, g_reshape(g, is, &(Shape){1, {1}}), &(Shape){1, {each}});
    }
    ValueId mask = there->n == 1 ? flag[0] : g_concat(g, there->n, flag, 0);
    ValueId packed = ragged_pack(s, OP_Pack, x, mask, dim);
    ragged_mark(s, packed, (Ragged){mask, dim, true, ANY, false, NULL});
    return packed;
}

/* ---- counts ---- */

void ragged_mark_count(ImportState *s, const Import *im, Importer *fn, uint32_t out, Ragged r)
{
    Counted *c = arena_new_of(s->g->arena, Counted);
    for (uint32_t i = 0; i < im->nin && fn; i++)
        if (im->in[i] == im->out[out])                  /* nothing to compute */
            return;
    *c = (Counted){*im, fn, out, NONE};
    r.dim = COUNT;
    r.made = c;
    ragged_mark(s, im->out[out], r);
}

/* The dims of a value, one of them as it is in this run. */
static ValueId actual_shape(ImportState *s, const Counted *c)
{
    Graph *g = s->g;
    const Ragged *r = ragged_find(s, c->im.in[0]);
    Shape x = low_shape(g, c->im.in[0]);
    ValueId *dim = arena_array(g->arena, ValueId, x.rank + 1), all;
    for (int d = 0; d < x.rank; d++)
        dim[d] = d == r->dim ? ragged_count(s, r->mask)
                             : g_reshape(g, g_scalar(g, DT_I64, (double)x.d[d]), &(Shape){1, {1}});
    all = x.rank == 1 ? dim[0] : g_concat(g, (uint32_t)x.rank, dim, 0);
    if (c->im.op == OP_Size) {
        for (int d = 1; d < x.rank; d++)
            dim[0] = g_mul(g, dim[0], dim[d]);
        return g_reshape(g, dim[0], &(Shape){0});
    }
    int64_t start = im_int(&c->im, "start", 0);
    start = low_max(0, low_min(start < 0 ? start + x.rank : start, x.rank));
    return g_slice_axis(g, all, 0, start, low_shape(g, c->im.out[0]).d[0]);
}

ValueId ragged_actual(ImportState *s, ValueId v)
{
    const Ragged *r = ragged_find(s, v);
    if (!r || r->dim != COUNT)
        return v;
    Counted *c = r->made;
    if (c->actual != NONE)
        return c->actual;
    if (!c->fn)
        return c->actual = actual_shape(s, c);
    Import own = c->im;
    ValueId *in = arena_array(s->g->arena, ValueId, own.nin + 1),
            *out = arena_array(s->g->arena, ValueId, own.nout + 1);
    for (uint32_t i = 0; i < own.nin; i++)
        in[i] = ragged_actual(s, own.in[i]);
    for (uint32_t i = 0; i < own.nout; i++)
        out[i] = NONE;
    own.in = in, own.out = out, own.sized = NULL;
    c->fn(&own);
    return c->actual = out[c->out];
}

/*
 * scatter.c - rows that the data picked are put back: scatters whose indices and updates are
 * of a size that depends on the data.  Out: a scatter that leaves out what the mask does, or, where
 * each row's places are known, sums and choices row by row.
 */
#include "ragged.h"

#include <string.h>


#define refuse ragged_refuse

/* [n, 1, ...] against `rank` dims. */
static ValueId mask_along(const Import *im, ValueId mask, int rank)
{
    Shape s = {.rank = rank};
    for (int d = 0; d < rank; d++)
        s.d[d] = d ? 1 : low_shape(im->g, mask).d[0];
    return g_reshape(im->g, mask, &s);
}

/* The row that each place is scattered to, where it is known and the same in a whole row. */
static const int64_t *known_rows(const Import *im, ValueId index)
{
    const Value *v = val(im->g, index);
    while (v->kind == V_NODE && im->g->node.at[v->node].op == OP_Expand)
        v = val(im->g, im->g->node.at[v->node].in[0]);
    int64_t n = v->shape.d[0], wide = shape_elements(&v->shape) / n;
    if (v->kind != V_CONST)
        return NULL;
    int64_t *row = arena_array(im->arena, int64_t, n);
    for (int64_t i = 0; i < n * wide; i++) {
        row[i / wide] = (int64_t)low_const_at(v, i);
        if (low_const_at(v, i) != low_const_at(v, i / wide * wide))
            return NULL;
    }
    return row;
}

/* Rows 0 0 .. 1 1 .. of a known order, so many times each: how often; else 0. */
static int64_t repeats(const int64_t *row, int64_t n, int64_t rows)
{
    int64_t times = rows > 0 && row && n % rows == 0 ? n / rows : 0;
    for (int64_t i = 0; i < n && times; i++)
        if (row[i] != i / times)
            times = 0;
    return times;
}

/* Each row gets its own places one after the other, as a scatter does: later ones win, or are
 * added. */
static ValueId row_by_row(const Import *im, ValueId mask, int64_t times, bool sum)
{
    Graph *g = im->g;
    ValueId y = im->in[0];
    Shape s = low_shape(g, im->in[2]), one = s;
    one.d[0] = s.d[0] / times;
    const Shape apart = shape_with(&one, 1, times);
    Shape flags = {.rank = s.rank};
    for (int d = 0; d < s.rank; d++)
        flags.d[d] = d ? 1 : one.d[0];
    ValueId updates = g_reshape(g, im->in[2], &apart),
            live = g_reshape(g, mask, &(Shape){2, {one.d[0], times}});
    for (int64_t k = 0; k < times; k++) {
        ValueId u = g_reshape(g, g_slice_axis(g, updates, 1, k, 1), &one),
                is = g_reshape(g, g_slice_axis(g, live, 1, k, 1), &flags);
        y = sum ? g_add(g, y, g_where(g, is, u, g_like(g, u, 0))) : g_where(g, is, u, y);
    }
    return y;
}

static void scattered_into(ImportState *s, Import *im, const Ragged *into)
{
    if (into)
        ragged_settle(s, im, 0, (Ragged){.mask = into->mask, .packed = true}, false);
}

/* What the mask leaves out goes to a row more, which is dropped. */
void ragged_scatter(ImportState *s, Import *im, Importer *fn)
{
    Graph *g = im->g;
    const Ragged *index = ragged_find(s, im->in[1]), *updates = ragged_find(s, im->in[2]);
    Shape x = low_shape(g, im->in[0]), is = low_shape(g, im->in[1]);
    bool nd = im->op == OP_ScatterND;
    const Ragged *into = ragged_find(s, im->in[0]);
    ValueId mask = index && updates ? ragged_common(s, index->mask, updates->mask) : NONE;
    if ((into && (into->dim != 0 || ragged_mask(s, into->mask)->shuffled)) || mask == NONE ||
        index->dim || updates->dim || x.rank < 1 || x.rank >= MAX_RANK ||
        (!nd && low_axis(im, im_int(im, "axis", 0), x.rank) != 0) || (nd && is.rank != 2))
        refuse(im, 1, " but along the first dim, of indices and updates of one such size,");
    ValueId unpacked[3] = {ragged_in_order(s, im->in[0]), im->in[1], im->in[2]};
    Import places = *im, *whole = im;
    for (uint32_t i = 1; i < 3; i++) {
        const Ragged *r = i == 1 ? index : updates;
        if (r->mask != mask)                            /* that of packed ones */
            unpacked[i] = ragged_in_order(s, im->in[i]);
        else if (r->packed)
            unpacked[i] = ragged_pack(s, OP_Unpack, im->in[i], mask, 0);
    }
    places.in = unpacked;
    im = &places;
    const char *how = im_str(im, "reduction", "none");
    bool whole_rows = nd ? is.d[1] == 1 : low_shape(g, im->in[2]).rank > 0;
    for (int d = 1; d < x.rank && whole_rows; d++)
        whole_rows = low_shape(g, im->in[2]).d[d] == x.d[d];
    int64_t times = whole_rows ? repeats(known_rows(im, im->in[1]), is.d[0], x.d[0]) : 0;
    if (times > 0 && times <= 64 && (!strcmp(how, "none") || !strcmp(how, "add"))) {
        im->out[0] = row_by_row(im, mask, times, !strcmp(how, "add"));
        scattered_into(s, whole, into);
        return;
    }
    int64_t zeros[MAX_RANK] = {0}, one[MAX_RANK] = {1};
    ValueId i = im->in[1], rows = g_like(g, i, (double)x.d[0]),
            first =
                nd ? g_binary(g, OP_Equal, g_iota(g, DT_I64, 2, 1, is.d[1]), g_scalar(g, DT_I64, 0))
                   : NONE,
            negative = g_binary(g, OP_Less, i, g_like(g, i, 0)),
            dead = g_unary(g, OP_Not, mask_along(im, mask, is.rank));
    if (nd)
        negative = g_binary(g, OP_And, negative, first), dead = g_binary(g, OP_And, dead, first);
    i = g_where(g, negative, g_add(g, i, rows), i);
    ValueId in[3] = {g_pad(g, im->in[0], zeros, one, PAD_CONSTANT, 0), g_where(g, dead, rows, i),
                     im->in[2]};
    Import own = *im;
    own.in = in;
    fn(&own);
    im->out[0] = g_slice_axis(g, im->out[0], 0, 0, x.d[0]);
    scattered_into(s, whole, into);
}

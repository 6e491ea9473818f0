/*
 * scatter.c - rows that the data picked are put back: scatters whose indices and updates are
 * of a size that depends on the data.  Out: a scatter that leaves out what the mask does, or, where
 * each row's places are known, sums and choices row by row.
 */
#include "ragged.h"


/* [n, 1, ...] against `rank` dims. */
static ValueId mask_along(Graph *g, ValueId mask, int rank)
{
    Shape s = {.rank = rank};
    for (int d = 0; d < rank; d++)
        s.d[d] = d ? 1 : low_shape(g, mask).d[0];
    return g_reshape(g, mask, &s);
}

/* The row that each place is scattered to, where it is known and the same in a whole row. */
static const int64_t *known_rows(const Graph *g, ValueId index)
{
    const Value *v = val(g, index);
    while (v->kind == V_NODE && g->node.at[v->node].op == OP_Expand)
        v = val(g, g->node.at[v->node].in[0]);
    int64_t n = v->shape.d[0], wide = shape_elements(&v->shape) / n;
    if (v->kind != V_CONST)
        return NULL;
    int64_t *row = arena_array(g->arena, int64_t, n);
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
static ValueId row_by_row(const Core *c, ValueId mask, int64_t times, bool sum)
{
    Graph *g = c->s->g;
    ValueId y = c->in[0];
    Shape s = low_shape(g, c->in[2]), one = s;
    one.d[0] = s.d[0] / times;
    const Shape apart = shape_with(&one, 1, times);
    Shape flags = {.rank = s.rank};
    for (int d = 0; d < s.rank; d++)
        flags.d[d] = d ? 1 : one.d[0];
    ValueId updates = g_reshape(g, c->in[2], &apart),
            live = g_reshape(g, mask, &(Shape){2, {one.d[0], times}});
    for (int64_t k = 0; k < times; k++) {
        ValueId u = g_reshape(g, g_slice_axis(g, updates, 1, k, 1), &one),
                is = g_reshape(g, g_slice_axis(g, live, 1, k, 1), &flags);
        y = sum ? g_add(g, y, g_where(g, is, u, g_like(g, u, 0))) : g_where(g, is, u, y);
    }
    return y;
}

/* What the mask leaves out goes to a row more, which is dropped. */
static ValueId row_more(const Core *c, ValueId mask)
{
    Graph *g = c->s->g;
    const Shape x = low_shape(g, c->in[0]), is = low_shape(g, c->in[1]);
    int64_t zeros[MAX_RANK] = {0}, one[MAX_RANK] = {1};
    ValueId i = c->in[1], rows = g_like(g, i, (double)x.d[0]),
            negative = g_binary(g, OP_Less, i, g_like(g, i, 0)),
            dead = g_unary(g, OP_Not, mask_along(g, mask, is.rank));
    if (c->n.op == OP_ScatterND) {
        ValueId column = g_iota(g, DT_I64, 2, 1, is.d[1]),
                first = g_binary(g, OP_Equal, column, g_scalar(g, DT_I64, 0));
        negative = g_binary(g, OP_And, negative, first), dead = g_binary(g, OP_And, dead, first);
    }
    i = g_where(g, negative, g_add(g, i, rows), i);
    ValueId in[3] = {g_pad(g, c->in[0], zeros, one, PAD_CONSTANT, 0), g_where(g, dead, rows, i),
                     c->in[2]};
    return g_slice_axis(g, graph_node(g, c->n.op, 3, in, c->n.attr), 0, 0, x.d[0]);
}

ValueId ragged_scatter(Core *c, Ragged was)
{
    ImportState *s = c->s;
    Graph *g = s->g;
    const Ragged *into = ragged_find(s, c->in[0]), *index = ragged_find(s, c->in[1]),
                 *updates = ragged_find(s, c->in[2]);
    const Shape x = low_shape(g, c->in[0]), is = low_shape(g, c->in[1]), u = low_shape(g, c->in[2]);
    bool nd = c->n.op == OP_ScatterND;
    ValueId mask = index && updates ? ragged_common(s, index->mask, updates->mask) : NONE;
    if ((into && (into->dim != 0 || ragged_mask(s, into->mask)->shuffled)) || mask == NONE ||
        index->dim || updates->dim || x.rank < 1 || x.rank >= MAX_RANK ||
        (nd ? is.rank != 2 : c->n.attr.axis != 0))
        ragged_refuse(c->im, 1,
                      " but along the first dim, of indices and updates of one such size,");
    was = into ? (Ragged){.mask = into->mask, .packed = true, .dirty = true} : was;
    c->in[0] = ragged_in_order(s, c->in[0]);
    for (uint32_t i = 1; i < 3; i++) {
        const Ragged *r = i == 1 ? index : updates;
        if (r->mask != mask)                            /* that of packed ones */
            c->in[i] = ragged_in_order(s, c->in[i]);
        else if (r->packed)
            c->in[i] = ragged_pack(s, OP_Unpack, c->in[i], mask, 0);
    }
    bool whole_rows = nd ? is.d[1] == 1 : u.rank > 0;
    for (int d = 1; d < x.rank && whole_rows; d++)
        whole_rows = u.d[d] == x.d[d];
    const int how = c->n.attr.reduction;
    int64_t times = whole_rows ? repeats(known_rows(g, c->in[1]), is.d[0], x.d[0]) : 0;
    bool by_row = times > 0 && times <= 64 && (how == SCATTER_NONE || how == SCATTER_ADD);
    ValueId y = by_row ? row_by_row(c, mask, times, how == SCATTER_ADD) : row_more(c, mask);
    *c->ended = true;
    if (into)
        ragged_mark(s, y, was);
    return y;
}

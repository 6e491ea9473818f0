/*
 * parts.c - a value that is split into parts of as many rows as the data say, and joined
 * again: the rows of a mixture's experts, sorted by expert (JetMoe).  In: a Split or a
 * SplitToSequence of a known dim, whose sizes are computed of the data; a Concat of all parts, or
 * of what was made of each.  Out: each part packed, with a mask of the rows that are in it; each
 * row what its part's is.
 */
#include "ragged.h"

#include <math.h>


#define refuse ragged_refuse

/* By masks of its parts, in order: a Split that has no other ones. */
static uint32_t *split_of(ImportState *s, uint32_t n, const ValueId *mask)
{
    const char *name = "split";
    for (uint32_t i = 0; i < n; i++)
        name = arena_printf(s->g->arena, "%s %u", name, mask[i]);
    return ragged_made(s, "%s", name);
}

bool ragged_is_split(const ImportState *s, const Import *im)
{
    return (im->op == OP_Split || im->op == OP_SplitToSequence) && im_in(im, 0) != NONE &&
           im_in(im, 1) != NONE && !ragged_find(s, im->in[0]) &&
           val(im->g, im->in[0])->kind != V_CONST && low_shape(im->g, im->in[1]).rank == 1 &&
           (val(im->g, im->in[1])->kind != V_CONST || ragged_find(s, im->in[1]));
}

/* Which of n rows part i is.  Sizes that do not add up to n are of no run that the model has: no
 * row is in a part. */
static ValueId *masks_of(ImportState *s, ValueId sizes, int64_t parts, int64_t n)
{
    Graph *g = s->g;
    ValueId *mask = arena_array(g->arena, ValueId, parts + 1), from = g_scalar(g, DT_I64, 0),
            row = g_iota(g, DT_I64, 1, 0, n);
    for (int64_t i = 0; i < parts; i++) {
        ValueId to = g_add(g, from, g_slice_axis(g, sizes, 0, i, 1));
        mask[i] = g_binary(g, OP_And, g_binary(g, OP_GreaterOrEqual, row, from),
                           g_binary(g, OP_Less, row, to));
        from = to;
    }
    ValueId all = g_binary(g, OP_Equal, from, g_scalar(g, DT_I64, (double)n));
    for (int64_t i = 0; i < parts; i++)
        mask[i] = g_binary(g, OP_And, mask[i], all);
    return mask;
}

void ragged_split(ImportState *s, Import *im)
{
    Graph *g = im->g;
    ValueId x = im->in[0], sizes = g_cast(g, ragged_actual(s, im->in[1]), DT_I64);
    Shape shape = low_shape(g, x);
    int axis = low_axis(im, im_int(im, "axis", 0), shape.rank);
    int64_t parts = low_shape(g, sizes).d[0];
    bool sequence = im->op == OP_SplitToSequence;
    Ids list = {0};
    if (parts < 1 || (!sequence && parts != im->nout))
        refuse(im, 1, " into another number of parts");
    if (!dtype_is_float(low_dtype(g, x)))
        refuse(im, 0, " of whole numbers, into parts of the data's sizes,");
    ValueId *mask = masks_of(s, sizes, parts, shape.d[axis]);
    for (int64_t i = 0; i < parts; i++) {
        ValueId part = ragged_pack(s, OP_Pack, x, mask[i], axis);
        ragged_mark(s, part, (Ragged){.mask = mask[i], .dim = axis, .packed = true});
        if (sequence)
            vec_push(im->arena, &list, part);
        else
            im->out[i] = part;
    }
    *split_of(s, (uint32_t)parts, mask) = 1;
    if (sequence)
        im_set_sequence(im, 0, list, (Ids){0});
}

ValueId ragged_join(const Core *c, int axis)
{
    ImportState *s = c->s;
    Graph *g = s->g;
    ValueId *mask = arena_array(g->arena, ValueId, c->n.nin + 1);
    for (uint32_t i = 0; i < c->n.nin; i++) {
        const Ragged *r = ragged_find(s, c->in[i]);
        if (!r || r->dim != axis || !r->packed || !dtype_is_float(low_dtype(g, c->in[i])))
            return NONE;
        mask[i] = r->mask;
    }
    if (*split_of(s, c->n.nin, mask) == NONE)
        return NONE;
    Shape x = low_shape(g, c->in[0]), line = {.rank = x.rank};
    for (int d = 0; d < x.rank; d++)
        line.d[d] = d == axis ? x.d[d] : 1;
    ValueId y = g_like(g, c->in[0], (double)NAN);
    for (uint32_t i = 0; i < c->n.nin; i++)
        y = g_where(g, g_reshape(g, mask[i], &line),
                    ragged_pack(s, OP_Unpack, c->in[i], mask[i], axis), y);
    return y;
}

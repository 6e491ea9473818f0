/*
 * spread_share.c - what the rules of ops.def's SPREAD column share: places and shapes of chunks,
 * the way that is being made, the node of one chunk.
 */
#include <string.h>

#include "spread_rules.h"

const char ways_inner[] = "the rows are not outermost in their dimension",
           ways_named[] = "it takes from every sample what every sample names";

bool place_fits(const Shape *s, Place at, int64_t chunks)
{
    if (at.dim < 0)
        return true;
    /* groups stand in a dimension of their own, in an exchange those of both places */
    const int more = at.mirrored ? MIRROR_DIMS : at.groups > 1 ? 2 : 0;
    if ((at.mirrored && at.groups % 2) || s->rank + more > MAX_RANK)
        return false;
    return at.dim < s->rank && at.groups > 0 && s->d[at.dim] > 0 && s->d[at.dim] % at.groups == 0 &&
           s->d[at.dim] / at.groups % chunks == 0;
}

bool place_fits_uneven(const Shape *s, Place at, int64_t chunks)
{
    enum { LEAST = 16 }; /* times as many elements as zeros */
    if (place_fits(s, at, chunks) || at.dim >= s->rank || at.groups != 1 || at.mirrored)
        return place_fits(s, at, chunks);
    int64_t n = s->d[at.dim], zeros = place_shape(s, at, chunks).d[at.dim] * chunks - n;
    return zeros * LEAST <= n && zeros * chunks < n;
}

Shape place_shape(const Shape *s, Place at, int64_t chunks)
{
    Shape part = *s;
    if (at.dim >= 0)
        part.d[at.dim] = (part.d[at.dim] + chunks - 1) / chunks;
    return part;
}

/* What is outside the parts stays outside them, in dimensions of its own where there are such. */
bool place_reshaped(const Shape *from, const Shape *to, Place at, int64_t chunks, Place *is)
{
    const int64_t before = at.groups * shape_between(from, 0, at.dim);
    int64_t outer;
    for (int apart = 1; apart >= 0; apart--) {
        outer = 1;
        for (int j = 0; j < to->rank && outer > 0 && outer <= before; outer *= to->d[j], j++) {
            *is = place_s(j, before / outer);
            if ((apart ? before == outer : before % outer == 0) && place_fits(to, *is, chunks))
                return true;
        }
    }
    return false;
}

ValueId ways_value(const Ways *w, uint32_t slot) { return node_slot(w->n, slot); }

const Shape *ways_shape(const Ways *w, uint32_t slot)
{
    return &val(w->of->g, ways_value(w, slot))->shape;
}

/* Is it so with any length?  Either there are as many groups with each, or each is of one size. */
static bool fits_others(const SpreadOf *of, ValueId v, Place at)
{
    const int64_t own = val(of->g, v)->shape.d[at.dim];
    int64_t all = own;
    for (int k = 0; k < of->n_others; k++)
        all = size_gcd(all, val(of->others[k], v)->shape.d[at.dim]);
    return all == own || all % (at.groups * of->chunks) == 0 || all % (own / at.groups) == 0;
}

bool ways_may_be(const Ways *w, uint32_t slot, Place at)
{
    ValueId v = ways_value(w, slot);
    Dtype t = val(w->of->g, v)->dtype;
    const Place *barred = w->of->barred ? &w->of->barred[v] : NULL;
    if (at.dim == PLACE_P && w->of->alone)
        return true;
    if (at.dim == PLACE_P)
        return slot < w->n->nin ? t == DT_F32 || t == DT_F64 : dtype_is_float(t);
    if (barred && at.dim >= 0 && barred->dim == at.dim &&
        (barred->groups == 0 || at.groups % barred->groups != 0) &&
        !(w->of->rows && w->of->rows[v] && at.groups == 1))
        return false;
    if (w->of->n_others && at.dim >= 0)
        return place_fits(ways_shape(w, slot), at, w->of->chunks) && fits_others(w->of, v, at);
    return w->of->uneven ? place_fits_uneven(ways_shape(w, slot), at, w->of->chunks)
                         : place_fits(ways_shape(w, slot), at, w->of->chunks);
}

bool ways_is_even(const Ways *w, uint32_t slot, Place at)
{
    return place_fits(ways_shape(w, slot), at, w->of->chunks);
}

bool ways_is_numbered(const Ways *w, int dim)
{
    bool is = false;
    for (int x = 0; w->n->attr.piece && x < MESH_AXES; x++)
        is |= w->n->attr.piece->along[x].axis == dim;
    return is;
}

static bool is_known_way(const Ways *w, uint32_t slots)
{
    for (uint32_t i = 0; i < w->out->n; i++) {
        bool same = true;
        for (uint32_t k = 0; k < slots && same; k++)
            same = place_is(w->out->at[i].in[k], w->at[k]);
        if (same)
            return true;
    }
    return false;
}

void ways_keep(Ways *w)
{
    uint32_t slots = ways_slots(w);
    bool good = true, some = false;
    for (uint32_t i = 0; i < slots; i++) {
        w->at[i].mirrored = w->mirrored && w->at[i].dim >= 0;
        good = good && ways_may_be(w, i, w->at[i]);
        some |= w->at[i].dim != PLACE_R;
    }
    if (good && some && !is_known_way(w, slots)) {
        Place *at = arena_array(w->arena, Place, slots);
        memcpy(at, w->at, slots * sizeof *at);
        w->way.in = at;
        w->way.out = at + w->n->nin;
        vec_push(w->arena, w->out, w->way);
    }
    for (uint32_t i = 0; i < slots; i++)
        w->at[i] = place_r();
    w->way = (SpreadWay){0};
}

void ways_refuse(Ways *w, const char *why, uint32_t by)
{
    w->out->why = why;
    w->out->by = by;
}

void ways_choose(Ways *w, uint32_t slot, Place at, const char *why, uint32_t by)
{
    ways_refuse(w, why, by);
    if (!ways_single(w))
        return;
    w->at[slot] = at;
    for (uint32_t i = w->n->nin; i < ways_slots(w); i++)
        w->at[i] = place_s(at.dim, 1);
    ways_keep(w);
}

void ways_all(Ways *w, Place at)
{
    for (uint32_t i = 0; i < ways_slots(w); i++)
        w->at[i] = at;
    ways_keep(w);
}

Shape spread_result(const Spread *s, uint32_t o)
{
    return place_shape(&val(s->whole, spread_of(s)->out[o])->shape, s->way->out[o], s->chunks);
}

const Shape *spread_whole(const Spread *s, uint32_t i)
{
    return &val(s->whole, spread_of(s)->in[i])->shape;
}

const Chunks *spread_parts(const Spread *s, Place at)
{
    const Chunks *before = spread_of(s)->attr.piece;
    Chunks *p = arena_new_of(s->g->arena, Chunks);
    *p = before ? *before : chunks_none();
    p->along[s->g->cur_mesh] =
        (Chunk){.axis = at.dim, .pieces = 1, .chunks = s->chunks, .groups = (int)at.groups};
    return p;
}

void spread_same(const Spread *s, Attr attr)
{
    const Node *n = spread_of(s);
    ValueId y = graph_node(s->g, n->op, n->nin, s->in, attr);
    for (uint32_t o = 0; o < n->nout; o++)
        s->out[o] = graph_out(s->g, y, o);
}

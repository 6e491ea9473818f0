/*
 * choices.c - the ways to compute a node, each with its price and the forms that it reads.
 *
 * In: the ways of ops.def's column SPREAD.  Out: those that suit the axis (a product with a
 * parameter divides the one on one axis, and must not on another), beside that of the whole node.
 */
#include "search.h"

int choices_place(About *b, Place p)
{
    for (int i = 0; i < b->places; i++)
        if (place_is(b->place[i], p))
            return i;
    if (b->places == PLACES)
        return -1;
    b->place[b->places] = p;
    return b->places++;
}

double choices_sent(const Search *s, double bytes) { return bytes > 0 ? bytes + s->least : 0; }

double choices_work(const Search *s, NodeId id)
{
    const Node *n = &s->g->node.at[id];
    const bool grad = s->about[n->out[0]].grad;
    if (op_is_collective(n->op))
        return (double)cost_sent(s->g, n) * (grad ? 2 : 1);
    return (double)cost_flops(s->g, id) * (grad ? 3 : 1) *
           (op_is_product(n->op) ? s->work : s->between);
}

/* Which form operand i is read in; false: the value has too many. */
static bool need_of(Search *s, const Node *n, uint32_t i, const SpreadWay *w, Need *need)
{
    ValueId v = n->in[i];
    Place p = w ? w->in[i] : place_r();
    int k = p.dim >= 0 ? choices_place(&s->about[v], p) : 0;
    *need = (Need){v, p.dim >= 0 ? DIVIDED + k : p.dim == PLACE_P ? PARTIAL : w ? VARIED : WHOLE};
    return k >= 0 && (p.dim != PLACE_P || !s->about[v].plain);
}

/* Specs of the file, but of parameters, that say otherwise; a sum is whole once it is added up. */
static uint32_t denied(const Search *s, const Node *n, const SpreadWay *w)
{
    const uint32_t node = n->origin ? s->g->origin.at[n->origin].index : NONE;
    uint32_t sum = 0, k = idmap_get(&s->asked, node);
    for (; k < s->opt->asked.n && s->opt->asked.at[k].node == node; k++) {
        const MeshAsked *x = &s->opt->asked.at[k];
        for (uint32_t i = 0; i < n->nin + n->nout && x->param == NONE; i++) {
            const Place at = w ? way_slot(w, n, i) : place_r();
            if (node_slot(n, i) == x->v)
                sum += x->at.dim < 0 ? at.dim >= 0 : !place_is(at, x->at);
        }
    }
    return sum;
}

static bool choice_of(Search *s, NodeId id, const SpreadWay *w, Choice *c)
{
    const Node *n = &s->g->node.at[id];
    *c = (Choice){.way = w,
                  .need = arena_array(s->a, Need, n->nin + 1),
                  .needs = (int)n->nin,
                  .made = arena_array(s->a, int, n->nout + 1),
                  .denied = denied(s, n, w),
                  .price =
                      choices_work(s, id) / (w ? s->chunks : 1) * (w && w->most > 0 ? w->most : 1)};
    if (w)
        c->price += choices_sent(s, 4 * w->moved) +
                    (s->about[n->out[0]].grad ? choices_sent(s, 4 * w->moved_back) : 0);
    for (uint32_t i = 0; i < n->nin; i++)
        if (!need_of(s, n, i, w, &c->need[i]))
            return false;
    for (uint32_t i = 0; i < n->nout; i++) {
        Place p = w ? w->out[i] : place_r();
        int k = p.dim >= 0 ? choices_place(&s->about[n->out[i]], p) : 0;
        c->made[i] = p.dim >= 0 ? MADE_DIVIDED + k : p.dim == PLACE_P ? MADE_PARTIAL : MADE_WHOLE;
        if (k < 0)
            return false;
    }
    return true;
}

bool choices_experts(const Search *s, const Node *n, ValueId v)
{
    const Shape *t = &val(s->g, v)->shape;
    return (is_front(s, v) && s->of_params[v]) ||
           (n->op == OP_MatMul && s->of_params[v] && t->rank > 2 &&
            shape_elements(t) > t->d[t->rank - 2] * t->d[t->rank - 1]);
}

/* A product with a parameter divides it, or nothing: what is made of other dimensions, places of a
 * sequence, say, would leave every member the whole parameter (a convolution may have it, rows.c).
 * Along the axis of sequences it does not divide it, along that of experts the matrices of experts
 * alone. */
static bool suits_param(const Search *s, const Node *n, ValueId v, Place at)
{
    const bool whole = at.dim == PLACE_R;
    switch (s->axis) {
    case MESH_TENSOR:
        if (mesh_has(s->opt, MESH_EXPERT) && choices_experts(s, n, v) && at.dim >= 0 &&
            at.dim < val(s->g, v)->shape.rank - 2)
            return false; /* so they are divided along that axis */
        return !s->about[v].grad || !whole || (s->of.rows && is_convolution(n->op));
    case MESH_SEQUENCE: return whole;
    default:
        return choices_experts(s, n, v) ? !whole && at.dim < val(s->g, v)->shape.rank - 2 : whole;
    }
}

static bool suits_params(const Search *s, NodeId id, const SpreadWay *w)
{
    const Node *n = &s->g->node.at[id];
    for (uint32_t i = 0; i < n->nin && op_is_product(n->op); i++)
        if (s->of_params[n->in[i]] && !suits_param(s, n, n->in[i], w->in[i]))
            return false;
    return true;
}

/* What has experts in front is divided there. */
static bool suits_front(const Search *s, const Node *n, const SpreadWay *w)
{
    bool suits = true;
    for (uint32_t i = 0; i < n->nin + n->nout; i++) {
        if (is_front(s, node_slot(n, i)))
            suits &= w && place_is(way_slot(w, n, i), place_s(0, 1));
    }
    return suits;
}

Choices choices_of(Search *s, NodeId id)
{
    const Node *n = &s->g->node.at[id];
    Choices list = {0};
    SpreadWays ways = {0};
    Choice c;
    (void)choice_of(s, id, NULL, &c);
    if (suits_front(s, n, NULL))
        vec_push(s->a, &list, c);
    if (!s->about[n->out[0]].plain)
        spread_ways(&s->of, id, s->a, &ways);
    for (uint32_t i = 0; i < ways.n; i++)
        if (suits_params(s, id, &ways.at[i]) && suits_front(s, n, &ways.at[i]) &&
            choice_of(s, id, &ways.at[i], &c))
            vec_push(s->a, &list, c);
    if (!list.n)
        BUG("%s of experts is not divided", op_name(n->op));
    return list;
}

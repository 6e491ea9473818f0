/*
 * alike.c - results that differ in their parameters, and in what is computed of those, alone.
 *
 * In: a graph.  Out: the sums and Concats of such results.  Two are alike where their nodes are, as
 * far back as they differ; a hash of a value, that knows no parameter from another of its shape,
 * says which ones to look at.  Values that are not computed alike, of no parameter of an expert's
 * own, are joined: the parts of a table of who goes where.
 */
#include <string.h>

#include "alike.h"

typedef struct {
    const Graph *g;
    Arena *a;
    const bool *of_params;
    uint64_t *hash; /* by value: equal where they may be alike */
    uint32_t *uses; /* by value */
    IdMap by_first; /* Alikes */
    Families to;
} Find;

/* ---- which values may be alike -------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static uint64_t hash_type(const Value *x)
{
    uint64_t h = mix((uint64_t)x->kind + 1, (uint64_t)x->dtype);
    for (int i = 0; i < x->shape.rank; i++)
        h = mix(h, (uint64_t)x->shape.d[i]);
    return h;
}

static void find_hashes(Find *s, const bool *live)
{
    const Graph *g = s->g;
    for (ValueId v = 0; v < g->value.n; v++)
        s->hash[v] =
            val(g, v)->kind == V_INPUT ? mix(hash_type(val(g, v)), v) : hash_type(val(g, v));
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        uint64_t h = mix(0, (uint64_t)n->op);
        for (uint32_t i = 0; i < n->nin; i++) {
            h = mix(h, s->hash[n->in[i]]);
            s->uses[n->in[i]] += live[id];
        }
        for (uint32_t i = 0; i < n->nout; i++)
            s->hash[n->out[i]] = mix(mix(h, i), hash_type(val(g, n->out[i])));
    }
}

/* ---- C values ------------------------------------------------------------------------------- */

static bool all_same(const Find *s, const ValueId *v)
{
    for (uint32_t c = 1; c < s->to.chunks; c++)
        if (v[c] != v[0] &&
            (val(s->g, v[0])->kind != V_CONST || !value_alike(s->g, v[0], v[c], true)))
            return false;
    return true;
}

static bool same_box(const Param *p, const Param *q)
{
    return p->divided == q->divided &&
           (!p->divided || memcmp(&p->box, &q->box, sizeof p->box) == 0) &&
           shape_equal(param_whole(p), param_whole(q));
}

static bool are_params(const Find *s, const ValueId *v)
{
    const Graph *g = s->g;
    for (uint32_t c = 0; c < s->to.chunks; c++) {
        if (val(g, v[c])->kind != V_PARAM)
            return false;
        const Param *p = &g->param.at[val(g, v[0])->param], *q = &g->param.at[val(g, v[c])->param];
        for (uint32_t d = 0; d < c; d++)
            if (v[d] == v[c])
                return false;
        if (p->dtype != q->dtype || p->trainable != q->trainable || p->stat || q->stat ||
            q->n_each || p->shape.rank + 1 >= MAX_RANK || !same_box(p, q))
            return false;
    }
    return true;
}

/* Are they one node's same result, but for the operands?  attr: with the same attributes, too */
static bool are_nodes(const Find *s, const ValueId *v, bool attr)
{
    if (!is_made(s->g, v[0]) || val(s->g, v[0])->shape.rank + 2 > MAX_RANK ||
        !(op_is_pure(maker(s->g, v[0])->op) || op_is_collective(maker(s->g, v[0])->op)))
        return false;
    for (uint32_t c = 1; c < s->to.chunks; c++)
        if (!value_alike(s->g, v[0], v[c], attr))
            return false;
    return true;
}

/* Are they slices of one value, each as far behind the one before as C parts of it are?  The
 * dimension; -1: they are not. */
static int cut_along(const Find *s, const ValueId *v)
{
    const Node *n = maker(s->g, v[0]);
    int along = -1;
    if (n->op != OP_Slice)
        return -1;
    const Shape *x = &val(s->g, n->in[0])->shape;
    for (int d = 0; d < x->rank; d++)
        if (n->attr.start[d] != maker(s->g, v[1])->attr.start[d])
            along = along < 0 ? d : MAX_RANK;
    if (along < 0 || along == MAX_RANK || x->d[along] % s->to.chunks)
        return -1;
    const int64_t each = x->d[along] / s->to.chunks;
    for (uint32_t c = 0; c < s->to.chunks; c++) {
        const Attr t = maker(s->g, v[c])->attr;
        if (maker(s->g, v[c])->in[0] != n->in[0] ||
            t.start[along] != n->attr.start[along] + c * each ||
            n->attr.start[along] + n->attr.size[along] > each)
            return -1;
        for (int d = 0; d < x->rank; d++)
            if (t.step[d] != 1 || (d != along && t.start[d] != n->attr.start[d]))
                return -1;
    }
    return along;
}

static uint32_t alike_known(Find *s, const ValueId *v, uint32_t **at)
{
    for (uint64_t key = mix(7, v[0]);; key++) {
        *at = idmap_at(s->a, &s->by_first, key);
        if (**at == NONE || !memcmp(s->to.alike.at[**at].v, v, s->to.chunks * sizeof *v))
            return **at;
    }
}

/* The number of C values' Alike; NONE: they are not. */
static uint32_t alike_of(Find *s, const ValueId *v)
{
    Alike x = {.kind = SAME, .made = NONE};
    uint32_t *at, known = alike_known(s, v, &at);
    bool good = true;
    if (known != NONE)
        return known;
    if (all_same(s, v)) {
        x.kind = SAME;
    } else if (are_params(s, v)) {
        x.kind = PARAMS;
        x.own = true;
    } else if (are_nodes(s, v, false) && (x.along = cut_along(s, v)) >= 0) {
        x.kind = CUTS;
        x.own = s->of_params[maker(s->g, v[0])->in[0]];
    } else if (are_nodes(s, v, false)) {
        const Node *n = maker(s->g, v[0]);
        uint32_t *in = arena_array(s->a, uint32_t, n->nin + 1);
        bool same = true;
        for (uint32_t i = 0; i < n->nin && good; i++) {
            ValueId *u = arena_array(s->a, ValueId, s->to.chunks);
            for (uint32_t c = 0; c < s->to.chunks; c++)
                u[c] = maker(s->g, v[c])->in[i];
            in[i] = alike_of(s, u);
            good = in[i] != NONE;
            same &= good && s->to.alike.at[in[i]].kind == SAME;
            x.own |= good && s->to.alike.at[in[i]].own;
            x.product |= good && s->to.alike.at[in[i]].product;
        }
        same &= op_is_pure(n->op) && !op_is_view(n->op) && are_nodes(s, v, true);
        const bool whole = good && (same || (op_lifts(n->op) && are_nodes(s, v, true)));
        x.product |= whole && x.own && op_is_product(n->op);
        x.kind = same ? SAME : whole ? NODES : JOINED;
        x.in = in;
        good = good && (whole || !x.own);
    } else {
        good = val(s->g, v[0])->kind == V_CONST;
        for (uint32_t c = 1; c < s->to.chunks && good; c++)
            good = val(s->g, v[c])->kind == V_CONST && s->hash[v[c]] == s->hash[v[0]];
        x.kind = JOINED;
    }
    if (!good)
        return NONE;
    ValueId *own = arena_array(s->a, ValueId, s->to.chunks);
    memcpy(own, v, s->to.chunks * sizeof *v);
    x.v = own;
    (void)alike_known(s, v, &at);
    *at = s->to.alike.n;
    vec_push(s->a, &s->to.alike, x);
    return s->to.alike.n - 1;
}

/* ---- families ------------------------------------------------------------------------------- */

/* Of a sum of sums, what is added, in order. */
static void find_leaves(const Find *s, ValueId v, bool root, Ids *leaf)
{
    const Node *n = is_made(s->g, v) ? maker(s->g, v) : NULL;
    if (!n || n->op != OP_Add || (!root && s->uses[v] != 1)) {
        vec_push(s->a, leaf, v);
        return;
    }
    find_leaves(s, n->in[0], false, leaf);
    find_leaves(s, n->in[1], false, leaf);
}

/* Of leaves from `first` on, those like it: number i of each chunk, and those of the others. */
static void try_family(Find *s, Family f, const Ids *all, uint32_t first)
{
    for (uint32_t i = 0; i < all->n; i++)
        vec_push(s->a, s->hash[all->at[i]] == s->hash[all->at[first]] ? &f.leaf : &f.other,
                 all->at[i]);
    const uint32_t slots = f.leaf.n / s->to.chunks;
    ValueId *v = arena_array(s->a, ValueId, s->to.chunks);
    if (f.leaf.n % s->to.chunks || !slots || (f.joins && f.other.n))
        return;
    for (uint32_t i = 0; i < slots; i++) {
        for (uint32_t c = 0; c < s->to.chunks; c++)
            v[c] = f.leaf.at[c * slots + i];
        const uint32_t x = alike_of(s, v);
        if (x == NONE || !s->to.alike.at[x].product)
            return;
        vec_push(s->a, &f.slot, x);
    }
    s->to.of_root[f.root] = s->to.family.n;
    vec_push(s->a, &s->to.family, f);
}

static void find_family(Find *s, NodeId id)
{
    const Node *n = &s->g->node.at[id];
    Ids all = {0};
    if (n->op == OP_Add)
        find_leaves(s, n->out[0], true, &all);
    for (uint32_t i = 0; i < n->nin && n->op == OP_Concat; i++)
        vec_push(s->a, &all, n->in[i]);
    for (uint32_t i = 0; i < all.n && s->to.of_root[id] == NONE; i++) {
        bool before = false;
        for (uint32_t k = 0; k < i; k++)
            before |= s->hash[all.at[k]] == s->hash[all.at[i]];
        if (!before)
            try_family(s, (Family){.root = id, .joins = n->op == OP_Concat}, &all, i);
    }
}

/* Sums whose result is not added to others alone. */
static void find_families(Find *s, const bool *live)
{
    const Graph *g = s->g;
    bool *inner = arena_array(s->a, bool, g->node.n + 1);
    for (NodeId id = 0; id < g->node.n; id++)
        for (uint32_t i = 0; i < 2 && live[id] && g->node.at[id].op == OP_Add; i++) {
            const ValueId v = g->node.at[id].in[i];
            if (is_made(g, v) && s->uses[v] == 1)
                inner[val(g, v)->node] = true;
        }
    for (NodeId id = 0; id < g->node.n; id++)
        if (live[id] && !(inner[id] && g->node.at[id].op == OP_Add))
            find_family(s, id);
}

static void need(Find *s, uint32_t k, bool *met)
{
    const Alike *x = &s->to.alike.at[k];
    if (met[k])
        return;
    met[k] = true;
    for (uint32_t c = 0; c < s->to.chunks && x->kind == JOINED; c++)
        s->to.needed[x->v[c]] = true;
    if (x->kind == SAME)
        s->to.needed[x->v[0]] = true;
    if (x->kind == CUTS)
        s->to.needed[maker(s->g, x->v[0])->in[0]] = true;
    for (uint32_t c = 0; c < s->to.chunks && x->kind == PARAMS; c++)
        s->to.stacked[val(s->g, x->v[c])->param] = k;
    for (uint32_t i = 0; x->kind == NODES && i < maker(s->g, x->v[0])->nin; i++)
        need(s, x->in[i], met);
}

/* Is a parameter of it read otherwise, too? */
static bool is_shared(const Find *s, uint32_t k, bool *met)
{
    const Alike *x = &s->to.alike.at[k];
    bool shared = false;
    if (met[k])
        return false;
    met[k] = true;
    for (uint32_t c = 0; c < s->to.chunks && x->kind == PARAMS; c++)
        shared |= s->to.needed[x->v[c]] || s->to.stacked[val(s->g, x->v[c])->param] != k;
    for (uint32_t i = 0; x->kind == NODES && i < maker(s->g, x->v[0])->nin; i++)
        shared |= is_shared(s, x->in[i], met);
    return shared;
}

/* What is still read as it was; false: a family's parameter is, and so the family stays. */
static bool find_needed(Find *s, const Ids *results)
{
    const Graph *g = s->g;
    bool *met = arena_array(s->a, bool, s->to.alike.n + 1), good = true;
    memset(s->to.needed, 0, (g->value.n + 1) * sizeof *s->to.needed);
    memset(s->to.stacked, 0xff, (g->param.n + 1) * sizeof *s->to.stacked);
    for (uint32_t i = 0; i < results->n; i++)
        s->to.needed[results->at[i]] = true;
    for (NodeId id = g->node.n; id-- > 0;) {
        const Node *n = &g->node.at[id];
        Family *f = s->to.of_root[id] == NONE ? NULL : &s->to.family.at[s->to.of_root[id]];
        bool is = false;
        for (uint32_t i = 0; i < n->nout; i++)
            is |= s->to.needed[n->out[i]];
        if (f)
            f->reached = is;
        for (uint32_t i = 0; is && (!f || f->off) && i < n->nin; i++)
            s->to.needed[n->in[i]] = true;
        for (uint32_t i = 0; is && f && !f->off && i < f->other.n; i++)
            s->to.needed[f->other.at[i]] = true;
        for (uint32_t i = 0; is && f && !f->off && i < f->slot.n; i++)
            need(s, f->slot.at[i], met);
    }
    for (uint32_t k = 0; k < s->to.family.n; k++) {
        Family *f = &s->to.family.at[k];
        bool shared = false;
        memset(met, 0, (s->to.alike.n + 1) * sizeof *met);
        for (uint32_t i = 0; i < f->slot.n && f->reached && !f->off; i++)
            shared |= is_shared(s, f->slot.at[i], met);
        f->off |= shared;
        good &= !shared;
    }
    return good;
}

Families *alike_find(const Graph *g, Arena *a, int chunks, const Ids *results)
{
    Find s = {.g = g,
              .a = a,
              .of_params = flow_of_params(g, a),
              .hash = arena_array(a, uint64_t, g->value.n + 1),
              .uses = arena_array(a, uint32_t, g->value.n + 1),
              .to = {.chunks = (uint32_t)chunks,
                     .of_root = arena_none(a, g->node.n + 1),
                     .needed = arena_array(a, bool, g->value.n + 1),
                     .stacked = arena_array(a, uint32_t, g->param.n + 1)}};
    const bool *live = graph_live(g, a, 0, results, 1);
    bool some = false;
    find_hashes(&s, live);
    for (uint32_t i = 0; i < results->n; i++)
        s.uses[results->at[i]]++;
    find_families(&s, live);
    while (!find_needed(&s, results))
        ;
    for (uint32_t i = 0; i < s.to.family.n; i++)
        some |= s.to.family.at[i].reached && !s.to.family.at[i].off;
    if (!some)
        return NULL;
    Families *all = arena_new_of(a, Families);
    *all = s.to;
    return all;
}

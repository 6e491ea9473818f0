/*
 * detach.c - what the dynamo exporter leaves of detach().  In: the nodes of a model.  Out:
 * RawNode.stop_in and .stop_out.
 *
 * The exporter leaves an Identity whose fx node is aten.detach; its optimizer removes the Identity,
 * and then only the arguments of the reader's fx node tell: Add [linear, sub]
 * %add : aten.add.Tensor(args = (%linear, %detach))       sub is read detached
 * That optimizer also merges expressions which differ in nothing but what they detach: where that
 * shows, it is refused.
 */
#include <string.h>

#include "detach.h"

/* of an fx node; whatever has more is not looked at */
enum { MOST_ARGUMENTS = 1000 };

static void collect(Detach *d, const RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        FxNode fx;
        if (n->dead || !n->fx_node || !meta_fx(d->a, n->fx_node, &fx) || fx.n > MOST_ARGUMENTS)
            continue;
        uint32_t *at = strmap_at(&d->index, fx.name);
        if (*at == NONE) {
            *at = d->group.n;
            vec_push(d->a, &d->group, (Group){.fx = fx});
        }
        vec_push(d->a, &d->group.at[*at].node, n);
        for (uint32_t k = 0; k < n->nout; k++)
            *strmap_at(&d->maker, n->out[k]) = *at;
    }
}

/* Operand k is what the argument names. */
static bool is_named(const Detach *d, const RawNode *n, uint32_t k, const char *arg)
{
    if (param_is_used(n, k)) {
        uint32_t e =
            d->params && d->params->has_signature ? strmap_get(&d->params->sig.by_arg, arg) : NONE;
        return e != NONE && d->params->sig_param[e] == recipe_only_param(n->made[k]);
    }
    uint32_t maker = strmap_get(&d->maker, n->in[k]);
    return !strcmp(n->in[k], arg) || (maker != NONE && !strcmp(d->group.at[maker].fx.name, arg));
}

/* An operand that could have been detached: neither a constant nor made by the group itself. */
static bool comes_in(const Detach *d, const Group *g, const RawNode *n, uint32_t k)
{
    if (param_is_used(n, k))
        return true;
    if (!*n->in[k] || strmap_get(&d->m->init_index, n->in[k]) != NONE)
        return false;
    uint32_t maker = strmap_get(&d->maker, n->in[k]);
    return maker == NONE || &d->group.at[maker] != g;
}

static bool any_named(const Detach *d, const Group *g, const RawNode *n, uint32_t k)
{
    for (uint32_t j = 0; j < g->fx.n; j++)
        if (is_named(d, n, k, g->fx.arg[j].name))
            return true;
    return false;
}

/* One node whose operands are the arguments in their order: true when nothing contradicts that. */
static bool by_position(const Detach *d, const Group *g)
{
    RawNode *n = g->node.at[0];
    if (g->node.n != 1 || n->nin != g->fx.n)
        return false;
    for (uint32_t k = 0; k < n->nin; k++) {
        bool lost = detach_is_lost(d, g->fx.arg[k].name), at_home = false;
        if (!comes_in(d, g, n, k) || !any_named(d, g, n, k) ||
            (!lost && is_named(d, n, k, g->fx.arg[k].name)))
            continue;
        /* x * x.detach(): the same value, named where it stands */
        for (uint32_t j = 0; j < n->nin; j++)
            at_home = at_home || (j != k && !strcmp(n->in[j], n->in[k]) &&
                                  is_named(d, n, j, g->fx.arg[j].name));
        if (!lost || !at_home)
            return false;
    }
    for (uint32_t k = 0; k < n->nin; k++)
        if (detach_is_lost(d, g->fx.arg[k].name))
            stop_set(d->a, &n->stop_in, n->nin, k);
    return true;
}

/* What the arguments do not name, when that is one value. */
static bool only_one_left(Detach *d, const Group *g)
{
    const char *left = NULL;
    bool constants = false;
    for (uint32_t j = 0; j < g->fx.n; j++) {
        bool known = detach_is_lost(d, g->fx.arg[j].name);
        for (uint32_t i = 0; i < g->node.n && !known; i++)
            for (uint32_t k = 0; k < g->node.at[i]->nin && !known; k++)
                known = is_named(d, g->node.at[i], k, g->fx.arg[j].name);
        if (!known)
            return false;
    }
    for (uint32_t i = 0; i < g->node.n; i++)
        for (uint32_t k = 0; k < g->node.at[i]->nin; k++) {
            const RawNode *n = g->node.at[i];
            uint32_t init = strmap_get(&d->m->init_index, n->in[k]);
            constants = constants || (!param_is_used(n, k) && init != NONE &&
                                      dtype_is_float(d->m->init.at[init].dtype));
            if (!comes_in(d, g, n, k) || any_named(d, g, n, k))
                continue;
            if (left && strcmp(left, n->in[k]))
                return false;
            left = n->in[k];
        }
    for (uint32_t i = 0; i < g->node.n && left; i++)
        for (uint32_t k = 0; k < g->node.at[i]->nin; k++)
            if (!strcmp(g->node.at[i]->in[k], left))
                stop_set(d->a, &g->node.at[i]->stop_in, g->node.at[i]->nin, k);
    /* a buffer that was detached has no gradient anyway */
    return left || constants;
}

/* Did a node take its operand's node in, which was of its kind?  That one's name is gone, too. */
static bool is_fused(const Group *g)
{
    static const char *const rule[] = {"UnsqueezeUnsqueeze", "TransposeTranspose",
                                       "ReshapeReshape", "CastCast"};
    for (uint32_t i = 0; i < g->node.n; i++)
        for (size_t k = 0; g->node.at[i]->rules && k < sizeof rule / sizeof *rule; k++)
            if (strstr(g->node.at[i]->rules, rule[k]))
                return true;
    return false;
}

/* Names of arguments that are gone, whose value is now another's: b = f(x) was merged with a =
 * f(x). */
static void find_merged(Detach *d, const Group *g)
{
    Names left = {0};                                   /* operands that no argument names */
    for (uint32_t i = 0; i < g->node.n; i++)
        for (uint32_t k = 0; k < g->node.at[i]->nin; k++)
            if (comes_in(d, g, g->node.at[i], k) &&
                strmap_get(&d->maker, g->node.at[i]->in[k]) != NONE &&
                !any_named(d, g, g->node.at[i], k))
                vec_push(d->a, &left, g->node.at[i]->in[k]);
    for (uint32_t j = 0; j < g->fx.n && left.n; j++) {
        const char *arg = g->fx.arg[j].name;
        bool known = strmap_get(&d->index, arg) != NONE || strmap_get(&d->maker, arg) != NONE ||
                     fx_is_filled(arg);
        for (uint32_t i = 0; i < left.n && !known; i++) {
            known = fx_same_base(d->group.at[strmap_get(&d->maker, left.at[i])].fx.name, arg);
            if (!known || (is_fused(g) && fx_same_base(g->fx.name, arg)))
                continue;
            vec_push(d->a, &d->merged, arg);
            vec_push(d->a, &d->into, left.at[i]);
            vec_push(d->a, &d->reader, (uint32_t)(g - d->group.at));
            vec_push(d->a, &d->doubted, detach_is_unseen(d, g));
        }
    }
}

static void spread(Detach *d, const RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        bool tainted = false;
        for (uint32_t k = 0; k < n->nin && !n->dead; k++)
            tainted = tainted || (n->stop_in && n->stop_in[k]) ||
                      strmap_get(&d->tainted, n->in[k]) != NONE;
        for (uint32_t k = 0; k < n->nout && tainted; k++)
            *strmap_at(&d->tainted, n->out[k]) = 1;
    }
}

/* ---- how far two expressions that are one now can have been two ---- */

/* By group: is it computed of what this one yields? */
static bool *groups_after(const Detach *d, const RawNodes *list, uint32_t reader)
{
    bool *after = arena_array(d->a, bool, d->group.n + 1);
    StrMap of = {.arena = d->a};
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        bool reached = false;
        for (uint32_t k = 0; k < n->nin && !n->dead; k++)
            reached = reached || strmap_get(&of, n->in[k]) != NONE;
        for (uint32_t k = 0; k < n->nout && !n->dead; k++) {
            uint32_t maker = strmap_get(&d->maker, n->out[k]);
            if (reached && maker != NONE)
                after[maker] = true;
            if (reached || maker == reader)
                *strmap_at(&of, n->out[k]) = 1;
        }
    }
    return after;
}

/* Where all of its name are there that were made before one that comes after the reader, none of
 * before is gone: merged with no other, this one was read by both expressions. */
static bool can_have_twin(const Detach *d, const char *name, const bool *after)
{
    long last = -1;
    for (uint32_t i = 0; i < d->group.n; i++)
        if (after[i] && fx_same_base(d->group.at[i].fx.name, name) &&
            fx_number(d->group.at[i].fx.name) > last)
            last = fx_number(d->group.at[i].fx.name);
    return fx_may_lack(d->a, &d->index, name, last);
}

/* Is v computed from something read detached, behind what both expressions read? */
static bool is_tainted(Detach *d, const char *v, const bool *after, StrMap *seen, int depth)
{
    enum { DEEPEST = 1000 };
    uint32_t maker = strmap_get(&d->maker, v), *been = strmap_at(seen, v);
    if (strmap_get(&d->tainted, v) == NONE || *been != NONE)
        return false;
    *been = 1;
    if (maker == NONE || depth == DEEPEST)
        return true;
    const RawNodes *node = &d->group.at[maker].node;
    for (uint32_t i = 0; i < node->n; i++)
        for (uint32_t k = 0; k < node->at[i]->nin; k++) {
            const char *in = node->at[i]->in[k];
            uint32_t of = strmap_get(&d->maker, in);
            if (node->at[i]->stop_in && node->at[i]->stop_in[k])
                return true;
            bool own = of == maker || of == NONE ||
                       can_have_twin(d, d->group.at[of].fx.name, after);
            if (own && is_tainted(d, in, after, seen, depth + 1))
                return true;
        }
    return false;
}

/* Two expressions that are one now, computed from something detached, or read where the source
 * detaches: whether the other detached the same, nothing tells. */
static void refuse_merged(Detach *d, const RawNodes *list)
{
    detach_explain(d, list);
    for (uint32_t i = 0; i < d->group.n; i++)
        find_merged(d, &d->group.at[i]);
    spread(d, list);
    for (uint32_t i = 0; i < d->merged.n; i++) {
        StrMap seen = {.arena = d->a};
        if (!d->doubted.at[i] &&
            (strmap_get(&d->tainted, d->into.at[i]) == NONE ||
             !is_tainted(d, d->into.at[i], groups_after(d, list, d->reader.at[i]), &seen, 0)))
            continue;
        Where w = {d->m->path, "value", NONE, d->into.at[i], NULL, -1};
        diag_hint("export again with optimize=False, or say with --stop-gradient where no gradient "
                  "passes");
        if (d->stops->opt->stop.n == 0)
            diag_fatal(EXIT_MODEL, w,
                       "the exporter merged '%s' with it, which may have detached other values",
                       d->merged.at[i]);
        diag_warn(w, "the exporter merged '%s' with it, which may have detached other values",
                  d->merged.at[i]);
    }
}

static void recover(Detach *d, const RawNodes *list)
{
    VEC(const RawNode *) unclear = {0};
    Names lost_name = {0};
    for (uint32_t i = 0; i < d->group.n; i++) {
        const Group *g = &d->group.at[i];
        const char *lost = NULL;
        for (uint32_t j = 0; j < g->fx.n && !lost; j++)
            lost = detach_is_lost(d, g->fx.arg[j].name) ? g->fx.arg[j].name : NULL;
        if (!lost || by_position(d, g) || only_one_left(d, g))
            continue;
        vec_push(d->a, &unclear, g->node.at[0]);
        vec_push(d->a, &lost_name, lost);
    }
    refuse_merged(d, list);
    for (uint32_t i = 0; i < unclear.n; i++) {
        diag_hint("export again with optimize=False, or name the value with --stop-gradient");
        diag_warn(raw_where(d->m, unclear.at[i], -1),
                  "which operand detach() made ('%s') the exporter removed: the gradient passes",
                  lost_name.at[i]);
    }
}

/* ---- detached parameters ---- */

/* The file's bytes of the parameter are those of the tensor, as they stand (1) or with the two dims
 * exchanged (2); 0: they are not. */
static int same_bytes(const Param *q, const RawTensor *t)
{
    const uint8_t *x = q->bytes.at, *y = t->bytes.at;
    size_t size = dtype_size(q->dtype), n = q->bytes.length / size, rows = 0;
    if (!x || !y || q->dtype != t->dtype || q->bytes.length != t->bytes.length ||
        !memcmp(x, x + size, (n - 1) * size))
        return 0;                                       /* all elements equal: that says nothing */
    if (!memcmp(x, y, n * size))
        return 1;
    if (t->shape.rank == 2 && q->shape.rank == 2)
        rows = (size_t)t->shape.d[0];
    size_t columns = rows ? n / rows : 0, file_rows = (size_t)q->shape.d[q->transposed];
    bool same = rows > 0 && file_rows == columns;
    for (size_t r = 0; r < rows && same; r++)
        for (size_t c = 0; c < columns && same; c++)
            same = !memcmp(y + (r * columns + c) * size, x + (c * rows + r) * size, size);
    return same ? 2 : 0;
}

/* What the initializer is to the parameter: itself (1), a copy called detach (1, or 2: transposed),
 * or nothing (0). */
static int held_by(const Param *q, const RawTensor *t)
{
    if (q->initializer && !strcmp(q->initializer, t->name))
        return 1;
    return fx_same_base(t->name, "detach") ? same_bytes(q, t) : 0;
}

/*
 * w.detach() was folded into an initializer that holds what the parameter held at first, or became
 * the parameter's own under a name that says nothing of it.  Read as the parameter, whose gradient
 * stops here, it keeps up with the training.
 */
static void rebind(const Detach *d, Params *p, RawNode *n, uint32_t k)
{
    uint32_t init = strmap_get(&d->m->init_index, n->in[k]), found = NONE;
    int how = 0;
    if (init == NONE)
        return;
    const RawTensor *t = &d->m->init.at[init];
    if (param_is_used(n, k)) {                          /* known by its bytes already */
        if (fx_same_base(t->name, "detach"))
            stop_set(d->a, &n->stop_in, n->nin, k);
        return;
    }
    if (!dtype_is_float(t->dtype) || shape_elements(&t->shape) < 2)
        return;
    for (uint32_t i = 0; i < p->g->param.n; i++) {
        int held = held_by(&p->g->param.at[i], t);
        if (!held)
            continue;
        if (found != NONE) {
            diag_hint("export again with optimize=False");
            diag_warn(raw_where(d->m, n, (int)k),
                      "detached, it is %s or %s, and will not train with either",
                      p->g->param.at[found].name, p->g->param.at[i].name);
            return;
        }
        found = i;
        how = held;
    }
    if (found == NONE)
        return;
    param_use(p, n, k, found, (how == 2) != p->g->param.at[found].transposed);
    stop_set(d->a, &n->stop_in, n->nin, k);
}

static bool reads_detached(const Detach *d, const Group *g)
{
    bool found = false;
    for (uint32_t j = 0; j < g->fx.n && !found; j++)
        found = detach_is_gone(d, g->fx.arg[j].name);
    return found;
}

static void rebind_all(const Detach *d, Params *p)
{
    for (uint32_t i = 0; i < d->group.n; i++)
        for (uint32_t j = 0; j < d->group.at[i].node.n && reads_detached(d, &d->group.at[i]); j++)
            for (uint32_t k = 0; k < d->group.at[i].node.at[j]->nin; k++)
                rebind(d, p, d->group.at[i].node.at[j], k);
}

void stop_detached(const Stops *t, const Model *m, Params *params, const RawNodes *list)
{
    Arena *a = m->arena;
    Detach d = {.a = a,
                .m = m,
                .params = params,
                .stops = t,
                .index.arena = a,
                .maker.arena = a,
                .tainted.arena = a,
                .explained.arena = a};
    collect(&d, list);
    for (uint32_t i = 0; i < d.group.n; i++)
        for (uint32_t j = 0; j < d.group.at[i].node.n && detach_is(&d.group.at[i].fx); j++) {
            RawNode *n = d.group.at[i].node.at[j];
            for (uint32_t k = 0; k < n->nout; k++)
                stop_set(a, &n->stop_out, n->nout, k);
        }
    /* a branch: the names around it are not in the list */
    if (list != &m->node)
        return;
    recover(&d, list);
    if (params && params->has_signature)
        rebind_all(&d, params);
    detach_warn_untold(&d, list);
}

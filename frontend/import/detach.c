/*
 * detach.c - what the dynamo exporter leaves of detach().  In: the nodes of a model.  Out:
 * RawNode.stop_in and .stop_out.
 *
 * With optimize=False an Identity stands there, whose fx node is aten.detach.  The optimizer
 * removes it.  Then the reader's fx node has an argument that nothing in the file is called, and
 * the operand that no other argument names is what was detached: Add [linear, sub]    %add :
 * aten.add.Tensor(args = (%linear, %detach)) The optimizer also merges expressions that differ in
 * nothing but what they detach.  Where that may be, or no operand is told, the model is refused; of
 * a line of source that detaches, and of which no node tells, there is a warning.
 */
#include <string.h>

#include "stop.h"

/* of an fx node; whatever has more is not looked at */
enum { MOST_ARGUMENTS = 1000 };

typedef VEC(const char *) Names;

/* The ONNX nodes of one fx node. */
typedef struct {
    FxNode fx;
    RawNodes node;
} Group;

typedef struct {
    Arena *a;
    const Model *m;
    const Params *params;
    bool is_settled; /* --stop-gradient is given */
    VEC(Group) group;
    StrMap index, maker; /* fx node, value -> its group */
    StrMap seen;         /* lines of source that detach */
    Names untold;        /* those of which no node tells */
} Detach;

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

static bool is_detach(const FxNode *fx)
{
    return !strncmp(fx->target, "aten.detach.", 12) || !strncmp(fx->target, "aten.detach_.", 13);
}

static bool is_called_detach(const char *name)
{
    return fx_same_base(name, "detach") || fx_same_base(name, "detach_");
}

/* Has no fx node, value, initializer or input this name? */
static bool is_gone(const Detach *d, const char *name)
{
    bool there = strmap_get(&d->index, name) != NONE || strmap_get(&d->maker, name) != NONE ||
                 strmap_get(&d->m->init_index, name) != NONE;
    for (size_t i = 0; i < d->m->graph->n_input && !there; i++)
        there = !strcmp(d->m->graph->input[i]->name, name);
    return !there;
}

static bool is_lost(const Detach *d, const char *arg)
{
    return is_called_detach(arg) && is_gone(d, arg);
}

/* ---- which operand it was ---- */

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

static bool any_named(const Detach *d, const Group *g, const RawNode *n, uint32_t k)
{
    for (uint32_t j = 0; j < g->fx.n; j++)
        if (is_named(d, n, k, g->fx.arg[j].name))
            return true;
    return false;
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

/* One node whose operands are the arguments in their order; x * x.detach() is told by that alone.
 */
static bool by_position(const Detach *d, const Group *g)
{
    RawNode *n = g->node.at[0];
    if (g->node.n != 1 || n->nin != g->fx.n)
        return false;
    for (uint32_t k = 0; k < n->nin; k++) {
        const char *arg = g->fx.arg[k].name;
        if (!is_lost(d, arg) && comes_in(d, g, n, k) && !is_named(d, n, k, arg))
            return false;
    }
    for (uint32_t k = 0; k < n->nin; k++)
        if (is_lost(d, g->fx.arg[k].name))
            stop_set(d->a, &n->stop_in, n->nin, k);
    return true;
}

/* The one value that no argument names; a constant that was detached has no gradient anyway. */
static bool by_elimination(Detach *d, const Group *g)
{
    const char *left = NULL;
    bool constants = false;
    for (uint32_t j = 0; j < g->fx.n; j++) {
        bool known = is_lost(d, g->fx.arg[j].name);
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
            constants |=
                !param_is_used(n, k) && init != NONE && dtype_is_float(d->m->init.at[init].dtype);
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
    return left || constants;
}

/* Where --stop-gradient is given, its user knows. */
static void refuse(const Detach *d, Where w, const char *why)
{
    diag_hint(
        "export again with optimize=False, or name with --stop-gradient where gradients stop");
    if (!d->is_settled)
        diag_fatal(EXIT_MODEL, w, "%s", why);
    diag_warn(w, "%s", why);
}

static void find_operands(Detach *d)
{
    for (uint32_t i = 0; i < d->group.n; i++) {
        const Group *g = &d->group.at[i];
        const char *lost = NULL;
        for (uint32_t j = 0; j < g->fx.n && !lost; j++)
            lost = is_lost(d, g->fx.arg[j].name) ? g->fx.arg[j].name : NULL;
        if (lost && !by_position(d, g) && !by_elimination(d, g))
            refuse(d, raw_where(d->m, g->node.at[0], -1),
                   arena_printf(d->a,
                                "the exporter removed the result of detach() ('%.128s'), so it is "
                                "not known which operand is detached",
                                diag_escape(d->a, lost)));
    }
}

/* w.detach(), folded: the parameter, of which params/ knows it by its bits. */
static void stop_folded(const Detach *d, const RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        for (uint32_t k = 0; k < n->nin && !n->dead; k++)
            if (param_is_used(n, k) && is_called_detach(n->in[k]) &&
                strmap_get(&d->m->init_index, n->in[k]) != NONE)
                stop_set(d->a, &n->stop_in, n->nin, k);
    }
}

/* ---- what was merged ---- */

/* An argument's name that is gone, while the group reads a value of that kind that none of its
 * arguments names: b = f(x) was merged with a = f(x).  Where that is computed of something read
 * detached, b may not have been. */
static void refuse_merged(const Detach *d, const Group *g, const StrMap *tainted)
{
    for (uint32_t i = 0; i < g->node.n; i++)
        for (uint32_t k = 0; k < g->node.at[i]->nin; k++) {
            const RawNode *n = g->node.at[i];
            uint32_t maker = strmap_get(&d->maker, n->in[k]);
            if (maker == NONE || strmap_get(tainted, n->in[k]) == NONE || !comes_in(d, g, n, k) ||
                any_named(d, g, n, k))
                continue;
            for (uint32_t j = 0; j < g->fx.n; j++) {
                const char *arg = g->fx.arg[j].name;
                if (is_gone(d, arg) && !fx_is_filled(arg) &&
                    fx_same_base(d->group.at[maker].fx.name, arg))
                    refuse(d, (Where){d->m->path, "value", NONE, n->in[k], NULL, -1},
                           arena_printf(d->a,
                                        "the exporter merged it with '%.128s', which may have been "
                                        "computed from other detached values",
                                        diag_escape(d->a, arg)));
            }
        }
}

static void find_merged(const Detach *d, const RawNodes *list)
{
    StrMap tainted = {.arena = d->a};
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        bool any = false;
        for (uint32_t k = 0; k < n->nin && !n->dead; k++)
            any |= (n->stop_in && n->stop_in[k]) || strmap_get(&tainted, n->in[k]) != NONE;
        for (uint32_t k = 0; k < n->nout && any; k++)
            *strmap_at(&tainted, n->out[k]) = 1;
    }
    for (uint32_t i = 0; i < d->group.n; i++)
        refuse_merged(d, &d->group.at[i], &tainted);
}

/* ---- lines of source ---- */

/* Those in the node's stack that detach, each with the line before, which says where it is. */
static void see_lines(Detach *d, const RawNode *n, bool told)
{
    for (const char *at = n->stack; at && (at = strstr(at, ".detach(")) != NULL; at++) {
        const char *line = at;
        for (int lines = 0; line > n->stack && lines + (line[-1] == '\n') < 2; line--)
            lines += line[-1] == '\n';
        const char *key = arena_strndup(d->a, line, (size_t)(at - line) + strcspn(at, "\n")),
                   *source = strchr(key, '\n');
        uint32_t *slot = strmap_at(&d->seen, key);
        if (*slot == NONE && !told)
            vec_push(d->a, &d->untold,
                     source ? source + 1 + strspn(source + 1, " ") : key + strspn(key, " "));
        *slot = 1;
    }
}

/* The lines of nodes that detach, read what did, or make what is read detached. */
static void see_told(Detach *d, const RawNodes *list)
{
    for (uint32_t i = 0; i < d->group.n; i++) {
        const Group *g = &d->group.at[i];
        bool told = is_detach(&g->fx);
        for (uint32_t j = 0; j < g->fx.n && !told; j++)
            told = is_called_detach(g->fx.arg[j].name);
        for (uint32_t j = 0; j < g->node.n && told; j++)
            see_lines(d, g->node.at[j], true);
    }
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t k = 0; k < list->at[i]->nin && list->at[i]->stop_in; k++) {
            uint32_t maker =
                list->at[i]->stop_in[k] ? strmap_get(&d->maker, list->at[i]->in[k]) : NONE;
            for (uint32_t j = 0; maker != NONE && j < d->group.at[maker].node.n; j++)
                see_lines(d, d->group.at[maker].node.at[j], true);
        }
}

/* x.detach().clone(): the optimizer removes both, and no argument names the former. */
static void warn_untold(Detach *d, const RawNodes *list)
{
    see_told(d, list);
    for (uint32_t i = 0; i < list->n; i++)
        if (!list->at[i]->dead)
            see_lines(d, list->at[i], false);
    for (uint32_t i = 0; i < d->untold.n && !d->is_settled; i++) {
        diag_hint("export again with optimize=False, or name the value with --stop-gradient");
        diag_warn(WHERE_FILE(d->m->path),
                  "its source line calls detach(), but the file does not show on what, so the "
                  "gradient passes: %.100s",
                  diag_escape(d->a, d->untold.at[i]));
    }
}

void stop_detached(const Stops *t, const Model *m, Params *params, const RawNodes *list)
{
    Arena *a = m->arena;
    Detach d = {.a = a,
                .m = m,
                .params = params,
                .is_settled = t->opt->stop.n > 0,
                .index.arena = a,
                .maker.arena = a,
                .seen.arena = a};
    collect(&d, list);
    for (uint32_t i = 0; i < d.group.n; i++)
        for (uint32_t j = 0; j < d.group.at[i].node.n && is_detach(&d.group.at[i].fx); j++) {
            RawNode *n = d.group.at[i].node.at[j];
            for (uint32_t k = 0; k < n->nout; k++)
                stop_set(a, &n->stop_out, n->nout, k);
        }
    if (list != &m->node) /* a branch: the names around it are not in the list */
        return;
    find_operands(&d);
    stop_folded(&d, list);
    find_merged(&d, list);
    warn_untold(&d, list);
}

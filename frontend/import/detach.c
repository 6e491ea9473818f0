/*
 * detach.c - what the dynamo exporter leaves of detach().  In: the nodes of a model.  Out:
 * RawNode.stop_out.
 *
 * With optimize=False an Identity stands there, whose fx node is aten.detach.  The optimizer
 * removes it, and merges expressions that differ in nothing but what they detach.  The reader's fx
 * node still has an argument called so, which nothing in the file is: the model is refused, unless
 * the other arguments name all operands that carry a gradient (then a table of sines was detached).
 * Of a line of source that detaches, and of which no node tells, there is a warning.
 */
#include <string.h>

#include "stop.h"

typedef struct {
    Arena *a;
    const Model *m;
    const StrMap *named;      /* values that --stop-gradient names */
    const FxNode *fx;         /* by node of the list */
    StrMap made;              /* names of fx nodes, and of what nodes make: the last such node */
    StrMap several;           /* fx nodes that are several nodes */
    StrMap carries;           /* what is computed of parameters, and has a gradient */
    StrMap used;              /* operands that are parameters */
    StrMap seen;              /* lines of source that detach */
    VEC(const char *) untold; /* those of which no node tells */
} Detach;

static bool is_detach(const FxNode *fx)
{
    return fx->target &&
           (!strncmp(fx->target, "aten.detach.", 12) || !strncmp(fx->target, "aten.detach_.", 13));
}

static bool is_called_detach(const char *name)
{
    return fx_same_base(name, "detach") || fx_same_base(name, "detach_");
}

/* Does no node, input or constant have the name of this result of detach()?  A constant has no
   gradient anyway, a parameter of that name (params/ knows it by its bits) has. */
static bool is_lost(const Detach *d, const char *arg)
{
    bool there = strmap_get(&d->made, arg) != NONE ||
                 (strmap_get(&d->m->init_index, arg) != NONE && strmap_get(&d->used, arg) == NONE);
    for (size_t i = 0; i < d->m->graph->n_input && !there; i++)
        there = !strcmp(d->m->graph->input[i]->name, arg);
    return is_called_detach(arg) && !there;
}

/* One node, of which each operand that carries a gradient is named by an argument of its own; or
   none of them carries one. */
static bool is_told(const Detach *d, const RawNode *n, const FxNode *fx)
{
    bool *taken = arena_array(d->a, bool, fx->n + 1), any = false;
    for (uint32_t k = 0; k < n->nin; k++)
        any |= param_is_used(n, k) || strmap_get(&d->carries, n->in[k]) != NONE;
    if (!any)
        return true;
    if (!fx->name || strmap_get(&d->several, fx->name) != NONE)
        return false;
    for (uint32_t k = 0; k < n->nin; k++) {
        uint32_t maker = strmap_get(&d->made, n->in[k]), j = 0;
        if (param_is_used(n, k))
            return false;
        if (strmap_get(&d->carries, n->in[k]) == NONE)
            continue;
        const char *made = maker == NONE ? NULL : d->fx[maker].name;
        while (j < fx->n && (taken[j] || (strcmp(fx->arg[j].name, n->in[k]) != 0 &&
                                          (!made || strcmp(fx->arg[j].name, made) != 0))))
            j++;
        if (j == fx->n)
            return false;
        taken[j] = true;
    }
    return true;
}

/* Where --stop-gradient names a result or an operand, its user knows. */
static bool is_settled(const Detach *d, const RawNode *n)
{
    bool named = false;
    for (uint32_t k = 0; k < n->nout; k++)
        named |= strmap_get(d->named, n->out[k]) != NONE;
    for (uint32_t k = 0; k < n->nin; k++)
        named |= strmap_get(d->named, n->in[k]) != NONE;
    return named;
}

static void refuse_lost(const Detach *d, const RawNode *n, const FxNode *fx)
{
    for (uint32_t j = 0; j < fx->n; j++) {
        if (!is_lost(d, fx->arg[j].name) || is_told(d, n, fx))
            continue;
        const char *why = arena_printf(d->a,
                                       "the exporter removed the result of detach() ('%.128s'), so "
                                       "it is not known where the gradient stops",
                                       diag_escape(d->a, fx->arg[j].name));
        diag_hint(
            "export again with optimize=False, or name with --stop-gradient where gradients stop");
        if (!is_settled(d, n))
            diag_fatal(EXIT_MODEL, raw_where(d->m, n, -1), "%s", why);
        diag_warn(raw_where(d->m, n, -1), "%s", why);
        return;
    }
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

/* x.detach().clone(): the optimizer removes both, and no argument names the former. */
static void warn_untold(const Detach *d)
{
    for (uint32_t i = 0; i < d->untold.n; i++) {
        diag_hint("export again with optimize=False, or name the value with --stop-gradient");
        diag_warn(WHERE_FILE(d->m->path),
                  "its source line calls detach(), but the file does not show on what, so the "
                  "gradient passes: %.100s",
                  diag_escape(d->a, d->untold.at[i]));
    }
}

/* ---- the nodes ---- */

/* Notes what the node makes, and which of its operands are parameters. */
static void collect(Detach *d, const RawNode *n, uint32_t at)
{
    const char *name = d->fx[at].name;
    bool carries = n->bias != NONE;
    for (uint32_t k = 0; k < n->nattr; k++)
        carries |= n->attr[k]->g != NULL; /* its body may read parameters */
    for (uint32_t k = 0; k < n->nin; k++) {
        carries |= op_slot(n->domain, n->op_type, k) != 'x' &&
                   (param_is_used(n, k) || strmap_get(&d->carries, n->in[k]) != NONE);
        if (param_is_used(n, k))
            *strmap_at(&d->used, n->in[k]) = 1;
    }
    if (name && strmap_get(&d->made, name) != NONE)
        *strmap_at(&d->several, name) = 1;
    if (name)
        *strmap_at(&d->made, name) = at;
    for (uint32_t k = 0; k < n->nout; k++) {
        *strmap_at(&d->made, n->out[k]) = at;
        if (carries)
            *strmap_at(&d->carries, n->out[k]) = 1;
    }
}

static bool reads_detached(const FxNode *fx)
{
    bool any = false;
    for (uint32_t j = 0; j < fx->n && !any; j++)
        any = is_called_detach(fx->arg[j].name);
    return any;
}

void stop_detached(const StrMap *named, const Model *m, const RawNodes *list)
{
    Arena *a = m->arena;
    Detach d = {.a = a,
                .m = m,
                .named = named,
                .made.arena = a,
                .several.arena = a,
                .carries.arena = a,
                .used.arena = a,
                .seen.arena = a};
    FxNode *fx = arena_array(a, FxNode, list->n + 1);
    d.fx = fx;
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        if (n->dead)
            continue;
        if (n->fx_node)
            (void)meta_fx(a, n->fx_node, &fx[i]);
        collect(&d, n, i);
        if (is_detach(&fx[i]) || reads_detached(&fx[i]) || is_settled(&d, n))
            see_lines(&d, n, true);
        for (uint32_t k = 0; k < n->nout && is_detach(&fx[i]); k++)
            stop_result(a, n, k);
    }
    if (list != &m->node) /* a branch: the names around it are not in the list */
        return;
    for (uint32_t i = 0; i < list->n; i++)
        if (!list->at[i]->dead) {
            refuse_lost(&d, list->at[i], &fx[i]);
            see_lines(&d, list->at[i], false);
        }
    warn_untold(&d);
}

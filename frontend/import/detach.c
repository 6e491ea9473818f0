/*
 * detach.c - what the dynamo exporter leaves of detach().  In: a node, as its operands are known.
 *
 * With optimize=False an Identity stands there, whose fx node is aten.detach (stop.c).  The
 * optimizer removes it, and merges expressions that differ in nothing but what they detach.  The
 * reader's fx node still has an argument called so, which nothing in the file is: the model is
 * refused, unless the other arguments name all operands that carry a gradient (then a table of
 * sines was detached).  Of a line of source that detaches, and of which no node tells, there is a
 * warning.
 */
#include <string.h>

#include "driver.h"

static bool is_called_detach(const char *name)
{
    return fx_same_base(name, "detach") || fx_same_base(name, "detach_");
}

/* Is the node of this fx node, or does it make a value of that name? */
static bool is_of(const RawNode *n, const char *name)
{
    size_t k = strlen(name);
    bool is = n->fx_node && *n->fx_node == '%' && !strncmp(n->fx_node + 1, name, k) &&
              n->fx_node[k + 1] == ' ';
    for (uint32_t i = 0; i < n->nout; i++)
        is |= !strcmp(n->out[i], name);
    return is;
}

/* Does no node, input or constant have the name of this result of detach()?  A constant has no
   gradient anyway, a parameter of that name (params/ knows it by its bits) has. */
static bool is_lost(const ImportState *s, const char *arg)
{
    bool there = false, constant = strmap_get(&s->m->init_index, arg) != NONE;
    if (!is_called_detach(arg))
        return false;
    for (uint32_t i = 0; i < s->list->n; i++) {
        const RawNode *n = s->list->at[i];
        there |= !n->dead && is_of(n, arg);
        for (uint32_t k = 0; k < n->nin && constant; k++)
            constant = strcmp(n->in[k], arg) != 0 || !param_is_used(n, k);
    }
    for (size_t i = 0; i < s->m->graph->n_input; i++)
        there |= !strcmp(s->m->graph->input[i]->name, arg);
    return !there && !constant;
}

/* Is the argument operand k, or the fx node that makes it? */
static bool names_operand(const ImportState *s, const RawNode *n, uint32_t k, const char *arg)
{
    const RawNode *maker = raw_maker(s->list, n->in[k]);
    return !strcmp(arg, n->in[k]) || (maker && is_of(maker, arg));
}

/* The only node of its fx node, of which each operand that carries a gradient is named by an
   argument of its own; or none of them carries one. */
static bool is_told(ImportState *s, const RawNode *n, const ValueId *in, const FxNode *fx)
{
    bool *taken = arena_array(s->g->arena, bool, fx->n + 1), any = false;
    uint32_t nodes = 0;
    for (uint32_t i = 0; i < s->list->n; i++)
        nodes += !s->list->at[i]->dead && is_of(s->list->at[i], fx->name);
    for (uint32_t k = 0; k < n->nin; k++) {
        uint32_t j = 0;
        if (in[k] == NONE || !import_carries(s, in[k]))
            continue;
        any = true;
        while (j < fx->n && (taken[j] || !names_operand(s, n, k, fx->arg[j].name)))
            j++;
        if (j == fx->n || param_is_used(n, k))
            return false;
        taken[j] = true;
    }
    return !any || nodes == 1;
}

/* Where --stop-gradient names a result or an operand, its user knows. */
static bool is_settled(const ImportState *s, const RawNode *n)
{
    bool named = stop_named(s->stops, n->name);
    for (uint32_t k = 0; k < n->nout; k++)
        named |= stop_named(s->stops, n->out[k]);
    for (uint32_t k = 0; k < n->nin; k++)
        named |= stop_named(s->stops, n->in[k]);
    return named;
}

void detach_check(ImportState *s, const RawNode *n, const ValueId *in)
{
    FxNode fx;
    if (!s->opt->training || s->list != &s->m->node || !n->fx_node ||
        !strstr(n->fx_node, "%detach") || !meta_fx(s->g->arena, n->fx_node, &fx))
        return;
    for (uint32_t j = 0; j < fx.n; j++) {
        if (!is_lost(s, fx.arg[j].name) || is_told(s, n, in, &fx))
            continue;
        const char *why = arena_printf(s->g->arena,
                                       "the exporter removed the result of detach() ('%.128s'), so "
                                       "it is not known where the gradient stops",
                                       diag_escape(s->g->arena, fx.arg[j].name));
        diag_hint(
            "export again with optimize=False, or name with --stop-gradient where gradients stop");
        if (!is_settled(s, n))
            diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "%s", why);
        diag_warn(raw_where(s->m, n, -1), "%s", why);
        return;
    }
}

/* ---- lines of source ---- */

/* Does the file show what the node's line of source detaches? */
static bool is_shown(const ImportState *s, const RawNode *n)
{
    FxNode fx = {0};
    bool shown = stop_is_detach(n);
    if (n->fx_node && strstr(n->fx_node, "%detach") && !shown)
        (void)meta_fx(s->g->arena, n->fx_node, &fx);
    for (uint32_t j = 0; j < fx.n; j++)
        shown |= is_called_detach(fx.arg[j].name);
    return shown || is_settled(s, n);
}

/* x.detach().clone(): the optimizer removes both, and no argument names the former.  A line is told
 * from others by the one before, which says where it is. */
void detach_report(const ImportState *s)
{
    Arena *a = s->g->arena;
    StrMap seen = {.arena = a};
    for (int shown = 1; shown >= 0 && s->opt->training; shown--)
        for (uint32_t i = 0; i < s->m->node.n; i++) {
            const RawNode *n = s->m->node.at[i];
            const char *at = n->dead || !n->stack ? NULL : strstr(n->stack, ".detach(");
            for (bool told = at && is_shown(s, n); at && (!shown || told);
                 at = strstr(at + 1, ".detach(")) {
                const char *line = at;
                for (int lines = 0; line > n->stack && lines + (line[-1] == '\n') < 2; line--)
                    lines += line[-1] == '\n';
                const char *key = arena_strndup(a, line, (size_t)(at - line) + strcspn(at, "\n")),
                           *source = strchr(key, '\n');
                uint32_t *known = strmap_at(&seen, key);
                source = source ? source + 1 : key;
                if (*known == NONE && !shown) {
                    diag_hint("export again with optimize=False, or name the value with "
                              "--stop-gradient");
                    diag_warn(WHERE_FILE(s->m->path),
                              "its source line calls detach(), but the file does not show on what, "
                              "so the gradient passes: %.100s",
                              diag_escape(a, source + strspn(source, " ")));
                }
                *known = 1;
            }
        }
}

/*
 * detach_text.c - what names of arguments and lines of source that nodes quote tell of detach().
 * In: the groups of nodes, then with what they are known to read detached.  Out: whether a line
 * detaches something that is not known; a warning of lines that do so and that nothing explains.
 */
#include <string.h>

#include "detach.h"

/* Stack traces go from the outside in: '  File "x.py", line 3, in forward' and the line itself, by
 * turns. */
static const char *last_line(const char *stack)
{
    const char *last = stack;
    for (const char *p = stack; p && (p = strchr(p, '\n')); p++) {
        const char *line = p + 1 + strspn(p + 1, " ");
        if (*line && *line != '\n' && strncmp(line, "File ", 5))
            last = line;
    }
    return last;
}

/* ---- names ---- */

bool detach_is(const FxNode *fx)
{
    return !strncmp(fx->target, "aten.detach.", 12) || !strncmp(fx->target, "aten.detach_.", 13);
}

/* A detach that the exporter's optimizer removed: the argument's name, which no node, initializer
 * or input has. */
bool detach_is_lost(const Detach *d, const char *arg)
{
    if (!fx_same_base(arg, "detach") && !fx_same_base(arg, "detach_"))
        return false;
    bool input = false;
    for (size_t i = 0; i < d->m->graph->n_input; i++)
        input = input || !strcmp(d->m->graph->input[i]->name, arg);
    return !input && strmap_get(&d->index, arg) == NONE && strmap_get(&d->maker, arg) == NONE &&
           strmap_get(&d->m->init_index, arg) == NONE;
}

/* A detach that was removed, or whose result was folded. */
bool detach_is_gone(const Detach *d, const char *arg)
{
    return detach_is_lost(d, arg) ||
           (fx_same_base(arg, "detach") && strmap_get(&d->m->init_index, arg) != NONE);
}

/* ---- lines ---- */

/* Calls fn with every line of the node's source that detaches, and the line that says where it is.
 */
static void detaching_lines(Arena *a, const RawNode *n, void (*fn)(void *, const char *), void *to)
{
    const char *trace = n->stack;
    for (const char *at = trace; at && (at = strstr(at, ".detach(")) != NULL; at++) {
        const char *line = at, *end = at + strcspn(at, "\n");
        for (int lines = 0; line > trace && lines + (line[-1] == '\n') < 2; line--)
            lines += line[-1] == '\n';
        fn(to, arena_strndup(a, line, (size_t)(end - line)));
        at = end;
        if (!*at)
            break;
    }
}

static void explain(void *d, const char *line) { *strmap_at(&((Detach *)d)->explained, line) = 1; }

/* Lines of which it is known what they detach: of t = f(x).detach() by the reader, on the maker's
 * line. */
void detach_explain(Detach *d, const RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t k = 0; k < list->at[i]->nin && list->at[i]->stop_in; k++) {
            uint32_t maker =
                list->at[i]->stop_in[k] ? strmap_get(&d->maker, list->at[i]->in[k]) : NONE;
            for (uint32_t j = 0; maker != NONE && j < d->group.at[maker].node.n; j++)
                detaching_lines(d->a, d->group.at[maker].node.at[j], explain, d);
        }
}

/* And by an argument that names it, on the reader's line; it may have come from another one. */
static void explain_readers(Detach *d)
{
    for (uint32_t i = 0; i < d->group.n; i++) {
        const Group *g = &d->group.at[i];
        bool told = detach_is(&g->fx);
        for (uint32_t j = 0; j < g->fx.n && !told; j++)
            told = fx_same_base(g->fx.arg[j].name, "detach") ||
                   fx_same_base(g->fx.arg[j].name, "detach_");
        for (uint32_t j = 0; j < g->node.n && told; j++)
            detaching_lines(d->a, g->node.at[j], explain, d);
    }
}

typedef struct {
    const Detach *d;
    StrMap seen;
    Names line;
} Untold;

static void doubt(void *to, const char *line)
{
    Untold *l = to;
    if (strmap_get(&l->d->explained, line) != NONE || strmap_get(&l->seen, line) != NONE)
        return;
    *strmap_at(&l->seen, line) = 1;
    vec_push(l->seen.arena, &l->line, line);
}

/* Is the group's own line one that detaches what is not known? */
bool detach_is_unseen(Detach *d, const Group *g)
{
    const char *own = last_line(g->node.at[0]->stack);
    Untold l = {.d = d, .seen.arena = d->a};
    bool unseen = false;
    detaching_lines(d->a, g->node.at[0], doubt, &l);
    for (uint32_t i = 0; i < l.line.n && own; i++)
        unseen |= strstr(l.line.at[i], arena_strndup(d->a, own, strcspn(own, "\n"))) != NULL;
    return unseen;
}

/* x.detach().clone(): the optimizer removes both, and no argument names the former. */
void detach_warn_untold(Detach *d, const RawNodes *list)
{
    Untold l = {.d = d, .seen.arena = d->a};
    detach_explain(d, list);
    explain_readers(d);
    for (uint32_t i = 0; i < list->n; i++)
        if (!list->at[i]->dead)
            detaching_lines(d->a, list->at[i], doubt, &l);
    for (uint32_t i = 0; i < l.line.n && d->stops->opt->stop.n == 0; i++) {
        const char *source = strchr(l.line.at[i], '\n');
        source = source ? source + 1 + strspn(source + 1, " ") : l.line.at[i];
        diag_hint("export again with optimize=False, or name the value with --stop-gradient");
        diag_warn(WHERE_FILE(d->m->path),
                  "its source detaches, the export does not show what, the gradient passes: %.100s",
                  diag_escape(d->a, source));
    }
}

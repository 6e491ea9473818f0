/*
 * detach_text.c - what names of arguments and lines of source that nodes quote tell of detach().
 * In: the groups of nodes, then with what they are known to read detached.  Out: whether a line
 * detaches something that is not known; a warning of lines that do so and that nothing explains.
 */
#include <string.h>

#include "detach.h"

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

/* The line that the group is of, where that detaches; or NONE. */
static uint32_t line_of(Detach *d, uint32_t group)
{
    const char *stack = group == NONE ? NULL : d->group.at[group].node.at[0]->stack;
    const char *text = text_last(stack), *end = text ? text + strcspn(text, "\n") : NULL;
    const char *at = text;
    uint32_t n = 0;
    while (at && (at = strstr(at, ".detach(")) != NULL && at++ < end)
        n++;
    if (n == 0)
        return NONE;
    uint32_t *slot = strmap_at(&d->line_of, stack);
    if (*slot == NONE) {
        *slot = d->line.n;
        vec_push(d->a, &d->line,
                 ((Line){.detaches = n,
                         .known.arena = d->a,
                         .times.arena = d->a,
                         .reads.arena = d->a}));
    }
    return *slot;
}

/* What the group reads detached, where that is one value under one name: its maker, or NONE. */
static uint32_t one_detached(const Detach *d, const Group *g, const char **name)
{
    const char *value = NULL;
    *name = NULL;
    for (uint32_t j = 0; j < g->fx.n; j++) {
        const char *arg = g->fx.arg[j].name;
        if (!detach_is_gone(d, arg))
            continue;
        if (*name && strcmp(*name, arg))
            return NONE;
        *name = arg;
    }
    for (uint32_t i = 0; i < g->node.n; i++)
        for (uint32_t k = 0; g->node.at[i]->stop_in && k < g->node.at[i]->nin; k++) {
            const char *in = g->node.at[i]->in[k];
            if (g->node.at[i]->stop_in[k] && value && strcmp(value, in))
                return NONE;
            value = g->node.at[i]->stop_in[k] ? in : value;
        }
    return *name && value ? strmap_get(&d->maker, value) : NONE;
}

static void know(Line *line, const char *name)
{
    uint32_t *slot = strmap_at(&line->known, name);
    line->n_known += *slot == NONE;
    *slot = 1;
}

static void call(const Detach *d, Line *line, const FxNode *fx)
{
    uint32_t *times = strmap_at(&line->times, fx->target);
    *times = *times == NONE ? 1 : *times + 1;
    for (uint32_t j = 0; j < fx->n; j++)
        if (detach_is_gone(d, fx->arg[j].name))
            *strmap_at(&line->reads, fx->target) = 1;
}

/* Does something that is left read each detach that was made before the last of them? */
static bool are_all_read(const Detach *d)
{
    StrMap read = {.arena = d->a};
    long last = 0;
    for (uint32_t i = 0; i < d->group.n; i++)
        for (uint32_t j = 0; j < d->group.at[i].fx.n; j++) {
            const char *arg = d->group.at[i].fx.arg[j].name;
            if (!fx_same_base(arg, "detach"))
                continue;
            *strmap_at(&read, arg) = 1;
            last = fx_number(arg) > last ? fx_number(arg) : last;
        }
    return !fx_may_lack(d->a, &read, "detach", last);
}

/* What is made and read detached on one line is detached there.  What is read detached on a line
 * that does not detach may be detached behind the line that makes it; but then any other detach of
 * that line came before, and is read by nothing that is left. */
void detach_find_lines(Detach *d)
{
    bool all_read = are_all_read(d);
    for (uint32_t i = 0; i < d->group.n; i++) {
        const char *name;
        uint32_t maker = one_detached(d, &d->group.at[i], &name), own = line_of(d, i),
                 made = line_of(d, maker);
        if (own != NONE)
            call(d, &d->line.at[own], &d->group.at[i].fx);
        if (made != NONE && (made == own || (own == NONE && all_read)))
            know(&d->line.at[made], name);
    }
}

/* The group's line of source detaches, and no argument is what it detached.  What the line detaches
 * may be known otherwise; it may run several times. */
bool detach_is_unseen(Detach *d, const Group *g)
{
    uint32_t at = line_of(d, (uint32_t)(g - d->group.at));
    for (uint32_t j = 0; j < g->fx.n; j++)
        if (detach_is_lost(d, g->fx.arg[j].name))
            return false;
    if (at == NONE)
        return false;
    const Line *line = &d->line.at[at];
    uint64_t wanted = line->detaches;
    if (wanted > 1 || strmap_get(&line->reads, g->fx.target) != NONE)
        wanted *= strmap_get(&line->times, g->fx.target);
    return line->n_known < wanted;
}

/* ---- what it leaves no trace of but the line of source ---- */

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

typedef struct { StrMap explained, seen; Names line; } Lines;

static void explain(void *lines, const char *line)
{
    *strmap_at(&((Lines *)lines)->explained, line) = 1;
}

static void doubt(void *to, const char *line)
{
    Lines *l = to;
    if (strmap_get(&l->explained, line) != NONE || strmap_get(&l->seen, line) != NONE)
        return;
    *strmap_at(&l->seen, line) = 1;
    vec_push(l->seen.arena, &l->line, line);
}

/* x.detach().clone(): the optimizer removes both, and no argument names the former. */
void detach_warn_untold(Detach *d, const RawNodes *list)
{
    Lines l = {.explained.arena = d->a, .seen.arena = d->a};
    for (uint32_t i = 0; i < d->group.n; i++) {
        const Group *g = &d->group.at[i];
        bool told = detach_is(&g->fx);
        for (uint32_t j = 0; j < g->fx.n; j++)
            told = told || fx_same_base(g->fx.arg[j].name, "detach") ||
                   fx_same_base(g->fx.arg[j].name, "detach_");
        for (uint32_t j = 0; j < g->node.n && told; j++)
            detaching_lines(d->a, g->node.at[j], explain, &l);
    }
    /* t = f(x).detach(): told by the reader, on the maker's line */
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t k = 0; k < list->at[i]->nin && list->at[i]->stop_in; k++) {
            uint32_t maker =
                list->at[i]->stop_in[k] ? strmap_get(&d->maker, list->at[i]->in[k]) : NONE;
            for (uint32_t j = 0; maker != NONE && j < d->group.at[maker].node.n; j++)
                detaching_lines(d->a, d->group.at[maker].node.at[j], explain, &l);
        }
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

/*
 * label.c - a few words for each stage: the largest modules that lie in it whole, in graph order.
 */
#include <string.h>

#include "partition.h"

#define SHARED (UINT32_MAX - 1)
enum { DEEPEST = 64 }; /* of a scope, components that are looked at: scopes are untrusted */

typedef struct {
    const Pipe *p;
    Arena *a;
    StrMap stage_of; /* module path -> the one stage it lies in, or SHARED */
} Labels;

/* The first `length` bytes of scope, up to the next dot after position at. */
static size_t next_prefix(const char *scope, size_t at)
{
    while (scope[at] && scope[at] != '.')
        at++;
    return at;
}

static void note(Labels *l, const char *scope, uint32_t stage)
{
    int depth = 0;
    for (size_t at = next_prefix(scope, 0);; at = next_prefix(scope, at + 1)) {
        uint32_t *slot = strmap_at(&l->stage_of, arena_strndup(l->a, scope, at));
        *slot = *slot == NONE || *slot == stage ? stage : SHARED;
        if (!scope[at] || ++depth == DEEPEST)
            break;
    }
}

/* The largest module around scope that lies in this stage alone; NULL: none. */
static const char *whole(Labels *l, const char *scope, uint32_t stage)
{
    int depth = 0;
    for (size_t at = next_prefix(scope, 0);; at = next_prefix(scope, at + 1)) {
        char *module = arena_strndup(l->a, scope, at);
        if (strmap_get(&l->stage_of, module) == stage)
            return module;
        if (!scope[at] || ++depth == DEEPEST)
            return NULL;
    }
}

static const char *join(Arena *a, const char *const *name, uint32_t n)
{
    if (n == 0)
        return "";
    if (n > 4)
        return arena_printf(a, "%s, %s, ..., %s", name[0], name[1], name[n - 1]);
    const char *text = name[0];
    for (uint32_t i = 1; i < n; i++)
        text = arena_printf(a, "%s, %s", text, name[i]);
    return text;
}

static const char *first_part(Labels *l, const char *scope)
{
    return arena_strndup(l->a, scope, next_prefix(scope, 0));
}

/* any: modules that other stages share too. */
static const char *label(Labels *l, const Stage *s, bool any)
{
    const Graph *g = l->p->graph;
    StrMap seen = {.arena = l->a};
    VEC(const char *) names = {0};
    for (uint32_t k = 0; k < s->nodes.n; k++) {
        const char *scope = graph_scope(g, s->nodes.at[k]);
        const char *module =
            *scope ? (any ? first_part(l, scope) : whole(l, scope, s->index)) : NULL;
        if (!module)
            continue;
        uint32_t *slot = strmap_at(&seen, module);
        if (*slot == NONE) {
            *slot = 0;
            vec_push(l->a, &names, module);
        }
    }
    return names.n == 0 && !any ? label(l, s, true)
                                : arena_strdup(g->arena, join(l->a, names.at, names.n));
}

void label_stages(Pipe *p)
{
    Labels l = {.p = p, .a = arena_within(p->graph->arena)};
    l.stage_of.arena = l.a;
    for (uint32_t t = 0; t < p->stage.n; t++)
        for (uint32_t k = 0; k < p->stage.at[t].nodes.n; k++) {
            const char *scope = graph_scope(p->graph, p->stage.at[t].nodes.at[k]);
            if (*scope)
                note(&l, scope, t);
        }
    for (uint32_t t = 0; t < p->stage.n; t++)
        p->stage.at[t].label = label(&l, &p->stage.at[t], false);
    arena_free(l.a);
}

/*
 * points.c - what --split says, as single split points.
 *
 * In: POINT,... each of them PATH:begin, PATH:end or the name of a node or value; a PATH may have
 * *, ? and [...] in its components.  Out: points without any of that; of a pattern those of all
 * modules that it matches, in the graph's order, at any depth, the outermost ones where a module
 * that matches lies in another.
 */
#include <fnmatch.h>
#include <string.h>

#include "points.h"

/* Does the text, as it stands, name a node or a value? */
static bool is_name(const Graph *g, const char *text)
{
    for (uint32_t o = 1; o < g->origin.n; o++)
        if (g->origin.at[o].name && strcmp(g->origin.at[o].name, text) == 0)
            return true;
    return strmap_get(&g->by_name, text) != NONE;
}

/* Do as many components of path, from its start, match those of the pattern?  Their length, or 0.
 */
static size_t match_here(Arena *a, const char *path, const char *pattern)
{
    const char *at = path;
    for (;;) {
        size_t n = strcspn(at, "."), k = strcspn(pattern, ".");
        if (n == 0 || fnmatch(arena_strndup(a, pattern, k), arena_strndup(a, at, n), 0) != 0)
            return 0;
        at += n, pattern += k;
        if (!*pattern)
            return (size_t)(at - path);
        if (!*at)
            return 0;
        at++, pattern++;
    }
}

/* The length of the shortest prefix of path that ends in what the pattern matches; 0: none.  One
 * that begins with a dot matches at the top only. */
static size_t match_pattern(Arena *a, const char *path, const char *pattern)
{
    bool top = pattern[0] == '.';
    for (const char *at = path; at && *at; at = strchr(at, '.'), at = at ? at + 1 : NULL) {
        size_t n = match_here(a, at, pattern + top);
        if (n > 0)
            return (size_t)(at - path) + n;
        if (top)
            return 0;
    }
    return 0;
}

typedef struct {
    Arena *a;
    StrMap seen;
    SplitPoints *out;
    const char *pattern, *side;
} Pattern;

static void match_path(Pattern *p, const char *path)
{
    size_t n = path ? match_pattern(p->a, path, p->pattern) : 0;
    if (n == 0)
        return;
    char *module = arena_strndup(p->a, path, n);
    uint32_t *slot = strmap_at(&p->seen, module);
    if (*slot != NONE)
        return;
    *slot = 1;
    SplitPoint point = {arena_printf(p->a, ".%s%s", module, p->side), true, false};
    vec_push(p->a, p->out, point);
}

/* The modules of nodes; where none matches, those of parameters. */
static void expand(const Graph *g, Pattern *p)
{
    uint32_t before = p->out->n;
    for (NodeId n = 0; n < g->node.n; n++) {
        uint32_t o = g->node.at[n].origin;
        if (o < g->origin.n)
            match_path(p, g->origin.at[o].scope);
    }
    for (uint32_t i = 0; p->out->n == before && i < g->param.n; i++)
        match_path(p, g->param.at[i].name);
}

static void one_point(const Graph *g, Arena *a, const char *text, SplitPoints *out)
{
    const char *side = strrchr(text, ':');
    bool sided = side && (strcmp(side, ":begin") == 0 || strcmp(side, ":end") == 0);
    bool named = is_name(g, text);
    if (!sided || strcspn(text, "*?[") == strlen(text) || named) {
        vec_push(a, out, ((SplitPoint){text, false, named}));
        return;
    }
    Pattern p = {.a = a, .seen = {.arena = a}, .out = out, .side = side};
    p.pattern = arena_strndup(a, text, (size_t)(side - text));
    uint32_t before = out->n;
    expand(g, &p);
    if (out->n > before)
        return;
    diag_hint("'ppsplit ls MODEL.onnx' shows the modules; * stands for one component or a part of it");
    diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "split point '%s': no module matches", text);
}

void split_points(const Graph *g, Arena *a, const char *text, SplitPoints *out)
{
    if (is_name(g, text)) {
        vec_push(a, out, ((SplitPoint){text, false, true}));
        return;
    }
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        const char *point = arena_strndup(a, at, n);
        if (n == 0) {
            diag_hint("a comma stands between two points");
            diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "--split '%s': an empty point", text);
        }
        one_point(g, a, point, out);
        at += n;
        if (!*at)
            return;
    }
}

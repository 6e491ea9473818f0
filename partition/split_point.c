/*
 * split_point.c - from a --split option to cuts.
 *
 * In: POINT,... each of them PATH:begin, PATH:end or the name of a node or value; a PATH may have
 * *, ? and [...] in its components.  Out: a cut for each; of a pattern for all modules that it
 * matches, at any depth, the outermost ones where a module that matches lies in another.
 */
#include <stdlib.h>
#include <string.h>

#include "split_int.h"

void split_cut(Split *s, NodeId at, const char *text)
{
    if (s->inside[at])
        diag_warn(WHERE_FILE(s->g->file),
                  "%s is inside of an attention, which is one operation: the stage begins before it",
                  text);
    while (s->inside[at])
        at--;
    Cut c = {at, text, s->of_pattern, false};
    vec_push(s->a, &s->cut, c);
}

/* ---- nodes and values ------------------------------------------------------------------------ */

/* The core nodes of one ONNX node; false when none is left (folded away, or an identity). */
static bool origin_span(const Split *s, uint32_t origin, Span *span)
{
    const Graph *g = s->g;
    for (int pass = 0; pass < 2; pass++) {
        bool found = false;
        for (NodeId n = 0; n < g->node.n; n++)
            if (g->node.at[n].origin == origin && (pass == 1 || split_on_data(s, n))) {
                if (!found)
                    span->first = n;
                span->last = n;
                found = true;
            }
        if (found)
            return true;
    }
    return false;
}

/* The first node after everything that ONNX node made: where the next stage begins when a cut
 * follows it. */
NodeId split_after(const Split *s, uint32_t origin)
{
    const Graph *g = s->g;
    NodeId last = NONE;
    for (NodeId n = 0; n < g->node.n; n++) {
        uint32_t o = g->node.at[n].origin;
        if (o > origin && split_on_data(s, n))
            return n;
        if (o > 0)
            last = n;
    }
    return last == NONE ? 0 : last + 1;
}

static uint32_t find_origin(const Graph *g, const char *name)
{
    for (uint32_t o = 1; o < g->origin.n; o++)
        if (g->origin.at[o].name && strcmp(g->origin.at[o].name, name) == 0)
            return o;
    return NONE;
}

/* Does the text, as it stands, name a node or a value? */
static bool is_name(const Graph *g, const char *text)
{
    return find_origin(g, text) != NONE || strmap_get(&g->by_name, text) != NONE;
}

/* Before or after the node of the file that makes v: a cut divides none. */
static NodeId beside_value(const Graph *g, ValueId v, char side)
{
    NodeId n = val(g, v)->node;
    uint32_t o = g->node.at[n].origin;
    while (o && side == 'b' && n > 0 && g->node.at[n - 1].origin == o)
        n--;
    while (o && side != 'b' && n + 1 < g->node.n && g->node.at[n + 1].origin == o)
        n++;
    return n + (side != 'b');
}

/* Is a cut before (or after) the node of the file one inside of a norm? */
static bool inside_norm(const Graph *g, uint32_t origin, bool after)
{
    const uint32_t last = g->origin.at[origin].norm;
    uint32_t first = 1;
    while (last && g->origin.at[first].norm != last)
        first++;
    return last && origin != (after ? last : first);
}

static void tell_norm(const Split *s, const char *shown, const char *where)
{
    diag_warn(WHERE_FILE(s->g->file),
              "%s is inside of a norm, which is one operation: the stage begins %s it", shown,
              where);
}

/* A node's or a value's name. side: 'b' before, 'e' after, 0: before a node, after a value's
 * producer. */
static bool cut_name(Split *s, const char *name, char side, const char *text)
{
    const Graph *g = s->g;
    const char *shown = arena_printf(s->a, "'%s'", text);
    uint32_t o = find_origin(g, name);
    if (o != NONE) {
        Span span;
        bool there = origin_span(s, o, &span);
        if (inside_norm(g, o, side == 'e'))
            tell_norm(s, shown, "before");
        if (side == 'e')
            split_cut(s, there ? span.last + 1 : split_after(s, o), shown);
        else
            split_cut(s, there ? span.first : split_after(s, o), shown);
        return true;
    }
    ValueId v = strmap_get(&g->by_name, name);
    if (v == NONE)
        return false;
    if (val(g, v)->kind != V_NODE) {
        static const char *const kind[] = {"an input", "a parameter", "a constant"};
        diag_hint("cut at a value that a node makes; 'ppsplit ls' shows the modules");
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "split point '%s' is %s of the model: there is nothing before it", text,
                   kind[val(g, v)->kind]);
    }
    const NodeId at = beside_value(g, v, side);
    const NodeId made = val(g, v)->node;
    if (at != made + (side != 'b') && g->origin.at[g->node.at[made].origin].norm)
        tell_norm(s, shown, side == 'b' ? "before" : "behind");
    split_cut(s, at, shown);
    return true;
}

/* ---- one --split option ---------------------------------------------------------------------- */

static uint32_t components(const char *path)
{
    uint32_t n = 1;
    for (; *path; path++)
        n += *path == '.';
    return n;
}

/* Every run of as many components as the path has, of every name: what the user may have meant. */
static const char *nearest_path(const Split *s, const char *path, const char *const *names,
                                uint32_t n)
{
    enum { MANY = 20000 };
    StrMap seen = {.arena = s->a};
    VEC(const char *) runs = {0};
    uint32_t want = components(path);
    for (uint32_t i = 0; i < n && runs.n < MANY; i++)
        for (const char *at = names[i]; at && *at; at = strchr(at, '.'), at = at ? at + 1 : NULL) {
            const char *end = at;
            for (uint32_t k = 0; k < want && end; k++)
                end = strchr(end + (k > 0), '.');
            char *run = end ? arena_strndup(s->a, at, (size_t)(end - at)) : arena_strdup(s->a, at);
            uint32_t *slot = strmap_at(&seen, run);
            if (*slot == NONE && components(run) == want) {
                *slot = runs.n;
                vec_push(s->a, &runs, run);
            }
        }
    return nearest_name(path, runs.at, runs.n);
}

/* PATH:begn.  False: it is not that. */
static bool hint_side(const char *text)
{
    static const char *const side[] = {"begin", "end"};
    const char *colon = strrchr(text, ':'), *near = colon ? nearest_name(colon + 1, side, 2) : NULL;
    if (!near || !strcmp(near, colon + 1))
        return false;
    diag_hint("did you mean '%.*s%s'?", (int)(colon + 1 - text), text, near);
    return true;
}

static _Noreturn void unknown(Split *s, const char *path, const char *suffix, const char *text)
{
    const Graph *g = s->g;
    VEC(const char *) names = {0}, exact = {0};
    for (uint32_t o = 0; o < g->origin.n; o++) {
        if (g->origin.at[o].scope && *g->origin.at[o].scope)
            vec_push(s->a, &names, g->origin.at[o].scope);
        if (g->origin.at[o].name && *g->origin.at[o].name)
            vec_push(s->a, &exact, g->origin.at[o].name);
    }
    for (uint32_t i = 0; i < g->param.n; i++)
        vec_push(s->a, &names, g->param.at[i].name);
    if (s->of_run)
        diag_note(
            "the program in the trace of --costs was cut there: was it made from this model?");
    bool said = hint_side(text);
    const char *near = said ? NULL : nearest_path(s, path, names.at, names.n);
    if (near)
        diag_hint("did you mean '%s%s'?", near, *suffix ? suffix : ":begin");
    else if (!said && (near = nearest_name(path, exact.at, exact.n < 20000 ? exact.n : 20000)))
        diag_hint("did you mean node '%s'?", near);
    diag_hint("'ppsplit ls MODEL.onnx' shows where one can split");
    diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
               "split point '%s': no module, node or value has that name", text);
}

static void cut_pattern(Split *s, const char *path, const char *suffix, const char *text);

/* exact: no component of the path is a pattern */
static void cut_option(Split *s, const char *text, bool exact)
{
    size_t n = strlen(text);
    char side = 0;
    const char *suffix = "";
    if (n > 6 && strcmp(text + n - 6, ":begin") == 0) {
        side = 'b';
        suffix = ":begin";
    } else if (n > 4 && strcmp(text + n - 4, ":end") == 0) {
        side = 'e';
        suffix = ":end";
    }
    char *path = arena_strndup(s->a, text, n - strlen(suffix));
    const char *shown = arena_printf(s->a, "'%s'", text);
    Spans spans = {0};
    if (side && !exact && strpbrk(text, "*?[")) {
        cut_pattern(s, path, suffix, text);
        return;
    }
    if (side == 0) {
        if (cut_name(s, path, 0, text))
            return;
        if (split_find(s, path, text, &spans)) {
            diag_hint("write '%s:begin' or '%s:end'", path, path);
            diag_fatal(EXIT_USAGE, WHERE_FILE(s->g->file),
                       "split point '%s' is a module: cut before or after it?", text);
        }
        unknown(s, path, suffix, text);
    }
    if (!split_find(s, path, text, &spans)) {
        if (cut_name(s, path, side, text))
            return;
        unknown(s, path, suffix, text);
    }
    for (uint32_t i = 0; i < spans.n; i++)
        split_cut(s, side == 'b' ? spans.at[i].first : spans.at[i].last + 1, shown);
}

/* What a pattern gives is left out where nothing would be computed before or after it. */
static void cut_pattern(Split *s, const char *path, const char *suffix, const char *text)
{
    const Strings module = split_modules(s, path);
    if (module.n == 0) {
        diag_hint("'ppsplit ls MODEL.onnx' shows the modules; * stands for one component or a part "
                  "of it");
        diag_fatal(EXIT_USAGE, WHERE_FILE(s->g->file), "split point '%s': no module matches", text);
    }
    s->of_pattern = true;
    for (uint32_t i = 0; i < module.n; i++)
        cut_option(s, arena_printf(s->a, ".%s%s", module.at[i], suffix), true);
    s->of_pattern = false;
}

/* All points of a --split option, which as a whole may be a name. */
void split_cut_points(Split *s, const char *text)
{
    if (is_name(s->g, text)) {
        (void)cut_name(s, text, 0, text);
        return;
    }
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        const char *point = arena_strndup(s->a, at, n);
        if (n == 0) {
            diag_hint("a comma stands between two points");
            diag_fatal(EXIT_USAGE, WHERE_FILE(s->g->file), "--split '%s': an empty point", text);
        }
        if (!is_name(s->g, point) || !cut_name(s, point, 0, point))
            cut_option(s, point, false);
        at += n;
        if (!*at)
            return;
    }
}

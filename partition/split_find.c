/*
 * split_find.c - from a path to the nodes of a module: by the scopes that an exporter left, or by
 * the parameters that a module uses.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "split_int.h"

/* ---- paths ----------------------------------------------------------------------------------- */

static bool is_component(Arena *a, const char *name, size_t n, const char *pattern, size_t k)
{
    if (n == k && strncmp(name, pattern, n) == 0)
        return true;
    return strcspn(pattern, "*?[") < k &&
           fnmatch(arena_strndup(a, pattern, k), arena_strndup(a, name, n), 0) == 0;
}

/* Do as many components of the scope, from its start, match those of the path?  Their length, or 0.
 */
static size_t match_here(Arena *a, const char *scope, const char *path)
{
    const char *at = scope;
    for (;; at++, path++) {
        size_t n = strcspn(at, "."), k = strcspn(path, ".");
        if (n == 0 || !is_component(a, at, n, path, k))
            return 0;
        at += n, path += k;
        if (!*path || !*at)
            return *path ? 0 : (size_t)(at - scope);
    }
}

/*
 * The length of the shortest prefix of scope that ends in the path, matched by whole components; 0:
 * none. A path that begins with a dot matches at the top only.
 */
size_t split_match(Arena *a, const char *scope, const char *path)
{
    bool top = path[0] == '.';
    for (const char *at = scope; at && *at; at = strchr(at, '.'), at = at ? at + 1 : NULL) {
        size_t n = match_here(a, at, path + top);
        if (n > 0 || top)
            return n > 0 ? (size_t)(at - scope) + n : 0;
    }
    return 0;
}

bool split_under(const char *scope, const char *module)
{
    size_t n = strlen(module);
    return n == 0 || (strncmp(scope, module, n) == 0 && (scope[n] == '.' || scope[n] == '\0'));
}

static uint32_t node_call(const Graph *g, NodeId n)
{
    uint32_t o = g->node.at[n].origin;
    return o < g->origin.n ? g->origin.at[o].call : 0;
}

static _Noreturn void ambiguous(const Split *s, const char *text, const Strings *module)
{
    for (uint32_t i = 0; i < module->n && i < 8; i++)
        diag_note("it matches '%s'", module->at[i]);
    if (module->n > 8)
        diag_note("and %u more", module->n - 8);
    diag_hint("give more of the path; a leading dot means the top of the model");
    diag_fatal(EXIT_USAGE, WHERE_FILE(s->g->file), "split point '%s' is ambiguous", text);
}

/* The modules among names (scopes, parameters) that the path matches, as full paths. */
static Strings modules_of(const Split *s, const char *path, const Strings *names)
{
    StrMap seen = {.arena = s->a};
    Strings module = {0};
    for (uint32_t i = 0; i < names->n; i++) {
        size_t length = split_match(s->a, names->at[i], path);
        char *name = length ? arena_strndup(s->a, names->at[i], length) : NULL;
        uint32_t *slot = name ? strmap_at(&seen, name) : NULL;
        if (slot && *slot == NONE) {
            *slot = i;
            vec_push(s->a, &module, name);
        }
    }
    return module;
}

/* The one; NULL: none. */
static const char *find_module(const Split *s, const char *path, const char *text,
                               const Strings *names)
{
    const Strings module = modules_of(s, path, names);
    if (module.n > 1)
        ambiguous(s, text, &module);
    return module.n == 1 ? module.at[0] : NULL;
}

static bool same_place(const Graph *g, NodeId m, NodeId n)
{
    return g->node.at[m].op == g->node.at[n].op &&
           strcmp(graph_scope(g, m), graph_scope(g, n)) == 0;
}

/* Does a node of another module stand between two nodes? */
static bool interrupted(const Split *s, NodeId from, NodeId to)
{
    for (NodeId n = from + 1; n < to; n++)
        if (split_on_data(s, n) && s->live[n])
            return true;
    return false;
}

/* Where no call is numbered (dynamo's exports): the same nodes over and over with others in between
 * are calls. */
static Spans repeated_spans(const Split *s, const Ids *nodes)
{
    Spans spans = {0};
    for (uint32_t p = 1; p < nodes->n; p++) {
        bool repeats = nodes->n % p == 0;
        for (uint32_t i = p; i < nodes->n && repeats; i++)
            repeats = same_place(s->g, nodes->at[i], nodes->at[i - p]) &&
                      (i % p != 0 || interrupted(s, nodes->at[i - 1], nodes->at[i]));
        for (uint32_t i = 0; i < nodes->n && repeats; i += p) {
            Span span = {nodes->at[i], nodes->at[i + p - 1]};
            vec_push(s->a, &spans, span);
        }
        if (repeats)
            break;
    }
    return spans;
}

/*
 * Nodes of a module as one span per call.  Origin.call numbers calls of the module itself or of one
 * inside it: a new call of the module begins where the number grows, the first node is the first
 * call's first node again, and about as many nodes follow.
 */
Spans split_calls(const Split *s, const Ids *nodes)
{
    const Graph *g = s->g;
    Spans spans = {0};
    uint32_t highest = node_call(g, nodes->at[0]), first = 0, per_call = 0;
    for (uint32_t i = 0; i < nodes->n; i++)
        per_call += node_call(g, nodes->at[i]) == highest;
    for (uint32_t i = 0; i < nodes->n; i++) {
        NodeId n = nodes->at[i];
        uint32_t call = node_call(g, n), count = 0;
        if (i > 0 && call > highest && same_place(g, n, nodes->at[first]))
            for (uint32_t j = i; j < nodes->n; j++)
                count += node_call(g, nodes->at[j]) == call;
        if (i == 0 || 2 * count > per_call) {
            Span span = {n, n};
            vec_push(s->a, &spans, span);
            highest = call;
        }
        spans.at[spans.n - 1].last = n;
    }
    Spans repeated = {0};
    if (spans.n == 1)
        repeated = repeated_spans(s, nodes);
    return repeated.n > 1 ? repeated : spans;
}

/* The nodes of a scope: those that depend on data, or all when none does. */
Ids split_nodes_under(const Split *s, const char *module)
{
    const Graph *g = s->g;
    Ids with = {0}, all = {0};
    for (NodeId n = 0; n < g->node.n; n++)
        if (split_under(graph_scope(g, n), module) && graph_scope(g, n)[0]) {
            vec_push(s->a, &all, n);
            if (split_on_data(s, n) && s->live[n])
                vec_push(s->a, &with, n);
        }
    return with.n > 0 ? with : all;
}

/* ---- modules without a scope: by the parameters they use ------------------------------------- */

static Strings parameters(const Split *s)
{
    Strings list = {0};
    for (uint32_t i = 0; i < s->g->param.n; i++)
        vec_push(s->a, &list, s->g->param.at[i].name);
    return list;
}

/* Data nodes that read value v, or a view of it. */
static Ids consumers_of(const Split *s, const bool *from)
{
    const Graph *g = s->g;
    bool *reach = arena_array(s->a, bool, g->value.n + 1);
    memcpy(reach, from, g->value.n * sizeof *reach);
    Ids out = {0};
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        bool reads = false;
        for (uint32_t i = 0; i < x->nin; i++)
            reads |= x->in[i] != NONE && reach[x->in[i]];
        if (!reads || !s->live[n])
            continue;
        if (split_on_data(s, n))
            vec_push(s->a, &out, n);
        else
            for (uint32_t i = 0; i < x->nout; i++)
                reach[x->out[i]] = true;
    }
    return out;
}

static char *common_scope(const Split *s, const Ids *nodes)
{
    char *common = arena_strdup(s->a, graph_scope(s->g, nodes->at[0]));
    for (uint32_t i = 1; i < nodes->n; i++)
        while (!split_under(graph_scope(s->g, nodes->at[i]), common)) {
            char *dot = strrchr(common, '.');
            *(dot ? dot : common) = '\0';
        }
    return common;
}

/*
 * The deepest scope common to the nodes that consume the module's parameters; when that scope uses
 * other parameters too it is a larger module, and the consumers alone are what we know of this one.
 */
static bool spans_by_param(const Split *s, const char *path, const char *text, Spans *spans)
{
    const Graph *g = s->g;
    const Strings names = parameters(s);
    const char *module = find_module(s, path, text, &names);
    if (!module)
        return false;
    bool *own = arena_array(s->a, bool, g->value.n + 1),
         *other = arena_array(s->a, bool, g->value.n + 1);
    for (uint32_t i = 0; i < g->param.n; i++)
        (split_under(names.at[i], module) ? own : other)[g->param.at[i].value] = true;
    Ids users = consumers_of(s, own);
    if (users.n == 0)
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "split point '%s': no node uses the parameters of '%s'", text, module);
    const char *scope = common_scope(s, &users);
    Ids strangers = consumers_of(s, other);
    bool larger = scope[0] == '\0';
    for (uint32_t i = 0; i < strangers.n; i++)
        larger |= split_under(graph_scope(g, strangers.at[i]), scope);
    if (larger) {
        Span span = {users.at[0], users.at[users.n - 1]};
        vec_push(s->a, spans, span);
        return true;
    }
    Ids nodes = split_nodes_under(s, scope);
    *spans = split_calls(s, &nodes);
    return true;
}

/* ---- both ways ------------------------------------------------------------------------------- */

static Strings scopes(const Split *s)
{
    Strings list = {0};
    for (NodeId n = 0; n < s->g->node.n; n++)
        vec_push(s->a, &list, graph_scope(s->g, n));
    return list;
}

/* A parameter says of what modules there are, where no scope does. */
Strings split_modules(const Split *s, const char *path)
{
    const Strings of_nodes = scopes(s), of_parameters = parameters(s),
                  module = modules_of(s, path, &of_nodes);
    return module.n > 0 ? module : modules_of(s, path, &of_parameters);
}

bool split_find(Split *s, const char *path, const char *text, Spans *spans)
{
    const Strings names = scopes(s);
    const char *module = find_module(s, path, text, &names);
    if (!module)
        return spans_by_param(s, path, text, spans);
    Ids nodes = split_nodes_under(s, module);
    *spans = split_calls(s, &nodes);
    return true;
}

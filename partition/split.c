/*
 * split.c - from split points to a stage number for every node.
 *
 * In: the graph, --split options, in-graph markers, pipeline_stage annotations.  Out: stage_of[node
 * id]. Every kind of split point becomes a cut: a node id before which a new stage begins.  Only
 * nodes that depend on a data input count for "first" and "last": masks, tables and views of
 * weights may stand anywhere.  Those that do not are placed with their first consumer.
 */
#include <stdlib.h>
#include <string.h>

#include "points.h"

typedef struct {
    NodeId at;
    const char *text;
    bool of_pattern; /* goes where it would leave the first or the last stage empty */
    bool of_model;   /* a marker or an annotation says so */
} Cut;
typedef struct {
    NodeId first, last;
} Span;
typedef VEC(Span) Spans;

typedef struct {
    Graph *g;
    Arena *a;
    bool *data; /* by value id: depends on a data input */
    bool *live; /* by node id: something reads what it makes, in the end */
    bool of_pattern; /* the point that is being resolved */
    VEC(Cut) cut;
} Split;

static bool is_data_node(const Split *s, NodeId n) { return s->data[s->g->node.at[n].out[0]]; }

static void find_data(Split *s)
{
    const Graph *g = s->g;
    s->data = arena_array(s->a, bool, g->value.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        s->data[v] = val(g, v)->kind == V_INPUT;
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        bool data = false;
        for (uint32_t i = 0; i < x->nin; i++)
            data |= x->in[i] != NONE && s->data[x->in[i]];
        for (uint32_t i = 0; i < x->nout; i++)
            s->data[x->out[i]] = data;
    }
}

static void find_live(Split *s, ValueId loss)
{
    Ids root = graph_results(s->g, s->a);
    if (loss != NONE)
        vec_push(s->a, &root, loss);
    s->live = graph_live(s->g, s->a, 0, &root, 1);
}

static void add_cut(Split *s, NodeId at, const char *text)
{
    Cut c = {at, text, s->of_pattern, false};
    vec_push(s->a, &s->cut, c);
}

/* ---- paths ----------------------------------------------------------------------------------- */

/*
 * The length of the shortest prefix of scope that ends in the path, matched by whole components; 0:
 * none. A path that begins with a dot matches at the top only.
 */
static size_t match_path(const char *scope, const char *path)
{
    bool top = path[0] == '.';
    size_t n = strlen(path += top);
    if (n == 0)
        return 0;
    for (const char *at = scope; at && *at;) {
        if (strncmp(at, path, n) == 0 && (at[n] == '.' || at[n] == '\0'))
            return (size_t)(at - scope) + n;
        at = top ? NULL : strchr(at, '.');
        if (at)
            at++;
    }
    return 0;
}

static bool under(const char *scope, const char *module)
{
    size_t n = strlen(module);
    return n == 0 || (strncmp(scope, module, n) == 0 && (scope[n] == '.' || scope[n] == '\0'));
}

static const char *node_scope(const Graph *g, NodeId n)
{
    uint32_t o = g->node.at[n].origin;
    const char *scope = o < g->origin.n ? g->origin.at[o].scope : NULL;
    return scope ? scope : "";
}

static uint32_t node_call(const Graph *g, NodeId n)
{
    uint32_t o = g->node.at[n].origin;
    return o < g->origin.n ? g->origin.at[o].call : 0;
}

static _Noreturn void ambiguous(const Split *s, const char *text, const Ids *which,
                                const char *const *name)
{
    for (uint32_t i = 0; i < which->n && i < 8; i++)
        diag_note("it matches '%s'", name[which->at[i]]);
    if (which->n > 8)
        diag_note("and %u more", which->n - 8);
    diag_hint("give more of the path; a leading dot means the top of the model");
    diag_fatal(EXIT_USAGE, WHERE_FILE(s->g->file), "split point '%s' is ambiguous", text);
}

/*
 * The one module among n names (scopes, parameter names) that path matches, as a full path; NULL:
 * none.
 */
static const char *find_module(const Split *s, const char *path, const char *text,
                               const char *const *names, uint32_t n)
{
    StrMap seen = {.arena = s->a};
    Ids which = {0};
    const char **module = arena_array(s->a, const char *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        size_t length = names[i] ? match_path(names[i], path) : 0;
        if (length == 0)
            continue;
        module[i] = arena_strndup(s->a, names[i], length);
        uint32_t *slot = strmap_at(&seen, module[i]);
        if (*slot == NONE) {
            *slot = i;
            vec_push(s->a, &which, i);
        }
    }
    if (which.n > 1)
        ambiguous(s, text, &which, module);
    return which.n == 1 ? module[which.at[0]] : NULL;
}

static bool same_place(const Graph *g, NodeId m, NodeId n)
{
    return g->node.at[m].op == g->node.at[n].op && strcmp(node_scope(g, m), node_scope(g, n)) == 0;
}

/* Does a node of another module stand between two nodes? */
static bool interrupted(const Split *s, NodeId from, NodeId to)
{
    for (NodeId n = from + 1; n < to; n++)
        if (is_data_node(s, n) && s->live[n])
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
static Spans call_spans(const Split *s, const Ids *nodes)
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
static Ids nodes_under(const Split *s, const char *module)
{
    const Graph *g = s->g;
    Ids with = {0}, all = {0};
    for (NodeId n = 0; n < g->node.n; n++)
        if (under(node_scope(g, n), module) && node_scope(g, n)[0]) {
            vec_push(s->a, &all, n);
            if (is_data_node(s, n) && s->live[n])
                vec_push(s->a, &with, n);
        }
    return with.n > 0 ? with : all;
}

/* ---- modules without a scope: by the parameters they use ------------------------------------- */

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
        if (is_data_node(s, n))
            vec_push(s->a, &out, n);
        else
            for (uint32_t i = 0; i < x->nout; i++)
                reach[x->out[i]] = true;
    }
    return out;
}

static char *common_scope(const Split *s, const Ids *nodes)
{
    char *common = arena_strdup(s->a, node_scope(s->g, nodes->at[0]));
    for (uint32_t i = 1; i < nodes->n; i++)
        while (!under(node_scope(s->g, nodes->at[i]), common)) {
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
    const char **names = arena_array(s->a, const char *, g->param.n + 1);
    for (uint32_t i = 0; i < g->param.n; i++)
        names[i] = g->param.at[i].name;
    const char *module = find_module(s, path, text, names, g->param.n);
    if (!module)
        return false;
    bool *own = arena_array(s->a, bool, g->value.n + 1),
         *other = arena_array(s->a, bool, g->value.n + 1);
    for (uint32_t i = 0; i < g->param.n; i++)
        (under(names[i], module) ? own : other)[g->param.at[i].value] = true;
    Ids users = consumers_of(s, own);
    if (users.n == 0)
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "split point '%s': no node uses the parameters of '%s'", text, module);
    const char *scope = common_scope(s, &users);
    Ids strangers = consumers_of(s, other);
    bool larger = scope[0] == '\0';
    for (uint32_t i = 0; i < strangers.n; i++)
        larger |= under(node_scope(g, strangers.at[i]), scope);
    if (larger) {
        Span span = {users.at[0], users.at[users.n - 1]};
        vec_push(s->a, spans, span);
        return true;
    }
    Ids nodes = nodes_under(s, scope);
    *spans = call_spans(s, &nodes);
    return true;
}

/* ---- nodes and values ------------------------------------------------------------------------ */

/* The core nodes of one ONNX node; false when none is left (folded away, or an identity). */
static bool origin_span(const Split *s, uint32_t origin, Span *span)
{
    const Graph *g = s->g;
    for (int pass = 0; pass < 2; pass++) {
        bool found = false;
        for (NodeId n = 0; n < g->node.n; n++)
            if (g->node.at[n].origin == origin && (pass == 1 || is_data_node(s, n))) {
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
static NodeId after_origin(const Split *s, uint32_t origin)
{
    const Graph *g = s->g;
    NodeId last = NONE;
    for (NodeId n = 0; n < g->node.n; n++) {
        uint32_t o = g->node.at[n].origin;
        if (o > origin && is_data_node(s, n))
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
        if (side == 'e')
            add_cut(s, there ? span.last + 1 : after_origin(s, o), shown);
        else
            add_cut(s, there ? span.first : after_origin(s, o), shown);
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
    add_cut(s, beside_value(g, v, side), shown);
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
    const char *near = nearest_path(s, path, names.at, names.n);
    if (near)
        diag_hint("did you mean '%s%s'?", near, *suffix ? suffix : ":begin");
    else if ((near = nearest_name(path, exact.at, exact.n < 20000 ? exact.n : 20000)))
        diag_hint("did you mean node '%s'?", near);
    diag_hint("'ppsplit ls MODEL.onnx' shows where one can split");
    diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
               "split point '%s': no module, node or value has that name", text);
}

static bool find_spans(Split *s, const char *path, const char *text, Spans *spans)
{
    const Graph *g = s->g;
    const char **scopes = arena_array(s->a, const char *, g->origin.n + 1);
    for (NodeId n = 0; n < g->node.n; n++)
        if (g->node.at[n].origin < g->origin.n)
            scopes[g->node.at[n].origin] = node_scope(g, n);
    const char *module = find_module(s, path, text, scopes, g->origin.n);
    if (!module)
        return spans_by_param(s, path, text, spans);
    Ids nodes = nodes_under(s, module);
    *spans = call_spans(s, &nodes);
    return true;
}

static void cut_option(Split *s, const char *text)
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
    if (side == 0) {
        if (cut_name(s, path, 0, text))
            return;
        if (find_spans(s, path, text, &spans)) {
            diag_hint("write '%s:begin' or '%s:end'", path, path);
            diag_fatal(EXIT_USAGE, WHERE_FILE(s->g->file),
                       "split point '%s' is a module: cut before or after it?", text);
        }
        unknown(s, path, suffix, text);
    }
    if (!find_spans(s, path, text, &spans)) {
        if (cut_name(s, path, side, text))
            return;
        unknown(s, path, suffix, text);
    }
    for (uint32_t i = 0; i < spans.n; i++)
        add_cut(s, side == 'b' ? spans.at[i].first : spans.at[i].last + 1, shown);
}

/* ---- what the model itself says -------------------------------------------------------------- */

static const char *quoted(const Split *s, const char *what, const char *name)
{
    return *name ? arena_printf(s->a, "%s '%s'", what, name) : what;
}

static void cut_markers(Split *s)
{
    const Graph *g = s->g;
    for (uint32_t o = 0; o < g->origin.n; o++)
        if (g->origin.at[o].split_marker)
            add_cut(s, after_origin(s, o), quoted(s, "the marker", g->origin.at[o].name));
}

static void cut_annotations(Split *s)
{
    const Graph *g = s->g;
    int stage = -1;
    NodeId before = NONE;
    for (NodeId n = 0; n < g->node.n; n++) {
        uint32_t o = g->node.at[n].origin;
        int is = o < g->origin.n && is_data_node(s, n) ? g->origin.at[o].pipeline_stage : -1;
        if (is < 0)
            continue;
        if (is < stage) {
            const Origin *b = &g->origin.at[g->node.at[before].origin];
            diag_note("node %u '%s' before it has pipeline_stage %d", b->index, b->name, stage);
            diag_fatal(EXIT_MODEL, graph_where(g, o, -1),
                       "pipeline_stage %d: stages may not go back along the graph", is);
        }
        if (is > stage && stage >= 0)
            add_cut(s, n, arena_printf(s->a, "pipeline_stage %d", is));
        stage = is;
        before = n;
    }
}

/* Both. */
static void cut_model(Split *s)
{
    uint32_t before = s->cut.n;
    cut_markers(s);
    cut_annotations(s);
    for (uint32_t i = before; i < s->cut.n; i++)
        s->cut.at[i].of_model = true;
}

/* ---- the stages ------------------------------------------------------------------------------ */

static int by_position(const void *x, const void *y)
{
    const Cut *a = x, *b = y;
    return a->at != b->at ? (a->at < b->at ? -1 : 1) : strcmp(a->text, b->text);
}

/* Is anything computed in stage k? */
static bool is_stage(const Split *s, uint32_t k)
{
    const Graph *g = s->g;
    NodeId from = k ? s->cut.at[k - 1].at : 0, to = k < s->cut.n ? s->cut.at[k].at : g->node.n;
    for (NodeId n = from; n < to && n < g->node.n; n++)
        if (s->live[n] && is_data_node(s, n))
            return true;
    return false;
}

/* 'h.*:begin' of a model that begins with h.0, ':end' of one that ends with the last. */
static void drop_outermost(Split *s)
{
    if (s->cut.n > 0 && s->cut.at[0].of_pattern && !is_stage(s, 0))
        memmove(s->cut.at, s->cut.at + 1, --s->cut.n * sizeof *s->cut.at);
    if (s->cut.n > 0 && s->cut.at[s->cut.n - 1].of_pattern && !is_stage(s, s->cut.n))
        s->cut.n--;
}

static void check_empty(const Split *s)
{
    const Graph *g = s->g;
    for (uint32_t k = 0; k <= s->cut.n; k++) {
        if (is_stage(s, k))
            continue;
        if (k == 0)
            diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                       "stage 0 would be empty: nothing is computed before %s", s->cut.at[0].text);
        if (k == s->cut.n)
            diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                       "stage %u would be empty: nothing is computed after %s", k,
                       s->cut.at[k - 1].text);
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "stage %u would be empty: nothing is computed between %s and %s", k,
                   s->cut.at[k - 1].text, s->cut.at[k].text);
    }
}

/* Pure functions of constants and parameters stand with their first consumer. */
static void place_pure(const Split *s, uint32_t *stage_of)
{
    const Graph *g = s->g;
    uint32_t *first = arena_array(s->a, uint32_t, g->value.n + 1);
    memset(first, 0xff, g->value.n * sizeof *first);
    for (NodeId n = g->node.n; n-- > 0;) {
        const Node *x = &g->node.at[n];
        if (!is_data_node(s, n)) {
            uint32_t stage = NONE;
            for (uint32_t i = 0; i < x->nout; i++)
                stage = first[x->out[i]] < stage ? first[x->out[i]] : stage;
            stage_of[n] = stage == NONE ? s->cut.n : stage;
        }
        for (uint32_t i = 0; i < x->nin && s->live[n]; i++)
            if (x->in[i] != NONE && stage_of[n] < first[x->in[i]])
                first[x->in[i]] = stage_of[n];
    }
}

/* A stage for every node, by the cuts so far. */
static uint32_t *stages_of(Split *s, Arena *a)
{
    const Graph *g = s->g;
    if (s->cut.n > 1)
        qsort(s->cut.at, s->cut.n, sizeof *s->cut.at, by_position);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->cut.n; i++) /* the same point given twice is one point */
        if (kept == 0 || s->cut.at[i].at != s->cut.at[kept - 1].at ||
            !(s->cut.at[i].of_pattern || s->cut.at[kept - 1].of_pattern ||
              strcmp(s->cut.at[i].text, s->cut.at[kept - 1].text) == 0))
            s->cut.at[kept++] = s->cut.at[i];
    s->cut.n = kept;
    drop_outermost(s);
    if (s->cut.n > 0)
        check_empty(s);
    uint32_t *stage_of = arena_array(a, uint32_t, g->node.n + 1), stage = 0;
    for (NodeId n = 0; n < g->node.n; n++) {
        while (stage < s->cut.n && s->cut.at[stage].at <= n)
            stage++;
        stage_of[n] = stage;
    }
    place_pure(s, stage_of);
    return stage_of;
}

/* All points of a --split option. */
static void cut_points(Split *s, const char *text)
{
    SplitPoints point = {0};
    split_points(s->g, s->a, text, &point);
    for (uint32_t i = 0; i < point.n; i++) {
        s->of_pattern = point.at[i].of_pattern;
        cut_option(s, point.at[i].text);
    }
    s->of_pattern = false;
}

/* ---- --stages -------------------------------------------------------------------------------- */

/* The first of the nodes that count from n on; g->node.n: none. */
static NodeId next_counted(const Split *s, NodeId n)
{
    while (n < s->g->node.n && !(s->live[n] && is_data_node(s, n)))
        n++;
    return n;
}

/* Does a name say just what it is, where a split point may be written? */
static bool is_plain(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    return n > 0 && !strchr(name, '%') && !(n > 6 && strcmp(name + n - 6, ":begin") == 0) &&
           !(n > 4 && strcmp(name + n - 4, ":end") == 0);
}

/*
 * By node: the name before which, or after whose making, a cut has this node as the first of a
 * stage; NULL: no name says so, as inside of what one node of the file became.
 */
static const char **point_names(const Split *s)
{
    const Graph *g = s->g;
    const char **name = arena_array(s->a, const char *, g->node.n + 1);
    StrMap origin = {.arena = s->a};
    bool *begun = arena_array(s->a, bool, g->origin.n + 1);
    for (uint32_t o = g->origin.n; o-- > 1;)
        if (g->origin.at[o].name)
            *strmap_at(&origin, g->origin.at[o].name) = o;
    NodeId before = NONE;
    for (NodeId n = 0, from = 0; (n = next_counted(s, from)) < g->node.n; from = n + 1) {
        for (NodeId q = from; q <= n; q++) {            /* all the same as a cut */
            uint32_t o = g->node.at[q].origin;
            if (!is_data_node(s, q) || o == 0 || o >= g->origin.n || begun[o])
                continue;
            begun[o] = true;
            if (is_plain(g->origin.at[o].name) && strmap_get(&origin, g->origin.at[o].name) == o)
                name[n] = g->origin.at[o].name;
        }
        const Node *b = before == NONE ? NULL : &g->node.at[before];
        for (uint32_t i = 0; b && i < b->nout && !name[n]; i++) {
            const char *v = val(g, b->out[i])->name;
            if (b->origin && b->origin != g->node.at[n].origin && is_plain(v) &&
                strmap_get(&origin, v) == NONE)
                name[n] = v;
        }
        before = n;
    }
    return name;
}

/* The largest module that begins at node n, as a split point; NULL: none. */
static const char *module_point(const Split *s, NodeId n, NodeId before)
{
    const Graph *g = s->g;
    const char *scope = node_scope(g, n);
    for (size_t at = 0; scope[at];) {
        at += strcspn(scope + at + (at > 0), ".") + (at > 0);
        const char *module = arena_strndup(s->a, scope, at);
        if (under(node_scope(g, before), module) || strpbrk(module, ",*?["))
            continue;
        Ids nodes = nodes_under(s, module);
        Spans spans = call_spans(s, &nodes);
        bool alone = true;
        for (NodeId m = 0; m < g->node.n && alone; m++) {
            size_t length = match_path(node_scope(g, m), module);
            alone = length == 0 || (length == at && under(node_scope(g, m), module));
        }
        if (spans.n == 1 && next_counted(s, spans.at[0].first) == n)
            return arena_printf(s->a, "%s%s:begin", alone ? "" : ".", module);
    }
    return NULL;
}

/* What says that a stage begins at node n, however it was said; NULL: no name does. */
static const char *point_at(const Split *s, const char *const *name, NodeId n)
{
    NodeId before = n;
    while (before > 0 && !(s->live[--before] && is_data_node(s, before))) {}
    const char *module = module_point(s, n, before);
    return module ? module : name[n];
}

/* Adds the cuts that --stages asks for to those there are. */
static AutoCut *cut_automatically(Split *s, const PartitionOptions *opt, ValueId loss, Arena *a)
{
    const Graph *g = s->g;
    Split run = *s;                                     /* as a run was split that was measured */
    run.cut.n = run.cut.cap = 0;
    for (uint32_t i = 0; i < opt->automatic.measured_split.n; i++)
        cut_points(&run, opt->automatic.measured_split.at[i]);
    cut_model(&run);
    uint32_t *measured = NULL;
    if (opt->automatic.measured) {
        measured = stages_of(&run, s->a);
        if (run.cut.n + 1 != opt->automatic.measured_stages) {
            diag_hint("--costs-split POINT, as often as there were --split POINT");
            diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                       "--costs is of a run of %u stages, and --costs-split makes %u",
                       opt->automatic.measured_stages, run.cut.n + 1);
        }
    }
    bool *begins = arena_array(s->a, bool, g->node.n + 1);
    for (uint32_t i = 0; i < s->cut.n; i++)
        begins[next_counted(s, s->cut.at[i].at)] = true;
    AutoPlaces places = {point_names(s), begins, measured};
    AutoCut *c = auto_cut(g, loss, &opt->automatic, &places, a);
    for (uint32_t i = 0; i < opt->split.n; i++)
        vec_push(a, &c->split, opt->split.at[i]);
    for (uint32_t i = 0; i < c->first.n; i++) {
        NodeId n = c->first.at[i];
        if (begins[n])
            continue;
        vec_push(a, &c->split, point_at(s, places.name, n));
        cut_points(s, c->split.at[c->split.n - 1]);
        INSIST(next_counted(s, s->cut.at[s->cut.n - 1].at) == n);
    }
    return c;
}

/* Its gradient begins in the last stage: what a model computes after its loss cannot stand alone. */
static void check_loss(const Split *s, ValueId loss, const uint32_t *stage_of)
{
    const Value *v = loss == NONE ? NULL : val(s->g, loss);
    if (!v || v->kind != V_NODE || stage_of[v->node] == s->cut.n)
        return;
    diag_hint("split before the loss");
    diag_fatal(EXIT_USAGE, WHERE_FILE(s->g->file),
               "the loss would be in stage %u of %u, it must be in the last: nothing of it is "
               "computed after %s",
               stage_of[v->node], s->cut.n + 1, s->cut.at[s->cut.n - 1].text);
}

/* The options that say the same for a model that says the rest itself; none where a name lacks. */
static void name_cuts(const Split *s, Pipe *p)
{
    const char **name = s->cut.n > 0 ? point_names(s) : NULL;
    for (uint32_t i = 0; i < s->cut.n; i++) {
        NodeId n = next_counted(s, s->cut.at[i].at);
        const char *point = s->cut.at[i].of_model ? NULL : point_at(s, name, n);
        if (point)
            vec_push(s->g->arena, &p->split, point);
        else if (!s->cut.at[i].of_model) {
            p->split.n = 0;
            return;
        }
    }
}

uint32_t *split_assign(Pipe *p, Arena *a, const PartitionOptions *opt, uint32_t *stages)
{
    Split s = {.g = p->graph, .a = p->graph->arena};
    find_data(&s);
    find_live(&s, p->loss);
    for (uint32_t i = 0; opt && i < opt->split.n; i++)
        cut_points(&s, opt->split.at[i]);
    cut_model(&s);
    if (opt && opt->automatic.stages > 0)
        p->automatic = cut_automatically(&s, opt, p->loss, a);
    uint32_t *stage_of = stages_of(&s, a);
    check_loss(&s, p->loss, stage_of);
    name_cuts(&s, p);
    *stages = s.cut.n + 1;
    return stage_of;
}

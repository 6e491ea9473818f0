/*
 * split_auto.c - --stages among the other split points: where a cut may be and what it is called;
 * the split points that say the same as the cuts there are.
 */
#include <string.h>

#include "split_int.h"

/* The first of the nodes that count from n on; g->node.n: none. */
static NodeId next_counted(const Split *s, NodeId n)
{
    while (n < s->g->node.n && !(s->live[n] && split_on_data(s, n)))
        n++;
    return n;
}

/*
 * By node: the name before which, or after whose making, a cut has this node as the first of a
 * stage; NULL: no name says so, as inside of what one node of the file became; or it is inside of
 * an attention.
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
        if (s->inside[n]) {
            before = n;
            continue;
        }
        for (NodeId q = from; q <= n; q++) {            /* all the same as a cut */
            uint32_t o = g->node.at[q].origin;
            if (!split_on_data(s, q) || o == 0 || o >= g->origin.n || begun[o])
                continue;
            begun[o] = true;
            const char *own = g->origin.at[o].name;
            if (own && *own && strmap_get(&origin, own) == o)
                name[n] = own;
        }
        const Node *b = before == NONE ? NULL : &g->node.at[before];
        for (uint32_t i = 0; b && i < b->nout && !name[n]; i++) {
            const Value *v = val(g, b->out[i]);
            if (b->origin && b->origin != g->node.at[n].origin && !v->made && *v->name &&
                strmap_get(&origin, v->name) == NONE)
                name[n] = v->name;
        }
        before = n;
    }
    return name;
}

/* The largest module that begins at node n, as a split point; NULL: none. */
static const char *module_point(const Split *s, NodeId n, NodeId before)
{
    const Graph *g = s->g;
    const char *scope = graph_scope(g, n);
    for (size_t at = 0; scope[at]; at += scope[at] == '.') {
        at += strcspn(scope + at, ".");
        const char *module = arena_strndup(s->a, scope, at);
        if (split_under(graph_scope(g, before), module) || strpbrk(module, ",*?["))
            continue;
        Ids nodes = split_nodes_under(s, module);
        Spans spans = split_calls(s, &nodes);
        bool alone = true;
        for (NodeId m = 0; m < g->node.n && alone; m++) {
            size_t length = split_match(s->a, graph_scope(g, m), module);
            alone = length == 0 || (length == at && split_under(graph_scope(g, m), module));
        }
        if (spans.n == 1 && next_counted(s, spans.at[0].first) == n)
            return arena_printf(s->a, "%s%s:begin", alone ? "" : ".", module);
    }
    return NULL;
}

/* By node on data: components of the largest module that begins there; no module: more than any
 * has. */
static uint32_t *borders(const Split *s)
{
    enum { NO_MODULE = 64 };
    const Graph *g = s->g;
    uint32_t *depth = arena_array(s->a, uint32_t, g->node.n + 1);
    const char *before = NULL;
    for (NodeId from = 0, n; (n = next_counted(s, from)) < g->node.n; from = n + 1) {
        const char *scope = graph_scope(g, n);
        depth[n] = NO_MODULE;
        uint32_t components = 1;
        for (size_t at = 0; scope[at] && components < NO_MODULE; components++) {
            at += strcspn(scope + at, ".");
            if (before && !split_under(before, arena_strndup(s->a, scope, at))) {
                depth[n] = components;
                break;
            }
            at += scope[at] == '.';
        }
        before = scope;
    }
    return depth;
}

const char *split_point_at(const Split *s, const char *const *name, NodeId n)
{
    NodeId before = n;
    while (before > 0 && !(s->live[--before] && split_on_data(s, before))) {}
    const char *module = module_point(s, n, before);
    return module ? module : name[n];
}

/* The stages of a run that was measured; NULL: there is none. */
static uint32_t *measured_stages(const Split *s, const PartitionOptions *opt)
{
    Split run = *s;
    run.cut.n = run.cut.cap = 0;
    run.of_run = true;
    if (!opt->automatic.measured)
        return NULL;
    for (uint32_t i = 0; i < opt->automatic.measured_split.n; i++)
        split_cut_points(&run, opt->automatic.measured_split.at[i]);
    split_cut_model(&run);
    uint32_t *measured = split_stages(&run, s->a);
    if (run.cut.n + 1 != opt->automatic.measured_stages) {
        diag_hint("give --costs-split POINT for each --split POINT of that program");
        diag_fatal(EXIT_USAGE, WHERE_FILE(s->g->file),
                   "the trace of --costs has %u stages, but --costs-split makes %u",
                   opt->automatic.measured_stages, run.cut.n + 1);
    }
    return measured;
}

AutoPlaces split_places(Split *s, const PartitionOptions *opt)
{
    bool *begins = arena_array(s->a, bool, s->g->node.n + 1);
    uint32_t *measured = measured_stages(s, opt);
    for (uint32_t i = 0; i < s->cut.n; i++)
        begins[next_counted(s, s->cut.at[i].at)] = true;
    return (AutoPlaces){point_names(s), begins, borders(s), measured};
}

/* Adds the cuts that --stages asks for to those there are. */
AutoCut *split_automatically(Split *s, const PartitionOptions *opt, ValueId loss, Arena *a)
{
    const Graph *g = s->g;
    AutoPlaces places = split_places(s, opt);
    AutoCut *c = auto_cut(g, loss, opt->joint, &opt->automatic, &places, a);
    for (uint32_t i = 0; i < opt->split.n; i++)
        vec_push(a, &c->split, opt->split.at[i]);
    for (uint32_t i = 0; i < c->first.n; i++) {
        NodeId n = c->first.at[i];
        if (places.begins[n])
            continue;
        vec_push(a, &c->split, split_point_at(s, places.name, n));
        split_cut_points(s, c->split.at[c->split.n - 1]);
        INSIST(next_counted(s, s->cut.at[s->cut.n - 1].at) == n);
    }
    return c;
}

/* The options that say the same for a model that says the rest itself; none where a name lacks. */
void split_name_cuts(const Split *s, Pipe *p)
{
    const char **name = s->cut.n > 0 ? point_names(s) : NULL;
    for (uint32_t i = 0; i < s->cut.n; i++) {
        NodeId n = next_counted(s, s->cut.at[i].at);
        const char *point = s->cut.at[i].of_model ? NULL : split_point_at(s, name, n);
        if (point)
            vec_push(s->g->arena, &p->split, point);
        else if (!s->cut.at[i].of_model) {
            p->split.n = 0;
            return;
        }
    }
}

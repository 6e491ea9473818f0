/*
 * automatic.c - `--stages N`: the cost model, what may be cut, the cut, and its names.
 *
 * Stages are runs of the graph's nodes in its order, as every split point makes them: the order of
 * a gradient's additions is the graph's, so no cut changes a bit.  The bound is over all cuts that
 * keep it, in any order of the rest: the gap says what a better order could gain.
 */
#include "auto.h"

/* Where no stage may begin, a node is with the one before; and the loss is in the last stage. */
static void add_places(const AutoModel *m, CutGraph *g, NodeId loss, const AutoPlaces *places,
                       bool *begins, Arena *a)
{
    for (uint32_t i = 1; i < g->nodes; i++) {
        NodeId n = m->node[i];
        begins[i] = places->begins[n];
        if (places->name[n] || begins[i])
            continue;
        CutPair pair = {i - 1, i};
        vec_push(a, &g->together, pair);
    }
    if (loss == NONE || m->of[loss] == NONE)
        return;
    CutPair rest = {m->of[loss], g->nodes - 1};
    vec_push(a, &g->together, rest);
}

static void in_turn(CutGraph *g, Arena *a, uint32_t one, uint32_t next)
{
    CutPair p = {one, next};
    if (one < next)
        vec_push(a, &g->before, p);
}

/*
 * The graph for the bound: any order that adds up gradients as the model's does, so what reads a
 * value or a parameter keeps its turn.  What is sent for nothing is made again where it is read
 * (masks): its time is left out, and it is with the first that reads it.
 */
static CutGraph in_any_order(const CutGraph *from, Arena *a)
{
    CutGraph g = *from;
    uint32_t *reader = arena_array(a, uint32_t, g.nodes + 1); /* the first, + 1 */
    bool *sent = arena_array(a, bool, g.nodes + 1);
    g.node = arena_array(a, CutNode, g.nodes + 1);
    for (uint32_t n = 0; n < g.nodes; n++)
        g.node[n] = from->node[n];
    g.before.cap = g.before.n; /* what is added moves them */
    g.together.cap = g.together.n;
    for (uint32_t v = 0; v < g.value.n; v++) {
        const CutValue *x = &g.value.at[v];
        uint32_t first = x->read.n ? x->read.at[0].node + 1 : 0;
        if (x->kept > 0 && x->bytes == 0)
            continue;
        sent[x->from] |= x->bytes > 0;
        if (first && (!reader[x->from] || first < reader[x->from]))
            reader[x->from] = first;
        for (uint32_t i = 1; i < x->read.n && x->back > 0; i++)
            in_turn(&g, a, x->read.at[i - 1].node, x->read.at[i].node);
    }
    for (uint32_t k = 0; k < g.param.n; k++)
        for (uint32_t i = 1; i < g.param.at[k].read.n && g.param.at[k].back > 0; i++)
            in_turn(&g, a, g.param.at[k].read.at[i - 1], g.param.at[k].read.at[i]);
    for (uint32_t n = 0; n < g.nodes; n++)
        if (reader[n] && !sent[n]) {
            CutPair pair = {n, reader[n] - 1};
            g.node[n] = (CutNode){0};
            vec_push(a, &g.together, pair);
        }
    return g;
}

static _Noreturn void refuse(const Graph *g, const AutoSearch *s, const char *why, Arena *a)
{
    const AutoOptions *o = s->options;
    if (o->memory) {
        int64_t most = 0;
        StageCut c = auto_solve(s, &(AutoAsked){.stages = o->stages}, a);
        for (uint32_t i = 0; c.stage_of && i < o->stages; i++) {
            const CutStage *x = &c.stage[i];
            int64_t bytes = x->params + (o->live ? o->live[i] : 1) * x->stash;
            most = bytes > most ? bytes : most;
        }
        if (c.stage_of)
            diag_note("without a limit the best cut has a stage of %lld bytes: parameters, their "
                      "gradients, two optimizer states, and the stash of the microbatches it holds",
                      (long long)most);
        diag_hint("more stages, more memory, a schedule that holds fewer microbatches");
    }
    diag_fatal(EXIT_MODEL, WHERE_FILE(g->file), "--stages %u: %s", o->stages, why);
}

AutoSearch *auto_search(const Graph *g, ValueId loss, const AutoOptions *o,
                        const AutoPlaces *places, Arena *a)
{
    AutoSearch *s = arena_new_of(a, AutoSearch);
    s->options = o;
    s->model = auto_model(g, loss, &o->rates, o->microbatches, a);
    s->cut = s->model->cut;
    s->begins = arena_array(a, bool, s->cut.nodes + 1);
    if (o->measured)
        auto_measured(s->model, g, places->measured, o->measured_stages, o->measured,
                      &o->measured_steps, a);
    s->cut.together.cap = s->cut.together.n; /* what is added moves it */
    const Value *l = loss == NONE ? NULL : val(g, loss);
    add_places(s->model, &s->cut, l && l->kind == V_NODE ? l->node : NONE, places, s->begins, a);
    s->least = 1;
    for (uint32_t i = 0; i < s->cut.nodes; i++)
        s->least += s->begins[i];
    return s;
}

static CutProblem problem(const AutoSearch *s, const AutoAsked *x)
{
    return (CutProblem){.stages = x->stages,
                        .link = rates_link(&s->options->rates),
                        .microbatches = x->microbatches,
                        .memory = x->memory,
                        .live = x->live,
                        .rank_of = x->rank_of,
                        .in_order = true,
                        .begins = s->begins};
}

StageCut auto_solve(const AutoSearch *s, const AutoAsked *x, Arena *a)
{
    CutProblem p = problem(s, x);
    return cut_solve(&s->cut, &p, a);
}

AutoCut *auto_cut(const Graph *g, ValueId loss, const AutoOptions *o, const AutoPlaces *places,
                  Arena *a)
{
    AutoCut *out = arena_new_of(a, AutoCut);
    AutoSearch *s = auto_search(g, loss, o, places, a);
    AutoAsked asked = {o->stages, o->microbatches, o->memory, o->live, o->rank_of};
    out->model = s->model;
    out->options = o;
    if (s->least > o->stages) {
        diag_hint("leave out --stages, or ask for more");
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "--stages %u: split points that are given make %u", o->stages, s->least);
    }
    out->cut = auto_solve(s, &asked, a);
    if (!out->cut.stage_of)
        refuse(g, s, out->cut.why, a);
    bool exact;
    CutProblem p = problem(s, &asked);
    double is = p.microbatches ? out->cut.step : out->cut.slowest;
    CutGraph any = in_any_order(&s->model->cut, a);
    out->bound = cut_bound(&any, &p, &out->cut, a, &exact);
    out->gap = out->bound > 0 && is > out->bound ? is / out->bound - 1 : 0;
    for (uint32_t i = 1; i < s->cut.nodes; i++)
        if (out->cut.stage_of[i] != out->cut.stage_of[i - 1])
            vec_push(a, &out->first, s->model->node[i]);
    return out;
}

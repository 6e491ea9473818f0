/*
 * automatic.c - `--stages N`: the cost model, what may be cut, the cut, and its names.
 *
 * Stages are runs of the graph's nodes in its order, as every split point makes them: the order of
 * a gradient's additions is the graph's, so no cut changes a bit.
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

static _Noreturn void refuse(const Graph *g, const AutoSearch *s, const char *why, Arena *a)
{
    const AutoOptions *o = s->options;
    if (o->memory) {
        int64_t most = 0;
        StageCut c = auto_solve(s, &(CutProblem){.stages = o->stages}, a);
        for (uint32_t i = 0; c.stage_of && i < o->stages; i++) {
            const CutStage *x = &c.stage[i];
            int64_t bytes = x->params + (o->live ? o->live[i] : 1) * x->stash;
            most = bytes > most ? bytes : most;
        }
        if (c.stage_of)
            diag_note("without a limit the best cut has a stage of %lld bytes: parameters, their "
                      "gradients, two optimizer states, and the stashes of its microbatches",
                      (long long)most);
        diag_hint("use more stages, more memory, or a schedule that keeps fewer microbatches");
    }
    diag_fatal(EXIT_MODEL, WHERE_FILE(g->file), "--stages %u: %s", o->stages, why);
}

AutoSearch *auto_search(const Graph *g, ValueId loss, const Pipe *joint, const AutoOptions *o,
                        const AutoPlaces *places, Arena *a)
{
    AutoSearch *s = arena_new_of(a, AutoSearch);
    s->options = o;
    s->model = auto_model(g, loss, joint, &o->rates, o->microbatches, a);
    s->cut = s->model->cut;
    s->begins = arena_array(a, bool, s->cut.nodes + 1);
    s->border = arena_array(a, uint32_t, s->cut.nodes + 1);
    for (uint32_t i = 0; i < s->cut.nodes && places->border; i++)
        s->border[i] = places->border[s->model->node[i]];
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

CutProblem auto_problem(const AutoOptions *o)
{
    return (CutProblem){.stages = o->stages,
                        .microbatches = o->microbatches,
                        .memory = o->memory,
                        .live = o->live,
                        .rank_of = o->rank_of};
}

StageCut auto_solve(const AutoSearch *s, const CutProblem *asked, Arena *a)
{
    CutProblem p = *asked;
    p.link = rates_link(&s->options->rates);
    p.begins = s->begins;
    p.border = s->border;
    return cut_solve(&s->cut, &p, a);
}

AutoCut *auto_cut(const Graph *g, ValueId loss, const Pipe *joint, const AutoOptions *o,
                  const AutoPlaces *places, Arena *a)
{
    AutoCut *out = arena_new_of(a, AutoCut);
    AutoSearch *s = auto_search(g, loss, joint, o, places, a);
    const CutProblem asked = auto_problem(o);
    out->model = s->model;
    out->options = o;
    if (s->least > o->stages) {
        diag_hint("leave out --stages, or ask for more");
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "--stages %u: the given split points already make %u", o->stages, s->least);
    }
    out->cut = auto_solve(s, &asked, a);
    if (!out->cut.stage_of)
        refuse(g, s, out->cut.why, a);
    for (uint32_t i = 1; i < s->cut.nodes; i++)
        if (out->cut.stage_of[i] != out->cut.stage_of[i - 1])
            vec_push(a, &out->first, s->model->node[i]);
    return out;
}

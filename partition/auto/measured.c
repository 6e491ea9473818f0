/*
 * measured.c - the cost model's nodes as a run has shown them.
 *
 * In: seconds of F, I and W of the run's stages, and, of a program that was made with --profile,
 * those of each step of their code with the names of its nodes.  Out: seconds of nodes that add up
 * to the stages'.  A step of several nodes, and a stage whose steps were not timed, is shared out
 * in the proportions that the model has.  A node that is made of parameters alone (a weight that is
 * turned) is in no cut: its steps are of those that read it.
 */
#include "model.h"

static double scale(double measured, double modelled)
{
    return measured >= 0 && modelled > 0 ? measured / modelled : 1;
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef struct {
    const AutoModel *m;
    const uint32_t *stage_of;
    StrMap at;    /* name -> number */
    Ids *of_name; /* cut nodes */
    CutNode *took;
} Shares;

static void find_names(Shares *x, const Graph *g, Arena *a)
{
    x->at = (StrMap){.arena = a};
    x->of_name = arena_array(a, Ids, g->origin.n + 1);
    for (uint32_t o = 0; o < g->origin.n; o++) {
        uint32_t *number = strmap_at(&x->at, graph_origin_name(g, o, a));
        *number = *number == NONE ? o : *number;
        vec_push(a, &x->of_name[*number], x->m->of_origin[o]);
    }
}

/* Seconds of the model, which are of that part. */
static double modelled(const CutNode *n, int part)
{
    return part == 'F'   ? n->forward
           : part == 'I' ? n->input
           : part == 'W' ? n->weight
                         : n->input + n->weight;
}

static void add_share(CutNode *to, const CutNode *model, int part, double seconds)
{
    double both = model->input + model->weight, input = both > 0 ? model->input / both : 1;
    if (part == 'F')
        to->forward += seconds;
    else if (part == 'B')
        to->input += seconds * input, to->weight += seconds * (1 - input);
    else
        *(part == 'I' ? &to->input : &to->weight) += seconds;
}

static void share_step(Shares *x, const StepTime *t)
{
    double all = 0, nodes = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < t->node.n; i++) {
            uint32_t number = *strmap_at(&x->at, t->node.at[i]);
            for (uint32_t k = 0; number != NONE && k < x->of_name[number].n; k++) {
                uint32_t c = x->of_name[number].at[k];
                const CutNode *model = &x->m->cut.node[c];
                double part = modelled(model, t->part);
                if (x->stage_of[x->m->node[c]] != t->stage)
                    continue;
                if (pass)
                    add_share(&x->took[c], model, t->part,
                              t->seconds * (all > 0 ? part / all : 1 / nodes));
                all += pass ? 0 : part;
                nodes += pass ? 0 : 1;
            }
        }
}

/* The seconds of nodes in stages whose steps were timed; backward and forward for themselves. */
static void as_steps(AutoModel *m, const Graph *g, const uint32_t *stage_of, uint32_t stages,
                     const StepTimes *steps, Arena *a)
{
    Shares x = {.m = m, .stage_of = stage_of};
    x.took = arena_array(a, CutNode, m->cut.nodes + 1);
    double *forward = arena_array(a, double, stages + 1),
           *backward = arena_array(a, double, stages + 1);
    find_names(&x, g, a);
    for (uint32_t i = 0; i < steps->n; i++)
        share_step(&x, &steps->at[i]);
    for (uint32_t c = 0; c < m->cut.nodes; c++) {
        forward[stage_of[m->node[c]]] += x.took[c].forward;
        backward[stage_of[m->node[c]]] += x.took[c].input + x.took[c].weight;
    }
    for (uint32_t c = 0; c < m->cut.nodes; c++) {
        uint32_t s = stage_of[m->node[c]];
        if (forward[s] > 0)
            m->cut.node[c].forward = x.took[c].forward;
        if (backward[s] > 0) {
            m->cut.node[c].input = x.took[c].input;
            m->cut.node[c].weight = x.took[c].weight;
        }
    }
}

static bool *timed_stages(const StepTimes *steps, uint32_t stages, Arena *a)
{
    bool *is = arena_array(a, bool, stages + 1);
    for (uint32_t i = 0; i < steps->n; i++)
        is[steps->at[i].stage] |= steps->at[i].part != 'F';
    return is;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* What a stage's nodes are multiplied by.  sum: as they are; steps: of both parts they were timed,
   so that their proportions stay.  I and W of a run that had whole backwards only are in the
   model's proportions; B of one that had divided ones only is both, and whoever needs it apart
   knows that it took less. */
static StageTimes factors(const StageTimes *t, const StageTimes *sum, bool steps)
{
    bool divided = t->input >= 0 && t->weight >= 0;
    double both = sum->input + sum->weight, whole = t->whole;
    StageTimes f = {.forward = scale(t->forward, sum->forward)};
    if (divided && !steps) {
        f.input = scale(t->input, sum->input);
        f.weight = scale(t->weight, sum->weight);
    } else {
        f.input = f.weight = scale(divided ? t->input + t->weight : whole, both);
    }
    if (whole < 0)
        whole = f.input * sum->input + f.weight * sum->weight;
    f.whole = scale(whole, sum->whole);
    return f;
}

void auto_measured(AutoModel *m, const Graph *g, const uint32_t *stage_of, uint32_t stages,
                   const StageTimes *t, const StepTimes *steps, Arena *a)
{
    Arena *scratch = arena_within(a);
    const bool *timed = timed_stages(steps, stages, scratch);
    if (steps->n > 0)
        as_steps(m, g, stage_of, stages, steps, scratch);
    StageTimes *sum = arena_array(scratch, StageTimes, stages);
    for (uint32_t i = 0; i < m->cut.nodes; i++) {
        StageTimes *s = &sum[stage_of[m->node[i]]];
        CutNode *n = &m->cut.node[i];
        s->forward += n->forward;
        s->input += n->input;
        s->weight += n->weight;
        s->whole += n->whole = n->input + n->weight;
    }
    for (uint32_t i = 0; i < m->cut.nodes; i++) {
        uint32_t s = stage_of[m->node[i]];
        CutNode *n = &m->cut.node[i];
        StageTimes f = factors(&t[s], &sum[s], timed[s]);
        n->forward *= f.forward;
        n->input *= f.input;
        n->weight *= f.weight;
        n->whole *= f.whole;
    }
    arena_free(scratch);
}

void auto_scaled(AutoModel *m, const AutoModel *from, const AutoModel *to)
{
    for (uint32_t i = 0; i < m->cut.nodes; i++) {
        const CutNode *a = &from->cut.node[i], *b = &to->cut.node[i];
        m->cut.node[i].forward *= scale(b->forward, a->forward);
        m->cut.node[i].input *= scale(b->input, a->input);
        m->cut.node[i].weight *= scale(b->weight, a->weight);
        m->cut.node[i].whole *= scale(b->whole, a->whole);
    }
}

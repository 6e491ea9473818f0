/*
 * measure.c - what a given cut costs, stage by stage, straight from the definition.
 */
#include "cut.h"

static double message(double fixed, double byte, int64_t bytes)
{
    return bytes > 0 ? fixed + byte * (double)bytes : 0;
}

double cut_in_seconds(const CutLink *l, const CutValue *v)
{
    return message(l->in_message, l->in_byte, v->bytes) +
           message(l->in_message, l->in_byte, v->back);
}

double cut_out_seconds(const CutLink *l, const CutValue *v)
{
    return message(l->out_message, l->out_byte, v->bytes) +
           message(l->out_message, l->out_byte, v->back);
}

uint32_t cut_sender(const CutValue *v, const uint32_t *stage_of, uint32_t to)
{
    uint32_t by = stage_of[v->from];
    for (uint32_t i = 0; i < v->read.n && v->back > 0; i++) {
        const uint32_t at = stage_of[v->read.at[i].node];
        by = at < to && at > by ? at : by;
    }
    return by;
}

static void add_value(const CutProblem *p, const uint32_t *stage_of, const CutValue *v,
                      uint32_t *seen, uint32_t mark, CutStage *stage)
{
    const double in = cut_in_seconds(&p->link, v), out = cut_out_seconds(&p->link, v);
    const uint32_t from = stage_of[v->from];
    bool sent = false;
    for (uint32_t i = 0; i < v->read.n; i++) {
        const uint32_t to = stage_of[v->read.at[i].node];
        if (to == from || seen[to] == mark)
            continue;
        const uint32_t by = cut_sender(v, stage_of, to);
        seen[to] = mark;
        stage[to].link += in;
        stage[to].received += v->bytes;
        stage[by].sent += v->bytes;
        stage[by].link += by != from ? out : 0;
        sent |= by == from;
    }
    stage[from].link += sent ? out : 0;
}

static void add_kept(const uint32_t *stage_of, const CutValue *v, uint32_t *seen, uint32_t mark,
                     CutStage *stage)
{
    for (uint32_t i = 0; i < v->read.n; i++) {
        uint32_t at = stage_of[v->read.at[i].node];
        if (!v->read.at[i].keeps || seen[at] == mark)
            continue;
        seen[at] = mark;
        stage[at].stash += v->kept;
    }
}

static void add_param(const CutProblem *p, const uint32_t *stage_of, const CutParam *x,
                      uint32_t *seen, uint32_t mark, CutStage *stage)
{
    uint32_t owner = NONE;
    for (uint32_t i = 0; i < x->read.n; i++)
        owner = stage_of[x->read.at[i]] < owner ? stage_of[x->read.at[i]] : owner;
    for (uint32_t i = 0; i < x->read.n; i++) {
        uint32_t at = stage_of[x->read.at[i]];
        if (seen[at] == mark)
            continue;
        seen[at] = mark;
        stage[at].params += x->held + (at == owner ? x->owned : 0);
        if (at != owner)
            stage[at].link += (p->link.in_byte + p->link.out_byte) * (x->sent + x->back);
    }
}

void cut_measure(const CutGraph *g, const CutProblem *p, const uint32_t *stage_of, Arena *a,
                 StageCut *c)
{
    *c = (StageCut){.stages = p->stages};
    c->stage = arena_array(a, CutStage, p->stages);
    c->stage_of = arena_array(a, uint32_t, g->nodes + 1);
    uint32_t *seen = arena_array(a, uint32_t, p->stages + 1), mark = 0;
    for (uint32_t n = 0; n < g->nodes; n++) {
        CutStage *s = &c->stage[c->stage_of[n] = stage_of[n]];
        s->forward += g->node[n].forward;
        s->input += g->node[n].input;
        s->weight += g->node[n].weight;
        s->whole += g->node[n].whole;
        for (int k = 0; k < 3; k++)
            s->far[k] += g->node[n].far[k];
    }
    for (uint32_t v = 0; v < g->value.n; v++) {
        add_value(p, stage_of, &g->value.at[v], seen, ++mark, c->stage);
        add_kept(stage_of, &g->value.at[v], seen, ++mark, c->stage);
    }
    for (uint32_t i = 0; i < g->param.n; i++)
        add_param(p, stage_of, &g->param.at[i], seen, ++mark, c->stage);
    for (uint32_t s = 0; s < p->stages; s++) {
        CutStage *x = &c->stage[s];
        double t = x->forward + x->input + x->weight + x->link;
        c->slowest = t > c->slowest ? t : c->slowest;
        c->sum += t;
        x->memory = x->params + (p->live ? p->live[s] : 1) * x->stash;
    }
    c->step = c->sum + (p->microbatches > 1 ? p->microbatches - 1 : 0) * c->slowest;
}

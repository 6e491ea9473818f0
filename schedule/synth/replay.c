/*
 * replay.c - the keys of a policy that leads to given rows: when each of their actions
 * begins, by the task's times.
 */
#include "synth.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    const SynthTask *t;
    const Schedule *s;
    SynthPolicy *p;
    double *end_f, *end_i, *clock; /* per (stage, microbatch), -1: not known; per rank */
    int *cursor;
} Replay;

static size_t at(const Replay *x, int stage, int mb)
{
    return (size_t)stage * (size_t)x->t->microbatches + (size_t)mb;
}

/* When the input of a computation is there; -1: not known. */
static double input(const Replay *x, const SchedAction *a)
{
    const SchedGraph *g = x->t->g;
    int forward = a->type == SA_F, s = a->stage;
    int first = forward ? g->in_first[s] : g->out_first[s];
    int last = forward ? g->in_first[s + 1] : g->out_first[s + 1];
    double when = 0;
    for (int k = first; a->type != SA_W && k < last; k++) {
        int e = forward ? g->in[k] : k, other = forward ? g->edge[e].from : g->edge[e].to;
        if (!forward && !g->edge[e].gradient)
            continue;
        double end = (forward ? x->end_f : x->end_i)[at(x, other, a->microbatch)];
        if (end < 0)
            return -1;
        when = fmax(when, end + (forward ? x->t->away_f : x->t->away_b)[e]);
    }
    return when;
}

static int step(Replay *x, int r)
{
    const SchedAction *a = &x->s->row[r].a[x->cursor[r]];
    const SynthTask *t = x->t;
    double when = input(x, a);
    if (when < 0)
        return 0;
    when = fmax(when, x->clock[r]);
    size_t k = at(x, a->stage, a->microbatch);
    if (a->type == SA_F) {
        x->p->key_f[k] = when;
        x->clock[r] = x->end_f[k] = when + t->f[a->stage];
    } else if (a->type == SA_W) {
        x->p->key_w[k] = when;
        x->clock[r] = when + t->w[a->stage];
    } else {
        x->p->key_i[k] = when;
        if (a->type == SA_B)
            x->p->key_w[k] = when + t->i[a->stage];
        x->clock[r] = x->end_i[k] = when + (a->type == SA_B ? t->b : t->i)[a->stage];
    }
    x->cursor[r]++;
    return 1;
}

int synth_replay(const SynthTask *t, const Schedule *s, SynthPolicy *p)
{
    size_t n = (size_t)t->stages * (size_t)t->microbatches, P = (size_t)t->ranks;
    double *times = malloc((2 * n + P) * sizeof *times);
    int *cursor = calloc(P, sizeof *cursor), good = times && cursor;
    Replay x = {t, s, p, times, times + n, times + 2 * n, cursor};
    for (size_t i = 0; good && i < 2 * n + P; i++)
        times[i] = i < 2 * n ? -1 : 0;
    for (int go = good; go;) {
        go = 0;
        for (int r = 0; r < t->ranks; r++)
            while (cursor[r] < s->row[r].n && step(&x, r))
                go = 1;
    }
    for (int r = 0; good && r < t->ranks; r++)
        good = cursor[r] == s->row[r].n;
    free(times);
    free(cursor);
    return good;
}

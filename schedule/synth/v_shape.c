/*
 * v_shape.c - the V family of Pipeline Parallelism with Controllable Memory (Qi et al.,
 * 2405.15362) by name: two chunks a rank, placed as a V, and a limit of microbatch-chunks alive.
 *
 * In: ranks, microbatches, the limit of a name.  Out: rows for F = I = W.  Those with a divided
 * backward are v_block.c's.  1f1b-v is what the list scheduler (synth.c) makes of the paper's
 * pattern of one microbatch, repeated every six actions: when it comes to rank i on its way there
 * (F of the first chunk), back (F of the second), there again (B of the second) and back (B of the
 * first).  For other costs there is `auto`, which searches.
 */
#include "synth.h"

#include "schedule/generate/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Places of rank i in the pattern: there + a i, and back + (p-1-i), of forward and backward. */
typedef struct {
    int step_f, back_f, there_i, step_i, back_i;
} VPattern;

static void keys(const SynthTask *t, const VPattern *v, SynthPolicy *p)
{
    int ranks = t->ranks, m = t->microbatches;
    for (int s = 0; s < t->stages; s++)
        for (int j = 0; j < m; j++) {
            int k = s * m + j, r = t->rank_of[s], first = s < ranks;
            p->key_f[k] =
                t->period / 6 * ((first ? v->step_f * r : v->back_f + ranks - 1 - r) + 6 * j);
            p->key_i[k] =
                t->period / 6 *
                ((first ? v->back_i + ranks - 1 - r : v->there_i + v->step_i * r) + 6 * j);
        }
}

/* Every way to follow a pattern, with later turns of its backward. */
enum { WAYS = 4, TURNS = 16, KEPT = 24, FEW = 3 };

static void follow(const SynthTask *t, const VPattern *patterns, int number, SynthPolicy *p)
{
    VPattern v = patterns[number / (WAYS * TURNS)];
    int way = number % WAYS, turn = number / WAYS % TURNS;
    v.there_i += turn % 4;
    v.back_i += turn % 4 + turn / 4;
    p->patience = way % 2 ? HUGE_VAL : 0;
    p->tight = way / 2;
    keys(t, &v, p);
}

typedef struct {
    int way[KEPT], n;
    SynthScore score[KEPT];
} Kept;

static void keep(Kept *list, int way, const SynthScore *s)
{
    int at = list->n;
    while (at > 0 && (s->span < list->score[at - 1].span ||
                      (s->span == list->score[at - 1].span && s->sum < list->score[at - 1].sum)))
        at--;
    if (at == KEPT)
        return;
    list->n += list->n < KEPT;
    for (int i = list->n - 1; i > at; i--)
        list->way[i] = list->way[i - 1], list->score[i] = list->score[i - 1];
    list->way[at] = way;
    list->score[at] = *s;
}

static void scan(const SynthTask *t, const VPattern *v, int way, SynthPolicy *p, Kept *list)
{
    SynthScore s;
    follow(t, v, way, p);
    if (synth_run(t, p, NULL, &s, NULL))
        keep(list, way, &s);
}

/* The rows of the shortest: all ways with few microbatches, and the best of these with all. */
static int shortest(SchedGen *g, SynthTask *t, const VPattern *v, int patterns)
{
    size_t n = (size_t)t->stages * (size_t)t->microbatches;
    double *key = malloc(2 * n * sizeof *key);
    int *cap = calloc((size_t)t->stages, sizeof *cap), m = t->microbatches, good = key && cap;
    SynthPolicy p = {.key_f = key, .key_i = key + n, .key_w = key, .cap = cap, .whole = 1};
    Kept few = {.n = 0}, all = {.n = 0};
    SynthScore s;
    t->microbatches = m < FEW * t->ranks ? m : FEW * t->ranks;
    synth_task_ready(t);
    for (int way = 0; good && way < WAYS * TURNS * patterns; way++)
        scan(t, v, way, &p, &few);
    t->microbatches = m;
    synth_task_ready(t);
    for (int i = 0; good && i < few.n; i++)
        scan(t, v, few.way[i], &p, &all);
    if (all.n > 0) {
        follow(t, v, all.way[0], &p);
        good = synth_run(t, &p, NULL, &s, g->s->row);
    }
    free(key);
    free(cap);
    return !good       ? sched_nomem(g->e)
           : all.n > 0 ? SCHED_OK
                       : sched_fail(g->e, SCHED_EREFUSED, -1, -1,
                                    "no schedule of the V family fits its memory");
}

static int undivided(SchedGen *g, int chunks, const VPattern *v, int patterns)
{
    SchedGraph graph;
    SynthTask t;
    int st = sched_graph(&graph, g->s->stages, NULL, 0, NULL, 0, g->e);
    if (st)
        return st;
    if (synth_task(&t, &graph, g->p, g->m, g->s->rank_of)) {
        for (int s = 0; s < t.stages; s++) {
            t.f[s] = t.i[s] = t.w[s] = t.stash[s] = t.late[s] = 1;
            t.b[s] = 2;
        }
        for (int r = 0; r < t.ranks; r++)
            t.limit[r] = chunks;
        synth_task_ready(&t);
        st = shortest(g, &t, v, patterns);
    } else {
        st = sched_nomem(g->e);
    }
    synth_task_free(&t);
    sched_graph_free(&graph);
    return st;
}

/* F = I = W, the backward divided */
static int divided(SchedGen *g, int chunks)
{
    int found = synth_v(g->p, g->m, chunks, SYNTH_V_WORK, g->s->row);
    return found > 0   ? SCHED_OK
           : found < 0 ? sched_nomem(g->e)
                       : sched_fail(g->e, SCHED_EREFUSED, -1, -1,
                                    "found no schedule of the V family on %d ranks with at most %d "
                                    "microbatch-chunks alive",
                                    g->p, chunks);
}

int sched_gen_vhalf(SchedGen *g) { return divided(g, sched_peak_vhalf(g->p, 2, g->m, 0, 0)); }

int sched_gen_vmin(SchedGen *g) { return divided(g, sched_peak_vmin(g->p, 2, g->m, 0, 0)); }

int sched_gen_v(SchedGen *g) { return divided(g, g->round); }

int sched_gen_1f1bv(SchedGen *g)
{
    int p = g->p, d = p % 3 ? 0 : 3;
    const VPattern v[] = {{1, p, 2 * p + d, 2, 4 * p + d},
                          {2, 2 * p, 3 * p, 2, 5 * p},
                          {1, p, 2 * p + d, 3, 5 * p + d},
                          {1, p, 2 * p, 1, 3 * p}};
    return undivided(g, sched_peak_1f1bv(p, 2, g->m, 0, 0), v, 4);
}

int sched_peak_v(int p, int v, int m, int k, int r)
{
    (void)p, (void)v, (void)m, (void)r;
    return k;
}

int sched_peak_vhalf(int p, int v, int m, int k, int r)
{
    (void)k, (void)m, (void)r;
    return v * ((p + 2) / 2);
}

int sched_peak_vmin(int p, int v, int m, int k, int r)
{
    (void)k, (void)m, (void)r;
    return v * ((p + 4) / 3);
}

int sched_peak_1f1bv(int p, int v, int m, int k, int r)
{
    (void)k, (void)m, (void)r;
    return v * ((2 * p + 4) / 3);
}

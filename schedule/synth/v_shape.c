/*
 * v_shape.c - the V family of Pipeline Parallelism with Controllable Memory (Qi et al.,
 * 2405.15362): two chunks a rank, placed as a V, and a limit of microbatch-chunks alive.
 *
 * In: ranks, microbatches, the limit of a name.  Out: rows for F = I = W.  Each is what the list
 * scheduler (synth.c) makes of the paper's pattern of one microbatch, repeated every six actions:
 * when it comes to rank i on its way there (F of the first chunk), back (F of the second), there
 * again (I of the second) and back (I of the first).  For other costs there is `auto`, which
 * searches.
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

static void keys(const SynthTask *t, const VPattern *v, SynthPolicy *p, int late)
{
    int ranks = t->ranks, m = t->microbatches;
    for (int s = 0; s < t->stages; s++)
        for (int j = 0; j < m; j++) {
            int k = s * m + j, r = t->rank_of[s], first = s < ranks;
            double far = 1024.0 * (m + t->stages) * t->period;
            p->key_f[k] =
                t->period / 6 * ((first ? v->step_f * r : v->back_f + ranks - 1 - r) + 6 * j);
            p->key_i[k] =
                t->period / 6 *
                ((first ? v->back_i + ranks - 1 - r : v->there_i + v->step_i * r) + 6 * j);
            /* W fills gaps; or it follows its I at once, but for the last ones, which end the run
             */
            p->key_w[k] = p->key_i[k] + (late == 0 || j >= m - late ? far : -far);
        }
}

/* Every way to follow a pattern, with later turns of its backward: of the shortest, the rows. */
enum { WAYS = 12, TURNS = 16 };

static void follow(const SynthTask *t, const VPattern *patterns, int number, SynthPolicy *p)
{
    VPattern v = patterns[number / (WAYS * TURNS)];
    int way = number % WAYS, turn = number / WAYS % TURNS, late = way / 2 % 3;
    v.there_i += turn % 4;
    v.back_i += turn % 4 + turn / 4;
    p->patience = way % 2 ? HUGE_VAL : 0;
    p->tight = way / 6;
    keys(t, &v, p, late == 0 ? 0 : late == 1 ? t->ranks : t->ranks / 2 + 1);
}

static int shortest(SchedGen *g, const SynthTask *t, const VPattern *v, int patterns, int whole)
{
    size_t n = (size_t)t->stages * (size_t)t->microbatches;
    double *key = malloc(3 * n * sizeof *key), bound = t->period * t->microbatches;
    int *cap = calloc((size_t)t->stages, sizeof *cap), best = -1, good = key && cap;
    SynthPolicy p = {
        .key_f = key, .key_i = key + n, .key_w = key + 2 * n, .cap = cap, .whole = whole};
    SynthScore least = {HUGE_VAL, HUGE_VAL, HUGE_VAL}, s;
    for (int k = 0; good && k < WAYS * TURNS * patterns && least.span > bound; k++) {
        follow(t, v, k, &p);
        if (synth_run(t, &p, &s, NULL) &&
            (s.span < least.span || (s.span == least.span && s.sum < least.sum))) {
            least = s;
            best = k;
        }
    }
    if (best >= 0) {
        follow(t, v, best, &p);
        good = synth_run(t, &p, &s, g->s->row);
    }
    free(key);
    free(cap);
    return !good       ? sched_nomem(g->e)
           : best >= 0 ? SCHED_OK
                       : sched_fail(g->e, SCHED_EREFUSED, -1, -1,
                                    "no schedule of the V family fits its memory");
}

static int generate(SchedGen *g, int chunks, const VPattern *v, int patterns, int whole)
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
        st = shortest(g, &t, v, patterns, whole);
    } else {
        st = sched_nomem(g->e);
    }
    synth_task_free(&t);
    sched_graph_free(&graph);
    return st;
}

int sched_gen_vhalf(SchedGen *g)
{
    int p = g->p, d = p % 2 ? 0 : 3;
    const VPattern v[] = {{2, 2 * p - 1, 3 * p + d - 1, 2, 5 * p + d - 1}, {1, p, 2 * p, 1, 3 * p}};
    return generate(g, sched_peak_vhalf(p, 2, g->m, 0, 0), v, 2, 0);
}

int sched_gen_vmin(SchedGen *g)
{
    int p = g->p, d = p % 3 ? 0 : 2;
    const VPattern v[] = {{1, p, 2 * p + d, 1, 3 * p + d}, {1, p, 2 * p, 1, 3 * p}};
    return generate(g, sched_peak_vmin(p, 2, g->m, 0, 0), v, 2, 0);
}

int sched_gen_1f1bv(SchedGen *g)
{
    int p = g->p, d = p % 3 ? 0 : 3;
    const VPattern v[] = {{1, p, 2 * p + d, 2, 4 * p + d},
                          {2, 2 * p, 3 * p, 2, 5 * p},
                          {1, p, 2 * p + d, 3, 5 * p + d},
                          {1, p, 2 * p, 1, 3 * p}};
    return generate(g, sched_peak_1f1bv(p, 2, g->m, 0, 0), v, 4, 1);
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

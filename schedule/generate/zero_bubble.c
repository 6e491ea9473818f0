/*
 * zero_bubble.c - generators of the zero-bubble family: the backward divided into I (gradient of
 * the inputs, which the previous stage waits for) and W (gradient of the weights, which nobody
 * waits for and which therefore fills the bubbles).
 *
 * ZB-H1, ZB-H2: Qi et al., Zero Bubble Pipeline Parallelism (2401.10241).  ZB-V: Qi et al.,
 * Pipeline Parallelism with Controllable Memory (2405.15362).  DualPipeV: the cut-in-half DualPipe
 * of DeepSeek-V3 (2412.19437).
 */
#include "generate.h"

#include <stdlib.h>

/* ---- ZB-H1 and ZB-H2: one chunk per rank ----
   `warm` forwards, then F and I in turn; the W of a microbatch follows the I that is `lag`
   microbatches later, so that all ranks end together.  H1 keeps 1F1B's memory (p microbatches); H2
   fills the warm-up bubble with more forwards (2p
   - 1). */
static void zbh_rank(SchedGen *g, int r, int warm, int lag)
{
    int f = 0, i = 0, w = 0, m = g->m;
    while (f < warm && f < m)
        sched_gen_all(g, r, SA_F, f++);
    while (i < m) {
        if (f < m)
            sched_gen_all(g, r, SA_F, f++);
        sched_gen_all(g, r, SA_I, i++);
        if (i > lag)
            sched_gen_all(g, r, SA_W, w++);
    }
    while (w < m)
        sched_gen_all(g, r, SA_W, w++);
}

int sched_gen_zbh1(SchedGen *g)
{
    for (int r = 0; r < g->p; r++)
        zbh_rank(g, r, g->p - 1 - r, r);
    return SCHED_OK;
}

int sched_gen_zbh2(SchedGen *g)
{
    for (int r = 0; r < g->p; r++)
        zbh_rank(g, r, 2 * (g->p - 1 - r), 2 * r);
    return SCHED_OK;
}

/* ---- ZB-V ----
   Two chunks, placed as a V: s0 = r, s1 = 2p-1-r.  Laid out for n = max(2p-1, m) microbatches; what
   is too much becomes idle. */

typedef struct {
    SchedGen *g;
    int r, s[2], f[2], i[2], w[2];
} Zbv;

static void zbv_put(Zbv *z, int type, int c)
{
    int mb = type == SA_F ? z->f[c]++ : type == SA_I ? z->i[c]++ : z->w[c]++;
    if (mb < z->g->m)
        sched_gen_one(z->g, z->r, type, z->s[c], mb);
    else
        sched_gen_idle(z->g, z->r, 1);
}

static void zbv_rank(Zbv *z)
{
    int p = z->g->p, r = z->r, n = z->g->m > 2 * p - 1 ? z->g->m : 2 * p - 1;
    sched_gen_idle(z->g, r, r);
    for (int k = 0; k < 2 * (p - r) - 1; k++)
        zbv_put(z, SA_F, 0);
    for (int k = 0; k < r; k++) {
        zbv_put(z, SA_F, 1);
        zbv_put(z, SA_F, 0);
    }
    for (int k = 0; k < p - r; k++) {
        zbv_put(z, SA_F, 1);
        zbv_put(z, SA_I, 1);
        zbv_put(z, SA_W, 1);
    }
    while (z->f[1] < z->f[0] || z->f[0] < n) {
        if (z->f[0] < n)
            zbv_put(z, SA_F, 0);
        zbv_put(z, SA_I, 0);
        zbv_put(z, SA_W, 0);
        zbv_put(z, SA_F, 1);
        zbv_put(z, SA_I, 1);
        zbv_put(z, SA_W, 1);
    }
    for (int k = 0; k < r; k++) {
        zbv_put(z, SA_I, 0);
        zbv_put(z, SA_I, 1);
    }
    for (int k = 0; k < p - r; k++) {
        zbv_put(z, SA_I, 0);
        zbv_put(z, SA_W, 0);
    }
    while (z->w[1] < z->i[1])
        zbv_put(z, SA_W, 1);
    while (z->w[0] < z->i[0])
        zbv_put(z, SA_W, 0);
}

int sched_gen_zbv(SchedGen *g)
{
    for (int r = 0; r < g->p; r++) {
        Zbv z = {g,      r,      {sched_gen_stage(g, r, 0), sched_gen_stage(g, r, 1)},
                 {0, 0}, {0, 0}, {0, 0}};
        zbv_rank(&z);
    }
    return SCHED_OK;
}

/* ---- DualPipeV ----
   The backwards of one chunk are counted together, B or I; each I leaves its W in a queue. */

typedef struct {
    SchedGen *g;
    int r, s[2], f[2], b[2];
    int *queue, head, tail;
} Dual; /* queue: stage chunk, microbatch */

static void dual_f(Dual *d, int c) { sched_gen_one(d->g, d->r, SA_F, d->s[c], d->f[c]++); }

static void dual_b(Dual *d, int c, int type)
{
    if (type == SA_I) {
        d->queue[2 * d->tail] = d->s[c];
        d->queue[2 * d->tail++ + 1] = d->b[c];
    }
    sched_gen_one(d->g, d->r, type, d->s[c], d->b[c]++);
}

static void dual_w(Dual *d)
{
    if (d->head < d->tail) {
        sched_gen_one(d->g, d->r, SA_W, d->queue[2 * d->head], d->queue[2 * d->head + 1]);
        d->head++;
    }
}

static void dual_overlap(Dual *d, int f, int b)
{
    SchedAction x = sched_act(SA_F, d->s[f], d->f[f]++), y = sched_act(SA_B, d->s[b], d->b[b]++);
    x.overlap = SCHED_PART;
    y.overlap = SCHED_PART | SCHED_LAST;
    sched_push(&d->g->s->row[d->r], x);
    sched_push(&d->g->s->row[d->r], y);
}

static void dual_warm_up(Dual *d)
{
    int p = d->g->p, r = d->r;
    for (int k = 0; k < 2 * (p - r - 1); k++)
        dual_f(d, 0);
    for (int k = 0; k < r + 1; k++) {
        dual_f(d, 0);
        dual_f(d, 1);
    }
    for (int k = 0; k < p - r - 1; k++) {
        dual_b(d, 1, SA_I);
        dual_w(d);
        dual_f(d, 1);
    }
}

static void dual_rank(Dual *d)
{
    int p = d->g->p, r = d->r, type = SA_B;
    dual_warm_up(d);
    for (int k = 0; k < d->g->m - 2 * p + r + 1; k++) {
        if (k == 0 && r == p - 1) { /* apart, which makes the bubble smaller */
            dual_f(d, 0);
            dual_b(d, 1, SA_B);
        } else {
            dual_overlap(d, 0, 1);
        }
        dual_overlap(d, 1, 0);
    }
    for (int k = 0; k < p - r - 1; k++) {
        dual_b(d, 1, SA_B);
        dual_overlap(d, 1, 0);
    }
    for (int k = 0; k < r + 1; k++) {
        if (k == (r + 1) / 2 && r % 2 == 1)
            type = SA_I;
        dual_b(d, 1, type);
        if (k == (r + 1) / 2 && r % 2 == 0)
            type = SA_I;
        dual_b(d, 0, type);
    }
    for (int k = 0; k < p - r - 1; k++) {
        dual_w(d);
        dual_b(d, 0, type);
    }
    for (int k = 0; k < r + 1; k++)
        dual_w(d);
}

int sched_gen_dualpipev(SchedGen *g)
{
    int *queue = malloc((size_t)g->m * 4 * sizeof *queue);
    if (!queue)
        return sched_nomem(g->e);
    for (int r = 0; r < g->p; r++) {
        Dual d = {g, r, {sched_gen_stage(g, r, 0), sched_gen_stage(g, r, 1)}, {0, 0}, {0, 0}, queue,
                  0, 0};
        dual_rank(&d);
    }
    free(queue);
    return SCHED_OK;
}

/*
 * gen.c - the generators of schedules, compute only, rows with idle slots.
 *
 * In: a name, p ranks, S stages, m microbatches, a placement.  Out: one row per rank.
 * GPipe (Huang et al., 1811.06965), 1F1B (PipeDream-flush, 2006.09503), LoopedBFS (2211.05953), Interleaved1F1B
 * (2104.04473, with the flexible rounds of Llama 3), forward-only.  The zero-bubble family is in sched_gen_zb.c.
 *
 * gpipe, 1f1b and forward-only take any S >= p: a rank then owns a block of neighbouring stages and runs them as one.
 */
#include "base/cli/nearest.h"
#include "gen.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int gen_gpipe(Gen *g);
static int gen_1f1b(Gen *g);
static int gen_looped_bfs(Gen *g);
static int gen_interleaved(Gen *g);
static int gen_interleaved_zb(Gen *g);
static int gen_forward(Gen *g);

// clang-format off
/* place: the placement that belongs to the schedule; BLOCK lets S be any number >= p.  chunks: stages per rank, 0: any. */
enum { BLOCK = -2 };
static const struct {
    const char *name;
    int (*gen)(Gen *g);
    int place, chunks, loop_ok;
} generator[] = {
    {"gpipe",                 gen_gpipe,              BLOCK,            0, 1},
    {"1f1b",                  gen_1f1b,               BLOCK,            0, 0},
    {"interleaved1f1b",       gen_interleaved,        SCHED_PLACE_LOOP, 0, 1},
    {"loopedbfs",             gen_looped_bfs,         SCHED_PLACE_LOOP, 0, 1},
    {"interleavedzerobubble", gen_interleaved_zb,     SCHED_PLACE_LOOP, 0, 1},
    {"zbvzerobubble",         sched_gen_zbv,          SCHED_PLACE_V,    2, 0},
    {"dualpipev",             sched_gen_dualpipev,    SCHED_PLACE_V,    2, 0},
    {"zb-h1",                 sched_gen_zbh1,         BLOCK,            0, 0},
    {"zb-h2",                 sched_gen_zbh2,         BLOCK,            0, 0},
    {"forward-only",          gen_forward,            BLOCK,            0, 1},
};
// clang-format on
enum { N_GENERATOR = sizeof generator / sizeof generator[0] };

/* ---- Helpers shared with sched_gen_zb.c ---- */

void sched_gen_one(Gen *g, int r, int type, int stage, int mb)
{
    sched_push(&g->s->row[r], sched_act(type, stage, mb));
}

void sched_gen_idle(Gen *g, int r, int n)
{
    for (int i = 0; i < n; i++)
        sched_push(&g->s->row[r], sched_act(SA_IDLE, -1, -1));
}

/* The action for all the stages of rank r: forwards upwards, backwards downwards. */
void sched_gen_all(Gen *g, int r, int type, int mb)
{
    if (type == SA_F) {
        for (int i = 0; i < g->v[r]; i++)
            sched_gen_one(g, r, type, sched_gen_stage(g, r, i), mb);
    } else {
        for (int i = g->v[r]; i-- > 0;)
            sched_gen_one(g, r, type, sched_gen_stage(g, r, i), mb);
    }
}

/* ---- The classical ones ---- */

static int gen_gpipe(Gen *g)
{
    for (int r = 0; r < g->p; r++) {
        sched_gen_idle(g, r, r);
        if (g->place == BLOCK) {
            for (int i = 0; i < g->m; i++)
                sched_gen_all(g, r, SA_F, i);
            sched_gen_idle(g, r, 3 * (g->p - 1 - r));
            for (int i = 0; i < g->m; i++)
                sched_gen_all(g, r, SA_B, i);
            continue;
        }
        for (int c = 0; c < g->v[r]; c++)
            for (int i = 0; i < g->m; i++)
                sched_gen_one(g, r, SA_F, sched_gen_stage(g, r, c), i);
        sched_gen_idle(g, r, 3 * (g->p - 1 - r));
        for (int c = g->v[r]; c-- > 0;)
            for (int i = 0; i < g->m; i++)
                sched_gen_one(g, r, SA_B, sched_gen_stage(g, r, c), i);
    }
    return SCHED_OK;
}

static int gen_1f1b(Gen *g)
{
    for (int r = 0; r < g->p; r++) {
        int w = g->m < g->p - r ? g->m : g->p - r, f = 0, b = 0;
        while (f < w)
            sched_gen_all(g, r, SA_F, f++);
        while (f < g->m) {
            sched_gen_all(g, r, SA_B, b++);
            sched_gen_all(g, r, SA_F, f++);
        }
        while (b < g->m)
            sched_gen_all(g, r, SA_B, b++);
    }
    return SCHED_OK;
}

static int gen_looped_bfs(Gen *g)
{
    for (int r = 0; r < g->p; r++) {
        sched_gen_idle(g, r, r);
        for (int c = 0; c < g->v[r]; c++)
            for (int i = 0; i < g->m; i++)
                sched_gen_one(g, r, SA_F, sched_gen_stage(g, r, c), i);
        sched_gen_idle(g, r, 2 * (g->p - 1 - r));
        for (int c = g->v[r]; c-- > 0;)
            for (int i = g->m; i-- > 0;)
                sched_gen_one(g, r, SA_B, sched_gen_stage(g, r, c), i);
    }
    return SCHED_OK;
}

static int gen_forward(Gen *g)
{
    g->s->infer = 1;
    for (int r = 0; r < g->p; r++)
        for (int i = 0; i < g->m; i++)
            sched_gen_all(g, r, SA_F, i);
    return SCHED_OK;
}

/* ---- The interleaved family ----
   Microbatches go in rounds of k = m / max(1, m / p); op i of a rank is a forward of chunk (i / k) mod v, and (i - w) /
   k counts the backwards from the last chunk down.  zero bubble: I instead of B, W of the oldest once r of them are
   pending. */

typedef struct {
    Gen *g;
    int r, k, w, *f, *b, *weight, done_w;
} Inter;

static int fwd_stage(const Inter *x, int i) { return sched_gen_stage(x->g, x->r, (i / x->k) % x->g->v[x->r]); }
static int bwd_stage(const Inter *x, int i)
{
    int v = x->g->v[x->r];
    return sched_gen_stage(x->g, x->r, v - 1 - ((i - x->w) / x->k) % v);
}

static void put_f(Inter *x, int i)
{
    int s = fwd_stage(x, i);
    sched_gen_one(x->g, x->r, SA_F, s, x->f[s]++);
}

static void put_w(Inter *x)
{
    int s = bwd_stage(x, x->w + x->done_w++);
    sched_gen_one(x->g, x->r, SA_W, s, x->weight[s]++);
}

static void put_b(Inter *x, int i, int zb)
{
    int s = bwd_stage(x, i);
    sched_gen_one(x->g, x->r, zb ? SA_I : SA_B, s, x->b[s]++);
    if (zb && i - x->w >= x->r)
        put_w(x);
}

static void inter_rank(Inter *x, int zb)
{
    Gen *g = x->g;
    int p = g->p, r = x->r, v = g->v[r], total = g->m * v, warm = (v - 1) * x->k + (zb ? 1 : 2) * (p - 1 - r);
    x->w = warm < total ? warm : total;
    sched_gen_idle(g, r, r);
    for (int i = 0; i < x->w; i++)
        put_f(x, i);
    if (x->w > 0)
        sched_gen_idle(g, r, zb ? p - r - 1 : v * p + 2 * (p - 1 - r) - (x->w + r));
    for (int i = x->w; i < total; i++) {
        put_f(x, i);
        put_b(x, i, zb);
    }
    for (int i = total; i < total + x->w; i++) {
        if (!zb)
            sched_gen_idle(g, r, 1);
        put_b(x, i, zb);
    }
    while (zb && x->done_w < total)
        put_w(x);
}

static int gen_inter(Gen *g, int zb)
{
    int rounds = g->m / g->p > 1 ? g->m / g->p : 1;
    if (g->m % rounds)
        return sched_fail(g->e, SCHED_EREFUSED, -1, -1,
                          "%s with %d ranks cuts %d microbatches into %d rounds: %d is not a multiple of %d",
                          g->s->name, g->p, g->m, rounds, g->m, rounds);
    for (int r = 0; r < g->p; r++) {
        int *count = calloc((size_t)g->s->stages * 3, sizeof *count);
        Inter x = {g, r, g->m / rounds, 0, count, NULL, NULL, 0};
        if (!count)
            return sched_nomem(g->e);
        x.b = count + g->s->stages;
        x.weight = x.b + g->s->stages;
        inter_rank(&x, zb);
        free(count);
    }
    return SCHED_OK;
}

static int gen_interleaved(Gen *g) { return gen_inter(g, 0); }
static int gen_interleaved_zb(Gen *g) { return gen_inter(g, 1); }

/* ---- By name ---- */

const char *sched_name(int i) { return i >= 0 && i < N_GENERATOR ? generator[i].name : NULL; }

static int same_word(const char *a, const char *b)
{
    while (*a && tolower((unsigned char)*a) == *b) {
        a++;
        b++;
    }
    return !*a && !*b;
}

static int find_generator(const char *name)
{
    for (int i = 0; i < N_GENERATOR; i++)
        if (same_word(name, generator[i].name))
            return i;
    return -1;
}

int sched_is_name(const char *name) { return find_generator(name) >= 0; }

static int unknown_name(const char *name, SchedError *e)
{
    const char *names[N_GENERATOR];
    for (int i = 0; i < N_GENERATOR; i++)
        names[i] = generator[i].name;
    const char *near = nearest_name(name, names, N_GENERATOR);
    if (near)
        return sched_fail(e, SCHED_EUSAGE, -1, -1, "no schedule is called '%.60s'; did you mean '%s'?", name, near);
    return sched_fail(e, SCHED_EUSAGE, -1, -1,
                      "no schedule is called '%.60s'; there are gpipe, 1f1b, interleaved1f1b, loopedbfs, "
                      "interleavedzerobubble, zbvzerobubble, dualpipev, zb-h1, zb-h2, forward-only",
                      name);
}

/* Fills rank_of, and of each rank its number of stages. */
static int place_stages(Gen *g)
{
    int p = g->p, S = g->s->stages;
    for (int s = 0; s < S; s++) {
        int lap = s / p, at = s % p, r;
        if (g->place == BLOCK) { /* the first S mod p ranks own one more, as torch.tensor_split does */
            int q = S / p, big = S % p;
            r = s < big * (q + 1) ? s / (q + 1) : big + (s - big * (q + 1)) / q;
        } else {
            r = g->place == SCHED_PLACE_V && lap % 2 ? p - 1 - at : at;
        }
        g->s->rank_of[s] = r;
        g->v[r]++;
    }
    return SCHED_OK;
}

int sched_gen_stage(const Gen *g, int r, int chunk)
{
    int p = g->p, S = g->s->stages;
    if (g->place == BLOCK)
        return r * (S / p) + (r < S % p ? r : S % p) + chunk;
    return chunk * p + (g->place == SCHED_PLACE_V && chunk % 2 ? p - 1 - r : r);
}

static int check_shape(int i, int p, int S, int m, int place, SchedError *e)
{
    const char *name = generator[i].name;
    if (p < 1 || S < 1 || m < 1)
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "%s needs at least one rank, one stage and one microbatch", name);
    if (S < p)
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "%d stages are too few for %d ranks: each rank needs one", S, p);
    if ((int64_t)S * m > SCHED_MAX_CELLS / 4 || (int64_t)p * p > SCHED_MAX_CELLS)
        return sched_fail(e, SCHED_ERESOURCE, -1, -1,
                          "%d stages with %d microbatches are more actions than this program holds", S, m);
    if (generator[i].chunks && S != p * generator[i].chunks)
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "%s needs %d stages a rank: %d for %d ranks, not %d", name,
                          generator[i].chunks, p * generator[i].chunks, p, S);
    if (place != BLOCK && S % p)
        return sched_fail(e, SCHED_EREFUSED, -1, -1,
                          "%s needs the same number of stages on every rank: %d is not a multiple of %d", name, S, p);
    if (place != BLOCK && place != generator[i].place && S != p && !generator[i].loop_ok)
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "%s has a placement of its own; leave --placement out%s", name,
                          strcmp(name, "1f1b") == 0 ? " (1f1b over looped stages is interleaved1f1b)" : "");
    if (place == SCHED_PLACE_V && generator[i].place == SCHED_PLACE_LOOP && S != p)
        return sched_fail(e, SCHED_EREFUSED, -1, -1, "%s loops over the ranks; its stages cannot be placed as a V",
                          name);
    return SCHED_OK;
}

int sched_generate(const char *name, int ranks, int stages, int microbatches, int placement, Schedule **out,
                   SchedError *e)
{
    int i = find_generator(name), st;
    *out = NULL;
    if (i < 0)
        return unknown_name(name, e);
    int place = placement == SCHED_PLACE_DEFAULT ? generator[i].place : placement;
    if ((st = check_shape(i, ranks, stages, microbatches, place, e)))
        return st;
    if (stages == ranks && generator[i].place == BLOCK)
        place = BLOCK;
    Gen g = {sched_new(generator[i].name, ranks, stages, microbatches),
             ranks,
             microbatches,
             place,
             calloc((size_t)ranks, sizeof(int)),
             e};
    st = g.s && g.v ? place_stages(&g) : sched_nomem(e);
    if (!st)
        st = generator[i].gen(&g);
    if (!st)
        st = sched_rows_ok(g.s, e);
    free(g.v);
    if (st) {
        sched_free(g.s);
        return st;
    }
    *out = g.s;
    return SCHED_OK;
}

/* Peak of live microbatch-chunks, SCHEDULES.md 4, for the same number of chunks on every rank. */
int sched_peak_formula(const char *name, int p, int S, int m, int rank)
{
    int i = find_generator(name);
    if (i < 0 || p < 1 || (S % p && generator[i].place != BLOCK))
        return -1;
    int v = S / p + (rank < S % p), rounds = m / p > 1 ? m / p : 1, k = m / rounds, n = -1, all = m * v;
    switch (i) {
    case 0:
    case 3: n = all; break;            /* gpipe, loopedbfs */
    case 1: n = v * (p - rank); break; /* 1f1b, a block of v counts as v */
    case 2: n = (v - 1) * k + 2 * (p - 1 - rank) + 1; break;
    case 4: n = (v - 1) * k + p; break;
    case 5: n = 2 * p; break;
    case 6: n = 2 * p + 1; break;
    case 7: n = v * p; break;           /* zb-h1 */
    case 8: n = v * (2 * p - 1); break; /* zb-h2 */
    default: return -1;
    }
    return n < all ? n : all;
}

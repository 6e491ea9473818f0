/*
 * test_sim.c - the simulator against closed forms (SCHEDULES.md 4) and against published bubble
 * rates (2401.10241, 2405.15362).
 */
#include "passes.h"
#include "schedule/tool/tool.h"
#include "schedule/simulate/trace.h"
#include "schedule/synth/auto.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static SchedError err;

static int simulate(const char *name, int p, int v, int m, const char *costs, double overlap,
                    int lower, SchedSim *sim)
{
    Schedule *s;
    SchedCosts c;
    sched_costs_default(&c);
    c.overlap = overlap;
    if (sched_generate(name, p, p * v, m, -1, &s, &err))
        return 0;
    int st = (costs && sched_costs_set(&c, costs, &err)) || (lower && sched_lower(s, 3, &err)) ||
             sched_simulate(s, &c, sim, &err);
    if (st)
        printf("# %s %d %d %d: %s\n", name, p, v, m, err.text);
    sched_costs_free(&c);
    sched_free(s);
    return !st;
}

/* Sums over replicas, each stage's beside the computations of those before it: 1F1B ends later by
 * the longest that does not hide, max_j max(0, AR_j - j (B + W + c)). */
static void reductions(void)
{
    enum { P = 4, M = 8 };
    static const double ar[][P] = {
        {0, 0, 0, 0}, {1, 1, 1, 1}, {0, 3, 0, 0}, {0, 0, 0, 9}, {2, 4.5, 3, 20}, {0, 2, 4, 6}};
    int bad = 0;
    for (unsigned i = 0; i < sizeof ar / sizeof *ar; i++)
        for (int c = 0; c < 2; c++) {
            SchedSim with, without;
            char costs[200], none[40];
            double late = 0;
            snprintf(none, sizeof none, "B=2,c=%d", c);
            snprintf(costs, sizeof costs, "%s,0AR=%g,1AR=%g,2AR=%g,3AR=%g", none, ar[i][0],
                     ar[i][1], ar[i][2], ar[i][3]);
            for (int j = 0; j < P; j++)
                late = fmax(late, ar[i][j] - j * (2 + c));
            if (!simulate("1f1b", P, 1, M, costs, -1, 1, &with) ||
                !simulate("1f1b", P, 1, M, none, -1, 1, &without)) {
                bad++;
                continue;
            }
            if (fabs(with.makespan - without.makespan - late) > 1e-9) {
                printf("# c=%d, AR of %g %g %g %g: exposed %g, not %g\n", c, ar[i][0], ar[i][1],
                       ar[i][2], ar[i][3], with.makespan - without.makespan, late);
                bad++;
            }
            sched_sim_free(&with);
            sched_sim_free(&without);
        }
    ok(bad == 0, "sums over replicas: what 1F1B does not hide of them");
}

/* A rank that gives half of its time to a sum of 2 computes 1 of the 2 of stage 0's backward
 * meanwhile; and of a longer sum, all of it. */
static void beside(void)
{
    static const double ar[] = {2, 2, 6}, own[] = {0, 1, 3}, want[] = {6, 7, 10};
    int bad = 0;
    for (int i = 0; i < 3; i++) {
        Schedule *s = NULL;
        SchedCosts c;
        SchedSim sim;
        sched_costs_default(&c);
        if (sched_generate("gpipe", 1, 2, 1, -1, &s, &err) || sched_reduce_grad(s, 1, &err) ||
            sched_costs_stages(&c, 2, &err)) {
            bad++;
            continue;
        }
        c.stage_reduction[1] = ar[i];
        c.stage_beside[1] = own[i];
        if (sched_simulate(s, &c, &sim, &err) || fabs(sim.makespan - want[i]) > 1e-9)
            printf("# AR %g, of it %g: %g, not %g\n", ar[i], own[i], sim.makespan, want[i]), bad++;
        sched_sim_free(&sim);
        sched_costs_free(&c);
        sched_free(s);
    }
    ok(bad == 0, "sums over replicas take their part of the rank's time");
}

static int at_most(int a, int b) { return a < b ? a : b; }

/* The closed forms over a grid; each with compute-only rows and with lowered ones. */
static void closed_forms(void)
{
    int bad[8] = {0}, n = 0;
    static const char *const name[8] = {
        "gpipe",         "1f1b",  "loopedbfs", "interleaved1f1b", "interleavedzerobubble",
        "zbvzerobubble", "zb-h1", "peaks"};
    for (int p = 1; p <= 6; p++)
        for (int v = 1; v <= 3; v++)
            for (int m = 1; m <= 20; m++)
                for (int i = 0; i < 7; i++) {
                    SchedSim sim;
                    int rounds = m / p > 1 ? m / p : 1, k = m / rounds, lower = (p + v + m) % 2;
                    if ((i < 2 || i == 6) && v > 1)
                        continue;
                    if ((i == 2 && m < p) ||
                        ((i == 3 || i == 4) &&
                         (m % rounds || m < p))) /* the forms are of full rounds */
                        continue;
                    if (i == 5 && (v != 2 || m < 2 * p))
                        continue;
                    if (i == 6 && m < p)
                        continue;
                    if (!simulate(name[i], p, v, m, NULL, -1, lower, &sim)) {
                        bad[i]++;
                        continue;
                    }
                    double whole = i < 2              ? (m + p - 1) * 3
                                   : i < 4            ? (m * v + p - 1) * 3
                                   : i == 4 || i == 6 ? m * v * 3 + (p - 1)
                                                      : 0;
                    if (i == 5) {
                        for (int r = 0; r < p; r++)
                            bad[i] += fabs(sim.rank_span[r] - sim.busy[r]) > 1e-9;
                    } else if (fabs(sim.makespan - whole) > 1e-9) {
                        printf("# %s p %d v %d m %d: %g, not %g\n", name[i], p, v, m, sim.makespan,
                               whole);
                        bad[i]++;
                    }
                    for (int r = 0; r < p; r++) {
                        int want = i == 0   ? m
                                   : i == 1 ? at_most(m, p - r)
                                   : i == 2 ? m * v
                                   : i == 3 ? at_most(m * v, (v - 1) * k + 2 * (p - 1 - r) + 1)
                                   : i == 4 || i == 6 ? at_most(m * v, (v - 1) * k + p)
                                                      : 2 * p;
                        int exact = i < 4;
                        if (exact ? sim.peak[r] != want : sim.peak[r] > want) {
                            printf("# %s p %d v %d m %d rank %d: peak %d, formula %d\n", name[i], p,
                                   v, m, r, sim.peak[r], want);
                            bad[7]++;
                        }
                    }
                    n++;
                    sched_sim_free(&sim);
                }
    for (int i = 0; i < 8; i++)
        ok(bad[i] == 0, "%s: closed form over the grid of (p, v, m)%s", name[i],
           n > 500 ? "" : " (too small)");
}

/* GIS with every group: PipeOffload's closed forms (2503.01328, table 1), exact on each rank, with
   F = I = W = 1. */
static void gis_forms(void)
{
    int bad = 0, n = 0;
    for (int p = 2; p <= 8; p++)
        for (int v = 1; v <= 4; v++)
            for (int g = (p + 1) / 2; g <= p; g++)
                for (int m = 2 * g; m <= 24; m += g, n++) {
                    SchedSim sim;
                    char name[16];
                    snprintf(name, sizeof name, "gis:%d", g);
                    if (!simulate(name, p, v, m, NULL, -1, m % 2, &sim)) {
                        bad++;
                        continue;
                    }
                    bad += sim.makespan != 3 * m * v + 2 * (p - 1) + (p - g) * (v - 1);
                    for (int r = 0; r < p; r++)
                        bad += sim.peak[r] != (v - 1) * g + p - r;
                    sched_sim_free(&sim);
                }
    ok(bad == 0 && n > 500, "gis: makespan and peaks over the grid of (p, v, g, m)");
}

/* Lowered rows, and the same with all copies for which there is time: computations begin when they
   did, both verify, fewer microbatches are on the device. */
static int offloads(const char *name, int p, int v, int m, const char *costs, int *moved, int *less)
{
    Schedule *s, *c;
    SchedCosts cost;
    SchedSim before, after;
    const SchedNeeds needs = {.offload = &(SchedOffload){.costs = &cost}};
    sched_costs_default(&cost);
    if (sched_generate(name, p, p * v, m, -1, &s, &err) || sched_costs_set(&cost, costs, &err) ||
        sched_costs_stages(&cost, p * v, &err))
        return 0;
    c = sched_clone(s);
    int good = !sched_lower_for(s, &(SchedNeeds){.buffers = 0}, &err) &&
               !sched_lower_for(c, &needs, &err) && !sched_simulate(s, &cost, &before, &err) &&
               !sched_simulate(c, &cost, &after, &err);
    for (int r = 0; good && r < p; r++) {
        *less += before.peak[r] - after.peak[r];
        good &= after.peak[r] <= before.peak[r];
        for (int i = 0, k = 0; i < c->row[r].n; i++) {
            int type = c->row[r].a[i].type;
            *moved += type == SA_OFFLOAD;
            if (type == SA_OFFLOAD || type == SA_FETCH || type == SA_WAIT_OFFLOAD)
                continue;
            good &= fabs(after.start[r][i] - before.start[r][k]) < 1e-9 * after.makespan;
            k++;
        }
    }
    sched_sim_free(&before), sched_sim_free(&after);
    sched_costs_free(&cost);
    sched_free(s), sched_free(c);
    return good;
}

static void offload_all(void)
{
    static const char *const costs[] = {"F=1", "F=2,I=3,W=1,OFFLOAD=5,FETCH=5",
                                        "OFFLOAD=0.1,FETCH=0.1,1F=3,0OFFLOAD=4,c=0.5",
                                        "F=18.5,I=18.1,W=9.3,OFFLOAD=30,FETCH=25"};
    int bad = 0, n = 0, moved = 0, less = 0;
    for (int i = 0; sched_kind(i); i++)
        for (int p = 1; p <= 5; p++)
            for (int v = 1; v <= 3; v++)
                for (int m = 1; m <= 12; m++) {
                    Schedule *s;
                    if (!strcmp(sched_kind(i)->name, "forward-only") ||
                        sched_generate(sched_kind(i)->name, p, p * v, m, -1, &s, &err))
                        continue;
                    sched_free(s);
                    n++;
                    if (!offloads(sched_kind(i)->name, p, v, m, costs[n % 4], &moved, &less)) {
                        printf("# %s %d %d %d %s: %s\n", sched_kind(i)->name, p, v, m, costs[n % 4],
                               err.text);
                        bad++;
                    }
                }
    ok(bad == 0 && n > 500 && moved > 1000 && less > 500,
       "stashes on the host where there is time: no computation waits (%d schedules, %d copies)", n,
       moved);
    /* PipeOffload: about 4 chunks are enough, however many there are of them. */
    for (int v = 2; v <= 8; v += 2) {
        Schedule *s;
        SchedCosts cost;
        sched_costs_default(&cost);
        sched_generate("gis-h", 4, 4 * v, 16, -1, &s, &err);
        int before = sched_live_rank(s, 0), st = with_copies(s, &cost, NULL, &err);
        ok(!st && before == 2 * (v - 1) + 4 && sched_live_rank(s, 0) <= 4,
           "gis-h with %d chunks a rank: %d alive, %d with copies", v, before,
           sched_live_rank(s, 0));
        sched_free(s);
    }
}

/* The column "p=4 m=8: makespan, bubble" and the line below it. */
static void table(void)
{
    static const struct {
        const char *name;
        int v, m;
        double makespan, bubble;
        int peak;
    } row[] = {
        {"gpipe", 1, 8, 33, .2727, 8},
        {"1f1b", 1, 8, 33, .2727, 4},
        {"loopedbfs", 2, 8, 57, .1579, 16},
        {"interleaved1f1b", 2, 8, 57, .1579, 11},
        {"interleavedzerobubble", 1, 8, 27, .1111, 4},
        {"interleavedzerobubble", 2, 8, 51, .0588, 8},
        {"zbvzerobubble", 2, 8, 51, .0588, 8},
        {"dualpipev", 2, 8, 51, .0588, 9},
        {"1f1b", 1, 16, 57, .1579, 4},
        {"interleaved1f1b", 2, 16, 105, .0857, 11},
        {"interleavedzerobubble", 2, 16, 99, .0303, 8},
        {"zbvzerobubble", 2, 16, 99, .0303, 8},
        {"dualpipev", 2, 16, 99, .0303, 9},
        {"gis", 2, 8, 54, .1111, 8},
        {"gis-h", 2, 8, 56, .1429, 6},
    };
    SchedSim sim;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        if (!ok(simulate(row[i].name, 4, row[i].v, row[i].m, NULL, -1, 0, &sim), "%s p=4 v=%d m=%d",
                row[i].name, row[i].v, row[i].m))
            continue;
        int worst = 0;
        for (int r = 0; r < 4; r++)
            worst = sim.peak[r] > worst ? sim.peak[r] : worst;
        ok(sim.makespan == row[i].makespan && fabs(sim.bubble - row[i].bubble) < 5e-5 &&
               worst == row[i].peak,
           "%s: %g, %.4f, peak %d", row[i].name, sim.makespan, sim.bubble, worst);
        sched_sim_free(&sim);
    }
    if (ok(simulate("zbvzerobubble", 4, 2, 8, "F=2,I=3,W=1,B=4", -1, 0, &sim),
           "zbv with unequal costs")) {
        int fine = 1;
        for (int r = 0; r < 4; r++)
            fine &= fabs(sim.rank_span[r] - sim.busy[r] - (12 - 3 * r)) < 1e-9;
        ok(fine, "it idles 12, 9, 6, 3 inside the ranks' windows");
        sched_sim_free(&sim);
    }
    static const int zbv[][2] = {{4, 8}, {8, 16}};
    for (int i = 0; i < 2; i++)
        if (ok(simulate("zbvzerobubble", zbv[i][0], 2, zbv[i][1], NULL, -1, 1, &sim), "zbv %d %d",
               zbv[i][0], zbv[i][1])) {
            ok(sim.span == 6 * zbv[i][1] && sim.bubble_span == 0, "zbv has no bubble: span %g",
               sim.span);
            sched_sim_free(&sim);
        }
    /* of a forward and a backward at once the longer takes its time, the other so much of its */
    static const struct {
        int p, m;
        const char *costs;
        double both, ends;
    } pair[] = {{2, 4, NULL, 1, 26},
                {4, 8, NULL, 1, 54},
                {4, 10, NULL, 1, 66},
                {8, 16, NULL, 1, 110},
                {4, 10, NULL, .5, 59},
                {4, 10, "F=2,I=2,W=1,B=3", .5, 101},
                {4, 10, "F=3,I=4,W=2,B=6", 1. / 3, 176}};
    int bad = 0;
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
        if (simulate("dualpipev", pair[i].p, 2, pair[i].m, pair[i].costs, pair[i].both, 0, &sim)) {
            bad += fabs(sim.makespan - pair[i].ends) > 1e-9 * pair[i].ends;
            if (fabs(sim.makespan - pair[i].ends) > 1e-9 * pair[i].ends)
                printf("# p %d m %d %g: %g, not %g\n", pair[i].p, pair[i].m, pair[i].both,
                       sim.makespan, pair[i].ends);
            sched_sim_free(&sim);
        } else {
            bad++;
        }
    }
    ok(bad == 0, "dualpipev, pairs as one: it ends as DeepSeek's does");
}

enum { TABLE_5 = 12, NAMED = 4 };
static const char *const named[NAMED] = {"1f1b", "interleaved1f1b", "zb-h1", "zb-h2"};

/* Bubble rates of 2401.10241, tables 5 and 8, from the times that it measured, to four digits; of
   interleaved1f1b, whose wrap from the last rank to the first one is left out there, what an
   independent simulation has that waits for it.  Table 8's times are of half a stage. */
static const struct {
    int p, m, chunks;
    double F, B, W, c, rate[NAMED];
} measured[] = {
    {8, 24, 3, 18.522, 18.086, 9.337, 0.601, {.2431, .1090, .1585, .1083}},
    {8, 32, 3, 18.513, 18.086, 9.331, 0.626, {.1985, .0847, .1242, .0837}},
    {8, 64, 3, 18.546, 18.097, 9.321, 0.762, {.1240, .0461, .0674, .0444}},
    {8, 24, 4, 29.718, 29.444, 19.927, 0.527, {.2347, .0827, .1323, .0698}},
    {8, 32, 4, 29.802, 29.428, 19.530, 0.577, {.1898, .0644, .1045, .0559}},
    {8, 64, 4, 29.935, 29.621, 19.388, 0.535, {.1091, .0328, .0554, .0294}},
    {16, 48, 3, 11.347, 11.248, 8.132, 0.377, {.2552, .1136, .1397, .0672}},
    {16, 64, 3, 11.307, 11.254, 8.101, 0.379, {.2082, .0878, .1088, .0516}},
    {16, 128, 3, 11.325, 11.308, 8.109, 0.378, {.1251, .0459, .0576, .0266}},
    {32, 96, 2, 10.419, 10.207, 7.715, 0.408, {.2646, .1528, .1421, .0641}},
    {32, 128, 2, 10.408, 10.204, 7.703, 0.408, {.2168, .1192, .1106, .0490}},
    {32, 256, 2, 10.402, 10.248, 7.698, 0.460, {.1352, .0641, .0594, .0257}},
    {16, 48, 2, 2 * 14.407, 2 * 14.380, 2 * 9.676, 1.610, {.2668, .1549, .1536, .0823}},
    {16, 64, 2, 2 * 14.412, 2 * 14.393, 2 * 9.688, 1.621, {.2206, .1209, .1198, .0630}},
    {16, 128, 2, 2 * 14.316, 2 * 14.306, 2 * 9.639, 1.619, {.1390, .0644, .0637, .0325}},
    {24, 72, 2, 2 * 6.763, 2 * 6.969, 2 * 5.251, 0.755, {.2699, .1566, .1439, .0628}},
    {24, 96, 2, 2 * 6.783, 2 * 6.984, 2 * 5.259, 0.758, {.2229, .1223, .1121, .0480}},
    {24, 192, 2, 2 * 6.785, 2 * 6.990, 2 * 5.260, 0.770, {.1403, .0652, .0595, .0247}},
    {32, 96, 2, 2 * 9.458, 2 * 9.748, 2 * 7.288, 0.879, {.2676, .1549, .1429, .0629}},
    {32, 128, 2, 2 * 9.469, 2 * 9.744, 2 * 7.306, 0.892, {.2204, .1210, .1111, .0478}},
    {32, 256, 2, 2 * 9.447, 2 * 9.644, 2 * 7.193, 0.887, {.1362, .0644, .0593, .0251}},
};

/* Of row i; 2: it is none. */
static double rate_of(size_t i, int k)
{
    SchedSim sim;
    const int p = measured[i].p, m = measured[i].m, v = k == 1 ? measured[i].chunks : 1;
    char costs[200];
    snprintf(costs, sizeof costs, "F=%.17g,I=%.17g,W=%.17g,c=%.17g", measured[i].F / v,
             measured[i].B / v, measured[i].W / v, measured[i].c);
    if (!simulate(named[k], p, v, m, costs, -1, (int)i % 2, &sim))
        return 2;
    double rate = (sim.span - m * (measured[i].F + measured[i].B + measured[i].W)) / sim.span;
    rate = fabs(sim.bubble_span - rate) < 1e-9 ? rate : 2;
    sched_sim_free(&sim);
    return rate;
}

static void published(void)
{
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        for (int k = 0; k < NAMED; k++) {
            double rate = rate_of(i, k);
            ok(fabs(rate - measured[i].rate[k]) < 5e-5, "%s p=%d m=%d: %.4f, published %.4f",
               named[k], measured[i].p, measured[i].m, rate, measured[i].rate[k]);
        }
}

/* Tables 4 and 6: samples a second that A100s trained, of the same models, 1F1B and ZB-1p, whose
   bubble is zb-h1's.  Simulated, one is as many times as fast as the other, to 3 % and 4 %. */
static void trained(void)
{
    static const double samples[][2] = {
        {11.8, 12.9}, {12.5, 13.4}, {13.6, 14.2}, {3.50, 3.88}, {3.70, 4.00}, {4.03, 4.20},
        {1.40, 1.61}, {1.49, 1.67}, {1.64, 1.76}, {.76, .87},   {.80, .90},   {.88, .96},
        {3.38, 3.87}, {3.57, 4.00}, {3.91, 4.29}, {1.52, 1.72}, {1.61, 1.78}, {1.76, 1.89},
        {.82, .94},   {.87, .97},   {.95, 1.03}};
    int bad = 0;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        double was = samples[i][1] / samples[i][0],
               said = (1 - rate_of(i, 2)) / (1 - rate_of(i, 0));
        int good = fabs(said / was - 1) < (i < TABLE_5 ? .03 : .04);
        bad += !good;
        if (!good)
            printf("# p %d m %d: %.3f, measured %.3f\n", measured[i].p, measured[i].m, said, was);
    }
    ok(bad == 0, "ZB-1p beside 1F1B on A100s: as many times as fast as they measured, to 4 %%");
}

/* Where the best schedule ends, of one stage a rank. */
static double made_to_measure(int p, int m, const char *costs)
{
    static SchedAutoReport report;
    SchedCosts c;
    Schedule *s = NULL;
    sched_costs_default(&c);
    SchedAuto a = {.ranks = p, .stages = p, .microbatches = m, .placement = -1, .costs = &c};
    int st = sched_costs_set(&c, costs, &err) || sched_auto(&a, &s, &report, &err);
    sched_costs_free(&c);
    sched_free(s);
    return st ? -1 : report.tried[report.chosen].makespan;
}

/* Fewer microbatches than ranks (2401.10241, appendix H): with c = 0 1F1B ends at
   (m + p - 1)(F + B + W), ZB at (m + p - 1)(F + B) + W.  Table 12 has what A100s trained in a second
   so, ZB-2p and 1F1B: one is as many times as fast as the other as those say, to 5 %. */
static void few_microbatches(void)
{
    static const struct {
        int row, m; /* of measured[] */
        double one, zb;
    } run[] = {{0, 2, 3.56, 4.25}, {0, 4, 5.74, 6.92}, {0, 8, 8.26, 9.90},
               {3, 2, 1.04, 1.33}, {3, 4, 1.69, 2.16}, {3, 8, 2.45, 3.07},
               {6, 4, .39, .52},   {6, 8, .65, .85},   {6, 16, .95, 1.25}};
    int bad = 0;
    for (size_t i = 0; i < sizeof run / sizeof *run; i++) {
        const double F = measured[run[i].row].F, B = measured[run[i].row].B,
                     W = measured[run[i].row].W;
        const int p = measured[run[i].row].p, m = run[i].m;
        char costs[200];
        SchedSim one;
        snprintf(costs, sizeof costs, "F=%.17g,I=%.17g,W=%.17g", F, B, W);
        if (!simulate("1f1b", p, 1, m, costs, -1, 0, &one)) {
            bad++;
            continue;
        }
        const double was = run[i].zb / run[i].one, zb = made_to_measure(p, m, costs),
                     said = one.makespan / zb;
        int good = fabs(one.makespan - (m + p - 1) * (F + B + W)) < 1e-6 &&
                   fabs(zb - ((m + p - 1) * (F + B) + W)) < 1e-6 && fabs(said / was - 1) < .05;
        bad += !good;
        if (!good)
            printf("# p %d m %d: %g, %g: %.3f, measured %.3f\n", p, m, one.makespan, zb, said,
                   was);
        sched_sim_free(&one);
    }
    ok(bad == 0, "fewer microbatches than ranks: the closed forms, and A100s' quotients to 5 %%");
}

/* Seq1F1B (2406.03488): a microbatch in s slices of its sequence, whose backwards come in reverse.
   Rank i goes ahead by p - 1 - i + s - 1 slices, then F and B in turn, then what is left. */
static char *seq1f1b(int p, int m, int s)
{
    const size_t size = (size_t)(p * m * s) * 24 + 64;
    char *text = calloc(size, 1);
    size_t n = 0;
    for (int i = 0; text && i < p; i++) {
        const int all = m * s, ahead = at_most(p - 2 - i + s, all);
        for (int k = 0; k < all + ahead; k++) {
            const int b = k - ahead, reversed = b < 0 ? 0 : b / s * s + s - 1 - b % s;
            if (k < all)
                n += (size_t)snprintf(text + n, size - n, "%s%dF%d", k ? "," : "", i, k);
            if (b >= 0)
                n += (size_t)snprintf(text + n, size - n, ",%dB%d", i, reversed);
        }
        n += (size_t)snprintf(text + n, size - n, "\n");
    }
    return text;
}

static void sequences(void)
{
    static const struct {
        int p, m, s, ends, peak; /* F = 1, B = 2 a slice; of the first rank, one less each */
    } of[] = {{4, 8, 1, 33, 4}, {4, 8, 2, 57, 5}, {4, 8, 4, 105, 7}, {8, 16, 4, 213, 11}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        Schedule *s = NULL;
        SchedCosts c;
        SchedSim sim = {0};
        char *text = seq1f1b(of[k].p, of[k].m, of[k].s);
        sched_costs_default(&c);
        int st = !text || sched_parse(text, strlen(text), "seq1f1b", &s, &err) ||
                 sched_costs_set(&c, "F=1,B=2", &err) || sched_lower(s, 3, &err) ||
                 sched_simulate(s, &c, &sim, &err);
        int good = !st && fabs(sim.makespan - of[k].ends) < 1e-9;
        for (int i = 0; good && i < of[k].p; i++)
            good = sim.peak[i] == of[k].peak - i;
        ok(good, "Seq1F1B p=%d m=%d in %d slices: ends at %g, %d slices alive%s%s", of[k].p,
           of[k].m, of[k].s, st ? -1 : sim.makespan, st ? -1 : sim.peak[0], st ? ": " : "",
           st ? err.text : "");
        if (!st)
            sched_sim_free(&sim);
        sched_costs_free(&c);
        sched_free(s);
        free(text);
    }
}

/* By hand: two ranks, one microbatch or two, F=1 B=2. */
static void by_hand(void)
{
    int failed;
    Schedule *s;
    SchedCosts c;
    SchedSim sim;
    sched_costs_default(&c);
    c.latency = 10;
    c.per_byte = 0.5;
    SchedEdge edge[] = {{0, 1, 1, 4, 8}};
    c.edge = edge;
    c.n_edge = 1;
    sched_generate("1f1b", 2, 2, 1, -1, &s, &err);
    failed = sched_simulate(s, &c, &sim, &err);
    ok(!failed && sim.makespan == 1 + 12 + 1 + 2 + 14 + 2, "latency and bytes of an edge: %g",
       sim.makespan);
    sched_sim_free(&sim);
    sched_free(s);

    double stash[2] = {100, 30}, late[2] = {40, 0}, saved[2] = {5, 7};
    sched_costs_default(&c);
    c.bytes_stash = stash;
    c.bytes_late = late;
    c.bytes_saved = saved;
    const char *rows = "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1B0,1F1,1I1,1W1\n";
    sched_parse(rows, strlen(rows), "bytes", &s, &err);
    failed = sched_simulate(s, &c, &sim, &err);
    ok(!failed && sim.peak_bytes[0] == 205 && sim.peak_bytes[1] == 37,
       "bytes live on each rank: %g %g", sim.peak_bytes[0], sim.peak_bytes[1]);
    ok(sched_live(s, 0) == 2 && sched_live(s, 1) == 1 && sched_live_saved(s, 0) == 2 &&
           sched_live_rank(s, 0) == 2,
       "slots for stash and saved");
    sched_sim_free(&sim);
    sched_free(s);
}

/* A trace read back gives the costs that made it. */
static void trace(void)
{
    int failed;
    char path[] = "/tmp/test_sim_XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    Schedule *s;
    SchedCosts c;
    SchedSim a, b;
    sched_costs_default(&c);
    ok(!sched_costs_set(&c, "F=3,1F=5,W=2.5,I=4,0SEND_F=1,1AR=40", &err), "costs of single stages");
    sched_generate("zb-h1", 3, 3, 5, -1, &s, &err);
    sched_lower(s, 3, &err);
    failed = sched_simulate(s, &c, &a, &err);
    ok(!failed, "simulated");
    sched_trace_open(f, "a \"title\"\n", 3);
    for (int step = 0; step < 3; step++) { /* the first step is slow and must not count */
        sched_trace_replicas(f, 9, "AR", 1, step, (SchedSpan){0, step ? 40 : 70, -1, 0, NULL},
                             step ? 0.5 : 3);
        for (int r = 0; r < 3; r++)
            for (int i = 0; i < s->row[r].n; i++) {
                sched_trace_event(f, r, &s->row[r].a[i], step,
                                  (SchedSpan){a.start[r][i],
                                              (a.end[r][i] - a.start[r][i]) * (step ? 1 : 7), -1,
                                              0, NULL});
                sched_trace_wait(f, r, &s->row[r].a[i], step, a.start[r][i], 99);
            }
    }
    sched_trace_close(f);
    fclose(f);
    sched_costs_free(&c);
    sched_costs_default(&c);
    failed = sched_costs_load(&c, path, 3, NULL, &err);
    ok(!failed, "the trace loads%s%s", failed ? ": " : "", failed ? err.text : "");
    failed = sched_simulate(s, &c, &b, &err);
    ok(!failed && b.makespan == a.makespan && b.span == a.span, "and predicts %g, was %g",
       b.makespan, a.makespan);
    ok(c.stage_time[SA_TYPES + SA_F] == 5 && c.stage_time[SA_B] == 6.5 &&
           c.stage_reduction[1] == 40 && c.stage_reduction[0] == 0 && c.stage_beside[1] == 0.5,
       "per stage; B follows from I and W; sums over replicas");
    char twice[2 * sizeof path + 2], half[sizeof path + 2];
    snprintf(twice, sizeof twice, "%s,%s", path, path);
    snprintf(half, sizeof half, "%s,", path);
    SchedCosts both;
    sched_costs_default(&both);
    ok(!sched_costs_load(&both, twice, 3, NULL, &err) && both.around == c.around &&
           !memcmp(both.stage_time, c.stage_time, 3 * SA_TYPES * sizeof(double)) &&
           sched_costs_load(&both, half, 3, NULL, &err) != 0,
       "of several runs the means, and each must be there");
    sched_costs_free(&both);
    sched_costs_free(&c);
    sched_sim_free(&a);
    sched_sim_free(&b);
    sched_free(s);
    static const char *const bad[] = {"",
                                      "{",
                                      "[1,2",
                                      "{\"traceEvents\":[]}",
                                      "{\"traceEvents\":[{\"name\":\"0F0\",\"dur\":}]}",
                                      "nonsense",
                                      "[[[["};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f = fopen(path, "w");
        fputs(bad[i], f);
        fclose(f);
        sched_costs_default(&c);
        ok(sched_costs_load(&c, path, 3, NULL, &err) != 0, "no trace: %s", bad[i]);
        sched_costs_free(&c);
    }
    unlink(path);
    sched_costs_default(&c);
    ok(sched_costs_set(&c, "F=1,Q=2", &err) && sched_costs_set(&c, "F=x", &err) &&
           sched_costs_set(&c, "F=-1", &err) && sched_costs_set(&c, "", &err),
       "no costs");
    sched_costs_free(&c);
}

/* A run with whole backwards, or divided ones, of a machine that is slower by `slow`; the stages' own
   times, a rank's second F late once, as others' work makes it. */
static void run_of(char *path, int divided, double slow)
{
    static const double f[2] = {18, 21}, b[2] = {34, 40}, i[2] = {0.001, 21.8}, w[2] = {34, 19.4};
    FILE *out = fdopen(mkstemp(path), "w");
    sched_trace_open(out, "", 2);
    for (int step = 0; step < 4; step++)
        for (int s = 0; s < 2; s++) {
            for (int m = 0; m < 8; m++) {
                SchedAction a = {.stage = s, .microbatch = m, .type = SA_F};
                double late = (m == 1 && step == 2) ? 9 * divided : 0, first = step ? slow : 7;
                sched_trace_event(out, s, &a, step, (SchedSpan){0, first * (f[s] + late), -1, 0, NULL});
                for (int part = 0; part <= divided; part++) {
                    a.type = (uint8_t)(!divided ? SA_B : part ? SA_W : SA_I);
                    sched_trace_event(out, s, &a, step,
                                      (SchedSpan){0,
                                                  first * (!divided ? b[s]
                                                           : part   ? w[s]
                                                                    : i[s]),
                                                  -1, 0, NULL});
                }
            }
            sched_trace_around(out, s, "update", step, 0, slow * 5);
        }
    sched_trace_close(out);
    fclose(out);
}

static const char *chosen_by(const SchedCosts *c, SchedAutoReport *r)
{
    static char name[40];
    SchedAuto a = {.ranks = 2, .stages = 2, .microbatches = 16, .placement = -1, .costs = c};
    Schedule *s = NULL;
    snprintf(name, sizeof name, "%s", sched_auto(&a, &s, r, &err) ? "" : s->name);
    sched_free(s);
    return name;
}

/* Two runs of a machine that was not equally fast are compared as if it had been. */
static void two_clocks(void)
{
    char whole[] = "/tmp/test_sim_XXXXXX", parts[3][24], both[2][128];
    const double slow[3] = {1, 1.06, 0.94};
    SchedCosts c[3];
    static SchedAutoReport r[3];
    run_of(whole, 0, 1);
    for (int k = 0; k < 3; k++) {
        snprintf(parts[k], sizeof parts[k], "/tmp/test_sim_XXXXXX");
        run_of(parts[k], 1, slow[k]);
        snprintf(both[0], sizeof both[0], "%s,%s", whole, parts[k]);
        sched_costs_default(&c[k]);
        int st = sched_costs_load(&c[k], both[0], 2, NULL, &err);
        const double *one = c[k].stage_time + SA_TYPES;
        const char *name = chosen_by(&c[k], &r[k]);
        ok(!st && fabs(one[SA_B] - 40) < 1e-2 && fabs(one[SA_I] - 21.8) < 1e-2 &&
               fabs(one[SA_W] - 19.4) < 1e-2 && fabs(c[k].around - 5) < 1e-2,
           "a run x %g: I %.2f W %.2f B %.2f", slow[k], one[SA_I], one[SA_W], one[SA_B]);
        ok(k == 0 ? !strncmp(name, "zb-", 3) || strstr(name, "zerobubble") != NULL
                  : !strcmp(name, r[0].tried[r[0].chosen].name),
           "chooses %s", name);
        ok(fabs(c[k].clock[1] * slow[k] - 1) < 1e-4 && c[k].clock[0] == 1 && c[k].runs == 2,
           "by F x %.4f", c[k].clock[1]);
    }
    snprintf(both[1], sizeof both[1], "%s,%s", parts[1], whole);
    sched_costs_free(&c[0]);
    sched_costs_default(&c[0]);
    ok(!sched_costs_load(&c[0], both[1], 2, NULL, &err) &&
           fabs(c[0].stage_time[SA_TYPES + SA_B] / 40 / slow[1] - 1) < 1e-4,
       "the first run's clock is it");
    for (int k = 0; k < 3; k++) {
        sched_costs_free(&c[k]);
        unlink(parts[k]);
    }
    unlink(whole);
}

/* ---- lengths ---- */

static double takes(double n) { return 10 + 3 * n + 0.01 * n * n; }

/* One stage, whose B takes twice as long as its F: a trace of these lengths. */
static void run_of_lengths(char *path)
{
    static const int64_t length[] = {1, 2, 9, 30, 17};
    FILE *f = fdopen(mkstemp(path), "w");
    sched_trace_open(f, "a run", 1);
    for (int step = 1; step < 3; step++)
        for (int k = 0; k < 5; k++)
            for (int back = 0; back < 2; back++) {
                SchedPlaces places = {1, {"seq"}, &length[k]};
                SchedAction a = {.type = back ? SA_B : SA_F, .microbatch = k, .peer = -1};
                sched_trace_event(
                    f, 0, &a, step,
                    (SchedSpan){0, (1 + back) * takes((double)length[k]), -1, 0, &places});
            }
    sched_trace_close(f);
    fclose(f);
}

/* The mean step of a rank of one stage, of these rows */
static double step_of(const char *path, const SchedRows *r, int replicas, int microbatches)
{
    SchedCosts c;
    SchedLengths l = {.n = 0};
    Schedule *s = NULL;
    SchedSim sim = {0};
    sched_costs_default(&c);
    double step = -1;
    if (!sched_lengths(&l, r, replicas, microbatches, &err) &&
        !sched_costs_load(&c, path, 1, &l, &err) &&
        !sched_generate("1f1b", 1, 1, microbatches, -1, &s, &err) &&
        !sched_simulate(s, &c, &sim, &err)) {
        step = sim.makespan;
        sched_sim_free(&sim);
    }
    free(l.length);
    sched_free(s);
    sched_costs_free(&c);
    return step;
}

static void lengths(void)
{
    char path[] = "/tmp/test_sim_XXXXXX";
    int64_t row[] = {3, 8, 5, 1, 20, 4, 4, 4};
    SchedRows r = {.n = 1, .name = {"seq"}, .length = {row}, .rows = 8, .batch = 4};
    run_of_lengths(path);
    const double files = 3 * (takes(8) + takes(5) + takes(20) + takes(4)) / 2,
                 near = 3 * (takes(3) + takes(8) + takes(4) + takes(20)) / 2,
                 slowest = 3 * (takes(8) + takes(20)) / 2;
    double got[3] = {step_of(path, &r, 1, 2), 0, step_of(path, &r, 2, 1)};
    r.by_length = 1;
    got[1] = step_of(path, &r, 1, 2);
    ok(fabs(got[0] / files - 1) < 1e-4, "rows of their own lengths: %g, by hand %g", got[0], files);
    ok(fabs(got[1] / near - 1) < 1e-4, "of near ones together: %g, by hand %g", got[1], near);
    ok(fabs(got[2] / slowest - 1) < 1e-4, "the replica that takes longest: %g, by hand %g", got[2],
       slowest);
    snprintf(r.name[0], sizeof r.name[0], "dec");
    ok(step_of(path, &r, 1, 2) < 0 && strstr(err.text, "'seq' among them"), "another: %s", err.text);
    unlink(path);
    /* Two dimensions, of which one is of no account */
    double x[24], t[12];
    for (int k = 0; k < 12; k++) {
        x[2 * k] = 1 + 7 * k % 12;
        x[2 * k + 1] = 1 + k;
        t[k] = takes(x[2 * k]);
    }
    SchedFit f = sched_fit(2, x, t, 12);
    const double at[] = {40, 3};
    ok(fabs(sched_fit_at(&f, 2, at) / takes(40) - 1) < 1e-2, "beyond the samples: %g, by hand %g",
       sched_fit_at(&f, 2, at), takes(40));
}

/* A message of as many bytes as its microbatch has places. */
static void messages_by_length(void)
{
    Schedule *s;
    SchedCosts c;
    SchedSim sim;
    const SchedEdge edge = {0, 1, 1, 10, 10};
    double length[] = {2, 7};
    SchedLengths l = {1, 2, 1, 1, {"seq"}, length};
    sched_costs_default(&c);
    c.per_byte = 1;
    c.edge = &edge;
    c.n_edge = 1;
    int st = sched_generate("1f1b", 2, 2, 1, -1, &s, &err) || sched_costs_by_length(&c, 1, 2, &err);
    snprintf(c.vary->name[0], sizeof c.vary->name[0], "seq");
    c.vary->sent[0].c[1] = 0.1;
    st = st || sched_costs_vary(&c, &l, &err) || sched_simulate(s, &c, &sim, &err);
    ok(!st && fabs(sim.makespan - (6 + 2 * 4.5)) < 1e-9, "messages of 2 and 7 bytes there and back: %g",
       st ? -1 : sim.makespan);
    if (!st)
        sched_sim_free(&sim);
    sched_costs_free(&c);
    sched_free(s);
}

int main(void)
{
    reductions();
    beside();
    closed_forms();
    gis_forms();
    offload_all();
    table();
    published();
    trained();
    few_microbatches();
    sequences();
    by_hand();
    trace();
    two_clocks();
    lengths();
    messages_by_length();
    return tap_done();
}

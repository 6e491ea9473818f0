/*
 * page_runs.c - what traces of runs say: the schedule as simulated above the schedule as measured,
 * memory of ranks over the step, and what other schedules would take.
 *
 * In: a step of a trace, the same rows simulated by the means of all steps, what logs say was
 * planned.  Out: their part of the page.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "page.h"
#include "schedule/rows.h"

static const char *schedule_svg(Page *p, const Schedule *s, const SchedSim *sim, double whole,
                                const char *what)
{
    Memory *m;
    FILE *f = page_open(&m);
    sched_draw_svg_in(s, sim, whole, 1000, what, f);
    return page_text(p->a, f, m);
}

/* What the width of a run's drawings is: of the step as measured, or as simulated. */
static double whole_of(const Run *r)
{
    return r->why ? r->m.sim.makespan : fmax(r->m.sim.makespan, r->sim.makespan);
}

static void put_idle(Page *p, const Run *r)
{
    fputs("<table><tr><th>rank</th><th>stages</th><th class=\"n\">computing, ms</th><th "
          "class=\"n\">idle, measured</th><th class=\"n\">idle, simulated</th></tr>\n",
          p->f);
    for (int k = 0; k < r->m.s->ranks; k++) {
        const char *stages = "";
        for (int s = 0; s < r->m.s->stages; s++)
            if (r->m.s->rank_of[s] == k)
                stages = arena_printf(p->a, "%s%s%d", stages, *stages ? ", " : "", s);
        fprintf(p->f,
                "<tr><td>%d</td><td>%s</td><td class=\"n\">%.4g</td><td class=\"n\">%.1f %%</td>",
                k, stages, r->m.sim.busy[k] / 1000,
                r->m.sim.makespan > 0 ? 100 * (1 - r->m.sim.busy[k] / r->m.sim.makespan) : 0);
        if (r->why)
            fputs("<td class=\"n\">-</td></tr>\n", p->f);
        else
            fprintf(p->f, "<td class=\"n\">%.1f %%</td></tr>\n",
                    r->sim.makespan > 0 ? 100 * (1 - r->sim.busy[k] / r->sim.makespan) : 0);
    }
    fputs("</table>\n", p->f);
}

void put_schedules(Page *p)
{
    fputs("<h2 id=\"time\">Where the time of a step goes</h2>\n", p->f);
    if (!p->run.n) {
        fputs("<p>No trace was given: a run writes one with <code>--trace FILE.json</code>.</p>\n",
              p->f);
        return;
    }
    fputs(
        "<p>A line for each rank, time from left to right. <span class=\"key\" "
        "style=\"background:#6fa8dc\">F</span> forward, <span class=\"key\" "
        "style=\"background:#93c47d\">B</span> backward, <span class=\"key\" "
        "style=\"background:#76c7c0\">I</span> its half for the inputs' gradients, <span "
        "class=\"key\" style=\"background:#f6b26b\">W</span> its half for the parameters', <span "
        "class=\"key\" style=\"background:#c27ba0\">R</span> a forward computed again, <span "
        "class=\"key\" style=\"background:#bbb\">messages</span> and what else is no computation; "
        "the pale ground is idle. 2F3: stage 2, forward of microbatch 3. The tables count as "
        "idle all that is no computation, messages too.</p>\n",
        p->f);
    for (uint32_t k = 0; k < p->run.n; k++) {
        Run *r = &p->run.at[k];
        double whole = whole_of(r);
        if (p->run.n > 1)
            fprintf(p->f, "<h3><code>%s</code></h3>\n", html_text(p->a, r->path));
        if (r->why)
            fprintf(p->f, "<p>Nothing is simulated: %s.</p>\n", html_text(p->a, r->why));
        else
            put_figure(p, (Figure){numbered(p, "schedule-simulated", k), "As simulated",
                                   arena_printf(p->a,
                                                "The same actions in the same order, each of the "
                                                "mean time that it took in the trace: %.5g ms.",
                                                r->sim.makespan / 1000),
                                   schedule_svg(p, r->m.s, &r->sim, whole, "as simulated")});
        put_figure(
            p, (Figure){numbered(p, "schedule-measured", k), "As measured",
                        arena_printf(p->a, "Step %d, the one of median length of %d: %.5g ms%s.",
                                     r->m.step, r->m.steps, r->m.sim.makespan / 1000,
                                     r->why ? "" : ", on the same scale"),
                        schedule_svg(p, r->m.s, &r->m.sim, whole, "as measured")});
        put_idle(p, r);
    }
}

/* ---- memory ---- */

/* Of a trace that says no bytes: what is kept of forwards whose backward has not run yet. */
static Lane stash_of(const Page *p, const Run *r, int rank)
{
    const SchedRow *row = &r->m.s->row[rank];
    double *at = arena_array(p->a, double, row->n + 1),
           *bytes = arena_array(p->a, double, row->n + 1);
    double now = 0;
    uint32_t n = 1; /* nothing, at 0 */
    for (int i = 0; i < row->n; i++) {
        const SchedAction *a = &row->a[i];
        if (a->stage < 0 || (a->type != SA_F && a->type != SA_B))
            continue;
        double stash = (double)p->pipe.stage.at[a->stage].bytes_stash;
        now += a->type == SA_B ? -stash : stash;
        at[n] = (a->type == SA_B ? r->m.sim.end[rank][i] : r->m.sim.start[rank][i]) / 1000;
        bytes[n++] = fmax(now, 0);
    }
    return (Lane){n, at, bytes, -1};
}

static bool says_bytes(const Run *r)
{
    for (int k = 0; k < r->m.s->ranks; k++)
        for (int i = 0; i < r->m.s->row[k].n; i++)
            if (!(r->m.bytes[k][i] >= 0 && r->m.bytes[k][i] < 1e18))
                return false;
    return true;
}

/* What is in use from the beginning of an action to the next one's, and around the step. */
static Lane memory_of(const Page *p, const Run *r, int rank)
{
    int n = r->m.s->row[rank].n;
    double *at = arena_array(p->a, double, n + 2), *bytes = arena_array(p->a, double, n + 2);
    double always = r->m.always[rank] < 1e18 ? fmax(r->m.always[rank], 0) : 0;
    bytes[0] = always;
    for (int i = 0; i < n; i++) {
        at[i + 1] = fmax(at[i], r->m.sim.start[rank][i] / 1000);
        bytes[i + 1] = r->m.bytes[rank][i];
    }
    at[n + 1] = n ? fmax(at[n], r->m.sim.end[rank][n - 1] / 1000) : 0;
    bytes[n + 1] = always;
    return (Lane){(uint32_t)n + 2, at, bytes, r->m.planned[rank] < 1e18 ? r->m.planned[rank] : -1};
}

static void put_lanes(Page *p, uint32_t k)
{
    enum { MOST = 16 };
    const Run *r = &p->run.at[k];
    const Schedule *s = r->m.s;
    uint32_t n = s->ranks < MOST ? (uint32_t)s->ranks : MOST;
    bool whole = says_bytes(r);
    Lane *lane = arena_array(p->a, Lane, n);
    if (!whole && (s->infer || sched_has_type(s, SA_R) || sched_has_type(s, SA_OFFLOAD) ||
                   sched_has_type(s, SA_W)))
        return; /* what is kept then is not the whole stash */
    for (uint32_t i = 0; i < n; i++)
        lane[i] = whole ? memory_of(p, r, (int)i) : stash_of(p, r, (int)i);
    const char *svg = draw_lanes(p->a, n, lane, fmax(whole_of(r) / 1000, 1e-9), "ms of the step");
    const char *more = n < (uint32_t)s->ranks ? " Ranks 0 to 15 are shown." : "";
    if (whole)
        put_figure(p, (Figure){numbered(p, "memory", k), "Memory over the step",
                               arena_printf(p->a,
                                            "Bytes in use on each rank, to the byte as they were "
                                            "planned, at the times of the step that was measured; "
                                            "the broken line is what the rank has taken before the "
                                            "first step.%s",
                                            more),
                               svg});
    else
        put_figure(p, (Figure){numbered(p, "stash", k), "Stash over the step",
                               arena_printf(p->a,
                                            "The trace does not say bytes. This is what each rank "
                                            "keeps of forwards whose backward has not run yet; "
                                            "parameters, gradients and optimizer come on top.%s",
                                            more),
                               svg});
}

/* What each rank of a run was planned to take. */
static void put_planned(Page *p)
{
    for (uint32_t k = 0; k < p->log.n; k++) {
        const PageLog *l = &p->log.at[k];
        double most = 0;
        for (uint32_t r = 0; r < l->place.n; r++)
            most = fmax(most, l->place.at[r].memory);
        if (!(most > 0 && most < 1e18))
            continue;
        fprintf(p->f,
                "<p>Planned for a step of <code>%s</code>, and never exceeded: no memory is "
                "allocated while it runs.</p>\n<table><tr><th>rank</th><th "
                "class=\"n\">memory</th><th class=\"n\">of it activations</th></tr>\n",
                html_text(p->a, l->path));
        for (uint32_t r = 0; r < l->place.n; r++) {
            const PagePlace *x = &l->place.at[r];
            if (!(x->memory >= 0 && x->activations >= 0 && x->activations <= x->memory))
                continue;
            fprintf(p->f, "<tr><td>%u</td>", r);
            fprintf(p->f, "<td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                    bytes_text(p->a, (int64_t)x->memory),
                    bytes_text(p->a, (int64_t)x->activations));
        }
        fputs("</table>\n", p->f);
    }
}

void put_memory(Page *p)
{
    bool any = p->run.n > 0;
    for (uint32_t k = 0; k < p->log.n; k++)
        any |= p->log.at[k].place.n > 0;
    fputs(any ? "<h2 id=\"memory\">Memory</h2>\n" : "", p->f);
    for (uint32_t k = 0; k < p->run.n; k++)
        put_lanes(p, k);
    put_planned(p);
}

/* ---- other schedules ---- */

/* Milliseconds of a step under a schedule by the trace's times; NAN: there is none. */
static double made(Page *p, const Run *r, const SchedKind *kind, int microbatches)
{
    Schedule *s;
    SchedSim sim;
    double v = (double)NAN;
    if (sched_generate(kind->name, r->m.s->ranks, r->m.s->stages, microbatches, SCHED_PLACE_DEFAULT,
                       &s, &p->e))
        return (double)NAN;
    if (!sched_simulate(s, &r->costs, &sim, &p->e)) {
        v = sim.makespan / 1000;
        sched_sim_free(&sim, s->ranks);
    }
    sched_free(s);
    return v;
}

typedef VEC(Curve) Curves;

static bool same(const Curve *x, const Curve *y)
{
    for (uint32_t i = 0; i < x->n; i++)
        if (isfinite(x->value[i]) != isfinite(y->value[i]) ||
            fabs(x->value[i] - y->value[i]) > 1e-6 * fabs(x->value[i]))
            return false;
    return x->n == y->n;
}

/* Makespans of each schedule; those that take the same time have one curve. */
static Curves makespans(Page *p, const Run *r)
{
    enum { POINTS = 5, MOST_CELLS = 1 << 13 };
    Curves all = {0};
    for (int i = 0; sched_kind(i); i++) {
        Curve c = {sched_kind(i)->name, 0, arena_array(p->a, double, POINTS),
                   arena_array(p->a, double, POINTS), false};
        bool any = false;
        if (!strcmp(c.label, "forward-only"))
            continue;
        for (int m = r->m.s->ranks; c.n < POINTS && m <= MOST_CELLS / r->m.s->stages; m *= 2) {
            c.at[c.n] = m;
            c.value[c.n] = made(p, r, sched_kind(i), m);
            any |= isfinite(c.value[c.n++]) != 0;
        }
        uint32_t k = 0;
        while (k < all.n && !same(&all.at[k], &c))
            k++;
        if (any && k < all.n)
            all.at[k].label = arena_printf(p->a, "%s, %s", all.at[k].label, c.label);
        else if (any)
            vec_push(p->a, &all, c);
    }
    return all;
}

static void put_makespans(Page *p, const Curves *all)
{
    fputs("<table><tr><th>schedule</th>", p->f);
    for (uint32_t i = 0; i < all->at[0].n; i++)
        fprintf(p->f, "<th class=\"n\">%.0f</th>", all->at[0].at[i]);
    fputs("</tr>\n", p->f);
    for (uint32_t k = 0; k < all->n; k++) {
        fprintf(p->f, "<tr><td>%s</td>", all->at[k].label);
        for (uint32_t i = 0; i < all->at[k].n; i++)
            if (isfinite(all->at[k].value[i]))
                fprintf(p->f, "<td class=\"n\">%.4g</td>", all->at[k].value[i]);
            else
                fputs("<td class=\"n\">-</td>", p->f);
        fputs("</tr>\n", p->f);
    }
    fputs("</table>\n", p->f);
}

void put_microbatches(Page *p)
{
    const Run *r = p->run.n ? &p->run.at[0] : NULL;
    if (!r || r->why || r->m.s->infer)
        return;
    Curves all = makespans(p, r), each = {0};
    if (!all.n)
        return;
    for (uint32_t k = 0; k < all.n; k++) {
        Curve c = all.at[k];
        c.value = arena_array(p->a, double, c.n);
        for (uint32_t i = 0; i < c.n; i++)
            c.value[i] = all.at[k].value[i] / c.at[i];
        vec_push(p->a, &each, c);
    }
    fputs("<h2 id=\"microbatches\">Other schedules, other microbatches</h2>\n<p>Each schedule that "
          "these stages and ranks allow, simulated with the times of the trace: microbatches as "
          "large as its own, messages for nothing, memory not looked at.</p>\n<div "
          "class=\"pair\">\n",
          p->f);
    put_figure(p, (Figure){"microbatches", "A microbatch's part of the step",
                           "The simulated time of a step, divided by its microbatches: the more "
                           "they are, the less of a step is idle.",
                           draw_curves(p->a, each.n, each.at,
                                       &(Axes){.x = "microbatches of a step",
                                               .y = "ms a microbatch",
                                               .doubling = true})});
    fputs("<div>\n<p><b>The step, in ms</b>, by microbatches.</p>\n", p->f);
    put_makespans(p, &all);
    fputs("</div>\n</div>\n", p->f);
}

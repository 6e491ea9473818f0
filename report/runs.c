/*
 * runs.c - what traces of runs say: the schedule as simulated above the schedule as measured,
 * and memory of ranks over the step.
 *
 * In: a step of a trace, the same rows simulated by the means of all steps, what logs say was
 * planned.  Out: their part of the page.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file/memory.h"
#include "page.h"
#include "schedule/rows.h"

static const char *schedule_svg(Arena *a, const Schedule *s, const SchedSim *sim, double whole,
                                const char *what)
{
    Memory m;
    FILE *f = memory_open(&m);
    if (f)
        sched_draw_svg_in(s, sim, whole, 1000, what, f);
    if (memory_close(f, &m))
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    const char *svg = arena_strndup(a, m.at, m.n);
    free(m.at);
    return svg;
}

/* What the width of a run's drawings is: of the step as measured, or as simulated. */
static double whole_of(const Run *r)
{
    return r->why ? r->m.sim.makespan : fmax(r->m.sim.makespan, r->sim.makespan);
}

static void put_idle(Page *p, const Run *r)
{
    text_add(&p->text,
             "<table><tr><th>rank</th><th>stages</th><th class=\"n\">computing, ms</th><th "
             "class=\"n\">idle, measured</th><th class=\"n\">idle, simulated</th></tr>\n");
    for (int k = 0; k < r->m.s->ranks; k++) {
        const char *stages = "";
        for (int s = 0; s < r->m.s->stages; s++)
            if (r->m.s->rank_of[s] == k)
                stages = arena_printf(p->a, "%s%s%d", stages, *stages ? ", " : "", s);
        text_add(&p->text,
                 "<tr><td>%d</td><td>%s</td><td class=\"n\">%.4g</td><td class=\"n\">%.1f %%</td>",
                 k, stages, r->m.sim.busy[k] / 1000,
                 r->m.sim.makespan > 0 ? 100 * (1 - r->m.sim.busy[k] / r->m.sim.makespan) : 0);
        if (r->why)
            text_add(&p->text, "<td class=\"n\">-</td></tr>\n");
        else
            text_add(&p->text, "<td class=\"n\">%.1f %%</td></tr>\n",
                     r->sim.makespan > 0 ? 100 * (1 - r->sim.busy[k] / r->sim.makespan) : 0);
    }
    text_add(&p->text, "</table>\n");
}

/* Milliseconds of a stage's action; 0: the trace has none. */
static double mean_ms(const Run *r, uint32_t stage, int type)
{
    size_t at = (size_t)stage * SA_TYPES + (size_t)type;
    return r->costs.stages > (int)stage ? fmax(r->costs.stage_time[at], 0) / 1000 : 0;
}

/* How long each stage took, beside the balance that the page has already. */
static void put_times(Page *p, const Run *r)
{
    static const char *const name[] = {"forward", "backward"};
    uint32_t stages = (uint32_t)p->stages;
    Quantity q[2];
    for (int c = 0; c < 2; c++) {
        q[c] = (Quantity){name[c], arena_array(p->a, double, stages),
                          arena_array(p->a, const char *, stages)};
        for (uint32_t t = 0; t < stages; t++) {
            double both = mean_ms(r, t, SA_B), parts = mean_ms(r, t, SA_I) + mean_ms(r, t, SA_W);
            q[c].value[t] = !c ? mean_ms(r, t, SA_F) : both > 0 ? both : parts;
            q[c].text[t] = time_text(p->a, q[c].value[t] / 1000);
        }
    }
    text_add(&p->text,
             "<h3>Stage by stage, measured</h3>\n<p>Means over the trace%s%s%s, of a "
             "microbatch.</p>\n",
             p->run.n > 1 ? " of <code>" : "", p->run.n > 1 ? html_text(p->a, r->path) : "",
             p->run.n > 1 ? "</code>" : "");
    put_balance(&p->text, stages, NULL, r->m.s->infer ? 1 : 2, q);
}

static const char schedule_words[] =
    "<p>A line for each rank, time from left to right. <span class=\"key\" "
    "style=\"background:#6fa8dc\">F</span> forward, <span class=\"key\" "
    "style=\"background:#93c47d\">B</span> backward, <span class=\"key\" "
    "style=\"background:#76c7c0\">I</span> its half for the inputs' gradients, <span class=\"key\" "
    "style=\"background:#f6b26b\">W</span> its half for the parameters', <span class=\"key\" "
    "style=\"background:#c27ba0\">R</span> a forward computed again, <span class=\"key\" "
    "style=\"background:#bbb\">messages</span> and what else is no computation; the pale ground is "
    "idle. 2F3: stage 2, forward of microbatch 3. The tables count as idle all that is no "
    "computation, messages too.</p>\n";

void put_schedules(Page *p)
{
    for (uint32_t k = 0; k < p->run.n; k++)
        put_times(p, p->run.at[k]);
    text_add(&p->text, "<h2 id=\"time\">Where the time of a step goes</h2>\n%s",
             p->run.n ? schedule_words
                      : "<p>No trace was given: a run writes one with <code>--trace "
                        "FILE.json</code>.</p>\n");
    for (uint32_t k = 0; k < p->run.n; k++) {
        const Run *r = p->run.at[k];
        double whole = whole_of(r);
        if (p->run.n > 1)
            text_add(&p->text, "<h3><code>%s</code></h3>\n", html_text(p->a, r->path));
        if (r->why)
            text_add(&p->text, "<p>Nothing is simulated: %s.</p>\n", html_text(p->a, r->why));
        else
            put_figure(
                &p->text,
                (Figure){numbered(p->a, "schedule-simulated", k), "As simulated",
                         arena_printf(p->a,
                                      "The same actions in the same order; each takes the mean "
                                      "of its times in the trace: %.5g ms.",
                                      r->sim.makespan / 1000),
                         schedule_svg(p->a, r->m.s, &r->sim, whole, "as simulated")},
                "");
        put_figure(
            &p->text,
            (Figure){numbered(p->a, "schedule-measured", k), "As measured",
                     arena_printf(p->a, "Step %d, whose time is the median of %d: %.5g ms%s.",
                                  r->m.step, r->m.steps, r->m.sim.makespan / 1000,
                                  r->why ? "" : ", on the same scale"),
                     schedule_svg(p->a, r->m.s, &r->m.sim, whole, "as measured")},
            "");
        put_idle(p, r);
    }
}

/* ---- memory ---- */

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

/* Nothing of a trace that does not say bytes: a simulation's. */
static void put_lanes(Page *p, const Run *r, uint32_t k)
{
    enum { MOST = 16 };
    uint32_t n = r->m.s->ranks < MOST ? (uint32_t)r->m.s->ranks : MOST;
    Lane *lane = arena_array(p->a, Lane, n);
    if (!says_bytes(r))
        return;
    for (uint32_t i = 0; i < n; i++)
        lane[i] = memory_of(p, r, (int)i);
    put_figure(
        &p->text,
        (Figure){numbered(p->a, "memory", k), "Memory over the step",
                 arena_printf(p->a,
                              "Bytes in use on each rank, as they were planned to the byte, at "
                              "the times of the measured step. The broken line is what the rank "
                              "took before the first step.%s",
                              n < (uint32_t)r->m.s->ranks ? " Ranks 0 to 15 are shown." : ""),
                 draw_lanes(p->a, n, lane, fmax(whole_of(r) / 1000, 1e-9), "ms of the step")},
        "");
}

/* What each rank of a run was planned to take. */
static void put_planned(Page *p)
{
    for (uint32_t k = 0; k < p->log.n; k++) {
        const RunLog *l = &p->log.at[k];
        double most = 0;
        for (uint32_t r = 0; r < l->place.n; r++)
            most = fmax(most, l->place.at[r].memory);
        if (!(most > 0 && most < 1e18))
            continue;
        text_add(&p->text,
                 "<p>Planned for a step of <code>%s</code>, and never exceeded: no memory is "
                 "allocated while it runs.</p>\n<table><tr><th>rank</th><th "
                 "class=\"n\">memory</th><th class=\"n\">of it activations</th></tr>\n",
                 html_text(p->a, l->path));
        for (uint32_t r = 0; r < l->place.n; r++) {
            const LogPlace *x = &l->place.at[r];
            if (!(x->memory >= 0 && x->activations >= 0 && x->activations <= x->memory))
                continue;
            text_add(&p->text, "<tr><td>%u</td>", r);
            text_add(&p->text, "<td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                     bytes_text(p->a, (int64_t)x->memory),
                     bytes_text(p->a, (int64_t)x->activations));
        }
        text_add(&p->text, "</table>\n");
    }
}

void put_memory(Page *p)
{
    bool any = false;
    for (uint32_t k = 0; k < p->run.n; k++)
        any |= says_bytes(p->run.at[k]);
    for (uint32_t k = 0; k < p->log.n; k++)
        any |= p->log.at[k].place.n > 0;
    if (any)
        text_add(&p->text, "<h2 id=\"memory\">Memory</h2>\n");
    for (uint32_t k = 0; k < p->run.n; k++)
        put_lanes(p, p->run.at[k], k);
    put_planned(p);
}

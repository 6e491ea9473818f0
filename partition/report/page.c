/*
 * page.c - `ppsplit report`: an output folder with logs and traces of its runs, as one page.
 *
 * In: out/pipe.xml, files of --log-json and --trace.  Out: XHTML in one file, without scripts and
 * without anything fetched, its figures inline SVG; or the figures as files too.  What is not
 * given is left out and named.  A simulation is of the rows that ran, by the trace's mean times.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "page.h"
#include "schedule/rows.h"

/* A trace, its step and the same rows simulated. */
typedef struct {
    const char *path;
    SchedMeasured m;
    SchedSim sim;
    SchedCosts costs; /* means of the trace */
    const char *why;  /* NULL, or why nothing is simulated */
} Run;

typedef struct {
    Arena *a;
    const ReportOptions *o;
    PagePipe pipe;
    VEC(Run) run;
    VEC(PageLog) log;
    SchedError e;
    FILE *f;
    Figures figure;
} Page;

static const char *const style =
    "<style>\n"
    ":root { color-scheme: light dark }\n"
    "body { font: 15px/1.5 system-ui, sans-serif; max-width: 66em; margin: 2em auto; padding: 0 "
    "1em; color: #222; background: #fff }\n"
    "table { border-collapse: collapse; margin: 1em 0 }\n"
    "th, td { padding: .2em .8em; border-bottom: 1px solid #ccc; text-align: left }\n"
    "td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }\n"
    "figure { margin: 1em 0; overflow-x: auto; break-inside: avoid }\n"
    "svg { max-width: 100%; height: auto }\n"
    ".bar { background: #4477aa; height: .7em; display: inline-block; print-color-adjust: exact }\n"
    ".key { padding: 0 .5em; color: #111; print-color-adjust: exact }\n"
    "@media (prefers-color-scheme: dark) { body { color: #ddd; background: #1a1a1a } th, td { "
    "border-color: #444 } }\n"
    "@media print { @page { size: A4; margin: 14mm } body { margin: 0; padding: 0; font-size: "
    "10pt; color: #000; background: #fff } h2 { break-after: avoid } tr { break-inside: avoid } }\n"
    "</style>\n";

/* ---- files ---- */

/* Whole or not at all. */
static void put_file(Arena *a, const char *path, const char *text, size_t n)
{
    struct stat st;
    bool plain = strcmp(path, "-") && (stat(path, &st) != 0 || S_ISREG(st.st_mode));
    const char *temp = plain ? arena_printf(a, "%s.tmp%ld", path, (long)getpid()) : path;
    FILE *f = strcmp(path, "-") ? fopen(temp, "wb") : stdout;
    int error = 0;
    if (!f)
        diag_fatal(EXIT_IO, WHERE_FILE(path), "%s", strerror(errno));
    if (fwrite(text, 1, n, f) != n || fflush(f) != 0 || (plain && fsync(fileno(f)) != 0))
        error = errno;
    if (f != stdout && fclose(f) != 0 && !error)
        error = errno;
    if (plain && !error && rename(temp, path) != 0)
        error = errno;
    if (error) {
        if (plain)
            unlink(temp);
        diag_fatal(EXIT_IO, WHERE_FILE(path), "%s", strerror(error));
    }
}

/* ---- reading ---- */

static void read_trace(Page *p, const char *path)
{
    Run r = {.path = path};
    if (sched_measured(path, &r.m, &p->e))
        diag_fatal(p->e.status == SCHED_ERESOURCE ? EXIT_IO : EXIT_MODEL, WHERE_NONE, "%s",
                   strstr(p->e.text, path) ? p->e.text
                                           : arena_printf(p->a, "%s: %s", path, p->e.text));
    vec_push(p->a, &p->run, r);
    Run *at = &p->run.at[p->run.n - 1];
    if (at->m.s->stages != (int)p->pipe.stage.n)
        diag_fatal(EXIT_MODEL, WHERE_FILE(path),
                   "the trace is of a program of %d stages, %s has %u: it is another's",
                   at->m.s->stages, p->o->out, p->pipe.stage.n);
    sched_costs_default(&at->costs);
    if (sched_costs_load(&at->costs, path, at->m.s->stages, &p->e) ||
        sched_measured_simulate(&at->m, path, &at->sim, &p->e))
        at->why = arena_strdup(p->a, p->e.text);
}

/* ---- figures ---- */

static void put_figure(Page *p, Figure x)
{
    fprintf(p->f, "<figure>\n<figcaption><b>%s.</b> %s</figcaption>\n%s</figure>\n", x.title,
            x.caption, x.svg);
    vec_push(p->a, &p->figure, x);
}

/* Of the k-th of several; "" for the first. */
static const char *numbered(Page *p, const char *name, uint32_t k)
{
    return k ? arena_printf(p->a, "%s-%u", name, k + 1) : name;
}

static const char *schedule_svg(Page *p, const Schedule *s, const SchedSim *sim, double whole,
                                const char *what)
{
    Memory m;
    FILE *f = page_open(&m);
    sched_draw_svg_in(s, sim, whole, 1000, what, f);
    return page_text(p->a, f, &m);
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

static void put_schedules(Page *p)
{
    fputs("<h2>Where the time of a step goes</h2>\n", p->f);
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
        double whole = r->why ? r->m.sim.makespan : fmax(r->m.sim.makespan, r->sim.makespan);
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

/* ---- the balance of stages ---- */

static void bar(Page *p, const char *text, double v, double most)
{
    fprintf(p->f,
            "<td class=\"n\">%s</td><td><span class=\"bar\" style=\"width: %.0fpx\"></span></td>",
            text, most > 0 && v > 0 ? 70 * v / most : 0);
}

static double stage_ms(const Run *r, uint32_t stage, int type)
{
    double t = r->costs.stages > (int)stage
                   ? r->costs.stage_time[(size_t)stage * SA_TYPES + (size_t)type]
                   : -1;
    return t < 0 ? 0 : t / 1000;
}

enum { C_PARAMETERS, C_FLOPS, C_STASH, C_F, C_B, COLUMNS };

static double column(const Page *p, uint32_t stage, int c)
{
    const PageStage *s = &p->pipe.stage.at[stage];
    switch (c) {
    case C_PARAMETERS: return (double)s->parameters;
    case C_FLOPS: return (double)s->flops;
    case C_STASH: return (double)s->bytes_stash;
    case C_F: return stage_ms(&p->run.at[0], stage, SA_F);
    default: return stage_ms(&p->run.at[0], stage, SA_B);
    }
}

static void put_balance(Page *p)
{
    int columns = p->run.n ? COLUMNS : C_F;
    double most[COLUMNS] = {0};
    for (uint32_t s = 0; s < p->pipe.stage.n; s++)
        for (int c = 0; c < columns; c++)
            most[c] = fmax(most[c], column(p, s, c));
    fputs("<h2>Balance of the stages</h2>\n<p>Per microbatch; a pipeline is as fast as its slowest "
          "stage. Stash: what forward keeps for "
          "backward.</p>\n<table><tr><th>stage</th><th>modules</th><th "
          "class=\"n\">parameters</th><th></th><th class=\"n\">forward, operations "
          "(FLOPs)</th><th></th><th "
          "class=\"n\">stash</th><th></th>",
          p->f);
    if (p->run.n)
        fputs(
            "<th class=\"n\">forward, measured ms</th><th></th><th class=\"n\">backward, measured "
            "ms</th><th></th>",
            p->f);
    fputs("</tr>\n", p->f);
    for (uint32_t s = 0; s < p->pipe.stage.n; s++) {
        const PageStage *x = &p->pipe.stage.at[s];
        const char *text[COLUMNS] = {count_text(p->a, x->parameters), count_text(p->a, x->flops),
                                     bytes_text(p->a, x->bytes_stash)};
        fprintf(p->f, "<tr><td>%u</td><td><code>%s</code></td>", s, html_text(p->a, x->modules));
        for (int c = 0; c < columns; c++)
            bar(p, c < C_F ? text[c] : arena_printf(p->a, "%.4g", column(p, s, c)), column(p, s, c),
                most[c]);
        fputs("</tr>\n", p->f);
    }
    fputs("</table>\n", p->f);
    if (p->run.n > 1)
        fprintf(p->f, "<p>Measured: <code>%s</code>.</p>\n", html_text(p->a, p->run.at[0].path));
}

/* ---- training ---- */

static void put_curve(Page *p, int column, const char *name, const char *title, const char *unit,
                      const char *caption)
{
    Curve *c = arena_array(p->a, Curve, p->log.n);
    bool any = false;
    for (uint32_t k = 0; k < p->log.n; k++) {
        const PageLog *l = &p->log.at[k];
        c[k] = (Curve){l->schedule ? arena_printf(p->a, "%s (%s)", l->path, l->schedule) : l->path,
                       l->step.n, arena_array(p->a, double, l->step.n),
                       arena_array(p->a, double, l->step.n)};
        for (uint32_t i = 0; i < l->step.n; i++) {
            c[k].at[i] = l->step.at[i].step;
            c[k].value[i] = l->step.at[i].value[column];
            any |= isfinite(c[k].value[i]) != 0;
        }
    }
    if (!any)
        return;
    const PageLog *l = &p->log.at[0];
    double last = l->step.at[l->step.n - 1].value[column];
    put_figure(p, (Figure){name, title,
                           isfinite(last)
                               ? arena_printf(p->a, "%s In the last step %.6g.", caption, last)
                               : caption,
                           draw_curves(p->a, p->log.n, c, "step", unit, false)});
}

static void put_training(Page *p)
{
    fputs("<h2>Training</h2>\n", p->f);
    if (!p->log.n) {
        fputs("<p>No log was given: a run writes one with <code>--log-json FILE</code>.</p>\n",
              p->f);
        return;
    }
    put_curve(p, LOG_LOSS, "loss", "Loss", "loss", "Over the whole minibatch of each step.");
    put_curve(p, LOG_NORM, "gradient-norm", "Gradient norm", "gradient norm",
              "The Euclidean norm of all parameters' gradients, before any clipping.");
    put_curve(p, LOG_TOKENS, "throughput", "Throughput", "tokens a second",
              "The first steps are slower: libraries start, pages are touched.");
    put_curve(p, LOG_LR, "learning-rate", "Learning rate", "learning rate",
              "What the schedule of the learning rate gave each step.");
}

/* ---- memory and microbatches ---- */

/* Bytes of stash on rank r while the step runs. */
static Curve stash_of(const Page *p, const Run *r, int rank)
{
    const SchedRow *row = &r->m.s->row[rank];
    uint32_t n = 0;
    Curve c = {arena_printf(p->a, "rank %d", rank), 0, arena_array(p->a, double, row->n + 2),
               arena_array(p->a, double, row->n + 2)};
    double now = 0;
    c.value[n] = 0;
    c.at[n++] = 0;
    for (int i = 0; i < row->n; i++) {
        const SchedAction *a = &row->a[i];
        double bytes = a->stage < 0 ? 0 : (double)p->pipe.stage.at[a->stage].bytes_stash;
        int gone = a->type == SA_B;
        if (a->type != SA_F && !gone)
            continue;
        now += gone ? -bytes : bytes;
        c.at[n] = (gone ? r->m.sim.end[rank][i] : r->m.sim.start[rank][i]) / 1000;
        c.value[n++] = now / 1024;
    }
    c.at[n] = r->m.sim.makespan / 1000;
    c.value[n++] = now / 1024;
    c.n = n;
    return c;
}

static void put_memory(Page *p)
{
    enum { MOST = 16 };
    for (uint32_t k = 0; k < p->run.n; k++) {
        const Run *r = &p->run.at[k];
        uint32_t n = r->m.s->ranks < MOST ? (uint32_t)r->m.s->ranks : MOST;
        Curve *c = arena_array(p->a, Curve, n);
        if (r->m.s->infer || sched_has_type(r->m.s, SA_R) || sched_has_type(r->m.s, SA_OFFLOAD) ||
            sched_has_type(r->m.s, SA_W))
            continue; /* what is kept then is not the whole stash */
        for (uint32_t i = 0; i < n; i++) {
            double most = 0;
            c[i] = stash_of(p, r, (int)i);
            for (uint32_t j = 0; j < c[i].n; j++)
                most = fmax(most, c[i].value[j]);
            c[i].label = arena_printf(p->a, "%s: %s at most", c[i].label,
                                      bytes_text(p->a, (int64_t)(1024 * most)));
        }
        put_figure(
            p, (Figure){numbered(p, "stash", k), "Stash over the step",
                        n < (uint32_t)r->m.s->ranks
                            ? "What ranks 0 to 15 keep of forwards whose backward has not run yet."
                            : "What each rank keeps of forwards whose backward has not run "
                              "yet; parameters, gradients and optimizer come on top.",
                        draw_curves(p->a, n, c, "ms of the step", "KiB", true)});
    }
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
                "class=\"n\">memory</th><th></th><th class=\"n\">of it activations</th></tr>\n",
                html_text(p->a, l->path));
        for (uint32_t r = 0; r < l->place.n; r++) {
            const PagePlace *x = &l->place.at[r];
            if (!(x->memory >= 0 && x->activations >= 0 && x->activations <= x->memory))
                continue;
            fprintf(p->f, "<tr><td>%u</td>", r);
            bar(p, bytes_text(p->a, (int64_t)x->memory), x->memory, most);
            fprintf(p->f, "<td class=\"n\">%s</td></tr>\n",
                    bytes_text(p->a, (int64_t)x->activations));
        }
        fputs("</table>\n", p->f);
    }
}

/* Milliseconds a microbatch of a schedule by the trace's times; NAN: there is none. */
static double made(Page *p, const Run *r, const SchedKind *kind, int microbatches)
{
    Schedule *s;
    SchedSim sim;
    double v = (double)NAN;
    if (sched_generate(kind->name, r->m.s->ranks, r->m.s->stages, microbatches, SCHED_PLACE_DEFAULT,
                       &s, &p->e))
        return (double)NAN;
    if (!sched_simulate(s, &r->costs, &sim, &p->e)) {
        v = sim.makespan / microbatches / 1000;
        sched_sim_free(&sim, s->ranks);
    }
    sched_free(s);
    return v;
}

static void put_microbatches(Page *p)
{
    enum { POINTS = 5, MOST_CELLS = 1 << 13 };
    VEC(Curve) curve = {0};
    const Run *r = p->run.n ? &p->run.at[0] : NULL;
    if (!r || r->why || r->m.s->infer)
        return;
    for (int i = 0; sched_kind(i); i++) {
        Curve c = {sched_kind(i)->name, 0, arena_array(p->a, double, POINTS),
                   arena_array(p->a, double, POINTS)};
        bool any = false;
        if (!strcmp(c.label, "forward-only"))
            continue;
        for (int m = r->m.s->ranks; c.n < POINTS && m <= MOST_CELLS / r->m.s->stages; m *= 2) {
            c.at[c.n] = m;
            c.value[c.n] = made(p, r, sched_kind(i), m);
            any |= isfinite(c.value[c.n++]) != 0;
        }
        if (any)
            vec_push(p->a, &curve, c);
    }
    if (curve.n)
        put_figure(p, (Figure){"microbatches", "Schedules and microbatches",
                               "Simulated time of a step, divided by its microbatches, under each "
                               "schedule that these stages and ranks allow; microbatches as large "
                               "as the trace's, messages for nothing. The more microbatches, the "
                               "less of a step is idle; memory is not looked at.",
                               draw_curves(p->a, curve.n, curve.at, "microbatches of a step",
                                           "ms a microbatch", false)});
}

/* ---- the page ---- */

static void put_stages(Page *p)
{
    fputs("<h2>The stages, and what crosses</h2>\n", p->f);
    put_figure(p,
               (Figure){"stages", "Stages",
                        "From top to bottom as data flow forwards. Beside the lines: bytes of one "
                        "microbatch, and of how many values. At the right what skips stages, and "
                        "broken lines: parameters that several stages use.",
                        draw_stages(p->a, &p->pipe)});
    if (!p->pipe.edge.n)
        return;
    fputs("<table><tr><th>from</th><th>to</th><th>value</th><th>shape</th><th "
          "class=\"n\">bytes</th><th>kind</th></tr>\n",
          p->f);
    for (uint32_t i = 0; i < p->pipe.edge.n; i++) {
        const PageEdge *e = &p->pipe.edge.at[i];
        fprintf(p->f,
                "<tr><td>%u</td><td>%u</td><td><code>%s</code></td><td>%s</td><td "
                "class=\"n\">%s</td><td>%s</td></tr>\n",
                e->from, e->to, html_text(p->a, e->value), html_text(p->a, e->shape),
                bytes_text(p->a, e->bytes), html_text(p->a, e->kind));
    }
    fputs("</table>\n", p->f);
}

static void put_page(Page *p)
{
    const char *model = html_text(p->a, p->pipe.model);
    fprintf(p->f,
            "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>"
            "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width\"/>\n"
            "<title>%s: %u stages</title>\n%s</head>\n<body>\n<h1>%s</h1>\n<p>%u stage%s, %s%s. "
            "The model is cut into stages, which ranks (processes) compute one after the other; "
            "the rows of a step are cut into microbatches, so that all ranks work at once.</p>\n",
            model, p->pipe.stage.n, style, model, p->pipe.stage.n, p->pipe.stage.n == 1 ? "" : "s",
            *p->pipe.loss ? "loss " : "no loss", html_text(p->a, p->pipe.loss));
    put_schedules(p);
    put_balance(p);
    put_training(p);
    fputs(p->run.n + p->log.n ? "<h2>Memory, and other schedules</h2>\n" : "", p->f);
    put_planned(p);
    put_memory(p);
    put_microbatches(p);
    put_stages(p);
    fputs("</body>\n</html>\n", p->f);
}

static void put_figures(const Page *p)
{
    if (mkdir(p->o->svg, 0777) != 0 && errno != EEXIST)
        diag_fatal(EXIT_IO, WHERE_FILE(p->o->svg), "%s", strerror(errno));
    for (uint32_t i = 0; i < p->figure.n; i++)
        put_file(p->a, arena_printf(p->a, "%s/%s.svg", p->o->svg, p->figure.at[i].name),
                 p->figure.at[i].svg, strlen(p->figure.at[i].svg));
}

static void make_page(Page *p)
{
    const ReportOptions *o = p->o;
    Memory m;
    p->pipe = page_pipe(p->a, arena_printf(p->a, "%s/pipe.xml", o->out));
    for (uint32_t i = 0; i < o->run.n; i++)
        if (page_is_trace(o->run.at[i]))
            read_trace(p, o->run.at[i]);
        else
            vec_push(p->a, &p->log, page_log(p->a, o->run.at[i]));
    p->f = page_open(&m);
    put_page(p);
    const char *text = page_text(p->a, p->f, &m);
    if (o->svg)
        put_figures(p);
    put_file(p->a, o->target, text, strlen(text));
}

void report_page(void *options)
{
    const ReportOptions *o = options;
    Page *p = arena_new_of(o->arena, Page);
    p->a = o->arena;
    p->o = o;
    make_page(p);
    for (uint32_t i = 0; i < p->run.n; i++) {
        Run *r = &p->run.at[i];
        if (!r->why)
            sched_sim_free(&r->sim, r->m.s->ranks);
        sched_costs_free(&r->costs);
        sched_measured_free(&r->m);
    }
}

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

#include "base/file/replace.h"
#include "page.h"

static const char *const style =
    ":root { color-scheme: light dark }\n"
    "body { font: 15px/1.55 system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; "
    "max-width: 1040px; margin: 0 auto 4em; padding: 0 20px; color: #1d222b; background: #fff; "
    "font-variant-numeric: tabular-nums }\n"
    "h1 { font-size: 1.9em; line-height: 1.2; margin: 1.3em 0 .2em; overflow-wrap: anywhere }\n"
    "h2 { font-size: 1.3em; margin: 2.4em 0 .4em; padding-top: .7em; border-top: 1px solid #d3d9e1 "
    "}\n"
    "h3 { font-size: 1em; margin: 1.6em 0 .2em }\n"
    "p { max-width: 46em; margin: .5em 0 }\n"
    "code { font: .9em ui-monospace, 'DejaVu Sans Mono', monospace; overflow-wrap: anywhere }\n"
    "dl.facts { display: flex; flex-wrap: wrap; gap: .9em 2em; margin: 1.4em 0 }\n"
    "dt { font-size: .82em; color: #586273 }\n"
    "dd { margin: 0; font-size: 1.2em; font-weight: 600 }\n"
    ".scroll { overflow-x: auto } .scroll td.n { white-space: nowrap }\n"
    "table { border-collapse: collapse; margin: .8em 0; font-size: .92em }\n"
    "th, td { padding: .28em .9em .28em 0; border-bottom: 1px solid #d3d9e1; text-align: left; "
    "vertical-align: top }\n"
    "th { font-weight: 600; color: #586273 }\n"
    "td.n, th.n { text-align: right }\n"
    "figure { margin: 1.2em 0; break-inside: avoid }\n"
    "figure > div { overflow-x: auto }\n"
    "figcaption { margin-bottom: .5em; max-width: 46em }\n"
    "figure svg { max-width: 100%; height: auto; display: block }\n"
    "@media screen and (min-width: 900px) { figure.beside { display: grid; grid-template-columns: "
    "minmax(0, max-content) minmax(220px, 1fr); column-gap: 28px } .beside figcaption { order: 2 } "
    "}\n"
    "@media screen and (max-width: 700px) { figure svg { max-width: none } }\n"
    ".pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), "
    "1fr)); "
    "column-gap: 36px; align-items: start }\n"
    ".key { padding: 0 .5em; color: #111; border-radius: 2px }\n"
    ".key, svg { print-color-adjust: exact; -webkit-print-color-adjust: exact }\n"
    "@media screen and (prefers-color-scheme: dark) {\n"
    "body { color: #e3e7ed; background: #14181e }\n"
    "h2, th, td { border-color: #363d48 } dt, th { color: #a4aebd }\n"
    "}\n"
    "@media print {\n"
    "@page { size: A4; margin: 13mm }\n"
    ":root { color-scheme: light }\n"
    "body { margin: 0; padding: 0; max-width: none; font-size: 9.5pt; color: #1d222b; background: "
    "#fff }\n"
    "h1 { margin-top: 0 } h2 { margin-top: 1.6em } table, tr, dl, figcaption { break-inside: avoid "
    "}\n"
    "h2, h3, h2 + p:has(+ figure, + .pair), figcaption, tr:first-child { break-after: avoid }\n"
    "figure > div, .scroll { overflow: visible } figure svg { max-height: 222mm; width: auto }\n"
    ".short svg { max-height: 160mm }\n"
    /* a drawing as tall as a page comes last, on one of its own, its words beside it */
    ".tall { display: flex; flex-direction: column } .tall > #model { order: 1 }\n"
    ".narrow { display: grid; grid-template-columns: minmax(0, max-content) minmax(50mm, 1fr); "
    "column-gap: 6mm } .narrow figcaption { order: 2 } .narrow svg { max-height: 240mm }\n"
    ".pair { grid-template-columns: 1fr 1fr; column-gap: 6mm }\n"
    "}\n";

/* ---- files ---- */

/* Whole or not at all. */
static void put_file(Arena *a, const char *path, const char *text, size_t n)
{
    struct stat st;
    bool plain = strcmp(path, "-") && (stat(path, &st) != 0 || S_ISREG(st.st_mode));
    const char *temp = plain ? arena_printf(a, "%s.tmp%ld", path, (long)getpid()) : path;
    FILE *f = !strcmp(path, "-") ? stdout : plain ? file_new(temp) : fopen(path, "wb");
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
    Run r = {.path = path, .why = "it is not read whole"};
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
    else
        at->why = NULL;
}

/* ---- the model ---- */

/* Where more is on its page than the drawing of modules. */
static bool is_short(const Page *p)
{
    enum { SHORT = 800 };
    return p->modules_high < SHORT;
}

static void put_model(Page *p)
{
    bool narrow = p->modules_high > 1.5 * p->modules_wide;
    fputs("<section id=\"model\">\n<h2>The model in stages</h2>\n", p->f);
    if (p->modules)
        put_figure_in(
            p,
            (Figure){"modules", "Modules",
                     "Data flow from top to bottom, a band for each stage. In a box: a "
                     "module, its parameters, the operations of its forward; round ones "
                     "are single operations, inputs and outputs. What crosses into a "
                     "stage passes a label: bytes of a microbatch, or of a step where "
                     "stages share a parameter (broken lines). Gradients go the same ways "
                     "back.",
                     p->modules},
            is_short(p) ? " class=\"beside short\""
            : narrow    ? " class=\"beside narrow\""
                        : " class=\"beside\"");
    else
        fprintf(p->f, "<p>%s</p>\n",
                p->pipe.module.n ? "The modules are too many to be drawn, or go in circles."
                                 : "pipe.xml has no modules: the folder is of an older ppsplit. "
                                   "Split again, and they are drawn here.");
    fputs("</section>\n", p->f);
}

/* ---- the balance of stages ---- */

static double stage_ms(const Run *r, uint32_t stage, int type)
{
    double t = r->costs.stages > (int)stage
                   ? r->costs.stage_time[(size_t)stage * SA_TYPES + (size_t)type]
                   : -1;
    return t < 0 ? 0 : t / 1000;
}

static const char *ms_text(Arena *a, double v) { return arena_printf(a, "%.3g ms", v); }

/* What a stage sends on, both ways where a gradient comes back, is not its own balance: only what
 * leaves it forwards. */
static int64_t sent(const PagePipe *p, uint32_t stage)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < p->edge.n; i++)
        if (p->edge.at[i].from == stage && !strcmp(p->edge.at[i].kind, "activation") &&
            __builtin_add_overflow(n, p->edge.at[i].bytes, &n))
            return INT64_MAX;
    return n;
}

enum { C_PARAMETERS, C_FLOPS, C_STASH, C_SENT, C_F, C_B, COLUMNS };

static double column(const Page *p, uint32_t stage, int c)
{
    const PageStage *s = &p->pipe.stage.at[stage];
    switch (c) {
    case C_PARAMETERS: return (double)s->parameters;
    case C_FLOPS: return (double)s->flops;
    case C_STASH: return (double)s->bytes_stash;
    case C_SENT: return (double)sent(&p->pipe, stage);
    case C_F: return stage_ms(&p->run.at[0], stage, SA_F);
    default: return stage_ms(&p->run.at[0], stage, SA_B);
    }
}

static const char *column_text(const Page *p, double v, int c)
{
    int64_t whole = v < 9e18 ? (int64_t)v : INT64_MAX;
    return c == C_F || c == C_B          ? ms_text(p->a, v)
           : c == C_STASH || c == C_SENT ? bytes_text(p->a, whole)
                                         : count_text(p->a, whole);
}

static void put_balance(Page *p)
{
    static const char *const name[COLUMNS] = {
        "parameters", "forward operations", "stash",
        "sends",      "forward, measured",  "backward, measured"};
    int columns = p->run.n ? COLUMNS : C_F;
    Quantity q[COLUMNS];
    uint32_t stages = p->pipe.stage.n;
    for (int c = 0; c < columns; c++) {
        double *v = arena_array(p->a, double, stages);
        const char **text = arena_array(p->a, const char *, stages);
        for (uint32_t t = 0; t < stages; t++) {
            v[t] = column(p, t, c);
            text[t] = column_text(p, v[t], c);
        }
        q[c] = (Quantity){name[c], v, text};
    }
    const char *of = p->run.n > 1 ? arena_printf(p->a, " Measured: <code>%s</code>.",
                                                 html_text(p->a, p->run.at[0].path))
                                  : "";
    fputs("<h2 id=\"balance\">Balance of the stages</h2>\n", p->f);
    put_figure(p, (Figure){"balance", "Stage by stage",
                           arena_printf(p->a,
                                        "Per microbatch. A pipeline is as fast as its slowest "
                                        "stage: below each quantity, the most over the mean; 1.00 "
                                        "is even. Stash: what forward keeps for backward.%s",
                                        of),
                           draw_balance(p->a, &p->pipe, (uint32_t)columns, q)});
}

/* ---- training ---- */

/* Rows a second, where a log's tokens are the rows themselves or the model reads none.  A log that
 * does not say its rows is taken as it is. */
static void rows_for_tokens(Page *p)
{
    bool rows = p->log.n > 0;
    for (uint32_t k = 0; k < p->log.n; k++) {
        const PageLog *l = &p->log.at[k];
        const double *v = l->step.at[0].value;
        bool tokens = p->pipe.tokens && v[LOG_TOKENS] * v[LOG_SECONDS] > 1.5 * l->batch;
        rows &= l->batch > 0 && !tokens;
    }
    for (uint32_t k = 0; k < p->log.n && rows; k++)
        for (uint32_t i = 0; i < p->log.at[k].step.n; i++) {
            double *v = p->log.at[k].step.at[i].value;
            v[LOG_TOKENS] = p->log.at[k].batch / v[LOG_SECONDS];
        }
    p->throughput = rows ? "rows a second" : "tokens a second";
}

static Curve curve_of(Page *p, const char *label, uint32_t n, const PageStep *step, int column)
{
    Curve c = {label, n, arena_array(p->a, double, n + 1), arena_array(p->a, double, n + 1), false};
    for (uint32_t i = 0; i < n; i++) {
        c.at[i] = step[i].step;
        c.value[i] = step[i].value[column];
    }
    return c;
}

static bool any_number(const Curve *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (isfinite(c->value[i]))
            return true;
    return false;
}

static void put_curve(Page *p, int column, const char *name, const char *title, const char *unit,
                      const char *caption)
{
    Curve *c = arena_array(p->a, Curve, 2 * p->log.n);
    uint32_t n = 0;
    bool any = false;
    for (uint32_t k = 0; k < p->log.n; k++) {
        const PageLog *l = &p->log.at[k];
        c[n] = curve_of(p, l->schedule ? arena_printf(p->a, "%s (%s)", l->path, l->schedule)
                                       : l->path,
                        l->step.n, l->step.at, column);
        any |= any_number(&c[n++]);
    }
    if (!any)
        return;
    const PageLog *l = &p->log.at[0];
    double last = l->step.at[l->step.n - 1].value[column];
    if (isfinite(last))
        caption = arena_printf(p->a, "%s In the last step %.6g.", caption, last);
    for (uint32_t k = 0; k < p->log.n && column == LOG_LOSS; k++) {
        l = &p->log.at[k];
        c[n] = curve_of(p, arena_printf(p->a, "%s, evaluated", l->path), l->eval.n, l->eval.at,
                        LOG_EVAL);
        c[n].dots = true;
        if (!any_number(&c[n]))
            continue;
        const PageStep *e = &l->eval.at[l->eval.n - 1];
        if (k == 0 && isfinite(e->value[LOG_EVAL]))
            caption = arena_printf(p->a, "%s Of the rows of --eval-data, after step %.0f, %.6g.",
                                   caption, e->step, e->value[LOG_EVAL]);
        n++;
    }
    put_figure(p, (Figure){name, title, caption,
                           draw_curves(p->a, n, c, &(Axes){.x = "step", .y = unit})});
}

static void put_training(Page *p)
{
    fputs("<h2 id=\"training\">Training</h2>\n", p->f);
    if (!p->log.n) {
        fputs("<p>No log was given: a run writes one with <code>--log-json FILE</code>.</p>\n",
              p->f);
        return;
    }
    fputs("<div class=\"pair\">\n", p->f);
    put_curve(p, LOG_LOSS, "loss", "Loss", "loss", "Over the whole minibatch of each step.");
    put_curve(p, LOG_NORM, "gradient-norm", "Gradient norm", "gradient norm",
              "The Euclidean norm of all parameters' gradients, before any clipping.");
    put_curve(p, LOG_TOKENS, "throughput", "Throughput", p->throughput,
              "The first steps are slower: libraries start, pages are touched.");
    put_curve(p, LOG_LR, "learning-rate", "Learning rate", "learning rate",
              "What the schedule of the learning rate gave each step.");
    fputs("</div>\n", p->f);
}

/* ---- what crosses, value by value ---- */

static void put_crossings(Page *p)
{
    if (!p->pipe.edge.n)
        return;
    fputs("<h2 id=\"crosses\">What crosses, value by value</h2>\n<div class=\"scroll\">\n<table>"
          "<tr><th>from</th><th>to</th><th>value</th><th>shape</th><th "
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
    fputs("</table>\n</div>\n", p->f);
}

/* ---- the page ---- */

static void put_fact(Page *p, const char *name, const char *value)
{
    fprintf(p->f, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, value);
}

static int64_t plus(int64_t a, int64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? INT64_MAX : a;
}

static void put_facts(Page *p)
{
    int64_t parameters = 0, flops = 0, crosses = 0;
    for (uint32_t t = 0; t < p->pipe.stage.n; t++) {
        parameters = plus(parameters, p->pipe.stage.at[t].parameters);
        flops = plus(flops, p->pipe.stage.at[t].flops);
        crosses = plus(crosses, sent(&p->pipe, t));
    }
    fputs("<dl class=\"facts\">\n", p->f);
    put_fact(p, "stages", arena_printf(p->a, "%u", p->pipe.stage.n));
    put_fact(p, "parameters", count_text(p->a, parameters));
    put_fact(p, "operations, forward", count_text(p->a, flops));
    put_fact(p, "crosses, forward", bytes_text(p->a, crosses));
    if (p->run.n) {
        const SchedMeasured *m = &p->run.at[0].m;
        put_fact(p, "ranks, microbatches",
                 arena_printf(p->a, "%d, %d", m->s->ranks, m->s->microbatches));
        put_fact(p, "step, measured", ms_text(p->a, m->sim.makespan / 1000));
        put_fact(p, "idle in it", arena_printf(p->a, "%.1f %%", 100 * m->sim.bubble));
    }
    if (p->log.n) {
        const PageLog *l = &p->log.at[0];
        const PageStep *last = &l->step.at[l->step.n - 1];
        if (isfinite(last->value[LOG_LOSS]))
            put_fact(p, arena_printf(p->a, "loss, step %.0f", last->step),
                     arena_printf(p->a, "%.4g", last->value[LOG_LOSS]));
        if (isfinite(last->value[LOG_TOKENS]))
            put_fact(p, p->throughput,
                     count_text(p->a, (int64_t)fmin(fmax(last->value[LOG_TOKENS], 0), 1e18)));
    }
    fputs("</dl>\n", p->f);
}

static void put_page(Page *p)
{
    const char *model = html_text(p->a, p->pipe.model);
    p->modules = draw_modules(p->a, &p->pipe, p->o, &p->modules_wide, &p->modules_high);
    fprintf(p->f,
            "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>"
            "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
            "content=\"width=device-width, initial-scale=1\"/>\n"
            "<title>%s: %u stages</title>\n<style>\n%s%s</style>\n</head>\n<body%s>\n<header>\n"
            "<h1>%s</h1>\n"
            "<p>%u stage%s, %s%s. "
            "The model is cut into stages, which ranks (processes) compute one after the other; "
            "the rows of a step are cut into microbatches, so that all ranks work at once.</p>\n",
            model, p->pipe.stage.n, style, page_colours,
            is_short(p) ? "" : " class=\"tall\"", model, p->pipe.stage.n,
            p->pipe.stage.n == 1 ? "" : "s", *p->pipe.loss ? "loss " : "no loss",
            html_text(p->a, p->pipe.loss));
    put_facts(p);
    fputs("</header>\n", p->f);
    put_model(p);
    fputs("<main>\n", p->f);
    put_balance(p);
    put_schedules(p);
    put_memory(p);
    put_microbatches(p);
    put_training(p);
    put_crossings(p);
    fputs("</main>\n</body>\n</html>\n", p->f);
}

static void put_figures(const Page *p)
{
    if (mkdir(p->o->svg, 0777) != 0 && errno != EEXIST)
        diag_fatal(EXIT_IO, WHERE_FILE(p->o->svg), "%s", strerror(errno));
    for (uint32_t i = 0; i < p->figure.n; i++) {
        const char *svg = svg_file(p->a, p->figure.at[i].svg);
        put_file(p->a, arena_printf(p->a, "%s/%s.svg", p->o->svg, p->figure.at[i].name), svg,
                 strlen(svg));
    }
}

/* A page may take the place of a page: nothing else that happens to have its name. */
static void spare_others(const char *path)
{
    static const char start[] = "<!DOCTYPE html";
    char found[sizeof start] = "";
    struct stat st;
    FILE *f = stat(path, &st) || !S_ISREG(st.st_mode) || !st.st_size ? NULL : fopen(path, "rb");
    if (!f)
        return;
    bool page = fread(found, 1, sizeof start - 1, f) == sizeof start - 1 && !strcmp(found, start);
    fclose(f);
    if (page)
        return;
    diag_hint("give another name with -o, or remove the file first");
    diag_fatal(EXIT_MODEL, WHERE_FILE(path), "is there, and is no report");
}

static void make_page(void *page)
{
    Page *p = page;
    const ReportOptions *o = p->o;
    if (strcmp(o->target, "-"))
        spare_others(o->target);
    p->pipe = page_pipe(p->a, arena_printf(p->a, "%s/pipe.xml", o->out));
    for (uint32_t i = 0; i < o->run.n; i++)
        if (page_is_trace(o->run.at[i]))
            read_trace(p, o->run.at[i]);
        else
            vec_push(p->a, &p->log, page_log(p->a, o->run.at[i]));
    rows_for_tokens(p);
    p->f = page_open(&p->text);
    put_page(p);
    FILE *f = p->f;
    p->f = NULL;
    const char *text = page_text(p->a, f, p->text);
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
    int code = diag_run(make_page, p);
    for (uint32_t i = 0; i < p->run.n; i++) {
        Run *r = &p->run.at[i];
        if (!r->why)
            sched_sim_free(&r->sim, r->m.s->ranks);
        sched_costs_free(&r->costs);
        sched_measured_free(&r->m);
    }
    if (p->f) { /* a diagnostic has left it */
        memory_close(p->f, p->text);
        free(p->text->at);
        free(p->text);
    }
    if (code)
        diag_raise(code);
}

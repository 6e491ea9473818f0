/*
 * page.c - `ppsplit report`: the page of a program with what its runs measured.
 *
 * In: pipe.html of an output folder, which program.c wrote, and files of --log-json and --trace.
 * Out: that page; what runs say stands at its two marks.  What is not given is left out and named.
 * A simulation is of the rows that ran, by the trace's mean times.
 */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "autodiff/export/merge_mark.h"
#include "base/file/replace.h"
#include "marks.h"
#include "page.h"

/* ---- files ---- */

/* Whole or not at all. */
static void put_file(const char *path, const char *text, size_t n)
{
    FileWhole out;
    if (!file_begin(&out, path) || (fwrite(text, 1, n, out.f), file_end(&out)))
        diag_fatal(EXIT_IO, WHERE_FILE(path), "%s", out.why);
}

/* ---- reading ---- */

static bool is_trace(const char *path)
{
    char why[FILE_WHY];
    struct stat st;
    FileMap *f = file_map(path, why);
    if (!f && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        diag_hint("give OUT first, then logs (--log-json) and traces (--trace)");
    if (!f)
        diag_fatal(EXIT_IO, WHERE_FILE(path), "%s", why);
    bool is = memmem(f->at, f->bytes < 256 ? f->bytes : 256, "\"traceEvents\"", 13) != NULL;
    file_unmap(f);
    return is;
}

static void release_run(void *run)
{
    Run *r = run;
    if (!r->why)
        sched_sim_free(&r->sim);
    sched_costs_free(&r->costs);
    sched_measured_free(&r->m);
}

static void read_trace(Page *p, const char *path)
{
    Run *r = arena_new_of(p->a, Run);
    *r = (Run){.path = path, .why = "it is not read whole"};
    arena_hold(p->a, release_run, r);
    if (sched_measured(path, &r->m, &p->e))
        diag_fatal(p->e.status == SCHED_ERESOURCE ? EXIT_IO : EXIT_MODEL, WHERE_NONE, "%s",
                   strstr(p->e.text, path) ? p->e.text
                                           : arena_printf(p->a, "%s: %s", path, p->e.text));
    if (r->m.s->stages != p->stages)
        diag_fatal(EXIT_MODEL, WHERE_FILE(path),
                   "the trace has %d stages, but %s has %d: it is of another program",
                   r->m.s->stages, p->o->out, p->stages);
    sched_costs_default(&r->costs);
    if (sched_costs_load(&r->costs, path, r->m.s->stages, NULL, &p->e) ||
        sched_measured_simulate(&r->m, path, &r->sim, &p->e))
        r->why = arena_strdup(p->a, p->e.text);
    else
        r->why = NULL;
    vec_push(p->a, &p->run, r);
}

static void read_log(Page *p, const char *path)
{
    RunLog l = log_read(p->a, path);
    p->waits |= !l.step.n;
    if (!l.step.n && p->o->follow)
        return;
    if (!l.step.n)
        diag_fatal(EXIT_MODEL, WHERE_FILE(path), "the log has no step yet");
    vec_push(p->a, &p->log, l);
}

/* The page of the program, and where its marks are. */
typedef struct {
    const char *text, *facts, *runs, *end;
} Template;

static const char *page_path(const Page *p)
{
    return arena_printf(p->a, "%s/pipe.html", p->o->out);
}

NORETURN static void not_ours(const Page *p)
{
    diag_hint("split the model again: ppsplit writes pipe.html into the folder of -o");
    diag_fatal(EXIT_MODEL, WHERE_FILE(page_path(p)), "was not written by this version of ppsplit");
}

static Template read_template(Page *p)
{
    const char *path = page_path(p);
    char of[6] = "";
    if (access(path, F_OK) != 0)
        diag_hint("OUT, which comes first, is the folder that `ppsplit MODEL -o OUT' wrote");
    const FileMap *f = arena_file(p->a, path);
    Template t = {.text = arena_strndup(p->a, f->at, f->bytes)};
    t.facts = strstr(t.text, MARK_FACTS);
    t.runs = t.facts ? strstr(t.facts, MARK_RUNS_BEGIN) : NULL;
    t.end = t.runs ? strstr(t.runs, MARK_END) : NULL;
    if (!t.end || sscanf(t.runs, MARK_RUNS_READ, &p->stages, of) != 2 || p->stages < 1)
        not_ours(p);
    p->reads_texts = !strcmp(of, "texts");
    return t;
}

/* ---- the page ---- */

/* Each figure of the page, by its name. */
static void put_figures(const Page *p, const char *text)
{
    static const char begin[] = "<figure id=\"figure-", end[] = "</svg>\n";
    const char *dir = p->o->svg;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        diag_fatal(EXIT_IO, WHERE_FILE(dir), "%s", strerror(errno));
    for (const char *at = text; (at = strstr(at, begin)) != NULL;) {
        const char *name = at + sizeof begin - 1, *svg = strstr(name, "<svg "),
                   *stop = svg ? strstr(svg, end) : NULL;
        size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz-0123456789");
        if (!n || name[n] != '"' || !stop)
            not_ours(p);
        const char *file = svg_file(p->a, svg, (size_t)(stop - svg) + sizeof end - 1);
        put_file(arena_printf(p->a, "%s/%.*s.svg", dir, (int)n, name), file, strlen(file));
        at = stop;
    }
}

/* Of the model in a step, what is computed again left out: a mean over ranks.  NAN: unknown */
static double operations_of(const RunLog *l)
{
    double sum = 0;
    for (uint32_t r = 0; r < l->place.n; r++)
        sum += l->place.at[r].operations;
    return sum / l->place.n;
}

static void put_facts(Page *p)
{
    if (p->run.n) {
        const SchedMeasured *m = &p->run.at[0]->m;
        put_fact(&p->text, "ranks, microbatches",
                 arena_printf(p->a, "%d, %d", m->s->ranks, m->s->microbatches));
        put_fact(&p->text, "step, measured", time_text(p->a, m->sim.makespan / 1e6));
        put_fact(&p->text, "idle in it", arena_printf(p->a, "%.1f %%", 100 * m->sim.bubble));
    }
    if (p->log.n) {
        const RunLog *l = &p->log.at[0];
        const LogStep *last = &l->step.at[l->step.n - 1];
        double rate = last->value[LOG_TOKENS],
               operations = operations_of(l) / last->value[LOG_SECONDS];
        if (isfinite(last->value[LOG_LOSS]))
            put_fact(&p->text, arena_printf(p->a, "loss, step %.0f", last->step),
                     arena_printf(p->a, "%.4g", last->value[LOG_LOSS]));
        if (isfinite(rate))
            put_fact(&p->text, p->throughput, count_text(p->a, (int64_t)fmin(fmax(rate, 0), 1e18)));
        if (isfinite(operations))
            put_fact(&p->text, "model FLOP/s of a rank",
                     count_text(p->a, (int64_t)fmin(operations, 1e18)));
    }
}

/* While a run goes on a browser reads the page again. */
static const char *refreshed(const Page *p, ReportOptions *o, const char *text)
{
    const char *title = strstr(text, "<title>");
    o->goes_on = p->waits;
    for (uint32_t k = 0; k < p->log.n; k++)
        o->goes_on |= p->log.at[k].step.at[p->log.at[k].step.n - 1].step < p->log.at[k].steps;
    if (!o->goes_on || !o->follow || !title)
        return text;
    return arena_printf(p->a, "%.*s<meta http-equiv=\"refresh\" content=\"%d\"/>\n%s",
                        (int)(title - text), text, o->follow, title);
}

void report_page(void *options)
{
    ReportOptions *o = options;
    Page page = {.a = o->arena, .o = o, .text = {.a = o->arena}}, *p = &page;
    spare_others(o->target, &(FileOurs){file_starts, "<!DOCTYPE html", "a report"});
    Template t = read_template(p);
    for (uint32_t i = 0; i < o->run.n; i++)
        if (is_trace(o->run.at[i]))
            read_trace(p, o->run.at[i]);
        else
            read_log(p, o->run.at[i]);
    const char *text = t.text;
    if (o->run.n) {
        rows_for_tokens(p);
        text_add(&p->text, "%.*s", (int)(t.facts - t.text), t.text);
        put_facts(p);
        text_add(&p->text, "%.*s", (int)(t.runs - t.facts), t.facts);
        put_schedules(p);
        put_memory(p);
        put_training(p);
        text_add(&p->text, "%s", t.end);
        text = text_all(&p->text);
    }
    if (o->svg)
        put_figures(p, text);
    text = refreshed(p, o, text);
    put_file(o->target, text, strlen(text));
}

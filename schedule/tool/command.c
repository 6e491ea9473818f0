/*
 * command.c - the command `ppsplit schedule NAME|FILE.csv ...`: generate, lower, verify, simulate,
 * draw.
 *
 * In: the command line.  Out: data on stdout or in the files asked for, everything else on stderr;
 * exit status 0 ok, 1 the schedule is refused (rank, cell and reason on stderr), 2 usage, 3
 * input/output or memory.
 */
#include "options.h"
#include "base/cli/nearest.h"
#include "schedule/synth/auto.h"
#include "schedule/graph.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
static int fail(const SchedError *e)
{
    fprintf(stderr, "ppsplit schedule: error: %s\n", e->text);
    return e->status;
}

static int cannot_write(const FileWhole *w)
{
    fprintf(stderr, "ppsplit schedule: error: %s: %s\n", w->path, w->why);
    return SCHED_ERESOURCE;
}

/* ---- The schedule and its passes ---- */

/* A file: what looks like one, or is there; else a name, which the registry may not know. */
static int is_file(const char *name)
{
    struct stat st;
    size_t n = strlen(name);
    return !sched_find(name) && strcasecmp(name, "auto") != 0 &&
           ((n >= 4 && strcmp(name + n - 4, ".csv") == 0) || strchr(name, '/') ||
            stat(name, &st) == 0);
}

static int set_costs(const SchedOptions *o, int stages, int microbatches, SchedCosts *c,
                     SchedError *e)
{
    sched_costs_default(c);
    c->overlap = o->overlap;
    if (!o->costs)
        return SCHED_OK;
    if (strchr(o->costs, '=') && access(o->costs, R_OK) != 0)
        return sched_costs_set(c, o->costs, e);
    SchedLengths l = {.n = 0};
    SchedRows rows = o->rows;
    int st = rows.n ? sched_rows_read(&rows, e) : SCHED_OK;
    if (!st && rows.n)
        st = sched_lengths(&l, &rows, 1, microbatches, e);
    if (!st)
        st = sched_costs_load(c, o->costs, stages, rows.n ? &l : NULL, e);
    free(l.length);
    sched_rows_free(&rows);
    return st;
}

/* Of several runs: what was done to be able to compare their times. */
static void print_clocks(const SchedOptions *o, const SchedCosts *c)
{
    size_t n;
    for (int k = 1; k < c->runs; k++) {
        const char *name = sched_costs_file(o->costs, k, &n);
        fprintf(stderr, "%.*s: times x %.3f, by F, which is in the first run too\n", (int)n, name,
                c->clock[k]);
    }
}

/* What was compared, one line each, beside the rows. */
static void print_comparison(const SchedAuto *a, const SchedAutoReport *r)
{
    const SchedTried *best = &r->tried[r->chosen];
    fprintf(stderr, "%d schedules compared by %s:\n", r->n, a->span ? "span" : "makespan");
    for (int i = 0; i < r->n; i++) {
        const SchedTried *t = &r->tried[i];
        fprintf(stderr, "  %-22s %-5s makespan %.10g span %.10g peak %d%s%s%s\n", t->name,
                sched_placement_name(t->placement), t->makespan, t->span, t->peak,
                t->why[0] ? ": left out, " : "", t->why, t == best ? "  <- chosen" : "");
    }
}

/* The chain and the skips of --edge, into *edge; to be freed. */
static int edges_of(const SchedOptions *o, int stages, SchedEdge **edge, int *n_edge, SchedError *e)
{
    int n = stages - 1;
    *edge = malloc(((size_t)n + (size_t)o->n_edge + 1) * sizeof **edge);
    if (!*edge)
        return sched_nomem(e);
    for (int i = 0; i < n; i++)
        (*edge)[i] = (SchedEdge){i, i + 1, 1, 0, 0};
    if (o->n_edge)
        memcpy(*edge + n, o->edge, (size_t)o->n_edge * sizeof **edge);
    *n_edge = n + o->n_edge;
    return SCHED_OK;
}

/* Where I frees a part of a chunk's memory, chunks are counted as bytes are, 1 for each: stash and
   late of each stage, then a limit for each rank; to be freed. */
static int chunk_bytes(SchedCosts *c, int stages, double **room, int ranks, int chunks,
                       SchedError *e)
{
    *room = NULL;
    if (c->late == 1)
        return SCHED_OK;
    double *p = *room = malloc(((size_t)stages * 2 + (size_t)ranks) * sizeof *p);
    if (!p)
        return sched_nomem(e);
    for (int i = 0; i < stages; i++)
        p[i] = 1, p[stages + i] = c->late;
    for (int r = 0; r < ranks; r++)
        p[2 * stages + r] = chunks;
    c->bytes_stash = p;
    c->bytes_late = p + stages;
    return SCHED_OK;
}

static int choose(const SchedOptions *o, Schedule **out, SchedError *e)
{
    SchedCosts c;
    SchedEdge *edge;
    SchedAutoReport report;
    double *room = NULL;
    if (!o->ranks || !o->microbatches)
        return sched_fail(e, SCHED_EUSAGE, -1, -1, "auto needs --ranks and --microbatches");
    int stages = o->stages ? o->stages : o->ranks,
        st = set_costs(o, stages, o->microbatches, &c, e);
    SchedAuto a = {.ranks = o->ranks,
                   .stages = stages,
                   .microbatches = o->microbatches,
                   .placement = o->placement,
                   .costs = &c,
                   .chunks = o->chunks,
                   .span = o->span,
                   .work = SCHED_AUTO_WORK};
    if (!st)
        st = chunk_bytes(&c, stages, &room, o->ranks, o->chunks, e);
    if (room && o->chunks) {
        a.chunks = 0;
        a.memory = room + 2 * stages;
    }
    if (!st && !(st = edges_of(o, stages, &edge, &c.n_edge, e))) {
        c.edge = edge;
        if (!(st = sched_auto(&a, out, &report, e))) {
            print_clocks(o, &c);
            print_comparison(&a, &report);
        }
        free(edge);
    }
    sched_costs_free(&c);
    free(room);
    return st;
}

static int generate(const SchedOptions *o, Schedule **out, SchedError *e)
{
    if (strcasecmp(o->name, "auto") == 0)
        return choose(o, out, e);
    if (o->chunks || o->span)
        return sched_fail(e, SCHED_EUSAGE, -1, -1, "--memory-chunks and --objective are for auto");
    const SchedKind *k = sched_find(o->name);
    if (k && (!o->ranks || !o->microbatches))
        return sched_fail(e, SCHED_EUSAGE, -1, -1, "%s needs --ranks and --microbatches", k->name);
    int chunks = k && k->chunks ? k->chunks : 1, stages = o->stages ? o->stages : chunks * o->ranks;
    return sched_generate(o->name, o->ranks, stages, o->microbatches, o->placement, out, e);
}

static int load(const SchedOptions *o, Schedule **out, SchedError *e)
{
    int status = sched_load(o->name, out, e);
    if (!status &&
        ((o->ranks && o->ranks != (*out)->ranks) || (o->stages && o->stages != (*out)->stages) ||
         (o->microbatches && o->microbatches != (*out)->microbatches))) {
        status = sched_fail(
            e, SCHED_EREFUSED, -1, -1,
            "%s has %d ranks, %d stages and %d microbatches, which differs from the options",
            o->name, (*out)->ranks, (*out)->stages, (*out)->microbatches);
        sched_free(*out);
        *out = NULL;
    }
    return status;
}

/* The chain and the skips of --edge. */
static int make_graph(const SchedOptions *o, const Schedule *s, SchedGraph *g, SchedError *e)
{
    int n, st;
    if (!o->n_edge)
        return sched_graph_of(g, s, NULL, 0, NULL, 0, e);
    SchedEdge *edge;
    if ((st = edges_of(o, s->stages, &edge, &n, e)))
        return st;
    st = sched_graph_of(g, s, edge, n, NULL, 0, e);
    free(edge);
    return st;
}

static int recompute(Schedule *s, const char *what, SchedError *e)
{
    int32_t *parts = malloc(sched_pairs(s) * sizeof *parts + 1);
    int st = !parts ? sched_nomem(e)
             : strcmp(what, "auto") == 0
                 ? sched_fail(e, SCHED_EUSAGE, -1, -1,
                              "--recompute auto needs the bytes of a program's stages; a schedule "
                              "alone has none")
                 : sched_recompute_parse(what, s->stages, s->microbatches, parts, e);
    if (!st && !s->infer)
        st = sched_recompute(s, parts, e);
    free(parts);
    return st;
}

static int offload(const SchedOptions *o, Schedule *s, const SchedGraph *g, const SchedCosts *c,
                   SchedError *e)
{
    int *most = malloc((size_t)s->ranks * sizeof *most);
    if (!most)
        return sched_nomem(e);
    for (int r = 0; r < s->ranks; r++)
        most[r] = o->add.offload;
    int st = sched_offload_graph(s, g, &(SchedOffload){.costs = c, .most = most}, NULL, e);
    free(most);
    return st;
}

static int run_passes(const SchedOptions *o, Schedule *s, const SchedGraph *g, const SchedCosts *c,
                      SchedError *e)
{
    int lower = o->add.lower || ((o->add.defer || o->add.budget) && !o->add.comms && !s->complete),
        st = sched_validate(s, e);
    const char *unshard = o->add.unshard                                ? o->add.unshard
                          : lower && !sched_has_type(s, SA_UNSHARD) ? "3"
                                                                    : NULL;
    int reduced = sched_has_type(s, SA_REDUCE_GRAD);
    if (!st && o->add.merge)
        st = sched_merge(s, e);
    if (!st && o->add.recompute)
        st = recompute(s, o->add.recompute, e);
    if (!st && unshard)
        st = sched_unshard(s, unshard, e);
    if (!st && !s->infer && !reduced && (lower || o->add.deferred_reduce))
        st = sched_reduce_grad(s, o->add.deferred_reduce, e);
    if (!st && (o->add.comms || (lower && !s->complete)))
        st = sched_comms_graph(s, g, e);
    if (!st && (lower || o->add.budget) && !sched_has_type(s, SA_WAIT_SEND_F) &&
        !sched_has_type(s, SA_WAIT_SEND_B))
        st = sched_wait_send_graph(s, g, e);
    if (!st && o->add.defer)
        st = sched_defer(s, e);
    if (!st && o->add.budget)
        st = sched_budget(s, o->add.budget, e);
    if (!st && o->add.offload)
        st = offload(o, s, g, c, e);
    return st;
}

/* Verification needs the messages: a compute-only schedule gets them in a copy. */
static int run_verify(const SchedOptions *o, const Schedule *s, const SchedGraph *g, SchedError *e)
{
    Schedule *c = NULL;
    int st = SCHED_OK, k = o->buffers > 0 ? o->buffers : 0;
    FILE *out = o->csv && strcmp(o->csv, "-") == 0 ? stderr : stdout;
    if (!s->complete) {
        if (!(c = sched_clone(s)))
            return sched_nomem(e);
        st = sched_comms_graph(c, g, e);
        s = c;
    }
    if (!st)
        st = sched_verify_graph(s, g, k, e);
    /* Deferred receives ask for buffers; unless told how many, find out. */
    for (k = 1; st == SCHED_EREFUSED && o->add.defer && o->buffers < 0 && k <= s->microbatches; k++)
        st = sched_verify_graph(s, g, k, e);
    if (st == SCHED_OK && k > 1 && o->buffers < 0)
        fprintf(out, "verified: runs to the end with %d buffer%s an edge, not with a rendezvous\n",
                k - 1, k == 2 ? "" : "s");
    else if (st == SCHED_OK && o->buffers > 0)
        fprintf(out, "verified: runs to the end with %d buffer%s an edge\n", o->buffers,
                o->buffers == 1 ? "" : "s");
    else if (st == SCHED_OK)
        fprintf(out, "verified: runs to the end, every message a rendezvous\n");
    sched_free(c);
    return st;
}

static void print_simulation(const Schedule *s, const SchedSim *sim, const SchedCosts *c)
{
    printf("makespan %.10g\nspan %.10g\nbubble %.4f\n", sim->makespan, sim->span, sim->bubble);
    for (int r = 0; r < s->ranks; r++) {
        printf("rank %d busy %.10g peak %d", r, sim->busy[r], sim->peak[r]);
        if (c->bytes_stash)
            printf(" memory %.4g", sim->peak_bytes[r]);
        putchar('\n');
    }
    printf("span_bubble %.4f\n", sim->bubble_span);
    if (c->around > 0) /* what the run did between the actions of two steps */
        printf("step %.10g\n", sim->makespan + c->around);
}

/* The trace of a run, by its name. */
static int is_trace(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".json") == 0;
}

static int draw(const SchedOptions *o, const Schedule *s, const SchedSim *sim)
{
    FileWhole out;
    if (o->grid) {
        const char *columns = getenv("COLUMNS");
        sched_draw_grid(s, sim, stdout, columns ? atoi(columns) - 9 : 0);
    }
    if (o->svg) {
        if (!file_begin_ours(&out, o->svg, &(FileOurs){file_starts, "<svg ", "a drawing"}))
            return cannot_write(&out);
        if (is_trace(o->name)) /* microseconds, the whole on one screen */
            sched_draw_svg_in(s, sim, sim->makespan, 1200, s->name, out.f);
        else
            sched_draw_svg(s, sim, out.f);
        if (file_end(&out))
            return cannot_write(&out);
    }
    if (o->trace) {
        if (!file_begin_ours(&out, o->trace,
                             &(FileOurs){file_starts, "{\"displayTimeUnit\"", "a trace"}))
            return cannot_write(&out);
        sched_draw_trace(s, sim, out.f);
        return file_end(&out) ? cannot_write(&out) : SCHED_OK;
    }
    return SCHED_OK;
}

/* One step of a run, as it was. */
static int draw_measured(const SchedOptions *o, SchedError *e)
{
    SchedMeasured m;
    if (o->others)
        return sched_usage(
            "%s is a run's trace: it can be drawn, by --svg and --grid, nothing else", o->name);
    if (!o->svg && !o->grid)
        return sched_usage("%s is a run's trace: --svg FILE or --grid draws it", o->name);
    int st = sched_measured(o->name, &m, e);
    if (st)
        return fail(e);
    st = draw(o, m.s, &m.sim);
    sched_measured_free(&m);
    return st;
}

static int run_simulation(const SchedOptions *o, const Schedule *s, const SchedGraph *g,
                          SchedCosts *c, SchedError *e)
{
    SchedSim sim;
    double *room;
    int st = chunk_bytes(c, s->stages, &room, s->ranks, 0, e);
    c->edge = g->edge;
    c->n_edge = g->n;
    if (!st)
        st = sched_simulate(s, c, &sim, e);
    if (!st && o->simulate)
        print_simulation(s, &sim, c);
    free(room);
    if (st)
        return fail(e);
    st = draw(o, s, &sim);
    sched_sim_free(&sim);
    return st;
}

/* What is wrong with --costs is said whether or not anything asks for them. */
static int run(const SchedOptions *o, Schedule *s, SchedError *e)
{
    SchedGraph g;
    SchedCosts c;
    FileWhole out;
    int st = make_graph(o, s, &g, e),
        asked = o->csv || o->simulate || o->verify || o->grid || o->svg || o->trace;
    if (st)
        return fail(e);
    st = set_costs(o, s->stages, s->microbatches, &c, e);
    if (!st)
        st = run_passes(o, s, &g, &c, e);
    if (!st && o->verify)
        st = run_verify(o, s, &g, e);
    if (st)
        st = fail(e);
    if (!st && (o->csv || !asked)) {
        if (sched_put(s, &out, o->csv ? o->csv : "-"))
            st = cannot_write(&out);
    }
    if (!st && (o->simulate || o->grid || o->svg || o->trace))
        st = run_simulation(o, s, &g, &c, e);
    sched_costs_free(&c);
    sched_graph_free(&g);
    return st;
}

int schedule_main(int argc, char **argv)
{
    SchedOptions o = {.placement = SCHED_PLACE_DEFAULT, .buffers = -1, .overlap = -1};
    Schedule *s = NULL;
    SchedError *e = calloc(1, sizeof *e);
    int st = e ? sched_options(&o, argc, argv) : SCHED_ERESOURCE;
    if (!st && is_trace(o.name))
        st = draw_measured(&o, e);
    else if (!st)
        st = (is_file(o.name) ? load(&o, &s, e) : generate(&o, &s, e)) ? fail(e) : run(&o, s, e);
    sched_free(s);
    free(o.edge);
    free(e);
    if (fflush(stdout) != 0 && st <= 0) {
        fprintf(stderr, "ppsplit schedule: error: stdout: %s\n", strerror(errno));
        st = SCHED_ERESOURCE;
    }
    return st < 0 ? 0 : st;
}

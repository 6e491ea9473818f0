/*
 * tell.c - the best plans as a table, and the commands of the best one.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/rows.h"
#include "partition/print/print.h"
#include "search.h"

static const char *how(const Candidate *c, Arena *a)
{
    return arena_printf(a, "%s%s%s%s%s%s", c->schedule, mesh_words(c, " ", "", a),
                        c->again ? " --recompute " : "",
                        c->again ? again_name(c->again) : "", c->offload ? " --offload stash" : "",
                        zero_words(c, a));
}

static void table(const Search *x, const uint32_t *list, uint32_t n, Arena *a)
{
    printf("   %-9s %7s %11s %11s %9s %9s %9s %9s  %s\n", "step", "bubble", "memory", "traffic",
           "replicas", "members", "ranks", "stages", "microbatches  schedule");
    for (uint32_t i = 0; i < n; i++) {
        const Candidate *c = &x->list.at[list[i]];
        printf("%-2u %-9s %6.1f%% %11s %11s %9d %9d %9d %9u  %-13s %s\n", i + 1,
               time_text(a, c->step), 100 * c->bubble, bytes_text(a, c->memory),
               bytes_text(a, (int64_t)c->traffic), c->replicas, c->cut->of->members, c->ranks,
               c->cut->stages,
               arena_printf(a, "%d x %lld", c->microbatches, (long long)c->size->rows), how(c, a));
    }
}

/* A schedule that no name says. */
static void write_rows(const Search *x, const Candidate *c)
{
    FileWhole out;
    if (sched_put(c->rows, &out, x->o->csv))
        diag_fatal(EXIT_IO, WHERE_FILE(x->o->csv), "--csv: %s", out.why);
}

/* How long rows are, as the run is told. */
static void data_words(const PlanOptions *o, Arena *a)
{
    const SchedRows *r = o->data;
    for (int v = 0; v < r->n; v++)
        printf(" --lengths %s", shell_word(a, arena_printf(a, "%s=%s", r->name[v], r->file[v])));
    if (r->by_length)
        printf(" --by-length %lld", (long long)r->by_length);
    if (r->shuffle)
        printf(" --shuffle %llu", (unsigned long long)r->seed);
}

/* Which lengths the steps are of, where they vary. */
static void tell_lengths(const PlanOptions *o, Arena *a)
{
    const Lengths *l = o->ranges;
    const SchedRows *r = o->data;
    int64_t most[SYMBOLS], mean[SYMBOLS] = {0};
    if (l->symbols == 0)
        return;
    cg_longest(l, false, most);
    if (r->n == 0) {
        printf("every row is planned with the greatest length, %s: --lengths NAME=FILE.npy, as a "
               "run takes it, plans with the data's\n",
               diag_escape(a, cg_lengths_text(a, l, most)));
        return;
    }
    for (int v = 0; v < r->n; v++) {
        double sum = 0;
        for (int64_t i = 0; i < r->rows; i++)
            sum += (double)r->length[v][i];
        mean[v] = (int64_t)(sum / (double)r->rows + .5);
    }
    printf("rows of --lengths: %lld, on average %s; steps are the mean of an epoch, memory is for "
           "%s\n",
           (long long)r->rows, diag_escape(a, cg_lengths_text(a, l, mean)),
           diag_escape(a, cg_lengths_text(a, l, most)));
    printf("where the rows of a file lie one behind the other, the run needs --pad INPUT=VALUE for "
           "it, too\n");
}

/* The model with as many rows: where a --bind says them it is another one, else there is --rows. */
static void model_words(const PlanOptions *o, const Graph *g, const char *mesh, long long rows,
                        Arena *a)
{
    const char *name = g->rows.at.n ? g->rows.at.at[g->rows.by].name : NULL,
               *bind = arena_printf(a, " --bind %s=", name ? name : ""),
               *at = name ? strstr(o->words, bind) : NULL, *value = at ? at + strlen(bind) : NULL;
    const size_t least = at && !strncmp(value, "1..", 3) ? 3 : 0,
                 n = at ? strspn(value + least, "0123456789") : 0;
    if (!n || (value[least + n] && value[least + n] != ' '))
        printf("ppsplit %s%s --rows %lld", o->words, mesh, rows);
    else
        printf("ppsplit %.*s%lld%s%s", (int)(value + least - o->words), o->words, rows,
               value + least + n, mesh);
}

static void commands(const Search *x, const Candidate *c, Arena *a)
{
    const PlanOptions *o = x->o;
    const char *out = shell_word(a, o->out), *place = "";
    Text data = {.a = a};
    const char *schedule = c->schedule;
    bool made = !sched_find(c->schedule);
    Loss loss;
    Graph *g = o->model.graph(o->model.of, (PlanSize){.rows = c->size->rows}, NULL, &loss, a);
    model_words(o, g, mesh_words(c, " ", "", a), (long long)c->size->rows, a);
    for (uint32_t i = 0; i < c->cut->points.n; i++)
        printf(" --split %s", shell_word(a, c->cut->points.at[i]));
    printf(" -o %s\nmake -C %s%s\n", out, out, o->device ? " pipeline-cuda run" : "");
    for (uint32_t i = 0; i < g->input.n; i++) {
        const char *name = val(g, g->input.at[i])->name;
        if (g->input.at[i] != loss.loss_scale)
            text_add(&data, " --data %s", shell_word(a, arena_printf(a, "%s=%s.npy", name, name)));
    }
    if (made) {
        write_rows(x, c);
        schedule = shell_word(a, o->csv);
    } else if (c->placement != SCHED_PLACE_DEFAULT &&
               c->placement != sched_find(c->schedule)->placement) {
        place = arena_printf(a, " --placement %s", sched_placement_name(c->placement));
    }
    printf("%s/run -n %d", out, o->ranks);
    if (o->device)
        printf(" --program %s/pipeline-cuda", out);
    printf(" train%s --batch %lld --microbatches %d --schedule %s%s", text_all(&data),
           (long long)o->batch, c->microbatches, schedule, place);
    data_words(o, a);
    if (c->replicas > 1)
        printf(" --dp %d%s", c->replicas, zero_words(c, a));
    if (c->again)
        printf(" --recompute %s", again_name(c->again));
    if (c->offload)
        printf(" --offload stash%s --offload-time %s", o->device ? "" : " --offload-dir .",
               offload_time(x, c, a));
    if (o->given_threads)
        printf(" --threads %d", o->threads);
    printf(" --optimizer %s --steps 100\n", o->optimizer);
}

static bool has_convolutions(const Candidate *c)
{
    const PpPlan *p = &c->cut->program->plan;
    for (int i = 0; i < p->n_stage; i++)
        if (p->stage[i]->conv.n > 0)
            return true;
    return false;
}

/* Those that fit as they would be compiled; of the first all ranks' bytes. */
static uint32_t exact(Search *x, uint32_t *list, const int64_t **first)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_best && n < PLANS; i++) {
        Candidate *c = &x->list.at[x->best[i]];
        bool near = x->o->memory > 0 && (double)c->memory > 0.8 * (double)x->o->memory;
        const int64_t *of_rank = n == 0 || near ? candidate_exact(x, c) : NULL;
        if ((n == 0 || near) && !of_rank)
            continue;
        if (n == 0)
            *first = of_rank;
        list[n++] = x->best[i];
    }
    return n;
}

enum { REASONS = 5 };

/* What was not looked at, and why. */
static uint32_t not_looked_at(const Search *x, const char **why, Arena *a)
{
    uint32_t n = 0;
    if (x->stopped)
        why[n++] = arena_printf(a,
                                "%u of %u ways were looked at, more would take too long: "
                                "--stages, --dp or --microbatches say which",
                                x->ways.tried, x->list.n - x->ways.same);
    if (x->narrow)
        why[n++] = "not all members that divide sequences and experts were looked at, more would "
                   "take too long: --sequence, --expert and --tensor say how many";
    if (x->ways.longer)
        why[n++] = arena_printf(a,
                                "%u ways have more than %d microbatches x stages and were not "
                                "looked at: --schedule NAME looks at larger ones",
                                x->ways.longer, MOST_CELLS);
    if (x->deep)
        why[n++] = arena_printf(a, "cuts into more than %d stages were not looked at", MOST_STAGES);
    if (x->alone)
        why[n++] = arena_printf(a, "several microbatches or replicas are not offered, a run "
                                   "refuses them: what several yield does not follow from "
                                   "theirs: %s",
                                x->alone);
    return n;
}

void plans_none(const Search *x)
{
    const PlanOptions *o = x->o;
    const char *why[REASONS];
    Arena *a = arena_new();
    for (uint32_t i = 0, k = not_looked_at(x, why, a); i < k; i++)
        diag_note("%s", why[i]);
    if (x->list.n == 0) {
        diag_hint("try other --stages, --rank-stages, --microbatches, --microbatch-rows or --dp, "
                  "or a --batch that the replicas divide; if the model's shapes fix the rows of a "
                  "microbatch, use --rows");
        diag_fatal(EXIT_MODEL, WHERE_NONE,
                   "no way to train %lld rows a step on %d ranks fits these options",
                   (long long)o->batch, o->ranks);
    }
    if (o->memory == 0)
        diag_fatal(EXIT_MODEL, WHERE_NONE, "none of %u ways to train has a schedule; %s", x->list.n,
                   x->why[0] ? x->why : "none was looked at");
    const int64_t *of = x->least.parts;
    if (x->least.bytes) {
        diag_note("the smallest%s takes %lld bytes (%s): %s",
                  x->least.stopped || x->stopped ? " of those looked at" : "",
                  (long long)x->least.bytes,
                  bytes_text(a, x->least.bytes), x->least.what);
        diag_note("of them parameters %s, gradients %s, optimizer %s, activations %s, work of an "
                  "action %s", bytes_text(a, of[MEMORY_PARAMETERS]),
                  bytes_text(a, of[MEMORY_GRADIENTS]), bytes_text(a, of[MEMORY_OPTIMIZER]),
                  bytes_text(a, of[MEMORY_ACTIVATIONS]), bytes_text(a, of[MEMORY_WORK]));
    } else if (x->why[0])
        diag_note("%s", x->why);
    diag_hint(o->partition->automatic.rates.offload > 0
                  ? "use more memory or more ranks; a run with --offload params needs less"
                  : "use more memory or more ranks; with a line `offload = BYTES/S' in the machine "
                    "file, stashes can wait in a store; a run with --offload params needs less");
    diag_fatal(EXIT_MODEL, WHERE_NONE, "no plan fits into %lld bytes per rank",
               (long long)o->memory);
}

void plans_tell(Search *x)
{
    Arena *a = x->a;
    const PlanOptions *o = x->o;
    uint32_t list[PLANS], n;
    const char *why[REASONS];
    const int64_t *of_rank = NULL;
    n = exact(x, list, &of_rank);
    if (n == 0)
        plans_none(x);
    printf("%u ways to train %lld rows a step on %d ranks, %u looked at; by %s costs%s\n",
           x->list.n - x->ways.same, (long long)o->batch, o->ranks, x->ways.tried,
           o->partition->automatic.measured ? "measured"
           : o->card                        ? o->card->name
                                            : "modelled",
           o->memory ? arena_printf(a, ", %s a rank", bytes_text(a, o->memory))
                     : ", memory is not limited");
    tell_lengths(o, a);
    for (uint32_t i = 0, k = not_looked_at(x, why, a); i < k; i++)
        printf("%s\n", why[i]);
    for (uint32_t i = 0; i < o->partition->automatic.measured_clock.n; i++)
        printf("%s\n", diag_escape(a, o->partition->automatic.measured_clock.at[i]));
    table(x, list, n, a);
    const Candidate *best = &x->list.at[list[0]];
    printf("bytes of each rank in plan 1:");
    for (int r = 0; r < best->ranks; r++)
        printf(" %lld", (long long)of_rank[r]);
    if (has_convolutions(best) && o->device)
        printf(" and the scratch memory of convolutions, known when a run opens them");
    else if (has_convolutions(best))
        printf(" with the scratch of convolutions for %d thread%s each", o->threads,
               o->threads == 1 ? "" : "s");
    printf("\n\n");
    if (o->csv && sched_find(best->schedule))
        fprintf(stderr, "ppsplit: note: --csv %s: nothing is written: a run knows the first plan's "
                        "schedule, %s, by its name\n", o->csv, best->schedule);
    commands(x, best, a);
}

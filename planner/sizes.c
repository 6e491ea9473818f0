/*
 * sizes.c - the model as microbatches of some rows, members and lengths cost it.
 *
 * Seconds are those of a model that is read with so many rows.  Where lengths vary it is read with
 * some of them, too (lengths.c); a node's seconds are then its mean over the microbatches of the
 * data, its bytes those of the greatest lengths, for which memory is planned.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "search.h"

/* A node that is read, or read and compiled, is as much work as so many actions that are planned.
 */
enum { READ = 150, OPENED = 40 };

/* ---- how far it is, on a terminal ------------------------------------------------------------ */

void plan_show(const char *format, ...)
{
    static int terminal = -1;
    va_list list;
    if (terminal < 0)
        terminal = isatty(STDERR_FILENO);
    if (!terminal)
        return;
    va_start(list, format);
    fputs("\r", stderr);
    vfprintf(stderr, format, list);
    fputs("\033[K", stderr);
    va_end(list);
    fflush(stderr);
}

int plan_members_of(const PlanMesh *m)
{
    int members = 1;
    for (int x = 0; x < MESH_AXES; x++)
        members *= m->members[x] ? m->members[x] : 1;
    return members;
}

const char *plan_among(const Search *x, const Division *d)
{
    return d->members > 1 ? arena_printf(x->a, ", %d members", d->members) : "";
}

/* ---- the model among members, and at other rows ---------------------------------------------- */

typedef struct {
    Search *x;
    Division *of;
    const PartitionOptions *partition;
    PlanSize size;
    Arena *graph; /* of what is needed no longer than costs are found */
    uint32_t knot;
    SplitSearch *found;
} Reading;

static Pipe *read_graph(Reading *r, Graph **g, Loss *loss)
{
    const PlanOptions *o = r->x->o;
    BatchNotes notes = {0};
    r->x->effort += r->of->own ? READ * (uint64_t)split_search_cuts(r->of->own)->cut.nodes : 0;
    *g = o->model.graph(o->model.of, r->size, &r->of->mesh, loss, r->graph);
    pipe_prepare(*g, r->partition, loss, &notes);
    return o->model.pipe(o->model.of, r->size, &r->of->mesh, NULL, r->graph);
}

static void read_rows(void *arg)
{
    Reading *r = arg;
    Loss loss;
    Graph *g;
    const Pipe *joint = read_graph(r, &g, &loss);
    r->found = split_search(g, loss.loss, joint, r->partition, r->x->a);
}

/* Without a word; false: it was refused. */
static bool quietly(void (*run)(void *), Reading *r)
{
    FILE *quiet = fopen("/dev/null", "w"), *before = diag_to(quiet);
    int code = diag_run(run, r);
    diag_to(before);
    if (quiet)
        fclose(quiet);
    if (code == EXIT_BUG)
        diag_raise(code);
    return code == 0;
}

bool has_rows(Search *x, Division *d, int64_t rows)
{
    for (uint32_t i = 0; i < x->never.n; i++)
        if (x->never.at[i] == rows)
            return false;
    for (uint32_t i = 0; i < x->seen.n; i++)
        if (x->seen.at[i] == rows)
            return true;
    Reading r = {.x = x,
                 .of = d,
                 .partition = x->o->partition,
                 .size = {.rows = rows},
                 .graph = arena_new()};
    bool has = quietly(read_rows, &r);
    arena_free(r.graph);
    if (has)
        vec_push(x->a, &x->seen, rows);
    else
        vec_push(x->a, &x->never, rows);
    return has;
}

/* A run's seconds are those of microbatches with the model's own rows: others are as the model of
   costs differs from there.  knot NONE: of the greatest lengths */
static void as_measured(const Division *d, const AutoSearch *s, uint32_t knot)
{
    const SplitSearch *modelled = knot == NONE ? d->modelled : d->modelled_at[knot],
                      *own = knot == NONE ? d->own : d->own_at[knot];
    if (modelled)
        auto_scaled(s->model, split_search_cuts(modelled)->model, split_search_cuts(own)->model);
}

/* The values' bytes of so many times the rows. */
static void scale_bytes(const AutoSearch *s, double times)
{
    for (uint32_t i = 0; i < s->model->cut.value.n; i++) {
        CutValue *v = &s->model->cut.value.at[i];
        v->bytes = (int64_t)((double)v->bytes * times);
        v->back = (int64_t)((double)v->back * times);
        v->kept = (int64_t)((double)v->kept * times);
    }
}

/* NULL: it cannot be read so, or there is no time. */
static const AutoSearch *read_size(Search *x, Division *d, PlanSize size, uint32_t knot)
{
    Reading r = {.x = x, .of = d, .partition = d->unmeasured, .size = size};
    if (x->effort > EFFORT) {
        x->stopped = true;
        return NULL;
    }
    r.graph = arena_new();
    bool read = quietly(read_rows, &r);
    arena_free(r.graph);
    const AutoSearch *cuts = read ? split_search_cuts(r.found) : NULL;
    if (!cuts || cuts->cut.nodes != split_search_cuts(d->own)->cut.nodes)
        return NULL;
    as_measured(d, cuts, knot);
    return cuts;
}

/* On a card launches say what rows cost; else the model is read with them. */
static const AutoSearch *cuts_of(Search *x, Division *d, int64_t rows)
{
    if (rows == x->own_rows)
        return split_search_cuts(d->own);
    if (!d->card)
        return read_size(x, d, (PlanSize){.rows = rows}, NONE);
    const PartitionOptions *run = launches_run(x, d, rows);
    SplitSearch *s = split_search(d->graph, d->loss.loss, d->joint, run, x->a);
    scale_bytes(split_search_cuts(s), (double)rows / (double)x->own_rows);
    return split_search_cuts(s);
}

/* With each of the lengths; false: not all. */
static bool read_knots(Search *x, Division *d, Sized *s)
{
    s->at = arena_array(x->a, const AutoSearch *, x->n_knot + 1);
    for (uint32_t k = 0; k < x->n_knot; k++) {
        PlanSize size = x->knot[k];
        size.rows = s->rows;
        s->at[k] =
            s->rows == x->own_rows ? split_search_cuts(d->own_at[k]) : read_size(x, d, size, k);
        if (!s->at[k])
            return false;
    }
    return true;
}

/* NULL: the model cannot have so many rows. */
const Sized *size_of(Search *x, Division *d, int64_t rows)
{
    for (uint32_t i = 0; i < d->size.n; i++)
        if (d->size.at[i]->rows == rows)
            return d->size.at[i]->cuts ? d->size.at[i] : NULL;
    Sized *s = arena_new_of(x->a, Sized);
    plan_show("plan: %lld rows a microbatch%s", (long long)rows, plan_among(x, d));
    s->rows = rows;
    s->cuts = cuts_of(x, d, rows);
    if (s->cuts && x->n_knot && !read_knots(x, d, s))
        s->cuts = NULL;
    if (s->cuts && x->n_knot)
        lengths_expect(x, s);
    vec_push(x->a, &d->size, s);
    return s->cuts ? s : NULL;
}

/* As a run of such lengths was measured; 0: the greatest */
static const PartitionOptions *options_at(Search *x, const Division *d, const PlanSize *size)
{
    const PlanOptions *o = x->o;
    PartitionOptions *own = arena_new_of(x->a, PartitionOptions);
    *own = *o->partition;
    if (d->members > 1)
        own->automatic.rates = rates_of_members(o, d->members);
    if (own->automatic.measured && o->ranges->symbols)
        own->automatic.measured = lengths_measured(x, size);
    return own;
}

static const PartitionOptions *without_run(Search *x, const PartitionOptions *o)
{
    PartitionOptions *plain = arena_new_of(x->a, PartitionOptions);
    *plain = *o;
    plain->automatic.measured = NULL;
    return plain;
}

/* The model as it is, and where a run was measured, as it is without. */
static void open_own(void *arg)
{
    Reading *r = arg;
    Search *x = r->x;
    Division *d = r->of;
    r->size = (PlanSize){.rows = x->own_rows};
    const PartitionOptions *given = r->partition = options_at(x, d, &r->size);
    d->joint = read_graph(r, &d->graph, &d->loss);
    if (d->card)
        given = launches_run(x, d, x->own_rows);
    d->unmeasured = without_run(x, given);
    d->own = split_search(d->graph, d->loss.loss, d->joint, given, x->a);
    if (given->automatic.measured && !d->card)
        d->modelled = split_search(d->graph, d->loss.loss, d->joint, d->unmeasured, x->a);
}

static void open_knot(void *arg)
{
    Reading *r = arg;
    Search *x = r->x;
    const uint32_t k = r->knot;
    Loss loss;
    Graph *g;
    r->size = x->knot[k];
    r->partition = options_at(x, r->of, &r->size);
    const Pipe *joint = read_graph(r, &g, &loss);
    r->of->own_at[k] = split_search(g, loss.loss, joint, r->partition, x->a);
    if (r->partition->automatic.measured)
        r->of->modelled_at[k] =
            split_search(g, loss.loss, joint, without_run(x, r->partition), x->a);
}

/* The same with other lengths.  Of a few places it may be another model, which the program is not,
   or none at all: there its seconds are those that others suggest. */
static void open_knots(void *arg)
{
    Reading *r = arg;
    Search *x = r->x;
    Division *d = r->of;
    const bool first = x->division.n == 0;
    d->own_at = arena_array(x->a, SplitSearch *, x->n_knot + 1);
    d->modelled_at = arena_array(x->a, SplitSearch *, x->n_knot + 1);
    for (uint32_t k = 0; k < x->n_knot; k++) {
        const bool may_miss = first && x->n_knot > 1;
        r->knot = k;
        const bool read = may_miss ? quietly(open_knot, r) : (open_knot(r), true);
        if (read &&
            split_search_cuts(d->own_at[k])->cut.nodes == split_search_cuts(d->own)->cut.nodes)
            continue;
        if (may_miss) {
            x->n_knot--;
            memmove(&x->knot[k], &x->knot[k + 1], (x->n_knot - k) * sizeof *x->knot);
            k--;
            continue;
        }
        diag_fatal(EXIT_MODEL, WHERE_FILE(d->graph->file),
                   "--lengths: with %s it is another model than with the greatest",
                   cg_lengths_text(x->a, x->o->ranges, x->knot[k].length));
    }
}

Division *division_open(Search *x, PlanMesh mesh)
{
    Division *d = arena_new_of(x->a, Division);
    Reading r = {.x = x, .of = d, .graph = x->a};
    d->mesh = mesh;
    d->members = plan_members_of(&mesh);
    d->card = launches_card(x, d->members);
    plan_show("plan: the model%s", plan_among(x, d));
    if (x->division.n == 0)
        open_own(&r), open_knots(&r);
    else if (!quietly(open_own, &r) || !quietly(open_knots, &r))
        return NULL;
    vec_push(x->a, &x->division, d);
    if (x->n_knot)
        size_of(x, d, x->own_rows); /* cuts are by the mean of the lengths */
    x->effort += OPENED * (uint64_t)split_search_cuts(d->own)->cut.nodes;
    return d;
}

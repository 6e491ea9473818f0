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
    Arena *graph; /* of what is needed no longer than costs are found */
    uint32_t knot;
    Reading at;
} Reader;

static void read_graph(Reader *r, Reading *at)
{
    const PlanOptions *o = r->x->o;
    const SplitSearch *own = r->of->most.own;
    BatchNotes notes = {0};
    r->x->effort += own ? READ * (uint64_t)split_search_cuts(own)->cut.nodes : 0;
    at->graph = o->model.graph(o->model.of, at->size, &r->of->mesh, &at->loss, r->graph);
    pipe_prepare(at->graph, r->partition, &at->loss, &notes);
    at->joint = o->model.pipe(o->model.of, at->size, &r->of->mesh, NULL, r->graph);
}

static SplitSearch *search_of(const Search *x, const Reading *at, const PartitionOptions *opt)
{
    return split_search(at->graph, at->loss.loss, at->joint, opt, x->a);
}

static void read_rows(void *arg)
{
    Reader *r = arg;
    read_graph(r, &r->at);
    r->at.own = search_of(r->x, &r->at, r->partition);
}

static void try_graph(void *arg)
{
    Reader *r = arg;
    read_graph(r, &r->at);
}

bool has_rows(Search *x, Division *d, int64_t rows)
{
    for (uint32_t i = 0; i < x->never.n; i++)
        if (x->never.at[i] == rows)
            return false;
    for (uint32_t i = 0; i < x->seen.n; i++)
        if (x->seen.at[i] == rows)
            return true;
    Reader r = {.x = x,
                .of = d,
                .partition = x->o->partition,
                .at.size.rows = rows,
                .graph = arena_new()};
    const bool has = !diag_quietly(try_graph, &r, NULL);
    arena_free(r.graph);
    if (has)
        vec_push(x->a, &x->seen, rows);
    else
        vec_push(x->a, &x->never, rows);
    return has;
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

/* With other rows; NULL: it cannot be read so, or there is no time.  A run's seconds are those of
   microbatches with the model's own rows: others are as the model of costs differs from there. */
static const AutoSearch *read_size(Search *x, Division *d, const Reading *at, int64_t rows)
{
    Reader r = {.x = x, .of = d, .partition = at->unmeasured, .at.size = at->size};
    if (x->effort > EFFORT) {
        x->stopped = true;
        return NULL;
    }
    r.at.size.rows = rows;
    r.graph = arena_new();
    const bool read = !diag_quietly(read_rows, &r, NULL);
    arena_free(r.graph);
    const AutoSearch *cuts = read ? split_search_cuts(r.at.own) : NULL;
    if (!cuts || cuts->cut.nodes != split_search_cuts(d->most.own)->cut.nodes)
        return NULL;
    if (at->modelled)
        auto_scaled(cuts->model, split_search_cuts(at->modelled)->model,
                    split_search_cuts(at->own)->model);
    return cuts;
}

/* On a card launches say what rows cost; else the model is read with them. */
static const AutoSearch *cuts_of(Search *x, Division *d, Reading *at, int64_t rows)
{
    if (rows == x->own_rows)
        return split_search_cuts(at->own);
    if (!d->card)
        return read_size(x, d, at, rows);
    const AutoSearch *s = split_search_cuts(search_of(x, at, launches_run(x, d, at, rows)));
    scale_bytes(s, (double)rows / (double)x->own_rows);
    return s;
}

/* With each of the lengths; false: not all. */
static bool read_knots(Search *x, Division *d, Sized *s)
{
    s->at = arena_array(x->a, const AutoSearch *, x->n_knot + 1);
    for (uint32_t k = 0; k < x->n_knot; k++) {
        s->at[k] = cuts_of(x, d, &d->knot[k], s->rows);
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
    s->cuts = cuts_of(x, d, &d->most, rows);
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
static void open_reading(Reader *r, Reading *at)
{
    Search *x = r->x;
    const PartitionOptions *given = r->partition = options_at(x, r->of, &at->size);
    const bool card = r->of->card;
    read_graph(r, at);
    if (card)
        given = launches_run(x, r->of, at, x->own_rows);
    at->unmeasured = without_run(x, given);
    at->own = search_of(x, at, given);
    if (given->automatic.measured && !card)
        at->modelled = search_of(x, at, at->unmeasured);
}

static void open_knot(void *arg)
{
    Reader *r = arg;
    Reading *at = &r->of->knot[r->knot];
    *at = (Reading){.size = r->x->knot[r->knot]};
    open_reading(r, at);
}

/* With the greatest lengths, then with others.  Of a few places it may be another model, which the
   program is not, or none at all: there its seconds are those that others suggest. */
static void open_readings(void *arg)
{
    Reader *r = arg;
    Search *x = r->x;
    Division *d = r->of;
    const bool first = x->division.n == 0;
    d->most.size.rows = x->own_rows;
    open_reading(r, &d->most);
    d->knot = arena_array(x->a, Reading, x->n_knot + 1);
    for (uint32_t k = 0; k < x->n_knot; k++) {
        const bool may_miss = first && x->n_knot > 1;
        r->knot = k;
        const bool read = may_miss ? !diag_quietly(open_knot, r, NULL) : (open_knot(r), true);
        if (read && split_search_cuts(d->knot[k].own)->cut.nodes ==
                        split_search_cuts(d->most.own)->cut.nodes)
            continue;
        if (may_miss) {
            x->n_knot--;
            memmove(&x->knot[k], &x->knot[k + 1], (x->n_knot - k) * sizeof *x->knot);
            k--;
            continue;
        }
        diag_fatal(EXIT_MODEL, WHERE_FILE(d->most.graph->file),
                   "--lengths: with %s it is another model than with the greatest",
                   cg_lengths_text(x->a, x->o->ranges, x->knot[k].length));
    }
}

Division *division_open(Search *x, PlanMesh mesh)
{
    Division *d = arena_new_of(x->a, Division);
    Reader r = {.x = x, .of = d, .graph = x->a};
    d->mesh = mesh;
    d->members = plan_members_of(&mesh);
    d->card = launches_card(x, d->members);
    plan_show("plan: the model%s", plan_among(x, d));
    if (x->division.n == 0)
        open_readings(&r);
    else if (diag_quietly(open_readings, &r, NULL))
        return NULL;
    vec_push(x->a, &x->division, d);
    if (x->n_knot)
        size_of(x, d, x->own_rows); /* cuts are by the mean of the lengths */
    x->effort += OPENED * (uint64_t)split_search_cuts(d->most.own)->cut.nodes;
    return d;
}

/*
 * lengths.c - microbatches that differ in length (--lengths).  In: the length of each row.  Out:
 * those of microbatches, as a run groups them; the lengths with which the model is read.
 *
 * Knots are the greatest lengths of the data and what halving gives, of all dimensions together
 * and, where there are several, of each alone.  Seconds of a stage are known there, and are a
 * polynomial of the lengths (schedule/simulate/fit.c).  The mean of anything over all microbatches
 * is a sum over the knots, with weights that have the microbatches' moments: a quadrature.
 */
#include <stdlib.h>
#include <string.h>

#include "search.h"

enum { ALONE = 2 };

/* ---- rows ------------------------------------------------------------------------------------ */

static void check(const SchedRows *r, const Lengths *l, Arena *a)
{
    const char *all = "";
    for (int v = 0; v < l->symbols; v++)
        all = arena_printf(a, "%s%s'%s'", all, v ? ", " : "", l->symbol[v].name);
    if (l->symbols == 0)
        diag_fatal(EXIT_USAGE, WHERE_NONE,
                   "--lengths: the model has one length: --bind NAME=LEAST..MOST plans one of any");
    for (int v = 0; v < l->symbols; v++) {
        int k = 0;
        while (k < r->n && strcmp(r->name[k], l->symbol[v].name) != 0)
            k++;
        if (k == r->n || r->n != l->symbols)
            diag_fatal(EXIT_USAGE, WHERE_NONE, "--lengths: one of each dimension that varies: %s",
                       all);
    }
}

/* In the order of the ranges, within them. */
static void sort(SchedRows *r, const Lengths *l)
{
    SchedRows was = *r;
    for (int v = 0; v < l->symbols; v++)
        for (int k = 0; k < r->n; k++)
            if (!strcmp(was.name[k], l->symbol[v].name)) {
                memcpy(r->name[v], was.name[k], sizeof r->name[v]);
                r->file[v] = was.file[k];
                r->least[v] = l->symbol[v].least;
                r->most[v] = l->symbol[v].most;
            }
}

static void add_knot(Search *x, const SchedRows *r, const int *halved)
{
    PlanSize knot = {.rows = x->own_rows};
    for (int v = 0; v < r->n; v++) {
        int64_t most = row_longest(r->length[v], NULL, 0, r->rows), n = most >> halved[v];
        knot.length[v] = n > r->least[v] ? n : r->least[v];
    }
    for (uint32_t k = 0; k < x->n_knot; k++)
        if (!memcmp(knot.length, x->knot[k].length, sizeof knot.length))
            return;
    x->knot[x->n_knot++] = knot;
}

static void find_knots(Search *x, const SchedRows *r)
{
    x->knot = arena_array(x->a, PlanSize, MOST_KNOTS);
    for (int h = 0; h < HALVINGS; h++)
        add_knot(x, r, (const int[SYMBOLS]){h, h, h});
    for (int v = 0; v < r->n && r->n > 1; v++) {
        int one[SYMBOLS] = {0}, others[SYMBOLS] = {ALONE, ALONE, ALONE};
        one[v] = ALONE;
        others[v] = 0;
        add_knot(x, r, one);
        add_knot(x, r, others);
    }
}

void lengths_open(Search *x)
{
    SchedRows *r = x->o->data;
    SchedError e;
    if (r->n == 0)
        return;
    check(r, x->o->ranges, x->a);
    sort(r, x->o->ranges);
    r->batch = x->o->batch;
    const bool read = !sched_rows_read(r, &e);
    for (int v = 0; v < r->n; v++) {
        int64_t *own = arena_array(x->a, int64_t, r->rows + 1), *was = r->length[v];
        if (was)
            memcpy(own, was, (size_t)r->rows * sizeof *own);
        free(was);
        r->length[v] = own;
    }
    if (!read)
        diag_fatal(e.status, WHERE_NONE, "%s", e.text);
    if (r->rows < r->batch)
        diag_fatal(EXIT_MODEL, WHERE_NONE,
                   "--lengths: %lld rows are less than a step's, --batch %lld", (long long)r->rows,
                   (long long)r->batch);
    find_knots(x, r);
}

/* ---- a run ----------------------------------------------------------------------------------- */

const StageTimes *lengths_measured(const Search *x, const PlanSize *size)
{
    const PlanOptions *o = x->o;
    const Lengths *l = o->ranges;
    const char *name[SYMBOLS];
    int64_t length[SYMBOLS];
    for (int v = 0; v < l->symbols; v++) {
        name[v] = l->symbol[v].name;
        length[v] = size->length[v] ? size->length[v] : l->symbol[v].most;
    }
    const StageTimes *t = auto_at_lengths(&o->partition->automatic, l->symbols, name, length, x->a);
    if (!t && x->n_knot) {
        diag_hint("give the --trace of a run with --lengths, of a program with the same --bind");
        diag_fatal(EXIT_MODEL, WHERE_NONE,
                   "--costs: the run does not say what lengths its microbatches had");
    }
    return t ? t : o->partition->automatic.measured;
}

/* ---- means ----------------------------------------------------------------------------------- */

/* Lengths beside the greatest: no power of them is above 1. */
static int moments(const Search *x, const double *length, double *to)
{
    double part[SYMBOLS];
    for (int v = 0; v < x->o->ranges->symbols; v++)
        part[v] = length[v] / (double)x->knot[0].length[v];
    return sched_terms(x->o->ranges->symbols, part, to);
}

/* By knot: weights with which their moments are those of the microbatches. */
static void weigh(const Search *x, Sized *s)
{
    const SchedLengths *l = &s->lengths;
    const size_t n = (size_t)l->steps * (size_t)l->microbatches;
    double at[MOST_KNOTS][SCHED_TERMS], mean[SCHED_TERMS] = {0}, one[SCHED_TERMS],
                                        gram[MOST_KNOTS * MOST_KNOTS] = {0},
                                        right[MOST_KNOTS] = {0};
    int m = 0;
    for (size_t k = 0; k < n; k++) {
        m = moments(x, l->length + k * (size_t)l->n, one);
        for (int i = 0; i < m; i++)
            mean[i] += one[i] / (double)n;
    }
    for (uint32_t k = 0; k < x->n_knot; k++) {
        double length[SYMBOLS];
        for (int v = 0; v < SYMBOLS; v++)
            length[v] = (double)x->knot[k].length[v];
        moments(x, length, at[k]);
    }
    for (uint32_t k = 0; k < x->n_knot; k++)
        for (int i = 0; i < m; i++) {
            right[k] += at[k][i] * mean[i];
            for (uint32_t j = 0; j < x->n_knot; j++)
                gram[k * x->n_knot + j] += at[k][i] * at[j][i];
        }
    sched_least((int)x->n_knot, gram, right, s->weight);
}

void lengths_expect(Search *x, Sized *s)
{
    const SchedRows *r = x->o->data;
    const int64_t n = r->batch / s->rows;
    SchedError e;
    if (sched_lengths(&s->lengths, r, 1, (int)(n > 0 ? n : 1), &e))
        diag_fatal(e.status, WHERE_NONE, "%s", e.text);
    const SchedLengths *l = &s->lengths;
    double *own = arena_array(x->a, double, l->steps * l->microbatches * l->n);
    memcpy(own, l->length, (size_t)l->steps * (size_t)l->microbatches * (size_t)l->n * sizeof *own);
    free(l->length);
    s->lengths.length = own;
    s->weight = arena_array(x->a, double, MOST_KNOTS);
    weigh(x, s);
    const CutGraph *g = &s->cuts->cut;
    for (uint32_t i = 0; i < g->nodes; i++) {
        CutNode *to = &g->node[i];
        *to = (CutNode){.idle = to->idle};
        for (uint32_t k = 0; k < x->n_knot; k++) {
            const CutNode *at = &s->at[k]->cut.node[i];
            const double w = s->weight[k];
            to->forward += w * at->forward;
            to->input += w * at->input;
            to->weight += w * at->weight;
            to->whole += w * at->whole;
            for (int p = 0; p < 3; p++)
                to->far[p] += w * at->far[p];
        }
    }
}

SchedFit lengths_fit(const Search *x, const double *at, int step)
{
    const int n = x->o->ranges->symbols;
    double length[MOST_KNOTS * SYMBOLS], y[MOST_KNOTS];
    for (uint32_t k = 0; k < x->n_knot; k++) {
        for (int v = 0; v < n; v++)
            length[k * (uint32_t)n + (uint32_t)v] = (double)x->knot[k].length[v];
        y[k] = at[k * (uint32_t)step];
    }
    return sched_fit(n, length, y, x->n_knot);
}

int64_t stage_stash(const CutStage *s) { return s->stash; }

int64_t stage_sent(const CutStage *s) { return s->sent; }

double lengths_part(const Search *x, const Candidate *c, uint32_t stage,
                    int64_t (*of)(const CutStage *))
{
    const int64_t most = of(&candidate_measured(x, c)->stage[stage]);
    const StageCut *knot = candidate_knots(x, c);
    double sum = 0;
    if (x->n_knot == 0 || most == 0)
        return 1;
    for (uint32_t k = 0; k < x->n_knot; k++)
        sum += c->size->weight[k] * (double)of(&knot[k].stage[stage]);
    return sum / (double)most;
}

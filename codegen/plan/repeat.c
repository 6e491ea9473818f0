/*
 * repeat.c - sequences of steps that come several times in a row with other buffers: a model's
 * blocks, their backwards.  In: a function's steps.  Out: Func.repeat, which the printers turn into
 * one function and a loop.
 *
 * Steps are compared by their signatures.  A sequence of period p that starts at i and goes on for
 * n steps is a run in which the signatures i + k and i + k + p agree: one walk over the steps for
 * each period that is frequent among the distances from a step to the next one of its kind.  Of all
 * runs the one that saves most is taken, then the best of what it leaves free.
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

enum { PERIODS = 16, LEAST_SAVED = 8, SHORTEST = 3, LEAST_TAIL = 4 };

typedef struct { uint32_t from, n, period; } Run;       /* n steps, all turns together */
typedef VEC(Run) Runs;

static uint32_t turns(const Run *r) { return r->n / r->period; }
static uint32_t saved(const Run *r) { return turns(r) < 2 ? 0 : (turns(r) - 1) * r->period; }

/* ---- runs ------------------------------------------------------------------------------------ */

static int by_count(const void *x, const void *y)
{
    const uint32_t *p = x, *q = y;
    return p[1] != q[1] ? (p[1] < q[1] ? 1 : -1) : p[0] < q[0] ? -1 : p[0] > q[0];
}

/* The most frequent distances to the next step of the same kind. */
static uint32_t periods(const Func *f, uint32_t *period)
{
    uint32_t n = f->step.n, found = 0;
    uint32_t *last = arena_array(f->a, uint32_t, f->sg->print.signatures.list.n + 1),
             (*count)[2] = arena_calloc(f->a, n + 1, sizeof *count);
    for (uint32_t i = 0; i < n; i++)
        count[i][0] = i;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *at = &last[f->step.at[i].signature];
        if (*at)
            count[i + 1 - *at][1]++;
        *at = i + 1;
    }
    qsort(count, n, sizeof *count, by_count);
    for (uint32_t i = 0; i < n && found < PERIODS && count[i][1] > 0; i++)
        if (count[i][0] >= SHORTEST)
            period[found++] = count[i][0];
    return found;
}

static void find_runs(Func *f, uint32_t p, Runs *runs)
{
    uint32_t n = f->step.n;
    for (uint32_t i = 0; i + p < n;) {
        uint32_t k = i;
        while (k + p < n && f->step.at[k].signature == f->step.at[k + p].signature)
            k++;
        Run r = {i, k - i + p, p};
        if (saved(&r) >= LEAST_SAVED)
            vec_push(f->a, runs, r);
        i = k + 1;
    }
}

/* What of a run lies outside [from, to): the part before it and the part behind it. */
static void cut(Func *f, Runs *runs, uint32_t from, uint32_t to)
{
    uint32_t kept = 0, n = runs->n;
    for (uint32_t i = 0; i < n; i++) {
        Run r = runs->at[i], before = r, behind = r;
        uint32_t end = r.from + r.n;
        if (end <= from || r.from >= to) {
            runs->at[kept++] = r;
            continue;
        }
        before.n = r.from < from ? from - r.from : 0;
        behind.from = r.from > to ? r.from : to;
        behind.n = end > behind.from ? end - behind.from : 0;
        if (saved(&before) >= LEAST_SAVED)
            runs->at[kept++] = before;
        if (saved(&behind) >= LEAST_SAVED)
            vec_push(f->a, runs, behind);
    }
    while (n < runs->n)
        runs->at[kept++] = runs->at[n++];
    runs->n = kept;
}

static bool better(const Run *x, const Run *y)
{
    if (saved(x) != saved(y))
        return saved(x) > saved(y);
    return x->period != y->period ? x->period < y->period : x->from < y->from;
}

/* ---- where a turn begins --------------------------------------------------------------------- */

/* The node of the model that a step is from; "": none. */
static const char *origin_name(const Func *f, uint32_t step)
{
    ValueId y = f->step.at[step].result;
    const Value *v = y == NONE ? NULL : val(f->g, y);
    if (!v || v->kind != V_NODE)
        return "";
    const Node *n = &f->g->node.at[v->node];
    const char *name = n->origin < f->g->origin.n ? f->g->origin.at[n->origin].name : NULL;
    return name ? name : "";
}

/* How many steps of the run's first turn are from the same place of the model as those of the
 * second, in another block. */
static uint32_t alike(const Func *f, uint32_t from, uint32_t period)
{
    uint32_t n = 0;
    for (uint32_t i = from; i < from + period; i++) {
        const char *name = origin_name(f, i);
        n += text_pattern(f->scratch, name, origin_name(f, i + period)) != name;
    }
    return n;
}

/* A run that is longer than its turns may begin a few steps later: where its turns are the model's
 * blocks, and not the end of one and most of the next. */
static uint32_t begin(const Func *f, const Run *r)
{
    uint32_t best = r->from, most = alike(f, r->from, r->period);
    for (uint32_t from = r->from + 1; from <= r->from + r->n % r->period; from++) {
        uint32_t n = alike(f, from, r->period);
        if (n > most) {
            best = from;
            most = n;
        }
    }
    return best;
}

/* ---- what a turn passes ---------------------------------------------------------------------- */

/* The buffer of an argument; NONE where the turn has no such step. */
static uint32_t buffer(const Func *f, const Repeat *r, uint32_t turn, uint32_t step, uint32_t arg)
{
    return repeat_has(r, turn, step)
               ? f->step.at[r->first + turn * r->length + step].arg.at[arg].buf
               : NONE;
}

/* The field that has this argument's buffer in every turn. */
static uint32_t field_of(Func *f, Repeat *r, uint32_t step, uint32_t arg)
{
    for (uint32_t i = 0; i < r->field.n; i++) {
        bool same = true;
        for (uint32_t t = 0; t < r->turns && same; t++)
            same = r->field.at[i].buf[t] == buffer(f, r, t, step, arg) || !repeat_has(r, t, step);
        if (same)
            return i;
    }
    RepeatField x = {.buf = arena_array(f->a, uint32_t, r->turns)};
    for (uint32_t t = 0; t < r->turns; t++)
        x.buf[t] = buffer(f, r, t, step, arg);
    vec_push(f->a, &r->field, x);
    return r->field.n - 1;
}

static void find_fields(Func *f, Repeat *r)
{
    for (uint32_t j = 0; j < r->length; j++) {
        const Step *s = &f->step.at[r->first + j];
        vec_push(f->a, &r->arg_of, r->arg_field.n);
        if (s->keyed)
            vec_push(f->a, &r->keyed, j);
        for (uint32_t i = 0; i < s->arg.n; i++) {
            uint32_t x = field_of(f, r, j, i);
            r->field.at[x].written |= s->arg.at[i].written;
            vec_push(f->a, &r->arg_field, x);
        }
    }
}

static int by_first(const void *x, const void *y)
{
    const Repeat *p = x, *q = y;
    return p->first < q->first ? -1 : p->first > q->first;
}

void cg_repeat(Func *f)
{
    uint32_t period[PERIODS], n;
    Runs runs = {0};
    for (uint32_t i = 0; i < f->step.n; i++)
        f->step.at[i].signature = cg_signature(f, &f->step.at[i]);
    n = periods(f, period);
    for (uint32_t i = 0; i < n; i++)
        find_runs(f, period[i], &runs);
    while (runs.n > 0) {
        Run best = runs.at[0];
        for (uint32_t i = 1; i < runs.n; i++)
            if (better(&runs.at[i], &best))
                best = runs.at[i];
        uint32_t tail = best.n % best.period;
        tail = tail >= LEAST_TAIL ? tail : 0;
        Repeat r = {.first = tail > 0 ? best.from : begin(f, &best),
                    .length = best.period,
                    .turns = turns(&best) + (tail > 0),
                    .tail = tail};
        find_fields(f, &r);
        vec_push(f->a, &f->repeat, r);
        cut(f, &runs, r.first, r.first + repeat_steps(&r));
    }
    if (f->repeat.n > 1)
        qsort(f->repeat.at, f->repeat.n, sizeof *f->repeat.at, by_first);
}

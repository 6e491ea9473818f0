/*
 * recompute_auto.c - --recompute auto: the least that makes each rank's planned step fit --memory.
 *
 * In: rows that hold computations, the generated tables.  Out: the same rows with R's.
 *
 * Of a stage so many microbatches are under way at once (its window); those whose numbers are equal
 * modulo the window never are together, so they do the same: of a window some keep all, the others
 * recompute (Korthikanti et al. 2205.05198, appendix C).  What one does is a level: which parts of
 * the stash it computes again, or the whole forward; only levels count of which none frees more for
 * less.  A rank's items are the places in the windows of its stages, and which level each gets is a
 * knapsack (plan/choose.h): bytes to free, at the least cost.  What levels free is told by the
 * planner alone, for tensors die at different times: where the planned step does not fit yet, more
 * is asked for; where it does, items go back to cheaper levels as long as it still does.
 */
#include "exec.h"
#include "plan/choose.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 64, ROUNDS = 16, TRIES = 16 };

typedef struct {
    int32_t parts;
    int64_t freed;
    double cost; /* operations, and one for each byte written */
} Level;

typedef struct {
    int n, window, first; /* first: its first item */
    Level level[LEVELS];
} Window;

typedef struct {
    const Run *run;
    const SchedNeeds *needs;
    SchedError *e;
    int m, stages, ranks, items;
    Window *of; /* per stage */
    ChoiceItem *item;
    Choice *choice;
    int *chosen;            /* per item: level */
    int64_t *total, *least; /* per rank: planned bytes, as chosen; the least there were */
    int64_t *need;          /* per rank: bytes to free */
    int *all;               /* per rank: nothing more can be freed */
} Auto;

/* ---- levels ---------------------------------------------------------------------------------- */

static int by_freed(const void *a, const void *b)
{
    const Level *x = a, *y = b;
    if (x->freed != y->freed)
        return x->freed > y->freed ? -1 : 1;
    return x->cost < y->cost ? -1 : x->cost > y->cost;
}

static Level some(const PpStage *st, int32_t parts)
{
    Level x = {.parts = parts};
    for (int k = 0; k < st->n_again; k++)
        if (parts >> k & 1) {
            x.freed += align_up(st->again[k].bytes);
            x.cost += (double)st->again[k].flops + (double)st->again[k].bytes;
        }
    return x;
}

/* Inputs that backward does not read have to wait for R. */
static Level whole(const PpStage *st)
{
    Level x = some(st, (1 << st->n_again) - 1);
    x.parts = SCHED_WHOLE;
    x.freed += align_up(st->bytes_stash);
    for (int o = 0; o < st->n_output; o++)
        x.freed += st->output[o].stashed ? align_up(st->output[o].t.bytes) : 0;
    for (int i = 0; i < st->n_input; i++)
        x.freed -= st->input[i].from >= 0 && !st->input[i].stashed ? align_up(st->input[i].t.bytes)
                                                                   : 0;
    x.cost = (double)st->flops_forward + (double)x.freed;
    return x;
}

/* Nothing first, then those of which none frees as much for less. */
static void find_levels(const PpStage *st, Window *w)
{
    Level all[(1 << PP_AGAIN) + 1];
    int n = 0, kept = 0, subsets = 1 << st->n_again;
    int backward = st->has_backward && !st->minibatch;
    for (int32_t p = 1; backward && p < subsets; p++)
        all[n++] = some(st, p);
    if (backward)
        all[n++] = whole(st);
    qsort(all, (size_t)n, sizeof *all, by_freed);
    for (int i = 0; i < n; i++)
        if (all[i].freed > 0 && (kept == 0 || all[i].cost < all[kept - 1].cost))
            all[kept++] = all[i];
    w->level[w->n++] = (Level){0};
    int step = (kept + LEVELS - 2) / (LEVELS - 1);
    for (int i = 0; i < kept; i += step > 0 ? step : 1)
        w->level[w->n++] = all[i];
}

static PpStatus find_items(Auto *x)
{
    const PpPlan *p = x->run->model;
    for (int s = 0; s < x->stages; s++) {
        Window *w = &x->of[s];
        w->window = sched_live(x->run->sched, s);
        w->window = w->window < 1 ? 1 : w->window > x->m ? x->m : w->window;
        w->first = x->items;
        x->items += w->window;
        find_levels(p->stage[s], w);
    }
    x->item = zeroed(x->items, sizeof *x->item);
    x->choice = zeroed((int64_t)x->items * LEVELS, sizeof *x->choice);
    x->chosen = zeroed(x->items, sizeof *x->chosen);
    if (!x->item || !x->choice || !x->chosen)
        return pp_no_memory();
    for (int s = 0; s < x->stages; s++)
        for (int j = 0; j < x->of[s].window; j++) {
            const Window *w = &x->of[s];
            Choice *c = x->choice + (ptrdiff_t)(w->first + j) * LEVELS;
            int times = (x->m - j + w->window - 1) / w->window;
            for (int k = 0; k < w->n; k++)
                c[k] = (Choice){w->level[k].freed, w->level[k].cost * times};
            x->item[w->first + j] = (ChoiceItem){w->n, c};
        }
    return PP_OK;
}

/* ---- what a choice takes --------------------------------------------------------------------- */

static int insert(const Auto *x, Schedule *s)
{
    int32_t *parts = calloc((size_t)x->stages * (size_t)x->m + 1, sizeof *parts);
    if (!parts)
        return x->e->status = SCHED_ERESOURCE;
    for (int k = 0; k < x->stages; k++)
        for (int m = 0; m < x->m; m++) {
            const Window *w = &x->of[k];
            parts[k * x->m + m] = w->level[x->chosen[w->first + m % w->window]].parts;
        }
    int no = sched_recompute(s, parts, x->e);
    free(parts);
    return no;
}

/* Of one rank; -1: of all. */
static PpStatus measure(Auto *x, int rank)
{
    Schedule *s = sched_clone(x->run->sched);
    PpStatus status = s ? PP_OK : pp_no_memory();
    if (s && (insert(x, s) || sched_lower_for(s, x->needs, x->e)))
        status = PP_ERR_MODEL;
    for (int r = 0; r < x->ranks && status == PP_OK; r++) {
        int moved;
        if (rank >= 0 && r != rank)
            continue;
        status = schedule_bytes(x->run, s, r, &x->total[r], &moved);
        if (x->total[r] < x->least[r])
            x->least[r] = x->total[r];
    }
    sched_free(s);
    return status;
}

static int fits(const Auto *x, int rank) { return x->total[rank] <= x->run->opt->memory; }

/* ---- the search ------------------------------------------------------------------------------ */

/* The items of a rank, one behind the other: their numbers; how many. */
static int items_of(const Auto *x, int rank, int *number)
{
    int n = 0;
    for (int s = 0; s < x->stages; s++)
        for (int j = 0; x->run->sched->rank_of[s] == rank && j < x->of[s].window; j++)
            number[n++] = x->of[s].first + j;
    return n;
}

static PpStatus choose(Auto *x, int rank)
{
    int *number = zeroed(x->items, sizeof *number), *chosen = zeroed(x->items, sizeof *chosen);
    ChoiceItem *item = zeroed(x->items, sizeof *item);
    PpStatus s = number && chosen && item ? PP_OK : pp_no_memory();
    if (s == PP_OK) {
        int n = items_of(x, rank, number), enough = 0;
        for (int i = 0; i < n; i++)
            item[i] = x->item[number[i]];
        s = choose_least(item, n, x->need[rank], chosen, &enough);
        x->all[rank] = !enough;
        for (int i = 0; i < n && s == PP_OK; i++)
            x->chosen[number[i]] = chosen[i];
    }
    free(number), free(chosen), free(item);
    return s;
}

/* Every item of a rank at the level that computes the whole forward again, or all parts; else none
 * of it: where there is no such level it keeps what it has. */
static void set_all(Auto *x, int rank, int as_whole)
{
    for (int s = 0; s < x->stages; s++)
        for (int k = 0; x->run->sched->rank_of[s] == rank && k < x->of[s].n; k++) {
            const Window *w = &x->of[s];
            int is_whole = w->level[k].parts == SCHED_WHOLE,
                wanted = as_whole ? is_whole : k > 0 && !is_whole;
            for (int j = 0; wanted && j < w->window; j++)
                if (x->chosen[w->first + j] == 0 || as_whole ||
                    w->level[k].freed > w->level[x->chosen[w->first + j]].freed ||
                    w->level[x->chosen[w->first + j]].parts == SCHED_WHOLE)
                    x->chosen[w->first + j] = k;
        }
}

/* The ends of the range, where the knapsack's sum did not lead there. */
static PpStatus extremes(Auto *x, int rank)
{
    for (int as_whole = 0; as_whole < 2 && !fits(x, rank); as_whole++) {
        set_all(x, rank, as_whole);
        TRY(measure(x, rank));
    }
    return PP_OK;
}

static PpStatus refuse(const Auto *x)
{
    int worst = -1;
    for (int r = 0; r < x->ranks; r++)
        if (!fits(x, r) && (worst < 0 || x->least[r] > x->least[worst]))
            worst = r;
    return pp_fail(PP_ERR_MODEL,
                   "--memory %" PRId64 ": rank %d takes %" PRId64
                   " bytes when all that can be is computed again: --memory %" PRId64
                   " is the least that would do; fewer rows a microbatch or more ranks take less",
                   x->run->opt->memory, worst, x->least[worst], x->least[worst]);
}

static PpStatus search(Auto *x)
{
    for (int round = 0; round < ROUNDS; round++) {
        int open = 0;
        TRY(measure(x, -1));
        for (int r = 0; r < x->ranks; r++) {
            if (fits(x, r) || x->all[r])
                continue;
            open = 1;
            x->need[r] += x->total[r] - x->run->opt->memory;
            TRY(choose(x, r));
        }
        if (!open)
            break;
    }
    for (int r = 0; r < x->ranks; r++)
        TRY(extremes(x, r));
    TRY(measure(x, -1));
    for (int r = 0; r < x->ranks; r++)
        if (!fits(x, r))
            return refuse(x);
    return PP_OK;
}

/* Items back to cheaper levels, the dearest first, as long as the rank still fits. */
static PpStatus go_back(Auto *x, int rank, int *number)
{
    int n = items_of(x, rank, number);
    for (int tries = 0; tries < TRIES && n > 0; tries++) {
        int at = 0;
        for (int i = 1; i < n; i++)
            if (x->item[number[i]].choice[x->chosen[number[i]]].cost >
                x->item[number[at]].choice[x->chosen[number[at]]].cost)
                at = i;
        int item = number[at], had = x->chosen[item], best = 0;
        const ChoiceItem *it = &x->item[item];
        for (int k = 0; k < it->n; k++) /* the next cheaper level */
            if (it->choice[k].cost < it->choice[had].cost &&
                it->choice[k].cost > it->choice[best].cost)
                best = k;
        number[at] = number[--n];
        if (had == 0)
            continue;
        for (int down = 0; down < 2; down++) {
            x->chosen[item] = down ? best : 0;
            TRY(measure(x, rank));
            if (fits(x, rank) || best == 0)
                break;
        }
        if (!fits(x, rank))
            x->chosen[item] = had;
    }
    return PP_OK;
}

static PpStatus open(Auto *x)
{
    x->of = zeroed(x->stages, sizeof *x->of);
    x->total = zeroed(x->ranks, sizeof *x->total);
    x->least = zeroed(x->ranks, sizeof *x->least);
    x->need = zeroed(x->ranks, sizeof *x->need);
    x->all = zeroed(x->ranks, sizeof *x->all);
    if (!x->of || !x->total || !x->least || !x->need || !x->all)
        return pp_no_memory();
    for (int r = 0; r < x->ranks; r++)
        x->least[r] = INT64_MAX;
    return find_items(x);
}

PpStatus recompute_choose(Run *run, const SchedNeeds *needs, SchedError *e)
{
    Auto x = {.run = run,
              .needs = needs,
              .e = e,
              .m = run->data.microbatches,
              .stages = run->model->n_stage,
              .ranks = run->sched->ranks};
    e->text[0] = 0;
    PpStatus s = open(&x);
    int *number = s == PP_OK ? zeroed(x.items, sizeof *number) : NULL;
    if (s == PP_OK)
        s = number ? search(&x) : pp_no_memory();
    for (int r = 0; r < x.ranks && s == PP_OK; r++)
        s = go_back(&x, r, number);
    if (s == PP_OK && insert(&x, run->sched))
        s = PP_ERR_MODEL;
    free(number);
    free(x.of), free(x.item), free(x.choice), free(x.chosen);
    free(x.total), free(x.least), free(x.need), free(x.all);
    return s;
}

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
 * knapsack (plan/choose.h): bytes to free, at the least cost.  While a backward runs its own stash
 * is whole, so what levels free counts but for that of one item, and the one that frees most counts
 * least: for each bound on what one item frees, all have to free as much more.  What is free in the
 * end is told by the planner alone, for tensors die at different times: where the planned step does
 * not fit yet, more is asked for; all items at one level are tried beside that; then items go back
 * to cheaper levels as long as it still does, and those that need not recompute at all are left
 * out.
 */
#include "exec.h"
#include "plan/choose.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 64, BOUNDS = 16, ROUNDS = 16, TRIES = 32 };

typedef struct {
    int32_t parts;
    int64_t freed;
    double cost; /* operations, and one for each byte written */
} Level;

typedef struct {
    int n, window, first; /* first: its first item */
    Level level[LEVELS]; /* each frees more than the one before it, and costs more */
} Window;

typedef struct {
    Pool *pool;
    const Run *run;
    const SchedNeeds *needs;
    SchedError *e;
    int m, stages, ranks, items;
    Window *of; /* per stage */
    ChoiceItem *item;
    Choice *choice;
    int *chosen;            /* per item: level */
    int64_t *total, *least; /* per rank: planned bytes, as chosen; the least there were */
    int64_t *need, *over;   /* per rank: bytes to free; what is too much where nothing is freed */
    int *all;               /* per rank: nothing more can be freed */
    int exact;              /* tensors are placed where they do not fit in any way, too */
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
    x.freed += align_up(st->bytes.stash);
    for (int o = 0; o < st->n_output; o++)
        x.freed += st->output[o].stashed ? align_up(st->output[o].t.bytes) : 0;
    for (int i = 0; i < st->n_input; i++)
        x.freed -= st->input[i].from >= 0 && !st->input[i].stashed ? align_up(st->input[i].t.bytes)
                                                                   : 0;
    x.cost = (double)st->flops.forward + (double)x.freed;
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
    int step = (kept + LEVELS - 2) / (LEVELS - 1);
    w->level[w->n++] = (Level){0};
    for (int i = kept > 0 ? (kept - 1) / step * step : -1; i >= 0; i -= step)
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
    TRY(pp_take(x->pool, &x->item, x->items, sizeof *x->item));
    TRY(pp_take(x->pool, &x->choice, (int64_t)x->items * LEVELS, sizeof *x->choice));
    TRY(pp_take(x->pool, &x->chosen, x->items, sizeof *x->chosen));
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
    POOL(room);
    int32_t *parts = pool_take(&room, (int64_t)x->stages * x->m, sizeof *parts);
    if (!parts)
        return x->e->status = SCHED_ERESOURCE;
    for (int k = 0; k < x->stages; k++)
        for (int m = 0; m < x->m; m++) {
            const Window *w = &x->of[k];
            parts[k * x->m + m] = w->level[x->chosen[w->first + m % w->window]].parts;
        }
    return sched_recompute(s, parts, x->e);
}

static int fits(const Auto *x, int rank) { return x->total[rank] <= x->run->opt->memory.limit; }

/* A rank's bytes; those that do not fit wherever tensors lie are not placed. */
static PpStatus rank_bytes(Auto *x, const Schedule *s, int r)
{
    int moved;
    TRY(schedule_bytes(x->run, s, r, 0, &x->total[r], &moved));
    if (!fits(x, r) && !x->exact)
        return PP_OK;
    TRY(schedule_bytes(x->run, s, r, 1, &x->total[r], &moved));
    x->least[r] = x->total[r] < x->least[r] ? x->total[r] : x->least[r];
    return PP_OK;
}

/* Of one rank; -1: of all. */
static PpStatus measure(Auto *x, int rank)
{
    Schedule *s = sched_clone(x->run->sched);
    PpStatus status = s ? PP_OK : pp_no_memory();
    if (s && (insert(x, s) || sched_lower_for(s, x->needs, x->e)))
        status = PP_ERR_MODEL;
    for (int r = 0; r < x->ranks && status == PP_OK; r++)
        if (rank < 0 || r == rank)
            status = rank_bytes(x, s, r);
    sched_free(s);
    return status;
}

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

static int64_t most_of(const ChoiceItem *it) { return it->choice[it->n - 1].freed; }

/* The cheapest choice of which no item frees more than `bound`, and all what is needed beside the
   one that frees most.  room: for as many items. */
static PpStatus choose_within(const ChoiceItem *item, int n, int64_t need, int64_t bound,
                              ChoiceItem *room, int *chosen, double *cost)
{
    int64_t one = 0;
    for (int i = 0; i < n; i++) {
        room[i] = item[i];
        while (most_of(&room[i]) > bound)
            room[i].n--;
        one = most_of(&room[i]) > one ? most_of(&room[i]) : one;
    }
    return choose_least(room, n, need + one, chosen, cost);
}

/* The cheapest within any bound; where none does, what frees enough in all. */
static PpStatus choose_beside(const ChoiceItem *item, int n, int64_t need, int *best, double *least)
{
    int64_t most = 0;
    double cost;
    ChoiceItem *within;
    int *chosen;
    POOL(room);
    TRY(pp_take(&room, &within, n, sizeof *within));
    TRY(pp_take(&room, &chosen, n, sizeof *chosen));
    for (int i = 0; i < n; i++)
        most = most_of(&item[i]) > most ? most_of(&item[i]) : most;
    *least = HUGE_VAL;
    for (int b = 1; b <= BOUNDS; b++) {
        TRY(choose_within(item, n, need, most * b / BOUNDS, within, chosen, &cost));
        if (cost < *least)
            memcpy(best, chosen, (size_t)n * sizeof *best);
        *least = cost < *least ? cost : *least;
    }
    return *least < HUGE_VAL ? PP_OK : choose_least(item, n, need, best, least);
}

/* all: in the belief that all items free together what they free */
static PpStatus choose(Auto *x, int rank, int all)
{
    int *number, *best;
    double cost = HUGE_VAL;
    ChoiceItem *item;
    POOL(room);
    TRY(pp_take(&room, &number, x->items, sizeof *number));
    TRY(pp_take(&room, &best, x->items, sizeof *best));
    TRY(pp_take(&room, &item, x->items, sizeof *item));
    const int n = items_of(x, rank, number);
    for (int i = 0; i < n; i++)
        item[i] = x->item[number[i]];
    TRY((all ? choose_least : choose_beside)(item, n, x->need[rank], best, &cost));
    x->all[rank] = cost == HUGE_VAL;
    for (int i = 0; i < n; i++)
        x->chosen[number[i]] = best[i];
    return PP_OK;
}

static double rank_cost(const Auto *x, const int *number, int n)
{
    double cost = 0;
    for (int i = 0; i < n; i++)
        cost += x->item[number[i]].choice[x->chosen[number[i]]].cost;
    return cost;
}

static void set_level(Auto *x, const int *number, int n, int level)
{
    for (int i = 0; i < n; i++)
        x->chosen[number[i]] = level < x->item[number[i]].n ? level : x->item[number[i]].n - 1;
}

/* Wherever tensors lie; *fit: the first level with which the rank fits. */
static PpStatus try_all(Auto *x, int rank, const int *number, int n, int levels, int *fit)
{
    x->exact = 1;
    for (int at = 0; at < levels && *fit == levels; at++) {
        set_level(x, number, n, at);
        TRY(measure(x, rank));
        *fit = fits(x, rank) ? at : levels;
    }
    x->exact = 0;
    return PP_OK;
}

/* All items at one level, the first with which the rank fits, where that is cheaper than what is
   chosen or that does not fit. */
static PpStatus all_alike(Auto *x, int rank, int *number, int *chosen)
{
    int n = items_of(x, rank, number), levels = 0, no = -1, fit, had = fits(x, rank);
    const double cost = rank_cost(x, number, n);
    memcpy(chosen, x->chosen, (size_t)x->items * sizeof *chosen);
    for (int i = 0; i < n; i++)
        levels = x->item[number[i]].n > levels ? x->item[number[i]].n : levels;
    for (fit = levels; fit - no > 1;) {
        int at = no + (fit - no) / 2;
        set_level(x, number, n, at);
        TRY(measure(x, rank));
        *(fits(x, rank) ? &fit : &no) = at;
    }
    if (fit == levels && !had)
        TRY(try_all(x, rank, number, n, levels, &fit));
    set_level(x, number, n, fit);
    if (fit == levels || (had && rank_cost(x, number, n) >= cost))
        memcpy(x->chosen, chosen, (size_t)x->items * sizeof *chosen);
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
                   x->run->opt->memory.limit, worst, x->least[worst], x->least[worst]);
}

static PpStatus search(Auto *x, int *number, int *chosen)
{
    for (int round = 0; round < ROUNDS; round++) {
        int open = 0;
        TRY(measure(x, -1));
        for (int r = 0; r < x->ranks; r++) {
            if (fits(x, r) || x->all[r])
                continue;
            open = 1;
            x->need[r] += x->total[r] - x->run->opt->memory.limit;
            x->over[r] = round == 0 ? x->need[r] : x->over[r];
            TRY(choose(x, r, 0));
        }
        if (!open)
            break;
    }
    for (int r = 0; r < x->ranks; r++)
        TRY(all_alike(x, r, number, chosen));
    TRY(measure(x, -1));
    for (int r = 0; r < x->ranks; r++)
        if (!fits(x, r))
            return refuse(x);
    return PP_OK;
}

/* The cheapest level of an item with which the rank still fits, of those below its own: they are
   looked at from both ends. */
static PpStatus lower(Auto *x, int rank, int item, int *tries)
{
    int fit = x->chosen[item], no = -1;
    while (fit - no > 1 && *tries > 0) {
        int at = no < 0 ? 0 : no + (fit - no) / 2;
        x->chosen[item] = at;
        --*tries;
        TRY(measure(x, rank));
        if (fits(x, rank))
            fit = at;
        else
            no = at;
    }
    x->chosen[item] = fit;
    return PP_OK;
}

/* Items back to cheaper levels, the dearest first. */
static PpStatus go_back(Auto *x, int rank, int *number)
{
    int n = items_of(x, rank, number), tries = TRIES;
    while (n > 0 && tries > 0) {
        int at = 0;
        for (int i = 1; i < n; i++)
            if (x->item[number[i]].choice[x->chosen[number[i]]].cost >
                x->item[number[at]].choice[x->chosen[number[at]]].cost)
                at = i;
        int item = number[at];
        number[at] = number[--n];
        if (x->chosen[item] > 0)
            TRY(lower(x, rank, item, &tries));
    }
    return PP_OK;
}

/* The rank's choice with an item that recomputes nothing, in *tries rounds; 1: it fits for less. */
static PpStatus without(Auto *x, int rank, const int *number, int n, int item, int *tries,
                        int *better)
{
    double had = rank_cost(x, number, n);
    x->need[rank] = x->over[rank];
    x->item[item].n = 1;
    for (*better = 0; !*better && *tries > 0; --*tries) {
        TRY(choose(x, rank, 1));
        if (x->all[rank] || rank_cost(x, number, n) >= had)
            break;
        TRY(measure(x, rank));
        *better = fits(x, rank);
        x->need[rank] += x->total[rank] - x->run->opt->memory.limit;
    }
    return PP_OK;
}

/* Items that need not recompute at all when the others free a little more: where a window is as
   long as the step has microbatches, the first backward's. */
static PpStatus leave_out(Auto *x, int rank, int *number, int *chosen)
{
    int n = items_of(x, rank, number), tries = TRIES, better;
    size_t bytes = (size_t)x->items * sizeof *x->chosen;
    for (int i = 0; i < n; i++) {
        int item = number[i], levels = x->item[item].n;
        if (x->chosen[item] == 0)
            continue;
        memcpy(chosen, x->chosen, bytes);
        TRY(without(x, rank, number, n, item, &tries, &better));
        if (!better) {
            memcpy(x->chosen, chosen, bytes);
            x->item[item].n = levels;
        }
    }
    return PP_OK;
}

/* Less on one rank, unless a rank beside it no longer fits: what waits there depends on both.
   room: for three numbers an item. */
static PpStatus lessen(Auto *x, int rank, int *room)
{
    size_t bytes = (size_t)x->items * sizeof *x->chosen;
    int *number = room, *chosen = room + x->items, *before = chosen + x->items;
    memcpy(before, x->chosen, bytes);
    TRY(go_back(x, rank, number));
    TRY(leave_out(x, rank, number, chosen));
    TRY(measure(x, -1));
    for (int r = 0; r < x->ranks; r++)
        if (!fits(x, r))
            memcpy(x->chosen, before, bytes);
    return PP_OK;
}

static PpStatus open(Auto *x)
{
    TRY(pp_take(x->pool, &x->of, x->stages, sizeof *x->of));
    TRY(pp_take(x->pool, &x->total, x->ranks, sizeof *x->total));
    TRY(pp_take(x->pool, &x->least, x->ranks, sizeof *x->least));
    TRY(pp_take(x->pool, &x->need, x->ranks, sizeof *x->need));
    TRY(pp_take(x->pool, &x->over, x->ranks, sizeof *x->over));
    TRY(pp_take(x->pool, &x->all, x->ranks, sizeof *x->all));
    for (int r = 0; r < x->ranks; r++)
        x->least[r] = INT64_MAX;
    return find_items(x);
}

PpStatus recompute_choose(Run *run, const SchedNeeds *needs, SchedError *e)
{
    int *room;
    POOL(pool);
    Auto x = {.pool = &pool,
              .run = run,
              .needs = needs,
              .e = e,
              .m = run->data.microbatches,
              .stages = run->model->n_stage,
              .ranks = run->sched->ranks};
    e->text[0] = 0;
    TRY(open(&x));
    TRY(pp_take(&pool, &room, 3 * (int64_t)x.items, sizeof *room));
    TRY(search(&x, room, room + x.items));
    for (int r = 0; r < x.ranks; r++)
        TRY(lessen(&x, r, room));
    return insert(&x, run->sched) ? PP_ERR_MODEL : PP_OK;
}

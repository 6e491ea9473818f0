/*
 * offload.c - which stashes leave the device between F and backward.  In: the generated tables; a
 * schedule of computations; --offload-time, --memory.  Out: the verified rows, with their copies.
 *
 * The pass (schedule/pass/offload.c) wants times.  Those of computations go by their operations, if
 * the tables have them, those of copies by their bytes; --offload-time says what all copies one way
 * take beside all forwards.  Under --memory each rank moves the fewest that let its planned step
 * fit.
 */
#include "plan.h"

#include <inttypes.h>
#include <string.h>

typedef struct {
    double *time;         /* [stage][SA_TYPES] */
    unsigned char *stays; /* per stage */
    int *most;            /* per rank */
    SchedOffload how;
} Wish;

static void stage_times(const OffloadRequest *x, const Wish *w)
{
    const PpPlan *p = x->model;
    double flops = 0, bytes = 0;
    int known = 1;
    for (int s = 0; s < p->n_stage; s++) {
        known &= p->stage[s]->flops.forward > 0;
        flops += (double)p->stage[s]->flops.forward;
        bytes += (double)plan_stored_bytes(p->stage[s], 0);
    }
    for (int s = 0; s < p->n_stage; s++) {
        const PpStage *st = p->stage[s];
        double *t = w->time + (ptrdiff_t)s * SA_TYPES;
        t[SA_F] = t[SA_R] = known ? (double)st->flops.forward : 1;
        t[SA_I] = known ? (double)st->flops.input : 1;
        t[SA_W] = known ? (double)st->flops.weight : 1;
        t[SA_B] = t[SA_I] + t[SA_W];
        t[SA_OFFLOAD] = t[SA_FETCH] = (double)plan_stored_bytes(st, 0) / (bytes > 0 ? bytes : 1) *
                                      (known ? flops : p->n_stage) * x->time;
        w->stays[s] = plan_stored_bytes(st, 0) == 0;
    }
}

static PpStatus wish_open(const OffloadRequest *x, Pool *pool, Wish *w)
{
    int stages = x->model->n_stage;
    TRY(pp_take(pool, &w->time, (int64_t)stages * SA_TYPES, sizeof *w->time));
    TRY(pp_take(pool, &w->stays, stages, 1));
    TRY(pp_take(pool, &w->most, x->schedule->ranks, sizeof *w->most));
    stage_times(x, w);
    w->how = (SchedOffload){.stage_time = w->time,
                            .edge = x->needs->edge,
                            .n_edge = x->needs->n_edge,
                            .stays = w->stays,
                            .most = w->most};
    for (int r = 0; r < x->schedule->ranks; r++)
        w->most[r] = INT32_MAX;
    return PP_OK;
}

/* The rows with at most so many stashes of each rank on the host; e: why not. */
static int lower(const OffloadRequest *x, const Wish *w, Schedule **out, SchedError *e)
{
    SchedNeeds with = *x->needs;
    with.offload = &w->how;
    Schedule *s = *out = sched_clone(x->schedule);
    if (!s)
        return e->status = SCHED_ERESOURCE;
    return sched_lower_for(s, &with, e);
}

/* ---- --memory ---- */

/* Halves, for all ranks together, the range in which the fewest lies: low does not fit, high does.
 */
static PpStatus fewest(const OffloadRequest *x, Wish *w, int *low, int *high, SchedError *e)
{
    int ranks = x->schedule->ranks;
    for (int open = 1; open;) {
        Schedule *s = NULL;
        open = 0;
        for (int r = 0; r < ranks; r++) {
            w->most[r] = high[r] - low[r] > 1 ? low[r] + (high[r] - low[r]) / 2 : high[r];
            open |= high[r] - low[r] > 1;
        }
        if (!open)
            break;
        PpStatus status = lower(x, w, &s, e) ? PP_ERR_MODEL : PP_OK;
        for (int r = 0; r < ranks && status == PP_OK; r++) {
            int64_t bytes;
            int moved;
            if (high[r] - low[r] <= 1)
                continue;
            status = x->bytes(x->of, s, r, &bytes, &moved);
            *(bytes <= x->memory ? &high[r] : &low[r]) = w->most[r];
        }
        sched_free(s);
        TRY(status);
    }
    return PP_OK;
}

/* All that fit the schedule's times must do; none may do already. */
static PpStatus bounds(const OffloadRequest *x, Wish *w, int *low, int *high, SchedError *e)
{
    for (int all = 0; all < 2; all++) {
        Schedule *s = NULL;
        for (int r = 0; r < x->schedule->ranks; r++)
            w->most[r] = all ? INT32_MAX : 0;
        PpStatus status = lower(x, w, &s, e) ? PP_ERR_MODEL : PP_OK;
        for (int r = 0; r < x->schedule->ranks && status == PP_OK; r++) {
            int64_t bytes;
            int moved;
            status = x->bytes(x->of, s, r, &bytes, &moved);
            int fits = bytes <= x->memory;
            if (!all) {
                low[r] = fits ? -1 : 0;
            } else {
                high[r] = low[r] < 0 ? 0 : moved;
                if (status == PP_OK && !fits && low[r] == 0)
                    status = pp_fail(PP_ERR_MODEL,
                                     "--memory %" PRId64 ": rank %d needs %" PRId64
                                     " bytes with the %d stashes on the host for which there is "
                                     "time (--offload-time %g)",
                                     x->memory, r, bytes, moved, x->time);
            }
        }
        sched_free(s);
        TRY(status);
    }
    return PP_OK;
}

static PpStatus within_memory(const OffloadRequest *x, Wish *w, SchedError *e)
{
    int ranks = x->schedule->ranks, *low, *high;
    POOL(pool);
    TRY(pp_take(&pool, &low, ranks, sizeof *low));
    TRY(pp_take(&pool, &high, ranks, sizeof *high));
    TRY(bounds(x, w, low, high, e));
    return fewest(x, w, low, high, e);
}

PpStatus plan_offload(const OffloadRequest *x, Schedule **out, SchedError *e)
{
    Wish w = {0};
    POOL(pool);
    *out = NULL;
    e->text[0] = 0;
    TRY(wish_open(x, &pool, &w));
    if (x->memory)
        TRY(within_memory(x, &w, e));
    if (!lower(x, &w, out, e))
        return PP_OK;
    sched_free(*out);
    *out = NULL;
    return PP_ERR_MODEL;
}

/*
 * watchdog.c - in: what each process does, and what it hears of the others in datagrams; out:
 * nothing, or the end of a job that does not move on, with the rank and action that it hangs in.
 *
 * A datagram may get lost: the next one says all again.  Times are ages, so that clocks need not
 * agree.
 */
#include "watchdog.h"

#include "beats.h"
#include "base/file/replace.h"
#include "core/core.h"
#include "net/mesh.h"
#include "schedule/simulate/trace.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RING = 256, MEDIAN = 31, PERIOD_MS = 250, MEDIAN_STEPS = 20, ENDED = -1 };
/* rank 1 ends the job for rank 0 so many seconds after rank 0 would have ended it for another */
enum { SECOND = 2 };

typedef struct {
    int32_t op, step;
    int32_t collective, unused; /* of its stage, that it waits in; -1: none */
    double waits, runs, done;   /* ages in seconds; below 0: not yet */
} Entry;

typedef struct {
    int32_t n;              /* entries, the oldest first */
    int32_t active, first;  /* in a step, or ENDED; it may be the run's first */
    double quiet, median;   /* since an action began or ended; of the last steps */
    double saving;          /* since its checkpoint grew; below 0: it writes none */
    Entry entry[RING];
} Beat;
_Static_assert(sizeof(Beat) <= BEATS_BYTES, "a datagram is too small for a Beat");

struct Watchdog {
    WatchedRun run;
    int rank, ranks, members; /* of the run; of a rank of the schedule */
    int blind; /* it has been said that some are never heard */
    double opened;
    Beats *beats;
    pthread_t thread;
    int has_thread, ends;                /* atomic */
    /* of the rank's own thread, read by the watchdog's */
    pthread_mutex_t lock;
    Entry ring[RING]; /* times, not ages */
    int64_t n;        /* entries so far */
    int active, steps;
    int32_t step; /* that runs, or ran last */
    double moved, step_begin, last[MEDIAN];
    /* monitors: what was heard */
    Beat *beat;
    double *heard; /* when; 0: never */
};

/* ---- what the rank does ---- */

void watchdog_note(Watchdog *w, int op, WatchState state)
{
    if (!w)
        return;
    double now = pp_now();
    pthread_mutex_lock(&w->lock);
    w->moved = now;
    if (state == WATCH_WAITS)
        w->ring[w->n++ % RING] = (Entry){op, w->step, -1, 0, now, -1, -1};
    else if (w->n > 0)
        *(state == WATCH_RUNS ? &w->ring[(w->n - 1) % RING].runs
                              : &w->ring[(w->n - 1) % RING].done) = now;
    pthread_mutex_unlock(&w->lock);
}

void watchdog_collective(Watchdog *w, int k)
{
    if (!w)
        return;
    double now = pp_now();
    pthread_mutex_lock(&w->lock);
    w->moved = now;
    if (w->n > 0)
        w->ring[(w->n - 1) % RING].collective = k;
    pthread_mutex_unlock(&w->lock);
}

void watchdog_step(Watchdog *w, int64_t step)
{
    if (!w)
        return;
    double now = pp_now();
    pthread_mutex_lock(&w->lock);
    if (w->active)
        w->last[w->steps++ % MEDIAN] = now - w->step_begin;
    w->active = step >= 0;
    w->step = step >= 0 ? (int32_t)step : w->step;
    w->step_begin = w->moved = now;
    pthread_mutex_unlock(&w->lock);
}

static double median(const Watchdog *w)
{
    double last[MEDIAN];
    memcpy(last, w->last, sizeof last);
    return pp_median(last, w->steps < MEDIAN ? w->steps : MEDIAN);
}

static double age(double now, double at) { return at < 0 ? -1 : now - at; }

static size_t compose(Watchdog *w, Beat *b)
{
    double now = pp_now();
    const int64_t *saving = w->run.saving;
    int64_t moved = saving ? __atomic_load_n(saving, __ATOMIC_ACQUIRE) : 0;
    pthread_mutex_lock(&w->lock);
    *b = (Beat){.saving = moved ? now - 1e-6 * (double)moved : -1,
                .active = w->active,
                .first = w->steps == 0,
                .quiet = now - w->moved,
                .median = median(w)};
    for (int64_t i = w->n > RING ? w->n - RING : 0; i < w->n; i++) {
        const Entry *e = &w->ring[i % RING];
        b->entry[b->n++] = (Entry){e->op, e->step, e->collective, 0, age(now, e->waits),
                                   age(now, e->runs), age(now, e->done)};
    }
    pthread_mutex_unlock(&w->lock);
    return offsetof(Beat, entry) + (size_t)b->n * sizeof *b->entry;
}

/* ---- the verdict ---- */

/* The row of a rank's pipeline. */
static const SchedRow *row_of(const Watchdog *w, const Schedule *s, int rank)
{
    return &s->row[rank / w->members % w->run.schedule->ranks];
}

/* The action of an entry, of the training or of the evaluation; NULL: the end of a step. */
static const SchedAction *action_of(const Watchdog *w, int rank, int32_t op)
{
    const SchedRow *row = row_of(w, w->run.schedule, rank);
    if (op > row->n && w->run.evaluation) {
        op -= row->n + 1;
        row = row_of(w, w->run.evaluation, rank);
    }
    return op < row->n ? &row->a[op] : NULL;
}

/* Of a rank that waits in a collective the stage; NULL: it does not. */
static const PpStage *stage_meeting(const Watchdog *w, int rank)
{
    const Beat *b = &w->beat[rank];
    const Entry *e = b->n ? &b->entry[b->n - 1] : NULL;
    const SchedAction *a = e ? action_of(w, rank, e->op) : NULL;
    const PpStage *st = a && a->stage >= 0 ? plan_as_run(w->run.model->stage[a->stage]) : NULL;
    return st && e->done < 0 && e->collective >= 0 && e->collective < st->mesh.n_collective ? st
                                                                                            : NULL;
}

/* "; rank 4 (...) waits for it in the all-reduce of 'NAME' in stage 1, of ranks 4 to 5". */
static void meeting_text(const Watchdog *w, int rank, char *to, size_t n)
{
    const int first = rank / w->members * w->members;
    char text[400];
    *to = 0;
    for (int k = first; k < first + w->members && !*to; k++) {
        const PpStage *st = stage_meeting(w, k);
        int row = st ? w->beat[k].entry[w->beat[k].n - 1].collective : -1;
        if (!st || !collective_has(w->run.model, &st->mesh.collective[row], k, rank))
            continue;
        collective_text(text, sizeof text, w->run.model, st, row, rank);
        if (k == rank)
            snprintf(to, n, "; it waits in %s", text);
        else
            snprintf(to, n, "; %s waits for it in %s", pp_rank(k).text, text);
    }
}

/* Do the stage's parameters come before it, since an UNSHARD? */
static int is_unsharded(const SchedRow *row, const SchedAction *a)
{
    if (!sched_is_compute(a->type))
        return 0;
    for (const SchedAction *b = a; b-- > row->a;)
        if (b->stage == a->stage && (b->type == SA_UNSHARD || sched_is_compute(b->type)))
            return b->type == SA_UNSHARD;
    return 0;
}

static void action_text(const Watchdog *w, int rank, char *to, size_t n)
{
    const Beat *b = &w->beat[rank];
    const SchedAction *a = b->n ? action_of(w, rank, b->entry[b->n - 1].op) : NULL;
    if (!a) {
        snprintf(to, n, "%s", b->n ? "the end of the step" : "no action yet");
        return;
    }
    const Entry *e = &b->entry[b->n - 1];
    const SchedRow *row = row_of(w, w->run.schedule, rank);
    char text[80], microbatch[32] = "";
    int brought = is_unsharded(e->op > row->n ? row_of(w, w->run.evaluation, rank) : row, a);
    sched_action_text(text, sizeof text, a);
    if (a->microbatch >= 0)
        snprintf(microbatch, sizeof microbatch, ", microbatch %d", a->microbatch);
    snprintf(to, n, "%saction %s of stage %d%s, which %s",
             e->op > row->n ? "the evaluation after it, " : "", text, a->stage, microbatch,
             e->done >= 0   ? "is done"
             : e->runs >= 0 ? "has begun"
             : brought      ? "waits for a message, or for the parameters that its UNSHARD brings"
                            : "waits for a message");
}

/* All rings, in a file of the folder that the program was started in; under its name once whole,
 * as a process that is ended in the middle leaves what another one wrote. */
static void write_rings(const Watchdog *w, const char *path)
{
    char unfinished[64];
    snprintf(unfinished, sizeof unfinished, "%s.%d", path, w->rank);
    double most = 0, now = pp_now();
    FILE *f = file_new(unfinished);
    if (!f)
        return;
    for (int k = 0; k < w->ranks; k++)
        if (w->beat[k].n && w->beat[k].entry[0].waits + now - w->heard[k] > most)
            most = w->beat[k].entry[0].waits + now - w->heard[k];
    sched_trace_open(f, "the last actions of each rank", w->ranks);
    for (int k = 0; k < w->ranks; k++)
        for (int i = 0; i < w->beat[k].n; i++) {
            const Entry *e = &w->beat[k].entry[i];
            double shift = most - (now - w->heard[k]), waits = shift - e->waits,
                   runs = e->runs < 0 ? shift : shift - e->runs,
                   done = e->done < 0 ? shift : shift - e->done;
            const SchedAction *a = action_of(w, k, e->op);
            if (!a)
                continue;
            if (runs > waits)
                sched_trace_wait(f, k, a, e->step + 1, waits * 1e6, (runs - waits) * 1e6);
            if (e->runs >= 0)
                sched_trace_event(f, k, a, e->step + 1,
                                  (SchedSpan){runs * 1e6, (done - runs) * 1e6, -1, 0, NULL});
        }
    sched_trace_close(f);
    if (fclose(f) || rename(unfinished, path))
        unlink(unfinished);
}

static void end_job(const Watchdog *w, int rank, double seconds, const char *what)
{
    static const char path[] = "watchdog.json";
    char text[200], meeting[500];
    action_text(w, rank, text, sizeof text);
    meeting_text(w, rank, meeting, sizeof meeting);
    write_rings(w, path);
    fprintf(stderr,
            "pipeline: error: %s on %s %s for %.0f s: it is in step %d, %s%s; the last actions "
            "of all ranks are in %s\n",
            pp_rank(rank).text, beats_host(w->beats, rank), what, seconds,
            w->beat[rank].n ? w->beat[rank].entry[w->beat[rank].n - 1].step + 1 : 1, text, meeting,
            path);
    fflush(stderr);
    _exit(PP_ERR_IO); /* mpirun and srun end the others */
}

/* Of all that wait, the one that others wait for: it computes by itself, or has been at it for
 * longest. */
static int slowest(const Watchdog *w)
{
    int found = 0;
    double worst = -1;
    for (int k = 0; k < w->ranks; k++) {
        const Beat *b = &w->beat[k];
        const Entry *e = b->n ? &b->entry[b->n - 1] : NULL;
        const SchedAction *a = e ? action_of(w, k, e->op) : NULL;
        int computes =
            a && sched_is_compute(a->type) && e->runs >= 0 && e->done < 0 && !stage_meeting(w, k);
        double weight = b->quiet + (computes ? 1e9 : 0);
        if (weight > worst) {
            worst = weight;
            found = k;
        }
    }
    return found;
}

/* For so long a rank may be silent. */
static double patience(const Watchdog *w, const Beat *mine)
{
    double steps = MEDIAN_STEPS * mine->median;
    return steps > w->run.limit ? steps : w->run.limit;
}

/* A rank of which nothing ever came can't be judged. */
static void say_blind(Watchdog *w, int ranks)
{
    int first = -1, n = 0;
    if (w->blind || pp_now() - w->opened <= w->run.limit)
        return;
    for (int k = 0; k < ranks; k++)
        if (k != w->rank && w->heard[k] <= 0 && !n++)
            first = k;
    if (n)
        fprintf(stderr,
                "pipeline: warning: %s on %s hears nothing of %s on %s%s: a firewall may "
                "stop UDP between them; the watchdog would not notice that it hangs\n",
                pp_rank(w->rank).text, beats_host(w->beats, w->rank), pp_rank(first).text,
                beats_host(w->beats, first),
                n > 1 ? " and others" : "");
    w->blind = 1;
}

static void judge(Watchdog *w)
{
    double now = pp_now(), limit = patience(w, &w->beat[w->rank]), least = 1e30;
    int all = 1;
    for (int k = 0; k < w->ranks; k++) {
        double silent = now - w->heard[k], saving = w->beat[k].saving;
        if (w->heard[k] > 0 && w->beat[k].active != ENDED && silent > limit)
            end_job(w, k, silent, "has been silent");
        if (w->heard[k] > 0 && w->run.save_limit > 0 && saving > w->run.save_limit)
            end_job(w, k, saving, "has written no more of its checkpoint");
        all &= w->heard[k] > 0 && w->beat[k].active == 1; /* else it opens its files, or saves */
        double quiet = w->beat[k].quiet + silent;
        least = quiet < least ? quiet : least;
    }
    /* A first step may well take long: nobody knows yet how long steps are */
    if (all && least > limit * (w->beat[w->rank].first ? 10 : 1)) {
        int k = slowest(w);
        end_job(w, k, w->beat[k].quiet, "has not moved on");
    }
    say_blind(w, w->ranks);
}

static void take(void *of, int rank, const void *beat, size_t bytes)
{
    Watchdog *w = of;
    static _Thread_local Beat b;
    if (bytes < offsetof(Beat, entry) || bytes > sizeof b)
        return;
    memcpy(&b, beat, bytes);
    if (b.n < 0 || b.n > RING || bytes != offsetof(Beat, entry) + (size_t)b.n * sizeof *b.entry)
        return;
    memcpy(&w->beat[rank], &b, bytes);
    w->heard[rank] = pp_now();
}

/* Time in which beats may have been lost is no silence. */
static void not_counted(Watchdog *w, double seconds)
{
    for (int k = 0; k < w->ranks && w->beat; k++)
        if (w->heard[k] > 0)
            w->heard[k] += seconds;
}

/* This process was stopped and goes on, maybe with the whole job: nobody, itself included, could
 * move in between, so ages begin where they were.  If it alone was stopped, the others end the
 * job. */
static void forgive(Watchdog *w, double now, double gap)
{
    if (gap <= 1)
        return;
    pthread_mutex_lock(&w->lock);
    w->moved = w->moved + gap < now ? w->moved + gap : now;
    w->step_begin = w->step_begin + gap < now ? w->step_begin + gap : now;
    pthread_mutex_unlock(&w->lock);
    not_counted(w, gap);
}

static void *thread_main(void *p)
{
    Watchdog *w = p;
    static _Thread_local Beat mine;
    double last = pp_now();
    while (!__atomic_load_n(&w->ends, __ATOMIC_ACQUIRE)) {
        double now = pp_now(), gap = now - last;
        last = now;
        forgive(w, now, gap);
        size_t bytes = compose(w, &mine);
        beats_send(w->beats, &mine, bytes);
        if (w->beat) {
            memcpy(&w->beat[w->rank], &mine, bytes);
            w->heard[w->rank] = now;
            if (beats_hear(w->beats, take, w) && gap <= 1)
                not_counted(w, gap);
            /* rank 1 looks at rank 0 only, which looks at all others */
            if (w->rank == 0)
                judge(w);
            else if (w->heard[0] > 0 && w->beat[0].active != ENDED &&
                     pp_now() - w->heard[0] > patience(w, &mine) + SECOND)
                end_job(w, 0, pp_now() - w->heard[0], "has been silent");
            else
                say_blind(w, 1);
        }
        usleep(PERIOD_MS * 1000);
    }
    size_t bytes = compose(w, &mine);
    mine.active = ENDED;
    for (int i = 0; i < 3; i++) /* one of them arrives */
        beats_send(w->beats, &mine, bytes);
    return NULL;
}

/* ---- opening ---- */

PpStatus watchdog_open(Watchdog **out, Group *g, const Group *members, const WatchedRun *run)
{
    if (!g->processes || g->ranks < 2 || run->limit <= 0)
        return PP_OK;
    Watchdog *w = *out = calloc(1, sizeof *w);
    int hears = g->rank < BEATS_HEARERS;
    if (w && hears) {
        w->beat = zeroed(g->ranks, sizeof *w->beat);
        w->heard = zeroed(g->ranks, sizeof *w->heard);
    }
    TRY(group_agree(g, w && (!hears || (w->beat && w->heard)) ? PP_OK : pp_no_memory()));
    w->run = *run;
    w->rank = g->rank;
    w->ranks = g->ranks;
    w->members = members->ranks;
    pthread_mutex_init(&w->lock, NULL);
    TRY(beats_open(&w->beats, g));
    w->opened = pp_now();
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    w->has_thread = pthread_create(&w->thread, NULL, thread_main, w) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return w->has_thread ? PP_OK : pp_fail(PP_ERR_IO, "no thread could be started for --watchdog");
}

void watchdog_close(Watchdog *w)
{
    if (!w)
        return;
    __atomic_store_n(&w->ends, 1, __ATOMIC_RELEASE);
    if (w->has_thread)
        pthread_join(w->thread, NULL);
    beats_close(w->beats);
    pthread_mutex_destroy(&w->lock);
    free(w->beat), free(w->heard), free(w);
}

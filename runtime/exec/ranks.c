/*
 * ranks.c - the ranks of a run, as threads of this process or as this process of several.  They
 * agree on everything before the first step, and one rank speaks when something is wrong.
 */
#include "device/cpu/cpu.h"
#include "exec.h"

#include "core/signals.h"

#include <pthread.h>
#include <stdlib.h>

static void report_links(Rank *r)
{
    for (int x = 0; x < AXES; x++)
        r->report.memory.host += r->links[x].pinned;
    snprintf(r->report.memory.wire, sizeof r->report.memory.wire, "%s", r->links[AXIS_PIPE].name);
}

static PpStatus prepare_and_run(Rank *r, PpStatus prepared)
{
    TRY(group_agree(&r->group, prepared));
    TRY(group_agree(&r->group, same_everywhere(r)));
    TRY(group_agree(&r->group, groups_open(r)));
    PpStatus ready = group_agree(&r->group, rank_open(r));
    destinations_release(&r->save.held);
    TRY(ready);
    TRY(group_agree(&r->group, evaluation_open(r)));
    const Run *run = r->run;
    TRY(group_agree(&r->group, log_open(&r->report.log, run->opt, &r->group, &run->data)));
    for (int x = 0; x < AXES; x++)
        if (x == AXIS_PIPE || r->along[x].ranks > 1)
            TRY(rank_links(r, r, x));
    report_links(r);
    TRY(evaluation_links(r));
    const LogConfig config = {.model = run->model,
                              .first_step = run->data.start.step,
                              .passes = data_passes(&r->data),
                              .schedule = run->sched->name,
                              .transport = r->links[AXIS_PIPE].name,
                              .mpi = r->group.processes ? mpi_version() : NULL,
                              .blas = gemm_library(),
                              .resumed_from = run->from.path};
    TRY(log_config(&r->report.log, &r->group, &config, &r->report.memory));
    log_chosen(&r->report.log, run->chosen);
    begin_said(r);
    log_resumed(&r->report.log, &run->from, run->data.start.step);
    TRY(log_memory(&r->report.log, &r->group, run->sched, run->members, &r->report.memory));
    save_say(r);
    const WatchedRun watched = {.model = run->model,
                                .schedule = run->sched,
                                .evaluation = run->evaluation ? run->evaluation->sched : NULL,
                                .saving = r->save.saver ? saver_moved(r->save.saver) : NULL,
                                .limit = run->opt->report.watchdog,
                                .save_limit = run->opt->save.timeout};
    TRY(watchdog_open(&r->watch.dog, &r->group, &r->along[AXIS_MEMBERS], &watched));
    TRY(group_agree(&r->group, signals_heed()));
    PpStatus s = steps_run(r);
    watchdog_step(r->watch.dog, -1);
    TRY(s);
    return steps_finish(r);
}

/* A failure that ranks have not agreed on, as in the middle of a step, where nobody can be asked,
 * is said by who met it and ends the others, who may be waiting for this one. */
static PpStatus rank_run(Rank *r, PpStatus prepared)
{
    PpStatus s = prepare_and_run(r, prepared);
    if (s == PP_OK || pp_failure_told())
        return s;
    if (s != PP_ERR_PEER && pp_failure_first())
        pp_failure_print();
    r->group.op->fail(&r->group, s);
    return s;
}

static void close_all(Rank *r)
{
    r->dev.op->enter(&r->dev);
    evaluation_close(r);
    rank_close(r);
}

/* ---- ranks as threads ---- */

/* On each rank's own thread when all is well, for both sides may have to take part; else all wires
   before anything else: freeing memory waits for the device, and that for messages that may never
   come. */
static void close_wire(Rank *r, PpStatus s)
{
    r->dev.op->enter(&r->dev);
    for (int x = 0; x < AXES; x++)
        links_close(&r->links[x], s != PP_OK);
    evaluation_close_links(r, s != PP_OK);
}

typedef struct {
    Rank rank;
    PpStatus status;
    pthread_t thread;
} Thread;

static void *thread_main(void *p)
{
    Thread *t = p;
    t->status = rank_run(&t->rank, PP_OK);
    if (t->status == PP_OK)
        close_wire(&t->rank, PP_OK);
    return NULL;
}

PpStatus run_threads(Run *run)
{
    int ranks = run_ranks(run), started = 1;
    Thread *t = calloc((size_t)ranks, sizeof *t);
    LocalHub *hub = local_hub_new(ranks, run->cores); /* a core for each: they spin */
    if (!t || !hub) {
        free(t);
        if (hub)
            local_hub_free(hub);
        PpStatus s = pp_no_memory();
        pp_failure_print();
        return s;
    }
    for (int k = 0; k < ranks; k++) {
        t[k].rank = (Rank){.run = run, .dev.op = device_of(run->model->device)->ops};
        t[k].rank.group = local_group(hub, k);
    }
    for (; started < ranks; started++)
        if (pthread_create(&t[started].thread, NULL, thread_main, &t[started]))
            break;
    PpStatus s = PP_OK;
    if (started < ranks) {
        s = pp_fail(PP_ERR_IO, "no more than %d threads could be started", started);
        pp_failure_print();
        t[0].rank.group.op->fail(&t[0].rank.group, s);
    } else {
        thread_main(&t[0]);
    }
    for (int k = 1; k < started; k++)
        pthread_join(t[k].thread, NULL);
    for (int k = 0; k < ranks; k++)
        if (t[k].status != PP_OK && (s == PP_OK || s == PP_ERR_PEER))
            s = t[k].status;
    for (int k = 0; k < ranks; k++)
        close_wire(&t[k].rank, s);
    for (int k = 0; k < ranks; k++)
        close_all(&t[k].rank);
    local_hub_free(hub);
    free(t);
    return s;
}

PpStatus run_process(Run *run, const Group *world, PpStatus prepared)
{
    Rank r = {.run = run, .group = *world, .dev.op = device_of(run->model->device)->ops};
    PpStatus s = rank_run(&r, prepared);
    close_wire(&r, s);
    close_all(&r);
    groups_close(&r);
    return s;
}

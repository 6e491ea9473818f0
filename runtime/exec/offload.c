/*
 * offload.c - in: --offload stash, a schedule of computations; out: the verified rows with their
 * copies, planned (plan/offload.c) with what a rank of this run takes.
 */
#include "exec.h"

PpStatus schedule_bytes(const Run *run, const Schedule *s, int rank, int placed, int64_t *bytes,
                        int *moved)
{
    Run with = *run;
    union {
        const Schedule *in;
        Schedule *out;
    } rows = {s};
    with.sched = rows.out;
    PlanRequest ask = plan_request(&with, rank, INT64_MAX);
    PpStatus status = PP_OK;
    ask.unplaced = !placed;
    *bytes = 0;
    /* Divided, replicas differ by a few blocks of parameters; the rows are those of all */
    for (; ask.replica < (ask.zero ? ask.replicas : 1) && status == PP_OK; ask.replica++) {
        Plan p = {0};
        status = plan_build(&p, &ask);
        int64_t all = plan_total(&p);
        *bytes = all > *bytes ? all : *bytes;
        *moved = p.work.offloaded;
        plan_free(&p);
    }
    return status;
}

PpStatus offload_lower(Run *run, const SchedNeeds *needs, SchedError *e)
{
    Schedule *rows;
    TRY(plan_offload(run->model, run->sched, needs, run->opt->memory.offload_time, &rows, e));
    sched_free(run->sched);
    run->sched = rows;
    return PP_OK;
}

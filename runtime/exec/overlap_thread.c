/*
 * overlap_thread.c - a second thread of a rank.  The halves of an OVERLAP_F_B compound belong to
 * different stages and touch nothing in common, so where a rank has two cores or more its first
 * half runs here, beside the second: same functions, same buffers, same bits.  The thread never
 * talks to another rank; messages stay with the rank's own.
 */
#include "exec.h"

#include "core/team.h"
#include "io/worker.h"

#include <stdlib.h>

struct OverlapThread {
    Worker *worker;
    void (*work)(void *);
    void *arg;
    int threads, all;
};

static void half(void *p)
{
    OverlapThread *t = p;
    team_set(t->threads);
    t->work(t->arg);
}

PpStatus overlap_thread_open(OverlapThread **to, int threads, int rank)
{
    OverlapThread *t = calloc(1, sizeof *t);
    if (!t)
        return pp_no_memory();
    *t = (OverlapThread){.worker = worker_open(), .all = threads, .threads = threads / 2};
    *to = t;
    return t->worker ? PP_OK
                     : pp_fail(PP_ERR_IO, "%s: no thread for the halves of OVERLAP_F_B",
                               pp_rank(rank).text);
}

void overlap_thread_close(OverlapThread *t)
{
    if (t)
        worker_close(t->worker);
    free(t);
}

/* The caller keeps the other half of the cores until it joins. */
void overlap_thread_start(OverlapThread *t, void (*work)(void *), void *arg)
{
    t->work = work;
    t->arg = arg;
    team_set(t->all - t->threads);
    worker_give(t->worker, half, t);
}

void overlap_thread_join(OverlapThread *t)
{
    worker_await(t->worker);
    team_set(t->all);
}

/*
 * overlap_thread.c - a second thread of a rank.  The halves of an OVERLAP_F_B compound belong to
 * different stages and touch nothing in common, so where a rank has two cores or more its first
 * half runs here, beside the second: same functions, same buffers, same bits.  The thread never
 * talks to another rank; messages stay with the rank's own.
 */
#include "exec.h"

#include <pthread.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

struct OverlapThread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    void (*work)(void *);
    void *arg;
    int state; /* atomic: IDLE, BUSY, QUIT */
    int threads, all;
};
enum { IDLE, BUSY, QUIT, SPINS = 4000 };

/* Spins for a moment, since the next compound is often close, then sleeps. */
static int next_state(OverlapThread *t, int now)
{
    int s = now;
    for (int i = 0; i < SPINS && s == now; i++)
        s = __atomic_load_n(&t->state, __ATOMIC_ACQUIRE);
    if (s != now)
        return s;
    pthread_mutex_lock(&t->lock);
    while ((s = __atomic_load_n(&t->state, __ATOMIC_ACQUIRE)) == now)
        pthread_cond_wait(&t->turn, &t->lock);
    pthread_mutex_unlock(&t->lock);
    return s;
}

static void set_state(OverlapThread *t, int s)
{
    pthread_mutex_lock(&t->lock);
    __atomic_store_n(&t->state, s, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&t->turn);
    pthread_mutex_unlock(&t->lock);
}

static void set_team(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
}

static void *overlap_main(void *p)
{
    OverlapThread *t = p;
    set_team(t->threads);
    while (next_state(t, IDLE) == BUSY) {
        t->work(t->arg);
        set_state(t, IDLE);
    }
    return NULL;
}

PpStatus overlap_thread_open(OverlapThread **to, int threads, int rank)
{
    OverlapThread *t = calloc(1, sizeof *t);
    if (!t)
        return pp_no_memory();
    t->all = threads;
    t->threads = threads / 2;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->turn, NULL);
    if (pthread_create(&t->thread, NULL, overlap_main, t)) {
        pthread_cond_destroy(&t->turn);
        pthread_mutex_destroy(&t->lock);
        free(t);
        return pp_fail(PP_ERR_IO, "%s: no thread for the halves of OVERLAP_F_B",
                       pp_rank(rank).text);
    }
    *to = t;
    return PP_OK;
}

void overlap_thread_close(OverlapThread *t)
{
    if (!t)
        return;
    set_state(t, QUIT);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->turn);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* The caller keeps the other half of the cores until it joins. */
void overlap_thread_start(OverlapThread *t, void (*work)(void *), void *arg)
{
    t->work = work;
    t->arg = arg;
    set_team(t->all - t->threads);
    set_state(t, BUSY);
}

void overlap_thread_join(OverlapThread *t)
{
    next_state(t, BUSY);
    set_team(t->all);
}

/*
 * worker.c - a thread with a queue.  Both sides spin for a moment before they sleep, since the
 * other one is often close.
 */
#include "worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

typedef struct {
    void (*work)(void *); /* NULL: the thread ends */
    void *arg;
} Job;

struct Worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    Job *job; /* a ring of `most` */
    int most;
    int64_t given, done; /* atomic: the number of the last one */
};

/* Waits until *at is n or more. */
static void reach(Worker *w, const int64_t *at, int64_t n)
{
    enum { SPINS = 4000 };
    for (int i = 0; i < SPINS; i++)
        if (__atomic_load_n(at, __ATOMIC_ACQUIRE) >= n)
            return;
    pthread_mutex_lock(&w->lock);
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < n)
        pthread_cond_wait(&w->turn, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static void advance(Worker *w, int64_t *at, int64_t n)
{
    pthread_mutex_lock(&w->lock);
    __atomic_store_n(at, n, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&w->turn);
    pthread_mutex_unlock(&w->lock);
}

static void *worker_main(void *p)
{
    Worker *w = p;
    for (int64_t n = 1;; n++) {
        reach(w, &w->given, n);
        const Job job = w->job[n % w->most];
        if (!job.work)
            return NULL;
        job.work(job.arg);
        advance(w, &w->done, n);
    }
}

static void release(Worker *w)
{
    pthread_cond_destroy(&w->turn);
    pthread_mutex_destroy(&w->lock);
    free(w->job);
    free(w);
}

Worker *worker_open(int most)
{
    Worker *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->most = most < 1 ? 1 : most;
    w->job = calloc((size_t)w->most, sizeof *w->job);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->turn, NULL);
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of a file that was cut short: base/file/map.c names it */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int bad = !w->job || pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!bad)
        return w;
    release(w);
    return NULL;
}

int64_t worker_give(Worker *w, void (*work)(void *), void *arg)
{
    const int64_t n = w->given + 1;
    worker_await(w, n - w->most);
    w->job[n % w->most] = (Job){work, arg};
    advance(w, &w->given, n);
    return n;
}

void worker_await(Worker *w, int64_t number) { reach(w, &w->done, number); }

int worker_idle(Worker *w) { return __atomic_load_n(&w->done, __ATOMIC_ACQUIRE) == w->given; }

void worker_finish(Worker *w)
{
    if (w)
        worker_await(w, w->given);
}

void worker_close(Worker *w)
{
    if (!w)
        return;
    worker_give(w, NULL, NULL);
    pthread_join(w->thread, NULL);
    release(w);
}

/*
 * worker.c - a thread that waits for work, does it, and waits again.  Both sides spin for a moment
 * before they sleep, since the other one is often close.
 */
#include "worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

typedef enum { IDLE, BUSY, QUIT } State;

struct Worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    void (*work)(void *);
    void *arg;
    State state; /* atomic */
};

/* The state once it is another than `now`. */
static State next_state(Worker *w, State now)
{
    enum { SPINS = 4000 };
    State s = now;
    for (int i = 0; i < SPINS && s == now; i++)
        s = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE);
    if (s != now)
        return s;
    pthread_mutex_lock(&w->lock);
    while ((s = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE)) == now)
        pthread_cond_wait(&w->turn, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return s;
}

static void set_state(Worker *w, State s)
{
    pthread_mutex_lock(&w->lock);
    __atomic_store_n(&w->state, s, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&w->turn);
    pthread_mutex_unlock(&w->lock);
}

static void *worker_main(void *p)
{
    Worker *w = p;
    while (next_state(w, IDLE) == BUSY) {
        w->work(w->arg);
        set_state(w, IDLE);
    }
    return NULL;
}

Worker *worker_open(void)
{
    Worker *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->turn, NULL);
    sigset_t all, old;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of a file that was cut short: base/file/map.c names it */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int bad = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!bad)
        return w;
    pthread_cond_destroy(&w->turn);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void worker_give(Worker *w, void (*work)(void *), void *arg)
{
    worker_await(w);
    w->work = work;
    w->arg = arg;
    set_state(w, BUSY);
}

int worker_idle(Worker *w) { return __atomic_load_n(&w->state, __ATOMIC_ACQUIRE) == IDLE; }

void worker_await(Worker *w)
{
    if (w && !worker_idle(w))
        next_state(w, BUSY);
}

void worker_close(Worker *w)
{
    if (!w)
        return;
    worker_await(w);
    set_state(w, QUIT);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->turn);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

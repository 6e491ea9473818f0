/*
 * aside.c - a second thread of a rank.  The halves of an OVERLAP_F_B compound belong to different stages and touch
 * nothing in common, so where a rank has two cores or more its first half runs here, beside the second: same
 * functions, same buffers, same bits.  The thread never talks to another rank; messages stay with the rank's own.
 */
#include "internal.h"

#include <pthread.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

struct Aside {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    void (*work)(void *);
    void *arg;
    int state; /* atomic: IDLE, BUSY, QUIT */
    int threads, all;
};
enum { IDLE, BUSY, QUIT, SPINS = 4000 };

static int first_half(const SchedRow *row, int i)
{
    int part = row->a[i].overlap & SCHED_PART, last = row->a[i].overlap & SCHED_LAST;
    int inside = i > 0 && (row->a[i - 1].overlap & SCHED_PART) && !(row->a[i - 1].overlap & SCHED_LAST);
    return part && !last && !inside;
}

static int computes(const SchedAction *a) { return a->type >= SA_F && a->type <= SA_W; }

int aside_pair(const SchedRow *row, int i)
{
    return i + 1 < row->n && first_half(row, i) && (row->a[i + 1].overlap & SCHED_LAST) && computes(&row->a[i]) &&
           computes(&row->a[i + 1]) && row->a[i].stage != row->a[i + 1].stage;
}

int aside_wanted(const Rank *r)
{
    const SchedRow *row = &r->run->sched->row[r->rank];
    for (int i = 0; (r->threads > 1 || r->on_device) && r->run->opt->mode == MODE_TRAIN && i < row->n; i++)
        if (aside_pair(row, i))
            return 1;
    return 0;
}

/* Spins for a moment, since the next compound is often close, then sleeps. */
static int next_state(Aside *a, int now)
{
    int s = now;
    for (int i = 0; i < SPINS && s == now; i++)
        s = __atomic_load_n(&a->state, __ATOMIC_ACQUIRE);
    if (s != now)
        return s;
    pthread_mutex_lock(&a->lock);
    while ((s = __atomic_load_n(&a->state, __ATOMIC_ACQUIRE)) == now)
        pthread_cond_wait(&a->turn, &a->lock);
    pthread_mutex_unlock(&a->lock);
    return s;
}

static void set_state(Aside *a, int s)
{
    pthread_mutex_lock(&a->lock);
    __atomic_store_n(&a->state, s, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&a->turn);
    pthread_mutex_unlock(&a->lock);
}

static void set_team(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
}

static void *aside_main(void *p)
{
    Aside *a = p;
    set_team(a->threads);
    while (next_state(a, IDLE) == BUSY) {
        a->work(a->arg);
        set_state(a, IDLE);
    }
    return NULL;
}

PpStatus aside_open(Rank *r)
{
    if (!aside_wanted(r) || r->on_device) /* a device has streams */
        return PP_OK;
    Aside *a = calloc(1, sizeof *a);
    if (!a)
        return pp_fail(PP_ERR_IO, "out of memory");
    a->all = r->threads;
    a->threads = r->threads / 2;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->turn, NULL);
    if (pthread_create(&a->thread, NULL, aside_main, a)) {
        pthread_cond_destroy(&a->turn);
        pthread_mutex_destroy(&a->lock);
        free(a);
        return pp_fail(PP_ERR_IO, "rank %d: no thread for the halves of OVERLAP_F_B", r->rank);
    }
    r->aside = a;
    return PP_OK;
}

void aside_close(Rank *r)
{
    Aside *a = r->aside;
    if (!a)
        return;
    set_state(a, QUIT);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->turn);
    pthread_mutex_destroy(&a->lock);
    free(a);
    r->aside = NULL;
}

/* The caller keeps the other half of the cores until it joins. */
void aside_start(Aside *a, void (*work)(void *), void *arg)
{
    a->work = work;
    a->arg = arg;
    set_team(a->all - a->threads);
    set_state(a, BUSY);
}

void aside_join(Aside *a)
{
    next_state(a, BUSY);
    set_team(a->all);
}

/*
 * group_local.c - ranks are threads of one process.  A message is a rendezvous of two posted
 * requests in the receiver's mailbox: whoever posts second copies from the sender's buffer straight
 * into the receiver's, so a message costs one copy and no memory, and nothing blocks but wait().
 *
 * Mailboxes are hashed by (sender, tag); a chain keeps the order of posting.  A waiting rank spins
 * for a moment when there is a core for each rank, then sleeps on its own condition variable.
 */
#include "group.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUCKETS = 256, SPINS = 4000 };

typedef struct {
    Request *first, *last;
} Chain;

typedef struct {
    pthread_mutex_t lock;
    Chain chain[BUCKETS];
    pthread_mutex_t sleep_lock;
    pthread_cond_t wake;
    int sleeping; /* atomic */
} Box;

struct LocalHub {
    int ranks, spins;
    Box *box;
    int failed; /* atomic */
    LocalHub *next; /* of those tied together, in a circle */
    /* the collectives: a sense-reversing barrier around a shared table */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int arrived;
    unsigned generation;
    const void **part;
};

static int load(const int *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

LocalHub *local_hub_new(int ranks, int cores)
{
    LocalHub *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->ranks = ranks;
    h->next = h;
    h->spins = ranks <= cores ? SPINS : 0;
    h->box = calloc((size_t)ranks, sizeof *h->box);
    h->part = calloc((size_t)ranks, sizeof *h->part);
    if (!h->box || !h->part) {
        free(h->box);
        free(h->part);
        free(h);
        return NULL;
    }
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->turn, NULL);
    for (int r = 0; r < ranks; r++) {
        pthread_mutex_init(&h->box[r].lock, NULL);
        pthread_mutex_init(&h->box[r].sleep_lock, NULL);
        pthread_cond_init(&h->box[r].wake, NULL);
    }
    return h;
}

void local_hub_tie(LocalHub *h, LocalHub *other)
{
    LocalHub *next = h->next;
    h->next = other->next;
    other->next = next;
}

void local_hub_free(LocalHub *h)
{
    for (int r = 0; r < h->ranks; r++) {
        pthread_mutex_destroy(&h->box[r].lock);
        pthread_mutex_destroy(&h->box[r].sleep_lock);
        pthread_cond_destroy(&h->box[r].wake);
    }
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->turn);
    free(h->part);
    free(h->box);
    free(h);
}

/* After the store the owner of the request may be gone: nothing of it is touched any more. */
static void complete(LocalHub *h, Request *r, int owner)
{
    Box *b = &h->box[owner];
    __atomic_store_n(&r->done, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&b->sleeping, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&b->sleep_lock);
        pthread_cond_broadcast(&b->wake);
        pthread_mutex_unlock(&b->sleep_lock);
    }
}

/* Posts `mine` in the receiver's box, or takes its partner out and carries the message over. */
static PpStatus post(Group *g, Request *mine, int sender, int receiver)
{
    LocalHub *h = g->impl;
    if (load(&h->failed))
        return PP_ERR_PEER;
    Box *box = &h->box[receiver];
    Chain *c = &box->chain[((uint64_t)mine->tag * 31 + (uint64_t)sender) % BUCKETS];
    Request *partner = NULL;
    pthread_mutex_lock(&box->lock);
    Request **at = &c->first, *before = NULL;
    while (*at &&
           !((*at)->is_send != mine->is_send && (*at)->tag == mine->tag && (*at)->peer == sender)) {
        before = *at;
        at = &before->next;
    }
    if (*at) {
        partner = *at;
        *at = partner->next;
        if (c->last == partner)
            c->last = before;
    } else {
        mine->next = NULL;
        if (c->last)
            c->last->next = mine;
        else
            c->first = mine;
        c->last = mine;
    }
    pthread_mutex_unlock(&box->lock);
    if (!partner)
        return PP_OK;
    Request *s = mine->is_send ? mine : partner, *r = mine->is_send ? partner : mine;
    if (s->bytes != r->bytes)
        r->bytes = -1; /* the receiver is told: it knows best what is wrong */
    else if (s->carry && r->carry)
        s->carry(s, r);
    else if (s->bytes)
        memcpy(r->buf, s->buf, (size_t)s->bytes);
    mine->done = 1;
    complete(h, partner, mine->is_send ? receiver : sender);
    return PP_OK;
}

PpStatus local_carry(Group *g, int send, int peer, Request *r)
{
    r->peer = send ? g->rank : peer;
    r->rank = send ? peer : g->rank;
    r->is_send = send;
    return post(g, r, r->peer, r->rank);
}

static PpStatus local_send(Group *g, int peer, int64_t tag, const void *buf, int64_t bytes,
                           Request *r)
{
    union {
        const void *in;
        void *out;
    } any = {buf}; /* a send's buffer is only read */
    *r = (Request){.buf = any.out, .bytes = bytes, .tag = tag};
    return local_carry(g, 1, peer, r);
}

static PpStatus local_recv(Group *g, int peer, int64_t tag, void *buf, int64_t bytes, Request *r)
{
    *r = (Request){.buf = buf, .bytes = bytes, .tag = tag};
    return local_carry(g, 0, peer, r);
}

static PpStatus local_test(Group *g, Request *r, int *done)
{
    LocalHub *h = g->impl;
    *done = load(&r->done);
    return load(&h->failed) ? PP_ERR_PEER : *done && r->bytes < 0 ? PP_ERR_BUG : PP_OK;
}

static int local_failed(Group *g)
{
    LocalHub *h = g->impl;
    return load(&h->failed);
}

static PpStatus local_wait(Group *g, Request *r)
{
    LocalHub *h = g->impl;
    for (int i = 0; i < h->spins; i++) {
        if (load(&r->done))
            return r->bytes < 0 ? PP_ERR_BUG : PP_OK;
#if defined __x86_64__ || defined __i386__
        __builtin_ia32_pause();
#endif
    }
    Box *b = &h->box[g->rank];
    pthread_mutex_lock(&b->sleep_lock);
    __atomic_add_fetch(&b->sleeping, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&r->done, __ATOMIC_SEQ_CST) && !load(&h->failed))
        pthread_cond_wait(&b->wake, &b->sleep_lock);
    __atomic_sub_fetch(&b->sleeping, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&b->sleep_lock);
    return !load(&r->done) ? PP_ERR_PEER : r->bytes < 0 ? PP_ERR_BUG : PP_OK;
}

static void local_poll(Group *g) { (void)g; }

static PpStatus barrier(LocalHub *h)
{
    pthread_mutex_lock(&h->lock);
    unsigned generation = h->generation;
    if (++h->arrived == h->ranks) {
        h->arrived = 0;
        h->generation++;
        pthread_cond_broadcast(&h->turn);
    }
    while (generation == h->generation && !load(&h->failed))
        pthread_cond_wait(&h->turn, &h->lock);
    int passed = generation != h->generation;
    pthread_mutex_unlock(&h->lock);
    return passed ? PP_OK : PP_ERR_PEER;
}

static PpStatus local_gather(Group *g, const void *mine, int64_t bytes, void *all)
{
    LocalHub *h = g->impl;
    h->part[g->rank] = mine;
    TRY(barrier(h));
    for (int r = 0; r < h->ranks; r++)
        memcpy((char *)all + r * bytes, h->part[r], (size_t)bytes);
    return barrier(h);
}

static PpStatus local_sum(Group *g, double *v, int n)
{
    LocalHub *h = g->impl;
    h->part[g->rank] = v;
    TRY(barrier(h));
    /* each rank sums one slice of the table and writes it into every rank's */
    int lo = (int)((int64_t)n * g->rank / h->ranks),
        hi = (int)((int64_t)n * (g->rank + 1) / h->ranks);
    for (int i = lo; i < hi; i++) {
        double s = 0;
        for (int r = 0; r < h->ranks; r++)
            s += ((const double *)h->part[r])[i];
        for (int r = 0; r < h->ranks; r++) {
            union {
                const void *in;
                double *out;
            } any = {h->part[r]};
            any.out[i] = s;
        }
    }
    return barrier(h);
}

static void hub_fail(LocalHub *h)
{
    __atomic_store_n(&h->failed, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < h->ranks; r++) {
        pthread_mutex_lock(&h->box[r].sleep_lock);
        pthread_cond_broadcast(&h->box[r].wake);
        pthread_mutex_unlock(&h->box[r].sleep_lock);
    }
    pthread_mutex_lock(&h->lock);
    pthread_cond_broadcast(&h->turn);
    pthread_mutex_unlock(&h->lock);
}

static void local_fail(Group *g, PpStatus why)
{
    LocalHub *first = g->impl, *h = first;
    (void)why;
    do {
        hub_fail(h);
        h = h->next;
    } while (h != first);
}

Group local_group(LocalHub *h, int rank)
{
    static const GroupOps ops = {
        "local",    local_send, local_recv,   local_wait, local_test,
        local_poll, local_sum,  local_gather, local_fail, local_failed,
    };
    return (Group){.op = &ops,
                   .rank = rank,
                   .ranks = h->ranks,
                   .host_ranks = h->ranks,
                   .host_rank = rank,
                   .stride = 1,
                   .tag_max = INT64_MAX,
                   .impl = h};
}

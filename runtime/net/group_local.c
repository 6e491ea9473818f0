/*
 * group_local.c - ranks are threads of one process.  A message is a rendezvous of two posted
 * requests in the receiver's mailbox: whoever posts second copies from the sender's buffer straight
 * into the receiver's, so a message costs one copy and no memory, and nothing blocks but wait().
 *
 * Mailboxes are hashed by (sender, tag); a chain keeps the order of posting.  A waiting rank spins
 * for a moment when there is a core for each rank, then sleeps on its own condition variable.
 *
 * Ranks, senders and receivers here are numbers in the whole run.  A group is some of them, with a
 * place where they meet for collectives.
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

/* Where a group meets: a sense-reversing barrier, around the parts that its ranks show. */
typedef struct {
    LocalHub *hub;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int arrived;
    unsigned generation;
    const void **part; /* [whole run] */
} Meeting;

struct LocalHub {
    int ranks, spins;
    Box *box;
    int failed;       /* atomic */
    Meeting *meeting; /* of the whole run, then of each set the group that begins with a rank */
    const void **part;
};

enum { MEETINGS = 1 + LOCAL_SETS };

static int load(const int *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

static void meeting_open(LocalHub *h, int set, int first)
{
    Meeting *m = &h->meeting[set * h->ranks + first];
    m->hub = h;
    m->part = h->part + set * h->ranks;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->turn, NULL);
}

LocalHub *local_hub_new(int ranks, int cores)
{
    LocalHub *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->ranks = ranks;
    h->spins = ranks <= cores ? SPINS : 0;
    h->box = calloc((size_t)ranks, sizeof *h->box);
    h->part = calloc((size_t)ranks * MEETINGS, sizeof *h->part);
    h->meeting = calloc((size_t)ranks * MEETINGS, sizeof *h->meeting);
    if (!h->box || !h->part || !h->meeting) {
        h->ranks = 0;
        local_hub_free(h);
        return NULL;
    }
    for (int r = 0; r < ranks; r++) {
        pthread_mutex_init(&h->box[r].lock, NULL);
        pthread_mutex_init(&h->box[r].sleep_lock, NULL);
        pthread_cond_init(&h->box[r].wake, NULL);
        for (int set = 0; set < MEETINGS; set++)
            meeting_open(h, set, r);
    }
    return h;
}

void local_hub_free(LocalHub *h)
{
    for (int r = 0; r < h->ranks; r++) {
        pthread_mutex_destroy(&h->box[r].lock);
        pthread_mutex_destroy(&h->box[r].sleep_lock);
        pthread_cond_destroy(&h->box[r].wake);
    }
    for (int k = 0; k < h->ranks * MEETINGS; k++) {
        pthread_mutex_destroy(&h->meeting[k].lock);
        pthread_cond_destroy(&h->meeting[k].turn);
    }
    free(h->meeting);
    free(h->part);
    free(h->box);
    free(h);
}

static LocalHub *hub_of(const Group *g)
{
    const Meeting *m = g->impl;
    return m->hub;
}

static int number_of(const Group *g, int rank) { return g->first + rank * g->stride; }

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
    LocalHub *h = hub_of(g);
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
    const int own = number_of(g, g->rank), other = number_of(g, peer);
    r->peer = send ? own : other;
    r->rank = send ? other : own;
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
    LocalHub *h = hub_of(g);
    *done = load(&r->done);
    return load(&h->failed) ? PP_ERR_PEER : *done && r->bytes < 0 ? PP_ERR_BUG : PP_OK;
}

static int local_failed(Group *g) { return load(&hub_of(g)->failed); }

static PpStatus local_wait(Group *g, Request *r)
{
    LocalHub *h = hub_of(g);
    for (int i = 0; i < h->spins; i++) {
        if (load(&r->done))
            return r->bytes < 0 ? PP_ERR_BUG : PP_OK;
#if defined __x86_64__ || defined __i386__
        __builtin_ia32_pause();
#endif
    }
    Box *b = &h->box[number_of(g, g->rank)];
    pthread_mutex_lock(&b->sleep_lock);
    __atomic_add_fetch(&b->sleeping, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&r->done, __ATOMIC_SEQ_CST) && !load(&h->failed))
        pthread_cond_wait(&b->wake, &b->sleep_lock);
    __atomic_sub_fetch(&b->sleeping, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&b->sleep_lock);
    return !load(&r->done) ? PP_ERR_PEER : r->bytes < 0 ? PP_ERR_BUG : PP_OK;
}

static void local_poll(Group *g) { (void)g; }

/* Shows this rank's part to the others of the group, and waits for all of theirs. */
static PpStatus meet(Group *g, const void *part)
{
    Meeting *m = g->impl;
    pthread_mutex_lock(&m->lock);
    unsigned generation = m->generation;
    if (part)
        m->part[number_of(g, g->rank)] = part;
    if (++m->arrived == g->ranks) {
        m->arrived = 0;
        m->generation++;
        pthread_cond_broadcast(&m->turn);
    }
    while (generation == m->generation && !load(&m->hub->failed))
        pthread_cond_wait(&m->turn, &m->lock);
    int passed = generation != m->generation;
    pthread_mutex_unlock(&m->lock);
    return passed ? PP_OK : PP_ERR_PEER;
}

static PpStatus local_gather(Group *g, const void *mine, int64_t bytes, void *all)
{
    const Meeting *m = g->impl;
    TRY(meet(g, mine));
    for (int r = 0; r < g->ranks; r++)
        memcpy((char *)all + r * bytes, m->part[number_of(g, r)], (size_t)bytes);
    return meet(g, NULL);
}

/* Each rank sums one slice of the table and writes it into every rank's. */
static PpStatus local_sum(Group *g, double *v, int n)
{
    const Meeting *m = g->impl;
    TRY(meet(g, v));
    int lo = (int)((int64_t)n * g->rank / g->ranks),
        hi = (int)((int64_t)n * (g->rank + 1) / g->ranks);
    for (int i = lo; i < hi; i++) {
        double s = 0;
        for (int r = 0; r < g->ranks; r++)
            s += ((const double *)m->part[number_of(g, r)])[i];
        for (int r = 0; r < g->ranks; r++) {
            union {
                const void *in;
                double *out;
            } any = {m->part[number_of(g, r)]};
            any.out[i] = s;
        }
    }
    return meet(g, NULL);
}

static void local_fail(Group *g, PpStatus why)
{
    LocalHub *h = hub_of(g);
    (void)why;
    __atomic_store_n(&h->failed, 1, __ATOMIC_SEQ_CST);
    for (int r = 0; r < h->ranks; r++) {
        pthread_mutex_lock(&h->box[r].sleep_lock);
        pthread_cond_broadcast(&h->box[r].wake);
        pthread_mutex_unlock(&h->box[r].sleep_lock);
    }
    for (int k = 0; k < h->ranks * MEETINGS; k++) {
        pthread_mutex_lock(&h->meeting[k].lock);
        pthread_cond_broadcast(&h->meeting[k].turn);
        pthread_mutex_unlock(&h->meeting[k].lock);
    }
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
                   .impl = h->meeting};
}

void local_part(const Group *g, int set, Group *part)
{
    LocalHub *h = hub_of(g);
    part->impl = &h->meeting[(1 + set) * h->ranks + part->first];
}

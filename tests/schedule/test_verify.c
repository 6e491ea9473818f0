/*
 * test_verify.c - the verifier against an executor: threads, one per rank, that really send and
 * receive.
 *
 * Random valid schedules (any placement, skips) must be accepted and must run.  Random mutations of
 * them (swap, drop, duplicate, move) may be accepted only if the threads finish, with every message
 * the one that was expected.  The executor shares no code with the verifier: mailboxes under one
 * mutex, one condition variable, a deadlock is noticed when all threads wait.
 */
#include "schedule/schedule.h"
#include "tap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_RANKS = 6, MAX_STAGES = 8, MAX_MB = 6, MAX_EDGES = 40 };

static SchedError err;
static uint64_t seed = 1;

static int pick(int n) /* 0 .. n-1; splitmix64 */
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int)((z ^ z >> 31) % (unsigned)n);
}

/* ---- Random schedules: repeatedly place any computation that is ready ---- */

typedef struct {
    int p, S, m, n_edge, place[MAX_STAGES];
    SchedEdge edge[MAX_EDGES];
} Case;

static void random_case(Case *c)
{
    c->p = 1 + pick(4);
    c->S = c->p + pick(MAX_STAGES - c->p + 1);
    c->m = 1 + pick(MAX_MB - 1);
    c->n_edge = 0;
    for (int s = 0; s < c->S; s++)
        c->place[s] = s < c->p ? s : pick(c->p);
    for (int s = 0; s + 1 < c->S; s++)
        c->edge[c->n_edge++] = (SchedEdge){s, s + 1, 1, 0, 0};
    for (int i = pick(4); i > 0 && c->S > 2; i--) {
        int from = pick(c->S - 2), to = from + 2 + pick(c->S - from - 2);
        c->edge[c->n_edge++] = (SchedEdge){from, to, pick(3) > 0, 0, 0};
    }
}

static int ready(const Case *c, char done[][MAX_MB], int stage, int mb, int back)
{
    for (int i = 0; i < c->n_edge; i++) {
        int here = back ? c->edge[i].from : c->edge[i].to,
            other = back ? c->edge[i].to : c->edge[i].from;
        if (here == stage && (!back || c->edge[i].gradient) && !done[other][mb])
            return 0;
    }
    return 1;
}

static Schedule *random_schedule(const Case *c)
{
    char forward[MAX_STAGES][MAX_MB] = {{0}}, back[MAX_STAGES][MAX_MB] = {{0}},
         weight[MAX_STAGES][MAX_MB] = {{0}};
    char row[MAX_RANKS][4096] = {""}, text[5 * 4096] = "";
    Schedule *s;
    for (int left = c->S * c->m * 2; left > 0;) {
        int stage = pick(c->S), mb = pick(c->m), r = c->place[stage];
        size_t at = strlen(row[r]);
        char *to = row[r] + at;
        if (!forward[stage][mb]) {
            if (!ready(c, forward, stage, mb, 0))
                continue;
            snprintf(to, sizeof row[r] - at, "%s%dF%d", at ? "," : "", stage, mb);
            forward[stage][mb] = 1;
            left--;
        } else if (!back[stage][mb]) {
            if (!ready(c, back, stage, mb, 1))
                continue;
            weight[stage][mb] = (char)pick(2);
            snprintf(to, sizeof row[r] - at, ",%d%c%d", stage, weight[stage][mb] ? 'B' : 'I', mb);
            back[stage][mb] = 1;
            left -= weight[stage][mb];
        } else if (!weight[stage][mb]) {
            snprintf(to, sizeof row[r] - at, ",%dW%d", stage, mb);
            weight[stage][mb] = 1;
            left--;
        }
    }
    for (int r = 0; r < c->p; r++) {
        strcat(text, row[r]);
        strcat(text, "\n");
    }
    if (sched_parse(text, strlen(text), "random", &s, &err))
        printf("# %s\n", err.text);
    return s;
}

/* ---- The executor ---- */

enum { MAX_LANE = MAX_STAGES * MAX_STAGES * 2, MAX_QUEUE = 64 };

/* A lane: (from stage, to stage, forward or back).  In a rendezvous `offer` is what the sender
 * holds out. */
typedef struct {
    int queue[MAX_QUEUE], sent, received, offer, number[MAX_MB];
} Lane; /* number: the how-manieth a message was */

typedef struct {
    const Schedule *s;
    const Case *c;
    int buffers, change, waiting, running, dead, wrong;
    Lane lane[MAX_LANE];
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char forward[MAX_STAGES][MAX_MB], back[MAX_STAGES][MAX_MB],
        got_f[MAX_STAGES * MAX_STAGES][MAX_MB], got_b[MAX_STAGES * MAX_STAGES][MAX_MB];
} Run;

typedef struct {
    Run *run;
    int rank;
} Thread;

/* One wait for a change; 0 when nobody can ever move again.  Every change wakes all who wait, and
 * they count themselves anew. */
static int pause_rank(Run *x)
{
    int change = x->change;
    if (++x->waiting == x->running) {
        x->dead = 1;
        pthread_cond_broadcast(&x->changed);
    }
    while (!x->dead && x->change == change)
        pthread_cond_wait(&x->changed, &x->mutex);
    return !x->dead;
}

static void moved(Run *x)
{
    x->change++;
    x->waiting = 0;
    pthread_cond_broadcast(&x->changed);
}

static int send_message(Run *x, Lane *l, int mb)
{
    if (x->buffers == 0) {
        while (l->offer >= 0)
            if (!pause_rank(x))
                return 0;
        l->offer = mb;
        l->number[mb] = ++l->sent;
        moved(x);
        int mine = l->sent;
        while (l->received < mine)
            if (!pause_rank(x))
                return 0;
        return 1;
    }
    while (l->sent - l->received >= x->buffers)
        if (!pause_rank(x))
            return 0;
    l->queue[l->sent++ % MAX_QUEUE] = mb;
    l->number[mb] = l->sent;
    moved(x);
    return 1;
}

static int receive_message(Run *x, Lane *l, int mb)
{
    while (l->sent == l->received)
        if (!pause_rank(x))
            return 0;
    int got = x->buffers ? l->queue[l->received % MAX_QUEUE] : l->offer;
    l->received++;
    l->offer = -1;
    moved(x);
    x->wrong |= got != mb;
    return 1;
}

static void compute(Run *x, const SchedAction *a)
{
    const Case *c = x->c;
    for (int i = 0; i < c->n_edge; i++) {
        const SchedEdge *e = &c->edge[i];
        int local = c->place[e->from] == c->place[e->to], at = e->from * MAX_STAGES + e->to;
        if (a->type == SA_F && e->to == a->stage)
            x->wrong |= !(local ? x->forward[e->from][a->microbatch] : x->got_f[at][a->microbatch]);
        if ((a->type == SA_B || a->type == SA_I) && e->from == a->stage && e->gradient)
            x->wrong |= !(local ? x->back[e->to][a->microbatch] : x->got_b[at][a->microbatch]);
    }
    if (a->type == SA_F)
        x->forward[a->stage][a->microbatch]++;
    else if (a->type == SA_B || a->type == SA_I)
        x->back[a->stage][a->microbatch]++;
}

static int act(Run *x, const SchedAction *a)
{
    int send = a->type == SA_SEND_F || a->type == SA_SEND_B,
        recv = a->type == SA_RECV_F || a->type == SA_RECV_B;
    int wait = a->type == SA_WAIT_SEND_F || a->type == SA_WAIT_SEND_B;
    if (!send && !recv && !wait)
        return compute(x, a), 1;
    int back = a->type == SA_SEND_B || a->type == SA_RECV_B || a->type == SA_WAIT_SEND_B,
        low = a->stage < a->peer ? a->stage : a->peer,
        high = a->stage < a->peer ? a->peer : a->stage;
    int at = low * MAX_STAGES + high;
    Lane *l = &x->lane[2 * at + back];
    if (send)
        return send_message(x, l, a->microbatch);
    if (wait) {
        while (l->received < l->number[a->microbatch])
            if (!pause_rank(x))
                return 0;
        return 1;
    }
    (back ? x->got_b : x->got_f)[at][a->microbatch] = 1;
    return receive_message(x, l, a->microbatch);
}

static void *run_rank(void *arg)
{
    Thread *t = arg;
    Run *x = t->run;
    const SchedRow *row = &x->s->row[t->rank];
    pthread_mutex_lock(&x->mutex);
    for (int i = 0; i < row->n && !x->dead; i++)
        if (!act(x, &row->a[i]))
            break;
    if (--x->running == x->waiting && x->running > 0)
        x->dead = 1;
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->mutex);
    return NULL;
}

/* Does it finish, with the right messages? */
static int execute(const Schedule *s, const Case *c, int buffers)
{
    Run *x = calloc(1, sizeof *x);
    pthread_t thread[MAX_RANKS];
    Thread t[MAX_RANKS];
    int fine;
    x->s = s;
    x->c = c;
    x->buffers = buffers;
    x->running = s->ranks;
    for (int i = 0; i < MAX_LANE; i++)
        x->lane[i].offer = -1;
    pthread_mutex_init(&x->mutex, NULL);
    pthread_cond_init(&x->changed, NULL);
    for (int r = 0; r < s->ranks; r++) {
        t[r] = (Thread){x, r};
        pthread_create(&thread[r], NULL, run_rank, &t[r]);
    }
    for (int r = 0; r < s->ranks; r++)
        pthread_join(thread[r], NULL);
    fine = !x->dead && !x->wrong;
    for (int i = 0; i < MAX_LANE; i++)
        fine &= x->lane[i].sent == x->lane[i].received;
    for (int k = 0; k < c->S; k++)
        for (int i = 0; i < c->m; i++)
            fine &= x->forward[k][i] == 1 && x->back[k][i] == 1;
    pthread_mutex_destroy(&x->mutex);
    pthread_cond_destroy(&x->changed);
    free(x);
    return fine;
}

/* ---- Mutations ---- */

static int is_comm(int t) { return t >= SA_SEND_F && t <= SA_WAIT_SEND_B; }

static void mutate(Schedule *s)
{
    SchedRow *row = &s->row[pick(s->ranks)];
    int i = pick(row->n), j = pick(row->n), kind = pick(5);
    SchedAction a = row->a[i];
    /* rather a message */
    for (int tries = 0; kind >= 3 && tries < 20 && !is_comm(row->a[i].type); tries++)
        i = pick(row->n);
    a = row->a[i];
    switch (kind) {
    case 0: /* swap two neighbours, or any two */
        if (pick(2))
            j = i + 1 < row->n ? i + 1 : i;
        row->a[i] = row->a[j];
        row->a[j] = a;
        break;
    case 1: /* drop */
        memmove(row->a + i, row->a + i + 1, (size_t)(--row->n - i) * sizeof a);
        break;
    case 2: { /* duplicate */
        SchedAction *p = malloc(((size_t)row->n + 1) * sizeof *p);
        memcpy(p, row->a, (size_t)row->n * sizeof *p);
        memmove(p + j + 1, p + j, (size_t)(row->n - j) * sizeof *p);
        p[j] = a;
        free(row->a);
        *row = (SchedRow){p, row->n + 1, row->n + 1};
        break;
    }
    default: /* move one action */
        memmove(row->a + i, row->a + i + 1, (size_t)(row->n - 1 - i) * sizeof a);
        memmove(row->a + j + 1, row->a + j, (size_t)(row->n - 1 - j) * sizeof a);
        row->a[j] = a;
    }
}

static void properties(void)
{
    int refused = 0, stuck = 0, wrong = 0, accepted = 0, refused_fine = 0, liar = 0, mutations = 0;
    for (int n = 0; n < 400; n++) {
        Case c;
        random_case(&c);
        int buffers = pick(4);
        Schedule *s = random_schedule(&c);
        static const char *const windows[] = {NULL, "1", "2:1"};
        SchedNeeds needs = {c.edge,  c.n_edge,        NULL,   0, windows[pick(3)], pick(2),
                            pick(2), pick(3) ? 0 : 3, buffers, NULL};
        if (!s || (sched_lower_for(s, &needs, &err) && needs.send_budget == 0)) {
            refused++;
            printf("# %s\n", err.text);
        } else if (s->complete && needs.send_budget == 0) {
            stuck += !execute(s, &c, buffers);
        }
        for (int k = 0; s && s->complete && k < 6; k++) {
            Schedule *x = sched_clone(s);
            for (int i = 1 + pick(2); i > 0; i--)
                mutate(x);
            int takes = !sched_verify(x, c.edge, c.n_edge, NULL, 0, buffers, &err),
                runs = execute(x, &c, buffers);
            mutations++;
            accepted += takes;
            wrong += takes && !runs;
            refused_fine += !takes && runs;
            liar += !takes && runs && strncmp(err.text, "deadlock", 8) == 0;
            sched_free(x);
        }
        sched_free(s);
    }
    ok(refused == 0, "random valid schedules are accepted (%d of 400 refused)", refused);
    ok(stuck == 0, "and run (%d do not)", stuck);
    ok(wrong == 0 && accepted > 0, "of %d mutations %d are accepted, and %d of those do not run",
       mutations, accepted, wrong);
    ok(liar == 0, "none that is refused as a deadlock runs (%d do)", liar);
    printf("# %d mutations that would run are refused all the same (W before I, twice, no wait, "
           "UNSHARD ..)\n",
           refused_fine);
}

/* ---- Known cases, by hand ---- */

static int verdict(const char *text, int buffers)
{
    Schedule *s;
    if (sched_parse(text, strlen(text), "case", &s, &err))
        return -1;
    int st = sched_verify(s, NULL, 0, NULL, 0, buffers, &err);
    sched_free(s);
    return st;
}

static void known(void)
{
    const char *cross = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,"
                        "1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";
    ok(verdict(cross, 0) == 1 && strstr(err.text, "rank 0 waits for rank 1 waits for rank 0"),
       "two sends that meet: a deadlock in a rendezvous");
    ok(strstr(err.text, "0SEND_F1") && strstr(err.text, "1SEND_B0") && strstr(err.text, "cell 3"),
       "the report names the actions and cells");
    ok(verdict(cross, 1) == 0, "not with one buffer");
    const char *order = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0\n1RECV_F1,1F1,1RECV_"
                        "F0,1F0,1B1,1SEND_B1,1B0,1SEND_B0\n";
    ok(verdict(order, 2) == 1 && strstr(err.text, "rank 0 sent 0SEND_F0 before it"),
       "a receive that meets another message: which send misses which");
    ok(verdict(order, 0) == 1, "and in a rendezvous");
    ok(verdict("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n", 1) == 1 &&
           strstr(err.text, "never sends"),
       "a gradient that is never sent");
    ok(verdict("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 0) == 1 &&
           strstr(err.text, "rank 0 never sends it"),
       "an activation that is never sent");
    ok(verdict("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n", 0) == 1 && err.rank == 1 &&
           err.cell == 0,
       "a forward before its input");
    ok(verdict("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 3) == 1 &&
           strstr(err.text, "twice"),
       "a message sent twice");
    ok(verdict("0F0,0WAIT_SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 3) == 1 &&
           err.cell == 1,
       "a wait before its send");
    ok(verdict("0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,"
               "1RECV_F1,1F1,1B0,1SEND_"
               "B0,1B1,1SEND_B1\n",
               4) == 0,
       "a wait that is served");
    ok(verdict("0UNSHARD,0F0,0RESHARD,0B0\n", 0) == 1 && err.cell == 3,
       "a backward without its parameters");
    ok(verdict("0UNSHARD,0F0,1F0,1B0,0B0,0RESHARD\n", 0) == 1 && err.cell == 2,
       "a forward of a stage that nothing brings");
    ok(verdict("0UNSHARD,0F0,0B0\n", 0) == 1 && strstr(err.text, "0UNSHARD has no RESHARD"),
       "parameters that never go");
    ok(verdict("0F0,1F0,1B0,1REDUCE_GRAD,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n", 0) == 1 &&
           strstr(err.text, "1REDUCE_GRAD has no WAIT"),
       "a reduction without its end");
    ok(verdict("0F0,0F1,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0B1\n", 0) == 1 && err.cell == 3,
       "a reduction before the last gradient");

    /* The sums of two replica sets, taken up in opposite orders: each waits for a part that the
     * other begins later. */
    const char *rows = "0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0,2RECV_B0,2B0,2SEND_B0,2REDUCE_GRAD,"
                       "2WAIT_REDUCE_GRAD,0RECV_"
                       "B0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"
                       "1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,3REDUCE_GRAD,3WAIT_REDUCE_"
                       "GRAD,1RECV_B0,1B0,"
                       "1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD\n";
    Schedule *s;
    static const SchedParam tied[] = {{0, 3, 1, 1}, {1, 2, 1, 1}};
    ok(!sched_parse(rows, strlen(rows), "case", &s, &err) &&
           !sched_verify(s, NULL, 0, NULL, 0, 0, &err),
       "without shared parameters it runs");
    ok(sched_verify(s, NULL, 0, tied, 2, 0, &err) == 1 && strstr(err.text, "part of the sum"),
       "with sums over replicas it does not: %s", err.text);
    SchedNeeds needs = {NULL, 0, tied, 2, 0, 0, 0, 0, 0, NULL};
    ok(!sched_lower_for(s, &needs, &err), "sched_lower_for moves the sums to the end");
    sched_free(s);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void speed(void)
{
    Schedule *s;
    int64_t n = 0;
    sched_generate("interleavedzerobubble", 100, 200, 500, -1, &s, &err);
    sched_lower(s, 3, &err);
    for (int r = 0; r < s->ranks; r++)
        n += s->row[r].n;
    double t = seconds();
    int st =
        sched_verify(s, NULL, 0, NULL, 0, 0, &err) || sched_verify(s, NULL, 0, NULL, 0, 2, &err);
    t = seconds() - t;
    ok(!st, "%lld actions, with any number of buffers and with two", (long long)n);
    printf("# %.2f s: %.1f million a second\n", t, 2e-6 * (double)n / t);
    sched_free(s);
}

/* Lowers a schedule of 32 ranks for a run; its processor time. */
static double lowering(const char *name, int microbatches, int send_budget)
{
    SchedNeeds needs = {.send_budget = send_budget, .buffers = 1 << 20};
    Schedule *s = NULL;
    clock_t t = clock();
    ok(!sched_generate(name, 32, 64, microbatches, -1, &s, &err) &&
           !sched_lower_for(s, &needs, &err),
       "%s of %d microbatches is lowered, %d sends open", name, microbatches, send_budget);
    sched_free(s);
    return (double)(clock() - t) / CLOCKS_PER_SEC;
}

/* A thousand sends that are open at once, and a search for every send: minutes, were they
 * quadratic. */
static void large(void)
{
    double small = lowering("gpipe", 512, 0), eight = lowering("gpipe", 4096, 0);
    printf("# gpipe with 8 times the microbatches: %.1f times the time\n", eight / small);
    small = lowering("1f1b", 512, 0), eight = lowering("1f1b", 512, 4);
    printf("# a send budget: %.1f times the time\n", eight / small);
}

int main(void)
{
    large();
    known();
    properties();
    speed();
    return tap_done();
}

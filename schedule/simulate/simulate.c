/*
 * simulate.c - the simulator: when does every action begin and end?
 *
 * In: rows (compute only, or complete), costs.  Out: start and end of every action, makespan,
 * spans, bubbles, live microbatches. Computations are serial on a rank; a message leaves when its
 * producer (or its SEND) ends and arrives after the edge's latency. Copies of stashes go beside the
 * computations, one at a time on a rank, in the order of its row; so does an UNSHARD, for which the
 * stage's next computation waits. Times are a max-plus recurrence
 * over the order graph, so the order in which ranks are advanced does not matter.  Sums over
 * replicas go beside the computations, one at a time on a rank; what of them is the rank's own time
 * makes the computations longer, evenly while the sum lasts.  Communication is non-blocking, the
 * assumption of the published tables.
 */
#include "schedule/graph.h"
#include "simulate.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const Schedule *s;
    const SchedCosts *c;
    const SchedGraph *g;
    SchedSim *out;
    const double *length; /* of the microbatches of this step; NULL: all alike */
    double *clock, *engine;    /* per rank; of its copies */
    /* sums over replicas: per rank the last one's end, per stage its own and, or -1, its begin */
    struct {
        double *last, *end, *begin;
    } sum;
    double *copied;            /* per (stage, microbatch): end of its last copy, 0 */
    double *brought;           /* per stage: end of its last UNSHARD, 0 */
    double *forward, *backward; /* per (stage, microbatch): end, or -1 */
    double *arrive;             /* per message, or -1 */
    unsigned char *remote;     /* per lane: between ranks */
    SchedTurns turn;
    Pool room;
} Sim;

/* Of its time that a rank has for computations while a sum lasts */
#define LEAST_SHARE 0.05

static double max2(double a, double b) { return a > b ? a : b; }

static double cost(const Sim *m, const SchedAction *a)
{
    const SchedCosts *c = m->c;
    const double t = sched_cost(c, a->stage, a->type);
    if (!m->length || a->microbatch < 0 || a->stage >= c->vary->stages)
        return t;
    return t * sched_fit_at(&c->vary->time[a->stage * SA_TYPES + a->type], c->vary->n,
                            m->length + a->microbatch * c->vary->n);
}

static double reduction(const Sim *m, int stage)
{
    const SchedCosts *c = m->c;
    double t = c->stage_reduction && stage < c->stages ? c->stage_reduction[stage] : -1;
    return t >= 0 ? t : c->reduction;
}

/* When a computation ends that begins at t, for what its rank's sums take of it. */
static double computed_at(const Sim *m, const SchedAction *a, double t)
{
    double left = cost(m, a);
    const int rank = m->s->rank_of[a->stage];
    for (;;) {
        int next = -1; /* the sum under way, or the next one */
        for (int s = 0; m->c->stage_beside && s < m->s->stages && s < m->c->stages; s++)
            if (m->s->rank_of[s] == rank && m->sum.begin[s] >= 0 && m->sum.end[s] > t &&
                (next < 0 || m->sum.begin[s] < m->sum.begin[next]))
                next = s;
        if (next < 0 || m->sum.begin[next] >= t + left)
            return t + left;
        double begin = max2(t, m->sum.begin[next]), lasts = m->sum.end[next] - m->sum.begin[next],
               share = max2(1 - m->c->stage_beside[next] / lasts, LEAST_SHARE);
        left -= begin - t;
        if (begin + left / share <= m->sum.end[next])
            return begin + left / share;
        left -= (m->sum.end[next] - begin) * share;
        t = m->sum.end[next];
    }
}

/* From the end of the producer, or of the SEND, to the arrival. */
static double latency(const Sim *m, int lane, int mb)
{
    const SchedVary *v = m->c->vary;
    const SchedEdge *edge = &m->g->edge[lane / 2];
    double bytes = lane % 2 ? edge->bytes_b : edge->bytes_f;
    if (m->length && edge->from < v->stages)
        bytes *= sched_fit_at(&v->sent[edge->from], v->n, m->length + mb * v->n);
    return m->c->latency + m->c->per_byte * bytes;
}

static int64_t message(const Sim *m, int lane, int mb)
{
    return sched_graph_message(m->g, m->s->microbatches, lane, mb);
}

/* The time at which everything that a computation needs is there; -1: not known yet. */
static double ready(const Sim *m, const SchedAction *a)
{
    const SchedGraph *g = m->g;
    double t = max2(max2(m->clock[m->s->rank_of[a->stage]], m->brought[a->stage]),
                    m->copied[sched_pair(m->s, a->stage, a->microbatch)]);
    for (SchedNeed n = sched_needs(g, a->type, a->stage); sched_next(g, &n);) {
        double at;
        if (m->remote[n.lane] && m->s->complete) {
            at = m->arrive[message(m, n.lane, a->microbatch)];
        } else {
            at = (n.back ? m->backward : m->forward)[sched_pair(m->s, n.stage, a->microbatch)];
            if (at >= 0 && m->remote[n.lane])
                at += latency(m, n.lane, a->microbatch);
        }
        if (at < 0)
            return -1;
        t = max2(t, at);
    }
    return t;
}

/* Its result is there, for all that wait for it. */
static void computed(Sim *m, const SchedAction *a, double end)
{
    const size_t at = sched_pair(m->s, a->stage, a->microbatch);
    if (a->type == SA_F)
        m->forward[at] = end;
    else if (a->type == SA_B || a->type == SA_I)
        m->backward[at] = end;
    sched_wake_readers(&m->turn, m->s, m->g, a);
}

static void set(Sim *m, int r, int i, double start, double end)
{
    m->out->start[r][i] = start;
    m->out->end[r][i] = end;
    m->clock[r] = max2(m->clock[r], end);
}

/* A compound whose halves overlap: both begin when both can, and end together. */
static int compound(Sim *m, int r, int i, int end)
{
    const SchedAction *a = m->s->row[r].a;
    double at = m->clock[r], sum = 0, most = 0;
    for (int k = i; k < end; k++) {
        double t = ready(m, &a[k]);
        if (t < 0)
            return 0;
        at = max2(at, t);
        sum += cost(m, &a[k]);
        most = max2(most, cost(m, &a[k]));
    }
    sum = most + m->c->overlap * (sum - most);
    for (int k = i; k < end; k++)
        set(m, r, k, at, at + sum);
    for (int k = i; k < end; k++)
        computed(m, &a[k], at + sum);
    m->turn.cursor[r] = end;
    return 1;
}

/* Issued now, done when what the rank has asked of others before has come. */
static void unshard(Sim *m, int r, int i)
{
    const SchedAction *a = &m->s->row[r].a[i];
    double took = cost(m, a), start = took > 0 ? max2(m->clock[r], m->sum.last[r]) : m->clock[r];
    m->out->start[r][i] = start;
    m->out->end[r][i] = m->brought[a->stage] = start + took;
    m->sum.last[r] = max2(m->sum.last[r], start + took);
}

/* Issued now, done when the copies before it are. */
static void copy_stash(Sim *m, int r, int i)
{
    const SchedAction *a = &m->s->row[r].a[i];
    double start = max2(m->clock[r], m->engine[r]), end = start + cost(m, a);
    m->out->start[r][i] = start;
    m->out->end[r][i] = m->engine[r] = end;
    m->copied[sched_pair(m->s, a->stage, a->microbatch)] = end;
}

/* A send, a receive or a wait: nobody waits there, but computations for what they need. */
static void communicate(Sim *m, int r, int i)
{
    const SchedAction *a = &m->s->row[r].a[i];
    const int lane = sched_graph_lane(m->g, a);
    const double start = m->clock[r], took = lane < 0 || !m->remote[lane] ? 0 : cost(m, a);
    if (lane >= 0 && m->remote[lane] && sched_sends(a->type)) {
        m->arrive[message(m, lane, a->microbatch)] = start + took + latency(m, lane, a->microbatch);
        sched_wake(&m->turn, m->s->rank_of[a->peer]);
    }
    set(m, r, i, start, start + took);
}

static int reduce(Sim *m, int r, int i)
{
    const SchedAction *a = &m->s->row[r].a[i];
    const double start = max2(m->clock[r], m->sum.end[a->stage]);
    if (a->type == SA_WAIT_REDUCE_GRAD && m->sum.begin[a->stage] < 0)
        return 0;
    set(m, r, i, start, start + cost(m, a));
    if (a->type == SA_REDUCE_GRAD) {
        m->sum.begin[a->stage] = max2(m->sum.last[r], start + cost(m, a));
        m->sum.last[r] = m->sum.begin[a->stage] + reduction(m, a->stage);
        m->sum.end[a->stage] = m->sum.last[r];
    }
    return 1;
}

static int advance(void *of, int r)
{
    Sim *m = of;
    const SchedRow *row = &m->s->row[r];
    int i = m->turn.cursor[r];
    const SchedAction *a = &row->a[i];
    if ((a->overlap & SCHED_PART) && m->c->overlap >= 0)
        return compound(m, r, i, sched_cell_end(row, i));
    if (a->type == SA_IDLE) {
        set(m, r, i, m->clock[r], m->clock[r]);
    } else if (sched_is_compute(a->type)) {
        double start = ready(m, a), end = start < 0 ? start : computed_at(m, a, start);
        if (start < 0)
            return 0;
        set(m, r, i, start, end);
        computed(m, a, end);
    } else if (sched_has_peer(a->type)) {
        communicate(m, r, i);
    } else if (sched_copies(a->type)) {
        copy_stash(m, r, i);
    } else if (a->type == SA_UNSHARD) {
        unshard(m, r, i);
    } else if (a->type == SA_WAIT_OFFLOAD) {
        double end = max2(m->clock[r], m->copied[sched_pair(m->s, a->stage, a->microbatch)]);
        set(m, r, i, end, end);
    } else if (a->type == SA_REDUCE_GRAD || a->type == SA_WAIT_REDUCE_GRAD) {
        if (!reduce(m, r, i))
            return 0;
    } else {
        set(m, r, i, m->clock[r], m->clock[r] + cost(m, a));
    }
    m->turn.cursor[r]++;
    return 1;
}

static int run(Sim *m, SchedError *e)
{
    const int r = sched_run(&m->turn, m->s, advance, m);
    return r < 0 ? SCHED_OK
                 : sched_refuse(e, m->s, r, m->turn.cursor[r], "this action can never begin");
}

/* ---- Results ---- */

static double bytes_of(const double *list, int stage) { return list ? list[stage] : 0; }

static SchedBytes held_of(const void *of, int stage)
{
    const SchedCosts *c = of;
    const double stash = bytes_of(c->bytes_stash, stage);
    return (SchedBytes){stash, stash > 0 ? bytes_of(c->bytes_late, stage) : 0,
                        bytes_of(c->bytes_saved, stage)};
}

static void summarize(const Schedule *s, const SchedCosts *c, SchedSim *o)
{
    double busy = 0, widest_busy = 0;
    for (int r = 0; r < s->ranks; r++) {
        double first = -1, last = 0;
        for (int i = 0; i < s->row[r].n; i++) {
            const SchedAction *a = &s->row[r].a[i];
            int whole = (a->overlap & SCHED_PART) && c->overlap >= 0,
                begins = !whole || i == 0 || o->start[r][i] > o->start[r][i - 1];
            if (!sched_is_compute(a->type))
                continue;
            if (first < 0 && a->type == SA_F)
                first = o->start[r][i];
            last = max2(last, o->end[r][i]);
            if (begins)
                o->busy[r] += o->end[r][i] - o->start[r][i];
        }
        for (int i = 0; i < s->row[r].n; i++)
            o->makespan = max2(o->makespan, o->end[r][i]);
        o->rank_span[r] = last - max2(first, 0);
        if (o->rank_span[r] > o->span) {
            o->span = o->rank_span[r];
            widest_busy = o->busy[r];
        }
        busy += o->busy[r];
        o->peak[r] = sched_live_rank(s, r);
        o->peak_bytes[r] = c->bytes_stash ? sched_most_held(s, r, held_of, c) : 0;
    }
    o->bubble = o->makespan > 0 ? 1 - busy / ((double)s->ranks * o->makespan) : 0;
    o->bubble_span = o->span > 0 ? 1 - widest_busy / o->span : 0;
    if (o->bubble < 0)
        o->bubble = 0;
    if (o->bubble_span < 0)
        o->bubble_span = 0;
}

int sched_sim_open(const Schedule *s, SchedSim *o)
{
    const size_t n = (size_t)s->ranks;
    *o = (SchedSim){.makespan = 0};
    o->busy = sched_room(&o->room, n, sizeof *o->busy);
    o->rank_span = sched_room(&o->room, n, sizeof *o->rank_span);
    o->peak = sched_room(&o->room, n, sizeof *o->peak);
    o->peak_bytes = sched_room(&o->room, n, sizeof *o->peak_bytes);
    o->start = sched_room(&o->room, n, sizeof *o->start);
    o->end = sched_room(&o->room, n, sizeof *o->end);
    for (size_t r = 0; r < n && !o->room.lost; r++) {
        o->start[r] = sched_room(&o->room, (size_t)s->row[r].n, sizeof **o->start);
        o->end[r] = sched_room(&o->room, (size_t)s->row[r].n, sizeof **o->end);
    }
    return !o->room.lost;
}

void sched_sim_free(SchedSim *o)
{
    pool_free(&o->room);
    *o = (SchedSim){.makespan = 0};
}

static int allocate(Sim *m, SchedError *e)
{
    const Schedule *s = m->s;
    size_t ranks = (size_t)s->ranks, stages = (size_t)s->stages, pairs = sched_pairs(s);
    size_t n = sched_graph_messages(m->g, s->microbatches);
    Pool *room = &m->room;
    m->remote = sched_room(room, (size_t)sched_graph_lanes(m->g), 1);
    m->clock = sched_room(room, ranks, sizeof *m->clock);
    m->engine = sched_room(room, ranks, sizeof *m->engine);
    m->sum.last = sched_room(room, ranks, sizeof *m->sum.last);
    m->sum.end = sched_room(room, stages, sizeof *m->sum.end);
    m->sum.begin = sched_room_unknown(room, stages);
    m->copied = sched_room(room, pairs, sizeof *m->copied);
    m->brought = sched_room(room, stages, sizeof *m->brought);
    sched_turns(&m->turn, s->ranks, room);
    m->forward = sched_room_unknown(room, pairs);
    m->backward = sched_room_unknown(room, pairs);
    m->arrive = sched_room_unknown(room, s->complete ? n : 0);
    if (room->lost || !sched_sim_open(s, m->out))
        return sched_nomem(e);
    for (int lane = 0; lane < 2 * m->g->n; lane++) {
        const SchedEdge *edge = &m->g->edge[lane / 2];
        m->remote[lane] = s->rank_of[edge->from] != s->rank_of[edge->to];
    }
    return SCHED_OK;
}

int sched_simulate_step(const Schedule *s, const SchedCosts *c, const double *length, SchedSim *out,
                        SchedError *e)
{
    SchedGraph g;
    Sim m = {0};
    int st;
    memset(out, 0, sizeof *out);
    if ((st = sched_graph_of(&g, s, c->edge, c->n_edge, NULL, 0, e)))
        return st;
    m.s = s;
    m.c = c;
    m.g = &g;
    m.out = out;
    m.length = length;
    if (!(st = allocate(&m, e)) && !(st = run(&m, e)))
        summarize(s, c, out);
    pool_free(&m.room);
    sched_graph_free(&g);
    if (st)
        sched_sim_free(out);
    return st;
}

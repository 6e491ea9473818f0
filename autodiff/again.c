/*
 * again.c - which parts of the stash R can compute again by themselves, from what else forward
 * keeps: what costs little per byte (Megatron-LM's selective recomputation, Korthikanti et al.
 * 2205.05198: the scores, softmax and dropout of attention; pools, copies, gathered rows).
 *
 * A node is cheap when it costs at most a SHARE, per byte of its results, of what the stage's
 * operations cost, weighted by their own work; or when it has no more operations than bytes that it
 * moves.  A value of the stash can be computed again when cheap nodes lead to it from what is there
 * in any case: other values of the stash, the model's inputs, parameters.  Values that need each
 * other, or a costly node together, are one component.  A component that costs more per byte than
 * a cheap node may is kept: two numbers a row for which the whole row would be read again.
 * Components are gathered to at most AGAIN_MOST parts, in the order of what they cost per byte;
 * those of equal cost (a model's blocks) in parts of 1, 2, 4, ... of them, so that a run can take
 * any number.
 *
 * Results have the same bits: additions are ordered by shapes, Dropout draws by counters.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff.h"

enum { SHARE = 6 };

typedef struct { double bytes, flops; Ids value; } Component;

typedef struct {
    Graph *g;
    Arena *a;
    const Stage *s;
    /* by value id */
    bool *kept, *there;             /* in the stash; there when R runs, or can be made from such */
    bool *again;                    /* in the stash, and can be made */
    uint32_t *of;                   /* position among the values that can be made */
    /* by node id */
    bool *cheap;
    uint32_t *seen;                 /* the value that came here last, + 1 */
    Ids list, join;                 /* values that can be made; union-find over them */
    double limit;                   /* operations per byte */
} Again;

static double bytes_moved(const Graph *g, const Node *n)
{
    double sum = (double)node_bytes(graph_sized(g), n);
    for (uint32_t i = 0; i < n->nin; i++)
        sum += (double)value_bytes(graph_sized(g), n->in[i]);
    return sum;
}

static void find_limit(Again *c)
{
    double work = 0, weighted = 0;
    for (uint32_t i = 0; i < c->s->forward.n; i++) {
        const Node *n = &c->g->node.at[c->s->forward.at[i]];
        double flops = (double)cost_flops(graph_sized(c->g), c->s->forward.at[i]),
               bytes = (double)node_bytes(graph_sized(c->g), n);
        work += flops;
        weighted += bytes > 0 ? flops * flops / bytes : 0;
    }
    c->limit = work > 0 ? weighted / work / SHARE : 0;
    c->limit = c->limit < 1 ? 1 : c->limit;
}

/* A running statistic is no longer what forward read.  And one member alone cannot do again what
 * all do together: each runs R where it likes. */
static bool reads_changed(const Again *c, const Node *n)
{
    for (uint32_t i = 0; i < n->nin; i++) {
        const Value *v = val(c->g, n->in[i]);
        if (v->kind == V_PARAM && c->g->param.at[v->param].stat)
            return true;
    }
    return false;
}

static bool is_there(const Again *c, ValueId v)
{
    const ValueKind kind = val(c->g, v)->kind;
    return kind == V_PARAM || kind == V_CONST || c->there[v];
}

/* Data lies in memory all the time; the loss scale as well. */
static void find_there(Again *c)
{
    const Stage *s = c->s;
    for (uint32_t i = 0; i < s->stash.n; i++)
        c->kept[s->stash.at[i]] = c->there[s->stash.at[i]] = true;
    for (uint32_t i = 0; i < s->input.n; i++)
        c->there[s->input.at[i].value] |= s->input.at[i].from == NONE;
    for (uint32_t i = 0; i < s->forward.n; i++) {
        const Node *n = &c->g->node.at[s->forward.at[i]];
        double flops = (double)cost_flops(graph_sized(c->g), s->forward.at[i]);
        bool made = (flops <= c->limit * (double)node_bytes(graph_sized(c->g), n) ||
                     flops <= bytes_moved(c->g, n)) &&
                    !reads_changed(c, n) && !op_is_collective(n->op);
        for (uint32_t j = 0; made && j < node_reads_training(n); j++)
            made = is_there(c, n->in[j]);
        c->cheap[s->forward.at[i]] = made;
        for (uint32_t o = 0; made && o < n->nout; o++) {
            ValueId v = n->out[o];
            c->there[v] = true;
            if (!c->kept[v])
                continue;
            c->again[v] = true;
            c->of[v] = c->list.n;
            vec_push(c->a, &c->list, v);
            vec_push(c->a, &c->join, c->of[v]);
        }
    }
}

static uint32_t find(Again *c, uint32_t i)
{
    while (c->join.at[i] != i)
        i = c->join.at[i] = c->join.at[c->join.at[i]];
    return i;
}

static void unite(Again *c, uint32_t i, uint32_t j)
{
    i = find(c, i), j = find(c, j);
    c->join.at[i > j ? i : j] = i > j ? j : i;
}

/* The nodes between value number i and what is there: what they cost; joins i with the values it
 * needs, and with those that need the same work. */
static void walk(Again *c, uint32_t i, Ids *stack, double *flops)
{
    stack->n = 0;
    vec_push(c->a, stack, c->list.at[i]);
    while (stack->n > 0) {
        ValueId v = stack->at[--stack->n];
        if (v != c->list.at[i] && c->kept[v]) {
            if (c->again[v])
                unite(c, i, c->of[v]);
            continue;
        }
        if (val(c->g, v)->kind != V_NODE || !c->cheap[val(c->g, v)->node])
            continue;
        NodeId id = val(c->g, v)->node;
        const Node *n = &c->g->node.at[id];
        double work = (double)cost_flops(graph_sized(c->g), id);
        bool mine = c->seen[id] == i + 1;
        if (c->seen[id] && !mine && work > bytes_moved(c->g, n))
            unite(c, i, c->seen[id] - 1);
        else if (!mine)
            flops[i] += work;
        c->seen[id] = i + 1;
        for (uint32_t j = 0; !mine && j < node_reads_training(n); j++)
            vec_push(c->a, stack, n->in[j]);
    }
}

static double per_byte(const Component *x) { return x->bytes > 0 ? x->flops / x->bytes : HUGE_VAL; }

static int by_cost(const void *x, const void *y)
{
    const Component *p = x, *q = y;
    double a = per_byte(p), b = per_byte(q);
    if (a != b)
        return a < b ? -1 : 1;
    if (p->bytes != q->bytes)
        return p->bytes > q->bytes ? -1 : 1;
    return p->value.at[0] < q->value.at[0] ? -1 : 1;
}

/* All components that pay, cheapest first; their number. */
static uint32_t components(Again *c, Component **list)
{
    uint32_t n = c->list.n, count = 0;
    double *flops = arena_array(c->a, double, n + 1);
    uint32_t *at = arena_array(c->a, uint32_t, n + 1);
    Component *x = arena_array(c->a, Component, n + 1);
    Ids stack = {0};
    for (uint32_t i = 0; i < n; i++)
        walk(c, i, &stack, flops);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t root = find(c, i);
        if (root == i)
            at[i] = count++;
        Component *to = &x[at[root]];
        to->bytes += (double)value_bytes(graph_sized(c->g), c->list.at[i]);
        to->flops += flops[i];
        vec_push(c->a, &to->value, c->list.at[i]);
    }
    qsort(x, count, sizeof *x, by_cost);
    while (count > 0 && per_byte(&x[count - 1]) > c->limit)
        count--;
    *list = x;
    return count;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void add_values(Again *c, Component *to, const Component *x)
{
    to->bytes += x->bytes;
    to->flops += x->flops;
    for (uint32_t i = 0; i < x->value.n; i++)
        vec_push(c->a, &to->value, x->value.at[i]);
}

/* Equal ones in 1, 2, 4, ...; then the smallest neighbours together while there are too many. */
static uint32_t gather(Again *c, const Component *x, uint32_t n, Component *part)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i, room = 1;
        while (end < n && x[end].bytes == x[i].bytes && x[end].flops == x[i].flops)
            end++;
        for (; i < end; room *= 2, count++)
            for (uint32_t k = 0; k < room && i < end; k++)
                add_values(c, &part[count], &x[i++]);
    }
    while (count > AGAIN_MOST) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < count; i++)
            if (part[i].bytes + part[i + 1].bytes < part[best].bytes + part[best + 1].bytes)
                best = i;
        add_values(c, &part[best], &part[best + 1]);
        memmove(&part[best + 1], &part[best + 2], (count - best - 2) * sizeof *part);
        count--;
    }
    return count;
}

/* The nodes that make the part's values, in forward's order.  Values of other parts are made too,
 * for they may be gone. */
static void make_part(Again *c, Stage *s, const Component *x)
{
    Graph *g = c->g;
    StageAgain part = {0};
    bool *need = arena_array(c->a, bool, g->value.n + 1);
    for (uint32_t i = 0; i < x->value.n; i++) {
        need[x->value.at[i]] = true;
        vec_push(g->arena, &part.value, x->value.at[i]);
    }
    part.node = graph_makers(g, g->arena, &s->forward, TRAINING, need, c->kept);
    vec_push(g->arena, &s->again, part);
}

static void again_stage(Graph *g, Stage *s)
{
    const uint32_t nv = g->value.n + 1, nn = g->node.n + 1;
    Again of = {.g = g, .s = s, .a = arena_within(g->arena)}, *c = &of;
    Component *x;
    c->kept = arena_array(c->a, bool, nv);
    c->there = arena_array(c->a, bool, nv);
    c->again = arena_array(c->a, bool, nv);
    c->of = arena_array(c->a, uint32_t, nv);
    c->cheap = arena_array(c->a, bool, nn);
    c->seen = arena_array(c->a, uint32_t, nn);
    find_limit(c);
    find_there(c);
    uint32_t n = components(c, &x);
    Component *part = arena_array(c->a, Component, n + 1);
    uint32_t parts = gather(c, x, n, part);
    for (uint32_t k = 0; k < parts; k++) /* what does not pay is kept */
        for (uint32_t i = 0; i < part[k].value.n; i++)
            c->kept[part[k].value.at[i]] = false;
    for (uint32_t k = 0; k < parts; k++)
        make_part(c, s, &part[k]);
    arena_free(c->a);
}

void stash_again(Pipe *p)
{
    if (p->whole)
        stash_again(p->whole);
    for (uint32_t i = 0; p->loss != NONE && i < p->stage.n; i++)
        if (p->stage.at[i].backward.n > 0)
            again_stage(p->graph, &p->stage.at[i]);
}

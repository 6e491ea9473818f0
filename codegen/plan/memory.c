/*
 * memory.c - the workspace of a function.  In: groups in order.  Out: an offset for every buffer
 * that dies with the call.
 *
 * Lifetimes are intervals of steps; offsets by greedy-by-size (Pisarchyk and Lee, 2001.03288): the
 * largest first, each at the lowest place that no buffer alive at the same time takes; where that
 * is more than the most that is alive at one step, also by size times lifetime, by first and by
 * last step, each followed by a climb, and where it stays a fiftieth more, from orders drawn at
 * random.  A nest's result takes the place of an operand that dies there when both are walked the
 * same way and no later pass reads the operand; when the result has a place outside the workspace
 * the operand is made there.
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

/* ---- packing --------------------------------------------------------------------------------- */

enum { CLIMB = 60, PACK_WORK = 4000000, DRAWS = 100 };  /* rounds; steps of all of them */

typedef struct { const Lifetime *l; uint32_t number; } Packed;

/* By size, then by first step, then by number. */
static int by_size(const void *a, const void *b)
{
    const Packed *x = a, *y = b;
    if (x->l->bytes != y->l->bytes)
        return x->l->bytes > y->l->bytes ? -1 : 1;
    return x->l->first != y->l->first ? (x->l->first < y->l->first ? -1 : 1)
                                      : (x->number > y->number) - (x->number < y->number);
}

static int by_area(const void *a, const void *b)
{
    const Packed *x = a, *y = b;
    double p = (double)x->l->bytes * (x->l->last - x->l->first + 1),
           q = (double)y->l->bytes * (y->l->last - y->l->first + 1);
    return p != q ? (p > q ? -1 : 1) : by_size(a, b);
}

static int by_first(const void *a, const void *b)
{
    const Packed *x = a, *y = b;
    return x->l->first != y->l->first ? (x->l->first < y->l->first ? -1 : 1) : by_size(a, b);
}

/* The same from the last step on. */
static int by_last(const void *a, const void *b)
{
    const Packed *x = a, *y = b;
    return x->l->last != y->l->last ? (x->l->last > y->l->last ? -1 : 1) : by_size(a, b);
}

/* Each at the lowest place where nothing alive at the same time stands; returns the total. */
static int64_t place_in_order(Lifetime *l, const Packed *order, uint32_t n, uint32_t *placed)
{
    int64_t total = 0;
    for (uint32_t np = 0; np < n; np++) {
        Lifetime *x = &l[order[np].number];
        int64_t at = 0;
        uint32_t j = 0;
        for (; j < np; j++) {                           /* placed[] is sorted by offset */
            const Lifetime *y = &l[placed[j]];
            if (y->last < x->first || x->last < y->first)
                continue;
            if (at + x->bytes <= y->offset)
                break;
            if (y->offset + y->bytes > at)
                at = y->offset + y->bytes;
        }
        x->offset = at;
        for (j = np; j > 0 && l[placed[j - 1]].offset > at; j--)
            placed[j] = placed[j - 1];
        placed[j] = order[np].number;
        if (at + x->bytes > total)
            total = at + x->bytes;
    }
    return total;
}

/* The first one that reaches the end goes half the way to the front. */
static void promote(const Lifetime *l, Packed *order, int64_t total)
{
    uint32_t k = 0;
    while (l[order[k].number].offset + l[order[k].number].bytes < total)
        k++;
    Packed it = order[k];
    for (uint32_t to = k / 2; k > to; k--)
        order[k] = order[k - 1];
    order[k] = it;
}

int64_t cg_live(const Lifetime *l, uint32_t n)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t now = 0;
        for (uint32_t j = 0; j < n; j++)
            now += l[j].first <= l[i].first && l[j].last >= l[i].first ? l[j].bytes : 0;
        most = now > most ? now : most;
    }
    return most;
}

typedef struct {
    Lifetime *l;
    uint32_t n, *placed;
    Packed *order;
    int64_t *best, least, bound, rounds;
} Packing;

/* From the order that stands, round by round. */
static void climb(Packing *p)
{
    for (int64_t r = 0; r <= p->rounds && p->least > p->bound; r++) {
        int64_t total = place_in_order(p->l, p->order, p->n, p->placed);
        for (uint32_t i = 0; total < p->least && i < p->n; i++)
            p->best[i] = p->l[i].offset;
        p->least = total < p->least ? total : p->least;
        promote(p->l, p->order, total);
    }
}

/* An order drawn at random, the same in every run. */
static void shuffle(Packing *p, uint64_t *state)
{
    for (uint32_t i = p->n; i > 1; i--) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        uint32_t j = (uint32_t)((*state >> 33) % i);
        Packed it = p->order[j];
        p->order[j] = p->order[i - 1];
        p->order[i - 1] = it;
    }
}

int64_t cg_pack(Arena *a, Lifetime *l, uint32_t n)
{
    static int (*const orders[])(const void *, const void *) = {by_size, by_area, by_first,
                                                                by_last};
    Packing p = {l, n, arena_array(a, uint32_t, n + 1), arena_array(a, Packed, n + 1),
                 arena_array(a, int64_t, n + 1), INT64_MAX, cg_live(l, n), 0};
    int64_t most = n ? PACK_WORK / ((int64_t)n * n) : 0;
    uint64_t state = 1;
    p.rounds = most > CLIMB ? CLIMB : most;
    for (uint32_t k = 0; n > 0 && k < sizeof orders / sizeof *orders; k++) {
        for (uint32_t i = 0; i < n; i++)
            p.order[i] = (Packed){&l[i], i};
        qsort(p.order, n, sizeof *p.order, orders[k]);
        climb(&p);
    }
    for (int draw = 0; draw < DRAWS && p.rounds == CLIMB && p.least * 50 > p.bound * 51; draw++) {
        shuffle(&p, &state);
        climb(&p);
    }
    for (uint32_t i = 0; i < n; i++)
        l[i].offset = p.best[i];
    return n ? p.least : 0;
}

/* ---- lifetimes ------------------------------------------------------------------------------- */

static void touch(Func *f, uint32_t buf, int step, bool write)
{
    Buffer *b = &f->buf.at[buf];
    if (b->cls == BUF_WORK && b->first < 0 && !write)
        BUG("value %u is read from the workspace before it is there", b->value);
    b->used = true;
    b->written |= write;
    if (b->first < 0)
        b->first = step;
    b->last = step;
}

static void lifetimes(Func *f)
{
    for (uint32_t i = 0; i < f->buf.n; i++) {
        f->buf.at[i].used = f->buf.at[i].written = false;
        f->buf.at[i].first = f->buf.at[i].last = -1;
    }
    for (uint32_t o = 0; o < f->order.n; o++) {
        const Group *k = &f->group.at[f->order.at[o]];
        for (uint32_t i = 0; k->nest && i < k->nest->arg.n; i++)
            touch(f, k->nest->arg.at[i].buf, (int)o, k->nest->arg.at[i].written);
        if (k->kind != G_CALL)
            continue;
        const Node *n = &f->g->node.at[k->member.at[0].node];
        /* of a convolution parts are still to come when what follows writes its first */
        int until = (int)o + cg_has_then(f, o);
        for (uint32_t i = 0; i < n->nin; i++)
            if (n->in[i] != NONE && cg_kernel_reads(f, n, i))
                touch(f, cg_ref(f, n->in[i])->buf, until, false);
        for (uint32_t i = 0; i < n->nout; i++)
            if (cg_kernel_writes(f, n, i))
                touch(f, cg_ref(f, n->out[i])->buf, (int)o, true);
    }
}

/* Is x read there, at the point where the store writes, or as a scalar of the row that the store
 * writes, before it? */
static bool read_before(const Nest *n, const Stmt *s, const Stmt *store)
{
    int last = n->nd - 1;
    bool picked = n->kind == NEST_ROW && nest_is_picked(s) && last == n->nouter;
    Lin stride[NEST_DIMS];
    memcpy(stride, s->stride, sizeof stride);
    /* one element of the row: read before any pass from its own on */
    if (picked)
        stride[last] = s->index[0].stride;
    if ((s->nindex && !picked) || s->nguard || s->type != store->type ||
        (s->row && !picked) != store->row ||
        !lin_eq(n->arg.at[s->arg].offset, n->arg.at[store->arg].offset) ||
        !lin_eq(s->base, store->base) || memcmp(stride, store->stride, sizeof stride) != 0)
        return false;
    if (s->row ? s->pass > store->pass : s->last > store->pass)
        return false;
    for (int d = 0; d < n->nd; d++)                     /* read once, written once */
        if (lin_is(stride[d], 0) && !(store->row && d >= n->nouter))
            return false;
    return true;
}

/* May the result of store y stand where x is?  x must be read only at the point where y is written,
 * and not afterwards. */
static bool in_place(const Nest *n, uint32_t x, uint32_t y)
{
    const Stmt *store = NULL;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_STORE && n->arg.at[n->stmt.at[i].arg].buf == y) {
            if (store)
                return false;
            store = &n->stmt.at[i];
        }
    if (!store || store->acc)
        return false;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if ((s->kind == S_LOAD || s->kind == S_STORE) && n->arg.at[s->arg].buf == x &&
            (s->kind == S_STORE || !read_before(n, s, store)))
            return false;
    }
    return true;
}

/* Memory that a function may fill with what it likes before its own value comes. */
static bool lends(BufClass c)
{
    return c == BUF_WORK || c == BUF_STASH || c == BUF_SAVED || c == BUF_OUT || c == BUF_DX;
}

/* Does the convolution before step o, which that follows part by part, read the buffer? */
static bool still_read(Func *f, int o, uint32_t buf)
{
    if (o == 0 || !cg_has_then(f, (uint32_t)o - 1))
        return false;
    const Node *n = &f->g->node.at[f->group.at[f->order.at[o - 1]].member.at[0].node];
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && cg_ref(f, n->in[i])->buf == buf)
            return true;
    return false;
}

/* Of a run entry by entry the first step and the last one: what they use is there all the time. */
static int run_begin(const Func *f, int o)
{
    while (f->group.at[f->order.at[o]].entry && !f->group.at[f->order.at[o]].entry->first)
        o--;
    return o;
}

static int run_end(const Func *f, int o)
{
    while (f->group.at[f->order.at[o]].entry && !f->group.at[f->order.at[o]].entry->last)
        o++;
    return o;
}

/* May a run that step o is of read the buffer for later entries?  What the run itself makes is of
   one entry each. */
static bool read_on(const Func *f, int o, const Buffer *b)
{
    return f->group.at[f->order.at[o]].entry && b->first < run_begin(f, o);
}

static void reuse(Func *f, uint32_t *same)
{
    for (uint32_t y = 0; y < f->buf.n; y++) {
        const Buffer *b = &f->buf.at[y];
        if (!lends(b->cls) || b->first < 0 || !b->written)
            continue;
        const Nest *n = f->group.at[f->order.at[b->first]].nest;
        if (!n || n->kind == NEST_COLUMN)
            continue;
        for (uint32_t i = 0; i < n->arg.n; i++) {
            uint32_t x = n->arg.at[i].buf;
            const Buffer *old = &f->buf.at[x];
            if (n->arg.at[i].written || x == y || old->cls != BUF_WORK || old->last != b->first ||
                old->first >= b->first || old->bytes != b->bytes || old->type != b->type ||
                same[x] != NONE || !in_place(n, x, y) || still_read(f, b->first, x) ||
                read_on(f, b->first, old))
                continue;
            same[x] = y;                                /* x's place goes on as y's */
            break;
        }
    }
}

void cg_memory(Func *f)
{
    lifetimes(f);
    uint32_t *same = arena_array(f->scratch, uint32_t, f->buf.n + 1),
             *owner = arena_array(f->scratch, uint32_t, f->buf.n + 1);
    Lifetime *l = arena_array(f->scratch, Lifetime, f->buf.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->buf.n; i++)
        same[i] = owner[i] = NONE;
    reuse(f, same);
    for (uint32_t i = 0; i < f->buf.n; i++)
        f->buf.at[i].over = NONE;
    for (uint32_t i = 0; i < f->buf.n; i++)
        if (same[i] != NONE)
            f->buf.at[same[i]].over = i;
    /* what ends outside was there all the time */
    for (uint32_t i = 0; i < f->buf.n; i++) {
        uint32_t end = i;
        while (same[end] != NONE)
            end = same[end];
        if (end != i && f->buf.at[end].cls != BUF_WORK) {
            f->buf.at[i].cls = f->buf.at[end].cls;
            f->buf.at[i].index = f->buf.at[end].index;
            f->buf.at[i].guest = true;
        }
    }
    bool *follows = arena_array(f->scratch, bool, f->buf.n + 1);
    for (uint32_t i = 0; i < f->buf.n; i++)
        if (same[i] != NONE)
            follows[same[i]] = true;
    for (uint32_t i = 0; i < f->buf.n; i++) {
        const Buffer *b = &f->buf.at[i];
        if (b->cls != BUF_WORK || !b->used || follows[i])
            continue;
        l[n] = (Lifetime){.bytes = cg_align(b->bytes), .first = run_begin(f, b->first)};
        for (uint32_t j = i; j != NONE; j = same[j]) {
            owner[j] = n;
            l[n].last = run_end(f, f->buf.at[j].last);
        }
        n++;
    }
    f->bytes_work = cg_pack(f->scratch, l, n);
    f->bytes_live = cg_live(l, n);
    for (uint32_t i = 0; i < f->buf.n; i++)
        if (owner[i] != NONE)
            f->buf.at[i].offset = l[owner[i]].offset;
    Stage *s = f->sg->stage;
    uint8_t bit = f->kind == F_WEIGHT ? 2 : f->kind >= F_BACKWARD ? 1 : 4;
    bool again = f->kind >= F_AGAIN;
    uint8_t *in = again ? f->sg->in_again : f->sg->in_read,
            *out = again ? f->sg->out_again : f->sg->out_read;
    if (again)
        bit = (uint8_t)(1 << (f->kind - F_AGAIN));
    for (uint32_t i = 0; i < f->buf.n; i++) {
        const Buffer *b = &f->buf.at[i];
        if (b->used && b->cls == BUF_IN && b->index < s->input.n)
            in[b->index] |= bit;
        if (b->used && b->cls == BUF_OUT && b->index < s->output.n)
            out[b->index] |= bit;
        if (b->used && b->cls == BUF_DY)
            f->sg->dy_read[b->index] |= bit;
    }
}

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
 * the operand is made there.  So does a result of a backward take the place of what the forward
 * keeps and nobody reads after it: the gradient of logits that of the logits.
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

/* ---- packing --------------------------------------------------------------------------------- */

enum { CLIMB = 60, PACK_WORK = 4000000, DRAWS = 100 };  /* rounds; steps of all of them */

typedef struct { const Lifetime *l; uint32_t number; } Packed;

static int rising(double x, double y) { return (x > y) - (x < y); }

/* By size, then by first step, then by number. */
static int by_size(const void *a, const void *b)
{
    const Packed *x = a, *y = b;
    int c = (x->l->bytes < y->l->bytes) - (x->l->bytes > y->l->bytes);
    c = c ? c : rising(x->l->first, y->l->first);
    return c ? c : rising(x->number, y->number);
}

static int by_area(const void *a, const void *b)
{
    const Packed *x = a, *y = b;
    int c = rising((double)y->l->bytes * (y->l->last - y->l->first + 1),
                   (double)x->l->bytes * (x->l->last - x->l->first + 1));
    return c ? c : by_size(a, b);
}

static int by_first(const void *a, const void *b)
{
    const Packed *x = a, *y = b;
    int c = rising(x->l->first, y->l->first);
    return c ? c : by_size(a, b);
}

/* The same from the last step on. */
static int by_last(const void *a, const void *b)
{
    const Packed *x = a, *y = b;
    int c = rising(y->l->last, x->l->last);
    return c ? c : by_size(a, b);
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
    b->last = step > b->last ? step : b->last;
}

void cg_lifetimes(Func *f)
{
    for (uint32_t i = 0; i < f->buf.n; i++) {
        f->buf.at[i].used = f->buf.at[i].written = false;
        f->buf.at[i].first = f->buf.at[i].last = -1;
    }
    for (uint32_t o = 0; o < f->order.n; o++) {
        const uint32_t ends = f->group.at[f->order.at[o]].until;
        /* of a convolution parts are still to come when what follows writes its first; what members
         * do together stands until it is ended, behind all that the step before that writes */
        const int until = (int)(ends ? ends : o) + cg_has_then(f, o);
        const Accesses *all = cg_accesses(f, o);
        for (uint32_t i = 0; i < all->n; i++) {
            const Access *x = &all->at[i];
            touch(f, x->buf, x->written ? (int)o : until, x->written);
            if (x->written && ends)
                touch(f, x->buf, until, false);
        }
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
    const bool follows = o > 0 && cg_has_then(f, (uint32_t)o - 1);
    const Accesses *all = follows ? cg_accesses(f, (uint32_t)o - 1) : NULL;
    bool is = false;
    for (uint32_t i = 0; all && i < all->n; i++)
        is |= all->at[i].buf == buf && !all->at[i].written;
    return is;
}

/* Does v show what stands there? */
static bool shows(const StageGen *sg, ValueId v, const Buffer *x)
{
    const Positions *p = &sg->position;
    for (;;) {
        bool here = x->cls == BUF_STASH ? idmap_get(&sg->stash.position, v) == x->index
                                        : idmap_get(&p->output, v) == x->index ||
                                              idmap_get(&p->shown, v) == x->index;
        const Value *y = val(sg->g, v);
        if (here || y->kind != V_NODE || !op_is_view(sg->g->node.at[y->node].op))
            return here;
        v = sg->g->node.at[y->node].in[0];
    }
}

/* Is what the forward or I has left there read by this function and none after it?  An output that
 * goes to other stages is the messages', one of a whole minibatch the runtime's. */
static bool ends_here(const Func *f, const Buffer *x)
{
    const Stage *s = f->sg->stage;
    bool kept = x->cls == BUF_STASH || (x->cls == BUF_SAVED && f->kind == F_WEIGHT) ||
                (x->cls == BUF_OUT && s->output.at[x->index].to.n == 0 && !f->sg->pipe->loss_whole);
    if (!kept || f->kind < F_BACKWARD || f->kind >= F_AGAIN)
        return false;
    for (uint32_t i = 0; f->kind == F_INPUT && i < s->backward_weight.n; i++) {
        const Node *n = &f->g->node.at[s->backward_weight.at[i]];
        for (uint32_t k = 0; k < n->nin; k++)
            if (n->in[k] != NONE && shows(f->sg, n->in[k], x))
                return false;
    }
    return true;
}

/* May y, which n makes, stand where x is, which dies there? */
static bool takes_place(Func *f, const Nest *n, uint32_t x, uint32_t y)
{
    const Buffer *old = &f->buf.at[x], *b = &f->buf.at[y];
    bool work = old->cls == BUF_WORK;
    return x != y && old->last == b->first && old->bytes == b->bytes && old->type == b->type &&
           (work ? old->first < b->first : !old->written && ends_here(f, old)) &&
           in_place(n, x, y) && !still_read(f, b->first, x);
}

/* The buffer in whose place y may stand, of the workspace or of those outside. */
static uint32_t operand_of(Func *f, uint32_t y, bool work, const uint32_t *same)
{
    const Nest *n = f->group.at[f->order.at[f->buf.at[y].first]].nest;
    for (uint32_t i = 0; n && n->kind != NEST_COLUMN && i < n->arg.n; i++) {
        uint32_t x = n->arg.at[i].buf;
        if (!n->arg.at[i].written && same[x] == NONE && (f->buf.at[x].cls == BUF_WORK) == work &&
            takes_place(f, n, x, y))
            return x;
    }
    return NONE;
}

static uint32_t end_of(const uint32_t *same, uint32_t x)
{
    while (same[x] != NONE)
        x = same[x];
    return x;
}

/* same: of each buffer, the one that goes on in its place. */
static void reuse(Func *f, uint32_t *same)
{
    for (int work = 1; work >= 0; work--)
        for (uint32_t y = 0; y < f->buf.n; y++) {
            Buffer *b = &f->buf.at[y];
            BufClass end = f->buf.at[end_of(same, y)].cls;
            bool inside = end == BUF_WORK || end == BUF_SAVED;
            if (!lends(b->cls) || b->first < 0 || !b->written || b->over != NONE ||
                (!work && !inside))
                continue;
            b->over = operand_of(f, y, work, same);
            if (b->over != NONE)
                same[b->over] = y;
        }
}

/* What begins or ends outside is there all the time. */
static void stand_outside(Func *f, const uint32_t *same)
{
    for (uint32_t i = 0; i < f->buf.n; i++) {
        uint32_t end = end_of(same, i);
        const Buffer first = f->buf.at[i], last = f->buf.at[end],
                     *host = first.cls == BUF_WORK ? &last : &first;
        if (first.over != NONE || end == i || host->cls == BUF_WORK)
            continue;
        if (last.cls == BUF_SAVED && host == &first)
            f->sg->saved.in.at[last.index] = (Standing){host->cls, host->index};
        for (uint32_t j = i; j != NONE; j = same[j])
            if (f->buf.at[j].cls != host->cls || f->buf.at[j].index != host->index) {
                f->buf.at[j].cls = host->cls;
                f->buf.at[j].index = host->index;
                f->buf.at[j].guest = true;
            }
    }
}

void cg_memory(Func *f)
{
    cg_lifetimes(f);
    uint32_t *same = arena_array(f->scratch, uint32_t, f->buf.n + 1),
             *owner = arena_array(f->scratch, uint32_t, f->buf.n + 1);
    Lifetime *l = arena_array(f->scratch, Lifetime, f->buf.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->buf.n; i++)
        same[i] = owner[i] = f->buf.at[i].over = NONE;
    reuse(f, same);
    stand_outside(f, same);
    for (uint32_t i = 0; i < f->buf.n; i++) {
        const Buffer *b = &f->buf.at[i];
        if (b->cls != BUF_WORK || !b->used || b->over != NONE)
            continue;
        l[n] = (Lifetime){.bytes = cg_align(b->bytes), .first = b->first};
        for (uint32_t j = i; j != NONE; j = same[j]) {
            owner[j] = n;
            l[n].last = f->buf.at[j].last;
        }
        n++;
    }
    f->bytes.work = cg_pack(f->scratch, l, n);
    f->bytes.live = cg_live(l, n);
    for (uint32_t i = 0; i < f->buf.n; i++)
        if (owner[i] != NONE)
            f->buf.at[i].offset = l[owner[i]].offset;
    Stage *s = f->sg->stage;
    uint8_t bit = f->kind == F_WEIGHT ? 2 : f->kind >= F_BACKWARD ? 1 : 4;
    bool again = f->kind >= F_AGAIN;
    uint8_t *in = again ? f->sg->reads.in_again : f->sg->reads.in,
            *out = again ? f->sg->reads.out_again : f->sg->reads.out;
    if (again)
        bit = (uint8_t)(1 << (f->kind - F_AGAIN));
    for (uint32_t i = 0; i < f->buf.n; i++) {
        const Buffer *b = &f->buf.at[i];
        if (b->used && b->cls == BUF_IN && b->index < s->input.n)
            in[b->index] |= bit;
        if (b->used && b->cls == BUF_OUT && b->index < s->output.n)
            out[b->index] |= bit;
        if (b->used && b->cls == BUF_DY)
            f->sg->reads.dy[b->index] |= bit;
    }
}

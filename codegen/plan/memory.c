/*
 * memory.c - the workspace of a function.  In: groups in order.  Out: an offset for every buffer
 * that dies with the call (base/file/pack.c).
 *
 * Lifetimes are intervals of steps.  A nest's result takes the place of an operand that dies there
 * when both are walked the same way and no later pass reads the operand; when the result has a
 * place outside the workspace the operand is made there.  So does a result of a backward take the
 * place of what the forward keeps and nobody reads after it: the gradient of logits that of the
 * logits.
 */
#include <string.h>

#include "plan.h"

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

int64_t cg_most_alive(const Func *f, const Packed *l, uint32_t n)
{
    int64_t most;
    if (!pack_most(l, n, (int)f->order.n + 1, &most, NULL))
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    return most;
}

static void place_work(Func *f, Packed *l, uint32_t n)
{
    static const PackSearch how = {.order = {{PACK_SIZE, PACK_FIRST},
                                             {PACK_AREA, PACK_SIZE, PACK_FIRST},
                                             {PACK_FIRST, PACK_SIZE},
                                             {PACK_LAST, PACK_SIZE, PACK_FIRST}},
                                   .orders = 4,
                                   .rounds = 60,
                                   .draws = 100,
                                   .work = 4000000};
    if (!pack_place(l, n, (int)f->order.n + 1, &how, &f->bytes.work))
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    f->bytes.live = cg_most_alive(f, l, n);
}

void cg_memory(Func *f)
{
    cg_lifetimes(f);
    uint32_t *same = arena_array(f->scratch, uint32_t, f->buf.n + 1),
             *owner = arena_array(f->scratch, uint32_t, f->buf.n + 1);
    Packed *l = arena_array(f->scratch, Packed, f->buf.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->buf.n; i++)
        same[i] = owner[i] = f->buf.at[i].over = NONE;
    reuse(f, same);
    stand_outside(f, same);
    for (uint32_t i = 0; i < f->buf.n; i++) {
        const Buffer *b = &f->buf.at[i];
        if (b->cls != BUF_WORK || !b->used || b->over != NONE)
            continue;
        l[n] = (Packed){.bytes = align_up(b->bytes), .first = b->first};
        for (uint32_t j = i; j != NONE; j = same[j]) {
            owner[j] = n;
            l[n].last = f->buf.at[j].last;
        }
        n++;
    }
    place_work(f, l, n);
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

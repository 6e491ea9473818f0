/*
 * memory.c - the workspace of a function.  In: groups in order.  Out: an offset for every buffer
 * that dies with the call.
 *
 * Lifetimes are intervals of steps; offsets by greedy-by-size: the largest first, each at the
 * lowest place that no buffer alive at the same time takes.  A nest's result takes the place of an
 * operand that dies there when both are walked the same way and no later pass reads the operand;
 * when the result has a place outside the workspace the operand is made there.
 */
#include <string.h>

#include "plan.h"

int64_t cg_pack(Arena *a, Lifetime *l, uint32_t n)
{
    uint32_t *order = arena_array(a, uint32_t, n + 1), *placed = arena_array(a, uint32_t, n + 1),
             np = 0;
    int64_t total = 0;
    /* by size, then by first step, then by number */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = i;
        for (; j > 0; j--) {
            const Lifetime *x = &l[order[j - 1]], *y = &l[i];
            if (x->bytes > y->bytes || (x->bytes == y->bytes && x->first <= y->first))
                break;
            order[j] = order[j - 1];
        }
        order[j] = i;
    }
    for (uint32_t i = 0; i < n; i++) {
        Lifetime *x = &l[order[i]];
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
        placed[j] = order[i];
        np++;
        if (at + x->bytes > total)
            total = at + x->bytes;
    }
    return total;
}

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
        for (uint32_t i = 0; i < n->nin; i++)
            if (n->in[i] != NONE && cg_kernel_reads(f, n, i))
                touch(f, cg_ref(f, n->in[i])->buf, (int)o, false);
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
                same[x] != NONE || !in_place(n, x, y))
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
        l[n] = (Lifetime){.bytes = cg_align(b->bytes), .first = b->first, .last = b->last};
        for (uint32_t j = i; j != NONE; j = same[j]) {
            owner[j] = n;
            l[n].last = f->buf.at[j].last;
        }
        n++;
    }
    f->bytes_work = cg_pack(f->scratch, l, n);
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

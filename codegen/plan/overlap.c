/*
 * overlap.c - what members do together is begun early and ended where its result is read.  In:
 * groups in order.  Out: collectives right behind what they read, and of those with others before
 * their first reader where that is (Group.until): the gradient of a layer's input travels while
 * that of its weights is computed.
 *
 * Operand, result and room stand from begin to end, so a collective is begun early only where the
 * function's most memory does not grow by it.  Collectives keep their order among each other, which
 * all members share.
 */
#include "plan.h"
#include "runtime/api/pp.h"

static const Node *meeting(const Func *f, uint32_t o)
{
    const Group *k = &f->group.at[f->order.at[o]];
    const Node *n = k->kind == G_CALL ? &f->g->node.at[k->member.at[0].node] : NULL;
    return n && op_is_collective(n->op) && n->op != OP_Shard ? n : NULL;
}

/* Does it use that memory, or write there? */
static bool touches(Func *f, uint32_t o, uint32_t buf, bool writes)
{
    const Accesses *all = cg_accesses(f, o);
    bool is = false;
    for (uint32_t i = 0; i < all->n; i++)
        is |= all->at[i].buf == buf && (all->at[i].written || !writes);
    return is;
}

/* Must the step at o stay on its side of the collective n? */
static bool depends(Func *f, uint32_t o, const Node *n)
{
    bool is = touches(f, o, cg_ref(f, n->in[0])->buf, true);
    for (uint32_t i = 0; i < n->nout; i++)
        is |= cg_kernel_writes(f, n, i) && touches(f, o, cg_ref(f, n->out[i])->buf, false);
    return is;
}

/* Does the step at o go on with the one before it, so that nothing may stand between? */
static bool goes_on(const Func *f, uint32_t o)
{
    const Group *k = o < f->order.n ? &f->group.at[f->order.at[o]] : NULL;
    return k && k->image;
}

/* Right behind what it reads, where that ends, and behind the collectives before it. */
static uint32_t earliest(Func *f, uint32_t o)
{
    uint32_t at = o;
    while (at > 0 && !meeting(f, at - 1) && !depends(f, at - 1, meeting(f, o)))
        at--;
    for (uint32_t i = 0; i < at; i++) {
        const uint32_t until = f->group.at[f->order.at[i]].until;
        at = until > at && depends(f, i, meeting(f, o)) ? until : at;
    }
    while (at < o && goes_on(f, at))
        at++;
    return at;
}

static uint32_t first_reader(Func *f, uint32_t o)
{
    uint32_t at = o + 1;
    while (at < f->order.n && !depends(f, at, meeting(f, o)))
        at++;
    while (at > o + 1 && goes_on(f, at))
        at--;
    return at;
}

/* What others end before goes along. */
static void move(Func *f, uint32_t from, uint32_t to)
{
    uint32_t g = f->order.at[from];
    for (uint32_t i = 0; i < f->group.n; i++) {
        uint32_t *u = &f->group.at[i].until;
        if (!*u) /* it is not begun early */
            continue;
        if (*u == from)
            *u = to;
        else if (*u >= to && *u < from)
            *u += 1;
        else if (*u > from && *u <= to)
            *u -= 1;
    }
    for (uint32_t i = from; i > to; i--)
        f->order.at[i] = f->order.at[i - 1];
    for (uint32_t i = from; i < to; i++)
        f->order.at[i] = f->order.at[i + 1];
    f->order.at[to] = g;
}

/* Of the workspace, at one step. */
static int64_t most_bytes(Func *f)
{
    Packed *at = arena_array(f->scratch, Packed, f->buf.n + 1);
    cg_lifetimes(f);
    for (uint32_t i = 0; i < f->buf.n; i++) {
        const Buffer *b = &f->buf.at[i];
        at[i] = (Packed){b->bytes, 0, b->cls == BUF_WORK ? b->first : -1, b->last};
    }
    return cg_most_alive(f, at, f->buf.n);
}

/* How many are under way when the step at o begins. */
static uint32_t under_way(const Func *f, uint32_t o)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < o; i++)
        n += f->group.at[f->order.at[i]].until > o;
    return n;
}

/* Is anything computed from there on? */
static bool computes(const Func *f, uint32_t o, uint32_t end)
{
    bool is = false;
    for (; o < end; o++) {
        const Group *k = &f->group.at[f->order.at[o]];
        is |= k->kind == G_CALL ? !meeting(f, o) : k->kind == G_NEST && k->nest;
    }
    return is;
}

/* was: room by group */
static bool begin_at(Func *f, uint32_t o, uint32_t from, uint32_t until, uint32_t *was,
                     int64_t most)
{
    Group *k = &f->group.at[f->order.at[o]];
    if (!(computes(f, from, o) || computes(f, o + 1, until)) ||
        under_way(f, from) + 1 >= PP_AT_ONCE)
        return false;
    for (uint32_t i = 0; i < f->group.n; i++)
        was[i] = f->group.at[i].until;
    move(f, o, from);
    for (uint32_t i = 0; i < from; i++) /* what it reads ends before it */
        if (from < o && f->group.at[f->order.at[i]].until == from + 1 &&
            depends(f, i, meeting(f, from)))
            f->group.at[f->order.at[i]].until = from;
    k->until = until; /* behind both places: nothing has moved there */
    if (most_bytes(f) <= most) {
        uint32_t n = under_way(f, from) + 1;
        f->at_once = n > f->at_once ? n : f->at_once;
        return true;
    }
    move(f, from, o);
    for (uint32_t i = 0; i < f->group.n; i++)
        f->group.at[i].until = was[i];
    return false;
}

void cg_overlap(Func *f)
{
    int64_t most = -1;
    uint32_t *was = arena_array(f->scratch, uint32_t, f->group.n + 1);
    for (uint32_t o = 0; o < f->order.n; o++) {
        if (!meeting(f, o))
            continue;
        most = most < 0 ? most_bytes(f) : most;
        uint32_t from = earliest(f, o), until = first_reader(f, o);
        if (!begin_at(f, o, from, until, was, most))
            begin_at(f, o, o, until, was, most);
    }
}

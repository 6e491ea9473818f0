/*
 * order.c - which groups a group needs, and whether one more need would close a circle.  In: the
 * groups as they are opened, grow and merge.  Out: their dependencies, and the order of execution.
 *
 * While groups grow they stand in a row, each behind all that it needs.  A path from one group to
 * another runs through the stretch of the row between the two and nowhere else, so a question looks
 * at that stretch only: nodes join groups close by, and a graph twice as deep asks twice as many
 * questions of the same length.  A new dependency on a group further back moves what that one needs
 * to the front of the stretch (Marchetti-Spaccamela, Nanni, Rohnert: Maintaining a topological
 * order under edge insertions, 1996).
 */
#include "fuse.h"

/* ---- the row --------------------------------------------------------------------------------- */

/* A merged group is known by the number of the one it became part of. */
static uint32_t now(Func *f, uint32_t g)
{
    uint32_t end = g;
    while (f->group.at[end].into != NONE)
        end = f->group.at[end].into;
    while (g != end) {
        uint32_t next = f->group.at[g].into;
        f->group.at[g].into = end;
        g = next;
    }
    return end;
}

void order_open(Func *f, uint32_t g)
{
    f->group.at[g].into = NONE;
    f->group.at[g].place = f->fuse->row.n;
    vec_push(f->fuse->a, &f->fuse->row, g);
}

/* Marks d when it stands behind the place `low`; returns the last place marked so far. */
static uint32_t mark(Func *f, uint32_t d, uint32_t low, uint32_t last, uint32_t *marked)
{
    Group *x = &f->group.at[d];
    if (x->place <= low || x->mark == f->fuse->search)
        return last;
    x->mark = f->fuse->search;
    ++*marked;
    return x->place > last ? x->place : last;
}

/* Marks all groups behind g that those of `need` need or are, but for `self` and what only it
 * needs.  True when g is needed. */
static bool needs(Func *f, const Ids *need, uint32_t self, uint32_t g, uint32_t *last)
{
    uint32_t low = f->group.at[g].place, marked = 0;
    f->fuse->search++;
    *last = low;
    for (uint32_t i = 0; i < need->n; i++) {
        uint32_t d = now(f, need->at[i]);
        if (d != self && d != g)
            *last = mark(f, d, low, *last, &marked);
    }
    for (uint32_t p = *last; p > low && marked > 0; p--) {
        const Group *x = &f->group.at[f->fuse->row.at[p]];
        if (x->mark != f->fuse->search)
            continue;
        marked--;
        for (uint32_t i = 0; i < x->dep.n; i++) {
            uint32_t d = now(f, x->dep.at[i]);
            if (d == g)
                return true;
            mark(f, d, low, *last, &marked);
        }
    }
    return false;
}

bool order_acyclic(Func *f, uint32_t g, const Ids *need)
{
    uint32_t last;
    return !needs(f, need, NONE, g, &last);
}

/* Moves `on` and what it needs before g, which none of them needs. */
static void move_before(Func *f, uint32_t g, uint32_t on)
{
    uint32_t low = f->group.at[g].place, at = low, last;
    Ids need = {.at = &on, .n = 1};
    if (f->group.at[on].place < low)
        return;
    if (needs(f, &need, NONE, g, &last))
        BUG("groups %u and %u need each other", g, on);
    f->fuse->passed.n = 0;
    for (uint32_t p = low; p <= last; p++) {
        uint32_t x = f->fuse->row.at[p];
        if (f->group.at[x].mark != f->fuse->search) {
            vec_push(f->fuse->a, &f->fuse->passed, x);
            continue;
        }
        f->group.at[x].place = at;
        f->fuse->row.at[at++] = x;
    }
    for (uint32_t i = 0; i < f->fuse->passed.n; i++) {
        f->group.at[f->fuse->passed.at[i]].place = at;
        f->fuse->row.at[at++] = f->fuse->passed.at[i];
    }
}

void order_add(Func *f, uint32_t k, const Ids *on)
{
    for (uint32_t i = 0; i < on->n; i++) {
        uint32_t d = now(f, on->at[i]);
        bool there = d == k;
        for (uint32_t j = 0; j < f->group.at[k].dep.n && !there; j++)
            there = now(f, f->group.at[k].dep.at[j]) == d;
        if (there)
            continue;
        move_before(f, k, d);
        vec_push(f->fuse->a, &f->group.at[k].dep, d);
    }
}

void order_list(Func *f, uint32_t k, Ids *out)
{
    for (uint32_t i = 0; i < f->group.at[k].dep.n; i++) {
        uint32_t d = now(f, f->group.at[k].dep.at[i]);
        if (d != k)
            vec_push(f->fuse->a, out, d);
    }
}

/* Would a path leave the two and come back? */
bool order_may_merge(Func *f, uint32_t x, uint32_t y)
{
    uint32_t last;
    return !needs(f, &f->group.at[x].dep, x, y, &last) &&
           !needs(f, &f->group.at[y].dep, y, x, &last);
}

/* What needed `from` needs `into`, which takes over what it needs.  The one that stood in front has
 * the place of both. */
void order_merge(Func *f, uint32_t into, uint32_t from)
{
    Group *k = &f->group.at[into], *other = &f->group.at[from];
    if (k->place > other->place) {
        for (uint32_t i = 0; i < k->dep.n; i++) {
            uint32_t d = now(f, k->dep.at[i]);
            if (d != from && d != into)
                move_before(f, from, d);
        }
        uint32_t front = other->place;
        other->place = k->place;
        k->place = front;
        f->fuse->row.at[k->place] = into;
        f->fuse->row.at[other->place] = from;
    }
    other->into = into;
    order_add(f, into, &other->dep);
}

/* ---- what nodes need ------------------------------------------------------------------------- */

/* The pairs of f->after by node: dependencies that cannot be seen from operands. */
void order_begin(Func *f)
{
    /* the first of a node's pairs comes to stand at its head */
    for (uint32_t i = f->after.n; i > 0; i -= 2) {
        uint32_t *head = idmap_at(f->fuse->a, &f->fuse->earlier, f->after.at[i - 1]);
        vec_push(f->fuse->a, &f->fuse->earlier_of, ((Earlier){f->after.at[i - 2], *head}));
        *head = f->fuse->earlier_of.n - 1;
        *idmap_at(f->fuse->a, &f->fuse->tied, f->after.at[i - 1]) = 1;
        *idmap_at(f->fuse->a, &f->fuse->tied, f->after.at[i - 2]) = 1;
    }
}

bool order_is_tied(const Func *f, NodeId id) { return idmap_get(&f->fuse->tied, id) != NONE; }

bool order_needs(Func *f, NodeId id, uint32_t self, const Group *inside, Ids *out)
{
    const Node *n = &f->g->node.at[id];
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NONE || n->op == OP_Count)
            continue;
        ValueId root = cg_ref(f, n->in[i])->root;
        uint32_t g = f->group_of.at[root];
        if (g != NONE && g != self && !(inside && join_makes(inside, root)))
            vec_push(f->fuse->a, out, g);
    }
    for (uint32_t i = idmap_get(&f->fuse->earlier, id); i != NONE;
         i = f->fuse->earlier_of.at[i].next) {
        uint32_t g = f->group_of.at[f->g->node.at[f->fuse->earlier_of.at[i].node].out[0]];
        if (g == self)
            return false;
        if (g != NONE)
            vec_push(f->fuse->a, out, g);
    }
    return true;
}

/* ---- masks whose number the host asks for ---------------------------------------------------- */

/* Products over the rows of a mask come in waves: one is a wave later than the products of this
   kind that its mask depends on. */
typedef struct {
    uint32_t *of;                   /* by group; 0: it is no such product */
    Ids *masks;                     /* by wave: the groups that make its masks */
} Waves;

static bool packs(const Func *f, uint32_t g)
{
    const Group *k = &f->group.at[g];
    const Node *n = k->kind == G_CALL ? &f->g->node.at[k->member.at[0].node] : NULL;
    return n && n->op == OP_PackedMatMul && cg_is_product(f, n);
}

/* In: f->order, any that will do.  False: there are no such products. */
static bool waves(Func *f, Waves *w)
{
    uint32_t products = 0;
    for (uint32_t o = 0; o < f->order.n; o++)
        products += packs(f, f->order.at[o]);
    if (!f->sg->device || products == 0)
        return false;
    /* latest: of a group and of all that it depends on */
    uint32_t *latest = arena_array(f->fuse->a, uint32_t, f->group.n + 1);
    w->of = arena_array(f->fuse->a, uint32_t, f->group.n + 1);
    w->masks = arena_array(f->fuse->a, Ids, products + 1);
    for (uint32_t o = 0; o < f->order.n; o++) {
        uint32_t g = f->order.at[o];
        const Ids *dep = &f->group.at[g].dep;
        for (uint32_t i = 0; i < dep->n; i++) {
            uint32_t d = latest[now(f, dep->at[i])];
            latest[g] = d > latest[g] ? d : latest[g];
        }
        if (!packs(f, g))
            continue;
        ValueId mask = f->g->node.at[f->group.at[g].member.at[0].node].in[2];
        uint32_t made = f->group_of.at[cg_ref(f, mask)->root];
        made = made == NONE ? NONE : now(f, made);
        w->of[g] = 1 + (made == NONE ? 0 : latest[made]);
        latest[g] = w->of[g] > latest[g] ? w->of[g] : latest[g];
        if (made != NONE)
            vec_push(f->fuse->a, &w->masks[w->of[g]], made);
    }
    return true;
}

/* ---- the order of execution ------------------------------------------------------------------ */

/* before: what comes first, though the group does not need all of it */
typedef struct { uint32_t group, next; Ids before; } Visit;

/* The masks of a wave, for the first of its products. */
static Visit visit(Func *f, uint32_t g, Waves *w)
{
    Visit v = {.group = g};
    f->group.at[g].mark = f->fuse->search;
    if (w && w->of[g]) {
        v.before = w->masks[w->of[g]];
        w->masks[w->of[g]].n = 0;
    }
    return v;
}

/* Depth first, so that each group comes right before its first reader where it can. */
static void sort(Func *f, Waves *w)
{
    VEC(Visit) open = {0};
    f->fuse->search++;
    f->order.n = 0;
    for (uint32_t g = 0; g < f->group.n; g++) {
        if (f->group.at[g].member.n == 0 || f->group.at[g].mark == f->fuse->search)
            continue;
        vec_push(f->fuse->a, &open, visit(f, g, w));
        while (open.n > 0) {
            Visit *at = &open.at[open.n - 1];
            const Ids *dep = &f->group.at[at->group].dep;
            if (at->next == at->before.n + dep->n) {
                vec_push(f->a, &f->order, at->group);
                open.n--;
                continue;
            }
            uint32_t i = at->next++, d = i < at->before.n ? at->before.at[i]
                                                          : now(f, dep->at[i - at->before.n]);
            if (f->group.at[d].mark != f->fuse->search)
                vec_push(f->fuse->a, &open, visit(f, d, w));
        }
    }
}

/* On a device the masks of a wave come before the first of its products.  They depend on earlier
   waves alone, and so on no group that is still open then. */
void order_sort(Func *f)
{
    Waves w;
    sort(f, NULL);
    if (waves(f, &w))
        sort(f, &w);
}

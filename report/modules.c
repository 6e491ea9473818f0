/*
 * modules.c - the model as boxes that a page has room for: modules of its scopes, not nodes.
 *
 * In: a Pipe.  Out: boxes, each in one stage, and what goes from one to another, without circles;
 * at most MOST_BOXES modules, unless there are more stages.
 *
 * The tree of scopes is opened level by level, modules that are built alike (h.#.attn) together,
 * for as long as the boxes have room.  Numbered siblings are opened in two steps: a run of them is
 * one box a stage at first.  Nodes of an open module that lie in none of its children stand for
 * themselves, as "Add".
 *
 * Boxes of one module may depend on each other by way of others, as what is before and after a
 * residual branch does.  So nodes get a level: the most changes of box on a way to them.  Those of
 * one box and level depend on each other by way of none; pieces of one module are then joined again
 * where no way leads out of one and into the other.
 */
#include <stdlib.h>
#include <string.h>

#include "modules.h"

enum { MOST_BOXES = 30, MOST_LAYERS = 22, DEEPEST = 64, MOST_JOINED = 200 };

static const Origin *origin_of(const Modules *m, const Item *it)
{
    const Graph *g = graph_of(m->p, it->stage);
    uint32_t o = g->node.at[it->node].origin;
    return o < g->origin.n ? &g->origin.at[o] : NULL;
}

/* autodiff/loss.c made it. */
static bool is_loss(const Origin *o) { return o && o->index == NONE && !strcmp(o->name, "loss"); }

/* ---- the tree of scopes ---- */

static size_t part_length(const char *s) { return strcspn(s, "."); }

static bool numbered(const char *part, size_t n)
{
    return n > 0 && strspn(part, "0123456789") >= n;
}

/* The first `end` bytes of a scope, numbers as '#': modules that are built alike have one pattern.
 */
static const char *pattern(Arena *a, const char *scope, size_t end)
{
    char *out = arena_alloc(a, end + 1), *to = out;
    for (size_t i = 0; i < end;) {
        size_t n = part_length(scope + i);
        n = i + n > end ? end - i : n;
        if (numbered(scope + i, n))
            *to++ = '#';
        else
            to = mempcpy(to, scope + i, n);
        i += n;
        if (i < end)
            *to++ = scope[i++];
    }
    return out;
}

static void find_children(Modules *m, const char *scope)
{
    int depth = 0;
    for (size_t at = part_length(scope); scope[at] && ++depth < DEEPEST;
         at += 1 + part_length(scope + at + 1))
        *strmap_at(&m->children, pattern(m->a, scope, at)) = 1;
}

static bool is_open(const Modules *m, const char *what)
{
    return strmap_get(&m->opened, what) == 1;
}

static uint32_t add_key(Modules *m, uint32_t stage, Key k)
{
    uint32_t *slot =
        strmap_at(&m->key_of, arena_printf(m->once, "%u %d %s", stage, (int)k.kind, k.path));
    if (*slot == NONE) {
        *slot = m->key.n;
        vec_push(m->a, &m->key, k);
    }
    return *slot;
}

/* The box that a node of this scope belongs to, as far as the tree is open. */
static Key key_of_scope(const Modules *m, const char *scope)
{
    size_t at = 0;
    for (int depth = 0; scope[at] && depth < DEEPEST; depth++) {
        size_t begin = at ? at + 1 : 0, end = begin + part_length(scope + begin);
        const char *this = pattern(m->once, scope, end),
                   *apart = arena_printf(m->once, "%s apart", this);
        if (numbered(scope + begin, end - begin) && !is_open(m, apart))
            return (Key){KEY_RUN, arena_strndup(m->once, scope, at), apart};
        if (!is_open(m, this))
            return (Key){KEY_MODULE, arena_strndup(m->once, scope, end),
                         strmap_get(&m->children, this) == 1 ? this : NULL};
        at = end;
    }
    return (Key){KEY_OWN, arena_strndup(m->once, scope, at), NULL};
}

static uint32_t key_at(Modules *m, const Item *it)
{
    if (is_loss(origin_of(m, it)))
        return add_key(m, it->stage, (Key){KEY_LOSS, "", NULL});
    uint32_t *slot = idmap_at(m->once, &m->key_memo, pair(it->stage, it->scope));
    if (*slot == NONE)
        *slot = add_key(m, it->stage, key_of_scope(m, m->scope.at[it->scope]));
    return *slot;
}

/* ---- items ---- */

static uint32_t scope_id(Modules *m, const Origin *o)
{
    const char *scope = o && o->scope ? o->scope : "";
    uint32_t *slot = strmap_at(&m->scope_of, scope);
    if (*slot == NONE) {
        *slot = m->scope.n;
        vec_push(m->a, &m->scope, scope);
        find_children(m, scope);
    }
    return *slot;
}

static void find_items(Modules *m)
{
    for (uint32_t t = 0; t < m->p->stage.n; t++) {
        const Ids *list = &pipe_programs(m->p, t)->forward;
        for (uint32_t i = 0; i < list->n; i++) {
            Item it = {.node = list->at[i], .stage = t};
            const Node *n = node_of(m, &it);
            it.scope = scope_id(m, origin_of(m, &it));
            it.flops = cost_flops(graph_of(m->p, t), it.node);
            for (uint32_t k = 0; k < n->nout; k++)
                *idmap_at(m->a, &m->maker, pair(t, n->out[k])) = m->item.n;
            vec_push(m->a, &m->item, it);
        }
    }
    m->reader = arena_array(m->a, Ids, m->item.n);
    for (uint32_t i = 0; i < m->item.n; i++) {
        const Node *n = node_of(m, &m->item.at[i]);
        for (uint32_t k = 0; k < n->nin; k++) {
            uint32_t from = idmap_get(&m->maker, pair(m->item.at[i].stage, n->in[k]));
            if (from != NONE && from < i)
                vec_push(m->a, &m->reader[from], i);
        }
    }
}

/* ---- one division into boxes ---- */

static void find_levels(Modules *m)
{
    for (uint32_t i = 0; i < m->item.n; i++)
        m->item.at[i].level = 0;
    for (uint32_t i = 0; i < m->item.n; i++)
        for (uint32_t k = 0; k < m->reader[i].n; k++) {
            const Item *it = &m->item.at[i];
            Item *to = &m->item.at[m->reader[i].at[k]];
            uint32_t level = it->level + (it->key != to->key);
            to->level = level > to->level ? level : to->level;
        }
}

/* Boxes by key and level, in the order in which they begin. */
static void number_boxes(Modules *m)
{
    IdMap box = {0};
    m->boxes = 0;
    for (uint32_t i = 0; i < m->item.n; i++) {
        Item *it = &m->item.at[i];
        uint32_t *slot = idmap_at(m->once, &box, pair(it->key, it->level));
        if (*slot == NONE)
            *slot = m->boxes++;
        it->box = *slot;
    }
}

/* By box x, y: does y read x, in the same stage? */
static bool *box_edges(const Modules *m)
{
    bool *edge = arena_array(m->once, bool, (size_t)m->boxes * m->boxes);
    for (uint32_t i = 0; i < m->item.n; i++)
        for (uint32_t k = 0; k < m->reader[i].n; k++) {
            uint32_t x = m->item.at[i].box, y = m->item.at[m->reader[i].at[k]].box;
            if (x != y)
                edge[(size_t)x * m->boxes + y] = true;
        }
    return edge;
}

/* Does a way lead from x to y by another box? */
static bool by_way(const Modules *m, const bool *edge, uint32_t x, uint32_t y)
{
    uint32_t n = m->boxes, *stack = arena_array(m->once, uint32_t, n), top = 0;
    bool *seen = arena_array(m->once, bool, n);
    for (uint32_t at = x;; at = stack[--top]) {
        for (uint32_t k = 0; k < n; k++) {
            if (!edge[(size_t)at * n + k] || seen[k])
                continue;
            if (k == y && at != x)
                return true;
            if (k != y) {
                seen[k] = true;
                stack[top++] = k;
            }
        }
        if (!top)
            return false;
    }
}

static void join(bool *edge, uint32_t n, uint32_t x, uint32_t y)
{
    for (uint32_t k = 0; k < n; k++) {
        edge[(size_t)x * n + k] |= edge[(size_t)y * n + k];
        edge[(size_t)k * n + x] |= edge[(size_t)k * n + y];
        edge[(size_t)y * n + k] = edge[(size_t)k * n + y] = false;
    }
    edge[(size_t)x * n + x] = false;
}

/* Boxes of one module that can be one are; then their numbers are close again. */
static void join_boxes(Modules *m, bool *edge)
{
    uint32_t n = m->boxes, *key = arena_array(m->once, uint32_t, n),
             *into = arena_array(m->once, uint32_t, n);
    for (uint32_t i = 0; i < m->item.n; i++)
        key[m->item.at[i].box] = m->item.at[i].key;
    for (uint32_t x = 0; x < n; x++)
        into[x] = x;
    for (uint32_t x = 0; x < n; x++)
        for (uint32_t y = x + 1; y < n && into[x] == x && m->key.at[key[x]].kind != KEY_OWN; y++)
            if (key[x] == key[y] && into[y] == y && !by_way(m, edge, x, y) &&
                !by_way(m, edge, y, x)) {
                join(edge, n, x, y);
                into[y] = x;
            }
    uint32_t *number = arena_array(m->once, uint32_t, n);
    m->boxes = 0;
    for (uint32_t x = 0; x < n; x++)
        number[x] = into[x] == x ? m->boxes++ : number[into[x]];
    for (uint32_t i = 0; i < m->item.n; i++)
        m->item.at[i].box = number[m->item.at[i].box];
}

/* Boxes on the longest way through each stage, over all of them. */
static void count_layers(Modules *m)
{
    bool *edge = box_edges(m);
    uint32_t n = m->boxes, *depth = arena_array(m->once, uint32_t, n),
             *most = arena_array(m->once, uint32_t, m->p->stage.n);
    for (uint32_t round = 0, more = 1; more && round <= n; round++) {
        more = 0;
        for (uint32_t x = 0; x < n; x++)
            for (uint32_t y = 0; y < n; y++)
                if (edge[(size_t)x * n + y] && depth[y] < depth[x] + 1) {
                    depth[y] = depth[x] + 1;
                    more = 1;
                }
    }
    m->layers = 0;
    for (uint32_t i = 0; i < m->item.n; i++) {
        uint32_t *high = &most[m->item.at[i].stage], d = depth[m->item.at[i].box] + 1;
        *high = d > *high ? d : *high;
    }
    for (uint32_t t = 0; t < m->p->stage.n; t++)
        m->layers += most[t];
}

/* Items to boxes, as far as the tree is open. */
static void divide(Modules *m)
{
    if (m->once)
        arena_free(m->once);
    m->once = arena_within(m->a);
    m->key.n = 0;
    m->key_of = (StrMap){.arena = m->once};
    m->key_memo = (IdMap){0};
    for (uint32_t i = 0; i < m->item.n; i++)
        m->item.at[i].key = key_at(m, &m->item.at[i]);
    find_levels(m);
    number_boxes(m);
    m->layers = 0;
    if (m->boxes > MOST_JOINED)
        return;
    join_boxes(m, box_edges(m));
    count_layers(m);
}

/* ---- how far the tree is opened ---- */

typedef struct {
    const char *name;
    uint32_t level;
    double flops;
} Pattern;
typedef VEC(Pattern) Patterns;

/* Numbered siblings come apart before they are opened. */
static uint32_t level_of(const char *pattern)
{
    uint32_t level = 1;
    for (const char *s = pattern; *s; s++)
        level += *s == '.' ? 2 : 0;
    return level + !strstr(pattern, " apart");
}

/* What can be opened next: the patterns nearest to the root. */
static Patterns next_patterns(const Modules *m)
{
    Patterns all = {0}, next = {0};
    StrMap seen = {.arena = m->once};
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < m->item.n; i++) {
        const char *open = m->key.at[m->item.at[i].key].open;
        if (!open || strmap_get(&m->opened, open) != NONE)
            continue;
        uint32_t *slot = strmap_at(&seen, open);
        if (*slot == NONE) {
            *slot = all.n;
            vec_push(m->once, &all, ((Pattern){open, level_of(open), 0}));
            least = all.at[*slot].level < least ? all.at[*slot].level : least;
        }
        all.at[*slot].flops += 1 + (double)m->item.at[i].flops;
    }
    for (uint32_t i = 0; i < all.n; i++)
        if (all.at[i].level == least)
            vec_push(m->a, &next,
                     ((Pattern){arena_strdup(m->a, all.at[i].name), least, all.at[i].flops}));
    return next;
}

static bool open_or_not(Modules *m, const Pattern *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        *strmap_at(&m->opened, p[i].name) = 1;
    divide(m);
    if (m->boxes <= MOST_BOXES && m->layers <= MOST_LAYERS)
        return true;
    for (uint32_t i = 0; i < n; i++)
        *strmap_at(&m->opened, p[i].name) = 0;
    return false;
}

/* A level of the tree at a time; where it has no room, what most operations are in, alone. */
static void open_tree(Modules *m)
{
    double whole = 0;
    divide(m);
    for (uint32_t i = 0; i < m->item.n; i++)
        whole += 1 + (double)m->item.at[i].flops;
    for (;;) {
        Patterns next = next_patterns(m);
        if (!next.n)
            break;
        bool done = open_or_not(m, next.at, next.n);
        for (uint32_t i = 0; i < next.n && next.n > 1 && !done; i++)
            done = 2 * next.at[i].flops > whole && open_or_not(m, &next.at[i], 1);
        if (!done)
            divide(m);
    }
}

/* ---- boxes as they are shown ---- */

/* The kinds of a box's nodes in the file, in order, once each. */
static const char *kinds_of(const Modules *m, Arena *a, uint32_t box)
{
    enum { SHOWN = 3 };
    StrMap seen = {.arena = m->once};
    const char *text = "";
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->item.n; i++) {
        const Item *it = &m->item.at[i];
        const Origin *o = it->box == box ? origin_of(m, it) : NULL;
        const char *type = o && o->type && *o->type ? o->type : op_name(node_of(m, it)->op);
        if (it->box != box || *strmap_at(&seen, type) != NONE)
            continue;
        *strmap_at(&seen, type) = 1;
        if (n++ < SHOWN)
            text = arena_printf(a, "%s%s%s", text, *text ? ", " : "", type);
    }
    return n > SHOWN ? arena_printf(a, "%s, ...", text) : text;
}

/* A run's first and last module. */
static const char *run_name(const Modules *m, Arena *a, uint32_t box, const char *path)
{
    size_t skip = *path ? strlen(path) + 1 : 0;
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < m->item.n; i++)
        if (m->item.at[i].box == box) {
            uint64_t k = strtoull(m->scope.at[m->item.at[i].scope] + skip, NULL, 10);
            least = k < least ? k : least;
            most = k > most ? k : most;
        }
    const char *dot = *path ? "." : "";
    unsigned long long first = least, last = most;
    return least == most
               ? arena_printf(a, "%s%s%llu", path, dot, first)
               : arena_printf(a, "%s%s%llu ... %s%s%llu", path, dot, first, path, dot, last);
}

static void put_boxes(const Modules *m, Arena *a, ModuleGraph *out)
{
    vec_reserve(a, &out->box, m->boxes);
    out->box.n = m->boxes;
    for (uint32_t i = 0; i < m->item.n; i++) {
        const Item *it = &m->item.at[i];
        const Key *k = &m->key.at[it->key];
        ModuleBox *b = &out->box.at[it->box];
        b->flops = __builtin_add_overflow(b->flops, it->flops, &b->flops) ? INT64_MAX : b->flops;
        if (b->nodes++)
            continue;
        b->stage = it->stage;
        b->kind = k->kind == KEY_MODULE || k->kind == KEY_RUN ? BOX_MODULE : BOX_OPERATIONS;
        b->name = k->kind == KEY_LOSS  ? arena_printf(a, "loss: %s", m->p->loss_text)
                  : k->kind == KEY_OWN ? kinds_of(m, a, it->box)
                  : k->kind == KEY_RUN ? run_name(m, a, it->box, k->path)
                                       : arena_strdup(a, k->path);
    }
}

ModuleGraph module_graph(const Pipe *p, Arena *a)
{
    ModuleGraph out = {0};
    Modules m = {.p = p, .a = arena_within(a)};
    m.scope_of.arena = m.children.arena = m.opened.arena = m.a;
    find_items(&m);
    open_tree(&m);
    put_boxes(&m, a, &out);
    module_flows(&m, a, &out);
    arena_free(m.a);
    return out;
}

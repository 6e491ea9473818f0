/*
 * modules.c - the modules of each stage, as many as a page has room for, and what crosses.
 *
 * In: a Pipe.  Out: boxes, stage by stage in the order in which they begin, at most MOST_BOXES
 * unless there are more already when no module is open; and what a box sends into other stages.
 *
 * The tree of scopes is opened level by level, for as long as the boxes have room.  Numbered
 * siblings are opened in two steps: at first a run of them is one box a stage.  Nodes of an open
 * module that lie in none of its children stand for themselves, as "Add".
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "modules.h"

enum { MOST_BOXES = 30, DEEPEST = 64 };

typedef struct {
    const Node *node;
    const Origin *origin; /* NULL: none */
    uint32_t stage, box;
    int64_t flops;
} Item;

typedef enum { KEY_MODULE, KEY_RUN, KEY_OWN, KEY_LOSS } KeyKind;

/* What the nodes of a box have in common: the first n bytes of their scope. */
typedef struct {
    KeyKind kind;
    const char *scope;
    size_t n;
    uint32_t stage;
} Key;

typedef struct {
    const Pipe *p;
    Arena *a, *once; /* once: of one division into boxes */
    VEC(Item) item;
    StrMap inner; /* the scopes that others lie in */
    VEC(Key) key; /* by box: of its first node */
    uint32_t level;
    bool closed; /* something could be opened further */
} Modules;

/* ---- nodes ---- */

static const Graph *graph_of(const Pipe *p, uint32_t stage)
{
    return p->stage.at[stage].elsewhere && p->whole ? p->whole->graph : p->graph;
}

static const char *scope_of(const Item *it)
{
    return it->origin && it->origin->scope ? it->origin->scope : "";
}

static void find_inner(Modules *m, const char *scope)
{
    for (const char *dot = scope; (dot = strchr(dot, '.')) != NULL; dot++)
        *strmap_at(&m->inner, arena_strndup(m->a, scope, (size_t)(dot - scope))) = 1;
    *strmap_at(&m->inner, "") = 1;
}

static void find_items(Modules *m)
{
    const char *before = NULL;
    for (uint32_t t = 0; t < m->p->stage.n; t++) {
        const Ids *list = &pipe_programs(m->p, t)->forward;
        const Graph *g = graph_of(m->p, t);
        for (uint32_t i = 0; i < list->n; i++) {
            const Node *n = &g->node.at[list->at[i]];
            const Origin *o = n->origin < g->origin.n ? &g->origin.at[n->origin] : NULL;
            Item it = {n, o, t, NONE, cost_flops(g, list->at[i])};
            if (scope_of(&it) != before)
                find_inner(m, before = scope_of(&it));
            vec_push(m->a, &m->item, it);
        }
    }
}

/* ---- one division into boxes ---- */

/* Whose nodes with this scope are, as far as the tree is open: each name of the scope takes a
 * level, a number two. */
static Key key_of(Modules *m, const char *scope)
{
    size_t at = 0;
    for (uint32_t left = m->level; scope[at];) {
        const size_t begin = at ? at + 1 : 0, n = strcspn(scope + begin, ".");
        const bool numbered = n > 0 && strspn(scope + begin, "0123456789") >= n;
        if (left < 1u + numbered) {
            m->closed = true;
            return (Key){left ? KEY_RUN : KEY_MODULE, scope, at, NONE};
        }
        left -= 1u + numbered;
        at = begin + n;
    }
    return (Key){strmap_get(&m->inner, scope) == 1 ? KEY_OWN : KEY_MODULE, scope, at, NONE};
}

/* Items to boxes; autodiff/loss.c has made what has the origin "loss". */
static void divide(Modules *m)
{
    if (m->once)
        arena_free(m->once);
    m->once = arena_within(m->a);
    m->closed = false;
    m->key.n = 0;
    StrMap box = {.arena = m->once};
    for (uint32_t i = 0; i < m->item.n; i++) {
        Item *it = &m->item.at[i];
        const Origin *o = it->origin;
        const bool loss = o && o->index == NONE && !strcmp(o->name, "loss");
        if (i && !loss && it[-1].stage == it->stage && m->key.at[it[-1].box].kind != KEY_LOSS &&
            scope_of(&it[-1]) == scope_of(it)) {
            it->box = it[-1].box;
            continue;
        }
        Key k = loss ? (Key){.kind = KEY_LOSS, .scope = ""} : key_of(m, scope_of(it));
        k.stage = it->stage;
        uint32_t *slot = strmap_at(
            &box, arena_printf(m->once, "%u %d %.*s", it->stage, (int)k.kind, (int)k.n, k.scope));
        if (*slot == NONE) {
            *slot = m->key.n;
            vec_push(m->a, &m->key, k);
        }
        it->box = *slot;
    }
}

/* As far as the boxes have room. */
static void open_tree(Modules *m)
{
    m->level = 1;
    divide(m);
    while (m->closed && m->level < DEEPEST) {
        m->level++;
        divide(m);
        if (m->key.n <= MOST_BOXES)
            continue;
        m->level--;
        divide(m);
        break;
    }
}

/* ---- boxes as they are shown ---- */

/* The module, and the kinds of the box's nodes in the file, in order, once each. */
static const char *kinds_of(const Modules *m, Arena *a, uint32_t box)
{
    enum { SHOWN = 3 };
    StrMap seen = {.arena = m->once};
    const char *text = "";
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->item.n; i++) {
        const Item *it = &m->item.at[i];
        const char *type = it->origin && it->origin->type && *it->origin->type
                               ? it->origin->type
                               : op_name(it->node->op);
        if (it->box != box || *strmap_at(&seen, type) != NONE)
            continue;
        *strmap_at(&seen, type) = 1;
        if (n++ < SHOWN)
            text = arena_printf(a, "%s%s%s", text, *text ? ", " : "", type);
    }
    const Key *k = &m->key.at[box];
    return arena_printf(a, "%.*s%s%s%s", (int)k->n, k->scope, k->n ? ": " : "", text,
                        n > SHOWN ? ", ..." : "");
}

/* A run's first and last module. */
static const char *run_name(const Modules *m, Arena *a, uint32_t box)
{
    const Key *k = &m->key.at[box];
    const size_t skip = k->n ? k->n + 1 : 0;
    unsigned long long first = ULLONG_MAX, last = 0;
    for (uint32_t i = 0; i < m->item.n; i++)
        if (m->item.at[i].box == box) {
            unsigned long long number = strtoull(scope_of(&m->item.at[i]) + skip, NULL, 10);
            first = number < first ? number : first;
            last = number > last ? number : last;
        }
    const char *name = arena_printf(a, "%.*s%llu", (int)skip, k->scope, first);
    return first == last ? name
                         : arena_printf(a, "%s ... %.*s%llu", name, (int)skip, k->scope, last);
}

static int64_t plus(int64_t x, int64_t y)
{
    return __builtin_add_overflow(x, y, &x) ? INT64_MAX : x;
}

/* In the order of stages. */
static void put_boxes(Modules *m, Arena *a, ModuleGraph *out)
{
    for (uint32_t i = 0; i < m->key.n; i++) {
        const Key *k = &m->key.at[i];
        const char *name = k->kind == KEY_LOSS  ? arena_printf(a, "loss: %s", m->p->loss_text)
                           : k->kind == KEY_OWN ? kinds_of(m, a, i)
                           : k->kind == KEY_RUN ? run_name(m, a, i)
                                                : arena_strndup(a, k->scope, k->n);
        vec_push(a, &out->box, ((ModuleBox){name, k->stage, 0, 0, 0}));
    }
    for (uint32_t i = 0; i < m->item.n; i++) {
        ModuleBox *b = &out->box.at[m->item.at[i].box];
        b->nodes++;
        b->flops = plus(b->flops, m->item.at[i].flops);
    }
}

/* ---- what crosses ---- */

static uint64_t pair(uint32_t x, uint32_t y) { return (uint64_t)x << 32 | y; }

/* (stage, value) -> the box that makes it there, that reads it first */
typedef struct {
    IdMap made, read;
} Places;

static Places find_places(const Modules *m)
{
    Places at = {0};
    for (uint32_t i = 0; i < m->item.n; i++) {
        const Item *it = &m->item.at[i];
        for (uint32_t k = 0; k < it->node->nout; k++)
            *idmap_at(m->a, &at.made, pair(it->stage, it->node->out[k])) = it->box;
        for (uint32_t k = 0; k < it->node->nin; k++) {
            uint32_t *slot = idmap_at(m->a, &at.read, pair(it->stage, it->node->in[k]));
            *slot = *slot == NONE ? it->box : *slot;
        }
    }
    return at;
}

static void add_flow(Arena *a, ModuleGraph *out, ModuleFlow f)
{
    uint32_t k = 0;
    while (k < out->flow.n && (out->flow.at[k].from != f.from || out->flow.at[k].stage != f.stage ||
                               out->flow.at[k].shared != f.shared))
        k++;
    if (k == out->flow.n) {
        vec_push(a, &out->flow, f);
        return;
    }
    ModuleFlow *x = &out->flow.at[k];
    x->name = NULL;
    x->values++;
    x->bytes = plus(x->bytes, f.bytes);
}

static void put_activations(const Modules *m, const Places *at, Arena *a, ModuleGraph *out)
{
    for (uint32_t i = 0; i < m->p->edge.n; i++) {
        const Edge *e = &m->p->edge.at[i];
        const uint32_t from = idmap_get(&at->made, pair(e->from, e->value));
        if (e->kind == EDGE_ACTIVATION && from != NONE)
            add_flow(
                a, out,
                (ModuleFlow){from, e->to, false, 1, e->bytes, val(m->p->graph, e->value)->name});
    }
}

/* Parameters belong to the box that reads them first. */
static void put_parameters(const Modules *m, const Places *at, Arena *a, ModuleGraph *out)
{
    const Graph *g = m->p->graph;
    for (uint32_t t = 0; t < m->p->stage.n; t++)
        for (uint32_t k = 0; k < m->p->stage.at[t].param.n; k++) {
            const ParamUse *u = &m->p->stage.at[t].param.at[k];
            const Param *q = &g->param.at[u->param];
            const uint32_t here = idmap_get(&at->read, pair(t, q->value)),
                           there = idmap_get(&at->read, pair(u->from, q->value));
            if (here != NONE && u->use != USE_TRANSMIT && !q->stat)
                out->box.at[here].parameters =
                    plus(out->box.at[here].parameters, shape_elements(&q->shape));
            if (here != NONE && there != NONE && u->use != USE_OWN && u->from != t)
                add_flow(a, out,
                         (ModuleFlow){there, t, true, 1, value_bytes(g, q->value), q->name});
        }
}

ModuleGraph module_graph(const Pipe *p, Arena *a)
{
    ModuleGraph out = {0};
    Modules m = {.p = p, .a = arena_within(a)};
    m.inner.arena = m.a;
    find_items(&m);
    open_tree(&m);
    put_boxes(&m, a, &out);
    const Places at = find_places(&m);
    put_activations(&m, &at, a, &out);
    put_parameters(&m, &at, a, &out);
    arena_free(m.a);
    return out;
}

/*
 * param_twin.c - modules that are equal to others and read the same value: two norms of one input,
 * as initialised, are one node in the file.  In: modules of which no parameter is read.  Out: their
 * parameters and nodes again; or the names of those that train in their place, with the sum of the
 * gradients of both.
 *
 * As in param_equal.c the reader's fx node still names what it read ("%layer_norm_1"), which is
 * gone.  The module that computes the value instead is the twin of the lost one that has parameters
 * of the same names and stands nearest to the reader.  Where several are as near, who is whose
 * cannot be told.
 */
#include <string.h>

#include "param_fx.h"

/* A module by its path with the dot, ""; its parameters, by their entries in order. */
typedef struct {
    const char *path;
    Ids entry;
    bool lost, has_buffer;
} Module;
typedef VEC(Module) Modules;

/* One of the readers of what a lost module computed, and a module whose result it reads now. */
typedef struct { Gone read; uint32_t lost, from; bool is_sure; } Twin;
typedef VEC(Twin) Twins;

static size_t path_length(const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot ? (size_t)(dot - target) + 1 : 0;
}

static uint32_t module_of(Arena *a, StrMap *index, Modules *all, const char *target)
{
    const char *path = arena_strndup(a, target, path_length(target));
    uint32_t *slot = strmap_at(index, path);
    if (*slot == NONE) {
        *slot = all->n;
        vec_push(a, all, ((Module){.path = path, .lost = true}));
    }
    return *slot;
}

static void find_modules(const Fx *x, StrMap *index, Modules *out)
{
    const Params *p = x->p;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        SigKind kind = p->sig.entry[e].kind;
        if (kind != SIG_PARAMETER && kind != SIG_BUFFER)
            continue;
        uint32_t at = module_of(x->a, index, out, p->sig.entry[e].target);
        Module *m = &out->at[at];
        if (kind == SIG_BUFFER) {
            m->has_buffer = true;
            continue;
        }
        vec_push(x->a, &m->entry, e);
        m->lost &= fx_is_unread(x, e) && !fx_is_traced(x, e);
    }
}

static const char *leaf(const Fx *x, const Module *m, uint32_t i)
{
    return x->p->sig.entry[m->entry.at[i]].target + strlen(m->path);
}

/* The entry of a module with this name, or NONE. */
static uint32_t entry_named(const Fx *x, const Module *m, const char *name)
{
    for (uint32_t i = 0; i < m->entry.n; i++)
        if (!strcmp(leaf(x, m, i), name))
            return m->entry.at[i];
    return NONE;
}

/* Has `of`, which is known, parameters of the same names as the lost one? */
static bool is_alike(const Fx *x, const Module *lost, const Module *of)
{
    if (!lost->lost || of->lost || lost->entry.n != of->entry.n || lost->entry.n == 0)
        return false;
    for (uint32_t i = 0; i < lost->entry.n; i++) {
        uint32_t e = entry_named(x, of, leaf(x, lost, i));
        if (e == NONE || x->p->sig_param[e] == NONE)
            return false;
    }
    return true;
}

/* How many modules two paths have in common. */
static uint32_t common(const char *a, const char *b)
{
    uint32_t n = 0;
    for (size_t i = 0; a[i] && (a[i] == b[i] || (a[i] == '.' && !b[i])); i++) {
        n += a[i] == '.';
        if (!b[i])
            break;
    }
    return n;
}

/* The lost modules that the reader's operand may be of: those nearest to it and then to the module
 * that computes it now. */
static void find_twins(Fx *x, const Modules *all, uint32_t from, const Gone *o, Twins *out)
{
    uint32_t most = 0, first = out->n;
    for (uint32_t i = 0; i < all->n; i++) {
        const char *path = all->at[i].path;
        uint32_t near = 1 + 256 * common(path, o->reader->scope) + common(path, all->at[from].path);
        if (!is_alike(x, &all->at[i], &all->at[from]) || near < most)
            continue;
        if (near > most)
            out->n = first;
        most = near;
        vec_push(x->a, out, ((Twin){.read = *o, .lost = i, .from = from}));
    }
    if (out->n == first + 1)
        out->at[first].is_sure = o->is_sure;
}

static void find_readers(Fx *x, StrMap *index, const Modules *all, Twins *out)
{
    const GoneList gone = fx_find_gone(x, NULL);
    for (uint32_t i = 0; i < gone.n; i++) {
        const char *name = x->p->g->param.at[gone.at[i].id].name;
        uint32_t from = strmap_get(index, arena_strndup(x->a, name, path_length(name)));
        if (from != NONE)
            find_twins(x, all, from, &gone.at[i], out);
    }
}

/* The parameters of the module that is there, in the order of the lost one's. */
static uint32_t *params_of(const Fx *x, const Module *lost, const Module *from)
{
    uint32_t *id = arena_array(x->a, uint32_t, lost->entry.n);
    for (uint32_t i = 0; i < lost->entry.n; i++)
        id[i] = x->p->sig_param[entry_named(x, from, leaf(x, lost, i))];
    return id;
}

/* Is each reader of this module's one that can be told, and of one and the same other module? */
static bool can_separate(Fx *x, const Modules *all, const Twins *t, uint32_t lost, uint32_t from)
{
    const Module *m = &all->at[lost], *other = &all->at[from];
    Instead in = {.from = params_of(x, m, other), .n = m->entry.n};
    bool can = !m->has_buffer && !other->has_buffer;
    for (uint32_t i = 0; i < t->n && can; i++)
        if (t->at[i].lost == lost)
            can = t->at[i].is_sure && t->at[i].from == from &&
                  fx_can_compute_instead(x, t->at[i].read.reader, t->at[i].read.input, &in);
    return can;
}

static void separate(Fx *x, const Modules *all, const Twins *t, uint32_t lost, uint32_t from)
{
    const Module *m = &all->at[lost];
    uint32_t *id = params_of(x, m, &all->at[from]), *to = arena_array(x->a, uint32_t, m->entry.n);
    for (uint32_t i = 0; i < m->entry.n; i++) {
        to[i] = fx_make_equal(x, m->entry.at[i], id[i]);
        vec_push(x->a, &x->p->inferred,
                 arena_printf(x->a, "%s%s (equal to %s)", m->path, leaf(x, m, i),
                              x->p->g->param.at[id[i]].name));
    }
    size_t n = strlen(m->path);
    Instead in = {id, to, m->entry.n, arena_strndup(x->a, m->path, n - (n > 0)), NULL};
    for (uint32_t i = 0; i < t->n; i++)
        if (t->at[i].lost == lost)
            fx_redirect(x, t->at[i].read.reader, t->at[i].read.input,
                        fx_compute_instead(x, t->at[i].read.reader, t->at[i].read.input, &in));
}

static void say_merged(Fx *x, const Module *lost, const Module *from)
{
    const uint32_t *id = params_of(x, lost, from);
    for (uint32_t i = 0; i < lost->entry.n; i++)
        vec_push(x->a, &x->p->merged,
                 arena_printf(x->a, "%s (for %s%s)", x->p->g->param.at[id[i]].name, lost->path,
                              leaf(x, lost, i)));
}

void fx_separate_twins(Fx *x)
{
    Modules all = {0};
    Twins twin = {0};
    StrMap index = {.arena = x->a};
    find_modules(x, &index, &all);
    find_readers(x, &index, &all, &twin);
    for (uint32_t i = 0; i < twin.n; i++) {
        uint32_t lost = twin.at[i].lost, from = twin.at[i].from;
        bool first = true;
        for (uint32_t k = 0; k < i; k++)
            first &= twin.at[k].lost != lost;
        if (first && can_separate(x, &all, &twin, lost, from))
            separate(x, &all, &twin, lost, from);
        else if (first)
            say_merged(x, &all.at[lost], &all.at[from]);
    }
}

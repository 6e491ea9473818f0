/*
 * param_equal.c - equal parameters whose readers were merged too.  In: parameters that no node reads and that left no trace.
 * Out: parameters again, each with readers of its own; or the names of those that train in their place, with the sum of
 * the gradients of all.
 *
 * Equal initializers are merged into one, and then nodes that do the same with it.  A reader's fx node still names what
 * it read ("%add_1"); where no node bears that name, the value it reads instead (of "add") stands for both.  What that was
 * computed of, in the module of the lost parameter, is what took its place: the nodes between are made once more.
 */
#include <stdlib.h>
#include <string.h>

#include "param_fx.h"

static const RawNode *maker(const Fx *x, const char *name)
{
    uint32_t i = strmap_get(&x->maker, name);
    return i == NONE ? NULL : x->list->at[i];
}

static bool is_in(const char *target, const char *module, size_t n)
{
    return !strncmp(target, module, n) && !strchr(target + n, '.');
}

/* The parameter of this module that a value is computed of, among the nodes of one scope. */
static uint32_t computed_of(const Fx *x, const RawNode *n, const char *module, size_t length, int depth)
{
    const Params *p = x->p;
    uint32_t found = NONE;
    for (uint32_t k = 0; n && depth > 0 && k < n->nin && found == NONE; k++) {
        const Recipe *r = n->made ? n->made[k] : NULL;
        uint32_t id = r ? recipe_only_param(r) : NONE;
        if (id != NONE && is_in(p->g->param.at[id].name, module, length))
            return id;
        const RawNode *up = *n->in[k] ? maker(x, n->in[k]) : NULL;
        if (up && !strcmp(up->scope, n->scope))
            found = computed_of(x, up, module, length, depth - 1);
    }
    return found;
}

typedef struct { RawNode *reader; uint32_t input, id; const char *named; } Merged;
typedef VEC(Merged) MergedList;

/* The operand of a group's node that an argument names: by its position, else the only one of that kind. */
static void see_argument(Fx *x, const Group *g, const FxArg *arg, const char *module, size_t length, MergedList *out)
{
    enum { DEPTH = 6 };
    Merged found = {.id = NONE};
    uint32_t n = 0;
    for (uint32_t k = 0; k < g->node.n; k++)
        for (uint32_t j = 0; j < g->node.at[k]->nin; j++) {
            const RawNode *up = *g->node.at[k]->in[j] ? maker(x, g->node.at[k]->in[j]) : NULL;
            const Group *own = up ? fx_group(x, up) : NULL;
            size_t base = own ? fx_base(own->fx.name) : 0;
            if (!own || own == g || base != fx_base(arg->name) || strncmp(own->fx.name, arg->name, base))
                continue;
            if (n && arg->position != (int)j)
                continue;
            found = (Merged){g->node.at[k], j, computed_of(x, up, module, length, DEPTH), arg->name};
            n++;
        }
    if (found.id != NONE && !found.reader->inlined)
        vec_push(x->a, out, found);
}

/* Readers that name an fx node that is gone, of the kind of the one they read, computed of a parameter of this module. */
static void find_merged(Fx *x, const char *module, size_t length, MergedList *out)
{
    for (uint32_t i = 0; i < x->group.n; i++) {
        const Group *g = &x->group.at[i];
        for (uint32_t k = 0; k < g->fx.n; k++)
            if (strmap_get(&x->index, g->fx.arg[k].name) == NONE && strmap_get(&x->p->sig.by_arg, g->fx.arg[k].name) == NONE)
                see_argument(x, g, &g->fx.arg[k], module, length, out);
    }
}

/* ---- taking them apart again ---- */

static const Recipe *with_other(Arena *a, const Recipe *r, uint32_t from, uint32_t to)
{
    Recipe *out = arena_new_of(a, Recipe);
    for (uint32_t i = 0; r && i < r->n; i++) {
        Term t = r->at[i];
        if (t.op == OP_NONE && t.param == from)
            t.param = to;
        vec_push(a, out, t);
    }
    return r ? out : NULL;
}

/* The value computed of parameter `to` instead of `from`: copies of the nodes between; NULL: it does not depend on that one. */
static const char *other_value(Fx *x, const char *name, const char *scope, uint32_t from, uint32_t to, int depth)
{
    enum { MOST = 16 };
    Arena *a = x->a;
    const RawNode *n = depth > 0 && *name ? maker(x, name) : NULL;
    const char *key = arena_printf(a, "%s@%u", name, to), *in[MOST];
    bool depends = false;
    if (!n || strcmp(n->scope, scope) || n->nin > MOST)
        return NULL;
    if (strmap_get(&x->copy, key) != NONE)
        return key;
    for (uint32_t k = 0; k < n->nin; k++) {
        const Recipe *r = n->made ? n->made[k] : NULL;
        in[k] = r ? NULL : other_value(x, n->in[k], scope, from, to, depth - 1);
        for (uint32_t t = 0; r && t < r->n; t++)
            depends |= r->at[t].op == OP_NONE && r->at[t].param == from;
        depends |= in[k] != NULL;
    }
    if (!depends)
        return NULL;
    RawNode *own = arena_new_of(a, RawNode);
    *own = *n;
    own->copy_of = n;
    own->in = arena_array(a, const char *, n->nin);
    own->out = arena_array(a, const char *, n->nout);
    own->made = NULL;
    for (uint32_t k = 0; k < n->nin; k++) {
        own->in[k] = in[k] ? in[k] : n->in[k];
        if (n->made && n->made[k])
            param_use_made(x->p, own, k, with_other(a, n->made[k], from, to));
    }
    for (uint32_t k = 0; k < n->nout; k++) {
        own->out[k] = *n->out[k] ? arena_printf(a, "%s@%u", n->out[k], to) : "";
        *strmap_at(&x->copy, own->out[k]) = x->copies.n;
    }
    vec_push(a, &x->copies, own);
    return key;
}

static uint32_t make_equal(Fx *x, uint32_t entry, uint32_t id)
{
    Params *p = x->p;
    const Param q = p->g->param.at[id];
    const char *name = p->sig.entry[entry].target;
    uint32_t init = q.initializer ? strmap_get(&p->m->init_index, q.initializer) : NONE;
    bool plain = init != NONE && shape_elements(&q.shape) == shape_elements(&p->m->init.at[init].shape)
                 && (q.transposed || shape_equal(&q.shape, &p->m->init.at[init].shape));
    p->sig_param[entry] = plain ? param_new(p, name, init, q.transposed, true, false) : param_put(p, name, q.dtype, &q.shape, q.bytes);
    return p->sig_param[entry];
}

static void separate(Fx *x, const Merged *m, uint32_t entry)
{
    enum { DEPTH = 6 };
    uint32_t id = x->p->sig_param[entry] == NONE ? make_equal(x, entry, m->id) : x->p->sig_param[entry];
    const char *name = m->reader->in[m->input];
    const RawNode *up = maker(x, name);
    const char *other = up ? other_value(x, name, up->scope, m->id, id, DEPTH) : NULL;
    const char **in = arena_array(x->a, const char *, m->reader->nin);
    INSIST(other);
    for (uint32_t k = 0; k < m->reader->nin; k++)
        in[k] = k == m->input ? other : m->reader->in[k];
    m->reader->in = in;
    m->reader->renamed = true;
}

/* Each copy stands behind what it is a copy of. */
static void insert_copies(Fx *x)
{
    RawNodes all = {0};
    for (uint32_t i = 0; i < x->list->n; i++) {
        vec_push(x->a, &all, x->list->at[i]);
        for (uint32_t k = 0; k < x->copies.n; k++)
            if (x->copies.at[k]->copy_of == x->list->at[i])
                vec_push(x->a, &all, x->copies.at[k]);
    }
    *x->list = all;
}

static long by_number(const char *a, const char *b)
{
    size_t n = fx_base(a), k = fx_base(b);
    return (a[n] ? strtol(a + n + 1, NULL, 10) : 0) - (b[k] ? strtol(b + k + 1, NULL, 10) : 0);
}

/* How much of their names two parameters of a module share, up to a '_' or the number at the end: "time_mix_key", "time_mix_value". */
static size_t shared_name(const char *a, const char *b, size_t module)
{
    size_t n = 0, most = 0;
    for (a += module, b += module; a[n] && a[n] == b[n]; n++)
        if (a[n] == '_')
            most = n + 1;
    size_t i = n + strspn(a + n, "0123456789"), k = n + strspn(b + n, "0123456789");
    return !a[i] && !b[k] && n > most ? n : most;
}

/* Of the lost ones those that are called most like the one that took their place. */
static Ids alike(const Fx *x, const Ids *lost, uint32_t id, size_t module)
{
    const Params *p = x->p;
    const char *name = p->g->param.at[id].name;
    size_t most = 1;
    Ids out = {0};
    for (uint32_t i = 0; i < lost->n; i++) {
        size_t n = shared_name(p->sig.entry[lost->at[i]].target, name, module);
        if (n > most) {
            most = n;
            out.n = 0;
        }
        if (n == most)
            vec_push(x->a, &out, lost->at[i]);
    }
    return out;
}

/* As many lost parameters as names that are gone, in order; or one that all of them are. */
static void take_apart(Fx *x, const Ids *all, MergedList *m, size_t module)
{
    Params *p = x->p;
    VEC(const char *) name = {0};
    bool one = true;
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t k = 0;
        one &= m->at[i].id == m->at[0].id;
        while (k < name.n && by_number(name.at[k], m->at[i].named) < 0)
            k++;
        if (k < name.n && !strcmp(name.at[k], m->at[i].named))
            continue;
        vec_push(x->a, &name, NULL);
        for (uint32_t j = name.n - 1; j > k; j--)
            name.at[j] = name.at[j - 1];
        name.at[k] = m->at[i].named;
    }
    if (m->n == 0)
        return;
    Ids found = alike(x, all, m->at[0].id, module), *lost = &found;
    if (lost->n == 0)
        return;
    bool apart = one && (lost->n == 1 || lost->n == name.n);
    for (uint32_t i = 0; i < m->n && apart; i++) {
        uint32_t k = 0;
        while (strcmp(name.at[k], m->at[i].named))
            k++;
        separate(x, &m->at[i], lost->at[lost->n == 1 ? 0 : k]);
    }
    for (uint32_t i = 0; i < lost->n; i++) {
        const char *target = p->sig.entry[lost->at[i]].target;
        if (p->sig_param[lost->at[i]] != NONE)
            vec_push(x->a, &p->inferred, arena_printf(x->a, "%s (equal to %s)", target, p->g->param.at[m->at[0].id].name));
        else
            vec_push(x->a, &p->merged, arena_printf(x->a, "%s (for %s)", p->g->param.at[m->at[0].id].name, target));
    }
}

void fx_separate_equal(Fx *x)
{
    Params *p = x->p;
    StrMap seen = {.arena = x->a};
    x->maker.arena = x->copy.arena = x->a;
    for (uint32_t i = 0; i < x->list->n; i++)
        for (uint32_t k = 0; k < x->list->at[i]->nout; k++)
            if (!x->list->at[i]->dead && *x->list->at[i]->out[k])
                *strmap_at(&x->maker, x->list->at[i]->out[k]) = i;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const char *target = p->sig.entry[e].target, *dot = strrchr(target, '.');
        size_t n = dot ? (size_t)(dot - target) + 1 : 0;
        const char *module = arena_strndup(x->a, target, n);
        Ids lost = {0};
        MergedList merged = {0};
        if (strmap_get(&seen, module) != NONE)
            continue;
        *strmap_at(&seen, module) = 1;
        for (uint32_t k = e; k < p->sig.n; k++)
            if (is_in(p->sig.entry[k].target, module, n) && p->sig.entry[k].kind == SIG_PARAMETER && p->sig_param[k] == NONE && !x->used[k]
                && !x->alias[k])
                vec_push(x->a, &lost, k);
        if (lost.n)
            find_merged(x, module, n, &merged);
        take_apart(x, &lost, &merged, n);
    }
    if (x->copies.n)
        insert_copies(x);
}

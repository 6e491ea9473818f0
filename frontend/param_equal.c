/*
 * param_equal.c - equal parameters whose readers were merged too.  In: parameters that no node reads and that left no trace.
 * Out: the names of those that train in their place, with the sum of the gradients of all.
 *
 * Equal initializers are merged into one, and then nodes that do the same with it.  A reader's fx node still names what
 * it read ("%add_1"); where no node bears that name, the value it reads instead (of "add") stands for both.  What that was
 * computed of, in the module of the lost parameter, is what took its place.
 */
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

/* Does a reader name an fx node that is gone, of the kind of the one it reads?  Then that one's parameter, or NONE. */
static uint32_t merged_with(Fx *x, const Group *g, const char *module, size_t length)
{
    enum { DEPTH = 6 };
    for (uint32_t i = 0; i < g->fx.n; i++) {
        const char *named = g->fx.arg[i].name;
        if (strmap_get(&x->index, named) != NONE || strmap_get(&x->p->sig.by_arg, named) != NONE)
            continue;
        for (uint32_t k = 0; k < g->node.n; k++)
            for (uint32_t j = 0; j < g->node.at[k]->nin; j++) {
                const RawNode *up = *g->node.at[k]->in[j] ? maker(x, g->node.at[k]->in[j]) : NULL;
                const Group *own = up ? fx_group(x, up) : NULL;
                size_t n = own ? fx_base(own->fx.name) : 0;
                if (!own || own == g || n != fx_base(named) || strncmp(own->fx.name, named, n))
                    continue;
                uint32_t id = computed_of(x, up, module, length, DEPTH);
                if (id != NONE)
                    return id;
            }
    }
    return NONE;
}

void fx_note_equal(Fx *x)
{
    Params *p = x->p;
    x->maker.arena = x->a;
    for (uint32_t i = 0; i < x->list->n; i++)
        for (uint32_t k = 0; k < x->list->at[i]->nout; k++)
            if (!x->list->at[i]->dead && *x->list->at[i]->out[k])
                *strmap_at(&x->maker, x->list->at[i]->out[k]) = i;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const char *target = p->sig.entry[e].target, *dot = strrchr(target, '.');
        size_t n = dot ? (size_t)(dot - target) + 1 : 0;
        uint32_t id = NONE;
        if (p->sig.entry[e].kind != SIG_PARAMETER || p->sig_param[e] != NONE || x->used[e] || x->alias[e])
            continue;
        for (uint32_t i = 0; i < x->group.n && id == NONE; i++)
            id = merged_with(x, &x->group.at[i], target, n);
        if (id != NONE)
            vec_push(x->a, &p->merged, arena_printf(x->a, "%s (for %s)", p->g->param.at[id].name, target));
    }
}

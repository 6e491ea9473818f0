/*
 * merged.c - nodes that the exporter's optimizer merged as their parameters were equal: of two
 * fresh norms of one input it kept one (Falcon, GPT-NeoX), of two equal layers of one value one
 * product.  In: fx nodes that read what no argument of theirs names, and parameters of which the
 * file has nothing. Where the one may be for the other, the parameter that is there would train
 * with the gradients of both, and the model is refused.
 */
#include <string.h>

#include "fx.h"

typedef struct {
    Fx *x;
    StrMap maker; /* value -> its node in the list */
} Merge;

static Group *group_of(const Merge *m, const char *value)
{
    uint32_t i = *value ? strmap_get(&m->maker, value) : NONE;
    uint32_t g = i == NONE ? NONE : fx_group(m->x, m->x->list->at[i]);
    return g == NONE ? NULL : &m->x->group.at[g];
}

static bool is_gone(const Merge *m, const char *name)
{
    const Params *p = m->x->p;
    return strmap_get(&m->x->index, name) == NONE && strmap_get(&p->sig.by_arg, name) == NONE &&
           strmap_get(&p->m->init_index, name) == NONE && strmap_get(&m->maker, name) == NONE;
}

static bool same_module(const char *a, const char *b)
{
    size_t n = (size_t)(fx_leaf(a) - a);
    return n == (size_t)(fx_leaf(b) - b) && !strncmp(a, b, n);
}

static bool moves_only(const RawNode *n)
{
    return !strcmp(n->op_type, "Transpose") || !strcmp(n->op_type, "Reshape");
}

/* The first parameter that the value is computed of, within its module, or NONE. */
static uint32_t kept_in(const Merge *m, const char *value, int depth)
{
    uint32_t at = *value ? strmap_get(&m->maker, value) : NONE;
    const RawNode *n = at == NONE ? NULL : m->x->list->at[at], *up;
    for (uint32_t k = 0; n && n->made && k < n->nin; k++) {
        uint32_t id = n->made[k] ? recipe_only_param(n->made[k]) : NONE;
        if (id != NONE)
            return id;
    }
    for (uint32_t k = 0; n && k < n->nin && depth > 1; k++) {
        at = *n->in[k] ? strmap_get(&m->maker, n->in[k]) : NONE;
        up = at == NONE ? NULL : m->x->list->at[at];
        uint32_t id = up && (!strcmp(up->scope, n->scope) || moves_only(n))
                          ? kept_in(m, n->in[k], depth - 1)
                          : NONE;
        if (id != NONE)
            return id;
    }
    return NONE;
}

/* Of the group's own arguments: one that no operand is, where its node reads the inside of another
 * fx node of its kind.  linear(x, w, b) and linear(x, v, c) of equal w and v are one product, two
 * sums. */
static const char *lost_argument(const Merge *m, const Group *g, const Group *own)
{
    const Params *p = m->x->p;
    for (uint32_t i = 0; i < g->arg.n && !strcmp(own->fx.target, g->fx.target); i++) {
        uint32_t e = g->arg.at[i].entry;
        if (p->sig.entry[e].kind == SIG_PARAMETER && p->sig_param[e] == NONE && !m->x->alias[e] &&
            g->arg.at[i].role != ROLE_BIAS) /* which may be zero, and dropped */
            return p->sig.entry[e].target;
    }
    return NULL;
}

/* Of the same module, and of the same initializer as the kept one. */
static bool is_equal(const Params *p, uint32_t entry, uint32_t kept)
{
    uint32_t id = p->sig_param[entry];
    const char *init = id == NONE ? NULL : p->g->param.at[id].initializer,
               *own = p->g->param.at[kept].initializer;
    return id != kept && init && own && !strcmp(init, own) &&
           same_module(p->sig.entry[entry].target, p->g->param.at[kept].name);
}

/* The nearest parameter that is lost without a trace and called like the kept one, or of its
 * module; or that is the kept one's equal there. */
static const char *lost_twin(const Merge *m, uint32_t id)
{
    const Params *p = m->x->p;
    const char *found = NULL, *kept = p->g->param.at[id].name;
    size_t most = 0;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const char *target = p->sig.entry[e].target;
        size_t near = 1;
        bool lost = fx_is_unread(m->x, e) && !fx_is_traced(m->x, e) &&
                    (same_module(target, kept) || !strcmp(fx_leaf(target), fx_leaf(kept)));
        if (!lost && !is_equal(p, e, id))
            continue;
        while (kept[near] && kept[near] == target[near])
            near++;
        found = near > most ? target : found;
        most = near > most ? near : most;
    }
    return found;
}

/* Do as many arguments name the value, or what made it, as operands of the node are that?  gone:
 * the name of what the value stands for. */
static bool is_told(const Merge *m, const Group *g, const Group *own, const RawNode *n, uint32_t k,
                    const char **gone)
{
    const char *value = n->in[k];
    uint32_t named = 0, operands = 0;
    for (uint32_t i = 0; i < n->nin; i++)
        operands += !strcmp(n->in[i], value);
    for (uint32_t j = 0; j < g->fx.n; j++) {
        const char *arg = g->fx.arg[j].name;
        named += !strcmp(arg, own->fx.name) || !strcmp(arg, value);
        if (is_gone(m, arg) && (fx_same_base(own->fx.name, arg) || fx_same_base(value, arg)))
            *gone = arg;
    }
    return named >= (*gone ? operands : 1);
}

static void check_operand(const Merge *m, const Group *g, const RawNode *n, uint32_t k)
{
    enum { REACH = 6 };
    const Params *p = m->x->p;
    const Group *own = group_of(m, n->in[k]);
    const char *gone = NULL, *lost = NULL;
    if (!own || own == g || fx_has_norm(&g->fx, n) || is_told(m, g, own, n, k, &gone))
        return;
    uint32_t kept = kept_in(m, n->in[k], REACH);
    const char *name = kept == NONE ? "" : p->g->param.at[kept].name;
    lost = kept == NONE ? NULL : lost_argument(m, g, own);
    if (!lost && gone && kept != NONE)
        lost = lost_twin(m, kept);
    if (!lost)
        return;
    diag_hint(
        "export with optimize=False, or after a step of training, when they are no longer equal");
    diag_fatal(
        EXIT_MODEL, raw_where(p->m, n, (int)k),
        "the export merged equal nodes%s%s%s, so %s would also train with the gradients of %s",
        gone ? ", '" : "", gone ? gone : "", gone ? "' with this" : "", name, lost);
}

void fx_refuse_merged(Fx *x)
{
    Merge m = {.x = x, .maker.arena = x->a};
    for (uint32_t i = 0; i < x->list->n; i++)
        for (uint32_t k = 0; k < x->list->at[i]->nout; k++)
            if (!x->list->at[i]->dead && *x->list->at[i]->out[k])
                *strmap_at(&m.maker, x->list->at[i]->out[k]) = i;
    for (uint32_t i = 0; i < x->group.n && x->p->opt->training; i++)
        for (uint32_t q = 0; q < x->group.at[i].node.n; q++)
            for (uint32_t k = 0; k < x->group.at[i].node.at[q]->nin; k++)
                check_operand(&m, &x->group.at[i], x->group.at[i].node.at[q], k);
}

/*
 * fold.c - operands that constant folding made, from first to last: what the user gives,
 * known parameters in another arrangement (trace.c), those that are nowhere else
 * (recover.c), and those that were merged with others (equal.c, twin.c,
 * part.c).  What stays open is said (param_report).
 */
#include <string.h>

#include "fx.h"

/* What the user gives is known from here on, and what it is used for is looked for like anything
 * else. */
static void take_given(Fx *x, const Traces *all)
{
    Params *p = x->p;
    for (uint32_t e = 0; e < p->sig.n && all->n; e++) {
        const RawTensor *t = fx_is_unread(x, e)
                                 ? param_given(p, p->sig.entry[e].target, all->at[0].tensor->dtype)
                                 : NULL;
        if (t)
            p->sig_param[e] = param_put(p, p->sig.entry[e].target, t->dtype, &t->shape, t->bytes);
        x->given[e] = t != NULL;
    }
}

/* One that nothing was found to be made of is as lost as before. */
static void drop_unused(Fx *x)
{
    Params *p = x->p;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        bool used = !x->given[e];
        for (uint32_t i = 0; !used && i < x->all.n; i++) {
            const Use *u = &x->all.at[i];
            const Recipe *r = u->node->made ? u->node->made[u->input] : NULL;
            for (uint32_t k = 0; r && k < r->n; k++)
                used |= r->at[k].op == OP_NONE && r->at[k].param == p->sig_param[e];
        }
        if (!used) {
            p->sig_param[e] = NONE;
            vec_push(x->a, &p->unfit, p->sig.entry[e].target);
        }
    }
}

/* Weight normalisation, of parameters of one module. */
static void tie_norm(Fx *x, Trace *t)
{
    const Params *p = x->p;
    for (uint32_t v = 0; v < p->sig.n && !t->done; v++)
        for (uint32_t g = 0; g < p->sig.n && !t->done; g++) {
            const char *at_v = p->sig.entry[v].target, *at_g = p->sig.entry[g].target;
            size_t n = strlen(at_v) - strlen(fx_leaf(at_v));
            if (g == v || p->sig_param[v] == NONE || p->sig_param[g] == NONE ||
                n != strlen(at_g) - strlen(fx_leaf(at_g)) || strncmp(at_v, at_g, n) ||
                fx_distance(at_v, t->use->node->scope) == FAR)
                continue;
            Recipe *r = tie_weight_norm(x, p->sig_param[g], p->sig_param[v], t->tensor);
            if (r)
                trace_give(x, t, r);
        }
}

void fx_fold(Fx *x)
{
    Traces all = {0};
    trace_collect(x, &all);
    x->given = arena_array(x->a, bool, x->p->sig.n + 1);
    take_given(x, &all);
    for (uint32_t i = 0; i < all.n; i++)
        trace_tie(x, &all.at[i]);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done)
            tie_norm(x, &all.at[i]);
    drop_unused(x);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done)
            trace_tie_joined(x, &all.at[i]);
    trace_recover(x, &all);
    fx_separate_equal(x);
    fx_separate_twins(x);
    fx_separate_parts(x);
    fx_separate_views(x);
    fx_insert_copies(x);
    trace_recover(x, &all);                               /* what is alone now */
    for (uint32_t i = 0; i < all.n; i++)
        trace_tie_alike(x, &all, &all.at[i]);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done)
            trace_tie(x, &all.at[i]);                         /* to what was recovered */
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done)
            trace_match_place(x, &all.at[i]);
    fx_settle_doubted(x, &all);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done && !param_is_used(all.at[i].use->node, all.at[i].use->input))
            fx_note_open(x, &all, &all.at[i]);
    fx_note_surplus(x);
}

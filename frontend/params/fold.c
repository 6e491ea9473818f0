/*
 * fold.c - operands that constant folding made, from first to last: what the user gives, known
 * parameters in another arrangement and those that are nowhere else (trace.c), a weight by its
 * place, and what was merged with equals (merged.c).  What stays open is said (report.c).
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

/* The one parameter of the same module of which nothing is known, or NONE. */
static uint32_t only_lost_beside(const Fx *x, uint32_t entry)
{
    const Params *p = x->p;
    const char *target = p->sig.entry[entry].target;
    size_t n = strlen(target) - strlen(fx_leaf(target));
    uint32_t found = NONE;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const char *other = p->sig.entry[e].target;
        if (!fx_is_unread(x, e) || fx_is_traced(x, e) || strncmp(other, target, n) ||
            strchr(other + n, '.'))
            continue;
        if (found != NONE)
            return NONE;
        found = e;
    }
    return found;
}

/* What stands for this trace was recovered as another parameter, of another module where this one's
 * lacks that name, or of the same: it is its equal, and made in the same way. */
static void tie_alike(Fx *x, const Traces *all, Trace *t)
{
    const RawNode *n = t->use->node;
    for (uint32_t i = 0; i < all->n && trace_is_merged(t) && !t->done; i++) {
        const Trace *o = &all->at[i];
        const RawNode *other = o->use->node;
        if (o->use->init != t->use->init || !o->done || o->entry == NONE || trace_is_merged(o) ||
            strcmp(other->op_type, n->op_type) || x->p->sig_param[o->entry] == NONE ||
            !param_is_used(other, o->use->input))
            continue;
        uint32_t own = fx_like_named(x, t->use, o->entry);
        own = own == NONE ? only_lost_beside(x, o->entry) : own;
        if (own == NONE)
            continue;
        uint32_t from = x->p->sig_param[o->entry], to = fx_make_equal(x, own, from);
        t->entry = own;
        trace_give(x, t, recipe_with_other(x->a, other->made[o->use->input], from, to));
    }
}

/* The bytes as they were, in the shape that the operator wants of a weight. */
static bool is_copy(const char *fx)
{
    static const char *const base[] = {"unsqueeze", "squeeze",  "clone", "contiguous",
                                       "to",        "_to_copy", "alias"};
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        if (fx_is_base(fx, base[i]))
            return true;
    return false;
}

/* "conv1d.bias" stands beside "conv1d.weight". */
static uint32_t beside_bias(const Fx *x, uint32_t bias)
{
    const char *target = x->p->sig.entry[bias].target, *leaf = fx_leaf(target);
    return strcmp(leaf, "bias")
               ? NONE
               : strmap_get(&x->p->sig.by_target,
                            arena_printf(x->a, "%.*sweight", (int)(leaf - target), target));
}

/* A weight or bias of the module by its place, as plain as it stands. */
static void match_place(Fx *x, const Trace *t)
{
    static const char *const leaf[] = {NULL, "weight", "bias", NULL, NULL};
    const RawNode *n = t->use->node;
    const RawTensor *tensor = &x->p->m->init.at[t->use->init];
    const Group *g = fx_group(x, n);
    int role = g ? fx_use_role(&g->fx, n, t->use->input) : param_role(n, t->use->input);
    /* no fx node stands between */
    bool below = param_is_made_up(tensor->name) && !strcmp(t->fx, tensor->name);
    if (!leaf[role] || !*n->scope || tensor->shape.rank == 0 || (!below && !is_copy(t->fx)))
        return;
    uint32_t e =
        strmap_get(&x->p->sig.by_target, arena_printf(x->a, "%s.%s", n->scope, leaf[role]));
    for (uint32_t k = 0; e == NONE && g && role == ROLE_WEIGHT && is_copy(t->fx) && k < g->arg.n;
         k++)
        e = g->arg.at[k].role == ROLE_BIAS ? beside_bias(x, g->arg.at[k].entry) : NONE;
    if (e == NONE || x->used[e] || x->p->sig_param[e] != NONE)
        return;
    bool product = !strcmp(n->op_type, "MatMul") || !strcmp(n->op_type, "Gemm");
    for (uint32_t i = 0; i < x->all.n; i++) {
        Use *u = &x->all.at[i];
        if (u->node != n || u->input != t->use->input)
            continue;
        u->entry = e;
        u->flip =
            product && role == ROLE_WEIGHT && tensor->shape.rank == 2 && !raw_int(n, "transB", 0);
    }
    fx_make_entry(x, e);
}

/*
 * What folding made of a parameter, or of another one, has the numbers of a parameter (2 * p,
 * p.flip(0) of zeros), and was merged with it.  A view of the parameter is the parameter; of
 * anything else the gradient is not known.
 */
static void settle_merged(Fx *x, Trace *t)
{
    static const char *const copy[] = {"clone",        "contiguous", "to",
                                       "_to_copy",     "alias",      "view",
                                       "reshape",      "unsqueeze",  "squeeze",
                                       "flatten",      "type_as",    "convert_element_type_default",
                                       "_unsafe_view", NULL};
    static const char *const number[] = {"scalar_tensor", "scalar_tensor_default",
                                         "lift_fresh",    "lift_fresh_copy",
                                         "eye",           "tril",
                                         "triu",          NULL};
    const Params *p = x->p;
    uint32_t e = strmap_get(&p->sig.by_target, t->tensor->name);
    if (!trace_is_merged(t) || e == NONE || p->sig.entry[e].kind != SIG_PARAMETER ||
        p->sig_param[e] == NONE || fx_is_filled(t->fx) || fx_is_one_of(t->fx, number))
        return;
    uint32_t id = p->sig_param[e];
    if (fx_is_one_of(t->fx, copy) && fx_is_near(t->use->node, p->sig.entry[e].target) &&
        shape_equal(&p->g->param.at[id].shape, &t->tensor->shape))
        trace_give(x, t, recipe_of(x->a, id));
    else
        fx_lacks(x, e, t->fx);
}

void fx_fold(Fx *x)
{
    Traces all = {0};
    trace_collect(x, &all);
    x->given = arena_array(x->a, bool, x->p->sig.n + 1);
    take_given(x, &all);
    trace_tie(x, &all);
    drop_unused(x);
    trace_recover(x, &all);
    for (uint32_t i = 0; i < all.n; i++)
        tie_alike(x, &all, &all.at[i]);
    trace_tie(x, &all); /* to what was recovered */
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done)
            match_place(x, &all.at[i]);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done && !param_is_used(all.at[i].use->node, all.at[i].use->input))
            settle_merged(x, &all.at[i]);
    fx_separate_merged(x);
}

/*
 * make.c - parameters of a model with a dynamo signature, once fx.c has said which
 * entry of the signature each operand was.  In: uses with their entries.  Out: Params, one for each
 * entry, in PyTorch's shape; tied ones under the first of their names; biases that the exporter
 * dropped because they are zero are there again.
 *
 * A shared Split (equal zero biases were merged, and what read them) is taken apart: each reader
 * gets its rows of the parameter of its own module.
 */
#include <string.h>

#include "fx.h"

/* Equal zero biases were merged, and then their Splits: what the node makes is read in modules that
 * lack a parameter of this name themselves. */
void fx_refuse_shared(const Fx *x, const Use *u)
{
    const char *dot = strrchr(x->p->m->init.at[u->init].name, '.');
    for (uint32_t i = 0; dot && i < x->list->n; i++) {
        const RawNode *n = x->list->at[i];
        bool reads = false;
        for (uint32_t j = 0; !n->dead && j < n->nin && *n->in[j]; j++)
            for (uint32_t k = 0; k < u->node->nout && !reads; k++)
                reads = !strcmp(n->in[j], u->node->out[k]);
        if (!reads || !strcmp(n->scope, u->node->scope))
            continue;
        uint32_t e = strmap_get(&x->p->sig.by_target, arena_printf(x->a, "%s%s", n->scope, dot));
        if (e == NONE || x->used[e] || !x->p->opt->training)
            continue;
        diag_hint("export with optimize=False, or after a step of training, when they are no "
                  "longer equal");
        diag_fatal(
            EXIT_MODEL, raw_where(x->p->m, u->node, (int)u->input),
            "the export merged equal parameters, so it would also train with the gradients of %s",
            x->p->sig.entry[e].target);
    }
}

/* ---- making ---- */

static Shape true_shape(const RawTensor *t, const Use *u)
{
    Shape s = t->shape;
    if (u->squeezed)
        return shape_of(1, shape_elements(&s));
    if (u->flip) {
        s.d[0] = t->shape.d[1];
        s.d[1] = t->shape.d[0];
    }
    return s;
}

/* The unread entry called like this use's parameter, but of the module the node stands in (level 0)
 * or the one around it. */
static uint32_t other_name(const Fx *x, const Use *u, int level)
{
    const Params *p = x->p;
    const char *dot = u->entry == NONE ? NULL : strrchr(p->sig.entry[u->entry].target, '.');
    char *module = arena_strdup(x->a, u->node->scope);
    for (int i = 0; i < level && *module; i++) {
        char *up = strrchr(module, '.');
        *(up ? up : module) = '\0';
    }
    if (!dot || !*module)
        return NONE;
    uint32_t other = strmap_get(&p->sig.by_target, arena_printf(x->a, "%s%s", module, dot));
    bool free_name = other != NONE && other != u->entry && !x->used[other] &&
                     p->sig.entry[other].kind == SIG_PARAMETER;
    return free_name ? other : NONE;
}

/* A head's bias is tied to the bias of the module around it: when one parameter alone in there may
 * be that. */
static void find_claims(Fx *x)
{
    const Uses *use = &x->all;
    const uint32_t several = NONE - 1;
    x->claim = arena_none(x->a, x->p->sig.n + 1);
    for (uint32_t i = 0; i < use->n; i++) {
        uint32_t other = other_name(x, &use->at[i], 1);
        if (other != NONE)
            x->claim[other] = x->claim[other] == NONE || x->claim[other] == use->at[i].entry
                                  ? use->at[i].entry
                                  : several;
    }
}

/* The other name of a tied parameter: declared, read by no one, and the module it belongs to reads
 * this one. */
static uint32_t first_name(Fx *x, uint32_t entry)
{
    const Uses *use = &x->all;
    uint32_t best = entry;
    for (uint32_t i = 0; i < use->n; i++)
        for (int level = 0; level < 2 && use->at[i].entry == entry; level++) {
            uint32_t other = other_name(x, &use->at[i], level);
            if (other == NONE || (level == 1 && x->claim[other] != entry))
                continue;
            x->alias[other] = true;
            best = other < best ? other : best;
        }
    return best;
}

static bool is_stat(const Use *u)
{
    int role = param_role(u->node, u->input);
    return (role == ROLE_MEAN || role == ROLE_VAR) && meta_trains_norm(u->node);
}

/* A use that is neither the parameter nor its transpose: another arrangement of its bytes, or a
 * function of it. */
static void use_other(Fx *x, const Use *u, uint32_t id)
{
    const RawTensor *t = &x->p->m->init.at[u->init];
    Recipe *r = tie_exact(x, id, t);
    if (!r)
        r = tie_function(x, id, t, true, NULL);
    if (!r)
        r = tie_function(x, id, t, false, NULL);
    if (r)
        param_use_made(x->p, u->node, u->input, r);
    else
        fx_lacks(x, u->entry, t->name);
}

void fx_lacks(Fx *x, uint32_t entry, const char *as)
{
    Params *p = x->p;
    uint32_t id = p->sig_param[entry];
    const char *name = id == NONE ? p->sig.entry[entry].target : p->g->param.at[id].name;
    if (id != NONE && !p->g->param.at[id].trainable)
        return;
    const char *key = arena_printf(x->a, "%s\n%s", name, as);
    if (strmap_get(&p->noted, key) != NONE)
        return;
    *strmap_at(&p->noted, key) = 1;
    vec_push(x->a, &p->lost.partial, arena_printf(x->a, "%s (as %s)", name, as));
}

static void make_aliases(Fx *x, uint32_t id)
{
    for (uint32_t e = 0; e < x->p->sig.n; e++)
        if (x->alias[e] && x->p->sig_param[e] == NONE)
            x->p->sig_param[e] = id;
}

void fx_make_entry(Fx *x, uint32_t entry)
{
    Params *p = x->p;
    const Use *primary = NULL;
    const Uses *use = &x->all;
    bool stat = false;
    for (uint32_t i = 0; i < use->n; i++) {
        const Use *u = &use->at[i];
        if (u->entry != entry)
            continue;
        stat = stat || is_stat(u);
        if (!primary || (primary->flip && !u->flip))
            primary = u;
    }
    if (!primary || (p->sig.entry[entry].kind != SIG_PARAMETER && !stat))
        return;
    uint32_t id = p->sig_param[entry];
    if (id == NONE) {
        uint32_t named = first_name(x, entry);
        id = param_new(p, p->sig.entry[named].target, primary->init, primary->flip, true, stat);
        if (primary->squeezed)
            param_squeeze(p, id);
        p->sig_param[entry] = id;
        make_aliases(x, id);
    }
    for (uint32_t i = 0; i < use->n; i++) {
        const Use *u = &use->at[i];
        Shape s = true_shape(&p->m->init.at[u->init], u);
        if (u->entry != entry || param_is_used(u->node, u->input))
            continue;
        if (!shape_equal(&s, &p->g->param.at[id].shape))
            use_other(x, u, id);
        else
            param_use(p, u->node, u->input, id, u->flip);
    }
}

void fx_make(Fx *x)
{
    find_claims(x);
    for (uint32_t e = 0; e < x->p->sig.n; e++)
        fx_make_entry(x, e);
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        const Group *g = fx_group_of(x, u);
        if (g && fx_has_norm(&g->fx, u->node) && u->input == 1 && u->entry != NONE &&
            x->p->sig_param[u->entry] != NONE)
            vec_push(x->a, &x->p->lost.scaled, x->p->g->param.at[x->p->sig_param[u->entry]].name);
    }
}

/* ---- biases that were dropped because they are zero ---- */

static bool bias_shape(const Fx *x, const Group *g, RawNode **at, Shape *s, Dtype *type)
{
    for (uint32_t i = 0; i < g->node.n; i++) {
        RawNode *n = g->node.at[i];
        bool transposed = !strcmp(n->op_type, "ConvTranspose"),
             conv = transposed || !strcmp(n->op_type, "Conv");
        if ((!conv && strcmp(n->op_type, "MatMul") && strcmp(n->op_type, "Gemm")) || n->nin < 2 ||
            n->bias != NONE || !param_is_used(n, 1))
            continue;
        const RawTensor *w = raw_array(x->p->m, n->in[1]);
        bool last = conv ? false : strcmp(n->op_type, "Gemm") || !raw_int(n, "transB", 0);
        if (!w || w->shape.rank < 2)
            continue;
        int64_t out = w->shape.d[last ? w->shape.rank - 1 : transposed ? 1 : 0];
        if (transposed && __builtin_mul_overflow(out, raw_int(n, "group", 1), &out))
            return false;
        *s = shape_of(1, out);
        *type = w->dtype;
        *at = n;
        return true;
    }
    return false;
}

static void restore(Fx *x, const Group *g)
{
    Params *p = x->p;
    for (uint32_t k = 0; k < g->arg.n; k++) {
        uint32_t e = g->arg.at[k].entry;
        RawNode *n;
        Shape s;
        Dtype type;
        if (g->arg.at[k].taken || g->arg.at[k].role != ROLE_BIAS ||
            p->sig.entry[e].kind != SIG_PARAMETER || !(fx_has_bias(&g->fx) || fx_is_norm(&g->fx)) ||
            g->fx.scaled || !bias_shape(x, g, &n, &s, &type))
            continue;
        if (p->sig_param[e] == NONE) {
            p->sig_param[e] = p->g->param.n;
            param_zero(p, p->sig.entry[e].target, type, &s);
        }
        if (!shape_equal(&p->g->param.at[p->sig_param[e]].shape, &s))
            continue;
        n->bias = p->sig_param[e];
    }
}

void fx_restore(Fx *x)
{
    for (uint32_t i = 0; i < x->group.n; i++)
        restore(x, &x->group.at[i]);
}

/*
 * fx.c - parameters of a model exported by PyTorch's dynamo exporter.  In: nodes with the
 * text of their fx node, and the graph's signature: together they tell which parameter every
 * operand was before the exporter's optimizer renamed weights (val_0, transposed), merged equal
 * ones, and dropped biases that are zero.
 *
 * ONNX nodes of one fx node form a group.  Within a group the %p_ arguments of the fx node are
 * matched with the initializers its nodes read: by exact name first, then by role (weight, bias,
 * ...), then by order. An initializer read through two arguments is two parameters; two
 * initializers of one argument are one (a tie). What no argument explains, folding made:
 * tie.c and fold.c.
 */
#include <string.h>

#include "fx.h"

static bool is_flipped(const FxNode *fx, const RawNode *n, uint32_t input, const RawTensor *t)
{
    if (t->shape.rank != 2 || input != 1)
        return false;
    bool gemm = !strcmp(n->op_type, "Gemm"), exchanged = gemm && raw_int(n, "transB", 0);
    if (!gemm && strcmp(n->op_type, "MatMul"))
        return false;
    if (fx_is_target(fx, "aten.linear."))
        return !exchanged;
    return gemm && exchanged; /* addmm, mm: the weight is [in, out] */
}

/* ---- collecting ---- */

static void collect(Fx *x, const RawNodes *list)
{
    const Model *m = x->p->m;
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        if (n->dead)
            continue;
        uint32_t group = fx_group(x, n);
        if (group != NONE)
            vec_push(x->a, &x->group.at[group].node, n);
        for (uint32_t j = 0; j < n->nin; j++) {
            uint32_t init = *n->in[j] ? strmap_get(&m->init_index, n->in[j]) : NONE;
            if (init != NONE && dtype_is_float(m->init.at[init].dtype) &&
                m->init.at[init].bytes.length)
                vec_push(x->a, &x->all, ((Use){n, j, init, NONE, group, false, false}));
        }
    }
}

/* ---- matching ---- */

/* Parameters that are vectors in PyTorch, and that nodes want with dims of 1 behind the channels.
 */
static bool is_vector(const FxNode *fx)
{
    return strstr(fx->target, "group_norm") || strstr(fx->target, "batch_norm") ||
           strstr(fx->target, "instance_norm") || strstr(fx->target, "prelu");
}

static void take(Fx *x, Use *u, uint32_t entry)
{
    Group *g = fx_group_of(x, u);
    const Shape *s = &x->p->m->init.at[u->init].shape;
    if (g && fx_is_target(&g->fx, "aten.instance_norm.") &&
        !strcmp(u->node->op_type, "BatchNormalization"))
        return; /* by running statistics: as many copies of the parameter as there are samples */
    u->entry = entry;
    u->flip = g && is_flipped(&g->fx, u->node, u->input, &x->p->m->init.at[u->init]);
    u->squeezed = g && is_vector(&g->fx) && s->rank > 1 && raw_wide_dims(s) <= 1;
    for (uint32_t i = 0; g && i < g->arg.n; i++)
        if (g->arg.at[i].entry == entry)
            g->arg.at[i].taken = true;
}

/* Is the operand another argument than k, by what it is to the operator?  A fresh norm's weight and
 * running variance are one initializer, as are its bias and mean; also where the norm has neither
 * weight nor bias, and those are numbers. */
static bool is_other(const Group *g, const Use *u, uint32_t k)
{
    int role = fx_use_role(&g->fx, u->node, u->input);
    bool other = role != ROLE_ANY && fx_is_norm(&g->fx);
    for (uint32_t i = 0; i < g->arg.n && role != ROLE_ANY; i++)
        other |= g->arg.at[i].role == role;
    return other && g->arg.at[k].role != role && g->arg.at[k].role != ROLE_ANY;
}

enum { BY_NAME, BY_ROLE, BY_ORDER, PASSES = BY_ORDER + 3 };

/* May the operand be argument k?  By its name; by its role; what is left goes by order: other
 * parameters' initializers first, then tensors, then numbers. */
static bool may_be(const Fx *x, const Group *g, const Use *u, uint32_t k, int pass)
{
    const Argument *a = &g->arg.at[k];
    const RawTensor *t = &x->p->m->init.at[u->init];
    uint32_t named = strmap_get(&x->p->sig.by_target, t->name);
    int role = fx_use_role(&g->fx, u->node, u->input),
        kind = named != NONE ? 0 : t->shape.rank > 0 ? 1 : 2;
    bool sum = !strcmp(u->node->op_type, "Add"), biased = fx_has_bias(&g->fx);
    if (pass == BY_NAME)
        return named == a->entry && !is_other(g, u, k);
    if (a->taken || u->entry != NONE)
        return false;
    if (pass == BY_ROLE)
        return role != ROLE_ANY && role == a->role &&
               !(role == ROLE_WEIGHT && t->shape.rank == 0) &&
               /* a product that was folded, and no bias */
               !(role == ROLE_BIAS && sum && raw_wide_dims(&t->shape) > 1) &&
               /* an epsilon */
               !(shape_elements(&t->shape) == 1 && fx_is_decomposed_norm(&g->fx));
    return kind == pass - BY_ORDER && param_role(u->node, u->input) == ROLE_ANY &&
           !fx_is_norm(&g->fx) && !(biased && a->role == ROLE_WEIGHT && sum) &&
           !(biased && a->role == ROLE_BIAS && role != ROLE_BIAS);
}

static void match(Fx *x, Use *u, int pass)
{
    const Group *g = fx_group_of(x, u);
    /* no operand of these is one of its arguments */
    if (!g || (pass > BY_NAME && (fx_is_recurrent(&g->fx) || fx_is_control(&g->fx))))
        return;
    for (uint32_t k = 0; k < g->arg.n; k++)
        if (may_be(x, g, u, k, pass)) {
            take(x, u, g->arg.at[k].entry);
            return;
        }
}

/* A node without an fx node reads a parameter of another module: it was merged with the like-named
 * one of its own. */
static uint32_t merged_into(const Fx *x, const Use *u, uint32_t entry)
{
    const char *target = x->p->sig.entry[entry].target, *dot = strrchr(target, '.'),
               *scope = u->node->scope;
    if (!dot || !*scope || (!strncmp(target, scope, strlen(scope)) && target[strlen(scope)] == '.'))
        return NONE;
    uint32_t e = strmap_get(&x->p->sig.by_target, arena_printf(x->a, "%s%s", scope, dot));
    return e != NONE && !x->used[e] && x->p->sig.entry[e].kind == SIG_PARAMETER ? e : NONE;
}

/* Operands the arguments do not explain, by their own name. */
static void match_own_name(Fx *x, Use *u)
{
    const Group *g = fx_group_of(x, u);
    uint32_t e = strmap_get(&x->p->sig.by_target, x->p->m->init.at[u->init].name);
    uint32_t own = e == NONE || g ? NONE : merged_into(x, u, e);
    if (e != NONE && !g)
        fx_refuse_shared(x, u);
    if (e != NONE && (own != NONE || !x->used[e] || !g)) {
        take(x, u, own != NONE ? own : e);
        u->flip = false;
    }
}

/* Has the optimizer made no number of the file? */
static bool is_whole(const Fx *x)
{
    const Params *p = x->p;
    bool whole = true;
    for (uint32_t i = 0; i < p->m->init.n; i++)
        whole &= x->origin[i].entry.n == 0 &&
                 strmap_get(&p->sig.by_target, p->m->init.at[i].name) != NONE;
    return whole;
}

void param_from_signature(Params *p, RawNodes *list)
{
    Arena *a = p->m->arena;
    Fx x = {.p = p,
            .a = a,
            .list = list,
            .index.arena = a,
            .used = arena_array(a, bool, p->sig.n + 1),
            .alias = arena_array(a, bool, p->sig.n + 1)};
    collect(&x, list);
    fx_origins(&x);
    p->is_whole = is_whole(&x);
    for (int pass = 0; pass < PASSES; pass++)
        for (uint32_t i = 0; i < x.all.n; i++)
            match(&x, &x.all.at[i], pass);
    for (uint32_t i = 0; i < x.group.n; i++)
        for (uint32_t k = 0; k < x.group.at[i].arg.n; k++)
            x.used[x.group.at[i].arg.at[k].entry] = true;
    for (uint32_t i = 0; i < x.all.n; i++)
        if (x.all.at[i].entry == NONE)
            match_own_name(&x, &x.all.at[i]);
    fx_make(&x);
    fx_unpack(&x);
    fx_fold(&x);
    fx_restore(&x);
}

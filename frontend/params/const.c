/*
 * const.c - constants that folding made of TorchScript's nodes ("onnx::Add_74").  In:
 * operands that are no parameters, and the parameters.  Out: those that hold a parameter in another
 * arrangement, or a function of it, read it from then on (tie.c); the others are named where they
 * may hold one (gamma.view(1, -1, 1, 1), logit_scale.exp()), as they will not train.
 */
#include <string.h>

#include "fx.h"

static bool is_folded(const Params *p, const char *name)
{
    return (p->m->from_pytorch && strstr(name, "::")) ||
           (*name == '/' && strstr(name, "_output_") && !strstr(name, "/Constant"));
}

bool param_is_folded(const Params *p, const RawTensor *t)
{
    return is_folded(p, t->name) && !t->is_lifted && dtype_is_float(t->dtype) && t->bytes.at &&
           strmap_get(&p->by_init, t->name) == NONE;
}

/* The parameter it is made of, when that is one alone. */
static const Recipe *made_of(Fx *x, const RawTensor *t)
{
    const Recipe *found = NULL;
    for (int exact = 1; exact >= 0 && !found; exact--)
        for (uint32_t i = 0; i < x->p->g->param.n; i++) {
            const Recipe *r = exact ? tie_exact(x, i, t) : tie_function(x, i, t, false);
            if (r && found)
                return NULL; /* equal parameters: nothing tells which */
            found = r ? r : found;
        }
    return found;
}

/* The parameters with those behind them that the user gives in files, and that the model lacks:
 * what folding made of them is looked for like anything else. */
static Graph *with_given(const Params *p)
{
    Arena *a = p->m->arena;
    Graph *g = arena_new_of(a, Graph);
    const char *const *name;
    uint32_t n = param_given_names(p, &name);
    *g = (Graph){.arena = a};
    for (uint32_t i = 0; i < p->g->param.n; i++)
        vec_push(a, &g->param, p->g->param.at[i]);
    for (uint32_t i = 0; i < n; i++) {
        const RawTensor *t =
            strmap_get(&p->by_name, name[i]) == NONE ? param_given(p, name[i], DT_F32) : NULL;
        if (t)
            vec_push(
                a, &g->param,
                ((Param){
                    .name = name[i], .dtype = t->dtype, .shape = t->shape, .bytes = t->bytes}));
    }
    return g;
}

/* The same of parameters of the model: those that were given, or are the rest, become some. */
static const Recipe *with_own(Params *p, const Graph *known, const Recipe *r, uint32_t first)
{
    Recipe *own = arena_new_of(p->m->arena, Recipe);
    for (uint32_t k = 0; r && k < r->n; k++) {
        Term t = r->at[k];
        if (t.op == OP_NONE && t.param != NONE && t.param >= first) {
            const Param *q = &known->param.at[t.param];
            t.param = strmap_get(&p->by_name, q->name);
            if (t.param == NONE)
                t.param = param_put(p, q->name, q->dtype, &q->shape, q->bytes);
        }
        vec_push(p->m->arena, own, t);
    }
    return r ? own : NULL;
}

void param_constants(Params *p, const RawNodes *list)
{
    Arena *a = p->m->arena;
    Params known = *p;
    Fx x = {.p = &known, .a = a};
    uint32_t first = p->g->param.n;
    known.g = with_given(p);
    StrMap index = {.arena = a};
    VEC(const Recipe *) made = {0}; /* by index: of each constant once */
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        for (uint32_t j = 0; !n->dead && j < n->nin; j++) {
            const RawTensor *t = raw_array(p->m, n->in[j]);
            if (!t || param_is_used(n, j) || !param_is_folded(p, t) ||
                shape_elements(&t->shape) < 2)
                continue;
            uint32_t *at = strmap_at(&index, n->in[j]);
            if (*at == NONE) {
                *at = made.n;
                vec_push(a, &made, with_own(p, known.g, made_of(&x, t), first));
            }
            if (made.at[*at])
                param_use_made(p, n, j, made.at[*at]);
        }
    }
}

static void note(Params *p, const RawTensor *t, const char *name, const RawNode *reader)
{
    if (param_is_mask(p->g, t) || strmap_get(&p->noted, name) != NONE)
        return;
    *strmap_at(&p->noted, name) = 1;
    vec_push(p->m->arena, &p->lost.constant,
             arena_printf(p->m->arena, "%s (of %s)", name, reader->name));
}

/* The initializer that stands for what folding made, as it has the same numbers: the Identity of a
 * parameter, under a name that no parameter has. */
static const RawTensor *merged_constant(const Params *p, const RawNode *n)
{
    bool identity = !n->dead && !strcmp(n->op_type, "Identity") && n->nin == 1 && n->nout == 1;
    const RawTensor *t = identity ? raw_array(p->m, n->in[0]) : NULL;
    bool is = t && p->m->from_pytorch && strstr(n->out[0], "::") && !param_is_used(n, 0) &&
              dtype_is_float(t->dtype);
    return is ? t : NULL;
}

void param_constants_note(Params *p, const RawNodes *list)
{
    StrMap merged = {.arena = p->m->arena}; /* value -> its Identity */
    for (uint32_t i = 0; i < list->n && p->opt->training; i++) {
        const RawNode *n = list->at[i];
        for (uint32_t j = 0; !n->dead && j < n->nin; j++) {
            uint32_t from = strmap_get(&merged, n->in[j]);
            const RawTensor *t = raw_array(p->m, n->in[j]);
            if (op_slot(n->domain, n->op_type, j) == 'x' || param_is_used(n, j))
                continue;
            if (t && param_is_folded(p, t))
                note(p, t, t->name, n);
            else if (from != NONE)
                note(p, merged_constant(p, list->at[from]), n->in[j], n);
        }
        if (merged_constant(p, n))
            *strmap_at(&merged, n->out[0]) = i;
    }
}

/*
 * param_const.c - constants that folding made of TorchScript's nodes ("onnx::Add_74").  In:
 * operands that are no parameters, and the parameters.  Out: those that hold a parameter in another
 * arrangement, or a function of it, read it from then on (param_tie.c); the others are named where
 * they may hold one (gamma.view(1, -1, 1, 1)), as they will not train.
 */
#include <string.h>

#include "param_fx.h"

/* By TorchScript, or of its nodes by ONNX Runtime's optimizer: "/wpe/Gather_output_0". */
static bool made_by_folding(const Params *p, const RawTensor *t)
{
    bool folded = (p->m->from_pytorch && strstr(t->name, "::")) ||
                  (*t->name == '/' && strstr(t->name, "_output_") && !strstr(t->name, "/Constant"));
    return folded && dtype_is_float(t->dtype) && t->bytes.at &&
           shape_elements(&t->shape) > 1 && strmap_get(&p->by_init, t->name) == NONE;
}

/* The parameter it is made of, when that is one alone. */
static const Recipe *made_of(Fx *x, const RawTensor *t)
{
    const Recipe *found = NULL;
    for (int exact = 1; exact >= 0 && !found; exact--)
        for (uint32_t i = 0; i < x->p->g->param.n; i++) {
            const Recipe *r = exact ? tie_exact(x, i, t) : tie_function(x, i, t, false);
            if (r && found)
                return NULL;                            /* equal parameters: nothing tells which */
            found = r ? r : found;
        }
    return found;
}

/* Whether the operand is of the arithmetic (weights that are standardized in each step too), no
 * mask, size or scale of a resampling. */
static bool computes(const RawNode *n, uint32_t input)
{
    static const char *const all[] = {"Mul", "Add", "Sub", "Div", "Concat",
                                      "SkipLayerNormalization"};
    static const char *const data[] = {"BatchNormalization", "InstanceNormalization",
                                       "LayerNormalization", "ReduceMean",
                                       "ReduceL2",           "LpNormalization"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(n->op_type, all[i]))
            return true;
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        if (!input && !strcmp(n->op_type, data[i]))
            return true;
    return false;
}

static void note(Params *p, const RawNode *n, uint32_t input, const RawTensor *t)
{
    if (!computes(n, input) || strmap_get(&p->noted, t->name) != NONE)
        return;
    *strmap_at(&p->noted, t->name) = 1;
    vec_push(p->m->arena, &p->constant, t->name);
}

void param_constants(Params *p, const RawNodes *list)
{
    Arena *a = p->m->arena;
    Fx x = {.p = p, .a = a};
    StrMap index = {.arena = a};
    VEC(const Recipe *) made = {0};                     /* by index: of each constant once */
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        for (uint32_t j = 0; !n->dead && j < n->nin; j++) {
            uint32_t init = *n->in[j] ? strmap_get(&p->m->init_index, n->in[j]) : NONE;
            if (init == NONE || param_is_used(n, j) || !made_by_folding(p, &p->m->init.at[init]))
                continue;
            uint32_t *at = strmap_at(&index, n->in[j]);
            if (*at == NONE) {
                *at = made.n;
                vec_push(a, &made, made_of(&x, &p->m->init.at[init]));
            }
            if (made.at[*at])
                param_use_made(p, n, j, made.at[*at]);
            else
                note(p, n, j, &p->m->init.at[init]);
        }
    }
}

/*
 * doubt.c - a parameter's initializer that stands for something computed.  In: operands whose
 * initializer bears a parameter's name, while the fx node that reads them names another fx node,
 * which is gone.  Out: what is known of it.
 *
 * Where folding yields the numbers that a parameter has (2 * p, p.flip(0), 1 / q of a fresh model:
 * all zeros, all ones), the optimizer merges what it made with the parameter.  The reader still
 * names it: Pow [clamp, p]    %pow_2 : aten.pow.Tensor_Tensor(args = (%clamp, %mul)).  A view of
 * the parameter is the parameter; of anything else the gradient is not known, and that is said.
 */
#include <string.h>

#include "fx.h"

static bool is_argument(const Group *g, const char *name)
{
    for (uint32_t i = 0; i < g->fx.n; i++)
        if (!strcmp(g->fx.arg[i].name, name))
            return true;
    return false;
}

/* Do the arguments name what the group reads of other nodes?  Else a lost one may be that. */
static bool names_values(Fx *x, const Group *g)
{
    for (uint32_t i = 0; i < g->node.n; i++)
        for (uint32_t k = 0; k < g->node.at[i]->nin; k++) {
            const char *in = g->node.at[i]->in[k];
            bool named = !*in || strmap_get(&x->p->m->init_index, in) != NONE || is_argument(g, in);
            for (uint32_t j = 0; j < x->list->n && !named; j++) {
                const RawNode *n = x->list->at[j];
                const Group *from = NULL;
                for (uint32_t o = 0; o < n->nout && !from; o++)
                    from = !strcmp(n->out[o], in) ? fx_group(x, n) : NULL;
                named = from && (from == g || is_argument(g, from->fx.name));
            }
            if (!named)
                return false;
        }
    return true;
}

/* The fx node that the operand was, which the file does not have: the argument at its place, or the
 * only one; NULL: none. */
static const char *lost_argument(Fx *x, const Use *u)
{
    const Group *g = fx_group(x, u->node);
    const char *only = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; g && i < g->fx.n; i++) {
        const FxArg *arg = &g->fx.arg[i];
        if (strmap_get(&x->p->sig.by_arg, arg->name) != NONE ||
            strmap_get(&x->index, arg->name) != NONE)
            continue;
        if (g->node.n == 1 && arg->position == (int)u->input)
            return arg->name;
        only = arg->name;
        n++;
    }
    return n == 1 && names_values(x, g) ? only : NULL;
}

/* Numbers of the source: no parameter is in them. */
static bool is_number(const char *fx)
{
    static const char *const base[] = {"scalar_tensor", "scalar_tensor_default", "lift_fresh",
                                       "lift_fresh_copy", "eye", "tril", "triu", NULL};
    return fx_is_filled(fx) || fx_is_one_of(fx, base);
}

static bool is_copy(const char *fx)
{
    static const char *const base[] = {"clone",   "contiguous", "to",        "_to_copy", "alias",
                                       "view",    "reshape",    "unsqueeze", "squeeze",  "flatten",
                                       "expand",  "type_as",    "convert_element_type_default",
                                       "_unsafe_view", NULL};
    return fx_is_one_of(fx, base);
}

static bool is_symmetric(const RawTensor *t)
{
    size_t size = dtype_size(t->dtype), n = t->shape.rank == 2 ? (size_t)t->shape.d[0] : 0;
    if (n == 0 || t->shape.d[1] != t->shape.d[0])
        return false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (memcmp(t->bytes.at + (i * n + k) * size, t->bytes.at + (k * n + i) * size, size))
                return false;
    return true;
}

bool fx_is_turned(Fx *x, const Use *u)
{
    static const char *const base[] = {"t", "permute", "transpose", "numpy_t", NULL};
    const RawTensor *t = &x->p->m->init.at[u->init];
    const char *lost = !strcmp(u->node->op_type, "MatMul") ? lost_argument(x, u) : NULL;
    return lost && fx_is_one_of(lost, base) && is_symmetric(t);
}

/* The parameter of which the file has the initializer, or the like-named one of the reader's
 * module, which was merged with it; NONE: neither. */
static uint32_t owner_of(Fx *x, const Use *u)
{
    const Params *p = x->p;
    const char *name = p->m->init.at[u->init].name, *dot = strrchr(name, '.');
    uint32_t e = strmap_get(&p->sig.by_target, name);
    const char *path = arena_printf(x->a, "%s.%s", u->node->scope, dot ? dot + 1 : name);
    uint32_t own = strmap_get(&p->sig.by_target, path);
    if (e == NONE || p->sig.entry[e].kind != SIG_PARAMETER)
        return NONE;
    e = own != NONE && p->sig.entry[own].kind == SIG_PARAMETER ? own : e;
    return p->sig_param[e] == NONE ? NONE : e;
}

/* The parameter whose initializer stands where the reader names `as`, which folding made of that
 * one or of another and which has the same numbers (copy: is those); NONE: there is none. */
static uint32_t doubted(Fx *x, const Use *u, const char **as, bool *copy)
{
    uint32_t e = owner_of(x, u);
    *as = e == NONE ? NULL : lost_argument(x, u);
    if (!*as || is_number(*as))
        return NONE;
    *copy = is_copy(*as);
    return e;
}

/* ---- what is still open ---- */

static bool same_line(const char *stack, const char *line)
{
    const char *other = text_last(stack);
    size_t n = line ? strcspn(line, "\n") : 0;
    return other && line && strcspn(other, "\n") == n && !strncmp(other, line, n);
}

/* Does a node of the same line have the parameter as an argument, or what is known to be made of
 * it?  Then that is what the line reads it for. */
static bool is_explained(const Fx *x, const Traces *all, const RawNode *n, uint32_t e)
{
    const char *line = text_last(n->stack);
    for (uint32_t i = 0; i < all->n; i++)
        if (all->at[i].done && all->at[i].entry == e &&
            same_line(all->at[i].use->node->stack, line))
            return true;
    for (uint32_t i = 0; i < x->group.n; i++)
        for (uint32_t k = 0; k < x->group.at[i].arg.n; k++)
            if (x->group.at[i].arg.at[k].entry == e &&
                same_line(x->group.at[i].node.at[0]->stack, line))
                return true;
    return false;
}

/* A number that an fx node computed, rather than one that the source has. */
static bool is_computed(const Trace *t)
{
    static const char *const base[] = {"scalar_tensor", "lift_fresh", "detach", "full", NULL};
    for (int i = 0; base[i]; i++)
        if (!strncmp(t->fx, base[i], strlen(base[i])))
            return false;
    return !param_is_made_up(t->fx);
}

/* What is still open and may have been made of a known parameter: its reader's line reads that, and
 * no argument there does. */
void fx_note_open(Fx *x, const Traces *all, const Trace *t)
{
    const Params *p = x->p;
    const RawNode *n = t->use->node;
    const char *as;
    bool copy;
    if (doubted(x, t->use, &as, &copy) != NONE)
        return;
    if (param_is_table(p->g, t->tensor) || (shape_elements(&t->tensor->shape) < 2 && !is_computed(t)))
        return;
    for (uint32_t e = 0; e < p->sig.n; e++)
        if (p->sig_param[e] != NONE && p->sig.entry[e].kind == SIG_PARAMETER &&
            fx_reads(n, p->sig.entry[e].target) && !is_explained(x, all, n, e))
            fx_lacks(x, e, t->tensor->name);
}

/* Could an unread parameter be what was computed here?  That one is named as lost. */
static bool has_unread_near(Fx *x, const RawNode *n)
{
    for (uint32_t e = 0; e < x->p->sig.n; e++)
        if (fx_is_unread(x, e) && fx_is_near(n, x->p->sig.entry[e].target))
            return true;
    return false;
}

/* What the line reads of parameters, and no argument there explains, is what was computed of; else
 * the parameter e itself. */
static void note_doubted(Fx *x, const Traces *all, const RawNode *n, uint32_t e, const char *as)
{
    bool any = false;
    for (uint32_t k = 0; k < x->p->sig.n; k++)
        if (x->p->sig_param[k] != NONE && x->p->sig.entry[k].kind == SIG_PARAMETER &&
            fx_reads(n, x->p->sig.entry[k].target) && !is_explained(x, all, n, k)) {
            fx_lacks(x, k, as);
            any = true;
        }
    if (!any)
        fx_lacks(x, e, as);
}

/* Initializers of parameters that stand for something else: a copy of the parameter that the line
 * reads is the parameter. */
void fx_settle_doubted(Fx *x, const Traces *all)
{
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        const char *as;
        bool copy, open = u->entry == NONE && !param_is_used(u->node, u->input);
        uint32_t e = open ? doubted(x, u, &as, &copy) : NONE;
        bool read = e != NONE && fx_reads(u->node, x->p->sig.entry[e].target);
        if (e == NONE || (!read && has_unread_near(x, u->node)))
            continue;
        uint32_t id = x->p->sig_param[e];
        const Shape *s = &x->p->m->init.at[u->init].shape, *own = &x->p->g->param.at[id].shape;
        if (copy && read && shape_equal(s, own))
            param_use_made(x->p, u->node, u->input, recipe_of(x->a, id));
        else
            note_doubted(x, all, u->node, e, as);
    }
}

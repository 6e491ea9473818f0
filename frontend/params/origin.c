/*
 * origin.c - what onnxscript's optimizer writes beside an initializer that it computed: the
 * names of all values that it was computed of ("pkg.onnxscript.optimizer.folded_from", at the
 * initializer's value info), parameters under their own names.  In: these records.  Out: which
 * parameters an initializer is made of, where the file says so; and the uses of parameters that
 * nothing explained, named.
 *
 * A record says of what, not how.  Equal parameters are merged under one name, so a record that
 * names another parameter speaks against one only where it is not its equal.
 */
#include <string.h>

#include "fx.h"

void fx_origins(Fx *x)
{
    const Model *m = x->p->m;
    x->origin = arena_array(x->a, MadeOf, m->init.n + 1);
    for (size_t i = 0; i < m->graph->n_value_info; i++) {
        const Onnx__ValueInfoProto *v = m->graph->value_info[i];
        uint32_t init = v->name ? strmap_get(&m->init_index, v->name) : NONE;
        const char *text = metadata_get(v->n_metadata_props, v->metadata_props,
                                        "pkg.onnxscript.optimizer.folded_from");
        const char **name;
        uint32_t n = init != NONE && text ? meta_list(x->a, text, &name) : 0;
        for (uint32_t k = 0; k < n; k++) {
            uint32_t e = strmap_get(&x->p->sig.by_target, name[k]);
            x->origin[init].is_told = true;
            if (e == NONE)
                vec_push(x->a, &x->origin[init].step, name[k]);
            else if (x->p->sig.entry[e].kind == SIG_PARAMETER)
                vec_push(x->a, &x->origin[init].entry, e);
        }
    }
}

bool fx_is_origin(const Fx *x, uint32_t init, uint32_t entry)
{
    return ids_have(&x->origin[init].entry, entry);
}

/* An entry of which nothing in the file is known. */
bool fx_is_unread(const Fx *x, uint32_t e)
{
    const Params *p = x->p;
    return p->sig.entry[e].kind == SIG_PARAMETER && p->sig_param[e] == NONE && !x->used[e] &&
           !x->alias[e];
}

bool fx_is_traced(const Fx *x, uint32_t e)
{
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        if (u->entry == NONE && !param_is_used(u->node, u->input) && fx_is_origin(x, u->init, e))
            return true;
    }
    return false;
}

uint32_t fx_unread_origin(const Fx *x, uint32_t init)
{
    const MadeOf *o = &x->origin[init];
    uint32_t found = NONE;
    bool any = false;
    for (uint32_t i = 0; i < o->entry.n; i++)
        any |= fx_is_unread(x, o->entry.at[i]);
    for (uint32_t i = 0; any && i < o->entry.n; i++)
        found = i ? SEVERAL : o->entry.at[i];
    return found;
}

/* ---- what is left ---- */

/* Do two entries of the signature train as one, or are they equal? */
static bool is_same(Fx *x, uint32_t e, uint32_t f)
{
    uint32_t a = x->p->sig_param[e], b = x->p->sig_param[f];
    if (a == b || a == NONE || b == NONE)
        return a == b && a != NONE;
    const Param *p = &x->p->g->param.at[a], *q = &x->p->g->param.at[b];
    if (p->dtype != q->dtype || !shape_equal(&p->shape, &q->shape))
        return false;
    uint8_t *of_p = arena_alloc(x->a, param_size(p)), *of_q = arena_alloc(x->a, param_size(q));
    param_bytes(p, of_p);
    param_bytes(q, of_q);
    return !memcmp(of_p, of_q, param_size(p));
}

/* Is the parameter, or one that is equal to it, in what the operand is made of? */
static bool is_in_recipe(Fx *x, const Recipe *r, uint32_t entry)
{
    const Params *p = x->p;
    for (uint32_t i = 0; r && i < r->n; i++)
        for (uint32_t f = 0; r->at[i].op == OP_NONE && r->at[i].param != NONE && f < p->sig.n; f++)
            if (p->sig_param[f] == r->at[i].param && is_same(x, entry, f))
                return true;
    return false;
}

/* Are the operand's numbers another parameter's?  Then this one met a factor of zero (the first
 * step of a recurrent layer), which its gradient meets too; unless it is zero itself. */
static bool met_zero(const Fx *x, const Recipe *r, uint32_t entry)
{
    const Param *q = &x->p->g->param.at[x->p->sig_param[entry]];
    return r && q->bytes.at && !raw_is_constant(&(RawTensor){.dtype = q->dtype, .bytes = q->bytes});
}

void fx_note_origin(Fx *x, const Use *u)
{
    const Params *p = x->p;
    const MadeOf *o = &x->origin[u->init];
    const Recipe *r = u->node->made ? u->node->made[u->input] : NULL;
    for (uint32_t k = 0; k < o->entry.n; k++)
        if (p->sig_param[o->entry.at[k]] != NONE && !is_in_recipe(x, r, o->entry.at[k]) &&
            !met_zero(x, r, o->entry.at[k]))
            fx_lacks(x, o->entry.at[k], p->m->init.at[u->init].name);
}

/*
 * part.c - a part of what an fx node became that was merged with another's.  In: fx nodes of
 * which no node reads a parameter that is among the arguments.  Out: copies of the part, which read
 * it.
 *
 * linear(x, w, b) and linear(x, v, c) of equal w and v, as gates that begin at zero, are one MatMul
 * and two Adds: the second Add is of the fx node that names v, and reads what a node of the first
 * one yields, which none of its arguments names.  What the two name in the same place are w and v.
 */
#include <string.h>

#include "fx.h"

enum { MOST = 8 };                                      /* parameters of one fx node */

/* The fx node that made an operand of a node of g, where it is the inside of one that does the same
 * as g; NULL: it is an argument, or g's own. */
static const Group *inside_of(Fx *x, const Group *g, const char *operand)
{
    const RawNode *up = fx_maker(x, operand);
    const Group *made = up ? fx_group(x, up) : NULL;
    if (!made || made == g || strcmp(made->fx.target, g->fx.target) || made->fx.n != g->fx.n)
        return NULL;
    for (uint32_t i = 0; i < g->fx.n; i++)
        if (!strcmp(g->fx.arg[i].name, made->fx.name))
            return NULL;
    return made;
}

static bool reads(const Group *g, uint32_t id)
{
    for (uint32_t k = 0; k < g->node.n; k++)
        for (uint32_t j = 0; g->node.at[k]->made && j < g->node.at[k]->nin; j++) {
            const Recipe *r = g->node.at[k]->made[j];
            for (uint32_t t = 0; r && t < r->n; t++)
                if (r->at[t].op == OP_NONE && r->at[t].param == id)
                    return true;
        }
    return false;
}

/* Is the operand computed of the argument of `made`, but to be of that of g in its place?  Entries
 * of both. */
static bool is_merged(Fx *x, const Group *g, const Group *made, uint32_t i, uint32_t *lost,
                      uint32_t *kept)
{
    const Params *p = x->p;
    const FxArg *own = &g->fx.arg[i], *other = &made->fx.arg[i];
    *lost = strmap_get(&p->sig.by_arg, own->name);
    *kept = strmap_get(&p->sig.by_arg, other->name);
    if (*lost == NONE || *kept == NONE || *lost == *kept || own->position != other->position ||
        p->sig.entry[*lost].kind != SIG_PARAMETER || x->alias[*lost])
        return false;
    uint32_t id = p->sig_param[*lost], from = p->sig_param[*kept];
    if (from == NONE || from == id)
        return false;
    return id == NONE || (shape_equal(&p->g->param.at[id].shape, &p->g->param.at[from].shape) &&
                          !reads(g, id));
}

static void separate(Fx *x, const Group *g, const Group *made, RawNode *reader, uint32_t input)
{
    Params *p = x->p;
    uint32_t from[MOST], to[MOST], lost, kept, n = 0;
    for (uint32_t i = 0; i < g->fx.n && n < MOST; i++) {
        if (!is_merged(x, g, made, i, &lost, &kept))
            continue;
        from[n] = p->sig_param[kept];
        if (!fx_can_compute_instead(x, reader, input, &(Instead){&from[n], NULL, 1, NULL, NULL}))
            continue;
        if (p->sig_param[lost] == NONE) {
            fx_make_equal(x, lost, from[n]);
            vec_push(x->a, &p->inferred,
                     arena_printf(x->a, "%s (equal to %s)", p->sig.entry[lost].target,
                                  p->sig.entry[kept].target));
        }
        to[n++] = p->sig_param[lost];
    }
    Instead in = {from, to, n, NULL, reader};
    if (n)
        fx_redirect(x, reader, input, fx_compute_instead(x, reader, input, &in));
}

void fx_separate_parts(Fx *x)
{
    for (uint32_t i = 0; i < x->group.n; i++) {
        const Group *g = &x->group.at[i];
        for (uint32_t k = 0; k < g->node.n; k++)
            for (uint32_t j = 0; j < g->node.at[k]->nin; j++) {
                RawNode *reader = g->node.at[k];
                const Group *made =
                    *reader->in[j] && !reader->inlined ? inside_of(x, g, reader->in[j]) : NULL;
                if (made)
                    separate(x, g, made, reader, j);
            }
    }
}

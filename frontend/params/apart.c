/*
 * apart.c - what was computed of a lost parameter, once more.  In: a value that is computed of
 * parameters, and others that are to be read instead.  Out: copies of the nodes between, which name
 * themselves and their parameters as what was lost did, and stand behind what they are copies of.
 */
#include <string.h>

#include "merged.h"

const RawNode *merged_maker(const Merge *m, const char *name)
{
    uint32_t i = *name ? strmap_get(&m->maker, name) : NONE;
    return i == NONE ? NULL : m->x->list->at[i];
}

Group *merged_group(const Merge *m, const char *name)
{
    const RawNode *n = merged_maker(m, name);
    return n ? fx_group(m->x, n) : NULL;
}

const char *merged_module(const Merge *m, const char *target)
{
    size_t n = module_length(target);
    return arena_strndup(m->x->a, target, n - (n > 0));
}

const char *merged_name(const Merge *m, uint32_t id) { return m->x->p->g->param.at[id].name; }

uint32_t fx_make_equal(Fx *x, uint32_t entry, uint32_t id)
{
    Params *p = x->p;
    const Param q = p->g->param.at[id];
    const char *name = p->sig.entry[entry].target;
    uint32_t init = q.initializer ? strmap_get(&p->m->init_index, q.initializer) : NONE;
    bool plain = init != NONE &&
                 shape_elements(&q.shape) == shape_elements(&p->m->init.at[init].shape) &&
                 (q.transposed || shape_equal(&q.shape, &p->m->init.at[init].shape));
    if (p->sig_param[entry] != NONE)
        return p->sig_param[entry];
    p->sig_param[entry] = plain ? param_new(p, name, init, q.transposed, true, false)
                                : param_put(p, name, q.dtype, &q.shape, q.bytes);
    vec_push(x->a, &p->inferred, arena_printf(x->a, "%s (equal to %s)", name, q.name));
    return p->sig_param[entry];
}

static bool reads_any(const Recipe *r, const Ids *from)
{
    for (uint32_t t = 0; r && t < r->n; t++)
        for (uint32_t i = 0; i < from->n && r->at[t].op == OP_NONE; i++)
            if (r->at[t].param == from->at[i])
                return true;
    return false;
}

/* Is the value computed of these, within one module, so that it can be computed of others?  Running
 * statistics would be another module's. */
bool merged_can_compute(const Merge *m, const char *name, const char *scope, const Ids *from,
                        int depth)
{
    const RawNode *n = depth > 0 ? merged_maker(m, name) : NULL;
    bool depends = false;
    if (!n || strcmp(n->scope, scope) || n->nin > MOST || meta_trains_norm(n))
        return false;
    for (uint32_t k = 0; k < n->nin && !depends; k++)
        depends = n->made && n->made[k] ? reads_any(n->made[k], from)
                                        : merged_can_compute(m, n->in[k], scope, from, depth - 1);
    return depends;
}

static const Recipe *recipe_instead(Arena *a, const Recipe *r, const Instead *in)
{
    for (uint32_t i = 0; i < in->from.n; i++)
        r = recipe_with_other(a, r, in->from.at[i], in->to.at[i]);
    return r;
}

/* An fx node's text with another name in place of one: "%layer_norm_1 : ... (%x, %p_b_weight)". */
const char *merged_renamed(Arena *a, const char *text, const char *from, const char *to)
{
    const char *out = "", *at = text;
    size_t n = strlen(from);
    for (const char *word; (word = strchr(at, '%'));) {
        size_t length = strcspn(++word, " ,:)(]}=");
        bool is = length == n && !strncmp(word, from, n);
        int kept = (int)(word - at) + (is ? 0 : (int)length);
        out = arena_printf(a, "%s%.*s%s", out, kept, at, is ? to : "");
        at = word + length;
    }
    return arena_printf(a, "%s%s", out, at);
}

/* The text of what is gone, so that a merged model is read like the first one. */
static const char *text_instead(const Merge *m, const RawNode *n, const Instead *with)
{
    Arena *a = m->x->a;
    const Params *p = m->x->p;
    FxNode fx;
    if (!n->fx_node || !meta_fx(a, n->fx_node, &fx))
        return n->fx_node;
    const char *own = merged_maker(m, with->value) == n
                          ? with->named
                          : arena_printf(a, "%sx%u", fx.name, with->to.at[0]),
               *text = merged_renamed(a, n->fx_node, fx.name, own);
    for (uint32_t i = 0; i < with->from.n; i++)
        for (uint32_t e = 0; e < p->sig.n; e++)
            if (p->sig_param[e] == with->from.at[i])
                text = merged_renamed(a, text, p->sig.entry[e].arg,
                                      p->sig.entry[with->entry.at[i]].arg);
    return text;
}

/* Where the copy stands: in the lost module, if the node stands in that of what was kept. */
static void place_copy(const Merge *m, RawNode *own, const RawNode *n, const Instead *with)
{
    bool module = !strcmp(n->scope, merged_module(m, merged_name(m, with->from.at[0])));
    own->copy_of = n;
    if (with->reader) {
        own->scope = with->reader->scope;
        own->name_scopes = with->reader->name_scopes;
        own->fx_node = with->reader->fx_node;
        own->stack = with->reader->stack;
        return;
    }
    if (module)
        own->scope = merged_module(m, m->x->p->sig.entry[with->entry.at[0]].target);
    own->fx_node = text_instead(m, n, with);
}

/* The value computed of other parameters, by copies of the nodes between. */
const char *merged_compute(Merge *m, const char *name, const Instead *with, int depth)
{
    Arena *a = m->x->a;
    const RawNode *n = merged_maker(m, name);
    INSIST(n);
    const char *key = arena_printf(a, "%s@%u", name, with->to.at[0]);
    if (strmap_get(&m->copy, key) != NONE)
        return key;
    RawNode *own = arena_new_of(a, RawNode);
    *own = *n;
    place_copy(m, own, n, with);
    own->in = arena_array(a, const char *, n->nin);
    own->out = arena_array(a, const char *, n->nout);
    own->made = NULL;
    for (uint32_t k = 0; k < n->nin; k++) {
        const Recipe *r = n->made ? n->made[k] : NULL;
        bool depends = !r && merged_can_compute(m, n->in[k], n->scope, &with->from, depth - 1);
        own->in[k] = depends ? merged_compute(m, n->in[k], with, depth - 1) : n->in[k];
        if (r)
            param_use_made(m->x->p, own, k, recipe_instead(a, r, with));
        else if (!depends)
            vec_push(a, &m->again, ((Again){own, k}));
    }
    for (uint32_t k = 0; k < n->nout; k++) {
        own->out[k] = *n->out[k] ? arena_printf(a, "%s@%u", n->out[k], with->to.at[0]) : "";
        *strmap_at(&m->copy, own->out[k]) = 1;
    }
    vec_push(a, &m->copies, own);
    return key;
}

void merged_redirect(Merge *m, const Gone *o, const char *other)
{
    const char **in = arena_array(m->x->a, const char *, o->reader->nin);
    memcpy(in, o->reader->in, o->reader->nin * sizeof *in);
    in[o->input] = other;
    o->reader->in = in;
    o->reader->renamed = true;
}

/* Each copy stands behind what it is a copy of. */
void merged_insert(Merge *m)
{
    RawNodes all = {0};
    for (uint32_t i = 0; i < m->x->list->n; i++) {
        vec_push(m->x->a, &all, m->x->list->at[i]);
        for (uint32_t k = 0; k < m->copies.n; k++)
            if (m->copies.at[k]->copy_of == m->x->list->at[i])
                vec_push(m->x->a, &all, m->copies.at[k]);
    }
    *m->x->list = all;
}

/*
 * skeleton_find.c - which initializer each parameter gets in the skeleton, and which nodes have to
 * change for it.
 *
 * In: a Model as import.c left it.  Out: a Skeleton, which skeleton.c writes.  A parameter keeps
 * its initializer, or the Constant that holds it, where the file has it as it is; else it gets one
 * of its own and the nodes that read it are edited.  Bodies and local functions are read several
 * times: they stay as they are, and what cannot go back into them is named.
 */
#include <string.h>

#include "skeleton_find.h"

static void mark_named(void *arg, const char *name)
{
    Skeleton *s = arg;
    uint32_t init = strmap_get(&s->m->init_index, name);
    if (init != NONE)
        s->named[init] = true;
}

/* init: what is made of the parameter, or NONE. */
static void use_parameter(Skeleton *s, uint32_t p, uint32_t init)
{
    const Param *q = &s->param.at[p];
    uint32_t own = q->initializer ? strmap_get(&s->m->init_index, q->initializer) : NONE;
    s->name[p] = "";
    own = own != NONE ? own : init;
    if (own != NONE && q->dtype == DT_F32 && s->type[p] == DT_NONE)
        s->type[p] = s->m->init.at[own].half;
}

Dtype skeleton_type(const Skeleton *s, uint32_t p)
{
    return s->type[p] != DT_NONE ? s->type[p] : s->param.at[p].dtype;
}

bool skeleton_is_parameter(const Skeleton *s, const RawNode *n, uint32_t k)
{
    bool transposed;
    const Recipe *r = n->made[k];
    if (!recipe_is_plain(r, &transposed))
        return false;
    uint32_t p = r->at[0].param;
    return transposed == s->param.at[p].transposed &&
           recipe_type(s->m, n, k, skeleton_type(s, p)) == skeleton_type(s, p);
}

static void find_uses_of(Skeleton *s, const RawNode *n)
{
    inline_captured(s->m, n, mark_named, s);
    for (uint32_t k = 0; k < n->nin; k++) {
        uint32_t init = strmap_get(&s->m->init_index, n->in[k]);
        const Recipe *made = n->made ? n->made[k] : NULL;
        for (uint32_t t = 0; made && t < made->n; t++)
            if (made->at[t].op == OP_NONE && made->at[t].param != NONE)
                use_parameter(s, made->at[t].param, init);
        if (init != NONE && made)
            s->made[init] = true;
        else if (init != NONE && !n->dead)
            s->kept[init] = true;
    }
    if (n->bias != NONE) /* of the weight's type */
        use_parameter(s, n->bias, n->nin > 1 ? strmap_get(&s->m->init_index, n->in[1]) : NONE);
}

static void find_uses(Skeleton *s)
{
    for (size_t i = 0; i < s->m->graph->n_output; i++)
        mark_named(s, s->m->graph->output[i]->name ? s->m->graph->output[i]->name : "");
    for (uint32_t i = 0; i < s->m->node.n; i++) {
        RawNode *n = s->m->node.at[i];
        if (n->index >= s->n_edit)
            s->n_edit = n->index + 1;
        find_uses_of(s, n);
    }
    for (uint32_t i = 0; i < s->m->inner.n; i++)
        find_uses_of(s, s->m->inner.at[i]);
}

/* Does the file hold the parameter as it is, or with its two dims exchanged? */
static bool is_held(const Skeleton *s, const Param *q, uint32_t init)
{
    const Shape shape = shape_turned(&q->shape, q->transposed);
    return init != NONE && shape_equal(&shape, &s->m->init.at[init].shape);
}

/* Parameters that only bodies (of a Loop, a Scan, an If) read, by the names of their initializers:
 * an EmbeddingBag's table. */
static void find_captured(Skeleton *s)
{
    for (uint32_t p = 0; p < s->param.n; p++) {
        const Param *q = &s->param.at[p];
        uint32_t init = q->initializer ? strmap_get(&s->m->init_index, q->initializer) : NONE;
        if (s->name[p] || init == NONE || !s->named[init] ||
            q->bytes.at != s->m->init.at[init].bytes.at)
            continue;
        if (is_held(s, q, init))
            use_parameter(s, p, init);
        else
            diag_warn(WHERE_FILE(s->m->path),
                      "parameter '%s' is read in a body in another shape; merge will not write it "
                      "back",
                      q->name);
    }
}

static void choose_names(Skeleton *s)
{
    StrMap used = {.arena = s->arena}, made = {.arena = s->arena};
    for (uint32_t i = 0; i < s->m->node.n; i++)
        for (uint32_t k = 0; k < s->m->node.at[i]->nout; k++)
            *strmap_at(&made, s->m->node.at[i]->out[k]) = i;
    for (uint32_t p = 0; p < s->param.n; p++) {
        const Param *q = &s->param.at[p];
        if (!s->name[p])
            continue;
        uint32_t init = q->initializer ? strmap_get(&s->m->init_index, q->initializer) : NONE;
        bool inside = init != NONE && s->m->init.at[init].is_inside;
        if (is_held(s, q, init) && !s->kept[init] && strmap_get(&used, q->initializer) == NONE)
            s->name[p] = q->initializer;
        else if (inside)
            s->name[p] = NULL;                          /* warn_separated() */
        else
            s->name[p] =
                strmap_get(&made, q->name) != NONE || strmap_get(&s->m->init_index, q->name) != NONE
                    ? arena_printf(s->arena, "%s.separated.%u", q->name, p)
                    : q->name;
        if (!s->name[p])
            continue;
        *strmap_at(&used, s->name[p]) = p;
        init = strmap_get(&s->m->init_index, s->name[p]);
        if (init != NONE)
            s->held[init] = p;
        s->any_inside |= inside;
    }
}

bool skeleton_is_inside(const Skeleton *s, uint32_t p)
{
    const char *initializer = s->param.at[p].initializer;
    uint32_t init = initializer ? strmap_get(&s->m->init_index, initializer) : NONE;
    return init != NONE && s->m->init.at[init].is_inside;
}

static void warn_separated(const Skeleton *s, const RawNode *n)
{
    diag_warn(WHERE_FILE(s->m->path),
              "parameters inside the body or function of node %u were separated; merge will not "
              "write them back",
              n->index);
}

/* Does operand k, made of parameters, stay as the file has it? */
static bool is_as_before(const Skeleton *s, const RawNode *n, uint32_t k)
{
    uint32_t p = n->made[k]->at[0].param;
    return skeleton_is_parameter(s, n, k) && s->name[p] && !strcmp(n->in[k], s->name[p]);
}

static bool is_changed(const Skeleton *s, const RawNode *n)
{
    bool changed = n->bias != NONE;
    for (uint32_t k = 0; n->made && k < n->nin; k++)
        changed |= n->made[k] && !is_as_before(s, n, k);
    return changed;
}

/* Raw nodes whose operands no longer bear the name the file gives them. */
static void find_edits(Skeleton *s)
{
    s->edit = arena_array(s->arena, RawNode *, s->n_edit);
    for (uint32_t i = 0; i < s->m->node.n; i++) {
        RawNode *n = s->m->node.at[i];
        if (!is_changed(s, n))
            continue;
        if (n->inlined)
            warn_separated(s, n);
        else
            s->edit[n->index] = n;
    }
}

/* The nodes of bodies stay as they are: what they take must, too. */
static void check_bodies(const Skeleton *s)
{
    const RawNode *said = NULL;
    for (uint32_t i = 0; i < s->m->inner.n; i++) {
        const RawNode *n = s->m->inner.at[i];
        if (is_changed(s, n) && (!said || said->index != n->index))
            warn_separated(s, said = n);
    }
}

/* As the files number them: the parts of one that is divided are one, where the first of them is,
 * and those that one stands for are where they were. */
static void join_parts(Skeleton *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->g->param.n; i++) {
        const Param *p = &s->g->param.at[i];
        n += p->divided && chunks_number(&p->box) ? 0 : p->n_each ? (uint32_t)p->n_each : 1;
    }
    const Param **at = arena_array(s->arena, const Param *, n + 1);
    for (uint32_t i = 0; i < s->g->param.n; i++)
        for (int k = 0; k < s->g->param.at[i].n_each; k++)
            at[s->g->param.at[i].each[k].number] = &s->g->param.at[i].each[k];
    for (uint32_t i = 0, next = 0; i < s->g->param.n; i++) {
        const Param *p = &s->g->param.at[i];
        if (p->n_each || (p->divided && chunks_number(&p->box)))
            continue;
        while (at[next])
            next++;
        at[next] = p;
    }
    for (uint32_t i = 0; i < n; i++) {
        Param p = *at[i];
        p.shape = *param_whole(&p);
        vec_push(s->arena, &s->param, p);
    }
}

void skeleton_find(Skeleton *s)
{
    const Model *m = s->m;
    join_parts(s);
    s->name = arena_array(s->arena, const char *, s->param.n);
    s->type = arena_array(s->arena, Dtype, s->param.n);
    s->kept = arena_array(s->arena, bool, m->init.n);
    s->made = arena_array(s->arena, bool, m->init.n);
    s->named = arena_array(s->arena, bool, m->init.n);
    s->held = arena_none(s->arena, m->init.n);
    s->home.arena = s->arena;
    for (uint32_t i = 0; i < m->init.n; i++)
        if (m->init.at[i].home)
            *strmap_at(&s->home, arena_printf(s->arena, "%p", m->init.at[i].home)) = i;
    find_uses(s);
    find_captured(s);
    choose_names(s);
    find_edits(s);
    check_bodies(s);
}

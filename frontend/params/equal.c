/*
 * equal.c - equal parameters whose readers were merged too.  In: parameters that no node
 * reads and that left no trace. Out: parameters again, each with readers of its own; or the names
 * of those that train in their place, with the sum of the gradients of all.
 *
 * Equal initializers are merged into one, and then nodes that do the same with it.  A reader's fx
 * node still names what it read ("%add_1"); where no node bears that name, the value it reads
 * instead (of "add") stands for both.  What that was computed of, in the module of the lost
 * parameter, is what took its place: the nodes between are made once more.  Whole modules that are
 * equal to others: twin.c.
 */
#include <string.h>

#include "fx.h"

enum { REACH = 6, MOST = 16 };                          /* nodes in a row; operands of one */

const RawNode *fx_maker(const Fx *x, const char *name)
{
    uint32_t i = strmap_get(&x->maker, name);
    return i == NONE ? NULL : x->list->at[i];
}

static bool is_in(const char *target, const char *module, size_t n)
{
    return !strncmp(target, module, n) && !strchr(target + n, '.');
}

static bool moves_only(const RawNode *n)
{
    return !strcmp(n->op_type, "Transpose") || !strcmp(n->op_type, "Reshape");
}

/* A parameter that a value is computed of among the nodes of one scope: of this module, or, where
 * that is NULL, any, also before a view in another scope. */
static uint32_t computed_of(const Fx *x, const RawNode *n, const char *module, int depth)
{
    static const char *const product[] = {"MatMul", "Gemm", "Conv", "ConvTranspose"};
    const Params *p = x->p;
    uint32_t found = NONE;
    bool last = depth <= 1; /* behind a product everything depends on everything */
    for (size_t i = 0; n && i < sizeof product / sizeof *product; i++)
        last |= !strcmp(n->op_type, product[i]);
    for (uint32_t k = 0; n && depth > 0 && k < n->nin; k++) {
        const Recipe *r = n->made ? n->made[k] : NULL;
        uint32_t id = r ? recipe_only_param(r) : NONE;
        if (id != NONE && (!module || is_in(p->g->param.at[id].name, module, strlen(module))))
            return id;
    }
    for (uint32_t k = 0; n && !last && k < n->nin && found == NONE; k++) {
        const RawNode *up = *n->in[k] ? fx_maker(x, n->in[k]) : NULL;
        if (up && (!strcmp(up->scope, n->scope) || (!module && moves_only(n))))
            found = computed_of(x, up, module, depth - 1);
    }
    return found;
}

static const Group *group_making(Fx *x, const RawNode *n, uint32_t input)
{
    const RawNode *up = *n->in[input] ? fx_maker(x, n->in[input]) : NULL;
    return up ? fx_group(x, up) : NULL;
}

/* Do the reader's arguments name that maker as often as its nodes read of it? */
static bool is_named(Fx *x, const Group *reader, const Group *made)
{
    uint32_t named = 0, read = 0;
    for (uint32_t i = 0; i < reader->fx.n; i++)
        named += !strcmp(reader->fx.arg[i].name, made->fx.name);
    for (uint32_t k = 0; k < reader->node.n; k++)
        for (uint32_t j = 0; j < reader->node.at[k]->nin; j++)
            read += group_making(x, reader->node.at[k], j) == made;
    return read <= named;
}

bool fx_is_gone(const Fx *x, const char *name)
{
    const Params *p = x->p;
    return strmap_get(&x->index, name) == NONE && strmap_get(&p->sig.by_arg, name) == NONE &&
           strmap_get(&p->m->init_index, name) == NONE && strmap_get(&x->maker, name) == NONE;
}

/* The larger of v and v: one of the two may have been another value, which was merged with v. */
static bool is_twice(Fx *x, const Group *g, const Group *own, const RawNode *n, uint32_t k)
{
    bool twice = false;
    for (uint32_t j = 0; j < k; j++)
        twice |= !strcmp(n->in[j], n->in[k]);
    return g && twice && !is_named(x, g, own);
}

/* By group: how many others read what it makes, who reads it in another's place too counts twice;
 * UINT32_MAX where they read parts of it. */
static uint32_t *count_readers(Fx *x)
{
    const Onnx__GraphProto *graph = x->p->m->graph;
    uint32_t *count = arena_array(x->a, uint32_t, x->group.n + 1),
             *last = arena_array(x->a, uint32_t, x->group.n + 1);
    for (uint32_t i = 0; i < x->list->n; i++) {
        const RawNode *n = x->list->at[i];
        const Group *g = n->dead ? NULL : fx_group(x, n);
        uint32_t by = g ? 1 + (uint32_t)(g - x->group.at) : UINT32_MAX - i;
        for (uint32_t k = 0; !n->dead && k < n->nin; k++) {
            const Group *own = group_making(x, n, k);
            uint32_t at = own ? (uint32_t)(own - x->group.at) : 0;
            if (!own || own == g || count[at] == UINT32_MAX ||
                (last[at] == by && !is_twice(x, g, own, n, k)))
                continue;
            count[at] = strcmp(n->in[k], own->fx.name) ? UINT32_MAX : count[at] + 1;
            last[at] = by;
        }
    }
    for (size_t i = 0; i < graph->n_output; i++) {
        const RawNode *up = fx_maker(x, graph->output[i]->name);
        const Group *own = up ? fx_group(x, up) : NULL;
        if (own)
            count[own - x->group.at] = UINT32_MAX;
    }
    return count;
}

/* The operand of a group's node that an argument names that is gone, and who makes it now: by its
 * position, else the only one of that kind.  NULL: none, or the argument is not gone.  What has no
 * more readers than it had, nothing was merged with: what the argument names did nothing to it
 * (an add of 0) and was removed. */
static const RawNode *gone_operand(Fx *x, const Group *g, const FxArg *arg, Gone *out)
{
    uint32_t n = 0, gone = 0;
    if (!fx_is_gone(x, arg->name))
        return NULL;
    for (uint32_t i = 0; i < g->fx.n; i++)
        gone += fx_is_gone(x, g->fx.arg[i].name);
    for (uint32_t k = 0; k < g->node.n; k++)
        for (uint32_t j = 0; j < g->node.at[k]->nin; j++) {
            RawNode *reader = g->node.at[k];
            const Group *own = group_making(x, reader, j);
            bool placed = arg->position == (int)j,
                 like = own && (fx_same_base(own->fx.name, arg->name) ||
                                fx_same_base(reader->in[j], arg->name));
            if (!like || own == g || is_named(x, g, own) || (n && !placed) ||
                x->readers[own - x->group.at] <= own->fx.users)
                continue;
            *out = (Gone){.reader = reader, .input = j, .named = arg->name};
            n++;
        }
    if (n == 0 || out->reader->inlined)
        return NULL;
    out->is_sure = arg->position == (int)out->input || (n == 1 && gone == 1);
    return fx_maker(x, out->reader->in[out->input]);
}

/* The operand, and each other one of the group that is the same value, where no argument says that
 * it is what it is there: softplus(%raw) is three nodes, and each of them reads it. */
static void push_gone(Fx *x, const Group *g, const Gone *o, GoneList *all)
{
    const Group *own = group_making(x, o->reader, o->input);
    const char *value = o->reader->in[o->input];
    uint32_t other = 0;
    vec_push(x->a, all, *o);
    for (uint32_t i = 0; i < g->fx.n; i++)
        other += !strcmp(g->fx.arg[i].name, own->fx.name) ||
                 (fx_is_gone(x, g->fx.arg[i].name) && strcmp(g->fx.arg[i].name, o->named));
    for (uint32_t k = 0; other == 0 && k < g->node.n; k++)
        for (uint32_t j = 0; j < g->node.at[k]->nin; j++) {
            RawNode *n = g->node.at[k];
            if ((n != o->reader || j != o->input) && !n->inlined && !strcmp(n->in[j], value))
                vec_push(x->a, all, ((Gone){n, j, o->id, o->named, true}));
        }
}

GoneList fx_find_gone(Fx *x, const char *module)
{
    GoneList all = {0};
    if (!x->readers)
        x->readers = count_readers(x);
    for (uint32_t i = 0; i < x->group.n; i++) {
        const Group *g = &x->group.at[i];
        for (uint32_t k = 0; k < g->fx.n; k++) {
            Gone o;
            const RawNode *up = gone_operand(x, g, &g->fx.arg[k], &o);
            o.id = up ? computed_of(x, up, module, REACH) : NONE;
            if (o.id != NONE)
                push_gone(x, g, &o, &all);
        }
    }
    return all;
}

/* ---- taking them apart again ---- */

static bool reads_any(const Recipe *r, const Instead *in)
{
    for (uint32_t t = 0; r && t < r->n; t++)
        for (uint32_t i = 0; i < in->n && r->at[t].op == OP_NONE; i++)
            if (r->at[t].param == in->from[i])
                return true;
    return false;
}

/* Is other_value() of it a value? */
static bool is_computed_of(Fx *x, const char *name, const char *scope, const Instead *in, int depth)
{
    const RawNode *n = depth > 0 && *name ? fx_maker(x, name) : NULL;
    bool depends = false;
    if (!n || strcmp(n->scope, scope) || n->nin > MOST)
        return false;
    for (uint32_t k = 0; k < n->nin && !depends; k++) {
        const Recipe *r = n->made ? n->made[k] : NULL;
        depends = r ? reads_any(r, in) : is_computed_of(x, n->in[k], scope, in, depth - 1);
    }
    return depends;
}

static const Recipe *recipe_instead(Arena *a, const Recipe *r, const Instead *in)
{
    for (uint32_t i = 0; i < in->n; i++)
        r = recipe_with_other(a, r, in->from[i], in->to[i]);
    return r;
}

/* The value computed of other parameters: copies of the nodes between; NULL: it does not depend on
 * those. */
static const char *other_value(Fx *x, const char *name, const char *scope, const Instead *with,
                               int depth)
{
    Arena *a = x->a;
    const RawNode *n = depth > 0 && *name ? fx_maker(x, name) : NULL;
    const char *key = arena_printf(a, "%s@%u", name, with->to[0]), *in[MOST];
    bool depends = false;
    if (!n || strcmp(n->scope, scope) || n->nin > MOST)
        return NULL;
    if (strmap_get(&x->copy, key) != NONE)
        return key;
    for (uint32_t k = 0; k < n->nin; k++) {
        const Recipe *r = n->made ? n->made[k] : NULL;
        in[k] = r ? NULL : other_value(x, n->in[k], scope, with, depth - 1);
        depends |= in[k] != NULL || reads_any(r, with);
    }
    if (!depends)
        return NULL;
    RawNode *own = arena_new_of(a, RawNode);
    *own = *n;
    own->copy_of = n;
    own->scope = with->scope ? with->scope : n->scope;
    if (with->of) {
        own->scope = with->of->scope;
        own->name_scopes = with->of->name_scopes;
        own->fx_node = with->of->fx_node;
        own->stack = with->of->stack;
    }
    own->in = arena_array(a, const char *, n->nin);
    own->out = arena_array(a, const char *, n->nout);
    own->made = NULL;
    for (uint32_t k = 0; k < n->nin; k++) {
        own->in[k] = in[k] ? in[k] : n->in[k];
        if (n->made && n->made[k])
            param_use_made(x->p, own, k, recipe_instead(a, n->made[k], with));
    }
    for (uint32_t k = 0; k < n->nout; k++) {
        own->out[k] = *n->out[k] ? arena_printf(a, "%s@%u", n->out[k], with->to[0]) : "";
        *strmap_at(&x->copy, own->out[k]) = x->copies.n;
    }
    vec_push(a, &x->copies, own);
    return key;
}

uint32_t fx_make_equal(Fx *x, uint32_t entry, uint32_t id)
{
    Params *p = x->p;
    const Param q = p->g->param.at[id];
    const char *name = p->sig.entry[entry].target;
    uint32_t init = q.initializer ? strmap_get(&p->m->init_index, q.initializer) : NONE;
    bool plain = init != NONE &&
                 shape_elements(&q.shape) == shape_elements(&p->m->init.at[init].shape) &&
                 (q.transposed || shape_equal(&q.shape, &p->m->init.at[init].shape));
    p->sig_param[entry] = plain ? param_new(p, name, init, q.transposed, true, false)
                                : param_put(p, name, q.dtype, &q.shape, q.bytes);
    return p->sig_param[entry];
}

/* Does the reader's operand say which nodes to copy?  A file's metadata may say what its nodes do
 * not. */
bool fx_can_compute_instead(Fx *x, const RawNode *reader, uint32_t input, const Instead *in)
{
    const char *name = reader->in[input];
    const RawNode *up = fx_maker(x, name);
    return up && is_computed_of(x, name, up->scope, in, REACH);
}

const char *fx_compute_instead(Fx *x, const RawNode *reader, uint32_t input, const Instead *in)
{
    const char *name = reader->in[input];
    const RawNode *up = fx_maker(x, name);
    INSIST(up);
    const char *other = other_value(x, name, up->scope, in, REACH);
    INSIST(other);
    return other;
}

/* What the reader's operand is to be: the same, computed of the parameter of this entry. */
static const char *separate(Fx *x, const Gone *m, uint32_t entry)
{
    uint32_t id =
        x->p->sig_param[entry] == NONE ? fx_make_equal(x, entry, m->id) : x->p->sig_param[entry];
    return fx_compute_instead(x, m->reader, m->input, &(Instead){&m->id, &id, 1, NULL, NULL});
}

void fx_redirect(Fx *x, RawNode *reader, uint32_t input, const char *other)
{
    const char **in = arena_array(x->a, const char *, reader->nin);
    for (uint32_t k = 0; k < reader->nin; k++)
        in[k] = k == input ? other : reader->in[k];
    reader->in = in;
    reader->renamed = true;
}

/* Each copy stands behind what it is a copy of. */
void fx_insert_copies(Fx *x)
{
    RawNodes all = {0};
    for (uint32_t i = 0; i < x->list->n; i++) {
        vec_push(x->a, &all, x->list->at[i]);
        for (uint32_t k = 0; k < x->copies.n; k++)
            if (x->copies.at[k]->copy_of == x->list->at[i])
                vec_push(x->a, &all, x->copies.at[k]);
    }
    *x->list = all;
}

static long by_number(const char *a, const char *b) { return fx_number(a) - fx_number(b); }

/* How much of their names two parameters of a module share, up to a '_' or the number at the end:
 * "time_mix_key", "time_mix_value". */
static size_t shared_name(const char *a, const char *b, size_t module)
{
    size_t n = 0, most = 0;
    for (a += module, b += module; a[n] && a[n] == b[n]; n++)
        if (a[n] == '_')
            most = n + 1;
    size_t i = n + strspn(a + n, "0123456789"), k = n + strspn(b + n, "0123456789");
    return !a[i] && !b[k] && n > most ? n : most;
}

/* Of what took the place of lost parameters of a module, that which is called most like this one;
 * NONE: nothing, or several. */
static uint32_t substitute(const Fx *x, uint32_t lost, const GoneList *m, size_t module)
{
    size_t most = 1;
    uint32_t found = NONE;
    for (uint32_t i = 0; i < m->n; i++) {
        uint32_t id = m->at[i].id;
        size_t n = shared_name(x->p->sig.entry[lost].target, x->p->g->param.at[id].name, module);
        if (n > most)
            found = id;
        else if (n == most && found != id)
            found = NONE;
        most = n > most ? n : most;
    }
    return found;
}

/* The names that are gone and computed of one parameter, by their numbers. */
typedef VEC(const char *) Names;

static Names names_of(Arena *a, const GoneList *m, uint32_t id)
{
    Names out = {0};
    for (uint32_t i = 0; i < m->n; i++) {
        const char *name = m->at[i].named;
        uint32_t k = 0;
        while (k < out.n && by_number(out.at[k], name) < 0)
            k++;
        if (m->at[i].id != id || (k < out.n && !strcmp(out.at[k], name)))
            continue;
        vec_push(a, &out, NULL);
        for (uint32_t j = out.n - 1; j > k; j--)
            out.at[j] = out.at[j - 1];
        out.at[k] = name;
    }
    return out;
}

static const char *said_key(Fx *x, uint32_t id)
{
    return arena_printf(x->a, "%s\n(merged)", x->p->g->param.at[id].name);
}

bool fx_is_said_merged(Fx *x, uint32_t id)
{
    return strmap_get(&x->p->noted, said_key(x, id)) != NONE;
}

void fx_say_merged(Fx *x, uint32_t id, const char *lost)
{
    Params *p = x->p;
    const char *text = arena_printf(x->a, "%s (for %s)", p->g->param.at[id].name, lost);
    if (strmap_get(&p->noted, text) != NONE)
        return;
    *strmap_at(&p->noted, text) = *strmap_at(&p->noted, said_key(x, id)) = 1;
    vec_push(x->a, &p->merged, text);
}

/* As many lost parameters as names that are gone, in order; or one that all of them are.  Else it
 * is said who trains for whom. */
static void take_apart(Fx *x, const Ids *lost, const GoneList *m, uint32_t id)
{
    Params *p = x->p;
    Names name = names_of(x->a, m, id);
    bool can = lost->n == 1 || lost->n == name.n;
    for (uint32_t i = 0; i < m->n && can; i++)
        can = m->at[i].id != id || fx_can_compute_instead(x, m->at[i].reader, m->at[i].input,
                                                          &(Instead){&id, NULL, 1, NULL, NULL});
    const char **other = arena_array(x->a, const char *, m->n + 1);
    for (uint32_t i = 0; i < m->n && can; i++) {
        uint32_t k = 0;
        if (m->at[i].id != id)
            continue;
        while (strcmp(name.at[k], m->at[i].named))
            k++;
        other[i] = separate(x, &m->at[i], lost->at[lost->n == 1 ? 0 : k]);
    }
    for (uint32_t i = 0; i < m->n; i++)                 /* a reader may lie before another one */
        if (other[i])
            fx_redirect(x, m->at[i].reader, m->at[i].input, other[i]);
    for (uint32_t i = 0; i < lost->n; i++) {
        const char *target = p->sig.entry[lost->at[i]].target, *kept = p->g->param.at[id].name;
        if (p->sig_param[lost->at[i]] != NONE)
            vec_push(x->a, &p->inferred, arena_printf(x->a, "%s (equal to %s)", target, kept));
        else
            fx_say_merged(x, id, target);
    }
}

/* The one parameter that all of it is computed of, or NONE. */
static uint32_t only_substitute(const GoneList *m)
{
    for (uint32_t i = 1; i < m->n; i++)
        if (m->at[i].id != m->at[0].id)
            return NONE;
    return m->n ? m->at[0].id : NONE;
}

/* Are all its numbers the same, as those of several parameters of a fresh model are?  Others are
 * equal only where one is a copy of the other. */
static bool is_fresh(const Fx *x, uint32_t id)
{
    const Param *q = &x->p->g->param.at[id];
    size_t size = dtype_size(q->dtype);
    return q->bytes.at && q->bytes.length >= size &&
           !memcmp(q->bytes.at, q->bytes.at + size, q->bytes.length - size);
}

/* Does the line of a reader of what is gone name it?  That line may hold what was merged, too. */
static bool is_on_line(const Fx *x, uint32_t lost, const GoneList *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (fx_reads(m->at[i].reader, x->p->sig.entry[lost].target))
            return true;
    return false;
}

/* None is called like what took its place, which is one parameter: those that the readers' lines
 * name, where they are as many as the names that are gone; else it is said. */
static void take_by_line(Fx *x, const Ids *lost, const GoneList *m, uint32_t id)
{
    Ids named = {0};
    for (uint32_t i = 0; i < lost->n; i++)
        if (is_on_line(x, lost->at[i], m))
            vec_push(x->a, &named, lost->at[i]);
    if (named.n && named.n == names_of(x->a, m, id).n) {
        take_apart(x, &named, m, id);
        return;
    }
    for (uint32_t i = 0; i < lost->n; i++)
        fx_say_merged(x, id, x->p->sig.entry[lost->at[i]].target);
}

static void take_module_apart(Fx *x, const Ids *lost, const GoneList *m, size_t module)
{
    Ids ids = {0};
    uint32_t only = only_substitute(m);
    bool any = false;
    for (uint32_t i = 0; i < lost->n; i++) {
        vec_push(x->a, &ids, substitute(x, lost->at[i], m, module));
        any |= ids.at[i] != NONE;
    }
    if (!any && only != NONE && is_fresh(x, only))
        take_by_line(x, lost, m, only);
    for (uint32_t i = 0; i < m->n && !any && only == NONE; i++)
        for (uint32_t k = 0; k < lost->n && is_fresh(x, m->at[i].id); k++)
            fx_say_merged(x, m->at[i].id, x->p->sig.entry[lost->at[k]].target);
    for (uint32_t i = 0; i < lost->n; i++) {
        Ids own = {0};
        for (uint32_t k = 0; k < lost->n && ids.at[i] != NONE; k++)
            if (ids.at[k] == ids.at[i] && k >= i)
                vec_push(x->a, &own, lost->at[k]);
        bool first = own.n > 0;
        for (uint32_t k = 0; k < i; k++)
            first &= ids.at[k] != ids.at[i];
        if (first)
            take_apart(x, &own, m, ids.at[i]);
    }
}

void fx_index_makers(Fx *x)
{
    x->maker = (StrMap){.arena = x->a};
    for (uint32_t i = 0; i < x->list->n; i++)
        for (uint32_t k = 0; k < x->list->at[i]->nout; k++)
            if (!x->list->at[i]->dead && *x->list->at[i]->out[k])
                *strmap_at(&x->maker, x->list->at[i]->out[k]) = i;
}

void fx_separate_equal(Fx *x)
{
    Params *p = x->p;
    StrMap seen = {.arena = x->a};
    x->copy.arena = x->a;
    fx_index_makers(x);
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const char *target = p->sig.entry[e].target, *dot = strrchr(target, '.');
        size_t n = dot ? (size_t)(dot - target) + 1 : 0;
        const char *module = arena_strndup(x->a, target, n);
        Ids lost = {0};
        if (strmap_get(&seen, module) != NONE)
            continue;
        *strmap_at(&seen, module) = 1;
        for (uint32_t k = e; k < p->sig.n; k++)
            if (is_in(p->sig.entry[k].target, module, n) && fx_is_unread(x, k) &&
                !fx_is_traced(x, k))
                vec_push(x->a, &lost, k);
        if (lost.n == 0)
            continue;
        const GoneList merged = fx_find_gone(x, module);
        take_module_apart(x, &lost, &merged, n);
    }
}

/* A view of what a shared Split made is merged as well (make.c): its readers in other modules read
 * the parameter of the same name there, which is its equal and has readers already. */
void fx_separate_views(Fx *x)
{
    const Params *p = x->p;
    const GoneList gone = fx_find_gone(x, NULL);
    for (uint32_t i = 0; i < gone.n; i++) {
        const Gone *o = &gone.at[i];
        const Param *q = &p->g->param.at[o->id];
        const char *dot = strrchr(q->name, '.'), *scope = o->reader->scope;
        uint32_t e = dot ? strmap_get(&p->sig.by_target, arena_printf(x->a, "%s%s", scope, dot))
                         : NONE,
                 own = e == NONE ? NONE : p->sig_param[e];
        const char *init = own == NONE ? NULL : p->g->param.at[own].initializer;
        if (own == o->id || !o->is_sure || !init || !q->initializer || strcmp(init, q->initializer))
            continue;
        Instead in = {&o->id, &own, 1, scope, NULL};
        if (fx_can_compute_instead(x, o->reader, o->input, &in))
            fx_redirect(x, o->reader, o->input,
                        fx_compute_instead(x, o->reader, o->input, &in));
    }
}

/*
 * twin.c - modules that are equal to others and read the same value: two norms of one input,
 * as initialised, are one node in the file.  In: modules of which no parameter is read.  Out: their
 * parameters and nodes again; or the names of those that train in their place, with the sum of the
 * gradients of both.
 *
 * As in equal.c the reader's fx node still names what it read ("%layer_norm_1"), which is
 * gone.  The module that computes the value instead is the twin of the lost one that has parameters
 * of the same names and stands nearest to the reader.  Where several are as near, who is whose
 * cannot be told.
 *
 * A reader that was fused with what it read (a convolution with the BatchNormalization behind it)
 * does not name that.  Then only the number of users in the value's fx node ("num_users=1") tells
 * that there are more now than there were.
 */
#include <string.h>

#include "fx.h"

enum { REACH = 6, MOST = 16 };                          /* nodes in a row; operands of one */

/* A module by its path with the dot, ""; its parameters, by their entries in order. */
typedef struct {
    const char *path;
    Ids entry;
    bool lost, has_buffer, has_nodes;
} Module;
typedef VEC(Module) Modules;

/* One of the readers of what a lost module computed, and a module whose result it reads now. */
typedef struct { Gone read; uint32_t lost, from; bool is_sure; } Twin;
typedef VEC(Twin) Twins;

static size_t path_length(const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot ? (size_t)(dot - target) + 1 : 0;
}

static uint32_t module_of(Arena *a, StrMap *index, Modules *all, const char *target)
{
    const char *path = arena_strndup(a, target, path_length(target));
    uint32_t *slot = strmap_at(index, path);
    if (*slot == NONE) {
        *slot = all->n;
        vec_push(a, all, ((Module){.path = path, .lost = true}));
    }
    return *slot;
}

static void find_modules(const Fx *x, StrMap *index, Modules *out)
{
    const Params *p = x->p;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        SigKind kind = p->sig.entry[e].kind;
        if (kind != SIG_PARAMETER && kind != SIG_BUFFER)
            continue;
        uint32_t at = module_of(x->a, index, out, p->sig.entry[e].target);
        Module *m = &out->at[at];
        if (kind == SIG_BUFFER) {
            m->has_buffer = true;
            continue;
        }
        vec_push(x->a, &m->entry, e);
        m->lost &= fx_is_unread(x, e) && !fx_is_traced(x, e);
    }
    for (uint32_t i = 0; i < x->list->n; i++) {
        const char *scope = x->list->at[i]->dead ? NULL : x->list->at[i]->scope;
        uint32_t at = scope && *scope ? strmap_get(index, arena_printf(x->a, "%s.", scope)) : NONE;
        if (at != NONE)
            out->at[at].has_nodes = true;
    }
}

static const char *leaf(const Fx *x, const Module *m, uint32_t i)
{
    return x->p->sig.entry[m->entry.at[i]].target + strlen(m->path);
}

/* The entry of a module with this name, or NONE. */
static uint32_t entry_named(const Fx *x, const Module *m, const char *name)
{
    for (uint32_t i = 0; i < m->entry.n; i++)
        if (!strcmp(leaf(x, m, i), name))
            return m->entry.at[i];
    return NONE;
}

/* Has `of`, which is known, parameters of the same names as the lost one? */
static bool is_alike(const Fx *x, const Module *lost, const Module *of)
{
    if (!lost->lost || of->lost || lost->entry.n != of->entry.n || lost->entry.n == 0)
        return false;
    for (uint32_t i = 0; i < lost->entry.n; i++) {
        uint32_t e = entry_named(x, of, leaf(x, lost, i));
        if (e == NONE || x->p->sig_param[e] == NONE)
            return false;
    }
    return true;
}

/* How many modules two paths have in common. */
static uint32_t common(const char *a, const char *b)
{
    uint32_t n = 0;
    for (size_t i = 0; a[i] && (a[i] == b[i] || (a[i] == '.' && !b[i])); i++) {
        n += a[i] == '.';
        if (!b[i])
            break;
    }
    return n;
}

static bool is_in(const char *scope, const Module *m)
{
    size_t n = strlen(m->path) - (*m->path != '\0');
    return !strncmp(scope, m->path, n) && (!scope[n] || scope[n] == '.' || n == 0);
}

/* May all be gone that it computed for this reader?  Not of one that has nodes left, of which only
 * the parameters are gone; its own nodes may read what they were merged with. */
static bool is_whole(const Module *lost, const char *reader)
{
    return !lost->has_nodes || is_in(reader, lost);
}

/* The lost modules that the reader's operand may be of: those nearest to it and then to the module
 * that computes it now. */
static void find_twins(Fx *x, const Modules *all, uint32_t from, const Gone *o, Twins *out)
{
    uint32_t most = 0, first = out->n;
    for (uint32_t i = 0; i < all->n; i++) {
        const char *path = all->at[i].path;
        uint32_t near = 1 + 256 * common(path, o->reader->scope) + common(path, all->at[from].path);
        if (!is_whole(&all->at[i], o->reader->scope) || near < most ||
            !is_alike(x, &all->at[i], &all->at[from]))
            continue;
        if (near > most)
            out->n = first;
        most = near;
        vec_push(x->a, out, ((Twin){.read = *o, .lost = i, .from = from}));
    }
    if (out->n == first + 1)
        out->at[first].is_sure = o->is_sure;
}

static void find_readers(Fx *x, StrMap *index, const Modules *all, Twins *out)
{
    const GoneList gone = fx_find_gone(x, NULL);
    for (uint32_t i = 0; i < gone.n; i++) {
        const char *name = x->p->g->param.at[gone.at[i].id].name;
        uint32_t from = strmap_get(index, arena_strndup(x->a, name, path_length(name)));
        if (from != NONE)
            find_twins(x, all, from, &gone.at[i], out);
    }
}

/* The parameters of the module that is there, in the order of the lost one's. */
static uint32_t *params_of(const Fx *x, const Module *lost, const Module *from)
{
    uint32_t *id = arena_array(x->a, uint32_t, lost->entry.n);
    for (uint32_t i = 0; i < lost->entry.n; i++)
        id[i] = x->p->sig_param[entry_named(x, from, leaf(x, lost, i))];
    return id;
}

/* Is each reader of this module's one that can be told, and of one and the same other module? */
static bool can_separate(Fx *x, const Modules *all, const Twins *t, uint32_t lost, uint32_t from)
{
    const Module *m = &all->at[lost], *other = &all->at[from];
    Instead in = {.from = params_of(x, m, other), .n = m->entry.n};
    bool can = !m->has_buffer && !other->has_buffer;
    for (uint32_t i = 0; i < t->n && can; i++)
        if (t->at[i].lost == lost)
            can = t->at[i].is_sure && t->at[i].from == from &&
                  fx_can_compute_instead(x, t->at[i].read.reader, t->at[i].read.input, &in);
    return can;
}

static void separate(Fx *x, const Modules *all, const Twins *t, uint32_t lost, uint32_t from)
{
    const Module *m = &all->at[lost];
    uint32_t *id = params_of(x, m, &all->at[from]), *to = arena_array(x->a, uint32_t, m->entry.n);
    for (uint32_t i = 0; i < m->entry.n; i++) {
        to[i] = fx_make_equal(x, m->entry.at[i], id[i]);
        vec_push(x->a, &x->p->inferred,
                 arena_printf(x->a, "%s%s (equal to %s)", m->path, leaf(x, m, i),
                              x->p->g->param.at[id[i]].name));
    }
    size_t n = strlen(m->path);
    Instead in = {id, to, m->entry.n, arena_strndup(x->a, m->path, n - (n > 0)), NULL};
    for (uint32_t i = 0; i < t->n; i++)
        if (t->at[i].lost == lost)
            fx_redirect(x, t->at[i].read.reader, t->at[i].read.input,
                        fx_compute_instead(x, t->at[i].read.reader, t->at[i].read.input, &in));
}

/* Are its parameters as initialised, all ones or all zeros, as those of another may be?  Other
 * numbers are equal only where a module was copied; a lost one may as well be unused, and this one
 * be called twice. */
static bool is_fresh(const Fx *x, const Module *m)
{
    bool fresh = true;
    for (uint32_t i = 0; i < m->entry.n; i++) {
        const Param *q = &x->p->g->param.at[x->p->sig_param[m->entry.at[i]]];
        size_t size = dtype_size(q->dtype);
        fresh &= !q->bytes.at || q->bytes.length <= size ||
                 !memcmp(q->bytes.at, q->bytes.at + size, q->bytes.length - size);
    }
    return fresh;
}

static void say_merged(Fx *x, const Module *lost, const Module *from)
{
    const uint32_t *id = params_of(x, lost, from);
    const char *doubt = is_fresh(x, from) ? "" : ", if that is used";
    for (uint32_t i = 0; i < lost->entry.n; i++)
        fx_say_merged(x, id[i],
                      arena_printf(x->a, "%s%s%s", lost->path, leaf(x, lost, i), doubt));
}

void fx_separate_twins(Fx *x)
{
    Modules all = {0};
    Twins twin = {0};
    StrMap index = {.arena = x->a};
    find_modules(x, &index, &all);
    find_readers(x, &index, &all, &twin);
    for (uint32_t i = 0; i < twin.n; i++) {
        uint32_t lost = twin.at[i].lost, from = twin.at[i].from;
        bool first = true;
        for (uint32_t k = 0; k < i; k++)
            first &= twin.at[k].lost != lost;
        if (first && is_fresh(x, &all.at[from]) && can_separate(x, &all, &twin, lost, from))
            separate(x, &all, &twin, lost, from);
        else if (fx_is_unread(x, all.at[lost].entry.at[0]))
            say_merged(x, &all.at[lost], &all.at[from]);
    }
}

/* ---- values that are read more often than they were ---- */

/* How a value is read: by which group, and by what name. */
typedef struct { const Group *by; const char *name; } Read;
typedef struct {
    VEC(Read) read;
    bool is_output, has_parts;                          /* it is read through getitem nodes */
} Reading;

/* What the reader calls operand `input`: what makes it, or what is gone, which a node that does
 * nothing and was removed may have been.  Of what was fused with the reader nothing is left. */
static const char *called(const Fx *x, const Group *g, uint32_t input, const Group *own)
{
    const char *gone = NULL, *placed = NULL;
    for (uint32_t k = 0; k < g->fx.n; k++) {
        const FxArg *arg = &g->fx.arg[k];
        if (!strcmp(arg->name, own->fx.name))
            return arg->name;
        if (!fx_is_gone(x, arg->name))
            continue;
        gone = gone ? gone : arg->name;
        placed = arg->position == (int)input ? arg->name : placed;
    }
    return placed ? placed : gone ? gone : g->fx.name;
}

/* As many readers as name it, and one for each other name. */
static void add_read(Fx *x, Reading *r, const Group *own, const Group *g, uint32_t input)
{
    const char *name = called(x, g, input, own);
    bool known = false, named = !strcmp(name, own->fx.name);
    for (uint32_t i = 0; i < r->read.n; i++)
        known |= (r->read.at[i].by == g && !strchr(r->read.at[i].name, '@')) ||
                 (!named && !strcmp(r->read.at[i].name, name));
    if (!known)
        vec_push(x->a, &r->read, ((Read){g, name}));
}

/* A copy, with an equal parameter, stands for an fx node that is gone; so it reads as one. */
static void add_copy(Fx *x, Reading *all, const RawNode *copy)
{
    const Group *g = fx_group(x, copy->copy_of);
    const char *number = copy->nout ? strrchr(copy->out[0], '@') : NULL;
    for (uint32_t k = 0; g && number && k < copy->nin; k++) {
        const RawNode *up = *copy->in[k] ? fx_maker(x, copy->in[k]) : NULL;
        const Group *own = up && !up->copy_of ? fx_group(x, up) : NULL;
        const char *name = arena_printf(x->a, "%s%s", g->fx.name, number);
        bool known = !own || own == g;
        for (uint32_t i = 0; !known && i < all[own - x->group.at].read.n; i++)
            known = !strcmp(all[own - x->group.at].read.at[i].name, name);
        if (!known)
            vec_push(x->a, &all[own - x->group.at].read, ((Read){g, name}));
    }
}

static Reading *find_reading(Fx *x)
{
    Reading *all = arena_array(x->a, Reading, x->group.n + 1);
    const Onnx__GraphProto *graph = x->p->m->graph;
    for (uint32_t i = 0; i < x->list->n; i++) {
        const RawNode *n = x->list->at[i];
        const Group *g = n->dead || n->copy_of ? NULL : fx_group(x, n);
        if (!n->dead && n->copy_of)
            add_copy(x, all, n);
        for (uint32_t k = 0; g && k < n->nin; k++) {
            const RawNode *up = *n->in[k] ? fx_maker(x, n->in[k]) : NULL;
            const Group *own = up && !up->copy_of ? fx_group(x, up) : NULL;
            if (!own || own == g)
                continue;
            add_read(x, &all[own - x->group.at], own, g, k);
            all[own - x->group.at].has_parts |= strcmp(n->in[k], own->fx.name) != 0;
        }
    }
    for (size_t i = 0; i < graph->n_output; i++) {
        const RawNode *up = fx_maker(x, graph->output[i]->name);
        const Group *own = up ? fx_group(x, up) : NULL;
        if (own)
            all[own - x->group.at].is_output = true;
    }
    return all;
}

/* Of what is read more often than it says, a reader that does not name it; or NULL. */
static const Group *surplus_reader(const Reading *r, const Group *own)
{
    const Group *found = NULL;
    if (own->fx.users == 0 || r->has_parts || r->read.n + r->is_output <= own->fx.users)
        return NULL;
    for (uint32_t i = 0; i < r->read.n; i++)
        if (strcmp(r->read.at[i].name, own->fx.name))
            found = r->read.at[i].by;
    return found;
}

/* Can a node of this name be gone that was made before the reader? */
static bool can_be_gone(const Fx *x, const char *name, const Group *reader)
{
    long last = -1;
    for (uint32_t i = 0; i < x->group.n; i++)
        if (x->group.at[i].order > reader->order && fx_same_base(x->group.at[i].fx.name, name) &&
            fx_number(x->group.at[i].fx.name) > last)
            last = fx_number(x->group.at[i].fx.name);
    return fx_may_lack(x->a, &x->index, name, last);
}

/* The parameter, before any product, of which the nearest is made that the reader may read an equal
 * of; or NONE. */
static uint32_t nearest_param(Fx *x, const RawNode *n, const Group *reader, int depth)
{
    static const char *const product[] = {"MatMul", "Gemm", "Conv", "ConvTranspose"};
    const Group *g = fx_group(x, n);
    bool last = depth <= 1 || n->nin > MOST;
    uint32_t found = NONE;
    if (n->copy_of || !g || !can_be_gone(x, g->fx.name, reader))
        return NONE;
    for (uint32_t k = 0; n->made && k < n->nin; k++) {
        found = n->made[k] ? recipe_only_param(n->made[k]) : NONE;
        if (found != NONE)
            return found;
    }
    for (size_t i = 0; i < sizeof product / sizeof *product; i++)
        last |= !strcmp(n->op_type, product[i]);
    for (uint32_t k = 0; !last && found == NONE && k < n->nin; k++) {
        const RawNode *up = *n->in[k] ? fx_maker(x, n->in[k]) : NULL;
        found = up ? nearest_param(x, up, reader, depth - 1) : NONE;
    }
    return found;
}

/* Which of several lost modules it is, nothing tells; named is enough. */
static void say_any_of(Fx *x, const Modules *all, const Ids *lost, const Module *from)
{
    uint32_t first = x->p->sig_param[from->entry.at[0]];
    if (fx_is_said_merged(x, first))
        return;
    if (lost->n == 1) {
        say_merged(x, &all->at[lost->at[0]], from);
        return;
    }
    for (uint32_t i = 0; i < from->entry.n; i++)
        fx_say_merged(x, x->p->sig_param[from->entry.at[i]],
                      arena_printf(x->a, "one of %u lost ones", lost->n));
}

/* Does its initializer stand for another parameter, too?  Then what is computed of it and is read
 * more often than it was may have been computed of that one. */
static bool has_equal(const Fx *x, uint32_t id)
{
    const Graph *g = x->p->g;
    const char *init = g->param.at[id].initializer;
    for (uint32_t i = 0; i < g->param.n && init; i++)
        if (i != id && g->param.at[i].initializer && !strcmp(g->param.at[i].initializer, init))
            return true;
    return false;
}

/* Does the reader name one that is gone, of the kind of what it reads? */
static bool names_gone(const Fx *x, const Group *reader, const Group *own)
{
    for (uint32_t k = 0; k < reader->fx.n; k++)
        if (fx_is_gone(x, reader->fx.arg[k].name) &&
            fx_same_base(reader->fx.arg[k].name, own->fx.name))
            return true;
    return false;
}

static void note_surplus(Fx *x, StrMap *index, const Modules *all, const Group *own,
                         const Group *reader)
{
    Ids lost = {0};
    const RawNode *n = own->node.at[own->node.n - 1];
    uint32_t id = nearest_param(x, n, reader, REACH);
    const char *name = id == NONE ? "" : x->p->g->param.at[id].name;
    uint32_t from =
        id == NONE ? NONE : strmap_get(index, arena_strndup(x->a, name, path_length(name)));
    for (uint32_t i = 0; from != NONE && i < all->n; i++)
        if (is_whole(&all->at[i], reader->node.at[0]->scope) &&
            is_alike(x, &all->at[i], &all->at[from]) &&
            all->at[i].has_buffer == all->at[from].has_buffer)
            vec_push(x->a, &lost, i);
    if (lost.n && (is_in(n->scope, &all->at[from]) || is_fresh(x, &all->at[from])))
        say_any_of(x, all, &lost, &all->at[from]);
    id = names_gone(x, reader, own) ? nearest_param(x, n, reader, 1) : NONE;
    if (id != NONE && has_equal(x, id) && !fx_is_said_merged(x, id))
        fx_say_merged(x, id, "an equal one");
}

void fx_note_surplus(Fx *x)
{
    Modules all = {0};
    StrMap index = {.arena = x->a};
    find_modules(x, &index, &all);
    fx_index_makers(x);
    const Reading *reading = find_reading(x);
    for (uint32_t i = 0; i < x->group.n; i++) {
        const Group *reader = surplus_reader(&reading[i], &x->group.at[i]);
        if (reader)
            note_surplus(x, &index, &all, &x->group.at[i], reader);
    }
}

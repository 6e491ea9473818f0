/*
 * merged.c - modules that are equal to others and read the same value: of two norms of one input,
 * as initialised, the exporter's optimizer kept one (Falcon, GPT-NeoX).  In: fx nodes whose
 * arguments name what the file does not have, while their nodes read its equal.  Out: the lost
 * module's parameters again, with nodes of their own.  Where it is not told whose they were, the
 * model is refused: a parameter would train with the gradients of two.
 *
 * "num_users" of an fx node says how many read what it made.  Where more do now, by as many names,
 * a reader that names what is gone ("%layer_norm_1") reads the equal of it.  What is gone was
 * computed of parameters of the same names, in the reader's own module, or else in the nearest one
 * of which nothing is left.
 */
#include <string.h>

#include "merged.h"

static bool is_gone(const Merge *m, const char *name)
{
    const Params *p = m->x->p;
    return strmap_get(&m->x->index, name) == NONE && strmap_get(&p->sig.by_arg, name) == NONE &&
           strmap_get(&p->m->init_index, name) == NONE && strmap_get(&m->maker, name) == NONE;
}

static bool is_like(const char *gone, const Group *made, const char *value)
{
    return fx_same_base(made->fx.name, gone) || fx_same_base(value, gone);
}

/* ---- who reads more than there was ---- */

static void add_name(Arena *a, Reading *r, const char *name)
{
    for (uint32_t i = 0; i < r->name.n; i++)
        if (!strcmp(r->name.at[i], name))
            return;
    vec_push(a, &r->name, name);
}

/* The names by which a group's nodes read what `own` makes. */
static void add_reader(Merge *m, const Group *own, const Group *g, const char *value)
{
    Arena *a = m->x->a;
    Reading *r = &m->reading[own - m->x->group.at];
    const char *removed = NULL;
    bool any = false;
    for (uint32_t k = 0; k < g->fx.n; k++) {
        const char *arg = g->fx.arg[k].name;
        bool gone = is_gone(m, arg), named = !strcmp(arg, own->fx.name);
        if (named || (gone && is_like(arg, own, value))) {
            add_name(a, r, named ? arena_printf(a, "%s by %s", arg, g->fx.name) : arg);
            any = true;
        }
        removed = gone && !removed ? arg : removed;
    }
    if (!any) /* a node that did nothing is gone, or joined */
        add_name(a, r, removed ? removed : arena_printf(a, "by %s", g->fx.name));
}

static void find_reading(Merge *m)
{
    Fx *x = m->x;
    const Onnx__GraphProto *graph = x->p->m->graph;
    for (uint32_t i = 0; i < x->list->n; i++) {
        const RawNode *n = x->list->at[i];
        const Group *g = n->dead ? NULL : fx_group(x, n);
        for (uint32_t k = 0; g && k < n->nin; k++) {
            const Group *own = merged_group(m, n->in[k]);
            if (!own || own == g)
                continue;
            add_reader(m, own, g, n->in[k]);
            m->reading[own - x->group.at].has_parts |= strcmp(n->in[k], own->fx.name) != 0;
        }
    }
    for (size_t i = 0; i < graph->n_output; i++) {
        const Group *own = merged_group(m, graph->output[i]->name);
        if (own)
            add_name(x->a, &m->reading[own - x->group.at], "(output)");
    }
}

/* Of what is read by parts, only a name that is gone tells. */
static bool is_read_more(const Merge *m, const Group *own, const char *named)
{
    const Reading *r = &m->reading[own - m->x->group.at];
    return own->fx.users && (r->has_parts ? named != NULL : r->name.n > own->fx.users);
}

/* ---- of which parameters ---- */

static bool same_module(const char *a, const char *b)
{
    size_t n = module_length(a);
    return n == module_length(b) && !strncmp(a, b, n);
}

static bool is_product(const RawNode *n)
{
    static const char *const product[] = {"MatMul", "Gemm", "Conv", "ConvTranspose"};
    for (size_t i = 0; i < sizeof product / sizeof *product; i++)
        if (!strcmp(n->op_type, product[i]))
            return true;
    return false;
}

static bool moves_only(const RawNode *n)
{
    return !strcmp(n->op_type, "Transpose") || !strcmp(n->op_type, "Reshape");
}

/* The parameters of the first module that the value is computed of; far: in other modules, too. */
static void find_kept(const Merge *m, const RawNode *n, int depth, bool far, Ids *out)
{
    for (uint32_t k = 0; n->made && k < n->nin; k++) {
        uint32_t id = n->made[k] ? recipe_only_param(n->made[k]) : NONE;
        if (id != NONE && (!out->n || same_module(merged_name(m, id), merged_name(m, out->at[0]))))
            vec_push(m->x->a, out, id);
    }
    for (uint32_t k = 0; k < n->nin && depth > 1 && !is_product(n) && !out->n; k++) {
        const RawNode *up = merged_maker(m, n->in[k]);
        if (up && (far || !strcmp(up->scope, n->scope) || moves_only(n)))
            find_kept(m, up, depth - 1, far, out);
    }
}

static bool is_lost(const Fx *x, uint32_t e) { return fx_is_unread(x, e) && !fx_is_traced(x, e); }

/* Is it known, of the same initializer as the kept one? */
static bool is_equal(const Merge *m, uint32_t e, uint32_t kept)
{
    uint32_t id = m->x->p->sig_param[e];
    const char *init = id == NONE ? NULL : m->x->p->g->param.at[id].initializer,
               *own = m->x->p->g->param.at[kept].initializer;
    return id != kept && init && own && !strcmp(init, own);
}

/* Are all its numbers the same, as those of fresh modules are?  Others are equal only where a
 * module was copied, and may be called twice. */
static bool is_fresh(const Merge *m, const Gone *o)
{
    bool fresh = true;
    for (uint32_t i = 0; i < o->kept.n; i++) {
        const Param *q = &m->x->p->g->param.at[o->kept.at[i]];
        size_t size = dtype_size(q->dtype);
        fresh &= !q->bytes.at || q->bytes.length <= size ||
                 !memcmp(q->bytes.at, q->bytes.at + size, q->bytes.length - size);
    }
    return fresh;
}

/* Has the operand, which `own` makes, no name among the arguments?  Fills the name of what is gone.
 */
static bool is_unnamed(const Merge *m, const Group *g, const Group *own, Gone *o)
{
    const char *value = o->reader->in[o->input];
    for (uint32_t j = 0; j < g->fx.n; j++) {
        const FxArg *arg = &g->fx.arg[j];
        bool here = arg->position == (int)o->input || g->node.n > 1 || g->fx.n == 1;
        if (here && (!strcmp(arg->name, own->fx.name) || !strcmp(arg->name, value)))
            return false;
        if (here && is_gone(m, arg->name) && is_like(arg->name, own, value))
            o->named = arg->name;
    }
    return true;
}

/* linear(x, w, b) and linear(x, v, c) of equal w and v are one product and two sums: the second sum
 * is of the fx node that names v, and reads the inside of the first. */
static bool is_inside_of(const Group *g, const Group *own)
{
    for (uint32_t j = 0; j < g->fx.n; j++)
        if (!strcmp(g->fx.arg[j].name, own->fx.name))
            return false;
    return !strcmp(own->fx.target, g->fx.target) && own->fx.n == g->fx.n;
}

/* Operands that no argument names, of what is read more often than it was. */
static void find_gone(Merge *m)
{
    Fx *x = m->x;
    for (uint32_t i = 0; i < x->group.n; i++) {
        const Group *g = &x->group.at[i];
        for (uint32_t q = 0; q < g->node.n; q++)
            for (uint32_t k = 0; k < g->node.at[q]->nin; k++) {
                Gone o = {.reader = g->node.at[q], .input = k};
                const Group *own = merged_group(m, o.reader->in[k]);
                if (!own || own == g || !is_unnamed(m, g, own, &o))
                    continue;
                o.inside = is_inside_of(g, own) ? own : NULL;
                if (!o.inside && !is_read_more(m, own, o.named))
                    continue;
                find_kept(m, merged_maker(m, o.reader->in[k]), REACH, !o.named && !o.inside,
                          &o.kept);
                if (o.kept.n)
                    vec_push(x->a, &m->gone, o);
            }
    }
}

/* ---- which parameters were lost ---- */

static uint32_t common(const char *a, const char *b)
{
    uint32_t n = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        n += a[i] == '.';
    return n;
}

static uint32_t entry_beside(const Merge *m, const char *module, const char *leaf)
{
    size_t n = module_length(module);
    return strmap_get(&m->x->p->sig.by_target,
                      arena_printf(m->x->a, "%.*s%s", (int)n, module, leaf));
}

static bool has_nodes(const Merge *m, const char *target)
{
    size_t n = module_length(target);
    for (uint32_t i = 0; n > 1 && i < m->x->list->n; i++)
        if (!m->x->list->at[i]->dead && strlen(m->x->list->at[i]->scope) == n - 1 &&
            !strncmp(m->x->list->at[i]->scope, target, n - 1))
            return true;
    return false;
}

static bool is_inside(const char *scope, const char *target)
{
    size_t n = module_length(target);
    return n > 1 && !strncmp(scope, target, n - 1) && (!scope[n - 1] || scope[n - 1] == '.');
}

static uint32_t module_size(const Params *p, const char *target)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < p->sig.n; e++)
        n += p->sig.entry[e].kind == SIG_PARAMETER && same_module(p->sig.entry[e].target, target);
    return n;
}

/* Has the module of `like` lost parameters of the names of all that were kept?  Fills `to`. */
static bool is_twin(const Merge *m, const Gone *o, const char *like, Ids *to)
{
    const Params *p = m->x->p;
    *to = (Ids){0};
    if (module_size(p, like) != module_size(p, merged_name(m, o->kept.at[0])))
        return false;
    for (uint32_t i = 0; i < o->kept.n; i++) {
        uint32_t e = entry_beside(m, like, fx_leaf(merged_name(m, o->kept.at[i])));
        if (e == NONE || !(is_lost(m->x, e) || m->taken[e] || is_equal(m, e, o->kept.at[i])))
            return false;
        vec_push(m->x->a, to, e);
    }
    return is_inside(o->reader->scope, like) || !has_nodes(m, like);
}

/* Entries of the nearest module that is a twin of the kept ones'; false: none, or several. */
static bool find_twin(const Merge *m, const Gone *o, Ids *out)
{
    const Params *p = m->x->p;
    const char *kept = merged_name(m, o->kept.at[0]), *best = NULL;
    uint32_t most = 0;
    bool several = false;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const char *target = p->sig.entry[e].target;
        Ids to;
        if (p->sig.entry[e].kind != SIG_PARAMETER || same_module(target, kept) ||
            (best && same_module(best, target)) || !is_twin(m, o, target, &to))
            continue;
        uint32_t near = 1 + 256 * common(target, arena_printf(m->x->a, "%s.", o->reader->scope)) +
                        common(target, kept);
        several = near == most || (near < most && several);
        if (near > most) {
            *out = to;
            best = target;
            most = near;
        }
    }
    return best && !several;
}

/* Of other names in the same module, where as many are lost as names are gone: in their order. */
static bool find_beside(const Merge *m, const Gone *o, Ids *out)
{
    const Params *p = m->x->p;
    Reading names = {0};
    Ids lost = {0};
    uint32_t before = 0;
    for (uint32_t i = 0; i < m->gone.n; i++)
        if (m->gone.at[i].kept.at[0] == o->kept.at[0] && m->gone.at[i].named)
            add_name(m->x->a, &names, m->gone.at[i].named);
    for (uint32_t e = 0; e < p->sig.n; e++)
        if ((is_lost(m->x, e) || m->taken[e]) &&
            same_module(p->sig.entry[e].target, merged_name(m, o->kept.at[0])))
            vec_push(m->x->a, &lost, e);
    for (uint32_t i = 0; i < names.name.n; i++)
        before += fx_number(names.name.at[i]) < fx_number(o->named);
    if (o->kept.n != 1 || lost.n != names.name.n)
        return false;
    vec_push(m->x->a, out, lost.at[before]);
    return true;
}

/* The reader's own argument, at the place of the kept one among those of what it reads the inside
 * of. */
static bool find_argument(const Merge *m, const Gone *o, Ids *out)
{
    const Params *p = m->x->p;
    const Group *g = fx_group(m->x, o->reader);
    for (uint32_t i = 0; g && i < g->fx.n; i++) {
        uint32_t own = strmap_get(&p->sig.by_arg, g->fx.arg[i].name),
                 kept = strmap_get(&p->sig.by_arg, o->inside->fx.arg[i].name);
        if (own == NONE || kept == NONE || own == kept || p->sig.entry[own].kind != SIG_PARAMETER ||
            p->sig_param[kept] != o->kept.at[0] || m->x->alias[own] ||
            g->fx.arg[i].position != o->inside->fx.arg[i].position)
            continue;
        vec_push(m->x->a, out, own);
    }
    return out->n == o->kept.n;
}

/* ---- the whole ---- */

/* A copy reads once more what another module made; that may have been merged as well. */
static void read_again(Merge *m, uint32_t i)
{
    RawNode *copy = m->again.at[i].copy;
    uint32_t k = m->again.at[i].input;
    const Group *own = merged_group(m, copy->in[k]);
    Gone o = {.reader = copy, .input = k};
    if (!own || own == fx_group(m->x, copy->copy_of))
        return;
    o.named = arena_printf(m->x->a, "%sr%u", own->fx.name, i);
    add_name(m->x->a, &m->reading[own - m->x->group.at],
             arena_printf(m->x->a, "by %s", copy->out[0]));
    find_kept(m, merged_maker(m, copy->in[k]), REACH, false, &o.kept);
    if (o.kept.n && is_read_more(m, own, NULL))
        vec_push(m->x->a, &m->gone, o);
}

static bool separate(Merge *m, const Gone *o)
{
    Fx *x = m->x;
    const char *value = o->reader->in[o->input];
    Instead in = {.from = o->kept, .value = value, .named = o->named};
    const RawNode *up = merged_maker(m, value);
    INSIST(up);
    bool found = o->inside ? find_argument(m, o, &in.entry)
                           : o->named && ((is_fresh(m, o) && find_twin(m, o, &in.entry)) ||
                                          find_beside(m, o, &in.entry));
    if (!found || o->reader->inlined || !merged_can_compute(m, value, up->scope, &o->kept, REACH))
        return false;
    in.reader = o->inside ? o->reader : NULL;
    for (uint32_t i = 0; i < in.entry.n; i++) {
        vec_push(x->a, &in.to, fx_make_equal(x, in.entry.at[i], o->kept.at[i]));
        m->taken[in.entry.at[i]] = true;
    }
    if (o->reader->copy_of && o->reader->fx_node && merged_group(m, value))
        o->reader->fx_node =
            merged_renamed(x->a, o->reader->fx_node, merged_group(m, value)->fx.name, o->named);
    uint32_t first = m->again.n;
    merged_redirect(m, o, merged_compute(m, value, &in, REACH));
    for (uint32_t i = first; i < m->again.n; i++)
        read_again(m, i);
    return true;
}

/* Other parameters that may have been what the operand was computed of: how many. */
static uint32_t count_lost(const Merge *m, const Gone *o, const char **one)
{
    const Params *p = m->x->p;
    const char *kept = merged_name(m, o->kept.at[0]);
    uint32_t n = 0;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const SigEntry *s = &p->sig.entry[e];
        Ids to;
        if (s->kind != SIG_PARAMETER ||
            !(same_module(s->target, kept) ? is_lost(m->x, e) || is_equal(m, e, o->kept.at[0])
                                           : is_twin(m, o, s->target, &to)))
            continue;
        *one = s->target;
        n++;
    }
    return n;
}

static void refuse(const Merge *m, const Gone *o)
{
    Params *p = m->x->p;
    const char *lost = NULL, *kept = merged_name(m, o->kept.at[0]);
    uint32_t n = count_lost(m, o, &lost);
    if (n == 0 || !p->opt->training)
        return;
    const char *names = n > 1 ? arena_printf(m->x->a, "%s and others", lost) : lost;
    diag_hint("export with optimize=False, or after a step of training: equal parameters are kept "
              "apart then");
    if (o->named && (is_fresh(m, o) || same_module(lost, kept)))
        diag_fatal(EXIT_MODEL, raw_where(p->m, o->reader, (int)o->input),
                   "the export merged '%s' with its equal, so that %s would train with the "
                   "gradients of %s, "
                   "too",
                   o->named, kept, names);
    diag_warn(raw_where(p->m, o->reader, (int)o->input),
              "it has more readers than before the export merged equal nodes: %s may train with "
              "the gradients "
              "of %s, too",
              kept, names);
}

void fx_separate_merged(Fx *x)
{
    Merge m = {.x = x,
               .maker.arena = x->a,
               .copy.arena = x->a,
               .reading = arena_array(x->a, Reading, x->group.n + 1),
               .taken = arena_array(x->a, bool, x->p->sig.n + 1)};
    for (uint32_t i = 0; i < x->list->n; i++)
        for (uint32_t k = 0; k < x->list->at[i]->nout; k++)
            if (!x->list->at[i]->dead && *x->list->at[i]->out[k])
                *strmap_at(&m.maker, x->list->at[i]->out[k]) = i;
    GoneList left = {0};
    find_reading(&m);
    find_gone(&m);
    for (uint32_t i = 0; i < m.gone.n; i++)
        if (!separate(&m, &m.gone.at[i]))
            vec_push(x->a, &left, m.gone.at[i]);
    for (uint32_t i = 0; i < left.n; i++)
        refuse(&m, &left.at[i]);
    merged_insert(&m);
}

/*
 * recover.c - parameters that are in the file in no other way than as a trace that folding
 * left (infer.c), or as plain numbers that nothing names.  In: traces that are no known
 * parameter.  Out: the parameters, and recipes for the traces; of several that may be it none is.
 *
 * Which unread parameter a trace comes from is decided by the source line of the reader, by its
 * module, and by what is left there.
 */
#include <string.h>

#include "fx.h"

/* Does the line say that this was done to the parameter? */
static bool says(Fx *x, const RawNode *n, const char *target, const char *fx)
{
    enum { MOST = 8 };
    TextCall call[MOST];
    const char *line = text_last(n->stack), *path = fx_path_from(target, n->scope),
               *base = arena_strndup(x->a, fx, fx_base(fx));
    uint32_t count = text_calls(x->a, line, path, call, MOST);
    bool index = fx_is_base(fx, "unsqueeze") || fx_is_base(fx, "slice") || fx_is_base(fx, "select");
    for (uint32_t i = 0; i < count; i++)
        if (!strcmp(call[i].name, base) || (index && !strcmp(call[i].name, "[]")) ||
            (fx_is_base(fx, "view") && !strcmp(call[i].name, "reshape")))
            return true;
    return text_applies(line, base, path);
}

static bool is_known_fold(const char *fx)
{
    static const char *const base[] = {
        "view",       "reshape", "_unsafe_view", "flatten",    "unsqueeze", "expand",   "repeat",
        "expand_as",  "t",       "permute",      "transpose",  "numpy_t",   "select",   "slice",
        "index",      "add",     "clone",        "contiguous", "to",        "_to_copy", "alias",
        "convert_element_type_default",
        "exp",        "log",     "neg",          "sigmoid",    "tanh",      "softplus", "sqrt",
        "reciprocal", NULL};
    for (int i = 0; base[i]; i++)
        if (fx_is_base(fx, base[i]))
            return true;
    return false;
}

/* Is it read in one module only?  Several share a table; parameters of several were merged only if
 * they are constant. */
static bool is_local(Fx *x, const Trace *t)
{
    const RawTensor *tensor = &x->p->m->init.at[t->use->init];
    bool constant = !memcmp(tensor->bytes.at, tensor->bytes.at + dtype_size(tensor->dtype),
                            tensor->bytes.length - dtype_size(tensor->dtype));
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        if (u->init == t->use->init && strcmp(u->node->scope, t->use->node->scope) &&
            (!constant || !strcmp(trace_name(x, u), t->fx)))
            return false;
    }
    return true;
}

/* The unread parameter a trace may come from: named by the reader's line, or alone in its module,
 * or called as its operator suggests. */
/* how surely; LAST: no other is left near */
enum { LAST = 1, ALONE, NAMED, READ, SAID };

static uint32_t source_of(Fx *x, const Trace *t, int *evidence)
{
    const Params *p = x->p;
    const RawNode *n = t->use->node;
    const char *usual = !strcmp(n->op_type, "Add") ? "bias" : "weight";
    uint32_t found[SAID + 1] = {0}, count[SAID + 1] = {0}, like = NONE;
    bool local = is_local(x, t);
    uint32_t told = trace_is_merged(x, t) ? NONE : fx_unread_origin(x, t->use->init);
    if (told == SEVERAL)
        return *evidence = 0, NONE;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const char *target = p->sig.entry[e].target, *leaf = fx_leaf(target);
        bool may = fx_is_unread(x, e) && (told == NONE || told == e);
        Distance d = may ? fx_distance(target, n->scope) : FAR;
        bool read = d != FAR && fx_reads(n, target);
        if (read && text_wraps(x->a, text_last(n->stack), fx_path_from(target, n->scope)))
            return *evidence = 0, NONE;
        bool is[SAID + 1] = {[SAID] = read && says(x, n, target, t->fx),
                             [READ] = read,
                             [NAMED] = d == OWN && text_names(n->stack, leaf),
                             [ALONE] = d == OWN && local,
                             [LAST] = d != FAR && local};
        for (int k = LAST; k <= SAID; k++)
            if (is[k]) {
                found[k] = e;
                count[k]++;
            }
        like = d == OWN && local && !strcmp(leaf, usual) ? e : like;
    }
    if (told != NONE)
        return *evidence = SAID, told;
    for (*evidence = SAID; *evidence > ALONE; --*evidence)
        if (count[*evidence] == 1)
            return found[*evidence];
    if (count[ALONE] == 1 || like != NONE)
        return count[ALONE] == 1 ? found[ALONE] : like;
    *evidence = LAST;
    return count[LAST] == 1 && (fx_is_base(t->fx, "expand") || fx_is_base(t->fx, "repeat"))
               ? found[LAST]
               : NONE;
}

/*
 * Several traces meet in one line that names as many unread parameters of the module:
 * cat((cls_tokens, distillation_tokens, x)). They are these in the order of the words.  Of equal
 * ones that were merged a record names the first, which has to be the word at its place.
 */
static void order_sources(Fx *x, Traces *all)
{
    enum { MOST = 8 };
    const Params *p = x->p;
    for (uint32_t i = 0; i < all->n; i++) {
        const RawNode *n = all->at[i].use->node;
        const char *line = text_last(n->stack);
        uint32_t entry[MOST], place[MOST], n_entry = 0, n_trace = 0;
        Trace *trace[MOST];
        bool doubt = false, agree = true;
        for (uint32_t k = 0; k < all->n && n_trace < MOST; k++)
            if (all->at[k].use->node == n && !all->at[k].done && is_known_fold(all->at[k].fx) &&
                (all->at[k].entry == NONE || all->at[k].evidence == SAID)) {
                doubt |= all->at[k].entry == NONE;
                trace[n_trace++] = &all->at[k];
            }
        for (uint32_t e = 0; e < p->sig.n && n_entry < MOST; e++) {
            const char *target = p->sig.entry[e].target;
            uint32_t at = fx_is_unread(x, e) && fx_distance(target, n->scope) == OWN
                              ? text_place(line, fx_leaf(target))
                              : NONE;
            uint32_t k = n_entry;
            if (at == NONE)
                continue;
            for (; k > 0 && place[k - 1] > at; k--) {
                place[k] = place[k - 1];
                entry[k] = entry[k - 1];
            }
            place[k] = at;
            entry[k] = e;
            n_entry++;
        }
        for (uint32_t k = 1; k < n_trace; k++)
            if (!fx_same_base(trace[k]->fx, trace[0]->fx) ||
                trace[k]->use->input < trace[k - 1]->use->input)
                n_trace = 0;
        if (n_trace < 2 || n_trace != n_entry || !doubt)
            continue;
        for (uint32_t k = 0; k < n_trace; k++)
            agree = agree && (trace[k]->entry == NONE || trace[k]->entry == entry[k]);
        for (uint32_t k = 0; agree && k < n_trace; k++) {
            trace[k]->evidence = trace[k]->entry == NONE ? NAMED : SAID;
            trace[k]->entry = entry[k];
        }
    }
}

static const char *shape_text(Arena *a, const Shape *s)
{
    const char *text = "";
    for (int i = 0; i < s->rank; i++)
        text = arena_printf(a, "%s%s%lld", text, i ? "," : "", (long long)s->d[i]);
    return arena_printf(a, "[%s]", text);
}

static uint32_t put(Fx *x, uint32_t entry, const Trace *t, const Inferred *found)
{
    Params *p = x->p;
    const char *name = p->sig.entry[entry].target;
    uint32_t id = found->plain
                      ? param_new(p, name, t->use->init, found->turned != t->turned, true, false)
                      : param_put(p, name, t->tensor->dtype, &found->shape, found->bytes);
    p->sig_param[entry] = id;
    vec_push(x->a, &p->inferred,
             arena_printf(x->a, "%s %s%s", name, shape_text(x->a, &found->shape),
                          found->in_order ? " (rows in the order they are read)" : ""));
    return id;
}

/* Several parameters in one tensor, of which one may be in the file in no other way: the only
 * unread one the line reads. */
void trace_tie_joined(Fx *x, Trace *t)
{
    Rest rest;
    Recipe *r = tie_pieces(x, t->tensor, &rest);
    uint32_t entry = NONE, n = 0;
    for (uint32_t e = 0; r && rest.tensor.name && e < x->p->sig.n; e++)
        if (fx_is_unread(x, e) && fx_reads(t->use->node, x->p->sig.entry[e].target)) {
            entry = e;
            n++;
        }
    bool whole = r && !rest.tensor.name;
    if (r && n == 1 && !says(x, t->use->node, x->p->sig.entry[entry].target, "t")) {
        Inferred found = {.shape = rest.tensor.shape, .bytes = rest.tensor.bytes};
        r = tie_rest(x, r, &rest, recipe_of(x->a, put(x, entry, t, &found)));
        whole = true;
    }
    if (whole)
        trace_give(x, t, r);
    /* what is known in it lacks this use */
    for (uint32_t e = 0; r && !whole && e < x->p->sig.n; e++)
        for (uint32_t i = 0; i < r->n; i++)
            if (r->at[i].op == OP_NONE && r->at[i].param != NONE &&
                r->at[i].param == x->p->sig_param[e] && !x->alias[e])
                fx_lacks(x, e, t->tensor->name);
}

/* The recipe of a trace reads parameter 0: the one that was made of it. */
static Recipe *reading(Recipe *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->at[i].op == OP_NONE && r->at[i].param != NONE)
            r->at[i].param = id;
    return r;
}

static void recover(Fx *x, uint32_t entry, Traces *all)
{
    VEC(Trace *) own = {0};
    Inferred found;
    int most = 0;
    for (uint32_t i = 0; i < all->n; i++)
        if (all->at[i].entry == entry && !all->at[i].done && all->at[i].evidence > most)
            most = all->at[i].evidence;
    for (uint32_t i = 0; i < all->n; i++)
        if (all->at[i].entry == entry && !all->at[i].done && all->at[i].evidence == most)
            vec_push(x->a, &own, &all->at[i]);
    if (own.n == 0)
        return;
    for (uint32_t i = 1; i < own.n && most <= ALONE; i++)
        if (!fx_same_base(own.at[i]->fx, own.at[0]->fx))
            return; /* only one of them, or none, is the parameter */
    const RawTensor *first = own.at[0]->tensor;
    if (infer_rows(x, own.at, own.n, &found)) {
        uint32_t id = put(x, entry, own.at[0], &found);
        for (uint32_t i = 0; i < own.n; i++) {
            Recipe *r = recipe_of(x->a, id);
            Shape row = found.shape;
            row.d[0] = own.at[i]->rows;
            recipe_slice(x->a, r, row.rank, (int64_t[MAX_RANK]){own.at[i]->row}, row.d);
            if (row.rank != first->shape.rank)
                recipe_reshape(x->a, r, &first->shape);
            trace_give(x, own.at[i], r);
        }
        return;
    }
    for (uint32_t i = 0; i < own.n; i++) {
        if (fx_is_base(own.at[i]->fx, "select") || fx_is_base(own.at[i]->fx, "slice") ||
            !infer(x, own.at[i], &found))
            continue;
        trace_give(x, own.at[i], reading(found.recipe, put(x, entry, own.at[i], &found)));
        break;
    }
    for (uint32_t i = 0; i < own.n; i++)
        if (!own.at[i]->done && x->p->sig_param[entry] != NONE)
            trace_tie(x, own.at[i]);
}

/* The bytes as they were, in the shape that the operator wants of a weight. */
static bool is_copy(const char *fx)
{
    static const char *const base[] = {"unsqueeze", "squeeze",  "clone", "contiguous",
                                       "to",        "_to_copy", "alias"};
    for (size_t i = 0; i < sizeof base / sizeof *base; i++)
        if (fx_is_base(fx, base[i]))
            return true;
    return false;
}

/* "conv1d.bias" stands beside "conv1d.weight". */
static uint32_t beside_bias(const Fx *x, uint32_t bias)
{
    const char *target = x->p->sig.entry[bias].target, *leaf = fx_leaf(target);
    return strcmp(leaf, "bias")
               ? NONE
               : strmap_get(&x->p->sig.by_target,
                            arena_printf(x->a, "%.*sweight", (int)(leaf - target), target));
}

/* A weight or bias of the module by its place, as plain as it stands. */
void trace_match_place(Fx *x, const Trace *t)
{
    static const char *const leaf[] = {NULL, "weight", "bias", NULL, NULL};
    const RawNode *n = t->use->node;
    const RawTensor *tensor = &x->p->m->init.at[t->use->init];
    const Group *g = fx_group(x, n);
    int role = g ? fx_use_role(&g->fx, n, t->use->input) : param_role(n, t->use->input);
    /* no fx node stands between */
    bool below = param_is_made_up(tensor->name) && !strcmp(t->fx, tensor->name);
    if (!leaf[role] || !*n->scope || tensor->shape.rank == 0 || (!below && !is_copy(t->fx)))
        return;
    uint32_t e =
        strmap_get(&x->p->sig.by_target, arena_printf(x->a, "%s.%s", n->scope, leaf[role]));
    for (uint32_t k = 0; e == NONE && g && role == ROLE_WEIGHT && is_copy(t->fx) && k < g->arg.n;
         k++)
        e = g->arg.at[k].role == ROLE_BIAS ? beside_bias(x, g->arg.at[k].entry) : NONE;
    if (e == NONE || x->used[e] || x->p->sig_param[e] != NONE)
        return;
    bool product = !strcmp(n->op_type, "MatMul") || !strcmp(n->op_type, "Gemm");
    for (uint32_t i = 0; i < x->all.n; i++) {
        Use *u = &x->all.at[i];
        if (u->node != n || u->input != t->use->input)
            continue;
        u->entry = e;
        u->flip =
            product && role == ROLE_WEIGHT && tensor->shape.rank == 2 && !raw_int(n, "transB", 0);
    }
    fx_make_entry(x, e);
}

void trace_recover(Fx *x, Traces *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        Trace *t = &all->at[i];
        if (!t->done && is_known_fold(t->fx) && !param_is_table(x->p->g, t->tensor))
            t->entry = source_of(x, t, &t->evidence);
    }
    order_sources(x, all);
    for (uint32_t e = 0; e < x->p->sig.n; e++)
        if (fx_is_unread(x, e))
            recover(x, e, all);
}

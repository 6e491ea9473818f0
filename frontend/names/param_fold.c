/*
 * param_fold.c - operands of which no argument of their fx node says what they are: constant
 * folding made them.  In: the uses that param_fx.c left, and the parameters that param_make.c made.
 * Out: a recipe for each that is a known parameter in another arrangement or a function of one
 * (param_tie.c); parameters that are in the file in no other way (param_infer.c); and the names of
 * those that cannot be recovered.
 *
 * Which of several equal parameters an operand is, and which unread one left a trace, is decided by
 * the source line of the reader (".sinks"), then by its module.  What stays open is said
 * (param_report).
 */
#include <math.h>
#include <string.h>

#include "param_fx.h"

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

/* The fx name of an operand that was folded: the initializer's, unless several were merged into one
 * or folding went on below fx. */
static const char *folded_name(Fx *x, const Use *u)
{
    const RawTensor *t = &x->p->m->init.at[u->init];
    const Group *g = fx_group(x, u->node);
    const char *only = NULL, *placed = NULL, *once = fx_once(x, u);
    uint32_t n = 0;
    if (once)
        return once;
    for (uint32_t i = 0; g && i < g->fx.n; i++) {
        const FxArg *arg = &g->fx.arg[i];
        if (!strcmp(arg->name, t->name))
            return t->name;
        if (strmap_get(&x->p->sig.by_arg, arg->name) != NONE ||
            strmap_get(&x->index, arg->name) != NONE)
            continue;
        only = arg->name;
        n++;
        if (arg->position == (int)u->input)
            placed = arg->name;
    }
    /* what was merged is of one kind */
    bool below = !strncmp(t->name, "val_", 4);
    if (placed && !below && !fx_same_base(placed, t->name))
        placed = NULL;
    if (!placed && n == 1 && (below || fx_same_base(only, t->name)))
        placed = only;
    return placed ? placed : t->name;
}

/* A linear layer's weight was transposed below fx: the trace is what it was before. */
static void unturn(Fx *x, Trace *t)
{
    const RawTensor *file = t->tensor;
    const Group *g = fx_group(x, t->use->node);
    if (!g || !fx_is_target(&g->fx, "aten.linear.") || strcmp(t->use->node->op_type, "MatMul") ||
        t->use->input != 1 || file->shape.rank != 2)
        return;
    RawTensor *own = arena_new_of(x->a, RawTensor);
    size_t size = dtype_size(file->dtype), rows = (size_t)file->shape.d[0],
           cols = (size_t)file->shape.d[1];
    uint8_t *copy = arena_alloc(x->a, file->bytes.length);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            memcpy(copy + (j * rows + i) * size, file->bytes.at + (i * cols + j) * size, size);
    *own = *file;
    own->shape = shape_of(2, file->shape.d[1], file->shape.d[0]);
    own->bytes = (Payload){
        .at = copy, .length = file->bytes.length, .file = file->bytes.file, .converted = true};
    t->tensor = own;
    t->turned = true;
}

static void collect(Fx *x, Traces *out)
{
    StrMap index = {.arena = x->a};
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        const RawTensor *t = &x->p->m->init.at[u->init];
        if (u->entry != NONE || param_is_used(u->node, u->input) ||
            (t->dtype != DT_F32 && t->dtype != DT_F64))
            continue;
        const MadeOf *o = &x->origin[u->init];
        if (o->is_told && o->entry.n == 0)
            continue;                                   /* made of no parameter */
        const char *fx = folded_name(x, u), *key = arena_printf(x->a, "%s\n%s", t->name, fx);
        uint32_t *slot = strmap_at(&index, key);
        if (*slot != NONE)
            continue;
        *slot = out->n;
        vec_push(x->a, out, ((Trace){.use = u, .fx = fx, .entry = NONE, .tensor = t}));
        unturn(x, &out->at[out->n - 1]);
    }
}

/* Did folding yield this under another name, in place of which the initializer stands, its equal?
 * Then what the file says that the initializer was made of is not said of this one. */
static bool is_merged(Fx *x, const Trace *t)
{
    const char *name = t->tensor->name;
    return !param_is_made_up(name) && strcmp(t->fx, name) && !fx_once(x, t->use);
}

/* All operands that are this trace get the recipe. */
static void give(Fx *x, Trace *t, Recipe *r)
{
    bool plain;
    if (t->turned && recipe_is_plain(r, &plain) && plain)
        r->n--;                                         /* turned twice */
    else if (t->turned)
        recipe_swap(x->a, r);
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        if (u->init == t->use->init && u->entry == NONE && !param_is_used(u->node, u->input) &&
            !strcmp(folded_name(x, u), t->fx)) {
            param_use_made(x->p, u->node, u->input, r);
            if (t->entry != NONE)
                fx_tied(x, u, t->entry);
        }
    }
    t->done = true;
}

/* ---- known parameters ---- */

/* is: by criterion, the surest first. */
enum { ORIGIN, READ_BY_LINE, OF_MODULE, WHOLE_NUMBERS, CRITERIA };
typedef struct { uint32_t entry; Recipe *recipe; bool is[CRITERIA]; } Candidate;
typedef VEC(Candidate) Candidates;

/* 1 - p rather than 1.3 - q: are all constants of the recipe whole numbers? */
static bool is_whole(const Recipe *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const Tensor *v = &r->at[i].value;
        if (r->at[i].op != OP_NONE || r->at[i].param != NONE || v->shape.rank > 0)
            continue;
        double d = raw_number(&(RawTensor){.dtype = v->dtype, .bytes = {.at = v->data}}, 0);
        if (d != nearbyint(d))
            return false;
    }
    return true;
}

/* Each criterion that some candidate meets drops those that do not; NULL when more than one is
 * left. */
static const Candidate *best_of(Arena *a, const Candidates *c)
{
    bool *out = arena_array(a, bool, c->n + 1);
    const Candidate *found = NULL;
    uint32_t n = 0;
    for (int k = 0; k < CRITERIA; k++) {
        bool any = false;
        for (uint32_t i = 0; i < c->n; i++)
            any |= !out[i] && c->at[i].is[k];
        for (uint32_t i = 0; i < c->n && any; i++)
            out[i] |= !c->at[i].is[k];
    }
    for (uint32_t i = 0; i < c->n; i++)
        if (!out[i]) {
            found = &c->at[i];
            n++;
        }
    return n == 1 ? found : NULL;
}

static void take_equal(Fx *x, Trace *t, uint32_t own, uint32_t from, const Recipe *r)
{
    uint32_t to = fx_make_equal(x, own, from);
    t->entry = own;
    vec_push(x->a, &x->p->inferred,
             arena_printf(x->a, "%s (equal to %s)", x->p->sig.entry[own].target,
                          x->p->g->param.at[from].name));
    give(x, t, recipe_with_other(x->a, r, from, to));
}

/* None of the candidates is of the reader's module, which lacks one of that name: an equal one. */
static bool tie_equal(Fx *x, Trace *t, const Candidates *all)
{
    uint32_t own = NONE, like = NONE;
    for (uint32_t i = 0; i < all->n; i++)
        if (fx_distance(x->p->sig.entry[all->at[i].entry].target, t->use->node->scope) != FAR)
            return false;
    for (uint32_t i = 0; i < all->n && own == NONE; i++) {
        like = i;
        own = fx_like_named(x, t->use, all->at[i].entry);
    }
    if (own == NONE)
        return false;
    take_equal(x, t, own, x->p->sig_param[all->at[like].entry], all->at[like].recipe);
    return true;
}

/* What stands for this trace was recovered as the parameter of another module, and this one's lacks
 * the one of that name: it is made of it in the same way.  So are constants, whose numbers say
 * nothing. */
static void tie_alike(Fx *x, const Traces *all, Trace *t)
{
    const RawNode *n = t->use->node;
    for (uint32_t i = 0; i < all->n && is_merged(x, t) && !t->done; i++) {
        const Trace *o = &all->at[i];
        const RawNode *other = o->use->node;
        if (o->use->init != t->use->init || !o->done || o->entry == NONE || is_merged(x, o) ||
            o->use->input != t->use->input || strcmp(other->op_type, n->op_type) ||
            x->p->sig_param[o->entry] == NONE || !param_is_used(other, o->use->input) ||
            fx_distance(x->p->sig.entry[o->entry].target, n->scope) != FAR)
            continue;
        uint32_t own = fx_like_named(x, t->use, o->entry);
        if (own != NONE)
            take_equal(x, t, own, x->p->sig_param[o->entry], other->made[o->use->input]);
    }
}

static void tie(Fx *x, Trace *t)
{
    const Params *p = x->p;
    const RawTensor *tensor = t->tensor;
    const RawNode *n = t->use->node;
    Candidates all = {0};
    for (int pass = 0; pass < 3 && all.n == 0; pass++)
        for (uint32_t e = 0; e < p->sig.n; e++) {
            const char *target = p->sig.entry[e].target;
            uint32_t id = p->sig_param[e];
            if (id == NONE || p->g->param.at[id].stat || strcmp(p->g->param.at[id].name, target))
                continue;
            Recipe *r = pass ? tie_function(x, id, tensor, pass == 1) : tie_exact(x, id, tensor);
            if (!r)
                continue;
            bool read = fx_reads(n, target), own = fx_distance(target, n->scope) == OWN;
            bool told = !is_merged(x, t) && fx_is_origin(x, t->use->init, e);
            bool equal = is_merged(x, t) && fx_like_named(x, t->use, e) != NONE;
            if (!pass || told || read || own || equal || shape_elements(&tensor->shape) >= 16)
                vec_push(x->a, &all, ((Candidate){e, r, {told, read, own, is_whole(r)}}));
        }
    if (is_merged(x, t) && tie_equal(x, t, &all))
        return;
    const Candidate *best = best_of(x->a, &all);
    if (best) {
        bool turned;
        if (recipe_is_plain(best->recipe, &turned) && !turned && fx_is_turned(x, t->use))
            recipe_swap(x->a, best->recipe);
        t->entry = best->entry;
        give(x, t, best->recipe);
        return;
    }
    for (uint32_t i = 0; i < all.n; i++)
        fx_lacks(x, all.at[i].entry, tensor->name);
    t->done = all.n > 0;
}

/* ---- parameters that are nowhere else ---- */

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
            (!constant || !strcmp(folded_name(x, u), t->fx)))
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
    uint32_t told = is_merged(x, t) ? NONE : fx_unread_origin(x, t->use->init);
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
 * cat((cls_tokens, distillation_tokens, x)). They are these in the order of the words.
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
        for (uint32_t k = 0; k < all->n && n_trace < MOST; k++)
            if (all->at[k].use->node == n && !all->at[k].done && all->at[k].entry == NONE &&
                is_known_fold(all->at[k].fx))
                trace[n_trace++] = &all->at[k];
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
        if (n_trace < 2 || n_trace != n_entry)
            continue;
        for (uint32_t k = 0; k < n_trace; k++) {
            trace[k]->entry = entry[k];
            trace[k]->evidence = NAMED;
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
             arena_printf(x->a, "%s %s", name, shape_text(x->a, &found->shape)));
    return id;
}

/* Several parameters in one tensor, of which one may be in the file in no other way: the only
 * unread one the line reads. */
static void tie_joined(Fx *x, Trace *t)
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
        give(x, t, r);
    /* what is known in it lacks this use */
    for (uint32_t e = 0; r && !whole && e < x->p->sig.n; e++)
        for (uint32_t i = 0; i < r->n; i++)
            if (r->at[i].op == OP_NONE && r->at[i].param != NONE &&
                r->at[i].param == x->p->sig_param[e] && !x->alias[e])
                fx_lacks(x, e, t->tensor->name);
}

/* What the user gives is known from here on, and what it is used for is looked for like anything
 * else. */
static void take_given(Fx *x, const Traces *all)
{
    Params *p = x->p;
    for (uint32_t e = 0; e < p->sig.n && all->n; e++) {
        const RawTensor *t = fx_is_unread(x, e)
                                 ? param_given(p, p->sig.entry[e].target, all->at[0].tensor->dtype)
                                 : NULL;
        if (t)
            p->sig_param[e] = param_put(p, p->sig.entry[e].target, t->dtype, &t->shape, t->bytes);
        x->given[e] = t != NULL;
    }
}

/* One that nothing was found to be made of is as lost as before. */
static void drop_unused(Fx *x)
{
    Params *p = x->p;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        bool used = !x->given[e];
        for (uint32_t i = 0; !used && i < x->all.n; i++) {
            const Use *u = &x->all.at[i];
            const Recipe *r = u->node->made ? u->node->made[u->input] : NULL;
            for (uint32_t k = 0; r && k < r->n; k++)
                used |= r->at[k].op == OP_NONE && r->at[k].param == p->sig_param[e];
        }
        if (!used) {
            p->sig_param[e] = NONE;
            vec_push(x->a, &p->unfit, p->sig.entry[e].target);
        }
    }
}

/* Weight normalisation, of parameters of one module. */
static void tie_norm(Fx *x, Trace *t)
{
    const Params *p = x->p;
    for (uint32_t v = 0; v < p->sig.n && !t->done; v++)
        for (uint32_t g = 0; g < p->sig.n && !t->done; g++) {
            const char *at_v = p->sig.entry[v].target, *at_g = p->sig.entry[g].target;
            size_t n = strlen(at_v) - strlen(fx_leaf(at_v));
            if (g == v || p->sig_param[v] == NONE || p->sig_param[g] == NONE ||
                n != strlen(at_g) - strlen(fx_leaf(at_g)) || strncmp(at_v, at_g, n) ||
                fx_distance(at_v, t->use->node->scope) == FAR)
                continue;
            Recipe *r = tie_weight_norm(x, p->sig_param[g], p->sig_param[v], t->tensor);
            if (r)
                give(x, t, r);
        }
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
            give(x, own.at[i], r);
        }
        return;
    }
    for (uint32_t i = 0; i < own.n; i++) {
        if (fx_is_base(own.at[i]->fx, "select") || fx_is_base(own.at[i]->fx, "slice") ||
            !infer(x, own.at[i], &found))
            continue;
        give(x, own.at[i], reading(found.recipe, put(x, entry, own.at[i], &found)));
        break;
    }
    for (uint32_t i = 0; i < own.n; i++)
        if (!own.at[i]->done && x->p->sig_param[entry] != NONE)
            tie(x, own.at[i]);
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
static void match_place(Fx *x, const Trace *t)
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

static void recover_all(Fx *x, Traces *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        Trace *t = &all->at[i];
        if (!t->done && is_known_fold(t->fx) && !param_is_table(t->tensor))
            t->entry = source_of(x, t, &t->evidence);
    }
    order_sources(x, all);
    for (uint32_t e = 0; e < x->p->sig.n; e++)
        if (fx_is_unread(x, e))
            recover(x, e, all);
}

void fx_fold(Fx *x)
{
    Traces all = {0};
    collect(x, &all);
    x->given = arena_array(x->a, bool, x->p->sig.n + 1);
    take_given(x, &all);
    for (uint32_t i = 0; i < all.n; i++)
        tie(x, &all.at[i]);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done)
            tie_norm(x, &all.at[i]);
    drop_unused(x);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done)
            tie_joined(x, &all.at[i]);
    recover_all(x, &all);
    fx_separate_equal(x);
    fx_separate_twins(x);
    fx_separate_parts(x);
    fx_insert_copies(x);
    recover_all(x, &all);                               /* what is alone now */
    for (uint32_t i = 0; i < all.n; i++)
        tie_alike(x, &all, &all.at[i]);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done)
            tie(x, &all.at[i]);                         /* to what was recovered */
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done)
            match_place(x, &all.at[i]);
    fx_settle_doubted(x, &all);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done && !param_is_used(all.at[i].use->node, all.at[i].use->input))
            fx_note_open(x, &all, &all.at[i]);
    fx_note_surplus(x);
}

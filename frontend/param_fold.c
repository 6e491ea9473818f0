/*
 * param_fold.c - operands of which no argument of their fx node says what they are: constant folding made them.  In: the
 * uses that param_fx.c left, and the parameters that param_make.c made.  Out: a recipe for each that is a known
 * parameter in another arrangement or a function of one (param_tie.c); parameters that are in the file in no other way
 * (param_infer.c); and the names of those that cannot be recovered.
 *
 * Which of several equal parameters an operand is, and which unread one left a trace, is decided by the source line of the
 * reader (".sinks"), then by its module.  What stays open is said (param_report).
 */
#include <math.h>
#include <string.h>

#include "param_fx.h"

static const char *leaf_of(const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot ? dot + 1 : target;
}

/* Whose parameter it is, seen from a scope. */
typedef enum { FAR, NEAR, OWN } Distance;

static Distance distance(const char *target, const char *scope)
{
    size_t n = strlen(target) - strlen(leaf_of(target)), s = strlen(scope);
    n -= n > 0;
    if (n == s && !strncmp(target, scope, n))
        return OWN;
    bool inside = s < n && (s == 0 || target[s] == '.') && !strncmp(target, scope, s);
    bool around = n < s && (n == 0 || scope[n] == '.') && !strncmp(target, scope, n);
    return inside || around ? NEAR : FAR;
}

/* The fx name of an operand that was folded: the initializer's, unless several were merged into one or folding went on below fx. */
static const char *folded_name(Fx *x, const Use *u)
{
    const RawTensor *t = &x->p->m->init.at[u->init];
    const Group *g = fx_group(x, u->node);
    const char *only = NULL, *placed = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; g && i < g->fx.n; i++) {
        const FxArg *arg = &g->fx.arg[i];
        if (!strcmp(arg->name, t->name))
            return t->name;
        if (strmap_get(&x->p->sig.by_arg, arg->name) != NONE || strmap_get(&x->index, arg->name) != NONE)
            continue;
        only = arg->name;
        n++;
        if (arg->position == (int)u->input)
            placed = arg->name;
    }
    bool below = !strncmp(t->name, "val_", 4);
    if (placed && !below && (fx_base(placed) != fx_base(t->name) || strncmp(placed, t->name, fx_base(placed))))
        placed = NULL;                                  /* what was merged is of one kind */
    return placed ? placed : below && n == 1 ? only : t->name;
}

static double number_at(const RawTensor *t, int64_t i)
{
    float f;
    double d;
    if (t->dtype == DT_F64) {
        memcpy(&d, t->bytes.at + (size_t)i * sizeof d, sizeof d);
        return d;
    }
    memcpy(&f, t->bytes.at + (size_t)i * sizeof f, sizeof f);
    return (double)f;
}

/* An attention mask; or sines and cosines of positions, of which the first are all 0 or all the largest: no one learned these. */
static bool is_table(const RawTensor *t)
{
    int64_t n = shape_elements(&t->shape), inner = 1;
    bool constant = true;
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = number_at(t, i);
        if (!isfinite(v) || fabs(v) > 1e30)
            return true;
        most = fmax(most, fabs(v));
        constant &= v == number_at(t, 0);
    }
    for (int d = t->shape.rank; d-- > 1 && !constant; inner *= t->shape.d[d]) {
        int64_t each = inner * t->shape.d[d];
        bool first = each > inner && inner * t->shape.d[d] <= n && t->shape.d[d] > 1;
        double v = number_at(t, 0);
        for (int64_t i = 0; i < n && first; i++)
            first = i % each / inner > 0 || (number_at(t, i) == v && (v == 0 || v == most));
        if (first && inner > 1)
            return true;
    }
    return false;
}

static void collect(Fx *x, Traces *out)
{
    StrMap index = {.arena = x->a};
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        const RawTensor *t = &x->p->m->init.at[u->init];
        if (u->entry != NONE || param_is_used(u->node, u->input) || (t->dtype != DT_F32 && t->dtype != DT_F64))
            continue;
        const char *fx = folded_name(x, u), *key = arena_printf(x->a, "%s\n%s", t->name, fx);
        uint32_t *slot = strmap_at(&index, key);
        if (*slot != NONE)
            continue;
        *slot = out->n;
        vec_push(x->a, out, ((Trace){.use = u, .fx = fx, .entry = NONE}));
    }
}

/* All operands that are this trace get the recipe. */
static void give(Fx *x, Trace *t, const Recipe *r)
{
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        if (u->init == t->use->init && u->entry == NONE && !param_is_used(u->node, u->input) && !strcmp(folded_name(x, u), t->fx)) {
            param_use_made(x->p, u->node, u->input, r);
            if (t->entry != NONE)
                fx_tied(x, u, t->entry);
        }
    }
    t->done = true;
}

/* ---- known parameters ---- */

typedef struct { uint32_t entry; Recipe *recipe; bool read, own; } Candidate;
typedef VEC(Candidate) Candidates;

/* The candidate that the reader's line names, else the one of its module, else the only one; NULL: none, or several. */
static const Candidate *best_of(const Candidates *c)
{
    const Candidate *found = NULL;
    for (int pass = 0; pass < 3; pass++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < c->n; i++) {
            const Candidate *k = &c->at[i];
            if (pass == 0 ? k->read : pass == 1 ? k->own : true) {
                found = k;
                n++;
            }
        }
        if (n == 1)
            return found;
    }
    return NULL;
}

static void tie(Fx *x, Trace *t)
{
    const Params *p = x->p;
    const RawTensor *tensor = &p->m->init.at[t->use->init];
    const RawNode *n = t->use->node;
    Candidates all = {0};
    for (int pass = 0; pass < 2 && all.n == 0; pass++)
        for (uint32_t e = 0; e < p->sig.n; e++) {
            const char *target = p->sig.entry[e].target;
            uint32_t id = p->sig_param[e];
            if (id == NONE || p->g->param.at[id].stat || strcmp(p->g->param.at[id].name, target))
                continue;
            bool read = text_reads(n->stack, leaf_of(target)) && distance(target, n->scope) != FAR;
            bool own = distance(target, n->scope) == OWN;
            if (pass && !read && !own && shape_elements(&tensor->shape) < 16)
                continue;
            Recipe *r = pass ? tie_function(x, id, tensor) : tie_exact(x, id, tensor);
            if (r)
                vec_push(x->a, &all, ((Candidate){e, r, read, own}));
        }
    const Candidate *best = best_of(&all);
    if (best) {
        t->entry = best->entry;
        give(x, t, best->recipe);
        return;
    }
    for (uint32_t i = 0; i < all.n; i++)
        fx_lacks(x, all.at[i].entry, tensor);
    t->done = all.n > 0;
    Recipe *r = all.n == 0 ? tie_pieces(x, tensor) : NULL;
    if (r)
        give(x, t, r);
}

/* ---- parameters that are nowhere else ---- */

static bool is_unread(const Fx *x, uint32_t e)
{
    const Params *p = x->p;
    return p->sig.entry[e].kind == SIG_PARAMETER && p->sig_param[e] == NONE && !x->used[e] && !x->alias[e];
}

static bool is_known_fold(const char *fx)
{
    static const char *const base[] = {"view", "reshape", "_unsafe_view", "flatten", "unsqueeze", "expand", "repeat", "expand_as", "t", "permute",
        "transpose", "numpy_t", "select", "slice", "add", "clone", "contiguous", "to", "_to_copy", "alias", "exp", "log", "neg", "sigmoid", "tanh",
        "softplus", "sqrt", "reciprocal", NULL};
    for (int i = 0; base[i]; i++)
        if (fx_is_base(fx, base[i]))
            return true;
    return false;
}

/* Is it read in one module only?  Several share a table; parameters of several were merged only if they are constant. */
static bool is_local(Fx *x, const Trace *t)
{
    const RawTensor *tensor = &x->p->m->init.at[t->use->init];
    bool constant = !memcmp(tensor->bytes.at, tensor->bytes.at + dtype_size(tensor->dtype), tensor->bytes.length - dtype_size(tensor->dtype));
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        if (u->init == t->use->init && strcmp(u->node->scope, t->use->node->scope) && (!constant || !strcmp(folded_name(x, u), t->fx)))
            return false;
    }
    return true;
}

/* The unread parameter a trace may come from: named by the reader's line, or alone in its module, or called as its operator suggests. */
static uint32_t source_of(Fx *x, const Trace *t, int *evidence)
{
    const Params *p = x->p;
    const RawNode *n = t->use->node;
    const char *usual = !strcmp(n->op_type, "Add") ? "bias" : "weight";
    uint32_t read = NONE, named = NONE, own = NONE, like = NONE, n_read = 0, n_named = 0, n_own = 0;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const char *target = p->sig.entry[e].target, *leaf = leaf_of(target);
        Distance d = is_unread(x, e) ? distance(target, n->scope) : FAR;
        if (d == FAR)
            continue;
        if (text_reads(n->stack, leaf)) {
            read = e;
            n_read++;
        }
        if (d == OWN) {
            if (text_names(n->stack, leaf)) {
                named = e;
                n_named++;
            }
            own = e;
            n_own++;
            like = !strcmp(leaf, usual) ? e : like;
        }
    }
    *evidence = n_read == 1 ? 3 : n_named == 1 ? 2 : 1;
    if (*evidence == 1 && !is_local(x, t))
        return NONE;
    return n_read == 1 ? read : n_named == 1 ? named : n_own == 1 ? own : like;
}

static const char *shape_text(Arena *a, const Shape *s)
{
    const char *text = "";
    for (int i = 0; i < s->rank; i++)
        text = arena_printf(a, "%s%s%lld", text, i ? "," : "", (long long)s->d[i]);
    return arena_printf(a, "[%s]", text);
}

static uint32_t put(Fx *x, uint32_t entry, const RawTensor *t, const Inferred *found)
{
    Params *p = x->p;
    const char *name = p->sig.entry[entry].target;
    uint32_t id = found->plain ? param_new(p, name, strmap_get(&p->m->init_index, t->name), found->turned, true, false)
                               : param_put(p, name, t->dtype, &found->shape, found->bytes);
    p->sig_param[entry] = id;
    vec_push(x->a, &p->inferred, arena_printf(x->a, "%s %s", name, shape_text(x->a, &found->shape)));
    return id;
}

/* The recipe of a trace reads parameter 0: the one that was made of it. */
static const Recipe *reading(Recipe *r, uint32_t id)
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
    for (uint32_t i = 1; i < own.n && most == 1; i++)
        if (fx_base(own.at[i]->fx) != fx_base(own.at[0]->fx) || strncmp(own.at[i]->fx, own.at[0]->fx, fx_base(own.at[i]->fx)))
            return;                                     /* only one of them, or none, is the parameter */
    const RawTensor *first = &x->p->m->init.at[own.at[0]->use->init];
    if (infer_rows(x, own.at, own.n, &found)) {
        uint32_t id = put(x, entry, first, &found);
        for (uint32_t i = 0; i < own.n; i++) {
            Recipe *r = recipe_of(x->a, id);
            Shape row = found.shape;
            row.d[0] = 1;
            recipe_slice(x->a, r, row.rank, (int64_t[MAX_RANK]){own.at[i]->row}, row.d);
            recipe_reshape(x->a, r, &first->shape);
            give(x, own.at[i], r);
        }
        return;
    }
    for (uint32_t i = 0; i < own.n; i++) {
        const RawTensor *t = &x->p->m->init.at[own.at[i]->use->init];
        if (fx_is_base(own.at[i]->fx, "select") || fx_is_base(own.at[i]->fx, "slice") || !infer(x, own.at[i], &found))
            continue;
        give(x, own.at[i], reading(found.recipe, put(x, entry, t, &found)));
        break;
    }
    for (uint32_t i = 0; i < own.n; i++)
        if (!own.at[i]->done && x->p->sig_param[entry] != NONE)
            tie(x, own.at[i]);
}

/* A weight or bias of the module by its place, as plain as it stands. */
static void match_place(Fx *x, const Trace *t)
{
    static const char *const leaf[] = {NULL, "weight", "bias", NULL, NULL};
    const RawNode *n = t->use->node;
    const RawTensor *tensor = &x->p->m->init.at[t->use->init];
    const Group *g = fx_group(x, n);
    int role = g ? fx_use_role(&g->fx, n, t->use->input) : param_role(n, t->use->input);
    if (!leaf[role] || !*n->scope || !param_is_made_up(tensor->name) || tensor->shape.rank == 0)
        return;
    uint32_t e = strmap_get(&x->p->sig.by_target, arena_printf(x->a, "%s.%s", n->scope, leaf[role]));
    if (e == NONE || x->used[e] || x->p->sig_param[e] != NONE)
        return;
    bool product = !strcmp(n->op_type, "MatMul") || !strcmp(n->op_type, "Gemm");
    for (uint32_t i = 0; i < x->all.n; i++) {
        Use *u = &x->all.at[i];
        if (u->node != n || u->input != t->use->input)
            continue;
        u->entry = e;
        u->flip = product && role == ROLE_WEIGHT && tensor->shape.rank == 2 && !raw_int(n, "transB", 0);
    }
    fx_make_entry(x, e);
}

/* What is still open and may have been made of a known parameter: its reader's line reads that, and its arguments do not. */
static void note_open(Fx *x, const Trace *t)
{
    const Params *p = x->p;
    const RawNode *n = t->use->node;
    const RawTensor *tensor = &p->m->init.at[t->use->init];
    const Group *g = fx_group(x, n);
    if (shape_elements(&tensor->shape) < 2)
        return;
    for (uint32_t e = 0; e < p->sig.n; e++) {
        const char *target = p->sig.entry[e].target;
        bool argument = false;
        for (uint32_t k = 0; g && k < g->arg.n; k++)
            argument |= g->arg.at[k].entry == e;
        if (p->sig_param[e] != NONE && !argument && p->sig.entry[e].kind == SIG_PARAMETER && distance(target, n->scope) != FAR
            && text_reads(n->stack, leaf_of(target)) && is_known_fold(t->fx))
            fx_lacks(x, e, tensor);
    }
}

void fx_fold(Fx *x)
{
    Traces all = {0};
    collect(x, &all);
    for (uint32_t i = 0; i < all.n; i++)
        tie(x, &all.at[i]);
    for (uint32_t i = 0; i < all.n; i++) {
        Trace *t = &all.at[i];
        if (!t->done && is_known_fold(t->fx) && !is_table(&x->p->m->init.at[t->use->init]))
            t->entry = source_of(x, t, &t->evidence);
    }
    for (uint32_t e = 0; e < x->p->sig.n; e++)
        if (is_unread(x, e))
            recover(x, e, &all);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done)
            match_place(x, &all.at[i]);
    for (uint32_t i = 0; i < all.n; i++)
        if (!all.at[i].done && !param_is_used(all.at[i].use->node, all.at[i].use->input))
            note_open(x, &all.at[i]);
}

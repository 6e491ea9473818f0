/*
 * folded.c - operands of which nothing says what they are: constant folding made them.  In: the
 * uses that fx.c left, or constants of TorchScript ("onnx::Add_74"); the parameters that are known,
 * and those that the user gives.  Out: by their bits, what is a known parameter in another
 * arrangement, or a function of one (tie.c); then parameters that are in the file in no other way,
 * where the exporter noted what it computed an operand of (origin.c, undo.c).  What stays open is
 * said (report.c).
 *
 * Which of several equal parameters an operand is, is decided by what the file says that it was
 * computed of, then by the module of the reader.
 */
#include <string.h>

#include "fx.h"

/* Is it the argument of this operand?  cat has them in a list. */
static bool is_placed(const FxNode *fx, const FxArg *arg, const Use *u)
{
    return (fx_is_target(fx, "aten.cat.") ? arg->element : arg->position) == (int)u->input;
}

/* The fx name of an operand that was folded: the initializer's, unless several were merged into one
 * or folding went on below fx.  One that stands twice in a node is its arguments in their order. */
static const char *trace_name(Fx *x, const Use *u)
{
    const RawTensor *t = &x->p->m->init.at[u->init];
    const Group *g = fx_group_of(x, u);
    const char *only = NULL, *placed = NULL;
    uint32_t n = 0, operands = 0;
    for (uint32_t i = 0; i < u->node->nin; i++)
        operands += !strcmp(u->node->in[i], t->name);
    for (uint32_t i = 0; g && i < g->fx.n; i++) {
        const FxArg *arg = &g->fx.arg[i];
        if (!strcmp(arg->name, t->name) && (operands < 2 || is_placed(&g->fx, arg, u)))
            return t->name;
        if (strmap_get(&x->p->sig.by_arg, arg->name) != NONE ||
            strmap_get(&x->index, arg->name) != NONE)
            continue;
        only = arg->name;
        n++;
        if (is_placed(&g->fx, arg, u))
            placed = arg->name;
    }
    /* what was merged is of one kind, but with a parameter */
    uint32_t own = strmap_get(&x->p->sig.by_target, t->name);
    bool below = !strncmp(t->name, "val_", 4) || (own != NONE && g && g->node.n == 1);
    if (placed && !below && !fx_same_base(placed, t->name))
        placed = NULL;
    if (!placed && n == 1 && (below || fx_same_base(only, t->name)))
        placed = only;
    return placed ? placed : t->name;
}

/* A linear layer's weight that was transposed below fx, so that its views and functions are not
 * what the file holds. */
static bool is_turned(Fx *x, const Use *u)
{
    const Group *g = fx_group_of(x, u);
    return g && fx_is_target(&g->fx, "aten.linear.") && !strcmp(u->node->op_type, "MatMul") &&
           u->input == 1;
}

static void collect(Fx *x, Traces *out)
{
    StrMap index = {.arena = x->a};
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        const RawTensor *t = &x->p->m->init.at[u->init];
        if (u->entry != NONE || param_is_used(u->node, u->input) || !dtype_is_float(t->dtype))
            continue;
        if (x->origin && x->origin[u->init].is_told && x->origin[u->init].entry.n == 0)
            continue; /* made of no parameter */
        const char *fx = trace_name(x, u), *key = arena_printf(x->a, "%s\n%s", t->name, fx);
        uint32_t *slot = strmap_at(&index, key);
        if (*slot != NONE)
            continue;
        *slot = out->n;
        vec_push(x->a, out,
                 ((Trace){.use = u, .fx = fx, .tensor = t, .is_turned = is_turned(x, u)}));
    }
}

/* Did folding yield this under another name, in place of which the initializer stands, its equal?
 * Then what the file says that the initializer was made of is not said of this one. */
static bool is_merged(const Trace *t)
{
    const char *name = t->tensor->name;
    return !param_is_made_up(name) && strcmp(t->fx, name);
}

/* All operands that are this trace get the recipe. */
static void give(Fx *x, Trace *t, const Recipe *r)
{
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        if (u->init == t->use->init && u->entry == NONE && !param_is_used(u->node, u->input) &&
            !strcmp(trace_name(x, u), t->fx))
            param_use_made(x->p, u->node, u->input, r);
    }
    t->done = true;
}

/* ---- known parameters ---- */

typedef struct {
    uint32_t param;
    Recipe *recipe;
    bool told, own; /* by the file's record, of the reader's module */
} Candidate;
typedef VEC(Candidate) Candidates;

/* The entry of the signature that has the parameter's name, or NONE. */
static uint32_t entry_of(const Fx *x, uint32_t param)
{
    return strmap_get(&x->p->sig.by_target, tie_param(x, param)->name);
}

/* The parameters with those that the user gives: is there a next one? */
static bool next_known(const Fx *x, uint32_t *param)
{
    ++*param;
    if (*param == x->p->g->param.n)
        *param = GIVEN;
    return *param < GIVEN + x->given.n;
}

/* The parameters that it is by its bits, else a line through them, else a function of them by its
 * numbers, else one by its name. */
static Candidates candidates_of(Fx *x, const Trace *t)
{
    enum { ENOUGH = 16 }; /* numbers, so that a line says something */
    bool many = shape_elements(&t->tensor->shape) >= ENOUGH;
    Candidates all = {0};
    for (int pass = 0; pass < 4 && all.n == 0; pass++)
        for (uint32_t id = x->p->first_param - 1; next_known(x, &id);) {
            uint32_t e = x->p->has_signature ? entry_of(x, id) : NONE;
            bool taken = id >= GIVEN && strmap_get(&x->p->by_name, tie_param(x, id)->name) != NONE;
            if (tie_param(x, id)->stat || taken || (x->p->has_signature && e == NONE))
                continue;
            const bool told = e != NONE && !is_merged(t) && fx_is_origin(x, t->use->init, e);
            Recipe *r = pass == 0   ? tie_exact(x, id, t->tensor)
                        : pass == 3 ? undo_told(x, t, id, NULL)
                                    : tie_function(x, id, t->tensor, pass == 1, told ? t : NULL);
            Candidate c = {id, r, told,
                           e != NONE && fx_is_own(tie_param(x, id)->name, t->use->node->scope)};
            if (r && (!pass || (pass < 3 && many) || c.told || c.own))
                vec_push(x->a, &all, c);
        }
    return all;
}

/* The only one; else the only one that the file says it was computed of; else the only one of the
 * reader's module; or NULL. */
static const Candidate *best_of(const Candidates *c)
{
    const Candidate *told = NULL, *own = NULL;
    uint32_t n_told = 0, n_own = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        told = c->at[i].told ? &c->at[i] : told;
        own = c->at[i].own ? &c->at[i] : own;
        n_told += c->at[i].told;
        n_own += c->at[i].own;
    }
    return c->n == 1 ? c->at : n_told == 1 ? told : n_told == 0 && n_own == 1 ? own : NULL;
}

/* Instead of parameter `from` the recipe reads `to`. */
static Recipe *reading(Recipe *r, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->at[i].op == OP_NONE && r->at[i].param == from)
            r->at[i].param = to;
    return r;
}

/* What the user gives becomes a parameter where something is made of it. */
static uint32_t of_graph(Fx *x, uint32_t param)
{
    Params *p = x->p;
    const Param q = *tie_param(x, param);
    uint32_t e = entry_of(x, param);
    if (param < GIVEN)
        return param;
    param = strmap_get(&p->by_name, q.name);
    param = param == NONE ? param_put(p, q.name, q.dtype, &q.shape, q.bytes) : param;
    if (e != NONE)
        p->sig_param[e] = param;
    return param;
}

/* What folding made of equal parameters was merged, as -exp(A_log) of fresh layers of Mamba: a
 * parameter of the reader's module that is in the file in no other way, called like the one that
 * was found, may be meant. */
static bool has_own(const Fx *x, const Trace *t, const Candidate *found)
{
    const Params *p = x->p;
    const char *leaf = fx_leaf(tie_param(x, found->param)->name);
    bool own = false;
    for (uint32_t e = 0; e < p->sig.n && is_merged(t) && !own; e++)
        own = fx_is_unread(x, e) && !strcmp(fx_leaf(p->sig.entry[e].target), leaf) &&
              fx_is_own(p->sig.entry[e].target, t->use->node->scope);
    return own;
}

static void tie(Fx *x, Trace *t)
{
    const Candidates all = candidates_of(x, t);
    const Candidate *best = best_of(&all);
    bool turned;
    if (!best) {
        for (uint32_t i = 0; i < all.n && x->p->has_signature; i++)
            fx_lacks(x, entry_of(x, all.at[i].param), t->tensor->name);
        t->done = all.n > 0;
        return;
    }
    /* a symmetric matrix, which its transpose was merged with */
    if (recipe_is_plain(best->recipe, &turned) && !turned && t->tensor->shape.rank == 2 &&
        fx_is_one_of(t->fx, fx_turns))
        recipe_swap(x->a, best->recipe);
    if (!has_own(x, t, best))
        give(x, t, reading(best->recipe, best->param, of_graph(x, best->param)));
}

static void tie_all(Fx *x, Traces *all)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (!all->at[i].done)
            tie(x, &all->at[i]);
}

/* The parameters of the user's files that the model lacks. */
static void read_given(Fx *x, const Traces *all)
{
    const Params *p = x->p;
    const char *const *name;
    uint32_t n = all->n ? param_given_names(p, &name) : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t e = strmap_get(&p->sig.by_target, name[i]);
        bool lacks = p->has_signature ? e != NONE && fx_is_unread(x, e)
                                      : strmap_get(&p->by_name, name[i]) == NONE;
        const RawTensor *t = lacks ? param_given(p, name[i], all->at[0].tensor->dtype) : NULL;
        if (t)
            vec_push(
                x->a, &x->given,
                ((Param){
                    .name = name[i], .dtype = t->dtype, .shape = t->shape, .bytes = t->bytes}));
    }
}

/* Given ones that nothing was found to be made of are as lost as before. */
static void note_unfit(Fx *x)
{
    Params *p = x->p;
    for (uint32_t i = 0; i < x->given.n; i++)
        if (strmap_get(&p->by_name, x->given.at[i].name) == NONE)
            vec_push(x->a, &p->lost.unfit, x->given.at[i].name);
}

/* ---- parameters that are in the file in no other way ---- */

static uint32_t put(Fx *x, uint32_t entry, const Trace *t, const Undone *found)
{
    Params *p = x->p;
    const char *name = p->sig.entry[entry].target;
    uint32_t id = found->plain ? param_new(p, name, t->use->init, found->turned, true, false)
                               : param_put(p, name, t->tensor->dtype, &found->shape, found->bytes);
    p->sig_param[entry] = id;
    vec_push(x->a, &p->lost.inferred,
             arena_printf(x->a, "%s %s%s", name, shape_print(x->a, t->tensor->dtype, &found->shape),
                          found->recipe ? "" : " (rows in the order they are read)"));
    return id;
}

static void give_rows(Fx *x, Trace *const *t, uint32_t n, uint32_t id, const Shape *whole)
{
    Shape row = *whole;
    row.d[0] = 1;
    for (uint32_t i = 0; i < n; i++) {
        Recipe *r = recipe_of(x->a, id);
        recipe_slice(x->a, r, row.rank, (int64_t[MAX_RANK]){i}, row.d);
        recipe_reshape(x->a, r, &t[i]->tensor->shape);
        give(x, t[i], r);
    }
}

/* Rows as they are; else what a function made of each, which is then seen to be made of them.  What
 * was merged may be another row that is equal. */
static void recover_rows(Fx *x, uint32_t e, Trace *const *own, uint32_t n)
{
    Undone found;
    for (int plain = 1; plain >= 0 && fx_is_unread(x, e); plain--) {
        VEC(Trace *) row = {0};
        for (uint32_t i = 0; i < n; i++)
            if (undo_is_row(x, own[i], plain))
                vec_push(x->a, &row, own[i]);
        if (row.n == 0 || !undo_rows(x, row.at, row.n, &found))
            continue;
        const uint32_t id = put(x, e, row.at[0], &found);
        if (plain)
            give_rows(x, row.at, row.n, id, &found.shape);
    }
}

static void recover(Fx *x, Traces *all)
{
    for (uint32_t e = 0; e < x->p->sig.n; e++) {
        VEC(Trace *) own = {0};
        Undone found;
        bool merged = false;
        for (uint32_t i = 0; i < all->n && fx_is_unread(x, e); i++) {
            Trace *t = &all->at[i];
            if (fx_unread_origin(x, t->use->init) != e)
                continue;
            merged |= is_merged(t) && raw_is_constant(t->tensor);
            if (!t->done && !t->is_turned && !is_merged(t) && !param_is_made_up(t->fx) &&
                !param_is_table(x->p->g, t->tensor))
                vec_push(x->a, &own, t);
        }
        if (!merged)
            recover_rows(x, e, own.at, own.n);
        for (uint32_t i = 0; i < own.n && fx_is_unread(x, e); i++)
            if (undo(x, own.at[i], &found))
                give(x, own.at[i], reading(found.recipe, 0, put(x, e, own.at[i], &found)));
    }
}

/* ---- the whole ---- */

/* What folding made of a parameter, or of another one, has its numbers, all the same (2 * p of
 * zeros), and was merged with it. */
static void note_merged(Fx *x, const Trace *t)
{
    static const char *const number[] = {
        "scalar_tensor", "scalar_tensor_default", "lift_fresh", "lift_fresh_copy", "eye", "tril",
        "triu", "new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like",
        "full_like", "empty_like", "zeros", "ones", "full", "empty", "arange", NULL};
    const Params *p = x->p;
    uint32_t e = strmap_get(&p->sig.by_target, t->tensor->name);
    if (is_merged(t) && e != NONE && p->sig.entry[e].kind == SIG_PARAMETER &&
        p->sig_param[e] != NONE && !fx_is_one_of(t->fx, number))
        fx_lacks(x, e, t->fx);
}

static void tie_known(Fx *x, Traces *all)
{
    collect(x, all);
    read_given(x, all);
    tie_all(x, all);
}

void fx_fold(Fx *x)
{
    Traces all = {0};
    tie_known(x, &all);
    note_unfit(x);
    recover(x, &all);
    tie_all(x, &all); /* to what was recovered */
    for (uint32_t i = 0; i < all.n; i++) {
        if (!all.at[i].done && !param_is_used(all.at[i].use->node, all.at[i].use->input))
            note_merged(x, &all.at[i]);
        if (!is_merged(&all.at[i]))
            fx_note_origin(x, all.at[i].use);
    }
    fx_refuse_merged(x);
}

/* ---- constants of TorchScript ---- */

bool param_is_folded(const Params *p, const RawTensor *t)
{
    bool named =
        (p->m->from_pytorch && strstr(t->name, "::")) ||
        (*t->name == '/' && strstr(t->name, "_output_") && !strstr(t->name, "/Constant"));
    return named && !t->is_lifted && dtype_is_float(t->dtype) && t->bytes.at &&
           strmap_get(&p->by_init, t->name) == NONE;
}

void param_constants(Params *p, RawNodes *list)
{
    Fx x = {.p = p, .a = p->m->arena, .list = list, .index.arena = p->m->arena};
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        for (uint32_t j = 0; !n->dead && j < n->nin; j++) {
            uint32_t init = strmap_get(&p->m->init_index, n->in[j]);
            if (init != NONE && !param_is_used(n, j) && param_is_folded(p, &p->m->init.at[init]) &&
                shape_elements(&p->m->init.at[init].shape) > 1)
                vec_push(x.a, &x.all, ((Use){n, j, init, NONE, NONE, false, false}));
        }
    }
    Traces all = {0};
    tie_known(&x, &all);
}

/*
 * trace.c - operands of which no argument of their fx node says what they are: constant
 * folding made them.  In: the uses that fx.c left, and the parameters that are known.  Out: a
 * recipe for each that is a known parameter in another arrangement or a function of one (tie.c), or
 * several beside each other; then parameters that are in the file in no other way (undo.c), and
 * recipes for what is left of those.
 *
 * Which of several equal parameters an operand is, is decided by what the file says that it was
 * computed of (origin.c), then by the module of the reader.
 */
#include <math.h>
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
    const Group *g = fx_group(x, u->node);
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

void trace_collect(Fx *x, Traces *out)
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
            continue; /* made of no parameter */
        const char *fx = trace_name(x, u), *key = arena_printf(x->a, "%s\n%s", t->name, fx);
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
bool trace_is_merged(const Trace *t)
{
    const char *name = t->tensor->name;
    return !param_is_made_up(name) && strcmp(t->fx, name);
}

/* All operands that are this trace get the recipe. */
void trace_give(Fx *x, Trace *t, Recipe *r)
{
    bool plain;
    if (t->turned && recipe_is_plain(r, &plain) && plain)
        r->n--; /* turned twice */
    else if (t->turned)
        recipe_swap(x->a, r);
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        if (u->init == t->use->init && u->entry == NONE && !param_is_used(u->node, u->input) &&
            !strcmp(trace_name(x, u), t->fx)) {
            param_use_made(x->p, u->node, u->input, r);
            if (t->entry != NONE)
                fx_tied(x, u, t->entry);
        }
    }
    t->done = true;
}

/* ---- known parameters ---- */

/* is: by criterion, the surest first. */
enum { ORIGIN, OF_MODULE, WHOLE_NUMBERS, CRITERIA };
typedef struct {
    uint32_t entry;
    Recipe *recipe;
    bool is[CRITERIA];
} Candidate;
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

/* 1 - p, however few numbers it has: a difference, as the file says, that is this to the last bit,
 * and not p - 1. */
static Recipe *tie_complement(Fx *x, uint32_t param, const Trace *t)
{
    static const char *const base[] = {"sub", "rsub", NULL};
    const RawTensor *own = t->tensor;
    const Param *q = &x->p->g->param.at[param];
    int64_t n = shape_elements(&own->shape);
    bool other = false;
    if (fx_steps(x, t, base) != 1 || fx_steps(x, t, NULL) != 1 || own->dtype != DT_F32 ||
        q->dtype != DT_F32 || !q->bytes.at || !shape_equal(&q->shape, &own->shape))
        return NULL;
    RawTensor from = {.dtype = q->dtype, .shape = q->shape};
    uint8_t *bytes = arena_alloc(x->a, param_size(q));
    param_bytes(q, bytes);
    from.bytes.at = bytes;
    for (int64_t i = 0; i < n; i++) {
        float v = (float)raw_number(&from, i);
        if (raw_number(own, i) != (double)(1 - v))
            return NULL;
        other |= raw_number(own, i) != (double)(v - 1);
    }
    Recipe *r = recipe_of(x->a, param);
    uint32_t minus = recipe_number(x->a, r, own->dtype, -1),
             negative = recipe_op(x->a, r, OP_Mul, (Attr){0}, 0, minus),
             one = recipe_number(x->a, r, own->dtype, 1);
    recipe_op(x->a, r, OP_Add, (Attr){0}, negative, one);
    return other ? r : NULL;
}

/* The parameter that it is by its bits, else a line through them, else a function of them. */
static Candidates candidates_of(Fx *x, const Trace *t)
{
    const Params *p = x->p;
    Candidates all = {0};
    for (int pass = 0; pass < 3 && all.n == 0; pass++)
        for (uint32_t e = 0; e < p->sig.n; e++) {
            const char *target = p->sig.entry[e].target;
            uint32_t id = p->sig_param[e];
            if (id == NONE || p->g->param.at[id].stat || strcmp(p->g->param.at[id].name, target))
                continue;
            Recipe *r =
                pass ? tie_function(x, id, t->tensor, pass == 1) : tie_exact(x, id, t->tensor);
            bool told = !trace_is_merged(t) && fx_is_origin(x, t->use->init, e);
            if (!r && pass == 1 && told && x->origin[t->use->init].entry.n == 1)
                r = tie_complement(x, id, t);
            if (!r)
                continue;
            bool own = fx_distance(target, t->use->node->scope) == OWN;
            if (!pass || told || own || shape_elements(&t->tensor->shape) >= 16)
                vec_push(x->a, &all, ((Candidate){e, r, {told, own, is_whole(r)}}));
        }
    return all;
}

static void tie(Fx *x, Trace *t)
{
    const Candidates all = candidates_of(x, t);
    const Candidate *best = best_of(x->a, &all);
    bool turned;
    if (best) {
        /* a symmetric matrix, which its transpose was merged with */
        if (recipe_is_plain(best->recipe, &turned) && !turned && t->tensor->shape.rank == 2 &&
            fx_is_one_of(t->fx, fx_turns))
            recipe_swap(x->a, best->recipe);
        t->entry = best->entry;
        trace_give(x, t, best->recipe);
        return;
    }
    for (uint32_t i = 0; i < all.n; i++)
        fx_lacks(x, all.at[i].entry, t->tensor->name);
    t->done = all.n > 0;
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
                trace_give(x, t, r);
        }
}

static void tie_beside(Fx *x, Trace *t)
{
    Rest rest;
    Recipe *r = tie_pieces(x, t->tensor, &rest);
    if (r && !rest.tensor.name)
        trace_give(x, t, r);
}

void trace_tie(Fx *x, Traces *all)
{
    void (*const by[])(Fx *, Trace *) = {tie, tie_norm, tie_beside};
    for (size_t k = 0; k < sizeof by / sizeof *by; k++)
        for (uint32_t i = 0; i < all->n; i++)
            if (!all->at[i].done)
                by[k](x, &all->at[i]);
}

/* ---- parameters that are in the file in no other way ---- */

static const char *shape_text(Arena *a, const Shape *s)
{
    const char *text = "";
    for (int i = 0; i < s->rank; i++)
        text = arena_printf(a, "%s%s%lld", text, i ? "," : "", (long long)s->d[i]);
    return arena_printf(a, "[%s]", text);
}

static uint32_t put(Fx *x, uint32_t entry, const Trace *t, const Undone *found)
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

/* The recipe of a trace reads parameter 0: the one that was made of it. */
static Recipe *reading(Recipe *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->at[i].op == OP_NONE && r->at[i].param != NONE)
            r->at[i].param = id;
    return r;
}

static void give_rows(Fx *x, Trace *const *t, uint32_t n, uint32_t id, const Shape *whole)
{
    Shape row = *whole;
    row.d[0] = 1;
    for (uint32_t i = 0; i < n; i++) {
        Recipe *r = recipe_of(x->a, id);
        recipe_slice(x->a, r, row.rank, (int64_t[MAX_RANK]){t[i]->row}, row.d);
        recipe_reshape(x->a, r, &t[i]->tensor->shape);
        trace_give(x, t[i], r);
    }
}

void trace_recover(Fx *x, Traces *all)
{
    for (uint32_t e = 0; e < x->p->sig.n; e++) {
        VEC(Trace *) own = {0};
        Undone found;
        for (uint32_t i = 0; i < all->n && fx_is_unread(x, e); i++) {
            Trace *t = &all->at[i];
            if (t->done || trace_is_merged(t) || fx_unread_origin(x, t->use->init) != e ||
                param_is_made_up(t->fx) || param_is_table(x->p->g, t->tensor))
                continue;
            t->entry = e;
            vec_push(x->a, &own, t);
        }
        if (own.n && undo_rows(x, own.at, own.n, &found)) {
            give_rows(x, own.at, own.n, put(x, e, own.at[0], &found), &found.shape);
            continue;
        }
        for (uint32_t i = 0; i < own.n; i++)
            if (undo_one(x, own.at[i], &found)) {
                trace_give(x, own.at[i], reading(found.recipe, put(x, e, own.at[i], &found)));
                break;
            }
    }
}

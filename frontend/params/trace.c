/*
 * trace.c - operands of which no argument of their fx node says what they are: constant
 * folding made them.  In: the uses that fx.c left, and the parameters that are known.  Out:
 * their traces, and a recipe for each that is a known parameter in another arrangement or a
 * function of one (tie.c).
 *
 * Which of several equal parameters an operand is is decided by the source line of the reader
 * (".sinks"), then by its module.
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
const char *trace_name(Fx *x, const Use *u)
{
    const RawTensor *t = &x->p->m->init.at[u->init];
    const Group *g = fx_group(x, u->node);
    const char *only = NULL, *placed = NULL, *once = fx_once(x, u);
    uint32_t n = 0, operands = 0;
    for (uint32_t i = 0; i < u->node->nin; i++)
        operands += !strcmp(u->node->in[i], t->name);
    if (once)
        return once;
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
            continue;                                   /* made of no parameter */
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
bool trace_is_merged(Fx *x, const Trace *t)
{
    const char *name = t->tensor->name;
    return !param_is_made_up(name) && strcmp(t->fx, name) && !fx_once(x, t->use);
}

/* All operands that are this trace get the recipe. */
void trace_give(Fx *x, Trace *t, Recipe *r)
{
    bool plain;
    if (t->turned && recipe_is_plain(r, &plain) && plain)
        r->n--;                                         /* turned twice */
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
    trace_give(x, t, recipe_with_other(x->a, r, from, to));
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
void trace_tie_alike(Fx *x, const Traces *all, Trace *t)
{
    const RawNode *n = t->use->node;
    for (uint32_t i = 0; i < all->n && trace_is_merged(x, t) && !t->done; i++) {
        const Trace *o = &all->at[i];
        const RawNode *other = o->use->node;
        if (o->use->init != t->use->init || !o->done || o->entry == NONE || trace_is_merged(x, o) ||
            o->use->input != t->use->input || strcmp(other->op_type, n->op_type) ||
            x->p->sig_param[o->entry] == NONE || !param_is_used(other, o->use->input) ||
            fx_distance(x->p->sig.entry[o->entry].target, n->scope) != FAR)
            continue;
        uint32_t own = fx_like_named(x, t->use, o->entry);
        if (own != NONE)
            take_equal(x, t, own, x->p->sig_param[o->entry], other->made[o->use->input]);
    }
}

/* By what the file says it was computed of this parameter by one subtraction, of numbers besides.
 * of: what was computed of the parameter first, an initializer of the file; or NULL. */
static bool is_difference(const Fx *x, const Trace *t, uint32_t entry, const char **of)
{
    static const char *const base[] = {"sub", "rsub", NULL};
    const MadeOf *o = &x->origin[t->use->init];
    bool only = o->entry.n == 1 && o->entry.at[0] == entry && fx_is_one_of(t->fx, base);
    *of = NULL;
    for (uint32_t i = 0; i < o->step.n && only; i++) {
        const char *step = o->step.at[i];
        if (!strcmp(step, t->fx) || param_is_made_up(step) ||
            !strncmp(step, "scalar_tensor", strlen("scalar_tensor")))
            continue;
        only = !*of;
        *of = step;
    }
    return only;
}

/* How an initializer is made of parameters, where some node reads it so; or NULL. */
static const Recipe *recipe_at(const Fx *x, uint32_t init)
{
    for (uint32_t i = 0; i < x->all.n; i++) {
        const Use *u = &x->all.at[i];
        if (u->init == init && u->node->made && u->node->made[u->input])
            return u->node->made[u->input];
    }
    return NULL;
}

/* 1 - p or 1 - f(p), however few numbers it has: a difference that is this to the last bit, and not
 * p - 1. */
static Recipe *tie_complement(Fx *x, uint32_t param, const char *of, const RawTensor *t)
{
    const Model *m = x->p->m;
    const Param *q = &x->p->g->param.at[param];
    uint32_t init = of ? strmap_get(&m->init_index, of) : NONE;
    const Recipe *made = of ? (init == NONE ? NULL : recipe_at(x, init)) : recipe_of(x->a, param);
    RawTensor from = {.dtype = q->dtype, .shape = q->shape};
    int64_t n = shape_elements(&t->shape);
    bool other = false;
    if (of && made)
        from = m->init.at[init];
    if (!made || t->dtype != DT_F32 || from.dtype != DT_F32 || n < 1 || (!of && !q->bytes.at) ||
        !shape_equal(&from.shape, &t->shape))
        return NULL;
    if (!of) {
        uint8_t *own = arena_alloc(x->a, param_size(q));
        param_bytes(q, own);
        from.bytes = (Payload){.at = own, .length = param_size(q)};
    }
    for (int64_t i = 0; i < n; i++) {
        float v = (float)raw_number(&from, i);
        double is = raw_number(t, i);
        if (is != (double)(1 - v))
            return NULL;
        other |= is != (double)(v - 1);
    }
    if (!other)
        return NULL;
    Recipe *r = recipe_with_other(x->a, made, param, param);
    uint32_t last = r->n - 1, minus = recipe_number(x->a, r, t->dtype, -1);
    uint32_t negative = recipe_op(x->a, r, OP_Mul, (Attr){0}, last, minus);
    uint32_t one = recipe_number(x->a, r, t->dtype, 1);
    recipe_op(x->a, r, OP_Add, (Attr){0}, negative, one);
    return r;
}

void trace_tie(Fx *x, Trace *t)
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
            bool told = !trace_is_merged(x, t) && fx_is_origin(x, t->use->init, e);
            Recipe *r = pass ? tie_function(x, id, tensor, pass == 1) : tie_exact(x, id, tensor);
            const char *of;
            if (!r && pass == 1 && told && is_difference(x, t, e, &of))
                r = tie_complement(x, id, of, tensor);
            if (!r)
                continue;
            bool read = fx_reads(n, target), own = fx_distance(target, n->scope) == OWN;
            bool equal = trace_is_merged(x, t) && fx_like_named(x, t->use, e) != NONE;
            if (!pass || told || read || own || equal || shape_elements(&tensor->shape) >= 16)
                vec_push(x->a, &all, ((Candidate){e, r, {told, read, own, is_whole(r)}}));
        }
    if (trace_is_merged(x, t) && tie_equal(x, t, &all))
        return;
    const Candidate *best = best_of(x->a, &all);
    if (best) {
        bool turned;
        if (recipe_is_plain(best->recipe, &turned) && !turned && fx_is_turned(x, t->use))
            recipe_swap(x->a, best->recipe);
        t->entry = best->entry;
        trace_give(x, t, best->recipe);
        return;
    }
    for (uint32_t i = 0; i < all.n; i++)
        fx_lacks(x, all.at[i].entry, tensor->name);
    t->done = all.n > 0;
}

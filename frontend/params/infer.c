/*
 * infer.c - a parameter that constant folding left only a trace of.  In: an initializer, the
 * fx node that folding made it of ("expand_4", "select", "neg_1"), and the text of its reader. Out:
 * the parameter's shape and bytes, and the recipe that makes the initializer of it; or nothing,
 * where what was done cannot be told or cannot be undone.
 *
 * What was done, a record says (origin.c); where there is none, the name tells the last operation;
 * those before it left gaps in the numbering of fx names ("unsqueeze_2" is nowhere although
 * unsqueeze_1 stands before and unsqueeze_3 behind), or stand in the source line.  A function of
 * single elements goes in any order with views: it is undone first.  What was expanded is seen in
 * the bytes.  A view to a vector with dims of 1 is undone to the vector; one that merged dims, by
 * the view of the other factor of the product; otherwise it is not undone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fx.h"

static const char *leaf_of(const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot ? dot + 1 : target;
}

static long number_of(const char *name)
{
    size_t n = fx_base(name);
    return name[n] ? strtol(name + n + 1, NULL, 10) : 0;
}

/* How many fx nodes of this kind, folded away, stood between those before and behind a place of the
 * list. */
static long gap(const Fx *x, const char *base, uint32_t order)
{
    long before = -1, behind = -1;
    for (uint32_t i = 0; i < x->group.n; i++) {
        const Group *g = &x->group.at[i];
        long k = number_of(g->fx.name);
        if (!fx_is_base(g->fx.name, base))
            continue;
        if (g->order < order)
            before = k > before ? k : before;
        else if (behind < 0 || k < behind)
            behind = k;
    }
    return behind < 0 ? 0 : behind - before - 1;
}

static Shape squeezed(const Shape *s)
{
    Shape out = {0};
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] != 1)
            out.d[out.rank++] = s->d[i];
    return out;
}

static bool is_constant(const RawTensor *t)
{
    size_t size = dtype_size(t->dtype);
    return t->bytes.length <= size ||
           !memcmp(t->bytes.at, t->bytes.at + size, t->bytes.length - size);
}

/* Are the slices along dim d all the same? */
static bool repeats(const RawTensor *t, int d)
{
    size_t inner = dtype_size(t->dtype), outer = 1;
    for (int i = 0; i < t->shape.rank; i++) {
        inner *= i > d ? (size_t)t->shape.d[i] : 1;
        outer *= i < d ? (size_t)t->shape.d[i] : 1;
    }
    size_t run = inner * (size_t)t->shape.d[d];
    for (size_t o = 0; o < outer; o++)
        if (memcmp(t->bytes.at + o * run, t->bytes.at + o * run + inner, run - inner))
            return false;
    return true;
}

/* Is it one half, third, ... of dim d again and again, slice by slice or all of it in turn: a dim
 * that was repeated, or one that a view has merged with its copies? */
static bool repeats_within(const RawTensor *t, int d)
{
    size_t inner = dtype_size(t->dtype), s = (size_t)t->shape.d[d];
    for (int i = d + 1; i < t->shape.rank; i++)
        inner *= (size_t)t->shape.d[i];
    for (size_t k = 2; k < s && inner > 0; k++) {
        bool in_turn = s % k == 0, each = in_turn;
        for (size_t i = 0; i < t->bytes.length / inner && (in_turn || each); i++) {
            const uint8_t *at = t->bytes.at + i * inner;
            in_turn = in_turn && !memcmp(at, at - i % s * inner + i % s % (s / k) * inner, inner);
            each = each && !memcmp(at, at - i % s % k * inner, inner);
        }
        if (in_turn || each)
            return true;
    }
    return false;
}

/* The elements at index 0 of every dim that `once` has as 1. */
static Payload first_of_each(Arena *a, const RawTensor *t, const Shape *once)
{
    size_t size = dtype_size(t->dtype);
    int64_t n = shape_elements(once), index[MAX_RANK] = {0};
    uint8_t *out = arena_alloc(a, (size_t)n * size);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < once->rank; d++)
            at = at * t->shape.d[d] + index[d];
        memcpy(out + (size_t)i * size, t->bytes.at + (size_t)at * size, size);
        for (int d = once->rank; d-- > 0; index[d] = 0)
            if (++index[d] < once->d[d])
                break;
    }
    return (Payload){
        .at = out, .length = (size_t)n * size, .file = t->bytes.file, .converted = true};
}

/* ---- what the text says ---- */

enum { MOST_CALLS = 8 };

typedef struct { TextCall call[MOST_CALLS]; uint32_t n; } Said;

static const TextCall *said(const Said *s, const char *name)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (!strcmp(s->call[i].name, name))
            return &s->call[i];
    return NULL;
}

/* How many fx nodes of this kind are missing below the highest number. */
static long missing(const Fx *x, const char *base)
{
    long most = -1, count = 0;
    for (uint32_t k = 0; k < x->group.n; k++)
        if (fx_is_base(x->group.at[k].fx.name, base)) {
            long number = number_of(x->group.at[k].fx.name);
            most = number > most ? number : most;
            count++;
        }
    return most + 1 - count;
}

/*
 * Was anything folded, anywhere, that moves or mixes elements in a way a view does not undo?  Where
 * in the file cannot be seen behind the last of a kind.
 */
static bool is_obscured(const Fx *x)
{
    static const char *const base[] = {
        "permute", "transpose", "t",    "index",   "index_select", "embedding", "slice",  "select",
        "mul",     "sub",       "div",  "matmul",  "mm",           "bmm",       "einsum", "cat",
        "stack",   "flip",      "roll", "softmax", "gather",       NULL};
    for (int i = 0; base[i]; i++)
        if (missing(x, base[i]) > 0)
            return true;
    return false;
}

static int added_dims(const Said *s)
{
    int n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        n += !strcmp(s->call[i].name, "unsqueeze");
        for (uint32_t k = 0; !strcmp(s->call[i].name, "[]") && k < s->call[i].n; k++)
            n += !strcmp(s->call[i].arg[k], "None");
    }
    return n;
}

/* Unsqueezes undone last to first, where their positions are numbers. */
static bool undo_said(const Said *s, Shape *shape)
{
    for (uint32_t i = s->n; i-- > 0;) {
        const TextCall *c = &s->call[i];
        char *end;
        if (strcmp(c->name, "unsqueeze") || c->n != 1)
            continue;
        long at = strtol(c->arg[0], &end, 10);
        at += at < 0 ? shape->rank : 0;
        if (*end || at < 0 || at >= shape->rank || shape->d[at] != 1)
            return false;
        for (int k = (int)at; k + 1 < shape->rank; k++)
            shape->d[k] = shape->d[k + 1];
        shape->rank--;
    }
    return true;
}

/* As it stands in the file, or with its two dims exchanged: nothing is copied. */
static bool infer_plain(Fx *x, const RawTensor *t, bool turned, Inferred *out)
{
    if (turned && t->shape.rank != 2)
        return false;
    *out = (Inferred){
        .shape = t->shape, .recipe = recipe_of(x->a, 0), .plain = true, .turned = turned};
    if (turned) {
        out->shape = shape_of(2, t->shape.d[1], t->shape.d[0]);
        recipe_swap(x->a, out->recipe);
    }
    return true;
}

/* ---- functions ---- */

static double un_exp(double v) { return log(v); }
static double un_log(double v) { return exp(v); }
static double un_neg(double v) { return -v; }
static double un_neg_exp(double v) { return log(-v); }
static double un_exp_neg(double v) { return -log(v); }
static double un_sigmoid(double v) { return log(v / (1 - v)); }
static double un_tanh(double v) { return atanh(v); }
static double un_softplus(double v) { return v + log(-expm1(-v)); }
static double un_sqrt(double v) { return v * v; }
static double un_reciprocal(double v) { return 1 / v; }

typedef struct { const char *fx; Op first, then; double (*undo)(double); } Function;

static const Function one[] = {
    {"exp", OP_Exp, OP_NONE, un_exp},
    {"log", OP_Log, OP_NONE, un_log},
    {"sigmoid", OP_Sigmoid, OP_NONE, un_sigmoid},
    {"tanh", OP_Tanh, OP_NONE, un_tanh},
    {"softplus", OP_Softplus, OP_NONE, un_softplus},
    {"sqrt", OP_Sqrt, OP_NONE, un_sqrt},
    {"reciprocal", OP_Reciprocal, OP_NONE, un_reciprocal},
    {"neg", OP_Neg, OP_NONE, un_neg},
};
static const Function neg_exp = {"neg", OP_Exp, OP_Neg, un_neg_exp},
                      exp_neg = {"exp", OP_Neg, OP_Exp, un_exp_neg};

/* The function that the record says, of views in any order; of -exp(x) and exp(-x) the sign says
 * which. */
static const Function *function_told(const Fx *x, const Trace *t, bool negative)
{
    const Function *found = NULL;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        if (fx_steps(x, t, (const char *const[]){one[i].fx, NULL}) > 0)
            found = !found ? &one[i] : negative ? &neg_exp : &exp_neg;
    return found;
}

/* Was a function of something folded, anywhere? */
static bool is_computed(const Fx *x)
{
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        if (missing(x, one[i].fx) > 0)
            return true;
    return false;
}

/* The one that the fx name says. */
static const Function *function_named(const Fx *x, const Trace *t, const char *leaf, bool negative)
{
    const Function *found = NULL;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        found = fx_is_base(t->fx, one[i].fx) ? &one[i] : found;
    if (!found || found->first != OP_Neg || !negative)
        return found;
    bool log_of = text_applies(t->use->node->stack, "exp", leaf) || missing(x, "exp") > 0 ||
                  strstr(leaf, "log");
    return log_of ? &neg_exp : NULL;
}

/* *own: what the trace was before the function *fn, which is NULL where there was none. */
static bool undo_function(Fx *x, const Trace *t, const char *leaf, RawTensor *own,
                          const Function **fn)
{
    const RawTensor *tensor = t->tensor;
    int64_t n = shape_elements(&tensor->shape);
    double *v = arena_array(x->a, double, n);
    uint8_t *bytes = arena_alloc(x->a, tensor->bytes.length);
    size_t size = dtype_size(tensor->dtype);
    bool negative = true, wide = tensor->dtype == DT_F64;
    for (int64_t i = 0; i < n; i++)
        negative &= (v[i] = raw_number(tensor, i)) < 0;
    *own = *tensor;
    *fn = x->origin[t->use->init].is_told ? function_told(x, t, negative)
                                          : function_named(x, t, leaf, negative);
    for (int64_t i = 0; *fn && i < n; i++) {
        double before = (*fn)->undo(v[i]);
        float f = (float)before;
        if (!isfinite(before))
            return false;
        memcpy(bytes + (size_t)i * size, wide ? (void *)&before : (void *)&f, size);
    }
    if (*fn)
        own->bytes = (Payload){.at = bytes,
                               .length = tensor->bytes.length,
                               .file = tensor->bytes.file,
                               .converted = true};
    return true;
}

static Recipe *recipe_applying(Arena *a, const Function *fn)
{
    Recipe *r = recipe_of(a, 0);
    if (!fn)
        return r;
    uint32_t first = recipe_op(a, r, fn->first, (Attr){0}, 0, NONE);
    if (fn->then != OP_NONE)
        recipe_op(a, r, fn->then, (Attr){0}, first, NONE);
    return r;
}

static bool infer_function(Fx *x, const Function *fn, const RawTensor *own, Inferred *out)
{
    *out = (Inferred){
        .shape = own->shape, .bytes = own->bytes, .recipe = recipe_applying(x->a, fn)};
    return true;
}

/* ---- views ---- */

/* The sizes the file gives of a value. */
static bool declared(const Model *m, const char *name, Shape *s)
{
    for (size_t i = 0; i < m->graph->n_value_info; i++) {
        const Onnx__ValueInfoProto *v = m->graph->value_info[i];
        if (!v->name || strcmp(v->name, name) || !v->type ||
            v->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
            !v->type->tensor_type->shape || v->type->tensor_type->shape->n_dim > MAX_RANK)
            continue;
        s->rank = (int)v->type->tensor_type->shape->n_dim;
        for (int d = 0; d < s->rank; d++)
            s->d[d] = v->type->tensor_type->shape->dim[d]->dim_value;
        return true;
    }
    return false;
}

/* The last dim of a product's other factor was made of several: so was the parameter's. */
static bool unmerged(const Fx *x, const Use *u, int64_t rows, int64_t inner, Shape *s)
{
    Shape from;
    for (uint32_t i = 0; i < x->list->n; i++) {
        const RawNode *n = x->list->at[i];
        if (n->dead || n->nout != 1 || n->nin < 1 || strcmp(n->out[0], u->node->in[1 - u->input]) ||
            strcmp(n->op_type, "Reshape") || !declared(x->p->m, n->in[0], &from))
            continue;
        int64_t size = 1;
        int d = from.rank;
        while (d > 1 && size < inner && from.d[d - 1] > 0)
            size *= from.d[--d];
        if (size != inner || from.rank - d < 2)
            return false;
        *s = shape_of(1, rows);
        for (; d < from.rank; d++)
            s->d[s->rank++] = from.d[d];
        return true;
    }
    return false;
}

/* What is called so and is added to a product with a parameter has a number for each column. */
static bool is_bias(const Fx *x, const Use *u, const char *leaf)
{
    size_t n = strlen(leaf);
    if (n < 4 || strcmp(leaf + n - 4, "bias") || strcmp(u->node->op_type, "Add"))
        return false;
    for (uint32_t i = 0; i < x->list->n; i++) {
        const RawNode *p = x->list->at[i];
        if (!p->dead && p->nout == 1 && p->nin >= 2 && !strcmp(p->out[0], u->node->in[1 - u->input]))
            return (!strcmp(p->op_type, "MatMul") || !strcmp(p->op_type, "Gemm")) &&
                   param_is_used(p, 1);
    }
    return false;
}

/* What stands for each hidden place is one vector; a group_token (GroupViT) may be many. */
static bool is_mask_token(const char *leaf) { return !strcmp(leaf, "mask_token"); }

/* expand(n, 3, -1): a dim that is given a size where others are left as they are was 1. */
static bool said_expanded(const Said *text, int d, int rank)
{
    const TextCall *c = said(text, "expand");
    bool kept = false;
    for (uint32_t i = 0; c && i < c->n; i++)
        kept |= !strcmp(c->arg[i], "-1");
    return kept && (int)c->n == rank && strcmp(c->arg[d], "-1") != 0;
}

/* expand(1, 4, 1), written so, of which the result is one number in one line: an expand that makes
 * nothing larger is not written, so it is of that number. */
static bool said_one_number(const Said *text, const Shape *s, int d)
{
    const TextCall *c = said(text, "expand");
    int wide = 0;
    char *end;
    for (int i = 0; i < s->rank; i++)
        wide += s->d[i] > 1;
    if (!c || (int)c->n != s->rank || wide != 1)
        return false;
    long n = strtol(c->arg[d], &end, 10);
    return !*end && n == s->d[d];
}

/* tensor: what the trace was before fn, the function that it is of the parameter, or NULL */
static bool infer_view(Fx *x, const Trace *t, const Said *text, const RawTensor *tensor,
                       const Function *fn, Inferred *out)
{
    static const char *const views[] = {"view", "reshape", "_unsafe_view", "flatten", NULL};
    static const char *const same[] = {"clone",     "contiguous", "to",     "_to_copy",
                                       "alias",     "expand",     "repeat", "expand_as",
                                       "convert_element_type_default", NULL};
    static const char *const repeat[] = {"expand", "repeat", "expand_as", NULL};
    const Use *u = t->use;
    Shape once = tensor->shape, own, squeeze;
    bool repeated = fx_steps(x, t, repeat) > 0, constant = is_constant(tensor);
    bool viewed = fx_is_one_of(t->fx, views) || said(text, "view") || said(text, "reshape") ||
                  said(text, "flatten");
    int added = added_dims(text);
    /* is it known what was done? */
    bool told = x->origin[u->init].is_told, sure = text->n > 0 || told;
    /* a kernel is viewed for what is done to it: weight standardisation */
    if (viewed && u->input == 1 && strstr(u->node->op_type, "Conv") == u->node->op_type)
        return false;
    if (told) {
        viewed = fx_steps(x, t, views) > 0;
        added = (int)fx_steps(x, t, (const char *const[]){"unsqueeze", NULL});
    } else if (!text->n && repeated) {
        viewed = gap(x, "view", u->order) > 0 || gap(x, "reshape", u->order) > 0;
        added = (int)gap(x, "unsqueeze", u->order);
    } else if (!text->n && fx_is_base(t->fx, "unsqueeze")) {
        added = once.rank;
    }
    const char *leaf = leaf_of(x->p->sig.entry[t->entry].target);
    bool embedding = !strcmp(leaf, "weight"), bias = constant && repeated && is_bias(x, u, leaf);
    bool vector = bias || (constant && is_mask_token(leaf));
    if (constant && repeated && !bias && (viewed || once.rank > 3))
        return false; /* which of the dims are its own cannot be seen */
    for (int d = 0; d < once.rank && repeated; d++)
        if (once.d[d] > 1 && (vector     ? d + 1 < once.rank
                              : constant ? d == 0 || said_expanded(text, d, once.rank) ||
                                               said_one_number(text, &tensor->shape, d)
                                         : repeats(tensor, d)))
            once.d[d] = 1;
    bool within = viewed || fx_steps(x, t, (const char *const[]){"repeat", NULL}) > 0;
    for (int d = 0; d < once.rank && told && repeated && within && !constant; d++)
        if (once.d[d] > 1 && repeats_within(tensor, d))
            return false;
    viewed |= bias;
    squeeze = squeezed(&once);
    own = constant && repeated && squeeze.rank == 0 ? squeeze : once;
    if (repeated && embedding && !sure && once.rank == 3 && once.d[0] == 1)
        added = 1;                                      /* of two dims, as a table's weight is */
    if (!sure && ((squeeze.rank > 1 && is_obscured(x)) || (!fn && is_computed(x))))
        return false;
    bool product = u->node->nin >= 2 && u->input == 1 &&
                   (!strcmp(u->node->op_type, "Gemm") || !strcmp(u->node->op_type, "MatMul"));
    /* [1, 1, n], as tokens are: expanded alone, unless the text says more */
    bool leading = once.rank > 0 && once.d[once.rank - 1] != 1;
    if (!sure && repeated && leading && squeeze.rank <= 1)
        viewed = false;
    if (viewed && squeeze.rank <= 1) {
        if (squeeze.rank == tensor->shape.rank)
            return false;                               /* a vector was made of something else */
        own = squeeze;
    } else if (viewed && product && once.rank == 2 &&
               (t->turned || raw_int(u->node, "transB", 0))) {
        if (!unmerged(x, u, once.d[0], once.d[1], &own))
            return false;
    } else if (viewed && squeeze.rank < once.rank) {
        own = squeeze;
    } else if (viewed) {
        return false;
    } else if (added > 0 && !(undo_said(text, &own) && own.rank == once.rank - added)) {
        own = once;
        for (int d = 0; d < own.rank && added > 0;) {
            if (own.d[d] != 1) {
                d++;
                continue;
            }
            for (int k = d; k + 1 < own.rank; k++)
                own.d[k] = own.d[k + 1];
            own.rank--;
            added--;
        }
    } else if (added == 0 && !fx_is_one_of(t->fx, same)) {
        return false;
    }
    if (shape_equal(&own, &tensor->shape))
        return fn ? infer_function(x, fn, tensor, out) : infer_plain(x, tensor, false, out);
    out->shape = own;
    out->bytes = first_of_each(x->a, tensor, &once);
    out->recipe = recipe_applying(x->a, fn);
    if (!shape_equal(&own, &once))
        recipe_reshape(x->a, out->recipe, &once);
    if (!shape_equal(&once, &tensor->shape))
        recipe_expand(x->a, out->recipe, &tensor->shape);
    return true;
}

/* ---- one trace, several ---- */

static const char *const turns[] = {"t", "permute", "transpose", "numpy_t", NULL};
static const char *const views[] = {"view",   "reshape", "_unsafe_view", "flatten", "unsqueeze",
                                    "expand", "repeat",  "expand_as",    NULL};
static const char *const parts[] = {"select", "slice", NULL};

bool infer(Fx *x, const Trace *t, Inferred *out)
{
    *out = (Inferred){0};
    const RawTensor *tensor = t->tensor;
    const char *leaf = leaf_of(x->p->sig.entry[t->entry].target);
    Said text = {0};
    text.n = text_calls(x->a, t->use->node->stack, leaf, text.call, MOST_CALLS);
    if (!strcmp(leaf, "relative_position_bias_table"))
        return !is_constant(tensor) && infer_table(x, tensor, out);
    if (!fx_can_be_undone(x, t) || fx_steps(x, t, parts) > 0)
        return false;
    RawTensor own;
    const Function *fn;
    if (!undo_function(x, t, leaf, &own, &fn))
        return false;
    bool viewed = x->origin[t->use->init].is_told && fx_steps(x, t, views) > 0;
    if (fx_is_one_of(t->fx, turns))
        return !fn && !viewed && infer_plain(x, tensor, true, out);
    if (fx_is_base(t->fx, "add"))                       /* 1 + weight: trains as the sum */
        return !fn && tensor->shape.rank == 1 && tensor->shape.d[0] > 1 &&
               !strcmp(t->use->node->op_type, "Mul") && infer_plain(x, tensor, false, out);
    return fn && !viewed ? infer_function(x, fn, &own, out)
                         : infer_view(x, t, &text, &own, fn, out);
}

bool trace_is_plain_part(Fx *x, const Trace *t)
{
    return !x->origin[t->use->init].is_told ||
           (fx_can_be_undone(x, t) && fx_steps(x, t, views) == 0 && fx_steps(x, t, parts) == 1 &&
            !function_told(x, t, false));
}

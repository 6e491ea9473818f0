/*
 * loops.c - which axes of a node's operands and result are one loop, for the operations that have a
 * formal rule: elementwise ones, with broadcasting; reductions; products of matrices.
 *
 * The rules of ShardingFormalism.md for these kinds are one rule over loops (compose.c): a product
 * of [M, K] and [K, N] is an elementwise product over the loops M, K, N and a sum over K.
 */
#include "check.h"

#include <string.h>

static const char no_rule[] = "no formal rule", no_shape[] = "shapes not known";

/* The document's lists, and what belongs to them by what it computes. */
static const char each[] =
    " Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot "
    "BitwiseOr BitwiseXor Cast Ceil Celu Clip Cos Cosh Div Dropout Elu Equal Erf Exp "
    "Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN "
    "LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow "
    "Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub "
    "Sum Tan Tanh ThresholdedRelu Where Xor ";
static const char reductions[] =
    " ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
    "ReduceMin ReduceProd ReduceSum ReduceSumSquare ";

static bool is_in(const char *list, const char *op)
{
    const size_t n = strlen(op);
    for (const char *p = list; n && (p = strstr(p, op)); p += n)
        if (p[-1] == ' ' && p[n] == ' ')
            return true;
    return false;
}

typedef struct {
    const Check *c;
    const Onnx__NodeProto *n;
    Loops *l;
    Sizes *size;
} Find;

static const Onnx__AttributeProto *attribute(const Find *f, const char *name)
{
    for (size_t i = 0; i < f->n->n_attribute; i++)
        if (!strcmp(check_text(f->n->attribute[i]->name), name))
            return f->n->attribute[i];
    return NULL;
}

static int64_t number(const Find *f, const char *name, int64_t otherwise)
{
    const Onnx__AttributeProto *a = attribute(f, name);
    return a && a->has_i ? a->i : otherwise;
}

/* Their shapes; false: one is not known. */
static bool take(Find *f, uint32_t n, const uint32_t *operand)
{
    Arena *a = f->c->a;
    uint32_t *of = arena_array(a, uint32_t, n + 1);
    f->l->operands = n;
    f->l->operand = of;
    f->l->loop = arena_array(a, AxisLoops, n + 1);
    f->size = arena_array(a, Sizes, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        of[i] = operand ? operand[i] : i;
        f->size[i] = shape_of_tensor(f->c, f->n->input[of[i]]);
        if (f->size[i].rank < 0)
            return false;
    }
    return true;
}

static bool same(const Size *a, const Size *b)
{
    return a->size >= 0 ? a->size == b->size : a->name && b->name && !strcmp(a->name, b->name);
}

/* A loop that axes of several operands share: their sizes are alike, or 1, which is broadcast. */
typedef struct {
    int loop;
    Size size;
    bool any;
} Shared;

/* Gives it to this axis; false: it is not known whether the sizes are alike. */
static bool share(Find *f, Shared *s, uint32_t i, int axis)
{
    const Size *d = &f->size[i].d[axis];
    if (d->size == 1) {
        f->l->loop[i].of[axis] = 0;
        return true;
    }
    f->l->loop[i].of[axis] = s->loop;
    if (s->any && !same(&s->size, d))
        return false;
    s->size = *d;
    s->any = true;
    return true;
}

/* Axis k, counted from the last, of operands that are broadcast against each other, each without
   its last `skip` axes. */
static bool broadcast_axis(Find *f, int loop, int k, const int *skip, bool *any)
{
    Shared s = {.loop = loop};
    for (uint32_t i = 0; i < f->l->operands; i++) {
        int axis = f->size[i].rank - skip[i] - k;
        if (axis >= 0 && !share(f, &s, i, axis))
            return false;
    }
    *any = s.any;
    return true;
}

/* The leading axes: loops 1 to rank, the first of the result. */
static bool broadcast(Find *f, const int *skip)
{
    Loops *l = f->l;
    int rank = 0;
    for (uint32_t i = 0; i < l->operands; i++)
        if (f->size[i].rank - skip[i] > rank)
            rank = f->size[i].rank - skip[i];
    for (int k = 1; k <= rank; k++) {
        bool any = false;
        if (!broadcast_axis(f, rank - k + 1, k, skip, &any))
            return false;
        l->out[rank - k] = any ? rank - k + 1 : 0;
    }
    l->rank = rank;
    l->n = (uint32_t)rank;
    return true;
}

static const char *elementwise(Find *f)
{
    uint32_t n = 0, *present = arena_array(f->c->a, uint32_t, f->n->n_input + 1);
    for (uint32_t i = 0; i < f->n->n_input; i++)
        if (*check_text(f->n->input[i]))
            present[n++] = i;
    int *skip = arena_array(f->c->a, int, n + 1);
    return take(f, n, present) && broadcast(f, skip) ? NULL : no_shape;
}

/* ---- products ---- */

/* Of [..., M, K] and [..., K, N]; a or b may be a vector of K. */
static const char *product(Find *f, uint32_t a, uint32_t b)
{
    Loops *l = f->l;
    if (f->n->n_input <= b || !take(f, 2, (const uint32_t[]){a, b}))
        return no_shape;
    int ra = f->size[0].rank, rb = f->size[1].rank;
    if (ra < 1 || rb < 1 || !broadcast(f, (const int[]){ra > 1 ? 2 : 1, rb > 1 ? 2 : 1}))
        return no_shape;
    Shared m = {.loop = (int)l->n + 1}, k = {.loop = (int)l->n + 2}, n = {.loop = (int)l->n + 3};
    bool known = share(f, &k, 0, ra - 1) && share(f, &k, 1, rb > 1 ? rb - 2 : 0);
    l->n += 3;
    if (known && ra > 1) {
        known = share(f, &m, 0, ra - 2);
        l->out[l->rank++] = m.any ? m.loop : 0;
    }
    if (known && rb > 1) {
        known = share(f, &n, 1, rb - 1);
        l->out[l->rank++] = n.any ? n.loop : 0;
    }
    return known ? NULL : no_shape;
}

/* Both perhaps transposed, and C, which is broadcast to the result. */
static const char *gemm(Find *f)
{
    Loops *l = f->l;
    bool add = f->n->n_input > 2 && *check_text(f->n->input[2]);
    if (f->n->n_input < 2 || !take(f, add ? 3 : 2, NULL) || f->size[0].rank != 2 ||
        f->size[1].rank != 2 || (add && f->size[2].rank > 2))
        return no_shape;
    int ta = number(f, "transA", 0) != 0, tb = number(f, "transB", 0) != 0;
    Shared m = {.loop = 1}, k = {.loop = 2}, n = {.loop = 3};
    bool known =
        share(f, &m, 0, ta) && share(f, &k, 0, !ta) && share(f, &k, 1, tb) && share(f, &n, 1, !tb);
    int rank = add ? f->size[2].rank : 0;
    known = known && (rank < 1 || share(f, &n, 2, rank - 1)) && (rank < 2 || share(f, &m, 2, 0));
    l->n = 3;
    l->rank = 2;
    l->out[0] = m.any ? m.loop : 0;
    l->out[1] = n.any ? n.loop : 0;
    return known ? NULL : no_shape;
}

/* "bij,bjk->bik": a loop a letter.  What repeats a letter in one operand, or has dots, has no rule.
 */
static const char *einsum(Find *f)
{
    enum { LETTERS = 128 };
    const Onnx__AttributeProto *a = attribute(f, "equation");
    Loops *l = f->l;
    Shared letter[LETTERS] = {0};
    char text[256];
    uint32_t n = 0, i = 0;
    int axis = 0;
    if (!a || a->s.len >= sizeof text || !take(f, (uint32_t)f->n->n_input, NULL))
        return a ? no_shape : no_rule;
    for (size_t k = 0; k < a->s.len; k++)
        if (a->s.data[k] != ' ')
            text[n++] = (char)a->s.data[k];
    text[n] = 0;
    const char *out = strstr(text, "->");
    for (const char *p = text; out && p < out; p++) {
        if (*p == ',' && axis == f->size[i].rank && ++i < l->operands) {
            axis = 0;
            continue;
        }
        Shared *s = *p > 0 ? &letter[(int)*p] : letter;
        if (*p == ',' || *p == '.' || axis >= f->size[i].rank)
            return no_rule;
        if (!s->loop)
            s->loop = (int)++l->n;
        for (int b = 0; b < axis; b++)
            if (l->loop[i].of[b] == s->loop)
                return no_rule;
        if (!share(f, s, i, axis++))
            return no_shape;
    }
    for (const char *p = out ? out + 2 : ""; *p && l->rank < MAX_RANK; p++) {
        Shared *s = *p > 0 ? &letter[(int)*p] : letter;
        l->out[l->rank++] = s->any ? s->loop : 0;
    }
    return out && i + 1 == l->operands && axis == f->size[i].rank ? NULL : no_rule;
}

/* ---- reductions ---- */

typedef VEC(int64_t) Numbers;

/* The elements of a tensor of whole numbers that the file holds; false: it does not. */
static bool constant(const Find *f, const char *name, Numbers *out)
{
    const Model *m = f->c->m;
    uint32_t at = strmap_get(&m->init_index, name);
    RawTensor t = {0};
    if (at != NONE)
        t = m->init.at[at];
    for (size_t i = 0; at == NONE && i < m->graph->n_node; i++) {
        const Onnx__NodeProto *n = m->graph->node[i];
        if (n->n_output != 1 || strcmp(check_text(n->output[0]), name) != 0)
            continue;
        const Onnx__AttributeProto *value = n->n_attribute == 1 ? n->attribute[0] : NULL;
        for (size_t k = 0; value && k < value->n_ints; k++)
            vec_push(f->c->a, out, value->ints[k]);
        if (value && value->t)
            tensor_read(f->c->m, value->t, WHERE_FILE(m->path), &t);
        else
            return value && value->n_ints;
    }
    if (t.dtype != DT_I64 || t.shape.rank > 1)
        return false;
    for (size_t i = 0; i < t.bytes.length / sizeof(int64_t); i++) {
        int64_t v;
        memcpy(&v, t.bytes.at + i * sizeof v, sizeof v);
        vec_push(f->c->a, out, v);
    }
    return true;
}

/* Which axes are reduced, given as an attribute or as an operand; false: that is not known. */
static bool reduced(const Find *f, int rank, bool *is)
{
    const Onnx__AttributeProto *a = attribute(f, "axes");
    bool arg = !strncmp(f->n->op_type, "Arg", 3), operand = f->n->n_input > 1 && !arg;
    Numbers axis = {0};
    for (size_t i = 0; a && i < a->n_ints; i++)
        vec_push(f->c->a, &axis, a->ints[i]);
    if (arg)
        vec_push(f->c->a, &axis, number(f, "axis", 0));
    if (operand && *check_text(f->n->input[1]) && !constant(f, f->n->input[1], &axis))
        return false;
    for (uint32_t i = 0; i < axis.n; i++) {
        if (axis.at[i] < -rank || axis.at[i] >= rank)
            return false;
        is[axis.at[i] < 0 ? axis.at[i] + rank : axis.at[i]] = true;
    }
    for (int k = 0; k < rank && axis.n == 0 && !number(f, "noop_with_empty_axes", 0); k++)
        is[k] = true;
    return true;
}

static const char *reduction(Find *f)
{
    Loops *l = f->l;
    bool is[MAX_RANK] = {false};
    if (f->n->n_input < 1 || !take(f, 1, NULL) || !reduced(f, f->size[0].rank, is))
        return no_shape;
    bool keep = number(f, "keepdims", 1) != 0;
    l->n = (uint32_t)f->size[0].rank;
    for (int k = 0; k < f->size[0].rank; k++) {
        l->loop[0].of[k] = k + 1;
        if (!is[k] || keep)
            l->out[l->rank++] = is[k] ? 0 : k + 1;
    }
    return NULL;
}

/* ---- which ---- */

const char *loops_find(const Check *c, const Onnx__NodeProto *n, Loops *out)
{
    const char *op = check_text(n->op_type), *domain = check_text(n->domain);
    Find f = {.c = c, .n = n, .l = out};
    *out = (Loops){0};
    if (*domain && strcmp(domain, "ai.onnx") != 0)
        return no_rule;
    if (is_in(each, op))
        return elementwise(&f);
    if (is_in(reductions, op))
        return reduction(&f);
    if (!strcmp(op, "MatMul") || !strcmp(op, "MatMulInteger"))
        return product(&f, 0, 1);
    if (!strcmp(op, "QLinearMatMul"))
        return product(&f, 0, 3);
    return !strcmp(op, "Gemm") ? gemm(&f) : !strcmp(op, "Einsum") ? einsum(&f) : no_rule;
}

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

enum { LOOPS = 128 }; /* of a node at most */

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

/* The operands of these inputs, all if NULL, and their shapes; false: one is not known. */
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

/* Axes that share a loop are alike, or of size 1, which is broadcast and no loop.  Why not; NULL:
   all are. */
static const char *settle(Find *f)
{
    Size size[LOOPS + 1];
    bool any[LOOPS + 1] = {false};
    for (uint32_t i = 0; i < f->l->operands; i++)
        for (int k = 0; k < f->size[i].rank; k++) {
            int *loop = &f->l->loop[i].of[k];
            const Size *d = &f->size[i].d[k];
            if (d->size == 1) {
                *loop = 0;
                continue;
            }
            if (any[*loop] && !same(&size[*loop], d))
                return no_shape;
            size[*loop] = *d;
            any[*loop] = true;
        }
    for (int k = 0; k < f->l->rank; k++)
        f->l->out[k] = any[f->l->out[k]] ? f->l->out[k] : 0;
    return NULL;
}

/* The first n axes of an operand, which are broadcast, are the last of the loops 1 to rank. */
static void lead(Find *f, uint32_t i, int n, int rank)
{
    for (int k = 0; k < n; k++)
        f->l->loop[i].of[k] = rank - n + k + 1;
}

/* Loops 1 to rank, which are the result's first axes too. */
static void begin(Find *f, int rank)
{
    f->l->n = (uint32_t)rank;
    for (f->l->rank = 0; f->l->rank < rank; f->l->rank++)
        f->l->out[f->l->rank] = f->l->rank + 1;
}

static const char *elementwise(Find *f)
{
    uint32_t n = 0, *present = arena_array(f->c->a, uint32_t, f->n->n_input + 1);
    int rank = 0;
    for (uint32_t i = 0; i < f->n->n_input; i++)
        if (*check_text(f->n->input[i]))
            present[n++] = i;
    if (!take(f, n, present))
        return no_shape;
    for (uint32_t i = 0; i < n; i++)
        rank = f->size[i].rank > rank ? f->size[i].rank : rank;
    for (uint32_t i = 0; i < n; i++)
        lead(f, i, f->size[i].rank, rank);
    begin(f, rank);
    return settle(f);
}

/* ---- products ---- */

/* Of [..., M, K] and [..., K, N]; a or b may be a vector of K. */
static const char *product(Find *f, uint32_t a, uint32_t b)
{
    Loops *l = f->l;
    if (f->n->n_input <= b || !take(f, 2, (const uint32_t[]){a, b}))
        return no_shape;
    const int ra = f->size[0].rank, rb = f->size[1].rank;
    const int lead_a = ra > 1 ? ra - 2 : 0, lead_b = rb > 1 ? rb - 2 : 0,
              rank = lead_a > lead_b ? lead_a : lead_b;
    if (ra < 1 || rb < 1)
        return no_shape;
    begin(f, rank);
    lead(f, 0, lead_a, rank);
    lead(f, 1, lead_b, rank);
    l->n += 3; /* M, K, N */
    l->loop[0].of[ra - 1] = l->loop[1].of[lead_b] = rank + 2;
    if (ra > 1)
        l->loop[0].of[ra - 2] = l->out[l->rank++] = rank + 1;
    if (rb > 1)
        l->loop[1].of[rb - 1] = l->out[l->rank++] = rank + 3;
    return settle(f);
}

/* Both perhaps transposed, and C, which is broadcast to the result. */
static const char *gemm(Find *f)
{
    enum { M = 1, N, K };
    const bool add = f->n->n_input > 2 && *check_text(f->n->input[2]);
    if (f->n->n_input < 2 || !take(f, add ? 3 : 2, NULL) || f->size[0].rank != 2 ||
        f->size[1].rank != 2 || (add && f->size[2].rank > 2))
        return no_shape;
    const int ta = number(f, "transA", 0) != 0, tb = number(f, "transB", 0) != 0;
    AxisLoops *of = f->l->loop;
    begin(f, 2);
    f->l->n = K;
    of[0].of[ta] = M;
    of[0].of[!ta] = of[1].of[tb] = K;
    of[1].of[!tb] = N;
    if (add)
        lead(f, 2, f->size[2].rank, N);
    return settle(f);
}

/* "bij,bjk->bik": a loop a letter.  What repeats a letter in one operand, or has dots, has no rule.
 */
static const char *einsum(Find *f)
{
    const Onnx__AttributeProto *a = attribute(f, "equation");
    Loops *l = f->l;
    int letter[LOOPS] = {0}, axis = 0;
    uint32_t i = 0;
    bool out = false;
    if (!a || !take(f, (uint32_t)f->n->n_input, NULL))
        return a ? no_shape : no_rule;
    for (size_t k = 0; k < a->s.len; k++) {
        const int c = a->s.data[k];
        if (c == ' ')
            continue;
        if (c == '-' || c == ',') {
            out = c == '-';
            k += out; /* -> */
            if (i == l->operands || axis != f->size[i].rank || (!out && i + 1 == l->operands))
                return no_rule;
            i++;
            axis = 0;
            continue;
        }
        if (c == '.' || c >= LOOPS || (out ? l->rank == MAX_RANK : axis >= f->size[i].rank))
            return no_rule;
        if (!letter[c] && !out)
            letter[c] = (int)++l->n;
        for (int b = 0; b < axis && !out; b++)
            if (l->loop[i].of[b] == letter[c])
                return no_rule;
        *(out ? &l->out[l->rank++] : &l->loop[i].of[axis++]) = letter[c];
    }
    return out && i == l->operands ? settle(f) : no_rule;
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
    return settle(f);
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

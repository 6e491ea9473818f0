/*
 * packed.c - the projections of nn.MultiheadAttention, of which folding left the parts.  In: nodes
 * of TorchScript's exporter, an initializer for each part.  Out: the module's parameters, of which
 * the parts are made.
 *
 * in_proj_weight and in_proj_bias have the rows of all three projections.  Where queries, keys and
 * values are not one tensor, F.multi_head_attention_forward takes them apart, into E and 2 E rows
 * or three times E, in this order; folding leaves the parts, transposed, without a name
 * ("onnx::MatMul_150").  The name of out_proj, which the same call of the module reads, says whose
 * they are.  If keys or values have other features, there are q_proj_weight, k_proj_weight and
 * v_proj_weight instead.  A second call of the module reads the same parts: its parameters are
 * those of the first.
 */
#include <stdlib.h>
#include <string.h>

#include "fx.h"

enum { MOST = 3 };

/* A product with a part, and the sum of its result and a part of the bias, or NULL. */
typedef struct {
    RawNode *product, *sum;
    uint32_t addend; /* which operand of the sum */
} Part;

typedef struct {
    const char *module; /* "layers.0.self_attn" */
    int64_t features;   /* E */
    Part part[MOST];
    int n, n_biased;
} Packed;

/* An array that folding made, under its name, as it is or as the Identity of an equal one. */
static RawTensor array_of(const Params *p, const char *name)
{
    uint32_t init = strmap_get(&p->m->init_index, name);
    init = init == NONE ? strmap_get(&p->renamed.copied, name) : init;
    RawTensor t = init == NONE ? (RawTensor){0} : p->m->init.at[init];
    t.name = name;
    return t;
}

static bool is_part(const Params *p, const RawNode *n, uint32_t input, int rank)
{
    const RawTensor t = array_of(p, n->in[input]);
    return t.bytes.at && t.shape.rank == rank && param_is_folded(p, &t) && !param_is_used(n, input);
}

static RawTensor weight_of(const Params *p, const Part *part)
{
    return array_of(p, part->product->in[1]);
}

static RawTensor bias_of(const Params *p, const Part *part)
{
    return array_of(p, part->sum->in[part->addend]);
}

/* The module whose out_proj the node reads, in the scope of that module. */
static void find_module(const Params *p, const RawNode *n, Packed *k)
{
    static const char end[] = ".out_proj.weight";
    for (uint32_t j = 0; j < n->nin; j++) {
        size_t size = strlen(n->in[j]), scope = strlen(n->scope);
        const RawTensor t = array_of(p, n->in[j]);
        if (!t.bytes.at || t.shape.rank != 2 || size < strlen(end) ||
            strcmp(n->in[j] + size - strlen(end), end))
            continue;
        size -= strlen(end);
        if (scope > size || strncmp(n->in[j] + size - scope, n->scope, scope) ||
            (scope < size && n->in[j][size - scope - 1] != '.'))
            continue;
        k->module = arena_printf(p->m->arena, "%.*s", (int)size, n->in[j]);
        k->features = t.shape.d[0];
    }
}

static void find_sum(const Params *p, RawNode *n, Packed *k)
{
    for (uint32_t j = 0; j < 2 && n->nin == 2 && !strcmp(n->op_type, "Add"); j++)
        for (int i = 0; i < k->n; i++)
            if (!strcmp(n->in[1 - j], k->part[i].product->out[0]) && is_part(p, n, j, 1) &&
                !k->part[i].sum) {
                k->part[i].sum = n;
                k->part[i].addend = j;
                k->n_biased++;
            }
}

/* The parts that nodes of this call read, in order; false: they are of nothing that is known. */
static bool collect(const Params *p, const RawNodes *list, uint32_t from, Packed *k)
{
    const RawNode *first = list->at[from];
    *k = (Packed){0};
    for (uint32_t i = from; i < list->n; i++) {
        RawNode *n = list->at[i];
        if (n->dead || n->call != first->call || strcmp(n->scope, first->scope) != 0)
            continue;
        find_module(p, n, k);
        find_sum(p, n, k);
        if (n->nin != 2 || strcmp(n->op_type, "MatMul") != 0 || !is_part(p, n, 1, 2))
            continue;
        if (k->n == MOST)
            return false;
        k->part[k->n++].product = n;
    }
    return k->module && k->n > 1 && (k->n_biased == 0 || k->n_biased == k->n);
}

/* Is it behind this one in the exporter's numbers?  Another tool may have moved the nodes. */
static bool is_behind(const Part *part, const Part *before)
{
    const char *x = strrchr(part->product->in[1], '_'), *y = strrchr(before->product->in[1], '_');
    return x && y && strtoul(x + 1, NULL, 10) > strtoul(y + 1, NULL, 10);
}

/* Whether the parts are those of in_proj_weight (packed), or one each of three weights. */
static bool fits(const Params *p, const Packed *k, bool *packed)
{
    int64_t e = k->features;
    const RawTensor first = weight_of(p, &k->part[0]);
    if (e < 1 || e > INT32_MAX)
        return false;
    *packed = true;
    for (int i = 0; i < k->n; i++) {
        const RawTensor t = weight_of(p, &k->part[i]);
        *packed = *packed && t.shape.d[0] == e;
        if (t.shape.d[1] != (i && k->n == 2 ? 2 * e : e) || t.dtype != first.dtype ||
            (i && !is_behind(&k->part[i], &k->part[i - 1])))
            return false;
        if (k->n_biased && (bias_of(p, &k->part[i]).shape.d[0] != t.shape.d[1] ||
                            bias_of(p, &k->part[i]).dtype != bias_of(p, &k->part[0]).dtype))
            return false;
    }
    return first.shape.d[0] == e && (*packed || k->n == 3);
}

/* What the module has under this name: the rows of the parts, one behind another; cols 0: of a
 * vector. */
static RawTensor joined(const Params *p, const Packed *k, const char *end, int64_t cols)
{
    Arena *a = p->m->arena;
    const RawTensor first = cols ? weight_of(p, &k->part[0]) : bias_of(p, &k->part[0]);
    size_t size = dtype_size(first.dtype), row = (size_t)(cols ? cols : 1) * size, at = 0;
    uint8_t *to = arena_alloc(a, 3 * (size_t)k->features * row);
    for (int i = 0; i < k->n; i++) {
        const RawTensor t = cols ? weight_of(p, &k->part[i]) : bias_of(p, &k->part[i]);
        size_t rows = (size_t)t.shape.d[t.shape.rank - 1];
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < row / size; c++, at += size)
                memcpy(to + at, t.bytes.at + (c * rows + r) * size, size);
    }
    return (RawTensor){
        .name = arena_printf(a, "%s.%s", k->module, end),
        .dtype = first.dtype,
        .shape = cols ? shape_of(2, 3 * k->features, cols) : shape_of(1, 3 * k->features),
        .bytes = {.at = to, .length = at, .file = first.bytes.file, .converted = true}};
}

/* A weight of its own, which the file holds transposed. */
static RawTensor own(const Params *p, const Packed *k, int i)
{
    RawTensor t = weight_of(p, &k->part[i]);
    t.name = arena_printf(p->m->arena, "%s.%c_proj_weight", k->module, "qkv"[i]);
    t.shape = shape_of(2, t.shape.d[1], t.shape.d[0]);
    return t;
}

/* Is no parameter called so, or one of these numbers, which another call of the module reads? */
static bool is_free(const Params *p, const RawTensor *t)
{
    uint32_t id = strmap_get(&p->by_name, t->name);
    if (id == NONE)
        return true;
    const Param *x = &p->g->param.at[id];
    RawTensor known = {.dtype = x->dtype, .shape = x->shape, .bytes = x->bytes};
    if (x->transposed)
        known.shape = shape_of(2, x->shape.d[1], x->shape.d[0]);
    return shape_equal(&x->shape, &t->shape) && raw_same(t, &known) != NOT_SAME;
}

static uint32_t put(Params *p, const RawTensor *t)
{
    uint32_t id = strmap_get(&p->by_name, t->name);
    if (id != NONE)
        return id;
    vec_push(p->m->arena, &p->lost.inferred, t->name);
    return param_put(p, t->name, t->dtype, &t->shape, t->bytes);
}

static void use_rows(Params *p, RawNode *n, uint32_t input, uint32_t id, int64_t from, int64_t rows)
{
    Arena *a = p->m->arena;
    Recipe *r = recipe_of(a, id);
    Shape s = p->g->param.at[id].shape;
    s.d[0] = rows;
    recipe_slice(a, r, s.rank, (int64_t[MAX_RANK]){from}, s.d);
    if (s.rank == 2)
        recipe_swap(a, r);
    param_use_made(p, n, input, r);
}

static void use_own(Params *p, RawNode *n, const char *name)
{
    uint32_t id = strmap_get(&p->by_name, name), init = strmap_get(&p->m->init_index, n->in[1]);
    init = init == NONE ? strmap_get(&p->renamed.copied, n->in[1]) : init;
    param_use(p, n, 1, id == NONE ? param_new(p, name, init, true, true, false) : id, true);
}

static void take(Params *p, const Packed *k, bool packed)
{
    RawTensor weight[MOST], bias;
    int64_t from = 0, rows;
    for (int i = 0; i < (packed ? 1 : k->n); i++) {
        weight[i] = packed ? joined(p, k, "in_proj_weight", k->features) : own(p, k, i);
        if (!is_free(p, &weight[i]))
            return;
    }
    if (k->n_biased && (bias = joined(p, k, "in_proj_bias", 0), !is_free(p, &bias)))
        return;
    for (int i = 0; i < k->n; i++, from += rows) {
        const Part *part = &k->part[i];
        rows = weight_of(p, part).shape.d[1];
        if (packed)
            use_rows(p, part->product, 1, put(p, &weight[0]), from, rows);
        else
            use_own(p, part->product, weight[i].name);
        if (k->n_biased)
            use_rows(p, part->sum, part->addend, put(p, &bias), from, rows);
    }
}

void param_packed(Params *p, const RawNodes *list)
{
    Packed k;
    bool packed;
    for (uint32_t i = 0; i < list->n && p->m->from_pytorch; i++) {
        const RawNode *n = list->at[i];
        if (!n->dead && *n->scope && n->nin == 2 && !strcmp(n->op_type, "MatMul") &&
            is_part(p, n, 1, 2) && collect(p, list, i, &k) && fits(p, &k, &packed))
            take(p, &k, packed);
    }
}

/*
 * params.c - the parameters of a model: a Param is made and named, --train and --freeze are heeded,
 * an operand is said to be made of it; its bytes out of the mapped file, in PyTorch's shape. Who
 * decides which: assign.c.
 */
#include <ctype.h>
#include <fnmatch.h>
#include <string.h>

#include "params.h"

/* ---- names ---- */

static bool starts_with(const char *s, const char *start)
{
    return !strncmp(s, start, strlen(start));
}

static bool begins_numbered(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return !strncmp(name, prefix, n) && isdigit((unsigned char)name[n]);
}

/* "/decoder/Transpose_output_0", "Constant_28_output_0"; no member called out_output_scale. */
static bool is_output(const char *name)
{
    const char *at = strstr(name, "_output_");
    return at && isdigit((unsigned char)at[strlen("_output_")]) &&
           (*name == '/' || !strchr(name, '.'));
}

bool param_is_made_up(const char *name)
{
    bool member = strchr(name, '.') != NULL;
    return !name[strspn(name, "0123456789")] || strstr(name, "::") || is_output(name) ||
           strstr(name, "/Constant") || begins_numbered(name, "val_") ||
           begins_numbered(name, "_val_") || begins_numbered(name, "tmp_") ||
           (!member && (starts_with(name, "const_") || starts_with(name, "Constant") ||
                        starts_with(name, "_to_copy")));
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

bool param_is_leaf_name(const char *name)
{
    static const char *const end[] = {"weight",    "bias",           "kernel",
                                      "gamma",     "beta",           "embeddings",
                                      "embedding", "ReadVariableOp", "ReadVariableOp:0",
                                      "kernel:0",  "bias:0",         "gamma:0",
                                      "beta:0",    "embeddings:0",   "ReadVariableOp/resource:0"};
    for (size_t i = 0; i < sizeof end / sizeof *end; i++)
        if (ends_with(name, end[i]))
            return !param_is_made_up(name);
    return false;
}

bool param_is_named(const Params *p, const char *name)
{
    return p->m->from_pytorch ? !param_is_made_up(name) : param_is_leaf_name(name);
}

const RawTensor *param_array(const Params *p, const char *name)
{
    uint32_t copied = strmap_get(&p->copied, name);
    return copied == NONE ? raw_array(p->m, name) : &p->m->init.at[copied];
}

static bool matches(const char *const *pattern, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (!fnmatch(pattern[i], name, 0))
            return true;
    return false;
}

bool param_thawed(const Params *p, const char *name)
{
    return matches(p->opt->train.at, p->opt->train.n, name);
}

bool param_frozen(const Params *p, const char *name)
{
    return !param_thawed(p, name) && (matches(p->opt->freeze.at, p->opt->freeze.n, name) ||
                                      strmap_get(&p->frozen, name) != NONE);
}

/* ---- making ---- */

static const char *unique_name(Params *p, const char *name)
{
    for (uint32_t i = 0; i < p->g->param.n; i++)
        if (!strcmp(p->g->param.at[i].name, name))
            return arena_printf(p->m->arena, "model%u.%s", p->file, name);
    return name;
}

static uint32_t add(Params *p, Param x, bool trainable)
{
    *strmap_at(&p->by_name, x.name) = p->g->param.n;
    if (p->file > 0)
        x.name = unique_name(p, x.name);
    trainable = (trainable || param_thawed(p, x.name)) && !param_frozen(p, x.name);
    x.trainable = trainable && !x.stat;
    uint32_t id = p->g->param.n;
    *strmap_at(&p->by_name, x.name) = id;
    graph_param(p->g, x);
    return id;
}

uint32_t param_new(Params *p, const char *name, uint32_t init, bool transposed, bool trainable,
                   bool stat)
{
    const RawTensor *t = &p->m->init.at[init];
    Where w = {p->m->path, "parameter", NONE, name, NULL, -1};
    if (t->dtype != DT_F32 && t->dtype != DT_F64) {
        diag_hint("export the model in float32");
        diag_fatal(EXIT_MODEL, w, "its type is %s; parameters must be f32, f64, f16 or bf16",
                   dtype_name(t->dtype));
    }
    Param x = {.name = name,
               .initializer = t->name,
               .dtype = t->dtype,
               .shape = t->shape,
               .transposed = transposed,
               .stat = stat,
               .bytes = t->bytes};
    if (transposed) {
        x.shape.d[0] = t->shape.d[1];
        x.shape.d[1] = t->shape.d[0];
    }
    return add(p, x, trainable);
}

void param_squeeze(Params *p, uint32_t id)
{
    Param *x = &p->g->param.at[id];
    x->shape = shape_of(1, shape_elements(&x->shape));
    p->g->value.at[x->value].shape = x->shape;
}

uint32_t param_put(Params *p, const char *name, Dtype type, const Shape *s, Payload bytes)
{
    return add(p, (Param){.name = name, .dtype = type, .shape = *s, .bytes = bytes}, true);
}

uint32_t param_zero(Params *p, const char *name, Dtype type, const Shape *s)
{
    return param_put(p, name, type, s, (Payload){0});
}

void param_use_made(Params *p, RawNode *n, uint32_t input, const Recipe *made)
{
    if (!n->made)
        n->made = arena_array(p->m->arena, const Recipe *, n->nin);
    n->made[input] = made;
}

/* The dims of 1 that the file adds to a vector are made again. */
void param_use(Params *p, RawNode *n, uint32_t input, uint32_t param, bool flip)
{
    Arena *a = p->m->arena;
    Recipe *r = recipe_of(a, param);
    Shape s = p->g->param.at[param].shape;
    const RawTensor *t = raw_array(p->m, n->in[input]);
    if (flip) {
        recipe_swap(a, r);
        s = shape_of(2, s.d[1], s.d[0]);
    }
    if (t && !shape_equal(&s, &t->shape))
        recipe_reshape(a, r, &t->shape);
    param_use_made(p, n, input, r);
}

/* ---- roles ---- */

int param_role(const RawNode *n, uint32_t input)
{
    switch (*n->domain ? '.' : op_slot("", n->op_type, input)) {
    case 'w':
    case 's': return ROLE_WEIGHT;
    case 'b': return ROLE_BIAS;
    case 'm': return ROLE_MEAN;
    case 'v': return ROLE_VAR;
    default: return ROLE_ANY;
    }
}

/* ---- bytes ---- */

size_t param_size(const Param *p)
{
    return (size_t)shape_elements(&p->shape) * dtype_size(p->dtype);
}

/* Tiles keep both sides of the exchange in cache. */
void param_turn(uint8_t *out, const uint8_t *in, int64_t rows, int64_t cols, size_t size)
{
    enum { TILE = 32 };
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)
        for (int64_t c0 = 0; c0 < cols; c0 += TILE)
            for (int64_t r = r0; r < rows && r < r0 + TILE; r++)
                for (int64_t c = c0; c < cols && c < c0 + TILE; c++)
                    memcpy(out + (size_t)(c * rows + r) * size, in + (size_t)(r * cols + c) * size,
                           size);
}

void param_bytes(const Param *p, void *out)
{
    size_t n = param_size(p);
    if (!p->bytes.at) {
        memset(out, 0, n);
        return;
    }
    INSIST(p->bytes.length == n);
    if (p->transposed && p->shape.rank == 2)
        param_turn(out, p->bytes.at, p->shape.d[1], p->shape.d[0], dtype_size(p->dtype));
    else
        memcpy(out, p->bytes.at, n);
}

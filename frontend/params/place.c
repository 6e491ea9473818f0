/*
 * place.c - what TorchScript exports say about parameters besides their names: where they
 * stand.  In: the nodes with their scopes.  Out: the PyTorch name of a weight that constant folding
 * renamed, and which floats are buffers.
 *
 * A folded weight ("onnx::MatMul_355") is called after the bias that is added to its product, else,
 * or where its module is inside of the bias's, after its node's module and slot.  Scopes lack the
 * names of modules that are never called ("h.6" for "transformer.h.6"): the weights that kept their
 * names tell which are missing.  In a leaf module that normalizes, a folded factor and a folded
 * addend are weight and bias, seen through a view (GroupNorm's [C, 1, 1]).
 */
#include <math.h>
#include <string.h>

#include "fx.h"

/* What a module's own nodes do. */
typedef struct { bool norm, product, inner; uint32_t muls, adds; } Module;

struct Places {
    /* scope -> Module; beginning of a scope -> its path; product -> name of its addend */
    StrMap module, before, bias;
    VEC(Module) at;
    VEC(const char *) prefix, addend;
    /* initializers that are buffers; of which only their names, or such of others, say so */
    StrMap buffer, doubtful;
};

static const char *leaf_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(name, *list))
            return true;
    return false;
}

static Module *module_at(Params *p, const char *scope)
{
    uint32_t *slot = strmap_at(&p->places->module, scope);
    if (*slot == NONE) {
        *slot = p->places->at.n;
        vec_push(p->m->arena, &p->places->at, (Module){0});
    }
    return &p->places->at.at[*slot];
}

/* The floats of an operand that folding made: an initializer, or the Identity of one; NULL when it
 * is no such thing. */
static const RawTensor *folded_operand(const Params *p, const RawNode *n, uint32_t input)
{
    uint32_t init = strmap_get(&p->m->init_index, n->in[input]);
    if (init == NONE && strstr(n->in[input], "::"))
        init = strmap_get(&p->places->buffer, n->in[input]) == NONE
                   ? strmap_get(&p->copied, n->in[input])
                   : NONE;
    if (init == NONE || !strstr(n->in[input], "::"))
        return NULL;
    const RawTensor *t = &p->m->init.at[init];
    return dtype_is_float(t->dtype) && t->bytes.length && shape_elements(&t->shape) > 1 ? t : NULL;
}

static bool is_vector(const Shape *s)
{
    int wide = 0;
    for (int i = 0; i < s->rank; i++)
        wide += s->d[i] > 1;
    return wide == 1;
}

static void see_node(Params *p, const RawNode *n)
{
    static const char *const norm[] = {"InstanceNormalization",
                                       "GroupNormalization",
                                       "LayerNormalization",
                                       "ReduceMean",
                                       "Sqrt",
                                       "ReduceL2",
                                       "LpNormalization",
                                       NULL};
    static const char *const product[] = {"MatMul",  "Gemm",   "Conv", "ConvTranspose",
                                          "Softmax", "Einsum", NULL};
    Arena *a = p->m->arena;
    for (char *up = arena_strdup(a, n->scope), *dot; (dot = strrchr(up, '.'));) {
        *dot = '\0';
        module_at(p, arena_strdup(a, up))->inner = true;
    }
    Module *m = module_at(p, n->scope);
    m->norm |= is_one_of(n->op_type, norm);
    m->product |= is_one_of(n->op_type, product);
    bool add = !strcmp(n->op_type, "Add"), mul = !strcmp(n->op_type, "Mul");
    for (uint32_t j = 0; (add || mul) && n->nin == 2 && j < 2; j++) {
        const RawTensor *t = folded_operand(p, n, j);
        m->muls += mul && t && is_vector(&t->shape);
        m->adds += add && t && is_vector(&t->shape);
        size_t k = strlen(n->in[j]);
        bool bias = add && k > 5 && !strcmp(n->in[j] + k - 4, "bias") &&
                    (n->in[j][k - 5] == '.' || n->in[j][k - 5] == '_');
        if (bias && (strmap_get(&p->m->init_index, n->in[j]) != NONE ||
                     strmap_get(&p->copied, n->in[j]) != NONE)) {
            *strmap_at(&p->places->bias, n->in[1 - j]) = p->places->addend.n;
            vec_push(a, &p->places->addend, n->in[j]);
        }
    }
}

/* What is seen of a path by a scope that lacks modules of it; seen in another way: none is
 * known. */
static void note_path(Params *p, const char *scope, const char *path)
{
    uint32_t *slot = strmap_at(&p->places->before, scope);
    if (*slot == NONE) {
        *slot = p->places->prefix.n;
        vec_push(p->m->arena, &p->places->prefix, path);
    } else if (strcmp(p->places->prefix.at[*slot], path)) {
        p->places->prefix.at[*slot] = "";
    }
}

/* How long the modules are that two paths begin with, the dot behind them included. */
static size_t common_modules(const char *a, const char *b)
{
    size_t n = 0, whole = 0;
    for (; a[n] && a[n] == b[n]; n++)
        if (a[n] == '.')
            whole = n + 1;
    return whole;
}

/* "transformer.h.6.ln_1.weight" read in scope "h.6.ln_1": "h" is "transformer.h"; where another
 * module wraps the model, "m.h" is "m.transformer.h". */
static void see_prefix(Params *p, const RawNode *n, const char *name)
{
    Arena *a = p->m->arena;
    const char *dot = strrchr(name, '.'), *scope = n->scope;
    const char *path = arena_strndup(a, name, dot ? (size_t)(dot - name) : 0);
    if (!*scope || strlen(path) < strlen(scope))
        return;
    const char *last = path + strlen(path) - strlen(scope);
    bool ends = !strcmp(last, scope) && (last == path || last[-1] == '.');
    size_t begin = ends ? 0 : common_modules(path, scope);
    last += begin;
    if (!ends && (begin == 0 || strcmp(last, scope + begin) || last[-1] != '.'))
        return;
    for (size_t i = begin; last == path && scope[i]; i++)
        if (scope[i] == '.')
            note_path(p, arena_strndup(a, scope, i), arena_strndup(a, scope, i));
    size_t head = begin + strcspn(scope + begin, ".");
    note_path(p, arena_strndup(a, scope, head),
              arena_strndup(a, path, (size_t)(last - path) + head - begin));
}

/* ---- buffers ---- */

/* Row 0 is sin 0 and cos 0, row 1 lies on the unit circle: a table of sines that no one learned. */
static bool is_sinusoidal(const RawTensor *t)
{
    int r = t->shape.rank;
    if (t->dtype != DT_F32 || r < 2 || t->shape.d[r - 2] < 2 || t->shape.d[r - 1] < 4 ||
        t->shape.d[r - 1] % 2)
        return false;
    size_t d = (size_t)t->shape.d[r - 1], zeros = 0, ones = 0;
    double square = 0;
    for (size_t i = 0; i < 2 * d; i++) {
        float x;
        memcpy(&x, t->bytes.at + i * sizeof x, sizeof x);
        zeros += i < d && x == 0;
        ones += i < d && x == 1;
        square += i < d ? 0 : (double)x * (double)x;
    }
    return zeros == d / 2 && ones == d / 2 && fabs(square - (double)d / 2) < 1e-3 * (double)d;
}

static const char *module_of(Arena *a, const char *name)
{
    return arena_strndup(a, name, (size_t)(leaf_of(name) - name));
}

/* The cosines and sines of the same angles, one after the other in a module: a rotary embedding's
 * tables.  Ones and zeros (a norm's scale and shift) say nothing. */
static bool is_rotation(Arena *a, const RawTensor *t, const RawTensor *next)
{
    size_t n = t->bytes.length / sizeof(float), turned = 0;
    if (t->dtype != DT_F32 || next->dtype != DT_F32 || n < 4 ||
        t->bytes.length != next->bytes.length || !shape_equal(&t->shape, &next->shape) ||
        strcmp(module_of(a, t->name), module_of(a, next->name)))
        return false;
    for (size_t i = 0; i < n; i++) {
        float c, s;
        memcpy(&c, t->bytes.at + i * sizeof c, sizeof c);
        memcpy(&s, next->bytes.at + i * sizeof s, sizeof s);
        if (!(fabs((double)c * (double)c + (double)s * (double)s - 1) < 1e-5))
            return false;
        turned += fabs((double)c) > 1e-3 && fabs((double)s) > 1e-3;
    }
    return turned > 0;
}

bool param_is_buffer_name(const char *name)
{
    static const char *const buffer[] = {"inv_freq",
                                         "original_inv_freq",
                                         "freqs",
                                         "running_mean",
                                         "running_var",
                                         "num_batches_tracked",
                                         "position_ids",
                                         "masked_bias",
                                         "attn_mask",
                                         "causal_mask",
                                         "cos_cached",
                                         "sin_cached",
                                         "cos_cache",
                                         "sin_cache",
                                         "freqs_cos",
                                         "freqs_sin",
                                         "freqs_cis",
                                         "relative_position_index",
                                         "relative_coords_table",
                                         "pe",
                                         "anchors",
                                         "mask",
                                         "tril",
                                         "triu",
                                         "alibi",
                                         "slopes",
                                         "alibi_slopes",
                                         "final_logits_bias",
                                         "pixel_mean",
                                         "pixel_std",
                                         "image_mean",
                                         "image_std",
                                         NULL};
    return is_one_of(leaf_of(name), buffer);
}

/* Three numbers at most, as masks have, or one after the other, as frequencies and slopes are. */
static bool is_regular(const RawTensor *t)
{
    double seen[3];
    int64_t n = shape_elements(&t->shape), rising = 0, falling = 0, k = 0;
    bool few = true;
    for (int64_t i = 0; i < n; i++) {
        double v = raw_number(t, i);
        rising += i > 0 && v > raw_number(t, i - 1);
        falling += i > 0 && v < raw_number(t, i - 1);
        int64_t at = 0;
        while (at < k && seen[at] != v)
            at++;
        few = few && (at < k || k < 3);
        if (at == k && k < 3)
            seen[k++] = v;
    }
    return few || rising == n - 1 || falling == n - 1;
}

/* So are parameters called: learned positions, frequencies, masks. */
static bool is_called_either(const char *name)
{
    static const char *const either[] = {"freqs", "pe",     "anchors", "mask", "tril",
                                         "triu",  "slopes", NULL};
    return is_one_of(leaf_of(name), either);
}

static bool is_plain_buffer(const RawTensor *t)
{
    return !dtype_is_float(t->dtype) || !t->bytes.length || is_sinusoidal(t) || is_regular(t);
}

/* A module's members are written parameters first: what comes after a buffer is one too.  Whole
 * numbers of a byte are weights. */
static void find_buffers(Params *p)
{
    StrMap begun = {.arena = p->m->arena}, perhaps = {.arena = p->m->arena};
    for (uint32_t i = 0; p->m->from_pytorch && i < p->m->init.n; i++) {
        const RawTensor *t = &p->m->init.at[i];
        const char *leaf = leaf_of(t->name);
        if (param_is_made_up(t->name))
            continue;
        const char *module = module_of(p->m->arena, t->name);
        bool rotates =
            i + 1 < p->m->init.n && is_rotation(p->m->arena, t, &p->m->init.at[i + 1]);
        bool either = is_called_either(t->name);
        bool plain = !either || rotates || is_plain_buffer(t); /* of others no number is read */
        bool sure = (!dtype_is_float(t->dtype) && dtype_bits(t->dtype) > 8) || rotates ||
                    (param_is_buffer_name(t->name) && strcmp(leaf, "pe") && strcmp(leaf, "mask"));
        bool behind = strmap_get(&perhaps, module) != NONE;
        if (rotates || behind || strmap_get(&begun, module) != NONE ||
            (t->bytes.length && is_sinusoidal(t)))
            *strmap_at(&p->places->buffer, t->name) = i;
        bool placed = behind && dtype_is_float(t->dtype) && strmap_get(&begun, module) == NONE;
        if (either ? !plain : placed)
            *strmap_at(&p->places->doubtful, t->name) = i;
        if (sure && plain)
            *strmap_at(either ? &perhaps : &begun, module) = i;
    }
}

/* What data are normalised with, and what weighs the classes of a loss: a member of PyTorch's examples
 * and of its losses, and no module's parameter. */
static bool is_statistic_name(const char *name)
{
    static const char *const statistic[] = {"mean", "std", "pos_weight", NULL};
    return is_one_of(leaf_of(name), statistic);
}

/* Taken for a buffer by its name, where its numbers are not those of one, or by its place behind
 * what is so called. */
bool param_is_doubtful_buffer(const Params *p, const char *name)
{
    return is_statistic_name(name) || strmap_get(&p->places->doubtful, name) != NONE;
}

bool param_is_buffer(const Params *p, const char *name)
{
    return param_is_buffer_name(name) || is_statistic_name(name) ||
           strmap_get(&p->places->buffer, name) != NONE;
}

/* ---- the whole ---- */

void param_place(Params *p, const RawNodes *list)
{
    Arena *a = p->m->arena;
    p->places = arena_new_of(a, Places);
    p->places->module.arena = p->places->before.arena = p->places->bias.arena =
        p->places->buffer.arena = p->places->doubtful.arena = a;
    p->copied.arena = a;
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        uint32_t init = n->nin == 1 ? strmap_get(&p->m->init_index, n->in[0]) : NONE;
        if (!n->dead && init != NONE && n->nout == 1 && !strcmp(n->op_type, "Identity"))
            *strmap_at(&p->copied, n->out[0]) = init;
    }
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        if (n->dead)
            continue;
        see_node(p, n);
        for (uint32_t j = 0; j < n->nin; j++)
            if (strcmp(n->op_type, "Identity") && !param_is_made_up(n->in[j]) &&
                strmap_get(&p->m->init_index, n->in[j]) != NONE)
                see_prefix(p, n, n->in[j]);
    }
    find_buffers(p);
}

int param_place_role(const Params *p, const RawNode *n, uint32_t input)
{
    int role = param_role(n, input);
    bool add = !strcmp(n->op_type, "Add"), mul = !strcmp(n->op_type, "Mul");
    uint32_t at = strmap_get(&p->places->module, n->scope);
    if (role != ROLE_ANY || (!add && !mul) || at == NONE || !*n->scope)
        return role;
    const Module *m = &p->places->at.at[at];
    const RawTensor *t = folded_operand(p, n, input);
    bool one = add ? m->adds == 1 : m->muls == 1;
    if (!t || !is_vector(&t->shape) || !m->norm || m->product || m->inner || !one)
        return ROLE_ANY;
    return add ? ROLE_BIAS : ROLE_WEIGHT;
}

bool param_is_squeezed(const RawNode *n, const RawTensor *t)
{
    static const char *const op[] = {"Mul", "Add", "PRelu", NULL};
    int wide = 0;
    for (int i = 0; i < t->shape.rank; i++)
        wide += t->shape.d[i] > 1;
    return is_one_of(n->op_type, op) && t->shape.rank > 1 && wide <= 1;
}

const char *param_place_module(const Params *p, const char *scope)
{
    Arena *a = p->m->arena;
    for (size_t i = 1; *scope && i <= strlen(scope); i++) {
        uint32_t at = scope[i] && scope[i] != '.'
                          ? NONE
                          : strmap_get(&p->places->before, arena_strndup(a, scope, i));
        const char *path = at == NONE ? "" : p->places->prefix.at[at];
        if (*path && (strlen(path) != i || strncmp(path, scope, i)))
            return arena_printf(a, "%s%s", path, scope + i);
    }
    return scope;
}

/* A head's bias may be its module's too: "lm_head.bias" added in "lm_head.decoder", which has the
 * weight. */
static bool is_inside(const char *path, const char *name)
{
    size_t module = (size_t)(leaf_of(name) - name);
    return module > 0 && !strncmp(path, name, module);
}

const char *param_place_name(const Params *p, const RawNode *n, uint32_t input)
{
    static const char *const leaf[] = {NULL, "weight", "bias", "running_mean", "running_var"};
    int role = param_place_role(p, n, input);
    Arena *a = p->m->arena;
    uint32_t bias = role == ROLE_WEIGHT && n->nout ? strmap_get(&p->places->bias, n->out[0]) : NONE;
    const char *own = param_place_module(p, n->scope);
    if (bias != NONE && !is_inside(own, p->places->addend.at[bias])) {
        const char *name = p->places->addend.at[bias];
        return arena_printf(a, "%.*sweight", (int)strlen(name) - 4, name);
    }
    /* the weight of a module that convolves is no norm's, such as the one its weight is put
     * through */
    uint32_t at = strmap_get(&p->places->module, n->scope);
    bool norms = !strcmp(n->op_type, "BatchNormalization") ||
                 !strcmp(n->op_type, "InstanceNormalization");
    if (!*n->scope || !leaf[role] || (norms && at != NONE && p->places->at.at[at].product))
        return NULL;
    return arena_printf(a, "%s.%s", own, leaf[role]);
}

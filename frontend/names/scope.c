/*
 * scope.c - the module path of every node.  In: node names, value names and metadata as the
 * exporters write them.  Out: RawNode.scope ("transformer.h.0.attn"; "" = the model itself) and
 * RawNode.call.
 *
 *   torch.onnx, TorchScript   /model/layers.0/mlp/mlp.0/MatMul      components between slashes, the
 * last is the op; one that starts with its parent and a dot extends it torch.onnx, dynamo ['',
 * 'blocks.2', 'blocks.2.mlp', 'linear_8']   the last entry but one tf2onnx
 * StatefulPartitionedCall/model/dense/MatMul     the head is dropped; dense_1 is a layer of its own
 * local functions           the call's scope, corrected by the initializers it takes; jax2onnx: the
 * call's name, and what stands beside calls is in no module
 *
 * Nodes without a scope take their producer's, else their consumer's; Constants their consumer's.
 */
#include <stdlib.h>
#include <string.h>

#include "names.h"

enum { LONGEST = 1024 };

/* "act_1" -> 3 and k = 1; 0 when there is no such suffix. */
static size_t call_suffix(const char *part, size_t n, uint32_t *k)
{
    size_t i = n;
    while (i > 0 && part[i - 1] >= '0' && part[i - 1] <= '9')
        i--;
    if (i == n || i < 2 || part[i - 1] != '_' || n - i > 6 || part[i] == '0')
        return 0;
    *k = (uint32_t)strtoul(part + i, NULL, 10);
    return i - 1;
}

static bool is_call_head(const char *part, size_t n)
{
    return (n >= 23 && !memcmp(part, "StatefulPartitionedCall", 23)) ||
           (n >= 15 && !memcmp(part, "PartitionedCall", 15));
}

/* Slashes to dots, without the last component. */
static const char *from_slashes(Arena *a, const char *name)
{
    char *out = arena_alloc(a, strlen(name) + 1), *o = out;
    const char *previous = NULL, *p = name;
    size_t n_previous = 0;
    for (const char *slash; (slash = strchr(p, '/')); p = slash + 1) {
        size_t n = (size_t)(slash - p);
        if (n == 0 || (!previous && is_call_head(p, n)))
            continue;
        bool extends = previous && n > n_previous + 1 && !memcmp(p, previous, n_previous) &&
                       p[n_previous] == '.';
        size_t skip = extends ? n_previous + 1 : 0;
        if (o != out)
            *o++ = '.';
        memcpy(o, p + skip, n - skip);
        o += n - skip;
        previous = p;
        n_previous = n;
    }
    return out;
}

static const char *from_list(Arena *a, const char *text, uint32_t *call)
{
    const char **item;
    uint32_t n = meta_list(a, text, &item);
    if (n < 2)
        return n == 1 ? "" : NULL;
    char *out = arena_strdup(a, item[n - 2]), *o = out;
    for (const char *p = out; *p;) { /* "blocks@1.act": the second call of blocks */
        char *end;
        if (*p == '@' && p[1] >= '0' && p[1] <= '9') {
            *call = (uint32_t)strtoul(p + 1, &end, 10);
            p = end;
        } else {
            *o++ = *p++;
        }
    }
    *o = '\0';
    return out;
}

const char *scope_own(Arena *a, const char *name, const char *value, const char *name_scopes,
                      uint32_t *call)
{
    *call = 0;
    const char *scope = name_scopes ? from_list(a, name_scopes, call) : NULL;
    if (scope)
        return scope;
    const char *text = name && *name ? name : value;
    if (!text || strlen(text) > LONGEST || !strchr(text, '/'))
        return NULL;
    return from_slashes(a, text);
}

/* The longest path of whole components both share. */
static size_t common_path(const char *a, const char *b)
{
    size_t end = 0, i = 0;
    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == '.')
            end = i;
    bool whole_a = !a[i] && (!b[i] || b[i] == '.'), whole_b = !b[i] && a[i] == '.';
    return whole_a || whole_b ? i : end;
}

const char *scope_of_call(const Model *m, const char *own, uint32_t nin, const char *const *in)
{
    char *path = NULL;
    for (uint32_t i = 0; i < nin; i++) {
        const RawTensor *t = raw_array(m, in[i]);
        const char *dot = t ? strrchr(in[i], '.') : NULL;
        if (!dot || !dtype_is_float(t->dtype) || strstr(in[i], "::"))
            continue;
        if (!path)
            path = arena_strndup(m->arena, in[i], (size_t)(dot - in[i]));
        else
            path[common_path(path, in[i])] = '\0';
    }
    if (!path || !*path)
        return own;
    bool agrees = own && *own && common_path(own, path) == strlen(own);
    return agrees ? own : path;
}

/* ---- second calls: "act_1" is module "act" called again, unless a module of that name owns
 * parameters ---- */

static void collect(StrMap *seen, Arena *a, const char *scope)
{
    char *path = arena_strdup(a, scope);
    for (;;) {
        uint32_t *slot = strmap_at(seen, path);
        if (*slot != NONE)
            return;
        *slot = 1;
        char *dot = strrchr(path, '.');
        if (!dot)
            return;
        *dot = '\0';
    }
}

static const char *without_calls(const Model *m, const StrMap *seen, const char *scope,
                                 uint32_t *call)
{
    Arena *a = m->arena;
    char *out = arena_alloc(a, strlen(scope) + 1), *o = out;
    char *raw = arena_alloc(a, strlen(scope) + 1);
    for (const char *p = scope; *p;) {
        size_t n = strcspn(p, "."), keep = n, base;
        uint32_t k = 0;
        size_t end = (size_t)(p - scope) + n;
        memcpy(raw, scope, end);
        raw[end] = '\0';
        base = call_suffix(p, n, &k);
        if (base && strmap_get(&m->module, raw) == NONE) {
            raw[(size_t)(p - scope) + base] = '\0';
            if (strmap_get(seen, raw) != NONE) {
                keep = base;
                *call = k;
            }
        }
        memcpy(o, p, keep);
        o += keep;
        p += n;
        if (*p) {
            *o++ = '.';
            p++;
        }
    }
    *o = '\0';
    return out;
}

static void merge_calls(Model *m, RawNodes *list)
{
    StrMap seen = {.arena = m->arena}, done = {.arena = m->arena};
    VEC(const char *) merged = {0};
    VEC(uint32_t) number = {0};
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i]->scope)
            collect(&seen, m->arena, list->at[i]->scope);
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        if (!n->scope || n->name_scopes)
            continue;
        uint32_t *slot = strmap_at(&done, n->scope);
        if (*slot == NONE) {
            uint32_t k = 0;
            *slot = merged.n;
            vec_push(m->arena, &merged, without_calls(m, &seen, n->scope, &k));
            vec_push(m->arena, &number, k);
        }
        n->scope = merged.at[*slot];
        n->call = number.at[*slot];
    }
}

/* ---- inheritance ---- */

static void inherit(RawNode *n, const RawNode *from)
{
    n->scope = from->scope;
    n->call = from->call;
}

static void from_producers(Model *m, RawNodes *list)
{
    StrMap maker = {.arena = m->arena};
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        for (uint32_t j = 0; !n->scope && j < n->nin; j++) {
            uint32_t p = strmap_get(&maker, n->in[j]);
            if (p != NONE && list->at[p]->scope && strcmp(list->at[p]->op_type, "Constant"))
                inherit(n, list->at[p]);
        }
        for (uint32_t j = 0; j < n->nout; j++)
            if (*n->out[j])
                *strmap_at(&maker, n->out[j]) = i;
    }
}

/* Constants follow their first consumer always; other nodes when nothing else gave them a scope. */
static void from_consumers(Model *m, RawNodes *list)
{
    StrMap user = {.arena = m->arena};
    for (uint32_t i = list->n; i-- > 0;) {
        RawNode *n = list->at[i];
        bool constant = n->nin == 0 && !n->inlined && !strcmp(n->op_type, "Constant");
        for (uint32_t j = 0; (!n->scope || constant) && j < n->nout; j++) {
            uint32_t u = *n->out[j] ? strmap_get(&user, n->out[j]) : NONE;
            if (u != NONE && list->at[u]->scope) {
                inherit(n, list->at[u]);
                constant = false;
            }
        }
        for (uint32_t j = 0; j < n->nin; j++)
            if (*n->in[j])
                *strmap_at(&user, n->in[j]) = i;
    }
}

/* Where calls of functions alone name modules, the nodes beside them are the model's own. */
static void beside_calls(const Model *m, RawNodes *list)
{
    bool called = false;
    for (uint32_t i = 0; i < list->n; i++) {
        called |= list->at[i]->call_scope != NULL;
        if (m->from_pytorch || (list->at[i]->scope && !list->at[i]->inlined))
            return;
    }
    for (uint32_t i = 0; called && i < list->n; i++)
        if (!list->at[i]->inlined && strcmp(list->at[i]->op_type, "Constant"))
            list->at[i]->scope = "";
}

/* A path is components between dots, none of them empty: "./a" is in no module, "x/..y/z" in
 * "x.y". */
static const char *whole_components(Arena *a, const char *path)
{
    size_t n = strlen(path);
    if (path[0] != '.' && !strstr(path, "..") && (n == 0 || path[n - 1] != '.'))
        return path;
    char *out = arena_strdup(a, path), *o = out;
    for (const char *p = path; *p; p++)
        if (*p != '.' || (o != out && o[-1] != '.'))
            *o++ = *p;
    if (o != out && o[-1] == '.')
        o--;
    *o = '\0';
    return out;
}

void scope_assign(Model *m, RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        const char *value = n->nout ? n->out[0] : NULL;
        n->scope = n->call_scope ? n->call_scope
                                 : scope_own(m->arena, n->name, value, n->name_scopes, &n->call);
        if (n->scope)
            n->scope = whole_components(m->arena, n->scope);
    }
    beside_calls(m, list);
    if (!m->from_tensorflow)
        merge_calls(m, list);
    from_producers(m, list);
    from_consumers(m, list);
    for (uint32_t i = 0; i < list->n; i++)
        if (!list->at[i]->scope)
            list->at[i]->scope = "";
}

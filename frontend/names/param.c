/*
 * param.c - which initializers are parameters, and what they are called.  In: the nodes of a model.  Out: Params in
 * PyTorch's names and shapes; RawNode.made says which operand is made of which, .bias what to add.
 *
 * With a dynamo signature param_fx.c decides.  Without one: a float initializer that is named like a parameter,
 * or that stands where a weight stands.  Constant folding renames weights and transposes them
 * ("onnx::MatMul_355"): their names come from the node's scope and the slot, and where the folding untied a
 * head from its embedding (equal bytes) they are tied again.  An Identity of an initializer whose result
 * is named like a parameter was made because two parameters happened to be equal: they are told apart.
 */
#include <fnmatch.h>
#include <string.h>

#include "frontend/onnx/read.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static bool starts_with(const char *s, const char *start) { return !strncmp(s, start, strlen(start)); }

bool param_is_made_up(const char *name)
{
    size_t digits = strspn(name, "0123456789");
    return !name[digits] || strstr(name, "::") || starts_with(name, "val_") || starts_with(name, "_val_")
           || starts_with(name, "const_") || starts_with(name, "Constant") || strstr(name, "_output_")
           || strstr(name, "/Constant") || starts_with(name, "tmp_") || starts_with(name, "_to_copy");
}

static bool is_parameter_name(const char *name)
{
    static const char *const end[] = {"weight", "bias", "kernel", "gamma", "beta", "embeddings", "embedding",
                                      "ReadVariableOp", "ReadVariableOp:0", "kernel:0", "bias:0", "gamma:0", "beta:0", "embeddings:0"};
    for (size_t i = 0; i < sizeof end / sizeof *end; i++)
        if (ends_with(name, end[i]))
            return !param_is_made_up(name);
    return false;
}

static bool matches(const char *const *pattern, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (!fnmatch(pattern[i], name, 0))
            return true;
    return false;
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
    if (p->file > 0)
        x.name = unique_name(p, x.name);
    if (matches(p->opt->train.at, p->opt->train.n, x.name))
        trainable = true;
    else if (matches(p->opt->freeze.at, p->opt->freeze.n, x.name))
        trainable = false;
    x.trainable = trainable && !x.stat;
    uint32_t id = p->g->param.n;
    *strmap_at(&p->by_name, x.name) = id;
    graph_param(p->g, x);
    return id;
}

uint32_t param_new(Params *p, const char *name, uint32_t init, bool transposed, bool trainable, bool stat)
{
    const RawTensor *t = &p->m->init.at[init];
    Where w = {p->m->path, "parameter", NONE, name, NULL, -1};
    if (t->dtype != DT_F32 && t->dtype != DT_F64) {
        diag_hint("export the model in float32");
        diag_fatal(EXIT_MODEL, w, "its type is %s; parameters must be f32 or f64", dtype_name(t->dtype));
    }
    Param x = {.name = name, .initializer = t->name, .dtype = t->dtype, .shape = t->shape, .transposed = transposed,
               .stat = stat, .bytes = t->bytes};
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
    uint32_t init = strmap_get(&p->m->init_index, n->in[input]);
    if (flip) {
        recipe_swap(a, r);
        s = shape_of(2, s.d[1], s.d[0]);
    }
    if (init != NONE && !shape_equal(&s, &p->m->init.at[init].shape))
        recipe_reshape(a, r, &p->m->init.at[init].shape);
    param_use_made(p, n, input, r);
}

void param_use_rows(Params *p, RawNode *n, uint32_t input, uint32_t param, bool flip, int64_t start, int64_t rows)
{
    Arena *a = p->m->arena;
    Recipe *r = recipe_of(a, param);
    Shape size = p->g->param.at[param].shape;
    int64_t from[MAX_RANK] = {start};
    size.d[0] = rows;
    recipe_slice(a, r, size.rank, from, size.d);
    if (flip)
        recipe_swap(a, r);
    param_use_made(p, n, input, r);
}

/* ---- roles ---- */

int param_role(const RawNode *n, uint32_t input)
{
    static const struct { const char *op; int role[5]; } slot[] = {
        {"MatMul", {0, ROLE_WEIGHT}}, {"Gemm", {0, ROLE_WEIGHT, ROLE_BIAS}}, {"Conv", {0, ROLE_WEIGHT, ROLE_BIAS}},
        {"ConvTranspose", {0, ROLE_WEIGHT, ROLE_BIAS}}, {"Gather", {ROLE_WEIGHT}}, {"PRelu", {0, ROLE_WEIGHT}},
        {"LayerNormalization", {0, ROLE_WEIGHT, ROLE_BIAS}}, {"RMSNormalization", {0, ROLE_WEIGHT}},
        {"GroupNormalization", {0, ROLE_WEIGHT, ROLE_BIAS}}, {"InstanceNormalization", {0, ROLE_WEIGHT, ROLE_BIAS}},
        {"BatchNormalization", {0, ROLE_WEIGHT, ROLE_BIAS, ROLE_MEAN, ROLE_VAR}},
    };
    for (size_t i = 0; !*n->domain && i < sizeof slot / sizeof *slot; i++)
        if (!strcmp(slot[i].op, n->op_type))
            return input < 5 ? slot[i].role[input] : ROLE_ANY;
    return ROLE_ANY;
}

static bool is_training_norm(const RawNode *n)
{
    return n->opset >= 14 ? raw_int(n, "training_mode", 0) != 0 : n->nout > 1 && *n->out[1];
}

/* Biases and scales of models built by hand or by other frameworks stand in plain Add and Mul. */
static bool is_affine(const RawNode *n, const RawTensor *t)
{
    return (!strcmp(n->op_type, "Add") || !strcmp(n->op_type, "Mul")) && t->shape.rank >= 1
           && shape_elements(&t->shape) > 1;
}

/* ---- without a signature ---- */

static bool is_param(const Params *p, const RawNode *n, uint32_t input, const RawTensor *t)
{
    int role = param_place_role(p, n, input);
    const char *name = t->name;
    if (!dtype_is_float(t->dtype) || !t->bytes.length)
        return false;
    if (matches(p->opt->train.at, p->opt->train.n, name))
        return true;
    if (role == ROLE_MEAN || role == ROLE_VAR)
        return is_training_norm(n);
    if (param_is_buffer(p, name))
        return false;
    bool strict = role != ROLE_ANY && (t->shape.rank >= 2 || role == ROLE_BIAS || strcmp(n->op_type, "MatMul"));
    if (param_is_made_up(name))
        return strict;
    return p->m->from_pytorch || is_parameter_name(name) || strict || is_affine(n, t);
}

static bool same_transposed(const Param *e, const RawTensor *t)
{
    size_t rows = (size_t)e->shape.d[0], cols = (size_t)e->shape.d[1], size = dtype_size(e->dtype);
    bool constant = true;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            const uint8_t *x = e->bytes.at + (r * cols + c) * size;
            if (memcmp(x, t->bytes.at + (c * rows + r) * size, size))
                return false;
            constant = constant && !memcmp(x, e->bytes.at, size);
        }
    return !constant;
}

/* Folding copied and transposed an embedding for the head that was tied to it. */
static uint32_t tied_to(const Params *p, const RawTensor *t)
{
    for (uint32_t i = 0; i < p->g->param.n; i++) {
        const Param *e = &p->g->param.at[i];
        if (e->shape.rank == 2 && !e->transposed && e->dtype == t->dtype && e->shape.d[0] == t->shape.d[1]
            && e->shape.d[1] == t->shape.d[0] && e->bytes.at && e->initializer && strmap_get(&p->by_init, e->initializer) == i
            && shape_elements(&e->shape) >= 64 && same_transposed(e, t))
            return i;
    }
    return NONE;
}

/* The name its place gives, when no other parameter has it. */
static const char *recovered_name(const Params *p, const RawNode *n, uint32_t input)
{
    const char *name = param_place_name(p, n, input);
    bool taken = name && (strmap_get(&p->by_name, name) != NONE || strmap_get(&p->m->init_index, name) != NONE);
    return taken ? NULL : name;
}

static uint32_t new_from_use(Params *p, const RawNode *n, uint32_t input, uint32_t init, bool *flip)
{
    const RawTensor *t = &p->m->init.at[init];
    int role = param_place_role(p, n, input);
    bool stat = role == ROLE_MEAN || role == ROLE_VAR;
    const char *name = param_is_made_up(t->name) && role != ROLE_ANY ? recovered_name(p, n, input) : NULL;
    bool made_up = param_is_made_up(t->name);
    *flip = made_up && !strcmp(n->op_type, "MatMul") && t->shape.rank == 2;
    uint32_t tie = *flip ? tied_to(p, t) : NONE;
    if (tie != NONE)
        return tie;
    *flip = *flip && name;
    uint32_t id = param_new(p, name ? name : t->name, init, *flip, true, stat);
    if (name && param_is_squeezed(n, t))
        param_squeeze(p, id);
    return id;
}

/* Made for equal parameters: Identity(initializer) under the other parameter's name, or what folding made of it. */
static bool is_unshared(const Params *p, const RawNode *n)
{
    if (!p->opt->training || strcmp(n->op_type, "Identity") || n->nin != 1 || n->nout != 1)
        return false;
    uint32_t init = strmap_get(&p->m->init_index, n->in[0]);
    return init != NONE && dtype_is_float(p->m->init.at[init].dtype) && !param_is_buffer_name(n->out[0]);
}

/* First reader of each un-shared copy: what it is follows from the slot it stands in. */
typedef struct { VEC(RawNode *) node; VEC(uint32_t) input; } Readers;

static void find_readers(Params *p, const RawNodes *list, Readers *r)
{
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        for (uint32_t j = 0; j < n->nin && !n->dead; j++) {
            uint32_t k = strmap_get(&p->copies, n->in[j]);
            if (k != NONE && k < r->node.n && !r->node.at[k]) {
                r->node.at[k] = n;
                r->input.at[k] = j;
            }
        }
        if (n->dead || !is_unshared(p, n))
            continue;
        *strmap_at(&p->copies, n->out[0]) = r->node.n;
        vec_push(p->m->arena, &r->node, NULL);
        vec_push(p->m->arena, &r->input, 0);
    }
}

/* The Identity's operand becomes a parameter of its own; a second call of one module stays tied to the first. */
static void unshare(Params *p, const Readers *r, RawNode *n)
{
    uint32_t k = strmap_get(&p->copies, n->out[0]), init = strmap_get(&p->m->init_index, n->in[0]);
    if (k == NONE || k >= r->node.n || !r->node.at[k])
        return;
    const RawNode *reader = r->node.at[k];
    if (param_is_used(reader, r->input.at[k]))
        return;
    RawTensor copy = p->m->init.at[init];
    bool made_up = param_is_made_up(n->out[0]);
    copy.name = n->out[0];
    const char *name = made_up ? param_place_name(p, reader, r->input.at[k]) : n->out[0];
    if (!is_param(p, reader, r->input.at[k], &copy) || !name)
        return;
    bool flip = made_up && !strcmp(reader->op_type, "MatMul") && copy.shape.rank == 2;
    uint32_t known = strmap_get(&p->by_name, name);
    if (known == NONE) {
        known = param_new(p, name, init, flip, true, false);
        if (made_up && param_is_squeezed(reader, &copy))
            param_squeeze(p, known);
    } else if (known != strmap_get(&p->by_init, n->in[0]) || p->g->param.at[known].transposed != flip) {
        return;
    }
    param_use(p, n, 0, known, flip);
}

static void from_names(Params *p, const RawNodes *list)
{
    StrMap flipped = {.arena = p->m->arena};
    Readers readers = {0};
    find_readers(p, list, &readers);
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        for (uint32_t j = 0; !n->dead && !is_unshared(p, n) && j < n->nin; j++) {
            uint32_t init = *n->in[j] ? strmap_get(&p->m->init_index, n->in[j]) : NONE;
            if (init == NONE || param_is_used(n, j))
                continue;
            uint32_t known = strmap_get(&p->by_init, n->in[j]);
            bool flip = known != NONE && strmap_get(&flipped, n->in[j]) != NONE;
            if (known == NONE) {
                if (!is_param(p, n, j, &p->m->init.at[init]))
                    continue;
                known = new_from_use(p, n, j, init, &flip);
                *strmap_at(&p->by_init, n->in[j]) = known;
                if (flip)
                    *strmap_at(&flipped, n->in[j]) = 1;
            }
            param_use(p, n, j, known, flip);
        }
    }
    for (uint32_t i = 0; i < list->n; i++)
        if (!list->at[i]->dead && is_unshared(p, list->at[i]))
            unshare(p, &readers, list->at[i]);
    param_constants(p, list);
}

/* ---- the whole ---- */

Params *param_begin(Model *m, Graph *g, const ImportOptions *opt, uint32_t file)
{
    Params *p = arena_new_of(m->arena, Params);
    *p = (Params){.m = m, .g = g, .opt = opt, .file = file, .by_init.arena = m->arena, .by_name.arena = m->arena,
                   .noted.arena = m->arena, .copies.arena = m->arena};
    const char *text = metadata_get(m->graph->n_metadata_props, m->graph->metadata_props,
                                    "pkg.torch.export.ExportedProgram.graph_signature");
    p->has_signature = text && meta_signature(m->arena, text, &p->sig);
    if (p->has_signature) {
        p->sig_param = arena_array(m->arena, uint32_t, p->sig.n);
        for (uint32_t i = 0; i < p->sig.n; i++)
            p->sig_param[i] = NONE;
    }
    return p;
}

void param_assign(Params *p, RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        if (!n->dead && !*n->domain && !strcmp(n->op_type, "BatchNormalization") && !is_training_norm(n))
            p->frozen_batchnorms++;
    }
    if (p->has_signature) {
        param_from_signature(p, list);
    } else {
        param_place(p, list);
        param_pieces(p, list);
        from_names(p, list);
    }
}

static const char *join(Arena *a, const char *const *name, uint32_t n)
{
    const char *text = "";
    uint32_t shown = 0;
    for (; shown < n && strlen(text) < 600; shown++)
        text = arena_printf(a, "%s%s%.128s", text, shown ? ", " : "", name[shown]);
    return shown < n ? arena_printf(a, "%s and %u more", text, n - shown) : text;
}

/* What folding left a trace of: recovered, or short of a use. */
static void report_traces(const Params *p)
{
    Arena *a = p->m->arena;
    if (p->inferred.n) {
        diag_hint("--param NAME=FILE.npy gives a parameter itself where this is not how the model has it");
        diag_warn(WHERE_FILE(p->m->path), "%u parameter%s recovered from what the export folded %s into: %s", p->inferred.n,
                  p->inferred.n == 1 ? " was" : "s were", p->inferred.n == 1 ? "it" : "them", join(a, p->inferred.at, p->inferred.n));
    }
    if (p->scaled.n) {
        diag_hint("export in training mode to keep BatchNormalization apart");
        diag_warn(WHERE_FILE(p->m->path), "%u weight%s by a BatchNormalization that the export folded, and so do%s train: %s", p->scaled.n,
                  p->scaled.n == 1 ? " is multiplied" : "s are multiplied", p->scaled.n == 1 ? "es it" : "", join(a, p->scaled.at, p->scaled.n));
    }
    if (p->merged.n) {
        diag_hint("export after a step of training, or with optimize=False, keeps equal parameters apart");
        diag_warn(WHERE_FILE(p->m->path), "parameters that train with the gradients of equal ones that were merged with them: %s",
                  join(a, p->merged.at, p->merged.n));
    }
    if (p->partial.n) {
        diag_hint("exporting with optimize=False keeps every use");
        diag_warn(WHERE_FILE(p->m->path), "%u use%s of parameters that the export folded %s no gradient: %s", p->partial.n,
                  p->partial.n == 1 ? "" : "s", p->partial.n == 1 ? "gets" : "get", join(a, p->partial.at, p->partial.n));
    }
}

/* What an export left no trace of is said in one place. */
void param_report(const Params *p)
{
    VEC(const char *) lost = {0};
    bool norm = p->frozen_batchnorms > 0;
    Arena *a = p->m->arena;
    for (uint32_t i = 0; i < p->sig.n; i++)
        if (p->sig.entry[i].kind == SIG_PARAMETER && p->sig_param[i] == NONE) {
            const char *name = p->sig.entry[i].target;
            vec_push(a, &lost, name);
            norm = norm || strstr(name, "bn") || strstr(name, "norm") || strstr(name, "downsample");
        }
    if (!p->opt->training)
        return;
    report_traces(p);
    if (lost.n == 0 && p->constant.n == 0 && p->frozen_batchnorms == 0)
        return;
    if (norm)
        diag_note("BatchNormalization in evaluation form trains without its statistics; export in training mode to keep them");
    Where w = WHERE_FILE(p->m->path);
    if (p->unfit.n)
        diag_note("given in files, but no initializer is seen to be made of these numbers: %s", join(a, p->unfit.at, p->unfit.n));
    if (lost.n) {
        diag_hint("exporting with optimize=False keeps every parameter");
        diag_warn(w, "%u parameter%s will not train, the export folded %s away: %s", lost.n, lost.n == 1 ? "" : "s",
                  lost.n == 1 ? "it" : "them", join(a, lost.at, lost.n));
    } else if (p->constant.n) {
        diag_hint("exporting with do_constant_folding=False, or --train NAME, makes parameters of them where they are any");
        diag_warn(w, "constants that folding made do not train: %s", join(a, p->constant.at, p->constant.n));
    } else {
        diag_warn(w, "%u BatchNormalization node%s in evaluation form", p->frozen_batchnorms,
                  p->frozen_batchnorms == 1 ? " is" : "s are");
    }
}

/*
 * assign.c - which initializers are parameters, and what they are called.  In: the nodes of a
 * model.  Out: Params in PyTorch's names and shapes; RawNode.made says which operand is made of
 * which, .bias what to add.
 *
 * With a dynamo signature fx.c decides.  Without one: a float initializer that is named like
 * a parameter, or that stands where a weight stands.  Constant folding renames weights and
 * transposes them
 * ("onnx::MatMul_355"): their names come from the node's scope and the slot, and where the folding
 * untied a head from its embedding (equal bytes) they are tied again.  An Identity of an
 * initializer whose result is named like a parameter was made because two parameters happened to be
 * equal: they are told apart.
 */
#include <string.h>

#include "fx.h"

/* ---- without a signature ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static bool is_parameter_name(const char *name)
{
    static const char *const end[] = {
        "weight",    "bias",           "kernel",           "gamma",    "beta",   "embeddings",
        "embedding", "ReadVariableOp", "ReadVariableOp:0", "kernel:0", "bias:0", "gamma:0",
        "beta:0",    "embeddings:0",   "ReadVariableOp/resource:0"};
    for (size_t i = 0; i < sizeof end / sizeof *end; i++)
        if (ends_with(name, end[i]))
            return !param_is_made_up(name);
    return false;
}

/* Biases and scales of models built by hand stand in plain Add and Mul. */
static bool is_affine(const RawNode *n, const RawTensor *t)
{
    return (!strcmp(n->op_type, "Add") || !strcmp(n->op_type, "Mul")) && t->shape.rank >= 1
           && shape_elements(&t->shape) > 1;
}

/* Slots in which masks and tables stand as well as parameters; nothing large is read for this. */
static bool may_be_table(const RawNode *n, const RawTensor *t)
{
    static const char *const op[] = {"Add", "Mul", "Where", "Slice", "Expand", "Unsqueeze"};
    enum { MOST = 1 << 24 };
    bool stands = false;
    for (size_t i = 0; i < sizeof op / sizeof *op; i++)
        stands |= !strcmp(n->op_type, op[i]);
    return stands && t->shape.rank > 1 && shape_elements(&t->shape) <= MOST &&
           (t->dtype == DT_F32 || t->dtype == DT_F64);
}

static bool is_param(const Params *p, const RawNode *n, uint32_t input, const RawTensor *t)
{
    int role = param_place_role(p, n, input);
    const char *name = t->name;
    if (!dtype_is_float(t->dtype) || !t->bytes.length)
        return false;
    if (param_matches(p->opt->train.at, p->opt->train.n, name))
        return true;
    if (role == ROLE_MEAN || role == ROLE_VAR)
        return meta_trains_norm(n);
    if (param_is_buffer(p, name))
        return false;
    bool strict = role != ROLE_ANY &&
                  (t->shape.rank >= 2 || role == ROLE_BIAS || strcmp(n->op_type, "MatMul"));
    bool named = is_parameter_name(name), tabled = role == ROLE_ANY && may_be_table(n, t);
    bool in_module = named || (p->m->from_pytorch && strchr(name, '.'));
    if (tabled && (in_module ? param_is_mask(p->g, t) : param_is_table(p->g, t)))
        return false;
    if (!p->m->from_pytorch && param_foreign(p, n, input, t))
        return true;
    if (param_is_made_up(name))
        return strict;
    return p->m->from_pytorch || named || strict ||
           (!p->m->from_tensorflow && is_affine(n, t));
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
        if (e->shape.rank == 2 && !e->transposed && e->dtype == t->dtype &&
            e->shape.d[0] == t->shape.d[1] && e->shape.d[1] == t->shape.d[0] && e->bytes.at &&
            e->initializer && strmap_get(&p->by_init, e->initializer) == i &&
            shape_elements(&e->shape) >= 64 && same_transposed(e, t))
            return i;
    }
    return NONE;
}

/* The name its place gives, when no other parameter has it. */
static const char *recovered_name(const Params *p, const RawNode *n, uint32_t input)
{
    const char *name = param_place_name(p, n, input);
    bool taken = name && (strmap_get(&p->by_name, name) != NONE ||
                          strmap_get(&p->m->init_index, name) != NONE);
    return taken ? NULL : name;
}

/* A module called again: folding made the same of its weight once more. */
static uint32_t called_again(const Params *p, const RawNode *n, uint32_t input, const RawTensor *t,
                             bool flip)
{
    const char *name = param_place_name(p, n, input);
    uint32_t id = name ? strmap_get(&p->by_name, name) : NONE;
    const Param *q = id == NONE ? NULL : &p->g->param.at[id];
    uint32_t init = q && q->initializer ? strmap_get(&p->m->init_index, q->initializer) : NONE;
    const RawTensor *first = init == NONE ? NULL : &p->m->init.at[init];
    return first && q->transposed == flip && first->dtype == t->dtype &&
                   shape_equal(&first->shape, &t->shape) &&
                   first->bytes.length == t->bytes.length &&
                   !memcmp(first->bytes.at, t->bytes.at, t->bytes.length)
               ? id
               : NONE;
}

/* A weight or bias that TorchScript's exporter moves nothing of, and that has a name of its own
 * then. */
static bool is_computed(const Params *p, const RawNode *n, uint32_t input, const RawTensor *t)
{
    bool conv = !strcmp(n->op_type, "Conv") || !strcmp(n->op_type, "ConvTranspose"),
         product = !strcmp(n->op_type, "Gemm");
    bool weight = input == 1 && (conv || (product && raw_int(n, "transB", 0))),
         bias = input == 2 && (conv || product);
    return p->m->from_pytorch && strstr(t->name, "::") && (weight || bias);
}

/* Both of them are: a BatchNormalization is in them. */
static bool is_scaled(const RawNode *n)
{
    return !strcmp(n->op_type, "Conv") && n->nin > 2 && strstr(n->in[1], "::") &&
           strstr(n->in[2], "::");
}

/* "a.w" of the initializer "a.w.1", as TorchScript calls it where a branch yields it as "a.w". */
static bool is_numbered(const char *init, const char *name)
{
    size_t k = strlen(name);
    return k && !strncmp(init, name, k) && init[k] == '.' && init[k + 1] &&
           !init[k + 1 + strspn(init + k + 1, "0123456789")];
}

/* All that branches yield as they are, before any is read: another branch may read it, too. */
static void find_passed(Params *p, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        for (size_t j = 0; j < n->n_attribute; j++)
            if (n->attribute[j]->g)
                find_passed(p, n->attribute[j]->g);
        if (!n->op_type || strcmp(n->op_type, "Identity") || n->n_input != 1 || n->n_output != 1 ||
            !n->input[0] || !n->output[0] || !is_numbered(n->input[0], n->output[0]) ||
            strmap_get(&p->m->init_index, n->input[0]) == NONE ||
            strmap_get(&p->m->init_index, n->output[0]) != NONE)
            continue;
        *strmap_at(&p->passed, n->input[0]) = p->passed_on.n;
        vec_push(p->m->arena, &p->passed_on, n->output[0]);
    }
}

static const char *passed_on(const Params *p, const char *init)
{
    uint32_t i = strmap_get(&p->passed, init);
    const char *name = i == NONE ? NULL : p->passed_on.at[i];
    return name && strmap_get(&p->by_name, name) == NONE ? name : NULL;
}

static uint32_t new_from_use(Params *p, const RawNode *n, uint32_t input, uint32_t init, bool *flip)
{
    const RawTensor *t = &p->m->init.at[init];
    int role = param_place_role(p, n, input);
    bool stat = role == ROLE_MEAN || role == ROLE_VAR;
    /* TorchScript's names stay when another tool has rewritten the file: its weights', or of what
     * that tool folded, "/decoder/Transpose_output_0" */
    bool named = p->m->from_pytorch || strstr(t->name, "::") ||
                 (*t->name == '/' && strstr(t->name, "_output_"));
    bool made_up = named && param_is_made_up(t->name);
    const char *name =
        made_up && role != ROLE_ANY ? recovered_name(p, n, input) : passed_on(p, t->name);
    bool product = !strcmp(n->op_type, "MatMul") ||
                   (!strcmp(n->op_type, "Gemm") && input == 1 && !raw_int(n, "transB", 0));
    *flip = made_up && product && t->shape.rank == 2;
    uint32_t tie = *flip ? tied_to(p, t) : NONE;
    if (tie == NONE && made_up && role != ROLE_ANY && !name)
        tie = called_again(p, n, input, t, *flip);
    if (tie != NONE)
        return tie;
    *flip = *flip && name;
    uint32_t id = param_new(p, name ? name : t->name, init, *flip, true, stat);
    if (name && is_computed(p, n, input, t)) {
        if (is_scaled(n))
            vec_push(p->m->arena, &p->scaled, name);
        else
            vec_push(p->m->arena, &p->computed, name);
    }
    if (name && param_is_squeezed(n, t))
        param_squeeze(p, id);
    return id;
}

/* Made for equal parameters: Identity(initializer) under the other parameter's name, or what
 * folding made of it.  The model's own, a branch of an If that does nothing, is called by its
 * scope: "/Identity_output_0". */
static bool is_unshared(const Params *p, const RawNode *n)
{
    if (!p->opt->training || strcmp(n->op_type, "Identity") || n->nin != 1 || n->nout != 1 ||
        (*n->out[0] == '/' && strstr(n->out[0], "_output_")))
        return false;
    uint32_t init = strmap_get(&p->m->init_index, n->in[0]);
    return init != NONE && dtype_is_float(p->m->init.at[init].dtype) &&
           !param_is_buffer_name(n->out[0]);
}

/* Made for a buffer that happened to be equal to a parameter, as the statistics of a fresh
 * BatchNormalization are: it keeps its numbers. */
static bool is_buffer_copy(const RawNode *n)
{
    return !strcmp(n->op_type, "Identity") && n->nin == 1 && n->nout == 1 &&
           param_is_buffer_name(n->out[0]);
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

/* The Identity's operand becomes a parameter of its own; a second call of one module stays tied to
 * the first. */
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
    } else if (known != strmap_get(&p->by_init, n->in[0]) ||
               p->g->param.at[known].transposed != flip) {
        return;
    }
    param_use(p, n, 0, known, flip);
}

typedef struct { StrMap flipped; const Readers *readers; bool joined; } Pass;

/* An Identity that nothing in its list reads passes a parameter on: the branch of an If that leaves
 * it as it is. */
static bool is_copy(const Params *p, const Pass *pass, const RawNode *n)
{
    uint32_t k = is_unshared(p, n) ? strmap_get(&p->copies, n->out[0]) : NONE;
    return k != NONE && k < pass->readers->node.n && pass->readers->node.at[k];
}

static void note_doubtful(Params *p, const RawTensor *t)
{
    for (uint32_t i = 0; i < p->doubtful.n; i++)
        if (!strcmp(p->doubtful.at[i], t->name))
            return;
    if (p->m->from_pytorch && param_is_buffer(p, t->name) && param_is_doubtful_buffer(p, t->name))
        vec_push(p->m->arena, &p->doubtful, t->name);
}

/* A filter, a grid, a matrix of cosines: few numbers again and again.  Those that were drawn at
 * random, or trained, differ; those of a scale that has not trained yet are all the same. */
static bool repeats_numbers(const RawTensor *t)
{
    enum { LEAST = 4, MOST = 1024 };
    int64_t n = shape_elements(&t->shape), distinct = 0, equal = 1;
    if (n < LEAST || n > MOST)
        return false;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = 0;
        while (k < i && raw_number(t, k) != raw_number(t, i))
            k++;
        distinct += k == i;
        equal += i > 0 && k == 0;
    }
    return equal < n && 2 * distinct <= n + 1;
}

/* TorchScript's exporter writes buffers as it does parameters. */
static void note_made(Params *p, const RawTensor *t)
{
    if (p->m->from_pytorch && p->sig.n == 0 && !param_is_made_up(t->name) &&
        !is_parameter_name(t->name) && repeats_numbers(t) &&
        !param_matches(p->opt->train.at, p->opt->train.n, t->name) &&
        !param_matches(p->opt->freeze.at, p->opt->freeze.n, t->name))
        vec_push(p->m->arena, &p->repeating, t->name);
}

/* joined: those too that may hold a parameter and something beside it */
static void assign(Params *p, const RawNodes *list, Pass *pass)
{
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        for (uint32_t j = 0; !n->dead && !is_copy(p, pass, n) && j < n->nin; j++) {
            uint32_t init = *n->in[j] ? strmap_get(&p->m->init_index, n->in[j]) : NONE;
            if (init == NONE || param_is_used(n, j) || is_buffer_copy(n))
                continue;
            uint32_t known = strmap_get(&p->by_init, n->in[j]);
            bool flip = known != NONE && strmap_get(&pass->flipped, n->in[j]) != NONE;
            if (known == NONE) {
                const RawTensor *t = &p->m->init.at[init];
                if (!is_param(p, n, j, t)) {
                    note_doubtful(p, t);
                    continue;
                }
                if (!pass->joined && param_may_be_joined(p, t))
                    continue;
                known = new_from_use(p, n, j, init, &flip);
                *strmap_at(&p->by_init, n->in[j]) = known;
                note_made(p, t);
                if (flip)
                    *strmap_at(&pass->flipped, n->in[j]) = 1;
            }
            param_use(p, n, j, known, flip);
        }
    }
}

static void from_names(Params *p, const RawNodes *list)
{
    Readers readers = {0};
    Pass pass = {.flipped.arena = p->m->arena, .readers = &readers};
    find_readers(p, list, &readers);
    param_foreign_begin(p, list);
    assign(p, list, &pass);
    for (uint32_t i = 0; i < list->n; i++)
        if (!list->at[i]->dead && is_unshared(p, list->at[i]))
            unshare(p, &readers, list->at[i]);
    param_constants(p, list);
    pass.joined = true;
    assign(p, list, &pass);
    param_constants_note(p, list);
    param_foreign_note(p, list);
}

/* ---- the whole ---- */

Params *param_begin(Model *m, Graph *g, const ImportOptions *opt, uint32_t file)
{
    Params *p = arena_new_of(m->arena, Params);
    *p = (Params){.m = m,
                  .g = g,
                  .opt = opt,
                  .file = file,
                  .by_init.arena = m->arena,
                  .by_name.arena = m->arena,
                  .noted.arena = m->arena,
                  .copies.arena = m->arena,
                  .passed.arena = m->arena};
    for (uint32_t i = 0; i < m->init.n; i++)
        tensor_single(m->arena, &m->init.at[i]);
    const char *text = metadata_get(m->graph->n_metadata_props, m->graph->metadata_props,
                                    "pkg.torch.export.ExportedProgram.graph_signature");
    p->has_signature = text && meta_signature(m->arena, text, &p->sig);
    if (p->has_signature) {
        p->sig_param = arena_array(m->arena, uint32_t, p->sig.n);
        p->sig_named = arena_array(m->arena, bool, p->sig.n);
        for (uint32_t i = 0; i < p->sig.n; i++)
            p->sig_param[i] = NONE;
    } else {
        find_passed(p, m->graph);
    }
    return p;
}

void param_assign(Params *p, RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        if (!n->dead && !*n->domain && !strcmp(n->op_type, "BatchNormalization") &&
            !meta_trains_norm(n) && n->nin > 3 &&
            strmap_get(&p->m->init_index, n->in[3]) != NONE)
            p->frozen_batchnorms++;
    }
    if (p->has_signature) {
        param_from_signature(p, list);
    } else {
        param_place(p, list);
        param_pieces(p, list);
        param_recurrent(p, list);
        from_names(p, list);
    }
}

static const char *join(Arena *a, const char *const *name, uint32_t n)
{
    enum { ENOUGH = 1600 };
    const char *text = "";
    uint32_t shown = 0;
    for (; shown < n && strlen(text) < ENOUGH; shown++)
        text = arena_printf(a, "%s%s%.128s", text, shown ? ", " : "", name[shown]);
    return shown < n ? arena_printf(a, "%s and %u more", text, n - shown) : text;
}

/* What TorchScript's folding computed of parameters, it does not say which: weights in their
 * places, constants in places that no module's parameter has. */
static void report_computed(const Params *p)
{
    Arena *a = p->m->arena;
    VEC(const char *) list = {0};
    if (p->placed.n) {
        diag_hint("exporting with do_constant_folding=False keeps their names");
        diag_warn(WHERE_FILE(p->m->path),
                  "%u parameters of attentions have lost their names in folding and are called by "
                  "their order: %s",
                  p->placed.n, join(a, p->placed.at, p->placed.n));
    }
    for (uint32_t i = 0; i < p->computed.n; i++)
        vec_push(a, &list, p->computed.at[i]);
    for (uint32_t i = 0; i < p->g->param.n && p->m->from_pytorch; i++)
        if (p->g->param.at[i].trainable && strstr(p->g->param.at[i].name, "::"))
            vec_push(a, &list, p->g->param.at[i].name);
    if (list.n == 0)
        return;
    diag_hint("exporting with do_constant_folding=False keeps parameters as they are");
    diag_warn(WHERE_FILE(p->m->path),
              "%u weight%s computed of parameters that folding does not name, %s as such: %s",
              list.n, list.n == 1 ? " was" : "s were", list.n == 1 ? "it trains" : "they train",
              join(a, list.at, list.n));
}

/* What folding left a trace of: recovered, or short of a use. */
static void report_traces(const Params *p)
{
    Arena *a = p->m->arena;
    if (p->inferred.n) {
        diag_hint("--param NAME=FILE.npy gives a parameter itself where this is not how the model "
                  "has it");
        diag_warn(WHERE_FILE(p->m->path),
                  "%u parameter%s recovered from what the export folded %s into: %s", p->inferred.n,
                  p->inferred.n == 1 ? " was" : "s were", p->inferred.n == 1 ? "it" : "them",
                  join(a, p->inferred.at, p->inferred.n));
    }
    if (p->scaled.n) {
        diag_hint("export in training mode to keep BatchNormalization apart, by dynamo with "
                  "optimize=False");
        diag_warn(
            WHERE_FILE(p->m->path),
            "%u parameter%s by a BatchNormalization that the export folded, and so do%s train: %s",
            p->scaled.n, p->scaled.n == 1 ? " is multiplied" : "s are multiplied",
            p->scaled.n == 1 ? "es it" : "", join(a, p->scaled.at, p->scaled.n));
    }
    if (p->merged.n) {
        diag_hint("export after a step of training, or with optimize=False, keeps equal parameters "
                  "apart");
        diag_warn(
            WHERE_FILE(p->m->path),
            "parameters that train with the gradients of equal ones that were merged with them: %s",
            join(a, p->merged.at, p->merged.n));
    }
    if (p->partial.n) {
        diag_hint("exporting with optimize=False keeps every use");
        diag_warn(WHERE_FILE(p->m->path),
                  "%u use%s of parameters that the export folded %s no gradient: %s", p->partial.n,
                  p->partial.n == 1 ? "" : "s", p->partial.n == 1 ? "gets" : "get",
                  join(a, p->partial.at, p->partial.n));
    }
}

static bool is_batchnorm(const Params *p, const char *name)
{
    const char *dot = strrchr(name, '.');
    int module = dot ? (int)(dot - name) + 1 : 0;
    const char *mean = arena_printf(p->m->arena, "%.*srunning_mean", module, name);
    return strmap_get(&p->sig.by_target, mean) != NONE;
}

static void note_unfit(const Params *p)
{
    if (p->unfit.n)
        diag_note("given in files, but no initializer is seen to be made of these numbers: %s",
                  join(p->m->arena, p->unfit.at, p->unfit.n));
}

/* Folding notes of what it made a number; of these it did not. */
static void report_unnamed(const Params *p, uint32_t n, const char *const *name)
{
    if (n == 0)
        return;
    note_unfit(p);
    if (p->is_whole) {
        diag_warn(WHERE_FILE(p->m->path), "%u parameter%s will not train, no node uses %s: %s", n,
                  n == 1 ? "" : "s", n == 1 ? "it" : "them", join(p->m->arena, name, n));
        return;
    }
    diag_hint("exporting with optimize=False tells");
    diag_warn(WHERE_FILE(p->m->path),
              "%u parameter%s that no node names will not train: not used, another name of a tied "
              "one, or merged without a trace: %s",
              n, n == 1 ? "" : "s", join(p->m->arena, name, n));
}

/* What an export left no trace of is said in one place. */
void param_report(const Params *p)
{
    VEC(const char *) lost = {0}, unnamed = {0};
    bool norm = p->frozen_batchnorms > 0;
    Arena *a = p->m->arena;
    for (uint32_t i = 0; i < p->sig.n; i++)
        if (p->sig.entry[i].kind == SIG_PARAMETER && p->sig_param[i] == NONE) {
            const char *name = p->sig.entry[i].target;
            if (p->sig_named[i])
                vec_push(a, &lost, name);
            else
                vec_push(a, &unnamed, name);
            norm |= is_batchnorm(p, name);
        }
    if (!p->opt->training)
        return;
    if (p->doubtful.n) {
        diag_hint("--train NAME makes parameters of them where they are any");
        diag_warn(WHERE_FILE(p->m->path),
                  "what is called, or stands, as buffers are does not train: %s",
                  join(a, p->doubtful.at, p->doubtful.n));
    }
    if (p->repeating.n) {
        diag_hint("--freeze NAME where they are buffers, --train NAME where they are not; exports of "
                  "dynamo tell");
        diag_warn(WHERE_FILE(p->m->path),
                  "what repeats a few numbers, as filters and grids do, trains as a parameter: %s",
                  join(a, p->repeating.at, p->repeating.n));
    }
    report_computed(p);
    report_traces(p);
    report_unnamed(p, unnamed.n, unnamed.at);
    if (lost.n == 0 && p->constant.n == 0 && p->frozen_batchnorms == 0)
        return;
    if (norm)
        diag_note("BatchNormalization in evaluation form trains without its statistics; export in "
                  "training mode to keep them");
    Where w = WHERE_FILE(p->m->path);
    if (!unnamed.n)
        note_unfit(p);
    if (lost.n) {
        diag_hint("exporting with optimize=False keeps every parameter");
        diag_warn(w, "%u parameter%s will not train, the export folded %s away: %s", lost.n,
                  lost.n == 1 ? "" : "s", lost.n == 1 ? "it" : "them", join(a, lost.at, lost.n));
    } else if (p->constant.n) {
        diag_hint(p->m->from_pytorch ? "exporting with do_constant_folding=False, or --train NAME, "
                                       "makes parameters of them where they are any"
                                     : "--train NAME makes parameters of them where they are any");
        diag_warn(w, "constants %sdo not train: %s",
                  p->m->from_pytorch ? "that folding made " : "",
                  join(a, p->constant.at, p->constant.n));
    } else {
        diag_warn(w, "%u BatchNormalization node%s in evaluation form", p->frozen_batchnorms,
                  p->frozen_batchnorms == 1 ? " is" : "s are");
    }
}

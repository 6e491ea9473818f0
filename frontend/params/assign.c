/*
 * assign.c - which initializers are parameters, and what they are called.  In: the nodes of a
 * model.  Out: Params in PyTorch's names and shapes; RawNode.made says which operand is made of
 * which, .bias what to add.
 *
 * With a dynamo signature fx.c decides.  Without one: the slot in which an array stands (slot.c),
 * then its name.  Constant folding renames weights and transposes them ("onnx::MatMul_355"): the
 * bias that is added to the product says what they are called, or their numbers, where another
 * parameter of the file or of --params-from has them (a head that was untied from its embedding);
 * else they train under the file's name.  An Identity of an initializer whose result is named like
 * a parameter was made because two parameters happened to be equal: they are told apart.  One whose
 * result has no name is a second use, unless all its numbers are the same.
 */
#include <string.h>

#include "fx.h"

/* ---- without a signature ---- */

static bool is_stat(int role) { return role == ROLE_MEAN || role == ROLE_VAR; }

static bool is_param(const Params *p, const RawNode *n, uint32_t input, const RawTensor *t)
{
    int role = param_role(n, input);
    const SlotRead *by;
    if (!dtype_is_float(t->dtype) || !t->bytes.length)
        return false;
    if (param_thawed(p, t->name))
        return true;
    if (is_stat(role))
        return meta_trains_norm(n);
    return !param_is_buffer(p, t->name) && param_rule(p, t, &by) == RULE_TRAINS;
}

/* "M.weight" and "M.bias"; nn.MultiheadAttention's are called "M.in_proj_weight" and
 * "M.in_proj_bias".  The length of M and what stands before the end; 0: it ends otherwise. */
static size_t stem(const char *name, const char *end, size_t *module)
{
    const char *dot = strrchr(name, '.'), *leaf = dot ? dot + 1 : name;
    size_t packed = strncmp(leaf, "in_proj_", 8) ? 0 : 8;
    *module = dot ? (size_t)(dot - name) : 0;
    return *module && !strcmp(leaf + packed, end) ? *module + 1 + packed : 0;
}

/* The bias "M.bias" beside "M.weight", or NULL. */
static const RawTensor *bias_beside(const Params *p, const char *weight)
{
    size_t module, before = stem(weight, "weight", &module);
    return param_array(p, arena_printf(p->m->arena, "%.*sbias", (int)before, weight));
}

static bool is_equal(const RawTensor *a, const RawTensor *b)
{
    return a->bytes.length == b->bytes.length && !memcmp(a->bytes.at, b->bytes.at, a->bytes.length);
}

/* "layers.0.attn.weight" and "layers.1.attn.weight": does another array of layers.0 have the
 * numbers of that of layers.1? */
static bool are_in_copies(const Params *p, const char *x, const char *y)
{
    size_t n = strlen(x), k = strlen(y);
    for (; n && k && x[n - 1] == y[k - 1]; n--)
        k--;
    while (x[n] && x[n] != '.') /* the whole component is another */
        n++, k++;
    for (uint32_t i = 0; i < p->m->init.n; i++) {
        const RawTensor *t = &p->m->init.at[i];
        const RawTensor *u =
            strncmp(t->name, x, n) || t->name[n] != '.'
                ? NULL
                : param_array(p, arena_printf(p->m->arena, "%.*s%s", (int)k, y, t->name + n));
        if (u && is_equal(t, u) && !param_is_equal_by_chance(t))
            return true;
    }
    return false;
}

/* Are two modules copies, deepcopy's layers of a transformer that has not trained?  Their biases
 * tell, those of the modules around, or that different modules read what has lost its name. */
static bool are_copies(const Params *p, const Param *e, const char *name, const RawNode *n)
{
    const RawTensor *a = name ? bias_beside(p, e->name) : NULL,
                    *b = name ? bias_beside(p, name) : NULL;
    const SlotRead *by;
    if (a && b)
        return is_equal(a, b) && (!param_is_equal_by_chance(a) || are_in_copies(p, e->name, name));
    if (!p->m->from_pytorch || !param_is_made_up(e->initializer))
        return false;
    param_rule(p, raw_array(p->m, e->initializer), &by);
    return by && by->node && strcmp(by->node->scope, n->scope) != 0;
}

/* A parameter with the same numbers, as they are or transposed: folding untied a head from its
 * embedding, or a tool wrote a weight twice.  name: of t, as its bias says, or NULL; flip: the
 * operand is the parameter transposed. */
static uint32_t tied_to(const Params *p, const RawNode *n, const RawTensor *t, const char *name,
                        bool *flip)
{
    for (uint32_t i = 0; i < p->g->param.n; i++) {
        const Param *e = &p->g->param.at[i];
        const RawTensor *f = e->initializer ? raw_array(p->m, e->initializer) : NULL;
        if (!f || strmap_get(&p->by_init, e->initializer) != i || f->dtype != t->dtype ||
            f->bytes.length != t->bytes.length || !t->bytes.at || f->bytes.at != e->bytes.at ||
            (t->shape.rank < 2 && t->bytes.at != f->bytes.at))
            continue;
        Same same = raw_same(f, t);
        if (same == NOT_SAME || (same == SAME && !shape_equal(&f->shape, &t->shape)) ||
            param_is_equal_by_chance(t) || are_copies(p, e, name, n))
            continue;
        *flip = e->transposed != (same == SAME_TURNED);
        return i;
    }
    return NONE;
}

/* The bias that is added to what the node makes, or "". */
static const char *addend(const Params *p, const RawNode *n)
{
    for (uint32_t i = 0; n->nout && i < p->list->n; i++) {
        const RawNode *sum = p->list->at[i];
        bool is = !sum->dead && sum->nin == 2 && !strcmp(sum->op_type, "Add");
        for (uint32_t j = 0; j < 2 && is; j++) {
            size_t module;
            if (!strcmp(sum->in[1 - j], n->out[0]) && stem(sum->in[j], "bias", &module) &&
                param_array(p, sum->in[j]))
                return sum->in[j];
        }
    }
    return "";
}

/* The bias "M.bias" that is added to a product of module M says that its weight is "M.weight".
 * Scopes may lack M's beginning. */
static const char *name_by_bias(const Params *p, const RawNode *n, uint32_t input)
{
    const char *bias = param_role(n, input) == ROLE_WEIGHT ? addend(p, n) : "";
    size_t module, scope = strlen(n->scope), before = stem(bias, "bias", &module);
    if (!before || !scope || scope > module || strncmp(bias + module - scope, n->scope, scope) ||
        (scope < module && bias[module - scope - 1] != '.'))
        return NULL;
    const char *name = arena_printf(p->m->arena, "%.*sweight", (int)before, bias);
    return strmap_get(&p->by_name, name) != NONE || raw_array(p->m, name) ? NULL : name;
}

/* Folding renamed it; TorchScript's names stay when another tool has rewritten the file. */
static bool is_renamed(const Params *p, const RawTensor *t)
{
    return param_is_made_up(t->name) && (p->m->from_pytorch || strstr(t->name, "::") ||
                                         (*t->name == '/' && strstr(t->name, "_output_")));
}

/* The array, where it is a parameter: of a norm without, each call has ones and zeros of its own.
 */
static const char *learned(const Params *p, const RawNode *n, uint32_t input)
{
    const RawTensor *t = raw_array(p->m, n->in[input]);
    return t && is_param(p, n, input, t) ? t->name : "";
}

/* Which array an operand is, among those that tools have merged as they were equal: what is read as
 * a statistic and as something else is two.  A run updates statistics, so each norm has its own,
 * unless two nodes read all of one norm's arrays: calls of one module.  Where its bias is its mean,
 * all norms that are as fresh would be that. */
static const char *array_read(const Params *p, const RawNode *n, uint32_t input)
{
    const char *name = n->in[input];
    uint32_t known = strmap_get(&p->by_init, name);
    if (is_stat(param_role(n, input))) {
        bool merged = !strcmp(name, n->in[1]) || !strcmp(name, n->in[2]);
        const char *own =
            merged ? n->out[0]
                   : arena_printf(p->m->arena, "%s\n%s", learned(p, n, 1), learned(p, n, 2));
        return arena_printf(p->m->arena, "%s\n%s", name, own);
    }
    return known == NONE || !p->g->param.at[known].stat ? name
                                                        : arena_printf(p->m->arena, "%s\n", name);
}

/* What it is called: the first like the initializer, a further norm's by its module, or by what
 * the norm makes. */
static const char *array_name(const Params *p, const RawNode *n, uint32_t input, const char *init)
{
    static const char *const end[] = {[ROLE_WEIGHT] = "weight",
                                      [ROLE_BIAS] = "bias",
                                      [ROLE_MEAN] = "running_mean",
                                      [ROLE_VAR] = "running_var",
                                      [ROLE_ANY] = "weight"};
    int role = param_role(n, input);
    const char *of = !is_stat(role) ? init : *n->scope ? n->scope : n->out[0];
    if (strmap_get(&p->by_init, init) == NONE)
        return init;
    const char *name = arena_printf(p->m->arena, "%s.%s", of, end[role]);
    return strmap_get(&p->by_name, name) == NONE && !raw_array(p->m, name)
               ? name
               : arena_printf(p->m->arena, "%s.%s", n->out[0], end[role]);
}

static uint32_t new_from_use(Params *p, const RawNode *n, uint32_t input, uint32_t init,
                             const RawTensor *t, bool *flip)
{
    bool stat = is_stat(param_role(n, input)), renamed = is_renamed(p, t);
    bool product = !strcmp(n->op_type, "MatMul") ||
                   (!strcmp(n->op_type, "Gemm") && input == 1 && !raw_int(n, "transB", 0));
    const char *name = renamed ? name_by_bias(p, n, input) : NULL;
    bool copy = !raw_array(p->m, t->name);
    bool unnamed = copy ? param_is_made_up(t->name) : renamed || !param_is_named(p, t->name);
    uint32_t tie = unnamed && !stat ? tied_to(p, n, t, name, flip) : NONE;
    if (tie != NONE)
        return tie;
    *flip = renamed && name && product && t->shape.rank == 2;
    return param_new(p, name ? name : array_name(p, n, input, t->name), init, *flip, true, stat);
}

/* ---- copies ---- */

/* Made for equal parameters: Identity(initializer) under the other parameter's name, or what
 * folding made of it.  The model's own, a branch of an If that does nothing, is called by its
 * scope: "/Identity_output_0".  Of a buffer that happened to be equal to a parameter, as the
 * statistics of a fresh BatchNormalization are, it keeps its numbers. */
enum { NO_COPY, OF_PARAMETER, OF_BUFFER };
static int copy_of(const Params *p, const RawNode *n)
{
    const RawTensor *t = n->dead || strcmp(n->op_type, "Identity") || n->nin != 1 || n->nout != 1
                             ? NULL
                             : raw_array(p->m, n->in[0]);
    if (t && param_is_buffer_name(n->out[0]))
        return OF_BUFFER;
    bool own = t && *n->out[0] == '/' && strstr(n->out[0], "_output_");
    return t && !own && p->opt->training && dtype_is_float(t->dtype) ? OF_PARAMETER : NO_COPY;
}

/* The copies that the list reads: result -> Identity; reader: value -> its first reader.  One that
 * nothing in its list reads passes a parameter on: the branch of an If that leaves it as it is. */
static void find_copies(Params *p, const RawNodes *list, StrMap *reader)
{
    p->list = list;
    p->copies = (StrMap){.arena = p->m->arena};
    for (uint32_t i = list->n; i-- > 0;)
        for (uint32_t j = 0; j < list->at[i]->nin && !list->at[i]->dead; j++)
            *strmap_at(reader, list->at[i]->in[j]) = i;
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        int of = copy_of(p, n);
        uint32_t init = n->nin == 1 ? strmap_get(&p->m->init_index, n->in[0]) : NONE;
        if (init != NONE && n->nout == 1 && !n->dead && !strcmp(n->op_type, "Identity"))
            *strmap_at(&p->copied, n->out[0]) = init;
        if (of == OF_PARAMETER && strmap_get(reader, n->out[0]) != NONE)
            *strmap_at(&p->copies, n->out[0]) = i;
    }
}

/* Of a name that parameters have, too: what its name alone, or its slot, takes for a buffer. */
static void note_doubtful(Params *p, const RawTensor *t)
{
    const SlotRead *by;
    for (uint32_t i = 0; i < p->lost.doubtful.n; i++)
        if (!strcmp(p->lost.doubtful.at[i], t->name))
            return;
    if (!p->m->from_pytorch || !param_is_named(p, t->name))
        return;
    Verdict rule = param_rule(p, t, &by);
    if (param_is_buffer(p, t->name)
            ? param_is_doubtful_buffer(p, t->name)
            : rule == RULE_OF_DATA || rule == RULE_LOSS || rule == RULE_FREQUENCY)
        vec_push(p->m->arena, &p->lost.doubtful, t->name);
}

/* TorchScript's exporter writes buffers as it does parameters: filters, grids.  Those are small;
 * of what is large no number is read. */
static void note_made(Params *p, const RawTensor *t)
{
    enum { MOST = 1024 };
    if (shape_elements(&t->shape) <= MOST && p->m->from_pytorch && p->sig.n == 0 &&
        !param_is_made_up(t->name) && !param_is_leaf_name(t->name) &&
        !param_is_buffer(p, t->name) && !raw_is_constant(t) && param_is_regular(p->g, t) &&
        !param_thawed(p, t->name) && !param_frozen(p, t->name))
        vec_push(p->m->arena, &p->lost.repeating, t->name);
}

/* Initializers whose names say what they are; copies of some; those too that have lost their
 * names, once none is seen to be made of the others. */
enum { NAMED, COPIES, LATE };

/* Node n reads an initializer or a copy of one: then operand k of the Identity, `from`, is it. */
static void assign_operand(Params *p, int pass, RawNode *n, uint32_t j, StrMap *flipped)
{
    uint32_t copy = strmap_get(&p->copies, n->in[j]), k = copy == NONE ? j : 0;
    RawNode *from = copy == NONE ? n : p->list->at[copy];
    uint32_t init = *from->in[k] ? strmap_get(&p->m->init_index, from->in[k]) : NONE;
    if (init == NONE || (copy != NONE) != (pass == COPIES) || param_is_used(from, k) ||
        param_is_used(n, j))
        return;
    RawTensor t = p->m->init.at[init];
    t.name = n->in[j];
    const char *array = copy == NONE ? array_read(p, n, j) : t.name;
    uint32_t known = strmap_get(&p->by_init, array);
    bool flip = known != NONE && strmap_get(flipped, t.name) != NONE;
    if (known == NONE) {
        if (!is_param(p, n, j, &t)) {
            note_doubtful(p, &t);
            return;
        }
        if (pass == NAMED && is_renamed(p, &t) && !name_by_bias(p, n, j))
            return;
        known = new_from_use(p, n, j, init, &t, &flip);
        *strmap_at(&p->by_init, array) = known;
        if (strmap_get(&p->by_init, t.name) == NONE)
            *strmap_at(&p->by_init, t.name) = known;
        note_made(p, &t);
        if (flip)
            *strmap_at(flipped, t.name) = 1;
    }
    param_use(p, from, k, known, flip);
}

static void assign(Params *p, int pass, StrMap *flipped)
{
    for (uint32_t i = 0; i < p->list->n; i++) {
        RawNode *n = p->list->at[i];
        bool copy =
            copy_of(p, n) == OF_BUFFER || (n->nout && strmap_get(&p->copies, n->out[0]) != NONE);
        for (uint32_t j = 0; j < n->nin && !n->dead && !copy; j++)
            assign_operand(p, pass, n, j, flipped);
    }
}

/* Do several numbers stand where parameters may, and are none?  PyTorch's exporters list theirs, or
 * name them. */
static bool is_left_out(const Params *p, const RawTensor *t)
{
    const SlotRead *by;
    if (p->m->from_pytorch || !dtype_is_float(t->dtype) || shape_elements(&t->shape) < 2 ||
        strmap_get(&p->by_init, t->name) != NONE || param_frozen(p, t->name))
        return false;
    Verdict v = param_rule(p, t, &by);
    return v == RULE_NUMBERS || v == RULE_NO_NAME || v == RULE_ONE_DIM;
}

/* Constants that may contain parameters are named once: what folding made, also where a parameter
 * that happens to have its numbers stands for it. */
static void note_constants(Params *p)
{
    for (uint32_t i = 0; i < p->list->n && p->opt->training; i++) {
        const RawNode *n = p->list->at[i];
        for (uint32_t j = 0; !n->dead && j < n->nin; j++) {
            const char *name = n->in[j];
            uint32_t copy = strmap_get(&p->copies, name), k = copy == NONE ? j : 0;
            const RawNode *from = copy == NONE ? n : p->list->at[copy];
            const RawTensor *t = raw_array(p->m, from->in[k]);
            if (!t || param_is_used(from, k) || param_is_used(n, j) ||
                strmap_get(&p->noted, name) != NONE)
                continue;
            bool folded = copy == NONE ? param_is_folded(p, t)
                                       : p->m->from_pytorch && strstr(name, "::"),
                 bound = op_slot(n->domain, n->op_type, j) == 'x';
            if (folded ? bound : copy != NONE || !is_left_out(p, t))
                continue;
            *strmap_at(&p->noted, name) = 1;
            if (!((t->dtype == DT_F32 || t->dtype == DT_F64) && param_is_mask(p->g, t)))
                vec_push(p->m->arena, &p->lost.constant,
                         folded ? arena_printf(p->m->arena, "%s (of %s)", name, n->name) : name);
        }
    }
}

/* What a copy is follows from the slot that it is read in first. */
static void assign_copies(Params *p, StrMap *flipped, const StrMap *reader)
{
    for (uint32_t i = 0; i < p->list->n; i++) {
        const RawNode *copy = p->list->at[i];
        if (!copy->nout || strmap_get(&p->copies, copy->out[0]) != i)
            continue;
        RawNode *n = p->list->at[strmap_get(reader, copy->out[0])];
        uint32_t j = 0;
        while (strcmp(n->in[j], copy->out[0]) != 0)
            j++;
        assign_operand(p, COPIES, n, j, flipped);
    }
}

static void from_names(Params *p, RawNodes *list)
{
    StrMap flipped = {.arena = p->m->arena}, /* initializers that are their parameters transposed */
        reader = {.arena = p->m->arena};
    find_copies(p, list, &reader);
    assign(p, NAMED, &flipped);
    param_recurrent(p, list);
    assign_copies(p, &flipped, &reader);
    param_constants(p, list);
    assign(p, LATE, &flipped);
    note_constants(p);
}

/* ---- the whole ---- */

/* What ppsplit-export notes, since no exporter does: parameters with requires_grad=False. */
static void note_frozen(Params *p)
{
    const char **name, *text = metadata_get(p->m->graph->n_metadata_props,
                                            p->m->graph->metadata_props, "ppsplit.frozen");
    uint32_t n = text ? meta_list(p->m->arena, text, &name) : 0;
    for (uint32_t i = 0; i < n; i++)
        *strmap_at(&p->frozen, name[i]) = 1;
}

Params *param_begin(Model *m, Graph *g, const ImportOptions *opt, uint32_t file)
{
    Params *p = arena_new_of(m->arena, Params);
    *p = (Params){.m = m,
                  .g = g,
                  .opt = opt,
                  .file = file,
                  .first_param = g->param.n,
                  .by_init.arena = m->arena,
                  .by_name.arena = m->arena,
                  .frozen.arena = m->arena,
                  .noted.arena = m->arena,
                  .copied.arena = m->arena};
    for (uint32_t i = 0; i < m->init.n; i++)
        tensor_single(m->arena, &m->init.at[i]);
    note_frozen(p);
    const char *text = metadata_get(m->graph->n_metadata_props, m->graph->metadata_props,
                                    "pkg.torch.export.ExportedProgram.graph_signature");
    p->has_signature = text && meta_signature(m->arena, text, &p->sig);
    if (p->has_signature)
        p->sig_param = arena_none(m->arena, p->sig.n);
    return p;
}

void param_assign(Params *p, RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        if (!n->dead && !*n->domain && !strcmp(n->op_type, "BatchNormalization") &&
            !meta_trains_norm(n) && n->nin > 3 && strmap_get(&p->m->init_index, n->in[3]) != NONE)
            p->lost.frozen_batchnorms++;
    }
    if (p->has_signature) {
        param_from_signature(p, list);
    } else {
        param_find_buffers(p);
        param_slots(p, list);
        from_names(p, list);
    }
}

/*
 * import.c - the import driver: ONNX models to one Graph of core ops.  In: paths.  Out: the Graph.
 *
 * For each model: open it (read.c), find what its outputs need, refuse all unsupported ops at once, decide the
 * parameters (param.c), bind the inputs' dimensions, then translate node by node through the IMPORT column of
 * ops.def.  Several models run in sequence.  Branches whose condition is known are imported in place.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

typedef void ImportFn(Import *);

static const struct { ImportFn *fn; uint32_t lo, hi; } rows[OP_COUNT] = {
#define IMPORT(f) import_##f
#define NOIMPORT NULL
#define OP(name, lo, hi, since, import, ...) [OP_##name] = {import, lo, hi},
#include "ir/ops.def"
#undef OP
#undef IMPORT
#undef NOIMPORT
};

/* ---- names ---- */

void import_define(ImportState *s, const char *name, Slot slot)
{
    uint32_t *at = strmap_at(&s->env, name);
    if (*at == NONE) {
        *at = s->slot.n;
        vec_push(s->g->arena, &s->slot, slot);
    } else {
        s->slot.at[*at] = slot;
    }
}

/* The value gets the model's name, or that with a number when an earlier model has it. */
static void name_value(ImportState *s, ValueId v, const char *name)
{
    Graph *g = s->g;
    const char *free_name = name;
    for (uint32_t k = 1; strmap_get(&g->by_name, free_name) != NONE; k++) {
        if (strmap_get(&g->by_name, free_name) == v)
            return;
        free_name = arena_printf(g->arena, "%s@%u", name, k);
    }
    graph_rename(g, v, free_name);
}

static ValueId constant(ImportState *s, uint32_t init)
{
    const RawTensor *t = &s->m->init.at[init];
    Tensor data = tensor_widen(s->g->arena, t, (Where){s->m->path, "initializer", init, t->name, NULL, -1});
    const char *name = strmap_get(&s->g->by_name, t->name) == NONE ? t->name : NULL;
    return graph_const(s->g, name, data);
}

static const Slot *lookup(ImportState *s, const char *name, Where w)
{
    uint32_t at = strmap_get(&s->env, name), init;
    if (at == NONE) {
        init = strmap_get(&s->m->init_index, name);
        if (init == NONE)
            diag_fatal(EXIT_MODEL, w, "value '%s' is made by nothing", name);
        import_define(s, name, (Slot){.v = constant(s, init)});
        at = strmap_get(&s->env, name);
    }
    return &s->slot.at[at];
}

const Slot *import_slot(ImportState *s, const RawNode *n, uint32_t input)
{
    return *n->in[input] ? lookup(s, n->in[input], raw_where(s->m, n, (int)input)) : NULL;
}

/* ---- nodes ---- */

static bool is_op(const RawNode *n, const char *domain, const char *type)
{
    return !strcmp(n->domain, domain) && !strcmp(n->op_type, type);
}

static bool is_marker(const RawNode *n) { return is_op(n, "ppsplit", "Split"); }

/* The value as one through which no gradient passes; where none would pass anyway, as it is. */
static ValueId stopped(ImportState *s, ValueId v)
{
    if (!s->opt->training || v == NONE || !dtype_is_float(val(s->g, v)->dtype) || (val(s->g, v)->kind != V_NODE && val(s->g, v)->kind != V_PARAM))
        return v;
    return g_unary(s->g, OP_StopGradient, v);
}

/* The same for what a node has defined: the result of a branch, a sequence.  What is stopped already stays as it is. */
static void stop_defined(ImportState *s, const RawNode *n)
{
    for (uint32_t i = 0; i < n->nout && n->stop_out; i++) {
        uint32_t at = n->stop_out[i] ? strmap_get(&s->env, n->out[i]) : NONE;
        if (at == NONE)
            continue;
        Slot slot = s->slot.at[at];
        Ids list = {0};
        for (uint32_t k = 0; k < slot.sequence.n; k++)
            vec_push(s->g->arena, &list, stopped(s, slot.sequence.at[k]));
        slot.sequence = list;
        slot.v = slot.is_sequence ? slot.v : stopped(s, slot.v);
        import_define(s, n->out[i], slot);
    }
}

static ImportFn *importer(const RawNode *n, Op *op)
{
    *op = *n->domain ? OP_NONE : op_find(n->op_type);
    return *op == OP_NONE ? NULL : rows[*op].fn;
}

static void begin_origin(ImportState *s, const RawNode *n)
{
    Origin o = {
        .name = n->name, .type = n->op_type, .scope = n->scope, .index = n->index, .call = n->call,
        .pipeline_stage = s->stage >= 0 ? s->stage : n->pipeline_stage, .split_marker = is_marker(n),
    };
    s->g->cur_origin = s->g->origin.n;
    vec_push(s->g->arena, &s->g->origin, o);
}

/* A bias the exporter dropped because it is zero: added to the result, along the channels of a convolution. */
static ValueId with_bias(ImportState *s, const RawNode *n, ValueId v)
{
    Graph *g = s->g;
    ValueId bias = g->param.at[n->bias].value;
    int rank = val(g, v)->shape.rank;
    if (!strncmp(n->op_type, "Conv", 4) && rank > 2) {
        Shape to = {.rank = rank - 1};
        to.d[0] = val(g, bias)->shape.d[0];
        for (int i = 1; i < to.rank; i++)
            to.d[i] = 1;
        bias = g_reshape(g, bias, &to);
    }
    return g_add(g, v, bias);
}

static void define_outputs(ImportState *s, const RawNode *n, const ValueId *out)
{
    for (uint32_t i = 0; i < n->nout; i++) {
        if (!*n->out[i])
            continue;
        if (out[i] != NONE) {
            ValueId v = n->stop_out && n->stop_out[i] ? stopped(s, out[i]) : out[i];
            name_value(s, v, n->out[i]);
            import_define(s, n->out[i], (Slot){.v = v});
        } else if (strmap_get(&s->env, n->out[i]) == NONE) {
            diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "its output %u is not supported", i);
        }
    }
}

static void import_list(ImportState *s, const RawNodes *list);
static void mark_live(Model *m, RawNodes *list, uint32_t n, const char *const *root);

static void import_if(ImportState *s, RawNode *n, const ValueId *in)
{
    int64_t *condition, count;
    if (n->nin != 1 || in[0] == NONE)
        diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "its condition is missing");
    if (!g_const_ints(s->g, in[0], s->g->arena, &condition, &count) || count != 1) {
        diag_hint("when it follows from symbolic dimensions, --bind NAME=N gives them values");
        diag_fatal(EXIT_MODEL, raw_where(s->m, n, 0), "the condition must be known when the model is read");
    }
    RawNodes list = {0};
    const char **out;
    uint32_t nout;
    inline_branch(s->m, n, condition[0] ? "then_branch" : "else_branch", &list, &nout, &out);
    if (nout < n->nout)
        diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "its branch has %u outputs, %u are used", nout, n->nout);
    sort_nodes(s->m, &list);
    scope_assign(s->m, &list);
    mark_live(s->m, &list, nout, out);
    if (s->params)
        param_assign(s->params, &list);
    stop_assign(s->stops, s->m, s->params, &list);
    import_list(s, &list);
    for (uint32_t i = 0; i < n->nout; i++)
        if (*n->out[i])
            import_define(s, n->out[i], *lookup(s, out[i], raw_where(s->m, n, -1)));
    stop_defined(s, n);
}

static void check_count(ImportState *s, const RawNode *n, Op op)
{
    if (n->nin > rows[op].hi)
        diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "it has %u inputs, at most %u are possible", n->nin, rows[op].hi);
    for (uint32_t i = 0; i < rows[op].lo; i++)
        if (i >= n->nin || !*n->in[i])
            diag_fatal(EXIT_MODEL, raw_where(s->m, n, (int)i), "this input is missing");
    if (n->opset == 0)
        diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "the model imports no opset for its domain");
}

static bool takes_sequence(const RawNode *n)
{
    return is_op(n, "", "SequenceAt") || is_op(n, "", "ConcatFromSequence") || is_op(n, "", "Identity");
}

static void import_node(ImportState *s, RawNode *n)
{
    Graph *g = s->g;
    begin_origin(s, n);
    ValueId *in = arena_array(g->arena, ValueId, n->nin), *out = arena_array(g->arena, ValueId, n->nout);
    for (uint32_t i = 0; i < n->nout; i++)
        out[i] = NONE;
    for (uint32_t i = 0; i < n->nin; i++) {
        bool stop = n->stop_in && n->stop_in[i];
        if (param_is_used(n, i)) {
            in[i] = recipe_build(g, n->made[i], NULL);
            if (stop)
                in[i] = stopped(s, in[i]);
            continue;
        }
        const Slot *slot = import_slot(s, n, i);
        if (slot && slot->is_sequence && !takes_sequence(n))
            diag_fatal(EXIT_MODEL, raw_where(s->m, n, (int)i), "a sequence where a tensor is needed");
        in[i] = slot ? slot->v : NONE;
        if (stop)
            in[i] = stopped(s, in[i]);
    }
    if (is_op(n, "", "If")) {
        import_if(s, n, in);
        return;
    }
    if (is_marker(n) || stop_marker(n)) {
        if (n->nin != n->nout)
            diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "it must have as many outputs as inputs");
        for (uint32_t i = 0; i < n->nin; i++)
            out[i] = in[i] == NONE || stop_marker(n) ? in[i] : g_unary(g, OP_Identity, in[i]);
        define_outputs(s, n, out);
        return;
    }
    if (is_op(n, "", "Identity") && n->nin == 1 && n->nout == 1 && *n->in[0] && in[0] == NONE) {
        import_define(s, n->out[0], *import_slot(s, n, 0));
        stop_defined(s, n);
        return;
    }
    Op op;
    ImportFn *fn = importer(n, &op);
    check_count(s, n, op);
    Import im = {
        .g = g, .arena = g->arena, .op = op, .op_type = n->op_type, .opset = n->opset, .nin = n->nin, .nout = n->nout,
        .in = in, .out = out, .training = s->opt->training, .state = s, .node = n,
    };
    Where here = im_where(&im, -1);
    const Where *before = diag_at(&here);
    fn(&im);
    if (n->bias != NONE && n->nout && out[0] != NONE)
        out[0] = with_bias(s, n, out[0]);
    diag_at(before);
    define_outputs(s, n, out);
    stop_defined(s, n);
}

static void import_list(ImportState *s, const RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (!list->at[i]->dead)
            import_node(s, list->at[i]);
}

/* ---- what is needed, what is not supported ---- */

static void mark_name(void *live, const char *name) { *strmap_at(live, name) = 1; }

static void mark_live(Model *m, RawNodes *list, uint32_t n, const char *const *root)
{
    StrMap live = {.arena = m->arena};
    for (uint32_t i = 0; i < n; i++)
        mark_name(&live, root[i]);
    for (uint32_t i = list->n; i-- > 0;) {
        RawNode *node = list->at[i];
        node->dead = true;
        for (uint32_t j = 0; j < node->nout; j++)
            if (*node->out[j] && strmap_get(&live, node->out[j]) != NONE)
                node->dead = false;
        if (node->dead)
            continue;
        for (uint32_t j = 0; j < node->nin; j++)
            mark_name(&live, node->in[j]);
        inline_captured(m, node, mark_name, &live);
    }
}

static const char *nearest_op(const RawNode *n)
{
    const char *name[OP_COUNT];
    uint32_t count = 0;
    for (Op op = OP_NONE + 1; op < OP_COUNT; op++)
        if (rows[op].fn)
            name[count++] = op_name(op);
    return *n->domain ? NULL : nearest_name(n->op_type, name, count);
}

static void refuse_unsupported(Model *m, const RawNodes *list)
{
    enum { SHOWN = 20 };
    StrMap seen = {.arena = m->arena};
    VEC(uint32_t) first = {0}, count = {0};
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        Op op;
        if (n->dead || importer(n, &op) || is_marker(n) || stop_marker(n) || is_op(n, "", "If"))
            continue;
        uint32_t *slot = strmap_at(&seen, arena_printf(m->arena, "%s\n%s", n->domain, n->op_type));
        if (*slot == NONE) {
            *slot = first.n;
            vec_push(m->arena, &first, i);
            vec_push(m->arena, &count, 0);
        }
        count.at[*slot]++;
    }
    if (first.n == 0)
        return;
    const char *text = "";
    for (uint32_t i = 0; i < first.n && i < SHOWN; i++) {
        const RawNode *n = list->at[first.at[i]];
        const char *near = nearest_op(n);
        text = arena_printf(m->arena, "%s\n  %u x %s%s%.64s, first in node %u '%.64s'%s%s%s", text, count.at[i], diag_escape(m->arena, n->domain),
                            *n->domain ? "." : "", diag_escape(m->arena, n->op_type), n->index, diag_escape(m->arena, n->name), near ? " (did you mean " : "",
                            near ? near : "", near ? "?)" : "");
    }
    if (first.n > SHOWN)
        text = arena_printf(m->arena, "%s\n  and %u more", text, first.n - SHOWN);
    diag_hint("ppsplit ops prints what is supported");
    diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "%u operator%s not supported:%s", first.n, first.n == 1 ? " is" : "s are",
               text);
}

/* ---- inputs and outputs ---- */

static bool option_for(const char *option, const char *name, const char **value)
{
    const char *equals = strrchr(option, '=');
    if (!equals || (size_t)(equals - option) != strlen(name) || strncmp(option, name, strlen(name)))
        return false;
    *value = equals + 1;
    return true;
}

static int64_t bound(const ImportOptions *opt, const char *name)
{
    const char *value;
    for (uint32_t i = 0; i < opt->bind.n; i++)
        if (option_for(opt->bind.at[i], name, &value)) {
            char *end;
            long long n = strtoll(value, &end, 10);
            if (*end || end == value || n < 1 || n > INT32_MAX)
                diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: the value must be a number from 1", opt->bind.at[i]);
            return n;
        }
    return -1;
}

typedef struct { VEC(const char *) name; StrMap seen; } Symbols;

/* Dimension i of an input: its value, or what --bind says; -1 when unbound, which is remembered. */
static int64_t dimension(ImportState *s, const Onnx__TensorShapeProto__Dimension *d, const char *input, int i,
                         Symbols *all, Symbols *unbound)
{
    if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0)
        return d->dim_value;
    bool named = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param;
    const char *name = named ? d->dim_param : arena_printf(s->g->arena, "%s.%d", input, i);
    int64_t n = bound(s->opt, name);
    if (*strmap_at(&all->seen, name) == NONE) {
        *strmap_at(&all->seen, name) = 1;
        vec_push(s->g->arena, &all->name, name);
        if (n < 0)
            vec_push(s->g->arena, &unbound->name, name);
    }
    return n;
}

static const Onnx__TypeProto__Tensor *tensor_type(const Onnx__ValueInfoProto *v, Where w)
{
    if (!v->type || v->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !v->type->tensor_type->shape)
        diag_fatal(EXIT_MODEL, w, "it must be a tensor of a declared shape");
    const Onnx__TypeProto__Tensor *t = v->type->tensor_type;
    if (!dtype_is_computable((Dtype)t->elem_type)) {
        diag_hint("types computed in are f32, f64, i32, i64 and bool");
        diag_fatal(EXIT_MODEL, w, "its type is %s", t->elem_type > 0 ? dtype_name((Dtype)t->elem_type) : "not given");
    }
    if (t->shape->n_dim > MAX_RANK)
        diag_fatal(EXIT_MODEL, w, "rank %zu: the limit is %d", t->shape->n_dim, MAX_RANK);
    return t;
}

/* A later model of a sequence reads what the one before yields: its shape must agree where it is given. */
static void check_fed(ImportState *s, const Onnx__TypeProto__Tensor *t, ValueId v, Where w)
{
    const Value *x = val(s->g, v);
    bool same = x->dtype == (Dtype)t->elem_type && (size_t)x->shape.rank == t->shape->n_dim;
    for (int i = 0; same && i < x->shape.rank; i++) {
        const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[i];
        if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0)
            same = d->dim_value == x->shape.d[i];
    }
    if (!same)
        diag_fatal(EXIT_MODEL, w, "the model before yields %s here", shape_print(s->g->arena, x->dtype, &x->shape));
}

static bool is_data_input(const ImportState *s, const Onnx__ValueInfoProto *v)
{
    return strmap_get(&s->m->init_index, v->name) == NONE;
}

static void set_batch(Graph *g, const ImportOptions *opt)
{
    for (uint32_t i = 0; i < g->input.n; i++) {
        const Value *v = val(g, g->input.at[i]);
        const char *chunk = NULL;
        for (uint32_t j = 0; j < opt->chunk.n && !chunk; j++)
            option_for(opt->chunk.at[j], v->name, &chunk);
        int64_t dim = chunk && *chunk >= '0' && *chunk <= '9' ? strtoll(chunk, NULL, 10) : 0;
        if ((chunk && !strcmp(chunk, "replicate")) || dim >= v->shape.rank || v->shape.d[dim] < 1)
            continue;
        g->batch = v->shape.d[dim];
        return;
    }
}

/* The input `target` that a loss model asks for: its type, and its shape, where the first input's symbols are known. */
static ValueId make_target(ImportState *s, const Ids *fed, const Onnx__TypeProto__Tensor *t, Where w)
{
    const Onnx__TypeProto__Tensor *first = tensor_type(s->m->graph->input[0], w);
    Shape shape = {.rank = (int)t->shape->n_dim}, known = val(s->g, fed->at[0])->shape;
    for (int i = 0; i < shape.rank; i++) {
        const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[i];
        bool named = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param;
        bool number = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        shape.d[i] = number ? d->dim_value : named ? bound(s->opt, d->dim_param) : -1;
        for (int j = 0; named && j < known.rank && (size_t)j < first->shape->n_dim; j++) {
            const Onnx__TensorShapeProto__Dimension *f = first->shape->dim[j];
            if (f->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && !strcmp(f->dim_param, d->dim_param))
                shape.d[i] = known.d[j];
        }
        if (shape.d[i] < 0)
            diag_fatal(EXIT_MODEL, w, "dimension %d has no value", i);
    }
    shape_elements(&shape);
    return graph_input(s->g, "target", (Dtype)t->elem_type, &shape);
}

/* fed: what the inputs read instead of data, by position; NONE: the target, made here and put there. */
static void bind_inputs(ImportState *s, Ids *fed, Symbols *all)
{
    Symbols unbound = {0};
    uint32_t position = 0;
    for (size_t i = 0; i < s->m->graph->n_input; i++) {
        const Onnx__ValueInfoProto *v = s->m->graph->input[i];
        Where w = {s->m->path, "input", (uint32_t)i, v->name, NULL, -1};
        if (!is_data_input(s, v))
            continue;
        const Onnx__TypeProto__Tensor *t = tensor_type(v, w);
        bool stop = stop_named(s->stops, v->name);
        if (fed) {
            if (position >= fed->n)
                diag_fatal(EXIT_MODEL, w, "the model before has only %u outputs", fed->n);
            ValueId from = fed->at[position];
            if (from == NONE)
                from = fed->at[position] = make_target(s, fed, t, w);
            else
                check_fed(s, t, from, w);
            position++;
            import_define(s, v->name, (Slot){.v = stop ? stopped(s, from) : from});
            continue;
        }
        Shape shape = {.rank = (int)t->shape->n_dim};
        bool known = true;
        for (int d = 0; d < shape.rank; d++) {
            shape.d[d] = dimension(s, t->shape->dim[d], v->name, d, all, &unbound);
            known = known && shape.d[d] >= 0;
        }
        if (!known)
            continue;
        shape_elements(&shape);
        const char *name = v->name;
        while (strmap_get(&s->g->by_name, name) != NONE)
            name = arena_printf(s->g->arena, "%s@", name);
        import_define(s, v->name, (Slot){.v = graph_input(s->g, name, (Dtype)t->elem_type, &shape)});
    }
    if (unbound.name.n == 0)
        return;
    const char *list = "", *hint = "";
    for (uint32_t i = 0; i < unbound.name.n && i < 32; i++) {
        list = arena_printf(s->g->arena, "%s%s'%s'", list, i ? ", " : "", unbound.name.at[i]);
        hint = arena_printf(s->g->arena, "%s --bind %s=N", hint, unbound.name.at[i]);
    }
    diag_hint("shapes are those of one microbatch: add%s", hint);
    diag_fatal(EXIT_MODEL, WHERE_FILE(s->m->path), "dimensions without a value: %s", list);
}

static void check_binds(const ImportOptions *opt, const Symbols *all)
{
    const char *value;
    for (uint32_t i = 0; i < opt->bind.n; i++) {
        bool used = false;
        for (uint32_t j = 0; j < all->name.n && !used; j++)
            used = option_for(opt->bind.at[i], all->name.at[j], &value);
        if (used)
            continue;
        const char *near = nearest_name(opt->bind.at[i], all->name.at, all->name.n);
        if (near)
            diag_hint("did you mean '%s'?", near);
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: the model has no such dimension", opt->bind.at[i]);
    }
}

/* ---- one model, several models ---- */

static void run_model(ImportState *s, Ids *out, bool last)
{
    Model *m = s->m;
    s->g->file = m->path;
    import_list(s, &m->node);
    *out = (Ids){0};
    for (size_t i = 0; i < m->graph->n_output; i++) {
        const char *name = m->graph->output[i]->name ? m->graph->output[i]->name : "";
        Where w = {m->path, "output", (uint32_t)i, name, NULL, -1};
        const Slot *slot = lookup(s, name, w);
        if (slot->is_sequence)
            diag_fatal(EXIT_MODEL, w, "a sequence cannot be an output");
        vec_push(s->g->arena, out, slot->v);
        if (last) {
            vec_push(s->g->arena, &s->g->output, slot->v);
            vec_push(s->g->arena, &s->g->output_name, name);
        }
    }
    s->g->cur_origin = 0;
}

static void prepare(Model *m)
{
    const char **root = arena_array(m->arena, const char *, m->graph->n_output);
    for (size_t i = 0; i < m->graph->n_output; i++)
        root[i] = m->graph->output[i]->name ? m->graph->output[i]->name : "";
    mark_live(m, &m->node, (uint32_t)m->graph->n_output, root);
    refuse_unsupported(m, &m->node);
}

static Graph *import_all(Arena *a, uint32_t n, const char *const *path, const ImportOptions *opt)
{
    Graph *g = graph_new(a, path[0]);
    Model **model = arena_array(a, Model *, n);
    Params **params = arena_array(a, Params *, n);
    Symbols all = {.seen.arena = a};
    Stops *stops = stop_begin(a, opt);
    Ids between = {0};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < i && !model[i]; j++)
            if (!strcmp(path[i], path[j])) {
                model[i] = model[j];
                params[i] = params[j];
            }
        if (!model[i]) {
            g->file = path[i];
            model[i] = model_open(a, path[i], &opt->limits);
            prepare(model[i]);
            params[i] = param_begin(model[i], g, opt, i);
            param_assign(params[i], &model[i]->node);
            param_report(params[i]);
            stop_assign(stops, model[i], params[i], &model[i]->node);
        }
        vec_push(a, &g->model, model[i]);
        g->model_hash = (g->model_hash ^ model[i]->wire.hash) * 1099511628211u;
        ImportState s = {.g = g, .m = model[i], .params = params[i], .stops = stops, .opt = opt, .stage = n > 1 ? (int)i : -1, .env.arena = a};
        bind_inputs(&s, i ? &between : NULL, &all);
        if (i == 0) {
            check_binds(opt, &all);
            set_batch(g, opt);
        }
        run_model(&s, &between, i == n - 1);
    }
    stop_check(stops, g);
    param_check_given(opt, n, params);
    g->file = path[0];
    return g;
}

/* A pattern of --freeze or --train that matches nothing is a mistake. */
static void check_pattern(const Graph *g, const char *option, const char *pattern)
{
    const char **name = arena_array(g->arena, const char *, g->param.n + 1);
    for (uint32_t i = 0; i < g->param.n; i++) {
        name[i] = g->param.at[i].name;
        if (!fnmatch(pattern, name[i], 0))
            return;
    }
    const char *near = nearest_name(pattern, name, g->param.n);
    if (near)
        diag_hint("did you mean '%s'?", near);
    diag_fatal(EXIT_USAGE, WHERE_FILE(g->file), "%s %s: no parameter matches", option, pattern);
}

Graph *import_models(Arena *a, uint32_t n, const char *const *path, const ImportOptions *opt)
{
    INSIST(n >= 1);
    Graph *g = import_all(a, n, path, opt);
    for (uint32_t i = 0; i < opt->freeze.n; i++)
        check_pattern(g, "--freeze", opt->freeze.at[i]);
    for (uint32_t i = 0; i < opt->train.n; i++)
        check_pattern(g, "--train", opt->train.at[i]);
    graph_verify(g);
    return g;
}

ValueId import_loss_model(Graph *g, const char *path, const ImportOptions *opt, ValueId output, ValueId *target)
{
    const char *file = g->file;
    ImportOptions own = *opt;
    own.stop.n = 0;                                     /* the names are those of the model */
    ImportState s = {.g = g, .m = model_open(g->arena, path, &opt->limits), .stops = stop_begin(g->arena, &own), .opt = &own,
                     .stage = -1, .env.arena = g->arena};
    Ids fed = {0}, out;
    Symbols all = {.seen.arena = g->arena};
    vec_push(g->arena, &fed, output);
    vec_push(g->arena, &fed, NONE);
    prepare(s.m);
    stop_assign(s.stops, s.m, NULL, &s.m->node);
    bind_inputs(&s, &fed, &all);
    run_model(&s, &out, false);
    g->file = file;
    *target = fed.at[1];
    return out.at[0];
}

/*
 * import.c - the import driver: ONNX models to one Graph of core ops.  In: paths.  Out: the Graph.
 *
 * For each model: open it (onnx/), find what its outputs need (body.c), refuse all unsupported ops
 * at once, decide the parameters (names/), bind the inputs' dimensions (inputs.c), then translate
 * node by node through the IMPORT column of ops.def; branches and loops are control.c's.  Several
 * models run in sequence.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/file/hash.h"
#include "driver.h"
#include "ir/facts/facts.h"

typedef void ImportFn(Import *);

typedef struct { const char *name; ImportFn *fn; uint32_t lo, hi; const char *domain; } Row;

static const Row rows[OP_COUNT] = {
#define IMPORT(...) OPS_FN(__VA_ARGS__, ~)
#define NOIMPORT NULL
#define OP(name, lo, hi, since, import, ...) [OP_##name] = {#name, import, lo, hi, ""},
#define COMPOSITE(name, lo, hi, since, ...)                                                        \
    [OP_##name] = {#name, OPS_FN(__VA_ARGS__, ~), lo, hi, ""},
#include "ir/ops.def"
};

static const Row foreign[] = {
#define OP(...)
#define FOREIGN(domain, name, lo, hi, ...) {#name, OPS_FN(__VA_ARGS__, ~), lo, hi, domain},
#include "ir/ops.def"
};
enum { N_FOREIGN = sizeof foreign / sizeof *foreign };


/* ---- nodes ---- */

static bool is_op(const RawNode *n, const char *domain, const char *type)
{
    return !strcmp(n->domain, domain) && !strcmp(n->op_type, type);
}

static bool is_marker(const RawNode *n) { return is_op(n, "ppsplit", "Split"); }

/* No gradient passes what a node has defined already: the result of a branch, a sequence. */
static void stop_defined(ImportState *s, const RawNode *n)
{
    for (uint32_t i = 0; i < n->nout && n->stop_out; i++) {
        uint32_t at = n->stop_out[i] ? strmap_get(&s->env, n->out[i]) : NONE;
        if (at == NONE)
            continue;
        Slot slot = s->slot.at[at];
        Ids list = {0};
        for (uint32_t k = 0; k < slot.sequence.n; k++)
            vec_push(s->g->arena, &list, import_stopped(s, slot.sequence.at[k]));
        slot.sequence = list;
        slot.v = slot.is_sequence ? slot.v : import_stopped(s, slot.v);
        import_define(s, n->out[i], slot);
    }
}

/* The row of the node's operator, NULL: it is not supported; op: OP_NONE for a foreign one, or one
 * of the user's own. */
static const Row *row_of(const ImportOptions *opt, const RawNode *n, Op *op)
{
    static const Row own = {"Custom", import_custom, 0, UINT32_MAX, ""};
    *op = *n->domain ? OP_NONE : op_find(n->op_type);
    if (*op != OP_NONE)
        return rows[*op].fn ? &rows[*op] : NULL;
    for (int i = 0; i < N_FOREIGN; i++)
        if (is_op(n, foreign[i].domain, foreign[i].name))
            return &foreign[i];
    return custom_find(&opt->custom, n) ? &own : NULL;
}

static void begin_origin(ImportState *s, const RawNode *n)
{
    Origin o = {
        .name = n->name,
        .type = n->op_type,
        .scope = n->scope,
        .index = n->index,
        .call = n->call,
        .pipeline_stage = s->stage >= 0 ? s->stage : n->pipeline_stage,
        .split_marker = is_marker(n),
    };
    s->g->cur_origin = s->g->origin.n;
    vec_push(s->g->arena, &s->g->origin, o);
}

/* A bias the exporter dropped because it is zero: added to the result, along the channels of a
 * convolution. */
static ValueId with_bias(ImportState *s, const RawNode *n, ValueId v)
{
    Graph *g = s->g;
    ValueId bias = g_cast(g, g->param.at[n->bias].value, val(g, v)->dtype);
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

/* The file's type of result 0, where the graph holds another: said by the node, or its
   operand's. */
static Dtype declared_type(ImportState *s, const RawNode *n, const Import *im, ValueId out)
{
    bool constant = is_op(n, "", "Constant") || is_op(n, "", "ConstantOfShape");
    const Onnx__AttributeProto *a = constant ? raw_attr(n, "value") : NULL;
    Dtype t = im ? im->declared : DT_NONE;
    if (a && a->t)
        t = (Dtype)a->t->data_type;
    else if (t == DT_NONE && n->nin && *n->in[0] && !param_is_used(n, 0))
        t = import_slot(s, n, 0)->declared;
    bool other = t > DT_NONE && t <= DT_LAST && dtype_held(t) != t;
    return other && dtype_held(t) == val(s->g, out)->dtype ? t : DT_NONE;
}

/* im: NULL where the driver made them. */
static void define_outputs(ImportState *s, const RawNode *n, const Import *im, const ValueId *out)
{
    for (uint32_t i = 0; i < n->nout; i++) {
        if (!*n->out[i])
            continue;
        if (out[i] != NONE) {
            ValueId v = n->stop_out && n->stop_out[i] ? import_stopped(s, out[i]) : out[i];
            import_name_value(s, v, n->out[i]);
            Dtype declared = i == 0 ? declared_type(s, n, im, v) : DT_NONE;
            import_define(s, n->out[i], (Slot){.v = v, .declared = declared});
        } else if (strmap_get(&s->env, n->out[i]) == NONE) {
            diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "its output %u is not supported", i);
        }
    }
}

static bool takes_sequence(const RawNode *n)
{
    static const char *const ops[] = {
        "SequenceAt",    "SequenceInsert", "SequenceErase",      "SequenceLength",
        "ConcatFromSequence", "Optional",  "OptionalGetElement", "OptionalHasElement",
        "Identity"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (is_op(n, "", ops[i]))
            return true;
    return control_is(n);
}

static void check_count(ImportState *s, const RawNode *n, const ValueId *in, const Row *row)
{
    if (n->nin > row->hi)
        diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "it has %u inputs, at most %u are possible",
                   n->nin, row->hi);
    for (uint32_t i = 0; i < row->lo; i++)
        if (i >= n->nin || !*n->in[i] || (in[i] == NONE && !takes_sequence(n)))
            diag_fatal(EXIT_MODEL, raw_where(s->m, n, (int)i), "this input is missing");
    if (n->opset == 0)
        diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "the model imports no opset for its domain");
}

/* Parameters are f32 (or f64), and cast where the file's are of a half type: a view's at the
 * parameter itself, so that the runtime keeps the copy. */
static ValueId made_of_params(ImportState *s, const RawNode *n, uint32_t input)
{
    Graph *g = s->g;
    const Recipe *r = n->made[input];
    Dtype t = recipe_type(s->m, n, input, DT_NONE);
    if (!dtype_is_half(t))
        return recipe_build(g, r, NULL);
    if (!recipe_is_view(r))
        return g_cast(g, recipe_build(g, r, NULL), t);
    for (uint32_t p = s->half.n; p < g->param.n; p++)
        vec_push(g->arena, &s->half, g->param.at[p].value);
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t p = r->at[i].op == OP_NONE ? r->at[i].param : NONE;
        if (p != NONE && val(g, s->half.at[p])->dtype != t)
            s->half.at[p] = g_cast(g, g->param.at[p].value, t);
    }
    return recipe_build(g, r, s->half.at);
}

static void import_body(ImportState *s, const RawNodes *list);

/* What the node's inputs are as values; NONE: left out, or no tensor. */
static ValueId *read_inputs(ImportState *s, RawNode *n)
{
    ValueId *in = arena_array(s->g->arena, ValueId, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) {
        const bool made = param_is_used(n, i);
        const Slot *slot = made ? NULL : import_slot(s, n, i);
        if (slot && slot->is_sequence && !takes_sequence(n))
            diag_fatal(EXIT_MODEL, raw_where(s->m, n, (int)i),
                       "a sequence where a tensor is needed");
        in[i] = made ? made_of_params(s, n, i) : slot ? slot->v : NONE;
    }
    return in;
}

/* A mark of a split, or of values that send no gradient back: what comes in goes out. */
static void import_marker(ImportState *s, const RawNode *n, const ValueId *in, ValueId *out)
{
    if (n->nin != n->nout)
        diag_fatal(EXIT_MODEL, raw_where(s->m, n, -1), "it must have as many outputs as inputs");
    for (uint32_t i = 0; i < n->nin; i++)
        out[i] = in[i] == NONE || stop_marker(n)
                     ? in[i]
                     : ragged_passed(s, in[i], g_unary(s->g, OP_Identity, in[i]), true);
    define_outputs(s, n, NULL, out);
}

/* By its importer of frontend/ops/. */
static void import_operator(ImportState *s, RawNode *n, ValueId *in, ValueId *out)
{
    Op op;
    const Row *row = row_of(s->opt, n, &op);
    check_count(s, n, in, row);
    if (op == OP_Add && n->nin == 2 && s->opt->training && !n->fx_node)
        untold_sum(s, n, in);
    Import im = {
        .g = s->g,
        .arena = s->g->arena,
        .op = op,
        .op_type = n->op_type,
        .opset = n->opset,
        .nin = n->nin,
        .nout = n->nout,
        .in = in,
        .out = out,
        .training = s->opt->training,
        .biased = metadata_get(s->m->graph->n_metadata_props, s->m->graph->metadata_props,
                               "ppsplit.biased_variance"),
        .state = s,
        .node = n,
    };
    Where here = im_where(&im, -1);
    const Where *before = diag_at(&here);
    ragged_import(s, &im, row->fn);
    ValueId made = n->nout ? out[0] : NONE;
    if (op != OP_NONE)
        low_wrap_result(&im);
    if (n->bias != NONE && made != NONE)
        out[0] = with_bias(s, n, out[0]);
    if (made != NONE)
        out[0] = ragged_passed(s, made, out[0], n->bias == NONE);
    diag_at(before);
    if (s->opt->training && made != NONE)
        untold_block(s, n, made);
    define_outputs(s, n, &im, out);
    stop_defined(s, n);
}

enum { MOST_OUTPUTS = 5 }; /* of an importer that writes without asking (BatchNormalization) */

static void import_node(ImportState *s, RawNode *n)
{
    s->body = import_body;
    s->node = import_node;
    begin_origin(s, n);
    /* importers give all outputs that an operator may have, whichever the node names */
    uint32_t nout = n->nout > MOST_OUTPUTS ? n->nout : MOST_OUTPUTS;
    ValueId *in = read_inputs(s, n), *out = arena_none(s->g->arena, nout);
    detach_check(s, n, in);
    if (control_is(n)) {
        control_import(s, n, in);
        stop_defined(s, n);
    } else if (is_marker(n) || stop_marker(n)) {
        import_marker(s, n, in, out);
    } else if (is_op(n, "", "Identity") && n->nin == 1 && n->nout == 1 && *n->in[0] &&
               in[0] == NONE) {
        /* of a sequence */
        import_define(s, n->out[0], *import_slot(s, n, 0));
        stop_defined(s, n);
    } else {
        import_operator(s, n, in, out);
    }
}

static void import_list(ImportState *s, const RawNodes *list)
{
    const RawNodes *around = s->list;
    s->list = list;
    for (uint32_t i = 0; i < list->n; i++)
        if (!list->at[i]->dead && !trips_take(s, list->at[i]))
            import_node(s, list->at[i]);
    s->list = around;
}

/* ---- what is needed, what is not supported ---- */

static const char *nearest_op(const RawNode *n)
{
    const char *name[OP_COUNT];
    uint32_t count = 0;
    for (Op op = OP_NONE + 1; op < OP_COUNT; op++)
        if (rows[op].fn)
            name[count++] = op_name(op);
    return *n->domain ? NULL : nearest_name(n->op_type, name, count);
}

static void refuse_unsupported(Model *m, const RawNodes *list, const ImportOptions *opt)
{
    enum { SHOWN = 20 };
    StrMap seen = {.arena = m->arena};
    VEC(uint32_t) first = {0}, count = {0};
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        Op op;
        if (n->dead || row_of(opt, n, &op) || is_marker(n) || stop_marker(n) || control_is(n))
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
        const char *why = op_refused(n->domain, n->op_type), *near = why ? NULL : nearest_op(n);
        text = arena_printf(m->arena, "%s\n  %u x %s%s%.64s, first in node %u '%.64s'%s%s%s%s%s",
                            text, count.at[i], diag_escape(m->arena, n->domain),
                            *n->domain ? "." : "",
                            diag_escape(m->arena, n->op_type), n->index,
                            diag_escape(m->arena, n->name), near ? " (did you mean " : "",
                            near ? near : "", near ? "?)" : "", why ? ": " : "",
                            why ? why : "");
    }
    if (first.n > SHOWN)
        text = arena_printf(m->arena, "%s\n  and %u more", text, first.n - SHOWN);
    diag_hint(*list->at[first.at[0]]->domain ? "if it is an operation of your own, --ops FILE "
                                               "names C functions for it (docs/custom.md)"
                                             : "ppsplit ops prints what is supported");
    diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "%u operator%s not supported:%s", first.n,
               first.n == 1 ? " is" : "s are", text);
}

static void import_body(ImportState *s, const RawNodes *list)
{
    refuse_unsupported(s->m, list, s->opt);
    import_list(s, list);
}

/* ---- one model, several models ---- */

/* One whose size depends on the data has the largest that it can have, and beside it NAME.count. */
static void add_output(ImportState *s, ValueId v, const char *name, Where w, Ids *out, bool last)
{
    ValueId count = ragged_output(s, &v, w);
    if (count != NONE && !last)
        diag_fatal(
            EXIT_MODEL, w,
            "its size depends on the data, so it cannot be passed from one model to the next");
    vec_push(s->g->arena, out, v);
    if (!last)
        return;
    vec_push(s->g->arena, &s->g->output, v);
    vec_push(s->g->arena, &s->g->output_name, name);
    if (count != NONE) {
        name = arena_printf(s->g->arena, "%s.count", name);
        import_name_value(s, count, name);
        vec_push(s->g->arena, &s->g->output, count);
        vec_push(s->g->arena, &s->g->output_name, name);
    }
}

/* A sequence is several outputs: NAME.0, NAME.1, ... */
static void run_model(ImportState *s, Ids *out, bool last)
{
    Model *m = s->m;
    s->g->file = m->path;
    drops_find(s, &m->node);
    import_list(s, &m->node);
    detach_report(s);
    untold_report(s);
    *out = (Ids){0};
    for (size_t i = 0; i < m->graph->n_output; i++) {
        const char *name = m->graph->output[i]->name ? m->graph->output[i]->name : "";
        Where w = {m->path, "output", (uint32_t)i, name, NULL, -1};
        const Slot *slot = import_lookup(s, name, w);
        if (!slot->is_sequence) {
            add_output(s, slot->v, name, w, out, last);
            continue;
        }
        if (!last)
            diag_fatal(EXIT_MODEL, w, "a sequence cannot be passed from one model to the next");
        if (slot->sequence.n == 0)
            diag_fatal(EXIT_MODEL, w, "a sequence without elements");
        if (slot->there.n)
            diag_fatal(EXIT_MODEL, w, "a sequence whose length depends on the data: its elements "
                                      "must be joined");
        const Ids list = slot->sequence;
        for (uint32_t k = 0; k < list.n; k++)
            add_output(s, list.at[k], arena_printf(s->g->arena, "%s.%u", name, k), w, out, last);
    }
    s->g->cur_origin = 0;
}

static void prepare(Model *m, const ImportOptions *opt)
{
    const char **root = arena_array(m->arena, const char *, m->graph->n_output);
    for (size_t i = 0; i < m->graph->n_output; i++)
        root[i] = m->graph->output[i]->name ? m->graph->output[i]->name : "";
    import_mark_live(m, &m->node, (uint32_t)m->graph->n_output, root);
    refuse_unsupported(m, &m->node, opt);
}

/* What their parameters are is known when they have run. */
static bool has_bodies(const RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (!list->at[i]->dead && control_is(list->at[i]))
            return true;
    return false;
}

static bool first_use(Model *const *model, uint32_t i)
{
    for (uint32_t j = 0; j < i; j++)
        if (model[j] == model[i])
            return false;
    return true;
}

static Graph *import_all(Arena *a, uint32_t n, const char *const *path, const ImportOptions *opt)
{
    Graph *g = graph_new(a, path[0]);
    g->lengths.left = opt->left;
    Model **model = arena_array(a, Model *, n);
    Params **params = arena_array(a, Params *, n);
    Binds all = {.dimension.seen.arena = a, .value.seen.arena = a, .used.arena = a};
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
            prepare(model[i], opt);
            params[i] = param_begin(model[i], g, opt, i);
            param_assign(params[i], &model[i]->node);
            if (!has_bodies(&model[i]->node))
                param_report(params[i]);
            stop_assign(stops, model[i], &model[i]->node);
        }
        vec_push(a, &g->files.model, model[i]);
        g->files.hash = hash_value(g->files.hash, model[i]->wire.hash);
        ImportState s = {.g = g,
                         .m = model[i],
                         .params = params[i],
                         .stops = stops,
                         .opt = opt,
                         .binds = &all,
                         .stage = n > 1 ? (int)i : -1,
                         .env.arena = a};
        import_bind_inputs(&s, i ? &between : NULL);
        if (i == 0) {
            bind_check(&s);
            import_find_rows(&s);
        }
        run_model(&s, &between, i == n - 1);
        if (has_bodies(&model[i]->node) && first_use(model, i))
            param_report(params[i]);
    }
    stop_check(stops, g);
    graph_norms(g);
    graph_activations(g);
    param_take_given(params[0]);
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
    diag_meant(pattern, name, g->param.n);
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
    graph_choose_rows(g, &(BatchOptions){.chunk = {opt->chunk.at, opt->chunk.n, opt->chunk.n}});
    graph_verify(g);
    models_rest(g);
    return g;
}

ValueId import_loss_model(Graph *g, const char *path, const ImportOptions *opt, ValueId output,
                          ValueId *target)
{
    const char *file = g->file;
    ImportOptions own = *opt;
    own.stop.n = 0;                                     /* the names are those of the model */
    Binds all = {.dimension.seen.arena = g->arena,
                 .value.seen.arena = g->arena,
                 .used.arena = g->arena};
    ImportState s = {.g = g,
                     .binds = &all,
                     .m = model_open(g->arena, path, &opt->limits),
                     .stops = stop_begin(g->arena, &own),
                     .opt = &own,
                     .stage = -1,
                     .env.arena = g->arena};
    Ids fed = {0}, out;
    vec_push(g->arena, &fed, output);
    vec_push(g->arena, &fed, NONE);
    prepare(s.m, s.opt);
    stop_assign(s.stops, s.m, &s.m->node);
    import_bind_inputs(&s, &fed);
    run_model(&s, &out, false);
    g->file = file;
    *target = fed.at[1];
    return out.at[0];
}

/*
 * skeleton.c - the model without its trainable bytes, from which `ppsplit merge` makes the trained
 * model.
 *
 * In: a Model as import.c left it (RawNode.made says which operands are made of which parameters).
 * Out: an ONNX file in which every parameter is one initializer of its own, in the layout of the
 * original file, whose bytes are replaced by a note naming the parameter (external_data keys of
 * ours).  What the exporter merged because it was equal is separated, a bias it dropped because it
 * was zero is an operand again, and what it computed of parameters is computed of them again by
 * nodes.  Long constants are outside of it (skeleton_tensor.c).  All else is copied byte for byte.
 */
#include <string.h>

#include "frontend/params/params.h"
#include "onnx_fields.h"
#include "outside.h"
#include "skeleton.h"

static void copy_field(PbMessage *m, const PbField *f)
{
    pb_put(m, f->start, (size_t)(f->end - f->start));
}

/* ---- which initializer each parameter gets ---- */

typedef struct {
    Model *m;
    const Graph *g;
    Arena *arena;
    OutsideFile *outside;                                   /* for long constants */
    /* per parameter: its initializer's name in the skeleton; NULL: of another file */
    const char **name;
    /* per parameter: its type in the skeleton, which is the file's */
    Dtype *type;
    /* per top-level node: the raw node whose operands change, or NULL */
    RawNode **edit;
    uint32_t n_edit;
    RawNodes copies;                                    /* nodes that the file does not have */
    /* per initializer: a node reads it as a constant; or made of parameters; others name it */
    bool *kept, *made, *named;
} Skeleton;

static void mark_named(void *arg, const char *name)
{
    Skeleton *s = arg;
    uint32_t init = strmap_get(&s->m->init_index, name);
    if (init != NONE)
        s->named[init] = true;
}

/* init: what is made of the parameter, or NONE. */
static void use_parameter(Skeleton *s, uint32_t p, uint32_t init)
{
    const Param *q = &s->g->param.at[p];
    uint32_t own = q->initializer ? strmap_get(&s->m->init_index, q->initializer) : NONE;
    s->name[p] = "";
    own = own != NONE ? own : init;
    if (own != NONE && q->dtype == DT_F32 && s->type[p] == DT_NONE)
        s->type[p] = s->m->init.at[own].half;
}

static Dtype type_of(const Skeleton *s, uint32_t p)
{
    return s->type[p] != DT_NONE ? s->type[p] : s->g->param.at[p].dtype;
}

/* Is the operand the parameter itself, as the new file holds it? */
static bool is_parameter(const Skeleton *s, const RawNode *n, uint32_t k)
{
    bool transposed;
    const Recipe *r = n->made[k];
    if (!recipe_is_plain(r, &transposed))
        return false;
    uint32_t p = r->at[0].param;
    return transposed == s->g->param.at[p].transposed &&
           recipe_type(s->m, n, k, type_of(s, p)) == type_of(s, p);
}

static void find_uses(Skeleton *s)
{
    for (size_t i = 0; i < s->m->graph->n_output; i++)
        mark_named(s, s->m->graph->output[i]->name ? s->m->graph->output[i]->name : "");
    for (uint32_t i = 0; i < s->m->node.n; i++) {
        RawNode *n = s->m->node.at[i];
        if (n->copy_of)
            vec_push(s->arena, &s->copies, n);
        if (n->index >= s->n_edit)
            s->n_edit = n->index + 1;
        inline_captured(s->m, n, mark_named, s);
        for (uint32_t k = 0; k < n->nin; k++) {
            uint32_t init = strmap_get(&s->m->init_index, n->in[k]);
            const Recipe *made = n->made ? n->made[k] : NULL;
            for (uint32_t t = 0; made && t < made->n; t++)
                if (made->at[t].op == OP_NONE && made->at[t].param != NONE)
                    use_parameter(s, made->at[t].param, init);
            if (init != NONE && made)
                s->made[init] = true;
            else if (init != NONE && !n->dead)
                s->kept[init] = true;
        }
        if (n->bias != NONE) /* of the weight's type */
            use_parameter(s, n->bias,
                          n->nin > 1 ? strmap_get(&s->m->init_index, n->in[1]) : NONE);
    }
}

/* Does the file hold the parameter as it is, or with its two dims exchanged? */
static bool is_held(const Skeleton *s, const Param *q, uint32_t init)
{
    Shape shape = q->transposed ? shape_of(2, q->shape.d[1], q->shape.d[0]) : q->shape;
    return init != NONE && shape_equal(&shape, &s->m->init.at[init].shape);
}

/* Parameters that only bodies (of a Loop, a Scan, an If) read, by the names of their initializers:
 * an EmbeddingBag's table. */
static void find_captured(Skeleton *s)
{
    for (uint32_t p = 0; p < s->g->param.n; p++) {
        const Param *q = &s->g->param.at[p];
        uint32_t init = q->initializer ? strmap_get(&s->m->init_index, q->initializer) : NONE;
        if (s->name[p] || init == NONE || !s->named[init] ||
            q->bytes.at != s->m->init.at[init].bytes.at)
            continue;
        if (is_held(s, q, init))
            use_parameter(s, p, init);
        else
            diag_warn(WHERE_FILE(s->m->path),
                      "parameter '%s' is read in a body in another shape; merge will not write it "
                      "back",
                      q->name);
    }
}

static void choose_names(Skeleton *s)
{
    StrMap used = {.arena = s->arena}, made = {.arena = s->arena};
    for (uint32_t i = 0; i < s->m->node.n; i++)
        for (uint32_t k = 0; k < s->m->node.at[i]->nout; k++)
            *strmap_at(&made, s->m->node.at[i]->out[k]) = i;
    for (uint32_t p = 0; p < s->g->param.n; p++) {
        const Param *q = &s->g->param.at[p];
        if (!s->name[p])
            continue;
        uint32_t init = q->initializer ? strmap_get(&s->m->init_index, q->initializer) : NONE;
        if (is_held(s, q, init) && !s->kept[init] && strmap_get(&used, q->initializer) == NONE)
            s->name[p] = q->initializer;
        else
            s->name[p] =
                strmap_get(&made, q->name) != NONE || strmap_get(&s->m->init_index, q->name) != NONE
                    ? arena_printf(s->arena, "%s.separated.%u", q->name, p)
                    : q->name;
        *strmap_at(&used, s->name[p]) = p;
    }
}

/* Raw nodes whose operands no longer bear the name the file gives them. */
static void find_edits(Skeleton *s)
{
    s->edit = arena_array(s->arena, RawNode *, s->n_edit);
    for (uint32_t i = 0; i < s->m->node.n; i++) {
        RawNode *n = s->m->node.at[i];
        bool changed = n->bias != NONE || n->renamed;
        for (uint32_t k = 0; n->made && k < n->nin; k++) {
            const Recipe *made = n->made[k];
            changed |= made && (!is_parameter(s, n, k) ||
                                strcmp(n->in[k], s->name[made->at[0].param]));
        }
        if (!changed || n->copy_of)
            continue;
        if (n->inlined)
            diag_warn(WHERE_FILE(s->m->path),
                      "parameters inside the local function of node %u were separated; merge will "
                      "not write them back",
                      n->index);
        else
            s->edit[n->index] = n;
    }
}

/* ---- writing ---- */

static PbMessage parameter_tensor(const Skeleton *s, uint32_t p)
{
    const Param *q = &s->g->param.at[p];
    PbMessage t = {.a = s->arena};
    for (int i = 0; i < q->shape.rank; i++)
        pb_put_int(&t, TENSOR_DIMS, q->shape.d[q->transposed ? 1 - i : i]);
    pb_put_int(&t, TENSOR_TYPE, type_of(s, p));
    pb_put_string(&t, TENSOR_NAME, s->name[p]);
    onnx_put_entry(&t, TENSOR_EXTERNAL, SKELETON_PARAMETER, q->name);
    if (q->transposed)
        onnx_put_entry(&t, TENSOR_EXTERNAL, SKELETON_TRANSPOSED, "1");
    pb_put_int(&t, TENSOR_LOCATION, LOCATION_EXTERNAL);
    return t;
}

static void put_constant(const Skeleton *s, PbMessage *graph, const RawTensor *r)
{
    PbMessage t = {.a = graph->a};
    for (int i = 0; i < r->shape.rank; i++)
        pb_put_int(&t, TENSOR_DIMS, r->shape.d[i]);
    pb_put_int(&t, TENSOR_TYPE, r->dtype);
    pb_put_string(&t, TENSOR_NAME, r->name);
    skeleton_put_elements(s->outside, &t, r->bytes.at, r->bytes.length);
    pb_put_message(graph, GRAPH_INITIALIZER, &t);
}

static bool takes_bias(const char *op)
{
    return !strcmp(op, "Gemm") || !strcmp(op, "Conv") || !strcmp(op, "ConvTranspose");
}

/* ---- recipes as nodes ---- */

typedef struct { const Skeleton *s; PbMessage *graph; const char *stem; uint32_t made; } Nodes;

static const char *put_ints(Nodes *to, int n, const int64_t *v)
{
    const char *name = arena_printf(to->s->arena, "%s.%u", to->stem, to->made++);
    put_constant(to->s, to->graph,
                 &(RawTensor){
                     .name = name,
                     .dtype = DT_I64,
                     .shape = shape_of(1, (int64_t)n),
                     .bytes = {.at = (const uint8_t *)v, .length = (size_t)n * sizeof *v}});
    return name;
}

static void put_attribute(PbMessage *node, const char *name, int n, const int64_t *ints, int64_t i)
{
    PbMessage a = {.a = node->a};
    pb_put_string(&a, ATTR_NAME, name);
    if (!ints)
        pb_put_int(&a, ATTR_I, i);
    for (int k = 0; ints && k < n; k++)
        pb_put_int(&a, ATTR_INTS, ints[k]);
    pb_put_int(&a, ATTR_TYPE, ints ? TYPE_INTS : TYPE_INT);
    pb_put_message(node, NODE_ATTRIBUTE, &a);
}

static const char *put_term(Nodes *to, const Term *t, const char *const *value)
{
    Arena *a = to->s->arena;
    const Attr *at = &t->attr;
    const char *more[4], *name;
    uint32_t n_more = 0;
    if (t->op == OP_Reshape || t->op == OP_Expand || t->op == OP_ReduceSum)
        more[n_more++] = put_ints(to, at->n, at->dims);
    if (t->op == OP_Slice) {
        int64_t *end = arena_array(a, int64_t, at->n + 1),
                *axis = arena_array(a, int64_t, at->n + 1);
        for (int i = 0; i < at->n; i++) {
            axis[i] = i;
            end[i] = at->start[i] + at->size[i];
        }
        more[n_more++] = put_ints(to, at->n, at->start);
        more[n_more++] = put_ints(to, at->n, end);
        more[n_more++] = put_ints(to, at->n, axis);
    }
    PbMessage node = {.a = to->graph->a};
    for (uint32_t k = 0; k < t->nin; k++)
        pb_put_string(&node, NODE_INPUT, value[t->in[k]]);
    for (uint32_t k = 0; k < n_more; k++)
        pb_put_string(&node, NODE_INPUT, more[k]);
    name = arena_printf(a, "%s.%u", to->stem, to->made++);
    pb_put_string(&node, NODE_OUTPUT, name);
    pb_put_string(&node, NODE_NAME, name);
    pb_put_string(&node, NODE_OP, op_name(t->op));
    if (t->op == OP_Transpose)
        put_attribute(&node, "perm", at->n, at->perm, 0);
    if (t->op == OP_Cast)
        put_attribute(&node, "to", 0, NULL, at->to);
    if (t->op == OP_Concat || t->op == OP_Gather)
        put_attribute(&node, "axis", 0, NULL, at->axis);
    pb_put_message(to->graph, 1, &node);
    return name;
}

static const char *put_constant_term(Nodes *to, const Tensor *t)
{
    const char *name = arena_printf(to->s->arena, "%s.%u", to->stem, to->made++);
    size_t bytes = (size_t)shape_elements(&t->shape) * dtype_size(t->dtype);
    put_constant(to->s, to->graph,
                 &(RawTensor){.name = name,
                              .dtype = t->dtype,
                              .shape = t->shape,
                              .bytes = {.at = t->data, .length = bytes}});
    return name;
}

/* The same in another type; itself where that is the one it has. */
static const char *put_cast(Nodes *to, const char *value, Dtype from, Dtype type)
{
    Term t = {.op = OP_Cast, .nin = 1, .param = NONE, .attr = {.to = type}};
    return from == type ? value : put_term(to, &t, &value);
}

static const Term swap = {
    .op = OP_Transpose, .nin = 1, .param = NONE, .attr = {.n = 2, .perm = (const int64_t[]){1, 0}}};

/* The operand's new name, behind the nodes that make it of parameters as the new file holds them.
 */
static const char *put_operand(PbMessage *graph, const Skeleton *s, const RawNode *n, uint32_t k)
{
    const Recipe *r = n->made ? n->made[k] : NULL;
    if (!r)
        return n->in[k];
    if (is_parameter(s, n, k))
        return s->name[r->at[0].param];
    const char **value = arena_array(s->arena, const char *, r->n);
    /* numbered by its parameter */
    const char *copy = n->copy_of ? strrchr(n->out[0], '@') : NULL;
    Nodes to = {s, graph, arena_printf(s->arena, "ppsplit.%u.%u%s", n->index, k, copy ? copy : ""),
                0};
    Dtype type = DT_NONE;                               /* that the terms compute in */
    for (uint32_t i = 0; i < r->n; i++) {
        const Term *t = &r->at[i];
        if (t->op == OP_NONE && t->param != NONE)
            type = recipe_is_view(r) ? type_of(s, t->param) : s->g->param.at[t->param].dtype;
        if (t->op != OP_NONE)
            value[i] = put_term(&to, t, value);
        else if (t->param == NONE)
            value[i] = put_constant_term(&to, &t->value);
        else
            value[i] = put_cast(&to, s->name[t->param], type_of(s, t->param), type);
        if (t->op == OP_NONE && t->param != NONE && s->g->param.at[t->param].transposed)
            value[i] = put_term(&to, &swap, &value[i]);
    }
    return put_cast(&to, value[r->n - 1], type, recipe_type(s->m, n, k, type));
}

/* ---- nodes and the graph ---- */

/* What the exporter noted of a node; a copy may be part of another fx node than what it is of. */
static void put_metadata(PbMessage *out, const RawNode *n, const PbField *f)
{
    static const char exporter[] = "pkg.torch.onnx.";
    PbSpan entry = f->body;
    bool noted = false;
    for (PbField k; n->copy_of && n->fx_node != n->copy_of->fx_node && pb_next(&entry, &k);)
        noted |= k.number == ENTRY_KEY && k.body.end - k.body.at >= (ptrdiff_t)strlen(exporter) &&
                 !memcmp(k.body.at, exporter, strlen(exporter));
    if (!noted)
        copy_field(out, f);
}

static void put_noted(PbMessage *out, const RawNode *n)
{
    const char *const noted[][2] = {{"pkg.torch.onnx.name_scopes", n->name_scopes},
                                    {"pkg.torch.onnx.fx_node", n->fx_node},
                                    {"pkg.torch.onnx.stack_trace", n->stack}};
    for (size_t i = 0; i < sizeof noted / sizeof *noted; i++)
        if (n->copy_of && n->fx_node != n->copy_of->fx_node && noted[i][1])
            onnx_put_entry(out, NODE_METADATA, noted[i][0], noted[i][1]);
}

/* The node with its operands renamed; a restored bias becomes operand 2, or an Add of its own. */
static void put_edited(PbMessage *graph, const Skeleton *s, const PbField *w, const RawNode *n)
{
    PbMessage out = {.a = graph->a};
    const char **in = arena_array(s->arena, const char *, n->nin);
    for (uint32_t k = 0; k < n->nin; k++)
        in[k] = put_operand(graph, s, n, k);
    bool own_add = n->bias != NONE && !takes_bias(n->op_type);
    const char *bare = own_add ? arena_printf(s->arena, "%s.without_bias", n->out[0]) : NULL;
    for (uint32_t k = 0; k < n->nin; k++)
        if (k != 2 || n->bias == NONE || own_add)
            pb_put_string(&out, NODE_INPUT, in[k]);
    if (n->bias != NONE && !own_add)
        pb_put_string(&out, NODE_INPUT, s->name[n->bias]);
    for (uint32_t k = 0; k < n->nout; k++)
        pb_put_string(&out, NODE_OUTPUT, k == 0 && own_add ? bare : n->out[k]);
    if (n->copy_of)
        pb_put_string(&out, NODE_NAME, n->out[0]);           /* no two nodes may have one name */
    PbSpan body = w->body;
    for (PbField f; pb_next(&body, &f);)
        if (f.number == NODE_METADATA)
            put_metadata(&out, n, &f);
        else if (f.number > (n->copy_of ? NODE_NAME : NODE_OUTPUT))
            skeleton_put_field(s->m, s->outside, &out, &f, IN_NODE);
    put_noted(&out, n);
    pb_put_message(graph, GRAPH_NODE, &out);
    if (!own_add)
        return;
    out = (PbMessage){.a = graph->a};
    pb_put_string(&out, NODE_INPUT, bare);
    pb_put_string(&out, NODE_INPUT, s->name[n->bias]);
    pb_put_string(&out, NODE_OUTPUT, n->out[0]);
    pb_put_string(&out, NODE_NAME, arena_printf(s->arena, "%s.bias", n->name));
    pb_put_string(&out, NODE_OP, "Add");
    pb_put_message(graph, GRAPH_NODE, &out);
}

/* Does an initializer take the place of this node of the graph, a Constant that is a parameter? */
static bool *lifted_nodes(const Skeleton *s, uint32_t *n)
{
    const Model *m = s->m;
    *n = 0;
    for (uint32_t i = 0; i < m->init.n; i++)
        if (m->init.at[i].is_lifted && !m->init.at[i].function && m->init.at[i].function_node >= *n)
            *n = m->init.at[i].function_node + 1;
    bool *is = arena_array(s->arena, bool, *n);
    for (uint32_t p = 0; p < s->g->param.n; p++) {
        uint32_t i = s->name[p] ? strmap_get(&m->init_index, s->name[p]) : NONE;
        if (i != NONE && m->init.at[i].is_lifted && !m->init.at[i].function)
            is[m->init.at[i].function_node] = true;
    }
    return is;
}

/* A Constant's node, or its attribute, with parameter p for its tensor. */
static PbMessage put_holder(const Skeleton *s, PbSpan body, uint32_t p, Holder in)
{
    PbMessage out = {.a = s->arena};
    for (PbField f; pb_next(&body, &f);) {
        Holder is = holder_of(in, f.number);
        if (is != IN_ATTRIBUTE && is != IS_TENSOR) {
            copy_field(&out, &f);
            continue;
        }
        PbMessage inner = is == IS_TENSOR ? parameter_tensor(s, p) : put_holder(s, f.body, p, is);
        pb_put_message(&out, f.number, &inner);
    }
    return out;
}

static PbMessage put_graph(const Skeleton *s, PbSpan body)
{
    PbMessage g = {.a = s->arena};
    uint32_t node = 0, n_lifted;
    const bool *lifted = lifted_nodes(s, &n_lifted);
    for (PbField f; pb_next(&body, &f);) {
        const RawNode *edit = f.number == GRAPH_NODE && node < s->n_edit ? s->edit[node] : NULL;
        node += f.number == GRAPH_NODE;
        for (uint32_t i = 0; f.number == GRAPH_NODE && i < s->copies.n; i++)
            if (s->copies.at[i]->index == node - 1)
                put_edited(&g, s, &f, s->copies.at[i]);
        if (f.number == GRAPH_NODE && node <= n_lifted && lifted[node - 1])
            continue;
        if (edit)
            put_edited(&g, s, &f, edit);
        else if (f.number != GRAPH_INITIALIZER)
            skeleton_put_field(s->m, s->outside, &g, &f, IN_GRAPH);
    }
    bool *is_trained = arena_array(s->arena, bool, s->m->init.n);
    for (uint32_t p = 0; p < s->g->param.n; p++)
        if (s->name[p]) {
            uint32_t init = strmap_get(&s->m->init_index, s->name[p]);
            if (init != NONE)
                is_trained[init] = true;
            if (init != NONE && s->m->init.at[init].function)
                continue;                               /* put_function() */
            PbMessage t = parameter_tensor(s, p);
            pb_put_message(&g, GRAPH_INITIALIZER, &t);
        }
    for (uint32_t i = 0; i < s->m->init.n; i++)
        if (!is_trained[i] && !s->m->init.at[i].is_lifted &&
            (s->kept[i] || s->named[i] || !s->made[i])) {
            RawTensor t = tensor_in_file(&s->m->init.at[i]);
            put_constant(s, &g, &t);
        }
    return g;
}

/* ---- local functions: their Constants that are parameters ---- */

/* The parameter that node `node` of function `function` holds, or NONE. */
static uint32_t held_by(const Skeleton *s, uint32_t function, uint32_t node)
{
    for (uint32_t p = 0; p < s->g->param.n; p++) {
        uint32_t i = s->name[p] ? strmap_get(&s->m->init_index, s->name[p]) : NONE;
        if (i != NONE && s->m->init.at[i].function == function &&
            s->m->init.at[i].function_node == node)
            return p;
    }
    return NONE;
}

static PbMessage put_function(const Skeleton *s, PbSpan body, uint32_t function)
{
    PbMessage out = {.a = s->arena};
    uint32_t node = 0;
    for (PbField f; pb_next(&body, &f);) {
        uint32_t p = f.number == FUNCTION_NODE ? held_by(s, function, node++) : NONE;
        if (p == NONE) {
            skeleton_put_field(s->m, s->outside, &out, &f, IN_FUNCTION);
            continue;
        }
        PbMessage constant = put_holder(s, f.body, p, IN_NODE);
        pb_put_message(&out, FUNCTION_NODE, &constant);
    }
    return out;
}

static void write_message(FILE *f, const char *name, Arena *a, uint32_t number,
                          const PbMessage *body)
{
    onnx_check_size(name, body->n);
    PbMessage head = {.a = a};
    pb_put_key(&head, number, PB_BYTES);
    pb_put_varint(&head, body->n);
    fwrite(head.at, 1, head.n, f);
    fwrite(body->at, 1, body->n, f);
}

void skeleton_write(const Graph *g, Model *m, const char *name, OutsideFile *outside, FILE *f)
{
    Arena *arena = arena_within(g->arena);
    Skeleton s = {.m = m, .g = g, .arena = arena, .outside = outside};
    s.name = arena_array(arena, const char *, g->param.n);
    s.type = arena_array(arena, Dtype, g->param.n);
    s.kept = arena_array(arena, bool, m->init.n);
    s.made = arena_array(arena, bool, m->init.n);
    s.named = arena_array(arena, bool, m->init.n);
    find_uses(&s);
    find_captured(&s);
    choose_names(&s);
    find_edits(&s);
    PbSpan body = {m->at, m->at + m->size, false};
    uint32_t function = 0;
    for (PbField w; pb_next(&body, &w);) {
        if (w.number != MODEL_GRAPH && w.number != MODEL_FUNCTION) {
            file_put(w.start, (size_t)(w.end - w.start), f);
            continue;
        }
        PbMessage part = w.number == MODEL_GRAPH ? put_graph(&s, w.body)
                                                 : put_function(&s, w.body, ++function);
        write_message(f, name, arena, w.number, &part);
    }
    arena_free(arena);
}

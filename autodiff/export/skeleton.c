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

#include "onnx_fields.h"
#include "onnx_write.h"
#include "skeleton.h"
#include "skeleton_find.h"

static void copy_field(PbMessage *m, const PbField *f)
{
    pb_put(m, f->start, (size_t)(f->end - f->start));
}

/* ---- writing ---- */

static PbMessage parameter_tensor(const Skeleton *s, uint32_t p, const char *name)
{
    const Param *q = &s->param.at[p];
    const Shape shape = shape_turned(&q->shape, q->transposed);
    PbMessage t = ow_tensor_head(s->arena, name, skeleton_type(s, p), &shape);
    onnx_put_entry(&t, TENSOR_EXTERNAL, SKELETON_PARAMETER, q->name);
    if (q->transposed)
        onnx_put_entry(&t, TENSOR_EXTERNAL, SKELETON_TRANSPOSED, "1");
    for (uint32_t i = 0; i < s->m->tied.n; i++)
        if (!strcmp(s->m->tied.at[i].parameter, q->name))
            onnx_put_entry(&t, TENSOR_EXTERNAL, SKELETON_TIED, s->m->tied.at[i].text);
    for (uint32_t i = 0; i < s->m->changed.n; i++)
        if (!strcmp(s->m->changed.at[i].parameter, q->name))
            onnx_put_entry(&t, TENSOR_EXTERNAL, SKELETON_CHANGED, s->m->changed.at[i].text);
    pb_put_int(&t, TENSOR_LOCATION, LOCATION_EXTERNAL);
    return t;
}

static void put_constant(const Skeleton *s, PbMessage *graph, const RawTensor *r)
{
    PbMessage t = ow_tensor_head(graph->a, r->name, r->dtype, &r->shape);
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
    OnnxNode node = {.msg.a = to->graph->a};
    for (uint32_t k = 0; k < t->nin; k++)
        pb_put_string(&node.msg, NODE_INPUT, value[t->in[k]]);
    for (uint32_t k = 0; k < n_more; k++)
        pb_put_string(&node.msg, NODE_INPUT, more[k]);
    name = arena_printf(a, "%s.%u", to->stem, to->made++);
    pb_put_string(&node.msg, NODE_OUTPUT, name);
    pb_put_string(&node.msg, NODE_NAME, name);
    pb_put_string(&node.msg, NODE_OP, op_name(t->op));
    if (t->op == OP_Transpose)
        ow_int_list(&node, "perm", at->n, at->perm);
    if (t->op == OP_Cast)
        ow_int(&node, "to", at->to);
    if (t->op == OP_Concat || t->op == OP_Gather)
        ow_int(&node, "axis", at->axis);
    pb_put_message(to->graph, GRAPH_NODE, &node.msg);
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
    if (skeleton_is_parameter(s, n, k))
        return s->name[r->at[0].param];
    const char **value = arena_array(s->arena, const char *, r->n);
    Nodes to = {s, graph, arena_printf(s->arena, "ppsplit.%u.%u", n->index, k), 0};
    Dtype type = DT_NONE;                               /* that the terms compute in */
    for (uint32_t i = 0; i < r->n; i++) {
        const Term *t = &r->at[i];
        if (t->op == OP_NONE && t->param != NONE)
            type = recipe_is_view(r) ? skeleton_type(s, t->param) : s->param.at[t->param].dtype;
        if (t->op != OP_NONE)
            value[i] = put_term(&to, t, value);
        else if (t->param == NONE)
            value[i] = put_constant_term(&to, &t->value);
        else
            value[i] = put_cast(&to, s->name[t->param], skeleton_type(s, t->param), type);
        if (t->op == OP_NONE && t->param != NONE && s->param.at[t->param].transposed)
            value[i] = put_term(&to, &swap, &value[i]);
    }
    return put_cast(&to, value[r->n - 1], type, recipe_type(s->m, n, k, type));
}

/* ---- what bodies and functions hold ---- */

/* The initializer that the tensor of a body, or a Constant's node, became; NONE: none. */
static uint32_t initializer_at(const Skeleton *s, const void *home)
{
    return strmap_get(&s->home, arena_printf(s->arena, "%p", home));
}

static PbMessage put_body(const Skeleton *s, PbSpan body, uint32_t at, Onnx__NodeProto *const *node,
                          Onnx__TensorProto *const *initializer);

/* Attribute i of a node, with the parameters in it; of a Constant that is one: the parameter. */
static void put_attribute_of(PbMessage *node, const Skeleton *s, const PbField *w,
                             const Onnx__NodeProto *n, size_t i)
{
    uint32_t init = initializer_at(s, n), p = init != NONE ? s->held[init] : NONE;
    const Onnx__AttributeProto *a = n->attribute[i];
    PbMessage out = {.a = s->arena};
    PbSpan body = w->body;
    if (p != NONE) {
        PbMessage t = parameter_tensor(s, p, s->name[p]);
        pb_put_string(&out, ATTR_NAME, "value");
        pb_put_message(&out, ATTR_T, &t);
        pb_put_int(&out, ATTR_TYPE, TYPE_OF_TENSOR);
    }
    for (PbField f; p == NONE && pb_next(&body, &f);) {
        if (f.number != ATTR_G) {
            skeleton_put_field(s->m, s->outside, &out, &f, IN_ATTRIBUTE);
            continue;
        }
        PbMessage part = put_body(s, f.body, GRAPH_NODE, a->g->node, a->g->initializer);
        pb_put_message(&out, ATTR_G, &part);
    }
    pb_put_message(node, NODE_ATTRIBUTE, &out);
}

/* A node of a graph or a function that stays as it is, with the parameters in it. */
static void put_node(PbMessage *graph, const Skeleton *s, const PbField *w,
                     const Onnx__NodeProto *n)
{
    PbMessage out = {.a = s->arena};
    PbSpan body = w->body;
    size_t attribute = 0;
    if (!s->any_inside) {
        skeleton_put_field(s->m, s->outside, graph, w,
                           w->number == FUNCTION_NODE ? IN_FUNCTION : IN_GRAPH);
        return;
    }
    for (PbField f; pb_next(&body, &f);)
        if (f.number == NODE_ATTRIBUTE)
            put_attribute_of(&out, s, &f, n, attribute++);
        else
            copy_field(&out, &f);
    pb_put_message(graph, w->number, &out);
}

/* A body's initializer: a parameter, or a constant. */
static void put_initializer_of(PbMessage *graph, const Skeleton *s, const PbField *w,
                               const Onnx__TensorProto *t)
{
    uint32_t init = initializer_at(s, t), p = init != NONE ? s->held[init] : NONE;
    if (p != NONE) {
        PbMessage own = parameter_tensor(s, p, t->name);
        pb_put_message(graph, GRAPH_INITIALIZER, &own);
    } else {
        skeleton_put_field(s->m, s->outside, graph, w, IN_GRAPH);
    }
}

/* A body, or a function: its nodes are fields `at`; it may hold initializers. */
static PbMessage put_body(const Skeleton *s, PbSpan body, uint32_t at, Onnx__NodeProto *const *node,
                          Onnx__TensorProto *const *initializer)
{
    PbMessage out = {.a = s->arena};
    for (PbField f; pb_next(&body, &f);)
        if (f.number == at)
            put_node(&out, s, &f, *node++);
        else if (initializer && f.number == GRAPH_INITIALIZER)
            put_initializer_of(&out, s, &f, *initializer++);
        else
            copy_field(&out, &f);
    return out;
}

/* ---- nodes of the graph ---- */

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
    PbSpan body = w->body;
    size_t attribute = 0;
    for (PbField f; pb_next(&body, &f);)
        if (f.number == NODE_ATTRIBUTE)
            put_attribute_of(&out, s, &f, s->m->graph->node[n->index], attribute++);
        else if (f.number > NODE_OUTPUT)
            copy_field(&out, &f);
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

/* Does an initializer take the place of the node, a Constant of the graph that is a parameter? */
static bool is_lifted(const Skeleton *s, const Onnx__NodeProto *n)
{
    uint32_t init = initializer_at(s, n);
    return init != NONE && s->held[init] != NONE;
}

static PbMessage put_graph(const Skeleton *s, PbSpan body)
{
    PbMessage g = {.a = s->arena};
    uint32_t node = 0;
    for (PbField f; pb_next(&body, &f);) {
        if (f.number != GRAPH_NODE && f.number != GRAPH_INITIALIZER)
            copy_field(&g, &f);
        if (f.number != GRAPH_NODE)
            continue;
        const Onnx__NodeProto *n = s->m->graph->node[node];
        const RawNode *edit = node < s->n_edit ? s->edit[node] : NULL;
        node++;
        if (is_lifted(s, n))
            continue;
        if (edit)
            put_edited(&g, s, &f, edit);
        else
            put_node(&g, s, &f, n);
    }
    for (uint32_t p = 0; p < s->param.n; p++)
        if (s->name[p] && !skeleton_is_inside(s, p)) {
            PbMessage t = parameter_tensor(s, p, s->name[p]);
            pb_put_message(&g, GRAPH_INITIALIZER, &t);
        }
    for (uint32_t i = 0; i < s->m->init.n; i++)
        if (s->held[i] == NONE && !s->m->init.at[i].home &&
            (s->kept[i] || s->named[i] || !s->made[i])) {
            RawTensor t = tensor_in_file(&s->m->init.at[i]);
            put_constant(s, &g, &t);
        }
    return g;
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
    skeleton_find(&s);
    PbSpan body = {m->at, m->at + m->size, false};
    uint32_t function = 0;
    for (PbField w; pb_next(&body, &w);) {
        if (w.number != MODEL_GRAPH && w.number != MODEL_FUNCTION) {
            file_put(w.start, (size_t)(w.end - w.start), f);
            continue;
        }
        PbMessage part =
            w.number == MODEL_GRAPH
                ? put_graph(&s, w.body)
                : put_body(&s, w.body, FUNCTION_NODE, m->proto->functions[function++]->node, NULL);
        write_message(f, name, arena, w.number, &part);
    }
    arena_free(arena);
}

/*
 * graph.c - the one place where values and nodes come into being.  In: an op, operands, attributes.
 * Out: a value.  On the way the operands are checked, the results typed (shape.c), identities removed
 * (simplify.c) and constants folded (fold.c), so a Graph is at all times shaped and folded.
 */
#include <string.h>

#include "simplify.h"

Graph *graph_new(Arena *a, const char *file)
{
    Graph *g = arena_new_of(a, Graph);
    g->arena = a;
    g->file = file;
    g->by_name.arena = a;
    g->batch = 1;
    Origin self = {.name = "", .type = "", .scope = "", .pipeline_stage = -1};
    vec_push(a, &g->origin, self);                      /* origin 0: what no ONNX node asked for */
    return g;
}

Where graph_where(const Graph *g, uint32_t origin, int input)
{
    Where w = {.file = g->file, .index = NONE, .input = -1};
    if (origin == 0 || origin >= g->origin.n)
        return w;
    const Origin *o = &g->origin.at[origin];
    return (Where){g->file, "node", o->index, o->name, *o->type ? o->type : NULL, input};
}

/* A name no value has yet: the model's own names may contain a '%' too. */
static const char *made_name(Graph *g)
{
    for (;;) {
        char name[16];
        snprintf(name, sizeof name, "%%%u", g->made_names++);
        if (strmap_get(&g->by_name, name) == NONE)
            return arena_strdup(g->arena, name);
    }
}

ValueId graph_value(Graph *g, ValueKind kind, const char *name, Dtype t, const Shape *s)
{
    INSIST(s->rank >= 0 && s->rank <= MAX_RANK && g->value.n < NONE - 1);
    name = name ? arena_strdup(g->arena, name) : made_name(g);
    uint32_t *slot = strmap_at(&g->by_name, name);
    if (*slot != NONE)
        diag_fatal(EXIT_MODEL, graph_where(g, g->cur_origin, -1), "two values are named '%s'", name);
    *slot = g->value.n;
    Value v = {.name = name, .kind = kind, .dtype = t, .shape = *s, .batch = BATCH_NONE, .node = NONE, .param = NONE};
    vec_push(g->arena, &g->value, v);
    return g->value.n - 1;
}

ValueId graph_input(Graph *g, const char *name, Dtype t, const Shape *s)
{
    ValueId v = graph_value(g, V_INPUT, name, t, s);
    vec_push(g->arena, &g->input, v);
    return v;
}

ValueId graph_param(Graph *g, Param p)
{
    /* The initializer's name when there is one: nodes of the file refer to it by that. */
    const char *name = p.initializer ? p.initializer : p.name;
    if (strmap_get(&g->by_name, name) != NONE)
        name = NULL;
    p.value = graph_value(g, V_PARAM, name, p.dtype, &p.shape);
    g->value.at[p.value].param = g->param.n;
    vec_push(g->arena, &g->param, p);
    return p.value;
}

ValueId graph_const(Graph *g, const char *name, Tensor t)
{
    ValueId v = graph_value(g, V_CONST, name, t.dtype, &t.shape);
    g->value.at[v].data = t.data;
    return v;
}

/*
 * A made-up name gives way to the model's.  A value that has a model's name already keeps it (an input stays
 * what the user calls it) and only becomes known by the other as well.
 */
void graph_rename(Graph *g, ValueId v, const char *name)
{
    Value *x = &g->value.at[v];
    uint32_t *slot = strmap_at(&g->by_name, name);
    if (*slot != NONE && *slot != v)
        diag_fatal(EXIT_MODEL, graph_where(g, g->cur_origin, -1), "two values are named '%s'", name);
    *slot = v;
    if (x->kind != V_NODE || x->name[0] != '%' || !strcmp(x->name, name))
        return;
    *strmap_at(&g->by_name, x->name) = NONE;
    x->name = arena_strdup(g->arena, name);
}

/* ---- nodes ---- */

static const int64_t *own(Graph *g, const int64_t *v, int n, int64_t otherwise)
{
    int64_t *copy = arena_array(g->arena, int64_t, n);
    for (int i = 0; i < n; i++)
        copy[i] = v ? v[i] : otherwise;
    return copy;
}

/* Copies the attribute's arrays, so callers may build them on their stack, and fills in the defaults. */
static void own_attr(Graph *g, Op op, Attr *t)
{
    INSIST(t->n >= 0 && (op == OP_Split || t->n <= MAX_RANK));
    switch (op) {
    case OP_Slice:
        t->start = own(g, t->start, t->n, 0);
        t->size = own(g, t->size, t->n, 0);
        t->step = own(g, t->step, t->n, 1);
        break;
    case OP_Pad:
        t->begin = own(g, t->begin, t->n, 0);
        t->end = own(g, t->end, t->n, 0);
        break;
    case OP_Conv: case OP_ConvTranspose: case OP_ConvWeightGrad: case OP_MaxPool: case OP_AveragePool:
        t->stride = own(g, t->stride, t->n, 1);
        t->dilation = own(g, t->dilation, t->n, 1);
        t->pad = own(g, t->pad, 2 * t->n, 0);
        INSIST(op == OP_Conv || t->kernel);
        if (op != OP_Conv)
            t->kernel = own(g, t->kernel, op == OP_ConvWeightGrad ? t->n + 2 : t->n, 0);
        if (t->group == 0)
            t->group = 1;
        break;
    default:
        INSIST(t->n == 0 || t->dims);
        t->dims = own(g, t->dims, t->n, 0);
    }
}

static const uint32_t fewest[OP_COUNT] = {
#define OP(name, lo, hi, since, import, shape, grad, code) [OP_##name] = lo,
#include "ops.def"
#undef OP
};

/* Operands of the core form: what ONNX passes as an input and we as an attribute is not counted. */
static uint32_t core_operands(Op op)
{
    switch (op) {
    case OP_Reshape: case OP_Expand: case OP_CumSum:
        return 1;
    case OP_Min: case OP_Max:
        return 2;
    default:
        return fewest[op];
    }
}

static void check_operands(const Graph *g, Op op, uint32_t nin, const ValueId *in)
{
    if (op <= OP_NONE || op >= OP_COUNT || (op == OP_Concat ? nin < 1 : nin != core_operands(op)))
        BUG("%s with %u operands", op_name(op), nin);
    for (uint32_t i = 0; i < nin; i++)
        if (in[i] >= g->value.n)
            BUG("operand %u of %s is not a value", i, op_name(op));
}

/* What the generated code can compute in; constants of other types may only be folded away. */
static void check_type(const Graph *g, const Draft *d)
{
    for (uint32_t i = 0; i < d->nout; i++)
        if (!dtype_is_computable(d->dtype[i])) {
            diag_hint("convert the model to float32; types computed in are f32, f64, i32, i64 and bool");
            diag_fatal(EXIT_MODEL, graph_where(g, g->cur_origin, -1), "its result has type %s, which is not computed in",
                       dtype_name(d->dtype[i]));
        }
}

static ValueId make(Graph *g, const Draft *d)
{
    check_type(g, d);
    INSIST(g->node.n < NONE - 1);
    Node n = {.op = d->op, .nin = d->nin, .nout = d->nout, .in = d->in, .attr = d->attr, .origin = g->cur_origin};
    n.out = arena_array(g->arena, ValueId, d->nout);
    for (uint32_t i = 0; i < d->nout; i++) {
        n.out[i] = graph_value(g, V_NODE, NULL, d->dtype[i], &d->shape[i]);
        g->value.at[n.out[i]].node = g->node.n;
        g->value.at[n.out[i]].out = i;
    }
    vec_push(g->arena, &g->node, n);
    return n.out[0];
}

ValueId graph_node(Graph *g, Op op, uint32_t nin, const ValueId *in, Attr attr)
{
    enum { FEW = 4 };
    Dtype few_types[FEW];
    Shape few_shapes[FEW];
    check_operands(g, op, nin, in);
    own_attr(g, op, &attr);
    Draft d = {.op = op, .nin = nin, .nout = shape_outputs(op, &attr, nin), .attr = attr};
    d.in = arena_array(g->arena, ValueId, nin);
    memcpy(d.in, in, nin * sizeof *in);
    d.dtype = d.nout <= FEW ? few_types : arena_array(g->arena, Dtype, d.nout);
    d.shape = d.nout <= FEW ? few_shapes : arena_array(g->arena, Shape, d.nout);
    shape_infer(g, op, nin, d.in, &d.attr, d.nout, d.dtype, d.shape);
    ValueId same = simplify(g, &d);
    if (same == NONE)
        same = fold(g, &d);
    return same != NONE ? same : make(g, &d);
}

/* Outputs of a node have consecutive ids, and so have the constants of a folded one. */
ValueId graph_out(const Graph *g, ValueId first, uint32_t i)
{
    const Value *v = val(g, first);
    if (v->kind == V_NODE) {
        INSIST(v->out == 0 && i < g->node.at[v->node].nout);
        return g->node.at[v->node].out[i];
    }
    INSIST(i == 0 || (v->kind == V_CONST && first + i < g->value.n));
    return first + i;
}

Ids *graph_users(const Graph *g, Arena *scratch)
{
    Ids *users = arena_array(scratch, Ids, g->value.n ? g->value.n : 1);
    for (NodeId n = 0; n < g->node.n; n++)
        for (uint32_t i = 0; i < g->node.at[n].nin; i++) {
            ValueId v = g->node.at[n].in[i];
            if (v != NONE && (users[v].n == 0 || users[v].at[users[v].n - 1] != n))
                vec_push(scratch, &users[v], n);
        }
    return users;
}

void graph_verify(const Graph *g)
{
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *x = val(g, v);
        if (!x->name || strmap_get(&g->by_name, x->name) != v)
            BUG("value %u is not known by its name", v);
        if (x->kind == V_NODE && (x->node >= g->node.n || x->out >= g->node.at[x->node].nout ||
                                  g->node.at[x->node].out[x->out] != v))
            BUG("value %s is not an output of its node", x->name);
        if (x->kind == V_PARAM && (x->param >= g->param.n || g->param.at[x->param].value != v))
            BUG("value %s is not its parameter's", x->name);
        if (x->kind == V_CONST && !x->data && shape_elements(&x->shape) > 0)
            BUG("constant %s has no data", x->name);
    }
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        check_operands(g, x->op, x->nin, x->in);
        if (x->origin >= g->origin.n)
            BUG("node %u has no origin", n);
        for (uint32_t i = 0; i < x->nin; i++)
            if (!g->scheduled && val(g, x->in[i])->kind == V_NODE && val(g, x->in[i])->node >= n)
                BUG("node %u (%s) reads what is made later", n, op_name(x->op));
    }
    for (uint32_t i = 0; i < g->output.n; i++)
        INSIST(g->output.at[i] < g->value.n);
}

/* ---- the dump ---- */

static void dump_value(const Graph *g, ValueId v, FILE *f)
{
    const Value *x = val(g, v);
    double scalar;
    fprintf(f, "%s", diag_escape(g->arena, x->name));
    if (g_const_double(g, v, &scalar))
        fprintf(f, "=%.9g", scalar);
}

static void dump_ints(const char *what, const int64_t *v, int n, FILE *f)
{
    if (!v || n == 0)
        return;
    fprintf(f, " %s=[", what);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%lld", i ? "," : "", (long long)v[i]);
    fputc(']', f);
}

static void dump_attr(Op op, const Attr *t, FILE *f)
{
    bool window = op == OP_Conv || op == OP_ConvTranspose || op == OP_ConvWeightGrad || op == OP_MaxPool || op == OP_AveragePool;
    bool any = t->n || t->axis || t->k || t->group > 1 || t->mode || t->value < 0 || t->value > 0 || t->to;
    if (!any)
        return;
    fputs(" {", f);
    dump_ints("a", t->dims, t->n, f);
    dump_ints("b", t->size, t->n, f);
    dump_ints("c", t->step, window ? 2 * t->n : t->n, f);
    dump_ints("d", t->kernel, op == OP_ConvWeightGrad ? t->n + 2 : t->n, f);
    if (t->axis)
        fprintf(f, " axis=%lld", (long long)t->axis);
    if (t->k)
        fprintf(f, " k=%lld", (long long)t->k);
    if (t->group > 1)
        fprintf(f, " group=%lld", (long long)t->group);
    if (t->mode)
        fprintf(f, " mode=%d", t->mode);
    if (t->value < 0 || t->value > 0)
        fprintf(f, " f=%.9g", t->value);
    if (t->to)
        fprintf(f, " to=%s", dtype_name(t->to));
    fputs(" }", f);
}

static void dump_node(const Graph *g, const Node *n, FILE *f)
{
    for (uint32_t i = 0; i < n->nout; i++) {
        const Value *v = val(g, n->out[i]);
        fprintf(f, "%s%s:%s", i ? ", " : "", diag_escape(g->arena, v->name), shape_print(g->arena, v->dtype, &v->shape));
    }
    fprintf(f, " = %s(", op_name(n->op));
    for (uint32_t i = 0; i < n->nin; i++) {
        fputs(i ? ", " : "", f);
        dump_value(g, n->in[i], f);
    }
    fputc(')', f);
    dump_attr(n->op, &n->attr, f);
    fprintf(f, "  # %s\n", diag_escape(g->arena, g->origin.at[n->origin].name));
}

void graph_dump(const Graph *g, FILE *f)
{
    for (uint32_t i = 0; i < g->input.n; i++) {
        const Value *v = val(g, g->input.at[i]);
        fprintf(f, "input %s:%s\n", diag_escape(g->arena, v->name), shape_print(g->arena, v->dtype, &v->shape));
    }
    for (uint32_t i = 0; i < g->param.n; i++) {
        const Param *p = &g->param.at[i];
        fprintf(f, "param %s:%s = %s%s\n", diag_escape(g->arena, val(g, p->value)->name),
                shape_print(g->arena, p->dtype, &p->shape), diag_escape(g->arena, p->name), p->trainable ? "" : " frozen");
    }
    for (NodeId n = 0; n < g->node.n; n++)
        dump_node(g, &g->node.at[n], f);
    for (uint32_t i = 0; i < g->output.n; i++)
        fprintf(f, "output %s = %s\n", i < g->output_name.n ? diag_escape(g->arena, g->output_name.at[i]) : "",
                diag_escape(g->arena, val(g, g->output.at[i])->name));
}

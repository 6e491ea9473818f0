/*
 * graph.c - the Graph and its values: inputs, parameters, constants and their names; users and
 * invariants.
 */
#include <string.h>

#include "ir.h"

Graph *graph_new(Arena *a, const char *file)
{
    Graph *g = arena_new_of(a, Graph);
    g->arena = a;
    g->file = file;
    g->by_name.arena = a;
    g->looked = looked_new(a);
    g->batch = 1;
    for (int x = 0; x < MESH_AXES; x++)
        g->mesh[x].members = g->mesh[x].chunks = 1;
    Origin self = {.name = "", .type = "", .scope = "", .pipeline_stage = -1};
    vec_push(a, &g->origin, self);                      /* origin 0: what no ONNX node asked for */
    return g;
}

const char *graph_origin_name(const Graph *g, uint32_t origin, Arena *a)
{
    const Origin *o = &g->origin.at[origin];
    const char *type = o->type ? o->type : "";
    return o->name && *o->name ? o->name : arena_printf(a, "%s#%u", type, o->index);
}

const char *graph_scope(const Graph *g, NodeId n)
{
    const uint32_t o = g->node.at[n].origin;
    return o < g->origin.n && g->origin.at[o].scope ? g->origin.at[o].scope : "";
}

Where graph_where(const Graph *g, uint32_t origin, int input)
{
    Where w = {.file = g->file, .index = NONE, .input = -1};
    if (origin == 0 || origin >= g->origin.n)
        return w;
    const Origin *o = &g->origin.at[origin];
    return (Where){g->file, "node", o->index, o->name, *o->type ? o->type : NULL, input};
}

bool value_alike(const Graph *g, ValueId x, ValueId y, bool attr)
{
    const Value *p = val(g, x), *q = val(g, y);
    if (p->kind != q->kind || p->dtype != q->dtype || !shape_equal(&p->shape, &q->shape))
        return false;
    if (p->kind == V_CONST)
        return !attr || !memcmp(p->data, q->data, (size_t)shape_elements(&p->shape) *
                                                     dtype_size(p->dtype));
    if (p->kind != V_NODE)
        return true;
    const Node *m = &g->node.at[p->node], *n = &g->node.at[q->node];
    return m->op == n->op && m->nin == n->nin && m->nout == n->nout && p->out == q->out &&
           (!attr || attr_equal(m->op, &m->attr, &n->attr));
}

/* A name no value has yet: the model's own names may contain a '%' too. */
static const char *made_name(Graph *g)
{
    for (;;) {
        char name[16];
        snprintf(name, sizeof name, "%%%u", g->numbers.names++);
        if (strmap_get(&g->by_name, name) == NONE)
            return arena_strdup(g->arena, name);
    }
}

ValueId graph_value(Graph *g, ValueKind kind, const char *name, Dtype t, const Shape *s)
{
    INSIST(s->rank >= 0 && s->rank <= MAX_RANK && g->value.n < NONE - 1);
    bool made = !name;
    name = name ? arena_strdup(g->arena, name) : made_name(g);
    uint32_t *slot = strmap_at(&g->by_name, name);
    if (*slot != NONE)
        diag_fatal(EXIT_MODEL, graph_where(g, g->cur_origin, -1), "two values are named '%s'",
                   name);
    *slot = g->value.n;
    Value v = {.name = name,
               .made = made,
               .kind = kind,
               .dtype = t,
               .shape = *s,
               .batch = BATCH_NONE,
               .node = NONE,
               .param = NONE};
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
    if (!p.divided) {
        p.box = chunks_none();
        p.whole = p.shape;
    }
    name = chunks_name(g->arena, name, &p.box);
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
 * A made-up name gives way to the model's.  A value that has a model's name already keeps it (an
 * input stays what the user calls it) and only becomes known by the other as well.
 */
void graph_rename(Graph *g, ValueId v, const char *name)
{
    Value *x = &g->value.at[v];
    uint32_t *slot = strmap_at(&g->by_name, name);
    if (*slot != NONE && *slot != v)
        diag_fatal(EXIT_MODEL, graph_where(g, g->cur_origin, -1), "two values are named '%s'",
                   name);
    *slot = v;
    if (x->kind != V_NODE || !x->made || !strcmp(x->name, name))
        return;
    *strmap_at(&g->by_name, x->name) = NONE;
    x->name = arena_strdup(g->arena, name);
    x->made = false;
}

bool graph_is_total(const Graph *g, ValueId v)
{
    for (uint32_t i = 0; i < g->total.n; i++)
        if (g->total.at[i].input == v)
            return true;
    return false;
}

/* Outputs of a node have consecutive ids, and so have the constants of a folded one.  A node with
 * one output may have become its operand (a Split into one part): any value. */
ValueId graph_out(const Graph *g, ValueId first, uint32_t i)
{
    const Value *v = val(g, first);
    if (i == 0)
        return first;
    if (v->kind == V_NODE) {
        INSIST(v->out == 0 && i < g->node.at[v->node].nout);
        return g->node.at[v->node].out[i];
    }
    INSIST(v->kind == V_CONST && first + i < g->value.n);
    return first + i;
}

Ids *graph_users(const Graph *g, Arena *scratch) { return graph_readers(g, scratch, NULL); }

Ids *graph_readers(const Graph *g, Arena *scratch, const bool *live)
{
    Ids *users = arena_array(scratch, Ids, g->value.n ? g->value.n : 1);
    for (NodeId n = 0; n < g->node.n; n++)
        for (uint32_t i = 0; i < g->node.at[n].nin && (!live || live[n]); i++) {
            ValueId v = g->node.at[n].in[i];
            if (v != NONE && (users[v].n == 0 || users[v].at[users[v].n - 1] != n))
                vec_push(scratch, &users[v], n);
        }
    return users;
}

static ValueId *own_ids(Arena *a, const ValueId *at, uint32_t n)
{
    ValueId *own = arena_array(a, ValueId, n + 1);
    memcpy(own, at, n * sizeof *own);
    return own;
}

Graph *graph_twin(const Graph *from, Arena *a)
{
    Graph *g = arena_new_of(a, Graph);
    *g = *from;
    g->arena = a;
    vec_own(a, &g->value);
    vec_own(a, &g->node);
    vec_own(a, &g->origin);
    vec_own(a, &g->param);
    vec_own(a, &g->update);
    vec_own(a, &g->input);
    vec_own(a, &g->output);
    vec_own(a, &g->output_name);
    vec_own(a, &g->files.model);
    vec_own(a, &g->files.array);
    for (NodeId i = 0; i < g->node.n; i++) {
        Node *n = &g->node.at[i];
        n->in = own_ids(a, n->in, n->nin);
        n->out = own_ids(a, n->out, n->nout);
    }
    g->by_name = (StrMap){.arena = a};
    for (ValueId v = 0; v < g->value.n; v++)
        *strmap_at(&g->by_name, g->value.at[v].name) = v;
    return g;
}

ValueId graph_behind_views(const Graph *g, ValueId v)
{
    for (const Node *n; v != NONE && (n = graph_maker(g, v)) && op_is_view(n->op);)
        v = n->in[0];
    return v;
}

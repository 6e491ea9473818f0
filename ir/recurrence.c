/*
 * recurrence.c - OP_Recurrence and its bodies (op.h).  In: a body that was built, and operands.
 * Out: the node, once the body is found to hold nothing but what each step computes alike; bodies
 * cut out of larger graphs.
 */
#include <string.h>

#include "ir.h"

Graph *body_new(const Graph *g)
{
    Graph *b = graph_new(g->arena, g->file);
    b->origin = g->origin;
    vec_own(b->arena, &b->origin);
    for (uint32_t i = 0; i < b->origin.n; i++) {        /* no cut within a node */
        b->origin.at[i].split_marker = false;
        b->origin.at[i].pipeline_stage = -1;
    }
    b->files.hash = g->files.hash;
    b->lengths.left = g->lengths.left;
    b->batch = g->batch;
    b->cur_origin = g->cur_origin;
    return b;
}

int64_t recurrence_steps(const Graph *g, const Node *n)
{
    const Recurrence *r = n->attr.recurrence;
    return val(g, n->in[r->states])->shape.d[0];
}

/* ---- what a body may hold -------------------------------------------------------------------- */

static bool is_one_number(const Value *v)
{
    const int64_t n = shape_elements(&v->shape);
    return n > 0 && blocks_equal(v->data, 1, n, dtype_size(v->dtype));
}

static void check_nodes(const Graph *g, const Graph *body)
{
    for (NodeId id = 0; id < body->node.n; id++) {
        const Node *n = &body->node.at[id];
        if ((op_stands_alone(n->op) && n->op != OP_MatMul) ||
            (op_picks(n->op) && n->op != OP_Count) || n->op == OP_Phase)
            diag_fatal(EXIT_MODEL, graph_where(g, g->cur_origin, -1),
                       "%s within the steps of a recurrence is not supported", op_name(n->op));
    }
}

void body_own_outputs(Graph *body)
{
    for (uint32_t o = 0; o < body->output.n; o++)
        if (val(body, body->output.at[o])->kind != V_NODE)
            body->output.at[o] = g_unary(body, OP_Identity, body->output.at[o]);
}

/* Other constants are read whole: a body has no memory for them. */
static void lift_constants(Graph *g, Graph *body, Ids *in)
{
    for (ValueId v = 0; v < body->value.n; v++) {
        Value *x = &body->value.at[v];
        if (x->kind != V_CONST || is_one_number(x))
            continue;
        Tensor t = {x->dtype, x->shape, NULL};
        memcpy(&t.data, &x->data, sizeof t.data);
        x->kind = V_INPUT;
        vec_push(body->arena, &body->input, v);
        vec_push(g->arena, in, graph_const(g, NULL, t));
    }
}

static int *own_rows(Graph *g, const Recurrence *of, uint32_t given, uint32_t inputs,
                     uint32_t outputs)
{
    int *rows = arena_array(g->arena, int, inputs + outputs + 1);
    for (uint32_t i = 0; i < inputs; i++)
        rows[i] = i < given ? of->rows[i] : -1;
    for (uint32_t o = 0; o < outputs; o++)
        rows[inputs + o] = of->rows[given + o];
    return rows;
}

ValueId g_recurrence(Graph *g, Graph *body, Recurrence of, const ValueId *in)
{
    Recurrence *own = arena_new_of(g->arena, Recurrence);
    const uint32_t given = body->input.n;
    Ids all = {0};
    for (uint32_t i = 0; i < given; i++)
        vec_push(g->arena, &all, in[i]);
    body_own_outputs(body);
    check_nodes(g, body);
    lift_constants(g, body, &all);
    *own = of;
    own->body = body;
    own->rows = own_rows(g, &of, given, body->input.n, body->output.n);
    return graph_node(g, OP_Recurrence, all.n, all.at,
                      (Attr){.n = (int)body->output.n, .recurrence = own});
}

/* ---- a body out of a graph ------------------------------------------------------------------- */

static ValueId copy_value(Graph *to, const Graph *from, ValueId v, ValueKind kind)
{
    const Value *x = val(from, v);
    ValueId y = graph_value(to, kind, x->name, x->dtype, &x->shape);
    to->value.at[y].made = x->made;
    to->value.at[y].batch = x->batch;
    to->value.at[y].data = x->data;
    return y;
}

Graph *body_of(const Graph *g, const Graph *from, const Ids *input, const Ids *node,
               const Ids *output)
{
    Graph *b = body_new(g);
    ValueId *is = arena_none(g->arena, from->value.n);
    for (uint32_t i = 0; i < input->n; i++) {
        is[input->at[i]] = copy_value(b, from, input->at[i], V_INPUT);
        vec_push(b->arena, &b->input, is[input->at[i]]);
    }
    for (uint32_t k = 0; k < node->n; k++) {
        Node n = from->node.at[node->at[k]];
        ValueId *in = arena_array(b->arena, ValueId, n.nin),
                *out = arena_array(b->arena, ValueId, n.nout);
        for (uint32_t i = 0; i < n.nin; i++) {
            if (is[n.in[i]] == NONE && val(from, n.in[i])->kind == V_CONST)
                is[n.in[i]] = copy_value(b, from, n.in[i], V_CONST);
            INSIST(is[n.in[i]] != NONE);
            in[i] = is[n.in[i]];
        }
        for (uint32_t i = 0; i < n.nout; i++) {
            out[i] = is[n.out[i]] = copy_value(b, from, n.out[i], V_NODE);
            b->value.at[out[i]].node = b->node.n;
            b->value.at[out[i]].out = i;
        }
        n.in = in;
        n.out = out;
        vec_push(b->arena, &b->node, n);
    }
    for (uint32_t o = 0; o < output->n; o++) {
        ValueId v = output->at[o];
        if (is[v] == NONE && val(from, v)->kind == V_CONST)
            is[v] = copy_value(b, from, v, V_CONST);
        INSIST(is[v] != NONE);
        vec_push(b->arena, &b->output, is[v]);
    }
    return b;
}

/*
 * onnx_write_recurrence.c - a Recurrence as ONNX's Scan: its states, its sequences, and a graph for
 * one step, which names what each step reads whole as the graph around it does.
 */
#include "onnx_emit.h"
#include "onnx_fields.h"

static void put_graph(OnnxNode *n, const char *name, const PbMessage *graph)
{
    PbMessage attr = {.a = n->msg.a};
    pb_put_string(&attr, ATTR_NAME, name);
    pb_put_message(&attr, ATTR_G, graph);
    pb_put_int(&attr, ATTR_TYPE, TYPE_OF_GRAPH);
    pb_put_message(&n->msg, NODE_ATTRIBUTE, &attr);
}

/* The body's own names are none of the graph around it. */
static Ow begin_body(Emit *e, const Recurrence *r)
{
    Ow *w = e->w;
    Ow b = {.p = w->p,
            .g = r->body,
            .a = w->a,
            .node.a = w->a,
            .init.a = w->a,
            .input.a = w->a,
            .output.a = w->a,
            .param_name.arena = w->a,
            .write = w->write,
            .made = w->made,
            .nodes = w->nodes,
            .opset = w->opset};
    b.alias = arena_array(w->a, const char *, r->body->value.n + 1);
    for (ValueId v = 0; v < r->body->value.n; v++)
        if (val(r->body, v)->kind != V_CONST)
            b.alias[v] = ow_made(&b);
    for (uint32_t i = 0; i < e->n->nin; i++)
        if (i >= r->states + r->sequences)
            b.alias[r->body->input.at[i]] = e->in[i];
    return b;
}

static void end_body(Ow *w, Ow *b)
{
    w->made = b->made;
    w->nodes = b->nodes;
    w->opset = b->opset;
    for (uint32_t i = 0; i < b->domain.n; i++)
        ow_import(w, b->domain.at[i]);
}

/* An output is a name by itself, also of a value that is several. */
static PbMessage body_graph(Ow *b, const Recurrence *r)
{
    const Graph *g = r->body;
    PbMessage all = {.a = b->a};
    for (uint32_t i = 0; i < r->states + r->sequences; i++)
        ow_info(b, &b->input, GRAPH_INPUT, b->alias[g->input.at[i]], val(g, g->input.at[i]));
    for (NodeId n = 0; n < g->node.n; n++)
        b->write(b, n);
    for (uint32_t o = 0; o < g->output.n; o++) {
        const char *from = ow_name(b, g->output.at[o]), *name = ow_made(b);
        OnnxNode n = ow_begin(b, "Identity", 1, &from, 1, &name);
        ow_end(b, &n);
        ow_info(b, &b->output, GRAPH_OUTPUT, name, val(g, g->output.at[o]));
    }
    pb_put(&all, b->node.at, b->node.n);
    pb_put_string(&all, GRAPH_NAME, "step");
    pb_put(&all, b->init.at, b->init.n);
    pb_put(&all, b->input.at, b->input.n);
    pb_put(&all, b->output.at, b->output.n);
    return all;
}

static void directions(Emit *e, OnnxNode *n, const char *name, uint32_t count)
{
    int64_t *back = arena_array(e->w->a, int64_t, count + 1);
    for (uint32_t i = 0; i < count; i++)
        back[i] = 1;
    if (count && e->n->attr.recurrence->reverse)
        ow_int_list(n, name, (int)count, back);
}

void onnx_recurrence(Emit *e)
{
    const Recurrence *r = e->n->attr.recurrence;
    Ow b = begin_body(e, r);
    const PbMessage graph = body_graph(&b, r);
    end_body(e->w, &b);
    OnnxNode n = ow_begin(e->w, "Scan", r->states + r->sequences, e->in, e->n->nout, e->out);
    put_graph(&n, "body", &graph);
    ow_int(&n, "num_scan_inputs", r->sequences);
    directions(e, &n, "scan_input_directions", r->sequences);
    directions(e, &n, "scan_output_directions", e->n->nout - r->states);
    ow_end(e->w, &n);
}

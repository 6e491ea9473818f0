/*
 * dump.c - a Graph as text: one line for each input, parameter, node and output, the same on every
 * run; the body of a Recurrence stands below it.
 */
#include "node.h"

#include <stdlib.h>

static void dump_value(const Graph *g, ValueId v, FILE *f)
{
    const Value *x = val(g, v);
    double scalar;
    fprintf(f, "%s", diag_escape(g->arena, x->name));
    if (g_const_double(g, v, &scalar))
        fprintf(f, "=%.9g", scalar);
}

static void dump(const Graph *g, const char *indent, FILE *f);

static void dump_node(const Graph *g, const Node *n, const char *indent, FILE *f)
{
    fputs(indent, f);
    for (uint32_t i = 0; i < n->nout; i++) {
        const Value *v = val(g, n->out[i]);
        fprintf(f, "%s%s:%s", i ? ", " : "", diag_escape(g->arena, v->name),
                shape_print(g->arena, v->dtype, &v->shape));
    }
    fprintf(f, " = %s(", op_name(n->op));
    for (uint32_t i = 0; i < n->nin; i++) {
        fputs(i ? ", " : "", f);
        dump_value(g, n->in[i], f);
    }
    fputc(')', f);
    attr_dump(n->op, &n->attr, f);
    fprintf(f, "  # %s\n", diag_escape(g->arena, g->origin.at[n->origin].name));
    if (n->op == OP_Recurrence)
        dump(n->attr.recurrence->body, arena_printf(g->arena, "%s    ", indent), f);
}

void graph_dump_nodes(const Graph *g, const Ids *list, FILE *f)
{
    for (uint32_t i = 0; i < list->n; i++)
        dump_node(g, &g->node.at[list->at[i]], "  ", f);
}

const char *node_text(const Graph *g, NodeId id, Arena *a)
{
    const Node *n = &g->node.at[id];
    const Value *v = val(g, n->out[0]);
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    fprintf(f, "%s = %s", shape_print(a, v->dtype, &v->shape), op_name(n->op));
    attr_dump(n->op, &n->attr, f);
    fclose(f);
    const char *own = arena_strdup(a, text);
    free(text);
    return own;
}

static void dump(const Graph *g, const char *indent, FILE *f)
{
    for (uint32_t i = 0; i < g->input.n; i++) {
        const Value *v = val(g, g->input.at[i]);
        fprintf(f, "%sinput %s:%s\n", indent, diag_escape(g->arena, v->name),
                shape_print(g->arena, v->dtype, &v->shape));
    }
    for (uint32_t i = 0; i < g->param.n; i++) {
        const Param *p = &g->param.at[i];
        fprintf(f, "param %s:%s = %s%s\n", diag_escape(g->arena, val(g, p->value)->name),
                shape_print(g->arena, p->dtype, &p->shape), diag_escape(g->arena, p->name),
                p->trainable ? "" : " frozen");
    }
    for (NodeId n = 0; n < g->node.n; n++)
        dump_node(g, &g->node.at[n], indent, f);
    for (uint32_t i = 0; i < g->output.n; i++)
        fprintf(f, "%soutput %s = %s\n", indent,
                i < g->output_name.n ? diag_escape(g->arena, g->output_name.at[i]) : "",
                diag_escape(g->arena, val(g, g->output.at[i])->name));
}

void graph_dump(const Graph *g, FILE *f) { dump(g, "", f); }

/*
 * dot.c - pipe.dot: stages as boxes, what crosses as arrows, for Graphviz.
 */
#include <string.h>

#include "print.h"

/* A quoted string of the dot language; printable already, so only quotes and backslashes are left.
 */
static const char *dot_string(Arena *a, const char *s)
{
    const char *t = diag_escape(a, s);
    char *out = arena_alloc(a, 2 * strlen(t) + 1), *at = out;
    for (; *t; t++) {
        if (*t == '"' || *t == '\\')
            *at++ = '\\';
        *at++ = *t;
    }
    return out;
}

static void put_ends(const Pipe *p, Arena *a, FILE *f)
{
    const Graph *g = p->graph;
    for (uint32_t t = 0; t < p->stage.n; t++) {
        const Stage *s = &p->stage.at[t];
        for (uint32_t i = 0; i < s->input.n; i++)
            if (s->input.at[i].from == NONE && s->input.at[i].value != p->loss_scale)
                fprintf(f, "    in%u -> stage%u;\n", s->input.at[i].value, t);
        for (uint32_t i = 0; i < s->output.n; i++) {
            const StageOutput *o = &s->output.at[i];
            if (o->outputs.n == 0 && o->value != p->loss)
                continue;
            fprintf(f, "    out%u [shape=ellipse, label=\"%s\"];\n    stage%u -> out%u;\n",
                    o->value,
                    o->value == p->loss ? "loss" : dot_string(a, value_text(g, a, o->value)), t,
                    o->value);
        }
    }
}

void print_pipe_dot(const Pipe *p, FILE *f)
{
    const Graph *g = p->graph;
    Arena *a = arena_within(p->graph->arena);
    fprintf(f, "digraph pipe {\n    rankdir=LR;\n    label=\"%s\";\n    node [shape=box];\n",
            dot_string(a, p->model_name));
    for (uint32_t i = 0; i < g->input.n; i++)
        if (g->input.at[i] != p->loss_scale)
            fprintf(f, "    in%u [shape=ellipse, label=\"%s\"];\n", g->input.at[i],
                    dot_string(a, value_text(g, a, g->input.at[i])));
    for (uint32_t t = 0; t < p->stage.n; t++) {
        const Stage *s = &p->stage.at[t];
        fprintf(f, "    stage%u [label=\"stage %u\\n%s\\n%s parameters\"];\n", t, t,
                dot_string(a, s->label ? s->label : ""), count_text(a, s->cost.parameters));
    }
    put_ends(p, a, f);
    for (uint32_t i = 0; i < p->edge.n; i++) {
        const Edge *e = &p->edge.at[i];
        fprintf(f, "    stage%u -> stage%u [label=\"%s\\n%s\"%s%s];\n", e->from, e->to,
                dot_string(a, value_text(g, a, e->value)), bytes_text(a, e->bytes),
                e->kind == EDGE_PARAMETER ? ", style=dashed" : "", e->gradient ? ", dir=both" : "");
    }
    fputs("}\n", f);
    arena_free(a);
}

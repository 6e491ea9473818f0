/*
 * pipe_check.c - the invariants of a Pipe, checked, and its dump for people who work on the
 * compiler.
 */
#include <string.h>

#include "partition.h"

typedef struct {
    const Pipe *p;
    const Graph *g;
    uint32_t *ready; /* by value: 1 + the stage that has it now */
} Check;

static const StageOutput *find_output(const Stage *s, ValueId v)
{
    for (uint32_t i = 0; i < s->output.n; i++)
        if (s->output.at[i].value == v)
            return &s->output.at[i];
    return NULL;
}

/* Runs a node list in thought: every operand is there before it is read. */
static void check_list(Check *c, uint32_t t, const Ids *list, const char *what,
                       NodePhase phase)
{
    for (uint32_t k = 0; k < list->n; k++) {
        INSIST(list->at[k] < c->g->node.n);
        const Node *n = &c->g->node.at[list->at[k]];
        for (uint32_t i = 0; i < n->nin; i++) {
            ValueId v = n->in[i];
            bool skip = v == NONE || !node_reads(n, i, phase);
            if (!skip && val(c->g, v)->kind != V_CONST && c->ready[v] != t + 1)
                BUG("stage %u, %s: node %u (%s) reads %s, which is not there", t, what, list->at[k],
                    op_name(n->op), val(c->g, v)->name);
        }
        for (uint32_t i = 0; i < n->nout; i++)
            c->ready[n->out[i]] = t + 1;
    }
}

static void check_inputs(Check *c, const Stage *s)
{
    uint32_t t = s->index;
    for (uint32_t i = 0; i < s->input.n; i++) {
        const StageInput *in = &s->input.at[i];
        const Value *v = val(c->g, in->value);
        c->ready[in->value] = t + 1;
        if (in->from == NONE) {
            INSIST(v->kind == V_INPUT);
            continue;
        }
        INSIST(in->from < t && v->kind == V_NODE);
        const StageOutput *o = find_output(&c->p->stage.at[in->from], in->value);
        INSIST(o && ids_have(&o->to, t));
    }
    for (uint32_t i = 0; i < s->param.n; i++) {
        const ParamUse *u = &s->param.at[i];
        INSIST(u->param < c->g->param.n && u->from <= t && (u->use != USE_OWN || u->from == t));
        c->ready[c->g->param.at[u->param].value] = t + 1;
    }
}

void pipe_verify(const Pipe *p)
{
    const Graph *g = p->graph;
    Arena *scratch = arena_within(g->arena);
    Check c = {.p = p, .g = g, .ready = arena_array(scratch, uint32_t, g->value.n + 1)};
    bool trains = p->loss != NONE;
    NodeId last = 0;
    for (uint32_t t = 0; t < p->stage.n; t++) {
        const Stage *s = &p->stage.at[t];
        INSIST(s->index == t);
        check_inputs(&c, s);
        if (s->elsewhere)
            continue;
        for (uint32_t k = 0; k < s->nodes.n; k++) {
            INSIST(s->nodes.at[k] >= last);
            last = s->nodes.at[k] + 1;
        }
        check_list(&c, t, &s->infer, "infer", INFERENCE);
        check_list(&c, t, &s->forward, "forward", trains ? TRAINING : INFERENCE);
        for (uint32_t i = 0; i < s->output.n; i++) {
            INSIST(c.ready[s->output.at[i].value] == t + 1);
            for (uint32_t k = 0; k < s->output.at[i].dys.n; k++)
                c.ready[s->output.at[i].dys.at[k]] = t + 1;
        }
        check_list(&c, t, &s->backward, "backward", TRAINING);
        for (uint32_t i = 0; i < s->input.n; i++)
            for (uint32_t k = 0; k < s->input.at[i].grads.n; k++)
                INSIST(c.ready[s->input.at[i].grads.at[k]] == t + 1 ||
                       val(g, s->input.at[i].grads.at[k])->kind == V_CONST);
    }
    arena_free(scratch);
}

/* ---- the dump ---- */

static void dump_values(const Graph *g, const char *what, const Ids *list, FILE *f)
{
    fprintf(f, "  %s:", what);
    for (uint32_t i = 0; i < list->n; i++)
        fprintf(f, " %s", diag_escape(g->arena, val(g, list->at[i])->name));
    fputc('\n', f);
}

/* What pipe.txt has, and each stage's programs. */
void pipe_dump(const Pipe *p, FILE *f)
{
    print_pipe_txt(p, f);
    for (uint32_t t = 0; t < p->stage.n; t++) {
        const Stage *s = &p->stage.at[t];
        fprintf(f, "stage %u forward:\n", t);
        graph_dump_nodes(p->graph, &s->forward, f);
        fprintf(f, "stage %u infer:\n", t);
        graph_dump_nodes(p->graph, &s->infer, f);
        fprintf(f, "stage %u backward:\n", t);
        graph_dump_nodes(p->graph, &s->backward, f);
        dump_values(p->graph, "stash", &s->stash, f);
        for (uint32_t k = 0; k < s->again.n; k++) {
            dump_values(p->graph, "again", &s->again.at[k].value, f);
            graph_dump_nodes(p->graph, &s->again.at[k].node, f);
        }
    }
}

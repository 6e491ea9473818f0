/*
 * txt.c - pipe.txt: the Pipe in PiPPy's text form; and the summary that ppsplit prints after a
 * split.
 */
#include <string.h>

#include "print.h"

enum { NOTE_AT = 56 };

static void line(FILE *f, const char *text, const char *note)
{
    if (note && *note)
        fprintf(f, "    %-*s # %s\n", NOTE_AT - 4, text, note);
    else
        fprintf(f, "    %s\n", text);
}

static void print_call(Arena *a, const Call *c, FILE *f)
{
    const char *args = join_names(a, &c->args, "%", ", ");
    switch (c->kind) {
    case CALL_PLACEHOLDER: line(f, arena_printf(a, "%%%s = placeholder", c->name), c->note); break;
    case CALL_STAGE:
        line(f, arena_printf(a, "%%%s = call_stage[%u](%s)", c->name, c->stage, args), c->note);
        break;
    case CALL_GETITEM:
        line(f, arena_printf(a, "%%%s = getitem(%%%s, %u)", c->name, c->of, c->index), c->note);
        break;
    case CALL_LOSS: line(f, arena_printf(a, "%%%s = loss(%s)", c->name, args), c->note); break;
    case CALL_BACKWARD:
        line(f,
             arena_printf(a,
                          "%%%s = stage_backward(stage=%u, stage_output=%%%s, output_grads=[%s], "
                          "input_values=[%s])",
                          c->name, c->stage, c->of, join_names(a, &c->grads, "%", ", "), args),
             c->note);
        break;
    case CALL_ADD: line(f, arena_printf(a, "%%%s = add(%s)", c->name, args), c->note); break;
    case CALL_OUTPUT: line(f, arena_printf(a, "output(%s)", args), c->note); break;
    }
}

void print_pipe_txt(const Pipe *p, FILE *f)
{
    Arena *a = arena_within(p->graph->arena);
    Calls c = calls_of(p, a);
    fprintf(f, "# %s: %u stage%s, %s%s\n", diag_escape(a, p->model_name), p->stage.n,
            p->stage.n == 1 ? "" : "s", p->loss == NONE ? "no loss" : "loss ",
            p->loss == NONE || !p->loss_text ? "" : diag_escape(a, p->loss_text));
    if (p->whole)
        fprintf(f, "# stage %u is the loss over all rows of a minibatch, %s%lld, once a step\n",
                p->stage.n - 1, p->uneven_loss.n ? "exactly " : "at most ",
                (long long)p->whole->graph->batch);
    for (uint32_t i = 0; i < p->uneven.n; i++)
        fprintf(f, "# microbatches must have equal rows: %s\n", p->uneven.at[i]);
    for (uint32_t i = 0; i < p->mixes.n; i++)
        fprintf(f, "# %s\n", p->mixes.at[i]);
    for (int x = 0; x < MESH_AXES; x++)
        if (p->graph->mesh[x].members > 1)
            fprintf(f, "# one of %d members%s, %d chunks; bytes are those of a microbatch\n",
                    p->graph->mesh[x].members, mesh_along(x), p->graph->mesh[x].chunks);
    const Meetings meet = meetings_of(p, a);
    for (uint32_t i = 0; i < meet.n; i++) {
        const Meeting *m = &meet.at[i];
        fprintf(f, "# stage %u, %s: %s, %s, %s, each member sends %s\n", m->stage, m->pass,
                op_name(m->node->op), node_placement(a, m->node),
                value_text(p->graph, a, m->node->out[0]),
                bytes_text(a, cost_sent(p->graph, m->node)));
    }
    fputs("pipe:\n", f);
    for (uint32_t i = 0; i < c.forward.n; i++)
        print_call(a, &c.forward.at[i], f);
    for (uint32_t i = 0; i < c.backward.n; i++)
        print_call(a, &c.backward.at[i], f);
    print_call(a, &c.output, f);
    arena_free(a);
}

/* ---- the summary ---- */

static void summary_stages(const Pipe *p, Arena *a, FILE *f)
{
    const bool divided = graph_members(p->graph) > 1;
    fprintf(f, "%-6s %11s %11s %11s %11s %11s %11s%s  %s\n", "stage", "parameters", "bytes",
            "forward", "backward", "activations", "stash", divided ? " members send" : "",
            "modules");
    for (uint32_t t = 0; t < p->stage.n; t++) {
        const Stage *s = &p->stage.at[t];
        const StageCost *c = &s->cost;
        const char *sent = "";
        if (divided)
            sent = arena_printf(a, " %12s", bytes_text(a, c->sent[0] + c->sent[1]));
        fprintf(f, "%-6u %11s %11s %6s FLOP %6s FLOP %11s %11s%s  %s\n", t,
                count_text(a, c->parameters), bytes_text(a, c->bytes_param),
                count_text(a, c->flops_forward), count_text(a, c->flops_backward),
                bytes_text(a, c->bytes_activation), bytes_text(a, c->bytes_stash), sent,
                diag_escape(a, s->label ? s->label : ""));
    }
}

static void summary_sets(const Pipe *p, Arena *a, FILE *f)
{
    const Graph *g = p->graph;
    for (uint32_t k = 0; k < g->param.n; k++) {
        const Ids of = replicas_of(p, a, k);
        Names stages = {0};
        for (uint32_t i = 0; i < of.n; i++)
            vec_push(a, &stages, arena_printf(a, "%u", of.at[i]));
        if (stages.n > 0)
            fprintf(f, "replicated in stages %s: %s\n", join_names(a, &stages, "", ", "),
                    diag_escape(a, g->param.at[k].name));
    }
}

static void summary_notes(const char *what, const char *const *text, uint32_t n, FILE *f)
{
    enum { FEW = 3 };
    for (uint32_t i = 0; i < n && i < FEW; i++)
        fprintf(f, "%s: %s\n", what, text[i]);
    if (n > FEW)
        fprintf(f, "%s: %u more like these, see pipe.html\n", what, n - FEW);
}

/* Arrays of floats, and the numbers in them, that train and that do not. */
static void summary_arrays(const Graph *g, Arena *a, FILE *f)
{
    int64_t arrays[2] = {0}, numbers[2] = {0};
    for (uint32_t i = 0; i < g->files.array.n; i++) {
        const ArrayNote *n = &g->files.array.at[i];
        arrays[n->trains]++;
        numbers[n->trains] += shape_elements(&n->shape);
    }
    fprintf(f, "%lld array%s of %s numbers train%s, %lld of %s do%s not (ppsplit ls --parameters)\n",
            (long long)arrays[1], arrays[1] == 1 ? "" : "s", count_text(a, numbers[1]),
            arrays[1] == 1 ? "s" : "", (long long)arrays[0], count_text(a, numbers[0]),
            arrays[0] == 1 ? "es" : "");
}

void print_summary(const Pipe *p, FILE *f)
{
    const Graph *g = p->graph;
    Arena *a = arena_within(p->graph->arena);
    fprintf(f, "%s: %u stage%s, %s%s\n", diag_escape(a, p->model_name), p->stage.n,
            p->stage.n == 1 ? "" : "s", p->loss == NONE ? "no loss" : "loss ",
            p->loss == NONE || !p->loss_text ? "" : diag_escape(a, p->loss_text));
    summary_stages(p, a, f);
    if (p->loss != NONE)
        summary_arrays(g, a, f);
    for (uint32_t i = 0; i < p->edge.n; i++) {
        const Edge *e = &p->edge.at[i];
        fprintf(f, "%u -> %u  %s  %s, %s%s\n", e->from, e->to, value_text(g, a, e->value),
                bytes_text(a, e->bytes), edge_kind(e->kind), e->gradient ? ", gradient" : "");
    }
    summary_sets(p, a, f);
    for (uint32_t i = 0; i < g->input.n; i++)
        if (graph_is_total(g, g->input.at[i]))
            fprintf(f, "%s: of the data of all rows of a step, known before it begins\n",
                    value_text(g, a, g->input.at[i]));
        else if (g->input.at[i] != p->loss_scale)
            fprintf(f, "input %s\n", value_text(g, a, g->input.at[i]));
    for (uint32_t i = 0; i < g->output.n; i++)
        fprintf(f, "output %s\n", output_text(g, a, i));
    if (p->whole)
        fprintf(f, "stage %u: once a step, over all rows of a minibatch, %s%lld\n", p->stage.n - 1,
                p->uneven_loss.n ? "exactly " : "at most ", (long long)p->whole->graph->batch);
    summary_notes("microbatches must have equal rows", p->uneven.at, p->uneven.n, f);
    summary_notes("note", p->mixes.at, p->mixes.n, f);
    arena_free(a);
}

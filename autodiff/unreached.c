/*
 * unreached.c - parameters that are to train and that no gradient reaches.  In: the Pipe once it is
 * differentiated.  Out: one warning that names them, each with what stands between it and the loss:
 * an operation without a gradient (ArgMax, a product of integers); or a refusal where nothing
 * trains.
 */
#include "autodiff.h"

/* The first node that is made of v and has no gradient, or NULL. */
static const Node *barrier(const Graph *g, Arena *a, ValueId v, NodeId end)
{
    bool *of = arena_array(a, bool, g->value.n + 1);
    of[v] = true;
    for (NodeId n = 0; n < end; n++) {
        const Node *x = &g->node.at[n];
        bool any = false;
        for (uint32_t i = 0; i < x->nin; i++)
            any |= of[x->in[i]];
        if (any && !op_differentiable(x->op))
            return x;
        for (uint32_t i = 0; any && i < x->nout; i++)
            of[x->out[i]] = true;
    }
    return NULL;
}

static const char *told(const Pipe *p, Arena *a, uint32_t param, NodeId end)
{
    const Graph *g = p->graph;
    const Node *x = barrier(g, a, g->param.at[param].value, end);
    const char *type = x && x->origin < g->origin.n ? g->origin.at[x->origin].type : "",
               *name = diag_escape(a, g->param.at[param].name);
    return *type ? arena_printf(a, "%s (before %.64s)", name, diag_escape(a, type)) : name;
}

static bool *reached(const Pipe *p, Arena *a)
{
    bool *is = arena_array(a, bool, p->graph->param.n + 1);
    for (uint32_t s = 0; s < p->stage.n; s++)
        for (uint32_t i = 0; i < p->stage.at[s].param.n; i++)
            is[p->stage.at[s].param.at[i].param] |= p->stage.at[s].param.at[i].grads.n > 0;
    return is;
}

/* What it is made of is listed among what does not train. */
static void list_lost(Graph *g, uint32_t param)
{
    for (uint32_t i = 0; i < g->files.array.n; i++)
        if (g->files.array.at[i].param == param)
            g->files.array.at[i].trains = false;
}

void reverse_unreached(const Pipe *p, NodeId end, bool frozen)
{
    enum { SHOWN = 12 };
    Graph *g = p->graph;
    Arena *a = arena_within(g->arena);
    const bool *is = reached(p, a);
    uint32_t train = 0, lost = 0;
    const char *names = "";
    for (uint32_t i = 0; i < g->param.n; i++) {
        if (!g->param.at[i].trainable || p->loss == NONE)
            continue;
        train += is[i];
        lost += !is[i];
        if (!is[i])
            list_lost(g, i);
        if (!is[i] && lost <= SHOWN)
            names = arena_printf(a, "%s%s%s", names, lost > 1 ? ", " : "", told(p, a, i, end));
    }
    if (lost > SHOWN)
        names = arena_printf(a, "%s and %u more", names, lost - SHOWN);
    if (p->loss != NONE && train == 0 && lost == 0 && !frozen) {
        diag_hint("`ppsplit ls --parameters' says why each array does not train; --train=NAME "
                  "makes it a parameter");
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                   "the model has no parameters, so nothing trains");
    }
    if (p->loss != NONE && train == 0 && lost > 0) {
        diag_hint("use another output for --loss, another --stop-gradient, or operations that have "
                  "a gradient");
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file), "no gradient reaches any parameter: %s", names);
    }
    if (lost > 0) {
        diag_hint("if they are not meant to train, use --freeze=NAME");
        diag_warn(WHERE_FILE(g->file),
                  "no gradient reaches %u parameter%s, which will not train: %s", lost,
                  lost == 1 ? "" : "s", names);
    }
    arena_free(a);
}

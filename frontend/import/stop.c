/*
 * stop.c - where no gradient passes.  In: the nodes of a model, the patterns of --stop-gradient.
 * Out: RawNode.stop_out; import.c puts a StopGradient there.
 *
 * Four sources: what the user names, the model's own nodes ppsplit::StopGradient, blocks of
 * PyTorch's modules that are known to be under no_grad(), and detach() where an exporter leaves it.
 */
#include <fnmatch.h>
#include <string.h>

#include "driver.h"

/* ---- what the user names ---- */

Stops *stop_begin(Arena *a, const ImportOptions *opt)
{
    Stops *t = arena_new_of(a, Stops);
    t->opt = opt;
    t->used = arena_array(a, bool, opt->stop.n + 1);
    return t;
}

bool stop_named(const Stops *t, const char *name)
{
    bool found = false;
    for (uint32_t i = 0; i < t->opt->stop.n && *name; i++)
        if (!strcmp(t->opt->stop.at[i], name) || !fnmatch(t->opt->stop.at[i], name, 0))
            found = t->used[i] = true;
    return found;
}

bool stop_marker(const RawNode *n)
{
    return !strcmp(n->domain, "ppsplit") && !strcmp(n->op_type, "StopGradient");
}

bool stop_is_detach(const RawNode *n)
{
    return n->fx_node && (strstr(n->fx_node, "target=torch.ops.aten.detach.") ||
                          strstr(n->fx_node, "target=torch.ops.aten.detach_."));
}

/* dynamo traces a block under torch.no_grad() or autocast as a graph of its own, whose lines of
 * source are then those of the graph. */
bool stop_is_block(const RawNode *n)
{
    return n->stack && !strncmp(n->stack, "File \"<eval_with_key>", 21);
}

/* Modules of PyTorch of which such a block is under no_grad(), by what their scopes hold. */
static bool is_untracked(const RawNode *n)
{
    static const char *const scopes[] = {
        ".parametrizations.", /* nn.utils.parametrizations.spectral_norm: the power iteration */
    };
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes && stop_is_block(n); i++)
        if (n->name_scopes && strstr(n->name_scopes, scopes[i]))
            return true;
    return false;
}

typedef VEC(const char *) Names;

static void collect_names(Arena *a, const Model *m, Names *name)
{
    for (uint32_t i = 0; i < m->node.n; i++) {
        const RawNode *n = m->node.at[i];
        for (uint32_t k = 0; k < n->nout; k++)
            vec_push(a, name, n->out[k]);
        vec_push(a, name, n->name);
    }
}

void stop_check(const Stops *t, const Graph *g)
{
    for (uint32_t i = 0; i < t->opt->stop.n; i++) {
        const char *pattern = t->opt->stop.at[i];
        Names name = {0};
        if (t->used[i])
            continue;
        for (uint32_t k = 0; k < g->param.n; k++)
            if (!fnmatch(pattern, g->param.at[k].name, 0) ||
                !strcmp(pattern, g->param.at[k].name)) {
                diag_hint("with --freeze %s the parameter does not train", pattern);
                diag_fatal(
                    EXIT_USAGE, WHERE_FILE(g->file),
                    "--stop-gradient %s: this is a parameter, not a value that a node computes",
                    pattern);
            }
        for (uint32_t k = 0; k < g->files.model.n; k++)
            collect_names(g->arena, g->files.model.at[k], &name);
        diag_meant(pattern, name.at, name.n);
        diag_fatal(EXIT_USAGE, WHERE_FILE(g->file),
                   "--stop-gradient %s: no value or node has that name", pattern);
    }
}

/* The vectors of spectral_norm are buffers that each forward moves on; in a file they are
 * constants. */
static void warn_untracked(const Model *m, const RawNode *n)
{
    diag_hint("export with n_power_iterations=10 or more");
    diag_warn(WHERE_FILE(m->path),
              "the power iteration of spectral_norm (first '%.128s') starts from the file's "
              "vectors in every microbatch; PyTorch's continues where it was",
              diag_escape(m->arena, n->nout ? n->out[0] : n->name));
}

void stop_assign(Stops *t, const Model *m, const RawNodes *list)
{
    const RawNode *untracked = NULL;
    for (uint32_t i = 0; i < list->n; i++) {
        RawNode *n = list->at[i];
        bool all = stop_named(t, n->name) || stop_marker(n) || is_untracked(n) ||
                   (t->opt->training && stop_is_detach(n));
        if (!untracked && is_untracked(n))
            untracked = n;
        for (uint32_t k = 0; k < n->nout; k++)
            if (stop_named(t, n->out[k]) || all)
                stop_result(m->arena, n, k);
    }
    if (untracked && t->opt->training)
        warn_untracked(m, untracked);
}

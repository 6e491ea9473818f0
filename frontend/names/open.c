/*
 * open.c - opens a model.  In: a path.  Out: a Model: the file as read.c reads it, functions
 * inlined (inline.c), names checked, nodes in topological order, each node in its module (scope.c).
 */
#include <string.h>

#include "names.h"

static void check_names(const Model *m)
{
    StrMap seen = {.arena = m->arena};
    for (size_t i = 0; i < m->graph->n_input; i++) {
        const char *name = m->graph->input[i]->name;
        Where w = {m->path, "input", (uint32_t)i, name, NULL, -1};
        if (!name || !*name)
            diag_fatal(EXIT_MODEL, w, "an input without a name");
        uint32_t *slot = strmap_at(&seen, name);
        if (*slot != NONE)
            diag_fatal(EXIT_MODEL, w, "two inputs have this name");
        *slot = 0;
    }
    for (uint32_t i = 0; i < m->node.n; i++) {
        const RawNode *n = m->node.at[i];
        for (uint32_t j = 0; j < n->nout; j++) {
            if (!*n->out[j])
                continue;
            uint32_t *slot = strmap_at(&seen, n->out[j]);
            bool held = strmap_get(&m->init_index, n->out[j]) != NONE;
            if (held)
                diag_hint("dynamo names values after operations: rename the module's member '%s'",
                          n->out[j]);
            if (*slot != NONE || held)
                diag_fatal(EXIT_MODEL, raw_where(m, n, -1), "value '%s' is defined twice",
                           n->out[j]);
            *slot = 1;
        }
    }
    if (m->graph->n_output == 0)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "the model has no outputs");
}

Model *model_open(Arena *a, const char *path, const Limits *lim)
{
    Model *m = model_read(a, path, lim);
    inline_model(m);
    check_names(m);
    sort_nodes(m, &m->node);
    scope_assign(m, &m->node);
    return m;
}

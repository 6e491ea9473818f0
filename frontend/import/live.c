/* live.c - which nodes of a list lead to a result: the others are dead and are not imported. */
#include "driver.h"

static void mark_name(void *live, const char *name) { *strmap_at(live, name) = 1; }

void import_mark_live(Model *m, RawNodes *list, uint32_t n, const char *const *root)
{
    StrMap live = {.arena = m->arena};
    for (uint32_t i = 0; i < n; i++)
        mark_name(&live, root[i]);
    for (uint32_t i = list->n; i-- > 0;) {
        RawNode *node = list->at[i];
        node->dead = true;
        for (uint32_t j = 0; j < node->nout; j++)
            if (*node->out[j] && strmap_get(&live, node->out[j]) != NONE)
                node->dead = false;
        if (node->dead)
            continue;
        for (uint32_t j = 0; j < node->nin; j++)
            mark_name(&live, node->in[j]);
        inline_captured(m, node, mark_name, &live);
    }
}

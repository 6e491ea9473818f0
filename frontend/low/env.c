/*
 * env.c - what the names of a model stand for while it is imported: a value, a sequence of values,
 * an initializer that becomes a constant where it is first read.
 */
#include <string.h>

#include "state.h"

void import_note_name(ImportState *s, Untold what, const char *name)
{
    Strings *list = &s->untold[what];
    name = diag_escape(s->m->arena, name);
    for (uint32_t i = 0; i < list->n; i++)
        if (!strcmp(list->at[i], name))
            return;
    vec_push(s->m->arena, list, name);
}

void import_note(ImportState *s, Untold what, const RawNode *n)
{
    import_note_name(s, what, *n->name || n->nout == 0 ? n->name : n->out[0]);
}

void import_define(ImportState *s, const char *name, Slot slot)
{
    uint32_t *at = strmap_at(&s->env, name);
    if (*at == NONE) {
        *at = s->slot.n;
        vec_push(s->g->arena, &s->slot, slot);
    } else {
        s->slot.at[*at] = slot;
    }
}

void import_name_value(ImportState *s, ValueId v, const char *name)
{
    Graph *g = s->g;
    const char *free_name = name;
    for (uint32_t k = 1; strmap_get(&g->by_name, free_name) != NONE; k++) {
        if (strmap_get(&g->by_name, free_name) == v)
            return;
        free_name = arena_printf(g->arena, "%s@%u", name, k);
    }
    graph_rename(g, v, free_name);
}

static ValueId constant(ImportState *s, uint32_t init)
{
    RawTensor t = tensor_in_file(&s->m->init.at[init]);
    Tensor data =
        tensor_widen(s->g->arena, &t, (Where){s->m->path, "initializer", init, t.name, NULL, -1});
    const char *name = strmap_get(&s->g->by_name, t.name) == NONE ? t.name : NULL;
    return graph_const(s->g, name, data);
}

const Slot *import_lookup(ImportState *s, const char *name, Where w)
{
    uint32_t at = strmap_get(&s->env, name), init;
    if (at == NONE) {
        init = strmap_get(&s->m->init_index, name);
        if (init == NONE)
            diag_fatal(EXIT_MODEL, w, "value '%s' is not defined", name);
        Dtype t = tensor_file_type(&s->m->init.at[init]);
        import_define(s, name,
                      (Slot){.v = constant(s, init), .declared = dtype_held(t) == t ? DT_NONE : t});
        at = strmap_get(&s->env, name);
    }
    return &s->slot.at[at];
}

const Slot *import_slot(ImportState *s, const RawNode *n, uint32_t input)
{
    return *n->in[input] ? import_lookup(s, n->in[input], raw_where(s->m, n, (int)input)) : NULL;
}

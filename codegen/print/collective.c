/*
 * collective.c - what members along an axis of the mesh do together: one call, with the number of
 * its row in the stage's list, or one that begins it and one where it ends.
 */
#include "codegen/tables.h"
#include "runtime/api/pp.h"
#include "target.h"

const char *out_chunk(Out *o, const Chunk *of, int mesh)
{
    o->context = true;
    return o->f->g->mesh[mesh].members > 1
               ? arena_printf(o->a, "((int64_t)c->member[%s] * %d + %d)", cg_mesh_name(mesh),
                              of->pieces, of->piece)
               : arena_printf(o->a, "%d", of->piece);
}

void print_collective(Out *o, const Step *s)
{
    const Collective *c = s->collective;
    const char *row = o->repeat ? out_key(o, s) : arena_printf(o->a, "%u", s->key);
    o->context = true;
    if (c->part == ENDS) {
        text_line(&o->text, "pp_end(c, %s);", row);
        return;
    }
    const char *sizes = out_lins(o, c->size, c->n_size);
    if (c->kind == PP_ALL_TO_ALL)
        sizes = arena_printf(o->a, "%s{%s, %d}", o->target->cplusplus ? "" : "(PpAcross)", sizes,
                             c->first);
    const char *work = c->kind == PP_SHARD ? ""
                       : s->arg.n > 2      ? arena_printf(o->a, ", %s", out_pointer(o, s, 2))
                                           : ", NULL";
    text_line(&o->text, "pp_%s(c, %s%s, %s, %s%s, %s);", cg_collective_kind[c->kind].call,
              c->part == BEGINS ? "PP_BEGIN + " : "", row, out_pointer(o, s, 0),
              out_pointer(o, s, 1), work, sizes);
}

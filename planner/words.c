/*
 * words.c - a way to train, as options say it.
 */
#include "search.h"

const char *again_name(Again a)
{
    static const char *const name[AGAINS] = {"never", "cheap", "except-last", "always"};
    return name[a];
}

const char *mesh_words(const Candidate *c, const char *before, const char *behind, Arena *a)
{
    const PlanMesh *m = &c->cut->of->mesh;
    const char *all = "";
    for (int x = 0; x < MESH_AXES; x++)
        if (m->members[x] > 1)
            all = arena_printf(a, "%s%s%s %d%s", all, before, mesh_option[x], m->members[x],
                               behind);
    return m->parts && *all ? arena_printf(a, "%s%s--keep-parts%s", all, before, behind) : all;
}

const char *zero_words(const Candidate *c, Arena *a)
{
    return c->zero ? arena_printf(a, " --zero %d%s", c->zero, c->zero > 1 ? " --unshard 1" : "")
                   : "";
}

const char *offload_time(const Search *x, const Candidate *c, Arena *a)
{
    double bytes = 0, forward = 0;
    const StageCut *cut = candidate_measured(x, c);
    for (uint32_t s = 0; s < cut->stages; s++) {
        const PpStage *st = c->cut->program->plan.stage[s];
        bytes += (double)memory_stored(st) * (double)c->size->rows / (double)x->own_rows;
        forward += cut->stage[s].forward;
    }
    return arena_printf(a, "%.3g", bytes / x->o->partition->automatic.rates.offload / forward);
}

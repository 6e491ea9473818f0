/*
 * file.c - what the model's file says of the tensor axis: Graph.shard, of ONNX's sharding specs
 * (frontend/import/sharding.c).
 *
 * Parameters lie where it says, unless --shard says otherwise, and the rest follows: what it says
 * of other values is compared with what follows.
 */
#include "mesh.h"

void mesh_numbers(const Graph *g, MeshOptions *opt)
{
    int pieces = g->shard_members ? g->shard_chunks / g->shard_members : 1;
    if (opt->tensor)
        return;
    if (g->shard_unlike || (pieces & (pieces - 1))) {
        diag_note("%s",
                  g->shard_unlike
                      ? g->shard_unlike
                      : arena_printf(g->arena, "a device has %d shards, no power of two", pieces));
        diag_hint("--tensor T, or --tensor 1, instead");
        diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                   "the sharding specs are those of no tensor axis");
    }
    opt->tensor = g->shard_members ? g->shard_members : 1;
    opt->chunks = g->shard_chunks ? g->shard_chunks : 1;
    if (opt->shard.n && opt->chunks == 1)
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--shard without --tensor");
}

bool mesh_of_file(const Graph *g, const MeshOptions *opt, uint32_t param, Place *at)
{
    const Param *p = &g->param.at[param];
    for (uint32_t i = 0; i < g->shard.n; i++) {
        const ShardAsked *s = &g->shard.at[i];
        if (s->param != param)
            continue;
        *at = (Place){s->dim < 0 ? PLACE_R : s->dim, s->groups};
        if (s->dim >= 0 && !place_fits(&p->shape, *at, opt->chunks)) {
            diag_hint("--shard '%s=replicate' leaves it whole", diag_escape(g->arena, p->name));
            diag_fatal(
                EXIT_MODEL, WHERE_FILE(g->file),
                "the sharding spec of '%s': dimension %d of %s is not divisible in %lld x %d "
                "parts",
                p->name, s->dim, shape_print(g->arena, p->dtype, &p->shape), (long long)s->groups,
                opt->chunks);
        }
        return true;
    }
    return false;
}

void mesh_compare(const Graph *g, const MeshPlan *plan)
{
    uint32_t n = 0;
    const char *first = NULL;
    for (uint32_t i = 0; i < g->shard.n; i++) {
        const ShardAsked *s = &g->shard.at[i];
        Place is = s->value == NONE ? (Place){PLACE_R, 1} : plan->made[s->value];
        if (s->value == NONE ||
            (is.dim < 0 ? s->dim < 0 : is.dim == s->dim && is.groups == s->groups))
            continue;
        first = n++ ? first : val(g, s->value)->name;
    }
    if (n)
        diag_warn(WHERE_FILE(g->file),
                  "%u value%s, the first '%s', otherwise than the sharding specs "
                  "say: parameters do as they say, the rest follows",
                  n, n == 1 ? " lies" : "s lie", first);
}

/*
 * mesh.c - a graph along all axes of the mesh, one after the other: first layers, while every
 * parameter and value is the model's, to whose names --shard and the file's annotations refer; then
 * what these members do along their sequences.
 */
#include "mesh.h"

MeshPlan mesh_divide(Graph *g, const MeshOptions *opt, const BatchOptions *batch, uint32_t n,
                     ValueId *const *keep)
{
    MeshPlan first = {.members = 1, .chunks = 1};
    INSIST(n == 3);
    for (int x = 0; x < MESH_AXES; x++) {
        if (!mesh_has(opt, (MeshAxis)x))
            continue;
        const bool *front = x == MESH_EXPERT ? mesh_stack(g, opt->chunks[x], n, keep) : NULL;
        BatchNotes notes = {.target = *keep[2], .loss = *keep[0]};
        batch_analyse(g, 0, batch, &notes);
        const MeshPlan plan = mesh_search(g, g->arena, opt, (MeshAxis)x, *keep[0], notes.outer,
                                          front);
        if (first.chunks == 1)
            first = plan;
        mesh_member(g, &plan, n, keep);
    }
    mesh_pieces(g, opt, n, keep);
    return first;
}

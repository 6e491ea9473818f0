/*
 * mesh.c - a graph along all axes of the mesh, one after the other: first layers, while every
 * parameter and value is the model's, to whose names --shard and the file's annotations refer; then
 * what these members do along their sequences.
 */
#include "mesh.h"

static MeshPlan divide(Graph *g, const MeshOptions *opt, MeshAxis x, const BatchOptions *batch,
                       uint32_t n, ValueId *const *keep)
{
    const bool *front = x == MESH_EXPERT ? mesh_stack(g, opt->chunks[x], n, keep) : NULL;
    BatchNotes notes = {.target = *keep[2], .loss = *keep[0]};
    batch_analyse(g, 0, batch, &notes);
    const MeshPlan plan = mesh_search(g, g->arena, opt, x, *keep[0], notes.outer, front);
    mesh_member(g, &plan, n, keep);
    return plan;
}

MeshPlan mesh_divide(Graph *g, const MeshOptions *opt, const BatchOptions *batch, uint32_t n,
                     ValueId *const *keep)
{
    MeshPlan first = {.members = 1, .chunks = 1};
    INSIST(n == 3);
    /* the graph with other lengths, whose sizes decide: divided as this one is, axis by axis */
    ValueId own[3] = {*keep[0], *keep[1], *keep[2]}, *const kept[3] = {&own[0], &own[1], &own[2]};
    Graph *other = NULL;
    MeshAxis before = MESH_AXES;
    for (int x = 0; x < MESH_AXES; x++) {
        if (!mesh_has(opt, (MeshAxis)x))
            continue;
        if (first.chunks > 1 && g->other) {
            other = other ? other : graph_twin(g->other, g->arena);
            divide(other, opt, before, batch, n, kept);
            g->other = other;
        }
        const MeshPlan plan = divide(g, opt, (MeshAxis)x, batch, n, keep);
        if (first.chunks == 1)
            first = plan;
        before = (MeshAxis)x;
    }
    mesh_pieces(g, opt, n, keep);
    return first;
}

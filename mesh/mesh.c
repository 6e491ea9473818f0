/*
 * mesh.c - a graph along all axes of the mesh, one after the other: first layers, while every
 * parameter and value is the model's, to whose names --shard and the file's annotations refer; then
 * what these members do along their sequences.
 */
#include "mesh.h"

static MeshPlan divide(Graph *g, const MeshOptions *opt, MeshAxis x, const BatchOptions *batch,
                       ValueId *const *keep, MeshPlan *before)
{
    const uint32_t n = 3;
    const bool *front = x == MESH_EXPERT ? mesh_stack(g, opt->chunks[x], n, keep, before) : NULL;
    BatchNotes notes = {.target = *keep[2], .loss = *keep[0]};
    batch_analyse(g, 0, batch, &notes);
    MeshPlan plan = mesh_search(g, g->arena, opt, x, &notes, front);
    mesh_member(g, &plan, n, keep);
    return plan;
}

MeshPlans mesh_divide(Graph *g, const MeshOptions *opt, const BatchOptions *batch, uint32_t n,
                      ValueId *const *keep)
{
    MeshPlans plans = {0};
    INSIST(n == 3);
    /* the graph with other lengths, whose sizes decide: divided as this one is, axis by axis */
    ValueId own[3] = {*keep[0], *keep[1], *keep[2]}, *const kept[3] = {&own[0], &own[1], &own[2]};
    Graph *other = NULL;
    for (int x = 0; x < MESH_AXES; x++) {
        if (!mesh_has(opt, (MeshAxis)x))
            continue;
        if (plans.n && g->other) {
            other = other ? other : graph_twin(g->other, g->arena);
            divide(other, opt, plans.at[plans.n - 1].axis, batch, kept, NULL);
            g->other = other;
        }
        MeshPlan *before = plans.n ? &plans.at[plans.n - 1] : NULL;
        vec_push(g->arena, &plans, divide(g, opt, (MeshAxis)x, batch, keep, before));
    }
    mesh_pieces(g, opt, n, keep);
    graph_verify_forward(g, mesh_active(g, g->arena, *keep[0]), *keep[0]);
    return plans;
}

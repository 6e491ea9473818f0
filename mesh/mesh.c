/*
 * mesh.c - a graph along all axes of the mesh, one after the other: first layers, while every
 * parameter and value is the model's, to whose names --shard and the file's annotations refer; then
 * what these members do along their sequences.
 */
#include <string.h>

#include "mesh.h"

/* What a division begins with. */
typedef struct {
    const bool *front;
    BatchNotes notes;
} Begun;

static Begun begin(Graph *g, const MeshOptions *opt, MeshAxis x, const BatchOptions *batch,
                   ValueId *const *keep, MeshPlan *before)
{
    Begun b = {.front = x == MESH_EXPERT ? mesh_stack(g, opt->chunks[x], MESH_KEPT, keep, before)
                                         : NULL};
    b.notes = (BatchNotes){.target = *keep[2], .loss = *keep[0]};
    batch_analyse(g, 0, batch, &b.notes);
    return b;
}

static bool same_options(const MeshOptions *x, const MeshOptions *y)
{
    return x->keep == y->keep && x->asked.n == y->asked.n &&
           !memcmp(x->members, y->members, sizeof x->members) &&
           !memcmp(x->chunks, y->chunks, sizeof x->chunks);
}

/* The model with a few lengths, divided along an axis; once. */
static MeshLengths *divided(MeshLengths *l, const MeshOptions *opt, MeshAxis x,
                            const BatchOptions *batch)
{
    Arena *a = l->at[0]->arena;
    for (MeshLengths *t = l->then; t; t = t->next)
        if (t->plan.axis == x && same_options(&t->with, opt))
            return t;
    MeshLengths *t = arena_new_of(a, MeshLengths);
    ValueId *keep[MESH_LENGTHS][MESH_KEPT];
    Begun b[MESH_LENGTHS];
    MeshPlan plan[MESH_LENGTHS];
    const NodeId *like[MESH_LENGTHS];
    *t = *l;
    t->with = *opt;
    t->with.lengths = t;
    t->n = 0;
    for (int from = 0; from < l->n; from++) {
        const int k = t->n;
        t->at[k] = graph_twin(l->at[from], a);
        memcpy(t->kept[k], l->kept[from], sizeof t->kept[k]);
        for (int i = 0; i < MESH_KEPT; i++)
            keep[k][i] = &t->kept[k][i];
        b[k] = begin(t->at[k], opt, x, batch, keep[k], NULL);
        like[k] = mesh_alike(t->at[k], t->at[0]) ? mesh_like(t->at[k], t->at[0], a) : NULL;
        t->n += like[k] != NULL;
    }
    plan[0] = mesh_search(t->at[0], a, &t->with, x, &b[0].notes, b[0].front);
    for (int k = 1; k < t->n; k++)
        plan[k] = mesh_again(&plan[0], like[k], t->at[k], a, &b[k].notes);
    for (int k = 0; k < t->n; k++)
        mesh_member(t->at[k], &plan[k], MESH_KEPT, keep[k]);
    t->plan = plan[0];
    t->then = NULL;
    t->next = l->then;
    return l->then = t;
}

MeshPlans mesh_divide(Graph *g, const MeshOptions *opt, const BatchOptions *batch, uint32_t n,
                      ValueId *const *keep)
{
    MeshPlans plans = {0};
    MeshLengths *l = opt->lengths;
    MeshOptions alone = *opt;
    alone.lengths = NULL;
    INSIST(n == MESH_KEPT);
    for (int i = 0; i < MESH_AXES; i++) {
        const MeshAxis x = (MeshAxis)i;
        if (!mesh_has(opt, x))
            continue;
        const Begun b = begin(g, opt, x, batch, keep, plans.n ? &plans.at[plans.n - 1] : NULL);
        l = l ? divided(l, opt, x, batch) : NULL;
        const NodeId *like = l ? mesh_like(g, l->plan.of, g->arena) : NULL;
        MeshPlan plan = like ? mesh_again(&l->plan, like, g, g->arena, &b.notes)
                             : mesh_search(g, g->arena, &alone, x, &b.notes, b.front);
        mesh_member(g, &plan, n, keep);
        vec_push(g->arena, &plans, plan);
    }
    mesh_pieces(g, opt, n, keep);
    graph_verify_forward(g, flow_active(g, g->arena, *keep[0]), *keep[0]);
    return plans;
}

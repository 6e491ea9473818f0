/*
 * split_search.c - one graph cut again and again, for those who compare cuts: the cost model and
 * the places of a cut are found once.
 */
#include "split_int.h"

struct SplitSearch {
    Split split;
    const PartitionOptions *opt;
    AutoPlaces places;
    AutoSearch *cuts;
};

SplitSearch *split_search(Graph *g, ValueId loss, const Pipe *joint, const PartitionOptions *opt,
                          Arena *a)
{
    SplitSearch *s = arena_new_of(a, SplitSearch);
    s->split = split_open(g, loss, opt);
    s->opt = opt;
    s->places = split_places(&s->split, opt);
    s->cuts = auto_search(g, loss, joint, &opt->automatic, &s->places, a);
    return s;
}

const AutoSearch *split_search_cuts(const SplitSearch *s) { return s->cuts; }

Strings split_search_points(SplitSearch *s, const StageCut *c)
{
    Strings list = {0};
    Arena *a = s->split.a;
    for (uint32_t i = 0; i < s->opt->split.n; i++)
        vec_push(a, &list, s->opt->split.at[i]);
    for (uint32_t i = 1; i < s->cuts->cut.nodes; i++) {
        NodeId n = s->cuts->model->node[i];
        if (c->stage_of[i] != c->stage_of[i - 1] && !s->places.begins[n])
            vec_push(a, &list, split_point_at(&s->split, s->places.name, n));
    }
    return list;
}

/*
 * test_layout.c - layered drawings: boxes of a layer never touch,
 * what can be drawn without crossings is, what leads over several layers is straight, and crossings
 * are as few as the best of all orders in almost all small graphs.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/layout.h"
#include "tap.h"

static uint64_t state = 88172645463325252U;

static uint32_t below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 11) % n);
}

static uint32_t add(Arena *a, Layout *l, uint32_t layer, double width)
{
    vec_push(a, &l->box, ((LayoutBox){.layer = layer, .width = width, .bend = width < 10}));
    l->layers = layer >= l->layers ? layer + 1 : l->layers;
    return l->box.n - 1;
}

static void edge(Arena *a, Layout *l, uint32_t from, uint32_t to)
{
    vec_push(a, &l->edge, ((LayoutEdge){from, to}));
}

/* So many layers of so many boxes at most, each with an edge from above. */
static Layout random_graph(Arena *a, uint32_t layers, uint32_t most, uint32_t more)
{
    Layout l = {.gap = 20};
    uint32_t begin = 0, end = 0;
    for (uint32_t t = 0; t < layers; t++) {
        uint32_t n = 1 + below(most), first = l.box.n;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t b = add(a, &l, t, below(3) ? 40 + 2 * below(60) : 6), above = end - begin;
            uint32_t k = above ? below(above) : 0;
            if (above)
                edge(a, &l, begin + k, b);
            if (above > 1 && below(100) < more)
                edge(a, &l, begin + (k + 1) % above, b);
        }
        begin = first;
        end = l.box.n;
    }
    return l;
}

static bool apart(const Layout *l)
{
    for (uint32_t i = 0; i < l->box.n; i++)
        for (uint32_t k = 0; k < i; k++) {
            const LayoutBox *x = &l->box.at[i], *y = &l->box.at[k];
            double least = (x->width + y->width) / 2 + l->gap;
            if (x->layer == y->layer && fabs(x->x - y->x) < least - 1e-6)
                return false;
        }
    return true;
}

/* Pairs of edges that cross, as boxes stand. */
static int64_t crossings(const Layout *l)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < l->edge.n; i++)
        for (uint32_t k = 0; k < i; k++) {
            const LayoutEdge *e = &l->edge.at[i], *f = &l->edge.at[k];
            double above = l->box.at[e->from].x - l->box.at[f->from].x,
                   below = l->box.at[e->to].x - l->box.at[f->to].x;
            n += l->box.at[e->from].layer == l->box.at[f->from].layer && above * below < 0;
        }
    return n;
}

/* Of all orders of two layers, the fewest crossings, by trying them. */
static int64_t fewest(Layout *l, uint32_t upper, uint32_t at)
{
    int64_t best = INT64_MAX;
    if (at == l->box.n)
        return crossings(l);
    uint32_t begin = at < upper ? 0 : upper, end = at < upper ? upper : l->box.n;
    for (uint32_t place = begin; place < end; place++) {
        bool taken = false;
        for (uint32_t k = begin; k < at; k++)
            taken |= l->box.at[k].x == place;
        if (taken)
            continue;
        l->box.at[at].x = place;
        int64_t n = fewest(l, upper, at + 1);
        best = n < best ? n : best;
    }
    return best;
}

static void small_graphs(void)
{
    int best = 0, all = 300;
    int64_t more = 0;
    for (int round = 0; round < all; round++) {
        Arena *a = arena_new();
        Layout l = {.gap = 10};
        uint32_t upper = 2 + below(3), lower = 2 + below(3);
        for (uint32_t i = 0; i < upper + lower; i++)
            add(a, &l, i >= upper, 30);
        for (uint32_t i = 0; i < upper; i++)
            for (uint32_t k = 0; k < lower; k++)
                if (below(2))
                    edge(a, &l, i, upper + k);
        layout_place(a, &l);
        int64_t n = crossings(&l), least = fewest(&l, upper, 0);
        best += n == least;
        more += n - least;
        arena_free(a);
    }
    ok(best >= all * 95 / 100, "two layers: the fewest crossings in %d of %d, %lld more in all",
       best, all, (long long)more);
}

static void known(void)
{
    Arena *a = arena_new();
    Layout k33 = {.gap = 10}, tree = {.gap = 10}, skip = {.gap = 10};
    for (uint32_t i = 0; i < 6; i++)
        add(a, &k33, i / 3, 30);
    for (uint32_t i = 0; i < 9; i++)
        edge(a, &k33, i / 3, 3 + i % 3);
    layout_place(a, &k33);
    ok(crossings(&k33) == 9, "K3,3 in two layers: 9 crossings");
    /* a binary tree, its boxes as badly ordered as can be */
    for (uint32_t t = 0, n = 1; t < 5; t++, n *= 2)
        for (uint32_t i = 0; i < n; i++) {
            uint32_t b = add(a, &tree, t, 30);
            if (t)
                edge(a, &tree, n / 2 - 1 + (i * 7 + t) % n / 2, b);
        }
    layout_place(a, &tree);
    ok(!crossings(&tree) && apart(&tree), "a tree: none");
    /* a chain beside a bent edge: both are straight */
    uint32_t top = add(a, &skip, 0, 60), at = top, bend = top;
    double bends = 0, boxes = 0;
    for (uint32_t t = 1; t < 6; t++) {
        uint32_t box = add(a, &skip, t, 40 + 20 * (t % 3)),
                 next = t < 5 ? add(a, &skip, t, 6) : box;
        edge(a, &skip, at, box);
        edge(a, &skip, bend, next);
        at = box;
        bend = next;
    }
    layout_place(a, &skip);
    for (uint32_t i = 1; i + 2 < skip.box.n; i++) {
        double *off = skip.box.at[i].bend ? &bends : &boxes;
        *off = fmax(*off, fabs(skip.box.at[i].x - skip.box.at[skip.box.at[i].bend ? 2 : 1].x));
    }
    ok(bends < 1e-6 && boxes < 1e-6 && !crossings(&skip),
       "a chain beside an edge over four layers: both straight");
    arena_free(a);
}

static void random_graphs(void)
{
    int bad = 0;
    for (int round = 0; round < 60; round++) {
        Arena *a = arena_new();
        Layout l = random_graph(a, 2 + below(12), 1 + below(7), 40);
        layout_place(a, &l);
        bad += !apart(&l);
        arena_free(a);
    }
    ok(bad == 0, "boxes of a layer do not touch, 60 random graphs");
}

/* A graph like those of long skips: 400 boxes, 3,000 bends. */
static void large(void)
{
    Arena *a = arena_new();
    Layout l = random_graph(a, 120, 30, 30);
    layout_place(a, &l);
    ok(apart(&l), "%u boxes", l.box.n);
    arena_free(a);
}

int main(void)
{
    known();
    small_graphs();
    random_graphs();
    large();
    return tap_done();
}

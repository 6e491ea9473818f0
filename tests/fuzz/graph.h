/*
 * graph.h - a recipe's graph (recipe.h), cut and differentiated.  In: a recipe; whether it computes
 * in float64 (wide) and is cut where the recipe says.  Out: a complete Pipe, whose loss is half the
 * sum of its outputs' squares, or none; or a diagnostic, where the recipe has no output.
 */
#ifndef FUZZ_GRAPH_H
#define FUZZ_GRAPH_H

#include "ir/facts/attention.h"
#include "operations.h"

static ValueId fuzz_step(Fuzz *f, const DrawStep *s, ValueId x, ValueId y)
{
    f->seed = s->seed;
    f->g->batch = f->r->rows ? f->r->rows : 1;
    ValueId v = operations[s->operation].make(f, x, y);
    Shape z = shape(f, v);
    return shape_elements(&z) <= MOST_ELEMENTS && z.rank <= MOST_DIMS && shape_elements(&z) > 0 ? v
                                                                                                : x;
}

/* Half the sum of the outputs' squares, each brought between -1 and 1. */
static ValueId half_squares(Fuzz *f)
{
    Graph *g = f->g;
    ValueId all = NONE;
    for (uint32_t i = 0; i < g->output.n; i++) {
        ValueId y = bounded(f, g->output.at[i]),
                part = g_sum_to(g, g_mul(g, g_mul(g, y, y), number(f, 0.5)), &(Shape){0});
        all = all == NONE ? part : g_add(g, all, part);
    }
    return all;
}

static Loss scaled_squares(Fuzz *f)
{
    Loss l = {.target = NONE, .scale = LOSS_SUM, .text = "squares"};
    ValueId loss = half_squares(f);
    l.loss_scale = graph_input(f->g, "loss_scale", f->real, &(Shape){0});
    l.loss = g_mul(f->g, loss, l.loss_scale);
    return l;
}

typedef VEC(const char *) Cuts;

/* The recipe's steps as nodes of an empty graph; the names of the values at which it is cut. */
static void fuzz_graph(Fuzz *f, Cuts *cut)
{
    const Recipe *r = f->r;
    Graph *g = f->g;
    Arena *a = g->arena;
    ValueId made[MOST_STEPS];
    for (uint32_t i = 0; i < r->n; i++)
        made[i] = fuzz_step(f, &r->step[i], i ? made[r->step[i].x] : NONE,
                            i ? made[r->step[i].y] : NONE);
    bool *marked = arena_array(a, bool, g->value.n + 1);
    for (uint32_t i = 0; i < r->n; i++) {
        ValueId v = made[i];
        bool new = val(g, v)->kind == V_NODE && !marked[v];
        if (new && (r->step[i].cut || r->step[i].output)) {
            graph_rename(g, v, arena_printf(a, "v%u", i));
            marked[v] = true;
        }
        if (new && r->step[i].cut)
            vec_push(a, cut, val(g, v)->name);
        bool seen = val(g, v)->kind != V_NODE;
        for (uint32_t k = 0; k < g->output.n; k++)
            seen |= g->output.at[k] == v;
        if (r->step[i].output && !seen) {
            vec_push(a, &g->output, v);
            vec_push(a, &g->output_name, arena_printf(a, "y%u", i));
        }
    }
    if (g->output.n == 0)
        diag_fatal(EXIT_MODEL, WHERE_NONE, "no output");
}

/* cuts: take the recipe's, else one stage; half: what a graph of float32 computes in, or DT_NONE */
static Pipe *fuzz_pipe(Arena *a, const Recipe *r, bool wide, bool cuts, Dtype half)
{
    Fuzz f = {.g = graph_new(a, "fuzz"), .r = r, .real = wide ? DT_F64 : DT_F32};
    Graph *g = f.g;
    Cuts cut = {0};
    PartitionOptions opt = {0};
    fuzz_graph(&f, &cut);
    for (uint32_t i = 0; cuts && i < cut.n; i++)
        vec_push(a, &opt.split, cut.at[i]);
    Loss l = r->loss ? scaled_squares(&f) : (Loss){.loss = NONE};
    if (half != DT_NONE && !wide)
        graph_autocast(g, half);
    attention_fuse(g, &opt.batch, l.loss, l.target);
    Pipe *p = pipe_build(g, &opt, &l);
    autodiff(p);
    graph_verify(g);
    pipe_verify(p);
    return p;
}

#endif

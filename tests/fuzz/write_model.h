/*
 * write_model.h - a random graph as a model, for fuzz/mesh.  Out, in DIR/SEED: model.onnx, whose
 * output `loss` is a sum over its samples; in.NAME.npy of several microbatches; cuts, names of
 * values at which it may be split.  Widths are multiples of four, for members to divide.
 */
#ifndef FUZZ_WRITE_MODEL_H
#define FUZZ_WRITE_MODEL_H

#include <sys/stat.h>

#include "autodiff/autodiff.h"
#include "base/file/npy.h"
#include "graph.h"

enum { MODEL_GRAIN = 4, MODEL_MICROBATCHES = 4 };

typedef struct {
    Arena *a;
    const char *dir;
    uint64_t seed;
} ModelJob;

static FILE *model_file(const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        diag_fatal(EXIT_IO, WHERE_FILE(path), "cannot write");
    return f;
}

/* Rows of MODEL_MICROBATCHES microbatches: floats between -1 and 1, indices as they come. */
static void write_model_input(const ModelJob *j, const Value *x, uint64_t *seed)
{
    Shape s = x->shape;
    char err[256];
    s.d[0] *= MODEL_MICROBATCHES;
    int64_t n = shape_elements(&s);
    void *data = arena_calloc(j->a, (size_t)n + 1, dtype_size(x->dtype));
    for (int64_t i = 0; i < n; i++)
        if (x->dtype == DT_F32)
            ((float *)data)[i] = (float)fuzz_below(seed, 2000001) / 1000000 - 1;
        else
            ((int64_t *)data)[i] = fuzz_below(seed, 1000);
    const char *path = arena_printf(j->a, "%s/in.%s.npy", j->dir, x->name);
    if (npy_write(path, (int)x->dtype, s.rank, s.d, data, err, sizeof err) != 0)
        diag_fatal(EXIT_IO, WHERE_FILE(path), "%s", err);
}

/* More of what members divide: of eight steps three are products. */
static void draw_products(Recipe *r)
{
    static const char *const name[8] = {"linear", "attention", "linear"};
    for (uint32_t i = 1; i < r->n; i++)
        for (uint32_t k = 0; k < operation_count() && name[r->step[i].seed % 8]; k++)
            if (!strcmp(operation_name(k), name[r->step[i].seed % 8]))
                r->step[i].operation = k;
}

/* Is it the result of a node that the model has? */
static bool is_made(const Pipe *p, const char *value)
{
    const Ids *list = &p->stage.at[0].forward;
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t k = 0; k < p->graph->node.at[list->at[i]].nout; k++)
            if (!strcmp(val(p->graph, p->graph->node.at[list->at[i]].out[k])->name, value))
                return true;
    return false;
}

static void write_model(void *arg)
{
    const ModelJob *j = arg;
    Arena *a = j->a;
    Recipe r = recipe_draw(j->seed);
    uint64_t seed = j->seed;
    Cuts cut = {0};
    PartitionOptions whole = {0};
    r.rows = r.rows ? r.rows : 2;
    draw_products(&r);
    Fuzz f = {.g = graph_new(a, "fuzz"), .r = &r, .real = DT_F32, .grain = MODEL_GRAIN};
    fuzz_graph(&f, &cut);
    ValueId loss = half_squares(&f);
    graph_rename(f.g, loss, "loss");
    vec_push(a, &f.g->output, loss);
    vec_push(a, &f.g->output_name, "loss");
    Pipe *p = pipe_build(f.g, &whole, &(Loss){.loss = NONE, .target = NONE, .loss_scale = NONE});
    FILE *out = model_file(arena_printf(a, "%s/model.onnx", j->dir));
    onnx_write_forward(p, 0, NULL, NULL, out);
    fclose(out);
    out = model_file(arena_printf(a, "%s/cuts", j->dir));
    for (uint32_t i = 0; i < cut.n; i++)
        if (is_made(p, cut.at[i]))
            fprintf(out, "%s\n", cut.at[i]);
    fclose(out);
    for (uint32_t i = 0; i < f.g->input.n; i++)
        write_model_input(j, val(f.g, f.g->input.at[i]), &seed);
}

/* false: it failed; a seed without a graph has no model. */
static bool write_models(const char *dir, uint64_t from, uint64_t count)
{
    bool good = true;
    for (uint64_t i = 0; i < count; i++) {
        ModelJob j = {.a = arena_new(), .seed = from + i};
        j.dir = arena_printf(j.a, "%s/%llu", dir, (unsigned long long)j.seed);
        mkdir(j.dir, 0777);
        int code = diag_run(write_model, &j);
        good &= code == 0 || code == EXIT_MODEL;
        arena_free(j.a);
    }
    return good;
}

#endif

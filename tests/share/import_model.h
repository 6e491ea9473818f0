/*
 * import_model.h - a small model of small_onnx.h, imported: its graph, or NULL where it was
 * refused; what was said; and what of it tests look at.
 */
#ifndef IMPORT_MODEL_H
#define IMPORT_MODEL_H

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/params/params.h"
#include "small_onnx.h"
#include "tap.h"

static Arena *arena;
static char file[64], said[4096];                       /* by the last import */
static const char *producer = "pytorch";

typedef struct { Graph *g; ImportOptions opt; } Load;

static inline void load(void *arg)
{
    Load *l = arg;
    const char *path = file;
    l->g = import_models(arena, 1, &path, &l->opt);
}

/* Of which the inputs and outputs are there already. */
static inline Graph *import_whole(M *m, const char *signature, const ImportOptions *opt)
{
    Buf b = {0}, e = {0};
    if (signature) {
        put_string(&e, 1, "pkg.torch.export.ExportedProgram.graph_signature");
        put_string(&e, 2, signature);
        put_message(&m->graph, 16, &e);
    }
    put_string(&b, 2, producer);
    put_message(&b, 7, &m->graph);
    put_int(&e, 2, 17);
    put_message(&b, 8, &e);
    FILE *f = fopen(file, "wb");
    if (!f || fwrite(b.at, 1, b.n, f) != b.n || fclose(f))
        perror(file);
    free(b.at);
    *m = (M){0};
    Load l = {.opt = opt ? *opt : (ImportOptions){.training = true}};
    l.opt.limits = limits_default();
    FILE *to = tmpfile();
    int save = dup(STDERR_FILENO);
    if (!to)
        exit(3);
    dup2(fileno(to), STDERR_FILENO);
    int code = diag_run(load, &l);
    dup2(save, STDERR_FILENO);
    close(save);
    rewind(to);
    said[fread(said, 1, sizeof said - 1, to)] = '\0';
    fclose(to);
    return code == 0 ? l.g : NULL;
}

static inline Graph *import(M *m, const char *signature, const ImportOptions *opt)
{
    info(m, 11, "x", 2, 4);
    info(m, 12, "y", 2, 4);
    return import_whole(m, signature, opt);
}

static inline const Param *param(const Graph *g, const char *name)
{
    for (uint32_t i = 0; g && i < g->param.n; i++)
        if (!strcmp(g->param.at[i].name, name))
            return &g->param.at[i];
    return NULL;
}

static inline float first_of(const Param *p, int index)
{
    float data[64];
    param_bytes(p, data);
    return data[index];
}

static inline const Origin *origin(const Graph *g, const char *name)
{
    for (uint32_t i = 0; g && i < g->origin.n; i++)
        if (!strcmp(g->origin.at[i].name, name))
            return &g->origin.at[i];
    return NULL;
}

static inline bool is_shaped(const Param *p, int rank, int64_t d0, int64_t d1)
{
    return p && p->trainable && p->shape.rank == rank && p->shape.d[0] == d0 &&
           (rank < 2 || p->shape.d[1] == d1);
}

static inline const char *fx(const char *suffix, const char *args)
{
    return arena_printf(
        arena,
        "%%linear%s : [num_users=1] = call_function[target=torch.ops.aten.linear.default]"
        "(args = (%%x, %s), kwargs = {})",
        suffix, args);
}

static inline const char *call(const char *name, const char *target, const char *args)
{
    return arena_printf(
        arena,
        "%%%s : [num_users=1] = call_function[target=torch.ops.aten.%s](args = (%s), kwargs = {})",
        name, target, args);
}

/* Before the first import and after the last. */
static inline void models_begin(void)
{
    arena = arena_new();
    snprintf(file, sizeof file, "/tmp/test_model.XXXXXX");
    int fd = mkstemp(file);
    if (fd < 0)
        exit(3);
    close(fd);
}

static inline int models_end(void)
{
    remove(file);
    arena_free(arena);
    return tap_done();
}

#endif

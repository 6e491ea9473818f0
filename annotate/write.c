/*
 * write.c - a model's file with other annotations.
 *
 * In: the model as it is mapped, the stage of each node.  Out: the same bytes in the same order,
 * but the IR version, which is one that has these fields; ModelProto.configuration; and each node's
 * device_configurations.  What is in other files stays there, under the names that the model gives
 * them: so the new file stands beside the old one.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "annotate.h"
#include "autodiff/export/onnx_fields.h"
#include "autodiff/export/outside.h"
#include "frontend/onnx/onnx.h"
#include "specs.h"

typedef struct {
    Arena *a;
    const Model *m;
    const Annotations *what;
    const Specs *specs;
    const char *name;  /* of the configuration */
    VEC(PbSpan) piece; /* of the file to be */
    uint64_t n;
    uint32_t annotated;
} File;

static void add(File *f, const uint8_t *at, size_t n)
{
    vec_push(f->a, &f->piece, ((PbSpan){at, at + n, false}));
    f->n += n;
}

static void add_field(File *f, const PbField *p) { add(f, p->start, (size_t)(p->end - p->start)); }

/* ---- a node ---- */

static void put_entry(File *f, PbMessage *node, uint32_t i)
{
    PbMessage e = {.a = f->a};
    if (f->what->stage[i] == NONE)
        return;
    pb_put_string(&e, ENTRY_ID, f->name);
    specs_put(f->specs, &e, i);
    pb_put_int(&e, ENTRY_STAGE, f->what->stage[i]);
    pb_put_message(node, NODE_DEVICES, &e);
    f->annotated++;
}

static void add_node(File *f, const PbField *p, uint32_t i)
{
    PbMessage out = {.a = f->a}, node = {.a = f->a};
    PbSpan body = p->body;
    for (PbField k; pb_next(&body, &k);)
        if (k.number != NODE_DEVICES)
            pb_put(&node, k.start, (size_t)(k.end - k.start));
    put_entry(f, &node, i);
    pb_put_message(&out, GRAPH_NODE, &node);
    add(f, out.at, out.n);
}

/* ---- the model ---- */

static void add_graph(File *f, const PbField *p)
{
    File inner = *f;
    PbMessage head = {.a = f->a};
    PbSpan body = p->body;
    uint32_t node = 0;
    memset(&inner.piece, 0, sizeof inner.piece);
    inner.n = 0;
    for (PbField k; pb_next(&body, &k);)
        if (k.number == GRAPH_NODE)
            add_node(&inner, &k, node++);
        else
            add_field(&inner, &k);
    pb_put_key(&head, MODEL_GRAPH, PB_BYTES);
    pb_put_varint(&head, inner.n);
    add(f, head.at, head.n);
    for (uint32_t i = 0; i < inner.piece.n; i++)
        add(f, inner.piece.at[i].at, (size_t)(inner.piece.at[i].end - inner.piece.at[i].at));
    f->annotated = inner.annotated;
}

static void add_model(File *f)
{
    const Model *m = f->m;
    PbMessage ir = {.a = f->a}, devices = {.a = f->a}, list = {.a = f->a};
    PbSpan body = {m->at, m->at + m->size, false};
    int64_t version = m->proto->ir_version;
    pb_put_int(&ir, MODEL_IR, version > IR_WITH_DEVICES ? version : IR_WITH_DEVICES);
    add(f, ir.at, ir.n);
    for (PbField k; pb_next(&body, &k);)
        if (k.number == MODEL_GRAPH)
            add_graph(f, &k);
        else if (k.number != MODEL_IR && k.number != MODEL_CONFIGURATION)
            add_field(f, &k);
    pb_put_string(&devices, DEVICES_NAME, f->name);
    pb_put_int(&devices, DEVICES_COUNT, f->what->stages * specs_members(&f->what->plans));
    pb_put_message(&list, MODEL_CONFIGURATION, &devices);
    add(f, list.at, list.n);
}

/* ---- the file ---- */

static _Noreturn void cannot_write(const char *path)
{
    diag_fatal(EXIT_IO, WHERE_FILE(path), "cannot write: %s", strerror(errno));
}

static bool same_file(const char *x, const char *y)
{
    struct stat a, b;
    return !stat(x, &a) && !stat(y, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static const char *folder(Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? arena_strndup(a, path, (size_t)(slash - path) + 1) : ".";
}

static void check_place(const File *f, const char *path)
{
    const char *model = f->m->path, *home = folder(f->a, model);
    if (same_file(model, path))
        diag_fatal(EXIT_IO, WHERE_FILE(path), "is the model itself: give another name");
    if (f->m->external.file.n == 0 || same_file(home, folder(f->a, path)))
        return;
    diag_hint(
        "its weights stay in '%s', and the file names them relative to its folder: write it there",
        f->m->external.file.at[0].location);
    diag_fatal(EXIT_USAGE, WHERE_FILE(path), "is not in the folder of the model, '%s'", home);
}

static bool put_pieces(const File *f, FILE *to)
{
    for (uint32_t i = 0; i < f->piece.n; i++) {
        size_t n = (size_t)(f->piece.at[i].end - f->piece.at[i].at);
        if (n && file_put(f->piece.at[i].at, n, to) != n)
            return false;
    }
    return fflush(to) == 0 && fsync(fileno(to)) == 0;
}

typedef struct {
    const File *f;
    const char *temporary, *path;
} Target;

static void write_file(void *of)
{
    const Target *t = of;
    FILE *to = arena_file_new(t->f->a, t->temporary);
    if (!to)
        cannot_write(t->path);
    bool good = put_pieces(t->f, to);
    int error = errno;
    bool closed = arena_fclose(t->f->a, to) == 0;
    if (!good)
        errno = error;
    if (!good || !closed)
        cannot_write(t->path);
    diag_files();
    if (rename(t->temporary, t->path))
        cannot_write(t->path);
}

uint32_t annotate_write(const Graph *g, const Annotations *what, const char *path)
{
    File f = {.a = g->arena, .m = g->model.at[0], .what = what};
    Target t = {&f, arena_printf(g->arena, "%s.tmp", path), path};
    check_place(&f, path);
    f.specs = specs_open(f.a, f.m, what);
    f.name = annotate_name(f.a, what);
    add_model(&f);
    onnx_check_size(path, f.n);
    int code = diag_run(write_file, &t);
    if (code) {
        unlink(t.temporary);
        diag_raise(code);
    }
    return f.annotated;
}

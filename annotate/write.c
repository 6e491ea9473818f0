/*
 * write.c - a model's file with other annotations.
 *
 * In: the model as it is mapped, the stage of each node.  Out: the same bytes in the same order,
 * but the IR version, which is one that has these fields; ModelProto.configuration; and each node's
 * device_configurations.  What is in other files stays there, under the names that the model gives
 * them: so the new file stands beside the old one.
 */
#include <string.h>
#include <sys/stat.h>

#include "annotate.h"
#include "autodiff/export/merge.h"
#include "autodiff/export/merge_mark.h"
#include "autodiff/export/onnx_fields.h"
#include "autodiff/export/outside.h"
#include "frontend/onnx/onnx.h"
#include "specs.h"

typedef struct {
    Arena *a;
    const Model *m;
    const Annotations *what;
    const Specs *specs;
    const char *name, *path; /* of the configuration; of the file to be */
    Pieces to;               /* ... and what is in it */
    Merge files;
    uint32_t annotated;
} File;

static void add_message(File *f, const PbMessage *m)
{
    merge_add(f->a, &f->to, (Piece){.at = m->at, .n = m->n});
}

static void add_field(File *f, const PbField *p)
{
    merge_add(f->a, &f->to, (Piece){.at = p->start, .n = (size_t)(p->end - p->start)});
}

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
    add_message(f, &out);
}

/* ---- the model ---- */

static void add_graph(File *f, const PbField *p)
{
    File inner = *f;
    PbMessage head = {.a = f->a};
    PbSpan body = p->body;
    uint32_t node = 0;
    inner.to = (Pieces){0};
    for (PbField k; pb_next(&body, &k);)
        if (k.number == GRAPH_NODE)
            add_node(&inner, &k, node++);
        else
            add_field(&inner, &k);
    pb_put_key(&head, MODEL_GRAPH, PB_BYTES);
    pb_put_varint(&head, inner.to.n);
    add_message(f, &head);
    for (uint32_t i = 0; i < inner.to.piece.n; i++)
        merge_add(f->a, &f->to, inner.to.piece.at[i]);
    f->annotated = inner.annotated;
}

static void add_model(File *f)
{
    const Model *m = f->m;
    PbMessage ir = {.a = f->a}, devices = {.a = f->a}, list = {.a = f->a};
    PbSpan body = {m->at, m->at + m->size, false};
    int64_t version = m->proto->ir_version;
    pb_put_int(&ir, MODEL_IR, version > IR_WITH_DEVICES ? version : IR_WITH_DEVICES);
    add_message(f, &ir);
    for (PbField k; pb_next(&body, &k);)
        if (k.number == MODEL_GRAPH)
            add_graph(f, &k);
        else if (k.number != MODEL_IR && k.number != MODEL_CONFIGURATION)
            add_field(f, &k);
    pb_put_string(&devices, DEVICES_NAME, f->name);
    pb_put_int(&devices, DEVICES_COUNT, f->what->stages * specs_members(&f->what->plans));
    pb_put_message(&list, MODEL_CONFIGURATION, &devices);
    add_message(f, &list);
}

/* ---- the file ---- */

/* A model that ppsplit has annotated: one with a configuration of such a name. */
static int is_annotated(const char *at, size_t n, const void *name)
{
    PbSpan file = {(const uint8_t *)at, (const uint8_t *)at + n, false};
    bool is = false;
    for (PbField f; pb_next(&file, &f);)
        for (PbField k; f.number == MODEL_CONFIGURATION && pb_next(&f.body, &k);)
            is |= k.number == DEVICES_NAME && (size_t)(k.body.end - k.body.at) >= strlen(name) &&
                  !memcmp(k.body.at, name, strlen(name));
    return is && !file.broken;
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
    spare_others(path,
                 &(FileOurs){is_annotated, "ppsplit", "an earlier file of `ppsplit annotate'"});
    if (f->m->external.file.n == 0 || same_file(home, folder(f->a, path)))
        return;
    diag_hint(
        "its weights stay in '%s', and the file names them relative to its folder: write it there",
        f->m->external.file.at[0].location);
    diag_fatal(EXIT_USAGE, WHERE_FILE(path), "is not in the folder of the model, '%s'", home);
}

static void write_file(void *of)
{
    File *f = of;
    merge_write(&f->files, f->path, &f->to);
    diag_files();
    merge_place(&f->files);
}

uint32_t annotate_write(const Graph *g, const Annotations *what, const char *path)
{
    File f = {.a = g->arena, .m = g->files.model.at[0], .what = what, .path = path};
    f.files.arena = g->arena;
    check_place(&f, path);
    f.specs = specs_open(f.a, f.m, what);
    f.name = annotate_name(f.a, what);
    add_model(&f);
    onnx_check_size(path, f.to.n);
    merge_run(&f.files, write_file, &f);
    return f.annotated;
}

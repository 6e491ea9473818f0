/*
 * read.c - reads an .onnx file.  In: a path.  Out: a Model without nodes yet: the file mapped and
 * scanned (wire.c), its structure unpacked by protobuf-c into the arena, every initializer resolved
 * to a Payload.  No tensor's bytes are read here.
 */
#include <string.h>
#include <sys/mman.h>

#include "onnx.h"

enum { OLDEST_OPSET = 7, NEWEST_OPSET = 28, MAX_PATH_NAME = 1024, MOST_IMPORTS = 1000 };

Limits limits_default(void)
{
    return (Limits){
        .file_bytes = UINT64_C(1) << 40, .messages = 4 << 20, .unpacked_bytes = UINT64_C(2) << 30,
        .depth = 64, .nodes = 1000000,
    };
}

/* ---- the file ---- */

static void map_file(Model *m)
{
    const FileMap *f = arena_file(m->arena, m->path);
    const char *slash = strrchr(m->path, '/');
    m->at = (const uint8_t *)f->at;
    m->size = f->bytes;
    if (m->size == 0)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "the file is empty");
    if (m->size > m->limits.file_bytes) {
        diag_hint("--limit=bytes=N raises the limit");
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "the file has %zu bytes, the limit is %llu",
                   m->size, (unsigned long long)m->limits.file_bytes);
    }
    m->external.folder_name =
        slash ? arena_strndup(m->arena, m->path, (size_t)(slash - m->path) + 1) : "";
}

static void unpack(Model *m)
{
    ProtobufCAllocator allocator = model_allocator(m);
    m->proto = onnx__model_proto__unpack(&allocator, m->wire.length, m->wire.structure);
    if (!m->proto)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "not a valid ONNX file");
    m->graph = m->proto->graph;
    if (!m->graph)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "not an ONNX model: it holds no graph");
    if (m->graph->n_sparse_initializer)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path),
                   "sparse initializers are not supported (%zu of them)",
                   m->graph->n_sparse_initializer);
    const char *by = m->proto->producer_name;
    m->from_pytorch = by && !strcmp(by, "pytorch");
    m->from_tensorflow = by && !strcmp(by, "tf2onnx");
}

static void check_opsets(const Model *m)
{
    if (m->proto->n_opset_import > MOST_IMPORTS)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "%zu opset imports", m->proto->n_opset_import);
    for (size_t i = 0; i < m->proto->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *o = m->proto->opset_import[i];
        bool standard = !o->domain || !*o->domain || !strcmp(o->domain, "ai.onnx");
        if (standard && o->version < OLDEST_OPSET) {
            diag_hint("export the model again with opset 17 or later");
            diag_fatal(EXIT_MODEL, WHERE_FILE(m->path),
                       "opset %lld is too old: the oldest supported is %d", (long long)o->version,
                       OLDEST_OPSET);
        }
        if (standard && o->version > NEWEST_OPSET)
            diag_warn(WHERE_FILE(m->path),
                      "opset %lld is newer than %d, the newest known: its operators are read as "
                      "those of %d",
                      (long long)o->version, NEWEST_OPSET, NEWEST_OPSET);
    }
}

/* ---- initializers and checks ---- */

static void read_initializers(Model *m)
{
    m->init_index.arena = m->module.arena = m->arena;
    for (size_t i = 0; i < m->graph->n_initializer; i++) {
        const Onnx__TensorProto *t = m->graph->initializer[i];
        Where w = {m->path, "initializer", (uint32_t)i, t->name, NULL, -1};
        if (!t->name || !*t->name)
            diag_fatal(EXIT_MODEL, w, "an initializer without a name");
        uint32_t *slot = strmap_at(&m->init_index, t->name);
        if (*slot != NONE)
            diag_fatal(EXIT_MODEL, w, "two initializers have this name");
        *slot = m->init.n;
        RawTensor r;
        tensor_read(m, t, w, &r);
        vec_push(m->arena, &m->init, r);
        if (strlen(t->name) > MAX_PATH_NAME)
            continue;
        char *path = arena_strdup(m->arena, t->name);   /* "a.b.weight": modules "a.b" and "a" */
        for (char *dot = strrchr(path, '.'); dot; dot = strrchr(path, '.')) {
            *dot = '\0';
            uint32_t *owned = strmap_at(&m->module, path);
            if (*owned != NONE)
                break;
            *owned = 1;
        }
    }
}

Model *model_read(Arena *a, const char *path, const Limits *lim)
{
    Model *m = arena_new_of(a, Model);
    m->arena = a;
    m->path = path;
    m->limits = *lim;
    m->prefix.arena = m->body.arena = a;
    map_file(m);
    wire_scan(a, path, m->at, m->size, lim, &m->wire);
    unpack(m);
    check_opsets(m);
    read_initializers(m);
    return m;
}

static void rest(const void *at, size_t size)
{
    madvise((void *)(uintptr_t)at, size, MADV_DONTNEED);
}

void models_rest(const Graph *g)
{
    for (uint32_t i = 0; i < g->files.model.n; i++) {
        const Model *m = g->files.model.at[i];
        rest(m->at, m->size);
        for (uint32_t k = 0; k < m->external.file.n; k++)
            rest(m->external.file.at[k].at, (size_t)m->external.file.at[k].size);
    }
}

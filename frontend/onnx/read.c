/*
 * read.c - opens an .onnx file.  In: a path.  Out: a Model: the file mapped and scanned (wire.c), its structure
 * unpacked by protobuf-c into the arena, every initializer resolved to a Payload, functions inlined
 * (inline.c), nodes in topological order, names checked.  No tensor's bytes are read here.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/protobuf.h"
#include "read.h"

enum { OLDEST_OPSET = 7, MAX_PATH_NAME = 1024, MOST_IMPORTS = 1000 };

Limits limits_default(void)
{
    return (Limits){
        .file_bytes = UINT64_C(1) << 40, .messages = 4 << 20, .unpacked_bytes = UINT64_C(2) << 30,
        .depth = 64, .nodes = 1000000,
    };
}

const char *metadata_get(size_t n, Onnx__StringStringEntryProto **entry, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (entry[i]->key && entry[i]->value && !strcmp(entry[i]->key, key))
            return entry[i]->value;
    return NULL;
}

const Onnx__AttributeProto *raw_attr(const RawNode *n, const char *name)
{
    for (uint32_t i = 0; i < n->nattr; i++)
        if (n->attr[i]->name && !strcmp(n->attr[i]->name, name))
            return n->attr[i];
    return NULL;
}

int64_t raw_int(const RawNode *n, const char *name, int64_t dflt)
{
    const Onnx__AttributeProto *a = raw_attr(n, name);
    return a && a->has_i ? a->i : dflt;
}

Where raw_where(const Model *m, const RawNode *n, int input)
{
    return (Where){m->path, "node", n->index, n->name, n->op_type, input};
}

/* ---- the file ---- */

static void map_file(Model *m)
{
    int fd = open(m->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0)
        diag_fatal(EXIT_IO, WHERE_FILE(m->path), "cannot open: %s", strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size == 0) {
        const char *why = S_ISDIR(st.st_mode) ? "is a directory" : S_ISREG(st.st_mode) ? "the file is empty"
                                                                                     : "not a regular file";
        close(fd);
        if (S_ISDIR(st.st_mode))
            diag_hint("give the .onnx file itself");
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "%s", why);
    }
    m->size = (size_t)st.st_size;
    if (m->size > m->limits.file_bytes) {
        close(fd);
        diag_hint("--limit=bytes=N raises the limit");
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "the file has %zu bytes, the limit is %llu", m->size,
                   (unsigned long long)m->limits.file_bytes);
    }
    void *p = mmap(NULL, m->size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    int error = errno;
    close(fd);
    if (p == MAP_FAILED)
        diag_fatal(EXIT_IO, WHERE_FILE(m->path), "cannot map: %s", strerror(error));
    m->at = p;
    const char *slash = strrchr(m->path, '/');
    m->external.folder_name = slash ? arena_strndup(m->arena, m->path, (size_t)(slash - m->path) + 1) : "";
}

static void *from_arena(void *arena, size_t n) { return arena_alloc(arena, n); }
static void to_arena(void *arena, void *p) { (void)arena, (void)p; }

static void unpack(Model *m)
{
    ProtobufCAllocator allocator = {from_arena, to_arena, m->arena};
    m->proto = onnx__model_proto__unpack(&allocator, m->wire.length, m->wire.structure);
    if (!m->proto)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "not a valid ONNX file");
    m->graph = m->proto->graph;
    if (!m->graph)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "not an ONNX model: it holds no graph");
    if (m->graph->n_sparse_initializer)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "sparse initializers are not supported (%zu of them)",
                   m->graph->n_sparse_initializer);
    const char *by = m->proto->producer_name;
    m->from_pytorch = by && !strcmp(by, "pytorch");
}

static void check_opsets(const Model *m)
{
    if (m->proto->n_opset_import > MOST_IMPORTS)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "%zu opset imports", m->proto->n_opset_import);
    for (size_t i = 0; i < m->proto->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *o = m->proto->opset_import[i];
        bool standard = !o->domain || !*o->domain || !strcmp(o->domain, "ai.onnx");
        if (standard && (o->version < OLDEST_OPSET || o->version > 1000)) {
            diag_hint("export the model again with opset 17 or later");
            diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "opset %lld: %d is the oldest supported",
                       (long long)o->version, OLDEST_OPSET);
        }
    }
}

/* ---- tensors ---- */

/* Narrows an array of count numbers to elements of size bytes, little-endian. */
static Payload narrowed(Arena *a, const void *from, size_t from_size, uint64_t count, size_t size)
{
    uint8_t *out = arena_calloc(a, count ? count : 1, size);
    for (uint64_t i = 0; i < count; i++)
        memcpy(out + i * size, (const uint8_t *)from + i * from_size, size);
    return (Payload){.at = out, .length = count * size, .converted = true};
}

/* A run lifted by the scan: raw bytes and floats lie in the file as they are, varints are decoded. */
static Payload lifted(Model *m, const WireRun *run, size_t size, uint64_t elements, Where w)
{
    const uint8_t *at = m->at + run->offset;
    if (run->field == 9 || run->field == 4 || run->field == 10)
        return (Payload){.at = at, .length = (size_t)run->length, .file = m->path, .offset = run->offset};
    uint64_t n;
    if (!pb_packed(at, run->length, NULL, &n) || n != elements)
        diag_fatal(EXIT_MODEL, w, "its data holds another number of elements than its shape (%llu)",
                   (unsigned long long)elements);
    uint64_t *v = arena_array(m->arena, uint64_t, n ? n : 1);
    pb_packed(at, run->length, v, &n);
    return narrowed(m->arena, v, sizeof *v, n, size);
}

static Payload typed_array(Model *m, const Onnx__TensorProto *t, Dtype type, size_t size)
{
    Arena *a = m->arena;
    switch (dtype_onnx_field(type)) {
    case 4: return narrowed(a, t->float_data, 4, t->n_float_data, 4);
    case 5: return narrowed(a, t->int32_data, 4, t->n_int32_data, size);
    case 7: return narrowed(a, t->int64_data, 8, t->n_int64_data, 8);
    case 10: return narrowed(a, t->double_data, 8, t->n_double_data, 8);
    case 11: return narrowed(a, t->uint64_data, 8, t->n_uint64_data, size);
    default: BUG("no field of elements of type %s", dtype_name(type));
    }
}

void tensor_read(Model *m, const Onnx__TensorProto *t, Where w, RawTensor *out)
{
    *out = (RawTensor){.name = t->name ? t->name : ""};
    if (t->n_dims > MAX_RANK)
        diag_fatal(EXIT_MODEL, w, "rank %zu: the limit is %d", t->n_dims, MAX_RANK);
    int64_t elements = 1;
    out->shape.rank = (int)t->n_dims;
    for (size_t i = 0; i < t->n_dims; i++) {
        out->shape.d[i] = t->dims[i];
        if (t->dims[i] < 0 || __builtin_mul_overflow(elements, t->dims[i], &elements))
            diag_fatal(EXIT_MODEL, w, "dimension %zu is %lld: negative, or the element count overflows", i,
                       (long long)t->dims[i]);
    }
    if (t->data_type <= 0 || t->data_type > 40)
        diag_fatal(EXIT_MODEL, w, "data type %d is none of ONNX's", t->data_type);
    if (t->segment)
        diag_fatal(EXIT_MODEL, w, "segmented tensors are not supported");
    out->dtype = (Dtype)t->data_type;
    size_t size = dtype_size(out->dtype);
    int64_t bytes;
    if (size == 0)                                      /* strings, sub-byte types: an error only where they are used */
        return;
    if (__builtin_mul_overflow(elements, (int64_t)size, &bytes))
        diag_fatal(EXIT_MODEL, w, "the tensor's size overflows");
    if (t->data_location == 1) {
        out->bytes = external_bytes(m, t, (uint64_t)bytes, w);
        return;
    }
    if (t->has_payload) {
        const WireRun *run = &m->wire.run.at[t->payload];
        if (run->field != 9 && run->field != dtype_onnx_field(out->dtype))
            diag_fatal(EXIT_MODEL, w, "its data is of another type than %s", dtype_name(out->dtype));
        if (t->n_float_data + t->n_int32_data + t->n_int64_data + t->n_double_data + t->n_uint64_data)
            diag_fatal(EXIT_MODEL, w, "the tensor holds its data twice");
        out->bytes = lifted(m, run, size, (uint64_t)elements, w);
    } else {
        out->bytes = typed_array(m, t, out->dtype, size);
    }
    if (out->bytes.length != (uint64_t)bytes)
        diag_fatal(EXIT_MODEL, w, "it holds %zu bytes, its shape %s needs %lld", out->bytes.length,
                   shape_print(m->arena, out->dtype, &out->shape), (long long)bytes);
}

Tensor tensor_widen(Arena *a, const RawTensor *t, Where w)
{
    Tensor out = {.dtype = dtype_held(t->dtype), .shape = t->shape};
    if (out.dtype == DT_NONE)
        diag_fatal(EXIT_MODEL, w, "a tensor of type %s (ONNX data type %d) is not supported", dtype_name(t->dtype),
                   (int)t->dtype);
    int64_t n = shape_elements(&t->shape);
    size_t size = dtype_size(out.dtype);
    if (t->dtype == DT_U64 || (t->dtype == out.dtype && t->dtype != DT_BOOL)) {
        if ((uintptr_t)t->bytes.at % size == 0) {
            out.data = (void *)(uintptr_t)t->bytes.at;
        } else {
            out.data = arena_alloc(a, t->bytes.length);
            memcpy(out.data, t->bytes.at, t->bytes.length);
        }
        return out;
    }
    out.data = arena_calloc(a, n ? (size_t)n : 1, size);
    for (int64_t i = 0; i < n; i++)
        element_copy(out.dtype, out.data, t->dtype, t->bytes.at, i);
    return out;
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

static void check_names(const Model *m)
{
    StrMap seen = {.arena = m->arena};
    for (size_t i = 0; i < m->graph->n_input; i++) {
        const char *name = m->graph->input[i]->name;
        Where w = {m->path, "input", (uint32_t)i, name, NULL, -1};
        if (!name || !*name)
            diag_fatal(EXIT_MODEL, w, "an input without a name");
        uint32_t *slot = strmap_at(&seen, name);
        if (*slot != NONE)
            diag_fatal(EXIT_MODEL, w, "two inputs have this name");
        *slot = 0;
    }
    for (uint32_t i = 0; i < m->node.n; i++) {
        const RawNode *n = m->node.at[i];
        for (uint32_t j = 0; j < n->nout; j++) {
            if (!*n->out[j])
                continue;
            uint32_t *slot = strmap_at(&seen, n->out[j]);
            if (*slot != NONE || strmap_get(&m->init_index, n->out[j]) != NONE)
                diag_fatal(EXIT_MODEL, raw_where(m, n, -1), "value '%s' is defined twice", n->out[j]);
            *slot = 1;
        }
    }
    if (m->graph->n_output == 0)
        diag_fatal(EXIT_MODEL, WHERE_FILE(m->path), "the model has no outputs");
}

Model *model_open(Arena *a, const char *path, const Limits *lim)
{
    Model *m = arena_new_of(a, Model);
    m->arena = a;
    m->path = path;
    m->limits = *lim;
    m->prefix.arena = a;
    map_file(m);
    wire_scan(a, path, m->at, m->size, lim, &m->wire);
    unpack(m);
    check_opsets(m);
    read_initializers(m);
    inline_model(m);
    sort_nodes(m, &m->node);
    check_names(m);
    scope_assign(m, &m->node);
    return m;
}

/*
 * wire.c - the scan of a protobuf file before protobuf-c sees it: no recursion, no allocation but
 * the list of lifted runs and the compacted copy. In: the mapped bytes of an untrusted file.  Out:
 * the structure without its tensors' bytes (raw_data and packed typed arrays become
 * TensorProto.payload, an index), small enough and shallow enough to unpack; or a diagnostic with
 * the byte offset.  Two walks driven by protobuf-c's own descriptors: the first checks and counts,
 * the second copies.
 */
#include <string.h>

#include "base/file/hash.h"
#include "base/file/kind.h"
#include "base/protobuf.h"
#include "onnx.h"

enum { MAX_DEPTH = 256, FIELD_COST = 96, PATCH = 5, PAYLOAD = 1000 /* TensorProto.payload */ };

typedef struct {
    const ProtobufCMessageDescriptor *type;
    uint64_t end;                                       /* offset just past the message */
    /* singular messages met: protobuf-c would merge, quadratically */
    uint64_t seen;
    bool lifted;
    size_t patch;                                       /* where its length goes in the copy */
} Level;

typedef struct {
    const char *file;
    const uint8_t *at;
    uint64_t pos, size;
    const Limits *lim;
    Arena *arena;
    Wire *wire;
    uint8_t *out;                                       /* NULL in the first walk */
    size_t n_out;
    Level level[MAX_DEPTH];
    int depth;
    uint32_t n_run;
} Walk;

static _Noreturn void broken(const Walk *w, uint64_t offset, const char *why)
{
    const FileKind *kind = file_kind(w->at, w->size);
    if (kind) {
        diag_hint("%s", kind->as_model);
        diag_fatal(EXIT_MODEL, WHERE_FILE(w->file), "not an ONNX model: it is %s", kind->is);
    }
    diag_fatal(EXIT_MODEL, WHERE_FILE(w->file), "not a valid ONNX file: byte %llu: %s",
               (unsigned long long)offset, why);
}

/* A field of the file itself, a known one, has more bytes than the file has left: of a graph that
 * may be so long, the end is missing. */
static _Noreturn void cut_short(const Walk *w, uint64_t offset, uint64_t length)
{
    if (length <= w->lim->file_bytes && !file_kind(w->at, w->size)) {
        diag_hint("copy or download it again");
        diag_fatal(EXIT_MODEL, WHERE_FILE(w->file),
                   "the file is cut short: the field at byte %llu has %llu bytes, the file has "
                   "%llu more",
                   (unsigned long long)offset, (unsigned long long)length,
                   (unsigned long long)(w->size - w->pos));
    }
    broken(w, offset, "a length reaches past the end of its message");
}

/* The message ends inside a number: of the file itself, the end is missing. */
static _Noreturn void cut_number(const Walk *w)
{
    if (w->depth == 0 && !file_kind(w->at, w->size)) {
        diag_hint("copy or download it again");
        diag_fatal(EXIT_MODEL, WHERE_FILE(w->file),
                   "the file is cut short: byte %llu: it ends inside a number",
                   (unsigned long long)w->pos);
    }
    broken(w, w->pos, "the message ends inside a number");
}

/* A varint of at most max bytes, ending before the message does. */
static uint64_t varint(Walk *w, size_t max)
{
    uint64_t v, left = w->level[w->depth].end - w->pos;
    size_t taken = pb_varint(w->at + w->pos, w->at + w->pos + left, max, &v);
    if (taken == 0 && left <= max)
        cut_number(w);
    if (taken == 0)
        broken(w, w->pos, "a number is longer than its type allows");
    w->pos += taken;
    return v;
}

static void put(Walk *w, const uint8_t *p, uint64_t n)
{
    if (w->out)
        memcpy(w->out + w->n_out, p, n);
    w->n_out += n;
}

static void put_varint(Walk *w, uint64_t v)
{
    uint8_t bytes[PB_VARINT_MAX];
    put(w, bytes, pb_encode(bytes, v));
}

/* A length of fixed width, so that it can be written when the message has ended. */
static void patch_length(Walk *w, size_t at, uint64_t v)
{
    if (w->out)
        for (int i = 0; i < PATCH; i++, v >>= 7)
            w->out[at + (size_t)i] = (uint8_t)((v & 0x7f) | (i < PATCH - 1 ? 0x80 : 0));
}

static void charge(Walk *w, uint64_t offset, uint64_t bytes)
{
    w->wire->unpacked_bytes += bytes;
    if (w->wire->unpacked_bytes > w->lim->unpacked_bytes) {
        diag_hint("--limit=unpacked=BYTES raises the limit");
        diag_fatal(EXIT_MODEL, WHERE_FILE(w->file),
                   "the model's structure would take more than %llu bytes when unpacked (at byte "
                   "%llu of the file)",
                   (unsigned long long)w->lim->unpacked_bytes, (unsigned long long)offset);
    }
}

static void enter(Walk *w, const ProtobufCFieldDescriptor *f, uint64_t length, uint64_t offset)
{
    Level *l = &w->level[w->depth];
    if (f && f->label != PROTOBUF_C_LABEL_REPEATED) {
        uint64_t bit = UINT64_C(1) << ((size_t)(f - l->type->fields) & 63);
        if (l->seen & bit)
            broken(w, offset, "a field that may occur once occurs twice");
        l->seen |= bit;
    }
    if (f && ((uint32_t)w->depth + 1 >= w->lim->depth || w->depth + 1 >= MAX_DEPTH)) {
        diag_hint("--limit=depth=N raises the limit");
        diag_fatal(EXIT_MODEL, WHERE_FILE(w->file),
                   "messages are nested more than %u deep (at byte %llu of the file)",
                   w->lim->depth, (unsigned long long)offset);
    }
    if (++w->wire->messages > w->lim->messages) {
        diag_hint("--limit=messages=N raises the limit");
        diag_fatal(EXIT_MODEL, WHERE_FILE(w->file),
                   "more than %llu messages (at byte %llu of the file)",
                   (unsigned long long)w->lim->messages, (unsigned long long)offset);
    }
    const ProtobufCMessageDescriptor *type = f ? f->descriptor : &onnx__model_proto__descriptor;
    charge(w, offset, type->sizeof_message + FIELD_COST);
    if (f) {
        w->depth++;
        put(w, (const uint8_t[PATCH]){0}, PATCH);
    }
    w->level[w->depth] =
        (Level){.type = type, .end = w->pos + length, .patch = w->n_out - (f ? PATCH : 0)};
}

static bool is_run(const ProtobufCMessageDescriptor *type, uint32_t id)
{
    return type == &onnx__tensor_proto__descriptor && tensor_field_is_data(id);
}

static size_t fixed_size(ProtobufCType t)
{
    switch (t) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32: return 4;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64: return 8;
    default: return 0;
    }
}

static bool is_varint_type(ProtobufCType t)
{
    return fixed_size(t) == 0 && t != PROTOBUF_C_TYPE_STRING && t != PROTOBUF_C_TYPE_BYTES
           && t != PROTOBUF_C_TYPE_MESSAGE;
}

/* Lifts a tensor's bytes: the copy gets the number of the run instead. */
static void lift(Walk *w, uint32_t id, uint64_t length, uint64_t offset)
{
    Level *l = &w->level[w->depth];
    if (l->lifted)
        broken(w, offset, "a tensor holds its data twice");
    l->lifted = true;
    if (w->out)
        vec_push(w->arena, &w->wire->run, ((WireRun){w->pos, length, id}));
    put_varint(w, PAYLOAD << 3 | PB_VARINT);
    put_varint(w, w->n_run++);
    charge(w, offset, sizeof(WireRun) + FIELD_COST);
    w->pos += length;
}

static void bytes_field(Walk *w, const ProtobufCFieldDescriptor *f, uint32_t id, uint64_t offset)
{
    Level *l = &w->level[w->depth];
    uint64_t length = varint(w, 10);
    if (length > l->end - w->pos && w->depth == 0 && f)
        cut_short(w, offset, length);
    if (length > l->end - w->pos)
        broken(w, offset, "a length reaches past the end of its message");
    if (f && is_run(l->type, id)) {
        lift(w, id, length, offset);
        return;
    }
    if (!f) {
        w->pos += length;
        return;
    }
    put_varint(w, (uint64_t)id << 3 | PB_BYTES);
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        enter(w, f, length, offset);
        return;
    }
    const uint8_t *p = w->at + w->pos;
    uint64_t n = 0, cost = 0;
    size_t fixed = fixed_size(f->type);
    if (length > INT32_MAX)
        broken(w, offset, "a string is longer than 2 GiB");
    if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_BYTES) {
        if (f->type == PROTOBUF_C_TYPE_STRING && memchr(p, 0, length))
            broken(w, offset, "a name contains a NUL byte");
        cost = length + 32;
    } else if (f->label != PROTOBUF_C_LABEL_REPEATED) {
        broken(w, offset, "a number where the format has another type");
    } else if (fixed ? length % fixed != 0 : !pb_packed(p, length, NULL, &n)) {
        broken(w, offset, "a packed array is broken");
    } else {
        cost = 8 * (fixed ? length / fixed : n);
    }
    charge(w, offset, cost + FIELD_COST);
    put_varint(w, length);
    put(w, p, length);
    w->pos += length;
}

static void field(Walk *w)
{
    Level *l = &w->level[w->depth];
    uint64_t offset = w->pos, tag = varint(w, 5), id = tag >> 3;
    if (id == 0 || id >= 1u << 29)
        broken(w, offset, "no field has this number");
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field(l->type, (unsigned)id);
    if (id == PAYLOAD && l->type == &onnx__tensor_proto__descriptor)
        f = NULL;
    uint32_t kind = tag & 7;
    if (kind == PB_BYTES) {
        bytes_field(w, f, (uint32_t)id, offset);
        return;
    }
    uint64_t start = w->pos;
    if (kind == PB_VARINT)
        varint(w, 10);
    else if (kind == PB_64 || kind == PB_32)
        w->pos += kind == PB_64 ? 8 : 4;
    else
        broken(w, offset, "an unknown wire type");
    if (w->pos > l->end)
        broken(w, offset, "a field reaches past the end of its message");
    if (!f)
        return;
    if (kind == PB_VARINT ? !is_varint_type(f->type)
                          : fixed_size(f->type) != (kind == PB_64 ? 8 : 4))
        broken(w, offset, "a field has another wire type than the format says");
    charge(w, offset, FIELD_COST);
    put_varint(w, tag);
    put(w, w->at + start, w->pos - start);
}

static void walk(Walk *w)
{
    w->pos = 0;
    w->depth = 0;
    w->n_out = 0;
    w->n_run = 0;
    w->wire->messages = w->wire->unpacked_bytes = 0;
    enter(w, NULL, w->size, 0);
    for (;;) {
        while (w->pos < w->level[w->depth].end)
            field(w);
        if (w->depth == 0)
            return;
        Level *l = &w->level[w->depth--];
        patch_length(w, l->patch, w->n_out - l->patch - PATCH);
    }
}

void wire_scan(Arena *a, const char *file, const uint8_t *at, size_t size, const Limits *lim,
               Wire *wire)
{
    *wire = (Wire){0};
    Walk w = {.file = file, .at = at, .size = size, .lim = lim, .arena = a, .wire = wire};
    walk(&w);
    if (w.n_out > INT32_MAX)
        diag_fatal(EXIT_MODEL, WHERE_FILE(file),
                   "the model's structure alone is larger than 2 GiB");
    wire->structure = w.out = arena_alloc(a, w.n_out);
    wire->length = w.n_out;
    walk(&w);
    wire->hash = hash_bytes(HASH_START, wire->structure, wire->length);
}

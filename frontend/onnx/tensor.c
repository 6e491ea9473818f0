/*
 * tensor.c - tensors of the file.  In: a TensorProto whose bytes are in the file, in another file,
 * or in typed arrays. Out: type, shape and Payload, checked against each other; and dense elements
 * of a type that is computed in.
 */
#include <string.h>

#include "onnx.h"

/* Narrows an array of count numbers to elements of size bytes, little-endian. */
static Payload narrowed(Arena *a, const void *from, size_t from_size, uint64_t count, size_t size)
{
    uint8_t *out = arena_calloc(a, count ? count : 1, size);
    for (uint64_t i = 0; i < count; i++)
        memcpy(out + i * size, (const uint8_t *)from + i * from_size, size);
    return (Payload){.at = out, .length = count * size, .converted = true};
}

/* A run lifted by the scan: raw bytes and floats lie in the file as they are, varints are decoded.
 */
static Payload lifted(Model *m, const WireRun *run, size_t size, uint64_t elements, Where w)
{
    const uint8_t *at = m->at + run->offset;
    if (run->field == 9 || run->field == 4 || run->field == 10)
        return (Payload){
            .at = at, .length = (size_t)run->length, .file = m->path, .offset = run->offset};
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
            diag_fatal(EXIT_MODEL, w,
                       "dimension %zu is %lld: negative, or the element count overflows", i,
                       (long long)t->dims[i]);
    }
    if (t->data_type <= 0 || t->data_type > 40)
        diag_fatal(EXIT_MODEL, w, "ONNX has no data type %d", t->data_type);
    if (t->segment)
        diag_fatal(EXIT_MODEL, w, "segmented tensors are not supported");
    out->dtype = (Dtype)t->data_type;
    int bits = dtype_bits(out->dtype);
    size_t size = bits < 8 ? 1 : dtype_size(out->dtype);
    int64_t bytes;
    if (bits == 0) /* strings: an error only where they are used */
        return;
    if (__builtin_mul_overflow(elements, (int64_t)bits, &bytes) || bytes > INT64_MAX - 7)
        diag_fatal(EXIT_MODEL, w, "the tensor's size overflows");
    bytes = (bytes + 7) / 8;
    if (t->data_location == 1) {
        out->bytes = external_bytes(m, t, (uint64_t)bytes, w);
        return;
    }
    if (t->has_payload) {
        const WireRun *run = &m->wire.run.at[t->payload];
        if (run->field != 9 && run->field != dtype_onnx_field(out->dtype))
            diag_fatal(EXIT_MODEL, w, "its data is of another type than %s",
                       dtype_name(out->dtype));
        if (t->n_float_data + t->n_int32_data + t->n_int64_data + t->n_double_data +
            t->n_uint64_data)
            diag_fatal(EXIT_MODEL, w, "the tensor holds its data twice");
        out->bytes = lifted(m, run, size, (uint64_t)bytes / size, w);
    } else {
        out->bytes = typed_array(m, t, out->dtype, size);
    }
    if (out->bytes.length != (uint64_t)bytes)
        diag_fatal(EXIT_MODEL, w, "it holds %zu bytes, its shape %s needs %lld", out->bytes.length,
                   shape_print(m->arena, out->dtype, &out->shape), (long long)bytes);
}

bool tensor_field_is_data(uint32_t field)
{
    return field == 4 || field == 5 || field == 7 || field == 9 || field == 10 || field == 11;
}

static void *from_arena(void *arena, size_t n) { return arena_alloc(arena, n); }
static void to_arena(void *arena, void *p) { (void)arena, (void)p; }

ProtobufCAllocator model_allocator(Model *m)
{
    return (ProtobufCAllocator){from_arena, to_arena, m->arena};
}

bool tensor_at(Model *m, PbSpan body, RawTensor *out)
{
    ProtobufCAllocator allocator = model_allocator(m);
    PbMessage head = {.a = m->arena};
    Where w = WHERE_FILE(m->path);
    WireRun run = {0};
    for (PbField f; pb_next(&body, &f);)
        if (f.body.at && tensor_field_is_data(f.number))
            run = (WireRun){(uint64_t)(f.body.at - m->at), f.value, f.number};
        else
            pb_put(&head, f.start, (size_t)(f.end - f.start));
    Onnx__TensorProto *t = onnx__tensor_proto__unpack(&allocator, head.n, head.at);
    if (!t)
        diag_fatal(EXIT_MODEL, w, "not a valid ONNX file");
    t->has_payload = run.field != 0;
    t->payload = m->wire.run.n;
    if (t->has_payload)
        vec_push(m->arena, &m->wire.run, run);
    tensor_read(m, t, w, out);
    return dtype_bits(out->dtype) > 0;
}

void tensor_single(Arena *a, RawTensor *t)
{
    if (!dtype_is_half(t->dtype))
        return;
    size_t n = (size_t)shape_elements(&t->shape);
    float *single = arena_array(a, float, n ? n : 1);
    for (size_t i = 0; i < n; i++)
        element_copy(DT_F32, single, t->dtype, t->bytes.at, (int64_t)i);
    t->half = t->dtype;
    t->half_bytes = t->bytes;
    t->dtype = DT_F32;
    t->bytes = (Payload){.at = (const uint8_t *)single,
                         .length = n * sizeof *single,
                         .file = t->bytes.file,
                         .converted = true};
}

RawTensor tensor_in_file(const RawTensor *t)
{
    RawTensor file = *t;
    if (t->half != DT_NONE) {
        file.dtype = t->half;
        file.bytes = t->half_bytes;
        file.half = DT_NONE;
    }
    return file;
}

Dtype tensor_file_type(const RawTensor *t) { return t->half != DT_NONE ? t->half : t->dtype; }

/* Elements that share bytes, the first in the lowest bits, each in a byte of its own. */
static const uint8_t *unpacked(Arena *a, const RawTensor *t, int64_t n)
{
    int bits = dtype_bits(t->dtype), spare = 8 - bits;
    bool is_signed = dtype_is_signed(t->dtype);
    uint8_t *out = arena_alloc(a, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        uint8_t at = t->bytes.at[i * bits / 8], high = (uint8_t)(at << (spare - i * bits % 8));
        int shifted = is_signed ? (int8_t)high >> spare : high >> spare;
        out[i] = (uint8_t)shifted;
    }
    return out;
}

Tensor tensor_widen(Arena *a, const RawTensor *t, Where w)
{
    Tensor out = {.dtype = dtype_held(t->dtype), .shape = t->shape};
    if (out.dtype == DT_NONE)
        diag_fatal(EXIT_MODEL, w, "a tensor of type %s (ONNX data type %d) is not supported",
                   dtype_name(t->dtype), (int)t->dtype);
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
    const uint8_t *from = dtype_bits(t->dtype) < 8 ? unpacked(a, t, n) : t->bytes.at;
    out.data = arena_calloc(a, n ? (size_t)n : 1, size);
    for (int64_t i = 0; i < n; i++)
        element_copy(out.dtype, out.data, t->dtype, from, i);
    return out;
}

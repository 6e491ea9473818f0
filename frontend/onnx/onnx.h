/*
 * onnx.h - an .onnx file as the rest of the frontend sees it: mapped, checked against the limits,
 * its structure unpacked by protobuf-c, its functions inlined, its nodes in topological order.
 * Bytes of tensors stay where they are, as Payloads.  Private to frontend/ and to those who write a
 * model back, autodiff/export/ and annotate/.
 */
#ifndef PPSPLIT_ONNX_H
#define PPSPLIT_ONNX_H

#include "base/protobuf.h"
#include "frontend/frontend.h"
#include "onnx.pb-c.h"

/* ---- wire.c: the scan of the wire format ----------------------------------------------------- */

/* A run of tensor bytes lifted out of the structure: field is its number in TensorProto (9 =
 * raw_data). */
typedef struct { uint64_t offset, length; uint32_t field; } WireRun;

typedef struct {
    /* TensorProto.payload is an index into it */
    VEC(WireRun) run;
    uint8_t *structure;                                 /* the message without its tensors' bytes */
    size_t length;
    /* counted, predicted, of the structure's bytes */
    uint64_t messages, unpacked_bytes, hash;
} Wire;

void wire_scan(Arena *a, const char *file, const uint8_t *at, size_t size, const Limits *lim,
               Wire *wire);

/* ---- external.c ------------------------------------------------------------------------------ */

typedef struct {
    const char *location;
    const char *path;
    const uint8_t *at;
    uint64_t size;
    bool absent;                                        /* it is not there: Limits.absent */
} ExternalFile;
typedef struct { const char *folder_name; VEC(ExternalFile) file; } External;

/* The only way in which a model can name another file.  expected: bytes that the shape needs. */
Payload external_bytes(struct Model *m, const Onnx__TensorProto *t, uint64_t expected, Where w);

/* ---- read.c: a Model, whose nodes names/inline.c fills --------------------------------------- */

/* A tensor of the file; dtype as in the file, bytes little-endian and dense.  params/params.c turns
 * initializers of a half type into f32, from which parameters are made. */
typedef struct {
    const char *name;
    Dtype dtype;
    Shape shape;
    Payload bytes;
    Dtype half;                                         /* the file's type, or DT_NONE: dtype */
    bool is_lifted;                                     /* a Constant's */
    /* a Constant's node; of a body's initializer its tensor; NULL: an initializer of the graph */
    const void *home;
    bool is_inside;                                     /* of a body or a local function */
    Payload half_bytes;                                 /* as the file has them */
} RawTensor;

struct Frame;
struct Recipe;                                          /* names/names.h */

/* One node after inlining.  Absent operands and outputs are "". */
typedef struct RawNode {
    const char *name, *op_type, *domain;
    int opset;                                          /* of its domain */
    uint32_t nin, nout, nattr;
    const char **in, **out;
    Onnx__AttributeProto **attr;                        /* references resolved */
    uint32_t index;                                     /* of the top-level node in the file */
    bool dead;                                          /* nothing the model yields needs it */
    /* part of a function's or a branch's body */
    bool inlined;
    int pipeline_stage;                                 /* -1: none */
    /* dynamo metadata, or NULL */
    const char *name_scopes, *fx_node, *stack;
    /* scope of the function call it was inlined from, or NULL */
    const char *call_scope;
    const char *scope;                                  /* scope.c */
    /* scope.c: which call of a module this is */
    uint32_t call;
    /* params/: by operand, how it is made from parameters, or NULL; or NULL for all */
    const struct Recipe **made;
    /* stop.c, detach.c: by result, whether no gradient passes; or NULL */
    bool *stop_out;
    /* params/params.c: parameter to add to output 0, or NONE */
    uint32_t bias;
    /* inline.c: names and attributes its subgraphs see */
    struct Frame *frame;
} RawNode;

typedef VEC(RawNode *) RawNodes;

/* About a parameter: another name in the exporter's list; or what folding made of the original, of
 * which only the name is left. */
typedef struct { const char *parameter, *text; } ParamNote;

struct Model {
    Arena *arena;
    const char *path;
    const uint8_t *at;                                  /* the mapped file */
    size_t size;
    Limits limits;
    Wire wire;
    External external;
    Onnx__ModelProto *proto;
    Onnx__GraphProto *graph;
    VEC(RawTensor) init;
    StrMap init_index;                                  /* initializer name -> index into init */
    /* every module path that owns an initializer -> 1 */
    StrMap module;
    RawNodes node;
    RawNodes inner;                                     /* of bodies, as often as they are read */
    uint64_t inlined_nodes;                             /* against limits.nodes */
    /* inline.c: name prefixes in use, functions by key */
    StrMap prefix, function;
    /* inline.c: body, or Constant of a function or body (its address as text) -> index in init of
     * its first initializer */
    StrMap body;
    bool from_pytorch, from_tensorflow;
    VEC(ParamNote) tied, changed;                       /* params/report.c */
};

Model *model_read(Arena *a, const char *path, const Limits *lim);

/* ---- tensor.c -------------------------------------------------------------------------------- */

void tensor_read(Model *m, const Onnx__TensorProto *t, Where w, RawTensor *out);
/* Whether this field of TensorProto holds the elements. */
bool tensor_field_is_data(uint32_t field);
/* The tensor whose message is there in the file; false: its elements are strings */
bool tensor_at(Model *m, PbSpan body, RawTensor *out);
ProtobufCAllocator model_allocator(Model *m);           /* into its arena */
/* An initializer of a half type becomes the same numbers in f32; others stay. */
void tensor_single(Arena *a, RawTensor *t);
RawTensor tensor_in_file(const RawTensor *t);           /* as it was before */
Dtype tensor_file_type(const RawTensor *t);
/* Dense elements of a computable type: small integers, halves and bools are widened; fatal for
 * types that cannot be. */
Tensor tensor_widen(Arena *a, const RawTensor *t, Where w);

/* ---- node.c ---------------------------------------------------------------------------------- */

/* The node's entry for the model's first configuration; NULL: it has none */
const Onnx__NodeDeviceConfigurationProto *node_devices(const Model *m, const Onnx__NodeProto *n);
const char *metadata_get(size_t n, Onnx__StringStringEntryProto **entry, const char *key);
bool raw_decimal(const char *s, uint64_t *v); /* digits alone, below 2^64 */
/* The shape that the file gives of a tensor, or NULL */
const Onnx__TensorShapeProto *raw_shape(const Onnx__ValueInfoProto *v);
/* The initializer of this name, or NULL */
const RawTensor *raw_array(const Model *m, const char *name);
/* The node of a list that makes a value, or NULL */
const RawNode *raw_maker(const RawNodes *list, const char *name);
/* NULL when absent */
const Onnx__AttributeProto *raw_attr(const RawNode *n, const char *name);
int64_t raw_int(const RawNode *n, const char *name, int64_t dflt);
Where raw_where(const Model *m, const RawNode *n, int input);

#endif

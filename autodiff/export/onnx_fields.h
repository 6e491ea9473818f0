/* onnx_fields.h - field numbers of onnx.proto, and its enumerators, for those who write the wire
 * format themselves. */
#ifndef PPSPLIT_ONNX_FIELDS_H
#define PPSPLIT_ONNX_FIELDS_H

#include "base/protobuf.h"

enum { MODEL_IR = 1, MODEL_PRODUCER = 2, MODEL_GRAPH = 7, MODEL_OPSET = 8 };
enum { OPSET_DOMAIN = 1, OPSET_VERSION = 2 };
enum { MODEL_METADATA = 14, MODEL_FUNCTION = 25, MODEL_CONFIGURATION = 26, FUNCTION_NODE = 7 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTRIBUTE = 5 };
enum { NODE_DOMAIN = 7, NODE_METADATA = 9, NODE_DEVICES = 10 };
/* Of DeviceConfigurationProto, NodeDeviceConfigurationProto, ShardingSpecProto and what is in it */
enum { DEVICES_NAME = 1, DEVICES_COUNT = 2, ENTRY_ID = 1, ENTRY_SPEC = 2, ENTRY_STAGE = 3 };
enum { SPEC_TENSOR = 1, SPEC_DEVICE = 2, SPEC_GROUP = 3, SPEC_DIM = 4, GROUP_KEY = 1 };
enum { GROUP_DEVICE = 2, SHARDED_AXIS = 1, SHARDED_PART = 2, PART_SIZE = 1, PART_SHARDS = 3 };
enum { IR_WITH_DEVICES = 11 };                          /* the first IR version that has them */
enum {
    ATTR_NAME = 1,
    ATTR_F = 2,
    ATTR_I = 3,
    ATTR_S = 4,
    ATTR_T = 5,
    ATTR_G = 6,
    ATTR_INTS = 8,
    ATTR_TENSORS = 10,
    ATTR_GRAPHS = 11,
    ATTR_SPARSE = 22,
    ATTR_TYPE = 20,
    TYPE_FLOAT = 1,
    TYPE_INT = 2,
    TYPE_STRING = 3,
    TYPE_OF_TENSOR = 4,
    TYPE_OF_GRAPH = 5,
    TYPE_INTS = 7
};
enum { SPARSE_VALUES = 1, SPARSE_INDICES = 2 };
enum {
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9,
    TENSOR_EXTERNAL = 13,
    TENSOR_LOCATION = 14,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    LOCATION_EXTERNAL = 1
};
enum {
    INFO_NAME = 1,
    INFO_TYPE = 2,
    TYPE_TENSOR = 1,
    TT_ELEM = 1,
    TT_SHAPE = 2,
    SHAPE_DIM = 1,
    DIM_VALUE = 1
};

/* A key and its value: TENSOR_EXTERNAL, NODE_METADATA, MODEL_METADATA. */
static inline void onnx_put_entry(PbMessage *m, uint32_t field, const char *key, const char *value)
{
    PbMessage entry = {.a = m->a};
    pb_put_string(&entry, ENTRY_KEY, key);
    pb_put_string(&entry, ENTRY_VALUE, value);
    pb_put_message(m, field, &entry);
}

/* Where a tensor's bytes are, instead of them. */
static inline void onnx_put_external(PbMessage *tensor, const char *file, uint64_t offset, size_t n)
{
    Arena *a = tensor->a;
    onnx_put_entry(tensor, TENSOR_EXTERNAL, "location", file);
    onnx_put_entry(tensor, TENSOR_EXTERNAL, "offset",
                   arena_printf(a, "%llu", (unsigned long long)offset));
    onnx_put_entry(tensor, TENSOR_EXTERNAL, "length", arena_printf(a, "%zu", n));
    pb_put_int(tensor, TENSOR_LOCATION, LOCATION_EXTERNAL);
}

#endif

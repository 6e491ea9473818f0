/*
 * skeleton_tensor.c - constants of the model's file in its skeleton, wherever they stand: in the
 * graph, in nodes, in bodies of an If, a Loop or a Scan, in local functions.
 *
 * In: a message of the file.  Out: its bytes, but long elements, raw or of a type's own field, are
 * outside (outside.c) with their checksum, and those that were in another file of the model's are
 * in the skeleton or outside.
 */
#include "frontend/onnx/onnx.h"
#include "onnx_fields.h"
#include "outside.h"
#include "skeleton.h"

static const struct { Holder in; uint32_t field; Holder is; } ways[] = {
    {IN_MODEL, MODEL_GRAPH, IN_GRAPH},
    {IN_MODEL, MODEL_FUNCTION, IN_FUNCTION},
    {IN_FUNCTION, FUNCTION_NODE, IN_NODE},
    {IN_GRAPH, GRAPH_NODE, IN_NODE},
    {IN_GRAPH, GRAPH_INITIALIZER, IS_TENSOR},
    {IN_NODE, NODE_ATTRIBUTE, IN_ATTRIBUTE},
    {IN_ATTRIBUTE, ATTR_T, IS_TENSOR},
    {IN_ATTRIBUTE, ATTR_TENSORS, IS_TENSOR},
    {IN_ATTRIBUTE, ATTR_G, IN_GRAPH},
    {IN_ATTRIBUTE, ATTR_GRAPHS, IN_GRAPH},
    {IN_ATTRIBUTE, ATTR_SPARSE, IN_SPARSE},
    {IN_SPARSE, SPARSE_VALUES, IS_TENSOR},
    {IN_SPARSE, SPARSE_INDICES, IS_TENSOR},
};

Holder holder_of(Holder in, uint32_t field)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (ways[i].in == in && ways[i].field == field)
            return ways[i].is;
    return IN_NOTHING;
}

static bool is_long(const PbField *f)
{
    return tensor_field_is_data(f->number) && f->body.end - f->body.at >= LONG_CONSTANT;
}

static bool is_elsewhere(const PbField *f)
{
    return f->number == TENSOR_LOCATION && f->value == LOCATION_EXTERNAL;
}

/* Is anything within to be written in another way than it stands there? */
static bool changes(PbSpan body, Holder in)
{
    bool any = false;
    for (PbField f; !any && pb_next(&body, &f);) {
        Holder is = holder_of(in, f.number);
        any = in == IS_TENSOR    ? is_long(&f) || is_elsewhere(&f)
              : is != IN_NOTHING ? changes(f.body, is)
                                 : false;
    }
    return any;
}

void skeleton_put_elements(OutsideFile *o, PbMessage *tensor, const void *at, size_t n)
{
    const char *sha256 = outside_put(o, tensor, at, n);
    if (sha256)
        onnx_put_entry(tensor, TENSOR_EXTERNAL, SKELETON_SHA256, sha256);
    else
        pb_put_bytes(tensor, TENSOR_RAW, at ? at : "", n);
}

static void put_tensor(Model *m, OutsideFile *o, PbMessage *to, PbSpan body)
{
    RawTensor t;
    bool numbers = tensor_at(m, body, &t);
    for (PbField f; pb_next(&body, &f);)
        if (!numbers || (!tensor_field_is_data(f.number) && f.number != TENSOR_EXTERNAL &&
                         f.number != TENSOR_LOCATION))
            pb_put(to, f.start, (size_t)(f.end - f.start));
    if (numbers)
        skeleton_put_elements(o, to, t.bytes.at, t.bytes.length);
}

void skeleton_put_field(Model *m, OutsideFile *o, PbMessage *to, const PbField *f, Holder in)
{
    Holder is = holder_of(in, f->number);
    if (is == IN_NOTHING || !changes(f->body, is)) {
        pb_put(to, f->start, (size_t)(f->end - f->start));
        return;
    }
    PbMessage inner = {.a = to->a};
    PbSpan body = f->body;
    if (is == IS_TENSOR)
        put_tensor(m, o, &inner, body);
    else
        for (PbField g; pb_next(&body, &g);)
            skeleton_put_field(m, o, &inner, &g, is);
    pb_put_message(to, f->number, &inner);
}

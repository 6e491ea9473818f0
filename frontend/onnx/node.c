/* node.c - what many ask of a node of the file: its attributes, its metadata, its place for a
 * diagnostic. */
#include <string.h>

#include "onnx.h"

const char *metadata_get(size_t n, Onnx__StringStringEntryProto **entry, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (entry[i]->key && entry[i]->value && !strcmp(entry[i]->key, key))
            return entry[i]->value;
    return NULL;
}

bool raw_decimal(const char *s, uint64_t *v)
{
    *v = 0;
    if (!*s || strlen(s) > 20)
        return false;
    for (; *s; s++)
        if (*s < '0' || *s > '9' || __builtin_mul_overflow(*v, 10u, v) ||
            __builtin_add_overflow(*v, (uint64_t)(*s - '0'), v))
            return false;
    return true;
}

const Onnx__NodeDeviceConfigurationProto *node_devices(const Model *m, const Onnx__NodeProto *n)
{
    const char *first = m->proto->n_configuration ? m->proto->configuration[0]->name : NULL;
    for (size_t i = 0; i < n->n_device_configurations; i++) {
        const char *id = n->device_configurations[i]->configuration_id;
        if (!first || !id || !strcmp(id, first))
            return n->device_configurations[i];
    }
    return NULL;
}

const Onnx__TensorShapeProto *raw_shape(const Onnx__ValueInfoProto *v)
{
    bool tensor = v->type && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    return tensor ? v->type->tensor_type->shape : NULL;
}

const RawTensor *raw_array(const Model *m, const char *name)
{
    uint32_t i = strmap_get(&m->init_index, name);
    return i == NONE ? NULL : &m->init.at[i];
}

const RawNode *raw_maker(const RawNodes *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t k = 0; k < list->at[i]->nout; k++)
            if (!list->at[i]->dead && !strcmp(list->at[i]->out[k], name))
                return list->at[i];
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

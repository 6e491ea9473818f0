/*
 * onnx_node.c - the parts of an ONNX file being written: operators with their attributes, tensors,
 * names of values.
 */
#include <string.h>

#include "onnx_fields.h"
#include "onnx_write.h"
#include "outside.h"

/* ---- nodes and tensors ----------------------------------------------------------------------- */

const char *ow_made(Ow *w) { return arena_printf(w->a, "%%w%u", w->made++); }

OnnxNode ow_begin(Ow *w, const char *op, uint32_t nin, const char *const *in, uint32_t nout,
                  const char *const *out)
{
    OnnxNode n = {.msg.a = w->a};
    for (uint32_t i = 0; i < nin; i++)
        pb_put_string(&n.msg, NODE_INPUT, in[i]);
    for (uint32_t i = 0; i < nout; i++)
        pb_put_string(&n.msg, NODE_OUTPUT, out[i]);
    pb_put_string(&n.msg, NODE_NAME, arena_printf(w->a, "n%u", w->nodes++));
    pb_put_string(&n.msg, NODE_OP, op);
    return n;
}

static void end_attribute(OnnxNode *n, PbMessage *attr, int type)
{
    pb_put_int(attr, ATTR_TYPE, type);
    pb_put_message(&n->msg, NODE_ATTRIBUTE, attr);
}

void ow_int(OnnxNode *n, const char *name, int64_t v)
{
    PbMessage attr = {.a = n->msg.a};
    pb_put_string(&attr, ATTR_NAME, name);
    pb_put_int(&attr, ATTR_I, v);
    end_attribute(n, &attr, TYPE_INT);
}

void ow_real(OnnxNode *n, const char *name, double v)
{
    enum { FOUR_BYTES = 5 };
    PbMessage attr = {.a = n->msg.a};
    float single = (float)v;
    pb_put_string(&attr, ATTR_NAME, name);
    pb_put_key(&attr, ATTR_F, FOUR_BYTES);
    pb_put(&attr, &single, sizeof single);
    end_attribute(n, &attr, TYPE_FLOAT);
}

void ow_int_list(OnnxNode *n, const char *name, int count, const int64_t *v)
{
    PbMessage attr = {.a = n->msg.a};
    pb_put_string(&attr, ATTR_NAME, name);
    for (int i = 0; i < count; i++)
        pb_put_int(&attr, ATTR_INTS, v[i]);
    end_attribute(n, &attr, TYPE_INTS);
}

void ow_string(OnnxNode *n, const char *name, const char *v)
{
    PbMessage attr = {.a = n->msg.a};
    pb_put_string(&attr, ATTR_NAME, name);
    pb_put_string(&attr, ATTR_S, v);
    end_attribute(n, &attr, TYPE_STRING);
}

void ow_domain(OnnxNode *n, const char *domain) { pb_put_string(&n->msg, NODE_DOMAIN, domain); }

void ow_import(Ow *w, const char *domain)
{
    for (uint32_t i = 0; i < w->domain.n; i++)
        if (!strcmp(w->domain.at[i], domain))
            return;
    vec_push(w->a, &w->domain, domain);
}

void ow_end(Ow *w, OnnxNode *n) { pb_put_message(&w->node, GRAPH_NODE, &n->msg); }

/* A TensorProto up to its bytes, which follow as the last field. */
PbMessage ow_tensor_head(Arena *a, const char *name, Dtype t, const Shape *s)
{
    PbMessage m = {.a = a};
    for (int i = 0; i < s->rank; i++)
        pb_put_int(&m, TENSOR_DIMS, s->d[i]);
    pb_put_int(&m, TENSOR_TYPE, t);
    pb_put_string(&m, TENSOR_NAME, name);
    return m;
}

void ow_info(Ow *w, PbMessage *list, uint32_t field, const char *name, const Value *x)
{
    PbMessage shape = {.a = w->a}, tensor = {.a = w->a}, type = {.a = w->a}, m = {.a = w->a};
    for (int i = 0; i < x->shape.rank; i++) {
        PbMessage dim = {.a = w->a};
        pb_put_int(&dim, DIM_VALUE, x->shape.d[i]);
        pb_put_message(&shape, SHAPE_DIM, &dim);
    }
    pb_put_int(&tensor, TT_ELEM, x->dtype);
    pb_put_message(&tensor, TT_SHAPE, &shape);
    pb_put_message(&type, TYPE_TENSOR, &tensor);
    pb_put_string(&m, INFO_NAME, name);
    pb_put_message(&m, INFO_TYPE, &type);
    pb_put_message(list, field, &m);
}

static void initializer(Ow *w, const char *name, Dtype t, const Shape *s, const void *data)
{
    PbMessage m = ow_tensor_head(w->a, name, t, s);
    size_t n = (size_t)shape_elements(s) * dtype_size(t);
    if (!outside_put(w->outside, &m, data, n))
        pb_put_bytes(&m, TENSOR_RAW, data, n);
    pb_put_message(&w->init, GRAPH_INITIALIZER, &m);
}

const char *ow_ints(Ow *w, int rank, int64_t n, const int64_t *v)
{
    const char *name = ow_made(w);
    initializer(w, name, DT_I64, &(Shape){rank, {n}}, v);
    return name;
}

const char *ow_number(Ow *w, Dtype t, double v)
{
    const char *name = ow_made(w);
    Tensor wide = {.dtype = DT_F64, .data = &v}, out = {.dtype = t};
    eval_node(w->a, OP_Cast, 1, &wide, &(Attr){.to = t}, 1, &out);
    initializer(w, name, t, &(Shape){0}, out.data);
    return name;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The name of a value in every file: a parameter's is PyTorch's, and no other value may have it;
 * parts of one are told apart. */
const char *ow_plain_name(Ow *w, ValueId v)
{
    const Value *x = val(w->g, v);
    if (x->kind == V_PARAM) {
        const Param *p = &w->g->param.at[x->param];
        return chunks_name(w->a, diag_escape(w->a, p->name), &p->box);
    }
    const char *name = diag_escape(w->a, x->name);
    return strmap_get(&w->param_name, name) == NONE ? name : arena_printf(w->a, "%s%%value", name);
}

const char *ow_name(Ow *w, ValueId v)
{
    if (w->alias[v])
        return w->alias[v];
    const Value *x = val(w->g, v);
    const char *name = w->alias[v] = ow_plain_name(w, v);
    if (x->kind == V_CONST)
        initializer(w, name, x->dtype, &x->shape, x->data);
    if (x->kind == V_PARAM)
        vec_push(w->a, &w->param, x->param);
    return name;
}

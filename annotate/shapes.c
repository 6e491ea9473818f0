/*
 * shapes.c - shapes for the checker: those that the file declares, else those of the model's graph.
 *
 * A dimension of the graph that holds rows has the number that the model was read with, which the
 * file left open: it counts as unknown.
 */
#include "check.h"

#include <string.h>

static void know(Check *c, const char *name, const Sizes *s)
{
    uint32_t *slot = strmap_at(&c->shape_of, check_text(name));
    if (*slot != NONE)
        return;
    *slot = c->shape.n;
    vec_push(c->a, &c->shape, *s);
}

static void declared(Check *c, const Onnx__ValueInfoProto *v)
{
    const Onnx__TypeProto *t = v->type;
    const Onnx__TensorShapeProto *from =
        t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? t->tensor_type->shape : NULL;
    Sizes s = {0};
    if (!from || from->n_dim > MAX_RANK)
        return;
    for (; s.rank < (int)from->n_dim; s.rank++) {
        const Onnx__TensorShapeProto__Dimension *d = from->dim[s.rank];
        bool number = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        bool symbol = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        s.d[s.rank] = (Size){number && d->dim_value >= 0 ? d->dim_value : -1,
                             symbol && *check_text(d->dim_param) ? d->dim_param : NULL};
    }
    know(c, v->name, &s);
}

void shapes_read(Check *c)
{
    const Onnx__GraphProto *g = c->m->graph;
    for (uint32_t i = 0; i < c->m->init.n; i++) {
        const RawTensor *t = &c->m->init.at[i];
        Sizes s = {.rank = t->shape.rank};
        for (int k = 0; k < s.rank; k++)
            s.d[k].size = t->shape.d[k];
        know(c, t->name, &s);
    }
    for (size_t i = 0; i < g->n_input; i++)
        declared(c, g->input[i]);
    for (size_t i = 0; i < g->n_value_info; i++)
        declared(c, g->value_info[i]);
    for (size_t i = 0; i < g->n_output; i++)
        declared(c, g->output[i]);
}

Sizes shape_of_tensor(const Check *c, const char *name)
{
    uint32_t at = strmap_get(&c->shape_of, check_text(name));
    if (at != NONE)
        return c->shape.at[at];
    Sizes s = {.rank = -1};
    uint32_t v = c->g ? strmap_get(&c->g->by_name, check_text(name)) : NONE;
    if (v == NONE || val(c->g, v)->batch == BATCH_MIXED)
        return s;
    const Value *of = val(c->g, v);
    for (s.rank = 0; s.rank < of->shape.rank; s.rank++)
        s.d[s.rank].size = s.rank == of->batch ? -1 : of->shape.d[s.rank];
    return s;
}

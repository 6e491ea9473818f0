/*
 * inputs.c - the inputs of a model: their dimensions get the values of --bind (bind.c), a later
 * model of a sequence reads what the one before yields, a loss model's target is made.
 */
#include <string.h>

#include "driver.h"

/* What an optional value is when it is there. */
static const Onnx__TypeProto *present(const Onnx__TypeProto *t)
{
    return t && t->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE ? t->optional_type->elem_type
                                                                        : t;
}

static bool is_sequence(const Onnx__TypeProto *t)
{
    return t && t->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE;
}

/* The tensors' type, of a tensor or of a sequence of them. */
static const Onnx__TypeProto__Tensor *tensor_type(const Onnx__ValueInfoProto *v, Where w)
{
    const Onnx__TypeProto *type = present(v->type);
    if (is_sequence(type))
        type = type->sequence_type->elem_type;
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
        !type->tensor_type->shape)
        diag_fatal(EXIT_MODEL, w, "it must be a tensor of a declared shape");
    const Onnx__TypeProto__Tensor *t = type->tensor_type;
    if (dtype_held((Dtype)t->elem_type) == DT_NONE) {
        diag_hint("strings and complex numbers are not supported");
        diag_fatal(EXIT_MODEL, w, "its type is %s",
                   t->elem_type > 0 ? dtype_name((Dtype)t->elem_type) : "not given");
    }
    if (t->shape->n_dim > MAX_RANK)
        diag_fatal(EXIT_MODEL, w, "rank %zu: the limit is %d", t->shape->n_dim, MAX_RANK);
    return t;
}

/* A later model of a sequence reads what the one before yields: its shape must agree where it is
 * given. */
static void check_fed(ImportState *s, const Onnx__TypeProto__Tensor *t, ValueId v, Where w)
{
    const Value *x = val(s->g, v);
    bool same = x->dtype == dtype_held((Dtype)t->elem_type) &&
                (size_t)x->shape.rank == t->shape->n_dim;
    for (int i = 0; same && i < x->shape.rank; i++) {
        const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[i];
        if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            d->dim_value >= 0)
            same = d->dim_value == x->shape.d[i];
    }
    if (!same)
        diag_fatal(EXIT_MODEL, w, "the previous model gives %s here",
                   shape_print(s->g->arena, x->dtype, &x->shape));
}

static bool is_data_input(const ImportState *s, const Onnx__ValueInfoProto *v)
{
    return strmap_get(&s->m->init_index, v->name) == NONE;
}

static void check_countable(const ImportState *s, Dtype t, const Shape *shape, Where w)
{
    int64_t n;
    if (!shape_countable(shape, &n))
        diag_fatal(EXIT_MODEL, w, "its element count overflows: %s",
                   shape_print(s->g->arena, t, shape));
}

/* The input `target` that a loss model asks for: its type, and its shape, where the first input's
 * symbols are known. */
static ValueId make_target(ImportState *s, const Ids *fed, const Onnx__TypeProto__Tensor *t,
                           Where w)
{
    const Onnx__TypeProto__Tensor *first = tensor_type(s->m->graph->input[0], w);
    Shape shape = {.rank = (int)t->shape->n_dim}, known = val(s->g, fed->at[0])->shape;
    for (int i = 0; i < shape.rank; i++) {
        const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[i];
        DimName name = bind_name(s, d, "target", i);
        shape.d[i] = name.name ? bind_size(s, name) : d->dim_value;
        for (int j = 0; name.name && j < known.rank && (size_t)j < first->shape->n_dim; j++) {
            DimName of = bind_name(s, first->shape->dim[j], "", j);
            if (of.name && !strcmp(of.name, name.name) && of.times == name.times)
                shape.d[i] = known.d[j];
        }
        if (shape.d[i] < 0)
            diag_fatal(EXIT_MODEL, w, "dimension %d has no value", i);
    }
    check_countable(s, (Dtype)t->elem_type, &shape, w);
    return graph_input(s->g, "target", dtype_held((Dtype)t->elem_type), &shape);
}

/* An input of the graph, where all its dimensions have values; one that --bind gives a value is
 * none. */
static bool make_input(ImportState *s, const Onnx__TypeProto__Tensor *t, const char *input,
                       Where w, Symbols *unbound, Slot *slot)
{
    Arena *a = s->g->arena;
    Shape shape = {.rank = (int)t->shape->n_dim};
    DimName *dim = arena_array(a, DimName, shape.rank + 1);
    Dtype type = (Dtype)t->elem_type;
    bool known = true;
    for (int d = 0; d < shape.rank; d++) {
        dim[d] = bind_name(s, t->shape->dim[d], input, d);
        shape.d[d] = dim[d].name ? bind_size(s, dim[d]) : t->shape->dim[d]->dim_value;
        if (dim[d].name)
            bind_add_names(s, &s->binds->dimension, dim[d], false);
        if (shape.d[d] < 0)
            bind_add_names(s, unbound, dim[d], true);
        known &= shape.d[d] >= 0;
    }
    if (!known)
        return false;
    check_countable(s, type, &shape, w);
    *slot = (Slot){.declared = dtype_held(type) == type ? DT_NONE : type};
    slot->v = bind_value(s, input, type, &shape, w);
    if (slot->v != NONE)
        return true;
    const char *name = input;
    while (strmap_get(&s->g->by_name, name) != NONE)
        name = arena_printf(a, "%s@", name);
    slot->v = graph_input(s->g, name, dtype_held(type), &shape);
    vec_push(a, &s->binds->input, dim);
    return true;
}

/* NAME, a sequence of --bind NAME=N tensors, is inputs NAME.0, NAME.1, ..., whose dimensions may
 * differ: --bind NAME.0.1=40. */
static void make_sequence(ImportState *s, const Onnx__ValueInfoProto *v,
                          const Onnx__TypeProto__Tensor *t, Where w, Symbols *unbound)
{
    Arena *a = s->g->arena;
    int64_t n = bind_count(s, v->name);
    Slot list = {.v = NONE, .is_sequence = true};
    bind_add(&s->binds->dimension, a, v->name);
    if (n < 0)
        bind_add(unbound, a, v->name);
    for (int64_t k = 0; k < n; k++) {
        const char *name = arena_printf(a, "%s.%lld", v->name, (long long)k);
        Onnx__TypeProto__Tensor one = *t;
        Onnx__TensorShapeProto shape = *t->shape;
        Onnx__TensorShapeProto__Dimension *dim =
            arena_array(a, Onnx__TensorShapeProto__Dimension, shape.n_dim + 1);
        shape.dim = arena_array(a, Onnx__TensorShapeProto__Dimension *, shape.n_dim + 1);
        one.shape = &shape;
        for (size_t d = 0; d < shape.n_dim; d++) {
            const char *own = arena_printf(a, "%s.%zu", name, d);
            int64_t size = bind_size(s, (DimName){own, 1});
            dim[d] = *t->shape->dim[d], shape.dim[d] = &dim[d];
            if (size < 0 ||
                dim[d].value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
                continue;
            bind_add(&s->binds->dimension, a, own);
            dim[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dim[d].dim_value = size;
        }
        Slot slot;
        if (make_input(s, &one, name, w, unbound, &slot))
            vec_push(a, &list.sequence, slot.v);
    }
    import_define(s, v->name, list);
}

/* A dimension's name is one in every input, also in those before it. */
static void name_dimensions(ImportState *s)
{
    for (size_t i = 0; i < s->m->graph->n_input; i++) {
        const Onnx__ValueInfoProto *v = s->m->graph->input[i];
        if (!is_data_input(s, v) || is_sequence(present(v->type)))
            continue;
        const Onnx__TypeProto__Tensor *t =
            tensor_type(v, (Where){s->m->path, "input", (uint32_t)i, v->name, NULL, -1});
        for (int d = 0; d < (int)t->shape->n_dim; d++) {
            DimName name = bind_name(s, t->shape->dim[d], v->name, d);
            if (name.name)
                bind_add_names(s, &s->binds->dimension, name, false);
        }
    }
}

void import_bind_inputs(ImportState *s, Ids *fed)
{
    Symbols unbound = {.seen.arena = s->g->arena};
    uint32_t position = 0;
    if (!fed)
        name_dimensions(s);
    for (size_t i = 0; i < s->m->graph->n_input; i++) {
        const Onnx__ValueInfoProto *v = s->m->graph->input[i];
        Where w = {s->m->path, "input", (uint32_t)i, v->name, NULL, -1};
        if (!is_data_input(s, v))
            continue;
        const Onnx__TypeProto__Tensor *t = tensor_type(v, w);
        bool stop = stop_named(s->stops, v->name);
        if (fed && is_sequence(present(v->type)))
            diag_fatal(EXIT_MODEL, w, "a sequence cannot be passed from one model to the next");
        if (fed) {
            if (position >= fed->n)
                diag_fatal(EXIT_MODEL, w, "the previous model has only %u outputs", fed->n);
            ValueId from = fed->at[position];
            if (from == NONE)
                from = fed->at[position] = make_target(s, fed, t, w);
            else
                check_fed(s, t, from, w);
            position++;
            import_define(s, v->name, (Slot){.v = stop ? import_stopped(s, from) : from});
            continue;
        }
        if (is_sequence(present(v->type))) {
            make_sequence(s, v, t, w, &unbound);
            continue;
        }
        Slot slot;
        if (make_input(s, t, v->name, w, &unbound, &slot))
            import_define(s, v->name, slot);
    }
    bind_refuse_unbound(s, &unbound);
}

/*
 * inputs.c - the inputs of a model: symbolic dimensions get the values of --bind, a later model of
 * a sequence reads what the one before yields, a loss model's target is made, the batch is found.
 */
#include <stdlib.h>
#include <string.h>

#include "state.h"

static bool option_for(const char *option, const char *name, const char **value)
{
    const char *equals = strrchr(option, '=');
    if (!equals || (size_t)(equals - option) != strlen(name) || strncmp(option, name, strlen(name)))
        return false;
    *value = equals + 1;
    return true;
}

/* least: the smallest value that it may have */
static int64_t bound_from(const ImportOptions *opt, const char *name, int64_t least)
{
    const char *value;
    for (uint32_t i = 0; i < opt->bind.n; i++)
        if (option_for(opt->bind.at[i], name, &value)) {
            char *end;
            long long n = strtoll(value, &end, 10);
            if (*end || end == value || n < least || n > INT32_MAX)
                diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: the value must be a number from %lld",
                           opt->bind.at[i], (long long)least);
            return n;
        }
    return -1;
}

static int64_t bound(const ImportOptions *opt, const char *name)
{
    return bound_from(opt, name, 1);
}

/* Dimension i of an input: its value, or what --bind says; -1 when unbound, which is remembered. */
static int64_t dimension(ImportState *s, const Onnx__TensorShapeProto__Dimension *d,
                         const char *input, int i, Symbols *all, Symbols *unbound)
{
    if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0)
        return d->dim_value;
    bool named =
        d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param;
    const char *name = named ? d->dim_param : arena_printf(s->g->arena, "%s.%d", input, i);
    int64_t n = bound(s->opt, name);
    if (*strmap_at(&all->seen, name) == NONE) {
        *strmap_at(&all->seen, name) = 1;
        vec_push(s->g->arena, &all->name, name);
        if (n < 0)
            vec_push(s->g->arena, &unbound->name, name);
    }
    return n;
}

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
    bool same = x->dtype == dtype_held((Dtype)t->elem_type) && (size_t)x->shape.rank == t->shape->n_dim;
    for (int i = 0; same && i < x->shape.rank; i++) {
        const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[i];
        if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            d->dim_value >= 0)
            same = d->dim_value == x->shape.d[i];
    }
    if (!same)
        diag_fatal(EXIT_MODEL, w, "the model before yields %s here",
                   shape_print(s->g->arena, x->dtype, &x->shape));
}

static bool is_data_input(const ImportState *s, const Onnx__ValueInfoProto *v)
{
    return strmap_get(&s->m->init_index, v->name) == NONE;
}

void import_set_batch(Graph *g, const ImportOptions *opt)
{
    for (uint32_t i = 0; i < g->input.n; i++) {
        const Value *v = val(g, g->input.at[i]);
        const char *chunk = NULL;
        for (uint32_t j = 0; j < opt->chunk.n && !chunk; j++)
            option_for(opt->chunk.at[j], v->name, &chunk);
        int64_t dim = chunk && *chunk >= '0' && *chunk <= '9' ? strtoll(chunk, NULL, 10) : 0;
        if ((chunk && !strcmp(chunk, "replicate")) || dim >= v->shape.rank || v->shape.d[dim] < 1)
            continue;
        g->batch = v->shape.d[dim];
        return;
    }
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
        bool named =
            d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *d->dim_param;
        bool number = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        shape.d[i] = number ? d->dim_value : named ? bound(s->opt, d->dim_param) : -1;
        for (int j = 0; named && j < known.rank && (size_t)j < first->shape->n_dim; j++) {
            const Onnx__TensorShapeProto__Dimension *f = first->shape->dim[j];
            if (f->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
                !strcmp(f->dim_param, d->dim_param))
                shape.d[i] = known.d[j];
        }
        if (shape.d[i] < 0)
            diag_fatal(EXIT_MODEL, w, "dimension %d has no value", i);
    }
    check_countable(s, (Dtype)t->elem_type, &shape, w);
    return graph_input(s->g, "target", dtype_held((Dtype)t->elem_type), &shape);
}

/* An input of the graph, where all its dimensions have values. */
static bool make_input(ImportState *s, const Onnx__TypeProto__Tensor *t, const char *input,
                       Where w, Symbols *all, Symbols *unbound, Slot *slot)
{
    Shape shape = {.rank = (int)t->shape->n_dim};
    Dtype type = (Dtype)t->elem_type;
    bool known = true;
    for (int d = 0; d < shape.rank; d++) {
        shape.d[d] = dimension(s, t->shape->dim[d], input, d, all, unbound);
        known = known && shape.d[d] >= 0;
    }
    if (!known)
        return false;
    check_countable(s, type, &shape, w);
    const char *name = input;
    while (strmap_get(&s->g->by_name, name) != NONE)
        name = arena_printf(s->g->arena, "%s@", name);
    *slot = (Slot){.v = graph_input(s->g, name, dtype_held(type), &shape),
                   .declared = dtype_held(type) == type ? DT_NONE : type};
    return true;
}

static void ask_for(ImportState *s, const char *name, Symbols *all, Symbols *unbound)
{
    if (*strmap_at(&all->seen, name) != NONE)
        return;
    *strmap_at(&all->seen, name) = 1;
    vec_push(s->g->arena, &all->name, name);
    if (unbound)
        vec_push(s->g->arena, &unbound->name, name);
}

/* NAME, a sequence of --bind NAME=N tensors, is inputs NAME.0, NAME.1, ..., whose dimensions may
 * differ: --bind NAME.0.1=40. */
static void make_sequence(ImportState *s, const Onnx__ValueInfoProto *v,
                          const Onnx__TypeProto__Tensor *t, Where w, Symbols *all,
                          Symbols *unbound)
{
    Arena *a = s->g->arena;
    int64_t n = bound_from(s->opt, v->name, 0);
    Slot list = {.v = NONE, .is_sequence = true};
    ask_for(s, v->name, all, n < 0 ? unbound : NULL);
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
            int64_t size = bound(s->opt, own);
            dim[d] = *t->shape->dim[d], shape.dim[d] = &dim[d];
            if (size < 0 ||
                dim[d].value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
                continue;
            ask_for(s, own, all, NULL);
            dim[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dim[d].dim_value = size;
        }
        Slot slot;
        if (make_input(s, &one, name, w, all, unbound, &slot))
            vec_push(a, &list.sequence, slot.v);
    }
    import_define(s, v->name, list);
}

void import_bind_inputs(ImportState *s, Ids *fed, Symbols *all)
{
    Symbols unbound = {0};
    uint32_t position = 0;
    for (size_t i = 0; i < s->m->graph->n_input; i++) {
        const Onnx__ValueInfoProto *v = s->m->graph->input[i];
        Where w = {s->m->path, "input", (uint32_t)i, v->name, NULL, -1};
        if (!is_data_input(s, v))
            continue;
        const Onnx__TypeProto__Tensor *t = tensor_type(v, w);
        bool stop = stop_named(s->stops, v->name);
        if (fed && is_sequence(present(v->type)))
            diag_fatal(EXIT_MODEL, w, "a sequence is passed by no model to the next");
        if (fed) {
            if (position >= fed->n)
                diag_fatal(EXIT_MODEL, w, "the model before has only %u outputs", fed->n);
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
            make_sequence(s, v, t, w, all, &unbound);
            continue;
        }
        Slot slot;
        if (make_input(s, t, v->name, w, all, &unbound, &slot))
            import_define(s, v->name, slot);
    }
    if (unbound.name.n == 0)
        return;
    const char *list = "", *hint = "";
    for (uint32_t i = 0; i < unbound.name.n && i < 32; i++) {
        list = arena_printf(s->g->arena, "%s%s'%s'", list, i ? ", " : "", unbound.name.at[i]);
        hint = arena_printf(s->g->arena, "%s --bind %s=N", hint, unbound.name.at[i]);
    }
    diag_hint("shapes are those of one microbatch: add%s", hint);
    diag_fatal(EXIT_MODEL, WHERE_FILE(s->m->path), "dimensions without a value: %s", list);
}

void import_check_binds(const ImportOptions *opt, const Symbols *all)
{
    const char *value;
    for (uint32_t i = 0; i < opt->bind.n; i++) {
        bool used = false;
        for (uint32_t j = 0; j < all->name.n && !used; j++)
            used = option_for(opt->bind.at[i], all->name.at[j], &value);
        if (used)
            continue;
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(opt->bind.at[i], "="), opt->bind.at[i]);
        const char *near = nearest_name(name, all->name.at, all->name.n);
        if (near)
            diag_hint("did you mean '%s'?", near);
        else if (all->name.n == 0)
            diag_hint("all of its dimensions have a size; --rows N says how many rows a microbatch "
                      "has");
        for (uint32_t j = 0; j < all->name.n && j < 8 && !near; j++)
            diag_note("it has '%s'", all->name.at[j]);
        diag_fatal(EXIT_USAGE, WHERE_NONE, "--bind %s: the model has no such dimension",
                   opt->bind.at[i]);
    }
}

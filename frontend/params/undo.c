/*
 * undo.c - a parameter that constant folding left only a trace of.  In: an initializer, and what
 * the file says that it was computed of (origin.c): one parameter, by views.  Out: the parameter's
 * shape and bytes, and the recipe that makes the initializer of it; or nothing, where what was done
 * cannot be undone.
 *
 * The steps are told, their sizes are not.  What was expanded is seen in the numbers.  A view to a
 * vector with dims of 1 is undone to the vector; one that merged dims, by the view of the other
 * factor of the product.  Numbers that are all the same do not say which dims are copies: that is
 * known of the first alone.
 */
#include <stdlib.h>
#include <string.h>

#include "fx.h"

const char *const fx_turns[] = {"t", "permute", "transpose", "numpy_t", NULL};
static const char *const views[] = {"view", "reshape", "_unsafe_view", "flatten", NULL};
static const char *const copies[] = {"expand", "expand_as", "repeat", NULL};
static const char *const added[] = {"unsqueeze", NULL};
static const char *const parts[] = {"select", NULL};
static const char *const sums[] = {"add", NULL};

static Shape squeezed(const Shape *s)
{
    Shape out = {0};
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] != 1)
            out.d[out.rank++] = s->d[i];
    return out;
}

/* Are all steps known? */
static bool is_undoable(const Fx *x, const Trace *t)
{
    static const char *const *const view[] = {fx_turns, views, copies, added, parts, sums};
    uint32_t known = 0;
    for (size_t i = 0; i < sizeof view / sizeof *view; i++)
        known += fx_steps(x, t, view[i]);
    return known == fx_steps(x, t, NULL);
}

/* ---- views ---- */

/* As it stands in the file, or with its two dims exchanged: nothing is copied. */
static bool undo_plain(Fx *x, const RawTensor *t, bool turned, Undone *out)
{
    if (turned && t->shape.rank != 2)
        return false;
    *out =
        (Undone){.shape = t->shape, .recipe = recipe_of(x->a, 0), .plain = true, .turned = turned};
    if (turned) {
        out->shape = shape_of(2, t->shape.d[1], t->shape.d[0]);
        recipe_swap(x->a, out->recipe);
    }
    return true;
}

/* The sizes the file gives of a value. */
static bool declared(const Model *m, const char *name, Shape *s)
{
    for (size_t i = 0; i < m->graph->n_value_info; i++) {
        const Onnx__ValueInfoProto *v = m->graph->value_info[i];
        const Onnx__TensorShapeProto *own = raw_shape(v);
        if (!v->name || strcmp(v->name, name) || !own || own->n_dim > MAX_RANK)
            continue;
        s->rank = (int)own->n_dim;
        for (int d = 0; d < s->rank; d++)
            s->d[d] = own->dim[d]->dim_value;
        return true;
    }
    return false;
}

/* The last dim of a product's other factor was made of several: so was the parameter's. */
static bool unmerged(const Fx *x, const Use *u, int64_t rows, int64_t inner, Shape *s)
{
    Shape from;
    for (uint32_t i = 0; i < x->list->n; i++) {
        const RawNode *n = x->list->at[i];
        if (n->dead || n->nout != 1 || n->nin < 1 || strcmp(n->out[0], u->node->in[1 - u->input]) ||
            strcmp(n->op_type, "Reshape") || !declared(x->p->m, n->in[0], &from))
            continue;
        int64_t size = 1;
        int d = from.rank;
        while (d > 1 && size < inner && from.d[d - 1] > 0)
            size *= from.d[--d];
        if (size != inner || from.rank - d < 2)
            return false;
        *s = shape_of(1, rows);
        for (; d < from.rank; d++)
            s->d[s->rank++] = from.d[d];
        return true;
    }
    return false;
}

/* *once: the shape without copies. */
static bool drop_copies(const RawTensor *tensor, Shape *once)
{
    bool constant = raw_is_constant(tensor);
    *once = tensor->shape;
    for (int d = 0; d < once->rank; d++) {
        if (once->d[d] > 1 && constant && d > 0 && d + 1 < once->rank)
            return false;
        if (once->d[d] > 1 && (constant ? d == 0 : raw_repeats(tensor, d, 1)))
            once->d[d] = 1;
        for (int64_t k = 2; !constant && 2 * k <= once->d[d]; k++)
            if (once->d[d] % k == 0 && raw_repeats(tensor, d, k))
                return false; /* copies of several slices */
    }
    return true;
}

/* The first n dims of 1 go. */
static Shape without_ones(Shape s, uint32_t n)
{
    for (int d = 0; d < s.rank && n > 0;) {
        if (s.d[d] != 1) {
            d++;
            continue;
        }
        for (int k = d; k + 1 < s.rank; k++)
            s.d[k] = s.d[k + 1];
        s.rank--;
        n--;
    }
    return s;
}

/* A kernel is viewed for what is done to it: weight standardisation. */
static bool is_kernel(const Use *u)
{
    return u->input == 1 && !strncmp(u->node->op_type, "Conv", strlen("Conv"));
}

/* The parameter's shape, of what was viewed, and is `once` without its copies. */
static bool before_view(const Fx *x, const Trace *t, const Shape *once, Shape *own)
{
    const Use *u = t->use;
    const char *op = u->node->op_type;
    bool product =
        u->node->nin >= 2 && u->input == 1 && (!strcmp(op, "Gemm") || !strcmp(op, "MatMul"));
    *own = squeezed(once);
    if (is_kernel(u) || own->rank == t->tensor->shape.rank) {
        return own->rank == 2 && product && raw_int(u->node, "transB", 0) &&
               unmerged(x, u, once->d[0], once->d[1], own);
    }
    return true;
}

static bool undo_view(Fx *x, const Trace *t, Undone *out)
{
    const RawTensor *tensor = t->tensor;
    bool viewed = fx_steps(x, t, views) > 0;
    Shape once = tensor->shape, own;
    bool copied = fx_steps(x, t, copies) > 0;
    if (copied && viewed && (raw_is_constant(tensor) || !fx_is_one_of(t->fx, copies)))
        return false; /* copies may be merged with a dim */
    if (copied && !drop_copies(tensor, &once))
        return false;
    own = without_ones(once, fx_steps(x, t, added));
    if (raw_is_constant(tensor) && squeezed(&once).rank == 0 && once.rank > 0)
        own = (Shape){0}; /* one number */
    if (viewed && !before_view(x, t, &once, &own))
        return false;
    if (shape_equal(&own, &tensor->shape))
        return undo_plain(x, tensor, false, out);
    *out = (Undone){.shape = own,
                    .bytes = raw_first(x->a, tensor, &once),
                    .recipe = recipe_of(x->a, 0)};
    if (!shape_equal(&own, &once))
        recipe_reshape(x->a, out->recipe, &once);
    if (!shape_equal(&once, &tensor->shape))
        recipe_expand(x->a, out->recipe, &tensor->shape);
    return true;
}

/* ---- one trace, several ---- */

bool undo_one(Fx *x, const Trace *t, Undone *out)
{
    if (told_undo(x, t, out))
        return true;
    if (!is_undoable(x, t) || fx_steps(x, t, parts) > 0)
        return false;
    uint32_t other = fx_steps(x, t, views) + fx_steps(x, t, copies) + fx_steps(x, t, added);
    if (fx_steps(x, t, fx_turns) > 0)
        return !other && undo_plain(x, t->tensor, true, out);
    if (fx_steps(x, t, sums) > 0) /* 1 + weight: trains as the sum */
        return !other && t->tensor->shape.rank == 1 && t->tensor->shape.d[0] > 1 &&
               undo_plain(x, t->tensor, false, out);
    return undo_view(x, t, out);
}

static int by_number(const void *a, const void *b)
{
    long i = fx_number((*(Trace *const *)a)->fx), k = fx_number((*(Trace *const *)b)->fx);
    return (i > k) - (i < k);
}

/* Rows by select, each read alone: in the order of the reads, as a loop has them. */
bool undo_rows(Fx *x, Trace **t, uint32_t n, Undone *out)
{
    const RawTensor *first = t[0]->tensor;
    size_t each = first->bytes.length;
    uint8_t *whole = arena_alloc(x->a, n * each);
    if (n < 2 || first->shape.rank < 1 || first->shape.rank == MAX_RANK)
        return false;
    qsort(t, n, sizeof(Trace *), by_number);
    *out = (Undone){.shape = shape_of(1, n), .in_order = true};
    for (uint32_t i = 0; i < n; i++) {
        if (fx_steps(x, t[i], NULL) != 1 || fx_steps(x, t[i], parts) != 1 ||
            !shape_equal(&t[i]->tensor->shape, &first->shape))
            return false;
        memcpy(whole + i * each, t[i]->tensor->bytes.at, each);
        t[i]->row = i;
    }
    for (int d = 0; d < first->shape.rank; d++)
        out->shape.d[out->shape.rank++] = first->shape.d[d];
    out->bytes =
        (Payload){.at = whole, .length = n * each, .file = first->bytes.file, .converted = true};
    return true;
}

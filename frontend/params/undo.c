/*
 * undo.c - a parameter that constant folding left only a view or a function of.  In: an
 * initializer, and what the file says that it was computed of (origin.c): one parameter, by these
 * steps.  Out: the parameter's shape and bytes, and the recipe that makes the initializer of it; or
 * nothing, where what was done cannot be undone.
 *
 * The steps are told, their sizes are not.  What was expanded is seen in the numbers.  A view to a
 * vector with dims of 1 is undone to the vector; one that merged dims, by the view of the other
 * factor of the product.  Numbers that are all the same do not say which dims are copies: that is
 * known of the first alone.
 */
#include <math.h>
#include <string.h>

#include "fx.h"

const char *const fx_turns[] = {"t", "permute", "transpose", "numpy_t", NULL};
static const char *const views[] = {"view", "reshape", "_unsafe_view", "flatten", NULL};
static const char *const copies[] = {"expand", "expand_as", "repeat", NULL};
static const char *const added[] = {"unsqueeze", NULL};
static const char *const sums[] = {"add", NULL};
static const char *const parts[] = {"select", NULL};

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
    static const char *const *const view[] = {fx_turns, views, copies, added, sums};
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

/* The sizes the file gives of a value, or NULL. */
static const Onnx__TensorShapeProto *declared(const Model *m, const char *name)
{
    for (size_t i = 0; i < m->graph->n_value_info; i++)
        if (m->graph->value_info[i]->name && !strcmp(m->graph->value_info[i]->name, name))
            return raw_shape(m->graph->value_info[i]);
    return NULL;
}

/* The last dim of a product's other factor was made of several: so was the parameter's. */
static bool unmerged(const Fx *x, const Use *u, Shape *own)
{
    const RawNode *n = u->node, *up;
    bool gemm = !strcmp(n->op_type, "Gemm") && u->input == 1 && raw_int(n, "transB", 0);
    up = gemm && own->rank == 2 ? raw_maker(x->list, n->in[0]) : NULL;
    const Onnx__TensorShapeProto *from =
        up && !strcmp(up->op_type, "Reshape") ? declared(x->p->m, up->in[0]) : NULL;
    int64_t size = 1, inner = own->d[1];
    size_t d = from ? from->n_dim : 0;
    while (d > 1 && size < inner && from->dim[d - 1]->dim_value > 0)
        size *= from->dim[--d]->dim_value;
    if (!from || size != inner || from->n_dim - d < 2 || from->n_dim > MAX_RANK)
        return false;
    for (own->rank = 1; d < from->n_dim; d++)
        own->d[own->rank++] = from->dim[d]->dim_value;
    return true;
}

/* A kernel is viewed for what is done to it: weight standardisation. */
static bool is_kernel(const Use *u)
{
    return u->input == 1 && !strncmp(u->node->op_type, "Conv", strlen("Conv"));
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
    if (viewed) {
        own = squeezed(&once);
        if ((own.rank == tensor->shape.rank || is_kernel(t->use)) && !unmerged(x, t->use, &own))
            return false;
    }
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

/* ---- functions ---- */

/* Is the function, with this sign, all that was done, but for taking a row? */
static bool is_told(const Fx *x, const Trace *t, const TieFunction *f, int sign)
{
    static const char *const minus[] = {"neg", NULL};
    uint32_t n = !f->step[0] ? 0 : !f->step[1] ? 1 : 2;
    return n && fx_steps(x, t, f->step) == n &&
           fx_steps(x, t, NULL) == n + (sign < 0) + fx_steps(x, t, parts) &&
           (sign > 0 || fx_steps(x, t, minus) == 1);
}

/* Does it make the numbers of its own ones?  q NULL: these are computed first, and infinite where
 * what was made was rounded to the function's bound. */
static bool makes(const TieFunction *f, int sign, const RawTensor *of, const Param *q, void *own)
{
    const RawTensor from = {.dtype = of->dtype, .shape = of->shape, .bytes = {.at = own}};
    if (q)
        param_bytes(q, own);
    for (int64_t i = 0; i < shape_elements(&of->shape); i++) {
        double is = raw_number(of, i);
        if (!q)
            element_set_double(of->dtype, own, i, f->inverse(sign * is));
        double v = raw_number(&from, i);
        if (!(fabs(is - sign * f->fn(v)) <= 2e-6 * fabs(is)) || (!q && !isfinite(v)))
            return false;
    }
    return true;
}

Recipe *undo_told(Fx *x, const Trace *t, uint32_t param, void **undone)
{
    enum { MOST = 1 << 24 };
    const RawTensor *of = t->tensor;
    const Param *q = undone ? NULL : tie_param(x, param);
    bool fits = !q || (q->dtype == of->dtype && shape_equal(&q->shape, &of->shape));
    for (int k = 2; fits && x->origin && k < 2 * TIE_FUNCTIONS; k++) {
        const TieFunction *f = &tie_functions[k / 2];
        int sign = k % 2 ? -1 : 1;
        if (!is_told(x, t, f, sign) || (!q && !f->inverse) || shape_elements(&of->shape) > MOST)
            continue;
        void *own = arena_alloc(x->a, of->bytes.length + 1);
        if (!makes(f, sign, of, q, own))
            continue;
        Recipe *r = recipe_of(x->a, param);
        tie_record(x->a, r, of->dtype, f->op, sign, 0);
        if (undone)
            *undone = own;
        return r;
    }
    return NULL;
}

/* ---- one trace, several ---- */

bool undo(Fx *x, const Trace *t, Undone *out)
{
    void *own;
    *out = (Undone){.shape = t->tensor->shape, .bytes = t->tensor->bytes};
    out->recipe = fx_steps(x, t, parts) ? NULL : undo_told(x, t, 0, &own);
    if (out->recipe) {
        out->bytes.at = own;
        out->bytes.converted = true;
        return true;
    }
    uint32_t other = fx_steps(x, t, views) + fx_steps(x, t, copies) + fx_steps(x, t, added);
    if (!is_undoable(x, t))
        return false;
    if (fx_steps(x, t, fx_turns) > 0)
        return !other && undo_plain(x, t->tensor, true, out);
    if (fx_steps(x, t, sums) > 0) /* 1 + weight: trains as the sum */
        return !other && t->tensor->shape.rank == 1 && t->tensor->shape.d[0] > 1 &&
               undo_plain(x, t->tensor, false, out);
    return undo_view(x, t, out);
}

bool undo_is_row(const Fx *x, const Trace *t, bool plain)
{
    return fx_steps(x, t, parts) == 1 && (!plain || fx_steps(x, t, NULL) == 1);
}

/* Rows by select: in the order of the reads, as a loop has them.  They are plain, or told functions
 * of such ones. */
bool undo_rows(Fx *x, Trace *const *t, uint32_t n, Undone *out)
{
    const RawTensor *first = t[0]->tensor;
    size_t each = first->bytes.length;
    uint8_t *whole = arena_alloc(x->a, n * each);
    if (n < 2 || first->shape.rank == MAX_RANK)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (t[i]->tensor->dtype != first->dtype ||
            !shape_equal(&t[i]->tensor->shape, &first->shape))
            return false;
        void *own = NULL;
        if (!undo_is_row(x, t[i], true) && !undo_told(x, t[i], 0, &own))
            return false;
        memcpy(whole + i * each, own ? own : t[i]->tensor->bytes.at, each);
    }
    *out = (Undone){.shape = shape_with(&first->shape, 0, n)};
    out->bytes =
        (Payload){.at = whole, .length = n * each, .file = first->bytes.file, .converted = true};
    return true;
}

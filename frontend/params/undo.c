/*
 * undo.c - a parameter that constant folding left only a view of.  In: an initializer, and what
 * the file says that it was computed of (origin.c): one parameter, by views.  Out: the parameter's
 * shape and bytes, and the recipe that makes the initializer of it; or nothing, where what was done
 * cannot be undone.
 *
 * The steps are told, their sizes are not.  What was expanded is seen in the numbers.  A view to a
 * vector with dims of 1 is undone to the vector; one that merged dims is not.  Numbers that are all
 * the same do not say which dims are copies: that is known of the first alone.
 */
#include <string.h>

#include "fx.h"

const char *const fx_turns[] = {"t", "permute", "transpose", "numpy_t", NULL};
static const char *const views[] = {"view", "reshape", "_unsafe_view", "flatten", NULL};
static const char *const copies[] = {"expand", "expand_as", "repeat", NULL};
static const char *const added[] = {"unsqueeze", NULL};
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
        if (own.rank == tensor->shape.rank || is_kernel(t->use))
            return false; /* dims that were merged */
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

bool undo(Fx *x, const Trace *t, Undone *out)
{
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

/*
 * told.c - an initializer that is a function of a parameter, known by the names of the steps that
 * the file says led to it (origin.c), where its numbers are too few to say so.  In: the
 * initializer, and the parameter, or none that is in the file.  Out: the recipe; of the latter its
 * numbers too, by the inverse.
 */
#include <math.h>

#include "fx.h"

enum { MOST = 1 << 24 }; /* numbers that are computed with */

/* Is it this function, with this sign, by all that the file says was done? */
static bool is_told(const Fx *x, const Trace *t, size_t f, int sign)
{
    static const char *const minus[] = {"neg", NULL};
    uint32_t n = 0, all = fx_steps(x, t, NULL);
    while (tie_function_row[f].step[n])
        n++;
    return n > 0 && fx_steps(x, t, tie_function_row[f].step) == n && all == n + (sign < 0) &&
           (sign > 0 || fx_steps(x, t, minus) == 1);
}

/* undone: from was computed of it, and is infinite where that was rounded to the function's bound.
 */
static bool agrees(const RawTensor *from, const RawTensor *t, size_t f, int sign, bool undone)
{
    for (int64_t i = 0; i < shape_elements(&t->shape); i++) {
        double of = raw_number(from, i), want = raw_number(t, i),
               is = sign * tie_function_row[f].fn(of);
        if (!(fabs(want - is) <= 2e-6 * fabs(want)) || (undone && !isfinite(of)))
            return false;
    }
    return true;
}

/* The recipe, of a parameter of these bytes; undo: they are unknown, and written there. */
static Recipe *told(Fx *x, uint32_t param, const Trace *t, const void *own, void *undo)
{
    const RawTensor *of = t->tensor;
    const RawTensor from = {
        .dtype = of->dtype, .shape = of->shape, .bytes = {.at = own, .length = of->bytes.length}};
    float *single = undo;
    double *wide = undo;
    for (size_t f = 0; tie_function_row[f].fn; f++)
        for (int sign = 1; sign >= -1; sign -= 2) {
            if (!is_told(x, t, f, sign) || (undo && !tie_function_row[f].inverse))
                continue;
            for (int64_t i = 0; undo && i < shape_elements(&of->shape); i++) {
                double v = tie_function_row[f].inverse(sign * raw_number(of, i));
                if (of->dtype == DT_F32)
                    single[i] = (float)v;
                else
                    wide[i] = v;
            }
            Recipe *r = recipe_of(x->a, param);
            tie_record(x->a, r, of->dtype, tie_function_row[f].op, sign, 0);
            if (agrees(&from, of, f, sign, undo != NULL))
                return r;
        }
    return NULL;
}

Recipe *told_function(Fx *x, uint32_t param, const Trace *t)
{
    const Param *q = &x->p->g->param.at[param];
    bool same = q->dtype == t->tensor->dtype && shape_equal(&q->shape, &t->tensor->shape);
    bool small = q->bytes.at && shape_elements(&q->shape) <= MOST;
    return same && small ? told(x, param, t, tie_dense(x, q), NULL) : NULL;
}

bool told_undo(Fx *x, const Trace *t, Undone *out)
{
    Payload made = t->tensor->bytes;
    if (shape_elements(&t->tensor->shape) > MOST)
        return false;
    void *at = arena_alloc(x->a, made.length);
    made.at = at;
    made.converted = true;
    *out = (Undone){.shape = t->tensor->shape, .bytes = made};
    out->recipe = told(x, 0, t, at, at);
    return out->recipe != NULL;
}

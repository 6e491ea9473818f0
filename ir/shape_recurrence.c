/*
 * shape_recurrence.c - what a Recurrence makes, by its body and the number of steps.
 */
#include "infer.h"

void shape_recurrence(Infer *x)
{
    const Recurrence *r = x->at->recurrence;
    const Graph *b = r->body;
    INSIST(r->sequences > 0 && x->nin == b->input.n && x->nout == b->output.n);
    const Shape *first = infer_dims(x, r->states);
    const int64_t steps = first->rank > 0 ? first->d[0] : 0;
    for (uint32_t i = 0; i < x->nin; i++) {
        const Value *part = val(b, b->input.at[i]);
        const Shape want =
            recurrence_is_sequence(r, i) ? shape_with(&part->shape, 0, steps) : part->shape;
        if (infer_type(x, i) != part->dtype || !shape_equal(infer_dims(x, i), &want))
            infer_refuse(x, (int)i, "%s is needed here",
                         shape_print(x->g->arena, part->dtype, &want));
    }
    for (uint32_t o = 0; o < x->nout; o++) {
        const Value *y = val(b, b->output.at[o]);
        x->t[o] = y->dtype;
        x->s[o] = o < r->states ? y->shape : shape_with(&y->shape, 0, steps);
        if (o < r->states &&
            (y->dtype != infer_type(x, o) || !shape_equal(&y->shape, infer_dims(x, o))))
            infer_refuse(x, (int)o, "a step leaves %s of this state",
                         shape_print(x->g->arena, y->dtype, &y->shape));
    }
}

/*
 * boxes.c - Suppress: greedy non-maximum suppression.  Boxes are taken in order; one that overlaps
 * with one taken before by more than the threshold is not.
 */
#include "eval.h"

/* What two boxes share over what they cover together, in the operands' type; 0 where they share
 * nothing. */
static double overlap_f64(const double *a, const double *b)
{
    double high = (a[2] < b[2] ? a[2] : b[2]) - (a[0] > b[0] ? a[0] : b[0]),
           wide = (a[3] < b[3] ? a[3] : b[3]) - (a[1] > b[1] ? a[1] : b[1]), both = wide * high;
    double one = (a[3] - a[1]) * (a[2] - a[0]), other = (b[3] - b[1]) * (b[2] - b[0]);
    return high > 0 && wide > 0 && both > 0 ? both / (one + other - both) : 0;
}

static double overlap_f32(const double *x, const double *y)
{
    float a[4], b[4];
    for (int i = 0; i < 4; i++)
        a[i] = (float)x[i], b[i] = (float)y[i];
    float high = (a[2] < b[2] ? a[2] : b[2]) - (a[0] > b[0] ? a[0] : b[0]),
          wide = (a[3] < b[3] ? a[3] : b[3]) - (a[1] > b[1] ? a[1] : b[1]), both = wide * high;
    float one = (a[3] - a[1]) * (a[2] - a[0]), other = (b[3] - b[1]) * (b[2] - b[0]);
    return (double)(high > 0 && wide > 0 && both > 0 ? both / (one + other - both) : 0);
}

void eval_suppress(Eval *e)
{
    const Shape *s = &e->in[1].shape;
    bool wide = e->in[0].dtype == DT_F64;
    const double *box = eval_doubles(e, &e->in[0]);
    const int64_t *order = e->in[1].data;
    const uint8_t *there = e->in[2].data;
    int64_t *to = e->out[0].data, *count = e->out[1].data, n = s->d[2];
    double most = wide ? e->at->value : (double)(float)e->at->value;
    for (int64_t line = 0; line < s->d[0] * s->d[1]; line++) {
        const double *own = box + line / s->d[1] * n * 4;
        int64_t taken = 0, *kept = to + line * n;
        for (int64_t i = line * n; i < (line + 1) * n && taken < e->at->k; i++) {
            const double *a = own + order[i] * 4;
            bool is = there[i];
            for (int64_t p = 0; p < taken && is; p++)
                is = !((wide ? overlap_f64 : overlap_f32)(a, own + kept[p] * 4) > most);
            if (is)
                kept[taken++] = order[i];
        }
        count[line] = taken;
    }
}

/*
 * ml.c - preprocessing of domain ai.onnx.ml: Scaler, Normalizer.  In: rows of features.  Out: core
 * operations, of which gradients pass.  Definitions: ONNX's Operators-ml.md; where that is silent,
 * ONNX Runtime's numbers.
 */
#include "frontend/low/low.h"

/* Rows of features, or one row, as floats. */
static ValueId features(Import *im, Shape *s)
{
    *s = low_need_rank(im, 0, 1, 2);
    Dtype t = low_dtype(im->g, im->in[0]);
    im->declared = DT_F32;
    return t == DT_F64 || t == DT_F32 ? im->in[0] : g_cast(im->g, im->in[0], DT_F32);
}

/* A number for all features, or one for each. */
static ValueId for_features(const Import *im, const char *name, int64_t n)
{
    double *at;
    int count = 0;
    if (!im_floats(im, name, &at, &count) || (count != 1 && count != n))
        low_fatal(im, -1, "attribute '%s' has %d numbers, one or one for each of %lld features are "
                          "needed",
                  name, count, (long long)n);
    return low_const_doubles(im->g, DT_F32, count == 1 ? (Shape){0} : (Shape){1, {count}}, at);
}

/* (x - offset) * scale */
void import_scaler(Import *im)
{
    Graph *g = im->g;
    Shape s;
    ValueId x = features(im, &s);
    Dtype t = low_dtype(g, x);
    int64_t n = s.d[s.rank - 1];
    x = g_sub(g, x, g_cast(g, for_features(im, "offset", n), t));
    x = g_mul(g, x, g_cast(g, for_features(im, "scale", n), t));
    im->out[0] = g_cast(g, x, DT_F32);
}

/* Each row by its largest element, its sum of absolute values or its length; a row of which that is
 * 0 stays. */
void import_normalizer(Import *im)
{
    Graph *g = im->g;
    Shape s;
    ValueId x = g_cast(g, features(im, &s), DT_F32), norm;
    const int64_t axis = s.rank - 1;
    switch (low_choice(im, "norm", "MAX", "MAX L1 L2")) {
    case 0: norm = g_reduce(g, OP_ReduceMax, x, 1, &axis); break;
    case 1: norm = g_reduce(g, OP_ReduceSum, g_unary(g, OP_Abs, x), 1, &axis); break;
    default:
        norm = low_safe_sqrt(g, g_reduce(g, OP_ReduceSum, low_square(g, x), 1, &axis));
    }
    im->out[0] = g_div(g, x, low_not_zero(g, norm));
}

/*
 * loss.c - SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss: classes are dim 1 of the scores,
 * the target has the other dims.  loss = -weight[target] * logp[target], 0 where the target is
 * ignored; the mean divides by the sum of the weights that count, as PyTorch's does.
 *
 * ONNX has no label smoothing, and the dynamo exporter drops PyTorch's, but not from the node's
 * metadata: loss = (1 - s) * -weight[target] * logp[target] + s / C * sum -weight[c] * logp[c]
 * (Szegedy et al., Rethinking the Inception Architecture, 2016).
 */
#include "frontend/low/low.h"

#include <string.h>

/* The part s of the loss is that of all classes alike. */
static ValueId smoothed(Import *im, ValueId loss, ValueId logp, double s)
{
    Graph *g = im->g;
    Shape shape = low_shape(g, logp);
    if (im_in(im, 2) != NONE)
        logp = g_mul(g, logp, low_channels(im, 2, shape.d[1], shape.rank));
    return g_formula(g, "loss, all, double s, double n: loss * (1 - s) + all * (-s / n)", loss,
                     low_reduce(g, OP_ReduceSum, logp, 1), s, (double)shape.d[1]);
}

/* One loss for each target, those that count by the reduction; `w`: what a mean divides by,
 * NONE: by their number. */
static ValueId reduced(Import *im, ValueId loss, ValueId w)
{
    Graph *g = im->g;
    int64_t axes[MAX_RANK];
    Shape scalar = {0};
    int rank = low_shape(g, loss).rank;
    for (int d = 0; d < rank; d++)
        axes[d] = d;
    enum { SUM, MEAN, EACH };
    int how = low_choice(im, "reduction", "mean", "sum mean none");
    if (how == EACH)
        return loss;
    if (how == MEAN && w == NONE)
        return g_reshape(g, g_mean(g, loss, rank, axes), &scalar);
    ValueId sum = g_reduce(g, OP_ReduceSum, loss, rank, axes);
    if (how == MEAN)
        sum = g_div(g, sum, g_reduce(g, OP_ReduceSum, w, rank, axes));
    return g_reshape(g, sum, &scalar);
}

/* The target is a distribution over the classes, of the scores' shape, which no ONNX text has and
 * both of PyTorch's exporters write: loss = sum -weight[c] * target[c] * logp[c].  None is ignored,
 * and the mean divides by their number, whatever their weights. */
static ValueId of_probabilities(Import *im, ValueId logp, double smoothing)
{
    Graph *g = im->g;
    Shape s = low_shape(g, logp);
    ValueId all = g_mul(g, g_cast(g, im_in(im, 1), low_dtype(g, logp)), logp);
    if (im_in(im, 2) != NONE)
        all = g_mul(g, all, low_channels(im, 2, s.d[1], s.rank));
    ValueId loss = g_neg(g, low_reduce(g, OP_ReduceSum, all, 1));
    return reduced(im, smoothing != 0 ? smoothed(im, loss, logp, smoothing) : loss, NONE);
}

static ValueId negative_log_likelihood(Import *im, ValueId logp, double smoothing)
{
    Graph *g = im->g;
    ValueId target = low_need(im, 1), weight = im_in(im, 2), counts = NONE, w = NONE;
    Shape s = low_need_rank(im, 0, 2, MAX_RANK);
    low_expect(im, 1, shape_without(&s, 1));
    if (weight != NONE)
        low_expect(im, 2, (Shape){1, {s.d[1]}});
    if (im_has(im, "ignore_index")) {
        ValueId out = g_formula(g, "target, double ignored: target == ignored", target,
                                (double)im_int(im, "ignore_index", 0));
        target = g_formula(g, "out, target: out ? 0 : target", out, target);
        counts = g_unary(g, OP_Not, out);
    }
    ValueId in[2] = {logp, low_unsqueeze(g, target, 1)};
    int64_t axis = 1;
    ValueId loss = g_neg(
        g, low_squeeze(g, graph_node(g, OP_GatherElements, 2, in, (Attr){.axis = 1}), 1, &axis));
    if (weight != NONE) {
        w = g_gather(g, weight, target, 0);
        loss = g_mul(g, loss, w);
    }
    if (smoothing != 0)
        loss = smoothed(im, loss, logp, smoothing);
    if (counts != NONE) {
        loss = g_formula(g, "counts, loss: counts ? loss : 0", counts, loss);
        w = g_formula(g, "counts, w: counts ? w : 0", counts, w == NONE ? g_like(g, logp, 1) : w);
    }
    return reduced(im, loss, w);
}

void import_nll_loss(Import *im)
{
    im->out[0] = negative_log_likelihood(im, low_need_float(im, 0), 0);
}

void import_softmax_cross_entropy(Import *im)
{
    ValueId x = low_need_float(im, 0);
    low_need_rank(im, 0, 2, MAX_RANK);
    ValueId logp = g_log_softmax(im->g, x, 1);
    double smoothing = 0;
    im_told(im, "aten.cross_entropy_loss.default", 5, "label_smoothing", &smoothing);
    Shape is = low_shape(im->g, low_need(im, 1)), s = low_shape(im->g, logp);
    bool all = dtype_is_float(low_dtype(im->g, im_in(im, 1))) && shape_equal(&is, &s);
    im->out[0] = (all ? of_probabilities : negative_log_likelihood)(im, logp, smoothing);
    if (im_wanted(im, 1))
        im->out[1] = logp;
}

/*
 * microsoft.c - the operators of domain com.microsoft that ONNX Runtime's optimizer leaves in a
 * file. In: the node.  Out: what it was fused of, in core operations.  Definitions: ONNX Runtime,
 * docs/ContribOperators.md.  Its attentions: attention.c.
 */
#include <string.h>

#include "frontend/low/low.h"

/* ---- products and activations ---- */

void import_fused_matmul(Import *im)
{
    Graph *g = im->g;
    ValueId a = low_need(im, 0), b = low_need(im, 1);
    if (im_int(im, "transBatchA", 0) || im_int(im, "transBatchB", 0))
        low_fatal(im, -1, "FusedMatMul that exchanges batch dims");
    if (im_int(im, "transA", 0) && low_shape(g, a).rank > 1)
        a = g_swap_last(g, a);
    if (im_int(im, "transB", 0) && low_shape(g, b).rank > 1)
        b = g_swap_last(g, b);
    im->out[0] = low_scale(g, g_matmul(g, a, b), im_float(im, "alpha", 1));
}

void import_bias_gelu(Import *im)
{
    ValueId x = low_plus(im->g, low_need_float(im, 0), im_in(im, 1));
    im->out[0] = low_gelu(im->g, x, !strcmp(im->op_type, "FastGelu"));
}

/* ---- norms after a sum ---- */

/* LayerNormalization, or RMSNormalization, of `sum`; scale and shift are operands of the node. */
static void normalise(Import *im, ValueId sum, uint32_t scale, uint32_t shift, bool rms)
{
    ValueId in[3] = {sum, im_in(im, scale), rms ? NONE : im_in(im, shift)},
            out[3] = {NONE, NONE, NONE};
    Import norm = *im;
    norm.nin = 3, norm.in = in, norm.out = out;
    norm.op = rms ? OP_RMSNormalization : OP_LayerNormalization;
    import_layer_normalization(&norm);
    for (uint32_t i = 0; i < im->nout && i < 3; i++)
        im->out[i] = out[i];
}

void import_skip_norm(Import *im)
{
    bool rms = !strcmp(im->op_type, "SkipSimplifiedLayerNormalization");
    ValueId sum = g_add(im->g, low_need_float(im, 0), low_need(im, 1));
    sum = low_plus(im->g, sum, im_in(im, rms ? 3 : 4));
    normalise(im, sum, 2, 3, rms);
    if (im_wanted(im, 3))
        im->out[3] = sum;
}

/* ids, segments, words, positions, segment table, scale, shift, mask, position ids */
void import_embed_layer_norm(Import *im)
{
    Graph *g = im->g;
    Shape ids = low_need_rank(im, 0, 2, 2);
    for (uint32_t i = 2; i < 5; i++)
        if (i < 4 || im_in(im, i) != NONE)
            low_need_rank(im, i, 2, 2);
    ValueId x = g_gather(g, im->in[2], im->in[0], 0), places = im->in[3];
    if (im_in(im, 8) == NONE && low_shape(g, places).d[0] < ids.d[1])
        low_fatal(im, 3, "%lld positions for %lld tokens", (long long)low_shape(g, places).d[0],
                  (long long)ids.d[1]);
    if (im_in(im, 8) != NONE)
        x = g_add(g, x, g_gather(g, places, im->in[8], 0));
    else
        x = g_add(g, x, g_slice_axis(g, places, 0, 0, ids.d[1]));
    if (im_in(im, 1) != NONE && im_in(im, 4) != NONE)
        x = g_add(g, x, g_gather(g, im->in[4], im->in[1], 0));
    if (im_wanted(im, 1))
        low_fatal(im, 7, "the index of a mask is not supported");
    ValueId first[1];
    Import norm = *im;
    norm.nout = 1, norm.out = first;
    normalise(&norm, x, 5, 6, false);
    im->out[0] = first[0];
    if (im_wanted(im, 2))
        im->out[2] = x;
}

/* ---- positions ---- */

/* input, position ids, cosines, sines: the standard's operands in another order. */
void import_ms_rotary_embedding(Import *im)
{
    Graph *g = im->g;
    Shape s = low_need_rank(im, 0, 3, 4), ids = low_need_rank(im, 1, 1, 2);
    ValueId in[4] = {im->in[0], low_need(im, 2), low_need(im, 3), im->in[1]};
    int64_t steps = s.d[s.rank == 3 ? 1 : 2], first;
    Import rotary = *im;
    if (im_float(im, "scale", 1) != 1)
        low_fatal(im, -1, "RotaryEmbedding with a scale is not supported");
    if (ids.rank == 1) {
        low_limit_table(im, steps, s.d[0], "positions");
        first = im_const_int(im, 1, 0);
        if (first < 0 || first > INT32_MAX)
            low_fatal(im, 1, "position %lld is out of range", (long long)first);
        int64_t *at = arena_array(im->arena, int64_t, s.d[0] * steps);
        for (int64_t i = 0; i < s.d[0] * steps; i++)
            at[i] = first + i % steps;
        in[3] = low_const(g, DT_I64, (Shape){2, {s.d[0], steps}}, at);
    }
    rotary.op = OP_RotaryEmbedding, rotary.nin = 4, rotary.in = in;
    import_rotary_embedding(&rotary);
}

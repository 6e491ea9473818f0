/*
 * conv_merged.h - convolutions of small images and large weights, float32: several samples beside
 * each other in a product, for which one is too narrow (seen with 49 outputs, 512 to 2,048
 * channels: 0.7 of the time).  Included by conv.c behind the body for floats.
 *
 * Both sides of the product are gathered, v->merged samples to a turn, with `pitch` columns:
 *     col[channels of a group x taps][samples x outputs]     image[channels of a group][the same]
 * Turns follow from the shape and the rows of the call; threads share them out, or, of the weights'
 * gradient, which adds them in order, what gemm.c shares out.
 */

/* The samples of a turn and its operands for group g: inputs and outputs of its first sample. */
typedef struct {
    int64_t samples, columns, pitch;
    float *x, *y, *col, *image;
} Turn;

static Turn merged_turn(const PpConv *v, int64_t first, int64_t rows, int64_t g, const float *x,
                        const float *y, char *scratch)
{
    int64_t samples = rows - first < v->merged ? rows - first : v->merged,
            pitch = v->merged * v->out_size;
    float *col = (float *)(void *)scratch;
    return (Turn){samples,
                  samples * v->out_size,
                  pitch,
                  (float *)(uintptr_t)x + (first * v->c + g * v->cg) * v->in_size,
                  (float *)(uintptr_t)y + (first * v->m + g * v->mg) * v->out_size,
                  col,
                  col + v->cg * v->taps * pitch};
}

/* Between the images of a group's inputs, or outputs, and their columns; to_columns: or back. */
static void merged_image(const PpConv *v, const Turn *t, int inputs, int to_columns)
{
    const int64_t channels = inputs ? v->cg : v->mg, size = inputs ? v->in_size : v->out_size,
                  stride = (inputs ? v->c : v->m) * size;
    float *x = inputs ? t->x : t->y, *columns = inputs ? t->col : t->image;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t n = 0; n < t->samples; n++) {
            float *at = x + n * stride + c * size,
                  *column = columns + c * t->pitch + n * v->out_size;
            f32_copy(to_columns ? column : at, to_columns ? at : column, size);
        }
}

static void merged_gather(const PpConv *v, const Turn *t)
{
    if (v->way.pointwise)
        merged_image(v, t, 1, 1);
    for (int64_t n = 0; n < t->samples && !v->way.pointwise; n++)
        f32_gather(v, t->x + n * v->c * v->in_size, 0, v->lines.all, t->pitch,
                   t->col + n * v->out_size);
}

static void merged_forward(const PpConv *v, int64_t first, const ConvUse *of, char *scratch)
{
    int64_t K = v->cg * v->taps;
    const float *w = of->w;
    for (int64_t g = 0; g < v->group; g++) {
        Turn t = merged_turn(v, first, of->rows, g, of->x, of->y, scratch);
        merged_gather(v, &t);
        pp_gemm(&(PpGemm){.type = PP_F32, .m = v->mg, .n = t.columns, .k = K,
                          .a = w + g * v->mg * K, .lda = K, .b = t.col, .ldb = t.pitch,
                          .c = t.image, .ldc = t.pitch});
        merged_image(v, &t, 0, 0);
        run_then(&of->then, first, t.samples, g * v->mg, v->mg, 0, v->out_size);
    }
}

static void merged_data(const PpConv *v, int64_t first, const ConvUse *of, char *scratch)
{
    int64_t K = v->cg * v->taps;
    const float *w = of->w;
    for (int64_t g = 0; g < v->group; g++) {
        Turn t = merged_turn(v, first, of->rows, g, of->y, of->x, scratch);
        merged_image(v, &t, 0, 1);
        pp_gemm(&(PpGemm){.type = PP_F32, .ta = 1, .m = K, .n = t.columns, .k = v->mg,
                          .a = w + g * v->mg * K, .lda = K, .b = t.image, .ldb = t.pitch,
                          .c = t.col, .ldc = t.pitch});
        if (v->way.pointwise)
            merged_image(v, &t, 1, 0);
        for (int64_t n = 0; n < t.samples && !v->way.pointwise; n++) {
            float *to = t.x + n * v->c * v->in_size;
            memset(to, 0, (size_t)(v->cg * v->in_size) * sizeof *to);
            f32_scatter(v, to, 0, v->lines.all, t.pitch, t.col + n * v->out_size);
        }
    }
}

static void merged_weight(const PpConv *v, int64_t rows, const float *x, const float *dy, float *dw,
                          char *scratch)
{
    int64_t K = v->cg * v->taps;
    for (int64_t first = 0; first < rows; first += v->merged)
        for (int64_t g = 0; g < v->group; g++) {
            Turn t = merged_turn(v, first, rows, g, x, dy, scratch);
            merged_gather(v, &t);
            merged_image(v, &t, 0, 1);
            pp_gemm(&(PpGemm){.type = PP_F32, .tb = 1, .m = v->mg, .n = K, .k = t.columns,
                              .a = t.image, .lda = t.pitch, .b = t.col, .ldb = t.pitch,
                              .adds = 1, .c = dw + g * v->mg * K, .ldc = K});
        }
}

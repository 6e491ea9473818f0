/*
 * conv_merged.h - convolutions of small images and large weights, float32: several samples beside
 * each other in a product, for which one is too narrow (seen with 49 outputs, 512 to 2,048
 * channels: 0.7 of the time).  Included by conv.c behind the body for floats.
 *
 * Both sides of the product are gathered, v->several.merged samples to a turn, with `pitch`
 * columns: col[channels of a group x taps][samples x outputs]     image[channels of a group][the
 * same] Pointwise ones of images that are not large are read and written where they are, where
 * gemm_images() pays: the weights are packed once for several samples, and no columns are left over
 * at the end of each.  An element's bits are the same with any samples beside it.
 * Turns follow from the shape and the rows of the call; threads share them out, or, of the weights'
 * gradient, which adds them in order, what gemm.c shares out.
 */

enum { TOGETHER_OUTPUTS = 1024, TOGETHER_CHANNELS = 256 };

/* Samples of a pointwise one whose images lie beside each other in a product of m rows; 1: each by
 * itself. */
static int64_t together_samples(const PpConv *v, int64_t m)
{
    int fits = v->dtype == PP_F32 && v->way.pointwise && !v->way.direct && v->out_size > 0 &&
               gemm_images_pay(m, TOGETHER_OUTPUTS);
    int64_t samples = fits ? TOGETHER_OUTPUTS / v->out_size : 1;
    return samples > 1 ? samples : 1;
}

/* The samples of a turn and its operands for group g: inputs and outputs of its first sample. */
typedef struct {
    int64_t samples, columns, pitch;
    float *x, *y, *col, *image;
} Turn;

static Turn merged_turn(const PpConv *v, int64_t first, int64_t rows, int64_t g, const float *x,
                        const float *y, char *scratch)
{
    int64_t samples = rows - first < v->several.merged ? rows - first : v->several.merged,
            pitch = v->several.merged * v->out_size;
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
        pp_sgemm(0, 0, v->mg, t.columns, K, 1, w + g * v->mg * K, K, t.col, t.pitch, 0, t.image,
                 t.pitch);
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
        pp_sgemm(1, 0, K, t.columns, v->mg, 1, w + g * v->mg * K, K, t.image, t.pitch, 0, t.col,
                 t.pitch);
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
    for (int64_t first = 0; first < rows; first += v->several.merged)
        for (int64_t g = 0; g < v->group; g++) {
            Turn t = merged_turn(v, first, rows, g, x, dy, scratch);
            merged_gather(v, &t);
            merged_image(v, &t, 0, 1);
            pp_sgemm(0, 1, v->mg, K, t.columns, 1, t.image, t.pitch, t.col, t.pitch, 1,
                     dw + g * v->mg * K, K);
        }
}

/* ---- pointwise ones, samples beside each other where they are ---- */

static int64_t together_turn(int64_t samples, int64_t first, int64_t rows)
{
    return rows - first < samples ? rows - first : samples;
}

/* What follows has so many channels of all samples at a time that they are still in the caches. */
static void together_forward(const PpConv *v, int64_t first, const ConvUse *of)
{
    const int64_t samples = together_turn(v->several.together[0], first, of->rows);
    const float *x = of->x, *w = of->w;
    float *y = of->y;
    int members = team_most();
    (void)members; /* built without OpenMP */
#pragma omp parallel for collapse(2) num_threads(members) schedule(static) if (members > 1)
    for (int64_t g = 0; g < v->group; g++)
        for (int64_t i = 0; i < v->mg; i += TOGETHER_CHANNELS) {
            const int64_t m = g * v->mg + i,
                          high = v->mg - i < TOGETHER_CHANNELS ? v->mg - i : TOGETHER_CHANNELS;
            const After after = after_from(v, &of->then, first, m, 0);
            gemm_images(&(Wide){.m = high,
                                .n = samples * v->out_size,
                                .k = v->cg,
                                .alpha = 1,
                                .a = w + m * v->cg,
                                .lda = v->cg,
                                .b = x + (first * v->c + g * v->cg) * v->out_size,
                                .ldb = v->out_size,
                                .c = y + (first * v->m + m) * v->out_size,
                                .ldc = v->out_size,
                                .each = v->out_size,
                                .next_b = v->c * v->out_size,
                                .next_c = v->m * v->out_size,
                                .after = after,
                                .below = v->mg - i - high});
            if (!after.out)
                run_then(&of->then, first, samples, m, high, 0, v->out_size);
        }
}

static void together_data(const PpConv *v, int64_t first, const ConvUse *of)
{
    const int64_t samples = together_turn(v->several.together[1], first, of->rows);
    const float *dy = of->x, *w = of->w;
    float *dx = of->y;
    for (int64_t g = 0; g < v->group; g++) {
        gemm_images(&(Wide){.ta = 1,
                            .m = v->cg,
                            .n = samples * v->out_size,
                            .k = v->mg,
                            .alpha = 1,
                            .a = w + g * v->mg * v->cg,
                            .lda = v->cg,
                            .b = dy + (first * v->m + g * v->mg) * v->out_size,
                            .ldb = v->out_size,
                            .c = dx + (first * v->c + g * v->cg) * v->out_size,
                            .ldc = v->out_size,
                            .each = v->out_size,
                            .next_b = v->m * v->out_size,
                            .next_c = v->c * v->out_size});
    }
}

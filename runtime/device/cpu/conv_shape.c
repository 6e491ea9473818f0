/*
 * conv_shape.c - in: a convolution's shape; out: which way it is computed and the scratch that this
 * takes.  It follows from the shape alone: a run's plan counts it before anything is opened, and so
 * does `ppsplit plan'.
 */
#include "api/pp.h"
#include "core/core.h"
#include "device/cpu/conv_winograd.h"

enum {
    COL_BYTES = 512 << 10,
    COL_OUTPUTS = 192,
    DIRECT_CHANNELS = 4,
    WINOGRAD_CHANNELS = 16,
    WINOGRAD_TILES = 32, /* of a sample; below, the filters' transform costs what is won */
    MERGED_OUTPUTS = 256,
    MERGED_BELOW = 100,
    MERGED_WEIGHTS = 1 << 15
};

static void three_dimensions(PpConv *v, const PpConvShape *s)
{
    int lead = 3 - s->spatial;
    v->dtype = s->dtype;
    v->group = s->group;
    v->c = s->c;
    v->m = s->m;
    v->cg = s->c / s->group;
    v->mg = s->m / s->group;
    v->taps = v->in_size = v->out_size = 1;
    v->way.pointwise = 1;
    for (int i = 0; i < 3; i++) {
        int k = i - lead;
        v->in[i] = k < 0 ? 1 : s->in[k];
        v->out[i] = k < 0 ? 1 : s->out[k];
        v->kernel[i] = k < 0 ? 1 : s->kernel[k];
        v->stride[i] = k < 0 ? 1 : s->stride[k];
        v->dilation[i] = k < 0 ? 1 : s->dilation[k];
        v->pad[i] = k < 0 ? 0 : s->pad_begin[k];
        v->taps *= v->kernel[i];
        v->in_size *= v->in[i];
        v->out_size *= v->out[i];
        v->way.pointwise &=
            v->kernel[i] == 1 && v->stride[i] == 1 && v->pad[i] == 0 && v->in[i] == v->out[i];
    }
    v->lines.all = v->out[0] * v->out[1];
}

/* How many output lines are gathered at once. */
static int64_t block_lines(const PpConv *v, int64_t line_bytes)
{
    int64_t n = line_bytes > 0 && COL_BYTES / line_bytes < v->lines.all ? COL_BYTES / line_bytes
                                                                        : v->lines.all;
    if (v->mg >= COL_OUTPUTS && v->out[2] > 0 && n * v->out[2] < COL_OUTPUTS)
        n = (COL_OUTPUTS + v->out[2] - 1) / v->out[2];
    if (n > v->lines.all || v->way.pointwise)
        n = v->lines.all;
    return n < 1 && !v->way.pointwise ? 1 : n;
}

/* Sizes of the planes. */
static void measure_planes(PpConv *v)
{
    Direct *d = &v->planes;
    d->phases = d->covers = 1;
    for (int i = 0; i < 3; i++) {
        d->phases *= v->stride[i];
        d->ext[i] = v->out[i] + (v->kernel[i] - 1) * v->dilation[i] / v->stride[i];
        d->covers &= v->pad[i] >= 0 && d->ext[i] * v->stride[i] >= v->in[i] + v->pad[i];
    }
    d->plane = d->ext[0] * d->ext[1] * d->ext[2];
    d->run = plane_at(d, v->out[0] - 1, v->out[1] - 1, v->out[2] - 1) + 1;
    d->pitch = round_up(d->plane, DIRECT_BLOCK) + DIRECT_BLOCK;
    d->margin = round_up(d->plane - d->run, DIRECT_LANES);
    d->wide = d->margin + d->pitch;
    int64_t planes = (v->cg * d->phases + 1) * d->pitch,
            runs = v->mg * d->wide + d->pitch + v->mg * v->taps;
    d->room = planes > runs ? planes : runs;
}

static int winograd_fits(const PpConv *v)
{
    int fits = v->dtype == PP_F32 && v->cg >= WINOGRAD_CHANNELS && v->mg >= WINOGRAD_CHANNELS &&
               v->in[0] == 1 && v->out[0] == 1 && v->kernel[0] == 1 && v->pad[0] == 0;
    for (int i = 1; i < 3; i++)
        fits &= v->kernel[i] == 3 && v->stride[i] == 1 && v->dilation[i] == 1 && v->pad[i] >= 0 &&
                v->pad[i] <= 2 && v->out[i] > 0 && v->in[i] > 0;
    return fits && ((v->out[1] + 1) / 2) * ((v->out[2] + 1) / 2) >= WINOGRAD_TILES;
}

static int64_t winograd_bytes(const PpConv *v)
{
    Use f = use_of(v, 0), d = use_of(v, 1);
    int64_t pitch = pitch_of(v, &f) > pitch_of(v, &d) ? pitch_of(v, &f) : pitch_of(v, &d);
    return align_up(PLACES * (v->mg * v->cg + (v->mg + v->cg) * pitch) * (int64_t)sizeof(float));
}

static int64_t merged_samples(const PpConv *v)
{
    int fits = v->dtype == PP_F32 && !v->way.direct && v->out_size > 0 &&
               v->out_size < MERGED_BELOW && v->mg * v->cg * v->taps >= MERGED_WEIGHTS;
    return fits ? MERGED_OUTPUTS / v->out_size : 1;
}

static int64_t merged_bytes(const PpConv *v)
{
    return align_up(v->merged * v->out_size * (v->cg * v->taps + v->mg) *
                    (int64_t)sizeof(float));
}

/* Of float16 and bfloat16, which are computed in float32. */
static int64_t widened_bytes(const PpConv *v)
{
    int64_t in = v->c * v->in_size, out = v->m * v->out_size, weights = v->m * v->cg * v->taps;
    if (v->way.direct)
        return align_up((in + out + weights) * (int64_t)sizeof(float));
    return v->way.pointwise ? 0 : align_up(in * (int64_t)sizeof(float));
}

void conv_of_shape(PpConv *v, const PpConvShape *s)
{
    int64_t size = s->dtype == PP_F64 ? 8 : 4;
    three_dimensions(v, s);
    int64_t line_bytes = v->cg * v->taps * v->out[2] * size;
    v->way.direct = v->cg <= DIRECT_CHANNELS && v->mg <= DIRECT_CHANNELS && v->group > 1 &&
                    v->in_size > 0 && v->out_size > 0;
    v->lines.at_once = block_lines(v, line_bytes);
    v->scratch.room_at = v->way.pointwise ? 0 : align_up(line_bytes * v->lines.at_once);
    if (v->way.direct) {
        measure_planes(v);
        v->scratch.room_at = align_up(v->planes.room * size);
    }
    v->scratch.bytes = v->scratch.room_at;
    v->merged = 1;
    v->way.winograd = winograd_fits(v);
    if (v->way.winograd) {
        v->scratch.bytes = winograd_bytes(v);
        return;
    }
    v->merged = merged_samples(v);
    if (v->merged > 1)
        v->scratch.bytes = merged_bytes(v);
    if (s->dtype == PP_BF16 || s->dtype == PP_F16)
        v->scratch.bytes += widened_bytes(v);
}

int64_t conv_scratch(const PpConv *v, int threads)
{
    return v->scratch.bytes * (v->way.winograd ? 1 : threads);
}

int64_t library_conv(const PpConvShape *s, int threads)
{
    PpConv v = {0};
    conv_of_shape(&v, s);
    return conv_scratch(&v, threads);
}

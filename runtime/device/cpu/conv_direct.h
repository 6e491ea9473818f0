/*
 * conv_direct.h - convolutions of few channels a group (depthwise), for one element type: T,
 * NAME(x) as in conv_body.h, which includes this where T is not a half type.
 *
 * A channel's input is spread into planes, one for each phase of the stride, with the padding
 * around it: then what tap t reads for output j of a whole channel stands at at[t] + j, in one run
 * over all lines, of which the last elements of each line mean nothing and are dropped.  So each of
 * the three uses is a sum of long vectors, without borders:
 *   forward   y[j]          = sum over channels and taps of w[t] x[at[t] + j], taps in their order
 *   data      dx[phase][i]  = sum over the taps of the phase of w[t] dy[i - at[t]], zeros around dy
 *   weight    dw[t]        += sum over j of x[at[t] + j] dy[j] in 32 lanes, then a halving tree
 * Where lines are long enough, forward and data compute them one by one in their place.
 */

typedef T NAME(Vec)
    __attribute__((vector_size(DIRECT_LANES * sizeof(T)), aligned(sizeof(T)), may_alias));

/* The sum over i of w[i] in[at[i] + j], of so many taps */
typedef struct {
    int64_t taps;
    const T *in;
    const int64_t *at;
    const T *w;
} NAME(Sum);

/* out[j] = that sum for four vectors from `first` on, of which these are the places */
static inline void NAME(sum_four)(const NAME(Sum) *sum, int64_t first, T *out, int64_t b, int64_t c,
                                  int64_t d)
{
    typedef NAME(Vec) Vec;
    Vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    const T *in = sum->in + first;
    for (int64_t i = 0; i < sum->taps; i++) {
        const T *x = in + sum->at[i], tap = sum->w[i];
        s0 += tap * *(const Vec *)(const void *)x;
        s1 += tap * *(const Vec *)(const void *)(x + b);
        s2 += tap * *(const Vec *)(const void *)(x + c);
        s3 += tap * *(const Vec *)(const void *)(x + d);
    }
    *(Vec *)(void *)out = s0;
    *(Vec *)(void *)(out + b) = s1;
    *(Vec *)(void *)(out + c) = s2;
    *(Vec *)(void *)(out + d) = s3;
}

/* For whole blocks of j. */
static void NAME(sum_taps)(int64_t n, const NAME(Sum) *sum, int64_t first, T *out)
{
    for (int64_t j = 0; j < n; j += DIRECT_BLOCK)
        NAME(sum_four)(sum, first + j, out + j, DIRECT_LANES, 2 * DIRECT_LANES, 3 * DIRECT_LANES);
}

/* For a line that is written where it belongs, of DIRECT_LANES elements or more: the last vector
 * begins early enough to end with it, and so may those before it. */
static void NAME(sum_line)(int64_t n, const NAME(Sum) *sum, int64_t from, T *out)
{
    typedef NAME(Vec) Vec;
    int64_t blocks = n / DIRECT_BLOCK * DIRECT_BLOCK, last = n - blocks - DIRECT_LANES;
    NAME(sum_taps)(blocks, sum, from, out);
    if (last == -DIRECT_LANES)
        return;
    out += blocks;
    if (last > DIRECT_LANES) {
        NAME(sum_four)(sum, from + blocks, out, DIRECT_LANES,
                       last < 2 * DIRECT_LANES ? last : 2 * DIRECT_LANES, last);
        return;
    }
    Vec s0 = {0}, s1 = {0};
    /* a short rest begins in the block before */
    int64_t first = last < 0 ? last : 0;
    const T *in = sum->in + from + blocks;
    for (int64_t i = 0; i < sum->taps; i++) {
        const T *x = in + sum->at[i], tap = sum->w[i];
        s0 += tap * *(const Vec *)(const void *)(x + first);
        s1 += tap * *(const Vec *)(const void *)(x + last);
    }
    *(Vec *)(void *)(out + first) = s0;
    *(Vec *)(void *)(out + last) = s1;
}

static T NAME(fold)(const NAME(Vec) *v)
{
    T s[DIRECT_LANES];
    memcpy(s, v, sizeof s);
    for (int half = DIRECT_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            s[k] += s[k + half];
    return s[0];
}

/* Three taps at a time, so that dy is read once for them. */
static void NAME(dot_taps)(int64_t n, const T *a, const T *b, const T *c, const T *dy, T *sum)
{
    typedef NAME(Vec) Vec;
    Vec s0 = {0}, s1 = {0}, s2 = {0}, t0 = {0}, t1 = {0}, t2 = {0};
    for (int64_t j = 0; j < n; j += 2 * DIRECT_LANES) {
        const Vec *d = (const Vec *)(const void *)(dy + j), *x = (const Vec *)(const void *)(a + j),
                  *y = (const Vec *)(const void *)(b + j), *z = (const Vec *)(const void *)(c + j);
        s0 += x[0] * d[0];
        s1 += y[0] * d[0];
        s2 += z[0] * d[0];
        t0 += x[1] * d[1];
        t1 += y[1] * d[1];
        t2 += z[1] * d[1];
    }
    s0 += t0;
    s1 += t1;
    s2 += t2;
    sum[0] = NAME(fold)(&s0);
    sum[1] = NAME(fold)(&s1);
    sum[2] = NAME(fold)(&s2);
}

/* A line, most of which are short. */
static inline void NAME(copy)(T *restrict to, const T *restrict from, int64_t n)
{
    int64_t z = 0;
    for (; z + 16 <= n; z += 16)
        memcpy(to + z, from + z, 16 * sizeof *to);
    if (n & 8)
        memcpy(to + z, from + z, 8 * sizeof *to), z += 8;
    if (n & 4)
        memcpy(to + z, from + z, 4 * sizeof *to), z += 4;
    if (n & 2)
        memcpy(to + z, from + z, 2 * sizeof *to), z += 2;
    if (n & 1)
        to[z] = from[z];
}

/* Between a line of a channel and its phases: to[z] = from[z * step] and the reverse. */
static inline void NAME(every)(T *restrict to, const T *restrict from, int64_t n, int64_t step)
{
    if (step == 1)
        NAME(copy)(to, from, n);
    else if (step == 2)
        for (int64_t z = 0; z < n; z++)
            to[z] = from[2 * z];
    else
        for (int64_t z = 0; z < n; z++)
            to[z] = from[z * step];
}

static inline void NAME(apart)(T *restrict to, const T *restrict from, int64_t n, int64_t step)
{
    if (step == 1)
        NAME(copy)(to, from, n);
    else if (step == 2)
        for (int64_t z = 0; z < n; z++)
            to[2 * z] = from[z];
    else
        for (int64_t z = 0; z < n; z++)
            to[z * step] = from[z];
}

/* A channel of the input into its planes, of those that a tap reads. */
static void NAME(spread)(const PpConv *v, const T *x, T *planes)
{
    const Direct *d = &v->planes;
    for (int64_t q = 0; q < d->phases; q++) {
        const PhaseLines l = phase_lines(v, q);
        int64_t n = l.end[2] - l.first[2], step = v->stride[2], wide = d->ext[2],
                width = v->stride[1] * v->in[2];
        if (d->first[q] == d->first[q + 1] || n <= 0)
            continue;
        for (int64_t i = l.first[0]; i < l.end[0]; i++) {
            T *to = planes + q * d->pitch + plane_at(d, i, l.first[1], l.first[2]);
            const T *from = x + channel_at(v, &l, i, l.first[1], l.first[2]);
            for (int64_t j = l.first[1]; j < l.end[1]; j++, to += wide, from += width)
                NAME(every)(to, from, n, step);
        }
    }
}

/* The sum of these taps for phase q of a channel; plane: room for it. */
static void NAME(sum_phase)(const PpConv *v, int64_t q, const NAME(Sum) *sum, T *plane, T *x)
{
    const Direct *d = &v->planes;
    const PhaseLines l = phase_lines(v, q);
    int64_t n = l.end[2] - l.first[2], step = v->stride[2], wide = d->ext[2],
            width = v->stride[1] * v->in[2];
    if (n < DIRECT_LANES)
        NAME(sum_taps)(d->plane, sum, 0, plane);
    for (int64_t i = l.first[0]; i < l.end[0] && n > 0; i++) {
        int64_t from = plane_at(d, i, l.first[1], l.first[2]);
        T *to = x + channel_at(v, &l, i, l.first[1], l.first[2]);
        for (int64_t j = l.first[1]; j < l.end[1]; j++, from += wide, to += width)
            if (n < DIRECT_LANES) {
                NAME(apart)(to, plane + from, n, step);
            } else if (step == 1) {
                NAME(sum_line)(n, sum, from, to);
            } else {
                NAME(sum_line)(n, sum, from, plane);
                NAME(apart)(to, plane, n, step);
            }
    }
}

/* A channel of the output as a run. */
static void NAME(to_run)(const PpConv *v, const T *y, T *run)
{
    const int64_t n = v->out[2], wide = v->planes.ext[2];
    for (int64_t i = 0; i < v->out[0]; i++) {
        T *to = run + plane_at(&v->planes, i, 0, 0);
        for (int64_t j = 0; j < v->out[1]; j++, to += wide, y += n)
            NAME(copy)(to, y, n);
    }
}

/* The sum of all taps for a channel of the output; run: room for it. */
static void NAME(sum_channel)(const PpConv *v, const T *planes, const T *w, T *run, T *y)
{
    const Direct *d = &v->planes;
    const int64_t n = v->out[2], wide = d->ext[2];
    const NAME(Sum) sum = {v->cg * v->taps, planes, d->at, w};
    if (n < DIRECT_LANES)
        NAME(sum_taps)(d->run, &sum, 0, run);
    for (int64_t i = 0; i < v->out[0]; i++) {
        int64_t from = plane_at(d, i, 0, 0);
        for (int64_t j = 0; j < v->out[1]; j++, from += wide, y += n)
            if (n < DIRECT_LANES)
                NAME(copy)(y, run + from, n);
            else
                NAME(sum_line)(n, &sum, from, y);
    }
}

/* ---- one sample; room: Direct.room elements ---- */

static void NAME(direct_forward)(const PpConv *v, int64_t n, const T *x, const T *w, T *y,
                                 const Then *then, T *room)
{
    if (NAME(slides_forward)(v, n, x, w, y, then))
        return;
    const Direct *d = &v->planes;
    int64_t channel = d->phases * d->pitch, terms = v->cg * v->taps;
    T *run = room + v->cg * channel;
    memset(room, 0, (size_t)(v->cg * channel) * sizeof *room);
    for (int64_t g = 0; g < v->group; g++) {
        for (int64_t c = 0; c < v->cg; c++)
            NAME(spread)(v, x + (g * v->cg + c) * v->in_size, room + c * channel);
        for (int64_t m = g * v->mg; m < (g + 1) * v->mg; m++)
            NAME(sum_channel)(v, room, w + m * terms, run, y + m * v->out_size);
        run_then(then, n, 1, g * v->mg, v->mg, 0, v->out_size);
    }
}

static void NAME(direct_data)(const PpConv *v, const T *dy, const T *w, T *dx, T *room)
{
    if (NAME(slides_data)(v, dy, w, dx, room))
        return;
    const Direct *d = &v->planes;
    T *plane = room + v->mg * d->wide, *tap = plane + d->pitch;
    memset(room, 0, (size_t)(v->mg * d->wide) * sizeof *room);
    if (!d->covers)
        memset(dx, 0, (size_t)(v->c * v->in_size) * sizeof *dx);
    for (int64_t g = 0; g < v->group; g++) {
        for (int64_t m = 0; m < v->mg; m++)
            NAME(to_run)(v, dy + (g * v->mg + m) * v->out_size, room + m * d->wide + d->margin);
        for (int64_t c = 0; c < v->cg; c++)
            for (int64_t q = 0; q < d->phases; q++) {
                int64_t first = d->first[q] * v->mg, terms = d->first[q + 1] * v->mg - first;
                for (int64_t i = 0; i < terms; i++) {
                    int64_t m = d->term[first + i] / v->taps, t = d->term[first + i] % v->taps;
                    tap[i] = w[((g * v->mg + m) * v->cg + c) * v->taps + t];
                }
                NAME(sum_phase)(v, q, &(NAME(Sum)){terms, room, d->back + first, tap}, plane,
                                dx + (g * v->cg + c) * v->in_size);
            }
    }
}

static void NAME(direct_weight)(const PpConv *v, const T *x, const T *dy, T *dw, T *room)
{
    const Direct *d = &v->planes;
    int64_t channel = d->phases * d->pitch, terms = v->cg * v->taps;
    T *run = room + v->cg * channel;
    memset(room, 0, (size_t)(v->cg * channel + d->pitch) * sizeof *room);
    for (int64_t g = 0; g < v->group; g++) {
        for (int64_t c = 0; c < v->cg; c++)
            NAME(spread)(v, x + (g * v->cg + c) * v->in_size, room + c * channel);
        for (int64_t m = g * v->mg; m < (g + 1) * v->mg; m++) {
            NAME(to_run)(v, dy + m * v->out_size, run);
            for (int64_t t = 0; t < terms; t += 3) {
                const T *a = room + d->at[t], *b = room + d->at[t + 1 < terms ? t + 1 : t],
                        *c = room + d->at[t + 2 < terms ? t + 2 : t];
                T sum[3];
                NAME(dot_taps)(d->run, a, b, c, run, sum);
                for (int64_t i = 0; i < 3 && t + i < terms; i++)
                    dw[m * terms + t + i] += sum[i];
            }
        }
    }
}

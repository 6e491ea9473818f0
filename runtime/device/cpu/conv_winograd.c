/*
 * conv_winograd.c - convolutions of 3 x 3 taps, stride 1, float32, many channels: Winograd's
 * minimal filtering F(2x2, 3x3), 16 products for 2 x 2 outputs instead of 36 (Lavin and Gray, Fast
 * Algorithms for Convolutional Neural Networks, 2015).
 *
 * The output is cut into tiles of 2 x 2, of which each reads 4 x 4 of the input, d.  Of a filter g
 *   U = G g G'   V = B' d B   y = A' (sum over channels of U * V, element by element) A
 * so that the sums over channels are 16 matrix products, one for each place in a tile:
 *   forward   M[p] = U[p]    V[p]       [m x c] [c x tiles]
 *   data      the same with dy, the filters turned by 180 degrees, m and c exchanged
 *   weight    S[p] = Y[p]    V[p]'      [m x tiles] [tiles x c], Y = A dy A';   dw = G' S G
 * Tiles are taken by blocks of whole rows of tiles, of one sample or several small ones, as many as
 * keep V and M in the caches.  The blocks follow from the shape and the number of rows of the call,
 * the transforms state their additions, and a product's bits are gemm.c's: threads share out
 * channels and products, never a sum.
 */
#include "api/pp.h"
#include "core/core.h"
#include "core/team.h"
#include "device/cpu/conv_winograd.h"

#include <string.h>

enum { FILTERS = 4 * LANES /* whose taps are sorted at once */ };

/* A block of tiles: rows of tiles [first, end), counted over all samples. */
typedef struct {
    int64_t first, end, tiles;
} Block;

static int team(const PpConv *v)
{
    int n = team_most();
    return n < v->threads ? n : v->threads;
}

/* ---- vectors of LANES ---- */

typedef float Vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

/* macros: what returns a vector has another ABI where vectors are wider */
#define LOAD(from) (*(const Vec *)(const void *)(from))
#define STORE(to, ...) (*(Vec *)(void *)(to) = (__VA_ARGS__))
#if defined __clang__ || __GNUC__ >= 12
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int Places __attribute__((vector_size(LANES * sizeof(int))));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (Places){__VA_ARGS__})
#endif
#define EVEN(a, b) PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD(a, b) PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#define LOW(a, b) PICK(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) PICK(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

static inline void copy(float *restrict to, const float *restrict from, int64_t n)
{
    for (; n >= LANES; n -= LANES, to += LANES, from += LANES)
        STORE(to, LOAD(from));
    if (n & 8)
        memcpy(to, from, 8 * sizeof *to), to += 8, from += 8;
    if (n & 4)
        memcpy(to, from, 4 * sizeof *to), to += 4, from += 4;
    if (n & 2)
        memcpy(to, from, 2 * sizeof *to), to += 2, from += 2;
    if (n & 1)
        *to = *from;
}

/* ---- filters: U = G g G' and dw += G' S G, of the filters of one m ---- */

/* Rows of G times a column: g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2. */
static inline void filter_side(const Vec g[3], Vec out[4])
{
    Vec outer = 0.5f * (g[0] + g[2]), half = 0.5f * g[1];
    out[0] = g[0];
    out[1] = outer + half;
    out[2] = outer - half;
    out[3] = g[2];
}

/* Rows of G' times a column. */
static inline void filter_side_back(const Vec s[4], Vec out[3])
{
    Vec sum = 0.5f * (s[1] + s[2]);
    out[0] = s[0] + sum;
    out[1] = 0.5f * (s[1] - s[2]);
    out[2] = sum + s[3];
}

/* turned: by 180 degrees, as the gradient of the data reads it.  Place p of filter i goes to
 * out[p * plane + i]. */
static void filters(const float *w, int64_t c, int turned, int64_t plane, float *out)
{
    for (int64_t i = 0; i < c; i += FILTERS) {
        int64_t n = c - i < FILTERS ? c - i : FILTERS;
        float g[9][FILTERS] = {{0}}, u[PLACES][LANES];
        for (int64_t l = 0; l < n; l++)
            for (int k = 0; k < 9; k++)
                g[turned ? 8 - k : k][l] = w[(i + l) * 9 + k];
        for (int64_t l = 0; l < n; l += LANES) {
            Vec t[3][4], row[4];
            for (int k = 0; k < 3; k++) {
                Vec column[3] = {LOAD(g[k] + l), LOAD(g[3 + k] + l), LOAD(g[6 + k] + l)};
                filter_side(column, t[k]);
            }
            for (int k = 0; k < 4; k++) {
                Vec line[3] = {t[0][k], t[1][k], t[2][k]};
                filter_side(line, row);
                for (int j = 0; j < 4; j++)
                    STORE(u[4 * k + j], row[j]);
            }
            for (int p = 0; p < PLACES; p++)
                copy(out + p * plane + i + l, u[p], n - l < LANES ? n - l : LANES);
        }
    }
}

static void filters_back(const float *sums, int64_t c, int64_t plane, float *dw)
{
    for (int64_t i = 0; i < c; i += FILTERS) {
        int64_t n = c - i < FILTERS ? c - i : FILTERS;
        float g[9][FILTERS], s[PLACES][LANES] = {{0}};
        for (int64_t l = 0; l < n; l += LANES) {
            Vec t[4][3], row[3];
            for (int p = 0; p < PLACES; p++)
                copy(s[p], sums + p * plane + i + l, n - l < LANES ? n - l : LANES);
            for (int k = 0; k < 4; k++) {
                Vec column[4] = {LOAD(s[k]), LOAD(s[4 + k]), LOAD(s[8 + k]), LOAD(s[12 + k])};
                filter_side_back(column, t[k]);
            }
            for (int k = 0; k < 3; k++) {
                Vec line[4] = {t[0][k], t[1][k], t[2][k], t[3][k]};
                filter_side_back(line, row);
                for (int j = 0; j < 3; j++)
                    STORE(g[3 * k + j] + l, row[j]);
            }
        }
        for (int64_t l = 0; l < n; l++)
            for (int k = 0; k < 9; k++)
                dw[(i + l) * 9 + k] += g[k][l];
    }
}

/* ---- tiles ----
 * LANES neighbours of a row of tiles at once.  Of a line, elements 2 t and 2 t + 1 lie apart. */

typedef struct {
    Vec even, odd, next_even, next_odd;
} Line; /* next: t + 1 */

/* The line from x on; what lies outside of [0, w) as zeros.  NULL: zeros. */
static inline void take(const float *line, int64_t w, int64_t x, Line *out)
{
    float whole[3 * LANES] = {0};
    const float *from = whole;
    if (line && x >= 0 && x + 2 * LANES + 2 <= w) {
        from = line + x;
    } else if (line) {
        int64_t lo = x < 0 ? -x : 0, hi = w - x < 2 * LANES + 2 ? w - x : 2 * LANES + 2;
        if (lo < hi)
            copy(whole + lo, line + x + lo, hi - lo);
    }
    Vec a = LOAD(from), b = LOAD(from + LANES), c = LOAD(from + 2), d = LOAD(from + LANES + 2);
    *out = (Line){EVEN(a, b), ODD(a, b), EVEN(c, d), ODD(c, d)};
}

/* B' times a column of lines: a + b or a - b. */
static inline void join(const Line *a, const Line *b, int add, Line *out)
{
    if (add)
        *out = (Line){a->even + b->even, a->odd + b->odd, a->next_even + b->next_even,
                      a->next_odd + b->next_odd};
    else
        *out = (Line){a->even - b->even, a->odd - b->odd, a->next_even - b->next_even,
                      a->next_odd - b->next_odd};
}

/* A row of V: d0 - d2, d1 + d2, d2 - d1, d1 - d3. */
static inline void store_input(const Line *a, const Line *b, int add, int64_t plane, float *out)
{
    Line l;
    join(a, b, add, &l);
    STORE(out, l.even - l.next_even);
    STORE(out + plane, l.odd + l.next_even);
    STORE(out + 2 * plane, l.next_even - l.odd);
    STORE(out + 3 * plane, l.odd - l.next_odd);
}

/* V = B' d B; place p goes to out + p * plane. */
static inline void input_tiles(const Line d[4], int64_t plane, float *out)
{
    store_input(&d[0], &d[2], 0, plane, out);
    store_input(&d[1], &d[2], 1, plane, out + 4 * plane);
    store_input(&d[2], &d[1], 0, plane, out + 8 * plane);
    store_input(&d[1], &d[3], 0, plane, out + 12 * plane);
}

/* A row of Y: d0, d0 + d1, d0 - d1, -d1. */
static inline void store_gradient(const Line *l, int64_t plane, float *out)
{
    STORE(out, l->even);
    STORE(out + plane, l->even + l->odd);
    STORE(out + 2 * plane, l->even - l->odd);
    STORE(out + 3 * plane, -l->odd);
}

/* Y = A dy A' */
static inline void gradient_tiles(const Line d[2], int64_t plane, float *out)
{
    Line zero = {.even = {0}}, sum, difference, last;
    join(&d[0], &d[1], 1, &sum);
    join(&d[0], &d[1], 0, &difference);
    join(&zero, &d[1], 0, &last);
    store_gradient(&d[0], plane, out);
    store_gradient(&sum, plane, out + 4 * plane);
    store_gradient(&difference, plane, out + 8 * plane);
    store_gradient(&last, plane, out + 12 * plane);
}

/* y = A' M A: two lines. */
static inline void output_tiles(const float *m, int64_t plane, float y[2][2 * LANES])
{
    Vec even[4], odd[4];
    for (int i = 0; i < 4; i++, m += 4 * plane) {
        Vec b = LOAD(m + plane), c = LOAD(m + 2 * plane);
        even[i] = LOAD(m) + b + c;
        odd[i] = b - c - LOAD(m + 3 * plane);
    }
    Vec e = even[0] + even[1] + even[2], o = odd[0] + odd[1] + odd[2];
    STORE(y[0], LOW(e, o));
    STORE(y[0] + LANES, HIGH(e, o));
    e = even[1] - even[2] - even[3];
    o = odd[1] - odd[2] - odd[3];
    STORE(y[1], LOW(e, o));
    STORE(y[1] + LANES, HIGH(e, o));
}

/* Where the next LANES tiles begin: the last ones end with the row, if it has so many. */
static inline int64_t next_chunk(int64_t t, int64_t across)
{
    return t + LANES < across && t + 2 * LANES > across ? across - LANES : t + LANES;
}

/* An image of h x w as tiles read it: tile 0 begins at (-pad_h, -pad_w). */
typedef struct {
    int64_t h, w, pad_h, pad_w;
} Image;

static inline void take_line(const Image *i, const float *x, int64_t y, int64_t column, Line *out)
{
    take(y < 0 || y >= i->h ? NULL : x + y * i->w, i->w, column - i->pad_w, out);
}

/* V of a block for a channel of x[rows][channels][h][w].  A row's last two lines are the next's
 * first. */
static void spread_input(const Use *u, const Block *b, const float *x, int64_t channels,
                         int64_t plane, float *out)
{
    const Image i = {u->h, u->w, u->pad_h, u->pad_w};
    for (int64_t t = 0; t < u->across; t = next_chunk(t, u->across)) {
        Line d[4] = {{.even = {0}}};
        for (int64_t row = b->first; row < b->end; row++) {
            const float *image = x + row / u->down * channels * i.h * i.w;
            int64_t line = row % u->down, y = 2 * line - i.pad_h;
            if (line == 0 || row == b->first) {
                take_line(&i, image, y, 2 * t, &d[0]);
                take_line(&i, image, y + 1, 2 * t, &d[1]);
            } else {
                d[0] = d[2];
                d[1] = d[3];
            }
            take_line(&i, image, y + 2, 2 * t, &d[2]);
            take_line(&i, image, y + 3, 2 * t, &d[3]);
            input_tiles(d, plane, out + (row - b->first) * u->across + t);
        }
    }
}

/* Y of a block for a channel of dy. */
static void spread_gradient(const Use *u, const Block *b, const float *dy, int64_t channels,
                            int64_t plane, float *out)
{
    const Image i = {u->oh, u->ow, 0, 0};
    for (int64_t t = 0; t < u->across; t = next_chunk(t, u->across))
        for (int64_t row = b->first; row < b->end; row++) {
            const float *image = dy + row / u->down * channels * i.h * i.w;
            int64_t y = 2 * (row % u->down);
            Line d[2];
            take_line(&i, image, y, 2 * t, &d[0]);
            take_line(&i, image, y + 1, 2 * t, &d[1]);
            gradient_tiles(d, plane, out + (row - b->first) * u->across + t);
        }
}

/* A channel of the results: the first sample's, how many a sample has, what follows. */
typedef struct {
    float *y;
    int64_t channel, channels;
    const Then *then;
} Results;

/* The outputs of a block for a channel. */
static void gather_output(const Use *u, const Block *b, const float *m, int64_t plane,
                          const Results *to)
{
    for (int64_t row = b->first; row < b->end; row++, m += u->across) {
        float *image = to->y + row / u->down * to->channels * u->oh * u->ow;
        int64_t line = row % u->down * 2;
        for (int64_t t = 0; t < u->across; t = next_chunk(t, u->across)) {
            float two[2][2 * LANES];
            int64_t n = u->ow - 2 * t < 2 * LANES ? u->ow - 2 * t : 2 * LANES;
            output_tiles(m + t, plane, two);
            for (int64_t i = 0; i < 2 && line + i < u->oh; i++)
                copy(image + (line + i) * u->ow + 2 * t, two[i], n);
        }
        if (line + 2 >= u->oh || row + 1 == b->end) {
            int64_t sample = row / u->down, from = sample * u->down,
                    begin = (b->first > from ? b->first - from : 0) * 2,
                    end = line + 2 < u->oh ? line + 2 : u->oh;
            run_then(to->then, sample, 1, to->channel, 1, begin * u->ow, (end - begin) * u->ow);
        }
    }
}

/* ---- the three uses ---- */

static Block next_block(const PpConv *v, const Use *u, int64_t rows, int64_t first)
{
    int64_t n = block_rows(v, u), end = first + n < rows * u->down ? first + n : rows * u->down;
    return (Block){first, end, (end - first) * u->across};
}

/* Group g; filters: [places][mg][cg], of which the data's gradient reads the transpose. */
static void convolve(const PpConv *v, const ConvUse *of, int64_t g, const float *filter,
                     float *spread)
{
    const Use u = use_of(v, of->data);
    int64_t pitch = pitch_of(v, &u), K = v->cg * v->mg, channels = u.c * v->group;
    const float *x = (const float *)of->x + g * u.c * u.h * u.w;
    float *product = spread + PLACES * u.c * pitch, *y = (float *)of->y + g * u.m * u.oh * u.ow;
    int members = team(v);
    (void)members; /* built without OpenMP */
    for (int64_t first = 0; first < of->rows * u.down;) {
        Block b = next_block(v, &u, of->rows, first);
        first = b.end;
#pragma omp parallel num_threads(members) if (members > 1)
        {
#pragma omp for schedule(static)
            for (int64_t c = 0; c < u.c; c++)
                spread_input(&u, &b, x + c * u.h * u.w, channels, u.c * pitch, spread + c * pitch);
#pragma omp for schedule(static)
            for (int p = 0; p < PLACES; p++)
                pp_gemm(&(PpGemm){.type = PP_F32, .ta = of->data, .m = u.m, .n = b.tiles, .k = u.c,
                                  .a = filter + p * K, .lda = v->cg, .b = spread + p * u.c * pitch,
                                  .ldb = pitch, .c = product + p * u.m * pitch, .ldc = pitch});
#pragma omp for schedule(static)
            for (int64_t m = 0; m < u.m; m++)
                gather_output(&u, &b, product + m * pitch, u.m * pitch,
                              &(Results){y + m * u.oh * u.ow, g * v->mg + m, u.m * v->group,
                                         &of->then});
        }
    }
}

void winograd_image(const PpConv *v, const ConvUse *of, float *scratch)
{
    const float *w = of->w;
    int64_t K = v->cg * v->mg;
    int members = team(v);
    (void)members; /* built without OpenMP */
    for (int64_t g = 0; g < v->group; g++) {
#pragma omp parallel for num_threads(members) if (members > 1)
        for (int64_t m = 0; m < v->mg; m++)
            filters(w + (g * v->mg + m) * v->cg * 9, v->cg, of->data, K, scratch + m * v->cg);
        convolve(v, of, g, scratch, scratch + PLACES * K);
    }
}

void winograd_weight(const PpConv *v, int64_t rows, const float *x, const float *dy, float *dw,
                     float *scratch)
{
    const Use u = use_of(v, 0);
    int64_t pitch = pitch_of(v, &u), K = v->cg * v->mg;
    float *spread = scratch + PLACES * K, *gradient = spread + PLACES * u.c * pitch;
    int members = team(v);
    (void)members; /* built without OpenMP */
    for (int64_t g = 0; g < v->group; g++) {
        const float *xg = x + g * u.c * v->in_size, *dyg = dy + g * u.m * v->out_size;
        for (int64_t first = 0; first < rows * u.down;) {
            Block b = next_block(v, &u, rows, first);
            const int adds = first > 0;
            first = b.end;
#pragma omp parallel num_threads(members) if (members > 1)
            {
#pragma omp for schedule(static) nowait
                for (int64_t c = 0; c < u.c; c++)
                    spread_input(&u, &b, xg + c * v->in_size, v->c, u.c * pitch,
                                 spread + c * pitch);
#pragma omp for schedule(static)
                for (int64_t m = 0; m < u.m; m++)
                    spread_gradient(&u, &b, dyg + m * v->out_size, v->m, u.m * pitch,
                                    gradient + m * pitch);
#pragma omp for schedule(static)
                for (int p = 0; p < PLACES; p++)
                    pp_gemm(&(PpGemm){.type = PP_F32, .tb = 1, .m = u.m, .n = u.c, .k = b.tiles,
                                      .a = gradient + p * u.m * pitch, .lda = pitch,
                                      .b = spread + p * u.c * pitch, .ldb = pitch, .adds = adds,
                                      .c = scratch + p * K, .ldc = v->cg});
            }
        }
#pragma omp parallel for num_threads(members) if (members > 1)
        for (int64_t m = 0; m < v->mg; m++)
            filters_back(scratch + m * v->cg, v->cg, K, dw + (g * v->mg + m) * v->cg * 9);
    }
}

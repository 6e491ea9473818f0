/* Products of bf16 and f16 against sums in double, with the bound that float32 sums and one
   rounding have; NaN and infinities; and the bits: any leading dimension, place in a batch and
   number of threads give the same. */
#include "runtime/api/pp_half.h"
#include "runtime/device/cpu/cpu.h"
#include "tests/share/products.h"
#include "tests/share/tap.h"
#include "tests/share/uniform.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

typedef struct {
    int bf16, single; /* bf16 or f16; C is float32 */
    int ta, tb;
    int64_t m, n, k;
    float alpha;
    int adds;
} Case;

static uint16_t narrow(const Case *t, float x) { return t->bf16 ? pp_to_bf16(x) : pp_to_f16(x); }
static float widen(const Case *t, uint16_t h) { return t->bf16 ? pp_from_bf16(h) : pp_from_f16(h); }

static PpGemm product(const Case *t, const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb,
                      void *c, int64_t ldc)
{
    const int type = t->bf16 ? PP_BF16 : PP_F16;
    return (PpGemm){.type = type, .result = t->single ? PP_F32 : type, .ta = t->ta, .tb = t->tb,
                    .m = t->m, .n = t->n, .k = t->k, .alpha = &t->alpha, .a = a, .lda = lda, .b = b,
                    .ldb = ldb, .adds = t->adds, .c = c, .ldc = ldc};
}

static void multiply(const Case *t, const uint16_t *a, int64_t lda, const uint16_t *b, int64_t ldb,
                     void *c, int64_t ldc)
{
    const PpGemm g = product(t, a, lda, b, ldb, c, ldc);
    pp_gemm(&g);
}

typedef struct {
    uint16_t *a, *b;
    char *c, *d;
    int64_t rows_a, rows_b, ca, cb; /* as stored */
    size_t size;                    /* of an element of C */
} Operands;

static void *room(int64_t bytes)
{
    void *p = calloc((size_t)bytes + 64, 1);
    if (!p)
        exit(3);
    return p;
}

static Operands operands(const Case *t)
{
    Operands o = {.rows_a = t->ta ? t->k : t->m,
                  .rows_b = t->tb ? t->n : t->k,
                  .ca = t->ta ? t->m : t->k,
                  .cb = t->tb ? t->k : t->n,
                  .size = t->single ? sizeof(float) : sizeof(uint16_t)};
    o.a = room(o.rows_a * o.ca * 2);
    o.b = room(o.rows_b * o.cb * 2);
    o.c = room(t->m * t->n * (int64_t)o.size);
    o.d = room(t->m * t->n * (int64_t)o.size);
    for (int64_t i = 0; i < o.rows_a * o.ca; i++)
        o.a[i] = narrow(t, uniform());
    for (int64_t i = 0; i < o.rows_b * o.cb; i++)
        o.b[i] = narrow(t, uniform());
    for (int64_t i = 0; i < t->m * t->n; i++) {
        float x = t->adds ? uniform() : NAN; /* not read where nothing is added to it */
        uint16_t h = narrow(t, x);
        memcpy(o.c + (size_t)i * o.size, t->single ? (void *)&x : (void *)&h, o.size);
    }
    memcpy(o.d, o.c, (size_t)(t->m * t->n) * o.size);
    return o;
}

static void done(Operands *o) { free(o->a), free(o->b), free(o->c), free(o->d); }

static double element(const Case *t, const char *c, int64_t i)
{
    float x;
    uint16_t h;
    memcpy(&x, c + (t->single ? 4 * i : 0), sizeof x);
    memcpy(&h, c + (t->single ? 0 : 2 * i), sizeof h);
    return (double)(t->single ? x : widen(t, h));
}

/* ---- numbers ---- */

/* A matrix in double, of `rows` x `columns` elements as stored; or its transpose. */
static double *widened(const Case *t, const uint16_t *from, int64_t rows, int64_t columns,
                       int transposed)
{
    double *to = room(rows * columns * (int64_t)sizeof *to);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            to[transposed ? j * rows + i : i * columns + j] =
                (double)widen(t, from[i * columns + j]);
    return to;
}

/* The share of its bound that the worst element uses: (k + 3) roundings of float32 on the sum of
   absolute values, and one of C's type. */
static double worst_of(const Case *t)
{
    Operands o = operands(t);
    const double last = t->single ? 0 : t->bf16 ? 0x1p-8 : 0x1p-11, least = t->bf16 ? 0 : 0x1p-25;
    double worst = 0, *a = widened(t, o.a, o.rows_a, o.ca, t->ta),
           *b = widened(t, o.b, o.rows_b, o.cb, !t->tb);
    multiply(t, o.a, o.ca, o.b, o.cb, o.c, t->n);
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) {
            double s = 0, all = 0, before = t->adds ? element(t, o.d, i * t->n + j) : 0;
            for (int64_t p = 0; p < t->k; p++) {
                double x = a[i * t->k + p] * b[j * t->k + p];
                s += x, all += fabs(x);
            }
            s = (double)t->alpha * s + before;
            all = fabs((double)t->alpha) * all + fabs(before);
            double bound = (double)(t->k + 3) * 0x1p-24 * all;
            bound += last * (fabs(s) + bound) + (t->single ? 0 : least) + (double)FLT_MIN;
            worst = fmax(worst, fabs(element(t, o.c, i * t->n + j) - s) / bound);
        }
    free(a), free(b);
    done(&o);
    return worst;
}

static double all_sizes(void)
{
    static const int64_t size[][3] = {{1, 1, 1},      {1, 7, 5},     {3, 1, 17},    {5, 2, 0},
                                      {16, 16, 16},   {17, 31, 33},  {64, 100, 2},  {129, 65, 100},
                                      {1, 300, 64},   {300, 1, 257}, {40, 33, 700}, {140, 20, 1101},
                                      {260, 70, 1101}};
    double worst = 0;
    for (unsigned i = 0; i < sizeof size / sizeof *size; i++)
        for (int k = 0; k < 32; k++) {
            Case t = {k & 1,      k >> 1 & 1, k >> 2 & 1,        k >> 3 & 1,         size[i][0],
                      size[i][1], size[i][2], k & 16 ? 0.5f : 1, k & 16};
            worst = fmax(worst, worst_of(&t));
        }
    for (int k = 0; k < 4; k++) { /* more than one block along each side */
        Case t = {k & 1, k >> 1, 0, 0, 530, 290, 70, 1, 1};
        worst = fmax(worst, worst_of(&t));
    }
    return worst;
}

/* A sum in bf16 or f16 would stand still: 1 + 1 + ... 4,096 times, and what is left of a cancelled
 * one. */
static int sums_are_single(void)
{
    enum { K = 4096 };
    int good = 1;
    for (int k = 0; k < 4; k++) {
        Case t = {k & 1, k >> 1, 0, 0, 2, 3, K, 1, 0};
        Operands o = operands(&t);
        for (int64_t i = 0; i < 2 * K; i++)
            o.a[i] = narrow(&t, 1);
        for (int64_t i = 0; i < 3 * K; i++)
            o.b[i] = narrow(&t, i / 3 % 2 ? -1 : 1.0078125f); /* sums of 1/128: exact in float32 */
        multiply(&t, o.a, K, o.b, 3, o.c, 3);
        for (int64_t i = 0; i < 6; i++)
            good &= element(&t, o.c, i) == K / 2 / 128.0;
        for (int64_t i = 0; i < 3 * K; i++)
            o.b[i] = narrow(&t, 1);
        multiply(&t, o.a, K, o.b, 3, o.c, 3);
        for (int64_t i = 0; i < 6; i++)
            good &= element(&t, o.c, i) == K;
        done(&o);
    }
    return good;
}

/* What is not finite arrives in its row and column, and nowhere else; what f16 cannot hold is
 * infinite. */
static int not_finite(void)
{
    int good = 1;
    for (int k = 0; k < 8; k++) {
        Case t = {k & 1, k >> 1 & 1, 0, 0, k & 4 ? 64 : 6, k & 4 ? 48 : 5, 80, 1, 0};
        Operands o = operands(&t);
        o.a[2 * t.k + 7] = narrow(&t, NAN);
        o.a[4 * t.k + 3] = narrow(&t, INFINITY);
        o.b[3 * t.n + 1] = narrow(&t, 0); /* infinity times zero */
        o.b[3 * t.n + 2] = narrow(&t, -2);
        multiply(&t, o.a, t.k, o.b, t.n, o.c, t.n);
        for (int64_t i = 0; i < t.m; i++)
            for (int64_t j = 0; j < t.n; j++) {
                double x = element(&t, o.c, i * t.n + j);
                good &= i == 2 || (i == 4 && j == 1) ? isnan(x) != 0
                        : i == 4                     ? isinf(x) != 0
                                                     : isfinite(x) != 0;
                good &= i != 4 || j != 2 || x == -(double)INFINITY;
            }
        done(&o);
    }
    Case big = {0, 0, 0, 0, 1, 1, 2, 1, 0};
    uint16_t a[2] = {pp_to_f16(256), pp_to_f16(256)}, b[2] = {pp_to_f16(256), 0}, c;
    hgemm(0, 0, 1, 1, 1, 1, a, 1, b, 1, 0, &c, 1);
    good &= widen(&big, c) == INFINITY;
    hgemm(0, 0, 1, 1, 1, 0.5f, a, 1, b, 1, 0, &c, 1); /* the sum itself is float32 */
    return good && widen(&big, c) == 32768;
}

/* A subnormal number is one, whoever multiplies. */
static int subnormal(void)
{
    enum { N = 32 };
    uint16_t a[N * N], c[N * N];
    int good = 1;
    for (int i = 0; i < N * N; i++)
        a[i] = pp_to_bf16(1);
    bgemm(0, 0, N, N, N, 0x1p-135f, a, N, a, N, 0, c, N);
    for (int i = 0; i < N * N; i++)
        good &= pp_from_bf16(c[i]) == 0x1p-130f;
    return good;
}

/* A bias is added to the sums that a C of float32 has, of one product and of several; then comes
   the only rounding. */
static int biases(void)
{
    static const int64_t size[][3] = {{5, 3, 4}, {64, 48, 33}, {130, 100, 600}, {300, 290, 64}};
    int good = 1;
    for (unsigned i = 0; i < sizeof size / sizeof *size; i++)
        for (int k = 0; k < 16; k++) {
            Case t = {k & 1, 1, k >> 1 & 1, k >> 2 & 1, size[i][0], size[i][1], size[i][2], 1, 0};
            const int64_t two[1] = {2}, none[1] = {0}, next[1] = {t.m * t.n};
            Operands o = operands(&t);
            uint16_t *bias = room(t.n * 2), *c = room(2 * t.m * t.n * 2);
            for (int64_t j = 0; j < t.n; j++)
                bias[j] = narrow(&t, uniform());
            multiply(&t, o.a, o.ca, o.b, o.cb, o.c, t.n);
            Case half = t;
            half.single = 0;
            PpGemm g = product(&half, o.a, o.ca, o.b, o.cb, c, t.n);
            g.bias = bias;
            g.dims = k >> 3;
            g.count = two, g.stride_a = g.stride_b = none, g.stride_c = next;
            pp_gemm(&g);
            for (int64_t j = 0; j < (k & 8 ? 2 : 1) * t.m * t.n; j++) {
                const float sum = (float)element(&t, o.c, j % (t.m * t.n));
                good &= c[j] == narrow(&t, sum + widen(&t, bias[j % t.n]));
            }
            free(bias), free(c);
            done(&o);
        }
    return good;
}

/* ---- bits ---- */

enum { NEAR = 16, FAR = 2048 };

static uint16_t *spread(const uint16_t *from, int64_t rows, int64_t columns, int64_t ld)
{
    uint16_t *to = room(rows * ld * 2);
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * ld, from + i * columns, (size_t)columns * 2);
    return to;
}

/* Operands whose rows stand at the distances that a library may treat in ways of their own, and
 * several threads. */
static int same_bits(const Case *t)
{
    Operands o = operands(t);
    int same = 1;
    multiply(t, o.a, o.ca, o.b, o.cb, o.c, t->n);
    for (int v = 0; v < 4; v++) {
        int64_t lda = v & 1 ? FAR : o.ca + NEAR, ldb = v & 2 ? FAR : o.cb + NEAR + 1,
                ldc = t->n + 3 * v;
        uint16_t *a = spread(o.a, o.rows_a, o.ca, lda), *b = spread(o.b, o.rows_b, o.cb, ldb);
        char *c = room(t->m * ldc * (int64_t)o.size);
        for (int64_t i = 0; i < t->m; i++)
            memcpy(c + (size_t)(i * ldc) * o.size, o.d + (size_t)(i * t->n) * o.size,
                   (size_t)t->n * o.size);
#ifdef _OPENMP
        omp_set_num_threads(v + 1);
#endif
        multiply(t, a, lda, b, ldb, c, ldc);
#ifdef _OPENMP
        omp_set_num_threads(1);
#endif
        for (int64_t i = 0; i < t->m; i++)
            same &= !memcmp(c + (size_t)(i * ldc) * o.size, o.c + (size_t)(i * t->n) * o.size,
                            (size_t)t->n * o.size);
        free(a), free(b), free(c);
    }
    done(&o);
    return same;
}

static int all_bits(void)
{
    static const int64_t size[][3] = {
        {128, 1024, 1024}, {600, 40, 1024}, {64, 64, 48}, {7, 5, 3}, {96, 600, 800}};
    int same = 1;
    for (unsigned i = 0; i < sizeof size / sizeof *size; i++)
        for (int k = 0; k < 16; k++) {
            Case t = {k & 1,      k >> 1 & 1, k >> 2 & 1, k >> 3,        size[i][0],
                      size[i][1], size[i][2], 1,          (int)(i & 1)};
            if (k % 3 == 0 || i > 1)
                same &= same_bits(&t);
        }
    return same;
}

/* Heads inside a packed [2, rows, 4 heads x 16], each A A^T, beside one product after the other. */
static int batched(void)
{
    enum { ROWS = 40, HEAD = 16, WIDE = 4 * HEAD, SQUARE = ROWS * ROWS };
    static uint16_t x[2 * ROWS * WIDE], y[8 * SQUARE], one[SQUARE];
    static float z[8 * SQUARE], single[SQUARE];
    const int64_t count[2] = {2, 4}, sa[2] = {ROWS * WIDE, HEAD}, sc[2] = {4 * SQUARE, SQUARE};
    int good = 1;
    for (int k = 0; k < 2; k++) {
        Case t = {.bf16 = k};
        for (int i = 0; i < 2 * ROWS * WIDE; i++)
            x[i] = narrow(&t, uniform());
        for (int wide = 0; wide < 2; wide++) {
            PpGemm g = {.type = k ? PP_BF16 : PP_F16, .result = wide ? PP_F32 : 0, .tb = 1,
                        .m = ROWS, .n = ROWS, .k = HEAD, .a = x, .lda = WIDE, .b = x, .ldb = WIDE,
                        .ldc = ROWS, .dims = 2, .count = count, .stride_a = sa, .stride_b = sa,
                        .stride_c = sc};
            g.c = wide ? (void *)z : y;
            pp_gemm(&g);
        }
        for (int i = 0; i < 8; i++) {
            const uint16_t *a = x + i / 4 * ROWS * WIDE + i % 4 * HEAD;
            (k ? bgemm : hgemm)(0, 1, ROWS, ROWS, HEAD, 1, a, WIDE, a, WIDE, 0, one, ROWS);
            (k ? bsgemm : hsgemm)(0, 1, ROWS, ROWS, HEAD, 1, a, WIDE, a, WIDE, 0, single,
                                        ROWS);
            good &= !memcmp(one, y + i * SQUARE, sizeof one);
            good &= !memcmp(single, z + i * SQUARE, sizeof single);
        }
    }
    return good;
}

int main(void)
{
    gemm_prepare();
#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
    printf("# bf16 %s, f16 %s\n", gemm_half_text(PP_BF16), gemm_half_text(PP_F16));
    double worst = all_sizes();
    ok(worst <= 1, "products of all sizes, transposes, factors: within the bound of float32 sums");
    printf("# worst %.3g of the bound\n", worst);
    ok(sums_are_single(), "sums are those of float32, to the end");
    ok(not_finite(), "NaN and infinities stay in their rows and columns");
    ok(subnormal(), "subnormal numbers stay");
    ok(biases(), "a bias is added to the sums of float32, before the one rounding");
    ok(all_bits(), "the same bits for other leading dimensions and 1 to 4 threads");
    ok(batched(), "a batch over strided heads: the bits of its products one by one");
    ok(!*gemm_error(), "no product was refused");
    return tap_done();
}

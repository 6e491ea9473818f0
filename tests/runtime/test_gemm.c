/* Products of float32 and float64, alone and batched, against a naive product in double; and the bits: any
   leading dimension, any slice of rows, any number of threads give the same. */
#include "runtime/device/cpu/cpu.h"
#include "tests/share/products.h"
#include "tests/share/tap.h"
#include "tests/share/uniform.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static int one(int ta, int tb, int64_t m, int64_t n, int64_t k, int pad, double *worst, int *bits)
{
    int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n + pad;
    int64_t na = (ta ? k : m) * lda, nb = (tb ? n : k) * ldb, nc = m * ldc;
    float *a = malloc((size_t)(na + 1) * 4), *b = malloc((size_t)(nb + 1) * 4),
          *c = malloc((size_t)nc * 4), *d = malloc((size_t)nc * 4), *dt = malloc((size_t)nc * 4);
    double *da = malloc((size_t)(na + 1) * 8), *db = malloc((size_t)(nb + 1) * 8),
           *dc = malloc((size_t)nc * 8);
    for (int64_t i = 0; i < na; i++)
        da[i] = (double)(a[i] = uniform());
    for (int64_t i = 0; i < nb; i++)
        db[i] = (double)(b[i] = uniform());
    for (int64_t i = 0; i < nc; i++)
        dc[i] = (double)(c[i] = d[i] = uniform());
    int beta = pad != 0;
    float alpha = pad ? 0.5f : 1.0f;
    sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    dgemm(ta, tb, m, n, k, alpha, da, lda, db, ldb, beta, dc, ldc);
    double e = 0, e64 = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = 0;
            for (int64_t p = 0; p < k; p++)
                s += da[ta ? p * lda + i : i * lda + p] * db[tb ? j * ldb + p : p * ldb + j];
            s = (double)alpha * s + (double)beta * (double)d[i * ldc + j];
            e = fmax(e, fabs(s - (double)c[i * ldc + j]));
            e64 = fmax(e64, fabs(s - dc[i * ldc + j]));
        }
    *worst =
        fmax(*worst, fmax(e / (1 + sqrt((double)k)) * 1e6, e64 / (1 + sqrt((double)k)) * 1e15));
    /* into tight rows of C: the same bits (a matrix-vector product that accumulates is the one
     * exception, in oneDNN) */
    if (pad && n > 1) {
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                dt[i * n + j] = d[i * ldc + j];
        sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, dt, n);
        for (int64_t i = 0; i < m; i++)
            *bits &= !memcmp(c + i * ldc, dt + i * n, (size_t)n * 4);
    }
#ifdef _OPENMP
    for (int t = 2; t <= 4; t++) {
        for (int64_t i = 0; i < nc; i++)
            d[i] = (float)0;
        if (beta == 0) {
            omp_set_num_threads(t);
            sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, 0, d, ldc);
            for (int64_t i = 0; i < m; i++)
                *bits &= !memcmp(c + i * ldc, d + i * ldc, (size_t)n * 4);
            omp_set_num_threads(1);
        }
    }
#endif
    free(a), free(b), free(c), free(d), free(dt), free(da), free(db), free(dc);
    return 0;
}

/* Operands whose rows stand at the distances that a library may treat in ways of their own:
 * multiples of 256 and 1,024. */
static int any_distance(int ta, int tb, int64_t m, int64_t n, int64_t k)
{
    enum { NEAR = 16, FAR = 2048, MOST = 1040 };
    int64_t ra = ta ? k : m, ca = ta ? m : k, rb = tb ? n : k, cb = tb ? k : n;
    float *x = malloc(sizeof(float) * 2 * MOST * FAR), *y = x + MOST * FAR,
          *a = malloc(sizeof(float) * MOST * FAR), *b = malloc(sizeof(float) * MOST * FAR);
    int same = 1;
    for (int64_t i = 0; i < ra * ca; i++)
        a[i] = uniform();
    for (int64_t i = 0; i < rb * cb; i++)
        b[i] = uniform();
    float *c = calloc((size_t)(m * n), sizeof *c), *d = calloc((size_t)(m * n), sizeof *d);
    sgemm(ta, tb, m, n, k, 1, a, ca, b, cb, 0, c, n);
    for (int v = 0; v < 8; v++) {
        int64_t lda = v & 1 ? FAR : ca + NEAR, ldb = v & 2 ? FAR : cb + NEAR;
        for (int64_t i = 0; i < ra; i++)
            memcpy(x + i * lda, a + i * ca, (size_t)ca * sizeof *x);
        for (int64_t i = 0; i < rb; i++)
            memcpy(y + i * ldb, b + i * cb, (size_t)cb * sizeof *y);
        sgemm(ta, tb, m, n, k, 1, x, lda, y, ldb, 0, d, n);
        same &= !memcmp(c, d, (size_t)(m * n) * sizeof *c);
    }
    free(x), free(a), free(b), free(c), free(d);
    return same;
}

#ifdef __AVX512F__
/* Rows and columns of a large product alone: the same bits, where products are the runtime's own,
 * as they are in a program for AVX-512. */
static int pieces(int ta, int tb)
{
    enum { M = 301, N = 205, K = 300, LESS = 31 };
    static float a[M * K], b[N * K], c[M * N], rows[LESS * N], columns[M * LESS];
    for (int i = 0; i < M * K; i++)
        a[i] = uniform();
    for (int i = 0; i < N * K; i++)
        b[i] = uniform();
    const int lda = ta ? M : K, ldb = tb ? K : N;
    sgemm(ta, tb, M, N, K, 1, a, lda, b, ldb, 0, c, N);
    sgemm(ta, tb, LESS, N, K, 1, a + (ta ? 60 : 60 * K), lda, b, ldb, 0, rows, N);
    sgemm(ta, tb, M, LESS, K, 1, a, lda, b + (tb ? 60 * K : 60), ldb, 0, columns, LESS);
    int same = !memcmp(c + 60 * N, rows, sizeof rows);
    for (int i = 0; i < M; i++)
        same &= !memcmp(c + i * N + 60, columns + i * LESS, LESS * sizeof *c);
    return same;
}
#endif

/* Operands that end where their memory does: nothing behind them is read or written. */
static int to_the_end(int ta, int tb, int64_t n)
{
    enum { M = 40, K = 24 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int64_t m = M, k = K, all[] = {m * k, k * n, m * n};
    float *at[3];
    char *whole[3];
    for (int i = 0; i < 3; i++) {
        const size_t bytes = (size_t)all[i] * sizeof(float), room = (bytes + page - 1) / page * page;
        whole[i] = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (whole[i] == MAP_FAILED || mprotect(whole[i] + room, page, PROT_NONE))
            return 0;
        at[i] = (float *)(void *)(whole[i] + room - bytes);
        for (int64_t j = 0; j < all[i]; j++)
            at[i][j] = 1;
    }
    sgemm(ta, tb, m, n, k, 1, at[0], ta ? m : k, at[1], tb ? k : n, 0, at[2], n);
    int good = 1;
    for (int64_t j = 0; j < m * n; j++)
        good &= at[2][j] == (float)K;
    for (int i = 0; i < 3; i++)
        munmap(whole[i], ((size_t)all[i] * sizeof(float) + page - 1) / page * page + page);
    return good;
}

static int batched(void)
{
    /* heads inside a packed [2, 3, 4 heads * 5] tensor: A[b,h] = x[b,:,h,:] (3 x 5), C = A A^T ->
     * [2,4,3,3] */
    float x[2 * 3 * 20], y[2 * 4 * 3 * 3];
    for (int i = 0; i < 120; i++)
        x[i] = uniform();
    const int64_t count[2] = {2, 4}, sa[2] = {60, 5}, sc[2] = {36, 9};
    pp_gemm(&(PpGemm){.type = PP_F32, .tb = 1, .m = 3, .n = 3, .k = 5, .a = x, .lda = 20, .b = x,
                      .ldb = 20, .c = y, .ldc = 3, .dims = 2, .count = count, .stride_a = sa,
                      .stride_b = sa, .stride_c = sc});
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 4; h++)
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < 3; j++) {
                    double s = 0;
                    for (int p = 0; p < 5; p++)
                        s += (double)x[b * 60 + i * 20 + h * 5 + p] *
                             (double)x[b * 60 + j * 20 + h * 5 + p];
                    if (fabs(s - (double)y[b * 36 + h * 9 + i * 3 + j]) > 1e-6)
                        return 0;
                }
    return 1;
}

int main(void)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 16, 17, 31, 64, 100, 129};
    double worst = 0;
    gemm_prepare();
    int bits = 1;
#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
    for (int t = 0; t < 4; t++)
        for (unsigned i = 0; i < 10; i++)
            for (unsigned j = 0; j < 10; j += 1 + i % 3)
                for (unsigned p = 0; p < 10; p += 1 + j % 4)
                    one(t & 1, t >> 1, sizes[i], sizes[j], sizes[p], (int)((i + j + p) % 2) * 3,
                        &worst, &bits);
    for (int t = 0; t < 4; t++)
        one(t & 1, t >> 1, 96, 80, 1100, 0, &worst, &bits);
    /* above its first bounds: rows that are not packed, all heights of a tile, parts of k */
    for (int t = 0; t < 4; t++)
        for (int64_t m = 16; m < 60; m += 7)
            one(t & 1, t >> 1, m, 48, 530, (int)(m % 2) * 3, &worst, &bits);
    /* large: blocks and panels that are not full, few columns by themselves, several parts of k,
     * pieces for threads */
    static const int64_t large[][3] = {
        {301, 213, 270}, {77, 131, 530}, {70, 1100, 100}, {1100, 130, 61}};
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 8; i++)
            one(t & 1, t >> 1, large[i / 2][0], large[i / 2][1], large[i / 2][2], i % 2 * 3, &worst,
                &bits);
    /* each number of columns that can be left, of a product that is packed and of one that is not */
    for (int few = 1; few < 32; few++) {
        one(0, 0, 200, 192 + few, 112, few % 2 * 3, &worst, &bits);
        one(0, 0, 71, 96 + few, 61, few % 2 * 3, &worst, &bits);
    }
    one(0, 0, 5, 7, 0, 0, &worst, &bits);
    ok(worst < 2, "products of all sizes and transposes agree with a naive product in double");
    printf("# worst %.3g\n", worst);
    ok(bits, "the same bits for another leading dimension and 1 to 4 threads");
    static const int64_t deep[][3] = {
        {128, 1024, 1024}, {200, 128, 1024}, {256, 256, 512}, {64, 1024, 800}, {512, 384, 896}};
    int apart = 1;
    for (int t = 0; t < 4; t++)
        for (unsigned i = 0; i < sizeof deep / sizeof *deep; i++)
            apart &= any_distance(t & 1, t >> 1, deep[i][0], deep[i][1], deep[i][2]);
    ok(apart, "the same bits however far apart the rows stand");
#ifdef __AVX512F__
    ok(pieces(0, 0) && pieces(0, 1) && pieces(1, 0) && pieces(1, 1),
       "rows and columns of a large product alone: the same bits");
#endif
    int inside = 1;
    for (int t = 0; t < 4; t++)
        for (int64_t n = 17; n < 72; n += 6)
            inside &= to_the_end(t & 1, t >> 1, n);
    ok(inside, "nothing behind an operand is read or written");
    ok(batched(), "a batch over strided heads");
    pp_gemm(&(PpGemm){.m = 1, .n = 1, .k = 1, .a = &worst, .b = &worst, .c = &worst});
    ok(!strcmp(gemm_error(), "a product without a type"), "one without a type is refused");
    return tap_done();
}

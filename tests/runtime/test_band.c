/* pp_gemm_band() against the whole product: the same numbers
   where the band's tiles are, nothing read or written elsewhere; causal masks, windows, bands off
   the diagonal, and sides that are no multiple of a tile. */
#include "tests/share/products.h"
#include "tests/share/tap.h"
#include "tests/share/uniform.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Has the tile of (i, j) an element of the band?  By trying all of them. */
static int live(int64_t i, int64_t j, int64_t below, int64_t above)
{
    int64_t i0 = i / PP_TILE * PP_TILE, j0 = j / PP_TILE * PP_TILE;
    for (int64_t y = i0; y < i0 + PP_TILE; y++)
        for (int64_t x = j0; x < j0 + PP_TILE; x++)
            if (below <= x - y && x - y <= above)
                return 1;
    return 0;
}

typedef struct {
    int which, ta, tb;
    int64_t below, above, m, n, k;
} Case;

/* One of op(A), op(B), C has NaNs in the tiles that are left out, and zeros in the copy that the
   whole product is given. */
static int agrees(const Case *s, double *worst, int *same)
{
    int64_t lda = (s->ta ? s->m : s->k) + 3, ldb = (s->tb ? s->k : s->n) + 1, ldc = s->n + 2;
    size_t na = (size_t)((s->ta ? s->k : s->m) * lda), nb = (size_t)((s->tb ? s->n : s->k) * ldb),
           nc = (size_t)(s->m * ldc);
    float *a = malloc(na * 4), *b = malloc(nb * 4), *c = malloc(nc * 4), *za = malloc(na * 4),
          *zb = malloc(nb * 4), *zc = malloc(nc * 4);
    double *da = malloc(na * 8), *db = malloc(nb * 8), *dc = malloc(nc * 8);
    int64_t rows = s->which == PP_BAND_B ? s->k : s->m,
            columns = s->which == PP_BAND_A ? s->k : s->n;
    for (size_t i = 0; i < na; i++)
        a[i] = za[i] = uniform();
    for (size_t i = 0; i < nb; i++)
        b[i] = zb[i] = uniform();
    for (size_t i = 0; i < nc; i++)
        c[i] = zc[i] = 7;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t at = s->which == PP_BAND_A   ? (s->ta ? j * lda + i : i * lda + j)
                         : s->which == PP_BAND_B ? (s->tb ? j * ldb + i : i * ldb + j)
                                                 : 0;
            if (s->which == PP_BAND_C || live(i, j, s->below, s->above))
                continue;
            *(s->which == PP_BAND_A ? &a[at] : &b[at]) = (float)NAN;
            *(s->which == PP_BAND_A ? &za[at] : &zb[at]) = 0;
        }
    for (size_t i = 0; i < na; i++)
        da[i] = (double)za[i];
    for (size_t i = 0; i < nb; i++)
        db[i] = (double)zb[i];
    sgemm(s->ta, s->tb, s->m, s->n, s->k, 0.5f, za, lda, zb, ldb, 0, zc, ldc);
    pp_gemm_band(&(PpGemm){.type = PP_F32, .ta = s->ta, .tb = s->tb, .m = s->m, .n = s->n,
                           .k = s->k, .alpha = &(float){0.5f}, .a = a, .lda = lda, .b = b, .ldb = ldb, .c = c,
                           .ldc = ldc},
                 s->which, s->below, s->above);
    dgemm(s->ta, s->tb, s->m, s->n, s->k, 0.5f, da, lda, db, ldb, 0, dc, ldc);
    int good = 1;
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < ldc; j++) {
            float x = c[i * ldc + j], y = zc[i * ldc + j];
            if (j >= s->n || (s->which == PP_BAND_C && !live(i, j, s->below, s->above))) {
                good &= x == 7;
                continue;
            }
            *same &= memcmp(&x, &y, sizeof x) == 0;
            *worst = fmax(*worst, fmax(fabs((double)x - (double)y),
                                       fabs(dc[i * ldc + j] - (double)y)));
            good &= x == x;
        }
    free(a), free(b), free(c), free(za), free(zb), free(zc), free(da), free(db), free(dc);
    return good;
}

/* Every type, with whole numbers: no order of addition rounds, and bits are those of the whole
   product.  NUMBER: -2 to 2 in the type of A and B. */
#define EXACT(NAME, TYPE, RESULT, T, R, ...)                                                       \
    static int NAME##_is_exact(void)                                                               \
    {                                                                                              \
        enum { M = 70, N = 65, K = 40 };                                                           \
        static const T NUMBER[] = {__VA_ARGS__};                                                   \
        static T a[M * K], b[K * N];                                                               \
        static R c[M * N], d[M * N];                                                               \
        for (int64_t i = 0; i < M * K; i++)                                                        \
            a[i] = NUMBER[live(i / K, i % K, -M, 0) ? (int)(2 + 2 * uniform()) : 2];               \
        for (int64_t i = 0; i < K * N; i++)                                                        \
            b[i] = NUMBER[(int)(2 + 2 * uniform())];                                               \
        PpGemm g = {.type = TYPE, .result = RESULT, .m = M, .n = N, .k = K, .a = a, .lda = K,      \
                    .b = b, .ldb = N, .c = c, .ldc = N};                                           \
        pp_gemm(&g);                                                                               \
        g.c = d;                                                                                   \
        pp_gemm_band(&g, PP_BAND_A, -M, 0);                                                        \
        return memcmp(c, d, sizeof c) == 0;                                                        \
    }
EXACT(sgemm, PP_F32, PP_F32, float, float, -2, -1, 0, 1, 2)
EXACT(bgemm, PP_BF16, PP_BF16, uint16_t, uint16_t, 0xc000, 0xbf80, 0, 0x3f80, 0x4000)
EXACT(bsgemm, PP_BF16, PP_F32, uint16_t, float, 0xc000, 0xbf80, 0, 0x3f80, 0x4000)
EXACT(hgemm, PP_F16, PP_F16, uint16_t, uint16_t, 0xc000, 0xbc00, 0, 0x3c00, 0x4000)
EXACT(hsgemm, PP_F16, PP_F32, uint16_t, float, 0xc000, 0xbc00, 0, 0x3c00, 0x4000)

int main(void)
{
    static const struct { int64_t below, above; } band[] = {
        {-1000, 0}, {0, 1000}, {-40, 0}, {-7, 5}, {-1000, 33}, {20, 50}, {-64, -32}};
    static const int64_t size[][3] = {{128, 96, 128}, {70, 75, 71}, {160, 33, 100}, {129, 128, 8}};
    double worst = 0;
    int good = 1, same = 1;
    for (int t = 0; t < 4; t++)
        for (int which = PP_BAND_A; which <= PP_BAND_C; which++)
            for (unsigned s = 0; s < sizeof size / sizeof *size; s++)
                for (unsigned b = 0; b < sizeof band / sizeof *band; b++) {
                    Case x = {which,      t & 1,         t >> 1,        band[b].below,
                              band[b].above, size[s][0], size[s][1], size[s][2]};
                    good &= agrees(&x, &worst, &same);
                }
    ok(good, "tiles outside the band are neither read nor written");
    ok(worst < 1e-5, "within it numbers are those of the whole product");
    printf("# worst %.3g, %s bits\n", worst, same ? "the same" : "other");
    ok(sgemm_is_exact() && bgemm_is_exact() && bsgemm_is_exact() &&
           hgemm_is_exact() && hsgemm_is_exact(),
       "every type");
    return tap_done();
}

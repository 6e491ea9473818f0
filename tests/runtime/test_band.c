/* pp_sgemm_band and its kin (runtime/device/cpu/band.c) against the whole product: the same numbers
   where the band's tiles are, nothing read or written elsewhere; causal masks, windows, bands off
   the diagonal, and sides that are no multiple of a tile. */
#include "runtime/api/pp.h"
#include "tests/share/tap.h"
#include "tests/share/uniform.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

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
static int agrees(const Case *s, double *worst, int *same, int *threads)
{
    int64_t lda = (s->ta ? s->m : s->k) + 3, ldb = (s->tb ? s->k : s->n) + 1, ldc = s->n + 2;
    size_t na = (size_t)((s->ta ? s->k : s->m) * lda), nb = (size_t)((s->tb ? s->n : s->k) * ldb),
           nc = (size_t)(s->m * ldc);
    float *a = malloc(na * 4), *b = malloc(nb * 4), *c = malloc(nc * 4), *za = malloc(na * 4),
          *zb = malloc(nb * 4), *zc = malloc(nc * 4), *t = malloc(4 * nc * 4);
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
        da[i] = (double)a[i];
    for (size_t i = 0; i < nb; i++)
        db[i] = (double)b[i];
    for (size_t i = 0; i < nc; i++)
        dc[i] = 7;
    pp_sgemm(s->ta, s->tb, s->m, s->n, s->k, 0.5f, za, lda, zb, ldb, 0, zc, ldc);
    pp_sgemm_band(s->which, s->below, s->above, s->ta, s->tb, s->m, s->n, s->k, 0.5f, a, lda, b,
                  ldb, 0, c, ldc);
    pp_dgemm_band(s->which, s->below, s->above, s->ta, s->tb, s->m, s->n, s->k, 0.5, da, lda, db,
                  ldb, 0, dc, ldc);
    int good = 1;
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < ldc; j++) {
            float x = c[i * ldc + j], y = zc[i * ldc + j];
            if (j >= s->n || (s->which == PP_BAND_C && !live(i, j, s->below, s->above))) {
                good &= x == 7 && dc[i * ldc + j] == 7;
                continue;
            }
            *same &= memcmp(&x, &y, sizeof x) == 0;
            *worst = fmax(*worst, fmax(fabs((double)x - (double)y),
                                       fabs(dc[i * ldc + j] - (double)y)));
            good &= x == x && dc[i * ldc + j] == dc[i * ldc + j];
        }
#ifdef _OPENMP
    const int64_t four[1] = {4}, none[1] = {0}, apart[1] = {(int64_t)nc};
    omp_set_num_threads(3);
    for (size_t i = 0; i < 4 * nc; i++)
        t[i] = 7;
    pp_sgemm_band_batched(s->which, s->below, s->above, s->ta, s->tb, s->m, s->n, s->k, 0.5f, a,
                          lda, b, ldb, 0, t, ldc, 1, four, none, none, apart);
    for (size_t i = 0; i < 4; i++)
        *threads &= memcmp(t + i * nc, c, nc * 4) == 0;
    omp_set_num_threads(1);
#endif
    (void)threads;
    free(a), free(b), free(c), free(za), free(zb), free(zc), free(t), free(da), free(db), free(dc);
    return good;
}

/* Heads in [2, 70, 3 heads * 4]: causal scores of each. */
static int batched(void)
{
    enum { B = 2, H = 3, S = 70, D = 4 };
    static float x[B * S * H * D], y[B * H * S * S];
    for (int i = 0; i < B * S * H * D; i++)
        x[i] = uniform();
    const int64_t count[2] = {B, H}, sx[2] = {S * H * D, D}, sy[2] = {H * S * S, S * S};
    pp_sgemm_band_batched(PP_BAND_C, 1 - S, 0, 0, 1, S, S, D, 1, x, H * D, x, H * D, 0, y, S, 2,
                          count, sx, sx, sy);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < S; i++)
                for (int j = 0; j <= i; j++) {
                    double s = 0;
                    for (int p = 0; p < D; p++)
                        s += (double)x[(b * S + i) * H * D + h * D + p] *
                             (double)x[(b * S + j) * H * D + h * D + p];
                    if (fabs(s - (double)y[((b * H + h) * S + i) * S + j]) > 1e-6)
                        return 0;
                }
    return 1;
}

/* Every type, in a batch, with whole numbers: no order of addition rounds, and bits are those of
   the whole product.  NUMBER: -2 to 2 in the type of A and B. */
#define EXACT(NAME, BAND, BATCHED, S, T, R, ...)                                                   \
    static int NAME##_is_exact(void)                                                               \
    {                                                                                              \
        enum { B = 3, M = 70, N = 65, K = 40 };                                                    \
        static const T NUMBER[] = {__VA_ARGS__};                                                   \
        static T a[B * M * K], b[B * K * N];                                                       \
        static R c[B * M * N], d[B * M * N];                                                       \
        const int64_t count[] = {B}, sa[] = {M * K}, sb[] = {K * N}, sc[] = {M * N};               \
        int same = 1;                                                                              \
        for (int64_t i = 0; i < B * M * K; i++)                                                    \
            a[i] = NUMBER[live(i / K % M, i % K, -M, 0) ? (int)(2 + 2 * uniform()) : 2];           \
        for (int64_t i = 0; i < B * K * N; i++)                                                    \
            b[i] = NUMBER[(int)(2 + 2 * uniform())];                                               \
        pp_##NAME##_batched(0, 0, M, N, K, (S)1, a, K, b, N, (S)0, c, N, 1, count, sa, sb, sc);    \
        BATCHED(PP_BAND_A, -M, 0, 0, 0, M, N, K, (S)1, a, K, b, N, (S)0, d, N, 1, count, sa, sb,   \
                sc);                                                                               \
        same &= memcmp(c, d, sizeof c) == 0;                                                       \
        memset(d, 0, sizeof d);                                                                    \
        BAND(PP_BAND_A, -M, 0, 0, 0, M, N, K, (S)1, a, K, b, N, (S)0, d, N);                       \
        return same && memcmp(c, d, sizeof *c * M * N) == 0;                                       \
    }
EXACT(sgemm, pp_sgemm_band, pp_sgemm_band_batched,
      float, float, float, -2, -1, 0, 1, 2)
EXACT(dgemm, pp_dgemm_band, pp_dgemm_band_batched,
      double, double, double, -2, -1, 0, 1, 2)
EXACT(bgemm, pp_bgemm_band, pp_bgemm_band_batched,
      float, uint16_t, uint16_t, 0xc000, 0xbf80, 0, 0x3f80, 0x4000)
EXACT(bsgemm, pp_bsgemm_band, pp_bsgemm_band_batched,
      float, uint16_t, float, 0xc000, 0xbf80, 0, 0x3f80, 0x4000)
EXACT(hgemm, pp_hgemm_band, pp_hgemm_band_batched,
      float, uint16_t, uint16_t, 0xc000, 0xbc00, 0, 0x3c00, 0x4000)
EXACT(hsgemm, pp_hsgemm_band, pp_hsgemm_band_batched,
      float, uint16_t, float, 0xc000, 0xbc00, 0, 0x3c00, 0x4000)

int main(void)
{
    static const struct { int64_t below, above; } band[] = {
        {-1000, 0}, {0, 1000}, {-40, 0}, {-7, 5}, {-1000, 33}, {20, 50}, {-64, -32}};
    static const int64_t size[][3] = {{128, 96, 128}, {70, 75, 71}, {160, 33, 100}, {129, 128, 8}};
    double worst = 0;
    int good = 1, same = 1, threads = 1;
    for (int t = 0; t < 4; t++)
        for (int which = PP_BAND_A; which <= PP_BAND_C; which++)
            for (unsigned s = 0; s < sizeof size / sizeof *size; s++)
                for (unsigned b = 0; b < sizeof band / sizeof *band; b++) {
                    Case x = {which,      t & 1,         t >> 1,        band[b].below,
                              band[b].above, size[s][0], size[s][1], size[s][2]};
                    good &= agrees(&x, &worst, &same, &threads);
                }
    ok(good, "tiles outside the band are neither read nor written");
    ok(worst < 1e-5, "within it numbers are those of the whole product");
    printf("# worst %.3g, %s bits\n", worst, same ? "the same" : "other");
    ok(threads, "and the same bits with several threads");
    ok(batched(), "a batch over strided heads");
    ok(sgemm_is_exact() && dgemm_is_exact() && bgemm_is_exact() && bsgemm_is_exact() &&
           hgemm_is_exact() && hsgemm_is_exact(),
       "every type");
    return tap_done();
}

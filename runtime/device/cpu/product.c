/*
 * product.c - matrix products as stages and the runtime ask for them (pp_gemm.h): batches, of which
 * threads share out the products where they are enough, and products in which one matrix counts only
 * in a band.  gemm.c and gemm_half.c have each product.  The cuts of a band follow from m, n, k and
 * the band alone, and so do the bits.
 */
#include "api/pp.h"
#include "core/team.h"
#include "device/cpu/gemm.h"

void pp_gemm(const PpGemm *given)
{
    const PpGemm all = pp_gemm_given(given), *const g = &all;
    const int64_t total = pp_gemm_count(g, g->dims);
    if (!g->type)
        gemm_refused("a product without a type");
    if (!g->type || g->m <= 0 || g->n <= 0 || total <= 0)
        return;
    const int most = team_most(),
              team = total < most || total < PARALLEL / (g->m * g->n * (g->k ? g->k : 1)) + 2 ? 1
                                                                                             : most;
    (void)team; /* built without OpenMP */
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t i = 0; i < total; i++) {
        const PpGemm q = pp_gemm_of(g, g->dims, i);
        if (g->type == PP_BF16 || g->type == PP_F16)
            gemm_half(&q);
        else
            gemm_one(&q);
    }
}

int gemm_after(const PpGemm *q, const After *after)
{
    const PpGemm one = pp_gemm_given(q);
    if (after->out && q->m > 0 && q->n > 0 && gemm_wide_after(&one, after))
        return 1;
    pp_gemm(q);
    return 0;
}

/* ---- bands ---- */

static int64_t down(int64_t x) { return x < 0 ? 0 : x / PP_TILE * PP_TILE; }
static int64_t up(int64_t x) { return x < 0 ? 0 : (x + PP_TILE - 1) / PP_TILE * PP_TILE; }

/* A tile row of op(A) meets the rows of op(B) from `first` up to `end`: the rest are zeros.  In
   op(B) and C tile columns have the band's rows, which are those of the band with its sides
   exchanged. */
void pp_gemm_band(const PpGemm *given, int which, int64_t below, int64_t above)
{
    const PpGemm all = pp_gemm_given(given), *const g = &all;
    const int rows = which == PP_BAND_A, sums = which != PP_BAND_C;
    const int64_t low = rows ? below : -above, high = rows ? above : -below;
    for (int64_t at = 0; at < (rows ? g->m : g->n); at += PP_TILE) {
        const int64_t first = down(at + low),
                      end = least(sums ? g->k : g->m, up(at + PP_TILE + high)),
                      live = end > first ? end - first : 0;
        if (!live && g->adds)
            continue;
        PpGemm q = pp_gemm_from(g, rows ? at : sums ? 0 : first, rows ? 0 : at, sums ? first : 0);
        *(rows ? &q.m : &q.n) = least(PP_TILE, rows ? q.m : q.n);
        *(sums ? &q.k : &q.m) = live;
        pp_gemm(&q);
    }
}

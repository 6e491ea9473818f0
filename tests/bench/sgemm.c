/*
 * sgemm.c [bf16] - the peak of one core: GFLOP/s of the runtime's own products, or of bf16, at n =
 * 1024, best of several calls. The benchmark divides by it, so both are measured on the same
 * machine in the same run; in time of the processor, so that others there count less.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/api/pp_half.h"
#include "tests/share/products.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    int half = argc > 1 && !strcmp(argv[1], "bf16");
    enum { N = 1024, CALLS = 40 };
    size_t bytes = (size_t)N * N * sizeof(float);
    float *a = aligned_alloc(64, bytes), *b = aligned_alloc(64, bytes),
          *c = aligned_alloc(64, bytes);
    uint16_t *ha = aligned_alloc(64, bytes / 2), *hb = aligned_alloc(64, bytes / 2),
             *hc = aligned_alloc(64, bytes / 2);
    if (!a || !b || !c || !ha || !hb || !hc)
        return 3;
    for (size_t i = 0; i < (size_t)N * N; i++) {
        a[i] = (float)(i % 7) - 3;
        b[i] = (float)(i % 5) - 2;
        c[i] = 0;
        ha[i] = pp_to_bf16(a[i]);
        hb[i] = pp_to_bf16(b[i]);
        hc[i] = 0;
    }
    double best = 0;
    for (int i = 0; i < CALLS; i++) {
        double t = now();
        if (half)
            bgemm(0, 0, N, N, N, 1, ha, N, hb, N, 0, hc, N);
        else
            sgemm(0, 0, N, N, N, 1, a, N, b, N, 0, c, N);
        double rate = 2.0 * N * N * N / (now() - t) * 1e-9;
        best = rate > best ? rate : best;
    }
    printf("%.1f\n", best);
    return 0;
}

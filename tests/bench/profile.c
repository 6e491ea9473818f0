/*
 * profile.c - linked into a pipeline by tests/bench/profile: where the processor's time of its
 * steps goes, product by product and kernel by kernel.
 *
 * Products of the runtime and its optimizer are wrapped (ld --wrap); the functions of stageN.c call
 * the hooks of -finstrument-functions.  Each call's seconds of its thread, without those of calls
 * below it, are kept under what was called: a product's sides, or a function's address.  At exit a
 * line for each of them goes to the file PROFILE names:
 *
 *     product NAME TRANSPOSED M N K BATCH   CALLS MEDIAN LEAST FLOPS
 *     function OFFSET                       CALLS MEDIAN LEAST
 *     runtime NAME                          CALLS MEDIAN LEAST
 *
 * Times are those of one call, in seconds; OFFSET is from the program's begin, as nm prints it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/pp.h"
#include "optim/optim.h"

enum { KEYS = 4096, SAMPLES = 2048, DEPTH = 64 };

typedef struct {
    char name[96]; /* first: what kind of line */
    const void *function;
    double flops;
    int64_t calls;
    float *seconds; /* of the last SAMPLES calls */
} Key;

typedef struct {
    double begin, below; /* thread's seconds; of them in calls from here */
} Frame;

static __thread Key *keys;
static __thread Frame frames[DEPTH];
static __thread int depth;
static __thread int in_product;

static Key *every[64]; /* of each thread */
static int n_every;

#define HIDDEN __attribute__((no_instrument_function))

HIDDEN static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

HIDDEN static Key *key_of(const char *name, const void *function)
{
    if (!keys) {
        keys = calloc(KEYS, sizeof *keys);
        int at = __atomic_fetch_add(&n_every, 1, __ATOMIC_RELAXED);
        if (!keys || at >= 64)
            abort();
        every[at] = keys;
    }
    uint64_t hash = (uint64_t)(uintptr_t)function * 0x9e3779b97f4a7c15u >> 20;
    for (const char *s = name; *s; s++)
        hash = (hash ^ (unsigned char)*s) * 0x100000001b3u;
    for (uint64_t i = hash;; i++) {
        Key *k = &keys[i % KEYS];
        if (!k->seconds) {
            k->seconds = malloc(SAMPLES * sizeof *k->seconds);
            if (!k->seconds)
                abort();
            snprintf(k->name, sizeof k->name, "%s", name);
            k->function = function;
        }
        if (k->function == function && !strcmp(k->name, name))
            return k;
    }
}

HIDDEN static void enter(void)
{
    if (depth < DEPTH)
        frames[depth] = (Frame){now(), 0};
    depth++;
}

HIDDEN static void leave(const char *name, const void *function, double flops)
{
    double end = now();
    if (--depth >= DEPTH)
        return;
    double all = end - frames[depth].begin;
    Key *k = key_of(name, function);
    k->seconds[k->calls++ % SAMPLES] = (float)(all - frames[depth].below);
    k->flops = flops;
    if (depth)
        frames[depth - 1].below += all;
}

HIDDEN void __cyg_profile_func_enter(void *function, void *site);
HIDDEN void __cyg_profile_func_exit(void *function, void *site);
void __cyg_profile_func_enter(void *function, void *site)
{
    (void)function, (void)site;
    enter();
}
void __cyg_profile_func_exit(void *function, void *site)
{
    (void)site;
    leave("function", function, 0);
}

/* ---- products ---- */

HIDDEN static void product_begin(void)
{
    if (!in_product++)
        enter();
}

static const char *const type_name[] = {[PP_F32] = "s", [PP_F64] = "d", [PP_BF16] = "b", [PP_F16] = "h"};

HIDDEN static void product_end(const PpGemm *g, const char *how, double flops)
{
    char text[96];
    int64_t batch = 1;
    if (--in_product)
        return;
    for (int d = 0; d < g->dims; d++)
        batch *= g->count[d];
    snprintf(text, sizeof text, "product %s%sgemm%s %c%c %lld %lld %lld %lld", type_name[g->type],
             g->result && g->result != g->type ? type_name[g->result] : "", how, g->ta ? 'T' : 'N',
             g->tb ? 'T' : 'N', (long long)g->m, (long long)g->n, (long long)g->k, (long long)batch);
    leave(text, NULL, flops * (double)batch);
}

/* Operations of what is not left out (pp_gemm_band()). */
HIDDEN static double band_flops(const PpGemm *g, int which, int64_t below, int64_t above)
{
    int64_t rows = which == PP_BAND_B ? g->k : g->m, columns = which == PP_BAND_A ? g->k : g->n,
            live = 0;
    for (int64_t i = 0; i < rows; i += PP_TILE)
        for (int64_t j = 0; j < columns; j += PP_TILE)
            if (j + PP_TILE - 1 - i >= below && j - (i + PP_TILE - 1) <= above)
                live += (rows - i < PP_TILE ? rows - i : PP_TILE) *
                        (columns - j < PP_TILE ? columns - j : PP_TILE);
    return 2.0 * (double)live *
           (double)(which == PP_BAND_A ? g->n : which == PP_BAND_B ? g->m : g->k);
}

void __real_pp_gemm(const PpGemm *g);
void __wrap_pp_gemm(const PpGemm *g);
void __wrap_pp_gemm(const PpGemm *g)
{
    product_begin();
    __real_pp_gemm(g);
    product_end(g, g->bias ? "_bias" : "", 2.0 * (double)g->m * (double)g->n * (double)g->k);
}

void __real_pp_gemm_band(const PpGemm *g, int which, int64_t below, int64_t above);
void __wrap_pp_gemm_band(const PpGemm *g, int which, int64_t below, int64_t above);
void __wrap_pp_gemm_band(const PpGemm *g, int which, int64_t below, int64_t above)
{
    static const char *const text[] = {"", "_band_a", "_band_b", "_band_c"};
    product_begin();
    __real_pp_gemm_band(g, which, below, above);
    product_end(g, text[which], band_flops(g, which, below, above));
}

/* ---- what the runtime itself computes between stages ---- */

#define WRAPPED(R, NAME, TAKES, GIVES)                                                             \
    R __real_##NAME TAKES;                                                                         \
    R __wrap_##NAME TAKES;                                                                         \
    R __wrap_##NAME TAKES
WRAPPED(void, optim_cpu_update, (const DeviceParam *list, int n, const DeviceUpdate *u), )
{
    enter();
    __real_optim_cpu_update(list, n, u);
    leave("runtime optim_cpu_update", NULL, 0);
}
WRAPPED(double, optim_cpu_sum_squares, (const void *p, int64_t n, int dtype), )
{
    enter();
    double sum = __real_optim_cpu_sum_squares(p, n, dtype);
    leave("runtime optim_cpu_sum_squares", NULL, 0);
    return sum;
}
WRAPPED(void, optim_cpu_add, (void *to, const void *from, int64_t n, int dtype), )
{
    enter();
    __real_optim_cpu_add(to, from, n, dtype);
    leave("runtime optim_cpu_add", NULL, 0);
}
WRAPPED(void, optim_cpu_round, (uint16_t * to, const float *from, int64_t n, int type), )
{
    enter();
    __real_optim_cpu_round(to, from, n, type);
    leave("runtime optim_cpu_round", NULL, 0);
}
WRAPPED(void *, memcpy, (void *to, const void *from, size_t n), )
{
    if (n < 65536)
        return __real_memcpy(to, from, n);
    enter();
    void *p = __real_memcpy(to, from, n);
    leave("runtime memcpy", NULL, 0);
    return p;
}
WRAPPED(void *, memset, (void *to, int byte, size_t n), )
{
    if (n < 65536)
        return __real_memset(to, byte, n);
    enter();
    void *p = __real_memset(to, byte, n);
    leave("runtime memset", NULL, 0);
    return p;
}

/* ---- at the end ---- */

HIDDEN static int by_seconds(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

HIDDEN __attribute__((destructor)) static void report(void)
{
    extern const char __executable_start[];
    FILE *f = getenv("PROFILE") ? fopen(getenv("PROFILE"), "w") : NULL;
    if (!f)
        return;
    for (int t = 0; t < n_every; t++)
        for (Key *k = every[t]; k < every[t] + KEYS; k++) {
            if (!k->seconds)
                continue;
            int64_t n = k->calls < SAMPLES ? k->calls : SAMPLES;
            qsort(k->seconds, (size_t)n, sizeof *k->seconds, by_seconds);
            fputs(k->name, f);
            if (k->function)
                fprintf(f, " %llx",
                        (unsigned long long)((const char *)k->function - __executable_start));
            fprintf(f, " %lld %.9f %.9f", (long long)k->calls, (double)k->seconds[n / 2],
                    (double)k->seconds[0]);
            if (k->flops > 0)
                fprintf(f, " %.0f", k->flops);
            fputc('\n', f);
        }
    fclose(f);
}

/*
 * gemm_arithmetic.c - what the bits of products depend on beside their operands: out, one line.
 * gemm.c and its relatives take their road by what the program was compiled for; libraries by the
 * CPU too, and by variables of the environment (OPENBLAS_CORETYPE, DNNL_MAX_CPU_ISA), which is
 * asked of the library itself where it can say.
 */
#include "device/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

#ifdef PP_DNNL
#include <dnnl.h>
#endif
#if defined PP_BLIS
#include <blis.h>
#elif defined PP_OPENBLAS
#include <cblas.h>
#endif

static void add(char *to, size_t n, const char *text)
{
    size_t at = strlen(to);
    snprintf(to + at, n - at, "%s%s", at ? ", " : "", text);
}

static const char *compiled_for(void)
{
#if defined __AVX512BF16__
    return "instructions of AVX-512 with BF16";
#elif defined __AVX512F__
    return "instructions of AVX-512";
#elif defined __AVX2__
    return "instructions of AVX2";
#elif defined __AVX__
    return "instructions of AVX";
#elif defined __x86_64__
    return "instructions of SSE2";
#elif defined __ARM_FEATURE_SVE
    return "instructions of SVE";
#else
    return "instructions of any CPU";
#endif
}

#if !defined PP_OPENBLAS && !defined PP_BLIS &&                                                    \
    (defined PP_CBLAS || defined PP_MKL || defined PP_ARMPL)
/* Of libraries that choose their code by the CPU and do not say which. */
#define ASKS_CPU
static const char *cpu_has(void)
{
#if defined __x86_64__ && defined __GNUC__
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") ? " on AVX-512"
           : __builtin_cpu_supports("avx2")  ? " on AVX2"
                                             : " on SSE2";
#else
    return "";
#endif
}
#endif

static void add_library(char *to, size_t n)
{
    char text[120] = "";
#ifdef PP_DNNL
    const dnnl_version_t *v = dnnl_version();
#ifdef __x86_64__
    snprintf(text, sizeof text, "oneDNN %d.%d.%d (code %#x)", v->major, v->minor, v->patch,
             (unsigned)dnnl_get_effective_cpu_isa());
#else
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
#endif
    add(to, n, text);
#endif
#if defined PP_OPENBLAS
    const char *config = openblas_get_config(), *end = strchr(config, ' ');
    end = end ? strchr(end + 1, ' ') : NULL;
    snprintf(text, sizeof text, "%.*s (code for %s)", end ? (int)(end - config) : 40, config,
             openblas_get_corename());
    add(to, n, text);
#elif defined PP_BLIS
    snprintf(text, sizeof text, "BLIS %s (code for %s)", bli_info_get_version_str(),
             bli_arch_string(bli_arch_query_id()));
    add(to, n, text);
#elif defined ASKS_CPU
    snprintf(text, sizeof text, "%s%s", gemm_library(), cpu_has());
    add(to, n, text);
#endif
    (void)text, (void)to, (void)n;
}

void gemm_arithmetic(char *to, size_t n)
{
    to[0] = 0;
    add(to, n, compiled_for());
    add_library(to, n);
}

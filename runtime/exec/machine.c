/*
 * machine.c - before anything else: does this CPU have the instructions that the program was
 * compiled for?  ARCH=native on a login node makes programs that end with "Illegal instruction" on
 * older compute nodes; here they say what is missing and what to do.
 *
 * It runs as the first constructor, and is itself compiled for any CPU of the architecture.  A
 * program that links an installed runtime has it twice: with the flags of the runtime and, under
 * another name, with those of its stages.
 */
#include "exec.h"

#include <stdio.h>
#include <stdlib.h>

#if defined __x86_64__ && defined __GNUC__
__attribute__((target("arch=x86-64"))) static void need(int has, const char *what)
{
    if (has)
        return;
    /* not fprintf, which is an inline function of the program's target under _FORTIFY_SOURCE */
    fputs("pipeline: error: this CPU has no ", stderr);
    fputs(what, stderr);
    fputs(", for which the program was built\n"
          "hint: build it on this machine, or for what all machines have: make ARCH=x86-64-v3 "
          "(AVX2) or ARCH= (any)\n",
          stderr);
    _Exit(PP_ERR_IO);
}

__attribute__((constructor(101), target("arch=x86-64"))) void pp_machine_check(void)
{
    __builtin_cpu_init();
    need(__builtin_cpu_supports("sse2"), "SSE2");
#ifdef __FMA4__
    need(__builtin_cpu_supports("fma4"), "FMA4");
#endif
#ifdef __SSE4_2__
    need(__builtin_cpu_supports("sse4.2"), "SSE4.2");
#endif
#ifdef __AVX__
    need(__builtin_cpu_supports("avx"), "AVX");
#endif
#ifdef __AVX2__
    need(__builtin_cpu_supports("avx2"), "AVX2");
#endif
#ifdef __FMA__
    need(__builtin_cpu_supports("fma"), "FMA");
#endif
#ifdef __BMI2__
    need(__builtin_cpu_supports("bmi2"), "BMI2");
#endif
#ifdef __AVX512F__
    need(__builtin_cpu_supports("avx512f"), "AVX-512");
#endif
#ifdef __AVX512BW__
    need(__builtin_cpu_supports("avx512bw"), "AVX-512 BW");
#endif
#ifdef __AVX512VBMI__
    need(__builtin_cpu_supports("avx512vbmi"), "AVX-512 VBMI");
#endif
#ifdef __AVX512BF16__
    need(__builtin_cpu_supports("avx512bf16"), "AVX-512 BF16");
#endif
}
#else
void pp_machine_check(void) {}
#endif

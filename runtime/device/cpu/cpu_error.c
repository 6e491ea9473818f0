/*
 * cpu_error.c - the first failure of a library on the CPU.  Products return nothing to generated code, and the threads they run on
 * are OpenMP's: the runtime asks after each action, as it does on a device.
 */
#include "device/cpu/cpu.h"

static const char *first; /* atomic; NULL: none */

void cpu_note(const char *why)
{
    const char *none = 0;
    __atomic_compare_exchange_n(&first, &none, why, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

const char *cpu_error(void)
{
    const char *why = __atomic_load_n(&first, __ATOMIC_RELAXED);
    return why ? why : "";
}

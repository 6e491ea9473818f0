/*
 * cpu.h - what the CPU's files share: the first failure of a library.
 */
#ifndef PP_CPU_H
#define PP_CPU_H

/* cpu_error.c: of the process, for products run on threads that belong to no rank. */
void cpu_note(const char *why); /* a text that stays */
const char *cpu_error(void);    /* "": none */

#endif

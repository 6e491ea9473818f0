/*
 * failure.c - what went wrong on a thread, which is a rank's: the first failure is kept as a
 * sentence and printed by one rank.
 */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local char failure[8400];
static _Thread_local PpStatus status;  /* with which it failed */
static _Thread_local int told; /* by this rank or, all having agreed, by another */

PpStatus pp_fail(PpStatus s, const char *fmt, ...)
{
    if (!failure[0]) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(failure, sizeof failure, fmt, ap);
        va_end(ap);
        status = s;
    }
    return s;
}

PpStatus pp_no_memory(void) { return pp_fail(PP_ERR_IO, "out of memory"); }

const char *pp_failure_text(void) { return failure[0] ? failure : "unknown failure"; }

void pp_failure_print(void)
{
    if (!told)
        fprintf(stderr, "pipeline: %s%s\n%s", status == PP_SAVED ? "" : "error: ", pp_failure_text(),
                status == PP_ERR_USAGE ? "Try 'pipeline --help' for more information.\n" : "");
    told = 1;
}

void pp_failure_forget(void) { failure[0] = 0; }
void pp_failure_tell(void) { told = 1; }
int pp_failure_told(void) { return told; }

int pp_failure_first(void)
{
    static int spoken;
    return !__atomic_exchange_n(&spoken, 1, __ATOMIC_SEQ_CST);
}

/* In a signal handler, on whichever thread: other ranks wait for nothing that this one could give.
 */
void pp_failure_lost(const char *text)
{
    static const char head[] = "pipeline: error: ";
    static int spoken;
    while (__atomic_exchange_n(&spoken, 1, __ATOMIC_SEQ_CST))
        pause();
    (void)!write(STDERR_FILENO, head, sizeof head - 1);
    (void)!write(STDERR_FILENO, text, strlen(text));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(PP_ERR_IO);
}

void pp_trail(const char *file, int line, const char *call, PpStatus s)
{
    static int debug = -1;
    if (__atomic_load_n(&debug, __ATOMIC_RELAXED) < 0) {
        const char *e = getenv("PP_LOG");
        __atomic_store_n(&debug, e && !strcmp(e, "debug"), __ATOMIC_RELAXED);
    }
    if (__atomic_load_n(&debug, __ATOMIC_RELAXED) > 0)
        fprintf(stderr, "pipeline: %s:%d: %s: status %d\n", file, line, call, (int)s);
}

/*
 * tap.h - TAP output for the unit tests: ok(), plan at the end, exit status.
 */
#ifndef TAP_H
#define TAP_H

#include <stdarg.h>
#include <stdio.h>

static int tap_run, tap_failed;

__attribute__((format(printf, 2, 3), unused)) static int ok(int pass, const char *fmt, ...)
{
    va_list ap;
    printf("%sok %d - ", pass ? "" : "not ", ++tap_run);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    tap_failed += !pass;
    return pass;
}

/* At the end of main: return tap_done(); */
__attribute__((unused)) static int tap_done(void)
{
    printf("1..%d\n", tap_run);
    return tap_failed > 0;
}

#endif

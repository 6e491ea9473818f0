/* usage.c - a command line that is wrong: what is, and where help is. */
#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char report_to[] = "\n" PPSPLIT_REPORT;

void bad_usage(const char *command, const char *fmt, ...)
{
    const char *sub = strchr(command, ' ');
    va_list ap;
    fprintf(stderr, "ppsplit: %s%s", sub ? sub + 1 : "", sub ? ": " : "");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry '%s --help' for more information.\n", command);
    exit(EXIT_USAGE);
}

static void open_operand(void *path)
{
    if (access(path, F_OK))
        diag_fatal(EXIT_IO, WHERE_FILE(path), "cannot open: %s", strerror(errno));
}

void operands_there(uint32_t n, const char *const *path)
{
    for (uint32_t i = 0; i < n; i++)
        if (diag_run(open_operand, (void *)(uintptr_t)path[i]))
            exit(EXIT_IO);
}

uint32_t one_of(const char *command, const char *option, const char *word,
                const char *const *words, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(word, words[i]))
            return i;
    fprintf(stderr, "ppsplit: invalid argument '%s' for '--%s'\nValid arguments are:", word,
            option);
    for (uint32_t i = 0; i < n; i++)
        fprintf(stderr, " %s", words[i]);
    fprintf(stderr, "\nTry '%s --help' for more information.\n", command);
    exit(EXIT_USAGE);
}

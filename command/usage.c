/* usage.c - a command line that is wrong: what is, and where help is. */
#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char report_to[] = "\n" PPSPLIT_REPORT;

void bad_usage(const char *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    option_usage(command, fmt, ap);
    va_end(ap);
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
    char all[400] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!strcmp(word, words[i]))
            return i;
        if (at < sizeof all)
            at += (size_t)snprintf(all + at, sizeof all - at, " %s", words[i]);
    }
    bad_usage(command, "invalid argument '%s' for '--%s'\nValid arguments are:%s", word, option,
              all);
}

static NORETURN void show_help(const Arguments *a, const OptionName *names)
{
    fputs(a->head, stdout);
    putchar('\n');
    option_help(names, a->n + 1, stdout);
    printf("\n%s%s", a->tail, report_to);
    exit(0);
}

Strings read_arguments(const Arguments *a, void *of, uint32_t most, Arena *arena, int argc,
                       char **argv)
{
    enum { MOST = 16 };
    OptionName names[MOST] = {0};
    Strings operand = {0};
    INSIST(a->n < MOST);
    for (int i = 0; i < a->n; i++)
        names[i] = a->row[i].is;
    names[a->n] = (OptionName){"help", NULL, 'h', "this text"};
    OptionReader r = option_reader(argc, argv, names, a->n + 1);
    for (int k; (k = option_next(&r)) != OPTION_END;)
        if (k == OPTION_WRONG)
            bad_usage(a->name, "%s", r.wrong);
        else if (k == OPTION_OPERAND && operand.n == most)
            bad_usage(a->name, "unexpected operand '%s'", r.value);
        else if (k == OPTION_OPERAND)
            vec_push(arena, &operand, r.value);
        else if (k == a->n)
            show_help(a, names);
        else if (r.value)
            *(const char **)(void *)((char *)of + a->row[k].at) = r.value;
        else
            *(bool *)((char *)of + a->row[k].at) = true;
    return operand;
}

/* options.c - in: a command line and the table of its options; out: what it says, one option or
 * operand at a time. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nearest.h"

enum { MAX_OPTIONS = 128 };

OptionReader option_reader(int argc, char *const *argv, const OptionName *table, int n)
{
    return (OptionReader){.argv = argv,
                          .table = table,
                          .argc = argc,
                          .n = n < MAX_OPTIONS ? n : MAX_OPTIONS,
                          .at = 1};
}

static int unknown(OptionReader *r)
{
    const char *names[MAX_OPTIONS];
    for (int i = 0; i < r->n; i++)
        names[i] = r->table[i].name;
    const char *name = r->unknown, *near = nearest_name(name, names, (size_t)r->n);
    if (near)
        snprintf(r->wrong, sizeof r->wrong, "unrecognized option '--%s'; did you mean '--%s'?",
                 name, near);
    else
        snprintf(r->wrong, sizeof r->wrong, "unrecognized option '--%s'", name);
    return OPTION_WRONG;
}

/* The row of a name, whole or its unambiguous beginning. */
static int find(OptionReader *r, const char *word, int length)
{
    int found = -1, other = -1;
    for (int i = 0; i < r->n; i++) {
        const char *name = r->table[i].name;
        if (!name || strncmp(name, word, (size_t)length) != 0)
            continue;
        if (!name[length])
            return i;
        *(found < 0 ? &found : &other) = i;
    }
    snprintf(r->unknown, sizeof r->unknown, "%.*s", length, word);
    if (found >= 0 && other < 0 && length > 0)
        return found;
    if (found < 0 || length == 0)
        return unknown(r);
    snprintf(r->wrong, sizeof r->wrong, "option '--%s' is ambiguous: '--%s' or '--%s'?", r->unknown,
             r->table[found].name, r->table[other].name);
    return OPTION_WRONG;
}

/* The value of option k: the rest of its word, or the next word.  Of an empty one, as a variable
 * that is not set makes it, a file or a name could not be told from none. */
static int take_value(OptionReader *r, int k, const char *rest)
{
    if (!rest && r->at < r->argc)
        rest = r->argv[r->at++];
    r->value = rest;
    if (rest && *rest)
        return k;
    snprintf(r->wrong, sizeof r->wrong, "option '--%s' needs a value: %s", r->table[k].name,
             r->table[k].value);
    return OPTION_WRONG;
}

static int long_option(OptionReader *r, const char *word)
{
    const char *equals = strchr(word, '=');
    int k = find(r, word, (int)(equals ? (size_t)(equals - word) : strlen(word)));
    if (k < 0)
        return k;
    if (r->table[k].value)
        return take_value(r, k, equals ? equals + 1 : NULL);
    if (!equals)
        return k;
    snprintf(r->wrong, sizeof r->wrong, "option '--%s' takes no value", r->table[k].name);
    return OPTION_WRONG;
}

static int letter(OptionReader *r)
{
    char c = *r->letters++;
    const char *rest = *r->letters ? r->letters : NULL;
    if (!rest)
        r->letters = NULL;
    for (int k = 0; k < r->n; k++)
        if (r->table[k].letter == c) {
            if (!r->table[k].value)
                return k;
            r->letters = NULL;
            return take_value(r, k, rest);
        }
    snprintf(r->wrong, sizeof r->wrong, "invalid option -- '%c'", c);
    return OPTION_WRONG;
}

int option_next(OptionReader *r)
{
    r->value = NULL;
    r->unknown[0] = 0;
    if (r->letters)
        return letter(r);
    if (r->at >= r->argc)
        return OPTION_END;
    const char *word = r->argv[r->at++];
    if (r->operands_only || word[0] != '-' || !word[1]) {
        r->value = word;
        return OPTION_OPERAND;
    }
    if (word[1] != '-') {
        r->letters = word + 1;
        return letter(r);
    }
    if (word[2])
        return long_option(r, word + 2);
    r->operands_only = 1;
    return option_next(r);
}

void option_help_row(const char *left, const char *help, FILE *f)
{
    enum { LEFT = 30, WIDTH = 79 };
    int at = fprintf(f, "  %-*s", LEFT - 3, left);
    if (at > LEFT - 1)
        at = fprintf(f, "\n%*s", LEFT - 1, "") - 1;
    while (*help) {
        int n = (int)strcspn(help, " ");
        if (at + 1 + n > WIDTH)
            at = fprintf(f, "\n%*s", LEFT - 1, "") - 1;
        at += fprintf(f, " %.*s", n, help);
        help += n + (help[n] == ' ');
    }
    fputc('\n', f);
}

void option_help(const OptionName *table, int n, FILE *f)
{
    char left[128];
    for (int i = 0; i < n; i++) {
        const OptionName *o = &table[i];
        const char c = o->letter, letter[] = {c ? '-' : ' ', c ? c : ' ', c ? ',' : ' ', 0};
        if (!o->help)
            continue;
        if (!o->name) {
            fprintf(f, "\n%s\n", o->help);
            continue;
        }
        snprintf(left, sizeof left, "%s --%s%s%s", letter, o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        option_help_row(left, o->help, f);
    }
}

void option_usage(const char *command, const char *fmt, va_list ap)
{
    fprintf(stderr, "%s: error: ", command);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\nTry '%s --help' for more information.\n", command);
}

int option_bytes(const char *text, int64_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    double n = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end == 'k' ? 'K' : *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        n *= 1024;
    end += unit != NULL;
    if (end == text || *end || !(n >= 1) || n > 1e18)
        return 0;
    *bytes = (int64_t)n;
    return 1;
}

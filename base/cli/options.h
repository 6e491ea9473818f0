/*
 * options.h - a command line in GNU's manner, read word by word against a table: --name=value,
 * --name value, unambiguous beginnings of names, -o value, -ovalue, letters without values in one
 * word, operands anywhere, and -- before operands that begin with a dash.
 *
 *     OptionReader r = option_reader(argc, argv, table, n);
 *     for (int k; (k = option_next(&r)) != OPTION_END;)
 *         if (k == OPTION_WRONG) ...r.wrong...
 *         else if (k == OPTION_OPERAND) ...r.value...
 *         else ...table[k], r.value...
 */
#ifndef PP_OPTIONS_H
#define PP_OPTIONS_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    const char *name;  /* without the dashes; NULL: this row is passed over */
    const char *value; /* what its value is called, "NAME=FILE"; NULL: it takes none */
    char letter;       /* -o, or 0 */
    const char *help;  /* what --help says of it; of a row without a name: a title */
} OptionName;

enum { OPTION_END = -1, OPTION_OPERAND = -2, OPTION_WRONG = -3 };

typedef struct {
    const char *value; /* of the option just read, or NULL; or the operand */
    char wrong[256];   /* OPTION_WRONG: what is wrong, and perhaps what was meant */
    char unknown[64];  /* a long option's name as written, where no row has it exactly; else "" */
    /* private */
    char *const *argv;
    const OptionName *table;
    int argc, n, at;
    const char *letters;                                /* the rest of a word such as -abc */
    int operands_only;
} OptionReader;

OptionReader option_reader(int argc, char *const *argv, const OptionName *table, int n);
int option_next(OptionReader *r); /* a row of the table, or one of the above */
/* Prints the rows that have a help: names on the left, sentences beside them, in lines as long as a
 * terminal's.  option_help_row(): one, of a word that is no option. */
void option_help(const OptionName *table, int n, FILE *f);
void option_help_row(const char *left, const char *help, FILE *f);
/* Prints "COMMAND: error: ..." and where its help is. */
void option_usage(const char *command, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
/* Reads a number of bytes, which may end in K, M, G or T (steps of 1024), such as 24G; 0: the text
 * is no such number. */
int option_bytes(const char *text, int64_t *bytes);

#endif

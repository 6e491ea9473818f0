/* nearest.c - Levenshtein's distance, one row of its table at a time; of longer names the first 63
 * bytes count.  Names that are alike but for numbers are compared by these: of a model that ends
 * with h.3, h.7 meant that one and not h.0, and h.12 of one that ends with h.9 meant that. */
#include "nearest.h"

#include <ctype.h>
#include <float.h>
#include <stdio.h>
#include <string.h>

enum { CAP = 63 };

static size_t least(size_t a, size_t b, size_t c)
{
    return a < b ? (a < c ? a : c) : b < c ? b : c;
}

static size_t distance(const char *a, const char *b)
{
    size_t row[CAP + 1], n = strnlen(a, CAP), m = strnlen(b, CAP);
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t above = row[j];
            int differ = tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]);
            row[j] = least(row[j - 1] + 1, above + 1, diagonal + (size_t)differ);
            diagonal = above;
        }
    }
    return row[m];
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static double read_number(const char **at)
{
    double n = 0;
    while (is_digit(**at))
        n = 10 * n + (*(*at)++ - '0');
    return n;
}

/* In how many numbers two names differ that are alike but for these, and how far these are apart;
 * -1: they are not alike. */
static int other_numbers(const char *a, const char *b, double *apart)
{
    int differ = 0;
    *apart = 0;
    while (*a || *b) {
        if (is_digit(*a) && is_digit(*b)) {
            double x = read_number(&a), y = read_number(&b);
            differ += x != y;
            *apart += x > y ? x - y : y - x;
        } else if (tolower((unsigned char)*a++) != tolower((unsigned char)*b++)) {
            return -1;
        }
    }
    return differ;
}

const char *nearest_name(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t limit = strlen(word) / 3 + 2;
    double best_apart = 0;
    for (size_t i = 0; i < n; i++) {
        double apart;
        if (!names[i])
            continue;
        int numbers = other_numbers(word, names[i], &apart);
        size_t d = numbers < 0 ? distance(word, names[i]) : (size_t)numbers;
        if (numbers < 0)
            apart = DBL_MAX;
        if (d < limit || (best && d == limit && apart < best_apart)) {
            limit = d;
            best = names[i];
            best_apart = apart;
        }
    }
    return best;
}

void nearest_text(const char *word, const char *const *names, size_t n, char *text, size_t size)
{
    const char *meant = nearest_name(word, names, n);
    size_t at = 0;
    if (meant) {
        (void)snprintf(text, size, "; did you mean '%s'?", meant);
        return;
    }
    for (size_t i = 0; i < n && at < size; i++) {
        const char *before = i > 0 ? ", " : n > 1 ? "; there are " : "; there is ";
        int k = snprintf(text + at, size - at, "%s'%s'", before, names[i]);
        at = k < 0 ? size : at + (size_t)k;
    }
    if (n == 0 || at >= size)
        (void)snprintf(text, size, "; --help lists them");
}

/*
 * rates_file.c - small files of NAME=NUMBER, as --rates and --machine read them: the whole text, and
 * a word of it.
 */
#include <string.h>

#include "auto.h"

const char *rates_word(Arena *a, const char *text, size_t n)
{
    static const char space[] = " \t\r";
    for (; n > 0 && strchr(space, *text); n--)
        text++;
    while (n > 0 && strchr(space, text[n - 1]))
        n--;
    return arena_strndup(a, text, n);
}

const char *rates_file(const char *path, Arena *a)
{
    enum { MOST = 1 << 16 };
    char *text = arena_alloc(a, MOST + 1);
    FILE *f = fopen(path, "r");
    if (!f)
        return NULL;
    file_note_read(path);
    size_t n = fread(text, 1, MOST, f);
    bool whole = !ferror(f) && feof(f) && strlen(text) == n;
    fclose(f);
    if (!whole)
        diag_fatal(EXIT_IO, WHERE_FILE(path), "this is not a small text file");
    return text;
}

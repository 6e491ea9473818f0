/*
 * escape.c - a model's strings in printable form.
 */
#include <stdio.h>
#include <string.h>

#include "escape.h"

/* Bytes that are no printable UTF-8 become \xNN; so no name from a model can move a terminal's
 * cursor. */
static size_t utf8_length(const unsigned char *s)
{
    size_t n = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    if (s[0] >= 0xf5)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90) ||  /* longer than need be */
        (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf4 && s[1] >= 0x90))  /* no characters */
        return 0;
    if (n == 2 && s[0] == 0xc2 && s[1] < 0xa0)                     /* C1 control characters */
        return 0;
    return n;
}

void escape_into(char *out, size_t size, const char *s)
{
    size_t o = 0;
    for (const unsigned char *p = (const unsigned char *)s; *p && o + 8 < size;) {
        size_t n = *p >= 0x20 && *p < 0x7f ? 1 : *p >= 0x80 ? utf8_length(p) : 0;
        if (n == 0) {
            o += (size_t)snprintf(out + o, size - o, "\\x%02x", *p++);
            continue;
        }
        memcpy(out + o, p, n);
        o += n;
        p += n;
    }
    out[o] = '\0';
}

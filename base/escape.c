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

/* Characters that are not seen, or turn around how the others are read (Cf, and the separators of
 * lines): a name with them is shown as another, or a comment's end before where it is. */
static bool is_invisible(const unsigned char *s, size_t n)
{
    static const uint32_t range[][2] = {
        {0xad, 0xad},       {0x34f, 0x34f},     {0x600, 0x605},     {0x61c, 0x61c},
        {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},
        {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},
        {0x2028, 0x202e},   {0x2060, 0x206f},   {0x3164, 0x3164},   {0xfe00, 0xfe0f},
        {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},   {0x110bd, 0x110bd},
        {0x110cd, 0x110cd}, {0x13430, 0x1345f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
        {0xe0000, 0xe0fff},
    };
    uint32_t c = n == 2 ? s[0] & 0x1fu : n == 3 ? s[0] & 0xfu : s[0] & 7u;
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3fu);
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c >= range[i][0] && c <= range[i][1])
            return true;
    return false;
}

void escape_into(char *out, size_t size, const char *s)
{
    size_t o = 0;
    for (const unsigned char *p = (const unsigned char *)s; *p && o + 8 < size;) {
        size_t n = *p >= 0x20 && *p < 0x7f ? 1 : *p >= 0x80 ? utf8_length(p) : 0;
        if (n > 1 && is_invisible(p, n))
            n = 0;
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

/*
 * json.c - JSON, piece by piece: the caller knows what it wants, and walks over the rest.
 */
#include "json.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int json_bad(Json *j, const char *fmt, ...)
{
    if (!j->bad) {
        char text[256];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        snprintf(j->err, j->nerr, "header, byte %td: %s", j->p - j->start, text);
    }
    j->bad = 1;
    return -1;
}

void json_space(Json *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\r' || *j->p == '\t'))
        j->p++;
}

int json_char(Json *j, char c)
{
    json_space(j);
    if (j->p < j->end && *j->p == c) {
        j->p++;
        return 1;
    }
    return 0;
}

int json_expect(Json *j, char c) { return json_char(j, c) ? 0 : json_bad(j, "'%c' expected", c); }

static int json_hex4(Json *j, uint32_t *out)
{
    *out = 0;
    if (j->end - j->p < 4)
        return json_bad(j, "short \\u escape");
    for (int i = 0; i < 4; i++) {
        char c = *j->p++;
        uint32_t d = c >= '0' && c <= '9'                 ? (uint32_t)(c - '0')
                     : (c | 32) >= 'a' && (c | 32) <= 'f' ? (uint32_t)((c | 32) - 'a' + 10)
                                                          : 16;
        if (d == 16)
            return json_bad(j, "bad \\u escape");
        *out = *out * 16 + d;
    }
    return 0;
}

static size_t utf8_put(char *o, uint32_t c)
{
    if (c < 0x80)
        return o[0] = (char)c, 1;
    if (c < 0x800)
        return o[0] = (char)(0xc0 | c >> 6), o[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000)
        return o[0] = (char)(0xe0 | c >> 12), o[1] = (char)(0x80 | (c >> 6 & 63)),
               o[2] = (char)(0x80 | (c & 63)), 3;
    o[0] = (char)(0xf0 | c >> 18);
    o[1] = (char)(0x80 | (c >> 12 & 63));
    o[2] = (char)(0x80 | (c >> 6 & 63));
    o[3] = (char)(0x80 | (c & 63));
    return 4;
}

static int json_escape(Json *j, char *out, size_t *n)
{
    char c = j->p < j->end ? *j->p++ : 0;
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        out[(*n)++] = to[at - from];
        return 0;
    }
    if (c != 'u')
        return json_bad(j, "unknown escape");
    uint32_t u, low;
    if (json_hex4(j, &u))
        return -1;
    if (u >= 0xd800 && u < 0xdc00) {
        if (j->end - j->p < 2 || j->p[0] != '\\' || j->p[1] != 'u')
            return json_bad(j, "lone surrogate");
        j->p += 2;
        if (json_hex4(j, &low))
            return -1;
        if (low < 0xdc00 || low > 0xdfff)
            return json_bad(j, "lone surrogate");
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    } else if (u >= 0xdc00 && u < 0xe000) {
        return json_bad(j, "lone surrogate");
    }
    if (u == 0)
        return json_bad(j, "a NUL in a string");
    *n += utf8_put(out + *n, u);
    return 0;
}

/* A string, unescaped; NULL after an error. Unescaping never makes it longer. */
static char *text_in(Pool *pool, Json *j)
{
    json_space(j);
    if (j->p >= j->end || *j->p != '"')
        return json_bad(j, "a string expected"), NULL;
    const char *q = ++j->p;
    while (q < j->end && *q != '"')
        q += *q == '\\' ? 2 : 1;
    if (q >= j->end)
        return json_bad(j, "a string without end"), NULL;
    char *s = pool_take(pool, q - j->p + 1, 1);
    if (!s)
        return json_bad(j, "out of memory"), NULL;
    size_t n = 0;
    while (*j->p != '"') {
        unsigned char c = (unsigned char)*j->p++;
        if (c == '\\') {
            if (json_escape(j, s, &n))
                return NULL;
        } else if (c < 32) {
            return json_bad(j, "a control character in a string"), NULL;
        } else {
            s[n++] = (char)c;
        }
    }
    j->p++;
    s[n] = 0;
    return s;
}

char *json_text(Json *j) { return text_in(j->pool, j); }

int json_int(Json *j, int64_t *v)
{
    json_space(j);
    const char *start = j->p;
    *v = 0;
    while (j->p < j->end && *j->p >= '0' && *j->p <= '9')
        if (__builtin_mul_overflow(*v, 10, v) || __builtin_add_overflow(*v, *j->p++ - '0', v))
            return json_bad(j, "number too large");
    if (j->p == start)
        return json_bad(j, "a non-negative integer expected");
    if (*start == '0' && j->p - start > 1)
        return json_bad(j, "number with a leading zero");
    if (j->p < j->end && (*j->p == '.' || *j->p == 'e' || *j->p == 'E'))
        return json_bad(j, "an integer expected");
    return 0;
}

int json_bool(Json *j, int *v)
{
    json_space(j);
    size_t left = (size_t)(j->end - j->p);
    *v = left >= 4 && !memcmp(j->p, "true", 4);
    if (!*v && !(left >= 5 && !memcmp(j->p, "false", 5)))
        return json_bad(j, "true or false expected");
    j->p += *v ? 4 : 5;
    return 0;
}

int json_word(Json *j, char *out, size_t size)
{
    POOL(room);
    const char *text = text_in(&room, j);
    if (text)
        snprintf(out, size, "%s", text);
    return text ? 0 : -1;
}

int json_number(Json *j, double *v)
{
    char buf[64], *end;
    size_t n = 0;
    json_space(j);
    while (j->p < j->end && n + 1 < sizeof buf && *j->p && strchr("+-.eE0123456789", *j->p))
        buf[n++] = *j->p++;
    buf[n] = 0;
    *v = strtod(buf, &end);
    return n > 0 && !*end ? 0 : json_bad(j, "a number expected");
}

char json_peek(Json *j)
{
    json_space(j);
    return j->p < j->end ? *j->p : '\0';
}

static int deeper(Json *j)
{
    enum { DEEPEST = 64 };
    return ++j->depth > DEEPEST ? json_bad(j, "more than %d values within one another", DEEPEST)
                                : 0;
}

int json_members(Json *j, int (*member)(void *of, Json *j, const char *key), void *of)
{
    if (json_expect(j, '{') || deeper(j))
        return -1;
    if (json_peek(j) != '}')
        do {
            POOL(room);
            const char *key = text_in(j->pool ? j->pool : &room, j);
            if (!key || json_expect(j, ':') || member(of, j, key))
                return -1;
        } while (json_char(j, ','));
    j->depth--;
    return json_expect(j, '}');
}

int json_elements(Json *j, int (*element)(void *of, Json *j), void *of)
{
    if (json_expect(j, '[') || deeper(j))
        return -1;
    if (json_peek(j) != ']')
        do {
            if (element(of, j))
                return -1;
        } while (json_char(j, ','));
    j->depth--;
    return json_expect(j, ']');
}

typedef struct {
    int64_t *list;
    int most, *n;
} Integers;

static int integer(void *of, Json *j)
{
    Integers *v = of;
    return *v->n == v->most ? json_bad(j, "more than %d numbers", v->most)
                            : json_int(j, &v->list[(*v->n)++]);
}

int json_integers(Json *j, int64_t *list, int most, int *n)
{
    *n = 0;
    return json_elements(j, integer, &(Integers){list, most, n});
}

static int skip_element(void *of, Json *j) { return (void)of, json_skip(j); }
static int skip_member(void *of, Json *j, const char *key)
{
    return (void)of, (void)key, json_skip(j);
}

int json_skip(Json *j)
{
    static const char *const word[3] = {"true", "false", "null"};
    double v;
    char none[2];
    switch (json_peek(j)) {
    case '"': return json_word(j, none, sizeof none);
    case '{': return json_members(j, skip_member, NULL);
    case '[': return json_elements(j, skip_element, NULL);
    }
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(word[i]);
        if ((size_t)(j->end - j->p) >= n && !memcmp(j->p, word[i], n)) {
            j->p += n;
            return 0;
        }
    }
    return json_number(j, &v);
}

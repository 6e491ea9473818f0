/*
 * json_write.c - in: values, in their order; out: JSON, byte for byte the same for the same values.
 */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

static void put_string(FILE *f, const char *s)
{
    putc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 32 || c == 127)
            fprintf(f, "\\u%04x", c);
        else
            putc(c, f);
    }
    putc('"', f);
}

static void new_line(const JsonOut *o) { fprintf(o->f, "\n%*s", 2 * o->depth, ""); }

/* What stands before a value. */
static void put_key(JsonOut *o, const char *key)
{
    const int line = o->depth > 0 && o->depth <= o->lines;
    if (o->more)
        fputs(o->compact || line ? "," : ", ", o->f);
    if (line)
        new_line(o);
    if (key) {
        put_string(o->f, key);
        fputs(o->compact ? ":" : ": ", o->f);
    }
    o->more = 1;
}

void json_begin(JsonOut *o, const char *key, char bracket)
{
    put_key(o, key);
    putc(bracket, o->f);
    o->depth++;
    o->more = 0;
}

void json_end(JsonOut *o, const char *brackets)
{
    for (; *brackets; brackets++) {
        o->depth--;
        if (o->depth < o->lines)
            new_line(o);
        putc(*brackets, o->f);
    }
    o->more = 1;
}

void json_put(JsonOut *o, const char *key, const char *fmt, ...)
{
    va_list ap;
    put_key(o, key);
    va_start(ap, fmt);
    vfprintf(o->f, fmt, ap);
    va_end(ap);
}

void json_put_text(JsonOut *o, const char *key, const char *text)
{
    put_key(o, key);
    if (text)
        put_string(o->f, text);
    else
        fputs("null", o->f);
}

void json_put_real(JsonOut *o, const char *key, double v)
{
    if (isfinite(v))
        json_put(o, key, "%.17g", v);
    else
        json_put(o, key, "null");
}

void json_put_integers(JsonOut *o, const char *key, const int64_t *list, int n)
{
    json_begin(o, key, '[');
    for (int i = 0; i < n; i++)
        json_put(o, NULL, "%" PRId64, list[i]);
    json_end(o, "]");
}

/*
 * trace_read.c - reads a Chrome trace, of a run or a simulation, from bytes that others wrote.
 *
 * In: a JSON file.  Out: one call for each complete event and each name of a line ("ph":"M"), in
 * the file's order.  Any JSON passes that nests no deeper than MAX_DEPTH; what is no event in it
 * says nothing.
 */
#include "schedule/rows.h"
#include "trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *p, *end;
    int depth;
} Json;
enum { MAX_DEPTH = 64 };

static void space(Json *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\r' || *j->p == '\t'))
        j->p++;
}

static int take(Json *j, char c)
{
    space(j);
    if (j->p == j->end || *j->p != c)
        return 0;
    j->p++;
    return 1;
}

/* A string, cut to size; escapes other than \" and \\ are kept as they are, since no action has
 * any. */
static int string(Json *j, char *out, size_t size)
{
    size_t n = 0;
    if (!take(j, '"'))
        return 0;
    while (j->p < j->end && *j->p != '"') {
        if (*j->p == '\\' && j->p + 1 < j->end && (j->p[1] == '"' || j->p[1] == '\\'))
            j->p++;
        if (n + 1 < size)
            out[n++] = *j->p;
        j->p++;
    }
    out[n] = 0;
    if (j->p == j->end)
        return 0;
    j->p++;
    return 1;
}

static int number(Json *j, double *v)
{
    char buf[64];
    size_t n = 0;
    space(j);
    while (j->p + n < j->end && n + 1 < sizeof buf && strchr("+-.eE0123456789", j->p[n]) &&
           j->p[n]) {
        buf[n] = j->p[n];
        n++;
    }
    buf[n] = 0;
    char *end;
    *v = strtod(buf, &end);
    j->p += n;
    return n > 0 && !*end;
}

static int object(Json *j, SchedEvent *f, int (*each)(void *, const SchedEvent *), void *ctx);

/* Any value; objects within arrays named traceEvents, or at the top, are events. */
static int value(Json *j, int (*each)(void *, const SchedEvent *), void *ctx)
{
    char skip[16];
    double v;
    space(j);
    if (j->p == j->end || j->depth >= MAX_DEPTH)
        return 0;
    if (*j->p == '"')
        return string(j, skip, sizeof skip);
    if (*j->p == '{') {
        SchedEvent f = {.dur = -1, .bytes = -1};
        j->depth++;
        int ok = object(j, &f, each, ctx);
        j->depth--;
        return ok;
    }
    if (*j->p == '[') {
        j->p++;
        if (take(j, ']'))
            return 1;
        j->depth++;
        do {
            if (!value(j, each, ctx))
                return 0;
        } while (take(j, ','));
        j->depth--;
        return take(j, ']');
    }
    for (size_t i = 0; i < 3; i++) {
        static const char *const word[3] = {"true", "false", "null"};
        size_t n = strlen(word[i]);
        if ((size_t)(j->end - j->p) >= n && memcmp(j->p, word[i], n) == 0) {
            j->p += n;
            return 1;
        }
    }
    return number(j, &v);
}

static int args(Json *j, SchedEvent *f, int (*each)(void *, const SchedEvent *), void *ctx)
{
    SchedEvent inner = {.dur = -1, .bytes = -1};
    space(j);
    if (j->p == j->end || *j->p != '{')
        return value(j, each, ctx);
    if (!object(j, &inner, NULL, ctx))
        return 0;
    f->step = inner.step;
    f->bytes = inner.bytes;
    f->beside = inner.beside;
    memcpy(f->of, inner.name, sizeof f->of);
    return 1;
}

static int object(Json *j, SchedEvent *f, int (*each)(void *, const SchedEvent *), void *ctx)
{
    char key[32];
    if (!take(j, '{'))
        return 0;
    if (take(j, '}'))
        return 1;
    do {
        int ok;
        if (!string(j, key, sizeof key) || !take(j, ':'))
            return 0;
        space(j);
        if (strcmp(key, "name") == 0 && j->p < j->end && *j->p == '"')
            ok = string(j, f->name, sizeof f->name);
        else if (strcmp(key, "ph") == 0)
            ok = string(j, f->ph, sizeof f->ph);
        else if (strcmp(key, "cat") == 0)
            ok = string(j, f->cat, sizeof f->cat);
        else if (strcmp(key, "tid") == 0 && j->p < j->end && *j->p != '"')
            ok = number(j, &f->tid);
        else if (strcmp(key, "ts") == 0)
            ok = number(j, &f->ts);
        else if (strcmp(key, "dur") == 0)
            ok = number(j, &f->dur);
        else if (strcmp(key, "step") == 0)
            ok = number(j, &f->step);
        else if (strcmp(key, "bytes") == 0 && j->p < j->end && strchr("0123456789", *j->p))
            ok = number(j, &f->bytes);
        else if (strcmp(key, "beside") == 0 && j->p < j->end && strchr("0123456789", *j->p))
            ok = number(j, &f->beside);
        else
            ok = strcmp(key, "args") == 0 ? args(j, f, each, ctx) : value(j, each, ctx);
        if (!ok)
            return 0;
    } while (take(j, ','));
    if (!take(j, '}'))
        return 0;
    return !each || (f->dur < 0 && strcmp(f->ph, "M") != 0) || !f->name[0] || each(ctx, f);
}

static char *slurp(const char *path, size_t *n, SchedError *e)
{
    FILE *f = fopen(path, "rb");
    size_t cap = 0, got = 1;
    char *text = NULL;
    *n = 0;
    if (!f) {
        sched_fail(e, SCHED_ERESOURCE, -1, -1, "%s: %s", path, strerror(errno));
        return NULL;
    }
    while (got) {
        if (*n == cap) {
            char *p = realloc(text, cap = cap ? cap * 2 : 1 << 16);
            if (!p) {
                free(text);
                fclose(f);
                sched_nomem(e);
                return NULL;
            }
            text = p;
        }
        *n += got = fread(text + *n, 1, cap - *n, f);
    }
    fclose(f);
    return text;
}

int sched_trace_read(const char *path, int (*each)(void *, const SchedEvent *), void *ctx,
                     SchedError *e)
{
    size_t n;
    char *text = slurp(path, &n, e);
    int st = SCHED_OK;
    if (!text)
        return e->status;
    Json j = {text, text + n, 0};
    int ok = value(&j, each, ctx);
    space(&j);
    if (!ok || j.p != j.end)
        st = sched_fail(e, SCHED_EREFUSED, -1, -1, "%s: not a JSON file (byte %zu)", path,
                        (size_t)(j.p - text));
    free(text);
    return st;
}

/*
 * trace_read.c - reads a Chrome trace, of a run or a simulation, from bytes that others wrote.
 *
 * In: a JSON file.  Out: one call for each complete event and each name of a line ("ph":"M"), in
 * the file's order.  Any JSON passes, and an object anywhere in it may be an event.
 */
#include "base/file/json.h"
#include "schedule/rows.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>

/* A value, and what it says where it is an event. */
typedef struct {
    int (*each)(void *, const SchedEvent *); /* NULL: these are the args of an event */
    void *ctx;
    SchedEvent event;
} Walk;

static int value(void *of, Json *j);
static int args(Walk *w, Json *j);

/* {"seq":17,"width":4} */
static int length(void *of, Json *j, const char *key)
{
    SchedEvent *f = of;
    if (f->lengths == ROW_LENGTHS || !strchr("0123456789", json_peek(j)))
        return json_skip(j);
    snprintf(f->dimension[f->lengths], sizeof f->dimension[0], "%s", key);
    return json_number(j, &f->length[f->lengths++]);
}

static int member(void *of, Json *j, const char *key)
{
    Walk *w = of;
    SchedEvent *f = &w->event;
    static const char *const name[] = {"tid", "ts", "dur", "step", "bytes", "beside", "stage"};
    double *const number[] = {&f->tid,   &f->ts,     &f->dur,  &f->step,
                              &f->bytes, &f->beside, &f->stage};
    enum { MAY_BE_NEGATIVE = 4 };
    char next = json_peek(j);
    if (!strcmp(key, "name") && next == '"')
        return json_word(j, f->name, sizeof f->name);
    if (!strcmp(key, "ph"))
        return json_word(j, f->ph, sizeof f->ph);
    if (!strcmp(key, "cat"))
        return json_word(j, f->cat, sizeof f->cat);
    if (!strcmp(key, "args") && next == '{')
        return args(w, j);
    if (!strcmp(key, "part") && next == '"')
        return json_word(j, f->part, sizeof f->part);
    if ((!strcmp(key, "points") || !strcmp(key, "nodes")) && next == '[') {
        f->texts = j->p;
        const int bad = json_skip(j);
        f->end = j->p;
        return bad;
    }
    if (!strcmp(key, "lengths") && next == '{')
        return json_members(j, length, f);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (!strcmp(key, name[i]) && next &&
            strchr(i < MAY_BE_NEGATIVE ? "-0123456789" : "0123456789", next))
            return json_number(j, number[i]);
    return value(w, j);
}

static int args(Walk *w, Json *j)
{
    Walk inner = {.event = {.dur = -1, .bytes = -1, .stage = -1}};
    if (json_members(j, member, &inner))
        return -1;
    SchedEvent *f = &w->event;
    f->step = inner.event.step;
    f->bytes = inner.event.bytes;
    f->beside = inner.event.beside;
    f->stage = inner.event.stage;
    memcpy(f->part, inner.event.part, sizeof f->part);
    f->texts = inner.event.texts;
    f->end = inner.event.end;
    f->lengths = inner.event.lengths;
    memcpy(f->of, inner.event.name, sizeof f->of);
    memcpy(f->dimension, inner.event.dimension, sizeof f->dimension);
    memcpy(f->length, inner.event.length, sizeof f->length);
    return 0;
}

static int value(void *of, Json *j)
{
    const Walk *around = of;
    Walk w = {around->each, around->ctx, {.dur = -1, .bytes = -1, .stage = -1}};
    if (json_peek(j) == '[')
        return json_elements(j, value, &w);
    if (json_peek(j) != '{')
        return json_skip(j);
    if (json_members(j, member, &w))
        return -1;
    int event = w.each && w.event.name[0] && (w.event.dur >= 0 || !strcmp(w.event.ph, "M"));
    return event && !w.each(w.ctx, &w.event) ? -1 : 0;
}

int sched_trace_read(const char *path, int (*each)(void *, const SchedEvent *), void *ctx,
                     SchedError *e)
{
    size_t n;
    char *text = sched_read(path, &n, e);
    int st = SCHED_OK;
    if (!text)
        return e->status;
    Json j = {.p = text, .end = text + n, .start = text};
    Walk w = {.each = each, .ctx = ctx};
    if (value(&w, &j) || (json_space(&j), j.p != j.end))
        st = sched_fail(e, SCHED_EREFUSED, -1, -1, "%s: not a JSON file (byte %zu)", path,
                        (size_t)(j.p - text));
    free(text);
    return st;
}

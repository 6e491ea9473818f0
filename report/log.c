/*
 * log.c - reads a file of --log-json, as bytes that others wrote.
 *
 * In: a JSON object a line: the configuration, then a line for each step and each evaluation.  Out:
 * their numbers.  What else a line says is passed over.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file/json.h"
#include "page.h"

typedef struct {
    Arena *a;
    RunLog *log;
    LogPlace place;
    LogStep step;
    double eval_step;
} Line;

static int place_member(void *of, Json *j, const char *key)
{
    Line *l = of;
    return !strcmp(key, "memory")        ? json_number(j, &l->place.memory)
           : !strcmp(key, "activations") ? json_number(j, &l->place.activations)
           : !strcmp(key, "operations")  ? json_number(j, &l->place.operations)
                                         : json_skip(j);
}

static int place(void *of, Json *j)
{
    Line *l = of;
    l->place = (LogPlace){-1, -1, (double)NAN};
    if (json_members(j, place_member, l))
        return -1;
    vec_push(l->a, &l->log->place, l->place);
    return 0;
}

/* Numbers of the configuration are texts, as they were written on the command line. */
static int number_member(void *of, Json *j, const char *key)
{
    Line *l = of;
    char text[64];
    if (strcmp(key, "batch") || json_peek(j) != '"')
        return json_skip(j);
    if (json_word(j, text, sizeof text))
        return -1;
    l->log->batch = strtod(text, NULL);
    return 0;
}

static int config_member(void *of, Json *j, const char *key)
{
    Line *l = of;
    char text[128];
    if (!strcmp(key, "places")) {
        l->log->place.n = 0; /* a resumed run may have other ranks */
        return json_elements(j, place, l);
    }
    if (!strcmp(key, "numbers"))
        return json_members(j, number_member, l);
    if (!strcmp(key, "steps"))
        return json_number(j, &l->log->steps);
    if (strcmp(key, "schedule") || json_peek(j) != '"')
        return json_skip(j);
    if (json_word(j, text, sizeof text))
        return -1;
    l->log->schedule = arena_strdup(l->a, text);
    return 0;
}

static int member(void *of, Json *j, const char *key)
{
    static const char *const column[LOG_COLUMNS] = {
        [LOG_LOSS] = "loss", [LOG_NORM] = "grad_norm",  [LOG_TOKENS] = "tokens_per_second",
        [LOG_LR] = "lr",     [LOG_SECONDS] = "seconds", [LOG_EVAL] = "eval_loss"};
    Line *l = of;
    if (!strcmp(key, "config"))
        return json_members(j, config_member, l);
    double *to = !strcmp(key, "step")        ? &l->step.step
                 : !strcmp(key, "eval_step") ? &l->eval_step
                                             : NULL;
    for (int k = 0; k < LOG_COLUMNS; k++)
        to = !strcmp(key, column[k]) ? &l->step.value[k] : to;
    return to && json_peek(j) != 'n' ? json_number(j, to) : json_skip(j); /* null: not finite */
}

/* false: it is no line of a log. */
static bool read_line(Arena *a, Json *j, RunLog *log)
{
    const double none = (double)NAN;
    Line l = {a, log, {-1, -1, none}, {none, {none, none, none, none, none, none}}, none};
    if (json_members(j, member, &l))
        return false;
    json_space(j);
    if (isfinite(l.step.step))
        vec_push(a, &log->step, l.step);
    l.step.step = l.eval_step;
    if (isfinite(l.eval_step))
        vec_push(a, &log->eval, l.step);
    return j->p == j->end;
}

RunLog log_read(Arena *a, const char *path)
{
    const FileMap *f = arena_file(a, path);
    const char *p = f->at, *end = f->at + f->bytes;
    RunLog log = {.path = path, .batch = (double)NAN, .steps = (double)NAN};
    for (uint32_t n = 1; p < end; n++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop ? stop : end;
        Json j = {.p = p, .start = p, .end = stop};
        if (stop > p && !read_line(a, &j, &log)) {
            if (stop == end && n > 1) /* the run is writing it */
                break;
            diag_hint("logs are written by --log-json FILE, traces by --trace FILE");
            diag_fatal(EXIT_MODEL, WHERE_FILE(path), "no log: line %u is wrong at byte %zu", n,
                       (size_t)(j.p - p));
        }
        p = stop < end ? stop + 1 : end;
    }
    if (f->bytes && !(log.steps >= 0) && !log.step.n && !log.eval.n)
        diag_fatal(EXIT_MODEL, WHERE_FILE(path), "is no log of --log-json");
    return log;
}

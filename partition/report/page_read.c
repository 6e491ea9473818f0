/*
 * page_read.c - what the page is made of: pipe.xml, logs of --log-json.
 *
 * In: files.  Out: their numbers.  Both are read as bytes of others: of pipe.xml the elements and
 * attributes that report_pipe_xml() writes, of a log JSON values of any shape, of which the
 * numbers of steps are kept.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file/json.h"
#include "page.h"

typedef struct {
    const char *p, *end, *start, *path;
    Arena *a;
} Reader;

static Reader reader(Arena *a, const char *path)
{
    const FileMap *f = arena_file(a, path);
    return (Reader){f->at, f->at + f->bytes, f->at, path, a};
}

/* ---- pipe.xml ---- */

enum { MOST_ATTRIBUTES = 16 };
typedef struct {
    const char *name;
    uint32_t n;
    const char *key[MOST_ATTRIBUTES], *value[MOST_ATTRIBUTES];
} Tag;

NORETURN static void not_ours(const Reader *r)
{
    diag_hint("pipe.xml stands in the folder that ppsplit wrote with -o");
    diag_fatal(EXIT_MODEL, WHERE_FILE(r->path), "not a pipe.xml of ppsplit (byte %zu)",
               (size_t)(r->p - r->start));
}

static const char *until(Reader *r, const char *stop)
{
    const char *from = r->p;
    while (r->p < r->end && *r->p && !strchr(stop, *r->p))
        r->p++;
    if (r->p == r->end || !*r->p)
        not_ours(r);
    return arena_strndup(r->a, from, (size_t)(r->p - from));
}

static const char *unescape(Arena *a, const char *s)
{
    static const struct {
        const char *name;
        char c;
    } entity[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}};
    char *out = arena_alloc(a, strlen(s) + 1), *at = out;
    while (*s) {
        size_t k = 0, n = sizeof entity / sizeof *entity;
        while (k < n && strncmp(s, entity[k].name, strlen(entity[k].name)))
            k++;
        *at++ = k < n ? entity[k].c : *s;
        s += k < n ? strlen(entity[k].name) : 1;
    }
    return out;
}

/* The next opening tag. */
static bool next_tag(Reader *r, Tag *t)
{
    do {
        while (r->p < r->end && *r->p != '<')
            r->p++;
        if (r->p == r->end)
            return false;
        r->p++;
    } while (r->p < r->end && strchr("/?!", *r->p));
    t->name = until(r, " />");
    t->n = 0;
    for (;;) {
        while (r->p < r->end && strchr(" \n/?", *r->p) && *r->p)
            r->p++;
        if (r->p < r->end && *r->p == '>')
            return true;
        const char *key = until(r, "=>");
        if (*r->p != '=' || ++r->p == r->end || *r->p++ != '"' || t->n == MOST_ATTRIBUTES)
            not_ours(r);
        t->key[t->n] = key;
        t->value[t->n++] = unescape(r->a, until(r, "\""));
        r->p++;
    }
}

static const char *text(const Reader *r, const Tag *t, const char *key)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (!strcmp(t->key[i], key))
            return t->value[i];
    not_ours(r);
}

/* "" where it is not there. */
static const char *text_or_none(const Tag *t, const char *key)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (!strcmp(t->key[i], key))
            return t->value[i];
    return "";
}

static int64_t count(const Reader *r, const Tag *t, const char *key)
{
    char *end;
    const char *s = text(r, t, key);
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || !*s || *end || v < 0)
        not_ours(r);
    return v;
}

static void read_module(const Reader *r, const Tag *t, PagePipe *p)
{
    const char *kind = text(r, t, "kind");
    int64_t stage = count(r, t, "stage");
    if (stage >= p->stage.n || count(r, t, "index") != p->module.n)
        not_ours(r);
    PageModule m = {!strcmp(kind, "module")       ? PAGE_MODULE
                    : !strcmp(kind, "operations") ? PAGE_OPERATIONS
                                                  : PAGE_END,
                    text(r, t, "name"),
                    (uint32_t)stage,
                    count(r, t, "nodes"),
                    count(r, t, "parameters"),
                    count(r, t, "flops")};
    vec_push(r->a, &p->module, m);
}

static void read_flow(const Reader *r, const Tag *t, PagePipe *p)
{
    int64_t from = count(r, t, "from"), to = count(r, t, "to");
    if (from >= p->module.n || to >= p->module.n || from == to ||
        p->module.at[from].stage > p->module.at[to].stage)
        not_ours(r);
    PageFlow e = {
        (uint32_t)from,        (uint32_t)to,         strcmp(text(r, t, "kind"), "activation") != 0,
        count(r, t, "values"), count(r, t, "bytes"), text_or_none(t, "value")};
    vec_push(r->a, &p->flow, e);
}

/* Has a stage's input several whole numbers a row, as texts have? */
static bool has_tokens(const Reader *r, const Tag *t)
{
    const char *dtype = text(r, t, "dtype");
    return (!strcmp(dtype, "i64") || !strcmp(dtype, "i32")) && strchr(text(r, t, "shape"), ',') &&
           strcmp(text(r, t, "batch_dim"), "-1") && strcmp(text(r, t, "name"), "target");
}

PagePipe page_pipe(Arena *a, const char *path)
{
    if (access(path, F_OK) != 0)
        diag_hint("OUT, which comes first, is the folder that `ppsplit MODEL -o OUT' wrote");
    Reader r = reader(a, path);
    PagePipe p = {.model = NULL};
    int64_t stages = 0;
    for (Tag t; next_tag(&r, &t);) {
        if (!strcmp(t.name, "pipe")) {
            p.model = text(&r, &t, "model");
            p.loss = text_or_none(&t, "loss");
            stages = count(&r, &t, "stages");
        } else if (!strcmp(t.name, "stage")) {
            if (count(&r, &t, "index") != p.stage.n)
                not_ours(&r);
            PageStage s = {text_or_none(&t, "modules"),  count(&r, &t, "nodes"),
                           count(&r, &t, "parameters"),  count(&r, &t, "bytes_param"),
                           count(&r, &t, "bytes_stash"), count(&r, &t, "flops")};
            vec_push(a, &p.stage, s);
        } else if (!strcmp(t.name, "input")) {
            p.tokens |= has_tokens(&r, &t);
        } else if (!strcmp(t.name, "module")) {
            read_module(&r, &t, &p);
        } else if (!strcmp(t.name, "flow")) {
            read_flow(&r, &t, &p);
        } else if (!strcmp(t.name, "edge")) {
            int64_t from = count(&r, &t, "from"), to = count(&r, &t, "to");
            if (from >= p.stage.n || to >= p.stage.n)
                not_ours(&r);
            PageEdge e = {(uint32_t)from,       (uint32_t)to,          text(&r, &t, "value"),
                          text(&r, &t, "kind"), text(&r, &t, "shape"), count(&r, &t, "bytes")};
            vec_push(a, &p.edge, e);
        }
    }
    if (!p.model || !p.stage.n || p.stage.n != stages)
        not_ours(&r);
    return p;
}

/* ---- logs ---- */

bool page_is_trace(const char *path)
{
    char why[FILE_WHY];
    struct stat st;
    FileMap *f = file_map(path, why);
    if (!f && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        diag_hint("OUT comes first and is one folder; then logs, of --log-json, and traces, of "
                  "--trace");
    if (!f)
        diag_fatal(EXIT_IO, WHERE_FILE(path), "%s", why);
    bool is = memmem(f->at, f->bytes < 256 ? f->bytes : 256, "\"traceEvents\"", 13) != NULL;
    file_unmap(f);
    return is;
}

enum { MOST_DEPTH = 32 };

static bool skip(Json *j, int depth);

static bool number(Json *j, double *v)
{
    char buf[64];
    size_t n = 0;
    json_space(j);
    while (j->p < j->end && n + 1 < sizeof buf && *j->p && strchr("+-.eE0123456789", *j->p))
        buf[n++] = *j->p++;
    buf[n] = 0;
    char *end;
    *v = strtod(buf, &end);
    return n > 0 && !*end;
}

static bool word(Json *j, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(j->end - j->p) < n || memcmp(j->p, w, n))
        return false;
    j->p += n;
    return true;
}

static bool skip_text(Json *j)
{
    char *t = json_text(j);
    free(t);
    return t != NULL;
}

/* The members of an object or array. */
static bool skip_members(Json *j, char close, int depth)
{
    if (json_char(j, close))
        return true;
    do {
        if (close == '}' && (!skip_text(j) || !json_char(j, ':')))
            return false;
        if (!skip(j, depth))
            return false;
    } while (json_char(j, ','));
    return json_char(j, close);
}

static bool skip(Json *j, int depth)
{
    double v;
    json_space(j);
    if (j->p == j->end || depth >= MOST_DEPTH)
        return false;
    if (*j->p == '"')
        return skip_text(j);
    if (json_char(j, '{'))
        return skip_members(j, '}', depth + 1);
    if (json_char(j, '['))
        return skip_members(j, ']', depth + 1);
    return word(j, "true") || word(j, "false") || word(j, "null") || number(j, &v);
}

/* A rank of the configuration. */
static bool place(Json *j, Arena *a, PageLog *log)
{
    PagePlace x = {-1, -1};
    if (!json_char(j, '{'))
        return false;
    do {
        char *key = json_text(j);
        bool ok = key && json_char(j, ':');
        double *to = !key                          ? NULL
                     : !strcmp(key, "memory")      ? &x.memory
                     : !strcmp(key, "activations") ? &x.activations
                                                   : NULL;
        free(key);
        if (!ok || !(to ? number(j, to) : skip(j, 2)))
            return false;
    } while (json_char(j, ','));
    vec_push(a, &log->place, x);
    return json_char(j, '}');
}

static bool places(Json *j, Arena *a, PageLog *log)
{
    log->place.n = 0; /* a resumed run may have other ranks */
    if (!json_char(j, '['))
        return false;
    if (json_char(j, ']'))
        return true;
    do {
        if (!place(j, a, log))
            return false;
    } while (json_char(j, ','));
    return json_char(j, ']');
}

/* Text, where it is one; else NULL, and nothing is read. */
static const char *text_value(Json *j, Arena *a)
{
    json_space(j);
    char *s = j->p < j->end && *j->p == '"' ? json_text(j) : NULL;
    const char *kept = s ? arena_strdup(a, s) : NULL;
    free(s);
    return kept;
}

/* The options that are numbers, as texts. */
static bool numbers(Json *j, Arena *a, PageLog *log)
{
    if (!json_char(j, '{'))
        return false;
    do {
        char *key = json_text(j);
        bool is = key && !strcmp(key, "batch"), ok = key && json_char(j, ':');
        const char *batch = ok && is ? text_value(j, a) : NULL;
        free(key);
        if (batch)
            log->batch = strtod(batch, NULL);
        else if (!ok || !skip(j, 2))
            return false;
    } while (json_char(j, ','));
    return json_char(j, '}');
}

/* The configuration's schedule, ranks and rows of a step. */
static bool config(Json *j, Arena *a, PageLog *log)
{
    if (!json_char(j, '{'))
        return false;
    do {
        char *key = json_text(j);
        bool is = key && !strcmp(key, "schedule"), ranks = key && !strcmp(key, "places"),
             options = key && !strcmp(key, "numbers"), ok = key && json_char(j, ':');
        free(key);
        const char *schedule = ok && is ? text_value(j, a) : NULL;
        if (schedule)
            log->schedule = schedule;
        else if (ok)
            ok = ranks     ? places(j, a, log)
                 : options ? numbers(j, a, log)
                           : skip(j, 1);
        if (!ok)
            return false;
    } while (json_char(j, ','));
    return json_char(j, '}');
}

/* One line; true: it was JSON. */
static bool line(Json *j, Arena *a, PageLog *log)
{
    static const char *const column[LOG_COLUMNS] = {[LOG_LOSS] = "loss",
                                                    [LOG_NORM] = "grad_norm",
                                                    [LOG_TOKENS] = "tokens_per_second",
                                                    [LOG_LR] = "lr",
                                                    [LOG_SECONDS] = "seconds",
                                                    [LOG_EVAL] = "eval_loss"};
    const double none = (double)NAN;
    PageStep s = {none, {none, none, none, none, none, none}};
    double eval_step = none;
    if (!json_char(j, '{'))
        return false;
    do {
        char *key = json_text(j);
        double *to = key && !strcmp(key, "step")        ? &s.step
                     : key && !strcmp(key, "eval_step") ? &eval_step
                                                        : NULL;
        bool is_config = key && !strcmp(key, "config"), ok = key && json_char(j, ':');
        for (int k = 0; key && k < LOG_COLUMNS; k++)
            to = !strcmp(key, column[k]) ? &s.value[k] : to;
        free(key);
        json_space(j);
        if (ok && to && !word(j, "null"))
            ok = number(j, to);
        else if (ok && !to)
            ok = is_config ? config(j, a, log) : skip(j, 0);
        if (!ok)
            return false;
    } while (json_char(j, ','));
    if (!json_char(j, '}'))
        return false;
    json_space(j);
    if (isfinite(s.step))
        vec_push(a, &log->step, s);
    s.step = eval_step;
    if (isfinite(eval_step))
        vec_push(a, &log->eval, s);
    return j->p == j->end;
}

PageLog page_log(Arena *a, const char *path)
{
    Reader r = reader(a, path);
    PageLog log = {.path = path, .batch = (double)NAN};
    for (uint32_t n = 1; r.p < r.end; n++) {
        char err[256] = "";
        const char *end = memchr(r.p, '\n', (size_t)(r.end - r.p));
        end = end ? end : r.end;
        Json j = {.p = r.p, .start = r.p, .end = end, .err = err, .nerr = sizeof err};
        if (end > r.p && !line(&j, a, &log)) {
            diag_hint("logs are written by --log-json FILE, traces by --trace FILE");
            diag_fatal(EXIT_MODEL, WHERE_FILE(path),
                       "line %u is no line of a log (byte %zu of it), and the file is no trace", n,
                       (size_t)(j.p - r.p));
        }
        r.p = end < r.end ? end + 1 : end;
    }
    if (!log.step.n)
        diag_fatal(EXIT_MODEL, WHERE_FILE(path), "the log has no step");
    return log;
}

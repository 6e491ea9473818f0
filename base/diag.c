/*
 * diag.c - diagnostics in clang's manner, and the two ways out: diag_fatal() for a user's mistake
 * and die() for a bug. Both leave what diag_run() runs by longjmp; its caller gets the exit code.
 * All state is the thread's own.
 */
#include <locale.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file/hash.h"
#include "escape.h"

enum { LINE = 2048, MAX_QUEUED = 16, MAX_WARNED = 256 };

static _Thread_local struct {
    jmp_buf *frame;
    FILE *to; /* NULL: stderr */
    char queued[MAX_QUEUED][LINE];
    int n_queued;
    const Where *at;
    const Inside *inside;
    uint64_t warned[MAX_WARNED]; /* what the outermost diag_run() has said */
    int n_warned;
} diag;

static FILE *out(void) { return diag.to ? diag.to : stderr; }

FILE *diag_to(FILE *f)
{
    FILE *before = diag.to;
    diag.to = f;
    return before;
}

const Where *diag_at(const Where *w)
{
    const Where *before = diag.at;
    diag.at = w;
    return before;
}

const Inside *diag_inside(const Inside *w)
{
    const Inside *before = diag.inside;
    diag.inside = w;
    return before;
}

/* In a signal handler, of a fault of the phase itself: it is left as by any other error. */
static void lost(const char *text)
{
    if (diag.frame)
        diag_fatal(EXIT_IO, WHERE_NONE, "%s", text);
    (void)!write(STDERR_FILENO, "ppsplit: error: ", 16);
    (void)!write(STDERR_FILENO, text, strlen(text));
    (void)!write(STDERR_FILENO, "\n", 1);
}

void diag_files(void)
{
    char text[LINE];
    if (files_whole(text, sizeof text))
        diag_fatal(EXIT_IO, WHERE_NONE, "%s", text);
}

int diag_run(void (*fn)(void *), void *arg)
{
    jmp_buf here, *const outer = diag.frame;
    const Where *const at = diag.at;
    const Inside *const inside = diag.inside;
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(plain);
    volatile int code = 0;
    if (!outer) {
        diag.n_warned = 0;
        file_lost(lost);
    }
    diag.frame = &here;
    int jumped = setjmp(here);
    if (jumped == 0)
        fn(arg);
    else
        code = jumped;
    diag.at = at;
    diag.inside = inside;
    diag.frame = outer;
    uselocale(before);
    freelocale(plain);
    return code;
}

int diag_quietly(void (*fn)(void *), void *arg, char **said)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    if (!to)
        diag_fatal(EXIT_IO, WHERE_NONE, "out of memory");
    FILE *before = diag_to(to);
    const int code = diag_run(fn, arg);
    diag_to(before);
    fclose(to);
    if (code == EXIT_BUG && text)
        fputs(text, out());
    if (said)
        *said = text;
    else
        free(text);
    if (code == EXIT_BUG)
        diag_raise(code);
    return code;
}

void diag_raise(int exit_code)
{
    diag.n_queued = 0; /* notes to what was never said */
    if (diag.frame)
        longjmp(*diag.frame, exit_code);
    exit(exit_code);
}

void die(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    fprintf(out(), "ppsplit: internal error: %s:%d: ", file, line);
    va_start(ap, fmt);
    vfprintf(out(), fmt, ap);
    va_end(ap);
    fprintf(out(), "\nThis is a bug of ppsplit, not of your model; please report it with the "
                   "command and the model.\n");
    if (getenv("PPSPLIT_ABORT"))
        abort();
    if (diag.frame)
        diag_raise(EXIT_BUG);
    _exit(EXIT_BUG);
}

static const char *paint(const char *on)
{
    static int colour = -1;
    if (colour < 0)
        colour = isatty(STDERR_FILENO) && !getenv("NO_COLOR");
    return colour && !diag.to ? on : "";
}

static void print_where(Where w)
{
    char text[512];
    fputs(paint("\033[1m"), out());
    if (!w.file)
        fputs("ppsplit: ", out());
    else {
        escape_into(text, sizeof text, w.file);
        fprintf(out(), "%s: ", text);
    }
    if (w.what) {
        fputs(w.what, out());
        if (w.index != NONE)
            fprintf(out(), " %u", w.index);
        if (w.name && *w.name) {
            escape_into(text, sizeof text, w.name);
            fprintf(out(), " '%s'", text);
        }
        if (w.type) {
            escape_into(text, sizeof text, w.type);
            fprintf(out(), " (%s)", text);
        }
        if (w.input >= 0)
            fprintf(out(), ", input %d", w.input);
        fputs(": ", out());
    }
    fputs(paint("\033[0m"), out());
}

static void print_queued(void)
{
    for (int i = 0; i < diag.n_queued; i++)
        fprintf(out(), "%s\n", diag.queued[i]);
    diag.n_queued = 0;
}

static void queue(const char *kind, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);

static void queue(const char *kind, const char *fmt, va_list ap)
{
    if (diag.n_queued == MAX_QUEUED)
        return;
    char raw[LINE - 32];
    vsnprintf(raw, sizeof raw, fmt, ap);
    char *line = diag.queued[diag.n_queued++];
    int n = snprintf(line, LINE, "%s: ", kind);
    escape_into(line + n, LINE - (size_t)n, raw);
}

void diag_note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    queue("note", fmt, ap);
    va_end(ap);
}

void diag_hint(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    queue("hint", fmt, ap);
    va_end(ap);
}

bool diag_meant(const char *word, const char *const *names, size_t n)
{
    const char *near = nearest_name(word, names, n);
    if (near)
        diag_hint("did you mean '%s'?", near);
    return near;
}

static void report(const char *kind, const char *colour, Where w, const char *fmt, va_list ap)
    PRINTF_LIKE(4, 0);

/* The first line may be followed by lines of the caller's own ("\n  " in fmt), each escaped by
 * itself: a line break in a name is none. */
static void report(const char *kind, const char *colour, Where w, const char *fmt, va_list ap)
{
    char raw[LINE], line[LINE * 2];
    vsnprintf(raw, sizeof raw, fmt, ap);
    print_where(!w.file && !w.what && diag.at ? *diag.at : w);
    fprintf(out(), "%s%s:%s ", paint(colour), kind, paint("\033[0m"));
    for (char *p = raw, *next; p; p = next) {
        next = strstr(p, "\n  ");
        if (next)
            *next++ = '\0';
        escape_into(line, sizeof line, p);
        fprintf(out(), "%s\n", line);
    }
    print_queued();
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    return hash_bytes(h, s, s ? strlen(s) + 1 : 0);
}

/* A search reads its model many times. */
static bool was_said(Where w, const char *text)
{
    const Where at = !w.file && !w.what && diag.at ? *diag.at : w;
    uint64_t h = hash_text(HASH_START, text);
    h = hash_text(hash_text(hash_text(hash_text(h, at.file), at.what), at.name), at.type);
    h = hash_value(hash_value(hash_value(h, at.index), (uint64_t)at.input), (uintptr_t)diag.to);
    for (int i = 0; i < diag.n_warned; i++)
        if (diag.warned[i] == h)
            return true;
    if (diag.frame && diag.n_warned < MAX_WARNED)
        diag.warned[diag.n_warned++] = h;
    return false;
}

void diag_warn(Where w, const char *fmt, ...)
{
    char text[LINE];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    vsnprintf(text, sizeof text, fmt, again);
    va_end(again);
    if (was_said(w, text))
        diag.n_queued = 0;
    else
        report("warning", "\033[1;35m", w, fmt, ap);
    va_end(ap);
}

void diag_error(Where w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report("error", "\033[1;31m", w, fmt, ap);
    va_end(ap);
}

void diag_fatal(int exit_code, Where w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    report("error", "\033[1;31m", w, fmt, ap);
    va_end(ap);
    const Inside *in = diag.inside;
    diag.inside = NULL;                                 /* say() may run out of memory */
    for (; in; in = in->of)
        in->say(in->about);
    print_queued();
    diag_raise(exit_code);
}

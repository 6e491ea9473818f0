/*
 * base.h - what knows no model: memory, growable arrays, maps, diagnostics.
 *
 * Memory: one zeroed Arena per run, nothing is freed by passes.  Errors: a user's mistake goes
 * through diag_fatal() (exit code by class), a bug through die().  No function returns NULL for
 * "failed". base/file/ (safetensors, npy, a checkpoint's index) and base/cli/ (options,
 * did-you-mean) are shared with the programs that the compiler writes.
 */
#ifndef PPSPLIT_BASE_H
#define PPSPLIT_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/cli/nearest.h"
#include "base/file/map.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define NORETURN __attribute__((noreturn))

/* Exit codes of the command (GNU manners). */
enum { EXIT_MODEL = 1, EXIT_USAGE = 2, EXIT_IO = 3, EXIT_BUG = 70 };

/* ---- arena.c ------------------------------------------------------------------------------- */

typedef struct Arena Arena;

Arena *arena_new(void);
/* freed with the outer one, or earlier by arena_free() */
Arena *arena_within(Arena *outer);
void arena_free(Arena *a);
/* zeroed, 16-aligned; out of memory is fatal */
void *arena_alloc(Arena *a, size_t n);
void *arena_calloc(Arena *a, size_t n, size_t size);    /* n * size checked for overflow */
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t n);
char *arena_vprintf(Arena *a, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
char *arena_printf(Arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* For what a longjmp would leave open: release(at) is called when the arena is freed, unless
 * arena_drop(at) was called before. */
void arena_hold(Arena *a, void (*release)(void *at), void *at);
void arena_drop(Arena *a, void *at);
/* a file, closed with the arena at the latest; NULL: errno says why */
FILE *arena_fopen(Arena *a, const char *path, const char *mode);
FILE *arena_file_new(Arena *a, const char *path); /* the same, opened by file_new() */
int arena_fclose(Arena *a, FILE *f);
/* the first n bytes of the open file, for reading, until the arena is freed; NULL: errno */
const void *arena_map(Arena *a, const char *path, int fd, size_t n);
/* n zeros that take no memory; NULL: errno */
const void *arena_zeros(Arena *a, size_t n);
/* a whole regular file, until the arena is freed; a file that is not regular or cannot be opened is
 * fatal */
const FileMap *arena_file(Arena *a, const char *path);
void *arena_grow_(Arena *a, void *at, uint32_t *cap, size_t size);
void *arena_move_(Arena *a, const void *at, size_t bytes, size_t n, size_t size);

/* ---- text.c: a text that grows, begun with {.a = arena} ------------------------------------ */

/* indent: for the lines of generated programs (codegen/text.h) */
typedef struct Text { Arena *a; char *at; size_t n, cap; int indent; } Text;
void text_add(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_vadd(Text *t, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
const char *text_all(const Text *t);                    /* never NULL; valid until more is added */

#define arena_new_of(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define arena_array(a, T, n) ((T *)arena_calloc((a), (size_t)(n), sizeof(T)))

/* A growable array in an arena: VEC(int) v = {0}; vec_push(a, &v, 7); v.at[i], v.n. */
#define VEC(T) struct { T *at; uint32_t n, cap; }
#define vec_push(a, v, x)                                                                          \
    ((v)->n == (v)->cap ? (void)((v)->at = (__typeof__((v)->at))arena_grow_(                       \
                                     (a), (v)->at, &(v)->cap, sizeof *(v)->at))                    \
                        : (void)0,                                                                 \
     (void)((v)->at[(v)->n++] = (x)))

/* Room for n elements in all; the new ones are zero. */
#define vec_reserve(a, v, n)                                                                       \
    ((v)->cap < (n) ? (void)((v)->at = arena_move_((a), (v)->at, (v)->cap * sizeof *(v)->at, (n),  \
                                                   sizeof *(v)->at),                               \
                             (v)->cap = (n))                                                       \
                    : (void)0)

#define NONE UINT32_MAX
typedef VEC(uint32_t) Ids; /* a list of numbers: of values, nodes, stages */

/* A hash map from string to uint32_t (open addressing; insertion never loses keys). */
typedef struct { Arena *arena; struct StrSlot *slot; uint32_t n, cap; } StrMap;
uint32_t *strmap_at(StrMap *m, const char *key);        /* finds or inserts (value NONE) */
uint32_t strmap_get(const StrMap *m, const char *key);  /* NONE when absent */

const char *diag_escape(Arena *a, const char *s);       /* printable form of a model's string */

/* ---- idmap.c ------------------------------------------------------------------------------- */

/* A hash map from number to number; {0} is an empty one. */
typedef struct { struct IdSlot *slot; uint32_t n, cap; } IdMap;
uint32_t *idmap_at(Arena *a, IdMap *m, uint64_t key);   /* finds or inserts (value NONE) */
uint32_t idmap_get(const IdMap *m, uint64_t key);       /* NONE when absent */

/* ---- diag.c -------------------------------------------------------------------------------- */

/*
 * A diagnostic says where, what, why and what to do:
 *     gpt2.onnx: node 417 '/h.3/attn/MatMul' (MatMul), input 1: error: inner dimensions differ: 64
 * and 48 note: ...          (diag_note, any number, before diag_fatal) hint: ... (diag_hint)
 * diag_note/diag_hint queue a line that is printed after the next error or warning.  All names that
 * come from a model are escaped (control bytes, NUL, invalid UTF-8) on the way out.
 */
typedef struct {
    const char *file;                                   /* path as the user gave it, or NULL */
    const char *what; /* "node", "initializer", "input", ... or NULL */
    uint32_t index;                                     /* NONE: not shown */
    const char *name;                                   /* may be NULL */
    const char *type;                                   /* op type, may be NULL */
    int input;                                          /* operand number, -1: not shown */
} Where;
static inline Where where_file(const char *file)
{
    Where w = {file, NULL, NONE, NULL, NULL, -1};
    return w;
}
#define WHERE_FILE(f) where_file(f)
#define WHERE_NONE where_file(NULL)

/* Sets the place that diagnostics with WHERE_NONE name.  w is kept, not copied; NULL: no place.
   Returns the place that was set before. */
const Where *diag_at(const Where *w);
/* What is being worked on, innermost first: on an error each say() adds its notes and hints.  w is
   kept, not copied.  Returns the one that was set before. */
typedef struct Inside {
    const struct Inside *of;
    void (*say)(const void *about);
    const void *about;
} Inside;
const Inside *diag_inside(const Inside *w);
void diag_note(const char *fmt, ...) PRINTF_LIKE(1, 2);
void diag_hint(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Within the outermost diag_run() a warning with the same words is printed once. */
void diag_warn(Where w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* One of several: its caller counts them, and leaves by diag_raise() in the end. */
void diag_error(Where w, const char *fmt, ...) PRINTF_LIKE(2, 3);
NORETURN void diag_fatal(int exit_code, Where w, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* leave the phase, whose errors have been printed */
NORETURN void diag_raise(int exit_code);
NORETURN void die(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define BUG(...) die(__FILE__, __LINE__, __VA_ARGS__)
#define INSIST(c) ((c) ? (void)0 : BUG("%s", #c))
/*
 * Runs fn(arg); returns 0, or the exit code with which diag_fatal(), diag_raise() or die() left it.
 * Every call that can fail stands inside one: outside, the three end the process.  Arenas that fn
 * used are still there and can be freed.  Numbers are read and printed as in the C locale, whatever
 * the caller's locale.
 */
int diag_run(void (*fn)(void *), void *arg);
/* Fatal where a mapped file has become shorter; called before an output that was made from it gets
 * its name. */
void diag_files(void);
/* Where this thread's diagnostics go: NULL is stderr.  Returns the stream that was set before. */
FILE *diag_to(FILE *f);

#ifdef __cplusplus
}
#endif
#endif

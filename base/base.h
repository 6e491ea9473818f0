/*
 * base.h - memory, growable arrays, maps and diagnostics. Nothing here knows a model.
 *
 * Memory: one zeroed Arena per run; passes free nothing.  Errors: a user's mistake is reported by
 * diag_fatal() with an exit code, a bug by die().  No function returns NULL for "failed".
 * base/file/ (safetensors, npy, a checkpoint's index) and base/cli/ (options, did-you-mean) are
 * shared with the programs that the compiler writes.
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
/* freed with the outer arena, or earlier by arena_free() */
Arena *arena_within(Arena *outer);
void arena_free(Arena *a);
/* zeroed, 16-aligned; out of memory is fatal */
void *arena_alloc(Arena *a, size_t n);
void *arena_calloc(Arena *a, size_t n, size_t size);    /* n * size checked for overflow */
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t n);
char *arena_vprintf(Arena *a, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
char *arena_printf(Arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* For resources that a longjmp would leave open: release(at) is called when the arena is freed,
 * unless arena_drop(at) was called before. */
void arena_hold(Arena *a, void (*release)(void *at), void *at);
void arena_drop(Arena *a, void *at);
/* opens a file, which is closed with the arena at the latest; NULL on failure, with errno */
FILE *arena_fopen(Arena *a, const char *path, const char *mode);
int arena_fclose(Arena *a, FILE *f);
/* maps the first n bytes of the open file for reading, until the arena is freed; NULL: errno */
const void *arena_map(Arena *a, const char *path, int fd, size_t n);
/* n zeros that take no memory; NULL: errno */
const void *arena_zeros(Arena *a, size_t n);
/* maps a whole regular file, until the arena is freed; fatal if it cannot be opened or is not
 * regular */
const FileMap *arena_file(Arena *a, const char *path);
void *arena_grow_(Arena *a, void *at, uint32_t *cap, size_t size);
void *arena_move_(Arena *a, const void *at, size_t bytes, size_t n, size_t size);

/* ---- text.c: a text that grows, begun with {.a = arena} ------------------------------------ */

/* indent: for the lines of generated programs (codegen/text.h) */
typedef struct Text { Arena *a; char *at; size_t n, cap; int indent; } Text;
void text_add(Text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_vadd(Text *t, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
const char *text_all(const Text *t);                    /* never NULL; valid until more is added */
const char *base_name(const char *path);                /* behind the last slash */

#define arena_new_of(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define arena_array(a, T, n) ((T *)arena_calloc((a), (size_t)(n), sizeof(T)))

/* A growable array in an arena: VEC(int) v = {0}; vec_push(a, &v, 7); v.at[i], v.n. */
#define VEC(T) struct { T *at; uint32_t n, cap; }
#define vec_push(a, v, x)                                                                          \
    ((v)->n == (v)->cap ? (void)((v)->at = (__typeof__((v)->at))arena_grow_(                       \
                                     (a), (v)->at, &(v)->cap, sizeof *(v)->at))                    \
                        : (void)0,                                                                 \
     (void)((v)->at[(v)->n++] = (x)))

/* The elements in an array of its own, with no room behind it: what is pushed moves it. */
#define vec_own(a, v)                                                                              \
    ((v)->at = arena_move_((a), (v)->at, (v)->n * sizeof *(v)->at, (v)->n + 1, sizeof *(v)->at),   \
     (void)((v)->cap = (v)->n))

/* Room for n elements in all; the new ones are zero. */
#define vec_reserve(a, v, n)                                                                       \
    ((v)->cap < (n) ? (void)((v)->at = arena_move_((a), (v)->at, (v)->cap * sizeof *(v)->at, (n),  \
                                                   sizeof *(v)->at),                               \
                             (v)->cap = (n))                                                       \
                    : (void)0)

#define NONE UINT32_MAX
uint32_t *arena_none(Arena *a, size_t n);                /* n times NONE */
typedef VEC(uint32_t) Ids; /* a list of numbers: of values, nodes, stages */
typedef VEC(const char *) Strings;
/* where x stands; NONE: it is not in the list */
static inline uint32_t ids_find(const Ids *list, uint32_t x)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] == x)
            return i;
    return NONE;
}
static inline bool ids_have(const Ids *list, uint32_t x) { return ids_find(list, x) != NONE; }
static inline void ids_add(Arena *a, Ids *list, uint32_t x) /* unless it is there */
{
    if (!ids_have(list, x))
        vec_push(a, list, x);
}

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
 *     gpt2.onnx: node 417 '/h.3/attn/MatMul' (MatMul), input 1: error: inner dimensions differ
 *     note: ...
 *     hint: ...
 * diag_note() and diag_hint() come first: they queue a line for the next error or warning.  Names
 * that come from a model are escaped (control bytes, NUL, invalid UTF-8) when they are printed.
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

/* Sets the place for diagnostics with WHERE_NONE.  w is kept, not copied; NULL: no place.
   Returns the previous place. */
const Where *diag_at(const Where *w);
/* The work in progress, innermost first: on an error each say() adds its notes and hints.
   diag_inside() keeps w, does not copy it, and returns the previous one. */
typedef struct Inside {
    const struct Inside *of;
    void (*say)(const void *about);
    const void *about;
} Inside;
const Inside *diag_inside(const Inside *w);
void diag_note(const char *fmt, ...) PRINTF_LIKE(1, 2);
void diag_hint(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A hint at the name that the word is nearest to; false: it is near none. */
bool diag_meant(const char *word, const char *const *names, size_t n);
/* Within the outermost diag_run() a warning with the same words is printed once. */
void diag_warn(Where w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* One of several errors: the caller counts them, and calls diag_raise() at the end. */
void diag_error(Where w, const char *fmt, ...) PRINTF_LIKE(2, 3);
NORETURN void diag_fatal(int exit_code, Where w, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* leave the phase, whose errors have been printed */
NORETURN void diag_raise(int exit_code);
NORETURN void die(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define BUG(...) die(__FILE__, __LINE__, __VA_ARGS__)
#define INSIST(c) ((c) ? (void)0 : BUG("%s", #c))
/*
 * Runs fn(arg).  Returns 0, or the exit code if diag_fatal(), diag_raise() or die() left it.
 * Every call that can fail must be inside diag_run(): outside, these three end the process.  Arenas
 * that fn used still exist afterwards and can be freed.  Numbers are read and printed as in the C
 * locale, whatever the caller's locale.
 */
int diag_run(void (*fn)(void *), void *arg);
/* The same without a word: what it says is *said, to be freed; NULL: it is forgotten.  A bug is
 * said, and ends what is around it. */
int diag_quietly(void (*fn)(void *), void *arg, char **said);
/* Fatal if a mapped file has become shorter; call it before giving an output made from that file
 * its final name. */
void diag_files(void);
/* Sets where this thread's diagnostics go (NULL: stderr).  Returns the previous stream. */
FILE *diag_to(FILE *f);

#ifdef __cplusplus
}
#endif
#endif

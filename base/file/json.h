/*
 * json.h - JSON, read from bytes that others wrote; and written.  Needs libc only.
 *
 * Readers skip white space before what they want.  They return 0, or -1 (json_text: NULL) with a
 * message in err, which names the byte and may be NULL; the first message stays.
 */
#ifndef PP_JSON_H
#define PP_JSON_H

#include "base/file/memory.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    const char *p, *end, *start;
    char *err;
    size_t nerr;
    int bad, depth; /* depth: how many objects and arrays are open; 64 at most */
    Pool *pool;     /* has the texts that are read, and keys; NULL: keys go after their members */
} Json;

__attribute__((format(printf, 2, 3))) int json_bad(Json *j, const char *fmt, ...);
void json_space(Json *j);
int json_char(Json *j, char c); /* 1: it was there, and is passed */
int json_expect(Json *j, char c);
int json_int(Json *j, int64_t *v);
int json_bool(Json *j, int *v);
/* Unescaped, in the pool. */
char *json_text(Json *j);
/* The same, cut to size. */
int json_word(Json *j, char *out, size_t size);
int json_number(Json *j, double *v); /* any number */
char json_peek(Json *j);             /* the first byte of what comes next; 0: the end */

/* Whole values.  member() and element() read the value that comes next; anything but 0 from them
 * ends the walk, as an error. */
int json_members(Json *j, int (*member)(void *of, Json *j, const char *key), void *of);
int json_elements(Json *j, int (*element)(void *of, Json *j), void *of);
int json_integers(Json *j, int64_t *list, int most, int *n); /* [3, 4]: n of them */
int json_skip(Json *j);

/* json_write.c.  What is written to f, one value after the other, with what stands between them.
 * key: of a member, NULL in an array. */
typedef struct {
    FILE *f;
    int compact; /* no space behind commas and colons */
    int lines;   /* members of what is so deep have a line each: 1, those of the outermost object */
    int depth, more; /* objects and arrays that are open; a value stands before in the last one */
} JsonOut;

void json_begin(JsonOut *o, const char *key, char bracket); /* '{' or '[' */
void json_end(JsonOut *o, const char *brackets);            /* "}", "]", or of several: "]}" */
/* A value as it is printed: a number, true, what is JSON already */
__attribute__((format(printf, 3, 4))) void json_put(JsonOut *o, const char *key, const char *fmt,
                                                    ...);
void json_put_text(JsonOut *o, const char *key, const char *text); /* NULL: null */
/* Its 17 digits read back exactly; null where it is not finite, of which JSON has no number */
void json_put_real(JsonOut *o, const char *key, double v);
void json_put_integers(JsonOut *o, const char *key, const int64_t *list, int n);

#endif

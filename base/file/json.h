/*
 * json.h - JSON, read from bytes that others wrote; strings written.  Needs libc only.
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

/* A string literal, quotes included. */
void json_write_string(FILE *f, const char *s);

#endif

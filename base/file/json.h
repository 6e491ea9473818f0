/*
 * json.h - JSON, as much of it as our files hold: strings, non-negative integers, true and false,
 * read from untrusted bytes; strings written.  Needs libc only.
 *
 * Readers skip white space before what they want.  They return 0, or -1 (json_text: NULL) with a
 * message in err that names the byte; the first message stays.
 */
#ifndef PP_JSON_H
#define PP_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    const char *p, *end, *start;
    char *err;
    size_t nerr;
    int bad;
} Json;

__attribute__((format(printf, 2, 3))) int json_bad(Json *j, const char *fmt, ...);
void json_space(Json *j);
int json_char(Json *j, char c); /* 1: it was there, and is passed */
int json_expect(Json *j, char c);
int json_int(Json *j, int64_t *v);
int json_bool(Json *j, int *v);
/* Unescaped, malloc'ed. */
char *json_text(Json *j);

/* A string literal, quotes included. */
void json_write_string(FILE *f, const char *s);

#endif

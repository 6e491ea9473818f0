/*
 * escape.h - private to base: what arena.c and diag.c, which calls it without memory of an arena,
 * share.
 */
#ifndef PPSPLIT_ESCAPE_H
#define PPSPLIT_ESCAPE_H

#include "base.h"

/* s in printable form, cut to size bytes. */
void escape_into(char *out, size_t size, const char *s);

#endif

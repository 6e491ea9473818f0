/*
 * escape.h - private to base: escaping of names, for arena.c, and for diag.c, which must not
 * allocate.
 */
#ifndef PPSPLIT_ESCAPE_H
#define PPSPLIT_ESCAPE_H

#include "base.h"

/* s in printable form, cut to size bytes. */
void escape_into(char *out, size_t size, const char *s);

#endif

/*
 * facts.h - what ranks have to agree on, one by one, so that a difference is said by its name: each
 * lists its facts in the same order, and all of them compare.
 */
#ifndef PP_FACTS_H
#define PP_FACTS_H

#include "net/group.h"

enum { FACT_TEXT = 400 };

typedef struct {
    uint64_t hash; /* 0: this rank has none, and may be without */
    char *text;    /* what it has: "--lr 0.01" */
    const char *why; /* the end of the message: what to do */
} Fact;

typedef struct {
    Fact *at;
    int n, cap;
    PpStatus status; /* of adding to it */
} Facts;

/* One more: its text, by which it is compared too */
__attribute__((format(printf, 3, 4))) void facts_add(Facts *f, const char *why, const char *fmt,
                                                     ...);
/* The newest one is compared by this alone; NULL: the rank has none, and may be without */
void facts_digest(Facts *f, const char *digest);
/* All ranks call it.  PP_ERR_MODEL on all where two differ: which ranks, in what. */
PpStatus facts_compare(Group *g, const Facts *f);
void facts_free(Facts *f);

#endif

/*
 * facts.h - facts that ranks must agree on.  Each rank lists them in the same order, and all
 * compare them one by one, so that a difference can be named.
 */
#ifndef PP_FACTS_H
#define PP_FACTS_H

#include "core/core.h"
#include "net/group.h"

enum { FACT_TEXT = 400 };

typedef struct {
    uint64_t hash; /* 0: this rank has none, and may be without */
    char text[FACT_TEXT]; /* what it has: "--lr 0.01" */
    const char *why; /* the end of the message: what to do */
} Fact;

typedef struct {
    Pool *pool; /* whose they are */
    Fact *at;
    int n;
    PpStatus status; /* of adding to it */
} Facts;

/* Adds a fact; it is compared by its text */
__attribute__((format(printf, 3, 4))) void facts_add(Facts *f, const char *why, const char *fmt,
                                                     ...);
/* The newest fact is compared by this alone; NULL: the rank has none, and needs none */
void facts_digest(Facts *f, const char *digest);
/* All ranks call it.  If two differ: PP_ERR_MODEL on all, naming the ranks and the fact. */
PpStatus facts_compare(Group *g, const Facts *f);

#endif

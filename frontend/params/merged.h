/*
 * merged.h - what merged.c (whose values were merged) and apart.c (nodes of their own) share.  Private
 * to them.
 */
#ifndef PPSPLIT_PARAMS_MERGED_H
#define PPSPLIT_PARAMS_MERGED_H

#include "fx.h"

enum { REACH = 6, MOST = 16 };                          /* nodes in a row; operands of one */

/* A reader's operand, made of `kept` parameters of one module; named: what its fx node calls it, or
 * NULL. */
typedef struct {
    RawNode *reader;
    uint32_t input;
    const char *named;
    const Group *inside; /* whose inner value it reads, or NULL */
    Ids kept;
} Gone;
typedef VEC(Gone) GoneList;

/* Parameters to be read instead of others. */
typedef struct {
    Ids from, to, entry;       /* entry: of `to` */
    const char *value, *named; /* what is computed, and what it is to be called */
    const RawNode *reader;     /* whose fx node it is part of, or NULL */
} Instead;

/* By group: how often, and by how many names, it is read. */
typedef struct {
    VEC(const char *) name;
    bool has_parts;
} Reading;

/* A copy's operand that another module made. */
typedef struct {
    RawNode *copy;
    uint32_t input;
} Again;

typedef struct {
    Fx *x;
    VEC(Again) again;
    StrMap maker, copy; /* value -> its node in the list; copies */
    RawNodes copies;
    Reading *reading;
    GoneList gone;
    bool *taken; /* by entry: given to readers here */
} Merge;

static inline size_t module_length(const char *target)
{
    return (size_t)(fx_leaf(target) - target);
}

/* ---- apart.c ---- */
const RawNode *merged_maker(const Merge *m, const char *name);     /* of a value, or NULL */
Group *merged_group(const Merge *m, const char *name);             /* that it is of, or NULL */
const char *merged_module(const Merge *m, const char *target);     /* the path of a parameter's */
const char *merged_name(const Merge *m, uint32_t id);
bool merged_can_compute(const Merge *m, const char *name, const char *scope, const Ids *from,
                        int depth);
const char *merged_compute(Merge *m, const char *name, const Instead *with, int depth);
const char *merged_renamed(Arena *a, const char *text, const char *from, const char *to);
void merged_redirect(Merge *m, const Gone *o, const char *other);
void merged_insert(Merge *m);

#endif

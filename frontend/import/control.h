/*
 * control.h - what the nodes with bodies share (body.c): control.c (If, SequenceMap) and loop.c
 * (Loop, Scan).
 */
#ifndef PPSPLIT_IMPORT_CONTROL_H
#define PPSPLIT_IMPORT_CONTROL_H

#include "driver.h"

typedef VEC(Slot) Slots;

typedef struct {
    ImportState *s;
    const RawNode *n;
    Slot *in;
    uint32_t origin; /* of the node, for what is made beside bodies */
} Control;

/* "node 3 'x' (If)" */
const char *control_text(const Control *c);

#define FATAL(c, input, ...)                                                                       \
    diag_fatal(EXIT_MODEL, raw_where((c)->s->m, (c)->n, input), __VA_ARGS__)

/* body.c: imports a copy of the body, its inputs being `in`; gives what it yields, of which so many
 * values are used. */
Slots control_body(const Control *c, const char *attr, const Slots *in, uint32_t used);
bool control_wanted(const Control *c, uint32_t out);
/* Which inputs decide operand 0, as text; *hint: the --bind that fixes them, or NULL. */
const char *control_inputs(const Control *c, const char **hint);
bool control_absent(const Control *c, uint32_t input);
/* What has no name yet gets the result's. */
void control_yield(const Control *c, uint32_t out, Slot slot);
/* Operand i as a known number; false when it depends on the data. */
bool control_known(const Control *c, uint32_t input, int64_t *number);
ValueId control_bool(const Control *c, ValueId v);      /* the one bool in it, without dims */
/* condition ? x : y, of one type and shape; or two sequences, of which one may begin with the
   other. */
Slot control_choose(const Control *c, ValueId condition, Slot x, Slot y);
void control_collect(const Control *c, Ids *list, Slot slot);

/* loop.c */
void import_loop(const Control *c);
void import_scan(const Control *c);

#endif

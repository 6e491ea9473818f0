/*
 * fields.h - structs of runtime/api/pp.h as they stand in pipeline.c.
 */
#ifndef PPSPLIT_FIELDS_H
#define PPSPLIT_FIELDS_H

#include "codegen/plan/plan.h"
#include "codegen/tables.h"

/* A struct, by its members. */
typedef struct Fields Fields;

/* Its numbers: those with the greatest lengths, or, within a function, expressions of them. */
typedef struct {
    SizesMet *sizes; /* NULL: no length varies */
    bool within;
} FieldSizes;

/* of a stage up to what its file defines, of a plan but for its stages and totals */
extern const Fields fields_stage, fields_plan, fields_const, fields_again, fields_conv,
    fields_total;

/* ".rank = 2, .dim = {8, 4}": its members that are not 0.  Lists are added to `before', called NAME
 * and the member; of constants and R, which have more than their members, only the name. */
const char *fields_text(const Fields *x, const char *name, const void *of, FieldSizes how,
                        Text *before);
/* "static const TYPE NAME[] = {...};" */
void fields_list(const Fields *x, const char *name, const void *at, int n, FieldSizes how, Text *t);

#endif

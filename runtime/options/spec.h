/*
 * spec.h - a row of the table of options, and its value: from the command line's text into Options,
 * and back.
 */
#ifndef PP_RUN_SPEC_H
#define PP_RUN_SPEC_H

#include "options/options.h"

#include <stddef.h>

typedef enum {
    K_TEXT,
    K_INT,
    K_LONG,
    K_BYTES,
    K_SEED,
    K_REAL,
    K_PAIR,
    K_FLAG,
    K_OPTIMIZER,
    K_PLACEMENT,
    K_DEVICE,
    K_TRANSPORT,
    K_OFFLOAD,
    K_LR_SCHEDULE,
    K_NONFINITE,
    K_LIST, /* repeatable */
    K_GROUP,
    /* beside one of these: it means nothing to other commands than train, or sample, which refuse
       it */
    TRAINS = 64,
    SAMPLES = 128
} Kind;
/* NUMBERS: it changes the numbers of a run: checkpoints hold it, and all ranks have the same value.
 * SAME: all ranks have, too.  GIVEN: all ranks have it or none, under the same names; what the
 * files hold is compared, or nobody but one rank writes them.  OWN: each rank's own. */
typedef enum { NUMBERS = 1, SAME, GIVEN, OWN } Scope;
typedef struct {
    const char *name;
    int kind;
    size_t at; /* in Options */
    double min;
    Scope scope;
    const char *value, *help;
} Spec;

#define AT(field) offsetof(Options, field)

static inline int kind_of(const Spec *s) { return s->kind & ~(TRAINS | SAMPLES); }

/* values.c: PP_ERR_USAGE after a message where the text is no value of the option */
PpStatus option_apply(Options *o, const Spec *s, const char *v);
/* its value as the command line takes it, "none" where it is off; NULL: out of memory.  names:
 * without files, the names that it was given for, or whether it was */
const char *option_text(const Options *o, const Spec *s, int names, Pool *pool);
/* the message about a word that is not in the list, with the one that may be meant */
PpStatus option_unknown(const char *what, const char *word, const char *const *list, int n);

#endif

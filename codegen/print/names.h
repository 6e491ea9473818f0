/*
 * names.h - what a name is made of: a buffer's in a stage's functions (names.c), an argument's in a
 * kernel (argument.c).
 */
#ifndef PPSPLIT_NAMES_H
#define PPSPLIT_NAMES_H

#include "target.h"

typedef struct Named {
    const char *path; /* the module, "transformer.h.2.attn"; "": the model itself */
    const char *own; /* what it is within the module, "weight", "matmul"; "": the module's result */
    const char *op;   /* the operation that makes it; "" */
    bool gradient;
    bool result;       /* read outside of the module */
    const char *fixed; /* it has this name, NULL: it is to get one */
} Named;

/* names.c */
/* "ln_1_weight", "d_c_attn": the module and what it is within, an identifier; of what is not the
   module's result the operation, too: "c_attn_mat_mul" */
const char *names_short(Arena *a, const Named *x);
/* of the step that is printed; in a loop what its turns have in common */
Named names_of_argument(const Out *o, const Step *s, uint32_t arg);

#endif

/* nearest.h - the name that was meant, for "did you mean". */
#ifndef PP_NEAREST_H
#define PP_NEAREST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The nearest of n names by edit distance, capitals or not, the first of several; NULL when none is
 * near.  Names that are NULL are passed over. */
const char *nearest_name(const char *word, const char *const *names, size_t n);

#ifdef __cplusplus
}
#endif
#endif

/* nearest.h - the name that was meant, for "did you mean". */
#ifndef PP_NEAREST_H
#define PP_NEAREST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The nearest of n names by edit distance, capitals or not, the first of several; of those that are
 * alike but for a number the one with the nearest; NULL when none is near.  Names that are NULL are
 * passed over. */
const char *nearest_name(const char *word, const char *const *names, size_t n);

/* Of a word that is none of n names, for the end of a message: "; did you mean 'x'?", or
 * "; there are 'x', 'y'", or, where those are more than fit, "; --help lists them". */
void nearest_text(const char *word, const char *const *names, size_t n, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif

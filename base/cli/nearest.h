/* nearest.h - the name that was meant, for "did you mean". */
#ifndef PP_NEAREST_H
#define PP_NEAREST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The name with the least edit distance to the word, whatever the capitals; the first where several
 * have it.  Where names differ from the word in a number only, the one with the nearest number.
 * NULL: no name is near.  Names that are NULL are passed over. */
const char *nearest_name(const char *word, const char *const *names, size_t n);

/* The end of a message about a word that is none of the n names: "; did you mean 'x'?", or
 * "; there are 'x', 'y'", or, where these do not fit, "; --help lists them". */
void nearest_text(const char *word, const char *const *names, size_t n, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif

/* output.h - the runtime's sources inside the compiler: a table made when the compiler is built. */
#ifndef PPSPLIT_OUTPUT_H
#define PPSPLIT_OUTPUT_H

#include <stddef.h>

typedef struct { const char *name; const unsigned char *data; size_t size; } EmbedFile;
extern const EmbedFile embed_file[];
extern const int embed_count;

#endif

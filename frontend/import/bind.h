/*
 * bind.h - what --bind says: sizes of the dimensions that a file names, values of inputs of one
 * element.
 */
#ifndef PPSPLIT_IMPORT_BIND_H
#define PPSPLIT_IMPORT_BIND_H

#include "state.h"

/* The text after the last '=' of "NAME=text", where NAME is this name. */
bool bind_option(const char *option, const char *name, const char **text);

/* What the file calls a dimension of an input: see DimName. */
DimName bind_name(const ImportOptions *opt, Arena *a, const Onnx__TensorShapeProto__Dimension *d,
                  const char *input, int i);
int64_t bind_size(const ImportOptions *opt, DimName d); /* -1: unbound */
int64_t bind_count(const ImportOptions *opt, const char *name); /* of a sequence; -1: unbound */

void bind_add(Symbols *s, Arena *a, const char *name); /* once */
/* The value that --bind gives an input, as a constant; NONE: none.  declared: its type in the file;
 * a dimension of the same name is meant before it. */
ValueId bind_value(ImportState *s, const char *name, Dtype declared, const Shape *shape, Where w,
                   Binds *all);
void bind_refuse_unbound(const ImportState *s, const Symbols *unbound);
/* A --bind that no model asks for is a mistake. */
void bind_check(const ImportOptions *opt, const Binds *all);

#endif

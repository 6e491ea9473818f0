/*
 * bind.h - what --bind says: sizes of the dimensions that a file names, values of inputs of one
 * element.
 */
#ifndef PPSPLIT_IMPORT_BIND_H
#define PPSPLIT_IMPORT_BIND_H

#include "driver.h"

/* The text after the last '=' of "NAME=text", where NAME is this name. */
bool bind_option(const char *option, const char *name, const char **text);

/* What the file calls a dimension of an input: see DimName. */
DimName bind_name(const ImportState *s, const Onnx__TensorShapeProto__Dimension *d,
                  const char *input, int i);
int64_t bind_size(const ImportState *s, DimName d);     /* -1: unbound */
/* Adds the names by which the size may be given: its own and, of a formula, its symbols'; unbound:
 * those that are to be given, of a formula not its own. */
void bind_add_names(const ImportState *s, Symbols *to, DimName d, bool unbound);
int64_t bind_count(const ImportOptions *opt, const char *name); /* of a sequence; -1: unbound */

void bind_add(Symbols *s, Arena *a, const char *name); /* once */
/* The value that --bind gives an input, as a constant; NONE: none.  declared: its type in the file;
 * a dimension of the same name is meant before it. */
ValueId bind_value(ImportState *s, const char *name, Dtype declared, const Shape *shape, Where w,
                   Binds *all);
void bind_refuse_unbound(const ImportState *s, const Symbols *unbound);
/* formula.c: the value of a formula of symbols, FORMULA_UNKNOWN: one has none (of() is -1); false:
 * it is none, but a name or nothing that is understood. */
#define FORMULA_UNKNOWN INT64_MIN
typedef int64_t SymbolValue(void *about, const char *symbol);
bool formula_read(Arena *a, const char *text, SymbolValue *of, void *about, int64_t *value);

/* A --bind that no model asks for is a mistake. */
void bind_check(const ImportOptions *opt, const Binds *all);

#endif

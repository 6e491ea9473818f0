/*
 * state.h - what the import driver knows while it walks one model.  Private to import.c and import_attr.c.
 */
#ifndef PPSPLIT_IMPORT_STATE_H
#define PPSPLIT_IMPORT_STATE_H

#include "import.h"
#include "frontend/onnx/read.h"

/* What a name of the model stands for. */
typedef struct { ValueId v; bool is_sequence; Ids sequence; } Slot;

typedef struct ImportState {
    Graph *g;
    Model *m;
    Params *params;                                     /* NULL: every initializer is a constant (a loss model) */
    Stops *stops;
    const ImportOptions *opt;
    int stage;                                          /* position of the file when there are several, or -1 */
    StrMap env;                                         /* name -> index into slot */
    VEC(Slot) slot;
} ImportState;

void import_define(ImportState *s, const char *name, Slot slot);
const Slot *import_slot(ImportState *s, const RawNode *n, uint32_t input);     /* NULL: absent */

#endif

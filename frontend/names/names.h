/*
 * names.h - the nodes of a model, and what their names and metadata tell: the module of a node, and
 * the notes of PyTorch's dynamo exporter.
 */
#ifndef PPSPLIT_NAMES_H
#define PPSPLIT_NAMES_H

#include "frontend/onnx/onnx.h"

/* ---- scope.c --------------------------------------------------------------------------------- */

/* The scope of a node, or NULL: from the metadata, else from slashes in its name or value.  *call:
 * the k of name_k or name@k. */
const char *scope_own(Arena *a, const char *name, const char *value, const char *name_scopes,
                      uint32_t *call);
/* Scope of a function call: its own, corrected by the initializers it takes. */
const char *scope_of_call(const Model *m, const char *own, uint32_t nin, const char *const *in);
void scope_assign(Model *m, RawNodes *list);            /* RawNode.scope and .call for all */

/* ---- inline.c -------------------------------------------------------------------------------- */

void inline_model(Model *m);                            /* fills m->node */
/* A copy of the graph in attribute attr of node n: its nodes, and the names of its inputs and
   outputs, made unique. */
typedef struct { RawNodes node; uint32_t nin, nout; const char **in, **out; } Body;
Body inline_body(Model *m, const RawNode *n, const char *attr);
/* How many nodes such a copy counts as: it is imported by itself, with tables of its own, and takes
   the memory of so many */
uint64_t inline_body_cost(const Onnx__GraphProto *g);
/* Calls fn with every outer name that the branches of n may read, or that its attributes name
   (Gradient). */
void inline_captured(Model *m, const RawNode *n, void (*fn)(void *, const char *), void *to);

/* ---- sort.c ---------------------------------------------------------------------------------- */

/* Orders nodes topologically, stably; a cycle is fatal. */
void sort_nodes(Model *m, RawNodes *list);

/* ---- meta.c: the dynamo exporter's strings --------------------------------------------------- */

/* "['', 'layers.0', 'layers.0.lin', 'linear']" -> its items. */
uint32_t meta_list(Arena *a, const char *text, const char ***item);

/* position: top-level argument; -1: keyword.  element: its place in a list of them, else -1 */
typedef struct { const char *name; int position, element; } FxArg;
typedef struct {
    const char *name, *target;                          /* "addmm", "aten.addmm.default" */
    uint32_t n;
    FxArg *arg;                                         /* the %names of its arguments, in order */
    bool scaled;                                        /* keyword beta, alpha or value is given */
} FxNode;
bool meta_fx(Arena *a, const char *text, FxNode *fx);
/* A number, True (1) or False among the arguments of a call of this target
 * ("aten.embedding.default"), by position or keyword: arguments for which ONNX has no attribute. */
bool meta_number(const char *text, const char *target, int position, const char *keyword,
                 double *v);

/* Whether a BatchNormalization normalises by the batch in training.  The dynamo exporter writes the
 * evaluation form even for one that PyTorch trains. */
bool meta_trains_norm(const RawNode *n);

typedef enum { SIG_PARAMETER, SIG_BUFFER, SIG_CONSTANT } SigKind;
typedef struct { const char *arg, *target; SigKind kind; bool persistent; } SigEntry;
typedef struct { uint32_t n; SigEntry *entry; StrMap by_arg, by_target; } Signature;
bool meta_signature(Arena *a, const char *text, Signature *sig);

#endif

/*
 * names.h - the nodes of a model, and what its names and metadata say: the module of a node, and
 * what the dynamo exporter of PyTorch writes beside it.
 */
#ifndef PPSPLIT_NAMES_H
#define PPSPLIT_NAMES_H

#include "frontend/onnx/onnx.h"

/* ---- scope.c --------------------------------------------------------------------------------- */

/* The scope the names say, or NULL: metadata first, then slashes in name or value.  call: k of a
 * name_k or name@k. */
const char *scope_own(Arena *a, const char *name, const char *value, const char *name_scopes,
                      uint32_t *call);
/* Scope of a function call: its own, corrected by the initializers it takes. */
const char *scope_of_call(const Model *m, const char *own, uint32_t nin, const char *const *in);
void scope_assign(Model *m, RawNodes *list);            /* RawNode.scope and .call for all */

/* ---- inline.c -------------------------------------------------------------------------------- */

void inline_model(Model *m);                            /* fills m->node */
/* A copy of the graph that is attribute attr of node n: its nodes, the names of what it takes and
   of what it yields; names are made unique. */
typedef struct { RawNodes node; uint32_t nin, nout; const char **in, **out; } Body;
Body inline_body(Model *m, const RawNode *n, const char *attr);
/* As how many nodes such a copy counts: it is imported by itself, with tables of its own, and takes as
   much memory as so many */
uint64_t inline_body_cost(const Onnx__GraphProto *g);
/* Calls fn with every name the branches of n may take from around them, or its attributes name
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
/* An argument that is a number, or True (1) or False, of a call of this target
 * ("aten.embedding.default"), by its position or its keyword: what PyTorch was told and ONNX has no
 * attribute for. */
bool meta_number(const char *text, const char *target, int position, const char *keyword,
                 double *v);

/* Does a BatchNormalization normalise by the batch when the model trains?  The dynamo exporter
 * writes the evaluation form of one that PyTorch was to train. */
bool meta_trains_norm(const RawNode *n);

typedef enum { SIG_PARAMETER, SIG_BUFFER, SIG_CONSTANT } SigKind;
typedef struct { const char *arg, *target; SigKind kind; bool persistent; } SigEntry;
typedef struct { uint32_t n; SigEntry *entry; StrMap by_arg, by_target; } Signature;
bool meta_signature(Arena *a, const char *text, Signature *sig);

#endif

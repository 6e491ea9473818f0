/*
 * names.h - what a model's names and metadata say: the module of a node, which operands are
 * parameters and how they are made of them, where no gradient passes.
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

/* ---- meta.c: the dynamo exporter's strings --------------------------------------------------- */

/* "['', 'layers.0', 'layers.0.lin', 'linear']" -> its items. */
uint32_t meta_list(Arena *a, const char *text, const char ***item);

/* position: top-level argument; -1: keyword */
typedef struct { const char *name; int position; } FxArg;
typedef struct {
    const char *name, *target;                          /* "addmm", "aten.addmm.default" */
    uint32_t n;
    FxArg *arg;                                         /* the %names of its arguments, in order */
    bool scaled;                                        /* keyword beta, alpha or value is given */
    uint32_t users;                                     /* the fx nodes that read it; 0: not said */
} FxNode;
bool meta_fx(Arena *a, const char *text, FxNode *fx);
/* An argument that is a number, of a call of this target ("aten.embedding.default"), by its
 * position or its keyword: what PyTorch was told and ONNX has no attribute for. */
bool meta_number(const char *text, const char *target, int position, const char *keyword,
                 double *v);

/* Does a BatchNormalization normalise by the batch when the model trains?  The dynamo exporter writes
 * the evaluation form of one that PyTorch was to train. */
bool meta_trains_norm(const RawNode *n);

typedef enum { SIG_PARAMETER, SIG_BUFFER, SIG_CONSTANT } SigKind;
typedef struct { const char *arg, *target; SigKind kind; } SigEntry;
typedef struct { uint32_t n; SigEntry *entry; StrMap by_arg, by_target; } Signature;
bool meta_signature(Arena *a, const char *text, Signature *sig);

/* ---- recipe.c -------------------------------------------------------------------------------- */

/* An operand made of parameters; the last term is the operand.  A VEC, which onnx.h speaks of by
 * its name. */
typedef struct {
    Op op;                                              /* OP_NONE: a parameter, or a constant */
    uint32_t nin, in[2];                                /* earlier terms */
    Attr attr;
    uint32_t param;                                     /* index into Graph.param, or NONE */
    Tensor value;
} Term;
typedef struct Recipe { Term *at; uint32_t n, cap; } Recipe;

Recipe *recipe_of(Arena *a, uint32_t param);
/* A further term; returns its number. */
uint32_t recipe_param(Arena *a, Recipe *r, uint32_t param);
uint32_t recipe_number(Arena *a, Recipe *r, Dtype t, double v);
/* y NONE: one operand */
uint32_t recipe_op(Arena *a, Recipe *r, Op op, Attr attr, uint32_t x, uint32_t y);
/* An op on the last term. */
void recipe_reshape(Arena *a, Recipe *r, const Shape *s);
void recipe_expand(Arena *a, Recipe *r, const Shape *s);
void recipe_transpose(Arena *a, Recipe *r, int rank, const int64_t *perm);
void recipe_swap(Arena *a, Recipe *r);                  /* two dims exchanged */
void recipe_slice(Arena *a, Recipe *r, int rank, const int64_t *start, const int64_t *size);
void recipe_gather(Arena *a, Recipe *r, int64_t n, const int64_t *index);      /* along dim 0 */
/* the parameter itself, transposed or not */
bool recipe_is_plain(const Recipe *r, bool *transposed);
bool recipe_is_view(const Recipe *r);                   /* a parameter, only viewed otherwise */
/* The file's type of operand `input`, made of parameters; param where it has no such initializer */
Dtype recipe_type(const Model *m, const RawNode *n, uint32_t input, Dtype param);
/* the parameter when there is only one, else NONE */
uint32_t recipe_only_param(const Recipe *r);
/* the same of another parameter, or NULL */
Recipe *recipe_with_other(Arena *a, const Recipe *r, uint32_t from, uint32_t to);
/* param NULL: those of g */
ValueId recipe_build(Graph *g, const Recipe *r, const ValueId *param);

/* ---- param_text.c: the source that a node's stack quotes; the rest: param_fx.h ------------------ */
const char *text_last(const char *stack);               /* the innermost line */
/* Names of fx nodes, "mul_3": the length without the number; are they of a kind, or of two? */
size_t fx_base(const char *name);
long fx_number(const char *name);                       /* 0: "mul" */
/* fx numbers nodes of one name as they are made: add, add_1, add_2.  Is one not in the index that
 * was made before number `last`, or may have been (last < 0: none is known)? */
bool fx_may_lack(Arena *a, const StrMap *index, const char *name, long last);
bool fx_is_base(const char *name, const char *base);
bool fx_is_one_of(const char *name, const char *const *base);  /* which ends in NULL */
bool fx_same_base(const char *a, const char *b);
bool fx_is_filled(const char *name);                    /* a number in a shape: "zeros_like" */

/* ---- stop.c: where no gradient passes -------------------------------------------------------- */

typedef struct {
    const ImportOptions *opt;
    /* per pattern of --stop-gradient: it matches something */
    bool *used;
} Stops;

Stops *stop_begin(Arena *a, const ImportOptions *opt);
/* a pattern matches, and is used from then on */
bool stop_named(const Stops *t, const char *name);
bool stop_marker(const RawNode *n);                     /* ppsplit::StopGradient */
struct Params;
/* Fills RawNode.stop_in and .stop_out of the nodes of one list; after param_assign. */
void stop_assign(Stops *t, const Model *m, struct Params *params, const RawNodes *list);
/* a pattern that matches nothing is a mistake */
void stop_check(const Stops *t, const Graph *g);

#endif

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
    bool scaled;                                        /* keyword beta or alpha is given */
} FxNode;
bool meta_fx(Arena *a, const char *text, FxNode *fx);
/* The row of an embedding (args: weight, indices, row) that gets no gradient; -1: none, or no
 * embedding. */
int64_t meta_padding_row(const char *text);

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
/* the parameter when there is only one, else NONE */
uint32_t recipe_only_param(const Recipe *r);
/* param NULL: those of g */
ValueId recipe_build(Graph *g, const Recipe *r, const ValueId *param);

/* ---- param_*.c: which operands are parameters ------------------------------------------------ */

typedef struct {
    Model *m;
    Graph *g;
    const ImportOptions *opt;
    /* position on the command line: tells equal names apart */
    uint32_t file;
    bool has_signature;
    Signature sig;
    /* index into Graph.param per entry of the signature, or NONE */
    uint32_t *sig_param;
    /* initializer, parameter name -> index into Graph.param */
    StrMap by_init, by_name;
    /* constants reported; results of Identities of initializers */
    StrMap noted, copies;
    struct Places *places;                              /* param_place.c */
    /* result of an Identity -> its initializer */
    StrMap copied;
    /* initializers that folding made and that may hold parameters */
    VEC(const char *) constant;
    /* given in files, and nothing in the model is made of them */
    VEC(const char *) unfit;
    /* weights that a BatchNormalization was multiplied into; what trains for an equal one */
    VEC(const char *) scaled, merged;
    /* parameters of which a use is not understood; of which folding left a trace */
    VEC(const char *) partial, inferred;
    uint32_t frozen_batchnorms;                         /* BatchNormalizations in evaluation form */
} Params;

enum { ROLE_ANY, ROLE_WEIGHT, ROLE_BIAS, ROLE_MEAN, ROLE_VAR };

/* param_assign.c: decides which operands of the nodes of a list are parameters; fills RawNode.made
 * and .bias. */
Params *param_begin(Model *m, Graph *g, const ImportOptions *opt, uint32_t file);
void param_assign(Params *p, RawNodes *list);
void param_report(const Params *p);                     /* the one warning of what will not train */

/* param.c: a parameter, an operand that is one */
uint32_t param_new(Params *p, const char *name, uint32_t init, bool transposed, bool trainable,
                   bool stat);
/* one the file lacks: all zeros */
uint32_t param_zero(Params *p, const char *name, Dtype type, const Shape *s);
/* one that no initializer is */
uint32_t param_put(Params *p, const char *name, Dtype type, const Shape *s, Payload bytes);
/* its true shape is a vector, the file adds dims of 1 */
void param_squeeze(Params *p, uint32_t id);
/* the operand is it, transposed or not */
void param_use(Params *p, RawNode *n, uint32_t input, uint32_t param, bool flip);
void param_use_rows(Params *p, RawNode *n, uint32_t input, uint32_t param, bool flip, int64_t start,
                    int64_t rows);
void param_use_made(Params *p, RawNode *n, uint32_t input, const Recipe *made);
static inline bool param_is_used(const RawNode *n, uint32_t input)
{
    return n->made && n->made[input];
}
/* what the operand is to the op: MatMul 1 is a weight, ... */
int param_role(const RawNode *n, uint32_t input);
/* one of the patterns of --freeze, --train */
bool param_matches(const char *const *pattern, uint32_t n, const char *name);
bool param_is_made_up(
    const char *name); /* "onnx::MatMul_355", "val_12", ...: not a module's name */

/* param_place.c: what the nodes around say, for the nodes of one list */
typedef struct Places Places;
void param_place(Params *p, const RawNodes *list);
/* param_role, and that of folded norms */
int param_place_role(const Params *p, const RawNode *n, uint32_t input);
/* PyTorch's name, or NULL */
const char *param_place_name(const Params *p, const RawNode *n, uint32_t input);
/* a vector in PyTorch, with dims of 1 in the file */
bool param_is_squeezed(const RawNode *n, const RawTensor *t);
bool param_is_buffer_name(const char *name);
bool param_is_buffer(const Params *p, const char *name);

void param_pieces(Params *p, const RawNodes *list);     /* param_pieces.c; after param_place */
void param_constants(Params *p, const RawNodes *list);  /* param_const.c; after all others */
/* param_fx.c; what its files share: param_fx.h */
void param_from_signature(Params *p, RawNodes *list);

/* param_file.c: what --param or --params-from has under this name, as type t; or NULL. */
const RawTensor *param_given(const Params *p, const char *name, Dtype t);
/* of all models */
void param_check_given(const ImportOptions *opt, uint32_t n, Params *const *p);

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
/* Fills RawNode.stop_in and .stop_out of the nodes of one list; after param_assign. */
void stop_assign(Stops *t, const Model *m, Params *params, const RawNodes *list);
/* a pattern that matches nothing is a mistake */
void stop_check(const Stops *t, const Graph *g);

#endif

/*
 * read.h - an .onnx file as the rest of the frontend sees it: mapped, checked against the limits, its
 * structure unpacked by protobuf-c, its functions inlined, its nodes in topological order.  Bytes of tensors
 * stay where they are, as Payloads.  Private to frontend/ and to export/, which writes a model back.
 */
#ifndef PPSPLIT_READ_H
#define PPSPLIT_READ_H

#include "frontend/frontend.h"
#include "onnx.pb-c.h"

/* ---- wire.c: the scan of the wire format ----------------------------------------------------- */

/* A run of tensor bytes lifted out of the structure: field is its number in TensorProto (9 = raw_data). */
typedef struct { uint64_t offset, length; uint32_t field; } WireRun;

typedef struct {
    VEC(WireRun) run;                                   /* TensorProto.payload is an index into it */
    uint8_t *structure;                                 /* the message without its tensors' bytes */
    size_t length;
    uint64_t messages, unpacked_bytes, hash;            /* counted, predicted, of the structure's bytes */
} Wire;

void wire_scan(Arena *a, const char *file, const uint8_t *at, size_t size, const Limits *lim, Wire *wire);
/* Walks packed varints; false when they are broken.  out may be NULL (count only). */

/* ---- external.c ------------------------------------------------------------------------------ */

typedef struct { const char *location; const char *path; const uint8_t *at; uint64_t size; } ExternalFile;
typedef struct { const char *folder_name; VEC(ExternalFile) file; } External;

/* The only road by which a model names another file.  expected: bytes the tensor's shape asks for. */
Payload external_bytes(struct Model *m, const Onnx__TensorProto *t, uint64_t expected, Where w);

/* ---- read.c ---------------------------------------------------------------------------------- */

/* A tensor of the file; dtype as the file has it, bytes little-endian and dense. */
typedef struct {
    const char *name;
    Dtype dtype;
    Shape shape;
    Payload bytes;
} RawTensor;

struct Frame;

/* recipe.c: an operand made of parameters; the last term is the operand. */
typedef struct {
    Op op;                                              /* OP_NONE: a parameter, or a constant */
    uint32_t nin, in[2];                                /* earlier terms */
    Attr attr;
    uint32_t param;                                     /* index into Graph.param, or NONE */
    Tensor value;
} Term;
typedef VEC(Term) Recipe;

/* One node after inlining.  Absent operands and outputs are "". */
typedef struct RawNode {
    const char *name, *op_type, *domain;
    int opset;                                          /* of its domain */
    uint32_t nin, nout, nattr;
    const char **in, **out;
    Onnx__AttributeProto **attr;                        /* references resolved */
    uint32_t index;                                     /* of the top-level node in the file */
    bool dead;                                          /* nothing the model yields needs it */
    bool inlined;                                       /* part of a function's or a branch's body */
    int pipeline_stage;                                 /* -1: none */
    const char *name_scopes, *fx_node, *stack;          /* dynamo metadata, or NULL */
    const char *call_scope;                             /* scope of the function call it was inlined from, or NULL */
    const char *scope;                                  /* scope.c */
    uint32_t call;                                      /* scope.c: which call of a module this is */
    const Recipe **made;                                /* param.c: per operand how it is made of parameters, or NULL; or NULL */
    bool *stop_in, *stop_out;                           /* stop.c: no gradient passes this operand, this result; or NULL */
    uint32_t bias;                                      /* param.c: parameter to add to output 0, or NONE */
    const struct RawNode *copy_of;                      /* param_equal.c: not in the file, a copy of this node for another parameter; or NULL */
    bool renamed;                                       /* param_equal.c: an operand is a copy's result */
    struct Frame *frame;                                /* inline.c: names and attributes its subgraphs see */
} RawNode;

typedef VEC(RawNode *) RawNodes;

struct Model {
    Arena *arena;
    const char *path;
    const uint8_t *at;                                  /* the mapped file */
    size_t size;
    Limits limits;
    Wire wire;
    External external;
    Onnx__ModelProto *proto;
    Onnx__GraphProto *graph;
    VEC(RawTensor) init;
    StrMap init_index;                                  /* initializer name -> index into init */
    StrMap module;                                      /* every module path that owns an initializer -> 1 */
    RawNodes node;
    uint32_t inlined_nodes;                             /* against limits.nodes */
    StrMap prefix, function;                            /* inline.c: name prefixes in use, functions by key */
    bool from_pytorch;
};

void tensor_read(Model *m, const Onnx__TensorProto *t, Where w, RawTensor *out);
/* Dense elements of a computable type: small integers, halves and bools are widened; fatal for what cannot be. */
Tensor tensor_widen(Arena *a, const RawTensor *t, Where w);
const char *metadata_get(size_t n, Onnx__StringStringEntryProto **entry, const char *key);
const Onnx__AttributeProto *raw_attr(const RawNode *n, const char *name);       /* NULL when absent */
int64_t raw_int(const RawNode *n, const char *name, int64_t dflt);
Where raw_where(const Model *m, const RawNode *n, int input);

/* ---- inline.c -------------------------------------------------------------------------------- */

void inline_model(Model *m);                            /* fills m->node */
/* The nodes of branch attr (a graph) of node n, names made unique; out: what the branch yields. */
void inline_branch(Model *m, const RawNode *n, const char *attr, RawNodes *list, uint32_t *nout, const char ***out);
/* Calls fn with every name the branches of n may take from around them. */
void inline_captured(Model *m, const RawNode *n, void (*fn)(void *, const char *), void *to);
/* Orders nodes topologically, stably; a cycle is fatal. */
void sort_nodes(Model *m, RawNodes *list);

/* ---- scope.c --------------------------------------------------------------------------------- */

/* The scope the names say, or NULL: metadata first, then slashes in name or value.  call: k of a name_k or name@k. */
const char *scope_own(Arena *a, const char *name, const char *value, const char *name_scopes, uint32_t *call);
/* Scope of a function call: its own, corrected by the initializers it takes. */
const char *scope_of_call(const Model *m, const char *own, uint32_t nin, const char *const *in);
void scope_assign(Model *m, RawNodes *list);            /* RawNode.scope and .call for all */

/* ---- meta.c: the dynamo exporter's strings ---------------------------------------------------- */

/* "['', 'layers.0', 'layers.0.lin', 'linear']" -> its items. */
uint32_t meta_list(Arena *a, const char *text, const char ***item);

typedef struct { const char *name; int position; } FxArg;  /* position: top-level argument; -1: keyword */
typedef struct {
    const char *name, *target;                          /* "addmm", "aten.addmm.default" */
    uint32_t n;
    FxArg *arg;                                         /* the %names of its arguments, in order */
    bool scaled;                                        /* keyword beta or alpha is given */
} FxNode;
bool meta_fx(Arena *a, const char *text, FxNode *fx);
/* The row of an embedding (args: weight, indices, row) that gets no gradient; -1: none, or no embedding. */
int64_t meta_padding_row(const char *text);

typedef enum { SIG_PARAMETER, SIG_BUFFER, SIG_CONSTANT } SigKind;
typedef struct { const char *arg, *target; SigKind kind; } SigEntry;
typedef struct { uint32_t n; SigEntry *entry; StrMap by_arg, by_target; } Signature;
bool meta_signature(Arena *a, const char *text, Signature *sig);

/* ---- recipe.c -------------------------------------------------------------------------------- */

Recipe *recipe_of(Arena *a, uint32_t param);
/* A further term; returns its number. */
uint32_t recipe_param(Arena *a, Recipe *r, uint32_t param);
uint32_t recipe_const(Arena *a, Recipe *r, Tensor value);
uint32_t recipe_number(Arena *a, Recipe *r, Dtype t, double v);
uint32_t recipe_op(Arena *a, Recipe *r, Op op, Attr attr, uint32_t x, uint32_t y);     /* y NONE: one operand */
/* An op on the last term. */
void recipe_reshape(Arena *a, Recipe *r, const Shape *s);
void recipe_expand(Arena *a, Recipe *r, const Shape *s);
void recipe_transpose(Arena *a, Recipe *r, int rank, const int64_t *perm);
void recipe_swap(Arena *a, Recipe *r);                  /* two dims exchanged */
void recipe_slice(Arena *a, Recipe *r, int rank, const int64_t *start, const int64_t *size);
void recipe_gather(Arena *a, Recipe *r, int64_t n, const int64_t *index);      /* along dim 0 */
bool recipe_is_plain(const Recipe *r, bool *transposed);       /* the parameter itself, transposed or not */
uint32_t recipe_only_param(const Recipe *r);            /* the parameter when there is only one, else NONE */
ValueId recipe_build(Graph *g, const Recipe *r, const ValueId *param);         /* param NULL: those of g */

/* ---- param.c, param_place.c, param_pieces.c, param_fx.c (param_fx.h) ---------------------------------------------------------------------- */

typedef struct {
    Model *m;
    Graph *g;
    const ImportOptions *opt;
    uint32_t file;                                      /* position on the command line: tells equal names apart */
    bool has_signature;
    Signature sig;
    uint32_t *sig_param;                                /* index into Graph.param per entry of the signature, or NONE */
    StrMap by_init, by_name;                            /* initializer, parameter name -> index into Graph.param */
    StrMap noted, copies;                               /* constants reported; results of Identities of initializers */
    struct Places *places;                              /* param_place.c */
    StrMap copied;                                      /* result of an Identity -> its initializer */
    VEC(const char *) constant;                         /* initializers that folding made and that may hold parameters */
    VEC(const char *) unfit;                            /* given in files, and nothing in the model is made of them */
    VEC(const char *) scaled, merged;                   /* weights that a BatchNormalization was multiplied into; what trains for an equal one */
    VEC(const char *) partial, inferred;                /* parameters of which a use is not understood; of which folding left a trace */
    uint32_t frozen_batchnorms;                         /* BatchNormalizations in evaluation form */
} Params;

enum { ROLE_ANY, ROLE_WEIGHT, ROLE_BIAS, ROLE_MEAN, ROLE_VAR };

Params *param_begin(Model *m, Graph *g, const ImportOptions *opt, uint32_t file);
/* Decides which operands of the nodes are parameters: makes the Params, fills RawNode.param, .flip, .bias. */
void param_assign(Params *p, RawNodes *list);
void param_report(const Params *p);                     /* the one warning of what will not train */
uint32_t param_new(Params *p, const char *name, uint32_t init, bool transposed, bool trainable, bool stat);
uint32_t param_zero(Params *p, const char *name, Dtype type, const Shape *s);  /* one the file lacks: all zeros */
uint32_t param_put(Params *p, const char *name, Dtype type, const Shape *s, Payload bytes);    /* one that no initializer is */
void param_squeeze(Params *p, uint32_t id);             /* its true shape is a vector, the file adds dims of 1 */
/* The operand is the parameter, transposed or not. */
void param_use(Params *p, RawNode *n, uint32_t input, uint32_t param, bool flip);
/* The operand is some rows of it. */
void param_use_rows(Params *p, RawNode *n, uint32_t input, uint32_t param, bool flip, int64_t start, int64_t rows);
void param_use_made(Params *p, RawNode *n, uint32_t input, const Recipe *made);
static inline bool param_is_used(const RawNode *n, uint32_t input) { return n->made && n->made[input]; }
int param_role(const RawNode *n, uint32_t input);       /* what the operand is to the op: MatMul 1 is a weight, ... */
bool param_is_made_up(const char *name);                /* "onnx::MatMul_355", "val_12", ...: not a module's name */
/* param_place.c: what the nodes around say, for the nodes of one list */
typedef struct Places Places;
void param_place(Params *p, const RawNodes *list);
int param_place_role(const Params *p, const RawNode *n, uint32_t input);       /* param_role, and that of folded norms */
const char *param_place_name(const Params *p, const RawNode *n, uint32_t input);       /* PyTorch's name, or NULL */
bool param_is_squeezed(const RawNode *n, const RawTensor *t);   /* a vector in PyTorch, with dims of 1 in the file */
bool param_is_buffer_name(const char *name);
bool param_is_buffer(const Params *p, const char *name);
void param_pieces(Params *p, const RawNodes *list);     /* param_pieces.c; after param_place */
void param_constants(Params *p, const RawNodes *list);  /* param_const.c; after all others */
void param_from_signature(Params *p, RawNodes *list);    /* param_fx.c */
/* param_file.c: what --param or --params-from has under this name, as type t; or NULL. */
const RawTensor *param_given(const Params *p, const char *name, Dtype t);
void param_check_given(const ImportOptions *opt, uint32_t n, Params *const *p);       /* of all models */

/* ---- stop.c: where no gradient passes -------------------------------------------------------- */

typedef struct {
    const ImportOptions *opt;
    bool *used;                                         /* per pattern of --stop-gradient: it matches something */
} Stops;

Stops *stop_begin(Arena *a, const ImportOptions *opt);
bool stop_named(const Stops *t, const char *name);      /* a pattern matches, and is used from then on */
bool stop_marker(const RawNode *n);                     /* ppsplit::StopGradient */
/* Fills RawNode.stop_in and .stop_out of the nodes of one list; after param_assign. */
void stop_assign(Stops *t, const Model *m, Params *params, const RawNodes *list);
void stop_check(const Stops *t, const Graph *g);        /* a pattern that matches nothing is a mistake */

#endif

/*
 * fx.h - shared by the files that read the dynamo exporter's notes: fx.c (which parameter an
 * operand was), make.c (makes them), tie.c (a parameter's bytes in another arrangement), folded.c
 * (parameters of which folding left only a trace).  Private to them.
 */
#ifndef PPSPLIT_PARAMS_FX_H
#define PPSPLIT_PARAMS_FX_H

#include "params.h"

/* An operand that is an initializer.  entry: of the signature, or NONE; group: of its node, or NONE
 */
typedef struct {
    RawNode *node;
    uint32_t input, init, entry, group;
    /* the file holds it transposed, or a view of it with dims of 1 added */
    bool flip, squeezed;
} Use;
typedef VEC(Use) Uses;
typedef struct {
    uint32_t entry;
    int role;
    bool taken;
} Argument;
typedef VEC(Argument) Arguments;

typedef struct {
    FxNode fx;
    Arguments arg;
    VEC(RawNode *) node;
} Group;

typedef struct Known Known;

/* What an initializer was computed from, if the file says so: parameters, by their entries, and the
 * fx nodes between. */
typedef struct {
    Ids entry;
    VEC(const char *) step;
    bool is_told;
} MadeOf;

/* By entry: claim: which parameter may be tied to it; used: whether a node reads it; alias: whether
 * it is another name of a parameter. */
typedef struct {
    Params *p;
    Arena *a;
    RawNodes *list;
    StrMap index; /* fx node -> its group */
    VEC(Group) group;
    Uses all;
    uint32_t *claim;
    bool *used, *alias;
    MadeOf *origin;            /* by initializer; origin.c; NULL: no file says so */
    VEC(Param) given;          /* folded.c: parameters of --params-from that the file lacks */
    IdMap known_of;            /* tie.c: parameter -> in known */
    VEC(struct Known *) known;
} Fx;

/* A parameter that operands may be made of: of the graph, or, from GIVEN on, of Fx.given. */
enum { GIVEN = 1 << 30 };

/* An operand that folding made. */
typedef struct Trace {
    const Use *use; /* the first such use */
    const RawTensor *tensor;
    const char *fx;       /* the fx node that was folded: "expand_4" */
    bool done, is_turned; /* transposed after that node */
} Trace;
typedef VEC(Trace) Traces;

/* ---- group.c ---- */
bool fx_is_target(const FxNode *fx, const char *target); /* "aten.linear." */
int fx_use_role(const FxNode *fx, const RawNode *n, uint32_t input);
bool fx_has_bias(const FxNode *fx);
bool fx_is_norm(const FxNode *fx);
/* a product with a BatchNormalization folded into it, whose arguments the fx node has */
bool fx_has_norm(const FxNode *fx, const RawNode *n);
/* over groups of channels: scaled and shifted by nodes of its own */
bool fx_is_decomposed_norm(const FxNode *fx);
uint32_t fx_group(Fx *x, const RawNode *n); /* its number, or NONE */
static inline Group *fx_group_of(const Fx *x, const Use *u)
{
    return u->group == NONE ? NULL : &x->group.at[u->group];
}
bool fx_is_control(const FxNode *fx);     /* its arguments are its bodies' */
bool fx_is_own(const char *target, const char *scope); /* of the module with that scope */
const char *fx_leaf(const char *target);

/* How many of the steps that lead to it, the last one included, are of these kinds; NULL: of
   any. */
uint32_t fx_steps(const Fx *x, const Trace *t, const char *const *base);

/* ---- make.c ---- */
void fx_make(Fx *x); /* the parameters that uses name */
void fx_make_entry(Fx *x, uint32_t entry);
/* notes that one of its uses is not understood */
void fx_lacks(Fx *x, uint32_t entry, const char *as);
/* biases that were dropped because they are zero */
void fx_restore(Fx *x);
void fx_refuse_shared(const Fx *x, const Use *u);

/* ---- recurrent.c ---- */
bool fx_is_recurrent(const FxNode *fx);
void fx_unpack(Fx *x); /* the matrices of recurrent layers */
/* the same of TorchScript's, where folding has packed them */
void param_recurrent(Params *p, const RawNodes *list);

/* ---- tie.c ---- */
/* How the tensor is made from the parameter's bytes (transposed, reshaped, cut, expanded,
 * gathered), or NULL. */
Recipe *tie_exact(Fx *x, uint32_t param, const RawTensor *t);
/* How it is a * parameter + b (linear), or a * f(parameter) + b for a function of one operand, or
 * NULL.  told: the trace, where the file says that it was computed of this parameter: then it may
 * be of one of its rows, or of few numbers; else NULL */
Recipe *tie_function(Fx *x, uint32_t param, const RawTensor *t, bool linear,
                     const Trace *told);
/* Those functions; step: what the source calls them; inverse: where that alone says which it is. */
typedef struct {
    double (*fn)(double), (*inverse)(double);
    Op op;
    const char *step[3];
} TieFunction;
enum { TIE_FUNCTIONS = 11 };
extern const TieFunction tie_functions[TIE_FUNCTIONS];
void tie_record(Arena *a, Recipe *r, Dtype t, Op op, double factor, double addend);
const Param *tie_param(const Fx *x, uint32_t param);

/* ---- origin.c ---- */
void fx_origins(Fx *x); /* reads what the optimizer noted */
bool fx_is_origin(const Fx *x, uint32_t init, uint32_t entry);
bool fx_is_unread(const Fx *x, uint32_t entry);
/* Whether something computed from it is read, but not understood. */
bool fx_is_traced(const Fx *x, uint32_t entry);
/* The only unread parameter that the initializer was computed from, SEVERAL, or NONE: the file does
 * not say, or all are known. */
#define SEVERAL (NONE - 1)
uint32_t fx_unread_origin(const Fx *x, uint32_t init);
/* notes known parameters that an initializer was computed from but its reader is not made from */
void fx_note_origin(Fx *x, const Use *u);

/* ---- undo.c ---- */
/* The recipe reads parameter 0.  plain: the bytes are the initializer's; turned: with two dims
 * exchanged; of rows: none. */
typedef struct {
    Shape shape;
    Payload bytes;
    Recipe *recipe;
    bool plain, turned;
} Undone;
extern const char *const fx_turns[]; /* kinds of fx nodes that exchange dims */
/* The recipe of a function of a parameter whose name is all that the file says was done, of however
 * few numbers.  undone: NULL: the parameter is known; else its numbers, by the inverse. */
Recipe *undo_told(Fx *x, const Trace *t, uint32_t param, void **undone);
/* The parameter behind a trace, when the operations can be undone. */
bool undo(Fx *x, const Trace *t, Undone *out);
/* The parameter of which the traces are the rows, in their order. */
bool undo_rows(Fx *x, Trace *const *t, uint32_t n, Undone *out);
/* Is it of a row by select; plain: and that itself? */
bool undo_is_row(const Fx *x, const Trace *t, bool plain);

/* ---- numbers.c ---- */
double raw_number(const RawTensor *t, int64_t i); /* element i of floats */
bool raw_is_constant(const RawTensor *t);         /* are all elements the same? */
/* Whether b has the numbers of a, as they are or with two dims exchanged. */
typedef enum { NOT_SAME, SAME, SAME_TURNED } Same;
Same raw_same(const RawTensor *a, const RawTensor *b);
int raw_wide_dims(const Shape *s); /* of more than one element */
/* Are the parts of so many slices along dim d all the same?  They divide it. */
bool raw_repeats(const RawTensor *t, int d, int64_t slices);
/* The elements at index 0 of every dim that `once` has as 1. */
Payload raw_first(Arena *a, const RawTensor *t, const Shape *once);

/* ---- merged.c ---- */
void fx_refuse_merged(Fx *x);

/* ---- folded.c ---- */
void fx_fold(Fx *x); /* handles operands that no argument explains */
/* By TorchScript, or of its nodes by ONNX Runtime's optimizer: "/wpe/Gather_output_0". */
bool param_is_folded(const Params *p, const RawTensor *t);

#endif

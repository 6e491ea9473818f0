/*
 * params.h - which operands of a model are parameters, their names, and how operands are made from
 * parameters.
 */
#ifndef PPSPLIT_PARAMS_H
#define PPSPLIT_PARAMS_H

#include "frontend/names/names.h"

/* ---- recipe.c -------------------------------------------------------------------------------- */

/* An operand made from parameters; its last term is the operand.  A VEC with a name, for onnx.h. */
typedef struct {
    Op op;               /* OP_NONE: a parameter, or a constant */
    uint32_t nin, in[2]; /* earlier terms */
    Attr attr;
    uint32_t param; /* index into Graph.param, or NONE */
    Tensor value;
} Term;
typedef struct Recipe {
    Term *at;
    uint32_t n, cap;
} Recipe;

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
void recipe_swap(Arena *a, Recipe *r); /* two dims exchanged */
void recipe_slice(Arena *a, Recipe *r, int rank, const int64_t *start, const int64_t *size);
void recipe_gather(Arena *a, Recipe *r, int64_t n, const int64_t *index); /* along dim 0 */
/* the parameter itself, transposed or not */
bool recipe_is_plain(const Recipe *r, bool *transposed);
bool recipe_is_view(const Recipe *r); /* a view of a parameter */
/* The type in the file of operand `input`, which is made from parameters; `param` if it has no
 * initializer */
Dtype recipe_type(const Model *m, const RawNode *n, uint32_t input, Dtype param);
/* the parameter when there is only one, else NONE */
uint32_t recipe_only_param(const Recipe *r);
/* param NULL: those of g */
ValueId recipe_build(Graph *g, const Recipe *r, const ValueId *param);

/* ---- group.c; the rest: fx.h ---------------------------------------------------------------- */
/* Names of fx nodes such as "mul_3": whether they are of one of these kinds; whether two are of the
 * same kind. */
bool fx_is_one_of(const char *name, const char *const *base); /* which ends in NULL */
bool fx_same_base(const char *a, const char *b);

/* ---- which operands are parameters ----------------------------------------------------------- */

/* The slots in which a value is read, as flags; the most telling first. */
enum {
    SLOT_WEIGHT = 1,
    SLOT_BIAS = 2,
    SLOT_SCALE = 4,     /* of a norm, of a PRelu */
    SLOT_OTHER = 8,     /* recurrence, fused operators */
    SLOT_FEATURE = 16,  /* added to, multiplied by what parameters made */
    SLOT_JOINED = 32,   /* concatenated with such a value */
    SLOT_NAMED = 64,    /* any other operand */
    SLOT_OF_DATA = 128, /* subtracted from data, or their divisor */
    SLOT_LOSS = 256,    /* combined with a label */
    SLOT_STATISTIC = 512,
    SLOT_FREQUENCY = 1024, /* times positions, under a sine */
    SLOT_NEVER = 2048,
    SLOT_ANGLE = 4096 /* with SLOT_FREQUENCY: a sine follows */
};

/* as: the flags; node, input: the operand that gave the first of them */
typedef struct {
    uint32_t as;
    const RawNode *node;
    uint32_t input;
} SlotRead;

/* Whether an array trains, or why not, from its slot, name and numbers. */
typedef enum {
    RULE_TRAINS,
    RULE_NOT_READ,
    RULE_ONE_DIM,
    RULE_ONE_NUMBER,
    RULE_NUMBERS,
    RULE_LITERAL,
    RULE_NO_NAME,
    RULE_OF_DATA,
    RULE_LOSS,
    RULE_STATISTIC,
    RULE_FREQUENCY,
    RULE_NEVER
} Verdict;

/* Names of parameters that do not train as in PyTorch; report.c reports them. */
typedef struct {
    Strings constant;  /* folded initializers that may contain parameters */
    Strings unfit;     /* given with --params-from, but nothing in the model is made from them */
    Strings scaled;    /* weights that a BatchNormalization was multiplied into */
    Strings doubtful;  /* taken for buffers by name or slot only */
    Strings repeating; /* taken for parameters, although their numbers look like a buffer's */
    Strings partial;   /* one of the parameter's uses is not understood */
    Strings inferred;  /* found from what folding left */
    uint32_t frozen_batchnorms; /* BatchNormalizations in evaluation form */
} Lost;

/* made_of: how each value is made; reading: by array, the index of its SlotRead; narrow: products
 * with one column; named: PyTorch's exporter wrote it, with parameters in initializers */
typedef struct {
    StrMap made_of, reading, narrow;
    VEC(SlotRead) readings;
    bool named;
} SlotReads;

typedef struct Params {
    Model *m;
    Graph *g;
    const ImportOptions *opt;
    /* position on the command line: tells equal names apart */
    uint32_t file;
    uint32_t first_param; /* of this file, in Graph.param */
    bool has_signature;
    Signature sig;
    /* names of a body's arguments -> entry; of the model's they are in sig */
    StrMap body_arg;
    /* index into Graph.param per entry of the signature, or NONE */
    uint32_t *sig_param;
    /* the exporter's optimizer has changed no array of the file */
    bool is_whole;
    /* initializer, parameter name -> index into Graph.param */
    StrMap by_init, by_name;
    /* parameters that the file marks as not training ("ppsplit.frozen") */
    StrMap frozen;
    /* constants reported */
    StrMap noted;
    struct Buffers *buffers; /* buffers.c */
    const RawNodes *list;    /* assign.c: whose operands are being assigned */
    /* its Identities of initializers -> these; those that are copies of parameters -> in list */
    StrMap copied, copies;
    SlotReads slot;          /* slot.c */
    Lost lost;               /* report.c */
} Params;

enum { ROLE_ANY, ROLE_WEIGHT, ROLE_BIAS, ROLE_MEAN, ROLE_VAR };

/* assign.c: decides which operands of the nodes of a list are parameters; fills RawNode.made
 * and .bias. */
Params *param_begin(Model *m, Graph *g, const ImportOptions *opt, uint32_t file);
void param_assign(Params *p, RawNodes *list);
/* Call these before and after importing a body of n, for the names of its arguments; pass the
 * result of param_enter to param_leave. */
StrMap param_enter(Params *p, const RawNode *n);
void param_leave(Params *p, StrMap before);
/* report.c: warns of what will not train, and fills Graph.files.array */
void param_report(Params *p);
/* report.c: warns of what is true of a list's members, "what: a, b and 7 more", with a hint or NULL
 */
void param_say(const Model *m, const char *hint, const char *what, const Strings *list);
/* The initializer of this name, or that of which it is the Identity; NULL: none */
const RawTensor *param_array(const Params *p, const char *name);
/* params.c: a parameter, an operand that is one */
uint32_t param_new(Params *p, const char *name, uint32_t init, bool transposed, bool trainable,
                   bool stat);
/* a parameter that the file lacks: all zeros */
uint32_t param_zero(Params *p, const char *name, Dtype type, const Shape *s);
/* a parameter that is not an initializer */
uint32_t param_put(Params *p, const char *name, Dtype type, const Shape *s, Payload bytes);
/* its true shape is a vector, the file adds dims of 1 */
void param_squeeze(Params *p, uint32_t id);
/* the operand is it, transposed or not */
void param_use(Params *p, RawNode *n, uint32_t input, uint32_t param, bool flip);
void param_use_made(Params *p, RawNode *n, uint32_t input, const Recipe *made);
static inline bool param_is_used(const RawNode *n, uint32_t input)
{
    return n->made && n->made[input];
}
/* what the operand is to the op: MatMul 1 is a weight, ... */
int param_role(const RawNode *n, uint32_t input);
/* whether --train names it; whether --freeze or the file freezes it */
bool param_thawed(const Params *p, const char *name);
bool param_frozen(const Params *p, const char *name);
bool param_is_made_up(
    const char *name); /* "onnx::MatMul_355", "val_12", ...: not a module's name */
/* Whether an exporter of PyTorch gives such a name only to parameters (or to them and buffers), or,
 * for other tools, whether it ends as names of parameters do */
bool param_is_named(const Params *p, const char *name);
bool param_is_leaf_name(const char *name); /* "conv.weight", "dense/kernel:0" */

/* buffers.c: floats named or placed like buffers */
typedef struct Buffers Buffers;
void param_find_buffers(Params *p);
bool param_is_buffer_name(const char *name);
bool param_is_buffer(const Params *p, const char *name);
bool param_is_doubtful_buffer(const Params *p, const char *name);

/* folded.c: finds known parameters inside folded constants */
void param_constants(Params *p, RawNodes *list);
/* slot.c: param_slots before the others; by: its first reader, or NULL */
void param_slots(Params *p, const RawNodes *list);
/* Whether the numbers are usual initial values (all the same, or a diagonal), so that two such
 * arrays may be equal by chance */
bool param_is_equal_by_chance(const RawTensor *t);
Verdict param_rule(const Params *p, const RawTensor *t, const SlotRead **by);
/* fx.c; what its files share: fx.h */
void param_from_signature(Params *p, RawNodes *list);

/* numbers.c, for floats whose numbers are present.  Numbers that were not learned: an attention
 * mask has an infinity, or nearly one; */
bool param_is_mask(const Graph *g, const RawTensor *t);
/* a mask, or sines and cosines of positions: the first are all 0, or all the largest; */
bool param_is_table(const Graph *g, const RawTensor *t);
/* consecutive numbers along a dimension, or a few repeated ones: grids, filters, frequencies */
bool param_is_regular(const Graph *g, const RawTensor *t);

/* file.c: what --params-from has under this name, as type t; or NULL. */
const RawTensor *param_given(const Params *p, const char *name, Dtype t);
/* after param_report: the parameters, of all models, take the numbers of --params-from */
void param_take_given(Params *p);
uint32_t param_given_names(const Params *p, const char *const **name);

#endif

/*
 * fx.h - what the parts of the dynamo exporter's reading share: fx.c (which parameter
 * an operand was), make.c (makes them), tie.c (a parameter's bytes in another
 * arrangement), fold.c (what folding left only a trace of).  Private to them.
 */
#ifndef PPSPLIT_PARAMS_FX_H
#define PPSPLIT_PARAMS_FX_H

#include "params.h"

/* entry: of the signature, or NONE.  rows: how many from start on the operand is; 0: all of it.
 * copies: how often it has the parameter, a vector, one behind the other; 0: once. */
typedef struct {
    RawNode *node;
    uint32_t input, init, entry, order;                 /* order: of the node in the list */
    /* the file holds it transposed, or a view of it with dims of 1 added */
    bool flip, squeezed;
    int64_t start, rows, copies;
} Use;
typedef VEC(Use) Uses;
typedef struct { uint32_t entry; int role; bool taken; } Argument;
typedef VEC(Argument) Arguments;

typedef struct {
    FxNode fx;
    Uses use;
    Arguments arg;
    VEC(RawNode *) node;
    uint32_t order;                                     /* of its first node in the list */
} Group;

typedef struct Known Known;

/* What an initializer was computed of, where the file says so: parameters, by their entries, and
 * the fx nodes between. */
typedef struct {
    Ids entry;
    VEC(const char *) step;
    bool is_told;
} MadeOf;

/* claim: by entry, who may be tied to it.  used: by entry, some node reads it.  alias: by entry,
 * another name of a parameter. */
typedef struct {
    Params *p;
    Arena *a;
    RawNodes *list;
    StrMap index;                                       /* fx node -> its group */
    VEC(Group) group;
    Uses loose, all;                                    /* without a group; everything */
    uint32_t *claim;
    /* given: by entry, the user gave it in a file */
    bool *used, *alias, *given;
    MadeOf *origin;                                     /* by initializer; origin.c */
    VEC(struct Known *) known;                          /* tie.c */
    /* equal.c and after: value -> the node that makes it; a copied node's values */
    StrMap maker, copy;
    RawNodes copies;
    uint32_t *readers;                                  /* of groups, before any was separated */
} Fx;

/* ---- group.c ---- */
bool fx_is_target(const FxNode *fx, const char *target);       /* "aten.linear." */
int fx_use_role(const FxNode *fx, const RawNode *n, uint32_t input);
bool fx_has_bias(const FxNode *fx);
bool fx_is_norm(const FxNode *fx);
/* over groups of channels: scaled and shifted by nodes of its own */
bool fx_is_decomposed_norm(const FxNode *fx);
Group *fx_group(Fx *x, const RawNode *n);               /* NULL: none */
bool fx_is_control(const FxNode *fx);                   /* its arguments are its bodies' */
/* Of addcmul(a, b, c) the first factor is value * b, where value is 1: b's name; else NULL. */
const char *fx_once(Fx *x, const Use *u);

/* ---- make.c ---- */
void fx_make(Fx *x);                                    /* the parameters that uses name */
void fx_make_entry(Fx *x, uint32_t entry);
/* u reads it: the like-named one of u's module is another name of it */
void fx_tied(Fx *x, const Use *u, uint32_t entry);
/* the unread entry that is called like this one, but of u's module, or NONE */
uint32_t fx_like_named(const Fx *x, const Use *u, uint32_t entry);
/* one of its uses, called so, is not understood */
void fx_lacks(Fx *x, uint32_t entry, const char *as);
/* biases that were dropped because they are zero */
void fx_restore(Fx *x);
bool fx_is_shared(const Fx *x, const Use *u);
void fx_separate(Fx *x, const Use *u);

/* ---- origin.c ---- */
void fx_origins(Fx *x);                                 /* reads what the optimizer noted */
bool fx_is_origin(const Fx *x, uint32_t init, uint32_t entry);
bool fx_is_unread(const Fx *x, uint32_t entry);
/* Was something computed of it that is read, and of which is not known what it is? */
bool fx_is_traced(const Fx *x, uint32_t entry);
/* The only parameter that it was computed of, where that is unread; NONE: the file does not say, or
 * all are known. */
#define SEVERAL (NONE - 1)
uint32_t fx_unread_origin(const Fx *x, uint32_t init);
/* known parameters that an initializer was computed of, and that its reader is not made of */
void fx_note_origins(Fx *x);

/* ---- recurrent.c ---- */
bool fx_is_recurrent(const FxNode *fx);
void fx_unpack(Fx *x);                                  /* the matrices of recurrent layers */

/* ---- tie.c ---- */
/* Is the tensor made of the parameter's own bytes (transposed, reshaped, cut, expanded, gathered)?
 * Or NULL. */
Recipe *tie_exact(Fx *x, uint32_t param, const RawTensor *t);
/* Is it a * parameter + b (linear), or a * f(parameter) + b for a function of one operand?  Or
 * NULL. */
Recipe *tie_function(Fx *x, uint32_t param, const RawTensor *t, bool linear);

/* Is it v * g / |v|, g and v parameters of one module (weight normalisation)?  Or NULL. */
Recipe *tie_weight_norm(Fx *x, uint32_t g, uint32_t v, const RawTensor *t);
/* Is it parameters beside each other along some dimension?  Or NULL.  rest: what stands behind
 * those that are known, if anything. */
typedef struct { RawTensor tensor; int axis; } Rest;
Recipe *tie_pieces(Fx *x, const RawTensor *t, Rest *rest);
Recipe *tie_rest(Fx *x, Recipe *all, const Rest *rest, const Recipe *r);

/* ---- text.c ---- */
enum { TEXT_ARGUMENTS = 8 };
typedef struct {
    const char *name, *arg[TEXT_ARGUMENTS];
    uint32_t n;
} TextCall;                                             /* "[]": an index */
bool text_reads(const char *stack, const char *path);   /* ".path" */
bool text_names(const char *stack, const char *leaf);
uint32_t text_place(const char *line, const char *leaf);
uint32_t text_calls(Arena *a, const char *stack, const char *leaf, TextCall *call, uint32_t most);
bool text_wraps(Arena *a, const char *line, const char *path);
bool text_applies(const char *stack, const char *function, const char *leaf);
/* "exp(self.A_log)": of nothing else, by no other argument */
bool text_is_of(const char *stack, const char *function, const char *leaf);
/* "path[3]": which row the line reads; ROW_VARIABLE where it is computed, or several are read. */
typedef enum { ROW_UNSAID, ROW_NUMBER, ROW_VARIABLE } RowText;
RowText text_row(Arena *a, const char *line, const char *path, int64_t *row);
/* n slices "path[a:b]" of numbers that follow each other, from the first index to the last. */
bool text_slices(Arena *a, const char *stack, const char *path, const int64_t *size, uint32_t n);

/* Whose parameter it is, seen from a scope. */
typedef enum { FAR, NEAR, OWN } Distance;
Distance fx_distance(const char *target, const char *scope);
const char *fx_leaf(const char *target);
/* What a line in a scope's module calls a parameter: its path from there. */
const char *fx_path_from(const char *target, const char *scope);
bool fx_is_near(const RawNode *n, const char *target);
bool fx_reads(const RawNode *n, const char *target); /* near, and the node's line reads it */

/* ---- infer.c ---- */
typedef struct {
    const Use *use;                                     /* the first of those that read it so */
    const RawTensor *tensor;                            /* what that fx node yielded */
    /* the file holds it with its two dims exchanged */
    bool turned;
    const char *fx; /* the fx node that was folded: "expand_4" */
    uint32_t entry;                                     /* what it may be made of, or NONE */
    /* how surely: the greatest of an entry's traces decide */
    int evidence;
    bool done;
    int64_t row, rows;                                  /* infer_rows: which rows it is */
} Trace;
typedef VEC(Trace) Traces;
/* The recipe reads parameter 0.  plain: its bytes are the initializer's; turned: with two dims
 * exchanged; in_order: nothing says which row is which but the order in which they are read. */
typedef struct {
    Shape shape;
    Payload bytes;
    Recipe *recipe;
    bool plain, turned, in_order;
} Inferred;
/* The parameter behind a trace, when the operations can be told and undone. */
bool infer(Fx *x, const Trace *t, Inferred *out);
/* A part of the parameter as it stands, by what is told of it. */
bool trace_is_plain_part(Fx *x, const Trace *t);

/* ---- rows.c ---- */
/* The parameter of which the traces are the rows, or runs of rows. */
bool infer_rows(Fx *x, Trace *const *t, uint32_t n, Inferred *out);

/* ---- origin.c, of traces ---- */
/* How many of the steps to it, the last one included, are of one of these kinds. */
uint32_t fx_steps(const Fx *x, const Trace *t, const char *const *base);
/* false: by what the file says, infer() cannot tell what was done */
bool fx_can_be_undone(Fx *x, const Trace *t);

/* ---- table.c ---- */
bool infer_table(Fx *x, const RawTensor *tensor, Inferred *out);
double raw_number(const RawTensor *t, int64_t i);        /* element i of floats */

/* ---- equal.c ---- */
void fx_separate_equal(Fx *x);
void fx_separate_views(Fx *x);
void fx_insert_copies(Fx *x);                           /* of nodes, into the list */
uint32_t fx_make_equal(Fx *x, uint32_t entry, uint32_t id);    /* the entry's, with that one's bytes */

/* ---- doubt.c ---- */
/* A square matrix that equals its transpose, and the reader names that. */
bool fx_is_turned(Fx *x, const Use *u);
/* Uses of a parameter's initializer by readers that name something else: it, or said. */
void fx_settle_doubted(Fx *x, const Traces *all);
/* names the parameters that an open trace may have been made of */
void fx_note_open(Fx *x, const Traces *all, const Trace *t);

/* ---- equal.c, for twin.c and part.c ---- */
void fx_index_makers(Fx *x);                            /* of the list as it is now */
const RawNode *fx_maker(const Fx *x, const char *name); /* of a value; NULL: no node of the list */
bool fx_is_gone(const Fx *x, const char *name);         /* an argument that the file does not have */
/* This parameter trains with the gradient of a lost one. */
void fx_say_merged(Fx *x, uint32_t id, const char *lost);
bool fx_is_said_merged(Fx *x, uint32_t id);
/* An operand that its reader's fx node names, and that is gone: what is read instead is computed of
 * parameter id.  is_sure: no other operand of the reader may be it. */
typedef struct { RawNode *reader; uint32_t input, id; const char *named; bool is_sure; } Gone;
typedef VEC(Gone) GoneList;
/* All those of a kind with what is read instead, computed of a parameter of this module, or, where
 * that is NULL, of any. */
GoneList fx_find_gone(Fx *x, const char *module);
/* Parameters to be read instead of others.  scope: of the nodes that do, or NULL: as they were.
 * of: whose fx node they are part of, or NULL: of their own. */
typedef struct {
    const uint32_t *from, *to;
    uint32_t n;
    const char *scope;
    const RawNode *of;
} Instead;
/* Is the operand computed of parameters `from`, so that it can be computed of others? */
bool fx_can_compute_instead(Fx *x, const RawNode *reader, uint32_t input, const Instead *in);
const char *fx_compute_instead(Fx *x, const RawNode *reader, uint32_t input, const Instead *in);
void fx_redirect(Fx *x, RawNode *reader, uint32_t input, const char *other);

/* ---- twin.c ---- */
void fx_separate_twins(Fx *x);
/* after all others: values with more readers than they had say whose gradients may be in them */
void fx_note_surplus(Fx *x);

/* ---- part.c ---- */
void fx_separate_parts(Fx *x);

/* ---- trace.c ---- */
/* The fx name of an operand that was folded: the initializer's, unless several were merged into one
 * or folding went on below fx. */
const char *trace_name(Fx *x, const Use *u);
void trace_collect(Fx *x, Traces *out);
/* Did folding yield this under another name, in place of which the initializer stands, its
 * equal? */
bool trace_is_merged(Fx *x, const Trace *t);
void trace_give(Fx *x, Trace *t, Recipe *r);            /* to all operands that are this trace */
void trace_tie(Fx *x, Trace *t);                        /* to a known parameter, where it is one */
/* ... made as one that was recovered for another module's */
void trace_tie_alike(Fx *x, const Traces *all, Trace *t);

/* ---- recover.c ---- */
/* Several parameters in one tensor, of which one may be in the file in no other way. */
void trace_tie_joined(Fx *x, Trace *t);
void trace_recover(Fx *x, Traces *all);                 /* what the unread parameters left */
/* A weight or bias of the reader's module by its place, as plain as it stands. */
void trace_match_place(Fx *x, const Trace *t);

/* ---- fold.c ---- */
void fx_fold(Fx *x);                                    /* operands that no argument explains */

#endif

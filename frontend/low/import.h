/*
 * import.h - the contract between the import driver (import.c) and the op importers
 * (frontend/ops/).
 *
 * The driver walks the ONNX nodes in topological order.  For each it resolves operands to values,
 * sets graph.cur_origin, checks the row of ops.def (number of inputs, opset), and calls the
 * importer named in the row's IMPORT column: void import_NAME(Import *im).  The importer calls
 * builders and fills im->out[]. The driver then gives the values their ONNX names, so importers
 * never name anything.
 */
#ifndef PPSPLIT_IMPORT_H
#define PPSPLIT_IMPORT_H

#include "frontend/frontend.h"

struct RawNode;                                         /* onnx/onnx.h */

typedef struct Import {
    Graph *g;
    Arena *arena;
    Op op;                                              /* the row: OP_Relu, OP_Gemm, ... */
    const char *op_type;
    int opset;                                          /* of the node's domain */
    uint32_t nin, nout;                                 /* as the node has them */
    /* NONE: absent (or a sequence: im_sequence) */
    const ValueId *in;
    /* to be filled; NONE on entry; those not im_wanted() may stay NONE */
    ValueId *out;
    bool training;                                      /* a loss is asked for */
    bool biased;            /* running variances are of n elements, not of n - 1 as in PyTorch */
    /* the type of result 0 in the file, if it is narrower than in the graph; DT_NONE on entry */
    Dtype declared;
    struct ImportState *state;                          /* the driver's */
    const struct RawNode *node;                         /* the driver's */
} Import;

/* Operand i, NONE when absent or past the end. */
static inline ValueId im_in(const Import *im, uint32_t i) { return i < im->nin ? im->in[i] : NONE; }

bool im_wanted(const Import *im, uint32_t out);         /* the node names this output */
/* untold.c: for an embedding: the row without gradient, or -1 */
int64_t im_padding_row(const Import *im);
/* whether the text of PyTorch's call, which dynamo leaves, has this part */
bool im_calls(const Import *im, const char *text);
/* untold.c: for a Max, Min or Clip with a constant: whether it is torch.maximum or a clamp by
 * tensors, which share the gradient where both are equal; a clamp by numbers has none there */
bool im_shares_ties(const Import *im);
/* for a ReduceMax or ReduceMin along an axis: whether it is max(dim), which gives the gradient to
 * the element whose index it returns, and not amax, where equal elements share it */
bool im_has_index(const Import *im, int axis);
/* drops.c: im_drops: whether a Dropout with that ratio drops in training.  im_lost_dropout: for a
 * Softmax, the ratio of the Dropout after it that dynamo's optimizer removed, else 0 */
bool im_drops(const Import *im, double ratio);
double im_lost_dropout(const Import *im);
/* a number in PyTorch's call that the node does not have, found by meta_number() */
bool im_told(const Import *im, const char *target, int position, const char *keyword, double *v);

/* Attributes.  A wrong type is a fatal diagnostic; an absent attribute gives dflt or false. */
bool im_has(const Import *im, const char *name);
/* im_int and im_ints are for positions, sizes and counts: they clamp to 2^60, so that sums of a few
 * do not overflow.  im_value_ is for numbers that are computed with: it does not clamp. */
int64_t im_int(const Import *im, const char *name, int64_t dflt);
bool im_value_int(const Import *im, const char *name, int64_t *v);
bool im_value_ints(const Import *im, const char *name, int64_t **at, int *n);
Dtype im_dtype(const Import *im, const char *name, Dtype dflt); /* DT_NONE: none of ONNX's */
double im_float(const Import *im, const char *name, double dflt);
const char *im_str(const Import *im, const char *name, const char *dflt);
bool im_ints(const Import *im, const char *name, int64_t **at, int *n);
bool im_floats(const Import *im, const char *name, double **at, int *n);
bool im_strings(const Import *im, const char *name, const char ***at, int *n);
/* small integer and half types arrive widened */
bool im_tensor(const Import *im, const char *name, Tensor *t);

/* The type that operand i has in the file; DT_NONE: that of the graph. */
Dtype im_declared(const Import *im, uint32_t i);

/* ops/type.c: reduces result 0 of integer arithmetic held in a wider type modulo 2^n; uses
 * im->declared if the result does not have operand 0's type. */
void low_wrap_result(Import *im);

/* ops/custom.c: the row of --ops for this node; NULL: none */
const CustomOp *custom_find(const CustomOps *ops, const struct RawNode *n);
void import_custom(Import *im);

/* Where to point a diagnostic: at this node, operand i (-1: none). */
Where im_where(const Import *im, int input);

/* The elements of a constant integer operand; fatal when it is not known at import (with the hint
 * --bind).  _ints: places and sizes, as im_int; _values: as they are. */
void im_const_ints(const Import *im, int input, int64_t **at, int64_t *n);
void im_const_values(const Import *im, int input, int64_t **at, int64_t *n);
/* The value of a constant scalar operand; dflt when absent; fatal when not constant. */
double im_const_double(const Import *im, int input, double dflt);
int64_t im_const_int(const Import *im, int input, int64_t dflt);

/* Imports the graph of an attribute in place, its one input being x; gives its one output. */
ValueId im_graph(const Import *im, const char *name, ValueId x);

/* Sequences: a raw value may be a list of values.  im_sequence is fatal if operand i is not one, or
 * if its length depends on the data; there: as in Slot. */
void im_sequence(const Import *im, int input, Ids *list);
void im_sequence_there(const Import *im, int input, Ids *list, Ids *there);
void im_set_sequence(Import *im, uint32_t out, Ids list, Ids there);

/* The importers: every IMPORT(f) of the table is void import_f(Import *). */
#define OP(name, lo, hi, since, import, ...) import
#define COMPOSITE(name, lo, hi, since, ...) void OPS_FN(__VA_ARGS__, ~)(Import *im);
#define FOREIGN(domain, name, lo, hi, ...) void OPS_FN(__VA_ARGS__, ~)(Import *im);
#define IMPORT(...) void OPS_FN(__VA_ARGS__, ~)(Import *im);
#define NOIMPORT
#include "ir/ops.def"
#undef IMPORT
#undef NOIMPORT

#endif

/*
 * frontend.h - turns .onnx files into a checked, shaped, constant-folded Graph.
 *
 * In: a path.  Out: a Graph whose nodes are the core ops of ops.def, in topological (file) order.
 */
#ifndef PPSPLIT_FRONTEND_H
#define PPSPLIT_FRONTEND_H

#include "ir/ir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- onnx/read.c, names/open.c: the file ----------------------------------------------------- */

typedef struct {
    /* what a file may have at most: limits_default(), --limit */
    uint64_t file_bytes, messages, unpacked_bytes;
    uint32_t depth, nodes;
    bool absent;                    /* files of weights may be missing: --params none */
} Limits;
Limits limits_default(void);

/* a mapped, checked, unpacked file: onnx/onnx.h */
typedef struct Model Model;

Model *model_open(Arena *a, const char *path, const Limits *lim);

/* ---- import/import.c: Model -> Graph --------------------------------------------------------- */

/* Dropouts without a training mode: drop if the model's others do, or if PyTorch's metadata says
 * so; never; always. */
typedef enum { DROPOUT_OF_ATTENTION, DROPOUT_AS_WRITTEN, DROPOUT_TRAIN } DropoutMode;

/* ---- low/custom.c: operations of the user's own, a row of a table each ----------------------- */

typedef struct {
    CustomAttr of;                  /* without numbers, and its gradient's */
    Strings input;                  /* names that the table has for them */
    VEC(const char *) source;       /* files with the functions, .c and .cu */
    const char *path;               /* of the table */
} CustomOp;
typedef struct {
    VEC(CustomOp *) op;
} CustomOps;
/* Adds a table's rows; a wrong row is fatal, with its line. */
void custom_read(CustomOps *ops, const char *path, Arena *a);

typedef struct {
    CustomOps custom;
    Strings bind;                             /* "seq=128" */
    struct GraphLeft *left; /* one of these dimensions has a range of sizes: Graph.lengths.left */
    /* patterns (fnmatch) over parameter names */
    Strings freeze, train;
    /* patterns over names of values and nodes: no gradient passes */
    Strings stop;
    Strings chunk;                            /* "INPUT=DIM" or "INPUT=replicate" */
    Strings params_from;                      /* files of parameters */
    Limits limits;
    DropoutMode dropout;
    /* there is a loss: parameters train, with warnings for those that cannot; listing: they are
       only listed, and none is refused that would train with a part of its gradient */
    bool training, listing;
    /* d y / d wrt[i] over a list of nodes, NONE if unreached: autodiff's grad_nodes(), which this
       room must not include; NULL: a node Gradient is refused */
    void (*gradient)(Graph *g, const NodeId *list, uint32_t n, ValueId y, uint32_t nwrt,
                     const ValueId *wrt, ValueId *dwrt);
} ImportOptions;

/*
 * Several models run in sequence: outputs of one feed the inputs of the next by position; a path
 * given twice is a module used twice and shares its parameters.  Origin.pipeline_stage then holds
 * the file's position.
 */
Graph *import_models(Arena *a, uint32_t n, const char *const *path, const ImportOptions *opt);
/* Imports a loss model (--loss model:FILE), whose inputs 0 and 1 are the output and the target, and
 * returns its first output.  *target is a new input `target` of the type and shape of its input 1,
 * or NONE if it has no such input. */
ValueId import_loss_model(Graph *g, const char *path, const ImportOptions *opt, ValueId output,
                          ValueId *target);

/* params/params.c: param_bytes() writes a parameter in PyTorch's shape and its own type:
 * transposed back, or zeros if it was restored. */
/* Releases the memory of the models' mapped files until their bytes are read again. */
void models_rest(const Graph *g);
size_t param_size(const Param *p);
/* out [cols, rows] of in [rows, cols], of elements of so many bytes */
void param_turn(uint8_t *out, const uint8_t *in, int64_t rows, int64_t cols, size_t size);
void param_bytes(const Param *p, void *out);

#ifdef __cplusplus
}
#endif
#endif

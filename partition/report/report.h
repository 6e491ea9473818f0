/*
 * report.h - what the reports share: the Pipe as a list of calls, and how values are written.
 * For those who report, here and in planner/.
 */
#ifndef PPSPLIT_REPORT_INT_H
#define PPSPLIT_REPORT_INT_H

#include "partition/partition.h"

typedef enum {
    CALL_PLACEHOLDER,
    CALL_STAGE,
    CALL_GETITEM,
    CALL_LOSS,
    CALL_BACKWARD,
    CALL_ADD,
    CALL_OUTPUT
} CallKind;
typedef VEC(const char *) Names;

/* One node of the top-level graph.  Names are ours: letters, digits and underscores, unique. */
typedef struct {
    CallKind kind;
    const char *name;
    uint32_t stage, index; /* CALL_STAGE, CALL_BACKWARD; CALL_GETITEM: which item */
    const char *of;        /* CALL_GETITEM: of what; CALL_BACKWARD: stage_output */
    Names args;            /* CALL_BACKWARD: input_values */
    Names grads;           /* CALL_BACKWARD: output_grads, NULL for None */
    const char *note;      /* printable text for people */
} Call;

typedef struct {
    VEC(Call) forward, backward;
    Call output;
} Calls;

Calls calls_of(const Pipe *p, Arena *a); /* calls.c */

/* ---- modules.c, flows.c: the model as boxes, each in one stage ---- */

/* Operations: nodes of a module that lie in none of those inside it, named by their kinds. */
typedef enum { BOX_MODULE, BOX_OPERATIONS, BOX_INPUT, BOX_OUTPUT } BoxKind;
typedef struct {
    BoxKind kind;
    const char *name;          /* "h.0.attn", "h.1 ... h.3", "Add"; the model's, untrusted */
    uint32_t stage, nodes;     /* nodes of the training forward */
    int64_t parameters, flops; /* elements that it is the first of its stage to read; forward */
} ModuleBox;
/* From box to box.  A value that several boxes of another stage read counts at the first of them,
 * so that values and bytes are those that cross. */
typedef struct {
    uint32_t from, to;
    EdgeKind kind;
    uint32_t values;
    int64_t bytes;    /* per microbatch at full rows; of parameters, once a step */
    const char *name; /* of the one value; NULL: none, or several */
} ModuleFlow;
typedef struct {
    VEC(ModuleBox) box;
    VEC(ModuleFlow) flow;
} ModuleGraph;
ModuleGraph module_graph(const Pipe *p, Arena *a);

/* text.c */
const char *value_text(const Graph *g, Arena *a,
                       ValueId v); /* "name f32[4,8] batch 0", printable */
/* the i-th output under its own name */
const char *output_text(const Graph *g, Arena *a, uint32_t i);
const char *count_text(Arena *a, int64_t n);     /* "12.3 M" */
const char *bytes_text(Arena *a, int64_t n);     /* "1.50 MiB" */
const char *time_text(Arena *a, double seconds); /* "1.5 ms": three digits */
const char *shell_word(Arena *a, const char *s); /* as it is, or in quotes */
const char *html_text(Arena *a, const char *s);  /* html.c: printable and escaped */
const char *edge_kind(EdgeKind k);
const char *box_kind(BoxKind k);
const char *use_name(Use u);
/* a parameter's own name, else the value's */
const char *param_or_value_name(const Graph *g, ValueId v);
const char *join_names(Arena *a, const Names *names, const char *before, const char *between);

#endif

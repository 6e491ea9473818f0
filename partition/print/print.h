/*
 * print.h - what the printed forms of a Pipe share: the Pipe as a list of calls, and how values,
 * counts and times are written.  report/, planner/ and command/ write them in the same way.
 */
#ifndef PPSPLIT_PRINT_H
#define PPSPLIT_PRINT_H

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

/* What members do together: of a microbatch, in order. */
typedef struct {
    uint32_t stage;
    const char *pass; /* "forward", "backward" */
    const Node *node;
} Meeting;
typedef VEC(Meeting) Meetings;
Meetings meetings_of(const Pipe *p, Arena *a); /* calls.c */

/* text.c */
const char *value_text(const Graph *g, Arena *a,
                       ValueId v); /* "name f32[4,8] batch 0", printable */
/* the i-th output under its own name */
const char *output_text(const Graph *g, Arena *a, uint32_t i);
const char *count_text(Arena *a, int64_t n);     /* "12.3 M" */
const char *bytes_text(Arena *a, int64_t n);     /* "1.50 MiB" */
const char *time_text(Arena *a, double seconds); /* "1.5 ms": three digits */
const char *shell_word(Arena *a, const char *s); /* as it is, or in quotes */
const char *edge_kind(EdgeKind k);
const char *use_name(Use u);
Ids replicas_of(const Pipe *p, Arena *a, uint32_t param); /* the stages that hold a copy */
/* a parameter's own name, else the value's */
const char *param_or_value_name(const Graph *g, ValueId v);
const char *join_names(Arena *a, const Names *names, const char *before, const char *between);

#endif

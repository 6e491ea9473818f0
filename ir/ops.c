/*
 * ops.c - ops.def as data: names, kinds and the support table of `ppsplit ops`.
 */
#include <string.h>

#include "ir.h"

typedef enum { CODE_MAP, CODE_KERNEL, CODE_VIEW, CODE_LOWERED, CODE_COMPOSITE } CodeKind;
typedef enum { GRADIENT_YES, GRADIENT_NO, GRADIENT_LOWERED } Gradient;

typedef struct {
    const char *name;
    int lo, hi, since;
    Gradient gradient;
    CodeKind kind;
    const char *text;                                   /* the MAP expression, or the emitter's kind */
} Row;

static const Row rows[OP_COUNT] = {
    [OP_NONE] = {"none", 0, 0, 0, GRADIENT_NO, CODE_COMPOSITE, NULL},
#define G_GRAD(f) GRADIENT_YES
#define G_NOGRAD GRADIENT_NO
#define G_VIA_LOWERING GRADIENT_LOWERED
#define C_MAP(text) CODE_MAP, #text
#define C_KERNEL(kind) CODE_KERNEL, #kind
#define C_VIEW CODE_VIEW, NULL
#define C_CODE_LOWER(f) CODE_LOWERED, #f
#define C_VIA_LOWERING CODE_COMPOSITE, NULL
#define OP(name, lo, hi, since, import, shape, grad, code) \
    [OP_##name] = {#name, lo, hi, since, G_##grad, C_##code},
#include "ops.def"
#undef OP
};

const char *op_name(Op op) { return rows[op < OP_COUNT ? op : OP_NONE].name; }

Op op_find(const char *name)
{
    for (int i = OP_NONE + 1; i < OP_COUNT; i++)
        if (!strcmp(rows[i].name, name))
            return (Op)i;
    return OP_NONE;
}

bool op_is_map(Op op) { return rows[op].kind == CODE_MAP; }

const char *op_map_text(Op op) { return rows[op].kind == CODE_MAP ? rows[op].text : NULL; }

bool op_is_view(Op op) { return rows[op].kind == CODE_VIEW && op != OP_Phase; }

bool op_differentiable(Op op) { return rows[op].gradient != GRADIENT_NO; }

void ops_print(FILE *f)
{
    static const char *const kind[] = {"map", "core", "view", "core", "composite"};
    static const char *const gradient[] = {"yes", "no", "via lowering"};
    static const char *const how[] = {"map", NULL, "view", "lowered: ", "lowered at import"};
    fprintf(f, "%-26s %-6s %-10s %-14s %s\n", "op", "since", "kind", "differentiable", "code");
    for (int i = OP_NONE + 1; i < OP_COUNT; i++) {
        const Row *r = &rows[i];
        char since[16] = "ours";
        if (r->since)
            snprintf(since, sizeof since, "%d", r->since);
        fprintf(f, "%-26s %-6s %-10s %-14s ", r->name, since, kind[r->kind], gradient[r->gradient]);
        if (r->kind == CODE_KERNEL)
            fprintf(f, "kernel: %s\n", r->text);
        else
            fprintf(f, "%s%s\n", how[r->kind], r->kind == CODE_LOWERED ? r->text : "");
    }
}

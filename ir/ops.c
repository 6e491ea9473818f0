/*
 * ops.c - ops.def as data: names, kinds and the support table of `ppsplit ops`.
 */
#include <string.h>

#include "ir.h"

typedef enum { CODE_MAP, CODE_KERNEL, CODE_VIEW, CODE_LOWERED, CODE_COMPOSITE } CodeKind;
typedef enum { GRADIENT_YES, GRADIENT_NO, GRADIENT_LOWERED } Gradient;
// clang-format off
enum {
    PURE = 1 << 0, FOLDS = 1 << 1, CHEAP = 1 << 2, ALONE = 1 << 3, IS_VIEW = 1 << 4,
    QUICK = 1 << 5, SHORT = 1 << 6, LONG = 1 << 7, REDUCES = 1 << 8, PICKS = 1 << 9,
    EXACT = 1 << 10, ARITHMETIC = 1 << 11, MEMBERS = 1 << 12, LINEAR = 1 << 13, LIFTS = 1 << 14,
    GROWS = 1 << 15, PLAIN = 1 << 16
};
// clang-format on

typedef struct {
    const char *name;
    int lo, hi, since;
    uint32_t nin, nout;                                 /* of the core node */
    unsigned flags;
    OpCast cast;
    Gradient gradient;
    CodeKind kind;
    /* the MAP expression, or the emitter's kind */
    const char *text;
    const char *slots;                                  /* of the ONNX node's operands */
} Row;

static const Row rows[OP_COUNT] = {
    [OP_NONE] = {"none", 0, 0, 0, 0, 0, 0, CAST_widest, GRADIENT_NO, CODE_COMPOSITE, NULL, ""},
#define IMPORT(...) OPS_SLOTS(__VA_ARGS__, "", ~)
#define NOIMPORT ""
#define G_GRAD(f) GRADIENT_YES
#define G_DX(text) GRADIENT_YES
#define G_NOGRAD GRADIENT_NO
#define C_MAP(text) CODE_MAP, #text
#define C_KERNEL(kind) CODE_KERNEL, #kind
#define C_VIEW CODE_VIEW, NULL
#define C_CODE_LOWER(f) CODE_LOWERED, #f
#define FLAGS(flags) flags
#define AUTO(how) CAST_##how
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, flops, range, \
           cast, onnx, flags, code)                                                                \
    [OP_##name] = {#name, lo, hi, since, nin, nout, flags, cast, G_##grad, C_##code, import},
#define COMPOSITE(name, lo, hi, since, ...)                                                        \
    [OP_##name] = {#name,          lo,   hi, since, 0, 0, 0, CAST_widest, GRADIENT_LOWERED,        \
                   CODE_COMPOSITE, NULL, OPS_SLOTS(__VA_ARGS__, "", ~)},
#define CONSTANTS(name, lo, hi, since, f)                                                          \
    [OP_##name] = {#name,          lo,   hi, since, 0, 0, 0, CAST_widest, GRADIENT_NO,             \
                   CODE_COMPOSITE, NULL, ""},
#include "ops.def"
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

bool op_is_core(Op op) { return op > OP_NONE && op < OP_COUNT && rows[op].kind != CODE_COMPOSITE; }

bool op_is_view(Op op) { return rows[op].flags & IS_VIEW; }

bool op_passes_on(Op op) { return op_is_view(op) || op == OP_Phase; }

bool node_reads(const Node *n, uint32_t i, NodePhase phase)
{
    return n->op != OP_Phase || i == (phase == INFERENCE);
}

uint32_t node_reads_training(const Node *n) { return n->op == OP_Phase ? 1 : n->nin; }

bool op_is_quick(Op op) { return rows[op].flags & QUICK; }
bool op_is_short(Op op) { return rows[op].flags & SHORT; }
bool op_reduces(Op op) { return rows[op].flags & REDUCES; }
bool op_picks(Op op) { return rows[op].flags & PICKS; }
bool op_is_exact(Op op) { return rows[op].flags & EXACT; }
bool op_is_linear(Op op) { return rows[op].flags & LINEAR || op_passes_on(op); }
bool op_grows(Op op) { return rows[op].flags & GROWS; }
bool op_is_plain(Op op) { return rows[op].flags & PLAIN; }
bool op_lifts(Op op) { return rows[op].flags & LIFTS || (op_is_map(op) && op_is_pure(op)); }
bool op_is_arithmetic(Op op) { return rows[op].flags & ARITHMETIC; }
OpCast op_cast(Op op) { return rows[op].cast; }
bool op_is_singular(Op op, uint32_t i)
{
    return op == OP_Div ? i == 1
                        : op == OP_Reciprocal || op == OP_Log || op == OP_Sqrt || op == OP_Pow;
}
bool op_is_pure(Op op) { return rows[op].flags & PURE; }

bool op_folds(Op op) { return rows[op].flags & FOLDS; }

bool op_is_cheap(Op op) { return rows[op].flags & CHEAP; }

bool op_stands_alone(Op op) { return rows[op].flags & ALONE; }

bool op_is_collective(Op op) { return rows[op].flags & MEMBERS; }

const char *mesh_along(int mesh)
{
    static const char *const along[MESH_AXES] = {"", " along sequences", " along experts"};
    return along[mesh];
}

const char *node_placement(Arena *a, const Node *n)
{
    int axis = (int)n->attr.axis;
    const char *along = mesh_along(n->attr.mesh);
    switch (n->op) {
    case OP_AllReduce: return arena_printf(a, "P to R%s", along);
    case OP_AllGather: return arena_printf(a, "S(%d) to R%s", axis, along);
    case OP_Shard: return arena_printf(a, "R to S(%d)%s", axis, along);
    case OP_ReduceScatter: return arena_printf(a, "P to S(%d)%s", axis, along);
    case OP_AllToAll:
        return arena_printf(a, "S(%d) to S(%d)%s", axis, (int)n->attr.to_axis, along);
    default: BUG("%s between members", op_name(n->op));
    }
}

bool op_takes(Op op, uint32_t nin)
{
    return op_is_core(op) && (rows[op].nin == 0 ? nin > 0 : nin == rows[op].nin);
}

uint32_t op_results(Op op, const Attr *attr)
{
    INSIST(rows[op].nout > 0 || attr->n > 0);
    return rows[op].nout ? rows[op].nout : (uint32_t)attr->n;
}

bool op_differentiable(Op op) { return rows[op].gradient != GRADIENT_NO; }

char op_slot(const char *domain, const char *name, uint32_t input)
{
    static const struct { const char *domain, *name, *slots; } foreign[] = {
#define OP(...)
#define FOREIGN(domain, name, lo, hi, ...) {domain, #name, OPS_SLOTS(__VA_ARGS__, "", ~)},
#include "ir/ops.def"
    };
    const char *slots = "";
    Op op = *domain ? OP_NONE : op_find(name);
    for (size_t i = 0; *domain && i < sizeof foreign / sizeof *foreign; i++)
        if (!strcmp(foreign[i].name, name) && !strcmp(foreign[i].domain, domain))
            slots = foreign[i].slots;
    if (op != OP_NONE && rows[op].gradient == GRADIENT_NO)
        return 'x';
    if (op != OP_NONE)
        slots = rows[op].slots;
    size_t n = strlen(slots);
    if (n > 1 && slots[n - 1] == '*' && input + 1 >= n)
        return slots[n - 2];
    return input < n ? slots[input] : '.';
}

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
#define OP(...)
#define FOREIGN(domain, name, lo, hi, ...)                                                 \
    fprintf(f, "%-26s %-6s %-10s %-14s %s\n", domain "." #name, "1", "composite",           \
            "via lowering", "lowered at import");
#define CONTROL(name, since)                                                               \
    fprintf(f, "%-26s %-6d %-10s %-14s %s\n", #name, since, "control", "via its body",     \
            "bodies in place, unrolled");
#include "ir/ops.def"
#define OP(...)
#define REFUSED(domain, name, why)                                                         \
    fprintf(f, "%-26s %-6s %-10s %-14s %s\n", *domain ? domain "." #name : #name, "-",      \
            "refused", "no", why);
#include "ir/ops.def"
}

const char *op_refused(const char *domain, const char *name)
{
    static const struct { const char *domain, *name, *why; } refused[] = {
#define OP(...)
#define REFUSED(domain, name, why) {domain, #name, why},
#include "ir/ops.def"
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!strcmp(refused[i].name, name) && !strcmp(refused[i].domain, domain))
            return refused[i].why;
    return NULL;
}

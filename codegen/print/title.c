/*
 * title.c - what a kernel is called: by the operation of the model that says most of it, and the
 * direction: softmax, softmax_dx, gemm_dw; softmax_infer of what inference has otherwise than
 * training. Identifiers are ours: a model's operation counts only
 * where ops.def has a row of that name.  And what comments call a value.
 */
#include <ctype.h>
#include <string.h>

#include "target.h"

/* How much an operation says about a group. */
static int telling(Op op)
{
    if (op == OP_NONE || op == OP_Identity || op == OP_Count)
        return 0;
    if (op_is_plain(op) ||
        op == OP_Gemm) /* products are the library's: a nest has its bias alone */
        return 2;
    bool reads = op == OP_Gather || op == OP_ReduceSum || op == OP_ReduceMax;
    return op_is_view(op) ? 1 : op_is_map(op) || reads ? 3 : 4;
}

/* What is added to a product, or a sum over rows, which is its gradient. */
static bool is_bias(const Node *n, Op of)
{
    bool product = of == OP_Conv || of == OP_ConvTranspose || of == OP_MatMul || of == OP_Gemm ||
                   of == OP_MatMulBias;
    return product && (n->op == OP_Add || n->op == OP_ReduceSum);
}

static bool is_vector(const Graph *g, ValueId v)
{
    const Shape *s = &val(g, v)->shape;
    int dims = 0;
    for (int d = 0; d < s->rank; d++)
        dims += s->d[d] > 1;
    return dims == 1;
}

/* The same where the model has it as an Add of a parameter that is a vector. */
static bool adds_vector(const Graph *g, const Step *s, const Node *n, Op of)
{
    if (of != OP_Add)
        return false;
    if (n->op == OP_ReduceSum)
        return strcmp(title_direction(s), "dw") == 0 && is_vector(g, n->out[0]);
    for (uint32_t i = 0; n->op == OP_Add && i < n->nin; i++) {
        const ValueId v = graph_behind_views(g, n->in[i]);
        if (val(g, v)->kind == V_PARAM && is_vector(g, v) && !is_vector(g, n->out[0]))
            return true;
    }
    return false;
}

/* "layernorm", "log_softmax" */
const char *title_plain(Arena *a, const char *name)
{
    size_t n = strlen(name), k = 0;
    char *out = arena_alloc(a, 2 * n + 1);
    const char *end = strstr(name, "Normalization");
    if (end)
        n = (size_t)(end - name) + strlen("Norm");
    for (size_t i = 0; i < n; i++) {
        bool up = isupper((unsigned char)name[i]);
        if (up && i > 0 && islower((unsigned char)name[i - 1]) && !(end && name + i == end))
            out[k++] = '_';
        out[k++] = (char)tolower((unsigned char)name[i]);
    }
    return out;
}

const char *title_direction(const Step *s)
{
    bool dx = false, dw = false;
    for (uint32_t i = 0; i < s->arg.n; i++) {
        dw |= s->arg.at[i].written && s->arg.at[i].role == ROLE_DW;
        dx |= s->arg.at[i].written && s->arg.at[i].role == ROLE_DX;
    }
    return dx ? "dx" : dw ? "dw" : "";
}

const char *title_of(const Out *o, const Step *s)
{
    static const char *const losses[] = {"mse", "l1", "cross_entropy", "nll", "bce_with_logits"};
    const Graph *g = o->f->g;
    const Group *k = &o->f->group.at[s->group];
    const char *best = "copy";
    int most = 0;
    for (uint32_t i = 0; i < k->member.n; i++) {
        const Node *n = &g->node.at[k->member.at[i].node];
        const bool packs = n->op == OP_Pack || n->op == OP_Unpack; /* ours, for whatever reads it */
        const char *type = !packs && n->origin < g->origin.n && g->origin.at[n->origin].type
                               ? g->origin.at[n->origin].type
                               : "";
        Op op = op_find(type);
        const char *name = op_name(op);
        if (op == OP_NONE) {
            op = n->op;
            name = op_name(op);
            for (size_t j = 0; j < sizeof losses / sizeof *losses; j++)
                if (strcmp(type, losses[j]) == 0) {
                    op = OP_LogSoftmax;
                    name = losses[j];
                }
        }
        const bool vector = adds_vector(g, s, n, op); /* any other Add says more */
        const int tells = 2 * telling(op) - vector;
        if (tells > most && op != OP_Identity && n->op != OP_Identity) {
            most = tells;
            best = vector || is_bias(n, op) ? "bias" : name;
        }
    }
    const char *of = o->f->kind == F_INFER ? "infer" : title_direction(s);
    return arena_printf(o->a, "%s%s%s", title_plain(o->a, best), *of ? "_" : "", of);
}

/* ---- comments -------------------------------------------------------------------------------- */

const char *title_gradient_of(Arena *a, const Value *x)
{
    static const char prefix[] = "%grad/";
    const size_t n = sizeof prefix - 1;
    if (!x->made || strncmp(x->name, prefix, n) != 0)
        return NULL;
    const char *name = x->name + n, *number = strrchr(name, '%');
    return arena_strndup(a, name, number ? (size_t)(number - name) : strlen(name));
}

const char *out_value_text(Arena *a, const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    const char *name = x->name, *of = title_gradient_of(a, x);
    if (of)
        return *of ? arena_printf(a, " gradient of %s", cg_comment(a, of)) : "";
    if (*name && !(x->made && *name == '%'))
        return arena_printf(a, " %s", cg_comment(a, name));
    if (x->kind != V_NODE)
        return "";
    const Node *n = &g->node.at[x->node];
    const char *origin = n->origin < g->origin.n ? g->origin.at[n->origin].name : NULL;
    return origin && *origin ? arena_printf(a, " in %s", cg_comment(a, origin)) : "";
}

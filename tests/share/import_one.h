/*
 * import_one.h - one ONNX node made in memory, lowered by its importer, evaluated and
 * differentiated in float64: what the tests of importers share.
 */
#ifndef PPSPLIT_TESTS_IMPORT_ONE_H
#define PPSPLIT_TESTS_IMPORT_ONE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "frontend/low/state.h"
#include "frontend/params/params.h"
#include "oracle/oracle.h"
#include "tap.h"

enum { MOST = 8, OUTPUTS = 8 };

typedef struct {
    Arena *arena;
    Graph *g;
    uint32_t nin;
    ValueId in[MOST], out[OUTPUTS];
    Tensor data[MOST]; /* of the inputs */
    const char *fx_node; /* dynamo's metadata of the node */
    bool from_pytorch;   /* the file */
    bool biased;         /* its running variances */
} T;

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})
#define V(...) ((const double[]){__VA_ARGS__})

/* "alpha=0.1f axis=1i axes=[0] mode=linear": floats end in f, integers in i. */
static Onnx__AttributeProto *attribute(Arena *a, char *text)
{
    Onnx__AttributeProto *p = arena_new_of(a, Onnx__AttributeProto);
    onnx__attribute_proto__init(p);
    char *v = strchr(text, '='), *end = v + strlen(v) - 1;
    *v++ = 0;
    p->name = text;
    p->has_type = 1;
    if (*v == '[') {
        p->type = 7;
        p->ints = arena_array(a, int64_t, strlen(v));
        for (v++; *v && *v != ']'; v += *v == ',')
            p->ints[p->n_ints++] = strtoll(v, &v, 10);
    } else if (*end == 'f' && strchr("0123456789-", *v)) {
        p->type = 1;
        p->has_f = 1;
        p->f = strtof(v, NULL);
    } else if (*end == 'i' && strchr("0123456789-", *v)) {
        p->type = 2;
        p->has_i = 1;
        p->i = strtoll(v, NULL, 10);
    } else {
        p->type = 3;
        p->has_s = 1;
        p->s = (ProtobufCBinaryData){strlen(v), (uint8_t *)v};
    }
    return p;
}

static T *begin(void)
{
    Arena *a = arena_new();
    T *t = arena_new_of(a, T);
    t->arena = a;
    t->g = graph_new(a, "test");
    return t;
}

static ValueId input(T *t, Shape s, const double *v)
{
    char name[16];
    snprintf(name, sizeof name, "x%u", t->nin);
    int64_t n = shape_elements(&s);
    double *d = arena_array(t->arena, double, n + 1);
    memcpy(d, v, (size_t)n * sizeof *d);
    t->data[t->nin] = (Tensor){DT_F64, s, d};
    return t->in[t->nin++] = graph_input(t->g, name, DT_F64, &s);
}

static void lower(T *t, Op op, int opset, const char *attrs, uint32_t nin, const ValueId *in,
                  uint32_t nout)
{
    static void (*const fn[OP_COUNT])(Import *) = {
#define IMPORT(...) OPS_FN(__VA_ARGS__, ~)
#define NOIMPORT NULL
#define OP(name, lo, hi, since, import, ...) [OP_##name] = import,
#define COMPOSITE(name, lo, hi, since, ...) [OP_##name] = OPS_FN(__VA_ARGS__, ~),
#include "ir/ops.def"
    };
    RawNode raw = {.name = "n",
                   .op_type = op_name(op),
                   .domain = "",
                   .opset = opset,
                   .nin = nin,
                   .nout = nout,
                   .fx_node = t->fx_node};
    const char *names[OUTPUTS] = {"y0", "y1", "y2", "y3", "y4", "y5", "y6", "y7"};
    Model model = {.path = "test", .from_pytorch = t->from_pytorch, .limits = limits_default()};
    ImportState state = {.g = t->g, .m = &model, .env.arena = t->arena};
    raw.out = names;
    raw.in = arena_array(t->arena, const char *, nin + 1);
    for (uint32_t i = 0; i < nin; i++) {
        raw.in[i] = in[i] == NONE ? "" : arena_printf(t->arena, "in%u", i);
        import_define(&state, raw.in[i], (Slot){.v = in[i]});
    }
    raw.attr = arena_array(t->arena, Onnx__AttributeProto *, strlen(attrs) + 1);
    char *save, *list = arena_strdup(t->arena, attrs);
    for (char *word = strtok_r(list, " ", &save); word; word = strtok_r(NULL, " ", &save))
        raw.attr[raw.nattr++] = attribute(t->arena, word);
    for (uint32_t i = 0; i < OUTPUTS; i++)
        t->out[i] = NONE;
    Import im = {.g = t->g,
                 .arena = t->arena,
                 .op = op,
                 .op_type = raw.op_type,
                 .opset = opset,
                 .nin = nin,
                 .nout = nout,
                 .in = in,
                 .out = t->out,
                 .training = true,
                 .biased = t->biased,
                 .state = &state,
                 .node = &raw};
    fn[op](&im);
}

static Tensor *evaluate(const T *t)
{
    const Graph *g = t->g;
    Tensor *at = arena_array(t->arena, Tensor, g->value.n);
    NodeId *list = arena_array(t->arena, NodeId, g->node.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        if (val(g, v)->kind == V_CONST) {
            size_t n = (size_t)shape_elements(&val(g, v)->shape) * dtype_size(val(g, v)->dtype);
            at[v] = (Tensor){val(g, v)->dtype, val(g, v)->shape, arena_alloc(t->arena, n + 8)};
            if (n)
                memcpy(at[v].data, val(g, v)->data, n);
        }
    for (uint32_t i = 0; i < t->nin; i++)
        at[t->in[i]] = t->data[i];
    for (NodeId n = 0; n < g->node.n; n++)
        list[n] = n;
    oracle_nodes(g, t->arena, list, g->node.n, at);
    return at;
}

static inline bool close_to(const Tensor *got, const double *want)
{
    for (int64_t i = 0; i < shape_elements(&got->shape); i++) {
        double x = ((const double *)got->data)[i];
        if (fabs(x - want[i]) <= 1e-9 + 2e-7 * fabs(want[i]) ||
            (isinf(x) && x > 0 && isinf(want[i])))
            continue;
        printf("# element %lld: %.12g, not %.12g\n", (long long)i, x, want[i]);
        return false;
    }
    return true;
}

/* d sum(r * y) / d in[i] for all inputs; r NULL: 1. */
static void differentiate(T *t, ValueId y, ValueId r, ValueId *dx)
{
    Graph *g = t->g;
    int64_t axes[MAX_RANK];
    Shape s = val(g, y)->shape, scalar = {0};
    for (int d = 0; d < s.rank; d++)
        axes[d] = d;
    if (r != NONE)
        y = g_mul(g, y, r);
    if (s.rank)
        y = g_reshape(g, g_reduce(g, OP_ReduceSum, y, s.rank, axes), &scalar);
    NodeId *list = arena_array(t->arena, NodeId, g->node.n + 1);
    for (NodeId n = 0; n < g->node.n; n++)
        list[n] = n;
    grad_nodes(g, list, g->node.n, y, t->nin, t->in, dx);
}

#endif

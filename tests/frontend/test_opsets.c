/*
 * test_opsets.c - one small net in every opset that can express it, 7 to 27, each in the form that
 * this opset has for it: axes as attributes or as inputs, Upsample or Resize, Scatter or
 * ScatterElements, functions as one operator or as their definition.  Outputs and gradients are
 * those that opsets.py got from PyTorch in float64.  Up to opset 8 initializers are inputs too (IR
 * 3); each net is read once more with its weights in external data, in several files.
 *
 * usage: test_opsets [DIR]       DIR: the files stay there, for other tools to check
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "autodiff/autodiff.h"
#include "models/pb.h"
#include "oracle/oracle.h"
#include "tap.h"

enum { OLDEST = 7, NEWEST = 27, F32 = 1, I64 = 7 };

typedef struct {
    Buf graph, nodes, init, inputs;
    int opset, made;
    const char *dir;  /* of external data, or NULL */
    const char *name; /* of the net */
    char names[256][16];
} Net;

static const char *fresh(Net *n)
{
    char *name = n->names[n->made % 256];
    snprintf(name, 16, "v%d", n->made++);
    return name;
}

/* ---- the file ---- */

static void value_info(Buf *to, int field, const char *name, int type, int rank,
                       const int64_t *dims)
{
    Buf info = {0}, of = {0}, tensor = {0}, shape = {0};
    for (int i = 0; i < rank; i++) {
        Buf dim = {0};
        put_int(&dim, 1, dims[i]);
        put_message(&shape, 1, &dim);
    }
    put_int(&tensor, 1, type);
    put_message(&tensor, 2, &shape);
    put_message(&of, 1, &tensor);
    put_string(&info, 1, name);
    put_message(&info, 2, &of);
    put_message(to, field, &info);
}

static void entry(Buf *tensor, const char *key, const char *value)
{
    Buf e = {0};
    put_string(&e, 1, key);
    put_string(&e, 2, value);
    put_message(tensor, 13, &e);
}

/* Behind what the file holds; every tensor of floats has a file of its own. */
static void external(Net *n, Buf *tensor, const char *name, const void *data, size_t bytes)
{
    char path[600], file[64], text[32];
    snprintf(file, sizeof file, "%s.%s.bin", n->name, name);
    snprintf(path, sizeof path, "%s/%s", n->dir, file);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite("sixteen bytes...", 1, 16, f) != 16 || fwrite(data, 1, bytes, f) != bytes ||
        fclose(f))
        exit(3);
    entry(tensor, "location", file);
    entry(tensor, "offset", "16");
    snprintf(text, sizeof text, "%zu", bytes);
    entry(tensor, "length", text);
    put_int(tensor, 14, 1);
}

static void initializer(Net *n, const char *name, int type, int rank, const int64_t *dims,
                        const void *data)
{
    Buf t = {0};
    size_t bytes = type == F32 ? 4 : 8;
    for (int i = 0; i < rank; i++) {
        put_int(&t, 1, dims[i]);
        bytes *= (size_t)dims[i];
    }
    put_int(&t, 2, type);
    put_string(&t, 8, name);
    if (n->dir && type == F32 && bytes > 4)
        external(n, &t, name, data, bytes);
    else
        put_bytes(&t, 9, data, bytes);
    put_message(&n->init, 5, &t);
    if (n->opset < 9)
        value_info(&n->inputs, 11, name, type, rank, dims);
}

static const char *ints(Net *n, const char *list)
{
    int64_t v[16], count = 0;
    char *at = (char *)(uintptr_t)list;
    while (*at) {
        v[count++] = strtoll(at, &at, 10);
        at += *at == ',';
    }
    const char *name = fresh(n);
    initializer(n, name, I64, 1, &count, v);
    return name;
}

static const char *number(Net *n, float v)
{
    const char *name = fresh(n);
    initializer(n, name, F32, 0, NULL, &v);
    return name;
}

/* Numbers without ties, the same in opsets.py. */
static float at(int64_t i, int step, int first, int period, float scale)
{
    return (float)((i * step + first) % period - period / 2) / scale;
}

static void weight(Net *n, const char *name, int rank, const int64_t *dims)
{
    float v[128];
    int64_t size = 1;
    for (int i = 0; i < rank; i++)
        size *= dims[i];
    for (int64_t i = 0; i < size; i++)
        v[i] = at(i, 29, 7, 53, 20);
    initializer(n, name, F32, rank, dims, v);
}

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__}

static void attribute(Buf *node, char *text)
{
    Buf a = {0};
    char *v = strchr(text, '=');
    *v++ = 0;
    put_string(&a, 1, text);
    if (*v == '[') {
        bool real = strchr(v, '.') != NULL;
        for (v++; *v && *v != ']'; v += *v == ',') {
            if (real) {
                float f = strtof(v, &v);
                put_varint(&a, 7 << 3 | 5);
                put(&a, &f, 4);
            } else {
                put_int(&a, 8, strtoll(v, &v, 10));
            }
        }
        put_int(&a, 20, real ? 6 : 7);
    } else if (strchr("0123456789-", *v)) {
        float f = strtof(v, NULL);
        bool real = strchr(v, '.') != NULL;
        if (real) {
            put_varint(&a, 2 << 3 | 5);
            put(&a, &f, 4);
        } else {
            put_int(&a, 3, strtoll(v, NULL, 10));
        }
        put_int(&a, 20, real ? 1 : 2);
    } else {
        put_string(&a, 4, v);
        put_int(&a, 20, 3);
    }
    put_message(node, 5, &a);
}

/* Inputs: up to the first NULL; attributes "axis=1 alpha=0.1 perm=[0,1] mode=linear": numbers with
 * a point are floats.  Returns the first of nout outputs, `more` gets the others. */
static const char *node(Net *n, const char *op, const char *attrs, const char *const *in, int nout,
                        const char **more)
{
    Buf b = {0};
    char list[256], *save;
    for (; *in; in++)
        put_string(&b, 1, *in);
    const char *first = fresh(n);
    put_string(&b, 2, first);
    for (int i = 1; i < nout; i++) {
        const char *name = fresh(n);
        put_string(&b, 2, name);
        if (more)
            more[i - 1] = name;
    }
    put_string(&b, 3, first);
    put_string(&b, 4, op);
    snprintf(list, sizeof list, "%s", attrs);
    for (char *w = strtok_r(list, " ", &save); w; w = strtok_r(NULL, " ", &save))
        attribute(&b, w);
    put_message(&n->nodes, 1, &b);
    return first;
}

#define IN(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NODE(OP, ATTRS, ...) node(n, OP, ATTRS, IN(__VA_ARGS__), 1, NULL)

/* An operator whose list of numbers became an input in opset `since`. */
static const char *listed(Net *n, const char *op, int since, const char *name, const char *list,
                          const char *attrs, const char *x)
{
    char text[128];
    if (n->opset >= since)
        return NODE(op, attrs, x, ints(n, list));
    snprintf(text, sizeof text, "%s=[%s] %s", name, list, attrs);
    return NODE(op, text, x);
}

static const char *reshape(Net *n, const char *x, const char *shape)
{
    return NODE("Reshape", "", x, ints(n, shape));
}

static const char *add(Net *n, const char *x, const char *y) { return NODE("Add", "", x, y); }
static const char *mul(Net *n, const char *x, const char *y) { return NODE("Mul", "", x, y); }

/* ---- the nets: x [2,3,4,4], w ---- */

static const char *axes(Net *n)
{
    const char *b;
    weight(n, "w", DIMS(4, 4));
    const char *u = listed(n, "Unsqueeze", 13, "axes", "1", "", "x");
    const char *m = NODE("MatMul", "", listed(n, "Squeeze", 13, "axes", "1", "", u), "w");
    const char *sum = listed(n, "ReduceSum", 13, "axes", "2", "keepdims=0", m);
    const char *mean = listed(n, "ReduceMean", 18, "axes", "3", "keepdims=1", m);
    const char *most = listed(n, "ReduceMax", 18, "axes", "1", "keepdims=1", m);
    const char *length = listed(n, "ReduceL2", 18, "axes", "2,3", "keepdims=1", m);
    const char *lse = listed(n, "ReduceLogSumExp", 18, "axes", "-1", "keepdims=1", m);
    if (n->opset < 11)
        lse = listed(n, "ReduceLogSumExp", 18, "axes", "3", "keepdims=1", m);
    const char *cut = n->opset >= 10
                          ? NODE("Slice", "", m, ints(n, "-3"), ints(n, "4"), ints(n, "3"))
                          : NODE("Slice", "starts=[-3] ends=[4] axes=[3]", m);
    const char *pad =
        n->opset >= 18   ? NODE("Pad", "", cut, ints(n, "0,1"), number(n, .5f), ints(n, "3"))
        : n->opset >= 11 ? NODE("Pad", "", cut, ints(n, "0,0,0,0,0,0,0,1"), number(n, .5f))
                         : NODE("Pad", "pads=[0,0,0,0,0,0,0,1] value=0.5", cut);
    const char *a =
        n->opset >= 13 ? node(n, "Split", "axis=1", IN(m, ints(n, "1,2")), 2, &b)
                       : node(n, "Split", "axis=1 split=[1,2]", IN(m), 2, &b);
    const char *y = add(n, mul(n, pad, most), mul(n, mean, length));
    y = add(n, y, mul(n, a, lse));
    y = add(n, y, listed(n, "Unsqueeze", 13, "axes", "2", "", sum));
    return add(n, y, listed(n, "ReduceSum", 13, "axes", "1", "keepdims=1", b));
}

static const char *softmax(Net *n)
{
    weight(n, "w", DIMS(4, 4));
    const char *m = NODE("MatMul", "", "x", "w");
    const char *last = n->opset >= 13 ? NODE("Softmax", "", m) : NODE("Softmax", "axis=3", m);
    const char *two = n->opset >= 13
                          ? reshape(n, NODE("Softmax", "", reshape(n, m, "2,3,16")), "2,3,4,4")
                          : NODE("Softmax", "axis=2",
                                 n->opset == 12 ? reshape(n, m, "6,1,4,4") : m);
    if (n->opset < 13) /* everything from the axis on is one: [2 * 3, 16] */
        two = reshape(n, two, "2,3,4,4");
    const char *log = NODE("LogSoftmax", n->opset >= 13 ? "axis=-1" : "axis=3", m);
    const char *y = add(n, mul(n, last, two), mul(n, log, number(n, .25f)));
    y = n->opset >= 11 ? NODE("Clip", "", y, number(n, -.75f), number(n, -.125f))
                       : NODE("Clip", "min=-0.75 max=-0.125", y);
    if (n->opset >= 12) {
        const char *yes = fresh(n);
        Buf t = {0};
        put_int(&t, 2, 9);
        put_string(&t, 8, yes);
        put_bytes(&t, 9, "\1", 1);
        put_message(&n->init, 5, &t);
        y = NODE("Dropout", "", y, number(n, 0), yes);
    } else {
        y = NODE("Dropout", "ratio=0.0", y);
    }
    return NODE("PRelu", "", y, number(n, .5f));
}

static const char *norm(Net *n)
{
    weight(n, "w", DIMS(3));
    static const float bias[] = {.5f, -.25f, 1}, mean[] = {0, 1, 2}, var[] = {1, 2, 3};
    initializer(n, "bias", F32, DIMS(3), bias);
    initializer(n, "mean", F32, DIMS(3), mean);
    initializer(n, "var", F32, DIMS(3), var);
    const char *more[4];
    const char *bn = n->opset >= 14
                         ? node(n, "BatchNormalization", "training_mode=1 epsilon=0.01",
                                IN("x", "w", "bias", "mean", "var"), 3, more)
                         : node(n, "BatchNormalization", "epsilon=0.01",
                                IN("x", "w", "bias", "mean", "var"), 5, more);
    const char *in = NODE("InstanceNormalization", "epsilon=0.01", "x", "w", "bias");
    const char *lrn = NODE("LRN", "size=3 alpha=0.1 beta=0.5 bias=2.0", bn);
    return add(n, mul(n, in, bn), lrn);
}

static const char *larger(Net *n, const char *x, const char *mode)
{
    static const float scales[] = {1, 1, 2, 2};
    char attrs[128];
    snprintf(attrs, sizeof attrs, "mode=%s", mode);
    if (n->opset < 9) {
        snprintf(attrs, sizeof attrs, "mode=%s scales=[1.,1.,2.,2.]", mode);
        return NODE("Upsample", attrs, x);
    }
    const char *s = fresh(n), *roi = "";
    initializer(n, s, F32, DIMS(4), scales);
    if (n->opset < 11)
        return NODE(n->opset < 10 ? "Upsample" : "Resize", attrs, x, s);
    if (n->opset < 13)
        initializer(n, roi = fresh(n), F32, DIMS(0), scales);
    snprintf(attrs, sizeof attrs,
             "mode=%s coordinate_transformation_mode=asymmetric nearest_mode=floor", mode);
    return NODE("Resize", attrs, x, roi, s);
}

static const char *resize(Net *n)
{
    weight(n, "w", DIMS(4, 4));
    const char *m = NODE("MatMul", "", "x", "w");
    return mul(n, larger(n, m, "nearest"), larger(n, m, "linear"));
}

static const char *pick(Net *n)
{
    static const float upper[] = {1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1};
    static const int64_t index[] = {2, 0, 1, 3, 3, 1, 0, 2, 0, 1, 2, 3};
    const char *picked;
    weight(n, "w", DIMS(4, 4));
    const char *m = NODE("MatMul", "", "x", "w");
    const char *k = n->opset >= 11 ? node(n, "TopK", "axis=3 sorted=1 largest=1",
                                          IN(m, ints(n, "2")), 2, &picked)
                    : n->opset == 10 ? node(n, "TopK", "axis=3", IN(m, ints(n, "2")), 2, &picked)
                                     : node(n, "TopK", "axis=3 k=2", IN(m), 2, &picked);
    const char *rows = NODE("Gather", "axis=2", m, ints(n, "3,0,0,1"));
    const char *to = fresh(n), *sum;
    initializer(n, to, I64, DIMS(3, 4), index);
    const char *from = reshape(n, listed(n, "ReduceSum", 13, "axes", "0,1", "keepdims=0", m),
                               "4,4");
    const char *part = n->opset >= 10
                           ? NODE("Slice", "", from, ints(n, "0"), ints(n, "3"), ints(n, "0"))
                           : NODE("Slice", "starts=[0] ends=[3] axes=[0]", from);
    const char *moved = NODE(n->opset >= 11 ? "ScatterElements" : "Scatter", "axis=1", from, to,
                             part);
    if (n->opset >= 11) {
        int64_t axis = 3;
        const char *a = fresh(n);
        initializer(n, a, I64, 0, NULL, &axis);
        sum = NODE("CumSum", "", m, a);
    } else {
        const char *u = fresh(n);
        initializer(n, u, F32, DIMS(4, 4), upper);
        sum = NODE("MatMul", "", m, u);
    }
    const char *less = NODE("Less", "", m, rows);
    const char *no = n->opset >= 12 ? NODE("GreaterOrEqual", "", m, rows) : NODE("Not", "", less);
    const char *y = NODE("Where", "", no, sum, mul(n, rows, moved));
    return add(n, y, listed(n, "ReduceSum", 13, "axes", "3", "keepdims=1", k));
}

static const char *types(Net *n)
{
    weight(n, "w", DIMS(16, 5));
    const char *whole = NODE("Cast", "to=1", NODE("Cast", "to=7", "x"));
    const char *rest = NODE("Sub", "", "x", whole);
    const char *pool = n->opset >= 10
                           ? NODE("MaxPool", "kernel_shape=[3,3] strides=[2,2] ceil_mode=1", rest)
                           : NODE("MaxPool", "kernel_shape=[3,3] strides=[2,2] pads=[0,0,1,1]",
                                  rest);
    const char *mean = NODE("AveragePool", "kernel_shape=[2,2] strides=[2,2]", "x");
    const char *power = NODE("Pow", "", rest, n->opset >= 12 ? ints(n, "2") : number(n, 2));
    const char *flat = NODE("Flatten", "axis=2", NODE("Max", "", "x", power));
    float zeros[5] = {0};
    const char *zero = "";
    if (n->opset < 11)
        initializer(n, zero = fresh(n), F32, DIMS(5), zeros);
    const char *g = n->opset >= 11 ? NODE("Gemm", "alpha=0.5", flat, "w")
                                   : NODE("Gemm", "alpha=0.5", flat, "w", zero);
    g = listed(n, "ReduceMean", 18, "axes", "1", "keepdims=1", g);
    const char *both = NODE("Mean", "", pool, mean, NODE("Sum", "", pool, pool, mean));
    both = reshape(n, both, "6,4");
    both = n->opset >= 8 ? NODE("Expand", "", listed(n, "Unsqueeze", 13, "axes", "1", "", both),
                                ints(n, "6,2,4"))
                         : NODE("Tile", "", listed(n, "Unsqueeze", 13, "axes", "1", "", both),
                                ints(n, "1,2,1"));
    const char *ones = n->opset >= 9 ? NODE("ConstantOfShape", "", ints(n, "6,1"))
                                     : NODE("Mul", "", g, number(n, 0));
    return NODE("Concat", "axis=1", reshape(n, both, "6,8"), g, ones);
}

/* x * 0.5 * (1 + erf(x / sqrt(2))) and other functions, whole or by their definition. */
static const char *functions(Net *n)
{
    static const float mask[] = {1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1};
    int o = n->opset;
    weight(n, "w", DIMS(4));
    const char *one = number(n, 1), *h = mul(n, "x", "w");
    const char *scaled = mul(n, h, number(n, .70710678f));
    const char *gelu = o >= 20 ? NODE("Gelu", "", h)
                               : mul(n, mul(n, h, number(n, .5f)),
                                     add(n, one, NODE("Erf", "", scaled)));
    const char *swish = o >= 24 ? NODE("Swish", "", h) : mul(n, h, NODE("Sigmoid", "", h));
    const char *mish = o >= 18 ? NODE("Mish", "", h)
                               : mul(n, h, NODE("Tanh", "", NODE("Softplus", "", h)));
    const char *hard = o >= 14 ? NODE("HardSwish", "", h)
                               : mul(n, h, NODE("HardSigmoid", "alpha=0.16666667 beta=0.5", h));
    const char *celu = o >= 12 ? NODE("Celu", "alpha=1.0", h) : NODE("Elu", "alpha=1.0", h);
    const char *y = add(n, add(n, gelu, swish), add(n, add(n, mish, hard), celu));
    const char *eps = number(n, .01f), *two = listed(n, "ReduceMean", 18, "axes", "3",
                                                     "keepdims=1", mul(n, y, y));
    const char *rms = o >= 23 ? NODE("RMSNormalization", "axis=-1 epsilon=0.01", y, "w")
                              : mul(n, "w", NODE("Div", "", y, NODE("Sqrt", "", add(n, two, eps))));
    const char *mean = listed(n, "ReduceMean", 18, "axes", "3", "keepdims=1", y);
    const char *off = NODE("Sub", "", y, mean);
    const char *var = listed(n, "ReduceMean", 18, "axes", "3", "keepdims=1", mul(n, off, off));
    const char *layer =
        o >= 17 ? NODE("LayerNormalization", "axis=-1 epsilon=0.01", y, "w")
                : mul(n, "w", NODE("Div", "", off, NODE("Sqrt", "", add(n, var, eps))));
    static const float ones[] = {1, 1, 1}, zeros[] = {0, 0, 0};
    initializer(n, "ones", F32, DIMS(3), ones);
    initializer(n, "zeros", F32, DIMS(3), zeros);
    const char *group = o >= 18 ? NODE("GroupNormalization", "num_groups=3 epsilon=0.01", y, "ones",
                                       "zeros")
                                : NODE("InstanceNormalization", "epsilon=0.01", y, "ones", "zeros");
    const char *product = o >= 12 ? NODE("Einsum", "equation=abij,abkj->abik", rms, layer)
                                  : NODE("MatMul", "", rms,
                                         NODE("Transpose", "perm=[0,1,3,2]", layer));
    if (o >= 14) {
        product = NODE("Trilu", "upper=0", product);
    } else {
        initializer(n, "mask", F32, DIMS(4, 4), mask);
        product = mul(n, product, "mask");
    }
    return add(n, product, group);
}

/* want: sum of y * c, of dx * c, of dw * c, each c from another place on (opsets.py) */
static const struct {
    const char *name;
    const char *(*make)(Net *);
    int first, rank; /* its first opset; the output's rank */
    double want[3];
} nets[] = {
#include "opsets.golden"
};

/* ---- what becomes of it ---- */

static void save(Net *n, const char *path, const char *y, int rank)
{
    Buf model = {0}, opset = {0};
    Buf out = {0}, name = {0};
    n->graph = n->nodes;
    put_string(&n->graph, 2, n->name);
    put(&n->graph, n->init.at, n->init.n);
    value_info(&n->graph, 11, "x", F32, DIMS(2, 3, 4, 4));
    put(&n->graph, n->inputs.at, n->inputs.n);
    Buf of = {0}, shape = {0};
    put_int(&name, 1, F32);
    for (int i = 0; i < rank; i++)
        put_string(&shape, 1, ""); /* a dimension that is not told */
    put_message(&name, 2, &shape);
    put_message(&of, 1, &name);
    put_string(&out, 1, y);
    put_message(&out, 2, &of);
    put_message(&n->graph, 12, &out);
    put_int(&model, 1, n->opset < 9 ? 3 : n->opset < 15 ? 7 : n->opset < 21 ? 8 : 10);
    put_message(&model, 7, &n->graph);
    put_int(&opset, 2, n->opset);
    put_message(&model, 8, &opset);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(model.at, 1, model.n, f) != model.n || fclose(f))
        exit(3);
    free(model.at);
    free(n->init.at);
    free(n->inputs.at);
}

typedef struct { Arena *a; const char *path; Graph *g; } Reading;

static void reading(void *arg)
{
    Reading *r = arg;
    ImportOptions opt = {.limits = limits_default(), .training = true};
    vec_push(r->a, &opt.train, "w");
    r->g = import_models(r->a, 1, &r->path, &opt);
}

static double weighted(const Tensor *t, int from)
{
    double sum = 0;
    for (int64_t i = 0; i < shape_elements(&t->shape); i++)
        sum += (double)((const float *)t->data)[i] * (double)at(i + from, 17, 5, 23, 10);
    return sum;
}

static Tensor filled(Arena *a, const Shape *s, int step, int first, int period, float scale)
{
    float *v = arena_array(a, float, shape_elements(s) + 1);
    for (int64_t i = 0; i < shape_elements(s); i++)
        v[i] = at(i, step, first, period, scale);
    return (Tensor){DT_F32, *s, v};
}

/* The three numbers of `want`. */
static bool measure(Arena *a, Graph *g, double *got)
{
    ValueId x = strmap_get(&g->by_name, "x"), w = strmap_get(&g->by_name, "w"), d[2];
    ValueId y = g->output.at[0];
    Shape s = val(g, y)->shape, scalar = {0};
    int64_t all[MAX_RANK];
    if (x == NONE || w == NONE || val(g, w)->kind != V_PARAM)
        return false;
    for (int i = 0; i < s.rank; i++)
        all[i] = i;
    ValueId c = graph_const(g, "c", filled(a, &s, 17, 5, 23, 10));
    ValueId sum = g_reshape(g, g_reduce(g, OP_ReduceSum, g_mul(g, y, c), s.rank, all), &scalar);
    NodeId *list = arena_array(a, NodeId, g->node.n + 1);
    for (NodeId n = 0; n < g->node.n; n++)
        list[n] = n;
    grad_nodes(g, list, g->node.n, sum, 2, (ValueId[]){x, w}, d);
    if (d[0] == NONE || d[1] == NONE)
        return false;
    Tensor *t = arena_array(a, Tensor, g->value.n + 1);
    list = arena_array(a, NodeId, g->node.n + 1);
    for (NodeId n = 0; n < g->node.n; n++)
        list[n] = n;
    for (ValueId v = 0; v < g->value.n; v++) {
        const Value *at_v = val(g, v);
        if (at_v->kind != V_CONST && at_v->kind != V_PARAM)
            continue;
        size_t bytes = (size_t)shape_elements(&at_v->shape) * dtype_size(at_v->dtype);
        t[v] = (Tensor){at_v->dtype, at_v->shape, arena_alloc(a, bytes + 8)};
        if (bytes)
            memcpy(t[v].data,
                   at_v->kind == V_CONST ? at_v->data : g->param.at[at_v->param].bytes.at, bytes);
    }
    t[x] = filled(a, &val(g, x)->shape, 37, 11, 101, 25);
    oracle_nodes(g, a, list, g->node.n, t);
    got[0] = weighted(&t[y], 0);
    got[1] = weighted(&t[d[0]], 1);
    got[2] = weighted(&t[d[1]], 2);
    return true;
}

static bool agrees(const char *path, const double *want)
{
    Arena *a = arena_new();
    Reading r = {.a = a, .path = path};
    double got[3];
    bool good = diag_run(reading, &r) == 0 && measure(a, r.g, got);
    for (int i = 0; i < 3 && good; i++)
        if (!(fabs(got[i] - want[i]) <= 2e-5 * (1 + fabs(want[i])))) {
            printf("# number %d: %.9g, not %.9g\n", i, got[i], want[i]);
            good = false;
        }
    arena_free(a);
    return good;
}

int main(int argc, char **argv)
{
    char dir[] = "/tmp/test_opsets.XXXXXX", path[600], command[600];
    const char *to = argc > 1 ? argv[1] : mkdtemp(dir);
    if (!to)
        return 3;
    for (unsigned k = 0; k < sizeof nets / sizeof *nets; k++) {
        int right = 0, apart = 0, n_opsets = 0;
        for (int opset = nets[k].first; opset <= NEWEST; opset++, n_opsets++)
            for (int outside = 0; outside < 2; outside++) {
                Net net = {.opset = opset, .name = nets[k].name, .dir = outside ? to : NULL};
                snprintf(path, sizeof path, "%s/%s-%d%s.onnx", to, nets[k].name, opset,
                         outside ? "-external" : "");
                save(&net, path, nets[k].make(&net), nets[k].rank);
                bool good = agrees(path, nets[k].want);
                *(outside ? &apart : &right) += good;
                if (!good)
                    printf("# %s\n", path);
            }
        ok(right == n_opsets, "%s: the same numbers in opsets %d to %d", nets[k].name,
           nets[k].first, NEWEST);
        ok(apart == n_opsets, "%s: with its weights in several files", nets[k].name);
    }
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (argc < 2 && system(command))
        return 3;
    return tap_done();
}

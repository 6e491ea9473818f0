/*
 * make_gpt.c - writes a GPT as an ONNX model, without Python: for the benchmark, the demo and the
 * tests of size.
 *
 * In: sizes.  Out: model.onnx as PyTorch's TorchScript exporter names things
 * (/h.0/attn/c_attn/MatMul), pre-LayerNorm blocks, packed q k v, causal softmax attention, tanh
 * GELU, an untied head (--tied: the embedding, transposed); opset 17; weights normal(0, 0.02) from
 * a fixed generator.  --dropout N: N per cent of attention's weights, of the embedding and of what
 * each attention and MLP adds, in training mode.  --gain: queries of all heads of all layers are
 * multiplied by the same numbers.  --bias: scores have one that trains.  --external keeps the weights
 * in MODEL.data; --sparse makes that file a hole (any size costs nothing); --vectors: but for biases and the like,
 * so that such a model trains.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>
#include <getopt.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pb.h"

/* ---- the model ---- */

enum { F32 = 1, I64 = 7, BOOL = 9 };

static struct {
    long vocab, dim, layers, heads, seq, rows;
    long dropout;                                       /* per cent */
    int external, sparse, vectors, tied, gain, bias;
    const char *out;
} opt = {256, 64, 4, 4, 64, 4, 0, 0, 0, 0, 0, 0, 0, "gpt.onnx"};
static Buf graph;
static FILE *data;
static char data_name[4096];
static uint64_t data_at, random_state = 0x9e3779b97f4a7c15u;

static double uniform(void)                             /* splitmix64 */
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static float normal(void)
{
    return (float)(sqrt(-2 * log(uniform() + 1e-300)) * cos(6.283185307179586 * uniform()));
}

static void external_entry(Buf *t, const char *key, const char *value)
{
    Buf e = {0};
    put_string(&e, 1, key);
    put_string(&e, 2, value);
    put_message(t, 13, &e);
}

/* A TensorProto; payload NULL: the tensor is external and its bytes are a hole. */
static void initializer(const char *name, int type, int rank, const long *dim, const void *payload,
                        size_t bytes)
{
    Buf t = {0};
    for (int i = 0; i < rank; i++)
        put_int(&t, 1, dim[i]);
    put_int(&t, 2, type);
    put_string(&t, 8, name);
    if (opt.external && type == F32 && rank > 0) {
        char text[32];
        external_entry(&t, "location", data_name);
        snprintf(text, sizeof text, "%llu", (unsigned long long)data_at);
        external_entry(&t, "offset", text);
        snprintf(text, sizeof text, "%zu", bytes);
        external_entry(&t, "length", text);
        put_int(&t, 14, 1);
        if (payload && (fseeko(data, (off_t)data_at, SEEK_SET) ||
                        fwrite(payload, 1, bytes, data) != bytes))
            exit(3);
        data_at += bytes;
    } else
        put_bytes(&t, 9, payload, bytes);
    put_message(&graph, 5, &t);
}

static void weight(const char *name, int rank, long d0, long d1, double std, double mean)
{
    long dim[2] = {d0, d1};
    size_t n = (size_t)d0 * (size_t)(rank == 2 ? d1 : 1);
    float *w = NULL;
    if (opt.vectors && rank == 1 && std <= 0)
        std = 0.02;
    if (!opt.sparse || (opt.vectors && rank == 1)) {
        w = malloc(n * sizeof *w);
        if (!w)
            exit(3);
        for (size_t i = 0; i < n; i++)
            w[i] = (float)mean + (std > 0 ? (float)std * normal() : 0);
    }
    initializer(name, F32, rank, dim, w, n * sizeof *w);
    free(w);
}

/* A scalar is a Constant node, as PyTorch writes it: its initializers are parameters. */
static void scalar(const char *name, float v)
{
    Buf t = {0}, a = {0}, n = {0};
    put_int(&t, 2, F32);
    put_bytes(&t, 9, &v, sizeof v);
    put_string(&a, 1, "value");
    put_message(&a, 5, &t);
    put_int(&a, 20, 4);
    put_string(&n, 2, name);
    put_string(&n, 4, "Constant");
    put_message(&n, 5, &a);
    put_message(&graph, 1, &n);
}

static void ints(const char *name, int n, const long *v)
{
    int64_t w[8];
    for (int i = 0; i < n; i++)
        w[i] = v[i];
    initializer(name, I64, 1, (long[]){n}, w, (size_t)n * sizeof *w);
}

static Buf attributes;

static void attr_int(const char *name, long v)
{
    Buf a = {0};
    put_string(&a, 1, name);
    put_int(&a, 3, v);
    put_int(&a, 20, 2);
    put_message(&attributes, 5, &a);
}

static void attr_ints(const char *name, int n, const long *v)
{
    Buf a = {0};
    put_string(&a, 1, name);
    for (int i = 0; i < n; i++)
        put_int(&a, 8, v[i]);
    put_int(&a, 20, 7);
    put_message(&attributes, 5, &a);
}

static void attr_float(const char *name, float v)
{
    Buf a = {0};
    put_string(&a, 1, name);
    put_varint(&a, 2 << 3 | 5);
    put(&a, &v, 4);
    put_int(&a, 20, 1);
    put_message(&attributes, 5, &a);
}

/* A node: scope "/h.0/attn", op "MatMul", outputs and inputs as space-separated names; attributes
 * set before. */
static void node(const char *scope, const char *suffix, const char *op, const char *outputs,
                 const char *inputs)
{
    Buf n = {0};
    char text[512];
    for (int field = 1; field <= 2; field++) {
        snprintf(text, sizeof text, "%s", field == 1 ? inputs : outputs);
        for (char *s = strtok(text, " "); s; s = strtok(NULL, " "))
            put_string(&n, field, s);
    }
    snprintf(text, sizeof text, "%s/%s%s", scope, op, suffix);
    put_string(&n, 3, text);
    put_string(&n, 4, op);
    put(&n, attributes.at, attributes.n);
    attributes.n = 0;
    put_message(&graph, 1, &n);
}

static char *f(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* names with a layer number; eight live at a time */
static char *f(const char *fmt, ...)
{
    static char text[8][64];
    static int at;
    at = (at + 1) % 8;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text[at], sizeof text[at], fmt, ap);
    va_end(ap);
    return text[at];
}

static char *join(const char *a, const char *b, const char *c)
{
    static char text[8][512];
    static int at;
    at = (at + 1) % 8;
    snprintf(text[at], sizeof text[at], "%s %s %s", a, b, c);
    return text[at];
}

/* The name of what is read on: y, or x where nothing is dropped. */
static const char *dropout(const char *scope, const char *x, const char *y)
{
    if (!opt.dropout)
        return x;
    node(scope, "", "Dropout", y, join(x, "dropout_ratio", "training"));
    return y;
}

static void layer_norm(const char *scope, const char *x, const char *y, const char *w,
                       const char *b)
{
    attr_int("axis", -1);
    attr_float("epsilon", 1e-5f);
    node(scope, "", "LayerNormalization", y, join(x, w, b));
}

static void linear(const char *scope, const char *x, const char *y, const char *w, const char *b)
{
    char product[96];
    snprintf(product, sizeof product, "%s/MatMul_output_0", scope);
    node(scope, "", "MatMul", product, join(x, w, ""));
    node(scope, "", "Add", y, join(b, product, ""));
}

static void attention(long l, const char *x, const char *y)
{
    char *s = f("/h.%ld/attn", l), p[64], q[96], k[96], v[96], out[96], a[96], b[96], d[96];
    snprintf(p, sizeof p, "%s", s);
#define NAME(buf, what) snprintf(buf, sizeof buf, "%s/" what "_output_0", p)
    NAME(out, "c_attn");
    linear(f("/h.%ld/attn/c_attn", l), x, out, f("h.%ld.attn.c_attn.weight", l),
           f("h.%ld.attn.c_attn.bias", l));
    NAME(q, "q");
    NAME(k, "k");
    NAME(v, "v");
    attr_int("axis", 2);
    node(p, "", "Split", join(q, k, v), join(out, "split_sizes", ""));
    char *part[3] = {q, k, v};
    for (int i = 0; i < 3; i++) {
        char shaped[128], turned[112], suffix[4] = {'_', (char)('0' + i), 0};
        snprintf(shaped, sizeof shaped, "%s_heads", part[i]);
        snprintf(turned, sizeof turned, "%s_t", part[i]);
        node(p, suffix, "Reshape", shaped, join(part[i], "head_shape", ""));
        if (opt.gain && i == 0) {
            char by[128];
            snprintf(by, sizeof by, "%s_by_gain", q);
            node(p, "_q", "Mul", by, join(shaped, "gain", ""));
            strcpy(shaped, by);
        }
        attr_ints("perm", 4, i == 1 ? (long[]){0, 2, 3, 1} : (long[]){0, 2, 1, 3});
        node(p, suffix, "Transpose", turned, shaped);
        strcpy(part[i], turned);
    }
    NAME(a, "MatMul_3");
    NAME(b, "Mul");
    node(p, "_3", "MatMul", a, join(q, k, ""));
    node(p, "", "Mul", b, join(a, "scale", ""));
    if (opt.bias) {
        NAME(d, "Add");
        node(p, "", "Add", d, join(b, f("h.%ld.attn.bias", l), ""));
        strcpy(b, d);
    }
    NAME(a, "Where");
    node(p, "", "Where", a, join("mask", b, "minus_inf"));
    NAME(b, "Softmax");
    attr_int("axis", -1);
    node(p, "", "Softmax", b, a);
    NAME(d, "Dropout");
    const char *weights = dropout(p, b, d);
    NAME(a, "MatMul_4");
    node(p, "_4", "MatMul", a, join(weights, v, ""));
    NAME(b, "Transpose_3");
    attr_ints("perm", 4, (long[]){0, 2, 1, 3});
    node(p, "_3", "Transpose", b, a);
    NAME(a, "Reshape_3");
    node(p, "_3", "Reshape", a, join(b, "flat_shape", ""));
    linear(f("/h.%ld/attn/c_proj", l), a, y, f("h.%ld.attn.c_proj.weight", l),
           f("h.%ld.attn.c_proj.bias", l));
#undef NAME
}

static void mlp(long l, const char *x, const char *y)
{
    char h[64], c[96], t[96], u[64], p[64];
    snprintf(p, sizeof p, "/h.%ld/mlp", l);
    snprintf(h, sizeof h, "/h.%ld/mlp/c_fc_output_0", l);
    linear(f("/h.%ld/mlp/c_fc", l), x, h, f("h.%ld.mlp.c_fc.weight", l),
           f("h.%ld.mlp.c_fc.bias", l));
    static const char *const steps[][3] = {
        {"Pow", "", "three"}, {"Mul", "_0", "gelu_a"}, {"Add", "_0", ""}, {"Mul", "_1", "gelu_b"},
        {"Tanh", "", NULL},   {"Add", "_1", "one"},    {"Mul", "_2", ""}, {"Mul", "_3", "half"}};
    snprintf(c, sizeof c, "%s", h);
    for (int i = 0; i < 8; i++) {                       /* 0.5 x (1 + tanh(b (x + a x^3))) */
        snprintf(t, sizeof t, "%s/gelu_%d_output_0", p, i);
        const char *other = steps[i][2];
        node(p, steps[i][1], steps[i][0], t, join(c, !other ? "" : *other ? other : h, ""));
        snprintf(c, sizeof c, "%s", t);
    }
    snprintf(u, sizeof u, "/h.%ld/mlp/c_proj", l);
    linear(u, c, y, f("h.%ld.mlp.c_proj.weight", l), f("h.%ld.mlp.c_proj.bias", l));
}

static void block(long l, const char *x, const char *y)
{
    char n1[64], at[64], r[64], n2[64], m[64], p[64];
    snprintf(p, sizeof p, "/h.%ld", l);
    snprintf(n1, sizeof n1, "/h.%ld/ln_1_output_0", l);
    snprintf(at, sizeof at, "/h.%ld/attn_output_0", l);
    snprintf(r, sizeof r, "/h.%ld/Add_output_0", l);
    snprintf(n2, sizeof n2, "/h.%ld/ln_2_output_0", l);
    snprintf(m, sizeof m, "/h.%ld/mlp_output_0", l);
    layer_norm(f("/h.%ld/ln_1", l), x, n1, f("h.%ld.ln_1.weight", l), f("h.%ld.ln_1.bias", l));
    attention(l, n1, at);
    node(p, "", "Add", r, join(x, dropout(f("/h.%ld/drop_1", l), at, f("/h.%ld/drop_1_0", l)), ""));
    layer_norm(f("/h.%ld/ln_2", l), r, n2, f("h.%ld.ln_2.weight", l), f("h.%ld.ln_2.bias", l));
    mlp(l, n2, m);
    node(p, "_1", "Add", y,
         join(r, dropout(f("/h.%ld/drop_2", l), m, f("/h.%ld/drop_2_0", l)), ""));
}

static void parameters(void)
{
    long d = opt.dim;
    double small = 0.02 / sqrt(2.0 * (double)opt.layers);
    weight("wte.weight", 2, opt.vocab, d, 0.02, 0);
    weight("wpe.weight", 2, opt.seq, d, 0.02, 0);
    for (long l = 0; l < opt.layers; l++) {
        weight(f("h.%ld.ln_1.weight", l), 1, d, 0, 0, 1);
        weight(f("h.%ld.ln_1.bias", l), 1, d, 0, 0, 0);
        weight(f("h.%ld.attn.c_attn.weight", l), 2, d, 3 * d, 0.02, 0);
        weight(f("h.%ld.attn.c_attn.bias", l), 1, 3 * d, 0, 0, 0);
        weight(f("h.%ld.attn.c_proj.weight", l), 2, d, d, small, 0);
        weight(f("h.%ld.attn.c_proj.bias", l), 1, d, 0, 0, 0);
        if (opt.bias)
            weight(f("h.%ld.attn.bias", l), 2, opt.seq, opt.seq, 0.02, 0);
        weight(f("h.%ld.ln_2.weight", l), 1, d, 0, 0, 1);
        weight(f("h.%ld.ln_2.bias", l), 1, d, 0, 0, 0);
        weight(f("h.%ld.mlp.c_fc.weight", l), 2, d, 4 * d, 0.02, 0);
        weight(f("h.%ld.mlp.c_fc.bias", l), 1, 4 * d, 0, 0, 0);
        weight(f("h.%ld.mlp.c_proj.weight", l), 2, 4 * d, d, small, 0);
        weight(f("h.%ld.mlp.c_proj.bias", l), 1, d, 0, 0, 0);
    }
    if (opt.gain)
        weight("gain", 1, d / opt.heads, 0, 0.02, 1);
    weight("ln_f.weight", 1, d, 0, 0, 1);
    weight("ln_f.bias", 1, d, 0, 0, 0);
    if (!opt.tied)
        weight("lm_head.weight", 2, d, opt.vocab, 0.02, 0);
}

static void constants(void)
{
    long d = opt.dim, seq = opt.seq;
    unsigned char *mask = calloc((size_t)seq, (size_t)seq);
    int64_t *position = calloc((size_t)seq, sizeof *position);
    if (!mask || !position)
        exit(3);
    for (long i = 0; i < seq; i++) {
        position[i] = i;
        memset(mask + i * seq, 1, (size_t)i + 1);
    }
    initializer("mask", BOOL, 4, (long[]){1, 1, seq, seq}, mask, (size_t)(seq * seq));
    initializer("positions", I64, 2, (long[]){1, seq}, position, (size_t)seq * sizeof *position);
    free(mask);
    free(position);
    ints("split_sizes", 3, (long[]){d, d, d});
    ints("head_shape", 4, (long[]){opt.rows, seq, opt.heads, d / opt.heads});
    ints("flat_shape", 3, (long[]){opt.rows, seq, d});
    if (opt.dropout)
        initializer("training", BOOL, 0, NULL, "\1", 1);
}

static void scalars(void)
{
    scalar("scale", (float)(1 / sqrt((double)opt.dim / (double)opt.heads)));
    scalar("minus_inf", -INFINITY);
    scalar("three", 3);
    scalar("gelu_a", 0.044715f);
    scalar("gelu_b", 0.7978845608f);
    scalar("one", 1);
    scalar("half", 0.5f);
    if (opt.dropout)
        scalar("dropout_ratio", (float)opt.dropout / 100);
}

static void value_info(int field, const char *name, int type, int rank, const long *dim)
{
    Buf shape = {0}, tensor = {0}, kind = {0}, info = {0};
    for (int i = 0; i < rank; i++) {
        Buf one = {0};
        put_int(&one, 1, dim[i]);
        put_message(&shape, 1, &one);
    }
    put_int(&tensor, 1, type);
    put_message(&tensor, 2, &shape);
    put_message(&kind, 1, &tensor);
    put_string(&info, 1, name);
    put_message(&info, 2, &kind);
    put_message(&graph, field, &info);
}

static void build(void)
{
    scalars();
    node("/wte", "", "Gather", "/wte/Gather_output_0", "wte.weight input_ids");
    node("/wpe", "", "Gather", "/wpe/Gather_output_0", "wpe.weight positions");
    node("", "", "Add", "/Add_output_0", "/wte/Gather_output_0 /wpe/Gather_output_0");
    char x[64], y[64];
    snprintf(x, sizeof x, "%s", dropout("/drop", "/Add_output_0", "/drop_0"));
    for (long l = 0; l < opt.layers; l++) {
        snprintf(y, sizeof y, "/h.%ld/Add_1_output_0", l);
        block(l, x, y);
        strcpy(x, y);
    }
    layer_norm("/ln_f", x, "/ln_f/LayerNormalization_output_0", "ln_f.weight", "ln_f.bias");
    if (opt.tied) {
        attr_ints("perm", 2, (long[]){1, 0});
        node("/lm_head", "", "Transpose", "/lm_head/Transpose_output_0", "wte.weight");
    }
    node("/lm_head", "", "MatMul", "logits",
         join("/ln_f/LayerNormalization_output_0",
              opt.tied ? "/lm_head/Transpose_output_0" : "lm_head.weight", ""));
    put_string(&graph, 2, "gpt");
    parameters();
    constants();
    value_info(11, "input_ids", I64, 2, (long[]){opt.rows, opt.seq});
    value_info(12, "logits", F32, 3, (long[]){opt.rows, opt.seq, opt.vocab});
}

static long number(const char *s)
{
    char *end;
    long v = strtol(s, &end, 10);
    if (*end || v < 1 || v > 1000000000) {
        fprintf(stderr, "make_gpt: not a size: '%s'\n", s);
        exit(2);
    }
    return v;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"vocab", 1, 0, 'v'}, {"dim", 1, 0, 'd'},  {"layers", 1, 0, 'l'},   {"heads", 1, 0, 'h'},
        {"seq", 1, 0, 's'},   {"rows", 1, 0, 'r'}, {"external", 0, 0, 'e'}, {"sparse", 0, 0, 'p'},
        {"vectors", 0, 0, 'x'}, {"tied", 0, 0, 't'},  {"dropout", 1, 0, 'D'},
        {"gain", 0, 0, 'g'},  {"bias", 0, 0, 'b'}, {0, 0, 0, 0}};
    for (int c; (c = getopt_long(argc, argv, "o:", options, NULL)) != -1;)
        switch (c) {
        case 'v': opt.vocab = number(optarg); break;
        case 'd': opt.dim = number(optarg); break;
        case 'l': opt.layers = number(optarg); break;
        case 'h': opt.heads = number(optarg); break;
        case 's': opt.seq = number(optarg); break;
        case 'r': opt.rows = number(optarg); break;
        case 'e': opt.external = 1; break;
        case 'p': opt.external = opt.sparse = 1; break;
        case 'x': opt.external = opt.sparse = opt.vectors = 1; break;
        case 't': opt.tied = 1; break;
        case 'g': opt.gain = 1; break;
        case 'b': opt.bias = 1; break;
        case 'D': opt.dropout = number(optarg); break;
        case 'o': opt.out = optarg; break;
        default:
            fprintf(stderr,
                    "usage: make_gpt [--vocab N] [--dim N] [--layers N] [--heads N] [--seq N] "
                    "[--rows N] [--dropout PERCENT] [--external] [--sparse] [--vectors] [--tied] "
                    "[--gain] [--bias] [-o FILE]\n");
            return 2;
        }
    if (opt.dim % opt.heads) {
        fprintf(stderr, "make_gpt: --dim %ld is no multiple of --heads %ld\n", opt.dim, opt.heads);
        return 2;
    }
    char path[4096];
    snprintf(path, sizeof path, "%s.data", opt.out);
    const char *base = strrchr(path, '/');
    snprintf(data_name, sizeof data_name, "%s", base ? base + 1 : path);
    if (opt.external && !(data = fopen(path, "wb"))) {
        perror(path);
        return 3;
    }
    build();
    if (opt.sparse && ftruncate(fileno(data), (off_t)data_at)) {
        perror(path);
        return 3;
    }
    if (data && fclose(data)) {
        perror(path);
        return 3;
    }
    Buf model = {0}, opset = {0};
    put_int(&model, 1, 8);
    put_string(&model, 2, "pytorch");
    put_string(&opset, 1, "");
    put_int(&opset, 2, 17);
    put_message(&model, 8, &opset);
    put_message(&model, 7, &graph);
    FILE *out = fopen(opt.out, "wb");
    if (!out || fwrite(model.at, 1, model.n, out) != model.n || fclose(out)) {
        perror(opt.out);
        return 3;
    }
    free(model.at);
    free(attributes.at);
    return 0;
}

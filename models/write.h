/*
 * write.h - writes an ONNX model's parts, for the programs that make models: initializers, weights
 * from a fixed generator, Constants, nodes, the file and what lies beside it.
 *
 * Names are PyTorch's TorchScript exporter's (/h.0/attn/c_attn/MatMul); opset 17.  Out of memory
 * and a file that cannot be written end the program.
 */
#ifndef MODELS_WRITE_H
#define MODELS_WRITE_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pb.h"

enum { F32 = 1, I64 = 7, BOOL = 9 };

/* external: weights lie in MODEL.data; sparse: which is a hole; vectors: but for biases and the
 * like. */
static struct {
    int external, sparse, vectors;
} weights;
static Buf graph;
static FILE *data;
static char data_name[4096];
static uint64_t data_at, random_state = 0x9e3779b97f4a7c15u;

static double uniform(void) /* splitmix64 */
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
    if (weights.external && type == F32 && rank > 0) {
        char text[32];
        external_entry(&t, "location", data_name);
        snprintf(text, sizeof text, "%llu", (unsigned long long)data_at);
        external_entry(&t, "offset", text);
        snprintf(text, sizeof text, "%zu", bytes);
        external_entry(&t, "length", text);
        put_int(&t, 14, 1);
        if (payload &&
            (fseeko(data, (off_t)data_at, SEEK_SET) || fwrite(payload, 1, bytes, data) != bytes))
            exit(3);
        data_at += bytes;
    } else
        put_bytes(&t, 9, payload, bytes);
    put_message(&graph, 5, &t);
}

static void weight_of(const char *name, int rank, const long *dim, double std, double mean)
{
    size_t n = 1;
    float *w = NULL;
    for (int i = 0; i < rank; i++)
        n *= (size_t)dim[i];
    if (weights.vectors && rank == 1 && std <= 0)
        std = 0.02;
    if (!weights.sparse || (weights.vectors && rank == 1)) {
        w = malloc(n * sizeof *w);
        if (!w)
            exit(3);
        for (size_t i = 0; i < n; i++)
            w[i] = (float)mean + (std > 0 ? (float)std * normal() : 0);
    }
    initializer(name, F32, rank, dim, w, n * sizeof *w);
    free(w);
}

static inline void weight(const char *name, int rank, long d0, long d1, double std, double mean)
{
    weight_of(name, rank, (long[]){d0, d1}, std, mean);
}

/* A Constant node, as PyTorch writes numbers: its initializers are parameters.  rank 0: of one. */
static void constant(const char *name, int rank, const long *dim, const float *v)
{
    Buf t = {0}, a = {0}, n = {0};
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        put_int(&t, 1, dim[i]);
        count *= (size_t)dim[i];
    }
    put_int(&t, 2, F32);
    put_bytes(&t, 9, v, count * sizeof *v);
    put_string(&a, 1, "value");
    put_message(&a, 5, &t);
    put_int(&a, 20, 4);
    put_string(&n, 2, name);
    put_string(&n, 4, "Constant");
    put_message(&n, 5, &a);
    put_message(&graph, 1, &n);
}

static void scalar(const char *name, float v) { constant(name, 0, NULL, &v); }

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

static inline void attr_float(const char *name, float v)
{
    Buf a = {0};
    put_string(&a, 1, name);
    put_varint(&a, 2 << 3 | 5);
    put(&a, &v, 4);
    put_int(&a, 20, 1);
    put_message(&attributes, 5, &a);
}

/* Of the next node; NULL: ONNX's own.  opset_domain: the file imports it. */
static const char *node_domain, *opset_domain;

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
    if (node_domain)
        put_string(&n, 7, opset_domain = node_domain);
    node_domain = NULL;
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

/* A dimension of 0 is symbolic: "seq". */
static inline void value_info(int field, const char *name, int type, int rank, const long *dim)
{
    Buf shape = {0}, tensor = {0}, kind = {0}, info = {0};
    for (int i = 0; i < rank; i++) {
        Buf one = {0};
        if (dim[i])
            put_int(&one, 1, dim[i]);
        else
            put_string(&one, 2, "seq");
        put_message(&shape, 1, &one);
    }
    put_int(&tensor, 1, type);
    put_message(&tensor, 2, &shape);
    put_message(&kind, 1, &tensor);
    put_string(&info, 1, name);
    put_message(&info, 2, &kind);
    put_message(&graph, field, &info);
}

static void stop(const char *path)
{
    perror(path);
    exit(3);
}

/* Before the first weight. */
static inline void model_begin(const char *out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.data", out);
    const char *base = strrchr(path, '/');
    snprintf(data_name, sizeof data_name, "%s", base ? base + 1 : path);
    if (weights.external && !(data = fopen(path, "wb")))
        stop(path);
}

static void model_end(const char *out)
{
    if (weights.sparse && ftruncate(fileno(data), (off_t)data_at))
        stop(data_name);
    if (data && fclose(data))
        stop(data_name);
    Buf model = {0}, opset = {0};
    put_int(&model, 1, 8);
    put_string(&model, 2, "pytorch");
    put_string(&opset, 1, "");
    put_int(&opset, 2, 17);
    put_message(&model, 8, &opset);
    if (opset_domain) {
        put_string(&opset, 1, opset_domain);
        put_int(&opset, 2, 1);
        put_message(&model, 8, &opset);
    }
    put_message(&model, 7, &graph);
    FILE *f = fopen(out, "wb");
    if (!f || fwrite(model.at, 1, model.n, f) != model.n || fclose(f))
        stop(out);
    free(model.at);
    free(attributes.at);
}

#endif

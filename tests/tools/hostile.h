/*
 * hostile.h - parts of a model, for hostile.c: inputs, nodes, attributes, tensors, as bytes.
 */
#ifndef PPSPLIT_HOSTILE_H
#define PPSPLIT_HOSTILE_H

#include <stdbool.h>
#include <stdio.h>

#include "models/pb.h"

enum { F32 = 1, I64 = 7, STRING = 8 };

static int number;

static void save_raw(const char *name, const void *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%02d-%s.onnx", ++number, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) {
        perror(path);
        exit(3);
    }
}

/* ---- parts of a model ---- */

typedef struct { Buf graph, functions; int opset, ir; const char *domain; } M;

static void model_save(M *m, const char *name)
{
    Buf b = {0}, o = {0};
    put_int(&b, 1, m->ir ? m->ir : 8);
    put_string(&o, 1, "");
    put_int(&o, 2, m->opset ? m->opset : 17);
    put_message(&b, 8, &o);
    if (m->domain) {
        put_string(&o, 1, m->domain);
        put_int(&o, 2, 1);
        put_message(&b, 8, &o);
    }
    put(&b, m->functions.at, m->functions.n);
    put_string(&m->graph, 2, "g");
    put_message(&b, 7, &m->graph);
    save_raw(name, b.at, b.n);
    free(b.at);
    *m = (M){0};
}

static void info(Buf *g, int field, const char *name, int type, int rank, const int64_t *dim,
                 const char *symbol)
{
    Buf shape = {0}, tensor = {0}, kind = {0}, v = {0};
    for (int i = 0; i < rank; i++) {
        Buf d = {0};
        if (symbol && i == 0)
            put_string(&d, 2, symbol);
        else
            put_int(&d, 1, dim[i]);
        put_message(&shape, 1, &d);
    }
    put_int(&tensor, 1, type);
    put_message(&tensor, 2, &shape);
    put_message(&kind, 1, &tensor);
    put_string(&v, 1, name);
    put_message(&v, 2, &kind);
    put_message(g, field, &v);
}

/* inputs and outputs: space-separated, - for an absent one; extra: attributes already encoded (may
 * be NULL) */
static void node_named(Buf *g, const char *name, const char *op, const char *in, const char *out,
                       Buf *extra, const char *domain)
{
    Buf n = {0};
    const char *lists[2] = {in, out};
    for (int f = 0; f < 2; f++) {
        char text[256];
        snprintf(text, sizeof text, "%s", lists[f]);
        for (char *s = strtok(text, " "); s; s = strtok(NULL, " "))
            put_string(&n, f + 1, strcmp(s, "-") ? s : "");
    }
    put_string(&n, 3, name);
    put_string(&n, 4, op);
    if (extra) {
        put(&n, extra->at, extra->n);
        free(extra->at);
        *extra = (Buf){0};
    }
    if (domain)
        put_string(&n, 7, domain);
    put_message(g, 1, &n);
}

static void node(Buf *g, const char *op, const char *in, const char *out, Buf *extra)
{
    node_named(g, "n", op, in, out, extra, NULL);
}

static Buf attr_int(const char *name, int64_t v)
{
    Buf a = {0}, list = {0};
    put_string(&a, 1, name);
    put_int(&a, 3, v);
    put_int(&a, 20, 2);
    put_message(&list, 5, &a);
    return list;
}

static Buf attr_float(const char *name, float v)
{
    Buf a = {0}, list = {0};
    put_string(&a, 1, name);
    put_varint(&a, 2 << 3 | 5);
    put(&a, &v, 4);
    put_int(&a, 20, 1);
    put_message(&list, 5, &a);
    return list;
}

static Buf tensor(const char *name, int type, int rank, const int64_t *dim)
{
    Buf t = {0};
    for (int i = 0; i < rank; i++)
        put_int(&t, 1, dim[i]);
    put_int(&t, 2, type);
    put_string(&t, 8, name);
    return t;
}

static void ints(Buf *g, const char *name, int n, const int64_t *v)
{
    Buf t = tensor(name, I64, 1, (int64_t[]){n});
    put_bytes(&t, 9, v, (size_t)n * 8);
    put_message(g, 5, &t);
}

static const int64_t d23[] = {2, 3};
static const float six[6] = {1, 2, 3, 4, 5, 6};

static void weight(Buf *g, const char *name, int rank, const int64_t *dim, size_t bytes)
{
    Buf t = tensor(name, F32, rank, dim);
    static const char zeros[4096];
    put_bytes(&t, 9, zeros, bytes);
    put_message(g, 5, &t);
}

/* x[2,3] -> y[2,3] with nothing between yet */
static M plain(void)
{
    M m = {0};
    info(&m.graph, 11, "x", F32, 2, d23, NULL);
    info(&m.graph, 12, "y", F32, 2, d23, NULL);
    return m;
}

#endif

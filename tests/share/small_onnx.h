/*
 * small_onnx.h - graphs of a few nodes, written as ONNX in the manner of PyTorch's exporters: an
 * initializer's numbers count up from a first one.
 */
#ifndef PPSPLIT_SMALL_ONNX_H
#define PPSPLIT_SMALL_ONNX_H

#include <stdio.h>
#include <string.h>

#include "models/pb.h"

typedef struct { Buf graph; } M;

static void tensor(M *m, const char *name, int type, const int *dim, const void *data, size_t size)
{
    Buf t = {0};
    for (; *dim; dim++)
        put_int(&t, 1, *dim);
    put_int(&t, 2, type);
    put_string(&t, 8, name);
    put_bytes(&t, 9, data, size);
    put_message(&m->graph, 5, &t);
}

static inline void initializer(M *m, const char *name, int rows, int cols, float first)
{
    float data[64];
    int n = rows * (cols ? cols : 1);
    for (int i = 0; i < n; i++)
        data[i] = first == 0 ? 0 : first + (float)i;
    tensor(m, name, 1, (int[]){rows, cols, 0}, data, (size_t)n * 4);
}

/* Inputs and outputs separated by spaces; scopes and fx may be NULL. */
static void node_begin(Buf *n, const char *op, const char *name, const char *in, const char *out,
                       const char *scopes, const char *fx)
{
    Buf e = {0};
    const char *const list[2] = {in, out};
    for (int i = 0; i < 2; i++) {
        char copy[256], *save = NULL;
        snprintf(copy, sizeof copy, "%s", list[i]);
        for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
            put_string(n, 1 + i, p);
    }
    put_string(n, 3, name);
    put_string(n, 4, op);
    const char *const entry[2][2] = {{"pkg.torch.onnx.name_scopes", scopes},
                                     {"pkg.torch.onnx.fx_node", fx}};
    for (int i = 0; i < 2; i++)
        if (entry[i][1]) {
            put_string(&e, 1, entry[i][0]);
            put_string(&e, 2, entry[i][1]);
            put_message(n, 9, &e);
        }
}

static void node(M *m, const char *op, const char *name, const char *in, const char *out,
                 const char *scopes, const char *fx)
{
    Buf n = {0};
    node_begin(&n, op, name, in, out, scopes, fx);
    put_message(&m->graph, 1, &n);
}

/* A Scan of one value over the last of its inputs; the body's inputs and outputs have names. */
static inline void scan(M *m, const char *name, const char *in, const char *out, const char *fx,
                        M *body, const char *const from[2], const char *const to[2])
{
    enum { INT = 2, GRAPH = 5 };
    Buf n = {0}, a = {0}, v = {0};
    for (int i = 0; i < 2; i++) {
        put_string(&v, 1, from[i]);
        put_message(&body->graph, 11, &v);
        put_string(&v, 1, to[i]);
        put_message(&body->graph, 12, &v);
    }
    node_begin(&n, "Scan", name, in, out, NULL, fx);
    put_string(&a, 1, "num_scan_inputs");
    put_int(&a, 3, 1);
    put_int(&a, 20, INT);
    put_message(&n, 5, &a);
    put_string(&a, 1, "body");
    put_message(&a, 6, &body->graph);
    put_int(&a, 20, GRAPH);
    put_message(&n, 5, &a);
    put_message(&m->graph, 1, &n);
}

static void info(M *m, int field, const char *name, int rows, int cols)
{
    Buf v = {0}, type = {0}, tensor = {0}, shape = {0}, d = {0};
    put_int(&d, 1, rows);
    put_message(&shape, 1, &d);
    put_int(&d, 1, cols);
    put_message(&shape, 1, &d);
    put_int(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_string(&v, 1, name);
    put_message(&v, 2, &type);
    put_message(&m->graph, field, &v);
}

#endif

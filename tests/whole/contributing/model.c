/*
 * model.c - the model with which contributing.t tries the new operation: y = Squareplus(x * w), b =
 * 16, with w = [1.5, -1.5], and its data, in the current folder: model.onnx, x.npy = [[2, 2]],
 * target.npy = [[3.5, 1.5]].
 */
#include <stdio.h>

#include "models/pb.h"

static void node(Buf *graph, const char *name, const char *op, const char *in0, const char *in1,
                 const char *out, Buf *attribute)
{
    Buf n = {0};
    put_string(&n, 1, in0);
    if (in1)
        put_string(&n, 1, in1);
    put_string(&n, 2, out);
    put_string(&n, 3, name);
    put_string(&n, 4, op);
    if (attribute)
        put_message(&n, 5, attribute);
    put_message(graph, 1, &n);
}

/* f32[1, 2] */
static void value(Buf *graph, int field, const char *name)
{
    Buf info = {0}, kind = {0}, tensor = {0}, shape = {0};
    for (int64_t d = 1; d <= 2; d++) {
        Buf one = {0};
        put_int(&one, 1, d);
        put_message(&shape, 1, &one);
    }
    put_int(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&kind, 1, &tensor);
    put_string(&info, 1, name);
    put_message(&info, 2, &kind);
    put_message(graph, field, &info);
}

static int save(const char *file, const void *head, size_t n, const void *bytes, size_t size)
{
    FILE *f = fopen(file, "wb");
    if (!f)
        return 1;
    int bad = fwrite(head, 1, n, f) != n || fwrite(bytes, 1, size, f) != size;
    return fclose(f) != 0 || bad;
}

static int npy(const char *file, const float *row)
{
    char head[129];
    memcpy(head, "\x93" "NUMPY\x01\x00\x76\x00", 10);
    snprintf(head + 10, sizeof head - 10, "%-117s\n",
             "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }");
    return save(file, head, 128, row, 2 * sizeof *row);
}

int main(void)
{
    static const float w[] = {1.5f, -1.5f}, x[] = {2, 2}, target[] = {3.5f, 1.5f}, b = 16;
    Buf model = {0}, graph = {0}, t = {0}, a = {0}, opset = {0};
    put_string(&a, 1, "b");
    put_varint(&a, 2 << 3 | 5);
    put(&a, &b, sizeof b);
    put_int(&a, 20, 1);
    node(&graph, "scale", "Mul", "x", "w", "z", NULL);
    node(&graph, "plus", "Squareplus", "z", NULL, "y", &a);
    put_string(&graph, 2, "contributing");
    put_int(&t, 1, 2);
    put_int(&t, 2, 1);
    put_string(&t, 8, "w");
    put_bytes(&t, 9, w, sizeof w);
    put_message(&graph, 5, &t);
    value(&graph, 11, "x");
    value(&graph, 12, "y");
    put_int(&model, 1, 8);
    put_message(&model, 7, &graph);
    put_int(&opset, 2, 17);
    put_message(&model, 8, &opset);
    return save("model.onnx", model.at, model.n, "", 0) || npy("x.npy", x) ||
           npy("target.npy", target);
}

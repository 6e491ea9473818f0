/*
 * rename.c - the same model with every name changed: rename IN.onnx OUT.onnx [TAIL]; or with every
 * ppsplit::Split marker an Identity: rename --unmark IN.onnx OUT.onnx.
 *
 * Letters are rotated by 13 in the names of nodes, values, initializers, inputs, outputs and the
 * graph, so that paths keep their shape (layers.1 becomes ynlref.1); TAIL, when given, is appended
 * to the names of values that nodes make: text that would do harm if a name ever became code.
 * Structure and weights are untouched.
 */
#include <ctype.h>
#include <stdio.h>

#include "models/pb.h"

typedef struct { const unsigned char *at, *end; } Span;
typedef struct { unsigned number; uint64_t value; Span body; const unsigned char *start; } Field;

static uint64_t varint(Span *s)
{
    uint64_t v = 0;
    for (int shift = 0; s->at < s->end; shift += 7) {
        unsigned char c = *s->at++;
        v |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            break;
    }
    return v;
}

static int next(Span *s, Field *f)
{
    if (s->at >= s->end)
        return 0;
    f->start = s->at;
    uint64_t key = varint(s);
    f->number = (unsigned)(key >> 3);
    f->body = (Span){0};
    switch (key & 7) {
    case 0: f->value = varint(s); break;
    case 1: s->at += 8; break;
    case 5: s->at += 4; break;
    default:
        f->value = varint(s);
        f->body = (Span){s->at, s->at + f->value};
        s->at += f->value;
    }
    return 1;
}

static const char *tail = "";
/* names that nodes make: these get the tail */
static char **made;
static size_t n_made;

static int is_made(const char *p, size_t n)
{
    for (size_t i = 0; i < n_made; i++)
        if (strlen(made[i]) == n && !memcmp(made[i], p, n))
            return 1;
    return 0;
}

static void put_name(Buf *b, unsigned field, Span s)
{
    size_t n = (size_t)(s.end - s.at), t = n && is_made((const char *)s.at, n) ? strlen(tail) : 0;
    char *name = malloc(n + t + 1);
    if (!name)
        exit(3);
    for (size_t i = 0; i < n; i++) {
        int c = s.at[i], base = isupper(c) ? 'A' : 'a';
        name[i] = (char)(isalpha(c) && c < 128 ? base + (c - base + 13) % 26 : c);
    }
    memcpy(name + n, tail, t);
    put_bytes(b, (int)field, name, n + t);
    free(name);
}

/* Copies a message, renaming the string fields of `names` (a bit per number) and descending by
 * level. */
static void copy(Buf *out, Span s, unsigned names, int graph)
{
    for (Field f; next(&s, &f);) {
        Buf inner = {0};
        if (f.number < 32 && (names >> f.number & 1) && f.body.at)
            put_name(out, f.number, f.body);
        else if (graph && f.number == 1) {              /* NodeProto: input, output, name */
            copy(&inner, f.body, 1u << 1 | 1u << 2 | 1u << 3, 0);
            put_message(out, 1, &inner);
        } else if (graph && f.number == 5) {            /* TensorProto: name */
            copy(&inner, f.body, 1u << 8, 0);
            put_message(out, 5, &inner);
        } else if (graph && f.number >= 11 && f.number <= 13) {
            copy(&inner, f.body, 1u << 1, 0);
            put_message(out, (int)f.number, &inner);
        } else
            put(out, f.start, (size_t)(s.at - f.start));
    }
}

static int is_marker(Span node)
{
    for (Field f; next(&node, &f);)
        if (f.number == 7 && f.body.end - f.body.at == 7 && !memcmp(f.body.at, "ppsplit", 7))
            return 1;
    return 0;
}

/* One Identity for each value that the marker passes on. */
static void put_identities(Buf *graph, Span node)
{
    Span value[2][64], name = {0};
    int n[2] = {0};
    for (Field f; next(&node, &f);)
        if ((f.number == 1 || f.number == 2) && n[f.number - 1] < 64)
            value[f.number - 1][n[f.number - 1]++] = f.body;
        else if (f.number == 3)
            name = f.body;
    for (int i = 0; i < n[0] && i < n[1]; i++) {
        Buf m = {0};
        put_bytes(&m, 1, value[0][i].at, (size_t)(value[0][i].end - value[0][i].at));
        put_bytes(&m, 2, value[1][i].at, (size_t)(value[1][i].end - value[1][i].at));
        put_bytes(&m, 3, name.at, (size_t)(name.end - name.at));
        put_string(&m, 4, "Identity");
        put_message(graph, 1, &m);
    }
}

static void unmark(Buf *out, Span graph)
{
    for (Field f; next(&graph, &f);)
        if (f.number == 1 && is_marker(f.body))
            put_identities(out, f.body);
        else
            put(out, f.start, (size_t)(graph.at - f.start));
}

static void find_made(Span graph)
{
    for (Field f; next(&graph, &f);)
        for (Field g; f.number == 1 && next(&f.body, &g);)
            if (g.number == 2 && g.body.end > g.body.at) {
                made = realloc(made, (n_made + 1) * sizeof *made);
                made[n_made++] = strndup((const char *)g.body.at, (size_t)(g.body.end - g.body.at));
            }
}

int main(int argc, char **argv)
{
    int marks = argc == 4 && !strcmp(argv[1], "--unmark");
    argv += marks;
    argc -= marks;
    FILE *f = argc >= 3 ? fopen(argv[1], "rb") : NULL;
    if (!f) {
        fprintf(stderr, "usage: rename [--unmark] IN.onnx OUT.onnx [TAIL]\n");
        return 2;
    }
    tail = argc > 3 ? argv[3] : "";
    Buf in = {0}, out = {0};
    char block[65536];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        put(&in, block, n);
    fclose(f);
    Span s = {in.at, in.at + in.n};
    for (Field g; next(&s, &g);) {
        if (g.number == 7) {
            Buf graph = {0};
            find_made(g.body);
            if (marks)
                unmark(&graph, g.body);
            else
                copy(&graph, g.body, 1u << 2, 1);
            put_message(&out, 7, &graph);
        } else
            put(&out, g.start, (size_t)(s.at - g.start));
    }
    f = fopen(argv[2], "wb");
    return !f || fwrite(out.at, 1, out.n, f) != out.n || fclose(f) ? 3 : 0;
}

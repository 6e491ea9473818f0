/*
 * annotated.h - models with annotations, written in a line each: tensors "x[4,6]", nodes
 * "MatMul(transB=1) x w -> y {SPECS} & ...".  A spec is "TENSOR AXIS:PARTS... @ DEVICE...", where
 * PARTS is "2", or "3*1.*2" for a part of size 3 that is whole and the rest in two; a device "0+1"
 * is a group.
 */
#ifndef ANNOTATED_H
#define ANNOTATED_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "models/pb.h"

static void put_value(Buf *graph, int field, const char *text)
{
    Buf v = {0}, type = {0}, tensor = {0}, shape = {0};
    const char *open = strchr(text, '[');
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(open - text), text);
    for (const char *p = open + 1; *p && *p != ']';) {
        Buf d = {0};
        char word[16];
        size_t n = strcspn(p, ",]");
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        if (isdigit((unsigned char)*word))
            put_int(&d, 1, atoi(word));
        else if (*word != '?')
            put_string(&d, 2, word);
        put_message(&shape, 1, &d);
        p += n + (p[n] == ',');
    }
    put_int(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_string(&v, 1, name);
    put_message(&v, 2, &type);
    put_message(graph, field, &v);
}

static void put_values(Buf *graph, int field, const char *text)
{
    char copy[256], *save = NULL;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
        put_value(graph, field, p);
}

/* "1:3*1.*2" */
static void put_axis(Buf *spec, const char *word)
{
    Buf d = {0};
    char *p;
    put_int(&d, 1, strtol(word, &p, 10));
    while (*p++) {
        Buf part = {0};
        if (*p == '*' || strcspn(p, "*") < strcspn(p, ".")) {
            if (*p != '*')
                put_int(&part, 1, strtol(p, &p, 10));
            p++;
        }
        if (*p)
            put_int(&part, 3, strtol(p, &p, 10));
        put_message(&d, 2, &part);
    }
    put_message(spec, 4, &d);
}

static void put_device(Buf *spec, const char *word, int64_t key)
{
    Buf e = {0};
    char *p;
    if (!strchr(word, '+')) {
        put_int(spec, 2, strtol(word, NULL, 10));
        return;
    }
    put_int(spec, 2, key);
    put_int(&e, 1, key);
    for (p = (char *)(uintptr_t)word; *p; p += *p == '+')
        put_int(&e, 2, strtol(p, &p, 10));
    put_message(spec, 3, &e);
}

static void put_spec(Buf *entry, char *text)
{
    Buf s = {0};
    char *save = NULL;
    int64_t key = 0;
    bool devices = false;
    char *p = strtok_r(text, " ", &save);
    put_string(&s, 1, p);
    while ((p = strtok_r(NULL, " ", &save)))
        if (*p == '@')
            devices = true;
        else if (devices)
            put_device(&s, p, --key);
        else
            put_axis(&s, p);
    put_message(entry, 2, &s);
}

/* "stage=1; x 0:2 @ 0 1; y @ 0+1" of configuration c, or "as=other; ..." */
static void put_entry(Buf *node, char *text)
{
    Buf e = {0};
    const char *id = "c";
    char *save = NULL;
    for (char *p = strtok_r(text, ";", &save); p; p = strtok_r(NULL, ";", &save)) {
        p += strspn(p, " ");
        if (!strncmp(p, "stage=", 6))
            put_int(&e, 3, atoi(p + 6));
        else if (!strncmp(p, "as=", 3))
            id = p + 3;
        else
            put_spec(&e, p);
    }
    put_string(&e, 1, id);
    put_message(node, 10, &e);
}

/* "transB=1", "axes=1", "equation=ij,jk->ik" */
static void put_attribute(Buf *node, char *text)
{
    enum { INT = 2, STRING = 3, INTS = 7 };
    Buf a = {0};
    char *eq = strchr(text, '=');
    int type = !strncmp(text, "axes", 4) ? INTS : isdigit((unsigned char)eq[1]) ? INT : STRING;
    *eq++ = 0;
    put_string(&a, 1, text);
    if (type == STRING)
        put_string(&a, 4, eq);
    else
        put_int(&a, type == INT ? 3 : 8, atoi(eq));
    put_int(&a, 20, type);
    put_message(node, 5, &a);
}

static void put_node(Buf *graph, char *text)
{
    Buf n = {0};
    char *entry = strchr(text, '{'), *save = NULL, *inner = NULL, *p;
    if (entry) {
        *entry++ = 0;
        *strchr(entry, '}') = 0;
    }
    char *op = strtok_r(text, " ", &save), *attributes = strchr(op, '(');
    int field = 1;
    while ((p = strtok_r(NULL, " ", &save)))
        if (!strcmp(p, "->"))
            field = 2;
        else
            put_string(&n, field, p);
    if (attributes) {
        *attributes++ = 0;
        *strrchr(attributes, ')') = 0;
        for (p = strtok_r(attributes, "|", &inner); p; p = strtok_r(NULL, "|", &inner))
            put_attribute(&n, p);
    }
    put_string(&n, 4, op);
    if (entry)
        put_entry(&n, entry);
    put_message(graph, 1, &n);
}

/* Initializers "w[6,8]", each of other numbers than the others. */
static inline void put_weights(Buf *graph, const char *text)
{
    char copy[256], *save = NULL;
    float next = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        Buf t = {0}, data = {0};
        char *d = strchr(p, '[');
        long n = 1;
        *d = 0;
        while (*d != ']') {
            long size = strtol(d + 1, &d, 10);
            put_int(&t, 1, size);
            n *= size;
        }
        for (long i = 0; i < n; i++, next += 0.125f)
            put(&data, &next, sizeof next);
        put_int(&t, 2, 1);
        put_string(&t, 8, p);
        put_message(&t, 9, &data);
        put_message(graph, 5, &t);
    }
}

/* devices: -1: there is no configuration */
typedef struct {
    const char *inputs, *values, *nodes;
    int devices, ir;
    const char *weights, *outputs;
} Written;

static void write_model(const Written *t, const char *path)
{
    Buf m = {0}, g = {0}, c = {0}, opset = {0};
    char copy[1024], *save = NULL;
    snprintf(copy, sizeof copy, "%s", t->nodes);
    for (char *p = strtok_r(copy, "&", &save); p; p = strtok_r(NULL, "&", &save))
        put_node(&g, p);
    put_values(&g, 11, t->inputs);
    put_values(&g, 13, t->values);
    put_weights(&g, t->weights ? t->weights : "");
    put_values(&g, 12, t->outputs ? t->outputs : "");
    put_int(&m, 1, t->ir ? t->ir : 11);
    put_message(&m, 7, &g);
    put_int(&opset, 2, 17);
    put_message(&m, 8, &opset);
    put_string(&c, 1, "c");
    put_int(&c, 2, t->devices);
    if (t->devices >= 0)
        put_message(&m, 26, &c);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(m.at, 1, m.n, f) != m.n || fclose(f))
        exit(3);
    free(m.at);
}

#endif

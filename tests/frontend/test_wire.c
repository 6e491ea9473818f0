/*
 * test_wire.c - the wire scan (wire.c), external data (external.c) and opening a file (read.c):
 * what is lifted, what is counted, what is refused, with bytes written here by hand.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/protobuf.h"
#include "frontend/onnx/onnx.h"
#include "models/pb.h"
#include "tap.h"

static char folder[64];
static Arena *arena;

typedef struct { const uint8_t *at; size_t n; Limits lim; Wire wire; } Scan;

static void scan(void *arg)
{
    Scan *s = arg;
    wire_scan(arena, "test", s->at, s->n, &s->lim, &s->wire);
}

/* Refusals are expected: their text goes nowhere. */
static int quietly(void (*fn)(void *), void *arg)
{
    int save = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO);
    int code = diag_run(fn, arg);
    dup2(save, STDERR_FILENO);
    close(save);
    close(null);
    return code;
}

static int scan_bytes(const void *at, size_t n, Scan *s)
{
    *s = (Scan){.at = at, .n = n, .lim = limits_default()};
    return quietly(scan, s);
}

static void refused(const char *what, const void *at, size_t n)
{
    Scan s;
    ok(scan_bytes(at, n, &s) == EXIT_MODEL, "refused: %s", what);
}

/* ---- the scan ---- */

static void test_lift(void)
{
    Buf t = {0}, g = {0}, m = {0};
    float big[256];
    for (int i = 0; i < 256; i++)
        big[i] = (float)i;
    put_int(&t, 1, 256);
    put_int(&t, 2, 1);
    put_string(&t, 8, "w");
    put_bytes(&t, 9, big, sizeof big);
    put_message(&g, 5, &t);
    put_int(&t, 1, 3);
    put_int(&t, 2, 7);
    put_string(&t, 8, "v");
    put_bytes(&t, 7, "\x01\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12);
    put_message(&g, 5, &t);
    put_message(&m, 7, &g);
    put_int(&m, 500, 7);
    Scan s;
    ok(scan_bytes(m.at, m.n, &s) == 0, "two tensors are scanned");
    ok(s.wire.run.n == 2, "two runs are lifted");
    ok(s.wire.run.n == 2 && s.wire.run.at[0].length == 1024 && s.wire.run.at[0].field == 9 &&
           !memcmp(m.at + s.wire.run.at[0].offset, big, 1024),
       "the first is the raw data, where it lies in the file");
    ok(s.wire.messages == 4, "model, graph, two tensors are four messages");
    ok(s.wire.length < 60, "what is left is structure only");
    Onnx__ModelProto *p = onnx__model_proto__unpack(NULL, s.wire.length, s.wire.structure);
    ok(p && p->graph && p->graph->n_initializer == 2, "protobuf-c unpacks the rest");
    if (p && p->graph && p->graph->n_initializer == 2) {
        const Onnx__TensorProto *v = p->graph->initializer[1];
        ok(!strcmp(v->name, "v") && v->has_payload && v->payload == 1 && v->n_int64_data == 0,
           "a tensor knows the number of its run");
        ok(p->base.n_unknown_fields == 0, "unknown fields are dropped");
        onnx__model_proto__free_unpacked(p, NULL);
    }
    uint64_t n = 0, value[3];
    ok(pb_packed(m.at + s.wire.run.at[1].offset, 12, value, &n) && n == 3 && value[2] == UINT64_MAX,
       "packed varints: 1, 2, -1");
    free(m.at);
}

static void test_broken(void)
{
    refused("text", "hello, this is no model", 23);
    refused("a length past the end", "\x3a\x7fx", 3);
    refused("a length of a tebibyte", "\x3a\x80\x80\x80\x80\x80\x20xx", 9);
    refused("a number without an end", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13);
    refused("the file ends inside a number", "\x08\xff", 2);
    refused("a group", "\x0b\x0c", 2);
    refused("field 0", "\x00\x00", 2);
    refused("a number where a message belongs", "\x38\x01", 2);
    refused("a graph twice", "\x3a\x00\x3a\x00", 4);
    refused("a name with a NUL", "\x3a\x03\x12\x01\x00", 5);
    refused("a fixed field past the end", "\x0d\x00\x00", 3);

    Buf t = {0}, g = {0}, m = {0};
    put_bytes(&t, 9, "abcd", 4);
    put_bytes(&t, 9, "abcd", 4);
    put_message(&g, 5, &t);
    put_message(&m, 7, &g);
    refused("data twice", m.at, m.n);
    free(m.at);
}

static void test_limits(void)
{
    Buf inner = {0}, outer = {0};
    for (int i = 0; i < 3000; i++) {                    /* node { attribute { g { ... } } } */
        put_message(&outer, i % 3 == 0 ? 6 : i % 3 == 1 ? 5 : 1, &inner);
        inner = outer;
        outer = (Buf){0};
    }
    put_message(&outer, 7, &inner);
    refused("3000 levels", outer.at, outer.n);
    free(outer.at);

    size_t n = 10000000;
    uint8_t *many = calloc(n + 6, 1);
    /* graph of 10,000,000 bytes: 5 M empty nodes */
    memcpy(many, "\x3a\x80\xad\xe2\x04", 5);
    for (size_t i = 0; i < n; i += 2)
        many[5 + i] = 0x0a;
    refused("five million empty messages", many, n + 5);
    free(many);

    Scan s = {
        .at = (const uint8_t *)"\x3a\x06\x0a\x00\x0a\x00\x0a\x00", .n = 8, .lim = limits_default()};
    s.lim.messages = 4;
    ok(quietly(scan, &s) == EXIT_MODEL, "five messages are refused when four are allowed");
    s.lim.messages = 5;
    ok(quietly(scan, &s) == 0, "and pass when five are");
    s.lim.unpacked_bytes = 200;
    ok(quietly(scan, &s) == EXIT_MODEL, "the predicted size has its limit");
}

/* ---- files ---- */

static const char *write_file(const char *name, const void *at, size_t n)
{
    char *path = arena_printf(arena, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(at, 1, n, f) != n || fclose(f))
        perror(path);
    return path;
}

typedef struct { const char *path; Model *m; } Open;

static void open_it(void *arg)
{
    Open *o = arg;
    Limits lim = limits_default();
    o->m = model_open(arena, o->path, &lim);
}

static void entry(Buf *t, const char *key, const char *value)
{
    Buf e = {0};
    put_string(&e, 1, key);
    put_string(&e, 2, value);
    put_message(t, 13, &e);
}

/* y = x + w, w = six floats in another file. */
static int open_external(const char *location, const char *offset, const char *length,
                         const char *extra, Open *o)
{
    Buf t = {0}, g = {0}, m = {0}, part = {0};
    put_int(&t, 1, 6);
    put_int(&t, 2, 1);
    put_string(&t, 8, "w");
    entry(&t, "location", location);
    if (offset)
        entry(&t, "offset", offset);
    if (length)
        entry(&t, "length", length);
    if (extra)
        entry(&t, extra, "1");
    put_int(&t, 14, 1);
    put_message(&g, 5, &t);
    put_string(&part, 1, "w");
    put_string(&part, 2, "y");
    put_string(&part, 4, "Relu");
    put_message(&g, 1, &part);
    put_string(&part, 1, "y");
    put_message(&g, 12, &part);
    put_message(&m, 7, &g);
    put_int(&part, 2, 17);
    put_message(&m, 8, &part);
    *o = (Open){.path = write_file("m.onnx", m.at, m.n)};
    free(m.at);
    return quietly(open_it, o);
}

static void test_external(void)
{
    float w[16];
    for (int i = 0; i < 16; i++)
        w[i] = (float)i;
    write_file("w.bin", w, sizeof w);
    write_file("twice", w, sizeof w);
    mkdir(arena_printf(arena, "%s/sub", folder), 0700);
    write_file("sub/w.bin", w, sizeof w);
    if (link(arena_printf(arena, "%s/twice", folder), arena_printf(arena, "%s/hard", folder))
        || symlink("w.bin", arena_printf(arena, "%s/soft", folder))
        || symlink("sub", arena_printf(arena, "%s/softdir", folder))
        || mkfifo(arena_printf(arena, "%s/fifo", folder), 0600))
        perror(folder);

    Open o;
    ok(open_external("w.bin", "8", "24", NULL, &o) == 0, "external data opens");
    const Payload *p = o.m ? &o.m->init.at[0].bytes : NULL;
    ok(p && p->length == 24 && p->offset == 8 && !memcmp(p->at, w + 2, 24),
       "it begins at its offset");
    ok(open_external("sub/w.bin", NULL, NULL, NULL, &o) == 0,
       "a folder below, no offset, no length");
    ok(open_external("w.bin", "0", "24", "checksum", &o) == 0, "a checksum may be there");

    static const struct { const char *location, *offset, *length, *extra; int code;
    } bad[] = {
        {"../w.bin", "0", "24", NULL, EXIT_MODEL},
        {"sub/../../w.bin", "0", "24", NULL, EXIT_MODEL},
        {"/etc/hostname", "0", "24", NULL, EXIT_MODEL},
        {"soft", "0", "24", NULL, EXIT_MODEL},
        {"softdir/w.bin", "0", "24", NULL, EXIT_MODEL},
        {"hard", "0", "24", NULL, EXIT_MODEL},
        {"fifo", "0", "24", NULL, EXIT_MODEL},
        {"sub", "0", "24", NULL, EXIT_MODEL},
        {"", "0", "24", NULL, EXIT_MODEL},
        {"none.bin", "0", "24", NULL, EXIT_IO},
        {"w.bin", "48", "24", NULL, EXIT_MODEL},
        {"w.bin", "0", "1125899906842624", NULL, EXIT_MODEL},
        {"w.bin", "18446744073709551615", "24", NULL, EXIT_MODEL},
        {"w.bin", "-1", "24", NULL, EXIT_MODEL},
        {"w.bin", " 1", "24", NULL, EXIT_MODEL},
        {"w.bin", "0x8", "24", NULL, EXIT_MODEL},
        {"w.bin", "0", "24", "mode", EXIT_MODEL},
        {"w.bin", "0", "24", "offset", EXIT_MODEL},
        {"w.bin", "0", "20", NULL, EXIT_MODEL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ok(open_external(bad[i].location, bad[i].offset, bad[i].length, bad[i].extra, &o) ==
               bad[i].code,
           "refused: external '%s' at %s, %s%s%s", bad[i].location, bad[i].offset, bad[i].length,
           bad[i].extra ? " with " : "", bad[i].extra ? bad[i].extra : "");
}

static void test_files(void)
{
    Open o = {.path = write_file("empty.onnx", "", 0)};
    ok(quietly(open_it, &o) == EXIT_MODEL, "refused: an empty file");
    o.path = folder;
    ok(quietly(open_it, &o) == EXIT_IO, "refused: a folder");
    o.path = arena_printf(arena, "%s/fifo", folder);
    ok(quietly(open_it, &o) == EXIT_IO, "refused: a pipe, without waiting for it");
    o.path = arena_printf(arena, "%s/nowhere.onnx", folder);
    ok(quietly(open_it, &o) == EXIT_IO, "refused: a file that is not there");
    o.path = write_file("nograph.onnx", "\x08\x08", 2);
    ok(quietly(open_it, &o) == EXIT_MODEL, "refused: a model without a graph");
}

int main(void)
{
    arena = arena_new();
    snprintf(folder, sizeof folder, "/tmp/test_wire.XXXXXX");
    if (!mkdtemp(folder))
        return 3;
    test_lift();
    test_broken();
    test_limits();
    test_external();
    test_files();
    static const char *const made[] = {"w.bin",   "twice",      "hard",         "soft",
                                       "softdir", "fifo",       "sub/w.bin",    "sub",
                                       "m.onnx",  "empty.onnx", "nograph.onnx", ""};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        remove(arena_printf(arena, "%s/%s", folder, made[i]));
    arena_free(arena);
    return tap_done();
}

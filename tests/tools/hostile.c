/*
 * hostile.c - writes models that must be refused: broken wire format, bombs, lies about sizes,
 * roads out of the folder, and ordinary mistakes.  hostile DIR writes DIR/NN-name.onnx (and what
 * external data they point at); hostile odd DIR writes sound models with a rare property.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "hostile.h"

/* ---- the wire ---- */

static void wire_cases(void)
{
    save_raw("empty", "", 0);
    save_raw("text", "this is no model at all, but it is quite long\n", 46);
    save_raw("truncated-varint", "\x08\x88", 2);
    save_raw("long-varint", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13);
    save_raw("length-past-the-end", "\x3a\xff\xff\xff\x7f\x01", 6);
    save_raw("length-negative", "\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", 12);
    save_raw("group", "\x08\x08\x3b\x0a\x00\x3c", 6);
    save_raw("field-zero", "\x02\x01\x00", 3);
    Buf deep = {0};
    /* a node in a graph in an attribute in a node in a graph ... */
    for (int i = 0; i < 3001; i++) {
        Buf outer = {0};
        put_bytes(&outer, i % 3 == 0 ? 1 : i % 3 == 1 ? 6 : 5, deep.at, deep.n);
        free(deep.at);
        deep = outer;
    }
    Buf b = {0};
    put_int(&b, 1, 8);
    put_message(&b, 7, &deep);
    save_raw("depth", b.at, b.n);
    b.n = 0;
    put_int(&b, 1, 8);
    Buf many = {0};
    for (int i = 0; i < 5000000; i++)
        put(&many, "\x0a", 2);                          /* an empty node */
    put_message(&b, 7, &many);
    save_raw("messages", b.at, b.n);
    free(b.at);
}

/* ---- names and structure ---- */

static void structure_cases(void)
{
    Buf b = {0}, o = {0};
    put_int(&b, 1, 8);
    put_int(&o, 2, 17);
    put_message(&b, 8, &o);
    save_raw("no-graph", b.at, b.n);
    free(b.at);
    M m = plain();
    m.opset = 6;
    node(&m.graph, "Relu", "x", "y", NULL);
    model_save(&m, "opset-6");
    m = plain();
    node(&m.graph, "Rellu", "x", "y", NULL);
    model_save(&m, "unknown-op");
    m = plain();
    m.domain = "com.example";
    node_named(&m.graph, "n", "Relu", "x", "y", NULL, "com.example");
    model_save(&m, "unknown-domain");
    m = plain();
    node(&m.graph, "Relu", "x", "y", NULL);
    node(&m.graph, "Neg", "x", "y", NULL);
    model_save(&m, "value-made-twice");
    m = plain();
    node(&m.graph, "Add", "x b", "a", NULL);
    node(&m.graph, "Relu", "a", "b", NULL);
    node(&m.graph, "Relu", "b", "y", NULL);
    model_save(&m, "cycle");
    m = plain();
    node(&m.graph, "Add", "x nobody", "y", NULL);
    model_save(&m, "undefined-input");
    m = plain();
    node(&m.graph, "Relu", "x", "z", NULL);
    model_save(&m, "output-not-made");
    m = (M){0};
    info(&m.graph, 11, "x", F32, 2, d23, NULL);
    node(&m.graph, "Relu", "x", "y", NULL);
    model_save(&m, "no-outputs");
    m = plain();
    node_named(&m.graph, "\x1b[2Jevil\nname", "Rellu", "x", "y", NULL, NULL);
    model_save(&m, "control-bytes");
    m = plain();
    Buf n = {0};
    put_string(&n, 1, "x");
    put_string(&n, 2, "y");
    put_bytes(&n, 3, "a\0b", 3);
    put_string(&n, 4, "Relu");
    put_message(&m.graph, 1, &n);
    model_save(&m, "nul-in-a-name");
    m = (M){0};
    info(&m.graph, 11, "x", F32, 2, d23, "batch");
    info(&m.graph, 12, "y", F32, 2, d23, "batch");
    node(&m.graph, "Relu", "x", "y", NULL);
    model_save(&m, "unbound-dimension");
    m = (M){0};
    info(&m.graph, 11, "x", F32, 2, (int64_t[]){-2, 3}, NULL);
    info(&m.graph, 12, "y", F32, 2, d23, NULL);
    node(&m.graph, "Relu", "x", "y", NULL);
    model_save(&m, "negative-dimension");
    m = (M){0};
    info(&m.graph, 11, "x", STRING, 2, d23, NULL);
    info(&m.graph, 12, "y", STRING, 2, d23, NULL);
    node(&m.graph, "Identity", "x", "y", NULL);
    model_save(&m, "string-input");
    m = plain();
    Buf body = {0}, a = {0}, list = {0};
    put_string(&body, 2, "body");
    put_string(&a, 1, "body");
    put_message(&a, 6, &body);
    put_int(&a, 20, 5);
    put_message(&list, 5, &a);
    node(&m.graph, "Loop", "x", "y", &list);
    model_save(&m, "loop");
}

static void function(Buf *model, const char *name, const char *callee, int calls)
{
    Buf f = {0}, o = {0};
    put_string(&f, 1, name);
    put_string(&f, 4, "x");
    put_string(&f, 5, "y");
    for (int i = 0; i < calls; i++) {
        char in[16], out[16];
        snprintf(in, sizeof in, i ? "t%d" : "x", i);
        snprintf(out, sizeof out, i + 1 < calls ? "t%d" : "y", i + 1);
        Buf n = {0};
        put_string(&n, 1, in);
        put_string(&n, 2, out);
        put_string(&n, 4, callee);
        put_string(&n, 7, !strcmp(callee, "Relu") ? "" : "fn");
        put_message(&f, 7, &n);
    }
    put_string(&o, 1, "");
    put_int(&o, 2, 17);
    put_message(&f, 9, &o);
    put_string(&f, 10, "fn");
    put_message(model, 25, &f);
}

static void function_cases(void)
{
    M m = plain();
    m.domain = "fn";
    function(&m.functions, "A", "B", 1);
    function(&m.functions, "B", "A", 1);
    node_named(&m.graph, "n", "A", "x", "y", NULL, "fn");
    model_save(&m, "recursive-functions");
    m = plain();
    m.domain = "fn";
    char name[16], callee[16];
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "F%d", i);
        snprintf(callee, sizeof callee, i == 29 ? "Relu" : "F%d", i + 1);
        function(&m.functions, name, callee, 8);
    }
    node_named(&m.graph, "n", "F0", "x", "y", NULL, "fn");
    model_save(&m, "function-bomb");
}

/* ---- tensors ---- */

static void tensor_cases(void)
{
    static const struct { const char *name; int type, rank; int64_t dim[3]; size_t bytes; } t[] = {
        {"raw-data-short", F32, 2, {2, 3}, 20},
        {"raw-data-long", F32, 2, {2, 3}, 28},
        {"tensor-negative-dimension", F32, 2, {-2, 3}, 24},
        {"tensor-dimensions-overflow", F32, 3, {INT64_C(1) << 40, INT64_C(1) << 40, 2}, 24},
        {"tensor-huge", F32, 3, {1 << 20, 1 << 20, 1}, 24},
        {"tensor-type-99", 99, 2, {2, 3}, 24},
    };
    M m;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        m = plain();
        Buf w = tensor("w", t[i].type, t[i].rank, t[i].dim);
        char zeros[32] = {0};
        put_bytes(&w, 9, zeros, t[i].bytes);
        put_message(&m.graph, 5, &w);
        node(&m.graph, "Add", "x w", "y", NULL);
        model_save(&m, t[i].name);
    }
    m = plain();
    Buf w = tensor("w", F32, 0, NULL);
    for (int i = 0; i < 17; i++)
        put_int(&w, 1, 1);
    put_bytes(&w, 9, six, 4);
    put_message(&m.graph, 5, &w);
    node(&m.graph, "Add", "x w", "y", NULL);
    model_save(&m, "tensor-rank-17");
    m = plain();
    w = tensor("w", F32, 2, d23);
    put_bytes(&w, 9, six, 24);
    put_bytes(&w, 4, six, 24);
    put_message(&m.graph, 5, &w);
    node(&m.graph, "Add", "x w", "y", NULL);
    model_save(&m, "tensor-two-payloads");
    m = plain();
    w = tensor("w", F32, 2, d23);
    put_bytes(&w, 4, six, 20);
    put_message(&m.graph, 5, &w);
    node(&m.graph, "Add", "x w", "y", NULL);
    model_save(&m, "float-data-short");
    m = plain();
    weight(&m.graph, "w", 2, d23, 24);
    weight(&m.graph, "w", 2, d23, 24);
    node(&m.graph, "Add", "x w", "y", NULL);
    model_save(&m, "initializer-twice");
}

static void external(const char *name, const char *const *entry)
{
    M m = plain();
    Buf w = tensor("w", F32, 2, d23);
    for (; entry[0]; entry += 2) {
        Buf e = {0};
        put_string(&e, 1, entry[0]);
        put_string(&e, 2, entry[1]);
        put_message(&w, 13, &e);
    }
    put_int(&w, 14, 1);
    put_message(&m.graph, 5, &w);
    node(&m.graph, "Add", "x w", "y", NULL);
    model_save(&m, name);
}
#define EXTERNAL(name, ...) external(name, (const char *const[]){__VA_ARGS__, NULL})

static void external_cases(void)
{
    FILE *f = fopen("weights.bin", "wb");
    if (!f || fwrite(six, 4, 6, f) != 6 || fclose(f) || mkdir("folder", 0777) ||
        symlink("weights.bin", "link.bin") || symlink("folder", "linked") ||
        !(f = fopen("folder/inside.bin", "wb")) || fwrite(six, 4, 6, f) != 6 || fclose(f) ||
        !(f = fopen("two.bin", "wb")) || fwrite(six, 4, 6, f) != 6 || fclose(f) ||
        link("two.bin", "hard.bin") || mkfifo("pipe.bin", 0600)) {
        perror("external data");
        exit(3);
    }
    EXTERNAL("external-parent", "location", "../weights.bin");
    EXTERNAL("external-hidden-parent", "location", "folder/../../weights.bin");
    EXTERNAL("external-absolute", "location", "/etc/passwd");
    EXTERNAL("external-symlink", "location", "link.bin");
    EXTERNAL("external-symlinked-folder", "location", "linked/inside.bin");
    EXTERNAL("external-hard-link", "location", "hard.bin");
    EXTERNAL("external-fifo", "location", "pipe.bin");
    EXTERNAL("external-folder", "location", "folder");
    EXTERNAL("external-missing", "location", "nobody.bin");
    EXTERNAL("external-no-location", "offset", "0");
    EXTERNAL("external-unknown-key", "location", "weights.bin", "__class__", "x");
    EXTERNAL("external-petabytes", "location", "weights.bin", "offset", "0", "length",
             "9007199254740992");
    EXTERNAL("external-offset-past-the-end", "location", "weights.bin", "offset", "8", "length",
             "24");
    EXTERNAL("external-offset-negative", "location", "weights.bin", "offset", "-4");
    EXTERNAL("external-offset-words", "location", "weights.bin", "offset", "4 bytes");
    EXTERNAL("external-length-wrong", "location", "weights.bin", "length", "16");
}

/* ---- ordinary mistakes, and bombs made of shapes ---- */

static void op_cases(void)
{
    M m;
#define ONE(title, ...) m = plain(); __VA_ARGS__; model_save(&m, title)
    Buf a;
    ONE("too-few-operands", node(&m.graph, "Add", "x", "y", NULL));
    ONE("too-many-operands", node(&m.graph, "Relu", "x x", "y", NULL));
    ONE("matmul-inner", weight(&m.graph, "w", 2, (int64_t[]){4, 5}, 80),
        node(&m.graph, "MatMul", "x w", "y", NULL));
    ONE("add-shapes", weight(&m.graph, "w", 1, (int64_t[]){4}, 16),
        node(&m.graph, "Add", "x w", "y", NULL));
    ONE("reshape-elements", ints(&m.graph, "s", 2, (int64_t[]){4, 2}),
        node(&m.graph, "Reshape", "x s", "y", NULL));
    ONE("reshape-two-unknown", ints(&m.graph, "s", 2, (int64_t[]){-1, -1}),
        node(&m.graph, "Reshape", "x s", "y", NULL));
    ONE("softmax-axis", a = attr_int("axis", 5), node(&m.graph, "Softmax", "x", "y", &a));
    ONE("concat-shapes", weight(&m.graph, "w", 2, (int64_t[]){2, 4}, 32), a = attr_int("axis", 0),
        node(&m.graph, "Concat", "x w", "y", &a));
    ONE("attribute-type", a = attr_float("axis", 1), node(&m.graph, "Softmax", "x", "y", &a));
    ONE("conv-channels", weight(&m.graph, "w", 4, (int64_t[]){1, 1, 3, 3}, 36),
        node(&m.graph, "Conv", "x w", "y", NULL));
    ONE("transpose-run-time-shape", info(&m.graph, 11, "s", I64, 1, (int64_t[]){2}, NULL),
        node(&m.graph, "Reshape", "x s", "y", NULL));
    ONE("split-sizes", ints(&m.graph, "s", 2, (int64_t[]){1, 1}), a = attr_int("axis", 1),
        node(&m.graph, "Split", "x s", "y z", &a));
    ONE("slice-step-zero", ints(&m.graph, "b", 1, (int64_t[]){0}),
        ints(&m.graph, "e", 1, (int64_t[]){2}), ints(&m.graph, "ax", 1, (int64_t[]){0}),
        ints(&m.graph, "st", 1, (int64_t[]){0}), node(&m.graph, "Slice", "x b e ax st", "y", NULL));
    ONE("gather-index", ints(&m.graph, "i", 1, (int64_t[]){7}),
        node(&m.graph, "Gather", "x i", "y", NULL));
    ONE("type-mismatch", ints(&m.graph, "i", 3, (int64_t[]){1, 2, 3}),
        node(&m.graph, "Add", "x i", "y", NULL));
    ONE("constant-of-shape-bomb", ints(&m.graph, "s", 3, (int64_t[]){1 << 20, 1 << 20, 1 << 20}),
        node(&m.graph, "ConstantOfShape", "s", "y", NULL));
    ONE("expand-bomb",
        ints(&m.graph, "s", 4, (int64_t[]){INT64_C(1) << 31, INT64_C(1) << 31, 2, 3}),
        node(&m.graph, "Expand", "x s", "y", NULL));
    ONE("tile-bomb", ints(&m.graph, "s", 2, (int64_t[]){INT64_C(1) << 40, INT64_C(1) << 40}),
        node(&m.graph, "Tile", "x s", "y", NULL));
    ONE("pad-bomb", ints(&m.graph, "s", 4, (int64_t[]){0, INT64_MAX, 0, INT64_MAX}),
        node(&m.graph, "Pad", "x s", "y", NULL));
    ONE("range-bomb", ints(&m.graph, "b", 0, NULL), ints(&m.graph, "b0", 1, (int64_t[]){0}),
        ints(&m.graph, "e0", 1, (int64_t[]){INT64_MAX}), ints(&m.graph, "s0", 1, (int64_t[]){1}),
        node(&m.graph, "Range", "b0 e0 s0", "y", NULL));
    ONE("one-hot-bomb", ints(&m.graph, "i", 1, (int64_t[]){0}),
        ints(&m.graph, "d", 1, (int64_t[]){INT64_C(1) << 50}),
        ints(&m.graph, "v", 2, (int64_t[]){0, 1}), node(&m.graph, "OneHot", "i d v", "y", NULL));
#undef ONE
}

/* ---- not hostile at all: models with a property that errors.t and finite.t need ---- */

static Buf attr_body(Buf *body)
{
    Buf a = {0}, list = {0};
    put_string(body, 2, "body");
    put_string(&a, 1, "body");
    put_message(&a, 6, body);
    put_int(&a, 20, 5);
    put_message(&list, 5, &a);
    return list;
}

/* A Loop whose body goes on for ever. */
static Buf endless_body(void)
{
    Buf body = {0};
    info(&body, 11, "i", 7, 0, NULL, NULL);
    info(&body, 11, "go", 9, 0, NULL, NULL);
    info(&body, 11, "v", F32, 2, d23, NULL);
    node(&body, "Identity", "go", "on", NULL);
    node(&body, "Relu", "v", "next", NULL);
    info(&body, 12, "on", 9, 0, NULL, NULL);
    info(&body, 12, "next", F32, 2, d23, NULL);
    return attr_body(&body);
}

static void loop_cases(void)
{
    M m = plain();
    Buf body = endless_body();
    node(&m.graph, "Loop", "- - x", "y", &body);
    model_save(&m, "endless-loop");
    m = plain();
    ints(&m.graph, "trips", 1, (int64_t[]){1000000000000});
    body = endless_body();
    node(&m.graph, "Loop", "trips - x", "y", &body);
    model_save(&m, "loop-bomb");
}

/* Steps without number: of a body without a node, and along a dimension. */
static void step_cases(void)
{
    M m = plain();
    Buf body = {0};
    ints(&m.graph, "trips", 1, (int64_t[]){INT64_MAX - 1});
    info(&body, 11, "i", 7, 0, NULL, NULL);
    info(&body, 11, "go", 9, 0, NULL, NULL);
    info(&body, 11, "v", F32, 2, d23, NULL);
    info(&body, 12, "go", 9, 0, NULL, NULL);
    info(&body, 12, "v", F32, 2, d23, NULL);
    Buf attr = attr_body(&body);
    node(&m.graph, "Loop", "trips - x", "y", &attr);
    model_save(&m, "empty-loop-bomb");
    const int64_t row[] = {3}, long_x[] = {INT64_C(1) << 40, 3};
    m = (M){0};
    body = (Buf){0};
    info(&m.graph, 11, "x", F32, 2, long_x, NULL);
    info(&m.graph, 12, "y", F32, 2, long_x, NULL);
    info(&body, 11, "v", F32, 1, row, NULL);
    node(&body, "Relu", "v", "r", NULL);
    info(&body, 12, "r", F32, 1, row, NULL);
    attr = attr_body(&body);
    Buf inputs = attr_int("num_scan_inputs", 1);
    put(&attr, inputs.at, inputs.n);
    node(&m.graph, "Scan", "x", "y", &attr);
    model_save(&m, "scan-bomb");
}

/* How many places are not 0 is a size: less 2^53, times 1024, by -1, of which the least number there
 * is is a part. */
static void size_case(void)
{
    M m = plain();
    Buf to = attr_int("to", 9);
    ints(&m.graph, "i", 1, (int64_t[]){1});
    ints(&m.graph, "many", 1, (int64_t[]){INT64_C(1) << 53});
    ints(&m.graph, "k", 1, (int64_t[]){1024});
    ints(&m.graph, "minus", 1, (int64_t[]){-1});
    node(&m.graph, "Cast", "x", "mask", &to);
    node(&m.graph, "NonZero", "mask", "places", NULL);
    node(&m.graph, "Shape", "places", "shape", NULL);
    node(&m.graph, "Gather", "shape i", "n", NULL);
    node(&m.graph, "Sub", "n many", "less", NULL);
    node(&m.graph, "Mul", "less k", "least", NULL);
    node(&m.graph, "Div", "least minus", "size", NULL);
    node(&m.graph, "ConstantOfShape", "size", "y", NULL);
    model_save(&m, "least-size");
}

/* What is picked by marks that are no marks, and told apart by more numbers than memory holds. */
static void pick_cases(void)
{
    M m = plain();
    Buf axis = attr_int("axis", 1);
    info(&m.graph, 11, "marks", F32, 1, (int64_t[]){3}, NULL);
    node(&m.graph, "Compress", "x marks", "y", &axis);
    model_save(&m, "compress-by-numbers");
    m = plain();
    ints(&m.graph, "d", 1, (int64_t[]){INT64_C(1) << 38});
    ints(&m.graph, "v", 2, (int64_t[]){0, 1});
    info(&m.graph, 11, "i", I64, 1, (int64_t[]){2}, NULL);
    node(&m.graph, "OneHot", "i d v", "y", NULL);
    model_save(&m, "one-hot-of-too-many");
}

/* Attributes and constant operands whose negation, sum or product 64 bits do not hold, and a type that
 * 32 bits would take for another. */
static void far_cases(void)
{
    static const int64_t least[4] = {INT64_MIN, 0, 0, INT64_MIN};
    M m = plain();
    ints(&m.graph, "pads", 4, least);
    node(&m.graph, "Pad", "x pads", "y", NULL);
    model_save(&m, "pad-by-the-least");
    m = plain();
    ints(&m.graph, "size", 4, (int64_t[]){2, 1, 1 << 15, 1 << 15});
    info(&m.graph, 11, "theta", F32, 3, (int64_t[]){2, 2, 3}, NULL);
    m.opset = 20;
    node(&m.graph, "AffineGrid", "theta size", "y", NULL);
    model_save(&m, "affine-grid-bomb");
    m = plain();
    info(&m.graph, 11, "q", 3, 2, d23, NULL);
    weight(&m.graph, "scale", 2, (int64_t[]){2, 2}, 16);
    Buf block = attr_int("block_size", INT64_MAX);
    m.opset = 21;
    node(&m.graph, "DequantizeLinear", "q scale", "y", &block);
    model_save(&m, "block-of-the-most");
    m = plain();
    Buf type = attr_int("dtype", (INT64_C(1) << 32) + F32);
    node(&m.graph, "EyeLike", "x", "y", &type);
    model_save(&m, "type-past-32-bits");
    m = plain();
    info(&m.graph, 11, "image", F32, 4, (int64_t[]){1, 1, 8, 8}, NULL);
    weight(&m.graph, "regions", 2, (int64_t[]){1, 4}, 16);
    ints(&m.graph, "of", 1, (int64_t[]){0});
    Buf wide = attr_int("output_width", INT64_MAX), ratio = attr_int("sampling_ratio", 2);
    put(&wide, ratio.at, ratio.n);
    free(ratio.at);
    node(&m.graph, "RoiAlign", "image regions of", "y", &wide);
    model_save(&m, "regions-of-many-bins");
}

/* Statistics of the batch, which opset 14 has no results for: TorchScript writes them still. */
/* Tables that importers fill: as long as a dimension, or a range. */
static void table_cases(void)
{
    M m = plain();
    ints(&m.graph, "start", 1, (int64_t[]){0});
    ints(&m.graph, "limit", 1, (int64_t[]){1 << 28});
    ints(&m.graph, "delta", 1, (int64_t[]){1});
    node(&m.graph, "Range", "start limit delta", "y", NULL);
    model_save(&m, "range-of-2-gb");
    const int64_t heads[] = {1, 2, INT64_C(1) << 33, 4}, tall[] = {INT64_C(1) << 40, 4};
    m = (M){.domain = "com.microsoft"};
    info(&m.graph, 11, "x", F32, 4, heads, NULL);
    info(&m.graph, 12, "y", F32, 4, heads, NULL);
    ints(&m.graph, "first", 1, (int64_t[]){0});
    weight(&m.graph, "cos", 2, (int64_t[]){8, 2}, 64);
    weight(&m.graph, "sin", 2, (int64_t[]){8, 2}, 64);
    node_named(&m.graph, "n", "RotaryEmbedding", "x first cos sin", "y", NULL, "com.microsoft");
    model_save(&m, "positions-without-end");
    m = (M){.opset = 21};
    info(&m.graph, 11, "x", F32, 2, tall, NULL);
    info(&m.graph, 12, "y", F32, 2, tall, NULL);
    weight(&m.graph, "scale", 2, (int64_t[]){1, 4}, 16);
    Buf attrs = attr_int("block_size", INT64_MAX), axis = attr_int("axis", 0),
        type = attr_int("output_dtype", 3);
    put(&attrs, axis.at, axis.n);
    put(&attrs, type.at, type.n);
    node(&m.graph, "QuantizeLinear", "x scale", "y", &attrs);
    model_save(&m, "block-without-end");
}

/* A table of positions that is none, and one that is shorter than the tokens. */
static void embed_cases(void)
{
    for (int rank = 0; rank <= 2; rank += 2) {
        M m = {.domain = "com.microsoft"};
        info(&m.graph, 11, "x", I64, 2, d23, NULL);
        info(&m.graph, 12, "y", F32, 3, (int64_t[]){2, 3, 4}, NULL);
        weight(&m.graph, "words", 2, (int64_t[]){9, 4}, 144);
        weight(&m.graph, "places", rank, (int64_t[]){2, 4}, rank ? 32 : 4);
        weight(&m.graph, "line", 1, (int64_t[]){4}, 16);
        node_named(&m.graph, "n", "EmbedLayerNormalization", "x x words places words line line", "y",
                   NULL, "com.microsoft");
        model_save(&m, rank ? "positions-too-few" : "position-a-scalar");
    }
}

/* A result of rank 31, of constant indices. */
static void rank_case(void)
{
    const int64_t ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, none = 0;
    M m = plain();
    Buf i = tensor("i", I64, 16, ones);
    put_bytes(&i, 9, &none, sizeof none);
    put_message(&m.graph, 5, &i);
    weight(&m.graph, "w", 16, ones, 4);
    node(&m.graph, "Gather", "w i", "y", NULL);
    model_save(&m, "gather-rank");
}

/* An activation that an operator has and a recurrent layer has not. */
static void cell_case(void)
{
    enum { STRINGS = 8 };
    M m = {0};
    Buf a = {0}, list = {0};
    info(&m.graph, 11, "x", F32, 3, (int64_t[]){1, 1, 1}, NULL);
    info(&m.graph, 12, "y", F32, 4, (int64_t[]){1, 1, 1, 1}, NULL);
    weight(&m.graph, "w", 3, (int64_t[]){1, 1, 1}, 4);
    put_string(&a, 1, "activations");
    put_string(&a, 9, "Selu");
    put_int(&a, 20, STRINGS);
    put_message(&list, 5, &a);
    node(&m.graph, "RNN", "x w w", "y", &list);
    model_save(&m, "activation-of-no-cell");
}

/* A dimension and a stride whose product 64 bits do not hold. */
static void stride_case(void)
{
    M m = {0};
    Buf a = {0}, list = {0};
    info(&m.graph, 11, "x", F32, 3, (int64_t[]){1, 1, (INT64_C(1) << 33) + 1}, NULL);
    info(&m.graph, 12, "y", F32, 3, (int64_t[]){1, 1, 1}, NULL);
    weight(&m.graph, "w", 3, (int64_t[]){1, 1, 2}, 8);
    put_string(&a, 1, "strides");
    put_int(&a, 8, INT32_MAX);
    put_int(&a, 20, 7); /* INTS */
    put_message(&list, 5, &a);
    node(&m.graph, "ConvTranspose", "x w", "y", &list);
    model_save(&m, "stride-times-dimension");
}

static void old_results_case(void)
{
    M m = plain();
    weight(&m.graph, "w", 1, (int64_t[]){3}, 12);
    node(&m.graph, "BatchNormalization", "x w w w w", "y mean var batch_mean batch_var", NULL);
    model_save(&m, "results-of-opset-13");
}

static void odd_cases(void)
{
    M m = plain();
    ints(&m.graph, "i", 2, (int64_t[]){1, 0});
    weight(&m.graph, "w", 2, (int64_t[]){3, 3}, 36);
    node_named(&m.graph, "first", "MatMul", "x w", "h", NULL, NULL);
    /* swaps row 0 and row 1: needs two */
    node_named(&m.graph, "rows", "Gather", "h i", "y", NULL, NULL);
    model_save(&m, "rows-by-number");
    m = plain();
    weight(&m.graph, "w", 2, (int64_t[]){3, 3}, 36);
    node_named(&m.graph, "first", "MatMul", "x w", "h", NULL, NULL);
    /* at 0 it is finite and its gradient is not */
    node_named(&m.graph, "root", "Sqrt", "h", "y", NULL, NULL);
    model_save(&m, "root");
    /* a bias that may mask */
    m = plain();
    weight(&m.graph, "w", 2, (int64_t[]){3, 3}, 36);
    weight(&m.graph, "b", 1, (int64_t[]){3}, 12);
    node_named(&m.graph, "first", "MatMul", "x w", "h", NULL, NULL);
    node_named(&m.graph, "second", "Add", "h b", "s", NULL, NULL);
    node_named(&m.graph, "third", "Softmax", "s", "y", NULL, NULL);
    model_save(&m, "masked");
}

int main(int argc, char **argv)
{
    bool odd = argc == 3 && !strcmp(argv[1], "odd");
    if (argc != 2 + odd || chdir(argv[1 + odd])) {
        fprintf(stderr, "usage: hostile [odd] DIR\n");
        return 2;
    }
    if (odd) {
        odd_cases();
        return 0;
    }
    wire_cases();
    structure_cases();
    function_cases();
    tensor_cases();
    external_cases();
    op_cases();
    loop_cases();
    size_case();
    pick_cases();
    old_results_case();
    far_cases();
    step_cases();
    table_cases();
    embed_cases();
    rank_case();
    cell_case();
    stride_case();
    return 0;
}

/*
 * make_gpt.c - writes a GPT or a Llama as an ONNX model, without Python: for the benchmark, the
 * demo and the tests of size.
 *
 * In: sizes, or --shape NAME of a published model (those that follow change them).  Out: gpt.onnx
 * as PyTorch's TorchScript exporter names things (/h.0/attn/c_attn/MatMul), pre-LayerNorm blocks,
 * packed q k v, causal softmax attention, tanh GELU, an untied head (--tied: the embedding,
 * transposed); opset 17; weights normal(0, 0.02) from a fixed generator.  --llama: llama.h, with
 * --kv-heads and --ffn.
 * --fused: its rotary positions are an operation of a domain of its own (custom/ops.txt).
 * --dropout N: N per cent of attention's weights, of the embedding and of what each attention and
 * MLP adds, in training mode.  --gain: queries of all heads of all layers are multiplied by the
 * same numbers.
 * --symbolic: sequences of any length up to --seq, dimension "seq" of the input.
 * --experts E: an MLP is E of them at once, all of which compute all places, weighed by a router.
 * --bias: scores have one that trains.  --external keeps the weights in MODEL.data; --sparse makes
 * that file a hole (any size costs nothing; shapes of billions are so); --vectors: but for biases
 * and the like, so that such a model trains.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <getopt.h>

#include "llama.h"
#include "write.h"

/* ---- the model ---- */

static struct {
    long vocab, dim, layers, heads, seq, rows, kv,
        ffn;      /* kv, ffn: of --llama; 0: all heads, 4 dim */
    long dropout; /* per cent */
    long experts; /* of an MLP; 0: it is one, of two dimensions */
    int tied, gain, bias, llama, fused, symbolic;
    double theta;
    const char *out;
} opt = {.vocab = 256,
         .dim = 64,
         .layers = 4,
         .heads = 4,
         .seq = 64,
         .rows = 4,
         .theta = 10000,
         .out = "gpt.onnx"};

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
    node(p, "", "Where", a, join(opt.symbolic ? "mask_here" : "mask", b, "minus_inf"));
    NAME(b, "Softmax");
    attr_int("axis", -1);
    node(p, "", "Softmax", b, a);
    NAME(d, "Dropout");
    const char *kept = dropout(p, b, d);
    NAME(a, "MatMul_4");
    node(p, "_4", "MatMul", a, join(kept, v, ""));
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
    for (int i = 0; i < 8; i++) { /* 0.5 x (1 + tanh(b (x + a x^3))) */
        snprintf(t, sizeof t, "%s/gelu_%d_output_0", p, i);
        const char *other = steps[i][2];
        node(p, steps[i][1], steps[i][0], t, join(c, !other ? "" : *other ? other : h, ""));
        snprintf(c, sizeof c, "%s", t);
    }
    snprintf(u, sizeof u, "/h.%ld/mlp/c_proj", l);
    linear(u, c, y, f("h.%ld.mlp.c_proj.weight", l), f("h.%ld.mlp.c_proj.bias", l));
}

/* Places in one row, [1, n, d], for all experts: [experts, n, d]; times [experts, n, 1]; their sum.
 */
static void experts(long l, const char *x, const char *y)
{
    char p[48], flat[80], each[80], name[5][96];
    static const char *const op[] = {"MatMul", "Softmax", "Transpose", "Mul", "ReduceSum"};
    snprintf(p, sizeof p, "/h.%ld/mlp", l);
    snprintf(flat, sizeof flat, "%s/Reshape_output_0", p);
    snprintf(each, sizeof each, "%s/each_output_0", p);
    for (int i = 0; i < 5; i++)
        snprintf(name[i], sizeof name[i], "%s/router/%s_output_0", p, op[i]);
    node(p, "", "Reshape", flat, join(x, "row_shape", ""));
    mlp(l, flat, each);
    node(p, "_r", op[0], name[0], join(flat, f("h.%ld.mlp.router.weight", l), ""));
    attr_int("axis", -1);
    node(p, "_r", op[1], name[1], name[0]);
    attr_ints("perm", 3, (long[]){2, 1, 0});
    node(p, "_r", op[2], name[2], name[1]);
    node(p, "_r", op[3], name[3], join(each, name[2], ""));
    node(p, "_r", op[4], name[4], join(name[3], "first", ""));
    node(p, "_1", "Reshape", y, join(name[4], "flat_shape", ""));
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
    (opt.experts ? experts : mlp)(l, n2, m);
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
        /* of experts [experts, in, out] and [experts, 1, out] */
        const long e = opt.experts, fc[] = {e, d, 4 * d}, fc_bias[] = {e, 1, 4 * d},
                   proj[] = {e, 4 * d, d}, proj_bias[] = {e, 1, d};
        weight_of(f("h.%ld.mlp.c_fc.weight", l), e ? 3 : 2, fc + !e, 0.02, 0);
        weight_of(f("h.%ld.mlp.c_fc.bias", l), e ? 3 : 1, fc_bias + 2 * !e, 0, 0);
        weight_of(f("h.%ld.mlp.c_proj.weight", l), e ? 3 : 2, proj + !e, small, 0);
        weight_of(f("h.%ld.mlp.c_proj.bias", l), e ? 3 : 1, proj_bias + 2 * !e, 0, 0);
        if (e)
            weight(f("h.%ld.mlp.router.weight", l), 2, d, e, 0.02, 0);
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
    const long here = opt.symbolic ? 0 : seq; /* of a shape, 0: as it is */
    ints("head_shape", 4, (long[]){opt.rows, here, opt.heads, d / opt.heads});
    ints("flat_shape", 3, (long[]){opt.rows, here, d});
    if (opt.symbolic) {
        ints("from", 1, (long[]){0});
        ints("axis_1", 1, (long[]){1});
        ints("axis_2", 1, (long[]){2});
        ints("axis_3", 1, (long[]){3});
    }
    if (opt.experts) {
        ints("row_shape", 3, (long[]){1, opt.rows * seq, d});
        ints("first", 1, (long[]){0});
    }
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

/* Positions and the mask, as far as the input goes. */
static void cut_to_length(void)
{
    attr_int("start", 1);
    attr_int("end", 2);
    node("", "", "Shape", "length", "input_ids");
    node("/wpe", "", "Slice", "positions_here", "positions from length axis_1");
    node("/mask", "_0", "Slice", "mask_rows", "mask from length axis_2");
    node("/mask", "_1", "Slice", "mask_here", "mask_rows from length axis_3");
}

static void build(void)
{
    scalars();
    if (opt.symbolic)
        cut_to_length();
    node("/wte", "", "Gather", "/wte/Gather_output_0", "wte.weight input_ids");
    node("/wpe", "", "Gather", "/wpe/Gather_output_0",
         opt.symbolic ? "wpe.weight positions_here" : "wpe.weight positions");
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
    value_info(11, "input_ids", I64, 2, (long[]){opt.rows, opt.symbolic ? 0 : opt.seq});
    value_info(12, "logits", F32, 3,
               (long[]){opt.rows, opt.symbolic ? 0 : opt.seq, opt.vocab});
}

/* ---- the command line ---- */

/* Radford et al. 2019 (124 M parameters); Grattafiori et al., arXiv 2407.21783, table 3. */
static const struct {
    const char *name;
    long vocab, dim, layers, heads, seq, kv, ffn;
    double theta;
    int llama, tied, sparse;
} shapes[] = {{"gpt2", 50257, 768, 12, 12, 1024, 0, 0, 0, 0, 1, 0},
              {"llama3-8b", 128256, 4096, 32, 32, 8192, 8, 14336, 5e5, 1, 0, 1},
              {"llama3-70b", 128256, 8192, 80, 64, 8192, 8, 28672, 5e5, 1, 0, 1},
              {"llama3-405b", 128256, 16384, 126, 128, 8192, 8, 53248, 5e5, 1, 0, 1}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void take_shape(const char *name)
{
    int i = 0;
    while (i < N_SHAPES && strcmp(name, shapes[i].name) != 0)
        i++;
    if (i == N_SHAPES) {
        fprintf(stderr, "make_gpt: no shape '%s'; there are", name);
        for (i = 0; i < N_SHAPES; i++)
            fprintf(stderr, " %s", shapes[i].name);
        fprintf(stderr, "\n");
        exit(2);
    }
    opt.vocab = shapes[i].vocab;
    opt.dim = shapes[i].dim;
    opt.layers = shapes[i].layers;
    opt.heads = shapes[i].heads;
    opt.seq = shapes[i].seq;
    opt.rows = 1;
    opt.kv = shapes[i].kv;
    opt.ffn = shapes[i].ffn;
    opt.theta = shapes[i].theta;
    opt.llama = shapes[i].llama;
    opt.tied = shapes[i].tied;
    weights.external = weights.sparse = shapes[i].sparse;
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

static void take_options(int argc, char **argv)
{
    static const struct option options[] = {{"vocab", 1, 0, 'v'},    {"dim", 1, 0, 'd'},
                                            {"layers", 1, 0, 'l'},   {"heads", 1, 0, 'h'},
                                            {"seq", 1, 0, 's'},      {"rows", 1, 0, 'r'},
                                            {"external", 0, 0, 'e'}, {"sparse", 0, 0, 'p'},
                                            {"vectors", 0, 0, 'x'},  {"tied", 0, 0, 't'},
                                            {"dropout", 1, 0, 'D'},  {"gain", 0, 0, 'g'},
                                            {"bias", 0, 0, 'b'},     {"llama", 0, 0, 'L'},
                                            {"kv-heads", 1, 0, 'k'}, {"experts", 1, 0, 'E'},
                                            {"ffn", 1, 0, 'f'},      {"shape", 1, 0, 'S'},
                                            {"fused", 0, 0, 'F'},    {"symbolic", 0, 0, 'y'},
                                            {"help", 0, 0, 'H'},
                                            {0, 0, 0, 0}};
    for (int c; (c = getopt_long(argc, argv, "o:", options, NULL)) != -1;)
        switch (c) {
        case 'v': opt.vocab = number(optarg); break;
        case 'd': opt.dim = number(optarg); break;
        case 'l': opt.layers = number(optarg); break;
        case 'h': opt.heads = number(optarg); break;
        case 's': opt.seq = number(optarg); break;
        case 'r': opt.rows = number(optarg); break;
        case 'e': weights.external = 1; break;
        case 'p': weights.external = weights.sparse = 1; break;
        case 'x': weights.external = weights.sparse = weights.vectors = 1; break;
        case 't': opt.tied = 1; break;
        case 'g': opt.gain = 1; break;
        case 'b': opt.bias = 1; break;
        case 'L': opt.llama = 1; break;
        case 'k': opt.kv = number(optarg); break;
        case 'f': opt.ffn = number(optarg); break;
        case 'S': take_shape(optarg); break;
        case 'E': opt.experts = number(optarg); break;
        case 'F': opt.fused = 1; break;
        case 'y': opt.symbolic = 1; break;
        case 'D': opt.dropout = number(optarg); break;
        case 'o': opt.out = optarg; break;
        default: {
            int help = c == 'H';
            fprintf(help ? stdout : stderr,
                    "usage: make_gpt [--shape NAME] [--vocab N] [--dim N] [--layers N] [--heads N] "
                    "[--seq N] [--rows N] [--llama] [--fused] [--kv-heads N] [--ffn N] [--dropout "
                    "PERCENT] "
                    "[--experts N] [--external] [--sparse] [--vectors] [--tied] [--gain] [--bias] "
                    "[--symbolic] [-o FILE]\n"
                    "Writes FILE (default gpt.onnx); without sizes, a GPT of 4 layers of 64.\n");
            exit(help ? 0 : 2);
        }
        }
}

static void check_options(void)
{
    opt.kv = opt.kv ? opt.kv : opt.heads;
    opt.ffn = opt.ffn ? opt.ffn : 4 * opt.dim;
    const char *wrong = opt.dim % opt.heads       ? "--dim is no multiple of --heads"
                        : opt.symbolic && (opt.llama || opt.bias || opt.experts)
                            ? "--symbolic is of a GPT without --bias and --experts"
                        : !opt.llama              ? NULL
                        : opt.heads % opt.kv      ? "--heads is no multiple of --kv-heads"
                        : opt.dim / opt.heads % 2 ? "rotary positions want heads of even size"
                        : opt.dropout || opt.gain || opt.bias
                            ? "a Llama has no --dropout, --gain, --bias"
                            : NULL;
    if (!wrong)
        return;
    fprintf(stderr, "make_gpt: %s\n", wrong);
    exit(2);
}

int main(int argc, char **argv)
{
    take_options(argc, argv);
    check_options();
    model_begin(opt.out);
    if (opt.llama)
        llama_build(&(Llama){opt.vocab, opt.dim, opt.layers, opt.heads, opt.kv, opt.ffn, opt.seq,
                             opt.rows, opt.theta, opt.tied, opt.fused});
    else
        build();
    model_end(opt.out);
    return 0;
}

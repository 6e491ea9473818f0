/*
 * llama.h - writes a Llama as an ONNX model: RMSNorm before attention and MLP, rotary positions,
 * keys and values that groups of heads share, SwiGLU, no biases.
 *
 * In: sizes.  Out: nodes and names of transformers' LlamaForCausalLM, as PyTorch's TorchScript
 * exporter writes them, for texts of one length and a causal mask that the file computes of its
 * positions. (Touvron et al., arXiv 2302.13971; Grattafiori et al., arXiv 2407.21783, table 3; Su
 * et al., arXiv 2104.09864; Ainslie et al., arXiv 2305.13245.)
 */
#ifndef MODELS_LLAMA_H
#define MODELS_LLAMA_H

#include "write.h"

typedef struct {
    long vocab, dim, layers, heads, kv, ffn, seq, rows;
    double theta; /* of the rotary positions */
    int tied;
    int fused; /* rotary positions are a node of domain example.fused (custom/ops.txt) */
} Llama;

#define NAME(buf, what) snprintf(buf, sizeof buf, "%s/" what "_output_0", p)

/* w x / sqrt(mean(x^2) + eps) */
static void rms_norm(const char *p, const char *x, const char *y, const char *w)
{
    char square[160], mean[160], eps[160], root[160], inverse[160], n[160];
    NAME(square, "Pow");
    NAME(mean, "ReduceMean");
    NAME(eps, "Add");
    NAME(root, "Sqrt");
    NAME(inverse, "Div");
    NAME(n, "Mul");
    node(p, "", "Pow", square, join(x, "two", ""));
    attr_ints("axes", 1, (long[]){-1});
    node(p, "", "ReduceMean", mean, square);
    node(p, "", "Add", eps, join(mean, "eps", ""));
    node(p, "", "Sqrt", root, eps);
    node(p, "", "Div", inverse, join("one", root, ""));
    node(p, "", "Mul", n, join(x, inverse, ""));
    node(p, "_1", "Mul", y, join(w, n, ""));
}

/* y = x transpose(w) */
static void projection(const char *p, const char *x, const char *y, const char *w)
{
    char turned[160];
    NAME(turned, "Transpose");
    attr_ints("perm", 2, (long[]){1, 0});
    node(p, "", "Transpose", turned, w);
    node(p, "", "MatMul", y, join(x, turned, ""));
}

/* [rows, seq, heads * size] to [rows, heads, seq, size] */
static void to_heads(const char *p, const char *which, const char *x, const char *y,
                     const char *shape)
{
    char shaped[160];
    snprintf(shaped, sizeof shaped, "%s/Reshape_%s_output_0", p, which);
    node(p, f("_%s", which), "Reshape", shaped, join(x, shape, ""));
    attr_ints("perm", 4, (long[]){0, 2, 1, 3});
    node(p, f("_%s", which), "Transpose", y, shaped);
}

/* x cos + (-second half of x, first half) sin */
static void rotate(const Llama *m, const char *p, const char *which, const char *x, const char *y)
{
    char by_cos[160], half[2][160], minus[160], turned[160], by_sin[160], s[8];
    snprintf(s, sizeof s, "_%s", which);
    if (m->fused) {
        node_domain = "example.fused";
        node(p, s, "Rotary", y,
             join(x, "/model/rotary_emb/Cos_output_0", "/model/rotary_emb/Sin_output_0"));
        return;
    }
    snprintf(by_cos, sizeof by_cos, "%s/Mul%s_output_0", p, s);
    snprintf(minus, sizeof minus, "%s/Neg%s_output_0", p, s);
    snprintf(turned, sizeof turned, "%s/Concat%s_output_0", p, s);
    snprintf(by_sin, sizeof by_sin, "%s/Mul%s_1_output_0", p, s);
    for (int i = 0; i < 2; i++) {
        char more[16];
        snprintf(half[i], sizeof half[i], "%s/Slice%s_%d_output_0", p, s, i);
        snprintf(more, sizeof more, "%s_%d", s, i);
        node(p, more, "Slice", half[i],
             join(x, i ? "zero_index half_size" : "half_size size_end", "last_axis"));
    }
    node(p, s, "Mul", by_cos, join(x, "/model/rotary_emb/Cos_output_0", ""));
    node(p, s, "Neg", minus, half[0]);
    attr_int("axis", -1);
    node(p, s, "Concat", turned, join(minus, half[1], ""));
    node(p, f("%s_1", s), "Mul", by_sin, join(turned, "/model/rotary_emb/Sin_output_0", ""));
    node(p, s, "Add", y, join(by_cos, by_sin, ""));
}

/* Each head of keys or values for all heads of its group. */
static const char *repeat(const Llama *m, const char *p, const char *which, const char *x,
                          const char *y)
{
    char apart[160], wide[160], s[8];
    if (m->kv == m->heads)
        return x;
    snprintf(s, sizeof s, "_%s", which);
    snprintf(apart, sizeof apart, "%s/Unsqueeze%s_output_0", p, s);
    snprintf(wide, sizeof wide, "%s/Expand%s_output_0", p, s);
    node(p, s, "Unsqueeze", apart, join(x, "group_axis", ""));
    node(p, s, "Expand", wide, join(apart, "group_shape", ""));
    node(p, f("%s_1", s), "Reshape", y, join(wide, "repeated_shape", ""));
    return y;
}

static void grouped_attention(const Llama *m, long l, const char *x, const char *y)
{
    char p[64], flat[3][160], head[3][160], q[160], k[160], v[160], turned[160], a[160], b[160];
    static const char *const which[] = {"q", "k", "v"};
    snprintf(p, sizeof p, "/model/layers.%ld/self_attn", l);
    for (int i = 0; i < 3; i++) {
        snprintf(flat[i], sizeof flat[i], "%s/%s_proj/MatMul_output_0", p, which[i]);
        snprintf(head[i], sizeof head[i], "%s/Transpose_%s_output_0", p, which[i]);
        projection(f("%s/%s_proj", p, which[i]), x, flat[i],
                   f("model.layers.%ld.self_attn.%s_proj.weight", l, which[i]));
    }
    for (int i = 0; i < 3; i++)
        to_heads(p, which[i], flat[i], head[i], i ? "kv_shape" : "head_shape");
    NAME(q, "Add_q");
    NAME(k, "Add_k");
    rotate(m, p, "q", head[0], q);
    rotate(m, p, "k", head[1], k);
    NAME(a, "Reshape_k_1");
    NAME(v, "Reshape_v_1");
    const char *keys = repeat(m, p, "k", k, a), *values = repeat(m, p, "v", head[2], v);
    NAME(turned, "Transpose_3");
    attr_ints("perm", 4, (long[]){0, 1, 3, 2});
    node(p, "_3", "Transpose", turned, keys);
    NAME(a, "MatMul");
    node(p, "", "MatMul", a, join(q, turned, ""));
    NAME(b, "Mul_2");
    node(p, "_2", "Mul", b, join(a, "scale", ""));
    NAME(a, "Where");
    node(p, "", "Where", a, join("/model/LessOrEqual_output_0", b, "minus_inf"));
    NAME(b, "Softmax");
    attr_int("axis", -1);
    node(p, "", "Softmax", b, a);
    NAME(a, "MatMul_1");
    node(p, "_1", "MatMul", a, join(b, values, ""));
    NAME(b, "Transpose_4");
    attr_ints("perm", 4, (long[]){0, 2, 1, 3});
    node(p, "_4", "Transpose", b, a);
    NAME(a, "Reshape_3");
    node(p, "_3", "Reshape", a, join(b, "flat_shape", ""));
    projection(f("%s/o_proj", p), a, y, f("model.layers.%ld.self_attn.o_proj.weight", l));
}

/* down(silu(gate(x)) up(x)) */
static void swiglu(long l, const char *x, const char *y)
{
    char p[64], gate[160], up[160], sigmoid[160], silu[160], both[160];
    snprintf(p, sizeof p, "/model/layers.%ld/mlp", l);
    NAME(gate, "gate_proj/MatMul");
    NAME(up, "up_proj/MatMul");
    NAME(sigmoid, "act_fn/Sigmoid");
    NAME(silu, "act_fn/Mul");
    NAME(both, "Mul");
    projection(f("%s/gate_proj", p), x, gate, f("model.layers.%ld.mlp.gate_proj.weight", l));
    node(f("%s/act_fn", p), "", "Sigmoid", sigmoid, gate);
    node(f("%s/act_fn", p), "", "Mul", silu, join(gate, sigmoid, ""));
    projection(f("%s/up_proj", p), x, up, f("model.layers.%ld.mlp.up_proj.weight", l));
    node(p, "", "Mul", both, join(silu, up, ""));
    projection(f("%s/down_proj", p), both, y, f("model.layers.%ld.mlp.down_proj.weight", l));
}

static void llama_layer(const Llama *m, long l, const char *x, const char *y)
{
    char p[64], n1[160], a[160], r[160], n2[160], d[160];
    snprintf(p, sizeof p, "/model/layers.%ld", l);
    NAME(n1, "input_layernorm/Mul_1");
    NAME(a, "self_attn/o_proj/MatMul");
    NAME(r, "Add");
    NAME(n2, "post_attention_layernorm/Mul_1");
    NAME(d, "mlp/down_proj/MatMul");
    rms_norm(f("%s/input_layernorm", p), x, n1, f("model.layers.%ld.input_layernorm.weight", l));
    grouped_attention(m, l, n1, a);
    node(p, "", "Add", r, join(x, a, ""));
    rms_norm(f("%s/post_attention_layernorm", p), r, n2,
             f("model.layers.%ld.post_attention_layernorm.weight", l));
    swiglu(l, n2, d);
    node(p, "_1", "Add", y, join(r, d, ""));
}
#undef NAME

/* ---- what is no layer ---- */

static void llama_parameters(const Llama *m)
{
    long d = m->dim, kv = d / m->heads * m->kv;
    const struct {
        const char *name;
        long to, from;
    } linear[] = {{"self_attn.q_proj", d, d},   {"self_attn.k_proj", kv, d},
                  {"self_attn.v_proj", kv, d},  {"self_attn.o_proj", d, d},
                  {"mlp.gate_proj", m->ffn, d}, {"mlp.up_proj", m->ffn, d},
                  {"mlp.down_proj", d, m->ffn}};
    weight("model.embed_tokens.weight", 2, m->vocab, d, 0.02, 0);
    for (long l = 0; l < m->layers; l++) {
        for (size_t i = 0; i < sizeof linear / sizeof *linear; i++)
            weight(f("model.layers.%ld.%s.weight", l, linear[i].name), 2, linear[i].to,
                   linear[i].from, 0.02, 0);
        weight(f("model.layers.%ld.input_layernorm.weight", l), 1, d, 0, 0, 1);
        weight(f("model.layers.%ld.post_attention_layernorm.weight", l), 1, d, 0, 0, 1);
    }
    weight("model.norm.weight", 1, d, 0, 0, 1);
    if (!m->tied)
        weight("lm_head.weight", 2, m->vocab, d, 0.02, 0);
}

static void llama_constants(const Llama *m)
{
    long size = m->dim / m->heads, half = size / 2, seq = m->seq;
    int64_t *position = calloc((size_t)seq, sizeof *position);
    float *inverse = calloc((size_t)half, sizeof *inverse);
    if (!position || !inverse)
        exit(3);
    for (long i = 0; i < seq; i++)
        position[i] = i;
    for (long i = 0; i < half; i++)
        inverse[i] = (float)pow(m->theta, -2.0 * (double)i / (double)size);
    initializer("positions", I64, 4, (long[]){1, 1, seq, 1}, position, (size_t)seq * 8);
    initializer("key_positions", I64, 4, (long[]){1, 1, 1, seq}, position, (size_t)seq * 8);
    constant("inv_freq", 4, (long[]){1, 1, 1, half}, inverse);
    free(position);
    free(inverse);
    ints("head_shape", 4, (long[]){m->rows, seq, m->heads, size});
    ints("kv_shape", 4, (long[]){m->rows, seq, m->kv, size});
    ints("group_axis", 1, (long[]){2});
    ints("group_shape", 5, (long[]){m->rows, m->kv, m->heads / m->kv, seq, size});
    ints("repeated_shape", 4, (long[]){m->rows, m->heads, seq, size});
    ints("flat_shape", 3, (long[]){m->rows, seq, m->dim});
    ints("zero_index", 1, (long[]){0});
    ints("half_size", 1, (long[]){half});
    ints("size_end", 1, (long[]){size});
    ints("last_axis", 1, (long[]){3});
    scalar("scale", (float)(1 / sqrt((double)size)));
    scalar("minus_inf", -INFINITY);
    scalar("two", 2);
    scalar("one", 1);
    scalar("eps", 1e-5f);
}

static void llama_positions(void)
{
    const char *p = "/model/rotary_emb";
    node("/model", "", "LessOrEqual", "/model/LessOrEqual_output_0", "key_positions positions");
    attr_int("to", F32);
    node(p, "", "Cast", "/model/rotary_emb/Cast_output_0", "positions");
    node(p, "", "Mul", "/model/rotary_emb/Mul_output_0",
         "/model/rotary_emb/Cast_output_0 inv_freq");
    attr_int("axis", -1);
    node(p, "", "Concat", "/model/rotary_emb/Concat_output_0",
         "/model/rotary_emb/Mul_output_0 /model/rotary_emb/Mul_output_0");
    node(p, "", "Cos", "/model/rotary_emb/Cos_output_0", "/model/rotary_emb/Concat_output_0");
    node(p, "", "Sin", "/model/rotary_emb/Sin_output_0", "/model/rotary_emb/Concat_output_0");
}

static void llama_build(const Llama *m)
{
    char x[64] = "/model/embed_tokens/Gather_output_0", y[64];
    llama_constants(m);
    node("/model/embed_tokens", "", "Gather", x, "model.embed_tokens.weight input_ids");
    llama_positions();
    for (long l = 0; l < m->layers; l++) {
        snprintf(y, sizeof y, "/model/layers.%ld/Add_1_output_0", l);
        llama_layer(m, l, x, y);
        strcpy(x, y);
    }
    rms_norm("/model/norm", x, "/model/norm/Mul_1_output_0", "model.norm.weight");
    projection("/lm_head", "/model/norm/Mul_1_output_0", "logits",
               m->tied ? "model.embed_tokens.weight" : "lm_head.weight");
    put_string(&graph, 2, "llama");
    llama_parameters(m);
    value_info(11, "input_ids", I64, 2, (long[]){m->rows, m->seq});
    value_info(12, "logits", F32, 3, (long[]){m->rows, m->seq, m->vocab});
}

#endif

/*
 * test_params.c - which initializers are parameters, under which names, and how operands are made
 * of them (frontend/params/): small models in the manner of each exporter, written here.
 */
#include "import_model.h"

/* What a branch of an If yields as it is; the exporter numbers one of the two names. */
static void test_passed_on(void)
{
    M m = {0};
    initializer(&m, "y.1", 4, 0, 1);
    node(&m, "Neg", "n", "x", "unread", NULL, NULL);
    node(&m, "Identity", "i", "y.1", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(g && param(g, "y") && param(g, "y")->trainable, "a parameter that is passed on trains");
}

/* A head's bias is of its module, too, and has that one's name. */
static void test_outer_bias(void)
{
    M m = {0};
    initializer(&m, "onnx::MatMul_11", 4, 4, 1);
    initializer(&m, "onnx::MatMul_12", 4, 4, 20);
    initializer(&m, "head.bias", 4, 0, 100);
    initializer(&m, "attn.in_proj_bias", 4, 0, 200);
    node(&m, "MatMul", "/attn/MatMul", "x onnx::MatMul_12", "a", NULL, NULL);
    node(&m, "Add", "/attn/Add", "attn.in_proj_bias a", "b", NULL, NULL);
    node(&m, "MatMul", "/head/decoder/MatMul", "b onnx::MatMul_11", "c", NULL, NULL);
    node(&m, "Add", "/head/decoder/Add", "head.bias c", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(g && param(g, "head.decoder.weight") && param(g, "attn.in_proj_weight"),
       "a folded weight is of the inner of two modules: its own and its bias's");
}

/* The branch of an If whose condition is known may be an Identity of a parameter: no copy of it. */
static void test_identity(void)
{
    M m = {0};
    initializer(&m, "pos", 4, 0, 7);
    node(&m, "Identity", "/If/Identity", "pos", "/Identity_output_0", NULL, NULL);
    node(&m, "Neg", "/Neg", "/Identity_output_0", "n", NULL, NULL);
    node(&m, "Mul", "/Mul", "x n", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    const Param *p = param(g, "pos");
    ok(p && p->trainable && graph_users(g, arena)[p->value].n == 1,
       "the model's own Identity reads the parameter");

    M fresh = {0};                                      /* statistics equal to scale and shift */
    initializer(&fresh, "bn.weight", 4, 0, 7);
    node(&fresh, "Identity", "Identity_0", "bn.weight", "bn.running_var", NULL, NULL);
    node(&fresh, "Div", "/bn/Div", "x bn.running_var", "d", NULL, NULL);
    node(&fresh, "Mul", "/bn/Mul", "d bn.weight", "y", NULL, NULL);
    g = import(&fresh, NULL, NULL);
    p = param(g, "bn.weight");
    ok(p && g->param.n == 1 && graph_users(g, arena)[p->value].n == 1,
       "a buffer that was equal to it does not");
}

/* A weight that is put through a norm in each step (ScaledStdConv2d), folded: the norm's scale is
 * not the convolution's weight, which is a constant. */
static void test_folded_norm(void)
{
    M m = {0};
    initializer(&m, "onnx::BatchNormalization_1", 4, 4, 1);
    initializer(&m, "onnx::BatchNormalization_2", 4, 0, 20);
    initializer(&m, "onnx::BatchNormalization_3", 4, 0, 30);
    initializer(&m, "mean", 4, 0, 40);
    initializer(&m, "var", 4, 0, 50);
    node(&m, "BatchNormalization", "/conv/BatchNormalization",
         "onnx::BatchNormalization_1 onnx::BatchNormalization_2 onnx::BatchNormalization_3 mean var",
         "w", NULL, NULL);
    node(&m, "MatMul", "/conv/MatMul", "x w", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(g && !param(g, "conv.weight") && is_shaped(param(g, "onnx::BatchNormalization_2"), 1, 4, 0),
       "a norm of a weight does not have the name of the weight");
}

/* Folding made a constant of a parameter that is in the file too; another one is a parameter of its
 * own, by its slot. */
static void test_folded_constants(void)
{
    M m = {0};
    initializer(&m, "p", 2, 4, 1);
    initializer(&m, "onnx::Add_7", 2, 4, 1);            /* the same bytes */
    initializer(&m, "onnx::Add_8", 4, 0, 50);
    node(&m, "Mul", "/Mul", "x p", "a", NULL, NULL);
    node(&m, "Add", "/Add", "a onnx::Add_7", "b", NULL, NULL);
    node(&m, "Add", "/Add_1", "b onnx::Add_8", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    const Param *p = param(g, "p");
    Ids *users = g ? graph_users(g, arena) : NULL;
    ok(p && g->param.n == 2 && users[p->value].n == 2,
       "a constant with a parameter's numbers is that parameter");
    ok(is_shaped(param(g, "onnx::Add_8"), 1, 4, 0), "one with other numbers trains as a bias");
}

/* An optimized dynamo export: merged, transposed, tied, a bias dropped. */
static void test_dynamo(void)
{
    const char *signature =
        "\n# inputs\np_a_weight: PARAMETER target='a.weight'\np_a_bias: PARAMETER target='a.bias'\n"
        "p_b_weight: PARAMETER target='b.weight'\np_t_weight: PARAMETER "
        "target='t.weight'\np_d_weight: PARAMETER target='d.weight'\n"
        "p_gone: PARAMETER target='gone'\nb_mask: BUFFER target='mask'\nx: USER_INPUT\n# outputs\n";
    M m = {0};
    initializer(&m, "val_0", 4, 4, 1);
    initializer(&m, "mask", 4, 0, 3);
    node(&m, "MatMul", "node_1", "x val_0", "v1", "['', 'a', 'linear']",
         fx("", "%p_a_weight, %p_a_bias"));
    node(&m, "MatMul", "node_2", "v1 val_0", "v2", "['', 'b', 'linear_1']",
         fx("_1", "%p_b_weight"));
    node(&m, "MatMul", "node_3", "v2 val_0", "v3", "['', 'd', 'linear_2']",
         fx("_2", "%p_d_weight"));
    node(&m, "MatMul", "node_4", "v3 val_0", "v4", "['', 't', 'linear_3']",
         fx("_3", "%p_d_weight"));
    node(&m, "Mul", "node_5", "v4 mask", "y", "['', 'mul']", NULL);
    Graph *g = import(&m, signature, NULL);
    const Param *a = param(g, "a.weight"), *b = param(g, "b.weight"), *bias = param(g, "a.bias");
    ok(a && b && a->value != b->value && a->bytes.at == b->bytes.at,
       "merged weights are two parameters over the same bytes");
    ok(a && a->transposed && first_of(a, 1) == 5, "transposed to PyTorch's layout");
    ok(bias && !bias->bytes.at && bias->shape.rank == 1 && bias->shape.d[0] == 4 &&
           first_of(bias, 3) == 0,
       "the dropped bias is back, all zeros");
    ok(param(g, "t.weight") && !param(g, "d.weight"),
       "a true tie is one parameter, under the first of its names");
    ok(g && g->param.n == 4 && !param(g, "mask") && !param(g, "gone"),
       "buffers are constants, what is folded away is lost");
    const Value *v1 = NULL;
    if (g && strmap_get(&g->by_name, "v1") != NONE)
        v1 = val(g, strmap_get(&g->by_name, "v1"));
    ok(v1 && v1->kind == V_NODE && g->node.at[v1->node].op == OP_Add,
       "and it is added to its node's result");
}

/* A scan of the dynamo exporter: its body calls the operands arg0_1, ..., the state first; the
 * state's zeros are none of the parameters that only the body reads. */
static void test_dynamo_body(void)
{
    M m = {0}, body = {0};
    initializer(&m, "zeros_like", 4, 0, 0);
    initializer(&m, "val_0", 4, 4, 1);
    node(&body, "MatMul", "node_1", "s val_0", "h", NULL,
         "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default]"
         "(args = (%arg0_1, %arg3_1), kwargs = {})");
    node(&body, "Add", "node_2", "h r", "t", NULL, NULL);
    node(&body, "Identity", "node_3", "t", "u", NULL, NULL);
    scan(&m, "node_0", "zeros_like x", "z y",
         "%scan : [num_users=1] = call_function[target=torch.ops.higher_order.scan]"
         "(args = (%scan_combine_graph_0, [%zeros_like], [%x], (%p_b_weight, %p_a_weight)), "
         "kwargs = {})",
         &body, (const char *const[]){"s", "r"}, (const char *const[]){"t", "u"});
    Graph *g = import(&m,
                      "\n# inputs\np_a_weight: PARAMETER target='a.weight'\n"
                      "p_b_weight: PARAMETER target='b.weight'\nx: USER_INPUT\n# outputs\n",
                      NULL);
    const Param *a = param(g, "a.weight");
    ok(a && a->transposed && first_of(a, 1) == 5,
       "a body's weight is the operand that it calls arg3_1");
    ok(g && g->param.n == 1, "the state that a scan begins with is no parameter");
}

/* What folding leaves without a name: a norm's views, a functional projection, a module that is
 * never called. */
static void test_places(void)
{
    M m = {0};
    initializer(&m, "m.attn.qkv.bias", 4, 0, 1);
    initializer(&m, "transformer.h.6.ln.weight", 4, 0, 1);
    initializer(&m, "onnx::Mul_1", 1, 4, 10);
    initializer(&m, "onnx::Add_2", 1, 4, 20);
    initializer(&m, "onnx::MatMul_3", 4, 4, 30);
    initializer(&m, "onnx::MatMul_4", 4, 4, 50);
    initializer(&m, "onnx::Mul_5", 1, 4, 70);
    node(&m, "ReduceMean", "/n/ReduceMean", "x", "n0", NULL, NULL);
    node(&m, "Div", "/n/Div", "x n0", "n1", NULL, NULL);
    node(&m, "Mul", "/n/Mul", "n1 onnx::Mul_1", "n2", NULL, NULL);
    node(&m, "Add", "/n/Add", "onnx::Add_2 n2", "n3", NULL, NULL);
    node(&m, "MatMul", "/m/attn/MatMul", "n3 onnx::MatMul_3", "a0", NULL, NULL);
    node(&m, "Add", "/m/attn/Add", "m.attn.qkv.bias a0", "a1", NULL, NULL);
    node(&m, "Mul", "/h.6/ln/Mul", "a1 transformer.h.6.ln.weight", "h0", NULL, NULL);
    node(&m, "MatMul", "/h.6/fc/MatMul", "h0 onnx::MatMul_4", "h1", NULL, NULL);
    node(&m, "Mul", "/rope/Mul", "h1 onnx::Mul_5", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    const Param *w = param(g, "n.weight"), *b = param(g, "n.bias");
    ok(is_shaped(w, 1, 4, 0) && first_of(w, 1) == 11 && is_shaped(b, 1, 4, 0) &&
           first_of(b, 0) == 20,
       "a norm's folded views are its weight and bias, as vectors");
    ok(is_shaped(param(g, "m.attn.qkv.weight"), 2, 4, 4),
       "a weight is called after the bias added to its product");
    ok(is_shaped(param(g, "transformer.h.6.fc.weight"), 2, 4, 4),
       "a module never called stands before its members all the same");
    ok(g && g->param.n == 7 && is_shaped(param(g, "onnx::Mul_5"), 2, 1, 4),
       "a factor outside of a norm has no other name");
}

static void test_buffers(void)
{
    M m = {0};
    float sines[8] = {0, 1, 0, 1, 0.84147098f, 0.54030231f, 0.00999983f, 0.99995f};
    initializer(&m, "a.scale", 2, 4, 1);
    initializer(&m, "a.alibi", 2, 4, 1);
    initializer(&m, "a.table", 2, 4, 1);
    tensor(&m, "b.position", 1, (int[]){2, 4, 0}, sines, sizeof sines);
    node(&m, "Mul", "/a/Mul", "x a.scale", "v0", NULL, NULL);
    node(&m, "Mul", "/a/Mul_1", "v0 a.alibi", "v1", NULL, NULL);
    node(&m, "Mul", "/a/Mul_2", "v1 a.table", "v2", NULL, NULL);
    node(&m, "Add", "/b/Add", "v2 b.position", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(g && g->param.n == 1 && param(g, "a.scale"),
       "buffers: by name, behind one in their module, a table of sines");
}

/* A rotary embedding's tables, by any name; a norm's ones and zeros are none. */
static void test_rotary_tables(void)
{
    M m = {0};
    float c[8] = {1, 1, 1, 1, 0.54030231f, 0.99995f, 0.54030231f, 0.99995f}, ones[8],
          s[8] = {0, 0, 0, 0, 0.84147098f, 0.00999983f, 0.84147098f, 0.00999983f}, zeros[8] = {0};
    for (int i = 0; i < 8; i++)
        ones[i] = 1;
    tensor(&m, "a.gate", 1, (int[]){2, 4, 0}, zeros, sizeof zeros);
    tensor(&m, "a.real", 1, (int[]){2, 4, 0}, c, sizeof c);
    tensor(&m, "a.imag", 1, (int[]){2, 4, 0}, s, sizeof s);
    tensor(&m, "n.weight", 1, (int[]){2, 4, 0}, ones, sizeof ones);
    tensor(&m, "n.bias", 1, (int[]){2, 4, 0}, zeros, sizeof zeros);
    node(&m, "Mul", "/a/Mul", "x a.gate", "v0", NULL, NULL);
    node(&m, "Mul", "/a/Mul_1", "v0 a.real", "v1", NULL, NULL);
    node(&m, "Mul", "/a/Mul_2", "v1 a.imag", "v2", NULL, NULL);
    node(&m, "Mul", "/n/Mul", "v2 n.weight", "v3", NULL, NULL);
    node(&m, "Add", "/n/Add", "v3 n.bias", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(g && g->param.n == 3 && param(g, "a.gate") && param(g, "n.weight") && param(g, "n.bias"),
       "cosines and sines of the same angles are buffers, ones and zeros are not");
}

static void test_pieces(void)
{
    M m = {0};
    initializer(&m, "a.out_proj.weight", 4, 4, 1);
    initializer(&m, "b.weight", 8, 4, 1);
    initializer(&m, "onnx::Add_1", 4, 0, 1);
    initializer(&m, "onnx::Add_2", 8, 0, 50);
    initializer(&m, "onnx::MatMul_3", 4, 4, 1);
    initializer(&m, "onnx::MatMul_4", 4, 8, 100);
    node(&m, "MatMul", "/a/MatMul", "x onnx::MatMul_3", "q0", NULL, NULL);
    node(&m, "Add", "/a/Add", "onnx::Add_1 q0", "q1", NULL, NULL);
    node(&m, "MatMul", "/a/MatMul_1", "x onnx::MatMul_4", "k0", NULL, NULL);
    node(&m, "Add", "/a/Add_1", "onnx::Add_2 k0", "k1", NULL, NULL);
    node(&m, "Gemm", "/a/Gemm", "q1 a.out_proj.weight", "o", NULL, NULL);
    node(&m, "MatMul", "/b/MatMul", "k1 b.weight", "c", NULL, NULL);
    node(&m, "Add", "/Add", "o c", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    const Param *w = param(g, "a.in_proj_weight"), *b = param(g, "a.in_proj_bias");
    ok(is_shaped(w, 2, 12, 4) && is_shaped(b, 1, 12, 0) && g->param.n == 4,
       "the slices of an attention are one weight, one bias");
    ok(w && b && first_of(w, 1) == 5 && first_of(w, 17) == 108 && first_of(b, 4) == 50,
       "in PyTorch's layout: queries, then keys and values");
}

/* Products of one value: projections of their own, as WavLM's, of which folding transposed the
 * weights and took the joined biases apart. */
static void test_projections(void)
{
    M m = {0};
    const char *three[] = {"q", "k", "v"};
    initializer(&m, "a.out_proj.weight", 4, 4, 1);
    for (int i = 0; i < 3; i++) {
        const char *w = arena_printf(arena, "onnx::MatMul_%d", i), *v = three[i];
        const char *b = arena_printf(arena, "onnx::Add_%d", i);
        initializer(&m, w, 4, 4, 10.f * (float)i);
        initializer(&m, b, 4, 0, 100.f * (float)i);
        node(&m, "MatMul", arena_printf(arena, "/a/MatMul_%d", i + 1), arena_printf(arena, "x %s", w),
             arena_printf(arena, "%s0", v), NULL, NULL);
        node(&m, "Add", arena_printf(arena, "/a/Add_%d", i + 1), arena_printf(arena, "%s %s0", b, v),
             v, NULL, NULL);
    }
    node(&m, "Mul", "/a/Mul", "q k", "p", NULL, NULL);
    node(&m, "Mul", "/a/Mul_1", "p v", "o", NULL, NULL);
    node(&m, "Gemm", "/a/Gemm", "o a.out_proj.weight", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    const Param *w = param(g, "a.k_proj.weight"), *b = param(g, "a.v_proj.bias");
    ok(is_shaped(w, 2, 4, 4) && w->transposed && is_shaped(b, 1, 4, 0) && g->param.n == 7,
       "three products of one value in an attention are no slices of one weight");
    ok(w && b && first_of(w, 0) == 10 && first_of(b, 0) == 200, "each is itself");
}

int main(void)
{
    models_begin();
    test_outer_bias();
    test_passed_on();
    test_identity();
    test_folded_norm();
    test_folded_constants();
    test_dynamo();
    test_dynamo_body();
    test_places();
    test_buffers();
    test_rotary_tables();
    test_pieces();
    test_projections();
    return models_end();
}

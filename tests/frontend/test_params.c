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

/* Folding made a constant of a parameter that is in the file too; of another one nothing is known.
 */
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
    ok(p && g->param.n == 1 && users[p->value].n == 2,
       "a constant with a parameter's numbers is that parameter");
    ok(g && strmap_get(&g->by_name, "onnx::Add_8") != NONE,
       "one with other numbers stays a constant");
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
    ok(g && g->param.n == 6, "a factor outside of a norm is a constant");
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

static void test_dynamo_folds(void)
{
    const char *signature = "\n# inputs\np_g_weight: PARAMETER target='g.weight'\np_g_bias: "
                            "PARAMETER target='g.bias'\np_cls: PARAMETER target='cls'\n"
                            "p_l_weight: PARAMETER target='l.weight'\np_n_weight: PARAMETER "
                            "target='n.weight'\nx: USER_INPUT\n# outputs\n";
    const char *norm =
        call("group_norm", "group_norm.default", "%x, 2, %p_g_weight, %p_g_bias, 1e-05, False");
    const char *in_g = "['', 'g', 'group_norm']";
    M m = {0};
    int64_t split[3] = {2, 2, 2}, whole[2] = {2, 4};
    float token[8] = {1, 2, 3, 4, 1, 2, 3, 4}, ones[2] = {1, 1}, zeros[2] = {0, 0};
    tensor(&m, "val_1", 7, (int[]){3, 0}, split, sizeof split);
    tensor(&m, "val_2", 7, (int[]){2, 0}, whole, sizeof whole);
    tensor(&m, "val_8", 1, (int[]){2, 0}, ones, sizeof ones);
    tensor(&m, "val_11", 1, (int[]){2, 0}, zeros, sizeof zeros);
    initializer(&m, "val_20", 1, 4, 10);
    initializer(&m, "val_22", 1, 4, 20);
    tensor(&m, "expand", 1, (int[]){2, 4, 0}, token, sizeof token);
    initializer(&m, "permute", 4, 4, 1);
    initializer(&m, "add_4", 4, 0, 5);
    node(&m, "Reshape", "node_1", "x val_1", "g1", in_g, norm);
    node(&m, "InstanceNormalization", "node_2", "g1 val_8 val_11", "g2", in_g, norm);
    node(&m, "Reshape", "node_3", "g2 val_2", "g3", in_g, norm);
    node(&m, "Mul", "node_4", "g3 val_20", "g4", in_g, norm);
    node(&m, "Add", "node_5", "g4 val_22", "g5", in_g, norm);
    node(&m, "Add", "node_6", "g5 expand", "v1", "['', 'add']",
         call("add", "add.Tensor", "%group_norm, %expand"));
    node(&m, "MatMul", "node_7", "v1 permute", "v2", "['', 'l', 'matmul']",
         call("matmul", "matmul.default", "%add, %permute"));
    node(&m, "Mul", "node_8", "v2 add_4", "y", "['', 'n', 'mul']",
         call("mul", "mul.Tensor", "%matmul, %add_4"));
    Graph *g = import(&m, signature, NULL);
    const Param *w = param(g, "g.weight"), *b = param(g, "g.bias"), *cls = param(g, "cls"),
                *l = param(g, "l.weight");
    ok(is_shaped(w, 1, 4, 0) && first_of(w, 0) == 10 && is_shaped(b, 1, 4, 0) &&
           first_of(b, 0) == 20,
       "a GroupNorm's weight and bias are not those of the InstanceNormalization inside");
    ok(is_shaped(cls, 2, 1, 4) && first_of(cls, 3) == 4,
       "a token that was expanded over the batch is there once");
    ok(is_shaped(l, 2, 4, 4) && l->transposed && first_of(l, 1) == 5,
       "a weight that was turned is turned back");
    ok(is_shaped(param(g, "n.weight"), 1, 4, 0) && g->param.n == 5,
       "a sum with a constant stands for its parameter");
}

/* An InstanceNorm by its running statistics is a BatchNormalization over samples * channels, whose
 * operands folding tiled. */
static void test_dynamo_instance_norm(void)
{
    const char *signature = "\n# inputs\np_n_weight: PARAMETER target='n.weight'\np_n_bias: "
                            "PARAMETER target='n.bias'\nb_mean: BUFFER target='n.running_mean'\n"
                            "b_var: BUFFER target='n.running_var'\nx: USER_INPUT\n# outputs\n";
    const char *norm =
        call("instance_norm", "instance_norm.default",
             "%x, %p_n_weight, %p_n_bias, %b_mean, %b_var, False, 0.1, 1e-05, False");
    const char *in_n = "['', 'n', 'instance_norm']";
    float weight[8] = {1, 2, 3, 4, 1, 2, 3, 4}, bias[8] = {5, 6, 7, 8, 5, 6, 7, 8},
          ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    int64_t one[3] = {1, 8, 1}, own[3] = {2, 4, 1}, two[2] = {2, 4};
    for (int equal = 1; equal >= 0; equal--) {
        M m = {0};
        weight[7] = equal ? 4 : 5;
        tensor(&m, "val_1", 7, (int[]){3, 0}, one, sizeof one);
        tensor(&m, "val_2", 7, (int[]){3, 0}, own, sizeof own);
        tensor(&m, "val_3", 7, (int[]){2, 0}, two, sizeof two);
        tensor(&m, "val_5", 1, (int[]){8, 0}, weight, sizeof weight);
        tensor(&m, "val_6", 1, (int[]){8, 0}, bias, sizeof bias);
        tensor(&m, "val_7", 1, (int[]){8, 0}, bias, sizeof bias);
        tensor(&m, "val_8", 1, (int[]){8, 0}, ones, sizeof ones);
        node(&m, "Reshape", "node_1", "x val_1", "v1", in_n, norm);
        node(&m, "BatchNormalization", "node_2", "v1 val_5 val_6 val_7 val_8", "v2", in_n, norm);
        node(&m, "Reshape", "node_3", "v2 val_2", "v3", in_n, norm);
        node(&m, "Reshape", "node_4", "v3 val_3", "y", "['', 'view']",
             call("view", "view.default", "%instance_norm, [2, 4]"));
        Graph *g = import(&m, signature, NULL);
        const Param *w = param(g, "n.weight"), *b = param(g, "n.bias");
        ok(equal ? is_shaped(w, 1, 4, 0) && first_of(w, 3) == 4 && is_shaped(b, 1, 4, 0) &&
                       first_of(b, 0) == 5 && g->param.n == 2
                 : g && !w && is_shaped(b, 1, 4, 0) && g->param.n == 1,
           equal ? "an InstanceNorm's weight is there once, not for each sample"
                 : "what are no copies of one weight is not taken for it");
    }
}

/* What the optimizer notes of an initializer that it computed. */
static void folded_from(M *m, const char *name, const char *of)
{
    Buf v = {0}, e = {0};
    put_string(&v, 1, name);
    put_string(&e, 1, "pkg.onnxscript.optimizer.folded_from");
    put_string(&e, 2, of);
    put_message(&v, 4, &e);
    put_message(&m->graph, 13, &v);
}

/* The first step of a recurrent layer begins with zeros: the weight has no gradient there. */
static void test_dynamo_zero_state(void)
{
    const char *signature = "\n# inputs\np_w: PARAMETER target='r.w'\np_b: PARAMETER "
                            "target='r.b'\nx: USER_INPUT\n# outputs\n";
    float bias[8] = {1, 2, 3, 4, 1, 2, 3, 4};
    for (int i = 0; i < 2; i++) {
        M m = {0};
        initializer(&m, "val_1", 4, 4, 3);
        initializer(&m, "r.b", 4, 0, 1);
        tensor(&m, "linear_1", 1, (int[]){2, 4, 0}, bias, sizeof bias);
        folded_from(&m, "linear_1", i ? "['r.b', 'r.w', 'val_0', 'ones']"
                                      : "['getitem', 'r.b', 'r.w', 'val_0', 'zeros']");
        node(&m, "Add", "node_1", "x linear_1", "h", "['', 'r', 'add']",
             call("add", "add.Tensor", "%x, %linear_1"));
        node(&m, "MatMul", "node_2", "h val_1", "v", "['', 'r', 'linear_2']",
             call("linear_2", "linear.default", "%add, %p_w, %p_b"));
        node(&m, "Add", "node_3", "v r.b", "y", "['', 'r', 'linear_2']",
             call("linear_2", "linear.default", "%add, %p_w, %p_b"));
        Graph *g = import(&m, signature, NULL);
        ok(g && param(g, "r.w") && !*said == !i,
           i ? "of other numbers than zeros a use is named that was computed away"
             : "of a weight times zeros no use is lost");
    }
}

/* A layer that is called twice on one value, beside one that is not used: its numbers are not those
 * of every fresh one. */
static void test_dynamo_called_twice(void)
{
    const char *signature =
        "\n# inputs\np_a_w: PARAMETER target='a.weight'\np_a_b: PARAMETER target='a.bias'\n"
        "p_b_w: PARAMETER target='b.weight'\np_b_b: PARAMETER target='b.bias'\nx: USER_INPUT\n"
        "# outputs\n";
    const char *linear = call("linear", "linear.default", "%x, %p_a_w, %p_a_b");
    M m = {0};
    initializer(&m, "val_0", 4, 4, 1);
    initializer(&m, "a.bias", 4, 0, 1);
    node(&m, "MatMul", "node_1", "x val_0", "v", "['', 'a', 'linear']", linear);
    node(&m, "Add", "node_2", "v a.bias", "linear", "['', 'a', 'linear']", linear);
    node(&m, "Tanh", "node_3", "linear", "tanh", "['', 'tanh']",
         call("tanh", "tanh.default", "%linear"));
    node(&m, "Sigmoid", "node_4", "linear", "sigmoid", "['', 'sigmoid']",
         call("sigmoid", "sigmoid.default", "%linear_1"));
    node(&m, "Mul", "node_5", "tanh sigmoid", "y", "['', 'mul']",
         call("mul", "mul.Tensor", "%tanh, %sigmoid"));
    Graph *g = import(&m, signature, NULL);
    ok(g && g->param.n == 2 && param(g, "a.bias") &&
           strstr(said, "a.bias (for b.bias, if that is used)"),
       "a layer that may be called twice is not taken for an unused one as well");

/* Two vectors of zeros were merged, the Split that both go through, and a view behind it. */
static void test_dynamo_split(void)
{
    const char *signature = "\n# inputs\np_a_base: PARAMETER target='a.base'\np_b_base: PARAMETER "
                            "target='b.base'\nx: USER_INPUT\n# outputs\n";
    M m = {0};
    int64_t sizes[2] = {4, 4}, row[2] = {1, 4};
    initializer(&m, "a.base", 8, 0, 0);
    tensor(&m, "val_0", 7, (int[]){2, 0}, sizes, sizeof sizes);
    tensor(&m, "val_1", 7, (int[]){2, 0}, row, sizeof row);
    node(&m, "Split", "node_1", "a.base val_0", "p0 p1", NULL, NULL);
    node(&m, "Add", "node_2", "x p0", "v1", "['', 'a', 'add']",
         call("add", "add.Tensor", "%x, %getitem"));
    node(&m, "Reshape", "node_3", "p1 val_1", "view", "['', 'a', 'view']",
         call("view", "view.default", "%getitem_1, [1, 4]"));
    node(&m, "Mul", "node_4", "v1 view", "v2", "['', 'a', 'mul']",
         call("mul", "mul.Tensor", "%add, %view"));
    node(&m, "Add", "node_5", "v2 p0", "v3", "['', 'b', 'add_1']",
         call("add_1", "add.Tensor", "%mul, %getitem_2"));
    node(&m, "Mul", "node_6", "v3 view", "y", "['', 'b', 'mul_1']",
         call("mul_1", "mul.Tensor", "%add_1, %view_1"));
    Graph *g = import(&m, signature, NULL);
    const Param *a = param(g, "a.base"), *b = param(g, "b.base");
    Ids *users = g ? graph_users(g, arena) : NULL;
    ok(a && b && users[a->value].n == 2 && users[b->value].n == 2,
       "a view of what a merged Split made is of each module's own parameter");
}

/* What an export without its optimizer lacks, the model does not use. */
static void test_dynamo_unused(void)
{
    const char *signature =
        "\n# inputs\np_a_weight: PARAMETER target='a.weight'\np_u: PARAMETER target='u'\nx: "
        "USER_INPUT\n# outputs\n";
    for (int optimized = 0; optimized < 2; optimized++) {
        M m = {0};
        initializer(&m, "a.weight", 4, 4, 1);
        if (optimized)
            initializer(&m, "val_3", 4, 0, 7);
        node(&m, "MatMul", "node_1", "x a.weight", "v1", "['', 'a', 'linear']",
             fx("", "%p_a_weight"));
        node(&m, "Mul", "node_2", optimized ? "v1 val_3" : "v1 v1", "y", "['', 'mul']", NULL);
        ok(import(&m, signature, NULL) &&
               strstr(said, optimized ? "the export folded it away: u\n"
                                             : "will not train, no node uses it: u\n"),
           optimized ? "what a number of folding's making may be of is lost"
                     : "what an export without its optimizer lacks is not used");
    }
}

static void metadata(Buf *to, int field, const char *key, const char *value)
{
    Buf e = {0};
    put_string(&e, 1, key);
    put_string(&e, 2, value);
    put_message(to, field, &e);
}

/* Two tokens of the same numbers, as fresh ones are, expanded: one initializer, which stands twice
 * in a node.  What the record names is the first of them. */
static void test_dynamo_tokens(void)
{
    enum { INT = 2 };
    const char *signature = "\n# inputs\np_cls: PARAMETER target='cls'\np_dist: PARAMETER "
                            "target='dist'\nx: USER_INPUT\n# outputs\n";
    M m = {0};
    Buf n = {0}, a = {0}, v = {0};
    float token[8] = {1, 2, 3, 4, 1, 2, 3, 4};
    tensor(&m, "expand", 1, (int[]){2, 4, 0}, token, sizeof token);
    put_string(&v, 1, "expand");
    metadata(&v, 4, "pkg.onnxscript.optimizer.folded_from", "['cls', 'val_1']");
    put_message(&m.graph, 13, &v);
    node_begin(&n, "Concat", "node_1", "expand expand x", "v1", "['', 'cat']",
               call("cat", "cat.default", "[%expand, %expand_1, %x], 1"));
    metadata(&n, 9, "pkg.torch.onnx.stack_trace",
             "File \"model.py\", line 9, in forward\n    y = torch.cat((cls, dist, x), dim=1)");
    put_string(&a, 1, "axis");
    put_int(&a, 3, 1);
    put_int(&a, 20, INT);
    put_message(&n, 5, &a);
    put_message(&m.graph, 1, &n);
    node(&m, "Neg", "node_2", "v1", "y", "['', 'neg']", call("neg", "neg.default", "%cat"));
    Graph *g = import(&m, signature, NULL);
    const Param *cls = param(g, "cls"), *dist = param(g, "dist");
    Ids *users = g ? graph_users(g, arena) : NULL;
    ok(cls && dist && first_of(dist, 3) == 4 && users[cls->value].n == 1 &&
           users[dist->value].n == 1,
       "equal tokens that were merged are two parameters");
}

/* A table of relative positions, looked up and not turned yet; a tied table's transpose among other
 * candidates. */
static void test_dynamo_tables(void)
{
    const char *signature =
        "\n# inputs\np_t: PARAMETER target='w.relative_position_bias_table'\np_e: PARAMETER "
        "target='e.weight'\nx: USER_INPUT\n# outputs\n";
    M m = {0};
    float looked_up[32], turned[16];
    int64_t shape[2] = {2, 16}, two[2] = {2, 4};
    for (int i = 0; i < 4; i++)                         /* 2 x 2 places, two heads */
        for (int k = 0; k < 4; k++)
            for (int h = 0; h < 2; h++)
                looked_up[(i * 4 + k) * 2 + h] =
                    (float)(((i / 2 - k / 2 + 1) * 3 + i % 2 - k % 2 + 1) * 2 + h + 1);
    for (int i = 0; i < 16; i++)
        turned[i] = (float)(100 + i % 4 * 4 + i / 4);
    initializer(&m, "e.weight", 4, 4, 100);
    tensor(&m, "index", 1, (int[]){16, 2, 0}, looked_up, sizeof looked_up);
    tensor(&m, "t", 1, (int[]){4, 4, 0}, turned, sizeof turned);
    tensor(&m, "val_1", 7, (int[]){2, 0}, shape, sizeof shape);
    tensor(&m, "val_2", 7, (int[]){2, 0}, two, sizeof two);
    node(&m, "MatMul", "node_1", "x e.weight", "v1", "['', 'e', 'matmul']",
         call("matmul", "matmul.default", "%x, %p_e"));
    node(&m, "Reshape", "node_2", "index val_1", "v2", "['', 'w', 'view']",
         call("view", "view.default", "%index, [2, 16]"));
    node(&m, "MatMul", "node_3", "v1 t", "v3", "['', 'matmul_1']",
         call("matmul_1", "matmul.default", "%matmul, %t"));
    node(&m, "Slice", "node_4", "v2 from to axis", "v4", "['', 'w', 'slice_1']", NULL);
    tensor(&m, "from", 7, (int[]){1, 0}, (int64_t[]){0}, 8);
    tensor(&m, "to", 7, (int[]){1, 0}, (int64_t[]){4}, 8);
    tensor(&m, "axis", 7, (int[]){1, 0}, (int64_t[]){1}, 8);
    node(&m, "Add", "node_5", "v3 v4", "y", "['', 'add']",
         call("add", "add.Tensor", "%matmul_1, %slice_1"));
    Graph *g = import(&m, signature, NULL);
    const Param *table = param(g, "w.relative_position_bias_table");
    ok(is_shaped(table, 2, 9, 2) && first_of(table, 0) == 1 && first_of(table, 17) == 18,
       "a table of relative positions has a row for each offset");
    ok(is_shaped(param(g, "e.weight"), 2, 4, 4) && g->param.n == 2,
       "a transpose of its bytes is the parameter itself");
}

/* Equal zero biases were merged, and with them the Splits that read them; and an unread bias that
 * three may be tied to. */
static void test_dynamo_merges(void)
{
    const char *signature =
        "\n# inputs\np_e_bias: PARAMETER target='e.bias'\np_a_bias: PARAMETER "
        "target='a.bias'\np_b_bias: PARAMETER target='b.bias'\n"
        "p_h_bias: PARAMETER target='h.bias'\np_h_d_bias: PARAMETER target='h.d.bias'\np_h_n_bias: "
        "PARAMETER target='h.n.bias'\nx: USER_INPUT\n# outputs\n";
    M m = {0};
    initializer(&m, "e.bias", 4, 0, 0);
    initializer(&m, "h.d.bias", 4, 0, 1);
    initializer(&m, "h.n.bias", 4, 0, 2);
    node(&m, "Add", "node_0", "x e.bias", "v0", "['', 'e', 'add']",
         call("add", "add.Tensor", "%x, %p_e_bias"));
    node(&m, "Neg", "node_1", "e.bias", "s", "['', 'a', 'split']", NULL);
    node(&m, "Add", "node_2", "v0 s", "v1", "['', 'a', 'add_1']",
         call("add_1", "add.Tensor", "%add, %getitem"));
    node(&m, "Add", "node_3", "v1 s", "v2", "['', 'b', 'add_2']",
         call("add_2", "add.Tensor", "%add_1, %getitem_1"));
    node(&m, "Add", "node_4", "v2 h.d.bias", "v3", "['', 'h', 'h.d', 'add_3']",
         call("add_3", "add.Tensor", "%add_2, %p_h_d_bias"));
    node(&m, "Add", "node_5", "v3 h.n.bias", "y", "['', 'h', 'h.n', 'add_4']",
         call("add_4", "add.Tensor", "%add_3, %p_h_n_bias"));
    Graph *g = import(&m, signature, NULL);
    ok(g && param(g, "e.bias") && !param(g, "a.bias") && !param(g, "b.bias"),
       "what two modules were merged into trains for neither");
    ok(param(g, "h.d.bias") && param(g, "h.n.bias") && !param(g, "h.bias"),
       "a name that two parameters could claim is given to none");
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
    test_dynamo_folds();
    test_dynamo_instance_norm();
    test_dynamo_zero_state();
    test_dynamo_called_twice();
    test_dynamo_tokens();
    test_dynamo_unused();
    test_dynamo_split();
    test_dynamo_merges();
    test_dynamo_tables();
    return models_end();
}

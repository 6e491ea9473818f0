/*
 * test_params.c - which initializers are parameters, under which names, and how operands are made
 * of them (frontend/params/): small models in the manner of each exporter, written here.
 */
#include "import_model.h"

/* What folding renamed is called after the bias added to it, where that is of the same module. */
static void test_renamed(void)
{
    M m = {0};
    const float drawn[16] = {.3f, -.1f, .7f,  .2f, -.6f, .4f, .9f,  -.8f,
                             .5f, .1f,  -.3f, .8f, -.2f, .6f, -.9f, -.4f};
    tensor(&m, "onnx::MatMul_11", 1, (int[]){4, 4, 0}, drawn, sizeof drawn);
    initializer(&m, "onnx::MatMul_12", 4, 4, 20);
    initializer(&m, "head.bias", 4, 0, 100);
    initializer(&m, "model.h.0.fc.bias", 4, 0, 200);
    initializer(&m, "onnx::MatMul_13", 4, 4, 60);
    initializer(&m, "model.h.0.attn.in_proj_bias", 4, 0, 300);
    node(&m, "MatMul", "/h.0/fc/MatMul", "x onnx::MatMul_12", "a", NULL, NULL);
    node(&m, "Add", "/h.0/fc/Add", "model.h.0.fc.bias a", "b", NULL, NULL);
    node(&m, "MatMul", "/h.0/attn/MatMul", "b onnx::MatMul_13", "d", NULL, NULL);
    node(&m, "Add", "/h.0/attn/Add", "model.h.0.attn.in_proj_bias d", "e", NULL, NULL);
    node(&m, "MatMul", "/head/decoder/MatMul", "e onnx::MatMul_11", "c", NULL, NULL);
    node(&m, "Add", "/head/decoder/Add", "head.bias c", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    const Param *w = param(g, "model.h.0.fc.weight");
    ok(w && w->transposed && param(g, "model.h.0.attn.in_proj_weight"),
       "a folded weight is called after the bias of its module");
    ok(param(g, "onnx::MatMul_11") && !param(g, "onnx::MatMul_11")->transposed &&
           strstr(said, "onnx::MatMul_11"),
       "another module's bias names none: it trains as the file has it, and is named");
}

/* A state_dict of one matrix of such numbers. */
static void write_matrix(const char *path, const char *name, const float *at, int rows, int columns)
{
    size_t n = (size_t)(rows * columns) * sizeof *at;
    const char *head =
        arena_printf(arena, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}",
                     name, rows, columns, n);
    uint64_t size = strlen(head);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(&size, 8, 1, f) != 1 || fwrite(head, size, 1, f) != 1 ||
        fwrite(at, n, 1, f) != 1 || fclose(f))
        perror(path);
}

/* Folding takes the projections of an attention apart and turns them: --params-from says of what they
 * are the rows. */
static void test_packed(void)
{
    enum { E = 80 };
    static float whole[3 * E * E], part[E * 2 * E];
    const char *path = arena_printf(arena, "%s.safetensors", file);
    for (int i = 0; i < 3 * E * E; i++)
        whole[i] = (float)(i * 7 % 19211) / 64;
    write_matrix(path, "a.in_proj_weight", whole, 3 * E, E);
    for (int given = 0; given < 2; given++) {
        M m = {0};
        ImportOptions opt = {.training = true};
        if (given)
            vec_push(arena, &opt.params_from, path);
        tensor(&m, "u.weight", 1, (int[]){4, E, 0}, whole + 7, 4 * E * sizeof *whole);
        for (int k = 0, at = 0; k < 2; at += (k++ + 1) * E) {
            int rows = (k + 1) * E;
            for (int i = 0; i < rows * E; i++)
                part[i % E * rows + i / E] = whole[at * E + i];
            tensor(&m, k ? "onnx::MatMul_11" : "onnx::MatMul_10", 1, (int[]){E, rows, 0}, part,
                   (size_t)(rows * E) * sizeof *part);
        }
        node(&m, "MatMul", "/u/MatMul", "x u.weight", "v", NULL, NULL);
        node(&m, "MatMul", "/a/MatMul", "v onnx::MatMul_10", "q", NULL, NULL);
        node(&m, "MatMul", "/a/MatMul_1", "q onnx::MatMul_11", "y", NULL, NULL);
        Graph *g = import(&m, NULL, &opt);
        if (given)
            ok(is_shaped(param(g, "a.in_proj_weight"), 2, 3 * E, E) && g->param.n == 2 &&
                   !strstr(said, "onnx::"),
               "rows of a matrix that is given, turned, are that");
        else
            ok(param(g, "onnx::MatMul_10") && strstr(said, "onnx::MatMul_10, onnx::MatMul_11"),
               "of one that is not they train as they are, and are named");
    }
    remove(path);
}

/* Of TorchScript's recurrent layers folding leaves ONNX's operands. */
static void test_recurrent(void)
{
    enum { INT = 2, I64 = 7 };
    M m = {0};
    Buf n = {0}, size = {0};
    const int64_t steps[] = {2, 1, 4};
    const float drawn[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    tensor(&m, "steps", I64, (int[]){3, 0}, steps, sizeof steps);
    tensor(&m, "onnx::GRU_1", 1, (int[]){1, 3, 4, 0}, drawn, sizeof drawn);
    tensor(&m, "onnx::GRU_2", 1, (int[]){1, 3, 1, 0}, drawn, 12);
    tensor(&m, "onnx::GRU_3", 1, (int[]){1, 6, 0}, drawn, 24);
    node(&m, "Reshape", "/Reshape", "x steps", "s", NULL, NULL);
    put_string(&size, 1, "hidden_size");
    put_int(&size, 3, 1);
    put_int(&size, 20, INT);
    node_begin(&n, "GRU", "/rnn/GRU", "s onnx::GRU_1 onnx::GRU_2 onnx::GRU_3", "y", NULL, NULL);
    put_message(&n, 5, &size);
    put_message(&m.graph, 1, &n);
    Graph *g = import(&m, NULL, NULL);
    const Param *w = param(g, "rnn.weight_ih_l0"), *b = param(g, "rnn.bias_hh_l0");
    ok(is_shaped(w, 2, 3, 4) && first_of(w, 0) == 5 && first_of(w, 4) == 1 && first_of(w, 8) == 9,
       "the gates of a folded GRU are PyTorch's again");
    ok(is_shaped(b, 1, 3, 0) && first_of(b, 0) == 5 && first_of(b, 1) == 4 &&
           is_shaped(param(g, "rnn.weight_hh_l0"), 2, 3, 1) && g->param.n == 4,
       "its biases are two");
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

    M fresh = {0}; /* statistics equal to scale and shift */
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
    node(
        &m, "BatchNormalization", "/conv/BatchNormalization",
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
    initializer(&m, "onnx::Add_7", 2, 4, 1); /* the same bytes */
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

/* self.mean, and x.mean() behind its use. */
static void test_named_twice(void)
{
    M m = {0};
    initializer(&m, "mean", 2, 4, 1);
    node(&m, "Sub", "/Sub", "x mean", "sub", NULL, NULL);
    node(&m, "Relu", "/Relu", "sub", "mean", NULL, NULL);
    node(&m, "Neg", "/Neg", "mean", "y", NULL, NULL);
    ok(!import(&m, NULL, NULL) && strstr(said, "value 'mean' is defined twice") &&
           strstr(said, "rename the module's member 'mean'"),
       "a value with a member's name is no cycle");
}

/* Numbers that were not drawn: a grid. */
static void test_made_numbers(void)
{
    M m = {0};
    float grid[4] = {0, 1, 0, 1}, drawn[4] = {-1, -0.3f, 0.3f, 1};
    tensor(&m, "grid", 1, (int[]){4, 0}, grid, sizeof grid);
    tensor(&m, "drawn", 1, (int[]){4, 0}, drawn, sizeof drawn);
    node(&m, "Mul", "/Mul", "x grid", "v1", NULL, NULL);
    node(&m, "Mul", "/Mul_2", "v1 drawn", "v2", NULL, NULL);
    tensor(&m, "n.weight", 1, (int[]){4, 0}, drawn, sizeof drawn);
    tensor(&m, "n.bias", 1, (int[]){4, 0}, drawn, sizeof drawn);
    tensor(&m, "n.running_mean", 1, (int[]){4, 0}, grid, sizeof grid);
    tensor(&m, "n.running_var", 1, (int[]){4, 0}, grid, sizeof grid);
    node(&m, "BatchNormalization", "/n/BatchNormalization",
         "v2 n.weight n.bias n.running_mean n.running_var", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(g && param(g, "grid") && strstr(said, "train as parameters: grid\n"),
       "numbers that repeat train, and are named; statistics do not");
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

int main(void)
{
    models_begin();
    test_recurrent();
    test_packed();
    test_renamed();
    test_identity();
    test_folded_norm();
    test_folded_constants();
    test_dynamo();
    test_dynamo_body();
    test_buffers();
    test_named_twice();
    test_made_numbers();
    test_rotary_tables();
    return models_end();
}

/*
 * test_params_dynamo.c - what the optimizer of dynamo's exports made of parameters is undone
 * (frontend/params/): small models in its manner, written here.
 */
#include <math.h>

#include "import_model.h"

static void metadata(Buf *to, int field, const char *key, const char *value)
{
    Buf e = {0};
    put_string(&e, 1, key);
    put_string(&e, 2, value);
    put_message(to, field, &e);
}

/* What the optimizer notes of an initializer that it computed. */
static void folded_from(M *m, const char *name, const char *of)
{
    Buf v = {0};
    put_string(&v, 1, name);
    metadata(&v, 4, "pkg.onnxscript.optimizer.folded_from", of);
    put_message(&m->graph, 13, &v);
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
    folded_from(&m, "expand", "['cls', 'val_3']");
    folded_from(&m, "permute", "['l.weight']");
    folded_from(&m, "add_4", "['n.weight', 'scalar_tensor_default']");
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

/* A use that was computed away, beside one that is there: the first step of a recurrent layer,
 * whose state is zeros, leaves the bias; of another only numbers are left. */
static void test_dynamo_uses(void)
{
    const char *signature = "\n# inputs\np_w: PARAMETER target='r.w'\np_b: PARAMETER "
                            "target='r.b'\nx: USER_INPUT\n# outputs\n";
    for (int k = 0; k < 4; k++) {
        float numbers[8] = {1, 2, 3, 4, 1, 2, 3, 4};
        const uint16_t halves[8] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x3f80, 0x40e0, 0x4040, 0x4080};
        ImportOptions opt = {.training = true};
        M m = {0};
        if (k > 0)
            numbers[5] = 7;
        if (k == 2)
            vec_push(arena, &opt.freeze, "r.*");
        initializer(&m, "val_1", 4, 4, 3);
        initializer(&m, "r.b", 4, 0, 1);
        if (k < 3)
            tensor(&m, "linear_1", 1, (int[]){2, 4, 0}, numbers, sizeof numbers);
        else
            tensor(&m, "linear_1", 16, (int[]){2, 4, 0}, halves, sizeof halves);
        folded_from(&m, "linear_1", "['r.b', 'r.w', 'val_0', 'ones']");
        node(&m, "Add", "node_1", "x linear_1", "h", "['', 'r', 'add']",
             call("add", "add.Tensor", "%x, %linear_1"));
        node(&m, "MatMul", "node_2", "h val_1", "v", "['', 'r', 'linear_2']",
             call("linear_2", "linear.default", "%add, %p_w, %p_b"));
        node(&m, "Add", "node_3", "v r.b", "y", "['', 'r', 'linear_2']",
             call("linear_2", "linear.default", "%add, %p_w, %p_b"));
        Graph *g = import(&m, signature, &opt);
        bool refused = !g && strstr(said, "a part of their gradient: r.b (as linear_1), r.w (as");
        static const char *const what[] = {"of a bias alone it is that",
                                           "of both the model is refused",
                                           "unless they are frozen", "also of bfloat16"};
        ok(k % 2 ? refused : g && !strstr(said, "(as linear_1)"),
           "a use that was computed away: %s", what[k]);
    }
}

/* A layer that is called twice on one value, beside one of which the file has nothing. */
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
    ok(!g && strstr(said, "a.bias would also train with the gradients of b.bias"),
       "a layer that was called twice, or merged with its equal, is refused");
}

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
    ok(!g && strstr(said, "it would also train with the gradients of b.base"),
       "a Split that was merged with its equal is refused");
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
               strstr(said,
                      optimized
                          ? "folded away by the export, merged with equal ones or not used: u\n"
                          : "will not train, no node uses them: u\n"),
           optimized ? "what a number of folding's making may be of is lost"
                     : "what an export without its optimizer lacks is not used");
    }
}

/* sinks.view(2, 1).expand(2, 4): an even number of copies. */
static void test_dynamo_sinks(void)
{
    M m = {0};
    float copies[8] = {1, 1, 1, 1, 2, 2, 2, 2};
    tensor(&m, "expand", 1, (int[]){2, 4, 0}, copies, sizeof copies);
    folded_from(&m, "expand", "['a.sinks', 'val_1', 'view']");
    node(&m, "Add", "node_1", "x expand", "y", "['', 'a', 'add']",
         call("add", "add.Tensor", "%x, %expand"));
    Graph *g =
        import(&m, "\n# inputs\np_a: PARAMETER target='a.sinks'\nx: USER_INPUT\n# outputs\n", NULL);
    const Param *sinks = param(g, "a.sinks");
    ok(is_shaped(sinks, 1, 2, 0) && first_of(sinks, 1) == 2,
       "a vector that was viewed and expanded to an even number is a vector");
}

/* scale.expand(2, 1): one number, and not two that train apart. */
static void test_dynamo_number(void)
{
    M m = {0};
    float copies[2] = {.7f, .7f};
    tensor(&m, "expand", 1, (int[]){2, 1, 0}, copies, sizeof copies);
    folded_from(&m, "expand", "['scale', 'val_1']");
    node(&m, "Mul", "node_1", "x expand", "y", "['', 'mul']",
         call("mul", "mul.Tensor", "%x, %expand"));
    Graph *g =
        import(&m, "\n# inputs\np_s: PARAMETER target='scale'\nx: USER_INPUT\n# outputs\n", NULL);
    const Param *scale = param(g, "scale");
    ok(scale && scale->shape.rank == 0 && first_of(scale, 0) == .7f,
       "one number that was expanded is one number");
}

/* Rows that loops read: mix[i] with 1 - mix[i], sigmoid(gate[i]) alone; of two numbers a sum. */
static void test_dynamo_rows(void)
{
    const char *signature = "\n# inputs\np_mix: PARAMETER target='mix'\np_gate: PARAMETER "
                            "target='gate'\np_w: PARAMETER target='w'\nx: USER_INPUT\n# outputs\n";
    static const char *const of[] = {
        "['mix', 'val_0']", "['mix', 'scalar_tensor', 'select_1', 'val_0']", "['mix', 'val_2']",
        "['mix', 'scalar_tensor', 'select_3', 'val_2']"};
    static const char *const name[] = {"select", "sub", "select_2", "sub_1"};
    float rows[4][4] = {{1, 2, 3, 4}, {0, -1, -2, -3}, {5, 7, 6, 9}, {-4, -6, -5, -8}},
          gate[2] = {.62245933f, .26894142f}, w[2] = {2, 5}, sum[2] = {2.25f, 5.25f};
    const char *v = "x";
    M m = {0};
    for (int i = 0; i < 4; i++) {
        tensor(&m, name[i], 1, (int[]){4, 0}, rows[i], sizeof rows[i]);
        folded_from(&m, name[i], of[i]);
        const char *to = arena_printf(arena, "v%d", i),
                   *in = arena_printf(arena, "%s %s", v, name[i]);
        node(&m, "Mul", arena_printf(arena, "node_%d", i), in, to, "['', 'mul']", NULL);
        v = to;
    }
    for (int i = 0; i < 2; i++) {
        const char *sigmoid = i ? "sigmoid_1" : "sigmoid";
        tensor(&m, sigmoid, 1, (int[]){0}, &gate[i], sizeof gate[i]);
        folded_from(&m, sigmoid,
                    i ? "['gate', 'select_5', 'val_2']" : "['gate', 'select_4', 'val_0']");
        const char *to = arena_printf(arena, "g%d", i),
                   *in = arena_printf(arena, "%s %s", v, sigmoid);
        node(&m, "Mul", arena_printf(arena, "node_g%d", i), in, to, "['', 'mul']", NULL);
        v = to;
    }
    tensor(&m, "w", 1, (int[]){2, 1, 0}, w, sizeof w);
    tensor(&m, "add_2", 1, (int[]){2, 1, 0}, sum, sizeof sum);
    folded_from(&m, "add_2", "['val_18', 'w']");
    node(&m, "Mul", "node_w", "g1 w", "h", "['', 'mul_8']",
         call("mul_8", "mul.Tensor", "%g1, %p_w"));
    node(&m, "Div", "node_y", "h add_2", "y", "['', 'div']",
         call("div", "div.Tensor", "%h, %add_2"));
    Graph *g = import(&m, signature, NULL);
    const Param *mix = param(g, "mix"), *by = param(g, "gate");
    ok(is_shaped(mix, 2, 2, 4) && first_of(mix, 4) == 5,
       "rows are recovered where sums of them are read, too");
    ok(is_shaped(by, 1, 2, 0) && fabsf(first_of(by, 0) - .5f) < 1e-6f,
       "and where functions of them are");
    ok(g && g->param.n == 3 && !strstr(said, "will not train"), "two numbers are a told sum: %s",
       said);
}

/* One number: 1 - w of 1 may be w - 1, w * w of 3 may be w * 3 or w + 6, 2 * w + 1 may be w + 4. */
static void test_dynamo_one_number(void)
{
    static const struct { float w, made; const char *name, *of; bool sure; } at[] = {
        {1, 0, "sub", "['scalar_tensor', 'val_0', 'w']", false},
        {.25f, .75f, "sub", "['scalar_tensor', 'val_0', 'w']", true},
        {3, 9, "mul", "['w']", false},
        {3, 7, "add", "['mul', 'val_0', 'w']", false},
    };
    for (int i = 0; i < 4; i++) {
        M m = {0};
        tensor(&m, "w", 1, (int[]){1, 0}, &at[i].w, sizeof(float));
        tensor(&m, at[i].name, 1, (int[]){1, 0}, &at[i].made, sizeof(float));
        folded_from(&m, at[i].name, at[i].of);
        node(&m, "Mul", "node_w", "x w", "h", "['', 'mul_8']",
             call("mul_8", "mul.Tensor", "%x, %p_w"));
        const char *in = arena_printf(arena, "h %s", at[i].name),
                   *args = arena_printf(arena, "%%h, %%%s", at[i].name);
        node(&m, "Div", "node_y", in, "y", "['', 'div']", call("div", "div.Tensor", args));
        Graph *g = import(&m,
                          "\n# inputs\np_w: PARAMETER target='w'\nx: USER_INPUT\n# outputs\n",
                          NULL);
        ok(at[i].sure ? g && g->param.n == 1
                      : !g && strstr(said, "a part of their gradient: w (as ") != NULL,
           "%g made of one number %g: %s", (double)at[i].made, (double)at[i].w, said);
    }
}

/* -exp(A_log) of two layers that begin alike is one initializer: it is made of the one that the file
 * has, and may be the other's there. */
static void test_dynamo_equal_functions(void)
{
    const char *signature = "\n# inputs\np_a: PARAMETER target='a.A_log'\np_b: PARAMETER "
                            "target='b.A_log'\nx: USER_INPUT\n# outputs\n";
    float own[16], folded[16];
    uint32_t functions = 0;
    M m = {0};
    for (int i = 0; i < 16; i++)
        own[i] = (float)i / 8, folded[i] = -expf(own[i]);
    tensor(&m, "a.A_log", 1, (int[]){4, 4, 0}, own, sizeof own);
    tensor(&m, "neg", 1, (int[]){4, 1, 4, 0}, folded, sizeof folded);
    folded_from(&m, "neg", "['a.A_log', 'exp']");
    node(&m, "MatMul", "node_0", "x a.A_log", "v", "['', 'a', 'matmul']",
         call("matmul", "matmul.default", "%x, %p_a"));
    node(&m, "Mul", "node_1", "v neg", "h", "['', 'a', 'mul']",
         call("mul", "mul.Tensor", "%matmul, %neg"));
    node(&m, "Mul", "node_2", "h neg", "y", "['', 'b', 'mul_1']",
         call("mul_1", "mul.Tensor", "%mul, %neg_1"));
    Graph *g = import(&m, signature, NULL);
    for (NodeId k = 0; g && k < g->node.n; k++)
        functions += g->node.at[k].op == OP_Exp;
    ok(g && g->param.n == 1 && functions == 1 && strstr(said, "not used: b.A_log\n"),
       "an equal function of another parameter does not train the one that is there");
}

/* A tied table's transpose. */
static void test_dynamo_tables(void)
{
    M m = {0};
    float turned[16];
    for (int i = 0; i < 16; i++)
        turned[i] = (float)(100 + i % 4 * 4 + i / 4);
    initializer(&m, "e.weight", 4, 4, 100);
    tensor(&m, "t", 1, (int[]){4, 4, 0}, turned, sizeof turned);
    node(&m, "MatMul", "node_1", "x e.weight", "v1", "['', 'e', 'matmul']",
         call("matmul", "matmul.default", "%x, %p_e"));
    node(&m, "MatMul", "node_3", "v1 t", "y", "['', 'matmul_1']",
         call("matmul_1", "matmul.default", "%matmul, %t"));
    Graph *g = import(
        &m, "\n# inputs\np_e: PARAMETER target='e.weight'\nx: USER_INPUT\n# outputs\n", NULL);
    ok(is_shaped(param(g, "e.weight"), 2, 4, 4) && g->param.n == 1,
       "a transpose of its bytes is the parameter itself");
}

/* An unread bias that two others may be tied to. */
static void test_dynamo_claims(void)
{
    const char *signature =
        "\n# inputs\np_h_bias: PARAMETER target='h.bias'\np_h_d_bias: PARAMETER target='h.d.bias'\n"
        "p_h_n_bias: PARAMETER target='h.n.bias'\nx: USER_INPUT\n# outputs\n";
    M m = {0};
    initializer(&m, "h.d.bias", 4, 0, 1);
    initializer(&m, "h.n.bias", 4, 0, 2);
    node(&m, "Add", "node_4", "x h.d.bias", "v3", "['', 'h', 'h.d', 'add_3']",
         call("add_3", "add.Tensor", "%x, %p_h_d_bias"));
    node(&m, "Add", "node_5", "v3 h.n.bias", "y", "['', 'h', 'h.n', 'add_4']",
         call("add_4", "add.Tensor", "%add_3, %p_h_n_bias"));
    Graph *g = import(&m, signature, NULL);
    ok(param(g, "h.d.bias") && param(g, "h.n.bias") && !param(g, "h.bias"),
       "a name that two parameters could claim is given to none");
}

/* maximum(x * a, x * b), where a and b are equal: the products were merged, and one node reads what
 * is left twice. */
static void test_dynamo_larger(void)
{
    const char *signature = "\n# inputs\np_a: PARAMETER target='a'\np_b: PARAMETER "
                            "target='b'\nx: USER_INPUT\n# outputs\n";
    M m = {0};
    Buf n = {0};
    initializer(&m, "a", 4, 0, 0);
    node(&m, "Mul", "node_1", "x a", "mul", "['', 'mul']", call("mul", "mul.Tensor", "%x, %p_a"));
    node_begin(&n, "Max", "node_2", "mul mul", "y", "['', 'maximum']",
               call("maximum", "maximum.default", "%mul, %mul_1"));
    put_message(&m.graph, 1, &n);
    Graph *g = import(&m, signature, NULL);
    ok(!g && strstr(said, "a would also train with the gradients of b"),
       "equal products that were merged under a maximum are refused");
}

/* A fresh norm without weight and bias: its ones are its running variance, its zeros its mean. */
static void test_dynamo_plain_norm(void)
{
    const char *signature = "\n# inputs\nb_m: BUFFER target='n.running_mean' persistent=True\n"
                            "b_v: BUFFER target='n.running_var' persistent=True\np_w: PARAMETER "
                            "target='w'\nx: USER_INPUT\n# outputs\n",
               *norm = call("batch_norm", "_native_batch_norm_legit_functional.default",
                            "%x, None, None, %b_m, %b_v, True, 0.1, 1e-05");
    float ones[4] = {1, 1, 1, 1}, zeros[4] = {0};
    M m = {0};
    tensor(&m, "n.running_mean", 1, (int[]){4, 0}, zeros, sizeof zeros);
    tensor(&m, "n.running_var", 1, (int[]){4, 0}, ones, sizeof ones);
    initializer(&m, "w", 4, 0, 1);
    node(&m, "BatchNormalization", "node_1",
         "x n.running_var n.running_mean n.running_mean n.running_var", "h", "['', 'n', 'norm']",
         norm);
    node(&m, "Mul", "node_2", "h w", "y", "['', 'mul']", call("mul", "mul.Tensor", "%norm, %p_w"));
    Graph *g = import(&m, signature, NULL);
    const Ids *users = graph_users(g, g->arena);
    const Param *mean = param(g, "n.running_mean"), *var = param(g, "n.running_var");
    ok(mean && var && users[mean->value].n == 2 && users[var->value].n == 2,
       "a norm without weight and bias reads its statistics as such alone: for eval, and to move");
}

/* Of few numbers a function is known by the names of what was done: -exp of a parameter that the
 * file has in no other way, exp(-v) of one that it has. */
static void test_dynamo_told_functions(void)
{
    const char *signature = "\n# inputs\np_s: PARAMETER target='s'\np_v: PARAMETER "
                            "target='v'\nx: USER_INPUT\n# outputs\n";
    float v[2] = {0.25f, -0.5f}, minus[2] = {expf(-0.25f), expf(0.5f)}, scale[1] = {-expf(0.75f)};
    M m = {0};
    tensor(&m, "neg", 1, (int[]){1, 0}, scale, sizeof scale);
    tensor(&m, "v", 1, (int[]){2, 1, 0}, v, sizeof v);
    tensor(&m, "exp_1", 1, (int[]){2, 1, 0}, minus, sizeof minus);
    folded_from(&m, "neg", "['s', 'exp']");
    folded_from(&m, "exp_1", "['v', 'neg_1']");
    node(&m, "Mul", "node_1", "x neg", "mul", "['', 'mul']", call("mul", "mul.Tensor", "%x, %neg"));
    node(&m, "Mul", "node_2", "mul exp_1", "mul_1", "['', 'mul_1']",
         call("mul_1", "mul.Tensor", "%mul, %exp_1"));
    node(&m, "Add", "node_3", "mul_1 v", "y", "['', 'add']",
         call("add", "add.Tensor", "%mul_1, %p_v"));
    Graph *g = import(&m, signature, NULL);
    const Param *s = param(g, "s");
    ok(g && is_shaped(s, 1, 1, 0) && fabs((double)first_of(s, 0) - 0.75) < 1e-6 &&
           g->param.n == 2 && !strstr(said, "get no gradient"),
       "functions of few numbers are known by their names");

    float one[1] = {1}; /* tanh(20), rounded: its inverse is infinite */
    tensor(&m, "tanh", 1, (int[]){1, 0}, one, sizeof one);
    folded_from(&m, "tanh", "['s', 'tanh']");
    node(&m, "Mul", "node_1", "x tanh", "y", "['', 'mul']",
         call("mul", "mul.Tensor", "%x, %tanh"));
    signature = "\n# inputs\np_s: PARAMETER target='s'\nx: USER_INPUT\n# outputs\n";
    g = import(&m, signature, NULL);
    ok(g && !param(g, "s") && strstr(said, "will not train") && strstr(said, ": s\n"),
       "none is made again of a number that rounding took to a function's bound");
}

/* repeat(): of one row, and of two, which the file does not hold as such. */
static void test_dynamo_repeated(void)
{
    const char *signature = "\n# inputs\np_a: PARAMETER target='a'\np_b: PARAMETER "
                            "target='b'\nx: USER_INPUT\n# outputs\n";
    float one[16] = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4},
          two[16] = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8};
    M m = {0};
    tensor(&m, "repeat", 1, (int[]){4, 4, 0}, one, sizeof one);
    tensor(&m, "repeat_1", 1, (int[]){4, 4, 0}, two, sizeof two);
    folded_from(&m, "repeat", "['a']");
    folded_from(&m, "repeat_1", "['b']");
    node(&m, "MatMul", "node_1", "x repeat", "v", "['', 'matmul']",
         call("matmul", "matmul.default", "%x, %repeat"));
    node(&m, "MatMul", "node_2", "v repeat_1", "y", "['', 'matmul_1']",
         call("matmul_1", "matmul.default", "%matmul, %repeat_1"));
    Graph *g = import(&m, signature, NULL);
    ok(g && is_shaped(param(g, "a"), 2, 1, 4) && !param(g, "b"),
       "a row that was repeated is there once");
}

/* Rows by select, of two types: no one parameter's. */
static void test_dynamo_rows_of_types(void)
{
    const char *signature = "\n# inputs\np_t: PARAMETER target='t'\nx: USER_INPUT\n# outputs\n";
    const double row[4] = {1, 2, 3, 4};
    M m = {0};
    tensor(&m, "select", 11, (int[]){4, 0}, row, sizeof row);
    initializer(&m, "select_1", 4, 0, 5);
    folded_from(&m, "select", "['t']");
    folded_from(&m, "select_1", "['t']");
    node(&m, "Pow", "node_1", "x select", "pow_1", "['', 'pow_1']",
         call("pow_1", "pow.Tensor_Tensor", "%x, %select"));
    node(&m, "Add", "node_2", "pow_1 select_1", "y", "['', 'add']",
         call("add", "add.Tensor", "%pow_1, %select_1"));
    Graph *g = import(&m, signature, NULL);
    ok(g && !param(g, "t") && strstr(said, "will not train"), "rows of two types are none");
}

int main(void)
{
    models_begin();
    test_dynamo_rows_of_types();
    test_dynamo_repeated();
    test_dynamo_told_functions();
    test_dynamo_plain_norm();
    test_dynamo_folds();
    test_dynamo_uses();
    test_dynamo_called_twice();
    test_dynamo_split();
    test_dynamo_unused();
    test_dynamo_sinks();
    test_dynamo_rows();
    test_dynamo_one_number();
    test_dynamo_number();
    test_dynamo_equal_functions();
    test_dynamo_tables();
    test_dynamo_claims();
    test_dynamo_larger();
    return models_end();
}

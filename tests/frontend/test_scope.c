/*
 * test_scope.c - where a module begins (scope.c, meta.c), and what nodes are told by what exporters
 * write beside them: small models in the manner of each exporter, written here.
 */
#include "import_model.h"

/* ---- names alone ---- */

static void test_own(void)
{
    static const struct {
        const char *name, *list, *scope;
        uint32_t call;
    } one[] = {
        {"/model/layers.0/self_attn/q_proj/MatMul", NULL, "model.layers.0.self_attn.q_proj", 0},
        {"/layers.1/mlp/mlp.0/MatMul", NULL, "layers.1.mlp.0", 0},
        {"/features/features.0/features.0.1/Relu", NULL, "features.0.1", 0},
        {"/layer1/layer1.10/conv1/Conv", NULL, "layer1.10.conv1", 0},
        {"/Add", NULL, "", 0},
        {"StatefulPartitionedCall/model/block_1/dense/MatMul", NULL, "model.block_1.dense", 0},
        {"node_MatMul_12", "['', 'blocks.2', 'blocks.2.mlp', 'blocks.2.mlp.fc1', 'linear_8']",
         "blocks.2.mlp.fc1", 0},
        {"node_add", "['', 'add']", "", 0},
        {"node_relu", "['', 'blk@1', 'blk@1.act', 'relu_1']", "blk.act", 1},
        {"node_odd", "['', \"it's\", 'x']", "it's", 0},
    };
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        uint32_t call;
        const char *s = scope_own(arena, one[i].name, NULL, one[i].list, &call);
        ok(s && !strcmp(s, one[i].scope) && call == one[i].call, "%s %s is in '%s'", one[i].name,
           one[i].list ? one[i].list : "", one[i].scope);
    }
    uint32_t call;
    ok(!scope_own(arena, "Constant_28", "onnx::Unsqueeze_55", NULL, &call),
       "Constant_28 has no scope");
    const char *s = scope_own(arena, "", "/a/b/Relu_output_0", NULL, &call);
    ok(s && !strcmp(s, "a.b"), "a node without a name: its value's");
}

static void test_meta(void)
{
    FxNode fx;
    ok(meta_fx(arena,
               "%addmm : [num_users=1] = call_function[target=torch.ops.aten.addmm.default](args = "
               "(%p_b, %view_1, [1, %p_w]), kwargs = {beta: 2, out: %p_o})",
               &fx),
       "an fx node is read");
    ok(!strcmp(fx.name, "addmm") && !strcmp(fx.target, "aten.addmm.default"),
       "its name and its operator");
    ok(fx.n == 4 && !strcmp(fx.arg[0].name, "p_b") && fx.arg[0].position == 0 &&
           !strcmp(fx.arg[2].name, "p_w") && fx.arg[2].position == 2 && fx.arg[3].position == -1,
       "its arguments and where they stand");
    ok(fx.scaled, "a beta is noticed");
    static const char *const pool = "aten.avg_pool2d.default";
    double v = 0;
    ok(meta_number("%p : [num_users=1] = call_function[target=torch.ops.aten.avg_pool2d.default]"
                   "(args = (%x, [3, 3], [2, 2], [1, 1], True, True, 5), kwargs = {})",
                   pool, 6, "divisor_override", &v) &&
           v == 5,
       "a number by its position, behind lists");
    ok(meta_number("%p : [num_users=1] = call_function[target=torch.ops.aten.avg_pool2d.default]"
                   "(args = (%x, [3, 3]), kwargs = {stride: [2, 2], divisor_override: 2.5})",
                   pool, 6, "divisor_override", &v) &&
           v == 2.5,
       "by its keyword");
    ok(!meta_number("%p : [num_users=1] = call_function[target=torch.ops.aten.avg_pool2d.default]"
                    "(args = (%x, [3, 3], [2, 2], [1, 1], True, True, None), kwargs = {})",
                    pool, 6, "divisor_override", &v) &&
           !meta_number("%e : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args "
                        "= (%p_w, %x, 3), kwargs = {})",
                        pool, 2, "alpha", &v) &&
           !meta_number(NULL, pool, 2, "alpha", &v),
       "or none");
    static const char *const junk[] = {"",
                                       "%",
                                       "%x",
                                       "args = (",
                                       "%x target=args = (",
                                       "%x target=a args = ('",
                                       "%a target=b args = (%"};
    for (size_t i = 0; i < sizeof junk / sizeof *junk; i++)
        meta_fx(arena, junk[i], &fx);
    Signature sig;
    ok(meta_signature(arena,
                      "\n# inputs\np_l_w: PARAMETER target='l.w'\nb_m: BUFFER target='m' "
                      "persistent=True\nx: USER_INPUT\n"
                      "\n# outputs\nlinear: USER_OUTPUT\n",
                      &sig) &&
           sig.n == 2,
       "a signature is read");
    ok(sig.n == 2 && sig.entry[0].kind == SIG_PARAMETER && !strcmp(sig.entry[0].target, "l.w") &&
           sig.entry[1].kind == SIG_BUFFER && strmap_get(&sig.by_arg, "b_m") == 1,
       "parameters and buffers");
}

/* ---- models ---- */

/* A folded TorchScript export: renamed transposed weights, an untied copy, a second call. */
static void test_torchscript(void)
{
    M m = {0};
    initializer(&m, "onnx::MatMul_11", 4, 4, 1);
    initializer(&m, "enc.q.bias", 4, 0, 100);
    initializer(&m, "ln.weight", 4, 0, 7);
    node(&m, "MatMul", "/enc/q/MatMul", "x onnx::MatMul_11", "/enc/q/MatMul_output_0", NULL, NULL);
    node(&m, "Add", "/enc/q/Add", "enc.q.bias /enc/q/MatMul_output_0", "/enc/q/Add_output_0", NULL,
         NULL);
    node(&m, "Relu", "/enc/act/Relu", "/enc/q/Add_output_0", "r0", NULL, NULL);
    node(&m, "MatMul", "/enc/q_1/MatMul", "r0 onnx::MatMul_11", "m1", NULL, NULL);
    node(&m, "Relu", "/enc/act_1/Relu", "m1", "r1", NULL, NULL);
    node(&m, "Identity", "Identity_5", "ln.weight", "ln2.weight", NULL, NULL);
    node(&m, "Mul", "/ln/Mul", "r1 ln.weight", "a", NULL, NULL);
    node(&m, "Mul", "/ln2/Mul", "a ln2.weight", "b", NULL, NULL);
    node(&m, "Neg", "stray", "b", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    const Param *w = param(g, "enc.q.weight"), *a = param(g, "ln.weight"),
                *b = param(g, "ln2.weight");
    ok(w && w->transposed && w->trainable && !strcmp(w->initializer, "onnx::MatMul_11"),
       "a folded weight has its name again, from scope and slot");
    ok(w && first_of(w, 1) == 5, "its bytes are PyTorch's: [out, in]");
    ok(g && g->param.n == 4, "one weight for two calls, a bias, two scales");
    ok(a && b && a->value != b->value && first_of(b, 0) == 7,
       "equal parameters behind an Identity are two");
    const Origin *act = origin(g, "/enc/act_1/Relu");
    ok(act && !strcmp(act->scope, "enc.act") && act->call == 1, "act_1 is the second call of act");
    const Origin *stray = origin(g, "stray");
    ok(stray && !strcmp(stray->scope, "ln2"),
       "a node without a scope is where its operand comes from");
}

/* ONNX has no mean of what is scattered to one place; PyTorch's exporter writes a scatter that
 * keeps the last. */
static void test_scatter_mean(void)
{
    const int64_t index[8] = {0};
    Graph *g[2];
    for (int mean = 0; mean < 2; mean++) {
        M m = {0};
        initializer(&m, "into", 2, 4, 1);
        tensor(&m, "index", 7, (int[]){2, 4, 0}, index, sizeof index);
        node(&m, "ScatterElements", "node_1", "into index x", "y", NULL,
             arena_printf(arena,
                          "%%scatter_reduce : [num_users=1] = call_function[target=torch.ops."
                          "aten.scatter_reduce.two](args = (%%p, 0, %%i, %%x, %s), kwargs = "
                          "{})",
                          mean ? "mean" : "amax"));
        g[mean] = import(&m, NULL, NULL);
    }
    ok(g[0] && !g[1], "a mean that the exporter lost is refused");
}

/* What else of an embedding only the metadata says: a gradient that is divided, a table that is
 * changed as it is read. */
static void test_embedding(void)
{
    static const char *const fx[3] = {
        "%e : [num_users=1] = call_function[target=torch.ops.aten.embedding.default](args = "
        "(%p_w, %i, -1, False), kwargs = {})",
        "%e : [num_users=1] = call_function[target=torch.ops.aten.embedding.default](args = "
        "(%p_w, %i, -1, True), kwargs = {})",
        "%e : [num_users=2] = call_function[target=torch.ops.aten.embedding_renorm.default](args "
        "= (%detach, %i, 1.0, 2.0), kwargs = {})"};
    const int64_t index[2] = {0, 1};
    Graph *g[3];
    for (int i = 0; i < 3; i++) {
        M m = {0};
        initializer(&m, "w", 2, 4, 1);
        initializer(&m, "rows", 2, 4, 9);
        tensor(&m, "index", 7, (int[]){2, 0}, index, sizeof index);
        tensor(&m, "at", 7, (int[]){2, 1, 0}, index, sizeof index);
        node(&m, "ScatterND", "node_1", "w at rows", "t", NULL, i == 2 ? fx[2] : NULL);
        node(&m, "Gather", "node_2", "t index", "e", NULL, fx[i == 1]);
        node(&m, "Add", "node_3", "e x", "y", NULL, NULL);
        g[i] = import(&m, NULL, NULL);
    }
    ok(g[0] != NULL, "an embedding");
    ok(!g[1], "scale_grad_by_freq is refused");
    ok(!g[2], "max_norm is refused");
}

/* torch.onnx squeezes a dim that is not 1, which PyTorch leaves, and gives a convolution without a
 * bias zeros of [channels, 2]. */
static void test_exporters_slips(void)
{
    static const float weight[16] = {1};
    const int64_t axis = 2, long_axis = 1, none[8] = {0}, ones[8] = {1};
    Graph *g[4];
    for (int i = 0; i < 4; i++) {
        M m = {0};
        tensor(&m, "last", 7, (int[]){1, 0}, &axis, sizeof axis);
        tensor(&m, "long", 7, (int[]){1, 0}, &long_axis, sizeof long_axis);
        tensor(&m, "w", 1, (int[]){4, 4, 1, 0}, weight, sizeof weight);
        tensor(&m, "none", 7, (int[]){4, 2, 0}, i == 1 ? ones : none, sizeof none);
        node(&m, "Unsqueeze", "node_1", "x last", "a", NULL, NULL);
        node(&m, "CastLike", "node_0", "none x", "b", NULL, NULL);
        node(&m, "Conv", "node_2", "a w b", "c", NULL, NULL);
        node(&m, "Squeeze", "node_3", i == 2 ? "c long" : "c last", "d", NULL, NULL);
        node(&m, "Squeeze", "node_4", "d long", "y", NULL,
             i == 3 ? NULL
                    : "%squeeze : [num_users=1] = call_function[target=torch.ops.aten.squeeze.dim]"
                      "(args = (%d, 1), kwargs = {})");
        g[i] = import(&m, NULL, NULL);
    }
    ok(g[0] && val(g[0], g[0]->output.at[0])->shape.rank == 2, "a dim that PyTorch leaves is left");
    ok(!g[2] && !g[3], "ONNX's own Squeeze of it is refused");
    ok(!g[1], "zeros are no bias, other numbers of that shape are refused");
}

/* Of equal maxima max(dim)[0] gives the gradient to the one whose index it returns, amax to all. */
static void test_max_with_index(void)
{
    enum { INTS = 7 };
    static const char *const target[] = {"max.dim", "amax.default"};
    bool to_first[2] = {0};
    for (int i = 0; i < 2; i++) {
        M m = {0};
        Buf n = {0}, axes = {0};
        node_begin(&n, "ReduceMax", "node_1", "x", "v", NULL, call("max_1", target[i], "%x, 1"));
        put_string(&axes, 1, "axes");
        put_int(&axes, 8, 1);
        put_int(&axes, 20, INTS);
        put_message(&n, 5, &axes);
        put_message(&m.graph, 1, &n);
        node(&m, "Add", "node_2", "x v", "y", NULL, NULL);
        Graph *g = import(&m, NULL, NULL);
        for (NodeId k = 0; g && k < g->node.n; k++)
            to_first[i] |= g->node.at[k].op == OP_ReduceMax && g->node.at[k].attr.to_first;
    }
    ok(to_first[0] && !to_first[1], "max(dim) has the gradient at its index, amax at all equals");
}

/* A table that was detached, as M2M100 has it: no gradient reaches it in any case. */
static void test_detached_table(void)
{
    for (int i = 0; i < 2; i++) {
        M m = {0};
        initializer(&m, "lin.weight", 4, 4, 1);
        node(&m, "MatMul", "node_1", "x lin.weight", "linear", NULL, fx("", "%p_lin_weight"));
        node(&m, "Sin", "node_2", "x", "sin", NULL, call("sin", "sin.default", "%x"));
        node(&m, "Add", "node_3", i ? "linear linear" : "linear sin", "y", NULL,
             call("add", "add.Tensor", "%linear, %detach"));
        Graph *g = import(&m, NULL, NULL);
        ok(i ? !g : g && param(g, "lin.weight"),
           i ? "a value detached beside itself is refused" : "a detached table is not refused");
    }
}

/* A mask has no gradient, detached or not. */
static void test_detached_mask(void)
{
    const char *all = call("all_1", "all.dim", "%detach, -1, True");
    M m = {0};
    initializer(&m, "lin.weight", 4, 4, 1);
    node(&m, "MatMul", "node_1", "x lin.weight", "linear", NULL, fx("", "%p_lin_weight"));
    node(&m, "Greater", "node_2", "linear x", "gt", NULL, call("gt", "gt.Tensor", "%linear, %x"));
    node(&m, "Not", "node_3", "gt", "no", NULL, all);
    node(&m, "Not", "node_4", "no", "all_1", NULL, all);
    node(&m, "Where", "node_5", "all_1 linear x", "y", NULL,
         call("where", "where.self", "%all_1, %linear, %x"));
    ok(import(&m, NULL, NULL) != NULL, "a detached mask is not refused");
}

/* Where the exporter's optimizer has removed a detach(), a reader's fx node still has it. */
static void test_removed_detach(void)
{
    static const char *const stop[] = {NULL, NULL, "linear", "neg", "node_3", "t*"};
    for (int i = 0; i < 6; i++) {
        M m = {0};
        ImportOptions opt = {.training = true};
        if (stop[i])
            vec_push(arena, &opt.stop, stop[i]);
        initializer(&m, "lin.weight", 4, 4, 1);
        node(&m, "MatMul", "node_0", "x lin.weight", "linear", NULL, fx("", "%p_lin_weight"));
        node(&m, "Neg", "node_1", "linear", "neg", NULL, call("neg", "neg.default", "%linear"));
        bool kept = i == 1;
        node(&m, kept ? "Identity" : "Tanh", "node_2", "neg", kept ? "detach" : "tanh", NULL,
             kept ? call("detach", "detach.default", "%neg")
                  : call("tanh", "tanh.default", "%neg"));
        node(&m, "Sub", "node_3", kept ? "neg detach" : "neg tanh", "y", NULL,
             call("sub", "sub.Tensor", "%neg, %detach"));
        Graph *g = import(&m, NULL, &opt);
        uint32_t stops = 0;
        for (NodeId k = 0; g && k < g->node.n; k++)
            stops += g->node.at[k].op == OP_StopGradient;
        bool lost = strstr(said, "removed the result of detach() ('detach')");
        if (kept)
            ok(g && stops == 1, "a detach() that is there stops the gradient");
        else
            ok(lost == (i == 0 || i == 4) && !g == (i == 0),
               "one that was removed, and --stop-gradient %s: %s", stop[i] ? stop[i] : "of nothing",
               i == 0   ? "it is refused"
               : i == 4 ? "its user knows"
                        : "no gradient is left to stop");
    }
}

/* As many numbers as the data has that are positive. */
static void test_identity_of_picked(void)
{
    M m = {0};
    initializer(&m, "zero", 4, 0, 0);
    node(&m, "Greater", "/Greater", "x zero", "g", NULL, NULL);
    node(&m, "NonZero", "/NonZero", "g", "n", NULL, NULL);
    node(&m, "Transpose", "/Transpose", "n", "t", NULL, NULL);
    node(&m, "GatherND", "/GatherND", "x t", "v", NULL, NULL);
    node(&m, "Identity", "/Identity", "v", "i", NULL, NULL);
    node(&m, "ReduceSum", "/ReduceSum", "i", "s", NULL, NULL);
    node(&m, "Add", "/Add", "x s", "y", NULL, NULL);
    ok(import(&m, NULL, NULL) != NULL, "an Identity of what is picked by the data is that");
}

/* No component of a path is empty. */
static void test_dots(void)
{
    M m = {0};
    node(&m, "Relu", "./a", "x", "a", NULL, NULL);
    node(&m, "Abs", "../b", "a", "b", NULL, NULL);
    node(&m, "Neg", "/h..0/./c", "b", "c", NULL, NULL);
    node(&m, "Exp", "/.h/d./d", "c", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(g && !strcmp(origin(g, "./a")->scope, "") && !strcmp(origin(g, "../b")->scope, ""),
       "./a and ../b are in no module");
    ok(g && !strcmp(origin(g, "/h..0/./c")->scope, "h.0") &&
           !strcmp(origin(g, "/.h/d./d")->scope, "h.d"),
       "/h..0/./c is in h.0, /.h/d./d in h.d");
}

/* x[x > 0] = -x[x > 0], whose mask PyTorch's dynamo exporter computes twice; of x > 0 and x > 1 the
 * places are others. */
static void test_mask_computed_twice(void)
{
    const int64_t bound[2] = {0, 1};
    Graph *g[2];
    for (int i = 0; i < 2; i++) {
        M m = {0};
        tensor(&m, "zero", 7, (int[]){1, 0}, bound, sizeof *bound);
        tensor(&m, "other", 7, (int[]){1, 0}, bound + i, sizeof *bound);
        node(&m, "CastLike", "node_1", "zero x", "c", NULL, NULL);
        node(&m, "CastLike", "node_2", "other x", "d", NULL, NULL);
        node(&m, "Greater", "node_3", "x c", "picked", NULL, NULL);
        node(&m, "Greater", "node_4", "x d", "put", NULL, NULL);
        node(&m, "NonZero", "node_5", "picked", "n", NULL, NULL);
        node(&m, "Transpose", "node_6", "n", "from", NULL, NULL);
        node(&m, "GatherND", "node_7", "x from", "v", NULL, NULL);
        node(&m, "Neg", "node_8", "v", "w", NULL, NULL);
        node(&m, "NonZero", "node_9", "put", "o", NULL, NULL);
        node(&m, "Transpose", "node_10", "o", "to", NULL, NULL);
        node(&m, "ScatterND", "node_11", "x to w", "y", NULL, NULL);
        g[i] = import(&m, NULL, NULL);
    }
    ok(g[0] != NULL, "a mask that is computed twice picks the same places");
    ok(!g[1], "another mask does not");
}

/* masked_scatter of a layer's result over all its elements: samples are in its first dim, as in the
 * layer's operand. */
static void test_masked_scatter(void)
{
    const int64_t numbers[3] = {0, -1, 0};
    M m = {0};
    initializer(&m, "w", 4, 4, 1);
    initializer(&m, "none", 4, 0, 0);
    tensor(&m, "zero", 7, (int[]){1, 0}, numbers, sizeof *numbers);
    tensor(&m, "flat", 7, (int[]){1, 0}, numbers + 1, sizeof *numbers);
    node(&m, "MatMul", "node_1", "x w", "h", NULL, NULL);
    node(&m, "Greater", "node_2", "h none", "mask", NULL, NULL);
    node(&m, "NonZero", "node_3", "mask", "n", NULL, NULL);
    node(&m, "Transpose", "node_4", "n", "places", NULL, NULL);
    node(&m, "Shape", "node_5", "places", "s", NULL, NULL);
    node(&m, "Gather", "node_6", "s zero", "count", NULL, NULL);
    node(&m, "Reshape", "node_7", "h flat", "all", NULL, NULL);
    node(&m, "Slice", "node_8", "all zero count zero", "first", NULL, NULL);
    node(&m, "ScatterND", "node_9", "x places first", "y", NULL, NULL);
    ok(import(&m, NULL, NULL) != NULL, "elements of a layer's result are taken in their order");
}

static void test_options(void)
{
    M m = {0};
    initializer(&m, "a.weight", 4, 4, 1);
    initializer(&m, "inv_freq", 4, 0, 1);
    node(&m, "MatMul", "/a/MatMul", "x a.weight", "v", NULL, NULL);
    node(&m, "Mul", "/Mul", "v inv_freq", "y", NULL, NULL);
    ImportOptions opt = {.training = true};
    vec_push(arena, &opt.freeze, "a.*");
    vec_push(arena, &opt.train, "inv_*");
    Graph *g = import(&m, NULL, &opt);
    ok(param(g, "a.weight") && !param(g, "a.weight")->trainable,
       "--freeze keeps a parameter as it is");
    ok(param(g, "inv_freq") && param(g, "inv_freq")->trainable, "--train makes one of a buffer");
}

int main(void)
{
    models_begin();
    test_own();
    test_meta();
    test_torchscript();
    test_scatter_mean();
    test_embedding();
    test_exporters_slips();
    test_max_with_index();
    test_removed_detach();
    test_detached_table();
    test_detached_mask();
    test_identity_of_picked();
    test_mask_computed_twice();
    test_dots();
    test_masked_scatter();
    test_options();
    return models_end();
}

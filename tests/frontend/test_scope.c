/*
 * test_scope.c - where a module begins (scope.c, meta.c), and which initializers are parameters
 * under which names (params/params.c, params/fx.c): small models in the manner of each exporter, written
 * here.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "frontend/params/params.h"
#include "small_onnx.h"
#include "tap.h"

static Arena *arena;
static char file[64];

/* ---- names alone ---- */

static void test_own(void)
{
    static const struct { const char *name, *list, *scope; uint32_t call;
    } one[] = {
        {"/model/layers.0/self_attn/q_proj/MatMul", NULL, "model.layers.0.self_attn.q_proj", 0},
        {"/layers.1/mlp/mlp.0/MatMul", NULL, "layers.1.mlp.0", 0},
        {"/features/features.0/features.0.1/Relu", NULL, "features.0.1", 0},
        {"/layer1/layer1.10/conv1/Conv", NULL, "layer1.10.conv1", 0},
        {"/Add", NULL, "", 0},
        {"/enc/dense/MatMul/MatMulAddFusion", NULL, "enc.dense", 0},
        {"/enc/self/MatMul/MatMulScaleFusion/", NULL, "enc.self", 0},
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

typedef struct { Graph *g; ImportOptions opt; } Load;

static void load(void *arg)
{
    Load *l = arg;
    const char *path = file;
    l->g = import_models(arena, 1, &path, &l->opt);
}

static Graph *import(M *m, const char *signature, const ImportOptions *opt)
{
    Buf b = {0}, e = {0};
    info(m, 11, "x", 2, 4);
    info(m, 12, "y", 2, 4);
    if (signature) {
        put_string(&e, 1, "pkg.torch.export.ExportedProgram.graph_signature");
        put_string(&e, 2, signature);
        put_message(&m->graph, 16, &e);
    }
    put_string(&b, 2, "pytorch");
    put_message(&b, 7, &m->graph);
    put_int(&e, 2, 17);
    put_message(&b, 8, &e);
    FILE *f = fopen(file, "wb");
    if (!f || fwrite(b.at, 1, b.n, f) != b.n || fclose(f))
        perror(file);
    free(b.at);
    *m = (M){0};
    Load l = {.opt = opt ? *opt : (ImportOptions){.training = true}};
    l.opt.limits = limits_default();
    int save = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO);
    int code = diag_run(load, &l);
    dup2(save, STDERR_FILENO);
    close(save);
    close(null);
    return code == 0 ? l.g : NULL;
}

static const Param *param(const Graph *g, const char *name)
{
    for (uint32_t i = 0; g && i < g->param.n; i++)
        if (!strcmp(g->param.at[i].name, name))
            return &g->param.at[i];
    return NULL;
}

static float first_of(const Param *p, int index)
{
    float data[64];
    param_bytes(p, data);
    return data[index];
}

static const Origin *origin(const Graph *g, const char *name)
{
    for (uint32_t i = 0; g && i < g->origin.n; i++)
        if (!strcmp(g->origin.at[i].name, name))
            return &g->origin.at[i];
    return NULL;
}

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

/* Scopes lack modules that are never called: of the model, or of one that another wraps. */
static void test_uncalled(void)
{
    static const char *const before[] = {"model.", "m.model."}, *const scope[] = {"", "/m"};
    for (int i = 0; i < 2; i++) {
        M m = {0};
        const char *bias = arena_printf(arena, "%sh.0.q.bias", before[i]);
        initializer(&m, "onnx::MatMul_11", 4, 4, 1);
        initializer(&m, "onnx::MatMul_12", 4, 4, 20);
        initializer(&m, bias, 4, 0, 100);
        initializer(&m, "m.o.weight", 4, 0, 7);
        node(&m, "MatMul", arena_printf(arena, "%s/h.0/q/MatMul", scope[i]), "x onnx::MatMul_11",
             "a", NULL, NULL);
        node(&m, "Add", arena_printf(arena, "%s/h.0/q/Add", scope[i]),
             arena_printf(arena, "%s a", bias), "b", NULL, NULL);
        node(&m, "MatMul", arena_printf(arena, "%s/h.0/k/MatMul", scope[i]), "b onnx::MatMul_12",
             "c", NULL, NULL);
        node(&m, "Mul", "/m/o/Mul", "c m.o.weight", "y", NULL, NULL);
        Graph *g = import(&m, NULL, NULL);
        ok(g && param(g, arena_printf(arena, "%sh.0.k.weight", before[i])),
           "a folded weight's name has the modules that its scope lacks: %s", before[i]);
    }
}

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

/* ONNX has no mean of what is scattered to one place; PyTorch's exporter writes a scatter that keeps
 * the last. */
static void test_scatter_mean(void)
{
    const int64_t index[8] = {0};
    Graph *g[2];
    for (int mean = 0; mean < 2; mean++) {
        M m = {0};
        initializer(&m, "into", 2, 4, 1);
        tensor(&m, "index", 7, (int[]){2, 4, 0}, index, sizeof index);
        node(&m, "ScatterElements", "node_1", "into index x", "y", NULL,
             arena_printf(arena, "%%scatter_reduce : [num_users=1] = call_function[target=torch.ops."
                                 "aten.scatter_reduce.two](args = (%%p, 0, %%i, %%x, %s), kwargs = "
                                 "{})", mean ? "mean" : "amax"));
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

static bool is_shaped(const Param *p, int rank, int64_t d0, int64_t d1)
{
    return p && p->trainable && p->shape.rank == rank && p->shape.d[0] == d0 &&
           (rank < 2 || p->shape.d[1] == d1);
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

static const char *fx(const char *suffix, const char *args)
{
    return arena_printf(
        arena,
        "%%linear%s : [num_users=1] = call_function[target=torch.ops.aten.linear.default]"
        "(args = (%%x, %s), kwargs = {})",
        suffix, args);
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

static const char *call(const char *name, const char *target, const char *args)
{
    return arena_printf(
        arena,
        "%%%s : [num_users=1] = call_function[target=torch.ops.aten.%s](args = (%s), kwargs = {})",
        name, target, args);
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
    arena = arena_new();
    snprintf(file, sizeof file, "/tmp/test_scope.XXXXXX");
    int fd = mkstemp(file);
    if (fd < 0)
        return 3;
    close(fd);
    test_own();
    test_meta();
    test_torchscript();
    test_uncalled();
    test_outer_bias();
    test_passed_on();
    test_scatter_mean();
    test_embedding();
    test_exporters_slips();
    test_identity_of_picked();
    test_mask_computed_twice();
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
    test_dynamo_merges();
    test_dynamo_tables();
    test_options();
    remove(file);
    arena_free(arena);
    return tap_done();
}

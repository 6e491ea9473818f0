/*
 * test_untold.c - what exporters lose of training, and what is said of it: which Dropouts drop,
 * with and without a training mode, of PyTorch's attention as both exporters leave it; blocks under
 * torch.no_grad() as dynamo traces them; which row of an embedding has no gradient.
 */
#include "import_model.h"

enum { BOOL = 9 };

/* As a Constant. */
static void scalar(M *m, const char *name, float v)
{
    enum { TENSOR = 4 };
    Buf n = {0}, a = {0}, t = {0};
    put_int(&t, 2, 1);
    put_bytes(&t, 9, &v, 4);
    put_string(&a, 1, "value");
    put_message(&a, 5, &t);
    put_int(&a, 20, TENSOR);
    node_begin(&n, "Constant", name, "", name, NULL, NULL);
    put_message(&n, 5, &a);
    put_message(&m->graph, 1, &n);
}

static void flag(M *m, const char *name, unsigned char v)
{
    Buf t = {0};
    put_int(&t, 2, BOOL);
    put_string(&t, 8, name);
    put_bytes(&t, 9, &v, 1);
    put_message(&m->graph, 5, &t);
}

/* Two Dropouts with what is between them; first, mode: their third operands, "" for none. */
static void two(M *m, const char *first, const char *mode)
{
    char in[64];
    initializer(m, "lin.weight", 4, 4, 1);
    scalar(m, "p", 0.25F);
    flag(m, "yes", 1);
    flag(m, "no", 0);
    snprintf(in, sizeof in, "x p %s", first);
    node(m, "Dropout", "first", in, "a", NULL, NULL);
    node(m, "MatMul", "/lin/MatMul", "a lin.weight", "b", NULL, NULL);
    node(m, "Identity", "copied", "yes", "set", NULL, NULL);
    snprintf(in, sizeof in, "b p %s", mode);
    node(m, "Dropout", "second", in, "y", NULL, NULL);
}

static int dropouts(const Graph *g)
{
    int n = 0;
    for (NodeId i = 0; g && i < g->node.n; i++)
        n += g->node.at[i].op == OP_Dropout && g->node.at[i].attr.ratio == 0.25;
    return g ? n : -1;
}

static void test_modes(void)
{
    static const struct {
        const char *first, *mode;
        DropoutMode option;
        bool training;
        int n;
        const char *said;
    } rows[] = {
        {"", "yes", DROPOUT_OF_ATTENTION, true, 2, "mode of attention's dropout: first\n"},
        {"", "set", DROPOUT_OF_ATTENTION, true, 2, "--dropout=as-written turns them off"},
        {"", "yes", DROPOUT_AS_WRITTEN, true, 1, ""},
        {"", "yes", DROPOUT_OF_ATTENTION, false, 0, ""},
        {"", "", DROPOUT_OF_ATTENTION, true, 0,
         "Dropouts will not drop, as the file has no training mode: first, second\n"},
        {"", "no", DROPOUT_OF_ATTENTION, true, 0, "--dropout=train"},
        {"", "", DROPOUT_TRAIN, true, 2, ""},
        {"", "", DROPOUT_AS_WRITTEN, true, 0, ""},
        {"no", "yes", DROPOUT_OF_ATTENTION, true, 1, ""}, /* a part in evaluation mode */
        {"no", "yes", DROPOUT_TRAIN, true, 2, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        M m = {0};
        ImportOptions opt = {.training = rows[i].training, .dropout = rows[i].option};
        two(&m, rows[i].first, rows[i].mode);
        int n = dropouts(import(&m, NULL, &opt));
        ok(n == rows[i].n, "modes '%s' and '%s', option %d: %d drop, not %d", rows[i].first,
           rows[i].mode, (int)rows[i].option, rows[i].n, n);
        ok(*rows[i].said ? strstr(said, rows[i].said) != NULL : !*said, "mode '%s': what is said",
           rows[i].mode);
    }
}

/* dynamo's optimizer removes attention's Dropout; the metadata of the Softmax has the ratio. */
static void test_removed(void)
{
    const char *attention = "scaled_dot_product_attention.default";
    for (int k = 0; k < 3; k++) {
        M m = {0};
        initializer(&m, "lin.weight", 4, 4, 1);
        scalar(&m, "p", 0.25F);
        const char *fx = call("sdpa", attention,
                              k == 2 ? "%q, %k, %v, None, 0.0" : "%q, %k, %v, None, 0.25, True");
        node(&m, "Softmax", "soft", "x", "s", NULL, fx);
        if (k == 1)
            node(&m, "Dropout", "drop", "s p", "d", NULL, fx);
        node(&m, "MatMul", "/lin/MatMul", k == 1 ? "d lin.weight" : "s lin.weight", "y", NULL,
             NULL);
        int n = dropouts(import(&m, NULL, NULL));
        static const char *const what[] = {"removed: it drops", "there: it drops once",
                                           "of no ratio: nothing drops"};
        ok(n == (k < 2), "%s", what[k]);
    }
}

/* A ratio is never a parameter, however it is written. */
static void test_ratio(void)
{
    static const char *const what[] = {"a Constant", "an initializer", "what two of them make"};
    for (int k = 0; k < 3; k++) {
        M m = {0};
        float half = 0.5F, quarter = 0.25F;
        initializer(&m, "lin.weight", 4, 4, 1);
        flag(&m, "yes", 1);
        if (k == 0)
            scalar(&m, "p", quarter);
        if (k == 1)
            tensor(&m, "p", 1, (int[]){0}, &quarter, sizeof quarter);
        if (k == 2) {
            tensor(&m, "half", 1, (int[]){0}, &half, sizeof half);
            node(&m, "Mul", "square", "half half", "p", NULL, NULL);
        }
        node(&m, "MatMul", "/lin/MatMul", "x lin.weight", "b", NULL, NULL);
        node(&m, "Dropout", "drop", "b p yes", "y", NULL, NULL);
        Graph *g = import(&m, NULL, NULL);
        ok(dropouts(g) == 1 && !param(g, "half") && !param(g, "p"), "a ratio: %s", what[k]);
    }
}

/* A node of a block that dynamo has traced as a graph of its own. */
static void block(M *m, const char *op, const char *name, const char *in, const char *out,
                  const char *scopes)
{
    Buf n = {0}, e = {0};
    node_begin(&n, op, name, in, out, scopes, NULL);
    put_string(&e, 1, "pkg.torch.onnx.stack_trace");
    put_string(&e, 2, "File \"<eval_with_key>.69\", line 5, in forward\n    abs = aten.abs(tanh)");
    put_message(&n, 9, &e);
    put_message(&m->graph, 1, &n);
}

static bool stops(const Graph *g)
{
    bool found = false;
    for (NodeId i = 0; g && i < g->node.n; i++)
        found |= g->node.at[i].op == OP_StopGradient;
    return found;
}

/* One may be under autocast, and is said; spectral_norm's is known. */
static void test_blocks(void)
{
    for (int k = 0; k < 4; k++) {
        M m = {0};
        ImportOptions opt = {.training = k != 3};
        if (k == 1)
            vec_push(arena, &opt.stop, "abs");
        initializer(&m, "lin.weight", 4, 4, 1);
        node(&m, "MatMul", "/lin/MatMul", "x lin.weight", "b", NULL, NULL);
        block(&m, "Abs", "abs", "b", "c",
              k == 2 ? "['', 'lin', 'lin.parametrizations.weight.0', 'abs']" : "['', 'abs']");
        node(&m, "Mul", "mul", "b c", "y", NULL, NULL);
        Graph *g = import(&m, NULL, &opt);
        bool warns = strstr(said, "nodes in a block of torch.no_grad() or autocast") &&
                     strstr(said, "so the gradient passes: abs\n");
        static const char *const what[] = {"a block: said", "a block: stopped by name",
                                           "spectral_norm's: stopped", "a block: of no training"};
        ok(g && warns == (k == 0) && stops(g) == (k == 1 || k == 2), "%s", what[k]);
        ok((strstr(said, "(first 'c') starts from the file's vectors in every microbatch") !=
            NULL) == (k == 2),
           "%s: its vectors are the file's", what[k]);
    }
}

static void note(M *m, const char *key, const char *value)
{
    Buf e = {0};
    put_string(&e, 1, key);
    put_string(&e, 2, value);
    put_message(&m->graph, 16, &e);
}

/* What ppsplit-export notes: frozen parameters, and that blocks under no_grad() end in a detach().
 */
static void test_notes(void)
{
    for (int k = 0; k < 3; k++) {
        M m = {0};
        ImportOptions opt = {.training = true};
        if (k == 2)
            vec_push(arena, &opt.train, "lin.*");
        initializer(&m, "lin.weight", 4, 4, 1);
        node(&m, "MatMul", "/lin/MatMul", "x lin.weight", "b", NULL, NULL);
        block(&m, "Abs", "abs", "b", "y", "['', 'abs']");
        if (k > 0) {
            note(&m, "ppsplit.frozen", "['head.weight', 'lin.weight']");
            note(&m, "ppsplit.no_grad", "detached");
        }
        Graph *g = import(&m, NULL, &opt);
        const Param *w = param(g, "lin.weight");
        static const char *const what[] = {"no notes", "noted as frozen", "frozen, and --train"};
        ok(w && w->trainable == (k != 1), "%s: whether it trains", what[k]);
        ok((strstr(said, "in a block of torch.no_grad()") != NULL) == (k == 0),
           "%s: whether a block is said", what[k]);
    }
}

/* Of a table's rows one alone is zeros: padding_idx, which TorchScript does not write. */
static void test_padding(void)
{
    enum { NEITHER, FIXED, THAWED };
    static const struct {
        float row[3];
        const char *producer, *fx;
        int64_t padding;
        const char *what;
        int other;
    } rows[] = {
        {{1, 0, 2}, "pytorch", NULL, 1, "one row of zeros", NEITHER},
        {{0, 0, 2}, "pytorch", NULL, -1, "two rows of zeros", NEITHER},
        {{1, 3, 2}, "pytorch", NULL, -1, "none", NEITHER},
        {{1, 0, 2}, "tf2onnx", NULL, -1, "of another exporter", NEITHER},
        {{1, 0, 2}, "pytorch", NULL, -2, "rows that no data choose (a slice)", FIXED},
        {{1, 0, 2}, "pytorch", NULL, -1, "a table that --train names", THAWED},
        {{1, 0, 2}, "pytorch", "%e.weight, %x", -1, "of dynamo, which tells none", NEITHER},
        {{1, 0, 2}, "pytorch", "%e.weight, %x, 2", 2, "of dynamo, which tells another", NEITHER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        M m = {0};
        float table[3][4];
        for (int k = 0; k < 12; k++)
            table[k / 4][k % 4] = rows[i].row[k / 4] * (float)(k + 1);
        tensor(&m, "e.weight", 1, (int[]){3, 4, 0}, table, sizeof table);
        tensor(&m, "two", 7, (int[]){2, 0}, (const int64_t[]){1, 2}, 2 * sizeof(int64_t));
        node(&m, "ArgMax", "most", "x", "i", NULL, NULL);
        node(&m, "Gather", "/e/Gather", rows[i].other == FIXED ? "e.weight two" : "e.weight i", "r",
             NULL, rows[i].fx ? call("embedding", "embedding.default", rows[i].fx) : NULL);
        node(&m, "ReduceSum", "sum", "r", "y", NULL, NULL);
        producer = rows[i].producer;
        ImportOptions opt = {.training = true};
        if (rows[i].other == THAWED)
            vec_push(arena, &opt.train, "e.*");
        Graph *g = import(&m, NULL, &opt);
        producer = "pytorch";
        int64_t padding = -2;
        for (NodeId n = 0; g && n < g->node.n; n++)
            if (g->node.at[n].op == OP_Gather)
                padding = g->node.at[n].attr.padding_row - 1;
        ok(padding == rows[i].padding, "padding_idx: %s", rows[i].what);
        ok((strstr(said, "from there: e.weight (row 1)") != NULL) == (i == 0),
           "padding_idx: %s: what is said", rows[i].what);
    }
}

int main(void)
{
    models_begin();
    test_padding();
    test_blocks();
    test_notes();
    test_modes();
    test_removed();
    test_ratio();
    return models_end();
}

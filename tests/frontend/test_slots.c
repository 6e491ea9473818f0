/*
 * test_slots.c - the slot in which an array stands says whether it trains (frontend/params/slot.c),
 * whatever holds it and whatever it is called: small models of other tools than PyTorch, and of
 * PyTorch where names count too; and matrices that are one.
 */
#include <math.h>

#include "import_model.h"

/* ---- models ---- */

static unsigned seed;

/* Numbers as if drawn: none twice, in no order. */
static float drawn(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
}

static void draw(float *to, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = drawn();
}

static void floats(M *m, const char *name, int rows, int cols)
{
    float data[64];
    draw(data, rows * (cols ? cols : 1));
    tensor(m, name, 1, (int[]){rows, cols, 0}, data, (size_t)(rows * (cols ? cols : 1)) * 4);
}

/* A Constant, whose numbers are drawn as well. */
static void constant(M *m, const char *name, int rows, int cols)
{
    enum { TENSOR = 4 };
    Buf n = {0}, a = {0}, t = {0};
    float data[64];
    int all = rows * (cols ? cols : 1);
    draw(data, all);
    put_string(&n, 2, name);
    put_string(&n, 4, "Constant");
    put_string(&a, 1, "value");
    put_int(&t, 1, rows);
    if (cols)
        put_int(&t, 1, cols);
    put_int(&t, 2, 1);
    put_bytes(&t, 9, data, (size_t)all * 4);
    put_message(&a, 5, &t);
    put_int(&a, 20, TENSOR);
    put_message(&n, 5, &a);
    put_message(&m->graph, 1, &n);
}

static void text_attribute(Buf *n, const char *name, const char *text)
{
    enum { STRING = 3 };
    Buf a = {0};
    put_string(&a, 1, name);
    put_string(&a, 4, text);
    put_int(&a, 20, STRING);
    put_message(n, 5, &a);
}

static Graph *of(const char *tool, M *m)
{
    producer = tool;
    Graph *g = import(m, NULL, NULL);
    producer = "pytorch";
    return g;
}

static bool trains(const Graph *g, const char *name)
{
    return param(g, name) && param(g, name)->trainable;
}

/* What the list says of an array; "" when it is not there. */
static const char *why(const Graph *g, const char *name)
{
    for (uint32_t i = 0; g && i < g->files.array.n; i++)
        if (!strcmp(g->files.array.at[i].name, name))
            return g->files.array.at[i].why;
    return "";
}

/* ---- what holds an array, and its name, say nothing ---- */

static void test_holders(void)
{
    static const char *const tool[] = {"PaddlePaddle", "pytorch"};
    for (int k = 0; k < 2; k++) {
        M m = {0};
        constant(&m, "linear_0.w_0", 4, 4);
        floats(&m, "497", 4, 4);
        floats(&m, "498", 4, 0);
        node(&m, "MatMul", "", "x linear_0.w_0", "a", NULL, NULL);
        node(&m, "MatMul", "", "a 497", "b", NULL, NULL);
        node(&m, "Add", "", "b 498", "y", NULL, NULL);
        Graph *g = of(tool[k], &m);
        ok(trains(g, "linear_0.w_0") && g->files.array.n == 3, "%s: a weight in a Constant trains", tool[k]);
        ok(trains(g, "497") && trains(g, "498"), "%s: so do numbers for names", tool[k]);
        ok(!strcmp(why(g, "498"), "along features, by Add"), "%s: by its slot", tool[k]);
    }
    M m = {0};
    Buf n = {0};
    floats(&m, "const_0", 4, 4);
    node_begin(&n, "Einsum", "", "x const_0", "a", NULL, NULL);
    text_attribute(&n, "equation", "bd,df->bf");
    put_message(&m.graph, 1, &n);
    node(&m, "Transpose", "", "W", "Wt", NULL, NULL);
    floats(&m, "W", 4, 4);
    node(&m, "MatMul", "", "a Wt", "y", NULL, NULL);
    Graph *g = of("jax2onnx", &m);
    ok(trains(g, "const_0") && trains(g, "W"), "Einsum's weights train, and a weight behind a view");
}

static void test_left_factor(void)
{
    M m = {0};
    floats(&m, "mix", 2, 2);
    tensor(&m, "eye", 1, (int[]){2, 2, 0}, (float[]){1, 0, 0, 1}, 16);
    node(&m, "MatMul", "", "mix x", "a", NULL, NULL);
    node(&m, "MatMul", "", "eye a", "y", NULL, NULL);
    Graph *g = of("other", &m);
    ok(trains(g, "mix") && !param(g, "eye"), "a left factor is a weight, a unit matrix is none");
}

/* ---- what must not train ---- */

static void test_statistics(void)
{
    M m = {0};
    floats(&m, "offset", 4, 0);
    floats(&m, "range", 4, 0);
    floats(&m, "w", 4, 4);
    floats(&m, "shift", 4, 0);
    floats(&m, "gain", 4, 0);
    node(&m, "Sub", "", "x offset", "a", NULL, NULL);
    node(&m, "Div", "", "a range", "b", NULL, NULL);
    node(&m, "MatMul", "", "b w", "c", NULL, NULL);
    node(&m, "Sub", "", "c shift", "d", NULL, NULL);
    node(&m, "Div", "", "d gain", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(g && !param(g, "offset") && !param(g, "range"), "what data are normalised with does not train");
    ok(strstr(said, "offset, range") != NULL, "and is named");
    ok(trains(g, "shift") && trains(g, "gain"), "the same behind a weight does");
    ok(!strcmp(why(g, "range"), "a statistic of the data"), "the list says why");
    const char *pattern = "range";
    ImportOptions opt = {.training = true};
    opt.train.at = &pattern;
    opt.train.n = 1;
    M again = {0};
    floats(&again, "range", 4, 0);
    node(&again, "Div", "", "x range", "y", NULL, NULL);
    g = import(&again, NULL, &opt);
    ok(trains(g, "range"), "--train makes a parameter of it");
}

/* A table that a constant looks up is one for all its numbers, a row that masks too. */
static void test_table(void)
{
    float rows[8];
    draw(rows, 8);
    rows[0] = -INFINITY;
    M m = {0};
    tensor(&m, "bias.weight", 1, (int[]){2, 4, 0}, rows, 32);
    tensor(&m, "row", 7, (int[]){1, 0}, (int64_t[]){1}, 8);
    floats(&m, "w", 4, 4);
    node(&m, "MatMul", "", "x w", "a", NULL, NULL);
    node(&m, "Gather", "", "bias.weight row", "r", NULL, NULL);
    node(&m, "Add", "", "a r", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(trains(g, "bias.weight"), "a table that a constant looks up trains");
}

static void test_settings(void)
{
    M m = {0};
    tensor(&m, "p", 1, (int[]){0}, (float[]){.5f}, 4);
    floats(&m, "low", 1, 0);
    floats(&m, "w", 4, 4);
    node(&m, "MatMul", "", "x w", "a", NULL, NULL);
    node(&m, "Dropout", "", "a p", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(trains(g, "w") && !param(g, "p"), "a ratio is no parameter");
    ok(!strcmp(why(g, "p"), "a setting, bound or size: operand 1 of Dropout"), "the list says of what");
    ok(!strcmp(why(g, "low"), "no node reads it"), "and which array nobody reads");
}

/* The larger of x and one number is a clamp; of several numbers, one for each feature, it may be
 * learned. */
static void test_bounds(void)
{
    M m = {0};
    floats(&m, "w", 4, 4);
    tensor(&m, "zero", 1, (int[]){0}, (float[]){0}, 4);
    tensor(&m, "act.alpha", 1, (int[]){4, 0}, (float[]){.1f, .7f, .3f, .2f}, 16);
    node(&m, "MatMul", "", "x w", "a", NULL, NULL);
    node(&m, "Max", "", "a zero", "b", NULL, NULL);
    node(&m, "Min", "", "b act.alpha", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(!param(g, "zero") && !strcmp(why(g, "zero"), "a setting, bound or size: operand 1 of Max"),
       "a bound is no parameter");
    ok(trains(g, "act.alpha"), "bounds of features may be");
}

/* PyTorch's exporter writes parameters as initializers: a tensor of the module that is none, and no
 * buffer either, is a Constant, as a relative attention's table of positions is. */
static void test_literal(void)
{
    M m = {0};
    floats(&m, "l.weight", 4, 4);
    constant(&m, "/Constant_output_0", 4, 4);
    node(&m, "MatMul", "", "/Constant_output_0 l.weight", "a", NULL, NULL);
    node(&m, "MatMul", "", "x a", "b", NULL, NULL);
    constant(&m, "/Constant_1_output_0", 4, 4);
    node(&m, "MatMul", "", "b /Constant_1_output_0", "y", NULL, NULL);
    Graph *g = of("pytorch", &m);
    ok(trains(g, "l.weight") && g->param.n == 1 &&
           !strcmp(why(g, "/Constant_output_0"), "a number of the program"),
       "a Constant beside PyTorch's parameters is none");
}

/* Columns of a grid: few numbers, or numbers in order. */
static void test_numbers(void)
{
    float grid[64], steps[64], sine[64];
    for (int i = 0; i < 64; i++) {
        grid[i] = (float)(i % 4);
        steps[i] = (float)i / 8;
        sine[i] = drawn();
    }
    M m = {0};
    floats(&m, "w", 4, 64 / 4);
    tensor(&m, "grid", 1, (int[]){16, 0}, grid, 64);
    tensor(&m, "steps", 1, (int[]){16, 0}, steps, 64);
    tensor(&m, "bias", 1, (int[]){16, 0}, sine, 64);
    floats(&m, "v", 16, 4);
    node(&m, "MatMul", "", "x w", "a", NULL, NULL);
    node(&m, "Mul", "", "a grid", "b", NULL, NULL);
    node(&m, "Add", "", "b steps", "c", NULL, NULL);
    node(&m, "Add", "", "c bias", "d", NULL, NULL);
    node(&m, "MatMul", "", "d v", "y", NULL, NULL);
    Graph *g = of("other", &m);
    ok(g && !param(g, "grid") && !param(g, "steps") && trains(g, "bias"),
       "a grid and numbers in order are no parameters, others are");
    ok(strstr(said, "constants do not train: grid, steps") != NULL, "and are named");
}

/* Equal arrays were merged: a fresh norm's scale and variance, its bias and mean. */
static void test_merged_norm(void)
{
    M m = {0};
    float ones[4] = {1, 1, 1, 1}, zeros[4] = {0};
    floats(&m, "w", 4, 4);
    tensor(&m, "ones", 1, (int[]){4, 0}, ones, sizeof ones);
    tensor(&m, "zeros", 1, (int[]){4, 0}, zeros, sizeof zeros);
    node(&m, "MatMul", "", "x w", "a", NULL, NULL);
    node(&m, "BatchNormalization", "", "a ones zeros zeros ones", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    const Ids *users = graph_users(g, g->arena);
    ok(trains(g, "ones") && trains(g, "zeros") && users[param(g, "ones")->value].n == 1 &&
           users[param(g, "zeros")->value].n == 1,
       "a norm's scale and bias are not its statistics, if they are one array");
}

static void training_norm(M *m, const char *in, const char *out)
{
    enum { INT = 2 };
    Buf n = {0}, a = {0};
    node_begin(&n, "BatchNormalization", "", in, out, NULL, NULL);
    put_string(&a, 1, "training_mode");
    put_int(&a, 3, 1);
    put_int(&a, 20, INT);
    put_message(&n, 5, &a);
    put_message(&m->graph, 1, &n);
}

/* A run updates the statistics: each norm has its own, though they were merged, and two calls of
 * one norm have one. */
static void test_merged_statistics(void)
{
    M m = {0};
    float ones[4] = {1, 1, 1, 1}, zeros[4] = {0};
    floats(&m, "w", 4, 4);
    floats(&m, "s", 4, 0);
    floats(&m, "h", 4, 0);
    tensor(&m, "ones", 1, (int[]){4, 0}, ones, sizeof ones);
    tensor(&m, "zeros", 1, (int[]){4, 0}, zeros, sizeof zeros);
    node(&m, "MatMul", "", "x w", "a", NULL, NULL);
    training_norm(&m, "a ones zeros zeros ones", "b m1 v1");
    training_norm(&m, "b ones zeros zeros ones", "c m2 v2");
    training_norm(&m, "c s h zeros ones", "d m3 v3");
    training_norm(&m, "d s h zeros ones", "y m4 v4");
    Graph *g = import(&m, NULL, NULL);
    int stats = 0;
    for (uint32_t i = 0; g && i < g->param.n; i++)
        stats += g->param.at[i].stat;
    ok(stats == 6 && param(g, "b.running_mean") && param(g, "c.running_var") &&
           param(g, "d.running_mean") && trains(g, "ones") && trains(g, "zeros"),
       "merged statistics are one array for each norm, and one for two calls of it");
}

static void test_frequencies(void)
{
    M m = {0};
    floats(&m, "turn", 4, 0);
    floats(&m, "at", 2, 1);
    floats(&m, "angle", 4, 0);
    floats(&m, "w", 4, 4);
    node(&m, "MatMul", "", "x w", "a", NULL, NULL);
    node(&m, "Mul", "", "at turn", "f", NULL, NULL);
    node(&m, "Cos", "", "f", "c", NULL, NULL);
    node(&m, "Mul", "", "a c", "b", NULL, NULL);
    node(&m, "Sin", "", "angle", "s", NULL, NULL);
    node(&m, "Mul", "", "b s", "y", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(g && !param(g, "turn") && trains(g, "angle"),
       "frequencies of a table of positions do not train, an angle of its own does");
}

/* A label is read by no weight; what meets it weighs the loss. */
static void test_labels(void)
{
    M m = {0};
    Buf v = {0}, type = {0}, number = {0}, shape = {0};
    info(&m, 11, "label", 2, 4);
    put_int(&number, 1, 1);
    put_message(&number, 2, &shape);
    put_message(&type, 1, &number);
    put_string(&v, 1, "loss");
    put_message(&v, 2, &type);
    put_message(&m.graph, 12, &v);
    floats(&m, "w", 4, 4);
    floats(&m, "bias", 4, 0);
    floats(&m, "balance", 4, 0);
    floats(&m, "ends", 4, 0);
    floats(&m, "least", 1, 0);
    node(&m, "MatMul", "", "x w", "a", NULL, NULL);
    node(&m, "Add", "", "a bias", "y", NULL, NULL);
    node(&m, "Greater", "", "label least", "mask", NULL, NULL);
    node(&m, "Where", "", "mask y a", "chosen", NULL, NULL);
    node(&m, "Add", "", "chosen ends", "z", NULL, NULL);
    node(&m, "Sub", "", "z label", "d", NULL, NULL);
    node(&m, "Mul", "", "d d", "q", NULL, NULL);
    node(&m, "Mul", "", "q balance", "e", NULL, NULL);
    node(&m, "ReduceMean", "", "e", "r", NULL, NULL);
    node(&m, "Squeeze", "", "r", "loss", NULL, NULL);
    Graph *g = import(&m, NULL, NULL);
    ok(trains(g, "bias") && !param(g, "balance") && !strcmp(why(g, "balance"), "it weighs the loss"),
       "what weighs the columns of a loss does not train");
    ok(trains(g, "ends"), "what is added where a label has chosen does");
}

/* ---- matrices that are one ---- */

static const float fresh[16] = {.3f, -.1f, .7f, .2f, -.6f, .4f, .9f, -.8f,
                                .5f, .1f, -.3f, .8f, -.2f, .6f, -.9f, -.4f};

static void turned(float *to, const float *from)
{
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++)
            to[c * 4 + r] = from[r * 4 + c];
}

static Graph *two_products(const char *tool, const float *a, const float *b, const float *bias)
{
    M m = {0};
    tensor(&m, "onnx::MatMul_1", 1, (int[]){4, 4, 0}, a, 64);
    tensor(&m, b == a ? "unread" : "onnx::MatMul_2", 1, (int[]){4, 4, 0}, b, 64);
    tensor(&m, "l.0.bias", 1, (int[]){4, 0}, bias, 16);
    tensor(&m, "l.1.bias", 1, (int[]){4, 0}, bias + (bias == fresh ? 0 : 4), 16);
    tensor(&m, "l.0.at", 1, (int[]){4, 0}, fresh, 16);
    tensor(&m, "l.1.at", 1, (int[]){4, 0}, fresh + (bias[0] == 0 ? 0 : 4), 16);
    if (b == a)
        node(&m, "Identity", "Identity_0", "onnx::MatMul_1", "onnx::MatMul_2", NULL, NULL);
    node(&m, "MatMul", "/l.0/MatMul", "x onnx::MatMul_1", "a", NULL, NULL);
    node(&m, "Add", "/l.0/Add", "a l.0.bias", "b", NULL, NULL);
    node(&m, "MatMul", "/l.1/MatMul", "b onnx::MatMul_2", "c", NULL, NULL);
    node(&m, "Add", "/l.1/Add", "c l.1.bias", "y", NULL, NULL);
    return of(tool, &m);
}

static void test_tied(void)
{
    float other[16], ones[16], biases[16], zeros[16] = {0};
    turned(other, fresh);
    draw(biases, 16);
    for (int i = 0; i < 16; i++)
        ones[i] = 1;
    Graph *g = two_products("pytorch", fresh, fresh, biases);
    ok(g && g->param.n == 3 && trains(g, "l.0.weight"), "an Identity of a folded weight is that weight");
    g = two_products("pytorch", fresh, other, biases);
    ok(g && g->param.n == 3, "so is what is equal once transposed");
    g = two_products("other", fresh, other, biases);
    ok(g && g->param.n == 3, "of any tool");
    g = two_products("pytorch", ones, ones, biases);
    ok(g && g->param.n == 4, "numbers that are all the same are equal by chance");
    g = two_products("pytorch", fresh, fresh, fresh);
    ok(g && g->param.n == 4, "modules that are copies, biases and all, are two");
    g = two_products("pytorch", fresh, fresh, zeros);
    ok(g && g->param.n == 4, "so are those of zero biases beside other arrays that are equal");
}

int main(void)
{
    models_begin();
    test_holders();
    test_left_factor();
    test_statistics();
    test_table();
    test_settings();
    test_bounds();
    test_literal();
    test_numbers();
    test_merged_norm();
    test_merged_statistics();
    test_frequencies();
    test_labels();
    test_tied();
    return models_end();
}

/*
 * test_rows.c - what a file calls the dimensions of its inputs: their sizes by --bind, values of
 * inputs, and which of them holds the rows; errors inside branches.  Small models, written here.
 */
#include <math.h>

#include "import_model.h"
#include "ir/facts/facts.h"
#include "oracle/oracle.h"

enum { INPUT = 11, OUTPUT = 12, FLOAT = 1, UINT8 = 2, INT32 = 6, INT64 = 7, BOOL = 9 };

/* dims: "batch,3,?,", each a number or a name; NULL: a scalar */
static void value(M *m, int field, const char *name, int type, const char *dims)
{
    Buf v = {0}, t = {0}, tensor = {0}, shape = {0};
    put_message(&shape, 99, &(Buf){0}); /* unknown: a shape without dimensions is one, too */
    for (const char *p = dims; p && *p;) {
        Buf d = {0};
        size_t n = strcspn(p, ",");
        char text[64], *end;
        snprintf(text, sizeof text, "%.*s", (int)n, p);
        for (char *c = strchr(text, ';'); c; c = strchr(c, ';')) /* ';' is a comma in a name */
            *c = ',';
        long size = strtol(text, &end, 10);
        if (end != text && !*end && size >= 0)
            put_int(&d, 1, size);
        else
            put_string(&d, 2, text);
        put_message(&shape, 1, &d);
        p += n + (p[n] == ',');
    }
    put_int(&tensor, 1, type);
    put_message(&tensor, 2, &shape);
    put_message(&t, 1, &tensor);
    put_string(&v, 1, name);
    put_message(&v, 2, &t);
    put_message(&m->graph, field, &v);
}

static void input(M *m, const char *name, const char *dims) { value(m, INPUT, name, FLOAT, dims); }

/* Options, separated by spaces; those of --chunk begin with '@'. */
static Graph *import_with(M *m, const char *options)
{
    ImportOptions opt = {0};
    char *copy = arena_strdup(arena, options), *save = NULL;
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
        if (*p == '@')
            vec_push(arena, &opt.chunk, p + 1);
        else
            vec_push(arena, &opt.bind, p);
    return import_whole(m, NULL, &opt);
}

/* Where the rows of the inputs are, and those of the first output: "0 1 - : 1". */
static const char *rows(Graph *g)
{
    const char *text = "";
    BatchNotes notes = {.target = NONE, .loss = NONE};
    if (!g)
        return said;
    batch_analyse(g, 0, NULL, &notes);
    for (uint32_t i = 0; i <= g->input.n; i++) {
        const Value *v = val(g, i < g->input.n ? g->input.at[i] : g->output.at[0]);
        text = arena_printf(arena, "%s%s%s", text, i == g->input.n ? " : " : i ? " " : "",
                            v->batch < 0 ? "-" : arena_printf(arena, "%d", v->batch));
    }
    return text;
}

static void is(Graph *g, int64_t size, const char *want, const char *what)
{
    const char *got = rows(g);
    ok(g && g->batch == size && !strcmp(got, want), "%s: rows %lld, %s", what,
       g ? (long long)g->batch : 0LL, got);
}

/* y = x + h (+ z) */
static M sum(const char *x, const char *h, const char *z, const char *y)
{
    M m = {0};
    input(&m, "x", x);
    input(&m, "h", h);
    if (z)
        input(&m, "z", z);
    node(&m, "Add", "add", "x h", z ? "a" : "y", NULL, NULL);
    if (z)
        node(&m, "Add", "more", "a z", "y", NULL, NULL);
    value(&m, OUTPUT, "y", FLOAT, y);
    return m;
}

static void test_names(void)
{
    M m = sum("batch,3", "2,batch,3", "3", "2,batch,3");
    is(import_with(&m, "batch=2"), 2, "0 1 - : 1", "a name is the batch wherever it stands");
    m = sum("batch,3", "2,batch,3", "3", "2,batch,3");
    is(import_with(&m, "batch=3"), 3, "0 1 - : 1", "and a size that equals it is not");
    m = sum("s,b,3", "1,b,3", NULL, "s,b,3");
    node(&m, "CumSum", "n", "y axis", "unused", NULL, NULL);
    is(import_with(&m, "s=4 b=2"), 4, "0 - : 0", "what most begin with, where all is computed alike");
    m = sum("1,seq,3", "1,seq,1", NULL, "1,seq,3");
    is(import_with(&m, "seq=4"), 1, "0 0 : 0", "a size in front of each name");
    m = sum("a,3", "1,b,3", NULL, "?,?,?");
    is(import_with(&m, "a=2 b=2"), 2, "0 1 : 1", "another name, where it meets the rows");
    m = sum("2,3", "1,2,3", NULL, "1,2,3");
    is(import_with(&m, ""), 2, "0 1 : 1", "no names: the size, where it meets the rows");
    m = sum("2,3", "1,2,3", NULL, "1,2,3");
    is(import_with(&m, "@h=replicate"), 2, "0 - : -", "--chunk replicate stands");
    m = sum("4*batch,3", "batch,1,3", NULL, "?,?,?");
    is(import_with(&m, "batch=2"), 2, "0 0 : -", "a multiple of the batch has k of it a row");
    m = sum("s,b,3", "s,b,3", NULL, "s,b,3");
    is(import_with(&m, "s=4 b=2 @h=1"), 2, "1 1 : 1", "--chunk decides for its name");
    m = sum("batch,3", "1,batch,3", NULL, "1,batch,3");
    is(import_with(&m, "batch=1"), 1, "0 1 : 1", "names tell of one row as well");
}

/* Along the first dimension it looks from one place at the others. */
static void test_computed(void)
{
    M m = {0};
    input(&m, "x", "s,b,3");
    Buf n = {0}, a = {0};
    node_begin(&n, "Softmax", "soft", "x", "y", NULL, NULL);
    put_string(&a, 1, "axis");
    put_int(&a, 3, 0);
    put_int(&a, 20, 2);
    put_message(&n, 5, &a);
    put_message(&m.graph, 1, &n);
    value(&m, OUTPUT, "y", FLOAT, "s,b,3");
    is(import_with(&m, "s=4 b=2"), 2, "1 : 1", "a sequence is no batch");
}

static void test_refusals(void)
{
    M m = sum("batch,3", "2,3", NULL, "batch,3");
    Graph *g = import_with(&m, "batch=2");
    BatchNotes notes = {.target = NONE, .loss = NONE};
    ok(!strcmp(rows(g), "0 - : -"), "a size is not the batch beside a name: %s", rows(g));
    batch_analyse(g, 0, NULL, &notes);
    ok(notes.output.at[0].why && strstr(notes.output.at[0].why, "--chunk h=0"),
       "and the remedy is named: %s", notes.output.at[0].why);
}

static void test_anonymous(void)
{
    M m = sum("?,3,-1,None", "1", NULL, "?,?,?,?");
    ok(!import_with(&m, "") && strstr(said, "'x.0', 'x.2', 'x.3'"), "each is its own: %s", said);
    m = sum("?,3,-1,None", "1", NULL, "?,?,?,?");
    ok(!import_with(&m, "?=2") && strstr(said, "'?' is not a name") && strstr(said, "--bind x.2=N"),
       "and is said to be: %s", said);
    m = sum("?,3,-1,None", "1", NULL, "?,?,?,?");
    is(import_with(&m, "x.0=2 x.2=4 x.3=5"), 2, "0 - : 0", "bound as INPUT.DIM");
    m = sum("unk__1,3", "unk__2,3", NULL, "?,?");
    is(import_with(&m, "unk__1=2 unk__2=2"), 2, "0 0 : 0", "tf2onnx's are names");
}

/* Sizes that follow from others, as exporters write them. */
static void test_formulas(void)
{
    static const struct { const char *text; int64_t is; } good[] = {
        {"past + seq", 8},          {"past+seq", 8},        {"seq - past", 2},
        {"2*past", 6},              {"past*seq", 15},       {"seq//2", 2},
        {"seq/2", 2},               {"(past + 1)*2 - 1", 7}, {"-past + 2*seq", 7},
        {"Max(past; seq)", 5},      {"Min(past; seq - 3)", 2}, {"floor(seq/2) + 1", 3},
        {"(seq - 1)//past + 1", 2}, {"seq % past", 2},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[64];
        snprintf(text, sizeof text, "n,%s", good[i].text);
        M m = sum("n,1", "past,seq,1,1", text, "?,?,?,?");
        Graph *g = import_with(&m, "n=1 past=3 seq=5");
        int64_t got = g && g->input.n == 3 ? val(g, g->input.at[2])->shape.d[1] : -1;
        ok(got == good[i].is, "'%s' is %lld: %s", good[i].text, (long long)got, g ? "" : said);
    }
    M m = sum("n,1", "past,seq,1,1", "n,past + seq", "?,?,?,?");
    ok(!import_with(&m, "n=1 past=3") && strstr(said, "dimensions without a value: 'seq'"),
       "a symbol of a sum is asked for: %s", said);
    m = sum("n,1", "past,seq,1,1", "n,past - seq", "?,?,?,?");
    ok(!import_with(&m, "n=1 past=3 seq=5") && strstr(said, "dimension 'past - seq' is -2"),
       "less than 1: %s", said);
    m = sum("n,1", "n,1", "n,seq-len", "?,?,?,?");
    ok(!import_with(&m, "n=1") && strstr(said, "'seq-len'"), "a name with a dash: %s", said);
    m = sum("n,1", "n,1", "n,seq-len", "?,?,?,?");
    Graph *g = import_with(&m, "n=1 seq-len=4");
    ok(g && val(g, g->input.at[2])->shape.d[1] == 4, "which takes a value");
    m = sum("n,1", "seq,1,1", "n,seq^2", "?,?,?,?");
    ok(!import_with(&m, "n=1 seq=4") && strstr(said, "'seq^2'"), "not understood, a name: %s", said);
}

/* ---- values ---- */

static Graph *scaled(int type, const char *dims, const char *options)
{
    enum { INT = 2 };
    M m = {0};
    Buf n = {0}, a = {0};
    input(&m, "x", "n,3");
    value(&m, INPUT, "by", type, dims);
    node_begin(&n, "Cast", "cast", "by", "f", NULL, NULL);
    put_string(&a, 1, "to");
    put_int(&a, 3, FLOAT);
    put_int(&a, 20, INT);
    put_message(&n, 5, &a);
    put_message(&m.graph, 1, &n);
    node(&m, "Mul", "mul", "x f", "y", NULL, NULL);
    value(&m, OUTPUT, "y", FLOAT, "n,3");
    return import_with(&m, options);
}

static void test_values(void)
{
    static const struct { int type; const char *option; double is; } good[] = {
        {INT64, "by=16000", 16000}, {INT32, "by=-7", -7},  {FLOAT, "by=-2.5e-1", -0.25},
        {BOOL, "by=true", 1},       {BOOL, "by=0", 0},     {UINT8, "by=255", 255},
    };
    static const struct { int type; const char *option; } bad[] = {
        {INT64, "by=1.5"}, {INT32, "by=2147483648"}, {UINT8, "by=256"}, {UINT8, "by=-1"},
        {BOOL, "by=2"},    {FLOAT, "by=much"},       {INT64, "by="},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        Graph *g = scaled(good[i].type, NULL, arena_printf(arena, "n=2 %s", good[i].option));
        const Node *mul = g ? &g->node.at[g->node.n - 1] : NULL;
        const Value *by = mul ? val(g, mul->in[1]) : NULL;
        ok(g && g->input.n == 1 && g->files.bound.n == 1 && by->kind == V_CONST &&
               !(fabs(element_double(by->dtype, by->data, 0) - good[i].is) > 0),
           "--bind %s: the input is a constant: %s", good[i].option, g ? g->files.bound.at[0] : said);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ok(!scaled(bad[i].type, NULL, arena_printf(arena, "n=2 %s", bad[i].option)) &&
               strstr(said, "is not a value of"),
           "--bind %s: %s", bad[i].option, said);
    Graph *g = scaled(FLOAT, "1", "n=2 by=3");
    ok(g && g->input.n == 1, "an array of one element takes a value");
    ok(!scaled(FLOAT, "3", "n=2 by=3") && strstr(said, "only an input of one element"), "of three: %s",
       said);
    ok(!scaled(FLOAT, NULL, "n=2 bu=3") && strstr(said, "did you mean 'by'?"), "another: %s", said);
    M m = sum("n,3", "1", NULL, "n,3");
    value(&m, INPUT, "n", FLOAT, NULL);
    g = import_with(&m, "n=2");
    ok(g && g->input.n == 3 && strstr(said, "sets the dimension of that name"),
       "a dimension of an input's name is meant: %s", said);
}

/* ---- branches ---- */

static void put_graph(Buf *n, const char *name, M *body)
{
    enum { GRAPH = 5 };
    Buf a = {0};
    put_string(&a, 1, name);
    put_message(&a, 6, &body->graph);
    put_int(&a, 20, GRAPH);
    put_message(n, 5, &a);
}

/* if (c) y = -x; else y = x w, which does not fit */
static Graph *branch(const char *dims, const char *options)
{
    M m = {0}, yes = {0}, no = {0};
    Buf n = {0};
    input(&m, "x", "2,3");
    value(&m, INPUT, "c", BOOL, dims);
    initializer(&m, "w", 4, 4, 1);
    node(&yes, "Neg", "neg", "x", "p", NULL, NULL);
    value(&yes, OUTPUT, "p", FLOAT, "2,3");
    node(&no, "MatMul", "narrow", "x w", "q", NULL, NULL);
    value(&no, OUTPUT, "q", FLOAT, "2,3");
    node_begin(&n, "If", "rate", "c", "y", NULL, NULL);
    put_graph(&n, "then_branch", &yes);
    put_graph(&n, "else_branch", &no);
    put_message(&m.graph, 1, &n);
    value(&m, OUTPUT, "y", FLOAT, "2,3");
    return import_with(&m, options);
}

static void test_branches(void)
{
    ok(!branch(NULL, "") && strstr(said, "in else_branch of node 0 'rate' (If)") &&
           strstr(said, "depends on input 'c'") && strstr(said, "--bind c=VALUE"),
       "an error in a branch says so, and what decides: %s", said);
    ok(!branch(NULL, "c=false") && strstr(said, "in else_branch") && !strstr(said, "hint"),
       "in the one that is taken: %s", said);
    is(branch(NULL, "c=true"), 2, "0 : 0", "the other does not exist");
}

/* z[mask] = -x[mask], as dynamo writes it: the places are joined with nothing. */
static void test_masked(void)
{
    M m = {0};
    Buf n = {0}, a = {0};
    value(&m, INPUT, "x", FLOAT, "4,3");
    value(&m, INPUT, "mask", BOOL, "4");
    node(&m, "Sub", "zero", "x x", "z", NULL, NULL);
    node(&m, "NonZero", "found", "mask", "f", NULL, NULL);
    node(&m, "Transpose", "turned", "f", "t", NULL, NULL);
    node_begin(&n, "Concat", "joined", "t", "i", NULL, NULL);
    put_string(&a, 1, "axis");
    put_int(&a, 3, 1);
    put_int(&a, 20, 2);
    put_message(&n, 5, &a);
    put_message(&m.graph, 1, &n);
    node(&m, "GatherND", "got", "x i", "u", NULL, NULL);
    node(&m, "Neg", "neg", "u", "v", NULL, NULL);
    node(&m, "ScatterND", "put", "z i v", "y", NULL, NULL);
    value(&m, OUTPUT, "y", FLOAT, "4,3");
    is(import_with(&m, ""), 4, "0 0 : 0", "rows that a mask takes and puts back stay in place");
}

/* Its values, where the inputs hold these bytes. */
static Tensor *values(const Graph *g, void *const *data)
{
    Tensor *at = arena_array(arena, Tensor, g->value.n);
    NodeId *list = arena_array(arena, NodeId, g->node.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        if (val(g, v)->kind == V_CONST)
            at[v] = (Tensor){val(g, v)->dtype, val(g, v)->shape, arena_array(arena, double, 64)},
            memcpy(at[v].data, val(g, v)->data,
                   (size_t)shape_elements(&at[v].shape) * dtype_size(at[v].dtype));
    for (uint32_t i = 0; i < g->input.n; i++)
        at[g->input.at[i]] = (Tensor){val(g, g->input.at[i])->dtype,
                                      val(g, g->input.at[i])->shape, data[i]};
    for (NodeId n = 0; n < g->node.n; n++)
        list[n] = n;
    oracle_nodes(g, arena, list, g->node.n, at);
    return at;
}

/* The rows of x that a mask takes, as u. */
static M picked(int type, const char *dims)
{
    M m = {0};
    value(&m, INPUT, "x", type, dims);
    value(&m, INPUT, "mask", BOOL, "4");
    node(&m, "NonZero", "found", "mask", "f", NULL, NULL);
    node(&m, "Transpose", "turned", "f", "t", NULL, NULL);
    node(&m, "GatherND", "got", "x t", "u", NULL, NULL);
    return m;
}

/* One of four is there: the sum of as many as there can be is too large. */
static void test_means(void)
{
    int64_t x[4] = {0, 0, INT64_MAX / 2, 0}, y[] = {0, 0};
    uint16_t half[4] = {0x7b00, 0, 0x7b00, 0}; /* 57344 */
    bool one[4] = {0, 0, 1, 0}, two[4] = {1, 0, 1, 0};
    for (int k = 0; k < 2; k++) {
        enum { FLOAT16 = 10 };
        M m = picked(k ? FLOAT16 : INT64, "4");
        node(&m, "ReduceMean", "mean", "u", "y", NULL, NULL);
        value(&m, OUTPUT, "y", k ? FLOAT16 : INT64, "1");
        Graph *g = import_with(&m, "");
        Tensor *at = g ? values(g, k ? (void *[]){half, two} : (void *[]){x, one}) : NULL;
        if (g)
            memcpy(y, at[g->output.at[0]].data, k ? sizeof *half : sizeof *y);
        ok(g && (k ? !memcmp(y, half, sizeof *half) : y[0] == x[2]), "the mean of %s",
           k ? "halves" : "whole numbers");
    }
}

/* Attention among the rows that a mask takes: of each place with each, over all that are there. */
static void test_attention(void)
{
    float x[8] = {1, -2, 30, 40, .5f, 3, 50, 60}, *y;
    bool mask[4] = {1, 0, 1, 0}, same = true;
    M m = picked(FLOAT, "4,2");
    node(&m, "Transpose", "keys", "u", "k", NULL, NULL);
    node(&m, "MatMul", "each", "u k", "s", NULL, NULL);
    node(&m, "Softmax", "soft", "s", "a", NULL, NULL);
    node(&m, "MatMul", "of", "a u", "v", NULL, NULL);
    node(&m, "ScatterND", "put", "x t v", "y", NULL, NULL);
    value(&m, OUTPUT, "y", FLOAT, "4,2");
    Graph *g = import_with(&m, "");
    y = g ? values(g, (void *[]){x, mask})[g->output.at[0]].data : x;
    for (int i = 0; i < 4; i++) {
        const float *q = &x[2 * i], p = x[0] * q[0] + x[1] * q[1], r = x[4] * q[0] + x[5] * q[1],
                    first = 1 / (1 + expf(r - p));
        for (int k = 0; k < 2; k++)
            same &= fabsf(y[2 * i + k] - (mask[i] ? first * x[k] + (1 - first) * x[4 + k] : q[k])) <
                    1e-5f;
    }
    ok(g && same, "attention among picked rows: %s", g ? "" : said);
    m = picked(FLOAT, "4,2");
    node(&m, "Transpose", "keys", "u", "k", NULL, NULL);
    node(&m, "MatMul", "each", "u k", "y", NULL, NULL);
    value(&m, OUTPUT, "y", FLOAT, "4,4");
    ok(!import_with(&m, "") && strstr(said, "along two dims"), "which is no output: %s", said);
}

static void number(M *m, const char *name, int64_t v)
{
    tensor(m, name, INT64, (int[]){1, 0}, &v, sizeof v);
}

/* Whole numbers of each place with each, along either dim: the mean is over those that are there. */
static void test_each_mean(void)
{
    float x[8] = {3, 0, 90, 0, 1, 0, 90, 0};
    bool mask[4] = {1, 0, 1, 0};
    for (int axis = 0; axis < 2; axis++) {
        M m = picked(FLOAT, "4,2");
        Buf n = {0}, to = {0};
        number(&m, "axis", axis);
        node(&m, "Transpose", "keys", "u", "k", NULL, NULL);
        node(&m, "MatMul", "each", "u k", "s", NULL, NULL);
        node_begin(&n, "Cast", "whole", "s", "w", NULL, NULL);
        put_string(&to, 1, "to");
        put_int(&to, 3, INT64);
        put_int(&to, 20, 2);
        put_message(&n, 5, &to);
        put_message(&m.graph, 1, &n);
        node(&m, "ReduceMean", "mean", "w axis", "means", NULL, NULL);
        node(&m, "ReduceSum", "sum", "means", "y", NULL, NULL);
        value(&m, OUTPUT, "y", INT64, "1,1");
        Graph *g = import_with(&m, "");
        int64_t *y = g ? values(g, (void *[]){x, mask})[g->output.at[0]].data : NULL;
        ok(y && *y == 6 + 2, "the mean along dim %d of each with each: %s", axis, g ? "" : said);
    }
}

/* To the size of another mask: as long as that can be at most is not right. */
static void test_other_size(void)
{
    static const char *const what[] = {"Slice of columns", "Slice", "Expand"};
    for (int k = 0; k < 3; k++) {
        M m = picked(FLOAT, "4,2");
        value(&m, INPUT, "other", BOOL, "4");
        number(&m, "zero", 0);
        number(&m, "one", 1);
        number(&m, "two", 2);
        node(&m, "NonZero", "found2", "other", "f2", NULL, NULL);
        node(&m, "Shape", "sizes", "f2", "n2", NULL, NULL);
        node(&m, "Slice", "size", "n2 one two", "n", NULL, NULL);
        node(&m, "Transpose", "keys", "u", "k", NULL, NULL);
        node(&m, "MatMul", "each", "u k", "s", NULL, NULL);
        node(&m, "Unsqueeze", "last", "s two", "s1", NULL, NULL);
        if (k < 2)
            node(&m, "Slice", "part", k ? "s zero n zero" : "u zero n one", "v", NULL, NULL);
        else
            node(&m, "Expand", "part", "s1 n", "v", NULL, NULL);
        node(&m, "ReduceSum", "sum", k ? "v one" : "v", "r", NULL, NULL);
        node(&m, "ReduceSum", "all", "r", "y", NULL, NULL);
        value(&m, OUTPUT, "y", FLOAT, k < 2 ? "1,1" : "1,1,1");
        ok(!import_with(&m, "") && strstr(said, "'part'"), "%s to another such size: %s", what[k],
           said);
    }
}

int main(void)
{
    models_begin();
    test_each_mean();
    test_other_size();
    test_masked();
    test_attention();
    test_means();
    test_names();
    test_computed();
    test_refusals();
    test_anonymous();
    test_formulas();
    test_values();
    test_branches();
    return models_end();
}

/*
 * test_graph.c - what graph_node() makes of a node: shapes and refusals, identities that vanish,
 * constants that fold, broadcasts that collapse.  Expected shapes and numbers are ONNX's rules
 * worked out by hand.
 */
#include <string.h>
#include <unistd.h>

#include "frontend/frontend.h"
#include "tap.h"

#define S(...) ((Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}})
#define I(...) ((const int64_t[]){__VA_ARGS__})

/* The node that made v; a function, for the array may move while its argument is made. */
static const Node *made(const Graph *g, ValueId v) { return &g->node.at[val(g, v)->node]; }

static ValueId input(Graph *g, const char *name, Dtype t, Shape s)
{
    return graph_input(g, name, t, &s);
}

static void is_shape(const Graph *g, ValueId v, Dtype t, Shape s, const char *what)
{
    bool good = shape_equal(&val(g, v)->shape, &s) && val(g, v)->dtype == t;
    if (!good)
        printf("# %s is %s\n", val(g, v)->name,
               shape_print(g->arena, val(g, v)->dtype, &val(g, v)->shape));
    ok(good, "%s", what);
}

static void is_ints(const Graph *g, ValueId v, int64_t n, const int64_t *want, const char *what)
{
    int64_t *at, k;
    bool good = g_const_ints(g, v, g->arena, &at, &k) && k == n;
    for (int64_t i = 0; good && i < n; i++)
        good = at[i] == want[i];
    ok(good, "%s", what);
}

/* Whether building the node leaves with the model's error; its message goes nowhere. */
typedef struct { Graph *g; Op op; uint32_t n; ValueId in[3]; Attr attr; } Attempt;
static void attempt(void *p)
{
    Attempt *x = p;
    graph_node(x->g, x->op, x->n, x->in, x->attr);
}

static void refused(Attempt x, const char *what)
{
    int keep = dup(STDERR_FILENO);
    if (!freopen("/dev/null", "w", stderr))
        printf("# no /dev/null\n");
    int code = diag_run(attempt, &x);
    fflush(stderr);
    dup2(keep, STDERR_FILENO);
    close(keep);
    ok(code == EXIT_MODEL, "%s", what);
}

static void test_shapes(Graph *g)
{
    ValueId x = input(g, "x", DT_F32, S(2, 3, 4)), y = input(g, "y", DT_F32, S(3, 1)),
            w = input(g, "w", DT_F32, S(4, 5));
    ValueId v = input(g, "v", DT_F32, S(4)), i = input(g, "i", DT_I64, S(7, 2));
    is_shape(g, g_add(g, x, y), DT_F32, S(2, 3, 4), "broadcasting");
    is_shape(g, g_binary(g, OP_Less, y, v), DT_BOOL, S(3, 4), "a comparison is bool");
    is_shape(g, g_matmul(g, x, w), DT_F32, S(2, 3, 5), "matrix product keeps the rank");
    is_shape(g, g_matmul(g, x, v), DT_F32, S(2, 3), "matrix times vector");
    is_shape(g, g_matmul(g, v, w), DT_F32, S(5), "vector times matrix");
    is_shape(g, g_matmul(g, v, v), DT_F32, (Shape){0}, "vector times vector");
    is_shape(g, g_gather(g, x, i, 1), DT_F32, S(2, 7, 2, 4), "gather");
    is_shape(g, g_reduce(g, OP_ReduceSum, x, 2, I(2, 0)), DT_F32, S(1, 3, 1),
             "reductions keep the dims");
    is_shape(g, g_sum_to(g, x, &S(3, 1)), DT_F32, S(3, 1), "sum to a shape");
    is_shape(g, g_concat(g, 2, (ValueId[]){x, x}, 2), DT_F32, S(2, 3, 8), "concat");
    is_shape(g, g_pad(g, x, I(0, 1, 0), I(1, 0, 2), PAD_CONSTANT, 0), DT_F32, S(3, 4, 6), "pad");
    is_shape(g, g_swap_last(g, x), DT_F32, S(2, 4, 3), "transpose");
    ValueId parts = g_split(g, x, 1, 2, I(1, 2));
    is_shape(g, graph_out(g, parts, 1), DT_F32, S(2, 2, 4), "second part of a split");
    ValueId image = input(g, "image", DT_F32, S(2, 4, 9, 8)),
            kernel = input(g, "kernel", DT_F32, S(6, 2, 3, 3));
    ValueId conv = graph_node(g, OP_Conv, 2, (ValueId[]){image, kernel},
                              (Attr){.group = 2, .n = 2, .stride = I(2, 2), .pad = I(1, 1, 1, 1)});
    is_shape(g, conv, DT_F32, S(2, 6, 5, 4), "grouped convolution");
    ValueId pool = graph_node(g, OP_MaxPool, 1, &image,
                              (Attr){.n = 2, .stride = I(2, 2), .kernel = I(2, 2), .ceil_mode = 1});
    is_shape(g, pool, DT_F32, S(2, 4, 5, 4), "pool with ceil mode");
    is_shape(g, graph_out(g, pool, 1), DT_I64, S(2, 4, 5, 4), "and its indices");
    ValueId top = graph_node(g, OP_TopK, 1, &x, (Attr){.axis = 2, .k = 2, .largest = 1});
    is_shape(g, graph_out(g, top, 1), DT_I64, S(2, 3, 2), "indices of the top k");
    refused((Attempt){g, OP_Add, 2, {x, w}, {0}}, "shapes that do not broadcast");
    refused((Attempt){g, OP_Add, 2, {x, i}, {0}}, "types that differ");
    refused((Attempt){g, OP_MatMul, 2, {x, x}, {0}}, "inner dimensions that differ");
    refused((Attempt){g, OP_Exp, 1, {i}, {0}}, "an elementary function of integers");
    refused((Attempt){g, OP_Transpose, 1, {x}, {.n = 3, .perm = I(0, 0, 1)}},
            "a permutation that is none");
    refused((Attempt){g, OP_Reshape, 1, {x}, {.n = 2, .dims = I(5, 5)}},
            "a reshape to another size");
    refused((Attempt){g, OP_Slice, 1, {v}, {.n = 1, .start = I(2), .size = I(3)}},
            "a slice past the end");
    refused(
        (Attempt){g, OP_Slice, 1, {v}, {.n = 1, .start = I(0), .size = I(2), .step = I(INT64_MAX)}},
        "a slice whose step overflows");
    refused((Attempt){g, OP_Gather, 2, {x, g_ints(g, 1, I(2), I(0, 3))}, {.axis = 1}},
            "a constant index out of range");
    refused((Attempt){g, OP_Expand, 1, {v}, {.n = 2, .dims = I(INT64_MAX / 2, 4)}},
            "an element count that overflows");
    refused((Attempt){g, OP_Softmax, 1, {x}, {.axis = 3}}, "an axis out of range");
    refused((Attempt){g, OP_Conv, 2, {image, kernel}, {.group = 3, .n = 2}},
            "channels that do not divide into groups");
}

static void test_identities(Graph *g)
{
    ValueId x = input(g, "a", DT_F32, S(2, 3, 4)), empty = input(g, "empty", DT_F32, S(2, 0, 4));
    uint32_t nodes = g->node.n;
    ok(g_reshape(g, x, &S(2, 3, 4)) == x, "reshape to the same shape");
    ok(g_transpose(g, x, I(0, 1, 2)) == x, "transpose that moves nothing");
    ok(g_expand(g, x, &S(1, 3, 1)) == x, "expand that adds nothing");
    ok(g_slice_axis(g, x, 1, 0, 3) == x, "the whole slice");
    ok(g_cast(g, x, DT_F32) == x, "cast to the same type");
    ValueId half = g_cast(g, x, DT_F16);
    ok(g_cast(g, g_cast(g, half, DT_F32), DT_F16) == half, "a half, widened and narrowed");
    ok(g_cast(g, g_cast(g, half, DT_I64), DT_F16) != half, "but not one whose fraction is cut");
    ok(g_cast(g, g_cast(g, half, DT_BF16), DT_F16) != half, "nor one that loses bits");
    nodes = g->node.n;
    ok(g_concat(g, 1, &x, 0) == x, "concat of one");
    ok(g_concat(g, 2, (ValueId[]){empty, x}, 1) == x, "concat with what has no elements");
    ValueId y = input(g, "b", DT_F32, S(2, 3, 4)), both = g_concat(g, 2, (ValueId[]){x, y}, 1);
    nodes = g->node.n;
    ok(g_slice_axis(g, both, 1, 3, 3) == y, "slice of the operand of a concat");
    ok(g_pad(g, x, I(0, 0, 0), I(0, 0, 0), PAD_CONSTANT, 1) == x, "pad of nothing");
    ok(g_split(g, x, 1, 1, I(3)) == x, "split in one");
    ok(g_reduce(g, OP_ReduceSum, x, 0, NULL) == x, "reduction over no axes");
    ok(g->node.n == nodes, "and none of these made a node");
    const Node *part = made(g, g_slice(g, both, I(0, 5, 0), I(2, 3, 4), I(1, -1, 1)));
    ok(part->in[0] == y && part->attr.start[1] == 2, "a part of one, backwards");
    ok(made(g, g_slice_axis(g, both, 1, 2, 2))->in[0] == both, "but not one of both");
    ValueId r = g_reshape(g, x, &S(6, 4));
    ok(g_reshape(g, r, &S(2, 3, 4)) == x, "reshape there and back");
    ValueId r2 = g_reshape(g, r, &S(24));
    ok(made(g, r2)->in[0] == x, "reshape of a reshape reads the operand");
    ValueId t = g_transpose(g, x, I(2, 0, 1));
    ok(g_transpose(g, t, I(1, 2, 0)) == x, "transpose there and back");
    ValueId t2 = g_transpose(g, t, I(1, 0, 2));         /* (2,0,1) then (1,0,2) is (0,2,1) */
    const Node *n = made(g, t2);
    ok(n->in[0] == x && !memcmp(n->attr.perm, I(0, 2, 1), 24), "transpose of a transpose composes");
    is_shape(g, t2, DT_F32, S(2, 4, 3), "and has the composed shape");
    ValueId s = g_reduce(g, OP_ReduceMax, g_reshape(g, x, &S(24, 1)), 1, I(1));
    ok(made(g, s)->op == OP_Reshape, "reduction over a dimension of 1");
    ok(made(g, g_mul(g, x, g_like(g, x, 1)))->op == OP_Mul, "no algebra on floats");
}

static void test_folding(Graph *g)
{
    ValueId a = g_ints(g, 1, I(3), I(2, 3, 4)), b = g_ints(g, 0, NULL, I(10));
    uint32_t nodes = g->node.n;
    is_ints(g, g_mul(g, a, b), 3, I(20, 30, 40), "product of constants");
    is_ints(g, g_gather(g, a, g_ints(g, 1, I(2), I(-1, 0)), 0), 2, I(4, 2), "gather of a shape");
    is_ints(g, g_concat(g, 2, (ValueId[]){a, a}, 0), 6, I(2, 3, 4, 2, 3, 4), "concat");
    is_ints(g, g_cast(g, g_scalar(g, DT_F32, -2.75), DT_I64), 1, I(-2),
            "cast truncates towards zero");
    is_ints(g,
            g_binary(g, OP_Div, g_ints(g, 1, I(3), I(-7, 7, 1)), g_ints(g, 1, I(3), I(2, -2, 0))),
            3, I(-3, -3, 0), "integer division truncates, and by 0 does not trap");
    is_ints(g, g_binary(g, OP_Mod, g_ints(g, 1, I(2), I(-7, 7)), g_ints(g, 0, NULL, I(3))), 2,
            I(2, 1), "mod as in Python");
    is_ints(g,
            g_binary(g, OP_Pow, g_ints(g, 1, I(3), I(3, -1, 2)), g_ints(g, 1, I(3), I(4, -3, -1))),
            3, I(81, -1, 0), "power");
    is_ints(g, g_iota(g, DT_I32, 2, 1, 4), 4, I(0, 1, 2, 3), "iota");
    ValueId parts = g_split(g, a, 0, 2, I(1, 2));
    is_ints(g, graph_out(g, parts, 1), 2, I(3, 4), "outputs of a folded split");
    is_ints(g, g_reduce_last(g, OP_ReduceProd, a), 1, I(24), "product of a shape");
    is_ints(g, g_reduce_last(g, OP_ReduceMax, g_full(g, DT_I64, &S(100), 7)), 1, I(7),
            "a small expand folds");
    ok(g->node.n == nodes, "folding makes no nodes");
    ValueId big = g_full(g, DT_F32, &S(300, 300), 0.5);
    ok(val(g, big)->kind == V_NODE, "a large expand is a view");
    ValueId twice = g_add(g, big, big);
    is_shape(g, twice, DT_F32, S(300, 300), "sum of two of them has the shape");
    ok(val(g, twice)->kind == V_CONST && ((const float *)val(g, twice)->data)[89999] >= 1,
       "and folds through the view");
    double d;
    ok(g_const_double(g, g_like(g, big, 0.25), &d) && d >= 0.25 && d <= 0.25,
       "constant as a double");
    ok(!g_const_double(g, a, &d), "not of three elements");
    ValueId x = input(g, "dropped", DT_F32, S(4));
    ok(made(g, graph_node(g, OP_Dropout, 1, &x, (Attr){.ratio = 0.5}))->op == OP_Dropout,
       "dropout stays");
}

static void test_broadcasts(Graph *g)
{
    ValueId x = input(g, "scores", DT_F32, S(2, 3, 2, 2)),
            lead = input(g, "lead", DT_F32, S(2, 1, 1, 1));
    static float data[] = {0, 1, 1, 0, 0, 1, 1, 0};
    ValueId mask = graph_const(g, "mask", (Tensor){DT_F32, S(2, 1, 2, 2), data});
    const Node *n = made(g, g_add(g, x, mask));
    is_shape(g, n->in[1], DT_F32, S(1, 1, 2, 2), "a mask baked with the batch loses it");
    ok(!memcmp(val(g, n->in[1])->data, data, 16), "and keeps its numbers");
    ValueId first = n->in[1];
    ok(made(g, g_mul(g, x, mask))->in[1] == first, "the smaller constant is made once");
    ValueId row = input(g, "row", DT_F32, S(1, 1, 2, 2));
    ok(made(g, g_add(g, row, mask))->in[1] == mask, "not when the result would shrink");
    n = made(g, g_add(g, x, g_expand(g, lead, &S(2, 3, 1, 1))));
    ok(n->in[1] == lead, "an expanded operand is read directly");
    ValueId e = g_expand(g, lead, &S(2, 3, 1, 1));
    ok(made(g, g_add(g, row, e))->in[1] == e, "but not when the result needs its shape");
    static float same[] = {5, 5, 5, 5};
    n = made(g, g_add(g, x, graph_const(g, NULL, (Tensor){DT_F32, S(2, 2), same})));
    is_shape(g, n->in[1], DT_F32, S(1, 1), "a constant of equal elements becomes one");
}

static void test_names(Graph *g)
{
    ValueId x = input(g, "in", DT_F32, S(2)), y = g_neg(g, x);
    ok(strchr(val(g, y)->name, '%') != NULL, "made-up names contain a %%");
    graph_rename(g, y, "out");
    ok(!strcmp(val(g, y)->name, "out") && strmap_get(&g->by_name, "out") == y, "renamed");
    graph_rename(g, x, "alias");
    ok(!strcmp(val(g, x)->name, "in") && strmap_get(&g->by_name, "alias") == x,
       "an input keeps its name and gets an alias");
    Ids *users = graph_users(g, g->arena);
    ok(users[x].n == 1 && users[x].at[0] == val(g, y)->node, "users");
    vec_push(g->arena, &g->output, y);
    vec_push(g->arena, &g->output_name, "out");
    graph_verify(g);
    ok(true, "the graph verifies");
    ok(op_find("Softmax") == OP_Softmax && op_find("softmax") == OP_NONE && op_is_map(OP_Tanh) &&
           !op_is_map(OP_Slice) && op_is_view(OP_Slice) && !op_differentiable(OP_ArgMax) &&
           !strcmp(op_map_text(OP_Add), "(a) + (b)"),
       "the table as data");
}

static int looks;

static const void *look(Arena *a, Dtype t, const Shape *shape, const void *data, int what)
{
    (void)what;
    double *sum = arena_new_of(a, double), part[3];
    looks++;
    element_doubles(t, data, 1, shape_elements(shape) - 1, part);
    for (int64_t i = 0; i + 1 < shape_elements(shape); i++)
        *sum += part[i];
    return sum;
}

/* A constant is looked at once for each question, however it is shaped another time. */
static void looked_at(void)
{
    Arena *a = arena_new();
    Graph *g = graph_new(a, "test.onnx");
    static const float of[4] = {1, 2, 3, 4};
    static const int64_t whole[2] = {7, -9};
    Shape s = shape_of(1, (int64_t)4), square = shape_of(2, (int64_t)2, (int64_t)2),
          two = shape_of(1, (int64_t)2);
    const double *sum = graph_look(g, DT_F32, &s, of, look, 0);
    bool same = true;
    for (int i = 0; i < 100; i++)
        same &= graph_look(g, DT_F32, &s, of, look, 0) == sum;
    ok(same && looks == 1 && *sum == 9, "looked at once");
    graph_look(g, DT_F32, &square, of, look, 0);
    const double *last = graph_look(g, DT_I64, &two, whole, look, 0);
    ok(looks == 3 && *last == -9, "another shape, other bytes: looked at again");
    static char one[3000], equal[3000], other[3000];
    other[100] = 1;
    ok(graph_bytes(g, one, sizeof one) == one && graph_bytes(g, other, sizeof other) == other &&
           graph_bytes(g, equal, sizeof equal) == one && graph_bytes(g, equal, 7) == equal,
       "equal bytes are those that came first");
    arena_free(a);
}

int main(void)
{
    looked_at();
    static void (*const tests[])(Graph *) = {test_shapes, test_identities, test_folding,
                                             test_broadcasts, test_names};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        Arena *a = arena_new();
        tests[i](graph_new(a, "test.onnx"));
        arena_free(a);
    }
    return tap_done();
}

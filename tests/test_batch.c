/*
 * test_batch.c - which dimension of a value holds the rows: each rule on a graph small enough to know the answer by
 * hand.
 */
#include <string.h>

#include "../partition/partition.h"
#include "tap.h"

enum { B = 4 };

static Arena *arena[256];
static int arenas;

static Graph *fresh(void)
{
    Graph *g = graph_new(arena[arenas++] = arena_new(), "test.onnx");
    g->batch = B;
    return g;
}

static ValueId input(Graph *g, const char *name, Shape s) { return graph_input(g, name, DT_F32, &s); }
static ValueId index_input(Graph *g, const char *name, Shape s) { return graph_input(g, name, DT_I64, &s); }

static ValueId param(Graph *g, const char *name, Shape s)
{
    return graph_param(g, (Param){.name = name, .initializer = name, .dtype = DT_F32, .shape = s, .trainable = true});
}

static int batch(const Graph *g, ValueId v) { return val(g, v)->batch; }

static Reasons uneven, mixes;

static void analyse(Graph *g)
{
    PartitionOptions opt = {0};
    uneven.n = mixes.n = 0;
    batch_analyse(g, 0, &opt, &uneven, &mixes);
}

static void moves(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(3, (int64_t)B, (int64_t)6, (int64_t)10)),
            p = input(g, "p", shape_of(2, (int64_t)6, (int64_t)10));
    Shape flat = shape_of(2, (int64_t)B * 6, (int64_t)10),
          back = shape_of(4, (int64_t)B, (int64_t)6, (int64_t)2, (int64_t)5);
    ValueId r = g_reshape(g, x, &flat), h = g_reshape(g, r, &back);
    ValueId t = g_transpose(g, x, (int64_t[]){1, 0, 2});
    Shape inner = shape_of(3, (int64_t)6, (int64_t)B * 5, (int64_t)2),
          inside = shape_of(2, (int64_t)6 * B, (int64_t)10), seq = shape_of(3, (int64_t)6, (int64_t)B, (int64_t)10);
    ValueId k = g_reshape(g, t, &inner), m = g_unary(g, OP_Exp, g_reshape(g, t, &inside));
    ValueId again = g_reshape(g, m, &seq), dw = g_matmul(g, g_swap_last(g, m), m), out = g_neg(g, m);
    ValueId sum = g_add(g, t, g_slice_axis(g, t, 0, 2, 1)), cut = g_slice_axis(g, x, 0, 0, 2);
    ValueId cat = g_concat(g, 2, (ValueId[]){x, x}, 2), twice = g_concat(g, 2, (ValueId[]){x, x}, 0);
    ValueId pos = g_add(g, x, p);
    vec_push(g->arena, &g->output, out);
    analyse(g);
    ok(batch(g, x) == 0 && batch(g, p) == BATCH_NONE,
       "an input is cut along dimension 0 where that has the batch's size");
    ok(batch(g, r) == 0 && batch(g, h) == 0, "rows flattened with the sequence stay outermost");
    ok(batch(g, t) == 1 && batch(g, k) == 1, "transposed rows are followed; heads split off behind them do not matter");
    ok(batch(g, m) == 0 && batch(g, again) == 1 && batch(g, dw) == BATCH_NONE,
       "rows that are the inner factor for a while are followed");
    ok(batch(g, out) == BATCH_MIXED, "but not as an output");
    ok(batch(g, sum) == 1 && batch(g, cat) == 0 && batch(g, pos) == 0,
       "slices, joins and broadcasts of other dimensions");
    ok(batch(g, cut) == BATCH_MIXED && batch(g, twice) == BATCH_MIXED,
       "some of the rows, or rows twice, are not tracked");
    ok(uneven.n >= 1 && strstr(uneven.at[0], "Slice") != NULL, "the reason names the node: %s",
       uneven.n ? uneven.at[0] : "");
}

static void products(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(3, (int64_t)B, (int64_t)6, (int64_t)10)),
            w = param(g, "w", shape_of(2, (int64_t)10, (int64_t)3));
    ValueId y = g_matmul(g, x, w), s = g_matmul(g, x, g_swap_last(g, x));
    ValueId f = input(g, "f", shape_of(2, (int64_t)B, (int64_t)10)), d = g_matmul(g, f, w);
    ValueId dw = g_matmul(g, g_swap_last(g, f), d), v = param(g, "v", shape_of(2, (int64_t)B, (int64_t)7));
    ValueId fixed = g_matmul(g, g_swap_last(g, f), v),
            bias = g_add(g, d, g_reduce(g, OP_ReduceSum, d, 1, (int64_t[]){0}));
    analyse(g);
    ok(batch(g, y) == 0 && batch(g, s) == 0 && batch(g, d) == 0, "products keep the rows");
    ok(batch(g, dw) == BATCH_NONE, "a product along the rows sums over them");
    ok(batch(g, fixed) == BATCH_MIXED, "a fixed operand along the rows is not tracked");
    ok(batch(g, bias) == 0 && mixes.n == 1, "a sum over the rows that goes back into them mixes samples");
    ok(uneven.n == 1, "and forbids nothing: %u reasons", uneven.n);
}

static void on_demand(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(3, (int64_t)B, (int64_t)6, (int64_t)10)),
            token = param(g, "cls", shape_of(3, (int64_t)1, (int64_t)1, (int64_t)10));
    Shape one = shape_of(3, (int64_t)B, (int64_t)1, (int64_t)10),
          full = shape_of(3, (int64_t)B, (int64_t)6, (int64_t)10);
    ValueId tokens = g_expand(g, token, &one), seq = g_concat(g, 2, (ValueId[]){tokens, x}, 1);
    float *same = arena_array(g->arena, float, B * 60), *other = arena_array(g->arena, float, B * 60);
    for (int i = 0; i < B * 60; i++) {
        same[i] = (float)(i % 60);
        other[i] = (float)(i * i);
    }
    ValueId c = graph_const(g, "c", (Tensor){DT_F32, full, same}),
            e = graph_const(g, "e", (Tensor){DT_F32, full, other});
    ValueId plus = g_add(g, x, c), bad = g_add(g, x, e), ones = g_full(g, DT_F32, &full, 1);
    ValueId y = g_mul(g, x, ones), q = param(g, "q", full), fixed = g_add(g, x, q);
    analyse(g);
    ok(batch(g, tokens) == 0 && batch(g, seq) == 0, "a token expanded to every row takes the rows' dimension");
    ok(batch(g, plus) == 0, "a constant with equal rows shrinks with the batch");
    ok(batch(g, bad) == BATCH_MIXED && batch(g, fixed) == BATCH_MIXED,
       "other constants and parameters of the batch's size do not");
    ok(batch(g, y) == 0, "a filled constant does");
    ok(batch(g, c) == BATCH_NONE, "the constant itself stays as it is for its other users");
    graph_verify(g);
}

static void gathers(void)
{
    Graph *g = fresh();
    ValueId ids = index_input(g, "ids", shape_of(2, (int64_t)B, (int64_t)6)),
            w = param(g, "emb", shape_of(2, (int64_t)50, (int64_t)8));
    ValueId x = g_gather(g, w, ids, 0), rows = g_iota(g, DT_I64, 1, 0, B), all = g_gather(g, x, rows, 0);
    ValueId first = g_gather(g, x, g_ints(g, 0, NULL, (int64_t[]){0}), 1),
            row0 = g_gather(g, x, g_ints(g, 0, NULL, (int64_t[]){0}), 0);
    Shape up = shape_of(2, (int64_t)50, (int64_t)8);
    ValueId zeros = g_full(g, DT_F32, &up, 0);
    Shape is = shape_of(3, (int64_t)B, (int64_t)6, (int64_t)1);
    ValueId grad =
        graph_node(g, OP_ScatterND, 3, (ValueId[]){zeros, g_reshape(g, ids, &is), x}, (Attr){.mode = SCATTER_ADD});
    analyse(g);
    ok(batch(g, x) == 0 && batch(g, first) == 0, "embeddings and the first token have the indices' rows");
    ok(batch(g, all) == 0, "all rows by number are the rows");
    ok(batch(g, row0) == BATCH_MIXED, "row 0 by number is not tracked");
    ok(batch(g, grad) == BATCH_NONE, "rows added into a table leave no rows");
}

static void row_indices(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "mask", shape_of(2, (int64_t)B, (int64_t)6));
    int64_t *at = arena_array(g->arena, int64_t, B * 6 * 6 * 2);
    for (int r = 0, k = 0; r < B; r++)
        for (int i = 0; i < 36; i++) {
            at[k++] = r;
            at[k++] = i % 6;
        }
    ValueId index = g_ints(g, 4, (int64_t[]){B, 6, 6, 2}, at),
            m = graph_node(g, OP_GatherND, 2, (ValueId[]){x, index}, (Attr){0});
    ValueId shifted = g_ints(g, 2, (int64_t[]){B, 1}, (int64_t[]){1, 2, 3, 0});
    ValueId bad = graph_node(g, OP_GatherND, 2, (ValueId[]){x, shifted}, (Attr){0});
    analyse(g);
    ok(batch(g, m) == 0, "a mask indexed by (row, column) pairs keeps its rows");
    ok(batch(g, bad) == BATCH_MIXED, "rows exchanged by number are not tracked");
}

static void chunks(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(2, (int64_t)6, (int64_t)B)),
            y = input(g, "y", shape_of(2, (int64_t)B, (int64_t)6));
    PartitionOptions opt = {0};
    vec_push(g->arena, &opt.chunk, "x=1");
    vec_push(g->arena, &opt.chunk, "y=replicate");
    batch_analyse(g, 0, &opt, NULL, NULL);
    ok(batch(g, x) == 1 && batch(g, y) == BATCH_NONE, "--chunk says otherwise");
}

static void loss_does_not_mix(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(2, (int64_t)B, (int64_t)6)), scale = input(g, "loss_scale", shape_of(0));
    ValueId y = g_softmax(g, x, 1), sum = g_reduce(g, OP_ReduceSum, y, 2, (int64_t[]){0, 1});
    Shape scalar = shape_of(0);
    ValueId loss = g_mul(g, g_reshape(g, sum, &scalar), scale);
    analyse(g);
    ok(batch(g, loss) == BATCH_NONE && mixes.n == 0 && uneven.n == 0, "a loss over the rows mixes nothing");
    ValueId z = g_softmax(g, x, 0);
    analyse(g);
    ok(batch(g, z) == 0 && mixes.n == 1, "softmax over the rows does: %s", mixes.n ? mixes.at[0] : "");
}

int main(void)
{
    moves();
    products();
    on_demand();
    gathers();
    row_indices();
    chunks();
    loss_does_not_mix();
    while (arenas > 0)
        arena_free(arena[--arenas]);
    return tap_done();
}

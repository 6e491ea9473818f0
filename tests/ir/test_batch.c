/*
 * test_batch.c - which dimension of a value holds the rows: each rule on a graph small enough to
 * know the answer by hand.
 */
#include <string.h>

#include "batch_graph.h"


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
          inside = shape_of(2, (int64_t)6 * B, (int64_t)10),
          seq = shape_of(3, (int64_t)6, (int64_t)B, (int64_t)10);
    ValueId k = g_reshape(g, t, &inner), m = g_unary(g, OP_Exp, g_reshape(g, t, &inside));
    ValueId again = g_reshape(g, m, &seq), dw = g_matmul(g, g_swap_last(g, m), m),
            out = g_neg(g, m);
    ValueId sum = g_add(g, t, g_slice_axis(g, t, 0, 2, 1)), cut = g_slice_axis(g, x, 0, 0, 2);
    ValueId cat = g_concat(g, 2, (ValueId[]){x, x}, 2),
            twice = g_concat(g, 2, (ValueId[]){x, x}, 0);
    ValueId pos = g_add(g, x, p);
    vec_push(g->arena, &g->output, out);
    vec_push(g->arena, &g->output, cut);
    analyse(g);
    ok(batch(g, x) == 0 && batch(g, p) == BATCH_NONE,
       "an input is cut along dimension 0 where that has the batch's size");
    ok(batch(g, r) == 0 && batch(g, h) == 0, "rows flattened with the sequence stay outermost");
    ok(batch(g, t) == 1 && batch(g, k) == 1,
       "transposed rows are followed; heads split off behind them do not matter");
    ok(batch(g, m) == 0 && batch(g, again) == 1 && batch(g, dw) == BATCH_NONE,
       "rows that are the inner factor for a while are followed");
    ok(batch(g, out) == BATCH_MIXED, "but not as an output");
    ok(batch(g, sum) == 1 && batch(g, cat) == 0 && batch(g, pos) == 0,
       "slices, joins and broadcasts of other dimensions");
    ok(batch(g, cut) == BATCH_MIXED && batch(g, twice) == 0,
       "some of the rows are not tracked, rows twice are");
    ok(uneven.n >= 1 && strstr(uneven.at[0], "Slice") != NULL, "the reason names the node: %s",
       uneven.n ? uneven.at[0] : "");
    ok(notes.output.at[0].how == MERGE_NONE && strstr(notes.output.at[0].why, "not outermost"),
       "microbatches do not meet in rows that are an inner factor");
    g->output.n = 0;
    vec_push(g->arena, &g->output, h);
    analyse(g);
    ok(uneven.n == 0, "what nobody sees forbids nothing");
}

static void products(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(3, (int64_t)B, (int64_t)6, (int64_t)10)),
            w = param(g, "w", shape_of(2, (int64_t)10, (int64_t)3));
    ValueId y = g_matmul(g, x, w), s = g_matmul(g, x, g_swap_last(g, x));
    ValueId f = input(g, "f", shape_of(2, (int64_t)B, (int64_t)10)), d = g_matmul(g, f, w);
    ValueId dw = g_matmul(g, g_swap_last(g, f), d),
            v = param(g, "v", shape_of(2, (int64_t)B, (int64_t)7));
    ValueId fixed = g_matmul(g, g_swap_last(g, f), v),
            bias = g_add(g, d, g_reduce(g, OP_ReduceSum, d, 1, (int64_t[]){0}));
    analyse(g);
    ok(batch(g, y) == 0 && batch(g, s) == 0 && batch(g, d) == 0, "products keep the rows");
    ok(batch(g, dw) == BATCH_NONE, "a product along the rows sums over them");
    ok(batch(g, fixed) == BATCH_MIXED, "a fixed operand along the rows is not tracked");
    ok(batch(g, bias) == 0 && mixes.n == 1,
       "a sum over the rows that goes back into them mixes samples");
    ok(uneven.n == 1, "and forbids nothing: %u reasons", uneven.n);
}

static void gathers(void)
{
    Graph *g = fresh();
    ValueId ids = index_input(g, "ids", shape_of(2, (int64_t)B, (int64_t)6)),
            w = param(g, "emb", shape_of(2, (int64_t)50, (int64_t)8));
    ValueId x = g_gather(g, w, ids, 0), rows = g_iota(g, DT_I64, 1, 0, B),
            all = g_gather(g, x, rows, 0);
    ValueId first = g_gather(g, x, g_ints(g, 0, NULL, (int64_t[]){0}), 1),
            row0 = g_gather(g, x, g_ints(g, 0, NULL, (int64_t[]){0}), 0);
    Shape up = shape_of(2, (int64_t)50, (int64_t)8);
    ValueId zeros = g_full(g, DT_F32, &up, 0);
    Shape is = shape_of(3, (int64_t)B, (int64_t)6, (int64_t)1);
    ValueId grad = graph_node(g, OP_ScatterND, 3, (ValueId[]){zeros, g_reshape(g, ids, &is), x},
                              (Attr){.reduction = SCATTER_ADD});
    analyse(g);
    ok(batch(g, x) == 0 && batch(g, first) == 0,
       "embeddings and the first token have the indices' rows");
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
    int64_t inner[3 * B * 2]; /* JAX's x.at[:, columns].add(y): columns, and in each the rows */
    for (int k = 0; k < 3 * B; k++) {
        inner[2 * k] = k % B;
        inner[2 * k + 1] = k / B;
    }
    ValueId within = g_ints(g, 2, (int64_t[]){3 * B, 2}, inner),
            y = input(g, "y", shape_of(2, (int64_t)B, (int64_t)3));
    Shape flat = shape_of(1, (int64_t)3 * B);
    ValueId added = graph_node(
        g, OP_ScatterND, 3,
        (ValueId[]){x, within, g_reshape(g, g_transpose(g, y, (int64_t[]){1, 0}), &flat)},
        (Attr){.reduction = SCATTER_ADD});
    ValueId crossed = graph_node(g, OP_ScatterND, 3,
                                 (ValueId[]){x, within, g_reshape(g, y, &flat)},
                                 (Attr){.reduction = SCATTER_ADD});
    analyse(g);
    ok(batch(g, m) == 0, "a mask indexed by (row, column) pairs keeps its rows");
    ok(batch(g, added) == 0, "so does what (row, column) pairs write to, column by column");
    ok(batch(g, crossed) == BATCH_MIXED, "but not where other rows are written");
    ok(batch(g, bad) == BATCH_MIXED, "rows exchanged by number are not tracked");
}

/* Messages of a batch of graphs, added up at the nodes that the data name: row * nodes + node. */
static void nodes_of_rows(void)
{
    Graph *g = fresh();
    const int64_t nodes = 5, edges = 7;
    ValueId to = index_input(g, "to", shape_of(2, (int64_t)B, edges)),
            x = input(g, "x", shape_of(3, (int64_t)B, edges, (int64_t)8));
    int64_t *first = arena_array(g->arena, int64_t, B);
    for (int r = 0; r < B; r++)
        first[r] = r * nodes;
    ValueId own = g_add(g, to, g_ints(g, 2, (int64_t[]){B, 1}, first));
    Shape flat = shape_of(2, B * edges, (int64_t)8), table = shape_of(2, B * nodes, (int64_t)8),
          column = shape_of(2, B * edges, (int64_t)1),
          by_row = shape_of(3, (int64_t)B, nodes, (int64_t)8);
    ValueId message = g_reshape(g, x, &flat), zeros = g_full(g, DT_F32, &table, 0), at[2], sum[2];
    for (int i = 0; i < 2; i++) {
        at[i] = g_expand(g, g_reshape(g, i ? to : own, &column), &flat);
        sum[i] = graph_node(g, OP_ScatterElements, 3, (ValueId[]){zeros, at[i], message},
                            (Attr){.reduction = SCATTER_ADD});
    }
    ValueId rows = g_reshape(g, sum[0], &by_row);
    ValueId back = graph_node(g, OP_GatherElements, 2, (ValueId[]){sum[0], at[0]}, (Attr){0});
    analyse(g);
    ok(batch(g, rows) == 0 && batch(g, sum[0]) == 0, "what is added up at places of its own row");
    ok(batch(g, back) == 0, "and is taken from them");
    ok(batch(g, sum[1]) == BATCH_NONE, "at places of all rows it leaves none");
}

static void chunks(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(2, (int64_t)6, (int64_t)B)),
            y = input(g, "y", shape_of(2, (int64_t)B, (int64_t)6));
    BatchOptions opt = {0};
    vec_push(g->arena, &opt.chunk, "x=1");
    vec_push(g->arena, &opt.chunk, "y=replicate");
    batch_analyse(g, 0, &opt, NULL);
    ok(batch(g, x) == 1 && batch(g, y) == BATCH_NONE, "--chunk says otherwise");
}

/* Two inputs joined along the batch, and taken apart again: siamese networks, guidance. */
static void blocks(void)
{
    Graph *g = fresh();
    Shape s = shape_of(2, (int64_t)B, (int64_t)6),
          two = shape_of(3, (int64_t)2, (int64_t)B, (int64_t)6);
    ValueId x = input(g, "x", s), y = input(g, "y", s), fixed = param(g, "p", s),
            token = param(g, "t", shape_of(2, (int64_t)1, (int64_t)6));
    ValueId both = g_unary(g, OP_Tanh, g_concat(g, 2, (ValueId[]){x, y}, 0)),
            three = g_concat(g, 2, (ValueId[]){both, x}, 0);
    ValueId first = g_slice_axis(g, both, 0, 0, B), second = g_slice_axis(g, both, 0, B, B),
            diff = g_sub(g, first, second);
    ValueId pair = g_reshape(g, both, &two), odd = g_slice_axis(g, both, 0, 1, B);
    ValueId mine = g_concat(g, 2, (ValueId[]){x, fixed}, 0),
            other = g_concat(g, 2, (ValueId[]){both, token}, 0);
    ValueId wrong =
        g_add(g, g_slice_axis(g, three, 0, 0, 2 * B),
              g_reshape(g, g_concat(g, 2, (ValueId[]){x, y}, 1), &(Shape){2, {2 * B, 6}}));
    ValueId parts = g_split(g, three, 0, 2, (int64_t[]){2 * B, B}),
            last = g_sub(g, graph_out(g, parts, 1), x), front = g_sub(g, parts, both);
    analyse(g);
    ok(batch(g, last) == 0 && batch(g, front) == 0,
       "one block and two, taken apart, hold the rows as one and two do");
    ok(batch(g, both) == 0 && batch(g, three) == 0 && batch(g, pair) == 1,
       "blocks of rows one after the other are followed");
    ok(batch(g, first) == 0 && batch(g, second) == 0 && batch(g, diff) == 0,
       "each block taken out holds the rows");
    ok(batch(g, odd) == BATCH_MIXED && batch(g, mine) == BATCH_MIXED &&
           batch(g, other) == BATCH_MIXED,
       "a part that is no block, a block that is no rows: they are not tracked");
    ok(batch(g, wrong) == BATCH_MIXED, "x0 x1 .. y0 y1 .. is not x0 y0 x1 y1 ..");
    ok(uneven.n > 0, "and rows are all or none");
}

/* for r in range(B): ... x[r] ...; torch.stack(...) */
static void one_by_one(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(2, (int64_t)B, (int64_t)6)), row[B], turned[B], y[B];
    for (int r = 0; r < B; r++) {
        ValueId z =
            g_unary(g, OP_Tanh, g_reshape(g, g_slice_axis(g, x, 0, r, 1), &(Shape){1, {6}}));
        row[r] = turned[B - 1 - r] = g_reshape(g, z, &(Shape){2, {1, 6}});
        y[r] = g_reshape(g, g_reduce(g, OP_ReduceSum, z, 1, (int64_t[]){0}), &(Shape){1, {1}});
    }
    ValueId all = g_concat(g, B, row, 0), back = g_concat(g, B, turned, 0),
            some = g_concat(g, B - 1, row, 0), sums = g_concat(g, B, y, 0);
    ValueId beside = g_concat(g, B, row, 1), pair = g_add(g, row[0], row[1]);
    analyse(g);
    ok(batch(g, all) == 0 && batch(g, sums) == 0,
       "rows taken one by one and put together in order are the rows");
    ok(batch(g, back) == BATCH_MIXED && batch(g, some) == BATCH_MIXED &&
           batch(g, pair) == BATCH_MIXED,
       "in another order, or some of them, they are not");
    ok(batch(g, beside) == 1, "they may be put together in any dimension");
}

/* Conditional and modulated convolutions: each sample has its own weights. */
static void groups(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(4, (int64_t)B, (int64_t)3, (int64_t)5, (int64_t)5)),
            a = input(g, "a", shape_of(2, (int64_t)B, (int64_t)2));
    ValueId w = g_matmul(g, a, param(g, "w", shape_of(2, (int64_t)2, (int64_t)6 * 3)));
    ValueId one = g_reshape(g, x, &(Shape){4, {1, B * 3, 5, 5}}),
            own = g_reshape(g, w, &(Shape){4, {B * 6, 3, 1, 1}});
    int64_t ones[] = {1, 1}, none[] = {0, 0, 0, 0};
    Attr attr = {.n = 2, .stride = ones, .dilation = ones, .pad = none, .group = B};
    ValueId y = graph_node(g, OP_Conv, 2, (ValueId[]){one, own}, attr),
            back = g_reshape(g, y, &(Shape){4, {B, 6, 5, 5}});
    ValueId shared = graph_node(
        g, OP_Conv, 2,
        (ValueId[]){one,
                    param(g, "v", shape_of(4, (int64_t)B * 6, (int64_t)3, (int64_t)1, (int64_t)1))},
        attr);
    analyse(g);
    ok(batch(g, y) == 1 && batch(g, back) == 0, "samples as groups of a convolution are followed");
    ok(batch(g, shared) == BATCH_MIXED, "weights for each row of the model's shapes are not");
    ok(uneven.n > 0 && strstr(uneven.at[0], "groups"), "and the number of groups is fixed: %s",
       uneven.n ? uneven.at[0] : "");
}

/* The last token of each row, out of all rows flattened: torch.onnx's x[arange(B), place]. */
static void flattened(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(3, (int64_t)B, (int64_t)6, (int64_t)10)),
            score = input(g, "s", shape_of(2, (int64_t)B, (int64_t)6));
    ValueId flat = g_reshape(g, x, &(Shape){2, {B * 6, 10}});
    ValueId place =
        g_reshape(g, graph_node(g, OP_ArgMax, 1, &score, (Attr){.axis = 1}), &(Shape){1, {B}});
    int64_t first[B], late[B];
    for (int r = 0; r < B; r++) {
        first[r] = r * 6;
        late[r] = r * 6 + 1;
    }
    ValueId good = g_gather(g, flat, g_add(g, place, g_ints(g, 1, (int64_t[]){B}, first)), 0);
    ValueId bad = g_gather(g, flat, g_add(g, place, g_ints(g, 1, (int64_t[]){B}, late)), 0),
            any = g_gather(g, flat, place, 0);
    ValueId given = index_input(g, "at", shape_of(2, (int64_t)B, (int64_t)3));
    int64_t base[B];
    memcpy(base, first, sizeof base);
    ValueId near = g_reshape(g,
                             g_add(g, g_sub(g, given, g_ints(g, 0, NULL, (int64_t[]){1})),
                                   g_ints(g, 2, (int64_t[]){B, 1}, base)),
                             &(Shape){1, {B * 3}}),
            of_row = g_gather(g, flat, near, 0);
    ValueId back = g_reshape(g, of_row, &(Shape){3, {B, 3, 10}});
    ValueId in_plane = index_input(g, "p", shape_of(3, (int64_t)B, (int64_t)2, (int64_t)4));
    int64_t plane[2 * B], beyond[2 * B];
    for (int i = 0; i < 2 * B; i++) {
        plane[i] = i * 3;
        beyond[i] = i * 3 + (i % 2) * 3;
    }
    ValueId of_plane =
        g_gather(g, flat, g_add(g, in_plane, g_ints(g, 3, (int64_t[]){B, 2, 1}, plane)), 0);
    ValueId of_next =
        g_gather(g, flat, g_add(g, in_plane, g_ints(g, 3, (int64_t[]){B, 2, 1}, beyond)), 0);
    analyse(g);
    ok(batch(g, of_row) == 0 && batch(g, back) == 0,
       "neighbours that the data name are of their own row");
    ok(batch(g, of_plane) == 0 && batch(g, of_next) == BATCH_MIXED,
       "a place in a plane of a row is of that row, where the plane is");
    ok(batch(g, good) == 0, "row * length + a place within the length stays in its row");
    ok(batch(g, bad) == BATCH_MIXED && batch(g, any) == BATCH_MIXED,
       "one more may be the next row's, without the row it is the first's");
}

/* What the same rows in one larger batch would yield. */
static void meetings(void)
{
    Graph *g = fresh();
    Shape s = shape_of(2, (int64_t)B, (int64_t)6);
    ValueId x = input(g, "x", s), w = param(g, "w", shape_of(2, (int64_t)6, (int64_t)6)),
            z = g_matmul(g, x, w);
    int64_t both[] = {0, 1};
    ValueId mean = g_reduce(g, OP_ReduceMean, z, 2, both),
            sum = g_reduce(g, OP_ReduceSum, z, 1, both),
            one = g_add(g, mean, g_full(g, DT_F32, &(Shape){0}, 1));
    ValueId out[] = {z,
                     mean,
                     g_neg(g, one),
                     sum,
                     g_mul(g, sum, g_full(g, DT_F32, &(Shape){0}, 3)),
                     g_div(g, sum, g_full(g, DT_F32, &(Shape){0}, B * 6)),
                     g_unary(g, OP_Exp, mean),
                     g_reduce(g, OP_ReduceMax, z, 1, both),
                     g_neg(g, w),
                     g_matmul(g, z, g_swap_last(g, z)),
                     g_reduce(g, OP_ReduceSum, g_matmul(g, z, g_swap_last(g, z)), 2, both),
                     g_add(g, sum, g_slice_axis(g, w, 0, 0, 1))};
    enum { N = sizeof out / sizeof *out };
    static const OutputMerge how[N] = {MERGE_ROWS, MERGE_MEAN, MERGE_MEAN, MERGE_SUM,
                                       MERGE_SUM,  MERGE_NONE, MERGE_NONE, MERGE_NONE,
                                       MERGE_LAST, MERGE_NONE, MERGE_NONE, MERGE_NONE};
    for (int i = 0; i < N; i++)
        vec_push(g->arena, &g->output, out[i]);
    analyse(g);
    for (int i = 0; i < N; i++)
        ok(notes.output.at[i].how == how[i] &&
               (how[i] == MERGE_NONE) == (notes.output.at[i].why != NULL),
           "microbatches meet in output %d: %s", i,
           notes.output.at[i].why ? notes.output.at[i].why : "");
    ok(strstr(notes.output.at[9].why, "contrastive") != NULL && mixes.n > 0,
       "a contrastive head is called one");
    notes = (BatchNotes){.target = NONE, .loss = out[10]};
    batch_analyse(g, 0, NULL, &notes);
    ok(notes.loss_why && strstr(notes.loss_why, "contrastive"),
       "a loss of it is not the minibatch's");
    notes = (BatchNotes){.target = NONE, .loss = out[6]};
    batch_analyse(g, 0, NULL, &notes);
    ok(!notes.loss_why, "of another loss that does not add up that is not said");
}

static ValueId target;

/* A loss of a prediction [6, B, 3] whose classes are last: where is its target cut?  rows: of the
 * model. */
static int target_of(int64_t rows, int64_t steps, bool known)
{
    Graph *g = fresh();
    g->batch = rows;
    ValueId x = input(g, "x", shape_of(3, rows, steps, (int64_t)3)),
            y = g_transpose(g, x, (int64_t[]){1, 0, 2});
    if (!known)
        y = g_add(g, y, g_unary(g, OP_Exp, g_reshape(g, x, &(Shape){3, {steps, rows, 3}})));
    target = index_input(g, "target", shape_of(2, steps, rows));
    ValueId wanted = g_reshape(g, g_cast(g, target, DT_I32), &(Shape){3, {steps, rows, 1}});
    ValueId hit = g_binary(g, OP_Equal, g_iota(g, DT_I32, 3, 2, 3), wanted);
    g_reduce(g, OP_ReduceSum, g_where(g, hit, y, g_like(g, y, 0)), 3, (int64_t[]){0, 1, 2});
    notes = (BatchNotes){.target = target, .loss = NONE};
    batch_analyse(g, 0, NULL, &notes);
    return batch(g, target);
}

static void targets(void)
{
    ok(target_of(B, 6, true) == 1 && !notes.target_why,
       "a target is cut where the prediction has its rows");
    ok(target_of(B, 2 * B, true) == 1 && target_of(B, B, true) == 1,
       "also when its first dimension could be it by size");
    ok(target_of(1, 6, true) == 1 && !notes.target_why, "and in shapes of one row");
    ok(target_of(B, 2 * B, false) == 0 && notes.target_why,
       "of a prediction whose rows are lost nobody knows: %s",
       notes.target_why ? notes.target_why : "");
}

/* Exports of one row: sizes do not tell it from other dimensions of 1, nor [S * rows, E] from [S,
 * rows * E]. */
static void one_row(void)
{
    Graph *g = fresh();
    g->batch = 1;
    ValueId x = input(g, "x", shape_of(3, (int64_t)1, (int64_t)5, (int64_t)8)),
            w = param(g, "w", shape_of(2, (int64_t)8, (int64_t)8));
    ValueId seq = g_transpose(g, x, (int64_t[]){1, 0, 2}),
            flat = g_reshape(g, seq, &(Shape){2, {5, 8}}), y = g_matmul(g, flat, w);
    ValueId heads = g_transpose(g, g_reshape(g, y, &(Shape){3, {5, 2, 4}}), (int64_t[]){1, 0, 2});
    ValueId scores = g_softmax(g, g_matmul(g, heads, g_swap_last(g, heads)), 2),
            back = g_transpose(g, g_matmul(g, scores, heads), (int64_t[]){1, 0, 2});
    ValueId z = g_matmul(g, g_reshape(g, back, &(Shape){2, {5, 8}}), w),
            out = g_transpose(g, g_reshape(g, z, &(Shape){3, {5, 1, 8}}), (int64_t[]){1, 0, 2});
    ValueId first = g_reshape(g, g_slice_axis(g, x, 1, 0, 1), &(Shape){2, {1, 8}}),
            logits = g_matmul(g, first, g_swap_last(g, first));
    ValueId tall = g_reshape(g, g_neg(g, first), &(Shape){3, {1, 1, 8}}),
            wide = g_add(g, tall, param(g, "p", shape_of(3, (int64_t)5, (int64_t)1, (int64_t)8)));
    ValueId outs[] = {out, logits, g_reduce(g, OP_ReduceMean, z, 2, (int64_t[]){0, 1}),
                      g_reduce(g, OP_ReduceSum, z, 2, (int64_t[]){0, 1}), wide};
    static const OutputMerge how[] = {MERGE_ROWS, MERGE_NONE, MERGE_MEAN, MERGE_SUM, MERGE_ROWS};
    for (int i = 0; i < 5; i++)
        vec_push(g->arena, &g->output, outs[i]);
    analyse(g);
    ok(batch(g, y) == 0 && batch(g, z) == 0 && batch(g, out) == 0,
       "a row merged with the sequence for a product is found again");
    ok(batch(g, heads) == 0 && batch(g, scores) == 0, "and with the heads for attention");
    ok(batch(g, wide) == 1, "a dimension of 1 that becomes larger was not the row's");
    for (int i = 0; i < 5; i++)
        ok(notes.output.at[i].how == how[i], "one row: microbatches meet in output %d: %s", i,
           notes.output.at[i].why ? notes.output.at[i].why : "");
}

/* A state that begins as constants, exported for one row, computed with four. */
static void one_row_in_steps(void)
{
    static const int rows[] = {0, 0, 0, 0};
    Graph *g = fresh(), *b = body_new(g);
    const Shape one = shape_of(2, (int64_t)1, (int64_t)8);
    b->batch = g->batch = 1;
    ValueId h = graph_input(b, "h", DT_F32, &one), z = graph_input(b, "x", DT_F32, &one);
    ValueId x = input(g, "x", shape_of(3, (int64_t)1, (int64_t)5, (int64_t)8));
    h = g_unary(b, OP_Tanh, g_add(b, h, z));
    vec_push(b->arena, &b->output, h);
    vec_push(b->arena, &b->output, h);
    ValueId y = g_recurrence(g, b, (Recurrence){.states = 1, .sequences = 1, .rows = rows},
                             (ValueId[]){g_full(g, DT_F32, &one, 0),
                                         g_transpose(g, x, (int64_t[]){1, 0, 2})});
    ValueId all = graph_out(g, y, 1);
    vec_push(g->arena, &g->output, all);
    analyse(g);
    Ids list = {0};
    for (NodeId n = 0; n < g->node.n; n++)
        vec_push(g->arena, &list, n);
    graph_resize(g, B, &list);
    ok(val(g, all)->shape.d[1] == B, "a state that begins as constants has as many rows");
}

static void said(void)
{
    Graph *g = fresh();
    Shape s = shape_of(2, (int64_t)B, (int64_t)6);
    ValueId x = input(g, "x", s), y = g_add(g, x, param(g, "p", s));
    g->value.at[y].name = "y";
    vec_push(g->arena, &g->output, y);
    vec_push(g->arena, &g->output_name, "y");
    analyse(g);
    ok(notes.output.at[0].how == MERGE_NONE, "an output that is not tracked");
    BatchOptions opt = {0};
    vec_push(g->arena, &opt.merge, "y=0");
    notes = (BatchNotes){.target = NONE, .loss = NONE};
    batch_analyse(g, 0, &opt, &notes);
    ok(notes.output.at[0].how == MERGE_ROWS && notes.uneven.n == 1,
       "has its rows where --merge says, when all are there");
}

static void loss_does_not_mix(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(2, (int64_t)B, (int64_t)6)),
            scale = input(g, "loss_scale", shape_of(0));
    ValueId y = g_softmax(g, x, 1), sum = g_reduce(g, OP_ReduceSum, y, 2, (int64_t[]){0, 1});
    Shape scalar = shape_of(0);
    ValueId loss = g_mul(g, g_reshape(g, sum, &scalar), scale);
    analyse(g);
    ok(batch(g, loss) == BATCH_NONE && mixes.n == 0 && uneven.n == 0,
       "a loss over the rows mixes nothing");
    ValueId z = g_softmax(g, x, 0);
    analyse(g);
    ok(batch(g, z) == 0 && mixes.n == 1, "softmax over the rows does: %s",
       mixes.n ? mixes.at[0] : "");
}

/* Rows in the order of their lengths go through `between` and are put back; is it told that the
 * order does not matter? */
typedef ValueId Between(Graph *g, ValueId sorted, ValueId x);
static bool unsorts(Between *between)
{
    Graph *g = fresh();
    Shape s = shape_of(2, (int64_t)B, (int64_t)6);
    ValueId x = input(g, "x", s), lengths = input(g, "lengths", shape_of(1, (int64_t)B));
    Attr sort = {.axis = 0, .k = B, .largest = 1}, back = {.axis = 0, .k = B};
    NodeId n = g->node.n;
    graph_node(g, OP_TopK, 1, &lengths, sort);
    ValueId order = g->node.at[n].out[1];
    n = g->node.n;
    graph_node(g, OP_TopK, 1, &order, back);
    ValueId inverse = g->node.at[n].out[1], y = between(g, g_gather(g, x, order, 0), x);
    vec_push(g->arena, &g->output, g_gather(g, y, inverse, 0));
    BatchOptions opt = {0};
    graph_unsort(g, &opt);
    return g->output.at[0] == y;
}
static ValueId each(Graph *g, ValueId sorted, ValueId x)
{
    (void)x;
    return g_unary(g, OP_Tanh, g_add(g, sorted, param(g, "b", shape_of(1, (int64_t)6))));
}
static ValueId with_unsorted(Graph *g, ValueId sorted, ValueId x)
{
    return g_add(g, g_unary(g, OP_Tanh, sorted), x);
}
static ValueId up_to_each(Graph *g, ValueId sorted, ValueId x)
{
    (void)x;
    return graph_node(g, OP_CumSum, 1, &sorted, (Attr){.axis = 0});
}
static ValueId by_position(Graph *g, ValueId sorted, ValueId x)
{
    (void)x;
    static float place[B] = {0, 1, 2, 3};
    Shape s = shape_of(2, (int64_t)B, (int64_t)1);
    return g_add(g, sorted, graph_const(g, "place", (Tensor){DT_F32, s, place}));
}
static void unsorted(void)
{
    ok(unsorts(each), "rows that are sorted, computed one by one and put back need no sorting");
    ok(!unsorts(with_unsorted), "they do where they meet rows that are not sorted");
    ok(!unsorts(up_to_each), "and where one is made of those before it");
    ok(!unsorts(by_position), "and where it counts how many come before it");
}

int main(void)
{
    moves();
    products();
    gathers();
    row_indices();
    nodes_of_rows();
    chunks();
    blocks();
    one_by_one();
    groups();
    flattened();
    meetings();
    targets();
    one_row();
    one_row_in_steps();
    said();
    loss_does_not_mix();
    unsorted();
    while (arenas > 0)
        arena_free(arena[--arenas]);
    return tap_done();
}

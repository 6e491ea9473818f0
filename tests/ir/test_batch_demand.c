/*
 * test_batch_demand.c - what a value of the rows demands of operands that have none by themselves:
 * a token expanded to every row, learned queries, constants and tables whose rows are equal.
 */
#include "batch_graph.h"

static void on_demand(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(3, (int64_t)B, (int64_t)6, (int64_t)10)),
            token = param(g, "cls", shape_of(3, (int64_t)1, (int64_t)1, (int64_t)10));
    Shape one = shape_of(3, (int64_t)B, (int64_t)1, (int64_t)10),
          full = shape_of(3, (int64_t)B, (int64_t)6, (int64_t)10);
    ValueId tokens = g_expand(g, token, &one), seq = g_concat(g, 2, (ValueId[]){tokens, x}, 1);
    float *same = arena_array(g->arena, float, B * 60),
          *other = arena_array(g->arena, float, B * 60);
    for (int i = 0; i < B * 60; i++) {
        same[i] = (float)(i % 60);
        other[i] = (float)(i * i);
    }
    ValueId c = graph_const(g, "c", (Tensor){DT_F32, full, same}),
            e = graph_const(g, "e", (Tensor){DT_F32, full, other});
    ValueId plus = g_add(g, x, c), bad = g_add(g, x, e), ones = g_full(g, DT_F32, &full, 1);
    ValueId y = g_mul(g, x, ones), q = param(g, "q", full), fixed = g_add(g, x, q);
    analyse(g);
    ok(batch(g, tokens) == 0 && batch(g, seq) == 0,
       "a token expanded to every row takes the rows' dimension");
    ok(batch(g, plus) == 0, "a constant with equal rows shrinks with the batch");
    ok(batch(g, bad) == BATCH_MIXED && batch(g, fixed) == BATCH_MIXED,
       "other constants and parameters of the batch's size do not");
    ok(batch(g, y) == 0, "a filled constant does");
    ok(batch(g, c) == BATCH_NONE, "the constant itself stays as it is for its other users");
    graph_verify(g);
}

/* Queries that are learned, for each row, with their heads in front of the batch, as the data's. */
static void learned_heads(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(3, (int64_t)B, (int64_t)5, (int64_t)8)),
            w = param(g, "queries", shape_of(3, (int64_t)1, (int64_t)3, (int64_t)8));
    Shape every = shape_of(3, (int64_t)B, (int64_t)3, (int64_t)8);
    ValueId q = g_expand(g, w, &every), heads[2], both[2];
    for (int i = 0; i < 2; i++) {
        ValueId of = i ? x : q, part[2];
        for (int h = 0; h < 2; h++)
            part[h] = g_slice(g, of, (int64_t[]){0, 0, 4 * h}, (int64_t[]){B, i ? 5 : 3, 4},
                              (int64_t[]){1, 1, 1});
        both[i] = graph_node(g, OP_Concat, 2, part, (Attr){.axis = 0});
    }
    heads[0] = g_transpose(g, both[1], (int64_t[]){0, 2, 1});
    heads[1] = graph_node(g, OP_MatMul, 2, (ValueId[]){both[0], heads[0]}, (Attr){0});
    analyse(g);
    ok(batch(g, heads[1]) == 0 && batch(g, q) == 0, "learned queries have heads before rows");
}

/* Of what is no data, on demand: a table's rows by equal places, pairs of row and place. */
static void demanded_indices(void)
{
    Graph *g = fresh();
    ValueId x = input(g, "x", shape_of(3, (int64_t)B, (int64_t)6, (int64_t)8)),
            w = param(g, "positions", shape_of(2, (int64_t)50, (int64_t)8));
    int64_t *at = arena_array(g->arena, int64_t, B * 6);
    for (int i = 0; i < B * 6; i++)
        at[i] = i % 6;
    Shape every = shape_of(3, (int64_t)B, (int64_t)50, (int64_t)8),
          behind = shape_of(3, (int64_t)50, (int64_t)B, (int64_t)8);
    ValueId index = g_ints(g, 3, (int64_t[]){B, 6, 1}, at);
    ValueId shuffled = g_ints(g, 3, (int64_t[]){B, 1, 1}, (int64_t[]){3, 1, 7, 2});
    ValueId flat = g_ints(g, 2, (int64_t[]){6, 1}, at), wide = g_expand(g, w, &every);
    ValueId beside = g_expand(g, g_reshape(g, w, &(Shape){3, {50, 1, 8}}), &behind);
    ValueId p = graph_node(g, OP_GatherND, 2, (ValueId[]){w, index}, (Attr){0});
    ValueId q = graph_node(g, OP_GatherND, 2, (ValueId[]){wide, index}, (Attr){.batch_dims = 1});
    ValueId r = graph_node(g, OP_GatherND, 2, (ValueId[]){beside, flat}, (Attr){0});
    ValueId u = graph_node(g, OP_GatherND, 2, (ValueId[]){w, shuffled}, (Attr){0});
    ValueId sum = g_add(g, x, p), pairs = g_add(g, x, q), back = g_add(g, x, u);
    ValueId turned = g_add(g, g_transpose(g, x, (int64_t[]){1, 0, 2}), r);
    analyse(g);
    ok(batch(g, sum) == 0 && batch(g, p) == 0,
       "a table's rows by places that repeat are the rows'");
    ok(batch(g, pairs) == 0 && batch(g, wide) == 0, "so are those of a table for each row");
    ok(batch(g, turned) == 1 && batch(g, beside) == 1, "and what stands behind the places");
    ok(batch(g, back) == BATCH_MIXED, "other places of each row are not tracked");
}

int main(void)
{
    on_demand();
    learned_heads();
    demanded_indices();
    while (arenas > 0)
        arena_free(arena[--arenas]);
    return tap_done();
}

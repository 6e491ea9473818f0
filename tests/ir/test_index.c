/*
 * test_index.c - what elements of an input may be because they choose rows of tables: each way that
 * a whole number takes from an input to a Gather, on graphs small enough to know the answer by
 * hand.
 */
#include "ir/facts/facts.h"
#include "tap.h"

enum { B = 2, S = 4 };

static Arena *arena;
static Graph *g;
static IndexBounds bounds;

static Graph *fresh(void)
{
    g = graph_new(arena, "test.onnx");
    g->batch = B;
    return g;
}

static ValueId ids(Shape s) { return graph_input(g, "ids", DT_I64, &s); }
static ValueId rows_ids(void) { return ids(shape_of(2, (int64_t)B, (int64_t)S)); }

static ValueId table(const char *name, int64_t rows)
{
    Shape s = shape_of(2, rows, (int64_t)3);
    return graph_param(g, (Param){.name = name, .initializer = name, .dtype = DT_F32, .shape = s});
}

static void analyse_with(BatchOptions opt)
{
    Ids all = {0};
    batch_analyse(g, 0, &opt, NULL);
    for (NodeId n = 0; n < g->node.n; n++)
        vec_push(arena, &all, n);
    bounds = index_bounds(g, arena, &all);
}

static void analyse(void) { analyse_with((BatchOptions){0}); }

/* Bound number k: these elements of a row, from least to most, of a table of so many rows. */
static bool is(uint32_t k, int64_t first, int64_t step, int64_t count, int64_t least, int64_t most)
{
    const IndexBound *b = k < bounds.n ? &bounds.at[k] : NULL;
    bool good = b && b->first == first && b->step == step && b->count == count &&
                b->least == least && b->most == most;
    if (b && !good)
        printf("# %lld %lld %lld: %lld to %lld\n", (long long)b->first, (long long)b->step,
               (long long)b->count, (long long)b->least, (long long)b->most);
    return good;
}

static void plain(void)
{
    fresh();
    ValueId x = rows_ids(), t = table("wte", 10);
    g_gather(g, t, g_cast(g, x, DT_I32), 0);
    g_gather(g, t, x, 0);
    analyse();
    ok(bounds.n == 1 && is(0, 0, 1, S, -10, 9) && bounds.at[0].rows == 10 &&
           bounds.at[0].input == x && bounds.at[0].table == t && !bounds.at[0].replaced,
       "an embedding: all elements, once; the table is the parameter");
    g_gather(g, g_cast(g, table("small", 7), DT_F16), x, 0);
    analyse();
    ok(bounds.n == 2 && is(1, 0, 1, S, -7, 6) && val(g, bounds.at[1].table)->kind == V_PARAM,
       "a smaller table too; rounded, it is still the parameter");
}

/* What members read of a sequence, chunk by chunk. */
static void chunks(void)
{
    fresh();
    ValueId x = rows_ids(), t = table("wte", 10);
    for (int turn = 0; turn < 2; turn++)
        for (int64_t c = 0; c < 2; c++)
            g_gather(g, t, g_slice_axis(g, x, 1, c * S / 2, S / 2), 0);
    analyse();
    ok(bounds.n == 1 && is(0, 0, 1, S, -10, 9), "parts of a row behind one another are one bound");
}

static void moved(void)
{
    fresh();
    ValueId x = ids(shape_of(3, (int64_t)B, (int64_t)S, (int64_t)2));
    Shape flat = shape_of(1, (int64_t)B * S);
    ValueId kind = g_slice_axis(g, x, 2, 0, 1), color = g_slice_axis(g, x, 2, 1, 1);
    g_gather(g, table("kinds", 5), g_reshape(g, kind, &flat), 0);
    g_gather(g, table("colors", 30), g_slice_axis(g, color, 1, 0, S - 1), 0);
    analyse();
    ok(bounds.n == 2 && is(0, 0, 2, S, -5, 4) && is(1, 1, 2, S - 1, -30, 29),
       "columns of a row choose from tables of their own; what is sliced off chooses nothing");

    fresh();
    x = ids(shape_of(2, (int64_t)S, (int64_t)B));
    ValueId turned = g_transpose(g, x, (int64_t[]){1, 0});
    ValueId part = g_slice_axis(g, turned, 1, 1, 2);
    g_gather(g, table("t", 10), part, 0);
    BatchOptions second = {0};
    vec_push(arena, &second.chunk, "ids=1");
    analyse_with(second);
    ok(bounds.n == 1 && is(0, 1, 1, 2, -10, 9), "samples in the second dimension");

    fresh();
    x = rows_ids();
    g_gather(g, table("t", 10), g_slice_axis(g, x, 0, 0, 1), 0);
    analyse();
    ok(bounds.n == 0, "the first row of a microbatch alone is no bound: any may stand there");
}

static void shifted(void)
{
    fresh();
    ValueId x = rows_ids();
    int64_t offset[] = {0, 100, 200, 300}, dims[] = {S}, one[] = {1};
    g_gather(g, table("all", 400), g_add(g, x, g_ints(g, 1, dims, offset)), 0);
    analyse();
    ok(bounds.n == 4 && is(0, 0, 1, 1, -400, 399) && is(3, 3, 1, 1, -700, 99),
       "fields with an offset each choose from one table");

    fresh();
    x = rows_ids();
    ValueId less = g_sub(g, x, g_ints(g, 1, one, one));
    Shape first = shape_of(2, (int64_t)B, (int64_t)1);
    ValueId begin = g_expand(g, g_ints(g, 1, one, one), &first);
    ValueId all = g_concat(g, 2, (ValueId[]){begin, less}, 1);
    g_gather(g, table("t", 10), all, 0);
    analyse();
    ok(bounds.n == 1 && is(0, 0, 1, S, -9, 10), "one less, behind a constant");

    fresh();
    x = rows_ids();
    g_gather(g, table("t", 10), g_mul(g, x, g_ints(g, 1, one, (int64_t[]){3})), 0);
    g_gather(g, table("u", 10), g_add(g, x, x), 0);
    g_gather(g, table("v", 10), g_binary(g, OP_Max, x, g_like(g, x, 0)), 0);
    analyse();
    ok(bounds.n == 0, "products, sums and maxima are not followed");
}

static void replaced(void)
{
    fresh();
    ValueId x = rows_ids(), ignored = g_like(g, x, -100), none = g_like(g, x, 0);
    ValueId test = g_binary(g, OP_Equal, x, ignored);
    ValueId safe = g_where(g, g_unary(g, OP_Not, test), x, none);
    g_gather(g, table("t", 10), safe, 0);
    analyse();
    ok(bounds.n == 1 && is(0, 0, 1, S, -10, 9) && bounds.at[0].replaced &&
           bounds.at[0].other == -100,
       "an element that equals a constant is replaced: that one is allowed too");

    fresh();
    x = rows_ids();
    test = g_binary(g, OP_Equal, x, g_like(g, x, -1));
    g_gather(g, table("t", 10), g_where(g, test, g_like(g, x, 3), x), 0);
    analyse();
    ok(bounds.n == 1 && bounds.at[0].replaced && bounds.at[0].other == -1, "the other way round");

    fresh();
    x = rows_ids();
    test = g_binary(g, OP_Less, x, g_like(g, x, 0));
    g_gather(g, table("t", 10), g_where(g, test, g_like(g, x, 0), x), 0);
    analyse();
    ok(bounds.n == 0, "a range that is replaced is not followed");
}

static void several_axes(void)
{
    fresh();
    ValueId x = ids(shape_of(3, (int64_t)B, (int64_t)S, (int64_t)2));
    graph_node(g, OP_GatherND, 2, (ValueId[]){table("grid", 20), x}, (Attr){0});
    analyse();
    ok(bounds.n == 2 && is(0, 1, 2, S, -3, 2) && is(1, 0, 2, S, -20, 19),
       "tuples name a place along each axis");

    fresh();
    Shape s = shape_of(2, (int64_t)B, (int64_t)6);
    ValueId scores = graph_input(g, "scores", DT_F32, &s);
    x = ids(shape_of(2, (int64_t)B, (int64_t)1));
    graph_node(g, OP_GatherElements, 2, (ValueId[]){scores, x}, (Attr){.axis = 1});
    analyse();
    ok(bounds.n == 1 && is(0, 0, 1, 1, -6, 5), "an element of each row's scores");
}

int main(void)
{
    arena = arena_new();
    plain();
    chunks();
    moved();
    shifted();
    replaced();
    several_axes();
    arena_free(arena);
    return tap_done();
}

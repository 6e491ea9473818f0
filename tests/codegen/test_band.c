/*
 * test_band.c - which masks leave a band of an attention's scores (ir/facts/attention.c): one
 * attention for each way to write them.  What the code then computes, test_codegen's net "masks"
 * tests.
 */
#include <math.h>
#include <time.h>

#include "codegen/plan/plan.h"
/* its networks are other tests' */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "nets.h"
#include "tap.h"

enum { LEN = 72, LONG = 1056, HEADS = 2, DEPTH = 3 };

static struct {
    int64_t len;
    ValueId (*mask)(Net *, ValueId score);
    bool shown; /* the scores are an output of the model */
} now;
static const double lowest = -3.4028234663852886e38;

static ValueId bools(Net *n, bool (*is)(int64_t, int64_t))
{
    uint8_t *at = arena_array(n->g->arena, uint8_t, now.len * now.len);
    for (int64_t i = 0; i < now.len * now.len; i++)
        at[i] = is(i / now.len, i % now.len);
    return graph_const(n->g, NULL, (Tensor){DT_BOOL, S(1, 1, now.len, now.len), at});
}
static ValueId terms(Net *n, bool (*is)(int64_t, int64_t), float low)
{
    float *at = arena_array(n->g->arena, float, now.len *now.len);
    for (int64_t i = 0; i < now.len * now.len; i++)
        at[i] = is(i / now.len, i % now.len) ? 0 : low;
    return graph_const(n->g, NULL, (Tensor){DT_F32, S(now.len, now.len), at});
}
static bool causal(int64_t i, int64_t j) { return j <= i; }
static bool later(int64_t i, int64_t j) { return j > i; }
static bool window(int64_t i, int64_t j) { return j <= i && i - j < 9; }
static bool prefix(int64_t i, int64_t j) { return j <= i || j < 8; }
static bool hidden_row(int64_t i, int64_t j) { return j <= i && i != 5; }

static ValueId fill(Net *n, double x) { return g_scalar(n->g, DT_F32, x); }
static ValueId unpadded(Net *n) { return net_input(n, "seen", DT_BOOL, S(ROWS, 1, 1, now.len)); }

static ValueId keep(Net *n, ValueId x)
{
    return g_where(n->g, bools(n, causal), x, fill(n, -(double)INFINITY));
}
static ValueId hide(Net *n, ValueId x)
{
    return g_where(n->g, bools(n, later), fill(n, lowest), x);
}
static ValueId slide(Net *n, ValueId x) { return g_add(n->g, x, terms(n, window, (float)lowest)); }
static ValueId add(Net *n, ValueId x) { return g_add(n->g, x, terms(n, causal, -INFINITY)); }
static ValueId from_prefix(Net *n, ValueId x)
{
    return g_add(n->g, x, terms(n, prefix, -INFINITY));
}
static ValueId with_padding(Net *n, ValueId x)
{
    ValueId both[] = {bools(n, causal), unpadded(n)};
    return g_where(n->g, graph_node(n->g, OP_And, 2, both, (Attr){0}), x,
                   fill(n, -(double)INFINITY));
}
static ValueId evenly_padded(Net *n, ValueId x)
{
    ValueId both[] = {bools(n, causal), unpadded(n)};
    return g_where(n->g, graph_node(n->g, OP_And, 2, both, (Attr){0}), x, fill(n, lowest));
}
/* As PyTorch's exporter writes attention: what is NaN behind the Softmax is 0. */
static ValueId keep_guarded(Net *n, ValueId x) { return keep(n, x); }
static ValueId padding_guarded(Net *n, ValueId x) { return with_padding(n, x); }
static ValueId soft(Net *n, ValueId x) { return g_where(n->g, bools(n, causal), x, fill(n, -1e4)); }
static ValueId empty_row(Net *n, ValueId x)
{
    return g_add(n->g, x, terms(n, hidden_row, -INFINITY));
}
static ValueId none(Net *n, ValueId x)
{
    (void)n;
    return x;
}
/* arange <= arange[:, None], too large to be folded */
static ValueId seen_positions(Net *n)
{
    int64_t *at = arena_array(n->g->arena, int64_t, now.len);
    for (int64_t i = 0; i < now.len; i++)
        at[i] = i;
    ValueId pair[] = {graph_const(n->g, NULL, (Tensor){DT_I64, S(now.len), at}),
                      graph_const(n->g, NULL, (Tensor){DT_I64, S(now.len, 1), at})};
    ValueId seen = graph_node(n->g, OP_LessOrEqual, 2, pair, (Attr){0});
    return g_where(n->g, seen, fill(n, 0), fill(n, -(double)INFINITY));
}
static ValueId positions(Net *n, ValueId x) { return g_add(n->g, x, seen_positions(n)); }

static void attention(Net *n)
{
    Graph *g = n->g;
    ValueId x = net_input(n, "x", DT_F32, S(ROWS, HEADS, now.len, DEPTH)), part[3];
    for (int i = 0; i < 3; i++)
        part[i] = net_linear(n, x, DEPTH, DEPTH, false);
    ValueId score = g_matmul(g, part[0], g_swap_last(g, part[1]));
    if (now.shown)
        net_out(n, score);
    ValueId masked = now.mask(n, g_mul(g, score, fill(n, 0.5)));
    ValueId p = g_softmax(g, masked, 3);
    if (now.mask == keep_guarded || now.mask == padding_guarded)
        p = g_where(g, graph_node(g, OP_IsNaN, 1, &p, (Attr){0}), fill(n, 0), p);
    net_out(n, g_matmul(g, p, part[2]));
}

static const struct {
    const char *what;
    ValueId (*mask)(Net *, ValueId);
    int64_t len;
    /* what is expected: one operation, of which a band alone is computed, whose mask is read */
    bool shown, one, causal, reads;
    Band band;
} way[] = {
    {"Where(causal, x, -inf)", keep, LEN, false, true, true, false, {1 - LEN, 0}},
    {"Where(causal, x, -inf), guarded", keep_guarded, LEN, false, true, true, false, {1 - LEN, 0}},
    {"causal and what data hides, guarded",
     padding_guarded,
     LEN,
     false,
     false,
     false,
     false,
     {0, 0}},
    {"Where(later, finfo.min, x)", hide, LEN, false, true, true, false, {1 - LEN, 0}},
    {"x + (0 or -inf)", add, LEN, false, true, true, false, {1 - LEN, 0}},
    {"x + (0 or finfo.min), a window", slide, LEN, false, true, true, false, {-8, 0}},
    {"a prefix that all see", from_prefix, 160, false, true, true, true, {-159, 7}},
    {"causal and what data hides, -inf", with_padding, LEN, false, true, true, true, {1 - LEN, 0}},
    {"arange <= arange, not folded", positions, LONG, false, true, true, false, {1 - LONG, 0}},
    {"scores that the model puts out", keep, LEN, true, false, false, false, {0, 0}},
    {"causal and what data hides, finfo.min: a row may be hidden whole and is even then",
     evenly_padded,
     LEN,
     false,
     true,
     false,
     true,
     {0, 0}},
    {"-1e4: scores may be lower", soft, LEN, false, true, false, true, {0, 0}},
    {"a row that is hidden whole", empty_row, LEN, false, true, false, true, {0, 0}},
    {"no mask", none, LEN, false, true, false, false, {0, 0}},
    {"one tile", keep, 32, false, true, true, false, {-31, 0}},
};

static bool same(Band x, Band y) { return x.below == y.below && x.above == y.above; }

/* Each layer makes a mask of its own: it is computed for the first, whoever asks. */
static void layers(void)
{
    Arena *a = arena_new();
    Net n = {.g = graph_new(a, "test.onnx")};
    clock_t first = 0, others = 0;
    bool right = true;
    now.len = LONG;
    for (int layer = 0; layer < 32; layer++) {
        Masks masks = {.g = n.g, .a = a};
        ValueId v = seen_positions(&n);
        clock_t begun = clock();
        Mask m = mask_of(&masks, v, MASK_ZERO);
        *(layer ? &others : &first) += clock() - begun;
        right &= m.full && m.constant && same(m.band, (Band){1 - LONG, 0});
    }
    ok(right, "a triangle that is computed");
    ok(others < first, "is computed once for 32 layers (%ld and %ld ticks)", (long)first,
       (long)others);
    Masks masks = {.g = n.g, .a = a};
    now.len = LEN;
    Mask hidden = mask_of(&masks, terms(&n, prefix, -INFINITY), MASK_ZERO);
    ok(hidden.constant && !hidden.full && same(hidden.band, (Band){1 - LEN, 7}),
       "a prefix is a band that is not full");
    arena_free(a);
}

/* The attention of the Pipe; NULL: there is none. */
static const AttentionAttr *found(const Pipe *p)
{
    for (uint32_t i = 0; i < p->stage.at[0].forward.n; i++) {
        const Node *n = &p->graph->node.at[p->stage.at[0].forward.at[i]];
        if (n->op == OP_FlashAttention)
            return n->attr.attention;
    }
    return NULL;
}

int main(void)
{
    layers();
    for (unsigned i = 0; i < sizeof way / sizeof *way; i++) {
        Arena *a = arena_new();
        now.len = way[i].len;
        now.mask = way[i].mask;
        now.shown = way[i].shown;
        const AttentionAttr *t = found(net_pipe(a, attention, 1, 0));
        Band band = {0, 0};
        if (t && t->causal)
            band = (Band){t->window ? t->diagonal - t->window + 1 : 1 - way[i].len, t->diagonal};
        ok((t != NULL) == way[i].one &&
               (!t || (t->causal == way[i].causal && (t->mask || t->bias) == way[i].reads &&
                       same(band, way[i].band))),
           "%s%s", way[i].what,
           !t          ? ": two products"
           : t->causal ? ""
                       : ": all is computed");
        arena_free(a);
    }
    return tap_done();
}

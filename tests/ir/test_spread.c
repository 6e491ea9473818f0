/*
 * test_spread.c - law 11: what the column SPREAD of ops.def says is true.  Of every row, of every
 * node of the cases below and of vjp_cases.h, every way for 2, 3 and 4 chunks (spread_check.h), of
 * dimensions that they do not divide, too.
 */
#include "members.h"
#include "spread_check.h"
#include "tap.h"

static struct {
    unsigned ways, wrong;
} count[OP_COUNT];

/* ---- every way of a graph's nodes ------------------------------------------------------------ */

/* All places of a few groups, as if somebody had asked for them. */
static Places *all_groups(const Graph *g, Arena *a, int chunks)
{
    Places *known = arena_array(a, Places, g->value.n);
    for (ValueId v = 0; v < g->value.n; v++)
        for (int d = 0; d < val(g, v)->shape.rank; d++)
            for (int64_t n = 2; n <= 6; n++)
                for (int mirrored = 0; mirrored < 2; mirrored++)
                    if (place_fits(&val(g, v)->shape, (Place){d, n, mirrored}, chunks))
                        vec_push(a, &known[v], ((Place){d, n, mirrored}));
    return known;
}

static void print_way(const Graph *g, NodeId id, const SpreadWay *way, int chunks)
{
    const Node *n = &g->node.at[id];
    printf("# %s in %d chunks:", op_name(n->op), chunks);
    for (uint32_t i = 0; i < n->nin + n->nout; i++) {
        Place at = way_slot(way, n, i);
        const Value *v = val(g, node_slot(n, i));
        printf("%s %s ", i == n->nin ? " ->" : "", shape_print(g->arena, v->dtype, &v->shape));
        if (at.dim >= 0)
            printf("S(%d, %d)%s", at.dim, (int)at.groups, at.mirrored ? " mirrored" : "");
        else
            printf("%s", at.dim == PLACE_R ? "R" : "P");
    }
    printf("\n");
}

/* How a chunk of it is made; "none": not at all. */
static const char *const nodes_of[OP_COUNT] = {
#define SPREAD(ways, build) #build
#define OP(name, lo, hi, since, import, nin, nout, attrs, shape, grad, eval, spread, ...)          \
    [OP_##name] = spread,
#include "ir/ops.def"
#undef SPREAD
};

/* ways with a dimension that the chunks do not divide */
static unsigned uneven;

static bool is_uneven(const Graph *g, NodeId id, const SpreadWay *way, int chunks)
{
    const Node *n = &g->node.at[id];
    for (uint32_t i = 0; i < n->nin + n->nout; i++)
        if (!place_fits(&val(g, node_slot(n, i))->shape, way_slot(way, n, i), chunks))
            return true;
    return false;
}

static bool has_rule(Op op)
{
    return nodes_of[op] && strcmp(nodes_of[op], "none") != 0 && !op_is_collective(op) &&
           op != OP_Vary;
}

static void check_nodes(T *t)
{
    const Graph *g = t->g;
    NodeId last = g->node.n;
    Tensor *at = evaluate_case(t);
    for (int chunks = 2; chunks <= CHUNKS; chunks++) {
        Arena *a = arena_within(g->arena);
        SpreadOf of = {.g = g, .chunks = chunks, .known = all_groups(g, a, chunks), .uneven = true};
        for (NodeId n = 0; n < last; n++) {
            Op op = g->node.at[n].op;
            SpreadWays ways = {0};
            spread_ways(&of, n, a, &ways);
            for (uint32_t i = 0; i < ways.n && has_rule(op); i++) {
                count[op].ways++;
                uneven += is_uneven(g, n, &ways.at[i], chunks);
                if (way_holds(g, n, at, &ways.at[i], chunks))
                    continue;
                if (count[op].wrong++ < 5)
                    print_way(g, n, &ways.at[i], chunks);
            }
        }
        arena_free(a);
    }
}

/* loss: with what makes a scalar of its outputs */
static void run_case(const Case *c, Dtype real, bool loss)
{
    Arena *a = arena_new();
    T t = {.g = graph_new(a, "test"),
           .seed = (uint64_t)c->op * 7919 + 5,
           .op = c->op,
           .real = real,
           .lo = c->lo,
           .hi = c->hi};
    c->build(&t);
    if (loss)
        make_loss(&t);
    check_nodes(&t);
    arena_free(a);
}

/* ---- shapes that divide, and such that do not ------------------------------------------------ */

static ValueId bools(T *t, Shape s)
{
    uint8_t *b = arena_array(t->g->arena, uint8_t, shape_elements(&s));
    for (int64_t i = 0; i < shape_elements(&s); i++)
        b[i] = uniform(t) < 0.6;
    return input(t, DT_BOOL, s, b);
}

static ValueId ints(T *t, Shape s, int64_t lo, int64_t hi)
{
    int64_t *v = arena_array(t->g->arena, int64_t, shape_elements(&s));
    for (int64_t i = 0; i < shape_elements(&s); i++)
        v[i] = lo + (int64_t)(uniform(t) * (double)(hi - lo + 1));
    return input(t, DT_I64, s, v);
}

/* An elementwise operation on what broadcasts; odd_sizes: that 2, 3 and 4 do not divide. */
static bool odd_sizes;
static void each(T *t)
{
    static const char *const logic[] = {"And", "Or", "Xor", "Not"};
    const Shape even[4] = {S(4, 1, 12), S(6, 12), (Shape){0}, S(4, 6, 1)},
                odd[4] = {S(2, 1, 23), S(23), (Shape){0}, S(17, 1)};
    const Shape *const shapes = odd_sizes ? odd : even;
    const char *name = op_name(t->op);
    bool is_bits = strncmp(name, "Bitwise", 7) == 0, is_logic = false;
    for (unsigned i = 0; i < sizeof logic / sizeof *logic; i++)
        is_logic |= strcmp(name, logic[i]) == 0;
    uint32_t nin = op_takes(t->op, 1) ? 1 : 2;
    for (unsigned i = 0; i < 4; i++) {
        ValueId in[2];
        for (uint32_t k = 0; k < nin; k++) {
            Shape s = shapes[(i + k) % 4];
            in[k] = is_logic ? bools(t, s) : is_bits ? ints(t, s, 0, 99) : real(t, s, 0.3, 0.9);
        }
        out(t, node(t, nin, in, (Attr){.to = DT_F64}));
    }
}
static void choice(T *t)
{
    ValueId c = bools(t, S(6, 12)), x = real(t, S(4, 1, 12), -1, 1), y = real(t, S(4, 6, 1), -1, 1);
    out(t, node3(t, c, x, y, (Attr){0}));
    out(t, node3(t, c, g_scalar(t->g, t->real, 0), y, (Attr){0}));
    out(t, node3(t, c, y, g_scalar(t->g, t->real, 0), (Attr){0}));
    out(t, node3(t, c, y, g_scalar(t->g, t->real, 1), (Attr){0}));
}
static void casts(T *t)
{
    ValueId x = real(t, S(4, 6), -2, 2);
    for (int i = 0; i < 3; i++)
        out(t, node1(t, x, (Attr){.to = (Dtype[]){DT_F32, DT_I64, DT_BF16}[i]}));
    out(t, node1(t, g_cast(t->g, x, DT_F32), (Attr){.to = DT_F64}));
}
static void reshapes(T *t)
{
    ValueId x = real(t, S(4, 6, 12), -1, 1), y = real(t, S(2, 1, 24), -1, 1);
    out(t, node1(t, x, (Attr){.n = 2, .dims = I(24, 12)}));
    out(t, node1(t, x, (Attr){.n = 4, .dims = I(4, 6, 3, 4)}));
    out(t, node1(t, x, (Attr){.n = 4, .dims = I(4, 6, 4, 3)}));
    out(t, node1(t, x, (Attr){.n = 3, .dims = I(1, 4, 72)}));
    out(t, node1(t, x, (Attr){.n = 3, .dims = I(8, 9, 4)}));
    out(t, node1(t, x, (Attr){.n = 1, .dims = I(288)}));
    out(t, node1(t, y, (Attr){.n = 4, .dims = I(2, 2, 12, 1)}));
    out(t, node1(t, y, (Attr){.n = 4, .dims = I(2, 3, 1, 8)}));
}
static void moves(T *t)
{
    Graph *g = t->g;
    ValueId x = real(t, S(4, 6, 12), -1, 1);
    out(t, g_transpose(g, x, I(2, 0, 1)));
    out(t, g_expand(g, real(t, S(4, 1, 12), -1, 1), &S(3, 4, 8, 12)));
    out(t, g_expand(g, real(t, (Shape){0}, -1, 1), &S(12)));
    out(t, g_slice(g, x, I(0, 2, 4), I(4, 3, 4), NULL));
    out(t, g_slice(g, x, I(0, 0, 6), I(4, 6, 6), NULL));
    out(t, g_slice(g, x, I(1, 0, 0), I(2, 6, 12), NULL));
    out(t, g_slice(g, x, I(3, 0, 1), I(4, 6, 6), I(-1, 1, 2)));
    out(t, g_split(g, x, 2, 3, I(4, 4, 4)));
    out(t, g_split(g, x, 2, 3, I(8, 4, 0)));
    out(t, g_split(g, x, 2, 2, I(5, 7)));
    out(t, g_concat(g, 2, (ValueId[]){x, real(t, S(4, 6, 24), -1, 1)}, 2));
    out(t, g_concat(g, 3, (ValueId[]){x, real(t, S(4, 5, 12), -1, 1), x}, 1));
    for (int mode = PAD_CONSTANT; mode <= PAD_WRAP; mode++)
        out(t, g_pad(g, x, I(0, 2, 1), I(0, 1, 3), mode, 0));
    out(t, g_pad(g, x, I(0, 2, 1), I(0, 1, 3), PAD_CONSTANT, 0.5));
    out(t, g_unary(g, OP_Identity, x));
    out(t, g_unary(g, OP_StopGradient, x));
    out(t, graph_node(g, OP_Phase, 2, (ValueId[]){x, g_neg(g, x)}, (Attr){0}));
}
static void lookups(T *t)
{
    Graph *g = t->g;
    ValueId table = real(t, S(12, 8), -1, 1), cube = real(t, S(4, 12, 6), -1, 1);
    ValueId at = ints(t, S(4, 6), -12, 11), two = ints(t, S(4, 6, 2), -4, 3);
    for (int64_t row = 0; row < 3; row++)
        out(t, graph_node(g, OP_Gather, 2, (ValueId[]){table, at}, (Attr){.padding_row = 5 * row}));
    out(t, g_gather(g, cube, at, 1));
    out(t, g_gather(g, cube, ints(t, (Shape){0}, -12, 11), 1));
    out(t, g_gather(g, cube, ints(t, S(3), 0, 5), 2));
    out(t, g_gather(g, table, g_cast(g, at, DT_I32), 0));
    ValueId of[2] = {cube, ints(t, S(4, 8, 6), -12, 11)};
    out(t, graph_node(g, OP_GatherElements, 2, of, (Attr){.axis = 1}));
    of[1] = ints(t, S(2, 12, 6), -12, 11);
    out(t, graph_node(g, OP_GatherElements, 2, of, (Attr){.axis = 1}));
    of[1] = two;
    out(t, graph_node(g, OP_GatherND, 2, of, (Attr){0}));
    of[1] = ints(t, S(4, 3, 1), -12, 11);
    out(t, graph_node(g, OP_GatherND, 2, of, (Attr){.batch_dims = 1}));
}
static void scatters(T *t)
{
    Graph *g = t->g;
    ValueId x = real(t, S(4, 12, 6), 0.5, 2), at = ints(t, S(4, 8, 6), -12, 11),
            two = ints(t, S(4, 2), -4, 3);
    int64_t *once = arena_array(g->arena, int64_t, 4 * 8 * 6);
    for (int i = 0; i < 4 * 8 * 6; i++)
        once[i] = (i / 6 * 5 + i) % 12;
    for (int i = 0; i < 4; i++) /* rows of a column differ */
        for (int k = 0; k < 48; k++)
            once[i * 48 + k] = (k / 6 + i + k % 6) % 12;
    for (int mode = SCATTER_NONE; mode <= SCATTER_MIN; mode++) {
        ValueId in[3] = {x, mode ? at : whole(t, S(4, 8, 6), once), real(t, S(4, 8, 6), 0.5, 2)};
        out(t, graph_node(g, OP_ScatterElements, 3, in, (Attr){.axis = 1, .reduction = mode}));
        in[1] = mode ? two : whole(t, S(4, 2), I(0, 0, 1, 2, 3, 3, -1, 5));
        in[2] = real(t, S(4, 6), 0.5, 2);
        out(t, graph_node(g, OP_ScatterND, 3, in, (Attr){.reduction = mode}));
    }
}
static void reductions(T *t)
{
    Graph *g = t->g;
    static const Op ops[] = {OP_ReduceSum, OP_ReduceMean, OP_ReduceMax, OP_ReduceMin,
                             OP_ReduceProd};
    ValueId x = real(t, S(4, 6, 12), 0.5, 2), n = ints(t, S(4, 12), -9, 9);
    /* equal maxima */
    ValueId tie = g_cast(g, g_cast(g, g_mul(g, x, g_like(g, x, 2)), DT_I64), t->real);
    for (unsigned i = 0; i < 5; i++) {
        out(t, g_reduce(g, ops[i], x, 1, I(1)));
        out(t, g_reduce(g, ops[i], x, 2, I(0, 2)));
        if (ops[i] != OP_ReduceMean)
            out(t, g_reduce(g, ops[i], n, 1, I(1)));
        if (ops[i] == OP_ReduceMax || ops[i] == OP_ReduceMin) {
            Attr first = {.n = 1, .axes = I(2), .to_first = 1};
            out(t, graph_node(g, ops[i], 1, &tie, first));
            out(t, graph_node(g, ops[i], 1, &tie, (Attr){.n = 1, .axes = I(2)}));
        }
    }
}
static void along(T *t)
{
    Graph *g = t->g;
    ValueId x = real(t, S(4, 6, 12), -2, 2);
    static const Op ops[] = {OP_ArgMax, OP_ArgMin, OP_CumSum, OP_TopK, OP_Softmax, OP_LogSoftmax};
    for (unsigned i = 0; i < 6; i++)
        for (int axis = 1; axis <= 2; axis++)
            out(t,
                graph_node(g, ops[i], 1, &x, (Attr){.axis = axis, .k = ops[i] == OP_TopK ? 4 : 0}));
    out(t, graph_node(g, OP_Count, 1, &x, (Attr){.n = 2, .axes = I(0, 2), .to = DT_F32}));
}
static void products(T *t)
{
    matmul_shape(t, S(4, 6), S(6, 12));
    matmul_shape(t, S(4, 3, 8), S(8, 6));
    matmul_shape(t, S(4, 6), S(8, 6, 3));
    matmul_shape(t, S(4, 1, 5, 6), S(12, 6, 8));
    matmul_shape(t, S(1, 6, 2, 3), S(4, 6, 3, 4));
}
/* Heads, some with fewer of keys and values, samples and heads in one, masks; queries. */
static void attentions(T *t)
{
    static const AttentionAttr every = {.scale = 0.5},
                               masked = {.scale = 1, .fill = -1e9, .bias = true, .mask = true},
                               causal = {.scale = 1, .fill = -1e9, .causal = true, .diagonal = 1},
                               window = {.scale = 1,
                                         .fill = -1e9,
                                         .causal = true,
                                         .window = 3,
                                         .diagonal = 0,
                                         .bias = true,
                                         .mask = true};
    static const int64_t heads[] = {12, 4, 3, 2, 1};
    Graph *g = t->g;
    ValueId q = real(t, S(2, 12, 12, 3), -1, 1), in[5] = {q};
    for (unsigned i = 0; i < 5; i++) {
        in[1] = real(t, S(2, heads[i], 3, 5), -1, 1);
        in[2] = real(t, S(2, heads[i], 5, 4), -1, 1);
        out(t, graph_node(g, OP_FlashAttention, 3, in, (Attr){.attention = &every}));
        out(t, graph_node(g, OP_FlashAttention, 3, in, (Attr){.attention = &causal}));
    }
    in[3] = real(t, S(12, 12, 5), -1, 1);
    in[4] = bools(t, S(12, 5));
    out(t, graph_node(g, OP_FlashAttention, 5, in, (Attr){.attention = &masked}));
    in[1] = real(t, S(2, 12, 3, 12), -1, 1);
    in[2] = real(t, S(2, 12, 12, 4), -1, 1);
    in[3] = real(t, S(12, 12, 12), -1, 1);
    in[4] = bools(t, S(12, 12));
    out(t, graph_node(g, OP_FlashAttention, 5, in, (Attr){.attention = &window}));
    in[0] = real(t, S(24, 4, 3), -1, 1);
    in[1] = real(t, S(24, 3, 5), -1, 1);
    in[2] = real(t, S(24, 5, 4), -1, 1);
    out(t, graph_node(g, OP_FlashAttention, 3, in, (Attr){.attention = &causal}));
}
static void packed_products(T *t)
{
    Graph *g = t->g;
    ValueId mask = bools(t, S(6)), in[3] = {real(t, S(6, 8), -1, 1), mask, mask};
    in[0] = graph_node(g, OP_Pack, 2, in, (Attr){0});
    in[1] = real(t, S(8, 12), -1, 1);
    out(t, graph_node(g, OP_PackedMatMul, 3, in, (Attr){0}));
    out(t, graph_node(g, OP_Unpack, 2, (ValueId[]){in[0], mask}, (Attr){0}));
    in[1] = mask;
    in[0] = real(t, S(4, 6), -1, 1);
    in[0] = graph_node(g, OP_Pack, 2, in, (Attr){.axis = 1});
    ValueId y[2] = {real(t, S(6, 8), -1, 1), mask};
    in[1] = graph_node(g, OP_Pack, 2, y, (Attr){0});
    out(t, graph_node(g, OP_PackedMatMul, 3, in, (Attr){.axis = 1}));
    in[2] = mask = bools(t, S(4, 6)); /* several */
    in[1] = real(t, S(4, 8, 12), -1, 1);
    in[0] = graph_node(g, OP_Pack, 2, (ValueId[]){real(t, S(4, 6, 8), -1, 1), mask},
                       (Attr){.axis = 1});
    out(t, graph_node(g, OP_PackedMatMul, 3, in, (Attr){0}));
    out(t, graph_node(g, OP_Unpack, 2, (ValueId[]){in[0], mask}, (Attr){.axis = 1}));
    in[0] = real(t, S(4, 12, 6), -1, 1);
    in[1] = real(t, S(4, 6, 8), -1, 1);
    out(t, graph_node(g, OP_PackedMatMul, 3, in, (Attr){.axis = 1}));
}
/* channels, groups of them, one channel a group */
static void convolutions(T *t)
{
    static const int64_t group[] = {1, 2, 4, 12};
    Graph *g = t->g;
    for (unsigned i = 0; i < 4; i++) {
        int64_t n = group[i], in = 12 / n, more = 24 / n;
        Attr at = {.group = n, .n = 1, .stride = I(1), .dilation = I(1), .pad = I(1, 0)};
        ValueId x = real(t, S(4, 12, 5), -1, 1), w = real(t, S(24, in, 3), -1, 1);
        out(t, graph_node(g, OP_Conv, 2, (ValueId[]){x, w}, at));
        at.weight_dims = I(24, in, 2);
        ValueId dy = real(t, S(4, 24, 5), -1, 1);
        out(t, graph_node(g, OP_ConvWeightGrad, 2, (ValueId[]){x, dy}, at));
        at.pad = I(0, 0);
        at.out_dims = I(7);
        w = real(t, S(12, more, 3), -1, 1);
        out(t, graph_node(g, OP_ConvTranspose, 2, (ValueId[]){x, w}, at));
    }
}
static void pools(T *t)
{
    Graph *g = t->g;
    ValueId x = real(t, S(4, 12, 6, 5), -1, 1);
    Attr at = {
        .n = 2, .stride = I(2, 1), .dilation = I(1, 1), .pad = I(1, 0, 0, 0), .kernel = I(3, 2)};
    out(t, graph_node(g, OP_MaxPool, 1, &x, at));
    out(t, graph_node(g, OP_AveragePool, 1, &x, at));
}

/* Dimensions of 17, 23 and 46, which no number of chunks divides, of all kinds of operations. */
static void odd(T *t)
{
    Graph *g = t->g;
    ValueId x = real(t, S(2, 23, 6), 0.5, 2), y = real(t, S(23, 17), -1, 1),
            table = real(t, S(23, 5), -1, 1), flat = real(t, S(2, 138), -1, 1);
    ValueId at = ints(t, S(4, 17), -23, 22), many = ints(t, S(2, 4, 6), -23, 22);
    Attr conv = {.group = 1, .n = 1, .stride = I(1), .dilation = I(1), .pad = I(1, 0)};
    Attr pool = {.n = 1, .stride = I(1), .dilation = I(1), .pad = I(1, 0), .kernel = I(3)};
    out(t, g_matmul(g, y, real(t, S(17, 46), -1, 1)));
    out(t, g_matmul(g, x, real(t, S(6, 8), -1, 1)));
    out(t, g_matmul(g, x, real(t, S(17, 1, 6, 23), -1, 1)));
    out(t, g_reshape(g, x, &S(46, 6)));
    out(t, g_reshape(g, x, &S(2, 138)));
    out(t, g_reshape(g, flat, &S(2, 23, 6)));
    out(t, g_reshape(g, y, &S(1, 23, 17, 1)));
    out(t, g_transpose(g, x, I(1, 2, 0)));
    out(t, g_expand(g, real(t, S(1, 17), -1, 1), &S(23, 17)));
    out(t, g_slice(g, x, I(0, 0, 2), I(2, 23, 3), NULL));
    out(t, g_slice(g, x, I(0, 1, 0), I(2, 22, 6), NULL));
    out(t, g_split(g, x, 2, 2, I(3, 3)));
    out(t, g_split(g, x, 1, 1, I(23)));
    out(t, g_concat(g, 2, (ValueId[]){x, x}, 2));
    out(t, g_concat(g, 2, (ValueId[]){x, x}, 1));
    out(t, g_pad(g, y, I(0, 2), I(0, 1), PAD_CONSTANT, 0.5));
    for (int64_t row = 0; row < 2; row++)
        out(t, graph_node(g, OP_Gather, 2, (ValueId[]){table, at}, (Attr){.padding_row = 9 * row}));
    out(t, graph_node(g, OP_GatherElements, 2, (ValueId[]){x, many}, (Attr){.axis = 1}));
    out(t, graph_node(g, OP_GatherElements, 2, (ValueId[]){x, ints(t, S(2, 23, 3), -6, 5)},
                      (Attr){.axis = 2}));
    static const Op sums[] = {OP_ReduceSum, OP_ReduceMean, OP_ReduceMax, OP_ReduceMin,
                              OP_ReduceProd};
    for (unsigned i = 0; i < 5; i++) {
        out(t, g_reduce(g, sums[i], x, 1, I(1)));
        out(t, g_reduce(g, sums[i], x, 1, I(2)));
    }
    static const Op ops[] = {OP_ArgMax, OP_CumSum, OP_TopK, OP_Softmax, OP_LogSoftmax};
    for (unsigned i = 0; i < 5; i++)
        for (int axis = 0; axis < 2; axis++)
            out(t,
                graph_node(g, ops[i], 1, &y, (Attr){.axis = axis, .k = ops[i] == OP_TopK ? 4 : 0}));
    out(t, graph_node(g, OP_Count, 1, &x, (Attr){.n = 2, .axes = I(0, 1), .to = DT_F32}));
    ValueId w = real(t, S(17, 23, 3), -1, 1), image = real(t, S(2, 23, 6), -1, 1);
    out(t, graph_node(g, OP_Conv, 2, (ValueId[]){image, w}, conv));
    out(t, graph_node(g, OP_MaxPool, 1, &image, pool));
    out(t, graph_node(g, OP_AveragePool, 1, &image, pool));
    ValueId three[3] = {x, many, real(t, S(2, 4, 6), 0.5, 2)};
    out(t,
        graph_node(g, OP_ScatterElements, 3, three, (Attr){.axis = 1, .reduction = SCATTER_ADD}));
    out(t, graph_node(g, OP_Phase, 2, (ValueId[]){y, g_neg(g, y)}, (Attr){0}));
}

static const Case own[] = {{OP_Where, choice, 0, 0, ""},
                           {OP_Cast, casts, 0, 0, ""},
                           {OP_Reshape, reshapes, 0, 0, ""},
                           {OP_Slice, moves, 0, 0, ""},
                           {OP_Gather, lookups, 0, 0, ""},
                           {OP_ScatterND, scatters, 0, 0, ""},
                           {OP_ReduceSum, reductions, 0, 0, ""},
                           {OP_Softmax, along, 0, 0, ""},
                           {OP_MatMul, products, 0, 0, ""},
                           {OP_PackedMatMul, packed_products, 0, 0, ""},
                           {OP_FlashAttention, attentions, 0, 0, ""},
                           {OP_Conv, convolutions, 0, 0, ""},
                           {OP_MaxPool, pools, 0, 0, ""},
                           {OP_Reshape, odd, 0, 0, ""}};

/* ---- the table ------------------------------------------------------------------------------- */

static void every_row(void)
{
    for (int op = OP_NONE + 1; op < OP_COUNT; op++)
        for (int k = 0; k < 2 && op_is_map((Op)op) && op != OP_Where && op != OP_Cast; k++) {
            odd_sizes = k;
            run_case(&(Case){(Op)op, each, 0, 0, ""}, DT_F64, false);
        }
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++) {
        run_case(&own[i], DT_F64, false);
        run_case(&own[i], DT_BF16, false);
    }
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&cases[i], DT_F64, true);
    for (int op = OP_NONE + 1; op < OP_COUNT; op++)
        if (has_rule((Op)op))
            ok(count[op].ways > 0 && count[op].wrong == 0, "%s: %u ways, %u wrong", op_name((Op)op),
               count[op].ways, count[op].wrong);
        else if (nodes_of[op])
            printf("# %s: no rule\n", op_name((Op)op));
}

/* ---- the test's own test ----------------------------------------------------------------------
 */

static Place other_place(Place at, const Shape *s, int chunks)
{
    for (int d = 0; d < s->rank && at.dim >= 0; d++)
        for (int64_t groups = 1; groups <= 6; groups++)
            for (int mirrored = 0; mirrored < 2; mirrored++)
                if (place_fits(s, (Place){d, groups, mirrored}, chunks) &&
                    !place_is(at, (Place){d, groups, mirrored}))
                    return (Place){d, groups, mirrored};
    return (Place){.dim = at.dim == PLACE_P ? PLACE_R : PLACE_P, .groups = 1};
}

static bool all_equal(const Tensor *t)
{
    bool same = true;
    for (int64_t i = 1; i < shape_elements(&t->shape); i++)
        same &= number_of(t, i) == number_of(t, 0);
    return same;
}

/* What is right, with a result said to be elsewhere. */
static void elsewhere(const Case *c, unsigned *lies, unsigned *believed)
{
    Arena *a = arena_new();
    T t = {.g = graph_new(a, "test"), .seed = 3, .op = c->op, .real = DT_F64};
    c->build(&t);
    Tensor *at = evaluate_case(&t);
    SpreadOf of = {.g = t.g, .chunks = 2, .known = all_groups(t.g, a, 2), .uneven = true};
    for (NodeId n = 0, last = t.g->node.n; n < last; n++) {
        SpreadWays ways = {0};
        spread_ways(&of, n, a, &ways);
        for (uint32_t i = 0; i < ways.n; i++) {
            const Node *x = &t.g->node.at[n];
            Place says[2] = {ways.at[i].out[0], ways.at[i].out[1]};
            if (x->nout > 2 || all_equal(&at[x->out[0]])) /* everywhere is right */
                continue;
            says[0] = other_place(says[0], &val(t.g, x->out[0])->shape, 2);
            *believed += holds((Check){
                .g = t.g, .node = n, .at = at, .way = &ways.at[i], .says = says, .chunks = 2});
            if (++*lies && *believed == 1)
                print_way(t.g, n, &ways.at[i], 2);
        }
    }
    arena_free(a);
}

/* Rules that are none: what is not linear of partial sums, a sum of which one operand is whole. */
#define PARTIAL                                                                                    \
    {                                                                                              \
        .dim = PLACE_P, .groups = 1                                                                \
    }
#define WHOLE                                                                                      \
    {                                                                                              \
        .dim = PLACE_R, .groups = 1                                                                \
    }
static void not_linear(void)
{
    static const struct {
        Op op;
        Place in[2];
    } wrong[] = {
        {OP_Exp, {PARTIAL}},
        {OP_Abs, {PARTIAL}},
        {OP_ReduceMax, {PARTIAL}},
        {OP_Mul, {PARTIAL, PARTIAL}},
        {OP_Div, {WHOLE, PARTIAL}},
        {OP_Add, {PARTIAL, WHOLE}},
        {OP_MatMul, {PARTIAL, PARTIAL}},
    };
    Place partial = place_p();
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Arena *a = arena_new();
        T t = {.g = graph_new(a, "test"), .seed = i, .op = wrong[i].op, .real = DT_F64};
        ValueId in[2] = {real(&t, S(4, 4), 0.3, 2), real(&t, S(4, 4), 0.3, 2)};
        (void)node(&t, op_takes(t.op, 1) ? 1 : 2, in, (Attr){.n = 1, .axes = I(0)});
        SpreadWay way = {.in = wrong[i].in, .out = &partial};
        Check c = {.g = t.g, .at = evaluate_case(&t), .way = &way, .says = &partial, .chunks = 3};
        ok(!holds(c), "%s of partial sums is none", op_name(t.op));
        arena_free(a);
    }
}

/* ---- a block as Megatron cuts it ---------------------------------------------------------------
 */

typedef struct {
    ValueId x, w, b, w2, y;
} Block;

/* softmax(q k) v of a packed projection: q, k and v are thirds of its columns, heads parts of them
 */
static Block attention_block(T *t)
{
    Graph *g = t->g;
    Block k = {.x = real(t, S(2, 6, 12), -1, 1),
               .w = real(t, S(12, 36), -1, 1),
               .b = real(t, S(36), -1, 1),
               .w2 = real(t, S(12, 12), -1, 1)};
    ValueId h = g_add(g, g_matmul(g, k.x, k.w), k.b), part[3];
    ValueId all = g_split(g, h, 2, 3, I(12, 12, 12));
    for (uint32_t i = 0; i < 3; i++)
        part[i] = g_transpose(g, g_reshape(g, graph_out(g, all, i), &S(2, 6, 4, 3)),
                              i == 1 ? I(0, 2, 3, 1) : I(0, 2, 1, 3));
    ValueId p = g_softmax(g, g_mul(g, g_matmul(g, part[0], part[1]), g_like(g, h, 0.5)), 3);
    ValueId o = g_transpose(g, g_matmul(g, p, part[2]), I(0, 2, 1, 3));
    ValueId rows = g_reshape(g, o, &S(12, 12));
    k.y = g_matmul(g, rows, k.w2);
    return k;
}

/* The way of a node whose operands are where they are; NULL: none, or all are whole. */
static const SpreadWay *way_of(const SpreadOf *of, NodeId id, const Place *is, Arena *a)
{
    const Node *n = &of->g->node.at[id];
    SpreadWays ways = {0};
    spread_ways(of, id, a, &ways);
    for (uint32_t i = 0; i < ways.n; i++) {
        bool fits = true;
        for (uint32_t k = 0; k < n->nin; k++)
            fits = fits && place_is(ways.at[i].in[k], is[n->in[k]]);
        if (fits)
            return &ways.at[i];
    }
    return NULL;
}

static void megatron(void)
{
    Arena *a = arena_new();
    T t = {.g = graph_new(a, "test"), .seed = 3, .real = DT_F64};
    Block b = attention_block(&t);
    SpreadOf of = {.g = t.g, .chunks = 2};
    of.known = spread_places(&of, a);
    Place *is = arena_array(a, Place, t.g->value.n);
    Tensor *at = evaluate_case(&t);
    bool good = true;
    for (ValueId v = 0; v < t.g->value.n; v++)
        is[v] = place_r();
    is[b.w] = place_s(1, 3);
    is[b.b] = place_s(0, 3);
    is[b.w2] = place_s(0, 1);
    for (NodeId n = 0; n < t.g->node.n && good; n++) {
        const SpreadWay *way = way_of(&of, n, is, a);
        good = way && way_holds(t.g, n, at, way, 2);
        for (uint32_t o = 0; o < t.g->node.at[n].nout && good; o++)
            is[t.g->node.at[n].out[o]] = way->out[o];
    }
    ok(good && is[b.y].dim == PLACE_P,
       "packed attention: columns of thirds, heads, rows of the output's weight");
    const Node *last = &t.g->node.at[val(t.g, b.y)->node];
    Place *rows = arena_array(a, Place, t.g->value.n);
    for (ValueId v = 0; v < t.g->value.n; v++)
        rows[v] = place_s(0, val(t.g, v)->shape.rank ? 2 : 0);
    of.barred = rows;
    for (ValueId v = 0; v < t.g->value.n; v++)
        is[v] = place_r();
    is[last->in[0]] = place_s(0, 2);
    ok(way_of(&of, val(t.g, b.y)->node, is, a) != NULL,
       "places of a sequence are divided within its rows");
    is[last->in[0]] = place_s(0, 1);
    ok(!way_of(&of, val(t.g, b.y)->node, is, a), "rows are not");
    arena_free(a);
}

/* ---- random numbers ----------------------------------------------------------------------------
 */

/* The number of element i of a chunk's tensor (op.h, Chunk) is that of the whole's element. */
static bool is_numbered(const Shape *mine, const Chunk *part, const Shape *whole, Place at)
{
    int64_t inner = 1;
    bool same = part->chunks == 3 && part->pieces == 3;
    for (int d = part->axis; d < mine->rank; d++)
        inner *= mine->d[d];
    for (int64_t i = 0; i < shape_elements(mine) && same; i++)
        same = (i / inner * part->chunks + part->piece) * inner + i % inner ==
               element_at(whole, at, part->chunks, part->piece, i);
    return same;
}

static void numbers(void)
{
    Arena *a = arena_new();
    T t = {.g = graph_new(a, "test"), .seed = 3, .real = DT_F64};
    Shape whole = S(3, 12, 6);
    ValueId x = real(&t, whole, -1, 1);
    (void)graph_node(t.g, OP_Dropout, 1, &x, (Attr){.ratio = 0.5, .key = 7});
    (void)graph_node(t.g, OP_Random, 1, &x, (Attr){.to = DT_F32, .key = 8});
    SpreadOf of = {.g = t.g, .chunks = 3, .known = all_groups(t.g, a, 3), .uneven = true};
    Tensor *at = evaluate_case(&t);
    unsigned ways = 0, same = 0;
    for (NodeId n = 0; n < 2; n++) {
        SpreadWays w = {0};
        spread_ways(&of, n, a, &w);
        for (uint32_t i = 0; i < w.n; i++) {
            Run r = {.a = a, .g = graph_new(a, "chunks")};
            Check c = {.a = a, .g = t.g, .node = n, .at = at, .way = &w.at[i], .chunks = 3};
            spread(&c, &r);
            for (NodeId k = 0; k < r.g->node.n; k++) {
                const Node *y = &r.g->node.at[k];
                if (y->op != t.g->node.at[n].op)
                    continue;
                ways++;
                same += is_numbered(&val(r.g, y->in[0])->shape, &y->attr.piece->along[MESH_TENSOR],
                                    &whole, w.at[i].in[0]);
            }
        }
    }
    ok(ways >= 2 * 3 * 6 && same == ways, "random numbers of %u chunks, %u the whole's", ways,
       same);
    arena_free(a);
}

/* ---- collectives of another axis ---------------------------------------------------------------
 */

/* Does each chunk of two members do what the whole does, put together for each of them? */
static bool meet_alike(Arena *a, const Graph *g, const Node *n, const SpreadWay *w, int chunks)
{
    enum { MEMBERS = 2 };
    const Value *x = val(g, n->in[0]), *y = val(g, n->out[0]);
    Tensor whole[MEMBERS], want[MEMBERS], part[MEMBERS][CHUNKS], made[MEMBERS][CHUNKS];
    uint64_t seed = 7;
    bool same = true;
    for (int m = 0; m < MEMBERS; m++) {
        whole[m] = fresh_tensor(a, x->dtype, x->shape);
        for (int64_t i = 0; i < shape_elements(&x->shape); i++)
            ((double *)whole[m].data)[i] = (double)(i + 1) * (n->op == OP_Shard ? 1 : m + 2);
        if (w->in[0].dim == PLACE_P)
            part_sums(a, &whole[m], chunks, &seed, part[m]);
        for (int k = 0; k < chunks && w->in[0].dim >= 0; k++)
            part[m][k] = cut(a, &whole[m], w->in[0], chunks, k);
    }
    members_meet(a, MEMBERS, n, whole, want);
    for (int k = 0; k < chunks; k++) {
        Tensor in[MEMBERS] = {part[0][k], part[1][k]}, out[MEMBERS];
        members_meet(a, MEMBERS, n, in, out);
        for (int m = 0; m < MEMBERS; m++)
            made[m][k] = out[m];
    }
    for (int m = 0; m < MEMBERS; m++) {
        Tensor all = put_together(a, made[m], w->out[0], chunks, y->dtype, y->shape);
        same &= equal(&want[m], &all, 1e-12);
    }
    return same;
}

static void collectives(void)
{
    for (int op = OP_NONE + 1; op < OP_COUNT; op++) {
        Arena *a = arena_new();
        Graph *g = graph_new(a, "test");
        unsigned ways = 0, wrong = 0, groups = 0;
        g->mesh[MESH_SEQUENCE].members = 2;
        ValueId x = graph_input(g, "x", DT_F64, &(Shape){.rank = 3, .d = {2, 24, 12}});
        const Attr at = {.axis = 1, .to_axis = 2, .mesh = MESH_SEQUENCE};
        if (op_is_collective((Op)op))
            graph_node(g, (Op)op, 1, &x, at);
        for (int chunks = 2; chunks <= CHUNKS && g->node.n; chunks++) {
            SpreadOf of = {.g = g, .chunks = chunks, .known = all_groups(g, a, chunks)};
            SpreadWays w = {0};
            spread_ways(&of, 0, a, &w);
            for (uint32_t i = 0; i < w.n; i++) {
                ways++;
                groups += w.at[i].in[0].groups != w.at[i].out[0].groups;
                if (meet_alike(a, g, &g->node.at[0], &w.at[i], chunks))
                    continue;
                wrong++;
                print_way(g, 0, &w.at[i], chunks);
            }
        }
        if (g->node.n)
            ok(ways > 6 && (groups > 0 || op == OP_AllReduce) && wrong == 0,
               "%s of another axis: %u ways, %u wrong, %u with other groups", op_name((Op)op), ways,
               wrong, groups);
        arena_free(a);
    }
}

int main(void)
{
    unsigned lies = 0, believed = 0;
    every_row();
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++)
        elsewhere(&own[i], &lies, &believed);
    ok(uneven > 500, "%u ways of dimensions that the chunks do not divide", uneven);
    ok(lies > 400 && believed == 0, "%u results said to be elsewhere, %u believed", lies, believed);
    not_linear();
    megatron();
    numbers();
    collectives();
    return tap_done();
}

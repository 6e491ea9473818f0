/*
 * test_bytes.c - what members send in the layers of Llama, T5, ViT and Mixtral, which the search
 * (mesh/search.c) divides without knowing of them: Megatron-LM's sums, counted in the member's
 * graph.  Narayanan et al. 2021 (2104.04473), section 3.2: two sums forward and two backward of
 * b s h elements in a layer, so 8 b s h (T - 1) / T elements by each member.
 */
#include "ir/build.h"
#include "ir/facts/attention.h"
#include "mesh/mesh.h"
#include "tap.h"

enum { B = 2, S = 64, H = 128, D = 16, HEADS = H / D, F = 4 * H, LAYERS = 2, EXPERTS = 4 };

typedef struct {
    Graph *g;
    int64_t places; /* S, or what the net has */
    int heads, keys;
    bool biased;
    int made;
} Net;

#define SIZES(...) ((int64_t[]){__VA_ARGS__})
#define SHAPE(...)                                                                                 \
    (&(Shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

/* ---- layers ---------------------------------------------------------------------------------- */

static ValueId param(Net *n, const Shape *s)
{
    Param p = {.name = arena_printf(n->g->arena, "p%d", n->made++),
               .dtype = DT_F32,
               .shape = *s,
               .trainable = true};
    return graph_param(n->g, p);
}

static ValueId linear(Net *n, ValueId x, int64_t in, int64_t out)
{
    ValueId y = g_matmul(n->g, x, param(n, SHAPE(in, out)));
    return n->biased ? g_add(n->g, y, param(n, SHAPE(out))) : y;
}

/* RMSNorm, or with biases LayerNorm */
static ValueId norm(Net *n, ValueId x)
{
    Graph *g = n->g;
    if (n->biased)
        x = g_sub(g, x, g_mean(g, x, 1, SIZES(2)));
    ValueId mean = g_mean(g, g_mul(g, x, x), 1, SIZES(2));
    ValueId y = g_div(g, x, g_unary(g, OP_Sqrt, g_add(g, mean, g_like(g, x, 1e-5))));
    y = g_mul(g, y, param(n, SHAPE(H)));
    return n->biased ? g_add(g, y, param(n, SHAPE(H))) : y;
}

static ValueId silu(Graph *g, ValueId x) { return g_mul(g, x, g_unary(g, OP_Sigmoid, x)); }

/* [b, s, heads * d] -> [b, heads, s, d]; of few heads each as many times as it takes */
static ValueId heads(Net *n, ValueId x, int64_t places, int of)
{
    Graph *g = n->g;
    int64_t times = n->heads / of;
    x = g_transpose(g, g_reshape(g, x, SHAPE(B, places, of, D)), SIZES(0, 2, 1, 3));
    if (times == 1)
        return x;
    x = g_expand(g, g_reshape(g, x, SHAPE(B, of, 1, places, D)), SHAPE(B, of, times, places, D));
    return g_reshape(g, x, SHAPE(B, n->heads, places, D));
}

/* bias: added to the scores, or NONE */
static ValueId attention(Net *n, ValueId x, ValueId y, int64_t places, ValueId bias)
{
    Graph *g = n->g;
    ValueId q = heads(n, linear(n, x, H, H), n->places, n->heads),
            k = heads(n, linear(n, y, H, n->keys * D), places, n->keys),
            v = heads(n, linear(n, y, H, n->keys * D), places, n->keys);
    ValueId score = g_mul(g, g_matmul(g, q, g_swap_last(g, k)), g_like(g, x, 0.25));
    if (bias != NONE)
        score = g_add(g, score, bias);
    ValueId o = g_matmul(g, g_softmax(g, score, 3), v);
    o = g_reshape(g, g_transpose(g, o, SIZES(0, 2, 1, 3)), SHAPE(B, n->places, H));
    return linear(n, o, H, H);
}

static ValueId mlp(Net *n, ValueId x)
{
    return linear(n, g_unary(n->g, OP_Relu, linear(n, x, H, F)), F, H);
}

static ValueId gated(Net *n, ValueId x)
{
    ValueId up = linear(n, x, H, F), gate = linear(n, x, H, F);
    return linear(n, g_mul(n->g, silu(n->g, gate), up), F, H);
}

static ValueId attend(Net *n, ValueId x)
{
    ValueId y = norm(n, x);
    return g_add(n->g, x, attention(n, y, y, n->places, NONE));
}

static ValueId llama(Net *n, ValueId x)
{
    x = attend(n, x);
    return g_add(n->g, x, gated(n, norm(n, x)));
}

static ValueId vit(Net *n, ValueId x)
{
    x = attend(n, x);
    return g_add(n->g, x, mlp(n, norm(n, x)));
}

/* All experts, each weighed by its router's number. */
static ValueId mixtral(Net *n, ValueId x)
{
    Graph *g = n->g;
    x = attend(n, x);
    ValueId y = norm(n, x), sum = NONE;
    ValueId weight = g_softmax(g, linear(n, y, H, EXPERTS), 2);
    for (int e = 0; e < EXPERTS; e++) {
        ValueId one = g_mul(g, gated(n, y), g_slice_axis(g, weight, 2, e, 1));
        sum = sum == NONE ? one : g_add(g, sum, one);
    }
    return g_add(g, x, sum);
}

/* A table's row of biases for each distance: [1, heads, s, s] */
static ValueId distances(Net *n)
{
    Graph *g = n->g;
    int64_t *at = arena_array(g->arena, int64_t, S * S);
    for (int i = 0; i < S * S; i++)
        at[i] = (i / S > i % S ? i / S - i % S : i % S - i / S) % 32;
    ValueId each = g_gather(g, param(n, SHAPE(32, HEADS)), g_ints(g, 2, SIZES(S, S), at), 0);
    return g_reshape(g, g_transpose(g, each, SIZES(2, 0, 1)), SHAPE(1, HEADS, S, S));
}

static ValueId t5_encoder(Net *n, ValueId x, ValueId bias)
{
    ValueId y = norm(n, x);
    x = g_add(n->g, x, attention(n, y, y, S, bias));
    return g_add(n->g, x, mlp(n, norm(n, x)));
}

static ValueId t5_decoder(Net *n, ValueId x, ValueId bias, ValueId encoded)
{
    ValueId y = norm(n, x);
    x = g_add(n->g, x, attention(n, y, y, S, bias));
    x = g_add(n->g, x, attention(n, norm(n, x), encoded, S, NONE));
    return g_add(n->g, x, mlp(n, norm(n, x)));
}

/* ---- what is sent ---------------------------------------------------------------------------- */

/* Elements that a member sends backward of what is read varied, over (T - 1) / T: of a parameter
 * once a step; of what is gathered each has its own part of the sum. */
static double sent_back(const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    const Node *n = x->kind == V_NODE ? &g->node.at[x->node] : NULL;
    if (n && n->op == OP_Slice) /* without the zeros at its end */
        n = &g->node.at[val(g, n->in[0])->node];
    const double times = x->kind == V_PARAM ? 0 : n && n->op == OP_AllGather ? 1 : 2;
    return times * (double)shape_elements(&x->shape);
}

/* Elements that a member sends of a microbatch, forward and backward, over (T - 1) / T. */
static double sent(const Graph *g, const bool *active)
{
    double sum = 0;
    for (NodeId id = 0; id < g->node.n; id++) {
        const Node *n = &g->node.at[id];
        const Shape *in = n->nin ? &val(g, n->in[0])->shape : NULL;
        double x = in ? (double)shape_elements(in) : 0;
        bool back = n->nin && active[n->in[0]];
        switch (n->op) {
        case OP_Vary: sum += back ? sent_back(g, n->in[0]) : 0; break;
        case OP_AllReduce: sum += 2 * x; break;
        case OP_AllGather: sum += x * g->mesh[n->attr.mesh].members; break;
        case OP_Shard: sum += back ? x : 0; break;
        case OP_ReduceScatter: sum += back ? 2 * x : x; break;
        case OP_AllToAll: sum += back ? 2 * x : x; break;
        default: break;
        }
    }
    return sum;
}

typedef ValueId Layer(Net *n, ValueId x);

static ValueId begin(Net *n, Arena *a, const char *input)
{
    n->g = n->g ? n->g : graph_new(a, "test");
    ValueId x = graph_input(n->g, input, DT_F32, SHAPE(B, n->places, H));
    return g_add(n->g, x, param(n, SHAPE(H)));
}

/* The loss is a mean of squares, of parts: a sum of one number. */
static double divide(Net *n, ValueId x, int members)
{
    Graph *g = n->g;
    ValueId loss = g_mean(g, g_mul(g, x, x), val(g, x)->shape.rank, SIZES(0, 1, 2, 3));
    loss = g_reshape(g, loss, &(Shape){0});
    MeshOptions opt = {.members = {members, 1, 1}, .chunks = {members, 1, 1}};
    BatchNotes notes = {.loss = loss, .target = NONE};
    attention_fuse(g, &(BatchOptions){0}, loss, NONE);
    if (g->batch > 1)
        batch_analyse(g, 0, NULL, &notes);
    MeshPlan plan = mesh_search(g, g->arena, &opt, MESH_TENSOR, &notes, NULL);
    mesh_member(g, &plan, 1, (ValueId *const[]){&loss});
    graph_verify(g);
    graph_verify_forward(g, flow_active(g, g->arena, loss), loss);
    return sent(g, flow_active(g, g->arena, loss));
}

static void test_layers(const char *name, Layer *layer, Net net, int members, double more)
{
    Arena *a = arena_new();
    ValueId x = begin(&net, a, "x");
    for (int i = 0; i < LAYERS; i++)
        x = layer(&net, x);
    double want = LAYERS * (8.0 * B * (double)net.places * H + more) + 2;
    double is = divide(&net, x, members);
    const double end = net.places % members ? want / 16 : 0; /* zeros at the end of the places */
    if (!ok(is >= want && is <= want + end, "%s, %d members: 8 b s h%s a layer", name, members,
            more > 0 ? " and more" : ""))
        printf("# %.0f, not %.0f; b s h is %.0f\n", is, want, (double)(B * net.places * H));
    arena_free(a);
}

/* A convolution of 3 x 3 that keeps an image's size. */
static Attr same_image(void)
{
    static const int64_t one[] = {1, 1, 1, 1};
    return (Attr){.group = 1, .n = 2, .stride = one, .dilation = one, .pad = one};
}

/* Two convolutions and what they skip: the first one's channels are divided, and the second one's
 * sum over them. */
static void test_convolutions(int members)
{
    enum { CHANNELS = 32, SIDE = 12 };
    Arena *a = arena_new();
    Net n = {.g = graph_new(a, "test")};
    Graph *g = n.g;
    const Attr at = same_image();
    ValueId x = graph_input(g, "x", DT_F32, SHAPE(B, CHANNELS, SIDE, SIDE));
    x = g_add(g, x, param(&n, SHAPE(CHANNELS, 1, 1)));
    for (int i = 0; i < LAYERS; i++) {
        ValueId y = x;
        for (int k = 0; k < 2; k++) {
            y = graph_node(g, OP_Conv, 2,
                           (ValueId[]){y, param(&n, SHAPE(CHANNELS, CHANNELS, 3, 3))}, at);
            y = k ? g_add(g, x, y) : g_unary(g, OP_Relu, y);
        }
        x = y;
    }
    /* the last sum is of parts, of whose squares there is a sum of one number */
    double image = B * CHANNELS * SIDE * SIDE, is = divide(&n, x, members);
    if (!ok(is == LAYERS * 4 * image + 2, "two convolutions, %d members: a sum each way", members))
        printf("# %.0f; an image is %.0f\n", is, image);
    arena_free(a);
}

/* Few weights of large images: members have some rows each, and send the sums of a norm over all. */
static void test_rows(int members)
{
    enum { ROWS = 8, CHANNELS = 8, SIDE = 16 };
    Arena *a = arena_new();
    Net n = {.g = graph_new(a, "test")};
    Graph *g = n.g;
    const Attr at = same_image();
    g->batch = ROWS;
    ValueId x = graph_input(g, "x", DT_F32, SHAPE(ROWS, CHANNELS, SIDE, SIDE));
    for (int i = 0; i < LAYERS; i++) {
        x = graph_node(g, OP_Conv, 2, (ValueId[]){x, param(&n, SHAPE(CHANNELS, CHANNELS, 3, 3))},
                       at);
        x = g_unary(g, OP_Relu, g_sub(g, x, g_mean(g, x, 3, SIZES(0, 2, 3))));
    }
    double is = divide(&n, x, members);
    if (!ok(is == LAYERS * 4 * CHANNELS + 2 && g->rows.divided,
            "rows of images, %d members: the sums of a norm each way", members))
        printf("# %.0f; an image is %d\n", is, CHANNELS * SIDE * SIDE);
    arena_free(a);
}

/* A layer of the decoder has three blocks; what the encoder has made is varied once for all. */
static void test_t5(int members)
{
    Arena *a = arena_new();
    Net n = {.places = S, .heads = HEADS, .keys = HEADS};
    ValueId x = begin(&n, a, "x"), y = begin(&n, a, "y"), bias = distances(&n);
    for (int i = 0; i < LAYERS; i++)
        x = t5_encoder(&n, x, bias);
    x = norm(&n, x);
    bias = distances(&n);
    for (int i = 0; i < LAYERS; i++)
        y = t5_decoder(&n, y, bias, x);
    double bsh = B * S * H, want = LAYERS * (8 + 12) * bsh + 2 * bsh + 2,
           is = divide(&n, y, members);
    if (!ok(is == want, "T5, %d members: 8 b s h and 12 b s h a layer", members))
        printf("# %.0f, not %.0f; b s h is %.0f\n", is, want, bsh);
    arena_free(a);
}

int main(void)
{
    const Net plain = {.places = S, .heads = HEADS, .keys = HEADS},
              grouped = {.places = S, .heads = HEADS, .keys = 2},
              biased = {.places = 50, .heads = HEADS, .keys = HEADS, .biased = true};
    for (int members = 2; members <= 8; members *= 2) {
        /* More members than heads of keys: parts of heads, exchanged for one head, keys and values,
         * there and back.  Megatron-LM gathers q, k and v of all heads, and scatters their gradient
         * (core/transformer/attention.py, get_query_key_value_tensors): 2 b s (h + 2 keys d). */
        double keys = members > grouped.keys ? 4.0 * B * S * D : 0;
        /* the router's numbers, gathered where they are divided, and their gradients' sum */
        double router = (members <= EXPERTS ? 3.0 : 2.0) * B * S * EXPERTS;
        test_layers("Llama", llama, plain, members, 0);
        test_layers("Llama, two heads of keys", llama, grouped, members, keys);
        test_layers("ViT, 50 places", vit, biased, members, 0);
        test_layers("Mixtral", mixtral, plain, members, router);
        test_t5(members);
        test_convolutions(members);
        test_rows(members);
    }
    return tap_done();
}

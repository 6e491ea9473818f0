/*
 * seconds.c - what the nodes of a differentiated model take, forward and backward alike: those that
 * autodiff has made are costed as those of the model are.
 *
 * Products and convolutions: by FLOPs, and by the parameters that come from memory each time.
 * Loops (elementwise operations, sums, softmax): by their operations, and by what they read and
 * write.  Loops between two products are taken as one: what is made and read among them is in no
 * memory.  What moves data: by bytes; between the members of an axis, by what a member sends.
 * Views cost nothing.  Of the scores of an attention the part counts that a causal mask leaves.
 */
#include "base/file/machine.h"
#include "ir/facts/attention.h"
#include "model.h"

typedef struct {
    const Graph *g;
    const Rates *r;
    /* by value: it depends on data; it is made and read in one loop, in no memory; a transpose of
       rows and columns reads it */
    bool *data, *inside, *turned;
    uint32_t *loop, loops; /* by node: its number, odd ones are W's; how many there are */
    uint32_t *read[2];     /* by value: the last loop that read it from memory; of W */
    uint32_t begun[2];     /* the last loop whose beginning counts; of W */
    uint8_t *part;         /* by node: a Part */
    bool *has_data;        /* by node of the file: some of forward depends on data */
} Joint;

/* ---- loops ----------------------------------------------------------------------------------- */

static bool is_softmax(Op op) { return op == OP_Softmax || op == OP_LogSoftmax; }

static bool is_loop(Op op) { return op_is_map(op) || is_softmax(op) || op_reduces(op); }

static double bytes_of(const Joint *m, ValueId v) { return (double)value_bytes(m->g, v); }

/* Those between two nodes that are none are one, of I and of W each for itself. */
static void find_loops(Joint *m, const Ids *list)
{
    const Graph *g = m->g;
    m->loops += 2;
    for (uint32_t i = 0; i < list->n; i++) {
        NodeId n = list->at[i];
        const Node *x = &g->node.at[n];
        m->loops += is_loop(x->op) || op_passes_on(x->op) ? 0 : 2;
        m->loop[n] = m->loops + (m->part[n] == PART_W);
        for (uint32_t k = 0; k < x->nout; k++)
            m->inside[x->out[k]] = is_loop(x->op);
    }
}

static void find_inside(Joint *m, const Ids *list)
{
    const Graph *g = m->g;
    for (uint32_t i = 0; i < list->n; i++) {
        const Node *x = &g->node.at[list->at[i]];
        for (uint32_t k = 0; k < x->nin; k++) {
            const Value *v = val(g, x->in[k]);
            if (v->kind != V_NODE || !is_loop(x->op) || m->loop[v->node] != m->loop[list->at[i]])
                m->inside[x->in[k]] = false;
        }
    }
}

/* Of a loop that goes over so many bytes of one operand or result. */
static double touch_seconds(const Joint *m, double bytes)
{
    double far = rates_part(bytes, RATES_SMALL, RATES_LARGE);
    return bytes * ((1 - far) / m->r->cached + far / m->r->traffic);
}

/* What a node of a loop reads and writes of memory, that those before it in the loop have not met
   already; and the beginning of the loop, with its first node. */
static double traffic_seconds(Joint *m, NodeId n)
{
    const Node *x = &m->g->node.at[n];
    const uint32_t loop = m->loop[n];
    uint32_t *read = m->read[loop % 2];
    double seconds = m->begun[loop % 2] == loop ? 0 : 1 / m->r->steps;
    m->begun[loop % 2] = loop;
    for (uint32_t i = 0; i < x->nin; i++) {
        ValueId v = x->in[i];
        if (!m->data[v] || m->inside[v] || read[v] == loop)
            continue;
        seconds += touch_seconds(m, bytes_of(m, v));
        read[v] = loop;
    }
    for (uint32_t k = 0; k < x->nout; k++)
        seconds += m->inside[x->out[k]] ? 0 : touch_seconds(m, bytes_of(m, x->out[k]));
    return seconds;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Many products of activations: attention's. */
static bool is_batched(const Joint *m, const Node *x)
{
    const Value *a = val(m->g, x->in[0]), *b = val(m->g, x->in[1]);
    return m->data[x->in[0]] && m->data[x->in[1]] && a->shape.rank > 2 && b->shape.rank > 2;
}

static bool is_matmul(Op op) { return op == OP_MatMul || op == OP_PackedMatMul; }

static double product_rate(const Joint *m, const Node *x)
{
    Dtype t = val(m->g, x->in[0])->dtype;
    if (!is_matmul(x->op))
        return m->r->convolutions;
    return dtype_is_half(t)     ? m->r->products16
           : dtype_size(t) == 8 ? m->r->products64
           : is_batched(m, x)   ? m->r->batched
                                : m->r->products;
}

/* Bytes of a product's parameters, and of the parameters' gradient that it makes. */
static double weight_bytes(const Joint *m, NodeId n)
{
    const Node *x = &m->g->node.at[n];
    double bytes = m->part[n] == PART_W ? bytes_of(m, x->out[0]) : 0;
    for (uint32_t i = 0; i < x->nin; i++)
        bytes += m->data[x->in[i]] ? 0 : bytes_of(m, x->in[i]);
    return bytes;
}

/* Of a layer: what is read and written, once; of attention's products its rate has it in it.
   Backward, parameters lie the other way, or their gradients are added to: those are read, too. */
static double operand_seconds(const Joint *m, NodeId n)
{
    const Node *x = &m->g->node.at[n];
    double weights = weight_bytes(m, n), bytes = bytes_of(m, x->out[0]);
    if (!is_matmul(x->op))
        return weights / m->r->traffic;
    if (is_batched(m, x))
        return 0;
    for (uint32_t i = 0; i < x->nin; i++)
        bytes += bytes_of(m, x->in[i]);
    if (m->part[n] == PART_F)
        return bytes / m->r->operands;
    return (bytes - weights) / m->r->operands +
           (m->part[n] == PART_W ? 2 : 1) * weights / m->r->transposed;
}

/* How many times so many columns are computed: they go by whole vectors. */
static double by_vectors(double columns)
{
    return columns > 0 ? ceil(columns / RATES_LANES) * RATES_LANES / columns : 1;
}

/* Of a product whose result v is its columns, those that lie side by side.  Before a transpose
   these are v's rows. */
static double of_vectors(const Joint *m, ValueId v)
{
    const Shape *s = &val(m->g, v)->shape;
    return s->rank < 2 ? 1 : by_vectors((double)s->d[s->rank - (m->turned[v] ? 2 : 1)]);
}

static double product_seconds(const Joint *m, NodeId n)
{
    const Node *x = &m->g->node.at[n];
    double times = is_matmul(x->op) ? of_vectors(m, x->out[0]) : 1;
    return 1 / m->r->steps + times * (double)cost_flops(m->g, n) / product_rate(m, x) +
           operand_seconds(m, n);
}

/* Elements that one pass over the operands and results meets. */
static double elements_of(const Joint *m, const Node *x)
{
    const Graph *g = m->g;
    double most = 0;
    for (uint32_t i = 0; i < x->nin; i++) {
        double n = (double)shape_elements(&val(g, x->in[i])->shape);
        most = val(g, x->in[i])->kind != V_PARAM && n > most ? n : most;
    }
    for (uint32_t i = 0; i < x->nout; i++) {
        double n = (double)shape_elements(&val(g, x->out[i])->shape);
        most = n > most ? n : most;
    }
    return most;
}

/* Of an element. */
static double operation(const Joint *m, const Node *x)
{
    if (op_is_quick(x->op))
        return 1 / m->r->quick;
    if (x->op == OP_Exp)
        return 1 / m->r->exponentials;
    return op_is_short(x->op) ? 1 / m->r->slow : 1 / m->r->functions;
}

/* What an element takes, and what a row does.  A logarithm of it, as
   losses have it, is a maximum and a sum of exponentials: nothing is kept, and none is divided. */
static double softmax_seconds(const Joint *m, const Node *x)
{
    if (x->op == OP_LogSoftmax)
        return elements_of(m, x) * (1 / m->r->exponentials + 2 / m->r->quick);
    const Shape *s = &val(m->g, x->in[0])->shape;
    double rows = s->rank ? (double)shape_elements(s) / (double)s->d[s->rank - 1] : 1;
    return elements_of(m, x) / m->r->softmax + rows / m->r->rows;
}

/* Of a collective. */
static double exchange_seconds(const Joint *m, const Node *n)
{
    const double sent = (double)cost_sent(m->g, n);
    const int others = m->g->mesh[n->attr.mesh].members - 1,
              messages = n->op == OP_AllReduce ? 2 * others : others;
    return sent > 0 ? messages / m->r->messages + sent / m->r->link : 0;
}

/* The products of the scores that count, and what happens to these; backward makes them again, and
   has three more products. */
static double attention_seconds(const Joint *m, NodeId n)
{
    const Graph *g = m->g;
    const Node *x = &g->node.at[n];
    const bool back = x->op == OP_FlashAttentionGrad;
    const AttentionAttr *t = x->attr.attention;
    const Shape *stats = &val(g, back ? x->in[4] : x->out[1])->shape;
    const int64_t *k = val(g, x->in[1])->shape.d + val(g, x->in[1])->shape.rank - 2,
                  *v = val(g, x->in[2])->shape.d + val(g, x->in[2])->shape.rank - 2;
    const double all = (double)shape_elements(stats) / 2, keys = (double)k[1], width = (double)k[0],
                 width_v = (double)v[1], wide = width * by_vectors(width),
                 wide_v = width_v * by_vectors(width_v),
                 columns = width + wide_v + (back ? width_v + 2 * wide : 0);
    const int64_t rows = stats->d[stats->rank - 2], above = attention_diagonal(t, x->attr.piece),
                  below = t->window ? above - t->window + 1 : 1 - rows;
    const double part = t->causal ? band_part((Band){below, above}, rows, k[1]) : 1,
                 scores = part * all * keys,
                 rate = dtype_is_half(val(g, x->in[0])->dtype) ? m->r->products16 : m->r->batched;
    return 1 / m->r->steps + 2 * columns * scores / rate +
           scores * (t->ratio > 0) / m->r->functions +
           (back ? scores * (1 / m->r->exponentials + 6 / m->r->quick)
                 : scores / m->r->softmax + all / m->r->rows);
}

/* Bytes that a node writes which is no loop.  What is added into zeros goes to where it belongs. */
static double moved_bytes(const Joint *m, const Node *x)
{
    bool scatters = x->op == OP_ScatterND || x->op == OP_ScatterElements;
    return scatters && !m->data[x->in[0]] ? 2 * bytes_of(m, x->in[2]) : (double)node_bytes(m->g, x);
}

static double node_seconds(Joint *m, NodeId n)
{
    const Graph *g = m->g;
    const Node *x = &g->node.at[n];
    if (op_passes_on(x->op))
        return 0;
    if (op_is_collective(x->op))
        return exchange_seconds(m, x);
    if (x->op == OP_FlashAttention || x->op == OP_FlashAttentionGrad)
        return attention_seconds(m, n);
    if (op_is_product(x->op))
        return product_seconds(m, n);
    double touched = is_loop(x->op) ? traffic_seconds(m, n) : 0;
    if (op_is_map(x->op))
        return elements_of(m, x) * operation(m, x) + touched;
    if (is_softmax(x->op))
        return softmax_seconds(m, x) + touched;
    if (x->op == OP_Dropout || x->op == OP_Random)
        return elements_of(m, x) / m->r->functions;
    double work = (double)cost_flops(g, n) / m->r->quick;
    if (op_reduces(x->op))
        return work + touched;
    double moved = moved_bytes(m, x) / m->r->moves;
    return (op_stands_alone(x->op) ? 1 / m->r->steps : 0) + (work > moved ? work : moved);
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* What depends on data, and what is turned. */
static void find_data(Joint *m, const Ids *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const Node *x = &m->g->node.at[list->at[i]];
        const int rank = x->nin ? val(m->g, x->in[0])->shape.rank : 0;
        bool data = false;
        for (uint32_t k = 0; k < x->nin; k++)
            data |= m->data[x->in[k]];
        for (uint32_t k = 0; k < x->nout; k++)
            m->data[x->out[k]] = data;
        m->has_data[x->origin] |= data && m->part[list->at[i]] == PART_F;
        if (x->op == OP_Transpose && rank > 1 && x->attr.perm[rank - 2] == rank - 1)
            m->turned[x->in[0]] = true;
    }
}

static void add_list(Joint *m, const Ids *list, NodeCost *cost)
{
    find_data(m, list);
    find_loops(m, list);
    find_inside(m, list);
    for (uint32_t i = 0; i < list->n; i++) {
        NodeId n = list->at[i];
        const Node *x = &m->g->node.at[n];
        cost[n] = (NodeCost){.part = m->part[n], .seconds = node_seconds(m, n)};
        double weights = op_is_product(x->op) ? weight_bytes(m, n) : 0;
        if (weights > 0)
            cost[n].far = m->part[n] == PART_F ? weights + bytes_of(m, x->out[0])
                                               : (m->part[n] == PART_W ? 2 : 1) * weights;
    }
}

/* W: what no gradient of data needs that is handed on to another node of the file, as far as any of
   those has data.  passed: by value, whether one needs it; copy: by node, it is computed again. */
static void find_parts(Joint *m, const Stage *s, bool *passed, bool *copy)
{
    const Graph *g = m->g;
    for (uint32_t i = 0; i < s->recompute.n; i++)
        copy[s->recompute.at[i]] = true;
    for (uint32_t i = 0; i < s->input.n; i++)
        for (uint32_t k = 0; k < s->input.at[i].grads.n; k++)
            passed[s->input.at[i].grads.at[k]] = true;
    for (uint32_t i = s->backward.n; i-- > 0;) {
        NodeId n = s->backward.at[i];
        const Node *x = &g->node.at[n];
        bool input = false;
        for (uint32_t k = 0; k < x->nout; k++)
            input |= passed[x->out[k]];
        m->part[n] = input ? PART_I : PART_W;
        for (uint32_t k = 0; k < x->nin; k++) {
            const Value *v = val(g, x->in[k]);
            passed[x->in[k]] |=
                input || (v->kind == V_NODE && !copy[v->node] && m->has_data[x->origin] &&
                          !copy[n] && g->node.at[v->node].origin != x->origin);
        }
    }
}

NodeCost *joint_seconds(const Pipe *p, const Rates *r, Arena *a)
{
    const Graph *g = p->graph;
    const uint32_t nv = g->value.n + 1, nn = g->node.n + 1;
    Joint m = {.g = g, .r = r};
    NodeCost *cost = arena_array(a, NodeCost, nn);
    bool *passed = arena_array(a, bool, nv), *copy = arena_array(a, bool, nn);
    m.data = arena_array(a, bool, nv);
    m.inside = arena_array(a, bool, nv);
    m.turned = arena_array(a, bool, nv);
    m.read[0] = arena_array(a, uint32_t, nv);
    m.read[1] = arena_array(a, uint32_t, nv);
    m.loop = arena_array(a, uint32_t, nn);
    m.part = arena_array(a, uint8_t, nn);
    m.has_data = arena_array(a, bool, g->origin.n + 1);
    for (ValueId v = 0; v < g->value.n; v++)
        m.data[v] = val(g, v)->kind == V_INPUT;
    for (uint32_t s = 0; s < p->stage.n; s++)
        add_list(&m, &p->stage.at[s].forward, cost);
    for (uint32_t s = 0; s < p->stage.n; s++)
        find_parts(&m, &p->stage.at[s], passed, copy);
    for (uint32_t s = p->stage.n; s-- > 0;)
        add_list(&m, &p->stage.at[s].backward, cost);
    return cost;
}

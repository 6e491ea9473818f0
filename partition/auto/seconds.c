/*
 * seconds.c - what a node of a Graph takes: forward, and each gradient that the rules of autodiff
 * would ask of it.
 *
 * Products and convolutions: by FLOPs, and by the parameters that come from memory each time.
 * Loops (elementwise operations, sums, softmax): by their operations, and by what they read and
 * write.  Loops between two products are taken as one: what is made and read among them is in no
 * memory, and in backward it is made again.  What moves data: by bytes; between the members of an
 * axis, by what a member sends.  Views cost nothing.  Of the scores of an attention the part
 * counts that a causal mask leaves.
 */
#include "base/file/machine.h"
#include "ir/facts/attention.h"
#include "model.h"

/* ---- loops ----------------------------------------------------------------------------------- */

static bool is_softmax(Op op) { return op == OP_Softmax || op == OP_LogSoftmax; }

static bool is_loop(Op op) { return op_is_map(op) || is_softmax(op) || op_reduces(op); }

/* Its gradients read none of its operands and results. */
static bool is_linear(Op op)
{
    return op == OP_Add || op == OP_Sub || op == OP_Neg || op == OP_Cast || op_reduces(op);
}

static double bytes_of(const Model *m, ValueId v)
{
    return (double)value_bytes(m->g, v);
}

/* By node, the number of the loops that it belongs to: those between two nodes that are none. */
static uint32_t *numbers(const Model *m)
{
    const Graph *g = m->g;
    uint32_t *of = arena_array(m->a, uint32_t, g->node.n + 1), number = 0;
    for (NodeId n = 0; n < g->node.n; n++) {
        Op op = g->node.at[n].op;
        number += m->live[n] && !is_loop(op) && !op_passes_on(op);
        of[n] = number;
    }
    return of;
}

static void find_inside(Model *m, const uint32_t *number)
{
    const Graph *g = m->g;
    m->inside = arena_array(m->a, bool, g->value.n + 1);
    for (NodeId n = 0; n < g->node.n; n++)
        for (uint32_t k = 0; k < g->node.at[n].nout; k++)
            m->inside[g->node.at[n].out[k]] = is_loop(g->node.at[n].op);
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        for (uint32_t i = 0; i < x->nin && m->live[n]; i++) {
            const Value *v = val(g, x->in[i]);
            if (v->kind != V_NODE || !is_loop(x->op) || number[v->node] != number[n])
                m->inside[x->in[i]] = false;
        }
    }
}

/* Of a loop that goes over so many bytes of one operand or result. */
static double touch_seconds(const Model *m, double bytes)
{
    double far = rates_part(bytes, RATES_SMALL, RATES_LARGE);
    return bytes * ((1 - far) / m->r->cached + far / m->r->traffic);
}

/* What the loops of a node read and write of memory, that its neighbours have not met already; and
   the beginning of those that are taken as one, with the first of them. */
void find_traffic(Model *m)
{
    const Graph *g = m->g;
    uint32_t *number = numbers(m), *read = arena_array(m->a, uint32_t, g->value.n + 1),
             *saved = arena_array(m->a, uint32_t, g->value.n + 1);
    uint32_t begun = 0;
    find_inside(m, number);
    m->traffic = arena_array(m->a, Traffic, g->node.n + 1);
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        Traffic *t = &m->traffic[n];
        if (m->live[n] && is_loop(x->op) && begun != number[n] + 1) {
            t->forward += 1 / m->r->steps;
            t->backward += 1 / m->r->steps;
            begun = number[n] + 1;
        }
        for (uint32_t i = 0; i < x->nin && is_loop(x->op); i++) {
            ValueId v = x->in[i];
            double touched = touch_seconds(m, bytes_of(m, v));
            if (!m->data[v] || m->inside[v])
                continue;
            if (read[v] != number[n] + 1) {
                t->forward += touched;
                t->backward += m->grad[v] ? touched : 0; /* its gradient */
            }
            read[v] = number[n] + 1;
            if (!is_linear(x->op) && !is_softmax(x->op) && saved[v] != number[n] + 1) {
                t->backward += touched;
                saved[v] = number[n] + 1;
            }
        }
        for (uint32_t k = 0; k < x->nout && is_loop(x->op); k++) {
            double touched = m->inside[x->out[k]] ? 0 : touch_seconds(m, bytes_of(m, x->out[k]));
            t->forward += touched;
            t->backward += is_softmax(x->op) ? 2 * touched : touched;
        }
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Many products of activations: attention's. */
static bool is_batched(const Model *m, const Node *x)
{
    const Value *a = val(m->g, x->in[0]), *b = val(m->g, x->in[1]);
    return m->data[x->in[0]] && m->data[x->in[1]] && a->shape.rank > 2 && b->shape.rank > 2;
}

static double product_rate(const Model *m, const Node *x)
{
    Dtype t = val(m->g, x->in[0])->dtype;
    if (x->op != OP_MatMul && x->op != OP_PackedMatMul)
        return m->r->convolutions;
    return dtype_is_half(t)     ? m->r->products16
           : dtype_size(t) == 8 ? m->r->products64
           : is_batched(m, x)   ? m->r->batched
                                : m->r->products;
}

/* Bytes of a product's parameters. */
static double weight_bytes(const Model *m, const Node *x)
{
    double bytes = 0;
    for (uint32_t i = 0; i < x->nin; i++)
        bytes += m->of_params[x->in[i]] ? (double)value_bytes(m->g, x->in[i]) : 0;
    return bytes;
}

typedef enum { FORWARD, OF_DATA, OF_PARAMETERS } Direction;

/* Of a layer: what is read and written, once; of attention's products its rate has it in it.
   Backward, parameters lie the other way, or their gradients are added to: those are read, too. */
static double operand_seconds(const Model *m, const Node *x, Direction way)
{
    double weights = weight_bytes(m, x), bytes = 0;
    if (x->op != OP_MatMul && x->op != OP_PackedMatMul)
        return weights / m->r->traffic;
    if (is_batched(m, x))
        return 0;
    for (uint32_t i = 0; i < x->nin; i++)
        bytes += bytes_of(m, x->in[i]);
    bytes += bytes_of(m, x->out[0]);
    if (way == FORWARD)
        return bytes / m->r->operands;
    return (bytes - weights) / m->r->operands +
           (way == OF_PARAMETERS ? 2 : 1) * weights / m->r->transposed;
}

/* How many times so many columns are computed: they go by whole vectors. */
static double by_vectors(double columns)
{
    return columns > 0 ? ceil(columns / RATES_LANES) * RATES_LANES / columns : 1;
}

/* Of a product whose result v is its columns, those that lie side by side.  Behind a transpose these
   are v's rows. */
static double of_vectors(const Model *m, ValueId v)
{
    const Value *x = val(m->g, v);
    const int rank = x->shape.rank;
    int side = rank - 1;
    if (rank < 2)
        return 1;
    if (x->kind == V_NODE && m->g->node.at[x->node].op == OP_Transpose &&
        m->g->node.at[x->node].attr.perm[rank - 2] == side)
        side = rank - 2;
    return by_vectors((double)x->shape.d[side]);
}

/* Forward, or a gradient, of `made`: another product with as many operations. */
static double product_seconds(const Model *m, NodeId n, ValueId made, Direction way)
{
    const Graph *g = m->g;
    const Node *x = &g->node.at[n];
    double times = x->op == OP_MatMul || x->op == OP_PackedMatMul ? of_vectors(m, made) : 1;
    return 1 / m->r->steps + times * (double)cost_flops(g, n) / product_rate(m, x) +
           operand_seconds(m, x, way);
}

/* Elements that one pass over the operands and results meets. */
static double elements_of(const Model *m, const Node *x)
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
static double operation(const Model *m, const Node *x)
{
    if (op_is_quick(x->op))
        return 1 / m->r->quick;
    if (x->op == OP_Exp)
        return 1 / m->r->exponentials;
    return op_is_short(x->op) ? 1 / m->r->slow : 1 / m->r->functions;
}

/* What an element takes, and what a row does.  A logarithm of it, as
   losses have it, is a maximum and a sum of exponentials: nothing is kept, and none is divided. */
static double softmax_seconds(const Model *m, const Node *x)
{
    if (x->op == OP_LogSoftmax)
        return elements_of(m, x) * (1 / m->r->exponentials + 2 / m->r->quick);
    const Shape *s = &val(m->g, x->in[0])->shape;
    double rows = s->rank ? (double)shape_elements(s) / (double)s->d[s->rank - 1] : 1;
    return elements_of(m, x) / m->r->softmax + rows / m->r->rows;
}

/* Of a collective, or of its gradient. */
static double exchange_seconds(const Model *m, const Node *n, bool back)
{
    const double sent = (double)(back ? cost_sent_back(m->g, n) : cost_sent(m->g, n));
    const int others = m->g->mesh[n->attr.mesh].members - 1,
              messages = n->op == (back ? OP_Vary : OP_AllReduce) ? 2 * others : others;
    return sent > 0 ? messages / m->r->messages + sent / m->r->link : 0;
}

static bool is_exchange(Op op) { return op == OP_Vary || op_is_collective(op); }

/* The products of the scores that count, and what happens to these; backward makes them again, and
   has three more products. */
static double attention_seconds(const Model *m, NodeId n, bool back)
{
    const Graph *g = m->g;
    const Node *x = &g->node.at[n];
    const AttentionAttr *t = x->attr.attention;
    const Shape *stats = &val(g, x->out[1])->shape;
    const int64_t *k = val(g, x->in[1])->shape.d + val(g, x->in[1])->shape.rank - 2,
                  *v = val(g, x->in[2])->shape.d + val(g, x->in[2])->shape.rank - 2;
    const double all = (double)shape_elements(stats) / 2, keys = (double)k[1],
                 width = (double)k[0], width_v = (double)v[1],
                 wide = width * by_vectors(width), wide_v = width_v * by_vectors(width_v),
                 products = (width + wide_v + (back ? width_v + 2 * wide : 0)) / (width + width_v);
    const int64_t rows = stats->d[stats->rank - 2], above = attention_diagonal(t, x->attr.piece),
                  below = t->window ? above - t->window + 1 : 1 - rows;
    const double part = t->causal ? band_part((Band){below, above}, rows, k[1]) : 1,
                 scores = part * all * keys, rate = dtype_is_half(val(g, x->in[0])->dtype)
                                                        ? m->r->products16
                                                        : m->r->batched;
    return 1 / m->r->steps + products * part * (double)cost_flops(g, n) / rate +
           scores * (t->ratio > 0) / m->r->functions +
           (back ? scores * (1 / m->r->exponentials + 6 / m->r->quick)
                 : scores / m->r->softmax + all / m->r->rows);
}

static double forward_seconds(const Model *m, NodeId n)
{
    const Graph *g = m->g;
    const Node *x = &g->node.at[n];
    if (is_exchange(x->op))
        return exchange_seconds(m, x, false);
    if (x->op == OP_FlashAttention)
        return attention_seconds(m, n, false);
    if (op_is_product(x->op))
        return product_seconds(m, n, x->out[0], FORWARD);
    double touched = m->traffic[n].forward;
    if (op_is_map(x->op))
        return elements_of(m, x) * operation(m, x) + touched;
    if (is_softmax(x->op))
        return softmax_seconds(m, x) + touched;
    if (x->op == OP_Dropout || x->op == OP_Random)
        return elements_of(m, x) / m->r->functions;
    double work = (double)cost_flops(g, n) / m->r->quick;
    if (op_reduces(x->op))
        return work + touched;
    double moved = (double)node_bytes(g, x) / m->r->moves;
    return (op_stands_alone(x->op) ? 1 / m->r->steps : 0) + (work > moved ? work : moved);
}

/* A few quick ones; what was only there between two loops is made again, once; the sum of rows. */
static double map_gradient(const Model *m, NodeId n, uint32_t operand)
{
    const Graph *g = m->g;
    const Node *x = &g->node.at[n];
    bool quick = op_is_quick(x->op);
    double passes = x->nin == 1 && !quick ? 3 : !is_linear(x->op);
    bool summed = (double)shape_elements(&val(g, x->in[operand])->shape) < elements_of(m, x);
    double seconds = (passes + summed) / m->r->quick;
    if (operand == 0 && m->inside[x->out[0]] && !is_linear(x->op))
        seconds += operation(m, x);
    return elements_of(m, x) * seconds;
}

/* Of the gradient of one operand, without what its loop reads and writes. */
static double gradient_seconds(const Model *m, NodeId n, uint32_t operand)
{
    const Graph *g = m->g;
    const Node *x = &g->node.at[n];
    if (is_exchange(x->op))
        return exchange_seconds(m, x, true);
    if (x->op == OP_FlashAttention) /* of all three at once */
        return attention_seconds(m, n, true) / 3;
    if (op_is_product(x->op))
        return product_seconds(m, n, x->in[operand],
                               m->of_params[x->in[operand]] ? OF_PARAMETERS : OF_DATA);
    if (op_is_map(x->op))
        return map_gradient(m, n, operand);
    if (is_softmax(x->op)) /* of the logarithm, an exponential again */
        return elements_of(m, x) *
               (4 / m->r->quick + (x->op == OP_LogSoftmax ? 1 / m->r->exponentials : 0));
    if (op_picks(x->op)) /* added where it came from */
        return 2 * (double)node_bytes(g, x) / m->r->moves;
    if (op_reduces(x->op) || x->op == OP_Dropout)
        return elements_of(m, x) / m->r->quick;
    return forward_seconds(m, n);
}

/* A gradient of parameters is a loop of its own over the gradient of the result. */
static double parameter_traffic(const Model *m, const Node *x)
{
    double seconds = is_loop(x->op) ? 1 / m->r->steps : 0;
    for (uint32_t k = 0; k < x->nout && is_loop(x->op); k++)
        seconds += touch_seconds(m, bytes_of(m, x->out[k]));
    return seconds;
}

CutNode node_seconds(const Model *m, NodeId n)
{
    const Node *x = &m->g->node.at[n];
    if (op_passes_on(x->op) && (x->op != OP_Vary || m->of_params[x->in[0]]))
        return (CutNode){.idle = true};
    double weights = op_is_product(x->op) ? weight_bytes(m, x) : 0;
    CutNode c = {.forward = forward_seconds(m, n)};
    c.far[0] = weights > 0 ? weights + bytes_of(m, x->out[0]) : 0;
    bool asked = false, input = false;
    for (uint32_t i = 0; i < x->nout; i++)
        asked |= m->grad[x->out[i]];
    for (uint32_t i = 0; i < x->nin && asked; i++) {
        ValueId v = x->in[i];
        if (!m->grad[v])
            continue;
        if (m->of_params[v]) {
            c.weight += gradient_seconds(m, n, i) + parameter_traffic(m, x);
            c.far[2] = 2 * weights;
        } else {
            c.input += gradient_seconds(m, n, i);
            c.far[1] = weights;
            input = true;
        }
    }
    c.input += input ? m->traffic[n].backward : 0;
    c.whole = c.input + c.weight;
    return c;
}

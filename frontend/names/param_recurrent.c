/*
 * param_recurrent.c - recurrent layers of the dynamo exporter.  In: groups of nodes that were one
 * aten.lstm, aten.gru or aten.rnn, whose arguments are the matrices of all layers and directions;
 * its operators' W, R and B, which the exporter packed of these: directions behind one another,
 * gates in ONNX's order rather than PyTorch's, both biases in one row.  Out: the matrices as
 * parameters in PyTorch's order and shape, and recipes that pack them.  Which row of an operand is
 * which row of a matrix is known, so nothing here is a guess.
 *
 * The order of gates: ONNX, LSTM-22, GRU-22; torch.nn.LSTM, torch.nn.GRU.
 */
#include <string.h>

#include "param_fx.h"

enum { MOST_GATES = 4, FIRST_OPERAND = 1, OPERANDS = 3 };

/* gate[k]: PyTorch's number of ONNX's gate k */
typedef struct { const char *target, *op; int gates, gate[MOST_GATES]; } Layer;

static const Layer *layer_of(const FxNode *fx)
{
    static const Layer known[] = {
        {"aten.lstm.", "LSTM", 4, {0, 3, 1, 2}},        /* i o f c of i f c o */
        {"aten.gru.", "GRU", 3, {1, 0, 2}},             /* z r h of r z h */
        {"aten.rnn_tanh.", "RNN", 1, {0}},
        {"aten.rnn_relu.", "RNN", 1, {0}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fx_is_target(fx, known[i].target))
            return &known[i];
    return NULL;
}

bool fx_is_recurrent(const FxNode *fx) { return layer_of(fx) != NULL; }

static const RawTensor *operand(const Fx *x, const RawNode *n, uint32_t input)
{
    uint32_t init = input < n->nin ? strmap_get(&x->p->m->init_index, n->in[input]) : NONE;
    return init == NONE ? NULL : &x->p->m->init.at[init];
}

/* A matrix or vector of `gates` blocks that lie from `at` on in t: the parameter, made where it is
 * not there yet. */
static uint32_t unpack(Fx *x, uint32_t entry, const Layer *l, const RawTensor *t, const Shape *s,
                       size_t at)
{
    Params *p = x->p;
    if (p->sig_param[entry] != NONE)
        return p->sig_param[entry];
    size_t all = (size_t)shape_elements(s) * dtype_size(t->dtype), block = all / (size_t)l->gates;
    uint8_t *to = arena_alloc(x->a, all);
    for (int k = 0; k < l->gates; k++)
        memcpy(to + (size_t)l->gate[k] * block, t->bytes.at + at + (size_t)k * block, block);
    p->sig_param[entry] =
        param_put(p, p->sig.entry[entry].target, t->dtype, s,
                  (Payload){.at = to, .length = all, .file = t->bytes.file, .converted = true});
    return p->sig_param[entry];
}

/* Behind r: the parameter with its gates as ONNX has them.  Returns its term. */
static uint32_t pack(Fx *x, Recipe *r, const Layer *l, uint32_t param, int64_t rows)
{
    uint32_t term = recipe_param(x->a, r, param);
    int64_t *row = arena_array(x->a, int64_t, rows + 1), hidden = rows / l->gates;
    for (int64_t i = 0; i < rows; i++)
        row[i] = l->gate[i / hidden] * hidden + i % hidden;
    if (l->gates > 1)
        recipe_gather(x->a, r, rows, row);
    return l->gates > 1 ? r->n - 1 : term;
}

/* Beside what there is, along dim 0. */
static uint32_t beside(Fx *x, Recipe *r, uint32_t before, uint32_t last)
{
    return before == NONE
               ? last
               : recipe_op(x->a, r, OP_Concat, (Attr){.axis = 0}, before, last);
}

/*
 * Operand `input` of n, of all directions: arg[0] is the first direction's argument for it, that of
 * the next stands `step` behind.  A row of B is two vectors, of two arguments.
 */
static void unpack_operand(Fx *x, RawNode *n, uint32_t input, const Layer *l, const Argument *arg,
                           uint32_t step)
{
    const RawTensor *t = operand(x, n, input);
    uint32_t parts = input == FIRST_OPERAND + 2 ? 2 : 1, all = NONE;
    int64_t directions = t->shape.d[0], rows = t->shape.d[1] / parts;
    Shape s = shape_of(1, rows), row = t->shape;
    if (parts == 1)
        s = shape_of(2, rows, t->shape.d[2]);
    row.d[0] = 1;
    size_t bytes = (size_t)shape_elements(&s) * dtype_size(t->dtype), at = 0;
    Recipe *r = arena_new_of(x->a, Recipe);
    for (int64_t d = 0; d < directions; d++) {
        uint32_t one = NONE;
        for (uint32_t k = 0; k < parts; k++, at += bytes) {
            uint32_t id = unpack(x, arg[(size_t)d * step + k].entry, l, t, &s, at);
            one = beside(x, r, one, pack(x, r, l, id, rows));
        }
        recipe_reshape(x->a, r, &row);
        all = beside(x, r, all, r->n - 1);
    }
    param_use_made(x->p, n, input, r);
}

/* Are these the operands of such a layer, of float numbers, in whole gates? */
static bool fits(const Fx *x, const RawNode *n, const Layer *l, bool biased)
{
    int64_t hidden = raw_int(n, "hidden_size", 0), rows = hidden * l->gates;
    if (strcmp(n->op_type, l->op) || hidden < 1)
        return false;
    const RawTensor *w = operand(x, n, FIRST_OPERAND);
    for (uint32_t i = 0; i < (biased ? OPERANDS : OPERANDS - 1); i++) {
        const RawTensor *t = operand(x, n, FIRST_OPERAND + i);
        if (!w || !t || (t->dtype != DT_F32 && t->dtype != DT_F64) ||
            t->shape.rank != (i < 2 ? 3 : 2) ||
            t->shape.d[0] != w->shape.d[0] || t->shape.d[1] != (i < 2 ? rows : 2 * rows) ||
            t->bytes.length !=
                (size_t)shape_elements(&t->shape) * (size_t)dtype_size(t->dtype))
            return false;
    }
    return true;
}

static void unpack_group(Fx *x, Group *g, const Layer *l)
{
    int64_t directions = 0;
    uint32_t step, at = 0;
    for (uint32_t i = 0; i < g->node.n; i++) {
        const RawTensor *w = operand(x, g->node.at[i], FIRST_OPERAND);
        if (!strcmp(g->node.at[i]->op_type, l->op))
            directions += w && w->shape.rank == 3 ? w->shape.d[0] : 0;
    }
    if (directions < 1 || g->arg.n % directions)
        return;
    step = g->arg.n / (uint32_t)directions;             /* 5: projections, which ONNX lacks */
    for (uint32_t i = 0; i < g->node.n; i++) {
        RawNode *n = g->node.at[i];
        if (strcmp(n->op_type, l->op))
            continue;
        if ((step != 2 && step != 4) || !fits(x, n, l, step == 4))
            return;
        for (uint32_t k = 0; k < OPERANDS && k < step; k++)
            unpack_operand(x, n, FIRST_OPERAND + k, l, &g->arg.at[at + k], step);
        const RawTensor *w = operand(x, n, FIRST_OPERAND);
        at += w ? step * (uint32_t)w->shape.d[0] : 0;
    }
}

void fx_unpack(Fx *x)
{
    for (uint32_t i = 0; i < x->group.n; i++) {
        const Layer *l = layer_of(&x->group.at[i].fx);
        if (l)
            unpack_group(x, &x->group.at[i], l);
    }
}

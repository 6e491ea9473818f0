/*
 * recurrent.c - the matrices of recurrent layers: W, R and B of ONNX are packed of them. Directions
 * stand behind one another, gates in ONNX's order rather than PyTorch's, both biases in one row.
 * In: the operators of one aten.lstm, aten.gru or aten.rnn, whose arguments are the layer's
 * matrices; or those of TorchScript's exporter, whose folding leaves no name ("onnx::LSTM_120"):
 * the k-th of a call of a module is its layer k.  Out: the matrices as parameters in PyTorch's
 * order and shape, and recipes that pack them.  Which row of an operand is which row of a matrix is
 * known, so nothing here is a guess.
 *
 * The order of gates: ONNX, LSTM-22, GRU-22; torch.nn.LSTM, torch.nn.GRU.
 */
#include <string.h>

#include "fx.h"

enum { MOST_GATES = 4, FIRST_OPERAND = 1, OPERANDS = 3 };

/* gate[k]: PyTorch's number of ONNX's gate k */
typedef struct {
    const char *target, *op;
    int gates, gate[MOST_GATES];
} Layer;

/* A matrix or bias: what it is called, and where the number of the parameter is kept. */
typedef struct {
    const char *name;
    uint32_t *param;
} Matrix;

static const Layer known[] = {
    {"aten.lstm.", "LSTM", 4, {0, 3, 1, 2}}, /* i o f c of i f c o */
    {"aten.gru.", "GRU", 3, {1, 0, 2}},      /* z r h of r z h */
    {"aten.rnn_tanh.", "RNN", 1, {0}},
    {"aten.rnn_relu.", "RNN", 1, {0}},
};

static const Layer *layer_of(const FxNode *fx)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fx_is_target(fx, known[i].target))
            return &known[i];
    return NULL;
}

bool fx_is_recurrent(const FxNode *fx) { return layer_of(fx) != NULL; }

static const RawTensor *operand(const Params *p, const RawNode *n, uint32_t input)
{
    return input < n->nin ? param_array(p, n->in[input]) : NULL;
}

/* A matrix or vector of `gates` blocks that lie from `at` on in t: the parameter, made where it is
 * not there yet. */
static uint32_t unpack(Params *p, const Matrix *m, const Layer *l, const RawTensor *t,
                       const Shape *s, size_t at)
{
    if (*m->param != NONE)
        return *m->param;
    size_t all = (size_t)shape_elements(s) * dtype_size(t->dtype), block = all / (size_t)l->gates;
    uint8_t *to = arena_alloc(p->m->arena, all);
    for (int k = 0; k < l->gates; k++)
        memcpy(to + (size_t)l->gate[k] * block, t->bytes.at + at + (size_t)k * block, block);
    *m->param =
        param_put(p, m->name, t->dtype, s,
                  (Payload){.at = to, .length = all, .file = t->bytes.file, .converted = true});
    return *m->param;
}

/* Behind r: the parameter with its gates as ONNX has them.  Returns its term. */
static uint32_t pack(Arena *a, Recipe *r, const Layer *l, uint32_t param, int64_t rows)
{
    uint32_t term = recipe_param(a, r, param);
    int64_t *row = arena_array(a, int64_t, rows + 1), hidden = rows / l->gates;
    for (int64_t i = 0; i < rows; i++)
        row[i] = l->gate[i / hidden] * hidden + i % hidden;
    if (l->gates > 1)
        recipe_gather(a, r, rows, row);
    return l->gates > 1 ? r->n - 1 : term;
}

/* Beside what there is, along dim 0. */
static uint32_t beside(Arena *a, Recipe *r, uint32_t before, uint32_t last)
{
    return before == NONE ? last : recipe_op(a, r, OP_Concat, (Attr){.axis = 0}, before, last);
}

/*
 * Operand `input` of n, of all directions: m[0] is the first direction's matrix for it, that of the
 * next stands `step` behind.  A row of B is two vectors.
 */
static void unpack_operand(Params *p, RawNode *n, uint32_t input, const Layer *l, const Matrix *m,
                           uint32_t step)
{
    Arena *a = p->m->arena;
    const RawTensor *t = operand(p, n, input);
    uint32_t parts = input == FIRST_OPERAND + 2 ? 2 : 1, all = NONE;
    int64_t directions = t->shape.d[0], rows = t->shape.d[1] / parts;
    Shape s = shape_of(1, rows), row = t->shape;
    if (parts == 1)
        s = shape_of(2, rows, t->shape.d[2]);
    row.d[0] = 1;
    size_t bytes = (size_t)shape_elements(&s) * dtype_size(t->dtype), at = 0;
    Recipe *r = arena_new_of(a, Recipe);
    for (int64_t d = 0; d < directions; d++) {
        uint32_t one = NONE;
        for (uint32_t k = 0; k < parts; k++, at += bytes) {
            uint32_t id = unpack(p, &m[(size_t)d * step + k], l, t, &s, at);
            one = beside(a, r, one, pack(a, r, l, id, rows));
        }
        recipe_reshape(a, r, &row);
        all = beside(a, r, all, r->n - 1);
    }
    param_use_made(p, n, input, r);
}

static int64_t directions_of(const RawNode *n)
{
    const Onnx__AttributeProto *d = raw_attr(n, "direction");
    static const char both[] = "bidirectional";
    return d && d->s.len == strlen(both) && !memcmp(d->s.data, both, d->s.len) ? 2 : 1;
}

/* Is operand k of such a layer in the file, of float numbers, in whole gates? */
static bool operand_fits(const Params *p, const RawNode *n, const Layer *l, uint32_t k)
{
    int64_t hidden = raw_int(n, "hidden_size", 0), rows = hidden * l->gates;
    const RawTensor *t = operand(p, n, FIRST_OPERAND + k);
    return t && hidden >= 1 && (t->dtype == DT_F32 || t->dtype == DT_F64) &&
           t->shape.rank == (k < 2 ? 3 : 2) && t->shape.d[0] == directions_of(n) &&
           t->shape.d[1] == (k < 2 ? rows : 2 * rows) &&
           t->bytes.length == (size_t)shape_elements(&t->shape) * (size_t)dtype_size(t->dtype);
}

/* W, R and B of all directions; without biases, step is 2.  Those that are not in the file,
 * nodes pack of what is: dynamo's optimizer computes small operands, often the biases alone. */
static void unpack_node(Params *p, RawNode *n, const Layer *l, const Matrix *m, uint32_t step)
{
    for (uint32_t k = 0; k < OPERANDS && k < step; k++)
        if (operand_fits(p, n, l, k))
            unpack_operand(p, n, FIRST_OPERAND + k, l, m + k, step);
}

static void unpack_group(Fx *x, Group *g, const Layer *l)
{
    Params *p = x->p;
    uint32_t step, at = 0;
    int64_t directions = 0;
    for (uint32_t i = 0; i < g->node.n; i++)
        if (!strcmp(g->node.at[i]->op_type, l->op))
            directions += directions_of(g->node.at[i]);
    if (directions < 1 || g->arg.n % directions)
        return;
    step = g->arg.n / (uint32_t)directions; /* 5: projections, which ONNX lacks */
    Matrix *m = arena_array(x->a, Matrix, g->arg.n);
    for (uint32_t i = 0; i < g->arg.n; i++) {
        uint32_t e = g->arg.at[i].entry;
        m[i] = (Matrix){p->sig.entry[e].target, &p->sig_param[e]};
    }
    for (uint32_t i = 0; i < g->node.n && (step == 2 || step == 4); i++) {
        RawNode *n = g->node.at[i];
        if (strcmp(n->op_type, l->op))
            continue;
        unpack_node(p, n, l, m + at, step);
        at += step * (uint32_t)directions_of(n);
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

/* ---- TorchScript ---- */

static const Layer *folded_layer(const Params *p, const RawNode *n)
{
    const RawTensor *t = n->dead || *n->domain || !*n->scope ? NULL : operand(p, n, FIRST_OPERAND);
    for (size_t i = 0; t && i < sizeof known / sizeof *known; i++)
        if (!strcmp(n->op_type, known[i].op) && param_is_folded(p, t))
            return operand_fits(p, n, &known[i], 0) && operand_fits(p, n, &known[i], 1) ? &known[i]
                                                                                        : NULL;
    return NULL;
}

void param_recurrent(Params *p, const RawNodes *list)
{
    static const char *const kind[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    Arena *a = p->m->arena;
    StrMap layers = {.arena = a};
    for (uint32_t i = 0; i < list->n && p->m->from_pytorch; i++) {
        RawNode *n = list->at[i];
        const Layer *l = folded_layer(p, n);
        if (!l)
            continue;
        uint32_t *next = strmap_at(&layers, arena_printf(a, "%s %u", n->scope, n->call)),
                 layer = *next == NONE ? 0 : *next, id[8], step = operand_fits(p, n, l, 2) ? 4 : 2;
        *next = layer + 1;
        Matrix m[8];
        for (uint32_t k = 0; k < 2 * step; k++) {
            const char *name = arena_printf(a, "%s.%s_l%u%s", n->scope, kind[k % step], layer,
                                            k < step ? "" : "_reverse");
            id[k] = strmap_get(&p->by_name, name);
            m[k] = (Matrix){name, &id[k]};
        }
        unpack_node(p, n, l, m, step);
    }
}

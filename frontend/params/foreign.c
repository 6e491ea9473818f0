/*
 * foreign.c - parameters of models that are not PyTorch's.  In: an initializer that a node
 * reads, of a name that may mean nothing ("const_3", "B0__68", "intercepts2").  Out: whether it is
 * a weight, by the slot it stands in: of a product, a norm, a table, a recurrent operator; of a
 * loop's body, into which it is carried; a scale or a bias in a Mul or an Add.  What holds several
 * numbers, stands in the arithmetic and is none is named once, as it will not train.
 *
 * tf2onnx carries the weights of a while loop in as values of the loop, jax2onnx those of a scan.
 */
#include <string.h>

#include "params.h"

static bool is_op(const RawNode *n, const char *op)
{
    return !*n->domain && !strcmp(n->op_type, op);
}

/* W, R, B; an LSTM's peepholes. */
static bool is_recurrent(const char *op, uint32_t input)
{
    bool lstm = !strcmp(op, "LSTM");
    return (lstm || !strcmp(op, "GRU") || !strcmp(op, "RNN")) &&
           ((input >= 1 && input <= 3) || (lstm && input == 7));
}

/* One dim that is not 1. */
static bool is_vector(const RawTensor *t)
{
    int wide = 0;
    for (int i = 0; i < t->shape.rank; i++)
        wide += t->shape.d[i] != 1;
    return wide == 1;
}

/* A weight by its slot alone, whatever it is called. */
static bool is_slot(const RawNode *n, uint32_t input, const RawTensor *t)
{
    int role = param_role(n, input);
    if (!*n->domain && is_recurrent(n->op_type, input))
        return true;
    return role == ROLE_BIAS ||
           (role == ROLE_WEIGHT && (t->shape.rank >= 2 || !is_op(n, "MatMul")));
}

static bool is_affine(const RawNode *n, const RawTensor *t)
{
    return (is_op(n, "Add") || is_op(n, "Mul")) && is_vector(t);
}

/* ---- through a loop's body ---- */

static const char *text(const char *s) { return s ? s : ""; }

/* What only moves or views its first operand. */
static bool passes(const char *op)
{
    static const char *const moves[] = {"Identity", "Reshape",   "Transpose", "Cast",
                                        "Squeeze",  "Unsqueeze", "Expand",    NULL};
    for (int i = 0; moves[i]; i++)
        if (!strcmp(op, moves[i]))
            return true;
    return false;
}

static bool read_in(const Onnx__GraphProto *g, const char *name, const RawTensor *t, int depth)
{
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *p = g->node[i];
        RawNode n = {.op_type = text(p->op_type), .domain = text(p->domain)};
        for (size_t j = 0; j < p->n_input; j++) {
            if (strcmp(text(p->input[j]), name))
                continue;
            if (is_slot(&n, (uint32_t)j, t) || is_affine(&n, t))
                return true;
            if (j == 0 && depth > 0 && passes(n.op_type) && p->n_output == 1 &&
                read_in(g, text(p->output[0]), t, depth - 1))
                return true;
        }
    }
    return false;
}

/* Carried into a body that reads it as a weight. */
static bool is_carried(const RawNode *n, uint32_t input, const RawTensor *t)
{
    enum { MOST_MOVES = 4 };
    const Onnx__AttributeProto *body =
        is_op(n, "Loop") || is_op(n, "Scan") ? raw_attr(n, "body") : NULL;
    if (!body || !body->g || input >= body->g->n_input || t->shape.rank == 0)
        return false;
    return read_in(body->g, text(body->g->input[input]->name), t, MOST_MOVES);
}

/* ---- the whole ---- */

/* What readers say of a value, through what only moves it. */
enum { READ_SLOT = 1, READ_AFFINE = 2 };

static uint32_t read_as(const Params *p, const char *value)
{
    uint32_t flags = strmap_get(&p->read_as, value);
    return flags == NONE ? 0 : flags;
}

static uint32_t reads_as(const Params *p, const RawNode *n, uint32_t input)
{
    RawTensor matrix = {.shape = {.rank = 2}};
    if (input == 0 && passes(n->op_type) && !*n->domain && n->nout == 1)
        return read_as(p, n->out[0]);
    return (is_slot(n, input, &matrix) ? READ_SLOT : 0) |
           (is_op(n, "Add") || is_op(n, "Mul") ? READ_AFFINE : 0);
}

void param_foreign_begin(Params *p, const RawNodes *list)
{
    p->narrow.arena = p->read_as.arena = p->m->arena;
    for (uint32_t i = list->n; i-- > 0 && !p->m->from_pytorch;) { /* readers first */
        const RawNode *n = list->at[i];
        uint32_t w = NONE;
        if (n->dead)
            continue;
        for (uint32_t j = 0; j < n->nin; j++) {
            uint32_t flags = *n->in[j] ? reads_as(p, n, j) : 0;
            if (flags)
                *strmap_at(&p->read_as, n->in[j]) = flags | read_as(p, n->in[j]);
        }
        if (n->nin == 2 && is_op(n, "MatMul"))
            w = strmap_get(&p->m->init_index, n->in[1]);
        const Shape *s = w != NONE ? &p->m->init.at[w].shape : NULL;
        if (s && s->rank == 2 && s->d[1] == 1)
            *strmap_at(&p->narrow, n->out[0]) = i;
    }
}

bool param_foreign(const Params *p, const RawNode *n, uint32_t input, const RawTensor *t)
{
    /* a bias of one number is seen by the product that it is added to */
    bool narrow = is_op(n, "Add") && n->nin == 2 && t->shape.rank > 0 &&
                  shape_elements(&t->shape) == 1 &&
                  strmap_get(&p->narrow, n->in[1 - input]) != NONE;
    bool moved = input == 0 && passes(n->op_type) && !*n->domain && n->nout == 1;
    uint32_t as = moved && t->shape.rank > 0 ? read_as(p, n->out[0]) : 0;
    return is_slot(n, input, t) || is_affine(n, t) || narrow || is_carried(n, input, t) ||
           (as & READ_SLOT) || ((as & READ_AFFINE) && is_vector(t));
}

/* Float initializers of several numbers that stand where parameters may. */
void param_foreign_note(Params *p, const RawNodes *list)
{
    static const char *const arithmetic[] = {"Add", "Sub",    "Mul",    "Div",  "MatMul", "Gemm",
                                             "Sum", "Einsum", "Concat", "Loop", "Scan",   NULL};
    for (uint32_t i = 0; i < list->n && !p->m->from_pytorch && p->opt->training; i++) {
        const RawNode *n = list->at[i];
        bool stands = false;
        for (int k = 0; arithmetic[k]; k++)
            stands |= !n->dead && is_op(n, arithmetic[k]);
        for (uint32_t j = 0; stands && j < n->nin; j++) {
            uint32_t init = *n->in[j] ? strmap_get(&p->m->init_index, n->in[j]) : NONE;
            const RawTensor *t = init != NONE ? &p->m->init.at[init] : NULL;
            if (!t || param_is_used(n, j) || !dtype_is_float(t->dtype) ||
                shape_elements(&t->shape) < 2 || strmap_get(&p->by_init, t->name) != NONE ||
                strmap_get(&p->noted, t->name) != NONE ||
                param_matches(p->opt->freeze.at, p->opt->freeze.n, t->name))
                continue;
            *strmap_at(&p->noted, t->name) = 1;
            vec_push(p->m->arena, &p->constant, t->name);
        }
    }
}

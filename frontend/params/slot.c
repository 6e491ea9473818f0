/*
 * slot.c - which slots an array of the file reaches.  In: the nodes of a list.  Out: of each value,
 * what it is made of: arrays alone, data, or data and parameters; of each array, the slot that says
 * most of it (the letters of ops.def), through all that is computed of arrays alone: views, exp(x),
 * 1 + x.
 *
 * What is added or multiplied along the features of a value that parameters made is a parameter;
 * what is subtracted from data, or divides data, is a statistic of them.  A label is an input that
 * reaches no weight, of a model whose output is one number: what meets a label belongs to the loss.
 * tf2onnx and jax2onnx carry the weights of a loop in as values of the loop: its body is read for
 * them.
 */
#include <string.h>

#include "fx.h"

/* Of what a value is made; OF_LABEL beside it. */
enum { OF_ARRAYS, OF_DATA, OF_PARAMETERS, OF_LABEL = 4 };

static const char *text(const char *s) { return s ? s : ""; }

static bool is_op(const RawNode *n, const char *op)
{
    return !*n->domain && !strcmp(n->op_type, op);
}

static char slot_of(const RawNode *n, uint32_t input)
{
    return op_slot(n->domain, n->op_type, input);
}

static bool is_control(const RawNode *n)
{
    return is_op(n, "If") || is_op(n, "Loop") || is_op(n, "Scan") || is_op(n, "SequenceMap");
}

/* ---- what values are made of ---- */

/* What no list so far makes is an argument of a body. */
static uint32_t made_of(const Params *p, const char *value)
{
    uint32_t of = *value ? strmap_get(&p->slot.made_of, value) : OF_ARRAYS;
    if (of != NONE)
        return of;
    return strmap_get(&p->m->init_index, value) != NONE ? OF_ARRAYS : OF_PARAMETERS;
}

static bool is_array(const Params *p, const char *value) { return made_of(p, value) == OF_ARRAYS; }

/* Under a name that only parameters and buffers have; PyTorch's exporters hold none in a Constant.
 */
static bool is_named(const Params *p, const RawTensor *t)
{
    return param_is_named(p, t->name) && !(p->m->from_pytorch && t->is_lifted);
}

/* Of data, a vector, or the same number for all, may be a statistic; that is no weight's name. */
static bool may_be_statistic(const RawTensor *t)
{
    return raw_wide_dims(&t->shape) < 2 && !param_is_leaf_name(t->name);
}

/* torch.clamp(x, min=0) is written as the larger of x and an array of one number. */
static bool is_bound(const Params *p, const RawNode *n, uint32_t j)
{
    const RawTensor *t = raw_array(p->m, n->in[j]);
    return t && shape_elements(&t->shape) == 1;
}

/* A slot in which a parameter stands, as far as can be told before any is known.  module: a weight,
 * a scale or a bias; else one by its name as well. */
static bool holds_parameter(const Params *p, const RawNode *n, uint32_t j, bool module)
{
    char slot = slot_of(n, j);
    const RawTensor *t = raw_array(p->m, n->in[j]);
    if (!*n->in[j] || !is_array(p, n->in[j]) || (t && !dtype_is_float(t->dtype)))
        return false;
    if (slot == 'h' && is_bound(p, n, j))
        return false;
    if (strchr("fdlch.", slot))
        return !module && t && is_named(p, t) && !param_is_buffer(p, t->name) &&
               !(slot == 'd' && may_be_statistic(t));
    return slot == 'b' || slot == 's' || slot == 'p' || (slot == 'w' && (!t || t->shape.rank > 1));
}

static bool reads_parameter(const Params *p, const RawNode *n, bool module)
{
    bool data = false, parameter = false;
    for (uint32_t j = 0; j < n->nin; j++) {
        data |= !is_array(p, n->in[j]);
        parameter |= holds_parameter(p, n, j, module);
    }
    return data && parameter;
}

/* Of what is made of both. */
static uint32_t together(uint32_t x, uint32_t y)
{
    uint32_t a = x & ~(uint32_t)OF_LABEL, b = y & ~(uint32_t)OF_LABEL;
    return (a > b ? a : b) | ((x | y) & OF_LABEL);
}

static uint32_t result_of(const Params *p, const RawNode *n)
{
    uint32_t of = is_control(n) ? OF_PARAMETERS : OF_ARRAYS;
    if (is_op(n, "Shape") || is_op(n, "Size"))
        return OF_ARRAYS;
    if (!strncmp(n->op_type, "Random", strlen("Random")))
        return OF_DATA;
    for (uint32_t j = 0; j < n->nin; j++) {
        bool mask = is_op(n, "Where") && j == 0;
        of = together(of, made_of(p, n->in[j]) & ~(uint32_t)(mask ? OF_LABEL : 0));
    }
    if (reads_parameter(p, n, false))
        return OF_PARAMETERS | (of & OF_LABEL);
    bool stops = (of & OF_PARAMETERS) && slot_of(n, 0) == 'x'; /* no gradient passes */
    return stops ? OF_DATA | (of & OF_LABEL) : of;
}

static void find_made_of(Params *p, const RawNodes *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const RawNode *n = list->at[i];
        uint32_t of = n->dead ? OF_ARRAYS : result_of(p, n);
        for (uint32_t k = 0; k < n->nout && !n->dead; k++)
            if (*n->out[k])
                *strmap_at(&p->slot.made_of, n->out[k]) = of;
    }
}

/* ---- labels ---- */

/* The model ends in one number: its loss. */
static bool ends_in_a_loss(const Model *m)
{
    for (size_t i = 0; i < m->graph->n_output; i++) {
        const Onnx__TensorShapeProto *s = raw_shape(m->graph->output[i]);
        bool one = s != NULL;
        for (size_t d = 0; s && d < s->n_dim; d++)
            one &= s->dim[d]->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                   s->dim[d]->dim_value == 1;
        if (one)
            return true;
    }
    return false;
}

/* The inputs from which nothing comes to a weight, where others come to one; false: none. */
static bool find_labels(Params *p, const RawNodes *list)
{
    StrMap reaches = {.arena = p->m->arena};
    bool any = false, data = false;
    for (uint32_t i = list->n; i-- > 0;) { /* readers first */
        const RawNode *n = list->at[i];
        bool on = !n->dead && (is_control(n) || reads_parameter(p, n, true));
        for (uint32_t k = 0; k < n->nout && !n->dead; k++)
            on |= strmap_get(&reaches, n->out[k]) != NONE;
        for (uint32_t j = 0; j < n->nin && on; j++)
            *strmap_at(&reaches, n->in[j]) = 1;
    }
    for (size_t i = 0; i < p->m->graph->n_input; i++)
        data |= strmap_get(&reaches, text(p->m->graph->input[i]->name)) != NONE;
    for (size_t i = 0; data && i < p->m->graph->n_input; i++) {
        const char *name = text(p->m->graph->input[i]->name);
        if (made_of(p, name) != OF_DATA || strmap_get(&reaches, name) != NONE)
            continue;
        *strmap_at(&p->slot.made_of, name) = OF_DATA | OF_LABEL;
        any = true;
    }
    return any;
}

/* ---- through a loop's body ---- */

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

static uint32_t read_in(const Onnx__GraphProto *g, const char *name, int depth)
{
    uint32_t as = 0;
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        const char *op = text(n->op_type);
        for (size_t j = 0; j < n->n_input; j++) {
            if (strcmp(text(n->input[j]), name))
                continue;
            char slot = op_slot(text(n->domain), op, (uint32_t)j);
            as |= slot == 'w'   ? SLOT_WEIGHT
                  : slot == 'b' ? SLOT_BIAS
                  : slot == 's' ? SLOT_SCALE
                  : slot == 'p' ? SLOT_OTHER
                  : slot == 'f' ? SLOT_FEATURE
                                : 0;
            if (j == 0 && depth > 0 && passes(op) && n->n_output == 1)
                as |= read_in(g, text(n->output[0]), depth - 1);
        }
    }
    return as;
}

/* What the body reads the operand as that is carried into it. */
static uint32_t carried(const RawNode *n, uint32_t input)
{
    enum { MOST_MOVES = 4 };
    const Onnx__AttributeProto *body =
        is_op(n, "Loop") || is_op(n, "Scan") ? raw_attr(n, "body") : NULL;
    uint32_t as = body && body->g && input < body->g->n_input
                      ? read_in(body->g, text(body->g->input[input]->name), MOST_MOVES)
                      : 0;
    return as ? as : SLOT_NAMED;
}

/* ---- what readers say ---- */

static uint32_t lowest(uint32_t flags) { return flags & (~flags + 1); }

static const SlotRead *reading(const Params *p, const char *value)
{
    uint32_t at = strmap_get(&p->slot.reading, value);
    return at == NONE ? NULL : &p->slot.readings.at[at];
}

static void read_as(Params *p, const char *value, SlotRead r)
{
    uint32_t *at = strmap_at(&p->slot.reading, value);
    if (*at == NONE) {
        *at = p->slot.readings.n;
        vec_push(p->m->arena, &p->slot.readings, r);
        return;
    }
    SlotRead *known = &p->slot.readings.at[*at];
    if (lowest(r.as) < lowest(known->as)) {
        r.as |= known->as;
        *known = r;
    } else {
        known->as |= r.as;
    }
}

/* The sum of a product of one column and a number: its bias. */
static bool is_narrow(const Params *p, const RawNode *n, uint32_t j)
{
    return is_op(n, "Add") && n->nin == 2 && strmap_get(&p->slot.narrow, n->in[1 - j]) != NONE;
}

/* beside: of what the other operands are made */
static uint32_t slot_flag(const Params *p, const RawNode *n, uint32_t j, uint32_t beside)
{
    bool learned = (beside & ~(uint32_t)OF_LABEL) == OF_PARAMETERS;
    char slot = slot_of(n, j);
    if (slot == 'h' && is_bound(p, n, j))
        return SLOT_NEVER;
    if (slot == 'x' || slot == 'm' || slot == 'v')
        return slot == 'x' ? SLOT_NEVER : SLOT_STATISTIC;
    if (beside & OF_LABEL)
        return SLOT_LOSS;
    switch (slot) {
    case 'w': return SLOT_WEIGHT;
    case 'b': return SLOT_BIAS;
    case 's': return SLOT_SCALE;
    case 'p': return SLOT_OTHER;
    case 'l': return SLOT_FEATURE;
    case 'f': return is_narrow(p, n, j) ? SLOT_BIAS : learned ? SLOT_FEATURE : SLOT_NAMED;
    case 'd': return learned ? SLOT_FEATURE : SLOT_OF_DATA;
    case 'c': return learned ? SLOT_JOINED : SLOT_NAMED;
    default: return SLOT_NAMED;
    }
}

/* A product with several numbers that are arrays, too: positions, where sines or cosines follow. */
static bool is_grid(const Params *p, const RawNode *n, uint32_t j)
{
    bool product = is_op(n, "Mul") || is_op(n, "MatMul") || is_op(n, "Einsum");
    for (uint32_t k = 0; product && k < n->nin; k++) {
        const RawTensor *t = raw_array(p->m, n->in[k]);
        if (k != j && (!t || shape_elements(&t->shape) > 1))
            return true;
    }
    return false;
}

/* A table that is called as parameters are is one, whatever rows are taken of it. */
static bool is_named_table(const Params *p, const RawNode *n, uint32_t j)
{
    const RawTensor *t = raw_array(p->m, n->in[j]);
    return j == 0 && is_op(n, "Gather") && t && is_named(p, t) && t->shape.rank > 1;
}

/* What node n says of operand j: where all it reads are arrays, what the readers of its result say.
 */
static SlotRead says(const Params *p, const RawNode *n, uint32_t j)
{
    SlotRead r = {.node = n, .input = j};
    uint32_t beside = OF_ARRAYS;
    if (is_control(n)) {
        r.as = carried(n, j);
        return r;
    }
    for (uint32_t k = 0; k < n->nin; k++)
        beside = k == j ? beside : together(beside, made_of(p, n->in[k]));
    r.as = slot_flag(p, n, j, beside);
    if (beside != OF_ARRAYS || is_named_table(p, n, j) ||
        r.as & (SLOT_BIAS | SLOT_SCALE | SLOT_STATISTIC | SLOT_NEVER))
        return r;
    SlotRead of = {0};
    for (uint32_t k = 0; k < n->nout; k++) {
        const SlotRead *q = *n->out[k] ? reading(p, n->out[k]) : NULL;
        if (q && (!of.as || lowest(q->as) < lowest(of.as)))
            of = *q;
    }
    if (slot_of(n, j) == 'a')
        of.as |= SLOT_ANGLE;
    if (of.as & SLOT_ANGLE && is_grid(p, n, j)) {
        r.as = SLOT_FREQUENCY;
        return r;
    }
    r.as = of.as ? of.as : SLOT_NAMED;
    if (of.as & ~(uint32_t)SLOT_ANGLE) {
        r.node = of.node;
        r.input = of.input;
    }
    return r;
}

void param_slots(Params *p, const RawNodes *list)
{
    bool whole = list == &p->m->node;
    for (uint32_t i = 0; p->m->from_pytorch && i < p->m->init.n; i++)
        p->slot.named |= p->m->init.at[i].shape.rank > 1 && is_named(p, &p->m->init.at[i]);
    p->slot.made_of.arena = p->slot.reading.arena = p->slot.narrow.arena = p->m->arena;
    for (size_t i = 0; whole && i < p->m->graph->n_input; i++) {
        const char *name = text(p->m->graph->input[i]->name);
        if (strmap_get(&p->m->init_index, name) == NONE)
            *strmap_at(&p->slot.made_of, name) = p->file > 0 ? OF_PARAMETERS : OF_DATA;
    }
    find_made_of(p, list);
    if (whole && ends_in_a_loss(p->m) && find_labels(p, list))
        find_made_of(p, list);
    for (uint32_t i = list->n; i-- > 0;) { /* readers first */
        const RawNode *n = list->at[i];
        const RawTensor *w =
            !n->dead && n->nin == 2 && is_op(n, "MatMul") ? raw_array(p->m, n->in[1]) : NULL;
        if (w && w->shape.rank == 2 && w->shape.d[1] == 1)
            *strmap_at(&p->slot.narrow, n->out[0]) = i;
    }
    for (uint32_t i = list->n; i-- > 0;) {
        const RawNode *n = list->at[i];
        for (uint32_t j = 0; j < n->nin && !n->dead; j++)
            if (*n->in[j] && is_array(p, n->in[j]))
                read_as(p, n->in[j], says(p, n, j));
    }
}

/* ---- numbers that nobody learned ---- */

/* Could these numbers have been drawn, or have trained?  Those of a scale or a bias that has not
 * are all the same. */
static bool may_be_learned(const Graph *g, const RawTensor *t)
{
    enum { MOST = 1 << 24 };
    if (shape_elements(&t->shape) > MOST)
        return true;
    if (raw_is_constant(t))
        return raw_wide_dims(&t->shape) < 2 && !param_is_mask(g, t);
    return !param_is_regular(g, t) &&
           (t->shape.rank > 1 ? !param_is_table(g, t) : !param_is_mask(g, t));
}

/* Ones, or one number, at some places, and zeros: eye(n), tril(n), a choice of columns. */
static bool is_selection(const RawTensor *t)
{
    int64_t n = shape_elements(&t->shape);
    double other = 0;
    bool zero = false;
    for (int64_t i = 0; i < n; i++) {
        double v = raw_number(t, i);
        zero |= v == 0;
        if (v != 0 && other != 0 && v != other)
            return false;
        other = v != 0 ? v : other;
    }
    return zero && other != 0;
}

static bool is_single(Dtype t) { return t == DT_F32 || t == DT_F64; }

bool param_is_equal_by_chance(const RawTensor *t)
{
    return !t->bytes.at || raw_is_constant(t) || (is_single(t->dtype) && is_selection(t));
}

/* ---- the rule ---- */

/* Slots in which masks and tables stand as well as parameters; nothing large is read for this. */
static bool is_tabled(const Params *p, const RawTensor *t)
{
    enum { MOST = 1 << 24 };
    if (t->shape.rank < 2 || shape_elements(&t->shape) > MOST || !is_single(t->dtype))
        return false;
    bool in_module = param_is_leaf_name(t->name) || (p->m->from_pytorch && strchr(t->name, '.'));
    return in_module ? param_is_mask(p->g, t) : param_is_table(p->g, t);
}

/* A Constant of PyTorch's exporters is a number of the program, a filter, a table or the ones of a
 * norm that has no weight; that of another tool that wrote the file anew may be a weight. */
static bool is_literal(const Params *p, const RawTensor *t)
{
    return p->m->from_pytorch && t->is_lifted &&
           (p->slot.named || !is_single(t->dtype) || raw_is_constant(t) ||
            !may_be_learned(p->g, t));
}

static Verdict in_module_slot(const Params *p, const RawTensor *t, uint32_t as, bool named)
{
    if (named)
        return RULE_TRAINS;
    if (as == SLOT_WEIGHT && t->shape.rank < 2)
        return RULE_ONE_DIM;
    if (t->shape.rank == 0)
        return RULE_ONE_NUMBER;
    if (is_literal(p, t))
        return RULE_LITERAL;
    bool weight = as == SLOT_WEIGHT || as == SLOT_OTHER;
    return weight && is_single(t->dtype) && is_selection(t) ? RULE_NUMBERS : RULE_TRAINS;
}

/* PyTorch's exporters write parameters under their names; what folding makes of them has none, and
 * is a bias or a scale where it is a vector. */
static Verdict unnamed(const Params *p, const RawTensor *t, uint32_t as)
{
    if (shape_elements(&t->shape) < 2)
        return RULE_ONE_NUMBER;
    if (p->m->from_pytorch && t->is_lifted)
        return RULE_LITERAL;
    if (p->m->from_pytorch && raw_wide_dims(&t->shape) > 1)
        return RULE_NO_NAME;
    if (!is_single(t->dtype) || !may_be_learned(p->g, t) ||
        (as == SLOT_JOINED && raw_is_constant(t)))
        return RULE_NUMBERS;
    return RULE_TRAINS;
}

Verdict param_rule(const Params *p, const RawTensor *t, const SlotRead **by)
{
    const SlotRead *r = *by = reading(p, t->name);
    bool named = is_named(p, t);
    uint32_t as = r ? lowest(r->as) : 0;
    if (!dtype_is_float(t->dtype) || !t->bytes.length || !r)
        return RULE_NOT_READ;
    if (as <= SLOT_OTHER)
        return in_module_slot(p, t, as, named);
    if (named && as <= SLOT_NAMED)
        return is_tabled(p, t) ? RULE_NUMBERS : RULE_TRAINS;
    if (as == SLOT_FEATURE || as == SLOT_JOINED)
        return unnamed(p, t, as);
    if (as == SLOT_NAMED)
        return RULE_NO_NAME;
    if (as == SLOT_OF_DATA && named && !may_be_statistic(t))
        return RULE_TRAINS;
    return as == SLOT_OF_DATA     ? RULE_OF_DATA
           : as == SLOT_LOSS      ? RULE_LOSS
           : as == SLOT_STATISTIC ? RULE_STATISTIC
           : as == SLOT_FREQUENCY ? RULE_FREQUENCY
                                  : RULE_NEVER;
}

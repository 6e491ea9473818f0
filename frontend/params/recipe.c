/*
 * recipe.c - how an operand is made of parameters.  In: parameters, and what an exporter did to
 * them before it wrote the result down as one initializer (transposed, reshaped, expanded, cut,
 * computed).  Out: the same operations, recorded as a list of core ops that ends in the operand:
 * import.c makes nodes of them, so that the gradient comes back the way the values went, and
 * skeleton.c writes them into the trained model.
 *
 * A term is a parameter (op OP_NONE, .param), a constant (OP_NONE, .value), or an op over earlier
 * terms.
 */
#include <string.h>

#include "params.h"

Recipe *recipe_of(Arena *a, uint32_t param)
{
    Recipe *r = arena_new_of(a, Recipe);
    vec_push(a, r, ((Term){.op = OP_NONE, .param = param}));
    return r;
}

uint32_t recipe_param(Arena *a, Recipe *r, uint32_t param)
{
    vec_push(a, r, ((Term){.op = OP_NONE, .param = param}));
    return r->n - 1;
}

static uint32_t recipe_const(Arena *a, Recipe *r, Tensor value)
{
    vec_push(a, r, ((Term){.op = OP_NONE, .param = NONE, .value = value}));
    return r->n - 1;
}

/* A number, rounded to type t. */
uint32_t recipe_number(Arena *a, Recipe *r, Dtype t, double v)
{
    double *number = arena_new_of(a, double);
    element_set_double(t, number, 0, v);
    return recipe_const(a, r, (Tensor){.dtype = t, .data = number});
}

uint32_t recipe_op(Arena *a, Recipe *r, Op op, Attr attr, uint32_t x, uint32_t y)
{
    Term t = {.op = op, .nin = y == NONE ? 1 : 2, .in = {x, y}, .param = NONE, .attr = attr};
    vec_push(a, r, t);
    return r->n - 1;
}

static uint32_t last(const Recipe *r) { return r->n - 1; }

static const int64_t *ints(Arena *a, int n, const int64_t *v)
{
    int64_t *copy = arena_array(a, int64_t, n ? n : 1);
    for (int i = 0; i < n; i++)
        copy[i] = v[i];
    return copy;
}

void recipe_reshape(Arena *a, Recipe *r, const Shape *s)
{
    recipe_op(a, r, OP_Reshape, (Attr){.n = s->rank, .dims = ints(a, s->rank, s->d)}, last(r),
              NONE);
}

void recipe_expand(Arena *a, Recipe *r, const Shape *s)
{
    recipe_op(a, r, OP_Expand, (Attr){.n = s->rank, .dims = ints(a, s->rank, s->d)}, last(r), NONE);
}

void recipe_transpose(Arena *a, Recipe *r, int rank, const int64_t *perm)
{
    recipe_op(a, r, OP_Transpose, (Attr){.n = rank, .perm = ints(a, rank, perm)}, last(r), NONE);
}

void recipe_slice(Arena *a, Recipe *r, int rank, const int64_t *start, const int64_t *size)
{
    int64_t *step = arena_array(a, int64_t, rank ? rank : 1);
    for (int i = 0; i < rank; i++)
        step[i] = 1;
    recipe_op(
        a, r, OP_Slice,
        (Attr){.n = rank, .start = ints(a, rank, start), .size = ints(a, rank, size), .step = step},
        last(r), NONE);
}

void recipe_gather(Arena *a, Recipe *r, int64_t n, const int64_t *index)
{
    Tensor t = {
        .dtype = DT_I64, .shape = shape_of(1, n), .data = arena_array(a, int64_t, n ? n : 1)};
    memcpy(t.data, index, (size_t)n * sizeof *index);
    uint32_t x = last(r), i = recipe_const(a, r, t);
    recipe_op(a, r, OP_Gather, (Attr){.axis = 0}, x, i);
}

void recipe_swap(Arena *a, Recipe *r) { recipe_transpose(a, r, 2, (int64_t[]){1, 0}); }

/* The parameter itself, or itself transposed: what a file may hold in its place. */
bool recipe_is_plain(const Recipe *r, bool *transposed)
{
    *transposed = r->n == 2 && r->at[1].op == OP_Transpose && r->at[1].attr.n == 2 &&
                  r->at[1].attr.perm[0] == 1;
    return r->at[0].op == OP_NONE && r->at[0].param != NONE && (r->n == 1 || *transposed);
}

bool recipe_is_view(const Recipe *r)
{
    bool is = true;
    for (uint32_t i = 0; i < r->n; i++) {
        const Term *t = &r->at[i];
        is &= t->op == OP_NONE ? t->param != NONE : op_is_view(t->op) && t->nin == 1;
    }
    return is;
}

/* The type of the operand that it makes is its initializer's, or of one that the file does not
 * have, its parameter's. */
Dtype recipe_type(const Model *m, const RawNode *n, uint32_t input, Dtype param)
{
    const RawTensor *t = raw_array(m, n->in[input]);
    return t ? tensor_file_type(t) : param;
}

uint32_t recipe_only_param(const Recipe *r)
{
    uint32_t param = NONE;
    for (uint32_t i = 0; r && i < r->n; i++)
        if (r->at[i].op == OP_NONE && r->at[i].param != NONE) {
            if (param != NONE && param != r->at[i].param)
                return NONE;
            param = r->at[i].param;
        }
    return param;
}

/* param: values of the parameters, by index; the nodes are made where they are asked for, folded
 * where all is constant. */
ValueId recipe_build(Graph *g, const Recipe *r, const ValueId *param)
{
    ValueId *v = arena_array(g->arena, ValueId, r->n), in[2];
    for (uint32_t i = 0; i < r->n; i++) {
        const Term *t = &r->at[i];
        for (uint32_t k = 0; k < t->nin; k++)
            in[k] = v[t->in[k]];
        if (t->op != OP_NONE)
            v[i] = graph_node(g, t->op, t->nin, in, t->attr);
        else if (t->param == NONE)
            v[i] = graph_const(g, NULL, t->value);
        else
            v[i] = param ? param[t->param] : g->param.at[t->param].value;
    }
    return v[r->n - 1];
}

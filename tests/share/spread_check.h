/*
 * spread_check.h - is a way of computing a node chunk by chunk (ir/facts/spread.h) true?  Operands
 * are cut into chunks as it has them, each chunk is computed by the evaluator, the results are put
 * together as it says, and are the whole's: to the bit where nothing is added in another order.  So
 * are the gradients.
 */
#ifndef SPREAD_CHECK_H
#define SPREAD_CHECK_H

#include <math.h>
#include <string.h>

#include "ir/facts/spread.h"
#include "mesh/mesh.h"
#include "oracle/oracle.h"
#include "vjp_cases.h"

enum { CHUNKS = 4 };

/* ---- tensors in chunks ----------------------------------------------------------------------- */

static Tensor fresh_tensor(Arena *a, Dtype t, Shape s)
{
    return (Tensor){t, s, arena_calloc(a, (size_t)shape_elements(&s) + 1, dtype_size(t))};
}

/* The element of the whole at which element i of chunk c is; -1: behind the dimension's end. */
static int64_t element_at(const Shape *whole, Place at, int chunks, int c, int64_t i)
{
    int64_t inner = 1, size = whole->d[at.dim], own = (size + chunks - 1) / chunks;
    for (int d = at.dim + 1; d < whole->rank; d++)
        inner *= whole->d[d];
    int64_t outer = i / (own * inner), along = i / inner % own, part = own / at.groups;
    if (at.mirrored && along / part % 2)
        c = chunks - 1 - c;
    int64_t to = along / part * (size / at.groups) + c * part + along % part;
    return to >= size ? -1 : (outer * size + to) * inner + i % inner;
}

static void copy_element(Tensor *to, int64_t i, const Tensor *from, int64_t k)
{
    if (i < 0 || k < 0)
        return;
    size_t n = dtype_size(from->dtype);
    memcpy((char *)to->data + (size_t)i * n, (const char *)from->data + (size_t)k * n, n);
}

static Tensor cut(Arena *a, const Tensor *x, Place at, int chunks, int c)
{
    Tensor y = fresh_tensor(a, x->dtype, place_shape(&x->shape, at, chunks));
    for (int64_t i = 0; i < shape_elements(&y.shape); i++)
        copy_element(&y, i, x, element_at(&x->shape, at, chunks, c, i));
    return y;
}

static double number_of(const Tensor *t, int64_t i) { return element_double(t->dtype, t->data, i); }

/* As the way says: joined, added in a tree, or the one that there is. */
static Tensor put_together(Arena *a, const Tensor *part, Place at, int chunks, Dtype t, Shape s)
{
    Tensor y = fresh_tensor(a, t, s);
    int64_t n = shape_elements(&s);
    for (int c = 0; c < chunks && at.dim >= 0; c++)
        for (int64_t i = 0; i < shape_elements(&part[c].shape); i++)
            copy_element(&y, element_at(&s, at, chunks, c, i), &part[c], i);
    for (int64_t i = 0; i < n && at.dim == PLACE_P; i++) {
        double level[CHUNKS];
        for (int c = 0; c < chunks; c++)
            level[c] = number_of(&part[c], i);
        for (int m = chunks; m > 1; m = (m + 1) / 2)
            for (int c = 0; c < (m + 1) / 2; c++)
                level[c] = 2 * c + 1 < m ? level[2 * c] + level[2 * c + 1] : level[2 * c];
        element_set_double(t, y.data, i, level[0]);
    }
    return at.dim == PLACE_R ? part[0] : y;
}

/* Are there zeros behind the dimension's end? */
static bool ends_in_zeros(const Tensor *part, Place at, int chunks, const Shape *whole)
{
    bool zeros = true;
    for (int c = 0; c < chunks && at.dim >= 0; c++)
        for (int64_t i = 0; i < shape_elements(&part[c].shape); i++)
            zeros &= element_at(whole, at, chunks, c, i) >= 0 || number_of(&part[c], i) == 0;
    return zeros;
}

/* Random numbers that add up to it. */
static void part_sums(Arena *a, const Tensor *x, int chunks, uint64_t *seed, Tensor *part)
{
    for (int c = 0; c < chunks; c++)
        part[c] = fresh_tensor(a, x->dtype, x->shape);
    for (int64_t i = 0; i < shape_elements(&x->shape); i++) {
        double left = number_of(x, i);
        for (int c = chunks - 1; c > 0; c--) {
            *seed = *seed * 6364136223846793005u + 1442695040888963407u;
            double v = (double)(*seed >> 11) / 4503599627370496.0 - 1;
            element_set_double(x->dtype, part[c].data, i, v);
            left -= number_of(&part[c], i);
        }
        element_set_double(x->dtype, part[0].data, i, left);
    }
}

static double precision(Dtype t) { return dtype_is_half(t) ? 2e-2 : t == DT_F32 ? 1e-5 : 1e-12; }

/* most: how far apart; 0: to the bit, nothing was added in another order. */
static bool equal(const Tensor *x, const Tensor *y, double most)
{
    size_t size = (size_t)shape_elements(&x->shape) * dtype_size(x->dtype);
    if (x->dtype != y->dtype || !shape_equal(&x->shape, &y->shape))
        return false;
    if (most == 0 || !dtype_is_float(x->dtype))
        return memcmp(x->data, y->data, size) == 0;
    for (int64_t i = 0; i < shape_elements(&x->shape); i++) {
        double u = number_of(x, i), v = number_of(y, i);
        if (!(fabs(u - v) <= most * (1 + fabs(u))) && !(isnan(u) && isnan(v)) && u != v)
            return false;
    }
    return true;
}

/* ---- one way --------------------------------------------------------------------------------- */

/* A node whose operands are inputs of its graph, evaluated; and what its results are multiplied
   with, so that there is a scalar to differentiate. */
typedef struct {
    Arena *a;
    Graph *g;
    Tensor *at;
    VEC(Tensor) data;
    Ids input;
} Run;

static ValueId feed(Run *r, Tensor t)
{
    char name[24];
    snprintf(name, sizeof name, "x%u", r->input.n);
    ValueId v = graph_input(r->g, name, t.dtype, &t.shape);
    vec_push(r->a, &r->input, v);
    vec_push(r->a, &r->data, t);
    return v;
}

static void evaluate(Run *r)
{
    Ids list = {0};
    for (NodeId n = 0; n < r->g->node.n; n++)
        vec_push(r->a, &list, n);
    r->at = arena_array(r->a, Tensor, r->g->value.n);
    for (uint32_t i = 0; i < r->input.n; i++)
        r->at[r->input.at[i]] = r->data.at[i];
    oracle_nodes(r->g, r->a, list.at, list.n, r->at);
}

static Tensor result(const Run *r, ValueId v)
{
    const Value *x = val(r->g, v);
    Tensor t = {x->dtype, x->shape, NULL};
    if (x->kind != V_CONST)
        return r->at[v];
    memcpy(&t.data, &x->data, sizeof t.data);
    return t;
}

static ValueId weighed(Run *r, ValueId loss, ValueId y, const Tensor *factor)
{
    Graph *g = r->g;
    ValueId one =
        g_sum_to(g, g_mul(g, g_cast(g, y, DT_F64), graph_const(g, NULL, *factor)), &(Shape){0});
    return loss == NONE ? one : g_add(g, loss, one);
}

static void differentiate(Run *r, ValueId loss, uint32_t n, const ValueId *wrt, ValueId *d)
{
    Ids list = {0};
    for (NodeId k = 0; k < r->g->node.n; k++)
        vec_push(r->a, &list, k);
    for (uint32_t i = 0; i < n; i++)
        d[i] = NONE;
    if (loss != NONE)
        grad_nodes(r->g, list.at, list.n, loss, n, wrt, d);
}

/* The node by itself and in chunks. */
typedef struct {
    Arena *a;
    const Graph *g; /* where the node is */
    NodeId node;
    const Tensor *at; /* its values */
    const SpreadWay *way;
    const Place *says; /* where the results are said to be */
    int chunks;
    bool gradients;
    Tensor factor[MOST]; /* of each result of a float type */
    /* In the chunks' graph: which input is an operand, and results.  What differs by chunk is a row
       of elements of all chunks, one chunk behind the other; `own`: the shape of one. */
    uint32_t from[MOST];
    ValueId made[MOST];
    Shape own[MOST];
} Check;

static double least_precise(const Check *c)
{
    const Node *n = &c->g->node.at[c->node];
    double most = 1e-12;
    for (uint32_t i = 0; i < n->nin + n->nout; i++) {
        Dtype t = val(c->g, node_slot(n, i))->dtype;
        most = dtype_is_float(t) && precision(t) > most ? precision(t) : most;
    }
    return most;
}

static bool adds_up(const Check *c)
{
    const Node *n = &c->g->node.at[c->node];
    bool sums = c->way->moved > 0;
    for (uint32_t i = 0; i < n->nin + n->nout; i++)
        sums |= way_slot(c->way, n, i).dim == PLACE_P;
    return sums;
}

static void run_whole(Check *c, Run *r, ValueId *d)
{
    const Node *n = &c->g->node.at[c->node];
    ValueId in[MOST], loss = NONE;
    r->g->batch = c->g->batch;
    for (uint32_t i = 0; i < n->nin; i++) {
        in[i] = feed(r, c->at[n->in[i]]);
        r->g->value.at[in[i]].batch = val(c->g, n->in[i])->batch;
    }
    ValueId y = graph_node(r->g, n->op, n->nin, in, n->attr);
    for (uint32_t o = 0; o < n->nout; o++)
        if (dtype_is_float(val(c->g, n->out[o])->dtype))
            loss = weighed(r, loss, graph_out(r->g, y, o), &c->factor[o]);
    differentiate(r, loss, n->nin, in, d);
    evaluate(r);
}

static Tensor in_a_row(Arena *a, const Tensor *part, int chunks)
{
    int64_t n = shape_elements(&part->shape);
    Tensor all = fresh_tensor(a, part->dtype, (Shape){.rank = 1, .d = {n * chunks}});
    for (int k = 0; k < chunks; k++)
        for (int64_t i = 0; i < n; i++)
            copy_element(&all, k * n + i, &part[k], i);
    return all;
}

static Tensor of_row(const Tensor *all, Shape own, int k)
{
    size_t bytes = (size_t)shape_elements(&own) * dtype_size(all->dtype);
    return (Tensor){all->dtype, own, (char *)all->data + (size_t)k * bytes};
}

/* An operand as the chunk reads it. */
static ValueId operand(Check *c, Run *r, uint32_t i, uint64_t *seed)
{
    const Place at = c->way->in[i];
    const Tensor *x = &c->at[c->g->node.at[c->node].in[i]];
    Tensor part[CHUNKS];
    c->from[i] = r->input.n;
    if (at.dim == PLACE_R)
        return g_vary(r->g, feed(r, *x), 1);
    if (at.dim == PLACE_P)
        part_sums(c->a, x, c->chunks, seed, part);
    for (int k = 0; k < c->chunks && at.dim >= 0; k++)
        part[k] = cut(c->a, x, at, c->chunks, k);
    return g_reshape(r->g, g_shard(r->g, feed(r, in_a_row(c->a, part, c->chunks)), 0),
                     &part[0].shape);
}

/* The graph of one of as many members as there are chunks, then that of one who has them all. */
static void spread(Check *c, Run *r)
{
    const Node *n = &c->g->node.at[c->node];
    ValueId in[MOST], *keep[2 * MOST];
    uint64_t seed = c->node + 1;
    r->g->mesh[MESH_TENSOR].members = r->g->mesh[MESH_TENSOR].chunks = c->chunks;
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = operand(c, r, i, &seed);
    Spread s = {.whole = c->g,
                .node = c->node,
                .way = c->way,
                .chunks = c->chunks,
                .g = r->g,
                .in = in,
                .out = c->made,
                .number = g_shard(r->g, g_iota(r->g, DT_I64, 1, 0, c->chunks), 0)};
    spread_node(&s);
    for (uint32_t o = 0; o < n->nout; o++) {
        c->own[o] = val(r->g, c->made[o])->shape;
        const Shape row = {.rank = 1, .d = {shape_elements(&c->own[o])}};
        if (c->way->out[o].dim != PLACE_R)
            c->made[o] = g_all_gather(r->g, g_reshape(r->g, c->made[o], &row), 0);
        keep[o] = &c->made[o];
    }
    for (uint32_t i = 0; i < r->input.n; i++)
        keep[n->nout + i] = &r->input.at[i];
    mesh_pieces(r->g, &(MeshOptions){.members = {1, 1, 1}}, n->nout + r->input.n, keep);
}

/* dy of each chunk's result: its part of the whole's, all of it where results add up. */
static ValueId chunk_loss(Check *c, Run *r)
{
    const Node *n = &c->g->node.at[c->node];
    ValueId loss = NONE;
    for (uint32_t o = 0; o < n->nout; o++) {
        Place at = c->way->out[o];
        Tensor dy[CHUNKS] = {c->factor[o]};
        if (!dtype_is_float(val(c->g, n->out[o])->dtype))
            continue;
        for (int k = 0; k < c->chunks; k++)
            dy[k] = at.dim >= 0 ? cut(c->a, &c->factor[o], at, c->chunks, k) : c->factor[o];
        Tensor all = at.dim == PLACE_R ? dy[0] : in_a_row(c->a, dy, c->chunks);
        loss = weighed(r, loss, c->made[o], &all);
    }
    return loss;
}

static bool results_agree(const Check *c, const Run *r)
{
    const Node *n = &c->g->node.at[c->node];
    bool good = true;
    for (uint32_t o = 0; o < n->nout && good; o++) {
        Place at = c->says[o];
        const Tensor *whole = &c->at[n->out[o]];
        Tensor part[CHUNKS], made = result(r, c->made[o]);
        Shape own = place_shape(&whole->shape, at, c->chunks);
        Dtype type = at.dim == PLACE_P ? dtype_sum(whole->dtype) : whole->dtype;
        if (!shape_equal(&c->own[o], &own) || made.dtype != type)
            return false;
        for (int k = 0; k < c->chunks; k++)
            part[k] = of_row(&made, own, c->way->out[o].dim == PLACE_R ? 0 : k);
        Tensor all = put_together(c->a, part, at, c->chunks, whole->dtype, whole->shape);
        good = equal(whole, &all, adds_up(c) ? least_precise(c) : 0) &&
               ends_in_zeros(part, at, c->chunks, &whole->shape);
    }
    return good;
}

/* R: the one gradient; S: joined; P: each chunk has the whole's. */
static bool gradient_agrees(const Check *c, const Run *r, uint32_t i, ValueId d, const Tensor *want)
{
    Place at = c->way->in[i];
    const Shape own = place_shape(&want->shape, at, c->chunks);
    Tensor part[CHUNKS], made = d == NONE ? (Tensor){.dtype = want->dtype} : result(r, d);
    bool good = true;
    for (int k = 0; k < c->chunks; k++)
        part[k] = d == NONE ? fresh_tensor(c->a, want->dtype, own)
                            : of_row(&made, own, at.dim == PLACE_R ? 0 : k);
    for (int k = 0; k < c->chunks && at.dim == PLACE_P; k++)
        good = good && equal(want, &part[k], least_precise(c));
    Tensor all = at.dim == PLACE_P
                     ? part[0]
                     : put_together(c->a, part, at, c->chunks, want->dtype, want->shape);
    return good && equal(want, &all, least_precise(c)) &&
           ends_in_zeros(part, at, c->chunks, &want->shape);
}

static bool gradients_agree(Check *c, const Run *w, const ValueId *dw, const Run *r,
                            const ValueId *d)
{
    const Node *n = &c->g->node.at[c->node];
    bool good = true;
    for (uint32_t i = 0; i < n->nin && good; i++) {
        const Value *x = val(c->g, n->in[i]);
        if (!dtype_is_float(x->dtype) || x->kind == V_CONST)
            continue;
        Tensor want = dw[i] == NONE ? fresh_tensor(c->a, x->dtype, x->shape) : result(w, dw[i]);
        good = gradient_agrees(c, r, i, d[i], &want);
    }
    return good;
}

/* Gradients of halves are rounded after every sum: those of other types alone are compared. */
static bool holds(Check c)
{
    Arena *a = c.a = arena_within(c.g->arena);
    const Graph *g = c.g;
    const Node *n = &g->node.at[c.node];
    Run w = {.a = a, .g = graph_new(a, "whole")}, r = {.a = a, .g = graph_new(a, "chunks")};
    ValueId dw[MOST], d[MOST], wrt[MOST];
    INSIST(n->nin <= MOST && n->nout <= MOST);
    for (uint32_t o = 0; o < n->nout; o++) {
        Tensor *f = &c.factor[o];
        *f = fresh_tensor(a, DT_F64, val(g, n->out[o])->shape);
        for (int64_t i = 0; i < shape_elements(&f->shape); i++)
            element_set_double(DT_F64, f->data, i, 0.5 + (double)((i * 7 + o * 3) % 11) / 8);
    }
    if (c.gradients)
        run_whole(&c, &w, dw);
    spread(&c, &r);
    for (uint32_t i = 0; i < n->nin; i++)
        wrt[i] = r.input.at[c.from[i]];
    if (c.gradients)
        differentiate(&r, chunk_loss(&c, &r), n->nin, wrt, d);
    graph_verify(r.g);
    evaluate(&r);
    bool good = results_agree(&c, &r) && (!c.gradients || gradients_agree(&c, &w, dw, &r, d));
    arena_free(a);
    return good;
}

static bool way_holds(const Graph *g, NodeId node, const Tensor *at, const SpreadWay *way,
                      int chunks)
{
    Op op = g->node.at[node].op;
    bool half = false;
    for (uint32_t i = 0; i < g->node.at[node].nin; i++)
        half |= dtype_is_half(val(g, g->node.at[node].in[i])->dtype);
    return holds((Check){.g = g,
                         .node = node,
                         .at = at,
                         .way = way,
                         .says = way->out,
                         .chunks = chunks,
                         .gradients = !half && op_differentiable(op)});
}

static Tensor *evaluate_case(T *t)
{
    Run r = {.a = t->g->arena, .g = t->g};
    for (uint32_t i = 0; i < t->n; i++) {
        vec_push(r.a, &r.input, t->x[i]);
        vec_push(r.a, &r.data, t->data[i]);
    }
    evaluate(&r);
    for (ValueId v = 0; v < t->g->value.n; v++)
        if (val(t->g, v)->kind == V_CONST)
            r.at[v] = result(&r, v);
    return r.at;
}

#endif

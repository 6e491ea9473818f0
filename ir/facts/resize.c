/*
 * resize.c - the shapes of another number of rows.  In: a graph whose values know where their rows
 * are (batch.c), and none of whose nodes forbids fewer of them.  Out: the same graph as if the
 * model had been exported for `rows` rows: dimensions that hold rows, the attributes that repeat
 * them, and constants with a row for each sample.
 */
#include <string.h>

#include "facts.h"

typedef struct {
    Graph *g;
    int64_t was, rows;
} Resize;

static Shape resized(const Resize *r, const Value *v)
{
    Shape s = v->shape;
    if (v->batch >= 0)
        s.d[v->batch] = s.d[v->batch] / r->was * r->rows;
    return s;
}

/* Element i of a row that is not there, of whole numbers that grow by the same step from row to
 * row. */
static bool extrapolate(char *to, Dtype t, int64_t row, int64_t block)
{
    if (t != DT_I64 && t != DT_I32)
        return false;
    const int64_t first = element_int(t, to, 0), step = element_int(t, to, block) - first;
    element_set_int(t, to, row * block, first + row * step);
    return true;
}

/* The rows of a constant are all equal, or whole numbers in equal steps: batch_demand.c. */
static bool resize_constant(const Resize *r, Value *v)
{
    const Shape *s = &v->shape;
    size_t size = dtype_size(v->dtype);
    const int64_t outer = shape_between(s, 0, v->batch), each = s->d[v->batch] / r->was,
                  inner = shape_between(s, v->batch + 1, s->rank);
    size_t block = (size_t)(each * inner) * size;
    char *to = arena_alloc(r->g->arena, (size_t)(outer * r->rows) * block + 1);
    bool good = size > 0;
    for (int64_t o = 0; o < outer && good; o++) {
        const char *from = (const char *)v->data + (size_t)(o * r->was) * block;
        char *at = to + (size_t)(o * r->rows) * block;
        int64_t kept = r->was < r->rows ? r->was : r->rows;
        bool equal = blocks_equal(from, 1, r->was, block);
        memcpy(at, from, (size_t)kept * block);
        for (int64_t k = kept; k < r->rows && good; k++) {
            if (equal)
                memcpy(at + (size_t)k * block, from, block);
            for (int64_t i = 0; i < each * inner && good && !equal; i++)
                good = extrapolate(at + (size_t)i * size, v->dtype, k, each * inner);
        }
    }
    v->data = to;
    return good;
}

/* What a model of one row gives a step for a row, and no demand has tagged (one row may as well be
 * the same for all), becomes a constant with rows: nothing broadcasts into a step. */
static void give_rows(const Resize *r, Node *n)
{
    const Recurrence *of = n->attr.recurrence;
    ValueId *in = arena_array(r->g->arena, ValueId, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) {
        const Value x = *val(r->g, n->in[i]);
        const int dim = of->rows[i] + recurrence_is_sequence(of, i);
        in[i] = n->in[i];
        if (of->rows[i] < 0 || x.kind != V_CONST || x.batch >= 0 || x.shape.d[dim] != r->was)
            continue;
        Tensor t = {x.dtype, x.shape, NULL};
        memcpy(&t.data, &x.data, sizeof t.data);
        in[i] = graph_const(r->g, NULL, t);
        r->g->value.at[in[i]].batch = dim;
    }
    n->in = in;
}

/* The body of a Recurrence, as the rest. */
static void resize_body(const Resize *r, Node *n)
{
    Recurrence *own = arena_new_of(r->g->arena, Recurrence);
    give_rows(r, n);
    Graph *body = body_placed(r->g, n, r->g->arena);
    const Ids all = graph_nodes(body, r->g->arena);
    graph_resize(body, r->rows, &all);
    *own = *n->attr.recurrence;
    own->body = body;
    n->attr.recurrence = own;
}

/* Attributes that state a shape, or the part of it that is taken. */
static void resize_attributes(const Resize *r, Node *n)
{
    int64_t *own;
    if (n->op == OP_Recurrence)
        resize_body(r, n);
    const Value *y = val(r->g, n->out[0]);
    if (y->batch < 0)
        return;
    Shape s = resized(r, y);
    switch (n->op) {
    case OP_Reshape:
    case OP_Expand:
        n->attr.dims = own = arena_array(r->g->arena, int64_t, s.rank + 1);
        memcpy(own, s.d, (size_t)s.rank * sizeof *own);
        break;
    case OP_Slice:
        own = arena_array(r->g->arena, int64_t, s.rank + 1);
        memcpy(own, n->attr.size, (size_t)s.rank * sizeof *own);
        own[y->batch] = s.d[y->batch];
        n->attr.size = own;
        break;
    default: break; /* the others follow their operands: graph_resize() looks */
    }
}

/* What a node makes is what its operands, attributes and rule say. */
static void check_node(Graph *g, NodeId id)
{
    const Node *n = &g->node.at[id];
    Dtype *t = arena_array(g->arena, Dtype, n->nout + 1);
    Shape *s = arena_array(g->arena, Shape, n->nout + 1);
    graph_shapes(g, id, t, s);
    for (uint32_t i = 0; i < n->nout; i++)
        if (!shape_equal(&s[i], &val(g, n->out[i])->shape))
            diag_fatal(EXIT_MODEL, graph_where(g, n->origin, -1),
                       "%s would make %s for %lld rows, which is not %s: export the model for as "
                       "many",
                       op_name(n->op), shape_print(g->arena, t[i], &s[i]), (long long)g->batch,
                       shape_print(g->arena, t[i], &val(g, n->out[i])->shape));
}

void graph_resize(Graph *g, int64_t rows, const Ids *list)
{
    Resize r = {g, g->batch > 0 ? g->batch : 1, rows};
    if (rows == r.was)
        return;
    for (uint32_t k = 0; k < list->n; k++)
        resize_attributes(&r, &g->node.at[list->at[k]]);
    for (ValueId v = 0; v < g->value.n; v++) {
        Value *x = &g->value.at[v];
        if (x->batch >= 0 && x->kind == V_CONST && !resize_constant(&r, x))
            diag_fatal(EXIT_MODEL, WHERE_FILE(g->file),
                       "constant '%s' has a row for each of %lld samples: export the model for "
                       "%lld",
                       x->name, (long long)r.was, (long long)rows);
        x->shape = resized(&r, x);
    }
    g->batch = rows;
    for (uint32_t k = 0; k < list->n; k++)
        check_node(g, list->at[k]);
}

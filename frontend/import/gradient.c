/*
 * gradient.c - Gradient of ai.onnx.preview.training (version 1).  In: the node; xs, zs and y name
 * tensors of the model.  Out: the gradient of the sum of y with respect to each of xs, as nodes.
 *
 * The operands are the values at which it is computed: the named tensors themselves, and then the
 * model's own nodes are differentiated, or others, and then a copy of them that takes those.  The
 * reverse walk is autodiff's, handed in by ImportOptions; what it makes are nodes like any others,
 * so that a gradient of a gradient is one too, and so is a loss made of one.
 */
#include <string.h>

#include "driver.h"

typedef struct {
    Import *im;
    Graph *g;
    const char **xs, **zs;
    int nx, nz;
    ValueId *named, *given; /* [nx + nz]: what the names stand for, the operands */
    bool *depends;          /* by ValueId: on one of xs or zs */
} Gradient;

static void read_names(Gradient *d)
{
    Import *im = d->im;
    if (!im_strings(im, "xs", &d->xs, &d->nx))
        low_fatal(im, -1, "attribute 'xs' is missing");
    if (!im_strings(im, "zs", &d->zs, &d->nz))
        d->nz = 0;
    if ((uint32_t)(d->nx + d->nz) != im->nin || im->nout > (uint32_t)d->nx)
        low_fatal(im, -1, "%d tensors in xs, %d in zs, %u operands, %u results", d->nx, d->nz,
                  im->nin, im->nout);
    if (im->node->inlined)
        low_fatal(im, -1, "in a function or a body, where names are others");
}

static void find_values(Gradient *d)
{
    Import *im = d->im;
    ImportState *s = im->state;
    int n = d->nx + d->nz;
    d->named = arena_array(im->arena, ValueId, n + 1);
    d->given = arena_array(im->arena, ValueId, n + 1);
    for (int i = 0; i < n; i++) {
        const char *name = i < d->nx ? d->xs[i] : d->zs[i - d->nx];
        d->named[i] = d->given[i] = low_need(im, (uint32_t)i);
        if (strcmp(im->node->in[i], name) != 0) {
            if (strmap_get(&s->m->init_index, name) != NONE)
                low_fatal(im, i, "another tensor is given for the initializer '%.64s'",
                          diag_escape(im->arena, name));
            d->named[i] = import_lookup(s, name, im_where(im, i))->v;
        }
        if (d->named[i] == NONE || (i < d->nx && val(d->g, d->named[i])->kind == V_CONST))
            low_fatal(im, i, "'%.64s' is a constant here: what it becomes is computed already",
                      diag_escape(im->arena, name));
        Shape a = low_shape(d->g, d->named[i]), b = low_shape(d->g, d->given[i]);
        if (!shape_equal(&a, &b) || low_dtype(d->g, d->named[i]) != low_dtype(d->g, d->given[i]))
            low_fatal(im, i, "it is of another shape or type than '%.64s'",
                      diag_escape(im->arena, name));
    }
}

static bool is_named(const Gradient *d, ValueId v)
{
    for (int i = 0; i < d->nx + d->nz; i++)
        if (d->named[i] == v)
            return true;
    return false;
}

/* The nodes from xs and zs on, in order. */
static Ids nodes_between(Gradient *d)
{
    Graph *g = d->g;
    Ids list = {0};
    d->depends = arena_array(d->im->arena, bool, g->value.n + 1);
    for (int i = 0; i < d->nx + d->nz; i++)
        d->depends[d->named[i]] = true;
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *at = &g->node.at[n];
        bool does = false;
        for (uint32_t i = 0; i < at->nin; i++)
            does |= at->in[i] != NONE && d->depends[at->in[i]];
        for (uint32_t i = 0; i < at->nout; i++)
            does &= !is_named(d, at->out[i]);
        if (!does)
            continue;
        vec_push(d->im->arena, &list, n);
        for (uint32_t i = 0; i < at->nout; i++)
            d->depends[at->out[i]] = true;
    }
    return list;
}

/* y of the operands: a copy of the nodes, which takes them for what xs and zs name. */
static ValueId at_operands(Gradient *d, ValueId y)
{
    Graph *g = d->g;
    uint32_t values = g->value.n;
    Ids list = nodes_between(d);
    ValueId *now = arena_array(d->im->arena, ValueId, values + 1);
    for (ValueId v = 0; v < values; v++)
        now[v] = v;
    for (int i = 0; i < d->nx + d->nz; i++)
        now[d->named[i]] = d->given[i];
    for (uint32_t k = 0; k < list.n; k++) {
        Node n = g->node.at[list.at[k]];
        if (!op_is_pure(n.op))
            low_fatal(d->im, -1, "at other values than the model's own, of %s", op_name(n.op));
        ValueId *in = arena_array(d->im->arena, ValueId, n.nin + 1);
        for (uint32_t i = 0; i < n.nin; i++)
            in[i] = n.in[i] == NONE ? NONE : now[n.in[i]];
        ValueId first = graph_node(g, n.op, n.nin, in, n.attr);
        now[n.out[0]] = first;
        for (uint32_t i = 1; i < n.nout; i++)
            now[n.out[i]] = graph_out(g, first, i);
    }
    memcpy(d->named, d->given, (size_t)(d->nx + d->nz) * sizeof *d->named);
    return now[y];
}

void import_gradient(Import *im)
{
    Graph *g = im->g;
    ImportState *s = im->state;
    Gradient d = {.im = im, .g = g};
    const char *name = im_str(im, "y", "");
    if (!s->opt->gradient)
        low_fatal(im, -1, "gradients are not made here");
    read_names(&d);
    find_values(&d);
    ValueId y = import_lookup(s, name, im_where(im, -1))->v;
    if (y == NONE || !dtype_is_float(low_dtype(g, y)))
        low_fatal(im, -1, "y, '%.64s', is no tensor of floats", diag_escape(im->arena, name));
    if (memcmp(d.named, d.given, (size_t)(d.nx + d.nz) * sizeof *d.named) != 0)
        y = at_operands(&d, y);
    int64_t axes[MAX_RANK];
    Shape shape = low_shape(g, y);
    for (int i = 0; i < shape.rank; i++)
        axes[i] = i;
    if (shape.rank)
        y = g_reshape(g, g_reduce(g, OP_ReduceSum, y, shape.rank, axes), &(Shape){0});
    Ids list = nodes_between(&d);
    ValueId *dx = arena_array(im->arena, ValueId, d.nx + 1);
    s->opt->gradient(g, list.at, list.n, y, (uint32_t)d.nx, d.named, dx);
    for (uint32_t i = 0; i < im->nout; i++)
        im->out[i] = dx[i] == NONE ? low_zeros_like(g, d.given[i]) : dx[i];
}

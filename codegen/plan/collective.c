/*
 * collective.c - what the members of the tensor axis do together, as calls of the runtime (pp.h:
 * pp_all_reduce() and the like).  In: a node, whose operand and result are one member's.  Out: the
 * step, and the stage's rows of what its functions call, each value once; behind those the
 * gradients that the runtime adds up over the members once a step.
 */
#include "codegen/tables.h"
#include "plan.h"

static int kind_of(Op op)
{
    switch (op) {
    case OP_AllReduce: return PP_ALL_REDUCE;
    case OP_AllGather: return PP_ALL_GATHER;
    case OP_ReduceScatter: return PP_REDUCE_SCATTER;
    case OP_AllToAll: return PP_ALL_TO_ALL;
    case OP_Shard: return PP_SHARD;
    default: BUG("%s between members", op_name(op));
    }
}

int64_t cg_collective_work(const Graph *g, const Node *n)
{
    const Value *x = val(g, n->in[0]);
    int64_t size = (int64_t)dtype_size(x->dtype),
            bytes =
                pp_collective_work(kind_of(n->op), g->tensor, (int)size, shape_elements(&x->shape));
    return (bytes + size - 1) / size;
}

/* Product of dimensions [from, to) of v. */
static Lin span(const Func *f, ValueId v, int from, int to)
{
    Lin n = lin(1);
    for (int d = from; d < to; d++)
        if (!lin_mul(n, cg_ext(f, v, d), &n))
            BUG("a size that is not affine in the rows");
    return n;
}

/* [a, d, b, e, f], d and e whole: one of the two axes is whole in the operand, the other one in the
 * result. */
static void all_to_all(const Func *f, const Node *n, Collective *c)
{
    ValueId x = n->in[0], y = n->out[0];
    int from = (int)n->attr.axis, to = (int)n->attr.to_axis, rank = val(f->g, x)->shape.rank;
    int low = from < to ? from : to, high = from < to ? to : from;
    c->first = from < to;
    c->size[c->n_size++] = span(f, x, 0, low);
    c->size[c->n_size++] = cg_ext(f, c->first ? y : x, low);
    c->size[c->n_size++] = span(f, x, low + 1, high);
    c->size[c->n_size++] = cg_ext(f, c->first ? x : y, high);
    c->size[c->n_size++] = span(f, x, high + 1, rank);
}

static uint32_t row_of(StageGen *sg, ValueId result)
{
    uint32_t *row = idmap_at(sg->a, &sg->position.collective, result);
    if (*row == NONE) {
        *row = sg->collective.n;
        vec_push(sg->a, &sg->collective, result);
    }
    return *row;
}

void cg_collective(Func *f, const Node *n, Step *s, CollectivePart when)
{
    Collective *c = arena_new_of(f->a, Collective);
    /* the divided one */
    ValueId part = n->op == OP_AllGather ? n->in[0] : n->out[0];
    int axis = (int)n->attr.axis, rank = val(f->g, part)->shape.rank;
    c->part = when;
    c->kind = kind_of(n->op);
    if (c->kind == PP_ALL_REDUCE) {
        c->size[c->n_size++] = span(f, n->in[0], 0, rank);
    } else if (c->kind == PP_ALL_TO_ALL) {
        all_to_all(f, n, c);
    } else {
        c->size[c->n_size++] = span(f, part, 0, axis);
        c->size[c->n_size++] = span(f, part, axis, rank);
    }
    s->collective = c;
    s->keyed = true;
    s->key = row_of(f->sg, n->out[0]);
}

static int n_partial(const StageGen *sg)
{
    int n = 0;
    for (uint32_t i = 0; i < sg->stage->param.n; i++)
        n += (int)sg->stage->param.at[i].partial.n;
    return n;
}

const PpPartial *cg_partials(const StageGen *sg, Arena *a, int *n)
{
    int64_t others = sg->g->chunks / sg->g->tensor - 1;
    PpPartial *list = arena_array(a, PpPartial, n_partial(sg) + 1);
    *n = 0;
    for (uint32_t i = 0; i < sg->stage->param.n; i++) {
        const ParamUse *u = &sg->stage->param.at[i];
        int64_t bytes = cg_align(value_bytes(sg->g, sg->g->param.at[u->param].value));
        for (uint32_t k = 0; k < u->partial.n; k++, ++*n)
            list[*n] = (PpPartial){.param = (int)i,
                                   .use = (int)u->partial.at[k],
                                   .offset = sg->chunks_at.at[i] + k * others * bytes,
                                   .row = sg->g->tensor > 1 ? (int)sg->collective.n + *n : -1};
    }
    return list;
}

const PpCollective *cg_collectives(const StageGen *sg, Arena *a, int *n)
{
    int partials = sg->g->tensor > 1 ? n_partial(sg) : 0, k = 0;
    PpCollective *list = arena_array(a, PpCollective, (int)sg->collective.n + partials + 1);
    for (; k < (int)sg->collective.n; k++) {
        ValueId v = sg->collective.at[k];
        const Node *node = &sg->g->node.at[val(sg->g, v)->node];
        list[k] = (PpCollective){.kind = kind_of(node->op),
                                 .name = cg_called(sg, v, a),
                                 .dtype = (int)val(sg->g, v)->dtype,
                                 .bytes = value_bytes(sg->g, node->in[0])};
    }
    for (uint32_t i = 0; i < sg->stage->param.n && partials; i++) {
        const ParamUse *u = &sg->stage->param.at[i];
        ValueId v = sg->g->param.at[u->param].value;
        for (uint32_t j = 0; j < u->partial.n; j++)
            list[k++] = (PpCollective){.kind = PP_ALL_REDUCE,
                                       .name = arena_printf(a, "%%grad/%s", val(sg->g, v)->name),
                                       .dtype = (int)val(sg->g, v)->dtype,
                                       .bytes = value_bytes(sg->g, v)};
    }
    *n = k;
    return list;
}

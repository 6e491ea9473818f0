/*
 * collective.c - what the members of the tensor axis do together, as calls of the runtime (pp.h:
 * pp_all_reduce() and the like).  In: a node, whose operand and result are one member's.  Out: the
 * step, and the stage's rows of what its functions call, each value once.
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

void cg_collective(Func *f, const Node *n, Step *s)
{
    Collective *c = arena_new_of(f->a, Collective);
    /* the divided one */
    ValueId part = n->op == OP_AllGather ? n->in[0] : n->out[0];
    int axis = (int)n->attr.axis, rank = val(f->g, part)->shape.rank;
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

const PpCollective *cg_collectives(const StageGen *sg, Arena *a)
{
    PpCollective *list = arena_array(a, PpCollective, sg->collective.n + 1);
    for (uint32_t i = 0; i < sg->collective.n; i++) {
        ValueId v = sg->collective.at[i];
        const Node *n = &sg->g->node.at[val(sg->g, v)->node];
        list[i] = (PpCollective){.kind = kind_of(n->op),
                                 .name = cg_called(sg, v, a),
                                 .dtype = (int)val(sg->g, v)->dtype,
                                 .bytes = value_bytes(sg->g, n->in[0])};
    }
    return list;
}

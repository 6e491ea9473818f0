/*
 * collective.c - what members along an axis of the mesh do together, as calls of the runtime (pp.h:
 * pp_all_reduce() and the like).  In: a node, whose operand and result are one member's.  Out: the
 * step, and the stage's rows of what its functions call, each value once; behind those the
 * gradients that the runtime adds up over the members once a step.
 */
#include "codegen/tables.h"
#include "plan.h"

const CollectiveKind cg_collective_kind[] = {
    [PP_ALL_REDUCE] = {OP_AllReduce, "all_reduce"},
    [PP_ALL_GATHER] = {OP_AllGather, "all_gather"},
    [PP_REDUCE_SCATTER] = {OP_ReduceScatter, "reduce_scatter"},
    [PP_ALL_TO_ALL] = {OP_AllToAll, "all_to_all"},
    [PP_SHARD] = {OP_Shard, "shard"}};

static int kind_of(Op op)
{
    int k = 0;
    while (cg_collective_kind[k].op != op)
        INSIST(k++ < PP_SHARD);
    return k;
}

int64_t cg_collective_work(const Func *f, const Node *n)
{
    const Value *x = val(f->g, n->in[0]);
    int64_t size = (int64_t)dtype_size(x->dtype),
            bytes = pp_collective_work(kind_of(n->op), f->g->mesh[n->attr.mesh].members, (int)size,
                                       cg_most(f->sg, shape_elements(&x->shape)));
    return (bytes + size - 1) / size;
}

/* [a, d, b, e, f], d and e whole: one of the two axes is whole in the operand, the other one in the
 * result. */
static void all_to_all(const Func *f, const Node *n, Collective *c)
{
    ValueId x = n->in[0], y = n->out[0];
    int from = (int)n->attr.axis, to = (int)n->attr.to_axis, rank = val(f->g, x)->shape.rank;
    int low = from < to ? from : to, high = from < to ? to : from;
    c->first = from < to;
    c->size[c->n_size++] = cg_span(f, x, 0, low);
    c->size[c->n_size++] = cg_ext(f, c->first ? y : x, low);
    c->size[c->n_size++] = cg_span(f, x, low + 1, high);
    c->size[c->n_size++] = cg_ext(f, c->first ? x : y, high);
    c->size[c->n_size++] = cg_span(f, x, high + 1, rank);
}

static uint32_t row_of(StageGen *sg, ValueId result)
{
    uint32_t *row = idmap_at(sg->a, &sg->position.collective, result);
    if (*row == NONE) {
        *row = sg->position.collectives.n;
        vec_push(sg->a, &sg->position.collectives, result);
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
        c->size[c->n_size++] = cg_span(f, n->in[0], 0, rank);
    } else if (c->kind == PP_ALL_TO_ALL) {
        all_to_all(f, n, c);
    } else {
        c->size[c->n_size++] = cg_span(f, part, 0, axis);
        c->size[c->n_size++] = cg_span(f, part, axis, rank);
    }
    s->collective = c;
    s->keyed = true;
    s->key = row_of(f->sg, n->out[0]);
}

const char *cg_mesh_name(int mesh)
{
    static const char *const name[MESH_AXES] = {"PP_TENSOR", "PP_SEQUENCE", "PP_EXPERT"};
    _Static_assert((int)MESH_TENSOR == PP_TENSOR && (int)MESH_SEQUENCE == PP_SEQUENCE &&
                       (int)MESH_EXPERT == PP_EXPERT && (int)MESH_AXES == PP_AXES,
                   "axes of the mesh are numbered alike");
    return name[mesh];
}

static int n_partial(const StageGen *sg)
{
    int n = 0;
    for (uint32_t i = 0; i < sg->stage->param.n; i++)
        n += (int)sg->stage->param.at[i].partial.n;
    return n;
}

static bool sums_over(const Graph *g, const Partial *p, int x)
{
    return p->along >> x & 1 && g->mesh[x].members > 1;
}

const PpPartial *cg_partials(const StageGen *sg, Arena *a, int *n)
{
    PpPartial *list = arena_array(a, PpPartial, n_partial(sg) + 1);
    int row = (int)sg->position.collectives.n;
    *n = 0;
    for (uint32_t i = 0; i < sg->stage->param.n; i++) {
        const ParamUse *u = &sg->stage->param.at[i];
        int64_t bytes = align_up(value_bytes(sg->g, sg->g->param.at[u->param].value)),
                offset = sg->params.chunks_at.at[i];
        for (uint32_t k = 0; k < u->partial.n; k++) {
            const Partial *of = &u->partial.at[k];
            PpPartial *p = &list[(*n)++];
            *p = (PpPartial){.param = (int)i, .use = (int)of->use, .offset = offset};
            for (int x = 0; x < MESH_AXES; x++) {
                p->along[x] = (int)(of->along >> x & 1);
                p->row[x] = sums_over(sg->g, of, x) ? row++ : -1;
            }
            offset += (graph_pieces_along(sg->g, of->along) - 1) * bytes;
        }
    }
    return list;
}

/* As the rows of cg_partials() are numbered. */
static int sums_of_partials(const StageGen *sg, Arena *a, PpCollective *list)
{
    int n = 0;
    for (uint32_t i = 0; i < sg->stage->param.n; i++) {
        const ParamUse *u = &sg->stage->param.at[i];
        ValueId v = sg->g->param.at[u->param].value;
        for (uint32_t k = 0; k < u->partial.n; k++)
            for (int x = 0; x < MESH_AXES; x++)
                if (sums_over(sg->g, &u->partial.at[k], x))
                    list[n++] = (PpCollective){
                        .kind = PP_ALL_REDUCE,
                        .mesh = x,
                        .name = arena_printf(a, "%%grad/%s", val(sg->g, v)->name),
                        .dtype = (int)val(sg->g, v)->dtype,
                        .bytes = value_bytes(sg->g, v)};
    }
    return n;
}

static bool makes(const Graph *g, const Ids *list, ValueId v)
{
    bool is = false;
    for (uint32_t i = 0; i < list->n && !is; i++)
        is = g->node.at[list->at[i]].nout > 0 && g->node.at[list->at[i]].out[0] == v;
    return is;
}

/* Which action of a microbatch makes it. */
static int part_of(const StageGen *sg, ValueId v)
{
    const Stage *s = sg->stage;
    return makes(sg->g, &s->forward, v) || makes(sg->g, &s->infer, v) ? 'F'
           : makes(sg->g, &s->backward_weight, v)                     ? 'W'
                                                                      : 'I';
}

const PpCollective *cg_collectives(const StageGen *sg, Arena *a, int *n)
{
    int own = (int)sg->position.collectives.n;
    PpCollective *list = arena_array(a, PpCollective, own + MESH_AXES * n_partial(sg) + 1);
    for (int k = 0; k < own; k++) {
        ValueId v = sg->position.collectives.at[k];
        const Value *y = val(sg->g, v);
        const Node *node = &sg->g->node.at[y->node];
        const Dtype t = val(sg->g, node->in[0])->dtype;
        list[k] = (PpCollective){.kind = kind_of(node->op),
                                 .mesh = node->attr.mesh,
                                 .name = cg_called(sg, v, a),
                                 .dtype = (int)t,
                                 .bytes = value_bytes(sg->g, node->in[0]),
                                 .half = y->dtype == t ? 0 : (int)y->dtype,
                                 .part = part_of(sg, v)};
    }
    *n = own + sums_of_partials(sg, a, list + own);
    return list;
}

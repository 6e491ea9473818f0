/*
 * param.c - the place of a value whose rows are apart, and how the rows of a parameter stand in a
 * device's memory.  In: a parameter, or a value that has its place: its copy in half precision, its
 * gradient.  Out: how many elements rows are apart.
 *
 * Products read and write rows that begin at multiples of 16 bytes (rows.c).  A parameter of other
 * rows that only products read, elementwise operations beside them, has room behind each row, as
 * have its gradients, its copy and the optimizer's states: nothing is copied for a product.  To the
 * runtime it is a part of the model's parameter, with zeros behind (PpParam.axis), which stay
 * zeros. Others are copied, with their rows as far apart: no product's result depends on who reads
 * them.
 */
#include "plan.h"

static bool is_half_copy(const Graph *g, const Node *n)
{
    return n->op == OP_Cast && val(g, n->in[0])->kind == V_PARAM && dtype_is_half(n->attr.to);
}

/* The parameter whose elements v has, or their gradients; NONE: of none. */
static uint32_t param_of(const StageGen *sg, ValueId v)
{
    const Graph *g = sg->g;
    for (;;) {
        const Value *x = val(g, v);
        const Node *n = graph_maker(g, v);
        if (!n || idmap_get(&sg->position.grad, v) != NONE)
            return x->kind == V_PARAM ? x->param : idmap_get(&sg->position.grad, v);
        if (!op_is_view(n->op) && !is_half_copy(g, n))
            return NONE;
        v = n->in[0];
    }
}

/* Rows of the parameter and of its copies, in elements of the smallest of their types. */
static Lin row_of(const StageGen *sg, const Param *p)
{
    return cg_row_apart(sg, true, lin(p->shape.d[p->shape.rank - 1]),
                        sg->params.type[val(sg->g, p->value)->param]);
}

static void find_types(StageGen *sg)
{
    const Graph *g = sg->g;
    sg->params.type = arena_array(sg->a, Dtype, g->param.n + 1);
    for (uint32_t i = 0; i < g->param.n; i++)
        sg->params.type[i] = g->param.at[i].dtype;
    for (NodeId n = 0; n < g->node.n; n++) {
        const Node *x = &g->node.at[n];
        if (is_half_copy(g, x) && val(g, x->in[0])->dtype == DT_F32)
            sg->params.type[val(g, x->in[0])->param] = x->attr.to;
    }
}

Lin cg_value_row(const StageGen *sg, ValueId v, Lin ext)
{
    const uint32_t param = sg->device ? param_of(sg, v) : NONE;
    const Param *p = param == NONE ? NULL : &sg->g->param.at[param];
    bool own = p && p->shape.rank > 1 && lin_is(ext, p->shape.d[p->shape.rank - 1]);
    return own ? row_of(sg, p) : cg_row_apart(sg, sg->device, ext, val(sg->g, v)->dtype);
}

/* Numbers that stand one in a row are a vector. */
bool cg_padded(const Func *f, ValueId v, bool turned, Ref *at)
{
    Ref r = cg_dense(f, v);
    int last = r.rank - 1, order[MAX_RANK];
    for (int i = 0; i <= last; i++)
        order[i] = turned && i >= last - 1 ? 2 * last - 1 - i : i;
    const Lin row = last < 0 ? lin(1) : r.ext[order[last]];
    if (!cg_stand(&r, order, lin_is(row, 1) ? row : cg_value_row(f->sg, v, row)))
        return false;
    *at = r;
    return true;
}

/* Does the list read it, or a view of it, in places apart from one another?  products: by how many
   products. */
static bool read_apart(const StageGen *sg, ValueId v, const Ids *list, uint32_t *products)
{
    const Graph *g = sg->g;
    bool can = true;
    for (uint32_t i = 0; i < list->n && can; i++) {
        const Node *n = &g->node.at[list->at[i]];
        for (uint32_t k = 0; k < n->nin && can; k++) {
            if (n->in[k] != v)
                continue;
            *products += n->op == OP_MatMul;
            if (n->op == OP_Transpose || is_half_copy(g, n))
                can = read_apart(sg, n->out[0], list, products);
            else
                can = n->op == OP_MatMul || op_is_map(n->op);
        }
    }
    return can;
}

/* Has one stage it alone, all of it? */
static bool is_own(const StageGen *sg, uint32_t i)
{
    const ParamUse *u = &sg->stage->param.at[i];
    uint32_t stages = 0;
    for (uint32_t s = 0; s < sg->pipe->stage.n; s++)
        for (uint32_t k = 0; k < sg->pipe->stage.at[s].param.n; k++)
            stages += sg->pipe->stage.at[s].param.at[k].param == u->param;
    return u->use == USE_OWN && stages == 1 && !sg->g->param.at[u->param].divided;
}

static bool has_room(const StageGen *sg, uint32_t i)
{
    const Param *p = &sg->g->param.at[sg->stage->param.at[i].param];
    const Stage *s = sg->stage;
    const Ids *const lists[] = {&s->forward, &s->infer, &s->backward};
    uint32_t products = 0;
    if (!sg->device || p->stat || p->shape.rank < 2 || !dtype_is_float(p->dtype) ||
        shape_elements(&p->shape) == 0 || sg->pipe->whole || sg->microbatches)
        return false;
    Lin row = lin(p->shape.d[p->shape.rank - 1]);
    if (lin_is(row, 1) || lin_eq(row, row_of(sg, p)) || !is_own(sg, i))
        return false;
    for (int k = 0; k < 3; k++)
        if (!read_apart(sg, p->value, lists[k], &products))
            return false;
    return products > 0;
}

void cg_param_rows(StageGen *sg)
{
    const Stage *s = sg->stage;
    sg->params.row = arena_array(sg->a, int64_t, s->param.n + 1);
    find_types(sg);
    for (uint32_t i = 0; i < s->param.n; i++)
        for (uint32_t k = 0; k < s->param.at[i].grads.n; k++)
            *idmap_at(sg->a, &sg->position.grad, s->param.at[i].grads.at[k]) = s->param.at[i].param;
    for (uint32_t i = 0; i < s->param.n; i++)
        if (has_room(sg, i))
            sg->params.row[i] = row_of(sg, &sg->g->param.at[s->param.at[i].param]).c;
}

Shape cg_param_shape(const StageGen *sg, uint32_t i)
{
    Shape s = sg->g->param.at[sg->stage->param.at[i].param].shape;
    if (sg->params.row[i])
        s.d[s.rank - 1] = sg->params.row[i];
    return s;
}

bool cg_param_place(const Func *f, uint32_t i, ValueId v, Ref *at)
{
    return f->sg->params.row[i] && cg_padded(f, v, false, at);
}

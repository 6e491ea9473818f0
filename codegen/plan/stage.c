/*
 * stage.c - one stage.  In: a Stage of the Pipe.  Out: its blocks laid out (parameters, gradients,
 * constants, stash, saved values), and its functions taken through the passes.
 */
#include "plan.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

/* By parameter: has it a gradient, in whatever stage? */
static bool *trained(Arena *a, const Pipe *p)
{
    bool *is = arena_array(a, bool, p->graph->param.n + 1);
    for (uint32_t s = 0; s < p->stage.n; s++)
        for (uint32_t i = 0; i < p->stage.at[s].param.n; i++)
            is[p->stage.at[s].param.at[i].param] |= p->stage.at[s].param.at[i].grads.n > 0;
    return is;
}

static int64_t bytes_of_param(const StageGen *sg, uint32_t i)
{
    const Param *p = &sg->g->param.at[sg->stage->param.at[i].param];
    return align_up(shape_elements(&p->shape) * (int64_t)dtype_size(p->dtype));
}

/* Gradients, then the sums that are added to them at the end of a step. */
static void lay_out_uses(StageGen *sg)
{
    for (uint32_t i = 0; i < sg->stage->param.n; i++) {
        const ParamUse *u = &sg->stage->param.at[i];
        uint32_t more = u->uses > 1 ? u->uses - 1 : 0;
        vec_push(sg->a, &sg->params.more_at, more ? sg->params.bytes_grad : -1);
        sg->params.bytes_grad += bytes_of_param(sg, i) * more;
        vec_push(sg->a, &sg->params.chunks_at, sg->params.bytes_grad);
        for (uint32_t k = 0; k < u->partial.n; k++)
            sg->params.bytes_grad +=
                bytes_of_param(sg, i) * (graph_pieces_along(sg->g, u->partial.at[k].along) - 1);
    }
}

int64_t cg_grad_at(const StageGen *sg, uint32_t index)
{
    uint32_t n = sg->stage->param.n, i = index % n, use = index / n;
    uint32_t uses = sg->stage->param.at[i].uses;
    return use == 0     ? sg->params.grad_at.at[i]
           : use < uses ? sg->params.more_at.at[i] + (use - 1) * bytes_of_param(sg, i)
                        : sg->params.chunks_at.at[i] + (use - uses) * bytes_of_param(sg, i);
}

static void lay_out_params(StageGen *sg)
{
    const bool *is_trained = trained(sg->a, sg->pipe);
    for (uint32_t i = 0; i < sg->stage->param.n; i++) {
        int64_t bytes = bytes_of_param(sg, i);
        vec_push(sg->a, &sg->params.at, sg->params.bytes);
        sg->params.bytes += bytes;
        if (is_trained[sg->stage->param.at[i].param]) {
            vec_push(sg->a, &sg->params.grad_at, sg->params.bytes_grad);
            sg->params.bytes_grad += bytes;
        } else {
            vec_push(sg->a, &sg->params.grad_at, -1);
        }
    }
    lay_out_uses(sg);
}

/* Which parameters the stage reads in half precision: one type, that of the first. */
static void lay_out_halves(StageGen *sg)
{
    const Stage *s = sg->stage;
    const Ids *const lists[] = {&s->forward, &s->infer, &s->backward};
    for (uint32_t i = 0; i < s->param.n; i++)
        vec_push(sg->a, &sg->params.half_at, -1);
    for (int k = 0; k < 3; k++)
        for (uint32_t i = 0; i < lists[k]->n; i++) {
            const Node *n = &sg->g->node.at[lists[k]->at[i]];
            if (sg->params.half_type == DT_NONE && n->op == OP_Cast && dtype_is_half(n->attr.to))
                sg->params.half_type = n->attr.to;
            ValueId v = cg_copied(sg, lists[k]->at[i]);
            if (v == NONE)
                continue;
            const uint32_t q = idmap_get(&sg->position.param, val(sg->g, v)->param);
            if (sg->params.half_at.at[q] >= 0)
                continue;
            sg->params.half_at.at[q] = sg->params.bytes_half;
            sg->params.bytes_half +=
                align_up(shape_elements(&val(sg->g, v)->shape) *
                         (int64_t)dtype_size(sg->params.half_type));
        }
}

static void keep(StageGen *sg, Ids *list, IdMap *position, ValueId v)
{
    uint32_t *at = idmap_at(sg->a, position, v);
    if (*at != NONE)
        return;
    *at = list->n;
    vec_push(sg->a, list, v);
}

/* A value of this list whose elements are exactly an output's: read there. */
static bool is_an_output(StageGen *sg, Func *f, ValueId v)
{
    for (uint32_t o = 0; o < sg->stage->output.n; o++) {
        ValueId y = sg->stage->output.at[o].value;
        Ref r;
        if (!cg_ref_try(f, y, &r) || r.root != v ||
            value_bytes(sg->g, y) != value_bytes(sg->g, v) || !cg_ref_alike(&r, cg_edge(sg, y)))
            continue;
        if (y != v)
            cg_position(sg, &sg->position.shown, v, o);
        return true;
    }
    return false;
}

/* The place of v's elements for which u, a view of it, stands at *want. */
static bool place_below(Func *f, ValueId u, const Wide *want, ValueId v, Ref *out)
{
    const Value *x = val(f->g, u);
    Wide r;
    if (u == v)
        return cg_narrow(f, want, v, out);
    if (x->kind != V_NODE || !cg_is_view(f, x->node) ||
        (cg_recuts(f, &f->g->node.at[x->node]) && !cg_in_order(f, want)) ||
        !cg_view_invert(f, &f->g->node.at[x->node], want, &r))
        return false;
    return place_below(f, cg_view_operand(f, &f->g->node.at[x->node]), &r, v, out);
}

static bool read_plainly(const Func *f, const Readers *readers, ValueId v)
{
    for (uint32_t i = readers->first[v]; i < readers->first[v + 1]; i++)
        if (!cg_is_view(f, readers->node[i]))
            return true;
    return false;
}

/* ... by a product, where it stands? */
static bool read_by_product(Func *f, const Readers *readers, ValueId v)
{
    bool is = false;
    Wide w;
    for (uint32_t i = readers->first[v]; i < readers->first[v + 1] && !is; i++) {
        const Node *n = &f->g->node.at[readers->node[i]];
        for (uint32_t k = 0; k < n->nin; k++)
            is |= n->in[k] == v && cg_is_factor(f, n, k) && cg_product_reads(f, v);
        for (uint32_t o = 0; o < n->nout && !is && cg_is_view(f, readers->node[i]); o++)
            is = cg_view_operand(f, n) == v && cg_wide(f, n->out[o], &w) &&
                 read_by_product(f, readers, n->out[o]);
    }
    return is;
}

static bool takes(Func *f, const Readers *readers, ValueId v, const Ref *r)
{
    const Wide w = cg_widen(r);
    if (!cg_in_order(f, &w) && read_by_product(f, readers, v))
        return false;
    const Node *maker = &f->g->node.at[f->def.at[v]];
    return cg_fusable(maker) || cg_call_writes(f, maker, r);
}

/* A layout of v in which a Reshape or Transpose above u, a view of it or v itself, is a view for
 * its reader too. */
static bool layout_above(Func *f, const Readers *readers, ValueId v, ValueId u, Ref *at)
{
    for (uint32_t i = readers->first[u]; i < readers->first[u + 1]; i++) {
        const Node *node = &f->g->node.at[readers->node[i]];
        Ref whole, r, now;
        if (!cg_is_view(f, readers->node[i]) || cg_view_operand(f, node) != u)
            continue;
        ValueId y = node->out[0];
        if ((node->op == OP_Reshape || node->op == OP_Transpose) && !cg_ref_try(f, y, &now) &&
            read_plainly(f, readers, y)) {
            if (!cg_pad(f, y, readers, &whole))
                whole = cg_own(f, y);
            Wide want = cg_widen(&whole);
            if (place_below(f, y, &want, v, &r) && cg_keeps_inner(&r) && takes(f, readers, v, &r)) {
                *at = r;
                return true;
            }
        }
        for (uint32_t o = 0; o < node->nout; o++)
            if (layout_above(f, readers, v, node->out[o], at))
                return true;
    }
    return false;
}

/* Row-major, rows apart where products read them, unless a Reshape of the readers could then not be
 * a view: the layout in which it is one. */
static Ref *layout_of(StageGen *sg, Func *f, ValueId v, const Readers *readers)
{
    Ref *at = arena_new_of(sg->a, Ref), r;
    *at = *cg_edge(sg, v);
    if (!cg_is_dense(at) || f->def.at[v] == NONE || layout_above(f, readers, v, v, at))
        return at;
    if (!cg_pad(f, v, readers, &r))
        r = cg_own(f, v);
    if (takes(f, readers, v, &r))
        *at = r;
    return at;
}

/* May a later function read v through the memory of its root?  Not when strides cannot say it and
 * others than products read it. */
static bool shown_by_root(Func *f, const Readers *later, ValueId v)
{
    Ref r;
    return cg_ref_try(f, v, &r) || !read_plainly(f, later, v);
}

/*
 * What a later function reads of `list`, as memory: views are read through the value they show,
 * unless that is larger than all that is read of it.  root_of: of each, its number in `kept`; NONE:
 * it lives on by itself.
 */
static void choose_kept(Func *f, const Ids *read, KeptBlock *kept, uint32_t *root_of)
{
    StageGen *sg = f->sg;
    const Stage *s = sg->stage;
    const Ids lists[] = {s->backward, s->backward_input, s->backward_weight};
    const Readers later = cg_readers(f, lists, 3);
    ValueId *root = arena_array(f->a, ValueId, read->n + 1);
    for (uint32_t i = 0; i < read->n; i++) {
        Ref r;
        root[i] = shown_by_root(f, &later, read->at[i]) ? cg_root(f, read->at[i]) : read->at[i];
        if (f->def.at[root[i]] == NONE && cg_ref_try(f, root[i], &r) && r.buf != NONE)
            root[i] = NONE; /* lives on by itself: a parameter, an input, a gradient that came in */
    }
    IdMap sum_of = {0};
    /* what is read of a root, at its first value */
    int64_t *sum = arena_array(f->a, int64_t, read->n + 1);
    for (uint32_t i = 0; i < read->n; i++) {
        if (root[i] == NONE)
            continue;
        cg_position(sg, &sum_of, root[i], i);
        sum[idmap_get(&sum_of, root[i])] += value_bytes(sg->g, read->at[i]);
    }
    for (uint32_t i = 0; i < read->n; i++) {
        if (root[i] == NONE)
            continue;
        ValueId v =
            sum[idmap_get(&sum_of, root[i])] >= value_bytes(sg->g, root[i]) ? root[i] : read->at[i];
        if (f->kind == F_FORWARD && is_an_output(sg, f, v))
            continue;
        keep(sg, &kept->value, &kept->position, v);
        root_of[i] = idmap_get(&kept->position, v);
    }
}

/* What `kind` keeps of `read`, and where.  Its function is taken as far as this needs, by itself.
 */
static void lay_out_kept(StageGen *sg, FuncKind kind, const Ids both[2], const Ids *read,
                         KeptBlock *kept, uint32_t *root_of)
{
    Arena *a = arena_within(sg->a);
    Func *f = cg_function_new(sg, kind, a, a);
    cg_lower(f, &both[0]);
    cg_apart(f, (Ids[]){f->node, both[1]}, 2);
    for (uint32_t i = 0; i < read->n; i++)
        root_of[i] = NONE;
    choose_kept(f, read, kept, root_of);
    Readers readers = cg_readers(f, both, 2);
    for (uint32_t i = 0; i < kept->value.n; i++) {
        ValueId v = kept->value.at[i];
        vec_push(sg->a, &kept->layout, layout_of(sg, f, v, &readers));
        vec_push(sg->a, &kept->at, kept->bytes);
        kept->bytes += align_up(cg_ref_bytes(f, kept->layout.at[i], v));
    }
    arena_free(a);
}

static void lay_out_stash(StageGen *sg)
{
    const Stage *s = sg->stage;
    uint32_t most = s->stash.n > s->saved.n ? s->stash.n : s->saved.n;
    uint32_t *root_of = arena_array(sg->a, uint32_t, most + 1);
    lay_out_kept(sg, F_FORWARD, (Ids[]){s->forward, s->backward}, &s->stash, &sg->stash, root_of);
    cg_again(sg, root_of);
    lay_out_kept(sg, F_INPUT, (Ids[]){s->backward_input, s->backward_weight}, &s->saved,
                 &sg->saved, root_of);
    for (uint32_t i = 0; i < sg->saved.value.n; i++)
        vec_push(sg->a, &sg->saved.in, ((Standing){BUF_SAVED, i}));
}

/* I is planned: what it saves elsewhere takes no place of its own. */
static void lay_out_saved(StageGen *sg, const Func *f)
{
    sg->saved.bytes = 0;
    for (uint32_t i = 0; i < sg->saved.value.n; i++) {
        sg->saved.at.at[i] = sg->saved.bytes;
        if (sg->saved.in.at[i].cls == BUF_SAVED)
            sg->saved.bytes +=
                align_up(cg_ref_bytes(f, sg->saved.layout.at[i], sg->saved.value.at[i]));
    }
}

/* A value that is a model output twice leaves the stage twice. */
static void split_outputs(StageGen *sg)
{
    Stage *s = sg->stage;
    for (uint32_t o = 0, n = s->output.n; o < n; o++)
        while (s->output.at[o].outputs.n > 1) {
            StageOutput twin = {.value = s->output.at[o].value};
            vec_push(sg->g->arena, &twin.outputs,
                     s->output.at[o].outputs.at[--s->output.at[o].outputs.n]);
            vec_push(sg->g->arena, &s->output, twin);
        }
}

bool cg_has_backward(const Stage *s)
{
    for (uint32_t i = 0; i < s->input.n; i++)
        if (s->input.at[i].grads.n > 0)
            return true;
    for (uint32_t i = 0; i < s->param.n; i++)
        if (s->param.at[i].grads.n > 0)
            return true;
    return false;
}

static bool same_forward(const StageGen *sg)
{
    const Stage *s = sg->stage;
    if (sg->stash.value.n > 0 || s->forward.n != s->infer.n)
        return false;
    for (uint32_t i = 0; i < s->forward.n; i++) {
        const Node *n = &sg->g->node.at[s->forward.at[i]];
        if (s->forward.at[i] != s->infer.at[i] || n->op == OP_Phase ||
            (n->op == OP_FlashAttention && n->attr.attention->ratio > 0))
            return false;
    }
    return sg->g->update.n == 0;
}

static uint32_t dy_count(const Stage *s)
{
    uint32_t n = 0;
    for (uint32_t o = 0; o < s->output.n; o++)
        n += s->output.at[o].dys.n;
    return n;
}

static StageGen *planned(Arena *a, Pipe *p, uint32_t index, Target target, const Lengths *lengths,
                         SizesMet *sizes, StageGen *within);

/* The body of a Recurrence in that stage. */
static StageGen *plan_body(StageGen *of, Pipe *p)
{
    StageGen *body = planned(of->a, p, 0, of->target, of->lengths, of->sizes, of);
    INSIST(body->conv.n == 0 && body->constants.n == 0);
    cg_sizes_part(of->sizes);
    vec_push(of->a, &of->loops.body, body);
    return body;
}

/* within: the stage of which it is a body; NULL: none */
static StageGen *planned(Arena *a, Pipe *p, uint32_t index, Target target, const Lengths *lengths,
                         SizesMet *sizes, StageGen *within)
{
    StageGen *sg = arena_new_of(a, StageGen);
    sg->loops.within = within;
    sg->loops.plan = plan_body;
    sg->lengths = lengths;
    sg->sizes = sizes;
    sg->pipe = p;
    sg->g = p->graph;
    sg->a = a;
    cg_sizes_part(sg->sizes);
    sg->stage = &p->stage.at[index];
    sg->name = p->alone ? p->alone : arena_printf(a, "stage%u", index);
    stage_parts(p->graph, &p->stage.at[index]);
    sg->fixed = within ? within->fixed
                       : p->uneven.n > 0 || p->graph->batch <= 1;       /* no rows: no call */
    sg->print.kernels = within ? within->print.kernels : arena_new_of(a, KernelList);
    if (!within)
        *sg->print.kernels = (KernelList){.of.arena = a, .titles.arena = a, .text.a = a};
    split_outputs(sg);
    sg->reads.in = arena_array(sg->a, uint8_t, sg->stage->input.n + 1);
    sg->reads.out = arena_array(sg->a, uint8_t, sg->stage->output.n + 1);
    sg->reads.optional = arena_array(sg->a, bool, sg->stage->output.n + 1);
    sg->reads.dy = arena_array(sg->a, uint8_t, dy_count(sg->stage) + 1);
    sg->reads.in_again = arena_array(sg->a, uint8_t, sg->stage->input.n + 1);
    sg->reads.out_again = arena_array(sg->a, uint8_t, sg->stage->output.n + 1);
    cg_position_stage(sg);
    sg->target = target;
    sg->device = target != TARGET_C;
    cg_edges(sg);
    lay_out_params(sg);
    lay_out_halves(sg);
    cg_chains(sg);
    lay_out_stash(sg);
    cg_function(sg, F_FORWARD);
    if (!same_forward(sg))
        cg_function(sg, F_INFER);
    for (int k = F_BACKWARD; k <= F_WEIGHT && cg_has_backward(sg->stage); k++) {
        cg_function(sg, (FuncKind)k);
        if (k == F_INPUT)
            lay_out_saved(sg, sg->func[k]);
    }
    for (uint32_t k = 0; k < sg->stash.again.n; k++)
        cg_function(sg, (FuncKind)(F_AGAIN + k));
    return sg;
}

StageGen *cg_stage(Arena *a, Pipe *p, uint32_t index, Target target)
{
    return planned(a, p, index, target, NULL, NULL, NULL);
}

StageGen *cg_stage_sized(Arena *a, Pipe *p, uint32_t index, Target target, const Lengths *lengths,
                         SizesMet *sizes)
{
    return planned(a, p, index, target, lengths, sizes, NULL);
}

int64_t cg_bytes_work_of(const StageGen *sg, FuncKind kind)
{
    const Func *f = sg->func[kind];
    if (!f)
        return 0;
    return align_up(f->bytes.work + sg->func[cg_function_like(sg, kind)]->bytes.scratch);
}

int64_t cg_bytes_work(const StageGen *sg)
{
    int64_t most = 0;
    for (int k = 0; k < F_COUNT; k++) {
        int64_t bytes = cg_bytes_work_of(sg, (FuncKind)k);
        most = bytes > most ? bytes : most;
    }
    return most;
}

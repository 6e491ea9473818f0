/*
 * table.c - what a stage says of itself to the runtime.  In: the stage with its blocks laid out and
 * its functions through all passes.  Out: its PpStage and all it points to.
 */
#include <string.h>

#include "codegen/tables.h"
#include "plan.h"

static PpTensor tensor(const Graph *g, const char *name, Dtype type, const Shape *s, int batch,
                       Arena *a)
{
    if (batch >= 0 && (batch >= s->rank || g->batch <= 0 || s->d[batch] % g->batch != 0))
        batch = -1;
    PpTensor t = {.name = arena_strdup(a, name),
                  .dtype = (int)type,
                  .rank = s->rank,
                  .batch_dim = batch < 0 ? -1 : batch,
                  .bytes = shape_elements(s) * (int64_t)dtype_size(type)};
    INSIST(s->rank <= PP_MAX_RANK);
    for (int i = 0; i < s->rank; i++)
        t.dim[i] = s->d[i];
    return t;
}

_Static_assert((int)SYMBOLS == PP_LENGTHS, "as many lengths");

/* A dimension that is the same with all lengths has no terms. */
static void add_terms(const Lengths *l, ValueId v, PpTensor *t, Arena *a)
{
    VEC(PpTerm) all = {0};
    for (int i = 0; i < t->rank; i++) {
        int64_t size[SAMPLES];
        Polynomial p;
        for (int k = 0; k < l->n; k++)
            size[k] = val(l->pipe[k]->graph, v)->shape.d[i];
        if (!cg_fit(l, size, &p) || p.degree == 0)
            continue;
        for (int k = 0; k < TERMS; k++)
            if (p.c[k]) {
                PpTerm term = {.dim = i, .c = p.c[k]};
                for (int s = 0; s < l->symbols; s++)
                    term.power[s] = cg_power(k, s);
                vec_push(a, &all, term);
            }
    }
    t->n_term = (int)all.n;
    t->term = all.at;
}

PpTensor cg_tensor(const Graph *g, ValueId v, const char *name, const Lengths *l, Arena *a)
{
    const Value *x = val(g, v);
    PpTensor t = tensor(g, name ? name : x->name, x->dtype, &x->shape, x->batch, a);
    if (l)
        add_terms(l, v, &t, a);
    return t;
}

static int kept_until(uint8_t bits) { return bits & 2 ? 2 : bits & 1 ? 1 : 0; }

int cg_input_number(const Pipe *p, ValueId v)
{
    int n = 0;
    for (uint32_t i = 0; i < p->graph->input.n; i++) {
        if (p->graph->input.at[i] == v)
            return n;
        n += p->graph->input.at[i] != p->loss_scale;
    }
    BUG("'%s' is no input of the model", val(p->graph, v)->name);
}

static int output_of(const Stage *s, ValueId v)
{
    for (uint32_t i = 0; i < s->output.n; i++)
        if (s->output.at[i].value == v)
            return (int)i;
    BUG("stage %u does not put out value %u", s->index, v);
}

/* rows: NULL, or the Pipe whose shapes they are given in, those of a microbatch, of which nothing
   is kept. */
static const PpInput *inputs(const StageGen *sg, const Pipe *rows, Arena *a)
{
    const Pipe *p = sg->pipe;
    const Stage *s = sg->stage;
    const Graph *g = (rows ? rows : p)->graph;
    PpInput *list = arena_array(a, PpInput, s->input.n + 1);
    for (uint32_t i = 0; i < s->input.n; i++) {
        const StageInput *in = &s->input.at[i];
        bool scale = in->value == p->loss_scale, data = in->from == NONE;
        list[i] = (PpInput){.t = cg_tensor(g, in->value, NULL, sg->lengths, a),
                            .from = scale  ? -2
                                    : data ? -1
                                           : (int)in->from,
                            .from_output = scale  ? 0
                                           : data ? cg_input_number(p, in->value)
                                                  : output_of(&p->stage.at[in->from], in->value),
                            .stashed = rows ? 0 : kept_until(sg->reads.in[i]),
                            .grads = (int)in->grads.n,
                            .again = rows ? 0 : sg->reads.in_again[i]};
    }
    return list;
}

static const PpOutput *outputs(const StageGen *sg, Arena *a)
{
    const Stage *s = sg->stage;
    PpOutput *list = arena_array(a, PpOutput, s->output.n + 1);
    for (uint32_t i = 0; i < s->output.n; i++) {
        const StageOutput *out = &s->output.at[i];
        list[i] = (PpOutput){.t = cg_tensor(sg->g, out->value, NULL, sg->lengths, a),
                             .model_output = out->outputs.n > 0 ? (int)out->outputs.at[0] : -1,
                             .stashed = kept_until(sg->reads.out[i]),
                             .dys = (int)out->dys.n,
                             .again = sg->reads.out_again[i],
                             .optional = sg->reads.optional[i] && !kept_until(sg->reads.out[i]) &&
                                         !sg->reads.out_again[i]};
    }
    return list;
}

/* Consumers by descending stage, each one's contributions in its order: as autodiff filled
 * StageOutput.dys. */
static const PpDy *gradients(const StageGen *sg, Arena *a, int *n)
{
    const Pipe *p = sg->pipe;
    const Stage *s = sg->stage;
    uint32_t all = 0;
    for (uint32_t o = 0; o < s->output.n; o++)
        all += s->output.at[o].dys.n;
    PpDy *list = arena_array(a, PpDy, all + 1);
    *n = 0;
    for (uint32_t o = 0; o < s->output.n; o++) {
        const StageOutput *out = &s->output.at[o];
        uint32_t k = 0;
        for (uint32_t c = p->stage.n; out->dys.n > 0 && c-- > s->index + 1;)
            for (uint32_t i = 0; i < p->stage.at[c].input.n; i++) {
                const StageInput *in = &p->stage.at[c].input.at[i];
                bool ours = in->value == out->value && in->from == s->index;
                for (uint32_t j = 0; ours && j < in->grads.n; j++, k++) {
                    INSIST(k < out->dys.n && out->dys.at[k] == in->grads.at[j]);
                    list[*n] = (PpDy){.output = (int)o,
                                      .from = (int)c,
                                      .input = (int)i,
                                      .index = (int)j,
                                      .stashed = kept_until(sg->reads.dy[*n])};
                    ++*n;
                }
            }
        INSIST(k == out->dys.n);
    }
    return list;
}

/* One of several of the model's: without the dimension that they are in. */
static void one_of_several(PpParam *to, Param *p, Arena *a)
{
    const char **name = arena_array(a, const char *, p->n_each);
    Chunk *part = &p->box.along[MESH_EXPERT];
    for (int i = 0; i < p->n_each; i++)
        name[i] = arena_strdup(a, p->each[i].name);
    to->each.mesh = MESH_EXPERT;
    to->each.n = p->n_each;
    to->each.first = part->piece;
    to->each.step = part->pieces;
    to->each.name = name;
    part->axis = -1;
    for (int x = 0; x < MESH_AXES; x++)
        p->box.along[x].axis -= p->box.along[x].axis >= 0;
    p->whole = *param_whole(&p->each[0]);
    p->shape = shape_without(&p->shape, 0);
}

/* Along two axes of the mesh, the one dimension is outside the other (mesh/search.c). */
static void divided(PpParam *to, const Param *p)
{
    int inner = -1;
    for (int x = 0; x < MESH_AXES; x++)
        if (p->box.along[x].axis >= 0 &&
            (inner < 0 || p->box.along[x].axis > p->box.along[inner].axis))
            inner = x;
    for (int x = 0; x < MESH_AXES; x++) {
        const Chunk *part = &p->box.along[x];
        if (part->axis < 0)
            continue;
        int64_t whole = p->whole.d[part->axis], here = p->shape.d[part->axis] / part->groups,
                first = part->piece * here, step = part->pieces * here;
        if (x != inner) {
            to->outer.mesh = x;
            to->outer.dim = part->axis;
            to->outer.whole = whole;
            to->outer.first = first;
            to->outer.step = step;
            continue;
        }
        to->mesh = x;
        to->axis = part->axis;
        to->groups = part->groups;
        to->whole = whole;
        to->first = first;
        to->step = step;
    }
}

static const PpParam *params(const StageGen *sg, Arena *a)
{
    static const int use[] = {PP_OWN, PP_TRANSMIT, PP_REPLICATE};
    const Stage *s = sg->stage;
    PpParam *list = arena_array(a, PpParam, s->param.n + 1);
    for (uint32_t i = 0; i < s->param.n; i++) {
        const ParamUse *u = &s->param.at[i];
        Param of = sg->g->param.at[u->param], *const q = &of;
        list[i] = (PpParam){.param = (int)u->param,
                            .use = use[u->use],
                            .from = (int)(u->use == USE_OWN ? s->index : u->from),
                            .trainable = q->trainable,
                            .stat = q->stat,
                            .offset = sg->params.at.at[i],
                            .grad_offset = sg->params.grad_at.at[i],
                            .half_offset = sg->params.bytes_half > 0 ? sg->params.half_at.at[i] : 0,
                            .more = u->uses > 1 ? (int)u->uses - 1 : 0,
                            .more_offset = u->uses > 1 ? sg->params.more_at.at[i] : 0,
                            .axis = -1};
        if (q->n_each)
            one_of_several(&list[i], q, a);
        if (q->divided)
            divided(&list[i], q);
        list[i].t = tensor(sg->g, q->name, q->dtype, &q->shape, -1, a);
    }
    return list;
}

/* ---- constants ------------------------------------------------------------------------------- */

Ids cg_table_constants(const StageGen *sg, Arena *a)
{
    Ids order = {0};
    for (int inlined = 0; inlined <= sg->device; inlined++)
        for (uint32_t i = 0; i < sg->constants.n; i++)
            if (sg->constants.at[i].inlined == inlined)
                vec_push(a, &order, i);
    return order;
}

static const PpConst *constants(const StageGen *sg, const Ids *order, Arena *a)
{
    PpConst *list = arena_array(a, PpConst, order->n + 1);
    for (uint32_t k = 0; k < order->n; k++) {
        const StageConst *c = &sg->constants.at[order->at[k]];
        const Value *v = cg_constant_value(sg, order->at[k]);
        const char *name = arena_printf(a, "constant %u", order->at[k]);
        list[k] = (PpConst){.t = tensor(sg->g, name, v->dtype, &v->shape, -1, a),
                            .offset = c->offset + (c->inlined ? sg->bytes_const : 0)};
    }
    return list;
}

/* ---- the stage ------------------------------------------------------------------------------- */

static int64_t flops(const Graph *g, const Ids *list)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        n += cost_flops(g, list->at[i]);
    return n;
}

/* What W's loops read, for nodes that I has as well, of what others made, each value once.
   again: those nodes. */
static int64_t twice_bytes(const Graph *g, const Ids *weight, const bool *again, Arena *scratch)
{
    bool *met = arena_array(scratch, bool, g->value.n + 1);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < weight->n; i++) {
        const Node *x = &g->node.at[weight->at[i]];
        for (uint32_t k = 0; k < x->nin && again[weight->at[i]]; k++) {
            ValueId v = graph_behind_views(g, x->in[k]);
            const Value *read = v == NONE ? NULL : val(g, v);
            bool own = read && read->kind == V_NODE && again[read->node];
            if (!read || met[v] || own || read->kind == V_PARAM || read->kind == V_CONST)
                continue;
            met[v] = true;
            bytes += value_bytes(g, v);
        }
    }
    return bytes;
}

/* What I and W both compute, by elements: nodes that read what is kept are in either. */
static void twice(const StageGen *sg, PpStage *st)
{
    const Graph *g = sg->g;
    const Ids *input = &sg->stage->backward_input, *weight = &sg->stage->backward_weight;
    Arena *scratch = arena_within(sg->a);
    bool *made = arena_array(scratch, bool, g->node.n + 1),
         *again = arena_array(scratch, bool, g->node.n + 1);
    for (uint32_t i = 0; i < input->n; i++)
        made[input->at[i]] = true;
    for (uint32_t i = 0; i < weight->n; i++) {
        Op op = g->node.at[weight->at[i]].op;
        int64_t n = made[weight->at[i]] ? cost_flops(g, weight->at[i]) : 0;
        again[weight->at[i]] = made[weight->at[i]] && !op_is_view(op);
        *(op_is_map(op) && !op_is_quick(op) ? &st->twice.functions : &st->twice.quick) += n;
    }
    st->twice.bytes = twice_bytes(g, weight, again, scratch);
    arena_free(scratch);
}

/* R: parts of the stash. */
static const PpAgain *parts(const StageGen *sg, Arena *a)
{
    PpAgain *list = arena_array(a, PpAgain, sg->stash.again.n + 1);
    for (uint32_t k = 0; k < sg->stash.again.n; k++)
        list[k] =
            (PpAgain){.bytes = sg->stash.again.at[k].bytes,
                      .flops = flops(sg->g, &sg->stage->again.at[sg->stash.again.at[k].from].node)};
    return list;
}

/* A copy: sg->conv lives only as long as the arena of its stage. */
const PpConvShape *cg_convolutions(const StageGen *sg, Arena *a)
{
    PpConvShape *list = arena_array(a, PpConvShape, sg->conv.n + 1);
    for (uint32_t i = 0; i < sg->conv.n; i++)
        list[i] = sg->conv.at[i].shape;
    return list;
}

/* A loss over the whole minibatch has no weight gradient of a microbatch. */
bool cg_own_weight(const StageGen *sg)
{
    bool any = false;
    for (uint32_t i = 0; i < sg->stage->param.n; i++)
        any |= sg->stage->param.at[i].grads.n > 0;
    return any && sg->func[F_WEIGHT] && !sg->microbatches;
}

/* Of a loss over the whole minibatch: F brings a microbatch's rows, B takes those of the gradients,
   nothing of it is kept. */
static const PpStage *of_microbatches(const StageGen *sg, const PpStage *whole, Arena *a)
{
    PpStage *st = arena_new_of(a, PpStage);
    *st = *whole;
    st->input = inputs(sg, sg->microbatches, a);
    st->bytes.stash = st->bytes.saved = 0;
    st->twice.quick = st->twice.functions = st->twice.bytes = 0;
    st->n_again = 0;
    st->again = NULL;
    st->minibatch = whole;
    return st;
}

/* In the order of PP_WORK_FORWARD and so on, the parts of the stash as one. */
static void works(const StageGen *sg, int64_t *bytes)
{
    for (int k = 0; k < F_COUNT; k++) {
        int64_t own = cg_bytes_work_of(sg, (FuncKind)k),
                *to = &bytes[k < F_AGAIN ? k : PP_WORK_AGAIN];
        *to = own > *to ? own : *to;
    }
    if (!sg->func[F_INFER]) /* it is the forward */
        bytes[PP_WORK_INFER] = bytes[PP_WORK_FORWARD];
}
_Static_assert((int)F_FORWARD == PP_WORK_FORWARD && (int)F_INFER == PP_WORK_INFER &&
                   (int)F_BACKWARD == PP_WORK_BACKWARD && (int)F_INPUT == PP_WORK_INPUT &&
                   (int)F_WEIGHT == PP_WORK_WEIGHT && (int)F_AGAIN == PP_WORK_AGAIN,
               "functions have one order");

const PpStage *cg_stage_table(const StageGen *sg, Arena *a)
{
    const Stage *s = sg->stage;
    Ids order = cg_table_constants(sg, a);
    PpStage *st = arena_new_of(a, PpStage);
    *st = (PpStage){.index = (int)s->index,
                    .label = arena_strdup(a, s->label ? s->label : ""),
                    .n_input = (int)s->input.n,
                    .n_output = (int)s->output.n,
                    .n_param = (int)s->param.n,
                    .n_const = (int)order.n,
                    .input = inputs(sg, NULL, a),
                    .output = outputs(sg, a),
                    .param = params(sg, a),
                    .constants = constants(sg, &order, a),
                    .bytes.param = sg->params.bytes,
                    .bytes.grad = sg->params.bytes_grad,
                    .bytes.constants = sg->bytes_const + (sg->device ? sg->bytes_inlined : 0),
                    .bytes.half = sg->params.bytes_half,
                    .half_type = sg->params.bytes_half > 0 ? (int)sg->params.half_type : 0,
                    .bytes.stash = sg->stash.bytes,
                    .bytes.saved = sg->saved.bytes,
                    .flops.forward = flops(sg->g, &s->forward),
                    .flops.input = flops(sg->g, &s->backward_input),
                    .flops.weight = flops(sg->g, &s->backward_weight),
                    .n_again = (int)sg->stash.again.n,
                    .again = parts(sg, a),
                    .conv.n = (int)sg->conv.n,
                    .conv.shape = cg_convolutions(sg, a),
                    .has_backward = cg_has_backward(s)};
    st->mesh.collective = cg_collectives(sg, a, &st->mesh.n_collective);
    st->mesh.at_once = 1;
    for (int k = 0; k < F_COUNT; k++)
        if (sg->func[k] && (int)sg->func[k]->at_once >= st->mesh.at_once)
            st->mesh.at_once = (int)sg->func[k]->at_once + 1;
    st->mesh.partial = cg_partials(sg, a, &st->mesh.n_partial);
    works(sg, st->bytes.work);
    twice(sg, st);
    for (uint32_t i = 0; i < s->input.n; i++)
        st->n_dx += (int)s->input.at[i].grads.n;
    st->dy = gradients(sg, a, &st->n_dy);
    if (sg->microbatches)
        return of_microbatches(sg, st, a);
    st->look.kept = cg_kept(sg, a, &st->look.n_kept);
    if (sg->profiled)
        st->look.steps = cg_steps_table(sg, a);
    return st;
}

/*
 * program.c - from a Pipe to the tables that planning a rank needs.
 *
 * Stages are taken through all passes of codegen but printing, which decides the layout of stash,
 * saved values and workspaces; nothing is printed.
 */
#include <string.h>

#include "codegen/plan/plan.h"
#include "program.h"

static PpTensor tensor(const Graph *g, ValueId v)
{
    const Value *x = val(g, v);
    const Shape *s = &x->shape;
    int batch = x->batch;
    if (batch >= 0 && (batch >= s->rank || g->batch <= 0 || s->d[batch] % g->batch != 0))
        batch = -1;
    return (PpTensor){.dtype = (int)x->dtype, .batch_dim = batch < 0 ? -1 : batch,
                      .bytes = shape_elements(s) * (int64_t)dtype_size(x->dtype)};
}

static int kept_until(uint8_t bits) { return bits & 2 ? 2 : bits & 1 ? 1 : 0; }

static int data_input(const Pipe *p, ValueId v)
{
    int n = 0;
    for (uint32_t i = 0; p->graph->input.at[i] != v; i++)
        n += p->graph->input.at[i] != p->loss_scale;
    return n;
}

static int output_of(const Stage *s, ValueId v)
{
    uint32_t i = 0;
    while (s->output.at[i].value != v)
        i++;
    return (int)i;
}

static int64_t flops(const Graph *g, const Ids *list)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        n += cost_flops(g, list->at[i]);
    return n;
}

static void inputs(const StageGen *sg, PpStage *to, Arena *a)
{
    const Pipe *p = sg->pipe;
    const Stage *s = sg->stage;
    PpInput *list = arena_array(a, PpInput, s->input.n + 1);
    for (uint32_t i = 0; i < s->input.n; i++) {
        const StageInput *in = &s->input.at[i];
        bool scale = in->value == p->loss_scale, data = in->from == NONE;
        list[i] = (PpInput){.t = tensor(p->graph, in->value),
                            .from = scale ? -2 : data ? -1 : (int)in->from,
                            .from_output = scale  ? 0
                                           : data ? data_input(p, in->value)
                                                  : output_of(&p->stage.at[in->from], in->value),
                            .stashed = kept_until(sg->in_read[i]),
                            .grads = (int)in->grads.n,
                            .again = sg->in_again[i]};
        to->n_dx += (int)in->grads.n;
    }
    to->n_input = (int)s->input.n;
    to->input = list;
}

static void outputs(const StageGen *sg, PpStage *to, Arena *a)
{
    const Stage *s = sg->stage;
    PpOutput *list = arena_array(a, PpOutput, s->output.n + 1);
    for (uint32_t i = 0; i < s->output.n; i++) {
        const StageOutput *out = &s->output.at[i];
        list[i] = (PpOutput){.t = tensor(sg->g, out->value),
                             .model_output = out->outputs.n > 0 ? (int)out->outputs.at[0] : -1,
                             .stashed = kept_until(sg->out_read[i]),
                             .dys = (int)out->dys.n,
                             .again = sg->out_again[i]};
        to->n_dy += (int)out->dys.n;
    }
    to->n_output = (int)s->output.n;
    to->output = list;
}

/* In the order of StageOutput.dys: consumers by descending stage. */
static void gradients(const StageGen *sg, PpStage *to, Arena *a)
{
    const Pipe *p = sg->pipe;
    const Stage *s = sg->stage;
    PpDy *list = arena_array(a, PpDy, to->n_dy + 1);
    int n = 0;
    for (uint32_t o = 0; o < s->output.n; o++)
        for (uint32_t c = p->stage.n; s->output.at[o].dys.n > 0 && c-- > s->index + 1;)
            for (uint32_t i = 0; i < p->stage.at[c].input.n; i++) {
                const StageInput *in = &p->stage.at[c].input.at[i];
                bool ours = in->value == s->output.at[o].value && in->from == s->index;
                for (uint32_t j = 0; ours && j < in->grads.n; j++, n++)
                    list[n] = (PpDy){(int)o, (int)c, (int)i, (int)j, kept_until(sg->dy_read[n])};
            }
    INSIST(n == to->n_dy);
    to->dy = list;
}

static void params(const StageGen *sg, PpStage *to, Arena *a)
{
    static const int use[] = {PP_OWN, PP_TRANSMIT, PP_REPLICATE};
    const Stage *s = sg->stage;
    PpParam *list = arena_array(a, PpParam, s->param.n + 1);
    for (uint32_t i = 0; i < s->param.n; i++) {
        const ParamUse *u = &s->param.at[i];
        const Param *q = &sg->g->param.at[u->param];
        list[i] = (PpParam){.t = tensor(sg->g, q->value),
                            .param = (int)u->param,
                            .use = use[u->use],
                            .from = (int)(u->use == USE_OWN ? s->index : u->from),
                            .trainable = q->trainable,
                            .stat = q->stat,
                            .offset = sg->param_at.at[i],
                            .grad_offset = sg->grad_at.at[i],
                            .half_offset = sg->bytes_half > 0 ? sg->half_at.at[i] : 0,
                            .more = u->uses > 1 ? (int)u->uses - 1 : 0,
                            .more_offset = u->uses > 1 ? sg->more_at.at[i] : 0};
        list[i].t.batch_dim = -1;
    }
    to->n_param = (int)s->param.n;
    to->param = list;
}

static void parts(const StageGen *sg, PpStage *to, Arena *a)
{
    PpAgain *list = arena_array(a, PpAgain, sg->again.n + 1);
    for (uint32_t k = 0; k < sg->again.n; k++)
        list[k] = (PpAgain){.bytes = sg->again.at[k].bytes,
                            .flops = flops(sg->g, &sg->stage->again.at[sg->again.at[k].from].node)};
    to->n_again = (int)sg->again.n;
    to->again = list;
}

static void stage(const StageGen *sg, bool device, PpStage *to, Arena *a)
{
    const Stage *s = sg->stage;
    *to = (PpStage){.index = (int)s->index,
                    .bytes_param = sg->bytes_param,
                    .bytes_grad = sg->bytes_grad,
                    .bytes_const = sg->bytes_const + (device ? sg->bytes_inlined : 0),
                    .bytes_half = sg->bytes_half,
                    .half_type = sg->bytes_half > 0 ? (int)sg->half_type : 0,
                    .bytes_stash = sg->bytes_stash,
                    .bytes_saved = sg->bytes_saved,
                    .bytes_work = cg_bytes_work(sg, device ? TARGET_CUDA : TARGET_C),
                    .flops_forward = flops(sg->g, &s->forward),
                    .flops_input = flops(sg->g, &s->backward_input),
                    .flops_weight = flops(sg->g, &s->backward_weight),
                    .has_backward = cg_has_backward(s)};
    inputs(sg, to, a);
    outputs(sg, to, a);
    gradients(sg, to, a);
    params(sg, to, a);
    parts(sg, to, a);
}

static PpTensor *tensors(const Pipe *p, const Ids *list, int *n, Arena *a)
{
    PpTensor *all = arena_array(a, PpTensor, list->n + 1);
    *n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i] != p->loss_scale)
            all[(*n)++] = tensor(p->graph, list->at[i]);
    return all;
}

static int loss_output(const Pipe *p)
{
    return output_of(&p->stage.at[p->stage.n - 1], p->loss);
}

Program *program_of(Pipe *model, bool device, Arena *a)
{
    static const int kind[] = {PP_LOSS_NONE, PP_LOSS_SUM, PP_LOSS_MEAN_ELEMENTS,
                               PP_LOSS_MEAN_TARGETS, PP_LOSS_MEAN_ROWS};
    Pipe *p = device && model->device ? model->device : model;
    Program *out = arena_new_of(a, Program);
    const PpStage **list = arena_array(a, const PpStage *, p->stage.n + 1);
    out->stage = arena_array(a, PpStage, p->stage.n + 1);
    for (uint32_t i = 0; i < p->stage.n; i++) {
        Arena *scratch = arena_within(a);
        const StageGen *sg = cg_stage(scratch, p, i, device);
        stage(sg, device, &out->stage[i], a);
        out->convolutions |= sg->conv.n > 0;
        arena_free(scratch);
        list[i] = &out->stage[i];
    }
    out->plan = (PpPlan){.rows = p->graph->batch > 0 ? p->graph->batch : 1,
                         .uneven_ok = p->uneven.n == 0,
                         .n_stage = (int)p->stage.n,
                         .n_param = (int)p->graph->param.n,
                         .stage = list,
                         .loss_stage = (int)p->stage.n - 1,
                         .loss_output = loss_output(p),
                         .loss_kind = kind[p->scale],
                         .loss_target = p->target == NONE ? -1 : data_input(p, p->target),
                         .device = device ? PP_CUDA : PP_CPU};
    out->plan.input = tensors(p, &p->graph->input, &out->plan.n_input, a);
    out->plan.output = tensors(p, &p->graph->output, &out->plan.n_output, a);
    return out;
}

/* ---- other rows ------------------------------------------------------------------------------ */

typedef struct {
    int64_t rows, was;
    Arena *a;
} Scale;

static int64_t scaled(const Scale *s, int64_t bytes)
{
    return (int64_t)((double)bytes * (double)s->rows / (double)s->was);
}

static void scale_tensor(const Scale *s, PpTensor *t)
{
    if (t->batch_dim >= 0)
        t->bytes = scaled(s, t->bytes);
}

static const PpTensor *scale_list(const Scale *s, const PpTensor *list, int n)
{
    PpTensor *own = arena_array(s->a, PpTensor, n + 1);
    for (int i = 0; i < n; i++) {
        own[i] = list[i];
        scale_tensor(s, &own[i]);
    }
    return own;
}

static void scale_stage(const Scale *s, PpStage *to)
{
    PpInput *in = arena_array(s->a, PpInput, to->n_input + 1);
    PpOutput *out = arena_array(s->a, PpOutput, to->n_output + 1);
    PpAgain *again = arena_array(s->a, PpAgain, to->n_again + 1);
    for (int i = 0; i < to->n_input; i++)
        in[i] = to->input[i], scale_tensor(s, &in[i].t);
    for (int i = 0; i < to->n_output; i++)
        out[i] = to->output[i], scale_tensor(s, &out[i].t);
    for (int i = 0; i < to->n_again; i++)
        again[i] = (PpAgain){.bytes = scaled(s, to->again[i].bytes),
                             .flops = scaled(s, to->again[i].flops)};
    to->input = in;
    to->output = out;
    to->again = again;
    to->bytes_stash = scaled(s, to->bytes_stash);
    to->bytes_saved = scaled(s, to->bytes_saved);
    to->bytes_work = scaled(s, to->bytes_work);
    to->flops_forward = scaled(s, to->flops_forward);
    to->flops_input = scaled(s, to->flops_input);
    to->flops_weight = scaled(s, to->flops_weight);
}

Program *program_resized(const Program *p, int64_t rows, Arena *a)
{
    Program *out = arena_new_of(a, Program);
    int n = p->plan.n_stage;
    Scale s = {rows, p->plan.rows, a};
    const PpStage **list = arena_array(a, const PpStage *, n + 1);
    *out = *p;
    out->stage = arena_array(a, PpStage, n + 1);
    for (int i = 0; i < n; i++) {
        out->stage[i] = p->stage[i];
        scale_stage(&s, &out->stage[i]);
        list[i] = &out->stage[i];
    }
    out->plan.rows = rows;
    out->plan.stage = list;
    out->plan.input = scale_list(&s, p->plan.input, p->plan.n_input);
    out->plan.output = scale_list(&s, p->plan.output, p->plan.n_output);
    return out;
}

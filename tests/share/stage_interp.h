/*
 * stage_interp.h - the functions of a stage without a compiler: nests by the interpreter
 * (oracle/nest.c), calls by the evaluator, on the very memory that codegen planned.  In: a
 * stage as codegen leaves it, and its blocks (stage_run.h).  Out: what generated code would have
 * left there, so views, places, fusion, lifetimes and the stash are tested at thousands of graphs a
 * minute; what the printers make of them, stage_run.h's compiled stages test.
 */
#ifndef STAGE_INTERP_H
#define STAGE_INTERP_H

#include "oracle/oracle.h"
#include "stage_run.h"

/* ---- what tables.c prints, in memory --------------------------------------------------------- */

static PpTensor interp_tensor(const StageRun *r, const char *name, Dtype t, const Shape *s,
                              int batch)
{
    PpTensor x = {
        .name = name, .dtype = (int)t, .rank = s->rank, .batch_dim = batch < 0 ? -1 : batch};
    memcpy(x.dim, s->d, sizeof x.dim);
    x.bytes = shape_elements(s) * (int64_t)dtype_size(t);
    (void)r;
    return x;
}

static PpTensor interp_value(const StageRun *r, ValueId v)
{
    const Value *x = val(r->g, v);
    return interp_tensor(r, x->name, x->dtype, &x->shape, x->batch);
}

static int interp_kept(uint8_t bits) { return bits & 2 ? 2 : bits & 1 ? 1 : 0; }

static int interp_output_of(const StageRun *r, uint32_t stage, ValueId v)
{
    const Stage *s = &r->p->stage.at[stage];
    for (uint32_t i = 0; i < s->output.n; i++)
        if (s->output.at[i].value == v)
            return (int)i;
    BUG("stage %u does not put out value %u", stage, v);
}

static void interp_ports(StageRun *r, const StageGen *sg, PpStage *t)
{
    const Stage *s = sg->stage;
    PpInput *in = arena_array(r->a, PpInput, s->input.n + 1);
    PpOutput *out = arena_array(r->a, PpOutput, s->output.n + 1);
    for (uint32_t i = 0; i < s->input.n; i++) {
        const StageInput *x = &s->input.at[i];
        bool made = x->from != NONE && x->value != r->p->loss_scale;
        in[i] = (PpInput){interp_value(r, x->value), made ? (int)x->from : -1,
                          made ? interp_output_of(r, x->from, x->value) : 0,
                          interp_kept(sg->reads.in[i]), (int)x->grads.n, sg->reads.in_again[i]};
        t->n_dx += (int)x->grads.n;
    }
    for (uint32_t i = 0; i < s->output.n; i++) {
        const StageOutput *x = &s->output.at[i];
        out[i] = (PpOutput){interp_value(r, x->value), x->outputs.n ? (int)x->outputs.at[0] : -1,
                            interp_kept(sg->reads.out[i]), (int)x->dys.n, sg->reads.out_again[i], 0};
        t->n_dy += (int)x->dys.n;
    }
    t->input = in;
    t->output = out;
    t->n_input = (int)s->input.n;
    t->n_output = (int)s->output.n;
}

/* Consumers by descending stage, each one's contributions in its order. */
static void interp_dys(StageRun *r, const StageGen *sg, PpStage *t)
{
    const Stage *s = sg->stage;
    PpDy *dy = arena_array(r->a, PpDy, t->n_dy + 1);
    int n = 0;
    for (uint32_t o = 0; o < s->output.n; o++)
        for (uint32_t c = r->p->stage.n; s->output.at[o].dys.n > 0 && c-- > s->index + 1;)
            for (uint32_t i = 0; i < r->p->stage.at[c].input.n; i++) {
                const StageInput *in = &r->p->stage.at[c].input.at[i];
                for (uint32_t j = 0;
                     in->value == s->output.at[o].value && in->from == s->index && j < in->grads.n;
                     j++)
                    dy[n] = (PpDy){(int)o, (int)c, (int)i, (int)j, interp_kept(sg->reads.dy[n])},
                    n++;
            }
    INSIST(n == t->n_dy);
    t->dy = dy;
}

static void interp_again(StageRun *r, const StageGen *sg, PpStage *t)
{
    PpAgain *again = arena_array(r->a, PpAgain, sg->stash.again.n + 1);
    for (uint32_t k = 0; k < sg->stash.again.n; k++)
        again[k].bytes = sg->stash.again.at[k].bytes;
    t->again = again;
    t->n_again = (int)sg->stash.again.n;
}

static const PpStage *interp_table(StageRun *r, const StageGen *sg)
{
    const Stage *s = sg->stage;
    PpStage *t = arena_new_of(r->a, PpStage);
    PpParam *param = arena_array(r->a, PpParam, s->param.n + 1);
    t->index = (int)s->index;
    interp_ports(r, sg, t);
    interp_dys(r, sg, t);
    for (uint32_t i = 0; i < s->param.n; i++) {
        const Param *q = &r->g->param.at[s->param.at[i].param];
        param[i] = (PpParam){.t = interp_tensor(r, q->name, q->dtype, &q->shape, -1),
                             .axis = -1,
                             .param = (int)s->param.at[i].param,
                             .offset = sg->params.at.at[i],
                             .grad_offset = sg->params.grad_at.at[i],
                             .half_offset = sg->params.half_at.at[i],
                             .more = (int)s->param.at[i].uses - (s->param.at[i].uses > 0),
                             .more_offset = sg->params.more_at.at[i]};
    }
    t->param = param;
    t->n_param = (int)s->param.n;
    t->bytes.param = sg->params.bytes;
    t->bytes.grad = sg->params.bytes_grad;
    t->bytes.stash = sg->stash.bytes;
    interp_again(r, sg, t);
    t->bytes.saved = sg->saved.bytes;
    t->bytes.half = sg->params.bytes_half;
    t->half_type = (int)sg->params.half_type;
    t->bytes.work[PP_WORK_FORWARD] = cg_bytes_work(sg); /* one for all */
    t->has_backward = cg_has_backward(s);
    return t;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static char *interp_buffer(const StageRun *r, const RunStage *s, const Func *f, uint32_t buf)
{
    const Buffer *b = &f->buf.at[buf];
    switch (b->cls) {
    case BUF_PARAM: return s->block[BLOCK_PARAM].at + s->sg->params.at.at[b->index];
    case BUF_GRAD: return s->block[BLOCK_GRAD].at + cg_grad_at(s->sg, b->index);
    case BUF_STASH: return s->block[BLOCK_STASH].at + s->sg->stash.at.at[b->index];
    case BUF_SAVED: return s->block[BLOCK_SAVED].at + s->sg->saved.at.at[b->index];
    case BUF_WORK: return s->block[BLOCK_WORK].at + b->offset;
    case BUF_HALF: return s->block[BLOCK_HALF].at + s->sg->params.half_at.at[b->index];
    case BUF_IN: return s->in[b->index].at;
    case BUF_OUT: return s->out[b->index].at;
    case BUF_DY: return s->dy[b->index].at;
    case BUF_DX: return s->dx[b->index].at;
    default: return (char *)(uintptr_t)val(r->g, b->value)->data;
    }
}

/* Where each element of a value stands, counted in elements from the buffer's beginning; dimensions
 * may have several parts. */
static int64_t *interp_places(StageRun *r, const Wide *w, const Shape *s)
{
    int64_t n = shape_elements(s), *at = arena_array(r->a, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i;
        at[i] = lin_at(w->off, r->rows);
        for (int d = s->rank - 1; d >= 0; d--) {
            int64_t e = rest % s->d[d];
            rest /= s->d[d];
            for (int p = w->first[d + 1] - 1; p >= w->first[d]; p--) {
                int64_t ext = lin_at(w->ext[p], r->rows);
                at[i] += e % ext * lin_at(w->stride[p], r->rows);
                e /= ext;
            }
        }
    }
    return at;
}

static Tensor interp_read(StageRun *r, const RunStage *s, Func *f, ValueId v)
{
    const Value *x = val(r->g, v);
    Tensor t = {x->dtype, run_shape(r, v), NULL};
    size_t size = dtype_size(x->dtype);
    Wide w;
    if (!cg_wide(f, v, &w) || w.buf == NONE) {
        INSIST(cg_inline_leaf(f, cg_root(f, v)));
        return run_operand(r, v);
    }
    const char *base = interp_buffer(r, s, f, w.buf);
    int64_t n = shape_elements(&t.shape), *at = interp_places(r, &w, &t.shape);
    t.data = arena_calloc(r->a, (size_t)n + 1, size);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)t.data + (size_t)i * size, base + at[i] * (int64_t)size, size);
    return t;
}

static void interp_write(StageRun *r, const RunStage *s, Func *f, ValueId v, const Tensor *t)
{
    size_t size = dtype_size(t->dtype);
    Wide w;
    if (!cg_wide(f, v, &w) || w.buf == NONE)
        return;                                         /* nobody reads it */
    char *base = interp_buffer(r, s, f, w.buf);
    int64_t n = shape_elements(&t->shape), *at = interp_places(r, &w, &t->shape);
    for (int64_t i = 0; i < n; i++) {
        char *to = base + at[i] * (int64_t)size;
        if (f->acc.at[v] && t->dtype == DT_F32)
            *(float *)(void *)to += ((const float *)t->data)[i];
        else if (f->acc.at[v])
            *(double *)(void *)to += ((const double *)t->data)[i];
        else
            memcpy(to, (const char *)t->data + (size_t)i * size, size);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static void interp_call(StageRun *r, const RunStage *s, Func *f, const Node *n)
{
    Tensor *in = arena_array(r->a, Tensor, n->nin + 1),
           *out = arena_array(r->a, Tensor, n->nout + 1);
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NONE && cg_kernel_reads(f, n, i))
            in[i] = interp_read(r, s, f, n->in[i]);
        else if (n->in[i] != NONE)
            in[i] = run_argument(r, n, i); /* zeros, or what updates are added to as it stands */
    run_apply(r, n, in, out);
    for (uint32_t i = 0; i < n->nout; i++)
        if (cg_kernel_writes(f, n, i))
            interp_write(r, s, f, n->out[i], &out[i]);
}

static void interp_nest(StageRun *r, const RunStage *s, const Func *f, const Nest *n)
{
    void **at = arena_array(r->a, void *, n->arg.n + 1);
    for (uint32_t i = 0; i < n->arg.n; i++)
        at[i] = interp_buffer(r, s, f, n->arg.at[i].buf) +
                lin_at(n->arg.at[i].offset, r->rows) * (int64_t)dtype_size(n->arg.at[i].type);
    nest_interpret(r->a, n, r->rows, at);
}

/* One function, step by step; after each what it put into memory is compared. */
static void run_interpret(StageRun *r, RunStage *s, Func *f)
{
    uint32_t step = 0;
    for (uint32_t o = 0; o < f->order.n; o++) {
        const Group *k = &f->group.at[f->order.at[o]];
        if (!run_printed(k))
            continue;
        if (k->kind == G_NEST && !nest_makes_nothing(k->nest))
            interp_nest(r, s, f, k->nest);
        else if (k->kind == G_CALL)
            interp_call(r, s, f, &f->g->node.at[k->member.at[0].node]);
        if (cg_has_then(f, o))
            continue;                                   /* a step with the group behind it */
        if (running)
            run_check_step(r, step);
        step++;
    }
}

/* In place of run_compile. */
static void run_plan(StageRun *r)
{
    r->interpret = run_interpret;
    for (uint32_t i = 0; i < r->p->stage.n; i++) {
        RunStage *s = &r->stage[i];
        s->sg = cg_stage(r->p->graph->arena, r->p, i, false);
        for (int k = 0; k < F_COUNT; k++)
            if (s->sg->func[k])
                run_check_order(r, s->sg->func[k]);
        s->table = interp_table(r, s->sg);
    }
}

#endif

/*
 * stage_run.h - runs generated stages beside the evaluator.  In: a complete Pipe and the numbers of
 * its inputs.  Out: the first value that differs, by its node.
 *
 * Every list of every stage is evaluated (eval.c, the oracle) for a number of rows; every
 * function's C, with a call back between its steps, is compiled to a shared object and run on
 * blocks laid out as PpStage says.  Each step's results are compared where they stand, with what
 * the evaluator has for them.  Blocks are full of NaNs and stand between guards: what is read
 * before it is written, or beyond its block, shows up as a NaN; what is written beyond, in the
 * guards.  CUDA stages run under the shim: blocks go to the device before a call and come back at
 * every step.
 */
#ifndef STAGE_RUN_H
#define STAGE_RUN_H

#include "stage_blocks.h"
#include "stage_build.h"

/* ---- calling ---------------------------------------------------------------------------------- */

static uint32_t run_steps;          /* of this function so far */
/* Before each step, and at the end. */
static void run_on_step(unsigned end)
{
    if (running && run_steps > 0) {
        if (running->device)
            run_move_all(running, running->cur, false);
        run_check_step(running, run_steps - 1);
    }
    run_steps = end ? 0 : run_steps + 1;
}

/* One function of a stage: on the device with the blocks moved there and back. */
static void run_function(StageRun *r, RunStage *s, FuncKind kind, void (*fn)(const PpCtx *))
{
    if (r->interpret) {
        r->interpret(r, s, s->sg->func[kind]);
        return;
    }
    if (r->device)
        run_move_all(r, s, true);
    fn(&s->ctx);
    if (!r->device)
        return;
    run_move_all(r, s, false);
    if (r->device->error()[0])
        run_wrong(r, "stage %d: %s", s->table->index, r->device->error());
}

static void run_call(StageRun *r, RunStage *s, FuncKind kind, void (*fn)(const PpCtx *))
{
    Func *f = s->sg->func[kind];
    run_poison(&s->block[BLOCK_WORK]);
    r->cur = s;
    r->func = f;
    running = f ? r : NULL;
    run_steps = 0;
    if (f)
        run_list(r, &f->node);
    run_function(r, s, kind, fn);
    running = NULL;
    run_check_guards(r, s);
}

static void run_dense(StageRun *r, ValueId v, const char *base, const char *plus, const char *where)
{
    int64_t stride[MAX_RANK];
    Shape s = run_shape(r, v);
    run_strides(&s, stride);
    run_compare(r, v, base, stride, plus, where);
}

/* What leaves the stage stands as it crosses the cut. */
static void run_check_edge(StageRun *r, RunStage *s, ValueId v, const char *base, const char *where)
{
    const Ref at = *cg_edge(s->sg, v);
    int64_t stride[MAX_RANK];
    for (int d = 0; d < at.rank; d++)
        stride[d] = lin_at(at.stride[d], r->rows);
    run_compare(r, v, base, stride, NULL, where);
}

static void run_check_outputs(StageRun *r, RunStage *s)
{
    for (int i = 0; i < s->table->n_output; i++)
        run_check_edge(r, s, s->sg->stage->output.at[i].value, s->out[i].at, "output");
}

/* A parameter's uses in the stage, and `later`, the sum of those in stages after it (NULL: none),
   added from the last one on.  grad: the stage's block. */
static char *run_add_uses(StageRun *r, const PpParam *p, const char *grad, const char *later)
{
    int64_t n = p->t.bytes / (int64_t)dtype_size((Dtype)p->t.dtype);
    char *sum = arena_alloc(r->a, (size_t)p->t.bytes + 1);
    for (int use = p->more; use >= 0; use--) {
        const char *own =
            grad + (use ? p->more_offset + (use - 1) * align_up(p->t.bytes) : p->grad_offset);
        if (use == p->more && !later) {
            memcpy(sum, own, (size_t)p->t.bytes);
            continue;
        }
        const char *from = use == p->more ? later : sum;
        for (int64_t i = 0; i < n; i++)
            if (p->t.dtype == PP_F32)
                ((float *)(void *)sum)[i] =
                    ((const float *)(const void *)own)[i] + ((const float *)(const void *)from)[i];
            else
                ((double *)(void *)sum)[i] = ((const double *)(const void *)own)[i] +
                                             ((const double *)(const void *)from)[i];
    }
    return sum;
}

/* Gradients were `before`; the contributions were added to it. */
static void run_check_grads(StageRun *r, RunStage *s, const char *before)
{
    for (int i = 0; i < s->table->n_param; i++) {
        const ParamUse *u = &s->sg->stage->param.at[i];
        const Param *p = &r->g->param.at[u->param];
        int64_t n = shape_elements(&p->shape), at = s->table->param[i].grad_offset;
        if (at < 0)
            continue;
        ValueId v = p->value;
        Tensor keep = run_operand(r, v), sum = {p->dtype, p->shape, NULL};
        double *x = arena_array(r->a, double, n + 1);
        for (uint32_t j = 0; j < u->grads.n; j++) {
            Tensor t = run_operand(r, u->grads.at[j]);
            r->noise = fmax(r->noise, run_noise(r, u->grads.at[j], 6));
            for (int64_t k = 0; k < n; k++)
                x[k] += run_number(t.dtype, t.data, k);
        }
        Tensor wide = {DT_F64, p->shape, x};
        eval_node(r->a, OP_Cast, 1, &wide, &(Attr){.to = p->dtype}, 1, &sum);
        r->at[v] = sum;
        const PpParam *q = &s->table->param[i];
        run_dense(r, v,
                  run_add_uses(r, q, s->block[BLOCK_GRAD].at, NULL), before + at,
                  arena_printf(r->a, "gradient of parameter %s:", p->name));
        r->at[v] = keep;
        r->noise = 0;
    }
}

static void run_check_dx(StageRun *r, RunStage *s)
{
    int k = 0;
    for (int i = 0; i < s->table->n_input; i++)
        for (int j = 0; j < s->table->input[i].grads; j++, k++)
            run_check_edge(r, s, s->sg->stage->input.at[i].grads.at[(uint32_t)j], s->dx[k].at,
                           "dx");
}

static void run_reset_grad(StageRun *r, RunStage *s, const char *before)
{
    (void)r;
    memcpy(s->block[BLOCK_GRAD].at, before, (size_t)s->block[BLOCK_GRAD].bytes);
    for (int i = 0; i < s->table->n_dx; i++)
        run_poison(&s->dx[i]);
}

static char *run_copy(StageRun *r, const Block *b)
{
    char *p = arena_alloc(r->a, (size_t)b->bytes + 1);
    memcpy(p, b->at, (size_t)b->bytes);
    return p;
}

static void run_same(StageRun *r, RunStage *s, const char *x, const Block *b, const char *what,
                     int i)
{
    if (memcmp(x, b->at, (size_t)b->bytes) != 0)
        run_wrong(r, "stage %d: %s %d differs from the other way", s->table->index, what, i);
}

/* What the runtime may have given away meanwhile. */
static void run_forget(RunStage *s, int after)
{
    for (int i = 0; i < s->table->n_input; i++)
        if (s->table->input[i].stashed < after)
            run_poison(&s->in[i]);
    for (int i = 0; i < s->table->n_output; i++)
        if (s->table->output[i].stashed < after)
            run_poison(&s->out[i]);
}

/* Each part of the stash again, alone, after the others were lost as well: the same bits. */
static void run_again(StageRun *r, RunStage *s)
{
    const PpStage *t = s->table;
    Block *stash = &s->block[BLOCK_STASH];
    char *before = run_copy(r, stash), *after = run_copy(r, stash);
    int64_t at = t->bytes.stash;
    for (int k = 0; k < t->n_again; at += t->again[k++].bytes) {
        memset(stash->at + t->bytes.stash, 0xff, (size_t)(stash->bytes - t->bytes.stash));
        for (int i = 0; i < t->n_input; i++)
            if (!(t->input[i].again >> k & 1) && t->input[i].from >= 0)
                run_poison(&s->in[i]);
        run_call(r, s, (FuncKind)(F_AGAIN + k), t->again[k].make);
        memcpy(after + at, stash->at + at, (size_t)t->again[k].bytes);
        for (int i = 0; i < t->n_input; i++)
            run_put_edge(r, s, &s->in[i], s->sg->stage->input.at[i].value);
    }
    memcpy(stash->at, after, (size_t)stash->bytes);
    run_same(r, s, before, stash, "parts of the stash, as forward made them and again,", 0);
}

/* What forward has kept, which a backward may overwrite; back: for the next one. */
static void run_keep(StageRun *r, RunStage *s, char **kept, bool back)
{
    for (int i = 0; i <= s->table->n_output; i++) {
        Block *b = i < s->table->n_output ? &s->out[i] : &s->block[BLOCK_STASH];
        if (back)
            memcpy(b->at, kept[i], (size_t)b->bytes);
        else
            kept[i] = run_copy(r, b);
    }
}

static void run_backward(StageRun *r, RunStage *s)
{
    const PpStage *t = s->table;
    Block *grad = &s->block[BLOCK_GRAD];
    char *before = arena_alloc(r->a, (size_t)grad->bytes + 1),
         **dx = arena_array(r->a, char *, t->n_dx + 1),
         **kept = arena_array(r->a, char *, t->n_output + 1);
    for (int i = 0; i < t->n_param; i++) {
        const PpParam *p = &t->param[i];
        for (int64_t k = 0;
             p->grad_offset >= 0 && k < p->t.bytes / (int64_t)dtype_size((Dtype)p->t.dtype); k++)
            if (p->t.dtype == PP_F32)
                ((float *)(void *)(before + p->grad_offset))[k] = (float)(0.01 * run_uniform(r));
            else
                ((double *)(void *)(before + p->grad_offset))[k] = 0.01 * run_uniform(r);
    }
    for (int i = 0; i < t->n_dy; i++)
        run_put_edge(r, s, &s->dy[i], run_dy_value(r, &t->dy[i]));
    run_again(r, s);
    run_forget(s, 1);
    run_reset_grad(r, s, before);
    run_keep(r, s, kept, false);
    run_call(r, s, F_BACKWARD, t->call.backward);
    run_check_dx(r, s);
    run_check_grads(r, s, before);
    char *b = run_copy(r, grad);
    for (int i = 0; i < t->n_dx; i++)
        dx[i] = run_copy(r, &s->dx[i]);
    run_reset_grad(r, s, before);
    run_keep(r, s, kept, true);
    run_call(r, s, F_INPUT, t->call.backward_input);
    run_check_dx(r, s);
    for (int i = 0; i < t->n_dx; i++)
        run_same(r, s, dx[i], &s->dx[i], "dx", i);
    run_forget(s, 2);
    for (int i = 0; i < t->n_dx; i++)
        run_poison(&s->dx[i]);
    for (int i = 0; i < t->n_dy; i++)
        if (t->dy[i].stashed != 2)
            run_poison(&s->dy[i]);
    run_call(r, s, F_WEIGHT, t->call.backward_weight);
    run_check_grads(r, s, before);
    run_same(r, s, b, grad, "gradients", 0);
}

static void run_check_stats(StageRun *r, RunStage *s)
{
    for (int i = 0; i < s->table->n_param; i++)
        for (uint32_t u = 0; u < r->g->update.n; u++)
            if (r->g->update.at[u].param == s->sg->stage->param.at[i].param)
                run_dense(r, r->g->update.at[u].value,
                          s->block[BLOCK_PARAM].at + s->table->param[i].offset, NULL, "statistic");
}

/* Everything but compiling, for r->rows. at[]: inputs and parameters of full rows are set by
 * run_set. */
static void run_rows(StageRun *r)
{
    r->training = false;
    for (uint32_t i = 0; i < r->p->stage.n; i++)
        run_list(r, &r->p->stage.at[i].infer);
    for (uint32_t i = 0; i < r->p->stage.n; i++) {
        RunStage *s = &r->stage[i];
        run_allocate(r, s);
        run_put_params(r, s);
        for (int k = 0; k < s->table->n_input; k++)
            run_put_edge(r, s, &s->in[k], s->sg->stage->input.at[k].value);
        if (s->sg->func[F_INFER]) {
            run_call(r, s, F_INFER, s->table->call.infer);
            run_check_outputs(r, s);
        }
    }
    run_forget_evaluated(r);
    r->training = true;
    for (uint32_t i = 0; i < r->p->stage.n; i++)
        run_list(r, &r->p->stage.at[i].forward);
    for (uint32_t i = r->p->stage.n; i-- > 0;)
        run_list(r, &r->p->stage.at[i].backward);
    for (uint32_t i = 0; i < r->p->stage.n; i++) {
        RunStage *s = &r->stage[i];
        run_put_params(r, s);
        for (int k = 0; k < s->table->n_input; k++)
            run_put_edge(r, s, &s->in[k], s->sg->stage->input.at[k].value);
        for (int k = 0; k < s->table->n_output; k++)
            run_poison(&s->out[k]);
        run_call(r, s, F_FORWARD, s->table->call.forward);
        run_check_outputs(r, s);
        run_check_stats(r, s);
        run_put_params(r, s);
        if (s->table->has_backward)
            run_backward(r, s);
        if (s->table->call.close)
            s->table->call.close(s->state);
        s->state = NULL;
    }
    run_forget_evaluated(r);
}

/* ---- all stages in a row, on what they make themselves ------------------------------------------
 */

enum { RUN_MOST = 256 };
typedef struct {
    uint32_t params, outputs;
    /* that the device's library adds to a product, and of which it takes the ReLU */
    uint32_t biases;
    uint32_t attentions, shared; /* that are one operation; with fewer keys' heads than queries' */
    uint64_t param[RUN_MOST], output[RUN_MOST];
} RunBits; /* 0: not known */

static uint64_t run_hash(const char *p, int64_t n)
{
    return hash_bytes(HASH_START, p, (size_t)n) | 1;
}

static void run_chain_forward(StageRun *r, RunBits *bits)
{
    for (uint32_t i = 0; i < r->p->stage.n; i++) {
        RunStage *s = &r->stage[i];
        run_allocate(r, s);
        run_put_params(r, s);
        memset(s->block[BLOCK_GRAD].at, 0, (size_t)s->block[BLOCK_GRAD].bytes);
        for (int k = 0; k < s->table->n_input; k++) {
            const PpInput *in = &s->table->input[k];
            if (in->from >= 0)
                memcpy(s->in[k].at, r->stage[in->from].out[in->from_output].at,
                       (size_t)in->t.bytes);
            else
                run_put_edge(r, s, &s->in[k], s->sg->stage->input.at[k].value);
        }
        run_function(r, s, F_FORWARD, s->table->call.forward);
        for (int k = 0; k < s->table->n_output; k++)
            if (s->table->output[k].model_output >= 0 &&
                s->table->output[k].model_output < RUN_MOST)
                bits->output[s->table->output[k].model_output] =
                    run_hash(s->out[k].at, s->out[k].bytes);
        run_put_params(r, s);
    }
}

/* Forward, then B of every stage from the last to the first.  Parameters of one stage alone count.
 */
static void run_chain(StageRun *r, RunBits *bits)
{
    char *sum[RUN_MOST] = {0};
    *bits = (RunBits){.params = r->g->param.n, .outputs = r->g->output.n};
    running = NULL;
    for (uint32_t i = 0; i < r->p->stage.n; i++) {
        const Ids *list = &r->stage[i].sg->stage->forward;
        bits->biases += r->stage[i].sg->chain.n;
        for (uint32_t k = 0; k < list->n; k++) {
            const Node *n = &r->g->node.at[list->at[k]];
            if (n->op != OP_FlashAttention)
                continue;
            const Shape *q = &val(r->g, n->in[0])->shape, *keys = &val(r->g, n->in[1])->shape;
            bits->attentions++;
            bits->shared += q->rank == 4 && keys->rank == 4 && keys->d[1] < q->d[1];
        }
    }
    run_chain_forward(r, bits);
    for (uint32_t i = r->p->stage.n; i-- > 0;) {
        RunStage *s = &r->stage[i];
        const PpStage *t = s->table;
        for (int k = 0; k < t->n_dy; k++) {
            const RunStage *from = &r->stage[t->dy[k].from];
            int at = t->dy[k].index;
            for (int j = 0; j < t->dy[k].input; j++)
                at += from->table->input[j].grads;
            memcpy(s->dy[k].at, from->dx[at].at, (size_t)s->dy[k].bytes);
        }
        if (t->has_backward)
            run_function(r, s, F_BACKWARD, t->call.backward);
        for (int k = 0; k < t->n_param; k++) {
            uint32_t p = s->sg->stage->param.at[k].param;
            if (p >= RUN_MOST || t->param[k].grad_offset < 0)
                continue;
            sum[p] = run_add_uses(r, &t->param[k], s->block[BLOCK_GRAD].at, sum[p]);
            const Shape *whole = &r->g->param.at[p].shape;
            bits->param[p] =
                run_hash(sum[p], shape_elements(whole) *
                                     (int64_t)dtype_size((Dtype)t->param[k].t.dtype));
        }
        if (t->call.close)
            t->call.close(s->state);
    }
}

/* How many tensors both know; the first that differs is told. */
static uint32_t run_same_bits(StageRun *r, const RunBits *x, const RunBits *y)
{
    uint32_t known = 0;
    if (x->attentions != y->attentions)
        run_wrong(r, "%u attentions are one operation, in one stage %u", y->attentions,
                  x->attentions);
    for (uint32_t i = 0; i < x->params && i < RUN_MOST; i++) {
        known += x->param[i] && y->param[i];
        if (x->param[i] && y->param[i] && x->param[i] != y->param[i])
            run_wrong(r, "the gradient of parameter %s has other bits than in one stage",
                      r->g->param.at[i].name);
    }
    for (uint32_t i = 0; i < x->outputs && i < RUN_MOST; i++) {
        known += x->output[i] && y->output[i];
        if (x->output[i] && y->output[i] && x->output[i] != y->output[i])
            run_wrong(r, "output %u has other bits than in one stage", i);
    }
    return known;
}

#endif

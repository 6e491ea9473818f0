/*
 * stage_blocks.h - the blocks that a stage's functions work on, laid out as PpStage says, full of
 * NaNs and between guards; with a device there are as many on it, and they move there and back.
 */
#ifndef STAGE_BLOCKS_H
#define STAGE_BLOCKS_H

#include "stage_compare.h"

static Block run_block(StageRun *r, int64_t bytes)
{
    char *p = arena_alloc(r->a, (size_t)bytes + 2 * GUARD + PP_ALIGN);
    p += (PP_ALIGN - (uintptr_t)p % PP_ALIGN) % PP_ALIGN;
    memset(p, 0xff, (size_t)bytes + 2 * GUARD);
    char *device = r->device ? (char *)r->device->alloc(bytes + 2 * GUARD) + GUARD : NULL;
    return (Block){p + GUARD, bytes, device};
}

/* What a stage is given: the block's place on the device, or here. */
static char *run_place(const Block *b) { return b->device ? b->device : b->at; }

static void run_move(const StageRun *r, const Block *b, int n, bool out)
{
    for (int i = 0; i < n; i++)
        if (out)
            r->device->put(b[i].device - GUARD, b[i].at - GUARD, b[i].bytes + 2 * GUARD);
        else
            r->device->get(b[i].at - GUARD, b[i].device - GUARD, b[i].bytes + 2 * GUARD);
}

static void run_move_all(const StageRun *r, const RunStage *s, bool out)
{
    run_move(r, s->block, BLOCKS, out);
    run_move(r, s->in, s->table->n_input, out);
    run_move(r, s->out, s->table->n_output, out);
    run_move(r, s->dy, s->table->n_dy, out);
    run_move(r, s->dx, s->table->n_dx, out);
}

static void run_poison(Block *b) { memset(b->at, 0xff, (size_t)b->bytes); }

static void run_guards(StageRun *r, const RunStage *s, const Block *b, const char *what, uint32_t i)
{
    for (int k = 0; k < GUARD; k++)
        if ((uint8_t)b->at[-1 - k] != 0xff || (uint8_t)b->at[b->bytes + k] != 0xff) {
            run_wrong(r, "stage %d: written beyond %s %u", s->table->index, what, i);
            return;
        }
}

static void run_check_guards(StageRun *r, const RunStage *s)
{
    static const char *const name[BLOCKS] = {"param", "grad",  "const", "stash",
                                             "saved", "work", "half"};
    for (uint32_t i = 0; i < BLOCKS; i++)
        run_guards(r, s, &s->block[i], name[i], 0);
    for (int i = 0; i < s->table->n_input; i++)
        run_guards(r, s, &s->in[i], "in", (uint32_t)i);
    for (int i = 0; i < s->table->n_output; i++)
        run_guards(r, s, &s->out[i], "out", (uint32_t)i);
    for (int i = 0; i < s->table->n_dy; i++)
        run_guards(r, s, &s->dy[i], "dy", (uint32_t)i);
    for (int i = 0; i < s->table->n_dx; i++)
        run_guards(r, s, &s->dx[i], "dx", (uint32_t)i);
}

/* What comes into the stage stands as it crossed the cut. */
static void run_put_edge(StageRun *r, const RunStage *s, Block *b, ValueId v)
{
    const Tensor t = run_operand(r, v);
    const Ref at = *cg_edge(s->sg, v);
    const size_t size = dtype_size(t.dtype);
    for (int64_t i = 0; i < shape_elements(&t.shape); i++) {
        int64_t rest = i, to = 0;
        for (int d = t.shape.rank - 1; d >= 0; d--) {
            to += rest % t.shape.d[d] * lin_at(at.stride[d], r->rows);
            rest /= t.shape.d[d];
        }
        memcpy(b->at + (size_t)to * size, (const char *)t.data + (size_t)i * size, size);
    }
}

/* The copies that the runtime makes of parameters. */
static void run_put_halves(StageRun *r, RunStage *s)
{
    run_poison(&s->block[BLOCK_HALF]);
    for (int i = 0; i < s->table->n_param && s->table->half_type; i++) {
        const PpParam *q = &s->table->param[i];
        Tensor p = run_operand(r, r->g->param.at[s->sg->stage->param.at[i].param].value),
               copy = {.dtype = (Dtype)s->table->half_type, .shape = p.shape};
        if (q->half_offset < 0)
            continue;
        eval_node(r->a, OP_Cast, 1, &p, &(Attr){.to = copy.dtype}, 1, &copy);
        memcpy(s->block[BLOCK_HALF].at + q->half_offset, copy.data,
               (size_t)shape_elements(&copy.shape) * dtype_size(copy.dtype));
    }
}

static void run_put_params(StageRun *r, RunStage *s)
{
    run_put_halves(r, s);
    run_poison(&s->block[BLOCK_PARAM]);
    for (int i = 0; i < s->table->n_param; i++) {
        const Param *p = &r->g->param.at[s->sg->stage->param.at[i].param];
        Tensor t = run_operand(r, p->value);
        memcpy(s->block[BLOCK_PARAM].at + s->table->param[i].offset, t.data,
               (size_t)shape_elements(&t.shape) * dtype_size(t.dtype));
    }
}

static ValueId run_dy_value(const StageRun *r, const PpDy *d)
{
    return r->p->stage.at[d->from].input.at[d->input].grads.at[d->index];
}

/* All blocks of the stash, one behind the other. */
static int64_t run_stash_bytes(const PpStage *t)
{
    int64_t bytes = t->bytes.stash;
    for (int k = 0; k < t->n_again; k++)
        bytes += t->again[k].bytes;
    return bytes;
}

/* One workspace for all functions. */
static int64_t run_work_bytes(const PpStage *t)
{
    int64_t most = 0;
    for (int k = 0; k < PP_WORKS; k++)
        most = t->bytes.work[k] > most ? t->bytes.work[k] : most;
    return most;
}

static void run_allocate(StageRun *r, RunStage *s)
{
    const PpStage *t = s->table;
    const int64_t bytes[BLOCKS] = {t->bytes.param, t->bytes.grad,  t->bytes.constants,
                                   run_stash_bytes(t), t->bytes.saved, run_work_bytes(t),
                                   t->bytes.half};
    void **in = arena_array(r->a, void *, t->n_input + 1),
         **out = arena_array(r->a, void *, t->n_output + 1);
    void **dy = arena_array(r->a, void *, t->n_dy + 1),
         **dx = arena_array(r->a, void *, t->n_dx + 1);
    for (int i = 0; i < BLOCKS; i++)
        s->block[i] = run_block(r, bytes[i]);
    s->in = arena_array(r->a, Block, t->n_input + 1);
    s->out = arena_array(r->a, Block, t->n_output + 1);
    s->dy = arena_array(r->a, Block, t->n_dy + 1);
    s->dx = arena_array(r->a, Block, t->n_dx + 1);
    for (int i = 0; i < t->n_input; i++)
        in[i] = run_place((s->in[i] = run_block(r, t->input[i].t.bytes), &s->in[i]));
    for (int i = 0; i < t->n_output; i++)
        out[i] = run_place((s->out[i] = run_block(r, t->output[i].t.bytes), &s->out[i]));
    for (int i = 0; i < t->n_dy; i++)
        dy[i] = run_place((s->dy[i] = run_block(r, t->output[t->dy[i].output].t.bytes), &s->dy[i]));
    for (int i = 0, k = 0; i < t->n_input; i++)
        for (int j = 0; j < t->input[i].grads; j++, k++)
            dx[k] = run_place((s->dx[k] = run_block(r, t->input[i].t.bytes), &s->dx[k]));
    for (int i = 0; i < t->n_const; i++) {
        if (t->constants[i].data) {
            memcpy(s->block[BLOCK_CONST].at + t->constants[i].offset, t->constants[i].data,
                   (size_t)t->constants[i].t.bytes);
            continue;
        }
        uint32_t k = 0;
        for (int found = 0; found <= i; k++)
            found += !s->sg->constants.at[k].inlined;
        const Value *v = val(r->g, s->sg->constants.at[k - 1].value);
        memcpy(s->block[BLOCK_CONST].at + t->constants[i].offset, v->data,
               (size_t)shape_elements(&v->shape) * dtype_size(v->dtype));
    }
    s->state = t->call.open ? t->call.open(1) : NULL;
    s->ctx = (PpCtx){.rows = r->rows,
                     .stage = t->index,
                     .param = run_place(&s->block[BLOCK_PARAM]),
                     .grad = run_place(&s->block[BLOCK_GRAD]),
                     .constants = run_place(&s->block[BLOCK_CONST]),
                     .stash = run_place(&s->block[BLOCK_STASH]),
                     .saved = run_place(&s->block[BLOCK_SAVED]),
                     .work = run_place(&s->block[BLOCK_WORK]),
                     .half = run_place(&s->block[BLOCK_HALF]),
                     .in = in,
                     .out = out,
                     .dy = dy,
                     .dx = dx,
                     .seed = SEED,
                     .step = STEP,
                     .row0 = ROW0,
                     .stream = r->device ? r->device->stream() : NULL,
                     .blas = r->device ? r->device->blas() : NULL,
                     .state = s->state};
    int64_t at = t->bytes.stash;
    for (int k = 0; k < t->n_again; at += t->again[k++].bytes)
        s->ctx.again[k] = s->ctx.stash + at;
}

#endif

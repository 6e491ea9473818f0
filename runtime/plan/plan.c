/*
 * plan.c - in: a rank's row of the schedule; out: every buffer and message of a step, all in one arena whose size is
 * known before anything runs.
 *
 * Each tensor of each (stage, microbatch) is an Instance with a birth and a death, found by walking the row once
 * (walk.c): an input that comes over the wire is born at its RECV, an output at F, a gradient at I or B; it dies with
 * the last action that reads it, as pp.h's `stashed` says, or with the wait of its last send.  What one stage hands to another
 * on the same rank is one instance: the consumer's input is the producer's output.  slots.c gives instances their
 * offsets.  Messages, their buffers and tags are made here too (messages.c), so a step allocates nothing.
 *
 * A microbatch whose row has an R keeps nothing of its forward: what F writes dies with F (and its sends), R writes
 * outputs and stash again, elsewhere, and needs the inputs until then.
 */
#include "plan.h"

#include <inttypes.h>
#include <stdlib.h>

int64_t align_up(int64_t n) { return (n + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN; }

int64_t tensor_bytes(const PpTensor *t, int64_t rows, int64_t full_rows)
{
    return t->batch_dim < 0 ? t->bytes : t->bytes / full_rows * rows;
}

PpStatus plan_no_memory(void) { return pp_fail(PP_ERR_IO, "out of memory while planning"); }

void *plan_zeroed(int64_t n, size_t size) { return calloc((size_t)(n > 0 ? n : 1), size); }

/* ---- numbering ---- */

int plan_dx_number(const PpStage *st, int input, int index)
{
    int n = index;
    for (int i = 0; i < input; i++)
        n += st->input[i].grads;
    return n;
}

static int64_t per_microbatch(const PpStage *st)
{
    return (int64_t)st->n_input + 2 * (int64_t)st->n_output + st->n_dy + st->n_dx + 3;
}

int64_t plan_out(const Planner *p, int l, int o, int m)
{
    const PpStage *st = p->r->stage[l].st;
    return p->base[l] + m * per_microbatch(st) + st->n_input + o;
}

int64_t plan_dx(const Planner *p, int l, int k, int m)
{
    const PpStage *st = p->r->stage[l].st;
    return p->base[l] + m * per_microbatch(st) + st->n_input + st->n_output + st->n_dy + k;
}

/* -1: not an instance but data or the loss scale. */
int64_t plan_in(const Planner *p, int l, int i, int m)
{
    const PpStage *st = p->r->stage[l].st;
    const PpInput *in = &st->input[i];
    if (in->from < 0)
        return -1;
    int source = p->r->local_of[in->from];
    return source >= 0 ? plan_out(p, source, in->from_output, m) : p->base[l] + m * per_microbatch(st) + i;
}

int64_t plan_dy(const Planner *p, int l, int j, int m)
{
    const PpStage *st = p->r->stage[l].st;
    const PpDy *dy = &st->dy[j];
    int source = p->r->local_of[dy->from];
    if (source >= 0)
        return plan_dx(p, source, plan_dx_number(p->r->stage[source].st, dy->input, dy->index), m);
    return p->base[l] + m * per_microbatch(st) + st->n_input + st->n_output + j;
}

int64_t plan_stash(const Planner *p, int l, int m)
{
    const PpStage *st = p->r->stage[l].st;
    return p->base[l] + m * per_microbatch(st) + per_microbatch(st) - 3;
}

int64_t plan_saved(const Planner *p, int l, int m) { return plan_stash(p, l, m) + 1; }

int plan_recomputed(const Planner *p, int l, int m) { return p->again[(int64_t)l * p->m + m]; }

/* What the backward reads: of the forward, or of its repetition. */
int64_t plan_kept_stash(const Planner *p, int l, int m) { return plan_stash(p, l, m) + 2 * plan_recomputed(p, l, m); }

int64_t plan_kept_out(const Planner *p, int l, int o, int m)
{
    const PpStage *st = p->r->stage[l].st;
    return plan_recomputed(p, l, m) ? plan_stash(p, l, m) - st->n_output + o : plan_out(p, l, o, m);
}

static PpStatus number(Planner *p)
{
    const Rank *r = p->r;
    int64_t n = 0, wire = 0;
    p->base = plan_zeroed(r->n_stage, sizeof *p->base);
    p->wire_f = plan_zeroed(p->plan->n_stage, sizeof *p->wire_f);
    p->wire_b = plan_zeroed(p->plan->n_stage, sizeof *p->wire_b);
    p->wire_p = plan_zeroed(p->plan->n_stage, sizeof *p->wire_p);
    if (!p->base || !p->wire_f || !p->wire_b || !p->wire_p)
        return plan_no_memory();
    for (int l = 0; l < r->n_stage; l++) {
        p->base[l] = n;
        n += p->m * per_microbatch(r->stage[l].st);
    }
    for (int s = 0; s < p->plan->n_stage; s++) {
        const PpStage *st = p->plan->stage[s];
        p->wire_f[s] = wire;
        p->wire_b[s] = wire + st->n_input;
        wire += st->n_input + st->n_dx;
    }
    p->n_wire = wire * p->m;
    for (int s = 0; s < p->plan->n_stage; s++) {
        p->wire_p[s] = p->n_wire;
        p->n_wire += 3 * (int64_t)p->plan->stage[s]->n_param;
    }
    if (p->n_wire >= r->t.tag_max)
        return pp_fail(PP_ERR_MODEL,
                       "%" PRId64 " messages a step are more than the transport has names for (%" PRId64 ")", p->n_wire,
                       r->t.tag_max);
    p->n_inst = n;
    p->inst = plan_zeroed(n, sizeof *p->inst);
    if (!p->inst)
        return plan_no_memory();
    for (int64_t i = 0; i < n; i++)
        p->inst[i] = (Instance){.birth = -1, .msg = -1};
    for (int l = 0; l < r->n_stage; l++) {
        const PpStage *st = r->stage[l].st;
        for (int m = 0; m < p->m; m++) {
            Instance *at = p->inst + p->base[l] + m * per_microbatch(st);
            for (int i = 0; i < st->n_input; i++)
                at++->bytes = st->input[i].t.bytes;
            for (int o = 0; o < st->n_output; o++)
                at++->bytes = st->output[o].t.bytes;
            for (int j = 0; j < st->n_dy; j++)
                at++->bytes = st->output[st->dy[j].output].t.bytes;
            for (int i = 0; i < st->n_input; i++)
                for (int g = 0; g < st->input[i].grads; g++)
                    at++->bytes = st->input[i].t.bytes;
            for (int o = 0; o < st->n_output; o++)
                at++->bytes = st->output[o].t.bytes;
            at++->bytes = st->bytes_stash;
            at++->bytes = st->bytes_saved;
            at++->bytes = st->bytes_stash;
        }
    }
    return PP_OK;
}

/* ---- what the rank holds ---- */

static PpStatus rank_params(Rank *r, RankStage *rs)
{
    const PpStage *st = rs->st;
    rs->rp = plan_zeroed(st->n_param, sizeof *rs->rp);
    if (!rs->rp)
        return plan_no_memory();
    for (int k = 0; k < st->n_param; k++) {
        RankParam *q = &rs->rp[k];
        const PpParam *pp = &st->param[k];
        int train = r->run->opt->mode == MODE_TRAIN && pp->trainable && !pp->stat && pp->grad_offset >= 0;
        q->p = pp;
        q->update = train && pp->use != PP_TRANSMIT;
        q->counts = q->update && (pp->use == PP_OWN || pp->from == st->index);
        q->dump_grad = q->update;
        if (q->update)
            r->mem.optimizer += optim_states(r->run->opt) * align_up(pp->t.bytes);
    }
    return PP_OK;
}

static void plan_data(Rank *r)
{
    const Run *run = r->run;
    const PpPlan *plan = run->plan;
    static char wanted; /* marks what gets a place in the arena */
    for (int l = 0; l < r->n_stage; l++) {
        const PpStage *st = r->stage[l].st;
        for (int i = 0; i < st->n_input; i++) {
            if (st->input[i].from == -1)
                r->chunk[st->input[i].from_output] = &wanted;
            if (st->input[i].from == -2)
                r->uses_scale = st->input[i].t.dtype;
        }
        for (int o = 0; o < st->n_output; o++)
            if (st->output[o].model_output >= 0 && run->output_wanted[st->output[o].model_output] >= 0)
                r->collect[st->output[o].model_output] = &wanted;
    }
    if (r->uses_scale && plan->loss_kind == PP_LOSS_MEAN_TARGETS && plan->loss_target >= 0)
        r->chunk[plan->loss_target] = &wanted;
    r->collect_rows = run->opt->mode == MODE_TRAIN ? run->batch : data_rows_before(run, run->steps);
    for (int i = 0; i < plan->n_input; i++)
        if (r->chunk[i]) {
            r->chunk_stride[i] = plan->input[i].batch_dim < 0 ? 0 : align_up(plan->input[i].bytes);
            r->mem.data += plan->input[i].batch_dim < 0 ? align_up(plan->input[i].bytes) : r->chunk_stride[i] * run->m;
        }
    r->mem.data += r->uses_scale ? (int64_t)PP_ALIGN * run->m : 0;
    for (int i = 0; i < plan->n_output && !r->on_device; i++)
        if (r->collect[i])
            r->mem.output += align_up(tensor_bytes(&plan->output[i], r->collect_rows, plan->rows));
}

static PpStatus stages(Rank *r)
{
    const Run *run = r->run;
    const PpPlan *plan = run->plan;
    const SchedRow *row = &run->sched->row[r->rank];
    r->local_of = plan_zeroed(plan->n_stage, sizeof *r->local_of);
    r->stage = plan_zeroed(plan->n_stage, sizeof *r->stage);
    r->op = plan_zeroed(row->n, sizeof *r->op);
    r->chunk = plan_zeroed(plan->n_input, sizeof *r->chunk);
    r->chunk_host = plan_zeroed(plan->n_input, sizeof *r->chunk_host);
    r->chunk_stride = plan_zeroed(plan->n_input, sizeof *r->chunk_stride);
    r->collect = plan_zeroed(plan->n_output, sizeof *r->collect);
    r->loss = plan_zeroed(run->m, sizeof *r->loss);
    r->norm = plan_zeroed(plan->n_param + 1, sizeof *r->norm);
    if (run->opt->shuffle)
        r->order = plan_zeroed(run->data.rows, sizeof *r->order);
    if (!r->local_of || !r->stage || !r->op || !r->chunk || !r->chunk_host || !r->chunk_stride || !r->collect ||
        !r->loss || !r->norm || (run->opt->shuffle && !r->order))
        return plan_no_memory();
    for (int s = 0; s < plan->n_stage; s++) {
        r->local_of[s] = run->sched->rank_of[s] == r->rank ? r->n_stage : -1;
        if (r->local_of[s] >= 0)
            r->stage[r->n_stage++].st = plan->stage[s];
    }
    for (int i = 0; i < row->n; i++) {
        r->op[i].a = row->a[i];
        r->op[i].local = row->a[i].stage >= 0 ? r->local_of[row->a[i].stage] : -1;
    }
    r->n_op = row->n;
    if (aside_wanted(r))
        for (int i = 0; i < row->n; i++)
            r->op[i].together = aside_pair(row, i);
    for (int l = 0; l < r->n_stage; l++)
        TRY(rank_params(r, &r->stage[l]));
    if (run->opt->trace) {
        r->trace_steps = run->steps < 20 ? (int)run->steps : 20;
        r->span = plan_zeroed((int64_t)r->trace_steps * (r->n_op + AROUND) * 3, sizeof *r->span);
        if (!r->span)
            return plan_no_memory();
    }
    return PP_OK;
}

static PpStatus build(Planner *p)
{
    Rank *r = p->r;
    TRY(stages(r));
    plan_data(r);
    p->again = plan_zeroed((int64_t)r->n_stage * p->m, 1);
    if (!p->again)
        return plan_no_memory();
    for (int k = 0; k < r->n_op; k++)
        if (r->op[k].a.type == SA_R)
            p->again[(int64_t)r->op[k].local * p->m + r->op[k].a.microbatch] = 1;
    TRY(number(p));
    TRY(plan_contributions(p));
    TRY(plan_walk(p));
    plan_sizes(p);
    MemoryPlan *m = &r->mem;
    TRY(slots_place(p->inst, p->n_inst, r->n_op, &m->slots, &m->slots_bound));
    m->total = m->param + m->grad + m->optimizer + m->konst + m->slots + m->work + m->data + m->output + m->comm;
    m->live = sched_live_rank(r->run->sched, r->rank);
    m->live_bound = sched_peak_formula(r->run->sched->name, r->run->ranks, p->plan->n_stage, p->m, r->rank);
    r->arena = m->total ? r->dev.op->alloc(&r->dev, m->total) : NULL;
    if (m->total && !r->arena)
        return pp_fail(PP_ERR_IO, "rank %d: no memory for %" PRId64 " bytes of tensors%s%s", r->rank, m->total,
                       r->on_device ? " on the device: " : "", r->dev.op->error());
    return PP_OK;
}

/* A device's slots and work are written before they are read, unless --until sends what was never computed. */
static void clear(Rank *r, char *slots)
{
    if (r->on_device && !r->run->until) {
        r->dev.op->zero(&r->dev, r->at, r->arena, slots - r->arena);
        r->dev.op->zero(&r->dev, r->at, r->stat_copy, r->arena + r->mem.total - r->stat_copy);
    } else {
        r->dev.op->zero(&r->dev, r->at, r->arena, r->mem.total);
    }
}

static PpStatus list_params(Rank *r)
{
    int n = optim_count(r);
    r->params = plan_zeroed(n, sizeof *r->params);
    if (!r->params)
        return plan_no_memory();
    optim_list(r, r->params);
    if (!r->dev.op->params(&r->dev, r->params, n))
        return pp_fail(PP_ERR_IO, "rank %d: no memory for the optimizer: %s", r->rank, r->dev.op->error());
    return PP_OK;
}

PpStatus plan_rank(Rank *r)
{
    Planner p = {.r = r, .plan = r->run->plan, .m = r->run->m};
    PpStatus s = build(&p);
    if (s == PP_OK && r->arena) {
        char *at = r->arena, *slots;
        plan_carve_params(r, &at);
        slots = plan_carve(&at, r->mem.slots);
        plan_carve_rest(&p, &at, slots);
        clear(r, slots);
        s = plan_point(&p, slots);
    }
    if (s == PP_OK)
        s = list_params(r);
    free(p.again), free(p.inst), free(p.base), free(p.wire_f), free(p.wire_b), free(p.wire_p), free(p.sent),
        free(p.fix);
    free(p.last_send[0]), free(p.last_send[1]), free(p.next_send), free(p.held);
    return s;
}

void plan_free(Rank *r)
{
    for (int l = 0; l < r->n_stage; l++) {
        RankStage *rs = &r->stage[l];
        if (rs->state && rs->st->close)
            rs->st->close(rs->state);
        free(rs->rp), free(rs->in), free(rs->out), free(rs->dy), free(rs->dx), free(rs->stash), free(rs->saved);
        free(rs->out_again), free(rs->stash_again);
    }
    if (r->arena)
        r->dev.op->release(&r->dev, r->arena);
    free(r->stage), free(r->local_of), free(r->op), free(r->msg), free(r->await), free(r->contrib), free(r->params);
    free(r->chunk), free(r->chunk_host), free(r->chunk_stride), free(r->order), free(r->collect), free(r->loss),
        free(r->norm), free(r->span);
}

/*
 * instances.c - numbers for every tensor of each (stage, microbatch) of a rank, and for every
 * message on the wire.  What one stage hands to another on the same rank is one instance: the
 * consumer's input is the producer's output.
 *
 * Of a stage and a microbatch, in this order: inputs, outputs, dy, dx, outputs once more (of a
 * recomputed forward), stash, saved, stash once more (recomputed, or back from the store), parts of
 * the stash, these once more.
 */
#include "planner.h"

#include <inttypes.h>

int plan_dx_number(const PpStage *st, int input, int index)
{
    int n = index;
    for (int i = 0; i < input; i++)
        n += st->input[i].grads;
    return n;
}

static int64_t before_stash(const PpStage *st)
{
    return (int64_t)st->n_input + 2 * (int64_t)st->n_output + st->n_dy + st->n_dx;
}

static int64_t per_microbatch(const PpStage *st)
{
    return before_stash(st) + 3 + 2 * (int64_t)st->n_again;
}

int64_t plan_out(const Planner *p, int l, int o, int m)
{
    const PpStage *st = p->plan->stage[l].st;
    return p->base[l] + m * per_microbatch(st) + st->n_input + o;
}

int64_t plan_dx(const Planner *p, int l, int k, int m)
{
    const PpStage *st = p->plan->stage[l].st;
    return p->base[l] + m * per_microbatch(st) + st->n_input + st->n_output + st->n_dy + k;
}

int64_t plan_in(const Planner *p, int l, int i, int m)
{
    const PpStage *st = p->plan->stage[l].st;
    const PpInput *in = &st->input[i];
    if (in->from < 0)
        return -1;
    int source = p->plan->local_of[in->from];
    return source >= 0 ? plan_out(p, source, in->from_output, m)
                       : p->base[l] + m * per_microbatch(st) + i;
}

int64_t plan_dy(const Planner *p, int l, int j, int m)
{
    const PpStage *st = p->plan->stage[l].st;
    const PpDy *dy = &st->dy[j];
    int source = p->plan->local_of[dy->from];
    if (source >= 0)
        return plan_dx(p, source, plan_dx_number(p->plan->stage[source].st, dy->input, dy->index),
                       m);
    return p->base[l] + m * per_microbatch(st) + st->n_input + st->n_output + j;
}

int64_t plan_stash(const Planner *p, int l, int m)
{
    const PpStage *st = p->plan->stage[l].st;
    return p->base[l] + m * per_microbatch(st) + before_stash(st);
}

int64_t plan_saved(const Planner *p, int l, int m) { return plan_stash(p, l, m) + 1; }

int64_t plan_part(const Planner *p, int l, int k, int m) { return plan_stash(p, l, m) + 3 + k; }

int32_t plan_again(const Planner *p, int l, int m) { return p->again[(int64_t)l * p->m + m]; }

int plan_moved(const Planner *p, int l, int m) { return p->store.moved[(int64_t)l * p->m + m]; }

int64_t plan_kept_stash(const Planner *p, int l, int m)
{
    return plan_stash(p, l, m) +
           (plan_again(p, l, m) == SCHED_WHOLE || plan_moved(p, l, m) ? 2 : 0);
}

int64_t plan_kept_part(const Planner *p, int l, int k, int m)
{
    uint32_t again = (uint32_t)plan_again(p, l, m) >> k & 1; /* of SCHED_WHOLE: every bit */
    return plan_part(p, l, k, m) +
           (again || plan_moved(p, l, m) ? p->plan->stage[l].st->n_again : 0);
}

int64_t plan_kept_out(const Planner *p, int l, int o, int m)
{
    const PpStage *st = p->plan->stage[l].st;
    return plan_again(p, l, m) == SCHED_WHOLE ? plan_stash(p, l, m) - st->n_output + o
                                              : plan_out(p, l, o, m);
}

/* Names of messages: each input and dx of each stage has one per microbatch, each parameter two,
 * its value and the sum that is sent back, and one for each use. */
static PpStatus number_wires(Planner *p)
{
    int64_t wire = 0;
    int n = p->model->n_stage;
    TRY(pp_take(&p->pool, &p->wire.f, n, sizeof *p->wire.f));
    TRY(pp_take(&p->pool, &p->wire.b, n, sizeof *p->wire.b));
    TRY(pp_take(&p->pool, &p->wire.p, n, sizeof *p->wire.p));
    for (int s = 0; s < n; s++) {
        const PpStage *st = p->model->stage[s];
        p->wire.f[s] = wire;
        p->wire.b[s] = wire + st->n_input;
        wire += st->n_input + st->n_dx;
    }
    p->wire.n = wire * p->m;
    for (int s = 0; s < n; s++) {
        p->wire.p[s] = p->wire.n;
        for (int k = 0; k < p->model->stage[s]->n_param; k++)
            p->wire.n += 3 + p->model->stage[s]->param[k].more;
    }
    if (p->wire.n >= p->plan->ask.tags)
        return pp_fail(PP_ERR_MODEL,
                       "%" PRId64
                       " messages a step are more than the transport has names for (%" PRId64 ")",
                       p->wire.n, p->plan->ask.tags);
    return PP_OK;
}

/* Bytes of one microbatch's instances, in the order of their numbers.  What is computed once for
 * all of them has no outputs of one. */
static void set_bytes(const Plan *plan, const PpStage *st, Packed *at)
{
    for (int i = 0; i < st->n_input; i++)
        at++->bytes = st->input[i].t.bytes;
    for (int o = 0; o < st->n_output; o++)
        at++->bytes = st->minibatch || plan_skips(plan, st, o) ? 0 : st->output[o].t.bytes;
    for (int j = 0; j < st->n_dy; j++)
        at++->bytes = st->output[st->dy[j].output].t.bytes;
    for (int i = 0; i < st->n_input; i++)
        for (int g = 0; g < st->input[i].grads; g++)
            at++->bytes = st->input[i].t.bytes;
    for (int o = 0; o < st->n_output; o++)
        at++->bytes = st->minibatch || plan_skips(plan, st, o) ? 0 : st->output[o].t.bytes;
    at++->bytes = st->bytes.stash;
    at++->bytes = st->bytes.saved;
    at++->bytes = st->bytes.stash;
    for (int k = 0; k < 2 * st->n_again; k++)
        at++->bytes = st->again[k % st->n_again].bytes;
}

PpStatus instances_number(Planner *p)
{
    const Plan *plan = p->plan;
    int64_t n = 0;
    TRY(pp_take(&p->pool, &p->base, plan->n_stage, sizeof *p->base));
    for (int l = 0; l < plan->n_stage; l++) {
        p->base[l] = n;
        n += p->m * per_microbatch(plan->stage[l].st) + (plan->stage[l].st->minibatch != NULL);
    }
    TRY(number_wires(p));
    p->n_inst = n;
    TRY(pp_take(&p->pool, &p->inst, n + plan->n_op, sizeof *p->inst));
    TRY(pp_take(&p->pool, &p->brought, n, sizeof *p->brought));
    for (int64_t i = 0; i < n + plan->n_op; i++)
        p->inst[i] = (Packed){.first = -1};
    for (int64_t i = 0; i < n; i++)
        p->brought[i] = -1;
    for (int l = 0; l < plan->n_stage; l++)
        for (int m = 0; m < p->m; m++)
            set_bytes(plan, plan->stage[l].st,
                      p->inst + p->base[l] + m * per_microbatch(plan->stage[l].st));
    return PP_OK;
}

int64_t plan_whole(const Planner *p, int l)
{
    const PpStage *st = p->plan->stage[l].st;
    return st->minibatch ? p->base[l] + p->m * per_microbatch(st) : -1;
}

void plan_touch(Planner *p, int64_t id)
{
    if (id < 0)
        return;
    Packed *i = &p->inst[id];
    if (i->first < 0)
        i->first = p->begin;
    if (i->last < p->end)
        i->last = p->end;
}

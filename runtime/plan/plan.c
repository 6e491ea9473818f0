/*
 * plan.c - in: a rank's row of the schedule; out: every buffer and message of a step, all in one
 * arena whose size is known before anything runs.
 *
 * Each tensor of each (stage, microbatch) is an instance with a lifetime, found by walking the row
 * once (walk.c): an input that comes over the wire begins at its RECV, an output at F, a gradient
 * at I or B; it ends with the last action that reads it, as pp.h's `stashed` says, or with the wait
 * of its last send.  slots.c gives instances their offsets.  Messages, their names and
 * buffers are made too (messages.c, contributions.c), so a step allocates nothing.
 *
 * A microbatch whose row has an R of the whole forward keeps nothing of it: what F writes dies with
 * F (and its sends), R writes outputs and stash again, elsewhere, and needs the inputs until then.
 * Of an R of parts this holds for these parts alone.  One whose row has an OFFLOAD has its stash in
 * the arena up to WAIT_OFFLOAD, then in the store, and elsewhere in the arena from FETCH on
 * (stored.c).
 */
#include "planner.h"


/* ---- what the rank holds ---- */

static PpStatus rank_params(Plan *plan, StagePlan *rs)
{
    const PpStage *st = rs->st;
    TRY(pp_take(&plan->pool, &rs->rp, st->n_param, sizeof *rs->rp));
    for (int k = 0; k < st->n_param; k++) {
        RankParam *q = &rs->rp[k];
        const PpParam *pp = &st->param[k];
        int trains = (plan->ask.train || plan->ask.zero == 3) && pp->trainable && !pp->stat &&
                     pp->grad_offset >= 0;
        q->p = pp;
        q->update = trains && pp->use != PP_TRANSMIT;
        q->counts = q->update && (pp->use == PP_OWN || pp->from == st->index);
        q->norm = q->counts ? norm_of(plan, pp, plan->ask.member) : -1;
    }
    return PP_OK;
}

/* Inputs that a stage here reads, the loss scale, outputs that are wanted. */
static void find_data(Plan *plan)
{
    const PpPlan *model = plan->model;
    for (int l = 0; l < plan->n_stage; l++) {
        const PpStage *st = plan->stage[l].st;
        for (int i = 0; i < st->n_input; i++) {
            if (st->input[i].from == -1)
                plan->data.has_input[st->input[i].from_output] = 1;
            if (st->input[i].from == -2)
                plan->data.scale_type = st->input[i].t.dtype;
        }
        for (int o = 0; o < st->n_output; o++)
            if (st->output[o].model_output >= 0 &&
                plan->ask.output.wanted[st->output[o].model_output] >= 0)
                plan->data.has_output[st->output[o].model_output] = 1;
    }
    if (plan->data.scale_type && model->loss.kind == PP_LOSS_MEAN_TARGETS &&
        model->loss.target >= 0)
        plan->data.has_input[model->loss.target] = 1; /* its elements that count are counted */
}

static void size_data(Plan *plan)
{
    const PpPlan *model = plan->model;
    int m = plan->ask.microbatches;
    for (int i = 0; i < model->n_input; i++)
        if (plan->data.has_input[i]) {
            int64_t one = align_up(model->input[i].bytes);
            plan->data.stride[i] = model->input[i].batch_dim < 0 ? 0 : one;
            plan->bytes.data += model->input[i].batch_dim < 0 ? one : one * m;
        }
    plan->bytes.data += plan->data.scale_type ? (int64_t)PP_ALIGN * m : 0;
    plan->bytes.data += plan->ask.on_device ? 0 : totals_bytes(model, plan->data.has_input);
    for (int i = 0; i < model->n_output && !plan->ask.on_device; i++)
        if (plan->data.has_output[i])
            plan->bytes.output += align_up(tensor_bytes(
                model, &model->output[i], plan->ask.output.rows, plan->ask.output.length));
}

static PpStatus make_tables(Plan *plan, const SchedRow *row)
{
    const PpPlan *model = plan->model;
    Pool *pool = &plan->pool;
    TRY(pp_take(pool, &plan->local_of, model->n_stage, sizeof *plan->local_of));
    TRY(pp_take(pool, &plan->stage, model->n_stage, sizeof *plan->stage));
    TRY(pp_take(pool, &plan->op, row->n, sizeof *plan->op));
    TRY(pp_take(pool, &plan->live, row->n + 1, sizeof *plan->live));
    TRY(pp_take(pool, &plan->data.input, model->n_input, sizeof *plan->data.input));
    TRY(pp_take(pool, &plan->data.has_input, model->n_input, 1));
    TRY(pp_take(pool, &plan->data.stride, model->n_input, sizeof *plan->data.stride));
    TRY(pp_take(pool, &plan->data.output, model->n_output, sizeof *plan->data.output));
    return pp_take(pool, &plan->data.has_output, model->n_output, 1);
}

static PpStatus stages(Plan *plan)
{
    const PlanRequest *ask = &plan->ask;
    const SchedRow *row = &ask->schedule->row[ask->rank];
    TRY(make_tables(plan, row));
    for (int s = 0; s < plan->model->n_stage; s++) {
        plan->local_of[s] = ask->schedule->rank_of[s] == ask->rank ? plan->n_stage : -1;
        if (plan->local_of[s] >= 0)
            plan->stage[plan->n_stage++].st = plan->model->stage[s];
    }
    for (int i = 0; i < row->n; i++) {
        plan->op[i].a = row->a[i];
        plan->op[i].local = row->a[i].stage >= 0 ? plan->local_of[row->a[i].stage] : -1;
        plan->op[i].together = ask->overlap && plan_pair(row, i);
    }
    plan->n_op = row->n;
    for (int l = 0; l < plan->n_stage; l++)
        TRY(rank_params(plan, &plan->stage[l]));
    return PP_OK;
}

/* ---- the steps of planning ---- */

int32_t plan_parts(const PpStage *st, int32_t parts)
{
    return !st->has_backward || st->minibatch ? 0
           : parts < 0                        ? parts
                                              : parts & ((1 << st->n_again) - 1);
}

static PpStatus find_recomputed(Planner *p)
{
    const Plan *plan = p->plan;
    TRY(pp_take(&p->pool, &p->again, (int64_t)plan->n_stage * p->m, sizeof *p->again));
    for (int k = 0; k < plan->n_op; k++) {
        const SchedAction *a = &plan->op[k].a;
        int l = plan->op[k].local;
        if (a->type == SA_R)
            p->again[(int64_t)l * p->m + a->microbatch] = plan_parts(plan->stage[l].st, a->peer);
    }
    return PP_OK;
}

static double operations(const Op *op, const PpStage *st)
{
    double again = 0;
    switch (op->a.type) {
    case SA_F: return (double)st->flops.forward;
    case SA_I: return (double)st->flops.input;
    case SA_W: return (double)st->flops.weight;
    case SA_B: return (double)st->flops.input + (double)st->flops.weight;
    case SA_R:
        for (int k = 0; k < st->n_again; k++)
            again += (uint32_t)op->again >> k & 1 ? (double)st->again[k].flops : 0;
        return op->again == SCHED_WHOLE ? (double)st->flops.forward : again;
    default: return 0;
    }
}

static void count_operations(Plan *plan)
{
    for (int k = 0; k < plan->n_op; k++) {
        const Op *op = &plan->op[k];
        const PpStage *st = op->local >= 0 ? plan->stage[op->local].st : NULL;
        double n = st ? operations(op, st) / (st->minibatch ? plan->ask.microbatches : 1) : 0;
        plan->work.operations += n;
        plan->work.recomputed += op->a.type == SA_R ? n : 0;
    }
}

PpStatus plan_build(Plan *plan, const PlanRequest *ask)
{
    TRY(pp_take(&plan->pool, &plan->planner, 1, sizeof(Planner)));
    Planner *p = plan->planner;
    plan->ask = *ask;
    plan->model = ask->model;
    *p = (Planner){.plan = plan, .model = ask->model, .m = ask->microbatches};
    TRY(norms_plan(plan));
    TRY(stages(plan));
    find_data(plan);
    size_data(plan);
    TRY(find_recomputed(p));
    TRY(stored_find(p));
    TRY(instances_number(p));
    TRY(plan_contributions(p));
    TRY(sharded_begin(plan));
    TRY(buckets_plan(p));
    TRY(replicas_plan(p));
    TRY(plan_walk(p));
    TRY(unshard_updated(p));
    TRY(replicas_check(p));
    TRY(members_plan(p));
    count_operations(plan);
    TRY(stored_place(p));
    plan_sizes(p);
    TRY(sharded_sizes(p));
    TRY(block_place(p));
    PlanBytes *b = &plan->bytes;
    b->work += p->stats;
    b->total =
        b->constants + b->slots + b->work + b->data + b->output + b->comm + window_bytes(plan);
    b->total += ask->away ? 0 : b->param + b->half + b->grad + b->optimizer;
    b->library = plan_library_bytes(plan);
    for (int k = 0; k <= plan->n_op; k++)
        plan->live[k] += b->total - b->block - window_bytes(plan);
    return PP_OK;
}

static void planner_free(Plan *plan)
{
    if (plan->planner)
        pool_free(&plan->planner->pool);
    plan->planner = NULL;
}

PpStatus plan_place(Plan *plan, char *arena, char *elsewhere)
{
    plan->at.arena = arena;
    PpStatus s = PP_OK;
    if (arena) {
        plan_carve(plan->planner, arena, elsewhere);
        s = plan_point(plan->planner);
    }
    planner_free(plan);
    return s;
}

void plan_free(Plan *plan)
{
    planner_free(plan);
    pool_free(&plan->pool);
}

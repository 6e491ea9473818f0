/*
 * place.c - the arena of a rank: how many bytes of what, then the pointers that stages, messages
 * and the optimizer use. In: instances with offsets (slots.c), parameters, contributions.  Nothing
 * here fails but for memory of the tables.
 */
#include "planner.h"

void plan_sizes(Planner *p)
{
    Plan *plan = p->plan;
    PlanBytes *b = &plan->bytes;
    for (int l = 0; l < plan->n_stage; l++) {
        const PpStage *st = plan->stage[l].st;
        int whole = plan->ask.zero < 3;
        b->param += plan->ask.lender ? 0 : whole ? align_up(st->bytes.param) : plan->stage[l].home;
        b->half += plan->ask.lender || !whole ? 0 : align_up(st->bytes.half);
        b->constants += plan->ask.lender ? 0 : align_up(st->bytes.constants);
        b->grad += plan->ask.train && !plan->grads_go ? align_up(st->bytes.grad) : 0;
    }
    for (int k = 0; k < plan->n_op; k++) {
        const Op *op = &plan->op[k];
        int aside = (op->a.type == SA_R && op->again == SCHED_WHOLE) ||
                    (op->a.type == SA_F && plan->ask.rounds > 1);
        if (aside && stats_bytes(plan->stage[op->local].st) > p->stats)
            p->stats = stats_bytes(plan->stage[op->local].st);
    }
}

/* ---- the arena from its beginning to its end ---- */

static char *carve(char **at, int64_t bytes)
{
    char *p = *at;
    *at += align_up(bytes);
    return p;
}

/* Parameters with their half copies, gradients and states: in the arena or elsewhere. */
static void carve_params(Plan *plan, char **at)
{
    int grads = plan->ask.train && !plan->grads_go, whole = plan->ask.zero < 3;
    for (int l = 0; l < plan->n_stage; l++) {
        StagePlan *rs = &plan->stage[l];
        rs->param = carve(at, kept_bytes(plan, rs));
        rs->half = whole && rs->st->bytes.half ? rs->param + align_up(rs->st->bytes.param) : NULL;
        rs->grad = grads ? carve(at, rs->st->bytes.grad) : NULL;
    }
    for (Piece *q = plan->pieces.at; q < plan->pieces.at + plan->pieces.n; q++)
        for (int j = 0; j < plan->ask.states && plan->stage[q->local].rp[q->param].update; j++)
            q->state[j] = carve(at, q->bytes);
}

static void borrow_params(Plan *plan)
{
    for (int l = 0; l < plan->n_stage; l++) {
        const StagePlan *from = &plan->ask.lender->stage[l];
        StagePlan *rs = &plan->stage[l];
        rs->param = from->param;
        rs->half = from->half;
        rs->constants = from->constants;
    }
}

/* Within the blocks of their stages. */
static void point_params(Plan *plan, char **at)
{
    for (int l = 0; l < plan->n_stage; l++) {
        StagePlan *rs = &plan->stage[l];
        if (!plan->ask.lender)
            rs->constants = carve(at, rs->st->bytes.constants);
        if (plan->grads_go)
            rs->grad = plan->at.window + rs->grad_at;
        for (int k = 0; k < rs->st->n_param; k++) {
            RankParam *q = &rs->rp[k];
            q->value = plan->ask.zero < 3 ? rs->param + q->p->offset
                       : q->home >= 0     ? rs->param + q->home
                                          : NULL;
            q->half = rs->half && q->p->half_offset >= 0 ? rs->half + q->p->half_offset : NULL;
            q->grad = rs->grad && q->p->grad_offset >= 0 ? rs->grad + q->p->grad_offset : NULL;
        }
    }
}

static void point_pieces(Plan *plan)
{
    for (Piece *piece = plan->pieces.at; piece < plan->pieces.at + plan->pieces.n; piece++) {
        const StagePlan *rs = &plan->stage[piece->local];
        const RankParam *q = &rs->rp[piece->param];
        piece->value = q->value ? q->value + piece->first : rs->param + piece->home;
        if (plan->ask.train && q->update)
            piece->grad = plan->grads_go ? plan->at.sums + piece->kept : q->grad + piece->first;
    }
}

static void carve_data(Plan *plan, char **at)
{
    const PpPlan *model = plan->model;
    int m = plan->ask.microbatches;
    for (int i = 0; i < model->n_input; i++)
        if (plan->data.has_input[i])
            plan->data.input[i] =
                carve(at, plan->data.stride[i] ? plan->data.stride[i] * m : model->input[i].bytes);
    if (plan->data.scale_type)
        plan->at.scale = carve(at, (int64_t)PP_ALIGN * m);
    if (!plan->ask.on_device && totals_bytes(model, plan->data.has_input))
        plan->at.totals = carve(at, totals_bytes(model, plan->data.has_input));
    for (int i = 0; i < model->n_output && !plan->ask.on_device; i++)
        if (plan->data.has_output[i])
            plan->data.output[i] =
                carve(at, tensor_bytes(model, &model->output[i], plan->ask.output.rows,
                                       plan->ask.output.length));
}

/* Where the stage adds up one use's gradient. */
static char *use_sum(const StagePlan *rs, int param, int use)
{
    const PpParam *q = &rs->st->param[param];
    return use ? rs->grad + q->more_offset + (use - 1) * align_up(q->t.bytes) : rs->rp[param].grad;
}

/* Contributions from elsewhere. */
static void carve_contributions(const Planner *p, char **at)
{
    for (Contribution *c = p->contrib; c < p->contrib + p->n_contrib; c++)
        if (c->user < 0)
            c->buf = carve(at, p->model->stage[c->user_stage]->param[c->user_param].t.bytes);
}

/* ---- buffers of messages, operands of additions and copies ---- */

static char *spot_place(const Planner *p, const Spot *s)
{
    const Plan *plan = p->plan;
    const Contribution *c = s->kind == SPOT_CONTRIBUTION ? &p->contrib[s->contribution] : NULL;
    const StagePlan *rs = &plan->stage[s->local];
    switch (s->kind) {
    case SPOT_NONE: break;
    case SPOT_INSTANCE: return plan->at.slots + p->inst[s->offset].offset;
    case SPOT_VALUE: return rs->rp[s->param].value;
    case SPOT_USE: return use_sum(rs, s->param, s->use);
    case SPOT_CONTRIBUTION:
        return c->user < 0 ? c->buf : use_sum(&plan->stage[c->user], c->user_param, c->use);
    case SPOT_PARAMETERS: return rs->param + s->offset;
    case SPOT_GRADIENT: return rs->grad + s->offset;
    case SPOT_WINDOW: return plan->at.window + plan->op[s->op].window + s->offset;
    case SPOT_REDUCTION: return plan->at.reduction + s->offset;
    case SPOT_SUM: return plan->at.sums + s->offset;
    }
    return NULL;
}

static void point_spots(const Planner *p)
{
    const Plan *plan = p->plan;
    for (Message *m = plan->msg; m < plan->msg + plan->n_msg; m++)
        m->buf = spot_place(p, &m->at);
    for (Transfer *t = plan->transfer; t < plan->transfer + plan->n_transfer; t++) {
        t->to = spot_place(p, &t->to_spot);
        t->from = spot_place(p, &t->from_spot);
    }
}

void plan_carve(Planner *p, char *arena, char *elsewhere)
{
    Plan *plan = p->plan;
    char *at = arena;
    if (elsewhere)
        carve_params(plan, &elsewhere);
    else if (plan->ask.lender)
        borrow_params(plan);
    else
        carve_params(plan, &at);
    plan->at.window = window_bytes(plan) || !plan->ask.lender ? carve(&at, plan->bytes.window)
                                                              : plan->ask.lender->at.window;
    point_params(plan, &at);
    plan->at.slots = carve(&at, plan->bytes.block);
    plan->at.statistics = carve(&at, p->stats);
    carve_data(plan, &at);
    carve_contributions(p, &at);
    plan->at.reduction = carve(&at, p->bytes_reduction);
    plan->at.sums = carve(&at, p->bytes_sums);
    point_pieces(plan);
    point_spots(p);
}

/* ---- what stages are handed ---- */

static PpStatus make_pointers(Pool *pool, StagePlan *rs, int64_t m)
{
    const PpStage *st = rs->st;
    TRY(pp_take(pool, &rs->in, m * st->n_input, sizeof(void *)));
    TRY(pp_take(pool, &rs->out, m * st->n_output, sizeof(void *)));
    TRY(pp_take(pool, &rs->dy, m * st->n_dy, sizeof(void *)));
    TRY(pp_take(pool, &rs->dx, m * st->n_dx, sizeof(void *)));
    TRY(pp_take(pool, &rs->out_kept, m * st->n_output, sizeof(void *)));
    TRY(pp_take(pool, &rs->stash, m, sizeof(char *)));
    TRY(pp_take(pool, &rs->stash_kept, m, sizeof(char *)));
    TRY(pp_take(pool, &rs->part, m * st->n_again, sizeof(char *)));
    TRY(pp_take(pool, &rs->part_kept, m * st->n_again, sizeof(char *)));
    TRY(pp_take(pool, &rs->saved, m, sizeof(char *)));
    return pp_take(pool, &rs->stored, m, sizeof *rs->stored);
}

static char *input_place(const Planner *p, int l, int i, int m)
{
    const Plan *plan = p->plan;
    const PpInput *in = &plan->stage[l].st->input[i];
    if (in->from == -1)
        return plan->data.input[in->from_output] + m * plan->data.stride[in->from_output];
    return in->from == -2 ? plan->at.scale + (int64_t)m * PP_ALIGN
                          : plan->at.slots + p->inst[plan_in(p, l, i, m)].offset;
}

static void point_microbatch(const Planner *p, int l, int m)
{
    char *slots = p->plan->at.slots;
    StagePlan *rs = &p->plan->stage[l];
    const PpStage *st = rs->st;
    for (int i = 0; i < st->n_input; i++)
        rs->in[m * st->n_input + i] = input_place(p, l, i, m);
    for (int o = 0; o < st->n_output; o++) {
        if (plan_skips(p->plan, st, o))
            continue;
        rs->out[m * st->n_output + o] = slots + p->inst[plan_out(p, l, o, m)].offset;
        rs->out_kept[m * st->n_output + o] = slots + p->inst[plan_kept_out(p, l, o, m)].offset;
    }
    for (int j = 0; j < st->n_dy; j++)
        rs->dy[m * st->n_dy + j] = slots + p->inst[plan_dy(p, l, j, m)].offset;
    for (int j = 0; j < st->n_dx; j++)
        rs->dx[m * st->n_dx + j] = slots + p->inst[plan_dx(p, l, j, m)].offset;
    rs->stash[m] = slots + p->inst[plan_stash(p, l, m)].offset;
    rs->stash_kept[m] = slots + p->inst[plan_kept_stash(p, l, m)].offset;
    for (int k = 0; k < st->n_again; k++) {
        rs->part[m * st->n_again + k] = slots + p->inst[plan_part(p, l, k, m)].offset;
        rs->part_kept[m * st->n_again + k] = slots + p->inst[plan_kept_part(p, l, k, m)].offset;
    }
    rs->saved[m] = slots + p->inst[plan_saved(p, l, m)].offset;
    rs->stored[m] = p->store.away[(int64_t)l * p->m + m].offset;
}

PpStatus plan_point(Planner *p)
{
    Plan *plan = p->plan;
    for (int l = 0; l < plan->n_stage; l++) {
        TRY(make_pointers(&plan->pool, &plan->stage[l], p->m));
        for (int m = 0; m < p->m; m++)
            point_microbatch(p, l, m);
        TRY(gathered_point(p, l));
    }
    members_point(plan);
    return PP_OK;
}

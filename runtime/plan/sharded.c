/*
 * sharded.c - what of a stage's parameters and gradients is here for a while.  In: the row.  Out:
 * where each block lies in the window and in a file, what comes and goes with each action, the most
 * that is in memory at once.
 *
 * --zero 3: the window has a stage's parameters from its UNSHARD to its RESHARD; 2: and its
 * gradients from the first backward until they are summed, or to the row's end, where other stages
 * have to do with them.
 *
 * --offload params: parameters, gradients and optimizer state live in a mapped file, or in host
 * memory beside a device, and those of a stage are in memory, or in the device's window, between
 * its UNSHARD and its RESHARD; with --zero 3 its shares, of which the window has all.
 *
 * Parameters come with every UNSHARD.  Gradients come where a backward follows, but for the first
 * one of the step, which begins with zeros, and go with the RESHARD behind it; running statistics
 * go too.  Sums over replicas and stages run while the stage's gradients are there; those of shared
 * parameters come at the end of the row, and what they touch then stays up to there.  After the row
 * the optimizer walks over the parameters, or its shares of them, one in memory and the next one on
 * its way; a device reads and writes them where they are.  Shares then go to the other replicas,
 * stage by stage.
 */
#include "planner.h"

#include <string.h>

static int64_t round_up(const Plan *plan, int64_t bytes)
{
    int64_t page = plan->ask.page;
    return (bytes + page - 1) / page * page;
}

static int is_backward(int type) { return type == SA_B || type == SA_I || type == SA_W; }

/* ---- what comes and goes with the actions ---- */

static int backward_before(const Plan *plan, int stage, int end)
{
    for (int k = 0; k < end; k++)
        if (plan->op[k].a.stage == stage && is_backward(plan->op[k].a.type))
            return 1;
    return 0;
}

/* Of an UNSHARD up to its RESHARD: does the type, or a backward (-1), come in between? */
static int comes(const Plan *plan, int from, int type)
{
    int stage = plan->op[from].a.stage;
    for (int k = from + 1; k < plan->n_op; k++) {
        const SchedAction *a = &plan->op[k].a;
        if (a->stage != stage)
            continue;
        if (a->type == SA_RESHARD)
            return 0;
        if (type < 0 ? is_backward(a->type) : a->type == type)
            return 1;
    }
    return 0;
}

static void mark_interval(Plan *plan, int from)
{
    Op *in = &plan->op[from];
    const StagePlan *rs = &plan->stage[in->local];
    const PpStage *st = rs->st;
    int back = comes(plan, from, -1), grads = back && plan->ask.train;
    int fresh = grads && !backward_before(plan, in->a.stage, from);
    int stats = plan->ask.train && stats_bytes(st) > 0 && comes(plan, from, SA_F);
    in->shard = (grads ? SHARD_GRADS : 0) | (fresh ? SHARD_FRESH : 0) | (stats ? SHARD_STATS : 0);
    plan->bytes.travels.in += kept_bytes(plan, rs) + (grads && !fresh ? st->bytes.grad : 0);
    plan->bytes.travels.out += grads ? st->bytes.grad : 0;
    plan->bytes.travels.out += stats ? stats_bytes(st) : 0;
    for (int k = from + 1; k < plan->n_op; k++)
        if (plan->op[k].a.stage == in->a.stage && plan->op[k].a.type == SA_RESHARD) {
            plan->op[k].shard = in->shard;
            break;
        }
}

static void mark(Plan *plan)
{
    for (int k = 0; k < plan->n_op; k++) {
        Op *op = &plan->op[k];
        if (op->a.type == SA_UNSHARD && plan->ask.page)
            mark_interval(plan, k);
        if (is_backward(op->a.type) && plan->ask.train && (plan->ask.page || plan->grads_go) &&
            !backward_before(plan, op->a.stage, k))
            op->shard = SHARD_FRESH;
    }
}

/* ---- how much of it is in memory ---- */

/* Pages that hold a part of something which begins anywhere. */
static int64_t pages_of(const Plan *plan, int64_t bytes)
{
    return bytes ? round_up(plan, bytes) + plan->ask.page : 0;
}

/* What sums touch of the gradients of a stage that is not in memory: over replicas all of them,
 * over stages those of shared parameters. */
static int64_t summed_bytes(const Plan *plan, int local)
{
    const Planner *p = plan->planner;
    int64_t bytes = 0, all = round_up(plan, plan->stage[local].st->bytes.grad);
    for (const Contribution *c = p->contrib; c < p->contrib + p->n_contrib; c++)
        if (c->owner == local || c->user == local)
            bytes +=
                pages_of(plan, plan->model->stage[c->user_stage]->param[c->user_param].t.bytes);
    return plan->ask.replicas > 1 || bytes > all ? all : bytes;
}

static int sums_gradients(int type)
{
    return type == SA_SEND_GP || type == SA_RECV_GP || type == SA_REDUCE_GRAD ||
           type == SA_WAIT_REDUCE_GRAD;
}

/* away [n_stage]: no gradients of the stage are there; ones. */
static int64_t most_of_row(const Plan *plan, unsigned char *away)
{
    int64_t now = 0, most = 0;
    for (int k = 0; k < plan->n_op; k++) {
        const Op *op = &plan->op[k];
        if (op->a.type == SA_UNSHARD || op->a.type == SA_RESHARD) {
            const StagePlan *rs = &plan->stage[op->local];
            int64_t bytes = round_up(plan, kept_bytes(plan, rs)) +
                            (op->shard & SHARD_GRADS ? round_up(plan, rs->st->bytes.grad) : 0);
            now += op->a.type == SA_UNSHARD ? bytes : -bytes;
            away[op->local] = op->a.type == SA_RESHARD;
        } else if (sums_gradients(op->a.type) && away[op->local]) {
            now += summed_bytes(plan, op->local);
            away[op->local] = 0;
        }
        most = now > most ? now : most;
    }
    return most;
}

/* A piece of a parameter with its gradient and state, and the next one. */
static int64_t most_of_update(Plan *plan)
{
    int64_t most = 0, before = 0, states = plan->ask.states;
    for (const Piece *piece = plan->pieces.at; piece < plan->pieces.at + plan->pieces.n; piece++) {
        const StagePlan *rs = &plan->stage[piece->local];
        const RankParam *q = &rs->rp[piece->param];
        int half = rs->st->half_type && q->p->half_offset >= 0;
        int normed = q->norm >= 0 && (plan->ask.zero || !plan->ask.replica);
        int64_t bytes = 2 * pages_of(plan, piece->bytes) + states * round_up(plan, piece->bytes) +
                        (half ? pages_of(plan, piece->bytes / 2) : 0);
        most = before + bytes > most ? before + bytes : most;
        before = bytes;
        plan->bytes.travels.update_in += (2 + states + normed) * piece->bytes;
        plan->bytes.travels.update_out += (1 + states) * piece->bytes;
    }
    return most;
}

/* Divided: a stage's parameters, which come from all replicas. */
static int64_t most_of_gather(const Plan *plan)
{
    int64_t most = 0;
    for (int l = 0; l < plan->n_stage && plan->ask.zero; l++) {
        int64_t bytes = round_up(plan, kept_bytes(plan, &plan->stage[l]));
        most = bytes > most ? bytes : most;
    }
    return most;
}

static PpStatus most_in_memory(Plan *plan)
{
    PlanBytes *b = &plan->bytes;
    unsigned char *away;
    POOL(room);
    TRY(pp_take(&room, &away, plan->n_stage, 1));
    memset(away, 1, (size_t)plan->n_stage);
    int64_t most[] = {most_of_row(plan, away), most_of_update(plan), most_of_gather(plan)};
    for (int i = 0; i < 3; i++)
        b->resident = most[i] > b->resident ? most[i] : b->resident;
    b->resident = b->resident < b->mapped ? b->resident : b->mapped;
    return PP_OK;
}

/* ---- the window ---- */

static int resharded_at(const Plan *plan, int from)
{
    int k = from + 1;
    while (k < plan->n_op - 1 &&
           !(plan->op[k].a.type == SA_RESHARD && plan->op[k].a.stage == plan->op[from].a.stage))
        k++;
    return k;
}

/* Of a device whose home is elsewhere gradients come behind the parameters. */
static int64_t block_bytes(const Plan *plan, const Op *op, int grads)
{
    int from_home = plan->ask.page && plan->ask.on_device;
    if (op->a.type != SA_UNSHARD || !(from_home || plan->ask.zero == 3))
        return 0;
    const PpStage *st = plan->stage[op->local].st;
    return values_bytes(st) +
           (grads && from_home && (op->shard & SHARD_GRADS) ? align_up(st->bytes.grad) : 0);
}

/* Do gradients of the stage come from other stages or go there? */
static int is_shared(const Plan *plan, int local)
{
    const Planner *p = plan->planner;
    int any = 0;
    for (const Contribution *c = p->contrib; c < p->contrib + p->n_contrib; c++)
        any |= c->owner == local || c->user == local;
    return any;
}

/* Of the stage's whole gradients. */
static Instance whole_gradients(const Plan *plan, int local)
{
    Instance i = {.bytes = plan->stage[local].st->bytes.grad, .birth = -1, .msg = -1};
    int stage = plan->stage[local].st->index, last = plan->n_op - 1;
    for (int k = 0; k <= last; k++) {
        const SchedAction *a = &plan->op[k].a;
        if (a->stage == stage && is_backward(a->type) && i.birth < 0)
            i.birth = k - (k > 0 && plan->op[k - 1].together);
        if (a->stage == stage && a->type == SA_WAIT_REDUCE_GRAD)
            i.death = k;
    }
    if (is_shared(plan, local) || !i.death)
        i.death = last;
    return i;
}

/* Is less there at once, with the shares that stay, than all?  Not where the sum is needed whole,
 * where other passes add to it, or where they come and go anyway. */
PpStatus sharded_begin(Plan *plan)
{
    int64_t all = 0, most;
    if (!plan->ask.train || plan->ask.zero < 2 || plan->ask.passes > 1 || plan->ask.whole_grads ||
        plan->ask.page)
        return PP_OK;
    Instance *of;
    POOL(room);
    TRY(pp_take(&room, &of, plan->n_stage, sizeof *of));
    for (int l = 0; l < plan->n_stage; l++) {
        of[l] = whole_gradients(plan, l);
        all += of[l].bytes;
    }
    TRY(slots_bound(of, plan->n_stage, plan->n_op, &most, NULL));
    plan->grads_go = most + all / plan->ask.replicas < all;
    return PP_OK;
}

/* Each time that a stage comes its block has a place of its own. */
static PpStatus place_window(Plan *plan)
{
    int64_t n = plan->n_op, bound;
    Instance *block;
    POOL(room);
    TRY(pp_take(&room, &block, n + plan->n_stage, sizeof *block));
    for (int k = 0; k < n; k++) {
        int64_t bytes = block_bytes(plan, &plan->op[k], 0);
        block[k] = (Instance){.bytes = bytes,
                              .birth = bytes ? k : -1,
                              .death = bytes ? resharded_at(plan, k) : 0,
                              .msg = -1};
    }
    TRY(slots_bound(block, n, plan->n_op, &plan->bytes.brought, NULL));
    for (int k = 0; k < n; k++)
        block[k].bytes = block_bytes(plan, &plan->op[k], 1);
    for (int l = 0; l < plan->n_stage; l++) {
        plan->bytes.values += values_bytes(plan->stage[l].st);
        block[n + l] =
            plan->grads_go ? whole_gradients(plan, l) : (Instance){.birth = -1, .msg = -1};
    }
    TRY(slots_place(block, n + plan->n_stage, plan->n_op, &plan->bytes.window, &bound,
                    plan->live));
    for (int k = 0; k < n; k++)
        plan->op[k].window = block[k].offset;
    for (int l = 0; l < plan->n_stage; l++)
        plan->stage[l].grad_at = block[n + l].offset;
    return PP_OK;
}

static PpStatus elsewhere_sizes(Plan *plan)
{
    PlanBytes *b = &plan->bytes;
    for (int l = 0; l < plan->n_stage; l++) {
        const PpStage *st = plan->stage[l].st;
        b->mapped += round_up(plan, kept_bytes(plan, &plan->stage[l])) +
                     (plan->ask.train ? round_up(plan, st->bytes.grad) : 0);
    }
    for (const Piece *q = plan->pieces.at; q < plan->pieces.at + plan->pieces.n; q++)
        if (plan->stage[q->local].rp[q->param].update)
            b->mapped += plan->ask.states * round_up(plan, q->bytes);
    TRY(most_in_memory(plan));
    b->resident = plan->ask.on_device ? 0 : b->resident;
    return PP_OK;
}

PpStatus sharded_sizes(Planner *p)
{
    Plan *plan = p->plan;
    if (!plan->ask.page && plan->ask.zero < 3 && !plan->grads_go)
        return PP_OK;
    mark(plan);
    if (plan->ask.page)
        TRY(elsewhere_sizes(plan));
    return place_window(plan);
}

/* ---- room for sums over replicas ---- */

static int op_of(const Plan *plan, int l, int type)
{
    for (int k = 0; k < plan->n_op; k++)
        if (plan->op[k].local == l && plan->op[k].a.type == type)
            return k;
    return -1;
}

PpStatus sharded_rooms(Planner *p, int64_t *bytes)
{
    const Plan *plan = p->plan;
    int64_t bound;
    Instance *of;
    POOL(room);
    TRY(pp_take(&room, &of, plan->n_stage, sizeof *of));
    for (int l = 0; l < plan->n_stage; l++)
        of[l] = (Instance){.bytes = p->reduction[l].rooms * p->reduction[l].room,
                           .birth = op_of(plan, l, SA_REDUCE_GRAD),
                           .death = op_of(plan, l, SA_WAIT_REDUCE_GRAD),
                           .msg = -1};
    TRY(slots_place(of, plan->n_stage, plan->n_op, bytes, &bound, NULL));
    for (int l = 0; l < plan->n_stage; l++)
        p->reduction[l].at = of[l].offset;
    return PP_OK;
}

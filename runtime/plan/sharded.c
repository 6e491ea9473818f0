/*
 * sharded.c - what of a stage's parameters and gradients is here for a while.  In: the row.  Out:
 * where each block lies in the window, what comes and goes with each action.
 *
 * --zero 3: the window has a stage's parameters from its UNSHARD to its RESHARD; 2: and its
 * gradients from the first backward until they are summed, or to the row's end, where other stages
 * have to do with them.
 *
 * --offload params: parameters, gradients and optimizer state live elsewhere, in a mapped file or
 * beside a device in host memory, and those of a stage are in the window between its UNSHARD and
 * its RESHARD; with --zero 3 its shares are elsewhere, and the window has all.
 *
 * Parameters come with every UNSHARD.  Gradients come where a backward follows, but for the first
 * one of the step, which begins with zeros, and go with the RESHARD behind it; running statistics
 * go too.  Sums over replicas and stages, the norm and the update run where they live.
 */
#include "planner.h"

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
        if (op->a.type == SA_UNSHARD && plan->ask.away)
            mark_interval(plan, k);
        if (is_backward(op->a.type) && plan->ask.train && (plan->ask.away || plan->grads_go) &&
            !backward_before(plan, op->a.stage, k))
            op->shard = SHARD_FRESH;
    }
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

/* Gradients whose home is elsewhere come behind the parameters. */
static int64_t block_bytes(const Plan *plan, const Op *op, int grads)
{
    if (op->a.type != SA_UNSHARD || !(plan->ask.away || plan->ask.zero == 3))
        return 0;
    const PpStage *st = plan->stage[op->local].st;
    return values_bytes(st) +
           (grads && plan->ask.away && (op->shard & SHARD_GRADS) ? align_up(st->bytes.grad) : 0);
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
static Packed whole_gradients(const Plan *plan, int local)
{
    Packed i = {.bytes = plan->stage[local].st->bytes.grad, .first = -1};
    int stage = plan->stage[local].st->index, last = plan->n_op - 1;
    for (int k = 0; k <= last; k++) {
        const SchedAction *a = &plan->op[k].a;
        if (a->stage == stage && is_backward(a->type) && i.first < 0)
            i.first = k - (k > 0 && plan->op[k - 1].together);
        if (a->stage == stage && a->type == SA_WAIT_REDUCE_GRAD)
            i.last = k;
    }
    if (is_shared(plan, local) || !i.last)
        i.last = last;
    return i;
}

/* Is less there at once, with the shares that stay, than all?  Not where the sum is needed whole,
 * where other passes add to it, or where they come and go anyway. */
PpStatus sharded_begin(Plan *plan)
{
    int64_t all = 0, most;
    if (!plan->ask.train || plan->ask.zero < 2 || plan->ask.passes > 1 || plan->ask.whole_grads ||
        plan->ask.away)
        return PP_OK;
    Packed *of;
    POOL(room);
    TRY(pp_take(&room, &of, plan->n_stage, sizeof *of));
    for (int l = 0; l < plan->n_stage; l++) {
        of[l] = whole_gradients(plan, l);
        all += of[l].bytes;
    }
    TRY(slots_most(of, plan->n_stage, plan->n_op, &most, NULL));
    plan->grads_go = most + all / plan->ask.replicas < all;
    return PP_OK;
}

/* Each time that a stage comes its block has a place of its own. */
static PpStatus place_window(Plan *plan)
{
    int64_t n = plan->n_op, most;
    Packed *block;
    POOL(room);
    TRY(pp_take(&room, &block, n + plan->n_stage, sizeof *block));
    for (int k = 0; k < n; k++) {
        int64_t bytes = block_bytes(plan, &plan->op[k], 0);
        block[k] = (Packed){.bytes = bytes,
                            .first = bytes ? k : -1,
                            .last = bytes ? resharded_at(plan, k) : 0};
    }
    TRY(slots_most(block, n, plan->n_op, &plan->bytes.brought, NULL));
    for (int k = 0; k < n; k++)
        block[k].bytes = block_bytes(plan, &plan->op[k], 1);
    for (int l = 0; l < plan->n_stage; l++) {
        plan->bytes.values += values_bytes(plan->stage[l].st);
        block[n + l] = plan->grads_go ? whole_gradients(plan, l) : (Packed){.first = -1};
    }
    TRY(slots_most(block, n + plan->n_stage, plan->n_op, &most, plan->live));
    TRY(slots_place(block, n + plan->n_stage, plan->n_op, &plan->bytes.window));
    for (int k = 0; k < n; k++)
        plan->op[k].window = block[k].offset;
    for (int l = 0; l < plan->n_stage; l++)
        plan->stage[l].grad_at = block[n + l].offset;
    return PP_OK;
}

/* Between two steps nothing is in the lender's. */
int64_t window_bytes(const Plan *plan)
{
    const Plan *of = plan->ask.lender;
    return of && plan->bytes.window <= of->bytes.window ? 0 : plan->bytes.window;
}

static void home_bytes(Plan *plan)
{
    int64_t *bytes = &plan->bytes.home;
    for (int l = 0; l < plan->n_stage; l++)
        *bytes += align_up(kept_bytes(plan, &plan->stage[l])) +
                  (plan->ask.train ? align_up(plan->stage[l].st->bytes.grad) : 0);
    for (const Piece *q = plan->pieces.at; q < plan->pieces.at + plan->pieces.n; q++)
        if (plan->stage[q->local].rp[q->param].update)
            *bytes += plan->ask.states * align_up(q->bytes);
}

PpStatus sharded_sizes(Planner *p)
{
    Plan *plan = p->plan;
    if (!plan->ask.away && plan->ask.zero < 3 && !plan->grads_go)
        return PP_OK;
    mark(plan);
    if (plan->ask.away)
        home_bytes(plan);
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
    Packed *of;
    POOL(room);
    TRY(pp_take(&room, &of, plan->n_stage, sizeof *of));
    for (int l = 0; l < plan->n_stage; l++)
        of[l] = (Packed){.bytes = p->reduction[l].rooms * p->reduction[l].room,
                         .first = op_of(plan, l, SA_REDUCE_GRAD),
                         .last = op_of(plan, l, SA_WAIT_REDUCE_GRAD)};
    TRY(slots_place(of, plan->n_stage, plan->n_op, bytes));
    for (int l = 0; l < plan->n_stage; l++)
        p->reduction[l].at = of[l].offset;
    return PP_OK;
}

/*
 * block.c - the block of a rank that holds activations and, while an action computes, its
 * workspace.  In: the tables of the stages, instances with their lifetimes.  Out: an offset for
 * every instance and for the workspace of every computation.
 *
 * A workspace behind the activations, at one place, stays in the caches and is what most rows have.
 * It costs most where the largest one is needed while few activations are alive: where that is a
 * fiftieth more than the most that is alive at one action, workspaces are placed among the
 * activations, as tensors that live for an action, should that take less.
 */
#include "planner.h"

#include "base/file/safetensors.h"

#include <string.h>

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* A function of the user's in the place of W has what the largest of the stage's has. */
static int64_t own_weight_bytes(const PpStage *st)
{
    int64_t bytes = 0;
    for (int k = 0; k < PP_WORKS; k++)
        bytes = larger(bytes, st->bytes.work[k]);
    return bytes;
}

/* Of the sums over members at the end of a step. */
static int64_t partial_bytes(const Plan *plan)
{
    int64_t bytes = 0;
    for (int l = 0; l < plan->n_stage; l++) {
        const PpStage *st = plan->stage[l].st;
        for (int i = 0; i < st->mesh.n_partial; i++) {
            const PpTensor *t = &st->param[st->mesh.partial[i].param].t;
            int size = (int)st_dtype_size(t->dtype);
            for (int x = 0; x < PP_AXES; x++)
                bytes = larger(bytes, pp_collective_work(PP_ALL_REDUCE,
                                                         plan_members_along(plan->model, x), size,
                                                         t->bytes / size));
        }
    }
    return bytes;
}

int64_t plan_work_bytes(const Plan *plan, const Op *op)
{
    if (op->local < 0)
        return 0;
    const PpStage *st = plan->stage[op->local].st;
    const int64_t *of = st->bytes.work;
    int own = plan_own_weight(st);
    switch (op->a.type) {
    case SA_F: return of[plan->ask.train ? PP_WORK_FORWARD : PP_WORK_INFER];
    case SA_R: return of[op->again == SCHED_WHOLE ? PP_WORK_FORWARD : PP_WORK_AGAIN];
    case SA_B: return own ? own_weight_bytes(st) : of[PP_WORK_BACKWARD];
    case SA_I: return of[PP_WORK_INPUT];
    case SA_W: return own ? own_weight_bytes(st) : of[PP_WORK_WEIGHT];
    case SA_SEND_GP:
    case SA_REDUCE_GRAD:
    case SA_WAIT_REDUCE_GRAD: return partial_bytes(plan);
    default: return 0;
    }
}

void block_walk(Planner *p, const Op *op)
{
    Packed *i = &p->inst[p->n_inst + p->at];
    i->bytes = align_up(plan_work_bytes(p->plan, op));
    if (i->bytes > 0)
        plan_touch(p, p->n_inst + p->at);
}

/* Behind the activations: one place, and another one for what runs beside. */
static int64_t place_behind(Planner *p, int64_t activations)
{
    Plan *plan = p->plan;
    int64_t most[2] = {0, 0};
    for (int k = 0; k < plan->n_op; k++) {
        int64_t *of = &most[plan->op[k].together];
        *of = larger(*of, p->inst[p->n_inst + k].bytes);
    }
    for (int k = 0; k < plan->n_op; k++)
        plan->op[k].work = activations + (plan->op[k].together ? most[0] : 0);
    return most[0] + most[1];
}

/* Among them, should that be less than *block. */
static PpStatus place_among(Planner *p, int64_t *block)
{
    int64_t n = p->n_inst + p->plan->n_op, bytes;
    Packed *all;
    POOL(room);
    TRY(pp_take(&room, &all, n, sizeof *all));
    memcpy(all, p->inst, (size_t)n * sizeof *all);
    TRY(slots_place(all, n, p->plan->n_op, &bytes));
    if (bytes < *block) {
        memcpy(p->inst, all, (size_t)n * sizeof *all);
        for (int k = 0; k < p->plan->n_op; k++)
            p->plan->op[k].work = all[p->n_inst + k].offset;
        *block = bytes;
    }
    return PP_OK;
}

/* Of workspaces alone, two of a compound at the same time. */
static PpStatus most_work(const Planner *p, int64_t *bytes)
{
    return slots_most(p->inst + p->n_inst, p->plan->n_op, p->plan->n_op, bytes, NULL);
}

PpStatus block_place(Planner *p)
{
    Plan *plan = p->plan;
    PlanBytes *b = &plan->bytes;
    int64_t all = p->n_inst + plan->n_op, activations;
    TRY(slots_most(p->inst, all, plan->n_op, &b->slots_bound, plan->live));
    b->block = b->slots_bound;
    if (!plan->ask.unplaced) {
        TRY(slots_place(p->inst, p->n_inst, plan->n_op, &activations));
        b->block = activations + place_behind(p, activations);
        if (b->block * 50 > b->slots_bound * 51)
            TRY(place_among(p, &b->block));
    }
    TRY(most_work(p, &b->work));
    b->slots = b->block - b->work;
    return PP_OK;
}

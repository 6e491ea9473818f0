/*
 * memory.c - a rank's step planned by runtime/plan/, for its bytes; what it knows of their seconds.
 */
#include "memory.h"

#include "runtime/plan/plan.h"

#include <stdlib.h>

enum { BUCKET = 4 << 20 }; /* --bucket's default */

static int64_t plan_bytes(const PlanRequest *ask, int *moved, int64_t *parts)
{
    Plan p = {0};
    PpStatus s = plan_build(&p, ask);
    const PlanBytes *b = &p.bytes;
    int64_t bytes = s == PP_OK ? plan_total(&p) : -1;
    *moved = p.work.offloaded;
    if (parts) {
        parts[MEMORY_PARAMETERS] = b->param + b->half;
        parts[MEMORY_GRADIENTS] = b->grad + b->window;
        parts[MEMORY_OPTIMIZER] = b->optimizer;
        parts[MEMORY_ACTIVATIONS] = b->slots;
        parts[MEMORY_WORK] = b->work;
    }
    plan_free(&p);
    return bytes;
}

int64_t memory_rank(const MemoryAsked *x, const Schedule *s, int rank, int *moved, int64_t *parts)
{
    int64_t *row0 = calloc((size_t)x->microbatches + 1, sizeof *row0), bytes = -1;
    int *wanted = calloc((size_t)x->model->n_output + 1, sizeof *wanted);
    for (int i = 0; row0 && i <= x->microbatches; i++)
        row0[i] = x->rows * i / x->microbatches;
    for (int i = 0; wanted && i < x->model->n_output; i++)
        wanted[i] = -1;
    if (row0 && wanted) {
        PlanRequest ask = {.model = x->model,
                           .schedule = s,
                           .rank = rank,
                           .threads = x->threads,
                           .microbatches = x->microbatches,
                           .replica = -1, /* they differ by a few blocks of parameters */
                           .replicas = x->replicas,
                           .counted = 1,
                           .bucket = BUCKET,
                           .zero = x->replicas > 1 ? x->zero : 0,
                           .row0 = row0,
                           .train = 1,
                           .on_device = x->model->device != PP_CPU,
                           .overlap = x->model->device != PP_CPU && plan_overlaps(&s->row[rank]),
                           .states = x->states,
                           .output.wanted = wanted,
                           .output.rows = x->rows,
                           .tags = INT64_MAX,
                           .unplaced = !x->placed};
        bytes = plan_bytes(&ask, moved, parts);
    }
    free(row0);
    free(wanted);
    return bytes;
}

int64_t memory_of(const MemoryAsked *x, const Schedule *s, int64_t *of_rank)
{
    int64_t most = -1;
    int moved;
    for (int r = 0; r < s->ranks; r++) {
        of_rank[r] = memory_rank(x, s, r, &moved, NULL);
        if (of_rank[r] < 0)
            return -1;
        most = of_rank[r] > most ? of_rank[r] : most;
    }
    return most;
}

Schedule *memory_offload(const PpPlan *model, const Schedule *s, const SchedNeeds *needs,
                         double time, SchedError *e)
{
    Schedule *rows = NULL;
    return plan_offload(model, s, needs, time, &rows, e) == PP_OK ? rows : NULL;
}

MoreDivided divided_seconds(const PpStage *st, double quick, double functions, double traffic,
                            double left)
{
    const Divided d = plan_divided(st, &(DividedRates){quick, functions, traffic, left});
    return (MoreDivided){d.input, d.weight};
}

int64_t memory_stored(const PpStage *st) { return plan_stored_bytes(st, 0); }

/* A parameter is read and written, its gradient read for the norm, read, and zeroed before the next
   step, each state read and written. */
int64_t memory_updated(const MemoryAsked *x, const Schedule *s, int64_t *gathered)
{
    int64_t most = 0, params = 0;
    for (int r = 0; r < s->ranks; r++) {
        int64_t mine = 0;
        for (int i = 0; i < s->stages; i++) {
            const PpStage *st = x->model->stage[i];
            for (int k = 0; k < st->n_param && s->rank_of[i] == r; k++) {
                const PpParam *q = &st->param[k];
                mine += q->trainable && !q->stat && q->use != PP_TRANSMIT ? q->t.bytes : 0;
            }
        }
        params = mine > params ? mine : params;
    }
    int share = x->zero ? x->replicas : 1;
    most = params * 2 + params * (3 + 2 * x->states) / share;
    *gathered = x->zero && x->zero < 3 ? params / share * (share - 1) : 0;
    return most;
}

double memory_exchanged(const PpPlan *model, int stage, int microbatches)
{
    static const char part[] = {'F', 'I', 'W'};
    const PpStage *st = model->stage[stage];
    double sum = plan_exchanges(model, st, 0).bytes;
    for (int k = 0; k < 3; k++)
        sum += microbatches * plan_exchanges(model, st, part[k]).bytes;
    return sum;
}

double memory_summed(const PpPlan *model, const Schedule *s, double link, double messages)
{
    double most = 0;
    for (int r = 0; r < s->ranks; r++) {
        double mine = 0;
        for (int i = 0; i < s->stages; i++) {
            const Exchanges sum = plan_exchanges(model, model->stage[i], 0);
            mine += s->rank_of[i] == r ? sum.bytes / link + sum.messages / messages : 0;
        }
        most = mine > most ? mine : most;
    }
    return most;
}

Crossing crossing_of(const PpPlan *model, Arena *a)
{
    size_t pairs = (size_t)model->n_stage * (size_t)model->n_stage;
    Crossing c = {.edge = arena_array(a, SchedEdge, pairs + 1),
                  .param = arena_array(a, SchedParam, 2 * pairs + 1)};
    c.n_edge = plan_edges(model, c.edge);
    c.n_param = plan_shared(model, c.param, 1);
    return c;
}

/*
 * memory.c - a rank's step planned by runtime/plan/, for its bytes.
 */
#include "memory.h"

#include "runtime/plan/plan.h"

#include <stdlib.h>

enum { BUCKET = 4 << 20 }; /* --bucket's default */

static int64_t plan_bytes(const PlanRequest *ask)
{
    Plan p = {0};
    PpStatus s = plan_build(&p, ask);
    int64_t bytes = s == PP_OK ? p.bytes.total + p.bytes.resident : -1;
    plan_free(&p);
    return bytes;
}

/* Divided, replicas differ by a few blocks of parameters. */
static int64_t rank_bytes(PlanRequest *ask)
{
    int64_t most = 0;
    for (ask->replica = 0; ask->replica < (ask->divided ? ask->replicas : 1); ask->replica++) {
        int64_t bytes = plan_bytes(ask);
        if (bytes < 0)
            return bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

int64_t memory_of(const MemoryAsked *x, const Schedule *s, int64_t *of_rank)
{
    int64_t *row0 = calloc((size_t)x->microbatches + 1, sizeof *row0), most = -1;
    int *wanted = calloc((size_t)x->model->n_output + 1, sizeof *wanted);
    for (int i = 0; row0 && i <= x->microbatches; i++)
        row0[i] = x->rows * i / x->microbatches;
    for (int i = 0; wanted && i < x->model->n_output; i++)
        wanted[i] = -1;
    for (int r = 0; row0 && wanted && r < s->ranks; r++) {
        PlanRequest ask = {.model = x->model,
                           .schedule = s,
                           .rank = r,
                           .microbatches = x->microbatches,
                           .replicas = x->replicas,
                           .bucket = BUCKET,
                           .divided = x->divided && x->replicas > 1,
                           .row0 = row0,
                           .train = 1,
                           .on_device = x->model->device != PP_CPU,
                           .overlap = plan_overlaps(&s->row[r]),
                           .states = x->states,
                           .output_wanted = wanted,
                           .output_rows = x->rows,
                           .tags = INT64_MAX,
                           .unplaced = !x->placed};
        of_rank[r] = rank_bytes(&ask);
        if (of_rank[r] < 0) {
            most = -1;
            break;
        }
        most = of_rank[r] > most ? of_rank[r] : most;
    }
    free(row0);
    free(wanted);
    return most;
}

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
    int share = x->divided ? x->replicas : 1;
    most = params * 2 + params * (3 + 2 * x->states) / share;
    *gathered = x->divided ? params / share * (share - 1) : 0;
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

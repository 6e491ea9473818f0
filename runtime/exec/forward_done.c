/*
 * forward_done.c - what a forward yields for the user: the loss, rows of outputs that are wanted.
 */
#include "exec.h"

void forward_done(Rank *r, int stage, int m, int64_t step)
{
    const PpPlan *model = r->run->model;
    const StagePlan *rs = &r->plan.stage[stage];
    const PpStage *st = rs->st;
    void *const *out = rs->out + (int64_t)m * st->n_output;
    if (r->host) {
        host_take(r, stage, m, step);
        return;
    }
    for (int o = 0; o < st->n_output; o++)
        if (st->output[o].model_output >= 0 && r->results.output[st->output[o].model_output])
            results_take(&r->results, &st->output[o], out[o], exec_in_step(r, m), r->feed.length[m],
                         step);
    if (st->index == model->loss.stage)
        results_loss(&r->results, out[model->loss.output], exec_in_step(r, m));
}

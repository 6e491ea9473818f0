/*
 * same.c - what ranks must agree on before the first step: the schedule, the plan, the options that
 * change numbers, as one hash.
 */
#include "exec.h"

#include <stdlib.h>

#include "base/file/hash.h"

PpStatus run_hash(Run *run)
{
    const Options *o = run->opt;
    size_t n;
    char *text = sched_text(run->sched, &n);
    if (!text)
        return pp_no_memory();
#define VALUE(field, name, help) o->optim.field,
    const double real[] = {OPTIM_REALS(VALUE) o->clip_norm, o->loss_scale.scale,
                           o->loss_scale.least};
    const int64_t whole[] = {o->mode,
                             (int)o->optimizer,
                             OPTIM_FLAGS(VALUE) run->data.microbatches,
                             run->data.batch,
                             run->data.steps,
                             run->data.rows,
                             o->shuffle,
                             (int64_t)o->shuffle_seed,
                             (int64_t)o->seed,
                             run->ranks,
                             run->replicas,
                             run->data.groups,
                             o->trace != NULL,
                             o->until != NULL,
                             run->model->device,
                             o->tf32,
                             o->loss_scale.window,
                             o->loss_scale.hysteresis,
                             o->checkpoint != NULL,
                             o->every,
                             run->data.start.step,
                             o->dump_grads != NULL,
                             o->offload,
                             o->bucket,
                             o->shard_optimizer,
                             o->eval_every,
                             run->evaluation ? run->evaluation->data.rows : 0,
                             run->evaluation ? run->evaluation->data.microbatches : 0};
    uint64_t h = hash_bytes(HASH_START, text, n);
    h = hash_bytes(h, real, sizeof real);
    h = hash_bytes(h, whole, sizeof whole);
    run->hash = hash_bytes(h, &run->model->hash, sizeof run->model->hash);
    free(text);
    return PP_OK;
}

PpStatus same_everywhere(Rank *r)
{
    uint64_t *all = malloc((size_t)r->group.ranks * sizeof *all);
    if (!all)
        return pp_no_memory();
    PpStatus s = r->group.op->gather(&r->group, &r->run->hash, sizeof *all, all);
    for (int k = 1; k < r->group.ranks && s == PP_OK; k++)
        if (all[k] != all[0])
            s = pp_fail(PP_ERR_MODEL,
                        "rank %d was started with another plan, schedule or options than rank 0",
                        k);
    free(all);
    return s;
}

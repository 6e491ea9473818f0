/*
 * recompute.c - in: --recompute, rows that hold computations; out: the same rows with an R for what
 * a backward reads and is computed again instead of kept.
 */
#include "exec.h"

#include <string.h>

int recompute_is_auto(const Options *o)
{
    return o->mode == MODE_TRAIN && o->memory.recompute && !strcmp(o->memory.recompute, "auto");
}

PpStatus recompute_insert(Run *run)
{
    const PpPlan *model = run->model;
    int m = run->data.microbatches, n = model->n_stage * m;
    if (!run->opt->memory.recompute || run->opt->mode != MODE_TRAIN || recompute_is_auto(run->opt))
        return PP_OK;
    SchedError e;
    int32_t *parts;
    POOL(room);
    TRY(pp_take(&room, &parts, n, sizeof *parts));
    int no =
        sched_recompute_parse(run->opt->memory.recompute, schedule_stages(model), m, parts, &e);
    for (int i = 0; i < n && !no; i++)
        parts[i] = plan_parts(model->stage[i / m], parts[i]);
    return !no && !sched_recompute(run->sched, parts, &e)
               ? PP_OK
               : pp_fail(e.status == SCHED_EUSAGE ? PP_ERR_USAGE : PP_ERR_IO, "%s", e.text);
}

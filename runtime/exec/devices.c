/*
 * devices.c - in: --device, what this program and this machine have; out: the stages that run, and
 * each rank's device.  What cannot be is said before the first step, by one rank.
 */
#include "exec.h"

#include "net/wires.h"

static PpStatus choose(const Options *o, const PpPlan *plan, PpPlan *chosen)
{
    const DeviceRow *asked = o->machine.device ? device_named(o->machine.device) : NULL;
    *chosen = *plan;
    if (!plan->stage && !plan->cpu_stage && !plan->cuda_stage)
        return pp_fail(PP_ERR_USAGE,
                       "the model was split with --target cuda only: make pipeline-cuda");
    if (!plan->cpu_stage && !plan->cuda_stage)
        return asked && asked->kind != plan->device
                   ? pp_fail(PP_ERR_USAGE, "--device %s: this program was not built for it",
                             o->machine.device)
                   : PP_OK;
    int has_cuda = plan->cuda_stage && device_of(PP_CUDA)->ops,
        want_cuda = asked ? asked->kind == PP_CUDA : has_cuda;
    if (want_cuda && !has_cuda)
        return pp_fail(
            PP_ERR_USAGE,
            plan->cuda_stage
                ? "--device cuda: this program was built for the CPU: make pipeline-cuda"
                : "--device cuda: this program was built for the CPU: split the model with "
                  "--target cuda, then make pipeline-cuda");
    if (!want_cuda && !plan->cpu_stage)
        return pp_fail(
            PP_ERR_USAGE,
            "--device cpu: this program was built for CUDA: split the model with --target cpu too");
    chosen->device = want_cuda ? PP_CUDA : PP_CPU;
    chosen->stage = want_cuda ? plan->cuda_stage : plan->cpu_stage;
    return PP_OK;
}

PpStatus devices_choose(const Options *o, const PpPlan *plan, PpPlan *chosen)
{
    TRY(choose(o, plan, chosen));
    if (o->memory.offload && chosen->device == PP_CPU && !o->memory.offload_dir)
        return pp_fail(
            PP_ERR_USAGE,
            "--offload %s needs --offload-dir on the CPU: a folder on a disk with room for them",
            o->memory.offload & OFFLOAD_STASH ? "stash" : "params");
    device_of(chosen->device)->ops->prepare(transport_may_be_nccl(o->machine.transport));
    return PP_OK;
}

PpStatus devices_open(Rank *r, int overlap)
{
    const Run *run = r->run;
    const DeviceOps *op = r->dev.op;
    int n = op->count(), stages = 0;
    if (n < 1)
        return pp_fail(PP_ERR_IO, "no GPU: %s (--device cpu runs without one)", op->error());
    for (int s = 0; s < run->model->n_stage; s++)
        stages += run->sched->rank_of[s] == r->along[AXIS_PIPE].rank;
    DeviceWish w = {.number = device_number(op, r->group.host_rank),
                    .stages = stages,
                    .overlap = overlap,
                    .tf32 = run->opt->machine.tf32};
    if (!op->open(&r->dev, &w))
        return pp_fail(PP_ERR_IO, "%s, GPU %d: %s", pp_rank(r->group.rank).text, w.number,
                       op->error());
    op->says.name(&r->dev, r->report.memory.where, (int)sizeof r->report.memory.where);
    return PP_OK;
}

/* The pipelines of runtime_plan.h as a program with two tables of stages, as the compiler would
   write it: for the CPU, and for CUDA with the functions of device_plan.cu.  PLAN=0..3 in the
   environment says which pipeline; `device_plan write DIR` writes its parameters and data. */
#include "runtime_plan.h"

#include "base/file/npy.h"
#include "runtime_params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(X)                                                                               \
    X(first_forward)                                                                               \
    X(first_input) X(first_weight) X(first_backward) X(second_forward) X(second_infer)             \
        X(second_input) X(second_weight) X(second_backward) X(last_forward) X(last_input)          \
            X(last_weight) X(last_backward)
#define DECLARE(f) void f##_cuda(const PpCtx *c);
FUNCTIONS(DECLARE)
#define PAIR(f) {f, f##_cuda},
static const struct {
    void (*cpu)(const PpCtx *c), (*cuda)(const PpCtx *c);
} pair[] = {FUNCTIONS(PAIR)};

static void (*on_device(void (*f)(const PpCtx *c)))(const PpCtx *c)
{
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++)
        if (pair[i].cpu == f)
            return pair[i].cuda;
    return NULL;
}

static void write_all(const PpPlan *p, const char *dir)
{
    enum { ALL = 22 };
    static float par[4][D] = {{0.5f, -0.25f, 1.5f},
                              {0.75f, 1.25f, -0.5f},
                              {1.125f, 0.375f, -0.875f},
                              {0.25f, -1.5f, 0.625f}};
    static const int64_t x_shape[] = {ALL, D}, target_shape[] = {D, ALL};
    static float x[ALL * D], target[D * ALL];
    char err[ST_ERR], path[500];
    uint32_t seed = 1;
    for (int i = 3; i < D; i++)
        for (int k = 0; k < 4; k++)
            par[k][i] = par[k][i % 3];
    for (int i = 0; i < ALL * D; i++) {
        x[i] = (float)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
        target[i] = (float)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
    }
    snprintf(path, sizeof path, "%s/params", dir);
    write_params(p, path, par);
    snprintf(path, sizeof path, "%s/x.npy", dir);
    int bad = npy_write(path, PP_F32, 2, x_shape, x, err, sizeof err);
    snprintf(path, sizeof path, "%s/target.npy", dir);
    if (bad || npy_write(path, PP_F32, 2, target_shape, target, err, sizeof err))
        exit(3);
}

int main(int argc, char **argv)
{
    static PpStage stage[4];
    static const PpStage *table[4];
    PpPlan plan = plans[atoi(getenv("PLAN") ? getenv("PLAN") : "0") & 3];
    if (argc == 3 && !strcmp(argv[1], "write")) {
        write_all(&plan, argv[2]);
        return 0;
    }
    for (int s = 0; s < plan.n_stage; s++) {
        stage[s] = *plan.stage[s];
        stage[s].call.forward = on_device(stage[s].call.forward);
        stage[s].call.infer = on_device(stage[s].call.infer);
        stage[s].call.backward = on_device(stage[s].call.backward);
        stage[s].call.backward_input = on_device(stage[s].call.backward_input);
        stage[s].call.backward_weight = on_device(stage[s].call.backward_weight);
        table[s] = &stage[s];
    }
    plan.cpu_stage = plan.stage;
    plan.cuda_stage = table;
    return pp_main(argc, argv, &plan);
}

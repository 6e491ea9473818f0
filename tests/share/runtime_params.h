/* The parameters of a pipeline of runtime_plan.h as files: DIR/stageN.safetensors. */
#ifndef RUNTIME_PARAMS_H
#define RUNTIME_PARAMS_H

#include "base/file/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* par: by PpParam.param. Ends the test when a file cannot be written. */
static void write_params(const PpPlan *p, const char *dir, float (*par)[D])
{
    char path[500];
    mkdir(dir, 0777);
    for (int s = 0; s < p->n_stage; s++) {
        StWriter w;
        stw_init(&w);
        const PpStage *st = p->stage[s];
        for (int k = 0; k < st->n_param; k++)
            if (st->param[k].use != PP_TRANSMIT)
                stw_declare(&w, st->param[k].t.name, PP_F32, 1, st->param[k].t.dim);
        snprintf(path, sizeof path, "%s/stage%d.safetensors", dir, s);
        if (stw_begin(&w, path))
            exit(3);
        for (int k = 0; k < st->n_param; k++)
            if (st->param[k].use != PP_TRANSMIT)
                stw_write(&w, par[st->param[k].param], D * 4);
        if (stw_end(&w, 0))
            exit(3);
    }
}

/* Numbers of [0.25, 1.25), others for another seed. */
__attribute__((unused)) static void fill(float *to, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(seed >> 8) / 16777216.0f + 0.25f;
    }
}

#endif

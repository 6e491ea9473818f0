/*
 * write_onnx.h - a graph's one stage as ONNX files beside the numbers that the evaluator has for
 * it, for another runtime to check (fuzz/onnxruntime_check.py).  Out: DIR/SEED.forward.onnx,
 * DIR/SEED.backward.onnx, and DIR/SEED.values, a line a tensor: in|out NAME DTYPE RANK DIMS..
 * NUMBERS..
 */
#ifndef FUZZ_WRITE_ONNX_H
#define FUZZ_WRITE_ONNX_H

#include "stage_eval.h"

static void write_tensor(FILE *f, const char *what, const char *name, const Tensor *t)
{
    fprintf(f, "%s %s %s %d", what, name, dtype_name(t->dtype), t->shape.rank);
    for (int d = 0; d < t->shape.rank; d++)
        fprintf(f, " %lld", (long long)t->shape.d[d]);
    for (int64_t i = 0; i < shape_elements(&t->shape); i++)
        switch (t->dtype) {
        case DT_F32: fprintf(f, " %.9g", (double)((const float *)t->data)[i]); break;
        case DT_F64: fprintf(f, " %.17g", ((const double *)t->data)[i]); break;
        case DT_I64: fprintf(f, " %lld", (long long)((const int64_t *)t->data)[i]); break;
        case DT_I32: fprintf(f, " %d", ((const int32_t *)t->data)[i]); break;
        default: fprintf(f, " %d", ((const uint8_t *)t->data)[i]);
        }
    fputc('\n', f);
}

/* r's lists were evaluated, all of them. */
static void write_onnx(StageRun *r, const char *dir, uint64_t seed)
{
    const Stage *s = &r->p->stage.at[0];
    FILE *f[3];
    static const char *const ending[] = {"forward.onnx", "backward.onnx", "values"};
    for (int i = 0; i < 3; i++) {
        f[i] =
            fopen(arena_printf(r->a, "%s/%llu.%s", dir, (unsigned long long)seed, ending[i]), "wb");
        if (!f[i])
            BUG("cannot write into %s", dir);
    }
    onnx_write_forward(r->p, 0, NULL, NULL, f[0]);
    if (s->backward.n)
        onnx_write_backward(r->p, 0, NULL, NULL, f[1]);
    for (uint32_t i = 0; i < r->g->input.n; i++)
        write_tensor(f[2], "in", val(r->g, r->g->input.at[i])->name, &r->at[r->g->input.at[i]]);
    for (uint32_t i = 0; i < r->g->param.n; i++)
        write_tensor(f[2], "in", r->g->param.at[i].name, &r->at[r->g->param.at[i].value]);
    for (uint32_t i = 0; i < s->output.n; i++)
        write_tensor(f[2], "out", val(r->g, s->output.at[i].value)->name,
                     &r->at[s->output.at[i].value]);
    for (uint32_t i = 0; i < s->param.n; i++) {
        const ParamUse *u = &s->param.at[i];
        if (u->grads.n != 1)
            continue;
        write_tensor(f[2], "out", arena_printf(r->a, "grad/%s", r->g->param.at[u->param].name),
                     &r->at[u->grads.at[0]]);
    }
    for (int i = 0; i < 3; i++)
        fclose(f[i]);
}

#endif

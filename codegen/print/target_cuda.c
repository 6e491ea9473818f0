/*
 * target_cuda.c - CUDA C for NVIDIA's GPUs: a nest is one kernel or several that are launched
 * (cuda.c); the file is C++17.
 */
#include <string.h>

#include "print.h"

/* Partial results that a kernel of a nest leaves for later ones, behind the workspace. */
static void part_arguments(const Out *o, const CudaNest *n, const CudaKernel *x, Parameters *p)
{
    for (uint32_t j = 0; j < n->parts; j++) {
        const char *type = cg_ctype(n->part[j].type);
        if (x->part[j] == PART_UNUSED)
            continue;
        text_item(&p->params, "%s%s *__restrict__ %s", x->part[j] == PART_WRITTEN ? "" : "const ",
                  type, n->part[j].name);
        text_item(&p->args, "(%s *)(c->work + %s)", type,
                  cg_size(o->a, o->f->sg, o->f->bytes.work + n->part[j].offset));
    }
}

static void nest_kernel(Out *o, const Step *s, const CudaNest *out, int i, const char *const *name,
                        const char *comment)
{
    const Nest *n = s->nest;
    const CudaKernel *x = &out->kernel[i];
    Parameters p = out_parameters(o, s, name, text_all(&x->body));
    part_arguments(o, out, x, &p);
    if (out->order && strstr(text_all(&x->body), "order.")) {
        text_item(&p.params, "%s order", out->order_type);
        text_item(&p.args, "order");
    }
    if (x->when)
        text_open(&o->text, "if (%s) {", x->when);
    text_line(&o->text, "PP_WORK(\"%s\", 0, %s);", nest_kind(n),
              x->first ? out_lin(o, nest_bytes(n)) : "0");
    const KernelText kernel = {comment, x->first ? out->formula : "", text_all(&p.params),
                               text_all(&x->body), out->index, &p.named};
    out_launch(o, s, &kernel, &(Grid){x->threads, x->blocks, x->grid, x->block},
               text_all(&p.args));
    if (x->when)
        text_close(&o->text);
}

static void nest(Out *o, const Step *s, const char *comment)
{
    const char **name = argument_names(o, s);
    CudaNest out;
    nest_print_cuda(o->a, s->nest, o->f->g->batch > 1 ? o->f->g->batch : 1, name, s->shared,
                    &out);
    if (out.bytes_scratch > o->bytes_scratch)
        o->bytes_scratch = out.bytes_scratch;
    if (out.order) {
        text_open(&o->text, "{");
        text_line(&o->text, "const %s order = %s;", out.order_type, out.order);
    }
    for (int i = 0; i < out.n; i++)
        nest_kernel(o, s, &out, i, name,
                    out.n == 1 ? comment
                               : arena_printf(o->a, "%s (%d of %d)", comment, i + 1, out.n));
    if (out.order)
        text_close(&o->text);
}

static const char *fill(Out *o, const char *to, const char *from, const char *bytes)
{
    o->stream = true;
    if (!from)
        return arena_printf(o->a, "PP_CUDA(cudaMemsetAsync(%s, 0, %s, stream));", to, bytes);
    return arena_printf(o->a,
                        "PP_CUDA(cudaMemcpyAsync(%s, %s, %s, cudaMemcpyDeviceToDevice, stream));",
                        to, from, bytes);
}

const TargetRow target_cuda = {
    .ending = "cu",
    .header = "pp_device.h",
    .table = "_cuda",
    .call = "pp_cuda_",
    .context = "c, ",
    .convolution = "PpCudaConv",
    .cplusplus = true,
    .device = true,
    .nest = nest,
    .fill = fill,
};

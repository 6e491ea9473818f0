/*
 * target_cuda.c - CUDA C for NVIDIA's GPUs: a nest is one kernel or several that are launched
 * (cuda.c); the file is C++17.
 */
#include <inttypes.h>
#include <string.h>

#include "print.h"

/* Partial results that a kernel of a nest leaves for later ones, behind the workspace. */
static void part_arguments(Out *o, const CudaNest *n, const CudaKernel *x, const char **params,
                           const char **args)
{
    for (uint32_t j = 0; j < n->parts; j++) {
        const char *type = cg_ctype(n->part[j].type), *sep = **params ? ", " : "";
        if (x->part[j] == PART_UNUSED)
            continue;
        *params = arena_printf(o->a, "%s%s%s%s *__restrict__ part%u", *params, sep,
                               x->part[j] == PART_WRITTEN ? "" : "const ", type, n->part[j].stmt);
        *args = arena_printf(o->a, "%s%s(%s *)(c->work + %" PRId64 ")", *args, sep, type,
                             o->f->bytes_work + n->part[j].offset);
    }
}

static void open_block(Out *o, const char *head)
{
    text_line(&o->text, "%s{", head);
    o->text.indent++;
}

static void close_block(Out *o)
{
    o->text.indent--;
    text_line(&o->text, "}");
}

static void nest_kernel(Out *o, const Step *s, const CudaNest *out, int i, const char *const *name,
                        const char *comment)
{
    const Nest *n = s->nest;
    const CudaKernel *x = &out->kernel[i];
    const char *params = "", *args = "";
    if (x->uses.rows) {
        params = arena_printf(o->a, "%s rows", out->index);
        args = strcmp(out->index, "int") == 0 ? "(int)rows" : "rows";
        o->rows = true;
    }
    for (uint32_t j = 0; j < n->arg.n; j++) {
        const NestArg *y = &n->arg.at[j];
        const char *sep = *params ? ", " : "", *only = s->shared[j] ? "" : "__restrict__ ";
        if (!x->uses.arg[j])
            continue;
        params = arena_printf(o->a, "%s%s%s%s *%s%s", params, sep, y->written ? "" : "const ",
                              cg_ctype(y->type), only, name[j]);
        args = arena_printf(o->a, "%s%s%s", args, sep, out_pointer(o, s, j));
    }
    part_arguments(o, out, x, &params, &args);
    if (out->order && x->body.at && strstr(x->body.at, "order.")) {
        params = arena_printf(o->a, "%s%s%s order", params, *params ? ", " : "", out->order_type);
        args = arena_printf(o->a, "%s%sorder", args, *args ? ", " : "");
    }
    o->rows |= x->grid_rows;
    if (x->when)
        open_block(o, arena_printf(o->a, "if (%s) ", x->when));
    text_line(&o->text, "PP_WORK(\"%s\", 0, %s);", nest_kind(n),
              x->first ? out_lin(o, nest_bytes(n)) : "0");
    Text formula = {.a = o->a};
    if (x->first)
        formula_print(o->a, n, name, &formula);
    const KernelText kernel = {comment, formula.at, params, x->body.at ? x->body.at : ""};
    out_launch(o, out_device_kernel(o, s, &kernel, x->threads, x->blocks), x->grid, x->block, args);
    if (x->when)
        close_block(o);
}

static void nest(Out *o, const Step *s, const char *comment)
{
    const char **name = out_argument_names(o, s);
    CudaNest out;
    nest_print_cuda(o->a, s->nest, o->f->g->batch > 1 ? o->f->g->batch : 1, name, s->shared,
                    &out);
    if (out.bytes_scratch > o->bytes_scratch)
        o->bytes_scratch = out.bytes_scratch;
    if (out.order) {
        open_block(o, "");
        text_line(&o->text, "const %s order = %s;", out.order_type, out.order);
    }
    for (int i = 0; i < out.n; i++)
        nest_kernel(o, s, &out, i, name,
                    out.n == 1 ? comment
                               : arena_printf(o->a, "%s (%d of %d)", comment, i + 1, out.n));
    if (out.order)
        close_block(o);
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

/*
 * kernel.c - how kernels of their own kind are put together: parameters, loops; independent loops
 * are nested loops in C, and on the device the threads of a grid.
 */
#include <string.h>

#include "kernel.h"

const char *kernel_lin(Kernel *k, Lin x)
{
    k->rows |= x.b != 0;
    return lin_text(k->a, x);
}

const char *kernel_factor(Kernel *k, Lin x)
{
    k->rows |= x.b != 0;
    return lin_factor(k->a, x);
}

Lin kernel_ext(const Kernel *k, ValueId v, int d) { return cg_ext(k->f, v, d); }

/* product of the extents [from, to) */
Lin kernel_span(const Kernel *k, ValueId v, int from, int to)
{
    Lin n = lin(1);
    for (int d = from; d < to; d++)
        if (!lin_mul(n, kernel_ext(k, v, d), &n))
            BUG("a size that is not affine in the rows");
    return n;
}

void kernel_param(Kernel *k, ValueId v, const char *name, bool written)
{
    text_add(&k->params, "%s%s%s *%s", k->params.n ? ", " : "", written ? "" : "const ",
             cg_ctype(val(k->f->g, v)->dtype), name);
    text_add(&k->args, "%s%s", k->args.n ? ", " : "", out_arg(k->o, k->s, v));
}

void kernel_open(Kernel *k) { k->body.indent++; }
void kernel_close(Kernel *k)
{
    k->body.indent--;
    line("}");
}

void kernel_loop(Kernel *k, const char *i, Lin n)
{
    line("for (%s %s = 0; %s < %s; %s++) {", k->index, i, i, kernel_lin(k, n), i);
    kernel_open(k);
}

void kernel_parallel(Kernel *k, int n, const char *const *name, const Lin *extent, bool threads)
{
    if (!k->device) {
        if (threads)
            line(n > 1 ? "#pragma omp parallel for collapse(%d)" : "#pragma omp parallel for", n);
        for (int i = 0; i < n; i++)
            kernel_loop(k, name[i], extent[i]);
        k->opened = n;
        return;
    }
    const char *wide = strcmp(k->index, "int") == 0 ? "" : "_wide", *e = n == 1 ? name[0] : "n";
    Lin size = lin(1);
    k->work = lin(1);
    for (int i = 0; i < n; i++)
        if (!lin_mul(k->work, extent[i], &k->work))
            BUG("a size that is not affine in the rows");
    line("for (%s %s = pp_thread%s(); %s < %s; %s += pp_threads%s()) {", k->index, e, wide, e,
         kernel_lin(k, k->work), e, wide);
    kernel_open(k);
    for (int i = n - 1; i >= 0; i--) {
        const char *q =
            lin_is(size, 1) ? e : arena_printf(k->a, "%s / %s", e, kernel_factor(k, size));
        if (n > 1 && i > 0)
            line("const %s %s = %s %% %s;", k->index, name[i], q, kernel_factor(k, extent[i]));
        else if (n > 1)
            line("const %s %s = %s;", k->index, name[i], q);
        if (!lin_mul(size, extent[i], &size))
            BUG("a size that is not affine in the rows");
    }
    k->opened = 1;
}

void kernel_close_parallel(Kernel *k)
{
    for (int i = 0; i < k->opened; i++)
        kernel_close(k);
}

bool kernel_wants(const Kernel *k, uint32_t out)
{
    return out < k->n->nout && k->f->needed[k->n->out[out]];
}

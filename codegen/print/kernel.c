/*
 * kernel.c - how kernels of their own kind are put together: parameters, loops; independent loops
 * are nested loops in C, and on the device the threads of a grid.
 */
#include <string.h>

#include "kernel.h"

const char *kernel_lin(const Kernel *k, Lin x) { return lin_text(k->a, k->f->sg, x); }

const char *kernel_factor(const Kernel *k, Lin x) { return lin_factor(k->a, k->f->sg, x); }

void kernel_param(Kernel *k, ValueId v, const char *name, bool written)
{
    text_add(&k->params, "%s%s%s *%s", k->params.n ? ", " : "", written ? "" : "const ",
             cg_ctype(val(k->f->g, v)->dtype), name);
    text_add(&k->args, "%s%s", k->args.n ? ", " : "", out_arg(k->o, k->s, v));
}

void kernel_loop(Kernel *k, const char *i, Lin n)
{
    open_block("for (%s %s = 0; %s < %s; %s++) {", k->index, i, i, kernel_lin(k, n), i);
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
    k->work = lin(1);
    for (int i = 0; i < n; i++)
        k->work = lin_product(k->work, extent[i]);
    open_block("for (%s %s = pp_thread%s(); %s < %s; %s += pp_threads%s()) {", k->index, e, wide, e,
               kernel_lin(k, k->work), e, wide);
    if (n > 1)
        out_places(&k->body, k->f->sg, k->index, e, n, name, extent);
    k->opened = 1;
}

void kernel_close_parallel(Kernel *k)
{
    for (int i = 0; i < k->opened; i++)
        close_block();
}

bool kernel_wants(const Kernel *k, uint32_t out)
{
    return out < k->n->nout && k->f->needed[k->n->out[out]];
}

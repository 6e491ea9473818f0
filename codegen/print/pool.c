/*
 * pool.c - MaxPool and AveragePool: loops over channels, outputs and the window.
 */
#include <string.h>

#include "kernel.h"

static const char *const pool_out[3] = {"oz", "oy", "ox"}, *const pool_in[3] = {"z", "y_", "x_"};

static const char *size(Kernel *k, int64_t n) { return kernel_lin(k, lin(n)); }

static const char *times(Kernel *k, const char *x, int64_t by)
{
    const char *factor = strchr(x, ' ') ? arena_printf(k->a, "(%s)", x) : x;
    return by == 1 ? x : arena_printf(k->a, "%s * %s", factor, kernel_factor(k, lin(by)));
}

static const char *less(Kernel *k, const char *x, int64_t by)
{
    return by == 0 ? x : arena_printf(k->a, "%s - %s", x, kernel_factor(k, lin(by)));
}

/* Where tap k_i of a window is from the window's beginning. */
static const char *tap_at(Kernel *k, int i)
{
    return times(k, arena_printf(k->a, "k%d", i), k->n->attr.dilation[i]);
}

static const char *linear(Kernel *k, const char *head, const char *const *name, const int64_t *d,
                          int n)
{
    const char *s = head;
    for (int i = 0; i < n; i++)
        s = arena_printf(k->a, "%s + %s", times(k, s, d[i]), name[i]);
    return s;
}

/* The loop over dimension i of the window: inside, `in` is a position of the operand. */
static void pool_tap(Kernel *k, int i, const char *out, const char *in)
{
    const Attr *at = &k->n->attr;
    open_block("for (%s k%d = 0; k%d < %s; k%d++) {", k->index, i, i, size(k, at->kernel[i]), i);
    line("const %s %s = %s + %s;", k->index, in, less(k, times(k, out, at->stride[i]), at->pad[i]),
         tap_at(k, i));
    line("if (%s < 0 || %s >= %s)", in, in, size(k, val(k->f->g, k->n->in[0])->shape.d[i + 2]));
    line("    continue;");
}

static void pool_loops(Kernel *k, const char *const *out, const char *const *in)
{
    for (int i = 0; i < k->n->attr.n; i++)
        pool_tap(k, i, out[i], in[i]);
}

/* Which outputs of a line the tap k_i of its dimension has inside the operand: [lo, hi). */
static void line_span(Kernel *k, int i, int64_t in, int64_t out)
{
    const Attr *at = &k->n->attr;
    const char *behind = arena_printf(k->a, "%s - %s", size(k, at->pad[i]), tap_at(k, i)),
               *stride = size(k, at->stride[i]), *end = size(k, out);
    line("const %s lo = pp_between(0, (%s + %s) / %s, %s);", k->index, behind,
         size(k, at->stride[i] - 1), stride, end);
    line("const %s hi = pp_between(lo, (%s + %s) / %s, %s);", k->index, behind,
         size(k, in + at->stride[i] - 1), stride, end);
}

/* What a tap does to the outputs [lo, hi) of a line. */
static void max_tap(Kernel *k, bool index, int64_t stride)
{
    Dtype t = val(k->f->g, k->n->in[0])->dtype;
    line("#pragma omp simd");
    if (!index) {
        line("for (%s j = lo; j < hi; j++)", k->index);
        line("    to[j] = pp_max%s(to[j], from[tap + %s]);", type_suffix(t), times(k, "j", stride));
        return;
    }
    open_block("for (%s j = lo; j < hi; j++) {", k->index);
    line("const %s v = from[tap + %s];", cg_ctype(t), times(k, "j", stride));
    line("const int better = (at[j] < 0) | (v > to[j]) | (v != v);");
    line("to[j] = better ? v : to[j];");
    line("at[j] = better ? tap + %s : at[j];", times(k, "j", stride));
    close_block();
}

/* The maximum of each window of a line, tap by tap along the line: nothing is asked inside. */
static void max_lines(Kernel *k, const char *const *out, const char *const *in, bool index,
                      int64_t plane)
{
    const Attr *at = &k->n->attr;
    const Shape *xs = &val(k->f->g, k->n->in[0])->shape, *ys = &val(k->f->g, k->n->out[0])->shape;
    Dtype t = val(k->f->g, k->n->in[0])->dtype;
    int last = at->n - 1;
    int64_t width = xs->d[last + 2], wide = ys->d[last + 2];
    const char *ct = cg_ctype(t), *to = linear(k, "c", out, ys->d + 2, last), *end = size(k, wide),
               *from = last ? linear(k, in[0], in + 1, xs->d + 3, last - 1) : "0";
    line("%s *to = y + %s;", ct, times(k, to, wide));
    if (index)
        line("%s *at = index + %s;", k->index, times(k, to, wide));
    line("for (%s j = 0; j < %s; j++)", k->index, end);
    line("    to[j] = %s%s;", type_lowest(t), index ? ", at[j] = -1" : "");
    for (int i = 0; i < last; i++)
        pool_tap(k, i, out[i], in[i]);
    open_block("for (%s k%d = 0; k%d < %s; k%d++) {", k->index, last, last,
               size(k, at->kernel[last]), last);
    line_span(k, last, width, wide);
    const char *tap = arena_printf(k->a, "%s + %s", times(k, from, width), tap_at(k, last));
    line("const %s tap = %s;", k->index, less(k, tap, at->pad[last]));
    max_tap(k, index, at->stride[last]);
    for (int i = 0; i <= last; i++)
        close_block();
    if (index) {
        line("for (%s j = 0; j < %s; j++)", k->index, end);
        line("    at[j] = c * %s + (at[j] < 0 ? 0 : at[j]);", size(k, plane));
    }
}

/* The place in a plane that the loops over a window have come to. */
static const char *pool_place(Kernel *k, const char *const *in)
{
    return linear(k, in[0], in + 1, val(k->f->g, k->n->in[0])->shape.d + 3, k->n->attr.n - 1);
}

/* y[to] and, where it is asked for, which element of x it was. */
static void max_window(Kernel *k, const char *const *out, const char *const *in, const char *to,
                       int64_t plane)
{
    const Node *n = k->n;
    Dtype t = val(k->f->g, n->in[0])->dtype;
    const char *ct = cg_ctype(t), *src = pool_place(k, in);
    bool index = kernel_wants(k, 1);
    line("%s best = %s;", ct, type_lowest(t));
    if (index)
        line("%s at = -1;", k->index);
    pool_loops(k, out, in);
    line("const %s v = from[%s];", ct, src);
    if (index) {
        open_block("if (at < 0 || v > best || v != v) {");
        line("best = v;");
        line("at = %s;", src);
        close_block();
    } else {
        line("best = pp_max%s(best, v);", type_suffix(t));
    }
    for (int i = 0; i < n->attr.n; i++)
        close_block();
    line("y[%s] = best;", to);
    if (index)
        line("index[%s] = (int64_t)c * %s + (at < 0 ? 0 : at);", to, size(k, plane));
}

/* y[to] = the window's sum over how many places it covers. */
static void average_window(Kernel *k, const char *const *out, const char *const *in, const char *to)
{
    const Attr *at = &k->n->attr;
    const Shape *xs = &val(k->f->g, k->n->in[0])->shape;
    Dtype t = val(k->f->g, k->n->in[0])->dtype;
    line("%s sum = 0;", type_sum(t));
    line("%s count = 1;", k->index);
    /* how many places the window covers along each axis */
    for (int i = 0; i < at->n; i++) {
        int64_t low = at->count_include_pad ? -at->pad[i] : 0,
                high = at->count_include_pad ? xs->d[i + 2] + at->pad[at->n + i] : xs->d[i + 2];
        line("%s n%d = 0;", k->index, i);
        line("for (%s j = 0, p = %s; j < %s; j++, p += %s)", k->index,
             less(k, times(k, out[i], at->stride[i]), at->pad[i]), size(k, at->kernel[i]),
             size(k, at->dilation[i]));
        line("    n%d += p >= %s && p < %s;", i, size(k, low), size(k, high));
        line("count *= n%d;", i);
    }
    pool_loops(k, out, in);
    line("sum += from[%s];", pool_place(k, in));
    for (int i = 0; i < at->n; i++)
        close_block();
    line("y[%s] = count > 0 ? sum / (%s)count : 0;", to, cg_ctype(t));
}

void kernel_pool(Kernel *k, bool max)
{
    const Node *n = k->n;
    const Attr *at = &n->attr;
    ValueId x = n->in[0], y = n->out[0];
    const Shape *xs = &val(k->f->g, x)->shape, *ys = &val(k->f->g, y)->shape;
    const char *ct = cg_ctype(val(k->f->g, x)->dtype);
    bool index = max && kernel_wants(k, 1);
    const char *const *out = pool_out + 3 - at->n, *const *in = pool_in + 3 - at->n;
    int64_t plane = 1;
    for (int i = 0; i < at->n; i++)
        plane *= xs->d[i + 2];
    kernel_param(k, x, "x", false);
    kernel_param(k, y, "y", true);
    if (index)
        kernel_param(k, n->out[1], "index", true);
    const char *each[4] = {"c"};
    Lin many[4] = {cg_span(k->f, x, 0, 2)};
    for (int i = 0; i < at->n; i++) {
        each[i + 1] = out[i];
        many[i + 1] = lin(ys->d[i + 2]);
    }
    kernel_parallel(k, k->device ? at->n + 1 : 1, each, many, true);
    line("const %s *from = x + c * %s;", ct, size(k, plane));
    bool lines = max && !k->device;
    for (int i = 0; i < at->n - lines && !k->device; i++)
        kernel_loop(k, out[i], many[i + 1]);
    if (lines) {
        max_lines(k, out, in, index, plane);
        for (int i = 0; i < at->n - 1; i++)
            close_block();
        kernel_close_parallel(k);
        return;
    }
    const char *to = linear(k, "c", out, ys->d + 2, at->n);
    if (max)
        max_window(k, out, in, to, plane);
    else
        average_window(k, out, in, to);
    for (int i = 0; i < at->n && !k->device; i++)
        close_block();
    kernel_close_parallel(k);
}

/*
 * scatter.c - scatters: y starts as the operand, as zeros or as it stands, and the updates go where
 * the indices say.  In C one after the other, in their order.  On the device the same order for
 * every element of y, without floating-point atomics:
 *
 *   ScatterND        a block per update; the first update of a place takes all later ones of that
 * place, in order (pp_scatter_rows) ScatterElements  updates of a line along the axis meet only one
 * another: a thread per line where there are many, else a block per stretch of the line's elements,
 * which walks the line's updates (pp_scatter_line)
 */
#include <string.h>

#include "kernel.h"

static const char *combine(Kernel *k, int mode, Dtype t, const char *at, const char *x)
{
    const char *s = type_suffix(t);
    switch (mode) {
    case SCATTER_ADD: return arena_printf(k->a, "%s += %s;", at, x);
    case SCATTER_MUL: return arena_printf(k->a, "%s *= %s;", at, x);
    case SCATTER_MAX: return arena_printf(k->a, "%s = pp_max%s(%s, %s);", at, s, at, x);
    case SCATTER_MIN: return arena_printf(k->a, "%s = pp_min%s(%s, %s);", at, s, at, x);
    default: return arena_printf(k->a, "%s = %s;", at, x);
    }
}

/* y starts as the operand, as zeros, or is added to as it stands. */
static void start(Kernel *k)
{
    const ValueId x = k->n->in[0], y = k->n->out[0];
    kernel_param(k, k->n->in[1], "index", false);
    kernel_param(k, k->n->in[2], "updates", false);
    kernel_param(k, y, "y", true);
    Lin n = cg_span(k->f, y, 0, val(k->f->g, y)->shape.rank);
    bool zeros = cg_zeros(k->f->g, x);
    if (k->f->acc.at[y])
        return;
    if (k->device) {
        const char *to = out_arg(k->o, k->s, y);
        const char *bytes = arena_printf(k->a, "(size_t)(%s) * %zu", out_lin(k->o, n),
                                         dtype_size(val(k->f->g, y)->dtype));
        k->before = k->o->target->fill(k->o, to, zeros ? NULL : out_arg(k->o, k->s, x), bytes);
    } else if (zeros) {
        line("memset(y, 0, sizeof *y * (size_t)(%s));", kernel_lin(k, n));
    } else {
        kernel_param(k, x, "x", false);
        line("memcpy(y, x, sizeof *y * (size_t)(%s));", kernel_lin(k, n));
    }
}

/* ---- ScatterElements ------------------------------------------------------------------------- */

typedef struct {
    const char *name[MAX_RANK];     /* of the indices */
    /* where an update stands, and where it goes when at is the index it holds */
    const char *from, *to;
    int rank, axis;
} Places;

static Places places(Kernel *k, const char *at)
{
    const Node *n = k->n;
    ValueId y = n->out[0], index = n->in[1];
    Places p = {
        .from = "", .to = "", .rank = val(k->f->g, y)->shape.rank, .axis = (int)n->attr.axis};
    Lin sy = lin(1), su = lin(1);
    for (int d = p.rank - 1; d >= 0; d--) {
        const char *i = p.name[d] = arena_printf(k->a, "i%d", d);
        const char *fu = lin_is(su, 1) ? "" : arena_printf(k->a, " * %s", kernel_factor(k, su));
        const char *fy = lin_is(sy, 1) ? "" : arena_printf(k->a, " * %s", kernel_factor(k, sy));
        p.from = arena_printf(k->a, "%s%s%s%s", i, fu, *p.from ? " + " : "", p.from);
        p.to = arena_printf(k->a, "%s%s%s%s", d == p.axis ? at : i, fy, *p.to ? " + " : "", p.to);
        if (!lin_mul(sy, cg_ext(k->f, y, d), &sy) || !lin_mul(su, cg_ext(k->f, index, d), &su))
            BUG("a size that is not affine in the rows");
    }
    if (p.rank == 0)
        p.from = p.to = "0";
    return p;
}

static void one_by_one(Kernel *k)
{
    const Node *n = k->n;
    ValueId y = n->out[0], index = n->in[1];
    Places p = places(k, arena_printf(k->a, "pp_index(index[e], %s)",
                                      kernel_lin(k, cg_ext(k->f, y, (int)n->attr.axis))));
    const char *each[MAX_RANK] = {"only"};
    Lin many[MAX_RANK] = {{1, 0}};
    int free = 0;
    for (int d = 0; d < p.rank && k->device; d++)
        if (d != p.axis) {
            each[free] = p.name[d];
            many[free++] = cg_ext(k->f, index, d);
        }
    if (k->device)
        kernel_parallel(k, free ? free : 1, each, many, false);
    for (int d = 0; d < p.rank; d++)
        if (!k->device || d == p.axis)
            kernel_loop(k, p.name[d], cg_ext(k->f, index, d));
    line("const %s e = %s;", k->index, p.from);
    line("%s", combine(k, n->attr.reduction, val(k->f->g, y)->dtype,
                       arena_printf(k->a, "y[%s]", p.to), "updates[e]"));
    for (int d = 0; d < p.rank; d++)
        if (!k->device || d == p.axis)
            close_block();
    if (k->device)
        kernel_close_parallel(k);
}

/* The lines of a scatter for the device: which block does which stretch of which line. */
typedef struct { Lin lines, updates, elements; } Lines;
enum { STRETCH = 2048 };

static void open_lines(Kernel *k, const Lines *l)
{
    const char *stretches =
        out_parts(k->a, k->f->sg, lin_at(l->elements, k->f->g->batch), STRETCH);
    const bool one = !strcmp(stretches, "1");
    k->grid = arena_printf(k->a, "static_cast<unsigned>(%s%s%s)",
                           kernel_factor(k, l->lines), one ? "" : " * ",
                           one ? "" : stretches);
    if (lin_is(l->lines, 1)) {
        line("const %s first = static_cast<%s>(blockIdx.x) * %d;", k->index, k->index, STRETCH);
    } else if (one) {
        line("const %s line = static_cast<%s>(blockIdx.x), first = 0;", k->index, k->index);
    } else {
        line("const %s line = static_cast<%s>(blockIdx.x / %s);", k->index, k->index, stretches);
        line("const %s first = static_cast<%s>(blockIdx.x %% %s) * %d;", k->index, k->index,
             stretches, STRETCH);
    }
}

static void walk_line(Kernel *k, const Lines *l, const char *axis, const char *at, const char *then)
{
    line("pp_scatter_line<%d, %d>(%s, first,", k->threads, STRETCH, kernel_lin(k, l->updates));
    line("    [=](%s %s) { return static_cast<%s>(%s); },", k->index, axis, k->index, at);
    line("    [=](%s %s, %s at) { %s });", k->index, axis, k->index, then);
}

static void by_lines(Kernel *k)
{
    const Node *n = k->n;
    ValueId y = n->out[0], index = n->in[1];
    Places p = places(k, "at");
    Lines l = {lin(1), cg_ext(k->f, index, p.axis), cg_ext(k->f, y, p.axis)};
    for (int d = 0; d < p.rank; d++)
        if (d != p.axis && !lin_mul(l.lines, cg_ext(k->f, index, d), &l.lines))
            BUG("a size that is not affine in the rows");
    open_lines(k, &l);
    Lin size = lin(1);
    for (int d = p.rank - 1; d >= 0; d--) {             /* the line's place, out of its number */
        if (d == p.axis)
            continue;
        const char *q =
            lin_is(size, 1) ? "line" : arena_printf(k->a, "line / %s", kernel_factor(k, size));
        line("const %s %s = %s %% %s;", k->index, p.name[d], lin_is(l.lines, 1) ? "0" : q,
             kernel_factor(k, cg_ext(k->f, index, d)));
        size = lin_product(size, cg_ext(k->f, index, d));
    }
    const char *update = arena_printf(k->a, "updates[%s]", p.from);
    walk_line(k, &l, p.name[p.axis],
              arena_printf(k->a, "pp_index(index[%s], %s)", p.from, kernel_lin(k, l.elements)),
              combine(k, n->attr.reduction, val(k->f->g, y)->dtype,
                      arena_printf(k->a, "y[%s]", p.to), update));
}

/* The gradient of a MaxPool scatters over all of x at once, but the windows of a plane lie in that
 * plane: planes are lines. */
static bool planes_of_pool(Kernel *k, Lines *l)
{
    const Graph *g = k->f->g;
    const Node *pool = graph_made_by(g, graph_behind_views(g, k->n->in[1]), OP_MaxPool);
    if (!pool || val(g, k->n->out[0])->shape.rank != 1)
        return false;
    const Shape *x = &val(g, pool->in[0])->shape, *y = &val(g, pool->out[0])->shape;
    int64_t in = 1, out = 1;
    for (int d = 2; d < x->rank; d++) {
        in *= x->d[d];
        out *= y->d[d];
    }
    *l = (Lines){.updates = lin(out), .elements = lin(in)};
    return shape_elements(&val(g, k->n->in[1])->shape) == shape_elements(y) &&
           shape_elements(&val(g, k->n->out[0])->shape) == shape_elements(x) &&
           lin_div(cg_ext(k->f, k->n->in[1], 0), lin(out), &l->lines);
}

void kernel_scatter_elements(Kernel *k)
{
    enum { MANY_LINES = 4096, SHORT_LINE = 16 };
    const Node *n = k->n;
    ValueId y = n->out[0], index = n->in[1];
    const Shape *s = &val(k->f->g, index)->shape;
    int axis = (int)n->attr.axis;
    Lines pool;
    start(k);
    if (!k->device || s->rank == 0 || cg_most(k->f->sg, s->d[axis]) <= SHORT_LINE ||
        cg_most(k->f->sg, shape_elements(s) / s->d[axis]) >= MANY_LINES) {
        one_by_one(k);
    } else if (planes_of_pool(k, &pool)) {
        open_lines(k, &pool);
        const char *updates = kernel_lin(k, pool.updates), *elements = kernel_lin(k, pool.elements);
        const char *at =
            arena_printf(k->a, "index[line * %s + i] - line * %s", updates, elements);
        const char *to = arena_printf(k->a, "y[line * %s + at]", elements);
        const char *update = arena_printf(k->a, "updates[line * %s + i]", updates);
        walk_line(k, &pool, "i", at,
                  combine(k, n->attr.reduction, val(k->f->g, y)->dtype, to, update));
    } else {
        by_lines(k);
    }
}

/* ---- ScatterND ------------------------------------------------------------------------------- */

/* Where update i goes, in elements of y. */
static const char *destination(Kernel *k)
{
    ValueId y = k->n->out[0], index = k->n->in[1];
    const Shape *is = &val(k->f->g, index)->shape;
    int rank = val(k->f->g, y)->shape.rank, q = (int)is->d[is->rank - 1];
    const char *at = "";
    for (int d = 0; d < q; d++) {
        const char *ip = q == 1 ? "i"
                         : d    ? arena_printf(k->a, "i * %d + %d", q, d)
                                : arena_printf(k->a, "i * %d", q);
        Lin stride = cg_span(k->f, y, d + 1, rank);
        const char *by =
            lin_is(stride, 1) ? "" : arena_printf(k->a, " * %s", kernel_factor(k, stride));
        at = arena_printf(k->a, "%s%spp_index(index[%s], %s)%s", at, d ? " + " : "", ip,
                          kernel_lin(k, cg_ext(k->f, y, d)), by);
    }
    return at;
}

static void rows_in_order(Kernel *k, Lin updates, Lin slice)
{
    const char *t = cg_ctype(val(k->f->g, k->n->out[0])->dtype), *at = destination(k);
    Dtype type = val(k->f->g, k->n->out[0])->dtype;
    kernel_loop(k, "i", updates);
    line("%s *to = y%s%s;", t, *at ? " + " : "", at);
    if (lin_is(slice, 1)) {
        line("%s", combine(k, k->n->attr.reduction, type, "to[0]", "updates[i]"));
    } else {
        line("const %s *from = updates + i * %s;", t, kernel_factor(k, slice));
        line("#pragma omp simd");
        line("for (int64_t j = 0; j < %s; j++)", kernel_lin(k, slice));
        line("    %s", combine(k, k->n->attr.reduction, type, "to[j]", "from[j]"));
    }
    close_block();
}

static void rows_by_owner(Kernel *k, Lin updates, Lin slice)
{
    const char *t = cg_ctype(val(k->f->g, k->n->out[0])->dtype), *at = destination(k);
    Dtype type = val(k->f->g, k->n->out[0])->dtype;
    const char *update = "updates[list[m]]";
    if (!lin_is(slice, 1))
        update = arena_printf(k->a, "updates[list[m] * %s + j]", kernel_factor(k, slice));
    k->grid = lin_is(updates, 0)
                  ? "1"
                  : arena_printf(k->a, "static_cast<unsigned>(%s)", out_lin(k->o, updates));
    line("pp_scatter_rows<%d>(%s, [=](%s i) { return %s; },", k->threads, kernel_lin(k, updates),
         k->index, *at ? at : "INT64_C(0) * i");
    open_block("    [=](int64_t place, const %s *list, int count) {", k->index);
    open_block("    for (%s j = static_cast<int>(threadIdx.x); j < %s; j += %d) {", k->index,
               kernel_lin(k, slice), k->threads);
    line("    %s to = y[place + j];", t);
    line("    for (int m = 0; m < count; m++)");
    line("        %s", combine(k, k->n->attr.reduction, type, "to", update));
    line("    y[place + j] = to;");
    k->body.indent--;
    line("    }");
    k->body.indent--;
    line("    });");
}

void kernel_scatter_nd(Kernel *k)
{
    const Node *n = k->n;
    ValueId y = n->out[0], index = n->in[1];
    const Shape *is = &val(k->f->g, index)->shape;
    int rank = val(k->f->g, y)->shape.rank, q = (int)is->d[is->rank - 1];
    start(k);
    Lin slice = cg_span(k->f, y, q, rank), updates = cg_span(k->f, index, 0, is->rank - 1);
    if (k->device)
        rows_by_owner(k, updates, slice);
    else
        rows_in_order(k, updates, slice);
}

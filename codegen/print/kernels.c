/*
 * kernels.c - the few operations that are neither nests nor library calls: cumulative sums, TopK, pools, Dropout, paddings by
 * reflection, products of integers; scatters: scatter.c.  Each prints a small function of its own shapes over row-major
 * tensors, shared by all nodes whose text is the same: in C loops, in CUDA C the same body with the outer loops taken
 * by the threads of a grid.
 */
#include <inttypes.h>
#include <string.h>

#include "kernel.h"

static Lin ext(const Kernel *k, ValueId v, int d) { return cg_ext(k->f, v, d); }

/* product of the extents [from, to) */
Lin kernel_span(const Kernel *k, ValueId v, int from, int to)
{
    Lin n = lin(1);
    for (int d = from; d < to; d++)
        if (!lin_mul(n, ext(k, v, d), &n))
            BUG("a size that is not affine in the rows");
    return n;
}

const char *kernel_pointer(Kernel *k, ValueId v, bool written)
{
    const Ref *r = cg_ref(k->f, v);
    return cg_pointer(k->f, r->buf, r->off, written);
}

void kernel_param(Kernel *k, ValueId v, const char *name, bool written)
{
    k->params = arena_printf(k->a, "%s%s%s%s *%s", k->params, *k->params ? ", " : "", written ? "" : "const ",
                             cg_ctype(val(k->f->g, v)->dtype), name);
    k->args = arena_printf(k->a, "%s%s%s", k->args, *k->args ? ", " : "", kernel_pointer(k, v, written));
}

void kernel_open(Kernel *k) { k->body.indent++; }
void kernel_close(Kernel *k)
{
    k->body.indent--;
    line("}");
}

void kernel_loop(Kernel *k, const char *i, Lin n)
{
    line("for (%s %s = 0; %s < %s; %s++) {", k->index, i, i, num(k, n), i);
    kernel_open(k);
}

void kernel_parallel(Kernel *k, int n, const char *const *name, const Lin *extent, bool threads)
{
    if (!k->cuda) {
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
    line("for (%s %s = pp_thread%s(); %s < %s; %s += pp_threads%s()) {", k->index, e, wide, e, num(k, k->work), e, wide);
    kernel_open(k);
    for (int i = n - 1; i >= 0; i--) {
        const char *q = lin_is(size, 1) ? e : arena_printf(k->a, "%s / %s", e, lin_factor(k->a, size));
        if (n > 1 && i > 0)
            line("const %s %s = %s %% %s;", k->index, name[i], q, lin_factor(k->a, extent[i]));
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

static bool wants(const Kernel *k, uint32_t out)
{
    return out < k->n->nout && k->f->needed[k->n->out[out]];
}

/* ---- along an axis --------------------------------------------------------------------------------------- */

static void cumsum(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0], y = n->out[0];
    int axis = (int)n->attr.axis, rank = val(k->f->g, x)->shape.rank;
    Lin inner = kernel_span(k, x, axis + 1, rank), len = ext(k, x, axis);
    bool back = n->attr.scan & CUMSUM_REVERSE, exclusive = n->attr.scan & CUMSUM_EXCLUSIVE;
    kernel_param(k, x, "x", false);
    kernel_param(k, y, "y", true);
    kernel_parallel(k, 2, (const char *const[]){"o", "i"}, (const Lin[]){kernel_span(k, x, 0, axis), inner}, false);
    line("%s sum = 0;", cg_ctype(val(k->f->g, x)->dtype));
    kernel_loop(k, "s", len);
    const char *s = back ? arena_printf(k->a, "(%s - 1 - s)", lin_factor(k->a, len)) : "s";
    line("const %s e = (o * %s + %s) * %s + i;", k->index, lin_factor(k->a, len), s, lin_factor(k->a, inner));
    if (exclusive) {
        line("const %s x_e = x[e];", cg_ctype(val(k->f->g, x)->dtype));
        line("y[e] = sum;");
        line("sum += x_e;");
    } else {
        line("sum += x[e];");
        line("y[e] = sum;");
    }
    kernel_close(k);
    kernel_close_parallel(k);
}

/* Sorted insertion; of equal values the lower index comes first; NaN counts as the largest. */
static void topk(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0];
    int axis = (int)n->attr.axis, rank = val(k->f->g, x)->shape.rank;
    Lin inner = kernel_span(k, x, axis + 1, rank), len = ext(k, x, axis);
    const char *t = cg_ctype(val(k->f->g, x)->dtype);
    bool largest = n->attr.largest != 0, real = dtype_is_float(val(k->f->g, x)->dtype);
    kernel_param(k, x, "x", false);
    kernel_param(k, n->out[0], "y", true);
    kernel_param(k, n->out[1], "index", true);
    if (n->attr.k == 0)
        return;
    kernel_parallel(k, 2, (const char *const[]){"o", "i"}, (const Lin[]){kernel_span(k, x, 0, axis), inner}, true);
    const char *in = lin_factor(k->a, inner);
    line("const %s *from = x + o * %s * %s + i;", t, lin_factor(k->a, len), in);
    line("%s *to = y + o * %" PRId64 " * %s + i;", t, n->attr.k, in);
    line("int64_t *at = index + o * %" PRId64 " * %s + i;", n->attr.k, in);
    line("%s kept = 0;", k->index);
    kernel_loop(k, "e", len);
    line("const %s v = from[e * %s];", t, in);
    line("%s p = kept;", k->index);
    const char *better = largest ? "v > w" : "v < w";
    if (real)
        better = largest ? "v > w || (v != v && w == w)" : "v < w || (v == v && w != w)";
    line("while (p > 0) {");
    kernel_open(k);
    line("const %s w = to[(p - 1) * %s];", t, in);
    line("if (!(%s))", better);
    line("    break;");
    line("p--;");
    kernel_close(k);
    line("if (p == %" PRId64 ")", n->attr.k);
    line("    continue;");
    line("if (kept < %" PRId64 ")", n->attr.k);
    line("    kept++;");
    line("for (%s s = kept - 1; s > p; s--) {", k->index);
    kernel_open(k);
    line("to[s * %s] = to[(s - 1) * %s];", in, in);
    line("at[s * %s] = at[(s - 1) * %s];", in, in);
    kernel_close(k);
    line("to[p * %s] = v;", in);
    line("at[p * %s] = e;", in);
    kernel_close(k);
    kernel_close_parallel(k);
}

/* ---- pools ---------------------------------------------------------------------------------------------------- */

static const char *const pool_out[3] = {"oz", "oy", "ox"}, *const pool_in[3] = {"z", "y_", "x_"};

static const char *linear(Kernel *k, const char *head, const char *const *name, const int64_t *d, int n)
{
    const char *s = head;
    for (int i = 0; i < n; i++)
        s = arena_printf(k->a, "(%s) * %" PRId64 " + %s", s, d[i], name[i]);
    return s;
}

/* The loops over channels, outputs and the window; inside, each pool_in[i] is a position of the operand. */
static void pool_loops(Kernel *k, const char *const *out, const char *const *in)
{
    const Attr *at = &k->n->attr;
    const Shape *x = &val(k->f->g, k->n->in[0])->shape;
    for (int i = 0; i < at->n; i++) {
        line("for (%s k%d = 0; k%d < %" PRId64 "; k%d++) {", k->index, i, i, at->kernel[i], i);
        kernel_open(k);
        line("const %s %s = %s * %" PRId64 " - %" PRId64 " + k%d * %" PRId64 ";", k->index, in[i], out[i], at->stride[i], at->pad[i], i, at->dilation[i]);
        line("if (%s < 0 || %s >= %" PRId64 ")", in[i], in[i], x->d[i + 2]);
        line("    continue;");
    }
}

static const char *numbers(Kernel *k, const int64_t *d)
{
    const char *s = "{";
    for (int i = 0; i < k->n->attr.n; i++)
        s = arena_printf(k->a, "%s%s%" PRId64, s, i ? ", " : "", d[i]);
    return arena_printf(k->a, "%s}", s);
}

/* On the device the library may do a pool that needs no indices. */
static void library_pool(Kernel *k, bool max)
{
    const Attr *at = &k->n->attr;
    ValueId x = k->n->in[0], y = k->n->out[0];
    const Shape *xs = &val(k->f->g, x)->shape, *ys = &val(k->f->g, y)->shape;
    Dtype t = val(k->f->g, x)->dtype;
    if (!k->cuda || !dtype_is_float(t))
        return;
    for (int i = 0; i < at->n; i++)
        if (at->dilation[i] != 1 || at->pad[i] != at->pad[at->n + i])
            return;
    const char *kind = max ? "PP_POOL_MAX" : at->count_include_pad ? "PP_POOL_WHOLE" : "PP_POOL_INSIDE";
    k->shape = arena_printf(k->a, "PpPoolShape pool = {%s, %d, %s, %s, %s, %s, %s, %s}", t == DT_F32 ? "PP_F32" : "PP_F64", at->n, kind,
                            numbers(k, xs->d + 2), numbers(k, ys->d + 2), numbers(k, at->kernel), numbers(k, at->stride), numbers(k, at->pad));
    k->call = arena_printf(k->a, "pp_cuda_pool_forward(c, &pool, %s, %s, %s)", num(k, kernel_span(k, x, 0, 2)), kernel_pointer(k, x, false),
                           kernel_pointer(k, y, true));
}

static void pool(Kernel *k, bool max)
{
    const Node *n = k->n;
    const Attr *at = &n->attr;
    ValueId x = n->in[0], y = n->out[0];
    const Shape *xs = &val(k->f->g, x)->shape, *ys = &val(k->f->g, y)->shape;
    Dtype t = val(k->f->g, x)->dtype;
    const char *ct = cg_ctype(t), *suffix = t == DT_F32 ? "f" : t == DT_F64 ? "" : t == DT_I64 ? "l" : "i";
    bool index = max && wants(k, 1);
    if (!index)
        library_pool(k, max);
    const char *const *out = pool_out + 3 - at->n, *const *in = pool_in + 3 - at->n;
    int64_t plane = 1;
    for (int i = 0; i < at->n; i++)
        plane *= xs->d[i + 2];
    kernel_param(k, x, "x", false);
    kernel_param(k, y, "y", true);
    if (index)
        kernel_param(k, n->out[1], "index", true);
    const char *each[4] = {"c"};
    Lin many[4] = {kernel_span(k, x, 0, 2)};
    for (int i = 0; i < at->n; i++) {
        each[i + 1] = out[i];
        many[i + 1] = lin(ys->d[i + 2]);
    }
    kernel_parallel(k, k->cuda ? at->n + 1 : 1, each, many, true);
    line("const %s *from = x + c * %" PRId64 ";", ct, plane);
    for (int i = 0; i < at->n && !k->cuda; i++)
        kernel_loop(k, out[i], many[i + 1]);
    const char *to = linear(k, "c", out, ys->d + 2, at->n), *src = linear(k, "0", in, xs->d + 2, at->n);
    src = in[0];
    for (int i = 1; i < at->n; i++)
        src = arena_printf(k->a, "(%s) * %" PRId64 " + %s", src, xs->d[i + 2], in[i]);
    if (max) {
        line("%s best = %s;", ct, dtype_is_float(t) ? (t == DT_F32 ? "-INFINITY" : "(double)-INFINITY")
                                                    : t == DT_I64 ? "INT64_MIN" : "INT32_MIN");
        if (index)
            line("%s at = -1;", k->index);
        pool_loops(k, out, in);
        line("const %s v = from[%s];", ct, src);
        if (index) {
            line("if (at < 0 || v > best || v != v) {");
            kernel_open(k);
            line("best = v;");
            line("at = %s;", src);
            kernel_close(k);
        } else {
            line("best = pp_max%s(best, v);", suffix);
        }
        for (int i = 0; i < at->n; i++)
            kernel_close(k);
        line("y[%s] = best;", to);
        if (index)
            line("index[%s] = %sc * %" PRId64 " + (at < 0 ? 0 : at);", to, k->cuda ? "(int64_t)" : "", plane);
    } else {
        line("%s sum = 0;", ct);
        line("%s count = 1;", k->index);
        for (int i = 0; i < at->n; i++) {               /* how many places the window covers along each axis */
            int64_t low = at->count_include_pad ? -at->pad[i] : 0, high = at->count_include_pad ? xs->d[i + 2] + at->pad[at->n + i] : xs->d[i + 2];
            line("%s n%d = 0;", k->index, i);
            line("for (%s j = 0, p = %s * %" PRId64 " - %" PRId64 "; j < %" PRId64 "; j++, p += %" PRId64 ")", k->index, out[i],
                 at->stride[i], at->pad[i], at->kernel[i], at->dilation[i]);
            line("    n%d += p >= %" PRId64 " && p < %" PRId64 ";", i, low, high);
            line("count *= n%d;", i);
        }
        pool_loops(k, out, in);
        line("sum += from[%s];", src);
        for (int i = 0; i < at->n; i++)
            kernel_close(k);
        line("y[%s] = count > 0 ? sum / (%s)count : 0;", to, ct);
    }
    for (int i = 0; i < at->n && !k->cuda; i++)
        kernel_close(k);
    kernel_close_parallel(k);
}

/* ---- the rest --------------------------------------------------------------------------------------------------- */

/* Philox keyed by seed and step; the counter is (row of the minibatch, element in the row, the node's key), so that the same
   numbers come out whatever the chunks, the split and the schedule. */
static void dropout(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0];
    const Value *v = val(k->f->g, x);
    bool batched = v->batch >= 0 && k->f->g->batch > 0 && v->shape.d[v->batch] % k->f->g->batch == 0;
    int b = batched ? v->batch : 0;
    Lin outer = batched ? kernel_span(k, x, 0, b) : lin(1), rows = lin(1), inner = kernel_span(k, x, b, v->shape.rank);
    if (batched) {
        rows = k->f->sg->fixed ? lin(k->f->g->batch) : (Lin){0, 1};
        if (!lin_div(inner, rows, &inner))
            BUG("rows that do not divide a batch");
    }
    bool y = wants(k, 0), mask = wants(k, 1);
    kernel_param(k, x, "x", false);
    if (y)
        kernel_param(k, n->out[0], "y", true);
    if (mask)
        kernel_param(k, n->out[1], "mask", true);
    double ratio = n->attr.ratio;
    uint64_t limit = ratio >= 1 ? UINT64_C(0x100000000) : (uint64_t)(ratio * 4294967296.0);
    if (limit > 0) {
        k->params = arena_printf(k->a, "%s, uint64_t seed, uint64_t step, uint64_t row0", k->params);
        k->args = arena_printf(k->a, "%s, c->seed, c->step, c->row0", k->args);
    }
    double scale = ratio < 1 ? 1 / (1 - ratio) : 0;
    Lin line_length, all;
    if (!lin_mul(outer, inner, &line_length) || !lin_mul(rows, inner, &all) || line_length.b != 0)
        BUG("a size that is not affine in the rows");
    if (k->cuda) {
        kernel_parallel(k, 2, (const char *const[]){"r", "quad"}, (const Lin[]){rows, lin((line_length.c + 3) / 4)}, true);
        line("const %s e = 4 * quad;", k->index);
    } else {
        kernel_parallel(k, 1, (const char *const[]){"r"}, &rows, true);
        line("for (int64_t e = 0; e < %s; e += 4) {", num(k, line_length));
        kernel_open(k);
    }
    if (limit > 0) {
        line("uint32_t random[4];");
        line("pp_philox(seed, step, row0 + (uint64_t)r, (uint64_t)e / 4, %" PRIu32 "u, random);", (uint32_t)n->attr.key);
    }
    line("for (%s q = e; q < e + 4 && q < %s; q++) {", k->index, num(k, line_length));
    kernel_open(k);
    if (lin_is(outer, 1))
        line("const %s at = r * %s + q;", k->index, lin_factor(k->a, inner));
    else
        line("const %s at = q / %s * %s + r * %s + q %% %s;", k->index, lin_factor(k->a, inner), lin_factor(k->a, all),
             lin_factor(k->a, inner), lin_factor(k->a, inner));
    if (limit > 0)
        line("const int keep = random[q - e] >= UINT64_C(%" PRIu64 ");", limit);
    else
        line("const int keep = 1;");
    if (y)
        line("y[at] = keep ? x[at] * %s : 0;", cg_number(k->a, v->dtype, scale, 0));
    else
        line("(void)x;");
    if (mask)
        line("mask[at] = (uint8_t)keep;");
    kernel_close(k);
    if (!k->cuda)
        kernel_close(k);
    kernel_close_parallel(k);
}

static void pad(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0], y = n->out[0];
    int rank = val(k->f->g, y)->shape.rank;
    static const char *const how[] = {"", "reflect", "edge", "wrap"};
    kernel_param(k, x, "x", false);
    kernel_param(k, y, "y", true);
    kernel_parallel(k, 1, (const char *const[]){"e"}, (const Lin[]){kernel_span(k, y, 0, rank)}, true);
    const char *from = "0";
    Lin stride = lin(1), sx = lin(1);
    for (int d = rank - 1; d >= 0; d--) {
        const char *q = lin_is(stride, 1) ? "e" : arena_printf(k->a, "e / %s", lin_factor(k->a, stride));
        line("%s%s i%d = %s %% %s;", n->attr.begin[d] || n->attr.end[d] || !k->cuda ? "" : "const ", k->index, d, q, lin_factor(k->a, ext(k, y, d)));
        if (n->attr.begin[d] || n->attr.end[d])
            line("i%d = pp_pad_%s(i%d - %" PRId64 ", %s);", d, how[n->attr.mode], d, n->attr.begin[d], num(k, ext(k, x, d)));
        from = arena_printf(k->a, "%s + i%d * %s", from, d, lin_factor(k->a, sx));
        if (!lin_mul(stride, ext(k, y, d), &stride) || !lin_mul(sx, ext(k, x, d), &sx))
            BUG("a size that is not affine in the rows");
    }
    line("y[e] = x[%s];", from);
    kernel_close_parallel(k);
}

/* Integers: no library, three loops. */
static void matmul(Kernel *k)
{
    const Node *n = k->n;
    ValueId a = n->in[0], b = n->in[1], y = n->out[0];
    int rank = val(k->f->g, y)->shape.rank, ra = val(k->f->g, a)->shape.rank, rb = val(k->f->g, b)->shape.rank;
    const char *t = cg_ctype(val(k->f->g, y)->dtype);
    Lin m = ext(k, y, rank - 2), w = ext(k, y, rank - 1), depth = ext(k, a, ra - 1);
    kernel_param(k, a, "a", false);
    kernel_param(k, b, "b", false);
    kernel_param(k, y, "y", true);
    const char *oa = "0", *ob = "0", *oy = "0", *each[MAX_RANK];
    Lin many[MAX_RANK];
    for (int d = 0; d < rank - 2; d++) {
        const char *i = arena_printf(k->a, "i%d", d);
        int da = d - (rank - ra), db = d - (rank - rb);
        each[d] = i;
        many[d] = ext(k, y, d);
        oy = arena_printf(k->a, "%s + %s * %s", oy, i, lin_factor(k->a, kernel_span(k, y, d + 1, rank)));
        if (da >= 0 && !lin_is(ext(k, a, da), 1))
            oa = arena_printf(k->a, "%s + %s * %s", oa, i, lin_factor(k->a, kernel_span(k, a, da + 1, ra)));
        if (db >= 0 && !lin_is(ext(k, b, db), 1))
            ob = arena_printf(k->a, "%s + %s * %s", ob, i, lin_factor(k->a, kernel_span(k, b, db + 1, rb)));
    }
    each[rank - 2] = "r";
    each[rank - 1] = "q";
    many[rank - 2] = m;
    many[rank - 1] = w;
    kernel_parallel(k, rank, each, many, false);
    line("%s sum = 0;", t);
    line("for (%s p = 0; p < %s; p++)", k->index, num(k, depth));
    line("    sum += a[%s + r * %s + p] * b[%s + p * %s + q];", oa, lin_factor(k->a, depth), ob, lin_factor(k->a, w));
    line("y[%s + r * %s + q] = sum;", oy, lin_factor(k->a, w));
    kernel_close_parallel(k);
}

bool cg_kernel_reads(const Func *f, const Node *n, uint32_t i)
{
    bool scatter = n->op == OP_ScatterElements || n->op == OP_ScatterND;
    return !(scatter && i == 0 && (f->acc.at[n->out[0]] || cg_zeros(f->g, n->in[0])));
}

/* A second result that nobody reads is not made. */
bool cg_kernel_writes(const Func *f, const Node *n, uint32_t out)
{
    if ((n->op == OP_MaxPool && out == 1) || n->op == OP_Dropout)
        return f->needed[n->out[out]];
    return true;
}

/* No operand and no result has 2^31 elements. */
static bool is_small(const Kernel *k)
{
    enum { SPARE = 1 << 25 };
    for (uint32_t i = 0; i < k->n->nin + k->n->nout; i++) {
        ValueId v = i < k->n->nin ? k->n->in[i] : k->n->out[i - k->n->nin];
        if (v != NONE && shape_elements(&val(k->f->g, v)->shape) >= INT32_MAX - SPARE)
            return false;
    }
    return true;
}

/* In C a call; on the device what comes first, then a launch. */
static void print_call(Kernel *k, NodeId id, Text *t)
{
    Func *f = k->f;
    const char *body = k->body.at ? k->body.at : "", *comment = cg_node_text(f->g, id);
    bool rows = cg_names(body, "rows");
    const char *params = arena_printf(f->a, "%s%s%s", rows ? k->index : "", rows ? " rows, " : "", k->params);
    if (!k->cuda) {
        text_line(t, "%s(%s%s);", cg_kernel(f->sg, comment, params, body), rows ? "rows, " : "", k->args);
        return;
    }
    if (k->before.at)
        text_line(t, "%s", k->before.at);
    const char *args = arena_printf(f->a, "%s%s", !rows ? "" : strcmp(k->index, "int") == 0 ? "(int)rows, " : "rows, ", k->args);
    const char *grid = k->grid ? k->grid : arena_printf(f->a, "pp_blocks(%s, %d)", num(k, k->work), k->threads);
    if (!*body)
        return;
    if (k->call) {
        text_line(t, "{");
        t->indent++;
        text_line(t, "static const %s;", k->shape);
        text_line(t, "PP_WORK(\"%s\", 0, 0);", op_name(k->n->op));
        text_line(t, "if (!%s)", k->call);
        t->indent++;
    } else {
        text_line(t, "PP_WORK(\"%s\", 0, 0);", op_name(k->n->op));
    }
    cg_launch(f, t, cg_cuda_kernel(f->sg, comment, k->threads, 0, params, body), grid, arena_printf(f->a, "%d", k->threads), args);
    if (k->call) {
        t->indent -= 2;
        text_line(t, "}");
    }
}

void cg_print_kernel(Func *f, NodeId id, Text *t)
{
    bool cuda = f->sg->target == TARGET_CUDA;
    Kernel kernel = {.f = f, .n = &f->g->node.at[id], .a = f->a, .cuda = cuda, .params = "", .args = "", .index = "int64_t", .threads = 256};
    Kernel *k = &kernel;
    k->body.a = k->before.a = f->a;
    k->body.indent = 1;
    if (cuda && is_small(k))
        k->index = "int";
    switch (k->n->op) {
    case OP_ScatterElements: scatter_elements(k); break;
    case OP_ScatterND: scatter_nd(k); break;
    case OP_CumSum: cumsum(k); break;
    case OP_TopK: topk(k); break;
    case OP_MaxPool: pool(k, true); break;
    case OP_AveragePool: pool(k, false); break;
    case OP_Dropout: dropout(k); break;
    case OP_Pad: pad(k); break;
    case OP_MatMul: matmul(k); break;
    default: BUG("no code for %s", op_name(k->n->op));
    }
    print_call(k, id, t);
}

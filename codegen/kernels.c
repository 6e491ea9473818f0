/*
 * kernels.c - the few operations that are neither nests nor library calls: scatters, cumulative sums, TopK, pools, Dropout,
 * paddings by reflection, products of integers.  Each prints a small C function of its own shapes over row-major
 * tensors, shared by all nodes whose text is the same.
 */
#include <inttypes.h>
#include <string.h>

#include "cg.h"

typedef struct {
    Func *f;
    const Node *n;
    Arena *a;
    Text body;
    const char *params, *args;      /* of the kernel and of the call */
} Kernel;

static const char *num(const Kernel *k, Lin x) { return lin_text(k->a, x); }

static Lin ext(const Kernel *k, ValueId v, int d) { return cg_ext(k->f, v, d); }

/* product of the extents [from, to) */
static Lin span(const Kernel *k, ValueId v, int from, int to)
{
    Lin n = lin(1);
    for (int d = from; d < to; d++)
        if (!lin_mul(n, ext(k, v, d), &n))
            BUG("a size that is not affine in the rows");
    return n;
}

static void param(Kernel *k, ValueId v, const char *name, bool written)
{
    const Ref *r = cg_ref(k->f, v);
    k->params = arena_printf(k->a, "%s%s%s%s *%s", k->params, *k->params ? ", " : "", written ? "" : "const ",
                             cg_ctype(val(k->f->g, v)->dtype), name);
    k->args = arena_printf(k->a, "%s%s%s", k->args, *k->args ? ", " : "", cg_pointer(k->f, r->buf, r->off, written));
}

#define line(...) text_line(&k->body, __VA_ARGS__)

static void open_block(Kernel *k) { k->body.indent++; }
static void close_block(Kernel *k)
{
    k->body.indent--;
    line("}");
}

static void loop(Kernel *k, const char *i, Lin n)
{
    line("for (int64_t %s = 0; %s < %s; %s++) {", i, i, num(k, n), i);
    open_block(k);
}

static bool wants(const Kernel *k, uint32_t out)
{
    return out < k->n->nout && k->f->needed[k->n->out[out]];
}

/* ---- scatters ---------------------------------------------------------------------------------------- */

static const char *combine(Kernel *k, int mode, Dtype t, const char *at, const char *x)
{
    const char *s = t == DT_F32 ? "f" : t == DT_F64 ? "" : t == DT_I64 ? "l" : "i";
    switch (mode) {
    case SCATTER_ADD: return arena_printf(k->a, "%s += %s;", at, x);
    case SCATTER_MUL: return arena_printf(k->a, "%s *= %s;", at, x);
    case SCATTER_MAX: return arena_printf(k->a, "%s = pp_max%s(%s, %s);", at, s, at, x);
    case SCATTER_MIN: return arena_printf(k->a, "%s = pp_min%s(%s, %s);", at, s, at, x);
    default: return arena_printf(k->a, "%s = %s;", at, x);
    }
}

/* y starts as the operand, as zeros, or is added to as it stands. */
static void start(Kernel *k, ValueId x, ValueId y)
{
    Lin n = span(k, y, 0, val(k->f->g, y)->shape.rank);
    if (k->f->acc.at[y])
        return;
    if (cg_zeros(k->f->g, x)) {
        line("memset(y, 0, sizeof *y * (size_t)(%s));", num(k, n));
    } else {
        param(k, x, "x", false);
        line("memcpy(y, x, sizeof *y * (size_t)(%s));", num(k, n));
    }
}

static void scatter_elements(Kernel *k)
{
    const Node *n = k->n;
    ValueId y = n->out[0], index = n->in[1], u = n->in[2];
    Dtype t = val(k->f->g, y)->dtype;
    int rank = val(k->f->g, y)->shape.rank, axis = (int)n->attr.axis;
    param(k, index, "index", false);
    param(k, u, "u", false);
    param(k, y, "y", true);
    start(k, n->in[0], y);
    const char *from = "", *to = "";
    Lin sy = lin(1), su = lin(1);
    const char *name[MAX_RANK];
    for (int d = rank - 1; d >= 0; d--) {
        name[d] = arena_printf(k->a, "i%d", d);
        const char *fu = lin_is(su, 1) ? "" : arena_printf(k->a, " * %s", lin_factor(k->a, su));
        const char *fy = lin_is(sy, 1) ? "" : arena_printf(k->a, " * %s", lin_factor(k->a, sy));
        from = arena_printf(k->a, "%s%s%s%s", name[d], fu, *from ? " + " : "", from);
        const char *at = d == axis ? arena_printf(k->a, "pp_index(index[e], %s)", num(k, ext(k, y, d))) : name[d];
        to = arena_printf(k->a, "%s%s%s%s", at, fy, *to ? " + " : "", to);
        if (!lin_mul(sy, ext(k, y, d), &sy) || !lin_mul(su, ext(k, index, d), &su))
            BUG("a size that is not affine in the rows");
    }
    for (int d = 0; d < rank; d++)
        loop(k, name[d], ext(k, index, d));
    line("const int64_t e = %s;", rank ? from : "0");
    line("%s", combine(k, n->attr.mode, t, arena_printf(k->a, "y[%s]", rank ? to : "0"), "u[e]"));
    for (int d = 0; d < rank; d++)
        close_block(k);
}

static void scatter_nd(Kernel *k)
{
    const Node *n = k->n;
    ValueId y = n->out[0], index = n->in[1], u = n->in[2];
    const Shape *is = &val(k->f->g, index)->shape;
    int rank = val(k->f->g, y)->shape.rank, q = (int)is->d[is->rank - 1];
    Dtype t = val(k->f->g, y)->dtype;
    param(k, index, "index", false);
    param(k, u, "u", false);
    param(k, y, "y", true);
    start(k, n->in[0], y);
    Lin slice = span(k, y, q, rank);
    loop(k, "i", span(k, index, 0, is->rank - 1));
    const char *at = "";
    for (int d = 0; d < q; d++) {
        const char *ip = q == 1 ? "i" : d ? arena_printf(k->a, "i * %d + %d", q, d) : arena_printf(k->a, "i * %d", q);
        Lin stride = span(k, y, d + 1, rank);
        const char *by = lin_is(stride, 1) ? "" : arena_printf(k->a, " * %s", lin_factor(k->a, stride));
        at = arena_printf(k->a, "%s%spp_index(index[%s], %s)%s", at, d ? " + " : "", ip, num(k, ext(k, y, d)), by);
    }
    line("%s *to = y%s%s;", cg_ctype(t), q ? " + " : "", at);
    if (lin_is(slice, 1)) {
        line("%s", combine(k, n->attr.mode, t, "to[0]", "u[i]"));
    } else {
        line("const %s *from = u + i * %s;", cg_ctype(t), lin_factor(k->a, slice));
        line("#pragma omp simd");
        line("for (int64_t j = 0; j < %s; j++)", num(k, slice));
        line("    %s", combine(k, n->attr.mode, t, "to[j]", "from[j]"));
    }
    close_block(k);
}

/* ---- along an axis --------------------------------------------------------------------------------------- */

static void cumsum(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0], y = n->out[0];
    int axis = (int)n->attr.axis, rank = val(k->f->g, x)->shape.rank;
    Lin inner = span(k, x, axis + 1, rank), len = ext(k, x, axis);
    bool back = n->attr.mode & CUMSUM_REVERSE, exclusive = n->attr.mode & CUMSUM_EXCLUSIVE;
    param(k, x, "x", false);
    param(k, y, "y", true);
    loop(k, "o", span(k, x, 0, axis));
    loop(k, "i", inner);
    line("%s sum = 0;", cg_ctype(val(k->f->g, x)->dtype));
    loop(k, "s", len);
    const char *s = back ? arena_printf(k->a, "(%s - 1 - s)", lin_factor(k->a, len)) : "s";
    line("const int64_t e = (o * %s + %s) * %s + i;", lin_factor(k->a, len), s, lin_factor(k->a, inner));
    if (exclusive) {
        line("const %s x_e = x[e];", cg_ctype(val(k->f->g, x)->dtype));
        line("y[e] = sum;");
        line("sum += x_e;");
    } else {
        line("sum += x[e];");
        line("y[e] = sum;");
    }
    close_block(k);
    close_block(k);
    close_block(k);
}

/* Sorted insertion; of equal values the lower index comes first; NaN counts as the largest. */
static void topk(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0];
    int axis = (int)n->attr.axis, rank = val(k->f->g, x)->shape.rank;
    Lin inner = span(k, x, axis + 1, rank), len = ext(k, x, axis);
    const char *t = cg_ctype(val(k->f->g, x)->dtype);
    bool largest = n->attr.mode != 0, real = dtype_is_float(val(k->f->g, x)->dtype);
    param(k, x, "x", false);
    param(k, n->out[0], "y", true);
    param(k, n->out[1], "index", true);
    if (n->attr.k == 0)
        return;
    line("#pragma omp parallel for collapse(2)");
    loop(k, "o", span(k, x, 0, axis));
    loop(k, "i", inner);
    const char *in = lin_factor(k->a, inner);
    line("const %s *from = x + o * %s * %s + i;", t, lin_factor(k->a, len), in);
    line("%s *to = y + o * %" PRId64 " * %s + i;", t, n->attr.k, in);
    line("int64_t *at = index + o * %" PRId64 " * %s + i;", n->attr.k, in);
    line("int64_t kept = 0;");
    loop(k, "e", len);
    line("const %s v = from[e * %s];", t, in);
    line("int64_t p = kept;");
    const char *better = largest ? "v > w" : "v < w";
    if (real)
        better = largest ? "v > w || (v != v && w == w)" : "v < w || (v == v && w != w)";
    line("while (p > 0) {");
    open_block(k);
    line("const %s w = to[(p - 1) * %s];", t, in);
    line("if (!(%s))", better);
    line("    break;");
    line("p--;");
    close_block(k);
    line("if (p == %" PRId64 ")", n->attr.k);
    line("    continue;");
    line("if (kept < %" PRId64 ")", n->attr.k);
    line("    kept++;");
    line("for (int64_t s = kept - 1; s > p; s--) {");
    open_block(k);
    line("to[s * %s] = to[(s - 1) * %s];", in, in);
    line("at[s * %s] = at[(s - 1) * %s];", in, in);
    close_block(k);
    line("to[p * %s] = v;", in);
    line("at[p * %s] = e;", in);
    close_block(k);
    close_block(k);
    close_block(k);
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
        line("for (int64_t k%d = 0; k%d < %" PRId64 "; k%d++) {", i, i, at->d[i], i);
        open_block(k);
        line("const int64_t %s = %s * %" PRId64 " - %" PRId64 " + k%d * %" PRId64 ";", in[i], out[i], at->a[i], at->c[i], i, at->b[i]);
        line("if (%s < 0 || %s >= %" PRId64 ")", in[i], in[i], x->d[i + 2]);
        line("    continue;");
    }
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
    const char *const *out = pool_out + 3 - at->n, *const *in = pool_in + 3 - at->n;
    int64_t plane = 1;
    for (int i = 0; i < at->n; i++)
        plane *= xs->d[i + 2];
    param(k, x, "x", false);
    param(k, y, "y", true);
    if (index)
        param(k, n->out[1], "index", true);
    line("#pragma omp parallel for");
    loop(k, "c", span(k, x, 0, 2));
    line("const %s *from = x + c * %" PRId64 ";", ct, plane);
    for (int i = 0; i < at->n; i++)
        loop(k, out[i], lin(ys->d[i + 2]));
    const char *to = linear(k, "c", out, ys->d + 2, at->n), *src = linear(k, "0", in, xs->d + 2, at->n);
    src = in[0];
    for (int i = 1; i < at->n; i++)
        src = arena_printf(k->a, "(%s) * %" PRId64 " + %s", src, xs->d[i + 2], in[i]);
    if (max) {
        line("%s best = %s;", ct, dtype_is_float(t) ? (t == DT_F32 ? "-INFINITY" : "(double)-INFINITY")
                                                    : t == DT_I64 ? "INT64_MIN" : "INT32_MIN");
        if (index)
            line("int64_t at = -1;");
        pool_loops(k, out, in);
        line("const %s v = from[%s];", ct, src);
        if (index) {
            line("if (at < 0 || v > best || v != v) {");
            open_block(k);
            line("best = v;");
            line("at = %s;", src);
            close_block(k);
        } else {
            line("best = pp_max%s(best, v);", suffix);
        }
        for (int i = 0; i < at->n; i++)
            close_block(k);
        line("y[%s] = best;", to);
        if (index)
            line("index[%s] = c * %" PRId64 " + (at < 0 ? 0 : at);", to, plane);
    } else {
        line("%s sum = 0;", ct);
        line("int64_t count = 1;");
        for (int i = 0; i < at->n; i++) {               /* how many places the window covers along each axis */
            int64_t low = at->mode ? -at->c[i] : 0, high = at->mode ? xs->d[i + 2] + at->c[at->n + i] : xs->d[i + 2];
            line("int64_t n%d = 0;", i);
            line("for (int64_t j = 0, p = %s * %" PRId64 " - %" PRId64 "; j < %" PRId64 "; j++, p += %" PRId64 ")", out[i],
                 at->a[i], at->c[i], at->d[i], at->b[i]);
            line("    n%d += p >= %" PRId64 " && p < %" PRId64 ";", i, low, high);
            line("count *= n%d;", i);
        }
        pool_loops(k, out, in);
        line("sum += from[%s];", src);
        for (int i = 0; i < at->n; i++)
            close_block(k);
        line("y[%s] = count > 0 ? sum / (%s)count : 0;", to, ct);
    }
    for (int i = 0; i <= at->n; i++)
        close_block(k);
}

/* ---- the rest --------------------------------------------------------------------------------------------------- */

/* Philox keyed by seed and step; the counter is (row of the minibatch, element in the row, the node's key), so that the same
   numbers come out whatever the chunks, the split and the schedule. */
static void dropout(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0];
    const Value *v = val(k->f->g, x);
    const char *t = cg_ctype(v->dtype), *suffix = v->dtype == DT_F32 ? "f" : "";
    bool batched = v->batch >= 0 && k->f->g->batch > 0 && v->shape.d[v->batch] % k->f->g->batch == 0;
    int b = batched ? v->batch : 0;
    Lin outer = batched ? span(k, x, 0, b) : lin(1), rows = lin(1), inner = span(k, x, b, v->shape.rank);
    if (batched) {
        rows = k->f->sg->fixed ? lin(k->f->g->batch) : (Lin){0, 1};
        if (!lin_div(inner, rows, &inner))
            BUG("rows that do not divide a batch");
    }
    bool y = wants(k, 0), mask = wants(k, 1);
    param(k, x, "x", false);
    if (y)
        param(k, n->out[0], "y", true);
    if (mask)
        param(k, n->out[1], "mask", true);
    k->params = arena_printf(k->a, "%s, uint64_t seed, uint64_t step, uint64_t row0", k->params);
    k->args = arena_printf(k->a, "%s, c->seed, c->step, c->row0", k->args);
    double ratio = n->attr.f[0];
    uint64_t limit = ratio >= 1 ? UINT64_C(0x100000000) : (uint64_t)(ratio * 4294967296.0);
    double scale = ratio < 1 ? 1 / (1 - ratio) : 0;
    Lin line_length, all;
    if (!lin_mul(outer, inner, &line_length) || !lin_mul(rows, inner, &all))
        BUG("a size that is not affine in the rows");
    line("#pragma omp parallel for");
    loop(k, "r", rows);
    line("for (int64_t e = 0; e < %s; e += 4) {", num(k, line_length));
    open_block(k);
    line("uint32_t random[4];");
    line("pp_philox(seed, step, row0 + (uint64_t)r, (uint64_t)e / 4, %" PRIu32 "u, random);", (uint32_t)n->attr.axis);
    line("for (int64_t q = e; q < e + 4 && q < %s; q++) {", num(k, line_length));
    open_block(k);
    if (lin_is(outer, 1))
        line("const int64_t at = r * %s + q;", lin_factor(k->a, inner));
    else
        line("const int64_t at = q / %s * %s + r * %s + q %% %s;", lin_factor(k->a, inner), lin_factor(k->a, all),
             lin_factor(k->a, inner), lin_factor(k->a, inner));
    line("const int keep = random[q - e] >= UINT64_C(%" PRIu64 ");", limit);
    if (y)
        line("y[at] = keep ? x[at] * %s : 0;", cg_number(k->a, v->dtype, scale, 0));
    else
        line("(void)x;");
    if (mask)
        line("mask[at] = (uint8_t)keep;");
    (void)t;
    (void)suffix;
    close_block(k);
    close_block(k);
    close_block(k);
}

static void pad(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0], y = n->out[0];
    int rank = val(k->f->g, y)->shape.rank;
    static const char *const how[] = {"", "reflect", "edge", "wrap"};
    param(k, x, "x", false);
    param(k, y, "y", true);
    line("#pragma omp parallel for");
    loop(k, "e", span(k, y, 0, rank));
    const char *from = "0";
    Lin stride = lin(1), sx = lin(1);
    for (int d = rank - 1; d >= 0; d--) {
        const char *q = lin_is(stride, 1) ? "e" : arena_printf(k->a, "e / %s", lin_factor(k->a, stride));
        line("int64_t i%d = %s %% %s;", d, q, lin_factor(k->a, ext(k, y, d)));
        if (n->attr.a[d] || n->attr.b[d])
            line("i%d = pp_pad_%s(i%d - %" PRId64 ", %s);", d, how[n->attr.mode], d, n->attr.a[d], num(k, ext(k, x, d)));
        from = arena_printf(k->a, "%s + i%d * %s", from, d, lin_factor(k->a, sx));
        if (!lin_mul(stride, ext(k, y, d), &stride) || !lin_mul(sx, ext(k, x, d), &sx))
            BUG("a size that is not affine in the rows");
    }
    line("y[e] = x[%s];", from);
    close_block(k);
}

/* Integers: no library, three loops. */
static void matmul(Kernel *k)
{
    const Node *n = k->n;
    ValueId a = n->in[0], b = n->in[1], y = n->out[0];
    int rank = val(k->f->g, y)->shape.rank, ra = val(k->f->g, a)->shape.rank, rb = val(k->f->g, b)->shape.rank;
    const char *t = cg_ctype(val(k->f->g, y)->dtype);
    Lin m = ext(k, y, rank - 2), w = ext(k, y, rank - 1), depth = ext(k, a, ra - 1);
    param(k, a, "a", false);
    param(k, b, "b", false);
    param(k, y, "y", true);
    const char *oa = "0", *ob = "0", *oy = "0";
    for (int d = 0; d < rank - 2; d++) {
        const char *i = arena_printf(k->a, "i%d", d);
        int da = d - (rank - ra), db = d - (rank - rb);
        loop(k, i, ext(k, y, d));
        oy = arena_printf(k->a, "%s + %s * %s", oy, i, lin_factor(k->a, span(k, y, d + 1, rank)));
        if (da >= 0 && !lin_is(ext(k, a, da), 1))
            oa = arena_printf(k->a, "%s + %s * %s", oa, i, lin_factor(k->a, span(k, a, da + 1, ra)));
        if (db >= 0 && !lin_is(ext(k, b, db), 1))
            ob = arena_printf(k->a, "%s + %s * %s", ob, i, lin_factor(k->a, span(k, b, db + 1, rb)));
    }
    loop(k, "r", m);
    loop(k, "q", w);
    line("%s sum = 0;", t);
    line("for (int64_t p = 0; p < %s; p++)", num(k, depth));
    line("    sum += a[%s + r * %s + p] * b[%s + p * %s + q];", oa, lin_factor(k->a, depth), ob, lin_factor(k->a, w));
    line("y[%s + r * %s + q] = sum;", oy, lin_factor(k->a, w));
    for (int d = 0; d < rank; d++)
        close_block(k);
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

void cg_print_kernel(Func *f, NodeId id, Text *t)
{
    Kernel kernel = {.f = f, .n = &f->g->node.at[id], .a = f->a, .params = "", .args = ""}, *k = &kernel;
    k->body.a = f->a;
    k->body.indent = 1;
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
    const char *body = k->body.at ? k->body.at : "";
    bool rows = cg_names(body, "rows");
    const char *params = arena_printf(f->a, "%s%s", rows ? "int64_t rows, " : "", k->params);
    const char *name = cg_kernel(f->sg, cg_node_text(f->g, id), params, body);
    text_line(t, "%s(%s%s);", name, rows ? "rows, " : "", k->args);
}

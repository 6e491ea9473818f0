/*
 * kernels.c - the few operations that are neither nests nor library calls: cumulative sums, TopK,
 * random numbers, paddings by reflection, products of integers; pools: pool.c, scatters: scatter.c.
 * Each prints a small function of its own shapes over row-major tensors, shared by all nodes whose
 * text is the same: in C loops, in CUDA C the same body with the outer loops taken by the threads
 * of a grid.
 */
#include <inttypes.h>
#include <string.h>

#include "kernel.h"

/* ---- along an axis --------------------------------------------------------------------------- */

static void cumsum(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0], y = n->out[0];
    int axis = (int)n->attr.axis, rank = val(k->f->g, x)->shape.rank;
    Lin inner = cg_span(k->f, x, axis + 1, rank), len = cg_ext(k->f, x, axis);
    bool back = n->attr.scan & CUMSUM_REVERSE, exclusive = n->attr.scan & CUMSUM_EXCLUSIVE;
    kernel_param(k, x, "x", false);
    kernel_param(k, y, "y", true);
    kernel_parallel(k, 2, (const char *const[]){"o", "i"},
                    (const Lin[]){cg_span(k->f, x, 0, axis), inner}, false);
    line("%s sum = 0;", type_sum(val(k->f->g, x)->dtype));
    kernel_loop(k, "s", len);
    const char *s = back ? arena_printf(k->a, "(%s - 1 - s)", kernel_factor(k, len)) : "s";
    line("const %s e = (o * %s + %s) * %s + i;", k->index, kernel_factor(k, len), s,
         kernel_factor(k, inner));
    if (exclusive) {
        line("const %s x_e = x[e];", cg_ctype(val(k->f->g, x)->dtype));
        line("y[e] = sum;");
        line("sum += x_e;");
    } else {
        line("sum += x[e];");
        line("y[e] = sum;");
    }
    close_block();
    kernel_close_parallel(k);
}

/* Sorted insertion; of equal values the lower index comes first; NaN counts as the largest. */
static void topk(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0];
    int axis = (int)n->attr.axis, rank = val(k->f->g, x)->shape.rank;
    Lin inner = cg_span(k->f, x, axis + 1, rank), len = cg_ext(k->f, x, axis);
    const char *t = cg_ctype(val(k->f->g, x)->dtype);
    bool largest = n->attr.largest != 0, real = dtype_is_float(val(k->f->g, x)->dtype);
    kernel_param(k, x, "x", false);
    kernel_param(k, n->out[0], "y", true);
    kernel_param(k, n->out[1], "index", true);
    if (n->attr.k == 0)
        return;
    kernel_parallel(k, 2, (const char *const[]){"o", "i"},
                    (const Lin[]){cg_span(k->f, x, 0, axis), inner}, true);
    const char *in = kernel_factor(k, inner);
    line("const %s *from = x + o * %s * %s + i;", t, kernel_factor(k, len), in);
    const char *most = kernel_lin(k, lin(n->attr.k));
    line("%s *to = y + o * %s * %s + i;", t, most, in);
    line("int64_t *at = index + o * %s * %s + i;", most, in);
    line("%s kept = 0;", k->index);
    kernel_loop(k, "e", len);
    line("const %s v = from[e * %s];", t, in);
    line("%s p = kept;", k->index);
    const char *better = largest ? "v > w" : "v < w";
    if (real)
        better = largest ? "v > w || (v != v && w == w)" : "v < w || (v == v && w != w)";
    open_block("while (p > 0) {");
    line("const %s w = to[(p - 1) * %s];", t, in);
    line("if (!(%s))", better);
    line("    break;");
    line("p--;");
    close_block();
    line("if (p == %s)", most);
    line("    continue;");
    line("if (kept < %s)", most);
    line("    kept++;");
    open_block("for (%s s = kept - 1; s > p; s--) {", k->index);
    line("to[s * %s] = to[(s - 1) * %s];", in, in);
    line("at[s * %s] = at[(s - 1) * %s];", in, in);
    close_block();
    line("to[p * %s] = v;", in);
    line("at[p * %s] = e;", in);
    close_block();
    kernel_close_parallel(k);
}

/* Boxes that overlap, by what they share over what they cover together, as torchvision has it. */
static void suppress(Kernel *k)
{
    const Node *n = k->n;
    ValueId boxes = n->in[0], order = n->in[1];
    Dtype type = val(k->f->g, boxes)->dtype;
    const char *t = cg_ctype(type), *zero = cg_number(k->a, type, 0, 0);
    Lin len = cg_ext(k->f, order, 2), classes = cg_ext(k->f, order, 1);
    kernel_param(k, boxes, "boxes", false);
    kernel_param(k, order, "order", false);
    kernel_param(k, n->in[2], "there", false);
    kernel_param(k, n->out[0], "y", true);
    kernel_param(k, n->out[1], "count", true);
    kernel_parallel(k, 2, (const char *const[]){"o", "i"},
                    (const Lin[]){cg_ext(k->f, order, 0), classes}, true);
    const char *all = kernel_factor(k, len);
    line("const %s row = o * %s + i;", k->index, kernel_factor(k, classes));
    line("const %s *box = boxes + o * %s * 4;", t, all);
    line("const int64_t *at = order + row * %s;", all);
    line("int64_t *to = y + row * %s;", all);
    line("%s taken = 0;", k->index);
    kernel_loop(k, "e", len);
    line("if (!there[row * %s + e] || taken == %s)", all, kernel_lin(k, lin(n->attr.k)));
    line("    continue;");
    line("const %s *a = box + at[e] * 4;", t);
    line("const %s area = (a[3] - a[1]) * (a[2] - a[0]);", t);
    line("%s p = 0;", k->index);
    open_block("for (; p < taken; p++) {");
    line("const %s *b = box + to[p] * 4;", t);
    line("const %s high = (a[2] < b[2] ? a[2] : b[2]) - (a[0] > b[0] ? a[0] : b[0]);", t);
    line("const %s wide = (a[3] < b[3] ? a[3] : b[3]) - (a[1] > b[1] ? a[1] : b[1]);", t);
    line("if (!(high > %s) || !(wide > %s))", zero, zero);
    line("    continue;");
    line("const %s both = wide * high, other = (b[3] - b[1]) * (b[2] - b[0]);", t);
    line("if (both > %s && both / (area + other - both) > %s)", zero,
         cg_number(k->a, type, n->attr.value, 0));
    line("    break;");
    close_block();
    line("if (p == taken)");
    line("    to[taken++] = at[e];");
    close_block();
    line("count[row] = taken;");
    line("for (; taken < %s; taken++)", kernel_lin(k, len));
    line("    to[taken] = 0;");
    kernel_close_parallel(k);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/*
 * Philox keyed by seed and step; the counter is (row of the minibatch, element in the row, the
 * node's key), so that the same numbers come out whatever the chunks, the split and the schedule.
 * What holds no rows is drawn once for the minibatch: its row is 0.
 */
typedef struct {
    bool batched;           /* else one draw for the whole minibatch */
    /* elements outside the rows, rows, elements of a row inside, of a row, of all rows inside */
    Lin outer, rows, inner, line, all;
    /* which part of the whole it is, along so many dimensions, the innermost first: runs of so many
       elements of a row, each with those of the other chunks around it, as whose elements they are
       numbered */
    int n_of, mesh[MESH_AXES];
    const Chunk *of[MESH_AXES];
    int64_t run[MESH_AXES];
    const char *before; /* rows of the microbatch before these; NULL: none */
} Draw;

/* Dimensions of x from the last on: of a divided one the elements in a row that are neighbours in
 * the whole as well, where those behind it are whole. */
static void find_runs(const Kernel *k, ValueId x, int64_t rows, const Chunks *parts, Draw *to)
{
    const Value *v = val(k->f->g, x);
    int64_t n = 1;
    for (int d = v->shape.rank; parts && d-- > 0;) {
        n *= v->shape.d[d] / (d == v->batch ? rows : 1);
        for (int m = 0; m < MESH_AXES; m++) {
            const Chunk *of = &parts->along[m];
            if (of->axis != d)
                continue;
            if (d == v->batch) {
                to->before = arena_printf(k->a, "(uint64_t)%s * %" PRId64, out_chunk(k->o, of, m),
                                          rows);
                continue;
            }
            to->of[to->n_of] = of;
            to->mesh[to->n_of] = m;
            to->run[to->n_of++] = n / of->groups;
            n *= of->chunks;
        }
    }
}

/* Of numbers for each element of value x. */
static Draw draw_of(Kernel *k, ValueId x)
{
    const Value *v = val(k->f->g, x);
    int64_t rows = k->f->g->batch;
    if (k->f->g->rows.divided && v->batch >= 0 && v->shape.d[v->batch] < rows)
        rows = v->shape.d[v->batch];
    bool batched = v->batch >= 0 && rows > 0 && v->shape.d[v->batch] % rows == 0;
    int b = batched ? v->batch : 0;
    Draw d = {.batched = batched,
              .outer = batched ? cg_span(k->f, x, 0, b) : lin(1),
              .rows = lin(1),
              .inner = cg_span(k->f, x, b, v->shape.rank)};
    if (batched) {
        d.rows = k->f->sg->fixed ? lin(rows) : (Lin){0, 1};
        if (!lin_div(d.inner, d.rows, &d.inner))
            BUG("rows that do not divide a batch");
    }
    if (!lin_mul(d.outer, d.inner, &d.line) || !lin_mul(d.rows, d.inner, &d.all) || d.line.b != 0)
        BUG("a size that is not affine in the rows");
    find_runs(k, x, rows, k->n->attr.piece, &d);
    return d;
}

static const char *chunk_name(Kernel *k, int i)
{
    return i ? arena_printf(k->a, "chunk%d", i) : "chunk";
}

/* The model's own seed, else the run's. */
static void draw_params(Kernel *k, const Draw *d, int64_t seed)
{
    text_add(&k->params, ", uint64_t seed, uint64_t step%s, uint32_t key",
             d->batched ? ", uint64_t row0" : "");
    k->o->context = true;
    text_add(&k->args, ", %s, c->step%s, %s",
             seed ? arena_printf(k->a, "UINT64_C(%" PRId64 ")", seed - 1) : "c->seed",
             !d->batched ? ""
             : d->before ? arena_printf(k->a, ", c->row0 + %s", d->before)
                         : ", c->row0",
             out_key(k->o, k->s));
    for (int i = 0; i < d->n_of; i++) {
        text_add(&k->params, ", uint64_t %s", chunk_name(k, i));
        text_add(&k->args, ", (uint64_t)%s", out_chunk(k->o, d->of[i], d->mesh[i]));
    }
}

/* Rows r, and of each its elements e .. e + many - 1, which share one call of the generator. */
static void draw_loops(Kernel *k, const Draw *d, int many)
{
    if (!k->device) {
        kernel_parallel(k, 1, (const char *const[]){"r"}, &d->rows, true);
        open_block("for (int64_t e = 0; e < %s; e += %d) {", kernel_lin(k, d->line), many);
        return;
    }
    const char *wide = strcmp(k->index, "int") == 0 ? "" : "_wide", *index = k->index,
               *calls = out_parts(k->a, k->f->sg, d->line.c, many);
    open_block("for (%s n = pp_thread%s(); n < %s * %s; n += pp_threads%s()) {", index, wide,
               kernel_factor(k, d->rows), calls, wide);
    line("const %s r = n / %s;", index, calls);
    line("const %s e = n %% %s * %d;", index, calls, many);
    k->opened = 1;
    k->grid = arena_printf(k->a, "pp_blocks(%s * %s, %d)", kernel_factor(k, d->rows),
                           calls, k->threads);
}

/* Do elements that share a call of the generator here share one in the whole as well? */
static bool draws_together(const Kernel *k, const Draw *d, int many)
{
    return !d->n_of || cg_divisor(k->f->sg, d->run[0]) % many == 0;
}

/* Element e of the row, as it is numbered in the whole. */
static const char *draw_number(Kernel *k, const Draw *d, const char *e)
{
    if (!d->n_of)
        return arena_printf(k->a, "(uint64_t)%s", e);
    for (int i = 0; i < d->n_of; i++) {
        const char *run = kernel_lin(k, lin(d->run[i]));
        e = arena_printf(k->a, "((uint64_t)%s / %s * %d + %s) * %s + (uint64_t)%s %% %s", e, run,
                         d->of[i]->chunks, chunk_name(k, i), run, e, run);
        e = i + 1 < d->n_of ? arena_printf(k->a, "(%s)", e) : e;
    }
    return e;
}

static void draw_numbers(Kernel *k, const Draw *d, int many, const char *e)
{
    if (d->n_of)
        line("const uint64_t number = %s;", draw_number(k, d, e));
    line("uint32_t random[4];");
    line("pp_philox(seed, step, %s, %s / %d, key, random);",
         d->batched ? "row0 + (uint64_t)r" : "(uint64_t)r",
         d->n_of ? "number" : draw_number(k, d, e), many);
}

/* Element q of the row is element `at` of the value; draws: it has a number.  Which one of those of
 * its call is returned. */
static const char *draw_elements(Kernel *k, const Draw *d, int many, bool draws)
{
    bool together = draws_together(k, d, many);
    if (draws && together)
        draw_numbers(k, d, many, "e");
    open_block("for (%s q = e; q < e + %d && q < %s; q++) {", k->index, many,
               kernel_lin(k, d->line));
    if (lin_is(d->outer, 1))
        line("const %s at = r * %s + q;", k->index, kernel_factor(k, d->inner));
    else
        line("const %s at = q / %s * %s + r * %s + q %% %s;", k->index, kernel_factor(k, d->inner),
             kernel_factor(k, d->all), kernel_factor(k, d->inner), kernel_factor(k, d->inner));
    if (draws && !together)
        draw_numbers(k, d, many, "q");
    return together ? "q - e" : arena_printf(k->a, "number %% %d", many);
}

static void draw_close(Kernel *k)
{
    close_block();
    if (!k->device)
        close_block();
    kernel_close_parallel(k);
}

static void dropout(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0];
    Draw d = draw_of(k, x);
    bool y = kernel_wants(k, 0), mask = kernel_wants(k, 1);
    kernel_param(k, x, "x", false);
    if (y)
        kernel_param(k, n->out[0], "y", true);
    if (mask)
        kernel_param(k, n->out[1], "mask", true);
    double ratio = n->attr.ratio;
    uint64_t limit = ratio >= 1 ? UINT64_C(0x100000000) : (uint64_t)(ratio * 4294967296.0);
    if (limit > 0)
        draw_params(k, &d, 0);
    double scale = ratio < 1 ? 1 / (1 - ratio) : 0;
    draw_loops(k, &d, 4);
    const char *which = draw_elements(k, &d, 4, limit > 0);
    if (limit > 0)
        line("const int keep = random[%s] >= UINT64_C(%" PRIu64 ");", which, limit);
    else
        line("const int keep = 1;");
    if (y)
        line("y[at] = keep ? x[at] * %s : 0;",
             cg_number(k->a, val(k->f->g, x)->dtype, scale, 0));
    else
        line("(void)x;");
    if (mask)
        line("mask[at] = (uint8_t)keep;");
    draw_close(k);
}

/* Uniform in (0, 1): the odd multiples of 2^-24, of 2^-53 in float64 (pp_random.h). */
static void uniform(Kernel *k)
{
    ValueId y = k->n->out[0];
    bool wide = val(k->f->g, y)->dtype == DT_F64;
    int many = wide ? 2 : 4;
    Draw d = draw_of(k, y);
    kernel_param(k, y, "y", true);
    draw_params(k, &d, k->n->attr.seed);
    draw_loops(k, &d, many);
    const char *which = draw_elements(k, &d, many, true);
    if (wide)
        line("y[at] = pp_uniform(random[2 * (%s)], random[2 * (%s) + 1]);", which, which);
    else
        line("y[at] = pp_uniformf(random[%s]);", which);
    draw_close(k);
}

static void pad(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0], y = n->out[0];
    int rank = val(k->f->g, y)->shape.rank;
    static const char *const how[] = {"", "reflect", "edge", "wrap"};
    kernel_param(k, x, "x", false);
    kernel_param(k, y, "y", true);
    kernel_parallel(k, 1, (const char *const[]){"e"}, (const Lin[]){cg_span(k->f, y, 0, rank)},
                    true);
    const char *from = "0";
    Lin stride = lin(1), sx = lin(1);
    for (int d = rank - 1; d >= 0; d--) {
        const char *q =
            lin_is(stride, 1) ? "e" : arena_printf(k->a, "e / %s", kernel_factor(k, stride));
        line("%s%s i%d = %s %% %s;",
             n->attr.begin[d] || n->attr.end[d] || !k->device ? "" : "const ", k->index, d, q,
             kernel_factor(k, cg_ext(k->f, y, d)));
        if (n->attr.begin[d] || n->attr.end[d])
            line("i%d = pp_pad_%s(i%d - %s, %s);", d, how[n->attr.mode], d,
                 kernel_lin(k, lin(n->attr.begin[d])), kernel_lin(k, cg_ext(k->f, x, d)));
        from = arena_printf(k->a, "%s + i%d * %s", from, d, kernel_factor(k, sx));
        if (!lin_mul(stride, cg_ext(k->f, y, d), &stride) || !lin_mul(sx, cg_ext(k->f, x, d), &sx))
            BUG("a size that is not affine in the rows");
    }
    line("y[e] = x[%s];", from);
    kernel_close_parallel(k);
}

/* Pack, Unpack in one run over the mask: a row of `inner` elements, of `len` of x and of y. */
static void pack_rows(Kernel *k, bool packs, Lin len, Lin inner, const char *x, const char *y)
{
    const char *from = packs ? "i" : "place", *to = packs ? "place" : "i", *copy, *clear;
    if (lin_is(inner, 1)) {
        copy = arena_printf(k->a, "%s[%s] = %s[%s];", y, to, x, from);
        clear = arena_printf(k->a, "%s[%s] = 0;", y, to);
    } else {
        const char *n = kernel_factor(k, inner);
        line("const size_t row = (size_t)%s * sizeof *%s;", n, y);
        copy = arena_printf(k->a, "memcpy(%s + %s * %s, %s + %s * %s, row);", y, to, n, x, from, n);
        clear = arena_printf(k->a, "memset(%s + %s * %s, 0, row);", y, to, n);
    }
    line("int64_t place = 0;");
    kernel_loop(k, "i", len);
    open_block("if (mask[i]) {");
    line("%s", copy);
    line("place++;");
    close_block();
    if (!packs) {
        line("else");
        line("    %s", clear);
    }
    close_block();
    if (packs) {
        line("for (; place < %s; place++)", kernel_lin(k, len));
        line("    %s", clear);
    }
}

/*
 * Pack, Unpack: places x inner elements, `outer` times.  On the CPU in one run over the mask; on
 * the device a warp for each row counts up to its place, 32 bytes of the mask at a time.
 */
static void pack(Kernel *k)
{
    const Node *n = k->n;
    ValueId x = n->in[0], y = n->out[0];
    int axis = (int)n->attr.axis, rank = val(k->f->g, x)->shape.rank;
    Lin inner = cg_span(k->f, x, axis + 1, rank), len = cg_ext(k->f, x, axis),
        outer = cg_span(k->f, x, 0, axis);
    bool packs = n->op == OP_Pack;
    kernel_param(k, x, "x", false);
    kernel_param(k, n->in[1], "mask", false);
    kernel_param(k, y, "y", true);
    if (!k->device && lin_is(outer, 1)) {
        pack_rows(k, packs, len, inner, "x", "y");
        return;
    }
    if (!k->device) {
        kernel_loop(k, "o", outer);
        line("const %s *from = x + o * %s * %s;", cg_ctype(val(k->f->g, x)->dtype),
             kernel_factor(k, len), kernel_factor(k, inner));
        line("%s *to = y + o * %s * %s;", cg_ctype(val(k->f->g, y)->dtype), kernel_factor(k, len),
             kernel_factor(k, inner));
        pack_rows(k, packs, len, inner, "from", "to");
        close_block();
        return;
    }
    kernel_parallel(k, 3, (const char *const[]){"o", "i", "lane"},
                    (const Lin[]){outer, len, lin(32)}, true);
    if (packs)
        line("const %s at = pp_warp_place<%s>(mask, %s, i);", k->index, k->index,
             kernel_lin(k, len));
    else
        line("const %s place = pp_warp_count(mask, i);", k->index);
    line("for (%s e = lane; e < %s; e += 32)", k->index, kernel_lin(k, inner));
    line(packs ? "    y[(o * %s + i) * %s + e] = at < 0 ? 0 : x[(o * %s + at) * %s + e];"
               : "    y[(o * %s + i) * %s + e] = mask[i] ? x[(o * %s + place) * %s + e] : 0;",
         kernel_factor(k, len), kernel_factor(k, inner), kernel_factor(k, len),
         kernel_factor(k, inner));
    kernel_close_parallel(k);
}

/* Integers: no library, three loops. */
static void matmul(Kernel *k)
{
    const Node *n = k->n;
    ValueId a = n->in[0], b = n->in[1], y = n->out[0];
    int rank = val(k->f->g, y)->shape.rank, ra = val(k->f->g, a)->shape.rank,
        rb = val(k->f->g, b)->shape.rank;
    const char *t = cg_ctype(val(k->f->g, y)->dtype);
    Lin m = cg_ext(k->f, y, rank - 2), w = cg_ext(k->f, y, rank - 1),
        depth = cg_ext(k->f, a, ra - 1);
    kernel_param(k, a, "a", false);
    kernel_param(k, b, "b", false);
    kernel_param(k, y, "y", true);
    const char *oa = "0", *ob = "0", *oy = "0", *each[MAX_RANK];
    Lin many[MAX_RANK];
    for (int d = 0; d < rank - 2; d++) {
        const char *i = arena_printf(k->a, "i%d", d);
        int da = d - (rank - ra), db = d - (rank - rb);
        each[d] = i;
        many[d] = cg_ext(k->f, y, d);
        oy = arena_printf(k->a, "%s + %s * %s", oy, i,
                          kernel_factor(k, cg_span(k->f, y, d + 1, rank)));
        if (da >= 0 && !lin_is(cg_ext(k->f, a, da), 1))
            oa = arena_printf(k->a, "%s + %s * %s", oa, i,
                              kernel_factor(k, cg_span(k->f, a, da + 1, ra)));
        if (db >= 0 && !lin_is(cg_ext(k->f, b, db), 1))
            ob = arena_printf(k->a, "%s + %s * %s", ob, i,
                              kernel_factor(k, cg_span(k->f, b, db + 1, rb)));
    }
    each[rank - 2] = "r";
    each[rank - 1] = "q";
    many[rank - 2] = m;
    many[rank - 1] = w;
    kernel_parallel(k, rank, each, many, false);
    line("%s sum = 0;", t);
    line("for (%s p = 0; p < %s; p++)", k->index, kernel_lin(k, depth));
    line("    sum += a[%s + r * %s + p] * b[%s + p * %s + q];", oa, kernel_factor(k, depth), ob,
         kernel_factor(k, w));
    line("y[%s + r * %s + q] = sum;", oy, kernel_factor(k, w));
    kernel_close_parallel(k);
}

/* No operand and no result has 2^31 elements, nor are there so many threads: Pack and Unpack have a
   warp for each row. */
static bool is_small(const Kernel *k)
{
    enum { SPARE = 1 << 25, WARP = 32 };
    int64_t threads = k->n->op == OP_Pack || k->n->op == OP_Unpack ? WARP : 1;
    for (uint32_t i = 0; i < k->n->nin + k->n->nout; i++) {
        ValueId v = i < k->n->nin ? k->n->in[i] : k->n->out[i - k->n->nin];
        if (v != NONE && cg_most(k->f->sg, shape_elements(&val(k->f->g, v)->shape)) >=
                             (INT32_MAX - SPARE) / threads)
            return false;
    }
    return true;
}

static void print_launch(Kernel *k, const char *comment, const char *params, const char *body)
{
    Out *o = k->o;
    Text *t = &o->text;
    if (k->before)
        text_line(t, "%s", k->before);
    if (!*body)
        return;
    const char *grid =
        k->grid ? k->grid
                : arena_printf(k->a, "pp_blocks(%s, %d)", out_lin(o, k->work), k->threads);
    text_line(t, "PP_WORK(\"%s\", 0, 0);", op_name(k->n->op));
    out_launch(o, k->s, &(KernelText){comment, "", params, body, k->index, NULL},
               &(Grid){k->threads, 0, grid, arena_printf(k->a, "%d", k->threads)},
               text_all(&k->args));
}

/* In C a call; on the device what comes first, then a launch. */
static void print_call(Kernel *k)
{
    const char *body = k->body.at ? k->body.at : "", *comment = cg_node_text(k->f->g, k->s->node);
    const char *params = text_all(&k->params);
    if (k->device)
        print_launch(k, comment, params, body);
    else
        out_call(k->o, k->s, &(KernelText){comment, "", params, body, k->index, NULL},
                 text_all(&k->args));
}

void print_kernel(Out *o, const Step *s)
{
    const Node *n = &o->f->g->node.at[s->node];
    Kernel kernel = {.o = o,
                     .s = s,
                     .f = o->f,
                     .n = n,
                     .a = o->a,
                     .device = o->target->device,
                     .params = {.a = o->a},
                     .args = {.a = o->a},
                     .index = "int64_t",
                     .threads = 256};
    Kernel *k = &kernel;
    k->body.a = o->a;
    k->body.indent = 1;
    if (k->device && is_small(k))
        k->index = "int";
    switch (n->op) {
    case OP_ScatterElements: kernel_scatter_elements(k); break;
    case OP_ScatterND: kernel_scatter_nd(k); break;
    case OP_CumSum: cumsum(k); break;
    case OP_TopK: topk(k); break;
    case OP_Suppress: suppress(k); break;
    case OP_MaxPool: kernel_pool(k, true); break;
    case OP_AveragePool: kernel_pool(k, false); break;
    case OP_Dropout: dropout(k); break;
    case OP_Random: uniform(k); break;
    case OP_Pad: pad(k); break;
    case OP_Pack:
    case OP_Unpack: pack(k); break;
    case OP_MatMul: matmul(k); break;
    default: BUG("no code for %s", op_name(n->op));
    }
    print_call(k);
}

/*
 * cuda_segments.c - rows on the device; of few long ones, as batch statistics are, several blocks
 * share one.  In: a nest of rows.  Out: then, a kernel for each pass: block (row, segment) reduces
 * its segment to part[row][segment], and kernels of later passes begin with the sums over these,
 * which each warp adds in the same order; nothing stays in registers from pass to pass.  Else what
 * cuda_row.c makes.
 */
#include <inttypes.h>
#include <string.h>

#include "cuda_row.h"

/* A result that takes the place of an operand waits for the last pass, a scalar of the row for a
   kernel behind it: another block may still read that. */
static bool may_divide(const Row *r)
{
    const Cuda *c = r->c;
    const Nest *n = c->p.n;
    int many = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (nest_is_picked(s) && c->alias[s->arg])
            return false;
        many += s->kind == S_REDUCE;
    }
    return many > 0 && many <= NEST_DIMS && n->passes < CUDA_KERNELS;
}

static bool is_sum_before(const Nest *n, uint32_t i, int pass)
{
    return n->stmt.at[i].kind == S_REDUCE && n->stmt.at[i].pass < pass;
}

/* What the kernel of a pass reads, sums of earlier passes among it. */
static bool *needed(const Row *r, int pass)
{
    const Cuda *c = r->c;
    const Nest *n = c->p.n;
    bool *need = arena_array(c->p.a, bool, n->stmt.n + 1);
    nest_marks(n, pass, c->p.in_pass);
    for (uint32_t i = n->stmt.n; i-- > 0;) {
        const Stmt *s = &n->stmt.at[i];
        need[i] |= c->p.in_pass[i] || row_is_stored(n, i, pass);
        if (!need[i] || is_sum_before(n, i, pass))
            continue;
        for (uint32_t j = 0; j < stmt_reads(s); j++)
            need[stmt_read(s, j)] = true;
    }
    return need;
}

static const char *part_place(const Row *r, const char *count, const char *segment)
{
    const Nest *n = r->c->p.n;
    if (n->nouter == 0)
        return segment;
    return arena_printf(r->c->p.a, "%s * %s + %s", n->nouter == 1 ? "i" : "row", count, segment);
}

/* A warp adds the sums of a row's segments; each warp of a block does. */
static void fold_parts(Row *r, const uint32_t *sum, uint32_t many, const char *count)
{
    Cuda *c = r->c;
    const char *lane = r->lanes ? "lane" : "thread % 32", *place = part_place(r, count, "p");
    for (uint32_t k = 0; k < many; k++) {
        const Stmt *s = &c->p.n->stmt.at[sum[k]];
        text_line(c->p.t, "%s %s_lane = %s;", type_sum(s->type), print_called(&c->p, sum[k]),
                  print_neutral(&c->p, s));
    }
    print_open_loop(&c->p, "int", "p", lane, count, PP_WARP);
    for (uint32_t k = 0; k < many; k++)
        print_accumulate(&c->p, arena_printf(c->p.a, "%s_lane", print_called(&c->p, sum[k])),
                         &c->p.n->stmt.at[sum[k]],
                         arena_printf(c->p.a, "%s[%s]", cuda_part_read(c, sum[k]), place));
    text_close(c->p.t);
    for (uint32_t k = 0; k < many; k++) {
        const Stmt *s = &c->p.n->stmt.at[sum[k]];
        const char *all = arena_printf(c->p.a, "pp_lanes_%s<%d>(%s_lane)", print_fold_name(s->op),
                                       PP_WARP, print_called(&c->p, sum[k]));
        text_line(c->p.t, "const %s %s = %s;", type_sum(s->type), print_called(&c->p, sum[k]),
                  type_rounded(c->p.a, s->type, all));
    }
}

/* Sums over segments, and scalars of the row, up to this pass. */
static void row_values(Row *r, int pass, const char *count)
{
    Cuda *c = r->c;
    const Nest *n = c->p.n;
    const bool *need = needed(r, pass);
    uint32_t sum[NEST_DIMS], many = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (need[i] && is_sum_before(n, i, pass))
            sum[many++] = i;
    if (many > 0)
        fold_parts(r, sum, many, count);
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (need[i] && s->row && s->kind != S_REDUCE && s->kind != S_STORE)
            print_value(&c->p, i);
    }
}

static void put_parts(Row *r, const char *count)
{
    Cuda *c = r->c;
    const Nest *n = c->p.n;
    int many = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (!c->p.in_pass[i] || s->kind != S_REDUCE)
            continue;
        if (many++ == 0)
            text_line(c->p.t, "if (thread == 0) {");
        text_line(c->p.t, "    %s[%s] = %s;",
                  cuda_part(c, i, r->sums * (int64_t)dtype_size(dtype_sum(s->type))),
                  part_place(r, count, "segment"), print_called(&c->p, i));
    }
    if (many > 0)
        text_line(c->p.t, "}");
}

static void pass_in_segments(Row *r, const char *size, const char *count)
{
    Cuda *c = r->c;
    cuda_kernel(c, PP_BLOCK,
                arena_printf(c->p.a, "dim3(static_cast<unsigned>(%s), %s)",
                             print_lin(&c->p, r->rows), count),
                "256");
    const char *end = print_lin(&c->p, r->length);
    row_open(r);
    text_line(c->p.t, "const %s segment = static_cast<%s>(blockIdx.y);", c->index, c->index);
    text_line(c->p.t, "const %s begin = segment * %s;", c->index, size);
    text_line(c->p.t, "const %s end = begin + %s < %s ? begin + %s : %s;", c->index, size, end,
              size, end);
    row_values(r, c->p.pass, count);
    row_store_scalars(r, c->p.pass);
    cuda_enter_pass(c, c->p.pass);
    row_open_sums(c);
    row_elements(r, "begin", "end");
    row_close_sums(r, true);
    put_parts(r, count);
}

/* What comes of the last pass's sums: a warp takes a row. */
static void scalars_at_last(Row *r, const char *count)
{
    Cuda *c = r->c;
    const Nest *n = c->p.n;
    bool any = false;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        any |= row_is_stored(n, i, n->passes);
    if (!any)
        return;
    r->lanes = PP_WARP;
    r->lane = "lane";
    r->segments = false;
    if (n->nouter > 0) {
        cuda_kernel(c, PP_BLOCK, cuda_grid(c, "pp_cover", r->rows, PP_BLOCK / PP_WARP),
                    "256");
        row_open(r);
    } else {
        cuda_kernel(c, PP_WARP, "1", "32");
        text_line(c->p.t, "const int lane = static_cast<int>(threadIdx.x);");
    }
    row_values(r, n->passes, count);
    row_store_scalars(r, n->passes);
}

static void in_segments(Row *r, const PpRowOrder *order)
{
    Cuda *c = r->c;
    const char *size = arena_printf(c->p.a, "static_cast<%s>(order.size)", c->index),
               *count = "static_cast<int>(order.parts)";
    row_keep_nothing(c);
    for (uint32_t i = 0; i < c->own->stmt.n; i++) {
        Stmt *s = &c->own->stmt.at[i];
        if (s->row && s->kind == S_STORE && c->alias[s->arg])
            s->pass = c->own->passes;
    }
    r->threads = PP_BLOCK;
    r->lane = "thread";
    r->segments = true;
    r->sums = PP_BUSY;
    if (order) {
        size = arena_printf(c->p.a, "%" PRId64, order->size);
        count = arena_printf(c->p.a, "%" PRId64, order->parts);
        r->sums = r->of.rows * order->parts;
    }
    for (c->p.pass = 0; c->p.pass < c->p.n->passes; c->p.pass++)
        pass_in_segments(r, size, count);
    scalars_at_last(r, count);
}

/* ---- where lengths decide -------------------------------------------------------------------- */

static const char *order_call(const Row *r)
{
    const PpRows *x = &r->of;
    Arena *a = r->c->p.a;
    const char *words = arena_printf(a, "%d", x->words);
    if (x->words && cuda_varies(r->c, r->length))
        words = arena_printf(a, "%s <= %d ? %d : 0", cuda_number(r->c, r->length), LONGEST_KEPT,
                             x->words);
    return arena_printf(a, "pp_row_order({%s, %s, %s, %d, %s, %s, %s, %s})",
                        cuda_number(r->c, r->rows), cuda_number(r->c, r->length), cuda_vec(r->c),
                        x->passes, words,
                        x->whole ? "true" : "false", x->beside ? "true" : "false",
                        x->parts ? "true" : "false");
}

/* Each form is printed for itself, from the nest as it came. */
typedef struct {
    Row *r;
    const Nest *nest;
    const char *ask;                                    /* Cuda.ask of each */
} Forms;

static void begin_form(const Forms *f, const char *when, bool four)
{
    Cuda *c = f->r->c;
    memcpy(c->own->stmt.at, f->nest->stmt.at, sizeof *f->nest->stmt.at * f->nest->stmt.n);
    if (four && f->nest->nd > f->nest->nouter)
        cuda_choose_vector(c, f->nest->nd - 1);
    *f->r = (Row){.c = c, .rows = f->r->rows, .length = f->r->length, .of = f->r->of};
    c->ask = f->ask;
    c->when = when;
    c->chunk = "c";
}

/* A row's length and how many are taken at once are known: what may be of any number of rows. */
static bool may_have(const Row *r, int64_t most, bool parts, int from, int to)
{
    enum { LAST_SHARED = PP_BUSY / 2 };
    const int64_t rows[] = {1, 2, 8, 16, 32, 63, 64, LAST_SHARED, LAST_SHARED + 1, 1023, 1024};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        PpRows of = r->of;
        of.rows = rows[i];
        const PpRowOrder o = pp_row_order(of);
        if (rows[i] <= most && (o.parts > 1) == parts && o.threads >= from && o.threads <= to)
            return true;
    }
    return false;
}

static void by_lengths(Row *r, const Nest *nest)
{
    Cuda *c = r->c;
    const Forms f = {r, nest, c->ask};
    const bool any = cuda_varies(c, r->length) || c->ask;
    const int64_t rows = cuda_varies(c, r->rows) ? cuda_most(c, r->rows) : r->of.rows,
                  length = cuda_most(c, r->length);
    c->out->order_type = "PpRowOrder";
    c->out->order = order_call(r);
    if (r->of.parts && (any ? length >= 2 * PP_BLOCK * 8 : may_have(r, rows, true, 1, PP_BLOCK))) {
        begin_form(&f, "order.parts > 1", true);
        in_segments(r, NULL);
    }
    if (r->of.beside && (any ? rows >= 1024 : may_have(r, rows, false, 1, 1))) {
        begin_form(&f, "order.threads == 1", false);
        c->ask = NULL;
        row_by_one(r, 1);
    }
    if (any) {
        begin_form(&f, "order.parts == 1 && order.threads > 1", true);
        row_by_one(r, 0);
        return;
    }
    if (may_have(r, rows, false, PP_WARP, PP_WARP)) {
        begin_form(&f, "order.threads == PP_WARP", true);
        row_by_one(r, PP_WARP);
    }
    PpRows one = r->of;
    one.rows = 1, one.parts = false;
    if (may_have(r, rows, false, PP_WARP + 1, PP_MOST_BLOCK)) {
        begin_form(&f, "order.parts == 1 && order.threads > PP_WARP", true);
        row_by_one(r, pp_row_order(one).threads);
    }
}

void cuda_row(Cuda *c)
{
    const Nest *n = c->p.n;
    Row r = {.c = c, .rows = nest_span(n, 0, n->nouter), .length = nest_span(n, n->nouter, n->nd)};
    if (n->nd > n->nouter)
        cuda_choose_vector(c, n->nd - 1);
    r.of = (PpRows){.rows = lin_at(r.rows, c->full),
                    .length = lin_at(r.length, c->full),
                    .vec = c->vec,
                    .passes = n->passes,
                    .words = r.length.b ? 0 : row_words(n),
                    .whole = r.length.b != 0,
                    .beside = row_is_beside(n),
                    .parts = may_divide(&r)};
    if (c->ask || cuda_varies(c, r.rows) || cuda_varies(c, r.length)) {
        Nest as_it_came = *n;
        as_it_came.stmt.at = arena_array(c->p.a, Stmt, n->stmt.n + 1);
        memcpy(as_it_came.stmt.at, n->stmt.at, sizeof *n->stmt.at * n->stmt.n);
        by_lengths(&r, &as_it_came);
        return;
    }
    const PpRowOrder order = pp_row_order(r.of);
    if (order.parts > 1)
        in_segments(&r, &order);
    else
        row_by_one(&r, order.threads);
}

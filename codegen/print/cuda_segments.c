/*
 * cuda_segments.c - rows on the device; of few long ones, as batch statistics are, several blocks
 * share one.  In: a nest of rows.  Out: then, a kernel for each pass: block (row, segment) reduces its
 * segment to part[row][segment], and kernels of later passes begin with the sums over these, which
 * each warp adds in the same order; nothing stays in registers from pass to pass.  Else what
 * cuda_row.c makes.
 */
#include <inttypes.h>

#include "cuda_row.h"

static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to; }

/* A result that takes the place of an operand waits for the last pass, a scalar of the row for a
   kernel behind it: another block may still read that. */
static bool may_divide(const Row *r)
{
    const Cuda *c = r->c;
    const Nest *n = c->p.n;
    int many = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        bool early = !s->row && s->pass + 1 < n->passes;
        if ((s->kind == S_STORE && early && c->alias[s->arg]) ||
            (nest_is_picked(s) && c->alias[s->arg]))
            return false;
        many += s->kind == S_REDUCE;
    }
    return many > 0 && many <= NEST_DIMS && n->passes < CUDA_KERNELS;
}

/* A row of several passes that a block can hold is read once so. */
static bool is_held(const Row *r)
{
    enum { HELD = 32 };             /* elements of a thread */
    return r->c->p.n->passes > 1 && lin_at(r->length, r->c->full) <= CUDA_MOST_BLOCK * HELD;
}

static int64_t segments(const Row *r)
{
    int64_t length = lin_at(r->length, r->c->full), rows = lin_at(r->rows, r->c->full),
            wanted = CUDA_ENOUGH / rows, possible = length / (CUDA_BLOCK * r->c->vec * 8);
    int64_t count = wanted < possible ? wanted : possible;
    return count > 1 && !is_held(r) && may_divide(r) ? count : 1;
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
        for (uint32_t j = 0; j < s->nin; j++)
            need[s->in[j]] = true;
        for (uint32_t j = 0; j < s->nindex; j++)
            need[s->index[j].in] = true;
    }
    return need;
}

static const char *part_place(const Row *r, int64_t count, const char *segment)
{
    const Nest *n = r->c->p.n;
    if (n->nouter == 0)
        return segment;
    return arena_printf(r->c->p.a, "%s * %" PRId64 " + %s", n->nouter == 1 ? "i" : "row", count,
                        segment);
}

/* A warp adds the sums of a row's segments; each warp of a block does. */
static void fold_parts(Row *r, const uint32_t *sum, uint32_t many, int64_t count)
{
    Cuda *c = r->c;
    const char *lane = r->lanes ? "lane" : "thread % 32", *place = part_place(r, count, "p");
    for (uint32_t k = 0; k < many; k++) {
        const Stmt *s = &c->p.n->stmt.at[sum[k]];
        text_line(c->p.t, "%s p%u = %s;", type_sum(s->type), sum[k], print_neutral(&c->p, s));
    }
    print_open_loop(&c->p, "int", "p", lane, arena_printf(c->p.a, "%" PRId64, count), CUDA_WARP);
    for (uint32_t k = 0; k < many; k++)
        print_accumulate(&c->p, arena_printf(c->p.a, "p%u", sum[k]), &c->p.n->stmt.at[sum[k]],
                         arena_printf(c->p.a, "%s[%s]", cuda_part_read(c, sum[k]), place));
    print_close_block(&c->p);
    for (uint32_t k = 0; k < many; k++) {
        const Stmt *s = &c->p.n->stmt.at[sum[k]];
        const char *all = arena_printf(c->p.a, "pp_lanes_%s<%d>(p%u)", print_fold_name(s->op),
                                       CUDA_WARP, sum[k]);
        text_line(c->p.t, "const %s %s = %s;", type_sum(s->type), c->p.scalar[sum[k]],
                  type_rounded(c->p.a, s->type, all));
    }
}

/* Sums over segments, and scalars of the row, up to this pass. */
static void row_values(Row *r, int pass, int64_t count)
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

static void put_parts(Row *r, int64_t count)
{
    Cuda *c = r->c;
    const Nest *n = c->p.n;
    int64_t rows = lin_at(r->rows, c->full);
    int many = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        if (!c->p.in_pass[i] || s->kind != S_REDUCE)
            continue;
        if (many++ == 0)
            text_line(c->p.t, "if (thread == 0) {");
        text_line(c->p.t, "    %s[%s] = %s;",
                  cuda_part(c, i, rows * count * (int64_t)dtype_size(dtype_sum(s->type))),
                  part_place(r, count, "segment"), c->p.scalar[i]);
    }
    if (many > 0)
        text_line(c->p.t, "}");
}

static void pass_in_segments(Row *r, int64_t size, int64_t count)
{
    Cuda *c = r->c;
    cuda_kernel(c, CUDA_BLOCK,
                arena_printf(c->p.a, "dim3(static_cast<unsigned>(%s), %" PRId64 ")",
                             cuda_grid_lin(c, r->rows), count),
                "256");
    const char *end = print_lin(&c->p, r->length);
    row_open(r);
    text_line(c->p.t, "const %s segment = static_cast<%s>(blockIdx.y);", c->index, c->index);
    text_line(c->p.t, "const %s begin = segment * %" PRId64 ";", c->index, size);
    text_line(c->p.t, "const %s end = begin + %" PRId64 " < %s ? begin + %" PRId64 " : %s;",
              c->index, size, end, size, end);
    row_values(r, c->p.pass, count);
    row_store_scalars(r, c->p.pass);
    cuda_enter_pass(c, c->p.pass);
    row_open_sums(c);
    row_elements(r, "begin", "end");
    row_close_sums(r, true);
    put_parts(r, count);
}

/* What comes of the last pass's sums: a warp takes a row. */
static void scalars_at_last(Row *r, int64_t count)
{
    Cuda *c = r->c;
    const Nest *n = c->p.n;
    bool any = false;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        any |= row_is_stored(n, i, n->passes);
    if (!any)
        return;
    r->lanes = CUDA_WARP;
    r->lane = "lane";
    r->segments = false;
    if (n->nouter > 0) {
        cuda_kernel(c, CUDA_BLOCK, cuda_grid(c, "pp_cover", r->rows, CUDA_BLOCK / CUDA_WARP),
                    "256");
        row_open(r);
    } else {
        cuda_kernel(c, CUDA_WARP, "1", "32");
        text_line(c->p.t, "const int lane = static_cast<int>(threadIdx.x);");
    }
    row_values(r, n->passes, count);
    row_store_scalars(r, n->passes);
}

static void in_segments(Row *r, int64_t count)
{
    Cuda *c = r->c;
    int64_t length = lin_at(r->length, c->full), step = CUDA_BLOCK * c->vec,
            size = up(up(length, count), step) * step;
    for (uint32_t i = 0; i < c->own->stmt.n; i++) {
        Stmt *s = &c->own->stmt.at[i];
        s->keep = false;
        if (s->row && s->kind == S_STORE && c->alias[s->arg])
            s->pass = c->own->passes;
    }
    r->threads = CUDA_BLOCK;
    r->lane = "thread";
    r->segments = true;
    count = up(length, size);
    for (c->p.pass = 0; c->p.pass < c->p.n->passes; c->p.pass++)
        pass_in_segments(r, size, count);
    scalars_at_last(r, count);
}

void cuda_row(Cuda *c)
{
    const Nest *n = c->p.n;
    Row r = {
        .c = c, .rows = cuda_product(n, 0, n->nouter), .length = cuda_product(n, n->nouter, n->nd)};
    if (n->nd > n->nouter)
        cuda_choose_vector(c, n->nd - 1);
    int64_t count = segments(&r);
    if (count > 1)
        in_segments(&r, count);
    else
        row_by_one(&r);
}

/*
 * cuda_column.c - columns on the device: the outer dimensions are kept, the inner ones summed over.
 * In: such a nest.  Out: one kernel, or two where few columns are summed over many rows: partial
 * sums of stretches of rows, then their sums.
 *
 * A block takes neighbouring columns, its y-threads take every y-th row; they are added in their
 * order through shared memory, the stretches in theirs: a fixed order without atomics.  Where the
 * operands lie along the summed dimensions instead, each column is a row of cuda_row.c.
 */
#include <inttypes.h>

#include "cuda.h"

typedef struct {
    Cuda *c;
    Lin columns, rows;              /* kept points; summed points */
    PpColumnOrder order;            /* where lengths do not decide it */
    bool counted;                   /* they do: a block is as large as the launch says */
    bool parts;                     /* blocks along the grid's y have a stretch of the rows each */
    /* order.x, order.y, order.x * vec, order.stretch, order.parts in the kernel */
    const char *x, *y, *wide, *stretch, *many;
} Column;

/* A grid has BLOCKS blocks for each of 132 multiprocessors, as PP_BUSY says.  Told so, nvcc
   gives a thread the registers to have all loads of an unrolled loop under way before it uses the
   first; else it keeps room for more blocks, and loads one row at a time. */
/* few columns have parts: small blocks use more multiprocessors */
enum { BLOCKS = 2, PARTS_BLOCK = 64 };

static uint32_t reductions(const Nest *n)
{
    uint32_t many = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        many += n->stmt.at[i].kind == S_REDUCE;
    return many;
}

/* Do neighbours in memory belong to one column? */
static bool along_sums(const Nest *n)
{
    int kept = 0, summed = 0;
    for (uint32_t i = 0; i < n->stmt.n; i++) {
        const Stmt *s = &n->stmt.at[i];
        kept += s->kind == S_LOAD && n->nouter > 0 && lin_is(s->stride[n->nouter - 1], 1);
        summed += s->kind == S_LOAD && lin_is(s->stride[n->nd - 1], 1) &&
                  !(n->nouter > 0 && lin_is(s->stride[n->nouter - 1], 1));
    }
    return n->nouter == 0 || summed > kept;
}

static const char *number(const Cuda *c, int64_t n)
{
    return arena_printf(c->p.a, "%" PRId64, n);
}

static void choose(Column *o)
{
    enum { SHARED = 32768 };
    Cuda *c = o->c;
    const Nest *n = c->p.n;
    const int64_t columns = lin_at(o->columns, c->full), rows = lin_at(o->rows, c->full);
    const bool may = reductions(n) <= NEST_DIMS;
    if ((int64_t)reductions(n) * PP_BLOCK * (c->ask ? 4 : c->vec) * 8 > SHARED)
        cuda_choose_one(c);
    o->counted = cuda_varies(c, o->columns);
    o->counted |= cuda_varies(c, o->rows);
    o->counted |= c->ask != NULL;
    o->order = pp_column_order(columns, rows, c->vec, may);
    o->x = number(c, o->order.x);
    o->y = number(c, o->order.y);
    o->wide = number(c, o->order.x * c->vec);
    o->stretch = number(c, o->order.stretch);
    o->many = number(c, o->order.parts);
    if (!o->counted)
        return;
    o->x = "static_cast<int>(blockDim.x)";
    o->y = "static_cast<int>(blockDim.y)";
    o->wide = c->vec == 4 ? "wide" : o->x;
    o->stretch = arena_printf(c->p.a, "static_cast<%s>(order.stretch)", c->index);
    o->many = "order.parts";
    c->out->order_type = "PpColumnOrder";
    c->out->order =
        arena_printf(c->p.a, "pp_column_order(%s, %s, %s, %s)", cuda_number(c, o->columns),
                     cuda_number(c, o->rows), cuda_vec(c), may ? "true" : "false");
}

/* The kept dimensions: the innermost is j, or the linear index itself where there is no other. */
static void decode_columns(Column *o, const char *linear, bool loads)
{
    const int kept = o->c->p.n->nouter;
    const CudaNames names = {"i", kept == 1 ? linear : "j"};
    cuda_decode(o->c, linear, 0, kept, names, loads, !loads);
}

static void decode_rows(Column *o)
{
    const Nest *n = o->c->p.n;
    cuda_decode(o->c, "r", n->nouter, n->nd, (CudaNames){"r", NULL}, true, false);
}

static void each_reduction(Column *o, void (*fn)(Column *, uint32_t, const Stmt *))
{
    const Nest *n = o->c->p.n;
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_REDUCE)
            fn(o, i, &n->stmt.at[i]);
}

static void declare(Column *o, uint32_t i, const Stmt *s)
{
    Cuda *c = o->c;
    const char *zero = print_neutral(&c->p, s), *type = type_sum(s->type);
    const char *name = print_called(&c->p, i);
    if (o->counted)
        text_line(c->p.t, "__shared__ %s %s_block[%d];", type, name, PP_BLOCK * c->vec);
    else
        text_line(c->p.t, "__shared__ %s %s_block[%s][%s];", type, name, o->y, o->wide);
    if (c->vec == 4)
        text_line(c->p.t, "%s %s_lane[4] = {%s, %s, %s, %s};", type, name, zero, zero, zero, zero);
    else
        text_line(c->p.t, "%s %s_lane = %s;", type, name, zero);
}

/* What a thread with this y leaves of that column of the block. */
static const char *cell(const Column *o, uint32_t i, const char *y, const char *column)
{
    return arena_printf(o->c->p.a, o->counted ? "%s_block[%s * %s + %s]" : "%s_block[%s]%s[%s]",
                        print_called(&o->c->p, i), y, o->counted ? o->wide : "", column);
}

static void publish(Column *o, uint32_t i, const Stmt *s)
{
    Print *p = &o->c->p;
    (void)s;
    if (o->c->vec == 4) {
        text_line(p->t, "for (int k = 0; k < 4; k++)");
        text_line(p->t, "    %s = %s_lane[k];", cell(o, i, "threadIdx.y", "threadIdx.x * 4 + k"),
                  print_called(p, i));
    } else {
        text_line(p->t, "%s = %s_lane;", cell(o, i, "threadIdx.y", "threadIdx.x"),
                  print_called(p, i));
    }
}

static void combine(Column *o, uint32_t i, const Stmt *s)
{
    Print *p = &o->c->p;
    if (o->counted)
        text_line(p->t, "%s %s = %s_block[t];", type_sum(s->type), print_called(p, i),
                  print_called(p, i));
    else
        text_line(p->t, "%s %s = %s;", type_sum(s->type), print_called(p, i), cell(o, i, "0", "t"));
    if (!o->counted && o->order.y == 1)
        return;
    text_line(p->t, "for (int k = 1; k < %s; k++)", o->y);
    p->t->indent++;
    print_accumulate(p, print_called(p, i), s, cell(o, i, "k", "t"));
    p->t->indent--;
}

static void put_part(Column *o, uint32_t i, const Stmt *s)
{
    Cuda *c = o->c;
    const int64_t sums = o->counted ? PP_BUSY * PP_WARP * 4
                                    : lin_at(o->columns, c->full) * o->order.parts;
    const char *part = cuda_part(c, i, sums * (int64_t)dtype_size(dtype_sum(s->type)));
    text_line(c->p.t, "%s[static_cast<%s>(blockIdx.y) * %s + column] = %s;", part, c->index,
              print_factor(&c->p, o->columns), print_called(&c->p, i));
}

static void first_part(Column *o, uint32_t i, const Stmt *s)
{
    text_line(o->c->p.t, "%s %s = %s[column];", type_sum(s->type), print_called(&o->c->p, i),
              cuda_part_read(o->c, i));
}

static void add_part(Column *o, uint32_t i, const Stmt *s)
{
    Print *p = &o->c->p;
    print_accumulate(p, print_called(p, i), s,
                     arena_printf(p->a, "%s[k * %s + column]", cuda_part_read(o->c, i),
                                  print_factor(p, o->columns)));
}

static void stores(Column *o)
{
    const Nest *n = o->c->p.n;
    decode_columns(o, "column", false);
    for (uint32_t i = 0; i < n->stmt.n; i++)
        if (n->stmt.at[i].kind == S_STORE)
            print_store(&o->c->p, &n->stmt.at[i]);
}

/* Kernel 2: a thread adds the parts of its column in their order, of all sums at once. */
static void sum_parts(Column *o)
{
    Cuda *c = o->c;
    cuda_kernel(c, PARTS_BLOCK, cuda_grid(c, "pp_cover", o->columns, PARTS_BLOCK),
                arena_printf(c->p.a, "%d", PARTS_BLOCK));
    c->out->kernel[c->out->n - 1].blocks = BLOCKS;
    text_line(c->p.t, "const %s column = pp_thread%s();", c->index, cuda_wide(c));
    text_line(c->p.t, "if (column >= %s)", print_lin(&c->p, o->columns));
    text_line(c->p.t, "    return;");
    each_reduction(o, first_part);
    /* loads under way; of all parts it would be long code that runs once */
    text_line(c->p.t, "#pragma unroll 16");
    print_open_loop(&c->p, "int", "k", "1", o->many, 1);
    each_reduction(o, add_part);
    text_close(c->p.t);
    stores(o);
}

/* The rows of this thread for its columns, into s. */
static void thread_sums(Column *o)
{
    Cuda *c = o->c;
    const char *end = print_lin(&c->p, o->rows), *from = "static_cast<int>(threadIdx.y)";
    const char *first = c->p.n->nouter == 1 ? "j" : "e";
    if (o->counted && c->vec == 4)
        text_line(c->p.t, "const int wide = static_cast<int>(blockDim.x) * 4;");
    text_line(c->p.t, "const %s %s = static_cast<%s>(blockIdx.x * %s + threadIdx.x%s);", c->index,
              first, c->index, o->counted && c->vec == 1 ? "blockDim.x" : o->wide,
              c->vec == 4 ? " * 4" : "");
    each_reduction(o, declare);
    text_open(c->p.t, "if (%s < %s) {", first, print_lin(&c->p, o->columns));
    decode_columns(o, first, true);
    if (o->parts) {
        text_line(c->p.t, "const %s begin = static_cast<%s>(blockIdx.y) * %s;", c->index, c->index,
                  o->stretch);
        text_line(c->p.t, "const %s end = begin + %s < %s ? begin + %s : %s;", c->index,
                  o->stretch, end, o->stretch, end);
        from = "begin + static_cast<int>(threadIdx.y)";
        end = "end";
    }
    text_line(c->p.t, "#pragma unroll 4");
    text_open(c->p.t, "for (%s r = %s; r < %s; %s) {", c->index, from, end,
              !o->counted && o->order.y == 1 ? "r++" : arena_printf(c->p.a, "r += %s", o->y));
    decode_rows(o);
    cuda_element(c, "j");
    text_close(c->p.t);
    text_close(c->p.t);
}

/* Kernel 1, or the only one. */
static void sums(Column *o)
{
    Cuda *c = o->c;
    const char *grid, *block = arena_printf(c->p.a, "dim3(%s, %s)", o->x, o->y);
    if (o->counted) {
        const char *x = c->ask ? "PP_BLOCK / order.y" : "order.x";
        block = arena_printf(c->p.a, "dim3(%s, order.y)", x);
        grid = arena_printf(c->p.a, "pp_cover(%s, %s%s)", print_lin(&c->p, o->columns), x,
                            c->vec == 4 ? " * 4" : "");
    } else {
        grid = cuda_grid(c, "pp_cover", o->columns, o->order.x * c->vec);
    }
    if (o->parts)
        grid = arena_printf(c->p.a, "dim3(%s, %s)", grid, o->counted ? "order.parts" : o->many);
    cuda_kernel(c, o->counted ? PP_BLOCK : o->order.x * o->order.y, grid, block);
    c->out->kernel[c->out->n - 1].blocks = BLOCKS;
    thread_sums(o);
    each_reduction(o, publish);
    text_line(c->p.t, "__syncthreads();");
    text_line(c->p.t, "const int t = static_cast<int>(threadIdx.y * %s + threadIdx.x);",
              o->counted ? "blockDim.x" : o->x);
    text_line(c->p.t, "const %s column = static_cast<%s>(blockIdx.x * %s) + t;", c->index, c->index,
              o->counted && c->vec == 1 ? "blockDim.x" : o->wide);
    text_open(c->p.t, "if (t < %s && column < %s) {", o->wide, print_lin(&c->p, o->columns));
    each_reduction(o, combine);
    if (o->parts)
        each_reduction(o, put_part);
    else
        stores(o);
    text_close(c->p.t);
    if (o->parts)
        sum_parts(o);
}

/* May columns be so few, and rows so many, that blocks share them? */
static bool may_divide(Column *o)
{
    Cuda *c = o->c;
    const int64_t rows = cuda_most(c, o->rows),
                  columns = cuda_varies(c, o->columns) ? 1 : lin_at(o->columns, c->full);
    return rows >= 128 && columns <= PP_BUSY / 2 * PP_WARP * 4 && reductions(c->p.n) <= NEST_DIMS;
}

void cuda_column(Cuda *c)
{
    const Nest *n = c->p.n;
    if (along_sums(n)) {
        c->own->kind = NEST_ROW;
        cuda_row(c);
        return;
    }
    Column o = {
        .c = c, .columns = nest_span(n, 0, n->nouter), .rows = nest_span(n, n->nouter, n->nd)};
    cuda_choose_vector(c, n->nouter - 1);
    choose(&o);
    o.parts = o.counted ? may_divide(&o) : o.order.parts > 1;
    if (o.counted && o.parts) {
        c->when = "order.parts > 1";
        sums(&o);
        c->when = "order.parts == 1";
        o.parts = false;
    }
    sums(&o);
}
